"""Changes to hardware: more or other GPUs, threads, faster links and networks, dedicated lanes, storage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from perfmodel.hardware import spec_files
from perfmodel.hardware.cluster import (
    Cluster,
    joined_by,
    peer_protocols,
    rewired,
    with_bridges,
    with_fields,
    with_host_links,
    with_network,
    with_one_more_gpu,
    with_own_lanes,
    with_peer_links,
    with_striped_drives,
)
from perfmodel.hardware.part_catalogue import load_device, load_link, names_of_family
from perfmodel.planning.changes.arguments import Change, Situation
from perfmodel.prediction.device.cpu_target import CpuTarget
from perfmodel.prediction.job.data_path import HOST_MEMORY

if TYPE_CHECKING:
    from perfmodel.hardware.link import Link
    from perfmodel.hardware.system import SystemFile
    from perfmodel.hardware.wiring import Wired

PEER_WIRED: Final = "its GPUs are joined by peer links, which some cards have not"


def _files(system: Wired) -> list[SystemFile]:
    return [machine.file for machine in system.hosts.values()]


def _is_peer_wired(system: Wired) -> bool:
    return any(file.peer_link or file.peer_switch for file in _files(system))


def device(now: Situation) -> Iterator[Change]:
    """Yield every other GPU, in place of the current one or in all slots of the system that its links can join.

    Machines that compute on their cores have sockets for other CPUs instead.
    """
    protocols = set() if now.system_part is None else peer_protocols(now.system)
    in_sockets = now.system_part is not None and now.system_part.computes_on_hosts
    kind, slot, thing = ("cpu", "socket", "processor") if in_sockets else ("gpu", "slot", "card")
    apart = []
    for name in spec_files.names("devices"):
        if spec_files.kind_of(spec_files.find("devices", name)) != kind:
            continue
        if now.system_part is None:
            place: dict[str, Any] = {"device": name} | {key: None for key in ("system", "threads") if now[key]}
            yield Change(what=name, changes=place)
        elif not protocols <= joined_by(load_device(name)):
            apart.append(name)
        elif name != now.target.processor_spec.stem:
            presumes = f"assumes that such a {thing} fits the {slot}s"
            yield Change(what=f"{name} in every {slot}", changes={"device": name}, presumes=presumes)
    now.needs(not apart, f"{PEER_WIRED}: {', '.join(apart)}")


def workers(now: Situation) -> Iterator[Change]:
    """Yield one more worker, and twice as many; on a full system, one more GPU in each machine, or one more machine."""
    system, count = now.system, now["workers"]
    spread_over = now["stages"] * now["tensor_size"] * now["context_size"]
    devices = len(system.devices)
    if (count + 1) * spread_over > devices and spread_over == 1 and system.computes_on_hosts:
        machines = system.node_count + 1
        yield Change(
            what=f"{machines} machines, each with a worker", changes={"machines": machines, "workers": machines}
        )
    elif (count + 1) * spread_over > devices and spread_over == 1:
        now.needs(not _is_peer_wired(system), f"the system has {devices} GPUs, and its peer links cannot join more")
        more = rewired(system, with_one_more_gpu, what="with one more GPU")
        what = f"one more GPU in {'each' if system.node_count > 1 else 'the'} machine"
        changes = {"system": more, "workers": count + system.node_count}
        yield Change(what=what, changes=changes, presumes="assumes a slot for it")
    else:
        yield Change(what=f"{count + 1} workers", changes={"workers": count + 1})
    if 2 * count * spread_over <= devices and count > 1:
        yield Change(what=f"{2 * count} workers", changes={"workers": 2 * count})


def threads(now: Situation) -> Iterator[Change]:
    """Yield one CPU thread for each physical core, and one for each hardware thread."""
    target = now.target
    now.needs(isinstance(target, CpuTarget), "the job does not run on a CPU with a data sheet")
    assert isinstance(target, CpuTarget)
    most = (target.system or target.cpu).thread_count
    for count, what in ((target.core_count, "each physical core"), (most, "each hardware thread")):
        if count != target.threads:
            yield Change(what=f"{count} threads, one for {what}", changes={"threads": count})


def _settled(system: Wired) -> Link:
    """Return the slowest link between a card and its slot."""
    wires = {wire.lower: wire for wire in system.topology.wires if not wire.peer}
    links = [load_link(wires[name].upward.link) for name, _ in system.devices]
    return min(links, key=lambda link: link.bandwidth_bytes_per_s)


def _next_generation(link: Link) -> str:
    return f"{link.family.protocol}_{(link.family.generation or 0) + 1}_x{link.lane_count}"


def host_link(now: Situation) -> Iterator[Change]:
    """Yield cards and slots of the next PCIe generation."""
    gpu = now.gpu
    if now.system_part is None:
        name = _next_generation(load_link(gpu.host_link.link_name))
        load_link(name)
        newer = with_fields(gpu.host_link, {"generation": gpu.host_link.generation + 1})
        changed = gpu.model_copy(update={"host_link": newer, "name": f"{gpu.name} with {name}"})
        what, presumes = f"{name} to the host, card and slot", f"{gpu.name} has {gpu.host_link.link_name}"
        yield Change(what=what, changes={"device": changed}, presumes=f"assumes such a card: {presumes}")
        return
    name = _next_generation(_settled(now.system))
    what, presumes = f"{name} to the host, cards, slots and roots", f"{gpu.name} has {gpu.host_link.link_name}"
    named = f"with {name}"
    yield now.rewired(what, with_host_links, link=name, named=named, presumes=f"assumes such cards: {presumes}")


def _as_wide(family: str, link: Link) -> str | None:
    """Return the link of a family with the same number of lanes; for the widest link, the family's widest."""
    names, link_names = names_of_family(family), names_of_family(f"{link.family.protocol}_{link.family.generation}")
    if link.name == link_names[-1]:
        return names[-1]
    return next((name for name in names if load_link(name).lane_count == link.lane_count), None)


