"""A prediction in words and as plain values: the printed report, its tables, and ``explain()``."""

from __future__ import annotations

import html
import math
import re
import textwrap
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from perfmodel.cost.interval_width import WAYS_TO_EXTRAPOLATE
from perfmodel.cost.roofline import ridge_point
from perfmodel.errors import ArgumentError
from perfmodel.hardware.cpu import Cpu
from perfmodel.hardware.gpu import Gpu
from perfmodel.hardware.measured_machine import MeasuredMachine
from perfmodel.hardware.source import SpecFile
from perfmodel.prediction.device.step_time import PARTS, TOTALS
from perfmodel.prediction.memory.footprint import missing_text
from perfmodel.prediction.rows import pieces_of
from perfmodel.prediction.utilisation import has_data_sheet, tokens_per_sample
from perfmodel.prediction.words.defaults import default_remarks, sequence_remarks
from perfmodel.presentation.quantities import (
    byte_rate_text,
    bytes_text,
    count_text,
    counted,
    flop_rate_text,
    flop_text,
    percent_text,
    seconds_text,
)
from perfmodel.presentation.results import WIDTH
from perfmodel.presentation.tables import Table, facts_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perfmodel.prediction.prediction import Prediction
    from perfmodel.presentation.figures import KernelPoint, Roof


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
"""Name of bubbles if micro-batches do not follow one another through a pipeline."""

EXCHANGE: Final = "exchange between devices"
"""Name of an exchange without gradients."""


def part_names(p: Prediction) -> dict[str, str]:
    """Name of each part of a predicted step. [-]"""
    is_pipeline = p.spread is None or p.spread.placement.layout.micro_batches > 1
    names = {} if is_pipeline else {"bubble_s": WAITING}
    return PART_NAMES | names | ({} if p.basis.prepared.trains else {"exposed_sync_s": f"{EXCHANGE}, exposed"})


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


CLASS_NAMES: Final = {
    "contraction": "product",
    "elementwise": "element-wise",
    "gather": "gather and scatter",
    "transpose": "transposition",
}
"""Class of kernels -> its name in a picture; other classes keep their own names."""


def roofline_points(p: Prediction) -> list[KernelPoint]:
    """Return operations with arithmetic as points of a roofline; equal operations share a point."""
    from perfmodel.presentation.figures import KernelPoint

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
    """Return the ceilings of the device: measured rates, or its peak and, if lower, sustained rates."""
    from perfmodel.presentation.figures import Roof

    spec, bandwidth = p.basis.prepared.target.processor_spec, p.memory_bandwidth_bytes_per_s
    if bandwidth is None:
        raise ArgumentError("device", p.target, "must state its memory bandwidth, which a roofline needs")
    sustained = Roof("measured" if isinstance(spec, MeasuredMachine) else "sustained", p.peak_flop_per_s, bandwidth)
    if isinstance(spec, MeasuredMachine):
        return [sustained]
    peak = replace(sustained, name="peak")
    if isinstance(spec, Gpu):
        peak = replace(peak, flop_per_s=max(spec.product_peak_flop_per_s(p.dtype), p.peak_flop_per_s))
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
    limits = ("capacity_bytes", "missing_elsewhere_bytes")
    names = (field.name for field in fields(p.memory) if field.name not in limits)
    return {name.removesuffix("_bytes"): float(getattr(p.memory, name)) for name in names}


def title(p: Prediction) -> str:
    """Name network, target and framework."""
    return f"{p.subject} on {p.target} with {p.framework}"


def configuration(p: Prediction) -> str:
    """Batch size, phase, data type and threads in words."""
    threads = "" if p.threads is None else f", {counted(p.threads, 'thread')}"
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
    if p.memory.fits is None:
        return "The capacity of the target's memory is not stated."
    if p.memory.fits:
        return f"It fits: {bytes_text(room_bytes)} are left."
    server = float(p.memory.server_bytes)
    beside = f" beside the {bytes_text(server)} of the parameter server" if server else ""
    return f"It does not fit: {missing_text(-room_bytes, float(p.memory.missing_elsewhere_bytes), of=beside)}."


IMPOSSIBLE: Final = "The times below are those with enough memory."


def _no_room(p: Prediction) -> list[str]:
    return [f"{fit_sentence(p)} {IMPOSSIBLE}"] if p.memory.fits is False else []


def _beyond(p: Prediction) -> list[str]:
    return [f"{line}; predicted as if it could" for line in p.basis.prepared.shortfalls]


def first_sentences(p: Prediction) -> list[str]:
    """Warnings to read before the time: an impossible step, an argument that does not take effect as asked."""
    return [*_no_room(p), *_beyond(p), *p.basis.on_stored_weights]


