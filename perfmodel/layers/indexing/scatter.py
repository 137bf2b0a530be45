"""A tensor of which some elements are replaced, or added to, by index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_flag
from perfmodel.layers.passes import INDEX_BYTES
from perfmodel.layers.shapes import Shape, SharedShape, element_count
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator
from perfmodel.records import MemoryPass, Operation, Role

TORCH_NAMES: dict[str, tuple[str, str]] = {
    "aten.scatter": ("index", "src"),
    "aten.scatter_add": ("index", "src"),
    "aten.scatter_reduce": ("index", "src"),
    "aten.index_add": ("index", "source"),
    "aten.index_copy": ("index", "source"),
    "aten.index_fill": ("index", "value"),
    "aten.index_put": ("indices", "values"),
    "aten._unsafe_index_put": ("indices", "values"),
    "aten.masked_scatter": ("mask", "source"),
}
"""Operator of torch -> names of the indices and of the source."""
ADDING = ("aten.scatter_add", "aten.scatter_reduce", "aten.index_add")
"""Operators of torch that add."""


def _scattered(target: Operand, source: Any, indices: tuple[Any, ...], *, adds: bool) -> Translation:
    tensors = tuple(each for each in indices if isinstance(each, Operand))
    has_source = isinstance(source, Operand)
    inputs = (target, *((source,) if has_source else ()), *tensors)
    return Translation(layer=Scatter(adds=adds, has_source=has_source), inputs=inputs)


def _from_torch(call: OperatorCall) -> Translation:
    index, source = TORCH_NAMES[call.operator]
    given = call[index]
    return _scattered(
        call["self"],
        call.get(source),
        given if isinstance(given, tuple) else (given,),
        adds=call.operator in ADDING or bool(call.get("accumulate", False)),
    )


def _from_onnx(call: OperatorCall) -> Translation:
    return _scattered(call["0"], call["2"], (call["1"],), adds=call.get("reduction", "none") != "none")


@final
@dataclass(frozen=True, kw_only=True)
class Scatter(Layer):
    """The first input with the second's elements, or a number, at the places that the indices in the others name.

    Parameters
    ----------
    adds : bool
        Whether they are added to what is there. [-]
    has_source : bool
        Whether the second input holds what is written; otherwise it is one number and all others are indices. [-]

    Notes
    -----
    n elements of the first input, m that are written. Forward copies the first input, then reads m elements and an
    index of 4 B for each element of the inputs of indices, and writes them; where it adds, m adds and as many reads
    more. Backward to the first input passes dy on where it adds, else copies it and clears m elements; to the second
    it picks m elements of dy.
    """

    kind: ClassVar[str] = "scatter"
    examples: ClassVar[Examples] = (
        ({}, ((5, 6), (2, 6), (2, 6))),
        ({"adds": True}, ((10,), (4,), (4,))),
        ({"has_source": False}, ((5, 6), (5, 1))),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("S", "F"), ("T", "F"), ("T",)))
    torch_operators: ClassVar[Mapping[str, Translator]] = dict.fromkeys(TORCH_NAMES, _from_torch)
    onnx_operators: ClassVar[Mapping[str, Translator]] = {
        "ScatterElements": _from_onnx,
        "ScatterND": _from_onnx,
    }
    input_counts: ClassVar[tuple[int, int | None]] = (2, None)
    keeps_inputs: ClassVar[bool] = False
    adds: bool = False
    has_source: bool = True

    def __post_init__(self) -> None:
        check_flag("adds", self.adds)
        check_flag("has_source", self.has_source)

    def differentiable(self, input_count: int) -> tuple[bool, ...]:
        """Tell for each of ``input_count`` inputs [1] whether it has a gradient: indices have none."""
        values = 1 + self.has_source
        return (True,) * values + (False,) * (input_count - values)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the first input's shape; each sample has its own where any input is the samples'."""
        all_shared = all(isinstance(shape, SharedShape) for shape in input_shapes)
        return SharedShape(input_shapes[0]) if all_shared else tuple(input_shapes[0])

    def _counts(self, input_shapes: tuple[Shape, ...], batch_size: Any) -> tuple[Any, Any, Any]:
        """Return elements of the output, elements written into it, and bytes of indices."""
        output = element_count(self.output_shape(input_shapes), batch_size=batch_size)
        _, *others = (element_count(shape, batch_size=batch_size) for shape in input_shapes)
        return output, others[0], INDEX_BYTES * sum(others[self.has_source :])

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
        """Return one pass that copies the first input and writes into the copy."""
        elements, written, index_bytes = self._counts(input_shapes, batch_size)
        return (
            MemoryPass(
                name="scatter",
                read_elements=element_count(input_shapes[0], batch_size=batch_size)
                + (int(self.has_source) + int(self.adds)) * written,
                written_elements=elements + written,
                tensor_elements=elements,
                flop_count=int(self.adds) * written,
                read_index_bytes=index_bytes,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the passes that make the gradients of both inputs."""
        return self.gradient_operations(input_shapes, batch_size=batch_size, wanted=[True] * len(input_shapes))

    def gradient_operations(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, wanted: Sequence[bool]
    ) -> tuple[Operation, ...]:
        """Return a pass for each wanted gradient that is not passed on."""
        elements, written, index_bytes = self._counts(input_shapes, batch_size)
        reads_and_writes = []
        if wanted[0] and not self.adds:
            reads_and_writes.append((elements, elements + written))
        if wanted[1] and self.has_source:
            reads_and_writes.append((written, written))
        return tuple(
            MemoryPass(
                name="scatter",
                read_elements=read,
                written_elements=made,
                tensor_elements=made,
                read_index_bytes=index_bytes,
                role=Role.INPUT_GRADIENT,
            )
            for read, made in reads_and_writes
        )
