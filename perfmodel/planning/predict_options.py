"""Arguments of reports over many predictions: lists of values, and options passed on to ``predict``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.prediction.arguments.table import ARGUMENTS, asked_of
from perfmodel.prediction.job.agreement_options import refuse_unused, taken
from perfmodel.prediction.job.straggler import straggler_of, straggler_of_job


def listed(argument: str, values: Any) -> list[Any]:
    """Return a list of the different values in an argument that may also be a single value.

    Examples
    --------
    >>> listed("workers", 4), listed("sync", ("downpour", "downpour"))
    ([4], ['downpour'])
    """
    entries = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    if not entries:
        raise ArgumentError(argument, values, "must have at least one value")
    return list(dict.fromkeys(entries))


def options_of(options: Mapping[str, Any], sync: str, workers: int) -> dict[str, Any]:
    """Return the options that a sync strategy takes; with unequal workers, the times of the first ``workers``."""
    wanted = taken(options, sync)
    if wanted.get("straggler") is not None:
        wanted["straggler"] = straggler_of(wanted["straggler"]).of_first(workers)
    return wanted


def check_options(
    options: Mapping[str, Any], syncs: Sequence[str], *, most_workers: int, of_a_row: Collection[str], of: str
) -> None:
    """Reject options that ``predict`` does not have, or that would have no effect."""
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
