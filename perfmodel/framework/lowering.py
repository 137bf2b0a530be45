"""Lowering: a framework's rules turn each operation, attention too, into alternative kernels. No times here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from typing import Any, Final

from perfmodel.framework.convolution import convolution_alternatives, implicit_product
from perfmodel.framework.cpu_convolution import cpu_convolution_alternatives
from perfmodel.framework.measured_lowering import is_depthwise, lower_as_measured, streamed
from perfmodel.framework.narrow import narrow_product, takes_narrow
from perfmodel.framework.recurrence import recurrence_alternatives
from perfmodel.framework.rules import LoweringRules
from perfmodel.kernels import LOAD_BYTES, Alternative, Elements, Kernel, Matmul, Stream, in_one_call
from perfmodel.numeric import minimum
from perfmodel.records import (
    Attention,
    Contraction,
    Convolution,
    Gather,
    MemoryPass,
    Operation,
    Recurrence,
    Role,
    WeightFormat,
)


def visible_keys(operation: Attention) -> Any:
    """Count the keys that a query sees on average: all, or those up to its own position if causal.

    With q queries and k keys, query i sees min(i, k): (k + 1) / 2 on average if q = k.
    """
    if not operation.causal:
        return operation.keys
    # The first queries, as many as there are keys, see one key more each; the rest see all.
    growing = minimum(operation.queries, operation.keys)
    visible_pairs = growing * (growing + 1) / 2 + (operation.queries - growing) * operation.keys
    return visible_pairs / operation.queries


@dataclass(frozen=True, slots=True)
class _Target:
    """What operations are lowered for: the rules of a framework, its elements and the kind of its processor."""

    rules: LoweringRules
    elements: Elements
    processor: str

    @property
    def size(self) -> int:
        """Size of an element. [B]"""
        return self.elements.size

    @property
    def loops(self) -> bool:
        """Whether products of several matrices are launched one by one."""
        return self.rules.batched_contraction == "loop"

    def attention_product(self, op: Attention, *sides: Any, reads: Any, writes: Any) -> Matmul:
        """Return products, one per sample and head, that move the given numbers of elements over all of them."""
        count = op.batch_size * op.heads
        m, n, k = sides
        launches = count if self.loops else 1
        return Matmul(
            m=m,
            n=n,
            k=k,
            count=1 if self.loops else count,
            read_bytes=self.size * reads / launches,
            written_bytes=self.size * writes / launches,
            launches=launches,
        )


def _score_pass(
    op: Attention, name: str, *, moved: tuple[int, int], flop_per_score: int = 0, mask_bytes: tuple[Any, Any] = (0, 0)
) -> Stream:
    """Return a pass over the matrix of scores that reads and writes the given bytes per score, and masks."""
    n = op.score_elements
    return Stream(
        read_bytes=moved[0] * n + mask_bytes[0],
        written_bytes=moved[1] * n + mask_bytes[1],
        flop_count=flop_per_score * n,
        efficiency=name,
    )


def _materialised(op: Attention, target: _Target) -> tuple[Kernel, ...]:
    n, result, narrow = op.score_elements, op.output_elements, target.size
    wide = op.softmax_bytes or narrow
    queries = op.batch_size * op.heads * op.queries * op.head_size
    values, keys = (op.batch_size * op.key_heads * op.keys * size for size in (op.value_size, op.head_size))
    multiply, score_pass = partial(target.attention_product, op), partial(_score_pass, op)
    is_forward, made = op.role is Role.OUTPUT, wide if op.casts_scores else narrow
    casts_before, casts_after = (op.casts_scores, wide != narrow) if is_forward else (wide != narrow, op.casts_scores)
    before = [score_pass("cast", moved=(narrow, wide))] if casts_before else []
    after = [score_pass("cast", moved=(wide, narrow))] if casts_after else []
    if is_forward:
        scores = multiply(op.queries, op.keys, op.head_size, reads=op.operand_elements - values, writes=n)
        context = multiply(op.queries, op.value_size, op.keys, reads=n + values, writes=result)
        softmax = score_pass("softmax", moved=(made, wide), flop_per_score=5)
        drop = score_pass("dropout", moved=(wide, wide), flop_per_score=2, mask_bytes=(0, n))
        return (scores, *before, softmax, *([drop] if op.drops else []), *after, context)
    to_values = multiply(op.keys, op.value_size, op.queries, reads=n + result, writes=values)
    to_scores = multiply(op.queries, op.keys, op.value_size, reads=result + values, writes=n)
    to_queries = multiply(op.queries, op.head_size, op.keys, reads=n + keys, writes=queries)
    to_keys = multiply(op.keys, op.head_size, op.queries, reads=n + queries, writes=keys)
    drop = score_pass("dropout_backward", moved=(wide, wide), flop_per_score=1, mask_bytes=(n, 0))
    softmax = score_pass("softmax_backward", moved=(2 * wide, made), flop_per_score=4)
    return (to_values, to_scores, *before, *([drop] if op.drops else []), softmax, *after, to_queries, to_keys)


ATTENTION_KERNELS: Final = {
    f"attention{'_causal' * causal}{'_dropout' * drops}{'_backward' * backward}": (causal, drops, backward)
    for causal, drops, backward in product((False, True), repeat=3)
}
"""Efficiency name of a fused kernel of a library -> whether it is causal, drops probabilities, computes gradients."""
_NAME_OF_TRAITS: Final = {traits: name for name, traits in ATTENTION_KERNELS.items()}


def _fused(op: Attention, target: _Target) -> tuple[Kernel, ...]:
    """Return the kernels of attention without scores in memory.

    The time of a library's own depends on its tiles and blocks; on a CPU the arithmetic of softmax is apart.
    """
    work = op.work(element_bytes=target.size)
    is_forward = op.role is Role.OUTPUT
    # The backward pass recomputes the scores besides the four products of gradients.
    summed = op.head_size + op.value_size if is_forward else 3 * op.head_size + 2 * op.value_size
    visible = visible_keys(op)
    kernel = Matmul(
        m=op.queries,
        n=visible,
        k=summed,
        count=op.batch_size * op.heads,
        read_bytes=work.read_bytes,
        written_bytes=work.written_bytes,
    )
    if target.rules.attention:
        return (replace(kernel, efficiency=_NAME_OF_TRAITS[op.causal, op.drops, not is_forward]),)
    if target.processor != "cpu":
        return (kernel,)
    softmax = Stream(
        read_bytes=0,
        written_bytes=0,
        flop_count=(work.flop_count - op.product_flop_count) * visible / op.keys,
        efficiency="softmax" if is_forward else "softmax_backward",
    )
    return (kernel, softmax)


def _repeated_keys(op: Attention, target: _Target) -> tuple[Kernel, ...]:
    """Return the passes that copy keys and values for each head of the queries, or add up their gradients."""
    passes = []
    for features in (op.head_size, op.value_size):
        shared, repeated = (op.batch_size * heads * op.keys * features for heads in (op.key_heads, op.heads))
        if op.role is Role.OUTPUT:
            passes.append(target.elements.stream("broadcast", shared, repeated))
        else:
            passes.append(target.elements.stream("broadcast_sum_backward", repeated, shared, flop_count=repeated))
    return tuple(passes)


Alternatives = tuple[Alternative, ...]
MOST_CONVOLUTIONS: Final = 4096
"""Convolutions whose lowering is cached: frameworks, phases and parts of a network share many. [1]"""
_BACKWARD = (Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT)


def _as_stored(packed: WeightFormat | None, *, element_bytes: int) -> WeightFormat | None:
    """Return the storage of weights: dense if the indices of a sparse pattern take more bytes than it saves.

    >>> half = WeightFormat(density=0.5, sparsity="unstructured")
    >>> _as_stored(half, element_bytes=2) is None, _as_stored(half, element_bytes=8) == half
    (True, True)
    """
    if packed is None:
        return None
    whole = replace(packed, density=1.0, sparsity=None)
    if packed.bytes_per_weight(element_bytes=element_bytes) < whole.bytes_per_weight(element_bytes=element_bytes):
        return packed
    return None if packed.dtype is None else whole


def _unpacking_pass(count: Any, packed: WeightFormat, target: _Target) -> Stream:
    """Pass that writes stored weights as elements: subtract and scale, or find their places."""
    stored_bytes = packed.bytes_per_weight(element_bytes=target.size) * count
    whole = target.elements.stream("unpack_weights", 0, count, flop_count=2 * count)
    return replace(whole, read_bytes=stored_bytes)


def _reads_packed(operation: Contraction, rules: LoweringRules) -> bool:
    """Return whether a framework's products read an operation's weights as they are stored."""
    packed = operation.packed
    if packed is None or not packed.names <= frozenset(rules.packed_weights):
        return False
    return packed.sparsity != "2:4" or rules.sparse_products


def _row_by_row(op: Contraction, packed: WeightFormat, target: _Target) -> Stream:
    """Return the kernel for few rows, which passes over the stored weights for each of them."""
    stored_bytes = packed.bytes_per_weight(element_bytes=target.size)
    return Stream(
        read_bytes=op.count * op.m * op.k * (target.size + stored_bytes * op.n),
        written_bytes=target.size * op.count * op.m * op.n,
        flop_count=op.product_flop_count,
        efficiency="packed_gemv",
    )


def _packed_product(op: Contraction, product: Matmul, packed: WeightFormat, target: _Target) -> tuple[Kernel, ...]:
    """Return a product that reads weights as they are stored, or one after a pass that unpacks them.

    Sparse tensor cores skip the half of a 2:4 sum that is zero.
    """
    if not _reads_packed(op, target.rules):
        return (_unpacking_pass(op.count * op.k * op.n, packed, target), product)
    spared_bytes = (target.size - packed.bytes_per_weight(element_bytes=target.size)) * op.k * op.n
    read_bytes = product.read_bytes - product.count * spared_bytes
    return (replace(product.over_half if packed.sparsity == "2:4" else product, read_bytes=read_bytes),)


def _padded_product(op: Contraction, product: Matmul, target: _Target) -> tuple[Kernel, ...]:
    """Return a product of weights whose rows are filled up to multiples of 16 B; none if they start there as they are.

    Notes
    -----
    Valid for: rows of weights and of what they yield, whose length does not depend on the batch size. The weights are
    copied into a longer matrix; what reads and writes the other tensors, which a compiler generates, skips the fill.
    """
    extents = {"n": op.n} if op.role is Role.WEIGHT_GRADIENT else {"n": op.n, "k": op.k}
    if not op.has_weights or not all(isinstance(extent, int) for extent in extents.values()):
        return ()
    whole = LOAD_BYTES // target.size
    filled = {name: -(-extent // whole) * whole for name, extent in extents.items()}
    if filled == extents:
        return ()
    product = replace(product, **filled)
    if op.role is Role.WEIGHT_GRADIENT:
        return (product,)
    return (target.elements.copy("pad", op.k * op.n), product)


def _lower_contraction(operation: Contraction, target: _Target) -> Alternatives:
    rules, stored = target.rules, _as_stored(operation.packed, element_bytes=target.size)
    op = operation if stored == operation.packed else replace(operation, packed=stored)
    product = target.elements.product(
        op.m,
        op.n,
        op.k,
        adds=rules.accumulates(op.role),
        count=1 if target.loops else op.count,
        efficiency=rules.product_efficiency(op.role),
        launches=op.count if target.loops else 1,
    )
    kernels: tuple[Kernel, ...] = (product,)
    if rules.narrow_recipe is not None and takes_narrow(op):
        skips = stored is not None and stored.sparsity == "2:4" and _reads_packed(op, rules)
        kernels = narrow_product(op, product, recipe=rules.narrow_recipe, element_bytes=target.size, skips_zeros=skips)
    elif stored is not None:
        kernels = _packed_product(op, product, stored, target)
    ways = {"gemm": kernels}
    if rules.pads_products and stored is None and (padded := _padded_product(op, product, target)):
        ways["padded_gemm"] = padded
    if _reads_packed(op, rules) and stored is not None and stored.sparsity is None:
        ways["packed_gemv"] = (_row_by_row(op, stored, target),)
    results = op.count * op.m * op.n
    has_pass = op.bias_elements and rules.bias == "separate"
    after = (target.elements.copy("bias", results, flop_count=results),) if has_pass else ()
    before = (target.elements.stream("clear", 0, results),) if rules.clears(op.role) else ()
    return tuple(Alternative(name=name, kernels=(*before, *way, *after)) for name, way in ways.items())


def _transposed_sizes(operation: Convolution, rules: LoweringRules, *, depthwise: bool) -> tuple[Any, ...]:
    """Return the element counts of the tensors that are transposed around a convolution.

    A framework transposes all three tensors. A library's tensor-core kernels write their result in either layout, so
    that only the images among the operands are transposed for them.
    """
    x, w, y = operation.input_elements, operation.weight_elements * operation.bank_count, operation.output_elements
    if rules.convolution_transposes:
        return (x, y, w)
    if depthwise or not rules.layout_passes:
        return ()
    return {Role.OUTPUT: (x,), Role.INPUT_GRADIENT: (y,), Role.WEIGHT_GRADIENT: (x, y)}[operation.role]


def _on_cpu(operation: Convolution, *, algorithms: tuple[str, ...], element_bytes: int) -> Alternatives:
    return tuple(
        alternative
        for algorithm in algorithms
        for alternative in cpu_convolution_alternatives(operation, algorithm=algorithm, element_bytes=element_bytes)
    )


_CONVOLUTION: dict[str, Callable[..., Alternatives]] = {"gpu": convolution_alternatives, "cpu": _on_cpu}


def _is_pointwise(operation: Convolution) -> bool:
    """Return whether a convolution is a plain product of its weights and images stored channel by channel."""
    one_tap, no_stride = math.prod(operation.kernel_size) == 1, math.prod(operation.stride) == 1
    padded = any(side for sides in operation.padding for side in sides)
    return one_tap and no_stride and not padded and operation.groups == 1


def _pointwise_product(operation: Convolution, target: _Target) -> Alternatives:
    product, work = implicit_product(operation), operation.work(element_bytes=target.size)
    efficiency = target.rules.product_efficiency(operation.role)
    kernel = product.matmul(work.read_bytes, work.written_bytes, efficiency=efficiency)
    return (Alternative(name="pointwise_gemm", kernels=(kernel,)),)


def _depthwise_kernel(operation: Convolution, target: _Target) -> Alternatives:
    """Return one launch over all channels, bound by its traffic: each sum runs over only one channel."""
    name = {Role.OUTPUT: "depthwise"}.get(operation.role, f"depthwise_{operation.role.value}")
    return (Alternative(name="depthwise", kernels=(streamed(operation, name, element_bytes=target.size),)),)


def _in_one_launch(alternative: Alternative, *, groups: int) -> Alternative:
    """Return the alternative with one launch for all groups of a convolution instead of one for each."""
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
    """Return the kernels of a convolution, algorithm by algorithm; on a GPU each algorithm is one library call."""
    alternatives = _CONVOLUTION[processor](operation, algorithms=algorithms, element_bytes=element_bytes)
    if together and operation.groups > 1:
        alternatives = tuple(_in_one_launch(kernels, groups=operation.groups) for kernels in alternatives)
    if processor == "gpu":
        alternatives = tuple(replace(choice, kernels=in_one_call(choice.kernels)) for choice in alternatives)
    return alternatives


def _as_grouped(alternatives: Alternatives, operation: Convolution, rules: LoweringRules) -> Alternatives:
    """Give the products of a grouped convolution the class of its library's grouped kernels."""
    channels = operation.in_channels // operation.groups
    is_gradient, known = operation.role is not Role.OUTPUT, rules.grouped_channels or ()
    has_none = is_gradient and not rules.layout_passes and channels not in known
    name = "conv_grouped_gradient" if has_none else "conv_grouped"
    return tuple(
        replace(
            alternative,
            kernels=tuple(
                replace(kernel, efficiency=name) if isinstance(kernel, Matmul) else kernel
                for kernel in alternative.kernels
            ),
        )
        for alternative in alternatives
    )


