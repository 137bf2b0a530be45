"""Results of a plan: rows, front, binding limits, the best choice, and the changes that would lift limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from perfmodel.errors import ArgumentError
from perfmodel.prediction.arguments.checks import positive
from perfmodel.presentation.quantities import usd_text
from perfmodel.presentation.results import Drawn
from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADINGS: Final = {
    "step_s": "step",
    "usd": "USD",
    "storage_usd": "storage USD",
    "energy_usd": "energy USD",
    "energy_kwh": "kWh",
    "checkpoint_interval_s": "checkpoint every",
    "lost_share": "lost",
    "mean_staleness": "staleness",
    "is_on_front": "front",
    "least_hours": "hours at least",
    "most_hours": "hours at most",
    "least_usd": "USD at least",
    "most_usd": "USD at most",
    "limited_by": "ruled out by",
}
"""Heading of a column by field, if the two differ."""

ALWAYS_SHOWN: Final = ("candidate", "purchase", "sync", "workers", "instances", "step_s", "hours", "usd", "energy_kwh")
"""Columns that are always printed; others only if they hold something."""

NOT_SHOWN: Final = ("reason", "least_hours", "most_hours", "least_usd", "most_usd")
"""Columns that are printed as sentences below the table instead."""


OF_WORK: Final = ("speed", "epochs", "samples")
"""Changes of speed or work, whose texts are sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that would make a candidate the choice.

    Parameters
    ----------
    what : str
        ``deadline_hours``, ``budget_usd``, ``speed``, ``epochs``, ``samples``, ``batch_size`` or ``global_batch_size``,
        whichever was given, or ``memory_bytes`` if no mini-batch is known to fit. [-]
    needed : float
        Sufficient value; for ``speed`` the factor on it, for memory the missing amount. [h, USD, 1, samples or B]
    candidate : str
        Candidate that would be chosen. [-]
    text : str
        The change in words; of speed or work a whole sentence. [-]
    """

    what: str
    needed: float
    candidate: str
    text: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan(Drawn):
    """Hardware to hire for a job. Made by :func:`perfmodel.plan`.

    Parameters
    ----------
    title : str
        The job. [-]
    limits : Limits
        Deadline and budget. [-]
    rows : Table of PlanRow
        Every candidate; impossible ones with the reason. [-]
    best : PlanRow or None
        The cheapest row within the limits, or with only a budget the fastest; None if no row is within them. [-]
    nearest_miss : PlanRow or None
        If no row is within the limits, the one that needs the least speed-up; None if no row can run. [-]
    binding : tuple of str
        Those of ``deadline``, ``budget`` and ``memory`` without which there would be a better choice, or one at all;
        if only lifting several helps, all limits that are missed. [-]
    changes : tuple of Change
        Changes that would give another choice. [-]
    notes : tuple of str
        Caveats on the numbers. [-]
    """

    title: str
    limits: Limits
    rows: Table[PlanRow]
    best: PlanRow | None
    nearest_miss: PlanRow | None
    binding: tuple[str, ...]
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()

    _DICT_KEYS = (
        *("title", "deadline_hours", "budget_usd", "is_feasible", "best", "best_hours", "best_usd", "nearest_miss"),
        *("binding", "changes", "rows", "notes"),
    )

    @property
    def pareto(self) -> Table[PlanRow]:
        """Possible rows that no other row beats in both time and cost, the fastest first."""
        front = sorted((row for row in self.rows if row.is_on_front), key=lambda row: row.hours or 0.0)
        return Table(front, title="Pareto front: faster costs more", headings=HEADINGS, row_type=PlanRow)

    @property
    def best_hours(self) -> tuple[float, float] | None:
        """Hours of the best row at both ends of its step's 80 % interval; None without an interval. [h]."""
        ends = None if self.best is None else self.best.ends()
        return None if ends is None else ends[0]

    @property
    def best_usd(self) -> tuple[float, float] | None:
        """Cost of the best row at both ends of its step's 80 % interval. [USD]."""
        ends = None if self.best is None else self.best.ends()
        return None if ends is None else ends[1]

    @property
    def is_feasible(self) -> bool:
        """Whether any candidate meets deadline and budget."""
        return self.best is not None

    def _verdict(self) -> list[str]:
        """Return the verdict in words: the best row, the binding limits, the changes that would lift them."""
        if self.best is not None:
            why = "fastest" if self.limits.wants_speed else "cheapest"
            kept = " within all limits" if self.limits.names else ""
            lines = [f"best: {_with_bill(self.best)}, the {why}{kept}"]
            lines += self._doubt()
            lines.append(f"binding: {', '.join(self.binding) or 'none (no limit changes the choice)'}")
        else:
            lines = [f"nothing fits; binding: {', '.join(self.binding)}"]
            if self.nearest_miss is not None:
                lines.append(f"nearest miss: {_with_bill(self.nearest_miss)}")
        changes = [
            f"{'' if change.what in OF_WORK else 'another choice with: '}{change.text}" for change in self.changes
        ]
        return [*lines, *changes, *self._others()]

    def _doubt(self) -> list[str]:
        """Return the interval of the best row's hours and cost."""
        if self.best_hours is None or self.best_usd is None:
            return []
        assert self.best is not None
        within = " and the ".join(self.limits.missed(self.best_hours[1], self.best_usd[1]))  # the best misses none
        verb = "lie" if " " in within else "lies"
        lie_within = f"; the {within} {verb} inside this interval: leave a margin" if within else ""
        return [f"how sure: {_ends_text(self.best)} by the 80 % interval of the step{lie_within}"]

    def _others(self) -> list[str]:
        """Return the other rows of the front with their intervals."""
        others = [f"{_with_bill(row)}{_between(row)}" for row in self.pareto if row is not self.best]
        if not others:
            return []
        return [f"{'' if self.best is None else 'others '}on the front: {'; '.join(others)}"]

    def _refusals(self) -> list[str]:
        """Return the impossible rows, grouped by reason."""
        reasons: dict[str, dict[str, list[str]]] = {}
        for row in self.rows:
            if row.reason is not None and not row.can_run:
                bought = f"{row.candidate} ({row.purchase.replace('_', ' ')})"
                reasons.setdefault(row.reason, {}).setdefault(bought, []).append(str(row.workers))
        return [
            f"impossible: {'; '.join(f'{who} with {_both(counts)}' for who, counts in which.items())}: {reason}"
            for reason, which in reasons.items()
        ]

    def _shown(self) -> Table[PlanRow]:
        return Table(self.rows, title=self.title, headings=HEADINGS, row_type=PlanRow)

    def _lines(self) -> Sequence[str]:
        return *self._verdict(), *self._refusals(), *(f"note: {note}" for note in self.notes)

    def __str__(self) -> str:
        shown = [
            name
            for name in self.rows.columns
            if name in ALWAYS_SHOWN or (name not in NOT_SHOWN and any(self.rows.column(name)))
        ]
        return self._report(self.title, self.rows.to_text(columns=shown))

    @property
    def deadline_hours(self) -> float | None:
        """Longest time that the job may take; None for no limit. [h]"""
        return self.limits.deadline_hours

    @property
    def budget_usd(self) -> float | None:
        """Most that the job may cost; None for no limit. [USD]"""
        return self.limits.budget_usd

    def _figure(self) -> Figure:
        """Draw cost against time: every candidate that can run, the front, deadline and budget."""
        from perfmodel.presentation.figures import Point, trade_off_figure

        running = [row for row in self.rows if row.can_run]
        if not running:
            raise ArgumentError(
                "rows", self.rows[0].reason, "a table with at least one possible row, or there is nothing to draw"
            )
        points = [
            Point(
                group=f"{row.sync if row.workers > 1 else 'one worker'}, {row.purchase.replace('_', ' ')}",
                label=row.candidate if row.workers == 1 else f"{row.candidate}, {row.workers} workers",
                x=row.hours or 0.0,
                y=row.usd or 0.0,
                is_on_front=row.is_on_front,
            )
            for row in running
        ]
        return trade_off_figure(
            points,
            title=self.title,
            x_label="hours",
            y_label="USD",
            most_x=self.limits.deadline_hours,
            most_y=self.limits.budget_usd,
        )


