"""What ``predict`` says of a system wherever a closed form in its workers or links is held against it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import sympy

from perfmodel.errors import ArgumentError
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.topology import Topology
from perfmodel.hardware.wired import Wired
from perfmodel.numeric import maximum
from perfmodel.planning.formulas.exchange import Points, Port, Written
from perfmodel.planning.formulas.wiring import Share, Ways, in_stretches, none_of_them, of_family, ways_of
from perfmodel.planning.formulas.written import in_links, in_several, in_workers
from perfmodel.prediction.machine import Machine
from perfmodel.prediction.predict import predict

if TYPE_CHECKING:
    from perfmodel.prediction.prepared import Prepared

WORKERS: Final = "workers"
BANDWIDTH: Final = "link_bandwidth_bytes_per_s"
LATENCY: Final = "link_latency_s"

OF_A_SYSTEM: Final = (WORKERS, BANDWIDTH, LATENCY)
"""Free numbers of which a system decides what they come to."""

RATIOS: Final = tuple(float(ratio) for ratio in np.geomspace(1e-3, 1e3, 25))
"""Bandwidths, or latencies, that a closed form is held against, over the stated one. [1]"""

FEW_RATIOS: Final = (1e-2, 1.0, 1e2)
"""The same where more than one number of a system is free. [1]"""


def devices_alike(arguments: dict[str, Any]) -> int:
    """Return how many workers the system of some arguments has devices for, all of a kind."""
    system = arguments.get("system")
    if system is None:
        raise ArgumentError("free", "workers", "with system=, whose devices they are")
    loaded = system if isinstance(system, Wired) else load_system(system)
    if not loaded.devices:
        raise ArgumentError("free", "workers", f"fixed on {loaded.name}, which has no GPUs; its sockets work together")
    return Machine(system=loaded, worker_count=1).alike_count


def stated_numbers(prepared: Prepared) -> dict[str, float]:
    """Return what workers [1], and bandwidth [B/s] and latency [s] of the links of a worker's device, are."""
    target: Any = prepared.target
    return {
        WORKERS: float(prepared.worker_count),
        BANDWIDTH: float(target.link.effective_bandwidth_bytes_per_s),
        LATENCY: float(target.link.latency_s),
    }


