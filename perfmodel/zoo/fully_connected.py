"""The two fully connected networks of Shi et al. (2016)."""

from __future__ import annotations

from collections.abc import Callable

from perfmodel.graph import LayerGraph
from perfmodel.layers import Accuracy, CrossEntropy, Dense, Sigmoid
from perfmodel.zoo.blocks import chain
from perfmodel.zoo.options import checked, member, numbered


def _network(name: str, hidden: int, **published: str) -> Callable[..., LayerGraph]:
    """Return the builder of a network with so many hidden layers by default, and what is published of it."""

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
