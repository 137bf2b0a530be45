"""validate(): a measurement table beside its predictions, under a protocol that says what was fitted on what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perfmodel import measurements, zoo
from perfmodel.errors import NotYetAvailableError, TableError, UnknownNameError
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_device, load_system
from perfmodel.hardware.cpu import Cpu
from perfmodel.measurements.checking import check_names
from perfmodel.measurements.table import SUBSETS, MeasuredRow, MeasurementTable
from perfmodel.validation import baselines, cpu_baselines
from perfmodel.validation.cells import PredictedCell, Progress, predict_cells
from perfmodel.validation.provenance import estimated_fields, require_independence
from perfmodel.validation.report import Report

if TYPE_CHECKING:
    from perfmodel.validation.baselines import Baseline

PALEO = "percent of peak by framework (Paleo), no LSTM"

PROTOCOLS = ("nothing_fitted",)
"""Protocols served; those that fit come with fitting."""

FITTING_PROTOCOLS = (
    "all_fitted",
    "leave_one_cell_out",
    "leave_one_row_out",
    "leave_one_device_out",
    "leave_one_network_out",
    "leave_one_family_out",
    "leave_one_framework_out",
    "leave_one_thread_count_out",
    "calibrated_on_one_device",
)


def _subset_by_row(table: MeasurementTable) -> dict[MeasuredRow, str]:
    return {row: subset for subset in SUBSETS for row in table.subset(subset, set_aside=True)}


def _paleo(cells: list[PredictedCell]) -> Baseline:
    """Return percent of peak on the cells that Paleo can express: it has no recurrent layer."""
    expressible = np.array([not cell.is_recurrent for cell in cells])
    kept = [cell for cell in cells if not cell.is_recurrent]
    predicted_s = np.full(len(cells), np.nan)
    if not kept:
        return baselines.Baseline(name=PALEO, predicted_s=predicted_s, parameter_count=0, trained_on="nothing")
    fitted = baselines.percent_of_peak(
        [cell.measured_s for cell in kept],
        flop_count=[cell.flop_count for cell in kept],
        peak_flop_per_s=[cell.peak_flop_per_s for cell in kept],
        frameworks=[cell.framework for cell in kept],
    )
    predicted_s[expressible] = fitted.predicted_s
    return baselines.Baseline(
        name=PALEO,
        predicted_s=predicted_s,
        parameter_count=fitted.parameter_count,
        trained_on=fitted.trained_on,
    )


def _rooflines(cells: list[PredictedCell]) -> tuple[Baseline, ...]:
    """Return the roofline with one efficiency, fitted for each of the two errors that are reported."""
    return tuple(
        baselines.roofline_one_efficiency(
            [cell.measured_s for cell in cells],
            flop_count=[cell.flop_count for cell in cells],
            moved_bytes=[cell.moved_bytes for cell in cells],
            peak_flop_per_s=[cell.peak_flop_per_s for cell in cells],
            bandwidth_bytes_per_s=[cell.bandwidth_bytes_per_s for cell in cells],
            fitted_for=error,
        )
        for error in ("mape", "log")
    )


def _gpu_baselines(cells: list[PredictedCell], table: MeasurementTable) -> tuple[Baseline, ...]:
    del table
    measured = [cell.measured_s for cell in cells]
    peak = [cell.peak_flop_per_s for cell in cells]
    bandwidth = [cell.bandwidth_bytes_per_s for cell in cells]
    return (
        *_rooflines(cells),
        _paleo(cells),
        baselines.device_scaling(
            measured,
            items=[(cell.framework, cell.network) for cell in cells],
            devices=[cell.device for cell in cells],
            peak_flop_per_s=peak,
            bandwidth_bytes_per_s=bandwidth,
        ),
    )


def _cpu_baselines(cells: list[PredictedCell], table: MeasurementTable) -> tuple[Baseline, ...]:
    del table
    measured = [cell.measured_s for cell in cells]
    threads = [cell.threads or 1 for cell in cells]
    other_cpu, same_count = cpu_baselines.same_as_other_cpu(
        measured,
        items=[(cell.framework, cell.network) for cell in cells],
        devices=[cell.device for cell in cells],
        threads=threads,
    )
    carried = baselines.Baseline(
        name="same time as the other CPU, same threads",
        predicted_s=np.where(same_count, other_cpu.predicted_s, np.nan),
        parameter_count=other_cpu.parameter_count,
        trained_on=other_cpu.trained_on,
    )
    return (
        *_rooflines(cells),
        _paleo(cells),
        carried,
        other_cpu,
        cpu_baselines.amdahl_log(measured, rows=[cell.row_key for cell in cells], threads=threads),
    )


def _oversubscribed_baselines(cells: list[PredictedCell], table: MeasurementTable) -> tuple[Baseline, ...]:
    """Naive rules for more threads than cores; they see the measured cells at or below the cores."""
    known = [row for row in table.subset("cpu") if row.step_s is not None]
    rule = cpu_baselines.same_as_all_cores(
        [cell.measured_s for cell in cells] + [row.step_s or 0.0 for row in known],
        items=[(cell.framework, cell.network) for cell in cells] + [(row.framework, row.network) for row in known],
        devices=[cell.device for cell in cells] + [row.device for row in known],
        threads=[cell.threads or 1 for cell in cells] + [row.threads or 1 for row in known],
        physical_cores=table.physical_cores,
    )
    return (
        baselines.Baseline(
            name=rule.name,
            predicted_s=rule.predicted_s[: len(cells)],
            parameter_count=rule.parameter_count,
            trained_on=rule.trained_on,
        ),
    )


BASELINES = {"gpu": _gpu_baselines, "cpu": _cpu_baselines, "cpu_oversubscribed": _oversubscribed_baselines}
"""Naive rules by subset."""


def _check_rows(table: MeasurementTable) -> None:
    """Raise one error that names every row with an unknown device, framework or network, or too many threads."""
    threads: dict[str, int | None] = {}
    for name in {row.device for row in table.rows}:
        if name in spec_files.names("systems"):
            threads[name] = load_system(name).thread_count
        elif name in spec_files.names("devices"):
            device = load_device(name)
            threads[name] = device.thread_count if isinstance(device, Cpu) else None
    known = dict.fromkeys((*spec_files.names("devices"), *spec_files.names("systems")))
    check_names(
        table,
        thread_counts=known | threads,
        frameworks=spec_files.names("frameworks"),
        builders=zoo.names(),
    )


def _check_protocol(protocol: str) -> None:
    if protocol in FITTING_PROTOCOLS:
        raise NotYetAvailableError("protocol", protocol, "nothing_fitted (no fitting yet)")
    if protocol not in PROTOCOLS:
        kind = "protocol"
        raise UnknownNameError(kind, protocol, (*PROTOCOLS, *FITTING_PROTOCOLS))


def validate(
    table: str | Path | MeasurementTable = "shi2016",
    *,
    protocol: str = "nothing_fitted",
    only: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Predict every measured cell of a table and score the predictions beside naive baselines.

    Parameters
    ----------
    table : str, Path or MeasurementTable
        A shipped table, the path of a CSV in the documented format, or a loaded table. [-]
    protocol : str
        ``nothing_fitted``: shipped constants, none of which may come from this table or its laboratory. [-]
    only : str or None
        ``gpu``, ``cpu`` (threads up to the physical cores), ``cpu_oversubscribed``; None for all, each scored by
        itself. [-]
    progress : callable or None
        Told how many cells are done, and of how many. [-]

    Returns
    -------
    Report
        Scores, baselines, cells, figure. Prints as a scoreboard.

    Raises
    ------
    UnknownNameError
        If the table, protocol or subset is unknown.
    TableError
        If a row of the table is wrong, or nothing is left to score.
    CalibrationError
        If a constant that was used comes from the scored table.
    """
    _check_protocol(protocol)
    if only is not None and only not in SUBSETS:
        kind = "subset"
        raise UnknownNameError(kind, only, SUBSETS)
    loaded = table if isinstance(table, MeasurementTable) else measurements.load(table)
    rows = loaded.subset(only, set_aside=True)
    if not rows:
        message = f"{loaded.key}: no measured cell is left to score (only={only!r})"
        raise TableError(message)
    _check_rows(loaded)
    predicted, sources = predict_cells(loaded, rows, progress=progress)
    require_independence(loaded, sources)
    subset_by_row = _subset_by_row(loaded)
    scored = [
        (cell, subset_by_row[row]) for cell, row in zip(predicted, rows, strict=True) if cell.status == "measured"
    ]
    scored.sort(key=lambda pair: SUBSETS.index(pair[1]))
    subsets = tuple(subset for subset in SUBSETS if any(of_cell == subset for _, of_cell in scored))
    return Report(
        table=loaded.key,
        protocol=protocol,
        cells=tuple(cell for cell, _ in scored),
        set_aside=tuple(cell for cell in predicted if cell.status != "measured"),
        subsets=subsets,
        subset_of_cell=tuple(subset for _, subset in scored),
        baselines={
            subset: BASELINES[subset]([cell for cell, of_cell in scored if of_cell == subset], loaded)
            for subset in subsets
        },
        parameter_count=0,
        estimates=estimated_fields(sources),
    )
