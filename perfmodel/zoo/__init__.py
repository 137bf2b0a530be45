"""Published networks: each a function that returns a LayerGraph, one file per architecture.

The imports here are the list of them all.

>>> resnet50().parameter_count
25557032
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction, signature
from typing import Any

from perfmodel.errors import UnknownNameError
from perfmodel.graph import LayerGraph
from perfmodel.zoo.alexnet import alexnet as alexnet
from perfmodel.zoo.fully_connected import fcn5 as fcn5
from perfmodel.zoo.fully_connected import fcn8 as fcn8
from perfmodel.zoo.language_model import lstm32 as lstm32
from perfmodel.zoo.language_model import lstm64 as lstm64
from perfmodel.zoo.resnet import resnet50 as resnet50

BUILDERS: dict[str, Callable[..., LayerGraph]] = {
    name: each
    for name, each in tuple(globals().items())
    if isfunction(each) and each.__module__.startswith(f"{__name__}.")
}
"""Name to builder: the functions imported above."""


def names() -> tuple[str, ...]:
    """Return the names that ``build`` knows.

    Returns
    -------
    tuple of str
        In alphabetical order. [-]

    Examples
    --------
    >>> names()[:2]
    ('alexnet', 'fcn5')
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
