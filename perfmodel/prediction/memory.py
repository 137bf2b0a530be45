"""What a step keeps in memory: weights, gradients, optimizer state, activations, workspace, input, context."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.records import Phase

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.framework.profile import MemoryTable
    from perfmodel.graph import LayerGraph
    from perfmodel.layers.optimizers import Optimizer

Quantity = Any


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Memory of a graph under a framework's policy, as coefficients of the batch size.

    Parameters
    ----------
    weights_bytes, gradients_bytes, optimizer_bytes : float
        Independent of the batch size. [B]
    activation_bytes_per_sample : float
        Outputs and buffers kept from forward to backward, with their gradients. [B/sample]
    saved_constant_bytes : float
        Buffers kept for back-propagation whatever the batch size. [B]
    input_bytes_per_sample : float
        Network inputs and labels. [B/sample]
    workspace_groups : ndarray, shape (entries,)
        Group of the kernel table of each operation that may use a workspace, sorted by layer. [1]
    workspace_layer_starts : ndarray, shape (layers,)
        First entry of each layer in ``workspace_groups``. [1]
    workspaces_per_layer : int or None
        Scratch buffers each layer keeps; None where the largest serves all. [1]
    pool_overhead : float
        Memory the allocator holds over memory in use. [1]
    """

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activation_bytes_per_sample: float
    saved_constant_bytes: float
    input_bytes_per_sample: float
    workspace_groups: NDArray[np.intp]
    workspace_layer_starts: NDArray[np.intp]
    workspaces_per_layer: int | None
    pool_overhead: float


@dataclass(frozen=True, slots=True)
class MemoryFootprint:
    """Bytes of device memory that a step needs, by what they hold.

    Parameters
    ----------
    weights_bytes, gradients_bytes, optimizer_bytes : float or ndarray
        Parameters, their gradients, and the optimizer's state. [B]
    activations_bytes : float or ndarray
        Outputs kept for back-propagation, their gradients and the layers' own buffers. [B]
    workspace_bytes : float or ndarray
        Scratch memory of the chosen convolution algorithms. [B]
    input_bytes : float or ndarray
        Network inputs and labels. [B]
    context_bytes : float
        Driver context and libraries. [B]
    capacity_bytes : float
        What the device offers. [B]
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
        """Whether the device holds it; None where nobody says how much memory there is."""
        if np.ndim(self.capacity_bytes) == 0 and np.isinf(self.capacity_bytes):
            return None
        fits = self.total_bytes <= self.capacity_bytes
        return bool(fits) if np.ndim(fits) == 0 else fits


def _activation_elements(graph: LayerGraph, policy: MemoryTable) -> tuple[list[float], float]:
    """Return kept output elements of each layer in order, and elements of the policy's extra buffers, per sample."""
    kept: list[float] = []
    extra = 0.0
    for node in graph.layers:
        elements = node.output_elements
        extra += policy.extra_buffers.get(node.layer.kind, 0.0) * elements
        if node.layer.is_view or node.layer.kind in policy.in_place:
            continue
        kept.append(elements)
    return kept, extra


