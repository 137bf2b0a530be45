"""Memory of a step: that of a graph, and that of a worker's device with its micro-batches in flight."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.cost.model_state import model_state_bytes
from perfmodel.cost.pipeline_order import Turn, most_kept
from perfmodel.graph.liveness import MemoryRules, TensorTypes
from perfmodel.graph.storage import is_parameter, mask_tensors, saved_bytes, tensor_bytes
from perfmodel.layers.optimizers import NoUpdate
from perfmodel.layers.passes import MASK_BYTES
from perfmodel.numeric import maximum
from perfmodel.parallelism.base import ALL_SHARED
from perfmodel.records import ELEMENT_BYTES, Phase
from perfmodel.symbolic import Quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.framework.profile import MemoryTable
    from perfmodel.graph import LayerGraph
    from perfmodel.layers.optimizers import Optimizer
    from perfmodel.parallelism.base import Layout
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
        steepest_first = np.lexsort((-constant, -slope))
        highest_before = np.maximum.accumulate(np.r_[-np.inf, constant[steepest_first][:-1]])
        chosen = steepest_first[constant[steepest_first] > highest_before]
        return cls(activations[:, chosen], gradients[chosen])

    def peak(self, batch_size: Quantity) -> tuple[Quantity, Quantity]:
        """Bytes of activations and of gradients at the moment when their sum is largest.

        Examples
        --------
        >>> many_samples_or_all_gradients = Moments(np.array([[0.0, 0.0], [10.0, 2.0]]), np.array([0.0, 100.0]))
        >>> many_samples_or_all_gradients.peak(np.array([5, 50]))
        (array([ 10., 500.]), array([100.,   0.]))
        """
        constant, slope = self.activations
        if np.ndim(batch_size) == 0:
            activations = constant + slope * batch_size
            at = int((activations + self.gradients).argmax())
            return float(activations[at]), float(self.gradients[at])
        sizes = np.asarray(batch_size, dtype=float)
        activations = constant[:, None] + slope[:, None] * sizes
        places = np.argmax(activations + self.gradients[:, None], axis=0)
        return activations[places, np.arange(sizes.size)], self.gradients[places]


@dataclass(frozen=True, slots=True)
class GraphMemory:
    """Memory of a graph under a framework's policy, as coefficients of the batch size."""

    weights_bytes: float
    optimizer_bytes: float
    rules: MemoryRules
    moments: Moments
    activations: Moments
    gradient_bytes: float
    input_bytes_per_sample: float
    workspace_groups: NDArray[np.intp]
    workspace_layer_starts: NDArray[np.intp]
    workspaces_per_layer: int | None
    pool_overhead: float


@dataclass(frozen=True, slots=True)
class MemoryFootprint:
    """Device memory that a step needs at its peak, by content.

    The parts sum to the total. Parts may be larger at other moments: with large batches memory peaks when
    back-propagation begins, before most parameter gradients exist.

    Parameters
    ----------
    weights_bytes, gradients_bytes, optimizer_bytes : float or ndarray
        Parameters, their gradients, and the optimizer's state, with its copy of the weights in mixed precision. [B]
    activations_bytes : float or ndarray
        Outputs, what layers keep for back-propagation, gradients of outputs, and scratch memory of layers. [B]
    workspace_bytes : float or ndarray
        Scratch memory of the chosen convolution algorithms. [B]
    input_bytes : float or ndarray
        Network inputs and labels. [B]
    context_bytes : float
        Driver context and libraries. [B]
    capacity_bytes : float
        Capacity of the device. [B]
    """

    weights_bytes: Quantity
    gradients_bytes: Quantity
    optimizer_bytes: Quantity
    activations_bytes: Quantity
    workspace_bytes: Quantity
    input_bytes: Quantity
    context_bytes: Quantity
    capacity_bytes: Quantity

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
        )

    @property
    def fits(self) -> bool | Quantity | None:
        """Whether the step fits on the device; None if the capacity is unknown."""
        if np.ndim(self.capacity_bytes) == 0 and np.isinf(self.capacity_bytes):
            return None
        fits = self.total_bytes <= self.capacity_bytes
        return bool(fits) if np.ndim(fits) == 0 else fits


