"""Compare our FLOP counts with torch's, operation by operation."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from perfmodel.calls import CALLER, in_words
from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.graph.node import Node
from perfmodel.layers import Opaque
from perfmodel.layers.shapes import shape_text
from perfmodel.presentation.results import Result
from perfmodel.presentation.tables import Table
from perfmodel.records import Phase, Role, WeightFormat, Work

if TYPE_CHECKING:
    from perfmodel.importers.torch.module import Imported

PHASES: Final = ("forward_backward", "forward")
NOT_IN_GRAPH: Final = "(no layer)"
"""Shown in place of a layer for products outside the graph."""


@in_words
def audit(
    module_or_graph: Any,
    example_inputs: Any = None,
    *,
    phase: str = "forward_backward",
    batch_size: int | None = None,
    batch_axis: int | None = 0,
    progress: bool | None = None,
) -> Audit:
    """Count the matrix products of a network, and those that torch counts if it is a torch module.

    Parameters
    ----------
    module_or_graph : torch.nn.Module or LayerGraph
        The network. [-]
    example_inputs : Tensor, tuple, list, mapping or None
        Inputs of the module's call; None for a graph. [-]
    phase : str
        ``forward_backward``: as it trains; ``forward``: as it infers. [-]
    batch_size : int or None
        Samples of a graph, by default one; a module has those of ``example_inputs``. [samples]
    batch_axis : int or None
        Axis of a module's inputs that holds the samples. [-]
    progress : bool or None
        Whether to show the progress of a module's import; None: on a terminal, after a second. [-]

    Returns
    -------
    Audit
        Prints, renders, ``.to_frame()``, ``.holes``, ``.matches``. [-]

    Raises
    ------
    ArgumentError
        If the arguments conflict.
    TraceError
        If the module cannot be traced.

    Notes
    -----
    The module is traced on tensors without content, its backward phase too; each operator's products are counted by
    the formulas of ``torch.utils.flop_counter``. Fused kernels without such a formula (a CPU's LSTM, its attention) are
    disabled, so that no products count as zero. Products that checkpointed regions run again count in the audit of a
    graph, but in neither column of a module's.
    """
    if phase not in PHASES:
        raise ArgumentError("phase", phase, f"one of {', '.join(PHASES)}")
    if isinstance(module_or_graph, LayerGraph):
        if example_inputs is not None:
            raise ArgumentError("example_inputs", "given", "None for a LayerGraph; pass batch_size")
        return _audit_of_graph(module_or_graph, batch_size=batch_size, phase=phase)
    if example_inputs is None:
        raise ArgumentError("example_inputs", None, "the inputs that the torch module is called with")
    if batch_size is not None:
        allowed = "None for a torch module, which has the batch size of its example inputs"
        raise ArgumentError("batch_size", batch_size, allowed)
    from perfmodel.importers.torch.module import import_torch, messages

    training = phase != "forward"
    imported = import_torch(
        module_or_graph, example_inputs, batch_axis=batch_axis, training=training, progress=progress, counts=True
    )
    for category, message in messages(imported):
        warnings.warn(message, category, stacklevel=CALLER)
    return _audit_of_module(imported, phase=phase)


def _audit_of_graph(graph: LayerGraph, *, batch_size: int | None, phase: str) -> Audit:
    products = _products(graph, batch_size=batch_size, phase=phase)
    rows = [
        AuditRow(
            layer=node.name,
            operator=node.layer.kind,
            shapes=_shapes(node),
            forward_flop_count=products[Phase.FORWARD][node.name],
            backward_flop_count=products[Phase.BACKWARD][node.name],
        )
        for node in graph.layers
    ]
    return _audited(graph, rows, batch_size=batch_size, phase=phase, notes=_packed_notes(graph))


def _audited(
    graph: LayerGraph, rows: Sequence[AuditRow], *, batch_size: int | None, phase: str, notes: tuple[str, ...]
) -> Audit:
    return Audit(
        name=graph.name,
        batch_size=graph.fixed_batch_size or batch_size or 1,
        phase=phase,
        rows=Table([row for row in rows if row.has_products], row_type=AuditRow),
        holes=_holes(graph, batch_size=batch_size, phase=phase),
        notes=notes,
    )


def _packed_notes(graph: LayerGraph) -> tuple[str, ...]:
    """Return a note for each format of stored weights other than one full element per weight."""
    counts: Counter[WeightFormat] = Counter()
    for node in graph.layers:
        if node.usage.weight_format is not None:
            counts[node.usage.weight_format] += node.packed_count
    return tuple(
        f"{count:,} weights are stored as {packed}, {packed.bytes_per_weight(element_bytes=4):.4g} B each in fp32"
        for packed, count in counts.items()
    )


def _audit_of_module(imported: Imported, *, phase: str) -> Audit:
    from perfmodel.importers.torch.traced_run import BackwardProducts, backward_products

    graph, calls = imported.built.graph, imported.run.recording.calls
    products = _products(graph, batch_size=imported.batch_size, phase=phase)
    again = _recomputed(graph, batch_size=imported.batch_size, phase=phase)
    products[Phase.BACKWARD].subtract(again)
    backward = backward_products(imported.run) if phase != "forward" else BackwardProducts({}, {}, 0)
    layers: dict[int, list[Node]] = {}
    for node in graph.layers:
        if node.name in imported.built.steps:
            layers.setdefault(imported.calls[imported.built.steps[node.name]], []).append(node)
    rows = [
        AuditRow(
            layer=made[0].name if made else f"{call.place.path} {NOT_IN_GRAPH}".lstrip(),
            operator=call.operator,
            shapes=_shapes(made[0]) if made else "",
            forward_flop_count=sum(products[Phase.FORWARD][node.name] for node in made),
            backward_flop_count=sum(products[Phase.BACKWARD][node.name] for node in made),
            torch_forward_flop_count=call.product_flop_count,
            torch_backward_flop_count=backward.by_call.get(index, 0),
            torch_excess_flop_count=backward.excess.get(index, 0),
            torch_has_no_formula=call.has_uncounted_products,
        )
        for index, call in enumerate(calls)
        for made in (layers.get(index, []),)
    ]
    if backward.astray:
        row = AuditRow(layer=NOT_IN_GRAPH, operator="backward", torch_forward_flop_count=0)
        rows.append(replace(row, torch_backward_flop_count=backward.astray))
    notes = (*imported.built.notes, *_note_of(again))
    return _audited(graph, rows, batch_size=imported.batch_size, phase=phase, notes=notes)


def _recomputed(graph: LayerGraph, *, batch_size: int, phase: str) -> Counter[str]:
    """Return the products in checkpointed regions that the backward phase runs again [FLOP]."""
    counts: Counter[str] = Counter()
    if Phase.BACKWARD in Phase(phase).parts:
        for layer, operation in graph.operations(batch_size=batch_size, phase=Phase.BACKWARD):
            if operation.role is Role.OUTPUT:
                counts[layer] += operation.product_flop_count
    return counts


def _note_of(again: Counter[str]) -> tuple[str, ...]:
    total = sum(again.values())
    text = (
        f"Run again in the backward phase, and in neither column: {total:,} FLOP of products in checkpointed regions."
    )
    return (text,) if total else ()


def _products(graph: LayerGraph, *, batch_size: int | None, phase: str) -> dict[Phase, Counter[str]]:
    counts: dict[Phase, Counter[str]] = {Phase.FORWARD: Counter(), Phase.BACKWARD: Counter()}
    for part in Phase(phase).parts:
        for layer, operation in graph.operations(batch_size=batch_size, phase=part):
            counts[part][layer] += operation.product_flop_count
    return counts


def _holes(graph: LayerGraph, *, batch_size: int | None, phase: str) -> tuple[AuditHole, ...]:
    flop_counts: Counter[str] = Counter()
    for layer, operation in graph.operations(batch_size=batch_size, phase=phase):
        work: Work = operation.work(element_bytes=4)
        flop_counts[layer] += work.flop_count
    total = sum(flop_counts.values())
    return tuple(
        AuditHole(
            layer=node.name,
            operator=node.layer.operator,
            flop_count=flop_counts[node.name],
            share=flop_counts[node.name] / total,
        )
        for node in graph.layers
        if isinstance(node.layer, Opaque)
    )


def _shapes(node: Node) -> str:
    return f"{', '.join(map(shape_text, node.input_shapes))} -> {shape_text(node.output_shape)}".lstrip()


CONVENTION: Final = (
    "FLOP of matrix products (convolutions, linear layers, attention, recurrences): one multiply-add is 2 FLOP; bias, "
    "activations and norms are left out, as torch's FlopCounterMode does."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """The matrix products of one operation."""

    layer: str
    operator: str
    shapes: str = ""
    forward_flop_count: int = 0
    backward_flop_count: int = 0
    torch_forward_flop_count: int | None = None
    torch_backward_flop_count: int | None = None
    torch_excess_flop_count: int = 0
    torch_has_no_formula: bool = False

    @property
    def difference_flop_count(self) -> int | None:
        """Our count less torch's over both phases, torch's known faults aside [FLOP]; None without a count by torch."""
        theirs = self._by_torch
        return None if theirs is None else sum(self._ours) - sum(theirs)

    @property
    def _ours(self) -> tuple[int, int]:
        return self.forward_flop_count, self.backward_flop_count

    @property
    def _by_torch(self) -> tuple[int, int] | None:
        """What torch's formulas count in both phases, without their known faults."""
        forward, backward = self.torch_forward_flop_count, self.torch_backward_flop_count
        if forward is None or backward is None or self.torch_has_no_formula:
            return None
        return forward, backward - self.torch_excess_flop_count

    @property
    def agrees(self) -> bool:
        """Whether both phases agree to the last digit, torch's known faults aside, or there was no module."""
        return self._by_torch in (None, self._ours)

    @property
    def has_products(self) -> bool:
        """Whether we or torch count any product here."""
        return any((*self._ours, self.torch_forward_flop_count, self.torch_backward_flop_count))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHole:
    """An opaque layer: an operator without its own layer."""

    layer: str
    operator: str
    flop_count: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A row as printed, FLOP to the last digit."""

    layer: str
    operator: str = ""
    shapes: str = ""
    forward: str
    torch_forward: str
    backward: str
    torch_backward: str
    difference: str


HEADINGS: Final = {
    "forward": "forward [FLOP]",
    "torch_forward": "torch [FLOP]",
    "backward": "backward [FLOP]",
    "torch_backward": "torch's backward [FLOP]",
    "difference": "difference [FLOP]",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit(Result):
    """Matrix products of a network, ours and torch's.

    Parameters
    ----------
    name : str
        Name of the graph. [-]
    batch_size : int
        Samples. [samples]
    phase : str
        ``forward_backward`` or ``forward``. [-]
    rows : Table of AuditRow
        One per operation for which we or torch count products. [-]
    holes : tuple of AuditHole
        Opaque layers. [-]
    notes : tuple of str
        Other remarks of the import. [-]
    """

    name: str
    batch_size: int
    phase: str
    rows: Table[AuditRow]
    holes: tuple[AuditHole, ...] = ()
    notes: tuple[str, ...] = ()

    _DICT_KEYS = (
        *("name", "batch_size", "phase", "convention", "matches", "forward_flop_count", "backward_flop_count"),
        *("torch_forward_flop_count", "torch_backward_flop_count", "torch_excess_flop_count", "rows", "holes", "notes"),
    )
    convention = CONVENTION

    @property
    def forward_flop_count(self) -> int:
        """Our products of the forward phase [FLOP]."""
        return sum(row.forward_flop_count for row in self.rows)

    @property
    def backward_flop_count(self) -> int:
        """Our products of the backward phase [FLOP]."""
        return sum(row.backward_flop_count for row in self.rows)

    @property
    def torch_forward_flop_count(self) -> int | None:
        """Products of the forward phase by torch's formulas [FLOP]; None where there was no module."""
        counts = [row.torch_forward_flop_count for row in self.rows if row.torch_forward_flop_count is not None]
        return sum(counts) if counts else None

    @property
    def torch_backward_flop_count(self) -> int | None:
        """Products of the backward phase by torch's formulas [FLOP]; None where there was no module."""
        counts = [row.torch_backward_flop_count for row in self.rows if row.torch_backward_flop_count is not None]
        return sum(counts) if counts else None

    @property
    def torch_excess_flop_count(self) -> int:
        """Arithmetic that torch's formulas are known to overcount [FLOP]."""
        return sum(row.torch_excess_flop_count for row in self.rows)

    @property
    def mismatches(self) -> tuple[AuditRow, ...]:
        """Operations where the two differ."""
        return tuple(row for row in self.rows if not row.agrees)

    @property
    def matches(self) -> bool:
        """Whether every operation is equal to the last digit in every phase, without a hole."""
        return not self.mismatches and not self.holes

    def _shown(self) -> Table[_Line]:
        return self.table

    @property
    def table(self) -> Table[_Line]:
        """The rows as they are printed, under a title with the totals."""
        differences = [row.difference_flop_count for row in self.rows if row.difference_flop_count is not None]
        total = _line(self, layer="total", difference=sum(differences) if differences else None)
        title = f"{self.name}, batch size {self.batch_size}, {self.phase}: {len(self.rows)} operations with products"
        lines = [
            _line(row, layer=row.layer, operator=row.operator, shapes=row.shapes, difference=row.difference_flop_count)
            for row in self.rows
        ]
        return Table([*lines, total], title=title, headings=HEADINGS, row_type=_Line)

    def _lines(self) -> list[str]:
        lines = [CONVENTION]
        if self.torch_forward_flop_count is not None:
            wrong, compared = len(self.mismatches), [row for row in self.rows if not row.torch_has_no_formula]
            some = "operation" if len(compared) == len(self.rows) else "operation of which torch has a formula"
            agree = (
                f"{wrong} of {len(compared)} operations differ" if wrong else f"every {some} agrees to the last digit"
            )
            lines.append(f"Against torch: {agree}.")
        excess = self.torch_excess_flop_count
        if excess:
            lines.append(
                f"Of torch's backward, {excess:,} FLOP are too many: for the filters' gradient of a convolution in "
                "groups its formula takes every channel with every filter. The differences leave them out."
            )
        lines += [
            f"Of {row.layer} ({row.operator}) torch counts nothing: it has no formula for a matrix and a vector."
            for row in self.rows
            if row.torch_has_no_formula
        ]
        lines += [
            f"Hole: {hole.layer} ({hole.operator}) is opaque: {hole.flop_count:,} FLOP, {100 * hole.share:.3g} %"
            for hole in self.holes
        ]
        return [*lines, *self.notes] if self.holes else [*lines, "No holes.", *self.notes]


def _text(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _line(counted: AuditRow | Audit, *, difference: int | None, **names: str) -> _Line:
    return _Line(
        **names,
        forward=_text(counted.forward_flop_count),
        torch_forward=_text(counted.torch_forward_flop_count),
        backward=_text(counted.backward_flop_count),
        torch_backward=_text(counted.torch_backward_flop_count),
        difference=_text(difference),
    )
