"""Laws that hold for any layer at any size: affine in the batch, additive, the same for symbols."""

import sympy
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import PerfmodelError
from perfmodel.layers import LAYERS, LSTM, Concat, Convolution2d, Dense, MaxPool2d
from perfmodel.layers.optimizers import CLIPPINGS, OPTIMIZERS
from perfmodel.records import Work
from tests.layer_examples import EXAMPLES

small = st.integers(1, 9)
image = st.tuples(st.integers(1, 6), st.integers(1, 20), st.integers(1, 20))
vector = st.tuples(st.integers(1, 50))
sequence = st.tuples(small, small)
any_shape = st.one_of(image, vector, sequence)
padding = st.one_of(st.sampled_from(["valid", "same"]), st.integers(0, 3))
pooling = st.fixed_dictionaries(
    {
        "kernel_size": small,
        "stride": st.one_of(st.none(), small),
        "padding": padding,
        "ceil_mode": st.booleans(),
    }
)
recurrent = st.fixed_dictionaries(
    {
        "hidden_size": small,
        "layer_count": st.integers(1, 3),
        "bias_vectors": st.integers(0, 2),
        "return_sequences": st.booleans(),
        "bidirectional": st.booleans(),
        "dropout": st.sampled_from([0.0, 0.5]),
        "direction_axis": st.booleans(),
    }
)
scores = st.sampled_from(["materialised", "recomputed"])

OPTIONS = {
    "accuracy": st.fixed_dictionaries({"labels": st.sampled_from(["index", "one_hot"])}),
    "add": st.just({}),
    "avg_pool_2d": pooling,
    "batch_norm": st.fixed_dictionaries({"affine": st.booleans()}),
    "class_softmax": st.tuples(small, small).map(lambda two: {"vocabulary": two[0] * two[1], "classes": two[1]}),
    "concat": st.fixed_dictionaries({"axis": st.integers(0, 2)}),
    "convolution_2d": st.fixed_dictionaries(
        {
            "out_channels": st.integers(1, 12),
            "kernel_size": st.one_of(small, st.tuples(small, small)),
            "stride": small,
            "padding": padding,
            "dilation": st.integers(1, 3),
            "groups": st.integers(1, 3),
            "bias": st.booleans(),
        }
    ),
    "cross_entropy": st.fixed_dictionaries({"over": st.sampled_from(["logits", "probabilities"])}),
    "dense": st.fixed_dictionaries({"units": small, "bias": st.booleans()}),
    "dropout": st.fixed_dictionaries({"rate": st.floats(0, 0.99)}),
    "embedding": st.fixed_dictionaries({"vocabulary": small, "features": small}),
    "flatten": st.just({}),
    "gru": recurrent,
    "local_response_norm": st.fixed_dictionaries({"size": small}),
    "lstm": recurrent,
    "max_pool_2d": pooling,
    "multi_head_attention": st.fixed_dictionaries(
        {
            "heads": small,
            "key_heads": st.one_of(st.none(), small),
            "head_size": st.one_of(st.none(), small),
            "causal": st.booleans(),
            "bias": st.booleans(),
            "scores": scores,
            "dropout": st.sampled_from([0.0, 0.5]),
        }
    ),
    "positional_embedding": st.fixed_dictionaries({"positions": st.integers(1, 20)}),
    "recurrent_state": st.fixed_dictionaries({"shape": st.tuples(small, small)}),
    "relu": st.just({}),
    "rnn": recurrent,
    "rotary_embedding": st.just({}),
    "scale": st.fixed_dictionaries({"bias": st.booleans()}),
    "scaled_dot_product_attention": st.fixed_dictionaries(
        {"causal": st.booleans(), "scores": scores, "dropout": st.sampled_from([0.0, 0.5])}
    ),
    "sigmoid": st.just({}),
    "softmax": st.just({}),
    "tanh": st.just({}),
}


@st.composite
def layers(draw):
    """A layer and input shapes that fit it."""
    kind = LAYERS[draw(st.sampled_from(sorted(LAYERS)))]
    if kind.kind not in OPTIONS:
        options, shapes = draw(st.sampled_from(EXAMPLES[kind.kind]))
        return kind(**options), shapes
    shape = draw(any_shape)
    fewest, most = kind.input_counts
    shapes = (shape,) * draw(st.integers(fewest, most or 4))
    try:
        layer = kind(**draw(OPTIONS[kind.kind]))
        layer.output_shape(shapes)
    except PerfmodelError:
        # what does not fit was refused, as it should be; take a layer that fits anything
        return LAYERS["relu"](), shapes[:1]
    return layer, shapes


