"""How many workers a system can feed: the period of a job by its workers, and what would unbind it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from perfmodel.cost.input_pipeline import units_to_unbind

if TYPE_CHECKING:
    from perfmodel.prediction.basis import Basis

SHORTER: Final = 0.01
"""Relative gain of samples per second below which more workers make an epoch no shorter to speak of. [1]"""

COPY, DEVICE = "transfer", "device"
"""Stages of a job besides those of its data path: copies to the devices, and what the devices do with a mini-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSize:
    """A job with a number of workers.

    Parameters
    ----------
    worker_count : int
        Workers. [1]
    period_s : float
        Time of a step of all of them. [s]
    stage_s : dict of str to float
        Time of each stage per step: ``read``, ``decode``, ``host_copy``, ``transfer``, ``device``. [s]
    samples_per_s : float
        Samples of all workers together. [samples/s]
    """

    worker_count: int
    period_s: float
    stage_s: dict[str, float]
    samples_per_s: float

    @property
    def bound_by(self) -> str:
        """The slowest stage."""
        return max(self.stage_s, key=lambda stage: self.stage_s[stage])


def job_size(basis: Basis, worker_count: int) -> JobSize:
    """Return the period of a predicted job with another number of workers.

    Parameters
    ----------
    basis : Basis
        The step that was predicted. [-]
    worker_count : int
        Workers. [1]

    Returns
    -------
    JobSize
        Its period and stages. [s]
    """
    prepared = basis.prepared
    path = prepared.data_path
    assert path is not None
    path = path.with_workers(worker_count)
    target = prepared.target.with_workers(worker_count * prepared.layout.stages * prepared.layout.tensor_size)
    there = replace(prepared, target=target, data_path=path)
    composed = there.composed(basis.timed.stages, basis.factors)
    stages = {stage: float(seconds) for stage, seconds in path.stages(prepared.batch_size).items()}
    period_s = float(composed.parts.step_s)
    return JobSize(
        worker_count=worker_count,
        period_s=period_s,
        stage_s=stages | {COPY: float(composed.parts.transfer_s), DEVICE: float(composed.parts.device_s)},
        samples_per_s=worker_count * prepared.batch_size / period_s,
    )


def job_sizes(basis: Basis) -> list[JobSize]:
    """Return the periods of a predicted job with one worker, two, and so on, to all devices of its system.

    Parameters
    ----------
    basis : Basis
        The step that was predicted. [-]

    Returns
    -------
    list of JobSize
        By rising number of workers; one entry where no system is known. [-]
    """
    machine = basis.prepared.target.machine
    most = 1 if machine is None else machine.alike_count
    return [job_size(basis, worker_count) for worker_count in range(1, most + 1)]


def most_useful(sizes: list[JobSize]) -> JobSize | None:
    """Return the smallest job that is as fast as any larger one.

    Parameters
    ----------
    sizes : list of JobSize
        By rising number of workers. [-]

    Returns
    -------
    JobSize or None
        The first that no larger one beats by more than ``SHORTER``; None where that is the largest. [-]
    """
    best = max(size.samples_per_s for size in sizes)
    useful = next(size for size in sizes if size.samples_per_s * (1 + SHORTER) >= best)
    return None if useful is sizes[-1] else useful


def units_needed(basis: Basis) -> dict[str, tuple[int, int]]:
    """Return how many units stages have that the devices wait for, and how many would keep up with the devices.

    Parameters
    ----------
    basis : Basis
        The step that was predicted. [-]

    Returns
    -------
    dict of str to tuple of int
        Stage to units it has and units it needs: storages for ``read``, cores for ``decode``; only stages that are
        slower than the devices. What copies need is for ``lanes_needed`` to say. [1]
    """
    path = basis.prepared.data_path
    assert path is not None
    size = job_size(basis, path.worker_count)
    device_s = size.stage_s[DEVICE]
    have = {"decode": min(path.decode_core_count(host) for host in path.hosts)}
    if path.read_limited_by_storage:
        have["read"] = 1
    found = {}
    for stage, units in have.items():
        if size.stage_s[stage] > device_s:
            needed = units_to_unbind(stage_s=size.stage_s[stage], compute_s=device_s, unit_count=units)
            found[stage] = (units, math.ceil(float(needed)))
    return found
