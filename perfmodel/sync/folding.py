"""Equal machines: a few of them stand for all when a collective runs on many.

Rings and trees keep the messages of three machines. Where every rank exchanges as much with every server, two machines
of each role are kept: machines have the same role if the same of their places are ranks and servers.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    nodes_of = [tuple(node for node, _ in itertools.groupby(of_ranks)) for of_ranks in machines]
    used = [node for nodes in dict.fromkeys(nodes_of) for node in nodes]
    if len(set(used)) < len(used):
        return groups
    sets: dict[tuple[str, ...], list[_Part]] = {}
    for group, of_ranks, nodes in zip(groups, machines, nodes_of, strict=True):
        runs = itertools.groupby(zip(group, of_ranks, strict=True), key=itemgetter(1))
        of_machines = tuple(tuple(name[len(node) :] for name, _ in run) for node, run in runs)
        sets.setdefault(nodes, []).append(_Part(group, of_machines))
    if len({tuple(part.places for part in parts) for parts in sets.values()}) > 1:
        return groups
    nodes, first = next(iter(sets.items()))
    if not few or len(nodes) < FEWEST_FOLDED or any(len(set(part.places)) > 1 for part in first):
        return [part.group for part in first]
    return [tuple(name for name in part.group if name.partition("/")[0] in nodes[:KEPT]) for part in first]


OF_ROLE: Final = 2
"""Machines of each role that are kept: one, and another one that it exchanges with. [1]"""


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Roles of machines; the first two machines of a role stand for all in it.

    Parameters
    ----------
    of : mapping of str to int
        Number of the role of each machine that is kept. [1]
    counts : ndarray, shape (roles,)
        All machines of each role. [1]
    """

    of: Mapping[str, int]
    counts: NDArray[np.int64]

    @classmethod
    def of_machines(cls, parts: Mapping[str, Hashable]) -> Roles:
        """Give machines one role if the same of their places take part."""
        numbers: dict[Hashable, int] = {}
        counts: Counter[int] = Counter()
        of: dict[str, int] = {}
        for machine, part in parts.items():
            role = numbers.setdefault(part, len(numbers))
            counts[role] += 1
            if counts[role] <= OF_ROLE:
                of[machine] = role
        return cls(of=of, counts=np.array([counts[role] for role in range(len(counts))]))

    def kept(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the places that are on kept machines."""
        return tuple(name for name in names if name.rpartition("/")[0] in self.of)

    def stood_for(self, first: Sequence[str], second: Sequence[str]) -> NDArray[np.float64]:
        """Count what two kept machines stand for when one sends to the other.

        Returns
        -------
        ndarray, shape (3, pairs)
            Machines like the second that the first exchanges with; machines like the first that the second exchanges
            with; pairs of such machines in all. [1]
        """
        sender, receiver = (np.array([self.of[machine] for machine in machines]) for machines in (first, second))
        is_itself = np.array(first) == np.array(second)
        kept = np.minimum(self.counts, OF_ROLE)
        among = (self.counts - 1) / np.maximum(kept - 1, 1)  # a single machine of its role meets no other

        def exchanging(of: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.float64]:
            return np.where(is_itself, 1.0, np.where(of == other, among[of], (self.counts / kept)[other]))

        of_sender = exchanging(sender, receiver)
        return np.stack([of_sender, exchanging(receiver, sender), of_sender * (self.counts / kept)[sender]])


def roles_among(topology: Topology, ranks: Sequence[str], servers: Sequence[str]) -> Roles:
    """Return the roles of machines where every rank exchanges as much with every server.

    Parameters
    ----------
    topology : Topology
        Equal machines. [-]
    ranks, servers : sequence of str
        Names of the ranks, and of the servers. [-]
    """
    parts: dict[str, list[tuple[int, str]]] = {}
    for kind, names in enumerate((ranks, servers)):
        for name in names:
            machine, _, place = name.rpartition("/")
            parts.setdefault(machine, []).append((kind, place))
    leaves = {machine: topology.leaf(machine) for machine in parts} if not topology.alike else {}
    return Roles.of_machines(
        {machine: (leaves.get(machine), tuple(sorted(places))) for machine, places in parts.items()}
    )
