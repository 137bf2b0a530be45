"""Fit plans: which constants of the spec files are free, how sure their sourced values are, which hang together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StrictBool

from perfmodel.hardware import spec_files
from perfmodel.hardware.calibration import ConstantPatterns
from perfmodel.hardware.source import Identifier, NonNegativeNumber, PositiveNumber, SpecFile, SpecTable, Text

KIND_OF_THING = {"framework": "frameworks", "library": "libraries", "device": "devices"}
"""What an unknown may be repeated for -> kind folder in names of constants; architectures stand in a library's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """One free number of a fit: the logarithm of a factor on every constant that a pattern matches.

    Parameters
    ----------
    name : str
        Unique in the fit. [-]
    scales : tuple of str
        Patterns of full names of constants. [-]
    group : str
        Unknowns of one group share a common part. [-]
    spread, shared_spread : float
        Standard deviations of the logarithm: of this unknown about its group's mean, and of that mean. [1]
    start : float or None
        Value that its constants have at a factor of one; None for their files' values. [unit of the constants]
    from_others : bool
        Whether a board by itself takes it from the fit to the others, where there are others. [-]
    """

    name: str
    scales: tuple[str, ...]
    group: str
    spread: float
    shared_spread: float
    start: float | None = None
    from_others: bool = False

    def matches(self, constant: str) -> bool:
        """Tell whether the unknown scales a constant, by its full name."""
        return _matches_any(constant, tuple(self.scales))


@lru_cache(maxsize=2**15)  # a fit asks the same of every row
def _matches_any(constant: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(constant, pattern) for pattern in patterns)


class UnknownTable(SpecTable):
    """One entry of a plan, repeated for each framework, library, device or architecture if it says so.

    Attributes
    ----------
    name : str
        Name; what it is repeated for is appended. [-]
    scales : tuple of str
        Patterns of full names of constants; ``{each}`` stands for what it is repeated for. [-]
    each : str or None
        ``framework``, ``library``, ``device`` or ``architecture``: one unknown for each in the rows. [-]
    only : tuple of str
        What it is repeated for, if not for every such thing. [-]
    spread : float
        Standard deviation of ln(factor), about the group's mean where it is repeated. [1]
    shared_spread : float
        Standard deviation of the logarithm of the group's mean. [1]
    start : float or None
        Value that the prior is centred on, where the value of the constant's file was fitted to the very rows that are
        to be fitted: measured kernels; None for the file's. [unit of the constants]
    from_others : bool
        Whether a board that is fitted by itself takes it from a fit to the other boards of its table: what a library
        does on every board. [-]
    meaning : str
        Why the sourced values may be off by so much. [-]
    """

    name: Identifier
    scales: ConstantPatterns
    each: Literal["framework", "library", "device", "architecture"] | None = None
    only: tuple[Identifier, ...] = ()
    spread: PositiveNumber
    shared_spread: NonNegativeNumber = 0.0
    start: PositiveNumber | None = None
    from_others: StrictBool = False
    meaning: Text

    def expand(self, constants: Iterable[str]) -> tuple[Unknown, ...]:
        """Return the unknowns that this entry amounts to for constants that occur.

        Parameters
        ----------
        constants : iterable of str
            Full names of the constants of all rows. [-]

        Returns
        -------
        tuple of Unknown
            One, or one for each thing; none where nothing matches. [-]
        """
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


def _things(each: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the stems, or the architectures, that occur in the names of constants."""
    parts = [name.split("/") for name in names]
    if each == "architecture":
        return tuple(sorted({rest.partition(".")[0] for kind, _, rest in parts if kind == "libraries"}))
    folder = KIND_OF_THING[each]
    return tuple(sorted({part[1].partition(".")[0] for part in parts if part[0] == folder}))


class FitPlan(SpecFile):
    """What a fit may change, and by how much.

    Attributes
    ----------
    kind : str
        ``fit_plan``. [-]
    processor : str
        ``gpu`` or ``cpu``. [-]
    noise : float
        Standard deviation of ln(measured) about a perfect model: repeats, rounding, the machine's mood. [1]
    outlier : float
        Residual, in units of the noise, from which on a row counts linearly instead of quadratically. [1]
    unknown : tuple of UnknownTable
        The free constants. [-]
    """

    WITHOUT_SOURCE = frozenset({"schema_version", "source"})

    kind: Literal["fit_plan"]
    processor: Literal["gpu", "cpu"]
    noise: PositiveNumber
    outlier: PositiveNumber
    unknown: Annotated[tuple[UnknownTable, ...], Field(min_length=1)]

    def unknowns(self, constants: Iterable[str]) -> tuple[Unknown, ...]:
        """Return the unknowns of a fit to rows that depend on these constants.

        Parameters
        ----------
        constants : iterable of str
            Full names of constants. [-]

        Returns
        -------
        tuple of Unknown
            Free numbers in the order of the plan. [-]
        """
        names = tuple(constants)
        return tuple(unknown for table in self.unknown for unknown in table.expand(names))


def load_fit_plan(name_or_path: str | Path | FitPlan) -> FitPlan:
    """Load a fit plan.

    Parameters
    ----------
    name_or_path : str, Path or FitPlan
        A name such as ``gpu``, a path to a TOML, or a plan, which is returned as it is. [-]

    Returns
    -------
    FitPlan
        The validated plan. [-]

    Raises
    ------
    UnknownNameError
        If no such plan exists; names the nearest.
    SpecError
        If the file is wrong; lists every fault.
    """
    if isinstance(name_or_path, FitPlan):
        return name_or_path
    return spec_files.load(spec_files.find("fits", name_or_path), FitPlan)


def factors_by_constant(
    unknowns: Iterable[Unknown], factors: Mapping[str, float], constants: Iterable[str]
) -> dict[str, float]:
    """Return the product of the factors on each constant.

    Parameters
    ----------
    unknowns : iterable of Unknown
        Free numbers. [-]
    factors : mapping of str to float
        Factor of each unknown by its name. [1]
    constants : iterable of str
        Full names of constants. [-]

    Returns
    -------
    dict of str to float
        Constants that no unknown matches are left out. [1]
    """
    products: dict[str, float] = {}
    matching = tuple(unknowns)
    for constant in constants:
        for unknown in matching:
            if unknown.matches(constant):
                products[constant] = products.get(constant, 1.0) * factors[unknown.name]
    return products
