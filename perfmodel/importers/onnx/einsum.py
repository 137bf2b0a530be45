"""Sums over products of tensors in index notation, as the products of matrices that they are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from perfmodel.importers.program import VIEW
from perfmodel.layers.shapes import SharedShape
from perfmodel.layers.translation import Operand, OperatorCall

ELLIPSIS: Final = "..."
FREE_LETTERS: Final = "0123456789"
"""What the axes that an ellipsis stands for are called."""


@dataclass(frozen=True, slots=True)
class _Term:
    """A tensor with a letter for each of its axes."""

    operand: Operand
    letters: str

    def extents(self) -> dict[str, Any]:
        """Return the extent of each letter in a sample; 1 for the batch axis."""
        places = zip(self.letters, self.operand.axes, strict=True)
        return {letter: 1 if place is None else self.operand.shape[place] for letter, place in places}

    @property
    def batch(self) -> str:
        """Letter of the batch axis; empty where there is none."""
        return "".join(letter for letter, place in zip(self.letters, self.operand.axes, strict=True) if place is None)


def einsum_calls(call: OperatorCall) -> Iterator[OperatorCall]:
    """Yield an ``Einsum`` as views of its operands, a product of matrices, and a view of that; else as it is.

    Of several operands the first two are multiplied, then their product with the third, and so on: the work of that
    order is counted, whatever order a program would choose. Letters of both operands and the result are leading axes,
    those of the first and the result rows, those of the second and the result columns; letters of both operands alone
    are summed. It stays as it is where it has one operand, takes a diagonal, sums over one of a pair alone, or over the
    samples.

    Parameters
    ----------
    call : OperatorCall
        The node. [-]

    Yields
    ------
    OperatorCall
        What takes its place. [-]
    """
    pairs = _pairs(call)
    if pairs is None:
        yield call
        return
    for pair in pairs:
        yield from _product(*pair)


def _product(first: _Term, second: _Term, result: _Term) -> Iterator[OperatorCall]:
    """Yield two operands as matrices, their product, and what that is seen as."""
    if second.batch and not first.batch:
        first, second = second, first  # the samples are rows of the first matrix
    extents = second.extents() | first.extents()
    lead = [letter for letter in first.letters if letter in second.letters and letter in result.letters]
    inner = [letter for letter in first.letters if letter in second.letters and letter not in result.letters]
    rows = [letter for letter in first.letters if letter not in second.letters]
    columns = [letter for letter in second.letters if letter not in first.letters]
    batch = first.batch
    shape_of = _shapes(extents, batch)
    left = _seen(first.operand, (*shape_of(lead), _count(extents, rows), _count(extents, inner)))
    right = _seen(second.operand, (*shape_of(lead), _count(extents, inner), _count(extents, columns)))
    made = _seen(result.operand, (*shape_of(lead), _count(extents, rows), _count(extents, columns)))
    yield OperatorCall(operator=VIEW, arguments={"0": first.operand}, outputs=(left,))
    yield OperatorCall(operator=VIEW, arguments={"0": second.operand}, outputs=(right,))
    yield OperatorCall(operator="MatMul", arguments={"0": left, "1": right}, outputs=(made,))
    yield OperatorCall(operator=VIEW, arguments={"0": made}, outputs=(result.operand,))


def _pairs(call: OperatorCall) -> list[tuple[_Term, _Term, _Term]] | None:
    """Return two operands and their product for each step from left to right; None where one is no matrix product."""
    operands = [*call.operands, call.output]
    if len(operands) < 3:
        return None
    inputs, arrow, output = call["equation"].replace(" ", "").partition("->")
    written = [*inputs.split(","), output]
    if not arrow or len(written) != len(operands):
        return None
    terms = [_Term(operand, _letters(each, operand)) for operand, each in zip(operands, written, strict=True)]
    if any(len(set(term.letters)) != len(term.operand.axes) for term in terms):
        return None  # a diagonal
    pairs, so_far = [], terms[0]
    for place, second in enumerate(terms[1:-1], start=2):
        result = terms[-1] if place == len(terms) - 1 else _intermediate(so_far, second, terms[place:])
        if not _is_matrix_product(so_far, second, result):
            return None
        pairs.append((so_far, second, result))
        so_far = result
    return pairs


def _intermediate(first: _Term, second: _Term, rest: Sequence[_Term]) -> _Term:
    """Return the product of two operands with the letters that later ones or the result have."""
    still = {letter for term in rest for letter in term.letters}
    letters = "".join(letter for letter in dict.fromkeys(first.letters + second.letters) if letter in still)
    extents, batch = second.extents() | first.extents(), first.batch or second.batch
    inner = [letter for letter in letters if letter != batch]
    shape = tuple(extents[letter] for letter in inner)
    operand = Operand(
        key=f"{first.operand.key} {second.operand.key} to {letters}",
        shape=shape if batch else SharedShape(shape),
        axes=tuple(None if letter == batch else inner.index(letter) for letter in letters),
    )
    return _Term(operand, letters)


def _is_matrix_product(first: _Term, second: _Term, result: _Term) -> bool:
    once = set(first.letters) ^ set(second.letters)
    summed = (set(first.letters) | set(second.letters)) - set(result.letters)
    spreads = any(first.extents()[each] != second.extents()[each] for each in set(first.letters) & set(second.letters))
    batches = {term.batch for term in (first, second)} - {""}
    return not (once & summed or spreads or batches != {result.batch} - {""} or len(batches) > 1)


def _letters(written: str, operand: Operand) -> str:
    """Return a letter for each axis, those of an ellipsis by digits from the last."""
    missing = len(operand.axes) - len(written.replace(ELLIPSIS, ""))
    return written.replace(ELLIPSIS, FREE_LETTERS[:missing][::-1])


def _count(extents: Mapping[str, Any], letters: list[str]) -> Any:
    return math.prod(extents[letter] for letter in letters)


def _shapes(extents: Mapping[str, Any], batch: str) -> Any:
    """Return a function from letters to their extents in a sample, without the batch's."""
    return lambda letters: tuple(extents[letter] for letter in letters if letter != batch)


def _seen(operand: Operand, shape: tuple[Any, ...]) -> Operand:
    """Return a tensor seen as matrices."""
    seen = SharedShape(shape) if operand.is_shared else shape
    key = f"{operand.key} as {'x'.join(map(str, shape))}"
    return Operand(key=key, shape=seen, axes=tuple(range(len(shape))), is_index=operand.is_index)