def first_lines(p: Prediction) -> list[str]:
    """Lines to read before the time: missing memory, then other warnings and the cost of defaults as notes."""
    return [*_no_room(p), *map(_note, [*_beyond(p), *p.basis.on_stored_weights, *default_remarks(p)])]


def remarks(p: Prediction) -> tuple[str, ...]:
    """Remarks on bounding sequences, and ``p.remarks``; the warnings of ``first_sentences`` are left out."""
    first = {*p.basis.prepared.shortfalls, *p.basis.on_stored_weights}
    return (*sequence_remarks(p), *[remark for remark in p.remarks if remark not in first])


def remark_lines(p: Prediction) -> list[str]:
    """Wrap the remarks of a prediction as notes."""
    return [_note(remark) for remark in remarks(p)]


def _note(text: str) -> str:
    return textwrap.fill(f"note: {text}", WIDTH, subsequent_indent="      ")


def _headline(p: Prediction) -> dict[str, str]:
    return {
        "step time": seconds_text(p.step_s),
        f"{100 * p.interval.level:.0f} % interval": interval_text(p),
        "throughput": f"{p.samples_per_s:,.4g} samples/s",
        **_token_figures(p),
        "bottleneck": p.bottleneck,
    }


def _token_figures(p: Prediction) -> dict[str, str]:
    """Tokens and utilisation of language models; nothing for other networks, and devices without a data sheet."""
    if not has_data_sheet(p) or tokens_per_sample(p.basis.prepared.subject.graph) is None:
        return {}
    return {"tokens": f"{p.tokens_per_s:,.4g} a second", "utilisation": str(p.utilisation())}


def report(p: Prediction, *, layers_shown: int = LAYERS_SHOWN) -> str:
    """Report as printed: time, parts, longest layers, bottleneck, memory, remarks."""
    blocks = [*first_lines(p), f"{title(p)}\n{configuration(p)}", facts_text(_headline(p)), str(part_table(p))]
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
    notes = "".join(f"<p>note: {html.escape(remark)}</p>" for remark in remarks(p))
    first = "".join(f"<p><b>{html.escape(line)}</b></p>" for line in first_lines(p))
    return (
        f"<div>{first}<p><b>{html.escape(title(p))}</b><br>{html.escape(configuration(p))}</p><p>{headline}</p>"
        f'<div style="display:flex;flex-wrap:wrap;align-items:flex-start">{columns}</div>'
        f"<p>{html.escape(fit_sentence(p))}</p>{notes}</div>"
    )


_UNBREAKABLE_SPACE: Final = "\N{NO-BREAK SPACE}"

BOTTLENECK_NAMES: Final[dict[str, str]] = {
    "compute": "arithmetic",
    "sequence": "a sequence whose steps follow one another",
    "memory_bandwidth": "memory bandwidth",
    "launch": "kernel launches",
    "host_dispatch": "the host, which issues kernels more slowly than they run",
    "transfer": "copies between host and device",
    "storage": "storage",
    "decode": "decoding of the input",
    "sync": "gradient exchange",
    "straggler": "the slowest worker",
}
"""Bottleneck -> noun in a sentence; a bubble takes the name of its part."""


CAUSES: Final[dict[str, str]] = {
    "physics": "what the model leaves out",
    "constants": "uncertain constants",
    "exchange": "how long workers exchange",
    "unfitted": "no fit to whole steps",
    "device": "a device without measured rows",
    "framework": "a framework without measured rows",
    "operations": "a mix of operations without measured rows",
    "dtype": "a data type without measured rows",
    "architecture": "an architecture without measured rows",
    "oversubscription": "more threads than cores",
    "kernels": "scatter of kernels about their curves",
    "shared": "what shifts all kernels together",
    "stand_ins": "classes timed by the curve of another",
    "session": "noise and drift while measuring",
}
"""Cause of an interval's width -> its name in a sentence."""

CONSTANTS_SHOWN: Final = 6
"""Constants that an explanation lists; ``provenance`` has them all. [1]"""


def explain(p: Prediction) -> str:
    """Explain in words and numbers how long the step takes, what bounds it, and where its constants come from."""
    paragraphs = [
        f"{title(p)} ({configuration(p)}) takes {seconds_text(p.step_s)} a step: {p.samples_per_s:,.4g} samples/s.",
        _on_interval(p),
        _on_bottleneck(p),
        _on_arithmetic(p),
        _on_dispatch(p),
        _on_transfer(p),
        *_on_workers(p),
        _on_memory(p),
    ]
    blocks = [_filled(paragraph) for paragraph in paragraphs if paragraph]
    constants = _on_uncertain_constants(p), _filled(_on_constants(p))
    return "\n\n".join([*first_lines(p), *blocks, *remark_lines(p), *constants])


