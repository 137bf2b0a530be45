"""Single changes to a job, one function for each kind; ``CHANGES`` lists them.

A function takes the situation and yields changes to ``predict``'s arguments; if it does not apply to a job, it raises
with the reason. A new change of one argument is a `tries` entry in its row of
the table of arguments; any other is a function and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from perfmodel.planning.changes import architectures, arguments, layouts, machines
from perfmodel.planning.changes.arguments import Change, NotApplicableError, Situation
from perfmodel.prediction.arguments.table import ARGUMENTS

__all__ = ["ARCHITECTURE_CHANGES", "CHANGES", "Change", "NotApplicableError", "Situation"]

CHANGES: Final[Mapping[str, Callable[[Situation], Iterator[Change]]]] = {
    "batch_size": arguments.batch_size,
    "prefetch": machines.prefetch,
    "pinned": machines.pinned,
    "decode_cores": machines.decode_cores,
    "storage": machines.storage,
    "raid": machines.raid,
    "host_link": machines.host_link,
    "own_lanes": machines.own_lanes,
    "peer_link": machines.peer_link,
    "network": machines.network,
    "device": machines.device,
    "workers": machines.workers,
    "threads": machines.threads,
    "sync": arguments.sync,
    **{name: arguments.of_one_argument(name) for name, row in ARGUMENTS.items() if row.tries is not None},
    "periods": arguments.periods,
    "dtype": arguments.dtype,
    "framework": arguments.framework,
    "library": arguments.library,
    "recompute": arguments.recompute,
    "accumulation_steps": arguments.accumulation_steps,
    "stages": arguments.stages,
    "tensor_size": arguments.tensor_size,
    "micro_batches": arguments.micro_batches,
    "schedule": arguments.schedule,
    "sequence_parallel": arguments.sequence_parallel,
    "shard_stage": arguments.shard_stage,
    "layout": layouts.layout,
}
"""Kind -> the function that yields changes of that kind, for the same network: what is tried unless kinds are named."""

ARCHITECTURE_CHANGES: Final[Mapping[str, Callable[[Situation], Iterator[Change]]]] = {
    "architecture": architectures.architecture
}
"""Kind -> the function that yields other networks: tried only where named, as another network learns otherwise."""
