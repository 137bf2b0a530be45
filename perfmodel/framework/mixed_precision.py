"""Mixed precision: the type in which each layer computes, and the casts between types. No times here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from perfmodel.derived import derived
from perfmodel.hardware import source as spec
from perfmodel.layers.attention import SoftmaxTypes
from perfmodel.layers.passes import one_pass
from perfmodel.layers.shapes import element_count
from perfmodel.records import SINGLE_BYTES, Attention, Contraction, Convolution, MemoryPass, Operation, Recurrence, Role

if TYPE_CHECKING:
    from perfmodel.graph.node import Node

PRODUCTS = (Attention, Contraction, Convolution, Recurrence)
"""Operations whose operands are cast to the narrow type. [-]"""


class MixedPrecisionTable(spec.SpecTable):
    """Data types in which a framework computes and stores.

    The table holds for the narrow types in ``dtypes``. Layers and passes in ``single`` compute in single precision; if
    they are also in ``widening``, they read narrow elements and write wide ones, without a cast before; those in
    ``widening_halves`` do so with fp16 only. The result of a layer in ``keeps_type`` has the type of its input although
    its parameters are in single precision; ``keeps_type`` overrides ``single``, which a file may inherit. Narrow
    ``parameters`` lie beside the optimizer's copy in single precision, so that products need no cast of them.
    """

    dtypes: tuple[Literal["fp16", "bf16"], ...]
    single: tuple[spec.Identifier, ...]
    widening: tuple[spec.Identifier, ...]
    widening_halves: tuple[spec.Identifier, ...] = ()
    keeps_type: tuple[spec.Identifier, ...]
    parameters: Literal["single", "narrow"] = "single"
    gradients: Literal["single", "narrow"] = "single"

    @property
    @derived
    def with_halves(self) -> MixedPrecisionTable:
        """The table for fp16, and for compilers, which cast in the kernel that reads: all of them widen."""
        return self.model_copy(update={"widening": (*self.widening, *self.widening_halves)})

    @property
    def computed_in_single(self) -> frozenset[str]:
        """Layers and passes that compute in single precision. [-]"""
        return frozenset(self.single).difference(self.keeps_type)


class LayerTypes(NamedTuple):
    """Size of an element in a layer's kernels, and the tensors cast before them. [B], [elements]"""

    element_bytes: int
    result_bytes: int
    cast_inputs: tuple[int, ...]
    casts_weights: bool
    softmax: SoftmaxTypes | None = None
    """Types of the softmax of attention, where they differ from the type of the result. [-]"""


def layer_types(
    nodes: Sequence[Node],
    forward: Iterable[tuple[str, Operation]],
    *,
    rules: MixedPrecisionTable,
    narrow_bytes: int,
    narrow_parameters: bool,
) -> Mapping[str, LayerTypes]:
    """Follow types through a graph: products narrow them, listed layers and parameters widen them."""
    products, passes = set(), dict[str, set[str]]()
    single, widening = rules.computed_in_single, frozenset(rules.widening)
    held_bytes = narrow_bytes if narrow_parameters else SINGLE_BYTES
    for layer, operation in forward:
        if isinstance(operation, MemoryPass):
            passes.setdefault(layer, set()).add(operation.name)
        elif isinstance(operation, PRODUCTS):
            products.add(layer)
    types: dict[str, LayerTypes] = {}
    result: dict[str, int] = {}
    for node in nodes:
        values = {
            place: result.get(name, held_bytes)
            for place, name in enumerate(node.input_names)
            if place not in node.layer.index_inputs and place not in node.layer.mask_inputs
        }
        # a scalar does not widen a tensor
        read = [size for place, size in values.items() if math.prod(node.input_shapes[place]) != 1]
        names = (node.layer.kind, *passes.get(node.name, ()))
        is_single = not single.isdisjoint(names)
        widens = not widening.isdisjoint(names) and min(read, default=SINGLE_BYTES) == narrow_bytes
        has_wide_weights = (
            not narrow_parameters
            and node.layer.parameter_shapes(node.input_shapes)
            and node.layer.kind not in rules.keeps_type
        )
        if node.name in products:
            computed = narrow_bytes
        elif is_single or has_wide_weights:
            computed = SINGLE_BYTES
        elif not node.input_names:
            computed = held_bytes
        else:
            computed = max(read, default=narrow_bytes)
        result[node.name] = computed
        converts = node.name in products or (is_single and not widens)
        types[node.name] = LayerTypes(
            # of a tensor read and one written, on average
            element_bytes=(narrow_bytes + SINGLE_BYTES) // 2 if widens else computed,
            result_bytes=computed,
            cast_inputs=tuple(place for place, size in values.items() if converts and size != computed),
            casts_weights=node.name in products and not narrow_parameters,
            softmax=softmax_types(node, rules),
        )
    return types


def cast_passes(
    node: Node,
    types: LayerTypes,
    *,
    own_parameters: int,
    batch_size: Any,
    narrow_bytes: int,
    wanted: Sequence[bool] | None,
) -> tuple[Operation, ...]:
    """Return the passes that cast a layer's inputs and weights, or with ``wanted`` their gradients back."""
    wide = SINGLE_BYTES / narrow_bytes
    narrows = (types.element_bytes == narrow_bytes) == (wanted is None)
    role = Role.OUTPUT if wanted is None else Role.INPUT_GRADIENT

    def cast(elements: Any, *, role: Role, narrows: bool) -> Operation:
        reads, writes = (wide, 1) if narrows else (1, wide)
        return one_pass("cast", read=reads * elements, written=writes * elements, tensor=elements, role=role)

    tensors = [
        cast(element_count(node.input_shapes[place], batch_size=batch_size), role=role, narrows=narrows)
        for place in types.cast_inputs
        if wanted is None or wanted[place]
    ]
    if types.casts_weights and own_parameters and (wanted is None or node.trains_weights):
        weight_role = Role.OUTPUT if wanted is None else Role.WEIGHT_GRADIENT
        tensors.append(cast(own_parameters, role=weight_role, narrows=wanted is None))
    return tuple(tensors)


def softmax_types(node: Node, rules: MixedPrecisionTable) -> SoftmaxTypes | None:
    """Return the types of softmax if separate kernels compute attention in single precision.

    Where it does not widen its operand itself, scores are cast to single precision: just before it, where it would
    widen halves, else before they are scaled and masked.
    """
    is_materialised = getattr(node.layer, "scores", None) == "materialised"
    if not is_materialised or getattr(node.layer, "fused_softmax", False):
        return None
    if "softmax" in rules.widening:
        return SoftmaxTypes(SINGLE_BYTES)
    if "softmax" not in rules.computed_in_single:
        return None
    return SoftmaxTypes(SINGLE_BYTES, casts_scores=True, scales_wide="softmax" not in rules.widening_halves)
