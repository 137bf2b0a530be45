"""A lowered graph: its kernel table and memory, made once per graph and set of rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perfmodel.derived import kept
from perfmodel.framework.kernel_table import (
    PROBE_BATCH_SIZES,
    KernelTable,
    LayerOperation,
    build_kernel_table,
)
from perfmodel.prediction.memory.footprint import GraphMemory, graph_memory
from perfmodel.records import ELEMENT_BYTES, Phase

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.graph import LayerGraph
    from perfmodel.hardware.library import LibrarySupport
    from perfmodel.layers.optimizers import Optimizer

Operations = list[list[LayerOperation]]
"""Operations in the order in which they run, at each of ``PROBE_BATCH_SIZES``."""


@dataclass(frozen=True, slots=True, eq=False)
class LoweredGraph:
    """A graph lowered by a framework's rules: everything in a step that depends on neither batch size nor hardware.

    Parameters
    ----------
    table : KernelTable
        The lowered graph. [-]
    memory_rules : mapping of str to object
        Further arguments of ``graph_memory``. [-]
    """

    table: KernelTable
    memory_rules: Mapping[str, Any]
    _memory: list[GraphMemory] = field(default_factory=list)

    def memory(self, graph: LayerGraph) -> GraphMemory:
        """Memory of the step, computed on first use.

        Parameters
        ----------
        graph : LayerGraph
            The graph that was lowered; holding it here would keep it alive. [-]

        Returns
        -------
        GraphMemory
            Per sample. [-]
        """
        if not self._memory:
            self._memory.append(graph_memory(graph, self.table, **self.memory_rules))
        return self._memory[0]


MOST_LOWERED = 64
"""Lowered forms cached per graph; the oldest is dropped first. [1]"""

MOST_OPERATIONS = 12
"""Operation lists cached per graph, one per way to run a phase; devices and frameworks share them. [1]"""


def _operations_of(
    graph: LayerGraph, *, part: Phase, optimizer: Optimizer, input_gradient: bool, recompute: str | None
) -> Operations:
    """Operations of a single phase at each probing batch size, the same for all frameworks and devices."""
    options: dict[str, Any] = {"optimizer": optimizer}
    if part is Phase.BACKWARD:
        options |= {"input_gradient": input_gradient, "recompute": recompute}

    def make() -> Operations:
        return [
            [
                LayerOperation(layer, part, operation)
                for layer, operation in graph.unchecked_operations(size, phase=part, **options)
            ]
            for size in PROBE_BATCH_SIZES
        ]

    operations: Operations = kept(graph.kept("operations"), (part, *options.values()), make, most=MOST_OPERATIONS)
    return operations


def _probed_operations(
    graph: LayerGraph, *, phase: Phase, optimizer: Optimizer, input_gradient: bool, recompute: str | None
) -> Operations:
    """Operations of all phases in execution order, at each probing batch size."""
    options: dict[str, Any] = {"optimizer": optimizer, "input_gradient": input_gradient, "recompute": recompute}
    parts = [_operations_of(graph, part=part, **options) for part in phase.parts]
    return [[each for part in at_size for each in part] for at_size in zip(*parts, strict=True)]


def lowered_graph(
    graph: LayerGraph,
    *,
    phase: Phase,
    optimizer: Optimizer,
    input_gradient: bool,
    dtype: str,
    profile: FrameworkProfile,
    processor: str,
    support: LibrarySupport,
    recompute: str | None = None,
    lowered_for: str | None = None,
) -> LoweredGraph:
    """Lower a graph by a framework's rules, once."""
    lowering = getattr(profile, processor).lowering
    # Rules are frozen, so the same id means the same content; the entry keeps them alive so that no id is reused.
    key = (
        phase, optimizer, input_gradient, dtype, processor, support,
        recompute, lowered_for, id(lowering), id(profile.memory),
    )  # fmt: skip

    def make() -> tuple[Any, LoweredGraph]:
        element_bytes = ELEMENT_BYTES[dtype]
        table = build_kernel_table(
            _probed_operations(
                graph, phase=phase, optimizer=optimizer, input_gradient=input_gradient, recompute=recompute
            ),
            rules=lowering.rules(support),
            element_bytes=element_bytes,
            processor=lowered_for or processor,
        )
        memory_rules = {
            "phase": phase,
            "optimizer": optimizer,
            "element_bytes": element_bytes,
            "policy": profile.memory,
            "input_gradient": input_gradient,
            "recompute": recompute,
        }
        return (lowering, profile.memory), LoweredGraph(table, memory_rules)

    lowered: LoweredGraph = kept(graph.kept("lowered"), key, make, most=MOST_LOWERED)[1]
    return lowered
