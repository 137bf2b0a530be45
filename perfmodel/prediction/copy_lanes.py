"""How many lanes, and where, would let copies to the devices of a job keep up with the devices."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.cost.fair_share import max_min_rates

if TYPE_CHECKING:
    from perfmodel.prediction.basis import Basis
    from perfmodel.prediction.machine import Machine

MOST_WIDENED: Final = 10
"""Doublings of lanes after which none are advised. [1]"""

_LANES_IN_NAME: Final = re.compile(r".*_x(?P<lanes>\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class LanesNeeded:
    """What would let copies keep up.

    Parameters
    ----------
    lanes : dict of str to tuple of int
        Place whose link towards the sockets it is (a device, switch or root) to lanes it has and lanes that let the
        worker who gets least be fed no later than it computes; empty where copies keep up already, or where no number
        of lanes would help. [1]
    limit : str
        What bounds them however many lanes there are, such as a memory bus; empty where lanes help. [-]
    """

    lanes: dict[str, tuple[int, int]]
    limit: str = ""


def lanes_needed(basis: Basis) -> LanesNeeded:
    """Return the links that copies to the devices wait for, with their lanes and those that would be enough.

    Parameters
    ----------
    basis : Basis
        The step that was predicted. [-]

    Returns
    -------
    LanesNeeded
        By link. [1]

    Notes
    -----
    Valid for: links whose rate is that of one lane times their lanes, which come in powers of two. What bounds the
    copies is widened, all that has become the bound then too, and the shares of all workers are worked out again.
    """
    prepared = basis.prepared
    machine = prepared.target.machine
    if machine is None:
        return LanesNeeded(lanes={})
    before, meanwhile = prepared.copies(basis.factors)
    fixed_s = sum(float(copy.host_s) + copy.latency_s for copy in (before, meanwhile))
    left_s = float(basis.timed.parts.device_s) - fixed_s
    copied_bytes = before.copied_bytes + meanwhile.copied_bytes
    if not copied_bytes or left_s <= 0:
        return LanesNeeded(lanes={})
    own_rate = min(float(copy.bytes_per_s) for copy in (before, meanwhile) if copy.copied_bytes)
    return _widened(machine, needed_bytes_per_s=copied_bytes / left_s, own_bytes_per_s=own_rate)


def _widened(machine: Machine, *, needed_bytes_per_s: float, own_bytes_per_s: float) -> LanesNeeded:
    """Double the lanes of what bounds the copies until all workers get the rate they need."""
    routes = machine.input_routes
    channels = {channel.name: channel for route in routes for channel in route.channels}
    below = {wire.downward.name: wire.lower for wire in machine.system.topology.wires}
    names = list(channels)
    capacity = np.array([channels[name].capacity_bytes_per_s for name in names])
    own = np.array([names.index(route.channel_names[-1]) for route in routes])
    uses = np.array([[float(name in route.channel_names) for name in names] for route in routes])
    times = np.ones(len(names), dtype=int)
    for _ in range(MOST_WIDENED):
        shares = max_min_rates(capacity=capacity * times, uses=uses)
        of_link = own_bytes_per_s * times[own]  # from pageable memory less than the link carries
        short = np.minimum(shares, of_link) < needed_bytes_per_s * (1 - 1e-9)
        if not short.any():
            widened = {names[place]: int(count) for place, count in enumerate(times) if count > 1}
            lanes = {name: int(_LANES_IN_NAME.fullmatch(channels[name].link)["lanes"]) for name in widened}  # type: ignore[index]
            of_place = {below[name]: (lanes[name], lanes[name] * count) for name, count in widened.items()}
            return LanesNeeded(lanes=of_place)
        full = (shares @ uses >= capacity * times * (1 - 1e-9)) & uses[short].any(axis=0)
        full[own[short & (of_link < needed_bytes_per_s)]] = True
        links = [channels[names[place]].link for place in np.flatnonzero(full)]
        without = next((link for link in links if _LANES_IN_NAME.fullmatch(link) is None), None)
        if without is not None:
            return LanesNeeded(lanes={}, limit=without)
        times[full] *= 2
    return LanesNeeded(lanes={})
