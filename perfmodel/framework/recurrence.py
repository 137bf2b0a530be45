"""Recurrent layers in frameworks: cell by cell, or whole sequences by the DNN library's own kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perfmodel.framework.rules import FUSED, PERSISTENT, RecurrentTable
from perfmodel.kernels import Alternative, Elements, Kernel, Matmul, Stream, in_one_call
from perfmodel.records import Recurrence, Role

RECURRENT_PRODUCT = "recurrent_gemm"
"""Efficiency of a library's product with the recurrent matrix, one a time step."""

PERSISTENT_PRODUCT = "recurrent_persistent"
"""Efficiency of all time steps in one launch."""

PERSISTENT_MULTIPLE = 128
"""Units and features must be multiples of this for a persistent kernel [1]_. [1]

.. [1] PyTorch, aten/src/ATen/native/cudnn/RNN.cpp, use_persist_common_heuristics.
"""

HALF_BYTES = 2
"""Size of the elements that persistent kernels are asked for. [B]"""

LIBRARY_RULES = RecurrentTable.model_construct(
    gate_products="grouped",
    input_product="hoisted",
    weight_gradient="hoisted",
    forward_pointwise_kernels=1,
    backward_pointwise_kernels=1,
)
"""Rules of a library's fused layer, the same for every caller."""


def _gate_split(op: Recurrence, rules: RecurrentTable) -> tuple[int, int]:
    """Return the number of products per step and the columns of each."""
    if rules.gate_products == "grouped":
        return 1, op.gate_count * op.hidden_size
    return op.gate_count, op.hidden_size


def _pointwise(op: Recurrence, rules: RecurrentTable, *, element_bytes: int) -> Stream:
    """Return the element-wise kernels of one step: each reads about two tensors of N x h and writes one."""
    backward = op.role is Role.INPUT_GRADIENT
    kernel_count = rules.backward_pointwise_kernels if backward else rules.forward_pointwise_kernels
    passes = max(kernel_count, (1 + backward) * op.gate_count + op.state_count)
    state = op.batch_size * op.hidden_size
    flop, moved = (1 + backward) * op.pointwise_flop_count * state / kernel_count, state * passes / kernel_count
    launches = kernel_count * op.steps
    return Elements(element_bytes).stream("recurrent_pointwise", 2 * moved, moved, flop_count=flop, launches=launches)


def _in_steps(op: Recurrence, rules: RecurrentTable, element_bytes: int) -> tuple[Kernel, ...]:
    """Return the kernels of all time steps; the input gradient's products have features and gates exchanged."""
    splits, columns = _gate_split(op, rules)
    per_step, backward = splits * op.steps, op.role is Role.INPUT_GRADIENT

    def product(rows: Any, features: Any, *, launches: Any, efficiency: str = "gemm") -> Matmul:
        n, k = (features, columns) if backward else (columns, features)
        return Elements(element_bytes).product(rows, n, k, launches=launches, efficiency=efficiency)

    pointwise = _pointwise(op, rules, element_bytes=element_bytes)
    if rules.input_product == "concatenated":
        return (product(op.batch_size, op.input_size + op.hidden_size, launches=per_step), pointwise)
    # every step waits for the product with the recurrent matrix
    through_time = product(op.batch_size, op.hidden_size, launches=per_step, efficiency=RECURRENT_PRODUCT)
    if backward and op.input_size == 0:  # the input needs no gradient
        return (through_time, pointwise)
    if rules.input_product == "hoisted":
        of_input = product(op.batch_size * op.steps, op.input_size, launches=splits)
    else:
        of_input = product(op.batch_size, op.input_size, launches=per_step)
    return (through_time, of_input, pointwise) if backward else (of_input, through_time, pointwise)


def _weight_gradient(op: Recurrence, rules: RecurrentTable, element_bytes: int) -> tuple[Kernel, ...]:
    splits, columns = _gate_split(op, rules)
    hoisted = rules.weight_gradient == "hoisted"
    rows, steps = op.batch_size * (op.steps if hoisted else 1), 1 if hoisted else op.steps
    sources: tuple[int, ...] = (op.input_size, op.hidden_size)
    if rules.input_product == "concatenated":
        sources = (sum(sources),)
    of, gates = Elements(element_bytes), op.gate_count * op.hidden_size
    products = (of.product(features, columns, rows, launches=splits * steps, adds=not hoisted) for features in sources)
    bias = of.stream("bias_gradient", rows * gates, gates, flop_count=rows * gates, launches=steps)
    return (*products, bias)


