"""Gradients and parameters that are whole for a while, though workers share them, and what is kept of gradients."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.parallelism.base import ALL_SHARED
from perfmodel.records import ELEMENT_BYTES, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from perfmodel.graph import LayerGraph
    from perfmodel.parallelism.base import Layout
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.job.stage import Stage

Sizes = tuple["NDArray[np.float64]", "NDArray[np.float64]"]
"""Whole gradients of units at each moment, and those of units that are complete. [B]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientRules:
    """What a device keeps of gradients, and of how long they are whole.

    Parameters
    ----------
    accumulates : bool
        Whether gradients are kept from one micro-batch to the next. [-]
    by_unit : bool
        Whether gradients of a unit are made whole, and freed once they are added up among workers. [-]
    share : int
        Workers among which kept gradients are divided. [1]
    kept_ratio, whole_ratio, sent_ratio : float
        Size of an element that is kept, that is made, and of the copy that is exchanged (0 if there is none), over that
        of a parameter; torch copies the gradients of a unit into one buffer, whatever their type [1]. [1]
    has_buckets : bool
        Whether messages hold a second copy of all gradients, in the type of parameters, from the first step on. [-]
    in_own_pool : bool
        Whether a device's shares of gradients, and the copy that is exchanged, keep their memory from step to step, so
        that nothing else uses it: torch makes both on the stream of the exchange, and its allocator gives memory of one
        stream to no other [1]. [-]

    References
    ----------
    .. [1] PyTorch, torch/distributed/_composable/fsdp/_fsdp_collectives.py, foreach_reduce_scatter ("Only after the
       copy-in finishes can we free the gradients", "The RS output is allocated in the RS stream"), and
       c10/cuda/CUDACachingAllocator.cpp, where each stream has blocks of its own.
    """

    accumulates: bool = False
    by_unit: bool = False
    share: int = 1
    kept_ratio: float = 1.0
    whole_ratio: float = 1.0
    sent_ratio: float = 0.0
    has_buckets: bool = False
    in_own_pool: bool = False

    @classmethod
    def of(
        cls,
        layout: Layout,
        *,
        in_parts: bool,
        parameter_bytes: int,
        gathered_bytes: int,
        gradient_bytes: int,
        has_buckets: bool = False,
    ) -> GradientRules:
        """Make the rules of a layout, from sizes of elements. [B]"""
        kept_ratio = max(1.0, gradient_bytes / parameter_bytes)
        if layout.shard_stage < 2 or layout.sharing_size == 1:
            return cls(accumulates=in_parts, kept_ratio=kept_ratio, has_buckets=has_buckets)
        made_bytes = gathered_bytes if layout.holds_shares else parameter_bytes
        return cls(
            accumulates=in_parts,
            by_unit=True,
            share=1 if in_parts and layout.no_sync else layout.sharing_size,
            kept_ratio=kept_ratio,
            whole_ratio=made_bytes / parameter_bytes,
            sent_ratio=gradient_bytes / parameter_bytes,
            in_own_pool=True,
        )

    def bytes_at(
        self, made: NDArray[np.float64], sizes: Callable[[], Sizes], *, all_bytes: float
    ) -> NDArray[np.float64]:
        """Gradients at each moment, from those made by then of all [B] and, if they count, those of units. [B]"""
        before = np.full_like(made, all_bytes) if self.accumulates else made
        if not self.by_unit:
            return self.kept_ratio * before + self.has_buckets * all_bytes
        whole, complete = sizes()
        kept = before if self.accumulates else made - whole
        if self.in_own_pool:
            kept, complete = np.full_like(made, all_bytes), np.full_like(made, complete.max(initial=0.0))
        return self.kept_ratio / self.share * kept + self.whole_ratio * whole + self.sent_ratio * complete


