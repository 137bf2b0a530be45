"""Parts of a graph as graphs, and a network cut into stages so that the longest is as short as possible."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.derived import kept
from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.graph.execution import block_of, blocks_of, wants_gradient
from perfmodel.graph.node import Node
from perfmodel.layers import SharedShape
from perfmodel.parallelism.base import Exchange, LayerSeconds, StageGraph
from perfmodel.presentation.quantities import counted
from perfmodel.records import Phase
from perfmodel.symbolic import Quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray


def part_of(graph: LayerGraph, nodes: Sequence[Node], *, name: str) -> tuple[LayerGraph, dict[str, int]]:
    """Make a graph from some layers of another; tensors from the other layers become its inputs."""
    names = {node.name for node in nodes}
    read = dict.fromkeys(name_read for node in nodes for name_read in node.input_names if name_read not in names)
    inputs = {name_read: graph.shape(name_read) for name_read in read}
    part = LayerGraph(name, inputs=inputs, fixed_batch_size=graph.fixed_batch_size)
    copied: dict[str, int] = {}
    owners: dict[tuple[str, str], tuple[str, str]] = {}
    for node in nodes:
        if not node.usage.shared_parameters:
            part.take(node)
            continue
        options, shapes = node.usage.options, node.layer.parameter_shapes(node.input_shapes)
        shared = {}
        for parameter, of in node.usage.shared_parameters.items():
            owner = owners.get(of, of)
            if owner[0] in names:
                shared[parameter] = owner
            else:
                owners[of] = (node.name, parameter)
                copied[node.name] = copied.get(node.name, 0) + math.prod(shapes[parameter])
        options = {key: value for key, value in options.items() if key != "shared_parameters"}
        part.add(node.name, node.layer, inputs=node.input_names, shared_parameters=shared or None, **options)
    return part, copied


_ROUNDING = 1e-12
_NUMBER: Final = re.compile(r"\d(?=[_.])")
"""Last digit of a name's part that may be a block's number. [-]"""


@dataclass(frozen=True, slots=True)
class Cut:
    """A place where a graph can be cut."""

    place: int
    tensor: str
    elements: int
    wanted: bool


def cuts_of(graph: LayerGraph) -> tuple[Cut, ...]:
    """Places in a graph that only one tensor crosses, besides inputs and what every stage can make of them.

    >>> from perfmodel.layers import CrossEntropy, Dense, ReLU
    >>> g = LayerGraph("classifier", input_shape=(784,))
    >>> x = g.add("hidden", Dense(units=100), inputs=g.input)
    >>> x = g.add("relu", ReLU(), inputs=x)
    >>> x = g.add("scores", Dense(units=10), inputs=x)
    >>> x = g.add("loss", CrossEntropy(), inputs=x)
    >>> [(cut.tensor, cut.elements) for cut in cuts_of(g)]
    [('hidden', 100), ('relu', 100), ('scores', 10)]
    """
    nodes = graph.layers
    wanted = wants_gradient(graph.input_shapes, nodes, input_gradient=False)
    last_reader: dict[str, int] = {}
    for place, node in enumerate(nodes):
        last_reader.update(dict.fromkeys(node.input_names, place))
    crossing = {name for name in graph.input_shapes if name in last_reader}
    made_anywhere = {*graph.input_shapes, *_made_of_inputs(graph)}
    cuts = []
    for place, node in enumerate(nodes[:-1]):
        if node.layer.is_loss:
            break
        if node.name in last_reader:
            crossing.add(node.name)
        crossing = {name for name in crossing if last_reader[name] > place}
        following = nodes[place + 1].usage.recomputed_in
        is_inside = following is not None and following == node.usage.recomputed_in
        sent = crossing if len(crossing) == 1 else crossing - made_anywhere
        if len(sent) == 1 and not is_inside:
            (tensor,) = sent
            shape = graph.shape(tensor)
            if tensor not in graph.input_shapes and not isinstance(shape, SharedShape):
                cuts.append(Cut(place + 1, tensor, int(np.prod(shape, dtype=object)), wanted[tensor]))
    return tuple(cuts)


def _made_of_inputs(graph: LayerGraph) -> set[str]:
    """Tensors computed without any parameter, like the mask of an attention or shifted labels."""
    free: set[str] = set()
    for node in graph.layers:
        if not node.parameter_shapes and all(name in free or name in graph.input_shapes for name in node.input_names):
            free.add(node.name)
    return free


def layers_between(graph: LayerGraph, start: int, end: int) -> tuple[Node, ...]:
    """Layers from place ``start`` to before ``end`` [1], preceded by earlier ones that the stage has to run again."""
    nodes, before = graph.layers[start:end], graph.layers[:start]
    read = {name for node in nodes for name in node.input_names}
    free = _made_of_inputs(graph) if len(read.intersection(node.name for node in before)) > 1 else set()
    repeated: list[Node] = []
    for node in reversed(before):
        if node.name in read and node.name in free:
            repeated.append(node)
            read.update(node.input_names)
    return (*reversed(repeated), *nodes)


def layer_weights(graph: LayerGraph) -> dict[str, float]:
    """FLOP of each layer's forward and backward phase, used instead of unknown times."""
    weights = {node.name: 0.0 for node in graph.layers}
    batch_size = graph.fixed_batch_size or 1
    for name, operation in graph.operations(batch_size=batch_size, phase=Phase.FORWARD_BACKWARD):
        if name in weights:
            weights[name] += float(operation.work(element_bytes=4).flop_count) / batch_size
    return weights


