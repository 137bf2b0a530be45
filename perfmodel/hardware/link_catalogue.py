"""Links by name: every family at every lane width, and what two ends of a link settle on."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfmodel.errors import ArgumentError, SpecError, UnknownNameError
from perfmodel.hardware import spec_files
from perfmodel.hardware.file_changes import kept_while_unchanged

if TYPE_CHECKING:
    from perfmodel.hardware.gpu import Gpu
    from perfmodel.hardware.link import Link, LinkFamily

_WIDTH_IN_NAME: Final = re.compile(r"(?P<family>.+)_x(?P<width>\d+)")


def load_link(name_or_path: str | Path, *, lane_count: int | None = None) -> Link:
    """Load a link.

    Parameters
    ----------
    name_or_path : str or Path
        A name such as ``pcie_3_x16`` or ``ethernet_10_gbit``, or a path to a TOML. [-]
    lane_count : int or None
        Lanes, where neither the name nor the file says. [1]

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
        allowed = f"{name} needs one of {', '.join(map(str, widths))}, e.g. {name}_x{widths[-1]}"
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
            raise ArgumentError(argument="lane_count", given=lane_count, allowed=f"{name_or_path} has {stated}")
        lane_count = stated
    if named is None:
        raise UnknownNameError(kind="link", name=name_or_path, known=_widest_link_names())
    return spec_files.load(named, LinkFamily), named.stem, lane_count


def names_of_family(name: str) -> list[str]:
    """Return the link names that a family's file serves, by rising width.

    Raises
    ------
    SpecError
        With every fault of the file.

    Examples
    --------
    >>> names_of_family("ethernet_10_gbit")
    ['ethernet_10_gbit']
    """
    from perfmodel.hardware.link import LinkFamily

    widths = spec_files.load(spec_files.find("links", name), LinkFamily).lane_widths
    return [f"{name}_x{width}" for width in widths] or [name]


def _widest_link_names() -> list[str]:
    """Return one name for each family that can be loaded, to be suggested."""
    widest = []
    for name in spec_files.names("links"):
        with contextlib.suppress(SpecError):
            widest.append(names_of_family(name)[-1])
    return widest


def negotiated_link(slot: Link, device: Gpu, *, override: bool = False) -> tuple[Link, str]:
    """Return the link that a card and its slot settle on: the older generation at the narrower width.

    Parameters
    ----------
    slot : Link
        What the slot can do. [-]
    device : Gpu
        The card, which says what it has. [-]
    override : bool
        Take the slot's link whatever the card has. [-]

    Returns
    -------
    tuple of Link and str
        The link, and a remark where it is not what both have; empty else. [-]

    Examples
    --------
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
