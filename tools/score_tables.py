"""Every score on every table: those that come with perfmodel, and those of a folder that do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from ablation import NETWORK_TERMS, NOTHING, ablation, network_ablation
from board_records import (
    KERNELS,
    KINDS,
    STEPS,
    SYSTEMS,
    BoardScore,
    Collected,
    FactorRange,
    PairOrder,
    Picture,
    RatioRange,
    Scoreboard,
    ScoredTable,
    TermScore,
    WorstCell,
)
from perfmodel import measurements
from perfmodel.errors import CalibrationError, MissingPackageError, PerfmodelError, TableError, nearest_hint
from perfmodel.fitting.kernel_boards import boards_of, dtype_of_text, operations_of
from perfmodel.hardware.library import device_of_text
from perfmodel.measurements.kernel_tables import DataFolder, KernelMeasurements, content_hash, read_collectives
from perfmodel.measurements.reading import CsvTable, table_error
from perfmodel.measurements.table import SET_ASIDE, SUBSETS
from perfmodel.prediction.certainty.basis import timed_prediction
from perfmodel.presentation.quantities import bytes_text, percent_text, seconds_text
from perfmodel.validation.protocols.board import protocol_jobs, protocol_reports, reports_apart
from perfmodel.validation.protocols.cells import (
    MeasuredCell,
    PredictedCell,
    Progress,
    prepare_cells,
    progress_of_part,
)
from perfmodel.validation.protocols.protocols import ALL_FITTED, NOTHING_FITTED
from perfmodel.validation.reports.clusters import HELD_OUT
from perfmodel.validation.reports.own_tables import COLLECTIVES, NETWORKS, OWN_TABLES, OwnTable, tables_of_file
from perfmodel.validation.reports.speedup import COLUMNS, read_system_table
from perfmodel.validation.scores.table_report import PERFMODEL, PartScore
from perfmodel.validation.validate import checked_table
from score_kernels import AS_SHIPPED, FIVE_FOLD, kernel_scores

if TYPE_CHECKING:
    from perfmodel.measurements.table import MeasurementTable, Run
    from perfmodel.prediction.prediction import Prediction
    from perfmodel.validation.scores.interval_coverage import IntervalRow
    from perfmodel.validation.scores.validation_report import ValidationReport


COUNT: Final = 10
"""Cells that are explained. [1]"""

LARGEST: Final = 3
"""Parts and layers that are named. [1]"""

PLAUSIBLE: Final = 4.0
"""Largest factor on one part that counts as a possible explanation. [1]"""

SISTERS: Final = (
    ("other networks with this framework on this device", ("framework", "device", "threads")),
    ("other frameworks on this network and device", ("network", "device", "threads")),
    ("the same network and framework elsewhere", ("network", "framework")),
)
"""Name of each set of sister cells, and the fields that they share with a cell."""


def worst_cells(
    table: MeasurementTable,
    cells: Sequence[MeasuredCell],
    predicted: Sequence[PredictedCell],
    *,
    subset: str,
    protocol: str,
) -> tuple[WorstCell, ...]:
    """Return the cells with the largest |ln ratio|, each with an explanation."""
    ranked = sorted(zip(cells, predicted, strict=True), key=lambda pair: -abs(math.log(pair[1].ratio)))
    return tuple(
        WorstCell(
            table=table.key,
            subset=subset,
            protocol=protocol,
            cell=_name(one),
            measured_s=one.measured_s,
            predicted_s=one.predicted_s,
            ratio=one.ratio,
            explanation=" ".join(_sentences(table, cell, one, predicted)),
        )
        for cell, one in ranked[:COUNT]
    )


def _name(cell: PredictedCell) -> str:
    threads = "" if cell.threads is None else f", {cell.threads} thread{'s' if cell.threads > 1 else ''}"
    return f"{cell.network}, {cell.framework}, {cell.device}{threads}"


def _sentences(
    table: MeasurementTable, cell: MeasuredCell, one: PredictedCell, everything: Sequence[PredictedCell]
) -> list[str]:
    prediction = timed_prediction(cell.prepared)
    parts = [
        _parts_sentence(prediction),
        _layers_sentence(prediction),
        _gap_sentence(prediction, measured_s=one.measured_s),
        _sisters_sentence(one, everything),
        _run_sentence(table.run_of(cell.row), batch_size=cell.row.batch_size, on_cpu=cell.row.threads is not None),
        f"The table notes: {cell.row.note}" if cell.row.note else "",
        *(f"Remark: {remark}." for remark in prediction.remarks),
    ]
    return [part for part in parts if part]


def _parts_sentence(prediction: Prediction) -> str:
    whole = prediction.step_s
    largest = sorted(prediction.breakdown.items(), key=lambda part: -part[1])[:LARGEST]
    texts = [
        f"{name.removesuffix('_s').replace('_', ' ')} {percent_text(value / whole)}" for name, value in largest if value
    ]
    return f"Predicted {seconds_text(whole)}: {', '.join(texts)}; bound by {prediction.bottleneck.replace('_', ' ')}."


def _layers_sentence(prediction: Prediction) -> str:
    of_layer: dict[tuple[str, str], float] = {}
    kernels = 0.0
    for row in prediction.layers:
        key = (row.layer, row.kernel)
        of_layer[key] = of_layer.get(key, 0.0) + row.seconds
        kernels += row.seconds
    largest = sorted(of_layer.items(), key=lambda entry: -entry[1])[:LARGEST]
    texts = [f"{layer} ({kernel}) {percent_text(seconds / kernels)}" for (layer, kernel), seconds in largest]
    return f"Largest of its kernels: {', '.join(texts)}."


def _gap_sentence(prediction: Prediction, *, measured_s: float) -> str:
    """Name each single part that would explain the whole error, with the factor."""
    gap_s = measured_s - prediction.step_s
    factors = {
        name: (value + gap_s) / value
        for name, value in prediction.breakdown.items()
        if value > 0 and 1 / PLAUSIBLE <= (value + gap_s) / value <= PLAUSIBLE
    }
    if not factors:
        return f"No part alone explains the error: none comes within a factor of {PLAUSIBLE:g} of closing the gap."
    texts = [f"{name.removesuffix('_s').replace('_', ' ')} {factor:.2g}" for name, factor in sorted(factors.items())]
    return f"It would be right if one part alone took so many times as long: {', '.join(texts)}."


def _sisters_sentence(one: PredictedCell, everything: Sequence[PredictedCell]) -> str:
    texts = []
    for name, shared in SISTERS:
        sisters = [
            other
            for other in everything
            if other is not one and all(getattr(other, field) == getattr(one, field) for field in shared)
        ]
        if sisters:
            bias = math.exp(fmean(math.log(other.ratio) for other in sisters))
            texts.append(f"{name} {bias:.2f} ({len(sisters)})")
    return f"Predicted over measured of its sisters, geometric mean: {'; '.join(texts)}." if texts else ""


def _run_sentence(run: Run, *, batch_size: int, on_cpu: bool) -> str:
    options = ", ".join(f"{name}={value}" for name, value in run.builder_options.items())
    fed = sum(item.bytes_per_sample for item in run.feed) * batch_size
    facts = [
        f"{run.builder}({options})",
        f"batch of {batch_size}",
        run.phase.replace("_", " and "),
        f"optimizer {run.optimizer}" if run.optimizer != "none" else "no update",
        f"feeds {bytes_text(fed)} a step ({', '.join(sorted({item.origin for item in run.feed}))})"
        if fed
        else "feeds nothing",
    ]
    extra = [
        "gradient of the input too" if run.input_gradient else "",
        f"gradients clipped {run.clipping.replace('_', ' ')}" if run.clipping != "none" else "",
        "subnormal operands" if on_cpu and run.subnormal_products_per_sample else "",
    ]
    return f"What ran: {'; '.join([*facts, *filter(None, extra)])}."


Protocols = Mapping[str, Sequence[str]]
"""Subset -> names of protocols."""

PICTURED: Final = {
    "gpu": (NOTHING_FITTED, "leave_one_device_out", "leave_one_family_out"),
    "cpu": (NOTHING_FITTED, "leave_one_thread_count_out"),
    "cpu_oversubscribed": (NOTHING_FITTED,),
}

FEWEST_POINTS: Final = 5
"""Fewest cells of a plot. [1]"""


def score_steps(
    table: MeasurementTable,
    entry: ScoredTable,
    collected: Collected,
    *,
    protocols: Protocols | None,
    progress: Progress | None,
) -> None:
    """Score a table of steps, and describe its worst cells."""
    names = (
        None
        if protocols is None
        else tuple(dict.fromkeys(name for of_subset in protocols.values() for name in of_subset))
    )
    jobs, senseless = protocol_jobs(table, protocols=names)
    if protocols is not None:
        jobs = [(subset, protocol) for subset, protocol in jobs if protocol in protocols.get(subset, ())]
    left = ", ".join(dict.fromkeys(protocol for _, protocol in senseless))
    unfit = f"Nothing is left to fit under {left}." if left else ""
    collected.add(replace(entry, not_scored=" ".join(filter(None, (entry.not_scored, unfit)))))
    for subset, protocol, report in protocol_reports(table, jobs, progress=progress):
        for label, part in reports_apart(report, protocol):
            collected.add(*_scores(part, table=table.key, protocol=label))
        collected.say(f"{table.key}, {subset}, {protocol}: MAPE {report.mape:.1f} %")
        if protocol in PICTURED[subset] and len(report.cells) >= FEWEST_POINTS:
            title = f"{report.table}, {subset}, {report.protocol}: MAPE {report.mape:.1f} %"
            name = f"{report.table}_{subset}_{report.protocol}"
            collected.pictures.append(Picture(name=name, shown={**report.shown(), "title": title}))
        if protocol == NOTHING_FITTED:
            _describe_unfitted(table, subset, report, collected)
        if protocol == ALL_FITTED:
            collected.add(*(FactorRange(table=table.key, **asdict(row)) for row in report.factors))


def _scores(report: ValidationReport, *, table: str, protocol: str) -> Iterator[BoardScore]:
    low, high = report.bootstrap
    of_perfmodel: dict[str, Any] = {"mape_low": low, "mape_high": high, **_interval_figures(report)}
    for row in report.scoreboard:
        extra = of_perfmodel if row.model == PERFMODEL else {}
        yield BoardScore(table=table, protocol=protocol, **asdict(row), **extra)


def _interval_figures(report: ValidationReport) -> dict[str, float]:
    """Return the scores of a report's intervals; nothing where none was made."""
    rows = [row for row in report.intervals if row.intervals == PERFMODEL]
    constant = [row.log_score for row in report.intervals if row.intervals != PERFMODEL]
    if not rows or not math.isfinite(rows[0].coverage_percent):
        return {}
    return _interval_scores(rows[0]) | ({"constant_interval_score": min(constant)} if constant else {})


