"""Assemble a layer graph from a configuration: layers with their parameters' owners, holes, and the order of axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn
from warnings import warn

from perfmodel import layers
from perfmodel.errors import (
    ArgumentError,
    GraphError,
    OpaqueLayerWarning,
    PerfmodelError,
    SpecError,
    check_known,
    short_repr,
)
from perfmodel.graph import LayerGraph
from perfmodel.graph.node import Node, Usage
from perfmodel.importers.build import Built, Hole, holes_by_operator, listed
from perfmodel.layers import LAYERS, Layer, Shape
from perfmodel.layers.translation import function_names

NOT_SHOWN: Final = ", and without parameters that it may have, which the file does not show"
"""Addition to the warning about a hole whose weights are not in the file."""
RECURRENT_NAMES: Final = ("RNN", "LSTM", "GRU", "Rnn", "Bidirectional")
"""Parts of names of recurrences: they use weights at every step, so the work of a hole has no bound by its operands."""


class NotTranslatedError(Exception):
    """A layer that the translator of its class does not cover; it becomes a hole."""


def decline(reason: str) -> NoReturn:
    """Say that a translator does not cover a layer, and why."""
    raise NotTranslatedError(reason)


TRANSLATION_FAULTS: Final = (
    NotTranslatedError,
    PerfmodelError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""Errors of a translator: the first two make a layer a hole, the others mean that its fields are malformed."""


