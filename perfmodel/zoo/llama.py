"""Llama: causal blocks with rotary positions, RMS norm, grouped-query attention and a gated feed-forward part."""

from __future__ import annotations

from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import Embedding, RMSNorm
from perfmodel.layers.checks import one_of
from perfmodel.zoo.activations import ACTIVATIONS
from perfmodel.zoo.options import checked, numbered
from perfmodel.zoo.transformer import ATTENTIONS, TransformerBlock, language_head

SIZES: dict[str, dict[str, int]] = {
    "llama2_7b": {"layers": 32, "width": 4096, "heads": 32, "key_heads": 32, "intermediate": 11008},
    "llama2_13b": {"layers": 40, "width": 5120, "heads": 40, "key_heads": 40, "intermediate": 13824},
    "llama2_70b": {"layers": 80, "width": 8192, "heads": 64, "key_heads": 8, "intermediate": 28672},
    "llama3_8b": {"layers": 32, "width": 4096, "heads": 32, "key_heads": 8, "intermediate": 14336},
    "llama3_70b": {"layers": 80, "width": 8192, "heads": 64, "key_heads": 8, "intermediate": 28672},
}
"""Name to what differs between the published sizes, besides vocabulary and context."""
VOCABULARIES: dict[str, int] = {"llama2": 32_000, "llama3": 128_256}
CONTEXTS: dict[str, int] = {"llama2": 4096, "llama3": 8192}


@checked(size=one_of(SIZES), layers=numbered(), activation=one_of(ACTIVATIONS), attention=one_of(ATTENTIONS))
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
        Heads of the queries, and of keys and values. [1]
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

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    Examples
    --------
    >>> llama().parameter_count, llama(size="llama3_8b").parameter_count
    (6738415616, 8030261248)

    References
    ----------
    .. [1] Touvron et al., Llama 2, arXiv:2307.09288.
    .. [2] Grattafiori et al., The Llama 3 herd of models, arXiv:2407.21783.
    """
    family = size.partition("_")[0]
    published = {**SIZES[size], "vocabulary": VOCABULARIES[family], "sequence_length": CONTEXTS[family]}
    given = {"layers": layers, "width": width, "heads": heads, "key_heads": key_heads, "intermediate": intermediate}
    given |= {"vocabulary": vocabulary, "sequence_length": sequence_length}
    sizes: dict[str, Any] = published | {name: value for name, value in given.items() if value is not None}
    graph = LayerGraph(size, inputs={"tokens": (sizes["sequence_length"],)})
    table = Embedding(vocabulary=sizes["vocabulary"], features=sizes["width"])
    x = graph.add("tokens_embedding", table, inputs="tokens")
    block = TransformerBlock(
        width=sizes["width"],
        heads=sizes["heads"],
        intermediate=sizes["intermediate"],
        key_heads=sizes["key_heads"],
        head_size=head_size,
        causal=True,
        norm=RMSNorm(),
        activation=ACTIVATIONS[activation],
        gated=gated,
        attention_bias=attention_bias,
        output_bias=output_bias,
        attention_dropout=attention_dropout,
        mlp_bias=mlp_bias,
        rotary=True,
        attention=attention,
    )
    x = block.stack(graph, x, count=sizes["layers"])
    language_head(graph, x, norm=RMSNorm(), vocabulary=sizes["vocabulary"], tied=tied)
    return graph
