"""Reuse distance: traffic between two uses of the same data in a step, and how much of the data is cold by then.

Kernels run in the order of the table's occurrences, step after step. Data that the previous operation just wrote is
near: only the operation's own traffic lies between, just as when a kernel is repeated for measuring; so the measured
curve includes it. Data last used long ago is far: the weights of a forward operation (last used one step ago), forward
results that back-propagation reads and no layer has read since, and everything that an optimizer touches. In training,
forward results are also written to memory last used one step ago, unless they overwrite their input.

A tensor is named after the layer that first wrote its memory; views and in-place results share it. Weights are the
memory of their own layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.cost.measured_kernel import cold_share
from perfmodel.framework.measured_lowering import family_of, is_product_class
from perfmodel.graph.execution import wants_gradient
from perfmodel.graph.storage import kept_inputs, kept_tensors, shared_storage
from perfmodel.numeric import maximum, minimum
from perfmodel.records import Phase, Role
from perfmodel.symbolic import Quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.framework.kernel_table import KernelTable, Occurrence
    from perfmodel.graph import LayerGraph


KEPT_SHARE: Final = 0.5
"""Share of a backward pass's reads that are forward results; the rest is the arriving gradient. [1]"""


GRADIENTS_OF_WEIGHTS: Final = (Role.WEIGHT_GRADIENT.value, "scatter_add")
"""Suffixes of classes that compute weight gradients. [-]"""


@dataclass(frozen=True, slots=True, eq=False)
class StepOrder:
    """The order of a step's kernels, as indices."""

    row: NDArray[np.intp]
    last_use: NDArray[np.intp]
    a_step_ago: NDArray[np.bool_]
    phase: NDArray[np.str_]
    begins_backward: NDArray[np.bool_]

    @property
    def trains(self) -> bool:
        """Whether the step has a backward phase."""
        return bool((self.phase == Phase.BACKWARD).any())

    def mean_by_row(self, values: Quantity, row_count: int) -> Quantity:
        """Mean over the operations behind each row."""
        order = np.argsort(self.row, kind="stable")
        starts = np.searchsorted(self.row[order], np.arange(row_count))
        counts = np.bincount(self.row, minlength=row_count)
        sums = np.add.reduceat(values[order], starts, axis=0)
        return sums / (
            counts.reshape(-1, *[1] * (values.ndim - 1)) if values.dtype != object else counts.astype(object)
        )


@lru_cache(maxsize=64)
def step_order(table: KernelTable) -> StepOrder:
    """Order of the kernels of a step."""
    row_of_group = table.row_order[table.alternative_starts[table.choices[0]]]
    final: dict[str, dict[Phase, int]] = {}
    for place, occurrence in enumerate(table.occurrences):
        final.setdefault(occurrence.layer, {})[occurrence.phase] = place
    last_use, a_step_ago = [], []
    current: dict[str, list[tuple[Phase, int]]] = {}
    for place, occurrence in enumerate(table.occurrences):
        uses = current.setdefault(occurrence.layer, [])
        earlier = [where for phase, where in uses if phase is not occurrence.phase]
        others = [where for phase, where in final[occurrence.layer].items() if phase is not occurrence.phase]
        last_use.append(earlier[-1] if earlier else max(others, default=place))
        a_step_ago.append(not earlier)
        if uses and uses[-1][0] is occurrence.phase:
            uses[-1] = (occurrence.phase, place)
        else:
            uses.append((occurrence.phase, place))
    before = [None, *table.occurrences]
    begins = [
        now.phase is Phase.BACKWARD and (last is None or (last.layer, last.phase) != (now.layer, now.phase))
        for last, now in zip(before, table.occurrences, strict=False)
    ]
    return StepOrder(
        row=row_of_group[[occurrence.group for occurrence in table.occurrences]],
        last_use=np.array(last_use, dtype=np.intp),
        a_step_ago=np.array(a_step_ago, dtype=bool),
        phase=np.array([occurrence.phase.value for occurrence in table.occurrences]),
        begins_backward=np.array(begins, dtype=bool),
    )


