"""The largest elements along an axis, in order; all of them where it is a sort."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_axis, check_choice, check_count, is_open_size, refuse
from perfmodel.layers.passes import INDEX_BYTES
from perfmodel.layers.shapes import Shape, ShapeMismatchError, SharedShape, axis_in, element_count, shape_text
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator
from perfmodel.records import MemoryPass, Operation, Role

RESULTS = ("values", "index")
"""What is handed on."""


def _largest(call: OperatorCall, x: Operand, axis: int) -> Translation | None:
    place = x.sample_axis(axis)
    if place is None:
        return None  # among samples
    result = "index" if call.output.is_index else "values"
    return Translation(layer=TopK(count=call.output.shape[place], axis=place, result=result), inputs=(x,))


def _from_torch(call: OperatorCall) -> Translation | None:
    return _largest(call, call["self"], call.get("dim", -1))


def _from_onnx(call: OperatorCall) -> Translation | None:
    return _largest(call, call["0"], call.get("axis", -1))


@final
@dataclass(frozen=True, kw_only=True)
class TopK(Layer):
    """The ``count`` largest (or smallest) elements of each row along an axis, in order, or where they are.

    Parameters
    ----------
    count : int
        Elements that are kept of each row. [1]
    axis : int
        Axis of a sample; negative counts from the last. [-]
    result : str
        ``values``, or ``index`` for their positions. [-]

    Notes
    -----
    Each of the n elements is placed among those kept by bisection: log2(count + 1) comparisons, rounded up. Forward
    reads x and writes values and an index of 4 B for each kept element. Backward clears dx and puts dy at the
    indices, which are kept; positions have no gradient.
    """

    kind: ClassVar[str] = "top_k"
    examples: ClassVar[Examples] = (
        ({"count": 2}, ((5, 6),)),
        ({"count": 3, "axis": 0, "result": "index"}, ((4, 9, 9),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"count": 2}, (("S", "F"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.topk": _from_torch,
        "aten.sort": _from_torch,
        "aten.argsort": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"TopK": _from_onnx}
    keeps_inputs: ClassVar[bool] = False
    count: int
    axis: int = -1
    result: str = "values"

    def __post_init__(self) -> None:
        check_count("count", self.count)
        if is_open_size(self.count):
            refuse("count", self.count, "must be a number")
        check_axis("axis", self.axis)
        check_choice("result", self.result, RESULTS)

    def differentiable(self, input_count: int) -> tuple[bool, ...]:
        """Tell for each of ``input_count`` inputs [1] whether it has a gradient: positions have none."""
        return (self.result == "values",) * input_count

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape with ``count`` along the axis."""
        shape = input_shapes[0]
        place = axis_in(shape, self.axis)
        if not is_open_size(shape[place]) and self.count > shape[place]:
            problem = f"keeps {self.count} elements along axis {self.axis}, but its input is {shape_text(shape)}"
            raise ShapeMismatchError(problem)
        kept = (*shape[:place], self.count, *shape[place + 1 :])
        return SharedShape(kept) if isinstance(shape, SharedShape) else kept

    def _counts(self, input_shapes: tuple[Shape, ...], batch_size: Any) -> tuple[Any, Any]:
        """Return elements of the input, and those kept."""
        kept = element_count(self.output_shape(input_shapes), batch_size=batch_size)
        return element_count(input_shapes[0], batch_size=batch_size), kept

    def saved_index_count(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> Any:
        """Return the positions of what is kept [1]."""
        return self._counts(input_shapes, batch_size)[1]

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes values and indices."""
        elements, kept = self._counts(input_shapes, batch_size)
        return (
            MemoryPass(
                name="top_k",
                read_elements=elements,
                written_elements=kept,
                tensor_elements=elements,
                flop_count=self.count.bit_length() * elements,
                written_index_bytes=INDEX_BYTES * kept,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that clears dx and writes dy into it; nothing for positions."""
        if self.result == "index":
            return ()
        elements, kept = self._counts(input_shapes, batch_size)
        return (
            MemoryPass(
                name="top_k",
                read_elements=kept,
                written_elements=elements + kept,
                tensor_elements=elements,
                read_index_bytes=INDEX_BYTES * kept,
                role=Role.INPUT_GRADIENT,
            ),
        )