class Balance:
    r"""Cuts of one row of layers that make the longest stage shortest and, among those, the most even cuts.

    .. math:: \min_{c} \max_i \left(\sum_{l = c_{i-1}}^{c_i - 1} w_l + t_{c_{i-1}} + t_{c_i}\right)

    Notes
    -----
    Exact, by dynamic programming over boundaries, O(k n^2). Each side of a cut takes the time of its transfer. Among
    cuts with the same longest stage, those with the least sum of squares win, and among equal ones those whose late
    stages are longest. Sums that differ only by rounding count as equal.

    Work and transfers may have leading axes, as for several micro-batch sizes, each of which has its own cuts.

    Examples
    --------
    >>> Balance(np.array([1, 1, 1, 1, 4]), [1, 2, 3, 4], np.zeros(4)).cuts(stage_count=2)
    array([3])
    """

    def __init__(self, work: NDArray[Any], boundaries: Sequence[int], send_s: NDArray[Any]) -> None:
        edge = np.zeros((*work.shape[:-1], 1))
        places = np.array([0, *boundaries, work.shape[-1]])
        reached = np.concatenate([edge, np.cumsum(work, axis=-1, dtype=float)], axis=-1)[..., places]
        sends = np.concatenate([edge, np.broadcast_to(send_s, (*work.shape[:-1], len(boundaries))), edge], axis=-1)
        self.boundary_count = len(boundaries)
        self.cost = reached[..., None, :] - reached[..., None] + sends[..., None, :] + sends[..., None]
        self.cost[..., np.tri(len(places), dtype=bool)] = np.inf
        self._longest = [self.cost[..., 0, :]]

    def cuts(self, stage_count: int) -> NDArray[np.intp] | None:
        """Return the indices of the chosen boundaries, on the last axis; None if there are too few."""
        if stage_count - 1 > self.boundary_count:
            return None
        _extend(self._longest, self.cost, stage_count, combine=np.maximum)
        allowed = self._longest[stage_count - 1][..., -1] * (1 + _ROUNDING)
        squares = np.where(self.cost <= allowed[..., None, None], np.square(self.cost), np.inf)
        sums = [squares[..., 0, :]]
        _extend(sums, squares, stage_count - 1, combine=np.add)
        chosen = np.empty((*allowed.shape, stage_count - 1), dtype=np.intp)
        place = np.full(allowed.shape, self.boundary_count + 1)
        for cut in reversed(range(stage_count - 1)):
            totals = sums[cut] + np.take_along_axis(squares, place[..., None, None], axis=-1)[..., 0]
            place = (totals <= totals.min(axis=-1, keepdims=True) * (1 + _ROUNDING)).argmax(axis=-1)
            chosen[..., cut] = place - 1
        return chosen


def _extend(
    least: list[NDArray[np.float64]], cost: NDArray[np.float64], stage_count: int, *, combine: np.ufunc
) -> None:
    """Add the least combined costs of paths from the first place to every other, up to so many steps."""
    while len(least) < stage_count:
        least.append(np.minimum.reduce(combine(least[-1][..., None], cost), axis=-2))


def known_cuts(graph: LayerGraph) -> tuple[Cut, ...]:
    """Places where a graph can be cut, found once."""
    cuts: tuple[Cut, ...] = kept(graph.kept("cuts"), (), lambda: cuts_of(graph), most=2)
    return cuts


