"""Operations of a graph, layer by layer: forward, backward, and those that checkpoints repeat."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

from perfmodel.derived import derived
from perfmodel.errors import ArgumentError, check_known
from perfmodel.graph.node import Node
from perfmodel.graph.storage import is_parameter, kept_inputs, kept_tensors, tensor_bytes
from perfmodel.layers import Layer, ScaledDotProductAttention, Shape
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import element_count
from perfmodel.numeric import is_real
from perfmodel.records import Contraction, Convolution, Gather, MemoryPass, Operation, Role, WeightFormat

SELECTIVE: Final = "selective"
"""Way to recompute only the part between the projections of attention."""
BLOCKS: Final = "blocks"
"""Way to recompute each block as a whole from its input."""
RECOMPUTE = ("full", BLOCKS, "sqrt", SELECTIVE)
"""Ways to place checkpoints; None keeps every activation outside the regions that the graph marks."""
MOST_BLOCKS: Final = 1_000_000
"""Most blocks that ``recompute`` counts; a larger number is a typing error. [1]"""
Way: TypeAlias = str | int | None
"""A way to place checkpoints, or the number of blocks of each stage that run again."""


class StopsEarly(NamedTuple):
    """A way to place checkpoints in a framework that ends the second run of a block once all it needs is made."""

    way: Way


Recompute: TypeAlias = Way | StopsEarly
"""What runs again, and whether each block runs to its end."""

_BLOCK: Final = re.compile(r"(.*?\d+)(?=[_.])")
"""Start of the names of a block's layers: up to the first number before a separator. [-]"""


@dataclass(frozen=True, slots=True)
class Segment:
    """Layers between two checkpoints."""

    nodes: tuple[Node, ...]
    again: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class _Cut:
    place: int
    """Number of layers before the cut [1]."""
    tensor: str
    is_kept: bool
    """Whether back-propagation reads the tensor anyway, so that no layer overwrites it."""


def way_of(recompute: Recompute) -> Way:
    """Return the way to place checkpoints, whether or not blocks run to their end."""
    return recompute.way if isinstance(recompute, StopsEarly) else recompute


def check_recompute(recompute: Any) -> Way:
    """Check the name of a way to place checkpoints, or a number of blocks; None is allowed."""
    if recompute is None:
        return None
    if is_real(recompute):
        if not 0 <= recompute <= MOST_BLOCKS or recompute % 1:
            allowed = f"a whole number of blocks from 0 to {MOST_BLOCKS:,}, or {' or '.join(RECOMPUTE)}"
            raise ArgumentError("recompute", recompute, allowed)
        return int(recompute)
    check_known("way to recompute activations", recompute, RECOMPUTE)
    return str(recompute)


@lru_cache(maxsize=8192)
def block_of(name: str) -> str | None:
    """Return the common start of the names of a block's layers; None for a layer outside blocks.

    >>> block_of("block1_mlp_up"), block_of("layers.12.mlp.up"), block_of("loss")
    ('block1', 'layers.12', None)
    """
    match = _BLOCK.match(name)
    return None if match is None else match[1]


def blocks_of(nodes: Sequence[Node]) -> list[str]:
    """Return the blocks of more than one layer, in order; the layers of a block are consecutive.

    In ``conv1_1, relu1_1, conv1_2, relu1_2`` neither ``conv1`` nor ``relu1`` is a block, because they alternate.
    """
    named = [block for node in nodes if (block := block_of(node.name)) is not None]
    counts, runs = Counter(named), Counter(block for block, _ in groupby(named))
    return [block for block, count in counts.items() if count > 1 and runs[block] == 1]


def check_recomputable(recompute: Way, nodes: Sequence[Node]) -> None:
    """Raise if a network has fewer blocks than are to run again, or no separate attention core for ``selective``."""
    if isinstance(recompute, int) and recompute > (most := len(blocks_of(nodes))):
        allowed = f"at most {most}, the number of blocks in the layer names of this network"
        raise ArgumentError("recompute", recompute, allowed)
    if recompute == BLOCKS and not blocks_of(nodes):
        allowed = "None, full or sqrt: layer names of this network hold no block numbers"
        raise ArgumentError("recompute", recompute, allowed)
    if recompute == SELECTIVE and not has_core(nodes):
        allowed = "None, full or sqrt: the network has no attention layer apart from its projections"
        raise ArgumentError("recompute", recompute, allowed)


