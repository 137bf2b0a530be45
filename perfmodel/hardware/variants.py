"""What if a system had other GPUs, or another link of a kind that it has: by names, for those who ask many times."""

from __future__ import annotations

from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

from perfmodel.errors import ArgumentError
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.cluster import Cluster
from perfmodel.hardware.device import Runnable
from perfmodel.hardware.link_catalogue import load_link
from perfmodel.hardware.rewired import rewired, with_gpu, with_host_links, with_network, with_peer_links
from perfmodel.hardware.wiring import DEVICE_LINKS, NETWORKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from perfmodel.hardware.system import SystemFile
    from perfmodel.hardware.wired import Wired


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
