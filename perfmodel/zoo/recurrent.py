"""Recurrent networks that predict from sequences: Elman's, and a classifier of texts by LSTM."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from perfmodel.graph import LayerGraph
from perfmodel.layers import LSTM, RNN, BinaryCrossEntropy, CrossEntropy, Dense, Embedding
from perfmodel.layers.checks import check_count, one_of
from perfmodel.layers.recurrent import FUNCTIONS
from perfmodel.zoo.blocks import chain
from perfmodel.zoo.options import checked, numbered

READ_STEPS: dict[str, bool] = {"every": True, "last": False}
"""Which steps the output layer reads, to whether the recurrent layer returns all of them."""


@checked(
    layer_count=numbered(), bias_vectors=numbered(minimum=0), function=one_of(FUNCTIONS), read_steps=one_of(READ_STEPS)
)
def recurrent_network(
    *,
    features: Any = 31,
    hidden_size: Any = 150,
    classes: Any = 31,
    steps: Any = 32,
    layer_count: int = 1,
    bias_vectors: int = 1,
    function: Literal["tanh", "relu"] = "tanh",
    read_steps: str = "every",
) -> LayerGraph:
    """Return a simple recurrent network, by default Elman's for words [1]_: 31-150-31, 31,981 parameters.

    Parameters
    ----------
    features : int or sympy.Symbol
        Features of a step. [1]
    hidden_size : int or sympy.Symbol
        Units of a recurrent layer. [1]
    classes : int or sympy.Symbol
        Classes that are predicted. [1]
    steps : int or sympy.Symbol
        Steps of a sequence, through which gradients go back. [1]
    layer_count : int
        Recurrent layers in the stack. [1]
    bias_vectors : int
        Bias vectors of a recurrent layer: 1, or 2 as cuDNN and torch keep them. [1]
    function : str
        ``tanh`` or ``relu``. [-]
    read_steps : str
        ``every``: a class at each step; ``last``: one of the whole sequence. [-]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    Examples
    --------
    >>> recurrent_network().parameter_count
    31981

    References
    ----------
    .. [1] Elman, Finding structure in time, Cognitive Science 14, 1990.
    """
    graph = LayerGraph("recurrent_network", input_shape=(steps, features))
    layer = RNN(
        hidden_size=hidden_size,
        layer_count=layer_count,
        bias_vectors=bias_vectors,
        function=function,
        return_sequences=READ_STEPS[read_steps],
    )
    x = graph.add("rnn", layer, inputs=graph.input)
    chain(graph, x, ("scores", Dense(units=classes)), ("loss", CrossEntropy()))
    return graph


@checked(layer_count=numbered(), bias_vectors=numbered(minimum=0), classes=partial(check_count, minimum=2))
def lstm_classifier(
    *,
    vocabulary: Any = 20_000,
    features: Any = 128,
    hidden_size: Any = 64,
    steps: Any = 200,
    layer_count: int = 2,
    bidirectional: bool = True,
    bias_vectors: int = 1,
    classes: int = 2,
) -> LayerGraph:
    """Return a classifier of texts: embedding, LSTM, and the class from its last step.

    By default the bidirectional network for film reviews of Keras' examples [1]_: 2,757,761 parameters.

    Parameters
    ----------
    vocabulary : int or sympy.Symbol
        Words. [1]
    features : int or sympy.Symbol
        Features of a word. [1]
    hidden_size : int or sympy.Symbol
        Units of an LSTM layer, in each direction. [1]
    steps : int or sympy.Symbol
        Words of a text. [1]
    layer_count : int
        LSTM layers in the stack. [1]
    bidirectional : bool
        Whether each layer also reads the text backwards. [-]
    bias_vectors : int
        Bias vectors per gate: 1, or 2 as cuDNN and torch keep them. [1]
    classes : int
        Classes; two are told apart by one logistic unit, more by a softmax. [1]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    Examples
    --------
    >>> lstm_classifier().parameter_count
    2757761

    References
    ----------
    .. [1] https://keras.io/examples/nlp/bidirectional_lstm_imdb/
    """
    graph = LayerGraph("lstm_classifier", inputs={"tokens": (steps,)})
    x = graph.add("embedding", Embedding(vocabulary=vocabulary, features=features), inputs="tokens")
    layer = LSTM(
        hidden_size=hidden_size,
        layer_count=layer_count,
        bias_vectors=bias_vectors,
        bidirectional=bidirectional,
        return_sequences=False,
    )
    x = graph.add("lstm", layer, inputs=x)
    is_logistic = classes == 2
    x = graph.add("scores", Dense(units=1 if is_logistic else classes), inputs=x)
    graph.add("loss", BinaryCrossEntropy(over="logits") if is_logistic else CrossEntropy(), inputs=x)
    return graph
