"""Attention: alone, from queries, keys and values; or with its projections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal, NamedTuple

from perfmodel.layers.base import Checks, LayerByInput, Operations, layer_kind, of_options
from perfmodel.layers.chained import ChainedLayer, Part
from perfmodel.layers.checks import is_open_size, numbered, one_of, refuse
from perfmodel.layers.linear import Dense
from perfmodel.layers.passes import MASK_BYTES, broadcast_gradient, elementwise, one_pass
from perfmodel.layers.shapes import (
    SEQUENCE,
    Shape,
    Shapes,
    SharedShape,
    check_divides,
    check_rank,
    element_count,
    mismatch,
    shape_text,
)
from perfmodel.layers.translation import Operand, OperatorCall, Operators, Translation
from perfmodel.numeric import maximum, share_of
from perfmodel.records import STATISTIC_BYTES, Attention, MemoryPass, Role

SCORES = ("recomputed", "materialised")


class SoftmaxTypes(NamedTuple):
    """In which type softmax of materialised scores computes: the options of ``Attention`` of the same names.

    With ``scales_wide`` the passes beside it, over scale and mask, compute in this type too.
    """

    softmax_bytes: int | None = None
    casts_scores: bool = False
    scales_wide: bool = False

    def of(self, operation: Attention) -> Attention:
        """Return the attention with its softmax in these types."""
        if not self.softmax_bytes:
            return operation
        return replace(operation, softmax_bytes=self.softmax_bytes, casts_scores=self.casts_scores)


AS_SCORES: Final = SoftmaxTypes()
"""Softmax in the type of the scores. [-]"""


SCORE_PASSES: Final = ("multiply_by_number", "add")
"""Names of the passes over materialised scores besides softmax and dropout: scale and mask. [-]"""


def _score_passes(op: Attention) -> tuple[MemoryPass, ...]:
    """Return the passes over materialised scores besides softmax and dropout: scale and mask, or gradient of scale.

    There are none where one kernel does all of the attention.
    """
    if op.scores == "recomputed":
        return ()
    scores = op.score_elements
    scaled, masked = SCORE_PASSES
    scale = elementwise(scaled, scores, flop_per_element=1, role=op.role)
    mask = op.queries * op.keys if op.mask_elements is None and op.causal else op.mask_elements
    if op.role is not Role.OUTPUT or mask is None:
        return (scale,)
    return (scale, one_pass(masked, read=scores + mask, written=scores, flop=scores))


RING_BUFFERS = 3
"""Sets of keys and values of other devices in a ring's back-propagation: read, arriving, and gradients. [1]"""


def _kept_per_score(op: Attention, *, element_bytes: int) -> int:
    """Return the bytes that autograd keeps for each materialised score [B].

    It keeps the result of softmax, the mask of dropout, and what the product with the values reads: another tensor
    where dropout or a cast made it.
    """
    wide = op.softmax_bytes or element_bytes
    is_copied = op.drops or wide != element_bytes
    return wide + MASK_BYTES * op.drops + element_bytes * is_copied


def _most_per_score(op: Attention, *, element_bytes: int) -> int:
    """Return the most that is in memory of each materialised score while its gradient is made [B].

    Each operator frees its kept tensors as soon as its gradients exist: the product, the cast, dropout, softmax.
    """
    wide = op.softmax_bytes or element_bytes
    kept = _kept_per_score(op, element_bytes=element_bytes)
    made = wide if op.casts_scores else element_bytes
    moments = [kept + element_bytes, wide + wide + made]
    if wide != element_bytes:
        moments.append(wide + MASK_BYTES * op.drops + element_bytes + wide)
    if op.drops:
        moments.append(wide + MASK_BYTES + wide + wide)
    return max(moments)


def _scratch_bytes(op: Attention, *, element_bytes: int, kept_elements: Any, made_elements: Any) -> Any:
    """Return the scratch memory of the gradients inside the attention, beyond the memory counted elsewhere [B].

    Recomputed scores: a statistic per row. Materialised scores: the peak, when the gradients of the probabilities and
    of the values exist. By then the layer has freed its ``kept_elements`` besides the scores, and of the gradients of
    its inputs, ``made_elements``, only that of the values exists [1].
    """
    if op.scores == "recomputed":
        return STATISTIC_BYTES * op.row_elements
    of_values = op.batch_size * op.key_heads * op.keys * op.value_size
    how = {"element_bytes": element_bytes}
    of_scores = (_most_per_score(op, **how) - _kept_per_score(op, **how)) * op.score_elements
    return maximum(of_scores + element_bytes * (of_values - kept_elements - made_elements), 0)


