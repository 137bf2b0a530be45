"""Layers that pick, scatter or sort elements by index, look them up in a table, or turn them by their position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from perfmodel.layers.base import Checks, Layer, LayerByInput, OnePassLayer, Operations, Traffic, layer_kind
from perfmodel.layers.checks import check_axis, is_open_size, numbered, one_of
from perfmodel.layers.passes import INDEX_BYTES, one_pass, only_pass
from perfmodel.layers.shapes import (
    SEQUENCE,
    Shape,
    Shapes,
    axis_in,
    check_rank,
    element_count,
    mismatch,
    shape_text,
    stated_shape,
    with_extent,
)
from perfmodel.layers.translation import Operand, OperatorCall, Operators, Translation, of_first
from perfmodel.numeric import share_of
from perfmodel.records import Gather, Role


@dataclass(frozen=True, kw_only=True)
class IndexedLayer(Layer):
    """A layer whose back-propagation reads only the inputs without a gradient: the indices."""

    def kept_inputs(self, wanted: Sequence[bool], *, is_trained: bool) -> tuple[bool, ...]:
        """Return for each input whether back-propagation reads it: the indices, if any gradient is needed."""
        return tuple(any(wanted) and not flows for flows in self.differentiable(len(wanted)))


def _picked(call: OperatorCall) -> Translation | None:
    """Return the rows that indices pick; each index stands for the elements of the result that share it."""
    _, *indices = call.operands
    if not indices or not all(index.is_index for index in indices):
        return None
    picked = max(math.prod(index.shape) for index in indices)
    elements = math.prod(call.output.shape)
    row_elements = elements // picked if picked and elements % picked == 0 else 1
    is_shared = call.output.is_shared
    if is_shared != all(operand.is_shared for operand in call.operands):
        return None  # some of the samples
    return Translation(layer=Take(shape=tuple(call.output.shape), row_elements=row_elements), inputs=call.operands)


@layer_kind("take")
class Take(IndexedLayer, OnePassLayer):
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

    operators: ClassVar[Operators] = dict.fromkeys(
        ("aten.index", "aten.index_select", "aten.gather", "aten.take", "Gather", "GatherElements", "GatherND"), _picked
    )
    index_inputs: ClassVar[tuple[int, ...]] = tuple(range(1, 9))
    input_counts: ClassVar[tuple[int, int | None]] = (2, 9)
    keeps_inputs: ClassVar[bool] = False
    shape: Shape
    row_elements: int = 1

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the requested shape."""
        return stated_shape(self.shape, input_shapes)

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic]:
        """Return a pass that copies the rows, and one that clears the gradient and adds rows into it."""
        elements = element_count(self.output_shape(input_shapes), batch_size=batch_size)
        index_bytes = INDEX_BYTES * (len(input_shapes) - 1) * share_of(elements, self.row_elements)
        return (
            {"read": elements, "written": elements, "read_index_bytes": index_bytes},
            {
                "read": 2 * elements,
                "written": elements + element_count(input_shapes[0], batch_size=batch_size),
                "tensor": elements,
                "flop": elements,
                "read_index_bytes": index_bytes,
            },
        )


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
    tensors = tuple(index for index in indices if isinstance(index, Operand))
    has_source = isinstance(source, Operand)
    inputs = (target, *((source,) if has_source else ()), *tensors)
    return Translation(layer=Scatter(adds=adds, has_source=has_source), inputs=inputs)


def _from_torch_scatter(call: OperatorCall) -> Translation:
    index, source = TORCH_NAMES[call.operator]
    index_tensor = call[index]
    return _scattered(
        call["self"],
        call.get(source),
        index_tensor if isinstance(index_tensor, tuple) else (index_tensor,),
        adds=call.operator in ADDING or bool(call.get("accumulate", False)),
    )


def _from_onnx_scatter(call: OperatorCall) -> Translation:
    return _scattered(call["0"], call["2"], (call["1"],), adds=call.get("reduction", "none") != "none")


