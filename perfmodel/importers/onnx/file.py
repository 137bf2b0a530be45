"""ONNX files as layer graphs: operators and shapes are read, weights are not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from warnings import warn

import numpy as np

from perfmodel.calls import CALLER, in_words
from perfmodel.derived import derived_property
from perfmodel.errors import FixedBatchWarning, OpaqueLayerWarning, SpecError
from perfmodel.graph import LayerGraph
from perfmodel.importers.build import build, holes_by_operator, listed
from perfmodel.importers.onnx.batch import BATCH_SIZES, RECURRENT, NoSampleShapeError, Traced, trace_model
from perfmodel.importers.onnx.model import is_standard, node_name, read_model, schema_of
from perfmodel.importers.onnx.shapes import (
    ARRANGES,
    INTEGER_PRODUCT,
    NARROW_WEIGHTS,
    SCALED_BY,
    TAKES_PARTS,
    WEIGHT_INPUTS,
    trained_tensors,
)
from perfmodel.importers.recording import Place, import_progress
from perfmodel.importers.translation import VIEW, ParameterTensor, Program, Step, all_translators
from perfmodel.layers.checks import check_text
from perfmodel.layers.shapes import SharedShape
from perfmodel.layers.translation import Operand, OperatorCall

MOST_NAMED_ELEMENTS: Final = 64
"""Known inputs with more elements are data, not options such as axes, starts or a ratio [1]."""


class NodeCalls:
    """Translates the nodes of a file to operator calls."""

    def __init__(self, traced: Traced) -> None:
        self._traced = traced
        self._model = traced.model
        self._first_names: dict[str, str] = {}
        self._transposed: set[str] = set()
        self._held: set[str] = set()
        self._weight_dtypes: dict[str, str] = {}
        for node in self._model.nodes:
            if is_standard(node) and node.op_type in ("Identity", "Dropout") and not self._drops(node):
                self._add_name(node.output[0], node.input[0])
            elif is_standard(node) and node.op_type in (*ARRANGES, *TAKES_PARTS):
                self._hold(node)
            elif is_standard(node) and node.op_type in SCALED_BY:
                self._hold_scaled(node)
            elif is_standard(node) and node.op_type == INTEGER_PRODUCT and self._is_narrow(node.input[1]):
                self._held.add(node.input[1])
                self._pass_dtype_on(node.input[1], node.input[1])

    def _add_name(self, name: str, first: str, *, is_transposed: bool = False) -> None:
        """Record a second name of a tensor."""
        self._first_names[name] = self._first_names.get(first, first)
        if (first in self._transposed) != is_transposed:
            self._transposed.add(name)
        if self._is_parameter(first):
            self._held.add(name)
        self._pass_dtype_on(name, first)

    def _pass_dtype_on(self, name: str, source: str) -> None:
        """Record that a rearranged tensor is stored in the data type of its source."""
        stored = self._model.initialisers.get(source)
        dtype = self._weight_dtypes.get(source) if stored is None else NARROW_WEIGHTS.get(stored.data_type)
        if dtype is not None:
            self._weight_dtypes[name] = dtype

    def _is_narrow(self, name: str) -> bool:
        """Tell whether a stored tensor is a table of weights of eight bits or four."""
        stored = self._model.initialisers.get(name)
        return stored is not None and stored.data_type in NARROW_WEIGHTS and len(stored.dims) > 1

    def _hold_scaled(self, node: Any) -> None:
        """Record that stored integers are still a parameter after scaling or subtraction of their zero point."""
        first, second = node.input
        if node.op_type == "Mul" and second in self._weight_dtypes:
            first, second = second, first
        is_number = second in self._model.initialisers or self.is_known(second)
        if is_number and first in self._weight_dtypes and first in self._held:
            self._held.add(node.output[0])
            self._pass_dtype_on(node.output[0], first)

    def weight_dtype(self, name: str) -> str | None:
        """Return the integer type in which a parameter is stored; None for fractional numbers."""
        return self._weight_dtypes.get(name)

    def _hold(self, node: Any) -> None:
        """Record the result of a node that only rearranges parameters as a parameter."""
        names = [name for name in node.input if name]
        sources = names if node.op_type == "Concat" else names[:1]
        is_unpacked = node.op_type == "Cast" and self._is_narrow(names[0])
        stored = self._model.initialisers if is_unpacked or node.op_type == "DequantizeLinear" else ()
        is_arranged = all(self._is_parameter(name) or name in stored for name in sources)
        rest_is_known = all(name in sources or name in stored or self.is_known(name) for name in names)
        result = self._traced.traces[0].values[node.output[0]]
        if not (is_arranged and rest_is_known) or result.is_index:
            return
        if node.op_type in TAKES_PARTS and not self._is_read_as_weight(node.output[0]):
            return
        axes = next((tuple(attribute.ints) for attribute in node.attribute if attribute.name == "perm"), (1, 0))
        is_matrix = node.op_type == "Transpose" and axes == (1, 0) and len(result.shape) == len(axes)
        if (node.op_type == "Cast" and not is_unpacked) or is_matrix:
            self._add_name(node.output[0], names[0], is_transposed=is_matrix)
        elif node.op_type in ARRANGES and len(self.reads[names[0]]) > 1:
            return  # a view of a parameter that other nodes read unchanged
        self._held.add(node.output[0])
        self._pass_dtype_on(node.output[0], names[0])

    def _is_read_as_weight(self, name: str) -> bool:
        """Tell whether layers read a tensor only as their weights."""
        for node in self.reads.get(name, ()):
            positions = [index for index, read in enumerate(node.input) if read == name]
            is_weight = set(positions) <= set(WEIGHT_INPUTS.get(node.op_type, ()))
            passes_on = node.op_type in (*ARRANGES, *TAKES_PARTS) and self._is_read_as_weight(node.output[0])
            if not (is_weight or passes_on):
                return False
        return True

    def _is_parameter(self, name: str) -> bool:
        return name in self._held or name in self._trained

    @derived_property
    def _trained(self) -> frozenset[str]:
        return trained_tensors(self._model.nodes, self._traced.traces[0].values, self.reads)

    def is_known(self, name: str) -> bool:
        """Tell whether a tensor's content follows from the file alone."""
        return bool(name) and all(trace.values[name].is_exact for trace in self._traced.traces)

    def is_layer(self, node: Any) -> bool:
        """Tell whether a node computes something that a result depends on."""
        names = [name for name in node.output if name]
        is_other_name = all(name in self._held or name in self._first_names for name in names)
        return not (is_other_name or self.needed.isdisjoint(names))

    def _drops(self, node: Any) -> bool:
        """Tell whether a node is an active dropout, as in files of networks in training."""
        if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
            return False
        content = self._traced.traces[0].values[node.input[2]].content
        return content is None or bool(content.any())

    @derived_property
    def reads(self) -> Mapping[str, Sequence[Any]]:
        """Nodes that read each tensor."""
        readers: dict[str, list[Any]] = {}
        for node in self._model.nodes:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        return readers

    @derived_property
    def needed(self) -> set[str]:
        """Tensors whose values the outputs depend on, without dead ends and tensors read only for their shape."""
        makers = {name: node for node in self._model.nodes for name in node.output if name}
        needed: set[str] = set()
        open_names = [name for name in self._model.outputs if not self.is_known(name)]
        while open_names:
            name = open_names.pop()
            if name in needed:
                continue
            needed.add(name)
            maker = makers.get(name)
            if maker is not None:
                open_names += [name for name in maker.input if name and not self.is_known(name)]
        return needed

    def operand(self, name: str) -> Operand:
        """Return a tensor in the form that layers read, under its first name."""
        operand = self._traced.operand(name)
        first = self._first_names.get(name, name)
        return replace(
            operand,
            key=first,
            is_parameter=self._is_parameter(name),
            is_transposed=name in self._transposed,
        )

    @property
    def whole_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors with all their samples, by first name."""
        values = self._traced.traces[0].values
        return {name: value.shape for name, value in values.items() if name not in self._first_names}

    @derived_property
    def _biases(self) -> dict[str, tuple[Any, str]]:
        """Biases by product: the node that alone reads a product with a weight and adds a bias, and that bias."""
        biases = {}
        for node in self._model.nodes:
            if node.op_type != "MatMul" or not is_standard(node) or node.output[0] in self._model.outputs:
                continue
            readers = self.reads.get(node.output[0], ())
            if len(readers) != 1 or readers[0].op_type != "Add" or not self.operand(node.input[1]).is_parameter:
                continue
            bias = next((name for name in readers[0].input if name != node.output[0]), None)
            if bias is not None and self._is_bias(bias, of=node.output[0]):
                biases[node.output[0]] = readers[0], bias
        return biases

    def _is_bias(self, name: str, *, of: str) -> bool:
        bias, products = self.operand(name), self._traced.traces[0].values[of]
        return bias.is_parameter and bias.shape == products.shape[-1:]

    def of(self, node: Any) -> Iterator[tuple[str, OperatorCall]]:
        """Yield the calls of a node, with a name for each; none if the call of another node includes it."""
        name = node_name(node)
        if any(name in self._biases for name in node.input):
            return
        if node.output[0] in self._biases:
            adding, bias = self._biases[node.output[0]]
            yield name, self._call(node, operator="Gemm", further=(bias,), outputs=tuple(adding.output))
        elif node.op_type == "Split" and is_standard(node):
            parts = [output for output in node.output if output in self.needed]
            for part in parts:
                yield f"{name}_{list(node.output).index(part)}", self._call(node, outputs=(part,))
        elif node.op_type == "DynamicQuantizeLinear" and is_standard(node):
            # scale and zero point, one number each, are as good as known
            yield name, self._call(node, operator="QuantizeLinear", outputs=tuple(node.output[:1]))
        elif node.op_type == INTEGER_PRODUCT and is_standard(node):
            yield name, self._integer_product(node)
        elif node.op_type == "Einsum" and is_standard(node):
            for call in einsum_calls(self._call(node, outputs=tuple(node.output))):
                yield name, call
        else:
            yield name, self._call(node, outputs=tuple(node.output))

    def _call(
        self, node: Any, *, outputs: tuple[str, ...], operator: str | None = None, further: tuple[str, ...] = ()
    ) -> OperatorCall:
        """Return a node as a call, optionally under another name and with more inputs."""
        operands = [self.operand(name) if name else None for name in (*node.input, *further)]
        arguments: dict[str, Any] = {str(index): operand for index, operand in enumerate(operands)}
        named = self._named_inputs(node, operands)
        last = max(index for index, name in enumerate(outputs) if not index or name in self.needed)
        results = [self.operand(name) for name in outputs[: last + 1]]
        if node.op_type in RECURRENT:  # omitted states before the first step are zero
            arguments |= {str(index): None for index in (5, 6) if self._is_zero(node, index)}
        domain = "" if is_standard(node) else f"{node.domain}."
        return OperatorCall(
            operator=operator or f"{domain}{node.op_type}",
            arguments=arguments | named | self._defaults(node) | _attributes(node),
            outputs=tuple(results),
        )

    def _integer_product(self, node: Any) -> OperatorCall:
        """Return a product of integers as an ordinary product: zero points and wide sums cost almost nothing."""
        factors = [replace(self.operand(name), is_index=False) for name in node.input[:2]]
        arguments = {str(index): factor for index, factor in enumerate(factors)}
        return OperatorCall(operator="MatMul", arguments=arguments, outputs=(self.operand(node.output[0]),))

    def _is_zero(self, node: Any, index: int) -> bool:
        """Tell whether a node's input is known to be all zeros."""
        name = node.input[index] if index < len(node.input) else ""
        return bool(name) and all(trace.values[name].is_zero for trace in self._traced.traces)

    def _named_inputs(self, node: Any, operands: Sequence[Operand | None]) -> dict[str, Any]:
        """Return small known inputs also by name: newer operator versions take options as inputs."""
        schema = schema_of(node, self._model.version)
        formal = [] if schema is None else [parameter.name for parameter in schema.inputs]
        return {
            name: tuple(operand.value.reshape(-1).tolist()) if np.ndim(operand.value) else operand.value.item()
            for name, operand in zip(formal, operands, strict=False)
            if operand is not None and operand.value is not None and operand.value.size <= MOST_NAMED_ELEMENTS
        }

    def _defaults(self, node: Any) -> dict[str, Any]:
        """Return the default values of options that a node leaves out."""
        schema = schema_of(node, self._model.version)
        described = [] if schema is None else schema.attributes.values()
        # the default lists activations for two directions, however many the node has
        stated = [known for known in described if known.default_value.name and known.name != "activations"]
        return {attribute.name: _plain(attribute.default_value) for attribute in stated}