def _kept_bytes(op: Attention, *, element_bytes: int) -> Any:
    """Return the bytes that back-propagation needs besides queries, keys, values and output [B].

    Recomputed scores: a statistic per row. Materialised scores: see ``_kept_per_score``.
    """
    if op.scores == "recomputed":
        return STATISTIC_BYTES * op.row_elements
    return _kept_per_score(op, element_bytes=element_bytes) * op.score_elements


MASK = 3
"""Place of the mask among the inputs [1]."""


def _ends_in_rows(operand: Operand) -> bool:
    """Return whether a tensor's last two axes are still positions and features, in this order."""
    rank = len(operand.shape)
    return rank >= len(SEQUENCE) and operand.axes[-2:] == (rank - 2, rank - 1)


def _translated(operands: tuple[Operand, ...], mask: Operand | None, **options: Any) -> Translation | None:
    if not all(map(_ends_in_rows, operands)):
        return None
    inputs = operands if mask is None else (*operands, mask)
    adds_bias = mask is not None and not mask.is_index
    return Translation(layer=ScaledDotProductAttention(adds_bias=adds_bias, **options), inputs=inputs)


def _from_torch(call: OperatorCall) -> Translation | None:
    operands = (call["query"], call["key"], call["value"])
    return _translated(
        operands, call.get("attn_mask"), causal=bool(call["is_causal"]), dropout=float(call["dropout_p"])
    )


def _from_onnx(call: OperatorCall) -> Translation | None:
    """Read ``Attention`` of opset 23; decline one with projections (com.microsoft) or a key cache."""
    operands = tuple(call.get(position) for position in ("0", "1", "2"))
    if any(operand is None or operand.is_parameter for operand in operands) or call.get("4") is not None:
        return None
    options = {"causal": bool(call.get("is_causal", 0))}
    if len(operands[0].shape) == len(SEQUENCE):
        options |= {"heads": call.get("q_num_heads"), "key_heads": call.get("kv_num_heads")}
    return _translated(operands, call.get("3"), **options)


def _from_onnx_heads(call: OperatorCall) -> Translation | None:
    """Read ``MultiHeadAttention`` (com.microsoft) with separate queries, keys and values, without bias or cache."""
    operands = tuple(call.get(position) for position in ("0", "1", "2"))
    further = [call.get(position) for position in ("3", "4", "6", "7")]
    if any(operand is None or len(operand.shape) != len(SEQUENCE) for operand in operands) or any(further):
        return None
    return _translated(operands, call.get("5"), causal=bool(call.get("unidirectional", 0)), heads=call["num_heads"])


