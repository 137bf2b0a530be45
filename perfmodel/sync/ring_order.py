"""Ring order: a tour of the ranks over the widest routes and, among equally wide ones, the fastest."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from perfmodel.derived import derived
from perfmodel.errors import ArgumentError

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Route, Topology

Found = TypeVar("Found")
Distance = Callable[[int, int], tuple[float, float]]

EXACT_UP_TO: Final = 9
"""Most places for which every tour is tried; each further place doubles the time. [1]"""

RINGS_TRIED: Final = 256
"""Most rings of a machine that are tried to find disjoint ones: all sets would take minutes on irregular wiring. [1]"""


def ring_order(topology: Topology, ranks: Sequence[str], *, through_host: bool = False) -> tuple[str, ...]:
    """Order ranks so that neighbours are as close as the wiring allows, machine by machine.

    Parameters
    ----------
    topology : Topology
        The system that contains the ranks. [-]
    ranks : sequence of str
        Names of their devices. [-]
    through_host : bool
        Whether all copies go through host memory. [-]

    Returns
    -------
    tuple of str
        The same names, starting with the first. [-]

    Raises
    ------
    ArgumentError
        If no link leads from one rank to another.

    Notes
    -----
    Valid for: one ring. The tour makes its slowest link as fast as possible, then the sum of latencies as small as
    possible: exactly for up to nine devices in a machine; beyond that, it is improved by reversing stretches. Ignores:
    shared channels.

    Examples
    --------
    >>> from perfmodel.hardware.catalogue import load_system
    >>> topology = load_system("dgx_1_p100").topology
    >>> "-".join(name.removeprefix("gpu") for name in ring_order(topology, topology.devices()))
    '0-1-2-3-7-5-6-4'
    """
    between: dict[tuple[Hashable, Hashable], tuple[float, float]] = {}  # equal between the same two attachments

    def attachment(place: int) -> Hashable:
        return topology.attachment(ranks[place]) if ranks[place] in topology.places else ranks[place]

    def distance(one: int, other: int) -> tuple[float, float]:
        ends = attachment(one), attachment(other)
        if ends not in between:
            rate, latency_s = _between_ranks(topology.reach, ranks[one], ranks[other], through_host=through_host)
            between[ends] = 1 / rate, latency_s
        return between[ends]

    machines: dict[str, list[int]] = {}
    for place, name in enumerate(ranks):
        machines.setdefault(topology.places[name].node if name in topology.places else "", []).append(place)
    if _are_equally_far(topology, through_host) and set(ranks) <= devices_of(topology):
        return tuple(ranks[place] for members in machines.values() for place in members)
    tours = _tours(topology)
    tour: list[int] = []
    for node, members in machines.items():
        local = node if topology.equal_machines else ""  # equal machines with the same ranks share a tour
        key = through_host, *(ranks[place].removeprefix(local) for place in members)
        if key not in tours:
            tours[key] = [members.index(place) for place in _tour(members, distance)]
        tour += [members[index] for index in tours[key]]
    return tuple(ranks[place] for place in tour)


@derived
def devices_of(topology: Topology) -> frozenset[str]:
    """Return the names of all devices."""
    return frozenset(topology.devices())


@derived
def _are_equally_far(topology: Topology, through_host: bool) -> bool:
    """Whether all devices of equal machines are equally far from each other, so that any tour is the best."""
    if not topology.equal_machines or not topology.devices():
        return False
    first = topology.places[topology.devices()[0]].node
    names = [name[len(first) :] for name in topology.of_node(first, "device")]
    pairs = {topology.likened(*pair) for pair in itertools.permutations(names, 2)}
    return len({topology.reach(first + one, first + other, through_host=through_host) for one, other in pairs}) == 1


@derived
def _tours(topology: Topology) -> dict[tuple[object, ...], list[int]]:
    """Return the known tours of a system's machines, each as places in the list of ranks that is its key."""
    del topology
    return {}


