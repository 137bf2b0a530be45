"""Keras layers of products and tables, and layers that merge, cut or reorder tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from perfmodel import layers
from perfmodel.importers.assembly import Tensor, decline
from perfmodel.importers.keras.call import LayerCall, Translator
from perfmodel.importers.keras.maps import unit_length
from perfmodel.importers.keras.pointwise import activated
from perfmodel.layers import Shape


def _dense(call: LayerCall) -> Tensor:
    plain = call.plain(call.first)
    layer = layers.Dense(units=call.count("units"), bias=bool(call.get("use_bias", True)))
    return activated(call, call.made(layer, plain), call.get("activation"))


def projected(call: LayerCall, tensor: Tensor, units: int, *, bias: bool, part: str) -> Tensor:
    """Return a product of the last axis with a new matrix."""
    plain = call.plain(tensor)
    return call.made(layers.Dense(units=units, bias=bias), plain, part=part)


def _einsum_dense(call: LayerCall) -> Tensor:
    """Plan an EinsumDense that is a product over the last axes of its input with a matrix."""
    equation = str(call.required("equation")).replace(" ", "")
    terms, arrow, output = equation.partition("->")
    first, comma, kernel = terms.partition(",")
    plain = call.plain(call.first)
    if "..." in first:
        free = "ABCDEFGHIJ"[: len(plain.shape) + 1 - len(first.replace("...", ""))]
        first, output = first.replace("...", free), output.replace("...", free)
    inner = [letter for letter in first if letter in kernel]
    made = [letter for letter in kernel if letter not in inner]
    rows = first[: len(first) - len(inner)]
    is_product = bool(arrow and comma) and kernel == "".join((*inner, *made)) and first == "".join((*rows, *inner))
    if not is_product or output != "".join((*rows, *made)) or not inner or not made or len(rows) < 1:
        decline(f"its equation {equation!r} is not a product over the last axes")
    shape = call.required("output_shape")
    extents = list(shape) if isinstance(shape, list | tuple) else [shape]
    units = tuple(extents[len(extents) - len(made) :])
    if len(units) != len(made) or not all(isinstance(size, int) for size in units):
        decline(f"its output_shape={shape} must say the axes {', '.join(made)}")
    bias = call.get("bias_axes")
    if bias is not None and sorted(bias) != sorted(made):
        decline(f"its bias has the axes {bias!r}, not those that the product makes")
    leading = plain.shape[: len(plain.shape) - len(inner)]
    features = math.prod(plain.shape[len(leading) :])
    flat = call.reshaped(plain, (*leading, features), "flat") if len(inner) > 1 else plain
    made_flat = projected(call, flat, math.prod(units), bias=bias is not None, part="")
    tensor = call.reshaped(made_flat, (*leading, *units), "output") if len(units) > 1 else made_flat
    return activated(call, tensor, call.get("activation"))


def _embedding(call: LayerCall) -> Tensor:
    layer = layers.Embedding(vocabulary=call.count("input_dim"), features=call.count("output_dim"))
    source = call.add(layer, call.first)
    return call.like(source, call.first)


def together(call: LayerCall) -> tuple[Tensor, ...]:
    """Return the tensors with one order of axes in the graph: channels before the map, if any tensor has them so."""
    is_turned = any(tensor.is_turned for tensor in call.tensors)
    ranks = {len(tensor.shape) for tensor in call.tensors}
    if is_turned and len(ranks) == 1:
        return tuple(map(call.assembly.turned, call.tensors))
    return tuple(map(call.plain, call.tensors))


def merged(function: str) -> Translator:
    """Return the translator of a class that joins its inputs element by element."""

    def translate(call: LayerCall) -> Tensor:
        return call.joined(function, together(call))

    return translate


def _averaged(call: LayerCall) -> Tensor:
    total = call.joined("add", together(call))
    return call.each(layers.Unary(function="multiply_by_number"), total, "mean")


def _concatenated(call: LayerCall) -> Tensor:
    tensors = together(call)
    axis = tensors[0].batched_axis(call.get("axis", -1))
    if len(tensors) == 1:
        return tensors[0]
    return call.made(layers.Concat(axis=axis), *tensors)


def _dotted(call: LayerCall) -> Tensor:
    """Plan the product of two tensors along one axis of each."""
    stated = call.required("axes")
    axes = (stated, stated) if isinstance(stated, int) else tuple(stated)
    tensors = [call.plain(tensor) for tensor in call.tensors]
    if len(tensors) != len(axes) or any(len(tensor.shape) > len(("rows", "columns")) for tensor in tensors):
        decline(f"it multiplies other than two matrices or vectors, along axes {axes}")
    places = [tensor.batched_axis(axis) for tensor, axis in zip(tensors, axes, strict=True)]
    if call.get("normalize", False):
        pairs = zip(tensors, places, ("first_", "second_"), strict=True)
        tensors = [unit_length(call, tensor, (place,), part) for tensor, place, part in pairs]
    turns_first = places[0] != len(tensors[0].shape) - 1
    turns_second = places[1] != max(len(tensors[1].shape) - len(("rows", "columns")), 0)
    source = call.add(layers.MatMul(transpose_first=turns_first, transpose_second=turns_second), *tensors)
    shape = tuple(call.assembly.shape(source))
    made = call.assembly.tensor(source)
    return made if shape else call.reshaped(made, (1,), "output")


def _flattened(call: LayerCall) -> Tensor:
    tensor = call.first
    if tensor.rows:
        return call.reshaped(tensor, (math.prod(tensor.shape),))
    # their order does not matter: the product that follows has the same number of weights
    return call.like(call.add(layers.Flatten(), tensor), replace(tensor, is_turned=False))


def filled(target: Sequence[int], shape: Shape) -> tuple[int, ...]:
    """Return a target shape with its -1 replaced by the remaining number of elements [1].

    >>> filled((-1, 4), (6, 2))
    (3, 4)
    """
    known = math.prod(size for size in target if size != -1)
    return tuple(math.prod(shape) // known if size == -1 else size for size in target)


def _permuted(call: LayerCall) -> Tensor:
    plain = call.plain(call.first)
    axes = tuple(range(len(plain.rows))) + tuple(plain.axis(axis - 1) for axis in call.required("dims"))
    return call.made(layers.Transpose(axes=axes), plain)


def _repeated(call: LayerCall) -> Tensor:
    plain = call.plain(call.first)
    layer = layers.Rearrange(shape=(*plain.rows, call.count("n"), *plain.shape))
    return call.made(layer, plain)


def scalar_parameter(call: LayerCall, tensor: Tensor, part: str) -> Tensor:
    """Return a tensor multiplied by one trained number."""
    held = Tensor(source=call.add(layers.Parameter(shape=(1,)), part=part), shape=(1,))
    return call.made(layers.Binary(function="multiply"), tensor, held, part=f"{part}_multiply")


TRANSLATORS: Final[Mapping[str, Translator]] = {
    "Dense": _dense,
    "EinsumDense": _einsum_dense,
    "Embedding": _embedding,
    "Add": merged("add"),
    "Subtract": merged("subtract"),
    "Multiply": merged("multiply"),
    "Maximum": merged("maximum"),
    "Minimum": merged("minimum"),
    "Average": _averaged,
    "Concatenate": _concatenated,
    "Dot": _dotted,
    "Flatten": _flattened,
    "Reshape": lambda call: call.reshaped(call.first, filled(call.required("target_shape"), call.first.shape)),
    "Permute": _permuted,
    "RepeatVector": _repeated,
}
"""Class -> the function that plans its layers."""
