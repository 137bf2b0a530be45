"""Measured points as a roofline shows them: arithmetic per byte, and the rate that was reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.calibration.machine.benchmark import Point
from perfmodel.calibration.machine.columns import Machine, columns_of
from perfmodel.calibration.machine.journal import digest_of, journal_of, read_journal
from perfmodel.cost.measured_kernel import measured_kernel_time
from perfmodel.errors import ArgumentError
from perfmodel.framework.kernel_classes import pooled_classes
from perfmodel.hardware import spec_files
from perfmodel.presentation.measured_roofline import RooflinePoint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perfmodel.hardware.measured_machine import MeasuredMachine


@dataclass(frozen=True, slots=True)
class _Timed:
    point: Point
    fitted_s: float
    flop_count: float
    moved_bytes: float
    family: str


def measured_points(
    machine: MeasuredMachine, points: Sequence[Point], benchmarks: Callable[[str], Mapping[str, Any]]
) -> list[RooflinePoint]:
    """Return the points of a calibration with their fitted times.

    Parameters
    ----------
    machine : MeasuredMachine
        The calibration. [-]
    points : sequence of Point
        Its record. [-]
    benchmarks : callable
        Data type to benchmarks by class. [-]

    Returns
    -------
    list of RooflinePoint
        Those of classes that have a curve, of their own or of their pooled class. [-]
    """
    on = Machine.of(machine.machine.model_dump())
    by_dtype = {dtype: benchmarks(dtype) for dtype in machine.dtypes}
    timed = []
    for point in points:
        benchmark = by_dtype.get(point.dtype, {}).get(point.name)
        if benchmark is None or not benchmark.has_sizes(point.sizes):
            continue
        operation = benchmark.operation(point.sizes)
        columns = columns_of([operation], dtype=point.dtype, machine=on)
        of_dtype = machine.classes(point.dtype)
        curves = [of_dtype[name] for name in (point.name, *pooled_classes(point.name)) if name in of_dtype]
        curve = next((each for each in curves if each.family == columns.family), None)
        if curve is None:
            continue
        features = dict(zip(columns.names, columns.features[0].tolist(), strict=True))
        fitted_s = float(measured_kernel_time(features, curve.constants))
        timed.append(_Timed(point, fitted_s, columns.flop_count[0], columns.moved_bytes[0], columns.family))
    return [
        RooflinePoint(
            intensity=each.flop_count / each.moved_bytes,
            flop_per_s=each.flop_count / each.point.seconds,
            measured_s=each.point.seconds,
            fitted_s=each.fitted_s,
            group=each.family,
        )
        for each in timed
    ]


def roofline_of(file: str | Path, machine: MeasuredMachine) -> Figure:
    """Return the figure of a calibration: a roofline with its points, and fitted against measured times.

    Parameters
    ----------
    file : str or Path
        The calibration's file or name, beside which its record lies. [-]
    machine : MeasuredMachine
        The same, loaded. [-]

    Returns
    -------
    matplotlib.figure.Figure
        Two panels. [-]

    Raises
    ------
    ArgumentError
        If the record is not there, or is of another session.
    """
    from perfmodel.calibration.machine.calibrate import benchmark_table
    from perfmodel.presentation.measured_roofline import measured_roofline

    record = journal_of(spec_files.find("calibrations", file))
    if not record.is_file():
        allowed = f"a calibration beside which its record {record.name} lies: the points are not in the TOML itself"
        raise ArgumentError(argument="file", given=str(file), allowed=allowed)
    table = benchmark_table(machine.software.backend)
    read = read_journal(record, argument="file")["points"]
    digest, session = digest_of(read), machine.session
    if digest != (session.points_digest or digest) or len(read) != session.point_count:
        allowed = f"a calibration beside which its own record lies: the points of {record} are of another session"
        raise ArgumentError(argument="file", given=str(file), allowed=allowed)
    points = measured_points(machine, read, lambda _: table)
    peaks = machine.peaks
    return measured_roofline(
        points, flop_per_s=max(peaks.gemm_flop_per_s.values()), bytes_per_s=peaks.stream_bytes_per_s, title=machine.name
    )
