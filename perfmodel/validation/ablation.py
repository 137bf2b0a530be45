"""What each physical term is worth: the score of a protocol without it, everything else fitted anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.calibration.folds import fit_folds
from perfmodel.hardware.fit_plan import load_fit_plan
from perfmodel.prediction.cpu import CpuNumbers
from perfmodel.prediction.gpu import GpuNumbers
from perfmodel.prediction.gpu_libraries import MatmulLibrary
from perfmodel.prediction.prepared import Prepared
from perfmodel.prediction.scaling import NO_FACTORS, Factors
from perfmodel.presentation.tables import Table
from perfmodel.validation import metrics
from perfmodel.validation.cells import MeasuredCell, prepare_cells
from perfmodel.validation.fitted import PLAN_OF_SUBSET, compiled
from perfmodel.validation.protocols import NOTHING_FITTED, Fold, check_protocol, folds_of
from perfmodel.validation.validate import checked_table

if TYPE_CHECKING:
    from perfmodel.measurements.table import MeasurementTable
    from perfmodel.prediction.step_time import ProcessorNumbers

BOUNDLESS: Final = 1e9
"""Factor that makes a rate so high that what it limits takes no time. [1]"""

Change = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Term:
    """A physical term, and how to do without it.

    Parameters
    ----------
    name : str
        For reports. [-]
    numbers : callable or None
        Numbers of the processor to numbers without the term. [-]
    feeds : bool
        Whether the step is still fed from the host. [-]
    updates : bool
        Whether the optimizer still runs. [-]
    algorithms : tuple of str
        Convolution algorithms left out. [-]
    """

    name: str
    numbers: Change | None = None
    feeds: bool = True
    updates: bool = True
    algorithms: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Ablated(Prepared):
    """A prepared step without one term.

    Parameters
    ----------
    term : Term
        What is left out. [-]
    """

    term: Term

    def numbers(self, factors: Factors = NO_FACTORS) -> ProcessorNumbers:
        """Return the numbers of hardware and software without the term."""
        numbers = Prepared.numbers(self, factors)
        return numbers if self.term.numbers is None else self.term.numbers(numbers)

    def feed_times(self, factors: Factors = NO_FACTORS) -> tuple[Any, Any]:
        """Return the times of the feed; none if that is the term."""
        return Prepared.feed_times(self, factors) if self.term.feeds else (0.0, 0.0)


def without(cell: MeasuredCell, term: Term) -> MeasuredCell:
    """Return a measured cell whose predictions do without a term.

    Parameters
    ----------
    cell : MeasuredCell
        The cell. [-]
    term : Term
        What is left out. [-]

    Returns
    -------
    MeasuredCell
        Ready to be fitted. [-]
    """
    stated = {each.name: getattr(cell.prepared, each.name) for each in fields(Prepared)}
    table = stated["plan"].table
    if not term.updates:
        table = replace(table, multiplicity=table.multiplicity * ~table.is_update)
    if term.algorithms:
        table = table.without_alternatives(term.algorithms)
    stated["plan"] = replace(stated["plan"], table=table)
    return replace(cell, prepared=Ablated(**stated, term=term))


def _of_libraries(change: Callable[[MatmulLibrary], MatmulLibrary]) -> Change:
    return lambda numbers: replace(
        numbers, matmul_libraries=tuple(change(library) for library in numbers.matmul_libraries)
    )


def _no_dispatch(numbers: Any) -> Any:
    return replace(numbers, dispatch_s=0.0, library_issue_s=0.0, step_overhead_s=0.0)


def _no_quantisation(library: MatmulLibrary) -> MatmulLibrary:
    one = np.ones(1)
    return replace(
        library, tile_rows=one, tile_columns=one, tile_efficiency=one, split_k=one, latency_s=0.0, ramp_steps=0.0
    )


def _free_streams(numbers: GpuNumbers) -> GpuNumbers:
    return replace(numbers, stream_efficiency=dict.fromkeys(numbers.stream_efficiency, BOUNDLESS))


def _law_without(name: str, neutral: float) -> Change:
    def change(numbers: CpuNumbers) -> CpuNumbers:
        return replace(
            numbers,
            matmul_law={**numbers.matmul_law, name: neutral},
            pass_law={**numbers.pass_law, name: neutral},
        )

    return change


def _no_packing(numbers: CpuNumbers) -> CpuNumbers:
    return replace(
        numbers,
        packing_efficiency=numbers.packing_efficiency * BOUNDLESS,
        core_copy_bytes_per_s=numbers.core_copy_bytes_per_s * BOUNDLESS,
    )


def _no_scalar_code(numbers: CpuNumbers) -> CpuNumbers:
    return replace(
        numbers,
        cycles_per_flop=dict.fromkeys(numbers.cycles_per_flop, 0.0),
        cycles_per_byte=dict.fromkeys(numbers.cycles_per_byte, 0.0),
    )


_FEED, _UPDATE = Term("host feed", feeds=False), Term("optimizer", updates=False)
_DISPATCH = Term("dispatch", numbers=_no_dispatch)

TERMS: Final[dict[str, tuple[Term, ...]]] = {
    "gpu": (
        _DISPATCH,
        Term("launch gap", numbers=lambda numbers: replace(numbers, launch_s=0.0)),
        _FEED,
        _UPDATE,
        Term("memory time of passes", numbers=_free_streams),
        Term("tile and wave quantisation", numbers=_of_libraries(_no_quantisation)),
        Term(
            "slow skinny products",
            numbers=_of_libraries(lambda library: replace(library, skinny_bandwidth_fraction=None)),
        ),
        Term(
            "transposed weights",
            numbers=_of_libraries(lambda library: replace(library, strided_bandwidth_fraction=BOUNDLESS)),
        ),
        Term("rows that one thread reduces", numbers=lambda numbers: replace(numbers, serial_step_s=0.0)),
        Term("FFT convolution", algorithms=("fft", "fft_tiling")),
    ),
    "cpu": (
        _DISPATCH,
        _FEED,
        _UPDATE,
        Term("serial fraction", numbers=_law_without("serial_fraction", 0.0)),
        Term("packing of operands", numbers=_no_packing),
        Term("last-level cache", numbers=lambda numbers: replace(numbers, cache_bytes=1.0)),
        Term("narrow products on one thread", numbers=lambda numbers: replace(numbers, smallest_side_per_thread=0.0)),
        Term("cycles of scalar code", numbers=_no_scalar_code),
        Term("fork and join", numbers=lambda numbers: replace(numbers, fork_join_s=0.0)),
    ),
}
TERMS["cpu_oversubscribed"] = (
    *TERMS["cpu"],
    Term("over-subscription", numbers=_law_without("oversubscription_penalty", 1.0)),
)
"""Terms that can be left out, by subset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRow:
    """Score of one protocol without one term.

    Parameters
    ----------
    subset, protocol, without : str
        Which cells, which folds, and what was left out. [-]
    mape, typical_factor_percent : float
        Mean absolute error; 100 (exp(mean |ln ratio|) - 1). [%]
    change : float
        Change of the latter against all terms. [percentage points]
    """

    subset: str
    protocol: str
    without: str
    mape: float
    typical_factor_percent: float
    change: float


