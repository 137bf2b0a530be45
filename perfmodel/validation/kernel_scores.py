"""Scores on measured kernels: as the files are shipped, in folds, and on a board or network that no fit has seen."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.calibration.fit_cache import fingerprint, keep_fits, kept_fits
from perfmodel.calibration.folds import fit_folds
from perfmodel.calibration.kernel_boards import KernelBoard, boards_of
from perfmodel.calibration.kernel_problem import KernelProblem
from perfmodel.hardware.fit_plan import load_fit_plan
from perfmodel.validation.kernel_baselines import PARAMETER_COUNT, ROOFLINE_OF_KERNELS, roofline_of_kernels
from perfmodel.validation.kernel_protocols import AS_SHIPPED, EVERY_ROW, PARTS, PROTOCOLS, KernelProtocol
from perfmodel.validation.scores import ScoreRow, score

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.calibration.fit import Fit
    from perfmodel.hardware.fit_plan import FitPlan
    from perfmodel.measurements.kernel_tables import KernelMeasurements

PLANS: Final = {
    "gemm": "kernels_contraction",
    "conv": "kernels_convolution",
    "rnn": "kernels_recurrence",
    "layer": "kernels_layers",
}
"""Name of a format -> its fit plan."""

ROLES: Final = {"gemm": ("gpu_blas",), "conv": ("gpu_dnn",), "rnn": ("gpu_blas", "gpu_dnn"), "layer": ("gpu_dnn",)}
"""Name of a format -> libraries whose constants decide its rows."""

FORM_FACTORS: Final = frozenset({"tesla", "pcie", "sxm", "sxm2"})
"""Words of a device's name that a source may leave out. [-]"""

FITTED_DTYPE: Final = "fp32"
"""Data type of the boards that are fitted; others are scored as shipped. [-]"""

