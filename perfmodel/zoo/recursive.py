"""Recursive neural networks: one composition, applied at every inner node of a binary tree."""

from __future__ import annotations

from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.layers import Concat, CrossEntropy, Dense, Embedding, Reshape, Slice, Tanh
from perfmodel.layers.checks import one_of
from perfmodel.zoo.options import checked, numbered

TREES = ("balanced", "chain")
CLASSIFIED = ("every_node", "root")


def _merges(leaves: int, *, tree: str) -> list[tuple[int, int]]:
    """Return the two nodes that each composition joins: 0 .. leaves - 1 are leaves, then compositions in order."""
    merges: list[tuple[int, int]] = []

    def joined(left: int, right: int) -> int:
        merges.append((left, right))
        return leaves + len(merges) - 1

    nodes = list(range(leaves))
    while len(nodes) > 1:
        pairs = 1 if tree == "chain" else len(nodes) // 2
        parents = [joined(nodes[2 * index], nodes[2 * index + 1]) for index in range(pairs)]
        nodes = parents + nodes[2 * pairs :]
    return merges


@checked(leaves=numbered(minimum=2), tree=one_of(TREES), classified=one_of(CLASSIFIED))
def recursive_network(
    *,
    leaves: int = 16,
    features: Any = 30,
    vocabulary: Any = 10_000,
    classes: Any = 5,
    tree: str = "balanced",
    classified: str = "every_node",
) -> LayerGraph:
    """Return Socher's recursive neural network [1]_ over a binary tree, with the classifier of its nodes [2]_.

    A sentence of n words takes n - 1 compositions p = tanh(W [a; b] + c), all with the same W and c.

    Parameters
    ----------
    leaves : int
        Words of a sentence, n. [1]
    features : int or sympy.Symbol
        Features of a word or phrase; the paper's are 25 to 35. [1]
    vocabulary : int or sympy.Symbol
        Words that are known. [1]
    classes : int or sympy.Symbol
        Classes of a node, e.g. five of sentiment. [1]
    tree : str
        ``balanced``: neighbours are joined in pairs, level by level, log2 n
        compositions from leaf to root; ``chain``: each word is
        joined to all before it, n - 1 compositions deep. [-]
    classified : str
        ``every_node``, words included, as in [2]_; or the ``root`` alone. [-]

    Returns
    -------
    LayerGraph
        The network with its losses. [-]

    Examples
    --------
    Words 10,000 x 30, composition 60 x 30 + 30, classifier 30 x 5 + 5:

    >>> recursive_network().parameter_count
    301985

    References
    ----------
    .. [1] Socher, Lin, Ng, Manning, Parsing natural scenes and natural language with recursive neural networks,
       ICML 2011.
    .. [2] Socher et al., Recursive deep models for semantic compositionality over a sentiment treebank, EMNLP 2013.
    """
    graph = LayerGraph("recursive_network", inputs={"words": (leaves,)})
    words = graph.add("embedding", Embedding(vocabulary=vocabulary, features=features), inputs="words")
    nodes = []
    for leaf in range(1, leaves + 1):
        row = graph.add(f"word{leaf}_row", Slice(shape=(1, features)), inputs=words)
        nodes.append(graph.add(f"word{leaf}", Reshape(shape=(features,)), inputs=row))
    for index, (left, right) in enumerate(_merges(leaves, tree=tree), start=1):
        pair = graph.add(f"pair{index}", Concat(), inputs=(nodes[left], nodes[right]))
        x = _shared_dense(graph, f"composition{index}", units=features, inputs=pair, owner="composition1")
        nodes.append(graph.add(f"tanh{index}", Tanh(), inputs=x))
    for index, node in enumerate(nodes if classified == "every_node" else nodes[-1:], start=1):
        x = _shared_dense(graph, f"scores{index}", units=classes, inputs=node, owner="scores1")
        graph.add(f"loss{index}", CrossEntropy(), inputs=x)
    return graph


def _shared_dense(graph: LayerGraph, name: str, *, units: Any, inputs: str, owner: str) -> str:
    """Add a dense layer whose parameters are the owner's, unless it is the owner."""
    shared = None if name == owner else {parameter: (owner, parameter) for parameter in ("weight", "bias")}
    return graph.add(name, Dense(units=units), inputs=inputs, shared_parameters=shared)