def reason_of_hole(error: Exception, *, where: str, layer: str, class_name: str) -> str:
    """Reason why a layer becomes a hole; SpecError if its configuration is malformed instead."""
    if isinstance(error, SpecError):
        raise error
    if isinstance(error, NotTranslatedError | PerfmodelError):
        return str(error)
    problem = (
        f"layer {layer!r} ({class_name}): its configuration is malformed: its fields must have the kinds of value that "
        "the program writes for this class"
    )
    raise SpecError(where, [problem]) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor of a configuration, in the order of axes that the configuration has.

    Parameters
    ----------
    source : str
        Name of its layer or input in the graph. [-]
    shape : tuple of int
        Shape of a sample, without the leading axes in ``rows``. [1]
    rows : tuple of int
        Leading axes, which layers inside a ``TimeDistributed`` do not see. [1]
    is_turned : bool
        Whether the graph has the last axis, the channels, before the axes of the map. [-]
    """

    source: str
    shape: Shape
    rows: Shape = ()
    is_turned: bool = False

    def axis(self, axis: int) -> int:
        """Convert an axis of the sample, from the end if negative, to the axis in the graph [-]."""
        if not -len(self.shape) <= axis < len(self.shape):
            decline(f"it works along axis {axis} of a sample of {len(self.shape)} axes")
        place, last = axis % len(self.shape), len(self.shape) - 1
        if self.is_turned:
            place = 0 if place == last else place + 1
        return len(self.rows) + place

    def batched_axis(self, axis: int) -> int:
        """Convert an axis counted with the batch in front, from the end if negative, to the axis in the graph [-]."""
        if axis == 0 or axis == -len(self.shape) - 1:
            decline("it works along the axis of the samples")
        return self.axis(axis - 1 if axis > 0 else axis)

    @property
    def order(self) -> tuple[int, ...]:
        """The axes of the graph in the order of the sample."""
        return (*range(len(self.rows)), *map(self.axis, range(len(self.shape))))


class Assembly:
    """A graph in the making; a translator that fails leaves nothing behind."""

    def __init__(self, name: str, *, inputs: Mapping[str, Shape], where: str, image_layout: str | None = None) -> None:
        self.name, self.inputs, self.where, self.image_layout = name, dict(inputs), where, image_layout
        self._shapes: dict[str, Shape] = dict(inputs)
        self._nodes: dict[str, Node] = {}
        self._owners: dict[tuple[str, str], str] = {}
        self._read: set[str] = set()
        self._ends: list[str] = []
        self.holes: list[Hole] = []

    def shape(self, source: str) -> Shape:
        """Return the shape of an input or layer of the graph [1]."""
        return self._shapes[source]

    def __contains__(self, source: object) -> bool:
        return source in self._shapes

    def unique(self, name: str) -> str:
        """Return a name that is not taken: with a number behind it where a layer is called again."""
        count, unique = 0, name
        while unique in self._shapes:
            count += 1
            unique = f"{name}_{count}"
        return unique

    def add(
        self,
        name: str,
        layer: Layer,
        *inputs: str,
        owner: tuple[str, str],
        is_trained: bool = True,
        weight_dtype: str | None = None,
    ) -> str:
        """Plan a layer; parameters are those of the first layer with the same owner, packed weights are frozen."""
        name = self.unique(name)
        shapes = tuple(map(self.shape, inputs))
        parameters = layer.parameter_shapes(shapes)
        packed = [key for key, shape in parameters.items() if len(shape) > 1] if weight_dtype else []
        stored = weight_dtype if packed else None
        usage = Usage(is_trained=is_trained, weight_dtype=stored, frozen_parameters=tuple(packed))
        node = Node.of(name, layer, input_names=inputs, input_shapes=shapes, usage=usage)
        first = self._owners.setdefault(owner, name) if parameters else name
        if first != name:
            shared = {parameter: (first, parameter) for parameter in parameters}
            if self._nodes[first].layer.parameter_shapes(self._nodes[first].input_shapes) != parameters:
                decline(f"it shares the parameters of {first!r}, which have another size")
            node = replace(node, usage=replace(node.usage, shared_parameters=shared))
        self._nodes[name] = node
        self._shapes[name] = node.output_shape
        self._read.update(inputs)
        return name

    def attempt(self, make: Callable[[], Any]) -> Any:
        """Return the result of a translator; if it raises, remove the layers that it planned."""
        kept = (dict(self._shapes), dict(self._nodes), dict(self._owners), set(self._read), list(self.holes))
        try:
            return make()
        except TRANSLATION_FAULTS:
            self._shapes, self._nodes, self._owners, self._read, self.holes = kept
            raise

    def plain(self, tensor: Tensor) -> Tensor:
        """Return a tensor with the axes of the graph as the configuration has them."""
        if not tensor.is_turned:
            return tensor
        return self._reordered(tensor, tensor.order, is_turned=False)

    def turned(self, tensor: Tensor) -> Tensor:
        """Return a tensor whose channels, its last axis, come before its map in the graph."""
        if tensor.is_turned:
            return tensor
        first = len(tensor.rows)
        last = first + len(tensor.shape) - 1
        return self._reordered(tensor, (*range(first), last, *range(first, last)), is_turned=True)

    def _reordered(self, tensor: Tensor, axes: tuple[int, ...], *, is_turned: bool) -> Tensor:
        """Return the same memory with the axes in another order."""
        before = self._nodes.get(tensor.source)
        if before is not None and isinstance(before.layer, layers.Transpose) and before.layer.is_view:
            back = tuple(before.layer.axes[axis] for axis in axes)
            if back == tuple(range(len(back))):
                return replace(tensor, source=before.input_names[0], is_turned=is_turned)
        name = f"{tensor.source}.{'channels_first' if is_turned else 'channels_last'}"
        if name not in self:
            self.add(name, layers.Transpose(axes=axes), tensor.source, owner=(name, ""))
        return replace(tensor, source=name, is_turned=is_turned)

    def tensor(self, source: str, *, rows: Shape = (), is_turned: bool = False) -> Tensor:
        """Return a layer of the graph as a tensor of the configuration."""
        shape = tuple(self.shape(source))[len(rows) :]
        if is_turned:
            shape = (*shape[1:], shape[0])
        return Tensor(source=source, shape=shape, rows=rows, is_turned=is_turned)

    def ended(self, tensor: Tensor) -> None:
        """Mark a tensor as a result of the network: training starts there, even if other layers read it."""
        source = tensor.source
        if source in self._read:
            layer = layers.Reshape(shape=tuple(self.shape(source)))
            source = self.add(f"{source}.output", layer, source, owner=(source, "output"))
        self._ends.append(source)

    def hole(
        self,
        name: str,
        operator: str,
        tensors: Collection[Tensor],
        *,
        shape: Shape,
        reason: str,
        weights: Weights,
        is_guess: bool = False,
    ) -> Tensor:
        """Plan an opaque layer with its weights, if they are known, as tensors that it reads."""
        inputs = [self.plain(tensor) for tensor in tensors]
        rows = inputs[0].rows if inputs else ()
        held = [
            self.unique_parameter(f"{weights.owner}.{part}", weight.shape, is_trained=weight.is_trained)
            for part, weight in weights.tensors.items()
        ]
        layer = layers.Opaque(operator=operator, shape=(*rows, *shape))
        sources = [*(tensor.source for tensor in inputs), *held]
        source = self.add(name, layer, *sources, owner=(name, ""))
        suffix = "" if weights.are_known else NOT_SHOWN
        is_guess = is_guess or any(part in operator for part in RECURRENT_NAMES)
        self.holes.append(Hole(layer=source, step=0, operator=operator, reason=reason + suffix, is_guess=is_guess))
        return self.tensor(source, rows=rows)

    def unique_parameter(self, name: str, shape: Shape, *, is_trained: bool) -> str:
        """Return the layer that holds a parameter, planned when it is first asked for."""
        if name not in self:
            self.add(name, layers.Parameter(shape=shape), owner=(name, ""), is_trained=is_trained)
        return name

    def built(self) -> Built:
        """Return the graph and its holes; views that nobody reads are left out."""
        nodes: list[Node] = []
        read = set(self._ends)
        for node in reversed(self._nodes.values()):
            if node.name in read or not node.layer.is_view:
                nodes.insert(0, node)
                read.update(node.input_names)
        if not nodes or read.isdisjoint(self.inputs):
            raise GraphError(problem=f"graph {self.name!r}: the network computes nothing from its inputs")
        inputs = {name: shape for name, shape in self.inputs.items() if name in read}
        graph = LayerGraph(self.name, inputs=inputs, image_layout=self.image_layout)
        for node in nodes:
            graph.add(node.name, node.layer, inputs=node.input_names, **node.usage.options)
        return Built(graph=graph, steps={}, holes=tuple(self.holes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """A weight of a layer that no translator covers."""

    shape: Shape
    is_trained: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weights of a layer that no translator covers, where they are known."""

    owner: str
    tensors: Mapping[str, Weight] = field(default_factory=dict)
    are_known: bool = False


