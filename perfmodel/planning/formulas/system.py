"""Numbers of a system left open: workers, and bandwidth and latency of its links.

What a system gives to its workers follows from how flows share its wiring. That is looked up at every number of
workers, told by stretches of them, and put into the functions that cost an exchange. What comes of it is held against
``predict`` at every number of workers that the system has, and at bandwidths and latencies far apart. Where it does not
hold, the answers of ``predict`` themselves are written as a closed form, and held against the same.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from perfmodel.cost.collective import units_taken_share
from perfmodel.errors import ArgumentError
from perfmodel.numeric import maximum
from perfmodel.planning.formulas.asked import WORKERS, AskedSystem
from perfmodel.planning.formulas.exchange import ByCost, ByRounds, Held, OpenRound, Port, slowest, written_number
from perfmodel.planning.formulas.wiring import NOTHING, NoForm, Share, Way, Ways, ways_by_rate
from perfmodel.prediction.parameter_server import served_s_per_byte
from perfmodel.prediction.synchronous_agreement import AllReduced, Synchronous, ThroughServer
from perfmodel.records import ELEMENT_BYTES
from perfmodel.sync.base import SERVER
from perfmodel.sync.library import LibraryCollective
from perfmodel.units import GIGA

if TYPE_CHECKING:
    import sympy

    from perfmodel.hardware.gpu import Gpu
    from perfmodel.hardware.topology import Topology
    from perfmodel.prediction.prepared import Prepared
    from perfmodel.sync.placed import Placed, PlacedRound


def with_system(
    prepared: Prepared, graph: Any, arguments: dict[str, Any], symbols: Mapping[str, sympy.Symbol]
) -> Prepared:
    """Return a step in which numbers of the system are symbols.

    Parameters
    ----------
    prepared : Prepared
        The step, with symbols of other numbers in it. [-]
    graph : LayerGraph or Run
        What is trained. [-]
    arguments : dict of str to object
        Arguments of ``predict``. [-]
    symbols : mapping of str to sympy.Symbol
        What is free of ``OF_A_SYSTEM``. Links are all those of the family of the one that a worker's device hangs on:
        they keep their ratio to it. [unit of each]

    Returns
    -------
    Prepared
        Equal to that of ``predict`` at every number of workers that the system has devices for.

    Raises
    ------
    ArgumentError
        If the strategy does not run with some number of workers, they are not alike, or no single form holds.
    """
    opened = AskedSystem(prepared, graph, arguments, symbols)
    last = next((each.agreement for each in reversed(opened.answers) if each.agreement is not None), None)
    agreement: Any = last
    if isinstance(last, Synchronous):
        (reduction,) = last.reductions
        agreement = replace(last, reductions=(EXCHANGES[type(reduction)](opened, reduction, last.name),))
    if agreement is not None and WORKERS in symbols:
        agreement = replace(agreement, worker_count=symbols[WORKERS])
    return replace(prepared, target=_copying(opened), agreement=agreement)


def _composed(make: Any) -> Any:
    """Return what is composed, or None where there is no form."""
    try:
        return make()
    except (NoForm, ArgumentError):
        return None


def _copying(asked: AskedSystem) -> Any:
    """Return the target with its copies of mini-batches in closed form."""
    target: Any = copy.copy(asked.prepared.target)

    def ways(prepared: Any, topology: Topology) -> Ways:
        names = prepared.target.machine.names
        return asked.ways(topology, [(topology.home_memory(name), name) for name in names])

    of_each = zip(asked.bases, asked.topologies, strict=True)
    ports = _composed(lambda: asked.ports([ways(*each) for each in of_each], asked.counts))
    port = Port(None, None) if ports is None else slowest(ports)
    answered: list[Any] = [each.target for each in asked.answers]
    about: dict[str, Any] = {"points": asked.points, "written": asked.written}
    target.copy_latency_s = written_number(port.latency_s, [each.copy_latency_s for each in answered], **about)
    per_byte = [1 / each.shared_bytes_per_s for each in answered]
    target.shared_bytes_per_s = 1 / written_number(port.seconds_per_byte, per_byte, **about)
    return target


def _reductions(asked: AskedSystem) -> list[Any]:
    """Return how the gradients of the one device of each worker come together wherever predict was asked."""
    return [None if each.agreement is None else each.agreement.reduction for each in cast("list[Any]", asked.answers)]


def _all_reduced(asked: AskedSystem, reduction: AllReduced, name: str) -> AllReduced:
    placed = _held(asked, [None if each is None else each.placed for each in _reductions(asked)], _placed_of)
    return replace(reduction, placed=placed, slowdown=_slowdown(asked, reduction, placed, name))  # type: ignore[arg-type]


def _slowdown(asked: AskedSystem, agreement: AllReduced, placed: Held, name: str) -> Any:
    """Return the share of a device that messages take, which a library spends on what the links carry. [1]"""
    of_each = _reductions(asked)
    exchanging = np.array([each is not None for each in of_each])
    shares = [each.slowdown for each in of_each if each is not None]
    if len(set(shares)) == 1 and not asked.frees_links:
        return agreement.slowdown

    def alike(answers: Any) -> Any:
        if not np.ptp(answers):
            return agreement.slowdown
        allowed = "an algorithm by its name: the library takes more of the device with some of these numbers"
        raise ArgumentError("sync", name, allowed)

    def taken() -> Any:
        library, device = placed.form, cast("Gpu", asked.prepared.target.processor_spec)
        if not isinstance(library, LibraryCollective) or library.blocks is None:
            raise NoForm
        algorithms: Any = library.algorithms
        return units_taken_share(
            bytes_per_s=reduce(maximum, [rate for each in algorithms for rate in each.rates_bytes_per_s]),
            block_bytes_per_s=library.blocks.gb_per_s * GIGA,
            fewest=library.blocks.fewest,
            most=library.blocks.most,
            unit_count=device.unit_count,
        )

    points = {symbol: values[exchanging] for symbol, values in asked.points.items()}
    return written_number(_composed(taken), shares, points=points, written=alike)


def _placed_of(prepared: Prepared) -> Any:
    agreement: Any = prepared.agreement
    return None if agreement is None else agreement.reduction.placed


def _through_server(asked: AskedSystem, agreement: ThroughServer, name: str) -> ThroughServer:
    del name
    prepared = asked.prepared
    machine: Any = prepared.target.machine
    server: Any = asked.answers[-1].agreement.server  # type: ignore[union-attr]
    of_each = _reductions(asked)

    def served() -> Any:
        count = asked.symbols[WORKERS]
        return served_s_per_byte(
            machine,
            server.memories,
            prepared.subject,
            worker_count=count,
            element_bytes=ELEMENT_BYTES[prepared.dtype],
        )

    push: Any = _held(asked, [each.push for each in of_each], lambda each: each.agreement.reduction.push)
    pull: Any = _held(asked, [each.pull for each in of_each], lambda each: each.agreement.reduction.pull)
    served_s = written_number(
        served() if WORKERS in asked.symbols else agreement.server_s_per_byte,
        [each.server_s_per_byte for each in of_each],
        points=asked.points,
        written=asked.written,
    )
    return replace(agreement, push=push, pull=pull, server_s_per_byte=served_s)


EXCHANGES: Final[Mapping[type, Any]] = {AllReduced: _all_reduced, ThroughServer: _through_server}
"""How each agreement of workers is written with numbers of the system in it."""


def _held(asked: AskedSystem, placed: list[Any], of: Any) -> Held:
    """Return a collective in closed form, held against how it was placed wherever it was asked about."""
    pairs = [
        (count, topology, of(each))
        for count, each, topology in zip(asked.counts, asked.bases, asked.topologies, strict=True)
        if of(each) is not None
    ]
    return Held(
        form=_composed(lambda: _collective(asked, pairs)) if pairs else None,
        asked=tuple(placed),
        points=asked.points,
        written=asked.written,
        alone=asked.symbols.get(WORKERS),
    )


_Placing = tuple[int, "Topology", Any]
"""Number of workers, the system, and the collective on it."""


def _collective(asked: AskedSystem, pairs: Sequence[_Placing]) -> Any:
    """Return a collective, or a library's choice of them, with symbols in it."""
    first = pairs[0][2]
    if not isinstance(first, LibraryCollective):
        return _algorithm(asked, pairs)
    algorithms: Any = tuple(
        _algorithm(asked, [(count, topology, library.algorithms[place]) for count, topology, library in pairs])
        for place in range(len(first.algorithms))
    )
    return replace(first, algorithms=algorithms)


