"""Strategies of agreement: their names, and the arguments that each takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import ArgumentError
from perfmodel.prediction.arguments.checks import NO_SYNC
from perfmodel.prediction.arguments.table import ARGUMENTS
from perfmodel.sync.asynchronous import SCHEMES
from perfmodel.sync.registry import ALL_REDUCES
from perfmodel.units import MIB

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.prediction.job.job import Job


PARAMETER_SERVER: Final = "parameter_server"
LIBRARY: Final = "all_reduce"
"""Value of ``sync`` for the framework's library of collectives, which chooses an algorithm for each size."""

WAITING: Final = (LIBRARY, *ALL_REDUCES)
"""Strategies in which all workers wait for each other in every step."""

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
"""Argument -> strategies that it applies to."""


def sync_names() -> tuple[str, ...]:
    """Every value of ``sync``."""
    return (NO_SYNC, *WAITING, *SCHEMES)


def taken(options: Mapping[str, Any], sync: str) -> dict[str, Any]:
    """Keep the arguments that a strategy takes, or that suit every strategy."""
    return {name: value for name, value in options.items() if sync in TAKEN_BY.get(name, (sync,))}


def refuse_unused(options: Mapping[str, Any], syncs: Collection[str]) -> None:
    """Raise if an argument is given that none of these strategies takes, even for one worker that exchanges nothing."""
    for name, value in options.items():
        takers = TAKEN_BY.get(name)
        if takers is None or set(syncs) & set(takers):
            continue
        default = ARGUMENTS[name].default
        if value != default:
            *others, last = takers
            named = f"one of {', '.join(others)} or {last}" if len(others) > 1 else " or ".join(takers)
            raise ArgumentError(name, value, f"{default!r} unless sync is {named}")


UNITS: Final = "units"
"""In place of the size of a message: one message for the gradients of each unit. [-]"""


def with_habits_of(profile: FrameworkProfile, job: Job) -> Job:
    """Turn ``overlap`` off if the framework exchanges gradients only after the backward phase."""
    habits: dict[str, Any] = {}
    if profile.exchange.gradients == "afterwards" and job.overlap:
        habits["overlap"] = False
    return job.resolved(**habits) if habits else job


def message_bytes_of(profile: FrameworkProfile, job: Job) -> float | str:
    """Return the least size of a message of gradients [B], or ``UNITS`` for one message per unit."""
    if job.bucket_bytes is not None:
        return job.bucket_bytes
    if job.shard_stage > 1:  # units are gathered, freed and scattered as one
        return UNITS
    return 0.0 if profile.exchange.bucket_mib is None else profile.exchange.bucket_mib * MIB
