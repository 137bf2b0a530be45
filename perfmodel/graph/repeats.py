"""Graphs with equal blocks in a row, costed by a short graph with three of the blocks.

Layers before the blocks may affect the first of them, layers behind may affect the last. The blocks between are alike,
because only one tensor leads from each to the next. Results for three blocks therefore give those for any number: the
second block stands for all between the first and the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.derived import derived, derived_property, kept
from perfmodel.graph.arena import Span
from perfmodel.graph.execution import BLOCKS, Recompute, block_of, has_blocks, way_of
from perfmodel.graph.liveness import Lifetimes, Liveness, MemoryRules
from perfmodel.layers import SharedShape
from perfmodel.records import Phase

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.graph.layer_graph import LayerGraph
    from perfmodel.graph.node import Node

HEAD, FIRST, INNER, LAST, TAIL = range(5)
"""Parts of a short graph: layers before the blocks, the three blocks, and layers behind."""
KEPT_BLOCKS: Final = 3
"""Blocks of a short graph. [1]"""
SHORTEST_BLOCK: Final = 3
"""Layers of the shortest block that is looked for. [1]"""
LEAST_LEFT_OUT: Final = 1 / 6
"""Share of a graph's layers that must be left out for the short graph to be worth making. [1]"""
MOST_KEPT: Final = 16
"""Most ways to run a short graph whose storages are cached. [1]"""
MOST_PARTS: Final = 1024
"""Parts cached per graph; the oldest is dropped first. [1]"""
MOST_PERIODS: Final = 16
"""Lengths of a block that are tried. [1]"""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Equal blocks in a row: place of the first layer, layers of a block, and number of blocks. [1]"""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """Place behind the last block. [1]"""
        return self.start + self.period * self.count


@dataclass(frozen=True, eq=False)
class Shortened:
    """A short graph and the blocks of the whole one."""

    graph: LayerGraph
    blocks: Blocks

    @property
    def left_out(self) -> int:
        """Blocks that the short graph lacks. [1]"""
        return self.blocks.count - KEPT_BLOCKS

    @derived_property
    def place_of(self) -> dict[str, int]:
        """Place of each layer of the short graph. [1]"""
        return {node.name: place for place, node in enumerate(self.graph.layers)}

    @derived_property
    def starts_with_a_block(self) -> bool:
        """Whether the first of the equal blocks begins where layer names begin a numbered block."""
        names, start = [node.name for node in self.graph.layers], self.blocks.start
        first, second = names[start], names[start + self.blocks.period]
        before = block_of(names[start - 1]) if start else None
        return block_of(first) is not None and block_of(first) not in (before, block_of(second))

    def part_at(self, place: int) -> int:
        """Return the part of the short graph in which a place [1] lies."""
        inside = place - self.blocks.start
        return HEAD if inside < 0 else min(FIRST + inside // self.blocks.period, TAIL)

    def part_of(self, name: str) -> int:
        """Return the part of the short graph in which a layer lies; an input lies in its head."""
        return self._parts.get(name, HEAD)

    @derived_property
    def _parts(self) -> dict[str, int]:
        return {name: self.part_at(place) for name, place in self.place_of.items()}

    def places_in_whole(self, place: int) -> list[int]:
        """Return the places in the whole graph of layers like the one at a place [1] of the short one."""
        return [place + moved * self.blocks.period for moved in self.moves(self.part_at(place))]

    def moves(self, part: int) -> range:
        """Return the distances, in blocks, by which a part is repeated in the graph; the inner block has several."""
        return range(self.left_out if part > INNER else 0, self.left_out + 1 if part >= INNER else 1)

    def spread(self, layers: Sequence[str]) -> tuple[list[int], list[int]] | None:
        """Extend a list of the short graph to the whole one: for each entry its place in the list and move in blocks.

        ``layers`` names the layer of each entry, in order of execution. None if those of the inner block are not
        between those of the first and the last.
        """
        part_of = self._parts.get
        parts = [part_of(name, HEAD) for name in layers]
        places: list[int] = []
        moves: list[int] = []
        for part, run in groupby(range(len(parts)), key=parts.__getitem__):
            of_run, moved = list(run), self.moves(part)
            if part == INNER:
                around = parts[of_run[0] - 1], parts[(of_run[-1] + 1) % len(parts)]
                if around not in ((FIRST, LAST), (LAST, FIRST)):
                    return None
                moved = moved if around[0] == FIRST else moved[::-1]
            for blocks in moved:
                places += of_run
                moves += [blocks] * len(of_run)
        return places, moves

    def names_in(self, whole: LayerGraph) -> dict[tuple[str, int], str]:
        """Map each layer of the short graph, with a move in blocks, to its name in the whole graph."""

        def make() -> dict[tuple[str, int], str]:
            names, period = [node.name for node in whole.layers], self.blocks.period
            return {
                (name, moved): names[place + moved * period]
                for name, place in self.place_of.items()
                for moved in self.moves(self.part_of(name))
            }

        names: dict[tuple[str, int], str] = kept(whole.kept("names"), self, make, most=1)
        return names


def shortened(graph: LayerGraph, kinds: Sequence[Any]) -> Shortened | None:
    """Leave out all but three of a graph's equal blocks; None if there are too few."""
    blocks = next((blocks for blocks in _rows_of_blocks(kinds) if _are_separate(graph, blocks)), None)
    if blocks is None:
        return None
    nodes = graph.layers
    kept_end = blocks.start + KEPT_BLOCKS * blocks.period
    last, third = nodes[blocks.end - blocks.period : blocks.end], nodes[kept_end - blocks.period : kept_end]
    names = {whole.name: kept.name for whole, kept in zip(last, third, strict=True)}
    short = type(graph)(f"{graph.name}, shortened", inputs=graph.input_shapes, fixed_batch_size=graph.fixed_batch_size)
    for node in nodes[:kept_end]:
        short.take(node)
    for node in nodes[blocks.end :]:
        inputs = tuple([names.get(name, name) for name in node.input_names])
        short.take(node if inputs == node.input_names else replace(node, input_names=inputs))
    return Shortened(short, blocks)


