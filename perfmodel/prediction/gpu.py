"""A GPU with its libraries and a framework, as the plain numbers that the step's path wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.cost.gpu import matmul_memory_time, stream_time, tiled_matmul_time
from perfmodel.cost.gpu_layout import strided_time, unaligned_efficiency, with_strided_loads
from perfmodel.cost.recurrence import persistent_product_times, recurrent_product_times
from perfmodel.cost.tile_output import write_out_steps
from perfmodel.framework.passes import pass_class
from perfmodel.framework.recurrence import PERSISTENT_PRODUCT, RECURRENT_PRODUCT
from perfmodel.numeric import first_array_length, maximum, where
from perfmodel.prediction.by_row import by_row, distinct_names
from perfmodel.prediction.scaling import NO_FACTORS, Factors, framework_constants, library_constants, scaled
from perfmodel.units import to_base_units

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.gpu import Gpu
    from perfmodel.hardware.library import LibraryProfile

Quantity = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulLibrary:
    """What one library reaches on matrix products.

    Parameters
    ----------
    peak_ratio : float
        Rate of the type that it computes in over that of the tensors' type: above one where it rounds to TF32. [1]
    efficiency : mapping of str to float
        Fraction of peak inside the largest tile, by shape class. [1]
    tile_rows, tile_columns, tile_efficiency, split_k : ndarray, shape (menu,)
        Tile menu. [1]
    latency_s : float
        Latency a unit cannot hide at each step of the sum. [s]
    ramp_steps : float
        Steps that filling and draining a tile costs. [1]
    bandwidth_fraction : float
        Fraction of memory bandwidth. [1]
    shortest_part : float
        Shortest part of a split sum over the longer extent of the result. [1]
    strided_bandwidth_fraction : float
        Fraction of memory bandwidth of loads of weights that lie transposed. [1]
    strided_aligned_share : float
        Share of the time of such loads where the weights' rows are whole pages. [1]
    resident_tiles : float
        Tiles of a unit that run together and share such loads. [1]
    unaligned_share : float
        Share of the rate that is left where rows of the operands are no multiples of 16 B. [1]
    skinny_bandwidth_fraction : float or None
        The same for products with few rows or columns, where the library is slower there. [1]
    """

    peak_ratio: float
    efficiency: Mapping[str, Quantity]
    tile_rows: Any
    tile_columns: Any
    tile_efficiency: Any
    split_k: Any
    latency_s: Quantity
    ramp_steps: Quantity
    bandwidth_fraction: Quantity
    shortest_part: float
    strided_bandwidth_fraction: Quantity
    strided_aligned_share: float
    resident_tiles: float
    unaligned_share: float
    skinny_bandwidth_fraction: Quantity | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentLibrary:
    """What a DNN library reaches on the products of recurrent layers that wait for one another.

    Parameters
    ----------
    tile_rows, tile_columns, tile_efficiency : ndarray, shape (menu,)
        Tile menu. [1]
    efficiency, thin_efficiency : float
        Fraction of peak inside the largest tile, and of products with few rows. [1]
    latency_s, narrow_latency_s : float
        Latency a unit cannot hide at each step of the sum, and with few rows. [s]
    ramp_steps : float
        Steps that filling and draining a tile costs. [1]
    bandwidth_fraction : float
        Fraction of memory bandwidth. [1]
    step_s : float
        Time that a time step waits besides its kernels. [s]
    persistent_efficiency : float or None
        Fraction of peak of a kernel that keeps the weights in registers; None where the library has none. [1]
    barrier_s : float
        Shortest time step of such a kernel. [s]
    """

    tile_rows: Any
    tile_columns: Any
    tile_efficiency: Any
    efficiency: Quantity
    thin_efficiency: Quantity
    latency_s: Quantity
    narrow_latency_s: Quantity
    ramp_steps: Quantity
    bandwidth_fraction: Quantity
    step_s: Quantity
    persistent_efficiency: Quantity | None
    barrier_s: Quantity

    def step_times(self, columns: Mapping[str, Quantity], numbers: GpuNumbers) -> tuple[Quantity, Quantity]:
        """Return compute and memory seconds of products of one time step. [s]"""
        return recurrent_product_times(
            m=columns["m"],
            n=columns["n"],
            k=columns["k"],
            moved_bytes=columns["read_bytes"] + columns["written_bytes"],
            peak_flop_per_s=numbers.peak_flop_per_s,
            unit_count=numbers.unit_count,
            bandwidth_bytes_per_s=numbers.bandwidth_bytes_per_s,
            tile_rows=self.tile_rows,
            tile_columns=self.tile_columns,
            tile_efficiency=self.tile_efficiency,
            efficiency=self.efficiency,
            thin_efficiency=self.thin_efficiency,
            latency_s=self.latency_s,
            narrow_latency_s=self.narrow_latency_s,
            ramp_steps=self.ramp_steps,
            bandwidth_fraction=self.bandwidth_fraction,
            step_s=self.step_s,
        )

    def persistent_times(self, columns: Mapping[str, Quantity], numbers: GpuNumbers) -> tuple[Quantity, Quantity]:
        """Return compute and memory seconds of layers whose time steps are one launch. [s]"""
        return persistent_product_times(
            m=columns["m"],
            n=columns["n"],
            k=columns["k"],
            steps=columns["count"],
            moved_bytes=columns["read_bytes"] + columns["written_bytes"],
            peak_flop_per_s=numbers.peak_flop_per_s,
            bandwidth_bytes_per_s=numbers.bandwidth_bytes_per_s,
            efficiency=self.persistent_efficiency,
            barrier_s=self.barrier_s,
            bandwidth_fraction=self.bandwidth_fraction,
        )


RECURRENT_TIMES = {
    RECURRENT_PRODUCT: RecurrentLibrary.step_times,
    PERSISTENT_PRODUCT: RecurrentLibrary.persistent_times,
}
"""Efficiency name of a product of a recurrent layer to what times it."""


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

    @property
    def configuration_count(self) -> int | None:
        """Length of the arrays over configurations among the numbers; None where all are single. [1]"""
        libraries = ("matmul_libraries", "recurrent_library")
        own = (getattr(self, field.name) for field in fields(self) if field.name not in libraries)
        menu = ("tile_rows", "tile_columns", "tile_efficiency", "split_k")
        recurrent = () if self.recurrent_library is None else (self.recurrent_library,)
        of_libraries = (
            getattr(library, field.name)
            for library in (*self.matmul_libraries, *recurrent)
            for field in fields(library)
            if field.name not in menu
        )
        return first_array_length((*own, *of_libraries))

    def matmul_times(self, columns: Mapping[str, Quantity], efficiency: tuple[str, ...]) -> tuple[Quantity, Quantity]:
        """Return compute and memory seconds of one launch of each matmul row. [s]"""
        names, code_of_row = distinct_names(efficiency)
        timed = []
        for library in self.matmul_libraries:
            own = [name in library.efficiency for name in names]
            if not any(own):
                continue
            rows = np.flatnonzero(np.take(own, code_of_row))
            of_name = [library.efficiency.get(name, 1.0) for name in names]
            picked = {name: column[rows] for name, column in columns.items()}
            of_row = by_row(of_name, code_of_row[rows], like=picked["m"])
            if library.unaligned_share < 1:
                of_row = of_row * unaligned_efficiency(
                    n=picked["n"], k=picked["k"], share=library.unaligned_share, element_bytes=self.element_bytes
                )
            compute_of_rows, memory_of_rows = self._times_by_library(library, picked, of_row)
            across = np.take([name.endswith(TRANSPOSED) for name in names], code_of_row[rows])
            if across.any():
                compute_of_rows = self._with_strided_loads(library, picked, compute_of_rows, across)
            timed.append((rows, compute_of_rows, memory_of_rows))
        for name, times in RECURRENT_TIMES.items():
            if self.recurrent_library is not None and name in names:
                rows = np.flatnonzero(code_of_row == names.index(name))
                picked = {column: values[rows] for column, values in columns.items()}
                timed.append((rows, *times(self.recurrent_library, picked, self)))
        shape = np.shape(columns["m"])
        # A symbol among the numbers makes objects of the times, whatever the columns are.
        compute_s, memory_s = (
            np.empty(shape, dtype=np.result_type(*(times[branch] for times in timed))) for branch in (1, 2)
        )
        for rows, compute_of_rows, memory_of_rows in timed:
            compute_s[rows], memory_s[rows] = compute_of_rows, memory_of_rows
        return compute_s, memory_s

    def _times_by_library(
        self, library: MatmulLibrary, columns: Mapping[str, Quantity], efficiency: Quantity
    ) -> tuple[Quantity, Quantity]:
        m, n = columns["m"], columns["n"]
        compute_s = tiled_matmul_time(
            m=m,
            n=n,
            k=columns["k"],
            count=columns["count"],
            peak_flop_per_s=self.peak_flop_per_s * library.peak_ratio,
            unit_count=self.unit_count,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
            tile_rows=library.tile_rows,
            tile_columns=library.tile_columns,
            tile_efficiency=library.tile_efficiency,
            split_k=library.split_k,
            efficiency=efficiency,
            element_bytes=self.element_bytes,
            latency_s=library.latency_s,
            ramp_steps=library.ramp_steps,
            shortest_part=library.shortest_part,
        )
        moved_bytes = columns["read_bytes"] + columns["written_bytes"]
        if library.skinny_bandwidth_fraction is None:
            return compute_s, stream_time(
                moved_bytes=moved_bytes,
                bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
                efficiency=library.bandwidth_fraction,
            )
        return compute_s, matmul_memory_time(
            m=m,
            n=n,
            k=columns["k"],
            count=columns["count"],
            moved_bytes=moved_bytes,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
            efficiency=library.bandwidth_fraction,
            skinny_efficiency=library.skinny_bandwidth_fraction,
            element_bytes=self.element_bytes,
        )

    def _with_strided_loads(
        self, library: MatmulLibrary, columns: Mapping[str, Quantity], compute_s: Quantity, across: NDArray[np.bool_]
    ) -> Quantity:
        """Return compute seconds with the loads of the rows that read their weights transposed. [s]"""
        strided_s = strided_time(
            m=columns["m"],
            n=columns["n"],
            k=columns["k"],
            count=columns["count"],
            unit_count=self.unit_count,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
            efficiency=library.strided_bandwidth_fraction,
            l2_bytes=self.l2_bytes,
            resident_tiles=library.resident_tiles,
            aligned_share=library.strided_aligned_share,
            element_bytes=self.element_bytes,
        )
        both = with_strided_loads(compute_s=compute_s, strided_s=strided_s)
        return where(across if np.ndim(both) == 1 else across[:, None], both, compute_s)

    def stream_times(self, columns: Mapping[str, Quantity], efficiency: tuple[str, ...]) -> tuple[Quantity, Quantity]:
        """Return compute and memory seconds of one launch of each stream row. [s]"""
        moved_bytes = columns["read_bytes"] + columns["written_bytes"]
        names, code_of_row = distinct_names(efficiency)
        known = self.stream_efficiency
        of_name = [known[name] if name in known else known[pass_class(name)] for name in names]
        memory_s = stream_time(
            moved_bytes=moved_bytes,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
            efficiency=by_row(of_name, code_of_row, like=moved_bytes),
        )
        # Rows are many or long: threads that wait for their loads do not add up, the longest row decides.
        waiting_s = columns["serial_steps"] * self.serial_step_s
        return columns["flop_count"] / self.lane_peak_flop_per_s, maximum(memory_s, waiting_s)


def _matmul_library(
    constants: Mapping[str, Any],
    names: tuple[str, ...],
    *,
    peak_ratio: float,
    clock_hz: float,
    calls: Quantity = 1.0,
    ramp_steps: Quantity,
    skinny_bandwidth_fraction: Quantity | None,
) -> MatmulLibrary:
    share = constants["translation_efficiency"] * constants.get("architecture_factor", 1.0) * calls
    return MatmulLibrary(
        peak_ratio=peak_ratio,
        efficiency={name + ending: constants[name] * share for name in names for ending in ("", TRANSPOSED)},
        tile_rows=np.array(constants["tile_rows"]),
        tile_columns=np.array(constants["tile_columns"]),
        tile_efficiency=np.array(constants["tile_efficiency"]),
        split_k=np.array(constants["split_k"]),
        latency_s=constants["latency_cycles"] / clock_hz,
        ramp_steps=ramp_steps,
        bandwidth_fraction=constants["matmul_bandwidth_fraction"],
        shortest_part=constants.get("shortest_part", 0.0),
        strided_bandwidth_fraction=constants.get("strided_bandwidth_fraction", 1.0),
        strided_aligned_share=constants.get("strided_aligned_share", 1.0),
        resident_tiles=constants.get("resident_tiles", 0.0),
        unaligned_share=constants.get("unaligned_efficiency", 1.0),
        skinny_bandwidth_fraction=skinny_bandwidth_fraction,
    )


def _peaks(device: Gpu, dtype: str, factors: Factors) -> dict[str, Quantity]:
    """Return the rates that the schedulers can issue, of the data type and of the plain lanes. [FLOP/s]"""
    peaks = {name: device.sustained_peak_flop_per_s(name) for name in dict.fromkeys((dtype, "fp32"))}
    return scaled(peaks, place=f"devices/{device.stem}/peak_tflop_per_s", factors=factors)


def _recurrent_library(constants: Mapping[str, Any], *, clock_hz: float) -> RecurrentLibrary | None:
    """Return a library's recurrent layers; None where it states no constants of such."""
    if RECURRENT_PRODUCT not in constants:
        return None
    share = constants["translation_efficiency"]
    return RecurrentLibrary(
        tile_rows=np.array(constants["recurrent_tile_rows"]),
        tile_columns=np.array(constants["recurrent_tile_columns"]),
        tile_efficiency=np.array(constants["recurrent_tile_efficiency"]),
        efficiency=share * constants[RECURRENT_PRODUCT],
        thin_efficiency=share * constants["recurrent_thin"],
        latency_s=constants["recurrent_latency_cycles"] / clock_hz,
        narrow_latency_s=constants["recurrent_narrow_latency_cycles"] / clock_hz,
        ramp_steps=constants["recurrent_ramp_steps"],
        bandwidth_fraction=constants["recurrent_bandwidth_fraction"],
        step_s=to_base_units("recurrent_step_us", constants["recurrent_step_us"]),
        persistent_efficiency=constants.get(PERSISTENT_PRODUCT),
        barrier_s=to_base_units("recurrent_barrier_us", constants.get("recurrent_barrier_us", 0.0)),
    )


