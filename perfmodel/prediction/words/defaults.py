"""What a user may not expect of a step: what its defaults cost, and recurrent steps that follow one another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import PerfmodelError
from perfmodel.measurements.table import Run
from perfmodel.presentation.quantities import percent_text

if TYPE_CHECKING:
    from perfmodel.prediction.prediction import Prediction

RECURRENT: Final = "recurrence"
"""Beginning of the names of kernels that take a step of a sequence after another."""

IDLE_SHARE: Final = 0.25
"""Share of the peak rate below which it is not the rate of arithmetic that bounds a sequence. [1]"""

COSTLY: Final = 1.5
"""Times as long from which on a default is remarked on. [1]"""

NARROWER: Final = ("bf16", "fp16")
"""Data types to compare with, the first that the processor has."""

CURRENT: Final = "pytorch_2"
"""Framework to compare with."""


def default_remarks(p: Prediction) -> tuple[str, ...]:
    """Say by how much another data type or framework would be faster, where neither was asked for and it matters."""
    job = p.basis.job
    if job is None or isinstance(job.graph, Run) or p.basis.prepared.target.measured is not None:
        return ()
    others = {name: value for name, value in _others(p).items() if name not in job.asked}
    single = {name: _times_as_long(p, {name: value}) for name, value in others.items()}
    costly = [name for name, ratio in single.items() if ratio > COSTLY]
    together = _times_as_long(p, others) if len(others) > 1 else 0.0
    notes = [_note(p, {name: others[name]}, single[name]) for name in costly]
    if together > COSTLY * max([1.0, *single.values()]):
        notes.append(_note(p, others, together))
    return tuple(notes)


def _others(p: Prediction) -> dict[str, str]:
    dtypes = getattr(p.basis.prepared.target.processor_spec, "dtypes", ())
    narrower = next((name for name in NARROWER if name in dtypes), None)
    return ({"dtype": narrower} if narrower else {}) | {"framework": CURRENT}


def _times_as_long(p: Prediction, changes: dict[str, Any]) -> float:
    """Time of the step divided by its time with changes; 0 where these are impossible. [1]"""
    try:
        return p.step_s / p.job.replace(**changes).predict().step_s
    except PerfmodelError:
        return 0.0


def _note(p: Prediction, changes: dict[str, str], ratio: float) -> str:
    taken = {"dtype": p.dtype, "framework": p.basis.prepared.profile.stem}
    defaults = " and ".join(f"{name} {taken[name]}" for name in changes)
    asked = ", ".join(f"{name}={value!r}" for name, value in changes.items())
    are = ("s", "take") if len(changes) > 1 else ("", "takes")
    return f"the default{are[0]} {defaults} {are[1]} {ratio:.1f} times as long as {asked} would"


def sequence_remarks(p: Prediction) -> tuple[str, ...]:
    """Say where most of a step is a sequence whose kernels wait for one another, far below the peak rate."""
    rows = [row for row in p.layers if row.kernel.startswith(RECURRENT) and row.role != "weight_gradient"]
    seconds = sum(row.seconds for row in rows)
    if 2 * seconds < p.step_s:
        return ()
    reached = sum(row.flop_count for row in rows) / (seconds * p.peak_flop_per_s)
    if reached >= IDLE_SHARE:
        return ()
    names = ", ".join(dict.fromkeys(row.layer for row in rows))
    return (
        f"steps of {names} follow one another at {percent_text(reached)} of the peak rate: what bounds them is the "
        "sequence, not the rate of arithmetic or of memory",
    )
