"""Sequence to sequence by two LSTMs: one reads, its last state starts the other, which writes."""

from __future__ import annotations

from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import LSTM, CrossEntropy, Dense, Embedding, RecurrentState
from perfmodel.zoo.blocks import chain
from perfmodel.zoo.options import checked, numbered


@checked(layer_count=numbered(), bias_vectors=numbered(minimum=0))
def seq2seq(
    *,
    source_vocabulary: Any = 160_000,
    target_vocabulary: Any = 80_000,
    features: Any = 1000,
    hidden_size: Any = 1000,
    layer_count: int = 4,
    source_steps: Any = 30,
    target_steps: Any = 30,
    bias_vectors: int = 1,
) -> LayerGraph:
    """Return the translator of Sutskever, Vinyals and Le [1]_: 384 million weights, and 112,000 biases.

    The encoder reads the source sentence; the final h and c of its layers are the first of the decoder's, which
    reads the target sentence and gives scores of every word at each step.

    Parameters
    ----------
    source_vocabulary, target_vocabulary : int or sympy.Symbol
        Words of the two languages. [1]
    features : int or sympy.Symbol
        Features of a word. [1]
    hidden_size : int or sympy.Symbol
        Units of an LSTM layer. [1]
    layer_count : int
        LSTM layers in each of the two stacks. [1]
    source_steps, target_steps : int or sympy.Symbol
        Words of the two sentences; the paper gives no mean. [1]
    bias_vectors : int
        Bias vectors per gate: 1, or 2 as cuDNN and torch keep them. [1]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    Examples
    --------
    >>> seq2seq().parameter_count
    384112000

    References
    ----------
    .. [1] Sutskever, Vinyals, Le, Sequence to sequence learning with neural networks, arXiv:1409.3215.
    """
    graph = LayerGraph("seq2seq", inputs={"source": (source_steps,), "target": (target_steps,)})
    layer = LSTM(hidden_size=hidden_size, layer_count=layer_count, bias_vectors=bias_vectors)
    table = Embedding(vocabulary=source_vocabulary, features=features)
    x = graph.add("source_embedding", table, inputs="source")
    encoder = graph.add("encoder", layer, inputs=x)
    states = [
        graph.add(f"encoder_{state}", RecurrentState(shape=(layer_count, hidden_size)), inputs=encoder)
        for state in ("hidden_state", "cell_state")
    ]
    table = Embedding(vocabulary=target_vocabulary, features=features)
    x = graph.add("target_embedding", table, inputs="target")
    x = graph.add("decoder", layer, inputs=(x, *states))
    chain(graph, x, ("scores", Dense(units=target_vocabulary)), ("loss", CrossEntropy()))
    return graph
