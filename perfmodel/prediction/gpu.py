"""A GPU with its libraries and a framework, as the plain numbers that the step's path wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.cost.gpu import stream_time
from perfmodel.cost.tile_output import write_out_steps
from perfmodel.derived import derived
from perfmodel.framework.passes import pass_class
from perfmodel.hardware.gpu import STORAGE_TYPES
from perfmodel.numeric import first_array_length, maximum
from perfmodel.prediction.by_row import by_row, distinct_names, rows_named
from perfmodel.prediction.gpu_libraries import (
    REACH_VALUES,
    RECURRENT_PREFIX,
    RECURRENT_TIMES,
    RECURRENT_VALUES,
    MatmulLibrary,
    MatmulReach,
    RecurrentLibrary,
    matmul_reach,
    recurrent_library,
)
from perfmodel.prediction.gpu_products import product_times
from perfmodel.prediction.scaling import NO_FACTORS, Factors, framework_constants, library_constants, scaled
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
    stream_efficiency : mapping of str to float
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
    stream_efficiency: Mapping[str, Quantity]
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
        names, code_of_row = distinct_names(efficiency)
        known = self.stream_efficiency
        of_name = [known[name] if name in known else known[pass_class(name)] for name in names]
        memory_s = stream_time(
            moved_bytes=moved_bytes,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
            efficiency=by_row(of_name, code_of_row, axes=moved_bytes.ndim),
        )
        # Rows are many or long: threads that wait for their loads do not add up, the longest row decides.
        waiting_s = columns["serial_steps"] * self.serial_step_s
        return columns["flop_count"] / self.lane_peak_flop_per_s, maximum(memory_s, waiting_s)


_OWN_VALUES = attrgetter(
    *(
        field.name
        for field in fields(GpuNumbers)
        if field.name not in ("matmul_libraries", "recurrent_library", "is_plain")
    )
)
"""All numbers of a GPU but those of its libraries."""


def _peaks(device: Gpu, dtypes: Sequence[str], factors: Factors) -> dict[str, Quantity]:
    """Return the rates that the schedulers can issue, of data types and of the plain lanes. [FLOP/s]

    Factors are on what the file lists of each type: which type products are computed in does not follow from them.
    """
    listed = {name: device.peak_flop_per_s(name) for name in dict.fromkeys((*dtypes, "fp32"))}
    peaks = scaled(listed, place=f"devices/{device.stem}/peak_tflop_per_s", factors=factors)
    fastest = {name: maximum(peak, peaks["fp32"]) if name in STORAGE_TYPES else peak for name, peak in peaks.items()}
    return {name: device.issue_limit * peak for name, peak in fastest.items()}


BLAS_SHAPE_CLASSES = ("gemm",)
"""Shape classes of products that the BLAS runs; every other class is the DNN library's."""

FRAMEWORK_PASS_CLASSES = ("elementwise", "reduction", "transpose", "gather", "update")
"""Classes of passes whose bandwidth fraction is the framework's own."""

_BANDWIDTH_OF_PASS: Final = {name: f"bandwidth_fraction_{name}" for name in FRAMEWORK_PASS_CLASSES}

LIBRARY_PASSES = ("im2col", "fft_transform", "winograd_transform")
"""Passes that belong to a convolution algorithm of the DNN library."""

NOT_SHAPE_CLASSES = frozenset(
    (
        *LIBRARY_PASSES,
        "tile_rows",
        "tile_columns",
        "tile_efficiency",
        "split_k",
        "latency_cycles",
        "matmul_bandwidth_fraction",
        "translation_efficiency",
        "architecture_factor",
        "issue_us",
    )
)
"""Constants of a DNN library that are no fraction of peak of a shape class."""


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


@lru_cache(maxsize=64)
def _convolution_classes(constants: tuple[str, ...]) -> tuple[str, ...]:
    """Return which constants of a DNN library are a fraction of peak of a shape class."""
    return tuple(name for name in constants if name not in NOT_SHAPE_CLASSES and not name.startswith(RECURRENT_PREFIX))


