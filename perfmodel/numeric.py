"""Elementary functions that serve float, ndarray and sympy alike, so that a formula is written once.

Floats and numeric arrays go straight to numpy. Symbols, and object arrays that hold symbols, stay exact:
``maximum``, ``minimum``, ``ceil`` and ``where`` return unevaluated sympy nodes, because evaluating nested
Min/Max eagerly makes sympy compare every pair of branches and a whole network's expression never finishes.
sympy itself is imported only when a symbol is met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from math import ceil as ceil_of_float
from math import isfinite, isqrt
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from perfmodel.symbolic import NUMBER_TYPES, Quantity, elementwise, exact, expression_of, is_symbolic, named

if TYPE_CHECKING:
    from numpy.typing import NDArray


NO_NUMBERS: Final = (bool, np.timedelta64)
"""Types that are numbers in Python and numpy, but not to a user. [-]"""

PLAIN_TYPES: Final = frozenset({float, int})
"""Types of Python's numbers. [-]"""

Fields = TypeVar("Fields", bound="NamedTuple")


def is_real(value: object) -> bool:
    """Tell whether a value is one real number, of Python or numpy; Booleans and time spans are none.

    >>> is_real(2), is_real(np.float32(0.5)), is_real(True), is_real(np.timedelta64(4, "s"))
    (True, True, False, False)
    """
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, NO_NUMBERS)


def expanded(value: Quantity) -> Quantity:
    """Expand a symbolic count to a sum of products and collect like terms; return anything else unchanged.

    >>> import sympy
    >>> size = sympy.Symbol("S")
    >>> expanded(size * (size + 1) - size), expanded(3.0)
    (S**2, 3.0)
    """
    expand = getattr(value, "expand", None)
    return value if expand is None else expand()


def _unevaluated_extreme(name: str) -> Callable[[Any, Any], Any]:
    import sympy

    node = getattr(sympy, name)
    pick = max if name == "Max" else min
    neutral = -sympy.oo if name == "Max" else sympy.oo

    def extreme(first: Any, second: Any) -> Any:
        first, second = expression_of(first), expression_of(second)
        if first.is_number and second.is_number:
            return pick(first, second)
        if first == second or second == neutral:
            return first
        if first == neutral:
            return second
        return node(first, second, evaluate=False)

    return extreme


def maximum(first: Quantity, second: Quantity) -> Quantity:
    """Return the larger of two quantities, element by element."""
    if type(first) is float is type(second):  # a tenth of numpy's time for two numbers
        return second if first < second or second != second else first
    if is_symbolic(first, second):
        return elementwise(_unevaluated_extreme("Max"), first, second)
    return np.maximum(first, second)


def minimum(first: Quantity, second: Quantity) -> Quantity:
    """Return the smaller of two quantities, element by element."""
    if type(first) is float is type(second):
        return second if second < first or second != second else first
    if is_symbolic(first, second):
        return elementwise(_unevaluated_extreme("Min"), first, second)
    return np.minimum(first, second)


def plain(value: Quantity) -> Quantity:
    """Convert a numpy number to a Python number; arrays and expressions are returned unchanged.

    >>> plain(np.float64(2.0)), plain(np.int64(3)), plain(4.0)
    (2.0, 3, 4.0)
    """
    return value.item() if isinstance(value, np.generic) else value


def plain_fields(of: Fields) -> Fields:
    """Convert the numpy numbers in a named tuple to Python numbers.

    >>> from collections import namedtuple
    >>> plain_fields(namedtuple("Pair", "first second")(np.float64(2.0), 3))
    Pair(first=2.0, second=3)
    """
    return of if PLAIN_TYPES.issuperset(map(type, of)) else of._make(map(plain, of))


def largest(values: Iterable[Quantity]) -> Quantity:
    """Return the largest of some quantities; for symbols, a maximum of those that may be the largest.

    >>> import sympy
    >>> time = sympy.Symbol("t", positive=True)
    >>> largest([1.0, 3.0, 2.0]), largest([time, 2 * time + 1])
    (3.0, 2*t + 1)
    """
    values = list(values)
    if not is_symbolic(*values):
        return max(values)
    return reduce(maximum, [value for (value,) in undominated((value,) for value in values)])


def undominated(rows: Iterable[tuple[Quantity, ...]]) -> list[tuple[Quantity, ...]]:
    """Return the rows that no other row is certain to equal or exceed in every column.

    >>> undominated([(1.0, 2.0), (2.0, 2.0), (0.0, 3.0)])
    [(2.0, 2.0), (0.0, 3.0)]
    """

    def is_below(row: tuple[Quantity, ...], other: tuple[Quantity, ...]) -> bool:
        return all(never_exceeds(*ends) for ends in zip(row, other, strict=True))

    kept: list[tuple[Quantity, ...]] = []
    for row in rows:
        if not any(is_below(row, other) for other in kept):
            kept = [*(other for other in kept if not is_below(other, row)), row]
    return kept