def memory_plan(
    graph: LayerGraph,
    table: KernelTable,
    *,
    phase: Phase,
    optimizer: Optimizer,
    element_bytes: int,
    policy: MemoryTable,
) -> MemoryPlan:
    """Work out what a graph keeps in memory under a framework's policy.

    Parameters
    ----------
    graph : LayerGraph
        What is computed. [-]
    table : KernelTable
        The lowered graph. [-]
    phase : Phase
        FORWARD keeps two neighbouring activations and no gradients; any other keeps what back-propagation needs. [-]
    optimizer : Optimizer
        Whose state is kept where the phase has an update. [-]
    element_bytes : int
        Size of one element. [B]
    policy : MemoryTable
        The framework's policy. [-]

    Returns
    -------
    MemoryPlan
        Coefficients of the batch size.
    """
    trains = phase is not Phase.FORWARD
    kept, extra = _activation_elements(graph, policy)
    widest_pair = max((first + second for first, second in pairwise([graph.input_elements, *kept])), default=0.0)
    if not trains:
        # The network's input is counted as such.
        activation_elements: float = max((first + second for first, second in pairwise([0.0, *kept])), default=0.0)
    elif policy.activation_gradients == "kept":
        activation_elements = 2 * sum(kept) + extra
    else:
        activation_elements = sum(kept) + extra + widest_pair
    saved_one, saved_two = (
        sum(node.saved_bytes(batch_size=batch_size, element_bytes=element_bytes) for node in graph.layers)
        if trains
        else 0.0
        for batch_size in (1, 2)
    )
    weights_bytes = float(element_bytes * graph.parameter_count)
    updates = Phase.UPDATE in phase.parts
    workspace_groups, workspace_layer_starts = _workspace_entries(table)
    return MemoryPlan(
        weights_bytes=weights_bytes,
        gradients_bytes=weights_bytes if trains else 0.0,
        optimizer_bytes=weights_bytes * optimizer.state_elements_per_parameter if updates else 0.0,
        activation_bytes_per_sample=element_bytes * activation_elements + (saved_two - saved_one),
        saved_constant_bytes=2 * saved_one - saved_two,
        input_bytes_per_sample=element_bytes * graph.input_elements + graph.label_bytes_per_sample,
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


def workspace_bytes(plan: MemoryPlan, table: KernelTable, chosen: Quantity, *, batch_size: Quantity) -> Quantity:
    """Return scratch memory of the chosen alternatives.

    Parameters
    ----------
    plan : MemoryPlan
        Which operations may use a workspace, and whether layers share it. [-]
    table : KernelTable
        The lowered graph. [-]
    chosen : ndarray, shape (groups,)
        Alternative each group takes. [1]
    batch_size : float
        Samples per step. [samples]

    Returns
    -------
    float
        Scratch memory: the largest of all operations where it is shared, else the sum over layers of the largest
        of each, times the buffers a layer keeps. [B]
    """
    if not plan.workspace_groups.size:
        return 0.0
    needed = table.workspace.at(batch_size)["workspace_bytes"][chosen[plan.workspace_groups]]
    if plan.workspaces_per_layer is None:
        return needed.max()
    largest_of_layers = np.maximum.reduceat(needed, plan.workspace_layer_starts)
    return plan.workspaces_per_layer * largest_of_layers.sum()


def memory_footprint(
    plan: MemoryPlan,
    *,
    batch_size: Quantity,
    workspace_bytes: Quantity,
    context_bytes: Quantity,
    capacity_bytes: Quantity,
) -> MemoryFootprint:
    """Return the footprint at a batch size.

    Parameters
    ----------
    plan : MemoryPlan
        Coefficients. [-]
    batch_size : float or ndarray
        Samples per step. [samples]
    workspace_bytes : float or ndarray
        Scratch memory of the chosen algorithms. [B]
    context_bytes, capacity_bytes : float or ndarray
        Of the device. [B]

    Returns
    -------
    MemoryFootprint
        Bytes by what they hold. [B]

    Notes
    -----
    Valid for: training with every activation kept until its backward pass. Ignores: fragmentation beyond the
    policy's pool overhead.
    """
    overhead = plan.pool_overhead
    return MemoryFootprint(
        weights_bytes=plan.weights_bytes * overhead,
        gradients_bytes=plan.gradients_bytes * overhead,
        optimizer_bytes=plan.optimizer_bytes * overhead,
        activations_bytes=(plan.activation_bytes_per_sample * batch_size + plan.saved_constant_bytes) * overhead,
        workspace_bytes=workspace_bytes * overhead,
        input_bytes=plan.input_bytes_per_sample * batch_size * overhead,
        context_bytes=context_bytes,
        capacity_bytes=capacity_bytes,
    )
