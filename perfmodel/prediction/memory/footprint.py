"""Memory of a step: that of a graph, and that of a worker's device with its micro-batches in flight."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cache, partial, reduce
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.cost.model_state import model_state_bytes
from perfmodel.cost.pipeline_order import Turn, larger_pair, most_kept, most_kept_beside
from perfmodel.derived import derived, derived_property, kept, record
from perfmodel.graph.liveness import MemoryRules, TensorTypes
from perfmodel.graph.storage import is_parameter, mask_tensors, tensor_bytes
from perfmodel.layers.optimizers import NoUpdate, Optimizer
from perfmodel.layers.passes import MASK_BYTES
from perfmodel.numeric import PLAIN_TYPES, maximum, plain
from perfmodel.parallelism.base import ALL_SHARED, Layout
from perfmodel.prediction.memory.gathered_parameters import UnitBytes, unit_bytes
from perfmodel.prediction.memory.whole_gradients import GradientRules, Sizes, unit_gradients, unit_gradients_at_once
from perfmodel.presentation.quantities import bytes_text
from perfmodel.records import ELEMENT_BYTES, Phase
from perfmodel.symbolic import Quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.framework.profile import MemoryTable
    from perfmodel.graph import LayerGraph
    from perfmodel.graph.execution import Recompute
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.job.stage import Stage, TimedStage


HALF_PRECISION_BYTES = 2
"""With elements up to this size, training also keeps weights and optimizer state in single precision. [B]"""
MASTER_BYTES = 4
"""Size of an element of that copy. [B]"""


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Moments of a step at which memory may peak, depending on batch size."""

    activations: NDArray[np.float64]
    gradients: NDArray[np.float64]

    @classmethod
    def of(cls, activations: NDArray[Any], gradients: NDArray[Any]) -> Moments:
        """Keep the moments that can be the peak: no other has both a larger constant and a larger slope."""
        activations, gradients = activations.astype(float), gradients.astype(float)
        constant, slope = activations[0] + gradients, activations[1]
        order = np.lexsort((-constant, -slope))  # steepest first
        falling = constant[order]
        is_chosen = np.ones(len(order), dtype=bool)
        is_chosen[1:] = falling[1:] > np.maximum.accumulate(falling)[:-1]
        chosen = order[is_chosen]
        return cls(activations[:, chosen], gradients[chosen])

    def peak(self, batch_size: Quantity) -> tuple[Quantity, Quantity]:
        """Bytes of activations and of gradients at the moment when their sum is largest.

        >>> many_samples_or_all_gradients = Moments(np.array([[0.0, 0.0], [10.0, 2.0]]), np.array([0.0, 100.0]))
        >>> many_samples_or_all_gradients.peak(np.array([5, 50]))
        (array([ 10., 500.]), array([100.,   0.]))
        """
        constant, slope = self.activations[0], self.activations[1]  # to unpack them takes three times as long
        if not isinstance(batch_size, np.ndarray):
            activations = constant + slope * batch_size
            at = int((activations + self.gradients).argmax())
            return float(activations[at]), float(self.gradients[at])
        activations = constant[:, None] + slope[:, None] * batch_size
        places = np.argmax(activations + self.gradients[:, None], axis=0)
        return activations[places, np.arange(batch_size.size)], self.gradients[places]


@dataclass(frozen=True, slots=True, eq=False)
class Alive:
    """What is in memory at every moment of a step: activations, gradients made so far, and those of whole units."""

    activations: NDArray[Any]
    gradients: NDArray[np.float64]
    of_units: Callable[[], Sizes]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class GraphMemory:
    """Memory of a graph under a framework's policy, as coefficients of the batch size."""

    weights_bytes: float
    optimizer_bytes: float
    rules: MemoryRules
    alive: Alive
    gradient_bytes: float
    input_bytes_per_sample: float
    workspace_groups: NDArray[np.intp]
    workspace_layer_starts: NDArray[np.intp]
    workspaces_per_layer: int | None
    pool_overhead: float
    sends_apart: bool = True
    """Whether copies of gradients are cast and sent on a stream of their own. [-]"""

    @derived
    def moments(self, rules: GradientRules) -> Moments:
        """Moments that can be the peak, for what is kept of gradients."""
        alive = self.alive
        gradients = rules.bytes_at(alive.gradients, alive.of_units, all_bytes=self.gradient_bytes)
        return Moments.of(alive.activations, gradients)


