"""Refuses constants that come from the table they are scored on, or from its laboratory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perfmodel.errors import CalibrationError
from perfmodel.hardware.source import SpecFile
from perfmodel.hardware.system import SystemFile
from perfmodel.measurements.table import MeasurementTable

_WORDS_OF_OTHERS = frozenset({"github", "https", "arxiv"})


def marks_of(table: MeasurementTable) -> tuple[str, ...]:
    """Return the texts by which a source betrays that it is the table or its laboratory.

    Parameters
    ----------
    table : MeasurementTable
        The scored table; its ``[source]`` lists ``marks``: its key, authors, identifiers, repositories. [-]

    Returns
    -------
    tuple of str
        Lower-case texts; at least the table's key.
    """
    marks = table.source.get("marks", "")
    listed = tuple(mark.strip().lower() for mark in marks.split(";") if mark.strip())
    return (table.key.lower(), *(mark for mark in listed if mark not in _WORDS_OF_OTHERS))


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
        if isinstance(spec, SystemFile):
            continue  # says which machine it was, not how fast anything ran
        for source in spec.source:
            text = f"{source.title} {source.url or ''} {source.note or ''}".lower()
            found = [mark for mark in marks if mark in text]
            if found:
                yield f"{spec.name}: {', '.join(source.fields)} cite {found[0]!r}"


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