def reruns_blocks(way: Way, nodes: Sequence[Node]) -> bool:
    """Return whether blocks run again as far as the framework runs them, by the argument or by marks of the graph."""
    if way is None:
        return any(node.usage.reruns_all is None for node in nodes)
    return isinstance(way, int) or way == BLOCKS


def has_core(nodes: Sequence[Node]) -> bool:
    """Return whether the network has a layer of attention without its projections."""
    return any(map(_is_core, nodes))


def _is_core(node: Node) -> bool:
    """Return whether a layer is the core of attention: products of queries, keys and values, with a softmax between."""
    return isinstance(node.layer, ScaledDotProductAttention)


def keeps_scores(node: Node) -> bool:
    """Return whether a layer is the core of attention and keeps its scores in memory for back-propagation."""
    layer = node.layer
    is_materialised = isinstance(layer, ScaledDotProductAttention) and layer.scores == "materialised"
    return is_materialised and node.usage.recomputed_in is None


def _cuts(nodes: Sequence[Node], *, wanted: Mapping[str, bool]) -> list[_Cut]:
    readers: dict[str, list[int]] = {}
    for place, node in enumerate(nodes):
        for name in node.input_names:
            readers.setdefault(name, []).append(place)
    kept = kept_tensors(nodes, wanted=wanted)
    crossing: set[str] = set()
    leaving: dict[int, list[str]] = {}
    cuts = []
    for place, node in enumerate(nodes):
        crossing.difference_update(leaving.get(place, ()))
        if node.name in readers and wanted[node.name] and not node.is_shared:
            crossing.add(node.name)
            leaving.setdefault(readers[node.name][-1], []).append(node.name)
        if len(crossing) == 1:
            (tensor,) = crossing
            cuts.append(_Cut(place + 1, tensor, tensor in kept))
    return cuts


def _block_starts(cuts: Sequence[_Cut]) -> list[_Cut]:
    """Return the cuts where branches begin: more than one layer lies before the next cut."""
    return [cut for cut, following in pairwise(cuts) if following.place - cut.place > 1 and cut.is_kept]


def has_blocks(nodes: Sequence[Node], *, wanted: Mapping[str, bool]) -> bool:
    """Return whether branches begin somewhere: checkpoints then lie there and do not depend on other blocks."""
    return bool(_block_starts(_cuts(nodes, wanted=wanted)))


def _balanced(nodes: Sequence[Node], cuts: Sequence[_Cut], *, wanted: Mapping[str, bool]) -> list[_Cut]:
    """Return about sqrt(n) of the n cuts, with similar bytes kept between them."""
    group_count = round(math.sqrt(len(cuts) + 1))
    allowed = [cut for cut in cuts if cut.is_kept]
    kept = kept_tensors(nodes, wanted=wanted)
    before = [0.0]
    for node in nodes:
        output_bytes = sum(tensor_bytes(node.output_shape, element_bytes=4)) if node.name in kept else 0
        saved = node.saved_bytes(batch_size=2, element_bytes=4) / 2 if wanted[node.name] else 0
        before.append(before[-1] + float(output_bytes + saved))
    chosen: dict[int, _Cut] = {}
    for group in range(1, group_count):
        target = before[-1] * group / group_count
        nearest = min(allowed, key=lambda cut: abs(before[cut.place] - target), default=None)
        if nearest is not None:
            chosen[nearest.place] = nearest
    return [chosen[place] for place in sorted(chosen)]


def _rerun(segment: Sequence[Node], *, checkpoint: str, wanted: Mapping[str, bool]) -> tuple[Node, ...]:
    """Return the layers of a segment whose forward results its back-propagation needs, directly or indirectly."""
    needed = {node.name for node in segment if wanted[node.name] and _saves(node)} | kept_tensors(
        segment, wanted=wanted
    )
    again = []
    for node in reversed(segment):
        is_kept = node.is_shared or not wanted[node.name] or (node.name == checkpoint and not _saves(node))
        if node.name in needed and not is_kept:
            again.append(node)
            needed.update(node.input_names)
    return tuple(reversed(again))


