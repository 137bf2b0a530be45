"""Tasks of an input pipeline: what a worker reads, decodes, copies and computes, step after step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfmodel.errors import ArgumentError
from perfmodel.simulation.tasks import Task

VARIATIONS_DRAWN: Final = (1e-7, 1e7)
"""Least and most that factors are drawn with: beyond, they are all 1, or all but never anything but 0. [1]"""


@dataclass(frozen=True, slots=True)
class Stage:
    """What a worker does with every mini-batch at one place of its pipeline; the last stage is the computation.

    Parameters
    ----------
    kind : str
        What it is, e.g. ``read``, ``decode``, ``host_copy``, ``transfer``, ``compute``; unique in a pipeline. [-]
    resource : str or None
        What it holds one unit of: a pool of cores, a device's copy engine, the device; None for nothing. [-]
    duration_s : float
        Work of the whole mini-batch on one unit. [s]
    flow_bytes : float
        Bytes of the whole mini-batch over each channel. [B]
    channels : tuple of str
        Channels they pass. [-]
    latency_s : float
        Time until the first byte flows. [s]
    ahead : int or None
        Mini-batches that this stage may be ahead of the next one, where that is not the pipeline's depth. [1]
    variation : float
        Coefficient of variation of duration and bytes from one mini-batch to the next. [1]
    """

    kind: str
    resource: str | None = None
    duration_s: float = 0.0
    flow_bytes: float = 0.0
    channels: tuple[str, ...] = ()
    latency_s: float = 0.0
    ahead: int | None = None
    variation: float = 0.0


def input_pipeline_tasks(
    workers: Mapping[str, Sequence[Stage]], *, step_count: int, prefetch: int = 1, seed: int = 0
) -> tuple[Task, ...]:
    """Tasks of workers that each bring their mini-batches through the stages of a pipeline.

    A stage takes mini-batches in order, each part one at a time. Without prefetching, the first stage of a step waits
    until the computation of the step before has ended, so nothing overlaps. With depth d there are d + 1 buffers
    between two stages, one in use and d ahead of it: a stage begins step i once the next one has ended step i - d - 1.

    A stage that varies takes its duration and bytes times a factor of each step: gamma distributed, mean 1. It belongs
    to the mini-batch, so stages and workers that vary equally have the same one, and it depends on no depth.

    Parameters
    ----------
    workers : mapping of str to sequence of Stage
        Name of each worker to its stages in order. [-]
    step_count : int
        Mini-batches of each worker, at least 1. [1]
    prefetch : int
        Depth d: mini-batches that a stage may be ahead of the one in use at the next; 0 for none. [1]
    seed : int
        What the factors are drawn with, 0 or more. [-]

    Returns
    -------
    tuple of Task
        Tasks named ``worker/kind/step``, with ``/part`` where a stage has several, steps from 0; first by step, so that
        whoever is at an earlier step goes first where two have waited equally long. [-]

    Raises
    ------
    ArgumentError
        If there is no worker, stage or step, depth, seed or variation is negative, or two stages of a worker have one
        kind.
    TaskError
        If a stage has a negative number, or bytes without a channel.

    Notes
    -----
    Valid for: mini-batches whose times do not depend on those before. With channels and resources that nobody shares
    and times that do not vary, s steps take s times the sum of the stages without prefetching, and the sum plus (s - 1)
    times the longest with any depth from 1 on. Ignores: waits of workers for one another, as in synchronous training.

    Examples
    --------
    >>> from perfmodel.simulation import simulate
    >>> stages = (Stage("transfer", flow_bytes=2.0, channels=("link",)), Stage("compute", "gpu0", duration_s=3.0))
    >>> for prefetch in (0, 1):
    ...     tasks = input_pipeline_tasks({"worker0": stages}, step_count=10, prefetch=prefetch)
    ...     simulate(tasks, channels={"link": 1.0}, resources={"gpu0": 1}).makespan_s
    50.0
    32.0
    """
    _check(workers, step_count=step_count, prefetch=prefetch, seed=seed)
    variations = {stage.variation for stages in workers.values() for stage in stages}
    factors = {variation: _factors(variation, step_count=step_count, seed=seed) for variation in variations}
    return tuple(
        task
        for step in range(step_count)
        for worker, stages in workers.items()
        for task in _tasks_of_step(worker, stages, step=step, prefetch=prefetch, factors=factors)
    )


def _factors(variation: float, *, step_count: int, seed: int) -> list[float]:
    """Return a factor of mean 1 for each step. [1]"""
    if not variation:
        return [1.0] * step_count
    shape = float(np.clip(variation, *VARIATIONS_DRAWN)) ** -2
    drawn: list[float] = (np.random.default_rng(seed).standard_gamma(shape, step_count) / shape).tolist()
    return drawn


def _check(workers: Mapping[str, Sequence[Stage]], *, step_count: int, prefetch: int, seed: int) -> None:
    if not workers:
        raise ArgumentError(argument="workers", given=dict(workers), allowed="at least one worker")
    if step_count < 1:
        raise ArgumentError(argument="step_count", given=step_count, allowed="at least 1")
    if prefetch < 0:
        raise ArgumentError(argument="prefetch", given=prefetch, allowed="0 or more mini-batches")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ArgumentError(argument="seed", given=seed, allowed="a whole number >= 0")
    for worker, stages in workers.items():
        kinds = [stage.kind for stage in stages]
        if not kinds or len(set(kinds)) < len(kinds):
            allowed = "at least one stage, and no kind twice"
            raise ArgumentError(argument=f"workers[{worker!r}]", given=kinds, allowed=allowed)
        for stage in stages:
            if not (math.isfinite(stage.variation) and stage.variation >= 0):
                argument = f"workers[{worker!r}], {stage.kind}: variation"
                raise ArgumentError(argument=argument, given=stage.variation, allowed="a finite number >= 0")


def _tasks_of_step(
    worker: str, stages: Sequence[Stage], *, step: int, prefetch: int, factors: Mapping[float, Sequence[float]]
) -> Iterator[Task]:
    for place, stage in enumerate(stages):
        after: list[str] = []
        if place:
            after.append(_name(worker, stages[place - 1], step))
        if not prefetch and not place and step:
            after.append(_name(worker, stages[-1], step - 1))
        ahead = prefetch if stage.ahead is None else stage.ahead
        if place + 1 < len(stages) and step > ahead:
            after.append(_name(worker, stages[place + 1], step - ahead - 1))
        factor = factors[stage.variation][step]
        if step:
            after.append(_name(worker, stage, step - 1))
        yield Task(
            _name(worker, stage, step),
            resource=stage.resource,
            duration_s=factor * stage.duration_s,
            after=tuple(after),
            flow_bytes=factor * stage.flow_bytes,
            channels=stage.channels,
            latency_s=stage.latency_s,
            kind=stage.kind,
        )


def _name(worker: str, stage: Stage, step: int) -> str:
    """Name of the task of a stage in one step."""
    return f"{worker}/{stage.kind}/{step}"
