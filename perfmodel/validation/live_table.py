"""Times of a live check as a measurement table: a CSV of times and the TOML that says what ran."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from perfmodel.atomic_write import replacement_of
from perfmodel.errors import ArgumentError
from perfmodel.hardware.toml_text import toml_entries, toml_value
from perfmodel.measurements.description import SCHEMA_VERSION
from perfmodel.measurements.rows import COLUMNS
from perfmodel.validation.live_device import processor_of
from perfmodel.validation.live_networks.catalogue import LIVE_NETWORKS
from perfmodel.validation.live_report import LiveReport, LiveRow

FRAMEWORK: Final = "pytorch_2"
"""The framework file that describes eager torch."""

_SUFFIXES: Final = {"step": "", "forward": "_inference"}
"""Phase to what is appended to a network's name, as a table knows one run of each network."""


def _network(row: LiveRow) -> str:
    """Return what the table calls a row's network."""
    return f"{row.network}{_SUFFIXES[row.phase]}" + ("" if row.dtype == "fp32" else f"_{row.dtype}")


def _device(report: LiveReport) -> str:
    """Return the device file whose data sheet it is, or the model's name as an identifier."""
    return report.datasheet or re.sub(r"\W+", "_", report.device.lower()).strip("_")


def check_table_path(path: Path) -> None:
    """Refuse a path that is no table's.

    Raises
    ------
    ArgumentError
        If its name does not end in ``.csv``.
    """
    if path.suffix != ".csv":
        raise ArgumentError("path", str(path), "must end in .csv")


def save_live_table(report: LiveReport, path: str | Path) -> Path:
    """Write the scored times of a live check in the format of measurement tables, which ``pm.validate`` reads.

    Parameters
    ----------
    report : LiveReport
        The check. [-]
    path : str or Path
        The CSV; a TOML of the same name is written beside it. [-]

    Returns
    -------
    Path
        The CSV. [-]

    Raises
    ------
    ArgumentError
        If the name does not end in ``.csv``, nothing is scored, or a file cannot be written.
    """
    path = Path(path)
    check_table_path(path)
    rows = [row for row in report.rows if row.is_scored]
    if not rows:
        raise ArgumentError("report", report.device, "must have scored rows to save")
    texts = {path.with_suffix(".toml"): _description(report, rows, key=path.stem), path: _times(report, rows)}
    for each, text in texts.items():
        with replacement_of(each) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
    return path


def _times(report: LiveReport, rows: Iterable[LiveRow]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    threads = report.facts.get("threads", "") if _is_cpu(report) else ""
    for row in rows:
        writer.writerow((_network(row), row.batch_size, FRAMEWORK, _device(report), threads, f"{row.measured_s:.6g}"))
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
        "network": _network(row),
        "framework": FRAMEWORK,
        "builder": network.zoo_builder,
        "builder_options": dict(network.zoo_options),
        "optimizer": network.optimizer if trains else "none",
        "phase": row.phase,
        "gpu_dtype": row.dtype,
        "evidence": {"builder": f"perfmodel/validation/live_networks/{network.file}.py, {network.builder}"},
    }