def _rows_of_blocks(kinds: Sequence[Any]) -> Iterator[Blocks]:
    """Find equal blocks in a row around the middle layer, shortest first, of which many can be left out."""
    middle = len(kinds) // 2
    same = [place for place in range(middle - SHORTEST_BLOCK, -1, -1) if kinds[place] == kinds[middle]]
    for period in [middle - place for place in same[:MOST_PERIODS]]:
        first = end = middle
        while first > 0 and kinds[first - 1] == kinds[first - 1 + period]:
            first -= 1
        while end < len(kinds) and kinds[end] == kinds[end - period]:
            end += 1
        count = (end - first) // period
        if first <= middle - period and (count - KEPT_BLOCKS) * period >= LEAST_LEFT_OUT * len(kinds):
            yield Blocks(first, period, count)


def _are_separate(graph: LayerGraph, blocks: Blocks) -> bool:
    """Whether a single tensor leads from each block to the next, and blocks share nothing else with the rest."""
    nodes, start, period = graph.layers, blocks.start, blocks.period
    places = {node.name: place for place, node in enumerate(nodes)}
    inside = range(start, blocks.end)
    second = nodes[start + period : start + 2 * period]
    before = {name for node in second for name in node.input_names if places.get(name, -1) < start + period}
    entering = {
        name for node in nodes[start : start + period] for name in node.input_names if places.get(name, -1) < start
    }
    if len(before) != 1 or len(entering) != 1:
        return False
    (first,), (following,) = entering, before
    shapes = graph.shape(first), graph.shape(following)
    is_like = shapes[0] == shapes[1] and not any(isinstance(shape, SharedShape) for shape in shapes)
    is_free = all(
        node.input_names and not (node.usage.shared_parameters or node.usage.recomputed_in)
        for node in nodes[start : blocks.end]
    )
    read = [name for node in nodes[blocks.end :] for name in node.input_names]
    read += [owner for node in nodes for owner, _ in node.usage.shared_parameters.values()]
    is_left = all(places.get(name, -1) not in inside[:-period] for name in read)
    owned = any(places.get(owner, -1) in inside for node in nodes for owner, _ in node.usage.shared_parameters.values())
    return places.get(following, -1) in inside and is_like and is_free and is_left and not owned


def structure_of(graph: LayerGraph) -> tuple[object, ...]:
    """Hashable structure, equal for graphs that differ only in names and have the same blocks.

    >>> from perfmodel.graph import LayerGraph
    >>> from perfmodel.layers import Dense
    >>> first, second = LayerGraph("a", input_shape=(3,)), LayerGraph("b", inputs={"x": (3,)})
    >>> _ = first.add("one", Dense(units=2), inputs="input"), second.add("two", Dense(units=2), inputs="x")
    >>> structure_of(first) == structure_of(second)
    True
    """
    places = {name: place for place, name in enumerate([*graph.input_shapes, *(node.name for node in graph.layers)])}
    regions: dict[str | None, int] = {None: -1}
    first_of: dict[str, int] = {}

    def of_node(node: Node) -> tuple[object, ...]:
        usage, here, (alone, block) = node.usage, places[node.name], _alone(node)
        return (
            alone,
            tuple([here - places[name] for name in node.input_names]),
            tuple([(key, here - places[of[0]], of[1]) for key, of in usage.shared_parameters.items()]),
            regions.setdefault(usage.recomputed_in, len(regions)),
            None if block is None else here - first_of.setdefault(block, here),
        )

    inputs = tuple((type(shape).__name__, tuple(shape)) for shape in graph.input_shapes.values())
    return (graph.fixed_batch_size, inputs, tuple(of_node(node) for node in graph.layers))