@derived
def _saves(node: Node) -> bool:
    return bool(node.saved_bytes(batch_size=1, element_bytes=1))


class _Mark(NamedTuple):
    """The region of a layer, whether all of the region runs again, and whether the layer's result is kept."""

    region: str | None = None
    reruns_all: bool | None = False
    keeps_result: bool = False


def _marks_of(nodes: Sequence[Node], recompute: Way) -> dict[str, _Mark]:
    """Return the region of each layer: of the graph's own marks, of attention's cores, or of some or all blocks."""
    if recompute is None:
        usages = {node.name: node.usage for node in nodes}
        return {name: _Mark(use.recomputed_in, use.reruns_all, use.keeps_result) for name, use in usages.items()}
    if isinstance(recompute, int) or recompute == BLOCKS:
        blocks = blocks_of(nodes)
        again = set(blocks[:recompute] if isinstance(recompute, int) else blocks)
        regions = {node.name: block_of(node.name) for node in nodes}
        return {
            name: _Mark(region, reruns_all=None) if region in again else _Mark() for name, region in regions.items()
        }
    return {node.name: _Mark(node.name, reruns_all=True) if _is_core(node) else _Mark() for node in nodes}


def _marked(
    nodes: Sequence[Node], *, wanted: Mapping[str, bool], marks: Mapping[str, _Mark], stops_early: bool
) -> list[Segment]:
    """Return the regions that run again, and the layers between them."""
    parts: list[list[Node]] = [[]]
    region: str | None = None
    for node in nodes:
        marked = marks[node.name].region
        joins = marked is None and _computes_nothing(node)
        if marked != region and not joins:
            region = marked
            parts.append([])
        parts[-1].append(node)
    return [
        Segment(tuple(part), _rerun_in_region(part, wanted=wanted, marks=marks, stops_early=stops_early))
        for part in parts
        if part
    ]


def _computes_nothing(node: Node) -> bool:
    """Return whether a layer is only a parameter or a constant."""
    return not node.input_names and (node.layer.is_view or is_parameter(node))


def _rerun_in_region(
    part: Sequence[Node], *, wanted: Mapping[str, bool], marks: Mapping[str, _Mark], stops_early: bool
) -> tuple[Node, ...]:
    """Return the layers of a region that run again: all, or those whose unkept results back-propagation needs."""
    inside = [node for node in part if marks[node.name].region is not None and not _computes_nothing(node)]
    if not any(wanted[node.name] for node in inside):
        return ()
    unit = [node for node in inside if marks[node.name].reruns_all is None]
    needed = {node.name for node in (_until_stop(unit, wanted=wanted) if stops_early else unit)}
    needed |= {node.name for node in inside if marks[node.name].reruns_all or (wanted[node.name] and _saves(node))}
    needed |= kept_tensors(part, wanted=wanted)
    kept = {node.name for node in inside if marks[node.name].keeps_result}
    needed -= kept
    for node in reversed(inside):
        if node.name in needed:
            needed.update(name for name in node.input_names if name not in kept)
    return tuple(node for node in inside if node.name in needed)


def _until_stop(unit: Sequence[Node], *, wanted: Mapping[str, bool]) -> Sequence[Node]:
    """Return the layers before the last one that saves a tensor: an operand is saved before computing with it.

    That last layer runs too if it saves its own result, which :func:`_rerun_in_region` sees to.
    """
    places = range(len(unit) - 1, -1, -1)
    return unit[: next((place for place in places if _saves_any(unit[place], wanted=wanted)), 0)]


def _saves_any(node: Node, *, wanted: Mapping[str, bool]) -> bool:
    """Return whether a layer saves an operand, which may be its weights, or something of its own result."""
    if not wanted[node.name]:
        return False
    is_saved = bool(kept_inputs(node, wanted=wanted)) or node.layer.keeps_output or _saves(node)
    return is_saved or (any(node.into(wanted)) and multiplies_by_weights(node))


