"""Constants of frameworks and libraries on a GPU architecture, and the time of recurrent products."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter, is_not
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from perfmodel.cost.gpu import TileMenu, tile_menu
from perfmodel.cost.recurrence import persistent_product_times, recurrent_product_times
from perfmodel.derived import derived
from perfmodel.framework.profile import PASS_CLASSES
from perfmodel.framework.recurrence import PERSISTENT_PRODUCT, RECURRENT_PRODUCT
from perfmodel.prediction.device.factors import NO_FACTORS, Factors, framework_constants, library_constants
from perfmodel.symbolic import Quantity
from perfmodel.units import to_base_units

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.gpu import Gpu
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.prediction.device.gpu_target import GpuNumbers


RECURRENT_PREFIX = "recurrent_"
"""Prefix of the names of a DNN library's constants for recurrent layers."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, kw_only=True)
class MatmulReach:
    """Matrix-product constants of a library on an architecture, whatever the clock of the device."""

    efficiency: Mapping[str, Quantity]
    tile_rows: Any
    tile_columns: Any
    tile_efficiency: Any
    split_k: Any
    bandwidth_fraction: Quantity
    shortest_part: Quantity
    strided_bandwidth_fraction: Quantity
    strided_aligned_share: float
    resident_tiles: float
    unaligned_share: Quantity
    skinny_bandwidth_fraction: Quantity | None


class MatmulLibrary(NamedTuple):
    """Matrix-product constants of a library on one device."""

    reach: MatmulReach
    peak_ratio: Quantity
    latency_s: Quantity
    ramp_steps: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentLibrary:
    """Constants of a DNN library for the products of recurrent layers, which run one time step after another."""

    peak_ratio: Quantity
    menu: TileMenu
    efficiency: Quantity
    thin_efficiency: Quantity
    latency_s: Quantity
    narrow_latency_s: Quantity
    ramp_steps: Quantity
    bandwidth_fraction: Quantity
    step_s: Quantity
    persistent_efficiency: Quantity | None
    barrier_s: Quantity

    def _of_rows(self, columns: Mapping[str, Quantity], numbers: GpuNumbers) -> dict[str, Quantity]:
        """Extents, traffic and device rates of some rows, as both kinds of recurrent products need them."""
        return {
            **{extent: columns[extent] for extent in ("m", "n", "k")},
            "moved_bytes": columns["read_bytes"] + columns["written_bytes"],
            "peak_flop_per_s": numbers.peak_flop_per_s * self.peak_ratio,
            "bandwidth_bytes_per_s": numbers.bandwidth_bytes_per_s,
            "bandwidth_fraction": self.bandwidth_fraction,
        }

    def step_times(self, columns: Mapping[str, Quantity], numbers: GpuNumbers) -> tuple[Quantity, Quantity]:
        """Compute and memory seconds of the products of one time step. [s]"""
        return recurrent_product_times(
            **self._of_rows(columns, numbers),
            unit_count=numbers.unit_count,
            menu=self.menu,
            efficiency=self.efficiency,
            thin_efficiency=self.thin_efficiency,
            latency_s=self.latency_s,
            narrow_latency_s=self.narrow_latency_s,
            ramp_steps=self.ramp_steps,
            step_s=self.step_s,
        )

    def persistent_times(self, columns: Mapping[str, Quantity], numbers: GpuNumbers) -> tuple[Quantity, Quantity]:
        """Compute and memory seconds of recurrent layers that run in a single launch. [s]"""
        return persistent_product_times(
            **self._of_rows(columns, numbers),
            steps=columns["count"],
            efficiency=self.persistent_efficiency,
            barrier_s=self.barrier_s,
        )


RECURRENT_TIMES = {
    RECURRENT_PRODUCT: RecurrentLibrary.step_times,
    PERSISTENT_PRODUCT: RecurrentLibrary.persistent_times,
}
"""Efficiency name of a recurrent product -> method that times it."""
RECURRENT: Final = tuple(RECURRENT_TIMES)
"""Efficiency names of recurrent products."""


MENU = ("tile_rows", "tile_columns", "tile_efficiency", "split_k")
"""Fields of a library that are arrays over tiles, not over configurations."""

REACH_VALUES, RECURRENT_VALUES = (
    attrgetter(*(field.name for field in fields(kind) if field.name not in (*MENU, "menu")))
    for kind in (MatmulReach, RecurrentLibrary)
)
"""All numbers of a library except its menu of tiles."""


def _menu(entries: Any) -> Any:
    """Turn a list of a library's file into an array, once per list."""
    return _stated_menu(entries) if isinstance(entries, tuple) else np.array(entries)


@lru_cache(maxsize=256)
def _stated_menu(entries: tuple[float, ...]) -> NDArray[Any]:
    menu = np.array(entries, dtype=float)
    menu.flags.writeable = False
    return menu


def matmul_reach(
    constants: Mapping[str, Any],
    names: tuple[str, ...],
    *,
    calls: Quantity = 1.0,
    skinny_bandwidth_fraction: Quantity | None,
) -> MatmulReach:
    """Matrix-product constants of a library, by shape class."""
    share = constants["translation_efficiency"] * constants.get("architecture_factor", 1.0) * calls
    return MatmulReach(
        efficiency={name: constants[name] * share for name in names},
        **{name: _menu(constants[name]) for name in MENU},
        bandwidth_fraction=constants["matmul_bandwidth_fraction"],
        shortest_part=constants.get("shortest_part", 0.0),
        strided_bandwidth_fraction=constants.get("strided_bandwidth_fraction", 1.0),
        strided_aligned_share=constants.get("strided_aligned_share", 1.0),
        resident_tiles=constants.get("resident_tiles", 0.0),
        unaligned_share=constants.get("unaligned_efficiency", 1.0),
        skinny_bandwidth_fraction=skinny_bandwidth_fraction,
    )


