"""The rules by which a framework turns operations into kernels: plain records, no times and no file format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from perfmodel.framework.narrow import NarrowRecipe
from perfmodel.hardware import source as spec
from perfmodel.records import SINGLE_BYTES, Role


class PassRule(spec.SpecTable):
    """Reads and writes of a tensor in one pass, if they differ from the compulsory count.

    ``in_single``: elements are of single precision; narrower ones are converted before, and the result after.
    """

    reads: spec.NonNegativeNumber
    writes: spec.NonNegativeNumber
    launches: Annotated[int, Field(ge=0, strict=True)] = 1
    bandwidth_of: spec.Identifier | None = None
    in_single: bool = False

    def traffic(self, tensor_elements: Any, *, element_bytes: int) -> tuple[Any, Any, int]:
        """Bytes read and written, and launches, for a main tensor of so many elements."""
        if not self.in_single or element_bytes >= SINGLE_BYTES:
            size = element_bytes * tensor_elements
            return self.reads * size, self.writes * size, self.launches
        conversions = (SINGLE_BYTES + element_bytes) * tensor_elements  # to single precision, and back
        size = SINGLE_BYTES * tensor_elements
        return self.reads * size + conversions, self.writes * size + conversions, self.launches + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentRules:
    """Rules by which a framework runs a recurrent layer."""

    gate_products: Literal["grouped", "per_gate"] = "grouped"
    input_product: Literal["per_step", "concatenated", "hoisted"] = "per_step"
    weight_gradient: Literal["per_step", "hoisted"] = "per_step"
    forward_pointwise_kernels: int = 17
    backward_pointwise_kernels: int = 25
    library: tuple[str, ...] = ()
    persistent_units: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class LoweringRules:
    """Rules by which a framework lowers neutral operations on one kind of processor."""

    convolution_algorithms: tuple[str, ...]
    groups_together: bool = False
    layout_passes: bool = False
    grouped_channels: tuple[int, ...] | None = None
    attention: bool = False
    packed_weights: tuple[str, ...] = ()
    sparse_products: bool = False
    narrow: NarrowRecipe | None = None
    bias: Literal["fused", "separate"] = "separate"
    gradient_accumulation: bool | Literal["apart"] = False
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
        """Return whether a product or convolution adds its result to a buffer, which it then reads."""
        accumulated = {
            Role.WEIGHT_GRADIENT: self.gradient_accumulation is True,
            Role.INPUT_GRADIENT: self.input_gradient_accumulation,
        }
        return accumulated.get(role, False)

    def clears(self, role: Role) -> bool:
        """Return whether a pass clears the buffer first; the optimizer clears those of weights."""
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
