"""Scores on measured kernels: as the files are shipped, in folds, and on a board or network that no fit has seen."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares

from perfmodel.fitting.fit import cached_fits, fingerprint
from perfmodel.fitting.kernel_boards import KernelBoard, boards_of
from perfmodel.fitting.problem import Problem
from perfmodel.hardware.fit_file import load_fit_plan
from perfmodel.validation.protocols.cells import progress_of_part
from perfmodel.validation.scores.table_report import EVERY_ROW, METRICS, PERFMODEL, PartScore, ScoreRow, compared

if TYPE_CHECKING:
    from perfmodel.fitting.fit import Fit
    from perfmodel.hardware.fit_file import FitPlan
    from perfmodel.measurements.kernel_tables import KernelMeasurements, MeasuredKernel


LARGE_EXTENT: Final = 128
"""Least rows and columns of a product that fills its tiles. [1]"""

FOLDS: Final = 5
"""Folds of shapes. [1]"""

Belongs = Callable[["MeasuredKernel"], bool]


def _is_forward(row: MeasuredKernel) -> bool:
    return row.phase == "forward"


def _is_convolution(row: MeasuredKernel) -> bool:
    return row.words["layer_type"] == "Convolution"


PARTS: Final[dict[str, dict[str, Belongs]]] = {
    "gemm": {"min(m, n) > 128": lambda row: min(row.sizes["M"], row.sizes["N"]) > LARGE_EXTENT},
    "conv": {"forward": _is_forward, "gradients": lambda row: not _is_forward(row)},
    "rnn": {"forward": _is_forward, "gradients": lambda row: not _is_forward(row)},
    "layer": {
        "convolutions, forward": lambda row: _is_convolution(row) and _is_forward(row),
        "convolutions, backward": lambda row: _is_convolution(row) and not _is_forward(row),
        "other layers": lambda row: not _is_convolution(row),
    },
}
"""Name of a format -> parts of a table that are scored by themselves, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProtocol:
    """A way to split measured kernels into fitted and scored rows."""

    name: str
    together: bool
    labels: Callable[[Sequence[KernelBoard]], list[Hashable]]


def shape_folds(boards: Sequence[KernelBoard]) -> list[Hashable]:
    """Return the fold of each row: all rows of one shape are in one fold, on every board."""
    keys = [board.kind.shape_of(row) for board in boards for row in board.rows]
    place = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    drawn = np.random.default_rng(0).permutation(len(place)) % FOLDS
    return [int(drawn[place[key]]) for key in keys]


AS_SHIPPED: Final = "as_shipped"

FIVE_FOLD: Final = "five_fold"

SHAPES_OUT = KernelProtocol(name=FIVE_FOLD, together=False, labels=shape_folds)

SHAPES_OUT_OF_ALL = replace(SHAPES_OUT, together=True)

BOARD_OUT = KernelProtocol(
    name="leave_one_board_out",
    together=True,
    labels=lambda boards: [board.device for board in boards for _ in board.rows],
)

NETWORK_OUT = KernelProtocol(
    name="leave_one_network_out",
    together=False,
    labels=lambda boards: [row.words["network"] for board in boards for row in board.rows],
)

PROTOCOLS: Final[dict[str, tuple[KernelProtocol, ...]]] = {
    "gemm": (SHAPES_OUT, BOARD_OUT),
    "conv": (SHAPES_OUT_OF_ALL, BOARD_OUT),
    "rnn": (SHAPES_OUT, BOARD_OUT),
    "layer": (SHAPES_OUT, NETWORK_OUT),
}
"""Name of a format -> protocols that fit, after ``as_shipped``. Boards share a library's classes of convolution."""


ROOFLINE_OF_KERNELS: Final = "roofline x two efficiencies + a launch, best log error"

PARAMETER_COUNT: Final = 3
START: Final = (0.6, 0.6, 4e-6)
LOWEST: Final = (1e-3, 1e-3, 1e-7)
HIGHEST: Final = (3.0, 3.0, 1e-3)


