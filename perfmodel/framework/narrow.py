"""Recipes by which linear layers of a 16-bit network run in eight bits or four; all else stays in 16 bits.

Activations, weights, gradients and the optimizer's copies keep the width of the base type. For each product the
operands are scaled (a pass for the largest value, unless each small block has a scale of its own) and cast; tensor
cores want both along the sum, so a tensor that two products sum in different directions is cast twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from perfmodel.kernels import Kernel, Matmul, Stream, in_one_call
from perfmodel.records import Contraction, Role, WeightFormat, weight_bytes

ALIGNED = 16
"""Unit of the extents of a weight, in elements; products of other weights stay in the base type. [1]"""

NARROW_PRODUCT: Final = "gemm_narrow"
"""Efficiency name of a product of cast operands."""

SPLIT_ACCUMULATOR: Final = "gemm_split_accumulator"
"""Efficiency name of such a product that adds its partial sums up in full precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowRecipe:
    """Data types of a recipe.

    Parameters
    ----------
    base : str
        Data type of everything but the operands of linear layers. [-]
    operand_bytes : float
        Size of one element of a cast operand, with its share of a scale. [B]
    block_scaled : bool
        Whether each block of 16 or 32 elements has its own scale, found while they are cast. [-]
    splits_accumulator : bool
        Whether products of gradients add partial sums up in full precision, where tensor cores keep fewer bits. [-]
    delayed_scales : bool
        Whether scales are those of the steps before, so that one pass casts a tensor in both directions. [-]
    keeps_weights : bool
        Whether weights are cast once for all micro-batches, which is not counted. [-]
    weight_dtype : str or None
        Data type of stored weights that products read without a cast; None if there is none. [-]
    """

    base: str = "bf16"
    operand_bytes: float
    block_scaled: bool = False
    splits_accumulator: bool = False
    delayed_scales: bool = False
    keeps_weights: bool = False
    weight_dtype: str | None = None


RECIPES: Final = {
    "fp8": NarrowRecipe(operand_bytes=1.0, weight_dtype="fp8", splits_accumulator=True),
    "mxfp8": NarrowRecipe(operand_bytes=1 + 1 / 32, block_scaled=True),
    "nvfp4": NarrowRecipe(operand_bytes=0.5 + 1 / 16, block_scaled=True),
    "int8": NarrowRecipe(operand_bytes=1.0, weight_dtype="int8"),
}
"""Data type of a job -> its recipe."""


def base_dtype(dtype: str) -> str:
    """Return the base type of a recipe; other data types are returned unchanged.

    >>> base_dtype("fp8"), base_dtype("fp16")
    ('bf16', 'fp16')
    """
    return RECIPES[dtype].base if dtype in RECIPES else dtype


def takes_narrow(op: Contraction) -> bool:
    """Return whether a product is one of a linear layer whose weights have aligned extents."""
    weight = (op.m, op.n) if op.role is Role.WEIGHT_GRADIENT else (op.n, op.k)
    is_aligned = all(not isinstance(extent, int) or extent % ALIGNED == 0 for extent in weight)
    return op.has_weights and op.count == 1 and is_aligned


def _weights_passed(op: Contraction, recipe: NarrowRecipe) -> tuple[int, int]:
    """Return the numbers of times that weights are scaled and cast; for stored weights either may be zero."""
    if op.role is Role.WEIGHT_GRADIENT or recipe.keeps_weights:
        return (0, 0)
    if op.role is Role.INPUT_GRADIENT:
        return (0, 1)
    stored = None if op.packed is None else op.packed.dtype
    return (int(stored is None), int(stored is None or op.packed != WeightFormat(dtype=recipe.weight_dtype)))


def narrow_product(
    op: Contraction, product: Matmul, *, recipe: NarrowRecipe, element_bytes: int, skips_zeros: bool = False
) -> tuple[Kernel, ...]:
    """Return a product of cast operands with its passes, as one call.

    Notes
    -----
    The output scales and casts inputs and weights; the input gradient scales the incoming gradients and casts them in
    both directions, and the weights across; the weight gradient casts the inputs across and reuses the gradients.
    With delayed scales the output casts inputs in both directions, and no pass looks for the largest value.
    Stored weights are cast into the operand without a pass that unpacks them. Their scales are known if they have a
    type of their own; weights in the type of the operands need no cast for the output.

    References
    ----------
    .. [1] Micikevicius et al., FP8 formats for deep learning, arXiv:2209.05433.
    .. [2] PyTorch, torchao.float8, dynamic scaling of whole tensors, and the default use_fast_accum of its products
       (``docs.pytorch.org/ao``); Transformer Engine's recipes have the same default.
    """
    left, right, narrow = op.m * op.k, op.k * op.n, recipe.operand_bytes
    operand, pattern = right * narrow, None if op.packed is None else replace(op.packed, dtype=None)
    if skips_zeros and pattern is not None:
        operand = right * pattern.bytes_per_weight(element_bytes=narrow)
    scaled, cast, across = {
        Role.OUTPUT: (left, left, 1), Role.INPUT_GRADIENT: (left, left, 2), Role.WEIGHT_GRADIENT: (0, left, 1)
    }[op.role]  # fmt: skip
    if recipe.delayed_scales:
        across = 2
    scaled_weights, cast_weights = _weights_passed(op, recipe)
    stored = weight_bytes(right, op.packed, element_bytes=element_bytes)
    passes: list[Kernel] = []
    if not (recipe.block_scaled or recipe.delayed_scales) and op.role is not Role.WEIGHT_GRADIENT:
        read_bytes, flop = element_bytes * scaled + scaled_weights * stored, scaled + scaled_weights * right
        passes.append(Stream(read_bytes=read_bytes, written_bytes=0, flop_count=flop, efficiency="max"))
    if not (recipe.delayed_scales and op.role is Role.WEIGHT_GRADIENT):  # the output has cast its operands
        passes.append(
            Stream(
                read_bytes=element_bytes * cast + cast_weights * stored,
                written_bytes=narrow * across * left + cast_weights * operand,
                flop_count=cast + cast_weights * right,
                efficiency="cast",
            )
        )
    reread = product.read_bytes - element_bytes * (left + right)
    is_split = recipe.splits_accumulator and op.role is not Role.OUTPUT
    name = product.efficiency.replace("gemm", SPLIT_ACCUMULATOR if is_split else NARROW_PRODUCT, 1)
    of_cast = replace(
        product.over_half if skips_zeros else product, read_bytes=narrow * left + operand + reread, efficiency=name
    )
    return in_one_call((*passes, of_cast))