def _attributes(node: Any) -> dict[str, Any]:
    """Return the options that a node states, without stored tensors."""
    stated = (entry for entry in node.attribute if not (entry.HasField("t") or entry.HasField("g")))
    return {entry.name: _plain(entry) for entry in stated}


def _plain(attribute: Any) -> Any:
    """Return an attribute as a number, a text or a tuple of them."""
    from onnx import helper

    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, int | float | str):
        return value
    return tuple(entry.decode(errors="replace") if isinstance(entry, bytes) else entry for entry in value)


ELLIPSIS: Final = "..."
FREE_LETTERS: Final = "0123456789"
"""Letters for the axes of an ellipsis."""


@dataclass(frozen=True, slots=True)
class _Term:
    """A tensor with a letter for each of its axes."""

    operand: Operand
    letters: str

    def extents(self) -> dict[str, Any]:
        """Return the extent of each letter in a sample; 1 for the batch axis."""
        places = zip(self.letters, self.operand.axes, strict=True)
        return {letter: 1 if place is None else self.operand.shape[place] for letter, place in places}

    @property
    def batch(self) -> str:
        """Letter of the batch axis; empty if there is none."""
        return "".join(letter for letter, place in zip(self.letters, self.operand.axes, strict=True) if place is None)


def einsum_calls(call: OperatorCall) -> Iterator[OperatorCall]:
    """Yield an ``Einsum`` as views of its operands, matrix products and a view of the result; else unchanged.

    The first two operands are multiplied, then their product with the third, and so on: the work of that
    order is counted, whatever order a program would choose. Letters of both operands and the result are leading axes,
    those of the first and the result rows, those of the second and the result columns; letters of both operands alone
    are summed. It stays unchanged if it has one operand, takes a diagonal, sums a letter of only one of a pair, or sums
    over the samples.
    """
    pairs = _pairs(call)
    if pairs is None:
        yield call
        return
    for pair in pairs:
        yield from _product(*pair)


