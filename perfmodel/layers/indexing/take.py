"""Elements or rows of a tensor picked by index."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_count, check_shape
from perfmodel.layers.passes import INDEX_BYTES
from perfmodel.layers.shapes import Shape, SharedShape, element_count
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator
from perfmodel.numeric import share_of
from perfmodel.records import MemoryPass, Operation, Role


def _picked(call: OperatorCall, table: Operand, indices: tuple[Operand, ...]) -> Translation | None:
    """Return the rows that indices pick; each index stands for the elements of the result that share it."""
    if not indices or not all(each.is_index for each in indices):
        return None
    operands = (table, *indices)
    picked = max(math.prod(each.shape) for each in indices)
    elements = math.prod(call.output.shape)
    row_elements = elements // picked if picked and elements % picked == 0 else 1
    is_shared = call.output.is_shared
    if is_shared != all(each.is_shared for each in operands):
        return None  # some of the samples
    return Translation(layer=Take(shape=tuple(call.output.shape), row_elements=row_elements), inputs=operands)


def _from_torch(call: OperatorCall) -> Translation | None:
    return _picked(call, call["self"], (call["index"],))


def _indexed_from_torch(call: OperatorCall) -> Translation | None:
    return _picked(call, call["self"], tuple(each for each in call["indices"] if isinstance(each, Operand)))


def _from_onnx(call: OperatorCall) -> Translation | None:
    return _picked(call, call["0"], (call["1"],))


@final
@dataclass(frozen=True, kw_only=True)
class Take(Layer):
    """Rows of the first input, picked by the indices in the others.

    Parameters
    ----------
    shape : tuple of int
        Shape of an output sample. [1]
    row_elements : int
        Elements that one index picks together. [1]

    Notes
    -----
    n elements of output in n / ``row_elements`` rows. Forward reads them and an index of 4 B per row and input of
    indices, and writes them. Backward clears the gradient of the first input, then adds each row of dy into it: n adds,
    reads dy and what it adds to, and the indices.
    """

    kind: ClassVar[str] = "take"
    examples: ClassVar[Examples] = (
        ({"shape": (3, 6), "row_elements": 6}, ((5, 6), (3,))),
        ({"shape": (5, 2)}, ((5, 6), (5, 2))),
        ({"shape": (4, 4, 8), "row_elements": 8}, (SharedShape((9, 8)), SharedShape((4, 4)))),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"shape": ("K", "F"), "row_elements": "F"}, (("S", "F"), ("K",)))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.index": _indexed_from_torch,
        "aten.index_select": _from_torch,
        "aten.gather": _from_torch,
        "aten.take": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {
        "Gather": _from_onnx,
        "GatherElements": _from_onnx,
        "GatherND": _from_onnx,
    }
    index_inputs: ClassVar[tuple[int, ...]] = tuple(range(1, 9))
    input_counts: ClassVar[tuple[int, int | None]] = (2, 9)
    keeps_inputs: ClassVar[bool] = False
    shape: Shape
    row_elements: int = 1

    def __post_init__(self) -> None:
        check_shape("shape", self.shape)
        check_count("row_elements", self.row_elements)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape that was asked for."""
        all_shared = all(isinstance(shape, SharedShape) for shape in input_shapes)
        return SharedShape(self.shape) if all_shared else self.shape

    def _counts(self, input_shapes: tuple[Shape, ...], batch_size: Any) -> tuple[Any, Any]:
        """Return elements of the output, and bytes of indices that are read."""
        elements = element_count(self.output_shape(input_shapes), batch_size=batch_size)
        indices_per_row = len(input_shapes) - 1
        return elements, INDEX_BYTES * indices_per_row * share_of(elements, self.row_elements)

    def kept_inputs(self, wanted: Sequence[bool], *, is_trained: bool) -> tuple[bool, ...]:
        """Tell for each input whether back-propagation reads it: the indices.

        Parameters
        ----------
        wanted : sequence of bool
            Whether each input's gradient is computed. [-]
        is_trained : bool
            Without effect: there are no parameters. [-]

        Returns
        -------
        tuple of bool
            True for the inputs without a gradient. [-]
        """
        del is_trained
        return tuple(any(wanted) and not flows for flows in self.differentiable(len(wanted)))

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads rows and indices and writes the rows."""
        elements, index_bytes = self._counts(input_shapes, batch_size)
        return (
            MemoryPass(
                name="take",
                read_elements=elements,
                written_elements=elements,
                tensor_elements=elements,
                read_index_bytes=index_bytes,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that clears the gradient and adds the rows into it."""
        elements, index_bytes = self._counts(input_shapes, batch_size)
        return (
            MemoryPass(
                name="take",
                read_elements=2 * elements,
                written_elements=elements + element_count(input_shapes[0], batch_size=batch_size),
                tensor_elements=elements,
                flop_count=elements,
                read_index_bytes=index_bytes,
                role=Role.INPUT_GRADIENT,
            ),
        )
