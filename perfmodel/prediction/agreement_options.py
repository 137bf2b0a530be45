"""Which options of an agreement each strategy takes: one table for predictions, scaling reports and their errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from perfmodel.errors import ArgumentError
from perfmodel.sync.asynchronous import SCHEMES
from perfmodel.sync.collectives import ALL_REDUCES

PARAMETER_SERVER: Final = "parameter_server"
LIBRARY: Final = "all_reduce"
"""Value of ``sync`` for what the framework's library of collectives chooses at each size."""

WAITING: Final = (LIBRARY, *ALL_REDUCES)
"""Strategies in which all workers wait for all in every step."""

TAKEN_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "overlap": WAITING,
    "bucket_bytes": WAITING,
    "backup_workers": WAITING,
    "server_count": (PARAMETER_SERVER, *SCHEMES),
    "push_period": tuple(SCHEMES),
    "pull_period": tuple(SCHEMES),
    "staleness_bound": ("bounded_staleness",),
    "group_size": ("hierarchical", "mixed"),
}
"""Option -> strategies that take it; to all others it would say nothing."""

UNLESS_GIVEN: Final[Mapping[str, object]] = {
    "overlap": True,
    "bucket_bytes": None,
    "backup_workers": 0,
    "server_count": 1,
    "push_period": 1,
    "pull_period": 1,
    "staleness_bound": None,
    "group_size": None,
}
"""Option -> its default, which every strategy takes."""


def taken(options: Mapping[str, Any], sync: str) -> dict[str, Any]:
    """Return those of some options that a strategy takes; what is no option of an agreement stays.

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
    """Raise if an option is for none of some strategies, and would change nothing.

    Parameters
    ----------
    options : mapping of str to object
        Arguments of ``predict``, or more. [-]
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
    for name, takers in TAKEN_BY.items():
        default = UNLESS_GIVEN[name]
        if options.get(name, default) != default and not set(syncs) & set(takers):
            *others, last = takers
            named = f"one of {', '.join(others)} or {last}" if len(others) > 1 else " or ".join(takers)
            raise ArgumentError(name, options[name], f"{default!r} unless sync is {named}")
