"""The two fully connected networks of Shi et al. (2016)."""

from __future__ import annotations

from perfmodel.graph import LayerGraph
from perfmodel.layers import Accuracy, CrossEntropy, Dense, Sigmoid
from perfmodel.zoo.options import checked, numbered


def _fully_connected(name: str, *, hidden_layers: int, width: int, features: int, accuracy: bool) -> LayerGraph:
    graph = LayerGraph(name, input_shape=(features,))
    x = graph.input
    for index in range(1, hidden_layers + 1):
        x = graph.add(f"fc{index}", Dense(units=width), inputs=x)
        x = graph.add(f"sigmoid{index}", Sigmoid(), inputs=x)
    x = graph.add(f"fc{hidden_layers + 1}", Dense(units=features), inputs=x)
    graph.add("loss", CrossEntropy(), inputs=x)
    if accuracy:
        graph.add("accuracy", Accuracy(labels="one_hot"), inputs=x)
    return graph


@checked(hidden_layers=numbered())
def fcn5(*, hidden_layers: int = 3, width: int = 2048, features: int = 26752, accuracy: bool = False) -> LayerGraph:
    """Return FCN-5 [1]_, a classifier of 26,752 features into as many classes.

    Three hidden layers of 2,048 units with sigmoid, softmax loss. 117,997,696 parameters, 117,964,800
    multiply-adds forward. The paper's "55 million" is one 26752 x 2048 matrix; its scripts [2]_ say 2048
    units.

    Parameters
    ----------
    hidden_layers : int
        Hidden layers. [1]
    width : int
        Units of each. [1]
    features : int
        Input features, and classes. [1]
    accuracy : bool
        Whether each step also compares the largest scores with one-hot labels. [-]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    References
    ----------
    .. [1] Shi, Wang, Xu, Chu, Benchmarking state-of-the-art deep learning software tools, arXiv:1608.07249,
       Table 2.
    .. [2] https://github.com/hclhkbu/dlbench, synthetic/experiments/*/fc/ffn26752.*
    """
    return _fully_connected("fcn5", hidden_layers=hidden_layers, width=width, features=features, accuracy=accuracy)


@checked(hidden_layers=numbered())
def fcn8(*, hidden_layers: int = 6, width: int = 2048, features: int = 26752, accuracy: bool = False) -> LayerGraph:
    """Return FCN-8 [1]_: as FCN-5 with six hidden layers (Torch's script has five).

    130,586,752 parameters, 130,547,712 multiply-adds forward.

    Parameters
    ----------
    hidden_layers : int
        Hidden layers. [1]
    width : int
        Units of each. [1]
    features : int
        Input features, and classes. [1]
    accuracy : bool
        Whether each step also compares the largest scores with one-hot labels. [-]

    Returns
    -------
    LayerGraph
        The network with its loss. [-]

    References
    ----------
    .. [1] Shi, Wang, Xu, Chu, Benchmarking state-of-the-art deep learning software tools, arXiv:1608.07249,
       Table 2.
    """
    return _fully_connected("fcn8", hidden_layers=hidden_layers, width=width, features=features, accuracy=accuracy)
