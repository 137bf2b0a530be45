"""Clusters: machines joined by a fabric, perhaps with a server; and systems with one part or link replaced."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, ValidationError

from perfmodel.derived import uncollected
from perfmodel.errors import ArgumentError, PerfmodelError, SpecError, nearest_hint
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_device, load_system
from perfmodel.hardware.cpu import Cpu
from perfmodel.hardware.device import Runnable
from perfmodel.hardware.link import Link
from perfmodel.hardware.part_catalogue import load_link
from perfmodel.hardware.source import Fault, Identifier, SpecFile, SpecTable, Text
from perfmodel.hardware.spec_files import faults_of
from perfmodel.hardware.system import (
    MOST_DEVICES,
    Fabric,
    MachineCount,
    PeerLink,
    System,
    SystemFile,
    faults_of_names,
    machine_count,
)
from perfmodel.hardware.wires import MachineWires, Place, Wire
from perfmodel.hardware.wiring import DEVICE_LINKS, NETWORKS, Wired, Wiring, first_to_last, wire_of, wiring_of

FABRIC: Final = "fabric0"


class ClusterNode(SpecTable):
    """Machines of one kind.

    Attributes
    ----------
    system : str
        Name or path of the machine's spec file. [-]
    count : int
        Machines. [1]
    names : tuple of str or None
        One for each; None numbers them ``node0`` and on. [-]
    """

    system: Text
    count: MachineCount = 1
    names: tuple[Identifier, ...] | None = None

    def faults(self) -> Iterator[Fault]:  # noqa: D102
        yield from faults_of_names(self.names, count=self.count)


class Server(SpecTable):
    """A machine that the others communicate with, such as a communication server.

    Attributes
    ----------
    system : str
        Name or path of its spec file. [-]
    name : str
        Its name in the cluster. [-]
    """

    system: Text
    name: Identifier = "server"


class ClusterFile(SpecFile):
    """A cluster as its file states it.

    Attributes
    ----------
    node : tuple of ClusterNode
        Machines. [-]
    fabric : Fabric
        The network between them. [-]
    server : Server or None
        A machine that the others communicate with. [-]
    """

    node: Annotated[tuple[ClusterNode, ...], Field(min_length=1)]
    fabric: Fabric
    server: Server | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Cluster(Wired):
    """Machines and the fabric between them.

    Parameters
    ----------
    file : ClusterFile
        What its file states. [-]
    machines : tuple of (str, System)
        Machines by name, a server last. [-]
    wiring : Wiring
        Everything in one graph; names start with that of the machine. [-]
    """

    file: ClusterFile
    machines: tuple[tuple[str, System], ...]
    wiring: Wiring = field(repr=False)

    @property
    def name(self) -> str:
        """The cluster's display name."""
        return self.file.name

    @property
    def hosts(self) -> dict[str, System]:
        """Machines by name."""
        return dict(self.machines)

    @property
    def node_count(self) -> int:
        """Machines, without a server. [1]."""
        return sum(node.count for node in self.file.node)

    @property
    def processor(self) -> Cpu:
        """The CPU of the first machine."""
        return self.machines[0][1].processor

    @property
    def core_count(self) -> int:
        """Physical cores of all machines except a server. [1]."""
        return sum(system.core_count for _, system in self.machines[: self.node_count])

    @property
    def thread_count(self) -> int:
        """Hardware threads of all machines except a server. [1]."""
        return sum(system.thread_count for _, system in self.machines[: self.node_count])

    def of_machines(self, machines: list[tuple[str, System]], *, name: str, network: str | None) -> Cluster:
        """Return the same cluster with other machines.

        Raises
        ------
        SpecError
            If a machine has no adapter to the network.
        """
        network = self.file.fabric.link if network is None else network
        fabric = self.file.fabric.model_copy(update={"link": network})
        link = load_link(spec_files.from_folder(folder_of(self), network))
        if faults := _without_adapter(machines, link):
            raise SpecError(name, faults)
        file = self.file.model_copy(update={"name": name, "fabric": fabric})
        return Cluster(file=file, machines=tuple(machines), wiring=_joined(file, machines, link))

    def describe(self) -> str:
        """Return the cluster in one line."""
        server = " and a server" if self.file.server is not None else ""
        counts = self.device_counts() or [f"{self.core_count} cores"]
        return f"{self.node_count} machines{server} on {self.file.fabric.link}: {', '.join(counts)}"


