"""A GPU with its libraries and a framework, as the plain numbers that the step's path wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.cost.gpu import stream_time, write_out_steps
from perfmodel.derived import derived
from perfmodel.framework.passes import pass_class
from perfmodel.hardware.gpu import STORAGE_TYPES
from perfmodel.numeric import first_array_length, maximum
from perfmodel.prediction.by_row import by_row, distinct_names, rows_named
from perfmodel.prediction.gpu_libraries import (
    REACH_VALUES,
    RECURRENT_TIMES,
    RECURRENT_VALUES,
    MatmulLibrary,
    RecurrentLibrary,
    StreamEfficiency,
    gpu_software,
    recurrent_library,
)
from perfmodel.prediction.gpu_products import product_times
from perfmodel.prediction.scaling import NO_FACTORS, Factors, scaled
from perfmodel.units import to_base_units

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.gpu import Gpu
    from perfmodel.hardware.library import LibraryProfile

Quantity = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNumbers:
    """Plain numbers of a GPU, its libraries and a framework: made in one place, floats, arrays or symbols.

    Parameters
    ----------
    peak_flop_per_s : float, ndarray or sympy.Expr
        Rate the schedulers can issue in products of the data type. [FLOP/s]
    lane_peak_flop_per_s : float, ndarray or sympy.Expr
        Rate of the plain lanes, which element-wise kernels use whatever the data type. [FLOP/s]
    bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Peak memory bandwidth. [B/s]
    unit_count : float
        Streaming multiprocessors. [1]
    l2_bytes : float
        Capacity of the L2 cache. [B]
    matmul_libraries : tuple of MatmulLibrary
        BLAS and DNN library; each shape class belongs to one of them. [-]
    recurrent_library : RecurrentLibrary or None
        The DNN library's recurrent layers, where it has any. [-]
    stream_efficiency : StreamEfficiency
        Fraction of bandwidth by pass, or class of pass. [1]
    serial_step_s : float
        Time in which one thread reads one element of a row that it reduces alone. [s]
    element_bytes : int
        Size of one element. [B]
    launch_s, dispatch_s, library_issue_s, step_overhead_s : float
        Launch gap, host time per launch by the framework and inside a library's call, host time per step. [s]
    overlap_exponent : float
        How well dispatch overlaps with the kernels. [1]
    is_plain : bool
        Whether all of these are single numbers, so that nobody need look for arrays or symbols among them. [-]
    """

    peak_flop_per_s: Quantity
    lane_peak_flop_per_s: Quantity
    bandwidth_bytes_per_s: Quantity
    unit_count: Quantity
    l2_bytes: Quantity
    matmul_libraries: tuple[MatmulLibrary, ...]
    recurrent_library: RecurrentLibrary | None
    stream_efficiency: StreamEfficiency
    serial_step_s: Quantity
    element_bytes: int
    launch_s: Quantity
    dispatch_s: Quantity
    library_issue_s: Quantity
    step_overhead_s: Quantity
    overlap_exponent: float
    # of init=False, so that a copy with another number in it has to find out again
    is_plain: bool = field(default=False, init=False)

    @property
    def queued(self) -> bool:
        """False: what a dispatch exposes is told by the overlap exponent, launch by launch."""
        return False

    @property
    def configuration_count(self) -> int | None:
        """Length of the arrays over configurations among the numbers; None where all are single. [1]"""
        if self.is_plain:
            return None
        values = [_OWN_VALUES(self)]
        values += [(*REACH_VALUES(reach), *of_device) for reach, *of_device in self.matmul_libraries]
        if self.recurrent_library is not None:
            values.append(RECURRENT_VALUES(self.recurrent_library))
        return first_array_length(chain.from_iterable(values))

    def matmul_times(self, columns: Mapping[str, Quantity], efficiency: tuple[str, ...]) -> tuple[Quantity, Quantity]:
        """Return compute and memory seconds of one launch of each matmul row. [s]"""
        timed = product_times(self.matmul_libraries, columns, efficiency, self)
        for name, times in RECURRENT_TIMES.items():
            if self.recurrent_library is not None and (named := rows_named(efficiency, (name,))) is not None:
                picked = {column: values[named.rows] for column, values in columns.items()}
                timed.append((named.rows, *times(self.recurrent_library, picked, self)))
        shape = np.shape(columns["m"])
        if len(timed) == 1 and len(timed[0][1]) == len(columns["m"]):
            return timed[0][1:]
        # A symbol among the numbers makes objects of the times, whatever the columns are.
        compute_s, memory_s = (
            np.empty(shape, dtype=np.result_type(*(times[branch] for times in timed))) for branch in (1, 2)
        )
        for rows, compute_of_rows, memory_of_rows in timed:
            compute_s[rows], memory_s[rows] = compute_of_rows, memory_of_rows
        return compute_s, memory_s

    def stream_times(self, columns: Mapping[str, Quantity], efficiency: tuple[str, ...]) -> tuple[Quantity, Quantity]:
        """Return compute and memory seconds of one launch of each stream row. [s]"""
        moved_bytes = columns["read_bytes"] + columns["written_bytes"]
        memory_s = stream_time(
            moved_bytes=moved_bytes,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
            efficiency=_efficiency_by_row(self.stream_efficiency, efficiency, moved_bytes.ndim),
        )
        # Rows are many or long: threads that wait for their loads do not add up, the longest row decides.
        waiting_s = columns["serial_steps"] * self.serial_step_s
        return columns["flop_count"] / self.lane_peak_flop_per_s, maximum(memory_s, waiting_s)


@derived
def _efficiency_by_row(known: StreamEfficiency, names: tuple[str, ...], axes: int) -> Any:
    """Return the fraction of bandwidth that each pass reaches, by its own name or by its class."""
    once, code_of_row = distinct_names(names)
    return by_row([known[name] if name in known else known[pass_class(name)] for name in once], code_of_row, axes=axes)


_OWN_VALUES = attrgetter(
    *(
        field.name
        for field in fields(GpuNumbers)
        if field.name not in ("matmul_libraries", "recurrent_library", "is_plain")
    )
)
"""All numbers of a GPU but those of its libraries."""


def _peaks(device: Gpu, dtypes: Sequence[str], factors: Factors) -> dict[str, Quantity]:
    """Return the rates that the board can issue, of data types and of the plain lanes, at the clocks it holds. [FLOP/s]

    Factors are on what the file lists of each type: which type products are computed in does not follow from them.
    """
    listed = {name: device.peak_flop_per_s(name) for name in dict.fromkeys((*dtypes, "fp32"))}
    peaks = scaled(listed, place=f"devices/{device.stem}/peak_tflop_per_s", factors=factors)
    fastest = {name: maximum(peak, peaks["fp32"]) if name in STORAGE_TYPES else peak for name, peak in peaks.items()}
    clocks = scaled(device.sustained_clocks_mhz, place=f"devices/{device.stem}/sustained_clock_mhz", factors=factors)
    shares = {arithmetic: clock / device.clock_boost_mhz for arithmetic, clock in clocks.items()}
    return {
        name: device.issue_limit * peak * shares.get(device.arithmetic_of(name), 1.0) for name, peak in fastest.items()
    }


WIDER: Final = {"fp8": "fp16", "fp16": "fp32", "bf16": "fp32", "tf32": "fp32"}
"""Type in which a library computes that has no tensor-core kernels for a type."""


def product_dtype(
    device: Gpu, profile: FrameworkProfile, libraries: Mapping[str, LibraryProfile], role: str, *, dtype: str
) -> str:
    """Return the type in which a library computes products of tensors of a type.

    Parameters
    ----------
    device : Gpu
        The device. [-]
    profile : FrameworkProfile
        The framework, which may let single precision round to TF32. [-]
    libraries : mapping of str to LibraryProfile
        Libraries by role; one older than the tensor cores widens what only they multiply. [-]
    role : str
        ``gpu_blas`` or ``gpu_dnn``. [-]
    dtype : str
        Data type of the tensors. [-]

    Returns
    -------
    str
        ``tf32`` for single precision where the framework allows it and device and library have it; a wider type where
        the library has no kernels for the tensor cores that the type needs; else ``dtype``. [-]
    """
    rounds = dtype == "fp32" and role in profile.library.tf32 and "tf32" in device.dtypes
    computed_in = "tf32" if rounds else dtype
    library = libraries[role]
    while device.needs_tensor_cores(computed_in) and not library.on_tensor_cores(
        device.architecture, dtype=computed_in
    ):
        computed_in = WIDER[computed_in]
    return computed_in


def gpu_numbers(
    device: Gpu,
    profile: FrameworkProfile,
    libraries: Mapping[str, LibraryProfile],
    *,
    dtype: str,
    element_bytes: int,
    host_slowdown: Quantity = 1.0,
    factors: Factors = NO_FACTORS,
) -> GpuNumbers:
    """Join a GPU's facts, its libraries' constants and a framework's constants into plain numbers.

    Parameters
    ----------
    device : Gpu
        The device. [-]
    profile : FrameworkProfile
        The framework. [-]
    libraries : mapping of str to LibraryProfile
        ``gpu_blas`` and ``gpu_dnn``. [-]
    dtype : str
        Data type. [-]
    element_bytes : int
        Size of one element. [B]
    host_slowdown : float or ndarray of shape (configurations,)
        Time of host code over that of the hosts that the framework's file speaks of. [1]
    factors : mapping of str to float or ndarray of shape (configurations,)
        Factors on constants by name. [1]

    Returns
    -------
    GpuNumbers
        Everything the step's path needs.
    """
    dtypes = tuple([product_dtype(device, profile, libraries, role, dtype=dtype) for role in ("gpu_blas", "gpu_dnn")])
    software = gpu_software(profile, (libraries["gpu_blas"], libraries["gpu_dnn"]), device, dtypes, factors=factors)
    launch = scaled({"latency_us": device.launch.latency_us}, place=f"devices/{device.stem}/launch", factors=factors)
    peaks = _peaks(device, (dtype, *dtypes), factors)
    bandwidth = {"bandwidth_gb_per_s": device.sustained_memory_bandwidth_bytes_per_s}
    (bandwidth_bytes_per_s,) = scaled(bandwidth, place=f"devices/{device.stem}/memory", factors=factors).values()
    clock_hz = device.clock_hz
    of_products, of_convolutions = peaks[dtypes[0]] / peaks[dtype], peaks[dtypes[1]] / peaks[dtype]
    written_steps = write_out_steps(
        peak_flop_per_s=peaks[dtype] * of_convolutions,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        element_bytes=element_bytes,
    )
    blas, dnn = software.reaches
    blas_latency, dnn_latency = software.latency_cycles
    numbers = GpuNumbers(
        peak_flop_per_s=peaks[dtype],
        lane_peak_flop_per_s=peaks["fp32"],
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        unit_count=device.unit_count,
        l2_bytes=device.l2_bytes,
        matmul_libraries=(
            MatmulLibrary(blas, of_products, blas_latency / clock_hz, software.ramp_steps),
            MatmulLibrary(dnn, of_convolutions, dnn_latency / clock_hz, written_steps),
        ),
        recurrent_library=recurrent_library(
            software.dnn, software.recurrent_menu, peak_ratio=of_convolutions, clock_hz=clock_hz
        ),
        stream_efficiency=software.stream_efficiency,
        serial_step_s=software.serial_row_cycles / clock_hz,
        element_bytes=element_bytes,
        launch_s=to_base_units("latency_us", launch["latency_us"]),
        dispatch_s=host_slowdown * software.dispatch_s,
        library_issue_s=host_slowdown * software.library_issue_s,
        step_overhead_s=host_slowdown * software.step_overhead_s,
        overlap_exponent=software.overlap_exponent,
    )
    if factors is NO_FACTORS and type(host_slowdown) is float:
        object.__setattr__(numbers, "is_plain", True)
    return numbers
