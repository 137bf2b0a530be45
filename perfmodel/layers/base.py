"""The contract every layer fulfils: output shape, parameters, neutral operations and Work per phase."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from operator import add
from typing import Any, ClassVar, TypeVar, dataclass_transform, final

from perfmodel.layers.checks import Check
from perfmodel.layers.shapes import Shape, Shapes
from perfmodel.layers.translation import Operators
from perfmodel.records import ELEMENT_BYTES, Operation, Phase, Role, Work

Examples = tuple[tuple[Mapping[str, Any], Shapes], ...]
"""Options and input shapes on which the contract of all layers is tried, at least one pair."""
SymbolicExample = tuple[Mapping[str, Any], tuple[tuple[str | int, ...], ...]]
"""Options and input shapes, letters for sizes, for which the documentation prints the counts."""

Operations = tuple[Operation, ...]
"""What a layer runs, in order."""
Checks = dict[str, Check]
Kind = TypeVar("Kind")


@dataclass(frozen=True, kw_only=True)
class Layer(ABC):
    """One layer kind: a final class in its family's module, knowing neither hardware nor framework.

    Shapes are those of one sample; ``batch_size`` may be a number, an array or a symbol, every count is exact
    for it, and every count is affine in it (c0 + c1 N).

    A kind states ``kind``, ``examples``, ``output_shape``, ``forward_operations`` and
    ``backward_operations``, and, where they differ from the defaults here, ``parameter_shapes``, ``saved_bytes``,
    ``label_bytes`` and ``gradient_operations``; what back-propagation keeps; and which operators of other programs it
    is.
    """

    kind: ClassVar[str]
    examples: ClassVar[Examples]
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",),))
    input_counts: ClassVar[tuple[int, int | None]] = (1, 1)
    """Fewest and most inputs the layer takes; None for no upper limit [1]."""
    index_inputs: ClassVar[tuple[int, ...]] = ()
    """Positions of inputs that have no gradient: indices, masks, targets [-]."""
    mask_inputs: ClassVar[tuple[int, ...]] = ()
    """Positions of inputs that hold truth values, 1 B each [-]."""
    makes_mask: ClassVar[bool] = False
    """Whether the output holds truth values, 1 B each [-]."""
    keeps_inputs: ClassVar[bool] = True
    """Whether back-propagation reads the layer's inputs, so that they stay in memory until then [-]."""
    inputs_serve_weights: ClassVar[bool] = False
    """Whether it reads them for the parameters' gradients alone (a product with weights), so that a frozen layer keeps
    none [-]."""
    keeps_output: ClassVar[bool] = False
    """Whether back-propagation reads the layer's output (ReLU, softmax), so that it stays in memory until then [-]."""
    torch_operators: ClassVar[Operators] = {}
    """Names of torch operators, without namespace overload (``aten.relu``), to what reads a call of each [-]."""
    onnx_operators: ClassVar[Operators] = {}
    """Names of ONNX operators (``Relu``) to what reads a node of each [-]."""
    is_view: ClassVar[bool] = False
    """True where the output is the input's memory under another shape (flatten): no operation, no copy
    [-]."""
    gradient_is_view: ClassVar[bool] = False
    """True where the gradient of an input is a part of the output's, seen through a view [-]."""
    gradient_is_joined: ClassVar[bool] = False
    """True where one pass joins the gradients that this layer and its like have of one input, instead of adding them
    [-]."""
    turns_axes: ClassVar[bool] = False
    """True where the output is a view with the axes in another order, so that a gradient made in one piece lies in
    that order and is copied back [-]."""
    makes_samples: ClassVar[bool] = False
    """True where the output has one part for every sample although no input has (a table expanded to the batch) [-]."""
    is_loss: ClassVar[bool] = False
    """True where the output is what training minimises: back-propagation starts here [-]."""
    is_metric: ClassVar[bool] = False
    """True where the output is only looked at: neither minimised nor read by another layer [-]."""
    checks: ClassVar[Checks] = {}
    """Option to what refuses a value that it must not have."""

    def __post_init__(self) -> None:
        for option, check in self.checks.items():
            check(option, getattr(self, option))

    @abstractmethod
    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the shape of one output sample; raise ShapeMismatchError for shapes that do not fit."""

    @abstractmethod
    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the operations that compute the output of ``batch_size`` [samples], in order."""

    @abstractmethod
    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the operations that compute all gradients from the output's, in order, each with its role.

        INPUT_GRADIENT marks what is only needed where the input wants a gradient, WEIGHT_GRADIENT the rest.
        """

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return the backward operations that are left where only the ``wanted`` inputs need a gradient.

        All of them where any input does, else those without the role INPUT_GRADIENT. Layers in which one pass
        serves both gradients say here what remains of it.
        """
        operations = self.backward_operations(input_shapes, batch_size=batch_size)
        if any(wanted):
            return operations
        return tuple(operation for operation in operations if operation.role is not Role.INPUT_GRADIENT)

    def differentiable(self, input_count: int) -> tuple[bool, ...]:
        """Tell for each of ``input_count`` inputs [1] whether a gradient can flow back to it."""
        return tuple(index not in self.index_inputs for index in range(input_count))

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return the trainable parameters by name; none unless a layer says otherwise."""
        return {}

    def at_inference(self, input_shapes: Shapes) -> Layer:
        """Return the layer that runs in its place where nothing is trained; itself where that makes no difference."""
        return self

    def saved_bytes(self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int) -> Any:
        """Return bytes kept for back-propagation besides the layer's inputs and output, e.g. a mask [B]."""
        return 0

    def saved_index_count(self, input_shapes: Shapes, *, batch_size: Any) -> Any:
        """Return indices kept for back-propagation, e.g. where a maximum was [1]; the framework says how large."""
        return 0

    def backward_scratch_bytes(
        self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int, wanted: Sequence[bool]
    ) -> Any:
        """Return bytes back-propagation needs for a while besides what is kept and the gradients it yields [B].

        Where ``torch`` makes a gradient by several operators, these are their results in between.
        """
        return 0

    def kept_inputs(self, wanted: Sequence[bool], *, is_trained: bool) -> tuple[bool, ...]:
        """Tell for each input whether back-propagation reads it.

        Parameters
        ----------
        wanted : sequence of bool
            Whether each input's gradient is computed. [-]
        is_trained : bool
            Whether the gradients of the layer's own parameters are. [-]

        Returns
        -------
        tuple of bool
            ``keeps_inputs`` for all; layers that read some of their inputs only, say here which. [-]
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
        """Return the neutral operations of ``phase`` for ``batch_size`` [samples]; an update is no layer's.

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
class LayerByInput(Layer):
    """A layer whose gradients are computed input by input, as far as each is wanted."""

    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the operations that compute the gradients of all inputs."""
        return self.gradient_operations(input_shapes, batch_size=batch_size, wanted=[True] * len(input_shapes))

    @abstractmethod
    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return the operations that compute the wanted gradients."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def layer_kind(layer: type[Kind]) -> type[Kind]:
    """Make a kind of layer of a class: final, with keyword-only options that do not change."""
    return final(dataclass(frozen=True, kw_only=True)(layer))
