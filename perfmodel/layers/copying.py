"""Layers that copy, join or move elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from perfmodel.layers.activation import ElementByElement
from perfmodel.layers.base import Checks, Layer, LayerByInput, OnePassLayer, Operations, Traffic, layer_kind, of_options
from perfmodel.layers.checks import check_axes, check_count, refuse
from perfmodel.layers.passes import broadcast_gradient, elementwise, only_pass
from perfmodel.layers.shapes import Shape, Shapes, SharedShape, element_count, mismatch, shape_text
from perfmodel.layers.translation import Operand, OperatorCall, Operators, Translation, of_first
from perfmodel.records import Role


def _copied(call: OperatorCall) -> Translation | None:
    if call.moved:
        return None  # into another order: elements are rearranged
    return Translation(layer=Copy(), inputs=(call.get("src", call.operands[0]),))


@layer_kind("copy")
class Copy(ElementByElement):
    """The same elements in new memory: a clone, or a change of data type.

    Notes
    -----
    Forward reads and writes every element once. Backward does nothing: dy is passed on.
    """

    operators: ClassVar[Operators] = dict.fromkeys(
        ("aten.clone", "aten._to_copy", "aten.lift_fresh_copy", "aten.copy", "Cast", "CastLike"), _copied
    )
    keeps_inputs: ClassVar[bool] = False
    flop_per_element: ClassVar[tuple[int, int]] = (0, 0)


QUANTISED_BYTES = 1
"""Size of an element of a quantised activation [B]."""


@layer_kind("quantize")
class Quantize(ElementByElement):
    """Elements rounded to eight bits, as a quantised network's activations are.

    Notes
    -----
    Forward divides, rounds, adds, and cuts off twice: 5 FLOP per element; reads x, writes 1 B for each. Backward does
    nothing: dy is passed on.
    """

    operators: ClassVar[Operators] = {"QuantizeLinear": lambda call: of_first(call, Quantize())}
    makes_mask: ClassVar[bool] = True
    keeps_inputs: ClassVar[bool] = False
    flop_per_element: ClassVar[tuple[int, int]] = (5, 0)


@layer_kind("dequantize")
class Dequantize(OnePassLayer):
    """Elements of eight bits as numbers of the network's type again.

    Notes
    -----
    Forward subtracts and multiplies: 2 FLOP per element; reads 1 B for each, writes y. Backward does nothing: dy is
    passed on.
    """

    operators: ClassVar[Operators] = {"DequantizeLinear": lambda call: of_first(call, Dequantize())}
    mask_inputs: ClassVar[tuple[int, ...]] = (0,)
    keeps_inputs: ClassVar[bool] = False

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, None]:
        """Return a pass that reads bytes and writes y."""
        elements = element_count(input_shapes[0], batch_size=batch_size)
        counts = {"read": 0, "written": elements, "flop": 2 * elements}
        return counts | {"read_index_bytes": QUANTISED_BYTES * elements}, None


def _joined(tensors: tuple[Operand, ...], place: int | None, *, new_axis: bool) -> Translation | None:
    if len(tensors) == 1 and not new_axis:
        return Translation(layer=Copy(), inputs=tensors)
    if place is None or len({tensor.is_shared for tensor in tensors}) > 1:
        return None  # along the batch axis, or of per-sample and shared tensors
    if len(tensors) == 1:
        return None
    return Translation(layer=Concat(axis=place, new_axis=new_axis), inputs=tensors)


def _from_torch_concat(call: OperatorCall) -> Translation | None:
    new_axis = call.operator == "aten.stack"
    tensors = tuple(tensor for tensor in call["tensors"] if new_axis or 0 not in tensor.shape)
    return _joined(tensors, call.output.sample_axis(call.get("dim", 0)), new_axis=new_axis)


def _from_onnx_concat(call: OperatorCall) -> Translation | None:
    return _joined(call.operands, call.output.sample_axis(call["axis"]), new_axis=False)


@layer_kind("concat")
class Concat(LayerByInput):
    """Two or more inputs side by side along one axis, or stacked along a new one; the other axes agree.

    Parameters
    ----------
    axis : int
        Axis of an output sample: 0 joins channels of (channels, height, width). [1]
    new_axis : bool
        Whether the axis is new: inputs of one shape are stacked. [-]

    Notes
    -----
    Copies, forward the inputs into the output, backward each wanted gradient out of it. In memory the gradients stay
    parts of the output's: only a library that reads them in one piece needs the copy, which is temporary.
    """

    operators: ClassVar[Operators] = {
        "aten.cat": _from_torch_concat,
        "aten.stack": _from_torch_concat,
        "Concat": _from_onnx_concat,
    }
    keeps_inputs: ClassVar[bool] = False
    gradient_is_view: ClassVar[bool] = True
    input_counts: ClassVar[tuple[int, int | None]] = (2, None)
    checks: ClassVar[Checks] = {"axis": partial(check_count, minimum=0)}
    axis: int = 0
    new_axis: bool = False

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the first input's shape with the joined axis summed, or the new axis inserted."""
        first = input_shapes[0]
        if self.new_axis:
            if any(shape != first for shape in input_shapes) or self.axis > len(first):
                shapes = " and ".join(map(shape_text, input_shapes))
                mismatch(f"stacks inputs of one shape along a new axis {self.axis}, but they are {shapes}")
            return (*first[: self.axis], len(input_shapes), *first[self.axis :])
        others = {(len(shape), shape[: self.axis], shape[self.axis + 1 :]) for shape in input_shapes}
        if self.axis >= len(first) or len(others) > 1:
            shapes = " and ".join(map(shape_text, input_shapes))
            mismatch(f"joins along axis {self.axis} inputs that agree in all others, but they are {shapes}")
        joined = sum(shape[self.axis] for shape in input_shapes)
        return (*first[: self.axis], joined, *first[self.axis + 1 :])

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return one pass that copies all inputs."""
        return (elementwise("concat", batch_size * sum(map(math.prod, input_shapes))),)

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return one pass that copies the wanted gradients."""
        if not any(wanted):
            return ()
        copied = sum(math.prod(shape) for shape, is_wanted in zip(input_shapes, wanted, strict=True) if is_wanted)
        return (elementwise("concat", batch_size * copied, role=Role.INPUT_GRADIENT),)


