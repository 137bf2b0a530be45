"""Tensor parallelism: a group of devices shares every layer."""

from __future__ import annotations

from typing import ClassVar, final

from perfmodel.parallelism.base import Parallelism, Request, StageGraph
from perfmodel.parallelism.combine import combined


@final
class TensorParallelism(Parallelism):
    """Heads, pairs of products, tables of words and scores split over a group; more groups for other samples."""

    name: ClassVar[str] = "tensor"
    uses: ClassVar[frozenset[str]] = frozenset(
        {"tensor_size", "sequence_parallel", "micro_batches", "shard_stage", "accumulation_steps"}
    )
    grouped_by: ClassVar[str | None] = "tensor_size"

    def stages(self, request: Request) -> tuple[StageGraph, ...]:
        """Return the shard of one device."""
        return combined(request)
