"""GPT: a stack of causal transformer blocks that predicts the next word, and GPT-2's published sizes."""

from __future__ import annotations

from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import Dropout, Embedding, LayerNorm, PositionalEmbedding
from perfmodel.layers.checks import one_of
from perfmodel.zoo.activations import ACTIVATIONS
from perfmodel.zoo.options import checked, numbered
from perfmodel.zoo.transformer import ATTENTIONS, TransformerBlock, language_head

SIZES: dict[str, dict[str, Any]] = {
    "small": {"layers": 12, "width": 768, "heads": 12},
    "medium": {"layers": 24, "width": 1024, "heads": 16},
    "large": {"layers": 36, "width": 1280, "heads": 20},
    "xl": {"layers": 48, "width": 1600, "heads": 25},
}
"""Name to what differs between GPT-2's published sizes."""


@checked(layers=numbered(), activation=one_of(ACTIVATIONS), attention=one_of(ATTENTIONS))
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
        ``fused`` or ``materialised``: whether the scores stay on chip or go through memory; ``selective``: they go
        through memory and are made again in the backward phase. [-]
    checkpointed : bool
        Whether each block keeps its input only and runs again, all of it, in the backward phase. [-]
    name : str
        What the graph is called. [-]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

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
    x = graph.add("tokens_embedding", Embedding(vocabulary=vocabulary, features=width), inputs="tokens")
    x = graph.add("positions_embedding", PositionalEmbedding(positions=rows), inputs=x)
    if dropout:
        x = graph.add("embedding_dropout", Dropout(rate=dropout), inputs=x)
    block = TransformerBlock(
        width=width,
        heads=heads,
        intermediate=4 * width if intermediate is None else intermediate,
        causal=True,
        norm=LayerNorm(bias=bias),
        activation=ACTIVATIONS[activation],
        attention_bias=bias,
        mlp_bias=bias,
        dropout=dropout,
        attention_dropout=attention_dropout,
        attention=attention,
    )
    x = block.stack(graph, x, count=layers)
    language_head(graph, x, norm=LayerNorm(bias=bias), vocabulary=vocabulary, tied=tied)
    return _with_checkpoints(graph) if checkpointed else graph


def _with_checkpoints(graph: LayerGraph) -> LayerGraph:
    """Return the same network, every block of which is a region that runs again."""
    marked = LayerGraph(graph.name, inputs=graph.input_shapes)
    for node in graph.layers:
        block = node.name.partition("_")[0]
        region = {"recomputed_in": block, "reruns_all": True} if block.startswith("block") else {}
        marked.add(node.name, node.layer, inputs=node.input_names, **node.usage.options | region)
    return marked


@checked(size=one_of(SIZES), attention=one_of(ATTENTIONS))
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

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

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
    return gpt(name=f"gpt2_{size}", **SIZES[size], **options)
