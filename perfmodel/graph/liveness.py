"""Memory at every moment of a step: each tensor lives from its writer to its last reader.

A step is a row of moments: a layer's forward phase (a second time where activations are recomputed), its backward
phase, the sum of gradients that meet at a tensor, and the update. At each moment the layer's operands and results are
in memory, and everything that a later moment reads. Sizes are affine in the batch size, so the peak of the step is the
largest of as many affine functions as there are moments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perfmodel.derived import derived
from perfmodel.graph.arena import Span
from perfmodel.graph.execution import Recompute, Segment, checkpoints, operations_of, way_of
from perfmodel.graph.node import INDEX_BYTES, Node, ParameterName
from perfmodel.graph.storage import (
    NOTHING,
    Bytes,
    affine,
    is_parameter,
    kept_inputs,
    mask_tensors,
    saved_bytes,
    shared_storage,
    tensor_bytes,
)
from perfmodel.layers import Binary, CrossEntropy, Shape, ShardView, SharedShape
from perfmodel.layers.activation import Pointwise
from perfmodel.layers.attention import SoftmaxTypes
from perfmodel.layers.passes import MASK_BYTES
from perfmodel.records import SINGLE_BYTES, Phase, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TensorTypes:
    """Sizes of elements where they differ from tensor to tensor."""

    result_bytes: Mapping[str, int]
    cast_inputs: Mapping[str, tuple[int, ...]]
    parameter_bytes: int
    copied_weight_bytes: int
    softmax: Mapping[str, SoftmaxTypes] = field(default_factory=dict)
    """Layers of attention whose softmax computes in another type."""
    of_short: TensorTypes | None = None
    """Sizes in a short graph with fewer of its blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRules:
    """Rules for sizes of tensors and for sharing memory.

    ``composed`` maps kinds of layers that consist of operators in single precision to the number of tensors, of the
    output's size, that these operators keep; they also keep the input in single precision.
    """

    element_bytes: int = 4
    index_bytes: int = INDEX_BYTES
    in_place_kinds: Collection[str] = ()
    recompute: Recompute = None
    types: TensorTypes | None = None
    composed: tuple[tuple[str, int], ...] = ()
    keeps_unread: bool = False
    """Whether results that the graph marks to be kept stay in memory even if back-propagation never reads them. [-]"""
    keeps_gathered: bool = False
    """Whether a tensor that a group of devices gathered has its own memory, and keeps it while it is read. [-]"""
    fuses_gates: bool = False
    """Whether one kernel computes a gate and multiplies by it, and computes the gate again for the gradients. [-]"""
    divided_loss_tensors: int = 0
    """Additional tensors for the gradient of a loss whose scores are divided among devices. [1]"""

    @property
    def parameter_bytes(self) -> int:
        """Size of an element of a parameter and of its gradient. [B]"""
        return self.element_bytes if self.types is None else self.types.parameter_bytes

    def bytes_of(self, name: str) -> int:
        """Size of an element of a layer's result, or of an input of the network. [B]"""
        return self.element_bytes if self.types is None else self.types.result_bytes.get(name, self.parameter_bytes)

    def softmax_of(self, node: Node) -> SoftmaxTypes | None:
        """Return the types of softmax in a layer of attention, if they differ from that of its result."""
        return None if self.types is None else self.types.softmax.get(node.name)

    def saved_bytes(self, node: Node) -> Bytes:
        """Return the bytes that a layer keeps for back-propagation besides its inputs and output."""
        return saved_bytes(node, self.bytes_of(node.name), self.index_bytes, self.softmax_of(node))

    def copied_inputs(self, node: Node) -> tuple[str, ...]:
        """Return the inputs that a layer reads as copies in another type."""
        if self.operator_tensors(node):
            return tuple(name for name in node.input_names if self.bytes_of(name) < SINGLE_BYTES)
        if self.types is None:
            return ()
        return tuple(node.input_names[place] for place in self.types.cast_inputs.get(node.name, ()))

    def operator_tensors(self, node: Node) -> int:
        """Tensors in single precision that the operators of a composed layer keep; 0 for a layer of one kernel. [1]"""
        return dict(self.composed).get(node.layer.kind, 0) if self.composed else 0

    def among(self, kinds: Collection[str]) -> MemoryRules:
        """Return the same rules for layers of some kinds only; hashable."""
        return replace(self, in_place_kinds=frozenset(self.in_place_kinds).intersection(kinds))


