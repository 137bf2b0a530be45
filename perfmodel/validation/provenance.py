"""Refuses constants that come from the table they are scored on, or from its laboratory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from perfmodel import measurements
from perfmodel.errors import CalibrationError
from perfmodel.hardware.source import ESTIMATE, SpecFile
from perfmodel.measurements.table import MeasurementTable

IDENTITY_FIELDS = frozenset({"sockets.count", "memory.capacity_gib", "device.device", "device.count"})
"""Fields that say which machine it was, which only the table can tell, and not how fast anything runs."""


def marks_of(table: MeasurementTable) -> tuple[str, ...]:
    """Return the texts by which a source betrays that it is the table or its laboratory.

    Parameters
    ----------
    table : MeasurementTable
        The scored table; its ``[source]`` lists ``marks``: its key, authors, identifiers, repositories. [-]

    Returns
    -------
    tuple of str
        Lower-case texts: what the table lists, and the key of a shipped table. A user's own table is guarded by the
        marks that its file lists.
    """
    listed = tuple(mark.strip().lower() for mark in table.source.get("marks", "").split(";") if mark.strip())
    own_key = (table.key.lower(),) if table.key in measurements.names() else ()
    return (*own_key, *listed)


def sources_from(table: MeasurementTable, specs: Iterable[SpecFile]) -> Iterator[str]:
    """Yield a line for every source of a file that names the table or its laboratory.

    Parameters
    ----------
    table : MeasurementTable
        The scored table. [-]
    specs : iterable of SpecFile
        Files whose numbers a prediction used. [-]

    Yields
    ------
    str
        File, fields and the text that gave it away. [-]
    """
    marks = marks_of(table)
    for spec in specs:
        for source in spec.source:
            text = _plain(f"{source.title} {source.url or ''} {source.note or ''}")
            found = [mark for mark in marks if _mentions(text, mark)]
            fields = [field for field in source.fields if field not in IDENTITY_FIELDS]
            if found and fields:
                yield f"{spec.name}: {', '.join(fields)} cite {found[0]!r}"


def _plain(text: str) -> str:
    return re.sub(r"[-\s]+", " ", text.lower())


def _mentions(text: str, mark: str) -> bool:
    # an identifier of a preprint may carry its version: 1608.07249v1
    return re.search(rf"(?<!\w){re.escape(_plain(mark))}(?:v\d+)?(?!\w)", text) is not None


def estimated_fields(specs: Iterable[SpecFile]) -> tuple[str, ...]:
    """Return the fields of the files that are estimates, not data: the weight they carry belongs beside a score.

    Parameters
    ----------
    specs : iterable of SpecFile
        Files whose numbers a prediction used. [-]

    Returns
    -------
    tuple of str
        ``file: field``, sorted. [-]
    """
    return tuple(
        sorted(
            f"{spec.name}: {field}"
            for spec in specs
            for source in spec.source
            if source.title == ESTIMATE
            for field in source.fields
        )
    )


def require_independence(table: MeasurementTable, specs: Iterable[SpecFile]) -> None:
    """Raise unless no file that a prediction used cites the table it is scored on.

    Parameters
    ----------
    table : MeasurementTable
        The scored table. [-]
    specs : iterable of SpecFile
        Files whose numbers a prediction used. [-]

    Raises
    ------
    CalibrationError
        Naming every file and field at fault.
    """
    faults = list(sources_from(table, specs))
    if faults:
        message = f"constants were taken from the table they are scored on ({table.key}): {'; '.join(faults)}"
        raise CalibrationError(message)
