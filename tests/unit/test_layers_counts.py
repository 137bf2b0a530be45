"""FLOP and bytes of every layer, forward and both gradients, by arithmetic written out here (fp32: 4 B)."""

import pytest

from perfmodel.errors import ArgumentError
from perfmodel.layers import (
    LSTM,
    Accuracy,
    Add,
    AveragePool2d,
    BatchNorm,
    ClassSoftmax,
    Concat,
    Convolution2d,
    CrossEntropy,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    LocalResponseNorm,
    MaxPool2d,
    ReLU,
    Scale,
    Sigmoid,
    Softmax,
    Tanh,
)
from perfmodel.records import Role, Work

N = 2  # samples


def forward(layer, *shapes):
    return layer.work(shapes, batch_size=N, phase="forward")


def backward(layer, *shapes, role=None, wanted=None):
    """Work of the backward operations, of one role or of all, where only some inputs want a gradient."""
    wanted = [True] * len(shapes) if wanted is None else wanted
    operations = layer.gradient_operations(shapes, batch_size=N, wanted=wanted)
    works = [each.work(element_bytes=4) for each in operations if role in (None, each.role)]
    return sum(works, Work())


def test_dense():
    layer, shape = Dense(units=3), (5,)
    assert layer.parameter_count((shape,)) == 5 * 3 + 3
    # y (2x3) = x (2x5) W (5x3): 2 FLOP x 2x3x5; reads x, W, b; writes y
    assert forward(layer, shape) == Work(60, 4 * (10 + 15 + 3), 4 * 6)
    # dx (2x5) = dy (2x3) W^T: reads dy, W
    assert backward(layer, shape, role=Role.INPUT_GRADIENT) == Work(60, 4 * (6 + 15), 4 * 10)
    # dW (5x3) = x^T dy: reads x, dy; db: sums 6 elements of dy into 3
    assert backward(layer, shape, role=Role.WEIGHT_GRADIENT) == Work(60 + 6, 4 * (10 + 6 + 6), 4 * (15 + 3))
    assert backward(layer, shape, wanted=[False]) == backward(layer, shape, role=Role.WEIGHT_GRADIENT)


def test_dense_takes_every_step_of_a_sequence_as_a_row():
    # 2 samples x 4 steps = 8 rows; no bias
    assert forward(Dense(units=3, bias=False), (4, 5)) == Work(2 * 8 * 3 * 5, 4 * (40 + 15), 4 * 24)


def test_convolution_2d():
    layer, shape = Convolution2d(out_channels=4, kernel_size=3, padding=1), (3, 5, 5)
    weights, x, y = 4 * 3 * 3 * 3, N * 3 * 25, N * 4 * 25
    flop_count = 2 * y * 27  # each output sums 3 channels x 3 x 3 taps
    assert layer.parameter_count((shape,)) == weights + 4
    assert forward(layer, shape) == Work(flop_count, 4 * (x + weights + 4), 4 * y)
    assert backward(layer, shape, role=Role.INPUT_GRADIENT) == Work(flop_count, 4 * (y + weights), 4 * x)
    assert backward(layer, shape, role=Role.WEIGHT_GRADIENT) == Work(flop_count + y, 4 * (x + y + y), 4 * (weights + 4))


def test_grouped_convolution_does_a_share_of_the_work():
    # second convolution of arXiv:1404.5997, batch 16: 64 -> 192, 27 x 27, 5 x 5: 7.16636 GFLOP; 2 groups halve it
    one = Convolution2d(out_channels=192, kernel_size=5, padding=2)
    two = Convolution2d(out_channels=192, kernel_size=5, padding=2, groups=2)
    works = [each.work(((64, 27, 27),), batch_size=16, phase="forward").flop_count for each in (one, two)]
    assert works[0] == 2 * 16 * 192 * 27 * 27 * 64 * 25 == 7_166_361_600
    assert works[1] * 2 == works[0]


