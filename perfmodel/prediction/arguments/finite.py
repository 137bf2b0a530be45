"""The gate of answers: no verb returns NaN or infinity; a refusal names the argument that made a number overflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from inspect import signature
from itertools import islice
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np

from perfmodel.calls import in_words
from perfmodel.errors import ArgumentError
from perfmodel.prediction.arguments.checks import is_finite_number

P = ParamSpec("P")
Answer = TypeVar("Answer")

MOST_LOOKED_AT: Final = 1000
"""Entries of a list that are searched for the number at fault. [1]"""


def checked_answer(answer: Answer, stated: Mapping[str, Any], *, quantity: str = "the answer") -> Answer:
    """Return an answer whose numbers are all finite; else refuse the stated number that is farthest from 1."""
    for name, value in [(quantity, answer)] if isinstance(answer, float) else _numbers_of(answer):
        if not math.isfinite(value):
            raise overflow(name, value, stated)
    return answer


def overflow(quantity: str, value: float, stated: Mapping[str, Any]) -> ArgumentError:
    """Return the refusal of the argument whose number is farthest from 1, for a quantity that is not finite."""
    numbers = [entry for name, argument in stated.items() for entry in _numbers_in(name, argument)]
    if not numbers:
        name, argument = next(iter(stated.items()))
        return ArgumentError(name, argument, f"another, for which {quantity} is a finite number, not {value}")
    name, number = max(numbers, key=lambda entry: abs(math.log10(entry[1])))
    change = "larger" if number < 1 else "smaller"
    return ArgumentError(name, number, f"{change}, so that {quantity} is a finite number, not {value}")


def _numbers_of(answer: Any) -> Iterable[tuple[str, float]]:
    return answer._numbers() if hasattr(answer, "_numbers") else ()


def _numbers_in(name: str, argument: Any) -> Iterator[tuple[str, float]]:
    """Yield every number above zero in an argument, with its place."""
    if isinstance(argument, np.ndarray):
        numbers = [number for number in np.ravel(argument).tolist() if is_finite_number(number) and number > 0]
        yield from ((name, pick(numbers)) for pick in (min, max) if numbers)
    elif isinstance(argument, Mapping | list | tuple):
        entries = argument.items() if isinstance(argument, Mapping) else enumerate(argument)
        for key, entry in islice(entries, MOST_LOOKED_AT):
            yield from _numbers_in(f"{name}[{key!r}]", entry)
    elif is_finite_number(argument) and argument > 0:
        yield name, argument


def finite_answer(method: Callable[P, Answer]) -> Callable[P, Answer]:
    """Make a method of a prediction refuse an argument that makes its answer overflow, and a wrong call in words."""
    names, spoken = (*signature(method).parameters,), in_words(method)

    @wraps(method)
    def checked(*arguments: P.args, **named: P.kwargs) -> Answer:
        answer = spoken(*arguments, **named)
        prediction: Any = arguments[0]
        stated = dict(zip(names[1:], arguments[1:], strict=False)) | named
        return checked_answer(answer, {"step_s": prediction.step_s, **stated}, quantity=method.__name__)

    return checked
