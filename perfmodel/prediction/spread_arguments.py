"""How the arguments of a prediction spread a network over devices and micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import ArgumentError
from perfmodel.prediction.arguments import flag, is_left_out, one_of, whole_number

if TYPE_CHECKING:
    from perfmodel.hardware.wired import Wired

COUNTS: Final = ("stages", "micro_batches", "interleave", "tensor_size", "accumulation_steps")
"""Arguments that are at least one. [1]"""


@dataclass(frozen=True, kw_only=True)
class SpreadArguments:
    """What a caller says of parallel execution; see ``predict``.

    Parameters
    ----------
    workers : int
        Data-parallel workers. [1]
    parallelism, schedule : str
        Kind, and order of work of a pipeline. [-]
    stages, micro_batches, interleave, tensor_size, shard_stage, accumulation_steps : int
        Sizes. [1]
    sequence_parallel : bool
        Whether what lies between shared layers is shared too. [-]
    """

    workers: int
    parallelism: str = "data"
    stages: int = 1
    micro_batches: int = 1
    schedule: str = "1f1b"
    interleave: int = 1
    tensor_size: int = 1
    sequence_parallel: bool = False
    shard_stage: int = 0
    accumulation_steps: int = 1

    @cached_property
    def is_plain(self) -> bool:
        """Whether every worker has the whole network, and its mini-batch in one."""
        return all(getattr(self, name) == default for name, default in _LEFT_OUT.items())

    @property
    def device_count(self) -> int:
        """Devices that work. [1]"""
        return self.workers * self.stages * self.tensor_size


_LEFT_OUT: Final = {each.name: each.default for each in fields(SpreadArguments) if each.name != "workers"}
"""What arguments are that nobody gave."""


def spread_arguments(**given: Any) -> SpreadArguments:
    """Return what a caller says of parallel execution, every value checked by itself.

    Parameters
    ----------
    **given : object
        Fields of ``SpreadArguments``. [-]

    Returns
    -------
    SpreadArguments
        Whole numbers are ints. [-]

    Raises
    ------
    ArgumentError
        If a value is not allowed.
    UnknownNameError
        If there is no such parallelism or schedule; names the nearest.
    """
    if is_left_out(given, _LEFT_OUT):
        return _plain(whole_number("workers", given["workers"]))

    # what most predictions have no use for
    from perfmodel.cost.pipeline_order import SCHEDULES
    from perfmodel.parallelism import PARALLELISMS

    counts = {name: whole_number(name, given[name]) for name in ("workers", *COUNTS)}
    return SpreadArguments(
        **counts,
        parallelism=one_of("parallelism", given["parallelism"], tuple(PARALLELISMS)),
        schedule=one_of("schedule", given["schedule"], tuple(SCHEDULES)),
        sequence_parallel=flag("sequence_parallel", given["sequence_parallel"]),
        shard_stage=whole_number("shard_stage", given["shard_stage"], minimum=0, maximum=3),
    )


@lru_cache(maxsize=64)
def _plain(workers: int) -> SpreadArguments:
    return SpreadArguments(workers=workers)


def refuse_missing_devices(arguments: SpreadArguments, system: Wired | None) -> None:
    """Raise if there are fewer devices than are wanted.

    Parameters
    ----------
    arguments : SpreadArguments
        What is wanted. [-]
    system : System, Cluster or None
        What there is; None for one device. [-]

    Raises
    ------
    ArgumentError
        Naming what there is.
    """
    if arguments.is_plain:
        return
    known = 1 if system is None or not system.devices else len(system.devices)
    if arguments.device_count > known:
        wanted = f"{arguments.workers} x {arguments.stages} x {arguments.tensor_size} = {arguments.device_count}"
        there = "1 with device=; several need system=" if system is None else f"at most {known}, as {system.name} has"
        argument = "workers x stages x tensor_size"
        raise ArgumentError(argument, wanted, there)
