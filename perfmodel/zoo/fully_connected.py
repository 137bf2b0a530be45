"""Fully connected classifiers: one of any depth, one for MNIST, and the two of Shi et al. (2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import Accuracy, CrossEntropy, Dense, Sigmoid
from perfmodel.layers.checks import numbered, one_of
from perfmodel.zoo.blocks import ACTIVATIONS, chain, dropped
from perfmodel.zoo.options import checked, member


def _network(name: str, hidden: int, **published: str) -> Callable[..., LayerGraph]:
    """Return the builder of a network with ``hidden`` hidden layers by default, documented with published facts."""

    def build(
        *, hidden_layers: int = hidden, width: int = 2048, features: int = 26752, accuracy: bool = False
    ) -> LayerGraph:
        """Return {title} [1]_, a classifier of 26,752 features into as many classes.

        {depth} hidden layers of 2,048 units with sigmoid, softmax loss. {parameters} parameters, {work}
        multiply-adds forward. {remark}

        Parameters
        ----------
        hidden_layers : int
            Hidden layers. [1]
        width : int
            Units of each hidden layer. [1]
        features : int
            Input features, and classes. [1]
        accuracy : bool
            Whether each step also compares the largest scores with one-hot labels. [-]

        References
        ----------
        .. [1] Shi, Wang, Xu, Chu, Benchmarking state-of-the-art deep learning software tools, arXiv:1608.07249,
           Table 2.
        .. [2] https://github.com/hclhkbu/dlbench, synthetic/experiments/*/fc/ffn26752.*
        """
        graph = LayerGraph(name, input_shape=(features,))
        x = graph.input
        for index in range(1, hidden_layers + 1):
            x = chain(graph, x, (f"fc{index}", Dense(units=width)), (f"sigmoid{index}", Sigmoid()))
        scores = graph.add(f"fc{hidden_layers + 1}", Dense(units=features), inputs=x)
        graph.add("loss", CrossEntropy(), inputs=scores)
        if accuracy:
            graph.add("accuracy", Accuracy(labels="one_hot"), inputs=scores)
        return graph

    return checked(hidden_layers=numbered())(member(build, name, **published))


_REMARK_5 = """The paper's "55 million" is one 26752 x 2048 matrix; its scripts [2]_ say 2048 units."""
fcn5 = _network("fcn5", 3, title="FCN-5", depth="Three", parameters="117,997,696", work="117,964,800", remark=_REMARK_5)
_REMARK_8 = "Torch's script [2]_ has five hidden layers."
fcn8 = _network("fcn8", 6, title="FCN-8", depth="Six", parameters="130,586,752", work="130,547,712", remark=_REMARK_8)


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
        Name of the graph. [-]

    Examples
    --------
    >>> feed_forward(features=2, hidden=(2,), classes=2).parameter_count
    12
    """
    graph = LayerGraph(name, input_shape=(features,))
    x = graph.input
    for index, units in enumerate(hidden, start=1):
        x = chain(graph, x, (f"fc{index}", Dense(units=units)), (f"activation{index}", ACTIVATIONS[activation]))
        x = chain(graph, x, (f"dropout{index}", dropped(dropout)))
    chain(graph, x, (f"fc{len(hidden) + 1}", Dense(units=classes)), ("loss", CrossEntropy()))
    return graph


@checked()
def mnist_classifier(*, dropout: float = 0.5) -> LayerGraph:
    """Return the classifier of handwritten digits 784-64-64-10: tanh, dropout, softmax; 55,050 parameters.

    Parameters
    ----------
    dropout : float
        Rate of dropout after each hidden layer; zero for none. [1]

    Examples
    --------
    >>> mnist_classifier().parameter_count
    55050
    """
    return feed_forward(activation="tanh", dropout=dropout, name="mnist_classifier")