def cluster_of(file: ClusterFile, *, path: Path) -> Cluster:
    """Load the machines of a cluster and join them."""
    machines: list[tuple[str, System]] = []
    faults: list[str] = []
    for place, (name, system) in _stated_machines(file):
        try:
            machines.append((name, _machine(system, path=path)))
        except PerfmodelError as error:
            faults.append(f"{place}: value {system!r}: {error}")
        if name in [other for other, _ in machines[:-1]]:
            faults.append(f"{place.rpartition('.')[0]}.names: value {name!r}: must be the name of one machine only")
    faults = list(dict.fromkeys(faults))
    if (count := sum(len(machine.topology.devices()) for _, machine in machines)) > MOST_DEVICES:
        faults.append(f"node: must have at most {MOST_DEVICES:,} devices in all machines, not {count:,}")
    try:
        link = load_link(spec_files.from_folder(path.parent, file.fabric.link))
    except PerfmodelError as error:
        raise SpecError(path, [*faults, f"fabric.link: value {file.fabric.link!r}: {error}"]) from error
    faults += _without_adapter(machines, link)
    if faults:
        raise SpecError(path, faults)
    return Cluster(file=file, machines=tuple(machines), wiring=_joined(file, machines, link))


def folder_of(system: Wired) -> Path:
    """Return the folder at which relative paths in a system's file start."""
    return system.file.folder or spec_files.shipped_folder() / "systems"


def several(system: Wired, machines: int) -> System | Cluster:
    """Return a system of this many machines: a machine on its usual fabric, or a cluster's machines of one kind."""
    machines = machine_count("machines", machines)
    if isinstance(system, Cluster):
        kinds = {id(machine): machine for _, machine in system.machines[: system.node_count]}
        if len(kinds) > 1:
            raise ArgumentError("machines", machines, f"left out with {system.name}, whose machines differ")
        machine, fabric, server = next(iter(kinds.values())), system.file.fabric, system.file.server
    elif not isinstance(system, System):
        raise ArgumentError("machines", machines, f"left out with {system.name}, which is not a machine")
    elif machines == 1:
        return system
    elif system.file.fabric is None:
        raise ArgumentError("machines", machines, f"left out with {system.name}, whose file has no table [fabric]")
    else:
        machine, fabric, server = system, system.file.fabric, None
    machine_count("machines", machines, of_devices=len(machine.topology.devices()))
    file = ClusterFile.model_construct(
        schema_version=machine.file.schema_version,
        name=f"{machines} x {machine.name}",
        source=machine.file.source,
        node=(ClusterNode(system=machine.file.stem or machine.name, count=machines),),
        fabric=fabric,
        server=server,
    ).loaded_from("", system.file.folder)
    link = load_link(spec_files.from_folder(folder_of(system), fabric.link))
    joined = [(f"node{index}", machine) for index in range(machines)]
    if isinstance(system, Cluster):
        joined += system.machines[system.node_count :]
    if faults := _without_adapter(joined[:1], link):
        raise SpecError(file.name, faults)
    return Cluster(file=file, machines=tuple(joined), wiring=_joined(file, joined, link))


def _stated_machines(file: ClusterFile) -> Iterable[tuple[str, tuple[str, str]]]:
    """Yield the place in the file, the name and the system of each machine."""
    number = 0
    for row, node in enumerate(file.node):
        for index in range(node.count):
            name = f"node{number}" if node.names is None else node.names[index]
            number += node.names is None
            yield f"node[{row}].system", (name, node.system)
    if file.server is not None:
        yield "server.system", (file.server.name, file.server.system)


def _machine(system: str, *, path: Path) -> System:
    from perfmodel.hardware.catalogue import load_machine

    return load_machine(spec_files.from_folder(path.parent, system))


def _adapters(system: System, link: Link) -> list[str]:
    """Return the adapters of a machine that fit a network."""
    return [place.name for place in system.wiring.places if place.kind == "nic" and place.detail == link.name]


def _without_adapter(machines: list[tuple[str, System]], link: Link) -> list[str]:
    faults = []
    for name, system in machines:
        if not _adapters(system, link):
            has = sorted({place.detail for place in system.wiring.places if place.kind == "nic"})
            listed = (", ".join(has) or "no [[nic]]") + nearest_hint(link.name, has)
            faults.append(f"fabric.link: value {link.name!r}: must be a network of each machine; {name} has {listed}")
    return faults


