"""Spec files as text: what the library measures or fits is written in the form in which it is read."""

from __future__ import annotations

import json
from datetime import date
from typing import Any


def toml_entries(table: dict[str, Any]) -> list[str]:
    """Return the lines of a table of a TOML file.

    Parameters
    ----------
    table : dict
        Text, truths, numbers, dates, lists and tables by key; None, False and empty lists are left out. [-]

    Returns
    -------
    list of str
        A line for each key. [-]
    """
    return [
        f"{key} = {toml_value(value)}"
        for key, value in table.items()
        if value is not None and value is not False and value != ()
    ]


def toml_value(value: Any) -> str:
    """Return a value as TOML writes it.

    Parameters
    ----------
    value : object
        Text, a truth, a number, a date, or a list or table of them. [-]

    Returns
    -------
    str
        The value's text. [-]

    Examples
    --------
    >>> toml_value({"low": 1e-12, "names": ("a", "b")})
    '{ low = 1e-12, names = ["a", "b"] }'
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return f"{{ {', '.join(toml_entries(value))} }}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(entry) for entry in value)}]"
    return value.isoformat() if isinstance(value, date) else repr(value)
