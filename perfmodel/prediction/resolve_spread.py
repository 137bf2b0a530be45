"""How a network is spread over devices: what a caller asked for, held against what fits together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import ArgumentError
from perfmodel.parallelism import PARALLELISMS, Layout
from perfmodel.prediction.agreement_arguments import checked, collectives_of
from perfmodel.prediction.agreement_options import LIBRARY, PARAMETER_SERVER
from perfmodel.prediction.arguments import NO_SYNC
from perfmodel.prediction.asked import Asked
from perfmodel.prediction.messages import MERGED
from perfmodel.prediction.spread import SpreadAsked
from perfmodel.prediction.spread_arguments import SpreadArguments
from perfmodel.prediction.straggler import Straggler
from perfmodel.records import Phase
from perfmodel.sync.asynchronous import SCHEMES
from perfmodel.sync.collectives import ALL_REDUCES, collective

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.prediction.subject import Subject

RING: Final = "ring_all_reduce"
"""How groups add up where nothing else is said."""

GROUPED_BY: Final = {"model": "stages", "tensor": "tensor_size"}
"""Parallelism -> what says how many devices have a network together."""


def resolve_spread(
    arguments: SpreadArguments, agreed: Asked, *, subject: Subject, profile: FrameworkProfile
) -> SpreadAsked | None:
    """Return how a network is spread.

    Parameters
    ----------
    arguments : SpreadArguments
        What the caller says. [-]
    agreed : Asked
        How workers agree. [-]
    subject : Subject
        What runs. [-]
    profile : FrameworkProfile
        The framework, whose size of messages and library of collectives hold where the caller names none. [-]

    Returns
    -------
    SpreadAsked or None
        None where every worker has the whole network, and its mini-batch in one. [-]

    Raises
    ------
    ArgumentError
        If sizes contradict one another, the parallelism, or how workers agree.
    """
    if arguments.is_plain:
        return None
    layout = _layout(arguments)
    agreed = checked(agreed, worker_count=layout.data_size).in_buckets_of(profile)
    if agreed.bucket_bytes == MERGED:
        allowed = "bytes for a network that is spread: messages are merged for workers with the whole network each"
        raise ArgumentError("bucket_bytes", agreed.bucket_bytes, allowed)
    _refuse_contradiction(arguments.parallelism, layout, agreed, phase=subject.phase)
    all_reduce = agreed.sync if agreed.sync in (LIBRARY, *ALL_REDUCES) else None
    library = collectives_of(profile) if all_reduce == LIBRARY else None
    options: dict[str, Any] = {}
    if all_reduce in ALL_REDUCES:
        named = {"group_size": agreed.group_size, "server_count": agreed.server_count}
        options = {name: value for name, value in named.items() if name in collective(all_reduce).option_names}
    agrees = all_reduce is not None and layout.data_size > 1 and Phase.BACKWARD in subject.phase.parts
    straggler = agreed.straggler if agrees else None
    assert straggler is None or isinstance(straggler, Straggler)
    return SpreadAsked(
        parallelism=arguments.parallelism,
        layout=layout,
        agreed=agreed,
        all_reduce=RING if library is not None else all_reduce,
        library=library,
        options=options,
        straggler=straggler,
    )


def _refuse_contradiction(parallelism: str, layout: Layout, agreed: Asked, *, phase: Phase) -> None:
    """Raise where workers cannot agree so on parameters that they share, or do not train."""
    shared = layout.shard_stage
    if shared and agreed.sync == NO_SYNC:
        raise ArgumentError("shard_stage", shared, "0 with sync='none', as nobody tells what it has")
    if shared and agreed.sync in (PARAMETER_SERVER, *SCHEMES):
        allowed = (
            f"0 with sync={agreed.sync!r}: the server has what workers would share, and none has a part of its own"
        )
        raise ArgumentError("shard_stage", shared, allowed)
    if parallelism == "hybrid" and agreed.sync in SCHEMES:
        allowed = (
            f"one in which all wait for all, such as {RING}, with parallelism='hybrid': "
            "its workers share the dense layers, and meet in every step"
        )
        raise ArgumentError("sync", agreed.sync, allowed)
    if phase is Phase.FORWARD and shared in (1, 2):
        allowed = "0 or 3 with phase='forward', which has no optimizer state and no gradients to share"
        raise ArgumentError("shard_stage", shared, allowed)


def _layout(arguments: SpreadArguments) -> Layout:
    """Return the layout, held against the parallelism."""
    steps, kind = arguments.accumulation_steps, PARALLELISMS[arguments.parallelism]
    if steps > 1 and (arguments.micro_batches > 1 or arguments.stages > 1):
        allowed = "1 with stages or micro_batches, whose gradients accumulate anyway"
        raise ArgumentError("accumulation_steps", steps, allowed)
    if steps > 1 and "micro_batches" not in kind.uses:
        raise ArgumentError("accumulation_steps", steps, f"1 with parallelism={arguments.parallelism!r}")
    if arguments.schedule != SpreadArguments.schedule and arguments.parallelism != "pipeline":
        allowed = f"{SpreadArguments.schedule!r} but for parallelism='pipeline'"
        raise ArgumentError("schedule", arguments.schedule, allowed)
    sizing = GROUPED_BY.get(arguments.parallelism)
    if sizing is not None and getattr(arguments, sizing) == 1 and arguments.workers > 1:
        allowed = f"at least 2 with parallelism={arguments.parallelism!r}: workers= are copies of the network"
        raise ArgumentError(sizing, 1, allowed)
    layout = Layout(
        workers=arguments.device_count,
        stages=arguments.stages,
        tensor_size=arguments.tensor_size,
        sequence_parallel=arguments.sequence_parallel,
        micro_batches=max(arguments.micro_batches, steps),
        schedule=arguments.schedule,
        interleave=arguments.interleave,
        shard_stage=arguments.shard_stage,
    )
    return kind.resolved(layout)
