"""Score the predictions on what other laboratories published: no constant of a prediction is fitted on it.

Not unseen: the widths of intervals are found on its residuals, and forms of terms were compared by its scores, too.

Run:  python benchmarks/published_throughput.py               (the shipped tables; half a minute)
      python benchmarks/published_throughput.py --write       (and put them into docs/generalisation.md)
      python benchmarks/published_throughput.py --data FOLDER (and the K80 rows of TensorFlow's page, where FOLDER has
                                                               tensorflow_docs_2017_gce_k80.csv)

Beside each score stand three naive rules: a roofline with the one efficiency that fits Shi et al.'s table best, told
nothing of the scored table, as the model; the same with the efficiency that fits the scored table itself; and the times
of the same network on the table's other GPUs, scaled by sqrt(FLOP/s x bandwidth).
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import perfmodel as pm
from perfmodel import measurements
from perfmodel.measurements.table import MeasuredRow, MeasurementTable
from perfmodel.validation.protocols import baselines
from perfmodel.validation.protocols.cells import PredictedCell
from perfmodel.validation.scores import metrics
from perfmodel.validation.scores.validation_report import ValidationReport

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "generalisation.md"
OTHERS = (
    "johnson2016", "mxnet2017", "tensorflow2017", "lambda2019", "sako2018", "nvidia2019", "nvidia2021", "rnn2016",
    "bahrampour2016", "guolinke2016", "dl4j2017", "dl4j_dgx2017",
)  # fmt: skip
K80 = "tesla_k80_gk210"
SCALING = next(rule for rule in baselines.RULES["gpu"] if rule.name.startswith("sqrt"))
FAR_OFF = 1.3
"""Factor from which a cell counts as far off. [1]"""


def roofline_s(cells: Sequence[PredictedCell]) -> np.ndarray:
    """Return the plain roofline of each cell. [s]"""
    return np.array(
        [max(c.flop_count / c.peak_flop_per_s, c.moved_bytes / c.bandwidth_bytes_per_s) for c in cells], dtype=float
    )


def best_factor(predicted_s: np.ndarray, measured_s: np.ndarray) -> float:
    """Return the factor on predictions that makes the mean of |ln(predicted / measured)| smallest. [1]"""
    find = baselines.FACTORS["log"][1]
    return float(find(predicted_s, measured=measured_s))


def columns(predicted_s: np.ndarray, measured_s: np.ndarray) -> str:
    """Return MAPE and typical factor of a rule, over the cells that it has a prediction for."""
    told = np.isfinite(predicted_s)
    if not told.any():
        return "- |"
    predicted, measured = predicted_s[told], measured_s[told]
    factor = 100 * (math.exp(metrics.mean_abs_log_ratio(predicted, measured=measured)) - 1)
    return f"{metrics.mape(predicted, measured=measured):.1f} / {factor:.1f} |"


def line(name: str, cells: Sequence[PredictedCell], *, reference_factor: float) -> str:
    """Return the row of one set of cells."""
    measured = np.array([cell.measured_s for cell in cells])
    predicted = np.array([cell.predicted_s for cell in cells])
    roofline = roofline_s(cells)
    scaled = SCALING.rule(cells, cells)
    far = sum(not 1 / FAR_OFF <= cell.ratio <= FAR_OFF for cell in cells)
    bias = math.exp(float(np.mean(np.log(predicted / measured))))
    return (
        f"| {name} | {len(cells)} | **{columns(predicted, measured)[:-2]}** | {bias:.2f} | {far} | "
        f"{columns(reference_factor * roofline, measured)} "
        f"{columns(best_factor(roofline, measured) * roofline, measured)} {columns(scaled, measured)}"
    )


HEAD = (
    "cells of",
    "cells",
    "perfmodel",
    "bias",
    f"beyond {FAR_OFF} x",
    "roofline, efficiency of `shi2016`",
    "roofline, its own efficiency",
    "sister GPUs, scaled",
)


def board(cells_by_table: dict[str, list[PredictedCell]], *, reference_factor: float) -> str:
    """Return the scores by table, and by framework and architecture, as markdown."""
    rule = f"|{'---|' * len(HEAD)}"
    lines = [f"| {' | '.join(HEAD)} |", rule]
    lines += [line(name, cells, reference_factor=reference_factor) for name, cells in cells_by_table.items()]
    everything = [cell for cells in cells_by_table.values() for cell in cells]
    lines.append(line("all of them", everything, reference_factor=reference_factor))
    groups: dict[tuple[str, str], list[PredictedCell]] = defaultdict(list)
    for cell in everything:
        groups[cell.framework, pm.load_device(cell.device).architecture].append(cell)
    lines += ["", f"| {' | '.join(('framework, architecture', *HEAD[1:]))} |", rule]
    for (framework, architecture), cells in sorted(groups.items()):
        lines.append(line(f"{framework}, {architecture}", cells, reference_factor=reference_factor))
    return "\n".join(lines)


def furthest(cells: Iterable[PredictedCell], count: int) -> str:
    """Return the cells that are furthest off, as markdown."""
    worst = sorted(cells, key=lambda cell: -abs(math.log(cell.ratio)))[:count]
    lines = ["| network | batch | framework | device | measured | predicted / measured | bound by |", f"|{'---|' * 7}"]
    lines += [
        f"| {cell.network} | {cell.batch_size} | {cell.framework} | {cell.device} | "
        f"{1e3 * cell.measured_s:.1f} ms | {cell.ratio:.2f} | {cell.bottleneck} |"
        for cell in worst
    ]
    return "\n".join(lines)


def k80_table(path: Path) -> MeasurementTable:
    """Return the rows of TensorFlow's page for one K80 die, with the runs of the same page's P100."""
    page = measurements.load("tensorflow2017")
    rows, runs = [], {}
    with path.open(newline="") as file:
        for number, entry in enumerate(csv.DictReader(file), start=2):
            if entry["n_devices"] != "1" or entry["data"] != "synthetic":
                continue
            batch_size = int(entry["batch_size"])
            rows.append(
                MeasuredRow(
                    table="tensorflow_docs_2017_gce_k80",
                    row_number=number,
                    network=entry["network"],
                    framework="tensorflow_1_1",
                    batch_size=batch_size,
                    device=K80,
                    threads=None,
                    step_s=float(entry["seconds"]),
                )
            )
            run = next(run for run in page.runs if run.network == entry["network"])
            runs[entry["network"], batch_size] = replace(run, batch_size=batch_size)
    return MeasurementTable(
        key="tensorflow_docs_2017_gce_k80", title=path.name, rows=tuple(rows), runs=tuple(runs.values())
    )


def scored(report: ValidationReport) -> list[PredictedCell]:
    """Return the scored cells of a report."""
    return list(report.cells)


def main() -> None:
    """Print the scores, and write them into the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/generalisation.md")
    parser.add_argument("--data", type=Path, help="folder with tensorflow_docs_2017_gce_k80.csv")
    parser.add_argument("--worst", type=int, default=12, help="how many of the furthest cells to list")
    arguments = parser.parse_args()
    reference = scored(pm.validate("shi2016", only="gpu"))
    factor = best_factor(roofline_s(reference), np.array([cell.measured_s for cell in reference]))
    cells = {f"`{key}`": scored(pm.validate(key, only="gpu")) for key in OTHERS}
    text = board(cells, reference_factor=factor)
    text += "\n\n" + furthest((cell for each in cells.values() for cell in each), arguments.worst)
    print(text)
    if arguments.data is not None:
        k80 = scored(pm.validate(k80_table(arguments.data / "tensorflow_docs_2017_gce_k80.csv")))
        lines = [line("K80 rows of TensorFlow's page", k80, reference_factor=factor)]
        lines += [f"    {cell.network} at {cell.batch_size}: {cell.ratio:.2f}" for cell in k80]
        print(*lines, sep="\n")
    if arguments.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- scores:start -->\n")
        _, _, after = rest.partition("<!-- scores:end -->")
        PAGE.write_text(f"{before}<!-- scores:start -->\n{text}\n<!-- scores:end -->{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