@layer_kind("scatter")
class Scatter(IndexedLayer, LayerByInput):
    """The first input with the second's elements, or a number, at the places that the indices in the others name.

    Parameters
    ----------
    adds : bool
        Whether they are added to the existing elements. [-]
    has_source : bool
        Whether the second input holds the values; otherwise one number is written and all others are indices. [-]

    Notes
    -----
    n elements of the first input, m that are written. Forward copies the first input, then reads m elements and an
    index of 4 B for each element of the inputs of indices, and writes them; where it adds, m adds and as many reads
    more. Backward to the first input passes dy on where it adds, else copies it and clears m elements; to the second
    it picks m elements of dy.
    """

    operators: ClassVar[Operators] = {
        **dict.fromkeys(TORCH_NAMES, _from_torch_scatter),
        "ScatterElements": _from_onnx_scatter,
        "ScatterND": _from_onnx_scatter,
    }
    input_counts: ClassVar[tuple[int, int | None]] = (2, None)
    keeps_inputs: ClassVar[bool] = False
    adds: bool = False
    has_source: bool = True

    def differentiable(self, input_count: int) -> tuple[bool, ...]:
        """Return for each of ``input_count`` inputs [1] whether it has a gradient: indices have none."""
        values = 1 + self.has_source
        return (True,) * values + (False,) * (input_count - values)

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the first input's shape; each sample has its own where any input is the samples'."""
        return stated_shape(tuple(input_shapes[0]), input_shapes)

    def _counts(self, input_shapes: Shapes, batch_size: Any) -> tuple[Any, Any, Any]:
        """Return elements of the output, elements written into it, and bytes of indices."""
        output = element_count(self.output_shape(input_shapes), batch_size=batch_size)
        _, *others = (element_count(shape, batch_size=batch_size) for shape in input_shapes)
        return output, others[0], INDEX_BYTES * sum(others[self.has_source :])

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return one pass that copies the first input and writes into the copy."""
        elements, written, index_bytes = self._counts(input_shapes, batch_size)
        return only_pass(
            "scatter",
            read=element_count(input_shapes[0], batch_size=batch_size)
            + (int(self.has_source) + int(self.adds)) * written,
            written=elements + written,
            tensor=elements,
            flop=int(self.adds) * written,
            read_index_bytes=index_bytes,
        )

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return a pass for each wanted gradient that is not passed on."""
        elements, written, index_bytes = self._counts(input_shapes, batch_size)
        reads_and_writes = []
        if wanted[0] and not self.adds:
            reads_and_writes.append((elements, elements + written))
        if wanted[1] and self.has_source:
            reads_and_writes.append((written, written))
        return tuple(
            one_pass("scatter", read=read, written=made, read_index_bytes=index_bytes, role=Role.INPUT_GRADIENT)
            for read, made in reads_and_writes
        )


RESULTS = ("values", "index")
"""Which result is the output."""


def _largest(call: OperatorCall) -> Translation | None:
    place = call.operands[0].sample_axis(call.get("dim", call.get("axis", -1)))
    if place is None:
        return None  # among samples
    result = "index" if call.output.is_index else "values"
    return of_first(call, TopK(count=call.output.shape[place], axis=place, result=result))


@layer_kind("top_k")
class TopK(OnePassLayer):
    """The ``count`` largest (or smallest) elements of each row along an axis, in order, or their positions.

    Parameters
    ----------
    count : int
        Elements kept per row. [1]
    axis : int
        Axis of a sample; negative counts from the last. [-]
    result : str
        ``values``, or ``index`` for their positions. [-]

    Notes
    -----
    Each of the n elements is placed among those kept by bisection: log2(count + 1) comparisons, rounded up. Forward
    reads x and writes values and an index of 4 B for each kept element. Backward clears dx and puts dy at the
    indices, which are kept; positions have no gradient.
    """

    operators: ClassVar[Operators] = dict.fromkeys(("aten.topk", "aten.sort", "aten.argsort", "TopK"), _largest)
    keeps_inputs: ClassVar[bool] = False
    checks: ClassVar[Checks] = {"count": numbered(), "axis": check_axis, "result": one_of(RESULTS)}
    count: int
    axis: int = -1
    result: str = "values"

    def differentiable(self, input_count: int) -> tuple[bool, ...]:
        """Return for each of ``input_count`` inputs [1] whether it has a gradient: positions have none."""
        return (self.result == "values",) * input_count

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape with ``count`` along the axis."""
        shape = input_shapes[0]
        place = axis_in(shape, self.axis)
        if not is_open_size(shape[place]) and self.count > shape[place]:
            mismatch(f"keeps {self.count} elements along axis {self.axis}, but its input is {shape_text(shape)}")
        return with_extent(shape, place, self.count)

    def saved_index_count(self, input_shapes: Shapes, *, batch_size: Any) -> Any:
        """Return the positions of the kept elements [1]."""
        return element_count(self.output_shape(input_shapes), batch_size=batch_size)

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic | None]:
        """Return a pass that reads x and writes values and indices, and one that clears dx and writes dy into it."""
        elements = element_count(input_shapes[0], batch_size=batch_size)
        kept = self.saved_index_count(input_shapes, batch_size=batch_size)
        index_bytes, flop = INDEX_BYTES * kept, self.count.bit_length() * elements
        forward = {"read": elements, "written": kept, "tensor": elements, "flop": flop}
        backward = {"read": kept, "written": elements + kept, "tensor": elements, "read_index_bytes": index_bytes}
        return {**forward, "written_index_bytes": index_bytes}, backward if self.result == "values" else None


TABLE_AXES = 2


def _look_up(call: OperatorCall) -> Translation | None:
    table, indices = call.operands[:2]
    if call.get("axis", 0) or not table.is_parameter or table.is_transposed or len(table.shape) != TABLE_AXES:
        return None
    layer = Embedding(vocabulary=table.shape[0], features=table.shape[1])
    return Translation(layer=layer, inputs=(indices,), parameters={"weight": table})


