"""Pipeline parallelism: layers on several devices, which work on micro-batches that follow one another."""

from __future__ import annotations

from typing import ClassVar, final

from perfmodel.cost.pipeline_order import SCHEDULES
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.parallelism.base import Layout, Parallelism, Request, StageGraph
from perfmodel.parallelism.combine import combined


@final
class PipelineParallelism(Parallelism):
    """The network cut into stages; each may be shared by a tensor group, and the whole be copied for other samples."""

    name: ClassVar[str] = "pipeline"
    uses: ClassVar[frozenset[str]] = frozenset(
        {
            "stages",
            "tensor_size",
            "sequence_parallel",
            "micro_batches",
            "interleave",
            "shard_stage",
            "accumulation_steps",
        }
    )

    def resolved(self, layout: Layout) -> Layout:
        """Return the layout, its schedule held against micro-batches and interleaving."""
        layout = super().resolved(layout)
        if layout.schedule not in SCHEDULES:
            noun = "schedule of a pipeline"
            raise UnknownNameError(noun, str(layout.schedule), SCHEDULES)
        if layout.interleave > 1 and layout.stages == 1:
            raise ArgumentError("interleave", layout.interleave, "1 with one stage, which waits for nobody")
        if layout.stages > 1:
            SCHEDULES[layout.schedule](
                stage_count=layout.stages, micro_batch_count=layout.micro_batches, interleave=layout.interleave
            )
        if layout.shard_stage == 3 and layout.stages > 1:
            allowed = "0, 1 or 2 in a pipeline, every micro-batch of which would gather the parameters anew"
            raise ArgumentError("shard_stage", layout.shard_stage, allowed)
        return layout

    def stages(self, request: Request) -> tuple[StageGraph, ...]:
        """Return the stages, the longest as short as can be."""
        return combined(request)
