"""Every builder refuses a wrong option under that option's own name, or builds a network of it."""

from inspect import signature

import pytest
import sympy

from perfmodel import zoo
from perfmodel.errors import ArgumentError, ShapeError
from perfmodel.zoo.options import checked

SYMBOL = sympy.Symbol("N", integer=True, positive=True)
NUMBERS = (0, -1, 1, 2, 3, 7, 1.5, float("nan"), float("inf"))
WRONG = (*NUMBERS, True, "nonsense", "", [], (), {}, (0,), ("x",), None, SYMBOL)
"""Wrong for most options and right for some: tried on all."""
OPTIONS = [(name, option) for name in zoo.names() for option in signature(zoo.BUILDERS[name]).parameters]
SMALL = {"layers": 1, "hidden_layers": 1}
"""What keeps networks of repeated blocks small; nothing of the others depends on it."""


def _refused(name, /, **options):
    """Return the error, or None where a network was built."""
    try:
        assert zoo.build(name, **options).parameter_count != 0
    except ArgumentError as error:
        return error
    return None


def _small(name, option):
    return {each: 1 for each in SMALL if each in signature(zoo.BUILDERS[name]).parameters and each != option}


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=lambda part: part)
def test_wrong_options_are_refused_by_name(name, option):
    default = signature(zoo.BUILDERS[name]).parameters[option].default
    for given in WRONG:
        error = _refused(name, **_small(name, option), **{option: given})
        if error is not None:
            assert error.argument == option, f"{option}={given!r}: {error}"
            assert str(error).startswith(f"{option} must "), error
            assert len(error.allowed) > len("must be"), error
    # whatever the option is, these are never right
    assert _refused(name, **{option: {}})
    assert _refused(name, **{option: float("nan")})
    if not isinstance(default, str) or option != "name":
        assert _refused(name, **{option: "nonsense"})
    if default is not None:
        assert _refused(name, **{option: None})
    if isinstance(default, bool):
        assert _refused(name, **{option: 1})
        assert _refused(name, **{option: []})
    elif isinstance(default, int | float | tuple):
        assert _refused(name, **{option: -1})


@pytest.mark.parametrize("name", zoo.names())
def test_a_builder_called_directly_refuses_as_well(name):
    builder = zoo.BUILDERS[name]
    option = next(iter(signature(builder).parameters))
    with pytest.raises(ArgumentError, match=f"^{option} must"):
        builder(**{option: {}})


def test_options_that_do_not_go_together_name_the_one_at_fault():
    # 5 pools halve 16 to nothing: 16 -> 8 -> 4 -> 2 -> 1 -> 0
    with pytest.raises(ArgumentError, match=r"^image_size must suit .*pool5"):
        zoo.vgg16(batch_norm=True, image_size=16)
    # 768 / 7 is no whole number, whichever of the two is given
    with pytest.raises(ArgumentError, match=r"^heads must.*768.*\(got 7"):
        zoo.bert(heads=7, dropout=0.0)
    with pytest.raises(ArgumentError, match=r"^width must.*heads.*\(got 100"):
        zoo.bert(width=100)
    with pytest.raises(
        ArgumentError, match=r"^sequence_length must.*1024.*\(got 2048"
    ):  # through gpt's table of positions
        zoo.gpt2(sequence_length=2048)
    with pytest.raises(ArgumentError, match=r"^first_padding must.*shi2016.*\(got 2"):
        zoo.alexnet(first_padding=2)


def test_where_two_options_are_at_fault_the_last_is_named():
    @checked()
    def builder(*, width: int = 1, depth: int = 1) -> int:
        if width > 1:
            raise ShapeError("wide", f"{width} > 1")
        if depth > 1:
            raise ShapeError("deep", f"{depth} > 1")
        return width * depth

    assert builder() == 1
    with pytest.raises(
        ArgumentError, match=r"^depth must.*'wide'.*\(got 2"
    ):  # without either of the two the other still fails
        builder(width=2, depth=2)
    with pytest.raises(ArgumentError, match=r"^width must.*'wide'.*\(got 2"):
        builder(width=2, depth=1)


def test_heads_of_keys_follow_those_of_queries_where_the_published_size_has_as_many():
    small = {"layers": 1, "width": 256, "intermediate": 64, "vocabulary": 8, "sequence_length": 8}
    few, many = (zoo.llama(heads=heads, **small).parameter_count for heads in (4, 64))
    assert few == many == zoo.llama(heads=4, key_heads=4, **small).parameter_count
    with pytest.raises(ArgumentError, match=r"must suit every layer; .* 8 heads of keys"):
        zoo.llama(size="llama3_8b", heads=4)
