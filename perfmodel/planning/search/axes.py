"""What a search varies: the table of its axes. A further axis is one row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.graph.execution import SELECTIVE
from perfmodel.numeric import divisors
from perfmodel.parallelism.base import CONTEXT_METHODS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Facts of the job on which the usual values of axes depend."""

    devices: int
    machine_devices: int
    block_count: int
    global_batch_size: int
    trains: bool
    narrow_dtype: str
    positions: int | None = None
    adds_up_copies: bool = False
    materialised: bool = False
    sums_once: bool = False
    divides_sequences: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAxis:
    """One argument in which layouts differ: its usual values, and a test of those allowed with earlier axes."""

    name: str
    usual: Callable[[Setting], Sequence[Any]]
    allows: Callable[[Columns], NDArray[np.bool_]] | None = None
    divides_devices: bool = False


def _powers_of_two(most: int) -> tuple[int, ...]:
    return tuple(1 << power for power in range(most.bit_length()))


def _only_first_unless(columns: Columns, name: str, applies: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Keep one value of an axis where it makes no difference."""
    values = columns[name]
    kept: NDArray[np.bool_] = applies | (values == values[0])
    return kept


def _sequence_of_groups(columns: Columns) -> NDArray[np.bool_]:
    return _only_first_unless(columns, "sequence_parallel", columns["tensor_size"] > 1)


def _context_sizes(at: Setting) -> Sequence[int]:
    """Return sizes of groups that leave each device at least ``LEAST_POSITIONS`` of a sequence."""
    return _powers_of_two(min(at.devices, max(1, (at.positions or 0) // LEAST_POSITIONS)))


def _ways_to_share(columns: Columns) -> NDArray[np.bool_]:
    can_be: NDArray[np.bool_] = (columns["context_size"] > 1) | (columns["context_method"] == "ring")
    return can_be


def _sharing(columns: Columns) -> NDArray[np.bool_]:
    shared, copies = columns["shard_stage"], columns["workers"] * columns["context_size"]
    # a pipeline would gather the parameters again for every micro-batch, which no trainer does by default
    can_be: NDArray[np.bool_] = (shared < 3) | (columns["stages"] == 1)
    return can_be & _only_first_unless(columns, "shard_stage", copies > 1)


def _groups(at: Setting) -> Sequence[int | None]:
    is_wide = at.adds_up_copies and at.devices > MOST_SHARING_MACHINES * at.machine_devices
    return (None, at.machine_devices) if is_wide else (None,)


def _sharing_groups(columns: Columns) -> NDArray[np.bool_]:
    """Keep groups that are smaller than all workers; None stands for all."""
    copies = columns["workers"] * columns["context_size"]
    has_all = np.array([group is None for group in columns["shard_group"]])
    size = np.where(has_all, 1, columns["shard_group"]).astype(np.int64)
    is_part = (columns["shard_stage"] > 0) & (size < copies) & (copies % size == 0)
    can_be: NDArray[np.bool_] = has_all | is_part
    return can_be


def _cuts(columns: Columns) -> NDArray[np.bool_]:
    cut, stages = columns["stage_cut"], columns["stages"]
    divides = (cut != "even_blocks") | (columns["block_count"] % stages == 0)
    can_be: NDArray[np.bool_] = ((stages > 1) & divides) | (cut == "balanced")
    return can_be


def _schedules(columns: Columns) -> NDArray[np.bool_]:
    return _only_first_unless(columns, "schedule", columns["stages"] > 1)


def _interleaving(columns: Columns) -> NDArray[np.bool_]:
    count, stages = columns["interleave"], columns["stages"]
    is_interleaved = (columns["schedule"] == "interleaved") & (stages > 1)
    can_be: NDArray[np.bool_] = np.where(
        is_interleaved, (count > 1) & (count * stages <= columns["block_count"]), count == 1
    )
    return can_be


def _micro_batches(columns: Columns) -> NDArray[np.bool_]:
    return np.asarray(columns["batch_size"] % columns["micro_batch_size"] == 0)


def _passes(columns: Columns) -> NDArray[np.bool_]:
    parts = columns["batch_size"] // columns["micro_batch_size"]
    passes = columns["accumulation_steps"]
    in_groups = (columns["interleave"] == 1) | (parts // passes % columns["stages"] == 0)
    # with one stage the number of passes makes no difference
    is_one = columns["stages"] == 1
    can_be: NDArray[np.bool_] = (parts % passes == 0) & in_groups
    return can_be & _only_first_unless(columns, "accumulation_steps", ~is_one)


def _recomputation(at: Setting) -> Sequence[Any]:
    if not at.trains:
        return (None,)
    return (None, SELECTIVE, "full") if at.materialised else (None, "full")


def _whole_gradients(columns: Columns) -> NDArray[np.bool_]:
    """Keep ``no_sync`` for several micro-batches with shard stage 3, or in pipelines that always sum once.

    Elsewhere shard stage 2 with ``no_sync`` is the same as stage 1.
    """
    copies, parts = columns["workers"] * columns["context_size"], columns["batch_size"] // columns["micro_batch_size"]
    is_open = (copies > 1) & (parts > 1)
    in_pipelines = is_open & (columns["shard_stage"] == 2) & (columns["stages"] > 1) & columns["sums_once"]
    can_be = _only_first_unless(columns, "no_sync", is_open & (columns["shard_stage"] == 3) | in_pipelines)
    if not columns["no_sync"].any():
        return can_be
    kept: NDArray[np.bool_] = can_be & (columns["no_sync"].astype(bool) | ~in_pipelines)
    return kept


LEAST_POSITIONS: Final = 8192
"""Positions of a device below which sequences are not shared unless the caller says so. [1]"""

MOST_SHARING_MACHINES: Final = 16
"""Machines up to which all workers share state; among more, those of one machine alone are tried too. [1]"""

AXES: Final = (
    SearchAxis(name="devices", usual=lambda at: (at.devices,)),
    SearchAxis(name="dtype", usual=lambda at: (at.narrow_dtype,)),
    SearchAxis(
        name="tensor_size", divides_devices=True,
        usual=lambda at: _powers_of_two(min(at.devices, at.machine_devices)),
    ),
    SearchAxis(name="sequence_parallel", usual=lambda at: (at.divides_sequences,), allows=_sequence_of_groups),
    SearchAxis(name="context_size", divides_devices=True, usual=_context_sizes),
    SearchAxis(name="context_method", usual=lambda _: CONTEXT_METHODS, allows=_ways_to_share),
    SearchAxis(
        name="stages", divides_devices=True, usual=lambda at: divisors(at.devices, most=max(1, at.block_count // 2)),
    ),
    SearchAxis(name="stage_cut", usual=lambda _: ("balanced",), allows=_cuts),
    SearchAxis(name="shard_stage", usual=lambda at: (0, 1, 2, 3) if at.trains else (0, 3), allows=_sharing),
    SearchAxis(name="shard_group", usual=_groups, allows=_sharing_groups),
    SearchAxis(name="recompute", usual=_recomputation),
    SearchAxis(name="schedule", usual=lambda _: ("1f1b", "gpipe", "interleaved"), allows=_schedules),
    SearchAxis(name="interleave", usual=lambda _: (1, 2, 4), allows=_interleaving),
    SearchAxis(
        name="micro_batch_size", allows=_micro_batches,
        usual=lambda at: divisors(at.global_batch_size, most=at.global_batch_size),
    ),
    SearchAxis(name="accumulation_steps", usual=lambda _: (1, 2, 4, 8), allows=_passes),
    SearchAxis(name="no_sync", usual=lambda _: (False, True), allows=_whole_gradients),
)  # fmt: skip
"""Axes of a search, in the order in which layouts are made."""

NAMES: Final = tuple(axis.name for axis in AXES)
"""Names of the axes."""

FOLLOWING: Final = ("workers", "micro_batches")
"""Arguments of ``predict`` that follow from the axes; a caller may limit or fix them."""
