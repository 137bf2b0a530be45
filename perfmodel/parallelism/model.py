"""Model parallelism: layers on several devices, one device at work at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, final

from perfmodel.parallelism.base import Layout, Parallelism, Request, StageGraph
from perfmodel.parallelism.combine import combined


@final
class ModelParallelism(Parallelism):
    """The network cut into stages; a mini-batch goes through as a whole, and the whole may be copied for others.

    It takes the sum of the stages and of the transfers between them: memory adds up, speed does not.
    """

    name: ClassVar[str] = "model"
    uses: ClassVar[frozenset[str]] = frozenset({"stages", "accumulation_steps"})
    grouped_by: ClassVar[str | None] = "stages"

    def resolved(self, layout: Layout) -> Layout:
        """Return the layout; a mini-batch that goes through as a whole has but one order."""
        return replace(super().resolved(layout), schedule="gpipe")

    def stages(self, request: Request) -> tuple[StageGraph, ...]:
        """Return the stages, the longest as short as can be."""
        return combined(request)
