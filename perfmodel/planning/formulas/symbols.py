"""Free symbols of a formula: which numbers of a prediction they replace, and the values they may take."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import sympy

from perfmodel.errors import ArgumentError, UnknownNameError, nearest_match
from perfmodel.hardware.gpu import FASTEST_LANES, Gpu
from perfmodel.plain_text import plain
from perfmodel.planning.formulas.open_system import OpenSystem, most_workers
from perfmodel.prediction.arguments.checks import is_huge
from perfmodel.prediction.device.factors import stated_constant
from perfmodel.prediction.device.gpu_target import product_dtype
from perfmodel.prediction.job.gradients import MERGED
from perfmodel.symbolic import expression_of, is_symbolic
from perfmodel.sync.asynchronous import SCHEMES
from perfmodel.units import TERA

if TYPE_CHECKING:
    from perfmodel.planning.formulas.formula import Formula
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.job.prepared import Prepared

    Arguments = Mapping[str, Any]


class Range(NamedTuple):
    """Values that a symbol may take.

    ``smallest`` and ``largest`` are its ends [unit of the symbol], ``why`` the reason [-].
    """

    smallest: float
    largest: float
    why: str

    def holds(self, numbers: Any) -> bool:
        """Tell whether all numbers lie in the range."""
        return bool(((numbers >= self.smallest) & (numbers <= self.largest)).all())

    @property
    def allowed(self) -> str:
        """The range in words."""
        ends = [f"at least {self.smallest:.6g}"] if self.smallest > 0 else []
        ends += [f"at most {self.largest:.6g}"] if math.isfinite(self.largest) else []
        return f"{' and '.join(ends)}, {self.why}"


def range_of_peak(prepared: Prepared, device: Any, dtype: str) -> Range | None:
    """Return the range of a listed peak within which libraries compute in the same types.

    The ratio of half to single precision peaks decides whether half precision runs on lanes or on tensor cores, and a
    library without tensor-core kernels computes in a wider type: outside the range a step has other kernels.
    """
    if not isinstance(device, Gpu) or dtype not in ("fp16", "fp32") or "fp16" not in device.dtypes:
        return None
    half, single = (device.peak_flop_per_s(name) for name in ("fp16", "fp32"))
    border, value = (FASTEST_LANES * single, half) if dtype == "fp16" else (half / FASTEST_LANES, single)

    def types_at(peak: float) -> list[str]:
        peaks = device.peak_tflop_per_s.model_copy(update={dtype: peak / TERA})
        changed = device.model_copy(update={"peak_tflop_per_s": peaks})
        known = (changed, prepared.profile, prepared.libraries)
        return [product_dtype(*known, role, dtype=prepared.dtype) for role in prepared.libraries]

    below, above = border * (1 - 1e-9), border * (1 + 1e-9)
    if types_at(below) == types_at(above):
        return None
    why = "where half precision stays on plain lanes" if half <= FASTEST_LANES * single else "that of tensor cores"
    return Range(0.0, below, why) if value <= border else Range(above, math.inf, why)


@dataclass(eq=False)
class Opened:
    """A prepared step in which symbols replace numbers, one after the other."""

    prepared: Prepared
    factors: dict[str, Any]
    job: Job
    symbols: dict[str, sympy.Symbol] = field(default_factory=dict)
    stated: dict[str, float] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    of_system: dict[str, sympy.Symbol] = field(default_factory=dict)
    system: OpenSystem | None = None

    @property
    def largest(self) -> dict[str, float]:
        """Largest value of each limited symbol. [unit of each]"""
        return {name: span.largest for name, span in self.ranges.items() if span.largest < math.inf}

    def unit_of(self, name: str) -> int:
        """Return the unit whose whole multiples a symbol takes; 0 if any number is allowed. [1]"""
        if name == "batch_size":
            return self.prepared.layout.parts
        return int(name in FREE and FREE[name].whole)

    def scale(self, constant: str, symbol: sympy.Symbol, value: float) -> float:
        """Replace a constant by a symbol; return its present value with its factor."""
        factor = self.factor_of(constant, symbol)
        self.factors[constant] = symbol / value
        return factor * value

    def factor_of(self, constant: str, symbol: sympy.Symbol) -> float:
        """Return the factor on a constant; reject a constant that another symbol already replaces."""
        factor = expression_of(self.factors.get(constant, 1.0))
        before = [name for name, other in self.symbols.items() if other in factor.free_symbols]
        if before:
            allowed = f"a list without repeats: {before[0]} and {symbol.name} both stand for {constant}"
            raise ArgumentError("free", symbol.name, allowed)
        return float(factor)


@dataclass(frozen=True, slots=True)
class Free:
    """A number that may be a free symbol."""

    latex: str
    unit: str
    meaning: str
    put: Callable[[Opened, sympy.Symbol], float]
    whole: bool = False


def _batch_size(opened: Opened, symbol: sympy.Symbol) -> float:
    value = float(opened.prepared.batch_size)
    opened.prepared = replace(opened.prepared, batch_size=symbol)
    return value


def _memory_bandwidth(opened: Opened, symbol: sympy.Symbol) -> float:
    device: Any = opened.prepared.target.processor_spec
    # on a CPU only the product of bandwidth and efficiency counts
    constant = "memory.bandwidth_gb_per_s" if isinstance(device, Gpu) else "memory.efficiency"
    name, bandwidth = f"devices/{device.stem}/{constant}", device.memory_bandwidth_bytes_per_s
    if isinstance(device, Gpu):
        return opened.scale(name, symbol, bandwidth)
    opened.factors[name] = opened.factor_of(name, symbol) * symbol / bandwidth
    return float(bandwidth)


def _gpu_of(opened: Opened, name: str) -> Gpu:
    device = opened.prepared.target.processor_spec
    if not isinstance(device, Gpu):
        allowed = "clock_hz, memory_bandwidth_bytes_per_s or the full name of a constant on a CPU"
        raise ArgumentError("free", name, allowed)
    return device


def _peak(opened: Opened, symbol: sympy.Symbol) -> float:
    device, dtype = _gpu_of(opened, symbol.name), opened.prepared.dtype
    value = opened.scale(f"devices/{device.stem}/peak_tflop_per_s.{dtype}", symbol, device.peak_flop_per_s(dtype))
    _limit_peak(opened, "peak_flop_per_s", dtype, unit=1.0)
    return value


def _limit_peak(opened: Opened, name: str, dtype: str, *, unit: float) -> None:
    """Restrict a free peak, in multiples of a unit [FLOP/s], to the range in which the step has the same kernels."""
    limits = range_of_peak(opened.prepared, opened.prepared.target.processor_spec, dtype)
    if limits is None:
        return
    if set(opened.ranges) - {"workers"}:
        raise ArgumentError("free", name, "one peak only: the ratio of fp16 and fp32 decides which kernels run")
    opened.ranges[name] = Range(limits.smallest / unit, limits.largest / unit, limits.why)


def _launch_latency(opened: Opened, symbol: sympy.Symbol) -> float:
    device = _gpu_of(opened, symbol.name)
    return opened.scale(f"devices/{device.stem}/launch.latency_us", symbol, device.launch_latency_s)


def _clock(opened: Opened, symbol: sympy.Symbol) -> float:
    device: Any = opened.prepared.target.processor_spec
    if isinstance(device, Gpu):
        raise ArgumentError("free", symbol.name, "peak_flop_per_s on a GPU")
    return opened.scale(f"devices/{device.stem}/clock_base_ghz", symbol, device.in_base_units("clock_base_ghz"))


def _linked(opened: Opened, name: str) -> Any:
    """Return the target if it has a link: a GPU, or one machine of a cluster."""
    target = opened.prepared.target
    if target.processor == "cpu" and target.system_part is None:
        allowed = "left out on one machine without GPUs, which copies over no link; system= may be a cluster of them"
        raise ArgumentError("free", name, allowed)
    return target


def _link_bandwidth(opened: Opened, symbol: sympy.Symbol) -> float:
    target = _linked(opened, symbol.name)
    if target.system_part is not None:
        opened.of_system["link_bandwidth_bytes_per_s"] = symbol
    place = f"links/{target.link.family.stem}/"
    value = float(target.link.effective_bandwidth_bytes_per_s)
    constants = [name for name in opened.prepared.constant_names if name.startswith(place)]
    for name in constants:  # pageable copies keep their share of the bandwidth
        opened.factors[name] = opened.factor_of(name, symbol) * symbol / value
    return value


def _link_latency(opened: Opened, symbol: sympy.Symbol) -> float:
    target = copy.copy(_linked(opened, symbol.name))
    if target.system_part is None:
        target.copy_latency_s = symbol
        opened.prepared = replace(opened.prepared, target=target)
    else:
        opened.of_system["link_latency_s"] = symbol
    return float(target.link.latency_s)


def _workers(opened: Opened, symbol: sympy.Symbol) -> float:
    opened.ranges["workers"] = Range(0.0, most_workers(opened.job.asked), "the devices of the system")
    opened.of_system["workers"] = symbol
    return float(opened.prepared.worker_count)


FREE: Final[Mapping[str, Free]] = {
    "batch_size": Free("N", "samples", "samples per worker and step", _batch_size, whole=True),
    "workers": Free("p", "1", "workers, up to the devices of the system", _workers, whole=True),
    "peak_flop_per_s": Free("F", "FLOP/s", "peak rate of the data type", _peak),
    "clock_hz": Free("f", "Hz", "base clock, with which all clocks of a CPU rise", _clock),
    "memory_bandwidth_bytes_per_s": Free("B", "B/s", "peak bandwidth of the device's memory", _memory_bandwidth),
    "launch_latency_s": Free(r"\tau", "s", "time of a kernel launch", _launch_latency),
    "link_bandwidth_bytes_per_s": Free(
        "L", "B/s", "what large copies reach over the link of the device or CPU machine, per direction", _link_bandwidth
    ),
    "link_latency_s": Free(
        r"\ell", "s", "time of an empty copy over the link of the device or CPU machine", _link_latency
    ),
}
"""Numbers that may be free under a short name; constants of files go by their full names."""


NOT_THE_FIELD: Final[Mapping[str, str]] = {
    "clock_base_ghz": "clock_hz, which scales all clocks of a CPU; a step hardly depends on this field alone"
}
"""Constants whose factor affects more than the file's field -> the alternative."""


