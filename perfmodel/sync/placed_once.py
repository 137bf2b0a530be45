"""Collectives on a topology, placed once: predictions that differ in anything else place the same ones again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from perfmodel.sync.placed import Placed, place

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Topology
    from perfmodel.sync.base import Collective

MOST_PLACED: Final = 1024
"""Collectives kept for one topology; the oldest goes first. [1]"""

_PLACED: WeakKeyDictionary[Topology, dict[Any, Placed]] = WeakKeyDictionary()


def placed_once(
    collective: Collective,
    topology: Topology,
    ranks: Sequence[str],
    *,
    servers: Sequence[str] = (),
    beside: Sequence[Sequence[str]] = (),
    **options: Any,
) -> Placed:
    """Put a collective on devices of a system, or return it as it was put there before.

    Parameters
    ----------
    collective : Collective
        The algorithm. [-]
    topology : Topology
        The system. [-]
    ranks : sequence of str
        Devices. [-]
    servers : sequence of str
        Nodes of its servers. [-]
    beside : sequence of sequence of str
        Further groups that do the same at the same time. [-]
    **options : object
        The algorithm's own. [-]

    Returns
    -------
    Placed
        As ``place`` returns it. [-]

    Raises
    ------
    ArgumentError, UnknownNameError
        As ``place`` raises them.
    """
    kept = _PLACED.setdefault(topology, {})
    key = (collective.name, tuple(ranks), tuple(servers), tuple(map(tuple, beside)), tuple(sorted(options.items())))
    if key not in kept:
        while len(kept) >= MOST_PLACED:
            del kept[next(iter(kept))]
        kept[key] = place(collective, topology, ranks, servers=servers, beside=beside, **options)
    return kept[key]
