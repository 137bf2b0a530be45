"""How functions that take arguments of predict show them: a full signature and a docstring, made from the table."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, Final, TypeVar

from perfmodel.prediction.arguments.table import ARGUMENTS

Function = TypeVar("Function", bound=Callable[..., Any])

PLACE: Final = "    **arguments : object\n"
"""Where a docstring has the arguments in one."""

WIDTH: Final = 116
"""Columns of a docstring. [1]"""


def shows_arguments(function: Function) -> Function:
    """Give a function of ``**arguments`` the signature and the docstring that list them all.

    Parameters
    ----------
    function : callable
        Its docstring has a line for ``**arguments``, and one below. [-]

    Returns
    -------
    callable
        The same one. [-]
    """
    own = signature(function)
    first = [each for each in own.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    more = [
        Parameter(row.name, Parameter.KEYWORD_ONLY, default=row.default, annotation=row.type)
        for row in ARGUMENTS.values()
    ]
    function.__signature__ = own.replace(parameters=[*first, *more])  # type: ignore[attr-defined]
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
