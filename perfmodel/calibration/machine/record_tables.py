"""What a record of points may hold, so that a spoilt one is refused by its place, and before anything is measured."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, field_validator

from perfmodel.hardware.measured_tables import AllReduce, HostCopy, MeasuredStorage, Overheads, Peaks
from perfmodel.hardware.source import NonNegativeNumber, PositiveNumber, SpecTable

VERSION: Final = 2
"""Of the record's layout [1]."""

Size = Annotated[int, Field(ge=0, strict=True)]


class RecordedPoint(SpecTable):
    """A point as it is written; see :class:`~perfmodel.calibration.machine.benchmark.Point`."""

    name: str
    dtype: str
    sizes: dict[str, Size]
    seconds: PositiveNumber
    spread: NonNegativeNumber = 0.0
    cold_seconds: PositiveNumber | None = None
    window: Annotated[int, Field(ge=0, strict=True)] = 0
    retaken: Annotated[bool, Field(strict=True)] = False
    again_seconds: PositiveNumber | None = None


class Reuse(SpecTable):
    """After how much other traffic a copy became slow, and what its bytes then cost.

    Attributes
    ----------
    moved_bytes, hot_s : float
        The copy, and its time with its operands in cache. [B, s]
    distances, seconds : tuple of float
        Other traffic, and times after it. [B, s]
    capacity_bytes, cold_s_per_byte : float or None
        What follows, where the times tell it. [B, s/B]
    """

    moved_bytes: PositiveNumber
    hot_s: PositiveNumber
    distances: tuple[PositiveNumber, ...]
    seconds: tuple[PositiveNumber, ...]
    capacity_bytes: PositiveNumber | None = None
    cold_s_per_byte: NonNegativeNumber | None = None


class Surroundings(SpecTable):
    """What was measured around the kernels; whatever is not there is measured when the session is resumed."""

    peaks: Peaks | None = None
    overheads: Overheads = Overheads()
    host_copy: tuple[HostCopy, ...] = ()
    storage: tuple[MeasuredStorage, ...] = ()
    all_reduce: tuple[AllReduce, ...] = ()
    clock_mhz: PositiveNumber | None = None
    reuse: Reuse | None = None

    @field_validator("peaks", "reuse", mode="before")
    @classmethod
    def _is_not_empty(cls, given: Any) -> Any:
        if given is None:
            message = "must be a table, or left out"
            raise ValueError(message)
        return given


class Record(SpecTable):
    """The whole of it.

    Attributes
    ----------
    version : int
        Of the layout. [1]
    header : mapping of str to object
        What was measured: target, backend, machine, software. [-]
    seconds : float
        How long. [s]
    found : Surroundings
        What was measured around the kernels. [-]
    reference_s : tuple of float
        Times of the reference kernel, by whose numbers the points name their windows. [s]
    points : tuple of RecordedPoint
        Kernels as they were timed. [-]
    """

    version: int
    header: dict[str, Any]
    seconds: NonNegativeNumber
    found: Surroundings
    reference_s: tuple[PositiveNumber, ...]
    points: tuple[RecordedPoint, ...]
