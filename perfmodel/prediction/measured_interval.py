"""The interval of a prediction on a measured machine: from the scatter and the intervals of its classes of kernels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.cost.interval import interval_ends
from perfmodel.hardware.calibration import Z_80
from perfmodel.prediction.constants import StatedConstant
from perfmodel.prediction.doubt import Doubt
from perfmodel.prediction.interval import Interval
from perfmodel.prediction.measured_classes import ClassTime, class_times

if TYPE_CHECKING:
    from perfmodel.hardware.measured_machine import MeasuredMachine
    from perfmodel.prediction.basis import Basis

DEVIATION_OF_MEAN: Final = math.sqrt(math.pi / 2)
"""Standard deviation of a normal over its mean absolute value. [1]"""

LEVEL: Final = 0.8
"""Share of measured times that the intervals of a calibration's constants hold, and so those of predictions. [1]"""

_UNITS: Final = {"call_s": "s", "s_per_flop": "s/FLOP", "s_per_serial_step": "s"}


def measured_interval(machine: MeasuredMachine, basis: Basis) -> Interval:
    r"""Make the interval of a prediction on a measured machine.

    .. math:: \sigma^2 T^2 = \sum_g (t_g r_g)^2 + \sum_i (t_i s_i)^2 + \Big(\sum_g t_g r_g\Big)^2
              + T^2 (\sigma_\text{ref}^2 + \sigma_\text{drift}^2)

    Parameters
    ----------
    machine : MeasuredMachine
        The calibration. [-]
    basis : Basis
        What the prediction rests on. [-]

    Returns
    -------
    Interval
        Its ends and what they are made of. [s]

    Notes
    -----
    Distinct kernels scatter about their curves by r independently (``kernels``), each constant is uncertain by s
    (``constants``), the session had noise and drift (``session``). A part is shared by all kernels (``shared``): what a
    step does to caches, allocator and clock moves them together, about as far as one kernel scatters. A class by the
    curve of another errs as a whole (``stand_ins``). Ignores: that the machine is busier later than it was then.
    """
    prepared, timed = basis.prepared, basis.timed
    step_s = float(timed.parts.step_s)
    times = class_times(machine, prepared, timed)
    doubt = _doubt(machine, times, step_s)
    residual = [DEVIATION_OF_MEAN * each.measured.residual_percent / 100 for each in times]
    scatter = [each.seconds * spread / step_s for each, spread in zip(times, residual, strict=True)]
    session = machine.session
    variance = {
        "kernels": sum(float((each**2).sum()) for each in scatter),
        "constants": doubt.variance,
        "shared": sum(float(each.sum()) for each in scatter) ** 2,
        "stand_ins": sum(
            float(each.sum()) ** 2 for each, of_class in zip(scatter, times, strict=True) if of_class.stands_in
        ),
        "session": (session.reference_spread_percent / 100) ** 2 + (session.drift_percent / 100) ** 2,
    }
    whole = sum(variance.values())
    low_s, high_s = interval_ends(step_s, half_width=Z_80 * math.sqrt(whole))
    return Interval(
        low_s=float(low_s),
        high_s=float(high_s),
        level=LEVEL,
        shares={cause: part / whole for cause, part in variance.items() if part},
        doubt=doubt,
    )


def _doubt(machine: MeasuredMachine, times: tuple[ClassTime, ...], step_s: float) -> Doubt:
    """Return what each measured constant contributes; a constant of a class that stands in counts once for all."""
    seconds: dict[tuple[str, str], float] = {}
    entries = {}
    for each in times:
        entries[each.measured.name] = each.measured
        for constant, part in each.seconds_of.items():
            key = (each.measured.name, constant)
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
    sensitivity = np.array([seconds[key] / step_s for key in keys])
    spreads = np.array(spread)
    return Doubt(
        constants=tuple(stated),
        sensitivity=sensitivity,
        spread=spreads,
        contribution=(sensitivity * spreads) ** 2,
    )


def _spread_of(value: float, low: float, high: float) -> float:
    """Return the standard deviation of a constant's logarithm that the ends of its interval tell. [1]"""
    linear = (high - low) / (2 * Z_80 * value)
    if linear <= 1:
        return linear
    # Wider than the constant itself, as where a busy machine let it hardly be seen: the ratio of the ends tells more.
    return max(1.0, math.log(high / max(low, value**2 / high)) / (2 * Z_80))
