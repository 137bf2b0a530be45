"""Protocols: which rows are fitted before which are scored. A row that is scored has never been fitted in its fold."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from perfmodel.errors import ArgumentError, CalibrationError, UnknownNameError

if TYPE_CHECKING:
    from perfmodel.measurements.table import Subset
    from perfmodel.validation.cells import MeasuredCell

NOTHING_FITTED: Final = "nothing_fitted"
ALL_FITTED: Final = "all_fitted"


@dataclass(frozen=True, slots=True)
class Fold:
    """One fit and what it is scored on.

    Parameters
    ----------
    label : str
        What is held out. [-]
    scored, trained : tuple of int
        Cells scored, and cells fitted, by index; apart, but for ``all_fitted``. [1]
    """

    label: str
    scored: tuple[int, ...]
    trained: tuple[int, ...]


Key = Callable[["MeasuredCell"], Hashable]
Splitter = Callable[[Sequence["MeasuredCell"]], list[Fold]]


def _is_fitted(cell: MeasuredCell) -> bool:
    """Tell whether a cell may be fitted at all: those set aside never are."""
    return cell.is_scored


def _label(value: Hashable) -> str:
    return " ".join(str(part) for part in value if part is not None) if isinstance(value, tuple) else str(value)


def _leave_one(key: Key) -> Splitter:
    """Return the protocol that holds out all cells of one key at a time."""

    def split(cells: Sequence[MeasuredCell]) -> list[Fold]:
        keys = [key(cell) for cell in cells]
        return [
            Fold(
                _label(held_out),
                tuple(index for index, found in enumerate(keys) if found == held_out),
                tuple(index for index, found in enumerate(keys) if found != held_out and _is_fitted(cells[index])),
            )
            for held_out in dict.fromkeys(keys)
        ]

    return split


def _all_fitted(cells: Sequence[MeasuredCell]) -> list[Fold]:
    fitted = tuple(index for index, cell in enumerate(cells) if _is_fitted(cell))
    return [Fold("none", tuple(range(len(cells))), fitted)]


def _one_device(cells: Sequence[MeasuredCell]) -> list[Fold]:
    """See a framework on one device only, all others on all devices; score it on the devices it was not seen on."""
    pairs = dict.fromkeys((cell.row.framework, cell.row.device) for cell in cells)
    folds = []
    for framework, device in pairs:
        held_out = [cell.row.framework == framework and cell.row.device != device for cell in cells]
        folds.append(
            Fold(
                f"{framework} seen on {device}",
                tuple(index for index, out in enumerate(held_out) if out),
                tuple(index for index, out in enumerate(held_out) if not out and _is_fitted(cells[index])),
            )
        )
    return [fold for fold in folds if fold.scored]


def _one_column(cells: Sequence[MeasuredCell]) -> list[Fold]:
    """Hold out one CPU's cells with more threads than cores; those up to the cores are fitted and never scored."""
    beyond = [cell.row.threads is not None and cell.row.threads > cell.physical_cores for cell in cells]
    columns = dict.fromkeys(cell.row.device for cell, over in zip(cells, beyond, strict=True) if over)
    folds = []
    for device in columns:
        held_out = [over and cell.row.device == device for cell, over in zip(cells, beyond, strict=True)]
        folds.append(
            Fold(
                f"{device} beyond its cores",
                tuple(index for index, out in enumerate(held_out) if out),
                tuple(index for index, out in enumerate(held_out) if not out and _is_fitted(cells[index])),
            )
        )
    return folds


@dataclass(frozen=True, slots=True)
class Protocol:
    """A way to split a table into fitted and scored cells.

    Parameters
    ----------
    name, holds_out : str
        Name, and what a fold does without. [-]
    split : callable
        Cells to folds. [-]
    needs_threads : bool
        Whether it only makes sense where cells have thread counts. [-]
    subsets : tuple of str
        Subsets that it can score; empty for all. [-]
    fits_too : tuple of str
        Subsets whose cells every fold fits besides those of the scored one. [-]
    """

    name: str
    holds_out: str
    split: Splitter
    needs_threads: bool = False
    subsets: tuple[Subset, ...] = ()
    fits_too: tuple[Subset, ...] = ()

    def suits(self, subset: str) -> bool:
        """Tell whether the protocol makes sense for a subset of a table."""
        return not (subset == "gpu" and self.needs_threads) and (not self.subsets or subset in self.subsets)


