"""Windows and padding by hand; options and shapes that make no sense are refused with what is allowed."""

import numpy as np
import pytest
import sympy

from perfmodel.errors import ArgumentError
from perfmodel.layers import (
    GRU,
    LSTM,
    RNN,
    Accuracy,
    Add,
    AveragePool2d,
    ClassSoftmax,
    Concat,
    Convolution2d,
    CrossEntropy,
    Dense,
    Dropout,
    Embedding,
    LocalResponseNorm,
    MaxPool2d,
    MultiHeadAttention,
    PositionalEmbedding,
    RecurrentState,
    RotaryEmbedding,
    ScaledDotProductAttention,
    ShapeMismatchError,
)
from perfmodel.layers.checks import checked_batch_size


@pytest.mark.parametrize(
    ("options", "size", "expected"),
    [
        ({"kernel_size": 11, "stride": 4}, 227, 55),  # (227 - 11) / 4 + 1
        ({"kernel_size": 11, "stride": 4, "padding": 2}, 224, 55),  # floor((228 - 11) / 4) + 1
        ({"kernel_size": 11, "stride": 4, "padding": "same"}, 224, 56),  # ceil(224 / 4)
        ({"kernel_size": 3, "padding": "same"}, 13, 13),
        ({"kernel_size": 2, "stride": 2, "padding": "same"}, 5, 3),
        ({"kernel_size": 1, "stride": 2, "padding": "same"}, 5, 3),  # no zeros needed
        ({"kernel_size": 3, "dilation": 2}, 7, 3),  # spans 5
        ({"kernel_size": 3, "dilation": 2, "padding": "same"}, 7, 7),
    ],
)
def test_convolution_windows(options, size, expected):
    layer = Convolution2d(out_channels=8, **options)
    assert layer.output_shape(((3, size, size),)) == (8, expected, expected)


def test_same_padding_puts_the_odd_zero_at_the_end():
    # 224 wide, kernel 7, stride 2: 112 windows span 229 = 224 + 5: 2 before, 3 after (TensorFlow)
    layer = Convolution2d(out_channels=8, kernel_size=7, stride=2, padding="same")
    (operation,) = layer.operations(((3, 224, 224),), batch_size=1, phase="forward")
    assert operation.padding == ((2, 3), (2, 3))


def test_height_and_width_are_apart():
    layer = Convolution2d(out_channels=8, kernel_size=(3, 1), stride=(2, 1), padding=((1, 0), (0, 2)))
    assert layer.output_shape(((3, 8, 5),)) == (8, 4, 7)  # (8 + 1 - 3) // 2 + 1, 5 + 2
    assert layer.parameter_count(((3, 8, 5),)) == 8 * 3 * 3 * 1 + 8


@pytest.mark.parametrize(
    ("options", "size", "expected"),
    [
        ({"kernel_size": 3, "stride": 2}, 54, 26),
        ({"kernel_size": 3, "stride": 2, "ceil_mode": True}, 54, 27),
        ({"kernel_size": 3, "stride": 2, "padding": "same"}, 56, 28),
        ({"kernel_size": 3, "stride": 2, "padding": 1}, 112, 56),
        ({"kernel_size": 2}, 5, 2),
        ({"kernel_size": 2, "ceil_mode": True}, 5, 3),
        # ceil((4 + 2 - 3) / 3) + 1 = 2 windows; the next would start at 6 > 4 + 1
        ({"kernel_size": 3, "stride": 3, "padding": 1, "ceil_mode": True}, 4, 2),
        # ceil((2 + 2 - 2) / 3) + 1 = 2, but the second starts at 3 = 2 + 1, in the padding: left out
        ({"kernel_size": 2, "stride": 3, "padding": 1, "ceil_mode": True}, 2, 1),
        ({"kernel_size": None}, 7, 1),
    ],
)
@pytest.mark.parametrize("kind", [MaxPool2d, AveragePool2d])
def test_pooling_windows(kind, options, size, expected):
    assert kind(**options).output_shape(((4, size, size),)) == (4, expected, expected)


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: Dense(units=0), "units"),
        (lambda: Dense(units=1.5), "units"),
        (lambda: Dense(units=True), "units"),
        (lambda: Dense(units=3, bias="yes"), "bias"),
        (lambda: Convolution2d(out_channels=6, kernel_size=3, groups=4), "groups"),
        (lambda: Convolution2d(out_channels=6, kernel_size=0), "kernel_size"),
        (lambda: Convolution2d(out_channels=6, kernel_size=(3, 3, 3)), "kernel_size"),
        (lambda: Convolution2d(out_channels=6, kernel_size=3, stride=-1), "stride"),
        (lambda: Convolution2d(out_channels=6, kernel_size=3, padding=-1), "padding"),
        (lambda: Convolution2d(out_channels=6, kernel_size=3, padding="sane"), "padding"),
        (lambda: MaxPool2d(kernel_size=2, padding=2), "padding"),
        (lambda: MaxPool2d(kernel_size=None, stride=2), "kernel_size"),
        (lambda: MaxPool2d(kernel_size=2, ceil_mode=1), "ceil_mode"),
        (lambda: Dropout(rate=1), "rate"),
        (lambda: Dropout(rate=float("nan")), "rate"),
        (lambda: CrossEntropy(over="logit"), "over"),
        (lambda: Accuracy(labels="onehot"), "labels"),
        (lambda: ClassSoftmax(vocabulary=10, classes=3), "classes"),
        (lambda: Embedding(vocabulary=-1, features=2), "vocabulary"),
        (lambda: LSTM(hidden_size=2, layer_count=0), "layer_count"),
        (lambda: LSTM(hidden_size=2, layer_count=sympy.Symbol("L")), "layer_count"),
        (lambda: GRU(hidden_size=2, bidirectional=1), "bidirectional"),
        (lambda: RNN(hidden_size=2, function="sigmoid"), "function"),
        (lambda: RecurrentState(shape=7), "shape"),
        (lambda: MultiHeadAttention(heads=0), "heads"),
        (lambda: MultiHeadAttention(heads=2, dropout=1.0), "dropout"),
        (lambda: ScaledDotProductAttention(scores="materialized"), "scores"),
        (lambda: ScaledDotProductAttention(key_heads=2), "key_heads"),
        (lambda: PositionalEmbedding(positions=0), "positions"),
        (lambda: LocalResponseNorm(size=0), "size"),
        (lambda: Concat(axis=-1), "axis"),
    ],
)
def test_senseless_options_are_refused(make, argument):
    with pytest.raises(ArgumentError) as caught:
        make()
    assert caught.value.argument == argument
    assert "must" in caught.value.allowed


