"""Recurrent networks: Elman's, LSTM classifiers, language models, sequence-to-sequence models and tree networks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from perfmodel import layers as nn
from perfmodel.graph import LayerGraph
from perfmodel.layers.checks import check_count, numbered, one_of
from perfmodel.layers.recurrent import FUNCTIONS
from perfmodel.zoo.blocks import chain, shared_dense
from perfmodel.zoo.options import checked, member

READ_STEPS: dict[str, bool] = {"every": True, "last": False}
"""Which steps the output layer reads, to whether the recurrent layer returns all of them."""

CELLS: dict[str, Callable[..., nn.Layer]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
"""Name of a recurrent layer to its class."""


@checked(
    layer_count=numbered(),
    bias_vectors=numbered(minimum=0),
    function=one_of(FUNCTIONS),
    read_steps=one_of(READ_STEPS),
    cell=one_of(CELLS),
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
    cell: str = "rnn",
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
    cell : str
        ``rnn``, ``lstm`` or ``gru``; only the first has a ``function``. [-]

    Examples
    --------
    >>> recurrent_network().parameter_count
    31981

    References
    ----------
    .. [1] Elman, Finding structure in time, Cognitive Science 14, 1990.
    """
    graph = LayerGraph("recurrent_network", input_shape=(steps, features))
    layer = CELLS[cell](
        hidden_size=hidden_size,
        layer_count=layer_count,
        bias_vectors=bias_vectors,
        return_sequences=READ_STEPS[read_steps],
        **({"function": function} if cell == "rnn" else {}),
    )
    x = graph.add(cell, layer, inputs=graph.input)
    chain(graph, x, ("scores", nn.Dense(units=classes)), ("loss", nn.CrossEntropy()))
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

    Examples
    --------
    >>> lstm_classifier().parameter_count
    2757761

    References
    ----------
    .. [1] https://keras.io/examples/nlp/bidirectional_lstm_imdb/
    """
    graph = LayerGraph("lstm_classifier", inputs={"tokens": (steps,)})
    x = graph.add("embedding", nn.Embedding(vocabulary=vocabulary, features=features), inputs="tokens")
    layer = nn.LSTM(
        hidden_size=hidden_size,
        layer_count=layer_count,
        bias_vectors=bias_vectors,
        bidirectional=bidirectional,
        return_sequences=False,
    )
    x = graph.add("lstm", layer, inputs=x)
    is_logistic = classes == 2
    x = graph.add("scores", nn.Dense(units=1 if is_logistic else classes), inputs=x)
    graph.add("loss", nn.BinaryCrossEntropy(over="logits") if is_logistic else nn.CrossEntropy(), inputs=x)
    return graph


VOCABULARY = 10_000
HIDDEN_SIZE = 256


SOFTMAXES = ("full", "classes")
"""What the output layer computes the scores of: every word, or its class and the words of that class."""


def _language_model(steps: int, *, work: str) -> Callable[..., LayerGraph]:
    """Return the builder of the network over ``steps`` words; its docstring has the published multiply-adds."""
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

        References
        ----------
        .. [1] Shi, Wang, Xu, Chu, Benchmarking state-of-the-art deep learning software tools, arXiv:1608.07249,
           Table 2, and https://github.com/hclhkbu/dlbench.
        """
        graph = LayerGraph(name, inputs={"tokens": (steps,)})
        embedding = nn.Embedding(vocabulary=VOCABULARY, features=HIDDEN_SIZE)
        layer = nn.LSTM(hidden_size=HIDDEN_SIZE, layer_count=layer_count, bias_vectors=bias_vectors)
        x = chain(graph, graph.input, ("embedding", embedding), ("lstm", layer))
        if softmax == "full":
            chain(graph, x, ("scores", nn.Dense(units=VOCABULARY)), ("loss", nn.CrossEntropy()))
        else:
            graph.add("loss", nn.ClassSoftmax(vocabulary=VOCABULARY, classes=classes), inputs=x)
        return graph

    options = {"layer_count": numbered(), "bias_vectors": numbered(minimum=0), "softmax": one_of(SOFTMAXES)}
    return checked(**options)(member(build, name, steps=steps, work=work))


lstm32 = _language_model(32, work="115.5 M")
lstm64 = _language_model(64, work="231.0 M")


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

    Examples
    --------
    >>> seq2seq().parameter_count
    384112000

    References
    ----------
    .. [1] Sutskever, Vinyals, Le, Sequence to sequence learning with neural networks, arXiv:1409.3215.
    """
    graph = LayerGraph("seq2seq", inputs={"source": (source_steps,), "target": (target_steps,)})
    layer = nn.LSTM(hidden_size=hidden_size, layer_count=layer_count, bias_vectors=bias_vectors)
    table = nn.Embedding(vocabulary=source_vocabulary, features=features)
    x = graph.add("source_embedding", table, inputs="source")
    encoder = graph.add("encoder", layer, inputs=x)
    states = [
        graph.add(f"encoder_{state}", nn.RecurrentState(shape=(layer_count, hidden_size)), inputs=encoder)
        for state in ("hidden_state", "cell_state")
    ]
    table = nn.Embedding(vocabulary=target_vocabulary, features=features)
    x = graph.add("target_embedding", table, inputs="target")
    x = graph.add("decoder", layer, inputs=(x, *states))
    chain(graph, x, ("scores", nn.Dense(units=target_vocabulary)), ("loss", nn.CrossEntropy()))
    return graph


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
    words = graph.add("embedding", nn.Embedding(vocabulary=vocabulary, features=features), inputs="words")
    nodes = []
    for leaf in range(1, leaves + 1):
        row = graph.add(f"word{leaf}_row", nn.Slice(shape=(1, features)), inputs=words)
        nodes.append(graph.add(f"word{leaf}", nn.Reshape(shape=(features,)), inputs=row))
    for index, (left, right) in enumerate(_merges(leaves, tree=tree), start=1):
        pair = graph.add(f"pair{index}", nn.Concat(), inputs=(nodes[left], nodes[right]))
        x = shared_dense(graph, f"composition{index}", pair, units=features, owner="composition1")
        nodes.append(graph.add(f"tanh{index}", nn.Tanh(), inputs=x))
    for index, node in enumerate(nodes if classified == "every_node" else nodes[-1:], start=1):
        x = shared_dense(graph, f"scores{index}", node, units=classes, owner="scores1")
        graph.add(f"loss{index}", nn.CrossEntropy(), inputs=x)
    return graph
