"""Checkpoints: which activations a step keeps where it computes the others a second time.

A cut is a place in the order of execution at which one tensor alone leads from what was computed to what is still to
be computed; tensors without a gradient (masks, positions) and those that all samples share may lead past it. Between
two cuts lies a segment. Checkpoints are kept; before back-propagation reaches a segment that begins at one, the
segment's forward phase runs again, as far as its back-propagation reads what it makes: neither the checkpoint at its
end is made again nor what leads to nothing else, and the last segment is not repeated at all. A program that repeats
whole segments (``torch.utils.checkpoint``) computes more: of 16 x (dense + tanh), in six segments, 14 products, where
here 9 run again, because the last tanh of a segment is its checkpoint. A graph can also say itself which of its layers
run again, region by region.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from perfmodel.errors import UnknownNameError
from perfmodel.graph.node import Node
from perfmodel.graph.storage import is_parameter, kept_tensors, tensor_bytes

RECOMPUTE = ("full", "sqrt")
"""Ways to place checkpoints; None leaves it to the graph, which keeps every activation unless it marks regions."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Layers between two checkpoints.

    Parameters
    ----------
    nodes : tuple of Node
        In order of execution. [-]
    again : tuple of Node
        Those that run a second time before the segment's back-propagation. [-]
    """

    nodes: tuple[Node, ...]
    again: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class _Cut:
    place: int
    """Layers before it [1]."""
    tensor: str
    is_kept: bool
    """Whether back-propagation reads the tensor in any case, so that no layer overwrites it."""


def check_recompute(recompute: Any) -> str | None:
    """Return a way to place checkpoints, or None; UnknownNameError with the nearest for anything else."""
    if recompute is None:
        return None
    if recompute not in RECOMPUTE:
        noun = "way to recompute activations"
        raise UnknownNameError(noun, str(recompute), RECOMPUTE)
    return str(recompute)


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
    """Return the cuts after which branches begin: between them and the next cut lies more than one layer."""
    return [cut for cut, following in pairwise(cuts) if following.place - cut.place > 1 and cut.is_kept]


def _balanced(nodes: Sequence[Node], cuts: Sequence[_Cut], *, wanted: Mapping[str, bool]) -> list[_Cut]:
    """Return about sqrt(cuts) of them, so that what is kept between them is nearly equal."""
    group_count = round(math.sqrt(len(cuts) + 1))
    allowed = [cut for cut in cuts if cut.is_kept]
    kept = kept_tensors(nodes, wanted=wanted)
    before = [0.0]
    for node in nodes:
        own = sum(tensor_bytes(node.output_shape, element_bytes=4)) if node.name in kept else 0
        saved = node.saved_bytes(batch_size=2, element_bytes=4) / 2 if wanted[node.name] else 0
        before.append(before[-1] + float(own + saved))
    chosen: dict[int, _Cut] = {}
    for group in range(1, group_count):
        target = before[-1] * group / group_count
        nearest = min(allowed, key=lambda cut: abs(before[cut.place] - target), default=None)
        if nearest is not None:
            chosen[nearest.place] = nearest
    return [chosen[place] for place in sorted(chosen)]


def _again(segment: Sequence[Node], *, checkpoint: str, wanted: Mapping[str, bool]) -> tuple[Node, ...]:
    """Return the layers of a segment whose forward results its back-propagation needs, directly or not."""
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


def _saves(node: Node) -> bool:
    return bool(node.saved_bytes(batch_size=1, element_bytes=1))


def _marked(nodes: Sequence[Node], *, wanted: Mapping[str, bool]) -> list[Segment]:
    """Return the regions that the graph says run again, and the layers between them."""
    parts: list[list[Node]] = [[]]
    region: str | None = None
    for node in nodes:
        joins = node.usage.recomputed_in is None and _is_there(node)
        if node.usage.recomputed_in != region and not joins:
            region = node.usage.recomputed_in
            parts.append([])
        parts[-1].append(node)
    return [Segment(tuple(part), _again_in_region(part, wanted=wanted)) for part in parts if part]


def _is_there(node: Node) -> bool:
    """Tell whether a layer computes nothing: a parameter, a constant."""
    return not node.input_names and (node.layer.is_view or is_parameter(node))


def _again_in_region(part: Sequence[Node], *, wanted: Mapping[str, bool]) -> tuple[Node, ...]:
    """Return what of a region runs again: what its back-propagation needs, or all of it."""
    inside = [node for node in part if node.usage.recomputed_in is not None and not _is_there(node)]
    if not any(wanted[node.name] for node in inside):
        return ()
    needed = {node.name for node in inside if node.usage.reruns_all or (wanted[node.name] and _saves(node))}
    needed |= kept_tensors(part, wanted=wanted)
    for node in reversed(inside):
        if node.name in needed:
            needed.update(node.input_names)
    return tuple(node for node in inside if node.name in needed)


def segments(nodes: Sequence[Node], *, wanted: Mapping[str, bool], recompute: str | None) -> tuple[Segment, ...]:
    """Return the layers in the segments that checkpoints make of them.

    Parameters
    ----------
    nodes : sequence of Node
        Layers, each after those that it reads. [-]
    wanted : mapping of str to bool
        Whether each tensor's gradient is computed. [-]
    recompute : str or None
        ``full``: a checkpoint before every block, i.e. wherever branches begin, such as a residual block of a
        ResNet or the attention and the feed-forward part of a transformer (a network without branches: as ``sqrt``);
        ``sqrt``: about sqrt(n) segments of nearly equal size, n the cuts [1]_; None: as the graph marks them. [-]

    Returns
    -------
    tuple of Segment
        In order of execution. What is computed last is needed first, so the last segment never runs again. [-]

    Notes
    -----
    Of the other segments only that runs again of which back-propagation reads the result. torch's
    ``torch.utils.checkpoint`` runs each segment whole, also its last layers, whose results are the next checkpoint or
    are read by nobody, and the last segment, where it is wrapped too; its steps are that much longer. In a chain of
    dense layers with tanh, whose results alone are read, the product and tanh that end each segment are spared.

    References
    ----------
    .. [1] Chen, Xu, Zhang, Guestrin, Training deep nets with sublinear memory cost, arXiv:1604.06174.
    """
    if recompute is None:
        return tuple(_marked(nodes, wanted=wanted))
    cuts = _cuts(nodes, wanted=wanted)
    chosen = (_block_starts(cuts) if recompute == "full" else []) or _balanced(nodes, cuts, wanted=wanted)
    places = [0, *(cut.place for cut in chosen), len(nodes)]
    parts = [tuple(nodes[start:end]) for start, end in pairwise(places)]
    ends = [cut.tensor for cut in chosen]
    first = [
        Segment(part, _again(part, checkpoint=tensor, wanted=wanted)) for part, tensor in zip(parts, ends, strict=False)
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
