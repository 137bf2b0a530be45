"""Interval of a prediction on a measured machine: from the kernel classes in its step and how far they extrapolate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.cost.interval_width import interval_ends
from perfmodel.hardware.fit_file import Z_80
from perfmodel.hardware.interval_scale import load_interval_scale
from perfmodel.hardware.measured_machine import AllReduce, HostCopy, KernelClass, MeasuredMachine
from perfmodel.prediction.certainty.prediction_interval import (
    NONE_UNCERTAIN,
    Interval,
    Uncertainty,
    exchange_uncertainty,
)
from perfmodel.prediction.device.factors import StatedConstant
from perfmodel.prediction.device.measured_target import CALL, ClassRows, MeasuredNumbers, MeasuredTarget
from perfmodel.prediction.device.reuse_distance import step_order
from perfmodel.prediction.job.agreements import measured_sum_of, with_measured_sum
from perfmodel.presentation.quantities import percent_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from perfmodel.prediction.certainty.basis import Basis
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.job.stage import TimedStep


DEVIATION_OF_MEAN: Final = math.sqrt(math.pi / 2)
"""Ratio of a normal distribution's standard deviation to its mean absolute value. [1]"""

LEVEL: Final = 0.8
"""Share of measured times inside the intervals of a calibration's constants, and so inside those of predictions. [1]"""

_UNITS: Final = {"call_s": "s", "s_per_flop": "s/FLOP", "s_per_serial_step": "s"}


def measured_interval(machine: MeasuredMachine, basis: Basis) -> Interval:
    r"""Compute the interval of a prediction on a measured machine.

    .. math:: \sigma^2 T^2 = \sum_g (t_g r_g)^2 + \sum_i (t_i s_i)^2 + \Big(\sum_g t_g r_g\Big)^2
              + T^2 (\sigma_\text{ref}^2 + \sigma_\text{drift}^2)

    Notes
    -----
    Kernels scatter independently around their curves by r (``kernels``), every constant is uncertain by s
    (``constants``), and the session had noise and drift (``session``), which covers copies and sums that it measured;
    exchanges over a system's links err as those of any device do (``exchange``). Caches, allocator and clock shift all
    kernels of a step together, by about the scatter of one kernel (``shared``). If another class's curve times a class,
    all its kernels err together (``stand_ins``). Ignores: that the machine may be busier now than when it was measured.
    """
    prepared, timed = basis.prepared, basis.timed
    step_s = float(timed.parts.step_s)
    times = class_times(machine, prepared, timed)
    uncertainty, exchange = _uncertainty(machine, times, basis), _exchange(prepared, timed)
    residual = [DEVIATION_OF_MEAN * class_time.measured.residual_percent / 100 for class_time in times]
    scatter = [class_time.seconds * spread / step_s for class_time, spread in zip(times, residual, strict=True)]
    session = machine.session
    variance = {
        "kernels": sum(float((share**2).sum()) for share in scatter),
        "constants": uncertainty.variance,
        "shared": sum(float(share.sum()) for share in scatter) ** 2,
        "stand_ins": sum(
            float(share.sum()) ** 2 for share, of_class in zip(scatter, times, strict=True) if of_class.stands_in
        ),
        "exchange": exchange.variance,
        "session": (session.reference_spread_percent / 100) ** 2 + (session.drift_percent / 100) ** 2,
    }
    whole = sum(variance.values())
    low_s, high_s = interval_ends(step_s, half_width=Z_80 * math.sqrt(whole))
    return Interval(
        low_s=float(low_s),
        high_s=float(high_s),
        level=LEVEL,
        shares={cause: float(part / whole) for cause, part in variance.items() if part},
        uncertainty=uncertainty,
        exchange=exchange,
    )


def _exchange(prepared: Prepared, timed: TimedStep) -> Uncertainty:
    """Contribution of exchanges over a system's links; none where their sum was measured."""
    if measured_sum_of(prepared.agreement) is not None:
        return NONE_UNCERTAIN
    return exchange_uncertainty(prepared, timed, scale=load_interval_scale(f"{prepared.target.processor}_80"))


NUDGE: Final = 1e-3
"""Relative change of a measured rate or latency by which its sensitivity is found. [1]"""

EXCHANGED_BY: Final = {"latency_s": "s", "bytes_per_s": "B/s"}
"""Constants of measured copies and sums, with their units."""


