"""Layers made of others, whose operations, parameters and statistics are theirs: experts, latent attention."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from perfmodel.layers.activation import Softmax
from perfmodel.layers.attention import ScaledDotProductAttention
from perfmodel.layers.base import Layer, LayerByInput, OnePassLayer, Operations, Traffic, layer_kind
from perfmodel.layers.checks import is_open_size, refuse
from perfmodel.layers.copying import Concat
from perfmodel.layers.indexing import RotaryEmbedding, Take, TopK
from perfmodel.layers.linear import Dense
from perfmodel.layers.normalisation import RMSNorm
from perfmodel.layers.shapes import SEQUENCE, Shape, Shapes, check_rank
from perfmodel.numeric import share_of
from perfmodel.records import Contraction, Role


class Part(NamedTuple):
    """A layer inside another one: its name, itself, what it reads, and whether that is the input of the whole."""

    name: str
    layer: Layer
    input_shapes: Shapes
    reads_input: bool = False


@dataclass(frozen=True, kw_only=True)
class ChainedLayer(LayerByInput):
    """A layer that runs others, one after another."""

    @abstractmethod
    def parts(self, input_shapes: Shapes) -> tuple[Part, ...]:
        """Return the layers in the order in which they run; raise ShapeMismatchError for shapes that do not fit."""

    @abstractmethod
    def kept_elements(self, input_shapes: Shapes) -> Any:
        """Elements between the layers that back-propagation reads, of a sample [1]."""

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the shape of x."""
        for part in self.parts(input_shapes):
            part.layer.output_shape(part.input_shapes)
        return input_shapes[0]

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return the parameters of all layers, by the name of the layer and their own."""
        return {
            f"{part.name}_{name}": shape
            for part in self.parts(input_shapes)
            for name, shape in part.layer.parameter_shapes(part.input_shapes).items()
        }

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the operations of all layers."""
        return tuple(
            operation
            for part in self.parts(input_shapes)
            for operation in part.layer.forward_operations(part.input_shapes, batch_size=batch_size)
        )

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return the gradients of all layers, the last first; of x only if it needs one."""
        return tuple(
            operation
            for part in reversed(self.parts(input_shapes))
            for operation in part.layer.gradient_operations(
                part.input_shapes,
                batch_size=batch_size,
                wanted=[any(wanted) or not part.reads_input] * len(part.input_shapes),
            )
        )

    def saved_bytes(self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int) -> Any:
        """Return the size of tensors between the layers, and of what these keep themselves [B]."""
        of_parts = sum(
            part.layer.saved_bytes(part.input_shapes, batch_size=batch_size, element_bytes=element_bytes)
            for part in self.parts(input_shapes)
        )
        return of_parts + element_bytes * batch_size * self.kept_elements(input_shapes)

    def saved_index_count(self, input_shapes: Shapes, *, batch_size: Any) -> Any:
        """Return the indices that its layers keep [1]."""
        return sum(
            part.layer.saved_index_count(part.input_shapes, batch_size=batch_size) for part in self.parts(input_shapes)
        )


GATED_FLOP: Final = (6, 11)
"""Arithmetic for each unit of x s(x) u with the logistic function s, forward and backward [FLOP]."""


def _rows_of_each(rows: Any, experts: Any, *, batch_size: Any) -> Any:
    """Rows of each expert if all have as many, which may be no whole number. [1]"""
    total = batch_size * rows
    is_whole = is_open_size(total) or is_open_size(experts) or bool(np.all(total % experts == 0))
    return share_of(total, experts) if is_whole else total / experts


@dataclass(frozen=True, kw_only=True)
class _ExpertProduct(Layer):
    """Rows (rows, features) times the matrix of the expert that each is sent to, as many rows to each."""

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
            Part("router", Dense(units=self.experts, bias=False), (input_shapes[0],), reads_input=True),
            Part("probabilities", Softmax(), (scores,)),
            Part("choice", TopK(count=self.chosen), (scores,)),
            Part("rows", copied, (input_shapes[0], picked), reads_input=True),
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


@layer_kind("latent_attention")
class LatentAttention(ChainedLayer):
    """Multi-head latent attention of x to itself, between its projections.

    The input is (positions, features), and so is the output.

    Parameters
    ----------
    heads : int
        Heads of queries, keys and values. [1]
    latent : int
        Features of the vector that keys and values of a position are made from. [1]
    query_latent : int or None
        Features of the vector that queries are made from; None if they are made from x. [1]
    head_size : int
        Features of a head of queries and keys without a position. [1]
    rotary_size : int
        Further features of them that are turned by the position; all heads have those of keys in common. [1]
    value_size : int
        Features of a head of values. [1]
    causal : bool
        Whether a position sees only itself and earlier ones. [-]

    Notes
    -----
    Valid for: training and prompts, where keys and values are made whole. Ignores: decoding from the latent vectors
    alone. Per position of f features, with h heads, latents q and c and sizes n, r and v: 2 (f q + q h (n + r)) FLOP
    of queries, 2 (f (c + r) + c h (n + v)) of keys and values and 2 h v f of the output, and the attention between
    them, whose scores are recomputed. Kept besides the input: both latent vectors before and behind their norms,
    queries, keys, values and the result.

    References
    ----------
    .. [1] DeepSeek-AI, DeepSeek-V2, arXiv:2405.04434, section 2.1 and appendix C.
    """

    heads: int
    latent: int
    head_size: int
    rotary_size: int
    value_size: int
    query_latent: int | None = None
    causal: bool = False

    @property
    def _sizes(self) -> tuple[Any, Any]:
        """Features of all heads of queries, and of all heads of values. [1]"""
        return self.heads * (self.head_size + self.rotary_size), self.heads * self.value_size

    def parts(self, input_shapes: Shapes) -> tuple[Part, ...]:
        """Return projections, norms, rotations, joins, attention and the projection of its result."""
        check_rank(input_shapes[0], SEQUENCE)
        x, positions = input_shapes[0], input_shapes[0][0]
        width, value_width = self._sizes
        queries, from_latent = Dense(units=width, bias=False), (positions, self.latent)
        before: tuple[Part, ...]
        if self.query_latent is None:
            before = (Part("query", queries, (x,), reads_input=True),)
        else:
            short = (positions, self.query_latent)
            before = (
                Part("query_down", Dense(units=self.query_latent, bias=False), (x,), reads_input=True),
                Part("query_norm", RMSNorm(), (short,)),
                Part("query_up", queries, (short,)),
            )
        down = Dense(units=self.latent + self.rotary_size, bias=False)
        up = Dense(units=self.heads * (self.head_size + self.value_size), bias=False)
        turned = (self.heads, positions, self.rotary_size)
        plain, key = ((self.heads, positions, size) for size in (self.head_size, self.head_size + self.rotary_size))
        attention = ScaledDotProductAttention(causal=self.causal)
        return (
            *before,
            Part("key_value_down", down, (x,), reads_input=True),
            Part("key_value_norm", RMSNorm(), (from_latent,)),
            Part("key_value_up", up, (from_latent,)),
            Part("query_rotary", RotaryEmbedding(), (turned,)),
            Part("key_rotary", RotaryEmbedding(), ((positions, self.rotary_size),)),
            Part("query_join", Concat(axis=2), (plain, turned)),
            Part("key_join", Concat(axis=2), (plain, turned)),
            Part("attention", attention, (key, key, (self.heads, positions, self.value_size))),
            Part("output", Dense(units=x[-1], bias=False), ((positions, value_width),)),
        )

    def kept_elements(self, input_shapes: Shapes) -> Any:
        """Elements of latent vectors, queries, keys, values and the result, of a sample [1]."""
        width, value_width = self._sizes
        short = 2 * self.latent + (0 if self.query_latent is None else 2 * self.query_latent)
        return input_shapes[0][0] * (short + 2 * width + 2 * value_width)

    def backward_scratch_bytes(
        self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int, wanted: Sequence[bool]
    ) -> Any:
        """Return the gradients of queries, keys, values and the result [B]."""
        width, value_width = self._sizes
        return element_bytes * batch_size * input_shapes[0][0] * (2 * width + 2 * value_width)

    def divided(self, parts: int) -> LatentAttention:
        """Return the layer with which each of some devices [1] runs a share of the heads."""
        return replace(self, heads=share_of(self.heads, parts))
