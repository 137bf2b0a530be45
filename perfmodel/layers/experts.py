"""Mixtures of experts: a router, the products of the experts, and their weighted sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from perfmodel.layers.activation import Softmax
from perfmodel.layers.base import Layer, OnePassLayer, Operations, Traffic, layer_kind
from perfmodel.layers.chained import ChainedLayer, Part
from perfmodel.layers.checks import is_open_size, refuse
from perfmodel.layers.indexing import Take, TopK
from perfmodel.layers.linear import Dense
from perfmodel.layers.shapes import SEQUENCE, Shape, Shapes, check_rank
from perfmodel.numeric import share_of
from perfmodel.records import Contraction, Role

GATED_FLOP: Final = (6, 11)
"""Arithmetic for each unit of x s(x) u with the logistic function s, forward and backward [FLOP]."""


def _rows_of_each(rows: Any, experts: Any, *, batch_size: Any) -> Any:
    """Rows of each expert if all get equally many; not always a whole number. [1]"""
    total = batch_size * rows
    is_whole = is_open_size(total) or is_open_size(experts) or bool(np.all(total % experts == 0))
    return share_of(total, experts) if is_whole else total / experts


@dataclass(frozen=True, kw_only=True)
class _ExpertProduct(Layer):
    """Product of rows (rows, features) with the matrix of each row's expert; all experts get equally many rows."""

    experts: Any
    units: Any

    def output_shape(self, input_shapes: Shapes) -> Shape:
        return (input_shapes[0][0], self.units)

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        return {"weight": (self.experts, input_shapes[0][-1], self.units)}

    def _sizes(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Any, Any]:
        rows, features = input_shapes[0]
        return _rows_of_each(rows, self.experts, batch_size=batch_size), features

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        rows, features = self._sizes(input_shapes, batch_size=batch_size)
        return (Contraction(m=rows, n=self.units, k=features, count=self.experts),)

    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        rows, features = self._sizes(input_shapes, batch_size=batch_size)
        return (
            Contraction(m=rows, n=features, k=self.units, count=self.experts, role=Role.INPUT_GRADIENT),
            Contraction(m=features, n=self.units, k=rows, count=self.experts, role=Role.WEIGHT_GRADIENT),
        )


@dataclass(frozen=True, kw_only=True)
class _GatedUnits(OnePassLayer):
    """Half of the features, through SiLU, times the other half."""

    kind = "gated_units"

    def output_shape(self, input_shapes: Shapes) -> Shape:
        return (*input_shapes[0][:-1], share_of(input_shapes[0][-1], 2))

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic]:
        units = batch_size * math.prod(self.output_shape(input_shapes))
        forward, backward = GATED_FLOP
        return (
            {"read": 2 * units, "written": units, "flop": forward * units},
            {"read": 3 * units, "written": 2 * units, "flop": backward * units},
        )


@dataclass(frozen=True, kw_only=True)
class _WeightedSum(OnePassLayer):
    """Sum of the rows that belong to a position, each times its weight; inputs are rows and weights."""

    kind = "weighted_sum"

    def output_shape(self, input_shapes: Shapes) -> Shape:
        return (input_shapes[1][0], input_shapes[0][-1])

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic]:
        rows, weights = (batch_size * math.prod(shape) for shape in input_shapes)
        result = batch_size * math.prod(self.output_shape(input_shapes))
        return (
            {"read": rows + weights, "written": result, "flop": 2 * rows},
            {"read": result + rows + weights, "written": rows + weights, "tensor": rows, "flop": 4 * rows},
        )


@layer_kind("mixture_of_experts")
class MixtureOfExperts(ChainedLayer):
    """Gated feed-forward parts, of which a router sends every position to a few, and their weighted sum.

    The input is (positions, features), and so is the output.

    Parameters
    ----------
    experts : int
        Experts, all of them in the memory of the device. [1]
    chosen : int
        Experts that a position is sent to. [1]
    intermediate : int
        Units inside each expert. [1]

    Notes
    -----
    Valid for: as many positions for each expert (what a loss on the router's choice aims at), and at least one.
    Ignores: positions that are dropped, an uneven load, the router's own loss and its noise, and products of experts in
    fp8, which stay in the wider type, as those of linear layers alone are narrowed.

    Per position of f features: 2 f e FLOP of the router and 6 k f i of the k experts; all e experts' weights are read.
    Rows are copied to the order of experts, two products (gate and units are one) run over all experts, and the
    results are added up by position, times the router's weights. Kept besides the input: the router's
    probabilities, the rows in the order of experts before each product, units before the gate, and results.

    References
    ----------
    .. [1] Shazeer et al., Outrageously large neural networks: the sparsely-gated mixture-of-experts layer,
       arXiv:1701.06538.
    .. [2] Jiang et al., Mixtral of experts, arXiv:2401.04088, section 2.1.
    """

    experts: int
    chosen: int
    intermediate: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_open_size(self.experts) and not is_open_size(self.chosen) and self.chosen > self.experts:
            refuse("chosen", self.chosen, f"must be at most experts = {self.experts}")

    def parts(self, input_shapes: Shapes) -> tuple[Part, ...]:
        """Return router, copies, products of experts and the sum."""
        check_rank(input_shapes[0], SEQUENCE)
        positions, features = input_shapes[0]
        scores, picked, rows = (positions, self.experts), (positions, self.chosen), self.chosen * positions
        up = _ExpertProduct(experts=self.experts, units=2 * self.intermediate)
        down = _ExpertProduct(experts=self.experts, units=features)
        copied = Take(shape=(rows, features), row_elements=features)
        return (
            Part("router", Dense(units=self.experts, bias=False), (input_shapes[0],), reads=0),
            Part("probabilities", Softmax(), (scores,)),
            Part("choice", TopK(count=self.chosen), (scores,)),
            Part("rows", copied, (input_shapes[0], picked), reads=0),
            Part("up", up, ((rows, features),)),
            Part("gated", _GatedUnits(), ((rows, 2 * self.intermediate),)),
            Part("down", down, ((rows, self.intermediate),)),
            Part("sum", _WeightedSum(), ((rows, features), picked)),
        )

    def kept_elements(self, input_shapes: Shapes) -> Any:
        """Elements of probabilities, of rows before and after both products, of a sample [1]."""
        positions, features = input_shapes[0]
        rows = self.chosen * positions
        return positions * (self.experts + self.chosen) + rows * (2 * features + 3 * self.intermediate)

    def backward_scratch_bytes(
        self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int, wanted: Sequence[bool]
    ) -> Any:
        """Return the gradients of units before and behind the gate, of all rows [B]."""
        return element_bytes * batch_size * self.chosen * input_shapes[0][0] * 3 * self.intermediate

    def divided(self, parts: int) -> MixtureOfExperts:
        """Return the layer with which each of some devices [1] runs a share of every expert's units."""
        return MixtureOfExperts(
            experts=self.experts, chosen=self.chosen, intermediate=share_of(self.intermediate, parts)
        )