def cuts_between_blocks(graph: LayerGraph) -> tuple[tuple[Cut, ...], int]:
    """Places where a graph can be cut outside blocks, and the number of blocks that can be cut off whole, found once.

    Outside blocks, a layer without parameters stays with the layer before it.

    >>> from perfmodel import zoo
    >>> gpt = zoo.gpt(layers=2, width=64, heads=2, sequence_length=8, vocabulary=32)
    >>> cuts, block_count = cuts_between_blocks(gpt)
    >>> [cut.tensor for cut in cuts], block_count
    (['tokens_embedding', 'positions_embedding', 'block1_mlp_add', 'block2_mlp_add'], 2)
    """

    def found() -> tuple[tuple[Cut, ...], int]:
        nodes, blocks = graph.layers, _innermost_blocks(graph)
        cuts = {cut.place: cut for cut in known_cuts(graph)}
        ends, between, count, place = {0, *cuts, len(nodes)}, set(), 0, 0
        for block, run in groupby(blocks):
            end = place + len([*run])
            if block is not None:
                between |= {place, end}
                count += {place, end} <= ends
            else:
                between |= {at for at in range(place, end) if nodes[at].parameter_shapes}
            place = end
        return tuple(cut for at, cut in cuts.items() if at in between), count

    answer: tuple[tuple[Cut, ...], int] = kept(graph.kept("cuts"), ("between_blocks",), found, most=2)
    return answer


def _innermost_blocks(graph: LayerGraph) -> list[str | None]:
    """Return the innermost numbered block of each layer: consecutive layers whose names start alike, up to a number."""
    starts = [[node.name[: match.end()] for match in _NUMBER.finditer(node.name)] for node in graph.layers]
    counts, runs, before = Counter[str](), Counter[str](), set[str]()
    for of_layer in starts:
        counts.update(of_layer)
        runs.update(start for start in of_layer if start not in before)
        before = {*of_layer}
    blocks = {start for start, count in counts.items() if count > 1 and runs[start] == 1}
    return [next((start for start in reversed(of_layer) if start in blocks), None) for of_layer in starts]


def chosen_cuts(
    graph: LayerGraph,
    *,
    stage_count: int,
    element_bytes: int,
    layer_s: LayerSeconds | None = None,
    send_s: Callable[[int], Quantity] | None = None,
    interleave: int = 1,
    known: dict[Hashable, Balance] | None = None,
) -> NDArray[np.intp]:
    """Choose the cuts that make the longest stage of a network shortest; a device has ``interleave`` of the stages.

    No cut lies inside a block, as in programs, if at least as many blocks as stages can be cut off whole. Return the
    places of the cuts, in rows where ``layer_s`` has several times of a layer.
    """
    cuts, block_count = cuts_between_blocks(graph)
    if block_count < stage_count:
        cuts = known_cuts(graph)
    known, key = {} if known is None else known, (id(graph), element_bytes, len(cuts))
    if key not in known:
        weights = layer_weights(graph) if layer_s is None else layer_s
        weighed = {place: weights[node.name] for place, node in enumerate(graph.layers) if node.name in weights}
        seconds = np.array([*weighed.values()], dtype=float).T
        work = np.zeros((*seconds.shape[:-1], len(graph.layers)))
        work[..., [*weighed]] = seconds
        sends = [0.0 if send_s is None else send_s(cut.elements * element_bytes) for cut in cuts]
        known[key] = Balance(work, [cut.place for cut in cuts], np.array(sends, dtype=float).T)
    chosen = known[key].cuts(stage_count)
    if chosen is None:
        stages, most = stage_count // interleave, len(cuts) + 1
        why = f"{graph.name} has {counted(len(cuts), 'place')} that only one tensor crosses"
        if stages > most or interleave == 1:
            raise ArgumentError("stages", stages, f"at most {most}: {why}")
        raise ArgumentError("interleave", interleave, f"at most {most // stages} with stages={stages}: {why}")
    return np.array([cut.place for cut in cuts], dtype=np.intp)[chosen]