def warn_of_holes(built: Built, *, where: str, stacklevel: int) -> None:
    """Warn of every operator that no layer translates."""
    for operator, holes, counts in holes_by_operator(built, batch_size=1):
        shown = f"{len(holes)} layers: {listed([hole.layer for hole in holes])}"
        reasons = "; ".join(dict.fromkeys(hole.reason for hole in holes[:3]))
        message = f"{where}: {operator!r} is opaque ({shown}): {reasons}; {counts}"
        warn(OpaqueLayerWarning(message), stacklevel=stacklevel + 1)


ACTIVATIONS: Final[Mapping[str, type[Layer]]] = {
    "relu": layers.ReLU,
    "relu6": layers.ReLU6,
    **dict.fromkeys(("leakyrelu", "lrelu", "rrelu"), layers.LeakyReLU),
    "sigmoid": layers.Sigmoid,
    "tanh": layers.Tanh,
    **dict.fromkeys(("silu", "swish"), layers.SiLU),
    "gelu": layers.GELU,
}
"""Element-wise activation in lower case without underscores -> layer of its own; others are functions of ``Unary``."""

FUNCTIONS: Final = function_names("unary", "called")
"""The same -> function."""


def elementwise(name: str | None) -> Layer | None:
    """Make the element-wise activation of a name in Keras or deeplearning4j; None for others.

    >>> elementwise("hard_sigmoid"), elementwise("HardSigmoid"), elementwise("softmax")
    (Unary(function='hard_sigmoid'), Unary(function='hard_sigmoid'), None)
    """
    compact = "" if name is None else name.replace("_", "").lower()
    if compact in ACTIVATIONS:
        return ACTIVATIONS[compact]()
    return layers.Unary(function=FUNCTIONS[compact]) if compact in FUNCTIONS else None


def over_axes(family: str, axis_count: int) -> Any:
    """Class of a layer over maps, from its family and the number of axes."""
    return LAYERS[f"{family}_{axis_count}d"]


