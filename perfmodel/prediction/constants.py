"""Constants by their full names: value, unit, range and source, as the spec file states them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from perfmodel.hardware.cpu import Cpu
from perfmodel.hardware.device import Device

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.constant import Constant
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.hardware.source import Source, SpecFile

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
"""Ending of a field of a device, link, data set or storage -> its unit; others are fractions and counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedConstant:
    """A constant as its file states it.

    Parameters
    ----------
    name : str
        Full name. [-]
    value : float or tuple of float
        What the file states. [``unit``]
    unit : str
        Unit, ``1`` for a fraction or a count. [-]
    described : Constant or None
        Range and meaning; None for facts of a device or link. [-]
    source : Source or None
        The source that names it most closely. [-]
    """

    name: str
    value: float | tuple[float, ...]
    unit: str
    described: Constant | None
    source: Source | None


def stated_constant(name: str, specs: Specs, *, dtype: str = "fp32") -> StatedConstant | None:
    """Return a constant as its file states it.

    Parameters
    ----------
    name : str
        Full name, e.g. ``libraries/cublas_7_5/maxwell.gemm``. [-]
    specs : mapping of str to SpecFile
        Files by kind folder and stem. [-]
    dtype : str
        Data type, for which a library may have values of its own. [-]

    Returns
    -------
    StatedConstant or None
        None for a constant of a file that is not among them. [-]
    """
    folder, stem, place = name.split("/", 2)
    spec = specs.get(f"{folder}/{stem}")
    return None if spec is None else _READERS[folder](name, spec, place, dtype=dtype)


def _of_framework(name: str, profile: FrameworkProfile, place: str, **unused: str) -> StatedConstant:
    del unused
    processor, _, constant = place.partition(".")
    table: Any = getattr(profile, processor)
    nested, _, entry = constant.partition(".")
    value = getattr(table, nested)[entry] if entry else table.constants[constant]
    described = profile.constant[nested]
    field = place if entry else f"{processor}.constants.{constant}"
    source = profile.source_of(field)
    return StatedConstant(name=name, value=value, unit=described.unit, described=described, source=source)


def _of_library(name: str, library: LibraryProfile, place: str, *, dtype: str) -> StatedConstant:
    architecture, _, constant = place.partition(".")
    described = library.constant[constant]
    field = library.field_of(constant, architecture=architecture, dtype=dtype)
    return StatedConstant(
        name=name,
        value=library.constants_for(architecture, dtype=dtype)[constant],
        unit=described.unit,
        described=described,
        source=library.source_of(field),
    )


def _of_table(name: str, spec: SpecFile, place: str, **_: str) -> StatedConstant:
    """Read a fact of a device or a link: its place is its field, but for what a CPU is as a host of others."""
    field = place.removeprefix("host.")
    described = None
    if isinstance(spec, Cpu):
        described = spec.memory.constant.get(field.removeprefix("memory.")) or spec.constant.get(field)
    endings = (unit for ending, unit in UNIT_OF_ENDING.items() if any(key.endswith(ending) for key in field.split(".")))
    return StatedConstant(
        name=name,
        value=reduce(getattr, field.split("."), spec),  # type: ignore[arg-type]
        unit=next(endings, "1") if described is None else described.unit,
        described=described,
        source=spec.source_of(field),
    )


_READERS: Final[dict[str, Callable[..., StatedConstant]]] = {
    "frameworks": _of_framework,
    "libraries": _of_library,
    "devices": _of_table,
    "links": _of_table,
    "datasets": _of_table,
    "storage": _of_table,
}
"""Kind folder -> what reads a constant of such a file."""


def extrapolates(name: str, specs: Specs, device: Device) -> bool:
    """Tell whether a constant is a library's, stated for other architectures than the device's.

    Parameters
    ----------
    name : str
        Full name. [-]
    specs : mapping of str to SpecFile
        Files by kind folder and stem. [-]
    device : Device
        What the step runs on. [-]

    Returns
    -------
    bool
        True where the library has no table for the architecture. [-]
    """
    folder, stem, _ = name.split("/", 2)
    library: Any = specs.get(f"{folder}/{stem}")
    return folder == "libraries" and library is not None and device.architecture not in library.architecture
