"""Strategies of agreement by name, their families, and which arguments each of them takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from perfmodel.errors import ArgumentError
from perfmodel.prediction.arguments.checks import NO_SYNC
from perfmodel.prediction.arguments.table import ARGUMENTS
from perfmodel.sync.asynchronous import SCHEMES
from perfmodel.sync.collectives import ALL_REDUCES

PARAMETER_SERVER: Final = "parameter_server"
LIBRARY: Final = "all_reduce"
"""Value of ``sync`` for what the framework's library of collectives chooses at each size."""

WAITING: Final = (LIBRARY, *ALL_REDUCES)
"""Strategies in which all workers wait for all in every step."""

WITH_SERVER: Final = (PARAMETER_SERVER, *SCHEMES)
"""Strategies in which one worker alone exchanges too, as its parameters lie with a server."""

FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "waiting": WAITING,
    "server": WITH_SERVER,
    "asynchronous": tuple(SCHEMES),
}
"""Family of strategies, as ``Argument.takers`` names it -> the strategies."""

TAKEN_BY: Final[Mapping[str, tuple[str, ...]]] = {
    row.name: tuple(name for taker in row.takers for name in FAMILIES.get(taker, (taker,)))
    for row in ARGUMENTS.values()
    if row.takers
}
"""Argument -> strategies that take it; to all others it would say nothing."""


def sync_names() -> tuple[str, ...]:
    """Return every value of ``sync``."""
    return (NO_SYNC, *WAITING, *SCHEMES)


def taken(options: Mapping[str, Any], sync: str) -> dict[str, Any]:
    """Return those of some arguments that a strategy takes; what is for no strategy in particular stays.

    Parameters
    ----------
    options : mapping of str to object
        Arguments of ``predict``. [-]
    sync : str
        The strategy. [-]

    Returns
    -------
    dict of str to object
        All but what is for other strategies. [-]

    Examples
    --------
    >>> taken({"push_period": 4, "overlap": False, "dtype": "fp16"}, "downpour")
    {'push_period': 4, 'dtype': 'fp16'}
    """
    return {name: value for name, value in options.items() if sync in TAKEN_BY.get(name, (sync,))}


def refuse_unused(options: Mapping[str, Any], syncs: Collection[str], *, worker_count: int) -> None:
    """Raise if an argument is for none of some strategies, and would change nothing.

    Parameters
    ----------
    options : mapping of str to object
        Arguments of ``predict``. [-]
    syncs : collection of str
        Strategies that are asked for. [-]
    worker_count : int
        Most workers that are asked for; one alone agrees with nobody, and keeps what is meant for several. [1]

    Raises
    ------
    ArgumentError
        Naming the strategies that take it.
    """
    if worker_count == 1:
        return
    for name, value in options.items():
        takers = TAKEN_BY.get(name)
        if takers is None or set(syncs) & set(takers):
            continue
        default = ARGUMENTS[name].default
        if value != default:
            *others, last = takers
            named = f"one of {', '.join(others)} or {last}" if len(others) > 1 else " or ".join(takers)
            raise ArgumentError(name, value, f"{default!r} unless sync is {named}")
