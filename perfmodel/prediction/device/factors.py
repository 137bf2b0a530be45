"""Factors on the constants of spec files, by which a calibration or a fit changes the numbers of a step.

A constant is named ``<kind folder>/<file stem>/<place>.<constant>``, e.g. ``frameworks/tensorflow_0_9/gpu.dispatch_us``
``libraries/cublas_7_5/maxwell.gemm`` (the architecture is the device's, whichever table of the file states it) or
``devices/i7_3820/memory.efficiency``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.derived import derived
from perfmodel.errors import ArgumentError
from perfmodel.hardware.cpu import Cpu
from perfmodel.hardware.device import Device
from perfmodel.symbolic import Quantity, is_symbolic

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.hardware.source import Constant, Source, SpecFile


Factors = Mapping[str, Quantity]
"""Name of a constant -> factor on it; constants that are not listed stay as they are."""

NO_FACTORS: Final[Factors] = {}


class AskedNames(Mapping[str, Quantity]):
    """Factors of 1 that record, in order, which constants a prediction reads."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def __contains__(self, name: object) -> bool:
        self.names[str(name)] = None
        return False

    def __getitem__(self, name: str) -> Quantity:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def scaled(
    constants: Mapping[str, Any], *, place: str, factors: Factors, described: Mapping[str, Constant] | None = None
) -> dict[str, Any]:
    """Multiply constants by their factors, within their valid ranges.

    A list, as of tiles, takes one number: an array over configurations would be multiplied with its entries.
    """
    if factors is NO_FACTORS:
        return dict(constants)
    changed = dict(constants)
    for name, value in constants.items():
        full_name = f"{place}{name}" if place.endswith("/") else f"{place}.{name}"
        if full_name not in factors:
            continue
        factor = factors[full_name]
        if isinstance(value, tuple) and np.ndim(factor):
            allowed = f"one factor for the whole list of {len(value)} numbers; call once for each of several factors"
            raise ArgumentError(full_name, factor, allowed)
        product = np.multiply(value, factor) if isinstance(value, tuple) else value * factor
        # a symbol is the value itself: whoever substitutes a number must keep it in range
        if described is not None and name in described and not is_symbolic(product):
            product = np.minimum(np.maximum(product, described[name].valid_min), described[name].valid_max)
        changed[name] = product
    return changed


def scaled_constant(value: Quantity, name: str, *, factors: Factors) -> Quantity:
    """Multiply a constant by the factor on its full name."""
    return value * factors[name] if name in factors else value


def device_constant(value: Quantity, device: Device, field: str, *, factors: Factors) -> Quantity:
    """Multiply a number of a device's file by the factor on it."""
    return value if factors is NO_FACTORS else scaled_constant(value, f"devices/{device.stem}/{field}", factors=factors)


def library_constants(
    library: LibraryProfile, device: Device, *, factors: Factors, dtype: str = "fp32"
) -> Mapping[str, Any]:
    """Constants of a library on a device's architecture, scaled."""
    constants: Mapping[str, Any] = library.constants_for(device.architecture, dtype=dtype)
    if factors is NO_FACTORS:
        return constants
    place = f"libraries/{library.stem}/{device.architecture}"
    return scaled(constants, place=place, factors=factors, described=library.constant)


def device_constants(cpu: Cpu, *, factors: Factors) -> dict[str, Any]:
    """Sustained fractions of a CPU's memory, scaled; in a device file, only these constants are estimates."""
    described = cpu.memory.constant
    constants = {name: getattr(cpu.memory, name) for name in described}
    return scaled(constants, place=f"devices/{cpu.stem}/memory", factors=factors, described=described)


def host_constants(cpu: Cpu, *, factors: Factors) -> dict[str, Any]:
    """Constants of a CPU as host of a GPU, scaled."""
    constants = {name: getattr(cpu, name) for name in cpu.constant}
    return scaled(constants, place=f"devices/{cpu.stem}/host", factors=factors, described=cpu.constant)