@pytest.mark.parametrize(
    ("layer", "forward_flop", "backward_flop"),
    [
        (Sigmoid(), 4, 3),  # negate, exp, add, divide; 1 - y, times y, times dy
        (Tanh(), 1, 3),  # tanh; y y, 1 - that, times dy
        (ReLU(), 1, 1),  # compare; compare
    ],
    ids=lambda each: getattr(each, "kind", each),
)
def test_activations(layer, forward_flop, backward_flop):
    n = N * 10
    assert forward(layer, (10,)) == Work(forward_flop * n, 4 * n, 4 * n)
    assert backward(layer, (10,)) == Work(backward_flop * n, 4 * 2 * n, 4 * n)  # reads dy and y
    assert backward(layer, (10,), wanted=[False]) == Work()


def test_relu_of_the_reference():
    # behind the first convolution of ResNet-50 (arXiv:1512.03385, table 1): 32 x 64 x 112 x 112 elements, 205.52 MB
    moved = ReLU().work(((64, 112, 112),), batch_size=32, phase="forward").moved_bytes
    assert moved == 2 * 4 * 25_690_112 == 205_520_896


def test_softmax():
    n = N * 10
    # max, subtract, exp, add, divide; a row stays on chip between its sum and its division
    assert forward(Softmax(), (10,)) == Work(5 * n, 4 * n, 4 * n)
    # sum of dy y (2), dy minus it, times y; y and dy are read
    assert backward(Softmax(), (10,)) == Work(4 * n, 4 * 2 * n, 4 * n)


def test_cross_entropy_over_logits():
    layer, n = CrossEntropy(), N * 10
    # the softmax's 5 per element, log and negate per sample; writes probabilities and a loss; label 4 B
    assert forward(layer, (10,)) == Work(5 * n + 2 * N, 4 * 2 * n + 4 * N, 4 * (n + N))
    # (p - onehot) dy: n multiplies, a subtraction per sample; reads p, dy and the label
    assert backward(layer, (10,)) == Work(n + N, 4 * (n + N) + 4 * N, 4 * n)
    assert layer.saved_bytes(((10,),), batch_size=N, element_bytes=4) == 4 * n
    assert layer.label_bytes(((7, 10),)) == 4 * 7  # one word per step


def test_cross_entropy_over_probabilities():
    layer, n = CrossEntropy(over="probabilities"), N * 10
    # one probability and one label per sample: log, negate
    assert forward(layer, (10,)) == Work(2 * N, 4 * N + 4 * N, 4 * N)
    # -dy / p at the label, zero elsewhere
    assert backward(layer, (10,)) == Work(2 * N, 4 * 2 * N + 4 * N, 4 * n)
    assert layer.saved_bytes(((10,),), batch_size=N, element_bytes=4) == 0


def test_accuracy():
    n, rows = N * 5 * 6, N * 5
    assert Accuracy().output_shape(((5, 6),)) == (5,)
    # each of the 60 scores is read and compared once, and an index of 4 B is written for each of the 10 rows
    assert forward(Accuracy(), (5, 6)) == Work(n, 4 * n, 4 * rows)
    # the rows of one-hot labels are as long, and are searched in the same way
    assert forward(Accuracy(labels="one_hot"), (5, 6)) == Work(2 * n, 4 * 2 * n, 4 * 2 * rows)
    for layer in (Accuracy(), Accuracy(labels="one_hot")):
        assert backward(layer, (5, 6)) == Work()
        assert layer.parameter_count(((5, 6),)) == 0
        assert {each.row_elements for each in layer.operations(((5, 6),), batch_size=N, phase="forward")} == {6}
    # FCN-5 on 64 rows of 26,752 scores: 6.85 MB are searched, and once more for the labels
    assert forward(Accuracy(labels="one_hot"), (26_752,)).read_bytes * 64 // N == 2 * 64 * 26_752 * 4 == 13_697_024


