"""Downpour and delay-compensated SGD on 4, 8 and 12 machines: six times predicted, with nothing fitted to them.

The level of the six times is predicted like any other; the source does not state the size of mini-batches. All six lie
within 2 % of one another, so a constant equal to one of them is as close. Two effects are therefore scored by
themselves: the growth with the workers (the queue at the parameter server), and the cost of the compensation
(operations that the server issues).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from perfmodel import zoo
from perfmodel.graph import LayerGraph
from perfmodel.measurements.scaling_tables import load_scaling
from perfmodel.prediction.job.agreement import Asynchronous
from perfmodel.prediction.predict import predict
from perfmodel.prediction.prediction import Prediction
from perfmodel.presentation.tables import Table, row_table
from perfmodel.simulation.asynchronous import play_asynchronous
from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers
from perfmodel.validation.scores.table_report import PERFMODEL, PartScore, RowReport, compared, parts_text

KEY: Final = "mullapudi2017"

CONSTANT: Final = "a constant: the first time"
ALONE: Final = "the step of one machine, without a server"

SYSTEM_TEXT: Final = "4 to 12 machines of four virtual CPUs"
"""System on which it ran, as in the scoreboard. [-]"""

MACHINES: Final = (4, 8, 12)
"""Machines of the rows of a scheme. [1]"""

COMPARED: Final = ("downpour", "delay_compensated")

MODEL_VIEW: Final = "busiest part"
"""The assumption on the server's queues that the model makes; the others show how much it matters. [-]"""

MEASURED: Final = "measured"

Measured = Mapping[tuple[str, int], float]
"""Scheme and workers -> seconds of an epoch."""


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
        scores = parts_text(self.parts, title="the level of all six")
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
    """Return scores of perfmodel, of one machine's step, and of a constant equal to one of the times."""
    growth = " and ".join(f"{factor:.2f} ({name})" for name, factor in factors.items())
    return compared(
        SYSTEM_TEXT,
        {
            PERFMODEL: rows.column("predicted_s"),
            ALONE: rows.column("alone_s"),
            CONSTANT: rows.column("constant_s"),
        },
        measured=rows.column("measured_s"),
        fitted={CONSTANT: 1},
        note=f"growth from 4 to 12 machines is off by a factor of {growth}; a constant has none",
    )


BATCH_SIZES: Final = (64, 100, 128, 200, 256)
"""Batch sizes that the answer is given for. [samples]"""

ASSUMED_BATCH_SIZE: Final = 128
"""The middle one of those, assumed before any time was looked at. [samples]"""


@dataclass(frozen=True, kw_only=True)
class _Experiment:
    """What ran, with mini-batches of one size."""

    graph: LayerGraph
    stated: Mapping[str, Any]
    batch_size: int

    @property
    def step_count(self) -> float:
        """Steps of an epoch of one worker. [1]"""
        return float(self.stated["examples_per_epoch"]) / self.batch_size

    def alone(self) -> Prediction:
        """Predict the step of one machine."""
        return self._predict(system=self.stated["system"])

    def of(self, scheme: str, workers: int) -> Prediction:
        """Predict the step of workers with one more machine for their server."""
        return self._predict(system=self.stated["system"], machines=workers + 1, workers=workers, sync=scheme)

    def _predict(self, **where: Any) -> Prediction:
        return predict(self.graph, batch_size=self.batch_size, framework=self.stated["framework"], **where)

    def epochs(self, counts: list[int], *, played_steps: int = 0, **changes: Any) -> Measured:
        """Return the time of an epoch of both schemes with each number of workers, by formula or as played. [s]"""

        def step_s(scheme: str, workers: int) -> float:
            agreement, numbers = _numbers(self.of(scheme, workers))
            numbers = replace(numbers, **changes)
            if played_steps:
                return play_asynchronous(agreement.scheme.in_effect(numbers), step_count=played_steps).step_s
            return float(agreement.scheme.times(numbers).step_s)

        return {(name, workers): self.step_count * step_s(name, workers) for name in COMPARED for workers in counts}


def _numbers(p: Prediction) -> tuple[Asynchronous, AsynchronousNumbers]:
    """Return the agreement of workers, and its numbers with a worker's computing time."""
    agreement = p.agreement
    assert isinstance(agreement, Asynchronous)
    computing_s = agreement.computing_s(p.basis.timed.composed.alone)
    return agreement, replace(agreement.numbers, compute_s=float(computing_s))


