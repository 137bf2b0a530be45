"""Translation of operator calls to layers, with their inputs and the flow of gradients."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from perfmodel import layers
from perfmodel.errors import PerfmodelError
from perfmodel.graph.node import Node, Usage
from perfmodel.importers.recording import Place
from perfmodel.layers import LAYERS, Layer, Shape, SharedShape
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator, is_uncounted_complex

VIEW = "perfmodel.view"
"""Operator of a step that only views its input in another shape."""
OVERWRITE = "perfmodel.overwrite"
"""Operator of a step that overwrites its first input, which is part of its second input's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterTensor:
    """A trained tensor of the network."""

    name: str
    shape: Shape
    is_trained: bool = True
    weight_dtype: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operator call of a program."""

    call: OperatorCall
    place: Place
    detached: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A network as a program of operator calls."""

    name: str
    inputs: Mapping[str, Operand]
    parameters: Mapping[str, ParameterTensor]
    constants: Mapping[str, str] = field(default_factory=dict)
    steps: Sequence[Step]
    outputs: Sequence[Operand]
    starts: frozenset[str] | None = None
    fixed_batch_size: int | None = None
    image_layout: str | None = None
    wholes: Mapping[str, Shape] = field(default_factory=dict)


REFUSALS: Final = (PerfmodelError, ArithmeticError, LookupError, TypeError, ValueError)
"""Errors by which a translator or layer declines a call."""


@dataclass(slots=True, kw_only=True, eq=False)
class TranslatedNode:
    """A layer to be added to the graph."""

    layer: Layer
    inputs: tuple[TranslatedNode | str, ...]
    shape: Shape
    parameters: Mapping[str, str] = field(default_factory=dict)
    place: Place
    step: int | None = None
    operator: str = ""
    wants_gradient: bool = False
    problem: str = ""


Source = TranslatedNode | str
"""A planned layer, or the name of a graph input."""


def is_seen_otherwise(source: Source) -> bool:
    """Tell whether a tensor is a view that reorders the axes of a reshaped tensor.

    The gradient of a copy of the view has the new order and must be copied again before it can be reshaped back.
    Without a reshape, readers of the gradient accept the new order.
    """
    is_turned = False
    while isinstance(source, TranslatedNode) and source.inputs and source.layer.is_view:
        if source.layer.gradient_is_joined:
            return False
        if is_turned and isinstance(source.layer, layers.Reshape):
            return True
        is_turned |= source.layer.turns_axes
        source = source.inputs[0]
    return is_turned and isinstance(source, TranslatedNode) and isinstance(source.layer, layers.MatMul)


def all_translators() -> dict[str, tuple[Translator, ...]]:
    """Return the translators of each operator, from all layer kinds."""
    translators: dict[str, list[Translator]] = defaultdict(list)
    for layer in LAYERS.values():
        for operator, translator in layer.operators.items():
            translators[operator].append(translator)
    return {operator: tuple(readers) for operator, readers in translators.items()}


