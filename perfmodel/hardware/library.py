"""Library profiles: what a BLAS or DNN library of one version achieves on each architecture.

An ``[architecture.<name>]`` table holds constants (efficiencies, tiles) and, beside them, the algorithm set
and whether the library has native kernels. ``[architecture.default]`` serves the architectures the file does
not list; a table may also build on another with ``inherits``. ``[tensor_core.<architecture>]`` holds what differs in
the data types that run on tensor cores. No table is about one board: the clock that a board sustains stands in its own
file. Each constant name has a ``[constant.<name>]`` table with its unit, meaning and validity range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

from pydantic import ConfigDict, Field, StrictBool, ValidationInfo, field_validator

from perfmodel.derived import derived
from perfmodel.errors import UnknownNameError, nearest_match
from perfmodel.hardware.constant import Constant, ConstantValue, StrictConstant, constant_faults
from perfmodel.hardware.cpu import Isa
from perfmodel.hardware.source import Identifier, SpecFile, SpecTable, Text

DEFAULT_ARCHITECTURE: Final = "default"


class ConstantsTable(SpecTable):
    """A table in which every key that is no field is a constant."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)
    __pydantic_extra__: dict[str, StrictConstant] = Field(init=False)

    @property
    def constants(self) -> dict[str, ConstantValue]:
        """Constants that this table itself states. [unit of each constant]."""
        return dict(self.__pydantic_extra__)


class ArchitectureProfile(ConstantsTable):
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

    inherits: Identifier | None = None
    native: StrictBool | None = None
    algorithms: tuple[Identifier, ...] | None = None