def _product(first: _Term, second: _Term, result: _Term) -> Iterator[OperatorCall]:
    """Yield two operands as matrices, their product, and the view of that."""
    if second.batch and not first.batch:
        first, second = second, first  # the samples are rows of the first matrix
    extents = second.extents() | first.extents()
    lead = [letter for letter in first.letters if letter in second.letters and letter in result.letters]
    inner = [letter for letter in first.letters if letter in second.letters and letter not in result.letters]
    rows = [letter for letter in first.letters if letter not in second.letters]
    columns = [letter for letter in second.letters if letter not in first.letters]
    batch = first.batch
    shape_of = _shapes(extents, batch)
    left = _as_matrices(first.operand, (*shape_of(lead), _count(extents, rows), _count(extents, inner)))
    right = _as_matrices(second.operand, (*shape_of(lead), _count(extents, inner), _count(extents, columns)))
    made = _as_matrices(result.operand, (*shape_of(lead), _count(extents, rows), _count(extents, columns)))
    yield OperatorCall(operator=VIEW, arguments={"0": first.operand}, outputs=(left,))
    yield OperatorCall(operator=VIEW, arguments={"0": second.operand}, outputs=(right,))
    yield OperatorCall(operator="MatMul", arguments={"0": left, "1": right}, outputs=(made,))
    yield OperatorCall(operator=VIEW, arguments={"0": made}, outputs=(result.operand,))


