"""Multi-head latent attention: keys and values made of a narrow tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perfmodel.layers.attention import ScaledDotProductAttention
from perfmodel.layers.base import layer_kind
from perfmodel.layers.chained import ChainedLayer, Part
from perfmodel.layers.copying import Concat
from perfmodel.layers.indexing import RotaryEmbedding
from perfmodel.layers.linear import Dense
from perfmodel.layers.normalisation import RMSNorm
from perfmodel.layers.shapes import SEQUENCE, Shapes, check_rank
from perfmodel.numeric import share_of


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
            before = (Part("query", queries, (x,), reads=0),)
        else:
            short = (positions, self.query_latent)
            before = (
                Part("query_down", Dense(units=self.query_latent, bias=False), (x,), reads=0),
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
            Part("key_value_down", down, (x,), reads=0),
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
