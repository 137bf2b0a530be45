"""Tables of a calibration: its classes, and the differences between two calibrations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.calibration.benchmark import Point
from perfmodel.calibration.classes import agreement, columns_of
from perfmodel.calibration.journal import digest_of, journal_of, read_journal
from perfmodel.cost.measured_kernel import measured_kernel_time
from perfmodel.errors import ArgumentError
from perfmodel.files import is_file
from perfmodel.framework.measured_lowering import pooled_classes
from perfmodel.hardware import spec_files
from perfmodel.hardware.fit_file import Z_80
from perfmodel.presentation.figures import RooflinePoint
from perfmodel.presentation.quantities import byte_rate_text, seconds_text
from perfmodel.presentation.tables import Table, facts_text, row_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perfmodel.hardware.measured_machine import KernelClass, MeasuredMachine
    from perfmodel.hardware.source import SpecTable


MAIN: Final = ("s_per_flop", "s_per_byte", "s_per_far_byte", "s_per_read_byte", "call_s")
"""Constants by precedence: the first in this order that a class has is its main constant."""

HEADINGS: Final = {"kernel_class": "class"}

SAME_CLOCK: Final = 0.02
"""Change of the clock below which it counts as unchanged [1]."""


def _rate(kernel: KernelClass) -> str:
    name = next((constant for constant in MAIN[:-1] if kernel.constants.get(constant)), None)
    if name is None:
        return ""
    value = kernel.constants[name]
    low, high = kernel.low.get(name, value), kernel.high.get(name, value)
    unit = "GFLOP/s" if name == "s_per_flop" else "GB/s"
    return f"{1e-9 / value:.3g} {unit} ({1e-9 / high:.3g} to {1e-9 / low:.3g})"


def class_table(machine: MeasuredMachine) -> Table[Any]:
    """Return the quality of a calibration class by class."""
    rows = [
        {
            "kernel_class": kernel.name,
            "dtype": kernel.dtype,
            "points": kernel.point_count,
            "residual_percent": kernel.residual_percent,
            "call_us": 1e6 * kernel.constants.get("call_s", 0.0),
            "rate": _rate(kernel),
        }
        for kernel in machine.kernel
    ]
    return row_table(rows, title="classes of kernels", headings=HEADINGS)


def session_facts(machine: MeasuredMachine) -> dict[str, Any]:
    """Return facts of the measuring session by name."""
    session, peaks = machine.session, machine.peaks
    best = ", ".join(f"{rate / 1e9:.4g} GFLOP/s in {dtype}" for dtype, rate in peaks.gemm_flop_per_s.items())
    facts: dict[str, Any] = {
        "machine": machine.describe(),
        "versions": _versions(machine),
        "measuring": f"{session.seconds:.0f} s, {session.point_count:,} points, {session.retaken} of them taken twice",
        "reference kernel": f"spread {session.reference_spread_percent:.1f} %, drift {session.drift_percent:.1f} %",
        "repeats": f"within {Z_80 * math.sqrt(2) * session.repeat_spread_percent:.1f} % of each other, 80 % of them"
        if session.repeat_spread_percent is not None
        else None,
        "best rates": f"{best}; {peaks.stream_bytes_per_s / 1e9:.3g} GB/s",
        **surroundings(machine),
        "allocator": session.allocator,
        "notes": "; ".join(session.notes) or None,
    }
    return {name: value for name, value in facts.items() if value is not None}


CALLS: Final = {
    "grad_forward_s": "recording an operation",
    "backward_s": "a backward operation",
    "parameter_s": "an optimizer's tensor",
    "step_s": "a step",
    "dispatch_s": "a launch",
}
"""Overhead -> its description."""


def surroundings(machine: MeasuredMachine) -> dict[str, str]:
    """Describe measurements other than kernels: calls, fresh memory, copies, processes, the disk."""
    calls = [
        f"{seconds_text(seconds)} for {of}"
        for name, of in CALLS.items()
        if (seconds := getattr(machine.overheads, name)) > 0
    ]
    copies = [
        f"{byte_rate_text(copy.bytes_per_s)} {copy.direction.replace('_', ' ')}, "
        f"{'pinned' if copy.pinned else 'pageable'} (the smallest {seconds_text(copy.latency_s)})"
        for copy in machine.host_copy
    ]
    sums = [
        f"{byte_rate_text(measured.bytes_per_s)} over {measured.process_count} processes by {measured.library} "
        f"(the smallest {seconds_text(measured.latency_s)})"
        for measured in machine.all_reduce
    ]
    disks = [
        f"{byte_rate_text(disk.sequential_bytes_per_s)}, {seconds_text(disk.random_read_s)} for a random read; "
        f"{disk.note}"
        for disk in machine.storage
    ]
    page_s = machine.overheads.page_fault_s
    page = [f"{seconds_text(page_s)} for the first touch of a page; in no prediction"] if page_s else []
    measured = {"calls": calls, "fresh memory": page, "host copies": copies, "all-reduce": sums, "disk": disks}
    return {name: "; ".join(words) for name, words in measured.items() if words}


def _versions(machine: MeasuredMachine) -> str:
    content = machine.software.model_dump(exclude_none=True, exclude={"backend"})
    return ", ".join(f"{name} {version}" for name, version in content.items())


def report_text(machine: MeasuredMachine) -> str:
    """Return a calibration in words: the session, and a table of its classes."""
    table = class_table(machine)
    return f"{facts_text(session_facts(machine))}\n\n{table.to_text(max_rows=len(table))}"


def constants_of(machine: MeasuredMachine) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    """Return (class, data type, constant) -> value and the ends of its interval."""
    return {
        (kernel.name, kernel.dtype, name): (value, kernel.low.get(name, value), kernel.high.get(name, value))
        for kernel in machine.kernel
        for name, value in kernel.constants.items()
    }


def _changed(old: MeasuredMachine, new: MeasuredMachine) -> list[dict[str, Any]]:
    """Return the constants whose intervals in two calibrations do not overlap, the most changed first."""
    before, after = constants_of(old), constants_of(new)
    rows = []
    for key in (key for key in before if key in after):
        (value, low, high), (now, now_low, now_high) = before[key], after[key]
        if now_high < low or high < now_low:
            kernel_class, dtype, constant = key
            rows.append(
                {
                    "kernel_class": kernel_class,
                    "dtype": dtype,
                    "constant": constant,
                    "old": f"{value:.3g} ({low:.3g} to {high:.3g})",
                    "new": f"{now:.3g} ({now_low:.3g} to {now_high:.3g})",
                    "ratio": now / value if value else math.inf,
                }
            )
    return sorted(rows, key=lambda row: -abs(math.log(row["ratio"])) if row["ratio"] > 0 else 0)


def _differing(old: SpecTable, new: SpecTable) -> str:
    before, after = (table.model_dump(exclude_none=True) for table in (old, new))
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return "; ".join(f"{name}: {before.get(name)} -> {after.get(name)}" for name in names) or "the same"


def _clock_change(old: MeasuredMachine, new: MeasuredMachine) -> str | None:
    before, after = old.session.clock_mhz, new.session.clock_mhz
    if not before or not after:
        return None
    change = after / before - 1
    return f"{before:.0f} -> {after:.0f} MHz ({100 * change:+.1f} %)" if abs(change) > SAME_CLOCK else "the same"


def datasheet_gaps(machine: MeasuredMachine) -> dict[str, str]:
    """Return the share reached of the data sheet's peak, by data type; empty if the file names no data sheet.

    The peak is that of the cores that worked, on as many sockets as they occupy.
    """
    on = machine.machine
    if on.datasheet is None:
        return {}
    from perfmodel.hardware.catalogue import load_device

    vendor: Any = load_device(on.datasheet)
    if vendor.kind != on.processor:
        kinds = f"is of a {vendor.kind.upper()}, not of a {on.processor.upper()}"
        return {"data sheet": f"not compared: {on.datasheet} {kinds}"}
    cores, sockets = {}, 1
    if on.threads is not None:
        working = min(on.threads, on.core_count)  # two threads of a core have one peak
        sockets = math.ceil(working / vendor.core_count)
        cores = {"active_cores": math.ceil(working / sockets)}
    several = f" of {sockets} sockets" if sockets > 1 else ""
    gaps = {}
    for dtype, rate in machine.peaks.gemm_flop_per_s.items():
        if dtype in vendor.dtypes:
            peak = sockets * vendor.peak_flop_per_s(dtype, **cores)
            gaps[f"data sheet {dtype}"] = f"{100 * rate / peak:.0f} % of {peak / 1e9:.4g} GFLOP/s{several}"
    bandwidth = sockets * vendor.memory_bandwidth_bytes_per_s
    share = machine.peaks.stream_bytes_per_s / bandwidth
    return gaps | {"data sheet bandwidth": f"{100 * share:.0f} % of {bandwidth / 1e9:.4g} GB/s{several}"}


def _diff_facts(old: MeasuredMachine, new: MeasuredMachine) -> dict[str, Any]:
    agreed = agreement(
        {"/".join(key): value for key, value in constants_of(old).items()},
        {"/".join(key): value for key, value in constants_of(new).items()},
    )
    rates = {
        dtype: f"{100 * (new.peaks.gemm_flop_per_s[dtype] / rate - 1):+.1f} %"
        for dtype, rate in old.peaks.gemm_flop_per_s.items()
        if dtype in new.peaks.gemm_flop_per_s
    }
    stream = 100 * (new.peaks.stream_bytes_per_s / old.peaks.stream_bytes_per_s - 1)
    return {
        "machine": _differing(old.machine, new.machine),
        "software": _differing(old.software, new.software),
        "clock": _clock_change(old, new) or "not recorded",
        "best products": ", ".join(f"{dtype} {change}" for dtype, change in rates.items()) or "no data type in common",
        "best stream": f"{stream:+.1f} %",
        "constants": f"{agreed['shared']} in common; the intervals of {100 * agreed['overlapping']:.0f} % overlap, and "
        f"{100 * agreed['inside']:.0f} % are now inside the earlier interval (median half width "
        f"{agreed['half_width_percent']:.0f} %)",
        **datasheet_gaps(new),
    }


def diff_text(old: MeasuredMachine, new: MeasuredMachine) -> str:
    """Describe the differences between two calibrations: software, clock, constants beyond their intervals."""
    facts, changed = facts_text(_diff_facts(old, new)), _changed(old, new)
    table = row_table(changed, title="constants beyond their intervals", headings=HEADINGS)
    return f"{facts}\n\n{table.to_text()}" if changed else facts


def diff_content(old: MeasuredMachine, new: MeasuredMachine) -> dict[str, Any]:
    """Return the differences as plain values: facts by name, and ``changed`` constants."""
    return {**_diff_facts(old, new), "changed": _changed(old, new)}


def measured_points(
    machine: MeasuredMachine, points: Sequence[Point], benchmarks: Callable[[str], Mapping[str, Any]]
) -> list[RooflinePoint]:
    """Return the points of a calibration with their fitted times."""
    by_dtype = {dtype: benchmarks(dtype) for dtype in machine.dtypes}
    fitted_points = []
    for point in points:
        benchmark = by_dtype.get(point.dtype, {}).get(point.name)
        if benchmark is None or not benchmark.has_sizes(point.sizes):
            continue
        columns = columns_of([benchmark.operation(point.sizes)], dtype=point.dtype, machine=machine.machine)
        of_dtype = machine.classes(point.dtype)
        curves = [of_dtype[name] for name in (point.name, *pooled_classes(point.name)) if name in of_dtype]
        curve = next((fitted for fitted in curves if fitted.family == columns.family), None)
        if curve is None:
            continue
        features = dict(zip(columns.names, columns.features[0].tolist(), strict=True))
        fitted_points.append(
            RooflinePoint(
                intensity=columns.flop_count[0] / columns.moved_bytes[0],
                flop_per_s=columns.flop_count[0] / point.seconds,
                measured_s=point.seconds,
                fitted_s=float(measured_kernel_time(features, curve.constants)),
                group=columns.family,
            )
        )
    return fitted_points


def roofline_of(file: str | Path, machine: MeasuredMachine) -> Figure:
    """Draw a calibration: a roofline with its points, and fitted against measured times."""
    from perfmodel.calibration.calibrate import benchmark_table
    from perfmodel.presentation.figures import measured_roofline

    record = journal_of(spec_files.find("calibrations", file))
    if not is_file(record):
        allowed = f"a calibration with its record {record.name} in the same folder; the points are not in the TOML"
        raise ArgumentError(argument="file", given=str(file), allowed=allowed)
    table = benchmark_table(machine.software.backend)
    read = read_journal(record, argument="file")["points"]
    digest, session = digest_of(read), machine.session
    if digest != (session.points_digest or digest) or len(read) != session.point_count:
        allowed = f"a calibration with its own record; the points of {record} are of another session"
        raise ArgumentError(argument="file", given=str(file), allowed=allowed)
    points = measured_points(machine, read, lambda _: table)
    peaks = machine.peaks
    return measured_roofline(
        points, flop_per_s=max(peaks.gemm_flop_per_s.values()), bytes_per_s=peaks.stream_bytes_per_s, title=machine.name
    )