def ring_starts(topology: Topology, tour: Sequence[str], *, through_host: bool = False) -> NDArray[np.int64]:
    """Return the tours of one ring per network adapter, each entering every machine at another adapter.

    Inside one machine that is one ring, or of devices that links join directly, as many as run side by side: both ways
    around closed ways that share no lane.

    Parameters
    ----------
    topology : Topology
        The system that contains the ranks. [-]
    tour : sequence of str
        Ranks in the order of one ring, machine by machine. [-]
    through_host : bool
        Whether all copies go through host memory. [-]

    Returns
    -------
    ndarray, shape (rings, ranks)
        Places in ``tour``, one order for each ring. [-]

    Notes
    -----
    Valid for: machines with equally many adapters near their ranks; else, the fewest of any machine count. Ignores:
    adapters that no rank is nearest to; disjoint rings of more than nine devices, and inside each of several machines.

    Examples
    --------
    >>> from perfmodel.hardware.catalogue import load_system
    >>> topology = load_system("dgx_a100_x4").topology
    >>> ring_starts(topology, topology.devices())[:2, :3].tolist()
    [[0, 1, 2], [1, 2, 3]]
    >>> cube = load_system("dgx_1_p100").topology  # four lanes to each device
    >>> len(ring_starts(cube, cube.devices()))
    4

    References
    ----------
    .. [1] S. Jeaugey, NCCL 2.0, GPU Technology Conference, 2017: rings between machines, one for each adapter, and
       four or six inside a DGX-1.
    """
    nodes = [topology.places[name].node if name in topology.places else "" for name in tour]
    machines = [list(places) for _, places in itertools.groupby(range(len(tour)), nodes.__getitem__)]
    if len(machines) == 1:
        return _rings_side_by_side(topology, tuple(tour), through_host)
    if any(topology.places[name].kind != "device" for name in tour):
        return np.arange(len(tour))[np.newaxis]
    first: dict[tuple[str, ...], list[int]] = {}  # equal machines with equal ranks have the same rings
    alike = []
    for places in machines:
        local = nodes[places[0]] if topology.equal_machines else ""
        alike.append(first.setdefault(tuple(tour[place].removeprefix(local) for place in places), places))
    entries = {places[0]: _entries(topology, [tour[place] for place in places]) for places in first.values()}
    count = min(map(len, entries.values()))

    def orders(places: list[int]) -> NDArray[np.int64]:
        """Return the ranks of a machine in the order of each ring, numbered within the machine."""
        starts, of_rings = entries[places[0]], []
        near, names = _reaching(topology, tour, places), {tour[place] for place in places}
        is_switched = any(topology.joined_to(switch) >= names for switch in topology.joined_to(tour[places[0]]))
        for ring in range(count):
            adapter = topology.own_nic(tour[places[starts[(ring or count) - 1]]])  # where the ring before enters
            entered = (*places[starts[ring] :], *places[: starts[ring]])
            of_rings.append(_left_by_adapter(entered, near.get(adapter, {}), is_switched=is_switched))
        return np.array(of_rings) - places[0]

    known = {places[0]: orders(places) for places in first.values()}
    return np.concatenate([places[0] + known[like[0]] for places, like in zip(machines, alike, strict=True)], axis=1)