def _algorithm(asked: AskedSystem, pairs: Sequence[_Placing]) -> ByCost | ByRounds:
    counts = [count for count, _, _ in pairs]
    first: Placed = pairs[0][2]
    ways = [[_ways(asked, topology, placed, each) for each in placed.rounds] for _, topology, placed in pairs]
    if WORKERS not in asked.symbols or first.collective.server_kind:
        if any(len(each) != len(first.rounds) for each in ways):
            raise NoForm
        rounds = tuple(
            OpenRound(each.repeat, _share(each), asked.ports([of_count[place] for of_count in ways], counts))
            for place, each in enumerate(first.rounds)
        )
        return ByRounds(rounds=rounds, fill_rounds=first.fill_rounds)
    typical = [_typical(asked, count, placed, each) for (count, _, placed), each in zip(pairs, ways, strict=True)]
    form = ByCost(
        collective=first.collective,
        worker_count=asked.symbols[WORKERS],
        ports=asked.ports(typical, counts),
        fill_rounds=pairs[-1][2].fill_rounds,
    )
    form.check()
    return form


def _share(each: PlacedRound) -> float:
    shares = {message.share for message in each.messages}
    if len(shares) > 1:
        raise NoForm
    return float(shares.pop())


def _ways(asked: AskedSystem, topology: Topology, placed: Placed, each: PlacedRound) -> Ways:
    """Return what the messages of a round get."""
    if len(each.lines) > 1 and not asked.frees_links:
        return ways_by_rate(each)
    names = dict(enumerate(placed.order)) | {SERVER - place: name for place, name in enumerate(placed.servers)}
    ends = [(names[message.source], names[message.sink]) for message in each.messages]
    return asked.ways(topology, ends, flowing=bool(_share(each)))


def _typical(asked: AskedSystem, count: int, placed: Placed, ways: Sequence[Ways]) -> Ways:
    """Return what a message gets if that is the same in all rounds, else what it gets on average.

    A collective's own formula counts messages one after another, and bytes over a port: with these means it is exact
    at this number of workers.
    """
    if all(each == ways[0] for each in ways[1:]):
        return ways[0]
    if asked.frees_links:
        raise NoForm
    cost = partial(placed.collective.time, worker_count=count)
    latency_s = placed.latency_s / cost(size_bytes=0.0, latency_s=1.0, seconds_per_byte=0.0)
    per_byte = placed.seconds_per_byte / cost(size_bytes=1.0, latency_s=0.0, seconds_per_byte=1.0)
    return (Way(float(latency_s), 0, NOTHING, Share(1, float(1 / per_byte))),)
