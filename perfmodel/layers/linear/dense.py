"""Fully connected layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_count, check_flag
from perfmodel.layers.passes import bias_gradient
from perfmodel.layers.shapes import SEQUENCE, Shape, check_rank
from perfmodel.records import Contraction, Operation, Role


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
    """

    kind: ClassVar[str] = "dense"
    examples: ClassVar[Examples] = (
        ({"units": 3}, ((10,),)),
        ({"units": 3, "bias": False}, ((5, 6),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"units": "U"}, (("S", "F"),))
    inputs_serve_weights: ClassVar[bool] = True
    units: int
    bias: bool = True

    def __post_init__(self) -> None:
        check_count("units", self.units)
        check_flag("bias", self.bias)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input shape with its last axis replaced by ``units``."""
        check_rank(input_shapes[0], ("features",), SEQUENCE)
        return (*input_shapes[0][:-1], self.units)

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
        """Return the weight matrix and, if any, the bias."""
        shapes: dict[str, Shape] = {"weight": (input_shapes[0][-1], self.units)}
        return shapes | {"bias": (self.units,)} if self.bias else shapes

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one product of rows and weights."""
        *leading, features = input_shapes[0]
        rows = batch_size * math.prod(leading)
        bias_elements = self.units if self.bias else 0
        return (Contraction(m=rows, n=self.units, k=features, bias_elements=bias_elements),)

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