def segments(nodes: Sequence[Node], *, wanted: Mapping[str, bool], recompute: Recompute) -> tuple[Segment, ...]:
    """Return the layers in segments between checkpoints, in order of execution.

    Notes
    -----
    ``full`` has a checkpoint wherever branches begin, as before each residual block; ``sqrt`` makes about sqrt(n)
    segments of n cuts [1]_; ``selective`` repeats the core of each attention [2]_, ``blocks`` each numbered block, and
    a number that many, the first ones. The last segment of ``full`` and ``sqrt`` never runs again, as its results are
    needed first; with both, only layers whose results back-propagation reads run again. Blocks, and regions that the
    graph marks with ``reruns_all=None``, run again whole, as in Megatron-LM; with :class:`StopsEarly` they run until
    the last tensor that back-propagation reads is saved, as in ``torch.utils.checkpoint(use_reentrant=False)`` [3]_.
    Neither the product that ends a transformer block nor the sum behind it then runs again, as the product saves its
    operands before it computes. Valid for: layers of one kernel; one of several that keeps something runs again whole.

    References
    ----------
    .. [1] Chen, Xu, Zhang, Guestrin, Training deep nets with sublinear memory cost, arXiv:1604.06174.
    .. [2] Korthikanti et al., Reducing activation recomputation in large transformer models, arXiv:2205.05198.
    .. [3] PyTorch, torch/utils/checkpoint.py, _recomputation_hook and _StopRecomputationError.
    """
    way, stops_early = way_of(recompute), isinstance(recompute, StopsEarly)
    if way is None or isinstance(way, int) or way in (BLOCKS, SELECTIVE):
        return tuple(_marked(nodes, wanted=wanted, marks=_marks_of(nodes, way), stops_early=stops_early))
    cuts = _cuts(nodes, wanted=wanted)
    chosen = (_block_starts(cuts) if way == "full" else []) or _balanced(nodes, cuts, wanted=wanted)
    places = [0, *(cut.place for cut in chosen), len(nodes)]
    parts = [tuple(nodes[start:end]) for start, end in pairwise(places)]
    ends = [cut.tensor for cut in chosen]
    first = [
        Segment(part, _rerun(part, checkpoint=tensor, wanted=wanted)) for part, tensor in zip(parts, ends, strict=False)
    ]
    return (*first, Segment(parts[-1]))


def checkpoints(parts: Sequence[Segment]) -> set[str]:
    """Return the names of the tensors that later segments read, which are therefore kept."""
    made_in = {node.name: index for index, part in enumerate(parts) for node in part.nodes}
    return {
        name
        for index, part in enumerate(parts)
        for node in part.nodes
        for name in node.input_names
        if made_in.get(name, -1) != index
    }


LayerOperations = tuple[tuple[str, Operation], ...]
"""Pairs of the name of a layer and an operation, in order of execution."""


ProbedOperations = tuple[tuple[str, tuple[Operation, ...]], ...]
"""Pairs of the name of a layer and an operation at several batch sizes, in order of execution."""


class LayerStep(NamedTuple):
    """All operations of a layer: forward, or backward to the inputs that need a gradient."""

    node: Node
    into: tuple[bool, ...] | None

    @property
    def name(self) -> str:
        """Name of the layer."""
        return self.node.name

    def at(self, batch_size: Any) -> Sequence[Operation]:
        """Return the operations at a batch size [samples]."""
        if self.into is None:
            operations: Sequence[Operation] = operations_of(self.node, None, self.node.runs(batch_size))
        else:
            operations = _gradients_of(self.node, self.into, batch_size=batch_size)
        packed = self.node.usage.weight_format
        return operations if packed is None else [_of_packed(operation, packed) for operation in operations]

    def probed(self, sizes: tuple[int, ...]) -> tuple[tuple[Operation, ...], ...]:
        """Return each operation at several batch sizes [samples]; parts of a network share them."""
        return _probed_layer(self.node, self.into, sizes)


def stays_dense(node: Node) -> bool:
    """Return whether a layer has a table of weights that stays dense when others are packed."""
    has_table = any(len(shape) > 1 for shape in node.parameter_shapes.values())
    return has_table and not (is_parameter(node) or node.usage.weight_format or multiplies_by_weights(node))


