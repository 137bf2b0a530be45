"""Fits: factors on the constants of spec files, with the fitted table and the remaining errors; and fit plans."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import numpy as np
from pydantic import AfterValidator, Field, StrictBool

from perfmodel.atomic_write import save_text
from perfmodel.calls import in_words
from perfmodel.derived import cache, kept
from perfmodel.errors import ArgumentError
from perfmodel.hardware import source as spec
from perfmodel.hardware import spec_files
from perfmodel.hardware.interval_scale import Seen
from perfmodel.hardware.measured_machine import MeasuredMachine
from perfmodel.hardware.spec_files import toml_document

if TYPE_CHECKING:
    from numpy.typing import NDArray

Z_80: Final = 1.2816
"""Standard deviations on either side of the mean that contain 80 % of a normal distribution. [1]"""


MOST_DEVIATION: Final = 10.0
"""Largest standard deviation of ln(factor): 22,000 times more or less, where no interval means anything. [1]"""
ROUNDED: Final = 1e-3
"""Part of a covariance that rounding to four digits explains. [1]"""


def _patterns_have_a_folder(scales: tuple[str, ...]) -> tuple[str, ...]:
    wrong = [pattern for pattern in scales if pattern.partition("/")[0] not in spec_files.NOUN_BY_FOLDER]
    if wrong:
        spec.invalid(
            f"must begin with a kind folder ({', '.join(spec_files.NOUN_BY_FOLDER)}), but {wrong[0]!r} does not"
        )
    return scales


ConstantPatterns = Annotated[tuple[spec.Text, ...], Field(min_length=1), AfterValidator(_patterns_have_a_folder)]
"""Patterns of full names of constants, each within one kind folder. [-]"""


class FittedOn(spec.SpecTable):
    """The rows of a fit, and the errors that remain on them."""

    table: spec.Text
    subset: Literal["gpu", "cpu", "cpu_oversubscribed"]
    row_count: spec.Count
    parameter_count: spec.Count
    mape_percent: spec.NonNegativeNumber
    typical_factor_percent: spec.NonNegativeNumber
    fitted_at: spec.Day
    code_version: spec.Text
    content: spec.Text
    seen: Seen | None = None

    @property
    def mean_abs_log_ratio(self) -> float:
        """Mean of abs ln(predicted / measured) on the cells used. [1]"""
        return math.log1p(self.typical_factor_percent / 100)


class Factor(spec.SpecTable):
    """One fitted number: a factor on all constants that match its patterns."""

    name: spec.Identifier
    scales: ConstantPatterns
    value: spec.PositiveNumber
    low: spec.PositiveNumber
    high: spec.PositiveNumber
    prior_spread: spec.PositiveNumber
    shared_spread: spec.NonNegativeNumber = 0.0
    group: spec.Identifier | None = None
    covariance: tuple[spec.FiniteNumber, ...] = ()

    @spec.checks("high", beside=("low", "value"))
    @staticmethod
    def _interval_holds_the_value(high: float, low: float, value: float) -> None:
        if not low <= value <= high:
            spec.invalid(f"low, value and high must rise, but are {low:g}, {value:g}, {high:g}")

    def matches(self, name: str) -> bool:
        """Whether the factor scales a constant."""
        return any(fnmatchcase(name, pattern) for pattern in self.scales)


def covariance_of(factors: Sequence[Factor]) -> "NDArray[np.float64]":
    """Covariance of ln(factor), shape (factors, factors); diagonal, from low and high, if the file states none. [1]"""
    count = len(factors)
    if not factors[0].covariance:
        reach = np.array([math.log(entry.high) - math.log(entry.low) for entry in factors]) / 2
        return np.diag((reach / Z_80) ** 2)
    lower = np.zeros((count, count))
    for index, entry in enumerate(factors):
        lower[index, : index + 1] = entry.covariance
    whole: NDArray[np.float64] = lower + np.tril(lower, -1).T
    return whole


class FittedConstant(spec.SpecTable):
    """A constant before and after the fit, for people to read."""

    name: spec.Text
    unit: spec.Text
    shipped: float
    fitted: float
    at_limit: bool = False


class FitFile(spec.SpecFile):
    """A fit: factors on constants of spec files that bring predictions close to a measured table."""

    kind: Literal["fit"]
    fitted_on: FittedOn
    factor: Annotated[tuple[Factor, ...], Field(min_length=1)]
    constant: tuple[FittedConstant, ...] = ()

    @spec.checks("factor")
    @staticmethod
    def _factors_differ(factor: tuple[Factor, ...]) -> None:
        names = [entry.name for entry in factor]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            spec.invalid(f"names must differ, but {twice[0]!r} occurs {names.count(twice[0])} times")

    @spec.checks("factor")
    @staticmethod
    def _covariances_are_a_triangle(factor: tuple[Factor, ...]) -> None:
        lengths = [len(entry.covariance) for entry in factor]
        if any(lengths) and lengths != list(range(1, len(factor) + 1)):
            spec.invalid(
                "covariance must have one number more in each factor, from one in the first, or be absent in all"
            )

    @spec.checks("factor")
    @staticmethod
    def _covariances_give_an_interval(factor: tuple[Factor, ...]) -> None:
        covariance = covariance_of(factor)
        for entry, variance in zip(factor, np.diag(covariance), strict=True):
            if not 0 <= variance <= MOST_DEVIATION**2:
                spec.invalid(
                    f"{entry.name}: the variance of ln(factor) must be from 0 to {MOST_DEVIATION**2:g}, but is "
                    f"{variance:g}; it is the last number of covariance or, without any, follows from low and high"
                )
        least, *_, most = np.linalg.eigvalsh(covariance).tolist() * 2
        if least < -ROUNDED * most:
            spec.invalid(
                "covariance must be that of real numbers: no combination of factors may have a variance below 0, but "
                f"one has {least:g}; copy all rows from the fit again"
            )

    @property
    def covariance(self) -> "NDArray[np.float64]":
        """Covariance of ln(factor), shape (factors, factors); diagonal if the file states none. [1]"""
        return covariance_of(self.factor)

    @property
    def constants_at_limit(self) -> tuple[str, ...]:
        """Names of the constants that a factor moves to the end of their validity range."""
        return tuple(constant.name for constant in self.constant if constant.at_limit)

    def factors_for(self, names: Iterable[str]) -> dict[str, float]:
        """Product of all factors on each constant, by its full name. [1]"""
        return _factors_for(self.factor, tuple(names))

    def describe(self) -> str:
        """Sum up the fit in one line."""
        fit = self.fitted_on
        limited = self.constants_at_limit
        at_limit = f"; at the end of their range: {', '.join(limited)}" if limited else ""
        return (
            f"{fit.parameter_count} constants fitted on {fit.row_count} cells of {fit.table} ({fit.subset}): "
            f"MAPE {fit.mape_percent:.1f} % on them{at_limit}"
        )

    def save(self, path: str | Path) -> None:
        """Write the fit as a TOML that ``load_calibration`` reads."""
        save_text(path, toml_text(self))


def toml_text(fit: FitFile) -> str:
    """Write a fit as TOML."""
    lists = ("factor", "constant", "source")
    return toml_document(fit.model_dump(mode="python"), tables=("fitted_on",), lists=lists)


def products_of(factors: Sequence[tuple[Callable[[str], bool], float]], names: Iterable[str]) -> dict[str, float]:
    """Multiply the factors on each constant. [1]"""
    products: dict[str, float] = {}
    for name in names:
        for matches, factor in factors:
            if matches(name):
                products[name] = products.get(name, 1.0) * factor
    return products


@lru_cache(maxsize=256)
def _factors_for(factors: tuple[Factor, ...], names: tuple[str, ...]) -> dict[str, float]:
    return products_of([(factor.matches, factor.value) for factor in factors], names)


CALIBRATION_KINDS: Final[dict[str, type[FitFile] | type[MeasuredMachine]]] = {
    "fit": FitFile,
    "measured": MeasuredMachine,
}
"""Class of each file in ``calibrations/``, by the ``kind`` that it states."""


@in_words
def load_calibration(
    name_or_path: str | Path | FitFile | MeasuredMachine,
) -> FitFile | MeasuredMachine:
    """Load a fit to a table of whole steps, or a machine that was measured kernel by kernel.

    Parameters
    ----------
    name_or_path : str, Path, FitFile or MeasuredMachine
        A name such as ``shi2016_gpu``, the path of a TOML, or a loaded object, which is returned unchanged. [-]

    Returns
    -------
    FitFile or MeasuredMachine
        A fit is given to predict as ``calibration=``, a measured machine as ``device=``.

    Raises
    ------
    UnknownNameError
        If there is no such file; names the nearest.
    SpecError
        If the file is wrong; lists every fault.
    """
    if isinstance(name_or_path, FitFile | MeasuredMachine):
        return name_or_path
    loaded: FitFile | MeasuredMachine = spec_files.load_by_kind(
        spec_files.find("calibrations", name_or_path), CALIBRATION_KINDS
    )
    return loaded


def load_fit(name_or_path: str | Path | FitFile) -> FitFile:
    """Load a fit; reject a measured machine."""
    loaded = load_calibration(name_or_path)
    if isinstance(loaded, MeasuredMachine):
        raise ArgumentError("calibration", loaded.name, "a fit; pass a measured machine as device=")
    return loaded


KIND_OF_THING = {"framework": "frameworks", "library": "libraries", "device": "devices"}
"""What an unknown may be repeated for -> its kind folder; libraries state the architectures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """One free number of a fit: the log of a factor on every constant that matches a pattern."""

    name: str
    scales: tuple[str, ...]
    group: str
    spread: float
    shared_spread: float
    start: float | None = None
    from_others: bool = False

    def matches(self, constant: str) -> bool:
        """Whether the unknown scales a constant, by its full name."""
        return _matches_any(constant, tuple(self.scales))


