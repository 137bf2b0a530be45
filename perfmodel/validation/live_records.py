"""What the live check measures and what came out of it: plain records, known without torch."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

MODES: Final[Mapping[str, str]] = {"step": "training step", "forward": "inference"}
"""Phases that are measured, and what they are called in reports."""

LIVE_DTYPES: Final = ("fp32", "tf32", "bf16")
"""Data types in which networks are run: plain, with the products of a GPU rounded, under autocast. Not fp16, whose
training steps scale the loss, which no prediction counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCase:
    """A network in one phase and one data type.

    Parameters
    ----------
    network : str
        Name in the catalogue of live networks. [-]
    phase : str
        One of MODES. [-]
    dtype : str
        ``fp32`` or ``tf32`` as a GPU's products round, ``bf16`` under autocast. [-]
    batch_size : int
        Samples of a step. [samples]
    """

    network: str
    phase: str
    dtype: str
    batch_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePlan:
    """How the cases are measured.

    Parameters
    ----------
    device : str
        ``cpu`` or ``cuda:0``, as torch names it. [-]
    threads : int
        CPU threads of torch. [1]
    cases : tuple of LiveCase
        What is measured, in this order in each round. [-]
    repeats : int
        Rounds over all cases. [1]
    warmup_steps : int
        Steps before the clock starts, in every round. [1]
    steps : int
        Fewest timed steps of a case in a round. [1]
    seconds : float
        Further steps are timed until these have passed. [s]
    """

    device: str
    threads: int
    cases: tuple[LiveCase, ...]
    repeats: int
    warmup_steps: int
    steps: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as values that JSON knows."""
        return asdict(self)

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> LivePlan:
        """Return the plan that ``to_dict`` gave."""
        cases = tuple(LiveCase(**case) for case in given["cases"])
        return LivePlan(**{**given, "cases": cases})


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMeasurement:
    """Times of one case.

    Parameters
    ----------
    case : LiveCase
        What was measured. [-]
    repeats_s : tuple of float
        Median step of each round; fewer than were asked for where it failed. [s]
    reference_s : tuple of float
        The reference kernel around each of them. [s]
    failure : str
        Why it could not be measured; mostly empty. [-]
    """

    case: LiveCase
    repeats_s: tuple[float, ...]
    reference_s: tuple[float, ...]
    failure: str = ""

    @property
    def median_s(self) -> float:
        """Median of the repeats. [s]"""
        return statistics.median(self.repeats_s)

    @property
    def spread_percent(self) -> float:
        """Longest less shortest repeat, over their median. [%]"""
        return spread_percent(self.repeats_s)

    @property
    def reference_spread_percent(self) -> float:
        """The same of the reference kernel while this case was measured. [%]"""
        return spread_percent(self.reference_s)


def spread_percent(seconds: tuple[float, ...]) -> float:
    """Return longest less shortest of some times [s], over their median [%].

    Examples
    --------
    >>> spread_percent((1.0, 1.1, 1.2))
    18.18
    """
    return 100 * (max(seconds) - min(seconds)) / statistics.median(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSession:
    """All times of a live check.

    Parameters
    ----------
    measurements : tuple of LiveMeasurement
        One for each case. [-]
    facts : mapping of str to str
        What they were measured with: versions, allocator, page faults; read-only by convention. [-]
    """

    measurements: tuple[LiveMeasurement, ...]
    facts: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def reference_spread_percent(self) -> float:
        """Spread of the reference kernel over the whole session. [%]"""
        times = tuple(seconds for each in self.measurements for seconds in each.reference_s)
        return spread_percent(times) if times else 0.0
