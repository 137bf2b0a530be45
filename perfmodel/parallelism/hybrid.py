"""Hybrid parallelism: convolutions on samples of one's own, dense layers shared over the samples of all."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import ClassVar, final

from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.layers import Dense
from perfmodel.parallelism.base import Exchange, Parallelism, Request, StageGraph, in_order
from perfmodel.parallelism.kinds import DataParallelism
from perfmodel.parallelism.part import part_of
from perfmodel.parallelism.sharded import gradient_exchanges
from perfmodel.parallelism.stages import Cut, cuts_of
from perfmodel.parallelism.tensor_split import tensor_split
from perfmodel.records import Phase


@final
class HybridParallelism(Parallelism):
    """Convolutions data-parallel; dense layers split over all workers, each computing its share for all samples.

    Of an AlexNet the convolutions have 5 % of the parameters and most of the FLOP, so that neither large gradients nor
    large activations are exchanged [1]_ (variant (a) of section 4: activations are gathered before the dense layers).

    References
    ----------
    .. [1] Krizhevsky, One weird trick for parallelizing convolutional neural networks, arXiv:1404.5997.
    """

    name: ClassVar[str] = "hybrid"
    uses: ClassVar[frozenset[str]] = frozenset()

    def used_by(self, workers: int) -> frozenset[str]:
        """Return those of data parallelism for one worker, which shares nothing; none for several."""
        return DataParallelism.uses if workers == 1 else self.uses

    def stages(self, request: Request) -> tuple[StageGraph, ...]:
        """Return both parts, which every worker runs in turn."""
        graph, workers = request.graph, request.layout.workers
        if workers == 1:  # its layers are shared with nobody
            return (StageGraph(graph=graph),)
        cut = _before_dense_layers(graph)
        (first, _), (second, _) = (
            part_of(graph, graph.layers[start:end], name=f"{graph.name}, {part}")
            for (start, end), part in zip(
                pairwise((0, cut.place, len(graph.layers))), ("samples of its own", "all samples"), strict=True
            )
        )
        front = StageGraph(
            graph=first,
            exchanges=gradient_exchanges(first, data_size=workers, shard_stage=0, element_bytes=request.element_bytes),
        )
        shard = tensor_split(second, tensor_size=workers, element_bytes=request.element_bytes)
        return front, replace(
            shard,
            input_gradient=cut.wanted,
            batch_factor=workers,
            exchanges=_gathered_input(shard, cut, element_bytes=request.element_bytes),
        )


def _before_dense_layers(graph: LayerGraph) -> Cut:
    """Return the last cut in front of the first dense layer."""
    first = next((place for place, node in enumerate(graph.layers) if isinstance(node.layer, Dense)), 0)
    cuts = [cut for cut in cuts_of(graph) if cut.place <= first]
    if not cuts or isinstance(graph.layers[0].layer, Dense):
        allowed = f"a parallelism for a network without layers in front of its dense ones, as {graph.name} is: 'tensor'"
        raise ArgumentError("parallelism", HybridParallelism.name, allowed)
    return cuts[-1]


def _gathered_input(shard: StageGraph, cut: Cut, *, element_bytes: int) -> tuple[Exchange, ...]:
    """Return a shard's exchanges with those that bring all samples to all devices, and take their gradients home."""
    size = element_bytes * cut.elements
    first = shard.graph.layers[0].name
    within = [
        exchange
        for exchange in shard.exchanges
        if not (exchange.phase is Phase.BACKWARD and exchange.after_layer == _first_product(shard))
    ]
    gathered = Exchange(
        kind="all_gather", group="tensor", phase=Phase.FORWARD, after_layer=first, bytes_per_sample=size
    )
    home = Exchange(
        kind="reduce_scatter", group="tensor", phase=Phase.BACKWARD, after_layer=first, bytes_per_sample=size
    )
    # the gathering comes before the first layer's own exchanges, the way home after those of all
    ordered = in_order(shard.graph, [gathered, *within])
    return in_order(shard.graph, [*ordered, home] if cut.wanted else ordered)


def _first_product(shard: StageGraph) -> str:
    """Return the first product: the gradient of its input is the one that goes home."""
    return next(node.name for node in shard.graph.layers if isinstance(node.layer, Dense))
