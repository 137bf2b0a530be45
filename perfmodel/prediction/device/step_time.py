"""From kernels to the time of a step, on one path for floats (predict), arrays (sweep) and symbols (formula).

Nothing here reads a spec file. A :class:`ProcessorNumbers` gives the time of kernels by each branch of the roofline and
the cost of launches and dispatch; everything else is arithmetic on the columns of a kernel table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perfmodel.cost.roofline import exposed_dispatch_time, queued_dispatch_time, roofline_time
from perfmodel.derived import derived, derived_property, record
from perfmodel.framework.kernel_table import ColumnsAt, columns_at
from perfmodel.numeric import exceeds, maximum, total, where
from perfmodel.prediction.device.named_rows import by_row
from perfmodel.records import Phase, Role
from perfmodel.symbolic import Quantity, is_symbolic, named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from perfmodel.framework.kernel_table import GroupWeights, KernelTable
    from perfmodel.prediction.device.joined_tables import JoinedTables, JoinedTimes


class ProcessorNumbers(ABC):
    """Plain numbers of a processor with its libraries and framework, without spec files."""

    __slots__ = ()

    launch_s: Quantity
    dispatch_s: Quantity
    library_issue_s: Quantity
    step_overhead_s: Quantity
    overlap_exponent: float

    @property
    def queued(self) -> bool:
        """Whether the host queues all kernels of a step ahead, so that only the total of dispatch can delay it."""
        return False

    @property
    def issuer_dispatch_s(self) -> tuple[Quantity, ...] | None:
        """Time to issue one operator by ``ISSUERS``, and to record one for back-propagation; needs ``queued``. [s]"""
        return None

    @property
    def configuration_count(self) -> int | None:
        """Length of those numbers that are arrays over configurations; None if all are scalars. [1]"""
        return None

    @property
    def beside_a_step(self) -> ProcessorNumbers:
        """Numbers for kernels outside a network's step; the same unless kernels affect one another."""
        return self

    @abstractmethod
    def matmul_times(self, columns: Mapping[str, Quantity], efficiency: tuple[str, ...]) -> tuple[Quantity, Quantity]:
        """Compute and memory seconds of one launch of each matmul row. [s]"""

    @abstractmethod
    def stream_times(self, columns: Mapping[str, Quantity], efficiency: tuple[str, ...]) -> tuple[Quantity, Quantity]:
        """Compute and memory seconds of one launch of each stream row. [s]"""


class StepTime(NamedTuple):
    """Exclusive parts of one step; their sum, the total, is never stored."""

    compute_s: Quantity
    memory_bound_s: Quantity
    overhead_s: Quantity
    update_s: Quantity
    exposed_transfer_s: Quantity = 0.0
    input_wait_s: Quantity = 0.0
    exposed_sync_s: Quantity = 0.0
    straggler_s: Quantity = 0.0
    bubble_s: Quantity = 0.0
    transfer_s: Quantity = 0.0
    sync_s: Quantity = 0.0
    dispatch_s: Quantity = 0.0
    launch_s: Quantity = 0.0

    @property
    def exclusive(self) -> tuple[Quantity, ...]:
        """Exclusive parts in the order of ``PARTS``. [s]"""
        return self[:_EXCLUSIVE]

    @property
    def step_s(self) -> Quantity:
        """Time of one optimizer update on one global mini-batch. [s]"""
        parts = self[:_EXCLUSIVE]
        if type(parts[0]) is np.ndarray:  # to add nothing to an array takes as long as to add something
            parts = tuple([part for part in parts if type(part) is not float or part])
        return sum(parts)

    def __add__(self, other: StepTime) -> StepTime:  # type: ignore[override]
        return StepTime._make(map(add, self, other))

    def times(self, factor: Quantity) -> StepTime:
        """Multiply every part by a factor. [s]"""
        return StepTime._make([factor * part for part in self])

    def copying(self, *, exposed_s: Quantity, total_s: Quantity, first_step_s: Quantity) -> StepTime:
        """Add exposed copies, and this step's share of the first step's set-up. [s]"""
        compute_s, memory_bound_s, overhead_s, update_s, _, input_s, sync_s, straggler_s, bubble_s, _, *rest = self
        waits_s = exposed_s, input_s, sync_s, straggler_s, bubble_s
        return StepTime(compute_s, memory_bound_s, overhead_s + first_step_s, update_s, *waits_s, total_s, *rest)

    @property
    def device_s(self) -> Quantity:
        """Device time of a mini-batch: the step without waits for copies and input. [s]"""
        return self.step_s - self.exposed_transfer_s - self.input_wait_s


