"""What the files of a framework and its libraries state for GPUs of an architecture: worked out once for each."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import is_not
from typing import TYPE_CHECKING, Any, Final

from perfmodel.derived import derived
from perfmodel.prediction.gpu_libraries import RECURRENT_PREFIX, MatmulReach, matmul_reach, recurrent_menu
from perfmodel.prediction.scaling import NO_FACTORS, Factors, framework_constants, library_constants
from perfmodel.units import to_base_units

if TYPE_CHECKING:
    from perfmodel.cost.gpu import TileMenu
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.gpu import Gpu
    from perfmodel.hardware.library import LibraryProfile

Quantity = Any

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


class StreamEfficiency(dict[str, Quantity]):
    """Fraction of memory bandwidth by pass, or class of pass. [1] Not changed once it is made."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GpuSoftware:
    """What the files of a framework and its libraries state for an architecture: no number of a device is in it.

    Parameters
    ----------
    reaches : tuple of MatmulReach
        What BLAS and DNN library reach on matrix products. [-]
    latency_cycles : tuple of float
        Latency of theirs that a unit cannot hide at each step of the sum. [cycles]
    ramp_steps : float
        Steps of the BLAS that filling and draining a tile costs. [1]
    dnn : mapping of str to float or tuple
        Constants of the DNN library, those of recurrent layers among them. [unit of each constant]
    recurrent_menu : TileMenu or None
        Tiles of its recurrent layers, where it has any. [1]
    stream_efficiency : StreamEfficiency
        Fraction of bandwidth by pass, or class of pass. [1]
    serial_row_cycles : float
        Cycles in which one thread reads one element of a row that it reduces alone. [cycles]
    dispatch_s, library_issue_s, step_overhead_s : float
        Host time per launch by the framework and inside a library's call, and per step. [s]
    overlap_exponent : float
        How well dispatch overlaps with the kernels. [1]
    """

    reaches: tuple[MatmulReach, MatmulReach]
    latency_cycles: tuple[Quantity, Quantity]
    ramp_steps: Quantity
    dnn: Mapping[str, Any]
    recurrent_menu: TileMenu | None
    stream_efficiency: StreamEfficiency
    serial_row_cycles: Quantity
    dispatch_s: Quantity
    library_issue_s: Quantity
    step_overhead_s: Quantity
    overlap_exponent: float


@lru_cache(maxsize=64)
def _convolution_classes(constants: tuple[str, ...]) -> tuple[str, ...]:
    """Return which constants of a DNN library are a fraction of peak of a shape class."""
    return tuple(name for name in constants if name not in NOT_SHAPE_CLASSES and not name.startswith(RECURRENT_PREFIX))


def _software(
    profile: FrameworkProfile, libraries: Sequence[LibraryProfile], device: Gpu, dtypes: Sequence[str], factors: Factors
) -> GpuSoftware:
    """Return what framework and libraries state, BLAS first, of products in some data types, with factors on it."""
    blas, dnn = (
        library_constants(library, device, factors=factors, dtype=dtype)
        for library, dtype in zip(libraries, dtypes, strict=True)
    )
    own = framework_constants(profile, "gpu", factors=factors)
    calls = own["blas_efficiency"]
    skinny = calls * blas["skinny_bandwidth_fraction"]
    return GpuSoftware(
        reaches=(
            matmul_reach(blas, BLAS_SHAPE_CLASSES, calls=calls, skinny_bandwidth_fraction=skinny),
            # A convolution's product reaches the same bandwidth whatever its extents: it reads images, not columns.
            matmul_reach(dnn, _convolution_classes(tuple(dnn)), skinny_bandwidth_fraction=None),
        ),
        latency_cycles=(blas["latency_cycles"], dnn["latency_cycles"]),
        ramp_steps=blas["ramp_steps"],
        dnn=dnn,
        recurrent_menu=recurrent_menu(dnn),
        stream_efficiency=StreamEfficiency(
            {name: own[constant] for name, constant in _BANDWIDTH_OF_PASS.items()}
            | {name: dnn[name] for name in LIBRARY_PASSES if name in dnn}
        ),
        serial_row_cycles=own.get("serial_row_cycles", 0.0),
        dispatch_s=own["dispatch_us"],
        library_issue_s=to_base_units("issue_us", dnn["issue_us"]),
        step_overhead_s=own["step_overhead_us"],
        overlap_exponent=own["overlap_exponent"],
    )


@derived
def _kept_software(profile: FrameworkProfile, *_: Hashable) -> dict[str, Any]:
    """Return where what a framework's file and some libraries state is kept."""
    del profile
    return {}


def gpu_software(
    profile: FrameworkProfile,
    libraries: tuple[LibraryProfile, ...],
    device: Gpu,
    dtypes: tuple[str, ...],
    *,
    factors: Factors,
) -> GpuSoftware:
    """Return what a framework and its libraries state for a GPU: where no factor is on it, once for its architecture.

    Parameters
    ----------
    profile : FrameworkProfile
        The framework. [-]
    libraries : tuple of LibraryProfile
        BLAS and DNN library. [-]
    device : Gpu
        Whose architecture counts. [-]
    dtypes : tuple of str
        Types in which the two compute products. [-]
    factors : mapping of str to float or ndarray of shape (configurations,)
        Factors on constants by name. [1]

    Returns
    -------
    GpuSoftware
        Every constant with its factor. [-]
    """
    if factors is not NO_FACTORS:
        return _software(profile, libraries, device, dtypes, factors)
    kept = _kept_software(profile, device.architecture, dtypes)
    # Libraries are told apart by identity: profiles of a hundred constants take long to compare.
    if not kept or any(map(is_not, kept["libraries"], libraries)):
        kept["libraries"] = libraries
        kept["software"] = _software(profile, libraries, device, dtypes, NO_FACTORS)
    found: GpuSoftware = kept["software"]
    return found
