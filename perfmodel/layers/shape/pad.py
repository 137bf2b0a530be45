"""Padding of a sample's axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_choice, is_open_size, refuse
from perfmodel.layers.shapes import Shape, ShapeMismatchError, shape_text
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator
from perfmodel.layers.window import Pair
from perfmodel.layers.window_operators import onnx_pads
from perfmodel.numeric import minimum
from perfmodel.records import MemoryPass, Operation, Role
from perfmodel.symbolic import is_symbolic

CONSTANT = "constant"
COPIES = ("reflect", "replicate", "wrap")
"""Modes in which padding holds copies of elements, whose gradients are added to theirs."""
ONNX_MODES = {"constant": CONSTANT, "reflect": "reflect", "edge": "replicate", "wrap": "wrap"}


def _from_pairs(data: Operand, by_axis: Mapping[int, Pair], mode: str) -> Translation | None:
    """Return the padding of full axes, counted from the start; None where the batch is padded."""
    pairs: list[Pair] = [(0, 0)] * len(data.shape)
    for axis, pair in by_axis.items():
        place = data.sample_axis(axis)
        if place is not None:
            pairs[place] = pair
        elif any(pair):
            return None
    return Translation(layer=Pad(padding=tuple(pairs), mode=mode), inputs=(data,))


def _from_torch(call: OperatorCall, *, mode: str, name: str = "padding") -> Translation | None:
    data, given = call["self"], call[name]
    last = len(data.axes) - 1
    # torch counts axes from the last one
    return _from_pairs(data, {last - index: given[2 * index : 2 * index + 2] for index in range(len(given) // 2)}, mode)


def _from_onnx(call: OperatorCall) -> Translation | None:
    data, pads, axes = call["0"], call.get("1"), call.get("3")
    given = pads.value if isinstance(pads, Operand) else call.get("pads")
    mode = ONNX_MODES.get(call.get("mode", CONSTANT))
    if given is None or mode is None or (axes is not None and axes.value is None):
        return None
    pairs = onnx_pads([int(each) for each in given])
    places = range(len(pairs)) if axes is None else [int(axis) % len(data.axes) for axis in axes.value]
    return _from_pairs(data, dict(zip(places, pairs, strict=True)), mode)


@final
@dataclass(frozen=True, kw_only=True)
class Pad(Layer):
    """Elements put before and after each axis: a constant, or copies of those inside.

    Parameters
    ----------
    padding : tuple of tuple of int
        Elements (before, after) each axis of a sample, e.g. ((0, 0), (1, 1), (1, 1)) around each image; negative ones
        cut off. [1]
    mode : str
        ``constant``, ``reflect``, ``replicate`` or ``wrap``. [-]

    Notes
    -----
    n elements that stay, o outputs. Forward reads n, writes o. Backward of a constant reads the n gradients of what
    stayed and writes them; of copies it reads all o and adds o - n of them to those of the elements copied. torch keeps
    the input of copies, of which it only needs the shape.
    """

    kind: ClassVar[str] = "pad"
    examples: ClassVar[Examples] = (
        ({"padding": ((0, 0), (1, 2), (1, 1))}, ((4, 9, 9),)),
        ({"padding": ((2, 2),), "mode": "reflect"}, ((5,),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"padding": ((0, 0), (1, 1), (1, 1))}, (("C", "H", "W"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.constant_pad_nd": partial(_from_torch, mode=CONSTANT, name="pad"),
        **{f"aten.reflection_pad{axes}d": partial(_from_torch, mode="reflect") for axes in (1, 2, 3)},
        **{f"aten.replication_pad{axes}d": partial(_from_torch, mode="replicate") for axes in (1, 2, 3)},
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Pad": _from_onnx}
    padding: tuple[Pair, ...]
    mode: str = CONSTANT

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, (CONSTANT, *COPIES))
        allowed = "must be a tuple of (before, after), whole numbers, one pair for each axis of a sample"
        if not isinstance(self.padding, Sequence) or isinstance(self.padding, str):
            refuse("padding", self.padding, allowed)
        for pair in self.padding:
            is_pair = isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
            if not is_pair or not all(is_open_size(each) or type(each) is int for each in pair):
                refuse("padding", self.padding, allowed)

    @property
    def keeps_inputs(self) -> bool:  # type: ignore[override]  # what is one fact elsewhere follows from the mode
        """Whether the input stays, as that of copies does."""
        return self.mode != CONSTANT

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape with every axis longer by what is put before and after it."""
        shape = input_shapes[0]
        if len(shape) != len(self.padding):
            problem = f"pads samples of {len(self.padding)} axes, but its input is {shape_text(shape)}"
            raise ShapeMismatchError(problem)
        padded = tuple(size + sum(pair) for size, pair in zip(shape, self.padding, strict=True))
        if any(not is_open_size(size) and size < 1 for size in padded):
            problem = f"its padding {self.padding} leaves nothing of its input {shape_text(shape)}"
            raise ShapeMismatchError(problem)
        return padded

    def _counts(self, shape: Shape, batch_size: Any) -> tuple[Any, Any]:
        """Return elements that stay, and elements of the output."""
        stay = math.prod(size + sum(map(_cut, pair)) for size, pair in zip(shape, self.padding, strict=True))
        return batch_size * stay, batch_size * math.prod(self.output_shape((shape,)))

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads what stays and writes the output."""
        stay, outputs = self._counts(input_shapes[0], batch_size)
        return (MemoryPass(name="pad", read_elements=stay, written_elements=outputs, tensor_elements=outputs),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads gradients of the output, or of what stayed of the input, and writes dx."""
        stay, outputs = self._counts(input_shapes[0], batch_size)
        copies = self.mode != CONSTANT
        return (
            MemoryPass(
                name="pad",
                read_elements=outputs if copies else stay,
                written_elements=batch_size * math.prod(input_shapes[0]),
                tensor_elements=outputs,
                flop_count=outputs - stay if copies else 0,
                role=Role.INPUT_GRADIENT,
            ),
        )


def _cut(added: Any) -> Any:
    """Return what a padding takes away: itself where it is negative."""
    return minimum(added, 0) if is_symbolic(added) else min(added, 0)
