"""One call of a Keras layer, as the translators of its class see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perfmodel.importers.assembly import Assembly, NotTranslatedError, Tensor
from perfmodel.layers import Dropout, Layer, Reshape, Shape

LAST: str = "channels_last"
"""The order of axes that Keras has where a layer does not say another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCall:
    """One call of a layer.

    Parameters
    ----------
    assembly : Assembly
        The graph in the making. [-]
    path : str
        The layer's path through nested models, which owns its parameters. [-]
    class_name : str
        Its class. [-]
    config : mapping
        Its configuration. [-]
    tensors : tuple of Tensor
        All tensors among its arguments, in order. [-]
    arguments : tuple
        Its positional arguments, with tensors in their places. [-]
    options : mapping
        Its named arguments. [-]
    read : frozenset of int
        Which of its results are read. [-]
    is_trained : bool
        Whether its weights are. [-]
    """

    assembly: Assembly
    path: str
    class_name: str
    config: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    read: frozenset[int] = frozenset((0,))
    is_trained: bool = True

    @property
    def first(self) -> Tensor:
        """The first tensor that it reads."""
        if not self.tensors:
            raise NotTranslatedError("it reads no tensor")
        return self.tensors[0]

    def get(self, field_name: str, default: Any = None) -> Any:
        """Return a field of the configuration, or a default where it is left out or null."""
        value = self.config.get(field_name)
        return default if value is None else value

    def required(self, field_name: str) -> Any:
        """Return a field of the configuration that must be there."""
        if self.config.get(field_name) is None:
            raise NotTranslatedError(f"its field {field_name!r} is missing")
        return self.config[field_name]

    def count(self, field_name: str, default: int | None = None) -> int:
        """Return a field that holds a whole number."""
        value = self.required(field_name) if default is None else self.get(field_name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or int(value) != value:
            raise NotTranslatedError(f"its field {field_name}={value!r} must be a whole number")
        return int(value)

    def sizes(self, field_name: str, axis_count: int, default: Any = None) -> tuple[int, ...]:
        """Return a field that holds one whole number for all axes of a map, or one for each."""
        value = self.required(field_name) if default is None else self.get(field_name, default)
        values = tuple(value) if isinstance(value, list | tuple) else (value,) * axis_count
        if len(values) != axis_count or not all(isinstance(size, int) for size in values):
            raise NotTranslatedError(f"its field {field_name}={value!r} must be {axis_count} whole numbers")
        return values

    def add(self, layer: Layer, *tensors: Tensor, part: str = "") -> str:
        """Plan a layer of the graph; the parts of a layer have parameters of their own."""
        sources = tuple(tensor.source for tensor in tensors)
        name = f"{self.path}.{part}" if part else self.path
        return self.assembly.add(name, layer, *sources, owner=(self.path, part), is_trained=self.is_trained)

    def each(self, layer: Layer, tensor: Tensor, part: str = "") -> Tensor:
        """Plan a layer that leaves shape and axes as they are."""
        return replace(tensor, source=self.add(layer, tensor, part=part))

    def over_maps(self, layer: Layer, tensor: Tensor, part: str = "") -> Tensor:
        """Plan a layer that reads the channels before the map, in whichever order the configuration has them."""
        maps = self.maps(tensor)
        return self.like(self.add(layer, maps, part=part), maps)

    def maps(self, tensor: Tensor) -> Tensor:
        """Return a tensor with the channels before the map in the graph."""
        is_last = self.get("data_format", LAST) == LAST
        return self.assembly.turned(tensor) if is_last else self.assembly.plain(tensor)

    def plain(self, tensor: Tensor) -> Tensor:
        """Return a tensor with its axes in the graph as in the configuration."""
        return self.assembly.plain(tensor)

    def like(self, source: str, tensor: Tensor) -> Tensor:
        """Return a layer of the graph as a tensor with the rows and the order of axes of another."""
        return self.assembly.tensor(source, rows=tensor.rows, is_turned=tensor.is_turned)

    def reshaped(self, tensor: Tensor, shape: Shape, part: str = "") -> Tensor:
        """Return the elements of a tensor under another shape."""
        plain = self.plain(tensor)
        layer = Reshape(shape=(*plain.rows, *shape))
        return self.like(self.add(layer, plain, part=part), plain)

    def dropped(self, tensor: Tensor, rate: float, part: str = "dropout") -> Tensor:
        """Return a tensor after dropout; the tensor itself if nothing is dropped."""
        return self.each(Dropout(rate=float(rate)), tensor, part) if rate else tensor

    def of(self, config: Mapping[str, Any], **changes: Any) -> LayerCall:
        """Return the call of a layer inside this one, with its own configuration."""
        return replace(self, config=config, **changes)


Result = Tensor | tuple[Tensor | None, ...]
"""What a layer makes: one tensor, or several, of which those that nobody reads may be left out."""
Translator = Callable[[LayerCall], Result]
"""Plans the layers of a call; raises NotTranslatedError where it does not cover it."""