def even_cuts(graph: LayerGraph, *, stage_count: int) -> tuple[Cut, ...]:
    """Choose the cuts that give each stage the same number of blocks; other layers go to the first and last stage.

    >>> from perfmodel import zoo
    >>> cuts = even_cuts(zoo.gpt(layers=6, width=64, heads=2, sequence_length=8, vocabulary=32), stage_count=3)
    >>> [cut.tensor for cut in cuts]
    ['block2_mlp_add', 'block4_mlp_add']
    """
    blocks = blocks_of(graph.layers)
    if not blocks or len(blocks) % stage_count:
        allowed = f"'balanced' unless stages x interleave = {stage_count} divides the {len(blocks)} numbered blocks"
        raise ArgumentError("stage_cut", "even_blocks", allowed)
    first: dict[str | None, int] = {}
    for place, node in enumerate(graph.layers):
        first.setdefault(block_of(node.name), place)
    at = {cut.place: cut for cut in known_cuts(graph)}
    places = [first[block] for block in blocks[:: len(blocks) // stage_count][1:]]
    if not all(place in at for place in places):
        allowed = f"'balanced' for {graph.name}, whose blocks are joined by more than one tensor"
        raise ArgumentError("stage_cut", "even_blocks", allowed)
    return tuple(at[place] for place in places)


def module_cuts(graph: LayerGraph, *, stage_count: int) -> tuple[Cut, ...]:
    """Choose the cuts that give each stage as many modules, the first stages one more where the number is no multiple.

    Modules are the blocks and each layer outside them with parameters of its own: a table of words, the last norm, the
    head. Other layers belong to the module before them. So PyTorch code written as a list of modules is cut uniformly.

    >>> from perfmodel import zoo
    >>> sizes = {"layers": 6, "width": 64, "heads": 2, "key_heads": 2, "sequence_length": 8, "vocabulary": 32}
    >>> cuts = module_cuts(zoo.llama(**sizes), stage_count=2)
    >>> [cut.tensor for cut in cuts]
    ['block4_mlp_add']
    """
    blocks, modules, last = set(blocks_of(graph.layers)), [], ""
    for node in graph.layers:
        block = block_of(node.name)
        last = str(block if block in blocks else node.name if node.parameter_shapes else last)
        modules.append(last)
    return _dealt_out(graph, modules, stage_count=stage_count, way="even_modules", parts="modules")


def counted_end_cuts(graph: LayerGraph, *, stage_count: int) -> tuple[Cut, ...]:
    """Choose the cuts that give each stage the same number of blocks; layers before and behind them count as one each.

    The first stages have one more where the number is no multiple. So torchtitan cuts (``input_weight`` and
    ``output_weight`` of 1 [1]_), and Megatron-LM with ``--account-for-embedding-in-pipeline-split`` and
    ``--account-for-loss-in-pipeline-split``.

    Examples
    --------
    >>> from perfmodel import zoo
    >>> sizes = {"layers": 6, "width": 64, "heads": 2, "key_heads": 2, "sequence_length": 8, "vocabulary": 32}
    >>> cuts = counted_end_cuts(zoo.llama(**sizes), stage_count=4)
    >>> [cut.tensor for cut in cuts]
    ['block1_mlp_add', 'block3_mlp_add', 'block5_mlp_add']

    References
    ----------
    .. [1] torchtitan, torchtitan/distributed/pipeline_parallel.py, generate_llm_fqn_per_model_part.
    """
    blocks, ends = set(blocks_of(graph.layers)), ["", "end"]
    parts = [block if (block := block_of(node.name)) in blocks else None for node in graph.layers]
    first = next((place for place, part in enumerate(parts) if part is not None), 0)
    modules = [str(ends[place > first] if part is None else part) for place, part in enumerate(parts)]
    return _dealt_out(graph, modules, stage_count=stage_count, way="counted_ends", parts="blocks and ends")


def _dealt_out(graph: LayerGraph, modules: Sequence[str], *, stage_count: int, way: str, parts: str) -> tuple[Cut, ...]:
    """Cut between modules so that stages have equal numbers of them, the first stages perhaps one more."""
    starts = [place for place, module in enumerate(modules) if place == 0 or module != modules[place - 1]]
    at = {cut.place: cut for cut in known_cuts(graph)}
    least, more = divmod(len(starts), stage_count)
    firsts = [stage * least + min(stage, more) for stage in range(1, stage_count)]
    if not least or not all(starts[first] in at for first in firsts):
        allowed = f"'balanced' for {graph.name}, whose {len(starts)} {parts} do not make {stage_count} stages"
        raise ArgumentError("stage_cut", way, allowed)
    return tuple(at[starts[first]] for first in firsts)


def stage_between(graph: LayerGraph, first: Cut | None, last: Cut | None, *, element_bytes: int) -> StageGraph:
    """Layers of a network between two cuts, as a graph whose input is the tensor that crosses."""
    start = 0 if first is None else first.place
    end = len(graph.layers) if last is None else last.place
    nodes = layers_between(graph, start, end)
    part, copied = part_of(graph, nodes, name=f"{graph.name}, layers {start + 1} to {end}")
    exchanges = []
    if last is not None:
        exchanges.append(Exchange("send", "pipeline", Phase.FORWARD, last.tensor, element_bytes * last.elements))
    if first is not None and first.wanted:
        of_first, size = graph.layers[start].name, element_bytes * first.elements
        exchanges.append(Exchange("send", "pipeline", Phase.BACKWARD, of_first, size))
    return StageGraph(
        graph=part,
        input_gradient=first is not None and first.wanted,
        exchanges=tuple(exchanges),
        copied=copied,
    )
