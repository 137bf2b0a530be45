"""Signatures and docstrings that list every argument of a prediction."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, Final, TypeVar

from perfmodel.prediction.arguments.table import ARGUMENTS

Function = TypeVar("Function", bound=Callable[..., Any])

PLACE: Final = "    **arguments : object\n"
"""Line of a docstring that is replaced by all arguments."""

WIDTH: Final = 116
"""Width of a docstring. [columns]"""


def shows_arguments(function: Function) -> Function:
    """Give a function of ``**arguments`` a signature and docstring that list every argument."""
    shown = signature(function)
    first = [parameter for parameter in shown.parameters.values() if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD]
    more = [
        Parameter(row.name, Parameter.KEYWORD_ONLY, default=row.default, annotation=row.type)
        for row in ARGUMENTS.values()
    ]
    function.__signature__ = shown.replace(parameters=[*first, *more])  # type: ignore[attr-defined]
    function.__defaults__ = (None,)  # which Job refuses in its own words
    before, _, after = (function.__doc__ or "").partition(PLACE)
    if after:  # without -OO
        function.__doc__ = before + "".join(map(_described, ARGUMENTS)) + after.partition("\n")[2]
    return function


def _described(name: str) -> str:
    row = ARGUMENTS[name]
    text = textwrap.fill(
        f"{row.help} [{row.unit}]", WIDTH, initial_indent=8 * " ", subsequent_indent=8 * " ", break_long_words=False
    )
    return f"    {row.name} : {row.type}\n{text}\n"