def multiplies_by_weights(node: Node) -> bool:
    """Return whether a layer has its own weights as an operand of a product or a convolution."""
    has_matrix = any(len(shape) > 1 for shape in node.parameter_shapes.values())
    return has_matrix and any(_reads_weights(operation) for operation in operations_of(node, None, 1))


def _reads_weights(operation: Operation) -> TypeGuard[Contraction | Convolution]:
    """Return whether an operation is a product or a convolution with weights."""
    return isinstance(operation, Convolution) or (isinstance(operation, Contraction) and operation.has_weights)


def _of_packed(operation: Operation, packed: WeightFormat) -> Operation:
    """Return a product that reads weights stored in a packed format."""
    if operation.role is Role.WEIGHT_GRADIENT or not _reads_weights(operation):
        return operation
    return replace(operation, packed=packed)


class SumStep(NamedTuple):
    """Passes that add up the gradients of one tensor."""

    name: str
    shape: Shape
    uses: int
    is_joined: bool
    is_turned: bool

    def at(self, batch_size: Any) -> list[Operation]:
        """Return the operations at a batch size [samples]."""
        elements = element_count(self.shape, batch_size=batch_size)
        operations: list[Operation] = []
        if self.is_joined:
            operations.append(elementwise("slice", elements, role=Role.INPUT_GRADIENT))
        if self.is_turned:
            operations.append(elementwise("rearrange", elements, role=Role.INPUT_GRADIENT))
        one = elementwise("gradient_sum", elements, reads=2, flop_per_element=1, role=Role.INPUT_GRADIENT)
        return [*operations, *[one] * (self.uses - 1)]

    def probed(self, sizes: tuple[int, ...]) -> tuple[tuple[Operation, ...], ...]:
        """Return each operation at several batch sizes [samples]."""
        return _probed_sum(self._replace(name=""), type(self.shape), sizes)


Steps = list[LayerStep | SumStep]
"""Operations of a phase at any batch size, in order of execution."""


@derived
def _probed_layer(
    node: Node, into: tuple[bool, ...] | None, sizes: tuple[int, ...]
) -> tuple[tuple[Operation, ...], ...]:
    return tuple(zip(*[LayerStep(node, into).at(size) for size in sizes], strict=True))


@lru_cache(maxsize=1024)
def _probed_sum(step: SumStep, kind: type, sizes: tuple[int, ...]) -> tuple[tuple[Operation, ...], ...]:
    del kind  # part of the cache key: a shared shape equals a plain one
    return tuple(zip(*[step.at(size) for size in sizes], strict=True))


def forward_steps(nodes: Sequence[Node]) -> Steps:
    """Return the steps that compute every output, in order."""
    return [LayerStep(node, None) for node in nodes]


def operations_of(node: Node, into: Sequence[bool] | None, batch_size: Any) -> tuple[Operation, ...]:
    """Return a layer's operations, forward, or backward to the inputs that need a gradient; equal layers share them."""
    shapes = node.input_shapes
    if type(batch_size) is not int:
        return _made(node.layer, shapes, None if into is None else tuple(into), batch_size)
    shared = tuple([type(shape) for shape in shapes])
    return _kept(node.layer, shapes, None if into is None else tuple(into), batch_size, shared)


def _made(
    layer: Layer, shapes: tuple[Shape, ...], into: tuple[bool, ...] | None, batch_size: Any
) -> tuple[Operation, ...]:
    if into is None:
        return tuple(layer.forward_operations(shapes, batch_size=batch_size))
    return tuple(layer.gradient_operations(shapes, batch_size=batch_size, wanted=list(into)))


@lru_cache(maxsize=8192)
def _kept(
    layer: Layer,
    shapes: tuple[Shape, ...],
    into: tuple[bool, ...] | None,
    batch_size: int,
    kinds: tuple[type, ...],
) -> tuple[Operation, ...]:
    del kinds  # part of the cache key: a shared shape equals a plain one
    return _made(layer, shapes, into, batch_size)


