"""The two recurrent language models of Shi et al. (2016)."""

from __future__ import annotations

from collections.abc import Callable

from perfmodel.graph import LayerGraph
from perfmodel.layers import LSTM, ClassSoftmax, CrossEntropy, Dense, Embedding
from perfmodel.layers.checks import one_of
from perfmodel.zoo.options import checked, numbered

VOCABULARY = 10_000
HIDDEN_SIZE = 256


def _full_softmax(graph: LayerGraph, x: str, *, classes: int) -> None:
    x = graph.add("scores", Dense(units=VOCABULARY), inputs=x)
    graph.add("loss", CrossEntropy(), inputs=x)


def _class_softmax(graph: LayerGraph, x: str, *, classes: int) -> None:
    graph.add("loss", ClassSoftmax(vocabulary=VOCABULARY, classes=classes), inputs=x)


SOFTMAXES: dict[str, Callable[..., None]] = {"full": _full_softmax, "classes": _class_softmax}
"""Name to what adds the output layer and its loss."""


def _language_model(name: str, layer: LSTM, *, steps: int, softmax: str, classes: int) -> LayerGraph:
    graph = LayerGraph(name, inputs={"tokens": (steps,)})
    x = graph.add("embedding", Embedding(vocabulary=VOCABULARY, features=HIDDEN_SIZE), inputs=graph.input)
    x = graph.add("lstm", layer, inputs=x)
    SOFTMAXES[softmax](graph, x, classes=classes)
    return graph


@checked(layer_count=numbered(), bias_vectors=numbered(minimum=0), softmax=one_of(SOFTMAXES))
def lstm32(*, layer_count: int = 2, bias_vectors: int = 1, softmax: str = "full", classes: int = 50) -> LayerGraph:
    """Return LSTM-32 [1]_: 32 words, embedding of 256, two LSTM layers of 256, softmax over 10,000 words.

    6,180,624 parameters with one bias vector (6,182,672 with two, as torch), 115.5 M multiply-adds forward.
    The paper's "13 million" would be a one-hot input; its scripts embed.

    Parameters
    ----------
    layer_count : int
        LSTM layers in the stack. [1]
    bias_vectors : int
        Bias vectors per gate. [1]
    softmax : str
        ``full``, or ``classes``: the two-level output layer of CNTK's script, without bias. [-]
    classes : int
        Classes of the two-level softmax. [1]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    References
    ----------
    .. [1] Shi, Wang, Xu, Chu, Benchmarking state-of-the-art deep learning software tools, arXiv:1608.07249,
       Table 2, and https://github.com/hclhkbu/dlbench.
    """
    layer = LSTM(hidden_size=HIDDEN_SIZE, layer_count=layer_count, bias_vectors=bias_vectors)
    return _language_model("lstm32", layer, steps=32, softmax=softmax, classes=classes)


@checked(layer_count=numbered(), bias_vectors=numbered(minimum=0), softmax=one_of(SOFTMAXES))
def lstm64(*, layer_count: int = 2, bias_vectors: int = 1, softmax: str = "full", classes: int = 50) -> LayerGraph:
    """Return LSTM-64: as LSTM-32 over 64 words, 231.0 M multiply-adds forward.

    Parameters
    ----------
    layer_count : int
        LSTM layers in the stack. [1]
    bias_vectors : int
        Bias vectors per gate. [1]
    softmax : str
        ``full``, or ``classes``: the two-level output layer of CNTK's script, without bias. [-]
    classes : int
        Classes of the two-level softmax. [1]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]
    """
    layer = LSTM(hidden_size=HIDDEN_SIZE, layer_count=layer_count, bias_vectors=bias_vectors)
    return _language_model("lstm64", layer, steps=64, softmax=softmax, classes=classes)
