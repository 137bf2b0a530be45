"""A layer of a configuration and what its translators need: its fields, its tensors, and the graph in the making."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from perfmodel.errors import ArgumentError, SpecError, check_known, short_repr
from perfmodel.importers.assembly import Assembly, Tensor, Weights, decline
from perfmodel.layers import (
    GELU,
    LAYERS,
    Add,
    Binary,
    Dropout,
    Layer,
    LeakyReLU,
    ReLU,
    ReLU6,
    Reshape,
    Shape,
    Sigmoid,
    SiLU,
    Slice,
    Tanh,
    Unary,
)
from perfmodel.layers.translation import function_names

ACTIVATIONS: Final[Mapping[str, type[Layer]]] = {
    "relu": ReLU,
    "relu6": ReLU6,
    **dict.fromkeys(("leakyrelu", "lrelu", "rrelu"), LeakyReLU),
    "sigmoid": Sigmoid,
    "tanh": Tanh,
    **dict.fromkeys(("silu", "swish"), SiLU),
    "gelu": GELU,
}
"""Element-wise activation in lower case without underscores -> layer of its own; others are functions of ``Unary``."""

FUNCTIONS: Final = function_names("unary", "called")
"""The same -> function."""


def elementwise(name: str | None) -> Layer | None:
    """Make the element-wise activation of a name in Keras or deeplearning4j; None for others.

    Examples
    --------
    >>> elementwise("hard_sigmoid"), elementwise("HardSigmoid"), elementwise("softmax")
    (Unary(function='hard_sigmoid'), Unary(function='hard_sigmoid'), None)
    """
    compact = "" if name is None else name.replace("_", "").lower()
    if compact in ACTIVATIONS:
        return ACTIVATIONS[compact]()
    return Unary(function=FUNCTIONS[compact]) if compact in FUNCTIONS else None


def over_axes(family: str, axis_count: int) -> Any:
    """Class of a layer over maps, from its family and the number of axes.

    Examples
    --------
    >>> over_axes("max_pool", 2).__name__
    'MaxPool2d'
    """
    return LAYERS[f"{family}_{axis_count}d"]


def stated_shapes(stated: Any, names: Sequence[str], *, where: str) -> Mapping[str, Any]:
    """Shapes of inputs by their names; that of a single input may be stated by itself."""
    shapes: Mapping[str, Any] = {} if stated is None else stated
    if not isinstance(shapes, Mapping):
        if len(names) != 1:
            raise ArgumentError("input_shapes", stated, f"a mapping with a shape for each of {', '.join(names)}")
        shapes = {names[0]: stated if isinstance(stated, list | tuple) else (stated,)}
    for name in shapes:
        check_known(f"input of {where}:", name, names)
    return shapes


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

    def joined(self, function: str, tensors: Sequence[Tensor]) -> Tensor:
        """Join tensors by a function of two: one sum of equal ones, or one tensor after the other."""
        if function == "add" and len({tuple(self.assembly.shape(tensor.source)) for tensor in tensors}) == 1:
            return self.made(Add(), *tensors)
        so_far = tensors[0]
        for place, tensor in enumerate(tensors[1:]):
            part = f"{function}_{place}" if place else ""
            so_far = self.made(Binary(function=function), so_far, tensor, part=part)
        return so_far

    def halves(self, both: Tensor) -> list[Tensor]:
        """Return the features of each direction of a recurrence that runs both ways."""
        half = (*both.rows, *both.shape[:-1], both.shape[-1] // 2)
        layer = Slice(shape=half, is_joined=True)
        return [self.made(layer, both, part=part) for part in ("forward", "backward")]

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
