"""Tensors of an ONNX file: shapes at one batch size, by onnx's own rules, and which stored ones are parameters."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from perfmodel.errors import SpecError
from perfmodel.importers.onnx.model import Extent, OnnxModel, is_standard, node_name, schema_of
from perfmodel.importers.recording import Advance

SAME_AS_FIRST_INPUT: Final = ("GroupNormalization", "MeanVarianceNormalization")
"""Standard operators without a shape rule in onnx: the result has the shape of the first input."""
FIXED_TARGETS: Final = {"Reshape": 1, "Expand": 1, "Resize": 3}
"""Operator -> its input that holds a shape, into which an export writes its batch size [-]."""


class ShapesDoNotFollowError(Exception):
    """The shapes of an ONNX graph cannot be inferred from those of its inputs."""

    def __init__(self, node: str, problem: str) -> None:
        self.node, self.problem = node, problem
        super().__init__(f"node {node!r}: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Sizes at which shapes are inferred."""

    input_shapes: Mapping[str, tuple[int, ...]]
    sizes: Mapping[str, int]
    batch_size: int
    written_batch_size: int | None = None
    rewrites_targets: bool = False


class ShapeTrace:
    """Values of all tensors of a file at one setting."""

    def __init__(self, model: OnnxModel, setting: Setting, *, advance: Advance) -> None:
        self._model = model
        self._setting = setting
        self._written: set[str] = set()  # whole numbers that the file itself states, not computed from a shape
        self.values: dict[str, Value] = dict(self._stored())
        for entry in model.inputs:
            self.values[entry.name] = Value(shape=setting.input_shapes[entry.name], element_type=entry.element_type)
        for node in model.nodes:
            advance()
            self._run(node)

    def _stored(self) -> Iterator[tuple[str, Value]]:
        for name, tensor in self._model.initialisers.items():
            self._written.add(name)
            yield name, stored_value(tensor, file=self._model.path)
        for name, tensor in self._model.sparse_initialisers.items():
            yield (
                name,
                Value(shape=tuple(tensor.dims), element_type=tensor.values.data_type, is_trained=bool(tensor.dims)),
            )

    def _run(self, node: Any) -> None:
        """Add the values that a node makes."""
        inputs = [self.values[name] if name else None for name in node.input]
        if node.op_type == "Constant" and is_standard(node) and any(stated.HasField("t") for stated in node.attribute):
            value = stored_value(node.attribute[0].t, file=self._model.path)
            is_trained = value.is_trained and math.prod(value.shape) > 1  # some programs store weights this way
            self.values[node.output[0]] = replace(value, is_trained=is_trained, is_exact=value.content is not None)
            self._written.add(node.output[0])
            return
        types = self._output_types(node, inputs)
        shapes = {name: shape for name, (_, shape) in types.items()}
        if is_standard(node):
            read = [None if value is None else value.shape for value in inputs]
            problem = misfit(node, read, shapes.get(node.output[0]))
            if problem:
                raise ShapesDoNotFollowError(node_name(node), problem)
        contents = computed_content(node, inputs, shapes, version=self._model.version)
        is_zero = makes_zeros(node, inputs)
        for name, (element_type, shape) in types.items():
            content = contents.get(name)
            if content is None and shape is None:
                raise ShapesDoNotFollowError(
                    node_name(node), f"the shape of {name!r}, made by {node.op_type}, depends on data"
                )
            known = content.shape if content is not None else shape
            self.values[name] = Value(
                shape=known or (),
                element_type=element_type,
                content=content,
                is_exact=content is not None,
                is_zero=is_zero or (content is not None and not np.any(content)),
            )
        if node.op_type == "Constant":
            self._written.update(node.output)

    def _output_types(self, node: Any, inputs: list[Value | None]) -> dict[str, tuple[int, tuple[int, ...] | None]]:
        """Return the data type of each named output, and its shape where it can be inferred."""
        named = [name for name in node.output if name]
        schema = schema_of(node, self._model.version)
        if schema is None:
            return {name: self._stated(name, inputs) for name in named}
        types = self._inferred(node, inputs, schema)
        declared: dict[str, tuple[int, tuple[int, ...] | None]] = {}
        for name in named:
            value_type = types.get(name)
            if node.op_type in SAME_AS_FIRST_INPUT and inputs[0] is not None:
                declared[name] = inputs[0].element_type, inputs[0].shape
            elif value_type is not None and value_type.HasField("tensor_type"):
                declared[name] = value_type.tensor_type.elem_type, _known_shape(value_type.tensor_type)
            else:
                raise ShapesDoNotFollowError(node_name(node), f"{name!r}, made by {node.op_type}, is no tensor")
        return declared

    def _inferred(self, node: Any, inputs: list[Value | None], schema: Any) -> Mapping[str, Any]:
        """Return the onnx.TypeProto of each output by onnx's rule for the operator."""
        from onnx import helper, numpy_helper
        from onnx.checker import ValidationError
        from onnx.shape_inference import InferenceError, infer_node_outputs

        versions = [helper.make_opsetid("", schema.since_version)]
        types, data = {}, {}
        for name, value in zip(node.input, inputs, strict=True):
            if value is not None:
                # first states of a recurrence are zeros of the exported batch size; zeros expand to any size
                is_any_size = node.op_type == "Expand" and value.is_zero and name == node.input[0]
                types[name] = helper.make_tensor_type_proto(value.element_type, () if is_any_size else value.shape)
                if value.content is not None:
                    data[name] = numpy_helper.from_array(self._target(node, name, value, inputs))
        try:
            return infer_node_outputs(schema, node, types, data, opset_imports=versions)
        except (InferenceError, ValidationError, RuntimeError, LookupError, TypeError, ValueError) as error:
            raise ShapesDoNotFollowError(node_name(node), f"{node.op_type}: {_first_line(error)}") from error

    def _target(self, node: Any, name: str, value: Value, inputs: list[Value | None]) -> np.ndarray[Any, Any]:
        """Return an input's content; in a reshape target, the exported batch size is replaced."""
        content = value.content
        assert content is not None
        place = FIXED_TARGETS.get(node.op_type, len(node.input))
        is_target = name in node.input[place : place + 1] and name in self._written
        if not (self._setting.rewrites_targets and is_target and content.size and inputs[0] is not None):
            return content
        if content.flat[0] != self._setting.written_batch_size:
            return content
        changed = content.copy()
        changed.flat[0] = self._setting.batch_size
        elements = math.prod(inputs[0].shape)
        is_whole = node.op_type != "Reshape" or (changed <= 0).any() or math.prod(changed.tolist()) == elements
        return changed if is_whole else content

    def _stated(self, name: str, inputs: list[Value | None]) -> tuple[int, tuple[int, ...]]:
        """Return the type the file states for an unknown operator's result, otherwise the type of its first input."""
        first = next((value for value in inputs if value is not None), None)
        if name not in self._model.stated_extents:
            return (first.element_type, first.shape) if first is not None else (1, ())
        element_type, extents = self._model.stated_extents[name]
        if all(isinstance(extent, int) or extent in self._setting.sizes for extent in extents):
            return element_type, self._sized(extents)
        return element_type, first.shape if first is not None else ()

    def _sized(self, extents: tuple[Extent, ...]) -> tuple[int, ...]:
        setting = self._setting
        shape = [setting.sizes[extent] if isinstance(extent, str) else extent for extent in extents]
        if shape and shape[0] == setting.written_batch_size:
            shape[0] = setting.batch_size
        return tuple(shape)