def open_up(opened: Opened, free: Iterable[Any]) -> Opened:
    """Replace numbers by symbols."""
    prepared = opened.prepared
    for number in free:
        stated = number.name if isinstance(number, sympy.Symbol) else str(number)
        known = FREE.get(stated)
        name = stated if known else _constant_name(stated, prepared)
        if name in opened.symbols:
            raise ArgumentError("free", stated, "a list without repeats")
        whole = bool(known and known.whole)
        symbol = (
            number if isinstance(number, sympy.Symbol) else sympy.Symbol(name, positive=True, integer=whole or None)
        )
        opened.stated[name] = known.put(opened, symbol) if known else _constant(opened, name, symbol)
        opened.symbols[name] = symbol
    if opened.of_system:
        opened.system = OpenSystem(opened.job, prepared, opened.of_system)
        opened.prepared = replace(opened.system.prepared(), batch_size=opened.prepared.batch_size)
    return opened


def _constant_name(stated: str, prepared: Prepared) -> str:
    """Return the full name of a constant; the last part is enough if it is unique."""
    names = prepared.constant_names
    if stated in names:
        return stated
    ending = [name for name in names if name.rsplit(".", 1)[-1] == stated or name.endswith(f"/{stated}")]
    if len(ending) == 1:
        return ending[0]
    if ending:
        raise ArgumentError("free", stated, f"a full name: {' or '.join(ending)}")
    known = (*FREE, *names)
    raise UnknownNameError(kind="free symbol", name=stated, known=known if nearest_match(stated, known) else FREE)


