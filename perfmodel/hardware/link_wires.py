"""Wires that links make, and what drives put on theirs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perfmodel.hardware.channel import Wire

if TYPE_CHECKING:
    from perfmodel.hardware.link import Link
    from perfmodel.hardware.storage import Storage


@dataclass(frozen=True, kw_only=True)
class StorageArray:
    """One drive, or several striped into one array.

    Parameters
    ----------
    name : str
        Its node's name. [-]
    drive : Storage
        Each of its drives. [-]
    drive_count : int
        Drives. [1]
    efficiency : float
        Share of the drives' summed rate that the array reaches. [1]
    link_name : str
        Link of one drive. [-]
    """

    name: str
    drive: Storage
    drive_count: int = 1
    efficiency: float = 1.0
    link_name: str = ""


def wire_of(
    lower: str, upper: str, link: Link, *, latency_s: float = 0.0, startup_s: float = 0.0, peer: bool = False
) -> Wire:
    """Return the wire that a link makes between two places.

    Parameters
    ----------
    lower, upper : str
        Its ends. [-]
    link : Link
        The link. [-]
    latency_s, startup_s : float
        What passing it adds, and what a copy over it costs once. [s]
    peer : bool
        Whether it joins devices past the host. [-]

    Returns
    -------
    Wire
        One channel for each direction, or one for both where the link is half-duplex. [-]
    """
    return Wire.between(
        lower,
        upper,
        capacity_bytes_per_s=link.effective_bandwidth_bytes_per_s,
        raw_bytes_per_s=link.raw_bandwidth_bytes_per_s,
        link=link.name,
        latency_s=latency_s,
        startup_s=startup_s,
        half_duplex=link.family.duplex == "half",
        peer=peer,
    )


def wire_of_array(array: StorageArray, port: str, link: Link) -> Wire:
    """Return the wire of a drive or array: its reads go up, its writes down, each capped by the drives' own links.

    Parameters
    ----------
    array : StorageArray
        Drives, one or several. [-]
    port : str
        What they hang off. [-]
    link : Link
        Link of one drive. [-]

    Returns
    -------
    Wire
        From the array to the port. [-]

    Notes
    -----
    A drive's rate is what it was seen to reach, so its link caps it by what the line code leaves, not by what copies
    of GPUs reach over such a link.
    """
    plain = wire_of(array.name, port, link)
    count = array.drive_count
    name = link.name if count == 1 else f"{count} x {link.name}"

    def capped(link_rate: float, drive_rate: float) -> float:
        return count * min(link_rate, drive_rate * array.efficiency)

    read = array.drive.read_bandwidth_bytes_per_s
    write = getattr(array.drive, "write_bandwidth_bytes_per_s", read)  # a store that states none writes as it reads
    rate, raw = link.bandwidth_bytes_per_s, count * plain.upward.raw_bytes_per_s
    return replace(
        plain,
        upward=replace(
            plain.upward,
            capacity_bytes_per_s=capped(rate, read),
            raw_bytes_per_s=raw,
            latency_s=array.drive.latency_s,
            link=name,
        ),
        downward=replace(plain.downward, capacity_bytes_per_s=capped(rate, write), raw_bytes_per_s=raw, link=name),
    )