def test_class_softmax():
    layer, shape = ClassSoftmax(vocabulary=12, classes=3), (5, 6)
    rows, h, classes, words = N * 5, 6, 3, 4
    n = rows * (classes + words)
    assert layer.parameter_count((shape,)) == h * (3 + 12)
    assert forward(layer, shape) == Work(
        2 * rows * h * classes + 2 * rows * h * words + 5 * n + 4 * rows,  # loss: 2 logs, add, negate
        4 * (rows * h + h * classes)  # onto classes
        + 4 * rows * (h + h * words)  # onto words: each row with its own slice of the matrix
        + 4 * 2 * n
        + 4 * rows,  # softmax over both, and the label
        4 * (rows * classes + rows * words + n + rows),
    )
    into_input = Work(
        2 * rows * h * (classes + words) + rows * h,  # two products and their sum
        4 * (rows * classes + classes * h + rows * (words + words * h) + 2 * rows * h),
        4 * 3 * rows * h,
    )
    assert backward(layer, shape, role=Role.INPUT_GRADIENT) == into_input
    into_weights = Work(
        n + 2 * rows + 2 * rows * h * (classes + words),
        4 * (n + rows) + 4 * rows + 4 * (rows * h + rows * classes) + 4 * rows * (h + words),
        4 * n + 4 * h * classes + 4 * rows * h * words,
    )
    assert backward(layer, shape, role=Role.WEIGHT_GRADIENT) == into_weights
    assert layer.saved_bytes((shape,), batch_size=N, element_bytes=4) == 4 * n


def test_scale():
    layer, shape, n = Scale(), (3, 2, 2), N * 12
    assert layer.parameter_count((shape,)) == 6
    assert forward(layer, shape) == Work(2 * n, 4 * (n + 6), 4 * n)  # multiply, add
    # dx: multiply; dgamma: multiply, add; dbeta: add; reads x, dy and gamma
    assert backward(layer, shape) == Work(4 * n, 4 * (2 * n + 3), 4 * (n + 6))
    assert backward(layer, shape, wanted=[False]) == Work(3 * n, 4 * 2 * n, 4 * 6)
    without = Scale(bias=False)
    assert without.parameter_count((shape,)) == 3
    assert forward(without, shape) == Work(n, 4 * (n + 3), 4 * n)
    assert backward(without, shape) == Work(3 * n, 4 * (2 * n + 3), 4 * (n + 3))


def test_dropout():
    layer, n = Dropout(rate=0.5), N * 10
    assert forward(layer, (10,)) == Work(2 * n, 4 * n, 4 * n + n)  # mask 1 B each
    assert backward(layer, (10,)) == Work(n, 4 * n + n, 4 * n)
    assert layer.saved_bytes(((10,),), batch_size=N, element_bytes=2) == n


def test_batch_norm():
    layer, shape, n = BatchNorm(), (3, 2, 2), N * 12
    assert layer.parameter_count((shape,)) == 6
    # sum (1), sum of squares (2), normalise (2), gamma and beta (2); x twice, gamma, beta; y, mean, deviation
    assert forward(layer, shape) == Work(7 * n, 4 * (2 * n + 6), 4 * (n + 6))
    # sums of dy (1) and dy xhat (2 + 2), dx (6); x and dy twice, mean, deviation, gamma; dx, dgamma, dbeta
    assert backward(layer, shape) == Work(11 * n, 4 * (4 * n + 9), 4 * (n + 6))
    assert backward(layer, shape, wanted=[False]) == Work(5 * n, 4 * (2 * n + 6), 4 * 6)
    assert layer.saved_bytes((shape,), batch_size=N, element_bytes=4) == 4 * 6


def test_batch_norm_without_affine_has_nothing_to_learn():
    layer, shape, n = BatchNorm(affine=False), (3, 2, 2), N * 12
    assert layer.parameter_count((shape,)) == 0
    assert forward(layer, shape) == Work(5 * n, 4 * 2 * n, 4 * (n + 6))
    assert backward(layer, shape) == Work(11 * n, 4 * (4 * n + 6), 4 * n)
    assert backward(layer, shape, wanted=[False]) == Work()


