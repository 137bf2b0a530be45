"""Language models whose feed-forward parts are mixtures of experts: Mixtral and DeepSeek."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from perfmodel import layers as nn
from perfmodel.graph import LayerGraph
from perfmodel.layers.checks import one_of, refuse
from perfmodel.zoo.blocks import published_sizes
from perfmodel.zoo.options import checked
from perfmodel.zoo.transformer import ATTENTIONS, TransformerBlock, language_head

CONTEXT: Final = 4096
"""Positions of a sample unless the caller says otherwise, with which DeepSeek-V2 and V3 were trained. [1]"""

MIXTRAL_SIZES: Final = published_sizes("mixtral")
DEEPSEEK_SIZES: Final = published_sizes("deepseek")


@checked(size=one_of(MIXTRAL_SIZES), attention=one_of(ATTENTIONS))
def mixtral(*, size: str = "mixtral_8x7b", sequence_length: Any = CONTEXT, attention: str = "fused") -> LayerGraph:
    """Return Mixtral 8x7B [1]_: 46,702,792,704 parameters, of which a word runs through 12.9 billion.

    Parameters
    ----------
    size : str
        ``mixtral_8x7b``. [-]
    sequence_length : int or sympy.Symbol
        Positions of a sample; the network was made for up to 32,768. [1]
    attention : str
        ``fused`` or ``materialised``: whether the scores stay on chip or go through memory. [-]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    Examples
    --------
    >>> mixtral().parameter_count
    46702792704

    References
    ----------
    .. [1] Jiang et al., Mixtral of experts, arXiv:2401.04088.
    """
    return mixture(size, sequence_length=sequence_length, attention=attention, **MIXTRAL_SIZES[size])


@checked(size=one_of(DEEPSEEK_SIZES))
def deepseek(*, size: str = "deepseek_v3", sequence_length: Any = CONTEXT) -> LayerGraph:
    """Return DeepSeek-V3 [1]_, or V2 [2]_: latent attention and experts behind one to three dense blocks.

    671 billion parameters in size ``deepseek_v3``, of which a word runs through 37 billion; 236 and 21 in
    ``deepseek_v2``. Without the module that predicts a second word.

    Parameters
    ----------
    size : str
        ``deepseek_v3``, ``deepseek_v2`` or ``deepseek_v2_lite``. [-]
    sequence_length : int or sympy.Symbol
        Positions of a sample. [1]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    Examples
    --------
    >>> deepseek().parameter_count, deepseek(size="deepseek_v2_lite").parameter_count
    (671026404352, 15706484224)

    References
    ----------
    .. [1] DeepSeek-AI, DeepSeek-V3 technical report, arXiv:2412.19437.
    .. [2] DeepSeek-AI, DeepSeek-V2, arXiv:2405.04434.
    """
    return mixture(size, sequence_length=sequence_length, **DEEPSEEK_SIZES[size])


def mixture(
    name: str,
    *,
    sequence_length: Any,
    layers: int,
    width: Any,
    heads: int,
    vocabulary: Any,
    expert_units: Any,
    experts: int,
    chosen: int,
    shared: int = 0,
    dense_layers: int = 0,
    intermediate: Any = None,
    key_heads: int | None = None,
    head_size: Any = None,
    latent: Any = None,
    query_latent: Any = None,
    rotary_size: Any = None,
    value_size: Any = None,
    tied: bool = False,
    attention: str = "fused",
    attention_dropout: float = 0.0,
) -> LayerGraph:
    """Return a language model of blocks with experts, some of the first of them dense.

    Each word is sent to ``chosen`` experts, and all words run through the ``shared`` ones. ``intermediate`` are the
    units of the ``dense_layers`` first blocks. Attention is latent if ``latent`` is given.
    """
    if dense_layers > layers:
        refuse("dense_layers", dense_layers, f"must be at most layers = {layers}")
    dense = TransformerBlock(
        width=width,
        heads=heads,
        intermediate=intermediate,
        key_heads=key_heads,
        head_size=head_size,
        causal=True,
        norm=nn.RMSNorm(),
        activation="silu",
        gated=True,
        attention_bias=False,
        mlp_bias=False,
        rotary=True,
        attention=attention,
        attention_dropout=attention_dropout,
    )
    if latent is not None:
        sizes = {"latent": latent, "query_latent": query_latent, "head_size": head_size, "rotary_size": rotary_size}
        attends = nn.LatentAttention(heads=heads, value_size=value_size, causal=True, **sizes)
        dense = replace(dense, latent_attention=attends)
    chooses = nn.MixtureOfExperts(experts=experts, chosen=chosen, intermediate=expert_units)
    mixed = replace(dense, experts=chooses, intermediate=shared * expert_units)
    graph = LayerGraph(name, inputs={"tokens": (sequence_length,)})
    table = nn.Embedding(vocabulary=vocabulary, features=width)
    x = graph.add("tokens_embedding", table, inputs="tokens")
    x = dense.stack(graph, x, count=dense_layers)
    x = mixed.stack(graph, x, count=layers - dense_layers, first=dense_layers + 1)
    language_head(graph, x, norm=nn.RMSNorm(), vocabulary=vocabulary, tied=tied)
    return graph