def _interval_scores(row: IntervalRow) -> dict[str, float]:
    return {
        "interval_coverage_percent": row.coverage_percent,
        "interval_width": row.median_ratio,
        "interval_score": row.log_score,
    }


def _describe_unfitted(table: MeasurementTable, subset: str, report: ValidationReport, collected: Collected) -> None:
    """Add the worst cells, ratios and order of frameworks of predictions without a fit."""
    cells = prepare_cells(table, table.subset(subset))  # type: ignore[arg-type]
    collected.add(*worst_cells(table, cells, report.cells, subset=subset, protocol=NOTHING_FITTED))
    ranges: dict[tuple[str, str], list[float]] = {}
    for cell in report.cells:
        ranges.setdefault((cell.network, cell.framework), []).append(cell.ratio)
    for (network, framework), values in ranges.items():
        ends = {"lowest": min(values), "highest": max(values)}
        collected.add(RatioRange(table=table.key, subset=subset, network=network, framework=framework, **ends))
    share, pairs = report.rank_order
    errors = [100 * abs(cell.ratio - 1) for cell in report.cells if not cell.is_recurrent]
    collected.add(
        PairOrder(
            table=table.key,
            subset=subset,
            right_percent=100 * share,
            pairs=pairs,
            feedforward_mape=fmean(errors) if errors else None,
            feedforward_cells=len(errors),
        )
    )