def _convolution_passes(op: Convolution, target: _Target, *, direct: bool, depthwise: bool) -> tuple[Kernel, ...]:
    """Return what a framework runs after a convolution: its bias, and copies of tensors in another layout."""
    rules, elements, stored = target.rules, target.elements, _as_stored(op.packed, element_bytes=target.size)
    passes = []
    if op.bias_elements and rules.bias == "separate":
        passes.append(elements.copy("bias", op.output_elements, flop_count=op.output_elements))
    if rules.padding_copies and not direct and any(first != last for first, last in op.padding):
        # of the image, or of its gradient, to or from a padded one
        passes.append(elements.copy("pad", op.input_elements))
    sizes = () if direct else _transposed_sizes(op, rules, depthwise=depthwise)
    # between the framework's layout and the library's, in its call
    passes += [elements.copy("transpose", size, library_launches=1) for size in sizes]
    if stored is not None:
        passes.append(_unpacking_pass(op.weight_elements * op.bank_count, stored, target))
    if rules.clears(op.role):
        passes.append(elements.stream("clear", 0, op.input_elements))
    return tuple(passes)


def _lower_convolution(operation: Convolution, target: _Target) -> Alternatives:
    rules = target.rules
    # libraries run a transposed convolution as the input gradient of the convolution that it mirrors
    dense = operation if operation.packed is None else replace(operation, packed=None)
    plain = dense.mirrored if operation.transposed else dense
    direct = rules.pointwise_products and _is_pointwise(plain)
    depthwise = rules.depthwise_kernel and is_depthwise(plain)
    if direct:
        alternatives = _pointwise_product(plain, target)
    elif depthwise:
        alternatives = _depthwise_kernel(plain, target)
    else:
        alternatives = _convolved(
            plain,
            algorithms=rules.convolution_algorithms,
            together=rules.groups_together,
            element_bytes=target.size,
            processor=target.processor,
        )
        if plain.groups > 1 and rules.grouped_channels is not None:
            alternatives = _as_grouped(alternatives, plain, rules)
    extra = _convolution_passes(operation, target, direct=direct, depthwise=depthwise)
    if rules.accumulates(operation.role):
        # the last kernel also reads the buffer that it adds to
        filters = operation.weight_elements * operation.bank_count
        result = {Role.WEIGHT_GRADIENT: filters, Role.INPUT_GRADIENT: operation.input_elements}[operation.role]
        alternatives = tuple(_rereading(way, target.size * result) for way in alternatives)
    return tuple(replace(way, kernels=(*way.kernels, *extra)) for way in alternatives) if extra else alternatives


