"""Kernels: the code that a processor runs for an operation, without times.

A framework profile lowers an operation to one or more :class:`Alternative`, each a tuple of kernels; the fastest
alternative whose workspace fits is chosen later, when times are known. Two kernel classes are enough: a
:class:`Matmul` does arithmetic tile by tile (GEMM, implicit-GEMM convolution, the products inside Winograd and FFT
convolution), a :class:`Stream` moves memory (everything element-wise, transforms, copies). Kernels of one
class differ only in which efficiency they use, e.g. a 1x1 and a 3x3 convolution, or a reduction and an addition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from perfmodel.symbolic import Quantity

LOAD_BYTES: Final = 16
"""Widest load of one thread. [B]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul:
    """``count`` products of (m x k) by (k x n) in one launch, repeated by ``launches`` serial launches.

    Parameters
    ----------
    m, n, k : int, ndarray or sympy.Expr
        Extents of one product; a complex product has four times the real k. [1]
    count : int, ndarray or sympy.Expr
        Independent products in one launch. [1]
    read_bytes, written_bytes : int, ndarray or sympy.Expr
        Device-memory traffic of one launch. [B]
    efficiency : str
        Name of the efficiency: the fraction of peak that this shape class reaches inside a tile. [-]
    launches : int, ndarray or sympy.Expr
        Serial launches of this kernel for one operation. [1]
    library_launches : int, ndarray or sympy.Expr
        How many of ``launches`` the library issues by itself inside one call, with no framework dispatch. [1]
    """

    kernel_class: ClassVar[str] = "matmul"
    m: Quantity
    n: Quantity
    k: Quantity
    count: Quantity = 1
    read_bytes: Quantity
    written_bytes: Quantity
    efficiency: str = "gemm"
    launches: Quantity = 1
    library_launches: Quantity = 0

    @property
    def flop_count(self) -> Quantity:
        """Arithmetic of one launch. [FLOP]"""
        return 2 * self.count * self.m * self.n * self.k

    @property
    def over_half(self) -> Matmul:
        """The product over half of the sum: sparse tensor cores skip the zeros of 2:4 weights."""
        return replace(self, k=(1 + self.k) // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A kernel whose time depends on the memory it moves, repeated by ``launches`` serial launches.

    Parameters
    ----------
    read_bytes, written_bytes : int, ndarray or sympy.Expr
        Memory traffic of one launch. [B]
    flop_count : int, ndarray or sympy.Expr
        Arithmetic of one launch. [FLOP]
    serial_steps : int
        Elements that one thread reads one after the other, waiting for each. [1]
    efficiency : str
        Name of the efficiency: the fraction of memory bandwidth that this kind of pass reaches. [-]
    launches : int, ndarray or sympy.Expr
        Serial launches of this kernel for one operation. [1]
    library_launches : int, ndarray or sympy.Expr
        How many of ``launches`` the library issues by itself inside one call, with no framework dispatch. [1]
    """

    kernel_class: ClassVar[str] = "stream"
    read_bytes: Quantity
    written_bytes: Quantity
    flop_count: Quantity = 0
    serial_steps: Quantity = 0
    efficiency: str = "elementwise"
    launches: Quantity = 1
    library_launches: Quantity = 0


Kernel = Matmul | Stream


@dataclass(frozen=True, slots=True)
class Elements:
    """Makes kernels by the numbers of elements they read and write, where each takes ``size`` bytes."""

    size: int

    def stream(self, efficiency: str, reads: Quantity, writes: Quantity, **options: Any) -> Stream:
        """Return a pass that reads and writes the given numbers of elements."""
        return Stream(read_bytes=self.size * reads, written_bytes=self.size * writes, efficiency=efficiency, **options)

    def copy(self, efficiency: str, count: Quantity, **options: Any) -> Stream:
        """Return a pass that writes as many elements as it reads."""
        return self.stream(efficiency, count, count, **options)

    def product(self, m: Quantity, n: Quantity, k: Quantity, *, adds: bool = False, **options: Any) -> Matmul:
        """Return products whose operands and results pass through memory once each; they can add to the results."""
        results = options.get("count", 1) * m * n
        operands = options.get("count", 1) * (m * k + k * n)
        read, written = operands + (results if adds else 0), results
        return Matmul(m=m, n=n, k=k, read_bytes=self.size * read, written_bytes=self.size * written, **options)


def in_one_call(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """Mark kernels as one library call: the framework dispatches only the first launch.

    >>> in_one_call((Stream(read_bytes=4, written_bytes=4, launches=3),))[0].library_launches
    2
    """
    first, *others = kernels
    return (
        replace(first, library_launches=first.launches - 1),
        *(replace(kernel, library_launches=kernel.launches) for kernel in others),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One way to carry out an operation.

    Parameters
    ----------
    name : str
        The algorithm, e.g. ``implicit_precomp_gemm``. [-]
    kernels : tuple of Kernel
        What runs, one after the other. [-]
    workspace_bytes : int, ndarray or sympy.Expr
        Scratch memory the alternative needs. [B]
    """

    name: str
    kernels: tuple[Kernel, ...]
    workspace_bytes: Quantity = 0