@uncollected
def _joined(file: ClusterFile, machines: list[tuple[str, System]], link: Link) -> Wiring:
    """Return the wiring of all machines, prefixed with their names, and the fabric between them."""
    fabric = file.fabric
    wires: list[Wire] = []
    places = [
        Place(name=FABRIC, kind="fabric", detail=link.name, reduces=fabric.reduces, in_order=fabric.in_order),
    ]
    size = fabric.machines_per_leaf
    hop = fabric.in_base_units("hop_latency_us") / (2 if size is None else 4)
    for start in range(0, len(machines), size or len(machines)):
        of_leaf = machines[start : start + (size or len(machines))]
        switch = FABRIC if size is None else f"leaf{start // size}"
        adapters = [f"{name}/{adapter}" for name, system in of_leaf for adapter in _adapters(system, link)]
        if size is not None:
            places.append(Place(name=switch, kind="fabric", detail=link.name))
            uplink = wire_of(FABRIC, switch, link, latency_s=hop, startup_s=link.latency_s)
            wires.append(uplink.times(len(adapters) / fabric.oversubscription))
        first = wire_of(switch, adapters[0], link, latency_s=hop, startup_s=link.latency_s)
        wires += [first.joining(switch, adapter) for adapter in adapters]
    for name, system in machines:
        places += [place.within(name) for place in system.wiring.places]
    return Wiring(
        places=tuple(places),
        wires=MachineWires(
            between=tuple(wires), machines=tuple((name, tuple(system.wiring.wires)) for name, system in machines)
        ),
        devices=tuple((f"{name}/{device}", gpu) for name, system in machines for device, gpu in system.devices),
        storages=tuple(
            replace(array, name=f"{name}/{array.name}") for name, system in machines for array in system.storages
        ),
        networks=tuple((f"{name}/{nic}", network) for name, system in machines for nic, network in system.networks),
        remarks=tuple(_remarks(machines)),
        equal_machines=len({id(system) for _, system in machines}) == 1,
    )


def _remarks(machines: list[tuple[str, System]]) -> Iterator[str]:
    """Yield the remarks on each machine, once for neighbours with the same."""
    for remarks, alike in itertools.groupby(machines, key=lambda machine: machine[1].remarks):
        names = first_to_last([name for name, _ in alike])
        yield from (f"{names}: {remark}" for remark in remarks)


Table = TypeVar("Table", bound=SpecTable)


def with_fields(table: Table, fields: Mapping[str, Any]) -> Table:
    """Return a table of a spec file with some of its fields changed, checked as when it is read."""
    row_type = type(table)
    try:
        return row_type.model_validate({name: getattr(table, name) for name in row_type.model_fields} | dict(fields))
    except ValidationError as error:
        raise SpecError(row_type.__name__, faults_of(error, row_type)) from error


def rewired(
    system: Wired,
    change: Callable[[SystemFile], SystemFile],
    *,
    what: str,
    network: str | None = None,
    fileless: Mapping[str, Runnable] | None = None,
    processor: Cpu | None = None,
) -> Wired:
    """Return a system with other machines, perhaps with another processor in their sockets."""
    changed: dict[int, System] = {}
    for machine in system.hosts.values():
        if id(machine) not in changed:
            file = change(machine.file)
            file = file.model_copy(update={"name": f"{machine.name}, {what}"})
            parts = {**machine.fileless, **(fileless or {})}
            path = folder_of(machine) / f"{machine.file.stem}.toml"
            cpu = machine.processor if processor is None else processor
            wiring = wiring_of(file, processor=cpu, path=path, fileless=parts)
            changed[id(machine)] = replace(
                machine, file=file, processor=cpu, wiring=wiring, fileless=parts, is_changed=True
            )
    if isinstance(system, Cluster):
        machines = [(name, changed[id(machine)]) for name, machine in system.machines]
        return system.of_machines(machines, name=f"{system.name}, {what}", network=network)
    return next(iter(changed.values()))


def _changed_parts(file: SystemFile, kind: str, **fields: Any) -> dict[str, tuple[SpecTable, ...]]:
    """Return all parts of a kind with some fields changed, by the kind."""
    return {kind: tuple(with_fields(part, fields) for part in getattr(file, kind))}


def with_gpu(file: SystemFile, device: str) -> SystemFile:
    """Return a machine with another card in every slot."""
    return file.model_copy(update=_changed_parts(file, "device", device=device))


def with_processor(file: SystemFile, device: str) -> SystemFile:
    """Return a machine with another processor in its sockets."""
    return file.model_copy(update={"sockets": with_fields(file.sockets, {"device": device})})


