"""Devices by name; links of every family and lane width; the link that two ends negotiate."""

from __future__ import annotations

import contextlib
import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfmodel.calls import in_words
from perfmodel.errors import MOST_NEAREST, ArgumentError, SpecError, UnknownNameError
from perfmodel.hardware import spec_files
from perfmodel.hardware.spec_files import kept_while_unchanged
from perfmodel.plain_text import plain

if TYPE_CHECKING:
    from perfmodel.hardware.device import Device, Runnable
    from perfmodel.hardware.gpu import Gpu
    from perfmodel.hardware.link import Link, LinkFamily


SAME_BUT_FOR_A_SLIP: Final = 0.8
"""Similarity at or above which a name counts as another misspelt: one letter of six, two of nine. [1]"""


def misspelt_architecture(path: Path) -> list[str]:
    """Return a line if a device's architecture is unknown but nearly a known one.

    Known are the architectures that a library file lists and those of the shipped devices. Names that differ
    only in digits are generations of one family, not misspellings.
    """
    if path.parent == spec_files.shipped_folder() / "devices":
        return []
    read = spec_files.readable_tables
    architecture = str(read(path).get("architecture", ""))
    known = {name for file in spec_files.files("libraries") for name in read(file).get("architecture", {})}
    known |= {str(read(file).get("architecture", "")) for file in spec_files.shipped_folder().glob("devices/*.toml")}
    near = [
        name
        for name in difflib.get_close_matches(architecture, sorted(known), n=1, cutoff=SAME_BUT_FOR_A_SLIP)
        if re.sub(r"\d", "", name) != re.sub(r"\d", "", architecture)
    ]
    if architecture in known or not near:
        return []
    remedy = f"list a new one as [architecture.{architecture}] in a library file of your own (docs/adding_things.md)"
    return [f"architecture: value {architecture!r}: is not known (nearest: {near[0]}); {remedy}"]


def device_kinds() -> dict[str, type[Runnable]]:
    """Return the class of each kind of device, by the ``kind`` that its file states."""
    from perfmodel.hardware.cpu import Cpu
    from perfmodel.hardware.gpu import Gpu
    from perfmodel.hardware.measured_machine import MeasuredMachine

    return {"gpu": Gpu, "cpu": Cpu, "measured": MeasuredMachine}


@in_words
@kept_while_unchanged(spec_files.folders_asked_for)
def load_device(name_or_path: str | Path) -> Runnable:
    """Load a device or a measured machine.

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
    try:
        device = spec_files.load_by_kind(path, device_kinds())
    except SpecError as error:  # all faults at once, those of names beside those of numbers
        raise SpecError(path, [*error.faults, *misspelt_architecture(path)]) from None
    if not isinstance(device, Device):
        return device
    if faults := [*misspelt_architecture(path), *_host_link_faults(device)]:
        raise SpecError(path, faults)
    return device


def load_datasheet(name_or_path: str | Path) -> Device:
    """Load a device that a data sheet describes."""
    from perfmodel.hardware.device import Device

    device = load_device(name_or_path)
    if not isinstance(device, Device):
        raise ArgumentError("device", device.name, "a device with a data sheet, not a measured machine")
    return device


def _device_path(name_or_path: str | Path) -> Path:
    """Return the file of a device; measured machines are among the calibrations, as are fitted factors."""
    name_or_path = plain(name_or_path)
    named = not spec_files.is_path(name_or_path) and isinstance(name_or_path, str)
    among_devices = not named or spec_files.lookup("devices", str(name_or_path)) is not None
    calibrated = None if among_devices else spec_files.lookup("calibrations", str(name_or_path))
    if not among_devices and calibrated is None and name_or_path in ("gpu", "cpu"):
        raise ArgumentError("device", name_or_path, _one_of_kind(name_or_path))
    path = spec_files.find("devices", name_or_path) if calibrated is None else calibrated
    if spec_files.kind_of(path) == "fit":
        allowed = "a device or a measured machine; pass a fit as calibration="
        raise ArgumentError(argument="device", given=str(name_or_path), allowed=allowed)
    return path


def _one_of_kind(kind: str) -> str:
    """Ask for the name of a device of a kind, with a few examples."""
    names = [path.stem for path in spec_files.files("devices") if spec_files.kind_of(path) == kind]
    some = ", ".join(names[:MOST_NEAREST])
    return f"the name of a {kind.upper()}, such as {some}; pm.calibrate measures the one at hand"


def _host_link_faults(device: Device) -> list[str]:
    """List the faults of a device's host link, which another file describes."""
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


