"""Find how wide prediction intervals must be, from residuals of rows that fits held out, and write what ships.

Run:  python benchmarks/fit_intervals.py [--processor gpu] [--dry-run] [--exchange FOLDER | --shared FOLDER]

Writes ``hardware_specs/intervals/<processor>_80.toml`` and, beside it, the residuals as a CSV. Every protocol is
fitted (or taken from the cache of fits), each held-out cell gets its exposure, and one spread is found for all of them.
What is printed is what ``perfmodel validate`` will print: each fold's intervals come from the residuals of other cells,
and stand beside constant ratios found from the same residuals.

With ``--shared`` only the quantile of training that devices share is found anew, from tables of language models, with
``--exchange`` only [exchange] of the GPU's file, from measured collectives; both need a folder of tables that do not
come with perfmodel. Without, both are kept as they are.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from perfmodel import measurements, zoo
from perfmodel.atomic_write import replacement_of
from perfmodel.cost.interval_width import SHARED, log_spread
from perfmodel.fitting.interval_scale_fit import LEVEL
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.interval_scale import (
    ConstantSpreads,
    ExchangeSpreads,
    FoundOn,
    IntervalScale,
    Seen,
    Unseen,
    load_interval_scale,
)
from perfmodel.hardware.source import Source
from perfmodel.hardware.spec_files import names, shipped_folder
from perfmodel.measurements.kernel_tables import read_collectives
from perfmodel.measurements.published_tables import load_published, load_sharded
from perfmodel.measurements.scaling_tables import ParallelRow, ParallelTable, load_parallel
from perfmodel.prediction.certainty.prediction_interval import (
    exposure_of,
    known_constants,
    parameters_of,
    uncertainty_of,
)
from perfmodel.prediction.device.factors import NO_FACTORS
from perfmodel.prediction.job.prepared import Prepared
from perfmodel.prediction.job.stage import TimedStep
from perfmodel.prediction.prediction import Prediction
from perfmodel.sync.placed import place
from perfmodel.sync.registry import collective
from perfmodel.validation.protocols.protocols import ALL_FITTED, NOTHING_FITTED, HeldOut
from perfmodel.validation.reports.clusters import predicted_times
from perfmodel.validation.reports.layouts import predicted_layout
from perfmodel.validation.reports.parallel_report import cases_of, job_of_run, step_of_row
from perfmodel.validation.scores.interval_coverage import (
    ALL_PROTOCOLS,
    COLUMNS,
    DIGITS,
    EXPOSURE,
    OURS,
    IntervalRow,
    IntervalRule,
    Residual,
    Residuals,
    exposures,
    interval_rows,
    key_of,
    seen_in,
    seen_of,
    with_intervals,
)
from perfmodel.validation.scores.table_report import read_records
from perfmodel.validation.validate import checked_table, hold_out

PROTOCOLS = (
    NOTHING_FITTED,
    "leave_one_cell_out",
    "leave_one_device_out",
    "leave_one_family_out",
    "leave_one_framework_out",
)
DAMPING_NOTE = (
    "between one ratio for all predictions and ratios in proportion to their spreads: between 0.25 and 1 the score of "
    "held-out cells hardly tells (within 1.5 % on GPUs and on CPUs); at 0.75 coverage and sharpness hold on both"
)

SHARED_FIELD = f"quantile.{SHARED}"

LANGUAGE_TABLES = {"gpu": ("korthikanti2022",)}
"""Processor -> tables of whole steps on several devices, timed, that count beside those of single devices."""

FITTED_TABLE = "shi2016"
"""The table whose rows are fitted; the others are predicted with nothing fitted."""

SUBSETS = {"gpu": ("gpu",), "cpu": ("cpu", "cpu_oversubscribed")}
PROTOCOLS_OF = {"cpu_oversubscribed": (NOTHING_FITTED, "leave_one_cell_out", "leave_one_device_out")}
"""Subset -> how its cells are held out, where not by all of ``PROTOCOLS``."""

FIRST_SPREADS = ConstantSpreads(datasheet=0.05, measured=0.15, fitted=0.15, calculation=0.05, estimate=0.3, memory=0.1)
"""Where no file states them yet."""

NEW_ARCHITECTURE_NOTE = (
    "about as much as two new frameworks, so that no board that nobody measured is surer than one that somebody did. "
    "With each architecture of the residuals left out in turn, so that only its kernels were ever timed, intervals "
    "hold 91 % of its rows with it and 80 % without (tests/published/test_intervals.py); it stays for architectures "
    "of which not even kernels were timed"
)
SPREADS_NOTE = (
    "spreads of ln(constant): boards hold their listed clocks within 5 %; kernels timed by others within the 10 to "
    "20 % that their calibrations leave; a data sheet that is remembered, 10 %; an estimate, a range of about a factor "
    "of two from end to end"
)


EXCHANGE_TABLES = ("deepbench_allreduce", "nccl_a100_sxm")
LONG_BYTES = 2**20
"""From which on a message's time is told by bandwidth. [B]"""

