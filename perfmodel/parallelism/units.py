"""Units of a network whose parameters workers gather and free together: its blocks, and all layers outside blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from perfmodel.derived import derived
from perfmodel.graph.execution import block_of

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph

ROOT: Final = ""
"""Name of the unit of layers outside blocks. [-]"""


@dataclass(frozen=True, slots=True)
class Unit:
    """Layers whose parameters are gathered together; ``name`` is the prefix of their names, empty outside blocks."""

    name: str
    layers: tuple[str, ...]
    parameter_count: int

    @property
    def is_block(self) -> bool:
        """Whether it is one of several blocks."""
        return self.name != ROOT


@derived
def _units(graph: LayerGraph, layer_count: int) -> tuple[Unit, ...]:
    del layer_count  # a graph may have grown since then
    counts = graph.trained_parameter_counts
    members: dict[str, list[str]] = {}
    for name in counts:
        members.setdefault(block_of(name) or ROOT, []).append(name)
    blocks = [name for name, layers in members.items() if name != ROOT and len(layers) > 1]
    if not blocks:
        return tuple(Unit(name, (name,), counts[name]) for name in counts)
    root = [name for unit, layers in members.items() if unit not in blocks for name in layers]
    units = {name: members[name] for name in blocks} | ({ROOT: root} if root else {})
    return tuple(Unit(name, tuple(layers), sum(counts[layer] for layer in layers)) for name, layers in units.items())


def sharded_units(graph: LayerGraph) -> tuple[Unit, ...]:
    """Return the units of a network, blocks first.

    Notes
    -----
    Valid for: networks whose blocks are numbered in the names of their layers, as those of torch modules are. Ignores:
    other ways to wrap a module.

    Examples
    --------
    >>> import perfmodel as pm
    >>> network = pm.zoo.gpt(layers=2, width=64, heads=2, sequence_length=16, vocabulary=100)
    >>> [(unit.name, unit.parameter_count) for unit in sharded_units(network)]
    [('block1', 49984), ('block2', 49984), ('', 7552)]

    References
    ----------
    .. [1] Y. Zhao et al., PyTorch FSDP: experiences on scaling fully sharded data parallel, VLDB 2023,
       arXiv:2304.11277.
    """
    return _units(graph, len(graph.layers))


def unit_slices(chunks: Sequence[Sequence[str]]) -> list[slice]:
    """Return the runs of layers whose gradients are scattered together, of chunks of a network one after the other.

    Notes
    -----
    Valid for: blocks whose gradients are ready one after the other. Ignores: that layers before and behind all
    blocks are one unit.

    Examples
    --------
    >>> unit_slices([["norm", "block2_up", "block2_down", "block1_up", "block1_down", "embedding"]])
    [slice(0, 1, None), slice(1, 3, None), slice(3, 5, None), slice(5, 6, None)]
    >>> unit_slices([["block2_up", "block2_down"], ["block2_up", "block2_down"]])
    [slice(0, 2, None), slice(2, 4, None)]
    """
    slices, start = [], 0
    for layers in chunks:
        for count in _unit_sizes(layers):
            slices.append(slice(start, start + count))
            start += count
    return slices


def _unit_sizes(layers: Sequence[str]) -> list[int]:
    blocks = [block_of(name) or ROOT for name in layers]
    counts = Counter(blocks)
    if not any(count > 1 for block, count in counts.items() if block != ROOT):
        return [1] * len(layers)
    runs = groupby(block if counts[block] > 1 else ROOT for block in blocks)
    return [sum(1 for _ in run) for _, run in runs]
