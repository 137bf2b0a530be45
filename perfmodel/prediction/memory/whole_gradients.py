"""Gradients in memory at each moment of a step: whole ones, and the shares that a worker keeps."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from perfmodel.records import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from perfmodel.graph import LayerGraph
    from perfmodel.parallelism.base import Layout

Sizes = tuple["NDArray[np.float64]", "NDArray[np.float64]"]
"""Whole gradients of units at each moment, and those of units that are complete. [B]"""


class GradientRules(NamedTuple):
    """Which gradients a device keeps, and how long they are whole.

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
    sends_apart : bool
        Whether the copy that is exchanged keeps its memory from step to step, so that nothing else uses it, as a
        device's shares of gradients always do: torch makes shares on the stream of the exchange, and its allocator
        gives memory of one stream to no other [1]. Flat gradients are cast on that stream too, while ``fully_shard``
        copies those of a unit together where layers compute [2]. [-]

    References
    ----------
    .. [1] PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce ("Only after the copy-in
       finishes can we free the gradients", "The RS output is allocated in the RS stream"), and
       c10/cuda/CUDACachingAllocator.cpp, where each stream has blocks of its own.
    .. [2] PyTorch, torch/distributed/fsdp/_runtime_utils.py, _post_backward_hook, and pull request 129721, Ran
       reduce-scatter copy-in in default stream.
    """

    accumulates: bool = False
    by_unit: bool = False
    share: int = 1
    kept_ratio: float = 1.0
    whole_ratio: float = 1.0
    sent_ratio: float = 0.0
    has_buckets: bool = False
    sends_apart: bool = True

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
        sends_apart: bool = True,
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
            sends_apart=sends_apart,
        )

    def bytes_at(
        self, made: NDArray[np.float64], sizes: Callable[[], Sizes], *, all_bytes: float
    ) -> NDArray[np.float64]:
        """Gradients at each moment, from those made by then, all gradients [B] and, if needed, those of units. [B]"""
        if not self.by_unit:
            before = np.full_like(made, all_bytes) if self.accumulates else made
            return self.kept_ratio * before + self.has_buckets * all_bytes
        whole, complete = sizes()
        if self.sends_apart:
            complete = np.full_like(made, complete.max(initial=0.0))
        return self.kept_ratio / self.share * all_bytes + self.whole_ratio * whole + self.sent_ratio * complete


def unit_gradients(graph: LayerGraph, moments: Sequence[tuple[str, Phase]], made: NDArray[np.float64]) -> Sizes:
    """Follow the gradients of each unit from the first one made until those of the next unit are made.

    Gradients of layers outside blocks are complete last. Ignores: exchanges that take longer than that.

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
