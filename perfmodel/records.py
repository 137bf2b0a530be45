"""Operations: the computation as arithmetic and traffic, without hardware or framework.

A contraction, a convolution, attention, a pass over memory, a recurrence, a gather. An operation counts elements;
``work`` turns counts into FLOP and bytes for a given element size. Counting rules (docs/glossary.md): one multiply-add
is 2 FLOP, so a contraction over k terms is 2 k FLOP per output, bias included (k multiplies, k - 1 adds, and the bias's
add); each comparison and each elementary function (exp, tanh, sqrt) is 1 FLOP; every operand is read once and every
result written once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Final, Literal

from perfmodel.errors import ArgumentError
from perfmodel.numeric import expanded, share_of
from perfmodel.symbolic import Quantity

ELEMENT_BYTES: dict[str, int] = {
    "fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2, "mxfp8": 2, "nvfp4": 2, "int8": 2
}  # fmt: skip
"""Bytes of one element in memory by a network's data type. tf32 is stored as fp32; types of eight bits or fewer are
recipes that cast only the operands of linear layers of a 16-bit network. [B]"""

SINGLE_BYTES: Final = ELEMENT_BYTES["fp32"]
"""Size of an element in single precision. [B]"""

PACKED_BYTES: Final = {"int8": 1.0, "fp8": 1.0, "int4": 0.5 + 2 / 128}
"""Bytes of one stored weight by its own data type: int8 and fp8 with a scale for each row, which is left out, int4 with
a half-precision scale for each 128 weights. [B]"""

SPARSITIES: Final = {"unstructured": 4.0, "2:4": 1 / 4}
"""Pattern of pruned weights -> bytes of an index for each weight that is left: a column number, or 2 bits. [B]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """Storage of the weights of a layer's products, if it is not one full element for each.

    Parameters
    ----------
    dtype : str or None
        Their own data type, ``int8``, ``fp8`` or ``int4``; None for that of the network. [-]
    density : float
        Share of the weights that pruning left. [1]
    sparsity : str or None
        Pattern of the pruned ones, ``unstructured`` or ``2:4``; None without pruning. [-]
    """

    dtype: str | None = None
    density: float = 1.0
    sparsity: str | None = None

    def __str__(self) -> str:
        pattern = "" if self.sparsity is None else f"{100 * self.density:.3g} % {self.sparsity}"
        return " ".join(filter(None, (self.dtype or "", pattern)))

    @property
    def names(self) -> frozenset[str]:
        """Formats that a product must be able to read: data type and pattern of pruning. [-]"""
        return frozenset(name for name in (self.dtype, self.sparsity) if name is not None)

    def bytes_per_weight(self, *, element_bytes: float) -> float:
        """Bytes of a weight, pruned ones included, at ``element_bytes`` [B] per element: never more than dense. [B]

        Examples
        --------
        >>> WeightFormat(density=0.5, sparsity="2:4").bytes_per_weight(element_bytes=2)
        1.125
        """
        value_bytes = element_bytes if self.dtype is None else PACKED_BYTES[self.dtype]
        index_bytes = 0.0 if self.sparsity is None else SPARSITIES[self.sparsity]
        return min(float(value_bytes), self.density * (value_bytes + index_bytes))


def weight_bytes(count: Quantity, packed: WeightFormat | None, *, element_bytes: int) -> Quantity:
    """Bytes of weights as they are stored. [B]"""
    return count * (element_bytes if packed is None else packed.bytes_per_weight(element_bytes=element_bytes))


