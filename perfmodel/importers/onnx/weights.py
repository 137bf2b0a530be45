"""Which stored tensors of an ONNX file are parameters, and in which data type they lie there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from perfmodel.importers.onnx.model import is_standard
from perfmodel.importers.onnx.shapes import Value

TAKES_PARTS: Final = ("Concat", "Slice")
"""Operators whose result is a part of their inputs: a part of a parameter that a layer reads is a parameter."""
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
"""Operators by which a file without DequantizeLinear turns stored integers, once cast, into weights."""
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
