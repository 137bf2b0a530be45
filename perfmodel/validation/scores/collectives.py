"""Scores on measured collectives: shipped constants on the rows that no constant was fitted to, beside naive rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.errors import TableError
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.library import load_collective_library
from perfmodel.measurements.kernel_tables import CollectiveMeasurements, MeasuredCollective, read_collectives
from perfmodel.presentation.tables import row_table
from perfmodel.sync.registry import collective, place_library
from perfmodel.validation.scores.table_report import EVERY_ROW, PERFMODEL, RowReport, compared

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

ALL_SYSTEMS: Final = "all systems"


def predicted_times(rows: Sequence[MeasuredCollective]) -> NDArray[np.float64]:
    """Predict calls by the shipped library files."""
    calls = {(row.system, row.library, row.operation, row.worker_count) for row in rows}
    placed = {}
    for system, library, operation, workers in calls:
        topology = load_system(system).topology
        ranks = topology.devices()[:workers]
        if len(ranks) < workers:
            message = f"a call must use at most {len(ranks)} devices on system {system} (got {workers})"
            raise TableError(message)
        library_placed = place_library(load_collective_library(library), operation, topology, ranks)
        placed[system, library, operation, workers] = library_placed
    return np.array(
        [float(placed[row.system, row.library, row.operation, row.worker_count].time(row.size_bytes)) for row in rows]
    )


def wire_bytes(operation: str, size_bytes: float, worker_count: int) -> float:
    """Return the fewest bytes that each device must send, the basis of a bus bandwidth. [B]"""
    name = "ring_all_reduce" if operation == "all_reduce" else operation
    return float(collective(name).wire_bytes(size_bytes, worker_count))


def _wire_bytes(row: MeasuredCollective) -> float:
    return wire_bytes(row.operation, row.size_bytes, row.worker_count)


def nearest_scaled(row: MeasuredCollective, fitted: Sequence[MeasuredCollective]) -> float:
    """Return the time of the nearest fitted call, in proportion to the bytes on the wire."""

    def distance(other: MeasuredCollective) -> tuple[float, float]:
        devices = abs(math.log(other.worker_count / row.worker_count))
        return devices, abs(math.log(other.size_bytes / row.size_bytes))

    nearest = min(_alike(row, fitted), key=distance)
    return nearest.seconds * _wire_bytes(row) / _wire_bytes(nearest)


def interpolated(row: MeasuredCollective, fitted: Sequence[MeasuredCollective]) -> float:
    """Interpolate between the fitted calls with the next fewer and the next more bytes on the wire."""
    alike = _alike(row, fitted)
    nearest = min((abs(math.log(other.worker_count / row.worker_count)), other.worker_count) for other in alike)[1]
    known: dict[float, list[float]] = {}
    for other in alike:
        if other.worker_count == nearest:
            known.setdefault(math.log(_wire_bytes(other)), []).append(math.log(other.seconds))
    sizes = sorted(known)
    size = math.log(_wire_bytes(row))
    inside = min(max(size, sizes[0]), sizes[-1])
    times = [float(np.mean(known[size])) for size in sizes]
    return math.exp(float(np.interp(inside, sizes, times)) + size - inside)


def constant_bandwidth(row: MeasuredCollective, fitted: Sequence[MeasuredCollective]) -> float:
    """Return the time at the median bus bandwidth of the fitted calls."""
    rates = [_wire_bytes(other) / other.seconds for other in _alike(row, fitted)]
    return _wire_bytes(row) / float(np.median(rates))


def _alike(row: MeasuredCollective, fitted: Sequence[MeasuredCollective]) -> list[MeasuredCollective]:
    def key(measured: MeasuredCollective) -> tuple[str, str, str]:
        return measured.system, measured.library, measured.operation

    alike = [other for other in fitted if key(other) == key(row)]
    if not alike:
        message = (
            f"row {row.row_number}: no row of {row.operation} on {row.system} with {row.library} that may be fitted"
        )
        raise TableError(message)
    return alike


def collective_report(file: Path) -> RowReport:
    """Score a file of measured collectives."""
    table = read_collectives(file)
    if table is None:
        message = f"{file}: must be a table of measured collectives; its columns are those of none"
        raise TableError(message)
    return report_of(table)


def report_of(table: CollectiveMeasurements) -> RowReport:
    """Score a table of measured collectives on the rows that no constant was fitted to."""
    fitted, scored = ([row for row in table.rows if row.is_fitted is is_fitted] for is_fitted in (True, False))
    if not scored:
        message = f"{table.name}: no row is left to score: constants were fitted to all of them"
        raise TableError(message)
    predictions = {
        PERFMODEL: predicted_times(scored),
        NEAREST: np.array([nearest_scaled(row, fitted) for row in scored]),
        INTERPOLATED: np.array([interpolated(row, fitted) for row in scored]),
        CONSTANT: np.array([constant_bandwidth(row, fitted) for row in scored]),
    }
    measured, counts = [row.seconds for row in scored], _constant_counts(table)
    rows = [
        {
            "system": row.system,
            "library": row.library,
            "operation": row.operation,
            "worker_count": row.worker_count,
            "size_bytes": row.size_bytes,
            "measured_s": row.seconds,
            "predicted_s": float(predicted_s),
            "constant_bandwidth_s": float(constant_s),
        }
        for row, predicted_s, constant_s in zip(scored, predictions[PERFMODEL], predictions[CONSTANT], strict=True)
    ]
    left_out = {f"rows {reason}": count for reason, count in table.left_out.items()}
    reasons = {"rows that constants were fitted to": len(fitted), **left_out}
    return RowReport(
        table=table.name,
        rows=row_table(rows, title=f"{table.name}: calls that no constant was fitted to"),
        parts=tuple(
            score
            for subset, part, of_part in _parts(scored)
            for score in compared(subset, predictions, measured=measured, fitted=counts, part=part, rows=of_part)
        ),
        not_scored="; ".join(f"{count} {reason}" for reason, count in reasons.items()),
    )


def _parts(scored: Sequence[MeasuredCollective]) -> list[tuple[str, str, NDArray[np.bool_]]]:
    """Return names of system and part with the rows that belong there."""
    pairs = [f"{row.system}, {row.library}" for row in scored]
    operations = [row.operation for row in scored]
    counts = [row.worker_count for row in scored]
    parts = [(ALL_SYSTEMS, EVERY_ROW, np.ones(len(scored), dtype=bool))]
    if len(set(pairs)) > 1:
        parts += [(name, EVERY_ROW, np.array(pairs) == name) for name in sorted(set(pairs))]
    if len(set(operations)) > 1:
        parts += [(ALL_SYSTEMS, name, np.array(operations) == name) for name in sorted(set(operations))]
    parts += [(ALL_SYSTEMS, f"{count} devices", np.array(counts) == count) for count in sorted(set(counts))]
    return parts


def _constant_counts(table: CollectiveMeasurements) -> dict[str, int]:
    """Count the numbers that each model takes from the fitted rows."""
    libraries = {row.library for row in table.rows}
    named = 0
    for name in libraries:
        library = load_collective_library(name)
        numbers = [
            f"protocol.{protocol}.{key}"
            for protocol, row in library.protocol.items()
            if not row.algorithms
            for key in row.constants
        ]
        sources = [library.source_of(number) for number in numbers]
        named += sum(source is not None and source.provenance == "fitted" for source in sources)
    kinds = {(row.system, row.library, row.operation) for row in table.rows}
    known = sum(row.is_fitted for row in table.rows)
    return {PERFMODEL: named, NEAREST: known, INTERPOLATED: known, CONSTANT: len(kinds)}