def _known_shape(tensor_type: Any) -> tuple[int, ...] | None:
    """Return the shape in an onnx.TypeProto.Tensor, or None where an extent is missing."""
    if not tensor_type.HasField("shape"):
        return None
    dimensions = tensor_type.shape.dim
    if not all(dimension.HasField("dim_value") for dimension in dimensions):
        return None
    return tuple(dimension.dim_value for dimension in dimensions)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__


Shapes = Sequence[tuple[int, ...] | None]
"""Shapes of a node's inputs; None where one is left out [1]."""


Pair = tuple[str, Callable[[tuple[int, ...], tuple[int, ...], Mapping[str, int]], tuple[int, int]]]
"""Words for two extents, and functions that take them from a node's first inputs and attributes."""

_NORM: Final[Pair] = ("channels of maps and scale", lambda maps, scale, _: (maps[1] if len(maps) > 1 else 1, scale[0]))
_RECURRENCE: Final[Pair] = ("features of sequence and weights", lambda sequence, weights, _: (sequence[2], weights[2]))
_CHANNELS: Final = "channels of maps and filters"
PAIRS: Final[Mapping[str, Pair]] = {
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), _NORM),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _RECURRENCE),
    "Conv": (_CHANNELS, lambda maps, filters, of: (maps[1], filters[1] * of.get("group", 1))),
    "ConvTranspose": (_CHANNELS, lambda maps, filters, _: (maps[1], filters[0])),
    "Gemm": (
        "inner extents of the product",
        lambda first, second, of: (first[0 if of.get("transA") else 1], second[1 if of.get("transB") else 0]),
    ),
}
"""Operator -> two extents that must be equal, which shape inference does not compare. [-]"""


