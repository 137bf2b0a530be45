"""Tables of a prediction: the operations of its step, and the stages of a network on several devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from perfmodel.derived import derived
from perfmodel.framework.measured_lowering import pass_class
from perfmodel.presentation.tables import Table
from perfmodel.records import Phase

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.parallelism.base import Exchange, Layout
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.job.stage import TimedStage, TimedStep


class LayerRow(NamedTuple):
    """One operation of the step.

    Parameters
    ----------
    layer : str
        Name of the layer. [-]
    phase : str
        ``forward``, ``backward`` or ``update``. [-]
    role : str
        ``output``, ``input_gradient``, ``weight_gradient`` or ``update``. [-]
    kernel : str
        The alternative that was chosen. [-]
    launches : float
        Kernels launched. [1]
    flop_count : float
        Arithmetic actually executed (a Winograd kernel executes less than its convolution counts). [FLOP]
    bytes : float
        Device-memory traffic. [B]
    seconds : float
        Kernel time and launch gaps. [s]
    bound_by : str
        ``compute``, ``memory_bandwidth`` or ``launch``: the largest part of ``seconds``. [-]
    """

    layer: str
    phase: str
    role: str
    kernel: str
    launches: float
    flop_count: float
    bytes: float
    seconds: float
    bound_by: str


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Consecutive layers on one device, operation by operation, with all micro-batches together."""

    prepared: Prepared
    timed: TimedStage

    @property
    def table(self) -> KernelTable:
        """The lowered layers."""
        return self.timed.stage.lowered.table

    @property
    def repeats(self) -> Mapping[Phase, float]:
        """Number of times a phase runs in a step; empty if each runs once. [1]"""
        layout = self.prepared.layout
        if self.prepared.is_whole:
            return {}
        return {
            Phase.FORWARD: layout.parts,
            Phase.BACKWARD: layout.parts,
            Phase.UPDATE: layout.update_share,
        }

    @property
    def names(self) -> Mapping[str, str]:
        """Name of a lowered layer -> its name in the network; empty if all are the same."""
        lowered, placed = self.timed.stage.subject.graph, self.timed.stage.placed.graph
        if lowered is placed:
            return {}
        return {short.name: node.name for short, node in zip(lowered.layers, placed.layers, strict=True)}

    def rows(self) -> list[LayerRow]:
        """Return every operation in execution order, with repetitions summed."""
        groups, table = self.timed.groups, self.table
        labels, repeats, names_of = _labels(table), self.repeats, self.names
        launch_s = groups.launches * self.timed.numbers.launch_s
        seconds = groups.compute_s + groups.memory_s + launch_s
        by_branch = np.array((groups.compute_s, groups.memory_s, launch_s)).argmax(axis=0)
        flop_count, moved_bytes = totals_of_alternatives(self.timed).take(groups.chosen, axis=1)
        numbers = np.array((groups.launches, flop_count, moved_bytes, seconds)).take(labels.groups, axis=1)
        if repeats:
            numbers = numbers * np.array([repeats.get(phase, 1) for phase in labels.each_phase])
        names = [names_of.get(name, name) for name in labels.layers] if names_of else labels.layers
        kernels = labels.kernels[groups.chosen[labels.groups]].tolist()
        branches = _BRANCHES[by_branch[labels.groups]].tolist()
        columns = (names, labels.phases, labels.roles, kernels, *numbers.tolist(), branches)
        return list(map(tuple.__new__, repeat(LayerRow), zip(*columns, strict=True)))  # in two thirds of _make

    def classes(self) -> list[str]:
        """Return the class of each row: the kind of its operation, or of its kernel if it is a pass over memory."""
        kinds, kernels = self.table.operation_kinds, self.table.alternative_names
        return [
            pass_class(kernels[self.timed.groups.chosen[group]]) if kinds[group] == "memory_pass" else kinds[group]
            for group in _labels(self.table).groups.tolist()
        ]


