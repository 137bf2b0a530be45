"""The parallelisms by name, and a network placed by one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfmodel.errors import UnknownNameError
from perfmodel.graph import LayerGraph
from perfmodel.parallelism.base import LayerSeconds, Layout, Parallelism, Placement, Request
from perfmodel.parallelism.hybrid import HybridParallelism
from perfmodel.parallelism.kinds import DataParallelism, ModelParallelism, PipelineParallelism, TensorParallelism

PARALLELISMS: dict[str, Parallelism] = {
    each.name: each()
    for each in (DataParallelism, ModelParallelism, PipelineParallelism, TensorParallelism, HybridParallelism)
}
"""Name to parallelism: the only dispatch on them."""


def place(
    graph: LayerGraph,
    *,
    parallelism: str = "data",
    layout: Layout | None = None,
    element_bytes: int = 4,
    layer_s: LayerSeconds | None = None,
    send_s: Callable[[int], float] | None = None,
    **sizes: Any,
) -> Placement:
    """Return a network on devices.

    Parameters
    ----------
    graph : LayerGraph
        The network. [-]
    parallelism : str
        ``data``, ``model``, ``pipeline``, ``tensor`` or ``hybrid``. [-]
    layout : Layout or None
        How many devices do what; None for ``sizes``. [-]
    element_bytes : int
        Size of an element of activations, parameters and gradients. [B]
    layer_s : mapping of str to float or None
        What each layer takes, so that stages come out equal; None for its FLOP. [s]
    send_s : callable or None
        Time of a tensor of a size per sample [B/sample] between stages, in the unit of ``layer_s``. [s]
    **sizes : int, str or bool
        Fields of ``Layout`` where none is given; all workers are one group of a ``model`` or ``tensor`` parallelism
        unless its size is given. [1]

    Returns
    -------
    Placement
        Stages with their exchanges. [-]

    Raises
    ------
    UnknownNameError
        If no parallelism or schedule has the name.
    ArgumentError
        If the sizes do not fit one another, the parallelism or the network.

    Examples
    --------
    >>> from perfmodel import zoo
    >>> placed = place(zoo.vgg16(), parallelism="pipeline", workers=4, stages=4, micro_batches=8)
    >>> [exchange.bytes_per_sample for stage in placed.stages for exchange in stage.exchanges[:1]]
    [6422528, 3211264, 1605632, 1605632]
    """
    if parallelism not in PARALLELISMS:
        noun = "parallelism"
        raise UnknownNameError(noun, str(parallelism), PARALLELISMS)
    chosen = PARALLELISMS[parallelism]
    if layout is None:
        if chosen.grouped_by is not None:
            sizes = {chosen.grouped_by: sizes.get("workers", 1)} | sizes
        layout = Layout(**sizes)
    resolved = chosen.resolved(layout)
    request = Request(graph=graph, layout=resolved, element_bytes=element_bytes, layer_s=layer_s, send_s=send_s)
    return chosen.place(request)