def misfit(node: Any, inputs: Shapes, output: tuple[int, ...] | None) -> str:
    """Describe which shapes of a node do not fit."""
    if node.op_type == "Reshape" and inputs[0] is not None and output is not None:
        before, after = math.prod(inputs[0]), math.prod(output)
        return "" if before == after else f"Reshape of {inputs[0]} to {output}: {before} elements become {after}"
    if node.op_type == "Resize" and inputs[0] is not None and output is not None and inputs[0][:2] != output[:2]:
        return f"Resize of {inputs[0]} to {output}: samples and channels must stay as many"
    if node.op_type not in PAIRS:
        return ""
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    try:
        what, pair = PAIRS[node.op_type]
        first, second = pair(inputs[0] or (0, 0, 0), inputs[1] or (0, 0, 0), attributes)
    except IndexError:
        return f"{node.op_type} takes no inputs of shape {' and '.join(map(str, inputs))}"
    if first == second:
        return ""
    return f"{node.op_type}: {what} must be equal, but are {first} and {second}"


KEEPS_ZEROS: Final = (
    "Cast", "Concat", "Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze",
)  # fmt: skip
"""Operators that turn zeros into zeros."""
MOST_KNOWN_ELEMENTS: Final = 4096
"""Tensors with more elements are data: no shape depends on their content [1]."""
RANDOM: Final = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")
"""Operators with random results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor at one batch size."""

    shape: tuple[int, ...]
    element_type: int
    content: np.ndarray[Any, Any] | None = None
    is_trained: bool = False
    is_exact: bool = False
    is_zero: bool = False

    @property
    def is_index(self) -> bool:
        """Whether it holds whole numbers or Booleans."""
        return not is_fractional(self.element_type)


def is_fractional(element_type: int) -> bool:
    """Tell whether an ONNX data type holds fractional numbers."""
    from onnx import TensorProto

    fractional = (
        TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16,
        TensorProto.COMPLEX64, TensorProto.COMPLEX128,
        TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2,
    )  # fmt: skip
    return element_type in fractional


def stored_value(tensor: Any, *, file: Path) -> Value:
    """Return an initialiser's value, with its content if it is small."""
    shape = tuple(tensor.dims)
    is_trained = is_fractional(tensor.data_type) and bool(shape)
    content = _content(tensor, file=file) if math.prod(shape) <= MOST_KNOWN_ELEMENTS else None
    is_exact = content is not None and not is_trained
    return Value(
        shape=shape,
        element_type=tensor.data_type,
        content=content,
        is_trained=is_trained,
        is_exact=is_exact,
        is_zero=content is not None and not np.any(content),
    )


def _content(tensor: Any, *, file: Path) -> np.ndarray[Any, Any]:
    from onnx import numpy_helper
    from onnx.external_data_helper import load_external_data_for_tensor

    try:
        if tensor.data_location == tensor.EXTERNAL:
            copy = type(tensor)()
            copy.CopyFrom(tensor)
            load_external_data_for_tensor(copy, str(file.parent))
            tensor = copy
        content: np.ndarray[Any, Any] = numpy_helper.to_array(tensor)
    except (OSError, LookupError, ValueError, TypeError, RuntimeError) as error:
        raise SpecError(file, [f"tensor {tensor.name!r} cannot be read ({error})"]) from error
    return content


def computed_content(
    node: Any, inputs: Sequence[Value | None], shapes: Mapping[str, tuple[int, ...] | None], *, version: int
) -> dict[str, np.ndarray[Any, Any]]:
    """Compute a node's results if all its inputs are known; shapes follow from such chains of numbers."""
    if not is_standard(node) or node.op_type in RANDOM:
        return {}
    if any(shape is not None and math.prod(shape) > MOST_KNOWN_ELEMENTS for shape in shapes.values()):
        return {}
    if node.op_type == "Shape":
        attributes = {attribute.name: attribute.i for attribute in node.attribute}
        extents = inputs[0].shape if inputs[0] is not None else ()
        part = slice(attributes.get("start", 0), attributes.get("end"))
        return {node.output[0]: np.asarray(extents[part], dtype=np.int64)}
    if node.op_type == "Size" and inputs[0] is not None:
        return {node.output[0]: np.asarray(math.prod(inputs[0].shape), dtype=np.int64)}
    if any(value is not None and not value.is_exact for value in inputs):
        return {}
    return _evaluated(node, [None if value is None else value.content for value in inputs], version=version)


def makes_zeros(node: Any, inputs: Sequence[Value | None]) -> bool:
    """Tell whether a node's results are all zeros: filled with zeros, or rearranged zeros."""
    if node.op_type == "ConstantOfShape":
        from onnx import numpy_helper

        return not any(np.any(numpy_helper.to_array(stated.t)) for stated in node.attribute if stated.HasField("t"))
    sources = inputs if node.op_type == "Concat" else inputs[:1]
    return node.op_type in KEEPS_ZEROS and all(value is not None and value.is_zero for value in sources)