def unit_gradients(graph: LayerGraph, moments: Sequence[tuple[str, Phase]], made: NDArray[np.float64]) -> Sizes:
    """Follow the gradients of each unit from the first that is made until those of another unit are made.

    Gradients of layers outside blocks are complete last. Ignores: exchanges that take longer than that.

    Examples
    --------
    >>> import perfmodel as pm
    >>> network = pm.zoo.gpt(layers=2, width=64, heads=2, sequence_length=16, vocabulary=100)
    >>> made = np.array([0.0, 4.0, 10.0, 10.0, 13.0])
    >>> names = ("", "block2_mlp_up", "block2_mlp_norm", "block2_mlp_add", "block1_mlp_up")
    >>> unit_gradients(network, [(name, Phase.BACKWARD) for name in names], made)[0]
    array([ 0.,  4., 10., 10.,  3.])
    """
    from perfmodel.parallelism.units import ROOT, sharded_units

    unit_of = {layer: unit.name for unit in sharded_units(graph) for layer in unit.layers}
    new = np.diff(made, prepend=0.0)
    events = np.flatnonzero(new).tolist()
    places_of: dict[str, list[int]] = {}
    for place in events:
        places_of.setdefault(unit_of.get(moments[place][0], ROOT), []).append(place)
    is_update = [place for place, (_, phase) in enumerate(moments) if phase is Phase.UPDATE]
    end = is_update[0] if is_update else len(moments)
    whole, complete = np.zeros_like(new), np.zeros_like(new)
    for places in places_of.values():
        start, freed = places[0], next(iter(events[bisect_right(events, places[-1]) :]), end)
        of_unit = np.zeros(freed - start)
        of_unit[np.array(places) - start] = new[places]
        made_by_then = np.cumsum(of_unit)
        whole[start:freed] += made_by_then
        complete[places[-1] : freed] += made_by_then[-1]
    return whole, complete


def unit_gradients_at_once(graph: LayerGraph, *, element_bytes: int) -> Sizes:
    """Whole gradients of the largest block and of all layers outside blocks, where a step has only one moment. [B]"""
    from perfmodel.parallelism.units import sharded_units

    units = sharded_units(graph)
    block = max((unit.parameter_count for unit in units if unit.is_block), default=0)
    root = sum(unit.parameter_count for unit in units if not unit.is_block)
    return np.array([float(element_bytes * (root + block))]), np.array([float(element_bytes * max(root, block))])


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitBytes:
    """Sizes of whole parameters that exist for a while although workers share them.

    Parameters
    ----------
    root_bytes : float
        Parameters outside blocks, gathered for the whole step. [B]
    block_bytes, blocks_bytes : float
        Parameters of the largest block, and of all. [B]
    copied_bytes : float
        Narrow copies of parameters; where parameters are shared, the copies are gathered. [B]
    """

    root_bytes: float
    block_bytes: float
    blocks_bytes: float
    copied_bytes: float

    def gathered(self, layout: Layout) -> float:
        """Parameters beside a device's own shares: all that stay, or the blocks gathered ahead of one [1]. [B]"""
        if layout.shard_stage < ALL_SHARED:
            return self.root_bytes + self.blocks_bytes
        return self.root_bytes + min((1 + layout.prefetch_limit) * self.block_bytes, self.blocks_bytes)


def unit_bytes(prepared: Prepared, stages: Sequence[Stage]) -> UnitBytes:
    """Sizes of the units whose parameters are gathered together. [B]"""
    from perfmodel.parallelism.units import sharded_units

    element_bytes, overhead = ELEMENT_BYTES[prepared.dtype], prepared.profile.memory.pool_overhead
    root = block = blocks = 0
    for stage in stages:
        for unit in sharded_units(stage.placed.graph):
            root += 0 if unit.is_block else unit.parameter_count
            block = max(block, unit.parameter_count if unit.is_block else 0)
            blocks += unit.parameter_count if unit.is_block else 0
    rules = [stage.lowered.memory(stage.subject.graph).rules for stage in stages]
    copied = sum(0 if rule.types is None else rule.types.copied_weight_bytes for rule in rules)
    return UnitBytes(
        root_bytes=overhead * element_bytes * root,
        block_bytes=overhead * element_bytes * block,
        blocks_bytes=overhead * element_bytes * blocks,
        copied_bytes=float(overhead * copied),
    )
