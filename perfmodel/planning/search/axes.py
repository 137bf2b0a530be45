"""What a search varies: the table of its axes. A further axis is one row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.numeric import divisors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the usual values of axes depend on.

    Parameters
    ----------
    devices : int
        Most devices of a layout. [1]
    machine_devices : int
        Devices of one machine. [1]
    block_count : int
        Blocks of the network, which stages are made of. [1]
    global_batch_size : int
        Samples per step. [samples]
    trains : bool
        Whether a step has a backward phase. [-]
    narrow_dtype : str
        The narrowest type of 16 bits or more in which the devices train. [-]
    """

    devices: int
    machine_devices: int
    block_count: int
    global_batch_size: int
    trains: bool
    narrow_dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAxis:
    """One thing that layouts differ in.

    Parameters
    ----------
    name : str
        An argument of ``predict``, ``devices`` or ``micro_batch_size``. [-]
    usual : callable
        Values that are tried unless the caller names some. [-]
    allows : callable or None
        Which layouts can be, given the columns of this axis and all before it. [-]
    divides_devices : bool
        Whether so many devices share one copy of the network. [-]
    """

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


def _sharing(columns: Columns) -> NDArray[np.bool_]:
    shared, workers = columns["shard_stage"], columns["workers"]
    # a pipeline would gather the parameters again for every micro-batch
    can_be: NDArray[np.bool_] = (shared < 3) | (columns["stages"] == 1)
    return can_be & _only_first_unless(columns, "shard_stage", workers > 1)


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
    # one stage adds up over passes alone, however many there are
    is_one = columns["stages"] == 1
    can_be: NDArray[np.bool_] = (parts % passes == 0) & in_groups
    return can_be & _only_first_unless(columns, "accumulation_steps", ~is_one)


AXES: Final = (
    SearchAxis(name="devices", usual=lambda at: (at.devices,)),
    SearchAxis(name="dtype", usual=lambda at: (at.narrow_dtype,)),
    SearchAxis(
        name="tensor_size", divides_devices=True,
        usual=lambda at: _powers_of_two(min(at.devices, at.machine_devices)),
    ),
    SearchAxis(name="sequence_parallel", usual=lambda _: (True,), allows=_sequence_of_groups),
    SearchAxis(
        name="stages", divides_devices=True, usual=lambda at: divisors(at.devices, most=max(1, at.block_count // 2)),
    ),
    SearchAxis(name="shard_stage", usual=lambda at: (0, 1, 2, 3) if at.trains else (0, 3), allows=_sharing),
    SearchAxis(name="recompute", usual=lambda at: (None, "full") if at.trains else (None,)),
    SearchAxis(name="schedule", usual=lambda _: ("1f1b", "gpipe", "interleaved"), allows=_schedules),
    SearchAxis(name="interleave", usual=lambda _: (1, 2, 4), allows=_interleaving),
    SearchAxis(
        name="micro_batch_size", allows=_micro_batches,
        usual=lambda at: divisors(at.global_batch_size, most=at.global_batch_size),
    ),
    SearchAxis(name="accumulation_steps", usual=lambda _: (1, 2, 4, 8), allows=_passes),
)  # fmt: skip
"""Axes of a search, in the order in which layouts are made."""

NAMES: Final = tuple(axis.name for axis in AXES)
"""Names of the axes."""

FOLLOWING: Final = ("workers", "micro_batches")
"""Arguments of ``predict`` that follow from the axes; a caller may limit or fix them."""
