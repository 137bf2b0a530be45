"""Downpour and delay-compensated SGD on 4, 8 and 12 machines: five times predicted from one.

An illustration rather than a test, since a constant is as close to all six times. The question is what causes the
growth with the workers (the queue at the parameter server) and the cost of the compensation (operations that the server
issues). One time, Downpour on four machines, fixes how long a worker is away from the server; nothing else is fitted.
The source does not state the batch size, so results are given for several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from perfmodel import zoo
from perfmodel.cost.staleness import PASSES, extra_service_time
from perfmodel.errors import CalibrationError
from perfmodel.framework.profile import in_base_units, load_framework
from perfmodel.graph import LayerGraph
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.system import System
from perfmodel.measurements.scaling_tables import load_scaling
from perfmodel.presentation.tables import Table, row_table
from perfmodel.simulation.asynchronous import play_asynchronous
from perfmodel.sync.asynchronous import SCHEMES
from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers
from perfmodel.units import BITS_PER_BYTE, GIGA
from perfmodel.validation.scores.table_report import (
    PERFMODEL,
    PartScore,
    RowReport,
    compared,
    parts_text,
)

KEY: Final = "mullapudi2017"

CONSTANT: Final = "a constant: the fitted time"

SYSTEM_TEXT: Final = "4 to 12 machines of four virtual CPUs"
"""System on which it ran, as in the scoreboard. [-]"""

MACHINES: Final = (4, 8, 12)
"""Machines of the rows of a scheme. [1]"""

COMPARED: Final = ("downpour", "delay_compensated")
CALIBRATED: Final = ("downpour", 3)
"""Scheme and workers of the one time that is fitted."""

MODEL_VIEW: Final = "busiest part"
"""The assumption on the server's queues that the model makes; the others show how much it matters. [-]"""

MEASURED: Final = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Illustration(RowReport):
    """The rows, the sensitivity, and the assumptions."""

    batch_size: int
    sensitivity: Table[Any]
    assumptions: tuple[str, ...]

    _DICT_KEYS = ("table", "mape_percent", "growth_factors", "rows", "sensitivity", "assumptions", "caveats")

    def __str__(self) -> str:
        scored = tuple(part.note for part in self.parts if part.note)
        notes = [f"- {text}" for text in (*scored, *self.assumptions, *self.caveats)]
        scores = parts_text(self.parts, title="the five that are not fitted")
        return "\n\n".join([self.rows.to_text(), self.sensitivity.to_text(), scores, "\n".join(notes)])

    @property
    def growth_factors(self) -> dict[str, float]:
        """Error of the growth from 4 to 12 machines by scheme: the larger growth over the smaller [1]."""
        return _growth_factors(self.sensitivity, self.batch_size)


def _growth_factors(sensitivity: Table[Any], batch_size: int) -> dict[str, float]:
    measured, model = (
        next(row for row in sensitivity if (row.queues, row.batch_size) == wanted)
        for wanted in ((MEASURED, None), (MODEL_VIEW, batch_size))
    )
    pairs = {
        "Downpour": (model.downpour_growth, measured.downpour_growth),
        "delay-compensated": (model.compensated_growth, measured.compensated_growth),
    }
    return {name: max(pair) / min(pair) for name, pair in pairs.items()}


def _parts(rows: Table[Any], factors: Mapping[str, float]) -> tuple[PartScore, ...]:
    """Return scores of perfmodel and of the constant, fitted to the same time."""
    growth = " and ".join(f"{factor:.2f} ({name})" for name, factor in factors.items())
    return compared(
        SYSTEM_TEXT,
        {PERFMODEL: rows.column("predicted_s"), CONSTANT: rows.column("constant_s")},
        measured=rows.column("measured_s"),
        fitted={PERFMODEL: 1, CONSTANT: 1},
        note=f"growth from 4 to 12 machines is off by a factor of {growth}; a constant has none",
        rows=[(row.scheme, row.worker_count) != CALIBRATED for row in rows],
    )


BATCH_SIZES: Final = (64, 100, 128, 200, 256)
"""Batch sizes that the answer is given for. [samples]"""

ASSUMED_BATCH_SIZE: Final = 128
"""The middle one of those, assumed: one time cannot separate it from the time per step. [samples]"""

ADAPTER_GBIT_PER_S: Final = 8.0
"""Rate of a machine of four virtual CPUs in 2017: 2 Gbit/s for each. [Gbit/s]"""

