"""Library profiles: what a BLAS, DNN or collective library of one version achieves on each architecture.

An ``[architecture.<name>]`` table holds constants (efficiencies, tiles) and, beside them, the algorithm set
and whether the library has native kernels. ``[architecture.default]`` is for architectures that the file does
not list; a table may also build on another with ``inherits``. ``[tensor_core.<architecture>]`` holds what differs for
the data types that run on tensor cores. No table describes a single board: the clock that a board sustains is in its
own file. Each constant name has a ``[constant.<name>]`` table with its unit, meaning and validity range.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field, StrictBool

from perfmodel.derived import derived
from perfmodel.errors import UnknownNameError, check_known, nearest_match
from perfmodel.files import file_toml
from perfmodel.hardware import source as spec
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_library
from perfmodel.hardware.cpu import Isa
from perfmodel.hardware.spec_files import kept_while_unchanged

DEFAULT_ARCHITECTURE: Final = "default"


class ConstantsTable(spec.SpecTable):
    """A table in which every key that is not a field is a constant."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)
    __pydantic_extra__: dict[str, spec.StrictConstant] = Field(init=False)

    @property
    def constants(self) -> dict[str, spec.ConstantValue]:
        """Constants that this table itself states. [unit of each constant]."""
        return dict(self.__pydantic_extra__)


class ArchitectureProfile(ConstantsTable):
    """Constants and abilities of the library on one architecture; every other key is a constant.

    Attributes
    ----------
    inherits : str or None
        Another architecture of the same file whose entries hold if this table has none. [-]
    native : bool or None
        Whether the library has kernels compiled for the architecture; if not, kernels are translated. [-]
    algorithms : tuple of str or None
        Convolution algorithms the library offers, and ways to run whole recurrent layers. [-]
    """

    inherits: spec.Identifier | None = None
    native: StrictBool | None = None
    algorithms: tuple[spec.Identifier, ...] | None = None


