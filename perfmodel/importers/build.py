"""From calls of another program's operators to a layer graph: each call becomes the layer that claims it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Literal

from perfmodel.errors import UnknownOperatorWarning
from perfmodel.graph import LayerGraph
from perfmodel.graph.node import ParameterName
from perfmodel.importers.program import Program
from perfmodel.layers import LAYERS, Constant, Fill, Layer, Opaque, Parameter, RecurrentState, Reshape, Slice
from perfmodel.layers.recurrent.recurrent_layer import RecurrentLayer
from perfmodel.layers.shapes import ShapeMismatchError, shape_text
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator


def translators(source: Literal["torch_operators", "onnx_operators"]) -> dict[str, tuple[Translator, ...]]:
    """Return what reads a call of each operator: the translators of all layers that claim it, by its name.

    Examples
    --------
    >>> len(translators("onnx_operators")["Conv"]) >= 1
    True
    """
    found: dict[str, tuple[Translator, ...]] = {}
    for layer in LAYERS.values():
        for operator, translator in getattr(layer, source).items():
            found[operator] = (*found.get(operator, ()), translator)
    return found


class GraphBuilder:
    """A layer graph that grows call by call.

    Parameters
    ----------
    name : str
        What people call the network. [-]
    inputs : mapping of str to Operand
        Inputs of the network by name. [-]
    source : str
        Whose operators are called: ``torch_operators`` or ``onnx_operators``. [-]
    fixed_batch_size : int or None
        The only batch size the shapes hold for, if any. [samples]
    """

    def __init__(
        self,
        name: str,
        *,
        inputs: Mapping[str, Operand],
        source: Literal["torch_operators", "onnx_operators"],
        fixed_batch_size: int | None = None,
    ) -> None:
        shapes = {given: operand.shape for given, operand in inputs.items()}
        self.graph = LayerGraph(name, inputs=shapes, fixed_batch_size=fixed_batch_size)
        self._translators = translators(source)
        self._layer_of = {operand.key: given for given, operand in inputs.items()}
        self._owners: dict[str, ParameterName] = {}
        self._taken = set(inputs)
        self._unknown: dict[str, list[str]] = {}

    def add_call(self, call: OperatorCall, *, name: str) -> None:
        """Add the layer that a call is, or an opaque one where no layer claims it.

        Parameters
        ----------
        call : OperatorCall
            The call. [-]
        name : str
            What the layer is to be called; a number is added where the name is taken. [-]
        """
        for translator in self._translators.get(call.operator, ()):
            translation = translator(call)
            if translation is not None and self._add(call, translation, name=name):
                return
        layer = Opaque(operator=call.operator, shape=tuple(call.output.shape))
        self._unknown.setdefault(call.operator, []).append(name)
        self._add(call, Translation(layer=layer, inputs=call.operands), name=name)

    def warn_of_unknown_operators(self, subject: str) -> None:
        """Warn of every operator that became an opaque layer.

        Parameters
        ----------
        subject : str
            What is imported. [-]
        """
        for operator, names in self._unknown.items():
            shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
            message = (
                f"{subject}: no layer knows the operator {operator!r} ({len(names)} of them: {shown}); each counts the "
                "bytes of its inputs and output and 1 FLOP for each of their elements, which may be far too few"
            )
            warnings.warn(message, UnknownOperatorWarning, stacklevel=4)

    def _add(self, call: OperatorCall, translation: Translation, *, name: str) -> bool:
        """Add a translated layer; False where it takes other shapes than the call, or makes others."""
        if not _makes(translation, call.output):
            return False
        inputs = [self._source(operand) for operand in translation.inputs]
        shared = {
            parameter: self._owners[operand.key]
            for parameter, operand in translation.parameters.items()
            if operand.key in self._owners
        }
        given = self._free_name(name)
        self.graph.add(given, translation.layer, inputs=inputs, shared_parameters=shared)
        for parameter, operand in translation.parameters.items():
            self._owners.setdefault(operand.key, (given, parameter))
        self._layer_of[call.output.key] = self._in_shape(given, call.output)
        for index, output in enumerate(call.outputs[1:], start=1):
            if output.key:
                self._layer_of[output.key] = self._part(given, translation.layer, output, index=index)
        return True

    def _in_shape(self, name: str, output: Operand) -> str:
        """Return a layer whose output has the shape the call's has: the layer itself, or a view of it."""
        if not output.key or tuple(self.graph.shape(name)) == tuple(output.shape):
            return name
        view = Reshape(shape=tuple(output.shape))
        return self.graph.add(self._free_name(f"{name}_as_{shape_text(output.shape)}"), view, inputs=name)

    def _part(self, name: str, layer: Layer, output: Operand, *, index: int) -> str:
        """Return a layer for a further result of a call."""
        shape = tuple(output.shape)
        view: Layer = RecurrentState(shape=shape) if isinstance(layer, RecurrentLayer) else Slice(shape=shape)
        return self.graph.add(self._free_name(f"{name}_output_{index}"), view, inputs=name)

    def _source(self, operand: Operand) -> str:
        """Return the layer or graph input that holds a tensor, made now where it is none yet."""
        if operand.key not in self._layer_of:
            self._layer_of[operand.key] = self._stored(operand)
        return self._layer_of[operand.key]

    def _stored(self, operand: Operand) -> str:
        """Add a layer that holds what no call makes: a parameter, a constant, or a filling of every sample."""
        name = self._free_name(operand.key)
        shape = tuple(operand.shape)
        if operand.is_parameter:
            owner = self._owners.get(operand.key)
            shared = {} if owner is None else {"weight": owner}
            self._owners.setdefault(operand.key, (name, "weight"))
            return self.graph.add(name, Parameter(shape=shape), shared_parameters=shared)
        if operand.is_shared:
            return self.graph.add(name, Constant(shape=shape, is_index=operand.is_index))
        return self.graph.add(name, Fill(shape=shape, function="zeros", per_sample=True))

    def _free_name(self, wanted: str) -> str:
        """Return a name that no layer has yet."""
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name


def _makes(translation: Translation, output: Operand) -> bool:
    """Tell whether a layer takes its inputs' shapes and makes as many elements as the call did."""
    shapes = tuple(operand.shape for operand in translation.inputs)
    try:
        made = translation.layer.output_shape(shapes)
    except ShapeMismatchError:
        return False
    return not output.key or math.prod(made) == math.prod(output.shape)


def build_graph(program: Program, *, source: Literal["torch_operators", "onnx_operators"]) -> LayerGraph:
    """Return the graph of a program."""
    builder = GraphBuilder(
        program.name, inputs=program.inputs, source=source, fixed_batch_size=program.fixed_batch_size
    )
    for step in program.steps:
        builder.add_call(step.call, name=step.path)
    builder.warn_of_unknown_operators(program.name)
    return builder.graph
