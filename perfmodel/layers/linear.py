"""Products with weights, or of two activations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from perfmodel.layers.base import Layer, LayerByInput, Operations, layer_kind
from perfmodel.layers.checks import refuse
from perfmodel.layers.passes import bias_gradient, broadcast_gradient, one_pass, summed_repeats
from perfmodel.layers.shapes import (
    Shape,
    ShapeMismatchError,
    Shapes,
    SharedShape,
    broadcast_shape,
    element_count,
    is_spread,
    mismatch,
    shape_text,
)
from perfmodel.layers.translation import Operand, OperatorCall, Operators, Translation
from perfmodel.records import Contraction, Operation, Role

MATRIX_AXES = 2


def _dense(call: OperatorCall, x: Operand, weight: Any, bias: Operand | None, *, units_axis: int) -> Translation | None:
    """Return the layer of a product with a trained matrix, with outputs along one axis; None for any other product."""
    if not (isinstance(weight, Operand) and weight.is_parameter and len(weight.axes) == MATRIX_AXES):
        return None
    if not x.axes or x.axes[-1] is None:
        return None
    units = weight.shape[units_axis]
    if bias is not None and not (bias.is_parameter and math.prod(bias.shape) == units):
        return None
    parameters = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    layer = Dense(units=units, bias=bias is not None, adds_bias_apart=bias is not None and "aten.add" in call.parts)
    return Translation(layer=layer, inputs=(x,), parameters=parameters)


def _from_product(call: OperatorCall) -> Translation | None:
    if not _is_plain_sum(call):
        return None
    *bias, x, weight = call.operands
    return _dense(call, x, weight, bias[0] if bias else None, units_axis=1)


def _from_gemm_dense(call: OperatorCall) -> Translation | None:
    if call.get("transA", 0) or call.get("alpha", 1) != 1 or (call.get("2") and call.get("beta", 1) != 1):
        return None
    return _dense(call, call["0"], call["1"], call.get("2"), units_axis=0 if call.get("transB", 0) else 1)


def _is_plain_sum(call: OperatorCall) -> bool:
    """Return whether neither a product nor the term added to it is multiplied by a number."""
    return bool(call.get("alpha", 1) == call.get("beta", 1) == 1)


def is_dense(call: OperatorCall) -> bool:
    """Return whether a product is that of a fully connected layer."""
    reads = Dense.operators.get(call.operator)
    return reads is not None and reads(call) is not None


@layer_kind("dense")
class Dense(Layer):
    """Fully connected layer y = x W + b over the last axis; leading axes (steps) are rows.

    Parameters
    ----------
    units : int
        Output features. [1]
    bias : bool
        Whether a bias is added. [-]
    adds_bias_apart : bool
        Whether a separate pass adds the bias after the product, as in torch if the rows of the input do not follow
        one another in memory. [-]
    """

    operators: ClassVar[Operators] = {
        "aten.linear": lambda call: _dense(call, call["input"], call["weight"], call.get("bias"), units_axis=0),
        "Gemm": _from_gemm_dense,
        **dict.fromkeys(("aten.addmm", "aten.mm", "aten.matmul", "MatMul"), _from_product),
    }
    inputs_serve_weights: ClassVar[bool] = True
    width_option: ClassVar[str | None] = "units"
    units: int
    bias: bool = True
    adds_bias_apart: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adds_bias_apart and not self.bias:
            refuse("adds_bias_apart", self.adds_bias_apart, "must be False without a bias")

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input shape with its last axis replaced by ``units``."""
        if not input_shapes[0]:
            mismatch(f"takes samples of (..., features), but its input is {shape_text(input_shapes[0])}")
        return (*input_shapes[0][:-1], self.units)

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return the weight matrix and, if any, the bias."""
        shapes: dict[str, Shape] = {"weight": (input_shapes[0][-1], self.units)}
        return shapes | {"bias": (self.units,)} if self.bias else shapes

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return one product of rows and weights, and the sum with the bias if it is a separate pass."""
        *leading, features = input_shapes[0]
        rows = batch_size * math.prod(leading)
        bias_elements = self.units if self.bias and not self.adds_bias_apart else 0
        product = Contraction(m=rows, n=self.units, k=features, bias_elements=bias_elements)
        if not self.adds_bias_apart:
            return (product,)
        elements = rows * self.units
        added = one_pass("add", read=elements + self.units, written=elements, flop=elements)
        return (product, added)

    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the products dx = dy W^T and dW = x^T dy, and the bias's sum."""
        *leading, features = input_shapes[0]
        rows = batch_size * math.prod(leading)
        products: Operations = (
            Contraction(m=rows, n=features, k=self.units, role=Role.INPUT_GRADIENT),
            Contraction(m=features, n=self.units, k=rows, role=Role.WEIGHT_GRADIENT),
        )
        bias = (bias_gradient(rows * self.units, bias_elements=self.units),) if self.bias else ()
        return (*products, *bias)