def _pairs(call: OperatorCall) -> list[tuple[_Term, _Term, _Term]] | None:
    """Return two operands and their product for each step from left to right; None if one is not a matrix product."""
    operands = [*call.operands, call.output]
    if len(operands) < 3:
        return None
    inputs, arrow, output = call["equation"].replace(" ", "").partition("->")
    written = [*inputs.split(","), output]
    if not arrow or len(written) != len(operands):
        return None
    terms = [_Term(operand, _letters(letters, operand)) for operand, letters in zip(operands, written, strict=True)]
    if any(len(set(term.letters)) != len(term.operand.axes) for term in terms):
        return None  # a diagonal
    pairs, so_far = [], terms[0]
    for place, second in enumerate(terms[1:-1], start=2):
        result = terms[-1] if place == len(terms) - 1 else _intermediate(so_far, second, terms[place:])
        if not _is_matrix_product(so_far, second, result):
            return None
        pairs.append((so_far, second, result))
        so_far = result
    return pairs


def _intermediate(first: _Term, second: _Term, rest: Sequence[_Term]) -> _Term:
    """Return the product of two operands, with the letters that later operands or the result have."""
    still = {letter for term in rest for letter in term.letters}
    letters = "".join(letter for letter in dict.fromkeys(first.letters + second.letters) if letter in still)
    extents, batch = second.extents() | first.extents(), first.batch or second.batch
    inner = [letter for letter in letters if letter != batch]
    shape = tuple(extents[letter] for letter in inner)
    operand = Operand(
        key=f"{first.operand.key} {second.operand.key} to {letters}",
        shape=shape if batch else SharedShape(shape),
        axes=tuple(None if letter == batch else inner.index(letter) for letter in letters),
    )
    return _Term(operand, letters)


