"""Contract of every layer: output shape, parameters, operations and Work per phase."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, reduce
from operator import add
from typing import Any, ClassVar, TypeVar, dataclass_transform, final

from perfmodel.calls import in_words
from perfmodel.layers.checks import Check, check_count, check_flag, check_fraction, check_shape, optional
from perfmodel.layers.passes import one_pass
from perfmodel.layers.shapes import Shape, Shapes
from perfmodel.layers.translation import Operators
from perfmodel.records import ELEMENT_BYTES, Operation, Phase, Role, Work

Operations = tuple[Operation, ...]
"""Operations of a layer, in order."""
Checks = dict[str, Check]
Kind = TypeVar("Kind", bound="Checked")
Traffic = Mapping[str, Any]
"""Elements, bytes and arithmetic of a memory pass: arguments of ``one_pass`` besides its name and role."""

CHECK_OF_TYPE: Checks = {
    "bool": check_flag,
    "float": check_fraction,
    "int": check_count,
    "int | None": optional(check_count),
    "Shape": check_shape,
    "Shape | None": optional(check_shape),
}
"""Annotation of an option -> its check, unless the kind has another one in ``checks``."""


def of_options(fact: Callable[[Any], Any]) -> Any:
    """Return a property of a kind for what is one fact of most kinds, but follows from the options of this one."""
    return property(fact)


class Checked:
    """A dataclass of options that are checked when it is made."""

    kind: ClassVar[str]
    """Name in graph files and tables, which ``layer_kind`` sets [-]."""
    checks: ClassVar[Checks] = {}
    """Option -> check that raises on a value that is not allowed, where its type does not say it."""

    def __post_init__(self) -> None:
        for option, check in _checks_of(type(self)).items():  # type: ignore[arg-type]  # a class is hashable
            check(option, getattr(self, option))


@lru_cache(maxsize=256)
def _checks_of(kind: type[Any]) -> Checks:
    """Return the check of each option that has one: its own, or that of its type."""
    by_type = {option.name: CHECK_OF_TYPE.get(str(option.type)) for option in fields(kind)}
    return {option: check for option, check in (by_type | kind.checks).items() if check is not None}


@dataclass(frozen=True, kw_only=True)
class Layer(Checked, ABC):
    """One layer kind: a final class in its family's module, independent of hardware and framework.

    Shapes are those of one sample; ``batch_size`` may be a number, an array or a symbol, every count is exact
    for it, and every count is affine in it (c0 + c1 N).

    A kind states ``output_shape``, ``forward_operations`` and ``backward_operations`` (a
    ``OnePassLayer`` states ``traffic`` instead of both), and, where they differ from the defaults here,
    ``parameter_shapes``, ``saved_bytes``, ``label_bytes`` and ``gradient_operations``; what back-propagation keeps; and
    which operators of other programs it is.
    """

    input_counts: ClassVar[tuple[int, int | None]] = (1, 1)
    """Fewest and most inputs the layer takes; None for no upper limit [1]."""
    index_inputs: ClassVar[tuple[int, ...]] = ()
    """Positions of inputs that have no gradient: indices, masks, targets [-]."""
    mask_inputs: ClassVar[tuple[int, ...]] = ()
    """Positions of inputs that hold Booleans or quantised numbers, 1 B each [-]."""
    makes_mask: ClassVar[bool] = False
    """Whether the output holds Booleans or quantised numbers, 1 B each [-]."""
    keeps_inputs: ClassVar[bool] = True
    """Whether back-propagation reads the layer's inputs, so that they stay in memory until then [-]."""
    inputs_serve_weights: ClassVar[bool] = False
    """Whether it reads them for the parameters' gradients alone (a product with weights), so that a frozen layer keeps
    none [-]."""
    keeps_output: ClassVar[bool] = False
    """Whether back-propagation reads the layer's output (ReLU, softmax), so that it stays in memory until then [-]."""
    operators: ClassVar[Operators] = {}
    """Names of operators of torch, without overload (``aten.relu``), and ONNX (``Relu``) -> reader of a call [-]."""
    is_view: ClassVar[bool] = False
    """True if the output is the input's memory under another shape (flatten): no operation, no copy
    [-]."""
    gradient_is_view: ClassVar[bool] = False
    """True if the gradient of an input is part of the output's gradient, seen through a view [-]."""
    gradient_is_joined: ClassVar[bool] = False
    """True if one pass joins the gradients of one input from this layer and others of its kind, instead of adding them
    [-]."""
    width_option: ClassVar[str | None] = None
    """Option for the number of output channels, if any number is allowed and the layer's weights make them [-]."""
    turns_axes: ClassVar[bool] = False
    """True if the output is a view with the axes in another order, so that a gradient computed in one piece lies in
    that order and is copied back [-]."""
    makes_samples: ClassVar[bool] = False
    """True if each sample has an output although no input depends on samples (a table expanded to the batch) [-]."""
    is_loss: ClassVar[bool] = False
    """True if training minimises the output: back-propagation starts here [-]."""
    is_metric: ClassVar[bool] = False
    """True for a metric: its output is neither minimised nor read by another layer [-]."""

    @property
    def shares_memory(self) -> bool:
        """Whether the output lies in the input's memory, as that of a view does [-]."""
        return self.is_view

    @abstractmethod
    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the shape of one output sample; raise ShapeMismatchError for shapes that do not fit."""

    @abstractmethod
    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the operations that compute the output of ``batch_size`` [samples], in order."""

    @abstractmethod
    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the operations that compute all gradients from the output's, in order, each with its role.

        INPUT_GRADIENT marks operations needed only for the input's gradient, WEIGHT_GRADIENT the rest.
        """

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return the backward operations that remain if only the ``wanted`` inputs need a gradient.

        All of them if any input does, otherwise those without the role INPUT_GRADIENT. Layers in which one pass
        serves both gradients override this.
        """
        operations = self.backward_operations(input_shapes, batch_size=batch_size)
        if any(wanted):
            return operations
        return tuple(operation for operation in operations if operation.role is not Role.INPUT_GRADIENT)

    def differentiable(self, input_count: int) -> tuple[bool, ...]:
        """Return for each of ``input_count`` inputs [1] whether a gradient can flow back to it."""
        return tuple(index not in self.index_inputs for index in range(input_count))

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return the trainable parameters by name; none unless overridden."""
        return {}

    def at_inference(self, input_shapes: Shapes) -> Layer:
        """Return the layer as it runs without training: without dropout."""
        return replace(self, dropout=0.0) if hasattr(self, "dropout") else self  # type: ignore[call-arg]

    def following(self, before: Shapes, after: Shapes) -> Layer:
        """Return the same layer for inputs of other shapes; unchanged unless an option repeats a shape."""
        return self

    def saved_bytes(self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int) -> Any:
        """Return bytes kept for back-propagation besides the layer's inputs and output, e.g. a mask [B]."""
        return 0

    def saved_index_count(self, input_shapes: Shapes, *, batch_size: Any) -> Any:
        """Return indices kept for back-propagation, e.g. of maxima [1]; the framework sets their size."""
        return 0

    def backward_scratch_bytes(
        self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int, wanted: Sequence[bool]
    ) -> Any:
        """Return scratch memory of back-propagation, besides kept tensors and resulting gradients [B].

        These are the intermediate results if ``torch`` computes a gradient by several operators.
        """
        return 0

    def kept_inputs(self, wanted: Sequence[bool], *, is_trained: bool) -> tuple[bool, ...]:
        """Return for each input whether back-propagation reads it, if its gradient or the layer's own are computed.

        ``keeps_inputs`` for all, unless overridden by layers that read only some of their inputs.
        """
        keeps = self.keeps_inputs and (is_trained or not self.inputs_serve_weights)
        return (keeps,) * len(wanted)

    def label_bytes(self, input_shapes: Shapes) -> int:
        """Return bytes of labels one sample needs; zero unless the layer is a loss [B/sample]."""
        return 0

    def parameter_count(self, input_shapes: Shapes) -> int:
        """Return the number of trainable parameters [1]."""
        return sum(math.prod(shape) for shape in self.parameter_shapes(input_shapes).values())

    def operations(self, input_shapes: Shapes, *, batch_size: Any, phase: Phase | str) -> Operations:
        """Return the neutral operations of ``phase`` for ``batch_size`` [samples]; a layer has no update.

        Examples
        --------
        >>> from perfmodel.layers import ReLU
        >>> [operation.name for operation in ReLU().operations(((10,),), batch_size=2, phase="forward")]
        ['relu']
        """
        parts = {Phase.FORWARD: self.forward_operations, Phase.BACKWARD: self.backward_operations}
        return tuple(
            operation
            for part in Phase(phase).parts
            if part in parts
            for operation in parts[part](input_shapes, batch_size=batch_size)
        )

    def work(self, input_shapes: Shapes, *, batch_size: Any, phase: Phase | str, dtype: str = "fp32") -> Work:
        """Return FLOP and bytes of ``phase`` for ``batch_size`` [samples]; the sum over the operations."""
        element_bytes = ELEMENT_BYTES[dtype]
        operations = self.operations(input_shapes, batch_size=batch_size, phase=phase)
        return reduce(add, (operation.work(element_bytes=element_bytes) for operation in operations), Work())

    def options(self) -> dict[str, Any]:
        """Return the constructor arguments, for a graph file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, kw_only=True)
class OnePassLayer(Layer):
    """A layer that is one memory pass forward, and one or none backward."""

    gradient_role: ClassVar[Role] = Role.INPUT_GRADIENT
    """What the backward pass yields [-]."""

    @property
    def pass_name(self) -> str:
        """Name of both passes."""
        return self.kind

    @abstractmethod
    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic | None, Traffic | None]:
        """Return the traffic and FLOP of the forward and the backward pass; None for a missing pass."""

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape, unless overridden."""
        return input_shapes[0]

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the forward pass."""
        traffic, _ = self.traffic(input_shapes, batch_size=batch_size)
        return () if traffic is None else (one_pass(self.pass_name, **traffic),)

    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the backward pass."""
        _, traffic = self.traffic(input_shapes, batch_size=batch_size)
        return () if traffic is None else (one_pass(self.pass_name, role=self.gradient_role, **traffic),)


@dataclass(frozen=True, kw_only=True)
class LayerByInput(Layer):
    """A layer that computes the gradient of each input apart, and only if it is needed."""

    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the operations that compute the gradients of all inputs."""
        return self.gradient_operations(input_shapes, batch_size=batch_size, wanted=[True] * len(input_shapes))

    @abstractmethod
    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return the operations that compute the wanted gradients."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def layer_kind(kind: str) -> Callable[[type[Kind]], type[Kind]]:
    """Make a class the kind of this name, in files and tables: final, with immutable keyword-only options."""

    def of_kind(layer: type[Kind]) -> type[Kind]:
        layer.kind = kind
        made = dataclass(frozen=True, kw_only=True)(layer)
        made.__init__ = in_words(made.__init__, of=made)  # type: ignore[method-assign]
        return final(made)

    return of_kind
