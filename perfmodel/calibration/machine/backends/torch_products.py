"""Products of torch: dense layers, batched products, convolutions, each with both gradients apart."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from perfmodel.calibration.machine.backends.torch_tools import TorchTools
from perfmodel.calibration.machine.benchmark import Benchmark, Prepared, Sizes
from perfmodel.calibration.machine.families import (
    BATCHED_AXES,
    CONTRACTION_AXES,
    CONVOLUTIONS,
    ROLES,
    batched_contraction,
    contraction,
)
from perfmodel.records import Convolution, Operation, Role

DENSE_POINTS: Final = 60
"""Shapes of each product of a dense layer, which most networks spend most of their time in [1]."""


def _dense(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare what autograd of ``F.linear`` runs; weights are kept by outputs."""
    rows, inputs, outputs = sizes["rows"], sizes["inputs"], sizes["outputs"]
    if operation.role is Role.OUTPUT:
        linear = tools.torch.nn.functional.linear
        return Prepared(
            partial(linear, tools.normal(rows, inputs), tools.normal(outputs, inputs), tools.normal(outputs))
        )
    gradient = tools.normal(rows, outputs)
    if operation.role is Role.INPUT_GRADIENT:
        return Prepared(partial(tools.torch.mm, gradient, tools.normal(outputs, inputs)))
    return Prepared(partial(tools.torch.mm, gradient.t(), tools.normal(rows, inputs)))


def _batched(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare a batched product; a gradient reads one operand transposed."""
    count, m, n, k = sizes["count"], sizes["rows"], sizes["columns"], sizes["inner"]
    if operation.role is Role.OUTPUT:
        left, right = tools.normal(count, m, k), tools.normal(count, k, n)
    elif operation.role is Role.INPUT_GRADIENT:
        left, right = tools.normal(count, m, k), tools.normal(count, n, k).transpose(1, 2)
    else:
        left, right = tools.normal(count, k, m).transpose(1, 2), tools.normal(count, k, n)
    return Prepared(partial(tools.torch.bmm, left, right))


def _convolution(tools: TorchTools, sizes: Sizes, operation: Operation) -> Prepared:
    """Prepare a convolution, or one of its gradients by the output mask of ``convolution_backward``."""
    assert isinstance(operation, Convolution)
    del sizes
    op, torch = operation, tools.torch
    along = len(op.kernel_size)
    maps = tools.normal(op.batch_size, op.in_channels, *op.input_size)
    filters = tools.normal(op.out_channels, op.in_channels // op.groups, *op.kernel_size)
    padding = [first for first, _ in op.padding]
    stride, dilation = list(op.stride), list(op.dilation)
    if op.role is Role.OUTPUT:
        convolve = getattr(torch.nn.functional, f"conv{along}d")
        return Prepared(partial(convolve, maps, filters, None, stride, padding, dilation, op.groups))
    wanted = [op.role is Role.INPUT_GRADIENT, op.role is Role.WEIGHT_GRADIENT, False]
    gradient = tools.normal(op.batch_size, op.out_channels, *op.output_size)
    geometry = (stride, padding, dilation, False, [0] * along, op.groups, wanted)
    return Prepared(partial(torch.ops.aten.convolution_backward, gradient, maps, filters, None, *geometry))


def benchmarks() -> Iterator[Benchmark]:
    """Yield the benchmarks of products."""
    for role in ROLES:
        yield Benchmark(
            name=f"gemm_{role.value}",
            axes=CONTRACTION_AXES,
            operation=partial(_in_role, contraction, role),
            prepare=_dense,
            point_count=DENSE_POINTS,
            weight=4,
        )
        if role is not Role.WEIGHT_GRADIENT:  # the layer of batched products calls both its gradients input gradients
            yield Benchmark(
                name=f"batched_gemm_{role.value}",
                axes=BATCHED_AXES,
                operation=partial(_in_role, batched_contraction, role),
                prepare=_batched,
            )
        for family in CONVOLUTIONS:
            yield Benchmark(
                name=f"{family.name}_{role.value}",
                axes=family.axes,
                operation=partial(_in_role, family.operation, role),
                prepare=_convolution,
                weight=family.weight,
            )


def _in_role(make: Any, role: Role, sizes: Sizes) -> Operation:
    operation: Operation = make(sizes, role)
    return operation