def _kept_operand(name: str, columns: dict[str, Quantity], element_bytes: int) -> Quantity:
    """Bytes of a product's operand that is neither the gradient nor a recently written activation. [B]"""
    m, n, k, count, read = (columns[key] for key in ("m", "n", "k", "count", "read_bytes"))
    of_weights = name.endswith(Role.WEIGHT_GRADIENT.value)
    if family_of(name) == "convolution":
        kept = read - element_bytes * count * m * k if of_weights else element_bytes * count * k * n
    elif name == "batched_gemm_output":
        kept = 0 * read
    else:
        kept = element_bytes * count * (m * k if of_weights else k * n)
    return maximum(minimum(kept, read), 0)


def _kept_operands(table: KernelTable, matmul: dict[str, Quantity], element_bytes: int) -> Quantity:
    kept = 0 * matmul["read_bytes"]
    for name in dict.fromkeys(table.matmul_efficiency):
        rows = np.array([class_name == name for class_name in table.matmul_efficiency])
        kept[rows] = _kept_operand(name, {key: column[rows] for key, column in matmul.items()}, element_bytes)
    return kept


def cold_bytes(
    table: KernelTable,
    *,
    memory: Mapping[str, LayerMemory],
    batch_size: Quantity,
    element_bytes: int,
    cache_bytes: float,
) -> Quantity:
    r"""Bytes of each kernel row that are cold in a step but in a cache when the kernel is repeated.

    .. math:: B_\text{cold} = B_\text{far} \, [s(D_\text{far}) - s(B)]

    B is all bytes of a kernel; B_far those last used long ago (operands, and weight gradients, whose memory the
    optimizer last used a step ago); D_far the traffic since then, the kernel's own too; s the cold share. [B]

    Notes
    -----
    Valid for: layers one after the other. Ignores: shortcuts, by which a forward operation reads an old activation, and
    the choice of memory by an allocator.
    """
    order = step_order(table)
    matmul, stream = table.matmul.at(batch_size), table.stream.at(batch_size)
    read, written = (np.concatenate([matmul[key], stream[key]])[order.row] for key in ("read_bytes", "written_bytes"))
    operands = _kept_operands(table, matmul, element_bytes)
    tables_read = [name == "gather" for name in table.stream_efficiency]
    looked_up = (stream["read_bytes"].T * np.array(tables_read, dtype=int)).T
    forward_kept = np.concatenate([operands, looked_up])[order.row]
    backward_kept = np.concatenate([operands, KEPT_SHARE * stream["read_bytes"]])[order.row]
    moved = read + written
    far = 0 * moved
    forward, backward, update = (order.phase == phase.value for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE))
    classes = [(*table.matmul_efficiency, *table.stream_efficiency)[row] for row in order.row]
    last_kept = last_kept_use(table.occurrences, classes, memory=memory, last_use=order.last_use.tolist())
    reads_kept = np.array([use is not None for use in last_kept])
    layers = [occurrence.layer for occurrence in table.occurrences]
    anew = np.array([layer not in memory or not memory[layer].in_place for layer in layers])
    far[forward] = forward_kept[forward]
    if order.trains:
        far[forward & anew] = far[forward & anew] + written[forward & anew]
    far[backward & reads_kept] = backward_kept[backward & reads_kept]
    far[update] = moved[update]
    after = np.cumsum(moved, axis=0)
    distance = after - after[[place if use is None else use for place, use in enumerate(last_kept)]]
    distance[order.a_step_ago] = distance[order.a_step_ago] + after[-1]
    beyond = cold_share(distance_bytes=distance, cache_bytes=cache_bytes)
    repeated = cold_share(distance_bytes=moved, cache_bytes=cache_bytes)
    cold = far * (beyond - repeated)
    gradients, updated = _written_gradients(table.occurrences, classes)
    since = after[gradients] - after[updated] + after[-1]  # a step ago
    beyond = cold_share(distance_bytes=since, cache_bytes=cache_bytes)
    cold[gradients] = cold[gradients] + written[gradients] * (beyond - repeated[gradients])
    return order.mean_by_row(cold, table.matmul.row_count + table.stream.row_count)