NO_TIME = StepTime(0.0, 0.0, 0.0, 0.0)
"""Nothing. [s]"""

_EXCLUSIVE = 9
"""Fields of StepTime that sum to the step, the first ones. [1]"""

PARTS = StepTime._fields[:_EXCLUSIVE]
"""Their names."""

TOTALS = tuple(name for name in StepTime._fields if name not in PARTS)
"""Fields of StepTime that are totals, hidden or not."""


def _seconds(name: str, meaning: str) -> Any:
    """Return a property that is one time of ``parts`` as a plain number."""
    return property(lambda timed: float(getattr(timed.parts, name)), doc=f"{meaning} [s]")


class StepTimes:
    """The times of one step, by name."""

    parts: StepTime

    step_s: float = _seconds("step_s", "Time of one step: the sum of its exclusive parts.")
    compute_s: float = _seconds("compute_s", "Kernels that arithmetic bounds.")
    memory_bound_s: float = _seconds("memory_bound_s", "Kernels that memory bandwidth bounds.")
    overhead_s: float = _seconds("overhead_s", "Launch gaps, and dispatch that no kernel hides.")
    update_s: float = _seconds("update_s", "The optimizer's update.")
    exposed_transfer_s: float = _seconds(
        "exposed_transfer_s", "Copies between host and device that computing does not hide."
    )
    input_wait_s: float = _seconds("input_wait_s", "Waiting for storage and decoding.")
    exposed_sync_s: float = _seconds("exposed_sync_s", "Gradient exchange that computing does not hide.")
    straggler_s: float = _seconds("straggler_s", "Waiting for the slowest worker.")
    bubble_s: float = _seconds("bubble_s", "Devices that wait for one another, such as in the bubbles of a pipeline.")
    transfer_s: float = _seconds("transfer_s", "All copies between host and device, hidden or not.")
    sync_s: float = _seconds("sync_s", "All gradient exchange, hidden or not.")
    dispatch_s: float = _seconds("dispatch_s", "What the host needs to issue all kernels, hidden or not.")
    launch_s: float = _seconds("launch_s", "Gaps between kernels.")


Sums = tuple[Quantity, Quantity, Quantity, Quantity, Quantity, Quantity]
"""Compute-bound, memory-bound and update seconds, launches, issue and exposed-issue seconds of a step or phase."""


def _weighted(values: Quantity, weights: Quantity) -> Quantity:
    """Sum of value times occurrences over groups."""
    if values.dtype.hasobject:
        return total(values * np.frompyfunc(int, 1, 1)(weights))
    return weights.dot(values) if values.ndim > 1 else float(weights.dot(values))


class GroupTimes(NamedTuple):
    """Cost of each group of a kernel table (a unique operation) with its chosen alternative."""

    chosen: Quantity
    compute_s: Quantity
    memory_s: Quantity
    launches: Quantity
    dispatch_s: Quantity
    exposed_dispatch_s: Quantity

    @property
    def groups(self) -> GroupTimes:
        """The costs themselves, as :class:`ChosenRows` has them."""
        return self

    def sums(self, weights: GroupWeights, weighted: Callable[[Any, Any], Any] = _weighted) -> Sums:
        """Add up the costs of some occurrences."""
        return (
            weighted(self.compute_s, weights.forward_backward),
            weighted(self.memory_s, weights.forward_backward),
            weighted(self.compute_s + self.memory_s, weights.update),
            weighted(self.launches, weights.every),
            weighted(self.dispatch_s, weights.every),
            weighted(self.exposed_dispatch_s, weights.every),
        )


