"""Single changes of a job, one function for each kind; ``CHANGES`` is the list of them.

A function takes the situation and yields changes of ``predict``'s arguments; where it says nothing to a job it raises
with the reason. A new change of one argument is `tries` in its row of
the table of arguments, any other a function and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from perfmodel.planning.changes import agreeing, feeding, machines, sizes, software, spreading
from perfmodel.planning.changes.situation import Change, NotApplicableError, Situation
from perfmodel.prediction.arguments.table import ARGUMENTS

__all__ = ["CHANGES", "Change", "NotApplicableError", "Situation"]

CHANGES: Final[Mapping[str, Callable[[Situation], Iterator[Change]]]] = {
    "batch_size": sizes.batch_size,
    "prefetch": feeding.prefetch,
    "pinned": feeding.pinned,
    "decode_cores": feeding.decode_cores,
    "storage": feeding.storage,
    "raid": feeding.raid,
    "host_link": machines.host_link,
    "own_lanes": machines.own_lanes,
    "peer_link": machines.peer_link,
    "network": machines.network,
    "device": machines.device,
    "workers": machines.workers,
    "threads": machines.threads,
    "sync": agreeing.sync,
    **{name: agreeing.of_one_argument(name) for name, row in ARGUMENTS.items() if row.tries is not None},
    "periods": agreeing.periods,
    "dtype": software.dtype,
    "framework": software.framework,
    "library": software.library,
    "recompute": sizes.recompute,
    "accumulation_steps": sizes.accumulation_steps,
    "stages": spreading.stages,
    "tensor_size": spreading.tensor_size,
    "micro_batches": sizes.micro_batches,
    "schedule": sizes.schedule,
    "sequence_parallel": sizes.sequence_parallel,
    "shard_stage": sizes.shard_stage,
}
"""Kind -> what yields the changes of that kind."""
