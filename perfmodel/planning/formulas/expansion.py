"""Products of sums multiplied out, as sympy's expand does without its questions of what may be zero or infinite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import sympy

Number = int | float | Fraction
Product = frozenset[tuple[sympy.Expr, Number]]
"""Bases of a product with their exponents. [-], [1]"""
Sum = Mapping[Product, Number]
"""Products with the factor of each. [-], [1]"""

ONE: Product = frozenset()


def expanded(expression: sympy.Expr) -> sympy.Expr:
    """Return ``sympy.expand(expression, power_base=False, power_exp=False)`` of real numbers and symbols."""
    return Expansion().expanded(expression)


class Expansion:
    """Sums of products of nodes, each worked out once."""

    def __init__(self) -> None:
        self._sums: dict[sympy.Expr, Sum] = {}
        self._expanded: dict[sympy.Expr, sympy.Expr] = {}

    def expanded(self, node: sympy.Expr) -> sympy.Expr:
        """Return a node as a sum of products."""
        if not node.args:
            return node
        if node not in self._expanded:
            self._expanded[node] = _written(self._sum_of(node))
        return self._expanded[node]

    def _sum_of(self, node: sympy.Expr) -> Sum:
        if node not in self._sums:
            self._sums[node] = self._multiplied_out(node)
        return self._sums[node]

    def _multiplied_out(self, node: sympy.Expr) -> Sum:
        if node.is_Rational or node.is_Float:
            return _without_zeros({ONE: _number(node)})
        if isinstance(node, sympy.Add):
            return _added(map(self._sum_of, node.args))
        if isinstance(node, sympy.Mul):
            if any(map(_divides_by_sum, node.args)):  # sympy multiplies denominators out among themselves
                return self._decoded(sympy.expand(node, power_base=False, power_exp=False))
            return _multiplied(map(self._sum_of, node.args))
        if isinstance(node, sympy.Pow) and node.exp.is_Integer and node.exp > 0:
            return _multiplied([self._sum_of(node.base)] * int(node.exp))
        if isinstance(node, sympy.Pow | sympy.ceiling | sympy.floor):
            inner = tuple(self.expanded(argument) for argument in node.args)
            return self._decoded(node if inner == node.args else node.func(*inner))
        return self._decoded(sympy.expand(node, power_base=False, power_exp=False) if node.args else node)

    def _decoded(self, node: sympy.Expr) -> Sum:
        """Return a sum of products that is multiplied out already."""
        if node.is_Rational or node.is_Float:
            return _without_zeros({ONE: _number(node)})
        if isinstance(node, sympy.Add):
            return _added(map(self._decoded, node.args))
        if isinstance(node, sympy.Mul):
            return _multiplied(map(self._decoded, node.args))
        if isinstance(node, sympy.Pow) and (node.exp.is_Rational or node.exp.is_Float) and not node.base.is_number:
            return {frozenset(((node.base, _number(node.exp)),)): 1}
        return {frozenset(((node, 1),)): 1}


def _divides_by_sum(node: sympy.Expr) -> bool:
    return isinstance(node, sympy.Pow) and isinstance(node.base, sympy.Add) and bool(node.exp.is_negative)


def _number(node: Any) -> Number:
    if node.is_Integer:
        return int(node)
    return Fraction(int(node.p), int(node.q)) if node.is_Rational else float(node)


def _sympy_number(number: Number) -> sympy.Expr:
    if isinstance(number, Fraction):
        return sympy.Rational(number.numerator, number.denominator)
    return sympy.Float(number) if isinstance(number, float) else sympy.Integer(number)


def _without_zeros(terms: dict[Product, Number]) -> Sum:
    return {product: factor for product, factor in terms.items() if factor}


def _added(sums: Iterable[Sum]) -> Sum:
    total: dict[Product, Number] = {}
    for terms in sums:
        for product, factor in terms.items():
            total[product] = total.get(product, 0) + factor
    return _without_zeros(total)


def _multiplied(sums: Iterable[Sum]) -> Sum:
    total: Sum = {ONE: 1}
    for terms in sorted(sums, key=len):
        made: dict[Product, Number] = {}
        for one, of_one in total.items():
            for other, of_other in terms.items():
                product = _joined(one, other)
                made[product] = made.get(product, 0) + of_one * of_other
        total = _without_zeros(made)
    return total


def _joined(one: Product, other: Product) -> Product:
    if not one or not other:
        return one or other
    powers = dict(one)
    for base, exponent in other:
        powers[base] = powers.get(base, 0) + exponent
        if not powers[base]:
            del powers[base]
    return frozenset(powers.items())


def _written(terms: Sum) -> sympy.Expr:
    products = [
        sympy.Mul(_sympy_number(factor), *(sympy.Pow(base, _sympy_number(exponent)) for base, exponent in product))
        for product, factor in terms.items()
    ]
    return sympy.Add(*products)
