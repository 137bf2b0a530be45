"""perfmodel: how long a neural network takes to train or run on given hardware, why, and what would change.

>>> import perfmodel as pm
>>> p = pm.predict(pm.zoo.alexnet(), batch_size=16, device="gtx_1080", framework="torch_423cfba")
>>> p.step_s > 0
True

Everything public is reached from here; ``__init__.pyi`` is the list of it. Modules load when a name is first used, so
that importing is instant.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from perfmodel.on_demand import listed, loaded

__version__ = "0.1.0"

_MODULE_OF = listed(__file__)
_SUBMODULES = ("errors", "layers", "measurements", "zoo")

__all__ = ["__version__", *_SUBMODULES, *_MODULE_OF]


def __getattr__(name: str) -> Any:
    is_module = name in _SUBMODULES
    globals()[name] = value = import_module(f"perfmodel.{name}") if is_module else loaded(__name__, _MODULE_OF, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
