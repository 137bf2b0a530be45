"""The transformer block that language and vision networks stack, with every choice they make differently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from perfmodel.graph import LayerGraph
from perfmodel.layers import (
    GELU,
    Add,
    Binary,
    CrossEntropy,
    Dense,
    Dropout,
    Layer,
    LayerNorm,
    MultiHeadAttention,
    Reshape,
    RotaryEmbedding,
    ScaledDotProductAttention,
    Transpose,
)
from perfmodel.layers.checks import check_choice, is_open_size, refuse
from perfmodel.numeric import share_of

ATTENTIONS: dict[str, Literal["materialised", "recomputed"]] = {
    "fused": "recomputed",
    "materialised": "materialised",
    "selective": "materialised",
}
"""How attention is run, to what becomes of its matrix of scores."""
SELECTIVE = "selective"
"""The way of attention whose core alone runs again."""
ORDERS = ("pre", "post")


@dataclass(frozen=True, kw_only=True)
class TransformerBlock:
    """Attention, then a feed-forward part, each with a norm, a residual connection and, in training, dropout.

    Parameters
    ----------
    width : int or sympy.Symbol
        Features of a position. [1]
    heads : int
        Heads of the queries. [1]
    intermediate : int or sympy.Expr
        Units inside the feed-forward part. [1]
    key_heads : int or None
        Heads of keys and values; None for as many as of queries. [1]
    head_size : int, sympy.Expr or None
        Features of a head; None for ``width / heads``. [1]
    causal : bool
        Whether a position sees only itself and those before it. [-]
    order : str
        ``pre``: the norms stand before attention and feed-forward part (GPT-2, Llama, ViT); ``post``: after the
        residual additions (BERT, and the original transformer). [-]
    norm : Layer
        The norm. [-]
    activation : Layer
        Non-linearity of the feed-forward part. [-]
    gated : bool
        Whether a third product, through the activation, gates the units of the feed-forward part [1]_. [-]
    attention_bias, mlp_bias : bool
        Whether the products of attention, and of the feed-forward part, add a bias. [-]
    rotary : bool
        Whether queries and keys are rotated by their position [2]_. [-]
    dropout : float
        Rate of dropout before both residual additions; zero for none. [1]
    attention_dropout : float or None
        Rate of dropout on attention weights; None for the same. [1]
    output_bias : bool or None
        Whether the product behind attention has a bias; None for whether the others of attention have one. Only where
        positions are rotated. [-]
    attention : str
        ``fused``: scores stay on chip and are computed again by back-propagation; ``materialised``: they go through
        memory; ``selective``: they do, and are not kept, but made again in the backward phase [3]_. [-]

    References
    ----------
    .. [1] Shazeer, GLU variants improve transformer, arXiv:2002.05202.
    .. [2] Su, Lu, Pan, Murtadha, Wen, Liu, RoFormer, arXiv:2104.09864.
    .. [3] Korthikanti et al., Reducing activation recomputation in large transformer models, arXiv:2205.05198.
    """

    width: Any
    heads: int
    intermediate: Any
    key_heads: int | None = None
    head_size: Any = None
    causal: bool = False
    order: str = "pre"
    norm: Layer = field(default_factory=LayerNorm)
    activation: Layer = field(default_factory=GELU)
    gated: bool = False
    attention_bias: bool = True
    mlp_bias: bool = True
    rotary: bool = False
    dropout: float = 0.0
    attention_dropout: float | None = None
    output_bias: bool | None = None
    attention: str = "fused"

    def __post_init__(self) -> None:
        check_choice("order", self.order, ORDERS)
        check_choice("attention", self.attention, ATTENTIONS)
        divides = is_open_size(self.width) or is_open_size(self.heads) or self.width % self.heads == 0
        if self.head_size is None and not divides:
            refuse("heads", self.heads, f"must divide the width, {self.width}, where head_size is not given")

    @property
    def _head_size(self) -> Any:
        return share_of(self.width, self.heads) if self.head_size is None else self.head_size

    @property
    def _attention_dropout(self) -> float:
        return self.dropout if self.attention_dropout is None else self.attention_dropout

    def add(self, graph: LayerGraph, x: str, *, name: str) -> str:
        """Add the block to a graph.

        Parameters
        ----------
        graph : LayerGraph
            The graph. [-]
        x : str
            What the block reads, of shape (positions, width). [-]
        name : str
            Beginning of the names of its layers. [-]

        Returns
        -------
        str
            Name of its last layer. [-]
        """
        x = self._residual(graph, x, name=f"{name}_attention", branch=self._attention)
        return self._residual(graph, x, name=f"{name}_mlp", branch=self._mlp)

    def stack(self, graph: LayerGraph, x: str, *, count: int) -> str:
        """Add the block so many times [1], ``block1`` first, and return the name of the last layer."""
        for index in range(1, count + 1):
            x = self.add(graph, x, name=f"block{index}")
        return x

    def _residual(self, graph: LayerGraph, x: str, *, name: str, branch: Callable[..., str]) -> str:
        """Add x + branch(norm(x)), or norm(x + branch(x))."""
        inside = graph.add(f"{name}_norm", self.norm, inputs=x) if self.order == "pre" else x
        y = branch(graph, inside, name=name)
        if self.dropout:
            y = graph.add(f"{name}_dropout", Dropout(rate=self.dropout), inputs=y)
        x = graph.add(f"{name}_add", Add(), inputs=(x, y))
        return graph.add(f"{name}_norm", self.norm, inputs=x) if self.order == "post" else x

    def _attention(self, graph: LayerGraph, x: str, *, name: str) -> str:
        if self.rotary or self.attention == SELECTIVE:
            return self._separate_attention(graph, x, name=name)
        layer = MultiHeadAttention(
            heads=self.heads,
            key_heads=self.key_heads,
            head_size=self.head_size,
            causal=self.causal,
            bias=self.attention_bias,
            scores=ATTENTIONS[self.attention],
            dropout=self._attention_dropout,
        )
        return graph.add(name, layer, inputs=x)

    def _separate_attention(self, graph: LayerGraph, x: str, *, name: str) -> str:
        """Add the four projections one by one, as a rotation, or the border of what runs again, lies behind them."""
        positions = graph.shape(x)[0]
        key_heads = self.heads if self.key_heads is None else self.key_heads
        is_copied = self.attention == "materialised"  # a product of matrices wants its heads side by side
        operands = {}
        for part, heads in (("query", self.heads), ("key", key_heads), ("value", key_heads)):
            dense = Dense(units=heads * self._head_size, bias=self.attention_bias)
            y = graph.add(f"{name}_{part}", dense, inputs=x)
            y = graph.add(f"{name}_{part}_split", Reshape(shape=(positions, heads, self._head_size)), inputs=y)
            y = graph.add(f"{name}_{part}_heads", Transpose(axes=(1, 0, 2), copies=is_copied), inputs=y)
            if self.rotary and part != "value":
                y = graph.add(f"{name}_{part}_rotary", RotaryEmbedding(), inputs=y)
            operands[part] = y
        scores = ATTENTIONS[self.attention]
        layer = ScaledDotProductAttention(causal=self.causal, scores=scores, dropout=self._attention_dropout)
        region: dict[str, Any] = {"recomputed_in": name, "reruns_all": True} if self.attention == SELECTIVE else {}
        y = graph.add(name, layer, inputs=tuple(operands.values()), **region)
        y = graph.add(f"{name}_positions", Transpose(axes=(1, 0, 2), copies=is_copied), inputs=y)
        y = graph.add(f"{name}_join", Reshape(shape=(positions, self.heads * self._head_size)), inputs=y)
        has_bias = self.attention_bias if self.output_bias is None else self.output_bias
        return graph.add(f"{name}_output", Dense(units=self.width, bias=has_bias), inputs=y)

    def _mlp(self, graph: LayerGraph, x: str, *, name: str) -> str:
        up = Dense(units=self.intermediate, bias=self.mlp_bias)
        if self.gated:
            gate = graph.add(f"{name}_gate", up, inputs=x)
            gate = graph.add(f"{name}_activation", self.activation, inputs=gate)
            y = graph.add(f"{name}_up", up, inputs=x)
            y = graph.add(f"{name}_product", Binary(function="multiply"), inputs=(gate, y))
        else:
            y = graph.add(f"{name}_up", up, inputs=x)
            y = graph.add(f"{name}_activation", self.activation, inputs=y)
        return graph.add(f"{name}_down", Dense(units=self.width, bias=self.mlp_bias), inputs=y)


def language_head(graph: LayerGraph, x: str, *, norm: Layer, vocabulary: Any, tied: bool) -> None:
    """Add the end of a language model: a norm, a score of every word at every position, the loss.

    Parameters
    ----------
    graph : LayerGraph
        The graph, whose ``tokens_embedding`` holds the table of words. [-]
    x : str
        What the norm reads. [-]
    norm : Layer
        The norm. [-]
    vocabulary : int or sympy.Symbol
        Words. [1]
    tied : bool
        Whether the scores are the product with the table of words. [-]
    """
    x = graph.add("norm", norm, inputs=x)
    shared = {"weight": ("tokens_embedding", "weight")} if tied else None
    x = graph.add("scores", Dense(units=vocabulary, bias=False), inputs=x, shared_parameters=shared)
    graph.add("loss", CrossEntropy(), inputs=x)