def _exchanges(machine: MeasuredMachine, basis: Basis, place: str) -> dict[StatedConstant, float]:
    """Measured constants of copies and sums that a step in a system uses, with its sensitivity to each. [1]"""
    prepared, sensitivities = basis.prepared, {}
    target, part = prepared.target, prepared.target.system_part
    if part is None:
        return {}
    summed = measured_sum_of(prepared.agreement)
    if part.computes_on_hosts and basis.timed.parts.sync_s and basis.job is not None:
        summed = part.measured_between_hosts
    assert isinstance(target, MeasuredTarget)
    used: dict[str, HostCopy | AllReduce | None] = {
        "host_copy": target.copied(prepared.profile, pinned=prepared.pinned),
        "all_reduce": summed,
    }
    for (table, row), (field, unit) in product(used.items(), EXCHANGED_BY.items()):
        if row is None:
            continue
        value = getattr(row, field)
        nudged_row = row.model_copy(update={field: (1 - NUDGE) * value})
        rows = tuple(nudged_row if entry is row else entry for entry in getattr(machine, table))
        nudged = machine.model_copy(update={table: rows})
        nudged_job = _nudged(basis, nudged, nudged_row)
        step_s = float(nudged_job.composed(basis.timed.stages, basis.factors).parts.step_s)
        name, source = f"{place}/{table}.{field}", machine.source_of(table)
        constant = StatedConstant(name=name, value=value, unit=unit, described=None, source=source)
        sensitivities[constant] = math.log(step_s / float(basis.timed.parts.step_s)) / math.log1p(-NUDGE)
    return sensitivities


def _nudged(basis: Basis, machine: MeasuredMachine, row: HostCopy | AllReduce) -> Prepared:
    """Return the same job on a machine with one changed row of measured copies or sums."""
    prepared, target, part = basis.prepared, basis.prepared.target, basis.prepared.target.system_part
    assert part is not None
    if part.computes_on_hosts:  # the change is in the links, on which the job is placed anew
        assert basis.job is not None
        return basis.job.replace(device=machine).prepared
    agreement = prepared.agreement
    if isinstance(row, AllReduce):
        agreement = with_measured_sum(agreement, row)
    system_part = replace(part, measured=machine)
    changed = MeasuredTarget(machine, threads=target.threads, system_part=system_part)
    return replace(prepared, target=changed, agreement=agreement)


def _uncertainty(machine: MeasuredMachine, times: tuple[ClassTime, ...], basis: Basis) -> Uncertainty:
    """Contribution of each measured constant; a constant that also times other classes counts once for all of them."""
    seconds: dict[tuple[str, str], float] = {}
    step_s, entries = float(basis.timed.parts.step_s), {}
    for class_time in times:
        entries[class_time.measured.name] = class_time.measured
        for constant, part in class_time.seconds_of.items():
            key = (class_time.measured.name, constant)
            seconds[key] = seconds.get(key, 0.0) + part
    keys = [key for key, part in seconds.items() if part]
    source = machine.source_of("kernel")
    place = f"calibrations/{machine.stem or 'measured'}"
    stated, spread = [], []
    for name, constant in keys:
        entry = entries[name]
        value = entry.cold_s_per_byte if constant == "cold_s_per_byte" else entry.constants[constant]
        low, high = entry.low.get(constant, value), entry.high.get(constant, value)
        unit = _UNITS.get(constant, "s/B")
        stated.append(
            StatedConstant(name=f"{place}/{name}.{constant}", value=value, unit=unit, described=None, source=source)
        )
        spread.append(_spread_of(value, low, high))
    exchanges = _exchanges(machine, basis, place)
    sensitivity = np.array([*(seconds[key] / step_s for key in keys), *exchanges.values()])
    spreads = np.array([*spread, *(0.0 for _ in exchanges)])  # the session's noise covers them
    return Uncertainty(
        constants=(*stated, *exchanges),
        sensitivity=sensitivity,
        spread=spreads,
        contribution=(sensitivity * spreads) ** 2,
    )


def _spread_of(value: float, low: float, high: float) -> float:
    """Return the standard deviation of the logarithm of a constant, from the ends of its interval. [1]"""
    linear = (high - low) / (2 * Z_80 * value)
    if linear <= 1:
        return linear
    # Wider than the constant itself, e.g. hardly measurable on a busy machine: the ratio of the ends tells more.
    return max(1.0, math.log(high / max(low, value**2 / high)) / (2 * Z_80))


TOLD: Final = 5
"""Classes that a remark lists; it only counts the others. [1]"""