def illustrate(*, batch_size: int = ASSUMED_BATCH_SIZE, played_steps: int = 1500) -> Illustration:
    """Predict the table's times.

    Notes
    -----
    Valid for: this table. Ignores: differences between machines of one type.

    Examples
    --------
    >>> report = illustrate(played_steps=0)
    >>> row = report.rows[2]
    >>> row.measured_s, round(row.predicted_s, 2)
    (3.55, 3.72)
    """
    table = load_scaling(KEY)
    graph = zoo.build(table.stated["network"])
    asked = _Experiment(graph=graph, stated=table.stated, batch_size=batch_size)
    measured = {(row["scheme"], int(row["worker_count"])): row["epoch_s"] for row in table.rows}
    counts = sorted({workers for _, workers in measured})
    first_s, alone_s = next(iter(measured.values())), asked.step_count * float(asked.alone().step_s)
    rows = []
    for row in table.rows:
        workers = int(row["worker_count"])
        p = asked.of(row["scheme"], workers)
        agreement, numbers = _numbers(p)
        times = agreement.scheme.times(numbers)
        rows.append(
            {
                "scheme": row["scheme"],
                "node_count": int(row["node_count"]),
                "worker_count": workers,
                "measured_s": row["epoch_s"],
                "predicted_s": float(p.step_s) * asked.step_count,
                "alone_s": alone_s,
                "constant_s": first_s,
                "mean_staleness": float(times.mean_staleness),
                "server_utilisation": float(times.server_utilisation),
            }
        )
    constant = dict.fromkeys(measured, first_s)
    lines = [
        _growth_row(measured, counts, measured, label=MEASURED),
        _growth_row(constant, counts, measured, label="a constant"),
    ]
    for size in sorted({*BATCH_SIZES, batch_size}):
        other = replace(asked, batch_size=size)
        for view, changes in _VIEWS.items():
            lines.append(_growth_row(other.epochs(counts, **changes), counts, measured, label=view, batch_size=size))
    if played_steps:
        epochs = asked.epochs(counts, played_steps=played_steps)
        lines.append(_growth_row(epochs, counts, measured, label="busiest part, played", batch_size=batch_size))
    epochs_of_rows = row_table(rows, title=f"{table.title}; mini-batches of {batch_size}, assumed; nothing is fitted")
    sensitivity = row_table(
        lines, title="error of the level, growth from 4 to 12 machines and price of compensation [%]"
    )
    return Illustration(
        table=KEY,
        batch_size=batch_size,
        rows=epochs_of_rows,
        parts=_parts(epochs_of_rows, _growth_factors(sensitivity, batch_size)),
        sensitivity=sensitivity,
        assumptions=_assumptions(asked),
        caveats=table.caveats,
    )


_VIEWS: Final[dict[str, dict[str, Any]]] = {
    MODEL_VIEW: {},
    "each part": {"each_part_queues": True},
    "busiest part, equal services": {"service_variation": 0.0},
}
"""Assumption on the server's queues -> changed numbers; the first is the model's own."""


def _growth_row(
    epochs: Measured, counts: list[int], measured: Measured, *, label: str, batch_size: int | None = None
) -> dict[str, Any]:
    """Return error of the level, growth, and cost of compensation, for one batch size and one assumption on queues."""
    growth = {name: 100 * (epochs[name, counts[-1]] / epochs[name, counts[0]] - 1) for name in COMPARED}
    overheads = {
        f"overhead_{machines}": 100 * (epochs["delay_compensated", workers] / epochs["downpour", workers] - 1)
        for machines, workers in zip(MACHINES, counts, strict=True)
    }
    errors = [epochs[row] / measured[row] - 1 for row in measured]
    return {
        "batch_size": batch_size,
        "queues": label,
        "level_error": 100 * sum(errors) / len(errors),
        "downpour_growth": growth["downpour"],
        "compensated_growth": growth["delay_compensated"],
        **overheads,
    }


def _assumptions(asked: _Experiment) -> tuple[str, ...]:
    agreement, numbers = _numbers(asked.of(COMPARED[0], MACHINES[0] - 1))
    assert agreement.calls is not None
    calls_s = agreement.calls.worker_s
    latency_s = numbers.push_latency_s + numbers.pull_latency_s - calls_s
    server_s = numbers.update_s + numbers.push_s + numbers.pull_s
    step_s = float(agreement.scheme.times(numbers).step_s)
    queue_s = step_s - numbers.compute_s - calls_s - latency_s - server_s
    return (
        f"Assumed: mini-batches of {asked.batch_size}. The second table says what others would mean.",
        f"A worker's step with {COMPARED[0]} on {MACHINES[0]} machines: {1e3 * step_s:.2f} ms. Of it "
        f"{1e3 * numbers.compute_s:.2f} are computing, as on one machine, {1e3 * calls_s:.2f} its session over "
        "machines and the calls for each tensor (the framework's file, timed on another machine with a later version), "
        f"{1e3 * latency_s:.2f} the network's latency there and back, {1e3 * server_s:.2f} its visit to the server "
        f"(bytes both ways and operations for each variable) and {1e3 * queue_s:.2f} waiting for other visitors.",
        f"Compensation adds {1e3 * numbers.compensation_s:.3f} ms to a visit.",
        "Model: services vary as exponential ones; parts in a row let visitors queue before the busiest only.",
    )
