"""The rules by which a framework turns operations into kernels: plain records, no times and no file format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from perfmodel.records import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRule:
    """How often a framework reads and writes a tensor for one pass, where that differs from the compulsory count.

    Parameters
    ----------
    reads, writes : float
        Times the tensor is read and written, in units of the operation's main tensor. [1]
    launches : int
        Kernels it takes; zero where the framework does without the pass. [1]
    bandwidth_of : str or None
        The pass whose rate its kernels reach, where they are of another kind than the pass's name says. [-]
    """

    reads: float
    writes: float
    launches: int = 1
    bandwidth_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentRules:
    """How a framework runs a recurrent layer.

    Parameters
    ----------
    gate_products : str
        ``grouped``: one product yields all gates; ``per_gate``: one product each. [-]
    input_product : str
        ``per_step``: x W at every step; ``concatenated``: [x, h] in one product per step; ``hoisted``: one product
        over all steps before the recurrence. [-]
    weight_gradient : str
        ``per_step``: a product per step, summed as it goes; ``hoisted``: one product over all steps. [-]
    forward_pointwise_kernels, backward_pointwise_kernels : int
        Element-wise kernels per step and layer. [1]
    library : tuple of str
        Ways of the DNN library to run whole layers that the framework calls, in place of the above. [-]
    persistent_units : int or None
        Most units of a layer for which it asks for a persistent kernel; None for never. [1]
    """

    gate_products: Literal["grouped", "per_gate"] = "grouped"
    input_product: Literal["per_step", "concatenated", "hoisted"] = "per_step"
    weight_gradient: Literal["per_step", "hoisted"] = "per_step"
    forward_pointwise_kernels: int = 17
    backward_pointwise_kernels: int = 25
    library: tuple[str, ...] = ()
    persistent_units: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweringRules:
    """What a framework does with neutral operations on one kind of processor.

    Parameters
    ----------
    convolution_algorithms : tuple of str
        Algorithms the library offers on this architecture, or the framework's own. [-]
    groups_together : bool
        Whether one launch serves all groups of a convolution; else each group has its own. [-]
    layout_passes : bool
        Whether the library transposes the images that its tensor cores read before every convolution. [-]
    bias : str
        ``fused`` into the product, or a ``separate`` pass over the output. [-]
    gradient_accumulation : bool
        Whether weight gradients are added into buffers (read, then written) rather than overwritten. [-]
    input_gradient_accumulation : bool
        Whether products and convolutions add the gradients of their inputs to buffers that are cleared before. [-]
    convolution_transposes : bool
        Whether images are transposed to the library's layout and back around every convolution. [-]
    padding_copies : bool
        Whether images that are padded more on one side are copied into padded ones before every convolution. [-]
    pointwise_products : bool
        Whether 1 x 1 convolutions without a stride are plain products of the BLAS in the framework's own layout. [-]
    depthwise_kernel : bool
        Whether depth-wise convolutions run in a kernel of the framework's own, one launch for all channels. [-]
    weight_layout : str
        ``in_out``: a dense layer's weights lie as (inputs, outputs) beside samples in rows, so that the input gradient
        reads them transposed; ``out_in``: as (outputs, inputs), so that the forward product does. [-]
    serial_rows : tuple of str
        Reductions whose every row one thread goes through alone. [-]
    batched_contraction : str
        ``batched`` into one launch, or a ``loop`` of launches. [-]
    recurrent : RecurrentRules
        How recurrent layers run. [-]
    passes : mapping of str to PassRule
        Passes that differ from the compulsory count, keyed ``<name>`` (forward, update) and ``<name>_backward``. [-]
    """

    convolution_algorithms: tuple[str, ...]
    groups_together: bool = False
    layout_passes: bool = False
    bias: Literal["fused", "separate"] = "separate"
    gradient_accumulation: bool = False
    input_gradient_accumulation: bool = False
    convolution_transposes: bool = False
    padding_copies: bool = False
    pointwise_products: bool = False
    depthwise_kernel: bool = False
    weight_layout: Literal["in_out", "out_in"] = "in_out"
    serial_rows: tuple[str, ...] = ()
    batched_contraction: Literal["batched", "loop"] = "batched"
    recurrent: RecurrentRules = field(default_factory=RecurrentRules)
    passes: Mapping[str, PassRule] = field(default_factory=dict)

    def accumulates(self, role: Role) -> bool:
        """Tell whether what a product or convolution yields is added to a buffer, which it reads then."""
        accumulated = {
            Role.WEIGHT_GRADIENT: self.gradient_accumulation,
            Role.INPUT_GRADIENT: self.input_gradient_accumulation,
        }
        return accumulated.get(role, False)

    def clears(self, role: Role) -> bool:
        """Tell whether the buffer is cleared before in a pass of its own; those of weights are in the optimizer's."""
        return role is Role.INPUT_GRADIENT and self.accumulates(role)

    def product_efficiency(self, role: Role) -> str:
        """Return the name of the efficiency of a product with weights, by what it yields.

        Examples
        --------
        >>> LoweringRules(convolution_algorithms=(), weight_layout="out_in").product_efficiency(Role.OUTPUT)
        'gemm_transposed'
        """
        reads_across = {"in_out": Role.INPUT_GRADIENT, "out_in": Role.OUTPUT}[self.weight_layout]
        return "gemm_transposed" if role is reads_across else "gemm"