def _static_moments(graph: LayerGraph, *, rules: MemoryRules, policy: MemoryTable) -> Moments:
    """Return the only moment of a framework that keeps every output and its gradient for the whole step."""
    constant = slope = 0.0
    masks = mask_tensors(graph.layers)
    for node in graph.layers:
        element_bytes = MASK_BYTES if node.name in masks else rules.bytes_of(node.name)
        size = tensor_bytes(node.output_shape, element_bytes=element_bytes)
        stays = node.usage.in_place if node.usage.in_place is not None else node.layer.kind in policy.in_place
        copies = policy.extra_buffers.get(node.layer.kind, 0.0)
        copies += 0 if stays or node.layer.is_view or is_parameter(node) else 2
        saved = saved_bytes(node, element_bytes=rules.bytes_of(node.name), index_bytes=rules.index_bytes)
        constant += copies * size[0] + saved[0]
        slope += copies * size[1] + saved[1]
    gradients = float(rules.parameter_bytes * graph.trained_parameter_count)
    return Moments(np.array([[constant], [slope]]), np.array([gradients]))


def optimizer_bytes(graph: LayerGraph, optimizer: Optimizer, *, element_bytes: int) -> float:
    """Optimizer state, with a 4-byte copy of the weights in half precision. [B]"""
    state = optimizer.state_elements([shape for shapes in graph.updated_shapes.values() for shape in shapes])
    if element_bytes > HALF_PRECISION_BYTES:
        return float(element_bytes * state)
    master = 0 if isinstance(optimizer, NoUpdate) else graph.trained_parameter_count
    return float(MASTER_BYTES * (master + state))


def _input_bytes(graph: LayerGraph, *, rules: MemoryRules) -> float:
    """Bytes of one sample; an input used only as index or mask has the element size of one. [B]"""
    as_index: dict[str, bool] = {}
    for node in graph.layers:
        for place, name in enumerate(node.input_names):
            is_index = place in node.layer.index_inputs and not node.layer.is_metric
            as_index[name] = as_index.get(name, True) and is_index
    masks = mask_tensors(graph.layers)
    elements = {name: math.prod(shape) for name, shape in graph.input_shapes.items()}
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
    recompute: str | None = None,
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
    )
    if phase is not Phase.FORWARD and policy.activation_gradients == "kept":
        moments = activations = _static_moments(graph, rules=rules, policy=policy)
    else:
        live = graph.liveness(phase=phase, rules=rules, input_gradient=input_gradient)
        moments = Moments.of(live.activations, live.gradients)
        activations = Moments.of(live.activations, np.zeros_like(live.gradients))
    workspace_groups, workspace_layer_starts = _workspace_entries(table)
    updates, trains = Phase.UPDATE in phase.parts, Phase.BACKWARD in phase.parts
    return GraphMemory(
        weights_bytes=float(
            graph.weight_bytes(element_bytes=rules.parameter_bytes)
            + (0 if types is None else types.copied_weight_bytes)
        ),
        optimizer_bytes=optimizer_bytes(graph, optimizer, element_bytes=rules.parameter_bytes) if updates else 0.0,
        rules=rules,
        moments=moments,
        activations=activations,
        gradient_bytes=float(rules.parameter_bytes * graph.trained_parameter_count) if trains else 0.0,
        input_bytes_per_sample=_input_bytes(graph, rules=rules),
        workspace_groups=workspace_groups,
        workspace_layer_starts=workspace_layer_starts,
        workspaces_per_layer=policy.workspaces_per_layer if policy.workspace == "per_layer" else None,
        pool_overhead=policy.pool_overhead,
    )


