"""Data parallelism: every device has the whole network and samples of its own."""

from __future__ import annotations

from typing import ClassVar, final

from perfmodel.parallelism.base import Parallelism, Request, StageGraph
from perfmodel.parallelism.combine import combined


@final
class DataParallelism(Parallelism):
    """Copies of the network add up their gradients; they may share optimizer state, gradients and parameters."""

    name: ClassVar[str] = "data"
    uses: ClassVar[frozenset[str]] = frozenset({"micro_batches", "shard_stage", "accumulation_steps"})

    def stages(self, request: Request) -> tuple[StageGraph, ...]:
        """Return the network as one stage."""
        return combined(request)
