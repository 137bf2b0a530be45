"""Machines and clusters as graphs of parts, and how the parts of a system's file are wired together."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.derived import derived_property
from perfmodel.errors import PerfmodelError, SpecError, nearest_hint
from perfmodel.hardware import spec_files
from perfmodel.hardware.gpu import Gpu
from perfmodel.hardware.part_catalogue import load_link, negotiated_link
from perfmodel.hardware.source import ESTIMATE, summary
from perfmodel.hardware.topology import Topology
from perfmodel.hardware.wires import Channel, Place, Wire, Wires, changed_wires
from perfmodel.symbolic import is_symbolic
from perfmodel.units import GIGA, MICROSECOND

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perfmodel.hardware.cpu import Cpu
    from perfmodel.hardware.device import Runnable
    from perfmodel.hardware.link import Link
    from perfmodel.hardware.source import SpecFile
    from perfmodel.hardware.storage import Storage
    from perfmodel.hardware.system import DeviceSlot, Hub, NicSlot, PartTable, StorageSlot, System, SystemFile
    from perfmodel.hardware.topology import Route
    from perfmodel.symbolic import Quantity


@dataclass(frozen=True, kw_only=True)
class StorageArray:
    """One drive, or several striped into one array."""

    name: str
    drive: Storage
    drive_count: int = 1
    efficiency: float = 1.0


def wire_of(
    lower: str, upper: str, link: Link, *, latency_s: float = 0.0, startup_s: float = 0.0, peer: bool = False
) -> Wire:
    """Return the wire that a link makes between two places."""
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
    """Return the wire of a drive or array: reads go up, writes down, each capped by the drives' own links.

    A drive's rate was measured, so its link caps it at the rate after the line code, not at the rate that copies of
    GPUs reach over such a link.
    """
    plain = wire_of(array.name, port, link)
    count = array.drive_count
    name = link.name if count == 1 else f"{count} x {link.name}"

    def capped(link_rate: float, drive_rate: float) -> float:
        return count * min(link_rate, drive_rate * array.efficiency)

    read, write = array.drive.read_bandwidth_bytes_per_s, array.drive.write_bandwidth_bytes_per_s
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


NETWORKS: Final = frozenset({"efa", "ethernet", "infiniband"})
"""Protocols between machines; slots, hubs and peer links do not use them."""

DEVICE_LINKS: Final = frozenset({"nvlink"})
"""Protocols that join devices to each other and to some CPUs, but not to drives, adapters or hubs."""

BUSES: Final = DEVICE_LINKS | {"pcie"}
"""Protocols inside a machine; networks do not use them."""

RDMA_PROTOCOLS: Final = frozenset({"efa", "infiniband"})
"""Networks whose adapters have RDMA by default."""


def first_to_last(names: Sequence[str]) -> str:
    """Name equal parts by the first and the last of them."""
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """Places, wires and remarks of a system's file."""

    places: tuple[Place, ...] = ()
    wires: Wires = ()
    devices: tuple[tuple[str, Gpu], ...] = ()
    storages: tuple[StorageArray, ...] = ()
    networks: tuple[tuple[str, Link], ...] = ()
    remarks: tuple[str, ...] = ()
    equal_machines: bool = False


