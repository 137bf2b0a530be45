"""Numbers of a system left open: workers, and bandwidth and latency of its links.

The job is made ready on a system whose links carry the symbols, at every number of workers; what that comes to is
joined in the workers, and the composed step is held against numbers of them and of links that lie far apart.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import sympy

from perfmodel.errors import ArgumentError
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.open_links import with_links_scaled
from perfmodel.hardware.wired import Wired
from perfmodel.planning.formulas.workers import TOLERANCE, InWorkers, in_workers
from perfmodel.prediction.agreements import Crowded
from perfmodel.prediction.machine import Machine
from perfmodel.prediction.step_time import PARTS, TOTALS
from perfmodel.prediction.synchronous_agreement import AllReduced, Synchronous, ThroughServer

if TYPE_CHECKING:
    from perfmodel.parallelism import Exchange, StageGraph
    from perfmodel.planning.formulas.definitions import Definitions
    from perfmodel.prediction.job import Job
    from perfmodel.prediction.prepared import Prepared
    from perfmodel.prediction.synchronous_agreement import Reduction

WORKERS: Final = "workers"
BANDWIDTH: Final = "link_bandwidth_bytes_per_s"
LATENCY: Final = "link_latency_s"

RATIOS: Final = tuple(float(ratio) for ratio in np.geomspace(1e-3, 1e3, 25))
"""Bandwidths, or latencies, that a closed form is held against, over the stated one. [1]"""

FEW_RATIOS: Final = (1e-2, 1.0, 1e2)
"""The same where more than one number of a system is free. [1]"""

ROUNDING: Final = 1e-2
"""Share of the step from which on differences of parts are more than rounding, over the tolerance. [1]"""

ONE_OF_THEM: Final = "one of them: here messages differ in their ways, and no single expression holds for all of them"
ALONE: Final = (
    "with device=, or links that alone limit what is exchanged: here others share in it, "
    "or their speed decides which way messages take"
)
"""What is allowed where several numbers of a system, or one of its links, have no closed form."""


def most_workers(arguments: Mapping[str, Any]) -> int:
    """Return how many workers the system of some arguments has devices for, all of a kind."""
    system = arguments.get("system")
    if system is None:
        raise ArgumentError("free", "workers", "with system=, whose devices they are")
    loaded = system if isinstance(system, Wired) else load_system(system)
    if not loaded.devices:
        raise ArgumentError("free", "workers", f"fixed on {loaded.name}, which has no GPUs; its sockets work together")
    of_each = arguments.get("stages", 1) * arguments.get("tensor_size", 1)
    return int(Machine(system=loaded, worker_count=1).alike_count // of_each)


@dataclass(frozen=True, eq=False)
class OpenSystem:
    """A job some numbers of whose system are symbols.

    Parameters
    ----------
    job : Job
        As it is predicted. [-]
    stated : Prepared
        The same made ready. [-]
    symbols : mapping of str to sympy.Symbol
        ``workers``, ``link_bandwidth_bytes_per_s`` and ``link_latency_s``, as far as they are free. Links are all those
        of the family of the one that a worker's device hangs on: they keep their ratio to it. [unit of each]
    """

    job: Job
    stated: Prepared
    symbols: Mapping[str, sympy.Symbol]

    @cached_property
    def numbers(self) -> dict[str, float]:
        """What workers [1], and bandwidth [B/s] and latency [s] of the links of a worker's device, are."""
        target: Any = self.stated.target
        rate, latency_s = target.link.effective_bandwidth_bytes_per_s, target.link.latency_s
        return {WORKERS: float(self.stated.worker_count), BANDWIDTH: float(rate), LATENCY: float(latency_s)}

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Numbers of workers. [1]"""
        if WORKERS not in self.symbols:
            return (self.stated.worker_count,)
        return tuple(range(1, most_workers(self.job.asked) + 1))

    @property
    def links(self) -> dict[str, sympy.Symbol]:
        """Open numbers of links."""
        return {name: symbol for name, symbol in self.symbols.items() if name != WORKERS}

    def _job(self, count: int, bandwidth: Any, latency: Any) -> Job:
        """Return the job of so many workers [1], bandwidths and latencies of links being over the stated ones [1]."""
        target: Any = self.stated.target
        asked: dict[str, Any] = {"workers": count} if WORKERS in self.symbols else {}
        if self.links:
            family, system = target.link.family.stem, target.machine.system
            asked["system"] = with_links_scaled(system, family, bandwidth, latency=latency)
        return self.job.replace(**asked)

    @cached_property
    def each(self) -> tuple[Prepared, ...]:
        """The job made ready at every number of workers, with symbols for links."""
        ratios = [self.links[name] / self.numbers[name] if name in self.links else 1.0 for name in (BANDWIDTH, LATENCY)]
        found = []
        for count in self.counts:
            try:
                found.append(self._job(count, *ratios).prepared)
            except ArgumentError as wrong:
                if WORKERS not in self.symbols:
                    raise
                allowed = f"fixed here, as no single formula holds for every number of them: at {count}, {wrong}"
                raise ArgumentError("free", WORKERS, allowed) from wrong
        if any(each.target.processor_spec != found[0].target.processor_spec for each in found):
            allowed = "fixed here: devices that share a board slow down beside each other"
            raise ArgumentError("free", WORKERS, allowed)
        if any(_of_a_worker(each, beside=found[-1]) != _of_a_worker(found[-1], beside=each) for each in found):
            allowed = "fixed here: what a device has of the network depends on the number of workers"
            raise ArgumentError("free", WORKERS, allowed)
        return tuple(found)

    def prepared(self) -> Prepared:
        """Return the job made ready, with symbols."""
        last = self.each[-1]
        if WORKERS not in self.symbols:
            return last
        agreement: Any = last.agreement
        if agreement is not None:
            assert isinstance(agreement, Synchronous)
            reductions = tuple(self._reduction(place) for place in range(len(agreement.reductions)))
            agreement = replace(agreement, reductions=reductions, worker_count=self.symbols[WORKERS])
        beside = [[each.stages[at] for each in self.each] for at in range(len(last.stages))]
        stages = [replace(of_each[-1], target=self._copying([stage.target for stage in of_each])) for of_each in beside]
        return replace(
            last,
            target=self._copying([each.target for each in self.each]),
            stages=tuple(stages),
            exchanges=_OpenExchanges(self),  # type: ignore[arg-type]
            agreement=agreement,
        )

    def _in_workers(self, values: list[Any]) -> Any:
        return in_workers(self.symbols[WORKERS], self.counts, values)

    def collective(self, placed: list[Any]) -> Any:
        """Return a collective, given at every number of workers, in closed form."""
        last = placed[-1]
        if isinstance(last, Crowded):
            inner = {name: self.collective([getattr(each, name) for each in placed]) for name in ("alone", "together")}
            return replace(last, **inner)
        links = {symbol: self.numbers[name] for name, symbol in self.links.items()}
        return InWorkers(symbol=self.symbols[WORKERS], counts=self.counts, placed=tuple(placed), links=links)

    def _copying(self, targets: list[Any]) -> Any:
        """Return a target, if there is one, with its copies of mini-batches in closed form."""
        target = copy.copy(targets[-1])
        if target is None:
            return None
        target.copy_latency_s = self._in_workers([each.copy_latency_s for each in targets])
        target.shared_bytes_per_s = 1 / self._in_workers([1 / each.shared_bytes_per_s for each in targets])
        return target

    def _reduction(self, place: int) -> Reduction:
        """Return how the gradients of the device at a place of each worker come together."""
        agreements: list[Any] = [each.agreement for each in self.each]
        every = [None if each is None else each.reductions[place] for each in agreements]
        there: list[Any] = [each for each in every if each is not None]
        last = there[-1]

        def of(name: str) -> Any:
            return self.collective([None if each is None else getattr(each, name) for each in every])

        def number(name: str) -> Any:  # of one worker, who exchanges nothing, any number is right
            return self._in_workers([getattr(there[0] if each is None else each, name) for each in every])

        if isinstance(last, ThroughServer):
            return replace(last, push=of("push"), pull=of("pull"), server_s_per_byte=number("server_s_per_byte"))
        assert isinstance(last, AllReduced)
        return replace(last, placed=of("placed"), slowdown=number("slowdown"))

    def hold(self, definitions: Definitions, parts: Mapping[str, Any], *, factors: Mapping[str, Any], at: Any) -> None:
        """Raise where a composed step is not what numbers give.

        Raises
        ------
        ArgumentError
            Naming what is free.
        """
        # whether a kernel counts as bound by arithmetic or by memory is rounding where both are as long
        wanted = [name for name in (*PARTS, *TOTALS) if name not in ("compute_s", "memory_bound_s")]
        points, answers = [], []
        for stated, bandwidth, latency in self._places:
            count, stated_rate, stated_s = stated.worker_count, self.numbers[BANDWIDTH], self.numbers[LATENCY]
            here = {WORKERS: count, BANDWIDTH: bandwidth * stated_rate, LATENCY: latency * stated_s}
            point = {**at, **{symbol: here[name] for name, symbol in self.symbols.items()}}
            numbers = {name: float(sympy.sympify(factor).subs(point)) for name, factor in factors.items()}
            step = self._job(count, bandwidth, latency).prepared_on(stated.placement).step(numbers).parts
            points.append(list(point.values()))
            answers.append([float(getattr(step, name)) for name in (*wanted, "step_s")])
        with np.errstate(all="ignore"):
            found = definitions.function(list(at), [parts[name] for name in wanted])(*np.array(points).T)
        *expected, step_s = np.array(answers).T
        for of_formula, of_numbers in zip(found, expected, strict=True):
            if (np.abs(of_formula - of_numbers) > TOLERANCE * (np.abs(of_numbers) + ROUNDING * step_s)).any():
                raise self.refusal

    @property
    def _places(self) -> list[tuple[Prepared, float, float]]:
        """The job at every number of workers, with bandwidths and latencies over the stated ones [1]."""
        ratios = RATIOS if len(self.symbols) == 1 else FEW_RATIOS
        of_links = [ratios if name in self.symbols else (1.0,) for name in (BANDWIDTH, LATENCY)]
        return [(each, *scaled) for each in self.each for scaled in itertools.product(*of_links)]  # type: ignore[misc]

    @property
    def refusal(self) -> ArgumentError:
        """What is said where there is no closed form."""
        allowed = ONE_OF_THEM if len(self.symbols) > 1 else ALONE
        return ArgumentError("free", " and ".join(self.symbols), allowed)


@dataclass(frozen=True, eq=False)
class _OpenExchanges:
    """What devices of one worker exchange, of any number of workers."""

    system: OpenSystem

    def __call__(self, exchange: Exchange, size_bytes: Any, stage: StageGraph) -> Any:
        """Return the time of an exchange of so many bytes [B] of a stage. [s]"""
        of_each: list[Any] = [each.exchanges for each in self.system.each]
        placed = [None if each is None else each.placed(exchange, stage) for each in of_each]
        if all(each is None for each in placed):
            return 0.0
        return self.system.collective(placed).time(size_bytes)


def _of_a_worker(prepared: Prepared, *, beside: Prepared) -> list[Any]:
    """Return what the devices of a worker have of the network, and exchange: with others, if both have others."""
    alone = 1 in (prepared.worker_count, beside.worker_count)
    return [
        (
            stage.placed.graph.fingerprint,
            stage.placed.device,
            stage.placed.batch_factor,
            [each for each in stage.placed.exchanges if not (alone and each.group == "data")],
        )
        for stage in prepared.stages
    ]
