"""Prices: of a cloud instance for an hour, and of storage for a month; each with region and date.

Each kind is a class; the registry is ``KINDS``. A row quoted from a published table stays as
printed; misprints are listed under ``[[correction]]``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from perfmodel.errors import nearest_hint
from perfmodel.hardware import source as spec

HourlyPrice = Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(1e-4, 10_000, "USD/h"))]

HOURS_PER_MONTH: Final = 730.0
"""Hours of a month as clouds count them: 365 / 12 days. [h]"""


class Accelerators(spec.SpecTable):
    """Devices of one instance."""

    device: spec.Text
    count: spec.Count


class SustainedUse(spec.SpecTable):
    """Automatic discount of a cloud on machines that run for much of a month."""

    tier_multipliers: Annotated[tuple[spec.Fraction, ...], Field(min_length=1)]
    hours_per_month: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(600, 800, "h"))] = HOURS_PER_MONTH


class PublishedRow(spec.SpecTable):
    """A row of a published table of yearly costs, as it was printed."""

    instance_count: spec.Count
    vcpu_count: spec.Count
    ram_gb: spec.PositiveNumber
    gpu_count: Annotated[int, Field(ge=0, strict=True)]
    vram_gb: spec.NonNegativeNumber
    usd_per_year: spec.PositiveNumber


class Correction(spec.SpecTable):
    """An error of a published row."""

    field: spec.Text
    printed: spec.NonNegativeNumber
    corrected: spec.NonNegativeNumber
    reason: spec.Text


class Price(spec.SpecFile):
    """A price: the fields that all kinds share.

    Attributes
    ----------
    kind : str
        A key of ``KINDS``. [-]
    provider : str
        Seller, e.g. ``aws``. [-]
    region : str
        Region, e.g. ``us-east-1``. [-]
    valid_from : date
        First day of the price, according to its source. [-]
    """

    kind: str
    provider: spec.Identifier
    region: spec.Text
    valid_from: spec.Day

    @property
    def place_and_day(self) -> str:
        """Region and first day, for display."""
        return f"{self.region}, since {self.valid_from.isoformat()}"

    @abstractmethod
    def describe(self) -> str:
        """Return the price in one line."""


class InstancePrice(Price):
    """Price of one instance for an hour.

    Attributes
    ----------
    kind : str
        ``instance``. [-]
    instance : str
        The provider's name for it, with attached devices. [-]
    purchase : str
        ``on_demand``, or ``capacity_block``: paid in advance for a fixed time. [-]
    usd_per_hour : float
        Price of one instance bought that way. [USD/h]
    spot_usd_per_hour : float or None
        Price of an instance that may be interrupted at any time, if known. [USD/h]
    spot_valid_from : date or None
        First day on which that price was seen. [-]
    accelerators : Accelerators or None
        Its devices; None for an instance of CPUs alone. [-]
    system : str or None
        A system whose spec file describes the instance, or stands for it. [-]
    vcpu_count : int or None
        Virtual processors of one instance, if the file states them. [1]
    sustained_use : SustainedUse or None
        Discount on long use; not for spot instances. [-]
    published : PublishedRow or None
        The row of a published table that describes it. [-]
    correction : tuple of Correction
        Errors in that row. [-]
    """

    kind: Literal["instance"]
    instance: spec.Text
    purchase: Literal["on_demand", "capacity_block"] = "on_demand"
    usd_per_hour: HourlyPrice
    spot_usd_per_hour: HourlyPrice | None = None
    spot_valid_from: spec.Day | None = None
    accelerators: Accelerators | None = None
    system: spec.Text | None = None
    vcpu_count: spec.Count | None = None
    sustained_use: SustainedUse | None = None
    published: PublishedRow | None = None
    correction: tuple[Correction, ...] = ()

    def faults(self) -> Iterator[spec.Fault]:  # noqa: D102
        if (self.spot_usd_per_hour is None) != (self.spot_valid_from is None):
            allowed = "must be set together with spot_usd_per_hour: a price needs its date"
            yield ("spot_valid_from",), self.spot_valid_from, allowed
        row = {} if self.published is None else self.published.model_dump()
        for index, correction in enumerate(self.correction):
            if correction.field not in row:
                allowed = f"must be a field of [published]{nearest_hint(correction.field, row)}"
                yield ("correction", index, "field"), correction.field, allowed
            elif correction.printed != row[correction.field]:
                allowed = f"must be {row[correction.field]:g}, as [published] has it"
                yield ("correction", index, "printed"), correction.printed, allowed

    @property
    def corrected(self) -> PublishedRow | None:
        """The published row without its errors; None if there is no row."""
        if self.published is None:
            return None
        changes = {correction.field: correction.corrected for correction in self.correction}
        return self.published.model_copy(update=changes)

    @property
    def processor_count(self) -> int | None:
        """Virtual processors of one instance: as stated, else by the published row; None if in neither. [1]."""
        row = self.corrected
        if self.vcpu_count is not None or row is None:
            return self.vcpu_count
        return row.vcpu_count // row.instance_count

    @property
    def device_count(self) -> int:
        """Accelerators of one instance; 0 if it has none. [1]."""
        return 0 if self.accelerators is None else self.accelerators.count

    def describe(self) -> str:
        """Return the price in one line."""
        spot = "" if self.spot_usd_per_hour is None else f", spot {self.spot_usd_per_hour:g}"
        devices = "" if self.accelerators is None else f", {self.accelerators.count} x {self.accelerators.device}"
        how = self.purchase.replace("_", " ")
        return (
            f"{self.provider} {self.instance}, {self.usd_per_hour:g} USD/h {how}{spot}{devices}, {self.place_and_day}"
        )


class StoragePrice(Price):
    """Price of storage for a month.

    Attributes
    ----------
    kind : str
        ``storage``. [-]
    usd_per_gb_month : float
        Price of a GB for a month. [USD per GB and month]
    """

    kind: Literal["storage"]
    usd_per_gb_month: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(1e-5, 100, "USD per GB and month"))]

    def describe(self) -> str:
        """Return the price in one line."""
        return f"{self.provider} storage, {self.usd_per_gb_month:g} USD per GB and month, {self.place_and_day}"


KINDS: Final[Mapping[str, type[Price]]] = {"instance": InstancePrice, "storage": StoragePrice}
"""Kind -> its class; a new kind is a class and a line here."""