@dataclass
class _Wirer:
    """Collects the places, wires and faults of one file."""

    file: SystemFile
    folder: Path
    fileless: Mapping[str, Runnable] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    devices: list[tuple[str, Gpu]] = field(default_factory=list)
    storages: list[StorageArray] = field(default_factory=list)
    networks: list[tuple[str, Link]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def fault(self, where: str, value: object, allowed: str, known: Iterable[str] = ()) -> None:
        self.faults.append(f"{where}: value {value!r}: {allowed}{nearest_hint(str(value), known)}")

    def link(self, where: str, name: str, *, never: frozenset[str]) -> Link | None:
        """Load a link, or note its fault; some protocols cannot be used at some places."""
        try:
            link = load_link(spec_files.from_folder(self.folder, name))
        except PerfmodelError as error:
            self.fault(where, name, str(error))
            return None
        if link.family.protocol not in never:
            return link
        fitting = sorted((NETWORKS | BUSES) - never)
        self.fault(where, name, f"must be a link such as {' or '.join(fitting)}, not {link.family.protocol}")
        return None

    def add(self, place: Place, where: str) -> None:
        if any(place.name == other.name for other in self.places):
            self.fault(f"{where}.names", place.name, "must be the name of one part only")
        self.places.append(place)

    def name_parts(self, part: PartTable, prefix: str, *, count: int) -> list[str]:
        """Return the names of the parts of a table: its own, or the next numbers of their kind."""
        if part.names is not None:
            return list(part.names[:count])
        first = self.numbers.get(prefix, 0)
        self.numbers[prefix] = first + count
        return [f"{prefix}{first + index}" for index in range(count)]

    def known_port(self, where: str, port: str) -> bool:
        ports = [place.name for place in self.places if place.kind in ("socket", "root", "switch")]
        if port not in ports:
            self.fault(where, port, f"must be one of {', '.join(ports)}", ports)
        return port in ports

    def sockets(self, processor: Cpu) -> None:
        file = self.file
        count = file.sockets.count
        for index in range(count):
            self.places.append(Place(name=f"socket{index}", kind="socket", detail=processor.name))
            self.places.append(Place(name=f"memory{index}", kind="memory", detail="host memory"))
            bus = Wire.between(
                f"memory{index}",
                f"socket{index}",
                capacity_bytes_per_s=processor.sustained_memory_bandwidth_bytes_per_s,
                raw_bytes_per_s=processor.memory_bandwidth_bytes_per_s,
                link="memory bus",
                half_duplex=True,
            )
            self.wires.append(bus)
        link, reached = file.socket_link, file.memory.remote_bandwidth_gb_per_s
        if link is not None and reached is not None:
            for upper, lower in combinations(range(count), 2):
                wire = Wire.between(
                    f"socket{lower}",
                    f"socket{upper}",
                    capacity_bytes_per_s=reached * GIGA,
                    raw_bytes_per_s=link.link_count * link.bandwidth_gb_per_s * GIGA,
                    link=f"{link.link_count} x {link.name}",
                )
                self.wires.append(wire)

    def hubs(self, hubs: tuple[Hub, ...], kind: str) -> Iterator[tuple[str, str, str, Wire]]:
        """Place the hubs; yield each one's location in the file, name, port and upstream wire."""
        for row, hub in enumerate(hubs):
            where = f"{kind}[{row}]"
            link = self.link(f"{where}.link", hub.link, never=NETWORKS | DEVICE_LINKS)
            for index, name in enumerate(self.name_parts(hub, kind, count=hub.count)):
                self.add(Place(name=name, kind=kind, detail=f"PCIe {kind}"), where)
                if link is not None:
                    hop = link.hop_latency_s if hub.latency_us is None else hub.latency_us * MICROSECOND
                    port = hub.port_of(index)
                    yield f"{where}.to", name, port, wire_of(name, port, link, latency_s=hop)

    def check_hubs(self, stated: list[tuple[str, str, str, Wire]]) -> None:
        """Keep the wires of hubs whose ports exist, and reject cycles."""
        above = {name: port for _, name, port, _ in stated}
        for where, name, port, wire in stated:
            if not self.known_port(where, port):
                continue
            path, at = [name], port
            while at in above and at not in path:
                path.append(at)
                at = above[at]
            if at in path:
                ends = ", from which nothing has a path to storage" if self.file.storage else ""
                self.fault(where, port, f"must lead to a socket; {' -> '.join([*path, at])} is a circle{ends}")
            else:
                self.wires.append(wire)

    def remark_presumed(self) -> None:
        """Remark that the wiring of hubs is presumed, if no source states it."""
        for kind, hubs, plural in (("root", self.file.root, "roots"), ("switch", self.file.switch, "switches")):
            source = self.file.source_of(f"{kind}.to") if hubs else None
            if source is not None and source.kind == ESTIMATE:
                count = sum(hub.count for hub in hubs)
                several = f"{count} PCIe {plural} are" if count > 1 else f"PCIe {kind} is"
                self.remarks.append(f"how its {several} joined is presumed: {source.note}")

    def device_slots(self, slots: tuple[DeviceSlot, ...]) -> None:
        from perfmodel.hardware.catalogue import load_device

        for row, slot in enumerate(slots):
            where = f"device[{row}]"
            link = self.link(f"{where}.link", slot.link, never=NETWORKS)
            ports = [self.known_port(f"{where}.to", port) for port in slot.ports]
            try:
                device = self.fileless.get(slot.device) or load_device(spec_files.from_folder(self.folder, slot.device))
            except PerfmodelError as error:
                self.fault(f"{where}.device", slot.device, str(error))
                continue
            if not isinstance(device, Gpu):
                self.fault(f"{where}.device", slot.device, "must be a GPU with a data sheet; CPUs belong in [sockets]")
                continue
            if link is None or not all(ports):
                continue
            card = load_link(device.host_link.link_name)
            if not slot.override and link.family.protocol != card.family.protocol:
                allowed = f"must be a slot for the card, which has {card.name} (or override = true)"
                self.fault(f"{where}.link", slot.link, allowed)
                continue
            settled, remark = negotiated_link(link, device, override=slot.override)
            names = self.name_parts(slot, "gpu", count=slot.count)
            for index, name in enumerate(names):
                engines = device.host_link.copy_engine_count
                self.add(Place(name=name, kind="device", detail=device.name, copy_engine_count=engines), where)
                wire = wire_of(name, slot.port_of(index), settled, startup_s=settled.latency_s)
                self.wires.append(wire)
                self.devices.append((name, device))
            if remark:
                self.remarks.append(f"{first_to_last(names)}: {device.name} {remark}")

    def peers(self) -> None:
        names = [name for name, _ in self.devices]
        joined: set[frozenset[str]] = set()
        for row, peers in enumerate(self.file.peer_link):
            link = self.link(f"peer_link[{row}].link", peers.link, never=NETWORKS)
            for pair in peers.between:
                lost = [end for end in pair if end not in names]
                for end in lost:
                    self.fault(f"peer_link[{row}].between", end, f"must be one of {', '.join(names)}", names)
                if len(set(pair)) == 1:
                    self.fault(f"peer_link[{row}].between", list(pair), "must be two different devices")
                elif frozenset(pair) in joined:
                    allowed = "must be joined once; several links of a pair are the lanes of one"
                    self.fault(f"peer_link[{row}].between", list(pair), allowed)
                elif link is not None and not lost:
                    self.wires.append(wire_of(pair[0], pair[1], link, startup_s=link.latency_s, peer=True))
                joined.add(frozenset(pair))
        for row, switch in enumerate(self.file.peer_switch):
            where = f"peer_switch[{row}]"
            link = self.link(f"{where}.link", switch.link, never=NETWORKS)
            detail = f"{switch.link} to each"
            self.add(Place(name=switch.name, kind="switch", detail=detail, reduces=switch.reduces), where)
            for end in switch.among or names:
                if end not in names:
                    self.fault(f"{where}.among", end, f"must be one of {', '.join(names)}", names)
                elif link is not None:
                    self.wires.append(wire_of(end, switch.name, link, startup_s=link.latency_s, peer=True))

    def drive(self, where: str, slot: StorageSlot) -> Storage | None:
        """Load a drive at the size that the slot states, or note its fault."""
        from perfmodel.hardware.catalogue import load_storage
        from perfmodel.hardware.storage import CloudDisk

        try:
            drive = load_storage(spec_files.from_folder(self.folder, slot.drive))
        except PerfmodelError as error:
            self.fault(f"{where}.drive", slot.drive, str(error))
            return None
        if isinstance(drive, CloudDisk):
            if slot.size_gib is None and drive.size_gib is None:
                self.fault(f"{where}.size_gib", None, f"is needed: {slot.drive} is granted its rate by its size")
                return None
            return drive if slot.size_gib is None else drive.of_size(slot.size_gib)
        if slot.size_gib is not None:
            self.fault(
                f"{where}.size_gib", slot.size_gib, f"is allowed only for a cloud disk, and {slot.drive} is not one"
            )
            return None
        return drive

    def storage_slots(self, slots: tuple[StorageSlot, ...]) -> None:
        for row, slot in enumerate(slots):
            where = f"storage[{row}]"
            link = self.link(f"{where}.link", slot.link, never=NETWORKS | DEVICE_LINKS)
            ports = [self.known_port(f"{where}.to", port) for port in slot.ports]
            drive = self.drive(where, slot)
            if link is None or drive is None or not all(ports):
                continue
            striped = slot.count if slot.raid is not None else 1
            for index, name in enumerate(self.name_parts(slot, drive.kind, count=slot.count // striped)):
                array = StorageArray(name=name, drive=drive, drive_count=striped, efficiency=slot.raid_efficiency)
                detail = drive.name if striped == 1 else f"RAID 0 of {striped} x {drive.name}"
                self.add(Place(name=name, kind="storage", detail=detail), where)
                self.wires.append(wire_of_array(array, slot.port_of(index), link))
                self.storages.append(array)

    def nic_slots(self, slots: tuple[NicSlot, ...]) -> None:
        for row, slot in enumerate(slots):
            where = f"nic[{row}]"
            link = self.link(f"{where}.link", slot.link, never=NETWORKS | DEVICE_LINKS)
            network = self.link(f"{where}.network", slot.network, never=BUSES)
            ports = [self.known_port(f"{where}.to", port) for port in slot.ports]
            if link is None or network is None or not all(ports):
                continue
            rdma = network.family.protocol in RDMA_PROTOCOLS if slot.rdma is None else slot.rdma
            for index, name in enumerate(self.name_parts(slot, "nic", count=slot.count)):
                self.add(Place(name=name, kind="nic", detail=network.name, has_rdma=rdma), where)
                self.wires.append(wire_of(name, slot.port_of(index), link, latency_s=link.hop_latency_s))
                self.networks.append((name, network))


def wiring_of(
    file: SystemFile, *, processor: Cpu, path: Path, fileless: Mapping[str, Runnable] | None = None
) -> Wiring:
    """Resolve the parts of a system's file."""
    wirer = _Wirer(file, path.parent, fileless or {})
    wirer.sockets(processor)
    stated = [*wirer.hubs(file.root, "root"), *wirer.hubs(file.switch, "switch")]
    wirer.check_hubs(stated)
    wirer.remark_presumed()
    wirer.device_slots(file.device)
    wirer.peers()
    wirer.storage_slots(file.storage)
    wirer.nic_slots(file.nic)
    if wirer.faults:
        raise SpecError(path, wirer.faults)
    parts: dict[str, Any] = {
        part.name: tuple(getattr(wirer, part.name)) for part in fields(Wiring) if part.name != "equal_machines"
    }
    return Wiring(**parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One line of a list of parts: a place and the link that leads from it towards the sockets."""

    name: str
    kind: str
    detail: str
    to: str
    link: str
    raw_bytes_per_s: float
    typical_bytes_per_s: float


class Wired(ABC):
    """A machine, or a cluster of machines, as a graph of parts."""

    wiring: Wiring
    file: SpecFile

    @property
    @abstractmethod
    def name(self) -> str:
        """Its display name."""

    @property
    @abstractmethod
    def hosts(self) -> Mapping[str, System]:
        """Machines by the prefix of their nodes' names, which is empty for a single machine."""

    @property
    def node_count(self) -> int:
        """Machines. [1]."""
        return 1

    @property
    def devices(self) -> tuple[tuple[str, Gpu], ...]:
        """GPUs by their nodes' names, in file order."""
        return self.wiring.devices

    @property
    def computes_on_hosts(self) -> bool:
        """Whether its devices are the cores of its machines."""
        return bool(self.devices) and self.devices[0][1].processor_kind == "cpu"

    @property
    def storages(self) -> tuple[StorageArray, ...]:
        """Drives and arrays, in file order."""
        return self.wiring.storages

    @property
    def networks(self) -> tuple[tuple[str, Link], ...]:
        """The network of each adapter by the adapter's node name, in file order."""
        return self.wiring.networks

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks for the reader, e.g. a card in a slot of a newer generation, or assumed wiring."""
        return self.wiring.remarks

    @derived_property
    def topology(self) -> Topology:
        """Its places and the channels between them; made once."""
        return Topology(self.wiring.places, self.wiring.wires, equal_machines=self.wiring.equal_machines)

    def __repr__(self) -> str:
        return summary(self, stem=self.file.stem)

    def device_counts(self) -> list[str]:
        """Return one text per kind of device, with its count."""
        counts = Counter(device.name for _, device in self.devices)
        return [f"{count} x {name}" for name, count in counts.items()]

    def parts(self) -> tuple[Part, ...]:
        """List every link with its two ends."""
        places = {place.name: place for place in self.wiring.places}
        return tuple(
            Part(
                name=wire.lower,
                kind=places[wire.lower].kind,
                detail=places[wire.lower].detail,
                to=wire.upper,
                link=wire.upward.link,
                raw_bytes_per_s=wire.upward.raw_bytes_per_s,
                typical_bytes_per_s=wire.upward.capacity_bytes_per_s,
            )
            for wire in self.wiring.wires
        )

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw its parts in layers below the sockets, with the bandwidth of each link on its line.

        Raises
        ------
        ArgumentError
            If the path has an unknown ending or cannot be written.
        """
        from perfmodel.hardware.wiring_figure import wiring_figure
        from perfmodel.presentation.figures import saved

        return saved(wiring_figure(self.wiring.places, tuple(self.wiring.wires), title=self.name), path)


class OpenTopology(Topology):
    """A topology with expressions on some channels; routes follow the stated numbers of one without."""

    def __init__(self, stated: Topology, channels: Mapping[str, Channel]) -> None:
        super().__init__(stated.places.values(), stated.wires)
        self._stated, self._open = stated, dict(channels)

    @property
    def stated(self) -> Topology:  # noqa: D102
        return self._stated

    def legs(self, source: str, sink: str, *, through_host: bool = False) -> tuple[Route, ...]:  # noqa: D102
        return tuple(self._opened(leg) for leg in self._stated.legs(source, sink, through_host=through_host))

    def _opened(self, leg: Route) -> Route:
        channels = tuple(self._open.get(channel.name, channel) for channel in leg.channels)
        latency_s = sum(channel.latency_s for channel in channels) + self._startup_s(leg.nodes, channels)
        return replace(leg, channels=channels, latency_s=latency_s)


def with_links_scaled(system: Wired, family: str, ratio: Quantity, *, latency: Quantity = 1.0) -> Wired:
    """Return a system with all links of a family faster by a factor, and with added latency."""

    def scaled(channel: Channel) -> Channel:
        if not _is_of_family(channel, family):
            return channel
        rates = {name: _times(ratio, getattr(channel, name)) for name in ("capacity_bytes_per_s", "raw_bytes_per_s")}
        return replace(channel, startup_s=_times(latency, channel.startup_s), **rates)

    stated = system.topology
    if is_symbolic(ratio, latency):
        topology: Topology = OpenTopology(stated, {name: scaled(channel) for name, channel in stated.channels.items()})
    else:

        def scaled_wire(wire: Wire) -> Wire:
            return replace(wire, upward=scaled(wire.upward), downward=scaled(wire.downward))

        wires = changed_wires(stated.wires, scaled_wire)
        topology = Topology(stated.places.values(), wires, equal_machines=stated.equal_machines)
    changed = copy.copy(system)
    changed.__dict__["topology"] = topology
    return changed


def _is_of_family(channel: Channel, family: str) -> bool:
    try:
        return load_link(channel.link.rsplit(" x ", 1)[-1]).family.stem == family
    except PerfmodelError:  # a socket's bus is not a link of the catalogue
        return False


def _times(factor: Quantity, number: float) -> Any:
    """Multiply; a symbol over its stated value, times that value, is the symbol itself."""
    product = factor * number
    if not is_symbolic(product):
        return product
    coefficient, rest = product.as_coeff_Mul()
    return rest if abs(coefficient - 1) < 1e-12 else product
