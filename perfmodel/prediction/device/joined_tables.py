"""Kernel tables one after the other, whose parts and phases are added up at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.derived import derived_property, record
from perfmodel.framework.kernel_table import counts_in, parts_of, summed_weights
from perfmodel.prediction.device.step_time import Chosen, GroupTimes, ProcessorNumbers, Sums, run_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from perfmodel.framework.kernel_table import GroupWeights, KernelTable
    from perfmodel.records import Phase

MOST_JOINED: Final = 32
"""Tables that are added up at once, so that their times stay in a processor's cache. [1]"""


@dataclass(frozen=True, eq=False)
class JoinedTables:
    """Tables one after the other, whose parts and phases are added up at once."""

    tables: tuple[KernelTable, ...]

    @classmethod
    def of(cls, tables: Sequence[KernelTable]) -> Iterator[JoinedTables]:
        """Join as many tables as are added up at once, and those behind them likewise."""
        for start in range(0, len(tables), MOST_JOINED):
            yield cls(tuple(tables[start : start + MOST_JOINED]))

    @derived_property
    def counts(self) -> list[int]:
        """Groups of each table. [1]"""
        return [len(table.multiplicity) for table in self.tables]

    @derived_property
    def parts(self) -> tuple[NDArray[np.float64], ...]:
        """Occurrences of each group in each part of its step. [1]"""
        return parts_of(self.part_of_group[0], np.concatenate([table.multiplicity for table in self.tables]))

    @derived_property
    def part_of_group(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The part that issues each group, and the table that it is in."""
        parts = np.concatenate([table.part_of_group for table in self.tables])
        return parts, np.repeat(np.arange(len(self.tables)), self.counts)

    def phase_weights(self, phase: Phase) -> GroupWeights:
        """Count each group of each table in a single phase; only the sums are joined. [1]"""
        counts = np.concatenate([counts_in(table, phase) for table in self.tables])
        is_update = np.concatenate([table.is_update for table in self.tables])
        return self.tables[0].rows.weights._replace(sums=summed_weights(counts, is_update))


@record
class JoinedTimes:
    """Costs of the groups of several tables, one table after the other; sums are rows, one for each table."""

    groups: GroupTimes
    starts: NDArray[np.intp]

    @classmethod
    def of(cls, issued: Sequence[Chosen], tables: JoinedTables, numbers: ProcessorNumbers) -> JoinedTimes:
        """Join costs of tables over the same configurations, and share the dispatch that the queue of each exposes."""
        choices, *costs = zip(*[of_table.groups for of_table in issued], strict=True)
        groups = GroupTimes(choices, *map(np.concatenate, costs))  # where there is no choice, it has no configurations
        joined = cls(groups=groups, starts=np.cumsum([0, *tables.counts[:-1]]))
        if not numbers.queued:
            return joined
        return cls(groups=run_ahead(tables, groups, numbers, weighted=joined.weighted), starts=joined.starts)

    def weighted(self, values: Any, weights: Any) -> Any:
        """Sum of value times occurrences over the groups of each table."""
        return np.add.reduceat(values * weights.reshape(-1, *[1] * (values.ndim - 1)), self.starts, axis=0)

    def sums(self, weights: GroupWeights) -> Sums:
        """Add up the costs of some occurrences of each table."""
        return self.groups.sums(weights, self.weighted)

    def of_tables(self) -> list[GroupTimes]:
        """Costs of each table."""
        return [
            GroupTimes._make(of_one)
            for of_one in zip(
                self.groups.chosen, *[np.split(of, self.starts[1:]) for of in self.groups[1:]], strict=True
            )
        ]