OF_NORMAL = 1.2816
"""Standard deviations to either side that hold 80 % of a normal distribution. [1]"""


def write_residuals(path: Path, residuals: Iterable[Residual]) -> None:
    """Write residuals as a CSV that :func:`read_residuals` reads.

    Parameters
    ----------
    path : Path
        Where; replaced only once the new file is whole. [-]
    residuals : iterable of Residual
        Rows. [-]
    """
    with replacement_of(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in residuals:
            *place, threads = row.key
            numbers = [row.log_ratio, *(getattr(row.exposure, name) for name in EXPOSURE)]
            writer.writerow(
                [row.protocol, *place, "" if threads is None else threads]
                + [f"{number:.{DIGITS}g}" for number in numbers]
            )


def residuals_of(held: HeldOut, *, scale: IntervalScale, protocol: str) -> list[Residual]:
    """Return the residuals of all scored cells that folds held out.

    Parameters
    ----------
    held : HeldOut
        Predictions, fold by fold. [-]
    scale : IntervalScale
        For spreads of constants that no plan names. [-]
    protocol : str
        How they were held out. [-]

    Returns
    -------
    list of Residual
        Cells set aside are left out.
    """
    of_folds = exposures(held, scale=scale)
    return [
        Residual(
            protocol=protocol,
            key=key_of(held.cells[index]),
            log_ratio=float(np.log(predicted.measured_s / predicted.predicted_s)),
            exposure=exposure,
        )
        for outcome, of_fold in zip(held.outcomes, of_folds, strict=True)
        for index, predicted, exposure in zip(outcome.fold.scored, outcome.predicted, of_fold, strict=True)
        if predicted.status == "measured"
    ]


def language_steps(processor: str) -> dict[str, list[tuple[ParallelRow, Prepared, TimedStep]]]:
    """Predict the steps of tables of several devices, with nothing fitted."""
    return {key: steps_of(load_parallel(key)) for key in LANGUAGE_TABLES.get(processor, ())}


def steps_of(table: ParallelTable) -> list[tuple[ParallelRow, Prepared, TimedStep]]:
    """Predict the rows of a table whose times were measured, each as it ran."""
    graphs = ((row, zoo.build(row.builder, **row.builder_options)) for row in table.rows if row.measured_s is not None)
    return [
        (row, *step_of_row(table, row, graph, row.parallelism, row.sizes, row.global_batch_size))
        for row, graph in graphs
    ]


def language_residuals(
    table: str, steps: list[tuple[ParallelRow, Prepared, TimedStep]], *, scale: IntervalScale
) -> list[Residual]:
    """Return the residuals of steps on several devices, held out with their whole table.

    Device, framework and architecture count as measured: a table of a few networks, all new in all three, cannot tell
    what each of these adds.
    """
    others, known = scale.measured_without(table), scale.measured.architectures
    rows = []
    for row, prepared, timed in steps:
        uncertainty = uncertainty_of(prepared, NO_FACTORS, known=known_constants(prepared, None), spreads=scale.spread)
        exposure = exposure_of(prepared, timed, uncertainty=uncertainty, seen=others, measured_architectures=known)
        exposure = replace(exposure, device=0.0, framework=0.0)
        key = (table, prepared.profile.stem, row.label, row.global_batch_size, row.device, None)
        log_ratio = float(np.log(row.measured_s / timed.parts.step_s))
        rows.append(Residual(protocol=NOTHING_FITTED, key=key, log_ratio=log_ratio, exposure=exposure))
    return rows


def shared_steps(folder: Path) -> Iterator[tuple[str, float, Prediction]]:
    """Yield table, measured step and prediction of training that devices share. [s]"""
    for run in load_sharded("torchtitan2024").rows:
        if not run.not_scored:
            graph = zoo.build("llama", **dict(run.network_options))
            yield "torchtitan2024", run.step_s, job_of_run(run, graph).predict()
    for study, _, job, measured_s in cases_of(load_published("published_layouts")):
        yield study if study in LANGUAGE_TABLES["gpu"] else "published_layouts", measured_s, job.predict()
    file = folder / "llm" / "layouts_a100.csv"
    for record in read_records(file):
        if record["outcome"] == "timed":
            yield "layouts_a100", float(record["step_s"]), predicted_layout(record, file)


def with_shared(scale: IntervalScale, folder: Path) -> IntervalScale:
    """Return the scale with the quantile of shared training found anew, each table with the same weight."""
    sizes: dict[str, list[float]] = {}
    architectures: set[str] = set()
    scores: dict[str, list[float]] = {}
    parameters = parameters_of(scale)
    for table, measured_s, prediction in shared_steps(folder):
        exposure = prediction.interval.exposure
        assert exposure is not None  # of a file's device, not of a measured machine
        sizes.setdefault(table, []).append(abs(float(np.log(measured_s / prediction.step_s))))
        architectures.add(prediction.basis.prepared.target.architecture)
        damped = log_spread(exposure, parameters=parameters) ** scale.damping
        scores.setdefault(table, []).append(sizes[table][-1] / float(damped))
    every = np.concatenate([scores[table] for table in scores])
    weights = np.concatenate([np.full(len(scores[table]), 1 / len(scores[table])) for table in scores])
    order = np.argsort(every)
    reached = np.cumsum(weights[order]) / weights.sum()
    found = round(float(every[order][np.searchsorted(reached, LEVEL)]), 4)
    tables, of_all = ", ".join(scores), np.concatenate(list(sizes.values()))
    source = Source(
        fields=(SHARED_FIELD, "shared_attention_on"),
        title=f"residuals of the measured tables {tables}",
        note=(
            "benchmarks/fit_intervals.py --shared: 80 % quantile of abs ln(measured / predicted) over the damped "
            "spread, each table with the same weight; docs/intervals.md says how many of each table that of the others "
            "holds. Valid for training in 16 bit of networks with attention on several devices of these architectures "
            "with nothing fitted"
        ),
        provenance="fitted",
        table=tables,
        rows=len(of_all),
        residual_percent=round(100 * float(np.expm1(np.median(of_all))), 1),
    )
    return scale.model_copy(
        update={
            "quantile": scale.quantile.model_copy(update={SHARED: found}),
            "shared_attention_on": tuple(sorted(architectures)),
            "source": (*(each for each in scale.source if SHARED_FIELD not in each.fields), source),
        }
    )


def spread_of(log_ratios) -> float:
    """Return the standard deviation of the normal distribution with the same 80 % of absolute values."""
    return round(float(np.quantile(np.abs(log_ratios), LEVEL)) / OF_NORMAL, 3)


def with_exchange(scale: IntervalScale, folder: Path) -> IntervalScale:
    """Return the scale with spreads of exchanges found from the rows that no constant was fitted to."""
    rows = [
        row
        for name in EXCHANGE_TABLES
        for row in read_collectives(folder / "systems" / f"{name}.csv").rows
        if not row.is_fitted
    ]
    of_library = np.log([row.seconds for row in rows] / predicted_times(rows))
    long = [row for row in rows if row.operation == "all_reduce" and row.size_bytes >= LONG_BYTES]
    rings = []
    for row in long:
        topology = load_system(row.system).topology
        rings.append(place(collective("ring_all_reduce"), topology, topology.devices()[: row.worker_count]))
    alone = [float(ring.time(row.size_bytes)) for ring, row in zip(rings, long, strict=True)]
    of_algorithm = np.log([row.seconds for row in long] / np.array(alone))
    source = Source(
        fields=("exchange.library", "exchange.algorithm"),
        title="residuals of the measured collectives " + ", ".join(EXCHANGE_TABLES),
        note=(
            "benchmarks/fit_intervals.py --exchange: 80 % quantile of abs ln(measured / predicted) over 1.2816; "
            f"library: held-out rows; algorithm: a ring by its name, on {len(long)} all-reduces from 1 MiB, which take "
            f"{np.exp(np.median(of_algorithm)):.2f} times as long in the median"
        ),
        provenance="measured",
        table=", ".join(EXCHANGE_TABLES),
        rows=len(rows),
    )
    assert scale.exchange is not None  # calls are an estimate, which is kept
    found = {"library": spread_of(of_library), "algorithm": spread_of(of_algorithm)}
    return scale.model_copy(
        update={
            "exchange": ExchangeSpreads(**found, calls=scale.exchange.calls),
            "source": (*(each for each in scale.source if "exchange.library" not in each.fields), source),
        }
    )


Held = dict[tuple[str, str, str], HeldOut]
"""Table, subset and protocol -> its cells, held out."""


def held_out(processor: str) -> Held:
    """Predict every table with nothing fitted, and the fitted table under every protocol."""
    found = {}
    for name in measurements.names():
        table = checked_table(name)
        for subset in SUBSETS[processor]:
            protocols = PROTOCOLS_OF.get(subset, PROTOCOLS) if name == FITTED_TABLE else (NOTHING_FITTED,)
            if table.subset(subset):
                for protocol in protocols:
                    print(f"{name}, {subset}, {protocol}", flush=True)
                    found[name, subset, protocol] = hold_out(table, subset=subset, protocol=protocol)
    return found


def mean_abs_log_ratio(held: HeldOut) -> float:
    """Return the mean of abs ln(predicted / measured) over a subset's scored cells."""
    cells = [cell for outcome in held.outcomes for cell in outcome.predicted if cell.status == "measured"]
    return float(np.mean([abs(np.log(cell.predicted_s / cell.measured_s)) for cell in cells]))


def draft(processor: str, held: Held, seen_elsewhere: Mapping[str, Seen]) -> IntervalScale:
    """Return a scale that knows what was seen and how well fits fit, and nothing of widths yet."""
    spread, exchange = FIRST_SPREADS, None
    if f"{processor}_80" in names("intervals"):
        known = load_interval_scale(f"{processor}_80")
        spread, exchange = known.spread, known.exchange
    cells: dict[str, list] = {}
    for (table, _, protocol), each in held.items():
        if protocol == NOTHING_FITTED:
            cells.setdefault(table, []).extend(each.cells)
    fitted = hold_out(checked_table(FITTED_TABLE), subset=SUBSETS[processor][0], protocol=ALL_FITTED)
    usual = mean_abs_log_ratio(fitted)
    none = dict.fromkeys(Unseen.model_fields, 0.0)
    seen = {table: seen_in(of_table) for table, of_table in cells.items()} | dict(seen_elsewhere)
    return IntervalScale.model_construct(
        processor=processor,
        spread=spread,
        exchange=exchange,
        seen=seen,
        unseen=Unseen(**none),
        found_on=FoundOn(
            tables=tuple(seen),
            protocols=PROTOCOLS,
            residual_count=1,
            mean_abs_log_ratio=usual,
            fitted_mean_abs_log_ratio=round(usual, 4),
        ),
    )


def finished(scale: IntervalScale, residuals: Residuals) -> IntervalScale:
    """Return the scale with widths found from all residuals."""
    fitted = residuals.fitted()
    parameters, sizes = fitted.parameters, residuals.sizes
    processor, tables = scale.processor, ", ".join(scale.found_on.tables)
    found_on = FoundOn(
        tables=scale.found_on.tables,
        protocols=PROTOCOLS,
        residual_count=len(sizes),
        mean_abs_log_ratio=round(float(np.mean(sizes)), 4),
        fitted_mean_abs_log_ratio=scale.found_on.fitted_mean_abs_log_ratio,
    )
    unseen = {way: round(value, 3) for way, value in parameters.unseen.items()}
    measured = [
        "level",
        "structural",
        "constants_weight",
        "other_slope",
        "mean_other_share",
        "quantile",
        "seen",
        "found_on",
    ]
    met = {way: any(getattr(row.exposure, way) for row in residuals.rows) for way in unseen}
    sources = [
        Source(
            fields=(*measured, *(f"unseen.{way}" for way, is_met in met.items() if is_met)),
            title=f"residuals of the measured tables {tables}",
            note="benchmarks/fit_intervals.py: most likely spread of held-out residuals, conformal quantile",
            provenance="fitted",
            table=tables,
            rows=len(sizes),
            residual_percent=round(100 * float(np.expm1(np.median(sizes))), 1),
        ),
        Source(fields=("spread",), title="estimate", provenance="estimate", note=SPREADS_NOTE),
        Source(fields=("damping",), title="estimate", provenance="estimate", note=DAMPING_NOTE),
    ]
    quantile = {regime: round(value, 4) for regime, value in fitted.quantile.items()}
    shared_attention_on: tuple[str, ...] = ()
    if scale.exchange is not None:
        known = load_interval_scale(f"{processor}_80")
        kept = ("exchange.", SHARED_FIELD)  # found by commands of their own
        sources += [each for each in known.source if any(field.startswith(kept) for field in each.fields)]
        quantile[SHARED], shared_attention_on = known.quantile.shared_attention, known.shared_attention_on
    for way in (way for way, is_met in met.items() if not is_met):
        note = "no held-out row met it: about as much as a new framework" if unseen[way] else "cannot occur"
        note = NEW_ARCHITECTURE_NOTE if way == "architecture" else note
        sources.append(Source(fields=(f"unseen.{way}",), title="estimate", provenance="estimate", note=note))
    return IntervalScale.model_validate(
        {
            "schema_version": 1,
            "name": f"80 % intervals of step times on {processor.upper()}s",
            "kind": "interval_scale",
            "processor": processor,
            "level": LEVEL,
            "structural": round(parameters.structural, 4),
            "constants_weight": round(parameters.constants_weight, 3),
            "other_slope": round(parameters.other_slope, 3),
            "mean_other_share": round(parameters.mean_other_share, 3),
            "damping": fitted.damping,
            "shared_attention_on": shared_attention_on,
            "quantile": quantile,
            "unseen": unseen,
            "spread": scale.spread.model_dump(),
            "exchange": None if scale.exchange is None else scale.exchange.model_dump(),
            "seen": {table: seen.model_dump() for table, seen in scale.seen.items()},
            "found_on": found_on.model_dump(),
            "source": [source.model_dump(mode="json", exclude_none=True) for source in sources],
        }
    )


def scores(held: Held, rule: IntervalRule) -> list[tuple[str, str, IntervalRow]]:
    """Score the intervals of every table, subset and protocol, each fold without its own cells."""
    rows = []
    for (table, subset, protocol), each in held.items():
        outcomes, ratios = with_intervals(each, subset=subset, protocol=protocol, table=table, rule=rule)
        cells = [cell for outcome in outcomes for cell in outcome.predicted if cell.status == "measured"]
        rows += [(table, protocol, row) for row in interval_rows(subset, cells, ratios)]
    return rows


def toml_text(scale: IntervalScale) -> str:
    """Return the file of a scale."""
    from perfmodel.hardware.spec_files import toml_entries

    content = scale.model_dump(mode="python")
    tables = tuple(
        name for name in ("quantile", "unseen", "spread", "exchange", "found_on") if content[name] is not None
    )
    lines = [
        "# Written by benchmarks/fit_intervals.py; the residuals that it follows from stand in the CSV beside it.",
        "# [spread] is an estimate that the command keeps as it finds it.",
        *toml_entries(
            {key: entry for key, entry in content.items() if key not in (*tables, "exchange", "seen", "source")}
        ),
    ]
    for name in tables:
        stated = {key: entry for key, entry in content[name].items() if entry is not None}
        lines += ["", f"[{name}]", *toml_entries(stated)]
    for name, seen in content["seen"].items():
        lines += ["", f"[seen.{name}]", *toml_entries(seen)]
    for entry in content["source"]:
        lines += ["", "[[source]]", *toml_entries(entry)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Find, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processor", choices=tuple(SUBSETS), action="append")
    parser.add_argument("--dry-run", action="store_true", help="print only")
    parser.add_argument("--shared", type=Path, metavar="FOLDER", help="find the quantile of shared training anew, only")
    parser.add_argument("--exchange", type=Path, metavar="FOLDER", help="find [exchange] anew, and nothing else")
    arguments = parser.parse_args()
    if arguments.exchange is not None or arguments.shared is not None:
        scale = load_interval_scale("gpu_80")
        scale = scale if arguments.exchange is None else with_exchange(scale, arguments.exchange)
        scale = scale if arguments.shared is None else with_shared(scale, arguments.shared)
        text = toml_text(scale)
        print(text)
        if not arguments.dry_run:
            (shipped_folder() / "intervals" / "gpu_80.toml").write_text(text, encoding="utf-8")
        return
    for processor in arguments.processor or SUBSETS:
        held, steps = held_out(processor), language_steps(processor)
        scale = draft(
            processor,
            held,
            {table: Seen.of(seen_of(prepared) for _, prepared, _ in each) for table, each in steps.items()},
        )
        rows = [row for table, each in steps.items() for row in language_residuals(table, each, scale=scale)]
        for (_, _, protocol), each in held.items():
            rows += residuals_of(each, scale=scale, protocol=protocol)
        residuals = Residuals(tuple(rows))
        found = scores(held, IntervalRule(scale, residuals))
        for table, protocol, row in found:
            print(
                f"{table:16}{row.subset:20}{protocol:26}{row.intervals:34}"
                f"{row.cells:5}{row.coverage_percent:6.0f} %"
                f"{row.median_ratio:7.2f}{row.log_score:8.3f}{row.time_score_s:10.4f}"
            )
        for name in (OURS, ALL_PROTOCOLS):
            those = [row for _, _, row in found if row.intervals == name]
            total = sum(row.cells * row.log_score for row in those) / sum(row.cells for row in those)
            print(f"{processor}, {name}: mean score of ln(time) {total:.3f}")
        whole = finished(scale, residuals)
        print(toml_text(whole))
        if not arguments.dry_run:
            folder = shipped_folder() / "intervals"
            folder.mkdir(exist_ok=True)
            write_residuals(folder / f"{processor}_80.csv", rows)
            Path(folder / f"{processor}_80.toml").write_text(toml_text(whole), encoding="utf-8")


if __name__ == "__main__":
    main()
