"""Attention as one operation, whether its scores go through memory or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from perfmodel.records.work import Quantity, Role, Work

STATISTIC_BYTES = 4
"""Size of what is kept of a row of scores in order to make it again: the logarithm of its sum, single precision [B]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Scaled dot-product attention softmax(Q K^T / sqrt(d)) V of every head, or its gradients.

    Parameters
    ----------
    batch_size : int, ndarray or sympy.Expr
        Samples. [samples]
    heads, key_heads : int
        Heads of the queries, and of keys and values (fewer where groups of queries share them). [1]
    queries, keys : int
        Positions that ask, and positions that are looked at. [1]
    head_size, value_size : int
        Features of a query or key, and of a value, per head. [1]
    causal : bool
        Whether a position sees only itself and those before it. [-]
    scores : str
        ``materialised``: the matrix of scores goes through memory; ``recomputed``: it stays on chip, tile by tile,
        and back-propagation makes it again (FlashAttention). [-]
    mask_elements : int, ndarray, sympy.Expr or None
        Elements of a mask that is added to the scores, 1 B each; None where there is none. [1]
    drops : bool
        Whether probabilities are dropped at random, as in training. [-]
    role : Role
        OUTPUT, or INPUT_GRADIENT for the gradients of queries, keys and values together. [-]

    Notes
    -----
    With s = batch x heads x queries x keys: forward 2 s (head_size + value_size) FLOP of products and 6 s for
    scaling and softmax, s for a mask, 2 s for dropout; backward twice the products and 5 s, s for dropout. All scores
    count, also those that ``causal`` masks: so do papers and other counters; what a kernel spares or recomputes is
    part of its lowering. Materialised, what was dropped (1 B a score) goes through memory beside the probabilities
    before and after; recomputed, the random numbers are made again.
    """

    kind: ClassVar[str] = "attention"
    batch_size: Quantity
    heads: int
    key_heads: int
    queries: int
    keys: int
    head_size: int
    value_size: int
    causal: bool = False
    scores: Literal["materialised", "recomputed"] = "recomputed"
    mask_elements: Quantity | None = None
    drops: bool = False
    role: Role = Role.OUTPUT

    @property
    def score_elements(self) -> Quantity:
        """Elements of the matrix of scores over all heads and samples. [1]"""
        return self.batch_size * self.heads * self.queries * self.keys

    @property
    def operand_elements(self) -> Quantity:
        """Elements of queries, keys and values. [1]"""
        keys_and_values = self.key_heads * self.keys * (self.head_size + self.value_size)
        return self.batch_size * (self.heads * self.queries * self.head_size + keys_and_values)

    @property
    def output_elements(self) -> Quantity:
        """Elements of the result. [1]"""
        return self.batch_size * self.heads * self.queries * self.value_size

    @property
    def row_elements(self) -> Quantity:
        """Rows of scores: one statistic of each is kept where they are recomputed. [1]"""
        return self.batch_size * self.heads * self.queries

    @property
    def product_flop_count(self) -> Quantity:
        """Arithmetic of the two products forward, or the four backward. [FLOP]"""
        products = 2 * self.score_elements * (self.head_size + self.value_size)
        return products if self.role is Role.OUTPUT else 2 * products

    def work(self, *, element_bytes: int) -> Work:
        """Return FLOP and bytes at ``element_bytes`` [B] per element; the statistic of a row is 4 B."""
        n, operands, result = self.score_elements, self.operand_elements, self.output_elements
        forward, drops = self.role is Role.OUTPUT, int(self.drops)
        mask_bytes: Quantity = 0 if self.mask_elements is None else self.mask_elements
        if forward:
            flop_per_score = 6 + (self.mask_elements is not None) + 2 * drops
            read, written = element_bytes * operands + mask_bytes, element_bytes * result
        else:
            flop_per_score = 5 + drops
            read, written = element_bytes * (operands + result), element_bytes * operands
        flop_count = self.product_flop_count + flop_per_score * n
        if self.scores == "materialised":
            dropped_bytes = drops * n
            read = read + element_bytes * (2 + drops if forward else 5 + drops) * n
            written = written + element_bytes * (2 + drops) * n
            if forward:
                return Work(flop_count, read, written + dropped_bytes)
            return Work(flop_count, read + dropped_bytes, written)
        statistics_bytes = STATISTIC_BYTES * self.row_elements
        if forward:
            return Work(flop_count, read, written + statistics_bytes)
        # the output itself is read for the rows' sums, and the mask for the scores
        return Work(flop_count, read + element_bytes * result + mask_bytes + statistics_bytes, written)
