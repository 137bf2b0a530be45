"""A layer of a configuration and what its translators need: its fields, its tensors, and the graph in the making."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from perfmodel.errors import SpecError, short_repr
from perfmodel.importers.assembly import Assembly, Tensor, Weights, decline
from perfmodel.layers import Dropout, Layer, Reshape, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredLayer:
    """One call of a layer that a configuration describes.

    Parameters
    ----------
    assembly : Assembly
        The graph in the making. [-]
    path : str
        The layer's name, behind those of the models around it; it owns the parameters. [-]
    class_name : str
        Its class. [-]
    config : mapping
        Its fields. [-]
    tensors : tuple of Tensor
        What it reads, in order. [-]
    is_trained : bool
        Whether its weights are trained. [-]
    weight_dtype : str or None
        Data type in which its tables of weights are stored, if it is one of their own. [-]
    """

    assembly: Assembly
    path: str
    class_name: str
    config: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    is_trained: bool = True
    weight_dtype: str | None = None

    @property
    def first(self) -> Tensor:
        """The first tensor that it reads."""
        if not self.tensors:
            decline("it reads no tensor")
        return self.tensors[0]

    def get(self, field_name: str, default: Any = None) -> Any:
        """Return a field of the configuration, or a default where it is left out or null."""
        value = self.config.get(field_name)
        return default if value is None else value

    def required(self, field_name: str) -> Any:
        """Return a field of the configuration that must be there."""
        if field_name not in self.config:
            self.refuse(f"its field {field_name!r} is missing: must be there")
        if self.config[field_name] is None:
            self.refuse(f"{field_name}=null: must be stated")
        return self.config[field_name]

    def refuse(self, problem: str) -> NoReturn:
        """Raise SpecError for a layer of a known class whose configuration is malformed."""
        raise SpecError(self.assembly.where, [f"layer {self.path!r} ({self.class_name}): {problem}"])

    def count(self, field_name: str, default: int | None = None, *, least: int = 1) -> int:
        """Return a field that holds a whole number of at least some size."""
        value = self.required(field_name) if default is None else self.get(field_name, default)
        number = _whole(value)
        if number is None or number < least:
            self.refuse(f"{field_name}={short_repr(value)}: must be a whole number of at least {least}")
        return number

    def number(self, field_name: str, default: float) -> float:
        """Return a field that holds a finite number."""
        value = self.get(field_name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.refuse(f"{field_name}={short_repr(value)}: must be a finite number")
        return float(value)

    def sizes(self, field_name: str, axis_count: int, default: Any = None, *, least: int = 1) -> tuple[int, ...]:
        """Return a field that holds one whole number for all axes of a map, or one for each."""
        value = self.required(field_name) if default is None else self.get(field_name, default)
        return self.whole_numbers(field_name, value, axis_count, least=least)

    def whole_numbers(self, field_name: str, value: Any, axis_count: int, *, least: int) -> tuple[int, ...]:
        """Return the content of a field as one whole number for each axis of a map."""
        values = tuple(value) if isinstance(value, list | tuple) else (value,) * axis_count
        numbers = tuple(size for size in map(_whole, values) if size is not None and size >= least)
        if len(values) != axis_count or len(numbers) != axis_count:
            self.refuse(f"{field_name}={short_repr(value)}: must be {axis_count} whole numbers of at least {least}")
        return numbers

    def add(self, layer: Layer, *tensors: Tensor, part: str = "") -> str:
        """Plan a layer of the graph; the parts of a layer have parameters of their own."""
        sources = tuple(tensor.source for tensor in tensors)
        name = f"{self.path}.{part}" if part else self.path
        how: dict[str, Any] = {"is_trained": self.is_trained, "weight_dtype": self.weight_dtype}
        return self.assembly.add(name, layer, *sources, owner=(self.path, part), **how)

    def each(self, layer: Layer, tensor: Tensor, part: str = "") -> Tensor:
        """Plan a layer that leaves shape and axes as they are."""
        return replace(tensor, source=self.add(layer, tensor, part=part))

    def made(self, layer: Layer, *tensors: Tensor, part: str = "") -> Tensor:
        """Plan a layer and return its result, with the rows and the order of axes of its first input."""
        return self.like(self.add(layer, *tensors, part=part), tensors[0])

    def plain(self, tensor: Tensor) -> Tensor:
        """Return a tensor with its axes in the graph as in the configuration."""
        return self.assembly.plain(tensor)

    def like(self, source: str, tensor: Tensor) -> Tensor:
        """Return a layer of the graph as a tensor with the rows and the order of axes of another."""
        return self.assembly.tensor(source, rows=tensor.rows, is_turned=tensor.is_turned)

    def reshaped(self, tensor: Tensor, shape: Shape, part: str = "") -> Tensor:
        """Return the elements of a tensor under another shape."""
        plain = self.plain(tensor)
        return self.made(Reshape(shape=(*plain.rows, *shape)), plain, part=part)

    def dropped(self, tensor: Tensor, rate: float, part: str = "dropout") -> Tensor:
        """Return a tensor after dropout; the tensor itself if nothing is dropped."""
        return self.each(Dropout(rate=float(rate)), tensor, part) if rate else tensor

    def opaque(self, tensor: Tensor, operator: str, part: str, *, reason: str, shape: Shape | None = None) -> Tensor:
        """Plan a hole for a part of the layer that has no weights: an activation, or a loss."""
        name = f"{self.path}.{part}" if part else self.path
        weights = Weights(owner=name, are_known=True)
        made = tensor.shape if shape is None else shape
        return self.assembly.hole(name, operator, (tensor,), shape=made, reason=reason, weights=weights)


def _whole(value: Any) -> int | None:
    """Return a whole number, also one that is written as 3.0; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return int(value) if is_number and int(value) == value else None
