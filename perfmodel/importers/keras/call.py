"""One call of a Keras layer, as the translators of its class see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from perfmodel.importers.assembly import ConfiguredLayer, Tensor
from perfmodel.layers import Layer

LAST: Final = "channels_last"
"""The order of axes in Keras, unless a layer states another."""


def stated_axes(value: Any) -> tuple[int, ...]:
    """Return one axis or several as a tuple [-]."""
    return tuple(value) if isinstance(value, list | tuple) else (int(value),)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCall(ConfiguredLayer):
    """One call of a layer, with its arguments and which results are read; its ``path`` leads through nested models."""

    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    read: frozenset[int] = frozenset((0,))

    def over_maps(self, layer: Layer, tensor: Tensor, part: str = "") -> Tensor:
        """Plan a layer that reads channels before the map, for either order of axes in the configuration."""
        return self.made(layer, self.maps(tensor), part=part)

    def maps(self, tensor: Tensor) -> Tensor:
        """Return a tensor with the channels before the map in the graph."""
        is_last = self.get("data_format", LAST) == LAST
        return self.assembly.turned(tensor) if is_last else self.assembly.plain(tensor)

    def of(self, config: Mapping[str, Any], **changes: Any) -> LayerCall:
        """Return the call of a layer inside this one, with its own configuration."""
        return replace(self, config=config, **changes)


Result = Tensor | tuple[Tensor | None, ...]
"""Results of a layer: one tensor, or several, with None for results that no layer reads."""
Translator = Callable[[LayerCall], Result]
"""Plans the layers of a call; raises NotTranslatedError where it does not cover it."""
