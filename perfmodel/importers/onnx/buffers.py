"""Which stored tensors of an ONNX file are trained, told by where its nodes read them: the file itself is silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from perfmodel.importers.onnx.model import is_standard
from perfmodel.importers.onnx.values import Value

UNTRAINED_INPUTS: Final[Mapping[str, tuple[int, ...]]] = {
    "BatchNormalization": (3, 4),  # running statistics
    "Sub": (1,),  # the mean and deviation by which data are normalised
    "Div": (1,),
    "Pow": (1,),
    **dict.fromkeys(("Clip", "Max", "Min", "Mod"), (0, 1, 2)),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), (0, 1)),
}
"""Operator to the positions at which it reads what no layer trains."""
ARRANGES: Final = ("Cast", "DequantizeLinear", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators whose result has the elements of their first input: of a parameter, it is the same in another shape."""
MASKED: Final = -1e4
"""Numbers from here down are added to scores in order to mask them [1]."""


def trained_tensors(
    nodes: Sequence[Any], values: Mapping[str, Value], reads: Mapping[str, Sequence[Any]]
) -> frozenset[str]:
    """Return the stored tensors that are parameters.

    A tensor is none where its numbers mask scores, or where all that read it, perhaps in another arrangement, read it
    as what nobody trains.

    Parameters
    ----------
    nodes : sequence of onnx.NodeProto
        The file's nodes, in order of execution. [-]
    values : mapping of str to Value
        All tensors. [-]
    reads : mapping of str to sequence of onnx.NodeProto
        The nodes that read each. [-]

    Returns
    -------
    frozenset of str
        Their names. [-]
    """
    stored = {name for name, value in values.items() if value.is_trained}
    arranged = set(stored)
    arranged.update(node.output[0] for node in nodes if _arranges(node) and node.input[0] in arranged)

    def is_untrained(name: str) -> bool:
        content = values[name].content
        if content is not None and content.size and content.min() <= MASKED:
            return True
        readers = reads.get(name, ())
        return bool(readers) and all(is_read_untrained(node, name) for node in readers)

    def is_read_untrained(node: Any, name: str) -> bool:
        if _arranges(node):
            return is_untrained(node.output[0])
        if node.op_type == "MatMul" and is_standard(node):
            return is_untrained_factor(node, name)
        positions = {index for index, given in enumerate(node.input) if given == name}
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


def _arranges(node: Any) -> bool:
    return is_standard(node) and node.op_type in ARRANGES