def _filled(text: str) -> str:
    """Wrap a paragraph without separating numbers from their units."""
    bound = re.sub(r"(?<=\d) (?=[a-zA-Zµ%])", _UNBREAKABLE_SPACE, text)
    return textwrap.fill(bound, WIDTH).replace(_UNBREAKABLE_SPACE, " ")


def _on_bottleneck(p: Prediction) -> str:
    parts = sorted(((seconds, part) for part, seconds in p.breakdown.items() if seconds), reverse=True)
    names = part_names(p)
    bound = BOTTLENECK_NAMES.get(p.bottleneck, names["bubble_s"])
    bound = bound if p.bottleneck != "sync" or p.basis.prepared.trains else EXCHANGE
    listed = ", ".join(
        f"{names[part]} {percent_text(seconds / p.step_s)} ({seconds_text(seconds)})" for seconds, part in parts
    )
    longest = layer_totals(p).head(3)
    share = sum(row.share for row in longest)
    layers = ", ".join(f"{row.layer} ({seconds_text(row.seconds)}, {row.bound_by})" for row in longest)
    return (
        f"What bounds it most is {bound}. The step divides into {listed}. "
        f"The longest layers, {percent_text(share)} together, are {layers}."
    )


def _on_interval(p: Prediction) -> str:
    interval = p.interval
    parts = sorted(interval.shares.items(), key=lambda part: -part[1])
    listed = ", ".join(f"{CAUSES[cause]} {percent_text(share)}" for cause, share in parts)
    new = [cause for cause, _ in parts if cause in WAYS_TO_EXTRAPOLATE and cause != "unfitted"]
    fitted = " that the constants were fitted on" if p.basis.calibration is not None else ""
    if interval.exposure is None:
        last = "No whole step was timed for it, on any machine"
    elif new:
        last = f"No measured step{fitted} is like this job in every respect; the interval is wider for it"
    else:
        last = f"Its device, framework and kinds of operation are each among the measured steps{fitted}"
    return (
        f"{100 * interval.level:.0f} % of measured times should lie within {interval_text(p)}, a factor of "
        f"{math.sqrt(interval.ratio):.3g} to either side. Its variance: {listed}. {last}."
    )


def _on_uncertain_constants(p: Prediction) -> str:
    heading = (
        "The constants that make it most uncertain, with their shares of the variance that constants and exchanges "
        "cause:"
    )
    lines = [textwrap.fill(heading, WIDTH)]
    for row in p.provenance.head(CONSTANTS_SHOWN):
        text = f"{percent_text(row.share)} {row.describe()}"
        lines.append(textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="      "))
    return "\n".join(lines)


def _on_arithmetic(p: Prediction) -> str:
    flop_count = sum(row.flop_count for row in p.layers)
    moved_bytes = sum(row.bytes for row in p.layers)
    achieved = flop_count / p.step_s
    text = (
        f"The kernels execute {flop_text(flop_count)}: {flop_rate_text(achieved)} over the step, "
        f"{percent_text(achieved / p.peak_flop_per_s)} of the {p.dtype} peak of "
        f"{flop_rate_text(p.peak_flop_per_s)}. "
    )
    if not moved_bytes:
        return text
    intensity = flop_count / moved_bytes
    text += f"They move {bytes_text(moved_bytes)}, so their arithmetic intensity is {intensity:.3g} FLOP/B"
    if p.memory_bandwidth_bytes_per_s is None:
        return text + "."
    ridge = ridge_point(peak_flop_per_s=p.peak_flop_per_s, bandwidth_bytes_per_s=p.memory_bandwidth_bytes_per_s)
    bound = "arithmetic" if intensity >= ridge else "memory bandwidth"
    return (
        f"{text}; the ridge point, where the peak meets {byte_rate_text(p.memory_bandwidth_bytes_per_s)}, is "
        f"{ridge:.3g} FLOP/B. As one kernel at full efficiency, the same FLOP and bytes would be "
        f"bound by {bound}."
    )


def _on_dispatch(p: Prediction) -> str:
    launches = sum(row.launches for row in p.layers)
    exposed_s = max(p.overhead_s - p.launch_s, 0.0)
    hidden_s = max(p.dispatch_s - exposed_s, 0.0)
    return (
        f"The host needs {seconds_text(p.dispatch_s)} to issue {count_text(launches)} kernels: "
        f"{seconds_text(hidden_s)} of it are hidden behind running kernels, {seconds_text(exposed_s)} are "
        f"exposed. Gaps between kernels cost {seconds_text(p.launch_s)}."
    )


def _on_transfer(p: Prediction) -> str:
    if not p.transfer_s:
        return "No copy between host and device is needed."
    hidden_s = max(p.transfer_s - p.exposed_transfer_s, 0.0)
    return (
        f"Bringing the mini-batch to the device takes {seconds_text(p.transfer_s)}: "
        f"{seconds_text(hidden_s)} of it are hidden behind computing, {seconds_text(p.exposed_transfer_s)} "
        f"are exposed."
    )


