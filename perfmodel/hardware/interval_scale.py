"""Width of prediction intervals, from residuals of rows held out of fits; a file for each processor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field

from perfmodel.hardware import source as spec
from perfmodel.hardware import spec_files


class Unseen(spec.SpecTable):
    """Spread of ln(measured / predicted) that extrapolation adds, in quadrature."""

    unfitted: spec.NonNegativeNumber
    device: spec.NonNegativeNumber
    framework: spec.NonNegativeNumber
    operations: spec.NonNegativeNumber
    dtype: spec.NonNegativeNumber
    architecture: spec.NonNegativeNumber
    oversubscription: spec.NonNegativeNumber


class Quantiles(spec.SpecTable):
    """Spreads on either side that contain the given share of residuals.

    ``shared_attention`` is left out where no such steps were measured; they then have that of ``unfitted``.
    """

    unfitted: spec.PositiveNumber
    interpolated: spec.PositiveNumber
    new_device: spec.PositiveNumber
    new_framework: spec.PositiveNumber
    new_operations: spec.PositiveNumber
    shared_attention: spec.PositiveNumber | None = None

    def of(self, regime: str) -> float:
        """Return the quantile of a regime. [1]"""
        quantile = getattr(self, regime)
        return float(self.unfitted if quantile is None else quantile)


class ConstantSpreads(spec.SpecTable):
    """Standard deviation of ln(constant), by provenance, for constants that no fit plan names."""

    datasheet: spec.PositiveNumber
    measured: spec.PositiveNumber
    fitted: spec.PositiveNumber
    calculation: spec.PositiveNumber
    estimate: spec.PositiveNumber
    memory: spec.PositiveNumber


class ExchangeSpreads(spec.SpecTable):
    """Standard deviation of ln(measured / predicted time) of exchanges between devices, measured alone.

    ``library`` and ``algorithm`` are those of messages on links, ``calls`` that of a framework's timed calls to a
    parameter server, on the processor on which they were timed.
    """

    library: spec.PositiveNumber
    algorithm: spec.PositiveNumber
    calls: spec.PositiveNumber


class FoundOn(spec.SpecTable):
    """Residuals from which a scale was computed."""

    tables: Annotated[tuple[spec.Identifier, ...], Field(min_length=1)]
    protocols: tuple[spec.Text, ...]
    residual_count: spec.Count
    mean_abs_log_ratio: spec.PositiveNumber
    fitted_mean_abs_log_ratio: spec.PositiveNumber


class IntervalScale(spec.SpecFile):
    """Spread and quantile of the intervals of predictions on one kind of processor."""

    kind: Literal["interval_scale"]
    processor: Literal["gpu", "cpu"]
    level: spec.Fraction
    structural: spec.PositiveNumber
    constants_weight: spec.NonNegativeNumber
    other_slope: spec.FiniteNumber
    mean_other_share: Annotated[float, Field(ge=0, le=1, strict=True)]
    damping: Annotated[float, Field(ge=0, le=1, strict=True)]
    shared_attention_on: tuple[spec.Text, ...] = ()
    """Architectures on which the quantile of shared training was found; elsewhere that of one device holds. [-]"""
    quantile: Quantiles
    unseen: Unseen
    spread: ConstantSpreads
    exchange: ExchangeSpreads | None = None
    seen: dict[spec.Identifier, Seen]
    found_on: FoundOn

    @property
    def measured(self) -> Seen:
        """Devices, frameworks, data types and mixes of operations in the residuals of all tables. [-]"""
        return Seen.together(self.seen.values())

    def measured_without(self, table: str) -> Seen:
        """Return ``measured`` without the residuals of one table. [-]"""
        return Seen.together(rows for name, rows in self.seen.items() if name != table)


def load_interval_scale(name_or_path: str | Path | IntervalScale) -> IntervalScale:
    """Load an interval scale."""
    if isinstance(name_or_path, IntervalScale):
        return name_or_path
    return spec_files.load(spec_files.find("intervals", name_or_path), IntervalScale)


KINDS_OF_OPERATION: Final = (
    "contraction", "convolution", "attention", "recurrence", "memory_pass", "gather", "update",
)  # fmt: skip
"""Kinds of operation whose shares of a step form its mix; the optimizer's passes are a separate kind."""

Share = Annotated[float, Field(ge=0, le=1, strict=True)]

PLACES: Final = 1
"""Decimals of the shares of a mix; more would separate rows that are alike. [1]"""

BLUR: Final = 0.1
"""Share of the time on other kinds below which mixes are the same. [1]"""

NEW_SHARE: Final = 0.4
"""Share of the time on other kinds at or above which a mix is entirely new. [1]"""


class SeenRow(NamedTuple):
    """Device, framework, data type and mix of operations of one measured row."""

    device: str
    architecture: str
    framework: str
    dtype: str
    mix: Mapping[str, float]


class Seen(spec.SpecTable):
    """Devices, frameworks, data types and mixes of operations of some measured rows."""

    devices: tuple[spec.Text, ...]
    architectures: tuple[spec.Text, ...]
    frameworks: tuple[spec.Text, ...]
    dtypes: tuple[spec.Text, ...]
    mixes: tuple[tuple[Share, ...], ...]

    @spec.checks("mixes")
    @staticmethod
    def _mixes_have_all_kinds(mixes: tuple[tuple[float, ...], ...]) -> None:
        if any(len(mix) != len(KINDS_OF_OPERATION) for mix in mixes):
            spec.invalid(f"must each have {len(KINDS_OF_OPERATION)} shares: {', '.join(KINDS_OF_OPERATION)}")

    @classmethod
    def of(cls, rows: Iterable[SeenRow]) -> Seen:
        """Collect the devices, frameworks, data types and mixes of rows."""
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
        """Unite several sets of rows."""
        known = tuple(parts)
        return cls(
            **{name: tuple(sorted({one for part in known for one in getattr(part, name)})) for name in cls.model_fields}
        )

    def distance_to(self, mix: Mapping[str, float]) -> float:
        """Return the distance of a mix of operations from the nearest measured one.

        >>> dense = {"contraction": 0.8, "memory_pass": 0.2}
        >>> row = SeenRow(device="a", architecture="b", framework="c", dtype="fp32", mix=dense)
        >>> Seen.of([row]).distance_to({"contraction": 0.6, "memory_pass": 0.4})
        0.333
        """
        wanted = [mix.get(kind, 0.0) for kind in KINDS_OF_OPERATION]
        apart = (
            sum(abs(share - known) for share, known in zip(wanted, other, strict=True)) / 2 for other in self.mixes
        )
        return min(max(min(apart, default=1.0) - BLUR, 0.0) / (NEW_SHARE - BLUR), 1.0)