def _product(
    call: OperatorCall, first: Operand, second: Operand, *added: Operand, **options: bool
) -> Translation | None:
    """Return the layer of a product; None if another layer has the weights or samples combine differently."""
    both_shared = first.is_shared and second.is_shared
    sums_samples = call.output.is_shared and not (first.is_shared or second.is_shared)
    if is_dense(call) or (call.output.is_shared != both_shared and not sums_samples):
        return None
    turned = [options.get(name, False) for name in ("transpose_first", "transpose_second")]
    rows, first_inner = _row_and_column(first, is_transposed=turned[0], is_column=False)
    second_inner, columns = _row_and_column(second, is_transposed=turned[1], is_column=True)
    if sums_samples:
        if (first_inner is None) != (second_inner is None):
            return None
        layer = MatMul(samples_are_inner=True) if first_inner is None else MatMul(over_batch=True, **options)
        return Translation(layer=layer, inputs=(first, second, *added))
    if None in (first_inner, second_inner):
        return None
    if rows is None and len(first.shape) > 1:  # one matrix for each place of the leading axes
        layer = MatMul(samples_are_rows=True, transpose_second=turned[1])
        return Translation(layer=layer, inputs=(first, second, *added))
    if columns is None:  # (A B)^T = B^T A^T has the samples as rows
        layer = MatMul(samples_are_rows=True, transpose_second=not turned[0])
        return Translation(layer=layer, inputs=(second, first, *added))
    return Translation(layer=MatMul(**options), inputs=(first, second, *added))


def _row_and_column(operand: Operand, *, is_transposed: bool, is_column: bool) -> tuple[int | None, int | None]:
    """Return the positions of a factor's rows and columns in a sample, None for the batch axis; -1 if it has none."""
    if len(operand.axes) == 1:
        return (operand.axes[0], -1) if is_column else (-1, operand.axes[0])
    rows, columns = operand.axes[-2:]
    return (columns, rows) if is_transposed else (rows, columns)


def _from_call(call: OperatorCall) -> Translation | None:
    *added, first, second = call.operands
    return _product(call, first, second, *added) if _is_plain_sum(call) else None


def _from_gemm_matmul(call: OperatorCall) -> Translation | None:
    if call.get("alpha", 1) != 1 or (call.get("2") and call.get("beta", 1) != 1):
        return None
    first, second, *added = call.operands
    turns_first, turns_second = bool(call.get("transA", 0)), bool(call.get("transB", 0))
    return _product(call, first, second, *added, transpose_first=turns_first, transpose_second=turns_second)


@dataclass(frozen=True, slots=True)
class _Products:
    """``count`` products C[rows, columns] = A[rows, inner] B[inner, columns], and the shapes they come from."""

    count: Any
    rows: Any
    inner: Any
    columns: Any
    output: Shape
    repeated: tuple[bool, bool]

    def contraction(self, m: Any, n: Any, k: Any, *, role: Role = Role.OUTPUT, bias_elements: Any = 0) -> Contraction:
        sizes = {"m": m, "n": n, "k": k, "count": self.count, "bias_elements": bias_elements}
        return Contraction(**sizes, role=role, has_weights=False)


