"""Naive predictions that a model must beat. Like the model, they see the trained cells and nothing else.

A rule takes trained cells and cells to predict, and gives the times of the latter; a cell without a prediction (no
other device has it) is NaN and not scored. A rule sees the time of a cell that it predicts only if the cell is also
trained, as when nothing is held out; rules that look for sister cells leave it out even then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.cost.roofline import roofline_time
from perfmodel.errors import ArgumentError
from perfmodel.validation.scores.metrics import Floats, factor_of_least_log_error, factor_of_least_mape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.validation.protocols.cells import PredictedCell

FACTORS = {"mape": ("MAPE", factor_of_least_mape), "log": ("log error", factor_of_least_log_error)}
"""Error -> its name, and the factor on predictions that makes it smallest."""

RIDGE = 0.1
"""Ridge penalty on the numbers of a filled-in table. [1]"""

Cells = Sequence["PredictedCell"]
Rule = Callable[[Cells, Cells], Floats]
"""Trained cells, and cells to be predicted -> predicted times, NaN where the rule has none. [s]"""

Sisters = Callable[["PredictedCell", Cells], Iterable["PredictedCell"]]
"""A cell and the other trained ones -> those that predict its time."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Baseline:
    """Predictions of a naive rule."""

    name: str
    predicted_s: Floats
    parameter_count: int

    @property
    def covered(self) -> NDArray[np.bool_]:
        """Rows the rule has a prediction for."""
        mask: NDArray[np.bool_] = np.isfinite(self.predicted_s)
        return mask


def column(cells: Cells, name: str) -> Floats:
    """Return one field of all cells; raise unless every value is a positive finite number."""
    numbers = np.array([getattr(cell, name) for cell in cells], dtype=np.float64)
    if not np.all(np.isfinite(numbers) & (numbers > 0)):
        allowed = f"a list of {numbers.size} positive finite numbers"
        raise ArgumentError(argument=name, given=numbers.tolist(), allowed=allowed)
    return numbers


def _item(cell: PredictedCell) -> Hashable:
    return cell.framework, cell.network, cell.batch_size


def _threads(cell: PredictedCell) -> int:
    return cell.threads or 1


def plain_roofline(trained: Cells, tested: Cells) -> Floats:
    """Arithmetic at the peak or compulsory traffic at the bandwidth, whichever takes longer; nothing is fitted."""
    times: Floats = roofline_time(
        compute_s=column(tested, "flop_count") / column(tested, "peak_flop_per_s"),
        memory_s=column(tested, "moved_bytes") / column(tested, "bandwidth_bytes_per_s"),
    )
    return times


def scaled_roofline(trained: Cells, tested: Cells, *, fitted_for: str = "mape") -> Floats:
    r"""Plain roofline of the whole step, divided by one efficiency that makes an error of ``FACTORS`` smallest.

    .. math:: T = \frac{1}{e} \max\left(\frac{F}{P}, \frac{B}{W}\right)
    """
    if not trained:
        return np.full(len(tested), np.nan)
    find = FACTORS[fitted_for][1]
    factor = find(plain_roofline((), trained), measured=column(trained, "measured_s"))
    return factor * plain_roofline((), tested)


def percent_of_peak(trained: Cells, tested: Cells) -> Floats:
    r"""One fitted percent of peak per framework, as in Paleo, for networks that it can express: no recurrent layers.

    .. math:: T = \frac{F}{e_f P}

    A framework without trained cells gets the percentage of all frameworks.

    References
    ----------
    .. [1] Qi, Sparks, Talwalkar, Paleo: A Performance Model for Deep Neural Networks, ICLR 2017, section 3
       (platform percent of peak).
    """
    known = [cell for cell in trained if not cell.is_recurrent]
    predicted_s = np.full(len(tested), np.nan)
    for place, one in enumerate(tested):
        alike = [cell for cell in known if cell.framework == one.framework] or known
        if alike and not one.is_recurrent:
            at_peak_s = column([one, *alike], "flop_count") / column([one, *alike], "peak_flop_per_s")
            predicted_s[place] = at_peak_s[0] * factor_of_least_mape(
                at_peak_s[1:], measured=column(alike, "measured_s")
            )
    return predicted_s


