"""Scores on measured collectives: shipped constants on the rows that no constant was fitted to, beside naive rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel import measurements
from perfmodel.errors import TableError
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.collective_library import load_collective_library
from perfmodel.measurements.collective_tables import CollectiveMeasurements, MeasuredCollective, read_collectives
from perfmodel.presentation.tables import Table
from perfmodel.sync.collectives import collective
from perfmodel.sync.library import place_library
from perfmodel.validation.score_records import PERFMODEL
from perfmodel.validation.scores import ScoreRow, score

if TYPE_CHECKING:
    from numpy.typing import NDArray

HELD_OUT: Final = "fitted_on_other_rows"
"""Protocol: constants as shipped, scored on the rows that they were not fitted to. [-]"""

NEAREST: Final = "nearest fitted size, scaled by bytes on the wire"
"""Naive rule: the time of the fitted row of the same operation that is nearest in size and devices. [-]"""

INTERPOLATED: Final = "interpolated over bytes on the wire"
"""Naive rule: between the fitted rows of the same operation with the nearest number of devices, log-log. [-]"""

CONSTANT: Final = "constant bus bandwidth"
"""Naive rule: bytes on the wire over the median bus bandwidth of the fitted rows of that operation. [-]"""

EVERY_ROW: Final = "all"
ALL_SYSTEMS: Final = "all systems"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveScore:
    """A score on a part of the rows of a table.

    Parameters
    ----------
    part : str
        Which rows: all, an operation, a number of devices. [-]
    score : ScoreRow
        The score; its subset is the system with the library, or all of them. [-]
    """

    part: str
    score: ScoreRow


def predicted_times(rows: Sequence[MeasuredCollective]) -> NDArray[np.float64]:
    """Return what the shipped library files say of calls.

    Parameters
    ----------
    rows : sequence of MeasuredCollective
        Calls. [-]

    Returns
    -------
    ndarray, shape (rows,)
        Times. [s]

    Raises
    ------
    ArgumentError
        If a row has more devices than its system.
    """
    calls = {(row.system, row.library, row.operation, row.worker_count) for row in rows}
    placed = {}
    for system, library, operation, workers in calls:
        topology = load_system(system).topology
        ranks = topology.devices()[:workers]
        if len(ranks) < workers:
            message = f"{workers} devices where system {system} has {len(ranks)}"
            raise TableError(message)
        found = place_library(load_collective_library(library), operation, topology, ranks)
        placed[system, library, operation, workers] = found
    return np.array(
        [float(placed[row.system, row.library, row.operation, row.worker_count].time(row.size_bytes)) for row in rows]
    )


def wire_bytes(row: MeasuredCollective) -> float:
    """Return the bytes that each device must send at least, by which a bus bandwidth is told.

    Parameters
    ----------
    row : MeasuredCollective
        A call. [-]

    Returns
    -------
    float
        Bytes: 2 (p - 1) / p n of an all-reduce, half of it of the others. [B]
    """
    name = "ring_all_reduce" if row.operation == "all_reduce" else row.operation
    return float(collective(name).wire_bytes(row.size_bytes, row.worker_count))


def nearest_scaled(row: MeasuredCollective, fitted: Sequence[MeasuredCollective]) -> float:
    """Return the time of the nearest fitted call, in proportion to the bytes on the wire.

    Parameters
    ----------
    row : MeasuredCollective
        The call to predict. [-]
    fitted : sequence of MeasuredCollective
        Calls that may be known. [-]

    Returns
    -------
    float
        Its time by the naive rule. [s]
    """

    def distance(other: MeasuredCollective) -> tuple[float, float]:
        devices = abs(math.log(other.worker_count / row.worker_count))
        return devices, abs(math.log(other.size_bytes / row.size_bytes))

    nearest = min(_alike(row, fitted), key=distance)
    return nearest.seconds * wire_bytes(row) / wire_bytes(nearest)


def interpolated(row: MeasuredCollective, fitted: Sequence[MeasuredCollective]) -> float:
    """Return the time between those of the fitted calls that put the next fewer and the next more bytes on the wire.

    Parameters
    ----------
    row : MeasuredCollective
        The call to predict. [-]
    fitted : sequence of MeasuredCollective
        Calls that may be known. [-]

    Returns
    -------
    float
        Its time by the naive rule; beyond the fitted sizes in proportion to the bytes. [s]
    """
    alike = _alike(row, fitted)
    nearest = min((abs(math.log(other.worker_count / row.worker_count)), other.worker_count) for other in alike)[1]
    known: dict[float, list[float]] = {}
    for other in alike:
        if other.worker_count == nearest:
            known.setdefault(math.log(wire_bytes(other)), []).append(math.log(other.seconds))
    sizes = sorted(known)
    size = math.log(wire_bytes(row))
    inside = min(max(size, sizes[0]), sizes[-1])
    times = [float(np.mean(known[each])) for each in sizes]
    return math.exp(float(np.interp(inside, sizes, times)) + size - inside)


def constant_bandwidth(row: MeasuredCollective, fitted: Sequence[MeasuredCollective]) -> float:
    """Return the time at the median bus bandwidth of the fitted calls.

    Parameters
    ----------
    row : MeasuredCollective
        The call to predict. [-]
    fitted : sequence of MeasuredCollective
        Calls that may be known. [-]

    Returns
    -------
    float
        Its time by the naive rule. [s]
    """
    rates = [wire_bytes(other) / other.seconds for other in _alike(row, fitted)]
    return wire_bytes(row) / float(np.median(rates))


def _alike(row: MeasuredCollective, fitted: Sequence[MeasuredCollective]) -> list[MeasuredCollective]:
    def key(each: MeasuredCollective) -> tuple[str, str, str]:
        return each.system, each.library, each.operation

    found = [other for other in fitted if key(other) == key(row)]
    if not found:
        message = (
            f"row {row.row_number}: no row of {row.operation} on {row.system} with {row.library} that may be fitted"
        )
        raise TableError(message)
    return found


def collective_scores(table: CollectiveMeasurements) -> tuple[CollectiveScore, ...]:
    """Score a table of measured collectives.

    Parameters
    ----------
    table : CollectiveMeasurements
        Its rows. [-]

    Returns
    -------
    tuple of CollectiveScore
        All scored rows, then each system and library, operation and number of devices: perfmodel, then naive rules. [-]

    Raises
    ------
    TableError
        If no row is left to score.
    """
    fitted = [row for row in table.rows if row.is_fitted]
    scored = [row for row in table.rows if not row.is_fitted]
    if not scored:
        message = f"{table.name}: no row is left to score: constants were fitted to all of them"
        raise TableError(message)
    times = {
        PERFMODEL: predicted_times(scored),
        NEAREST: np.array([nearest_scaled(row, fitted) for row in scored]),
        INTERPOLATED: np.array([interpolated(row, fitted) for row in scored]),
        CONSTANT: np.array([constant_bandwidth(row, fitted) for row in scored]),
    }
    constants = _constant_counts(table)
    measured_s = np.array([row.seconds for row in scored])
    found = []
    for subset, part, mask in _parts(scored):
        for model, predicted_s in times.items():
            line = score(subset, model, predicted_s[mask], measured_s=measured_s[mask], fitted=constants[model])
            found.append(CollectiveScore(part=part, score=line))
    return tuple(found)


def _parts(scored: Sequence[MeasuredCollective]) -> list[tuple[str, str, NDArray[np.bool_]]]:
    """Return names of system and part with the rows that belong there."""
    pairs = [f"{row.system}, {row.library}" for row in scored]
    operations = [row.operation for row in scored]
    counts = [row.worker_count for row in scored]
    found = [(ALL_SYSTEMS, EVERY_ROW, np.ones(len(scored), dtype=bool))]
    if len(set(pairs)) > 1:
        found += [(name, EVERY_ROW, np.array(pairs) == name) for name in sorted(set(pairs))]
    if len(set(operations)) > 1:
        found += [(ALL_SYSTEMS, name, np.array(operations) == name) for name in sorted(set(operations))]
    found += [(ALL_SYSTEMS, f"{count} devices", np.array(counts) == count) for count in sorted(set(counts))]
    return found


def _constant_counts(table: CollectiveMeasurements) -> dict[str, int]:
    """Return how many numbers each model takes from the fitted rows."""
    libraries = {row.library for row in table.rows}
    named = 0
    for name in libraries:
        library = load_collective_library(name)
        numbers = [f"protocol.{protocol}.{key}" for protocol, own in library.protocol.items() for key in own.constants]
        sources = [library.source_of(number) for number in numbers]
        named += sum(source is not None and source.provenance == "fitted" for source in sources)
    kinds = {(row.system, row.library, row.operation) for row in table.rows}
    known = sum(row.is_fitted for row in table.rows)
    return {PERFMODEL: named, NEAREST: known, INTERPOLATED: known, CONSTANT: len(kinds)}


@dataclass(frozen=True, slots=True)
class _Line:
    subset: str
    part: str
    model: str
    cells: int
    fitted: int
    mape: float
    median_ape: float
    p90_ape: float
    geometric_mean_ratio: float
    percent_within_10: float
    percent_within_25: float


def score_table(table: CollectiveMeasurements) -> Table[_Line]:
    """Return the scores of measured collectives as a table.

    Parameters
    ----------
    table : CollectiveMeasurements
        Its rows. [-]

    Returns
    -------
    Table
        A line for each part and model. [-]
    """
    lines = []
    for each in collective_scores(table):
        row = each.score
        numbers = (row.mape, row.median_ape, row.p90_ape, row.geometric_mean_ratio)
        shares = (row.percent_within_10, row.percent_within_25)
        lines.append(_Line(row.subset, each.part, row.model, row.cells, row.fitted, *numbers, *shares))
    reasons = [f"{count} rows {reason}" for reason, count in table.left_out.items()]
    known = sum(row.is_fitted for row in table.rows)
    note = "; ".join([f"{known} rows were fitted to", *reasons])
    return Table(lines, title=f"{table.name}: rows that no constant was fitted to (not scored: {note})")


def find_collectives(table: str | Path, folder: str | Path | None) -> CollectiveMeasurements | None:
    """Return a table of measured collectives by its path, or by its name in a folder of tables.

    Parameters
    ----------
    table : str or Path
        Path of a CSV, or the name of one in ``systems/`` of the folder, or how its name begins. [-]
    folder : str, Path or None
        Folder of tables that do not come with perfmodel. [-]

    Returns
    -------
    CollectiveMeasurements or None
        None where it is no table of collectives. [-]

    Raises
    ------
    TableError
        If the folder has no table of that name, or several that begin so.
    """
    if folder is None:
        path = Path(table)
        return read_collectives(path) if path.suffix == ".csv" and path.is_file() else None
    known = {path.stem: path for path in sorted((Path(folder) / "systems").glob("*.csv"))}
    found = [str(table)] if str(table) in known else [name for name in known if name.startswith(str(table))]
    if not found and str(table) in measurements.names():
        return None
    if len(found) != 1:
        message = (
            f"{folder}: {len(found)} tables in systems/ are named {table!s}*; there are {', '.join(known) or 'none'}"
        )
        raise TableError(message)
    return read_collectives(known[found[0]])
