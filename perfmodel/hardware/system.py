"""Systems: sockets, memory and the links between sockets of one machine, and the parts that are wired to them.

If one thread writes all data first, all of it lies in the memory of that thread's socket (first-touch placement). With
two sockets at work, half of all accesses are then remote; local and remote accesses take turns on each path.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from perfmodel.errors import ArgumentError, whole_numbers_text
from perfmodel.hardware import source as spec
from perfmodel.hardware.cpu import Cpu
from perfmodel.hardware.wiring import Wired, Wiring
from perfmodel.numeric import is_real
from perfmodel.presentation.quantities import counted
from perfmodel.units import GIB, GIGA

if TYPE_CHECKING:
    from perfmodel.hardware.device import Runnable


def _port_names(ports: Any) -> Any:
    names = ports if isinstance(ports, list | tuple) else [ports]
    if not names or not all(map(spec.is_identifier, names)):
        spec.invalid("must be the name of a part, or a list of such names")
    return ports


Ports = Annotated[spec.Identifier | tuple[spec.Identifier, ...], BeforeValidator(_port_names)]
"""Name of the part that others are attached to, or several names to which they are assigned in turn."""
PartCount = Annotated[spec.Count, Field(le=1024)]
"""Number of equal parts of a machine; more would be a typing error, and take minutes to wire."""
RESERVED_NAMES: Final = ("host", "memory")
"""Names that mean host memory wherever a place is named, so a part cannot have them."""
RESERVED_FAULT: Final = f"must not be {' or '.join(RESERVED_NAMES)}, which mean host memory"
Pair = Annotated[tuple[spec.Identifier, ...], Field(min_length=2, max_length=2)]


def faults_of_names(names: tuple[str, ...] | None, *, count: int) -> Iterator[spec.Fault]:
    """Yield a fault unless there are as many different names as parts, or none are stated."""
    if names is not None and (len(names) != count or len(set(names)) != count):
        yield ("names",), list(names), f"must be as many different names as count = {count}"


class PartTable(spec.SpecTable):
    """Fields of every part that is attached to another one."""

    names: tuple[spec.Identifier, ...] | None = None
    count: PartCount = 1
    to: Ports
    link: spec.Text

    def faults(self) -> Iterator[spec.Fault]:  # noqa: D102
        yield from faults_of_names(self.names, count=self.count)
        yield from ((("names",), name, RESERVED_FAULT) for name in self.names or () if name in RESERVED_NAMES)
        if self.count % len(self.ports):
            message = f"must be assigned evenly: count = {self.count} is not a multiple of {len(self.ports)} ports"
            yield ("to",), list(self.ports), message

    @property
    def ports(self) -> tuple[str, ...]:
        """Names of the parts that these are attached to."""
        return (self.to,) if isinstance(self.to, str) else self.to

    def port_of(self, index: int) -> str:
        """Return the name of the part to which the part of this index is attached."""
        return self.ports[index // (self.count // len(self.ports))]


class Hub(PartTable):
    """PCIe roots or switches, whose upstream link is shared by everything below them.

    Attributes
    ----------
    latency_us : float or None
        Latency that it adds to a copy; None takes the upstream link's ``hop_latency_us``. [us]
    """

    latency_us: Annotated[spec.NonNegativeNumber, AfterValidator(spec.InRange(0, 1_000, "us"))] | None = None


class DeviceSlot(PartTable):
    """Slots with a device in each; ``link`` is the slot's own, and the device's file states the card's.

    Attributes
    ----------
    device : str
        Name or path of the device's spec file. [-]
    override : bool
        Use the slot's link, whatever link the card has. [-]
    """

    device: spec.Text
    override: Annotated[bool, Field(strict=True)] = False


class StorageSlot(PartTable):
    """Drives; ``link`` is that of one drive.

    Attributes
    ----------
    drive : str
        Name or path of the drive's spec file. [-]
    raid : int or None
        0 stripes all of them into one array; None leaves them apart. [-]
    raid_efficiency : float
        Share of the drives' summed rate that the array reaches. [1]
    size_gib : float or None
        Size of each; for cloud disks, whose rate depends on it, if the drive's file states none. [GiB]
    """

    drive: spec.Text
    raid: Literal[0] | None = None
    raid_efficiency: spec.Fraction = 1.0
    size_gib: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(1, 1_000_000, "GiB"))] | None = None

    def faults(self) -> Iterator[spec.Fault]:  # noqa: D102
        yield from super().faults()
        if self.raid is None and self.raid_efficiency != 1.0:
            yield ("raid_efficiency",), self.raid_efficiency, "is allowed only with raid = 0"
        if self.raid is not None and len(self.ports) > 1:
            yield ("to",), list(self.ports), "must be one port, which all drives of an array share"


class NicSlot(PartTable):
    """Network adapters; ``link`` is the slot.

    Attributes
    ----------
    network : str
        Link to the network, e.g. ``infiniband_edr``. [-]
    rdma : bool or None
        Whether it accesses the memory of devices directly; None means yes on InfiniBand and EFA only. [-]
    """

    network: spec.Text
    rdma: Annotated[bool, Field(strict=True)] | None = None


class PeerLink(spec.SpecTable):
    """Links straight between devices, all alike."""

    between: Annotated[tuple[Pair, ...], Field(min_length=1)]
    link: spec.Text


class PeerSwitch(spec.SpecTable):
    """A non-blocking switch among devices, such as all NVSwitches of a machine together.

    Attributes
    ----------
    name : str
        Its name. [-]
    among : tuple of str or None
        Devices that it joins; None for all. [-]
    link : str
        Link from each device to it. [-]
    reduces : bool
        Whether it adds and multicasts (NVLink SHARP, from the third generation of NVSwitch). [-]
    """

    name: spec.Identifier = "nvswitch0"
    among: Annotated[tuple[spec.Identifier, ...], Field(min_length=2)] | None = None
    link: spec.Text
    reduces: Annotated[bool, Field(strict=True)] = False

    def faults(self) -> Iterator[spec.Fault]:  # noqa: D102
        if self.among is not None and len(set(self.among)) < len(self.among):
            yield ("among",), list(self.among), "must be different devices, each once"
        if self.name in RESERVED_NAMES:
            yield ("name",), self.name, RESERVED_FAULT


MOST_MACHINES: Final = 4096
MachineCount = Annotated[spec.Count, Field(le=MOST_MACHINES)]
"""Number of equal machines of a cluster; more would be a typing error, and take minutes to wire."""
MOST_DEVICES: Final = 8 * MOST_MACHINES
"""Devices of all machines of a cluster; wiring takes time and memory for each (12 kB). [1]"""


def machine_count(name: str, value: Any, *, of_devices: int = 1) -> int:
    """Check a number of machines that no file states, with some devices each; 2.0 counts as whole."""
    most = min(MOST_MACHINES, MOST_DEVICES // max(of_devices, 1))
    if not (is_real(value) and 1 <= value <= most and value == int(value)):
        raise ArgumentError(name, value, whole_numbers_text(1, most))
    return int(value)


class Fabric(spec.SpecTable):
    """The network between machines.

    Attributes
    ----------
    link : str
        Network of the adapters that it joins, e.g. ``infiniband_edr``. [-]
    hop_latency_us : float
        Latency that all its switches together add to a message. [us]
    machines_per_leaf : int or None
        Machines on one leaf switch; None joins all of them on one switch. [1]
    oversubscription : float
        Rate of all adapters of a leaf over that of its links to the spine; 1 is non-blocking. [1]
    reduces : bool
        Whether its switches add up messages, and libraries are set up to let them (SHARP). [-]
    in_order : bool
        Whether bytes arrive in the order in which they were sent. [-]
    """

    link: spec.Text
    hop_latency_us: Annotated[spec.NonNegativeNumber, AfterValidator(spec.InRange(0, 10_000, "us"))]
    machines_per_leaf: MachineCount | None = None
    oversubscription: Annotated[float, Field(ge=1, le=1000, strict=True, allow_inf_nan=False)] = 1.0
    reduces: Annotated[bool, Field(strict=True)] = False
    in_order: Annotated[bool, Field(strict=True)] = True

    def faults(self) -> Iterator[spec.Fault]:  # noqa: D102
        if self.machines_per_leaf is None and self.oversubscription > 1:
            yield ("oversubscription",), self.oversubscription, "needs machines_per_leaf; one switch carries all"


SpareFraction = Annotated[float, Field(ge=0, le=1, strict=True, allow_inf_nan=False)]
SocketCount = Annotated[spec.Count, Field(le=64)]
"""Sockets of one machine: fewer than other parts, as each is linked to each."""


class Sockets(spec.SpecTable):
    """CPU sockets, all alike."""

    device: spec.Text
    count: SocketCount


class SystemMemory(spec.SpecTable):
    """Host memory."""

    capacity_gib: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.5, 65_536, "GiB"))]
    policy: Literal["first_touch", "interleave"]
    remote_fraction: SpareFraction
    remote_bandwidth_gb_per_s: (
        Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.1, 5_000, "GB/s"))] | None
    ) = None


class SocketLink(spec.SpecTable):
    """Links between two sockets."""

    name: spec.Text
    link_count: PartCount
    bandwidth_gb_per_s: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.1, 5_000, "GB/s"))]


class SystemFile(spec.SpecFile):
    """A system as its file states it, with the fabric that usually joins several; ``System`` adds the CPU."""

    sockets: Sockets
    socket_link: SocketLink | None = Field(default=None, validate_default=True)
    memory: SystemMemory
    root: tuple[Hub, ...] = ()
    switch: tuple[Hub, ...] = ()
    device: tuple[DeviceSlot, ...] = ()
    peer_link: tuple[PeerLink, ...] = ()
    peer_switch: tuple[PeerSwitch, ...] = ()
    storage: tuple[StorageSlot, ...] = ()
    nic: tuple[NicSlot, ...] = ()
    fabric: Fabric | None = None

    @spec.checks("socket_link", beside=("sockets",))
    @staticmethod
    def _several_sockets_are_linked(link: SocketLink | None, sockets: Sockets) -> None:
        if (sockets.count > 1) != (link is not None):
            needed = "is needed" if link is None else "must not be given"
            spec.invalid(f"table [socket_link] {needed} with sockets.count = {sockets.count}")

    @spec.checks("memory", beside=("sockets", "socket_link"))
    @staticmethod
    def _remote_access_needs_a_link(memory: SystemMemory, sockets: Sockets, link: SocketLink | None) -> None:
        remote = memory.remote_bandwidth_gb_per_s
        most = link.link_count * link.bandwidth_gb_per_s if link is not None else math.inf
        if sockets.count == 1 and (remote is not None or memory.remote_fraction > 0):
            spec.invalid("with one socket remote_fraction must be 0, without remote_bandwidth_gb_per_s")
        if sockets.count > 1 and remote is None:
            spec.invalid("remote_bandwidth_gb_per_s is needed with several sockets")
        if remote is not None and remote > most:
            spec.invalid(f"remote_bandwidth_gb_per_s must be at most {most:g}, the links' rate")


@dataclass(frozen=True, kw_only=True, repr=False)
class System(Wired):
    """One machine: its file, the CPU in its sockets, and what is wired to them.

    Parameters
    ----------
    file : SystemFile
        What the system's file states. [-]
    processor : Cpu
        The CPU in each socket. [-]
    wiring : Wiring
        Places, links, devices and drives, resolved. [-]
    fileless : mapping of str to Runnable
        Devices that no file describes, by their stand-in names in the slots of this system's file. [-]
    is_changed : bool
        Whether any of its parts stands in for one that its file states. [-]
    """

    file: SystemFile
    processor: Cpu
    wiring: Wiring = field(default_factory=Wiring)
    fileless: "Mapping[str, Runnable]" = field(default_factory=dict, hash=False)
    is_changed: bool = False

    @property
    def name(self) -> str:
        """The system's display name."""
        return self.file.name

    @property
    def hosts(self) -> "dict[str, System]":
        """The machine itself, under an empty name."""
        return {"": self}

    @property
    def socket_count(self) -> int:
        """CPU sockets. [1]."""
        return self.file.sockets.count

    @property
    def core_count(self) -> int:
        """Physical cores of all sockets. [1]."""
        return self.socket_count * self.processor.core_count

    @property
    def thread_count(self) -> int:
        """Hardware threads of all sockets. [1]."""
        return self.socket_count * self.processor.thread_count

    @property
    def memory_capacity_bytes(self) -> float:
        """Host memory of all sockets. [B]."""
        return self.file.memory.capacity_gib * GIB

    @property
    def memory_bandwidth_bytes_per_s(self) -> float:
        """Bandwidth of all sockets to their own memory. [B/s]."""
        return self.socket_count * self.processor.memory_bandwidth_bytes_per_s

    @property
    def remote_fraction(self) -> float:
        """Share of accesses that go to another socket when threads of all sockets work. [1]."""
        return self.file.memory.remote_fraction

    @property
    def memory_socket_count(self) -> int:
        """Sockets whose channels hold the pages: one if a single thread touched them first. [1]."""
        on_one = self.file.memory.policy == "first_touch" and self.remote_fraction > 0
        return 1 if on_one else self.socket_count

    @property
    def remote_memory_bandwidth_bytes_per_s(self) -> float | None:
        """Bandwidth of one socket's threads to another socket's memory; None with one socket. [B/s]."""
        remote = self.file.memory.remote_bandwidth_gb_per_s
        return None if remote is None else remote * GIGA

    def describe(self) -> str:
        """Return the system in one line."""
        memory = f"{self.file.memory.capacity_gib:g} GiB"
        cores = counted(self.core_count, "core")
        host = f"{self.socket_count} x {self.processor.name}, {cores}, {memory}"
        return ", ".join([host, *self.device_counts()])