MOST_PATTERNS: Final = 256
"""Lists of patterns of which the matching constants are cached. [1]"""
MOST_MATCHED: Final = 512
"""Constants cached per list of patterns; a fit asks for the same ones in every row. [1]"""

_MATCHED: dict[tuple[str, ...], dict[str, bool]] = cache(f"{__name__}.matched")


def _matches_any(constant: str, patterns: tuple[str, ...]) -> bool:
    matched = kept(_MATCHED, patterns, dict, most=MOST_PATTERNS)  # a list per key of both would fill the memory
    matching: bool = kept(
        matched, constant, lambda: any(fnmatchcase(constant, pattern) for pattern in patterns), most=MOST_MATCHED
    )
    return matching


class UnknownTable(spec.SpecTable):
    """One entry of a fit plan; it may be repeated for each framework, library, device or architecture."""

    name: spec.Identifier
    scales: ConstantPatterns
    each: Literal["framework", "library", "device", "architecture"] | None = None
    only: tuple[spec.Identifier, ...] = ()
    spread: spec.PositiveNumber
    shared_spread: spec.NonNegativeNumber = 0.0
    start: spec.PositiveNumber | None = None
    from_others: StrictBool = False
    meaning: spec.Text

    def expand(self, constants: Iterable[str]) -> tuple[Unknown, ...]:
        """Unknowns of this entry that scale at least one of these constants."""
        names = tuple(constants)
        things: tuple[str | None, ...] = (None,) if self.each is None else _things(self.each, names)
        if self.only:
            things = tuple(thing for thing in things if thing in self.only)
        unknowns = []
        for thing in things:
            unknown = Unknown(
                name=self.name if thing is None else f"{self.name}_{thing}",
                scales=tuple(pattern.replace("{each}", thing or "") for pattern in self.scales),
                group=self.name,
                spread=self.spread,
                shared_spread=self.shared_spread,
                start=self.start,
                from_others=self.from_others,
            )
            if any(unknown.matches(name) for name in names):
                unknowns.append(unknown)
        return tuple(unknowns)


