"""Numbers of a system as symbols: workers with their exchange, and bandwidth and latency of its links.

The job is prepared on a system whose links carry the symbols, at every number of workers; the results are joined
into expressions in the workers, and the composed step is checked at widely spaced numbers of workers and links.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import sympy

from perfmodel.cost.message_protocols import pipelined_time
from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.cluster import several, system_with
from perfmodel.hardware.computing_hosts import computing_on_hosts
from perfmodel.hardware.wiring import Wired, with_links_scaled
from perfmodel.numeric import exceeds, maximum, minimum, where
from perfmodel.planning.formulas.evaluation import Values
from perfmodel.planning.formulas.named_expressions import Definitions
from perfmodel.prediction.device.step_time import PARTS, TOTALS
from perfmodel.prediction.device.system_part import SystemPart
from perfmodel.prediction.job.agreement import AllReduced, Reduction, Synchronous, ThroughServer
from perfmodel.prediction.job.agreements import SharedServerLinks
from perfmodel.symbolic import expression_of, is_symbolic, named, naming, substituted
from perfmodel.sync.registry import LibraryCollective, collective

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.hardware.library import CollectiveLibrary
    from perfmodel.parallelism.base import Exchange, StageGraph
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.sync.placed import Placed

TOLERANCE: Final = 1e-11
"""Largest relative difference between a closed form and the numbers that it represents. [1]"""
BASES: Final = ((0,), (1,), (0, 1), (0, 1, -1))
"""Powers of the number of workers that closed forms sum, the simplest first. [1]"""
PROBES_BYTES: Final = np.array([1e3, 1e6, 1e9])
"""Message sizes at which a form with a symbolic size is checked. [B]"""
PROBED_RATIOS: Final = (1e-2, 1.0, 1e2)
"""Link values at which that check is done, as ratios to the stated ones. [1]"""


def in_stretches(symbol: sympy.Symbol, counts: Sequence[int], numbers: Sequence[float]) -> Any:
    """Return a closed form of ``numbers``, piecewise over the numbers of workers."""
    p, values = np.asarray(counts, dtype=float), np.asarray(numbers, dtype=float)
    pieces, start = [], 0
    while start < len(p):
        stretches = [_stretch(p[start:], values[start:], powers) for powers in BASES]
        length, factors, powers = max(stretches, key=lambda stretch: stretch[0])  # the simplest of equally long ones
        form = sum(factor * symbol**power for factor, power in zip(factors, powers, strict=True))
        start += length
        pieces.append((form, symbol <= counts[start - 1]))
    return pieces[0][0] if len(pieces) == 1 else sympy.Piecewise(*pieces[:-1], (pieces[-1][0], True))


def _stretch(
    p: NDArray[np.float64], values: NDArray[np.float64], powers: tuple[int, ...]
) -> tuple[int, list[Any], tuple[int, ...]]:
    """Return the number of leading numbers that fit one sum of powers, and its factors."""
    basis = np.stack([p**power for power in powers], axis=1)
    factors: NDArray[np.floating[Any]] = np.zeros(len(powers))
    fitted_count = 0
    for end in range(1 if powers == (0,) else len(powers) + 1, len(p) + 1):
        fitted = np.linalg.lstsq(basis[:end], values[:end], rcond=None)[0]
        if (np.abs(basis[:end] @ fitted - values[:end]) > TOLERANCE * np.abs(values[:end])).any():
            break
        fitted_count, factors = end, fitted
    return fitted_count, [_rounded(factor, np.abs(factors).max()) for factor in factors], powers


def _rounded(factor: float, scale: float) -> Any:
    """Return a factor rounded to the whole number it represents; 0 if it is negligible."""
    whole = round(factor)
    return whole if abs(factor - whole) <= TOLERANCE * max(scale, abs(whole)) else float(factor)


def in_workers(symbol: sympy.Symbol, counts: Sequence[int], values: Sequence[Any]) -> Any:
    """Return one expression for values at numbers of workers; values may be expressions in links."""
    values = [expression_of(value) for value in values]
    if all(value == values[0] for value in values):
        return values[0]
    joins = sympy.Max if any(isinstance(value, sympy.Max) for value in values) else sympy.Add
    factors = [_factors(value, joins) for value in values]
    terms = dict.fromkeys(term for row in factors for term in row)
    forms = [in_stretches(symbol, counts, [row.get(term, 0.0) for row in factors]) * term for term in terms]
    return reduce(maximum, forms) if joins is sympy.Max else sympy.Add(*forms)


def _factors(value: Any, joins: Any) -> dict[Any, float]:
    """Return the factor of each term of a sum or a maximum."""
    if isinstance(value, joins):
        inner = [_factors(argument, joins) for argument in value.args]
        return {term: factor for factors in inner for term, factor in factors.items()}
    factor, term = value.as_coeff_Mul()
    return {term: float(factor)} if factor else {}


@dataclass(frozen=True, kw_only=True)
class Form:
    """A collective in closed form."""

    collective: Any
    cost: Callable[..., Any]
    port: tuple[Any, Any]
    crossings: Any = 0.0
    waits_for_network: bool = False
    fill_rounds: int = 0
    paired_share: Any = 0.0
    rounds: bool = True

    def time(self, size_bytes: Any) -> Any:
        """Return the time of a message [s] of a given size [B]."""
        return self.cost(size_bytes, named(self.port[0], "latency"), named(self.port[1], "seconds per byte"))

    @property
    def latency_s(self) -> Any:
        """Time of an empty message. [s]"""
        return self.cost(0.0, named(self.port[0], "latency"), 0.0)

    @property
    def path_latency_s(self) -> Any:
        """Latency of a message that does not wait in rounds: the same where all links are alike. [s]"""
        return self.latency_s

    @property
    def network_rounds(self) -> Any:
        """Rounds that leave a machine. [1]"""
        return self.cost(0.0, named(self.crossings, "crossings of a round"), 0.0)

    @property
    def seconds_per_byte(self) -> Any:
        """Time of each further byte of a large message. [s/B]"""
        return self.cost(1.0, 0.0, named(self.port[1], "seconds per byte"))


@dataclass(frozen=True, eq=False, kw_only=True)
class InWorkers:
    """A collective among any number of workers, checked against its placement on the system at each number."""

    symbol: sympy.Symbol
    counts: tuple[int, ...]
    placed: tuple[Any, ...]
    links: Mapping[sympy.Symbol, float]

    def time(self, size_bytes: Any) -> Any:
        """Return the time of messages [s] of given sizes [B]."""
        probes = PROBES_BYTES if is_symbolic(size_bytes) else np.atleast_1d(np.asarray(size_bytes, dtype=float))
        for way in self._ways:
            with naming(_unnamed):
                stands = self._holds(way(probes), probes)
            if stands:
                return way(size_bytes)
        return self._written(size_bytes, probes)

    @derived_property
    def _ways(self) -> list[Callable[[Any], Any]]:
        form = self._form
        if form is None:
            return []
        return [form.time, lambda size_bytes: where(exceeds(self.symbol, 1), form.time(size_bytes), 0.0 * size_bytes)]

    @derived_property
    def _form(self) -> Any:
        there = [(count, placed) for count, placed in zip(self.counts, self.placed, strict=True) if placed is not None]
        if not there:
            return None
        first = there[0][1]
        try:
            if not isinstance(first, LibraryCollective):
                return self._algorithm(there)
            algorithms = range(len(first.algorithms))
            forms = [self._algorithm([(count, placed.algorithms[at]) for count, placed in there]) for at in algorithms]
        except (ArgumentError, ZeroDivisionError):
            return None  # its formula needs more than a number of workers, e.g. a group size
        return replace(first, algorithms=tuple(forms))  # type: ignore[arg-type]

    def _algorithm(self, there: Sequence[tuple[int, Placed]]) -> Form:
        placed, counts = [one for _, one in there], [count for count, _ in there]
        last = placed[-1]
        if last.collective.server_kind or any(len(one.order) != count for count, one in there):
            if len({_schedule(one) for one in placed}) > 1:
                raise ArgumentError("workers", counts, "numbers for which the collective has the same rounds")
            costs = [_by_rounds(last)] * (len(placed) + 1)
        else:
            costs = [_by_formula(last, count) for count in counts]
            costs.append(self._by_lines(last) if last.collective.lines(1) else _by_formula(last, self.symbol))
            costs[-1](1.0, 1.0, 1.0)  # raises if it needs more than a number of workers
        ports = [_port(one, cost) for one, cost in zip(placed, costs, strict=False)]
        latency_s, per_byte = (in_workers(self.symbol, counts, numbers) for numbers in zip(*ports, strict=True))
        waiting = {one.waits_for_network for one in placed if one.network_rounds}
        if len(waiting) > 1:
            raise ArgumentError("workers", counts, "numbers that all expose the latency of the network, or all hide it")
        crossings = [one.network_rounds / cost(0.0, 1.0, 0.0) for one, cost in zip(placed, costs, strict=False)]
        return Form(
            collective=last.collective,
            cost=costs[-1],
            port=(latency_s, per_byte),
            crossings=in_workers(self.symbol, counts, crossings),
            waits_for_network=True in waiting,
            fill_rounds=last.fill_rounds,
            paired_share=in_workers(self.symbol, counts, [one.paired_share for one in placed]),
        )

    def _by_lines(self, placed: Placed) -> Callable[..., Any]:
        """Return a cost that is the least of a collective's lines, each with closed forms in the workers as factors."""
        every = zip(*(placed.collective.lines(count) for count in self.counts), strict=True)
        lines = [
            [in_stretches(self.symbol, self.counts, numbers) for numbers in zip(*of_counts, strict=True)]
            for of_counts in every
        ]

        def cost(size_bytes: Any, latency_s: Any, seconds_per_byte: Any) -> Any:
            stream_s = seconds_per_byte * size_bytes
            return reduce(minimum, [alpha * latency_s + beta * stream_s for alpha, beta, _ in lines])

        return cost

    def _holds(self, form: Any, probes: NDArray[np.float64]) -> bool:
        """Tell whether a form gives the times of some messages at every number of workers."""
        points, answers = self._answers(probes)
        wanted = [expression_of(value) for value in np.atleast_1d(form)]
        with np.errstate(all="ignore"):
            values = Values(Definitions(), [self.symbol, *self.links], wanted)(*points)
        columns = np.stack([np.broadcast_to(np.asarray(value, dtype=float), len(answers)) for value in values], axis=1)
        return bool((np.abs(columns - answers) <= TOLERANCE * np.abs(answers)).all())

    def _answers(self, probes: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return workers and link values, shape (symbols, places), and message times, shape (places, probes)."""
        ratios = np.array(list(itertools.product(PROBED_RATIOS, repeat=len(self.links))))
        links = ratios * np.array(list(self.links.values()))
        points, answers = [], []
        for count, placed in zip(self.counts, self.placed, strict=True):
            taken = np.zeros(len(probes)) if placed is None else placed.time(probes)
            if is_symbolic(taken):
                taken = np.stack(np.broadcast_arrays(*Values(Definitions(), self.links, taken)(*links.T)), 1)
            answers.append(np.broadcast_to(np.asarray(taken, dtype=float), (len(links), len(probes))))
            points.append(np.column_stack([np.full(len(links), float(count)), links]))
        return np.concatenate(points).T, np.concatenate(answers)

    def _written(self, size_bytes: Any, probes: NDArray[np.float64]) -> Any:
        """Return message times, or latencies and times per byte, in closed form."""
        if not self.links:
            _, answers = self._answers(probes)
            if not is_symbolic(size_bytes):
                forms = np.empty(len(probes), dtype=object)
                forms[:] = [in_stretches(self.symbol, self.counts, column) for column in answers.T]
                return forms if np.ndim(size_bytes) else forms[0]
            lines = [(0.0, 0.0) if one is None else (one.latency_s, one.seconds_per_byte) for one in self.placed]
            latency_s, per_byte = (in_stretches(self.symbol, self.counts, terms) for terms in zip(*lines, strict=True))
            if self._holds(latency_s + per_byte * probes, probes):
                return latency_s + per_byte * size_bytes
        raise NoForm


class NoForm(Exception):  # noqa: N818 - control flow, not an error
    """Error: messages have no single form in workers and links."""


def _unnamed(value: Any, name: str, place: int, part: object = None) -> Any:
    del name, place, part
    return value


def _schedule(placed: Placed) -> tuple[Any, ...]:
    return tuple((round_.repeat, max(message.share for message in round_.messages)) for round_ in placed.rounds)


def _by_formula(placed: Placed, count: Any) -> Callable[..., Any]:
    algorithm = collective(placed.collective.name)  # without options, as groups depend on the number of workers

    def cost(size_bytes: Any, latency_s: Any, seconds_per_byte: Any) -> Any:
        return algorithm.time(
            size_bytes=size_bytes, worker_count=count, latency_s=latency_s, seconds_per_byte=seconds_per_byte
        )

    return cost


def _by_rounds(placed: Placed) -> Callable[..., Any]:
    rounds, fill_rounds = _schedule(placed), placed.fill_rounds
    repeats, shares = sum(repeat for repeat, _ in rounds), sum(repeat * share for repeat, share in rounds)

    def cost(size_bytes: Any, latency_s: Any, seconds_per_byte: Any) -> Any:
        stream_s = shares * seconds_per_byte * size_bytes
        if fill_rounds:
            return pipelined_time(fill_s=fill_rounds * latency_s, stream_s=stream_s, fill_rounds=fill_rounds)
        return repeats * latency_s + stream_s

    return cost


def _port(placed: Placed, cost: Callable[..., Any]) -> tuple[Any, Any]:
    """Return latency [s] and seconds per byte [s/B] of a message: equal in all rounds, or the average."""
    latencies_s, byte_times = ({getattr(round_, name) for round_ in placed.rounds} for name in ("latency_s", "byte_s"))
    share = cost(1.0, 0.0, 1.0)
    mean_s = placed.seconds_per_byte / share if share else 0.0
    return (
        latencies_s.pop() if len(latencies_s) == 1 else placed.latency_s / cost(0.0, 1.0, 0.0),
        byte_times.pop() if len(byte_times) == 1 else mean_s,
    )


WORKERS: Final = "workers"
BANDWIDTH: Final = "link_bandwidth_bytes_per_s"
LATENCY: Final = "link_latency_s"
RATIOS: Final = tuple(float(ratio) for ratio in np.geomspace(1e-3, 1e3, 25))
"""Bandwidths or latencies at which a closed form is checked, as ratios to the stated one. [1]"""
FEW_RATIOS: Final = (1e-2, 1.0, 1e2)
"""The same if more than one number of a system is free. [1]"""
ROUNDING: Final = 1e-2
"""Share of the step, over the tolerance, above which differences of its parts exceed rounding. [1]"""
ONE_OF_THEM: Final = "one of them: here messages differ in their ways, and no single expression holds for all of them"
ALONE: Final = (
    "left out here, or given with device=: other links limit the exchange too, or the speed of these decides "
    "which route messages take"
)
"""Alternatives if several numbers of a system, or one of its links, have no closed form."""


def most_workers(arguments: Mapping[str, Any]) -> int:
    """Return the number of workers that fit on the devices of a system, which must be of one kind."""
    system = arguments.get("system")
    if system is None:
        raise ArgumentError("free", "workers", "left out without system=, which says where the workers are")
    loaded = system if isinstance(system, Wired) else load_system(system)
    if "machines" in arguments:
        loaded = several(loaded, arguments["machines"])
    if not loaded.devices and loaded.node_count == 1:
        allowed = (
            f"left out on {loaded.name}, which has no GPUs; its sockets work together. Pass a cluster, or machines="
        )
        raise ArgumentError("free", "workers", allowed)
    fitted = system_with(loaded, device=arguments.get("device")) if loaded.devices else computing_on_hosts(loaded)
    if arguments.get("context_size", 1) > 1:
        raise ArgumentError("free", "workers", "left out with context_size, whose devices also add up gradients")
    worker_size = arguments.get("stages", 1) * arguments.get("tensor_size", 1)
    return int(SystemPart(system=fitted, worker_count=1).alike_count // worker_size)


@dataclass(frozen=True, eq=False)
class OpenSystem:
    """A job with some numbers of its system as symbols."""

    job: Job
    stated: Prepared
    symbols: Mapping[str, sympy.Symbol]

    @derived_property
    def numbers(self) -> dict[str, float]:
        """Numbers that may be symbols: workers [1], bandwidth [B/s] and latency [s] of the device's links."""
        target: Any = self.stated.target
        rate, latency_s = target.link.effective_bandwidth_bytes_per_s, target.link.latency_s
        return {WORKERS: float(self.stated.worker_count), BANDWIDTH: float(rate), LATENCY: float(latency_s)}

    @derived_property
    def counts(self) -> tuple[int, ...]:
        """Numbers of workers to sample. [1]"""
        if WORKERS not in self.symbols:
            return (self.stated.worker_count,)
        return tuple(range(1, most_workers(self.job.asked) + 1))

    @property
    def links(self) -> dict[str, sympy.Symbol]:
        """The link symbols that are free."""
        return {name: symbol for name, symbol in self.symbols.items() if name != WORKERS}

    def _job(self, count: int, bandwidth: Any, latency: Any) -> Job:
        """Return the job with a number of workers [1], and link values as ratios to the stated ones [1]."""
        target: Any = self.stated.target
        arguments: dict[str, Any] = {"workers": count} if WORKERS in self.symbols else {}
        if self.links:
            family, system = target.link.family.stem, target.system_part.system
            arguments["system"] = with_links_scaled(system, family, bandwidth, latency=latency)
            arguments["machines"] = None  # the system has them already
        return self.job.replace(**arguments)

    @derived_property
    def by_count(self) -> tuple[Prepared, ...]:
        """The prepared job at every number of workers, with symbols for links."""
        ratios = [self.links[name] / self.numbers[name] if name in self.links else 1.0 for name in (BANDWIDTH, LATENCY)]
        jobs = []
        for count in self.counts:
            try:
                jobs.append(self._job(count, *ratios).prepared)
            except ArgumentError as wrong:
                if WORKERS not in self.symbols:
                    raise
                allowed = f"left out here: no single formula holds for every number of workers; at {count}, {wrong}"
                raise ArgumentError("free", WORKERS, allowed) from wrong
        if any(job.target.processor_spec != jobs[0].target.processor_spec for job in jobs):
            raise ArgumentError("free", WORKERS, "left out here: devices that share a board slow each other down")
        if any(_of_a_worker(job, beside=jobs[-1]) != _of_a_worker(jobs[-1], beside=job) for job in jobs):
            allowed = "left out here: the part of the network on each device depends on the number of workers"
            raise ArgumentError("free", WORKERS, allowed)
        return tuple(jobs)

    def prepared(self) -> Prepared:
        """Return the prepared job with symbols."""
        last = self.by_count[-1]
        if WORKERS not in self.symbols:
            return last
        agreement: Any = last.agreement
        if agreement is not None:
            assert isinstance(agreement, Synchronous)
            reductions = tuple(self._reduction(place) for place in range(len(agreement.reductions)))
            calls_s = self.in_workers([getattr(job.agreement, "calls_s", 0.0) for job in self.by_count])
            agreement = replace(agreement, reductions=reductions, worker_count=self.symbols[WORKERS], calls_s=calls_s)
        beside = [[job.stages[at] for job in self.by_count] for at in range(len(last.stages))]
        stages = [replace(stages[-1], target=self._copying([stage.target for stage in stages])) for stages in beside]
        return replace(
            last,
            target=self._copying([job.target for job in self.by_count]),
            stages=tuple(stages),
            exchanges=_OpenExchanges(self),  # type: ignore[arg-type]
            agreement=agreement,
        )

    def in_workers(self, values: list[Any]) -> Any:
        """Return one expression for values at every number of workers."""
        return in_workers(self.symbols[WORKERS], self.counts, values)

    def collective(self, placed: list[Any]) -> Any:
        """Return the closed form of a collective from its values at every number of workers."""
        last = placed[-1]
        if isinstance(last, SharedServerLinks):
            inner = {name: self.collective([getattr(pair, name) for pair in placed]) for name in ("alone", "together")}
            return replace(last, **inner)
        links = {symbol: self.numbers[name] for name, symbol in self.links.items()}
        return InWorkers(symbol=self.symbols[WORKERS], counts=self.counts, placed=tuple(placed), links=links)

    def _copying(self, targets: list[Any]) -> Any:
        """Return a target with its mini-batch copies in closed form; None without a target."""
        target = copy.copy(targets[-1])
        if target is None:
            return None
        target.copy_latency_s = self.in_workers([one.copy_latency_s for one in targets])
        target.shared_bytes_per_s = 1 / self.in_workers([1 / one.shared_bytes_per_s for one in targets])
        return target

    def _reduction(self, place: int) -> Reduction:
        """Return the reduction of the gradients of one device of each worker."""
        agreements: list[Any] = [job.agreement for job in self.by_count]
        every = [None if agreement is None else agreement.reductions[place] for agreement in agreements]
        there: list[Any] = [reduction for reduction in every if reduction is not None]
        last = there[-1]

        def of(name: str) -> Any:
            return self.collective([None if reduction is None else getattr(reduction, name) for reduction in every])

        def number(name: str) -> Any:  # one worker exchanges nothing, so any number will do
            return self.in_workers([getattr(there[0] if one is None else one, name) for one in every])

        if isinstance(last, ThroughServer):
            return replace(last, push=of("push"), pull=of("pull"), server_s_per_byte=number("server_s_per_byte"))
        assert isinstance(last, AllReduced)
        copies = last.among_copies
        if copies is not None:
            alike = [None if one is None else one.among_copies for one in every]
            taken = [(copies if one is None else one).slowdown for one in alike]
            placed = self.collective([None if one is None else one.placed for one in alike])
            copies = replace(copies, placed=placed, slowdown=self.in_workers(taken))
        return replace(last, placed=of("placed"), slowdown=number("slowdown"), among_copies=copies)

    def hold(self, definitions: Definitions, parts: Mapping[str, Any], *, factors: Mapping[str, Any], at: Any) -> None:
        """Raise if a composed step differs from its numeric prediction."""
        # if both times are equal, rounding decides whether arithmetic or memory bounds a kernel
        wanted = [name for name in (*PARTS, *TOTALS) if name not in ("compute_s", "memory_bound_s")]
        points, answers = [], []
        for stated, bandwidth, latency in self._places:
            count, stated_rate, stated_s = stated.worker_count, self.numbers[BANDWIDTH], self.numbers[LATENCY]
            here = {WORKERS: count, BANDWIDTH: bandwidth * stated_rate, LATENCY: latency * stated_s}
            point = {**at, **{symbol: here[name] for name, symbol in self.symbols.items()}}
            numbers = {name: float(substituted(expression_of(factor), point)) for name, factor in factors.items()}
            step = self._job(count, bandwidth, latency).prepared_on(stated.placement).step(numbers).parts
            points.append(list(point.values()))
            answers.append([float(getattr(step, name)) for name in (*wanted, "step_s")])
        with np.errstate(all="ignore"):
            totals = Values(definitions, at, [parts[name] for name in wanted])(*np.array(points).T)
        *expected, step_s = np.array(answers).T
        for of_formula, of_numbers in zip(totals, expected, strict=True):
            if (np.abs(of_formula - of_numbers) > TOLERANCE * (np.abs(of_numbers) + ROUNDING * step_s)).any():
                raise self.refusal

    @property
    def _places(self) -> list[tuple[Prepared, float, float]]:
        """The job at every number of workers, with link bandwidths and latencies as ratios to the stated ones [1]."""
        ratios = RATIOS if len(self.symbols) == 1 else FEW_RATIOS
        of_links = [ratios if name in self.symbols else (1.0,) for name in (BANDWIDTH, LATENCY)]
        return [(job, *scaled) for job in self.by_count for scaled in itertools.product(*of_links)]  # type: ignore[misc]

    @property
    def refusal(self) -> ArgumentError:
        """Return the error for a case without a closed form."""
        allowed = ONE_OF_THEM if len(self.symbols) > 1 else ALONE
        return ArgumentError("free", " and ".join(self.symbols), allowed)


@dataclass(frozen=True, eq=False)
class _OpenExchanges:
    """Exchanges of one worker's devices, for any number of workers."""

    system: OpenSystem

    @property
    def library(self) -> CollectiveLibrary | None:
        """Library of collectives in use; None if algorithms are named."""
        exchanges = self.system.by_count[-1].exchanges
        return None if exchanges is None else exchanges.library

    def __call__(self, exchange: Exchange, size_bytes: Any, stage: StageGraph) -> Any:
        """Return the time to exchange a number of bytes [B] of a stage. [s]"""
        exchanges_by_count: list[Any] = [job.exchanges for job in self.system.by_count]
        placed = [None if exchanges is None else exchanges.placed(exchange, stage) for exchanges in exchanges_by_count]
        if all(one is None for one in placed):
            return 0.0
        return self.system.collective(placed).time(size_bytes)

    def taken_share(self, exchange: Exchange, stage: StageGraph) -> Any:
        """Share of a device that an exchange's messages occupy. [1]"""
        every: list[Any] = [job.exchanges for job in self.system.by_count]
        shares = [0.0 if exchanges is None else exchanges.taken_share(exchange, stage) for exchanges in every]
        return self.system.in_workers(shares)


def _of_a_worker(prepared: Prepared, *, beside: Prepared) -> list[Any]:
    """Return the part of the network on each device of a worker, and the exchanges among them and with others."""
    alone = 1 in (prepared.worker_count, beside.worker_count)
    return [
        (
            stage.placed.graph.fingerprint,
            stage.placed.device,
            stage.placed.batch_factor,
            [exchange for exchange in stage.placed.exchanges if not (alone and exchange.group == "data")],
        )
        for stage in prepared.stages
    ]