def test_batch_norm_without_scale_has_beta_alone():
    layer, shape, n = BatchNorm(scale=False), (3, 2, 2), N * 12
    assert layer.parameter_shapes((shape,)) == {"beta": (3,)}
    assert forward(layer, shape) == Work(6 * n, 4 * (2 * n + 3), 4 * (n + 6))
    assert backward(layer, shape) == Work(11 * n, 4 * (4 * n + 6), 4 * (n + 3))
    # of beta alone: the sum of dy
    assert backward(layer, shape, wanted=[False]) == Work(n, 4 * (n + 6), 4 * 3)
    frozen = BatchNorm(scale=False, statistics="given")
    # dx = dy / deviation (1), and the sum of dy (1)
    assert backward(frozen, shape) == Work(2 * n, 4 * (2 * n + 6), 4 * (n + 3))
    with pytest.raises(ArgumentError, match="scale must be True without affine"):
        BatchNorm(affine=False, scale=False)


def test_local_response_norm():
    layer, shape, n = LocalResponseNorm(size=5), (8, 2, 2), N * 32
    summed = N * 4 * (3 + 4 + 5 + 5 + 5 + 5 + 4 + 3)  # neighbours of the 8 channels, clipped at both ends
    assert forward(layer, shape) == Work(4 * n + summed, 4 * n, 4 * 2 * n)
    assert backward(layer, shape) == Work(6 * n + summed, 4 * 4 * n, 4 * n)
    wide = LocalResponseNorm(size=99)  # every channel sees all 3
    assert forward(wide, (3, 1, 1)).flop_count == N * 3 * (4 + 3)
    assert layer.saved_bytes((shape,), batch_size=N, element_bytes=4) == 4 * n


def test_max_pool_2d():
    layer, shape = MaxPool2d(kernel_size=2), (3, 4, 4)
    n, o = N * 48, N * 12
    assert forward(layer, shape) == Work(3 * o, 4 * n, 4 * o + 4 * o)  # 3 comparisons of 4; index 4 B
    assert backward(layer, shape) == Work(o, 4 * o + 4 * o, 4 * n)
    assert layer.saved_index_count((shape,), batch_size=N) == o


def test_pooling_counts_no_taps_beyond_the_map():
    # 28 windows of 3 along 56, the last of 2: 27 x 3 + 2 = 83 taps
    overhanging = MaxPool2d(kernel_size=3, stride=2, ceil_mode=True)
    assert forward(overhanging, (1, 56, 56)).flop_count == N * (83**2 - 28**2)
    # 3 windows of 3 along 5 with a zero at either end: 2 + 3 + 2 = 7 taps, in both dimensions
    padded = AveragePool2d(kernel_size=3, stride=2, padding=1)
    assert forward(padded, (2, 5, 5)).flop_count == N * 2 * 7**2
    assert backward(padded, (2, 5, 5)).flop_count == N * 2 * (7**2 + 3**2)


def test_avg_pool_2d():
    n, o = N * 48, N * 12
    layer = AveragePool2d(kernel_size=2)
    assert forward(layer, (3, 4, 4)) == Work(4 * o, 4 * n, 4 * o)  # 3 adds and a division
    assert backward(layer, (3, 4, 4)) == Work(5 * o, 4 * o, 4 * n)  # a division and 4 adds
    globally = AveragePool2d(kernel_size=None)
    assert globally.output_shape(((3, 4, 4),)) == (3, 1, 1)
    assert forward(globally, (3, 4, 4)) == Work(16 * N * 3, 4 * n, 4 * N * 3)


def test_add():
    n = N * 10
    assert forward(Add(), (10,), (10,)) == Work(n, 4 * 2 * n, 4 * n)
    assert forward(Add(), (10,), (10,), (10,)) == Work(2 * n, 4 * 3 * n, 4 * n)
    assert backward(Add(), (10,), (10,)) == Work()  # dy itself is the gradient of each input


