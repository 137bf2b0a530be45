"""Arguments of ``predict`` for commands that compare predictions: the usual ones, and any other by its name."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import typer

from perfmodel.cli.output import key_values, number_as_typed
from perfmodel.cli.predict import straggler_option

DeviceOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="A GPU, or one CPU socket: name or TOML file.")
]
SystemOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="A machine or a cluster: name or TOML file.")
]
BatchSizeOption: TypeAlias = Annotated[str | None, typer.Option(metavar="N", help="Samples per worker and step.")]
FrameworkOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="Framework profile: name or TOML file; generic unless given.")
]
SetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any other argument of predict (workers=4, sync=downpour, dtype=fp16, prefetch=0); repeatable.",
    ),
]
OptionOption: TypeAlias = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Option of the network; repeatable.")
]
REPLACES: Final = {
    "device": "system",
    "system": "device",
    "batch_size": "global_batch_size",
    "global_batch_size": "batch_size",
}
"""Argument -> the one that it is given instead of."""


def predict_arguments(pairs: list[str], *, argument: str, besides: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return arguments of ``predict`` typed as ``key=value``.

    Parameters
    ----------
    pairs : list of str
        What was typed; ``batch-size`` is ``batch_size``, and a key without a value is the argument's default. [-]
    argument : str
        The option it was typed for, to name in an error. [-]
    besides : tuple of str
        Further keys that are allowed. [-]

    Returns
    -------
    dict
        Value by name. [-]

    Raises
    ------
    ArgumentError
        If one of them has no ``=``, or is given twice.
    UnknownNameError
        If ``predict`` has no such argument; names the nearest.

    Examples
    --------
    >>> predict_arguments(["batch-size=32", "sync=downpour", "pinned=false"], argument="--set")
    {'batch_size': 32, 'sync': 'downpour', 'pinned': False}
    >>> predict_arguments(["recompute=", "straggler=normal=0.1"], argument="--set")
    {'recompute': None, 'straggler': {'distribution': 'normal', 'cv': 0.1}}
    """
    from perfmodel.errors import ArgumentError, UnknownNameError
    from perfmodel.prediction.arguments.table import ARGUMENTS

    known = (*ARGUMENTS, *besides)
    spelt = [f"{key.replace('-', '_')}{equals}{text}" for key, equals, text in (pair.partition("=") for pair in pairs)]
    given = key_values(spelt, argument=argument)
    kind = f"key of {argument}"
    for name, value in given.items():
        if name not in known:
            raise UnknownNameError(kind, name, known)
        if value == "" and name in besides:
            raise ArgumentError(argument, f"{name}=", f"{name}=NAME: it has no default")
        if value == "":
            given[name] = ARGUMENTS[name].default
        elif name == "straggler":
            given[name] = straggler_option(value)
    return given


def base_arguments(
    *, device: str | None, system: str | None, batch_size: str | None, framework: str | None, others: list[str]
) -> dict[str, Any]:
    """Return the arguments of ``predict`` that a command was given.

    Parameters
    ----------
    device, system, batch_size, framework : str or None
        What was typed for options of their own; None is left out. [-]
    others : list of str
        What was typed for ``--set``. [-]

    Returns
    -------
    dict
        Value by name. [-]

    Raises
    ------
    UnknownNameError
        If ``predict`` has no such argument; names the nearest.
    ArgumentError
        If one is given twice.
    """
    from perfmodel.errors import ArgumentError

    own = {"device": device, "system": system, "batch_size": number_as_typed(batch_size), "framework": framework}
    given = {name: value for name, value in own.items() if value is not None}
    more = predict_arguments(others, argument="--set")
    for name in given.keys() & more.keys():
        raise ArgumentError(
            "--set", f"{name}={more[name]}", f"left out beside --{name.replace('_', '-')} {given[name]}"
        )
    return given | more


def changed_arguments(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with some of them changed; one that stands instead of another drops that one.

    Parameters
    ----------
    base : dict
        Arguments of ``predict``. [-]
    changes : dict
        Those that differ. [-]

    Returns
    -------
    dict
        Value by name. [-]

    Examples
    --------
    >>> changed_arguments({"device": "gtx_1080", "batch_size": 8}, {"system": "dgx_a100", "workers": 2})
    {'batch_size': 8, 'system': 'dgx_a100', 'workers': 2}
    """
    dropped = {REPLACES[name] for name in changes if name in REPLACES} - changes.keys()
    return {name: value for name, value in base.items() if name not in dropped} | changes
