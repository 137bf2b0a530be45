"""Fully connected layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_count, check_flag, refuse
from perfmodel.layers.passes import bias_gradient
from perfmodel.layers.shapes import Shape, ShapeMismatchError, shape_text
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator
from perfmodel.records import Contraction, MemoryPass, Operation, Role

MATRIX_AXES = 2


def _dense(call: OperatorCall, x: Operand, weight: Any, bias: Operand | None, *, units_axis: int) -> Translation | None:
    """Return the layer of a product with a trained matrix, its outputs along one axis; None where it is not that."""
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


def _from_linear(call: OperatorCall) -> Translation | None:
    return _dense(call, call["input"], call["weight"], call.get("bias"), units_axis=0)


def _from_product(call: OperatorCall) -> Translation | None:
    if call.operator != "aten.addmm":
        second = call["mat2"] if call.operator == "aten.mm" else call["other"]
        return _dense(call, call["self"], second, None, units_axis=1)
    is_plain = call.get("alpha", 1) == call.get("beta", 1) == 1
    return _dense(call, call["mat1"], call["mat2"], call["self"], units_axis=1) if is_plain else None


def _from_gemm(call: OperatorCall) -> Translation | None:
    if call.get("transA", 0) or call.get("alpha", 1) != 1 or (call.get("2") and call.get("beta", 1) != 1):
        return None
    return _dense(call, call["0"], call["1"], call.get("2"), units_axis=0 if call.get("transB", 0) else 1)


def _from_onnx_product(call: OperatorCall) -> Translation | None:
    return _dense(call, call["0"], call["1"], None, units_axis=1)


def is_dense(call: OperatorCall) -> bool:
    """Tell whether a product is that of a fully connected layer.

    Parameters
    ----------
    call : OperatorCall
        Call of any operator. [-]

    Returns
    -------
    bool
        True where one of the factors is a trained matrix, and so is the bias, if any. [-]
    """
    translators = Dense.torch_operators if "." in call.operator else Dense.onnx_operators
    reads = translators.get(call.operator)
    return reads is not None and reads(call) is not None


@final
@dataclass(frozen=True, kw_only=True)
class Dense(Layer):
    """Fully connected layer y = x W + b over the last axis; leading axes (steps) are rows.

    Parameters
    ----------
    units : int
        Output features. [1]
    bias : bool
        Whether a bias is added. [-]
    adds_bias_apart : bool
        Whether that is a pass of its own after the product, as torch does where the rows of the input do not follow
        one another in memory. [-]
    """

    kind: ClassVar[str] = "dense"
    examples: ClassVar[Examples] = (
        ({"units": 3}, ((10,),)),
        ({"units": 3, "bias": False}, ((5, 6),)),
        ({"units": 3, "adds_bias_apart": True}, ((5, 6),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"units": "U"}, (("S", "F"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.linear": _from_linear,
        "aten.addmm": _from_product,
        "aten.mm": _from_product,
        "aten.matmul": _from_product,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Gemm": _from_gemm, "MatMul": _from_onnx_product}
    inputs_serve_weights: ClassVar[bool] = True
    units: int
    bias: bool = True
    adds_bias_apart: bool = False

    def __post_init__(self) -> None:
        check_count("units", self.units)
        check_flag("bias", self.bias)
        check_flag("adds_bias_apart", self.adds_bias_apart)
        if self.adds_bias_apart and not self.bias:
            refuse("adds_bias_apart", self.adds_bias_apart, "must be False without a bias")

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input shape with its last axis replaced by ``units``."""
        if not input_shapes[0]:
            problem = f"takes samples of (..., features), but its input is {shape_text(input_shapes[0])}"
            raise ShapeMismatchError(problem)
        return (*input_shapes[0][:-1], self.units)

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
        """Return the weight matrix and, if any, the bias."""
        shapes: dict[str, Shape] = {"weight": (input_shapes[0][-1], self.units)}
        return shapes | {"bias": (self.units,)} if self.bias else shapes

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one product of rows and weights, and the sum with the bias where that is apart."""
        *leading, features = input_shapes[0]
        rows = batch_size * math.prod(leading)
        bias_elements = self.units if self.bias and not self.adds_bias_apart else 0
        product = Contraction(m=rows, n=self.units, k=features, bias_elements=bias_elements)
        if not self.adds_bias_apart:
            return (product,)
        elements = rows * self.units
        added = MemoryPass(
            name="add",
            read_elements=elements + self.units,
            written_elements=elements,
            tensor_elements=elements,
            flop_count=elements,
        )
        return (product, added)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the products dx = dy W^T and dW = x^T dy, and the bias's sum."""
        *leading, features = input_shapes[0]
        rows = batch_size * math.prod(leading)
        products: tuple[Operation, ...] = (
            Contraction(m=rows, n=features, k=self.units, role=Role.INPUT_GRADIENT),
            Contraction(m=features, n=self.units, k=rows, role=Role.WEIGHT_GRADIENT),
        )
        bias = (bias_gradient(rows * self.units, bias_elements=self.units),) if self.bias else ()
        return (*products, *bias)