class Phase(StrEnum):
    """Part of a training step; the API takes the strings."""

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
    """Product of an operation."""

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
        """Return the same with symbolic counts expanded to sums of products."""
        return Work(expanded(self.flop_count), expanded(self.read_bytes), expanded(self.written_bytes))

    @property
    def moved_bytes(self) -> Quantity:
        """Bytes read plus bytes written. [B]"""
        return self.read_bytes + self.written_bytes

    @property
    def arithmetic_intensity(self) -> Quantity:
        """FLOP per byte moved. [FLOP/B]"""
        return self.flop_count / self.moved_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """``count`` independent matrix products C[m, n] = A[m, k] B[k, n] (+ bias).

    Parameters
    ----------
    m, n, k : int, ndarray or sympy.Expr
        Rows and columns of the result, and length of the sum. [1]
    count : int, ndarray or sympy.Expr
        Independent products, e.g. one per head or per sample. [1]
    bias_elements : int
        Elements of a bias added to the result in the same pass. [1]
    has_weights : bool
        Whether an operand is a layer's weight, or the result its gradient. [-]
    role : Role
        What the product yields. [-]
    packed : WeightFormat or None
        How the weights are stored, if they are the second operand; None for dense. [-]
    """

    kind: ClassVar[str] = "contraction"
    m: Quantity
    n: Quantity
    k: Quantity
    count: Quantity = 1
    bias_elements: int = 0
    has_weights: bool = True
    role: Role = Role.OUTPUT
    packed: WeightFormat | None = None

    @property
    def product_flop_count(self) -> Quantity:
        """Arithmetic of the matrix products. [FLOP]"""
        return 2 * self.count * self.m * self.n * self.k

    def work(self, *, element_bytes: int) -> Work:
        """Return FLOP and bytes of all ``count`` products at ``element_bytes`` [B] per element."""
        return Work(
            self.product_flop_count,
            element_bytes * (self.count * self.m * self.k + self.bias_elements)
            + weight_bytes(self.count * self.k * self.n, self.packed, element_bytes=element_bytes),
            element_bytes * self.count * self.m * self.n,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPass:
    """An operation that streams tensors once: element-wise, normalisation, pooling, copy, optimizer update.

    Parameters
    ----------
    name : str
        What it computes, e.g. ``relu`` or ``batch_norm``; framework profiles look it up. [-]
    read_elements, written_elements : int, ndarray or sympy.Expr
        Elements of the numeric tensors read and written. [1]
    tensor_elements : int, ndarray or sympy.Expr
        Elements of the one tensor the operation is about: the unit in which a profile counts extra passes. [1]
    flop_count : int, ndarray or sympy.Expr
        Arithmetic. [FLOP]
    read_index_bytes, written_index_bytes : int, ndarray or sympy.Expr
        Traffic of masks and quantised numbers (1 B an element) and indices (4 B), whose size is independent of the data
        type. [B]
    row_elements : int
        Elements that are reduced to one result, and so depend on one another; zero if no framework reduces them
        serially. [1]
    parts : int, ndarray or sympy.Expr
        Independent parts that a framework without batching handles one by one, e.g. rows with words of different
        classes. [1]
    role : Role
        What the pass yields. [-]
    """

    kind: ClassVar[str] = "memory_pass"
    name: str
    read_elements: Quantity
    written_elements: Quantity
    tensor_elements: Quantity
    flop_count: Quantity = 0
    read_index_bytes: Quantity = 0
    written_index_bytes: Quantity = 0
    row_elements: Quantity = 0
    parts: Quantity = 1
    role: Role = Role.OUTPUT
    product_flop_count: ClassVar[int] = 0

    def work(self, *, element_bytes: int) -> Work:
        """Return FLOP and bytes at ``element_bytes`` [B] per element."""
        return Work(
            self.flop_count,
            element_bytes * self.read_elements + self.read_index_bytes,
            element_bytes * self.written_elements + self.written_index_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """One recurrent layer over a whole sequence, or one of its gradients; steps depend on each other serially.

    Parameters
    ----------
    batch_size : int, ndarray or sympy.Expr
        Sequences. [samples]
    steps : int
        Sequence length, T. [1]
    input_size, hidden_size : int
        Features in and out, x and h. [1]
    gate_count : int
        Gates of the cell: 4 for LSTM, 3 for GRU, 1 for a simple RNN. [1]
    pointwise_flop_count : int
        Element-wise FLOP per hidden unit, sample and step (activations, gate products). [FLOP]
    state_count : int
        State tensors carried from step to step: 2 for LSTM (h and c), 1 otherwise. [1]
    bias_vectors : int
        Bias vectors per gate: 0, 1, or 2 as cuDNN and torch keep them. [1]
    first_state_gradient : bool
        Whether the state before the first step needs a gradient; if not, the backward pass through time has one
        recurrent product fewer. [-]
    role : Role
        OUTPUT; INPUT_GRADIENT includes the backward pass through time; WEIGHT_GRADIENT the weights'. [-]
    """

    kind: ClassVar[str] = "recurrence"
    batch_size: Quantity
    steps: int
    input_size: int
    hidden_size: int
    gate_count: int
    pointwise_flop_count: int
    state_count: int
    bias_vectors: int = 1
    first_state_gradient: bool = False
    role: Role = Role.OUTPUT

    def __post_init__(self) -> None:
        if self.bias_vectors not in (0, 1, 2):
            raise ArgumentError("bias_vectors", self.bias_vectors, "0, 1, or 2 (one each for x and h)")

    @property
    def weight_elements(self) -> int:
        """Elements of the input and recurrent matrices. [1]"""
        return self.gate_count * self.hidden_size * (self.input_size + self.hidden_size)

    @property
    def product_flop_count(self) -> Quantity:
        """Arithmetic of the products with the input and recurrent matrices. [FLOP]"""
        spares_one = self.role is Role.INPUT_GRADIENT and not self.first_state_gradient
        recurrent_steps = self.steps - 1 if spares_one else self.steps
        per_feature = 2 * self.batch_size * self.gate_count * self.hidden_size
        return per_feature * (self.steps * self.input_size + recurrent_steps * self.hidden_size)

    def work(self, *, element_bytes: int) -> Work:
        """Return FLOP and bytes at ``element_bytes`` [B] per element.

        Forward writes the output and the gate activations that back-propagation needs; each gradient reads them
        once. Weights count once: a library that reads them at every step pays for it in its lowering.
        """
        x = self.batch_size * self.steps * self.input_size
        h = self.batch_size * self.steps * self.hidden_size
        gates, states = self.gate_count * h, self.state_count * h
        product_flop_count = self.product_flop_count
        weights = self.weight_elements
        biases = self.gate_count * self.hidden_size * self.bias_vectors
        if self.role is Role.OUTPUT:
            flop_count, read, written = (
                product_flop_count + self.pointwise_flop_count * h,
                x + weights + biases,
                states + gates,
            )
        elif self.role is Role.INPUT_GRADIENT:
            flop_count, read, written = (
                product_flop_count + 2 * self.pointwise_flop_count * h,
                h + gates + states + weights,
                x + gates,
            )
        else:
            flop_count, read, written = product_flop_count + gates, gates + x + h, weights + biases
        return Work(flop_count, element_bytes * read, element_bytes * written)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gather:
    """Rows picked from a table by index (embedding look-up), or their gradients added back.

    Parameters
    ----------
    rows : int, ndarray or sympy.Expr
        Rows picked. [1]
    width : int
        Elements per row. [1]
    table_rows : int
        Rows of the table. [1]
    role : Role
        OUTPUT for the look-up, WEIGHT_GRADIENT for the scatter-add into a dense gradient. [-]
    """

    kind: ClassVar[str] = "gather"
    rows: Quantity
    width: int
    table_rows: int
    role: Role = Role.OUTPUT
    product_flop_count: ClassVar[int] = 0

    def work(self, *, element_bytes: int) -> Work:
        """Return FLOP and bytes at ``element_bytes`` [B] per element; an index is 4 B.

        The look-up copies rows. The gradient clears a dense table, then adds each row into it.
        """
        copied = element_bytes * self.rows * self.width
        index_bytes = 4 * self.rows
        if self.role is Role.OUTPUT:
            return Work(0, copied + index_bytes, copied)
        cleared = element_bytes * self.table_rows * self.width
        return Work(self.rows * self.width, 2 * copied + index_bytes, copied + cleared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution over any number of spatial dimensions, or one of its two gradients.

    Parameters
    ----------
    batch_size : int, ndarray or sympy.Expr
        Samples, N. [samples]
    in_channels, out_channels : int
        Channels C and K of the forward convolution (whichever gradient this is). [1]
    input_size, output_size, kernel_size : tuple of int
        Spatial extents of the forward convolution. [1]
    stride, dilation : tuple of int
        Step between outputs and between kernel taps. [1]
    padding : tuple of tuple of int
        Zeros added before and after along each dimension. [1]
    groups : int
        Independent channel groups. [1]
    transposed : bool
        Whether it is a transposed convolution, which computes what the input gradient of a convolution from its output
        to its input would be. [-]
    bias_elements : int
        Elements of a bias added in the same pass (forward only). [1]
    bank_count : int, ndarray or sympy.Expr
        Filter banks: 1 for all samples, or one for each; it changes the traffic only. [1]
    role : Role
        OUTPUT, INPUT_GRADIENT or WEIGHT_GRADIENT. [-]
    packed : WeightFormat or None
        How the filters are stored; None for dense. [-]
    """

    kind: ClassVar[str] = "convolution"
    batch_size: Quantity
    in_channels: int
    out_channels: int
    input_size: tuple[int, ...]
    output_size: tuple[int, ...]
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    bias_elements: int = 0
    bank_count: Quantity = 1
    role: Role = Role.OUTPUT
    packed: WeightFormat | None = None

    @property
    def mirrored(self) -> Convolution:
        """The convolution from this one's output to its input, in the role that does the same products.

        Its input gradient is what a transposed convolution computes, and its output is the transposed one's input
        gradient. A bias is left out, because no gradient has one.
        """
        roles = {Role.OUTPUT: Role.INPUT_GRADIENT, Role.INPUT_GRADIENT: Role.OUTPUT}
        return replace(
            self,
            in_channels=self.out_channels,
            out_channels=self.in_channels,
            input_size=self.output_size,
            output_size=self.input_size,
            transposed=not self.transposed,
            bias_elements=0,
            role=roles.get(self.role, self.role),
        )

    @property
    def weight_elements(self) -> Quantity:
        """Elements of a filter bank. [1]"""
        return self.out_channels * share_of(self.in_channels, self.groups) * math.prod(self.kernel_size)

    @property
    def input_elements(self) -> Quantity:
        """Elements of the forward input. [1]"""
        return self.batch_size * self.in_channels * math.prod(self.input_size)

    @property
    def output_elements(self) -> Quantity:
        """Elements of the forward output. [1]"""
        return self.batch_size * self.out_channels * math.prod(self.output_size)

    @property
    def product_flop_count(self) -> Quantity:
        """Arithmetic of the products with the filters, the same in all three roles. [FLOP]"""
        positions = self.input_size if self.transposed else self.output_size
        return 2 * self.batch_size * math.prod(positions) * self.weight_elements

    def work(self, *, element_bytes: int) -> Work:
        """Return FLOP and bytes at ``element_bytes`` [B] per element; all three roles do the same arithmetic."""
        flop_count = self.product_flop_count
        x, w, y = self.input_elements, self.weight_elements * self.bank_count, self.output_elements
        read, written = {
            Role.OUTPUT: (x + w + self.bias_elements * self.bank_count, y),
            Role.INPUT_GRADIENT: (y + w, x),
            Role.WEIGHT_GRADIENT: (x + y, w),
        }[self.role]
        if self.packed is None:
            return Work(flop_count, element_bytes * read, element_bytes * written)
        stored_bytes = weight_bytes(w, self.packed, element_bytes=element_bytes)
        return Work(flop_count, element_bytes * (read - w) + stored_bytes, element_bytes * written)


STATISTIC_BYTES = 4
"""Size of the statistic that is kept to recompute a row of scores: the logarithm of its sum in single precision [B]."""


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
        Elements of a mask of Booleans, 1 B each, or of a bias; None where there is none. [1]
    adds_bias : bool
        Whether the mask is a bias: numbers that are added to the scores. [-]
    writes_scores : bool
        Whether the gradients of recomputed scores go to memory, for a bias that is trained. [-]
    drops : bool
        Whether probabilities are dropped at random, as in training. [-]
    softmax_bytes : int or None
        Size of an element of materialised probabilities where softmax widens them, so that they are cast before their
        product; None for that of the scores. [B]
    casts_scores : bool
        Whether a pass of its own widens the scores before softmax, instead of softmax itself. [-]
    role : Role
        OUTPUT, or INPUT_GRADIENT for the gradients of queries, keys and values together. [-]

    Notes
    -----
    With s = batch x heads x queries x keys: forward 2 s (head_size + value_size) FLOP of products and 6 s for
    scaling and softmax, s for a mask, 2 s for dropout; backward twice the products and 5 s, s for dropout. Where scores
    are materialised, scale and mask are passes of their own, and not counted here. All scores
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
    adds_bias: bool = False
    writes_scores: bool = False
    drops: bool = False
    softmax_bytes: int | None = None
    casts_scores: bool = False
    role: Role = Role.OUTPUT

    @property
    def score_elements(self) -> Quantity:
        """Elements of the matrix of scores over all heads and samples. [1]"""
        return self.batch_size * self.heads * self.queries * self.keys

    @property
    def key_and_value_elements(self) -> Quantity:
        """Elements of keys and values. [1]"""
        return self.batch_size * self.key_heads * self.keys * (self.head_size + self.value_size)

    @property
    def operand_elements(self) -> Quantity:
        """Elements of queries, keys and values. [1]"""
        return self.batch_size * self.heads * self.queries * self.head_size + self.key_and_value_elements

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

    def mask_bytes(self, *, element_bytes: int) -> Quantity:
        """Bytes of the mask at ``element_bytes`` [B] per element of a bias. [B]"""
        elements: Quantity = 0 if self.mask_elements is None else self.mask_elements
        return (element_bytes if self.adds_bias else 1) * elements

    def work(self, *, element_bytes: int) -> Work:
        """Return FLOP and bytes at ``element_bytes`` [B] per element; the statistic of a row is 4 B."""
        n, operands, result = self.score_elements, self.operand_elements, self.output_elements
        forward, drops = self.role is Role.OUTPUT, int(self.drops)
        is_materialised = self.scores == "materialised"
        if forward:
            flop_per_score = 5 if is_materialised else 6 + (self.mask_elements is not None)
            read, written = element_bytes * operands, element_bytes * result
        else:
            flop_per_score = 4 if is_materialised else 5
            read, written = element_bytes * (operands + result), element_bytes * operands
        flop_count = self.product_flop_count + (flop_per_score + drops * (1 + forward)) * n
        if is_materialised:
            dropped_bytes = drops * n
            read = read + element_bytes * (2 + drops if forward else 5 + drops) * n
            written = written + element_bytes * (2 + drops) * n
            if forward:
                return Work(flop_count, read, written + dropped_bytes)
            return Work(flop_count, read + dropped_bytes, written)
        read = read + self.mask_bytes(element_bytes=element_bytes)
        statistics_bytes = STATISTIC_BYTES * self.row_elements
        written = written + element_bytes * int(self.writes_scores) * n
        if forward:
            return Work(flop_count, read, written + statistics_bytes)
        # the output itself is read for the rows' sums, and the mask for the scores
        return Work(flop_count, read + element_bytes * result + statistics_bytes, written)


Operation = Contraction | Convolution | Attention | MemoryPass | Recurrence | Gather