OPERATIONS_PER_VARIABLE: Final = 3
"""A server receives a gradient, applies it, and sends parameters: an operation each, for each variable. [1]"""

PARAMETER_BYTES: Final = 4
"""Single precision. [B]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """Times of the parameter server's work for one update. [s]"""

    transfer_s: float
    dispatch_s: float
    memory_s: float
    compensation_s: float
    variable_count: int

    def numbers(self, *, compute_s: float, worker_count: int) -> AsynchronousNumbers:
        return AsynchronousNumbers(
            compute_s=compute_s,
            worker_count=worker_count,
            push_s=self.transfer_s,
            pull_s=self.transfer_s,
            update_s=self.variable_count * OPERATIONS_PER_VARIABLE * self.dispatch_s + self.memory_s,
            compensation_s=self.compensation_s,
        )


def _variable_count(graph: LayerGraph) -> int:
    """Return the tensors that are updated: a weight and a bias of each layer that has parameters."""
    return sum(2 for count in graph.parameter_counts.values() if count)


def _server(stated: Mapping[str, Any]) -> _Server:
    graph = zoo.build(stated["network"])
    system = load_system(stated["system"])
    assert isinstance(system, System)
    cpu = system.processor
    profile = load_framework(stated["framework"])
    assert profile.cpu is not None
    at_once = cpu.core_count  # variables are updated independently, each operation by one thread of a core
    dispatch_s = in_base_units(profile.cpu.constants)["dispatch_us"] / at_once
    memory_bytes_per_s = cpu.memory.bandwidth_per_core_gb_per_s * GIGA * at_once
    parameter_bytes, variables = graph.parameter_count * PARAMETER_BYTES, _variable_count(graph)
    return _Server(
        transfer_s=parameter_bytes * BITS_PER_BYTE / (ADAPTER_GBIT_PER_S * GIGA),
        dispatch_s=dispatch_s,
        memory_s=PASSES * parameter_bytes / memory_bytes_per_s,
        compensation_s=extra_service_time(
            parameter_bytes=parameter_bytes,
            memory_bytes_per_s=memory_bytes_per_s,
            variable_count=variables,
            dispatch_s=dispatch_s,
        ),
        variable_count=variables,
    )


def illustrate(*, batch_size: int = ASSUMED_BATCH_SIZE, played_steps: int = 1500) -> Illustration:
    """Predict the table's times from one of them.

    Parameters
    ----------
    batch_size : int
        Samples in a mini-batch, which the report does not state. [samples]
    played_steps : int
        Steps of each worker to simulate; 0 for no simulation. [1]

    Returns
    -------
    Illustration
        Times, sensitivity, assumptions, caveats. Prints as a report.

    Raises
    ------
    CalibrationError
        If steps of that size are shorter than the server's work for each.

    Notes
    -----
    Valid for: this table. Ignores: differences between machines of one type.

    Examples
    --------
    >>> report = illustrate(played_steps=0)
    >>> row = report.rows[2]
    >>> row.measured_s, round(row.predicted_s, 2)
    (3.55, 3.54)
    """
    table = load_scaling(KEY)
    server = _server(table.stated)
    measured = {(row["scheme"], int(row["worker_count"])): row["epoch_s"] for row in table.rows}
    examples = table.stated["examples_per_epoch"]
    counts = sorted({workers for _, workers in measured})
    steps = examples / batch_size
    compute_s = _calibrated(server, step_s=measured[CALIBRATED] / steps)
    rows = []
    for row in table.rows:
        workers = int(row["worker_count"])
        times = SCHEMES[row["scheme"]].times(server.numbers(compute_s=compute_s, worker_count=workers))
        rows.append(
            {
                "scheme": row["scheme"],
                "node_count": int(row["node_count"]),
                "worker_count": workers,
                "measured_s": row["epoch_s"],
                "predicted_s": float(times.step_s) * steps,
                "constant_s": measured[CALIBRATED],
                "mean_staleness": float(times.mean_staleness),
                "server_utilisation": float(times.server_utilisation),
            }
        )
    constant = dict.fromkeys(measured, measured[CALIBRATED])
    lines = [_growth_row(measured, counts, label=MEASURED), _growth_row(constant, counts, label="a constant")]
    for size in sorted({*BATCH_SIZES, batch_size}):
        for view, changes in _VIEWS.items():
            away_s = _calibrated(server, step_s=measured[CALIBRATED] * size / examples, **changes)
            epochs = _epochs(server, away_s, counts, steps=examples / size, **changes)
            lines.append(_growth_row(epochs, counts, label=view, batch_size=size, away_s=away_s))
    if played_steps:
        epochs = _epochs(server, compute_s, counts, steps=steps, played_steps=played_steps)
        lines.append(_growth_row(epochs, counts, label="busiest part, played", batch_size=batch_size, away_s=compute_s))
    epochs_of_rows = row_table(
        rows, title=f"{table.title}; mini-batches of {batch_size}, assumed; the first row is fitted"
    )
    sensitivity = row_table(lines, title="growth from 4 to 12 machines and price of compensation [%]")
    return Illustration(
        table=KEY,
        batch_size=batch_size,
        rows=epochs_of_rows,
        parts=_parts(epochs_of_rows, _growth_factors(sensitivity, batch_size)),
        not_scored="1 time that a worker's own step was fitted to",
        sensitivity=sensitivity,
        assumptions=_assumptions(server, batch_size=batch_size),
        caveats=table.caveats,
    )