def with_one_more_gpu(file: SystemFile) -> SystemFile:
    """Return a machine with one more card beside its last one."""
    if not file.device:
        return file
    *others, last = file.device
    ports = [last.port_of(index) for index in range(last.count)]
    more = with_fields(last, {"count": last.count + 1, "to": (*ports, ports[-1]), "names": None})
    return file.model_copy(update={"device": (*others, more)})


def with_host_links(file: SystemFile, link: str) -> SystemFile:
    """Return a machine whose cards have another link to their host, with roots and switches at least as fast."""
    rate = load_link(link).bandwidth_bytes_per_s
    hubs = {
        kind: tuple(
            hub if load_link(hub.link).bandwidth_bytes_per_s >= rate else with_fields(hub, {"link": link})
            for hub in getattr(file, kind)
        )
        for kind in ("root", "switch")
    }
    return file.model_copy(update=hubs | _changed_parts(file, "device", link=link, override=True))


def with_peer_links(file: SystemFile, link: str) -> SystemFile:
    """Return a machine whose cards have another link to one another, straight or to a switch among them."""
    pairs, switches = (_changed_parts(file, kind, link=link) for kind in ("peer_link", "peer_switch"))
    return file.model_copy(update=pairs | switches)


def with_bridges(file: SystemFile, link: str) -> SystemFile:
    """Return a machine whose cards are joined in pairs: the first and second, the third and fourth, and so on."""
    numbers = itertools.count()
    names = [
        f"gpu{next(numbers)}" if slot.names is None else slot.names[index]
        for slot in file.device
        for index in range(slot.count)
    ]
    pairs = tuple(zip(names[::2], names[1::2], strict=False))
    return file.model_copy(update={"peer_link": (PeerLink(between=pairs, link=link),)}) if pairs else file


def with_own_lanes(file: SystemFile) -> SystemFile:
    """Return a machine in which each card has its own lanes to its socket, without a root or switch."""
    upper: dict[str, str] = {}
    for kind in ("root", "switch"):
        number = 0
        for hub in getattr(file, kind):
            for index in range(hub.count):
                upper[f"{kind}{number}" if hub.names is None else hub.names[index]] = hub.port_of(index)
                number += hub.names is None

    def socket_of(port: str) -> str:
        return socket_of(upper[port]) if port in upper else port

    slots = tuple(
        with_fields(slot, {"to": tuple(socket_of(slot.port_of(index)) for index in range(slot.count))})
        for slot in file.device
    )
    return file.model_copy(update={"device": slots})


def with_striped_drives(file: SystemFile, *, times: int, raid_efficiency: float) -> SystemFile:
    """Return a machine with a multiple of its drives, each kind striped into one array."""
    slots = []
    for slot in file.storage:
        if len(slot.ports) > 1:
            raise ArgumentError("storage", slot.drive, "drives on one port, which an array needs")
        efficiency = raid_efficiency if slot.raid is None else slot.raid_efficiency
        fields = {"count": times * slot.count, "names": None, "raid": 0, "raid_efficiency": efficiency}
        slots.append(with_fields(slot, fields))
    return file.model_copy(update={"storage": tuple(slots)})


def with_network(file: SystemFile, network: str, *, instead_of: str) -> SystemFile:
    """Return a machine whose adapters to a network are replaced by adapters to another, in the same slots."""
    slots = tuple(
        with_fields(nic, {"network": network}) if load_link(nic.network).name == instead_of else nic for nic in file.nic
    )
    return file.model_copy(update={"nic": slots})


def system_with(
    system: str | Path | Wired,
    *,
    device: str | Path | Runnable | None = None,
    link: str | Path | None = None,
    machines: int | None = None,
) -> Wired:
    """Load a system with more machines, other GPUs, or another link in place of its own links of that kind.

    For a measured machine, the card that its file names stands in the slots, or else the system's own.
    """
    loaded: Wired = system if isinstance(system, Wired) else load_system(system)
    if machines is not None:
        loaded = several(loaded, machines)
    changes: list[Callable[[SystemFile], SystemFile]] = []
    what, network = [], None
    fileless: dict[str, Runnable] = {}
    has_gpus = bool(loaded.devices) and not loaded.computes_on_hosts
    processor = None if device is None or has_gpus else _other_processor(device, loaded)
    if processor is not None:
        what.append(f"with {processor.stem or processor.name}")
        changes.append(partial(with_processor, device=processor.stem or processor.name))
    elif device is not None and has_gpus and (card := _other_card(device, loaded)) is not None:
        name = device if isinstance(device, str | Path) else card.stem
        if card is device:
            name = f"{card.stem or card.name} as given"  # a name that no file has, so that none is looked up
            fileless[name] = card
        changes.append(partial(with_gpu, device=_from_anywhere(name)))
        what.append(f"with {name}")
    if link is not None:
        change, network = _relinking(loaded, link)
        changes.append(change)
        what.append(f"over {link}")

    def changed(file: SystemFile) -> SystemFile:
        return reduce(lambda file, change: change(file), changes, file)

    how: dict[str, Any] = {"network": network, "fileless": fileless, "processor": processor}
    return rewired(loaded, changed, what=", ".join(what), **how) if changes else loaded