def counts(layer, shapes, batch_size, phase, wanted):
    if phase == "forward":
        operations = layer.forward_operations(shapes, batch_size=batch_size)
    else:
        operations = layer.gradient_operations(shapes, batch_size=batch_size, wanted=[wanted] * len(shapes))
    work = sum((operation.work(element_bytes=4) for operation in operations), Work())
    return work.flop_count, work.read_bytes, work.written_bytes, len(operations)


def test_options_are_drawn_for_kinds_that_exist():
    assert set(OPTIONS) <= set(LAYERS)  # the others are tried on their examples


@given(layers(), st.sampled_from(["forward", "backward"]), st.booleans())
def test_every_count_is_affine_in_the_batch_size(case, phase, wanted):
    layer, shapes = case
    one, two, three = (counts(layer, shapes, size, phase, wanted) for size in (1, 2, 3))
    assert [c - b for b, c in zip(two, three, strict=True)] == [b - a for a, b in zip(one, two, strict=True)]
    kept = [layer.saved_bytes(shapes, batch_size=size, element_bytes=4) for size in (1, 2, 3)]
    assert kept[2] - kept[1] == kept[1] - kept[0] >= 0


@given(layers(), st.sampled_from(["forward", "backward"]), st.integers(1, 1000))
def test_the_symbolic_count_is_the_number(case, phase, batch_size):
    layer, shapes = case
    symbol = sympy.Symbol("N", integer=True, positive=True)
    exact = counts(layer, shapes, symbol, phase, True)
    numbers = counts(layer, shapes, batch_size, phase, True)
    for expression, number in zip(exact, numbers, strict=True):
        assert sympy.sympify(expression).subs(symbol, batch_size) == number


@given(layers(), st.integers(1, 64), st.integers(1, 64))
def test_a_larger_batch_is_never_less_work(case, first, second):
    layer, shapes = case
    fewer, more = sorted((first, second))
    for phase in ("forward", "backward"):
        pairs = zip(counts(layer, shapes, fewer, phase, True), counts(layer, shapes, more, phase, True), strict=True)
        assert all(less <= greater for less, greater in pairs)


works = st.builds(Work, *[st.integers(0, 10**15)] * 3)


@given(works, works, works)
def test_work_adds_up_in_any_order(a, b, c):
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + Work() == a


@given(st.integers(1, 300), st.integers(1, 12), st.integers(1, 12))
def test_same_padding_gives_ceil_of_input_over_stride(size, kernel_size, stride):
    layer = Convolution2d(out_channels=1, kernel_size=kernel_size, stride=stride, padding="same")
    assert layer.output_shape(((1, size, size),))[1] == -(-size // stride)


@given(st.integers(3, 300), st.integers(1, 3), st.integers(1, 4))
def test_ceil_mode_has_at_most_one_window_more(size, kernel_size, stride):
    floor, ceil = (
        MaxPool2d(kernel_size=kernel_size, stride=stride, ceil_mode=mode).output_shape(((1, size, size),))[1]
        for mode in (False, True)
    )
    assert floor <= ceil <= floor + 1


@given(small, small, small, small)
def test_a_stack_of_lstms_is_the_sum_of_its_layers(steps, features, hidden_size, batch_size):
    def work(layer, shape, phase):
        return layer.work((shape,), batch_size=batch_size, phase=phase)

    stack, one = LSTM(hidden_size=hidden_size, layer_count=2), LSTM(hidden_size=hidden_size)
    for phase in ("forward", "backward"):
        lower, upper = work(one, (steps, features), phase), work(one, (steps, hidden_size), phase)
        assert work(stack, (steps, features), phase) == lower + upper


@given(small, small, small)
def test_a_dense_layer_is_a_1x1_convolution_of_one_pixel(features, units, batch_size):
    dense, convolution = Dense(units=units), Convolution2d(out_channels=units, kernel_size=1)
    for phase in ("forward", "backward"):
        assert dense.work(((features,),), batch_size=batch_size, phase=phase) == convolution.work(
            ((features, 1, 1),), batch_size=batch_size, phase=phase
        )


@given(st.lists(vector, min_size=2, max_size=5))
def test_concat_is_as_long_as_its_parts(shapes):
    assert Concat().output_shape(tuple(shapes)) == (sum(shape[0] for shape in shapes),)


@given(
    st.sampled_from(sorted(set(OPTIMIZERS) - {"none"})),
    st.sampled_from(CLIPPINGS),
    st.lists(st.integers(0, 10**6), max_size=5),
)
def test_an_update_depends_on_the_parameters_alone(name, clipping, sizes):
    optimizer = OPTIMIZERS[name](clipping=clipping)
    by_layer = {str(index): size for index, size in enumerate(sizes)}
    few, many = (optimizer.operations(by_layer, batch_size=size) for size in (1, 512))
    assert few == many
    updates = [operation for operation in few if operation.name == name]
    assert sum(operation.tensor_elements for operation in updates) == sum(sizes)
