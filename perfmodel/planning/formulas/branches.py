"""What a formula is at a point, while its branches count (no choice left in it), and as a symbol grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import sympy

from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.prediction.job.gradients import MERGED
from perfmodel.prediction.job.prepared import Prepared
from perfmodel.sync.asynchronous import SCHEMES

if TYPE_CHECKING:
    from perfmodel.planning.formulas.formula import Formula
    from perfmodel.planning.formulas.values import AtPoint

    Arguments = Mapping[str, Any]

SHOWN_TERMS: Final = 5
"""Terms of a sum that are shown. [1]"""
MOST_STEPS: Final = 24
"""Operations of the longest term that is shown. [1]"""
CANCELLING: Final = 1.5
"""Sum of the terms' magnitudes over their sum above which single terms mean nothing. [1]"""


def on_branch(point: AtPoint, expression: Any, *, only: sympy.Symbol | None = None) -> sympy.Expr:
    """Return an expression with every Max, Min and choice replaced by the branch that is active at a point."""
    expression = sympy.sympify(expression)
    point.value(expression)
    known: dict[Any, Any] = {}
    if only is not None:
        known = {symbol: sympy.Float(value) for symbol, value in point.at.items() if symbol != only}
    for name, each in point.definitions.needed_for([expression]).expressions.items():
        known[name] = _taken(point, each, known, keep_ceilings=only is None)
    found = _taken(point, expression, known, keep_ceilings=only is None)
    return sympy.expand(found, power_base=False, power_exp=False)


def _taken(point: AtPoint, node: Any, known: dict[Any, Any], *, keep_ceilings: bool) -> Any:
    if node not in known:
        rounded = isinstance(node, sympy.ceiling | sympy.floor)
        if node in point.taken:
            known[node] = _taken(point, point.taken[node].argument, known, keep_ceilings=keep_ceilings)
        elif not node.args:
            known[node] = node
        elif rounded and not keep_ceilings:
            known[node] = sympy.Float(point.value(node))
        else:
            arguments = [_taken(point, each, known, keep_ceilings=keep_ceilings) for each in node.args]
            known[node] = node.func(*arguments, evaluate=False) if rounded else node.func(*arguments)
    return known[node]


class Leading(NamedTuple):
    """The largest terms of a sum at a point."""

    terms: tuple[sympy.Expr, ...]
    others: int
    value_of_others: float


def leading_terms(point: AtPoint, expression: Any) -> Leading:
    """Return the largest terms of an expression at a point. [unit of the expression]"""
    value = point.value(sympy.sympify(expression))
    terms = sympy.Add.make_args(on_branch(point, expression))
    values = {term: float(term.xreplace(dict(point.at))) for term in terms}
    if sum(map(abs, values.values())) > CANCELLING * abs(value):
        return Leading((), len(terms), value)
    readable = [term for term in sorted(values, key=lambda term: -abs(values[term])) if term.count_ops() <= MOST_STEPS]
    shown = tuple(readable[:SHOWN_TERMS])
    return Leading(shown, len(terms) - len(shown), sum(values[term] for term in terms if term not in shown))


def known_symbol(formula: Formula, symbol: str | sympy.Symbol) -> str:
    """Return the name of a free symbol, given by name or as the symbol itself."""
    for name, each in formula.symbols.items():
        if symbol in (name, each) or str(symbol) == each.name:
            return name
    kind = "free symbol of this formula"
    raise UnknownNameError(kind, str(symbol), tuple(formula.symbols))


def by_names(at: Mapping[Any, Any] | None) -> Mapping[Any, Any]:
    """Return the values of a point; none for None."""
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
    """Return the values of a point by names of symbols; each must be above zero."""
    found = {}
    for given, value in by_names(at).items():
        name = known_symbol(formula, given)
        try:
            numbers = np.asarray(value, dtype=float)
        except (TypeError, ValueError):
            numbers = np.array(np.nan)
        if not (np.isfinite(numbers) & (numbers > 0)).all():
            raise ArgumentError(name, value, "finite numbers above 0")
        limits = formula.opened.ranges.get(name)
        if limits is not None and not limits.holds(numbers):
            raise ArgumentError(name, value, limits.allowed)
        found[name] = value
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class NoClosedForm:
    """A case without a closed form."""

    argument: str
    what: str
    why: str
    instead: str
    applies: Callable[[set[str], Arguments], bool]


def _has(argument: str, *values: object) -> Callable[[set[str], Arguments], bool]:
    return lambda free, given: given.get(argument) in values


def _of_a_system(free: set[str], given: Arguments) -> bool:
    return "workers" in free or (bool(LINKS & free) and given.get("system") is not None)


LINKS: Final = frozenset({"link_bandwidth_bytes_per_s", "link_latency_s"})
"""Symbols of the links of a worker's device."""
NO_CLOSED_FORM: Final = (
    NoClosedForm(
        argument="sync",
        what="sync_s, exposed_sync_s, straggler_s and step_s of asynchronous workers whose number or links are free",
        why="their waits for the server are a recursion over the workers of a closed queueing network, and depend on "
        "the busiest link",
        instead="a synchronous strategy, unless workers and links are fixed",
        applies=lambda free, given: given.get("sync") in SCHEMES and _of_a_system(free, given),
    ),
    NoClosedForm(
        argument="straggler",
        what="stragglers among workers whose number is free",
        why="the expected slowest of n is an order statistic, an integral for each n",
        instead="None with workers free; a fixed number of workers allows it",
        applies=lambda free, given: "workers" in free and given.get("straggler") is not None,
    ),
    NoClosedForm(
        argument="global_batch_size",
        what="a batch shared among workers whose number is free",
        why="the kernels change with the number of workers, and only some numbers divide the batch",
        instead="batch_size, per worker, with workers free",
        applies=lambda free, given: "workers" in free and given.get("global_batch_size") is not None,
    ),
    NoClosedForm(
        argument="bucket_bytes",
        what="messages merged for the shortest step",
        why="a search decides which gradients share a message, at every value anew",
        instead="a size in bytes, 0 or infinity",
        applies=_has("bucket_bytes", MERGED),
    ),
    NoClosedForm(
        argument="input_variation",
        what="varying times to prepare mini-batches",
        why="the mean of the longest of several random times is an order statistic",
        instead="0 in a formula",
        applies=lambda free, given: bool(given.get("input_variation")),
    ),
    NoClosedForm(
        argument="dataset",
        what="reading and decoding with workers or links of a system free",
        why="storage, links and cores are shared host by host, which no single expression covers",
        instead="None with workers or a system's links free",
        applies=lambda free, given: given.get("dataset") is not None and _of_a_system(free, given),
    ),
)
"""All cases without a closed form."""
MEASURED: Final = "a device of the catalogue: kernels of a measured machine are interpolated in tables"


def refuse_open_ended(free: Iterable[Any], arguments: Arguments, *, prepared: Prepared | None = None) -> None:
    """Refuse anything that has no closed form."""
    names = {str(each) for each in free}
    for limit in NO_CLOSED_FORM:
        if limit.applies(names, arguments):
            allowed = f"{limit.instead}; no closed form exists of {limit.what}: {limit.why}"
            raise ArgumentError(limit.argument, arguments.get(limit.argument), allowed)
    if prepared is not None and prepared.target.lowered_for != prepared.target.processor:
        raise ArgumentError("device", prepared.target.name, MEASURED)
