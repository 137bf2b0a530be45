"""The report of a prediction: what ``print`` and a notebook show, and the tables it is made of."""

from __future__ import annotations

import html
import math
import textwrap
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

from perfmodel.errors import ArgumentError
from perfmodel.hardware.cpu import Cpu
from perfmodel.hardware.gpu import Gpu
from perfmodel.hardware.measured_machine import MeasuredMachine
from perfmodel.prediction.rows import pieces_of
from perfmodel.presentation.figures import KernelPoint, Roof
from perfmodel.presentation.quantities import bytes_text, percent_text, seconds_text
from perfmodel.presentation.tables import Table, facts_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perfmodel.prediction.prediction import Prediction

WIDTH: Final = 100
"""Columns to which prose is wrapped. [1]"""

LAYERS_SHOWN: Final = 8
"""Layers a report lists unless told otherwise. [1]"""

PART_NAMES: Final[dict[str, str]] = {
    "compute_s": "kernels bound by arithmetic",
    "memory_bound_s": "kernels bound by memory bandwidth",
    "overhead_s": "launch gaps and exposed dispatch",
    "update_s": "optimizer update",
    "exposed_transfer_s": "host-device copies, exposed",
    "input_wait_s": "waiting for storage and decoding",
    "exposed_sync_s": "gradient exchange, exposed",
    "straggler_s": "waiting for the slowest worker",
    "bubble_s": "pipeline bubbles",
}
"""Part of a step -> what a person calls it."""

WAITING: Final = "waiting of devices for one another"
"""What bubbles are called where no micro-batches follow one another through a pipeline."""


def part_names(p: Prediction) -> dict[str, str]:
    """Return what a person calls each part of a prediction's step. [-]"""
    is_pipeline = p.spread is None or p.spread.placement.layout.micro_batches > 1
    return PART_NAMES if is_pipeline else PART_NAMES | {"bubble_s": WAITING}


PHASE_NAMES: Final[dict[str, str]] = {
    "step": "forward, backward and update",
    "forward_backward": "forward and backward, no update",
    "forward": "forward only",
}
"""Phase -> what is computed in it."""


