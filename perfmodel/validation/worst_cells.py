"""Why a cell is predicted badly, as far as the prediction itself and the table's description can tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Final

from perfmodel.presentation.quantities import bytes_text, percent_text, seconds_text
from perfmodel.validation.cells import MeasuredCell, PredictedCell, prediction_of
from perfmodel.validation.score_records import WorstCell

if TYPE_CHECKING:
    from perfmodel.measurements.run import Run
    from perfmodel.measurements.table import MeasurementTable
    from perfmodel.prediction.prediction import Prediction

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
"""Cells that share all but one thing with a cell, and the fields that they share."""


def worst_cells(
    table: MeasurementTable,
    cells: Sequence[MeasuredCell],
    predicted: Sequence[PredictedCell],
    *,
    subset: str,
    protocol: str,
) -> tuple[WorstCell, ...]:
    """Return the cells with the largest |ln ratio|, each with what is known of it.

    Parameters
    ----------
    table : MeasurementTable
        Whose Runs say what was executed. [-]
    cells : sequence of MeasuredCell
        Scored cells. [-]
    predicted : sequence of PredictedCell
        Their predictions by the constants of the files, in the same order. [-]
    subset, protocol : str
        Labels. [-]

    Returns
    -------
    tuple of WorstCell
        At most ``COUNT``, worst first. [-]
    """
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
    prediction = prediction_of(cell)
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
    """Say which single part, off by how much, would explain the whole error."""
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
