"""Values of the wrong kind, and ways to spoil what is right."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np


class Uncomparable:
    """Has no hash, no truth and no order."""

    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError

    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __eq__


class Unshowable:
    """Cannot be printed."""

    def __repr__(self):
        raise RuntimeError


class Unreadable:
    """A list that cannot be read."""

    def __iter__(self):
        raise RuntimeError


class OwnText(str):
    """A text that cannot be made a text."""

    def __str__(self):
        raise RuntimeError


EXECUTED = "executed_by_the_library"
"""Folder that appears in the working folder where a text is run as code. [-]"""

CODE = f"__import__('os').mkdir('{EXECUTED}')"

LONG = "x" * 5000

TEXTS = (
    *("", " ", "\ud800", "a\0b", LONG, "/", "..", "~nobody/x.toml", CODE, "1e999", "{", "a=b", "nan", "inf", "*", "%s"),
    *("<script>", "a:b:c", "gpu*:gpu*", "/dev/zero", "9" * 5000, "[" * 5000, "ring_all_reduce", "\u202e", "a\nb", "-1"),
)

NUMBERS = (
    *(0, -1, 1, 2, 3, 7, 0.5, -0.0, 1e-300, 1e300, 5e-324, math.inf, -math.inf, math.nan, 2**31, 2**62, 2**63, 2**64),
    *(10**18, 10**20, 10**400, -(10**30), np.float64("nan"), np.float32(3.5), np.int8(-4), np.uint64(2**63)),
)

ODDITIES = (
    *(np.array(content) for content in (4, 4.0, [1, 2], [], ["sgd"], None, [[1.5, math.nan]])),
    *({1}, frozenset({2}), [], [1], {}, {"a": 1}, (), (1, 2), range(3), range(10**9), slice(1), memoryview(b"abc")),
    *(b"x", bytearray(), 1j, 10**5000, Fraction(1, 3), Decimal(4), Decimal("NaN"), np.bool_(True), True, False, None),
    *(..., NotImplemented, object(), int, len, ValueError("x"), np.datetime64("NaT"), iter(()), [[]], [None], {"": ""}),
    *(Uncomparable(), Unshowable(), [Uncomparable()], {"a": Unshowable()}, (Uncomparable(), Unshowable())),
    *(np.timedelta64(4, "s"), np.ma.masked, np.void(b"a"), np.str_("sgd"), Unreadable(), OwnText("sgd"), sys.stdout),
)

WRONG = (*ODDITIES, *NUMBERS, *TEXTS)
"""Values that nearly every argument refuses. [-]"""

PLAIN = (
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**63, 2**64, 10**20, 10**400, 0.5, -1.5, 1e300, 1e-300),
    *(*TEXTS, [], {}, [1], [[]], ["a", 1], {"a": 1}, {"": []}, [0], [-1], [10**20], [None], [[1, 2], [3]], "fp32", "4"),
)
"""Values that a file of JSON can state; NaN and infinities are another matter. [-]"""


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container of a nested content with each of its keys."""
    waiting = [content]
    while waiting:
        inner = waiting.pop()
        keys = list(inner) if isinstance(inner, dict) else range(len(inner)) if isinstance(inner, list) else ()
        for key in keys:
            yield inner, key
            waiting.append(inner[key])


def spoilt(content: Any, chance: Random, values: tuple[Any, ...] = PLAIN) -> Any:
    """Return a copy of a nested content with one to three of its entries changed, dropped, renamed or moved."""
    made = copy.deepcopy(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        found = [*places(made)]
        if not found:
            return made
        inner, key = chance.choice(found)
        how = chance.randrange(10)
        if how < 5:
            inner[key] = copy.deepcopy(chance.choice(values))
        elif how == 5 and isinstance(inner[key], int | float):
            inner[key] = inner[key] * chance.choice((-1, 0, 1e-9, 1e9, 10**20, 0.5))
        elif how == 6:
            other, there = chance.choice(found)
            inner[key] = copy.deepcopy(other[there])
        elif how == 7 and isinstance(inner, dict):
            inner[chance.choice((*TEXTS, f"{key}_"))] = inner.pop(key)
        elif how == 8 and isinstance(inner, list):
            inner.insert(key, copy.deepcopy(inner[key]))
        else:
            del inner[key]
    return made


def spoilt_text(text: str, chance: Random) -> str:
    """Return a text of which lines or characters were changed, cut, doubled or swapped."""
    lines = text.splitlines(keepends=True) or [""]
    for _ in range(chance.choice((1, 1, 2, 4))):
        place, how = chance.randrange(len(lines)), chance.randrange(7)
        if how == 0:
            del lines[place]
        elif how == 1:
            lines.insert(place, chance.choice(lines))
        elif how == 2:
            other = chance.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
        elif how == 3:
            lines = [*lines[:place], lines[place][: chance.randrange(len(lines[place]) + 1)]]
        else:
            words, cut = lines[place], chance.randrange(len(lines[place]) + 1)
            put = chance.choice((*TEXTS, *'"[]{}=,.#\n', "1e400", "-0", "nan", "inf", "1979-05-27", "0x", "9" * 400))
            lines[place] = words[:cut] + put + words[cut + chance.randrange(4) :]
        lines = lines or [""]
    return "".join(lines)
