"""What a report over many predictions is asked: lists of entries, and options that it gives to ``predict``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.prediction.agreement_options import refuse_unused, taken
from perfmodel.prediction.arguments.table import ARGUMENTS, asked_of
from perfmodel.prediction.straggler import straggler_of, straggler_of_job


def listed(argument: str, given: Any) -> list[Any]:
    """Return the different entries of what may be a single one.

    Parameters
    ----------
    argument : str
        What it was given for, to name in an error. [-]
    given : object
        One entry, or an iterable of them; a text is one. [-]

    Returns
    -------
    list
        Entries, at least one. [-]

    Raises
    ------
    ArgumentError
        If there is none.

    Examples
    --------
    >>> listed("workers", 4), listed("sync", ("downpour", "downpour"))
    ([4], ['downpour'])
    """
    entries = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    if not entries:
        raise ArgumentError(argument, given, "at least one")
    return list(dict.fromkeys(entries))


def options_of(options: Mapping[str, Any], sync: str, workers: int) -> dict[str, Any]:
    """Return the options that one way to agree takes, lasting times of unequal workers for the first so many.

    Parameters
    ----------
    options : mapping of str to object
        Those of all ways. [-]
    sync : str
        The way to agree. [-]
    workers : int
        Workers. [1]

    Returns
    -------
    dict of str to object
        Arguments of ``predict``. [-]
    """
    wanted = taken(options, sync)
    if wanted.get("straggler") is not None:
        wanted["straggler"] = straggler_of(wanted["straggler"]).of_first(workers)
    return wanted


def check_options(
    options: Mapping[str, Any], syncs: Sequence[str], *, most_workers: int, of_a_row: Collection[str], of: str
) -> None:
    """Raise unless options are arguments of ``predict`` that change something.

    Parameters
    ----------
    options : mapping of str to object
        What was given besides. [-]
    syncs : sequence of str
        Ways to agree that are asked for. [-]
    most_workers : int
        Most workers that are asked for. [1]
    of_a_row : collection of str
        Arguments of ``predict`` that the report gives itself. [-]
    of : str
        What the options are of, to name in an error. [-]

    Raises
    ------
    UnknownNameError
        If an option is none; names the nearest.
    ArgumentError
        If a value is never allowed, or an option is for none of the ways to agree.
    """
    known = [name for name in ARGUMENTS if name not in of_a_row]
    for name in options:
        if name not in known:
            kind = f"option of {of}"
            raise UnknownNameError(kind, name, known)
    asked = asked_of(options)
    refuse_unused(asked, syncs, worker_count=most_workers)
    straggler = straggler_of_job(asked)
    if straggler is not None:
        straggler.check_backups(most_workers)