def _matrix(shape: Shape, *, is_transposed: bool, is_column: bool) -> tuple[Shape, Any, Any]:
    """Return leading axes, rows and columns of an input; an input of one axis is a row or a column."""
    if len(shape) == 1:
        return ((), shape[0], 1) if is_column else ((), 1, shape[0])
    rows, columns = shape[-2:]
    return (shape[:-2], columns, rows) if is_transposed else (shape[:-2], rows, columns)


@layer_kind("matmul")
class MatMul(LayerByInput):
    """Matrix product over the last two axes of two inputs, whose leading axes broadcast; a third input is added to it.

    An input of one axis is a vector: a row in the first place, a column in the second, and its axis is not in the
    result.

    Parameters
    ----------
    transpose_first, transpose_second : bool
        Whether the last two axes of that input are exchanged. [-]
    samples_are_rows : bool
        Whether the samples are the rows of the first input, which then has no axis of rows: (..., inner) of every
        sample times (..., inner, columns), which all samples share. [-]
    samples_are_inner : bool
        Whether the sum runs over the samples, and no input has an axis for it: (..., rows) and (..., columns) of every
        sample give (..., rows, columns), which all samples share. [-]
    over_batch : bool
        Whether the products of all samples are added up, so that all share the result. [-]

    Notes
    -----
    One product of the two matrices of each sample and place of the leading axes, 2 x rows x inner x columns FLOP; where
    all samples share the second input and it is one matrix, a single product with the rows of all samples; where they
    share the first, one product per sample. Where samples are summed, one product whose sum runs over the samples and,
    within each, over inner. Backward the two products dA = dC B^T and dB = A^T dC, and for an input
    that was repeated over samples or leading axes the sum over the repeats.
    """

    operators: ClassVar[Operators] = {
        **{f"aten.{name}": _from_call for name in ("mm", "bmm", "matmul", "mv", "dot", "addmm", "baddbmm", "addmv")},
        "MatMul": _from_call,
        "Gemm": _from_gemm_matmul,
    }
    input_counts: ClassVar[tuple[int, int | None]] = (2, 3)
    transpose_first: bool = False
    transpose_second: bool = False
    samples_are_rows: bool = False
    samples_are_inner: bool = False
    over_batch: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples_are_rows + self.samples_are_inner + self.over_batch > 1:
            refuse("over_batch", self.over_batch, "must not be combined with the other two options")

    def kept_inputs(self, wanted: Sequence[bool], *, is_trained: bool) -> tuple[bool, ...]:
        """Return each factor if the other's gradient is needed; the term added to the product is not read."""
        return (wanted[1], wanted[0], *(False for _ in wanted[2:]))

    def _refuse(self, input_shapes: Shapes) -> NoReturn:
        mismatch(f"takes matrices that fit one another, but they are {' and '.join(map(shape_text, input_shapes))}")

    def _products(self, input_shapes: Shapes, batch_size: Any) -> _Products:
        """Return the products; raise ShapeMismatchError for shapes that do not fit."""
        if self.samples_are_inner or self.over_batch:
            return self._summed_products(input_shapes, batch_size)
        first, second, *_ = input_shapes
        first_shared, second_shared = (isinstance(shape, SharedShape) for shape in (first, second))
        if not first or not second or (self.samples_are_rows and (first_shared or not second_shared)):
            self._refuse(input_shapes)
        second_lead, inner, columns = _matrix(second, is_transposed=self.transpose_second, is_column=True)
        if self.samples_are_rows:
            first_lead, rows, first_inner = first[:-1], batch_size, first[-1]
        else:
            first_lead, rows, first_inner = _matrix(first, is_transposed=self.transpose_first, is_column=False)
        if first_inner != inner:
            self._refuse(input_shapes)
        leads = [
            SharedShape(lead) if is_shared else lead
            for lead, is_shared in ((first_lead, first_shared), (second_lead, second_shared))
        ]
        try:
            lead = broadcast_shape(leads)
        except ShapeMismatchError:
            self._refuse(input_shapes)
        own_rows = (rows,) if len(first) > 1 and not self.samples_are_rows else ()
        output = (*lead, *own_rows, *((columns,) if len(second) > 1 else ()))
        repeated = (is_spread(leads[0], lead), is_spread(leads[1], lead))
        count = element_count(lead, batch_size=batch_size)
        if self.samples_are_rows:
            count, repeated = math.prod(lead), (first_lead != lead, tuple(second_lead) != lead)
        elif second_shared and not first_shared and all(extent == 1 for extent in second_lead):
            count, rows, repeated = 1, count * rows, (False, False)
        kind = SharedShape if first_shared and second_shared else tuple
        return _Products(count, rows, inner, columns, kind(output), repeated)

    def _summed_products(self, input_shapes: Shapes, batch_size: Any) -> _Products:
        """Return products whose sums also run over the samples."""
        first, second, *added = input_shapes
        if isinstance(first, SharedShape) or isinstance(second, SharedShape):
            self._refuse(input_shapes)
        if not all(isinstance(shape, SharedShape) for shape in added):
            self._refuse(input_shapes)
        if self.samples_are_inner:
            inner = 1
            leads = (first[:-1], second[:-1])
            axes = (first[-1:], second[-1:])
        else:
            if not first or not second:
                self._refuse(input_shapes)
            first_lead, rows, inner = _matrix(first, is_transposed=self.transpose_first, is_column=False)
            second_lead, second_inner, columns = _matrix(second, is_transposed=self.transpose_second, is_column=True)
            if inner != second_inner:
                self._refuse(input_shapes)
            leads = (first_lead, second_lead)
            axes = ((rows,) if len(first) > 1 else (), (columns,) if len(second) > 1 else ())
        try:
            lead = tuple(broadcast_shape(leads))
        except ShapeMismatchError:
            self._refuse(input_shapes)
        return _Products(
            count=math.prod(lead),
            rows=math.prod(axes[0]),
            inner=batch_size * inner,
            columns=math.prod(axes[1]),
            output=SharedShape((*lead, *axes[0], *axes[1])),
            repeated=(is_spread(leads[0], lead), is_spread(leads[1], lead)),
        )

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return leading axes, rows of the first and columns of the second input."""
        output = self._products(input_shapes, 1).output
        for added in input_shapes[2:]:
            if len(added) > len(output) or any(
                extent not in (1, of) for extent, of in zip(reversed(added), reversed(output), strict=False)
            ):
                self._refuse(input_shapes)
        return output

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the products."""
        of = self._products(input_shapes, batch_size)
        added = sum(element_count(shape, batch_size=batch_size) for shape in input_shapes[2:])
        return (of.contraction(of.rows, of.columns, of.inner, bias_elements=added),)

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return the products of the wanted gradients."""
        of = self._products(input_shapes, batch_size)
        sizes = ((of.rows, of.inner, of.columns), (of.inner, of.columns, of.rows))
        operations: list[Operation] = []
        for shape, size, is_repeated, is_wanted in zip(input_shapes, sizes, of.repeated, wanted, strict=False):
            if is_wanted:
                operations.append(of.contraction(*size, role=Role.INPUT_GRADIENT))
                if is_repeated:
                    made = of.count * size[0] * size[1]
                    elements = element_count(shape, batch_size=batch_size)
                    operations.append(broadcast_gradient(made, operand_elements=elements))
        for shape in input_shapes[2:]:
            if wanted[2]:
                operations += summed_repeats(shape, of.output, batch_size=batch_size)
        return tuple(operations)