def never_exceeds(first: Quantity, second: Quantity) -> bool:
    """Tell whether a quantity is certainly at most another; a maximum is compared operand by operand.

    >>> import sympy
    >>> time = sympy.Symbol("t", positive=True)
    >>> never_exceeds(time, maximum(time, 2.0)), never_exceeds(time, 2.0)
    (True, False)
    """
    if not is_symbolic(first, second):
        return bool(first <= second)
    return all(any((high - low).is_nonnegative for high in _of_max(second)) for low in _of_max(first))


def _of_max(value: Any) -> list[Any]:
    """Return the operands of a maximum, including those of nested maxima."""
    import sympy

    value = expression_of(value)
    return [term for inner in value.args for term in _of_max(inner)] if isinstance(value, sympy.Max) else [value]


def _scalar_ceiling(value: Any) -> Any:
    import sympy

    value = expression_of(value)
    if value.is_number or value.is_integer:
        return sympy.ceiling(value)
    return sympy.ceiling(value, evaluate=False)


def ceil(value: Quantity) -> Quantity:
    """Round up to the next integer, element by element."""
    if type(value) is float and isfinite(value):
        return float(ceil_of_float(value))
    if is_symbolic(value):
        return elementwise(_scalar_ceiling, value)
    return np.ceil(value)