@dataclass(frozen=True, slots=True)
class MemoryFootprint:
    """Device memory that a step needs at its peak, by content.

    The parts sum to the total. Parts may be larger at other moments: with large batches memory peaks when
    back-propagation begins, before most parameter gradients exist.

    Parameters
    ----------
    weights_bytes, gradients_bytes, optimizer_bytes : float or ndarray
        Parameters, their gradients, with the buckets that exchange copies of them, and the optimizer's state, with its
        copy of the weights in mixed precision. [B]
    activations_bytes : float or ndarray
        Outputs, what layers keep for back-propagation, gradients of outputs, scratch memory of layers, and gaps between
        them where the framework's allocator leaves some. [B]
    workspace_bytes : float or ndarray
        Scratch memory of the chosen convolution algorithms. [B]
    input_bytes : float or ndarray
        Network inputs and labels. [B]
    context_bytes : float
        Driver context and libraries. [B]
    capacity_bytes : float
        Capacity of the device. [B]
    server_bytes : float or ndarray
        Shards of a parameter server in the same memory: a worker that computes on a machine's cores shares it. [B]
    missing_elsewhere_bytes : float or ndarray
        What shards lack in memories in which no worker computes; 0 if they fit. [B]
    """

    weights_bytes: Quantity
    gradients_bytes: Quantity
    optimizer_bytes: Quantity
    activations_bytes: Quantity
    workspace_bytes: Quantity
    input_bytes: Quantity
    context_bytes: Quantity
    capacity_bytes: Quantity
    server_bytes: Quantity = 0.0
    missing_elsewhere_bytes: Quantity = 0.0

    @property
    def total_bytes(self) -> Quantity:
        """Sum of all parts. [B]"""
        return (
            self.weights_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
            + self.workspace_bytes
            + self.input_bytes
            + self.context_bytes
            + self.server_bytes
        )

    @property
    def missing_bytes(self) -> Quantity:
        """Larger shortage of memory, of the device or of a parameter server; 0 if all fits. [B]"""
        return missing_bytes(self.total_bytes, self.capacity_bytes, self.missing_elsewhere_bytes)

    @property
    def fits(self) -> bool | Quantity | None:
        """Whether the step fits on the device, and a parameter server on its machines; None if nobody can know."""
        fits = self.missing_bytes <= 0
        if np.ndim(self.capacity_bytes) == 0 and np.isinf(self.capacity_bytes) and np.all(fits):
            return None
        return bool(fits) if np.ndim(fits) == 0 else fits


def fullest_of(footprints: Sequence[MemoryFootprint]) -> MemoryFootprint:
    """Return the largest footprint, with Python numbers in place of numpy's."""
    fullest, *others = footprints
    if others:
        fullest = max(footprints, key=lambda footprint: float(np.max(footprint.total_bytes)))
    values = _BYTES(fullest)
    return fullest if PLAIN_TYPES.issuperset(map(type, values)) else MemoryFootprint(*map(plain, values))


_BYTES: Final = attrgetter(*(field.name for field in fields(MemoryFootprint)))


def missing_bytes(needed: Quantity, capacity: Quantity, elsewhere: Quantity) -> Quantity:
    """Larger shortage, of a device or elsewhere; 0 if nothing is missing. [B]"""
    return maximum(needed - capacity, elsewhere)


