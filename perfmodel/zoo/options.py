"""Checks of builders' options: a decorator that rejects wrong values under the builder's own names.

A builder passes its options on to layers and inputs under other names (a width is the features of an embedding), so
wrong values are rejected before that, by the option's type in the signature or by a rule of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from numbers import Real
from types import NoneType
from typing import Any, ParamSpec, TypeVar, get_args, get_type_hints

from perfmodel.calls import in_words
from perfmodel.errors import ArgumentError, ShapeError
from perfmodel.graph import LayerGraph
from perfmodel.layers.checks import Check, check_count, check_flag, check_fraction, check_text, check_widths, refuse
from perfmodel.numeric import NO_NUMBERS

Options = ParamSpec("Options")
Built = TypeVar("Built")

RULES: dict[object, Check] = {
    Any: check_count,
    int: check_count,
    bool: check_flag,
    float: check_fraction,
    str: check_text,
    Sequence[Any]: check_widths,
}
"""Annotation of an option -> its rule, unless it has its own; sizes, which may be symbols, are annotated Any."""


def check_factor(argument: str, factor: object) -> None:
    """Raise ArgumentError unless a value is a finite number above zero.

    Examples
    --------
    >>> check_factor("width", 1.4)
    """
    if isinstance(factor, NO_NUMBERS) or not isinstance(factor, Real) or not 0 < float(factor) < float("inf"):
        refuse(argument, factor, "must be a number > 0, e.g. 1.0")


def checked(**rules: Check) -> Callable[[Callable[Options, Built]], Callable[Options, Built]]:
    """Return a decorator of a builder that rejects wrong options before anything is built, by their types or own rules.

    An option may be None only if that is its default. Options that exclude each other (an image that is too small for
    the depth) fail while the network is built; the error names the option whose default would let it succeed.
    """

    def decorate(builder: Callable[Options, Built]) -> Callable[Options, Built]:
        parameters = inspect.signature(builder).parameters
        checks = _rules(builder, rules)

        @wraps(builder)
        def build(*args: Options.args, **options: Options.kwargs) -> Built:
            for option, value in options.items():
                if option in checks and not (value is None and parameters[option].default is None):
                    checks[option](option, value)
            try:
                built = builder(*args, **options)
            except (ArgumentError, ShapeError) as error:
                if not options or getattr(error, "argument", None) in options:
                    raise
                option = _at_fault(builder, options)
                raise ArgumentError(option, options[option], f"must suit every layer; {error}") from error
            if isinstance(built, LayerGraph):
                built.kept("recipes")[builder.__name__] = dict(options)
            return built

        return in_words(build)

    return decorate


def recipes(graph: LayerGraph) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Return the builders that made a network and their options, the inner one first; none once layers were added."""
    return tuple(graph.kept("recipes").items())


def member(builder: Callable[Options, Built], name: str, **published: object) -> Callable[Options, Built]:
    """Return a family's builder named as one of its networks, with published figures in the braces of its docstring."""
    builder.__name__ = builder.__qualname__ = name
    builder.__doc__ = (builder.__doc__ or "").format(**published)
    return builder


def _rules(builder: Callable[..., Any], rules: Mapping[str, Check]) -> dict[str, Check]:
    hints = get_type_hints(builder)
    checks: dict[str, Check] = {}
    for option in inspect.signature(builder).parameters:
        types = [kind for kind in get_args(hints[option]) if kind is not NoneType]
        kind = hints[option] if hints[option] in RULES else types[0]
        checks[option] = rules[option] if option in rules else RULES[kind]
    return checks


def _at_fault(builder: Callable[..., Any], options: Mapping[str, Any]) -> str:
    """Return the option at fault: the one whose default lets the network be built, otherwise the last."""
    for option in options:
        rest = {name: value for name, value in options.items() if name != option}
        try:
            builder(**rest)
        except (ArgumentError, ShapeError):
            continue
        return option
    return list(options)[-1]
