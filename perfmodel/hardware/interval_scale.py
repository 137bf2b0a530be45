"""How wide prediction intervals are: found from residuals of rows that fits held out, a file for each processor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field, field_validator

from perfmodel.hardware import source as spec
from perfmodel.hardware import spec_files


class Unseen(spec.SpecTable):
    """What extrapolating adds to the spread of ln(measured / predicted), in quadrature.

    Attributes
    ----------
    unfitted : float
        No whole step was fitted at all: constants as their files state them. [1]
    device, framework : float
        A device, a framework without a fitted row; where nothing was fitted, without a measured one. [1]
    operations : float
        A mix of operations of which no part was fitted, e.g. the first recurrent network; a part of it in
        proportion. [1]
    dtype : float
        A data type without a fitted row. [1]
    architecture : float
        A library without constants for the device's architecture. [1]
    oversubscription : float
        More threads than physical cores. [1]
    """

    unfitted: spec.NonNegativeNumber
    device: spec.NonNegativeNumber
    framework: spec.NonNegativeNumber
    operations: spec.NonNegativeNumber
    dtype: spec.NonNegativeNumber
    architecture: spec.NonNegativeNumber
    oversubscription: spec.NonNegativeNumber


class Quantiles(spec.SpecTable):
    """Spreads to either side that hold the wanted share of residuals.

    Attributes
    ----------
    unfitted : float
        Of predictions that nothing was fitted for. [1]
    interpolated : float
        Of fitted ones that meet nothing new. [1]
    new_device, new_framework, new_operations : float
        Of fitted ones that meet a new device, framework or mix of operations; of several, the last counts. [1]
    """

    unfitted: spec.PositiveNumber
    interpolated: spec.PositiveNumber
    new_device: spec.PositiveNumber
    new_framework: spec.PositiveNumber
    new_operations: spec.PositiveNumber


class ConstantSpreads(spec.SpecTable):
    """Standard deviation of ln(constant) of constants that no fit plan names, by the provenance of their source.

    Attributes
    ----------
    datasheet, measured, fitted, calculation, estimate, memory : float
        Spread of each. [1]
    """

    datasheet: spec.PositiveNumber
    measured: spec.PositiveNumber
    fitted: spec.PositiveNumber
    calculation: spec.PositiveNumber
    estimate: spec.PositiveNumber
    memory: spec.PositiveNumber


class ExchangeSpreads(spec.SpecTable):
    """Standard deviation of ln(measured / predicted time) of exchanges between devices, measured by themselves.

    Attributes
    ----------
    library : float
        Of collectives of a library whose constants were fitted to other rows. [1]
    algorithm : float
        Of an algorithm by its name at the rate of large copies, against what a library takes for long messages. [1]
    """

    library: spec.PositiveNumber
    algorithm: spec.PositiveNumber


class FoundOn(spec.SpecTable):
    """What a scale was found on.

    Attributes
    ----------
    tables : tuple of str
        Measured tables. [-]
    protocols : tuple of str
        How rows were held out. [-]
    residual_count : int
        Residuals of rows that their fits had not seen, over all protocols. [1]
    mean_abs_log_ratio : float
        Mean of abs ln(predicted / measured) over them. [1]
    fitted_mean_abs_log_ratio : float
        The same on rows that a fit has seen, all of them: what another fit's residual is held against. [1]
    """

    tables: Annotated[tuple[spec.Identifier, ...], Field(min_length=1)]
    protocols: tuple[spec.Text, ...]
    residual_count: spec.Count
    mean_abs_log_ratio: spec.PositiveNumber
    fitted_mean_abs_log_ratio: spec.PositiveNumber


class IntervalScale(spec.SpecFile):
    """Spread and quantile of the intervals of predictions on one kind of processor.

    Attributes
    ----------
    kind : str
        ``interval_scale``. [-]
    processor : str
        ``gpu`` or ``cpu``. [-]
    level : float
        Share of measured times that an interval should hold. [1]
    structural : float
        Spread of ln(measured / predicted) that uncertain constants do not explain. [1]
    constants_weight : float
        Factor on the variance that they do explain. [1]
    other_slope, mean_other_share : float
        Change of the spread's logarithm with the share of the step that arithmetic does not bound; mean share. [1]
    damping : float
        How far widths follow spreads: 0 for one width for all, 1 in proportion. [1]
    quantile : Quantiles
        Damped spreads to either side that hold ``level`` of the residuals, by regime. [1]
    unseen : Unseen
        What extrapolation adds. [1]
    spread : ConstantSpreads
        Of constants that no fit plan names. [1]
    exchange : ExchangeSpreads or None
        Of exchanges between workers; None where none were measured. [1]
    seen : dict of str to Seen
        What the residuals of each table tell about. [-]
    found_on : FoundOn
        Residuals used. [-]
    """

    kind: Literal["interval_scale"]
    processor: Literal["gpu", "cpu"]
    level: spec.Fraction
    structural: spec.PositiveNumber
    constants_weight: spec.NonNegativeNumber
    other_slope: spec.FiniteNumber
    mean_other_share: Annotated[float, Field(ge=0, le=1, strict=True)]
    damping: Annotated[float, Field(ge=0, le=1, strict=True)]
    quantile: Quantiles
    unseen: Unseen
    spread: ConstantSpreads
    exchange: ExchangeSpreads | None = None
    seen: dict[spec.Identifier, Seen]
    found_on: FoundOn

    @property
    def measured(self) -> Seen:
        """What the residuals of all tables tell about together. [-]"""
        return Seen.together(self.seen.values())


def load_interval_scale(name_or_path: str | Path | IntervalScale) -> IntervalScale:
    """Load an interval scale.

    Raises
    ------
    UnknownNameError
        If there is none of that name.
    SpecError
        If the file is wrong; lists every fault.
    """
    if isinstance(name_or_path, IntervalScale):
        return name_or_path
    return spec_files.load(spec_files.find("intervals", name_or_path), IntervalScale)


KINDS_OF_OPERATION: Final = (
    "contraction",
    "convolution",
    "attention",
    "recurrence",
    "memory_pass",
    "gather",
    "update",
)
"""Kinds of operation whose shares of a step make its mix; the optimizer's passes are a kind of their own."""

