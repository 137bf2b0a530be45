"""Counts of networks whose sizes are symbols: exact, expanded, and equal to those of the sizes put in at the start."""

import random

import pytest
import sympy

from perfmodel import zoo

N, S, W, V, T = sympy.symbols("N S W V T", integer=True, positive=True)
POINTS = 4


def _autoencoder(features, code):
    return zoo.autoencoder(widths=(features, 40, code))


NETWORKS = {
    # builder; symbol and least value and step of what it takes, by argument
    "bert": (zoo.bert, {"sequence_length": (S, 1, 1), "width": (W, 12, 12), "vocabulary": (V, 5, 1)}),
    "bert_materialised": (
        lambda **sizes: zoo.bert(layers=2, attention="materialised", head="masked_language_model", **sizes),
        {"sequence_length": (S, 1, 1)},
    ),
    "gpt": (
        lambda **sizes: zoo.gpt(layers=3, heads=4, dropout=0.1, **sizes),
        {"sequence_length": (S, 1, 1), "width": (W, 4, 4), "vocabulary": (V, 2, 1)},
    ),
    "llama": (
        lambda **sizes: zoo.llama(layers=2, heads=8, key_heads=2, **sizes),
        {"sequence_length": (S, 1, 1), "width": (W, 16, 16), "intermediate": (T, 1, 1)},
    ),
    "seq2seq": (
        lambda **sizes: zoo.seq2seq(source_vocabulary=100, target_vocabulary=90, layer_count=2, **sizes),
        {"source_steps": (S, 2, 1), "target_steps": (T, 2, 1), "hidden_size": (W, 1, 1), "features": (V, 1, 1)},
    ),
    "lstm_classifier": (
        lambda **sizes: zoo.lstm_classifier(vocabulary=50, **sizes),
        {"steps": (S, 2, 1), "hidden_size": (W, 1, 1)},
    ),
    "recurrent_network": (zoo.recurrent_network, {"steps": (S, 2, 1), "hidden_size": (W, 1, 1)}),
    "recursive_network": (zoo.recursive_network, {"features": (W, 1, 1), "classes": (V, 2, 1)}),
    "autoencoder": (_autoencoder, {"features": (W, 1, 1), "code": (V, 1, 1)}),
    "variational_autoencoder": (zoo.variational_autoencoder, {"features": (W, 1, 1), "latent": (V, 1, 1)}),
    "generative_adversarial_network": (
        zoo.generative_adversarial_network,
        {"features": (W, 1, 1), "noise": (V, 1, 1)},
    ),
    "restricted_boltzmann_machine": (
        zoo.restricted_boltzmann_machine,
        {"visible": (W, 1, 1), "hidden": (V, 1, 1)},
    ),
    "resnet18": (zoo.resnet18, {"image_size": (S, 32, 1), "width": (W, 1, 1), "classes": (V, 2, 1)}),
    "vit": (
        lambda **sizes: zoo.vit(layers=2, heads=4, **sizes),
        {"image_size": (S, 32, 16), "width": (W, 4, 4), "mlp": (V, 1, 1)},
    ),
    "vgg11": (zoo.vgg11, {"image_size": (S, 32, 1), "in_channels": (T, 1, 1)}),
}
MOST_TERMS = 40
"""Terms of an expanded sum of products over at most four sizes and the batch; sums that grow with depth have more."""


def _counts(graph, batch_size):
    """Every count of a graph, by name."""
    counts = {"parameter_count": graph.parameter_count, "kept_bytes": graph.kept_bytes(batch_size=batch_size)}
    for phase in ("forward", "backward", "step"):
        work = graph.work(batch_size=batch_size, phase=phase, dtype="fp16")
        counts |= {f"{phase} {name}": getattr(work, name) for name in ("flop_count", "read_bytes", "written_bytes")}
    return counts


@pytest.mark.parametrize("name", NETWORKS)
def test_symbolic_counts_equal_numeric_ones(name):
    build, arguments = NETWORKS[name]
    open_graph = build(**{argument: symbol for argument, (symbol, *_) in arguments.items()})
    assert open_graph.free_sizes == tuple(sorted(symbol.name for symbol, *_ in arguments.values()))
    symbolic = _counts(open_graph, N)
    drawn = random.Random(name)
    for _ in range(POINTS):
        sizes = {argument: least + step * drawn.randrange(30) for argument, (_, least, step) in arguments.items()}
        batch_size = drawn.randint(1, 50)
        point = {arguments[argument][0]: size for argument, size in sizes.items()} | {N: batch_size}
        graph = build(**sizes)
        numeric = _counts(graph, batch_size)
        assert {count: sympy.sympify(value).subs(point) for count, value in symbolic.items()} == numeric
        filled = open_graph.with_sizes(**{symbol.name: size for symbol, size in point.items() if symbol is not N})
        assert filled.fingerprint == graph.fingerprint


@pytest.mark.parametrize("name", NETWORKS)
def test_symbolic_counts_are_simplified_and_affine_in_the_batch(name):
    build, arguments = NETWORKS[name]
    graph = build(**{argument: symbol for argument, (symbol, *_) in arguments.items()})
    for count, expression in _counts(graph, N).items():
        expression = sympy.sympify(expression)
        assert expression == expression.expand(), count
        assert len(sympy.Add.make_args(expression)) <= MOST_TERMS, count
        assert sympy.diff(expression, N, 2) == 0, count


def test_counts_of_a_layer_of_gpt_in_symbols():
    # one block without dropout: 24 S W^2 + 4 S^2 W of products (Narayanan et al., arXiv:2104.04473), and scores
    graph = zoo.gpt(layers=1, heads=1, sequence_length=S, width=W, vocabulary=V)
    pairs = graph.operations(batch_size=N, phase="forward")
    products = sympy.expand(sum(operation.product_flop_count for _, operation in pairs))
    assert products == sympy.expand(N * (24 * S * W**2 + 4 * S**2 * W + 2 * S * W * V))
    # 12 W^2 of matrices, 9 W of their biases, 3 norms of 2 W, and the tables of words and positions
    assert graph.parameter_count == sympy.expand(12 * W**2 + 9 * W + 6 * W + V * W + S * W)


def test_kept_bytes_of_a_layer_of_gpt_are_those_of_korthikanti():
    # Korthikanti et al., arXiv:2205.05198, equation 1: a layer keeps s b h (34 + 5 a s / h) bytes in half precision;
    # the paper leaves out mean and deviation of each row of the two norms
    heads = 4
    two, three = (
        zoo.gpt(layers=layers, heads=heads, sequence_length=S, width=W, dropout=0.1, attention="materialised")
        for layers in (2, 3)
    )
    kept = three.kept_bytes(batch_size=N, dtype="fp16") - two.kept_bytes(batch_size=N, dtype="fp16")
    statistics = 2 * 2 * 2 * N * S
    assert kept == sympy.expand(34 * S * N * W + 5 * heads * S**2 * N + statistics)
