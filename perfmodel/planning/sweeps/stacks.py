"""Units that are composed together: the turns, the exchanges, the steps and the memory of all their rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from perfmodel.cost.pipeline_order import kept_counts
from perfmodel.derived import derived_property
from perfmodel.numeric import maximum
from perfmodel.planning.sweeps.known_jobs import groups
from perfmodel.planning.sweeps.micro_batches import memory_of_units, worker_of_cuts
from perfmodel.prediction.bill import processor_count, server_power_w
from perfmodel.prediction.device.step_time import NO_TIME
from perfmodel.prediction.energy import Draws, energy_of_all, step_work
from perfmodel.prediction.job.agreement import Asynchronous, Synchronous
from perfmodel.prediction.job.compose import Composed, is_served, stepped
from perfmodel.prediction.job.parameter_server import held_beside, without_served_state
from perfmodel.prediction.job.stacking import stacked, taken
from perfmodel.prediction.job.turns import all_turned, slow_places, slowed_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.cost.pipeline_order import Orders
    from perfmodel.parallelism.base import Layout
    from perfmodel.planning.sweeps.micro_batches import Exchanges, Unit
    from perfmodel.prediction.device.step_time import StepTime
    from perfmodel.prediction.job.compose import DeviceWork, WorkerWork
    from perfmodel.prediction.job.turns import Turned

    Ints = NDArray[np.int64]

VALUES_AT_ONCE: Final = 1 << 17
"""Rows times devices that are composed at once, so that a number of all of them takes at most a megabyte. [1]"""


class StackRows(NamedTuple):
    """Rows of a stack: the order of turns, the unit and the configuration in the stack of each, and its place."""

    stack: Stack
    layouts: tuple[Layout, ...]
    order: Ints
    of_unit: Ints
    at: Ints
    places: Ints

    @property
    def micro_batches(self) -> Ints:
        """Micro-batches of a pass, in each order. [1]"""
        return np.array([layout.micro_batches for layout in self.layouts])

    def pieces(self) -> Iterator[slice]:
        """Cut the rows into pieces that are composed at once."""
        count = max(1, VALUES_AT_ONCE // self.layouts[0].stages)
        yield from (slice(start, start + count) for start in range(0, len(self.places), count))


class TurnedRows(NamedTuple):
    """The ends of turns, and the exchanges, of the configurations and orders that rows of a stack share."""

    used: Ints
    row: Ints
    turns: Turned
    exchanged: tuple[tuple[Any, ...], ...]


class Stack:
    """Units that are composed together, their configurations concatenated."""

    def __init__(self, units: Sequence[Unit], numbers: Mapping[str, Any]) -> None:
        self.units, self.numbers = units, numbers
        self.names = tuple(dict.fromkeys(unit.device_names for unit in units))
        self.device_of_unit = np.array([self.names.index(unit.device_names) for unit in units])
        self.counts = [len(unit.alone.sizes) for unit in units]
        self.starts = np.cumsum([0, *self.counts[:-1]])
        # sharing among workers does not change the rest
        first = {id(unit.alone): unit.alone for unit in reversed(units)}
        counts = [len(alone.sizes) for alone in first.values()]
        alone_starts = dict(zip(first, np.cumsum([0, *counts]), strict=False))
        self.alone = np.concatenate([alone_starts[id(unit.alone)] + np.arange(len(unit.alone.sizes)) for unit in units])
        turns_like: dict[Hashable, Ints] = {}
        spans = [start + np.arange(count) for start, count in zip(self.starts, self.counts, strict=True)]
        self.turns_like = np.concatenate(
            [turns_like.setdefault(unit.turns_like, span) for unit, span in zip(units, spans, strict=True)]
        )
        """For each configuration, the first one with the same turns."""
        worker = worker_of_cuts(list(first.values()))
        turns: dict[str, Any] = dict.fromkeys(("forward_s", "backward_s", "forward_send_s", "backward_send_s"), ())
        self.without_turns = replace(worker, **turns)
        self.turns = replace(worker, per_micro_batch=NO_TIME, update=NO_TIME, updates=(), tied_s=())
        self.devices = memory_of_units(units)
        self.copies_s = stacked([alone.copies_s for alone in first.values()], counts)
        self.alones, self.alone_counts = tuple(first.values()), counts
        layouts = [unit.prepared.layout for unit in units]
        self.shares = np.array([layout.update_share for layout in layouts])
        self.adding_shares = np.repeat([layout.adding_share for layout in layouts], self.counts)
        self.memories: dict[Hashable, tuple[Any, Any]] = {}
        self.exchanged = None
        if not any(unit.waits_for_turns for unit in units):
            self.exchanged = stacked([unit.exchanged_by_itself for unit in units], self.counts)

    def orders(self, layout: Layout) -> Orders:
        """Return the turns of a layout."""
        prepared = self.units[0].prepared
        return layout.orders(len(prepared.stages), trains=prepared.trains)

    def exchanges(self, turns: Turned, used: Ints, order: Ints) -> Exchanges:
        """Return the exchanges of configurations at the ends of their turns, each in one of several orders."""
        if self.exchanged is not None:
            return taken(self.exchanged, used)  # type: ignore[no-any-return]
        return self._exchanged(turns, used, order)

    def composed(self, turned: TurnedRows, row: Ints, of_unit: Ints, *, micro_batches: Ints, passes: Ints) -> Composed:
        """Return the joint steps of rows, without copies and input."""
        agreement = self.units[0].agreement
        count = micro_batches * passes
        own_parts, between = stepped(
            self.adding_up(self.without_turns, turned.used[row], micro_batches),
            taken(turned.turns, row),
            exchanged=None
            if agreement is None
            else [
                (total_s + count * gathered_s, exposed_s + count * waited_s)
                for total_s, exposed_s, gathered_s, waited_s in taken(turned.exchanged, row)
            ],
            micro_batches=micro_batches,
            passes=passes,
            update_share=self.shares[of_unit],
            served=is_served(agreement),
        )
        parts = own_parts if agreement is None else self._applied(own_parts, between, of_unit)
        return Composed(parts=parts, alone=own_parts, longest=0, stages=(), devices=(), orders=())

    def adding_up(self, worker: WorkerWork, used: Ints, micro_batches: Ints) -> WorkerWork:
        """Return the work of some configurations with their sums of gradients."""
        shares = self.adding_shares[used]
        return taken(worker, self.alone[used]).adding_up(  # type: ignore[no-any-return]
            micro_batches, share=1.0 if (shares == 1).all() else shares
        )

    def _exchanged(self, turns: Turned, used: Ints, order: Ints) -> Exchanges:
        """Return the exchanges at the ends of turns, unit by unit for all orders of turns at once."""
        devices: dict[Hashable, Sequence[DeviceWork]] = {}
        exchanges: dict[Hashable, Exchanges] = {}
        exchanged, everywhere = [], []
        for (index,), places in groups([np.searchsorted(self.starts, used, side="right") - 1]):
            unit = self.units[index]
            columns = unit.alone.columns[used[places] - self.starts[index]]
            alone, like = (
                (of, columns.tobytes(), order[places].tobytes()) for of in (unit.turns_like, unit.exchanges_like)
            )
            if alone not in devices:
                devices[alone] = unit.devices(taken(turns, places), columns)
            if like not in exchanges:
                exchanges[like] = unit.exchanged(devices[alone], columns)
            exchanged.append(exchanges[like])
            everywhere.append(places)
        back = np.argsort(np.concatenate(everywhere))
        return taken(stacked(exchanged, [len(places) for places in everywhere]), back)  # type: ignore[no-any-return]

    def _applied(self, own_parts: StepTime, exchanged: tuple[Any, Any], of_unit: Ints) -> StepTime:
        agreements = [unit.agreement for unit in self.units]
        if all(isinstance(agreement, Synchronous) and agreement.straggler is None for agreement in agreements):
            assert agreements[0] is not None
            return agreements[0].applied(own_parts, exchanged)

        def applied(index: int, rows: slice) -> StepTime:
            agreement = agreements[index]
            assert agreement is not None
            is_varied = isinstance(agreement, Asynchronous) and agreement.numbers.times is not None
            alone = [slice(row, row + 1) for row in range(rows.start, rows.stop)] if is_varied else [rows]
            return stacked(  # type: ignore[no-any-return]
                [agreement.applied(taken(own_parts, some), taken(exchanged, some)) for some in alone],
                [some.stop - some.start for some in alone],
            )

        return self._by_unit(applied, of_unit)

    def fed(self, parts: StepTime, *, of_unit: Ints, batch: Ints) -> StepTime:
        """Return steps, including the time they wait for input."""

        def fed(index: int, rows: slice) -> StepTime:
            path = self.units[index].prepared.data_path
            assert path is not None
            return path.fed(taken(parts, rows), batch_size=batch[rows].astype(float))

        return self._by_unit(fed, of_unit)

    @staticmethod
    def _by_unit(make: Callable[[int, slice], StepTime], of_unit: Ints) -> StepTime:
        """Call ``make`` for each unit and join the steps; rows are sorted by unit."""
        edges = [0, *(np.flatnonzero(np.diff(of_unit)) + 1).tolist(), len(of_unit)]
        slices = [slice(*span) for span in pairwise(edges)]
        steps = [make(int(of_unit[rows.start]), rows) for rows in slices]
        return stacked(steps, [rows.stop - rows.start for rows in slices])  # type: ignore[no-any-return]

    def energy_j(self, step_s: Any, *, of_unit: Ints, at: Ints, parts: Ints) -> Any:
        """Return the energy of all devices in steps of these times. [J]"""
        targets = [(unit.prepared.target, unit.agreement) for unit in self.units]
        count, beside_w = (
            np.array([of(target, agreement) for target, agreement in targets])[of_unit]
            for of in (lambda target, _: processor_count(target), server_power_w)
        )
        boards = [unit.alone.board for unit in self.units]
        draws = Draws(*(np.array([getattr(board, name) for board in boards])[of_unit] for name in Draws._fields))
        works = step_work(
            taken(self._energies, self.alone[at]),
            self.units[0].alone.device_of_chunk,
            parts=parts,
            update_share=self.shares[of_unit],
        )
        return energy_of_all(draws, works, step_s=step_s, count=count) + beside_w * step_s

    @derived_property
    def _energies(self) -> Any:
        """Energy of the work of each chunk, of all configurations. [J]"""
        return stacked([alone.energies for alone in self.alones], self.alone_counts)

    def memory(self, layouts: Sequence[Layout], order: Ints, at: Ints, *, parts: Ints, passes: Ints) -> tuple[Any, Any]:
        """Memory needed on the fullest device of a worker, and its capacity. [B]"""
        needed, capacity = np.zeros(len(at)), np.zeros(len(at))
        for (index, some_passes, some_parts), rows in groups([order, np.minimum(passes, 2), np.minimum(parts, 2)]):
            of_all = self._memory_of(self.orders(layouts[index]), parts=some_parts, passes=some_passes)
            needed[rows], capacity[rows] = (values[at[rows]] for values in of_all)
        return needed, capacity

    def _memory_of(self, orders: Orders, *, parts: int, passes: int) -> tuple[Any, Any]:
        """Memory of all configurations and its capacity; orders that hold equally much are computed once. [B]"""
        shares_late = any(device.shares_late for device in self.devices)
        moments = (
            kept_counts(order, device.chunks, with_working=passes == 1 and device.shares_late)
            for device, order in zip(self.devices, orders, strict=True)
        )
        key = (parts, passes if shares_late else 1, *moments)
        if key not in self.memories:
            agreement, needed = self.units[0].agreement, []
            for device, order, held in zip(self.devices, orders, self._held_beside, strict=True):
                footprint = without_served_state(device.footprint(order, parts=parts, passes=passes), agreement)
                needed.append(footprint.total_bytes + held)
            count, capacity_bytes = sum(self.counts), self.devices[0].alone.capacity_bytes
            self.memories[key] = (
                np.broadcast_to(reduce(maximum, needed), count),
                np.broadcast_to(capacity_bytes, count),
            )
        return self.memories[key]

    @derived_property
    def _held_beside(self) -> list[Any]:
        """Memory that each device needs besides its worker, for all configurations. [B]"""
        beside = zip(*[held_beside(unit.prepared) for unit in self.units], strict=True)
        return [np.repeat(of_units, self.counts) for of_units in beside]


def turned_rows(of_stacks: Sequence[StackRows]) -> list[TurnedRows]:
    """Return the ends of turns and the exchanges of rows; the turns of all rows are added up at once."""
    every = [_Ordered.of(rows) for rows in of_stacks]
    turned = _ends_of([(ordered, ordered.first_alike, None) for ordered in every])
    answers, slow = [], []
    for ordered, of_alike in zip(every, turned, strict=True):
        turns = taken(of_alike, ordered.of_alike)
        exchanges = ordered.rows.stack.exchanges(turns, ordered.used, ordered.order)
        answers.append(TurnedRows(ordered.used, ordered.row, turns, exchanges.devices))
        is_cut = ordered.rows.layouts[0].stages > 1
        if is_cut and len(places := slow_places(exchanges.messages, count=len(ordered.used))):
            slow.append((len(answers) - 1, ordered, places, taken(exchanges.messages, places)))
    slowed = _ends_of([(ordered, places, messages) for _, ordered, places, messages in slow])
    for (index, _, places, _), to in zip(slow, slowed, strict=True):
        turns = answers[index].turns
        answers[index] = answers[index]._replace(turns=replace(turns, slowed=slowed_at(places, of=turns, to=to)))
    return answers


class _Ordered(NamedTuple):
    """Configurations of a stack in their orders of turns, sorted by order; many rows share a few of them."""

    rows: StackRows
    used: Ints
    order: Ints
    row: Ints
    """Which of them each row is."""
    first_alike: Ints
    """Those of them that no earlier one takes the same turns as, and which of these each takes them as."""
    of_alike: Ints

    @classmethod
    def of(cls, rows: StackRows) -> _Ordered:
        """Find the configurations that rows share."""
        turns_like = rows.stack.turns_like
        different, row = np.unique(rows.order * len(turns_like) + rows.at, return_inverse=True)
        order, used = np.divmod(different, len(turns_like))
        _, first, of_alike = np.unique(
            order * len(turns_like) + turns_like[used], return_index=True, return_inverse=True
        )
        return cls(rows, used, order, row, first, of_alike)


def _ends_of(wanted: Sequence[tuple[_Ordered, Ints, Any]]) -> list[Turned]:
    """Return the ends of turns of some configurations of each stack, with their messages."""
    workers, orders, messages, counts = [], [], [], []
    for ordered, places, sent in wanted:
        stack, order = ordered.rows.stack, ordered.order[places]
        worker = stack.adding_up(stack.turns, ordered.used[places], ordered.rows.micro_batches[order])
        edges = np.flatnonzero(np.diff(order, prepend=-1)).tolist()
        spans = [slice(*span) for span in pairwise([*edges, len(order)])]
        counts.append([span.stop - span.start for span in spans])
        orders += [stack.orders(ordered.rows.layouts[index]) for index in order[edges].tolist()]
        workers += [taken(worker, span) for span in spans]
        messages += [() if sent is None else taken(sent, span) for span in spans]
    turned = iter(all_turned(workers, orders, messages))
    return [stacked([next(turned) for _ in of_stack], of_stack) for of_stack in counts]