def missing_text(missing: float, elsewhere: float, *, of: str = "") -> str:
    """Say what a device, and a parameter server in other memory, lack; empty if nothing is missing."""
    lacks = [f"{bytes_text(missing)}{of} are missing"] if missing > 0 else []
    if elsewhere > 0:
        lacks.append(f"{bytes_text(elsewhere)} are missing on a machine of the parameter server")
    return " and ".join(lacks)


def _always_alive(graph: LayerGraph, *, rules: MemoryRules, policy: MemoryTable) -> Alive:
    """Return the only moment of a framework that keeps every output and its gradient for the whole step."""
    constant = slope = 0.0
    masks = mask_tensors(graph.layers)
    for node in graph.layers:
        element_bytes = MASK_BYTES if node.name in masks else rules.bytes_of(node.name)
        size = tensor_bytes(node.output_shape, element_bytes=element_bytes)
        stays = node.usage.in_place if node.usage.in_place is not None else node.layer.kind in policy.in_place
        copies = policy.extra_buffers.get(node.layer.kind, 0.0)
        copies += 0 if stays or node.layer.is_view or is_parameter(node) else 2
        saved = rules.saved_bytes(node)
        constant += copies * size[0] + saved[0]
        slope += copies * size[1] + saved[1]
    gradients = float(rules.parameter_bytes * graph.trained_parameter_count)
    of_units = partial(unit_gradients_at_once, graph, element_bytes=rules.parameter_bytes)
    return Alive(np.array([[constant], [slope]]), np.array([gradients]), of_units)


MOST_OPTIMIZERS: Final = 16
"""Optimizers whose state is kept per graph. [1]"""


def optimizer_bytes(graph: LayerGraph, optimizer: Optimizer, *, element_bytes: int) -> float:
    """Optimizer state, with a 4-byte copy of the weights in half precision. [B]"""

    def make() -> Any:
        return optimizer.state_elements([shape for shapes in graph.updated_shapes.values() for shape in shapes])

    state = kept(graph.kept("optimizer_state"), optimizer, make, most=MOST_OPTIMIZERS)
    if element_bytes > HALF_PRECISION_BYTES:
        return float(element_bytes * state)
    master = 0 if isinstance(optimizer, NoUpdate) else graph.trained_parameter_count
    return float(MASTER_BYTES * (master + state))


def _input_bytes(graph: LayerGraph, *, rules: MemoryRules) -> float:
    """Bytes of one sample; an input used only as index or mask has the element size of one. [B]"""
    as_index: dict[str, bool] = {}
    shapes, masks = graph.input_shapes, mask_tensors(graph.layers)
    for node in graph.layers:
        for place, name in enumerate(node.input_names):
            if name in shapes:
                is_index = place in node.layer.index_inputs and not node.layer.is_metric
                as_index[name] = as_index.get(name, True) and is_index
    elements = {name: math.prod(shape) for name, shape in shapes.items()}
    sizes = (
        count
        * (MASK_BYTES if name in masks else rules.index_bytes if as_index.get(name, False) else rules.bytes_of(name))
        for name, count in elements.items()
    )
    return float(sum(sizes) + graph.label_bytes_per_sample)