TRANSPOSED = "_transposed"
"""Ending of the efficiency of a product that reads its weights against the way they lie."""

BLAS_SHAPE_CLASSES = ("gemm",)
"""Shape classes of products that the BLAS runs; every other class is the DNN library's."""

FRAMEWORK_PASS_CLASSES = ("elementwise", "reduction", "transpose", "gather", "update")
"""Classes of passes whose bandwidth fraction is the framework's own."""

LIBRARY_PASSES = ("im2col", "fft_transform", "winograd_transform")
"""Passes that belong to a convolution algorithm of the DNN library."""

RECURRENT_PREFIX = "recurrent_"
"""Beginning of the names of a DNN library's constants of recurrent layers."""

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


def product_dtype(device: Gpu, profile: FrameworkProfile, role: str, *, dtype: str) -> str:
    """Return the type in which a library computes products of tensors of a type.

    Parameters
    ----------
    device : Gpu
        The device. [-]
    profile : FrameworkProfile
        The framework, which may let single precision round to TF32. [-]
    role : str
        ``gpu_blas`` or ``gpu_dnn``. [-]
    dtype : str
        Data type of the tensors. [-]

    Returns
    -------
    str
        ``tf32`` for single precision where the framework allows it and the device has it, else ``dtype``. [-]
    """
    rounds = dtype == "fp32" and role in profile.library.tf32 and "tf32" in device.dtypes
    return "tf32" if rounds else dtype


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
    dtypes = {role: product_dtype(device, profile, role, dtype=dtype) for role in ("gpu_blas", "gpu_dnn")}
    blas, dnn = (
        library_constants(libraries[role], device, factors=factors, dtype=of_role) for role, of_role in dtypes.items()
    )
    own = framework_constants(profile, "gpu", factors=factors)
    launch = scaled({"latency_us": device.launch.latency_us}, place=f"devices/{device.stem}/launch", factors=factors)
    peaks, bandwidth = _peaks(device, dtype, factors), device.sustained_memory_bandwidth_bytes_per_s
    memory = scaled({"bandwidth_gb_per_s": bandwidth}, place=f"devices/{device.stem}/memory", factors=factors)
    calls = own["blas_efficiency"]
    rate = device.sustained_peak_flop_per_s(dtype)
    ratios = {role: device.sustained_peak_flop_per_s(of_role) / rate for role, of_role in dtypes.items()}
    convolution_classes = tuple(
        name for name in dnn if name not in NOT_SHAPE_CLASSES and not name.startswith(RECURRENT_PREFIX)
    )
    return GpuNumbers(
        peak_flop_per_s=peaks[dtype],
        lane_peak_flop_per_s=peaks["fp32"],
        bandwidth_bytes_per_s=memory["bandwidth_gb_per_s"],
        unit_count=device.unit_count,
        l2_bytes=device.l2_bytes,
        matmul_libraries=(
            _matmul_library(
                blas,
                BLAS_SHAPE_CLASSES,
                peak_ratio=ratios["gpu_blas"],
                clock_hz=device.clock_hz,
                calls=calls,
                ramp_steps=blas["ramp_steps"],
                skinny_bandwidth_fraction=calls * blas["skinny_bandwidth_fraction"],
            ),
            # A convolution's product reaches the same bandwidth whatever its extents: it reads images, not columns.
            _matmul_library(
                dnn,
                convolution_classes,
                peak_ratio=ratios["gpu_dnn"],
                clock_hz=device.clock_hz,
                ramp_steps=write_out_steps(
                    peak_flop_per_s=ratios["gpu_dnn"] * peaks[dtype],
                    bandwidth_bytes_per_s=memory["bandwidth_gb_per_s"],
                    element_bytes=element_bytes,
                ),
                skinny_bandwidth_fraction=None,
            ),
        ),
        recurrent_library=_recurrent_library(dnn, clock_hz=device.clock_hz),
        stream_efficiency={name: own[f"bandwidth_fraction_{name}"] for name in FRAMEWORK_PASS_CLASSES}
        | {name: dnn[name] for name in LIBRARY_PASSES if name in dnn},
        serial_step_s=own.get("serial_row_cycles", 0.0) / device.clock_hz,
        element_bytes=element_bytes,
        launch_s=to_base_units("latency_us", launch["latency_us"]),
        dispatch_s=host_slowdown * own["dispatch_us"],
        library_issue_s=host_slowdown * to_base_units("issue_us", dnn["issue_us"]),
        step_overhead_s=host_slowdown * own["step_overhead_us"],
        overlap_exponent=own["overlap_exponent"],
    )
