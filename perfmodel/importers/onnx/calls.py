"""From ONNX nodes to calls: arguments by position and by name, defaults filled in, one call per tensor made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from perfmodel.importers.onnx.batch import RECURRENT, Traced
from perfmodel.importers.onnx.buffers import ARRANGES, trained_tensors
from perfmodel.importers.onnx.einsum import einsum_calls
from perfmodel.importers.onnx.model import is_standard, node_name, schema_of
from perfmodel.layers.translation import Operand, OperatorCall

TAKES_PARTS: Final = ("Concat", "Slice")
"""Operators whose result has some elements of their inputs: of parameters, it is one where a layer reads weights."""
WEIGHT_INPUTS: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "LayerNormalization", "InstanceNormalization"), (1, 2)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2, 3)),
    "BatchNormalization": (1, 2, 3, 4),
    "MatMul": (1,),
}
"""Operator to the positions at which it reads its weights."""
MOST_NAMED_ELEMENTS: Final = 64
"""Known inputs with more elements are no options of a node (axes, starts, ratio), but data [1]."""


class NodeCalls:
    """The calls that the nodes of a file are.

    Parameters
    ----------
    traced : Traced
        The file with its shapes. [-]
    """

    def __init__(self, traced: Traced) -> None:
        self._traced = traced
        self._model = traced.model
        self._first_names: dict[str, str] = {}
        self._transposed: set[str] = set()
        self._held: set[str] = set()
        for node in self._model.nodes:
            if is_standard(node) and node.op_type in ("Identity", "Dropout") and not self._drops(node):
                self._name_again(node.output[0], node.input[0])
            elif is_standard(node) and node.op_type in (*ARRANGES, *TAKES_PARTS):
                self._hold(node)

    def _name_again(self, name: str, first: str, *, is_transposed: bool = False) -> None:
        """Note that a tensor is another one under a second name."""
        self._first_names[name] = self._first_names.get(first, first)
        if (first in self._transposed) != is_transposed:
            self._transposed.add(name)
        if self._is_parameter(first):
            self._held.add(name)

    def _hold(self, node: Any) -> None:
        """Note what a node makes of parameters alone: it is one itself, in another arrangement."""
        names = [name for name in node.input if name]
        sources = names if node.op_type == "Concat" else names[:1]
        stored = self._model.initialisers if node.op_type == "DequantizeLinear" else ()
        is_arranged = all(self._is_parameter(name) or name in stored for name in sources)
        rest_is_known = all(name in sources or name in stored or self.is_known(name) for name in names)
        result = self._traced.traces[0].values[node.output[0]]
        if not (is_arranged and rest_is_known) or result.is_index:
            return
        if node.op_type in TAKES_PARTS and not self._is_read_as_weight(node.output[0]):
            return
        axes = next((tuple(each.ints) for each in node.attribute if each.name == "perm"), (1, 0))
        is_matrix = node.op_type == "Transpose" and axes == (1, 0) and len(result.shape) == len(axes)
        if node.op_type == "Cast" or is_matrix:
            self._name_again(node.output[0], names[0], is_transposed=is_matrix)
        elif node.op_type in ARRANGES and len(self.reads[names[0]]) > 1:
            return  # a view of a parameter that others read as it is
        self._held.add(node.output[0])

    def _is_read_as_weight(self, name: str) -> bool:
        """Tell whether a tensor is read only where layers have their own parameters."""
        for node in self.reads.get(name, ()):
            positions = [index for index, given in enumerate(node.input) if given == name]
            is_weight = set(positions) <= set(WEIGHT_INPUTS.get(node.op_type, ()))
            passes_on = node.op_type in (*ARRANGES, *TAKES_PARTS) and self._is_read_as_weight(node.output[0])
            if not (is_weight or passes_on):
                return False
        return True

    def _is_parameter(self, name: str) -> bool:
        return name in self._held or name in self._trained

    @cached_property
    def _trained(self) -> frozenset[str]:
        return trained_tensors(self._model.nodes, self._traced.traces[0].values, self.reads)

    def is_known(self, name: str) -> bool:
        """Tell whether a tensor's content follows from the file alone."""
        return all(trace.values[name].is_exact for trace in self._traced.traces)

    def is_layer(self, node: Any) -> bool:
        """Tell whether a node computes something that a result follows from."""
        names = [name for name in node.output if name]
        is_other_name = all(name in self._held or name in self._first_names for name in names)
        return not (is_other_name or self._needed.isdisjoint(names))

    def is_needed(self, name: str) -> bool:
        """Tell whether a result follows from a tensor's content."""
        return name in self._needed

    def _drops(self, node: Any) -> bool:
        """Tell whether a node is a dropout that is on, as in files of networks in training."""
        if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
            return False
        content = self._traced.traces[0].values[node.input[2]].content
        return content is None or bool(content.any())

    @cached_property
    def reads(self) -> Mapping[str, Sequence[Any]]:
        """The nodes that read each tensor."""
        found: dict[str, list[Any]] = {}
        for node in self._model.nodes:
            for name in node.input:
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def _needed(self) -> set[str]:
        """Tensors that results follow from by computing: not those of which only the shape is asked, nor dead ends."""
        makers = {name: node for node in self._model.nodes for name in node.output if name}
        found: set[str] = set()
        open_names = [name for name in self._model.outputs if not self.is_known(name)]
        while open_names:
            name = open_names.pop()
            if name in found:
                continue
            found.add(name)
            maker = makers.get(name)
            if maker is not None:
                open_names += [each for each in maker.input if each and not self.is_known(each)]
        return found

    def operand(self, name: str) -> Operand:
        """Return a tensor as layers read it, under its first name."""
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

    @cached_property
    def _biases(self) -> dict[str, tuple[Any, str]]:
        """Result of a product with a weight, read by nothing but the addition of a bias: that node, and the bias."""
        found = {}
        for node in self._model.nodes:
            if node.op_type != "MatMul" or not is_standard(node) or node.output[0] in self._model.outputs:
                continue
            readers = self.reads.get(node.output[0], ())
            if len(readers) != 1 or readers[0].op_type != "Add" or not self.operand(node.input[1]).is_parameter:
                continue
            bias = next((name for name in readers[0].input if name != node.output[0]), None)
            if bias is not None and self._is_bias(bias, of=node.output[0]):
                found[node.output[0]] = readers[0], bias
        return found

    def _is_bias(self, name: str, *, of: str) -> bool:
        bias, products = self.operand(name), self._traced.traces[0].values[of]
        return bias.is_parameter and bias.shape == products.shape[-1:]

    def of(self, node: Any) -> Iterator[tuple[str, OperatorCall]]:
        """Yield the calls that a node is, with a name for each; none where another node's call contains it."""
        name = node_name(node)
        if any(given in self._biases for given in node.input):
            return
        if node.output[0] in self._biases:
            adding, bias = self._biases[node.output[0]]
            yield name, self._call(node, operator="Gemm", further=(bias,), outputs=tuple(adding.output))
        elif node.op_type == "Split" and is_standard(node):
            parts = [each for each in node.output if each in self._needed]
            for part in parts:
                yield f"{name}_{list(node.output).index(part)}", self._call(node, outputs=(part,))
        elif node.op_type == "Einsum" and is_standard(node):
            for call in einsum_calls(self._call(node, outputs=tuple(node.output))):
                yield name, call
        else:
            yield name, self._call(node, outputs=tuple(node.output))

    def _call(
        self, node: Any, *, outputs: tuple[str, ...], operator: str | None = None, further: tuple[str, ...] = ()
    ) -> OperatorCall:
        """Return a node as a call, where asked for under another name and with more inputs."""
        operands = [self.operand(name) if name else None for name in (*node.input, *further)]
        arguments: dict[str, Any] = {str(index): operand for index, operand in enumerate(operands)}
        named = self._named_inputs(node, operands)
        last = max(index for index, name in enumerate(outputs) if not index or name in self._needed)
        results = [self.operand(name) for name in outputs[: last + 1]]
        if node.op_type in RECURRENT:  # states before the first step are zero where they are left out
            arguments |= {str(index): None for index in (5, 6) if self._is_zero(node, index)}
        domain = "" if is_standard(node) else f"{node.domain}."
        return OperatorCall(
            operator=operator or f"{domain}{node.op_type}",
            arguments=arguments | named | self._defaults(node) | _attributes(node),
            outputs=tuple(results),
        )

    def _is_zero(self, node: Any, index: int) -> bool:
        """Tell whether a node's input is known to hold nothing but zeros."""
        name = node.input[index] if index < len(node.input) else ""
        return bool(name) and all(trace.values[name].is_zero for trace in self._traced.traces)

    def _named_inputs(self, node: Any, operands: Sequence[Operand | None]) -> dict[str, Any]:
        """Return small known inputs by their names too: newer versions of operators take options as inputs."""
        schema = schema_of(node, self._model.version)
        formal = [] if schema is None else [each.name for each in schema.inputs]
        return {
            name: tuple(operand.value.reshape(-1).tolist()) if np.ndim(operand.value) else operand.value.item()
            for name, operand in zip(formal, operands, strict=False)
            if operand is not None and operand.value is not None and operand.value.size <= MOST_NAMED_ELEMENTS
        }

    def _defaults(self, node: Any) -> dict[str, Any]:
        """Return the values of options that a node leaves out, where its operator states them."""
        schema = schema_of(node, self._model.version)
        described = [] if schema is None else schema.attributes.values()
        # of activations there would be those of two directions, however many the node has
        stated = [each for each in described if each.default_value.name and each.name != "activations"]
        return {each.name: _plain(each.default_value) for each in stated}


def _attributes(node: Any) -> dict[str, Any]:
    """Return the options a node states; stored tensors among them are left out."""
    return {each.name: _plain(each) for each in node.attribute if not (each.HasField("t") or each.HasField("g"))}


def _plain(attribute: Any) -> Any:
    """Return an attribute as a number, a text or a tuple of them."""
    from onnx import helper

    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, int | float | str):
        return value
    return tuple(each.decode(errors="replace") if isinstance(each, bytes) else each for each in value)