def graph_memory(
    graph: LayerGraph,
    table: KernelTable,
    *,
    phase: Phase,
    optimizer: Optimizer,
    element_bytes: int,
    policy: MemoryTable,
    input_gradient: bool = False,
    recompute: Recompute = None,
    types: TensorTypes | None = None,
) -> GraphMemory:
    """Compute the memory of a graph under a framework's policy.

    With ``types``, automatic mixed precision: parameters, their gradients and the optimizer's state in 4 B, narrow
    copies of weights for the length of a step, activations in the type of the layer that makes them. Without, training
    with elements of at most 2 B holds weights, gradients and activations in that size; the optimizer keeps its state
    and a copy of the weights in 4 B; losses and statistics are small and count with the elements' size.
    """
    rules = MemoryRules(
        element_bytes=element_bytes,
        index_bytes=policy.index_bytes,
        in_place_kinds=policy.in_place,
        recompute=recompute,
        types=types,
        composed=tuple((kind, count) for kind, count in policy.composed.items() if count),
        keeps_unread=policy.unread_results == "kept",
        keeps_gathered=policy.gathered_inputs == "kept",
        fuses_gates=policy.gates == "made_again",
        divided_loss_tensors=policy.divided_loss_tensors,
    )
    if phase is not Phase.FORWARD and policy.activation_gradients == "kept":
        alive = _always_alive(graph, rules=rules, policy=policy)
    else:
        live = graph.liveness(phase=phase, rules=rules, input_gradient=input_gradient)
        made, in_use = live.gradients.astype(float), live.activations
        if policy.allocator == "best_fit":
            gaps = graph.gap_bytes_per_sample(phase, rules=rules, input_gradient=input_gradient)
            in_use = in_use + np.array([[0], [gaps]], dtype=object)  # never given back
        held = np.full_like(made, made.max(initial=0.0)) if policy.gradients == "kept" else made
        alive = Alive(in_use, held, cache(partial(unit_gradients, graph, live.moments, made)))
    workspace_groups, workspace_layer_starts = _workspace_entries(table)
    updates, trains = Phase.UPDATE in phase.parts, Phase.BACKWARD in phase.parts
    return GraphMemory(
        weights_bytes=float(
            graph.weight_bytes(element_bytes=rules.parameter_bytes)
            + (0 if types is None else types.copied_weight_bytes)
        ),
        optimizer_bytes=optimizer_bytes(graph, optimizer, element_bytes=rules.parameter_bytes) if updates else 0.0,
        rules=rules,
        alive=alive,
        gradient_bytes=float(rules.parameter_bytes * graph.trained_parameter_count) if trains else 0.0,
        input_bytes_per_sample=_input_bytes(graph, rules=rules),
        workspace_groups=workspace_groups,
        workspace_layer_starts=workspace_layer_starts,
        workspaces_per_layer=policy.workspaces_per_layer if policy.workspace == "per_layer" else None,
        pool_overhead=policy.pool_overhead,
        sends_apart=policy.shared_units == "flat",
    )


