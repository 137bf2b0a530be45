"""Layers: what is computed. A module per family; ``__init__.pyi`` is the list of all kinds.

``base`` is the contract, ``shapes`` the shapes of samples, ``window`` the geometry of convolution and pooling,
``passes`` the memory passes that layers share, ``chained`` what is alike in layers made of others, ``checks`` the
checks of their options, ``translation`` how they read operators of other programs, ``optimizers`` the updates. A
family is loaded when its name is first used; the registry ``LAYERS`` (kind to class, the only dispatch on layers)
loads them all.
"""

from __future__ import annotations

from inspect import isabstract
from typing import Any

from perfmodel.on_demand import listed, loaded

_MODULE_OF = listed(__file__)


def __getattr__(name: str) -> Any:
    globals()[name] = value = _registry() if name == "LAYERS" else loaded(__name__, _MODULE_OF, name)
    return value


def __dir__() -> list[str]:
    return sorted(("LAYERS", *_MODULE_OF))


def _registry() -> dict[str, type[Any]]:
    """Return the class of each kind of layer."""
    from perfmodel.layers.base import Layer

    every = (loaded(__name__, _MODULE_OF, name) for name in _MODULE_OF)
    return {
        kind.kind: kind for kind in every if isinstance(kind, type) and issubclass(kind, Layer) and not isabstract(kind)
    }
