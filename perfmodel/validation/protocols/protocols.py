"""Protocols: which rows are fitted before which are scored. A row that is scored has never been fitted in its fold."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from perfmodel.errors import ArgumentError, CalibrationError, check_known
from perfmodel.fitting.fit import cached_fits, fingerprint
from perfmodel.fitting.problem import Problem
from perfmodel.hardware.fit_file import FitPlan, Unknown, factors_by_constant, load_fit_plan
from perfmodel.prediction.job.subject import Subject
from perfmodel.validation.protocols.cells import MeasuredCell, PredictedCell, Progress, predict_cell

if TYPE_CHECKING:
    from perfmodel.fitting.fit import Fit
    from perfmodel.hardware.source import SpecFile
    from perfmodel.measurements.table import Subset


NOTHING_FITTED: Final = "nothing_fitted"
ALL_FITTED: Final = "all_fitted"


@dataclass(frozen=True, slots=True)
class Fold:
    """Indices of the cells of one fit, and of those that it is scored on."""

    label: str
    scored: tuple[int, ...]
    trained: tuple[int, ...]


Key = Callable[["MeasuredCell"], Hashable]
Splitter = Callable[[Sequence["MeasuredCell"]], list[Fold]]


def _label(value: Hashable) -> str:
    return " ".join(str(part) for part in value if part is not None) if isinstance(value, tuple) else str(value)


def _fold(label: str, cells: Sequence[MeasuredCell], held_out: Sequence[bool]) -> Fold:
    """Return the fold that scores the cells held out, and fits the rest."""
    places = range(len(cells))
    scored = tuple(index for index in places if held_out[index])
    return Fold(label, scored, tuple(index for index in places if not held_out[index] and cells[index].is_scored))


def _leave_one(key: Key) -> Splitter:
    """Return the protocol that holds out all cells of one key at a time."""

    def split(cells: Sequence[MeasuredCell]) -> list[Fold]:
        keys = [key(cell) for cell in cells]
        return [_fold(_label(key), cells, [cell_key == key for cell_key in keys]) for key in dict.fromkeys(keys)]

    return split


def _all_fitted(cells: Sequence[MeasuredCell]) -> list[Fold]:
    fitted = tuple(index for index, cell in enumerate(cells) if cell.is_scored)
    return [Fold("none", tuple(range(len(cells))), fitted)]


def _one_device(cells: Sequence[MeasuredCell]) -> list[Fold]:
    """Fit one framework on one device and the others on all devices; score the first on its other devices."""
    folds = []
    for framework, device in dict.fromkeys((cell.row.framework, cell.row.device) for cell in cells):
        held_out = [cell.row.framework == framework and cell.row.device != device for cell in cells]
        folds.append(_fold(f"{framework} seen on {device}", cells, held_out))
    return [fold for fold in folds if fold.scored]


def _one_column(cells: Sequence[MeasuredCell]) -> list[Fold]:
    """Hold out one CPU's cells with more threads than cores; those up to the cores are fitted and never scored."""
    beyond = [cell.row.threads is not None and cell.row.threads > cell.physical_cores for cell in cells]
    return [
        _fold(
            f"{device} beyond its cores",
            cells,
            [over and cell.row.device == device for cell, over in zip(cells, beyond, strict=True)],
        )
        for device in dict.fromkeys(cell.row.device for cell, over in zip(cells, beyond, strict=True) if over)
    ]