def ablation(
    table: str | Path | MeasurementTable = "shi2016",
    *,
    protocols: Sequence[str],
    only: str = "gpu",
    progress: Callable[[int, int], None] | None = None,
) -> Table[AblationRow]:
    """Score protocols without each physical term.

    Parameters
    ----------
    table : str, Path or MeasurementTable
        What is scored. [-]
    protocols : sequence of str
        Protocols, ``nothing_fitted`` among them. [-]
    only : str
        ``gpu``, ``cpu`` or ``cpu_oversubscribed``. [-]
    progress : callable or None
        Told how much is done, and of how much. [-]

    Returns
    -------
    Table of AblationRow
        For each protocol all terms first, then without each of them.

    Raises
    ------
    UnknownNameError, ArgumentError, TableError, CalibrationError
        As for ``validate``.
    """
    for protocol in protocols:
        check_protocol(protocol)
    loaded = checked_table(table)
    cells = [cell for cell in prepare_cells(loaded, loaded.subset(only)) if cell.is_scored]  # type: ignore[arg-type]
    terms = (Term("nothing"), *TERMS[only])
    rows: list[AblationRow] = []
    for index, protocol in enumerate(protocols):
        whole = 0.0
        for place, term in enumerate(terms):
            logs = _log_ratios([without(cell, term) for cell in cells], subset=only, protocol=protocol)
            ratios = np.exp(logs)
            typical = metrics.typical_factor_percent(ratios, measured=np.ones(len(ratios)))
            whole = typical if place == 0 else whole
            rows.append(
                AblationRow(
                    subset=only,
                    protocol=protocol,
                    without=term.name,
                    mape=metrics.mape(ratios, measured=np.ones(len(ratios))),
                    typical_factor_percent=typical,
                    change=typical - whole,
                )
            )
            if progress is not None:
                progress(index * len(terms) + place + 1, len(protocols) * len(terms))
    return Table(tuple(rows), title=f"{loaded.key}, {only}: without each physical term, fitted anew")


def _log_ratios(cells: Sequence[MeasuredCell], *, subset: str, protocol: str) -> Any:
    """Return ln(predicted / measured) of every scored cell of every fold."""
    problem = compiled(cells, load_fit_plan(PLAN_OF_SUBSET[subset]))
    everything = tuple(range(len(cells)))
    if protocol == NOTHING_FITTED:
        folds = [Fold("none", everything, everything)]
        found = [np.zeros(len(problem.unknowns))]
    else:
        folds = folds_of(protocol, cells)
        found = [fit.log_factors for fit in fit_folds(problem, [fold.trained for fold in folds])]
    errors = []
    for fold, log_factors in zip(folds, found, strict=True):
        times, _ = problem.log_times(log_factors, fold.scored)
        errors.append(times - problem.log_measured[list(fold.scored)])
    return np.concatenate(errors)