def _rereading(alternative: Alternative, read_bytes: Any) -> Alternative:
    *earlier, last = alternative.kernels
    return replace(alternative, kernels=(*earlier, replace(last, read_bytes=last.read_bytes + read_bytes)))


def _lower_memory_pass(op: MemoryPass, target: _Target) -> Alternatives:
    rules, key = target.rules, f"{op.name}_backward" if op.role in _BACKWARD else op.name
    rule = rules.passes.get(f"{op.name}_{op.role}") or rules.passes.get(key)
    if rule is None:
        work = op.work(element_bytes=target.size)
        read, written, launches = work.read_bytes, work.written_bytes, 1
    else:
        read, written, launches = rule.traffic(op.tensor_elements, element_bytes=target.size)
    launches *= op.parts if target.loops else 1
    shares = launches or 1
    kernel = Stream(
        read_bytes=read / shares,
        written_bytes=written / shares,
        flop_count=op.flop_count / shares,
        serial_steps=op.row_elements if key in rules.serial_rows else 0,
        efficiency=key if rule is None or rule.bandwidth_of is None else rule.bandwidth_of,
        launches=launches,
    )
    return (Alternative(name=key, kernels=(kernel,)),)


def _lower_gather(operation: Gather, target: _Target) -> Alternatives:
    name = "gather" if operation.role is Role.OUTPUT else "scatter_add"
    return (Alternative(name=name, kernels=(streamed(operation, name, element_bytes=target.size),)),)


