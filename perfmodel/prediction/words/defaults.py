"""Remarks on what a user may not expect: the cost of defaults, and recurrent steps that wait for one another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perfmodel.derived import derived
from perfmodel.errors import PerfmodelError
from perfmodel.measurements.table import Run
from perfmodel.presentation.quantities import percent_text

if TYPE_CHECKING:
    from perfmodel.prediction.prediction import Prediction

COSTLY: Final = 1.5
"""Ratio of times from which on a default is worth a remark. [1]"""

NARROWER: Final = ("bf16", "fp16")
"""Data types to compare with, the first that the processor has."""

CURRENT: Final = "pytorch_2"
"""Framework to compare with."""


@derived
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
    """Time of the step divided by its time with changes; 0 where these are impossible or beyond the framework. [1]"""
    try:
        other = p.job.replace(**changes).predict()
    except PerfmodelError:
        return 0.0
    is_beyond = not set(p.basis.prepared.shortfalls).issuperset(other.basis.prepared.shortfalls)
    return 0.0 if is_beyond else p.step_s / other.step_s


def _note(p: Prediction, changes: dict[str, str], ratio: float) -> str:
    taken = {"dtype": p.dtype, "framework": p.basis.prepared.profile.stem}
    defaults = " and ".join(f"{name} {taken[name]}" for name in changes)
    asked = ", ".join(f"{name}={value!r}" for name, value in changes.items())
    typed = " ".join(f"--{name} {value}" for name, value in changes.items())
    are = ("s", "take") if len(changes) > 1 else ("", "takes")
    return f"the default{are[0]} {defaults} {are[1]} {ratio:.1f} times as long as {asked} ({typed}) would"


def sequence_remarks(p: Prediction) -> tuple[str, ...]:
    """Say where a sequence of kernels that wait for one another bounds a step."""
    if p.bottleneck != "sequence" or p.sequence is None:
        return ()
    return (
        f"steps of {', '.join(p.sequence.layers)} follow one another at {percent_text(p.sequence.reached)} of the peak "
        "rate: what bounds them is the sequence, not the rate of arithmetic or of memory",
    )
