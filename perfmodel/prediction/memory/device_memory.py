"""Memory of one device of a worker: parameters of its stages, and the micro-batches in flight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.cost.model_state import model_state_bytes
from perfmodel.cost.pipeline_order import Turn, most_kept
from perfmodel.graph.liveness import MemoryRules
from perfmodel.numeric import maximum
from perfmodel.prediction.memory.footprint import MemoryFootprint, memory_footprint, workspace_bytes
from perfmodel.records import ELEMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfmodel.parallelism.base import Layout
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.job.stage import Stage, TimedStage


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DeviceMemory:
    """Memory of one device of a worker, for any order of micro-batches."""

    chunks: tuple[int, ...]
    alone: MemoryFootprint
    among: MemoryFootprint
    waiting_bytes: tuple[Any, ...]
    arriving_bytes: tuple[Any, ...]
    trains: bool

    def shared(self, layout: Layout) -> DeviceMemory:
        """Memory left where workers share parameters, gradients or optimizer state. [B]"""
        if not layout.shard_stage:
            return self

        def of(found: MemoryFootprint) -> MemoryFootprint:
            weights, gradients, optimizer = model_state_bytes(
                weights_bytes=found.weights_bytes,
                gradients_bytes=found.gradients_bytes,
                optimizer_bytes=found.optimizer_bytes,
                shard_stage=layout.shard_stage,
                worker_count=layout.data_size,
            )
            return replace(found, weights_bytes=weights, gradients_bytes=gradients, optimizer_bytes=optimizer)

        return replace(self, alone=of(self.alone), among=of(self.among))

    def footprint(self, order: Sequence[Turn], *, parts: int) -> MemoryFootprint:
        """Footprint at the peak of a step. [B]"""
        if len(self.chunks) == 1 and parts == 1:
            return self.alone
        waiting, arriving = (
            dict(zip(self.chunks, each, strict=True)) for each in (self.waiting_bytes, self.arriving_bytes)
        )
        return replace(
            self.among,
            activations_bytes=self.among.activations_bytes + most_kept(order, kept_bytes=waiting),
            input_bytes=most_kept(order, kept_bytes=arriving) if self.trains else reduce(maximum, arriving.values()),
        )


def device_memory(
    prepared: Prepared,
    stages: Sequence[TimedStage],
    place: int,
    *,
    in_parts: bool,
    known: dict[Any, tuple[MemoryFootprint, Any]] | None = None,
) -> DeviceMemory:
    """Memory of a device where workers share nothing. [B]"""
    own = {index: each for index, each in enumerate(stages) if each.stage.placed.device == place}
    is_shared = len(own) > 1 or in_parts
    known = {} if known is None else known
    keys = []
    for each in own.values():
        stage = each.stage
        keys.append((id(stage.lowered), stage.placed.batch_factor, id(stage.feed), stage.is_fed, id(stage.target)))
        if keys[-1] not in known:
            waits_bytes = _waiting_bytes(prepared, stage) if is_shared else 0.0
            known[keys[-1]] = (_of_stage(prepared, each), waits_bytes)
    footprints = [known[key][0] for key in keys]
    waits = [known[key][1] for key in keys]
    alone, among = footprints[0], footprints[0]
    if is_shared:
        among = replace(
            alone,
            weights_bytes=sum(each.weights_bytes for each in footprints),
            gradients_bytes=sum(_gradients_bytes(prepared, each.stage) for each in own.values()),
            optimizer_bytes=sum(each.optimizer_bytes for each in footprints),
            activations_bytes=reduce(
                maximum, [each.activations_bytes - kept for each, kept in zip(footprints, waits, strict=True)]
            ),
            workspace_bytes=reduce(maximum, [each.workspace_bytes for each in footprints]),
        )

    return DeviceMemory(
        chunks=tuple(own),
        alone=alone,
        among=among,
        waiting_bytes=tuple(waits),
        arriving_bytes=tuple(each.input_bytes for each in footprints),
        trains=prepared.trains,
    )


def _of_stage(prepared: Prepared, timed: TimedStage) -> MemoryFootprint:
    """Footprint of a stage for one micro-batch; a stage fed labels only holds just these twice."""
    stage = timed.stage
    memory, samples = stage.lowered.memory(stage.subject.graph), prepared.samples(stage)
    target = prepared.target
    ahead_bytes = prepared.stage_copies(stage)[1].copied_bytes
    is_doubled = bool(np.any(ahead_bytes))
    found = memory_footprint(
        memory,
        batch_size=samples,
        workspace_bytes=workspace_bytes(memory, stage.lowered.table, timed.groups.chosen, batch_size=samples),
        context_bytes=target.context_bytes,
        capacity_bytes=target.capacity_bytes,
        input_buffer_count=1 + is_doubled,
    )
    if stage.is_fed or not is_doubled:
        return found
    return replace(found, input_bytes=found.input_bytes / 2 + ahead_bytes)


def _gradients_bytes(prepared: Prepared, stage: Stage) -> float:
    """Gradients of all parameters, which micro-batches accumulate. [B]"""
    if not prepared.trains:
        return 0.0
    size = ELEMENT_BYTES[prepared.dtype] * stage.placed.graph.trained_parameter_count
    return float(size) * prepared.profile.memory.pool_overhead


def _waiting_bytes(prepared: Prepared, stage: Stage) -> Any:
    """Bytes of a micro-batch kept from its forward to its backward phase, without the stage's input. [B]"""
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