def _workspace_entries(table: KernelTable) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the groups that may use a workspace, sorted by layer, and where each layer starts."""
    may_use = ((table.workspace.constant[0] > 0) | (table.workspace.slope[0] > 0))[table.choices].any(axis=0)
    by_layer: dict[str, list[int]] = {}
    for occurrence in table.occurrences if may_use.any() else ():
        if may_use[occurrence.group]:
            by_layer.setdefault(occurrence.layer, []).append(occurrence.group)
    lengths = [len(groups) for groups in by_layer.values()]
    groups = [group for of_layer in by_layer.values() for group in of_layer]
    return np.array(groups, dtype=np.intp), np.cumsum([0, *lengths[:-1]], dtype=np.intp)


def workspace_bytes(memory: GraphMemory, needs: Quantity, chosen: Quantity) -> Quantity:
    """Scratch memory of the chosen alternatives, each of which needs so much. [B]"""
    taken = chosen[memory.workspace_groups]
    needed = needs[taken] if taken.ndim == 1 else np.take_along_axis(needs, taken, axis=0)
    if memory.workspaces_per_layer is None:
        workspace = np.maximum.reduce(needed, axis=0)
    else:
        largest_of_layers = np.maximum.reduceat(needed, memory.workspace_layer_starts, axis=0)
        workspace = memory.workspaces_per_layer * largest_of_layers.sum(axis=0)
    return workspace if isinstance(workspace, np.ndarray) else float(workspace)


@record
class ChunkMemory:
    """Memory of one of the chunks of layers on a device, for one micro-batch."""

    memory: GraphMemory
    samples: Quantity
    beside: Mapping[str, Quantity]
    """All of its footprint but activations and gradients."""
    waiting_bytes: Any
    gathered_bytes: int
    gradient_bytes: int

    def rules(self, layout: Layout, *, in_parts: bool, has_buckets: bool) -> GradientRules:
        """Rules for gradients if workers share state, and if there are several micro-batches."""
        return GradientRules.of(
            layout,
            in_parts=in_parts,
            parameter_bytes=self.memory.rules.parameter_bytes,
            gathered_bytes=self.gathered_bytes,
            gradient_bytes=self.gradient_bytes,
            has_buckets=has_buckets,
            sends_apart=self.memory.sends_apart,
        )

    def peak(self, rules: GradientRules) -> tuple[Quantity, Quantity]:
        """Activations and gradients at the moment when their sum is largest. [B]"""
        overhead = self.memory.pool_overhead
        activations, gradients = self.memory.moments(rules).peak(self.samples)
        return overhead * activations, overhead * gradients

    kept_peak = derived(peak)

    def alone(self, rules: GradientRules) -> MemoryFootprint:
        """Footprint of a mini-batch that is not cut. [B]"""
        activations, gradients = self.peak(rules)
        return MemoryFootprint(activations_bytes=activations, gradients_bytes=gradients, **self.beside)

    def kept_gradients(self, rules: GradientRules) -> float:
        """Gradients and buckets that are kept from one micro-batch to the next. [B]"""
        ratio = rules.kept_ratio / rules.share + rules.has_buckets
        return ratio * self.memory.gradient_bytes * self.memory.pool_overhead


@dataclass(frozen=True, eq=False, kw_only=True)
class SharedMemory:
    """Memory of one device of a worker, for any order of micro-batches.

    ``alone`` is the footprint of a whole mini-batch on a device with one chunk; ``among`` that of one of several
    micro-batches, with the gradients of the others that last the whole step. ``gradient_bytes`` are gradients of each
    chunk that last from its first to its last backward phase, after which workers share them; with several passes they
    last the whole step.
    """

    chunks: tuple[int, ...]
    alone: MemoryFootprint
    among: MemoryFootprint
    waiting_bytes: tuple[Any, ...]
    arriving_bytes: tuple[Any, ...]
    gradient_bytes: tuple[Any, ...]
    trains: bool

    @derived_property
    def shares_late(self) -> bool:
        """Whether workers share gradients once their last backward phase has made them whole."""
        return any(map(np.any, self.gradient_bytes))

    def footprint(self, order: Sequence[Turn], *, parts: int, passes: int) -> MemoryFootprint:
        """Footprint at the peak of a step. [B]"""
        if len(self.chunks) == 1 and parts == 1:
            return self.alone
        waiting, arriving, gradients = (
            dict(zip(self.chunks, sizes, strict=True))
            for sizes in (self.waiting_bytes, self.arriving_bytes, self.gradient_bytes)
        )
        kept: tuple[Quantity, Quantity] = (most_kept(order, kept_bytes=waiting), sum(self.gradient_bytes))
        if passes == 1 and self.shares_late:
            kept = most_kept_beside(order, kept_bytes=waiting, meanwhile_bytes=gradients)
        return replace(
            self.among,
            activations_bytes=self.among.activations_bytes + kept[0],
            gradients_bytes=self.among.gradients_bytes + kept[1],
            input_bytes=most_kept(order, kept_bytes=arriving) if self.trains else reduce(maximum, arriving.values()),
        )


@record
class DeviceMemory:
    """Memory of one device of a worker, whatever workers share."""

    places: tuple[int, ...]
    chunks: tuple[ChunkMemory, ...]
    units: Callable[[], UnitBytes]
    trains: bool
    known: dict[Hashable, SharedMemory]
    """Memory of devices with chunks of the same structure, by what workers share. [-]"""

    def shared(self, layout: Layout, *, has_buckets: bool = False) -> SharedMemory:
        """Memory on a device once workers share parameters, gradients and optimizer state. [B]"""
        if layout.shard_stage == ALL_SHARED:  # which layers are gathered together depends on their names
            return self._shared(layout, has_buckets=has_buckets)
        sharing_size = layout.sharing_size if layout.shard_stage else 1
        key = (layout.shard_stage, sharing_size, layout.no_sync, has_buckets)
        if key not in self.known:
            self.known[key] = self._shared(layout, has_buckets=has_buckets)
        known = self.known[key]
        return known if known.chunks == self.places else replace(known, chunks=self.places)

    def _shared(self, layout: Layout, *, has_buckets: bool) -> SharedMemory:
        cut = [chunk.rules(layout, in_parts=True, has_buckets=has_buckets) for chunk in self.chunks]
        kept = [chunk.kept_gradients(rules) for chunk, rules in zip(self.chunks, cut, strict=True)]
        is_lent = layout.shard_stage > 1 and layout.no_sync  # whole until the chunk's last micro-batch
        lent = [(1 - 1 / layout.sharing_size) * size if is_lent else 0.0 for size in kept]
        among = self._divided(self._among(cut, kept, lent_bytes=sum(lent)), layout)
        return SharedMemory(
            chunks=self.places,
            alone=self._alone(layout, has_buckets=has_buckets) if len(self.chunks) == 1 else among,
            among=among,
            waiting_bytes=tuple(chunk.waiting_bytes for chunk in self.chunks),
            arriving_bytes=tuple(chunk.beside["input_bytes"] for chunk in self.chunks),
            gradient_bytes=tuple(lent),
            trains=self.trains,
        )

    def _alone(self, layout: Layout, *, has_buckets: bool) -> MemoryFootprint:
        """Footprint of the first chunk with a mini-batch that is not cut. [B]"""
        chunk = self.chunks[0]
        rules = chunk.rules(layout, in_parts=False, has_buckets=has_buckets)
        return self._divided(chunk.alone(rules), layout)

    def footprint(self, order: Sequence[Turn], layout: Layout, *, has_buckets: bool) -> MemoryFootprint:
        """Footprint at the peak of a step of one order of turns. [B]"""
        if len(self.chunks) == 1 and layout.parts == 1:  # most predictions
            return self._alone(layout, has_buckets=has_buckets)
        return self.shared(layout, has_buckets=has_buckets).footprint(
            order, parts=layout.parts, passes=layout.accumulation_steps
        )

    def _among(self, rules: Sequence[GradientRules], kept: Sequence[float], *, lent_bytes: float) -> MemoryFootprint:
        """Footprint of one micro-batch of several, without what others keep and gradients that are lent. [B]"""
        passing: list[tuple[Quantity, Quantity]] = []
        for chunk, of_chunk, kept_bytes in zip(self.chunks, rules, kept, strict=True):
            activations, gradients = chunk.kept_peak(of_chunk)
            passing.append((activations - chunk.waiting_bytes, gradients - kept_bytes))
        activations, gradients = reduce(larger_pair, passing)
        beside = [chunk.beside for chunk in self.chunks]
        together = {name: sum([fields[name] for fields in beside]) for name in ("weights_bytes", "optimizer_bytes")}
        together["workspace_bytes"] = reduce(maximum, [fields["workspace_bytes"] for fields in beside])
        gradients_bytes = sum(kept) + gradients - lent_bytes
        return MemoryFootprint(
            activations_bytes=activations, gradients_bytes=gradients_bytes, **{**beside[0], **together}
        )

    def _divided(self, footprint: MemoryFootprint, layout: Layout) -> MemoryFootprint:
        """Divide parameters and optimizer state among workers; gradients are counted at each moment."""
        if not layout.shard_stage or layout.sharing_size == 1:
            return footprint
        units = self.units() if layout.holds_shares else None
        weights, _, optimizer = model_state_bytes(
            weights_bytes=footprint.weights_bytes - (0.0 if units is None else units.copied_bytes),
            gradients_bytes=0.0,
            optimizer_bytes=footprint.optimizer_bytes,
            shard_stage=ALL_SHARED if layout.holds_shares else layout.shard_stage,
            worker_count=layout.sharing_size,
        )
        gathered = 0.0 if units is None else units.gathered(layout)
        return replace(footprint, weights_bytes=weights + gathered, optimizer_bytes=optimizer)


def device_memory(
    prepared: Prepared,
    stages: Sequence[TimedStage],
    place: int,
    *,
    in_parts: bool,
    known: dict[Any, Any] | None = None,
) -> DeviceMemory:
    """Memory of a device, before workers share any of it. [B]"""
    chunks = {index: stage for index, stage in enumerate(stages) if stage.stage.placed.device == place}
    known = {} if known is None else known
    keys = []
    for timed in chunks.values():
        stage = timed.stage
        memory, samples = stage.lowered.memory(stage.subject.graph), prepared.samples(stage)
        fed = (id(stage.feed), stage.is_fed, id(stage.target), prepared.copies_ahead)
        keys.append((id(stage.lowered), stage.placed.batch_factor, prepared.gradient_bytes, *fed))
        if keys[-1] not in known:
            known[keys[-1]] = ChunkMemory(
                memory=memory,
                samples=samples,
                beside=_beside(prepared, timed, memory, samples),
                waiting_bytes=_waiting_bytes(prepared, stage) if in_parts or len(chunks) > 1 else 0.0,
                gathered_bytes=ELEMENT_BYTES[prepared.dtype],
                gradient_bytes=prepared.gradient_bytes,
            )
    return DeviceMemory(
        places=tuple(chunks),
        chunks=tuple(known[key] for key in keys),
        units=partial(unit_bytes, prepared, [timed.stage for timed in chunks.values()]),
        trains=prepared.trains,
        known=known.setdefault(("shared", prepared.layout, *keys), {}),
    )


def _beside(prepared: Prepared, timed: TimedStage, memory: GraphMemory, samples: Quantity) -> dict[str, Quantity]:
    """Fields of the footprint of a stage for one micro-batch, all but activations and gradients.

    Mini-batches that are copied during a step are on the device twice; a stage that only copies labels holds only the
    labels twice. Valid for: layers that run one after the other. Ignores: fragmentation beyond the policy's overhead.
    """
    stage, target = timed.stage, prepared.target
    overhead = memory.pool_overhead
    ahead_bytes = prepared.copied_ahead(stage).copied_bytes
    is_doubled = bool(ahead_bytes.any() if isinstance(ahead_bytes, np.ndarray) else ahead_bytes)
    input_bytes = (1 + is_doubled) * memory.input_bytes_per_sample * samples * overhead
    if is_doubled and not stage.is_fed:
        input_bytes = input_bytes / 2 + ahead_bytes
    workspace: Quantity = 0.0
    if memory.workspace_groups.size:
        workspace = workspace_bytes(memory, timed.workspaces_bytes, timed.chosen.chosen)
    return {
        "weights_bytes": memory.weights_bytes * overhead,
        "optimizer_bytes": memory.optimizer_bytes * overhead,
        "workspace_bytes": workspace * overhead,
        "input_bytes": input_bytes,
        "context_bytes": target.context_bytes,
        "capacity_bytes": target.capacity_bytes,
    }


def _waiting_bytes(prepared: Prepared, stage: Stage) -> Any:
    """Bytes of a micro-batch kept from its forward to its backward phase, without the stage's input. [B]"""
    if not prepared.trains:
        return 0.0
    rules = stage.lowered.memory(stage.subject.graph).rules
    constant, slope = stage.subject.graph.liveness(rules=rules, input_gradient=bool(stage.subject.input_gradient)).kept
    return (float(constant) + float(slope) * prepared.samples(stage)) * prepared.profile.memory.pool_overhead