def framework_constants(
    profile: FrameworkProfile, processor: str, *, factors: Factors, unneeded: Collection[str] = ()
) -> dict[str, Any]:
    """Constants of a framework on one kind of processor, scaled."""
    if factors is NO_FACTORS:
        everything = _as_stated(profile, processor)
        return {name: value for name, value in everything.items() if name not in unneeded} if unneeded else everything
    from perfmodel.framework.profile import in_base_units

    place = f"frameworks/{profile.stem}/{processor}"
    stated = getattr(profile, processor).constants
    constants = {name: value for name, value in stated.items() if name not in unneeded}
    return in_base_units(scaled(constants, place=place, factors=factors, described=profile.constant))


def framework_constant(profile: FrameworkProfile, processor: str, name: str, *, factors: Factors) -> Any:
    """One constant of a framework on one kind of processor, scaled; only this one counts as read."""
    if factors is NO_FACTORS:
        return _as_stated(profile, processor)[name]
    others = getattr(profile, processor).constants.keys() - {name}
    return framework_constants(profile, processor, factors=factors, unneeded=others)[name]


@derived
def _as_stated(profile: FrameworkProfile, processor: str) -> dict[str, Any]:
    """Constants of a framework on one kind of processor, as its file states them. [base unit of each]"""
    from perfmodel.framework.profile import in_base_units

    return in_base_units(getattr(profile, processor).constants)


Specs = Mapping[str, "SpecFile"]
"""Spec files by kind folder and stem, e.g. ``libraries/cublas_8_0``."""

UNIT_OF_ENDING: Final[dict[str, str]] = {
    "_tflop_per_s": "TFLOP/s",
    "_gb_per_s": "GB/s",
    "_ghz_by_active_cores": "GHz",
    "_ghz": "GHz",
    "_mhz": "MHz",
    "_us": "us",
    "_cycles": "cycle",
    "_rate_per_core": "samples/s",
}
"""Suffix of a field of a device, link, data set or storage -> its unit; other fields are fractions and counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedConstant:
    """A constant as its file states it."""

    name: str
    value: float | tuple[float, ...]
    unit: str
    described: Constant | None
    source: Source | None


def stated_constant(name: str, specs: Specs, *, dtype: str = "fp32") -> StatedConstant | None:
    """Look up a constant as its file states it."""
    folder, stem, place = name.split("/", 2)
    spec = specs.get(f"{folder}/{stem}")
    if spec is None:
        return None
    value, described, field = _READERS.get(folder, _of_table)(spec, place, dtype=dtype)
    endings = (unit for ending, unit in UNIT_OF_ENDING.items() if any(key.endswith(ending) for key in field.split(".")))
    unit = next(endings, "1") if described is None else described.unit
    return StatedConstant(name=name, value=value, unit=unit, described=described, source=spec.source_of(field))


Read = tuple[Any, "Constant | None", str]
"""Value of a constant, its description and its field in the file."""


def _of_framework(profile: FrameworkProfile, place: str, *, dtype: str) -> Read:
    processor, _, constant = place.partition(".")
    table: Any = getattr(profile, processor)
    nested, _, entry = constant.partition(".")
    value = getattr(table, nested)[entry] if entry else table.constants[constant]
    return value, profile.constant[nested], place if entry else f"{processor}.constants.{constant}"


def _of_library(library: LibraryProfile, place: str, *, dtype: str) -> Read:
    architecture, _, constant = place.partition(".")
    dtype = library.dtype_with(constant, architecture=architecture, dtype=dtype)
    value = library.constants_for(architecture, dtype=dtype)[constant]
    return value, library.constant[constant], library.field_of(constant, architecture=architecture, dtype=dtype)


def _of_table(spec: SpecFile, place: str, *, dtype: str) -> Read:
    """Read a constant of a device or link file by field name; the host constants of a CPU have a table of their own."""
    field = place.removeprefix("host.")
    described = None
    if isinstance(spec, Cpu):
        described = spec.memory.constant.get(field.removeprefix("memory.")) or spec.constant.get(field)
    return reduce(getattr, field.split("."), spec), described, field


_READERS: Final[dict[str, Callable[..., Read]]] = {"frameworks": _of_framework, "libraries": _of_library}
"""Kind folder -> function that reads a constant of such a file; in files of other kinds, constants are fields."""