@dataclass(frozen=True, slots=True, eq=False)
class Liveness:
    """Memory at every moment of a step, besides weights, optimizer state and the network's inputs."""

    moments: tuple[tuple[str, Phase], ...]
    activations: NDArray[Any]
    gradients: NDArray[Any]
    kept: Bytes


@dataclass(slots=True)
class _Storage:
    size: Bytes
    first: int
    last: int
    is_weight_gradient: bool = False
    is_held: bool = False


@dataclass(slots=True)
class Lifetimes:
    """Storages with the moments of their first and last use."""

    storages: list[_Storage] = field(default_factory=list)
    moments: list[tuple[str, Phase]] = field(default_factory=list)
    sums: set[int] = field(default_factory=set)
    """Moments at which gradients are added."""
    nothing: _Storage = field(default_factory=lambda: _Storage(NOTHING, 0, 0))

    def begin(self, layer: str, phase: Phase) -> None:
        """Begin the next moment."""
        self.moments.append((layer, phase))

    def begin_sum(self, layer: str) -> None:
        """Begin a moment at which gradients are added."""
        self.sums.add(len(self.moments))
        self.begin(layer, Phase.BACKWARD)

    def new(self, size: Bytes, *, is_weight_gradient: bool = False) -> _Storage:
        """Allocate memory now; nothing takes none."""
        if size == NOTHING:
            return self.nothing
        now = len(self.moments) - 1
        storage = _Storage(size, now, now, is_weight_gradient, is_weight_gradient)
        self.storages.append(storage)
        return storage

    def touch(self, storage: _Storage) -> None:
        """Use memory now."""
        storage.last = len(self.moments) - 1

    @property
    def spans(self) -> list[Span]:
        """Bytes per sample of each tensor that is no gradient of a parameter, and when they are in memory."""
        end = len(self.moments) - 1
        tensors = [storage for storage in self.storages if not storage.is_weight_gradient]
        return [Span(tensor.size[1], tensor.first, end if tensor.is_held else tensor.last) for tensor in tensors]

    def result(self) -> Liveness:
        """Add up the memory at every moment."""
        count = len(self.moments)
        forward = sum(phase is Phase.FORWARD for _, phase in self.moments)
        constants, slopes, gradients = changes = [[0] * (count + 1) for _ in range(3)]
        kept: Bytes = NOTHING
        for storage in self.storages:
            end = count if storage.is_held else storage.last + 1
            constant, slope = storage.size
            row = gradients if storage.is_weight_gradient else constants
            row[storage.first] += constant
            row[end] -= constant
            if not storage.is_weight_gradient:
                slopes[storage.first] += slope
                slopes[end] -= slope
            if storage.first < forward <= storage.last:
                kept = (kept[0] + constant, kept[1] + slope)
        live = np.array([list(accumulate(row[:-1])) for row in changes], dtype=object)
        return Liveness(tuple(self.moments), live[:2], live[2], kept)


def _passes_on(node: Node, place: int) -> bool:
    """Return whether an input's gradient is the output's own: no operation makes it, or a view repeats it in a sum."""
    if node.layer.gradient_is_view:
        return True
    only = [index == place for index in range(len(node.input_names))]
    operations = operations_of(node, only, 1)
    return all(operation.role is not Role.INPUT_GRADIENT for operation in operations)


class _Gradients(NamedTuple):
    """What the back-propagation of a layer makes: gradients of inputs, those passed on, and of parameters."""

    scratch: Bytes
    inputs: tuple[tuple[str, bool], ...]
    parameters: tuple[tuple[ParameterName, Bytes], ...]


