"""Options written behind a name in one text, as on a command line: ``lbfgs:history_size=5,evaluations=20``."""

from __future__ import annotations

from typing import Any, Final

from perfmodel.layers.checks import refuse

_FLAGS: Final = {"true": True, "false": False}


def name_and_options(argument: str, text: str) -> tuple[str, dict[str, Any]]:
    """Split a name from its options.

    Examples
    --------
    >>> name_and_options("optimizer", "rmsprop:momentum=0.9,centered=true")
    ('rmsprop', {'momentum': 0.9, 'centered': True})
    """
    name, colon, rest = text.partition(":")
    options: dict[str, Any] = {}
    for pair in rest.split(",") if colon else ():
        option, _, value = (part.strip() for part in pair.partition("="))
        if not option or not value or option in options:
            refuse(argument, text, f"{name}, or {name}:OPTION=VALUE,OPTION=VALUE... with each option once")
        options[option] = _value(value)
    return name.strip(), options


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return _FLAGS.get(text.lower(), text)
