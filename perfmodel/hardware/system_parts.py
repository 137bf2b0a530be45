"""Tables of a system's file beyond sockets and memory: PCIe roots and switches, devices, peer links, storage, NICs.

A part hangs off another one by ``to``: a socket (``socket0``), a root or a switch. ``count`` makes several alike;
``names`` names them, else they are numbered through the file by kind (``gpu0``, ``switch0``, ``nic0``). With a list
``to`` the parts are dealt to it in order, equal shares each.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from perfmodel.hardware.source import (
    Count,
    Fraction,
    Identifier,
    InRange,
    NonNegativeNumber,
    PositiveNumber,
    SpecTable,
    Text,
    fault_at,
)

Ports = Identifier | Annotated[tuple[Identifier, ...], Field(min_length=1)]
"""What a part hangs off, or what several are dealt to in order."""

PartCount = Annotated[Count, Field(le=1024)]
"""How many parts alike a machine has: more is a slip of the pen, which would take minutes to wire."""

RESERVED_NAMES: Final = ("host", "memory")
"""Names that mean host memory where a place is asked for, and so can name no part."""

RESERVED_FAULT: Final = f"must not be {' or '.join(RESERVED_NAMES)}, which mean host memory"

Pair = Annotated[tuple[Identifier, ...], Field(min_length=2, max_length=2)]


class PartTable(SpecTable):
    """What all parts that hang off another one have.

    Attributes
    ----------
    names : tuple of str or None
        One for each; None numbers them by kind. [-]
    count : int
        Parts alike. [1]
    to : str or tuple of str
        Socket, root or switch they hang off; a list deals them out in order. [-]
    link : str
        Link by which each of them does, e.g. ``pcie_3_x16``. [-]
    """

    names: tuple[Identifier, ...] | None = None
    count: PartCount = 1
    to: Ports
    link: Text

    @model_validator(mode="after")
    def _names_and_ports_go_into_count(self) -> Self:
        if self.names is not None and (len(self.names) != self.count or len(set(self.names)) != self.count):
            message = f"must be as many different names as count = {self.count}"
            raise fault_at(("names",), list(self.names), message)
        reserved = [name for name in self.names or () if name in RESERVED_NAMES]
        if reserved:
            raise fault_at(("names",), reserved[0], RESERVED_FAULT)
        if self.count % len(self.ports):
            message = f"must be dealt evenly: count = {self.count} is no multiple of {len(self.ports)} ports"
            raise fault_at(("to",), list(self.ports), message)
        return self

    @property
    def ports(self) -> tuple[str, ...]:
        """What they hang off, as a tuple."""
        return (self.to,) if isinstance(self.to, str) else self.to

    def port_of(self, index: int) -> str:
        """Return what one of them hangs off."""
        return self.ports[index // (self.count // len(self.ports))]


class Hub(PartTable):
    """PCIe roots or switches, whose upstream link all that hangs off them shares.

    Attributes
    ----------
    latency_us : float or None
        What passing it adds to a copy; None takes the upstream link's ``hop_latency_us``. [us]
    """

    latency_us: Annotated[NonNegativeNumber, AfterValidator(InRange(0, 1_000, "us"))] | None = None


class DeviceSlot(PartTable):
    """Slots with a device in each; ``link`` is what the slot can do, and the card what it has.

    Attributes
    ----------
    device : str
        Name of, or path to, the device's spec file. [-]
    override : bool
        Take the slot's link as it stands, whatever the card has. [-]
    """

    device: Text
    override: Annotated[bool, Field(strict=True)] = False


class StorageSlot(PartTable):
    """Drives; ``link`` is that of one drive.

    Attributes
    ----------
    drive : str
        Name of, or path to, the drive's spec file. [-]
    raid : int or None
        0 stripes all of them into one array; None leaves them apart. [-]
    raid_efficiency : float
        Share of the drives' summed rate that the array reaches. [1]
    size_gib : float or None
        Size of each, where a cloud grants the rate by it and the drive's file states none. [GiB]
    """

    drive: Text
    raid: Literal[0] | None = None
    raid_efficiency: Fraction = 1.0
    size_gib: Annotated[PositiveNumber, AfterValidator(InRange(1, 1_000_000, "GiB"))] | None = None

    @model_validator(mode="after")
    def _an_array_has_one_name(self) -> Self:
        if self.raid is None and self.raid_efficiency != 1.0:
            raise fault_at(("raid_efficiency",), self.raid_efficiency, "only goes with raid = 0")
        if self.raid is not None and len(self.ports) > 1:
            raise fault_at(("to",), list(self.ports), "must be one port: the drives of an array hang together")
        return self


class NicSlot(PartTable):
    """Network adapters; ``link`` is the slot.

    Attributes
    ----------
    network : str
        Link to the network, e.g. ``infiniband_edr``. [-]
    rdma : bool or None
        Whether it reads and writes the memories of devices by itself; None: on InfiniBand it does. [-]
    """

    network: Text
    rdma: Annotated[bool, Field(strict=True)] | None = None


class PeerLink(SpecTable):
    """Links straight between devices, all alike.

    Attributes
    ----------
    between : tuple of pairs
        The pairs that are joined. [-]
    link : str
        Link of one pair, e.g. ``nvlink_1_x1``. [-]
    """

    between: Annotated[tuple[Pair, ...], Field(min_length=1)]
    link: Text


class PeerSwitch(SpecTable):
    """A non-blocking switch among devices, such as all NVSwitches of a machine together.

    Attributes
    ----------
    name : str
        Its name. [-]
    among : tuple of str or None
        Devices that it joins; None for all. [-]
    link : str
        Link of one device to it, e.g. ``nvlink_3_x12``. [-]
    """

    name: Identifier = "nvswitch0"
    among: Annotated[tuple[Identifier, ...], Field(min_length=2)] | None = None
    link: Text

    @model_validator(mode="after")
    def _devices_are_joined_once(self) -> Self:
        if self.among is not None and len(set(self.among)) < len(self.among):
            raise fault_at(("among",), list(self.among), "must be different devices, each once")
        if self.name in RESERVED_NAMES:
            raise fault_at(("name",), self.name, RESERVED_FAULT)
        return self