@dataclass(frozen=True, eq=False)
class AskedSystem:
    """What ``predict`` answers wherever a closed form is held against it.

    Parameters
    ----------
    prepared : Prepared
        The step. [-]
    graph : LayerGraph or Run
        What is trained. [-]
    arguments : dict of str to object
        Arguments of ``predict``. [-]
    symbols : mapping of str to sympy.Symbol
        What is free of ``OF_A_SYSTEM``. [unit of each]
    """

    prepared: Prepared
    graph: Any
    arguments: dict[str, Any]
    symbols: Mapping[str, sympy.Symbol]

    @cached_property
    def stated(self) -> dict[str, float]:
        """Workers [1], bandwidth [B/s] and latency [s] as they are without symbols."""
        return stated_numbers(self.prepared)

    @property
    def frees_links(self) -> bool:
        """Whether a number of links is free."""
        return bool({BANDWIDTH, LATENCY} & set(self.symbols))

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Numbers of workers. [1]"""
        if WORKERS not in self.symbols:
            return (self.prepared.worker_count,)
        return tuple(range(1, devices_alike(self.arguments) + 1))

    @cached_property
    def places(self) -> tuple[tuple[Any, ...], ...]:
        """Workers [1], bandwidth and latency over the stated ones [1]."""
        ratios = RATIOS if len(self.symbols) == 1 else FEW_RATIOS
        of_links = [ratios if name in self.symbols else (1.0,) for name in (BANDWIDTH, LATENCY)]
        return tuple(itertools.product(self.counts, *of_links))

    @cached_property
    def points(self) -> Points:
        """What each symbol is at the places. [unit of each]"""
        numbers = np.array(self.places) * [1.0, self.stated[BANDWIDTH], self.stated[LATENCY]]
        columns = dict(zip(OF_A_SYSTEM, numbers.T, strict=True))
        return {symbol: columns[name] for name, symbol in self.symbols.items()}

    @cached_property
    def answers(self) -> tuple[Prepared, ...]:
        """What is predicted at each place."""
        found = [self._answer(*place) for place in self.places]
        if any(each.target.processor_spec != found[0].target.processor_spec for each in found):
            allowed = "fixed here: devices that share a board slow down beside each other"
            raise ArgumentError("free", WORKERS, allowed)
        return tuple(found)

    def _answer(self, count: int, bandwidth: float, latency: float) -> Prepared:
        asked = dict(self.arguments)
        if WORKERS in self.symbols:
            asked["workers"] = count
        if self.frees_links:
            target: Any = self.prepared.target
            family, system = target.link.family.stem, target.machine.system
            asked["system"] = with_links_scaled(system, family, bandwidth, latency=latency)
        try:
            basis = predict(self.graph, **asked).basis
        except ArgumentError as wrong:
            if WORKERS not in self.symbols:
                raise
            allowed = f"fixed here, as no single formula holds for every number of them: at {count}, {wrong}"
            raise ArgumentError("free", WORKERS, allowed) from wrong
        assert basis is not None
        return basis.prepared

    @cached_property
    def bases(self) -> tuple[Prepared, ...]:
        """Answers at each number of workers with links as they are."""
        stated = (place for place, (_, *ratios) in enumerate(self.places) if np.allclose(ratios, 1.0))
        return tuple(self.answers[place] for place in stated)

    @property
    def topologies(self) -> tuple[Topology, ...]:
        """The system of each of these."""
        targets: Any = [each.target for each in self.bases]
        return tuple(target.machine.system.topology for target in targets)

    @cached_property
    def written(self) -> Written:
        """Turns answers into a closed form where none can be composed."""
        if len(self.symbols) > 1:
            return in_several(list(self.symbols.values()))
        ((name, symbol),) = self.symbols.items()
        if name == WORKERS:
            return in_workers(symbol, self.counts)
        amount, ratios = symbol / self.stated[name], np.asarray(RATIOS)
        return in_links(symbol, *((amount, ratios) if name == LATENCY else (1 / amount, 1 / ratios)))

    def ways(self, topology: Topology, ends: Iterable[tuple[str, str]], *, flowing: bool = True) -> Ways:
        """Return what flows between some ends get, told apart by the links that are free."""
        target: Any = self.prepared.target
        is_free = of_family(target.link.family.stem)
        return ways_of(
            topology,
            ends,
            flowing=flowing,
            free_rate=is_free if BANDWIDTH in self.symbols else none_of_them,
            free_latency=is_free if LATENCY in self.symbols else none_of_them,
        )

    def ports(self, ways: Sequence[Ways], counts: Sequence[int]) -> tuple[Port, ...]:
        """Return what flows get at some numbers of workers, as expressions in all that is free."""
        most = max(map(len, ways))
        filled = [(*each, *[each[-1]] * (most - len(each))) for each in ways]  # one twice is as late as once
        return tuple(self._port(line, counts) for line in zip(*filled, strict=True))

    def _port(self, ways: Ways, counts: Sequence[int]) -> Port:
        over: Any = lambda shares: shares[0].seconds_per_byte  # noqa: E731 - of one number of workers there is one
        if len(counts) > 1:
            over = partial(in_stretches, self.symbols[WORKERS], counts)
        latency_s, starts = (
            over([Share(each, 1.0) for each in of_each])
            for of_each in zip(*((way.latency_s, way.starts) for way in ways), strict=True)
        )
        latency_s += starts * self.symbols.get(LATENCY, self.stated[LATENCY])
        fixed, free = over([way.fixed for way in ways]), over([way.free.over(self.stated[BANDWIDTH]) for way in ways])
        if free == 0:
            return Port(latency_s, fixed)
        slowed = free / self.symbols[BANDWIDTH]
        return Port(latency_s, slowed if fixed == 0 else maximum(slowed, fixed))


def with_links_scaled(system: Wired, family: str, ratio: float, *, latency: float = 1.0) -> Wired:
    """Return a system all of whose links of a family are so many times as fast, and start so much later.

    Parameters
    ----------
    system : System or Cluster
        The system. [-]
    family : str
        Stem of the family's file, e.g. ``pcie_3``. [-]
    ratio : float
        Factor on their bandwidths. [1]
    latency : float
        Factor on the time of an empty message over one of them. [1]

    Returns
    -------
    System or Cluster
        The same but for them. [-]
    """
    is_of_family = of_family(family)

    def scaled(channel: Any) -> Any:
        if not is_of_family(channel):
            return channel
        rates = {name: ratio * getattr(channel, name) for name in ("capacity_bytes_per_s", "raw_bytes_per_s")}
        return replace(channel, startup_s=latency * channel.startup_s, **rates)

    topology = system.topology
    wires = [replace(wire, upward=scaled(wire.upward), downward=scaled(wire.downward)) for wire in topology.wires]
    changed = copy.copy(system)
    changed.__dict__["topology"] = Topology(topology.places.values(), wires)
    return changed
