"""What a scoreboard consists of: plain records of tables, scores, worst cells, ratios, factors and terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PERFMODEL: Final = "perfmodel"
"""Name of the model that is not naive. [-]"""

WITH_SET_ASIDE: Final = "perfmodel, with the cells set aside"
"""The same, scored on the cells that are set aside, too. [-]"""

STEPS: Final = "steps"
KERNELS: Final = "kernels"
SYSTEMS: Final = "systems"
COLLECTIVES: Final = "collectives"
MANY_DEVICES: Final = "many_devices"

KINDS: Final = (STEPS, KERNELS, SYSTEMS, COLLECTIVES, MANY_DEVICES)
"""Kinds of tables, in the order of the page: steps on one device that come with perfmodel; timed calls of kernels;
steps that do not come with it; calls of collectives; networks on several devices. [-]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardScore:
    """One score.

    Parameters
    ----------
    table, subset, part, protocol, model : str
        What was scored, under what, whose predictions. [-]
    cells, fitted : int
        Cells scored, and numbers fitted in one fold at most. [1]
    mape, median_ape, p90_ape, typical_factor_percent : float
        Mean, median and 90th percentile of the absolute error; 100 (exp(mean |ln ratio|) - 1). [%]
    geometric_mean_ratio : float
        Bias: predicted over measured. [1]
    percent_within_10, percent_within_25 : float
        Percentage of the cells that are predicted within 10 and 25 percent. [%]
    mape_low, mape_high : float or None
        90 % interval of the mean error when whole rows are drawn again. [%]
    interval_coverage_percent : float or None
        Percentage of the cells inside their own 80 % interval; None where predictions have none. [%]
    interval_width : float or None
        Median of high over low of these intervals. [1]
    interval_score, constant_interval_score : float or None
        Mean interval score of ln(time), lower is better: of these, and of the better interval of constant ratio. [1]
    note : str
        What must be known beside it; mostly empty. [-]
    code : str
        Fingerprint of the code and the spec files that it follows from; empty where none was kept. [-]
    """

    table: str
    subset: str
    part: str = "all"
    protocol: str
    model: str
    cells: int
    fitted: int
    mape: float
    median_ape: float
    p90_ape: float
    typical_factor_percent: float
    geometric_mean_ratio: float
    percent_within_10: float
    percent_within_25: float
    mape_low: float | None = None
    mape_high: float | None = None
    interval_coverage_percent: float | None = None
    interval_width: float | None = None
    interval_score: float | None = None
    constant_interval_score: float | None = None
    note: str = ""
    code: str = ""

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What tells it from every other score."""
        return self.table, self.subset, self.part, self.protocol, self.model


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredTable:
    """A table that was scored.

    Parameters
    ----------
    name, kind : str
        Name, and one of ``KINDS``. [-]
    is_shipped : bool
        Whether it comes with perfmodel. [-]
    sha256 : str
        Hash of its content. [-]
    rows : int
        Rows scored. [1]
    not_scored : str
        What of it is not scored, and why; may be empty. [-]
    """

    name: str
    kind: str
    is_shipped: bool
    sha256: str
    rows: int
    not_scored: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCell:
    """One of the cells that are predicted worst.

    Parameters
    ----------
    table, subset, protocol, cell : str
        Where, and which. [-]
    measured_s, predicted_s : float
        Times. [s]
    ratio : float
        predicted / measured. [1]
    explanation : str
        What the prediction says of itself, and what the table says of the run. [-]
    """

    table: str
    subset: str
    protocol: str
    cell: str
    measured_s: float
    predicted_s: float
    ratio: float
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioRange:
    """Lowest and highest predicted / measured of a network with a framework, nothing fitted.

    Parameters
    ----------
    table, subset, network, framework : str
        Which cells. [-]
    lowest, highest : float
        predicted / measured. [1]
    """

    table: str
    subset: str
    network: str
    framework: str
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorRange:
    """A factor that a fit to all cells puts on sourced constants, with its 80 % interval.

    Parameters
    ----------
    table, subset, name : str
        Which fit, and which unknown. [-]
    factor, low, high : float
        The factor and its interval. [1]
    """

    table: str
    subset: str
    name: str
    factor: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOrder:
    """How often two frameworks on one network and device are put in the right order, nothing fitted.

    Parameters
    ----------
    table, subset : str
        Which cells. [-]
    right_percent : float
        Pairs in the right order. [%]
    pairs : int
        Pairs. [1]
    feedforward_mape : float or None
        Mean absolute error of the cells without recurrent layers; None where there are none. [%]
    feedforward_cells : int
        Their number. [1]
    """

    table: str
    subset: str
    right_percent: float
    pairs: int
    feedforward_mape: float | None
    feedforward_cells: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TermScore:
    """Score of a protocol without one physical term.

    Parameters
    ----------
    table, subset, protocol, without : str
        Which cells, which folds, and what was left out. [-]
    mape, typical_factor_percent, change : float
        Errors, and the change of the second against all terms. [%, %, percentage points]
    """

    table: str
    subset: str
    protocol: str
    without: str
    mape: float
    typical_factor_percent: float
    change: float