def peer_link(now: Situation) -> Iterator[Change]:
    """Yield every faster generation of the links between GPUs, equally wide; if there are no links, bridges.

    A bridge is proposed if the card's file says that the card takes one.
    """
    system = now.system
    if not _is_peer_wired(system):
        yield _bridged(now)
        return
    files = _files(system)
    names = {pair.link for file in files for pair in file.peer_link}
    names |= {switch.link for file in files for switch in file.peer_switch}
    slowest = min(map(load_link, names), key=lambda link: link.bandwidth_bytes_per_s)
    faster = {}
    for family in spec_files.names("links"):
        name = _as_wide(family, slowest) if family.startswith(f"{slowest.family.protocol}_") else None
        if name is not None and load_link(name).bandwidth_bytes_per_s > slowest.bandwidth_bytes_per_s:
            faster[name] = load_link(name).bandwidth_bytes_per_s
    now.needs(faster, f"no file describes a faster link of its kind than {slowest.name}")
    for name in sorted(faster, key=faster.__getitem__):
        what, presumes = f"{name} between GPUs", f"assumes cards and switches with {name}"
        yield now.rewired(what, with_peer_links, link=name, named=f"with {name}", presumes=presumes)


def _bridged(now: Situation) -> Change:
    """Return the change that bridges the cards of each machine in pairs."""
    gpu = now.gpu
    without = "no link joins its GPUs to one another, and"
    now.needs(gpu.bridge, f"{without} no file says that {gpu.name} takes a bridge; system= names a machine with links")
    assert gpu.bridge is not None
    link = gpu.bridge.link
    what, presumes = f"{link} bridges between GPUs, two by two", "assumes slots that a bridge spans"
    change = now.rewired(what, with_bridges, link=link, named=f"with {link}", presumes=presumes)
    bridged = change.changes["system"].topology.wires
    now.needs(any(wire.peer for wire in bridged), f"{without} a bridge needs two of them")
    return change