@record
class ChosenRows:
    """Costs of the unique rows of a table, plain numbers, and which of its alternatives each group chooses.

    Sums are taken over rows of what is chosen, all at once; costs by group are made when they are read.
    """

    table: KernelTable
    columns: ColumnsAt
    costs: NDArray[np.float64]
    place: NDArray[np.intp]

    @derived_property
    def chosen(self) -> NDArray[np.intp]:
        """Alternative that each group chooses."""
        return self.table.choices[self.place, self.table.weights.every_group]

    @derived_property
    def places(self) -> NDArray[np.intp]:
        """Places of the rows of what is chosen in the table's order of rows, group by group."""
        rows = self.table.rows
        places: NDArray[np.intp] = (self.place.take(rows.group_of_row) == rows.place_of_row).nonzero()[0]
        return places

    @derived_property
    def groups(self) -> GroupTimes:
        """Cost of each group."""
        costs = self.costs.take(self.table.row_order.take(self.places), axis=1)
        starts = self.places.searchsorted(self.table.alternative_starts.take(self.chosen))
        return GroupTimes(self.chosen, *np.add.reduceat(costs, starts, axis=1))

    def sums(self, weights: GroupWeights) -> Sums:
        """Add up the costs of some occurrences."""
        costs = self.costs.take(self.table.row_order.take(self.places), axis=1)
        counts = weights.of_row.take(self.places, axis=0)
        compute, memory, launches, dispatch, exposed = costs.dot(counts).tolist()
        return compute[0], memory[0], compute[1] + memory[1], launches[2], dispatch[2], exposed[2]


Chosen = GroupTimes | ChosenRows
"""Costs of a table with the alternatives that are chosen."""


def _one_per_configuration(batch_size: Quantity, numbers: ProcessorNumbers) -> Quantity:
    """Repeat a single batch size per configuration, so that columns broadcast against the numbers."""
    count = numbers.configuration_count
    if count is None or isinstance(batch_size, np.ndarray) or is_symbolic(batch_size):
        return batch_size
    return np.full(count, float(batch_size))


def _times_of_rows(table: KernelTable, numbers: ProcessorNumbers, *, columns: ColumnsAt) -> tuple[Quantity, ...]:
    """Compute-bound, memory-bound, launch, issue, exposed-issue and all device seconds of each row. [s]"""
    matmul, stream, launches, *_ = columns
    times = []
    if table.matmul_efficiency:
        times.append((matmul["m"].shape, *numbers.matmul_times(matmul, table.matmul_efficiency)))
    if table.stream_efficiency:
        times.append((stream["flop_count"].shape, *numbers.stream_times(stream, table.stream_efficiency)))
    compute, memory = named(_joined(times, 1), "arithmetic"), named(_joined(times, 2), "traffic")
    waits = exceeds(memory, compute)
    of_one = named(roofline_time(compute_s=compute, memory_s=memory), "kernel")
    busy, launched = of_one * launches, named(of_one + numbers.launch_s, "launch")
    exposed, issued = _issue_times(table, numbers, columns=columns, busy_s=launched)
    others = launches, issued, named(exposed, "exposed dispatch"), launched * launches
    if is_symbolic(waits):
        compute_bound = where(waits, 0, 1)
        return busy * compute_bound, busy * (1 - compute_bound), *others
    memory_bound = busy * waits
    return busy - memory_bound, memory_bound, *others


def _issue_times(
    table: KernelTable, numbers: ProcessorNumbers, *, columns: ColumnsAt, busy_s: Quantity
) -> tuple[Quantity, Quantity]:
    """Exposed and total host seconds to issue the launches of each row. [s]"""
    _, _, launches, inside, _ = columns
    dispatch_s, exponent = numbers.dispatch_s, numbers.overlap_exponent
    if numbers.issuer_dispatch_s is not None:
        # the part of the step is known per group only; until then, the launches stand in for exposed seconds
        return launches - inside, inside * numbers.library_issue_s
    weights = table.weights
    if weights.has_library_launches:
        issue_s, issuer_of_row = numbers.library_issue_s, weights.issuer_of_row
        if issuer_of_row is None:  # both launch some of the rows
            by_framework, by_library = (
                exposed_dispatch_time(busy_s=busy_s, dispatch_s=one_s, overlap_exponent=exponent)
                for one_s in (dispatch_s, issue_s)
            )
            outside = launches - inside
            return outside * by_framework + inside * by_library, outside * dispatch_s + inside * issue_s
        is_filed = type(dispatch_s) is float is type(issue_s)
        spread = _filed_dispatch if is_filed else _dispatch_by_row
        dispatch_s = spread(table.rows, dispatch_s, issue_s, launches.ndim)
    exposed_s = exposed_dispatch_time(busy_s=busy_s, dispatch_s=dispatch_s, overlap_exponent=exponent)
    return launches * exposed_s, launches * dispatch_s