ONE_FITTED: Final = "one_row_fitted"
"""Protocol: some rows fix facts that the table does not state; the others are scored. [-]"""


def collect_own(table: OwnTable, collected: Collected, *, is_shipped: bool, progress: Progress | None = None) -> None:
    """Score a table with its own scoring, and add the records."""
    report = table.report(progress)
    files = filter(Path.is_file, (table.file, table.file.with_suffix(".toml")))
    collected.add(
        ScoredTable(
            name=table.name,
            kind=table.kind,
            is_shipped=is_shipped,
            sha256=content_hash(*files),
            rows=report.parts[0].score.cells if report.parts else 0,
            not_scored=report.not_scored,
        )
    )
    unlike = HELD_OUT if table.kind == COLLECTIVES else ONE_FITTED
    fitted = any(part.score.fitted for part in report.parts if part.score.model == PERFMODEL)
    protocol = unlike if fitted else NOTHING_FITTED
    collect_parts(table.name, [replace(part, protocol=part.protocol or protocol) for part in report.parts], collected)


def collect_parts(table: str, parts: Sequence[PartScore], collected: Collected) -> None:
    """Add the scores of a table on parts of its rows."""
    for part in parts:
        about: dict[str, Any] = {"table": table, "part": part.part, "protocol": part.protocol, "note": part.note}
        if part.intervals is not None:
            about |= _interval_scores(part.intervals)
        collected.add(BoardScore(**about, **asdict(part.score)))
    collected.say(f"{table}: {len(parts)} scores")