def _things(sort: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Files or architectures that appear in names of constants."""
    parts = [name.split("/") for name in names]
    if sort == "architecture":
        return tuple(sorted({part[2].partition(".")[0] for part in parts if part[0] == "libraries"}))
    folder = KIND_OF_THING[sort]
    return tuple(sorted({part[1].partition(".")[0] for part in parts if part[0] == folder}))


class FitPlan(spec.SpecFile):
    """Constants that a fit may change, and by how much."""

    WITHOUT_SOURCE = frozenset({"schema_version", "source"})

    kind: Literal["fit_plan"]
    processor: Literal["gpu", "cpu"]
    noise: spec.PositiveNumber
    outlier: spec.PositiveNumber
    unknown: Annotated[tuple[UnknownTable, ...], Field(min_length=1)]

    def unknowns(self, constants: Iterable[str]) -> tuple[Unknown, ...]:
        """Unknowns of a fit to rows that depend on these constants."""
        names = tuple(constants)
        return tuple(unknown for table in self.unknown for unknown in table.expand(names))


def load_fit_plan(name_or_path: str | Path | FitPlan) -> FitPlan:
    """Load a fit plan."""
    if isinstance(name_or_path, FitPlan):
        return name_or_path
    return spec_files.load(spec_files.find("fit_plans", name_or_path), FitPlan)


def factors_by_constant(
    unknowns: Iterable[Unknown], factors: Mapping[str, float], constants: Iterable[str]
) -> dict[str, float]:
    """Multiply the factors of all unknowns on each constant."""
    return products_of([(unknown.matches, factors[unknown.name]) for unknown in unknowns], constants)