@derived
def _gradients(
    node: Node, into: tuple[bool, ...], element_bytes: int, parameter_bytes: int, softmax: SoftmaxTypes | None
) -> _Gradients:
    """List what a layer's back-propagation makes, which parts of a network share as they share the layer."""
    owners = node.usage.shared_parameters
    return _Gradients(
        scratch=_scratch_bytes(node, into, element_bytes, softmax),
        inputs=tuple((name, _passes_on(node, place)) for place, name in enumerate(node.input_names) if into[place]),
        parameters=tuple(
            (
                owners.get(parameter, (node.name, parameter)),
                tensor_bytes(SharedShape(shape), element_bytes=parameter_bytes),
            )
            for parameter, shape in node.trained_shapes.items()
        ),
    )


def _scratch_bytes(node: Node, into: tuple[bool, ...], element_bytes: int, softmax: SoftmaxTypes | None) -> Bytes:
    """Scratch memory of a layer's back-propagation."""
    how: dict[str, Any] = {"element_bytes": element_bytes, "wanted": list(into)}
    how |= {} if softmax is None else {"softmax": softmax}
    return affine(
        lambda batch_size: node.layer.backward_scratch_bytes(node.input_shapes, batch_size=node.runs(batch_size), **how)
    )


def _gates(nodes: Sequence[Node]) -> dict[str, tuple[str, ...]]:
    """Return for each product the activations that only it reads, as in a gated unit."""
    readers = Counter(name for node in nodes for name in node.input_names)
    made = {node.name for node in nodes if isinstance(node.layer, Pointwise) and readers[node.name] == 1}
    products = [node for node in nodes if isinstance(node.layer, Binary) and node.layer.function == "multiply"]
    gates_of = {node.name: tuple(name for name in node.input_names if name in made) for node in products}
    return {name: gates for name, gates in gates_of.items() if gates}


