"""Fields of every device: one GPU die or one CPU socket, as its vendor describes it.

A spec keeps the data sheet's numbers under keys that carry the data sheet's units; the properties and methods
of the classes in ``gpu`` and ``cpu`` give base units. Nothing here is fitted: efficiencies of software are
in library and framework profiles.
"""

from abc import abstractmethod
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, field_validator

from perfmodel.errors import UnknownNameError, is_one_of
from perfmodel.hardware.source import Day, Identifier, InRange, PositiveNumber, SpecFile, at_most, invalid
from perfmodel.records import ELEMENT_BYTES

LISTED_TOLERANCE: Final = 0.01
"""Share by which a listed number may differ from the one computed from its parts, because data sheets round."""


def check_listed(listed: float, computed: float, *, formula: str) -> None:
    """Check that a listed number agrees with the one computed from its parts."""
    if abs(listed - computed) > LISTED_TOLERANCE * computed:
        invalid(f"must be within {LISTED_TOLERANCE:.0%} of {formula} = {computed:g}")


class Runnable(SpecFile):
    """A device that a step can run on: one with a data sheet, or a measured machine.

    Attributes
    ----------
    kind : str
        Key of ``catalogue.device_kinds()``. [-]
    """

    kind: str

    @property
    def identity(self) -> str:
        """Facts that distinguish it from others; not its name, so that a copy of its file is the same device."""
        return self.describe()

    @property
    def processor_kind(self) -> str:
        """What computes: ``gpu`` or ``cpu``. [-]"""
        return self.kind

    @property
    def card(self) -> "Runnable | None":
        """The device with a data sheet that stands in a system's slot for it; None if none is known."""
        return self

    @abstractmethod
    def describe(self) -> str:
        """Return it in one line, without its name."""


class Device(Runnable):
    """A device with a data sheet; its kinds are ``Gpu`` and ``Cpu``.

    Attributes
    ----------
    kind : str
        Key of ``catalogue.device_kinds()``. [-]
    scope : str
        Hardware that the numbers cover: ``one die`` or ``one socket``. [-]
    architecture : str
        Vendor's architecture in lower snake case; library profiles are keyed by it. [-]
    tdp_w : float
        Thermal design power. [W]
    idle_w : float or None
        Power at rest. [W]
    launch_date : date
        When it was launched. [-]
    """

    kind: str
    scope: Literal["one die", "one socket"]
    architecture: Identifier
    tdp_w: Annotated[PositiveNumber, AfterValidator(InRange(0.5, 5_000, "W"))]
    idle_w: Annotated[PositiveNumber, AfterValidator(InRange(0.5, 5_000, "W"))] | None = None
    launch_date: Day

    @property
    @abstractmethod
    def dtypes(self) -> tuple[str, ...]:
        """Data types whose peak the file lists."""

    def refused(self, dtype: str) -> UnknownNameError:
        """Return the refusal of a data type; one that other devices have is not misspelt."""
        return UnknownNameError(f"dtype of {self.name}", dtype, self.dtypes, is_spelt=is_one_of(dtype, ELEMENT_BYTES))

    _rests_within_its_design = field_validator("idle_w")(at_most("tdp_w"))
