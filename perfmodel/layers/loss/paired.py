"""What losses that compare two tensors of one shape share: a term per element, one loss per sample."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from perfmodel.layers.base import Layer
from perfmodel.layers.shapes import Shape, ShapeMismatchError, element_count, shape_text
from perfmodel.layers.translation import OperatorCall, Translation
from perfmodel.records import MemoryPass, Operation, Role

LABEL_BYTES = 4
"""Size of one element of a target that comes with the samples [B]."""


NO_REDUCTION = 0
"""How torch says that a loss stays one number for each element [-]."""


def compared(call: OperatorCall, layer: PairedLoss) -> Translation | None:
    """Return a loss of two tensors of one shape, None where it stays one number for each element.

    Parameters
    ----------
    call : OperatorCall
        Call of an operator of torch. [-]
    layer : PairedLoss
        The loss. [-]

    Returns
    -------
    Translation or None
        It reads both. [-]
    """
    prediction, target = call["self"], call["target"]
    is_plain = call.get("weight") is None and call.get("pos_weight") is None
    if call["reduction"] == NO_REDUCTION or not is_plain or tuple(prediction.shape) != tuple(target.shape):
        return None
    return Translation(layer=layer, inputs=(prediction, target))


@dataclass(frozen=True, kw_only=True)
class PairedLoss(Layer):
    """A loss that adds up one term for each element of a prediction and its target; one loss per sample.

    The target is a second input, or, where there is one input only, a label of the same shape that comes with each
    sample.

    Notes
    -----
    Forward reads both and writes a loss per sample: the terms, an add per element, and a division per sample for the
    mean. Backward, for each wanted gradient, reads both and dy and writes it, with a multiplication per sample for the
    mean. The target's gradient is the prediction's with the other sign unless the kind says otherwise. Ignores: the
    mean over the mini-batch, one number per sample.
    """

    input_counts: ClassVar[tuple[int, int | None]] = (1, 2)
    is_loss: ClassVar[bool] = True

    @property
    @abstractmethod
    def flop_per_element(self) -> tuple[int, int, int]:
        """Arithmetic per element of a term, of the gradient to the prediction, and to the target [FLOP]."""

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape of one number."""
        if input_shapes[1:] and tuple(input_shapes[0]) != tuple(input_shapes[1]):
            problem = f"compares inputs of one shape, but they are {' and '.join(map(shape_text, input_shapes))}"
            raise ShapeMismatchError(problem)
        return ()

    def label_bytes(self, input_shapes: tuple[Shape, ...]) -> int:
        """Return the target where it is no input [B/sample]."""
        return 0 if input_shapes[1:] else LABEL_BYTES * math.prod(input_shapes[0])

    def _counts(self, input_shapes: tuple[Shape, ...], batch_size: Any) -> tuple[Any, Any]:
        """Return elements of the prediction, and those read as numbers: of both."""
        elements = batch_size * math.prod(input_shapes[0])
        return elements, sum(element_count(shape, batch_size=batch_size) for shape in input_shapes)

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads prediction and target and writes a loss per sample."""
        elements, read = self._counts(input_shapes, batch_size)
        return (
            MemoryPass(
                name=self.kind,
                read_elements=read,
                written_elements=batch_size,
                tensor_elements=elements,
                flop_count=(self.flop_per_element[0] + 1) * elements + batch_size,
                read_index_bytes=batch_size * self.label_bytes(input_shapes),
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass for each gradient."""
        return self.gradient_operations(input_shapes, batch_size=batch_size, wanted=[True] * len(input_shapes))

    def gradient_operations(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, wanted: Sequence[bool]
    ) -> tuple[Operation, ...]:
        """Return one pass for each wanted gradient."""
        elements, read = self._counts(input_shapes, batch_size)
        return tuple(
            MemoryPass(
                name=self.kind,
                read_elements=read + batch_size,
                written_elements=elements,
                tensor_elements=elements,
                flop_count=flop * elements + batch_size,
                read_index_bytes=batch_size * self.label_bytes(input_shapes),
                role=Role.INPUT_GRADIENT,
            )
            for flop, is_wanted in zip(self.flop_per_element[1:], wanted, strict=False)
            if is_wanted
        )