def _other_card(device: str | Path | Runnable, system: Wired) -> Runnable | None:
    """Return the card that stands in a system's slots for a device; None if its own cards do."""
    loaded = device if isinstance(device, Runnable) else load_device(device)
    if loaded.processor_kind != "gpu":
        raise ArgumentError("device", loaded.name, f"a GPU, by data sheet or measured, for {system.name}")
    card = loaded.card
    if card is None or all(present == card and present.stem == card.stem for _, present in system.devices):
        return None
    protocols = peer_protocols(system) - joined_by(card)
    if protocols:
        allowed = f"a card with {' and '.join(sorted(protocols))}, which joins the GPUs of {system.name}; the file of "
        raise ArgumentError("device", card.name, f"{allowed}one that has it says so in peer_protocol")
    return card


def _other_processor(device: str | Path | Runnable, system: Wired) -> Cpu | None:
    """Return the processor that stands in the sockets of machines without GPUs; None if their own do."""
    loaded = device if isinstance(device, Runnable) else load_device(device)
    if loaded.processor_kind != "cpu":
        allowed = f"a CPU with a data sheet or a measured CPU, for {system.name}, which has no GPU to replace"
        raise ArgumentError("device", loaded.name, allowed)
    card = loaded.card
    if not isinstance(card, Cpu) or all(card == machine.processor for machine in system.hosts.values()):
        return None
    return card


def joined_by(card: Runnable) -> set[str]:
    """Return the protocols of the links by which a card can be joined to others."""
    bridge, protocol = (getattr(card, name, None) for name in ("bridge", "peer_protocol"))
    bridged = set() if bridge is None else {load_link(bridge.link).family.protocol}
    return bridged if protocol is None else bridged | {protocol}


def peer_protocols(system: Wired) -> set[str]:
    """Return the protocols of the links that join a system's devices to one another."""
    return {
        load_link(spec_files.from_folder(folder_of(machine), link)).family.protocol
        for machine in system.hosts.values()
        for link in (*(pair.link for pair in machine.file.peer_link), *(hub.link for hub in machine.file.peer_switch))
    }


def _from_anywhere(part: str | Path) -> str:
    """Return a name or absolute path of a part, valid in a file in any folder."""
    return str(Path(part).resolve()) if spec_files.is_path(part) else str(part)


def _relinking(system: Wired, link: str | Path) -> tuple[Callable[[SystemFile], SystemFile], str | None]:
    """Return a function that replaces all links of one kind, and the name of the network that it replaces, if any."""
    name, protocol = _from_anywhere(link), load_link(link).family.protocol
    has_peers = any(file.file.peer_link or file.file.peer_switch for file in system.hosts.values())
    kinds = {"pcie": bool(system.devices), "nvlink": has_peers, "network": bool(system.networks)}
    kind = "network" if protocol in NETWORKS else "nvlink" if protocol in DEVICE_LINKS else protocol
    if not kinds.get(kind, False):
        of_kinds = " or ".join(kind for kind, wired in kinds.items() if wired) or "none: it has no link to replace"
        raise ArgumentError("link", str(link), f"a link of a kind that {system.name} has: {of_kinds}")
    if kind != "network":
        return partial(with_peer_links if kind == "nvlink" else with_host_links, link=name), None
    fabric = load_link(system.file.fabric.link).name if isinstance(system, Cluster) else None
    replaced = {network.name for _, network in system.networks} if fabric is None else {fabric}

    def on_network(file: SystemFile) -> SystemFile:
        for old in replaced:
            file = with_network(file, name, instead_of=old)
        return file

    return on_network, name if fabric else None