def _blas_reach(blas: Mapping[str, Any], calls: Quantity) -> MatmulReach:
    skinny = calls * blas["skinny_bandwidth_fraction"]
    return matmul_reach(blas, BLAS_SHAPE_CLASSES, calls=calls, skinny_bandwidth_fraction=skinny)


def _dnn_reach(dnn: Mapping[str, Any], _: Quantity) -> MatmulReach:
    # A convolution's product reaches the same bandwidth whatever its extents: it reads images, not columns.
    return matmul_reach(dnn, _convolution_classes(tuple(dnn)), skinny_bandwidth_fraction=None)


_REACH_OF_ROLE: Final = {"gpu_blas": _blas_reach, "gpu_dnn": _dnn_reach}
"""Role of a library to what it reaches, of its constants and of what a framework's calls leave of a BLAS's rate."""


@derived
def _stated_reach(
    library: LibraryProfile, role: str, calls: float, architecture: str, device: str, dtype: str
) -> MatmulReach:
    """Return what a library reaches by its file, once for each."""
    return _REACH_OF_ROLE[role](library.constants_for(architecture, device=device, dtype=dtype), calls)


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
    dtypes = {role: product_dtype(device, profile, libraries, role, dtype=dtype) for role in ("gpu_blas", "gpu_dnn")}
    blas, dnn = (
        library_constants(libraries[role], device, factors=factors, dtype=of_role) for role, of_role in dtypes.items()
    )
    own = framework_constants(profile, "gpu", factors=factors)
    launch = scaled({"latency_us": device.launch.latency_us}, place=f"devices/{device.stem}/launch", factors=factors)
    peaks, bandwidth = (
        _peaks(device, (dtype, *dtypes.values()), factors),
        device.sustained_memory_bandwidth_bytes_per_s,
    )
    memory = scaled({"bandwidth_gb_per_s": bandwidth}, place=f"devices/{device.stem}/memory", factors=factors)
    peak_ratios = [peaks[of_role] / peaks[dtype] for of_role in dtypes.values()]
    calls = own["blas_efficiency"]
    of_blas, of_dnn = (
        _stated_reach(libraries[role], role, calls, device.architecture, device.stem, of_role)
        if factors is NO_FACTORS
        else _REACH_OF_ROLE[role](constants, calls)
        for (role, of_role), constants in zip(dtypes.items(), (blas, dnn), strict=True)
    )
    written_steps = write_out_steps(
        peak_flop_per_s=peaks[dtype] * peak_ratios[1],
        bandwidth_bytes_per_s=memory["bandwidth_gb_per_s"],
        element_bytes=element_bytes,
    )
    numbers = GpuNumbers(
        peak_flop_per_s=peaks[dtype],
        lane_peak_flop_per_s=peaks["fp32"],
        bandwidth_bytes_per_s=memory["bandwidth_gb_per_s"],
        unit_count=device.unit_count,
        l2_bytes=device.l2_bytes,
        matmul_libraries=(
            MatmulLibrary(of_blas, peak_ratios[0], blas["latency_cycles"] / device.clock_hz, blas["ramp_steps"]),
            MatmulLibrary(of_dnn, peak_ratios[1], dnn["latency_cycles"] / device.clock_hz, written_steps),
        ),
        recurrent_library=recurrent_library(dnn, peak_ratio=peak_ratios[1], clock_hz=device.clock_hz),
        stream_efficiency={name: own[constant] for name, constant in _BANDWIDTH_OF_PASS.items()}
        | {name: dnn[name] for name in LIBRARY_PASSES if name in dnn},
        serial_step_s=own.get("serial_row_cycles", 0.0) / device.clock_hz,
        element_bytes=element_bytes,
        launch_s=to_base_units("latency_us", launch["latency_us"]),
        dispatch_s=host_slowdown * own["dispatch_us"],
        library_issue_s=host_slowdown * to_base_units("issue_us", dnn["issue_us"]),
        step_overhead_s=host_slowdown * own["step_overhead_us"],
        overlap_exponent=own["overlap_exponent"],
    )
    if factors is NO_FACTORS and type(host_slowdown) is float:
        object.__setattr__(numbers, "is_plain", True)  # noqa: PLC2801 - it is not yet anybody else's
    return numbers