@derived
def _rings_side_by_side(topology: Topology, tour: tuple[str, ...], through_host: bool) -> NDArray[np.int64]:
    """Return the tours of the rings inside a machine: both ways around disjoint ones over direct links, else one."""
    count = len(tour)
    one_ring = np.arange(count)[np.newaxis]
    if not 3 <= count <= EXACT_UP_TO:
        return one_ring
    rates = np.zeros((count, count))
    for one, other in itertools.combinations(range(count), 2):
        route = _between_ranks(topology.route, tour[one], tour[other], through_host=through_host)
        if len(route.channels) == 1:
            rates[one, other] = rates[other, one] = route.capacity_bytes_per_s
    if not rates.any():
        return one_ring
    lanes = np.rint(rates / rates[rates > 0].min()).astype(int)
    rings = _disjoint_rings(lanes, int(lanes.sum(axis=0).min()) // 2, iter(range(RINGS_TRIED)))
    both_ways = [way for ring in rings for way in (ring, (ring[0], *reversed(ring[1:])))]
    return np.array(both_ways) if both_ways else one_ring


def _disjoint_rings(lanes: NDArray[np.int64], most: int, tries: Iterator[int]) -> list[tuple[int, ...]]:
    """Return as many rings of all places as are found that share no lane, at most so many."""
    best: list[tuple[int, ...]] = []
    for ring, _ in zip(_rings_over(lanes, (0,)) if most else (), tries, strict=False):
        ends = list(ring), [*ring[1:], ring[0]]
        left = lanes.copy()
        left[ends] -= 1
        left[ends[::-1]] -= 1
        best = max(best, [ring, *_disjoint_rings(left, most - 1, tries)], key=len)
        if len(best) == most:
            break
    return best


def _rings_over(lanes: NDArray[np.int64], way: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the rings that go on from a way over free lanes, each in one of its directions."""
    if len(way) == len(lanes):
        if lanes[way[-1], way[0]] and way[1] < way[-1]:
            yield way
        return
    for following in np.flatnonzero(lanes[way[-1]]).tolist():
        if following not in way:
            yield from _rings_over(lanes, (*way, following))


def _entries(topology: Topology, names: Sequence[str]) -> list[int]:
    """Return the places of a machine's ranks at which rings enter it: the first that is nearest to each adapter."""
    first_at: dict[str | None, int] = {}
    for index, name in enumerate(names):
        first_at.setdefault(topology.own_nic(name), index)
    return [0] if None in first_at else list(first_at.values())


def _reaching(topology: Topology, tour: Sequence[str], places: Sequence[int]) -> dict[str | None, dict[int, float]]:
    """Return the ranks of a machine that reach each adapter directly, with the latency to it. [s]"""
    reaching: dict[str | None, dict[int, float]] = {}
    for place in places:
        adapter = topology.own_nic(tour[place])
        if adapter is not None and adapter in topology.rdma_nics(tour[place]):
            reaching.setdefault(adapter, {})[place] = topology.reach(tour[place], adapter)[1]
    return reaching


def _left_by_adapter(places: tuple[int, ...], near: Mapping[int, float], *, is_switched: bool) -> tuple[int, ...]:
    """Move a rank that is near an adapter to the end of a machine's ranks, if a switch joins all of them."""
    if not near or len(places) < 3:
        return places
    free = places[1:] if is_switched else places[-1:]
    # of those that are equally near, the one that comes last anyway, else the latest
    last = min((place for place in reversed(free) if place in near), key=near.__getitem__, default=places[-1])
    return (*(place for place in places if place != last), last)


def way_between(topology: Topology, source: str, sink: str, *, through_host: bool = False) -> Route:
    """Route of a message; the error for a missing route names both ends.

    Parameters
    ----------
    topology : Topology
        The system. [-]
    source, sink : str
        Names of nodes. [-]
    through_host : bool
        Whether the message always goes through host memory. [-]

    Returns
    -------
    Route
        Same as from ``Topology.route``. [-]

    Raises
    ------
    ArgumentError
        If no link leads from source to sink.
    UnknownNameError
        If a node does not exist.
    """
    return _between_ranks(topology.route, source, sink, through_host=through_host)


def _between_ranks(find: Callable[..., Found], source: str, sink: str, *, through_host: bool) -> Found:
    """Ask a topology about two ranks; the error names both."""
    try:
        return find(source, sink, through_host=through_host)
    except ArgumentError as error:
        ends = f"{source} and {sink}"
        allowed = "nodes that links join, directly or through host memory"
        raise ArgumentError("ranks", ends, allowed) from error


def _tour(members: list[int], distance: Distance) -> list[int]:
    if len(members) <= 3:
        return members
    between = {(one, other): distance(one, other) for one, other in itertools.permutations(members, 2)}
    if len(set(between.values())) == 1:
        return members
    return _exact(members, between) if len(members) <= EXACT_UP_TO else _improved(members, between)


Between = dict[tuple[int, int], tuple[float, float]]


def _exact(members: list[int], between: Between) -> list[int]:
    """Return the best tour, found from the best paths through every set of places."""
    first, others = members[0], members[1:]
    best: dict[tuple[int, int], tuple[float, float, list[int]]] = {}
    for place, member in enumerate(others):
        best[1 << place, place] = (*between[first, member], [first, member])
    for visited in range(1, 1 << len(others)):
        for last in range(len(others)):
            if (visited, last) not in best:
                continue
            width, latency, way = best[visited, last]
            for following, member in enumerate(others):
                if visited >> following & 1:
                    continue
                step = between[others[last], member]
                tour = (max(width, step[0]), latency + step[1], [*way, member])
                key = (visited | 1 << following, following)
                best[key] = min(best.get(key, tour), tour)
    everybody = (1 << len(others)) - 1
    closed = []
    for last, member in enumerate(others):
        width, latency, way = best[everybody, last]
        back = between[member, first]
        closed.append((max(width, back[0]), latency + back[1], way))
    return min(closed)[2]


def _improved(members: list[int], between: Between) -> list[int]:
    """Improve the nearest-neighbour tour until no reversed stretch shortens it."""
    tour, left = [members[0]], members[1:]
    while left:
        left.sort(key=lambda member: (*between[tour[-1], member], member))
        tour.append(left.pop(0))

    def length(way: list[int]) -> tuple[float, float]:
        steps = [between[one, other] for one, other in itertools.pairwise([*way, way[0]])]
        return sum(step[0] for step in steps), sum(step[1] for step in steps)

    best = length(tour)
    better = True
    while better:
        better = False
        for start, end in itertools.combinations(range(1, len(tour) + 1), 2):
            way = [*tour[:start], *reversed(tour[start:end]), *tour[end:]]
            if length(way) < best:
                tour, best, better = way, length(way), True
    return tour
