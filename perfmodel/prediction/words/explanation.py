"""A prediction in words (what bounds it, what is hidden, sources of constants) and as plain values."""

from __future__ import annotations

import math
import re
import textwrap
from typing import TYPE_CHECKING, Any, Final

from perfmodel.cost.interval import WAYS_TO_EXTRAPOLATE
from perfmodel.cost.roofline import ridge_point
from perfmodel.hardware.source import ESTIMATE
from perfmodel.prediction.device.step_time import PARTS, TOTALS
from perfmodel.prediction.words.report import (
    WIDTH,
    configuration,
    fit_sentence,
    interval_text,
    layer_totals,
    memory_contents,
    part_names,
    remark_lines,
    report,
    report_html,
    title,
)
from perfmodel.presentation.quantities import (
    byte_rate_text,
    bytes_text,
    count_text,
    flop_rate_text,
    flop_text,
    percent_text,
    seconds_text,
)

if TYPE_CHECKING:
    from perfmodel.hardware.source import SpecFile
    from perfmodel.prediction.prediction import Prediction

__all__ = ["as_dict", "explain", "report", "report_html"]

_UNBREAKABLE_SPACE: Final = "\N{NO-BREAK SPACE}"

BOTTLENECK_NAMES: Final[dict[str, str]] = {
    "compute": "arithmetic",
    "memory_bandwidth": "memory bandwidth",
    "launch": "kernel launches",
    "host_dispatch": "the host, which issues kernels more slowly than they run",
    "transfer": "copies between host and device",
    "storage": "storage",
    "decode": "decoding of the input",
    "sync": "gradient exchange",
    "straggler": "the slowest worker",
}
"""Bottleneck -> noun in a sentence; a bubble goes by the name of its part."""


CAUSES: Final[dict[str, str]] = {
    "physics": "what the model leaves out",
    "constants": "uncertain constants",
    "exchange": "how long workers exchange",
    "unfitted": "that no whole step was fitted",
    "device": "a device without measured rows",
    "framework": "a framework without measured rows",
    "operations": "a mix of operations without measured rows",
    "dtype": "a data type without measured rows",
    "architecture": "a library without constants for the architecture",
    "oversubscription": "more threads than cores",
    "kernels": "kernels about their curves",
    "shared": "what moves all kernels together",
    "stand_ins": "classes by the curve of another",
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
    return "\n\n".join([*blocks, *remark_lines(p), _on_uncertain_constants(p), _on_constants(p)])


def _filled(text: str) -> str:
    """Wrap a paragraph without parting numbers from their units."""
    bound = re.sub(r"(?<=\d) (?=[a-zA-Zµ%])", _UNBREAKABLE_SPACE, text)
    return textwrap.fill(bound, WIDTH).replace(_UNBREAKABLE_SPACE, " ")


def _on_bottleneck(p: Prediction) -> str:
    parts = sorted(((seconds, part) for part, seconds in p.breakdown.items() if seconds), reverse=True)
    names = part_names(p)
    bound = BOTTLENECK_NAMES.get(p.bottleneck, names["bubble_s"])
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
    told = "This extrapolates from" if new else "Its device, framework and kinds of operation are each among"
    where = "what the constants were fitted on" if p.basis.calibration is not None else "the rows the interval rests on"
    last = f"{told} {where}" if interval.exposure is not None else "No whole step was timed for it, on any machine"
    return (
        f"{100 * interval.level:.0f} % of measured times should lie within {interval_text(p)}, a factor of "
        f"{math.sqrt(interval.ratio):.3g} to either side. Its variance: {listed}. {last}."
    )


def _on_uncertain_constants(p: Prediction) -> str:
    lines = ["The constants that make it most uncertain, with their share of what all constants do:"]
    lines += [_indented(f"{percent_text(row.share)} {row.describe()}") for row in p.provenance.head(CONSTANTS_SHOWN)]
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
    side, bound = ("right", "arithmetic") if intensity >= ridge else ("left", "memory bandwidth")
    return (
        f"{text}; the ridge point, where the peak meets {byte_rate_text(p.memory_bandwidth_bytes_per_s)}, is "
        f"{ridge:.3g} FLOP/B. Taken as one kernel at full efficiency they would lie {side} of it, "
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
        from perfmodel.prediction.words.workers import spread_words

        return (spread_words(p),)
    from perfmodel.prediction.words.data_path import data_path_words
    from perfmodel.prediction.words.workers import agreement_words

    return data_path_words(p.basis), agreement_words(p.basis)


def _on_memory(p: Prediction) -> str:
    contents = sorted(((size, name) for name, size in memory_contents(p).items() if size), reverse=True)
    listed = ", ".join(f"{name} {bytes_text(size_bytes)}" for size_bytes, name in contents)
    needed, capacity = float(p.memory.total_bytes), float(p.memory.capacity_bytes)
    share = f", {percent_text(needed / capacity)} of {bytes_text(capacity)}" if math.isfinite(capacity) else ""
    return f"Memory: {bytes_text(needed)}{share} ({listed}). {fit_sentence(p)}"


def _on_constants(p: Prediction) -> str:
    lines = ["Constants come from these files; fields in the second line of a file are estimates, not data:"]
    for spec in p.sources:
        titles = dict.fromkeys(source.title for source in spec.source if source.title != ESTIMATE)
        estimated = dict.fromkeys(name for source in spec.source if source.title == ESTIMATE for name in source.fields)
        lines.append(_indented(f"{spec.name}: {'; '.join(titles) or 'estimates only'}"))
        if estimated:
            lines.append(_indented(f"estimated: {', '.join(estimated)}", indent=4))
    return "\n".join(lines) if len(lines) > 1 else "Where the constants come from is not known."


def _indented(text: str, *, indent: int = 2) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 4))