def roofline_of_kernels(
    measured_s: ArrayLike,
    *,
    flop_count: ArrayLike,
    moved_bytes: ArrayLike,
    peak_flop_per_s: ArrayLike,
    bandwidth_bytes_per_s: ArrayLike,
    folds: Sequence[Hashable] | None = None,
) -> NDArray[np.float64]:
    r"""Roofline of each kernel with a fitted share of the peak, a fitted share of the bandwidth, and a fitted launch.

    .. math:: T = \max\left(\frac{F}{e_c P}, \frac{B}{e_m W}\right) + t_0, \qquad
              e_c, e_m, t_0 = \arg\min \overline{\left|\ln(T / T_{measured})\right|}

    Parameters
    ----------
    measured_s : array_like of float, shape (n,)
        Measured times. [s]
    flop_count, moved_bytes : array_like of float, shape (n,)
        Arithmetic F and traffic B of each kernel. [FLOP], [B]
    peak_flop_per_s, bandwidth_bytes_per_s : array_like of float, shape (n,)
        Peak P and memory bandwidth W of each row's board. [FLOP/s], [B/s]
    folds : sequence of hashable, length n, optional
        Label of each row's fold: a row is predicted from the other folds. None fits on all rows. [-]

    Returns
    -------
    ndarray, shape (n,)
        Predicted times; NaN where a fold has no other fold to learn from. [s]

    Notes
    -----
    The mean of absolute logarithms is approached by a soft one, so that a few odd rows do not decide.

    Examples
    --------
    >>> times = roofline_of_kernels([2.0, 4.0], flop_count=[1e12, 2e12], moved_bytes=[1e9, 1e9],
    ...                             peak_flop_per_s=[1e12, 1e12], bandwidth_bytes_per_s=[1e11, 1e11])
    >>> times.round(2)
    array([2., 4.])
    """
    measured = np.asarray(measured_s, dtype=float)
    arithmetic_s = np.asarray(flop_count, dtype=float) / np.asarray(peak_flop_per_s, dtype=float)
    traffic_s = np.asarray(moved_bytes, dtype=float) / np.asarray(bandwidth_bytes_per_s, dtype=float)

    def times(log_unknowns: NDArray[np.float64], rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        of_peak, of_bandwidth, launch_s = np.exp(log_unknowns)
        return np.asarray(np.maximum(arithmetic_s[rows] / of_peak, traffic_s[rows] / of_bandwidth) + launch_s)

    def fitted(rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        def residuals(log_unknowns: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.asarray(np.log(times(log_unknowns, rows) / measured[rows]))

        solution = least_squares(
            residuals,
            np.log(START),
            bounds=(np.log(LOWEST), np.log(HIGHEST)),
            loss="soft_l1",
            f_scale=0.05,
            diff_step=[0.01] * PARAMETER_COUNT,
        )
        return np.asarray(solution.x)

    everything = np.ones(len(measured), dtype=bool)
    if folds is None:
        return times(fitted(everything), everything)
    predicted_s = np.full(len(measured), np.nan)
    for fold in dict.fromkeys(folds):
        held_out = np.array([label == fold for label in folds])
        if not held_out.all():
            predicted_s[held_out] = times(fitted(~held_out), held_out)
    return predicted_s


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
    """Scores of a table of measured kernels."""

    scores: tuple[PartScore, ...]
    left_out: dict[str, int]
    points: dict[str, list[tuple[float, float, str]]]


def kernel_scores(table: KernelMeasurements, *, progress: Callable[[int, int], None] | None = None) -> ScoredKernels:
    """Score a table of measured kernels under every protocol."""
    boards, left_out = boards_of(table)
    fitted = tuple(board for board in boards if board.dtype == FITTED_DTYPE)
    outcomes = [_as_shipped(board) for board in boards]
    protocols = [protocol for protocol in PROTOCOLS[table.format.name] if len(set(protocol.labels(fitted))) > 1]
    plan = load_fit_plan(PLANS[table.format.name])
    for done, protocol in enumerate(protocols):
        scopes = [fitted] if protocol.together else [(board,) for board in fitted]
        for place, scope in enumerate(scopes):
            others = [board for board in fitted if board.device not in {scored.device for scored in scope}]
            outcomes += _in_folds(scope, protocol, plan=plan, key=table.sha256, others=others)
            progress_of_part(progress, done, len(protocols))(place + 1, len(scopes))
    scores = [score for outcome in outcomes for score in _scores(outcome)]
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
    """Return the libraries whose sources say that their constants were fitted on rows of a board."""
    words = set(board.device.split("_")) - FORM_FACTORS
    collection = board.kind.collection.lower()
    stems = []
    for role in ROLES[board.kind.name]:
        library = board.libraries[role]
        titles = [source.title.lower() for source in library.source if collection in source.title.lower()]
        of_subject = [title for title in titles if any(subject in title for subject in board.kind.subjects)]
        if any(words <= _words(title) for title in of_subject):
            stems.append(library.stem)
    return tuple(stems)


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
    """Fit without each fold of some boards, and predict the held-out rows."""
    problem = Problem.of_boards(boards, plan, held=of_others(boards, others, plan=plan, key=key))
    labels = protocol.labels(boards)
    folds = list(dict.fromkeys(labels))
    trained = [tuple(row for row, label in enumerate(labels) if label != fold) for fold in folds]
    fits = _fits(problem, trained, key=(key, [_label(board) for board in boards], plan))
    predicted_s = np.empty(len(labels))
    for fold, fit in zip(folds, fits, strict=True):
        held_out = np.array([label == fold for label in labels])
        times = [part.times(part.factors(fit.log_factors)) for part in problem.parts]
        predicted_s[held_out] = np.concatenate(times)[held_out]
    ends = np.cumsum([len(board.rows) for board in boards])[:-1]
    times_of_boards = zip(
        boards, np.split(predicted_s, ends), np.split(_naive(boards, folds=labels), ends), strict=True
    )
    fitted = max(fit.parameter_count for fit in fits)
    return [
        _Outcome(board=board, protocol=protocol.name, predicted_s=times, naive_s=naive, fitted=fitted)
        for board, times, naive in times_of_boards
    ]


def of_others(
    boards: Sequence[KernelBoard], others: Sequence[KernelBoard], *, plan: FitPlan, key: str
) -> dict[str, float]:
    """Fit, on the other boards, the unknowns that a board takes from them."""
    if not others or not any(unknown.from_others for unknown in plan.unknown):
        return {}
    together = [*boards, *others]
    problem = Problem.of_boards(together, plan)
    first = sum(len(board.rows) for board in boards)
    rows = tuple(range(first, len(problem.log_measured)))
    (fit,) = _fits(problem, [rows], key=(key, [_label(board) for board in together], plan))
    log_factors = dict(zip((unknown.name for unknown in problem.unknowns), fit.log_factors, strict=True))
    return {unknown.name: float(log_factors[unknown.name]) for unknown in problem.unknowns if unknown.from_others}


def _fits(problem: Problem, trained: Sequence[tuple[int, ...]], *, key: Any) -> list[Fit]:
    parts = (key, [tuple(rows) for rows in trained], Path(__file__).read_bytes())
    return cached_fits(problem, trained, fingerprint(parts))


def _naive(boards: Sequence[KernelBoard], *, folds: list[Hashable] | None) -> NDArray[np.float64]:
    """Predict by the strongest plain roofline, fitted on the same rows as the fold."""

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


def _scores(outcome: _Outcome) -> list[PartScore]:
    board = outcome.board
    everything = {EVERY_ROW: lambda row: True, **PARTS[board.kind.name]}
    predictions = {PERFMODEL: outcome.predicted_s, ROOFLINE_OF_KERNELS: outcome.naive_s}
    fitted = {PERFMODEL: outcome.fitted, ROOFLINE_OF_KERNELS: PARAMETER_COUNT}
    parts: list[PartScore] = []
    for part, belongs in everything.items():
        of_part = [belongs(row) for row in board.rows]
        if any(of_part):
            parts += compared(
                _label(board),
                predictions,
                measured=board.measured_s,
                fitted=fitted,
                part=part,
                protocol=outcome.protocol,
                rows=of_part,
            )
    return [replace(part, note=outcome.note) for part in parts]


def _means(scores: Sequence[PartScore], boards: set[str]) -> list[PartScore]:
    """Return the mean over the fitted boards of each protocol, part and model, where there are several."""
    groups: dict[tuple[str, str, str], list[ScoreRow]] = {}
    for part in scores:
        if part.score.subset in boards:
            groups.setdefault((part.protocol, part.part, part.score.model), []).append(part.score)
    return [
        PartScore(protocol=protocol, part=part, score=_mean(rows))
        for (protocol, part, _), rows in groups.items()
        if len(rows) > 1
    ]


def _mean(rows: Sequence[ScoreRow]) -> ScoreRow:
    means: dict[str, Any] = {name: fmean(getattr(row, name) for row in rows) for name in METRICS}
    return replace(
        rows[0],
        subset=f"{MEAN_OF_BOARDS}, {FITTED_DTYPE}",
        cells=sum(row.cells for row in rows),
        fitted=max(row.fitted for row in rows),
        **means,
    )