def _constant(opened: Opened, name: str, symbol: sympy.Symbol) -> float:
    prepared = opened.prepared
    device: Any = prepared.target.processor_spec
    if (field := name.rsplit("/", 1)[-1]) in NOT_THE_FIELD:
        raise ArgumentError("free", name, NOT_THE_FIELD[field])
    opened.factor_of(name, symbol)
    if ".".join(name.split(".")[:-1]) == f"devices/{device.stem}/peak_tflop_per_s":
        _limit_peak(opened, name, name.rsplit(".", 1)[-1], unit=TERA)
    constant = stated_constant(name, prepared.specs, dtype=prepared.dtype)
    if constant is None or isinstance(constant.value, tuple):
        raise ArgumentError("free", name, "a single number; this constant is a list")
    if not constant.value or name.endswith(".overlap_exponent"):
        allowed = "a constant that is neither 0 nor an exponent, because the symbol scales the stated value"
        raise ArgumentError("free", name, allowed)
    return opened.scale(name, symbol, float(constant.value))


def refuse_fractions(opened: Opened, values: Mapping[str, Any]) -> None:
    """Reject fractional counts, and mini-batches that micro-batches do not divide."""
    for name, value in values.items():
        unit = opened.unit_of(name)
        if unit and np.any(np.mod(value, unit) != 0):
            few = "whole numbers"
            several = f"multiples of {unit}, the micro-batches of a step"
            between = "elasticities() and point() also take values between them"
            raise ArgumentError(name, value, f"{few if unit == 1 else several}; {between}")


def words_of(name: str) -> str:
    """Return the meaning of a symbol in words."""
    return FREE[name].meaning if name in FREE else name


def latex_of(name: str) -> str:
    """Return a symbol in LaTeX: its letter, else the last part of its name."""
    if name in FREE:
        return FREE[name].latex
    last = name.rsplit(".", 1)[-1].replace("_", r"\_")
    return rf"\mathrm{{{last}}}"


def known_symbol(formula: Formula, symbol: str | sympy.Symbol) -> str:
    """Return the name of a free symbol, given by name or as the symbol itself."""
    text = str(plain(symbol)) if isinstance(symbol, str) or is_symbolic(symbol) else None
    for name, known in formula.symbols.items():
        if text in (name, known.name):
            return name
    raise UnknownNameError(kind="free symbol of this formula", name=symbol, known=tuple(formula.symbols))