def _is_matrix_product(first: _Term, second: _Term, result: _Term) -> bool:
    once = set(first.letters) ^ set(second.letters)
    summed = (set(first.letters) | set(second.letters)) - set(result.letters)
    spreads = any(first.extents()[key] != second.extents()[key] for key in set(first.letters) & set(second.letters))
    batches = {term.batch for term in (first, second)} - {""}
    return not (once & summed or spreads or batches != {result.batch} - {""} or len(batches) > 1)


def _letters(written: str, operand: Operand) -> str:
    """Return a letter for each axis; axes of an ellipsis get digits, counted from the last."""
    missing = len(operand.axes) - len(written.replace(ELLIPSIS, ""))
    return written.replace(ELLIPSIS, FREE_LETTERS[:missing][::-1])


def _count(extents: Mapping[str, Any], letters: list[str]) -> Any:
    return math.prod(extents[letter] for letter in letters)


def _shapes(extents: Mapping[str, Any], batch: str) -> Any:
    """Return a function from letters to their extents in a sample, without the batch."""
    return lambda letters: tuple(extents[letter] for letter in letters if letter != batch)


def _as_matrices(operand: Operand, shape: tuple[Any, ...]) -> Operand:
    """Return a tensor viewed as matrices."""
    viewed = SharedShape(shape) if operand.is_shared else shape
    key = f"{operand.key} as {'x'.join(map(str, shape))}"
    return Operand(key=key, shape=viewed, axes=tuple(range(len(shape))), is_index=operand.is_index)