class TranslatedProgram:
    """The layers of a program, in order, by the translators of each operator."""

    def __init__(self, program: Program, translators: Mapping[str, tuple[Translator, ...]]) -> None:
        self.program = program
        self.translators = translators
        self.nodes: list[TranslatedNode] = []
        self._sources: dict[str, Source] = {operand.key: name for name, operand in program.inputs.items()}
        self._input_shapes = {name: operand.shape for name, operand in program.inputs.items()}
        self._detached: dict[int, TranslatedNode] = {}
        self._seen_otherwise: dict[tuple[str, bool], TranslatedNode] = {}
        self._read = {operand.key for step in program.steps for operand in step.call.operands}
        self._read |= {operand.key for operand in program.outputs}
        self._place = Place()
        for index, step in enumerate(program.steps):
            self._place = step.place
            self._plan_step(index, step)
        self._place = Place()

    def parameter(self, key: str) -> ParameterTensor:
        """Return the trained tensor for an operand's key; the key of a part ends in the part's name in brackets."""
        parameters = self.program.parameters
        return parameters[key] if key in parameters else parameters[key.partition("[")[0]]

    def source(self, operand: Operand) -> Source:
        """Return the source of a tensor; parameters and constants become layers."""
        source = self._sources.get(operand.key)
        if operand.is_parameter:
            return self._held_parameter(operand, source)
        if source is None:
            name = self.program.constants.get(operand.key, "constant")
            source = self._sources[operand.key] = self._add(_constant_or_fill(operand), (), path=name)
        return self._scalar(operand, self._as_read(operand, source))

    def shape(self, source: Source) -> Shape:
        """Return the sample shape of a source [1]."""
        return self._input_shapes[source] if isinstance(source, str) else source.shape

    def result(self, operand: Operand) -> Source:
        """Return the source of an output of the network [-]."""
        return self._sources.get(operand.key) or self.source(operand)

    def ended(self, source: TranslatedNode) -> TranslatedNode:
        """Return a view, for gradients to start at, of an output that other layers also read [-]."""
        return self._add(layers.Reshape(shape=tuple(source.shape)), (source,), path=_path(source))

    def _held_parameter(self, operand: Operand, source: Source | None) -> Source:
        if source is None:
            tensor = self.parameter(operand.key)
            layer = layers.Parameter(shape=tuple(operand.shape))
            held = {next(iter(layer.parameter_shapes(()))): operand.key}
            source = self._add(layer, (), path=tensor.name, parameters=held)
            self._sources[operand.key] = source
        if self.shape(source) == operand.shape:
            return source
        return self._add(layers.Reshape(shape=tuple(operand.shape)), (source,), path=self.parameter(operand.key).name)

    def _as_read(self, operand: Operand, source: Source) -> Source:
        """View samples as one whole tensor or the reverse, if a network of fixed batch size needs it."""
        is_whole = isinstance(operand.shape, SharedShape)
        if operand.key not in self.program.wholes or is_whole == isinstance(self.shape(source), SharedShape):
            return source
        if (operand.key, is_whole) not in self._seen_otherwise:
            layer = layers.BatchView(shape=tuple(operand.shape), whole=is_whole)
            self._seen_otherwise[operand.key, is_whole] = self._add(layer, (source,), path=_path(source))
        return self._seen_otherwise[operand.key, is_whole]

    def _scalar(self, operand: Operand, source: Source) -> Source:
        """Return the mean of a per-sample loss if the network continues with one number."""
        is_number = operand.shape == () and isinstance(operand.shape, SharedShape)
        if isinstance(source, str) or not (source.layer.is_loss and is_number):
            return source
        is_whole = isinstance(source.shape, SharedShape)  # of a mini-batch that is read as one tensor
        if is_whole and source.shape == ():
            return source
        mean = self._add(layers.Reduction(function="mean", over_batch=not is_whole), (source,), path="loss")
        self._sources[operand.key] = mean
        return mean

    def _add(
        self,
        layer: Layer,
        inputs: tuple[Source, ...],
        *,
        path: str = "",
        parameters: Mapping[str, str] | None = None,
    ) -> TranslatedNode:
        """Add a layer that is not a call of the program."""
        node = self._placed(layer, inputs, parameters or {})
        node.place, node.operator = replace(self._place, path=path, visit=0, in_place=None), layer.kind
        self.nodes.append(node)
        return node

    def _placed(self, layer: Layer, inputs: Sequence[Source], parameters: Mapping[str, str]) -> TranslatedNode:
        """Return a layer with the shape of its output; raise PerfmodelError if its inputs do not fit."""
        shapes = tuple(map(self.shape, inputs))
        names = tuple(map(str, range(len(inputs))))
        shape = Node.of(layer.kind, layer, input_names=names, input_shapes=shapes, usage=Usage()).output_shape
        flows = layer.differentiable(len(inputs))
        wants = any(
            isinstance(source, TranslatedNode) and source.wants_gradient and flow
            for source, flow in zip(inputs, flows, strict=True)
        )
        trained = any(self.parameter(key).is_trained for key in parameters.values())
        return TranslatedNode(
            layer=layer,
            inputs=tuple(inputs),
            shape=shape,
            parameters=dict(parameters),
            place=self._place,
            wants_gradient=wants or trained,
        )

    def _inputs(self, operands: Sequence[Operand], step: Step) -> list[Source]:
        """Return the sources of the operands, detached where no gradient flows back."""
        sources = []
        for operand in operands:
            source = self.source(operand)
            if operand.key in step.detached and isinstance(source, TranslatedNode) and source.wants_gradient:
                if id(source) not in self._detached:
                    cut = self._add(layers.Detach(), (source,), path=_path(source))
                    self._detached[id(source)] = cut
                source = self._detached[id(source)]
            sources.append(source)
        return sources

    def _moved(self, step: Step, translation: Translation, sources: list[Source]) -> list[Source]:
        """Return the sources; operands that the call reorders are copied first."""
        moved = {value.key for name in step.call.moved if isinstance(value := step.call[name], Operand)}
        if not moved or isinstance(translation.layer, layers.Rearrange):
            return sources

        def copied(operand: Operand, source: Source) -> Source:
            layer = layers.Rearrange(shape=tuple(operand.shape), copies_back=is_seen_otherwise(source))
            return self._add(layer, (source,), path=f"{_path(source)}_copied".lstrip("_"))

        pairs = zip(translation.inputs, sources, strict=True)
        return [copied(operand, source) if operand.key in moved else source for operand, source in pairs]

    def _plan_step(self, index: int, step: Step) -> None:
        call = step.call
        first = self._planned(index, step)
        self._bind(call.output, first)
        for output in call.outputs[1:]:
            if output.key in self._read:
                self._bind(output, self._further_output(index, step, output, first))

    def _bind(self, output: Operand, source: Source) -> None:
        if not output.is_parameter:  # a view of a parameter is still the parameter
            self._sources[output.key] = source

    def _further_output(self, index: int, step: Step, output: Operand, first: Source) -> Source:
        """Return a further output of a call: a part of its input, or a side result of its layer."""
        for translation in self._translations(replace(step, call=replace(step.call, outputs=(output,)))):
            if translation.layer.is_view:
                node = self._fitting(index, step, translation, output)
                if node is not None:
                    return self._kept(node)
        if self.shape(first) == output.shape:
            return first
        try:
            node = self._placed(layers.RecurrentState(shape=tuple(output.shape)), (first,), {})
        except REFUSALS:
            node = self._placed(layers.Slice(shape=tuple(output.shape)), (first,), {})
        return self._kept(self._of_step(node, index, step))

    def _planned(self, index: int, step: Step) -> Source:
        """Return the layer of a call, or its input if the call does nothing."""
        glue = {VIEW: self._view, OVERWRITE: self._overwritten}.get(step.call.operator)
        if glue is not None:
            return glue(index, step)
        problems: list[str] = []
        for read in (step, self._whole(step)) if self.program.wholes else (step,):
            for translation in self._translations(read, problems):
                node = self._fitting(index, read, translation, read.call.output, problems)
                if node is not None:
                    return self._kept(node)
        if not step.call.operands:
            return self._kept(self._of_step(self._placed(_constant_or_fill(step.call.output), (), {}), index, step))
        return self._opaque(index, step, problems)

    def _whole(self, step: Step) -> Step:
        """Return the call on whole tensors instead of samples, for operators that mix samples."""

        def whole(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(whole, value))
            if not isinstance(value, Operand):
                return value
            shape = self.program.wholes[value.key]
            return replace(value, shape=SharedShape(shape), axes=tuple(range(len(value.axes))), merged_axis=None)

        call = step.call
        arguments = {name: whole(value) for name, value in call.arguments.items()}
        return replace(step, call=replace(call, arguments=arguments, outputs=whole(call.outputs)))

    def _translations(self, step: Step, problems: list[str] | None = None) -> Iterator[Translation]:
        if is_uncounted_complex(step.call):
            (problems if problems is not None else []).append("it computes with complex numbers, which no layer counts")
            return
        for translator in self.translators.get(step.call.operator, ()):
            try:
                translation = translator(step.call)
            except REFUSALS as error:
                translation = None
                if problems is not None:
                    problems.append(str(error) or type(error).__name__)
            if translation is not None:
                yield translation

    def _fitting(
        self, index: int, step: Step, translation: Translation, output: Operand, problems: list[str] | None = None
    ) -> TranslatedNode | None:
        """Return the layer, or None if it rejects its inputs or its output differs from the call's."""
        parameters = {name: operand.key for name, operand in translation.parameters.items()}
        planned = len(self.nodes)
        try:
            sources = self._moved(step, translation, self._inputs(translation.inputs, step))
            layer = translation.layer
            if step.call.moved and isinstance(layer, layers.Rearrange):
                layer = replace(layer, copies_back=is_seen_otherwise(sources[0]))
            node = self._placed(layer, sources, parameters)
        except REFUSALS as error:
            problem = str(error) or type(error).__name__
        else:
            if node.layer.is_loss or node.shape == output.shape:
                return self._of_step(node, index, step)
            problem = f"{node.layer.kind} makes {tuple(node.shape)}, but the call makes {tuple(output.shape)}"
        del self.nodes[planned:]
        self._forget()
        if problems is not None:
            problems.append(problem)
        return None

    def _forget(self) -> None:
        """Drop the sources whose layers were removed."""
        planned = set(map(id, self.nodes))

        def still(sources: dict[Any, Any]) -> dict[Any, Any]:
            return {key: source for key, source in sources.items() if isinstance(source, str) or id(source) in planned}

        self._sources, self._detached = still(self._sources), still(self._detached)
        self._seen_otherwise = still(self._seen_otherwise)

    def _of_step(self, node: TranslatedNode, index: int, step: Step) -> TranslatedNode:
        node.step, node.place = index, step.place
        node.operator = step.call.operator.rpartition(".")[2].lstrip("_")
        return node

    def _kept(self, node: TranslatedNode) -> Source:
        """Keep a layer, unless it is a view that changes nothing."""
        if self._changes_nothing(node):
            return node.inputs[0]
        self.nodes.append(node)
        return node

    def _changes_nothing(self, node: TranslatedNode) -> bool:
        if len(node.inputs) != 1 or not node.layer.is_view or node.layer.is_metric:
            return False
        source = node.inputs[0]
        if isinstance(node.layer, layers.Detach):
            return isinstance(source, TranslatedNode) and not source.wants_gradient
        shape = self.shape(source)
        return shape == node.shape and isinstance(shape, SharedShape) == isinstance(node.shape, SharedShape)

    def _view(self, index: int, step: Step) -> Source:
        source = self._inputs(step.call.operands, step)[0]
        shape = step.call.output.shape
        layer = layers.Reshape(shape=tuple(shape)) if math.prod(self.shape(source)) == math.prod(shape) else None
        node = self._placed(layer or layers.Slice(shape=tuple(shape)), (source,), {})
        return self._kept(self._of_step(node, index, step))

    def _overwritten(self, index: int, step: Step) -> Source:
        node = self._placed(layers.Overwrite(), self._inputs(step.call.operands, step), {})
        return self._kept(self._of_step(node, index, step))

    def _opaque(self, index: int, step: Step, problems: Sequence[str]) -> Source:
        call = step.call
        over_batch = call.output.is_shared and not all(operand.is_shared for operand in call.operands)
        layer = layers.Opaque(operator=call.operator, shape=tuple(call.output.shape), over_batch=over_batch)
        node = self._of_step(self._placed(layer, self._inputs(call.operands, step), {}), index, step)
        node.problem = "; ".join(problems) or "no layer translates it"
        return self._kept(node)


def _constant_or_fill(operand: Operand) -> Layer:
    """Return the layer of a tensor that depends on no input: a constant, or one filled for each sample."""
    if operand.is_shared:
        return layers.Constant(shape=tuple(operand.shape), is_index=operand.is_index)
    return layers.Fill(shape=tuple(operand.shape), per_sample=True)


def _path(source: Source) -> str:
    return source if isinstance(source, str) else source.place.path
