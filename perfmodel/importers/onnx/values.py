"""Small tensors of an ONNX file whose content is known, which later shapes follow from, and how they are worked out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from perfmodel.errors import SpecError
from perfmodel.importers.onnx.model import is_standard

KEEPS_ZEROS: Final = (
    "Cast", "Concat", "Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze",
)  # fmt: skip
"""Operators that make zeros of zeros."""
MOST_KNOWN_ELEMENTS: Final = 4096
"""Tensors with more elements are data: no shape follows from their content [1]."""
RANDOM: Final = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")
"""Operators whose results no file determines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor at one batch size.

    Parameters
    ----------
    shape : tuple of int
        Extents of the whole tensor, batch axis included. [1]
    element_type : int
        ONNX's number of its data type. [-]
    content : ndarray or None
        Its elements, where they are few and the file determines them. [-]
    is_trained : bool
        Whether it is a stored tensor of fractional numbers with at least one axis: a parameter, as far as a
        file tells. [-]
    is_exact : bool
        Whether its content follows from the file alone and may be computed with: not that of parameters. [-]
    is_zero : bool
        Whether all of its elements are known to be zero, however many they are. [-]
    """

    shape: tuple[int, ...]
    element_type: int
    content: np.ndarray[Any, Any] | None = None
    is_trained: bool = False
    is_exact: bool = False
    is_zero: bool = False

    @property
    def is_index(self) -> bool:
        """Whether it holds whole numbers or truth values."""
        return not is_fractional(self.element_type)


def is_fractional(element_type: int) -> bool:
    """Tell whether an ONNX data type holds fractional numbers.

    Examples
    --------
    >>> is_fractional(1), is_fractional(7)  # float32, int64
    (True, False)
    """
    from onnx import TensorProto

    fractional = (
        TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16,
        TensorProto.COMPLEX64, TensorProto.COMPLEX128,
        TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2,
    )  # fmt: skip
    return element_type in fractional


def stored_value(tensor: Any, *, file: Path) -> Value:
    """Return an initialiser's value, with its content where it is small.

    Parameters
    ----------
    tensor : onnx.TensorProto
        The stored tensor. [-]
    file : Path
        The file it is from; external content lies beside it. [-]

    Returns
    -------
    Value
        A parameter where it holds fractional numbers along at least one axis. [-]

    Raises
    ------
    SpecError
        If its content cannot be read.
    """
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
    """Return what a node makes of inputs that are all known: chains of numbers that shapes follow from.

    Parameters
    ----------
    node : onnx.NodeProto
        The node. [-]
    inputs : sequence of Value or None
        What it reads; None where an optional input is left out. [-]
    shapes : mapping of str to tuple of int or None
        Shapes of its outputs by name; None where they follow from no shape. [1]
    version : int
        Version of the standard operators. [-]

    Returns
    -------
    dict of str to ndarray
        Contents by name; empty where they do not follow, are many, or the node is no standard operator. [-]
    """
    if not is_standard(node) or node.op_type in RANDOM:
        return {}
    if any(shape is not None and math.prod(shape) > MOST_KNOWN_ELEMENTS for shape in shapes.values()):
        return {}
    if node.op_type == "Shape":
        attributes = {each.name: each.i for each in node.attribute}
        extents = inputs[0].shape if inputs[0] is not None else ()
        part = slice(attributes.get("start", 0), attributes.get("end"))
        return {node.output[0]: np.asarray(extents[part], dtype=np.int64)}
    if node.op_type == "Size" and inputs[0] is not None:
        return {node.output[0]: np.asarray(math.prod(inputs[0].shape), dtype=np.int64)}
    if any(value is not None and not value.is_exact for value in inputs):
        return {}
    return _evaluated(node, [None if value is None else value.content for value in inputs], version=version)


def makes_zeros(node: Any, inputs: Sequence[Value | None]) -> bool:
    """Tell whether a node's results are all zeros: a filling with zeros, or zeros arranged otherwise.

    Parameters
    ----------
    node : onnx.NodeProto
        The node. [-]
    inputs : sequence of Value or None
        What it reads. [-]

    Returns
    -------
    bool
        False where it is not known. [-]
    """
    if node.op_type == "ConstantOfShape":
        from onnx import numpy_helper

        return not any(np.any(numpy_helper.to_array(each.t)) for each in node.attribute if each.HasField("t"))
    sources = inputs if node.op_type == "Concat" else inputs[:1]
    return node.op_type in KEEPS_ZEROS and all(value is not None and value.is_zero for value in sources)


def _evaluated(
    node: Any, contents: Sequence[np.ndarray[Any, Any] | None], *, version: int
) -> dict[str, np.ndarray[Any, Any]]:
    """Return the contents of a node's outputs by onnx's own reference implementation."""
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
            found = ReferenceEvaluator(graph, opsets={"": version}).run(outputs, named)
    except Exception:  # whatever it cannot compute has no known content: later shapes say what they miss
        return {}
    known = zip(outputs, map(np.asarray, found), strict=True)
    return {name: content for name, content in known if content.size <= MOST_KNOWN_ELEMENTS}
