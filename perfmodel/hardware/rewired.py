"""A machine or a cluster with something else in it: other cards, links, drives or networks; all else as it is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial, reduce
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from perfmodel.errors import ArgumentError, SpecError
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.cluster import Cluster
from perfmodel.hardware.device import Runnable
from perfmodel.hardware.faults import faults_of
from perfmodel.hardware.link_catalogue import load_link
from perfmodel.hardware.source import SpecTable
from perfmodel.hardware.system import System, SystemFile
from perfmodel.hardware.system_parts import PeerLink
from perfmodel.hardware.wired import Wired
from perfmodel.hardware.wiring import DEVICE_LINKS, NETWORKS, wiring_of

Table = TypeVar("Table", bound=SpecTable)


def with_fields(table: Table, fields: Mapping[str, Any]) -> Table:
    """Return a table of a spec file with some of its fields changed, checked as if it had been read.

    Raises
    ------
    SpecError
        With every fault of the new table.
    """
    own = type(table)
    try:
        return own.model_validate({name: getattr(table, name) for name in own.model_fields} | dict(fields))
    except ValidationError as error:
        raise SpecError(own.__name__, faults_of(error, own)) from error


def rewired(
    system: Wired,
    change: Callable[[SystemFile], SystemFile],
    *,
    what: str,
    folder: Path,
    network: str | None = None,
    given: Mapping[str, Runnable] | None = None,
) -> Wired:
    """Return a system whose machines are other ones.

    Parameters
    ----------
    system : System or Cluster
        A machine, or machines and what is between them; a server of a cluster changes too. [-]
    change : callable
        Makes a machine's file from the one that it has. [-]
    what : str
        What is different, for the name. [-]
    folder : Path
        Folder of the system's file, where paths in it start. [-]
    network : str or None
        The cluster's other network between machines; None for the one that it has. [-]
    given : mapping of str to Runnable or None
        Devices that no file describes, by what stands for them in slots, besides those that the system has. [-]

    Returns
    -------
    System or Cluster
        The same but for that. [-]

    Raises
    ------
    SpecError
        If it cannot be wired so.
    """
    changed: dict[int, System] = {}
    for machine in system.hosts.values():
        if id(machine) not in changed:
            file = change(machine.file)
            file = file.model_copy(update={"name": f"{machine.name}, {what}"})
            parts = {**machine.given, **(given or {})}
            path = folder / f"{machine.file.stem}.toml"
            wiring = wiring_of(file, processor=machine.processor, path=path, given=parts)
            changed[id(machine)] = System(file=file, processor=machine.processor, wiring=wiring, given=parts)
    if isinstance(system, Cluster):
        machines = [(name, changed[id(machine)]) for name, machine in system.machines]
        return system.of_machines(machines, name=f"{system.name}, {what}", network=network, folder=folder)
    return next(iter(changed.values()))


def with_gpu(file: SystemFile, device: str) -> SystemFile:
    """Return a machine with another card in every slot."""
    return file.model_copy(update={"device": tuple(with_fields(slot, {"device": device}) for slot in file.device)})


def with_one_more_gpu(file: SystemFile) -> SystemFile:
    """Return a machine with one more card beside its last one."""
    if not file.device:
        return file
    *others, last = file.device
    ports = [last.port_of(index) for index in range(last.count)]
    more = with_fields(last, {"count": last.count + 1, "to": (*ports, ports[-1]), "names": None})
    return file.model_copy(update={"device": (*others, more)})


def with_host_links(file: SystemFile, link: str) -> SystemFile:
    """Return a machine whose cards have another link to their host, and no root or switch on the way is slower."""
    rate = load_link(link).bandwidth_bytes_per_s
    hubs = {
        kind: tuple(
            hub if load_link(hub.link).bandwidth_bytes_per_s >= rate else with_fields(hub, {"link": link})
            for hub in getattr(file, kind)
        )
        for kind in ("root", "switch")
    }
    slots = tuple(with_fields(slot, {"link": link, "override": True}) for slot in file.device)
    return file.model_copy(update=hubs | {"device": slots})


def with_peer_links(file: SystemFile, link: str) -> SystemFile:
    """Return a machine whose cards have another link to one another, straight or to a switch among them."""
    pairs = tuple(with_fields(each, {"link": link}) for each in file.peer_link)
    switches = tuple(with_fields(each, {"link": link}) for each in file.peer_switch)
    return file.model_copy(update={"peer_link": pairs, "peer_switch": switches})


def with_bridges(file: SystemFile, link: str) -> SystemFile:
    """Return a machine whose cards are joined in pairs, the first with the second and so on."""
    numbers = itertools.count()
    names = [
        f"gpu{next(numbers)}" if slot.names is None else slot.names[index]
        for slot in file.device
        for index in range(slot.count)
    ]
    pairs = tuple(zip(names[::2], names[1::2], strict=False))
    return file.model_copy(update={"peer_link": (PeerLink(between=pairs, link=link),)}) if pairs else file


def with_own_lanes(file: SystemFile) -> SystemFile:
    """Return a machine in which each card hangs off its socket by lanes of its own, past any root or switch."""
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
    """Return a machine with so many times its drives, each kind of them striped into one array.

    Parameters
    ----------
    file : SystemFile
        The machine. [-]
    times : int
        Drives over those that it has. [1]
    raid_efficiency : float
        Share of the summed rates that a new array reaches; arrays that exist keep theirs. [1]

    Returns
    -------
    SystemFile
        The machine with them. [-]
    """
    slots = []
    for slot in file.storage:
        if len(slot.ports) > 1:
            raise ArgumentError("storage", slot.drive, "drives that hang off one port: those of an array do")
        efficiency = raid_efficiency if slot.raid is None else slot.raid_efficiency
        fields = {"count": times * slot.count, "names": None, "raid": 0, "raid_efficiency": efficiency}
        slots.append(with_fields(slot, fields))
    return file.model_copy(update={"storage": tuple(slots)})


def with_network(file: SystemFile, network: str, *, instead_of: str) -> SystemFile:
    """Return a machine whose adapters to a network are to another one, in the same slots.

    Parameters
    ----------
    file : SystemFile
        The machine. [-]
    network : str
        The new network, e.g. ``infiniband_hdr``. [-]
    instead_of : str
        The one that it replaces, by its full name. [-]

    Returns
    -------
    SystemFile
        The machine with it. [-]
    """
    slots = tuple(
        with_fields(nic, {"network": network}) if load_link(nic.network).name == instead_of else nic for nic in file.nic
    )
    return file.model_copy(update={"nic": slots})


def system_with(
    system: str | Path, *, device: str | Path | Runnable | None = None, link: str | Path | None = None
) -> Wired:
    """Load a system as it would be with other GPUs, or with another link in place of its own of that kind.

    Parameters
    ----------
    system : str or Path
        A machine or a cluster: a name, or a path to a TOML. [-]
    device : str, Path, Runnable or None
        GPUs in place of all of its own; None keeps these. [-]
    link : str, Path or None
        A network in place of a cluster's fabric and of the adapters' network; PCIe as the link of the GPUs and their
        slots, roots and switches above them at least as fast; NVLink in place of the links between GPUs; None keeps
        all. [-]

    Returns
    -------
    System or Cluster
        With the same wiring otherwise; a slot and its new card settle on what both have. [-]

    Raises
    ------
    UnknownNameError
        If there is no system, device or link of a name.
    ArgumentError
        If it has no link of that kind, or no GPU, that could be replaced.
    SpecError
        If the card does not go into the slot.

    Examples
    --------
    >>> faster = system_with("survey_fig6", device="v100_pcie", link="ethernet_100_gbit")
    >>> faster.describe()
    '4 machines and a server on ethernet_100_gbit: 16 x NVIDIA Tesla V100 PCIe 16 GB'
    """
    path = spec_files.find("systems", system)
    loaded: Wired = load_system(path)
    changes: list[Callable[[SystemFile], SystemFile]] = []
    what, network = [], None
    given: dict[str, Runnable] = {}
    if device is not None:
        if not loaded.devices:
            raise ArgumentError("device", str(device), f"None with {loaded.name}, which has no GPU to replace")
        if isinstance(device, Runnable):
            name = f"{device.stem or device.name} as given"  # what no file is called, so that none is looked up
            given[name], device = device, name
        changes.append(partial(with_gpu, device=_from_anywhere(device)))
        what.append(f"with {device}")
    if link is not None:
        change, network = _relinking(loaded, link)
        changes.append(change)
        what.append(f"over {link}")

    def changed(file: SystemFile) -> SystemFile:
        return reduce(lambda file, change: change(file), changes, file)

    return (
        rewired(loaded, changed, what=", ".join(what), folder=path.parent, network=network, given=given)
        if changes
        else loaded
    )


def _from_anywhere(part: str | Path) -> str:
    """Return the name of a part, or its path, so that a file in any folder can name it."""
    return str(Path(part).resolve()) if spec_files.is_path(part) else str(part)


def _relinking(system: Wired, link: str | Path) -> tuple[Callable[[SystemFile], SystemFile], str | None]:
    """Return what puts a link in place of those of its kind, and the other network of a cluster, if it is one."""
    name, protocol = _from_anywhere(link), load_link(link).family.protocol
    has_peers = any(file.file.peer_link or file.file.peer_switch for file in system.hosts.values())
    kinds = {"pcie": bool(system.devices), "nvlink": has_peers, "network": bool(system.networks)}
    kind = "network" if protocol in NETWORKS else "nvlink" if protocol in DEVICE_LINKS else protocol
    if not kinds.get(kind, False):
        of_kinds = " or ".join(each for each, there in kinds.items() if there) or "none: it has no link to replace"
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