def _written_gradients(occurrences: Sequence[Occurrence], classes: Sequence[str]) -> tuple[list[int], list[int]]:
    """Operations that write weight gradients, each with the update that last used its memory."""
    updates = {operation.layer: place for place, operation in enumerate(occurrences) if operation.phase is Phase.UPDATE}
    gradients = [
        place
        for place, (occurrence, name) in enumerate(zip(occurrences, classes, strict=True))
        if occurrence.phase is Phase.BACKWARD and name.endswith(GRADIENTS_OF_WEIGHTS) and occurrence.layer in updates
    ]
    return gradients, [updates[occurrences[place].layer] for place in gradients]


GRADIENTS_ALONE: Final = frozenset({"gradient_sum_backward", "bias_gradient_backward", "broadcast_sum_backward"})
"""Backward passes that read nothing from the forward pass, whatever their layer keeps."""

Memory = tuple[str, str]
"""Layer that names the memory, and whether it holds ``data`` or ``weights``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemory:
    """The memory that one layer touches."""

    forward: tuple[Memory, ...]
    kept: tuple[Memory, ...]
    weights: Memory
    has_weights: bool
    in_place: bool


def layer_memory(graph: LayerGraph) -> dict[str, LayerMemory]:
    """Memory that each layer of a network touches."""
    nodes = graph.layers
    wanted = wants_gradient(graph.input_shapes, nodes, input_gradient=False)
    source = shared_storage(nodes, in_place_kinds=(), kept=kept_tensors(nodes, wanted=wanted), stays=graph.input_shapes)

    def data(name: str) -> Memory:
        while name in source:
            name = source[name]
        return (name, "data")

    memory_of = {}
    for node in nodes:
        kept = [*kept_inputs(node, wanted=wanted), *([node.name] if node.layer.keeps_output else [])]
        memory_of[node.name] = LayerMemory(
            forward=tuple(map(data, (*node.input_names, node.name))),
            kept=tuple(map(data, kept)),
            weights=(node.name, "weights"),
            has_weights=bool(node.layer.parameter_shapes(node.input_shapes)),
            in_place=node.name in source and not node.layer.is_view,
        )
    return memory_of


def last_kept_use(
    occurrences: Sequence[Occurrence],
    classes: Sequence[str],
    *,
    memory: Mapping[str, LayerMemory],
    last_use: Sequence[int],
) -> list[int | None]:
    """For each operation, the last use of the forward results it reads.

    The output that a non-linearity keeps was just read by the next layer's weight gradient. Passes of a layer all read
    the same data; its products each read a different operand.
    """
    touched: dict[Memory, int] = {}
    of_products: dict[Memory, int] = {}  # of the layer that runs now
    current = ""
    last_uses: list[int | None] = []
    for place, (occurrence, name) in enumerate(zip(occurrences, classes, strict=True)):
        if occurrence.layer != current:
            touched |= of_products
            of_products, current = {}, occurrence.layer
        layer_memory = memory.get(occurrence.layer)
        if occurrence.phase is not Phase.BACKWARD or occurrence.role is Role.OUTPUT or layer_memory is None:
            last_uses.append(last_use[place])
            if layer_memory is not None and occurrence.phase is not Phase.UPDATE:
                touched |= dict.fromkeys((*layer_memory.forward, layer_memory.weights), place)
            continue
        is_product = is_product_class(name)
        reads_weights = is_product and occurrence.role is Role.INPUT_GRADIENT and layer_memory.has_weights
        read = () if name in GRADIENTS_ALONE else (layer_memory.weights,) if reads_weights else layer_memory.kept
        last_uses.append(min((touched.get(operand, last_use[place]) for operand in read), default=None))
        (of_products if is_product else touched).update(dict.fromkeys(read, place))
    return last_uses