def _lower_recurrence(operation: Recurrence, target: _Target) -> Alternatives:
    return recurrence_alternatives(
        operation,
        rules=target.rules.recurrent,
        library=target.rules.library_recurrence,
        product_efficiency=target.rules.product_efficiency(operation.role),
        element_bytes=target.size,
    )


def _lower_attention(operation: Attention, target: _Target) -> Alternatives:
    """Return the kernels of attention, fused or with its scores in memory.

    Notes
    -----
    Materialised: a product for the scores, a pass for softmax, one for dropout, a product with the values; going back
    four products and the passes. Scale and mask are passes of the layer. Every product runs over all scores, also of
    causal attention, and reads each of its operands once; keys and values are those of ``key_heads``.

    Recomputed: one kernel per pass with only the compulsory traffic. Forward it does the arithmetic of two products,
    backward of five, as it makes the scores again. Causal kernels leave out the tiles that no query sees: n is the
    average of visible keys, (keys + 1) / 2 if there are as many queries. A library's kernels say
    by their name what decides their time: see :func:`perfmodel.cost.attention.attention_time`.

    Valid for: kernels as in [1]_. Ignores: partial gradients of queries that are added in memory and, without a library
    for attention, the halves of tiles on the diagonal, the order of tiles and the time of exponentials.

    References
    ----------
    .. [1] Dao, FlashAttention-2, arXiv:2307.08691, sections 2 and 3.
    """
    copies: tuple[Kernel, ...] = ()
    if target.rules.key_heads == "repeated" and operation.key_heads < operation.heads:
        copies = _repeated_keys(operation, target)
        operation = replace(operation, key_heads=operation.heads)
    kernels = _fused(operation, target) if operation.scores == "recomputed" else _materialised(operation, target)
    return (Alternative(name=f"{operation.scores}_attention", kernels=(*copies, *kernels)),)


LOWERING: dict[str, Callable[..., Alternatives]] = {
    Contraction.kind: _lower_contraction,
    Convolution.kind: _lower_convolution,
    Attention.kind: _lower_attention,
    MemoryPass.kind: _lower_memory_pass,
    Gather.kind: _lower_gather,
    Recurrence.kind: _lower_recurrence,
}
"""Operation kind to the function that lowers it by a framework's rules."""


def lower(operation: Operation, *, rules: LoweringRules, element_bytes: int, processor: str) -> Alternatives:
    """Turn one operation into the alternative kernel sequences a framework could run for it."""
    if processor == "measured":
        return lower_as_measured(operation, element_bytes=element_bytes)
    return LOWERING[operation.kind](operation, _Target(rules, Elements(element_bytes), processor))
