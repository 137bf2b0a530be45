"""Model parallelism: layers on several devices, one device at work at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, final

from perfmodel.errors import ArgumentError
from perfmodel.parallelism.base import Layout, Parallelism, Request, StageGraph
from perfmodel.parallelism.combine import combined


@final
class ModelParallelism(Parallelism):
    """The network cut into as many stages as there are devices; a mini-batch goes through as a whole.

    It takes the sum of the stages and of the transfers between them: memory adds up, speed does not.
    """

    name: ClassVar[str] = "model"
    uses: ClassVar[frozenset[str]] = frozenset({"stages"})

    def resolved(self, layout: Layout) -> Layout:
        """Return the layout with as many stages as devices."""
        layout = super().resolved(layout)
        if layout.stages not in (1, layout.workers):
            allowed = f"{layout.workers}, the workers, with parallelism='model'"
            raise ArgumentError("stages", layout.stages, allowed)
        return replace(layout, stages=layout.workers, schedule="gpipe")

    def stages(self, request: Request) -> tuple[StageGraph, ...]:
        """Return the stages, the longest as short as can be."""
        return combined(request)