def recurrent_menu(constants: Mapping[str, Any]) -> TileMenu | None:
    """Tiles of a DNN library's recurrent layers, without split sums; None if the file lists no tiles."""
    if RECURRENT_PRODUCT not in constants:
        return None
    return tile_menu(
        **{name: constants[f"recurrent_{name}"] for name in ("tile_rows", "tile_columns", "tile_efficiency")},
        split_k=np.ones(len(constants["recurrent_tile_rows"])),
    )


def recurrent_library(
    constants: Mapping[str, Any], menu: TileMenu | None, *, peak_ratio: Quantity, clock_hz: float
) -> RecurrentLibrary | None:
    """Recurrent constants of a library."""
    if menu is None:
        return None
    share = constants["translation_efficiency"]
    return RecurrentLibrary(
        peak_ratio=peak_ratio,
        menu=menu,
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


BLAS_SHAPE_CLASSES = ("gemm",)
"""Shape classes of products that the BLAS runs; every other class is the DNN library's."""

FRAMEWORK_PASSES = ("depthwise_input_gradient", "depthwise_weight_gradient")
"""Passes that may have a bandwidth fraction of their own; otherwise that of their class holds."""

_BANDWIDTH_OF_PASS: Final = {name: f"bandwidth_fraction_{name}" for name in PASS_CLASSES + FRAMEWORK_PASSES}

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
        "ramp_steps",
        "fed_flop_per_clock",
        "issue_us",
    )
)
"""Constants of a DNN library other than fractions of peak for shape classes."""


class StreamEfficiency(dict[str, Quantity]):
    """Fraction of memory bandwidth by pass or class of passes; never modified. [1]"""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GpuSoftware:
    """Constants of a framework and its libraries on an architecture, without numbers of a device."""

    reaches: tuple[MatmulReach, MatmulReach]
    blas: Mapping[str, Any]
    dnn: Mapping[str, Any]
    framework: Mapping[str, Any]
    recurrent_menu: TileMenu | None
    stream_efficiency: StreamEfficiency
    narrow_stream_efficiency: StreamEfficiency


@lru_cache(maxsize=64)
def _convolution_classes(constants: tuple[str, ...]) -> tuple[str, ...]:
    """Constants of a DNN library that are fractions of peak for a shape class."""
    return tuple(name for name in constants if name not in NOT_SHAPE_CLASSES and not name.startswith(RECURRENT_PREFIX))


def _software(
    profile: FrameworkProfile, libraries: Sequence[LibraryProfile], device: Gpu, dtypes: Sequence[str], factors: Factors
) -> GpuSoftware:
    """Constants of a framework and its libraries (BLAS first) for products in some data types, scaled."""
    blas, dnn = (
        library_constants(library, device, factors=factors, dtype=dtype)
        for library, dtype in zip(libraries, dtypes, strict=True)
    )
    constants = framework_constants(profile, "gpu", factors=factors)
    calls = constants["blas_efficiency"]
    skinny = calls * blas["skinny_bandwidth_fraction"]
    own_passes = {name: constants[constant] for name, constant in _BANDWIDTH_OF_PASS.items() if constant in constants}
    library_passes = {name: dnn[name] for name in LIBRARY_PASSES if name in dnn}
    return GpuSoftware(
        reaches=(
            matmul_reach(blas, BLAS_SHAPE_CLASSES, calls=calls, skinny_bandwidth_fraction=skinny),
            # A convolution's product reaches the same bandwidth at any extents: it reads images, not columns.
            matmul_reach(dnn, _convolution_classes(tuple(dnn)), skinny_bandwidth_fraction=None),
        ),
        blas=blas,
        dnn=dnn,
        framework=constants,
        recurrent_menu=recurrent_menu(dnn),
        stream_efficiency=StreamEfficiency(own_passes | library_passes),
        narrow_stream_efficiency=StreamEfficiency(
            {name: share * constants.get("narrow_pass_share", 1.0) for name, share in own_passes.items()}
            | library_passes
        ),
    )


@derived
def _kept_software(profile: FrameworkProfile, *_: Hashable) -> list[tuple[tuple[LibraryProfile, ...], GpuSoftware]]:
    """Cache of the constants that a framework and some libraries state: at most one entry."""
    return []


def gpu_software(
    profile: FrameworkProfile,
    libraries: tuple[LibraryProfile, ...],
    device: Gpu,
    dtypes: tuple[str, ...],
    *,
    factors: Factors,
) -> GpuSoftware:
    """Constants of a framework and its libraries on a GPU; without factors, computed once per architecture."""
    if factors is not NO_FACTORS:
        return _software(profile, libraries, device, dtypes, factors)
    kept = _kept_software(profile, device.architecture, dtypes)
    # Libraries are distinguished by identity: profiles of a hundred constants take long to compare.
    for known, software in kept:
        if not any(map(is_not, known, libraries)):
            return software
    software = _software(profile, libraries, device, dtypes, NO_FACTORS)
    kept[:] = [(libraries, software)]  # both at once, as other threads may read them
    return software
