"""Tensor parallelism: a group of devices shares every layer."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, final

from perfmodel.parallelism.base import Layout, Parallelism, Request, StageGraph
from perfmodel.parallelism.combine import combined


@final
class TensorParallelism(Parallelism):
    """Heads, pairs of products, tables of words and scores split over a group; more groups for other samples."""

    name: ClassVar[str] = "tensor"
    uses: ClassVar[frozenset[str]] = frozenset({"tensor_size", "sequence_parallel", "micro_batches", "shard_stage"})

    def resolved(self, layout: Layout) -> Layout:
        """Return the layout; all workers are one group unless a size is given."""
        layout = super().resolved(layout)
        return replace(layout, tensor_size=layout.workers) if layout.tensor_size == 1 else layout

    def stages(self, request: Request) -> tuple[StageGraph, ...]:
        """Return the shard of one device."""
        return combined(request)
