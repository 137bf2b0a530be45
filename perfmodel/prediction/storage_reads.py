"""What loaders get from a storage: one of the system's, or one given by its file, of which nobody says where it is."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.cost.storage import read_rate
from perfmodel.hardware.channel import Channel, Route
from perfmodel.numeric import minimum
from perfmodel.prediction.machine import Host, Machine, shared_rates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.hardware.storage import ReadLimits, Storage
    from perfmodel.hardware.wiring import StorageArray

OUTSTANDING_READS: Final = 64
"""Reads that the loader of a host keeps under way, as far as the storage allows it. [1]"""

FULL: Final = 1 - 1e-9
"""Share of a storage's rate from which on all of it is used. [1]"""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What workers get from a storage.

    Parameters
    ----------
    bytes_per_s : float
        Rate at which all workers together read, when the one who gets least is waited for. [B/s]
    is_limited_by_storage : bool
        Whether it is the storage, and no link behind it, that limits that worker. [-]
    """

    bytes_per_s: float
    is_limited_by_storage: bool


def reading_from(storage: Storage, *, machine: Machine | None, hosts: tuple[Host, ...], read_bytes: float) -> Reading:
    """Return what workers get from a storage given by its file.

    Parameters
    ----------
    storage : Storage
        The storage; where it is of a remote kind there is one for all hosts, else each host has one of its own. [-]
    machine : Machine or None
        The job's part of a system; None for a device by itself. [-]
    hosts : tuple of Host
        The machines of the workers, at least one. [-]
    read_bytes : float
        Size of one read. [B]

    Returns
    -------
    Reading
        The rate of all workers, and what limits it. [B/s]

    Notes
    -----
    Valid for: large data sets read by whole examples. A drive of a host is attached such that no link behind
    it limits; reads from a remote storage come in over all network adapters that the system states, evenly, and
    cross what is between them and host memory; each host's loader keeps its own reads under way, and its workers share
    them. Ignores: other traffic of the network, and its switches.
    """
    of_one = storage.read_limits()
    loader = _loader_rate(of_one, read_bytes=read_bytes)
    if not storage.is_remote:
        counts = [host.worker_count for host in hosts]
        return Reading(bytes_per_s=loader * (sum(counts) / max(counts)), is_limited_by_storage=True)
    of_all = storage.read_limits_of_loaders(len(hosts))
    whole = float(minimum(of_all.most_bytes_per_s, of_all.most_reads_per_s * read_bytes))
    if machine is None:
        return Reading(bytes_per_s=min(loader, whole), is_limited_by_storage=whole <= loader)
    of_workers = _network_rates(machine, storage_bytes_per_s=whole, loader_bytes_per_s=loader)
    reached = machine.worker_count * float(of_workers.min())
    return Reading(bytes_per_s=reached, is_limited_by_storage=bool(of_workers.sum() >= whole * FULL))


def reads_of_array(array: StorageArray, *, read_bytes: float) -> Route:
    """Return what limits reads from a storage of a system besides its links, as a way of one channel.

    Parameters
    ----------
    array : StorageArray
        One drive, or several in a stripe. [-]
    read_bytes : float
        Size of one read; infinity where examples are read from end to end. [B]

    Returns
    -------
    Route
        From the array to itself, over a channel that all its reads share. [-]

    Notes
    -----
    Valid for: reads that a stripe spreads evenly over its drives.
    """
    of_one = _loader_rate(array.drive.read_limits(), read_bytes=read_bytes, share=1 / array.drive_count)
    rate = array.drive_count * array.efficiency * of_one
    return Route(nodes=(array.name,), channels=(_channel(f"{array.name} reads", rate),), latency_s=0.0)


def _loader_rate(limits: ReadLimits, *, read_bytes: float, share: float = 1.0) -> float:
    """Return what the loader of one host gets by itself, with a share of its reads. [B/s]"""
    if math.isinf(read_bytes):
        return float(limits.most_bytes_per_s)
    return float(read_rate(read_bytes=read_bytes, outstanding_reads=share * OUTSTANDING_READS, **asdict(limits)))


def _network_rates(machine: Machine, *, storage_bytes_per_s: float, loader_bytes_per_s: float) -> NDArray[np.float64]:
    """Return the rate of each worker, all at once, from one storage behind the network. [B/s]"""
    storage = _channel("storage", storage_bytes_per_s)
    ways_of = []
    for name, ways in zip(machine.names, machine.network_routes, strict=True):
        loader = _channel(f"{machine.node_of(name)} loader", loader_bytes_per_s)
        behind = Route(nodes=("storage",), channels=(storage, loader), latency_s=0.0)
        ways_of.append([behind.then(way) for way in ways] or [behind])
    worker_of = np.repeat(np.arange(len(ways_of)), [len(ways) for ways in ways_of])
    flows = tuple(way for ways in ways_of for way in ways)
    # a worker's share of the storage does not grow with the adapters of its host
    weights = 1 / np.array([len(ways_of[worker]) for worker in worker_of])
    of_flows = shared_rates(flows, weights=weights)
    return np.array([of_flows[worker_of == worker].sum() for worker in range(len(ways_of))])


def _channel(name: str, bytes_per_s: float) -> Channel:
    return Channel(name=name, capacity_bytes_per_s=bytes_per_s, raw_bytes_per_s=bytes_per_s)