def _ordered(x: Operand, order: Sequence[int], *, copies: bool) -> Translation:
    """Return a sample's axes in the order that the whole tensor's axes take."""
    places = [x.sample_axis(axis) for axis in order]
    axes = tuple(place for place in places if place is not None)
    axes = (*axes, len(x.shape) - 1) if x.is_complex else axes
    moves = copies and axes != tuple(range(len(axes)))
    return Translation(layer=Transpose(axes=axes, copies=moves), inputs=(x,))


def _exchanged(call: OperatorCall) -> Translation:
    x = call["self"]
    order = list(range(len(x.axes)))
    if len(order) > 1:
        first, second = call.get("dim0", 0), call.get("dim1", 1)
        order[first], order[second] = order[second], order[first]
    return _ordered(x, order, copies=False)


def _from_onnx_transpose(call: OperatorCall) -> Translation:
    x = call["0"]
    return _ordered(x, call.get("perm") or tuple(reversed(range(len(x.axes)))), copies=True)


@layer_kind("transpose")
class Transpose(OnePassLayer):
    """The axes of a sample in another order.

    Parameters
    ----------
    axes : tuple of int
        For each axis of the output, its axis in the input. [-]
    copies : bool
        Whether the elements are moved; otherwise the output is a view. [-]

    Notes
    -----
    A copy reads and writes every element once in either direction; a view costs nothing.
    """

    operators: ClassVar[Operators] = {
        "aten.permute": lambda call: _ordered(call["self"], call["dims"], copies=False),
        "aten.transpose": _exchanged,
        "aten.t": _exchanged,
        "Transpose": _from_onnx_transpose,
    }
    keeps_inputs: ClassVar[bool] = False
    checks: ClassVar[Checks] = {"axes": check_axes}
    pass_name: ClassVar[str] = "rearrange"
    is_view: ClassVar[bool] = of_options(lambda layer: not layer.copies)
    turns_axes: ClassVar[bool] = of_options(lambda layer: layer.is_view and layer.axes != tuple(sorted(layer.axes)))
    axes: tuple[int, ...]
    copies: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if sorted(self.axes) != list(range(len(self.axes))):
            refuse("axes", self.axes, f"must name each of the {len(self.axes)} axes once, from 0")

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the extents in their new order."""
        if len(input_shapes[0]) != len(self.axes):
            mismatch(f"orders {len(self.axes)} axes, but its input is {shape_text(input_shapes[0])}")
        return tuple(input_shapes[0][axis] for axis in self.axes)

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic | None, Traffic | None]:
        """Return a pass that moves all elements, and one that moves them back; none for a view."""
        elements = element_count(input_shapes[0], batch_size=batch_size)
        move = {"read": elements, "written": elements} if self.copies else None
        return move, move


REARRANGING = (
    *("aten.roll", "aten.flip", "aten.rot90", "aten.pixel_shuffle", "aten.pixel_unshuffle", "aten.channel_shuffle"),
    *("aten.native_channel_shuffle", "aten.tril", "aten.triu", "aten.repeat"),
    *("DepthToSpace", "SpaceToDepth", "Tile", "Trilu", "ReverseSequence"),
)
"""Operators that move elements."""


def _from_call(call: OperatorCall) -> Translation | None:
    x, output = call.operands[0], call.output
    layer = Rearrange(shape=tuple(output.shape), per_sample=x.is_shared and not output.is_shared)
    return Translation(layer=layer, inputs=(x,))


@layer_kind("rearrange")
class Rearrange(Layer):
    """A copy of a tensor with elements moved, axes reordered, or parts repeated.

    Parameters
    ----------
    shape : tuple of int
        Shape of an output sample. [1]
    per_sample : bool
        Whether every sample gets its own part of the output although all share the input. [-]
    copies_back : bool
        Whether the gradient is copied too; False if its readers accept it in place. [-]

    Notes
    -----
    Forward reads every element of the input once and writes the output. Backward moves dy back: where elements were
    repeated it sums over the repeats, a read and an add for each element of dy.
    """

    operators: ClassVar[Operators] = {
        **dict.fromkeys(REARRANGING, _from_call),
        "aten.clone": lambda call: _from_call(call) if call.moved else None,
    }
    keeps_inputs: ClassVar[bool] = False
    makes_samples: ClassVar[bool] = of_options(lambda layer: layer.per_sample)
    shape: Shape
    per_sample: bool = False
    copies_back: bool = True

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the requested shape."""
        is_shared = isinstance(input_shapes[0], SharedShape) and not self.per_sample
        return SharedShape(self.shape) if is_shared else self.shape

    def _counts(self, input_shapes: Shapes, batch_size: Any) -> tuple[Any, Any]:
        """Return elements of input and output."""
        output = self.output_shape(input_shapes)
        return element_count(input_shapes[0], batch_size=batch_size), element_count(output, batch_size=batch_size)

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return one pass that reads x and writes y."""
        read, written = self._counts(input_shapes, batch_size)
        return only_pass("rearrange", read=read, written=written)

    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return one pass that moves dy back, or sums it, or nothing."""
        if not self.copies_back:
            return ()
        moved, elements = self._counts(input_shapes, batch_size)
        one_sample = self._counts(input_shapes, 1)
        if one_sample[0] != one_sample[1] or self.per_sample:
            return (broadcast_gradient(elements, operand_elements=moved),)
        return only_pass("rearrange", read=elements, written=moved, tensor=elements, role=Role.INPUT_GRADIENT)
