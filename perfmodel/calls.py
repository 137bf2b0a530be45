"""Calls that do not fit a signature, said in words: which argument, and how to call instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from inspect import Parameter, signature
from typing import Any, Final, ParamSpec, TypeVar

from perfmodel.errors import CallError, UnknownNameError

P = ParamSpec("P")
Answer = TypeVar("Answer")

CALLER: Final = 3
"""Stack level of the line that calls a function, seen from inside it, if it is ``in_words`` or a gated verb. [1]"""

_BY_PLACE: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def in_words(function: Callable[P, Answer], *, of: type | None = None) -> Callable[P, Answer]:
    """Make a function say in words which arguments a call lacks or has too many; ``of`` is the class of an init.

    >>> @in_words
    ... def area(*, width, height=1): return width * height
    >>> area(hieght=3)
    Traceback (most recent call last):
    perfmodel.errors.UnknownNameError: unknown argument of area 'hieght'. Did you mean 'height'? Known: height, width.
    >>> area()
    Traceback (most recent call last):
    perfmodel.errors.CallError: area must be given width: area(width=...)
    """

    @wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> Answer:
        try:
            return function(*arguments, **named)
        except TypeError:
            is_method = "self" in signature(function).parameters
            check_call(of or function, arguments[is_method:], named)
            raise

    return called


def check_call(function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raise UnknownNameError or CallError if a call does not fit the signature that a function shows."""
    shown = _parameters(function)
    known = {it.name: it for it in shown if it.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)}
    by_place = [name for name, it in known.items() if it.kind in _BY_PLACE]
    unknown = [name for name in named if name not in known]
    if unknown and not any(it.kind is Parameter.VAR_KEYWORD for it in shown):
        kind = f"argument of {function.__name__}"
        raise UnknownNameError(kind, unknown[0], known) from None
    required = [name for name, it in known.items() if it.default is Parameter.empty]
    if len(arguments) > len(by_place):
        others = [name for name in known if name not in by_place]
        stated = {*by_place, *(set(others).intersection(required) or others[:1])}
        remedy = f" without a name; name the others: {_example(function.__name__, known, stated)}" if others else ""
        taken = f"only {' and '.join(by_place)}" if by_place else "no argument"
        problem = f"takes {taken}{remedy} (got {len(arguments)} without a name)"
        raise CallError(function.__name__, problem) from None
    placed = by_place[: len(arguments)]
    for name in placed:
        if name in named:
            problem = f"is given {name} twice: by its name and as argument {placed.index(name) + 1}"
            raise CallError(function.__name__, problem) from None
    passed = {*placed, *named}
    missing = [name for name in required if name not in passed]
    if missing:
        wanted = " and ".join(f"{name}{_described(function, name)}" for name in missing)
        example = _example(function.__name__, known, {*passed, *missing})
        raise CallError(function.__name__, f"must be given {wanted}: {example}") from None


@lru_cache(maxsize=256)
def _parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    return tuple(it for it in signature(function).parameters.values() if it.name != "self")


def _example(name: str, known: Mapping[str, Parameter], stated: set[str]) -> str:
    """Return a call that states some arguments."""
    shown = [other if it.kind in _BY_PLACE else f"{other}=..." for other, it in known.items() if other in stated]
    return f"{name}({', '.join(shown)})"


def _described(function: Callable[..., Any], name: str) -> str:
    """Return the type that a docstring gives an argument, in brackets; empty if it gives none."""
    line = re.search(rf"^ +(?:\w+, )*{name}(?:, \w+)* : (.+)$", function.__doc__ or "", re.MULTILINE)
    return f" ({line[1]})" if line else ""
