"""Translation of another program's operator calls to layers: torch's dispatcher, an ONNX node.

An importer turns every call into an :class:`OperatorCall` of plain values, asks the layers that name the operator in
``operators``, and takes the first :class:`Translation`. Layers import nothing of torch or ONNX, importers know no
layers: a new operator takes one line in its layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.files import file_toml
from perfmodel.layers.shapes import Shape, SharedShape

if TYPE_CHECKING:
    from perfmodel.layers.base import Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A tensor of a call.

    Parameters
    ----------
    key : str
        Identifies it within the importer: a node of the graph, a parameter or a constant. [-]
    shape : tuple of int
        Sample shape, i.e. without the batch axis; a SharedShape where no batch axis exists. [1]
    axes : tuple of int or None
        For each axis of the full tensor, its place in ``shape``; None for the batch axis, which ``shape`` omits. [-]
    merged_axis : int or None
        Axis of the full tensor that holds several rows of each sample, so that ``axes`` has it; None if none does. [-]
    is_parameter : bool
        Whether it is a trained tensor of the network, possibly seen through a transpose. [-]
    is_transposed : bool
        Whether a parameter is seen with its two axes exchanged. [-]
    is_index : bool
        Whether it holds whole numbers or Booleans, which have no gradient. [-]
    is_complex : bool
        Whether it holds complex numbers: ``shape`` then ends with an axis of 2 that ``axes`` does not have. [-]
    value : object
        The content of a small constant if known (ONNX initialisers, never torch), otherwise None. [-]
    """

    key: str
    shape: Shape
    axes: tuple[int | None, ...]
    merged_axis: int | None = None
    is_parameter: bool = False
    is_transposed: bool = False
    is_index: bool = False
    is_complex: bool = False
    value: Any = None

    @property
    def is_shared(self) -> bool:
        """Whether all samples share it: it has no batch axis."""
        return isinstance(self.shape, SharedShape)

    def sample_axis(self, axis: int) -> int | None:
        """Return the place in ``shape`` of an axis of the full tensor, which may count from the end [-].

        Examples
        --------
        >>> Operand(key="x", shape=(3, 224, 224), axes=(None, 0, 1, 2)).sample_axis(-1)
        2
        """
        return self.axes[axis]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCall:
    """One call of an operator.

    Parameters
    ----------
    operator : str
        Name, e.g. ``aten.convolution`` or ``Conv``; in-place variants without their underscore. [-]
    overload : str
        Overload of torch's operators, e.g. ``Tensor``; empty otherwise. [-]
    arguments : mapping of str to object
        By the name in the operator's schema (ONNX: by position ``0``, ``1`` ... and attributes by name): an Operand, a
        tuple of them, or a plain number, text, flag or tuple. Arguments left out hold their defaults. [-]
    outputs : tuple of Operand
        The results. [-]
    parts : frozenset of str
        Operators that were seen to run within it; none where that is not known. [-]
    moved : frozenset of str
        Names of the arguments whose elements it first copies into another order in memory. [-]
    """

    operator: str
    overload: str = ""
    arguments: Mapping[str, Any]
    outputs: tuple[Operand, ...]
    parts: frozenset[str] = frozenset()
    moved: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument, or ``default`` where it is left out or None [-]."""
        value = self.arguments.get(name)
        return default if value is None else value

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All tensors among the arguments, in order."""
        tensors: list[Operand] = []
        for value in self.arguments.values():
            tensors += [part for part in (value if isinstance(value, tuple) else (value,)) if isinstance(part, Operand)]
        return tuple(tensors)

    @property
    def output(self) -> Operand:
        """The first result."""
        return self.outputs[0]


COMPLEX_OPERATORS: Final = frozenset(
    f"aten.{name}"
    for name in (
        *("view", "_unsafe_view", "_reshape_alias", "squeeze", "unsqueeze", "alias", "view_as_complex", "view_as_real"),
        *("_conj", "slice", "select", "split", "split_with_sizes", "chunk", "unbind", "narrow", "expand", "detach"),
        *("t", "transpose", "permute", "cat", "stack", "clone", "copy", "_to_copy", "zeros", "ones", "empty"),
        *("zeros_like", "empty_like", "new_zeros", "add", "sub", "neg", "mul", "div", "sum", "mean"),
    )
)
"""Operators of torch whose work on a complex number equals that of their layers on its two parts."""


def is_uncounted_complex(call: OperatorCall) -> bool:
    """Tell whether a call computes with complex numbers in a way that no layer counts."""
    if not any(operand.is_complex for operand in (*call.operands, *call.outputs)):
        return False
    by = call.get("other")
    divides_by_complex = call.operator == "aten.div" and isinstance(by, Operand) and by.is_complex
    scalars = any(isinstance(value, complex) for value in call.arguments.values())
    return call.operator not in COMPLEX_OPERATORS or divides_by_complex or scalars


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The layer of a call, its inputs, and the tensors of its own parameters.

    A parameter among the inputs becomes a layer of its own that holds it.
    """

    layer: Layer
    inputs: tuple[Operand, ...]
    parameters: Mapping[str, Operand] = field(default_factory=dict)


def of_first(call: OperatorCall, layer: Layer) -> Translation:
    """Return a layer that reads the first tensor of a call."""
    return Translation(layer=layer, inputs=call.operands[:1])


def norm_operands(call: OperatorCall) -> tuple[Operand, Operand | None, Operand | None]:
    """Return input, scale and shift of a norm of torch or ONNX."""
    # ONNX's positions first: it may also name the numbers of a constant input
    return call.operands[0], call.get("1", call.get("weight")), call.get("2", call.get("bias"))


def affine_translation(call: OperatorCall, layer: Layer) -> Translation:
    """Return a norm as the layer of a call, with the call's scale and shift as gamma and beta."""
    operand, *parameters = norm_operands(call)
    named = zip(("gamma", "beta"), parameters, strict=True)
    return Translation(
        layer=layer, inputs=(operand,), parameters={name: held for name, held in named if held is not None}
    )


@cache
def _function_tables() -> dict[str, Any]:
    return file_toml(Path(__file__).with_name("functions.toml"))


def function_table(name: str) -> dict[str, dict[str, Any]]:
    """Return a table of ``functions.toml``: functions of elements, or their names in other programs."""
    table: dict[str, dict[str, Any]] = _function_tables()[name]
    return table


def function_names(kind: str, program: str) -> dict[str, str]:
    """Operator of a program -> the function that it computes.

    Examples
    --------
    >>> function_names("unary", "onnx")["Neg"], function_names("reduction", "torch")["aten.amax"]
    ('negative', 'max')
    """
    prefix = "aten." if program.startswith("torch") else ""
    rows = function_table(f"{kind}_names").items()
    return {f"{prefix}{name}": function for function, row in rows for name in row.get(program, "").split()}


Translator = Callable[[OperatorCall], Translation | None]
"""Reads a call; None if the layer does not match it."""
Operators = Mapping[str, Translator]
"""Names of operators -> reader of their calls."""