def _both(counts: list[str]) -> str:
    return ", ".join(dict.fromkeys(counts)) + (" worker" if counts == ["1"] else " workers")


def _with_bill(row: PlanRow) -> str:
    return f"{row.describe()}: {row.hours:,.4g} h, {usd_text(row.usd or 0.0)} USD"


def _ends_text(row: PlanRow) -> str:
    ends = row.ends()
    assert ends is not None
    (low, high), (least, most) = ends
    return f"{low:,.4g} to {high:,.4g} h, {usd_text(least)} to {usd_text(most)} USD"


def _between(row: PlanRow) -> str:
    return "" if row.ends() is None else f" ({_ends_text(row)})"


MEMORY: Final = "memory"
DEADLINE: Final = "deadline"
BUDGET: Final = "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One candidate with a number of workers, a way to agree and a purchase.

    Parameters
    ----------
    candidate : str
        The price, or your own machine. [-]
    purchase : str
        ``on_demand``, ``capacity_block``, ``spot``, or ``own``. [-]
    sync : str
        How the workers agree. [-]
    workers : int
        Workers. [1]
    instances : int or None
        Instances that are paid for, or your own devices. [1]
    step_s : float or None
        Time of a step. [s]
    hours : float or None
        Time of the job. [h]
    usd : float or None
        Its cost: hire, storage and electricity. [USD]
    storage_usd, energy_usd : float or None
        Parts of the cost. [USD]
    energy_kwh : float or None
        Most energy that the devices draw. [kWh]
    checkpoint_interval_s : float or None
        Work between two checkpoints. [s]
    lost_share : float or None
        Share of the hours that checkpoints and interruptions take. [1]
    mean_staleness : float or None
        Mean number of others' updates that a gradient has missed. [1]
    is_on_front : bool
        Whether no other possible row is both faster and cheaper. [-]
    least_hours, most_hours : float or None
        Time of the job at the ends of the 80 % interval of its step, for rows on the front; None without such an
        interval. [h]
    least_usd, most_usd : float or None
        Its cost at those ends. [USD]
    limited_by : str or None
        What rules it out: ``deadline``, ``budget``, both, ``memory``, or an impossible argument; None if possible. [-]
    reason : str or None
        The same in words. [-]
    layout : str or None
        Layout that a search found, in words; None for the job as it is given. [-]
    """

    candidate: str
    purchase: str
    sync: str
    workers: int
    instances: int | None = None
    step_s: float | None = None
    hours: float | None = None
    usd: float | None = None
    storage_usd: float | None = None
    energy_usd: float | None = None
    energy_kwh: float | None = None
    checkpoint_interval_s: float | None = None
    lost_share: float | None = None
    mean_staleness: float | None = None
    is_on_front: bool = False
    least_hours: float | None = None
    most_hours: float | None = None
    least_usd: float | None = None
    most_usd: float | None = None
    limited_by: str | None = None
    reason: str | None = None
    layout: str | None = None

    @property
    def can_run(self) -> bool:
        """Whether only deadline or budget can rule the row out."""
        return self.hours is not None and self.limited_by in (None, DEADLINE, BUDGET, f"{DEADLINE}, {BUDGET}")

    def ends(self) -> tuple[tuple[float, float], tuple[float, float]] | None:
        """Return hours and cost at both ends of the step's interval; None without an interval. [h, USD]"""
        if self.least_hours is None or self.most_hours is None or self.least_usd is None or self.most_usd is None:
            return None
        return (self.least_hours, self.most_hours), (self.least_usd, self.most_usd)

    def describe(self) -> str:
        """Return the row in a few words."""
        layout = self.layout or (None if self.workers == 1 else f"{self.workers} workers")
        several = "" if layout is None else f", {layout}"
        several += "" if self.workers == 1 else f" by {self.sync}"
        return f"{self.candidate} ({self.purchase.replace('_', ' ')}{several})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Deadline and budget."""

    deadline_hours: float | None = None
    budget_usd: float | None = None
    wants_speed: bool = False

    @classmethod
    def of(cls, *, deadline_hours: float | None, budget_usd: float | None) -> Limits:
        """Return the limits of a plan, checked; with only a budget, the best row is the fastest."""
        stated = {"deadline_hours": deadline_hours, "budget_usd": budget_usd}
        checked = {name: None if most is None else positive(name, most) for name, most in stated.items()}
        return cls(**checked, wants_speed=deadline_hours is None and budget_usd is not None)

    def missed(self, hours: float, usd: float) -> tuple[str, ...]:
        """Return the limits that hours and cost exceed."""
        late = self.deadline_hours is not None and hours > self.deadline_hours
        dear = self.budget_usd is not None and usd > self.budget_usd
        return tuple(name for name, exceeded in ((DEADLINE, late), (BUDGET, dear)) if exceeded)

    def without(self, name: str) -> Limits:
        """Return the limits with one of them lifted."""
        return replace(self, deadline_hours=None) if name == DEADLINE else replace(self, budget_usd=None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the limits that are set."""
        limits = ((DEADLINE, self.deadline_hours), (BUDGET, self.budget_usd))
        return tuple(name for name, limit in limits if limit is not None)

    def best_of(self, rows: Iterable[PlanRow]) -> PlanRow | None:
        """Return the best of the rows that meet the limits."""
        within = [row for row in rows if not self.missed(row.hours or 0.0, row.usd or 0.0)]
        return min(within, key=self.order, default=None)

    def order(self, row: PlanRow) -> tuple[float, float]:
        """Return the sort key of the best row: cost first, or time first. [USD, h]"""
        assert row.hours is not None
        assert row.usd is not None
        return (row.hours, row.usd) if self.wants_speed else (row.usd, row.hours)


def with_front(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Mark the possible rows that no other row beats in both time and cost."""
    front: set[int] = set()
    least_usd = float("inf")
    running = [place for place, row in enumerate(rows) if row.can_run]
    for place in sorted(running, key=lambda place: (rows[place].hours, rows[place].usd)):
        usd = rows[place].usd
        assert usd is not None
        if usd < least_usd:
            front.add(place)
            least_usd = usd
    return [replace(row, is_on_front=place in front) for place, row in enumerate(rows)]
