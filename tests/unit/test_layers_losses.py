"""Losses, sampling and the step of a restricted Boltzmann machine: counts by hand, calls of torch."""

import pytest
import torch

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.layers import (
    LAYERS,
    BinaryCrossEntropy,
    ContrastiveDivergence,
    CrossEntropy,
    Dense,
    Dropout,
    GaussianSample,
    Huber,
    KLDivergence,
    MeanAbsoluteError,
    MeanSquaredError,
    Reshape,
    ShapeMismatchError,
)
from perfmodel.records import Contraction, Role, Work
from tests.torch_calls import call_of, translated

N = 2  # samples
ATEN = torch.ops.aten
MEAN, NO_REDUCTION = 1, 0  # how torch numbers them


def forward(layer, *shapes):
    return layer.work(shapes, batch_size=N, phase="forward")


def gradients(layer, *shapes, wanted=None):
    operations = layer.gradient_operations(shapes, batch_size=N, wanted=wanted or [True] * len(shapes))
    return [each.work(element_bytes=4) for each in operations]


def meta(*shape, dtype=torch.float32):
    return torch.empty((N, *shape), device="meta", dtype=dtype)


def test_mean_squared_error_against_another_tensor():
    layer, n = MeanSquaredError(), N * 10
    assert layer.output_shape(((10,), (10,))) == ()
    # subtract, square, add per element, a division per sample; both are read, a loss per sample is written
    assert forward(layer, (10,), (10,)) == Work(3 * n + N, 4 * 2 * n, 4 * N)
    # 2 / 10 dy (a - b): subtract, multiply, and the factor per sample; reads both and dy
    one = Work(2 * n + N, 4 * (2 * n + N), 4 * n)
    assert gradients(layer, (10,), (10,)) == [one, one]
    assert gradients(layer, (10,), (10,), wanted=[True, False]) == [one]
    assert layer.label_bytes(((10,), (10,))) == 0


def test_mean_squared_error_against_labels():
    layer, n = MeanSquaredError(), N * 10
    assert layer.label_bytes(((10,),)) == 40  # a number for each element
    assert forward(layer, (10,)) == Work(3 * n + N, 4 * n + 4 * n, 4 * N)  # prediction and labels
    with pytest.raises(ShapeMismatchError, match="10 and 9"):
        layer.output_shape(((10,), (9,)))


@pytest.mark.parametrize(
    ("layer", "term", "gradient"),
    [
        (MeanAbsoluteError(), 2, 3),  # subtract, |.|; subtract, sign, times dy
        (Huber(), 5, 4),  # subtract, |.|, compare, two for either branch; subtract, clip on two sides, times dy
        (BinaryCrossEntropy(), 9, 6),
        (BinaryCrossEntropy(over="probabilities"), 8, 5),
    ],
    ids=str,
)
def test_terms_of_losses(layer, term, gradient):
    n = N * 10
    assert forward(layer, (10,)).flop_count == (term + 1) * n + N  # and an add per element, a division per sample
    assert gradients(layer, (10,))[0].flop_count == gradient * n + N


def test_kl_divergence_from_the_standard_normal():
    layer, n = KLDivergence(), N * 10
    # exp v, m^2, 1 + v, two differences, an add; a factor per sample
    assert forward(layer, (10,), (10,)) == Work(6 * n + N, 4 * 2 * n, 4 * N)
    to_mean, to_variance = gradients(layer, (10,), (10,))
    assert to_mean == Work(n + N, 4 * (n + N), 4 * n)  # dy m
    assert to_variance == Work(3 * n + N, 4 * (n + N), 4 * n)  # dy (exp v - 1) / 2
    # the gradients are torch's
    mean, variance = (torch.randn(N, 10, requires_grad=True) for _ in range(2))
    (-0.5 * (1 + variance - mean**2 - variance.exp()).sum(1)).sum().backward()
    torch.testing.assert_close(mean.grad, mean.detach())
    torch.testing.assert_close(variance.grad, (variance.detach().exp() - 1) / 2)


def test_kl_divergence_from_a_distribution():
    layer, n = KLDivergence(against="distribution"), N * 10
    assert forward(layer, (10,), (10,)) == Work(4 * n + N, 4 * 2 * n, 4 * N)
    assert gradients(layer, (10,), (10,), wanted=[True, False]) == [Work(2 * n + N, 4 * (n + N), 4 * n)]  # -dy p


def test_cross_entropy_over_any_axis_against_labels_that_are_an_input():
    layer = CrossEntropy(axis=0)
    scores, labels = (21, 4, 4), (4, 4)
    n, rows = N * 21 * 16, N * 16
    assert layer.output_shape((scores, labels)) == (4, 4)
    assert forward(layer, scores, labels) == Work(5 * n + 2 * rows, 4 * 2 * n + 4 * rows, 4 * (n + rows))
    assert layer.label_bytes((scores, labels)) == 0
    assert layer.label_bytes((scores,)) == 4 * 16
    assert layer.differentiable(2) == (True, False)
    with pytest.raises(ShapeMismatchError, match="4x4"):
        layer.output_shape((scores, (21,)))