QUICK: Final = {
    "gpu": (NOTHING_FITTED, ALL_FITTED, "leave_one_device_out", "leave_one_family_out"),
    "cpu": (NOTHING_FITTED, ALL_FITTED),
    "cpu_oversubscribed": (NOTHING_FITTED, ALL_FITTED),
}
"""Subset -> protocols that take about a minute together: what continuous integration computes again."""

FITTED: Final = ("shi2016", "wuensche2018")
"""Tables that are fitted under protocols; nothing is ever fitted on the others. [-]"""

UNFITTED: Final[Protocols] = dict.fromkeys(SUBSETS, (NOTHING_FITTED,))
"""Protocols of the other tables, by subset."""

ABLATED: Final = {
    "gpu": (NOTHING_FITTED, "leave_one_device_out"),
    "cpu": (NOTHING_FITTED, "leave_one_thread_count_out"),
    "cpu_oversubscribed": (NOTHING_FITTED,),
}
"""Subset -> protocols whose terms are left out one by one."""


def score_shipped(collected: Collected, *, protocols: Protocols | None, progress: Progress | None = None) -> None:
    """Score every table of steps that comes with perfmodel."""
    names = measurements.names()
    for done, name in enumerate(names):
        progress_of_table = progress_of_part(progress, done, len(names))
        table = checked_table(name)
        assert table.path is not None
        entry = ScoredTable(
            name=name,
            kind=STEPS,
            is_shipped=True,
            sha256=content_hash(table.path, table.path.with_suffix(".toml")),
            rows=sum(row.status == "measured" for row in table.rows),
            not_scored=_set_aside_text(table),
        )
        of_table = protocols if name in FITTED else UNFITTED
        try:
            score_steps(table, entry, collected, protocols=of_table, progress=progress_of_table)
        except CalibrationError as error:
            collected.forget(name)
            collected.add(replace(entry, rows=0, not_scored=f"all of it: {error}"))