def wants_gradient(
    input_shapes: Mapping[str, Shape], nodes: Sequence[Node], *, input_gradient: bool
) -> dict[str, bool]:
    """Return for each graph input and layer output whether its gradient is computed."""
    wanted = dict.fromkeys(input_shapes, input_gradient)
    for node in nodes:
        wanted[node.name] = any(node.into(wanted)) or bool(node.trained_shapes)
    reached = _reached_by_gradients(input_shapes, nodes)
    return {name: wants and name in reached for name, wants in wanted.items()}


def _reached_by_gradients(input_shapes: Mapping[str, Shape], nodes: Sequence[Node]) -> set[str]:
    """Return the names of tensors with a path of gradients to an output that is not a metric."""
    read = {name for node in nodes for name in node.input_names}
    reached = {node.name for node in nodes if node.name not in read and not node.layer.is_metric}
    for node in reversed(nodes):
        if node.name in reached:
            flows = node.layer.differentiable(len(node.input_names))
            reached |= {name for name, flow in zip(node.input_names, flows, strict=True) if flow}
    return reached


def _is_of_use(operation: Operation, node: Node) -> bool:
    """Return whether a backward operation is still needed if some of a layer's parameters are frozen.

    If only some are, products remain for any trained parameter of two or more axes (weights) and, in a layer with
    such parameters, passes over memory for any other (biases).
    """
    if operation.role is not Role.WEIGHT_GRADIENT:
        return True
    shapes = node.layer.parameter_shapes(node.input_shapes)
    trained = node.trained_shapes
    has_both = len({len(shape) > 1 for shape in shapes.values()}) == 2
    if not has_both or len(trained) in (0, len(shapes)):
        return bool(trained) or (node.usage.is_trained and not shapes)
    is_product = not isinstance(operation, MemoryPass | Gather)
    return any((len(shape) > 1) == is_product for shape in trained.values())


def _gradients_of(node: Node, into: tuple[bool, ...], *, batch_size: Any) -> list[Operation]:
    """Return the backward operations of one layer, considering frozen and shared parameters."""
    operations = operations_of(node, into, node.runs(batch_size))
    if node.usage.frozen_parameters or not node.usage.is_trained:
        operations = tuple(operation for operation in operations if _is_of_use(operation, node))
    shared_count = node.trained_shared_count
    if shared_count:
        added = elementwise("gradient_sum", shared_count, reads=2, flop_per_element=1, role=Role.WEIGHT_GRADIENT)
        return [*operations, added]
    return list(operations)


def backward_steps(
    input_shapes: Mapping[str, Shape], nodes: Sequence[Node], *, wanted: Mapping[str, bool], parts: Sequence[Segment]
) -> Steps:
    """Return the steps that compute all needed gradients, last layer first.

    A tensor read by f layers gets f - 1 ``gradient_sum`` passes, listed under the layer that made it. The layers that
    read the parts of a split tensor count as one reader: one pass joins their gradients, and a copy restores the order
    of axes if need be; both are listed there too. A segment that was not kept runs its forward operations first.
    """
    into = {node.name: tuple(node.into(wanted)) for node in nodes if wanted[node.name]}
    read = [
        (name, node.layer.gradient_is_joined)
        for node in nodes
        if wanted[node.name]
        for name, flows_back in zip(node.input_names, into[node.name], strict=True)
        if flows_back
    ]
    joined = {name for name, is_joined in read if is_joined}
    turned = {node.name for node in nodes if node.layer.turns_axes}
    uses = Counter([name for name, is_joined in read if not is_joined]) + Counter(joined)
    steps: Steps = []

    def sum_gradients(name: str, shape: Shape) -> None:
        if uses[name] > 1 or name in joined:
            steps.append(SumStep(name, shape, uses[name], name in joined, name in joined and name in turned))

    for segment in reversed(parts):
        steps += forward_steps(segment.again)
        for node in reversed(segment.nodes):
            if wanted[node.name]:
                sum_gradients(node.name, node.output_shape)
                steps.append(LayerStep(node, into[node.name]))
    for name, shape in input_shapes.items():
        sum_gradients(name, shape)
    return steps
