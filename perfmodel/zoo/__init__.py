"""Published networks: each a function that returns a LayerGraph, one file per architecture.

>>> resnet50().parameter_count
25557032
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from perfmodel.errors import UnknownNameError
from perfmodel.graph import LayerGraph
from perfmodel.zoo.alexnet import alexnet
from perfmodel.zoo.fully_connected import fcn5, fcn8
from perfmodel.zoo.language_model import lstm32, lstm64
from perfmodel.zoo.resnet import resnet50

BUILDERS: dict[str, Callable[..., LayerGraph]] = {
    builder.__name__: builder for builder in (alexnet, fcn5, fcn8, lstm32, lstm64, resnet50)
}
"""Name to builder."""

__all__ = ["BUILDERS", "alexnet", "build", "fcn5", "fcn8", "lstm32", "lstm64", "names", "resnet50"]


def names() -> tuple[str, ...]:
    """Return the names that ``build`` knows.

    Returns
    -------
    tuple of str
        In alphabetical order. [-]

    Examples
    --------
    >>> names()
    ('alexnet', 'fcn5', 'fcn8', 'lstm32', 'lstm64', 'resnet50')
    """
    return tuple(sorted(BUILDERS))


def build(name: str, **options: Any) -> LayerGraph:
    """Return a published network by its name.

    Parameters
    ----------
    name : str
        One of ``names()``. [-]
    **options : str, int or bool
        Options of the builder. [-]

    Returns
    -------
    LayerGraph
        The network. [-]

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
    if name not in BUILDERS:
        noun = "network"
        raise UnknownNameError(noun, str(name), BUILDERS)
    known = signature(BUILDERS[name]).parameters
    for option in options:
        if option not in known:
            noun = f"option of network {name!r}:"
            raise UnknownNameError(noun, option, known)
    return BUILDERS[name](**options)