def _on_workers(p: Prediction) -> tuple[str, ...]:
    if p.spread is not None:
        from perfmodel.prediction.words.paragraphs import spread_words

        return (spread_words(p),)
    from perfmodel.prediction.words.paragraphs import agreement_words, data_path_words

    return data_path_words(p.basis), agreement_words(p.basis)


def _on_memory(p: Prediction) -> str:
    contents = sorted(((size, name) for name, size in memory_contents(p).items() if size), reverse=True)
    listed = ", ".join(f"{name} {bytes_text(size_bytes)}" for size_bytes, name in contents)
    needed, capacity = float(p.memory.total_bytes), float(p.memory.capacity_bytes)
    share = f", {percent_text(needed / capacity)} of {bytes_text(capacity)}" if math.isfinite(capacity) else ""
    return f"Memory: {bytes_text(needed)}{share} ({listed}). {fit_sentence(p)}"


def _on_constants(p: Prediction) -> str:
    files = ", ".join(spec.name for spec in p.sources)
    if not files:
        return "Where the constants come from is not known."
    return f"Constants come from the files of {files}; `provenance` lists the constants with their values and sources."


OF_PREDICTION: Final = (
    "subject", "target", "framework", "batch_size", "phase", "dtype", "threads", "step_s", "samples_per_s",
)  # fmt: skip
"""Attributes of a prediction that its dictionary begins with."""


def as_dict(p: Prediction) -> dict[str, Any]:
    """Return everything but the operations as plain values, for JSON."""
    capacity_bytes, (low_s, high_s) = float(p.memory.capacity_bytes), p.interval_s
    memory: dict[str, Any] = {f"{name}_bytes": size_bytes for name, size_bytes in memory_contents(p).items()}
    memory["total_bytes"] = float(p.memory.total_bytes)
    memory["capacity_bytes"] = capacity_bytes if math.isfinite(capacity_bytes) else None
    memory["fits"] = p.memory.fits
    return {
        **{name: getattr(p, name) for name in OF_PREDICTION},
        **_utilisation_dict(p),
        "workers": p.worker_count,
        "mean_staleness": p.mean_staleness,
        "server": _server_dict(p),
        "stages": p.stages.to_dicts(),
        "bottleneck": p.bottleneck,
        "parts": {name: float(getattr(p, name)) for name in PARTS},
        "totals": {name: float(getattr(p, name)) for name in TOTALS},
        "memory": memory,
        "remarks": list(p.remarks),
        "interval": {"level": p.interval.level, "low_s": low_s, "high_s": high_s, "variance_shares": p.interval.shares},
        "constants": p.provenance.to_dicts(),
        "provenance": [{"file": spec.name, "sources": _source_dicts(spec)} for spec in p.sources],
    }


def _utilisation_dict(p: Prediction) -> dict[str, float | None]:
    """MFU and HFU, None on a measured machine, and tokens per second, None for networks without."""
    has_sheet = has_data_sheet(p)
    has_tokens = tokens_per_sample(p.basis.prepared.subject.graph) is not None
    return {
        "mfu": p.mfu if has_sheet else None,
        "hfu": p.hfu if has_sheet else None,
        "tokens_per_s": p.tokens_per_s if has_tokens else None,
    }


def _server_dict(p: Prediction) -> dict[str, Any] | None:
    """Memory and load of a parameter server."""
    if p.agreement is None or p.agreement.server is None:
        return None
    knee, utilisation = server_load(p)
    return p.agreement.server.to_dict() | {"fits": _server_fits(p), "knee": knee, "utilisation": utilisation}


def server_load(p: Prediction) -> tuple[float | None, float | None]:
    """Return the number of workers from which on a parameter server bounds (None for never), and how busy it is."""
    if p.visits is None:
        return None, None
    knee = float(p.visits.knee)
    return knee if math.isfinite(knee) else None, float(p.visits.server_utilisation)


def _server_fits(p: Prediction) -> bool:
    """Tell whether a parameter server fits in its memories, beside the workers there."""
    prepared, lacking = p.basis.prepared, p.memory.missing_elsewhere_bytes > 0
    return not lacking and not any(of.server_bytes and of.fits is False for of in prepared.footprints(p.basis.timed))


def _source_dicts(spec: SpecFile) -> list[dict[str, Any]]:
    """Return the sources of a spec file as plain values."""
    return [
        {
            "title": source.title,
            "url": source.url,
            "note": source.note,
            "provenance": source.kind,
            "verified": source.is_verified,
            "fields": list(source.fields),
        }
        for source in spec.source
    ]
