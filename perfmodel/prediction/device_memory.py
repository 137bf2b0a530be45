"""What a device of a worker keeps: its stages' parameters, and the micro-batches on their way through them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.cost.model_state import model_state_bytes
from perfmodel.cost.pipeline_order import Turn, most_kept
from perfmodel.graph.liveness import MemoryRules
from perfmodel.prediction.memory import MemoryFootprint, memory_footprint, workspace_bytes
from perfmodel.records import ELEMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfmodel.prediction.prepared import Prepared, TimedStep
    from perfmodel.prediction.stage import Stage, TimedStage


def device_memory(prepared: Prepared, timed: TimedStep, place: int, order: Sequence[Turn]) -> MemoryFootprint:
    """Return what a device keeps.

    Parameters
    ----------
    prepared : Prepared
        The job. [-]
    timed : TimedStep
        With the algorithms that run, which need scratch memory. [-]
    place : int
        Place of the device among those of a worker. [1]
    order : sequence of Turn
        Its turns in a pass. [-]

    Returns
    -------
    MemoryFootprint
        At the peak of a step. [B]
    """
    layout = prepared.layout
    own = {index: each for index, each in enumerate(timed.stages) if each.stage.placed.device == place}
    footprints = {index: _of_stage(prepared, each) for index, each in own.items()}
    found = next(iter(footprints.values()))
    if len(own) > 1 or layout.parts > 1:
        found = _of_micro_batches(prepared, own, footprints, order)
    if not layout.shard_stage:
        return found
    weights, gradients, optimizer = model_state_bytes(
        weights_bytes=found.weights_bytes,
        gradients_bytes=found.gradients_bytes,
        optimizer_bytes=found.optimizer_bytes,
        shard_stage=layout.shard_stage,
        worker_count=layout.data_size,
    )
    return replace(found, weights_bytes=weights, gradients_bytes=gradients, optimizer_bytes=optimizer)


def _of_stage(prepared: Prepared, timed: TimedStage) -> MemoryFootprint:
    """Return what a stage keeps of one micro-batch; of one that copies labels only these are there twice."""
    stage = timed.stage
    memory, samples = stage.plan.memory(stage.subject.graph), prepared.samples(stage)
    target = prepared.target
    ahead_bytes = prepared.stage_copies(stage)[1].copied_bytes
    is_doubled = bool(np.any(ahead_bytes))
    found = memory_footprint(
        memory,
        batch_size=samples,
        workspace_bytes=workspace_bytes(memory, stage.plan.table, timed.groups.chosen, batch_size=samples),
        context_bytes=target.context_bytes,
        capacity_bytes=target.capacity_bytes,
        input_buffer_count=1 + is_doubled,
    )
    if stage.is_fed or not is_doubled:
        return found
    return replace(found, input_bytes=found.input_bytes / 2 + ahead_bytes)


def _of_micro_batches(
    prepared: Prepared,
    own: dict[int, TimedStage],
    footprints: dict[int, MemoryFootprint],
    order: Sequence[Turn],
) -> MemoryFootprint:
    """Return what several stages, or several micro-batches, keep together."""
    waits = {index: _waiting_bytes(prepared, each.stage) for index, each in own.items()}
    beyond = max(footprints[index].activations_bytes - waits[index] for index in own)
    arriving = {index: footprints[index].input_bytes for index in own}
    inputs = most_kept(order, kept_bytes=arriving) if prepared.trains else max(arriving.values())
    return replace(
        next(iter(footprints.values())),
        weights_bytes=sum(each.weights_bytes for each in footprints.values()),
        gradients_bytes=sum(_gradients_bytes(prepared, each.stage) for each in own.values()),
        optimizer_bytes=sum(each.optimizer_bytes for each in footprints.values()),
        activations_bytes=beyond + most_kept(order, kept_bytes=waits),
        workspace_bytes=max(each.workspace_bytes for each in footprints.values()),
        input_bytes=inputs,
    )


def _gradients_bytes(prepared: Prepared, stage: Stage) -> float:
    """Return the gradients of all parameters, which micro-batches add to. [B]"""
    if not prepared.trains:
        return 0.0
    size = ELEMENT_BYTES[prepared.dtype] * stage.placed.graph.trained_parameter_count
    return float(size) * prepared.profile.memory.pool_overhead


def _waiting_bytes(prepared: Prepared, stage: Stage) -> Any:
    """Return what of a micro-batch waits from its forward to its backward phase, without the stage's input. [B]"""
    if not prepared.trains:
        return 0.0
    policy = prepared.profile.memory
    rules = MemoryRules(
        element_bytes=ELEMENT_BYTES[prepared.dtype],
        index_bytes=policy.index_bytes,
        in_place_kinds=policy.in_place,
        recompute=prepared.recompute,
    )
    live = stage.subject.graph.liveness(rules=rules, input_gradient=bool(stage.subject.input_gradient))
    constant, slope = live.kept
    return (float(constant) + float(slope) * prepared.samples(stage)) * policy.pool_overhead
