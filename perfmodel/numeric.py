"""Elementary functions that serve float, ndarray and sympy alike, so that a formula is written once.

Floats and numeric arrays go straight to numpy. Symbols, and object arrays that hold symbols, stay exact:
``maximum``, ``minimum``, ``ceil`` and ``where`` return unevaluated sympy nodes, because evaluating nested
Min/Max eagerly makes sympy compare every pair of branches and a whole network's expression never finishes.
sympy itself is imported only when a symbol is met.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Quantity = Any
"""A float, an ndarray, a sympy expression, or an object array of sympy expressions."""

_NUMBERS = frozenset({float, int, bool, np.float64, np.bool_})
"""Types that most operands have, none of them a symbol."""


def is_symbolic(*operands: Quantity) -> bool:
    """Tell whether any operand is a sympy expression or an object array.

    Examples
    --------
    >>> is_symbolic(1.0, 2.0)
    False
    """
    for operand in operands:
        kind = type(operand)
        if kind is np.ndarray:
            if operand.dtype.hasobject:
                return True
        elif kind not in _NUMBERS and _is_expression(operand):
            return True
    return False


def _is_expression(operand: Any) -> bool:
    if isinstance(operand, np.ndarray):
        return bool(operand.dtype.hasobject)
    sympy = sys.modules.get("sympy")
    return sympy is not None and isinstance(operand, sympy.Basic)


def expanded(value: Quantity) -> Quantity:
    """Return a symbolic count as a sum of products, in which like terms have met; anything else as it is.

    Examples
    --------
    >>> import sympy
    >>> size = sympy.Symbol("S")
    >>> expanded(size * (size + 1) - size), expanded(3.0)
    (S**2, 3.0)
    """
    expand = getattr(value, "expand", None)
    return value if expand is None else expand()


def _elementwise(function: Callable[..., Any], *operands: Quantity) -> Quantity:
    """Apply a scalar sympy function over operands, broadcasting where any of them is an array."""
    if any(isinstance(operand, np.ndarray) for operand in operands):
        return np.frompyfunc(function, len(operands), 1)(*operands)
    return function(*operands)


def _unevaluated_extreme(name: str) -> Callable[[Any, Any], Any]:
    import sympy

    node = getattr(sympy, name)
    pick = max if name == "Max" else min
    neutral = -sympy.oo if name == "Max" else sympy.oo

    def extreme(first: Any, second: Any) -> Any:
        first, second = sympy.sympify(first), sympy.sympify(second)
        if first.is_number and second.is_number:
            return pick(first, second)
        if first == second or second == neutral:
            return first
        if first == neutral:
            return second
        return node(first, second, evaluate=False)

    return extreme


def maximum(first: Quantity, second: Quantity) -> Quantity:
    """Return the larger of two quantities, element by element.

    Examples
    --------
    >>> float(maximum(1.0, 2.0))
    2.0
    """
    if is_symbolic(first, second):
        return _elementwise(_unevaluated_extreme("Max"), first, second)
    return np.maximum(first, second)


def minimum(first: Quantity, second: Quantity) -> Quantity:
    """Return the smaller of two quantities, element by element.

    Examples
    --------
    >>> float(minimum(1.0, 2.0))
    1.0
    """
    if is_symbolic(first, second):
        return _elementwise(_unevaluated_extreme("Min"), first, second)
    return np.minimum(first, second)


def _scalar_ceiling(value: Any) -> Any:
    import sympy

    value = sympy.sympify(value)
    if value.is_number or value.is_integer:
        return sympy.ceiling(value)
    return sympy.ceiling(value, evaluate=False)


def ceil(value: Quantity) -> Quantity:
    """Round up to the next integer, element by element.

    Examples
    --------
    >>> float(ceil(1.2))
    2.0
    """
    if is_symbolic(value):
        return _elementwise(_scalar_ceiling, value)
    return np.ceil(value)


def exponential(value: Quantity) -> Quantity:
    """Return e to a power, element by element.

    Examples
    --------
    >>> float(exponential(0.0))
    1.0
    """
    if not is_symbolic(value):
        return np.exp(value)

    def power(exponent: Any) -> Any:
        import sympy

        return sympy.exp(exponent)

    return _elementwise(power, value)


def exponential_less_one(value: Quantity) -> Quantity:
    """Return e to a power less one, element by element, with all digits where the power is small.

    Examples
    --------
    >>> float(exponential_less_one(1e-12))
    1e-12
    """
    return exponential(value) - 1 if is_symbolic(value) else np.expm1(value)


def share_of(total: Quantity, parts: Quantity) -> Quantity:
    """Return one of equal parts of a count that they divide, e.g. the channels of a group; exact for symbols too.

    Examples
    --------
    >>> share_of(64, 2)
    32
    """
    return total / parts if is_symbolic(total, parts) else total // parts


def where(condition: Quantity, if_true: Quantity, if_false: Quantity) -> Quantity:
    """Choose by a condition, element by element; a symbolic condition becomes a Piecewise.

    Parameters
    ----------
    condition : bool, ndarray or sympy.Boolean
        What decides. [-]
    if_true, if_false : float, ndarray or sympy.Expr
        What is chosen. [any one unit]

    Returns
    -------
    float, ndarray or sympy.Expr
        In the unit of the two.

    Examples
    --------
    >>> float(where(True, 1.0, 2.0))
    1.0
    """
    if not is_symbolic(condition, if_true, if_false):
        return np.where(condition, if_true, if_false)

    def choose(test: Any, yes: Any, no: Any) -> Any:
        import sympy

        if test in (True, sympy.true) or (isinstance(test, np.bool_) and bool(test)):
            return yes
        if test in (False, sympy.false) or isinstance(test, np.bool_):
            return no
        return sympy.Piecewise((yes, test), (no, True), evaluate=False)

    return _elementwise(choose, condition, if_true, if_false)


def geometric_sum(ratio: Quantity, count: Quantity) -> Quantity:
    r"""Return the sum of so many powers of a ratio from 0 to 1, which need not be a whole number of them.

    .. math:: G(q, k) = \frac{1 - q^k}{1 - q}, \qquad G(1, k) = k

    Examples
    --------
    >>> float(geometric_sum(0.5, 3)), float(geometric_sum(1.0, 3))
    (1.75, 3.0)
    """
    if is_symbolic(ratio, count):
        return where(exceeds(1, ratio), (1 - ratio**count) / (1 - ratio), count)
    inside = np.greater(ratio, 0) & np.less(ratio, 1)
    logarithm = np.log(np.where(inside, ratio, 0.5))
    # expm1, as both differences lose their digits where the ratio is close to 1
    total = np.expm1(count * logarithm) / np.expm1(logarithm)
    return np.where(inside, total, np.where(np.greater(ratio, 0), count, 1.0))


def exceeds(first: Quantity, second: Quantity) -> Quantity:
    """Tell whether the first quantity is larger than the second, element by element; of symbols, an open condition.

    numpy would ask an array of symbols for truth values, which they do not have yet.

    Examples
    --------
    >>> bool(exceeds(2.0, 1.0))
    True
    """
    return _elementwise(_open_comparison, first, second) if is_symbolic(first, second) else first > second


def _open_comparison(first: Any, second: Any) -> Any:
    import sympy

    first, second = sympy.sympify(first), sympy.sympify(second)
    # Evaluated, sympy would try to prove the sign of the difference, which takes seconds for a large expression.
    return sympy.Gt(first, second, evaluate=first.is_number and second.is_number)


def minimum_along_first_axis(values: NDArray[Any]) -> Quantity:
    """Return the minimum over the first axis: of numbers by numpy, of symbols as an unevaluated Min.

    Examples
    --------
    >>> minimum_along_first_axis(np.array([[3.0, 1.0], [2.0, 5.0]]))
    array([2., 1.])
    """
    if values.dtype == object:
        return reduce(minimum, list(values))
    return values.min(axis=0)


def total(values: Quantity) -> Quantity:
    """Return the sum over the first axis: of numbers by numpy, of symbols as one flat Add.

    Examples
    --------
    >>> float(total(np.array([1.0, 2.0])))
    3.0
    """
    values = np.asarray(values)
    if values.dtype != object:
        return values.sum(axis=0)
    import sympy

    if values.ndim == 1:
        return sympy.Add(*[sympy.sympify(value) for value in values])
    return np.array([total(column) for column in values.T], dtype=object)


def first_array_length(values: Iterable[Quantity]) -> int | None:
    """Return the length of the first one-dimensional numeric array among quantities and mappings of quantities.

    Examples
    --------
    >>> first_array_length([1.0, {"a": np.array([1.0, 2.0])}])
    2
    """
    for value in values:
        if type(value) in _NUMBERS or (type(value) is dict and _NUMBERS.issuperset(map(type, value.values()))):
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
