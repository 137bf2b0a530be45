"""What arguments of a job must be to one another; what hardware and files say comes later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.prediction.arguments.table import ARGUMENTS, CHECKS, DEFAULTS, names_of

_OF_SEVERAL: Final = frozenset(names_of("exchange"))


def asked_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of some arguments that are not at their defaults, each checked by itself.

    Parameters
    ----------
    arguments : mapping of str to object
        As callers give them. [-]

    Returns
    -------
    dict of str to object
        As the library uses them. [-]

    Raises
    ------
    UnknownNameError
        If there is no such argument, or no such value; names the nearest.
    ArgumentError
        If a value is never allowed.
    """
    asked = {}
    for name, value in arguments.items():
        if name not in DEFAULTS:
            kind = "argument of predict"
            raise UnknownNameError(kind, name, DEFAULTS)
        default = DEFAULTS[name]
        if value is not default:
            check = CHECKS[name]
            checked = value if check is None else check(name, value)
            if checked != default:
                asked[name] = checked
    return asked


def check_together(asked: Mapping[str, Any]) -> None:
    """Raise if arguments of a job contradict one another.

    Parameters
    ----------
    asked : mapping of str to object
        Those that are not at their defaults, each checked by itself. [-]

    Raises
    ------
    ArgumentError
        Naming the argument, and what it must be beside the others.
    """
    for name, value in asked.items():
        row = ARGUMENTS[name]
        for other, allowed in row.excludes.items():
            if other in asked:
                raise ArgumentError(name, (value, asked[other]), allowed)
        for need in row.needs:
            met = asked.get(need.argument) in need.values if need.values else need.argument in asked
            if not met and value not in need.harmless:
                raise ArgumentError(name, value, need.allowed)
    if not _OF_SEVERAL.isdisjoint(asked):
        _check_workers(asked)


def _check_workers(asked: Mapping[str, Any]) -> None:
    """Raise if what is said of workers does nothing for their strategy, or does not fit their number."""
    from perfmodel.prediction.agreement_options import refuse_unused

    workers = asked.get("workers", DEFAULTS["workers"])
    refuse_unused(asked, (asked.get("sync", DEFAULTS["sync"]),), worker_count=workers)
    group_size = asked.get("group_size")
    if group_size is not None and workers % group_size:
        raise ArgumentError("group_size", group_size, f"a divisor of the {workers} workers")
    if "straggler" in asked:
        from perfmodel.prediction.straggler import straggler_of_job

        straggler = straggler_of_job(asked)
        assert straggler is not None
        straggler.check_workers(workers)
        straggler.check_backups(workers)
