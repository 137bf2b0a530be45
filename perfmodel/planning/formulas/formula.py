"""formula(): the time of a step in closed form, with some numbers of the job and its hardware as symbols."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np
import sympy

from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError, check_known
from perfmodel.measurements.table import Run
from perfmodel.plain_text import plain
from perfmodel.planning.formulas.evaluation import AtPoint, Values
from perfmodel.planning.formulas.named_expressions import Definitions, on_branch, single_values
from perfmodel.planning.formulas.open_system import NoForm, most_workers
from perfmodel.planning.formulas.symbols import (
    FREE,
    Opened,
    by_names,
    checked_point,
    common_shape,
    open_up,
    refuse_fractions,
    refuse_open_ended,
    words_of,
)
from perfmodel.prediction.arguments.finite import checked_answer, overflow
from perfmodel.prediction.arguments.table import asked_of
from perfmodel.prediction.arguments.verbs import gated
from perfmodel.prediction.device.step_time import PARTS, TOTALS
from perfmodel.prediction.predict import predict
from perfmodel.presentation.results import Result
from perfmodel.presentation.tables import Table
from perfmodel.symbolic import expression_of, naming

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph
    from perfmodel.planning.formulas.formula_text import ActiveBranches
    from perfmodel.planning.formulas.solutions import Solution
    from perfmodel.prediction.arguments.typed import JobArguments
    from perfmodel.prediction.prediction import Prediction

MORE = 0.1
"""Factor on each number in the printed sentences. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elasticity:
    """Elasticity of a quantity with respect to one symbol."""

    symbol: str
    total: float
    by_part: Mapping[str, float]
    gain: float
    sentence: str


@dataclass(frozen=True, slots=True)
class Elasticities(Result, Mapping[str, Elasticity]):
    """Elasticities by symbol, the largest first; print as sentences. [1]"""

    rows: Table[Elasticity]

    def __getitem__(self, symbol: str) -> Elasticity:
        if symbol not in (symbols := tuple(self)):
            raise KeyError(symbol)
        return self.rows[symbols.index(symbol)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows.column("symbol"))

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        return "\n".join(row.sentence for row in self.rows)


def _gain(formula: Formula, point: AtPoint, name: str, value: float) -> float:
    """Return the relative fall of the quantity when one symbol rises by 10 %; NaN if it cannot. [1]"""
    more = {other: point.at[symbol] for other, symbol in formula.symbols.items()}
    more[name] *= 1 + MORE
    limits = formula.opened.ranges.get(name)
    if limits is not None and not limits.holds(np.array(more[name])):
        return math.nan
    return 1 - formula.point(more).value(formula.named_parts[formula.quantity]) / value if value else 0.0


def _sentence(formula: Formula, name: str, gain: float, shares: Mapping[str, float]) -> str:
    quantity = formula.quantity
    if math.isnan(gain):
        allowed = formula.opened.ranges[name].allowed
        if name in FREE and FREE[name].whole:
            return f"{name} cannot rise: {allowed}"
        return f"{MORE:.0%} more {words_of(name)} would run other kernels: it must be {allowed}"
    what = "" if quantity == "step_s" else f" of {quantity}"
    # a rate should rise, a time fall
    verb = "buys" if (gain <= 0 if quantity == "samples_per_s" else gain >= 0) else "costs"
    largest = max(shares, key=lambda part: abs(shares[part]), default=None)
    where = f", most of it in {largest}" if largest and quantity == "step_s" else ""
    return f"{MORE:.0%} more {words_of(name)} {verb} {abs(gain):.1%}{what}{where}"


QUANTITIES: Final = ("step_s", *PARTS, *TOTALS, "device_s", "samples_per_s")
"""Quantities that have formulas."""
Point = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class FormulaRow:
    """A quantity of the step at the stated numbers."""

    quantity: str
    unit: str
    value: float
    depends_on: tuple[str, ...]