def _dispatch_by_row(table: KernelTable, dispatch_s: Quantity, issue_s: Quantity, axes: int) -> Any:
    """Time to issue a launch of each row, by the framework or by a library. [s]"""
    issuer_of_row = table.weights.issuer_of_row
    assert issuer_of_row is not None
    return by_row((dispatch_s, issue_s), issuer_of_row, axes=axes)


_filed_dispatch = derived(_dispatch_by_row)
"""The same for the times that files state, of which a table meets few."""


def _joined(times: Sequence[tuple[Quantity, ...]], branch: int) -> Quantity:
    """One branch of the times of both kernel classes, matmuls first, in the shape of the launch counts."""
    return np.concatenate([_broadcast(of_class[branch], of_class[0]) for of_class in times])


def _broadcast(values: Quantity, shape: tuple[int, ...]) -> Quantity:
    return values if getattr(values, "shape", None) == shape else np.broadcast_to(values, shape)


def _issued(table: KernelTable, groups: GroupTimes, numbers: ProcessorNumbers) -> GroupTimes:
    """Add the dispatch of each launch by the part of the step that issues it; until then nothing of it is exposed."""
    if numbers.issuer_dispatch_s is None:
        return groups
    weights = table.rows.weights
    forward_s, *others, recording_s = numbers.issuer_dispatch_s
    of_issuer = (forward_s + recording_s if weights.records else forward_s, *others)
    of_launch_s = by_row(of_issuer, weights.issuer_of_group, axes=getattr(groups.launches, "ndim", 1))
    return groups._replace(dispatch_s=groups.dispatch_s + groups.exposed_dispatch_s * of_launch_s)


def run_ahead(
    table: KernelTable | JoinedTables,
    groups: GroupTimes,
    numbers: ProcessorNumbers,
    *,
    weighted: Callable[[Any, Any], Any] = _weighted,
) -> GroupTimes:
    """Share the dispatch that a queue of launches exposes in each part of the step, in proportion to dispatch."""
    busy_s = groups.compute_s + groups.memory_s + groups.launches * numbers.launch_s
    busy, issued = ([weighted(seconds, part) for part in table.parts] for seconds in (busy_s, groups.dispatch_s))
    exposed_s = queued_dispatch_time(busy_s=busy, dispatch_s=issued)
    shares = [
        exposed / where(exceeds(of_part, 0), of_part, 1.0) for exposed, of_part in zip(exposed_s, issued, strict=True)
    ]
    share = by_row(shares, table.part_of_group, axes=getattr(groups.launches, "ndim", 1))
    return groups._replace(exposed_dispatch_s=groups.dispatch_s * share)


def _open_choice(table: KernelTable, rows: tuple[Quantity, ...], *, eligible: Quantity) -> GroupTimes:
    """Keep all alternatives of symbolic times, because the fastest is not yet known.

    Each alternative is compared with the fastest before it, so that the first of equal ones wins, like argmin.
    """
    first = table.choices[0]
    values = [row[first].astype(object) for row in rows]
    shortest = eligible[first].astype(object)
    for place, rivals in enumerate(table.choices[1:], start=1):
        differing = np.flatnonzero(~(table.choices[:place] == rivals).any(axis=0))
        rival = eligible[rivals[differing]]
        faster = exceeds(shortest[differing], rival)
        for value, row in zip(values, rows, strict=True):
            value[differing] = where(faster, row[rivals[differing]], value[differing])
        shortest[differing] = where(faster, rival, shortest[differing])
        values, shortest = [named(value, "chosen") for value in values], named(shortest, "shortest")
    return GroupTimes(first, *values)


