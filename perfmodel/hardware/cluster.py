"""Clusters: machines joined by a fabric, and perhaps a server that all of them talk to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator

from perfmodel.errors import PerfmodelError, SpecError, nearest_hint
from perfmodel.hardware import spec_files
from perfmodel.hardware.channel import Place
from perfmodel.hardware.cpu import Cpu
from perfmodel.hardware.link import Link
from perfmodel.hardware.link_catalogue import load_link
from perfmodel.hardware.source import Count, Identifier, InRange, NonNegativeNumber, SpecFile, SpecTable, Text, fault_at
from perfmodel.hardware.system import System
from perfmodel.hardware.wired import Wired
from perfmodel.hardware.wiring import Wiring, wire_of

FABRIC: Final = "fabric0"

MachineCount = Annotated[Count, Field(le=4096)]
"""How many machines alike a cluster has: more is a slip of the pen, which would take minutes to wire."""


class ClusterNode(SpecTable):
    """Machines of one kind.

    Attributes
    ----------
    system : str
        Name of, or path to, the machine's spec file. [-]
    count : int
        Machines. [1]
    names : tuple of str or None
        One for each; None numbers them ``node0`` and on. [-]
    """

    system: Text
    count: MachineCount = 1
    names: tuple[Identifier, ...] | None = None

    @model_validator(mode="after")
    def _as_many_names(self) -> Self:
        if self.names is not None and (len(self.names) != self.count or len(set(self.names)) != self.count):
            raise fault_at(("names",), list(self.names), f"must be as many different names as count = {self.count}")
        return self


class Fabric(SpecTable):
    """The network between machines.

    Attributes
    ----------
    link : str
        Network of the adapters that it joins, e.g. ``infiniband_edr``. [-]
    hop_latency_us : float
        What its switches together add to a message. [us]
    machines_per_leaf : int or None
        Machines on one leaf switch; None joins all of them on one switch. [1]
    oversubscription : float
        Rate of all adapters of a leaf over that of its links to the spine; 1 is non-blocking. [1]
    """

    link: Text
    hop_latency_us: Annotated[NonNegativeNumber, AfterValidator(InRange(0, 10_000, "us"))]
    machines_per_leaf: MachineCount | None = None
    oversubscription: Annotated[float, Field(ge=1, le=1000, strict=True, allow_inf_nan=False)] = 1.0

    @model_validator(mode="after")
    def _one_switch_is_not_oversubscribed(self) -> Self:
        if self.machines_per_leaf is None and self.oversubscription > 1:
            raise fault_at(
                ("oversubscription",), self.oversubscription, "needs machines_per_leaf; one switch carries all"
            )
        return self


class Server(SpecTable):
    """A machine that the others talk to, such as a communication server.

    Attributes
    ----------
    system : str
        Name of, or path to, its spec file. [-]
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
        A machine that they talk to. [-]
    """

    node: Annotated[tuple[ClusterNode, ...], Field(min_length=1)]
    fabric: Fabric
    server: Server | None = None


@dataclass(frozen=True, kw_only=True)
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
        """The cluster's name, for people."""
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
        """Physical cores of all machines but a server. [1]."""
        return sum(system.core_count for _, system in self.machines[: self.node_count])

    @property
    def thread_count(self) -> int:
        """Hardware threads of all machines but a server. [1]."""
        return sum(system.thread_count for _, system in self.machines[: self.node_count])

    def of_machines(
        self, machines: list[tuple[str, System]], *, name: str, network: str | None, folder: Path
    ) -> Cluster:
        """Return the same cluster of other machines.

        Raises
        ------
        SpecError
            If a machine has no adapter to the network.
        """
        asked = self.file.fabric.link if network is None else network
        fabric = self.file.fabric.model_copy(update={"link": asked})
        link = load_link(spec_files.from_folder(folder, asked))
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
    """Load the machines of a cluster and join them.

    Raises
    ------
    SpecError
        With every fault: an unknown machine or link, two machines of one name, a machine without an adapter to the
        fabric.
    """
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
    try:
        link = load_link(spec_files.from_folder(path.parent, file.fabric.link))
    except PerfmodelError as error:
        raise SpecError(path, [*faults, f"fabric.link: value {file.fabric.link!r}: {error}"]) from error
    faults += _without_adapter(machines, link)
    if faults:
        raise SpecError(path, faults)
    return Cluster(file=file, machines=tuple(machines), wiring=_joined(file, machines, link))


def _stated_machines(file: ClusterFile) -> Iterable[tuple[str, tuple[str, str]]]:
    """Yield where each machine was stated, its name, and the system that it is."""
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


def _joined(file: ClusterFile, machines: list[tuple[str, System]], link: Link) -> Wiring:
    """Return the wiring of all machines, prefixed with their names, and the fabric between them."""
    fabric = file.fabric
    places, wires = [Place(name=FABRIC, kind="fabric", detail=link.name)], []
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
        wires += [wire_of(switch, adapter, link, latency_s=hop, startup_s=link.latency_s) for adapter in adapters]
    for name, system in machines:
        places += [place.within(name) for place in system.wiring.places]
        wires += [wire.within(name) for wire in system.wiring.wires]
    return Wiring(
        places=tuple(places),
        wires=tuple(wires),
        devices=tuple((f"{name}/{device}", gpu) for name, system in machines for device, gpu in system.devices),
        storages=tuple(
            replace(array, name=f"{name}/{array.name}") for name, system in machines for array in system.storages
        ),
        networks=tuple((f"{name}/{nic}", network) for name, system in machines for nic, network in system.networks),
        remarks=tuple(f"{name}: {remark}" for name, system in machines for remark in system.remarks),
    )
