"""Strategies of agreement: their names, the arguments each takes, and the agreement a job asks for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import ArgumentError
from perfmodel.prediction.arguments.checks import NO_SYNC
from perfmodel.prediction.arguments.table import ARGUMENTS
from perfmodel.records import Phase
from perfmodel.sync.asynchronous import SCHEMES
from perfmodel.sync.registry import ALL_REDUCES
from perfmodel.units import MIB

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.parallelism.base import Placement
    from perfmodel.prediction.device.system_part import SystemPart
    from perfmodel.prediction.job.agreement import Agreement
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.job.subject import Subject


PARAMETER_SERVER: Final = "parameter_server"
LIBRARY: Final = "all_reduce"
"""Value of ``sync`` that leaves the choice at each size to the framework's library of collectives."""

WAITING: Final = (LIBRARY, *ALL_REDUCES)
"""Strategies in which all workers wait for each other in every step."""

ALL_SHARED: Final = 3
"""Stage of sharing at which workers share parameters too, and so gather them in every phase. [1]"""

WITH_SERVER: Final = (PARAMETER_SERVER, *SCHEMES)
"""Strategies that exchange even with one worker, because a server holds its parameters."""

FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "waiting": WAITING,
    "server": WITH_SERVER,
    "asynchronous": tuple(SCHEMES),
}
"""Family of strategies, as in ``Argument.takers`` -> its members."""

TAKEN_BY: Final[Mapping[str, tuple[str, ...]]] = {
    row.name: tuple(name for taker in row.takers for name in FAMILIES.get(taker, (taker,)))
    for row in ARGUMENTS.values()
    if row.takers
}
"""Argument -> strategies that take it; it has no effect on others."""


def sync_names() -> tuple[str, ...]:
    """Every value of ``sync``."""
    return (NO_SYNC, *WAITING, *SCHEMES)


def taken(options: Mapping[str, Any], sync: str) -> dict[str, Any]:
    """Keep the arguments that a strategy takes, or that suit every strategy.

    Examples
    --------
    >>> taken({"push_period": 4, "overlap": False, "dtype": "fp16"}, "downpour")
    {'push_period': 4, 'dtype': 'fp16'}
    """
    return {name: value for name, value in options.items() if sync in TAKEN_BY.get(name, (sync,))}


def refuse_unused(options: Mapping[str, Any], syncs: Collection[str], *, worker_count: int) -> None:
    """Raise if an argument has no effect on any of some strategies."""
    if worker_count == 1:
        return
    for name, value in options.items():
        takers = TAKEN_BY.get(name)
        if takers is None or set(syncs) & set(takers):
            continue
        default = ARGUMENTS[name].default
        if value != default:
            *others, last = takers
            named = f"one of {', '.join(others)} or {last}" if len(others) > 1 else " or ".join(takers)
            raise ArgumentError(name, value, f"{default!r} unless sync is {named}")


def resolve_agreement(
    asked: Job,
    *,
    system_part: SystemPart | None,
    subject: Subject,
    profile: FrameworkProfile,
    dtype: str,
    placement: Placement | None = None,
) -> Agreement | None:
    """Make the agreement that a job asks for."""
    _check_speeds(asked, system_part, subject)
    gathers = asked.shard_stage == ALL_SHARED  # parameters, in inference too
    if asked.sync == NO_SYNC or system_part is None or not (gathers or Phase.BACKWARD in subject.phase.parts):
        return None
    from perfmodel.prediction.job.agreements import agreement_of

    return agreement_of(
        asked, system_part=system_part, subject=subject, profile=profile, dtype=dtype, placement=placement
    )


def with_habits_of(profile: FrameworkProfile, job: Job) -> Job:
    """Fill in the framework's message size if the job states none."""
    if job.bucket_bytes is not None or profile.exchange.bucket_mib is None:
        return job
    return job.resolved(bucket_bytes=profile.exchange.bucket_mib * MIB)


def _check_speeds(asked: Job, system_part: SystemPart | None, subject: Subject) -> None:
    """Raise if workers of unequal speed do not agree, since each would have its own step time."""
    straggler = asked.straggler
    if straggler is None or straggler.times.lasting_count is None:
        return
    alone = system_part is None or (asked.workers == 1 and asked.sync not in SCHEMES)
    apart = alone or asked.sync == NO_SYNC or Phase.BACKWARD not in subject.phase.parts
    if apart and straggler != straggler.as_predicted:
        allowed = "None, or times that vary between steps, if workers do not agree (else their steps would differ)"
        raise ArgumentError("straggler", {"distribution": straggler.times.name}, allowed)