Share = Annotated[float, Field(ge=0, le=1, strict=True)]

PLACES: Final = 1
"""Decimals to which the shares of a mix are kept: finer ones would tell rows apart that are alike. [1]"""

BLUR: Final = 0.1
"""Share of the time on other kinds below which mixes are the same. [1]"""

NEW_SHARE: Final = 0.4
"""Share of the time on other kinds from which on a mix is new altogether. [1]"""


class SeenRow(NamedTuple):
    """What one measured row tells about.

    Parameters
    ----------
    device : str
        What tells its device from others, see ``Runnable.identity``. [-]
    architecture, framework, dtype : str
        Architecture of the device, stem of the framework's file, data type. [-]
    mix : mapping of str to float
        Shares of the step's time by kind of operation. [1]
    """

    device: str
    architecture: str
    framework: str
    dtype: str
    mix: Mapping[str, float]


class Seen(spec.SpecTable):
    """Devices, frameworks, data types and mixes of operations of some measured rows.

    Attributes
    ----------
    devices : tuple of str
        What tells each device from others: facts of its file, not its name, see ``Runnable.identity``. [-]
    architectures : tuple of str
        Their architectures. [-]
    frameworks : tuple of str
        Stems of their files. [-]
    dtypes : tuple of str
        Data types. [-]
    mixes : tuple of tuple of float
        Shares of a step's time by ``KINDS_OF_OPERATION``, each mix that occurred once. [1]
    """

    devices: tuple[spec.Text, ...]
    architectures: tuple[spec.Text, ...]
    frameworks: tuple[spec.Text, ...]
    dtypes: tuple[spec.Text, ...]
    mixes: tuple[tuple[Share, ...], ...]

    @field_validator("mixes")
    @classmethod
    def _mixes_have_all_kinds(cls, mixes: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
        if any(len(mix) != len(KINDS_OF_OPERATION) for mix in mixes):
            spec.invalid(f"must each have {len(KINDS_OF_OPERATION)} shares: {', '.join(KINDS_OF_OPERATION)}")
        return mixes

    @classmethod
    def of(cls, rows: Iterable[SeenRow]) -> Seen:
        """Collect what rows tell about."""
        known = tuple(rows)
        mixes = {tuple(round(row.mix.get(kind, 0.0), PLACES) for kind in KINDS_OF_OPERATION) for row in known}
        return cls(
            devices=tuple(sorted({row.device for row in known})),
            architectures=tuple(sorted({row.architecture for row in known})),
            frameworks=tuple(sorted({row.framework for row in known})),
            dtypes=tuple(sorted({row.dtype for row in known})),
            mixes=tuple(sorted(mixes)),
        )

    @classmethod
    def together(cls, parts: Iterable[Seen]) -> Seen:
        """Return what several sets of rows tell about together."""
        each = tuple(parts)
        return cls(
            **{name: tuple(sorted({one for part in each for one in getattr(part, name)})) for name in cls.model_fields}
        )

    def distance_to(self, mix: Mapping[str, float]) -> float:
        """Return how far a mix of operations is from the nearest that was seen.

        Parameters
        ----------
        mix : mapping of str to float
            Shares of a step's time by kind of operation. [1]

        Returns
        -------
        float
            0 where the nearest mix is as near as rounding tells, 1 where it spends ``NEW_SHARE`` of the time on other
            kinds, or nothing was seen; in between in proportion. [1]

        Examples
        --------
        >>> dense = {"contraction": 0.8, "memory_pass": 0.2}
        >>> row = SeenRow(device="a", architecture="b", framework="c", dtype="fp32", mix=dense)
        >>> Seen.of([row]).distance_to({"contraction": 0.6, "memory_pass": 0.4})
        0.333
        """
        wanted = [mix.get(kind, 0.0) for kind in KINDS_OF_OPERATION]
        apart = (
            sum(abs(ours - theirs) for ours, theirs in zip(wanted, other, strict=True)) / 2 for other in self.mixes
        )
        return min(max(min(apart, default=1.0) - BLUR, 0.0) / (NEW_SHARE - BLUR), 1.0)
