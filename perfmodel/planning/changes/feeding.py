"""Changes of what brings mini-batches: how far ahead, from where, decoded by whom, in which buffers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from perfmodel.hardware import spec_files
from perfmodel.hardware.rewired import rewired, with_striped_drives
from perfmodel.planning.changes.situation import Change, Situation
from perfmodel.prediction.data_path import HOST_MEMORY

RAID_EFFICIENCY: Final = 0.97
"""Share of the summed rates of drives that an array of them reaches: the survey's 17 of 17.5 GB/s. [1]"""

TIMES_DRIVES: Final = (2, 4)
"""Drives of a proposed array over those there are. [1]"""


def prefetch(now: Situation) -> Iterator[Change]:
    """Yield mini-batches read and decoded while the last one is computed on, and more of them."""
    now.needs(now.target.processor == "gpu", "a CPU's mini-batches are in its memory")
    for depth in (1, 2 * now["prefetch"]):
        if depth > now["prefetch"]:
            yield Change(
                what=f"{depth} mini-batch{'es' if depth > 1 else ''} fetched ahead", changes={"prefetch": depth}
            )


def pinned(now: Situation) -> Iterator[Change]:
    """Yield host buffers that the device may read by itself."""
    now.needs(now.target.processor == "gpu", "a CPU copies nothing to a device")
    now.needs(not now["pinned"], "buffers are pinned where the framework pins them; another framework may")
    yield Change(what="pinned host buffers", changes={"pinned": True})


def _needs_reading(now: Situation) -> None:
    path = now.base.data_path
    now.needs(path is not None and path.dataset is not None, "no data set is read: dataset= names one")


def decode_cores(now: Situation) -> Iterator[Change]:
    """Yield all cores of the hosts for decoding."""
    _needs_reading(now)
    now.needs(now["decode_cores"] is not None, "all cores decode already")
    yield Change(what="all cores of the hosts decode", changes={"decode_cores": None})


def storage(now: Situation) -> Iterator[Change]:
    """Yield every storage there is a file of, and memory."""
    _needs_reading(now)
    for name in (HOST_MEMORY, *spec_files.names("storage")):
        what = "examples decoded in memory beforehand" if name == HOST_MEMORY else f"read from {name}"
        yield Change(what=what, changes={"input_from": name})


def raid(now: Situation) -> Iterator[Change]:
    """Yield more drives of the kind there is, striped into one array."""
    _needs_reading(now)
    now.needs(now.system.storages, "the system has no drive")
    now.needs(now["input_from"] is None, "the data set is read from a storage of its own")
    for times in TIMES_DRIVES:
        what = f"{times} times the drives as RAID 0"
        system = rewired(
            now.system,
            partial(with_striped_drives, times=times, raid_efficiency=RAID_EFFICIENCY),
            what=what,
            folder=now.folder,
        )
        presumes = f"presumes an array that reaches {RAID_EFFICIENCY:g} of the drives' summed rate"
        yield Change(what=what, changes={"system": system}, presumes=presumes)
