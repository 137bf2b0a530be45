"""Published networks: each a function that returns a LayerGraph, one file per family.

``__init__.pyi`` is the list of them all; a family's file is loaded when its name is first used.

>>> import perfmodel as pm
>>> pm.zoo.resnet50().parameter_count
25557032
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

from perfmodel.errors import check_known
from perfmodel.on_demand import listed, loaded

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph

_MODULE_OF = {name: module for name, module in listed(__file__).items() if module.startswith(f"{__name__}.")}


class _Builders(Mapping[str, "Callable[..., LayerGraph]"]):
    """Name to builder, loaded when it is first asked for."""

    def __getitem__(self, name: str) -> Callable[..., LayerGraph]:
        if name not in _MODULE_OF:
            raise KeyError(name)
        builder: Callable[..., LayerGraph] = loaded(__name__, _MODULE_OF, name)
        return builder

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULE_OF)

    def __len__(self) -> int:
        return len(_MODULE_OF)


BUILDERS = _Builders()
"""Name to builder: all that the list names."""


def __getattr__(name: str) -> Any:
    globals()[name] = value = loaded(__name__, _MODULE_OF, name)
    return value


def __dir__() -> list[str]:
    return sorted(("BUILDERS", "build", "names", *_MODULE_OF))


def names() -> tuple[str, ...]:
    """Return the names that ``build`` knows.

    Returns
    -------
    tuple of str
        In alphabetical order. [-]

    Examples
    --------
    >>> "resnet50" in names()
    True
    """
    return tuple(sorted(BUILDERS))


def build(name: str, /, **options: Any) -> LayerGraph:
    """Return a published network by its name.

    Parameters
    ----------
    name : str
        One of ``names()``. [-]
    **options : str, number, bool or tuple
        Options of the builder. [-]

    Raises
    ------
    UnknownNameError
        If there is no such network or option; names the nearest.
    ArgumentError
        If an option has a value that is not allowed.

    Examples
    --------
    >>> build("fcn8", hidden_layers=5)
    <LayerGraph 'fcn8': 12 layers, 126,390,400 parameters>
    """
    check_known("network", str(name), BUILDERS)
    known = signature(BUILDERS[name]).parameters
    for option in options:
        check_known(f"option of network {name!r}:", option, known)
    return BUILDERS[name](**options)