@layer_kind("scaled_dot_product_attention")
class ScaledDotProductAttention(LayerByInput):
    """softmax(Q K^T / sqrt(d)) V of every head; inputs are queries, keys, values and, optionally, a mask.

    Inputs are (heads, positions, features), with any number of axes for heads; keys and values may have fewer
    heads, each shared by a group of query heads.

    Parameters
    ----------
    causal : bool
        Whether a position sees only itself and earlier ones. [-]
    scores : str
        ``recomputed``: scores stay on chip and are computed again in the backward phase (FlashAttention);
        ``materialised``: they go through memory. [-]
    dropout : float
        Fraction of the probabilities dropped, in [0, 1). [1]
    heads, key_heads : int or None
        Heads of queries, and of keys and values, if inputs are (positions, features) with the heads side by side; None
        if heads have an axis of their own. Without key_heads, keys have as many heads as queries. [1]
    adds_bias : bool
        Whether the mask holds numbers to add to the scores, which may be trained, instead of Booleans. [-]
    fused_softmax : bool
        Whether one kernel scales, masks and normalises materialised scores, as Megatron-LM's does. [-]
    ring : int
        Devices that share the sequence, each with equally many positions, and pass keys and values round [3]_; the
        inputs are those of one of them. [1]
    gathered : bool
        Whether each of these devices gathers all keys and values before it attends to them [4]_, instead. [-]
    passes_copies : bool
        Whether keys and values that several heads of queries share are copied for each of them before they go to
        other devices. [-]

    Notes
    -----
    In a ring there is a block of scores for the keys of each device: all of them, or, if causal, half of those of every
    other device, so that all devices have the same number of scores. The results of blocks are scaled and added up, and
    so are the gradients of the inputs. Where keys and values are gathered, the blocks of other devices are one, and
    nothing is added up.

    With s = heads x queries x keys: forward 2 s (d_k + d_v) FLOP of products and 6 s for scaling and softmax; backward
    twice the products and 5 s. Masked scores count too. Kept besides the inputs: if recomputed, the output and one
    statistic (4 B) per row; if materialised, the probabilities, and with dropout also the remaining probabilities and a
    mask of 1 B for each; where mixed precision computes softmax in fp32, its results in fp32 and a narrow copy for the
    product: 6 B a score, 7 with dropout. The gradient of a bias is that of the scores, summed where samples or heads
    share the bias.

    References
    ----------
    .. [1] Vaswani et al., Attention is all you need, NeurIPS 2017, arXiv:1706.03762, equation 1.
    .. [2] Dao et al., FlashAttention, NeurIPS 2022, arXiv:2205.14135.
    .. [3] Liu, Zaharia, Abbeel, Ring attention with blockwise transformers, arXiv:2310.01889.
    .. [4] Grattafiori et al., The Llama 3 herd of models, arXiv:2407.21783, section 3.3.2.
    """

    input_counts: ClassVar[tuple[int, int | None]] = (3, 4)
    operators: ClassVar[Operators] = {
        "aten.scaled_dot_product_attention": _from_torch,
        "Attention": _from_onnx,
        "MultiHeadAttention": _from_onnx_heads,
    }
    checks: ClassVar[Checks] = {"scores": one_of(SCORES), "ring": numbered()}
    index_inputs: ClassVar[tuple[int, ...]] = of_options(lambda layer: () if layer.adds_bias else (MASK,))
    # the gradient of recomputed scores reads row sums of the output
    keeps_output: ClassVar[bool] = of_options(lambda layer: layer.scores == "recomputed")
    causal: bool = False
    scores: Literal["materialised", "recomputed"] = "recomputed"
    dropout: float = 0.0
    heads: int | None = None
    key_heads: int | None = None
    adds_bias: bool = False
    fused_softmax: bool = False
    ring: int = 1
    gathered: bool = False
    passes_copies: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads is None and self.key_heads is not None:
            refuse("key_heads", self.key_heads, "must be None if heads is None: the inputs then have an axis of heads")

    def _split(self, shape: Shape, heads: int | None) -> tuple[Any, Any, Any]:
        """Return heads, positions and features per head of one input."""
        if len(shape) < len(SEQUENCE) or (heads is not None and len(shape) != len(SEQUENCE)):
            layout = "(positions, features)" if heads is not None else "(heads, positions, features)"
            mismatch(f"takes samples of shape {layout}, but an input is {shape_text(shape)}")
        *leading, positions, features = shape
        if heads is None:
            return math.prod(leading), positions, features
        check_divides(heads, features, f"its {heads} heads do not divide the {features} features of an input")
        return heads, positions, share_of(features, heads)

    def attention(self, input_shapes: Shapes, *, batch_size: Any, role: Role = Role.OUTPUT) -> Attention:
        """Return the operation; ShapeMismatchError if queries, keys and values do not fit one another."""
        key_heads = self.heads if self.key_heads is None else self.key_heads
        query, key, value = (
            self._split(shape, heads)
            for shape, heads in zip(input_shapes, (self.heads, key_heads, key_heads), strict=False)
        )
        known = not any(map(is_open_size, (*query, *key, *value)))
        if known and (query[2] != key[2] or key[:2] != value[:2]):
            shapes = ", ".join(map(shape_text, input_shapes[:MASK]))
            allowed = "queries and keys of equal size, and keys and values with equally many heads and positions"
            mismatch(f"takes {allowed}, but its inputs are {shapes}")
        check_divides(key[0], query[0], f"{key[0]} heads of keys do not divide {query[0]} heads of queries")
        masks = input_shapes[MASK:]
        return Attention(
            batch_size=batch_size,
            heads=query[0],
            key_heads=key[0],
            queries=query[1],
            keys=key[1],
            head_size=query[2],
            value_size=value[2],
            causal=self.causal,
            scores=self.scores,
            mask_elements=element_count(masks[0], batch_size=batch_size) if masks else None,
            adds_bias=self.adds_bias,
            drops=self.dropout > 0,
            role=role,
        )

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the queries' shape with the features of the values."""
        sizes = self.attention(input_shapes, batch_size=1)
        features = sizes.value_size if self.heads is None else sizes.heads * sizes.value_size
        return (*input_shapes[0][:-1], features)

    def saved_bytes(
        self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int, softmax: SoftmaxTypes = AS_SCORES
    ) -> Any:
        """Return the size of a statistic per row, or of the probabilities before and after dropout and its mask [B]."""
        op = softmax.of(self.attention(input_shapes, batch_size=batch_size))
        blocks = self._blocks(op) if self.scores == "materialised" else (op,)
        return sum(_kept_bytes(block, element_bytes=element_bytes) for block in blocks)

    def backward_scratch_bytes(
        self,
        input_shapes: Shapes,
        *,
        batch_size: Any,
        element_bytes: int,
        wanted: Sequence[bool],
        softmax: SoftmaxTypes = AS_SCORES,
    ) -> Any:
        """Return the memory of the gradients of probabilities and scores beyond the inputs' gradients [B].

        In a ring also the keys and values of two other devices, which are read and which arrive, and the gradients of
        those that are read; where they are gathered, all keys and values and all their gradients.
        """
        op = softmax.of(self.attention(input_shapes, batch_size=batch_size))
        operands = sum(element_count(shape, batch_size=batch_size) for shape in input_shapes[:MASK])
        scratch = _scratch_bytes(op, element_bytes=element_bytes, kept_elements=0, made_elements=operands)
        if self.ring == 1:
            return scratch
        passing = self.passed_elements(input_shapes, batch_size=batch_size)
        return scratch + (2 * self.ring if self.gathered else RING_BUFFERS) * element_bytes * passing

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the attention of all heads, and the passes over its scores."""
        blocks = self._blocks(self.attention(input_shapes, batch_size=batch_size))
        passes = () if self.fused_softmax else tuple(step for op in blocks for step in _score_passes(op))
        result = blocks[0].output_elements
        return (
            *blocks,
            *passes,
            *[one_pass("add", read=2 * result, written=result, flop=3 * result)] * self._sum_count,
        )

    def _blocks(self, op: Attention) -> tuple[Attention, ...]:
        """Return the attention to the keys of each device of the ring, a device's own first."""
        if self.ring == 1:
            return (op,)
        other = self._elsewhere(op)
        if self.gathered and not op.causal and other.key_heads == op.key_heads:
            return (replace(op, keys=self.ring * op.keys),)
        if op.causal:
            other = replace(other, keys=share_of(op.keys, 2), causal=False)
        if self.gathered:
            return (op, replace(other, keys=(self.ring - 1) * other.keys))
        return (op, *[other] * (self.ring - 1))

    def _elsewhere(self, op: Attention) -> Attention:
        """Return the attention to as many keys of another device, which arrive for each head if they are copied."""
        return replace(op, key_heads=op.heads) if self.passes_copies else op

    def passed_elements(self, input_shapes: Shapes, *, batch_size: Any) -> Any:
        """Elements of a device's keys and values as others receive them. [1]"""
        return self._elsewhere(self.attention(input_shapes, batch_size=batch_size)).key_and_value_elements

    @property
    def _sum_count(self) -> int:
        """Sums of results of blocks, or of their gradients. [1]"""
        return 0 if self.gathered else self.ring - 1

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return the gradients of queries, keys and values together, and of a bias that needs one."""
        if not any(wanted):
            return ()
        gradient = self.attention(input_shapes, batch_size=batch_size, role=Role.INPUT_GRADIENT)
        if self.ring > 1:
            blocks = self._blocks(gradient)
            passes = () if self.fused_softmax else tuple(step for op in blocks for step in _score_passes(op))
            sums = elementwise(
                "gradient_sum",
                self._elsewhere(gradient).operand_elements,
                reads=2,
                flop_per_element=1,
                role=gradient.role,
            )
            return (*blocks, *passes, *[sums] * self._sum_count)
        scale = () if self.fused_softmax else _score_passes(gradient)
        if not (self.adds_bias and any(wanted[MASK:])):
            return (gradient, *scale)
        bias, gradient = input_shapes[MASK], replace(gradient, writes_scores=True)
        of_a_sample = gradient.heads * gradient.queries * gradient.keys
        if not isinstance(bias, SharedShape) and math.prod(bias) == of_a_sample:
            return (gradient, *scale)
        summed = broadcast_gradient(gradient.score_elements, operand_elements=gradient.mask_elements)
        return (gradient, *scale, summed)


@layer_kind("multi_head_attention")
class MultiHeadAttention(ChainedLayer):
    """Attention of x to itself, or to a second input, between projections of queries, keys, values and output.

    Inputs are x (positions, features) and, for cross-attention, a context (positions, features) from which keys and
    values are computed.

    Parameters
    ----------
    heads : int
        Heads of the queries. [1]
    key_heads : int or None
        Heads of keys and values, each shared by a group of query heads; None for ``heads``. [1]
    head_size : int or None
        Features per head; None for the features of x over heads. [1]
    causal : bool
        Whether a position sees only itself and earlier ones. [-]
    bias : bool
        Whether the projections have biases. [-]
    scores : str
        ``recomputed``: scores stay on chip and are computed again in the backward phase (FlashAttention);
        ``materialised``: they go through memory. [-]
    dropout : float
        Fraction of the probabilities dropped, in [0, 1). [1]

    Notes
    -----
    As in torch, projections of the same input are one product: queries, keys and values together, or only keys and
    values if there is a context. Per position of x, with width w = heads x head_size and kv = key_heads x
    head_size: 2 f (w + 2 kv) + 2 w f FLOP of projections, and the attention between them. Heads are views of the
    projected tensors, not copies. Kept besides the inputs: queries, keys, values, the output of the attention, and
    what the attention itself keeps.

    References
    ----------
    .. [1] Vaswani et al., Attention is all you need, NeurIPS 2017, arXiv:1706.03762, section 3.2.2.
    .. [2] Ainslie et al., GQA, EMNLP 2023, arXiv:2305.13245 (fewer heads of keys and values).
    """

    input_counts: ClassVar[tuple[int, int | None]] = (1, 2)
    checks: ClassVar[Checks] = {"scores": one_of(SCORES)}
    heads: int
    key_heads: int | None = None
    head_size: int | None = None
    causal: bool = False
    bias: bool = True
    scores: Literal["materialised", "recomputed"] = "recomputed"
    dropout: float = 0.0

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the shape of x."""
        for shape in input_shapes:
            check_rank(shape, SEQUENCE)
        return super().output_shape(input_shapes)

    def _widths(self, features: Any) -> tuple[Any, Any]:
        """Return the features of all heads of queries, and of keys, for those of x."""
        head_size: Any = self.head_size
        if head_size is None:
            check_divides(self.heads, features, f"its {self.heads} heads do not divide the {features} features of x")
            head_size = share_of(features, self.heads)
        return self.heads * head_size, (self.heads if self.key_heads is None else self.key_heads) * head_size

    def parts(self, input_shapes: Shapes) -> tuple[Part, ...]:
        """Return the projections of each input, the attention, and the projection of its output."""
        (positions, features), (keys, _) = input_shapes[0], input_shapes[-1]
        width, key_width = self._widths(features)
        yields = (width + 2 * key_width,) if len(input_shapes) == 1 else (width, 2 * key_width)
        before = (
            Part(f"projection_{place}", Dense(units=units, bias=self.bias), (input_shapes[place],), reads=place)
            for place, units in enumerate(yields)
        )
        attention = ScaledDotProductAttention(
            heads=self.heads, key_heads=self.key_heads, causal=self.causal, scores=self.scores, dropout=self.dropout
        )
        of_heads = ((positions, width), (keys, key_width), (keys, key_width))
        output = Dense(units=features, bias=self.bias)
        return (*before, Part("attention", attention, of_heads), Part("output", output, of_heads[:1]))

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return weight and bias of queries, keys, values and output."""
        features, context_features = input_shapes[0][-1], input_shapes[-1][-1]
        width, key_width = self._widths(features)
        shapes: dict[str, Shape] = {
            "query_weight": (features, width),
            "key_weight": (context_features, key_width),
            "value_weight": (context_features, key_width),
            "output_weight": (width, features),
        }
        if not self.bias:
            return shapes
        return shapes | {name.replace("weight", "bias"): shape[1:] for name, shape in shapes.items()}

    def kept_elements(self, input_shapes: Shapes) -> Any:
        """Elements of queries, keys, values and the attention's output, of a sample [1]."""
        width, key_width = self._widths(input_shapes[0][-1])
        return 2 * input_shapes[0][0] * width + 2 * input_shapes[-1][0] * key_width

    def backward_scratch_bytes(
        self,
        input_shapes: Shapes,
        *,
        batch_size: Any,
        element_bytes: int,
        wanted: Sequence[bool],
        softmax: SoftmaxTypes = AS_SCORES,
    ) -> Any:
        """Return the memory of the gradients of probabilities and scores beyond the memory already freed [B]."""
        op = softmax.of(self.attention(input_shapes, batch_size=batch_size))
        kept = op.output_elements + batch_size * op.key_heads * op.keys * op.value_size
        made = batch_size * sum(map(math.prod, input_shapes))
        return _scratch_bytes(op, element_bytes=element_bytes, kept_elements=kept, made_elements=made)

    def attention(self, input_shapes: Shapes, *, batch_size: Any) -> Attention:
        """Return the attention between the projections."""
        core = self.parts(input_shapes)[-2]
        assert isinstance(core.layer, ScaledDotProductAttention)
        return core.layer.attention(core.input_shapes, batch_size=batch_size)
