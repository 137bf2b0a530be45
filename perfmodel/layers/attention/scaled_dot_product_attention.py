"""Scaled dot-product attention of queries, keys and values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

from perfmodel.layers.attention.heads import SCORES, Heads, check_divides
from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_choice, check_count, check_flag, check_fraction, is_open_size, refuse
from perfmodel.layers.shapes import SEQUENCE, Shape, ShapeMismatchError, element_count, shape_text
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator
from perfmodel.records import Operation, Role

MASK = 3
"""Place of the mask among the inputs [1]."""


def _ends_in_rows(operand: Operand) -> bool:
    """Tell whether the last two axes of a tensor are those of its samples: positions and features."""
    rank = len(operand.shape)
    return rank >= len(SEQUENCE) and operand.axes[-2:] == (rank - 2, rank - 1)


def _translated(operands: tuple[Operand, ...], mask: Operand | None, **options: Any) -> Translation | None:
    if not all(map(_ends_in_rows, operands)):
        return None
    inputs = operands if mask is None else (*operands, mask)
    return Translation(layer=ScaledDotProductAttention(**options), inputs=inputs)


def _from_torch(call: OperatorCall) -> Translation | None:
    operands = (call["query"], call["key"], call["value"])
    return _translated(
        operands, call.get("attn_mask"), causal=bool(call["is_causal"]), dropout=float(call["dropout_p"])
    )


def _from_onnx(call: OperatorCall) -> Translation | None:
    """Read ``Attention`` of opset 23; one that projects (com.microsoft) or has a cache of keys is another layer."""
    operands = tuple(call.get(position) for position in ("0", "1", "2"))
    if any(operand is None or operand.is_parameter for operand in operands) or call.get("4") is not None:
        return None
    options = {"causal": bool(call.get("is_causal", 0))}
    if len(operands[0].shape) == len(SEQUENCE):
        options |= {"heads": call.get("q_num_heads"), "key_heads": call.get("kv_num_heads")}
    return _translated(operands, call.get("3"), **options)


def _from_onnx_heads(call: OperatorCall) -> Translation | None:
    """Read ``MultiHeadAttention`` (com.microsoft) of separate queries, keys and values without bias and cache."""
    operands = tuple(call.get(position) for position in ("0", "1", "2"))
    further = [call.get(position) for position in ("3", "4", "6", "7")]
    if any(operand is None or len(operand.shape) != len(SEQUENCE) for operand in operands) or any(further):
        return None
    return _translated(operands, call.get("5"), causal=bool(call.get("unidirectional", 0)), heads=call["num_heads"])


@final
@dataclass(frozen=True, kw_only=True)
class ScaledDotProductAttention(Layer):
    """softmax(Q K^T / sqrt(d)) V of every head; inputs are queries, keys, values and, optionally, a mask.

    Inputs are (heads, positions, features), with any axes that count heads or none; keys and values may have fewer
    heads, each shared by a group of queries' heads.

    Parameters
    ----------
    causal : bool
        Whether a position sees only itself and those before it. [-]
    scores : str
        ``recomputed``: the scores stay on chip and are made again going back (FlashAttention); ``materialised``: they
        go through memory. [-]
    dropout : float
        Fraction of the probabilities dropped, in [0, 1). [1]
    heads, key_heads : int or None
        Heads of queries, and of keys and values, where they lie side by side in inputs of (positions, features); None
        where they have an axis, and for key_heads where there are as many as heads. [1]

    Notes
    -----
    With s = heads x queries x keys: forward 2 s (d_k + d_v) FLOP of products and 6 s for scaling and softmax; backward
    twice the products and 5 s. All scores count, those that a mask hides too. Kept besides the inputs: recomputed, the
    output and one statistic (4 B) per row; materialised, the probabilities, and with dropout what was left of them and
    a mask of 1 B each. A mask has no gradient.

    References
    ----------
    .. [1] Vaswani et al., Attention is all you need, NeurIPS 2017, arXiv:1706.03762, equation 1.
    .. [2] Dao et al., FlashAttention, NeurIPS 2022, arXiv:2205.14135.
    """

    kind: ClassVar[str] = "scaled_dot_product_attention"
    examples: ClassVar[Examples] = (
        ({}, ((4, 9, 8), (4, 9, 8), (4, 9, 8))),
        ({"causal": True, "scores": "materialised", "dropout": 0.1}, ((4, 9, 8), (2, 5, 8), (2, 5, 6))),
        ({"scores": "materialised"}, ((4, 9, 8), (4, 5, 8), (4, 5, 8), (9, 5))),
        ({"heads": 4, "key_heads": 2}, ((9, 8), (5, 4), (5, 6), (1, 9, 5))),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("H", "S", "D"), ("H", "S", "D"), ("H", "S", "D")))
    input_counts: ClassVar[tuple[int, int | None]] = (3, 4)
    index_inputs: ClassVar[tuple[int, ...]] = (MASK,)
    torch_operators: ClassVar[Mapping[str, Translator]] = {"aten.scaled_dot_product_attention": _from_torch}
    onnx_operators: ClassVar[Mapping[str, Translator]] = {
        "Attention": _from_onnx,
        "MultiHeadAttention": _from_onnx_heads,
    }
    causal: bool = False
    scores: Literal["materialised", "recomputed"] = "recomputed"
    dropout: float = 0.0
    heads: int | None = None
    key_heads: int | None = None

    def __post_init__(self) -> None:
        check_flag("causal", self.causal)
        check_choice("scores", self.scores, SCORES)
        check_fraction("dropout", self.dropout)
        for name in ("heads", "key_heads"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if self.heads is None and self.key_heads is not None:
            refuse("key_heads", self.key_heads, "must be None where heads is: then the inputs have an axis of heads")

    @property
    def keeps_output(self) -> bool:  # type: ignore[override]
        """Whether back-propagation reads the output: where the scores are made again, for the sums of their rows."""
        return self.scores == "recomputed"

    def _split(self, shape: Shape, heads: int | None) -> tuple[Any, Any, Any]:
        """Return heads, positions and features per head of one input."""
        if len(shape) < len(SEQUENCE) or (heads is not None and len(shape) != len(SEQUENCE)):
            layout = "(positions, features)" if heads is not None else "(heads, positions, features)"
            problem = f"takes samples of shape {layout}, but an input is {shape_text(shape)}"
            raise ShapeMismatchError(problem)
        *leading, positions, features = shape
        if heads is None:
            return math.prod(leading), positions, features
        check_divides(heads, features, f"its {heads} heads do not divide the {features} features of an input")
        return (
            heads,
            positions,
            features / heads if is_open_size(heads) or is_open_size(features) else features // heads,
        )

    def _heads(self, input_shapes: tuple[Shape, ...]) -> Heads:
        """Return the sizes; ShapeMismatchError where queries, keys and values do not fit one another."""
        key_heads = self.heads if self.key_heads is None else self.key_heads
        query, key, value = (
            self._split(shape, heads)
            for shape, heads in zip(input_shapes, (self.heads, key_heads, key_heads), strict=False)
        )
        known = not any(map(is_open_size, (*query, *key, *value)))
        if known and (query[2] != key[2] or key[:2] != value[:2]):
            shapes = ", ".join(map(shape_text, input_shapes[:MASK]))
            allowed = "queries and keys of one size, keys and values of as many heads and positions"
            problem = f"takes {allowed}, but its inputs are {shapes}"
            raise ShapeMismatchError(problem)
        check_divides(key[0], query[0], f"{key[0]} heads of keys do not divide {query[0]} heads of queries")
        return Heads(
            heads=query[0],
            key_heads=key[0],
            queries=query[1],
            keys=key[1],
            head_size=query[2],
            value_size=value[2],
            causal=self.causal,
            scores=self.scores,
            drops=self.dropout > 0,
        )

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the queries' shape with the features of the values."""
        sizes = self._heads(input_shapes)
        features = sizes.value_size if self.heads is None else sizes.heads * sizes.value_size
        return (*input_shapes[0][:-1], features)

    def at_inference(self, input_shapes: tuple[Shape, ...]) -> Layer:
        """Return the layer without dropout."""
        del input_shapes
        return replace(self, dropout=0.0)

    def saved_bytes(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int) -> Any:
        """Return a statistic per row, or probabilities with what dropout left of them and its mask [B]."""
        return self._heads(input_shapes).kept_bytes(batch_size=batch_size, element_bytes=element_bytes)

    def backward_scratch_bytes(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int, wanted: Sequence[bool]
    ) -> Any:
        """Return the gradients of probabilities and scores, as far as they need more than those of the inputs [B]."""
        del wanted
        operands = sum(element_count(shape, batch_size=batch_size) for shape in input_shapes[:MASK])
        return self._heads(input_shapes).backward_scratch_bytes(
            batch_size=batch_size, element_bytes=element_bytes, kept_elements=0, made_elements=operands
        )

    def _operation(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, role: Role) -> tuple[Operation, ...]:
        masks = input_shapes[MASK:]
        mask_elements = element_count(masks[0], batch_size=batch_size) if masks else None
        sizes = self._heads(input_shapes)
        return (sizes.operation(batch_size=batch_size, role=role, mask_elements=mask_elements),)

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the attention of all heads."""
        return self._operation(input_shapes, batch_size=batch_size, role=Role.OUTPUT)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the gradients of queries, keys and values together."""
        return self._operation(input_shapes, batch_size=batch_size, role=Role.INPUT_GRADIENT)
