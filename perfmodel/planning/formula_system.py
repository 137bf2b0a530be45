"""Numbers of a system left open: workers, and the bandwidth of its links.

What a system gives to its workers follows from how flows share its wiring, which no formula of a few letters tells.
It is therefore asked of ``predict`` itself: at every number of workers that the system has, or at bandwidths far apart;
what comes back is written as a closed form and held against every answer, as a kernel table is against a third batch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import sympy

from perfmodel.errors import ArgumentError, PerfmodelError
from perfmodel.hardware.catalogue import load_link, load_system
from perfmodel.hardware.topology import Topology
from perfmodel.hardware.wired import Wired
from perfmodel.numeric import maximum
from perfmodel.prediction.machine import Machine
from perfmodel.prediction.predict import predict
from perfmodel.prediction.synchronous_agreement import AllReduced, ThroughServer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.prediction.prepared import Prepared

TOLERANCE: Final = 1e-11
"""How far a closed form may be from any answer. [1]"""

RATIOS: Final = tuple(float(ratio) for ratio in np.geomspace(1e-3, 1e3, 25))
"""Bandwidths that a closed form is held against, over the stated one. [1]"""

Written = Callable[["NDArray[np.float64]"], Any]
"""Turns answers, one for each place that was asked about, into a closed form."""


def in_workers(symbol: sympy.Symbol, counts: Sequence[int]) -> Written:
    """Return what writes answers at all numbers of workers as sums of 1, p and 1 / p, stretch by stretch."""
    p = np.asarray(counts, dtype=float)
    basis = np.stack([np.ones_like(p), p, 1 / p], axis=1)

    def line(answers: NDArray[np.float64], start: int, end: int) -> NDArray[np.float64] | None:
        found = np.linalg.lstsq(basis[start:end], answers[start:end], rcond=None)[0]
        close = np.abs(basis[start:end] @ found - answers[start:end]) <= TOLERANCE * np.abs(answers[start:end])
        return found if close.all() else None

    def written(answers: NDArray[np.float64]) -> Any:
        pieces, start = [], 0
        while start < len(p):
            end = next(end for end in range(len(p), start, -1) if line(answers, start, end) is not None)
            factors = line(answers, start, end)
            assert factors is not None
            scale = np.abs(factors).max()
            one, rising, falling = (float(each) if abs(each) > TOLERANCE * scale else 0 for each in factors)
            pieces.append((one + rising * symbol + falling / symbol, symbol <= int(p[end - 1])))
            start = end
        return pieces[0][0] if len(pieces) == 1 else sympy.Piecewise(*pieces[:-1], (pieces[-1][0], True))

    return written


def in_bandwidth(symbol: sympy.Symbol, stated: float) -> Written:
    """Return what writes answers at many bandwidths as max(a + b / x, c): latency, bytes, and what others give."""
    ratios = np.asarray(RATIOS)

    def written(answers: NDArray[np.float64]) -> Any:
        slope = (answers[0] - answers[1]) / (1 / ratios[0] - 1 / ratios[1])
        constant, least = answers[0] - slope / ratios[0], answers[-1]
        if abs(constant) <= 1e-9 * answers[0]:  # what is left of it is rounding; proved below either way
            constant = float(min((answers - slope / ratios).min(), 0.0) if answers.min() <= 0 else max(constant, 0.0))
        found = np.maximum(constant + slope / ratios, least)
        if (np.abs(found - answers) > 1e-10 * np.abs(answers)).any():
            allowed = "with device=, or links that alone limit what is exchanged: here they share the way with others"
            raise ArgumentError("free", symbol.name, allowed)
        if slope == 0:
            return float(least)
        return maximum(float(constant) + float(slope) * stated / symbol, float(least))

    return written


@dataclass(frozen=True, eq=False)
class WrittenCollective:
    """A collective at the places that were asked about, whose time is a closed form.

    Parameters
    ----------
    asked : tuple of Placed or LibraryCollective or None
        The collective at each place; None where nothing is exchanged. [-]
    written : callable
        Turns answers into a closed form. [-]
    """

    asked: tuple[Any, ...]
    written: Written

    def time(self, sizes_bytes: Any) -> Any:
        """Return the time of each message [s] of so many bytes [B]."""
        sizes = np.atleast_1d(sizes_bytes)
        answers = np.array([np.zeros(len(sizes)) if each is None else each.time(sizes) for each in self.asked])
        found = np.empty(len(sizes), dtype=object)
        found[:] = [sympy.sympify(self.written(column)) for column in answers.T]
        return found


def devices_alike(arguments: dict[str, Any]) -> int:
    """Return how many workers the system of some arguments has devices for, all of a kind."""
    system = arguments.get("system")
    if system is None:
        raise ArgumentError("free", "workers", "with system=, whose devices they are")
    loaded = system if isinstance(system, Wired) else load_system(system)
    return Machine(system=loaded, worker_count=1).alike_count


def with_workers(prepared: Prepared, graph: Any, arguments: dict[str, Any], symbol: sympy.Symbol) -> Prepared:
    """Return a step whose number of workers is a symbol.

    Parameters
    ----------
    prepared : Prepared
        The step, with symbols of other numbers in it. [-]
    graph : LayerGraph or Run
        What is trained. [-]
    arguments : dict of str to object
        Arguments of ``predict``. [-]
    symbol : sympy.Symbol
        Number of workers. [1]

    Returns
    -------
    Prepared
        Equal to that of ``predict`` at every number of workers that the system has devices for.

    Raises
    ------
    ArgumentError
        If the strategy does not run with some number of them, or they are not alike.
    """
    counts = range(1, devices_alike(arguments) + 1)
    asked = []
    for count in counts:
        try:
            asked.append(_prepared_by(graph, arguments | {"workers": count}))
        except ArgumentError as wrong:
            allowed = f"fixed here, as no single formula holds for every number of them: at {count}, {wrong}"
            raise ArgumentError("free", "workers", allowed) from wrong
    if any(each.target.processor_spec != asked[0].target.processor_spec for each in asked):
        allowed = "fixed here: devices that share a board slow down beside each other"
        raise ArgumentError("free", "workers", allowed)
    changed = _with_answers(prepared, asked, in_workers(symbol, counts))
    return (
        changed
        if changed.agreement is None
        else replace(changed, agreement=replace(changed.agreement, worker_count=symbol))
    )


def with_link_bandwidth(
    prepared: Prepared, graph: Any, arguments: dict[str, Any], symbol: sympy.Symbol
) -> tuple[Prepared, float]:
    """Return a step in which the effective bandwidth of the workers' links is a symbol, and what it is. [B/s]

    Parameters
    ----------
    prepared : Prepared
        The step, with symbols of other numbers in it. [-]
    graph : LayerGraph or Run
        What is trained. [-]
    arguments : dict of str to object
        Arguments of ``predict``. [-]
    symbol : sympy.Symbol
        What large copies reach over the link of a worker's device. [B/s]

    Returns
    -------
    tuple of Prepared and float
        The step, and the stated bandwidth: all links of the same family keep their ratio to it. [B/s]

    Raises
    ------
    ArgumentError
        If other links limit the exchange in ways that no single formula tells.
    """
    target: Any = prepared.target
    stated = float(target.link.effective_bandwidth_bytes_per_s)
    system = target.machine.system
    asked = [
        _prepared_by(graph, arguments | {"system": with_links_scaled(system, target.link.family.stem, ratio)})
        for ratio in RATIOS
    ]
    return _with_answers(prepared, asked, in_bandwidth(symbol, stated)), stated


def with_links_scaled(system: Wired, family: str, ratio: float) -> Wired:
    """Return a system all of whose links of a family are so many times as fast.

    Parameters
    ----------
    system : System or Cluster
        The system. [-]
    family : str
        Stem of the family's file, e.g. ``pcie_3``. [-]
    ratio : float
        Factor on their bandwidths. [1]

    Returns
    -------
    System or Cluster
        The same but for them. [-]
    """

    def is_of_family(link: str) -> bool:
        try:
            return load_link(link.rsplit(" x ", 1)[-1]).family.stem == family
        except PerfmodelError:  # a bus of a socket, which is no link of the catalogue
            return False

    def scaled(channel: Any) -> Any:
        if not is_of_family(channel.link):
            return channel
        rates = {name: ratio * getattr(channel, name) for name in ("capacity_bytes_per_s", "raw_bytes_per_s")}
        return replace(channel, **rates)

    topology = system.topology
    wires = [replace(wire, upward=scaled(wire.upward), downward=scaled(wire.downward)) for wire in topology.wires]
    changed = copy.copy(system)
    changed.__dict__["topology"] = Topology(topology.places.values(), wires)
    return changed


def _prepared_by(graph: Any, arguments: dict[str, Any]) -> Prepared:
    basis = predict(graph, **arguments).basis
    assert basis is not None
    return basis.prepared


def _with_answers(prepared: Prepared, asked: Sequence[Prepared], written: Written) -> Prepared:
    """Return a step whose copies and exchange are closed forms of what was asked."""
    targets: Any = [each.target for each in asked]
    target: Any = copy.copy(prepared.target)
    target.shared_bytes_per_s = 1 / written(np.array([1 / each.shared_bytes_per_s for each in targets]))
    target.copy_latency_s = written(np.array([each.copy_latency_s for each in targets]))
    agreement: Any = next((each.agreement for each in reversed(asked) if each.agreement is not None), None)
    of_each: Any = [each.agreement for each in asked]
    if isinstance(agreement, AllReduced):
        if len({each.slowdown for each in of_each if each is not None}) > 1:
            raise ArgumentError("sync", agreement.name, "an algorithm by its name: the library changes what it takes")
        placed: Any = WrittenCollective(tuple(None if each is None else each.placed for each in of_each), written)
        agreement = replace(agreement, placed=placed)
    elif isinstance(agreement, ThroughServer):
        push: Any = WrittenCollective(tuple(each.push for each in of_each), written)
        pull: Any = WrittenCollective(tuple(each.pull for each in of_each), written)
        served = written(np.array([each.server_s_per_byte for each in of_each]))
        agreement = replace(agreement, push=push, pull=pull, server_s_per_byte=served)
    return replace(prepared, target=target, agreement=agreement)
