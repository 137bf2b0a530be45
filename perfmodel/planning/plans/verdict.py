"""What a plan comes to: the best candidate, what binds, the nearest miss, and what would have to change."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.planning.plans.question import Entry, Question
from perfmodel.planning.plans.report import Change
from perfmodel.planning.plans.rows import BUDGET, DEADLINE, MEMORY, Limits, PlanRow
from perfmodel.planning.wording import at_least, cents_up
from perfmodel.prediction.batch_limit import max_batch_size
from perfmodel.presentation.quantities import bytes_text

if TYPE_CHECKING:
    from perfmodel.planning.plans.bill import Hired

HALVINGS: Final = 60
"""Of the interval that holds the least speed-up, until it is as narrow as a float. [1]"""

LEAST_SHARE: Final = 1e-9
"""Part of the work below which no speed-up is looked for. [1]"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Verdict:
    """Finds what binds.

    Parameters
    ----------
    entries : tuple of Entry
        All candidates. [-]
    question : Question
        What they answer. [-]
    """

    entries: Sequence[Entry]
    question: Question

    @property
    def limits(self) -> Limits:
        """Deadline and budget."""
        return self.question.limits

    @property
    def running(self) -> list[PlanRow]:
        """Rows that only time and money may rule out."""
        return [entry.row for entry in self.entries if entry.row.can_run]

    @property
    def too_large(self) -> list[PlanRow]:
        """Rows that would run if their memory held the step."""
        return [entry.row for entry in self.entries if entry.row.limited_by == MEMORY]

    @property
    def best(self) -> PlanRow | None:
        """The best that keeps the limits."""
        return self.limits.best_of(self.running)

    def _better(self, name: str) -> PlanRow | None:
        """Return what would be chosen with one limit lifted, where that is better than what is."""
        limits = self.limits if name == MEMORY else self.limits.without(name)
        rows = self.too_large if name == MEMORY else self.running
        found, best = limits.best_of(rows), self.best
        if found is None or best is None:
            return found
        return found if self.limits.order(found) < self.limits.order(best) else None

    def binding(self) -> tuple[str, ...]:
        """Return each limit that changes the choice if lifted alone; where none does and nothing fits, all missed ones.

        Returns
        -------
        tuple of str
            Names. [-]
        """
        alone = tuple(name for name in (*self.limits.names, MEMORY) if self._better(name) is not None)
        if alone or self.best is not None:
            return alone
        if self.running:
            return self.limits.names
        return tuple(dict.fromkeys(str(entry.row.limited_by) for entry in self.entries))

    def nearest_miss(self) -> tuple[PlanRow, float] | None:
        """Return the row that would keep the limits with the least speed-up, and that; None where none would.

        Returns
        -------
        tuple or None
            Row, and factor on its speed [1].
        """
        shares = [
            (self._share_that_fits(entry.hired), entry.row)
            for entry in self.entries
            if entry.row.can_run and entry.hired is not None
        ]
        share, row = max(shares, key=lambda each: each[0], default=(0.0, None))
        return None if row is None or share == 0 else (row, 1 / share)

    def _share_that_fits(self, hired: Hired) -> float:
        """Return the largest part of the work that keeps the limits; 0 where none does. [1]"""

        def fits(share: float) -> bool:
            bill = hired.bill(self.question.terms, share=share)
            return not self.limits.missed(bill.hours, bill.usd)

        if fits(1.0):
            return 1.0
        return _largest(fits)

    def changes(self) -> tuple[Change, ...]:
        """Return what would have to change for another choice, or for any.

        Returns
        -------
        tuple of Change
            Computed from the rows. [-]
        """
        finders = {DEADLINE: self._of_deadline, BUDGET: self._of_budget, MEMORY: self._of_memory}
        found: list[Change | None] = [finder() for name, finder in finders.items() if self._better(name) is not None]
        if self.best is None:
            found += self._of_work()
            if not found and self.too_large and not self.running:
                found.append(self._of_memory())
        return tuple(change for change in found if change is not None)

    def _lifted(self, name: str) -> PlanRow:
        """Return the row for which a limit would be changed: the best without it; where nothing fits, the nearest."""
        better = self._better(name)
        assert better is not None
        if self.best is not None:
            return better
        limits = self.limits.without(name)
        within = [row for row in self.running if not limits.missed(row.hours or 0.0, row.usd or 0.0)]
        return min(within, key=lambda row: ((row.hours if name == DEADLINE else row.usd) or 0.0, row.usd or 0.0))

    def _of_deadline(self) -> Change:
        row = self._lifted(DEADLINE)
        assert row.hours is not None
        assert self.limits.deadline_hours is not None
        text = f"a deadline of {at_least(row.hours)} h, {at_least(row.hours - self.limits.deadline_hours)} h later"
        return _change("deadline_hours", row.hours, row, f"{text}: {row.describe()}, {row.usd:,.2f} USD", self.best)

    def _of_budget(self) -> Change:
        row = self._lifted(BUDGET)
        assert row.usd is not None
        assert self.limits.budget_usd is not None
        text = f"a budget of {cents_up(row.usd)} USD, {cents_up(row.usd - self.limits.budget_usd)} more"
        return _change("budget_usd", row.usd, row, f"{text}: {row.describe()} in {row.hours:,.4g} h", None)

    def _of_work(self) -> list[Change]:
        """Return how much faster the nearest miss would have to be, or how much less it may do."""
        nearest = self.nearest_miss()
        if nearest is None:
            return []
        row, speedup = nearest
        found = [_change("speed", speedup, row, f"steps {at_least(speedup)} times as fast on {row.describe()}", None)]
        entry = next(entry for entry in self.entries if entry.row is row)
        what, count = self.question.job.amount
        fewer = self._less_work(entry, 1 / speedup)
        if fewer:
            found.append(_change(what, fewer, row, f"{fewer:,} {what} instead of {count:,} on {row.describe()}", None))
        return found

    def _less_work(self, entry: Entry, share: float) -> int:
        """Return the most epochs or samples, of whole steps, that a share of the work has room for; 0 for none."""
        what, count = self.question.job.amount
        p = entry.prediction
        assert p is not None
        unit = 1 if what == "epochs" else p.counted_workers * p.batch_size
        units = math.floor(math.ceil(count / unit) * share * (1 + 1e-12))
        for fewer in (units * unit, (units - 1) * unit):  # one less where rounding has missed by a hair
            if 0 < fewer < count and self.question.again(entry, amount=fewer).row.limited_by is None:
                return fewer
        return 0

    def _of_memory(self) -> Change | None:
        """Return the mini-batch that the best of those too small holds, else what memory lacks; None if neither do."""
        row = self._better(MEMORY) or min(self.too_large, key=self.limits.order)
        entry = next(entry for entry in self.entries if entry.row is row)
        p = entry.prediction
        assert p is not None
        missing_bytes = float(p.memory.total_bytes) - float(p.memory.capacity_bytes)
        text = f"{bytes_text(missing_bytes)} more memory on {row.describe()}"
        largest = self._largest_batch(entry, row.workers)
        again = None if not largest else self.question.again(entry, batch_size=largest).row
        if again is not None and self._is_chosen(again):
            text += f", or at most {largest:,} samples per worker instead of {p.batch_size:,}"
            if self.question.sizes["global_batch_size"] is None:
                return _change("batch_size", largest, row, text, None)
            text += f", {largest * row.workers:,} of all together"
            return _change("global_batch_size", largest * row.workers, row, text, None)
        if self._better(MEMORY) is None:
            return None
        if again is not None:
            text += f"; with the {largest:,} samples per worker that it holds it {again.reason or 'is not chosen'}"
        return _change("memory_bytes", missing_bytes, row, text, None)

    def _is_chosen(self, row: PlanRow) -> bool:
        """Tell whether a row for another mini-batch keeps the limits and is better than the best."""
        best = self.best
        return row.limited_by is None and (best is None or self.limits.order(row) < self.limits.order(best))

    def _largest_batch(self, entry: Entry, workers: int) -> int:
        """Return the largest mini-batch of a whole network on a device; 0 where there is none or it is not known."""
        known = inspect.signature(max_batch_size).parameters
        graph = self.question.graph
        assert entry.prediction is not None
        if entry.prediction.spread is not None or not isinstance(graph, LayerGraph):
            return 0
        options = {name: value for name, value in self.question.options.items() if name in known}
        try:
            return max_batch_size(graph, **entry.candidate.hardware, workers=workers, **options)
        except ArgumentError:
            return 0


def _largest(fits: Callable[[float], bool]) -> float:
    """Return the largest share that fits, if smaller ones do too; 0 where none does. [1]"""
    low, high = LEAST_SHARE, 1.0
    if not fits(low):
        return 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _change(what: str, needed: float, row: PlanRow, text: str, than: PlanRow | None) -> Change:
    if than is not None and than.usd is not None and row.usd is not None:
        text += f", {than.usd - row.usd:,.2f} less"
    return Change(what=what, needed=float(needed), candidate=row.candidate, text=text)