MEAN_OF_BOARDS: Final = "mean of the boards"
"""Name of the line that averages over boards. [-]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelScore:
    """A score on a part of the rows of a board.

    Parameters
    ----------
    protocol, part : str
        What was held out, and which rows. [-]
    score : ScoreRow
        The score; its subset is the board. [-]
    note : str
        What must be known beside it; mostly empty. [-]
    """

    protocol: str
    part: str
    score: ScoreRow
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Outcome:
    """Predictions of a board under a protocol."""

    board: KernelBoard
    protocol: str
    predicted_s: NDArray[np.float64]
    naive_s: NDArray[np.float64]
    fitted: int
    note: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoredKernels:
    """Scores of a table of measured kernels.

    Parameters
    ----------
    scores : tuple of KernelScore
        For each protocol: every board, all rows and each part, perfmodel and the naive rule; then means. [-]
    left_out : dict of str to int
        Rows that are not predicted, by the precision that perfmodel does not have. [1]
    points : dict of str to list
        Predicted and measured times with their board, by protocol. [s, s, -]
    """

    scores: tuple[KernelScore, ...]
    left_out: dict[str, int]
    points: dict[str, list[tuple[float, float, str]]]


def kernel_scores(table: KernelMeasurements, *, progress: Callable[[int, int], None] | None = None) -> ScoredKernels:
    """Score a table of measured kernels under every protocol.

    Parameters
    ----------
    table : KernelMeasurements
        Timed calls. [-]
    progress : callable or None
        Told how much is done, and of how much. [-]

    Returns
    -------
    ScoredKernels
        Scores, and what they were computed from. [-]

    Raises
    ------
    UnknownNameError, TableError
        If a row names something unknown, or cannot be lowered.
    """
    boards, left_out = boards_of(table)
    fitted = tuple(board for board in boards if board.dtype == FITTED_DTYPE)
    outcomes = [_as_shipped(board) for board in boards]
    protocols = [protocol for protocol in PROTOCOLS[table.format.name] if len(set(protocol.labels(fitted))) > 1]
    plan = load_fit_plan(PLANS[table.format.name])
    for done, protocol in enumerate(protocols):
        scopes = [fitted] if protocol.together else [(board,) for board in fitted]
        for place, scope in enumerate(scopes):
            others = [board for board in fitted if board.device not in {each.device for each in scope}]
            outcomes += _in_folds(scope, protocol, plan=plan, key=table.sha256, others=others)
            if progress is not None:
                progress(100 * done + round(100 * (place + 1) / len(scopes)), 100 * len(protocols))
    scores = [each for outcome in outcomes for each in _scores(outcome)]
    return ScoredKernels(
        scores=(*scores, *_means(scores, {_label(board) for board in fitted})),
        left_out=left_out,
        points=_points(outcomes),
    )


def _points(outcomes: Sequence[_Outcome]) -> dict[str, list[tuple[float, float, str]]]:
    points: dict[str, list[tuple[float, float, str]]] = {}
    for outcome in outcomes:
        board = outcome.board
        times = zip(outcome.predicted_s.tolist(), board.measured_s.tolist(), strict=True)
        points.setdefault(outcome.protocol, []).extend((*pair, f"{board.device}, {board.dtype}") for pair in times)
    return points


def _label(board: KernelBoard) -> str:
    return f"{board.device}, {board.dtype}, {'; '.join(board.software.split(';')[:2])}"


def _as_shipped(board: KernelBoard) -> _Outcome:
    cited = fitted_on(board)
    return _Outcome(
        board=board,
        protocol=AS_SHIPPED,
        predicted_s=board.times(),
        naive_s=_naive([board], folds=None),
        fitted=0,
        note=f"fitted on this board: {', '.join(cited)}" if cited else "",
    )


def fitted_on(board: KernelBoard) -> tuple[str, ...]:
    """Return the libraries whose shipped constants are fitted on rows of a board, as their sources say.

    Parameters
    ----------
    board : KernelBoard
        The board. [-]

    Returns
    -------
    tuple of str
        File stems. [-]
    """
    words = set(board.device.split("_")) - FORM_FACTORS
    collection = board.kind.collection.lower()
    found = []
    for role in ROLES[board.kind.name]:
        library = board.libraries[role]
        titles = [source.title.lower() for source in library.source if collection in source.title.lower()]
        of_subject = [title for title in titles if any(subject in title for subject in board.kind.subjects)]
        if any(words <= _words(title) for title in of_subject):
            found.append(library.stem)
    return tuple(found)


def _words(text: str) -> set[str]:
    return set("".join(letter if letter.isalnum() else " " for letter in text).split())


def _in_folds(
    boards: Sequence[KernelBoard],
    protocol: KernelProtocol,
    *,
    plan: FitPlan,
    key: str,
    others: Sequence[KernelBoard],
) -> list[_Outcome]:
    """Fit without each fold of some boards, and predict what it holds out."""
    problem = KernelProblem.of(boards, plan, held=of_others(boards, others, plan=plan, key=key))
    labels = protocol.labels(boards)
    folds = list(dict.fromkeys(labels))
    trained = [tuple(row for row, label in enumerate(labels) if label != fold) for fold in folds]
    fits = _fits(problem, trained, key=(key, [_label(board) for board in boards], plan))
    predicted_s = np.empty(len(labels))
    for fold, fit in zip(folds, fits, strict=True):
        held_out = np.array([label == fold for label in labels])
        times = [compiled.board.times(compiled.factors(fit.log_factors)) for compiled in problem.boards]
        predicted_s[held_out] = np.concatenate(times)[held_out]
    naive_s = _naive(boards, folds=labels)
    return [
        _Outcome(
            board=board,
            protocol=protocol.name,
            predicted_s=predicted_s[own.start : own.stop],
            naive_s=naive_s[own.start : own.stop],
            fitted=max(fit.parameter_count for fit in fits),
        )
        for index, board in enumerate(boards)
        for own in (problem.rows_of(index),)
    ]


def of_others(
    boards: Sequence[KernelBoard], others: Sequence[KernelBoard], *, plan: FitPlan, key: str
) -> dict[str, float]:
    """Return what the other boards say of the unknowns that a board takes from them.

    Parameters
    ----------
    boards, others : sequence of KernelBoard
        What is to be fitted by itself, and the boards that are not. [-]
    plan : FitPlan
        Which unknowns come from the others. [-]
    key : str
        Of the table, for kept fits. [-]

    Returns
    -------
    dict of str to float
        Names of these unknowns with the logarithms of their factors; empty where there are no others. [1]
    """
    if not others or not any(unknown.from_others for unknown in plan.unknown):
        return {}
    together = [*boards, *others]
    problem = KernelProblem.of(together, plan)
    first = sum(len(board.rows) for board in boards)
    rows = tuple(range(first, len(problem.log_measured)))
    (fit,) = _fits(problem, [rows], key=(key, [_label(board) for board in together], plan))
    found = dict(zip((unknown.name for unknown in problem.unknowns), fit.log_factors, strict=True))
    return {unknown.name: float(found[unknown.name]) for unknown in problem.unknowns if unknown.from_others}


def _fits(problem: KernelProblem, trained: Sequence[tuple[int, ...]], *, key: Any) -> list[Fit]:
    kept = fingerprint((key, [tuple(rows) for rows in trained]))
    fits = kept_fits(kept)
    if fits is None or len(fits) != len(trained):
        fits = fit_folds(problem, trained)
        keep_fits(kept, fits)
    return fits


def _naive(boards: Sequence[KernelBoard], *, folds: list[Hashable] | None) -> NDArray[np.float64]:
    """Return the times by the strongest plain roofline, told what the fold was fitted on."""

    def column(of_board: Callable[[KernelBoard], Any]) -> NDArray[np.float64]:
        return np.concatenate([np.broadcast_to(of_board(board), len(board.rows)) for board in boards])

    return roofline_of_kernels(
        column(lambda board: board.measured_s),
        flop_count=column(lambda board: np.maximum(board.work[:, 0], 1.0)),  # a copy has none
        moved_bytes=column(lambda board: board.work[:, 1]),
        peak_flop_per_s=column(lambda board: board.target.peak_flop_per_s(board.dtype)),
        bandwidth_bytes_per_s=column(lambda board: board.target.bandwidth_bytes_per_s),
        folds=folds,
    )


def _scores(outcome: _Outcome) -> list[KernelScore]:
    board = outcome.board
    everything = {EVERY_ROW: lambda row: True, **PARTS[board.kind.name]}
    found = []
    for part, belongs in everything.items():
        mask = np.array([belongs(row) for row in board.rows])
        if not mask.any():
            continue
        for model, times, fitted in (
            ("perfmodel", outcome.predicted_s, outcome.fitted),
            (ROOFLINE_OF_KERNELS, outcome.naive_s, PARAMETER_COUNT),
        ):
            row = score(_label(board), model, times[mask], measured_s=board.measured_s[mask], fitted=fitted)
            found.append(KernelScore(protocol=outcome.protocol, part=part, score=row, note=outcome.note))
    return found


AVERAGED: Final = (
    "mape",
    "median_ape",
    "p90_ape",
    "typical_factor_percent",
    "geometric_mean_ratio",
    "percent_within_10",
    "percent_within_25",
)
"""Columns of a score that a mean over boards is taken of."""


def _means(scores: Sequence[KernelScore], boards: set[str]) -> list[KernelScore]:
    """Return the mean over the fitted boards of each protocol, part and model, where there are several."""
    groups: dict[tuple[str, str, str], list[ScoreRow]] = {}
    for each in scores:
        if each.score.subset in boards:
            groups.setdefault((each.protocol, each.part, each.score.model), []).append(each.score)
    return [
        KernelScore(protocol=protocol, part=part, score=_mean(rows))
        for (protocol, part, _), rows in groups.items()
        if len(rows) > 1
    ]


def _mean(rows: Sequence[ScoreRow]) -> ScoreRow:
    means: dict[str, Any] = {name: fmean(getattr(row, name) for row in rows) for name in AVERAGED}
    return replace(
        rows[0],
        subset=f"{MEAN_OF_BOARDS}, {FITTED_DTYPE}",
        cells=sum(row.cells for row in rows),
        fitted=max(row.fitted for row in rows),
        **means,
    )