def by_names(at: Mapping[Any, Any] | None) -> Mapping[Any, Any]:
    """Return the values of a point; empty for None."""
    if not isinstance(at, Mapping | None):
        raise ArgumentError("at", at, "values by names of symbols, e.g. {'batch_size': 64}")
    return at or {}


def common_shape(point: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape to which the values of a point broadcast. [1]"""
    shapes = {name: np.shape(value) for name, value in point.items()}
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        raise ArgumentError(
            "values", f"of shapes {shapes}", "numbers, and arrays that broadcast to one shape"
        ) from None


def checked_point(formula: Formula, at: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Return the values of a point, as floats, by names of symbols; each must be above zero."""
    point = {}
    for stated, value in by_names(at).items():
        name = known_symbol(formula, stated)
        try:
            numbers = np.array(np.nan) if is_huge(value) else np.asarray(value, dtype=float)
        except (TypeError, ValueError, OverflowError):
            numbers = np.array(np.nan)
        if not (np.isfinite(numbers) & (numbers > 0)).all():
            raise ArgumentError(name, value, "a finite number above 0")
        limits = formula.opened.ranges.get(name)
        if limits is not None and not limits.holds(numbers):
            raise ArgumentError(name, value, limits.allowed)
        point[name] = numbers if numbers.ndim else float(numbers)
    return point


@dataclass(frozen=True, slots=True, kw_only=True)
class NoClosedForm:
    """A case without a closed form."""

    argument: str
    what: str
    why: str
    instead: str
    applies: Callable[[set[str], Arguments], bool]


def _of_a_system(free: set[str], arguments: Arguments) -> bool:
    return "workers" in free or (bool(LINKS & free) and arguments.get("system") is not None)


LINKS: Final = frozenset({"link_bandwidth_bytes_per_s", "link_latency_s"})
"""Symbols of the links of a worker's device."""
NO_CLOSED_FORM: Final = (
    NoClosedForm(
        argument="sync",
        what="sync_s, exposed_sync_s, straggler_s and step_s of asynchronous workers whose number or links are free",
        why="their waits for the server are a recursion over the workers of a closed queueing network, and depend on "
        "the busiest link",
        instead="a synchronous strategy, unless workers and links are fixed",
        applies=lambda free, arguments: arguments.get("sync") in SCHEMES and _of_a_system(free, arguments),
    ),
    NoClosedForm(
        argument="straggler",
        what="stragglers among workers whose number is free",
        why="the expected slowest of n is an order statistic, an integral for each n",
        instead="None with workers free; a fixed number of workers allows it",
        applies=lambda free, arguments: "workers" in free and arguments.get("straggler") is not None,
    ),
    NoClosedForm(
        argument="global_batch_size",
        what="a batch shared among workers whose number is free",
        why="the kernels change with the number of workers, and only some numbers divide the batch",
        instead="batch_size, per worker, with workers free",
        applies=lambda free, arguments: "workers" in free and arguments.get("global_batch_size") is not None,
    ),
    NoClosedForm(
        argument="bucket_bytes",
        what="messages merged for the shortest step",
        why="a search decides which gradients share a message, again at every value",
        instead="a size in bytes, 0 or infinity",
        applies=lambda free, arguments: arguments.get("bucket_bytes") == MERGED,
    ),
    NoClosedForm(
        argument="input_variation",
        what="varying times to prepare mini-batches",
        why="the mean of the longest of several random times is an order statistic",
        instead="0 in a formula",
        applies=lambda free, arguments: bool(arguments.get("input_variation")),
    ),
    NoClosedForm(
        argument="dataset",
        what="reading and decoding with workers or links of a system free",
        why="storage, links and cores are shared host by host, which no single expression covers",
        instead="None with workers or a system's links free",
        applies=lambda free, arguments: arguments.get("dataset") is not None and _of_a_system(free, arguments),
    ),
)
"""All cases without a closed form."""
MEASURED: Final = "a device of the catalogue: kernels of a measured machine are interpolated in tables"
OF_EXCHANGES: Final = frozenset({"workers"})
"""Symbols that enter no kernel, so that a measured machine in a system has a closed form in them too."""


def refuse_open_ended(free: Iterable[Any], arguments: Arguments, *, prepared: Prepared | None = None) -> None:
    """Reject anything that has no closed form."""
    names = {str(symbol) for symbol in free}
    for limit in NO_CLOSED_FORM:
        if limit.applies(names, arguments):
            allowed = f"{limit.instead}; no closed form exists for {limit.what}: {limit.why}"
            raise ArgumentError(limit.argument, arguments.get(limit.argument), allowed)
    if prepared is not None and names - OF_EXCHANGES and prepared.target.measured is not None:
        raise ArgumentError("device", prepared.target.name, MEASURED)
