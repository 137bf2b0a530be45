"""What the six epochs of Mullapudi's table come to: rows, sensitivity, scores, caveats."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from perfmodel.presentation.tables import Table
from perfmodel.validation.score_records import PERFMODEL
from perfmodel.validation.table_report import PartScore, compared, mean_error, part_table
from perfmodel.validation.text import score_lines

KEY: Final = "mullapudi2017"

CONSTANT: Final = "a constant: the fitted time"
"""Naive rule. [-]"""

SYSTEM_TEXT: Final = "4 to 12 machines of four virtual CPUs"
"""Where it ran, as a scoreboard says it. [-]"""

CALIBRATED: Final = ("downpour", 3)
"""Scheme and workers of the one time that is fitted."""

MODEL_VIEW: Final = "busiest part"
"""The view of the server's queues that is the model; others show what it hangs on. [-]"""

MEASURED: Final = "measured"
"""Label of the row of what was measured. [-]"""


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One measured time beside what it was expected to be.

    Parameters
    ----------
    scheme : str
        Name of the scheme. [-]
    node_count, worker_count : int
        Machines; those that train. [1]
    measured_s, predicted_s : float
        Time of an epoch; of the first row, which is fitted, they are the same. [s]
    constant_s : float
        What the fitted time alone would predict. [s]
    mean_staleness : float
        Updates of others that a gradient has missed. [1]
    server_utilisation : float
        Share of time that the busiest part of the server works. [1]
    """

    scheme: str
    node_count: int
    worker_count: int
    measured_s: float
    predicted_s: float
    constant_s: float
    mean_staleness: float
    server_utilisation: float


@dataclass(frozen=True, slots=True)
class GrowthRow:
    """What a batch size, and a view of the server's queues, makes of the growth and of the compensation's price.

    Parameters
    ----------
    batch_size : int or None
        Assumed; None in the row of what was measured, and of a constant. [samples]
    queues : str
        Where visitors queue, or whose numbers these are. [-]
    away_ms : float or None
        Time per step away from the server's queue, fitted. [ms]
    downpour_growth, compensated_growth : float
        From 4 to 12 machines. [%]
    overhead_4, overhead_8, overhead_12 : float
        Compensated over Downpour on so many machines. [%]
    """

    batch_size: int | None
    queues: str
    away_ms: float | None
    downpour_growth: float
    compensated_growth: float
    overhead_4: float
    overhead_8: float
    overhead_12: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Illustration:
    """The rows, the sensitivity, and what everything rests on.

    Parameters
    ----------
    batch_size : int
        Assumed for the rows. [samples]
    rows : Table
        Each measured time beside its prediction. [-]
    sensitivity : Table
        Growth and overhead by batch size and view. [-]
    assumptions : tuple of str
        In words. [-]
    caveats : tuple of str
        Those of the table. [-]
    """

    batch_size: int
    rows: Table[EpochRow]
    sensitivity: Table[GrowthRow]
    assumptions: tuple[str, ...]
    caveats: tuple[str, ...]

    def __str__(self) -> str:
        scored = tuple(each.note for each in self.parts if each.note)
        notes = [f"- {text}" for text in (*scored, *self.assumptions, *self.caveats)]
        tables = (
            self.rows,
            self.sensitivity,
            score_lines(part_table(self.parts, title="the five that are not fitted")),
        )
        return "\n\n".join([*(table.to_text() for table in tables), "\n".join(notes)])

    @property
    def mape(self) -> float | None:
        """Mean absolute error over the times that are not fitted [%]."""
        return mean_error(self.parts)

    @property
    def not_scored(self) -> str:
        """What of the table is not scored, and why."""
        return "1 time that a worker's own step was fitted to"

    @property
    def growth_factors(self) -> dict[str, float]:
        """How far off the growth from 4 to 12 machines is, by scheme: the larger over the smaller [1]."""
        measured, model = (
            next(row for row in self.sensitivity if (row.queues, row.batch_size) == wanted)
            for wanted in ((MEASURED, None), (MODEL_VIEW, self.batch_size))
        )
        pairs = {
            "Downpour": (model.downpour_growth, measured.downpour_growth),
            "delay-compensated": (model.compensated_growth, measured.compensated_growth),
        }
        return {name: max(pair) / min(pair) for name, pair in pairs.items()}

    @property
    def parts(self) -> tuple[PartScore, ...]:
        """Scores of perfmodel and of the constant, which was told the same time."""
        rows = [row for row in self.rows if (row.scheme, row.worker_count) != CALIBRATED]
        factors = " and ".join(f"{factor:.2f} ({name})" for name, factor in self.growth_factors.items())
        return compared(
            SYSTEM_TEXT,
            {PERFMODEL: [row.predicted_s for row in rows], CONSTANT: [row.constant_s for row in rows]},
            measured=[row.measured_s for row in rows],
            fitted={PERFMODEL: 1, CONSTANT: 1},
            note=f"growth from 4 to 12 machines is off by a factor of {factors}; a constant has none",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "table": KEY,
            "mape_percent": self.mape,
            "growth_factors": self.growth_factors,
            "rows": [asdict(row) for row in self.rows],
            "sensitivity": [asdict(row) for row in self.sensitivity],
            "assumptions": list(self.assumptions),
            "caveats": list(self.caveats),
        }