class Step:
    """Simulates a step layer by layer, and records when each storage is in use.

    Notes
    -----
    Valid for: layers run one after the other, memory freed once it is no longer needed, outputs of the network
    kept to the end of the step, gradients of parameters made during back-propagation and kept. Ignores: fragmentation,
    what an interpreter's variables keep beyond their last use, scratch memory of forward operations.
    """

    def __init__(
        self,
        input_shapes: Mapping[str, Shape],
        nodes: Sequence[Node],
        *,
        wanted: Mapping[str, bool],
        parts: Sequence[Segment],
        rules: MemoryRules,
    ) -> None:
        self.shapes = dict(input_shapes) | {node.name: node.output_shape for node in nodes}
        self.nodes, self.wanted, self.rules = nodes, wanted, rules
        self.parts = parts
        self.gates = _gates(nodes) if rules.fuses_gates else {}
        self.element_bytes = {name: rules.bytes_of(name) for name in self.shapes}
        self.copied = {node.name: rules.copied_inputs(node) for node in nodes}
        self.kept_inputs = {node.name: self._kept_inputs(node) for node in nodes}
        kept = {name for node in nodes for name in self.kept_inputs[node.name] if name not in self.copied[node.name]}
        kept.update(node.name for node in nodes if wanted[node.name] and node.layer.keeps_output)
        keeps = rules.keeps_unread and way_of(rules.recompute) is None  # else the argument overrides the marks
        self.held = {node.name for node in nodes if keeps and node.usage.keeps_result}
        self.source = shared_storage(
            nodes,
            in_place_kinds=rules.in_place_kinds,
            kept=kept,
            stays={*input_shapes, *checkpoints(self.parts), *self.held},
            apart=[node.name for node in nodes if rules.keeps_gathered and isinstance(node.layer, ShardView)],
            element_bytes=self.element_bytes.__getitem__,
        )
        self.masks = mask_tensors(nodes)
        self.read = {name for node in nodes for name in node.input_names}
        self.sizes: dict[str, Bytes] = {}
        self.lifetimes = Lifetimes()
        self.lifetimes.begin("", Phase.FORWARD)
        self.place = {name: self.lifetimes.new(NOTHING) for name in input_shapes}
        self.saved: dict[str, _Storage] = {}
        self.copies: dict[tuple[str, str], _Storage] = {}
        self.gradients: dict[str, _Storage] = {}
        self.weight_gradients: dict[tuple[str, str], _Storage] = {}

    def _kept_inputs(self, node: Node) -> tuple[str, ...]:
        """Return the inputs that back-propagation reads; gates that it makes again are none."""
        read, gates = kept_inputs(node, wanted=self.wanted), self.gates.get(node.name, ())
        return tuple(name for name in read if name not in gates) if gates else read

    def size(self, name: str) -> Bytes:
        """Bytes of a tensor, as a coefficient of the batch size and a constant."""
        if name not in self.sizes:
            element_bytes = MASK_BYTES if name in self.masks else self.element_bytes[name]
            self.sizes[name] = tensor_bytes(self.shapes[name], element_bytes=element_bytes)
        return self.sizes[name]

    def gradient_size(self, name: str) -> Bytes:
        """Return the bytes of a tensor's gradient, which has the network's type even if the tensor is quantised."""
        if name in self.masks:
            return tensor_bytes(self.shapes[name], element_bytes=self.element_bytes[name])
        return self.size(name)

    def compute(self, node: Node, phase: Phase) -> None:
        """Allocate a layer's output, and keep the tensors that its back-propagation will read."""
        if is_parameter(node):
            self.place[node.name] = _Storage(NOTHING, 0, 0)
            return
        self.lifetimes.begin(node.name, phase)
        for name in node.input_names:
            self.lifetimes.touch(self.place[name])
        source = self.source.get(node.name)
        self.place[node.name] = self.lifetimes.new(self.size(node.name)) if source is None else self.place[source]
        moment = self.place[node.name]
        if not node.input_names and node.layer.is_view:  # a constant stays in memory before and after the step
            moment.first, moment.is_held = 0, True
        moment.is_held |= node.name not in self.read and phase is Phase.FORWARD
        # always allocated, and freed at once without back-propagation
        saved = self.rules.saved_bytes(node)
        if count := self.rules.operator_tensors(node):
            made = tensor_bytes(node.output_shape, element_bytes=count * SINGLE_BYTES)
            saved = saved[0] + made[0], saved[1] + made[1]
        self.saved[node.name] = self.lifetimes.new(saved)
        self._copy_inputs(node)

    def _copy_inputs(self, node: Node) -> None:
        """Copy the inputs that a layer reads in another type."""
        for name in self.copied[node.name]:
            element_bytes = SINGLE_BYTES if self.rules.operator_tensors(node) else self.element_bytes[node.name]
            size = tensor_bytes(self.shapes[name], element_bytes=element_bytes)
            self.copies[node.name, name] = self.lifetimes.new(size)

    def differentiate(self, node: Node) -> None:
        """Make the gradients of a layer's inputs and parameters from its output's gradient and the tensors kept."""
        if is_parameter(node):
            self._keep_gradient(node)
            return
        self.lifetimes.begin(node.name, Phase.BACKWARD)
        of_output = self.gradients.pop(node.name, None) or self.lifetimes.new(self.gradient_size(node.name))
        kept = [self.copies.get((node.name, name), self.place[name]) for name in self.kept_inputs[node.name]]
        if node.layer.keeps_output:
            kept.append(self.place[node.name])
        for storage in (of_output, self.saved[node.name], *kept):
            self.lifetimes.touch(storage)
        into, rules = tuple(node.into(self.wanted)), self.rules
        how = (self.element_bytes[node.name], rules.parameter_bytes, rules.softmax_of(node))
        gradients = _gradients(node, into, *how)
        self.lifetimes.new(gradients.scratch)
        for _ in range(rules.divided_loss_tensors):
            if isinstance(node.layer, CrossEntropy) and node.layer.parts > 1:
                self.lifetimes.new(self.saved[node.name].size)
        made = self._input_gradients(node, gradients.inputs, of_output)
        self._parameter_gradients(gradients.parameters)
        for name, storage in made:
            self._add_gradient(name, self._cast_back(node, name, storage))

    def _input_gradients(
        self, node: Node, inputs: Sequence[tuple[str, bool]], of_output: _Storage
    ) -> list[tuple[str, _Storage]]:
        """Return the gradient of each input that needs one; it may be the output's gradient itself."""
        made = []
        for name, passed_on in inputs:
            gradient = of_output
            if not passed_on:
                copy = self.copies.get((node.name, name))
                gradient = self.lifetimes.new(self.gradient_size(name) if copy is None else copy.size)
            made.append((name, gradient))
        return made

    def _cast_back(self, node: Node, name: str, gradient: _Storage) -> _Storage:
        """Cast the gradient of a copied input back to the type of the tensor that was copied."""
        if (node.name, name) not in self.copies or gradient.size == self.gradient_size(name):
            return gradient
        self.lifetimes.begin(node.name, Phase.BACKWARD)
        self.lifetimes.touch(gradient)
        return self.lifetimes.new(self.gradient_size(name))

    def _parameter_gradients(self, parameters: Sequence[tuple[ParameterName, Bytes]]) -> None:
        """Make the gradients of parameters: kept if new, else added to the existing ones and freed."""
        for owner, size in parameters:
            if owner in self.weight_gradients:
                self.lifetimes.new(size)
            else:
                self.weight_gradients[owner] = self.lifetimes.new(size, is_weight_gradient=True)

    def _keep_gradient(self, node: Node) -> None:
        """Make a tensor's gradient the gradient of its parameter, or add it to that."""
        gradient = self.gradients.pop(node.name, None)
        if gradient is None or gradient.size != self.gradient_size(node.name):
            gradient = self.lifetimes.new(self.gradient_size(node.name))
        (parameter,) = node.layer.parameter_shapes(node.input_shapes)
        owner = node.usage.shared_parameters.get(parameter, (node.name, parameter))
        if owner in self.weight_gradients:
            self.lifetimes.begin_sum(node.name)
            self.lifetimes.touch(gradient)
        else:
            gradient.is_weight_gradient = gradient.is_held = True
            self.weight_gradients[owner] = gradient

    def _add_gradient(self, name: str, storage: _Storage) -> None:
        """Give a tensor its gradient, or add it to the existing one, in memory that nothing else reads.

        Memory of another size holds a view of a gradient (a part, or the whole repeated); nothing is added to it.
        """
        earlier = self.gradients.get(name)
        if earlier is None:
            self.gradients[name] = storage
            return
        self.lifetimes.begin_sum(name)
        self.lifetimes.touch(earlier)
        self.lifetimes.touch(storage)
        others = [gradient for other, gradient in self.gradients.items() if other != name]
        size = self.gradient_size(name)
        whole = [storage_like for storage_like in (earlier, storage) if storage_like.size == size]
        unshared = [storage_like for storage_like in whole if not any(storage_like is other for other in others)]
        is_free = unshared and earlier is not storage
        self.gradients[name] = unshared[0] if is_free else self.lifetimes.new(size)

    def run(self, phase: Phase) -> Lifetimes:
        """Play the phases of a step in order, and return every storage with its first and last use."""
        for node in self.nodes:
            self.compute(node, Phase.FORWARD)
        if Phase.BACKWARD in phase.parts:
            for part in reversed(self.parts):
                self._back_through(part)
        if Phase.UPDATE in phase.parts:
            self.lifetimes.begin("", Phase.UPDATE)
        return self.lifetimes

    def _back_through(self, part: Segment) -> None:
        for name in self.held.intersection(node.name for node in part.nodes):
            self.lifetimes.touch(self.place[name])
        again = {node.name for node in part.again}
        for node in part.nodes:
            if node.name in again:
                self.compute(node, Phase.BACKWARD)
            elif again and self.wanted[node.name]:
                self._copy_inputs(node)
        for node in reversed(part.nodes):
            if self.wanted[node.name]:
                self.differentiate(node)