def group_times(
    table: KernelTable, numbers: ProcessorNumbers, *, batch_size: Quantity, workspace_limit_bytes: float
) -> GroupTimes:
    """Time every alternative and choose, per group, the fastest whose workspace fits; costs by group."""
    how: dict[str, Any] = {"batch_size": batch_size, "workspace_limit_bytes": workspace_limit_bytes}
    return chosen_times(table, numbers, **how).groups


def chosen_times(
    table: KernelTable,
    numbers: ProcessorNumbers,
    *,
    batch_size: Quantity,
    workspace_limit_bytes: float,
    known: dict[Any, Any] | None = None,
) -> Chosen:
    """Time every alternative and choose, per group, the fastest whose workspace fits.

    ``known`` caches what tables with the same rows share at this batch size.
    """
    how: dict[str, Any] = {"batch_size": batch_size, "workspace_limit_bytes": workspace_limit_bytes}
    return queued(issued_times(table, numbers, **how, known=known), table, numbers)


def queued(issued: Chosen, table: KernelTable, numbers: ProcessorNumbers) -> Chosen:
    """Share the dispatch that a queue exposes, if the host has one."""
    return run_ahead(table, issued.groups, numbers) if numbers.queued else issued


def issued_times(
    table: KernelTable,
    numbers: ProcessorNumbers,
    *,
    batch_size: Quantity,
    workspace_limit_bytes: float,
    known: dict[Any, Any] | None = None,
) -> Chosen:
    """Time and choose alternatives; the dispatch of a queue is not spread over groups yet."""

    def fastest() -> Chosen:
        chosen = _fastest(table, numbers, batch_size=batch_size, workspace_limit_bytes=workspace_limit_bytes)
        return _issued(table, chosen.groups, numbers) if numbers.queued else chosen

    if known is None:
        return fastest()
    key = (table.rows, id(numbers))
    if key not in known:
        known[key] = fastest(), numbers  # kept alive, so that their ids are not reused
    return known[key][0]  # type: ignore[no-any-return]


def _fastest(
    table: KernelTable, numbers: ProcessorNumbers, *, batch_size: Quantity, workspace_limit_bytes: float
) -> Chosen:
    """Choose the fastest alternative of each group."""
    batch_size = _one_per_configuration(batch_size, numbers)
    columns = columns_at(table, batch_size)
    rows = _times_of_rows(table, numbers, columns=columns)
    if rows[0].ndim == 1 and not is_symbolic(*rows):
        return _fastest_of_numbers(table, columns, rows=rows, workspace_limit_bytes=workspace_limit_bytes)
    *of_alternatives, duration = [_of_alternatives(table, values) for values in rows]
    first = table.choices[0]
    if len(table.choices) == 1:
        return GroupTimes(first, *(values[first] for values in of_alternatives))
    workspace = columns.workspace_bytes
    if is_symbolic(duration):
        eligible = where(exceeds(workspace, workspace_limit_bytes), np.inf, named(duration, "alternative"))
        return _open_choice(table, tuple(of_alternatives), eligible=named(eligible, "allowed alternative"))
    fitting = np.where(workspace <= workspace_limit_bytes, duration, np.inf)[table.choices]
    place = fitting.argmin(axis=0)
    group, *configuration = np.indices(place.shape, sparse=True)
    chosen = table.choices[place, group]
    return GroupTimes(chosen, *[values[chosen, *configuration] for values in of_alternatives])


def _of_alternatives(table: KernelTable, values: Any) -> Any:
    """Add up the values of the rows of each alternative."""
    (_, first), *more = table.summands
    summed = values.take(first, axis=0)
    for alternatives, rows in more:
        summed[alternatives] += values.take(rows, axis=0)
    return summed


def _fastest_of_numbers(
    table: KernelTable, columns: ColumnsAt, *, rows: tuple[Any, ...], workspace_limit_bytes: float
) -> ChosenRows:
    """Choose the fastest alternative of each group by plain numbers of one configuration."""
    *costs, duration_of_rows = rows
    if len(table.choices) == 1:
        place = np.zeros_like(table.choices[0])
    else:
        duration = np.add.reduceat(duration_of_rows.take(table.row_order), table.alternative_starts)
        fits = columns.workspace_bytes <= workspace_limit_bytes
        place = np.where(fits, duration, np.inf).take(table.choices_of_group).argmin(axis=1)
    return ChosenRows(table=table, columns=columns, costs=np.array(costs), place=place)