def filled_in_table(trained: Cells, tested: Cells, *, ridge: float = RIDGE) -> Floats:
    r"""Fill in a table: the logarithm of a time is a sum of numbers, one for each label of a cell (``labels_of``).

    .. math:: \ln T = m + \sum_t x_{t,\,label_t}

    fitted by ridge regression around the mean m; a cell with a label that no trained cell has is not predicted.
    """
    labels = [*zip(*map(labels_of, (*trained, *tested)), strict=True)]
    known = len(trained)
    design = np.hstack([_one_hot(term) for term in labels])
    known_rows, log_s = design[:known], np.log(column(trained, "measured_s"))
    mean = log_s.mean() if known else np.nan
    numbers = np.linalg.solve(
        known_rows.T @ known_rows + ridge * np.eye(design.shape[1]), known_rows.T @ (log_s - mean)
    )
    is_known = design[known:] @ (known_rows.sum(axis=0) > 0) == len(labels)
    return np.where(is_known, np.exp(mean + design[known:] @ numbers), np.nan)


def labels_of(cell: PredictedCell) -> tuple[Hashable, Hashable]:
    """Return a cell's places in the tables of framework by network and of network by device."""
    return _item(cell), (cell.network, cell.batch_size, cell.device, cell.threads)


def _one_hot(labels: Sequence[Hashable]) -> Floats:
    """Return a column of ones and zeros for each label, in order of first appearance."""
    numbers = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    return np.eye(len(numbers))[[numbers[label] for label in labels]]


def nearest_work(trained: Cells, tested: Cells) -> Floats:
    r"""Time of the most similar network on the same device with the same framework, scaled by FLOP.

    The most similar network has the nearest logarithm of FLOP per byte.
    """
    predicted_s = np.full(len(tested), np.nan)
    for place, one in enumerate(tested):
        others = [
            cell
            for cell in trained
            if (cell.framework, cell.device, cell.threads) == (one.framework, one.device, one.threads)
            and cell.network != one.network
        ]
        if others:
            flop = column([one, *others], "flop_count")
            intensity = np.log(flop / column([one, *others], "moved_bytes"))
            nearest = int(np.argmin(np.abs(intensity[1:] - intensity[0])))
            predicted_s[place] = column(others, "measured_s")[nearest] * flop[0] / flop[1 + nearest]
    return predicted_s


def sister_times(
    trained: Cells, tested: Cells, *, sisters: Sisters, speed: Callable[[PredictedCell], float] = lambda cell: 1.0
) -> Floats:
    """Predict each cell by the geometric mean of its sisters' times, each scaled by its device's speed."""
    predicted_s = np.full(len(tested), np.nan)
    for place, one in enumerate(tested):
        logs = [
            math.log(sister.measured_s * speed(sister))
            for sister in sisters(one, [cell for cell in trained if cell is not one])
        ]
        if logs:
            predicted_s[place] = math.exp(fmean(logs)) / speed(one)
    return predicted_s


def on_other_devices(one: PredictedCell, others: Cells) -> list[PredictedCell]:
    """Return the cells that ran the same on another device."""
    return [cell for cell in others if _item(cell) == _item(one) and cell.device != one.device]


def device_speed(cell: PredictedCell) -> float:
    """Return sqrt(FLOP/s x bandwidth). A K80 die does best at its issue limit, 0.667 x 4.368 = 2.91 TFLOP/s."""
    return math.sqrt(cell.peak_flop_per_s * cell.bandwidth_bytes_per_s)


def on_other_cpus(one: PredictedCell, others: Cells, *, same_threads: bool) -> list[PredictedCell]:
    """Return the other CPU's cells with the same number of threads or, failing that, the most threads below that."""
    below = [cell for cell in on_other_devices(one, others) if _threads(cell) <= _threads(one)]
    used = _threads(one) if same_threads else max(map(_threads, below), default=0)
    return [cell for cell in below if _threads(cell) == used]


def on_all_cores(one: PredictedCell, others: Cells, *, below: Cells, cores: Mapping[str, int]) -> list[PredictedCell]:
    """Return the cells of ``below`` that ran the same with one thread for each core."""
    try:
        is_beyond = _threads(one) > cores[one.device]
    except KeyError as error:
        allowed = "the cores of every CPU in the rows"
        raise ArgumentError(argument="physical_cores", given=dict(cores), allowed=allowed) from error
    alike = [
        cell
        for cell in below
        if (_item(cell), cell.device) == (_item(one), one.device) and _threads(cell) <= cores[one.device]
    ]
    most = max(map(_threads, alike), default=0)
    return [cell for cell in alike if is_beyond and _threads(cell) == most]