_BY_ROLE = {Role.OUTPUT: _in_steps, Role.INPUT_GRADIENT: _in_steps, Role.WEIGHT_GRADIENT: _weight_gradient}


def _persists(op: Recurrence, rules: RecurrentTable, element_bytes: int) -> bool:
    """Return whether the framework asks the library to keep a layer's weights in registers, and the library can."""
    if rules.persistent_units is None or op.role is Role.WEIGHT_GRADIENT:
        return False
    sizes = (op.hidden_size, op.input_size)
    return (
        element_bytes == HALF_BYTES
        and op.hidden_size <= rules.persistent_units
        and not any(size % PERSISTENT_MULTIPLE for size in sizes)
    )


def _persistent(op: Recurrence, kernels: tuple[Kernel, ...], element_bytes: int) -> tuple[Kernel, ...]:
    """Return a layer that runs all its steps in one launch, including products, and reads the weights once."""
    (product,) = (kernel for kernel in kernels if kernel.efficiency == RECURRENT_PRODUCT)
    assert isinstance(product, Matmul)
    beside = tuple(kernel for kernel in kernels if isinstance(kernel, Matmul) and kernel is not product)
    read = element_bytes * (product.k * product.n + op.steps * product.m * product.k)
    written = element_bytes * op.steps * product.m * product.n
    whole = replace(
        product,
        count=op.steps,
        launches=1,
        read_bytes=read,
        written_bytes=written,
        efficiency=PERSISTENT_PRODUCT,
    )
    return (*beside, whole)


def _is_nothing(kernel: Kernel) -> bool:
    """Return whether a kernel is a product without features, which is never launched."""
    return isinstance(kernel, Matmul) and any(
        isinstance(extent, int) and extent == 0 for extent in (kernel.m, kernel.k)
    )


def recurrence_alternatives(
    operation: Recurrence,
    *,
    rules: RecurrentTable,
    library: tuple[str, ...] = (),
    product_efficiency: str = "gemm",
    element_bytes: int,
) -> tuple[Alternative, ...]:
    """Return the kernels of a recurrent layer or one of its gradients, by the framework's rules or its library's.

    Notes
    -----
    Kernels per layer and step, forward [1]_: unfused 8 products + 17 element-wise kernels, gate-grouped
    2 + 17, fused 2 + 1, hoisted 1 per step and 1 per layer. Going back, the product with the recurrent matrix runs at
    every step, including the first: libraries compute the gradient of the first state even if not needed, which the
    operation's own count of FLOP then leaves out. Products over all steps run as fast as the BLAS's, on
    which DeepBench's weight gradients lie within 7 %. Ignores: overlapping time steps of stacked layers.

    References
    ----------
    .. [1] Appleyard, Kocisky, Blunsom, Optimizing Performance of Recurrent Neural Networks on GPUs,
       arXiv:1604.01946.
    """
    fused = FUSED in library
    lowering_rules = LIBRARY_RULES if fused else rules
    kernels = tuple(
        replace(kernel, efficiency=product_efficiency)
        if isinstance(kernel, Matmul) and (kernel.efficiency == "gemm" or not fused)
        else kernel
        for kernel in _BY_ROLE[operation.role](operation, lowering_rules, element_bytes)
        if not _is_nothing(kernel)
    )
    if not fused:
        return (Alternative(name=f"{rules.input_product}_{rules.gate_products}", kernels=kernels),)
    step_by_step = Alternative(name=FUSED, kernels=in_one_call(kernels))
    if PERSISTENT not in library or not _persists(operation, rules, element_bytes):
        return (step_by_step,)
    persistent = in_one_call(_persistent(operation, kernels, element_bytes))
    return (step_by_step, Alternative(name=PERSISTENT, kernels=persistent))
