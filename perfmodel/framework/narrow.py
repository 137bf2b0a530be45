"""Recipes by which the linear layers of a 16-bit network run in eight bits or four; all else stays as it was.

Activations, weights, gradients and the optimizer's copies keep the width of the base type. For each product the
operands are scaled (a pass for the largest value, unless each small block has a scale of its own) and cast; tensor
cores want both along the sum, so that what two products use in two directions is cast twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from perfmodel.kernels import Kernel, Matmul, Stream, in_one_call
from perfmodel.records import Contraction, Role

ALIGNED = 16
"""Extents of a weight are multiples of so many elements, or its products stay in the base type. [1]"""

NARROW_PRODUCT: Final = "gemm_narrow"
"""Efficiency name of a product of cast operands."""


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
    """

    base: str = "bf16"
    operand_bytes: float
    block_scaled: bool = False


RECIPES: Final = {
    "fp8": NarrowRecipe(operand_bytes=1.0),
    "mxfp8": NarrowRecipe(operand_bytes=1 + 1 / 32, block_scaled=True),
    "nvfp4": NarrowRecipe(operand_bytes=0.5 + 1 / 16, block_scaled=True),
    "int8": NarrowRecipe(operand_bytes=1.0),
}
"""Data type of a job -> the recipe that it stands for."""


def base_dtype(dtype: str) -> str:
    """Return the data type in which a network is kept: of a recipe, its base.

    Examples
    --------
    >>> base_dtype("fp8"), base_dtype("fp16")
    ('bf16', 'fp16')
    """
    return RECIPES[dtype].base if dtype in RECIPES else dtype


def _is_aligned(extent: Any) -> bool:
    return not isinstance(extent, int) or extent % ALIGNED == 0


def takes_narrow(op: Contraction) -> bool:
    """Return whether a product is one of a linear layer whose weights have aligned extents."""
    weight = (op.m, op.n) if op.role is Role.WEIGHT_GRADIENT else (op.n, op.k)
    return op.has_weights and op.count == 1 and all(map(_is_aligned, weight))


def narrow_product(op: Contraction, product: Matmul, *, recipe: NarrowRecipe, element_bytes: int) -> tuple[Kernel, ...]:
    """Return a product of cast operands with its passes, as one call.

    Parameters
    ----------
    op : Contraction
        Product with the weights, or a gradient of it. [-]
    product : Matmul
        The same in the base type. [-]
    recipe : NarrowRecipe
        The data types. [-]
    element_bytes : int
        Size of one element of the base type. [B]

    Returns
    -------
    tuple of Kernel
        Scaling, casts and the product. [-]

    Notes
    -----
    The output scales and casts inputs and weights; the input gradient scales the incoming gradients and casts them in
    both directions, and the weights across; the weight gradient casts the inputs across and reuses the gradients.

    References
    ----------
    .. [1] Micikevicius et al., FP8 formats for deep learning, arXiv:2209.05433.
    .. [2] PyTorch, torchao.float8, dynamic scaling of whole tensors (``docs.pytorch.org/ao``).
    """
    left, right, narrow = op.m * op.k, op.k * op.n, recipe.operand_bytes
    scaled, cast, written = {
        Role.OUTPUT: (left + right, left + right, left + right),
        Role.INPUT_GRADIENT: (left, left + right, 2 * left + right),
        Role.WEIGHT_GRADIENT: (0, left, left),
    }[op.role]
    passes: list[Kernel] = []
    if not recipe.block_scaled and op.role is not Role.WEIGHT_GRADIENT:
        passes.append(Stream(read_bytes=element_bytes * scaled, written_bytes=0, flop_count=scaled, efficiency="max"))
    passes.append(
        Stream(read_bytes=element_bytes * cast, written_bytes=narrow * written, flop_count=cast, efficiency="cast")
    )
    reread = product.read_bytes - element_bytes * (left + right)
    name = product.efficiency.replace("gemm", NARROW_PRODUCT, 1)
    of_cast = replace(product, read_bytes=narrow * (left + right) + reread, efficiency=name)
    return in_one_call((*passes, of_cast))
