"""How wide prediction intervals are: found from residuals of rows that fits held out, a file for each processor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from perfmodel.hardware import spec_files
from perfmodel.hardware.constant import FiniteNumber
from perfmodel.hardware.seen import Seen
from perfmodel.hardware.source import (
    Count,
    Fraction,
    Identifier,
    NonNegativeNumber,
    PositiveNumber,
    SpecFile,
    SpecTable,
    Text,
)


class Unseen(SpecTable):
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

    unfitted: NonNegativeNumber
    device: NonNegativeNumber
    framework: NonNegativeNumber
    operations: NonNegativeNumber
    dtype: NonNegativeNumber
    architecture: NonNegativeNumber
    oversubscription: NonNegativeNumber


class Quantiles(SpecTable):
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

    unfitted: PositiveNumber
    interpolated: PositiveNumber
    new_device: PositiveNumber
    new_framework: PositiveNumber
    new_operations: PositiveNumber


class ConstantSpreads(SpecTable):
    """Standard deviation of ln(constant) of constants that no fit plan names, by the provenance of their source.

    Attributes
    ----------
    datasheet, measured, fitted, calculation, estimate, memory : float
        Spread of each. [1]
    """

    datasheet: PositiveNumber
    measured: PositiveNumber
    fitted: PositiveNumber
    calculation: PositiveNumber
    estimate: PositiveNumber
    memory: PositiveNumber


class ExchangeSpreads(SpecTable):
    """Standard deviation of ln(measured / predicted time) of exchanges between devices, measured by themselves.

    Attributes
    ----------
    library : float
        Of collectives of a library whose constants were fitted to other rows. [1]
    algorithm : float
        Of an algorithm by its name at the rate of large copies, against what a library takes for long messages. [1]
    """

    library: PositiveNumber
    algorithm: PositiveNumber


class FoundOn(SpecTable):
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

    tables: Annotated[tuple[Identifier, ...], Field(min_length=1)]
    protocols: tuple[Text, ...]
    residual_count: Count
    mean_abs_log_ratio: PositiveNumber
    fitted_mean_abs_log_ratio: PositiveNumber


class IntervalScale(SpecFile):
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
    level: Fraction
    structural: PositiveNumber
    constants_weight: NonNegativeNumber
    other_slope: FiniteNumber
    mean_other_share: Annotated[float, Field(ge=0, le=1, strict=True)]
    damping: Annotated[float, Field(ge=0, le=1, strict=True)]
    quantile: Quantiles
    unseen: Unseen
    spread: ConstantSpreads
    exchange: ExchangeSpreads | None = None
    seen: dict[Identifier, Seen]
    found_on: FoundOn

    def seen_without(self, table: str | None = None) -> Seen:
        """Return what the residuals tell about, but for those of one table.

        Parameters
        ----------
        table : str or None
            The table that is to be scored; None for all. [-]

        Returns
        -------
        Seen
            Of all other tables together. [-]
        """
        return Seen.together(seen for name, seen in self.seen.items() if name != table)


def load_interval_scale(name_or_path: str | Path | IntervalScale) -> IntervalScale:
    """Load an interval scale.

    Parameters
    ----------
    name_or_path : str, Path or IntervalScale
        ``gpu_80`` or ``cpu_80``, a path to a TOML, or a scale, which is returned as it is. [-]

    Returns
    -------
    IntervalScale
        The validated scale. [-]

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
