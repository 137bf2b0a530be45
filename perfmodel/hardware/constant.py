"""What a fitted or profiled constant is: its unit, its meaning and the range in which it is valid.

Every constant of a library or framework profile has such a table, ``[constant.<name>]``; a value outside its
range is a fault of the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, field_validator

from perfmodel.errors import nearest_hint
from perfmodel.hardware.source import SpecTable, Text, at_least

ConstantValue = float | tuple[float, ...]
"""A constant is a number, or a list of numbers where it depends on a step (e.g. tile sizes)."""


def _finite_numbers(given: Any) -> ConstantValue:
    entries = given if isinstance(given, list | tuple) else [given]
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, int | float) or not math.isfinite(entry):
            message = "must be a finite number, or a list of them"
            raise ValueError(message)
    if not entries:
        message = "must not be an empty list"
        raise ValueError(message)
    return tuple(entries) if isinstance(given, list | tuple) else given


def _plain(given: Any) -> Any:
    return list(given) if isinstance(given, list | tuple) else given


StrictConstant = Annotated[ConstantValue, PlainValidator(_finite_numbers), PlainSerializer(_plain, return_type=Any)]
"""``ConstantValue`` as pydantic validates it: finite, neither text nor boolean."""

FiniteNumber = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A finite number of any sign."""


class Constant(SpecTable):
    """Unit, meaning and validity range of one named constant.

    Attributes
    ----------
    unit : str
        Unit of the values as they stand in the file, ``1`` for a fraction or count. [-]
    meaning : str
        What the constant is, in a line. [-]
    valid_min, valid_max : float
        Smallest and largest value allowed. [``unit``]
    """

    unit: Text
    meaning: Text
    valid_min: FiniteNumber
    valid_max: FiniteNumber

    _range_is_not_empty = field_validator("valid_max")(at_least("valid_min"))

    def admits(self, given: ConstantValue) -> bool:
        """Tell whether a value, or every value of a list, lies in the range.

        Examples
        --------
        >>> Constant(unit="1", meaning="share of peak", valid_min=0, valid_max=1).admits((0.5, 1.2))
        False
        """
        entries = given if isinstance(given, tuple) else (given,)
        return all(self.valid_min <= entry <= self.valid_max for entry in entries)


def constant_faults(values: Mapping[str, ConstantValue], constants: Mapping[str, Constant]) -> Iterator[str]:
    """Yield one line for each value whose constant is not described, or that lies outside its range."""
    for name, given in values.items():
        constant = constants.get(name)
        if constant is None:
            hint = nearest_hint(name, constants, what="nearest described constant")
            yield f"{name}: value {given!r}: needs a table [constant.{name}]{hint}"
        elif not constant.admits(given):
            allowed = f"must be in [{constant.valid_min:g}, {constant.valid_max:g}] {constant.unit}"
            yield f"{name}: value {given!r}: {allowed}"