def _evaluated(
    node: Any, contents: Sequence[np.ndarray[Any, Any] | None], *, version: int
) -> dict[str, np.ndarray[Any, Any]]:
    """Evaluate a node's outputs by onnx's own reference implementation."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    named = {name: content for name, content in zip(node.input, contents, strict=True) if content is not None}
    outputs = [name for name in node.output if name]
    graph = helper.make_graph(
        [node],
        "constant",
        [helper.make_value_info(name, helper.make_empty_tensor_value_info(name).type) for name in named],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            values = ReferenceEvaluator(graph, opsets={"": version}).run(outputs, named)
    except Exception:  # content that it cannot compute stays unknown; later shapes report it missing
        return {}
    known = zip(outputs, map(np.asarray, values), strict=True)
    return {name: content for name, content in known if content.size <= MOST_KNOWN_ELEMENTS}


TAKES_PARTS: Final = ("Concat", "Slice")
"""Operators that return a part of an input: a part of a parameter that a layer reads is a parameter."""
WEIGHT_INPUTS: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "LayerNormalization", "InstanceNormalization"), (1, 2)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2, 3)),
    "BatchNormalization": (1, 2, 3, 4),
    **dict.fromkeys(("MatMul", "MatMulInteger"), (1,)),
}
"""Operator -> the inputs from which it reads weights."""
NARROW_WEIGHTS: Final = {2: "int8", 3: "int8", **dict.fromkeys(range(17, 21), "fp8"), 21: "int4", 22: "int4"}
"""onnx.TensorProto's numbers of types of eight bits and four -> the data type of weights that are stored so."""
SCALED_BY: Final = ("Mul", "Sub", "Div")
"""Operators that turn stored integers, once cast, into weights in a file without DequantizeLinear."""
INTEGER_PRODUCT: Final = "MatMulInteger"
"""Product of integers, whose second input is a weight if it is stored."""
UNTRAINED_INPUTS: Final[Mapping[str, tuple[int, ...]]] = {
    "BatchNormalization": (3, 4),  # running statistics
    "Sub": (1,),  # the mean and deviation by which data are normalised
    "Div": (1,),
    "Pow": (1,),
    **dict.fromkeys(("Clip", "Max", "Min", "Mod"), (0, 1, 2)),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), (0, 1)),
}
"""Operator -> the inputs from which it reads untrained tensors."""
ARRANGES: Final = ("Cast", "DequantizeLinear", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that only rearrange the elements of their first input: a rearranged parameter is still one."""
MASKED: Final = -1e4
"""Numbers up to this one mask the scores that they are added to [1]."""


def trained_tensors(
    nodes: Sequence[Any], values: Mapping[str, Value], reads: Mapping[str, Sequence[Any]]
) -> frozenset[str]:
    """Return the stored tensors that are parameters.

    A tensor is not a parameter if its numbers mask scores, or if all its readers, possibly of a rearranged copy, read
    it as an untrained tensor.
    """
    stored = {name for name, value in values.items() if value.is_trained}
    arranged = set(stored)
    arranged.update(node.output[0] for node in nodes if arranges(node) and node.input[0] in arranged)

    def is_untrained(name: str) -> bool:
        content = values[name].content
        if content is not None and content.size and content.min() <= MASKED:
            return True
        readers = reads.get(name, ())
        return bool(readers) and all(is_read_untrained(node, name) for node in readers)

    def is_read_untrained(node: Any, name: str) -> bool:
        if arranges(node):
            return is_untrained(node.output[0])
        if node.op_type == "MatMul" and is_standard(node):
            return is_untrained_factor(node, name)
        positions = {index for index, read in enumerate(node.input) if read == name}
        return is_standard(node) and positions <= set(UNTRAINED_INPUTS.get(node.op_type, ()))

    def is_untrained_factor(node: Any, name: str) -> bool:
        # Layers have their weights as the second factor. A square first one mixes the places of a sample, as the edges
        # of a graph do; a vector takes the measure of a stored matrix, as in spectral normalisation.
        first, second = node.input
        shape = values[name].shape
        if len(shape) == 1:
            return name == first or first in arranged
        return name == first and shape[-1] == shape[-2] and second not in arranged

    return frozenset(name for name in stored if not is_untrained(name))


def arranges(node: Any) -> bool:
    """Tell whether a node only rearranges the elements of its first input."""
    return is_standard(node) and node.op_type in ARRANGES
