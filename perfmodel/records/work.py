"""Arithmetic and traffic: Work, and the words for phases and roles of an operation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from perfmodel.numeric import expanded

Quantity = Any
"""A float, an ndarray, or a sympy expression."""

ELEMENT_BYTES: dict[str, int] = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
"""Bytes of one element in memory by data type; tf32 is stored as fp32. [B]"""


class Phase(StrEnum):
    """What part of a training step is meant; the API takes the strings."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"
    FORWARD_BACKWARD = "forward_backward"
    STEP = "step"

    @property
    def parts(self) -> tuple[Phase, ...]:
        """The elementary phases this phase consists of, in order."""
        return _PHASE_PARTS.get(self, (self,))


_PHASE_PARTS = {
    Phase.FORWARD_BACKWARD: (Phase.FORWARD, Phase.BACKWARD),
    Phase.STEP: (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE),
}


class Role(StrEnum):
    """What an operation produces."""

    OUTPUT = "output"
    INPUT_GRADIENT = "input_gradient"
    WEIGHT_GRADIENT = "weight_gradient"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Work:
    """Arithmetic and traffic of an operation, a layer or a graph.

    Parameters
    ----------
    flop_count : float, ndarray or sympy.Expr
        Floating-point operations; one multiply-add is 2. [FLOP]
    read_bytes, written_bytes : float, ndarray or sympy.Expr
        Compulsory traffic: each operand read once, each result written once. [B]
    """

    flop_count: Quantity = 0
    read_bytes: Quantity = 0
    written_bytes: Quantity = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flop_count + other.flop_count,
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
        )

    def simplified(self) -> Work:
        """Return the same with symbolic counts expanded to sums of products; numbers as they are."""
        return Work(expanded(self.flop_count), expanded(self.read_bytes), expanded(self.written_bytes))

    @property
    def moved_bytes(self) -> Quantity:
        """Bytes read plus bytes written. [B]"""
        return self.read_bytes + self.written_bytes

    @property
    def arithmetic_intensity(self) -> Quantity:
        """FLOP per byte moved. [FLOP/B]"""
        return self.flop_count / self.moved_bytes