PROTOCOLS: Final[dict[str, Protocol]] = {
    protocol.name: protocol
    for protocol in (
        Protocol(ALL_FITTED, "nothing: fitted and scored on the same cells", _all_fitted),
        Protocol("leave_one_cell_out", "one cell", _leave_one(lambda cell: cell.row.cell_key)),
        Protocol(
            "leave_one_row_out",
            "a framework and network on one device, at all its thread counts",
            _leave_one(lambda cell: (cell.row.framework, cell.row.network, cell.row.device)),
        ),
        Protocol("leave_one_device_out", "a device", _leave_one(lambda cell: cell.row.device)),
        Protocol("leave_one_network_out", "a network", _leave_one(lambda cell: cell.row.network)),
        Protocol("leave_one_family_out", "a family of networks", _leave_one(lambda cell: cell.family)),
        Protocol("leave_one_framework_out", "a framework", _leave_one(lambda cell: cell.row.framework)),
        Protocol(
            "leave_one_thread_count_out",
            "a CPU at one thread count",
            _leave_one(lambda cell: (cell.row.device, cell.row.threads)),
            needs_threads=True,
        ),
        Protocol("calibrated_on_one_device", "a framework on all devices but one", _one_device),
        Protocol(
            "leave_one_column_out",
            "a CPU with more threads than cores; cells up to the cores are fitted too",
            _one_column,
            needs_threads=True,
            subsets=("cpu_oversubscribed",),
            fits_too=("cpu",),
        ),
    )
}
"""Protocols that fit, by name."""


def protocol_names() -> tuple[str, ...]:
    """Return the names of all protocols, the one that fits nothing first."""
    return (NOTHING_FITTED, *PROTOCOLS)


def check_protocol(name: str) -> None:
    """Raise UnknownNameError for a protocol that does not exist."""
    if name not in protocol_names():
        kind = "protocol"
        raise UnknownNameError(kind, name, protocol_names())


def folds_of(name: str, cells: Sequence[MeasuredCell]) -> list[Fold]:
    """Return the folds of a protocol on some cells.

    Parameters
    ----------
    name : str
        A protocol that fits. [-]
    cells : sequence of MeasuredCell
        Cells of one subset; those set aside are scored but never fitted. [-]

    Returns
    -------
    list of Fold
        Folds with something to score. [-]

    Raises
    ------
    ArgumentError
        If the protocol needs thread counts and the cells have none.
    CalibrationError
        If a fold is left with nothing to fit.
    """
    protocol = PROTOCOLS[name]
    if protocol.needs_threads and any(cell.row.threads is None for cell in cells):
        raise ArgumentError("protocol", name, "a protocol without thread counts, as GPU rows have none (only='cpu')")
    folds = protocol.split(cells)
    empty = [fold.label for fold in folds if not fold.trained]
    if empty or not folds:
        held = f"holding out {empty[0]!r}" if empty else f"{len(cells)} cell(s)"
        message = f"protocol {name}: nothing is left to fit ({held} of {len(cells)} cells); take another protocol"
        raise CalibrationError(message)
    return folds


def check_share(share: object) -> None:
    """Raise ArgumentError unless a share is a number above 0 and below 1."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise ArgumentError("fit_share", share, "a share of the rows above 0 and below 1")


def part_of_rows(cells: Sequence[MeasuredCell], *, share: float) -> list[Fold]:
    """Return one fold that fits a share of the rows, drawn with a fixed seed, and scores the others.

    Parameters
    ----------
    cells : sequence of MeasuredCell
        Cells of one subset. [-]
    share : float
        Share of the rows (framework, network, device) to fit, above 0 and below 1. [1]

    Returns
    -------
    list of Fold
        One fold. [-]

    Raises
    ------
    ArgumentError
        If the share is not between 0 and 1.
    CalibrationError
        If one of the two parts is empty.
    """
    import numpy as np

    check_share(share)
    keys = [(cell.row.framework, cell.row.network, cell.row.device) for cell in cells]
    rows = list(dict.fromkeys(keys))
    drawn = np.random.default_rng(0).permutation(len(rows))[: round(share * len(rows))]
    fitted_rows = {rows[index] for index in drawn}
    trained = tuple(index for index, key in enumerate(keys) if key in fitted_rows and _is_fitted(cells[index]))
    scored = tuple(index for index, key in enumerate(keys) if key not in fitted_rows)
    if not trained or not scored:
        message = f"fit_share {share:g} of {len(rows)} rows leaves {len(trained)} to fit and {len(scored)} to score"
        raise CalibrationError(message)
    return [Fold(f"fitted on {len(fitted_rows)} of {len(rows)} rows", scored, trained)]