def _unit_of(quantity: str) -> str:
    return "samples/s" if quantity == "samples_per_s" else "s"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Formula(Result):
    """A quantity of a step in closed form. Made by :func:`perfmodel.formula`.

    Parameters
    ----------
    quantity : str
        Name of the quantity. [-]
    prediction : Prediction
        Prediction with every symbol at its stated value. [-]
    opened : Opened
        The step with its symbols. [-]
    definitions : Definitions
        Named expressions; equal ones, e.g. of identical layers, only once. [-]
    named_parts : dict of str to sympy.Expr
        Every quantity of the step in names and symbols. [unit of each]
    """

    quantity: str
    prediction: Prediction
    opened: Opened
    definitions: Definitions
    named_parts: Mapping[str, sympy.Expr]

    @property
    def symbols(self) -> dict[str, sympy.Symbol]:
        """Free symbols by name."""
        return dict(self.opened.symbols)

    @property
    def stated(self) -> dict[str, float]:
        """Default value of each symbol. [unit of each]"""
        return dict(self.opened.stated)

    @property
    def unit(self) -> str:
        """Unit of the quantity."""
        return _unit_of(self.quantity)

    _DICT_KEYS = ("quantity", "unit", "stated", "rows")

    def _numbers(self) -> Iterator[tuple[str, float]]:
        """Yield nothing: a formula has values only at a point, where they are checked."""
        return iter(())

    @property
    def rows(self) -> Table[FormulaRow]:
        """Every quantity of the step at the stated numbers, and the free symbols that it depends on."""
        point, rows = self.stated_point, []
        for name, part in self.named_parts.items():
            needed = self.definitions.symbols_of([part])
            free = tuple(name for name, symbol in self.symbols.items() if symbol in needed)
            rows.append(FormulaRow(name, _unit_of(name), point.value(part), free))
        return Table(rows, title=repr(self))

    @derived_property
    def expression(self) -> sympy.Expr:
        """The quantity in free symbols alone, without named subexpressions; unevaluated and long. [``unit``]"""
        return self.definitions.written_out(self.named_parts[self.quantity])

    @derived_property
    def parts(self) -> dict[str, sympy.Expr]:
        """Every exclusive part of the step in free symbols alone; they sum to ``step_s``. [s]"""
        return {name: self.definitions.written_out(self.named_parts[name]) for name in PARTS}

    def of(self, quantity: str) -> Formula:
        """Return the formula of another quantity of the same step.

        Parameters
        ----------
        quantity : str
            ``step_s``, one of its parts or totals, ``device_s`` or ``samples_per_s``. [-]

        Returns
        -------
        Formula
            With the same symbols. [-]
        """
        return replace(self, quantity=known_quantity(quantity))

    def lambdify(self) -> Callable[..., Any]:
        """Return a numpy function of the symbols, in the order of ``symbols``, by position or by name.

        Returns
        -------
        callable
            Call it with numbers or arrays that broadcast [unit of each symbol]; symbols left out take their stated
            values. Workers and samples must be whole. Gives the quantity [``unit``], of the broadcast shape.
        """
        return self.__call__

    @derived_property
    def _function(self) -> Callable[..., Any]:
        return Values(self.definitions, self.opened.symbols.values(), [self.named_parts[self.quantity]])

    def __call__(self, *values: Any, **by_name: Any) -> Any:
        """Return the quantity at values of symbols, by position or by name; see ``lambdify``. [``unit``]"""
        names = list(self.symbols)
        if len(values) > len(names):
            raise ArgumentError("values", len(values), f"at most {len(names)}: {', '.join(names)}")
        point = checked_point(self, dict(zip(names, values, strict=False)))
        for name, value in checked_point(self, by_name).items():
            if name in point:
                raise ArgumentError(name, value, "must not be given both by position and by name")
            point[name] = value
        refuse_fractions(self.opened, point)
        merged = {name: point.get(name, self.stated[name]) for name in names}
        shape = common_shape(merged)
        numbers = [np.asarray(value, dtype=float) for value in merged.values()]
        with np.errstate(all="ignore"):  # both sides of a choice are computed
            (result,) = self._function(*numbers)
        if not np.isfinite(result).all():
            raise overflow(self.quantity, float(np.ravel(result)[~np.isfinite(np.ravel(result))][0]), point or merged)
        return np.broadcast_to(np.asarray(result, dtype=float), shape).copy() if shape else float(result)

    def point(self, at: Point | None = None) -> AtPoint:
        """Return values, derivatives and active branches at a point; symbols left out have their stated values."""
        numbers = single_values(checked_point(self, at))
        merged = self.stated | numbers
        point = AtPoint(self.definitions, {self.symbols[name]: value for name, value in merged.items()})
        checked_answer(point.value(self.named_parts[self.quantity]), numbers or merged, quantity=self.quantity)
        return point

    @derived_property
    def stated_point(self) -> AtPoint:
        """Values, derivatives and active branches at the stated values, which its texts share."""
        return self.point()

    def on_branch(self, at: Point | None = None) -> sympy.Expr:
        """Return the quantity with every minimum, maximum and choice replaced by the branch that is active at a point.

        Parameters
        ----------
        at : mapping of str to float or None
            Values of symbols by name; the others have their stated values. [unit of each]

        Returns
        -------
        sympy.Expr
            A sum of products of free symbols and ceilings, e.g. c N/B for passes over memory, with N the
            batch size and B the memory bandwidth; long powers, as of bounded staleness, multiply sums. [``unit``]
        """
        point = self.stated_point if at is None else self.point(at)
        return on_branch(point, self.named_parts[self.quantity])

    def active(self, at: Point | None = None) -> ActiveBranches:
        """Return the active branch of each Max, Min and choice at a point, part by part.

        Parameters
        ----------
        at : mapping of str to float or None
            Values of symbols by name; the others have their stated values. [unit of each]

        Returns
        -------
        ActiveBranches
            Rows that print as words.
        """
        from perfmodel.planning.formulas.formula_text import active_branches

        return active_branches(self, self.point(at))

    def elasticities(self, at: Point | None = None) -> Elasticities:
        """Return the percentage change of the quantity and each part if a symbol rises by one per cent.

        Parameters
        ----------
        at : mapping of str to float or None
            Values of symbols by name; the others have their stated values. [unit of each]

        Returns
        -------
        Elasticities
            d log T / d log x of each symbol, with the contribution of each part. [1]
        """
        point, wanted = self.point(at), self.named_parts[self.quantity]
        value, step_s = point.value(wanted), point.value(self.named_parts["step_s"])
        slopes = point.gradient(wanted)
        slopes_of_parts = {part: point.gradient(self.named_parts[part]) for part in PARTS}
        rows = []
        for name, symbol in self.symbols.items():
            number = point.at[symbol]
            gain = _gain(self, point, name, value)
            shares = {part: number * slope[symbol] / step_s for part, slope in slopes_of_parts.items() if slope[symbol]}
            checked_answer(number * slopes[symbol], by_names(at) or self.stated, quantity="its elasticity")
            rows.append(
                Elasticity(
                    symbol=name,
                    total=number * slopes[symbol] / value if value else 0.0,
                    by_part=shares,
                    gain=gain,
                    sentence=_sentence(self, name, gain, shares),
                )
            )
        return Elasticities(Table(sorted(rows, key=lambda row: -abs(row.total)), row_type=Elasticity))

    def solve_for(
        self,
        symbol: str | sympy.Symbol,
        target: float,
        *,
        at: Point | None = None,
        between: tuple[float, float] | None = None,
    ) -> Solution:
        """Return the value of a symbol at which the quantity reaches a target.

        Parameters
        ----------
        symbol : str or sympy.Symbol
            Symbol to solve for. [-]
        target : float
            Target value of the quantity. [``unit``]
        at : mapping of str to float or None
            Values of the other symbols; those not given have their stated values. [unit of each]
        between : tuple of float or None
            Search range; None for a thousandth to a thousand times the stated value; counts start at 1. [unit of
            the symbol]

        Returns
        -------
        Solution
            The smallest such value, in closed form if one branch is active around it, and the branches. If no whole
            number reaches the target exactly, the first one past it. ``proven`` tells whether it is proven to be the
            smallest.

        Raises
        ------
        ArgumentError
            If the quantity does not reach the target in the range; states the range of its values.
        """
        from perfmodel.planning.formulas.solutions import solved

        return solved(self, None, symbol, target=target, at=at, between=between)

    def crossover(
        self,
        first: str | Formula,
        second: str | Formula,
        *,
        symbol: str | sympy.Symbol | None = None,
        at: Point | None = None,
        between: tuple[float, float] | None = None,
    ) -> Solution:
        """Return the value of a symbol at which the larger of two quantities stops being larger.

        Parameters
        ----------
        first, second : str or Formula
            Quantities of this step, or formulas of other steps in the same symbol. [-]
        symbol : str, sympy.Symbol or None
            Symbol to solve for; None if only one is free. [-]
        at : mapping of str to float or None
            Values of the other symbols. [unit of each]
        between : tuple of float or None
            Search range, as for ``solve_for``. [unit of the symbol]

        Returns
        -------
        Solution
            The smallest such value. If they are equal on a stretch, ``equal_between`` has its ends; if it begins at
            the lower end, the value is the first from which one is larger. [unit of the symbol]

        Raises
        ------
        ArgumentError
            If one of them is larger over the whole range.
        """
        from perfmodel.planning.formulas.solutions import solved

        sides = [side if isinstance(side, Formula) else self.of(side) for side in (first, second)]
        if symbol is None and len(self.symbols) != 1:
            raise ArgumentError("symbol", None, f"one of {', '.join(self.symbols)}")
        return solved(sides[0], sides[1], symbol or next(iter(self.symbols)), target=0.0, at=at, between=between)

    def __repr__(self) -> str:
        free = ", ".join(self.symbols)
        return f"<Formula {self.quantity} of {self.prediction.subject} on {self.prediction.target} in {free}>"

    def __str__(self) -> str:
        from perfmodel.planning.formulas.formula_text import plain_text

        return plain_text(self)

    def _repr_html_(self) -> str:
        return (
            f"<p>{html.escape(self._repr_latex_())}</p>"  # notebooks prefer HTML to LaTeX, and typeset the LaTeX in it
        )

    def _repr_latex_(self) -> str:
        from perfmodel.planning.formulas.formula_text import latex

        return latex(self)