@in_words
def from_onnx(
    path: str | Path,
    *,
    batch_size: int | None = None,
    sizes: Mapping[str, int] | None = None,
    name: str | None = None,
    progress: bool | None = None,
) -> LayerGraph:
    """Read the network in an ONNX file; its batch size stays symbolic if the network allows it.

    Parameters
    ----------
    path : str or Path
        The file. Content of large tensors is never read, in this file or in neighbouring ones. [-]
    batch_size : int or None
        Samples, if the network holds for one batch size only and the file does not state it. [samples]
    sizes : mapping of str to int or None
        Values of the file's other free sizes, by their names, e.g. ``{"sequence": 128}``. [1]
    name : str or None
        Name of the graph; None for the file's name without its suffix. [-]
    progress : bool or None
        Whether to show progress; None: on a terminal, once the import takes longer than a second. [-]

    Returns
    -------
    LayerGraph
        The network, layers under the names of the file's nodes. [-]

    Raises
    ------
    MissingPackageError
        If the package onnx is not installed.
    ArgumentError
        If an argument is of the wrong kind.
    SpecError
        If the file is not an ONNX file, is truncated, or lacks a file of its tensors; if a size stays symbolic, shapes
        do not fit, or the executed nodes depend on data. Names the file and the node, input or tensor.
    UnknownNameError
        If a value is given for a size that the file does not have.

    Warns
    -----
    FixedBatchWarning
        If the network holds for one batch size only.
    OpaqueLayerWarning
        For operators without a layer, which become opaque layers.

    Notes
    -----
    A file does not say what is trained. Stored tensors of fractional numbers with at least one axis count as
    parameters, except where they are read only as running statistics, subtrahend, divisor, exponent, bound or operand
    of a comparison, as a vector times a stored matrix, or as a square first factor of a product with data (edges of
    a graph); and where they hold -10 000 or less (a mask of scores). Single numbers are constants. A table that is
    added counts as trained: whether it is learned, the file cannot tell.

    A file exported at one batch size is read as if the first axis of its inputs (the second in recurrent networks that
    put time first) could have any extent, and the leading number in fixed targets of reshapes likewise; where shapes
    then no longer fit, the graph is one of the exported batch size only. The bias added to a product with a weight is
    part of that dense layer.
    """
    model = read_model(path)
    if name is not None:
        check_text("name", name)
    parts = len(BATCH_SIZES) * len(model.nodes)
    with import_progress(f"importing {model.path.name}", parts, shown=progress) as advance:
        traced = trace_model(model, batch_size=batch_size, sizes=dict(sizes or {}), advance=advance)
    try:
        program = _program(traced, name=name or model.path.stem)
    except NoSampleShapeError as error:
        raise SpecError(model.path, [str(error)]) from error
    built = build(program, all_translators())
    if traced.fixed_batch_size is not None:
        message = f"{model.path}: holds for batch_size={traced.fixed_batch_size} only: {traced.problem}"
        warn(FixedBatchWarning(message), stacklevel=CALLER)
    for operator, holes, counts in holes_by_operator(built, batch_size=built.graph.fixed_batch_size or 1):
        nodes = f"{len(holes)} nodes: {listed([hole.layer for hole in holes])}"
        message = f"{model.path}: no layer translates the operator {operator!r} ({nodes}); {counts}"
        warn(OpaqueLayerWarning(message), stacklevel=CALLER)
    return built.graph


def _program(traced: Traced, *, name: str) -> Program:
    """Return the program of a file whose shapes are known."""
    calls = NodeCalls(traced)
    model = traced.model
    names = [model_input.name for model_input in model.inputs if model_input.name in calls.needed]
    operands = {name: calls.operand(name) for name in names}
    inputs = {name: operand for name, operand in operands.items() if not operand.is_shared}
    if not inputs:
        raise SpecError(model.path, ["its outputs depend on none of its inputs"])
    steps = [
        Step(call=call, place=Place(path=step))
        for node in model.nodes
        if calls.is_layer(node)
        for step, call in calls.of(node)
    ]
    read = {operand.key: operand for step in steps for operand in step.call.operands}
    made = {operand.key for step in steps for operand in step.call.outputs} | inputs.keys()
    return Program(
        name=name,
        inputs=inputs,
        parameters={
            key: ParameterTensor(name=key, shape=tuple(operand.shape), weight_dtype=calls.weight_dtype(key))
            for key, operand in read.items()
            if operand.is_parameter and key not in made
        },
        constants={key: key for key, operand in read.items() if not operand.is_parameter and key not in made},
        steps=steps,
        outputs=[calls.operand(output) for output in model.outputs if not calls.is_known(output)],
        fixed_batch_size=traced.fixed_batch_size,
        wholes={} if traced.fixed_batch_size is None else calls.whole_shapes,
    )
