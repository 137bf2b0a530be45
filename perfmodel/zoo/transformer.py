"""The transformer block with the options in which networks differ, and the networks built from it: GPT and Llama."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from perfmodel import layers as nn
from perfmodel.graph import LayerGraph
from perfmodel.layers.checks import check_choice, is_open_size, numbered, one_of, refuse
from perfmodel.numeric import share_of
from perfmodel.zoo.blocks import TEXT_ACTIVATIONS, add_activation, chain, dropped, published_sizes
from perfmodel.zoo.options import checked

ATTENTIONS: dict[str, Literal["materialised", "recomputed"]] = {
    "fused": "recomputed",
    "materialised": "materialised",
    "fused_softmax": "materialised",
    "selective": "materialised",
}
"""Way to run attention -> treatment of its matrix of scores."""
SELECTIVE = "selective"
"""Way to run attention that recomputes its core only."""
FUSED_SOFTMAX = ("fused_softmax", SELECTIVE)
"""Ways in which one kernel scales, masks and normalises the scores, and products read heads without a copy."""
ORDERS = ("pre", "post")
MOST_BLOCKS: Final = 10_000
"""Most blocks of a network; building them takes some five seconds. [1]"""
ALTERNATE_BLOCKS: Final = "alternate_blocks"
ALTERNATE_PRODUCTS: Final = "alternate_products"
OPERANDS = ("separate", "columns", "heads")


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
    activation : str
        Non-linearity of the feed-forward part, of ``TEXT_ACTIVATIONS``. [-]
    operands : str
        How queries, keys and values are made: ``separate``, by a product each (BERT); ``columns`` of one product
        (GPT-2); ``heads``: of one product reordered by heads (ViT), with as many of keys as of queries. [-]
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
        Whether the product behind attention has a bias; None for whether the others of attention have one. [-]
    attention : str
        ``fused``: scores stay on chip and are computed again by back-propagation; ``materialised``: they go through
        memory, in passes of plain operators; ``fused_softmax``: they do, and one kernel scales, masks and normalises
        them (Megatron-LM); ``selective``: so, and they are not kept, but made again in the backward phase [3]_. [-]
    latent_attention : LatentAttention or None
        Attention with its own projections that stands for all of the above; None for that. [-]
    experts : MixtureOfExperts or None
        Experts that positions are sent to; ``intermediate`` are then the units that all run through, maybe 0. [-]

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
    norm: nn.Layer = field(default_factory=nn.LayerNorm)
    activation: str = "gelu"
    operands: str = "separate"
    gated: bool = False
    attention_bias: bool = True
    mlp_bias: bool = True
    rotary: bool = False
    dropout: float = 0.0
    attention_dropout: float | None = None
    output_bias: bool | None = None
    attention: str = "fused"
    latent_attention: nn.LatentAttention | None = None
    experts: nn.MixtureOfExperts | None = None

    def __post_init__(self) -> None:
        check_choice("order", self.order, ORDERS)
        check_choice("attention", self.attention, ATTENTIONS)
        check_choice("operands", self.operands, OPERANDS)
        divides = is_open_size(self.width) or is_open_size(self.heads) or self.width % self.heads == 0
        if self.head_size is None and not divides:
            refuse("heads", self.heads, f"must divide the width, {self.width}, unless head_size is given")

    @property
    def _head_size(self) -> Any:
        return share_of(self.width, self.heads) if self.head_size is None else self.head_size

    def add(self, graph: LayerGraph, x: str, *, name: str) -> str:
        """Add the block to a graph; it reads (positions, width), and the names of its layers begin with its own."""
        x = self._residual(graph, x, name=f"{name}_attention", branch=self._attention)
        return self._residual(graph, x, name=f"{name}_mlp", branch=self._mlp)

    def stack(self, graph: LayerGraph, x: str, *, count: int, first: int = 1) -> str:
        """Add the block ``count`` times [1], ``block1`` or another first, and return the name of the last layer."""
        if count > MOST_BLOCKS:
            refuse("layers", count, f"must be at most {MOST_BLOCKS:,}: larger networks take too long to build")
        for index in range(first, first + count):
            x = self.add(graph, x, name=f"block{index}")
        return x

    def _residual(self, graph: LayerGraph, x: str, *, name: str, branch: Callable[..., str]) -> str:
        """Add x + branch(norm(x)), or norm(x + branch(x))."""
        inside = graph.add(f"{name}_norm", self.norm, inputs=x) if self.order == "pre" else x
        y = chain(graph, branch(graph, inside, name=name), (f"{name}_dropout", dropped(self.dropout)))
        x = graph.add(f"{name}_add", nn.Add(), inputs=(x, y))
        return graph.add(f"{name}_norm", self.norm, inputs=x) if self.order == "post" else x

    def _attention(self, graph: LayerGraph, x: str, *, name: str) -> str:
        """Add projections, attention between views of their results as heads, and the projection of its output."""
        if self.latent_attention is not None:
            return graph.add(name, self.latent_attention, inputs=x)
        positions = graph.shape(x)[0]
        key_heads = self.heads if self.key_heads is None else self.key_heads
        is_copied = self.attention == "materialised"  # a product of matrices wants its heads side by side
        operands = {}
        heads_of = {"query": self.heads, "key": key_heads, "value": key_heads}
        packed = self._packed(graph, x, name=name, units=self._head_size * sum(heads_of.values()))
        for part, heads in heads_of.items():
            if self.operands == "heads":
                shape = (heads, positions, self._head_size)
                y = graph.add(f"{name}_{part}", nn.Slice(shape=shape, is_joined=True), inputs=packed)
                if is_copied:
                    copy = nn.Rearrange(shape=shape, copies_back=False)
                    y = graph.add(f"{name}_{part}_heads", copy, inputs=y)
            else:
                units = heads * self._head_size
                columns = nn.Slice(shape=(positions, units), is_joined=True)
                dense = nn.Dense(units=units, bias=self.attention_bias)
                y = graph.add(f"{name}_{part}", columns if packed else dense, inputs=packed or x)
                y = graph.add(f"{name}_{part}_split", nn.Reshape(shape=(positions, heads, self._head_size)), inputs=y)
                y = graph.add(f"{name}_{part}_heads", nn.Transpose(axes=(1, 0, 2), copies=is_copied), inputs=y)
            if self.rotary and part != "value":
                y = graph.add(f"{name}_{part}_rotary", nn.RotaryEmbedding(), inputs=y)
            operands[part] = y
        scores = ATTENTIONS[self.attention]
        layer = nn.ScaledDotProductAttention(
            causal=self.causal,
            scores=scores,
            dropout=self.dropout if self.attention_dropout is None else self.attention_dropout,
            fused_softmax=self.attention in FUSED_SOFTMAX,
        )
        region: dict[str, Any] = {"recomputed_in": name, "reruns_all": True} if self.attention == SELECTIVE else {}
        y = graph.add(name, layer, inputs=tuple(operands.values()), **region)
        y = graph.add(f"{name}_positions", nn.Transpose(axes=(1, 0, 2), copies=is_copied), inputs=y)
        y = graph.add(f"{name}_join", nn.Reshape(shape=(positions, self.heads * self._head_size)), inputs=y)
        has_bias = self.attention_bias if self.output_bias is None else self.output_bias
        return graph.add(f"{name}_output", nn.Dense(units=self.width, bias=has_bias), inputs=y)

    def _packed(self, graph: LayerGraph, x: str, *, name: str, units: Any) -> str:
        """Add the product that makes queries, keys and values together; empty if each has its own."""
        if self.operands == "separate":
            return ""
        y = graph.add(f"{name}_operands", nn.Dense(units=units, bias=self.attention_bias), inputs=x)
        if self.operands == "columns":
            return y
        shape = (graph.shape(x)[0], len(("query", "key", "value")), self.heads, self._head_size)
        y = graph.add(f"{name}_operands_split", nn.Reshape(shape=shape), inputs=y)
        return graph.add(f"{name}_operands_heads", nn.Transpose(axes=(1, 2, 0, 3)), inputs=y)

    def _mlp(self, graph: LayerGraph, x: str, *, name: str) -> str:
        if self.experts is None:
            return self._dense(graph, x, name=name)
        y = graph.add(f"{name}_experts", self.experts, inputs=x)
        if not self.intermediate:
            return y
        shared = self._dense(graph, x, name=f"{name}_shared")
        return graph.add(f"{name}_sum", nn.Add(), inputs=(y, shared))

    def _dense(self, graph: LayerGraph, x: str, *, name: str) -> str:
        up = nn.Dense(units=self.intermediate, bias=self.mlp_bias)
        if self.gated:
            gate = graph.add(f"{name}_gate", up, inputs=x)
            gate = add_activation(graph, gate, self.activation, name=f"{name}_activation")
            y = graph.add(f"{name}_up", up, inputs=x)
            y = graph.add(f"{name}_product", nn.Binary(function="multiply"), inputs=(gate, y))
        else:
            y = graph.add(f"{name}_up", up, inputs=x)
            y = add_activation(graph, y, self.activation, name=f"{name}_activation")
        return graph.add(f"{name}_down", nn.Dense(units=self.width, bias=self.mlp_bias), inputs=y)


def language_head(graph: LayerGraph, x: str, *, norm: nn.Layer, vocabulary: Any, tied: bool) -> None:
    """Add the end of a language model: a norm, a score of every word at every position, the loss.

    If tied, scores are the product with the table of words that the layer ``tokens_embedding`` holds.
    """
    x = graph.add("norm", norm, inputs=x)
    shared = {"weight": ("tokens_embedding", "weight")} if tied else None
    x = graph.add("scores", nn.Dense(units=vocabulary, bias=False), inputs=x, shared_parameters=shared)
    graph.add("loss", nn.CrossEntropy(), inputs=x)


GPT2_SIZES: dict[str, dict[str, Any]] = published_sizes("gpt2")
"""Published size of GPT-2 -> its options."""


@checked(layers=numbered(), activation=one_of(TEXT_ACTIVATIONS), attention=one_of(ATTENTIONS))
def gpt(
    *,
    layers: int = 12,
    width: Any = 768,
    heads: int = 12,
    sequence_length: Any = 1024,
    vocabulary: Any = 50_257,
    positions: Any = None,
    intermediate: Any = None,
    tied: bool = True,
    bias: bool = True,
    activation: str = "gelu_tanh",
    dropout: float = 0.0,
    attention_dropout: float | None = None,
    attention: str = "fused",
    checkpointed: bool = False,
    name: str = "gpt",
) -> LayerGraph:
    """Return a language model in the manner of GPT-2 [1]_ with sizes of one's own.

    Parameters
    ----------
    layers : int
        Transformer blocks. [1]
    width : int or sympy.Symbol
        Features of a position. [1]
    heads : int
        Heads of attention. [1]
    sequence_length : int or sympy.Symbol
        Positions of a sample. [1]
    vocabulary : int or sympy.Symbol
        Words. [1]
    positions : int, sympy.Symbol or None
        Rows of the table of positions; None for as many as a sample has. [1]
    intermediate : int, sympy.Expr or None
        Units inside the feed-forward part; None for four times the width. [1]
    tied : bool
        Whether the last product uses the table of words. [-]
    bias : bool
        Whether the products of the blocks, and the norms, have a bias. [-]
    activation : str
        Non-linearity of the feed-forward part. [-]
    dropout : float
        Rate of dropout; zero for none. [1]
    attention_dropout : float or None
        Rate of dropout on attention weights; None for the same. [1]
    attention : str
        ``fused`` or ``materialised``: whether the scores stay on chip or go through memory; ``fused_softmax``: they go
        through memory, and one kernel scales, masks and normalises them; ``selective``: so, and they are made again in
        the backward phase. [-]
    checkpointed : bool
        Whether each block keeps its input only and runs again in the backward phase, as far as the framework runs
        it. [-]
    name : str
        Name of the graph. [-]

    Examples
    --------
    GPT-3 in its largest size has 175 billion parameters (arXiv:2005.14165, table 2.1):

    >>> gpt(layers=96, width=12288, heads=96, sequence_length=2048).parameter_count
    174604259328

    References
    ----------
    .. [1] Radford, Wu, Child, Luan, Amodei, Sutskever, Language models are unsupervised multitask learners, 2019.
    """
    graph = LayerGraph(name, inputs={"tokens": (sequence_length,)})
    rows = sequence_length if positions is None else positions
    x = graph.add("tokens_embedding", nn.Embedding(vocabulary=vocabulary, features=width), inputs="tokens")
    table = nn.PositionalEmbedding(positions=rows)
    x = chain(graph, x, ("positions_embedding", table), ("embedding_dropout", dropped(dropout)))
    block = TransformerBlock(
        width=width,
        heads=heads,
        intermediate=4 * width if intermediate is None else intermediate,
        causal=True,
        norm=nn.LayerNorm(bias=bias),
        activation=activation,
        operands="separate" if attention == SELECTIVE else "columns",
        attention_bias=bias,
        mlp_bias=bias,
        dropout=dropout,
        attention_dropout=attention_dropout,
        attention=attention,
    )
    x = block.stack(graph, x, count=layers)
    language_head(graph, x, norm=nn.LayerNorm(bias=bias), vocabulary=vocabulary, tied=tied)
    return _with_checkpoints(graph) if checkpointed else graph


def _with_checkpoints(graph: LayerGraph, *, how: bool | str = True) -> LayerGraph:
    """Return the network with every block, or every other one, as a region that runs again."""
    marked = LayerGraph(graph.name, inputs=graph.input_shapes)
    blocks: list[str] = []
    products = 0
    for node in graph.layers:
        block = node.name.partition("_")[0]
        if block.startswith("block") and block not in blocks:
            blocks.append(block)
            products = 0
        is_marked = block in blocks and (how != ALTERNATE_BLOCKS or len(blocks) % 2 == 0)
        region: dict[str, Any] = {"recomputed_in": block, "reruns_all": None} if is_marked else {}
        if is_marked and how == ALTERNATE_PRODUCTS:
            products += isinstance(node.layer, nn.Dense)
            is_kept = isinstance(node.layer, nn.ScaledDotProductAttention) or (
                isinstance(node.layer, nn.Dense) and products % 2 == 1
            )
            region = {"recomputed_in": block, "keeps_result": is_kept}
        marked.add(node.name, node.layer, inputs=node.input_names, **node.usage.options | region)
    return marked


@checked(size=one_of(GPT2_SIZES), attention=one_of(ATTENTIONS))
def gpt2(
    *, size: str = "small", sequence_length: Any = 1024, dropout: float = 0.1, attention: str = "fused"
) -> LayerGraph:
    """Return GPT-2 [1]_: 124,439,808 parameters in size ``small``, up to 1,557,611,200 in ``xl``.

    Parameters
    ----------
    size : str
        ``small`` (12 layers, width 768, 12 heads), ``medium`` (24, 1,024, 16), ``large`` (36, 1,280, 20) or ``xl``
        (48, 1,600, 25). The paper's own counts of parameters are wrong, as its authors say beside the checkpoints. [-]
    sequence_length : int or sympy.Symbol
        Positions of a sample, up to 1,024. [1]
    dropout : float
        Rate of dropout; zero for none, as in inference. [1]
    attention : str
        ``fused`` or ``materialised``: whether the scores stay on chip or go through memory. [-]

    Examples
    --------
    >>> gpt2().parameter_count, gpt2(size="xl").parameter_count
    (124439808, 1557611200)

    References
    ----------
    .. [1] Radford, Wu, Child, Luan, Amodei, Sutskever, Language models are unsupervised multitask learners, 2019,
       and https://github.com/openai/gpt-2.
    """
    options = {"sequence_length": sequence_length, "positions": 1024, "dropout": dropout, "attention": attention}
    return gpt(name=f"gpt2_{size}", activation="gelu_new", **GPT2_SIZES[size], **options)


LLAMA_SIZES: dict[str, dict[str, int]] = published_sizes("llama")
"""Published size -> its options, except vocabulary and context."""
VOCABULARIES: dict[str, int] = {"llama2": 32_000, "llama3": 128_256}
CONTEXTS: dict[str, int] = {"llama2": 4096, "llama3": 8192}


def _check_checkpointed(argument: str, value: object) -> None:
    if not isinstance(value, bool):
        check_choice(argument, value, (ALTERNATE_BLOCKS, ALTERNATE_PRODUCTS))


@checked(
    size=one_of(LLAMA_SIZES),
    layers=numbered(),
    activation=one_of(TEXT_ACTIVATIONS),
    attention=one_of(ATTENTIONS),
    checkpointed=_check_checkpointed,
)
def llama(
    *,
    size: str = "llama2_7b",
    sequence_length: Any = None,
    layers: int | None = None,
    width: Any = None,
    heads: int | None = None,
    key_heads: int | None = None,
    head_size: Any = None,
    intermediate: Any = None,
    vocabulary: Any = None,
    tied: bool = False,
    gated: bool = True,
    attention_bias: bool = False,
    output_bias: bool | None = None,
    mlp_bias: bool = False,
    activation: str = "silu",
    attention_dropout: float = 0.0,
    attention: str = "fused",
    checkpointed: bool | str = False,
) -> LayerGraph:
    """Return Llama 2 [1]_ or Llama 3 [2]_, or a network of their kind with sizes of one's own.

    6,738,415,616 parameters in size ``llama2_7b``, 8,030,261,248 in ``llama3_8b``.

    Parameters
    ----------
    size : str
        ``llama2_7b``, ``llama2_13b``, ``llama2_70b``, ``llama3_8b`` or ``llama3_70b``; what is given below replaces
        single ones of its sizes. [-]
    sequence_length : int, sympy.Symbol or None
        Positions of a sample; None for the size's context, 4,096 or 8,192. [1]
    layers : int or None
        Transformer blocks. [1]
    width : int, sympy.Symbol or None
        Features of a position. [1]
    heads, key_heads : int or None
        Heads of the queries, and of keys and values, in Llama 2 7B and 13B as many as of queries. [1]
    head_size : int, sympy.Expr or None
        Features of a head; None for ``width / heads``. [1]
    intermediate : int, sympy.Expr or None
        Units inside the feed-forward part. [1]
    vocabulary : int, sympy.Symbol or None
        Words. [1]
    tied : bool
        Whether the last product uses the table of words. [-]
    gated : bool
        Whether a third product gates the units of the feed-forward part. [-]
    attention_bias, mlp_bias : bool
        Whether the products of attention, and of the feed-forward part, add a bias. [-]
    output_bias : bool or None
        Whether the product behind attention adds one; None for as the others of attention. [-]
    activation : str
        Non-linearity of the feed-forward part. [-]
    attention_dropout : float
        Rate of dropout on attention weights; zero for none. [1]
    attention : str
        ``fused`` or ``materialised``: whether the scores stay on chip or go through memory. [-]
    checkpointed : bool or str
        Whether each block keeps its input only and runs again in the backward phase, as far as the framework runs it;
        ``alternate_blocks``: every other block does; ``alternate_products``: each block also keeps what attention and
        every other product yield, and runs the rest again [3]_. [-]

    Examples
    --------
    >>> llama().parameter_count, llama(size="llama3_8b").parameter_count
    (6738415616, 8030261248)

    References
    ----------
    .. [1] Touvron et al., Llama 2, arXiv:2307.09288.
    .. [2] Grattafiori et al., The Llama 3 herd of models, arXiv:2407.21783.
    .. [3] Liang et al., TorchTitan, arXiv:2410.06511: selective activation checkpointing by layer and by operator.
    """
    family = size.partition("_")[0]
    published = {**LLAMA_SIZES[size], "vocabulary": VOCABULARIES[family], "sequence_length": CONTEXTS[family]}
    stated = {"layers": layers, "width": width, "heads": heads, "key_heads": key_heads, "intermediate": intermediate}
    stated |= {"vocabulary": vocabulary, "sequence_length": sequence_length}
    sizes: dict[str, Any] = published | {name: value for name, value in stated.items() if value is not None}
    graph = LayerGraph(size, inputs={"tokens": (sizes["sequence_length"],)})
    table = nn.Embedding(vocabulary=sizes["vocabulary"], features=sizes["width"])
    x = graph.add("tokens_embedding", table, inputs="tokens")
    block = TransformerBlock(
        width=sizes["width"],
        heads=sizes["heads"],
        intermediate=sizes["intermediate"],
        key_heads=sizes.get("key_heads"),
        head_size=head_size,
        causal=True,
        norm=nn.RMSNorm(),
        activation=activation,
        gated=gated,
        attention_bias=attention_bias,
        output_bias=output_bias,
        attention_dropout=attention_dropout,
        mlp_bias=mlp_bias,
        rotary=True,
        attention=attention,
    )
    x = block.stack(graph, x, count=sizes["layers"])
    language_head(graph, x, norm=nn.RMSNorm(), vocabulary=sizes["vocabulary"], tied=tied)
    return graph if checkpointed is False else _with_checkpoints(graph, how=checkpointed)