_WIDTH_IN_NAME: Final = re.compile(r"(?P<family>.+)_x(?P<width>\d+)")


@in_words
def load_link(name_or_path: str | Path, *, lane_count: int | None = None) -> Link:
    """Load a link.

    Parameters
    ----------
    name_or_path : str or Path
        A name such as ``pcie_3_x16`` or ``ethernet_10_gbit``, or a path to a TOML. [-]
    lane_count : int or None
        Lanes, if neither the name nor the file states them. [1]

    Returns
    -------
    Link
        A family at one lane width. [-]

    Raises
    ------
    UnknownNameError
        If there is no link of that name, or not of that width.
    ArgumentError
        If the file lists several widths and none is chosen.
    SpecError
        With every fault of its file.

    Examples
    --------
    >>> load_link("pcie_3_x16").bandwidth_bytes_per_s / 1e9
    15.7538
    """
    return _link_of_name(name_or_path) if lane_count is None else _link_of(name_or_path, lane_count)


def _link_of(name_or_path: str | Path, lane_count: int | None) -> Link:
    family, name, lane_count = _family_of(name_or_path, lane_count)
    widths = family.lane_widths or (1,)
    if lane_count is None and len(widths) > 1:
        allowed = f"one of {', '.join(map(str, widths))} with {name}; or name the link {name}_x{widths[-1]}"
        raise ArgumentError(argument="lane_count", given=None, allowed=allowed)
    chosen = widths[0] if lane_count is None else lane_count
    full_name = f"{name}_x{chosen}" if family.lane_widths else name
    if chosen not in widths:
        raise UnknownNameError(kind="link", name=full_name, known=[f"{name}_x{width}" for width in widths])
    from perfmodel.hardware.link import Link

    return Link(name=full_name, family=family, lane_count=chosen)


@kept_while_unchanged(spec_files.folders_asked_for)
def _link_of_name(name_or_path: str | Path) -> Link:
    return _link_of(name_or_path, None)


def _family_of(name_or_path: str | Path, lane_count: int | None) -> tuple[LinkFamily, str, int | None]:
    """Return the family that a link's name or path denotes, its name, and the lanes that the name states."""
    from perfmodel.hardware.link import LinkFamily

    if spec_files.is_path(name_or_path) or not isinstance(name_or_path, str):
        path = spec_files.find("links", name_or_path)
        return spec_files.load(path, LinkFamily), path.stem, lane_count
    named = spec_files.lookup("links", name_or_path)
    match = _WIDTH_IN_NAME.fullmatch(name_or_path)
    if named is None and match is not None:
        named, stated = spec_files.lookup("links", match["family"]), int(match["width"])
        if lane_count not in (None, stated):
            raise ArgumentError("lane_count", lane_count, f"{stated} with {name_or_path}, or left out")
        lane_count = stated
    if named is None:
        raise UnknownNameError(kind="link", name=name_or_path, known=_widest_link_names())
    return spec_files.load(named, LinkFamily), named.stem, lane_count


def names_of_family(name: str) -> list[str]:
    """Return the link names that a family's file serves, by rising width.

    >>> names_of_family("ethernet_10_gbit")
    ['ethernet_10_gbit']
    """
    from perfmodel.hardware.link import LinkFamily

    widths = spec_files.load(spec_files.find("links", name), LinkFamily).lane_widths
    return [f"{name}_x{width}" for width in widths] or [name]


def _widest_link_names() -> list[str]:
    """Return one name to suggest for each family that can be loaded."""
    widest = []
    for name in spec_files.names("links"):
        with contextlib.suppress(SpecError):
            widest.append(names_of_family(name)[-1])
    return widest


def negotiated_link(slot: Link, device: Gpu, *, override: bool = False) -> tuple[Link, str]:
    """Return the link that a card and its slot negotiate: the older generation at the narrower width.

    >>> from perfmodel.hardware.catalogue import load_device
    >>> negotiated_link(load_link("pcie_4_x16"), load_device("gtx_1080"))[0].name
    'pcie_3_x16'
    """
    card = load_link(device.host_link.link_name)
    if slot.family.protocol != card.family.protocol:
        return slot, ""
    older = min(slot.family.generation or 0, card.family.generation or 0)
    settled = load_link(f"{slot.family.protocol}_{older}_x{min(slot.lane_count, card.lane_count)}")
    if override and slot.name != settled.name:
        return slot, f"runs at {slot.name} although the card has {card.name}, as the file asks"
    if settled.name != slot.name:
        return settled, f"runs at {settled.name} in a slot of {slot.name}: the card has {card.name}"
    return settled, ""
