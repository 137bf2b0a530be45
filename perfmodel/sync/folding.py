"""Equal machines: a few of them stand for all when a collective runs on many."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from perfmodel.derived import derived

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Topology

FEWEST_FOLDED: Final = 9
"""Fewest machines in a group that three of them represent. [1]"""

KEPT: Final = 3
"""Machines that stand for the others: one between two neighbours. [1]"""

Group = tuple[str, ...]


class _Part(NamedTuple):
    """A group, and the places that it uses on each machine."""

    group: Group
    places: tuple[tuple[str, ...], ...]


def representatives(topology: Topology, groups: tuple[Group, ...], *, few: bool) -> list[Group]:
    """Return the groups and ranks whose messages are as fast as those of all.

    Parameters
    ----------
    topology : Topology
        The system. [-]
    groups : tuple of tuple of str
        Devices by rank, of each simultaneous group. [-]
    few : bool
        Whether three machines of a group may stand for more. [-]

    Returns
    -------
    list of tuple of str
        Groups on the first of several sets of machines, with ranks on its first three machines; all groups where
        machines differ or are few. [-]

    Notes
    -----
    Valid for: equal machines joined by one switch. Ignores: nothing; if a group uses machines unequally, none is left
    out.
    """
    if not topology.alike:
        return list(groups)
    return list(_representatives(topology, groups, few))


@derived
def _representatives(topology: Topology, groups: tuple[Group, ...], few: bool) -> Sequence[Group]:
    places = topology.places
    machines = [[places[name].node for name in group] for group in groups]
    if len(set().union(*machines)) < FEWEST_FOLDED:
        return groups
    sets: dict[tuple[str, ...], list[_Part]] = {}
    for group, of_ranks in zip(groups, machines, strict=True):
        runs = [(node, sum(1 for _ in run)) for node, run in itertools.groupby(of_ranks)]
        nodes = tuple(node for node, _ in runs)
        if len(set(nodes)) < len(nodes):
            return groups
        local = (name[len(node) :] for name, node in zip(group, of_ranks, strict=True))
        sets.setdefault(nodes, []).append(
            _Part(group, tuple(tuple(itertools.islice(local, count)) for _, count in runs))
        )
    used = [node for nodes in sets for node in nodes]
    patterns = {tuple(part.places for part in parts) for parts in sets.values()}
    if len(set(used)) < len(used) or len(patterns) > 1:
        return groups
    nodes, first = next(iter(sets.items()))
    if not few or len(nodes) < FEWEST_FOLDED or any(len(set(part.places)) > 1 for part in first):
        return [part.group for part in first]
    return [tuple(name for name in part.group if name.partition("/")[0] in nodes[:KEPT]) for part in first]