def own_lanes(now: Situation) -> Iterator[Change]:
    """Yield a system in which no GPUs share a root or switch."""
    files = _files(now.system)
    now.needs(any(with_own_lanes(file).device != file.device for file in files), "no GPUs share a root or switch")
    what, named = "lanes to the socket for each GPU, no shared root", "each GPU on lanes of its own"
    yield now.rewired(what, with_own_lanes, named=named, presumes="assumes a socket with as many lanes")


def network(now: Situation) -> Iterator[Change]:
    """Yield every faster network of the same kind between machines."""
    system = now.system
    now.needs(isinstance(system, Cluster), "there is one machine")
    assert isinstance(system, Cluster)
    link = load_link(system.file.fabric.link)
    rates = {}
    for family in spec_files.names("links"):
        other = load_link(names_of_family(family)[-1])
        if other.family.protocol == link.family.protocol and other.bandwidth_bytes_per_s > link.bandwidth_bytes_per_s:
            rates[other.name] = other.bandwidth_bytes_per_s
    now.needs(rates, f"no file describes a faster network than {link.name}")
    for name in sorted(rates, key=rates.__getitem__):
        what, presumes = f"{name} between machines", "assumes the same latency of the fabric"
        faster = {"network": name, "instead_of": link.name}
        yield now.rewired(what, with_network, presumes=presumes, named=f"with {name}", **faster)


RAID_EFFICIENCY: Final = 0.97
"""Rate of an array over the sum of its drives: the survey's 17 of 17.5 GB/s. [1]"""

TIMES_DRIVES: Final = (2, 4)
"""Drives of a proposed array over those present. [1]"""


def prefetch(now: Situation) -> Iterator[Change]:
    """Yield one mini-batch fetched ahead, and twice as many as the job has."""
    now.needs(now.target.processor == "gpu", "a CPU's mini-batches are in its memory")
    for depth in (1, 2 * now["prefetch"]):
        if depth > now["prefetch"]:
            yield Change(
                what=f"{depth} mini-batch{'es' if depth > 1 else ''} fetched ahead", changes={"prefetch": depth}
            )


def pinned(now: Situation) -> Iterator[Change]:
    """Yield pinned host buffers."""
    now.needs(now.target.processor == "gpu", "a CPU copies nothing to a device")
    now.needs(not now["pinned"], "buffers are pinned where the framework pins them; another framework may")
    yield Change(what="pinned host buffers", changes={"pinned": True})


def _needs_reading(now: Situation) -> None:
    path = now.base.data_path
    now.needs(path is not None and path.dataset is not None, "no data set is read; pass dataset=")


def decode_cores(now: Situation) -> Iterator[Change]:
    """Yield decoding on all cores of the hosts."""
    _needs_reading(now)
    now.needs(now["decode_cores"] is not None, "all cores decode already")
    yield Change(what="all cores of the hosts decode", changes={"decode_cores": None})


def storage(now: Situation) -> Iterator[Change]:
    """Yield every known storage, and host memory."""
    _needs_reading(now)
    for name in (HOST_MEMORY, *spec_files.names("storage")):
        what = "examples decoded in memory beforehand" if name == HOST_MEMORY else f"read from {name}"
        yield Change(what=what, changes={"input_from": name})


def raid(now: Situation) -> Iterator[Change]:
    """Yield arrays of twice and four times the number of drives of the same kind."""
    _needs_reading(now)
    now.needs(now.system.storages, "the system has no drive")
    now.needs(now["input_from"] is None, "the data set is not read from the system's drives")
    for times in TIMES_DRIVES:
        what = f"{times} times the drives as RAID 0"
        presumes = f"assumes an array that reaches {RAID_EFFICIENCY:g} of the drives' summed rate"
        yield now.rewired(what, with_striped_drives, presumes=presumes, times=times, raid_efficiency=RAID_EFFICIENCY)
