"""Naive rules, told in each fold exactly what the model was told: the trained cells and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.cost.roofline import roofline_time
from perfmodel.validation import baselines, cpu_baselines
from perfmodel.validation.baselines import Baseline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perfmodel.validation.cells import PredictedCell
    from perfmodel.validation.columns import Floats

Cells = Sequence["PredictedCell"]
Rule = Callable[[Cells, Cells], "Floats"]
"""Trained cells, and cells to be predicted -> predicted times, NaN where the rule has nothing to say. [s]"""

PALEO = "percent of peak by framework (Paleo), no LSTM"


def _column(cells: Cells, name: str) -> list[float]:
    return [getattr(cell, name) for cell in cells]


def _measured(cells: Cells) -> list[float]:
    return _column(cells, "measured_s")


def _sides(trained: Cells, tested: Cells) -> list[str]:
    return ["trained"] * len(trained) + ["tested"] * len(tested)


def _roofline(trained: Cells, tested: Cells, *, fitted_for: str) -> Floats:
    cells = (*trained, *tested)
    rule = baselines.roofline_one_efficiency(
        _measured(cells),
        flop_count=_column(cells, "flop_count"),
        moved_bytes=_column(cells, "moved_bytes"),
        peak_flop_per_s=_column(cells, "peak_flop_per_s"),
        bandwidth_bytes_per_s=_column(cells, "bandwidth_bytes_per_s"),
        folds=_sides(trained, tested),
        fitted_for=fitted_for,
    )
    return rule.predicted_s[len(trained) :]


def _plain_roofline(trained: Cells, tested: Cells) -> Floats:
    """Arithmetic at the peak or compulsory traffic at the bandwidth, whichever takes longer: told nothing."""
    del trained
    compute_s = np.array(_column(tested, "flop_count")) / np.array(_column(tested, "peak_flop_per_s"))
    memory_s = np.array(_column(tested, "moved_bytes")) / np.array(_column(tested, "bandwidth_bytes_per_s"))
    times: Floats = roofline_time(compute_s=compute_s, memory_s=memory_s)
    return times


def _paleo(trained: Cells, tested: Cells) -> Floats:
    """Percent of peak on the cells that Paleo can express: it has no recurrent layer."""
    known = [cell for cell in trained if not cell.is_recurrent]
    asked = np.array([not cell.is_recurrent for cell in tested], dtype=bool)
    predicted_s = np.full(len(tested), np.nan)
    if known and asked.any():
        cells = (*known, *(cell for cell in tested if not cell.is_recurrent))
        rule = baselines.percent_of_peak(
            _measured(cells),
            flop_count=_column(cells, "flop_count"),
            peak_flop_per_s=_column(cells, "peak_flop_per_s"),
            frameworks=[cell.framework for cell in cells],
            folds=_sides(known, cells[len(known) :]),
        )
        predicted_s[asked] = rule.predicted_s[len(known) :]
    return predicted_s


def _one_by_one(rule: Callable[[Cells], Floats], trained: Cells, tested: Cells) -> Floats:
    """Ask a rule that looks for sister cells about each tested cell by itself, so that none sees another."""
    others = [[cell for cell in trained if cell is not one] for one in tested]
    return np.array([rule((*known, one))[-1] for known, one in zip(others, tested, strict=True)])


def _device_scaling(cells: Cells) -> Floats:
    return baselines.device_scaling(
        _measured(cells),
        items=[(cell.framework, cell.network, cell.batch_size) for cell in cells],
        devices=[cell.device for cell in cells],
        peak_flop_per_s=_column(cells, "peak_flop_per_s"),
        bandwidth_bytes_per_s=_column(cells, "bandwidth_bytes_per_s"),
    ).predicted_s


def _other_cpu(cells: Cells, *, same_threads: bool) -> Floats:
    rule, same_count = cpu_baselines.same_as_other_cpu(
        _measured(cells),
        items=[(cell.framework, cell.network, cell.batch_size) for cell in cells],
        devices=[cell.device for cell in cells],
        threads=[cell.threads or 1 for cell in cells],
    )
    return np.where(same_count, rule.predicted_s, np.nan) if same_threads else rule.predicted_s


def _amdahl_log(cells: Cells) -> Floats:
    return cpu_baselines.amdahl_log(
        _measured(cells), rows=[cell.row_key for cell in cells], threads=[cell.threads or 1 for cell in cells]
    ).predicted_s


def _all_cores(cells: Cells, *, below: Cells, cores: Mapping[str, int]) -> Floats:
    known = (*below, cells[-1])
    return cpu_baselines.same_as_all_cores(
        _measured(known),
        items=[(cell.framework, cell.network, cell.batch_size) for cell in known],
        devices=[cell.device for cell in known],
        threads=[cell.threads or 1 for cell in known],
        physical_cores=cores,
    ).predicted_s


def _terms(cells: Cells) -> tuple[list[Hashable], list[Hashable]]:
    return (
        [(cell.framework, cell.network, cell.batch_size) for cell in cells],
        [(cell.network, cell.batch_size, cell.device, cell.threads) for cell in cells],
    )


def _log_additive(trained: Cells, tested: Cells) -> Floats:
    cells = (*trained, *tested)
    rule = baselines.log_additive(_measured(cells), terms=_terms(cells), folds=_sides(trained, tested))
    return rule.predicted_s[len(trained) :]


def _labels_of_terms(cells: Cells) -> int:
    return 1 + sum(len(set(labels)) for labels in _terms(cells))


def _most_alike(trained: Cells, tested: Cells) -> Floats:
    cells = (*trained, *tested)
    rule = baselines.nearest_work(
        _measured(cells),
        items=[(cell.framework, cell.device, cell.threads) for cell in cells],
        networks=[cell.network for cell in cells],
        flop_count=_column(cells, "flop_count"),
        moved_bytes=_column(cells, "moved_bytes"),
        folds=_sides(trained, tested),
    )
    return rule.predicted_s[len(trained) :]


@dataclass(frozen=True, slots=True)
class NaiveRule:
    """A naive rule that can be asked in any fold.

    Parameters
    ----------
    name : str
        For reports. [-]
    rule : callable
        Trained and tested cells to predicted times. [s]
    parameter_count : callable
        Trained cells to the numbers fitted. [1]
    """

    name: str
    rule: Rule
    parameter_count: Callable[[Cells], int] = field(default=lambda _: 0)


def _frameworks(cells: Cells) -> int:
    return len({cell.framework for cell in cells if not cell.is_recurrent})


_ROOFLINES = (
    NaiveRule("plain roofline", _plain_roofline),
    *(
        NaiveRule(f"roofline x one efficiency, best {label}", partial(_roofline, fitted_for=error), lambda _: 1)
        for error, (label, _) in baselines.FACTORS.items()
    ),
)
_PALEO = NaiveRule(PALEO, _paleo, _frameworks)
_FILLING_IN = (
    NaiveRule("log-additive: framework by network, network by device", _log_additive, _labels_of_terms),
    NaiveRule("most alike network, by its FLOP", _most_alike),
)

RULES: dict[str, tuple[NaiveRule, ...]] = {
    "gpu": (
        *_ROOFLINES,
        _PALEO,
        *_FILLING_IN,
        NaiveRule("sqrt(FLOP/s x bandwidth) scaling", partial(_one_by_one, _device_scaling)),
    ),
    "cpu": (
        *_ROOFLINES,
        _PALEO,
        *_FILLING_IN,
        NaiveRule(
            "same time as the other CPU, same threads", partial(_one_by_one, partial(_other_cpu, same_threads=True))
        ),
        NaiveRule("same time as the other CPU", partial(_one_by_one, partial(_other_cpu, same_threads=False))),
        NaiveRule("Amdahl + log per row", partial(_one_by_one, _amdahl_log), lambda cells: 3 * len(_rows(cells))),
    ),
    "cpu_oversubscribed": (*_ROOFLINES, *_FILLING_IN),
}
"""Naive rules by subset."""


def _rows(cells: Cells) -> set[tuple[str, str, str]]:
    return {cell.row_key for cell in cells}


def all_cores_rule(below: Cells, cores: Mapping[str, int]) -> NaiveRule:
    """Return the rule for more threads than cores: as fast as with as many threads as cores.

    Parameters
    ----------
    below : sequence of PredictedCell
        Measured cells with threads up to the cores, which the rule is told in every fold. [-]
    cores : mapping of str to int
        Physical cores of each CPU. [1]

    Returns
    -------
    NaiveRule
        Ready to be asked. [-]
    """
    return NaiveRule("same as all physical cores", partial(_one_by_one, partial(_all_cores, below=below, cores=cores)))


def in_folds(rules: Sequence[NaiveRule], trained: Sequence[Cells], tested: Sequence[Cells]) -> tuple[Baseline, ...]:
    """Return what naive rules predict when each fold tells them its trained cells.

    Parameters
    ----------
    rules : sequence of NaiveRule
        Rules. [-]
    trained, tested : sequence of sequences of PredictedCell
        Cells of each fold. [-]

    Returns
    -------
    tuple of Baseline
        One for each rule; predictions in the order of the folds. [s]
    """
    found = []
    for rule in rules:
        predicted = [rule.rule(known, asked) for known, asked in zip(trained, tested, strict=True)]
        found.append(
            Baseline(
                name=rule.name,
                predicted_s=np.concatenate(predicted),
                parameter_count=max(rule.parameter_count(known) for known in trained),
                trained_on="the cells that each fold trains on",
            )
        )
    return tuple(found)
