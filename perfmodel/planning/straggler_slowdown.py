"""straggler_slowdown(): how waiting for the slowest worker lengthens a step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfmodel.errors import ArgumentError
from perfmodel.prediction.arguments.checks import whole_number
from perfmodel.prediction.job.straggler import straggler_of
from perfmodel.presentation.results import Drawn
from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORKERS: Final = tuple(range(1, 101))
"""Default numbers of workers. [1]"""

VARIATIONS: Final = (0.05, 0.1, 0.2)
"""Default coefficients of variation: for a quiet, a typical and a shared machine. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownRow:
    """Slowdown for one number of workers and one coefficient of variation."""

    cv: float
    workers: int
    slowdown: float


@dataclass(frozen=True, eq=False, kw_only=True)
class StragglerSlowdown(Drawn):
    """How much longer steps take if they wait for the slowest worker."""

    distribution: str
    backup_workers: int
    rows: Table[SlowdownRow]

    def plot(self, path: str | Path | None = None, *, marked_workers: int | None = None) -> Figure:
        """Draw the slowdown over the number of workers, a line for each coefficient of variation."""
        from perfmodel.presentation.figures import saved
        from perfmodel.presentation.lanes import Curve, Panel, worker_figure
        from perfmodel.presentation.quantities import percent_text

        curves = [
            Curve.of(f"cv {percent_text(cv)}", [row for row in self.rows if row.cv == cv], "slowdown")
            for cv in dict.fromkeys(self.rows.column("cv"))
        ]
        figure = worker_figure(
            [Panel(label="slowdown: mean step over that of one worker", curves=tuple(curves))],
            title=self.rows.title,
            marked_workers=marked_workers,
        )
        return saved(figure, path)


def straggler_slowdown(
    *,
    workers: Iterable[int] = WORKERS,
    cv: float | Iterable[float] = VARIATIONS,
    distribution: str = "normal",
    backup_workers: int = 0,
) -> StragglerSlowdown:
    """Predict how much longer a step takes because it waits for the slowest worker, over the number of workers.

    Parameters
    ----------
    workers : iterable of int
        Numbers of workers, more than ``backup_workers``. [1]
    cv : float or iterable of float
        Coefficients of variation of a worker's time: standard deviation over mean. [1]
    distribution : str
        ``normal``, ``lognormal`` or ``shifted_exponential``. [-]
    backup_workers : int
        Number of slowest workers whose gradients a step does not wait for. [1]

    Returns
    -------
    StragglerSlowdown
        A row for each number of workers and coefficient; ``plot()`` and ``to_frame()``.

    Raises
    ------
    ArgumentError
        If a number is not allowed, or workers do not outnumber backups.
    UnknownNameError
        If the distribution is unknown; names the nearest.

    Notes
    -----
    Valid for: independent, equal workers and steps that only compute. Ignores: the exchange,
    and a worker that is always slow.

    Examples
    --------
    >>> for row in straggler_slowdown(workers=[40]).rows:
    ...     print(row.cv, round(row.slowdown, 4))
    0.05 1.108
    0.1 1.2161
    0.2 1.4322
    """
    if isinstance(workers, str) or not isinstance(workers, Iterable):
        raise ArgumentError("workers", workers, "a list of numbers, e.g. (2, 4, 8)")
    counts = [whole_number("workers", count) for count in workers]
    variations = [cv] if isinstance(cv, str) or not isinstance(cv, Iterable) else list(cv)
    rows = []
    for variation in dict.fromkeys(variations):
        if isinstance(variation, bool) or not isinstance(variation, int | float):
            raise ArgumentError("cv", variation, "a finite number >= 0")
        straggler = straggler_of({"distribution": distribution, "cv": variation}, backup_workers=backup_workers)
        rows += [
            SlowdownRow(
                cv=variation,
                workers=count,
                slowdown=float(straggler.slowest_s(compute_s=1.0, worker_count=count)),
            )
            for count in dict.fromkeys(counts)
        ]
    backups = f", except {backup_workers} of them" if backup_workers else ""
    title = f"waiting for the slowest of all workers{backups}, {distribution} times"
    table = Table(rows, title=title, row_type=SlowdownRow)
    return StragglerSlowdown(distribution=distribution, backup_workers=backup_workers, rows=table)
