"""validate(): a measurement table with its predictions, under a protocol that defines the rows of each fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from perfmodel import measurements, zoo
from perfmodel.errors import ArgumentError, CalibrationError, TableError, UnknownNameError
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_device, load_system
from perfmodel.hardware.cpu import Cpu
from perfmodel.hardware.source import ESTIMATE, SpecFile
from perfmodel.hardware.system import System
from perfmodel.measurements.description import Hardware
from perfmodel.measurements.reading import check_names
from perfmodel.measurements.table import SUBSETS, MeasurementTable, Subset
from perfmodel.prediction.arguments.verbs import gated
from perfmodel.validation.protocols import baselines, protocols
from perfmodel.validation.protocols.cells import MeasuredCell, Progress, predict_cell, prepare_cells, progress_of_part
from perfmodel.validation.protocols.protocols import Fold, HeldOut
from perfmodel.validation.reports.own_tables import own_table, refuse_beside
from perfmodel.validation.scores.interval_coverage import with_intervals
from perfmodel.validation.scores.validation_report import SubsetCells, ValidationReport

if TYPE_CHECKING:
    import pandas as pd

    from perfmodel.validation.protocols.baselines import Baseline
    from perfmodel.validation.scores.table_report import RowReport


IDENTITY_FIELDS = frozenset({"sockets.count", "memory.capacity_gib"})
"""Fields that identify the machine without affecting its speed; only the table states them."""


def marks_of(table: MeasurementTable) -> tuple[str, ...]:
    """Return the texts that mark a source as the table or its laboratory."""
    listed = tuple(mark.strip().lower() for mark in table.source.get("marks", "").split(";") if mark.strip())
    own_key = (table.key.lower(),) if table.key in measurements.names() else ()
    return (*own_key, *listed)


def sources_from(table: MeasurementTable, specs: Iterable[SpecFile]) -> Iterator[str]:
    """Yield a line for every source of a file that names the table or its laboratory."""
    marks = marks_of(table)
    for spec in specs:
        for source in spec.source:
            text = _plain(f"{source.title} {source.url or ''} {source.note or ''}")
            cited = [mark for mark in marks if _mentions(text, mark)]
            fields = [field for field in source.fields if field not in IDENTITY_FIELDS]
            if cited and fields:
                yield f"{spec.name}: {', '.join(fields)} cite {cited[0]!r}"


def _plain(text: str) -> str:
    return re.sub(r"[-\s]+", " ", text.lower())


def _mentions(text: str, mark: str) -> bool:
    # an identifier of a preprint may carry its version: 1608.07249v1
    return re.search(rf"(?<!\w){re.escape(_plain(mark))}(?:v\d+)?(?!\w)", text) is not None


def estimated_fields(specs: Iterable[SpecFile]) -> tuple[str, ...]:
    """Return the fields of the files that are estimates; they are shown with the score."""
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
    """Raise if a file that a prediction used cites the table it is scored on."""
    faults = list(sources_from(table, specs))
    if faults:
        message = f"constants were taken from the table they are scored on ({table.key}): {'; '.join(faults)}"
        raise CalibrationError(message)


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


def hold_out(
    table: MeasurementTable,
    *,
    subset: Subset,
    protocol: str,
    split: Callable[[Sequence[MeasuredCell]], list[Fold]] | None = None,
    progress: Progress | None = None,
) -> HeldOut:
    """Predict the held-out cells of a subset under a protocol."""
    fitted_too = protocols.PROTOCOLS[protocol].fits_too if split is None and protocol in protocols.PROTOCOLS else ()
    rows = [row for name in (subset, *fitted_too) for row in table.subset(name, set_aside=True)]
    cells = prepare_cells(table, rows)
    return protocols.predict_subset(cells, subset=subset, protocol=protocol, split=split, progress=progress)


def _baselines(held: HeldOut, *, subset: str, table: MeasurementTable, sees_all_cells: bool) -> tuple[Baseline, ...]:
    """Predict by the naive rules in the same folds; if nothing is held out they may use every cell."""
    rules = baselines.RULES[subset]
    if subset == "cpu_oversubscribed":
        below = [predict_cell(cell)[0] for cell in prepare_cells(table, table.subset("cpu"))]
        rules = (*rules, baselines.all_cores_rule(below, table.physical_cores))
    scored = [[cell for cell in outcome.predicted if cell.status == "measured"] for outcome in held.outcomes]
    if sees_all_cells:
        trained = [[cell for cells in scored for cell in cells]]
    else:
        plain = [predict_cell(cell)[0] for cell in held.cells]  # the rules need their counts and peaks
        trained = [[plain[index] for index in outcome.fold.trained] for outcome in held.outcomes]
    return baselines.in_folds(rules, trained, scored)


def checked_table(table: str | Path | MeasurementTable | pd.DataFrame) -> MeasurementTable:
    """Return a table whose rows name known things."""
    if isinstance(table, MeasurementTable):
        loaded = table
    elif isinstance(table, str | Path):
        loaded = measurements.load(table)
    else:
        loaded = measurements.from_frame(table)
    _check_rows(loaded)
    return _with_cores(loaded)


def _with_cores(table: MeasurementTable) -> MeasurementTable:
    """Return a table that states the cores of each CPU, from the CPU's file if the table does not state them."""
    stated = {machine.device for machine in table.hardware}
    machines = []
    for name in sorted({row.device for row in table.rows if row.threads is not None} - stated):
        cpu = load_system(name) if name in spec_files.names("systems") else load_device(name)
        if isinstance(cpu, System | Cpu):
            machines.append(Hardware(device=name, kind="cpu", physical_cores=cpu.core_count, note="its spec file"))
    return replace(table, hardware=(*table.hardware, *machines))


