"""Multi-head attention with its projections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

from perfmodel.layers.attention.heads import SCORES, Heads, check_divides
from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_choice, check_count, check_flag, check_fraction, is_open_size
from perfmodel.layers.passes import bias_gradient
from perfmodel.layers.shapes import SEQUENCE, Shape, check_rank
from perfmodel.records import Contraction, Operation, Role


@final
@dataclass(frozen=True, kw_only=True)
class MultiHeadAttention(Layer):
    """Attention of x to itself, or to a second input, between projections of queries, keys, values and output.

    Inputs are x (positions, features) and, for cross-attention, the context (positions, features) that keys and
    values are made from.

    Parameters
    ----------
    heads : int
        Heads of the queries. [1]
    key_heads : int or None
        Heads of keys and values, each shared by a group of queries' heads; None for as many as heads. [1]
    head_size : int or None
        Features per head; None for the features of x over heads. [1]
    causal : bool
        Whether a position sees only itself and those before it. [-]
    bias : bool
        Whether the projections have biases. [-]
    scores : str
        ``recomputed``: the scores stay on chip and are made again going back (FlashAttention); ``materialised``: they
        go through memory. [-]
    dropout : float
        Fraction of the probabilities dropped, in [0, 1). [1]

    Notes
    -----
    Projections that read the same input are one product, as in torch: of queries, keys and values, or of keys and
    values where there is a context. Per position of x, with width w = heads x head_size and kv = key_heads x
    head_size: 2 f (w + 2 kv) + 2 w f FLOP of projections, and the attention between them. Heads are views of the
    projected tensors, not copies. Kept besides the inputs: queries, keys, values, the output of the attention, and
    what the attention itself keeps.

    References
    ----------
    .. [1] Vaswani et al., Attention is all you need, NeurIPS 2017, arXiv:1706.03762, section 3.2.2.
    .. [2] Ainslie et al., GQA, EMNLP 2023, arXiv:2305.13245 (fewer heads of keys and values).
    """

    kind: ClassVar[str] = "multi_head_attention"
    examples: ClassVar[Examples] = (
        ({"heads": 4}, ((9, 8),)),
        ({"heads": 4, "scores": "materialised", "dropout": 0.1, "bias": False}, ((9, 8), (5, 6))),
        ({"heads": 4, "key_heads": 2, "head_size": 3, "causal": True}, ((9, 8),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"heads": "H"}, (("S", "F"),))
    input_counts: ClassVar[tuple[int, int | None]] = (1, 2)
    heads: int
    key_heads: int | None = None
    head_size: int | None = None
    causal: bool = False
    bias: bool = True
    scores: Literal["materialised", "recomputed"] = "recomputed"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_count("heads", self.heads)
        for name in ("key_heads", "head_size"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_flag("causal", self.causal)
        check_flag("bias", self.bias)
        check_choice("scores", self.scores, SCORES)
        check_fraction("dropout", self.dropout)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape of x."""
        for shape in input_shapes:
            check_rank(shape, SEQUENCE)
        self._sizes(input_shapes)
        return input_shapes[0]

    def _sizes(self, input_shapes: tuple[Shape, ...]) -> Heads:
        """Return the sizes of the attention; ShapeMismatchError where heads do not divide."""
        queries, features = input_shapes[0]
        key_heads = self.heads if self.key_heads is None else self.key_heads
        check_divides(key_heads, self.heads, f"{key_heads} heads of keys do not divide {self.heads} heads of queries")
        head_size: Any = self.head_size
        if head_size is None:
            check_divides(self.heads, features, f"its {self.heads} heads do not divide the {features} features of x")
            is_open = is_open_size(features) or is_open_size(self.heads)
            head_size = features / self.heads if is_open else features // self.heads
        return Heads(
            heads=self.heads,
            key_heads=key_heads,
            queries=queries,
            keys=input_shapes[-1][0],
            head_size=head_size,
            value_size=head_size,
            causal=self.causal,
            scores=self.scores,
            drops=self.dropout > 0,
        )

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
        """Return weight and bias of queries, keys, values and output."""
        features, context_features = input_shapes[0][-1], input_shapes[-1][-1]
        width, key_width = self._widths(input_shapes)
        shapes: dict[str, Shape] = {
            "query_weight": (features, width),
            "key_weight": (context_features, key_width),
            "value_weight": (context_features, key_width),
            "output_weight": (width, features),
        }
        if not self.bias:
            return shapes
        return shapes | {name.replace("weight", "bias"): shape[1:] for name, shape in shapes.items()}

    def _widths(self, input_shapes: tuple[Shape, ...]) -> tuple[Any, Any]:
        """Return the features of all heads of queries, and of keys."""
        sizes = self._sizes(input_shapes)
        return sizes.heads * sizes.head_size, sizes.key_heads * sizes.head_size

    def _projections(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> list[tuple[Any, Any, Any]]:
        """Return rows, features read and features yielded of the products before the attention, one per input."""
        width, key_width = self._widths(input_shapes)
        yields = (width + 2 * key_width,) if len(input_shapes) == 1 else (width, 2 * key_width)
        pairs = zip(input_shapes, yields, strict=True)
        return [(batch_size * positions, features, columns) for (positions, features), columns in pairs]

    def _output_projection(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Any, Any, Any]:
        positions, features = input_shapes[0]
        return batch_size * positions, self._widths(input_shapes)[0], features

    def at_inference(self, input_shapes: tuple[Shape, ...]) -> Layer:
        """Return the layer without dropout."""
        del input_shapes
        return replace(self, dropout=0.0)

    def saved_bytes(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int) -> Any:
        """Return queries, keys, values, the attention's output, and its statistics or probabilities [B]."""
        sizes = self._sizes(input_shapes)
        operation = sizes.operation(batch_size=batch_size, role=Role.OUTPUT)
        tensors = operation.operand_elements + operation.output_elements
        return element_bytes * tensors + sizes.kept_bytes(batch_size=batch_size, element_bytes=element_bytes)

    def backward_scratch_bytes(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int, wanted: Sequence[bool]
    ) -> Any:
        """Return the gradients of probabilities and scores, as far as they need more than is free by then [B]."""
        del wanted
        sizes = self._sizes(input_shapes)
        operation = sizes.operation(batch_size=batch_size, role=Role.OUTPUT)
        values = batch_size * sizes.key_heads * sizes.keys * sizes.value_size
        return sizes.backward_scratch_bytes(
            batch_size=batch_size,
            element_bytes=element_bytes,
            kept_elements=operation.output_elements + values,
            made_elements=batch_size * sum(map(math.prod, input_shapes)),
        )

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the projections of each input, the attention, and the projection of its output."""

        def product(rows: Any, features: Any, columns: Any) -> Contraction:
            return Contraction(m=rows, n=columns, k=features, bias_elements=columns if self.bias else 0)

        return (
            *(product(*sizes) for sizes in self._projections(input_shapes, batch_size=batch_size)),
            self._sizes(input_shapes).operation(batch_size=batch_size, role=Role.OUTPUT),
            product(*self._output_projection(input_shapes, batch_size=batch_size)),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the gradients of all inputs and projections, last first."""
        return self.gradient_operations(input_shapes, batch_size=batch_size, wanted=[True] * len(input_shapes))

    def gradient_operations(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, wanted: Sequence[bool]
    ) -> tuple[Operation, ...]:
        """Return the same, without the products that lead to inputs that want no gradient."""
        output = self._output_projection(input_shapes, batch_size=batch_size)
        operations = [
            *self._gradients(*output, wanted=True),
            self._sizes(input_shapes).operation(batch_size=batch_size, role=Role.INPUT_GRADIENT),
        ]
        before = zip(self._projections(input_shapes, batch_size=batch_size), wanted, strict=True)
        for sizes, input_wanted in reversed(list(before)):
            operations += self._gradients(*sizes, wanted=input_wanted)
        return tuple(operations)

    def _gradients(self, rows: Any, features: Any, columns: Any, *, wanted: bool) -> list[Operation]:
        """Return what back-propagation through one projection takes."""
        operations: list[Operation] = [Contraction(m=features, n=columns, k=rows, role=Role.WEIGHT_GRADIENT)]
        if wanted:
            operations.insert(0, Contraction(m=rows, n=features, k=columns, role=Role.INPUT_GRADIENT))
        if self.bias:
            operations.append(bias_gradient(rows * columns, bias_elements=columns))
        return operations
