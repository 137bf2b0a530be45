"""Reading from a storage that a caller gives by its file, where the system does not say how it is attached."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.cost.storage import read_rate
from perfmodel.hardware.channel import Channel, Route
from perfmodel.prediction.machine import Host, Machine, shared_rates

if TYPE_CHECKING:
    from perfmodel.hardware.storage import Storage

OUTSTANDING_READS: Final = 64
"""Reads that the loaders of a host keep under way: a few for each of their workers. [1]"""

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
    Valid for: large data sets read at random by whole examples. A drive of a host is attached such that no link behind
    it limits; reads from a remote storage come in over all network adapters that the system states, evenly, and
    cross what is between them and host memory. Ignores: other traffic of the network, and its switches.
    """
    loader_count = len(hosts) if storage.is_remote else 1
    limits = storage.read_limits_of_loaders(loader_count)
    rate = float(read_rate(read_bytes=read_bytes, outstanding_reads=OUTSTANDING_READS * loader_count, **asdict(limits)))
    if not storage.is_remote:
        counts = [host.worker_count for host in hosts]
        return Reading(bytes_per_s=rate * (sum(counts) / max(counts)), is_limited_by_storage=True)
    reached = rate if machine is None else _network_rate(machine, storage_bytes_per_s=rate)
    is_full = reached >= rate * FULL
    return Reading(bytes_per_s=rate if is_full else reached, is_limited_by_storage=is_full)


def _network_rate(machine: Machine, *, storage_bytes_per_s: float) -> float:
    """Return the rate of all workers at once from one storage behind the network, by the one who gets least. [B/s]"""
    storage = Channel(name="storage", capacity_bytes_per_s=storage_bytes_per_s, raw_bytes_per_s=storage_bytes_per_s)
    behind = Route(nodes=("storage",), channels=(storage,), latency_s=0.0)
    ways_of = [[behind.then(way) for way in ways] or [behind] for ways in machine.network_routes]
    worker_of = np.repeat(np.arange(len(ways_of)), [len(ways) for ways in ways_of])
    flows = tuple(way for ways in ways_of for way in ways)
    # a worker's share of the storage does not grow with the adapters of its host
    weights = 1 / np.array([len(ways_of[worker]) for worker in worker_of])
    of_workers = np.bincount(worker_of, weights=shared_rates(flows, weights=weights))
    return float(machine.worker_count * of_workers.min())