def nothing_to_score(table: MeasurementTable, only: str | None) -> TableError:
    """Return the error for a table without a measured cell of a subset."""
    having = [repr(subset) for subset in SUBSETS if table.subset(subset)]
    allowed = f"; pass only={' or '.join(having)}" if having else ""
    return TableError(f"{table.key}: no measured cell has only={only!r}{allowed}")


def scored_cells(
    table: str | Path | MeasurementTable | pd.DataFrame, subset: str
) -> tuple[MeasurementTable, list[MeasuredCell]]:
    """Return a table with the cells of a subset that are scored and fitted; raise TableError if there are none."""
    loaded = checked_table(table)
    cells = [cell for cell in prepare_cells(loaded, loaded.subset(subset)) if cell.is_scored]  # type: ignore[arg-type]
    if not cells:
        raise nothing_to_score(loaded, subset)
    return loaded, cells


def _suited(subsets: Sequence[Subset], *, protocol: str) -> list[Subset]:
    """Return the subsets that a protocol can score; raise ArgumentError if there is none."""
    only = protocols.PROTOCOLS[protocol].subsets if protocol in protocols.PROTOCOLS else ()
    suited = [subset for subset in subsets if not only or subset in only]
    if not suited:
        raise ArgumentError("protocol", protocol, f"a protocol for these cells; this one is for {', '.join(only)}")
    return suited


