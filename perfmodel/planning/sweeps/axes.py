"""The axes of a sweep: the arguments that may vary, what each decides, and their checked values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.errors import ArgumentError, PerfmodelError, UnknownNameError
from perfmodel.hardware.catalogue import load_link
from perfmodel.hardware.link import Link
from perfmodel.prediction.arguments import table
from perfmodel.prediction.arguments.checks import whole_number
from perfmodel.prediction.arguments.table import Check

if TYPE_CHECKING:
    from numpy.typing import NDArray

LINK: Final = "link"
"""An axis that is not an argument of predict: a link in place of a system's own."""

DEVICES: Final = "devices"
"""An axis that is not an argument of predict: devices that are filled with workers."""

DEFAULTS: Final = {**table.DEFAULTS, LINK: None, DEVICES: None}
"""Axis -> its value if it is not given."""

PLACED_BY: Final = (*table.names_of("place"), LINK)
"""Axes that decide where a worker runs."""

OF_WORKER: Final = (
    *PLACED_BY, *table.names_of("step", "constants"), "pinned", *reversed(table.names_of("batch")),
)  # fmt: skip
"""Axes that decide the step of one worker alone; the batch size last, so that it varies fastest."""

FED_BY: Final = tuple(name for name in table.names_of("input") if name not in OF_WORKER)
"""Axes that decide how mini-batches arrive; they do not change the exchange of gradients."""

OF_JOB: Final = (*(name for name in DEFAULTS if name not in (*OF_WORKER, *FED_BY)), *FED_BY)
"""Axes that decide what several workers do together."""


MOST_VALUES: Final = 10_000_000
"""Longest range that an axis may be. [1]"""


def _link(name: str, value: Any) -> Any:
    """Load a link by name or path; refuse one that was changed in Python, as a system's file can only name it."""
    is_named = isinstance(value, str | Path | Number | Collection) or value is None
    link = load_link(value) if is_named else value
    if not is_named and not _has_file(link):
        allowed = "a name or the path of a .toml file; save a link changed in Python to one"
        raise ArgumentError(name, label(value), allowed)
    return link


def _has_file(link: Any) -> bool:
    try:
        return isinstance(link, Link) and link == load_link(link.name)
    except PerfmodelError:  # made of a path, which is in no spec folder
        return False


LOADED_BY: Final[Mapping[str, Check | None]] = {
    **{name: row.loads or row.check for name, row in table.ARGUMENTS.items()},
    LINK: _link,
    DEVICES: whole_number,
}
"""Axis -> the check that converts one of its values as predict would; None if only predict can check it."""


def label(value: Any) -> Any:
    """Return a value as a table shows it: a number, truth value or text; an object by its name."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={each}" for key, each in value.items())
    named = getattr(value, "stem", None) or getattr(value, "name", None)
    return str(value) if named is None or isinstance(value, Path) else str(named)


@dataclass(frozen=True, eq=False)
class Axis:
    """The values of one argument."""

    name: str
    values: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def labels(self) -> NDArray[Any]:
        """Values as a table shows them: a numeric array where all are numbers, else objects."""
        shown = [label(value) for value in self.values]
        if all(isinstance(each, int | float) and not isinstance(each, bool) for each in shown):
            return np.array(shown)
        labels = np.empty(len(shown), dtype=object)
        labels[:] = shown
        return labels

    def loaded(self) -> tuple[Any, ...]:
        """Return the values in the form that predict makes of them."""
        check = LOADED_BY[self.name]
        if check is None:
            return self.values
        default = DEFAULTS[self.name]
        return tuple(value if value is None and default is None else check(self.name, value) for value in self.values)


def axis_of(name: str, given: Any) -> Axis:
    """Return the axis of an argument: the members of a collection or iterator, or the single value."""
    if name not in DEFAULTS:
        kind = "argument of a sweep"
        raise UnknownNameError(kind, name, DEFAULTS)
    if hasattr(given, "tolist") and np.ndim(given):  # an array, or a column of pandas
        given = np.ravel(given).tolist()
    if isinstance(given, range) and len(given) > MOST_VALUES:
        raise ArgumentError(name, given, f"at most {MOST_VALUES:,} values")
    if isinstance(given, set | frozenset):  # which has no order of its own, and the table should have one
        given = sorted(given, key=lambda value: (str(type(value)), value if isinstance(value, Number) else str(value)))
    values = tuple(given) if isinstance(given, list | tuple | range | Iterator) else (given,)
    if not values:
        raise ArgumentError(name, given, "at least one value")
    return Axis(name, values)