def stated_shapes(stated: Any, names: Sequence[str], *, where: str) -> Mapping[str, Any]:
    """Shapes of inputs by their names; that of a single input may be stated by itself."""
    shapes: Mapping[str, Any] = {} if stated is None else stated
    if not isinstance(shapes, Mapping):
        if len(names) != 1:
            raise ArgumentError("input_shapes", stated, f"a mapping with a shape for each of {', '.join(names)}")
        shapes = {names[0]: stated if isinstance(stated, list | tuple) else (stated,)}
    for name in shapes:
        check_known(f"input of {where}:", name, names)
    return shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredLayer:
    """One call of a layer of a configuration; its path, after the paths of the models around it, owns its weights."""

    assembly: Assembly
    path: str
    class_name: str
    config: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    is_trained: bool = True
    weight_dtype: str | None = None

    @property
    def first(self) -> Tensor:
        """The first tensor that it reads."""
        if not self.tensors:
            decline("it reads no tensor")
        return self.tensors[0]

    def get(self, field_name: str, default: Any = None) -> Any:
        """Return a field of the configuration, or a default where it is left out or null."""
        value = self.config.get(field_name)
        return default if value is None else value

    def required(self, field_name: str) -> Any:
        """Return a field of the configuration that must be there."""
        if field_name not in self.config:
            self.refuse(f"its field {field_name!r} is missing: must be there")
        if self.config[field_name] is None:
            self.refuse(f"{field_name}=null: must be stated")
        return self.config[field_name]

    def refuse(self, problem: str) -> NoReturn:
        """Raise SpecError for a layer of a known class whose configuration is malformed."""
        raise SpecError(self.assembly.where, [f"layer {self.path!r} ({self.class_name}): {problem}"])

    def count(self, field_name: str, default: int | None = None, *, least: int = 1) -> int:
        """Return a field that holds a whole number of at least some size."""
        value = self.required(field_name) if default is None else self.get(field_name, default)
        number = _whole(value)
        if number is None or number < least:
            self.refuse(f"{field_name}={short_repr(value)}: must be a whole number of at least {least}")
        return number

    def number(self, field_name: str, default: float) -> float:
        """Return a field that holds a finite number."""
        value = self.get(field_name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.refuse(f"{field_name}={short_repr(value)}: must be a finite number")
        return float(value)

    def sizes(self, field_name: str, axis_count: int, default: Any = None, *, least: int = 1) -> tuple[int, ...]:
        """Return a field that holds one whole number for all axes of a map, or one for each."""
        value = self.required(field_name) if default is None else self.get(field_name, default)
        return self.whole_numbers(field_name, value, axis_count, least=least)

    def whole_numbers(self, field_name: str, value: Any, axis_count: int, *, least: int) -> tuple[int, ...]:
        """Return the content of a field as one whole number for each axis of a map."""
        values = tuple(value) if isinstance(value, list | tuple) else (value,) * axis_count
        numbers = tuple(size for size in map(_whole, values) if size is not None and size >= least)
        if len(values) != axis_count or len(numbers) != axis_count:
            self.refuse(f"{field_name}={short_repr(value)}: must be {axis_count} whole numbers of at least {least}")
        return numbers

    def add(self, layer: Layer, *tensors: Tensor, part: str = "") -> str:
        """Plan a layer of the graph; the parts of a layer have separate parameters."""
        sources = tuple(tensor.source for tensor in tensors)
        name = f"{self.path}.{part}" if part else self.path
        how: dict[str, Any] = {"is_trained": self.is_trained, "weight_dtype": self.weight_dtype}
        return self.assembly.add(name, layer, *sources, owner=(self.path, part), **how)

    def each(self, layer: Layer, tensor: Tensor, part: str = "") -> Tensor:
        """Plan a layer that leaves shape and axes as they are."""
        return replace(tensor, source=self.add(layer, tensor, part=part))

    def made(self, layer: Layer, *tensors: Tensor, part: str = "") -> Tensor:
        """Plan a layer and return its result, with the rows and the order of axes of its first input."""
        return self.like(self.add(layer, *tensors, part=part), tensors[0])

    def plain(self, tensor: Tensor) -> Tensor:
        """Return a tensor with its axes in the graph as in the configuration."""
        return self.assembly.plain(tensor)

    def like(self, source: str, tensor: Tensor) -> Tensor:
        """Return a layer of the graph as a tensor with the rows and the order of axes of another."""
        return self.assembly.tensor(source, rows=tensor.rows, is_turned=tensor.is_turned)

    def joined(self, function: str, tensors: Sequence[Tensor]) -> Tensor:
        """Join tensors by a function of two; tensors of equal shape are added in a single sum."""
        if function == "add" and len({tuple(self.assembly.shape(tensor.source)) for tensor in tensors}) == 1:
            return self.made(layers.Add(), *tensors)
        so_far = tensors[0]
        for place, tensor in enumerate(tensors[1:]):
            part = f"{function}_{place}" if place else ""
            so_far = self.made(layers.Binary(function=function), so_far, tensor, part=part)
        return so_far

    def halves(self, both: Tensor) -> list[Tensor]:
        """Return the features of each direction of a recurrence that runs both ways."""
        half = (*both.rows, *both.shape[:-1], both.shape[-1] // 2)
        layer = layers.Slice(shape=half, is_joined=True)
        return [self.made(layer, both, part=part) for part in ("forward", "backward")]

    def reshaped(self, tensor: Tensor, shape: Shape, part: str = "") -> Tensor:
        """Return the elements of a tensor under another shape."""
        plain = self.plain(tensor)
        return self.made(layers.Reshape(shape=(*plain.rows, *shape)), plain, part=part)

    def dropped(self, tensor: Tensor, rate: float, part: str = "dropout") -> Tensor:
        """Return a tensor after dropout; the tensor itself if nothing is dropped."""
        return self.each(layers.Dropout(rate=float(rate)), tensor, part) if rate else tensor

    def opaque(self, tensor: Tensor, operator: str, part: str, *, reason: str, shape: Shape | None = None) -> Tensor:
        """Plan a hole for a part of the layer that has no weights: an activation, or a loss."""
        name = f"{self.path}.{part}" if part else self.path
        weights = Weights(owner=name, are_known=True)
        made = tensor.shape if shape is None else shape
        return self.assembly.hole(name, operator, (tensor,), shape=made, reason=reason, weights=weights)


def _whole(value: Any) -> int | None:
    """Return a whole number, also one that is written as 3.0; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return int(value) if is_number and int(value) == value else None