@dataclass(frozen=True, slots=True)
class PartRow:
    """One part of a step."""

    part: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class LayerTotal:
    """One layer over all phases of a step."""

    layer: str
    seconds: float
    share: float
    bound_by: str


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One kind of content of the memory."""

    holds: str
    bytes: float


def part_table(p: Prediction) -> Table[PartRow]:
    """Return the parts of the step that take time, in the order of their definition, and their sum."""
    names = part_names(p)
    spent = {names[part]: seconds for part, seconds in p.breakdown.items() if seconds > 0}
    rows = [PartRow(name, seconds, seconds / p.step_s) for name, seconds in spent.items()]
    headings = {"part": "where the time goes", "seconds": "time"}
    return Table([*rows, PartRow("step", p.step_s, 1.0)], headings=headings)


def part_figure(p: Prediction) -> Figure:
    """Return the parts of the step that take time as bars, longest first."""
    from perfmodel.presentation.figures import breakdown_bar

    names = part_names(p)
    parts = {names[part]: seconds for part, seconds in p.breakdown.items()}
    return breakdown_bar(parts, title=f"{title(p)}\n{configuration(p)}: {seconds_text(p.step_s)}")


CLASS_NAMES: Final = {
    "contraction": "product",
    "elementwise": "element-wise",
    "gather": "gather and scatter",
    "transpose": "transposition",
}
"""Class of kernels -> what a picture calls it; the others by their own names."""


def roofline_points(p: Prediction) -> list[KernelPoint]:
    """Return the operations of the step that do arithmetic as points of a roofline, equal ones as one point."""
    pieces = pieces_of(p.basis.prepared, p.basis.timed)
    like: dict[tuple[str, str, float, float], float] = {}
    for piece in pieces:
        for row, kind in zip(piece.rows(), piece.classes(), strict=True):
            if row.flop_count and row.bytes and row.seconds:
                where = kind, row.kernel, row.flop_count / row.bytes, row.flop_count / row.seconds
                like[where] = like.get(where, 0.0) + row.seconds / p.step_s
    return [
        KernelPoint(CLASS_NAMES.get(kind, kind), intensity, flop_per_s, share)
        for (kind, _, intensity, flop_per_s), share in like.items()
    ]


def roofs_of(p: Prediction) -> list[Roof]:
    """Return the ceilings of the device: what was measured; or its peak, and what it sustains where that is less."""
    spec, bandwidth = p.basis.prepared.target.processor_spec, p.memory_bandwidth_bytes_per_s
    if bandwidth is None:
        raise ArgumentError("device", p.target, "must state the bandwidth of its memory, for a roofline to be drawn")
    sustained = Roof("measured" if isinstance(spec, MeasuredMachine) else "sustained", p.peak_flop_per_s, bandwidth)
    if isinstance(spec, MeasuredMachine):
        return [sustained]
    peak = replace(sustained, name="peak")
    if isinstance(spec, Gpu):
        peak = replace(peak, flop_per_s=max(spec.peak_flop_per_s(p.dtype), p.peak_flop_per_s))
    assert isinstance(spec, Cpu | Gpu)
    share = spec.sustained_memory_bandwidth_bytes_per_s / spec.memory_bandwidth_bytes_per_s
    sustained = replace(sustained, bytes_per_s=share * bandwidth)
    return [peak] if replace(sustained, name="peak") == peak else [peak, sustained]


def roofline_figure(p: Prediction) -> Figure:
    """Return the kernels of the step on the roofline of its device."""
    from perfmodel.presentation.figures import kernel_roofline

    points = roofline_points(p)
    left_s = sum(row.seconds for row in p.layers if not (row.flop_count and row.bytes))
    left = f"; kernels without arithmetic, not shown: {percent_text(left_s / p.step_s)}" if left_s else ""
    return kernel_roofline(points, roofs_of(p), title=f"{title(p)}\n{configuration(p)}{left}")


def layer_totals(p: Prediction) -> Table[LayerTotal]:
    """Return the time of each layer over all phases, longest first."""
    seconds_by_bound: dict[str, dict[str, float]] = {}
    for row in p.layers:
        by_bound = seconds_by_bound.setdefault(row.layer, {})
        by_bound[row.bound_by] = by_bound.get(row.bound_by, 0.0) + row.seconds
    rows = []
    for layer, by_bound in seconds_by_bound.items():
        seconds = sum(by_bound.values())
        rows.append(LayerTotal(layer, seconds, seconds / p.step_s, max(by_bound, key=by_bound.__getitem__)))
    headings = {"seconds": "time", "bound_by": "bound by"}
    return Table(rows, headings=headings, row_type=LayerTotal).sorted_by("seconds")


def memory_table(p: Prediction) -> Table[MemoryRow]:
    """Return what the step keeps in memory."""
    rows = [
        MemoryRow(name, size_bytes)
        for name, size_bytes in memory_contents(p).items()
        if size_bytes or name == "workspace"
    ]
    rows.append(MemoryRow("total", float(p.memory.total_bytes)))
    if math.isfinite(p.memory.capacity_bytes):
        rows.append(MemoryRow("capacity", float(p.memory.capacity_bytes)))
    return Table(rows, headings={"holds": "memory", "bytes": "size"})


def memory_contents(p: Prediction) -> dict[str, float]:
    """Return the bytes of each kind of content of the memory."""
    names = (field.name for field in fields(p.memory) if field.name != "capacity_bytes")
    return {name.removesuffix("_bytes"): float(getattr(p.memory, name)) for name in names}


def title(p: Prediction) -> str:
    """Say what runs on what with what."""
    return f"{p.subject} on {p.target} with {p.framework}"


def configuration(p: Prediction) -> str:
    """Say how it runs: batch size, phase, data type, threads."""
    threads = "" if p.threads is None else f", {p.threads} thread{'s' if p.threads > 1 else ''}"
    # a step whose optimizer is "none" has nothing to update
    phase = "forward_backward" if p.phase == "step" and not p.breakdown["update_s"] else p.phase
    return f"batch size {p.batch_size}, {PHASE_NAMES.get(phase, phase)}, {p.dtype}{threads}"


def interval_text(p: Prediction) -> str:
    """Say between which times the interval lies."""
    low_s, high_s = p.interval_s
    return f"{seconds_text(low_s)} to {seconds_text(high_s)}"


def fit_sentence(p: Prediction) -> str:
    """Say whether the step fits in memory, and by how much."""
    room_bytes = float(p.memory.capacity_bytes) - float(p.memory.total_bytes)
    if math.isinf(room_bytes):
        return "The capacity of the target's memory is not stated."
    if p.memory.fits:
        return f"It fits: {bytes_text(room_bytes)} are left."
    return f"It does not fit: {bytes_text(-room_bytes)} are missing."


def remark_lines(p: Prediction) -> list[str]:
    """Return the remarks of a prediction as wrapped notes."""
    return [textwrap.fill(f"note: {remark}", WIDTH, subsequent_indent="      ") for remark in p.remarks]


def _headline(p: Prediction) -> dict[str, str]:
    return {
        "step time": seconds_text(p.step_s),
        f"{100 * p.interval.level:.0f} % interval": interval_text(p),
        "throughput": f"{p.samples_per_s:,.4g} samples/s",
        "bottleneck": p.bottleneck,
    }


def report(p: Prediction, *, layers_shown: int = LAYERS_SHOWN) -> str:
    """Return what ``print(prediction)`` shows: time, parts, longest layers, bottleneck, memory, remarks."""
    blocks = [f"{title(p)}\n{configuration(p)}", facts_text(_headline(p)), str(part_table(p))]
    totals = layer_totals(p)
    if layers_shown:
        blocks.append(f"longest of {len(totals)} layers, all phases together\n{totals.head(layers_shown).to_text()}")
    blocks.append(f"{memory_table(p)}\n{fit_sentence(p)}")
    blocks += remark_lines(p)
    return "\n\n".join(blocks)


def report_html(p: Prediction) -> str:
    """Return what a notebook shows: the report as headings and tables, without script or external asset."""
    headline = ", ".join(f"{name} <b>{html.escape(text)}</b>" for name, text in _headline(p).items())
    tables = (part_table(p), layer_totals(p).head(LAYERS_SHOWN), memory_table(p))
    columns = "".join(f'<div style="margin-right:2em">{table._repr_html_()}</div>' for table in tables)
    notes = "".join(f"<p>note: {html.escape(remark)}</p>" for remark in p.remarks)
    return (
        f"<div><p><b>{html.escape(title(p))}</b><br>{html.escape(configuration(p))}</p><p>{headline}</p>"
        f'<div style="display:flex;flex-wrap:wrap;align-items:flex-start">{columns}</div>'
        f"<p>{html.escape(fit_sentence(p))}</p>{notes}</div>"
    )
