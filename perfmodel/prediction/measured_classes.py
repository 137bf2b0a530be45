"""What each class of kernels of a measured machine costs in a step, and how far that lies from what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.prediction.measured import CALL, ClassRows, MeasuredNumbers
from perfmodel.prediction.reuse_distance import step_order
from perfmodel.presentation.quantities import percent_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from perfmodel.hardware.measured_machine import KernelClass, MeasuredMachine
    from perfmodel.prediction.prepared import Prepared, TimedStep

TOLD: Final = 5
"""Classes that a remark lists; the others are counted. [1]"""

BEYOND: Final = 1.05
"""Factor beyond the calibrated range from which on it is told: its ends are rounded. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassTime:
    """One class of kernels in a step.

    Parameters
    ----------
    name : str
        The class. [-]
    measured : KernelClass
        Its curve's entry in the file: its own, or of the class that stands in. [-]
    seconds : ndarray, shape (rows of the class,)
        Time of each distinct kernel, all its operations together. [s]
    seconds_of : mapping of str to float
        Time that each constant makes. [s]
    flop_count, moved_bytes : ndarray, shape (rows of the class,)
        Arithmetic and traffic of one of each. [FLOP, B]
    operations : int
        Operations of the class. [1]
    """

    name: str
    measured: KernelClass
    seconds: NDArray[np.float64]
    seconds_of: Mapping[str, float]
    flop_count: NDArray[np.float64]
    moved_bytes: NDArray[np.float64]
    operations: int

    @property
    def stands_in(self) -> bool:
        """Whether the curve is another class's."""
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
    """Return what each class of kernels costs in a step.

    Parameters
    ----------
    machine : MeasuredMachine
        The calibration. [-]
    prepared : Prepared
        The step. [-]
    timed : TimedStep
        Its times. [s]

    Returns
    -------
    tuple of ClassTime
        The most expensive first.
    """
    numbers, table = timed.numbers, prepared.plan.table
    assert isinstance(numbers, MeasuredNumbers)
    classes = machine.classes(prepared.dtype)
    products = table.matmul.row_count
    counts = np.bincount(step_order(table).row, minlength=products + table.stream.row_count)
    matmul, stream = table.matmul.at(prepared.batch_size), table.stream.at(prepared.batch_size)
    stream_calls = np.broadcast_to(numbers.calls_of_stream, np.shape(stream["launches"]))
    found = []
    for columns, names, own_counts, calls in (
        (matmul, table.matmul_efficiency, counts[:products], np.ones(products)),
        (stream, table.stream_efficiency, counts[products:], stream_calls),
    ):
        flop_count = columns.get("flop_count")
        if flop_count is None:
            flop_count = 2 * columns["count"] * columns["m"] * columns["n"] * columns["k"]
        for each in numbers.class_rows(columns, names):
            times = own_counts[each.rows]
            seconds_of = _seconds_of(each, times, calls=calls[each.rows])
            kernel_s = each.arithmetic_s + each.memory_s
            if numbers.in_line:
                kernel_s = kernel_s + each.curve.constants.get(CALL, 0.0) * calls[each.rows]
            found.append(
                ClassTime(
                    name=each.name,
                    measured=classes[each.curve.name],
                    seconds=times * kernel_s,
                    seconds_of=seconds_of,
                    flop_count=flop_count[each.rows],
                    moved_bytes=(columns["read_bytes"] + columns["written_bytes"])[each.rows],
                    operations=int(times.sum()),
                )
            )
    return tuple(sorted(found, key=lambda each: -float(each.seconds.sum())))


def _seconds_of(each: ClassRows, times: NDArray[np.intp], *, calls: NDArray[np.float64]) -> dict[str, float]:
    """Return the time that each constant of a class makes in the step. [s]"""
    features = {CALL: calls, **each.features}
    constants = each.curve.constants
    seconds = {name: float((times * features[name]).sum() * value) for name, value in constants.items()}
    cold_s = float((times * each.cold_bytes).sum() * each.curve.cold_s_per_byte)
    return seconds | {"cold_s_per_byte": cold_s}


def extrapolation_remarks(machine: MeasuredMachine, prepared: Prepared, timed: TimedStep) -> tuple[str, ...]:
    """Say which kernels follow the curve of another class, and which lie outside what was measured.

    Parameters
    ----------
    machine : MeasuredMachine
        The calibration. [-]
    prepared : Prepared
        The step. [-]
    timed : TimedStep
        Its times. [s]

    Returns
    -------
    tuple of str
        Nothing where every kernel lies within the measured ones.
    """
    times = class_times(machine, prepared, timed)
    whole = sum(float(each.seconds.sum()) for each in times)
    standing = [each for each in times if each.stands_in]
    outside = sorted((each for each in times if each.beyond > BEYOND), key=lambda each: -each.beyond)
    remarks = []
    if standing:
        share = percent_text(sum(float(each.seconds.sum()) for each in standing) / whole)
        listed = _listed([f"{each.name} by {each.measured.name}" for each in standing])
        remarks.append(f"extrapolates, {share} of the kernels' time: classes without a curve of their own: {listed}")
    if outside:
        share = percent_text(sum(float(each.seconds.sum()) for each in outside) / whole)
        listed = _listed([f"{each.name} by a factor of {each.beyond:.3g}" for each in outside])
        remarks.append(f"extrapolates: kernels outside the measured FLOP or bytes of their class ({share}): {listed}")
    return tuple(remarks)


def _listed(entries: list[str]) -> str:
    further = f" and {len(entries) - TOLD} more" if len(entries) > TOLD else ""
    return ", ".join(entries[:TOLD]) + further
