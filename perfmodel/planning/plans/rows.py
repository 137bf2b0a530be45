"""Rows of a plan: a candidate, what the job comes to on it, and why it cannot be; which of them nothing beats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

MEMORY: Final = "memory"
DEADLINE: Final = "deadline"
BUDGET: Final = "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One candidate with a number of workers that agree in one way, bought in one way.

    Parameters
    ----------
    candidate : str
        The price, or the machine of one's own. [-]
    purchase : str
        ``on_demand``, ``capacity_block``, ``spot``, or ``own``. [-]
    sync : str
        How the workers agree. [-]
    workers : int
        Workers. [1]
    instances : int or None
        Instances that are paid, or devices of one's own. [1]
    step_s : float or None
        Time of a step. [s]
    hours : float or None
        Time of the job. [h]
    usd : float or None
        Its cost: hire, storage and electricity. [USD]
    storage_usd, energy_usd : float or None
        Parts of it. [USD]
    energy_kwh : float or None
        What the devices draw at most. [kWh]
    checkpoint_interval_s : float or None
        Work between two checkpoints. [s]
    lost_share : float or None
        Share of the hours that checkpoints and interruptions take. [1]
    mean_staleness : float or None
        Updates of others that a gradient has missed. [1]
    is_on_front : bool
        Whether no other that can run is both faster and cheaper. [-]
    least_hours, most_hours : float or None
        Time of the job by the ends of the 80 % interval of its step, of rows on the front; None where there is no
        such interval. [h]
    least_usd, most_usd : float or None
        Its cost by them. [USD]
    limited_by : str or None
        What rules it out: ``deadline``, ``budget``, both, ``memory``, or what cannot be; None for nothing. [-]
    reason : str or None
        That in words. [-]
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

    @property
    def can_run(self) -> bool:
        """Whether time and money are all that may rule it out."""
        return self.hours is not None and self.limited_by in (None, DEADLINE, BUDGET, f"{DEADLINE}, {BUDGET}")

    def ends(self) -> tuple[tuple[float, float], tuple[float, float]] | None:
        """Return hours and cost by the ends of the interval of its step; None where it has none. [h, USD]"""
        if self.least_hours is None or self.most_hours is None or self.least_usd is None or self.most_usd is None:
            return None
        return (self.least_hours, self.most_hours), (self.least_usd, self.most_usd)

    def describe(self) -> str:
        """Return what it is in a few words."""
        several = "" if self.workers == 1 else f", {self.workers} workers by {self.sync}"
        return f"{self.candidate} ({self.purchase.replace('_', ' ')}{several})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is asked of time and money.

    Parameters
    ----------
    deadline_hours : float or None
        Most hours. [h]
    budget_usd : float or None
        Most money. [USD]
    wants_speed : bool
        Whether the best is the fastest, else the cheapest; the same when a limit is lifted. [-]
    """

    deadline_hours: float | None = None
    budget_usd: float | None = None
    wants_speed: bool = False

    @classmethod
    def of(cls, *, deadline_hours: float | None, budget_usd: float | None) -> Limits:
        """Return the limits of a question: with a budget alone the fastest is wanted.

        Parameters
        ----------
        deadline_hours : float or None
            Most hours. [h]
        budget_usd : float or None
            Most money. [USD]

        Returns
        -------
        Limits
            Both, and what is best. [-]
        """
        wants_speed = deadline_hours is None and budget_usd is not None
        return cls(deadline_hours=deadline_hours, budget_usd=budget_usd, wants_speed=wants_speed)

    def missed(self, hours: float, usd: float) -> tuple[str, ...]:
        """Return which of both are exceeded.

        Parameters
        ----------
        hours : float
            Time of a job. [h]
        usd : float
            Its cost. [USD]

        Returns
        -------
        tuple of str
            ``deadline``, ``budget``. [-]
        """
        late = self.deadline_hours is not None and hours > self.deadline_hours
        dear = self.budget_usd is not None and usd > self.budget_usd
        return tuple(name for name, exceeded in ((DEADLINE, late), (BUDGET, dear)) if exceeded)

    def without(self, name: str) -> Limits:
        """Return the limits with one of them lifted.

        Parameters
        ----------
        name : str
            ``deadline`` or ``budget``. [-]

        Returns
        -------
        Limits
            The other one. [-]
        """
        return replace(self, deadline_hours=None) if name == DEADLINE else replace(self, budget_usd=None)

    @property
    def names(self) -> tuple[str, ...]:
        """Those that are asked."""
        asked = ((DEADLINE, self.deadline_hours), (BUDGET, self.budget_usd))
        return tuple(name for name, limit in asked if limit is not None)

    def best_of(self, rows: Iterable[PlanRow]) -> PlanRow | None:
        """Return the best of rows that keep the limits.

        Parameters
        ----------
        rows : iterable of PlanRow
            With hours and money. [-]

        Returns
        -------
        PlanRow or None
            The cheapest, or with a budget alone the fastest; None where none keeps them. [-]
        """
        within = [row for row in rows if not self.missed(row.hours or 0.0, row.usd or 0.0)]
        return min(within, key=self.order, default=None)

    def order(self, row: PlanRow) -> tuple[float, float]:
        """Return what is wanted small first.

        Parameters
        ----------
        row : PlanRow
            With hours and money. [-]

        Returns
        -------
        tuple of float
            Money and hours, or with a budget alone hours and money. [USD, h]
        """
        assert row.hours is not None
        assert row.usd is not None
        return (row.hours, row.usd) if self.wants_speed else (row.usd, row.hours)


def with_front(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Mark the rows that can run and that no other beats in both time and money.

    Parameters
    ----------
    rows : sequence of PlanRow
        All rows. [-]

    Returns
    -------
    list of PlanRow
        The same in the same order, marked. [-]
    """
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
