"""The agreement of workers that the arguments of a prediction ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from perfmodel.cost.delay_compensation import extra_service_time
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.hardware.collective_library import CollectiveLibrary, load_collective_library
from perfmodel.prediction.agreement import Agreement
from perfmodel.prediction.agreement_options import LIBRARY, PARAMETER_SERVER, refuse_unused
from perfmodel.prediction.arguments import NO_SYNC, flag, whole_number
from perfmodel.prediction.asked import Asked
from perfmodel.prediction.asynchronous_agreement import Asynchronous
from perfmodel.prediction.messages import MERGED
from perfmodel.prediction.parameter_server import (
    memory_bytes_per_s,
    served_s_per_byte,
    server_memories,
    server_memory,
    update_passes,
)
from perfmodel.prediction.server_visit import visit_of
from perfmodel.prediction.straggler import Straggler, straggler_of
from perfmodel.prediction.synchronous_agreement import AllReduced, ThroughServer
from perfmodel.records import ELEMENT_BYTES, Phase
from perfmodel.sync.asynchronous import SCHEMES, scheme_of
from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers
from perfmodel.sync.collectives import ALL_REDUCES, collective
from perfmodel.sync.library import place_library
from perfmodel.sync.placed import place
from perfmodel.sync.placed_once import placed_once

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.prediction.machine import Machine
    from perfmodel.prediction.subject import Subject

WITH_SERVER: Final = (PARAMETER_SERVER, *SCHEMES)
"""Strategies in which one worker alone exchanges too, as its parameters lie with a server."""


def sync_names() -> tuple[str, ...]:
    """Return every value of ``sync``."""
    return (NO_SYNC, LIBRARY, *ALL_REDUCES, *SCHEMES)


def resolve_agreement(
    asked: Asked, *, machine: Machine | None, subject: Subject, profile: FrameworkProfile, dtype: str
) -> Agreement | None:
    """Return how the workers of a job agree.

    Parameters
    ----------
    asked : Asked
        What the caller says. [-]
    machine : Machine or None
        The workers' devices in a system; None for one device. [-]
    subject : Subject
        What is trained. [-]
    profile : FrameworkProfile
        The framework, whose habits of exchange hold where the caller says nothing. [-]
    dtype : str
        Data type of gradients. [-]

    Returns
    -------
    Agreement or None
        None where workers have nothing to agree on: without training, or with ``none``.

    Raises
    ------
    ArgumentError
        If a value is not allowed, or the system has no way between two of the devices.
    UnknownNameError
        If there is no such strategy; names the nearest.
    """
    asked = checked(asked, worker_count=1 if machine is None else machine.worker_count)
    _check_speeds(asked, machine, subject)
    if asked.sync == NO_SYNC or machine is None or Phase.BACKWARD not in subject.phase.parts:
        return None
    if machine.worker_count == 1 and asked.sync not in WITH_SERVER:
        return None
    asked = asked.in_buckets_of(profile)
    how = AGREEMENT_OF.get(asked.sync, _all_reduced)
    return how(asked, machine, subject, profile, ELEMENT_BYTES[dtype])


def checked(asked: Asked, *, worker_count: int) -> Asked:
    """Return the same with every number checked.

    Parameters
    ----------
    asked : Asked
        What the caller says. [-]
    worker_count : int
        Workers. [1]

    Returns
    -------
    Asked
        With a straggler made of its mapping. [-]

    Raises
    ------
    ArgumentError
        If a value is not allowed.
    UnknownNameError
        If there is no such strategy; names the nearest.
    """
    if asked.sync not in sync_names():
        kind = "sync"
        raise UnknownNameError(kind, str(asked.sync), sync_names())
    flag("overlap", asked.overlap)
    for name in ("server_count", "push_period", "pull_period"):
        whole_number(name, getattr(asked, name))
    bound = asked.staleness_bound
    if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int) or bound < 0):
        raise ArgumentError("staleness_bound", bound, "a whole number >= 0 of steps, or None")
    size = asked.bucket_bytes
    if size not in (None, MERGED) and (isinstance(size, bool) or not isinstance(size, int | float) or not size >= 0):
        allowed = f"bytes from 0 (every layer by itself) to infinity (one message), or {MERGED!r} for the shortest step"
        raise ArgumentError("bucket_bytes", size, allowed)
    if asked.group_size is not None:
        whole_number("group_size", asked.group_size)
    refuse_unused(vars(asked), (asked.sync,), worker_count=worker_count)
    if asked.group_size is not None and worker_count % asked.group_size:
        raise ArgumentError("group_size", asked.group_size, f"a divisor of the {worker_count} workers")
    straggler = None if asked.straggler is None else straggler_of(asked.straggler, backup_workers=asked.backup_workers)
    if straggler is None and asked.backup_workers:
        raise ArgumentError("backup_workers", asked.backup_workers, "0 without straggler=, as all workers end together")
    if straggler is not None:
        straggler.check_workers(worker_count)
        straggler.check_backups(worker_count)
    return asked if straggler is asked.straggler else replace(asked, straggler=straggler)


def _check_speeds(asked: Asked, machine: Machine | None, subject: Subject) -> None:
    """Refuse workers of unequal speed where they do not agree, since each then has a step of its own."""
    straggler = asked.straggler
    if not isinstance(straggler, Straggler) or straggler.times.lasting_count is None:
        return
    alone = machine is None or (machine.worker_count == 1 and asked.sync not in SCHEMES)
    apart = alone or asked.sync == NO_SYNC or Phase.BACKWARD not in subject.phase.parts
    if apart and straggler != straggler.as_predicted:
        allowed = "None, or times that vary, for workers that do not agree: with unequal ones each has its own step"
        raise ArgumentError("straggler", {"distribution": straggler.times.name}, allowed)