def test_a_misspelt_word_is_answered_with_the_nearest():
    with pytest.raises(ArgumentError, match="did you mean 'same'"):
        Convolution2d(out_channels=6, kernel_size=3, padding="sane")


@pytest.mark.parametrize(
    ("layer", "shapes", "words"),
    [
        (Convolution2d(out_channels=4, kernel_size=11), [(3, 5, 5)], ("11x11", "5x5")),
        (Convolution2d(out_channels=4, kernel_size=3, groups=2), [(3, 5, 5)], ("2 groups", "3 channels")),
        (Convolution2d(out_channels=4, kernel_size=3), [(10,)], ("channels, height, width", "10")),
        (Dense(units=4), [()], ("features", "scalar")),
        (MaxPool2d(kernel_size=3), [(3, 2, 2)], ("3x3", "2x2")),
        (Add(), [(3, 5, 5), (3, 4, 4)], ("3x5x5", "3x4x4")),
        (Concat(), [(3, 5, 5), (3, 4, 4)], ("3x5x5", "3x4x4")),
        (Concat(axis=3), [(3, 5, 5), (3, 5, 5)], ("axis 3",)),
        (LSTM(hidden_size=4), [(5,)], ("steps, features", "5")),
        (Accuracy(), [(3, 5, 5)], ("classes", "3x5x5")),
        (PositionalEmbedding(positions=3), [(4, 6)], ("3 positions", "4x6", "4 steps")),
        (RotaryEmbedding(), [(4, 3)], ("pairs", "4x3")),
        (GRU(hidden_size=4), [(5, 6), (2, 4)], ("first state", "2x4", "1x4 or 4")),
        (RecurrentState(shape=(2, 4)), [(5, 6)], ("4 units", "6 features")),
        (MultiHeadAttention(heads=4), [(5, 6)], ("4 heads", "6 features")),
        (MultiHeadAttention(heads=4, key_heads=3), [(5, 8)], ("3 heads of keys", "4 heads of queries")),
        (ScaledDotProductAttention(), [(4, 9, 8), (4, 9, 8), (4, 7, 8)], ("4x9x8", "4x7x8")),
        (ScaledDotProductAttention(), [(4, 9, 8), (3, 9, 8), (3, 9, 8)], ("3 heads of keys", "4 heads of queries")),
        (ScaledDotProductAttention(heads=2), [(4, 9, 8)] * 3, ("positions, features", "4x9x8")),
        (LocalResponseNorm(), [(4, 3)], ("channels", "4x3")),
    ],
    ids=lambda each: getattr(each, "kind", None),
)
def test_shapes_that_do_not_fit_are_both_named(layer, shapes, words):
    with pytest.raises(ShapeMismatchError) as caught:
        layer.output_shape(tuple(shapes))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "batch_size",
    [
        0,
        -1,
        1.5,
        float("nan"),
        float("inf"),
        True,
        "16",
        None,
        np.array([4, 0]),
        np.array([1.5]),
        np.array(["a"]),
    ],
    ids=str,
)
def test_batch_sizes_that_are_none(batch_size):
    with pytest.raises(ArgumentError, match="batch_size"):
        checked_batch_size(batch_size)


def test_symbolic_numbers_are_checked_too():
    assert checked_batch_size(sympy.Symbol("N")) == sympy.Symbol("N")
    assert checked_batch_size(sympy.Integer(3)) == 3
    for wrong in (sympy.Integer(0), sympy.Rational(3, 2), sympy.nan, sympy.oo):
        with pytest.raises(ArgumentError, match="batch_size"):
            checked_batch_size(wrong)


def test_narrow_integers_do_not_overflow():
    narrow = checked_batch_size(np.array([64], dtype=np.int32))
    work = Dense(units=26752).work(((26752,),), batch_size=narrow, phase="forward")
    assert work.flop_count[0] == 2 * 64 * 26752**2 > 2**32
    assert type(checked_batch_size(np.int32(64))) is int


def test_an_lstm_has_at_most_two_bias_vectors():
    with pytest.raises(ArgumentError, match="bias_vectors must be 0, 1, or 2"):
        LSTM(hidden_size=4, bias_vectors=3)