@layer_kind("embedding")
class Embedding(Layer):
    """Row of a table for each index of a sample.

    Parameters
    ----------
    vocabulary : int
        Rows of the table. [1]
    features : int
        Elements per row. [1]

    Notes
    -----
    The gradient is dense, as frameworks without sparse updates keep it: the table's is cleared, then rows
    added.
    """

    inputs_serve_weights: ClassVar[bool] = True
    index_inputs: ClassVar[tuple[int, ...]] = (0,)
    operators: ClassVar[Operators] = dict.fromkeys(("aten.embedding", "Gather"), _look_up)
    vocabulary: int
    features: int

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the shape of the indices with an axis of features behind."""
        return (*input_shapes[0], self.features)

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return the table."""
        return {"weight": (self.vocabulary, self.features)}

    def _gather(self, input_shapes: Shapes, *, batch_size: Any, role: Role) -> Gather:
        rows = batch_size * math.prod(input_shapes[0])
        return Gather(rows=rows, width=self.features, table_rows=self.vocabulary, role=role)

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the look-up."""
        return (self._gather(input_shapes, batch_size=batch_size, role=Role.OUTPUT),)

    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the addition of rows into the table's gradient; an index has none."""
        return (self._gather(input_shapes, batch_size=batch_size, role=Role.WEIGHT_GRADIENT),)


@layer_kind("positional_embedding")
class PositionalEmbedding(OnePassLayer):
    """y = x + table[:steps]: a learned row is added to each position of (steps, features).

    Parameters
    ----------
    positions : int
        Rows of the table: the greatest number of steps. [1]

    Notes
    -----
    Forward one add per element, which reads x and the rows in use and writes y. Backward x's gradient is the output's
    own, passed on without a copy; the table's adds it up over the samples (1 FLOP an element) and is dense, so that
    all its rows are written.

    References
    ----------
    .. [1] Radford et al., Improving language understanding by generative pre-training, 2018, section 3.1.
    """

    keeps_inputs: ClassVar[bool] = False
    gradient_role: ClassVar[Role] = Role.WEIGHT_GRADIENT
    positions: int

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape."""
        check_rank(input_shapes[0], SEQUENCE)
        steps = input_shapes[0][0]
        if not is_open_size(steps) and not is_open_size(self.positions) and steps > self.positions:
            mismatch(f"has {self.positions} positions, but its input {shape_text(input_shapes[0])} has {steps} steps")
        return input_shapes[0]

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return the table."""
        return {"weight": (self.positions, input_shapes[0][-1])}

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic]:
        """Return a pass that adds the rows in use, and one that adds up the table's gradient."""
        rows_in_use = math.prod(input_shapes[0])
        elements, table_elements = batch_size * rows_in_use, self.positions * input_shapes[0][-1]
        return (
            {"read": elements + rows_in_use, "written": elements, "flop": elements},
            {"read": elements, "written": table_elements, "tensor": elements, "flop": elements},
        )


HEADS = ("heads", *SEQUENCE)
FLOP_PER_ELEMENT = 3
"""A pair (a, b) becomes (a cos - b sin, a sin + b cos): 4 products and 2 additions for two elements [FLOP]."""


def _from_onnx_rotary_embedding(call: OperatorCall) -> Translation | None:
    x = call["0"]
    if call.get("rotary_embedding_dim", 0) or x.axes != (None, 0, 1, 2):
        return None
    return Translation(layer=RotaryEmbedding(), inputs=(x,))


@layer_kind("rotary_embedding")
class RotaryEmbedding(OnePassLayer):
    """Pairs of features turned by an angle that grows with the position; x is ([heads,] steps, features).

    Notes
    -----
    Forward and backward 6 FLOP per pair, one pass each, which reads x (or dy) and the tables of cosines and sines,
    one pair per step and pair of features, and writes as much as x. Neither x nor y is kept. Ignores: the memory of
    the tables, which are a network's, not a layer's.

    References
    ----------
    .. [1] Su et al., RoFormer, arXiv:2104.09864, equation 34.
    """

    keeps_inputs: ClassVar[bool] = False
    operators: ClassVar[Operators] = {"RotaryEmbedding": _from_onnx_rotary_embedding}

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape."""
        check_rank(input_shapes[0], SEQUENCE, HEADS)
        features = input_shapes[0][-1]
        if not is_open_size(features) and features % 2:
            mismatch(f"turns pairs of features, but its input {shape_text(input_shapes[0])} has {features}")
        return input_shapes[0]

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic]:
        """Return a pass that turns x, and one that turns dy back."""
        elements = batch_size * math.prod(input_shapes[0])
        tables = math.prod(input_shapes[0][-2:])  # a cosine and a sine for every two features
        turn = {"read": elements + tables, "written": elements, "flop": FLOP_PER_ELEMENT * elements}
        return turn, turn
