"""What every layer kind fulfils; a kind that is not listed, or not tried here, fails."""

import pkgutil
from importlib import import_module

import numpy as np
import pytest
import sympy

import perfmodel.layers as package
from generate_layers import symbolic_example
from perfmodel.layers import LAYERS, Layer
from perfmodel.layers.shapes import ShapeMismatchError, element_count
from perfmodel.records import Phase, Role
from tests.layer_examples import EXAMPLES

CASES = [
    pytest.param(layer(**options), shapes, id=f"{kind}-{index}")
    for kind, layer in LAYERS.items()
    for index, (options, shapes) in enumerate(EXAMPLES[kind])
]
every_layer = pytest.mark.parametrize(("layer", "shapes"), CASES)


def test_every_module_of_the_folder_is_listed():
    found = set()
    for module in pkgutil.walk_packages(package.__path__, "perfmodel.layers."):
        members = vars(import_module(module.name)).values()
        found |= {each for each in members if isinstance(each, type) and issubclass(each, Layer)}
    found -= {
        each for each in found if each.__subclasses__() or each.__name__.startswith("_")
    }  # bases, parts of a layer
    assert found == set(LAYERS.values())
    assert {kind: layer.kind for kind, layer in LAYERS.items()} == {kind: kind for kind in LAYERS}


def test_every_kind_is_tried():
    assert EXAMPLES.keys() == LAYERS.keys()
    assert all(EXAMPLES.values())


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
            made_of_nothing = getattr(operation, "name", "") in ("fill", "random_normal")
            assert work.read_bytes > 0 or made_of_nothing
            assert work.written_bytes > 0
            assert (operation.role is Role.OUTPUT) == (phase is Phase.FORWARD)


@every_layer
def test_a_forward_pass_touches_input_and_output(layer, shapes):
    work = layer.work(shapes, batch_size=3, phase="forward")
    if not layer.is_view and not layer.is_loss and not layer.index_inputs:
        read = [element_count(shape, batch_size=3) for shape in shapes]
        sizes = [1 if place in layer.mask_inputs else 4 for place in range(len(shapes))]
        assert work.read_bytes >= sum(size * elements for size, elements in zip(sizes, read, strict=True))
        element_bytes = 1 if layer.makes_mask else 4
        assert work.written_bytes >= element_bytes * element_count(layer.output_shape(shapes), batch_size=3)


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
    has_own = layer.parameter_count(shapes) > 0 and bool(shapes)  # who has no input leaves its gradient to its readers
    assert (work(False) > 0) == has_own


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


def _with(values, given):
    """Numbers, or symbols, for the letters in options and shapes."""
    if isinstance(given, tuple):
        return tuple(_with(values, each) for each in given)
    return values[given] if isinstance(given, str) and len(given) == 1 and given.isupper() else given


@pytest.mark.parametrize("kind", sorted(LAYERS))
def test_counts_with_letters_for_sizes_are_the_numbers(kind):
    options, shapes = symbolic_example(kind)
    letters = [chr(code) for code in range(ord("A"), ord("Z") + 1)]
    symbols = {letter: sympy.Symbol(letter, positive=True, integer=True) for letter in letters}
    # each is a multiple of all that come after it in the alphabet, so that heads fit features, and positions steps
    numbers = {letter: 12 * 2 ** (len(letters) - index) for index, letter in enumerate(letters)}
    batch = symbols["N"]

    def layer(values):
        return LAYERS[kind](**{name: _with(values, value) for name, value in options.items()}), _with(values, shapes)

    open_layer, open_shapes = layer(symbols)
    closed_layer, closed_shapes = layer(numbers)
    values = {symbols[letter]: numbers[letter] for letter in letters}
    for phase in ("forward", "backward"):
        exact = open_layer.work(open_shapes, batch_size=batch, phase=phase)
        work = closed_layer.work(closed_shapes, batch_size=numbers["N"], phase=phase)
        for name in ("flop_count", "read_bytes", "written_bytes"):
            assert sympy.sympify(getattr(exact, name)).subs(values) == getattr(work, name)
    extents = map(sympy.sympify, open_layer.output_shape(open_shapes))
    assert tuple(extent.subs(values) for extent in extents) == closed_layer.output_shape(closed_shapes)
    kept = open_layer.saved_bytes(open_shapes, batch_size=batch, element_bytes=4)
    assert sympy.sympify(kept).subs(values) == closed_layer.saved_bytes(
        closed_shapes, batch_size=numbers["N"], element_bytes=4
    )


@every_layer
def test_five_axes_are_served_or_refused_with_the_shape(layer, shapes):
    wrong = tuple((2, 2, 2, 2, 2) for _ in shapes)
    outcome = None
    try:
        layer.output_shape(wrong)
    except ShapeMismatchError as error:
        outcome = error
    assert outcome is None or "2x2x2x2x2" in str(outcome)
