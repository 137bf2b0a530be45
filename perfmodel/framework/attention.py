"""How attention runs: products and passes over a matrix of scores in memory, or one kernel that keeps it on chip."""

from __future__ import annotations

from typing import Any

from perfmodel.kernels import Alternative, Kernel, Matmul, Stream
from perfmodel.numeric import minimum
from perfmodel.records import Attention, Role


def visible_keys(operation: Attention) -> Any:
    """Return how many keys a query sees on average: all of them, or where it is causal those up to its own position.

    With q queries and k keys, query i sees min(i, k): (k + 1) / 2 on average where q = k.

    Examples
    --------
    >>> sizes = {"batch_size": 1, "heads": 1, "key_heads": 1, "head_size": 8, "value_size": 8}
    >>> float(visible_keys(Attention(queries=4, keys=4, causal=True, **sizes)))
    2.5
    """
    if not operation.causal:
        return operation.keys
    # The first queries, as many as there are keys, see one key more each; the rest see all.
    growing = minimum(operation.queries, operation.keys)
    seen = growing * (growing + 1) / 2 + (operation.queries - growing) * operation.keys
    return seen / operation.queries


class _Products:
    """The products of materialised attention: one per sample and head, in one launch or in a loop."""

    def __init__(self, op: Attention, *, loops: bool, element_bytes: int) -> None:
        count = op.batch_size * op.heads
        self.per_launch: Any = 1 if loops else count
        self.launches: Any = count if loops else 1
        self.element_bytes = element_bytes

    def of(self, m: Any, n: Any, k: Any, *, reads: Any, writes: Any) -> Matmul:
        """Return a product that reads and writes that many elements over all samples and heads."""
        return Matmul(
            m=m,
            n=n,
            k=k,
            count=self.per_launch,
            read_bytes=self.element_bytes * reads / self.launches,
            written_bytes=self.element_bytes * writes / self.launches,
            launches=self.launches,
        )


def _stream(
    op: Attention, name: str, *, reads: int, flop_per_score: int, element_bytes: int, mask_bytes: tuple[Any, Any]
) -> Stream:
    """Return a pass that reads and writes the matrix of scores, and masks besides."""
    n = op.score_elements
    return Stream(
        read_bytes=reads * element_bytes * n + mask_bytes[0],
        written_bytes=element_bytes * n + mask_bytes[1],
        flop_count=flop_per_score * n,
        efficiency=name,
    )


def _materialised_forward(op: Attention, products: _Products, element_bytes: int) -> tuple[Kernel, ...]:
    n, value_elements = op.score_elements, op.batch_size * op.key_heads * op.keys * op.value_size
    scores = products.of(op.queries, op.keys, op.head_size, reads=op.operand_elements - value_elements, writes=n)
    context = products.of(op.queries, op.value_size, op.keys, reads=n + value_elements, writes=op.output_elements)
    has_mask = op.mask_elements is not None
    softmax = _stream(
        op,
        "softmax",
        reads=1,
        flop_per_score=6 + has_mask,
        element_bytes=element_bytes,
        mask_bytes=(op.mask_elements if has_mask else 0, 0),
    )
    if not op.drops:
        return (scores, softmax, context)
    dropout = _stream(op, "dropout", reads=1, flop_per_score=2, element_bytes=element_bytes, mask_bytes=(0, n))
    return (scores, softmax, dropout, context)


def _materialised_backward(op: Attention, products: _Products, element_bytes: int) -> tuple[Kernel, ...]:
    n, result = op.score_elements, op.output_elements
    values, keys = (op.batch_size * op.key_heads * op.keys * size for size in (op.value_size, op.head_size))
    queries = op.batch_size * op.heads * op.queries * op.head_size
    to_values = products.of(op.keys, op.value_size, op.queries, reads=n + result, writes=values)
    to_scores = products.of(op.queries, op.keys, op.value_size, reads=result + values, writes=n)
    softmax = _stream(op, "softmax_backward", reads=2, flop_per_score=5, element_bytes=element_bytes, mask_bytes=(0, 0))
    to_queries = products.of(op.queries, op.head_size, op.keys, reads=n + keys, writes=queries)
    to_keys = products.of(op.keys, op.head_size, op.queries, reads=n + queries, writes=keys)
    if not op.drops:
        return (to_values, to_scores, softmax, to_queries, to_keys)
    dropout = _stream(op, "dropout_backward", reads=1, flop_per_score=1, element_bytes=element_bytes, mask_bytes=(n, 0))
    return (to_values, to_scores, dropout, softmax, to_queries, to_keys)


def _fused(op: Attention, *, arithmetic_apart: bool, element_bytes: int) -> tuple[Kernel, ...]:
    work = op.work(element_bytes=element_bytes)
    is_forward = op.role is Role.OUTPUT
    # Going back, the scores are made once more besides the four products of gradients.
    summed = op.head_size + op.value_size if is_forward else 3 * op.head_size + 2 * op.value_size
    seen = visible_keys(op)
    kernel = Matmul(
        m=op.queries,
        n=seen,
        k=summed,
        count=op.batch_size * op.heads,
        read_bytes=work.read_bytes,
        written_bytes=work.written_bytes,
    )
    if not arithmetic_apart:
        return (kernel,)
    softmax = Stream(
        read_bytes=0,
        written_bytes=0,
        flop_count=(work.flop_count - op.product_flop_count) * seen / op.keys,
        efficiency="softmax" if is_forward else "softmax_backward",
    )
    return (kernel, softmax)


def attention_alternatives(
    operation: Attention, *, loops: bool, arithmetic_apart: bool, element_bytes: int
) -> tuple[Alternative, ...]:
    """Return the one way that attention runs, by whether its scores go through memory.

    Parameters
    ----------
    operation : Attention
        Attention or its gradients. [-]
    loops : bool
        Whether the framework launches the product of every sample and head apart. [-]
    arithmetic_apart : bool
        Whether the softmax's arithmetic takes time beside the products of a fused kernel: on CPUs, whose lanes do
        either. [-]
    element_bytes : int
        Size of one element. [B]

    Returns
    -------
    tuple of Alternative
        One alternative.

    Notes
    -----
    Materialised: a product for the scores, a pass for scaling, mask and softmax, one for dropout, a product with the
    values; going back four products and the passes. Every product runs over all scores, also of causal attention, and
    reads each of its operands once; keys and values are those of ``key_heads``.

    Recomputed: one kernel per pass that moves what must be moved. Forward it does the arithmetic of two products,
    backward of five, as it makes the scores again. Causal kernels leave out the tiles that no query sees: n is the
    average of visible keys, (keys + 1) / 2 of them where there are as many queries.

    Valid for: kernels as in [1]_. Ignores: the halves of tiles on the diagonal that are computed in vain, the exact
    order of tiles, partial gradients of queries that are added in memory, the share of a GPU's time that exponentials
    take.

    References
    ----------
    .. [1] Dao, FlashAttention-2, arXiv:2307.08691, sections 2 and 3.
    """
    kernels: tuple[Kernel, ...]
    if operation.scores == "recomputed":
        kernels = _fused(operation, arithmetic_apart=arithmetic_apart, element_bytes=element_bytes)
    else:
        products = _Products(operation, loops=loops, element_bytes=element_bytes)
        make = _materialised_forward if operation.role is Role.OUTPUT else _materialised_backward
        kernels = make(operation, products, element_bytes)
    return (Alternative(name=f"{operation.scores}_attention", kernels=kernels),)
