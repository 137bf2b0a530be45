"""The report of how a job scales: rows, figure, text."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import ArgumentError
from perfmodel.prediction.report import WIDTH
from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from perfmodel.presentation.worker_curves import Curve

HEADINGS: Final = {
    "step_s": "step",
    "samples_per_s": "throughput",
    "exposed_sync_s": "exposed sync",
    "straggler_s": "straggler",
    "mean_staleness": "staleness",
    "server_utilisation": "server busy",
    "epoch_s": "epoch",
    "usd_per_epoch": "USD per epoch",
    "to_loss_s": "to loss",
    "to_loss_speedup": "speedup to loss",
}
"""Heading of a column by field, where it is another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRow:
    """One number of workers that agree in one way. What is not asked for, or cannot be, is None.

    Parameters
    ----------
    sync : str
        How they agree. [-]
    workers : int
        Workers. [1]
    step_s : float or None
        Time of a step. [s]
    samples_per_s : float or None
        Samples of all workers whose gradients count. [samples/s]
    speedup : float or None
        That over the samples per second of one worker that exchanges nothing: with the same mini-batch, or in strong
        scaling with the whole global one. [1]
    efficiency : float or None
        Speed-up over workers. [1]
    exposed_sync_s : float or None
        What a step waits for the exchange, or for the server. [s]
    straggler_s : float or None
        What it waits for slower workers. [s]
    mean_staleness : float or None
        Updates of others that a gradient has missed. [1]
    knee : float or None
        Visitors of a server from which on it bounds; None where nobody visits one, or it takes no time. [1]
    server_utilisation : float or None
        Share of time that the busiest part of it works. [1]
    bottleneck : str or None
        What bounds the step. [-]
    epoch_s : float or None
        Time of one pass over the data set. [s]
    usd_per_epoch : float or None
        Price of all workers for that time. [USD]
    to_loss_s : float or None
        Time to the same loss, by the caller's own critical batch size and staleness penalty. [s]
    to_loss_speedup : float or None
        That of one worker over it. [1]
    reason : str or None
        Why this cannot be; None where it can. [-]
    """

    sync: str
    workers: int
    step_s: float | None = None
    samples_per_s: float | None = None
    speedup: float | None = None
    efficiency: float | None = None
    exposed_sync_s: float | None = None
    straggler_s: float | None = None
    mean_staleness: float | None = None
    knee: float | None = None
    server_utilisation: float | None = None
    bottleneck: str | None = None
    epoch_s: float | None = None
    usd_per_epoch: float | None = None
    to_loss_s: float | None = None
    to_loss_speedup: float | None = None
    reason: str | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class ScalingReport:
    """What more workers are worth. Made by :func:`perfmodel.scaling`.

    Parameters
    ----------
    title : str
        What runs on what, with how many samples. [-]
    is_strong : bool
        Whether all workers share one global mini-batch; else each has its own. [-]
    one_worker_s : float
        Step of one worker that exchanges nothing, which speed-up is over. [s]
    rows : Table of ScalingRow
        One for each way to agree and number of workers. [-]
    notes : tuple of str
        What a reader must know of the numbers. [-]
    """

    title: str
    is_strong: bool
    one_worker_s: float
    rows: Table[ScalingRow]
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """``strong scaling`` or ``weak scaling``."""
        return f"{'strong' if self.is_strong else 'weak'} scaling"

    def __str__(self) -> str:
        table = Table(self.rows, headings=HEADINGS, row_type=ScalingRow)
        asked = [name for name in table.columns if name != "reason" and any(table.column(name))]
        reasons: dict[str, list[str]] = {}
        for row in self.rows:
            if row.reason is not None:
                reasons.setdefault(row.reason, []).append(f"{row.sync} with {row.workers}")
        lines = [f"cannot be: {', '.join(which)}: {reason}" for reason, which in reasons.items()]
        lines += [f"note: {note}" for note in self.notes]
        below = "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines)
        return f"{self.title}: {self.kind}\n\n{table.to_text(columns=asked)}\n\n{below}"

    def _repr_html_(self) -> str:
        heading = f"{self.title}: {self.kind}"
        return Table(self.rows, title=heading, headings=HEADINGS, row_type=ScalingRow)._repr_html_()

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame; needs the extra ``frames``."""
        return self.rows.to_frame()

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw speed-up and efficiency over the number of workers, a line for each way to agree, the ideal beside.

        Parameters
        ----------
        path : str, Path or None
            Where to save the picture; None only returns the figure. [-]

        Returns
        -------
        matplotlib.figure.Figure
            The picture. [-]

        Raises
        ------
        ArgumentError
            If no row can be.
        """
        from perfmodel.presentation.figures import saved
        from perfmodel.presentation.worker_curves import Panel, worker_figure

        speedup = Panel(label="speed-up over one worker", curves=self._curves("speedup"), ideal="proportional")
        efficiency = Panel(label="efficiency", curves=self._curves("efficiency"), ideal="constant")
        figure = worker_figure([speedup, efficiency], title=f"{self.title}: {self.kind}")
        return saved(figure, path)

    def _curves(self, field: str) -> tuple[Curve, ...]:
        """Return a line over the rows of each way to agree that can be."""
        from perfmodel.presentation.worker_curves import Curve

        curves = []
        for sync in dict.fromkeys(self.rows.column("sync")):
            rows = [row for row in self.rows if row.sync == sync and row.reason is None]
            rows.sort(key=lambda row: row.workers)
            if rows:
                values = tuple(getattr(row, field) for row in rows)
                curves.append(Curve(name=sync, workers=tuple(row.workers for row in rows), values=values))
        if not curves:
            raise ArgumentError("rows", self.rows[0].reason, "at least one that can be: there is nothing to draw")
        return tuple(curves)

    def to_dict(self) -> dict[str, Any]:
        """Return what was asked, the one worker, all rows and notes as plain values."""
        return {
            "title": self.title,
            "kind": self.kind,
            "one_worker_s": self.one_worker_s,
            "rows": self.rows.to_dicts(),
            "notes": list(self.notes),
        }
