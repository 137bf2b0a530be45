"""Reductions over axes of a sample and the mini-batch, listed in a table, and running totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from perfmodel.layers.activation import Pointwise
from perfmodel.layers.base import Checks, OnePassLayer, Traffic, layer_kind, of_options
from perfmodel.layers.checks import check_axes, one_of, optional
from perfmodel.layers.passes import INDEX_BYTES, MASK_BYTES
from perfmodel.layers.shapes import Shape, Shapes, SharedShape, axis_in, element_count
from perfmodel.layers.translation import (
    Operand,
    OperatorCall,
    Operators,
    Translation,
    function_names,
    function_table,
    of_first,
)


@dataclass(frozen=True, slots=True)
class ReducingFunction:
    """Cost of a reduction.

    Parameters
    ----------
    flop : int
        Arithmetic per element read. [FLOP]
    flop_per_result : int
        Arithmetic per result, besides. [FLOP]
    gradient : tuple of int or None
        Arithmetic per element of dx, and per element of dy besides; None where there is no gradient. [FLOP]
    reads_input, reads_output : bool
        Whether the gradient reads x and y besides dy. [-]
    writes : str
        ``elements``, ``index`` or ``mask``: kind of the result. [-]
    finds_place : bool
        Whether it also writes the position of each result, which is then all that the gradient reads besides dy. [-]
    scratch : int
        Tensors like x that torch makes between dy and dx. [1]
    """

    flop: int
    flop_per_result: int = 0
    gradient: Sequence[int] | None = None
    reads_input: bool = False
    reads_output: bool = False
    writes: Literal["elements", "index", "mask"] = "elements"
    finds_place: bool = False
    scratch: int = 0


FUNCTIONS = {name: ReducingFunction(**row) for name, row in function_table("reduction").items()}
"""Function -> counts."""

_RESULT_BYTES = {"elements": 0, "index": INDEX_BYTES, "mask": MASK_BYTES}


TORCH_NAMES = function_names("reduction", "torch")
"""Operator of torch -> function."""

ONNX_NAMES = function_names("reduction", "onnx")
"""Operator of ONNX -> function."""


def _reduced(call: OperatorCall, function: str, x: Operand, dims: Any, *, keeps_axes: bool) -> Translation:
    """Return the reduction along axes of the whole tensor; over all of them if none is named."""
    named = (dims,) if isinstance(dims, int) else tuple(dims or ()) or tuple(range(len(x.axes)))
    places = sorted({place for place in map(x.sample_axis, named) if place is not None} if x.axes else set())
    if call.output.is_index and function.startswith(("max", "min")):
        function = f"arg{function[:3]}"
    layer = Reduction(
        function=function,
        axes=None if len(places) == len(x.shape) else tuple(places),
        keep_axes=keeps_axes,
        over_batch=call.output.is_shared and not x.is_shared,
    )
    return of_first(call, layer)


def _from_torch(call: OperatorCall) -> Translation | None:
    if isinstance(call.get("other"), Operand):
        return None  # the larger of two tensors
    keeps_axes = bool(call.get("keepdim", False)) and call.get("dim") is not None
    function = TORCH_NAMES[call.operator]
    if call.operator in ("aten.max", "aten.min") and call.get("dim") is not None:
        function = f"{function}_and_place"
    return _reduced(call, function, call["self"], call.get("dim"), keeps_axes=keeps_axes)


def _from_onnx(call: OperatorCall) -> Translation | None:
    is_index = ONNX_NAMES[call.operator] in ("argmax", "argmin")
    dims = call.get("axis", 0) if is_index else call.get("axes")
    if isinstance(dims, Operand) or (dims is None and call.get("noop_with_empty_axes", 0)):
        return None
    keeps_axes = bool(call.get("keepdims", 1))
    return _reduced(call, ONNX_NAMES[call.operator], call["0"], dims, keeps_axes=keeps_axes)


@layer_kind("reduction")
class Reduction(OnePassLayer):
    """One number for all elements along some axes.

    Parameters
    ----------
    function : str
        A word of ``FUNCTIONS``: ``sum``, ``mean``, ``max`` ... [-]
    axes : tuple of int or None
        Axes of a sample to reduce, counted from the end if negative; None for all. [-]
    keep_axes : bool
        Whether they stay, with extent 1; a reduced batch then stays as the first axis. [-]
    over_batch : bool
        Whether the samples of the mini-batch are reduced together, so that all share the result. [-]

    Notes
    -----
    Forward reads x once and writes the results. Backward writes dx from dy and what the formula in ``FUNCTIONS`` reads,
    in one pass; a sum's gradient is dy seen through a view, which costs nothing. A maximum with its place writes and
    keeps an index for each result; backward reads it and dy. An index is 4 B, a Boolean 1 B.
    """

    operators: ClassVar[Operators] = {
        **dict.fromkeys(TORCH_NAMES, _from_torch),
        **dict.fromkeys(ONNX_NAMES, _from_onnx),
    }
    checks: ClassVar[Checks] = {"function": one_of(FUNCTIONS), "axes": optional(check_axes)}
    pass_name: ClassVar[str] = of_options(lambda layer: layer.function)
    keeps_inputs: ClassVar[bool] = of_options(lambda layer: layer._of_function.reads_input)
    keeps_output: ClassVar[bool] = of_options(lambda layer: layer._of_function.reads_output)
    makes_mask: ClassVar[bool] = of_options(lambda layer: layer._of_function.writes == "mask")
    function: str
    axes: tuple[int, ...] | None = None
    keep_axes: bool = False
    over_batch: bool = False

    @property
    def _of_function(self) -> ReducingFunction:
        return FUNCTIONS[self.function]

    def backward_scratch_bytes(
        self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int, wanted: Sequence[bool]
    ) -> Any:
        """Return the bytes of the tensors of x's size between the operators of the formula [B]."""
        return self._of_function.scratch * element_bytes * element_count(input_shapes[0], batch_size=batch_size)

    def differentiable(self, input_count: int) -> tuple[bool, ...]:
        """Return whether the function has a gradient, for each of ``input_count`` inputs [1]."""
        return (self._of_function.gradient is not None,) * input_count

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the remaining axes."""
        shape = input_shapes[0]
        reduced = set(range(len(shape))) if self.axes is None else {axis_in(shape, axis) for axis in self.axes}
        kept = enumerate(shape)
        left = tuple(1 if axis in reduced else extent for axis, extent in kept if self.keep_axes or axis not in reduced)
        if self.over_batch and self.keep_axes and not isinstance(shape, SharedShape):
            left = (1, *left)
        return SharedShape(left) if self.over_batch or isinstance(shape, SharedShape) else left

    def saved_index_count(self, input_shapes: Shapes, *, batch_size: Any) -> Any:
        """Return the positions of the results, if they are written [1]."""
        if not self._of_function.finds_place:
            return 0
        return element_count(self.output_shape(input_shapes), batch_size=batch_size)

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic | None]:
        """Return a pass that reads x and writes the results, and one that reads the operands of its formula, if any."""
        of_function = self._of_function
        elements = element_count(input_shapes[0], batch_size=batch_size)
        results = element_count(self.output_shape(input_shapes), batch_size=batch_size)
        place_bytes = INDEX_BYTES * self.saved_index_count(input_shapes, batch_size=batch_size)
        forward = {
            "read": elements,
            "written": results if of_function.writes == "elements" else 0,
            "tensor": elements,
            "flop": of_function.flop * elements + of_function.flop_per_result * results,
            "written_index_bytes": _RESULT_BYTES[of_function.writes] * results + place_bytes,
        }
        if not any(of_function.gradient or ()) and not of_function.finds_place:
            return forward, None
        flop, flop_per_result = of_function.gradient or (0, 0)
        return forward, {
            "read": (1 + of_function.reads_output) * results + int(of_function.reads_input) * elements,
            "written": elements,
            "flop": flop * elements + flop_per_result * results,
            "read_index_bytes": place_bytes,
        }


FLOP_PER_ELEMENT = {"sum": (1, 1), "product": (1, 3)}
"""Function -> arithmetic per element, forward and backward [FLOP]."""


def _total(call: OperatorCall) -> Translation:
    return of_first(call, Cumulative(function="product" if call.operator == "aten.cumprod" else "sum"))


@layer_kind("cumulative")
class Cumulative(Pointwise):
    """Running sum or product of the elements of each row.

    Parameters
    ----------
    function : str
        ``sum`` or ``product``. [-]

    Notes
    -----
    1 FLOP per element forward. Backward, the sum adds dy from the end: 1 FLOP; the product adds dy y from the end and
    divides by x: 3 FLOP, reads dy, x and y.
    """

    operators: ClassVar[Operators] = dict.fromkeys(("aten.cumsum", "aten.cumprod", "CumSum"), _total)
    checks: ClassVar[Checks] = {"function": one_of(FLOP_PER_ELEMENT)}
    flop_per_element: ClassVar[tuple[int, int]] = of_options(lambda layer: FLOP_PER_ELEMENT[layer.function])
    keeps_inputs: ClassVar[bool] = of_options(lambda layer: layer.function == "product")
    keeps_output: ClassVar[bool] = of_options(lambda layer: layer.function == "product")
    function: str = "sum"

    def backward_scratch_bytes(
        self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int, wanted: Sequence[bool]
    ) -> Any:
        """Return the bytes of dy reversed and of its running totals, before these are reversed again [B]."""
        return 2 * element_bytes * element_count(input_shapes[0], batch_size=batch_size)
