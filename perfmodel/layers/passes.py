"""The memory passes that many layers share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from perfmodel.layers.shapes import Shape, element_count, is_spread
from perfmodel.records import MemoryPass, Role

Counts = ParamSpec("Counts")
MASK_BYTES = 1
"""Size of a Boolean, one element of a mask [B]."""
INDEX_BYTES = 4
"""Size of an index: of a class, a row, a position [B]."""


def one_pass(
    name: str, *, read: Any, written: Any, tensor: Any = None, flop: Any = 0, role: Role = Role.OUTPUT, **further: Any
) -> MemoryPass:
    """Return a pass that reads and writes given numbers of elements.

    Parameters
    ----------
    name : str
        What it computes; framework profiles look it up. [-]
    read, written : int, ndarray or sympy.Expr
        Elements read and written. [1]
    tensor : int, ndarray, sympy.Expr or None
        Elements of its main tensor; None for the one it writes. [1]
    flop : int, ndarray or sympy.Expr
        Arithmetic. [FLOP]
    role : Role
        What it yields. [-]
    **further : int, ndarray or sympy.Expr
        Other fields of a MemoryPass: traffic of indices, elements of a row, parts. [-]

    Examples
    --------
    >>> one_pass("max_pool", read=400, written=100, tensor=400, flop=300).work(element_bytes=4)
    Work(flop_count=300, read_bytes=1600, written_bytes=400)
    """
    return MemoryPass(
        name=name,
        read_elements=read,
        written_elements=written,
        tensor_elements=written if tensor is None else tensor,
        flop_count=flop,
        role=role,
        **further,
    )


def _alone(make: Callable[Counts, MemoryPass]) -> Callable[Counts, tuple[MemoryPass]]:
    return wraps(make)(lambda *args, **counts: (make(*args, **counts),))


only_pass = _alone(one_pass)
"""``one_pass`` as all the operations of a layer."""


def elementwise(
    name: str,
    elements: Any,
    *,
    reads: int = 1,
    writes: int = 1,
    flop_per_element: int = 0,
    role: Role = Role.OUTPUT,
) -> MemoryPass:
    """Return a pass that reads and writes whole tensors with a number of elements each [1].

    Examples
    --------
    >>> elementwise("relu", 100, flop_per_element=1).work(element_bytes=4)
    Work(flop_count=100, read_bytes=400, written_bytes=400)
    """
    return one_pass(
        name,
        read=reads * elements,
        written=writes * elements,
        tensor=elements,
        flop=flop_per_element * elements,
        role=role,
    )


def bias_gradient(elements: Any, *, bias_elements: int) -> MemoryPass:
    """Return the sum of an output's gradient over all but its channels: a read and an add per element.

    Examples
    --------
    >>> bias_gradient(640, bias_elements=10).work(element_bytes=4)
    Work(flop_count=640, read_bytes=2560, written_bytes=40)
    """
    return _summed("bias_gradient", elements, bias_elements, role=Role.WEIGHT_GRADIENT)


def broadcast_gradient(elements: Any, *, operand_elements: Any) -> MemoryPass:
    """Return the sum of a gradient over the axes along which an operand was repeated: a read and an add per element.

    Examples
    --------
    >>> broadcast_gradient(640, operand_elements=10).work(element_bytes=4)
    Work(flop_count=640, read_bytes=2560, written_bytes=40)
    """
    return _summed("broadcast_sum", elements, operand_elements, role=Role.INPUT_GRADIENT)


def summed_repeats(operand: Shape, output: Shape, *, batch_size: Any) -> tuple[MemoryPass, ...]:
    """Return the sum of an output's gradient over the repeats of an operand; nothing where none is repeated.

    Examples
    --------
    >>> summed_repeats((10,), (10,), batch_size=4)
    ()
    """
    if not is_spread(operand, output):
        return ()
    elements, sums = (element_count(shape, batch_size=batch_size) for shape in (output, operand))
    return (broadcast_gradient(elements, operand_elements=sums),)


def _summed(name: str, elements: Any, sums: Any, *, role: Role) -> MemoryPass:
    return one_pass(name, read=elements, written=sums, tensor=elements, flop=elements, role=role)