class TensorCoreProfile(ConstantsTable):
    """Constants of an architecture's tensor cores; every other key is a constant.

    Attributes
    ----------
    dtypes : tuple of str
        Data types of tensors whose products run on tensor cores. [-]
    algorithms : tuple of str or None
        Convolution algorithms that the library offers on them; None for the same as on plain lanes. [-]
    grouped_channels : tuple of int or None
        Channels of a group for which it has gradient kernels of grouped convolutions on images with channels last; None
        where grouped convolutions are like others. [1]
    """

    dtypes: Annotated[tuple[Literal["tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4", "int8"], ...], Field(min_length=1)]
    algorithms: tuple[spec.Identifier, ...] | None = None
    grouped_channels: tuple[spec.Count, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LibrarySupport:
    """Libraries' support for one data type on one architecture: convolutions, fused attention, narrow products."""

    algorithms: tuple[str, ...] = ()
    groups_together: bool = False
    tensor_cores: bool = False
    grouped_channels: tuple[int, ...] | None = None
    image_layout: str | None = None
    attention: bool = False
    sparse_products: bool = False
    narrow: str | None = None


class LibraryProfile(spec.SpecFile):
    """One version of one library."""

    WITHOUT_SOURCE: ClassVar[frozenset[str]] = spec.SpecFile.WITHOUT_SOURCE | {"constant"}

    kind: Literal["blas", "dnn", "attention"]
    processor: Literal["gpu", "cpu"]
    version: spec.Text
    isa: Annotated[tuple[Isa, ...], Field(validate_default=True)] = ()
    groups_together: StrictBool = False
    constant: dict[spec.Identifier, spec.Constant]
    architecture: Annotated[dict[spec.Identifier, ArchitectureProfile], Field(min_length=1)]
    tensor_core: Annotated[dict[spec.Identifier, TensorCoreProfile], Field(default_factory=dict, validate_default=True)]

    @spec.checks("isa", beside=("processor",))
    @staticmethod
    def _cpu_libraries_list_isas(isa: tuple[str, ...], processor: str) -> None:
        if (processor == "cpu") != bool(isa):
            allowed = "must list the instruction sets" if processor == "cpu" else "is for CPU libraries only"
            spec.invalid(f"{allowed} (processor = {processor!r})")

    @spec.checks("architecture", beside=("constant",))
    @staticmethod
    def _constants_are_described(profiles: dict[str, ArchitectureProfile], constants: dict[str, spec.Constant]) -> None:
        faults = list(_inheritance_faults(profiles))
        for name, profile in profiles.items():
            faults += [f"{name}.{fault}" for fault in spec.constant_faults(profile.constants, constants)]
        if faults:
            spec.invalid(", and ".join(faults))

    @spec.checks("tensor_core", beside=("constant", "architecture"))
    @staticmethod
    def _exceptions_are_to_something(
        profiles: dict[str, TensorCoreProfile],
        constants: dict[str, spec.Constant],
        architectures: dict[str, ArchitectureProfile],
    ) -> None:
        used = {constant for profile in (*architectures.values(), *profiles.values()) for constant in profile.constants}
        faults = [
            f"constant.{name}: must be used by an architecture, or deleted" for name in sorted(set(constants) - used)
        ]
        for name, profile in profiles.items():
            faults += [f"{name}.{fault}" for fault in spec.constant_faults(profile.constants, constants)]
        if faults:
            spec.invalid(", and ".join(faults))

    def missing(self) -> Iterator[str]:
        """Yield a line for each constant that predictions on a listed architecture read, and that it does not have."""
        lines: dict[str, str] = {}
        for architecture in self.architecture:
            table = self._tensor_core_of(architecture)
            for dtype in ("fp32", *(() if table is None else self.tensor_core[table].dtypes)):
                faults = faults_of(
                    self.constants_for(architecture, dtype=dtype),
                    kind=self.kind,
                    processor=self.processor,
                    algorithms=self.algorithms_for(architecture, dtype=dtype),
                )
                place = f"tensor_core.{table}" if self.on_tensor_cores(architecture, dtype=dtype) else ""
                for fault in faults:
                    lines.setdefault(fault, f"{place or f'architecture.{architecture}'}.{fault}")
        yield from lines.values()

    def _chain(self, architecture: str) -> Iterator[tuple[str, ArchitectureProfile]]:
        """Yield the tables that apply to an architecture, the most specific first."""
        if architecture not in self.architecture and DEFAULT_ARCHITECTURE not in self.architecture:
            raise UnknownNameError(kind=f"architecture of {self.name}", name=architecture, known=self.architecture)
        name: str | None = self._listed(architecture)
        while name is not None:
            profile = self.architecture[name]
            yield name, profile
            falls_back = name != DEFAULT_ARCHITECTURE and DEFAULT_ARCHITECTURE in self.architecture
            name = profile.inherits or (DEFAULT_ARCHITECTURE if falls_back else None)

    @derived
    def constants_for(self, architecture: str, *, dtype: str = "fp32") -> dict[str, spec.ConstantValue]:
        """Return the constants that hold on an architecture."""
        tables = [values for _, values in self._tables(architecture, dtype=dtype)]
        return {name: value for values in reversed(tables) for name, value in values.items()}

    def dtype_with(self, constant: str, *, architecture: str, dtype: str) -> str:
        """Return the data type, or one of tensor cores if a constant is stated for those alone."""
        table = self._tensor_core_of(architecture)
        if table is None or constant in self.constants_for(architecture, dtype=dtype):
            return dtype
        return self.tensor_core[table].dtypes[0]

    def field_of(self, constant: str, *, architecture: str, dtype: str = "fp32") -> str:
        """Return the field that states the value of a constant."""
        for field, values in self._tables(architecture, dtype=dtype):
            if constant in values:
                return f"{field}.{constant}"
        raise UnknownNameError(kind=f"constant of {self.name}", name=constant, known=self.constant)

    def _tables(self, architecture: str, *, dtype: str) -> Iterator[tuple[str, Mapping[str, spec.ConstantValue]]]:
        """Yield field and constants of every table that applies, the most specific first."""
        tensor_core = self._tensor_core_of(architecture)
        if tensor_core is not None and dtype in self.tensor_core[tensor_core].dtypes:
            default = self.tensor_core.get(DEFAULT_ARCHITECTURE)
            yield f"tensor_core.{tensor_core}", self.tensor_core[tensor_core].constants
            if default is not None and tensor_core != DEFAULT_ARCHITECTURE and dtype in default.dtypes:
                yield f"tensor_core.{DEFAULT_ARCHITECTURE}", default.constants
        for name, profile in self._chain(architecture):
            yield f"architecture.{name}", profile.constants

    def _listed(self, architecture: str) -> str:
        """Return the architecture's own name if the file lists it, otherwise the default's."""
        return architecture if architecture in self.architecture else DEFAULT_ARCHITECTURE

    def _tensor_core_of(self, architecture: str) -> str | None:
        """Return the name of the tensor-core table of an architecture, or of the nearest that it inherits from."""
        name: str | None = self._listed(architecture)
        while name is not None and name not in self.tensor_core:
            name = self.architecture[name].inherits if name in self.architecture else None
        return name

    @derived
    def on_tensor_cores(self, architecture: str, *, dtype: str) -> bool:
        """Tell whether the file has separate values for products of a data type on tensor cores."""
        name = self._tensor_core_of(architecture)
        return name is not None and dtype in self.tensor_core[name].dtypes

    @derived
    def support_for(self, architecture: str, *, dtype: str = "fp32") -> LibrarySupport:
        """Return the library's support for a data type on an architecture."""
        return LibrarySupport(
            algorithms=self.algorithms_for(architecture, dtype=dtype),
            groups_together=self.groups_together,
            tensor_cores=self.on_tensor_cores(architecture, dtype=dtype),
            grouped_channels=self.tensor_core[table].grouped_channels
            if (table := self._tensor_core_of(architecture)) is not None and dtype in self.tensor_core[table].dtypes
            else None,
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
    """Yield a line for each ``inherits`` that names no table or closes a cycle."""
    for name, profile in profiles.items():
        path, ancestor = [name], profile.inherits
        while ancestor is not None:
            if ancestor not in profiles:
                nearest = nearest_match(ancestor, profiles)
                hint = f" (nearest: {nearest})" if nearest else ""
                yield f"{name}.inherits: value {ancestor!r}: must name an architecture of this file{hint}"
                break
            if ancestor in path:
                yield f"{name}.inherits: value {profile.inherits!r}: must not lead back to itself"
                break
            path.append(ancestor)
            ancestor = profiles[ancestor].inherits


NEEDED: Final = ("launch_us", "hop_factor", "bandwidth_efficiency")
"""Constants that each protocol has. [-]"""


class CollectiveOperation(spec.SpecTable):
    """A library's algorithms for one operation.

    Attributes
    ----------
    algorithms : tuple of str
        Algorithms it chooses among. [-]
    at_once : bool
        Whether all messages of a pairwise exchange are sent at once, not round by round. [-]
    """

    algorithms: Annotated[tuple[spec.Identifier, ...], Field(min_length=1)]
    at_once: StrictBool = False


class ProtocolTable(ConstantsTable):
    """Constants of a protocol.

    Attributes
    ----------
    algorithms : tuple of str or None
        Algorithms that use it; None for every algorithm that no other protocol lists. [-]
    needs_order : bool
        Whether it sends flags among the data, so that bytes have to arrive in order. [-]
    """

    algorithms: Annotated[tuple[spec.Identifier, ...], Field(min_length=1)] | None = None
    needs_order: StrictBool = False


class BlocksTable(spec.SpecTable):
    """Thread blocks that carry a library's messages; each occupies a multiprocessor."""

    gb_per_s: spec.PositiveNumber
    fewest: spec.Count
    most: spec.Count


class CollectiveLibrary(spec.SpecFile):
    """One version of one library of collectives."""

    WITHOUT_SOURCE: ClassVar[frozenset[str]] = spec.SpecFile.WITHOUT_SOURCE | {"constant"}

    version: spec.Text
    constant: dict[spec.Identifier, spec.Constant]
    operation: Annotated[dict[spec.Identifier, CollectiveOperation], Field(min_length=1)]
    protocol: Annotated[dict[spec.Identifier, ProtocolTable], Field(min_length=1)]
    blocks: BlocksTable | None = None

    @spec.checks("protocol", beside=("constant",))
    @staticmethod
    def _constants_are_described(protocol: dict[str, ProtocolTable], described: dict[str, spec.Constant]) -> None:
        faults: list[str] = []
        for name, table in protocol.items():
            faults += [f"{name}.{fault}" for fault in spec.constant_faults(table.constants, described)]
            faults += [f"{name}.{key}: missing" for key in NEEDED if key not in table.constants]
        if faults:
            spec.invalid("; ".join(faults))

    def operation_named(self, name: str) -> CollectiveOperation:
        """Return the library's entry for an operation."""
        check_known(f"operation of {self.name}", name, self.operation)
        return self.operation[name]


@kept_while_unchanged(spec_files.folders_asked_for)
def load_collective_library(name_or_path: str | Path) -> CollectiveLibrary:
    """Load a library of collectives."""
    return spec_files.load(spec_files.find("collectives", name_or_path), CollectiveLibrary)


LIBRARY_WORDS = {"blas": ("CUDA", "cublas"), "dnn": ("cuDNN", "cudnn")}
"""Kind of library -> the word before its version in a table's text, and its files' prefix; cuBLAS comes with CUDA."""


def device_of_text(text: str) -> str:
    """Return the device file that a table's text names.

    >>> device_of_text("Tesla P100-PCIE (host X99-E WS)")
    'tesla_p100_pcie'
    """
    words = [word for word in re.split(r"[^a-z0-9]+", text.lower()) if word]
    fitting = [stem for stem in spec_files.names("devices") if set(stem.split("_")) <= set(words)]
    if not fitting:
        kind = "device of a measured table"
        raise UnknownNameError(kind, "_".join(words), spec_files.names("devices"))
    return max(fitting, key=lambda stem: stem.count("_"))


def version_of_text(text: str, word: str) -> tuple[int, ...] | None:
    """Return the version that follows a word. [1]

    >>> version_of_text("CUDA 8.0.88; cuDNN 6.0.21; driver 375.66", "cuDNN")
    (6, 0, 21)
    """
    match = re.search(rf"\b{re.escape(word)}\s*(\d+(?:\.\d+)*)", text, re.IGNORECASE)
    return None if match is None else tuple(int(part) for part in match.group(1).split("."))


@cache
def _versions(names: tuple[str, ...]) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Return versions and stems of libraries, the oldest first."""
    return tuple(sorted((_numbers(load_library(stem).version), stem) for stem in names))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def library_of_text(text: str, kind: str) -> LibraryProfile | None:
    """Return the GPU library that a table's text names."""
    word, beginning = LIBRARY_WORDS[kind]
    stated = version_of_text(text, word)
    if stated is None:
        return None
    libraries = _versions(tuple(stem for stem in spec_files.names("libraries") if stem.startswith(beginning)))
    not_above = [stem for version, stem in libraries if version[: len(stated)] <= stated]
    return load_library(not_above[-1] if not_above else libraries[0][1])


@cache
def required_constants() -> dict[str, dict[str, list[str]]]:
    """Tables of the constants that predictions read, of files by their kind."""
    return file_toml(Path(__file__).with_name("required_constants.toml"))


def faults_of(
    constants: Mapping[str, Any], *, kind: str, processor: str, algorithms: Sequence[str] = ()
) -> Iterator[str]:
    """Yield a line for each constant that a prediction would miss, and for lists of tiles of unequal length."""
    required = required_constants()
    needed = [*required["library"].get(f"{kind}_{processor}", ())]
    for names in (required["algorithm"].get(algorithm, ()) for algorithm in algorithms):
        needed += names
    for stated, names in required["beside"].items():
        needed += names if stated in constants else ()
    for name in dict.fromkeys(needed):
        if name not in constants:
            yield f"{name}: required constant is missing"
    if (kind, processor) == ("dnn", "gpu") and not any(not name.startswith("recurrence") for name in algorithms):
        yield "algorithms: must name a way to convolve"
    for menu in required["tiles"].values():
        lengths = {name: len(constants[name]) for name in menu if isinstance(constants.get(name), tuple)}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            yield f"{menu[0]}: lists of tiles must be equally long, but {listed}"