class _Hashed(tuple[object, ...]):
    """A tuple that is hashed once, though it is part of many others."""

    @derived_property
    def _hash(self) -> int:
        return tuple.__hash__(self)

    def __hash__(self) -> int:
        return self._hash


@derived
def _alone(node: Node) -> tuple[_Hashed, str | None]:
    """Structure of a layer wherever it is, and its block; parts of a network share their layers."""
    usage = node.usage
    trained = (usage.is_trained, usage.frozen_parameters, usage.in_place, usage.reruns_all, usage.keeps_result)
    return _first_equal(_Hashed((node.layer, *trained))), block_of(node.name)


@lru_cache(maxsize=4096)
def _first_equal(alone: _Hashed) -> _Hashed:
    """Return the first of equal structures, so that others compare equal without a look at their content."""
    return alone


def first_alike(part: LayerGraph, *, of: LayerGraph) -> LayerGraph:
    """First part of a graph with the same structure as this one, so that results for it can be reused."""
    if part is of:
        return of
    first: LayerGraph = kept(of.kept("parts"), _kept_structure(part), lambda: part, most=MOST_PARTS)
    return first


def _kept_structure(part: LayerGraph) -> tuple[Any, ...]:
    structure: tuple[Any, ...] = kept(part.kept("structure"), (), lambda: structure_of(part), most=1)
    return structure


def shorten(part: LayerGraph, *, of: LayerGraph) -> None:
    """Have a part of a graph lowered as a short graph if it repeats a block; parts of the same structure share it."""

    def make() -> Shortened | None:
        short = shortened(part, _kept_structure(part)[-1])
        return None if short is None else replace(short, graph=first_alike(short.graph, of=of))

    kept(part.kept("shortened"), (), make, most=1)


def shortened_for(graph: LayerGraph, *, input_gradient: bool, recompute: Recompute) -> Shortened | None:
    """Return the short graph of a graph, if there is one and ``recompute`` works block by block."""
    short: Shortened | None = graph.kept("shortened").get(())
    way = way_of(recompute)
    if short is None or way is None:
        return short
    graph = short.graph
    if not short.starts_with_a_block or way not in (BLOCKS, "full"):
        return None
    if way == BLOCKS:
        return short

    def are_apart() -> bool:
        return has_blocks(graph.layers, wanted=graph.wants_gradient(input_gradient=input_gradient))

    return short if kept(graph.kept("blocks"), input_gradient, are_apart, most=2) else None


def lifetimes_of_blocks(
    graph: LayerGraph, *, phase: Phase, rules: MemoryRules, input_gradient: bool
) -> LongLifetimes | None:
    """Return when the storages of a graph are in use, computed from its short one; None if that is impossible."""
    trains = Phase.BACKWARD in phase.parts
    recompute = rules.recompute if trains else None
    short = shortened_for(graph, input_gradient=input_gradient, recompute=recompute)
    if short is None or recompute != rules.recompute or (rules.types is not None and rules.types.of_short is None):
        return None
    rules = replace(rules, types=None if rules.types is None else rules.types.of_short)

    def live() -> _Columns | None:
        return _Columns.of(short.graph.lifetimes(phase, rules=rules, input_gradient=input_gradient), short)

    inside: _Columns | None = kept(short.graph.kept("lifetimes"), (phase, rules, input_gradient), live, most=MOST_KEPT)
    return None if inside is None else inside.lengthened(short, graph)


