"""Sizes that are left open: symbols in the shapes and options of a graph, and values for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.layers import Layer, Shape


def _symbols(value: Any) -> set[Any]:
    """Return the symbols in a number, an expression, or a tuple of them."""
    if isinstance(value, tuple):
        return {symbol for each in value for symbol in _symbols(each)}
    return set(getattr(value, "free_symbols", ()))


def _substituted(value: Any, by_name: Mapping[str, int]) -> Any:
    """Return the value with numbers for symbols; whole results become plain integers."""
    if isinstance(value, tuple):
        return tuple(_substituted(each, by_name) for each in value)
    symbols = _symbols(value)
    if not symbols:
        return value
    result = value.subs({symbol: by_name[symbol.name] for symbol in symbols if symbol.name in by_name})
    return int(result) if result.is_Integer else result


def free_sizes(input_shapes: Iterable[Shape], layers: Iterable[Layer]) -> tuple[str, ...]:
    """Return the names of the symbols in shapes and options."""
    symbols = _symbols(tuple(input_shapes))
    for layer in layers:
        symbols |= _symbols(tuple(layer.options().values()))
    return tuple(sorted(symbol.name for symbol in symbols))


def with_sizes(
    input_shapes: Mapping[str, Shape], layers: Sequence[Layer], sizes: Mapping[str, int]
) -> tuple[dict[str, Shape], list[Layer]]:
    """Return shapes and layers with values for symbols.

    Parameters
    ----------
    input_shapes : mapping of str to tuple
        Sample shapes by name. [1]
    layers : sequence of Layer
        Layers with their options. [-]
    sizes : mapping of str to int
        Values by name of the symbol. [1]

    Returns
    -------
    tuple
        Shapes by name, and layers in the same order. [-]
    """
    shapes = {name: _substituted(tuple(shape), sizes) for name, shape in input_shapes.items()}
    changed = []
    for layer in layers:
        options = {name: value for name, value in layer.options().items() if _symbols(value)}
        changed.append(
            replace(layer, **{name: _substituted(value, sizes) for name, value in options.items()})
            if options
            else layer
        )
    return shapes, changed