def test_cross_entropy_over_log_probabilities():
    layer, n = CrossEntropy(over="log_probabilities"), N * 10
    assert forward(layer, (10,)) == Work(N, 4 * N + 4 * N, 4 * N)  # one element per row, negated
    assert gradients(layer, (10,)) == [Work(N, 4 * N + 4 * N, 4 * n)]  # zero but for -dy
    assert (CrossEntropy(over="probabilities").keeps_inputs, layer.keeps_inputs) == (True, False)


def test_gaussian_sample():
    layer, n = GaussianSample(), N * 10
    # the random numbers are written first; v / 2, exp, times e, plus m: reads m, v, e, writes z and the deviation
    assert forward(layer, (10,), (10,)) == Work(4 * n, 4 * 3 * n, 4 * n + 4 * 2 * n)
    # dv = dz s e / 2; dm is dz
    assert gradients(layer, (10,), (10,)) == [Work(3 * n, 4 * 3 * n, 4 * n)]
    assert gradients(layer, (10,), (10,), wanted=[True, False]) == []
    assert layer.saved_bytes(((10,), (10,)), batch_size=N, element_bytes=2) == 2 * 2 * n


@pytest.mark.parametrize("steps", [1, 3])
def test_contrastive_divergence(steps):
    visible, hidden = 784, 500
    layer, shape = ContrastiveDivergence(hidden_units=hidden, steps=steps), (visible,)
    assert layer.parameter_count((shape,)) == visible * hidden + visible + hidden
    product = 2 * N * visible * hidden
    operations = layer.forward_operations((shape,), batch_size=N)
    products = [each for each in operations if isinstance(each, Contraction)]
    assert [each.product_flop_count for each in products] == [product] * (1 + 2 * steps)
    # the logistic function of 1 + steps hidden and steps visible layers; the hidden units drawn before each of them
    elementwise = 4 * N * ((1 + steps) * hidden + steps * visible) + steps * N * hidden
    assert forward(layer, shape).flop_count == (1 + 2 * steps) * product + elementwise
    backward = layer.backward_operations((shape,), batch_size=N)
    assert {each.role for each in backward} == {Role.WEIGHT_GRADIENT}
    # two products of statistics whatever the steps, their difference, and that of the biases
    assert sum(each.product_flop_count for each in backward) == 2 * product
    flop_count = sum(each.work(element_bytes=4).flop_count for each in backward)
    assert flop_count == 2 * product + visible * hidden + 2 * N * (visible + hidden)


def test_a_boltzmann_machine_sends_nothing_back():
    graph = LayerGraph("belief", input_shape=(20,))
    below = graph.add("below", Dense(units=10), inputs=graph.input)
    graph.add("machine", ContrastiveDivergence(hidden_units=5), inputs=below)
    assert {name for name, _ in graph.operations(batch_size=N, phase="backward")} == {"machine"}
    assert pm.predict(graph, batch_size=N, device="gtx_1080", phase="step").step_s > 0


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: ContrastiveDivergence(hidden_units=5, steps=0), "steps"),
        (lambda: KLDivergence(against="normal"), "standard_normal"),
        (lambda: BinaryCrossEntropy(over="logit"), "logits"),
    ],
)
def test_senseless_options_are_refused(make, argument):
    with pytest.raises(ArgumentError, match=argument):
        make()


LABELS = torch.empty(N, dtype=torch.int64, device="meta")
CALLS = [
    (ATEN.mse_loss.default, (meta(10), meta(10), MEAN), MeanSquaredError()),
    (ATEN.smooth_l1_loss.default, (meta(4), meta(4), MEAN), Huber()),
    (ATEN.huber_loss.default, (meta(4), meta(4), MEAN), Huber()),
    (ATEN.l1_loss.default, (meta(4), meta(4), MEAN), MeanAbsoluteError()),
    (ATEN.binary_cross_entropy.default, (meta(10), meta(10)), BinaryCrossEntropy(over="probabilities")),
    (ATEN.binary_cross_entropy_with_logits.default, (meta(10), meta(10)), BinaryCrossEntropy()),
    (ATEN.kl_div.default, (meta(10), meta(10)), KLDivergence(against="distribution")),
    (ATEN.cross_entropy_loss.default, (meta(10), LABELS), CrossEntropy(axis=0)),
    (ATEN.cross_entropy_loss.default, (meta(10, 5), meta(5, dtype=torch.int64)), CrossEntropy(axis=0)),
    (
        ATEN.nll_loss_forward.default,
        (meta(10), LABELS, None, MEAN, -100),
        CrossEntropy(over="log_probabilities", axis=0),
    ),
    (ATEN.dropout.default, (meta(10), 0.3, True), Dropout(rate=0.3)),
    (ATEN.dropout.default, (meta(10), 0.3, False), Reshape(shape=(10,))),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "given", "layer"), CALLS, ids=lambda each: str(each)[:40])
def test_calls_of_torch(operator, given, layer):
    translation = translated(LAYERS.values(), call_of(operator, *given))
    assert translation.layer == layer
    translation.layer.output_shape(tuple(each.shape for each in translation.inputs))


def test_a_loss_that_is_not_reduced_is_not_taken():
    # it is a number for each element, not one for each sample
    assert translated(LAYERS.values(), call_of(ATEN.mse_loss.default, meta(10), meta(10), NO_REDUCTION)) is None
    smoothed = call_of(ATEN.cross_entropy_loss.default, meta(10), LABELS, None, MEAN, -100, 0.1)
    assert translated(LAYERS.values(), smoothed) is None