def as_dict(p: Prediction) -> dict[str, Any]:
    """Return everything but the operations as plain values, for JSON."""
    capacity_bytes = float(p.memory.capacity_bytes)
    memory: dict[str, Any] = {f"{name}_bytes": size_bytes for name, size_bytes in memory_contents(p).items()}
    memory["total_bytes"] = float(p.memory.total_bytes)
    memory["capacity_bytes"] = capacity_bytes if math.isfinite(capacity_bytes) else None
    memory["fits"] = p.memory.fits
    return {
        "subject": p.subject,
        "target": p.target,
        "framework": p.framework,
        "batch_size": p.batch_size,
        "phase": p.phase,
        "dtype": p.dtype,
        "threads": p.threads,
        "step_s": p.step_s,
        "samples_per_s": p.samples_per_s,
        "workers": p.worker_count,
        "mean_staleness": p.mean_staleness,
        "server": _server_dict(p),
        "stages": p.stages.to_dicts(),
        "bottleneck": p.bottleneck,
        "parts": {name: float(getattr(p, name)) for name in PARTS},
        "totals": {name: float(getattr(p, name)) for name in TOTALS},
        "memory": memory,
        "remarks": list(p.remarks),
        "interval": _interval_dict(p),
        "constants": p.provenance.to_dicts(),
        "provenance": [{"file": spec.name, "sources": _source_dicts(spec)} for spec in p.sources],
    }


def _server_dict(p: Prediction) -> dict[str, Any] | None:
    """Memory and load of a parameter server; one that never bounds has no knee."""
    if p.agreement is None or p.agreement.server is None:
        return None
    found: dict[str, Any] = {"knee": None, "utilisation": None}
    if p.visits is not None:
        knee = float(p.visits.knee)
        found = {"knee": knee if math.isfinite(knee) else None, "utilisation": float(p.visits.server_utilisation)}
    return p.agreement.server.to_dict() | found


def _interval_dict(p: Prediction) -> dict[str, Any]:
    low_s, high_s = p.interval_s
    return {"level": p.interval.level, "low_s": low_s, "high_s": high_s, "variance_shares": p.interval.shares}


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