@dataclass(frozen=True, eq=False)
class _Columns:
    """Storages of a short graph as columns: sizes, moments of first and last use, and the parts of these moments."""

    moments: Sequence[tuple[str, Phase]]
    sizes: NDArray[np.float64]
    spans: NDArray[np.intp]
    parts: NDArray[np.intp]
    is_forward: NDArray[np.bool_]
    """For each moment, whether it is one of the forward phase."""
    is_held: NDArray[np.bool_]
    is_gradient: NDArray[np.bool_]
    inner: NDArray[np.intp]
    """For each moment of a block, the moment of the inner block with the same work."""

    @classmethod
    def of(cls, lifetimes: Lifetimes, short: Shortened) -> _Columns | None:
        """Arrange storages as columns; None if sizes are symbols or inner blocks would differ."""
        storages, moments = lifetimes.storages, lifetimes.moments
        if not all(type(size) is int for storage in storages for size in storage.size):
            return None
        part_of_moment = np.array([short.part_of(name) for name, _ in moments])
        repeats: Counter[Hashable] = Counter()
        same: dict[Hashable, int] = {}
        works = []
        for moment, (name, phase) in reversed([*enumerate(moments)]):  # from the end, as not all blocks run twice
            part = part_of_moment[moment]
            place = (short.place_of.get(name, 0) - short.blocks.start) % short.blocks.period
            work = (place, phase, moment in lifetimes.sums)
            repeats[part, work] += 1
            works.append((*work, repeats[part, work]))
            if part == INNER:
                same[works[-1]] = moment
        works.reverse()
        spans = np.array([(storage.first, storage.last) for storage in storages]).T
        first, last = parts = part_of_moment[spans]
        is_held = np.array([storage.is_held for storage in storages])
        inner = np.array([same.get(work, -1) for work in works])
        is_inner = first == INNER
        is_near = (abs(last - first) <= 1) & (inner[spans[1]] >= 0)
        is_told = np.where(is_inner, is_near, (last != INNER) | (first == FIRST) | (first == LAST))
        if not (is_told | is_held).all():
            return None
        return cls(
            moments=moments,
            sizes=np.array([storage.size for storage in storages], dtype=float).T,
            spans=spans,
            parts=parts,
            is_forward=np.array([phase is Phase.FORWARD for _, phase in moments]),
            is_held=is_held,
            is_gradient=np.array([storage.is_weight_gradient for storage in storages]),
            inner=inner,
        )

    def lengthened(self, short: Shortened, whole: LayerGraph) -> LongLifetimes | None:
        """Return the storages of the whole graph."""
        spread = short.spread([name for name, _ in self.moments])
        if spread is None:
            return None
        names, copies, (places, moved) = short.names_in(whole), short.left_out + 1, spread
        moments = [
            (names.get((name, blocks), name), phase)
            for (name, phase), blocks in zip(map(self.moments.__getitem__, places), moved, strict=True)
        ]
        at = np.zeros((len(self.moments), copies), dtype=np.intp)  # a moment of the inner block has several places
        at[places, moved] = np.arange(len(places))
        ends_at = at.max(axis=1)
        (first, last), (first_part, last_part) = self.spans, self.parts
        is_inner = first_part == INNER
        alone, inner = np.flatnonzero(~is_inner), np.flatnonzero(is_inner)
        copy = np.where(first_part == LAST, copies - 1, 0)[alone]
        ends = np.where(last_part[alone] == INNER, at[last[alone], copy], ends_at[last[alone]])
        steps = np.arange(copies) + (last_part[inner] - INNER)[:, None]
        among = at[self.inner[last[inner]][:, None], steps.clip(0, copies - 1)]
        of_copies = np.where((steps >= 0) & (steps < copies), among, ends_at[last[inner]][:, None])
        every = np.concatenate([alone, np.repeat(inner, copies)])
        ends = np.concatenate([ends, of_copies.ravel()])
        return LongLifetimes(
            moments=tuple(moments),
            forward=int(np.count_nonzero(self.is_forward[places])),
            sizes=self.sizes[:, every],
            begins=np.concatenate([ends_at[first[alone]], at[first[inner]].ravel()]),
            ends=np.where(self.is_held[every], len(moments) - 1, ends),
            last_uses=ends,
            is_gradient=self.is_gradient[every],
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class LongLifetimes:
    """Storages of a whole graph as columns, in the order in which a moment makes them."""

    moments: tuple[tuple[str, Phase], ...]
    forward: int
    """Moments of the forward phase. [1]"""
    sizes: NDArray[np.float64]
    begins: NDArray[np.intp]
    ends: NDArray[np.intp]
    last_uses: NDArray[np.intp]
    """Moment of the last use, also of those that are held to the end."""
    is_gradient: NDArray[np.bool_]

    def result(self) -> Liveness:
        """Add up the memory at every moment."""
        count = len(self.moments)
        constant, slope = self.sizes

        def live(sizes: NDArray[np.float64]) -> NDArray[np.float64]:
            changes = np.bincount(self.begins, sizes, count + 1) - np.bincount(self.ends + 1, sizes, count + 1)
            return np.cumsum(changes)[:-1]

        waits = (self.begins < self.forward) & (self.last_uses >= self.forward)
        return Liveness(
            moments=self.moments,
            activations=np.array([live(np.where(self.is_gradient, 0.0, sizes)) for sizes in (constant, slope)]),
            gradients=live(np.where(self.is_gradient, constant, 0.0)),
            kept=(int(constant[waits].sum()), int(slope[waits].sum())),
        )

    @property
    def spans(self) -> list[Span]:
        """Bytes per sample of each tensor that is no gradient of a parameter, and when they are in memory."""
        columns = (self.sizes[1].astype(np.int64), self.begins, self.ends)
        return list(map(Span, *(column[~self.is_gradient].tolist() for column in columns)))