_VIEWS: Final[dict[str, dict[str, Any]]] = {
    MODEL_VIEW: {},
    "each part": {"each_part_queues": True},
    "busiest part, equal services": {"service_variation": 0.0},
}
"""Assumption on the server's queues -> changed numbers; the first is the model's own."""


def _calibrated(server: _Server, *, step_s: float, **changes: Any) -> float:
    """Solve for the worker's computing time with which Downpour on four machines has the measured step. [s]"""
    from scipy.optimize import brentq

    scheme, workers = CALIBRATED

    def longer_s(compute_s: float) -> float:
        numbers = replace(server.numbers(compute_s=compute_s, worker_count=workers), **changes)
        return float(SCHEMES[scheme].times(numbers).step_s) - step_s

    if longer_s(0.0) > 0:
        message = f"{KEY}: a step of {step_s * 1e3:.2f} ms is shorter than the server's work for it"
        raise CalibrationError(message)
    return float(brentq(longer_s, 0.0, step_s, xtol=1e-12))


def _epochs(
    server: _Server, compute_s: float, counts: list[int], *, steps: float, played_steps: int = 0, **changes: Any
) -> dict[tuple[str, int], float]:
    """Return the time of an epoch of both schemes with each number of workers, by formula or as played. [s]"""

    def step_s(name: str, workers: int) -> float:
        numbers = replace(server.numbers(compute_s=compute_s, worker_count=workers), **changes)
        if played_steps:
            return play_asynchronous(SCHEMES[name].in_effect(numbers), step_count=played_steps).step_s
        return float(SCHEMES[name].times(numbers).step_s)

    return {(name, workers): steps * step_s(name, workers) for name in COMPARED for workers in counts}


def _growth_row(
    epochs: Mapping[tuple[str, int], float],
    counts: list[int],
    *,
    label: str,
    batch_size: int | None = None,
    away_s: float | None = None,
) -> dict[str, Any]:
    """Return growth, and cost of compensation, for one batch size and one assumption on the server's queues."""
    growth = {name: 100 * (epochs[name, counts[-1]] / epochs[name, counts[0]] - 1) for name in COMPARED}
    overheads = {
        f"overhead_{machines}": 100 * (epochs["delay_compensated", workers] / epochs["downpour", workers] - 1)
        for machines, workers in zip(MACHINES, counts, strict=True)
    }
    return {
        "batch_size": batch_size,
        "queues": label,
        "away_ms": None if away_s is None else away_s / 1e-3,
        "downpour_growth": growth["downpour"],
        "compensated_growth": growth["delay_compensated"],
        **overheads,
    }


def _assumptions(server: _Server, *, batch_size: int) -> tuple[str, ...]:
    return (
        f"Fitted: the time of a worker's own step, on {CALIBRATED[0]} with {CALIBRATED[1]} workers; nothing else.",
        f"Assumed: mini-batches of {batch_size}. The table of growth says what others would mean.",
        f"Adapter: {ADAPTER_GBIT_PER_S:g} Gbit/s per direction, 2 Gbit/s for each of four virtual CPUs (from memory of "
        f"the provider's pages of 2017): {1e3 * server.transfer_s:.3f} ms for all parameters.",
        f"Server: {OPERATIONS_PER_VARIABLE} operations for each of {server.variable_count} variables, "
        f"{1e6 * server.dispatch_s:.1f} us each (the framework's file; one at a time on each core), and one pass: "
        f"compensation adds {1e3 * server.compensation_s:.3f} ms.",
        "Model: services vary as exponential ones; parts in a row let visitors queue before the busiest only.",
    )