def test_concat():
    shapes = (3, 2, 2), (5, 2, 2)
    n = N * 32
    assert Concat().output_shape(shapes) == (8, 2, 2)
    assert forward(Concat(), *shapes) == Work(0, 4 * n, 4 * n)
    assert backward(Concat(), *shapes) == Work(0, 4 * n, 4 * n)
    assert backward(Concat(), *shapes, wanted=[False, True]) == Work(0, 4 * N * 20, 4 * N * 20)


def test_flatten_costs_nothing():
    assert Flatten().output_shape(((3, 2, 2),)) == (12,)
    assert forward(Flatten(), (3, 2, 2)) == backward(Flatten(), (3, 2, 2)) == Work()


def test_embedding():
    layer, rows = Embedding(vocabulary=100, features=8), N * 7
    assert layer.output_shape(((7,),)) == (7, 8)
    assert layer.parameter_count(((7,),)) == 800
    assert forward(layer, (7,)) == Work(0, 4 * rows * 8 + 4 * rows, 4 * rows * 8)
    # clears 800 elements, then reads row and gradient, adds, writes; index 4 B
    assert backward(layer, (7,)) == Work(rows * 8, 4 * 2 * rows * 8 + 4 * rows, 4 * (rows * 8 + 800))


def test_lstm():
    layer, shape = LSTM(hidden_size=3), (4, 5)
    weights, sequence = 4 * 3 * (5 + 3), N * 4 * 3  # h elements over all steps
    x, gates = N * 4 * 5, 4 * sequence
    products = 2 * N * 4 * weights
    assert layer.parameter_count((shape,)) == weights + 12
    # 3 sigmoids of 4, 2 tanh, f c + i g, o tanh(c) = 18; writes h, c and four gates
    assert forward(layer, shape) == Work(products + 18 * sequence, 4 * (x + weights + 12), 4 * (2 * sequence + gates))
    assert backward(layer, shape, role=Role.WEIGHT_GRADIENT) == Work(
        products + gates, 4 * (gates + x + sequence), 4 * (weights + 12)
    )
    # the zero state before the first step wants no gradient: one product of h x 4 h less, as FlopCounterMode counts
    unrolled = products - 2 * N * (4 * 3) * 3
    assert backward(layer, shape, role=Role.INPUT_GRADIENT).flop_count == unrolled + 36 * sequence
    # kept: gates and c; h is the output
    assert layer.saved_bytes((shape,), batch_size=N, element_bytes=4) == 4 * 5 * sequence


def test_lstm_still_goes_back_in_time_where_its_input_wants_no_gradient():
    layer, shape = LSTM(hidden_size=3), (4, 5)
    saved = backward(layer, shape).flop_count - backward(layer, shape, wanted=[False]).flop_count
    assert saved == 2 * N * 4 * (4 * 3) * 5  # only dx = dgates W^T is left out


def test_lstm_stack():
    layer, shape = LSTM(hidden_size=3, layer_count=2, bias_vectors=2, return_sequences=False), (4, 5)
    assert layer.output_shape((shape,)) == (3,)
    assert layer.parameter_count((shape,)) == 4 * 3 * (5 + 3) + 4 * 3 * (3 + 3) + 2 * (2 * 12)
    sequence = N * 4 * 3
    # per step and sample 8 h (x + h) (Hochreiter, Schmidhuber 1997: four gates), then 18 + 4 (second bias) per unit
    expected = 2 * sequence * 4 * (5 + 3) + 2 * sequence * 4 * (3 + 3) + 2 * 22 * sequence
    assert forward(layer, shape).flop_count == expected
    # gates, c and h of both layers
    assert layer.saved_bytes((shape,), batch_size=N, element_bytes=4) == 4 * 2 * 6 * sequence


def test_lstm_of_the_reference():
    # four gates of h x (x + h) multiply-adds, h = x = 256, b = 128: 134.22 MFLOP per step, 4.295 GFLOP over 32 steps
    (operation,) = LSTM(hidden_size=256).operations(((32, 256),), batch_size=128, phase="forward")
    assert 2 * 128 * 32 * operation.weight_elements == 32 * 134_217_728
