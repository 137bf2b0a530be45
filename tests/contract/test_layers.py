"""What every layer kind fulfils; a kind that is not listed, or not tried here, fails."""

import math
import pkgutil
from importlib import import_module
from inspect import isabstract

import numpy as np
import pytest
import sympy

import perfmodel.layers as package
from perfmodel.layers import LAYERS, Layer
from perfmodel.layers.base import ShapeMismatchError
from perfmodel.records import Phase, Role

IMAGE, VECTOR, SEQUENCE, TOKENS = (4, 9, 9), (10,), (5, 6), (5,)

EXAMPLES = {
    "accuracy": [({}, (VECTOR,)), ({"labels": "one_hot"}, (SEQUENCE,))],
    "add": [({}, (IMAGE, IMAGE)), ({}, (VECTOR, VECTOR, VECTOR))],
    "avg_pool_2d": [({"kernel_size": 2, "ceil_mode": True}, (IMAGE,)), ({"kernel_size": None}, (IMAGE,))],
    "batch_norm": [({}, (IMAGE,)), ({"affine": False}, (VECTOR,))],
    "class_softmax": [
        ({"vocabulary": 12, "classes": 3}, (SEQUENCE,)),
        ({"vocabulary": 4, "classes": 4}, (VECTOR,)),
    ],
    "concat": [({}, (IMAGE, IMAGE)), ({"axis": 1}, (SEQUENCE, SEQUENCE))],
    "convolution_2d": [
        ({"out_channels": 6, "kernel_size": 3, "padding": "same", "stride": 2}, (IMAGE,)),
        ({"out_channels": 6, "kernel_size": (3, 1), "groups": 2, "dilation": 2, "bias": False}, (IMAGE,)),
        ({"out_channels": 4, "kernel_size": 3, "padding": ((1, 2), (0, 1))}, (IMAGE,)),
    ],
    "cross_entropy": [({}, (VECTOR,)), ({"over": "probabilities"}, (SEQUENCE,))],
    "dense": [({"units": 3}, (VECTOR,)), ({"units": 3, "bias": False}, (SEQUENCE,))],
    "dropout": [({"rate": 0.3}, (IMAGE,))],
    "embedding": [({"vocabulary": 20, "features": 4}, (TOKENS,))],
    "flatten": [({}, (IMAGE,))],
    "local_response_norm": [({"size": 3}, (IMAGE,))],
    "lstm": [
        ({"hidden_size": 7}, (SEQUENCE,)),
        ({"hidden_size": 7, "layer_count": 3, "bias_vectors": 2, "return_sequences": False}, (SEQUENCE,)),
    ],
    "max_pool_2d": [({"kernel_size": 3, "stride": 2, "padding": 1}, (IMAGE,))],
    "relu": [({}, (IMAGE,))],
    "scale": [({}, (IMAGE,)), ({"bias": False}, (SEQUENCE,))],
    "sigmoid": [({}, (VECTOR,))],
    "softmax": [({}, (VECTOR,)), ({}, (SEQUENCE,))],
    "tanh": [({}, (SEQUENCE,))],
}
CASES = [
    pytest.param(LAYERS[kind](**options), shapes, id=f"{kind}-{index}")
    for kind, examples in EXAMPLES.items()
    for index, (options, shapes) in enumerate(examples)
]
every_layer = pytest.mark.parametrize(("layer", "shapes"), CASES)


def test_every_module_of_the_folder_is_listed():
    found = set()
    for module in pkgutil.iter_modules(package.__path__):
        members = vars(import_module(f"perfmodel.layers.{module.name}")).values()
        found |= {each for each in members if isinstance(each, type) and issubclass(each, Layer)}
    found -= {each for each in found if isabstract(each) and not hasattr(each, "kind")}  # bases
    assert found == set(LAYERS.values())
    assert {kind: layer.kind for kind, layer in LAYERS.items()} == {kind: kind for kind in LAYERS}


def test_every_kind_is_tried():
    assert set(EXAMPLES) == set(LAYERS)


@every_layer
def test_options_rebuild_the_layer(layer, shapes):
    assert type(layer)(**layer.options()) == layer
    assert hash(layer) == hash(type(layer)(**layer.options()))
    assert layer.output_shape(shapes) == type(layer)(**layer.options()).output_shape(shapes)


@every_layer
def test_counts_are_whole_and_positive(layer, shapes):
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        for operation in layer.operations(shapes, batch_size=3, phase=phase):
            work = operation.work(element_bytes=4)
            for count in (work.flop_count, work.read_bytes, work.written_bytes):
                assert isinstance(count, int)
                assert count >= 0
            assert work.read_bytes > 0
            assert work.written_bytes > 0
            assert (operation.role is Role.OUTPUT) == (phase is Phase.FORWARD)


@every_layer
def test_a_forward_pass_touches_input_and_output(layer, shapes):
    work = layer.work(shapes, batch_size=3, phase="forward")
    if not layer.is_view and not layer.is_loss and layer.first_input_differentiable:
        assert work.read_bytes >= 4 * 3 * sum(map(math.prod, shapes))
        assert work.written_bytes >= 4 * 3 * math.prod(layer.output_shape(shapes))


@every_layer
def test_half_the_element_size_never_moves_more(layer, shapes):
    for phase in ("forward", "backward"):
        wide, narrow = (layer.work(shapes, batch_size=3, phase=phase, dtype=each) for each in ("fp32", "fp16"))
        assert narrow.flop_count == wide.flop_count
        assert narrow.moved_bytes <= wide.moved_bytes


@every_layer
def test_unwanted_gradients_cost_less_and_never_the_weights(layer, shapes):
    def work(wanted):
        operations = layer.gradient_operations(shapes, batch_size=3, wanted=[wanted] * len(shapes))
        return sum(operation.work(element_bytes=4).flop_count for operation in operations)

    assert work(True) >= work(False)
    assert (work(False) > 0) == (layer.parameter_count(shapes) > 0)


@every_layer
def test_number_array_and_symbol_agree(layer, shapes):
    symbol = sympy.Symbol("N", positive=True, integer=True)
    sizes = np.array([1, 2, 7])
    for phase in ("forward", "backward"):
        works = [layer.work(shapes, batch_size=int(size), phase=phase) for size in sizes]
        array = layer.work(shapes, batch_size=sizes, phase=phase)
        exact = layer.work(shapes, batch_size=symbol, phase=phase)
        for name in ("flop_count", "read_bytes", "written_bytes"):
            numbers = [getattr(work, name) for work in works]
            np.testing.assert_array_equal(np.broadcast_to(getattr(array, name), 3), numbers)
            expression = sympy.sympify(getattr(exact, name))
            assert [expression.subs(symbol, int(size)) for size in sizes] == numbers


@every_layer
def test_five_axes_are_served_or_refused_with_the_shape(layer, shapes):
    wrong = tuple((2, 2, 2, 2, 2) for _ in shapes)
    outcome = None
    try:
        layer.output_shape(wrong)
    except ShapeMismatchError as error:
        outcome = error
    assert outcome is None or "2x2x2x2x2" in str(outcome)
