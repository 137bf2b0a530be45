"""What an audit says: rows of products, holes, and how it prints."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    import pandas as pd

CONVENTION: Final = (
    "FLOP of matrix products (convolutions, linear layers, attention, recurrences): one multiply-add is 2 FLOP; bias, "
    "activations and norms are left out, as torch's FlopCounterMode does."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """The matrix products of one operation.

    Parameters
    ----------
    layer : str
        Layer of the graph. [-]
    operator : str
        Operator of torch, or kind of layer where there was no module. [-]
    shapes : str
        Sample shapes of what it reads and makes. [1]
    forward_flop_count, backward_flop_count : int
        Our products. [FLOP]
    torch_forward_flop_count, torch_backward_flop_count : int or None
        Products by torch's formulas; None where there was no module. [FLOP]
    torch_excess_flop_count : int
        What of torch's backward is known to be too much: its formula takes the filters' gradient of a convolution in
        groups for that of all channels with all filters. [FLOP]
    torch_has_no_formula : bool
        Whether torch counts the operator as nothing, although it holds products (of a matrix and a vector). [-]
    """

    layer: str
    operator: str
    shapes: str
    forward_flop_count: int
    backward_flop_count: int
    torch_forward_flop_count: int | None = None
    torch_backward_flop_count: int | None = None
    torch_excess_flop_count: int = 0
    torch_has_no_formula: bool = False

    @property
    def difference_flop_count(self) -> int | None:
        """Ours less torch's over both phases, known faults of torch's aside [FLOP]; None where it has no count."""
        if self.torch_forward_flop_count is None or self.torch_backward_flop_count is None or self.torch_has_no_formula:
            return None
        ours = self.forward_flop_count + self.backward_flop_count
        theirs = self.torch_forward_flop_count + self.torch_backward_flop_count - self.torch_excess_flop_count
        return ours - theirs

    @property
    def agrees(self) -> bool:
        """Whether both phases are equal to the last digit, torch's known faults aside, or there was no module."""
        if self.torch_has_no_formula:
            return True
        if self.torch_forward_flop_count is None or self.torch_backward_flop_count is None:
            return True
        backward = self.torch_backward_flop_count - self.torch_excess_flop_count
        return (self.forward_flop_count, self.backward_flop_count) == (self.torch_forward_flop_count, backward)

    @property
    def has_products(self) -> bool:
        """Whether anybody counts a product here."""
        theirs = (self.torch_forward_flop_count, self.torch_backward_flop_count)
        return any((self.forward_flop_count, self.backward_flop_count, *theirs))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHole:
    """An opaque layer: an operator that no layer is.

    Parameters
    ----------
    layer : str
        Its name in the graph. [-]
    operator : str
        The operator. [-]
    flop_count : int
        What is counted for it over the phases, one FLOP per element. [FLOP]
    share : float
        Its share of all arithmetic. [1]
    """

    layer: str
    operator: str
    flop_count: int
    share: float


@dataclass(frozen=True, slots=True)
class _Line:
    """A row as it is printed: FLOP to the last digit."""

    layer: str
    operator: str
    shapes: str
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
class Audit:
    """Matrix products of a network, ours and torch's.

    Parameters
    ----------
    name : str
        Name of the graph. [-]
    batch_size : int
        Samples. [samples]
    phase : str
        ``forward_backward`` or ``forward``. [-]
    rows : tuple of AuditRow
        One per operation that somebody counts products for. [-]
    holes : tuple of AuditHole
        Opaque layers. [-]
    notes : tuple of str
        What else the import said. [-]
    """

    name: str
    batch_size: int
    phase: str
    rows: tuple[AuditRow, ...]
    holes: tuple[AuditHole, ...] = ()
    notes: tuple[str, ...] = ()

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
        """What torch's formulas are known to count too much [FLOP]."""
        return sum(row.torch_excess_flop_count for row in self.rows)

    @property
    def mismatches(self) -> tuple[AuditRow, ...]:
        """Operations where the two differ."""
        return tuple(row for row in self.rows if not row.agrees)

    @property
    def matches(self) -> bool:
        """Whether every operation is equal to the last digit in every phase, without a hole."""
        return not self.mismatches and not self.holes

    @property
    def table(self) -> Table[_Line]:
        """The rows as a table that prints and renders."""
        differences = [row.difference_flop_count for row in self.rows if row.difference_flop_count is not None]
        total = _Line(
            layer="total",
            operator="",
            shapes="",
            forward=_text(self.forward_flop_count),
            torch_forward=_text(self.torch_forward_flop_count),
            backward=_text(self.backward_flop_count),
            torch_backward=_text(self.torch_backward_flop_count),
            difference=_text(sum(differences) if differences else None),
        )
        title = f"{self.name}, batch size {self.batch_size}, {self.phase}: {len(self.rows)} operations with products"
        return Table([*map(_line, self.rows), total], title=title, headings=HEADINGS, row_type=_Line)

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame; needs the extra ``frames``.

        Returns
        -------
        pandas.DataFrame
            One row per operation. [FLOP]
        """
        return Table(self.rows, row_type=AuditRow).to_frame()

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values, for JSON.

        Returns
        -------
        dict
            Totals, rows, holes and notes. [FLOP]
        """
        return {
            "name": self.name,
            "batch_size": self.batch_size,
            "phase": self.phase,
            "convention": CONVENTION,
            "matches": self.matches,
            "forward_flop_count": self.forward_flop_count,
            "backward_flop_count": self.backward_flop_count,
            "torch_forward_flop_count": self.torch_forward_flop_count,
            "torch_backward_flop_count": self.torch_backward_flop_count,
            "torch_excess_flop_count": self.torch_excess_flop_count,
            "rows": Table(self.rows, row_type=AuditRow).to_dicts(),
            "holes": Table(self.holes, row_type=AuditHole).to_dicts(),
            "notes": list(self.notes),
        }

    @property
    def _verdict(self) -> list[str]:
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

    def __str__(self) -> str:
        return "\n".join([self.table.to_text(), *self._verdict])

    def _repr_html_(self) -> str:
        return self.table._repr_html_() + "".join(f"<p>{html.escape(line)}</p>" for line in self._verdict)


def _text(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _line(row: AuditRow) -> _Line:
    return _Line(
        layer=row.layer,
        operator=row.operator,
        shapes=row.shapes,
        forward=_text(row.forward_flop_count),
        torch_forward=_text(row.torch_forward_flop_count),
        backward=_text(row.backward_flop_count),
        torch_backward=_text(row.torch_backward_flop_count),
        difference=_text(row.difference_flop_count),
    )
