"""Routes over channels whose numbers are expressions: what flows get of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfmodel.cost.transfer import longest_byte_time
from perfmodel.symbolic import Quantity, is_symbolic

if TYPE_CHECKING:
    from perfmodel.hardware.channel import Route


def has_open_links(routes: Sequence[Route]) -> bool:
    """Tell whether what any channel on some routes carries is an expression."""
    return is_symbolic(*(channel.capacity_bytes_per_s for route in routes for channel in route.channels))


def byte_times(routes: Sequence[Route]) -> list[Quantity]:
    """Return the time of a byte of each flow, when one takes each route. [s/B]"""
    flows = Counter(channel.name for route in routes for channel in route.channels)
    return [
        longest_byte_time(
            capacity=[channel.capacity_bytes_per_s for channel in route.channels],
            flow_counts=[flows[channel.name] for channel in route.channels],
        )
        for route in routes
    ]
