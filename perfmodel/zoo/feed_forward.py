"""Feed-forward classifiers of any depth, and the MNIST classifier of the parameter-server experiments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import CrossEntropy, Dense, Dropout
from perfmodel.layers.checks import one_of
from perfmodel.zoo.activations import ACTIVATIONS
from perfmodel.zoo.blocks import chain
from perfmodel.zoo.options import checked


@checked(activation=one_of(ACTIVATIONS))
def feed_forward(
    *,
    features: Any = 784,
    hidden: Sequence[Any] = (64, 64),
    classes: Any = 10,
    activation: str = "relu",
    dropout: float = 0.0,
    name: str = "feed_forward",
) -> LayerGraph:
    """Return a feed-forward network: dense layers, each with a non-linearity, and a softmax over classes.

    Parameters
    ----------
    features : int or sympy.Symbol
        Input features. [1]
    hidden : sequence of int or sympy.Symbol
        Units of each hidden layer. [1]
    classes : int or sympy.Symbol
        Classes. [1]
    activation : str
        Non-linearity of the hidden layers. [-]
    dropout : float
        Rate of dropout after each hidden layer; zero for none. [1]
    name : str
        What the graph is called. [-]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    Examples
    --------
    >>> feed_forward(features=2, hidden=(2,), classes=2).parameter_count
    12
    """
    graph = LayerGraph(name, input_shape=(features,))
    x = graph.input
    for index, units in enumerate(hidden, start=1):
        x = chain(graph, x, (f"fc{index}", Dense(units=units)), (f"activation{index}", ACTIVATIONS[activation]))
        x = chain(graph, x, (f"dropout{index}", Dropout(rate=dropout) if dropout else None))
    chain(graph, x, (f"fc{len(hidden) + 1}", Dense(units=classes)), ("loss", CrossEntropy()))
    return graph


@checked()
def mnist_classifier(*, dropout: float = 0.5) -> LayerGraph:
    """Return the classifier of handwritten digits 784-64-64-10: tanh, dropout, softmax; 55,050 parameters.

    Parameters
    ----------
    dropout : float
        Rate of dropout after each hidden layer; zero for none. [1]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    Examples
    --------
    >>> mnist_classifier().parameter_count
    55050
    """
    return feed_forward(activation="tanh", dropout=dropout, name="mnist_classifier")