def _workspace_entries(table: KernelTable) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the groups that may use a workspace, sorted by layer, and where each layer starts."""
    may_use = ((table.workspace.constant[0] > 0) | (table.workspace.slope[0] > 0))[table.choices].any(axis=0)
    by_layer: dict[str, list[int]] = {}
    for occurrence in table.occurrences:
        if may_use[occurrence.group]:
            by_layer.setdefault(occurrence.layer, []).append(occurrence.group)
    lengths = [len(groups) for groups in by_layer.values()]
    groups = [group for of_layer in by_layer.values() for group in of_layer]
    return np.array(groups, dtype=np.intp), np.cumsum([0, *lengths[:-1]], dtype=np.intp)


def workspace_bytes(memory: GraphMemory, table: KernelTable, chosen: Quantity, *, batch_size: Quantity) -> Quantity:
    """Scratch memory of the chosen alternatives. [B]"""
    if not memory.workspace_groups.size:
        return 0.0
    taken = chosen[memory.workspace_groups]
    needs = table.workspace.at(batch_size)["workspace_bytes"]
    needed = needs[taken] if taken.ndim == 1 else np.take_along_axis(needs, taken, axis=0)
    if memory.workspaces_per_layer is None:
        workspace = needed.max(axis=0)
    else:
        largest_of_layers = np.maximum.reduceat(needed, memory.workspace_layer_starts, axis=0)
        workspace = memory.workspaces_per_layer * largest_of_layers.sum(axis=0)
    return float(workspace) if np.ndim(workspace) == 0 else workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitBytes:
    """Sizes of whole parameters and gradients that exist for a while although workers share them.

    Parameters
    ----------
    root_bytes : float
        Parameters outside blocks, gathered for the whole step. [B]
    block_bytes, blocks_bytes : float
        Parameters of the largest block, and of all. [B]
    reduced_ratio : float
        Size of a gradient as it is exchanged over that of a gathered parameter; 0 if they are of one type. [1]
    copied_bytes : float
        Narrow copies of parameters; where parameters are shared, the copies are gathered. [B]
    """

    root_bytes: float
    block_bytes: float
    blocks_bytes: float
    reduced_ratio: float
    copied_bytes: float

    def alive(self, stage: int, *, ahead: int) -> tuple[float, float]:
        """Parameters, with those of blocks gathered ahead [1], and gradients beside a device's own shares. [B]"""
        blocks_bytes = min((1 + ahead) * self.block_bytes, self.blocks_bytes)
        gathered = self.root_bytes + blocks_bytes if stage == ALL_SHARED else 0.0
        # gradients outside blocks are complete last; those of a block are cast before they are exchanged
        reduced = self.root_bytes + (1 + self.reduced_ratio) * self.block_bytes if stage > 1 else 0.0
        return gathered, reduced


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
        reduced_ratio=(prepared.gradient_bytes != element_bytes) * prepared.gradient_bytes / element_bytes,
        copied_bytes=float(overhead * copied),
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DeviceMemory:
    """Memory of one device of a worker, for any order of micro-batches.

    ``alone`` is the peak of activations and gradients together; ``apart`` that of activations beside all gradients,
    which accumulate over micro-batches or are shared as they are made.
    """

    chunks: tuple[int, ...]
    alone: MemoryFootprint
    apart: MemoryFootprint
    among: MemoryFootprint
    units: Callable[[], UnitBytes]
    waiting_bytes: tuple[Any, ...]
    arriving_bytes: tuple[Any, ...]
    trains: bool

    def shared(self, layout: Layout) -> DeviceMemory:
        """Memory that remains on a device if workers share parameters, gradients or optimizer state. [B]"""
        stage = layout.shard_stage
        if not stage or layout.sharing_size == 1:
            return self
        units = self.units()

        def of(footprint: MemoryFootprint, *, in_parts: bool) -> MemoryFootprint:
            weights, gradients, optimizer = model_state_bytes(
                weights_bytes=footprint.weights_bytes - (units.copied_bytes if stage == ALL_SHARED else 0.0),
                gradients_bytes=footprint.gradients_bytes,
                optimizer_bytes=footprint.optimizer_bytes,
                shard_stage=stage,
                worker_count=layout.sharing_size,
            )
            gathered, reduced = units.alive(stage, ahead=layout.prefetch_limit)
            if stage > 1 and layout.no_sync and in_parts:
                gradients, reduced = footprint.gradients_bytes, 0.0
            return replace(
                footprint,
                weights_bytes=weights + gathered,
                gradients_bytes=gradients + (reduced if self.trains else 0.0),
                optimizer_bytes=optimizer,
            )

        alone = self.alone if stage == 1 else self.apart
        # the parts of a mini-batch are not read from the layout, so that one answer serves any number of them
        return replace(self, alone=of(alone, in_parts=False), among=of(self.among, in_parts=True))

    def footprint(self, order: Sequence[Turn], *, parts: int) -> MemoryFootprint:
        """Footprint at the peak of a step. [B]"""
        if len(self.chunks) == 1 and parts == 1:
            return self.alone
        waiting, arriving = (
            dict(zip(self.chunks, sizes, strict=True)) for sizes in (self.waiting_bytes, self.arriving_bytes)
        )
        return replace(
            self.among,
            activations_bytes=self.among.activations_bytes + most_kept(order, kept_bytes=waiting),
            input_bytes=most_kept(order, kept_bytes=arriving) if self.trains else reduce(maximum, arriving.values()),
        )


