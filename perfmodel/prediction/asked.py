"""What the arguments of a prediction say of several workers; one worker alone has nobody to agree with.

What resolves them loads only for several: strategies, schedules and topologies are half of the library.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from perfmodel.prediction.arguments import is_left_out
from perfmodel.units import MIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.prediction.agreement import Agreement
    from perfmodel.prediction.spread import SpreadAsked
    from perfmodel.prediction.spread_arguments import SpreadArguments
    from perfmodel.prediction.straggler import Straggler
    from perfmodel.prediction.subject import Subject
    from perfmodel.prediction.target import Target


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a caller says of how workers agree; see ``predict``.

    Parameters
    ----------
    sync : str
        Strategy. [-]
    overlap : bool
        Whether gradients are exchanged during back-propagation. [-]
    bucket_bytes : float, str or None
        Size of a message, or ``merged``; None for what the framework does. [B]
    server_count : int
        Shards of a parameter server. [1]
    group_size : int or None
        Workers of a group. [1]
    staleness_bound : int or None
        Steps that a worker may be ahead. [1]
    push_period, pull_period : int
        Steps between two visits of a server. [1]
    straggler : mapping or None
        Distribution of workers' times. [-]
    backup_workers : int
        Workers that nobody waits for. [1]
    """

    sync: str = "ring_all_reduce"
    overlap: bool = True
    bucket_bytes: float | str | None = None
    server_count: int = 1
    group_size: int | None = None
    staleness_bound: int | None = None
    push_period: int = 1
    pull_period: int = 1
    straggler: Mapping[str, Any] | Straggler | None = None
    backup_workers: int = 0

    def in_buckets_of(self, profile: FrameworkProfile) -> Asked:
        """Return the same with a framework's size of messages, where the caller gives none."""
        if self.bucket_bytes is not None or profile.exchange.bucket_mib is None:
            return self
        return replace(self, bucket_bytes=profile.exchange.bucket_mib * MIB)


_LEFT_OUT: Final = {each.name: each.default for each in fields(Asked)}
"""What arguments are that nobody gave."""


def resolve_workers(
    agreed: Mapping[str, Any],
    spread: SpreadArguments,
    *,
    target: Target,
    subject: Subject,
    profile: FrameworkProfile,
    dtype: str,
) -> tuple[SpreadAsked | None, Agreement | None]:
    """Return how a network is spread over devices, and how workers that each have the whole of it agree.

    Parameters
    ----------
    agreed : mapping of str to object
        What the caller says of how workers agree: fields of ``Asked``. [-]
    spread : SpreadArguments
        What the caller says of parallel execution. [-]
    target : Target
        The workers' devices. [-]
    subject : Subject
        What runs. [-]
    profile : FrameworkProfile
        The framework, whose habits of exchange hold where the caller says nothing. [-]
    dtype : str
        Data type of gradients. [-]

    Returns
    -------
    tuple of SpreadAsked or None, and Agreement or None
        At most one of them. [-]

    Raises
    ------
    ArgumentError
        If a value is not allowed, or sizes contradict one another.
    UnknownNameError
        If there is no such strategy; names the nearest.
    """
    if spread.workers == 1 and spread.is_plain and is_left_out(agreed, _LEFT_OUT):
        return None, None
    from perfmodel.prediction.agreement_arguments import resolve_agreement
    from perfmodel.prediction.resolve_spread import resolve_spread

    said = Asked(**agreed)
    asked = resolve_spread(spread, said, subject=subject, profile=profile)
    if asked is not None:
        return asked, None
    return None, resolve_agreement(said, machine=target.machine, subject=subject, profile=profile, dtype=dtype)
