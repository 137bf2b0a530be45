"""The list of parallelisms."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Final, final

from perfmodel.cost.pipeline_order import SCHEDULES, check_turns
from perfmodel.errors import ArgumentError, check_known
from perfmodel.graph import LayerGraph
from perfmodel.layers import Dense
from perfmodel.parallelism.base import (
    SIZES,
    Exchange,
    Layout,
    Parallelism,
    Request,
    StageGraph,
    in_order,
)
from perfmodel.parallelism.combine import combined, cut_places, gradient_exchanges
from perfmodel.parallelism.stages import Cut, cuts_of, layers_between, part_of
from perfmodel.parallelism.tensor_split import tensor_split
from perfmodel.records import Phase

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Combined(Parallelism):
    """Tensor groups, stages and copies as in the layout; a subclass names those that it uses."""

    def resolved(self, layout: Layout) -> Layout:
        """Check the layout, and that the turns of its micro-batches can be played."""
        check_turns(layout.micro_batches, chunk_count=layout.stages * layout.interleave)
        return super().resolved(layout)

    def stages(self, request: Request) -> tuple[StageGraph, ...]:
        """Stages of the layout."""
        return combined(request)

    def cut(self, request: Request) -> NDArray[np.intp]:
        """First layer of each stage but the first, in rows where layers have several times."""
        return cut_places(request)


SHARING: Final = frozenset({"shard_stage", "shard_group", "prefetch_limit", "no_sync", "gradient_dtype"})
"""Fields of Layout that say what data-parallel workers share, and how."""
CONTEXT: Final = frozenset({"context_size", "context_method"})
"""Fields of Layout that say which devices share sequences, and how."""


@final
class DataParallelism(Combined):
    """Copies of the network sum their gradients; they may share optimizer state, gradients and parameters."""

    name: ClassVar[str] = "data"
    uses: ClassVar[frozenset[str]] = SHARING | CONTEXT | {"micro_batches", "accumulation_steps"}


@final
class ModelParallelism(Combined):
    """The network cut into stages that each mini-batch passes whole; the network may be copied.

    A step takes the sum of stages and transfers: more devices add memory, not speed.
    """

    name: ClassVar[str] = "model"
    uses: ClassVar[frozenset[str]] = frozenset({"stages", "stage_cut", "accumulation_steps", "gradient_dtype"})

    def resolved(self, layout: Layout) -> Layout:
        """Check the layout: without micro-batches there is only one order."""
        return replace(super().resolved(layout), schedule="gpipe")


@final
class PipelineParallelism(Combined):
    """The network cut into stages; a tensor group may share each, and the network may be copied."""

    name: ClassVar[str] = "pipeline"
    uses: ClassVar[frozenset[str]] = frozenset(SIZES)

    def resolved(self, layout: Layout) -> Layout:
        """Check the schedule of a layout against its micro-batches and interleaving."""
        layout = super().resolved(layout)
        check_known("schedule of a pipeline", layout.schedule, SCHEDULES)
        if layout.interleave > 1 and layout.stages == 1:
            raise ArgumentError("interleave", layout.interleave, "1 with a single stage, because it never waits")
        if layout.stages > 1:
            layout.orders(layout.stages * layout.interleave, trains=True)  # raises for turns that cannot be
        if layout.shard_stage == 3 and layout.stages > 1:
            allowed = "0, 1 or 2 in a pipeline; FSDP keeps parameters gathered there, which is 2 with no_sync=True"
            raise ArgumentError("shard_stage", layout.shard_stage, allowed)
        return layout


@final
class TensorParallelism(Combined):
    """Heads, pairs of products, word tables and scores split over a group; the group may be copied."""

    name: ClassVar[str] = "tensor"
    uses: ClassVar[frozenset[str]] = SHARING | CONTEXT | {
        "tensor_size", "sequence_parallel", "micro_batches", "accumulation_steps"
    }  # fmt: skip


@final
class HybridParallelism(Parallelism):
    """Convolutions data-parallel; dense layers split over all workers, each computing its part for all samples.

    In AlexNet the convolutions have 5 % of the parameters and most of the FLOP, so neither large gradients nor large
    activations are exchanged [1]_ (variant (a) of section 4: activations are gathered before the dense layers).

    References
    ----------
    .. [1] Krizhevsky, One weird trick for parallelizing convolutional neural networks, arXiv:1404.5997.
    """

    name: ClassVar[str] = "hybrid"
    uses: ClassVar[frozenset[str]] = frozenset()

    def used_by(self, workers: int) -> frozenset[str]:
        """Fields of data parallelism for one worker; none for several."""
        return DataParallelism.uses - CONTEXT if workers == 1 else self.uses

    def stages(self, request: Request) -> tuple[StageGraph, ...]:
        """Both parts, which every worker runs one after the other."""
        graph, workers = request.graph, request.layout.workers
        if workers == 1:  # its layers are not shared
            return (StageGraph(graph=graph),)
        cut = _before_dense_layers(graph)
        (first, _), (second, _) = (
            part_of(graph, layers_between(graph, start, end), name=f"{graph.name}, {part}")
            for (start, end), part in zip(
                pairwise((0, cut.place, len(graph.layers))), ("samples of its own", "all samples"), strict=True
            )
        )
        front = StageGraph(
            graph=first,
            exchanges=gradient_exchanges(first, data_size=workers, element_bytes=request.element_bytes),
        )
        shard = tensor_split(second, tensor_size=workers, element_bytes=request.element_bytes)
        return front, replace(
            shard,
            input_gradient=cut.wanted,
            batch_factor=workers,
            exchanges=_gathered_input(shard, cut, element_bytes=request.element_bytes),
        )


def _before_dense_layers(graph: LayerGraph) -> Cut:
    """Last cut before the first dense layer."""
    first = next((place for place, node in enumerate(graph.layers) if isinstance(node.layer, Dense)), 0)
    cuts = [cut for cut in cuts_of(graph) if cut.place <= first]
    if not cuts or isinstance(graph.layers[0].layer, Dense):
        allowed = f"'tensor' for {graph.name}, which has no layers before its dense ones"
        raise ArgumentError("parallelism", HybridParallelism.name, allowed)
    return cuts[-1]


def _gathered_input(shard: StageGraph, cut: Cut, *, element_bytes: int) -> tuple[Exchange, ...]:
    """Exchanges of a shard, with those that bring all samples to all devices and return their gradients."""
    size = element_bytes * cut.elements
    first = shard.graph.layers[0].name
    # its input gradient returns to its device
    first_product = next(node.name for node in shard.graph.layers if isinstance(node.layer, Dense))
    within = [
        exchange
        for exchange in shard.exchanges
        if not (exchange.phase is Phase.BACKWARD and exchange.after_layer == first_product)
    ]
    gathered = Exchange("all_gather", "tensor", Phase.FORWARD, first, size)
    home = Exchange("reduce_scatter", "tensor", Phase.BACKWARD, first, size)
    # the gathering precedes the first layer's own exchanges; the return of gradients follows all exchanges
    ordered = in_order(shard.graph, [gathered, *within])
    return in_order(shard.graph, [*ordered, home] if cut.wanted else ordered)


PARALLELISMS: dict[str, Parallelism] = {
    kind.name: kind()
    for kind in (DataParallelism, ModelParallelism, PipelineParallelism, TensorParallelism, HybridParallelism)
}
"""Name -> parallelism: the only dispatch on the name."""