def amdahl_log(trained: Cells, tested: Cells) -> Floats:
    r"""Amdahl's law with a logarithmic overhead, fitted to the other thread counts of the same row.

    .. math:: T(k) = a + \frac{b}{k} + c \ln k, \qquad a, b, c \ge 0

    fitted by least squares on relative errors: it interpolates a measured row, and knows nothing of any other.
    """
    from scipy.optimize import nnls  # scipy loads only when something is fitted

    def terms(cells: Cells) -> Floats:
        counts = np.array([_threads(cell) for cell in cells], dtype=np.float64)
        return np.stack([np.ones_like(counts), 1 / counts, np.log(counts)], axis=1)

    predicted_s = np.full(len(tested), np.nan)
    for place, one in enumerate(tested):
        same_row = [cell for cell in trained if cell.row_key == one.row_key and _threads(cell) != _threads(one)]
        if same_row:
            constants, _ = nnls(terms(same_row) / column(same_row, "measured_s")[:, None], np.ones(len(same_row)))
            predicted_s[place] = terms([one])[0] @ constants
    predicted_s[predicted_s <= 0] = np.nan
    return predicted_s


@dataclass(frozen=True, slots=True)
class NaiveRule:
    """A naive rule that can be used in any fold."""

    name: str
    rule: Rule
    parameter_count: Callable[[Cells], int] = field(default=lambda _: 0)


_ROOFLINES = (
    NaiveRule("plain roofline", plain_roofline),
    *(
        NaiveRule(f"roofline x one efficiency, best {label}", partial(scaled_roofline, fitted_for=error), lambda _: 1)
        for error, (label, _) in FACTORS.items()
    ),
)
_PALEO = NaiveRule(
    "percent of peak by framework (Paleo), no LSTM",
    percent_of_peak,
    lambda cells: len({cell.framework for cell in cells if not cell.is_recurrent}),
)
_FILLING_IN = (
    NaiveRule(
        "log-additive: framework by network, network by device",
        filled_in_table,
        lambda cells: 1 + sum(len(set(term)) for term in zip(*map(labels_of, cells), strict=True)),
    ),
    NaiveRule("most alike network, by its FLOP", nearest_work),
)
_ON_ANY_DEVICE = (*_ROOFLINES, _PALEO, *_FILLING_IN)


def _of_other_cpus(name: str, *, same_threads: bool) -> NaiveRule:
    return NaiveRule(name, partial(sister_times, sisters=partial(on_other_cpus, same_threads=same_threads)))


RULES: dict[str, tuple[NaiveRule, ...]] = {
    "gpu": (
        *_ON_ANY_DEVICE,
        NaiveRule(
            "sqrt(FLOP/s x bandwidth) scaling", partial(sister_times, sisters=on_other_devices, speed=device_speed)
        ),
    ),
    "cpu": (
        *_ON_ANY_DEVICE,
        _of_other_cpus("same time as the other CPU, same threads", same_threads=True),
        _of_other_cpus("same time as the other CPU", same_threads=False),
        NaiveRule("Amdahl + log per row", amdahl_log, lambda cells: 3 * len({cell.row_key for cell in cells})),
    ),
    "cpu_oversubscribed": (*_ROOFLINES, *_FILLING_IN),
}


def all_cores_rule(below: Cells, cores: Mapping[str, int]) -> NaiveRule:
    """Return the rule that more threads than cores are as fast as one thread per core, measured in ``below``."""
    sisters = partial(on_all_cores, below=below, cores=cores)
    return NaiveRule("same as all physical cores", partial(sister_times, sisters=sisters))


def in_folds(rules: Sequence[NaiveRule], trained: Sequence[Cells], tested: Sequence[Cells]) -> tuple[Baseline, ...]:
    """Predict by naive rules inside each fold, from its trained cells."""
    return tuple(
        Baseline(
            name=rule.name,
            predicted_s=np.concatenate([rule.rule(*cells) for cells in zip(trained, tested, strict=True)]),
            parameter_count=max(map(rule.parameter_count, trained)),
        )
        for rule in rules
    )
