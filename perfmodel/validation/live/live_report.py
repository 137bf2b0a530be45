"""Live networks predicted and measured: rows, scores compared with naive rooflines, text, JSON and a figure."""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from perfmodel.atomic_write import save_text
from perfmodel.errors import ArgumentError
from perfmodel.hardware.spec_files import toml_entries, toml_value
from perfmodel.measurements.description import SCHEMA_VERSION
from perfmodel.measurements.reading import COLUMNS
from perfmodel.presentation.results import Drawn
from perfmodel.presentation.tables import Table, facts_text, row_table
from perfmodel.validation.live.prediction import (
    LIVE_NETWORKS,
    MODES,
    LiveMeasurement,
    LivePrediction,
    LiveSession,
    processor_of,
)
from perfmodel.validation.scores.metrics import rank_correlation
from perfmodel.validation.scores.table_report import stated_columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST_SPREAD_PERCENT: Final = 15.0
"""Largest spread of repeats at which a network is scored [%]."""

SCORED: Final = "scored"

_ROW_COLUMNS: Final = (
    "network", "phase", "dtype", "batch_size", "predicted_s", "measured_s", "spread_percent", "error_percent",
    "peaks_error_percent", "datasheet_error_percent", "status",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRow:
    """A case, predicted and measured."""

    network: str
    phase: str
    dtype: str
    batch_size: int
    predicted_s: float
    low_s: float
    high_s: float
    measured_s: float | None
    repeats_s: tuple[float, ...]
    spread_percent: float | None
    reference_spread_percent: float | None
    error_percent: float | None
    peaks_error_percent: float | None
    datasheet_error_percent: float | None
    status: str
    remarks: tuple[str, ...] = ()

    @property
    def is_scored(self) -> bool:
        """Whether the row counts in the scores."""
        return self.status == SCORED

    @property
    def is_inside(self) -> bool:
        """Whether the measured time lies in the predicted interval."""
        return self.measured_s is not None and self.low_s <= self.measured_s <= self.high_s


def _percent(predicted_s: float | None, measured_s: float | None) -> float | None:
    return None if predicted_s is None or measured_s is None else 100 * (predicted_s / measured_s - 1)


def _mean_absolute(errors: Sequence[float | None]) -> float | None:
    known = [abs(error) for error in errors if error is not None]
    return statistics.fmean(known) if known else None


def row_of(prediction: LivePrediction, measurement: LiveMeasurement, *, repeats: int) -> LiveRow:
    """Return a case's row."""
    case, repeats_s = prediction.case, measurement.repeats_s
    assert measurement.case == case
    measured_s = measurement.median_s if repeats_s else None
    spread = measurement.spread_percent if repeats_s else None
    if measurement.failure or len(repeats_s) < repeats or spread is None:
        status = f"failed: {measurement.failure or 'no time was reported'}"
    elif len(repeats_s) == 1:
        status = "unscored: one repeat shows no spread"
    elif spread > MOST_SPREAD_PERCENT:
        status = f"unscored: repeats spread by more than {MOST_SPREAD_PERCENT:g} %"
    else:
        status = SCORED
    return LiveRow(
        **asdict(case),
        predicted_s=prediction.predicted_s,
        low_s=prediction.interval_s[0],
        high_s=prediction.interval_s[1],
        measured_s=measured_s,
        repeats_s=repeats_s,
        spread_percent=spread,
        reference_spread_percent=measurement.reference_spread_percent if repeats_s else None,
        error_percent=_percent(prediction.predicted_s, measured_s),
        peaks_error_percent=_percent(prediction.peaks_s, measured_s),
        datasheet_error_percent=_percent(prediction.datasheet_s, measured_s),
        status=status,
        remarks=prediction.remarks,
    )


def _score(rows: Sequence[LiveRow]) -> dict[str, Any]:
    """Return the scores of all scored rows of a phase and a data type."""
    errors = [abs(row.error_percent) for row in rows if row.error_percent is not None]
    peaks = _mean_absolute([row.peaks_error_percent for row in rows])
    assert peaks is not None
    measured = [row.measured_s for row in rows if row.measured_s is not None]
    mean, shows_order = statistics.fmean(errors), len(rows) > 2
    return {
        "phase": rows[0].phase,
        "dtype": rows[0].dtype,
        "row_count": len(rows),
        "median_percent": statistics.median(errors),
        "mean_percent": mean,
        "worst_percent": max(errors),
        "rank_correlation": rank_correlation([row.predicted_s for row in rows], measured) if shows_order else math.nan,
        "peaks_mean_percent": peaks,
        "datasheet_mean_percent": _mean_absolute([row.datasheet_error_percent for row in rows]),
        "ratio_to_peaks": mean / peaks if peaks else math.inf,
        "inside_percent": 100 * statistics.fmean(row.is_inside for row in rows),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReport(Drawn):
    """Networks that a calibration never saw, predicted and measured on its machine.

    Parameters
    ----------
    device, calibration : str
        Measured device, and the calibration in one line. [-]
    datasheet : str or None
        Device file of the vendor's facts. [-]
    rows : Table of LiveRow
        Every case. [-]
    reference_spread_percent : float
        Spread of the reference kernel over the whole session. [%]
    facts : mapping of str to str
        Versions, threads, allocator, page faults; read-only by convention. [-]
    """

    device: str
    calibration: str
    datasheet: str | None
    rows: Table[LiveRow]
    reference_spread_percent: float
    facts: Mapping[str, str]

    _DICT_KEYS = ("device", "calibration", "datasheet", "facts", "reference_spread_percent", "scores", "rows")

    @classmethod
    def of(
        cls,
        predictions: Sequence[LivePrediction],
        session: LiveSession,
        *,
        device: str,
        calibration: str,
        datasheet: str | None,
        repeats: int,
    ) -> Self:
        """Return the report of a session.

        Parameters
        ----------
        predictions : sequence of LivePrediction
            One for each case, made before it was measured. [-]
        session : LiveSession
            The measured times, in the same order. [-]
        device, calibration : str
            Measured device, and the calibration in one line. [-]
        datasheet : str or None
            Device file of the vendor's facts. [-]
        repeats : int
            Repeats that were asked for. [1]

        Returns
        -------
        LiveReport
            Rows, from which scores follow. [-]
        """
        pairs = zip(predictions, session.measurements, strict=True)
        return cls(
            device=device,
            calibration=calibration,
            datasheet=datasheet,
            rows=Table(
                [row_of(prediction, measurement, repeats=repeats) for prediction, measurement in pairs],
                title=f"live check on {device}",
                headings=stated_columns()["live"],
                row_type=LiveRow,
            ),
            reference_spread_percent=session.reference_spread_percent,
            facts=dict(session.facts),
        )

    @property
    def scores(self) -> Table[Any]:
        """A line for each phase and data type that has scored rows."""
        kinds = dict.fromkeys((row.phase, row.dtype) for row in self.rows)
        groups = [
            [row for row in self.rows if (row.phase, row.dtype) == kind and row.is_scored]
            for kind in sorted(kinds, key=lambda kind: tuple(MODES).index(kind[0]))
        ]
        scored = [_score(rows) for rows in groups if rows]
        return row_table(scored, title="absolute errors of scored rows", headings=stated_columns()["live"])

    @property
    def mean_error_percent(self) -> float:
        """Largest mean absolute error of any phase and data type; NaN if nothing is scored. [%]"""
        return max((score.mean_percent for score in self.scores), default=math.nan)

    def to_text(self) -> str:
        """Return the report as text: every row, the scores, and the facts of the measurement."""
        facts = {"calibration": self.calibration, "data sheet": self.datasheet or "none is named", **self.facts}
        facts["reference kernel"] = f"spread {self.reference_spread_percent:.1f} % over the session (drift control)"
        unscored = sum(not row.is_scored for row in self.rows)
        scored = f"{unscored} of {len(self.rows)} rows are not scored" if unscored else "every row is scored"
        warned = dict.fromkeys(remark for row in self.rows for remark in row.remarks)
        columns = [name for name in _ROW_COLUMNS if name != "datasheet_error_percent" or self.datasheet]
        parts = [
            self.rows.to_text(columns=columns),
            self.scores.to_text(),
            f"nothing is fitted; {scored}",
            facts_text(facts),
        ]
        return "\n\n".join([*parts, *warned])

    def __str__(self) -> str:
        return self.to_text()

    def _figure(self) -> Figure:
        """Draw predicted against measured times; rows that are not scored are hollow."""
        from perfmodel.presentation.figures import parity_plot

        shown = [row for row in self.rows if row.measured_s is not None]
        many = len({row.dtype for row in shown}) > 1
        return parity_plot(
            [row.predicted_s for row in shown],
            [row.measured_s for row in shown if row.measured_s is not None],
            groups=[f"{MODES[row.phase]}, {row.dtype}" if many else MODES[row.phase] for row in shown],
            title=f"networks on {self.device} that the calibration never saw",
            hollow=[not row.is_scored for row in shown],
            intervals=[(row.low_s, row.high_s) for row in shown],
        )


FRAMEWORK: Final = "pytorch_2"
"""The framework file that describes eager torch."""

_SUFFIXES: Final = {"step": "", "forward": "_inference"}
"""Phase -> suffix of a network's name, because a table has one run of each network."""


def _table_network(row: LiveRow) -> str:
    """Name a row's network as the table does."""
    return f"{row.network}{_SUFFIXES[row.phase]}" + ("" if row.dtype == "fp32" else f"_{row.dtype}")


def _device(report: LiveReport) -> str:
    """Return the name of the device file with the data sheet, or the model's name as an identifier."""
    return report.datasheet or re.sub(r"\W+", "_", report.device.lower()).strip("_")


def check_table_path(path: Path) -> None:
    """Reject a path without the suffix of a table."""
    if path.suffix != ".csv":
        raise ArgumentError("path", str(path), "must end in .csv")


def save_live_table(report: LiveReport, path: str | Path) -> Path:
    """Write the scored times of a live check in the format of measurement tables, which ``pm.validate`` reads."""
    path = Path(path)
    check_table_path(path)
    rows = [row for row in report.rows if row.is_scored]
    if not rows:
        raise ArgumentError("report", report.device, "must have scored rows to save")
    texts = {path.with_suffix(".toml"): _description(report, rows, key=path.stem), path: _times(report, rows)}
    for file, text in texts.items():
        save_text(file, text)
    return path


def _times(report: LiveReport, rows: Iterable[LiveRow]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    threads = report.facts.get("threads", "") if _is_cpu(report) else ""
    for row in rows:
        writer.writerow(
            (_table_network(row), row.batch_size, FRAMEWORK, _device(report), threads, f"{row.measured_s:.6g}")
        )
    return stream.getvalue()


def _is_cpu(report: LiveReport) -> bool:
    return processor_of(report.device.rpartition("(")[2].rstrip(")")) == "cpu"


def _description(report: LiveReport, rows: Iterable[LiveRow], *, key: str) -> str:
    facts = {name.replace(" ", "_"): value for name, value in report.facts.items()}
    source: dict[str, Any] = {
        "measured_on": report.device,
        "measured_at": f"{datetime.now(UTC):%Y-%m-%d}",
        "how_measured": "perfmodel validate live: median of the repeats, each the median of several steps",
        **facts,
    }
    hardware: dict[str, Any] = {"device": _device(report), "kind": "cpu" if _is_cpu(report) else "gpu"}
    if _is_cpu(report):
        hardware["physical_cores"] = int(report.facts["threads"])
    title = f"Seconds per training step and per inference of live networks on {report.device}"
    lines = [f"{name} = {toml_value(value)}" for name, value in (("key", key), ("title", title))]
    lines = [f"schema_version = {SCHEMA_VERSION}", *lines, "", "[source]", *toml_entries(source)]
    lines += ["", "[software]", *toml_entries({FRAMEWORK: f"PyTorch {facts.get('torch', '')}".strip()})]
    lines += ["", "[[hardware]]", *toml_entries(hardware)]
    for row in rows:
        lines += ["", "[[run]]", *toml_entries(_run(row))]
    return "\n".join(lines) + "\n"


def _run(row: LiveRow) -> dict[str, Any]:
    network = LIVE_NETWORKS[row.network]
    trains = row.phase == "step"
    return {
        "network": _table_network(row),
        "framework": FRAMEWORK,
        "builder": network.zoo_builder,
        "builder_options": dict(network.zoo_options),
        "optimizer": network.optimizer if trains else "none",
        "phase": row.phase,
        "gpu_dtype": row.dtype,
        "evidence": {"builder": f"perfmodel/validation/live/modules.py, {network.builder}"},
    }
