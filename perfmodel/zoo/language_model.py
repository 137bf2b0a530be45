"""The two recurrent language models of Shi et al. (2016)."""

from __future__ import annotations

from collections.abc import Callable

from perfmodel.graph import LayerGraph
from perfmodel.layers import LSTM, ClassSoftmax, CrossEntropy, Dense, Embedding
from perfmodel.layers.checks import one_of
from perfmodel.zoo.blocks import chain
from perfmodel.zoo.options import checked, member, numbered

VOCABULARY = 10_000
HIDDEN_SIZE = 256


SOFTMAXES = ("full", "classes")
"""What the output layer computes the scores of: every word, or its class and the words of that class."""


def _language_model(steps: int, *, work: str) -> Callable[..., LayerGraph]:
    """Return the builder of the network over so many words, and its published multiply-adds."""
    name = f"lstm{steps}"

    def build(*, layer_count: int = 2, bias_vectors: int = 1, softmax: str = "full", classes: int = 50) -> LayerGraph:
        """Return LSTM-{steps} [1]_: {steps} words, embedding of 256, two LSTM layers of 256, softmax over 10,000 words.

        6,180,624 parameters with one bias vector (6,182,672 with two, as torch), {work} multiply-adds forward.
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
        graph = LayerGraph(name, inputs={"tokens": (steps,)})
        embedding = Embedding(vocabulary=VOCABULARY, features=HIDDEN_SIZE)
        layer = LSTM(hidden_size=HIDDEN_SIZE, layer_count=layer_count, bias_vectors=bias_vectors)
        x = chain(graph, graph.input, ("embedding", embedding), ("lstm", layer))
        if softmax == "full":
            chain(graph, x, ("scores", Dense(units=VOCABULARY)), ("loss", CrossEntropy()))
        else:
            graph.add("loss", ClassSoftmax(vocabulary=VOCABULARY, classes=classes), inputs=x)
        return graph

    options = {"layer_count": numbered(), "bias_vectors": numbered(minimum=0), "softmax": one_of(SOFTMAXES)}
    return checked(**options)(member(build, name, steps=steps, work=work))


lstm32 = _language_model(32, work="115.5 M")
lstm64 = _language_model(64, work="231.0 M")