BEYOND: Final = 1.05
"""Extrapolation factor from which a remark is made; above 1, because the ends of the range are rounded. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassTime:
    """One class of kernels in a step."""

    name: str
    measured: KernelClass
    seconds: NDArray[np.float64]
    seconds_of: Mapping[str, float]
    flop_count: NDArray[np.float64]
    moved_bytes: NDArray[np.float64]
    operations: int

    @property
    def stands_in(self) -> bool:
        """Whether the curve belongs to another class."""
        return self.measured.name != self.name

    @property
    def beyond(self) -> float:
        """Largest factor by which a kernel lies outside the calibrated range; 1 inside it. [1]"""
        factors = [1.0]
        for values, (low, high) in (
            (self.flop_count, self.measured.flop_range),
            (self.moved_bytes, self.measured.byte_range),
        ):
            used = values[values > 0]
            if used.size and high > 0:
                factors += [float(used.max()) / high, low / float(used.min())]
        return max(factors)


def class_times(machine: MeasuredMachine, prepared: Prepared, timed: TimedStep) -> tuple[ClassTime, ...]:
    """Time of each class of kernels in a step, longest first."""
    numbers, table = timed.numbers, prepared.lowered.table
    assert isinstance(numbers, MeasuredNumbers)
    classes = machine.classes(prepared.dtype)
    products = table.matmul.row_count
    counts = np.bincount(step_order(table).row, minlength=products + table.stream.row_count)
    matmul, stream = table.matmul.at(prepared.batch_size), table.stream.at(prepared.batch_size)
    stream_calls = np.broadcast_to(numbers.calls_of_stream, np.shape(stream["launches"]))
    class_times = []
    for columns, names, own_counts, calls in (
        (matmul, table.matmul_efficiency, counts[:products], np.ones(products)),
        (stream, table.stream_efficiency, counts[products:], stream_calls),
    ):
        flop_count = columns.get("flop_count")
        if flop_count is None:
            flop_count = 2 * columns["count"] * columns["m"] * columns["n"] * columns["k"]
        for class_rows in numbers.class_rows(columns, names):
            times = own_counts[class_rows.rows]
            seconds_of = _seconds_of(class_rows, times, calls=calls[class_rows.rows])
            kernel_s = class_rows.arithmetic_s + class_rows.memory_s
            if numbers.in_line:
                kernel_s = kernel_s + class_rows.curve.constants.get(CALL, 0.0) * calls[class_rows.rows]
            class_times.append(
                ClassTime(
                    name=class_rows.name,
                    measured=classes[class_rows.curve.name],
                    seconds=times * kernel_s,
                    seconds_of=seconds_of,
                    flop_count=flop_count[class_rows.rows],
                    moved_bytes=(columns["read_bytes"] + columns["written_bytes"])[class_rows.rows],
                    operations=int(times.sum()),
                )
            )
    return tuple(sorted(class_times, key=lambda class_time: -float(class_time.seconds.sum())))


def _seconds_of(class_rows: ClassRows, times: NDArray[np.intp], *, calls: NDArray[np.float64]) -> dict[str, float]:
    """Time that each constant of a class adds to the step. [s]"""
    features = {CALL: calls, **class_rows.features}
    constants = class_rows.curve.constants
    seconds = {name: float((times * features[name]).sum() * value) for name, value in constants.items()}
    cold_s = float((times * class_rows.cold_bytes).sum() * class_rows.curve.cold_s_per_byte)
    return seconds | {"cold_s_per_byte": cold_s}


def extrapolation_remarks(machine: MeasuredMachine, prepared: Prepared, timed: TimedStep) -> tuple[str, ...]:
    """Remarks on kernels timed by another class's curve, and on kernels outside the measured range."""
    times = class_times(machine, prepared, timed)
    whole = sum(float(class_time.seconds.sum()) for class_time in times)
    standing = [class_time for class_time in times if class_time.stands_in]
    outside = sorted((class_time for class_time in times if class_time.beyond > BEYOND), key=lambda time: -time.beyond)
    remarks = []
    if standing:
        share = percent_text(sum(float(class_time.seconds.sum()) for class_time in standing) / whole)
        listed = _listed([f"{class_time.name} by {class_time.measured.name}" for class_time in standing])
        remarks.append(f"extrapolates, {share} of the kernels' time: classes without a curve of their own: {listed}")
    if outside:
        share = percent_text(sum(float(class_time.seconds.sum()) for class_time in outside) / whole)
        listed = _listed([f"{class_time.name} by a factor of {class_time.beyond:.3g}" for class_time in outside])
        remarks.append(f"extrapolates: kernels outside the measured FLOP or bytes of their class ({share}): {listed}")
    return tuple(remarks)


def _listed(entries: list[str]) -> str:
    further = f" and {len(entries) - TOLD} more" if len(entries) > TOLD else ""
    return ", ".join(entries[:TOLD]) + further