def device_memory(
    prepared: Prepared,
    stages: Sequence[TimedStage],
    place: int,
    *,
    in_parts: bool,
    known: dict[Any, tuple[MemoryFootprint, MemoryFootprint, Any]] | None = None,
) -> DeviceMemory:
    """Memory of a device if workers share nothing. [B]"""
    chunks = {index: stage for index, stage in enumerate(stages) if stage.stage.placed.device == place}
    is_shared = len(chunks) > 1 or in_parts
    known = {} if known is None else known
    keys = []
    for timed in chunks.values():
        stage = timed.stage
        keys.append((id(stage.lowered), stage.placed.batch_factor, id(stage.feed), stage.is_fed, id(stage.target)))
        if keys[-1] not in known:
            waits_bytes = _waiting_bytes(prepared, stage) if is_shared else 0.0
            alone = _of_stage(prepared, timed)
            known[keys[-1]] = (alone, _apart(prepared, stage, alone), waits_bytes)
    footprints = [known[key][1] for key in keys]
    waits = [known[key][2] for key in keys]
    alone, among = known[keys[0]][0], footprints[0]
    if is_shared:
        among = replace(
            among,
            weights_bytes=sum(footprint.weights_bytes for footprint in footprints),
            gradients_bytes=sum(footprint.gradients_bytes for footprint in footprints),
            optimizer_bytes=sum(footprint.optimizer_bytes for footprint in footprints),
            activations_bytes=reduce(
                maximum, [footprint.activations_bytes - kept for footprint, kept in zip(footprints, waits, strict=True)]
            ),
            workspace_bytes=reduce(maximum, [footprint.workspace_bytes for footprint in footprints]),
        )

    return DeviceMemory(
        chunks=tuple(chunks),
        alone=alone,
        apart=footprints[0],
        among=among,
        units=partial(unit_bytes, prepared, [timed.stage for timed in chunks.values()]),
        waiting_bytes=tuple(waits),
        arriving_bytes=tuple(footprint.input_bytes for footprint in footprints),
        trains=prepared.trains,
    )


def _of_stage(prepared: Prepared, timed: TimedStage) -> MemoryFootprint:
    """Footprint of a stage for one micro-batch.

    Mini-batches that are copied during a step are on the device twice; a stage that only copies labels holds only the
    labels twice. Valid for: layers that run one after the other. Ignores: fragmentation beyond the policy's overhead.
    """
    stage, target = timed.stage, prepared.target
    memory, samples = stage.lowered.memory(stage.subject.graph), prepared.samples(stage)
    overhead = memory.pool_overhead
    ahead_bytes = prepared.stage_copies(stage)[1].copied_bytes
    is_doubled = bool(ahead_bytes.any() if isinstance(ahead_bytes, np.ndarray) else ahead_bytes)
    input_bytes = (1 + is_doubled) * memory.input_bytes_per_sample * samples * overhead
    if is_doubled and not stage.is_fed:
        input_bytes = input_bytes / 2 + ahead_bytes
    activations, gradients = memory.moments.peak(samples)
    workspace = workspace_bytes(memory, stage.lowered.table, timed.groups.chosen, batch_size=samples)
    return MemoryFootprint(
        weights_bytes=memory.weights_bytes * overhead,
        gradients_bytes=gradients * overhead,
        optimizer_bytes=memory.optimizer_bytes * overhead,
        activations_bytes=activations * overhead,
        workspace_bytes=workspace * overhead,
        input_bytes=input_bytes,
        context_bytes=target.context_bytes,
        capacity_bytes=target.capacity_bytes,
    )


def _apart(prepared: Prepared, stage: Stage, alone: MemoryFootprint) -> MemoryFootprint:
    """Footprint with all gradients, at the peak of activations. [B]"""
    memory, samples = stage.lowered.memory(stage.subject.graph), prepared.samples(stage)
    activations, _ = memory.activations.peak(samples)
    overhead = memory.pool_overhead
    widened = max(1.0, prepared.gradient_bytes / memory.rules.parameter_bytes)
    return replace(
        alone, activations_bytes=activations * overhead, gradients_bytes=widened * memory.gradient_bytes * overhead
    )


def _waiting_bytes(prepared: Prepared, stage: Stage) -> Any:
    """Bytes of a micro-batch kept from its forward to its backward phase, without the stage's input. [B]"""
    if not prepared.trains:
        return 0.0
    rules = stage.lowered.memory(stage.subject.graph).rules
    live = stage.subject.graph.liveness(rules=rules, input_gradient=bool(stage.subject.input_gradient))
    constant, slope = live.kept
    return (float(constant) + float(slope) * prepared.samples(stage)) * prepared.profile.memory.pool_overhead
