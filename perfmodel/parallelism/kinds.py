"""The parallelisms that are cases of one combination: by samples, by layers in turn, as a pipeline, by tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, final

from perfmodel.cost.pipeline_order import SCHEDULES, orders_of
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.parallelism.base import SIZES, Layout, Parallelism, Request, StageGraph
from perfmodel.parallelism.combine import combined, cut_places


class Combined(Parallelism):
    """Stages of shards that have copies, as the layout says; a kind says which of these it has."""

    def stages(self, request: Request) -> tuple[StageGraph, ...]:
        """Return the stages of the layout."""
        return combined(request)

    def cut(self, request: Request) -> tuple[int, ...]:
        """Return the layers before each stage but the first."""
        return cut_places(request)


@final
class DataParallelism(Combined):
    """Copies of the network add up their gradients; they may share optimizer state, gradients and parameters."""

    name: ClassVar[str] = "data"
    uses: ClassVar[frozenset[str]] = frozenset({"micro_batches", "shard_stage", "accumulation_steps"})


@final
class ModelParallelism(Combined):
    """The network cut into stages; a mini-batch goes through as a whole, and the whole may be copied for others.

    It takes the sum of the stages and of the transfers between them: memory adds up, speed does not.
    """

    name: ClassVar[str] = "model"
    uses: ClassVar[frozenset[str]] = frozenset({"stages", "accumulation_steps"})
    grouped_by: ClassVar[str | None] = "stages"

    def resolved(self, layout: Layout) -> Layout:
        """Return the layout; a mini-batch that goes through as a whole has but one order."""
        return replace(super().resolved(layout), schedule="gpipe")


@final
class PipelineParallelism(Combined):
    """The network cut into stages; each may be shared by a tensor group, and the whole be copied for other samples."""

    name: ClassVar[str] = "pipeline"
    uses: ClassVar[frozenset[str]] = frozenset(SIZES)

    def resolved(self, layout: Layout) -> Layout:
        """Return the layout, its schedule held against micro-batches and interleaving."""
        layout = super().resolved(layout)
        if layout.schedule not in SCHEDULES:
            noun = "schedule of a pipeline"
            raise UnknownNameError(noun, str(layout.schedule), SCHEDULES)
        if layout.interleave > 1 and layout.stages == 1:
            raise ArgumentError("interleave", layout.interleave, "1 with one stage, which waits for nobody")
        if layout.stages > 1:
            orders_of(
                layout.schedule,
                stage_count=layout.stages,
                micro_batch_count=layout.micro_batches,
                interleave=layout.interleave,
                trains=True,
            )
        if layout.shard_stage == 3 and layout.stages > 1:
            allowed = "0, 1 or 2 in a pipeline, every micro-batch of which would gather the parameters anew"
            raise ArgumentError("shard_stage", layout.shard_stage, allowed)
        return layout


@final
class TensorParallelism(Combined):
    """Heads, pairs of products, tables of words and scores split over a group; more groups for other samples."""

    name: ClassVar[str] = "tensor"
    uses: ClassVar[frozenset[str]] = frozenset(
        {"tensor_size", "sequence_parallel", "micro_batches", "shard_stage", "accumulation_steps"}
    )
    grouped_by: ClassVar[str | None] = "tensor_size"
