"""Transformers that read all positions: BERT with its heads, and the vision transformer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfmodel import layers as nn
from perfmodel.graph import LayerGraph
from perfmodel.layers.checks import is_open_size, numbered, one_of, refuse
from perfmodel.zoo.blocks import TEXT_ACTIVATIONS, add_activation, chain, dropped, image_graph, published_sizes
from perfmodel.zoo.options import checked
from perfmodel.zoo.transformer import ATTENTIONS, OPERANDS, TransformerBlock

BERT_SIZES: dict[str, dict[str, int]] = published_sizes("bert")
"""Published size -> its options."""


def _pooled(graph: LayerGraph, x: str, *, width: Any, **_: Any) -> str:
    """Add the pooler: a dense layer with tanh over the first position."""
    x = chain(
        graph, x, ("first_position", nn.Slice(shape=(1, width))), ("first_position_vector", nn.Reshape(shape=(width,)))
    )
    return chain(graph, x, ("pooler", nn.Dense(units=width)), ("pooler_tanh", nn.Tanh()))


def _add_classifier(graph: LayerGraph, x: str, *, width: Any, classes: int, dropout: float, **_: Any) -> None:
    ends = (("classifier", nn.Dense(units=classes)), ("loss", nn.CrossEntropy()))
    chain(graph, _pooled(graph, x, width=width), ("classifier_dropout", dropped(dropout)), *ends)


def _add_masked_language_model(
    graph: LayerGraph, x: str, *, width: Any, vocabulary: Any, activation: str, **_: Any
) -> None:
    x = graph.add("transform", nn.Dense(units=width), inputs=x)
    x = add_activation(graph, x, activation, name="transform_activation")
    x = graph.add("transform_norm", nn.LayerNorm(), inputs=x)
    tied = {"weight": ("tokens_embedding", "weight")}
    x = graph.add("scores", nn.Dense(units=vocabulary), inputs=x, shared_parameters=tied)
    graph.add("loss", nn.CrossEntropy(), inputs=x)


BERT_HEADS: dict[str, Callable[..., str | None]] = {
    "pooler": _pooled,
    "classification": _add_classifier,
    "masked_language_model": _add_masked_language_model,
}
"""Name -> function that adds the end of the network."""


@checked(
    size=one_of(BERT_SIZES),
    head=one_of(BERT_HEADS),
    layers=numbered(),
    activation=one_of(TEXT_ACTIVATIONS),
    attention=one_of(ATTENTIONS),
)
def bert(
    *,
    size: str = "base",
    head: str = "pooler",
    sequence_length: Any = 512,
    layers: int | None = None,
    width: Any = None,
    heads: int | None = None,
    intermediate: Any = None,
    vocabulary: Any = 30_522,
    positions: Any = 512,
    segments: int = 2,
    classes: int = 2,
    activation: str = "gelu",
    dropout: float = 0.1,
    attention_dropout: float | None = None,
    attention: str = "fused",
) -> LayerGraph:
    """Return BERT [1]_: 109,482,240 parameters with its pooler in size ``base``, 335,141,888 in ``large``.

    Its inputs are ``tokens`` and ``segments``, whole numbers of shape (sequence_length,). Sequences fill their whole
    length, so that no mask hides padding.

    Parameters
    ----------
    size : str
        ``base`` (12 layers, width 768, 12 heads) or ``large`` (24, 1,024, 16); the next three replace single ones.
        [-]
    head : str
        ``pooler``: a dense layer with tanh over the first position, without a loss; ``classification``: classes of
        the pooled position; ``masked_language_model``: scores of every word at every position, by the table of
        words (109,514,298 parameters in ``base``). [-]
    sequence_length : int or sympy.Symbol
        Positions of a sample. [1]
    layers : int or None
        Transformer blocks. [1]
    width : int, sympy.Symbol or None
        Features of a position. [1]
    heads : int or None
        Heads of attention. [1]
    intermediate : int, sympy.Expr or None
        Units inside the feed-forward part; None for four times the width. [1]
    vocabulary : int or sympy.Symbol
        Words. [1]
    positions : int or sympy.Symbol
        Rows of the table of positions. [1]
    segments : int
        Kinds of sentences: the first and the second of a pair. [1]
    classes : int
        Classes of the head ``classification``. [1]
    activation : str
        Non-linearity of the feed-forward part. [-]
    dropout : float
        Rate of dropout; zero for none, as in inference. [1]
    attention_dropout : float or None
        Rate of dropout on attention weights; None for the same. [1]
    attention : str
        ``fused`` or ``materialised``: whether the scores stay on chip or go through memory. [-]

    Examples
    --------
    >>> bert().parameter_count, bert(size="large").parameter_count
    (109482240, 335141888)

    References
    ----------
    .. [1] Devlin, Chang, Lee, Toutanova, BERT, arXiv:1810.04805.
    """
    stated = {"layers": layers, "width": width, "heads": heads}
    sizes: dict[str, Any] = BERT_SIZES[size] | {name: value for name, value in stated.items() if value is not None}
    width = sizes["width"]
    graph = LayerGraph(f"bert_{size}", inputs={"tokens": (sequence_length,), "segments": (sequence_length,)})
    tokens = graph.add("tokens_embedding", nn.Embedding(vocabulary=vocabulary, features=width), inputs="tokens")
    kinds = graph.add("segments_embedding", nn.Embedding(vocabulary=segments, features=width), inputs="segments")
    x = graph.add("embedding_add", nn.Add(), inputs=(tokens, kinds))
    x = graph.add("positions_embedding", nn.PositionalEmbedding(positions=positions), inputs=x)
    x = chain(graph, x, ("embedding_norm", nn.LayerNorm()), ("embedding_dropout", dropped(dropout)))
    block = TransformerBlock(
        width=width,
        heads=sizes["heads"],
        intermediate=4 * width if intermediate is None else intermediate,
        order="post",
        activation=activation,
        dropout=dropout,
        attention_dropout=attention_dropout,
        attention=attention,
    )
    x = block.stack(graph, x, count=sizes["layers"])
    options = {"width": width, "vocabulary": vocabulary, "classes": classes}
    BERT_HEADS[head](graph, x, activation=activation, dropout=dropout, **options)
    return graph


VIT_HEADS = ("classification", "pooler")
"""Ends of the network."""


def _patches(graph: LayerGraph, *, patch_size: int, width: Any, dropout: float) -> str:
    """Add the patches as a sequence behind the class token, each with its position."""
    convolution = nn.Convolution2d(out_channels=width, kernel_size=patch_size, stride=patch_size)
    x = graph.add("patches", convolution, inputs=graph.input)
    _, height, breadth = graph.shape(x)
    count = height * breadth
    x = chain(
        graph,
        x,
        ("patches_flat", nn.Reshape(shape=(width, count))),
        ("patches_first", nn.Transpose(axes=(1, 0))),
    )
    token = chain(
        graph,
        graph.add("class_token", nn.Parameter(shape=(1, width))),
        ("class_tokens", nn.Expand(shape=(1, width), per_sample=True)),
    )
    x = graph.add("sequence", nn.Concat(), inputs=(token, x))
    positions = nn.PositionalEmbedding(positions=count + 1)
    return chain(graph, x, ("positions", positions), ("embedding_dropout", dropped(dropout)))


@checked(
    layers=numbered(),
    activation=one_of(TEXT_ACTIVATIONS),
    attention=one_of(ATTENTIONS),
    head=one_of(VIT_HEADS),
    operands=one_of(OPERANDS),
)
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
    operands: str = "heads",
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
    operands : str
        ``separate``: queries, keys and values by a product each; ``heads``: by one, reordered by heads; ``columns``:
        cut from one. [-]
    head : str
        ``classification``: scores of the classes from the class token, and their loss; ``pooler``: a dense layer with
        tanh over it, without a loss (86,389,248 parameters in ViT-B/16). [-]
    classes : int or sympy.Symbol
        Classes. [1]
    image_size : int or sympy.Symbol
        Height and width of the image, a multiple of the patch's. [1]
    in_channels : int or sympy.Symbol
        Channels of the image. [1]

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
        operands=operands,
        heads=heads,
        intermediate=mlp,
        activation=activation,
        dropout=dropout,
        attention_dropout=attention_dropout,
        attention=attention,
    )
    x = block.stack(graph, x, count=layers)
    ends = {
        "classification": (("fc", nn.Dense(units=classes)), ("loss", nn.CrossEntropy())),
        "pooler": (("pooler", nn.Dense(units=width)), ("pooler_tanh", nn.Tanh())),
    }
    chain(
        graph,
        x,
        ("last_norm", nn.LayerNorm()),
        ("class_output", nn.Slice(shape=(1, width))),
        ("class_vector", nn.Reshape(shape=(width,))),
        *ends[head],
    )
    return graph
