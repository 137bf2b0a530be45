"""Which memory the layers of a network touch, forward and backward, so that it is known how long ago it was last used.

A tensor is known by the layer that first wrote its memory: a view, and what overwrites its input, is the same memory.
Weights are the memory of their own layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from perfmodel.framework.kernel_classes import is_product_class
from perfmodel.graph.execution import wants_gradient
from perfmodel.graph.storage import kept_inputs, kept_tensors, shared_storage
from perfmodel.records import Phase, Role

if TYPE_CHECKING:
    from perfmodel.framework.kernel_table import Occurrence
    from perfmodel.graph import LayerGraph

GRADIENTS_ALONE: Final = frozenset({"gradient_sum_backward", "bias_gradient_backward", "broadcast_sum_backward"})
"""Classes of backward passes that read nothing of the forward pass, whatever their layer keeps."""

Memory = tuple[str, str]
"""Layer that it is named after, and whether it is its ``data`` or its ``weights``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemory:
    """The memory that one layer touches.

    Parameters
    ----------
    forward : tuple of tuple
        What its forward operations read and write. [-]
    kept : tuple of tuple
        What its backward operations read of the forward pass, weights apart. [-]
    weights : tuple of str and str
        Its weights. [-]
    has_weights : bool
        Whether it has any. [-]
    in_place : bool
        Whether it overwrites its input, which was written just before. [-]
    """

    forward: tuple[Memory, ...]
    kept: tuple[Memory, ...]
    weights: Memory
    has_weights: bool
    in_place: bool


def layer_memory(graph: LayerGraph) -> dict[str, LayerMemory]:
    """Return what memory each layer of a network touches.

    Parameters
    ----------
    graph : LayerGraph
        The network. [-]

    Returns
    -------
    dict of str to LayerMemory
        By name of the layer. [-]
    """
    nodes = graph.layers
    wanted = wants_gradient(graph.input_shapes, nodes, input_gradient=False)
    source = shared_storage(nodes, in_place_kinds=(), kept=kept_tensors(nodes, wanted=wanted), stays=graph.input_shapes)

    def data(name: str) -> Memory:
        while name in source:
            name = source[name]
        return (name, "data")

    found = {}
    for node in nodes:
        kept = [*kept_inputs(node, wanted=wanted), *([node.name] if node.layer.keeps_output else [])]
        found[node.name] = LayerMemory(
            forward=tuple(map(data, (*node.input_names, node.name))),
            kept=tuple(map(data, kept)),
            weights=(node.name, "weights"),
            has_weights=bool(node.layer.parameter_shapes(node.input_shapes)),
            in_place=node.name in source and not node.layer.is_view,
        )
    return found


def last_kept_use(
    occurrences: Sequence[Occurrence],
    classes: Sequence[str],
    *,
    memory: Mapping[str, LayerMemory],
    last_use: Sequence[int],
) -> list[int | None]:
    """Return for each operation when what it reads of the forward pass was used last.

    Parameters
    ----------
    occurrences : sequence of Occurrence
        Operations of a step, in order. [-]
    classes : sequence of str
        Class of the kernel of each. [-]
    memory : mapping of str to LayerMemory
        What the layers touch. [-]
    last_use : sequence of int
        The operation that used each one's layer last in another phase. [1]

    Returns
    -------
    list of int or None
        Place of that use, of any layer and in any phase; None for operations that read nothing of the forward pass.
        [1]

    Notes
    -----
    A non-linearity that keeps its output finds it where the next layer's weight gradient just read it. Several passes
    of one layer read the same; its products each read another operand.
    """
    touched: dict[Memory, int] = {}
    of_products: dict[Memory, int] = {}  # of the layer that runs now
    current = ""
    found: list[int | None] = []
    for place, (each, name) in enumerate(zip(occurrences, classes, strict=True)):
        if each.layer != current:
            touched |= of_products
            of_products, current = {}, each.layer
        own = memory.get(each.layer)
        if each.phase is not Phase.BACKWARD or each.role is Role.OUTPUT or own is None:
            found.append(last_use[place])
            if own is not None and each.phase is not Phase.UPDATE:
                touched |= dict.fromkeys((*own.forward, own.weights), place)
            continue
        is_product = is_product_class(name)
        reads_weights = is_product and each.role is Role.INPUT_GRADIENT and own.has_weights
        read = () if name in GRADIENTS_ALONE else (own.weights,) if reads_weights else own.kept
        found.append(min((touched.get(each, last_use[place]) for each in read), default=None))
        (of_products if is_product else touched).update(dict.fromkeys(read, place))
    return found
