"""Lowering: a framework's rules turn each neutral operation into alternative kernels. No times here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from perfmodel.framework.attention import attention_alternatives
from perfmodel.framework.convolution import convolution_alternatives, implicit_product
from perfmodel.framework.cpu_convolution import cpu_convolution_alternatives
from perfmodel.framework.kernel_classes import KERNEL_OF, is_depthwise, lower_as_measured, streamed
from perfmodel.framework.recurrence import recurrence_alternatives
from perfmodel.framework.rules import LoweringRules
from perfmodel.kernels import Alternative, Kernel, Matmul, Stream, in_one_call
from perfmodel.records import Attention, Contraction, Convolution, Gather, MemoryPass, Operation, Recurrence, Role

Alternatives = tuple[Alternative, ...]

MOST_CONVOLUTIONS: Final = 4096
"""Convolutions kept as lowered: frameworks, phases of a step and parts of a network have many in common. [1]"""

_BACKWARD = (Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT)


def _bias_pass(output_elements: Any, *, element_bytes: int) -> Stream:
    moved = element_bytes * output_elements
    return Stream(read_bytes=moved, written_bytes=moved, flop_count=output_elements, efficiency="bias")


def _clearing_pass(elements: Any, *, element_bytes: int) -> Stream:
    return Stream(read_bytes=0, written_bytes=element_bytes * elements, flop_count=0, efficiency="clear")


def _lower_contraction(
    operation: Contraction, *, rules: LoweringRules, element_bytes: int, processor: str
) -> Alternatives:
    op = operation
    loops = rules.batched_contraction == "loop"
    accumulated = op.m * op.n if rules.accumulates(op.role) else 0
    per_launch = 1 if loops else op.count
    product = Matmul(
        m=op.m,
        n=op.n,
        k=op.k,
        count=per_launch,
        read_bytes=element_bytes * per_launch * (op.m * op.k + op.k * op.n + accumulated),
        written_bytes=element_bytes * per_launch * op.m * op.n,
        efficiency=rules.product_efficiency(op.role),
        launches=op.count if loops else 1,
    )
    kernels: tuple[Kernel, ...] = (product,)
    if op.bias_elements and rules.bias == "separate":
        kernels = (product, _bias_pass(op.count * op.m * op.n, element_bytes=element_bytes))
    if rules.clears(op.role):
        kernels = (_clearing_pass(op.count * op.m * op.n, element_bytes=element_bytes), *kernels)
    return (Alternative(name="gemm", kernels=kernels),)


def _layout_passes(sizes: tuple[Any, ...], *, element_bytes: int) -> tuple[Kernel, ...]:
    """Transposes of tensors of so many elements between the framework's layout and the library's, in its call."""
    moved = [element_bytes * size for size in sizes]
    return tuple(Stream(read_bytes=m, written_bytes=m, efficiency="transpose", library_launches=1) for m in moved)


def _transposed_sizes(operation: Convolution, *, rules: LoweringRules, depthwise: bool) -> tuple[Any, ...]:
    """Return the elements of what is transposed around a convolution.

    A framework transposes all three tensors. A library's tensor-core kernels write their result in either layout, so
    that only the images among the operands are transposed for them.
    """
    x, w, y = operation.input_elements, operation.weight_elements, operation.output_elements
    if rules.convolution_transposes:
        return (x, y, w)
    if depthwise or not rules.layout_passes:
        return ()
    return {Role.OUTPUT: (x,), Role.INPUT_GRADIENT: (y,), Role.WEIGHT_GRADIENT: (x, y)}[operation.role]


def _padding_copy(operation: Convolution, *, element_bytes: int) -> tuple[Kernel, ...]:
    """Copy of the image, or of its gradient, to or from a padded one; none where both sides are padded alike."""
    if all(first == last for first, last in operation.padding):
        return ()
    size = element_bytes * operation.input_elements
    return (Stream(read_bytes=size, written_bytes=size, efficiency="pad"),)


def _on_cpu(operation: Convolution, *, algorithms: tuple[str, ...], element_bytes: int) -> Alternatives:
    return tuple(
        alternative
        for algorithm in algorithms
        for alternative in cpu_convolution_alternatives(operation, algorithm=algorithm, element_bytes=element_bytes)
    )


_CONVOLUTION: dict[str, Callable[..., Alternatives]] = {"gpu": convolution_alternatives, "cpu": _on_cpu}


def _rereading(kernels: tuple[Kernel, ...], *, read_bytes: Any) -> tuple[Kernel, ...]:
    """Return the same kernels, the last of which also reads the buffer that it adds into."""
    *earlier, last = kernels
    return (*earlier, replace(last, read_bytes=last.read_bytes + read_bytes))


def _is_pointwise(operation: Convolution) -> bool:
    """Tell whether a convolution is a product of its images, as they lie channel by channel, and its weights."""
    one_tap, no_stride = math.prod(operation.kernel_size) == 1, math.prod(operation.stride) == 1
    padded = any(side for sides in operation.padding for side in sides)
    return one_tap and no_stride and not padded and operation.groups == 1


def _pointwise_product(operation: Convolution, *, rules: LoweringRules, element_bytes: int) -> Alternatives:
    product, work = implicit_product(operation), operation.work(element_bytes=element_bytes)
    efficiency = rules.product_efficiency(operation.role)
    kernel = product.matmul(work.read_bytes, work.written_bytes, efficiency=efficiency)
    return (Alternative(name="pointwise_gemm", kernels=(kernel,)),)


def _depthwise_kernel(operation: Convolution, *, element_bytes: int) -> Alternatives:
    """Return one launch over all channels; with one channel to sum over it is bound by the maps it moves."""
    name = "depthwise_weight_gradient" if operation.role is Role.WEIGHT_GRADIENT else "depthwise"
    return (Alternative(name="depthwise", kernels=(streamed(operation, name, element_bytes=element_bytes),)),)


def _in_one_launch(alternative: Alternative, *, groups: int) -> Alternative:
    """Return the alternative with one launch for all groups of a convolution in place of one for each."""
    kernels: list[Kernel] = []
    for kernel in alternative.kernels:
        together = replace(
            kernel, read_bytes=kernel.read_bytes * groups, written_bytes=kernel.written_bytes * groups, launches=1
        )
        kernels.append(replace(together, count=together.count * groups) if isinstance(together, Matmul) else together)
    workspace = alternative.workspace_bytes * groups
    return replace(alternative, kernels=tuple(kernels), workspace_bytes=workspace)


@lru_cache(maxsize=MOST_CONVOLUTIONS)
def _convolved(
    operation: Convolution, *, algorithms: tuple[str, ...], together: bool, element_bytes: int, processor: str
) -> Alternatives:
    """Return what runs for a convolution, algorithm by algorithm, on a GPU each in one call of the library."""
    alternatives = _CONVOLUTION[processor](operation, algorithms=algorithms, element_bytes=element_bytes)
    if together and operation.groups > 1:
        alternatives = tuple(_in_one_launch(each, groups=operation.groups) for each in alternatives)
    if processor == "gpu":
        alternatives = tuple(replace(each, kernels=in_one_call(each.kernels)) for each in alternatives)
    return alternatives


def _lower_convolution(
    operation: Convolution, *, rules: LoweringRules, element_bytes: int, processor: str
) -> Alternatives:
    # libraries run a transposed convolution as the input gradient of the convolution that it mirrors
    plain = operation.mirrored if operation.transposed else operation
    direct = rules.pointwise_products and _is_pointwise(plain)
    depthwise = rules.depthwise_kernel and is_depthwise(plain)
    if direct:
        alternatives = _pointwise_product(plain, rules=rules, element_bytes=element_bytes)
    elif depthwise:
        alternatives = _depthwise_kernel(plain, element_bytes=element_bytes)
    else:
        alternatives = _convolved(
            plain,
            algorithms=rules.convolution_algorithms,
            together=rules.groups_together,
            element_bytes=element_bytes,
            processor=processor,
        )
    extra: tuple[Kernel, ...] = ()
    if operation.bias_elements and rules.bias == "separate":
        extra += (_bias_pass(operation.output_elements, element_bytes=element_bytes),)
    sizes = () if direct else _transposed_sizes(operation, rules=rules, depthwise=depthwise)
    if rules.padding_copies and not direct:
        extra += _padding_copy(operation, element_bytes=element_bytes)
    extra += _layout_passes(sizes, element_bytes=element_bytes)
    if rules.clears(operation.role):
        extra += (_clearing_pass(operation.input_elements, element_bytes=element_bytes),)
    result = {Role.WEIGHT_GRADIENT: operation.weight_elements, Role.INPUT_GRADIENT: operation.input_elements}
    reread = element_bytes * result[operation.role] if rules.accumulates(operation.role) else 0
    if not extra and not rules.accumulates(operation.role):
        return alternatives
    return tuple(replace(each, kernels=(*_rereading(each.kernels, read_bytes=reread), *extra)) for each in alternatives)


def _lower_memory_pass(
    operation: MemoryPass, *, rules: LoweringRules, element_bytes: int, processor: str
) -> Alternatives:
    op = operation
    key = f"{op.name}_backward" if op.role in _BACKWARD else op.name
    rule = rules.passes.get(key)
    size = element_bytes * op.tensor_elements
    work = op.work(element_bytes=element_bytes)
    read, written = (work.read_bytes, work.written_bytes) if rule is None else (rule.reads * size, rule.writes * size)
    parts = op.parts if rules.batched_contraction == "loop" else 1
    launches = parts if rule is None else parts * rule.launches
    shares = launches if rule is None or rule.launches else 1
    kernel = Stream(
        read_bytes=read / shares,
        written_bytes=written / shares,
        flop_count=op.flop_count / shares,
        serial_steps=op.row_elements if key in rules.serial_rows else 0,
        efficiency=key if rule is None or rule.bandwidth_of is None else rule.bandwidth_of,
        launches=launches,
    )
    return (Alternative(name=key, kernels=(kernel,)),)


def _lower_gather(operation: Gather, *, rules: LoweringRules, element_bytes: int, processor: str) -> Alternatives:
    name = "gather" if operation.role is Role.OUTPUT else "scatter_add"
    return (Alternative(name=name, kernels=(streamed(operation, name, element_bytes=element_bytes),)),)


def _lower_recurrence(
    operation: Recurrence, *, rules: LoweringRules, element_bytes: int, processor: str
) -> Alternatives:
    return recurrence_alternatives(
        operation,
        rules=rules.recurrent,
        product_efficiency=rules.product_efficiency(operation.role),
        element_bytes=element_bytes,
    )


def _lower_attention(operation: Attention, *, rules: LoweringRules, element_bytes: int, processor: str) -> Alternatives:
    return attention_alternatives(
        operation,
        loops=rules.batched_contraction == "loop",
        arithmetic_apart=processor == "cpu",
        element_bytes=element_bytes,
    )


LOWERING: dict[str, Callable[..., Alternatives]] = {
    Contraction.kind: _lower_contraction,
    Convolution.kind: _lower_convolution,
    Attention.kind: _lower_attention,
    MemoryPass.kind: _lower_memory_pass,
    Gather.kind: _lower_gather,
    Recurrence.kind: _lower_recurrence,
}
"""Operation kind to the function that lowers it by a framework's rules."""

LOWERING_ON: dict[str, Mapping[str, Callable[..., Alternatives]]] = {
    "gpu": LOWERING,
    "cpu": LOWERING,
    "measured": dict.fromkeys(KERNEL_OF, lower_as_measured),
}
"""Kind of processor -> the functions that lower for it; a measured one runs each operation as one kernel."""


def lower(operation: Operation, *, rules: LoweringRules, element_bytes: int, processor: str) -> Alternatives:
    """Turn one operation into the alternative kernel sequences a framework could run for it.

    Parameters
    ----------
    operation : Operation
        What is to be computed. [-]
    rules : LoweringRules
        The framework's rules on this kind of processor. [-]
    element_bytes : int
        Size of one element. [B]
    processor : str
        ``gpu``, ``cpu``, or ``measured`` for either where it was calibrated. [-]

    Returns
    -------
    tuple of Alternative
        At least one; the fastest whose workspace fits is chosen when times are known.
    """
    return LOWERING_ON[processor][operation.kind](
        operation, rules=rules, element_bytes=element_bytes, processor=processor
    )