def known_quantity(quantity: str) -> str:
    """Return the name of a quantity that has formulas."""
    check_known("quantity of a formula", quantity, QUANTITIES)
    return quantity


@gated
def formula(
    quantity: str = "step_s",
    *,
    graph: LayerGraph | Run | None = None,
    free: Iterable[str | sympy.Symbol] | str = (),
    **arguments: Unpack[JobArguments],
) -> Formula:
    """Return a quantity of a step in closed form, with some numbers of the job and its hardware as symbols.

    Equal to :func:`perfmodel.predict` for any values of the symbols. Maxima, minima, ceilings and choices are kept. A
    pipeline keeps the stage boundaries of the values given here, which may not be the best elsewhere.

    Parameters
    ----------
    quantity : str
        ``step_s``, one of its exclusive parts (``compute_s``, ``exposed_sync_s`` ...), a total (``sync_s`` ...),
        ``device_s`` (the step without waiting for copies and input) or ``samples_per_s``. [-]
    graph : LayerGraph or Run
        As for ``predict``; one must be given. [-]
    free : iterable of str or sympy.Symbol
        Symbolic numbers, in base units: ``batch_size``, ``workers``, ``peak_flop_per_s``, ``clock_hz`` (of a CPU),
        ``memory_bandwidth_bytes_per_s``, ``launch_latency_s``, ``link_bandwidth_bytes_per_s``, ``link_latency_s``, or
        the name of a constant of a file, in the unit of that file, e.g. ``libraries/cublas_7_5/pascal.gemm`` or just
        ``gemm``. A sympy symbol is used unchanged. [-]
    **arguments : object
        All other arguments of ``predict``; for a free symbol, the argument is its default value. ``batch_size`` is one
        sample of each micro-batch if it is free and left out. [-]

    Returns
    -------
    Formula
        With ``expression``, ``parts``, ``lambdify()``, ``solve_for()``, ``crossover()``, ``active()`` and
        ``elasticities()``.

    Raises
    ------
    ArgumentError
        If a value is not allowed, or there is no closed form; says for what, and why.
    UnknownNameError
        If a name is unknown; names the nearest.

    Examples
    --------
    >>> import perfmodel as pm
    >>> f = pm.formula(graph=pm.zoo.mnist_classifier(), device="gtx_1080", batch_size=64,
    ...     free=["batch_size", "memory_bandwidth_bytes_per_s"])
    >>> p = pm.predict(pm.zoo.mnist_classifier(), device="gtx_1080", batch_size=512)
    >>> abs(f(batch_size=512) / p.step_s - 1) < 1e-9
    True
    """
    quantity, names = known_quantity(quantity), [free] if isinstance(free, str | sympy.Symbol) else free
    names = list(map(plain, names)) if isinstance(names, Iterable) else []
    if not names:
        raise ArgumentError("free", free, "at least one symbol; predict() takes numbers alone")
    if graph is None:
        raise ArgumentError("graph", graph, "a LayerGraph (see pm.zoo) or a Run of a measurement table")
    if "batch_size" in map(str, names) and not {"batch_size", "global_batch_size"} & set(arguments):
        arguments["batch_size"] = graph.batch_size if isinstance(graph, Run) else _one_sample_of_each_part(arguments)
    refuse_open_ended(names, asked_of(arguments))
    if "workers" in map(str, names) and "workers" not in arguments:
        arguments["workers"] = most_workers(arguments)
    prediction = predict(graph, **arguments)
    basis = prediction.basis
    assert basis is not None
    assert basis.job is not None
    refuse_open_ended(names, arguments, prepared=basis.prepared)
    opened = open_up(Opened(basis.prepared, dict(basis.factors), basis.job), names)
    definitions = Definitions()
    named_parts = _composed(opened, definitions)
    return Formula(
        quantity=quantity,
        prediction=prediction,
        opened=opened,
        definitions=definitions,
        named_parts=named_parts,
    )


