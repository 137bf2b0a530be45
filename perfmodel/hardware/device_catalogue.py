"""Devices by name or path: a GPU or a CPU by its data sheet, or a machine that was measured."""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import ArgumentError, SpecError, UnknownNameError
from perfmodel.hardware import spec_files
from perfmodel.hardware.file_changes import kept_while_unchanged
from perfmodel.hardware.link_catalogue import load_link

if TYPE_CHECKING:
    from perfmodel.hardware.device import Device, Runnable


SAME_BUT_FOR_A_SLIP: Final = 0.8
"""Similarity of two names from which one counts as the other misspelt: one letter of six, two of nine. [1]"""


def misspelt_architecture(path: Path, device: Device) -> list[str]:
    """Return a line if a device's architecture is unknown but nearly a known one.

    Known are the architectures that a library file lists and those of the shipped devices. Names that differ in
    their digits only are generations of one family, not slips.
    """
    if path.parent == spec_files.shipped_folder() / "devices":
        return []
    known = {
        name for file in spec_files.files("libraries") for name in _listed_in_library(file, file.stat().st_mtime_ns)
    }
    shipped = sorted((spec_files.shipped_folder() / "devices").glob("*.toml"))
    known |= {_of_device(file, file.stat().st_mtime_ns) for file in shipped}
    given = device.architecture
    near = [
        name
        for name in difflib.get_close_matches(given, sorted(known), n=1, cutoff=SAME_BUT_FOR_A_SLIP)
        if re.sub(r"\d", "", name) != re.sub(r"\d", "", given)
    ]
    if given in known or not near:
        return []
    remedy = f"if it is new, list it as [architecture.{given}] in a library file of your own (docs/adding_things.md)"
    return [f"architecture: value {given!r}: is not known (nearest: {near[0]}); {remedy}"]


@lru_cache(maxsize=256)
def _listed_in_library(path: Path, changed_ns: int) -> frozenset[str]:
    del changed_ns
    return frozenset(_table(path).get("architecture", {}))


@lru_cache(maxsize=256)
def _of_device(path: Path, changed_ns: int) -> str:
    del changed_ns
    return str(_table(path).get("architecture", ""))


def _table(path: Path) -> dict[str, Any]:
    try:
        return spec_files.read_toml(path)
    except SpecError:
        return {}  # whoever loads that file is told


def device_kinds() -> dict[str, type[Runnable]]:
    """Return the class of each kind of device, by the ``kind`` that its file states."""
    from perfmodel.hardware.cpu import Cpu
    from perfmodel.hardware.gpu import Gpu
    from perfmodel.hardware.measured_machine import MeasuredMachine

    return {"gpu": Gpu, "cpu": Cpu, "measured": MeasuredMachine}


@kept_while_unchanged(spec_files.folders_asked_for)
def load_device(name_or_path: str | Path) -> Runnable:
    """Load a device, or a machine that was measured.

    Parameters
    ----------
    name_or_path : str or Path
        A name such as ``gtx_1080``, the name of a calibration that is a measured machine, or a path to a TOML. [-]

    Returns
    -------
    Runnable
        A ``Gpu``, a ``Cpu`` or a ``MeasuredMachine``. [-]

    Raises
    ------
    UnknownNameError
        If there is no device of that name.
    ArgumentError
        If it is the name of something else, or a calibration of fitted factors.
    SpecError
        With every fault of its file.

    Examples
    --------
    >>> load_device("gtx_1080").memory_bandwidth_bytes_per_s
    320000000000.0
    """
    from perfmodel.hardware.device import Device

    path = _device_path(name_or_path)
    device = spec_files.load_by_kind(path, device_kinds())
    if not isinstance(device, Device):
        return device
    if faults := [*misspelt_architecture(path, device), *_host_link_faults(device)]:
        raise SpecError(path, faults)
    return device


def load_datasheet(name_or_path: str | Path) -> Device:
    """Load a device that a data sheet describes.

    Raises
    ------
    ArgumentError
        If it is a measured machine, or the name of something else.
    UnknownNameError
        If there is no device of that name.
    SpecError
        With every fault of its file.
    """
    from perfmodel.hardware.device import Device

    device = load_device(name_or_path)
    if not isinstance(device, Device):
        raise ArgumentError("device", device.name, "a device with a data sheet, not a measured machine")
    return device


def _device_path(name_or_path: str | Path) -> Path:
    """Return the file of a device; a measured machine lies among the calibrations, where fitted factors lie too."""
    named = not spec_files.is_path(name_or_path) and isinstance(name_or_path, str)
    among_devices = not named or spec_files.lookup("devices", str(name_or_path)) is not None
    calibrated = None if among_devices else spec_files.lookup("calibrations", str(name_or_path))
    path = spec_files.find("devices", name_or_path) if calibrated is None else calibrated
    if spec_files.kind_of(path) == "fit":
        allowed = "a device, or a measured machine; this calibration holds fitted factors: give it as calibration="
        raise ArgumentError(argument="device", given=str(name_or_path), allowed=allowed)
    return path


def _host_link_faults(device: Device) -> list[str]:
    """Return what is wrong with the link by which a device says it is attached, which is another file's matter."""
    host_link = getattr(device, "host_link", None)
    if host_link is None:
        return []
    try:
        load_link(host_link.link_name)
    except UnknownNameError as error:
        known = spec_files.lookup("links", f"{host_link.type}_{host_link.generation}")
        field, value = ("generation", host_link.generation) if known is None else ("width", host_link.width)
        return [f"host_link.{field}: value {value}: {error}"]
    return []
