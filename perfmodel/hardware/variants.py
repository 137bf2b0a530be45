"""What if a system had other GPUs, or other links: its file with these parts replaced, wired anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.errors import ArgumentError
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_machine, load_system
from perfmodel.hardware.cluster import Cluster, joined, machine_path, stated_machines
from perfmodel.hardware.link_catalogue import load_link
from perfmodel.hardware.wiring import NETWORKS, wiring_of

if TYPE_CHECKING:
    from perfmodel.hardware.system import System


def system_with(
    system: str | Path, *, device: str | Path | None = None, link: str | Path | None = None
) -> System | Cluster:
    """Load a system as it would be with other GPUs, or with another link in place of its own of that kind.

    Parameters
    ----------
    system : str or Path
        A machine or a cluster: a name, or a path to a TOML. [-]
    device : str, Path or None
        GPUs in place of all of its own; None keeps these. [-]
    link : str, Path or None
        A network in place of a cluster's fabric and of the adapters' network; a bus (PCIe) in place of the slots of
        the GPUs and of the roots and switches above them; a link between devices (NVLink) in place of those that there
        are; None keeps all. [-]

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
    if device is None and link is None:
        return load_system(system)
    named = {"device": _from_anywhere(device), "link": _from_anywhere(link)}
    path = spec_files.find("systems", system)
    loaded = load_system(path)
    if device is not None and not loaded.devices:
        raise ArgumentError("device", str(device), f"None with {loaded.name}, which has no GPU to replace")
    if link is not None:
        protocol, kinds = load_link(link).family.protocol, _kinds(path)
        if not (NETWORKS if protocol in NETWORKS else {protocol}) & kinds:
            allowed = f"a link of a kind that {loaded.name} has: {' or '.join(sorted(kinds)) or 'none'}"
            raise ArgumentError("link", str(link), allowed)
    return _cluster_with(loaded, path=path, **named) if isinstance(loaded, Cluster) else _machine_with(path, **named)


def _from_anywhere(part: str | Path | None) -> str | None:
    """Return the name of a part, or its path, so that a file in any folder can name it."""
    if part is None:
        return None
    return str(Path(part).resolve()) if spec_files.is_path(part) else str(part)


def _protocol(link: str, folder: Path) -> str:
    """Return the protocol of a link that a file in a folder names."""
    return load_link(folder / link if spec_files.is_path(link) else link).family.protocol


def _kinds(path: Path) -> set[str]:
    """Return the protocols of the links of a machine or cluster that can be replaced."""
    loaded = load_system(path)
    if isinstance(loaded, Cluster):
        of_machines = (_machine_file(system, path) for _, _, system in stated_machines(loaded.file))
        return set().union(*(_kinds(machine) for machine in dict.fromkeys(of_machines)))
    file = loaded.file
    links = [row.link for row in (*file.device, *file.root, *file.switch)]
    links += [row.link for row in file.peer_link] + [row.link for row in file.peer_switch]
    links += [row.network for row in file.nic]
    return {_protocol(link, path.parent) for link in links}


def _machine_file(system: str, path: Path) -> Path:
    return spec_files.find("systems", machine_path(system, path=path))


def _machine_with(path: Path, *, device: str | None, link: str | None, network: str | None = None) -> System:
    """Return a machine with parts replaced; ``network`` is the one of which adapters change over to the new one."""
    machine = load_machine(path)
    file = machine.file
    changed: dict[str, Any] = {}
    if device is not None:
        changed["device"] = tuple(slot.model_copy(update={"device": device}) for slot in file.device)
    protocol = None if link is None else load_link(link).family.protocol
    if protocol in NETWORKS:
        changed["nic"] = tuple(
            slot.model_copy(update={"network": link}) if network in (None, slot.network) else slot for slot in file.nic
        )
    elif protocol is not None:
        for name in ("device", "root", "switch", "peer_link", "peer_switch"):
            rows: Any = changed.get(name, getattr(file, name))
            changed[name] = tuple(
                row.model_copy(update={"link": link}) if _protocol(row.link, path.parent) == protocol else row
                for row in rows
            )
    stated = file.model_copy(update=changed | {"name": _renamed(file.name, device, link)}).loaded_from(file.stem)
    return replace(machine, file=stated, wiring=wiring_of(stated, processor=machine.processor, path=path))


def _renamed(name: str, device: str | None, link: str | None) -> str:
    """Return what people call it: the name with what was replaced."""
    return f"{name}, with {' and '.join(part for part in (device, link) if part is not None)}"


def _cluster_with(cluster: Cluster, *, path: Path, device: str | None, link: str | None) -> Cluster:
    file = cluster.file
    is_network = link is not None and load_link(link).family.protocol in NETWORKS
    changed: dict[str, Any] = {"name": _renamed(file.name, device, link)}
    if is_network:
        changed["fabric"] = file.fabric.model_copy(update={"link": link})
    stated = file.model_copy(update=changed).loaded_from(file.stem)
    hosts = cluster.hosts
    made: dict[str, System] = {}
    machines = []
    for _, name, system in stated_machines(file):
        if system not in made:
            has_devices = bool(hosts[name].devices)
            made[system] = _machine_with(
                _machine_file(system, path),
                device=device if has_devices else None,
                link=link if has_devices or is_network else None,
                network=file.fabric.link,
            )
        machines.append((name, made[system]))
    fabric = stated.fabric.link
    of_fabric = load_link(path.parent / fabric if spec_files.is_path(fabric) else fabric)
    return replace(cluster, file=stated, machines=tuple(machines), wiring=joined(stated, machines, of_fabric))
