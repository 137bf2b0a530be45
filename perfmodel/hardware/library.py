"""Library profiles: what a BLAS or DNN library of one version achieves on each architecture.

An ``[architecture.<name>]`` table holds constants (efficiencies, tiles) and, beside them, the algorithm set
and whether the library has native kernels. ``[architecture.default]`` serves the architectures the file does
not list; a table may also build on another with ``inherits``. Each constant name has a ``[constant.<name>]``
table with its unit, meaning and validity range.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Final, Literal

from pydantic import ConfigDict, Field, StrictBool, ValidationInfo, field_validator

from perfmodel.errors import UnknownNameError, nearest_match
from perfmodel.hardware.constant import Constant, ConstantValue, StrictConstant, constant_faults
from perfmodel.hardware.cpu import Isa
from perfmodel.hardware.source import Identifier, SpecFile, SpecTable, Text

DEFAULT_ARCHITECTURE: Final = "default"


class ArchitectureProfile(SpecTable):
    """Constants and abilities of the library on one architecture; every key that is not listed is a constant.

    Attributes
    ----------
    inherits : str or None
        Another architecture of the same file whose entries hold where this table is silent. [-]
    native : bool or None
        Whether the library has kernels compiled for the architecture; else they are translated. [-]
    algorithms : tuple of str or None
        Convolution algorithms the library offers, and ways to run whole recurrent layers. [-]
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, StrictConstant] = Field(init=False)

    inherits: Identifier | None = None
    native: StrictBool | None = None
    algorithms: tuple[Identifier, ...] | None = None

    @property
    def constants(self) -> dict[str, ConstantValue]:
        """Constants that this table itself states. [unit of each constant]."""
        return dict(self.__pydantic_extra__)


class LibraryProfile(SpecFile):
    """One version of one library.

    Attributes
    ----------
    kind : str
        ``blas`` or ``dnn``. [-]
    processor : str
        ``gpu`` or ``cpu``. [-]
    version : str
        Version of the library. [-]
    isa : tuple of str
        Instruction sets the library has kernels for; CPU libraries only. [-]
    constant : dict of str to Constant
        Unit, meaning and range of each constant name in use. [-]
    architecture : dict of str to ArchitectureProfile
        Constants by architecture. [-]
    """

    WITHOUT_SOURCE: ClassVar[frozenset[str]] = SpecFile.WITHOUT_SOURCE | {"constant"}

    kind: Literal["blas", "dnn"]
    processor: Literal["gpu", "cpu"]
    version: Text
    isa: Annotated[tuple[Isa, ...], Field(validate_default=True)] = ()
    constant: dict[Identifier, Constant]
    architecture: Annotated[dict[Identifier, ArchitectureProfile], Field(min_length=1)]

    @field_validator("isa")
    @classmethod
    def _cpu_libraries_list_isas(cls, isa: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        processor = info.data.get("processor")
        if processor is not None and (processor == "cpu") != bool(isa):
            allowed = "must list the instruction sets" if processor == "cpu" else "is for CPU libraries only"
            message = f"{allowed} (processor = {processor!r})"
            raise ValueError(message)
        return isa

    @field_validator("architecture")
    @classmethod
    def _constants_are_described(
        cls, profiles: dict[str, ArchitectureProfile], info: ValidationInfo
    ) -> dict[str, ArchitectureProfile]:
        constants = info.data.get("constant")
        faults = list(_inheritance_faults(profiles))
        if constants is not None:
            for name, profile in profiles.items():
                faults += [f"{name}.{fault}" for fault in constant_faults(profile.constants, constants)]
            used = {constant for profile in profiles.values() for constant in profile.constants}
            faults += [f"constant.{name}: no architecture uses it" for name in sorted(set(constants) - used)]
        if faults:
            raise ValueError(", and ".join(faults))
        return profiles

    def _chain(self, architecture: str) -> Iterator[tuple[str, ArchitectureProfile]]:
        """Yield name and table of what holds for an architecture, the most specific first."""
        if architecture not in self.architecture and DEFAULT_ARCHITECTURE not in self.architecture:
            kind = f"architecture of {self.name}"
            raise UnknownNameError(kind, architecture, self.architecture)
        name: str | None = architecture if architecture in self.architecture else DEFAULT_ARCHITECTURE
        while name is not None:
            profile = self.architecture[name]
            yield name, profile
            falls_back = name != DEFAULT_ARCHITECTURE and DEFAULT_ARCHITECTURE in self.architecture
            name = profile.inherits or (DEFAULT_ARCHITECTURE if falls_back else None)

    def constants_for(self, architecture: str) -> dict[str, ConstantValue]:
        """Return the constants that hold on an architecture.

        Parameters
        ----------
        architecture : str
            A device's ``architecture``. [-]

        Returns
        -------
        dict of str to float or tuple of float
            Those of its own table, of what it inherits, and of the default. [unit of each constant]

        Raises
        ------
        UnknownNameError
            If the file has neither the architecture nor a default.
        """
        merged: dict[str, ConstantValue] = {}
        for _, profile in self._chain(architecture):
            merged = {**profile.constants, **merged}
        return merged

    def field_of(self, constant: str, *, architecture: str) -> str:
        """Return the field that states the value of a constant on an architecture.

        Parameters
        ----------
        constant : str
            Name of a constant. [-]
        architecture : str
            A device's ``architecture``. [-]

        Returns
        -------
        str
            Dotted name, e.g. ``architecture.default.gemm``, as sources name it. [-]

        Raises
        ------
        UnknownNameError
            If no table that holds there states it.
        """
        for name, profile in self._chain(architecture):
            if constant in profile.constants:
                return f"architecture.{name}.{constant}"
        kind = f"constant of {self.name}"
        raise UnknownNameError(kind, constant, self.constant)

    def algorithms_for(self, architecture: str) -> tuple[str, ...]:
        """Return the algorithms that the library offers on an architecture.

        Parameters
        ----------
        architecture : str
            A device's ``architecture``. [-]

        Returns
        -------
        tuple of str
            Names; empty where the file lists none. [-]
        """
        stated = (profile.algorithms for _, profile in self._chain(architecture))
        return next((algorithms for algorithms in stated if algorithms is not None), ())

    def is_native(self, architecture: str) -> bool:
        """Tell whether the library has kernels compiled for an architecture.

        Parameters
        ----------
        architecture : str
            A device's ``architecture``. [-]

        Returns
        -------
        bool
            True also where the file does not say. [-]
        """
        stated = (profile.native for _, profile in self._chain(architecture))
        return next((native for native in stated if native is not None), True)

    def describe(self) -> str:
        """Return the profile in one line."""
        architectures = ", ".join(self.architecture)
        return f"{self.kind.upper()} for {self.processor.upper()}, version {self.version}: {architectures}"


def _inheritance_faults(profiles: dict[str, ArchitectureProfile]) -> Iterator[str]:
    """Yield a line for each ``inherits`` that names no table or closes a circle."""
    for name, profile in profiles.items():
        seen, ancestor = [name], profile.inherits
        while ancestor is not None:
            if ancestor not in profiles:
                nearest = nearest_match(ancestor, profiles)
                hint = f" (nearest: {nearest})" if nearest else ""
                yield f"{name}.inherits: value {ancestor!r}: must name an architecture of this file{hint}"
                break
            if ancestor in seen:
                yield f"{name}.inherits: value {profile.inherits!r}: must not close a circle"
                break
            seen.append(ancestor)
            ancestor = profiles[ancestor].inherits