def ceil_ratio(numerator: Quantity, denominator: Quantity) -> Quantity:
    """Divide and round up, element by element; ratios of symbols stay exact, so that a whole one is not rounded up.

    >>> float(ceil_ratio(96 * 7.0, 96.0))
    7.0
    """
    if type(numerator) is float is type(denominator):
        return -(-numerator // denominator)  # a third of the time of rounding the ratio
    if not is_symbolic(numerator, denominator):
        ratio = numerator / denominator
        return np.ceil(ratio, out=ratio) if type(ratio) is np.ndarray else ceil(ratio)
    return elementwise(_exact_ceil_ratio, numerator, denominator)


def _exact_ceil_ratio(numerator: Any, denominator: Any) -> Any:
    import sympy

    def as_fractions(value: Any) -> Any:
        value = expression_of(value)
        return value.xreplace({number: exact(float(number)) for number in value.atoms(sympy.Float)})

    return _scalar_ceiling(as_fractions(numerator) / as_fractions(denominator))


def exponential(value: Quantity) -> Quantity:
    """Return e to a power, element by element."""
    return _by_name("exp", value)


def logarithm(value: Quantity) -> Quantity:
    """Return the natural logarithm, element by element."""
    return _by_name("log", value)


def _by_name(name: str, value: Quantity) -> Quantity:
    """Apply a function that numpy and sympy know by one name."""
    if not is_symbolic(value):
        return getattr(np, name)(value)

    def of_symbol(argument: Any) -> Any:
        import sympy

        return getattr(sympy, name)(argument)

    return elementwise(of_symbol, value)


def exponential_less_one(value: Quantity) -> Quantity:
    """Return e to a power minus one, element by element; small powers keep all their digits.

    >>> float(exponential_less_one(1e-12))
    1e-12
    """
    return exponential(value) - 1 if is_symbolic(value) else np.expm1(value)


FACTORS_TRIED: Final = 1 << 20
"""Factors up to which divisors are found by trying; sympy finds those of larger numbers. [1]"""


def divisors(number: int, *, most: int) -> tuple[int, ...]:
    """Divisors of a number up to a limit, without a list of all numbers below it."""
    root = isqrt(number)
    if min(root, most) > FACTORS_TRIED:
        from sympy import divisors as all_divisors

        return tuple(divisor for divisor in all_divisors(number) if divisor <= most)
    small = [tried for tried in range(1, min(root, most) + 1) if number % tried == 0]
    large = [number // divisor for divisor in reversed(small) if divisor * divisor != number] if most > root else []
    return (*small, *(divisor for divisor in large if divisor <= most))


def share_of(total: Quantity, parts: Quantity) -> Quantity:
    """Divide a count into equal parts without a remainder, e.g. channels into groups; exact for symbols too."""
    return total / parts if is_symbolic(total, parts) else total // parts


def where(condition: Quantity, if_true: Quantity, if_false: Quantity) -> Quantity:
    """Choose by a condition, element by element; a symbolic condition becomes a Piecewise.

    Parameters
    ----------
    condition : bool, ndarray or sympy.Boolean
        Condition. [-]
    if_true, if_false : float, ndarray or sympy.Expr
        Values to choose from. [any one unit]

    Returns
    -------
    float, ndarray or sympy.Expr
        In the unit of the two.

    Examples
    --------
    >>> float(where(True, 1.0, 2.0))
    1.0
    """
    if type(condition) is bool and type(if_true) is float is type(if_false):
        return if_true if condition else if_false
    if not is_symbolic(condition, if_true, if_false):
        return np.where(condition, if_true, if_false)

    def choose(test: Any, yes: Any, no: Any) -> Any:
        import sympy

        if yes is no:
            return yes
        if test in (True, sympy.true) or (isinstance(test, np.bool_) and bool(test)):
            return yes
        if test in (False, sympy.false) or isinstance(test, np.bool_):
            return no
        return sympy.Piecewise((yes, test), (no, True), evaluate=False)

    return elementwise(choose, condition, if_true, if_false)


def geometric_sum(ratio: Quantity, count: Quantity) -> Quantity:
    r"""Return the sum of ``count`` powers of a ratio between 0 and 1; ``count`` need not be whole.

    .. math:: G(q, k) = \frac{1 - q^k}{1 - q}, \qquad G(1, k) = k

    >>> float(geometric_sum(0.5, 3)), float(geometric_sum(1.0, 3))
    (1.75, 3.0)
    """
    if is_symbolic(ratio, count):
        return where(exceeds(1, ratio), (1 - ratio**count) / (1 - ratio), count)
    inside = np.greater(ratio, 0) & np.less(ratio, 1)
    logarithm = np.log(np.where(inside, ratio, 0.5))
    # expm1, because both differences lose their digits if the ratio is close to 1
    total = np.expm1(count * logarithm) / np.expm1(logarithm)
    return np.where(inside, total, np.where(np.greater(ratio, 0), count, 1.0))


def exceeds(first: Quantity, second: Quantity) -> Quantity:
    """Tell whether the first quantity is larger than the second, element by element; symbols give a condition.

    A plain comparison of symbols would fail, because numpy asks each result for its truth value.
    """
    if type(first) is float is type(second) or not is_symbolic(first, second):
        return first > second
    return elementwise(_open_comparison, first, second)


def _open_comparison(first: Any, second: Any) -> Any:
    import sympy

    first, second = (
        named(side, "compared") if side.has(sympy.Piecewise) else side  # a choice inside a condition would be unfolded
        for side in (expression_of(first), expression_of(second))
    )
    # Evaluated, sympy would try to prove the sign of the difference, which takes seconds for a large expression.
    return sympy.Gt(first, second, evaluate=first.is_number and second.is_number)


def minimum_along_first_axis(values: NDArray[Any]) -> Quantity:
    """Return the minimum over the first axis: of numbers by numpy, of symbols as an unevaluated Min."""
    if values.dtype.hasobject:
        return reduce(minimum, list(values))
    return np.minimum.reduce(values, axis=0)


def minima_of_runs(values: NDArray[Any], starts: NDArray[np.intp]) -> NDArray[Any]:
    """Return the minimum of each run of rows, given where runs start; minima of symbols stay unevaluated.

    >>> minima_of_runs(np.array([3.0, 1.0, 2.0]), np.array([0, 2]))
    array([1., 2.])
    """
    if values.dtype.hasobject:
        return np.array([minimum_along_first_axis(run) for run in np.split(values, starts[1:])])
    return np.minimum.reduceat(values, starts, axis=0)


def total(values: Quantity) -> Quantity:
    """Return the sum over the first axis: of numbers by numpy, of symbols as one flat Add."""
    values = np.asarray(values)
    if not values.dtype.hasobject:
        return values.sum(axis=0)
    import sympy

    if values.ndim == 1:
        return sympy.Add(*[expression_of(value) for value in values])
    return np.array([total(column) for column in values.T], dtype=object)


def running_total(values: NDArray[Any]) -> Quantity:
    """Return the running sums over the first axis; each symbolic sum refers to the previous one by name.

    >>> running_total(np.array([1.0, 2.0]))
    array([1., 3.])
    """
    if not values.dtype.hasobject:
        return np.cumsum(values, axis=0)
    totals = values.copy()
    for place in range(1, len(totals)):
        totals[place] = named(totals[place - 1] + values[place], f"sum up to {place}")
    return totals


def first_array_length(values: Iterable[Quantity]) -> int | None:
    """Return the length of the first one-dimensional numeric array among quantities and mappings of quantities.

    >>> first_array_length([1.0, {"a": np.array([1.0, 2.0])}])
    2
    """
    for value in values:
        if type(value) in NUMBER_TYPES or (type(value) is dict and NUMBER_TYPES.issuperset(map(type, value.values()))):
            continue
        length = None
        if isinstance(value, np.ndarray):
            if value.ndim == 1 and value.dtype != object:
                length = len(value)
        elif isinstance(value, Mapping):
            length = first_array_length(value.values())
        if length is not None:
            return length
    return None