def _one_sample_of_each_part(arguments: Mapping[str, Any]) -> int:
    """Return the smallest batch that micro-batches can be cut from, where they are numbers. [samples]"""
    counts = [arguments.get(name, 1) for name in ("micro_batches", "accumulation_steps")]
    return math.prod(count if isinstance(count, int) and count > 0 else 1 for count in counts)


def _composed(opened: Opened, definitions: Definitions) -> dict[str, sympy.Expr]:
    """Return every quantity of a step in names and symbols, checked numerically where a system's numbers are free."""
    with naming(definitions):
        try:
            step = opened.prepared.step(opened.factors).parts
        except NoForm:
            assert opened.system is not None
            raise opened.system.refusal from None
        composed = {name: expression_of(getattr(step, name)) for name in (*PARTS, *TOTALS)}
        total = sympy.Add(*(definitions(composed[name], name, 0) for name in PARTS))
        waits = composed["exposed_transfer_s"] + composed["input_wait_s"]
        samples = opened.symbols.get("workers", opened.prepared.counted_workers) * opened.prepared.batch_size
        rate = samples / definitions(total, "step_s", 0)
    if opened.system is not None:
        at = {symbol: opened.stated[name] for name, symbol in opened.symbols.items()}
        opened.system.hold(definitions, composed, factors=opened.factors, at=at)
    return composed | {"step_s": total, "device_s": total - waits, "samples_per_s": rate}
