"""Report of a prediction as printed or shown in a notebook, and the tables in it."""

from __future__ import annotations

import html
import math
import textwrap
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from perfmodel.presentation.quantities import bytes_text, seconds_text
from perfmodel.presentation.tables import Table, facts_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perfmodel.prediction.prediction import Prediction

WIDTH: Final = 100
"""Columns to which prose is wrapped. [1]"""

LAYERS_SHOWN: Final = 8
"""Layers that a report lists by default. [1]"""

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
"""Part of a step -> its name for people."""

WAITING: Final = "waiting of devices for one another"
"""Name of bubbles where micro-batches do not follow one another through a pipeline."""


def part_names(p: Prediction) -> dict[str, str]:
    """Name of each part of a prediction's step. [-]"""
    is_pipeline = p.spread is None or p.spread.placement.layout.micro_batches > 1
    return PART_NAMES if is_pipeline else PART_NAMES | {"bubble_s": WAITING}


PHASE_NAMES: Final[dict[str, str]] = {
    "step": "forward, backward and update",
    "forward_backward": "forward and backward, no update",
    "forward": "forward only",
}
"""Phase -> what it computes."""


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
    """List the parts of the step that take time, and their sum."""
    names = part_names(p)
    spent = {names[part]: seconds for part, seconds in p.breakdown.items() if seconds > 0}
    rows = [PartRow(name, seconds, seconds / p.step_s) for name, seconds in spent.items()]
    headings = {"part": "where the time goes", "seconds": "time"}
    return Table([*rows, PartRow("step", p.step_s, 1.0)], headings=headings)


def part_figure(p: Prediction) -> Figure:
    """Draw the parts of the step that take time as bars, longest first."""
    from perfmodel.presentation.figures import breakdown_bar

    names = part_names(p)
    parts = {names[part]: seconds for part, seconds in p.breakdown.items()}
    return breakdown_bar(parts, title=f"{title(p)}\n{configuration(p)}: {seconds_text(p.step_s)}")


def layer_totals(p: Prediction) -> Table[LayerTotal]:
    """List the time of each layer over all phases, longest first."""
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
    """List what the step keeps in memory."""
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
    """Bytes of memory by content. [B]"""
    names = (field.name for field in fields(p.memory) if field.name != "capacity_bytes")
    return {name.removesuffix("_bytes"): float(getattr(p.memory, name)) for name in names}


def title(p: Prediction) -> str:
    """Name network, target and framework."""
    return f"{p.subject} on {p.target} with {p.framework}"


def configuration(p: Prediction) -> str:
    """Batch size, phase, data type and threads in words."""
    threads = "" if p.threads is None else f", {p.threads} thread{'s' if p.threads > 1 else ''}"
    # a step whose optimizer is "none" has nothing to update
    phase = "forward_backward" if p.phase == "step" and not p.breakdown["update_s"] else p.phase
    return f"batch size {p.batch_size}, {PHASE_NAMES.get(phase, phase)}, {p.dtype}{threads}"


def interval_text(p: Prediction) -> str:
    """Return the interval in words."""
    low_s, high_s = p.interval_s
    return f"{seconds_text(low_s)} to {seconds_text(high_s)}"


def fit_sentence(p: Prediction) -> str:
    """Whether the step fits in memory, and by what margin."""
    room_bytes = float(p.memory.capacity_bytes) - float(p.memory.total_bytes)
    if math.isinf(room_bytes):
        return "The capacity of the target's memory is not stated."
    if p.memory.fits:
        return f"It fits: {bytes_text(room_bytes)} are left."
    return f"It does not fit: {bytes_text(-room_bytes)} are missing."


def remark_lines(p: Prediction) -> list[str]:
    """Wrap the remarks of a prediction as notes."""
    return [textwrap.fill(f"note: {remark}", WIDTH, subsequent_indent="      ") for remark in p.remarks]


def _headline(p: Prediction) -> dict[str, str]:
    return {
        "step time": seconds_text(p.step_s),
        f"{100 * p.interval.level:.0f} % interval": interval_text(p),
        "throughput": f"{p.samples_per_s:,.4g} samples/s",
        "bottleneck": p.bottleneck,
    }


def report(p: Prediction, *, layers_shown: int = LAYERS_SHOWN) -> str:
    """Report as printed: time, parts, longest layers, bottleneck, memory, remarks."""
    blocks = [f"{title(p)}\n{configuration(p)}", facts_text(_headline(p)), str(part_table(p))]
    totals = layer_totals(p)
    if layers_shown:
        blocks.append(f"longest of {len(totals)} layers, all phases together\n{totals.head(layers_shown).to_text()}")
    blocks.append(f"{memory_table(p)}\n{fit_sentence(p)}")
    blocks += remark_lines(p)
    return "\n\n".join(blocks)


def report_html(p: Prediction) -> str:
    """Report for a notebook: headings and tables without scripts or external assets."""
    headline = ", ".join(f"{name} <b>{html.escape(text)}</b>" for name, text in _headline(p).items())
    tables = (part_table(p), layer_totals(p).head(LAYERS_SHOWN), memory_table(p))
    columns = "".join(f'<div style="margin-right:2em">{table._repr_html_()}</div>' for table in tables)
    notes = "".join(f"<p>note: {html.escape(remark)}</p>" for remark in p.remarks)
    return (
        f"<div><p><b>{html.escape(title(p))}</b><br>{html.escape(configuration(p))}</p><p>{headline}</p>"
        f'<div style="display:flex;flex-wrap:wrap;align-items:flex-start">{columns}</div>'
        f"<p>{html.escape(fit_sentence(p))}</p>{notes}</div>"
    )
