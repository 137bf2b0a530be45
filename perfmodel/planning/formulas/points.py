"""Points of a formula: values by names of its symbols, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy

from perfmodel.errors import ArgumentError, UnknownNameError

if TYPE_CHECKING:
    from perfmodel.planning.formulas.formula import Formula


def known_symbol(formula: Formula, symbol: str | sympy.Symbol) -> str:
    """Return the name of a free symbol of a formula, by its name or itself."""
    for name, each in formula.symbols.items():
        if symbol in (name, each) or str(symbol) == each.name:
            return name
    kind = "free symbol of this formula"
    raise UnknownNameError(kind, str(symbol), tuple(formula.symbols))


def by_names(at: Mapping[Any, Any] | None) -> Mapping[Any, Any]:
    """Return a point; None is one where nothing is said."""
    if not isinstance(at, Mapping | None):
        raise ArgumentError("at", at, "values by names of symbols, e.g. {'batch_size': 64}")
    return at or {}


def common_shape(point: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape to which the values of a point broadcast. [1]"""
    shapes = {name: np.shape(value) for name, value in point.items()}
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        raise ArgumentError(
            "values", f"of shapes {shapes}", "numbers, and arrays that broadcast to one shape"
        ) from None


def checked_point(formula: Formula, at: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Return values by names of symbols, each above zero."""
    found = {}
    for given, value in by_names(at).items():
        name = known_symbol(formula, given)
        try:
            numbers = np.asarray(value, dtype=float)
        except (TypeError, ValueError):
            numbers = np.array(np.nan)
        if not (np.isfinite(numbers) & (numbers > 0)).all():
            raise ArgumentError(name, value, "finite numbers above 0")
        limits = formula.opened.ranges.get(name)
        if limits is not None and not limits.holds(numbers):
            raise ArgumentError(name, value, limits.allowed)
        found[name] = value
    return found