def totals_of_alternatives(timed: TimedStage) -> NDArray[Any]:
    """FLOP and bytes of every alternative, all launches together, one after the other. [FLOP, B]"""
    table, (matmul, stream, launches, *_) = timed.stage.lowered.table, timed.columns
    of_products = 2.0 * matmul["count"] * matmul["m"] * matmul["n"] * matmul["k"]
    moved_bytes = [kernels["read_bytes"] + kernels["written_bytes"] for kernels in (matmul, stream)]
    amounts = np.concatenate([of_products, stream["flop_count"], *moved_bytes]).reshape(2, *launches.shape)
    of_rows = (amounts * launches).take(table.row_order, axis=1)
    totals: NDArray[Any] = np.add.reduceat(of_rows, table.alternative_starts, axis=1)
    return totals


_BRANCHES: Final = np.array(("compute", "memory_bandwidth", "launch"), dtype=object)


class _Labels(NamedTuple):
    """Names of a table's operations in execution order, each with its group, and of its alternatives."""

    layers: list[str]
    each_phase: list[Phase]
    phases: list[str]
    roles: list[str]
    groups: NDArray[np.intp]
    kernels: NDArray[np.object_]


@derived
def _labels(table: KernelTable) -> _Labels:
    listed = table.occurrences
    return _Labels(
        layers=[occurrence.layer for occurrence in listed],
        each_phase=[occurrence.phase for occurrence in listed],
        phases=[occurrence.phase.value for occurrence in listed],
        roles=[occurrence.role.value for occurrence in listed],
        groups=np.array([occurrence.group for occurrence in listed], dtype=np.intp),
        kernels=np.array(table.alternative_names, dtype=object),
    )


def pieces_of(prepared: Prepared, timed: TimedStep) -> list[Piece]:
    """List the stages of the device that works longest, in the order of the network."""
    longest = timed.composed.longest
    return [Piece(prepared, stage) for stage in timed.stages if stage.stage.placed.device == longest]


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage of a network on several devices.

    Parameters
    ----------
    stage : int
        Its number in the order of the network. [1]
    devices : str
        Its devices in the first data-parallel worker; the others have the same. [-]
    layers : int
        Layers. [1]
    computing_s : float
        Forward and backward phases of all micro-batches on one device. [s]
    memory_bytes : float
        What such a device keeps for all its stages. [B]
    sent_bytes : float
        What such a device sends in a step for this stage. [B]
    """

    stage: int
    devices: str
    layers: int
    computing_s: float
    memory_bytes: float
    sent_bytes: float


NO_STAGES: Final[Table[StageRow]] = Table((), row_type=StageRow)
"""The stage table of a network that is not cut."""


def stage_rows(prepared: Prepared, timed: TimedStep) -> Table[StageRow]:
    """List the stages with computing time, memory and sent bytes."""
    layout, memory = prepared.layout, prepared.footprints(timed)
    rows = []
    for index, (stage, work) in enumerate(zip(prepared.stages, timed.composed.stages, strict=True)):
        placed = stage.placed
        width = layout.tensor_size * placed.batch_factor
        first = placed.device * layout.tensor_size
        rows.append(
            StageRow(
                stage=index,
                devices=", ".join(prepared.names[first : first + width]),
                layers=len(placed.graph.layers),
                computing_s=layout.parts * float(work.times.forward.step_s + work.times.backward.step_s),
                memory_bytes=float(memory[placed.device].total_bytes),
                sent_bytes=sum(
                    _count(exchange, layout) * prepared.sent_bytes(exchange, stage) for exchange in placed.exchanges
                ),
            )
        )
    headings = {"computing_s": "computing", "memory_bytes": "memory of the device", "sent_bytes": "sent"}
    return Table(rows, headings=headings, row_type=StageRow)


def _count(exchange: Exchange, layout: Layout) -> int:
    """Count the times an exchange happens in one step. [1]"""
    sums_gradients = exchange.group == "data" and exchange.kind != "all_gather"
    stays = exchange.phase is Phase.UPDATE or (exchange.group == "data" and layout.gathers_once)
    once = not layout.reduces_each if sums_gradients else stays
    return 1 if once else layout.parts
