"""The agreement of workers that a job asks for, and what hardware and phase have to say to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.errors import ArgumentError
from perfmodel.prediction.arguments import NO_SYNC
from perfmodel.records import Phase
from perfmodel.sync.asynchronous import SCHEMES
from perfmodel.units import MIB

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.parallelism import Placement
    from perfmodel.prediction.agreement import Agreement
    from perfmodel.prediction.job import Job
    from perfmodel.prediction.machine import Machine
    from perfmodel.prediction.subject import Subject


def resolve_agreement(
    asked: Job,
    *,
    machine: Machine | None,
    subject: Subject,
    profile: FrameworkProfile,
    dtype: str,
    placement: Placement | None = None,
) -> Agreement | None:
    """Return how the workers of a job agree.

    Parameters
    ----------
    asked : Job
        What the caller says. [-]
    machine : Machine or None
        The workers' devices in a system; None for one device. [-]
    subject : Subject
        What is trained. [-]
    profile : FrameworkProfile
        The framework, whose habits of exchange hold where the caller says nothing. [-]
    dtype : str
        Data type of gradients. [-]
    placement : Placement or None
        The network on the devices of a worker; None where one device has the whole. [-]

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
    _check_speeds(asked, machine, subject)
    if asked.sync == NO_SYNC or machine is None or Phase.BACKWARD not in subject.phase.parts:
        return None
    from perfmodel.prediction.agreements import agreement_of

    return agreement_of(asked, machine=machine, subject=subject, profile=profile, dtype=dtype, placement=placement)


def with_habits_of(profile: FrameworkProfile, job: Job) -> Job:
    """Return the same job with a framework's size of messages, where it asks for none."""
    if job.bucket_bytes is not None or profile.exchange.bucket_mib is None:
        return job
    return job.resolved(bucket_bytes=profile.exchange.bucket_mib * MIB)


def _check_speeds(asked: Job, machine: Machine | None, subject: Subject) -> None:
    """Refuse workers of unequal speed where they do not agree, since each then has a step of its own."""
    straggler = asked.straggler
    if straggler is None or straggler.times.lasting_count is None:
        return
    alone = machine is None or (asked.workers == 1 and asked.sync not in SCHEMES)
    apart = alone or asked.sync == NO_SYNC or Phase.BACKWARD not in subject.phase.parts
    if apart and straggler != straggler.as_predicted:
        allowed = "None, or times that vary, for workers that do not agree: with unequal ones each has its own step"
        raise ArgumentError("straggler", {"distribution": straggler.times.name}, allowed)