def score_shipped_own(collected: Collected, *, kinds: Collection[str] = KINDS) -> None:
    """Score every shipped table of these kinds that has its own scoring."""
    for table in OWN_TABLES.values():
        if table.is_shipped and table.kind in kinds:
            collect_own(table, collected, is_shipped=True)


def _set_aside_text(table: MeasurementTable) -> str:
    aside = [row for row in table.rows if row.status in SET_ASIDE]
    missing = sum(row.status == "missing" for row in table.rows)
    texts = [f"{row.network}, {row.framework}, {row.device}: {row.status}. {row.note}" for row in aside]
    return " ".join([*texts, f"{missing} missing." if missing else ""]).strip()


def score_terms(collected: Collected, *, table: str = "shi2016", progress: Progress | None = None) -> None:
    """Score the headline protocols with all physical terms, then without each of them."""
    for done, (subset, protocols) in enumerate(ABLATED.items()):
        progress_of_term = progress_of_part(progress, done, len(ABLATED))
        rows = ablation(table, protocols=protocols, only=subset, progress=progress_of_term)
        collected.add(*(TermScore(table=table, **asdict(row)) for row in rows))
        collected.say(f"{table}, {subset}: {len(rows) - 1} terms left out, one by one")


def score_network_terms(data: Path, collected: Collected) -> None:
    """Score the tables of networks with all terms, then without each; a term that a part does not have is left out."""
    for table in OWN_TABLES.values():
        if table.kind == NETWORKS and (data / table.file).is_file():
            rows = network_ablation(data / table.file)
            collected.add(
                *(
                    TermScore(table=table.name, **asdict(row))
                    for row in rows
                    if row.without == NOTHING or abs(row.change) >= LEAST_CHANGE
                )
            )
            collected.say(f"{table.name}: {len(NETWORK_TERMS) - 1} terms left out, one by one")


LEAST_CHANGE: Final = 0.05
"""Least change of the log error at which a term counts for a table of networks. [percentage points]"""

PICTURED_KERNELS: Final = (AS_SHIPPED, FIVE_FOLD)


def score_folder(
    folder: DataFolder, collected: Collected, *, kinds: Collection[str] = KINDS, progress: Progress | None = None
) -> None:
    """Score the tables of a folder."""
    things: list[KernelMeasurements | Path] = [*folder.kernels, *folder.systems]
    for done, thing in enumerate(things):
        progress_of_thing = progress_of_part(progress, done, len(things))
        if not isinstance(thing, KernelMeasurements):
            _score_system(thing, collected, kinds=kinds, progress=progress_of_thing)
        elif KERNELS in kinds:
            _score_kernels(thing, collected, progress=progress_of_thing)


def score_products(data: Path, collected: Collected, *, kinds: Collection[str]) -> None:
    """Score the tables of fastest products, in the folder of kernel tables, and those of language models."""
    for table in OWN_TABLES.values():
        apart = not table.is_shipped and table.file.parent.name in ("kernels", "llm")
        if apart and table.kind in kinds and (data / table.file).is_file():
            collect_own(replace(table, file=(data / table.file).resolve()), collected, is_shipped=False)


def _score_kernels(table: KernelMeasurements, collected: Collected, *, progress: Progress) -> None:
    scored = kernel_scores(table, progress=progress)
    not_scored = [f"{count} rows of another data type ({precision})" for precision, count in scored.left_out.items()]
    not_scored += [f"{table.skipped} lines of a log that time nothing"] if table.skipped else []
    collected.add(
        ScoredTable(
            name=table.name,
            kind=KERNELS,
            is_shipped=False,
            sha256=table.sha256,
            rows=len(table.rows) - sum(scored.left_out.values()),
            not_scored="; ".join(not_scored),
        )
    )
    collect_parts(table.name, scored.scores, collected)
    for protocol in [protocol for protocol in scored.points if protocol in PICTURED_KERNELS]:
        predicted_s, measured_s, boards = zip(*scored.points[protocol], strict=True)
        shown = {"predicted": predicted_s, "measured": measured_s, "groups": boards, "quantity": "time of a call"}
        shown["title"] = f"{table.name}, {protocol}"
        collected.pictures.append(Picture(name=f"{table.name}_{protocol}", shown=shown))