class TensorCoreProfile(ConstantsTable):
    """Constants of an architecture's tensor cores; every key that is not listed is a constant.

    Attributes
    ----------
    dtypes : tuple of str
        Data types of the tensors whose products run there. [-]
    algorithms : tuple of str or None
        Convolution algorithms the library offers on them; None for those it offers without. [-]
    """

    dtypes: Annotated[tuple[Literal["tf32", "fp16", "bf16", "fp8"], ...], Field(min_length=1)]
    algorithms: tuple[Identifier, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LibrarySupport:
    """What a DNN library offers for one data type on one architecture.

    Parameters
    ----------
    algorithms : tuple of str
        Convolution algorithms and recurrent layers. [-]
    groups_together : bool
        Whether one launch serves all groups of a convolution; else each group has its own. [-]
    tensor_cores : bool
        Whether products run on tensor cores, whose kernels want a pixel's channels side by side. [-]
    """

    algorithms: tuple[str, ...] = ()
    groups_together: bool = False
    tensor_cores: bool = False


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
    groups_together : bool
        Whether one launch serves all groups of a convolution; else each group has its own. [-]
    constant : dict of str to Constant
        Unit, meaning and range of each constant name in use. [-]
    architecture : dict of str to ArchitectureProfile
        Constants by architecture. [-]
    tensor_core : dict of str to TensorCoreProfile
        Constants of tensor cores, by architecture. [-]
    """

    WITHOUT_SOURCE: ClassVar[frozenset[str]] = SpecFile.WITHOUT_SOURCE | {"constant"}

    kind: Literal["blas", "dnn"]
    processor: Literal["gpu", "cpu"]
    version: Text
    isa: Annotated[tuple[Isa, ...], Field(validate_default=True)] = ()
    groups_together: StrictBool = False
    constant: dict[Identifier, Constant]
    architecture: Annotated[dict[Identifier, ArchitectureProfile], Field(min_length=1)]
    tensor_core: dict[Identifier, TensorCoreProfile] = Field(default_factory=dict)

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

    @field_validator("tensor_core")
    @classmethod
    def _exceptions_are_to_something(
        cls, profiles: dict[str, TensorCoreProfile], info: ValidationInfo
    ) -> dict[str, TensorCoreProfile]:
        constants, architectures = info.data.get("constant"), info.data.get("architecture")
        if constants is None or architectures is None:
            return profiles
        general = {constant for profile in architectures.values() for constant in profile.constants}
        faults = []
        for name, profile in profiles.items():
            faults += [f"{name}.{fault}" for fault in constant_faults(profile.constants, constants)]
            unknown = sorted(set(profile.constants) & set(constants) - general)
            faults += [f"{name}.{constant}: no architecture has a value that it replaces" for constant in unknown]
        if faults:
            raise ValueError(", and ".join(faults))
        return profiles

    def _chain(self, architecture: str) -> Iterator[tuple[str, ArchitectureProfile]]:
        """Yield name and table of what holds for an architecture, the most specific first."""
        if architecture not in self.architecture and DEFAULT_ARCHITECTURE not in self.architecture:
            kind = f"architecture of {self.name}"
            raise UnknownNameError(kind, architecture, self.architecture)
        name: str | None = self._listed(architecture)
        while name is not None:
            profile = self.architecture[name]
            yield name, profile
            falls_back = name != DEFAULT_ARCHITECTURE and DEFAULT_ARCHITECTURE in self.architecture
            name = profile.inherits or (DEFAULT_ARCHITECTURE if falls_back else None)

    @derived
    def constants_for(self, architecture: str, *, dtype: str = "fp32") -> dict[str, ConstantValue]:
        """Return the constants that hold on an architecture.

        Parameters
        ----------
        architecture : str
            A device's ``architecture``. [-]
        dtype : str
            Data type of the tensors. [-]

        Returns
        -------
        dict of str to float or tuple of float
            Those of its own table, of what that inherits, and of the default; of tensor cores where the data type runs
            there. [unit of each constant]

        Raises
        ------
        UnknownNameError
            If the file has neither the architecture nor a default.
        """
        tables = [values for _, values in self._tables(architecture, dtype=dtype)]
        return {name: value for values in reversed(tables) for name, value in values.items()}

    def field_of(self, constant: str, *, architecture: str, dtype: str = "fp32") -> str:
        """Return the field that states the value of a constant.

        Raises
        ------
        UnknownNameError
            If no table that holds there states it.
        """
        for field, values in self._tables(architecture, dtype=dtype):
            if constant in values:
                return f"{field}.{constant}"
        kind = f"constant of {self.name}"
        raise UnknownNameError(kind, constant, self.constant)

    def _tables(self, architecture: str, *, dtype: str) -> Iterator[tuple[str, Mapping[str, ConstantValue]]]:
        """Yield field and constants of every table that holds there, the most specific first."""
        tensor_core = self._tensor_core_of(architecture)
        if tensor_core is not None and dtype in self.tensor_core[tensor_core].dtypes:
            yield f"tensor_core.{tensor_core}", self.tensor_core[tensor_core].constants
        for name, profile in self._chain(architecture):
            yield f"architecture.{name}", profile.constants

    def _listed(self, architecture: str) -> str:
        """Return the architecture under which the file has what holds: the default's for one that it does not list."""
        return architecture if architecture in self.architecture else DEFAULT_ARCHITECTURE

    def _tensor_core_of(self, architecture: str) -> str | None:
        """Return the name of the tensor-core table of an architecture, or of the nearest that it inherits from."""
        name: str | None = self._listed(architecture)
        while name is not None and name not in self.tensor_core:
            name = self.architecture[name].inherits if name in self.architecture else None
        return name

    @derived
    def on_tensor_cores(self, architecture: str, *, dtype: str) -> bool:
        """Tell whether the file has values of their own for products of a data type on tensor cores."""
        name = self._tensor_core_of(architecture)
        return name is not None and dtype in self.tensor_core[name].dtypes

    @derived
    def support_for(self, architecture: str, *, dtype: str = "fp32") -> LibrarySupport:
        """Return what the library offers for a data type on an architecture."""
        return LibrarySupport(
            algorithms=self.algorithms_for(architecture, dtype=dtype),
            groups_together=self.groups_together,
            tensor_cores=self.on_tensor_cores(architecture, dtype=dtype),
        )

    def algorithms_for(self, architecture: str, *, dtype: str = "fp32") -> tuple[str, ...]:
        """Return the algorithms that the library offers on an architecture."""
        name = self._tensor_core_of(architecture)
        tensor_core = None if name is None else self.tensor_core[name]
        if tensor_core is not None and dtype in tensor_core.dtypes and tensor_core.algorithms is not None:
            return tensor_core.algorithms
        stated = (profile.algorithms for _, profile in self._chain(architecture))
        return next((algorithms for algorithms in stated if algorithms is not None), ())

    @derived
    def is_native(self, architecture: str) -> bool:
        """Tell whether the library has kernels compiled for an architecture."""
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