def validate_steps(
    table: str | Path | MeasurementTable | pd.DataFrame,
    *,
    protocol: str = protocols.NOTHING_FITTED,
    only: str | None = None,
    fit_share: float | None = None,
    progress: Progress | None = None,
) -> ValidationReport:
    """Predict every measured cell of a table of steps on one device, and score it with naive baselines."""
    protocols.check_protocol(protocol)
    if fit_share is not None:
        protocols.check_share(fit_share)
        if protocol != protocols.NOTHING_FITTED:
            raise ArgumentError("fit_share", fit_share, f"None with protocol={protocol!r}; give only one of the two")
    if only is not None and only not in SUBSETS:
        raise UnknownNameError(kind="subset", name=only, known=SUBSETS)
    loaded = checked_table(table)
    wanted = [subset for subset in SUBSETS if only in (None, subset) and loaded.subset(subset, set_aside=True)]
    if not any(loaded.subset(subset) for subset in wanted):
        raise nothing_to_score(loaded, only)
    wanted = _suited(wanted, protocol=protocol)
    split = None if fit_share is None else partial(protocols.part_of_rows, share=fit_share)
    name = protocol if fit_share is None else f"fitted on {fit_share:.0%} of the rows"
    of_subsets = []
    sources: dict[int, SpecFile] = {}
    for place, subset in enumerate(wanted):
        progress_of_subset = progress_of_part(progress, place, len(wanted))
        held_out = hold_out(loaded, subset=subset, protocol=protocol, split=split, progress=progress_of_subset)
        sees_all_cells = fit_share is None and protocol in (protocols.NOTHING_FITTED, protocols.ALL_FITTED)
        outcomes, ratios = with_intervals(held_out, subset=subset, protocol=name, table=loaded.key)
        rules = _baselines(held_out, subset=subset, table=loaded, sees_all_cells=sees_all_cells)
        of_subsets.append(SubsetCells.of(subset, outcomes, baselines=rules, ratios=ratios))
        sources |= {id(spec): spec for spec in held_out.sources}
    require_independence(loaded, sources.values())
    return ValidationReport(
        table=loaded.key,
        protocol=name,
        of_subsets=tuple(of_subsets),
        estimates=estimated_fields(sources.values()),
    )


@gated
def validate(
    table: str | Path | MeasurementTable | pd.DataFrame = "shi2016",
    *,
    data: str | Path | None = None,
    protocol: str = protocols.NOTHING_FITTED,
    only: str | None = None,
    fit_share: float | None = None,
    progress: Progress | None = None,
) -> ValidationReport | RowReport:
    """Predict every measured cell of a table and score the predictions with naive baselines.

    Parameters
    ----------
    table : str, Path, MeasurementTable or DataFrame
        A table by its name, the path of a CSV in a documented format, a loaded table, or a frame with the columns of
        such a CSV. [-]
    data : str, Path or None
        Folder with the table, if it does not come with perfmodel. [-]
    protocol : str
        ``nothing_fitted``: shipped constants, none of which may come from this table or its laboratory;
        ``all_fitted``: fitted and scored on the same cells; the others hold out a cell, row, device, network, family,
        framework or thread count, or see a framework on one device only, and fit inside every fold. [-]
    only : str or None
        ``gpu``, ``cpu`` (threads up to the physical cores), ``cpu_oversubscribed``; None for all, each fitted and
        scored by itself. [-]
    fit_share : float or None
        Instead of a protocol: fit on this share of the rows, drawn with a fixed seed, and score the others. [1]
    progress : callable or None
        Called with the amount done and the total amount. [-]

    Returns
    -------
    ValidationReport or RowReport
        Scores, baselines in the same folds, cells, figure. Prints as a scoreboard. For a table of several devices, of
        collectives or of networks of a torch package: rows, and scores with its own naive rules; both have ``rows``,
        ``mape`` and ``to_dict()``.

    Raises
    ------
    UnknownNameError
        If the table, protocol or subset is unknown; suggests the nearest.
    ArgumentError
        If the protocol does not suit the cells, the share is not between 0 and 1, or both are given; if an argument
        has no effect on the table, or a folder is missing that it needs.
    TableError
        If there is no such file, a row is wrong, nothing is left to score, or the folder has no such table.
    CalibrationError
        If a constant that was used comes from the scored table, or a fold has nothing to fit.
    MissingPackageError
        If the table is of networks that a package defines which is not installed.

    Examples
    --------
    >>> import perfmodel as pm
    >>> report = pm.validate("paleo2017")
    >>> len(report.rows), round(report.mape, 1)
    (6, 5.2)
    """
    own_report = own_table(table, data) if isinstance(table, str | Path) else None
    if own_report is not None:
        is_set = {
            "protocol": protocol != protocols.NOTHING_FITTED,
            "only": only is not None,
            "fit_share": fit_share is not None,
        }
        refuse_beside(own_report, [name for name, is_given in is_set.items() if is_given])
        return own_report.report(progress)
    if data is not None:
        raise ArgumentError("data", str(data), "None with a table that needs no folder")
    return validate_steps(table, protocol=protocol, only=only, fit_share=fit_share, progress=progress)