def step_time(
    table: KernelTable,
    numbers: ProcessorNumbers,
    *,
    batch_size: Quantity,
    workspace_limit_bytes: float,
    groups: Chosen | JoinedTimes | None = None,
    subnormal_s: Quantity = 0.0,
    scheduler_threads: int = 1,
    phase: Phase | None = None,
) -> StepTime:
    r"""Compose the time of one step on one device, or of one phase of it, from its kernels and their dispatch.

    .. math:: T = \sum_k \left[(t_k + \tau_\text{launch})^p + \tau_\text{dispatch}^p\right]^{1/p} + \tau_\text{step}

    Notes
    -----
    Valid for: one stream. p is the framework's ``overlap_exponent``; a CPU dispatches in line, p = 1. Subnormal numbers
    and the overhead of a step count with the forward phase. Ignores: how far the host runs ahead of the device over
    many kernels, and synchronisation inside a step.

    References
    ----------
    .. [1] Qi, Sparks, Talwalkar, Paleo: A performance model for deep neural networks, ICLR 2017 (serial form).
    """
    if groups is None:
        groups = chosen_times(table, numbers, batch_size=batch_size, workspace_limit_bytes=workspace_limit_bytes)
    weights = table.weights if phase is None else table.phase_weights(phase)
    begins = phase in (None, Phase.FORWARD)
    compute_s, memory_bound_s, update_s, launches, dispatch_s, exposed_s = groups.sums(weights)
    if scheduler_threads > 1:
        kernel_s = groups.groups.compute_s + groups.groups.memory_s
        together_s = concurrent_time(table, kernel_s, scheduler_threads=scheduler_threads)
        share = named(together_s / (table.multiplicity @ kernel_s), "share left by concurrency")
        compute_s, memory_bound_s, update_s = (part * share for part in (compute_s, memory_bound_s, update_s))
    compute_s = named(compute_s + subnormal_s if begins else compute_s, "compute_s")
    launch_s = named(launches * numbers.launch_s, "launch_s")
    overhead_s = numbers.step_overhead_s if begins else 0.0
    exposed_dispatch_s = named(exposed_s + overhead_s, "exposed dispatch of all")
    return StepTime(
        compute_s,
        named(memory_bound_s, "memory_bound_s"),
        launch_s + exposed_dispatch_s,
        named(update_s, "update_s"),
        dispatch_s=dispatch_s + overhead_s,
        launch_s=launch_s,
    )


def concurrent_time(table: KernelTable, group_s: Quantity, *, scheduler_threads: Quantity) -> Quantity:
    r"""Time of a step whose weight gradients and updates run beside the path through the layers.

    .. math:: T = \max\left( P, \; \max_l (p_l + w_l + u_l), \; \frac{1}{n} \sum_g t_g \right)

    P is the path forward through the layers and back by the gradients of their inputs, p_l the time at which it
    reaches the weight gradient of layer l on its way back, w_l and u_l its weight gradient and its update.

    Notes
    -----
    Valid for: operations that use one thread each. Ignores: that branches of a layer may run at the same time, and
    that threads share the memory bandwidth.

    References
    ----------
    .. [1] R. L. Graham, Bounds for certain multiprocessing anomalies, Bell System Technical Journal 45(9), 1966: a
       schedule ends no sooner than its longest path and its total work over the number of threads.
    """
    path: Quantity = 0.0
    beside: dict[str, Quantity] = {}
    for occurrence in table.occurrences:
        duration = group_s[occurrence.group]
        if occurrence.phase is Phase.UPDATE:
            beside[occurrence.layer] = beside.get(occurrence.layer, path) + duration
        elif occurrence.role is Role.WEIGHT_GRADIENT:
            beside[occurrence.layer] = maximum(beside.get(occurrence.layer, 0.0), path) + duration
        else:
            path = named(path + duration, "path")
    longest = path
    for end in beside.values():
        longest = maximum(longest, end)
    return maximum(longest, table.multiplicity @ group_s / scheduler_threads)
