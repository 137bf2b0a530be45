"""Text that is shown as it is: no characters that hide, move or overwrite visible text."""

from __future__ import annotations

import re
from typing import Any, Final

_INVISIBLE: Final = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
"""Control characters besides tab and line ends, and those that change the direction of writing."""

_HALVES: Final = "\ud800-\udfff"
"""Halves of pairs, which no file can hold."""

_UNPRINTABLE: Final = re.compile(f"[\r{_INVISIBLE}{_HALVES}]")
_NOT_IN_A_TEXT: Final = re.compile(f"[{_INVISIBLE}{_HALVES}]")
_NOT_IN_A_NAME: Final = re.compile(f"[\t\n\r{_INVISIBLE}{_HALVES}]")
_NOT_IN_A_PATH: Final = re.compile(f"[\t\n\r{_INVISIBLE}]")

NO_CONTROL_CHARACTERS: Final = "must have no control characters"


def plain(value: Any) -> Any:
    """Convert an object of a subclass of str to a plain str; other values are returned unchanged."""
    return str.__str__(value) if isinstance(value, str) else value


def is_plain(text: str) -> bool:
    r"""Tell whether a text, of several lines too, has no control characters.

    >>> is_plain("two lines\nof text"), is_plain("\x1b[31mred")
    (True, False)
    """
    return text.isprintable() or _NOT_IN_A_TEXT.search(text) is None


def is_plain_name(name: str) -> bool:
    r"""Tell whether a name is one line without control characters.

    >>> is_plain_name("conv 1/relu"), is_plain_name("conv\n1"), is_plain_name("a\u202eb")
    (True, False, False)
    """
    return name.isprintable() or _NOT_IN_A_NAME.search(name) is None


def is_plain_path(path: str) -> bool:
    r"""Tell whether a path is one line; it may have bytes that are no text, as file systems allow.

    >>> is_plain_path("net.json"), is_plain_path("net\n.json"), is_plain_path("caf\udce9.json")
    (True, False, True)
    """
    return path.isprintable() or _NOT_IN_A_PATH.search(path) is None


def escaped(text: str) -> str:
    r"""Write control characters as Python does, so that they can be seen.

    >>> print(escaped("\x1b[31mred\n\u202eleft"))
    \x1b[31mred
    \u202eleft
    """
    return text if text.isprintable() else _UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], text)


def escaped_name(name: str) -> str:
    r"""Write a name that another program gave in one line.

    >>> print(escaped_name("conv\n1"))
    conv\n1
    """
    return name if name.isprintable() else _NOT_IN_A_NAME.sub(lambda found: repr(found[0])[1:-1], name)
