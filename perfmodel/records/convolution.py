"""The convolution among the operations: plain or transposed, over any number of axes, and its gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from perfmodel.numeric import share_of
from perfmodel.records.work import Quantity, Role, Work


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
    role : Role
        OUTPUT, INPUT_GRADIENT or WEIGHT_GRADIENT. [-]
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
    role: Role = Role.OUTPUT

    @property
    def mirrored(self) -> Convolution:
        """The plain convolution from this one's output to its input, in the role that does this one's products.

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
        """Elements of the filter bank. [1]"""
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
        x, w, y = self.input_elements, self.weight_elements, self.output_elements
        read, written = {
            Role.OUTPUT: (x + w + self.bias_elements, y),
            Role.INPUT_GRADIENT: (y + w, x),
            Role.WEIGHT_GRADIENT: (x + y, w),
        }[self.role]
        return Work(flop_count, element_bytes * read, element_bytes * written)
