"""The summary of a layer graph: one row per layer, printed, in a notebook or as a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from perfmodel.graph.execution import LayerOperations
from perfmodel.graph.node import Node
from perfmodel.layers.checks import is_open_size
from perfmodel.layers.shapes import shape_text
from perfmodel.numeric import expanded
from perfmodel.presentation.quantities import cell_text, counted
from perfmodel.presentation.results import Result
from perfmodel.presentation.tables import Table
from perfmodel.records import Phase, Work
from perfmodel.units import GIGA

HEADINGS: Final = {
    "output_shape": "output",
    "parameter_count": "parameters",
    "forward_flop_count": "forward",
    "backward_flop_count": "backward",
    "forward_bytes": "moved forward",
    "saved_bytes": "kept",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSummary:
    """One layer: shape, parameters and work."""

    layer: str
    kind: str
    output_shape: str
    parameter_count: int
    forward_flop_count: int
    backward_flop_count: int
    forward_bytes: int
    saved_bytes: int


@dataclass(frozen=True, slots=True)
class GraphSummary(Result):
    """The layers of a graph at one batch size."""

    name: str
    batch_size: int
    rows: Table[LayerSummary]
    nonzero_count: int

    @property
    def parameter_count(self) -> int:
        """Trainable parameters [1]."""
        return sum(row.parameter_count for row in self.rows)

    @property
    def forward_flop_count(self) -> int:
        """Arithmetic of the forward phase [FLOP]."""
        return sum(row.forward_flop_count for row in self.rows)

    @property
    def backward_flop_count(self) -> int:
        """Arithmetic of the backward phase [FLOP]."""
        return sum(row.backward_flop_count for row in self.rows)

    def _shown(self) -> Table[LayerSummary]:
        return self.table

    @property
    def table(self) -> Table[LayerSummary]:
        """The rows as printed, under a title with the totals."""
        is_pruned = expanded(self.parameter_count - self.nonzero_count) != 0
        left = f" ({cell_text(self.nonzero_count)} left by pruning)" if is_pruned else ""
        title = (
            f"{self.name}: {counted(len(self.rows), 'layer')}, {cell_text(self.parameter_count)} parameters{left}; "
            f"batch size {self.batch_size}: {_flop_text(self.forward_flop_count)} forward, "
            f"{_flop_text(self.backward_flop_count)} backward"
        )
        return Table(self.rows, title=title, headings=HEADINGS, row_type=LayerSummary)


def _flop_text(flop_count: Any) -> str:
    """Write arithmetic in GFLOP, or as an expression if sizes are symbolic."""
    if is_open_size(flop_count):
        return f"{expanded(flop_count)} FLOP"
    return f"{flop_count / GIGA:.3f} GFLOP"


def summarise(
    name: str,
    nodes: Sequence[Node],
    pairs: Mapping[Phase, LayerOperations],
    *,
    batch_size: int,
    element_bytes: int,
) -> GraphSummary:
    """Return the summary of a graph from its layers and their operations."""
    works: dict[Phase, dict[str, Work]] = {}
    for phase, of_phase in pairs.items():
        by_layer = works.setdefault(phase, {})
        for layer, operation in of_phase:
            by_layer[layer] = by_layer.get(layer, Work()) + operation.work(element_bytes=element_bytes)
    rows = [
        LayerSummary(
            layer=node.name,
            kind=node.layer.kind,
            output_shape=shape_text(node.output_shape),
            parameter_count=node.parameter_count,
            forward_flop_count=works[Phase.FORWARD].get(node.name, Work()).flop_count,
            backward_flop_count=works[Phase.BACKWARD].get(node.name, Work()).flop_count,
            forward_bytes=works[Phase.FORWARD].get(node.name, Work()).moved_bytes,
            saved_bytes=node.saved_bytes(batch_size=batch_size, element_bytes=element_bytes),
        )
        for node in nodes
    ]
    nonzero_count = sum(node.nonzero_count for node in nodes)
    return GraphSummary(name, batch_size, Table(rows, headings=HEADINGS, row_type=LayerSummary), nonzero_count)
