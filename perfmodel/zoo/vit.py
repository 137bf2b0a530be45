"""Vision transformer."""

from __future__ import annotations

from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import (
    Concat,
    Convolution2d,
    CrossEntropy,
    Dense,
    Dropout,
    Expand,
    LayerNorm,
    Parameter,
    PositionalEmbedding,
    Reshape,
    Slice,
    Tanh,
    Transpose,
)
from perfmodel.layers.checks import is_open_size, one_of, refuse
from perfmodel.zoo.activations import ACTIVATIONS
from perfmodel.zoo.blocks import chain, image_graph
from perfmodel.zoo.options import checked, numbered
from perfmodel.zoo.transformer import ATTENTIONS, TransformerBlock

HEADS = ("classification", "pooler")
"""Ends of the network."""


def _patches(graph: LayerGraph, *, patch_size: int, width: Any, dropout: float) -> str:
    """Add the patches as a sequence behind the class token, each with its position."""
    convolution = Convolution2d(out_channels=width, kernel_size=patch_size, stride=patch_size)
    x = graph.add("patches", convolution, inputs=graph.input)
    _, height, breadth = graph.shape(x)
    count = height * breadth
    x = chain(
        graph,
        x,
        ("patches_flat", Reshape(shape=(width, count))),
        ("patches_first", Transpose(axes=(1, 0))),
    )
    token = chain(
        graph,
        graph.add("class_token", Parameter(shape=(1, width))),
        ("class_tokens", Expand(shape=(1, width), per_sample=True)),
    )
    x = graph.add("sequence", Concat(), inputs=(token, x))
    x = graph.add("positions", PositionalEmbedding(positions=count + 1), inputs=x)
    return graph.add("embedding_dropout", Dropout(rate=dropout), inputs=x) if dropout else x


@checked(layers=numbered(), activation=one_of(ACTIVATIONS), attention=one_of(ATTENTIONS), head=one_of(HEADS))
def vit(
    *,
    patch_size: int = 16,
    layers: int = 12,
    heads: int = 12,
    width: Any = 768,
    mlp: Any = 3072,
    dropout: float = 0.0,
    attention_dropout: float | None = None,
    activation: str = "gelu",
    attention: str = "fused",
    head: str = "classification",
    classes: Any = 1000,
    image_size: Any = 224,
    in_channels: Any = 3,
) -> LayerGraph:
    """Return a vision transformer [1]_; as it stands ViT-B/16: 86,567,656 parameters, 17.6 G multiply-adds forward.

    Patches of the image, each projected to a vector by a convolution, are a sequence; a class token in front of it
    gathers what the classifier reads. Norms stand before attention and feed-forward part, and at the end.

    Parameters
    ----------
    patch_size : int
        Height and width of a patch. [1]
    layers : int
        Transformer blocks. [1]
    heads : int
        Heads of attention. [1]
    width : int or sympy.Symbol
        Features of a position. [1]
    mlp : int or sympy.Symbol
        Units inside the feed-forward part. [1]
    dropout : float
        Rate of dropout; zero for none, as published weights for ImageNet alone were trained. [1]
    attention_dropout : float or None
        Rate of dropout on attention weights; None for the same. [1]
    activation : str
        Non-linearity of the feed-forward part. [-]
    attention : str
        ``fused``: scores stay on chip and are computed again by back-propagation; ``materialised``: they go through
        memory. [-]
    head : str
        ``classification``: scores of the classes from the class token, and their loss; ``pooler``: a dense layer with
        tanh over it, without a loss (86,389,248 parameters in ViT-B/16). [-]
    classes : int or sympy.Symbol
        Classes. [1]
    image_size : int or sympy.Symbol
        Height and width of the image, a multiple of the patch's. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    References
    ----------
    .. [1] Dosovitskiy et al., An image is worth 16x16 words: transformers for image recognition at scale, ICLR 2021,
       arXiv:2010.11929, table 1.
    """
    graph = image_graph("vit", image_size=image_size, in_channels=in_channels)
    if not (is_open_size(image_size) or is_open_size(patch_size)) and image_size % patch_size:
        refuse("image_size", image_size, f"must be a multiple of patch_size={patch_size}")
    x = _patches(graph, patch_size=patch_size, width=width, dropout=dropout)
    block = TransformerBlock(
        width=width,
        heads=heads,
        intermediate=mlp,
        activation=ACTIVATIONS[activation],
        dropout=dropout,
        attention_dropout=attention_dropout,
        attention=attention,
    )
    x = block.stack(graph, x, count=layers)
    ends = {
        "classification": (("fc", Dense(units=classes)), ("loss", CrossEntropy())),
        "pooler": (("pooler", Dense(units=width)), ("pooler_tanh", Tanh())),
    }
    chain(
        graph,
        x,
        ("last_norm", LayerNorm()),
        ("class_output", Slice(shape=(1, width))),
        ("class_vector", Reshape(shape=(width,))),
        *ends[head],
    )
    return graph