@dataclass(frozen=True, slots=True)
class Protocol:
    """A way to split a table into fitted and scored cells."""

    name: str
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
        Protocol(ALL_FITTED, _all_fitted),
        Protocol("leave_one_cell_out", _leave_one(lambda cell: cell.row.cell_key)),
        Protocol(
            "leave_one_row_out",
            _leave_one(lambda cell: (cell.row.framework, cell.row.network, cell.row.device)),
        ),
        Protocol("leave_one_device_out", _leave_one(lambda cell: cell.row.device)),
        Protocol("leave_one_network_out", _leave_one(lambda cell: cell.row.network)),
        Protocol("leave_one_family_out", _leave_one(lambda cell: cell.family)),
        Protocol("leave_one_framework_out", _leave_one(lambda cell: cell.row.framework)),
        Protocol(
            "leave_one_thread_count_out",
            _leave_one(lambda cell: (cell.row.device, cell.row.threads)),
            needs_threads=True,
        ),
        Protocol("calibrated_on_one_device", _one_device),
        Protocol(
            "leave_one_column_out",
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
    check_known("protocol", name, protocol_names())


def folds_of(name: str, cells: Sequence[MeasuredCell]) -> list[Fold]:
    """Return the folds of a protocol on some cells."""
    protocol = PROTOCOLS[name]
    if protocol.needs_threads and any(cell.row.threads is None for cell in cells):
        raise ArgumentError("protocol", name, "a protocol without thread counts, as GPU rows have none (only='cpu')")
    folds = protocol.split(cells)
    empty = [fold.label for fold in folds if not fold.trained]
    if empty or not folds:
        held = f"holding out {empty[0]!r}" if empty else f"{len(cells)} cell(s)"
        message = f"protocol {name}: nothing is left to fit ({held} of {len(cells)} cells); pass another protocol"
        raise CalibrationError(message)
    return folds


def check_share(share: object) -> None:
    """Raise ArgumentError unless a share is a number above 0 and below 1."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise ArgumentError("fit_share", share, "a share of the rows above 0 and below 1")


def part_of_rows(cells: Sequence[MeasuredCell], *, share: float) -> list[Fold]:
    """Return one fold that fits a share of the rows, drawn with a fixed seed, and scores the others."""
    import numpy as np

    check_share(share)
    keys = [(cell.row.framework, cell.row.network, cell.row.device) for cell in cells]
    rows = list(dict.fromkeys(keys))
    drawn = np.random.default_rng(0).permutation(len(rows))[: round(share * len(rows))]
    fitted_rows = {rows[index] for index in drawn}
    trained = tuple(index for index, key in enumerate(keys) if key in fitted_rows and cells[index].is_scored)
    scored = tuple(index for index, key in enumerate(keys) if key not in fitted_rows)
    if not trained or not scored:
        message = f"fit_share {share:g} of {len(rows)} rows leaves {len(trained)} to fit and {len(scored)} to score"
        raise CalibrationError(message)
    return [Fold(f"fitted on {len(fitted_rows)} of {len(rows)} rows", scored, trained)]


PLAN_OF_SUBSET = {"gpu": "gpu", "cpu": "cpu", "cpu_oversubscribed": "cpu"}
"""Subset -> processor, whose fit plan and interval scale it uses; GPU and CPU rows are fitted separately."""

FACTS_OF_RUN = tuple(field.name for field in fields(Subject) if field.name != "graph")
"""Inputs of a fit except the graph, which has its own fingerprint."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FoldOutcome:
    """Predictions of a fold's held-out cells, and the fit to the rest; None where nothing is fitted."""

    fold: Fold
    predicted: tuple[PredictedCell, ...]
    fit: Fit | None


@dataclass(frozen=True, eq=False, kw_only=True)
class HeldOut:
    """The cells of a subset as a protocol holds them out, fold by fold."""

    cells: tuple[MeasuredCell, ...]
    outcomes: tuple[FoldOutcome, ...]
    unknowns: tuple[Unknown, ...]
    sources: tuple[SpecFile, ...]

    @property
    def only_fit(self) -> Fit:
        """The fit of a protocol with a single fold that fits."""
        (outcome,) = self.outcomes
        assert outcome.fit is not None
        return outcome.fit


def compiled(cells: Sequence[MeasuredCell], plan: FitPlan) -> Problem:
    """Compile measured cells for a fit."""
    return Problem.of([cell.prepared for cell in cells], [cell.measured_s for cell in cells], plan)


def predict_subset(
    cells: Sequence[MeasuredCell],
    *,
    subset: str,
    protocol: str,
    split: Callable[[Sequence[MeasuredCell]], list[Fold]] | None = None,
    progress: Progress | None = None,
) -> HeldOut:
    """Fit inside every fold of a protocol, if it fits, and predict the held-out cells."""
    report_progress = progress or (lambda done, total: None)
    fits: Sequence[Fit | None] = [None]
    unknowns: tuple[Unknown, ...] = ()
    if split is None and protocol == NOTHING_FITTED:
        folds = [Fold("", tuple(range(len(cells))), ())]
    else:
        folds = folds_of(protocol, cells) if split is None else split(cells)
        plan, trained = load_fit_plan(PLAN_OF_SUBSET[subset]), [fold.trained for fold in folds]
        problem = compiled(cells, plan)
        unknowns, key = problem.unknowns, content_key(cells, plan=plan, trained=trained)
        fits = cached_fits(problem, trained, key, progress=report_progress)
    sources: dict[int, SpecFile] = {}
    outcomes = []
    for fold, fit in zip(folds, fits, strict=True):
        predicted = []
        for index in fold.scored:
            names = cells[index].prepared.constant_names
            factors = None if fit is None else factors_by_constant(unknowns, fit.factors, names)
            cell, used = predict_cell(cells[index], factors, fold=fold.label)
            predicted.append(cell)
            sources |= {id(spec): spec for spec in used}
            if fit is None:
                report_progress(len(predicted), len(cells))
        outcomes.append(FoldOutcome(fold=fold, predicted=tuple(predicted), fit=fit))
    return HeldOut(
        cells=tuple(cells),
        outcomes=tuple(outcomes),
        unknowns=unknowns,
        sources=tuple(sources.values()),
    )


def content_key(cells: Sequence[MeasuredCell], *, plan: FitPlan, trained: Sequence[tuple[int, ...]]) -> str:
    """Return a fingerprint of everything that fits depend on."""
    runs = {id(cell.prepared.subject): cell.prepared.subject for cell in cells}.values()
    return fingerprint(
        (
            plan.to_dict(),
            [(cell.row.cell_key, cell.row.step_s, cell.prepared.dtype) for cell in cells],
            [(run.graph.fingerprint, [getattr(run, fact) for fact in FACTS_OF_RUN]) for run in runs],
            [tuple(rows) for rows in trained],
        )
    )