def _score_system(path: Path, collected: Collected, *, kinds: Collection[str], progress: Progress) -> None:
    for measured in tables_of_file(path):
        if measured.kind in kinds:
            try:
                collect_own(measured, collected, is_shipped=False, progress=progress)
            except MissingPackageError as error:
                collected.say(f"{measured.name} stays as it was: {error}")
    table = None if SYSTEMS not in kinds or read_collectives(path) is not None else read_system_table(path)
    if table is None:
        progress(1, 1)
        return
    several = len(table.several)
    entry = ScoredTable(
        name=path.stem,
        kind=SYSTEMS,
        is_shipped=False,
        sha256=content_hash(path),
        rows=len(table.measurements.rows),
        not_scored=f"{several} rows of several devices, which are scored by their speed-up" if several else "",
    )
    protocols = {"gpu": (NOTHING_FITTED,)}
    score_steps(checked_table(table.measurements), entry, collected, protocols=protocols, progress=progress)


def check_hashes(folder: DataFolder, kept: Scoreboard) -> None:
    """Refuse tables whose content is not that of committed results of the same name."""
    known = {table.name: table.sha256 for table in kept.tables if not table.is_shipped}
    present = {table.name: table.sha256 for table in folder.kernels}
    present |= {path.stem: content_hash(path) for path in folder.systems}
    wrong = [name for name, digest in present.items() if known.get(name, digest) != digest]
    if wrong:
        lines = "; ".join(f"{name}: SHA-256 {present[name][:16]} where {known[name][:16]} was scored" for name in wrong)
        message = f"tables are not those of the committed results: {lines}; --new-tables scores them all the same"
        raise TableError(message)


MOST_MISSING: Final = len(COLUMNS) // 3
"""Columns that a table of steps on systems may lack and still be meant as one. [1]"""


def check_folder(folder: DataFolder) -> None:
    """Refuse a folder whose tables cannot be scored as they are.

    Boards, libraries and operations of measured kernels are resolved, and tables of systems are read.
    """
    for table in folder.kernels:
        _check_kernels(table)
    for path in folder.systems:
        _check_system(path)


def _check_kernels(table: KernelMeasurements) -> None:
    path = Path("kernels") / f"{table.name}.csv"
    faults: list[str] = []
    rows = [row for row in table.rows if dtype_of_text(row.precision, kind=table.format.name) is not None]
    for row in {row.device: row for row in reversed(rows)}.values():
        place = f"row {row.row_number}, column {table.format.device}"
        faults += _faults(partial(device_of_text, row.device), place=place)
    for row in rows:
        faults += _faults(partial(operations_of, row, kind=table.format.name), place=f"row {row.row_number}")
    if not faults:
        faults += _faults(partial(boards_of, table), place="")
    if faults:
        raise table_error(path, faults)


def _check_system(path: Path) -> None:
    header = CsvTable(path).header
    missing = [name for name in COLUMNS if name not in header]
    if len(missing) > MOST_MISSING:
        return
    if missing:
        others = [name for name in header if name not in COLUMNS]
        hints = [f"{name}{nearest_hint(name, others)}" for name in missing]
        raise table_error(path, [f"row 1: a table of steps on systems lacks column {', '.join(hints)}"])
    table = read_system_table(path)
    if table is not None:
        checked_table(table.measurements)


def _faults(call: Callable[[], object], *, place: str) -> list[str]:
    """Return the error of a call as a fault at a place; nothing where the call succeeds."""
    try:
        call()
    except PerfmodelError as error:
        return [f"{place}: {error}" if place else str(error)]
    return []
