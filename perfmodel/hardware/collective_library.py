"""Libraries of collectives: which algorithms a version has for an operation, and what its protocols cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, StrictBool, field_validator

from perfmodel.errors import UnknownNameError
from perfmodel.hardware import spec_files
from perfmodel.hardware.constant import Constant, constant_faults
from perfmodel.hardware.library import ConstantsTable
from perfmodel.hardware.source import Count, Identifier, PositiveNumber, SpecFile, SpecTable, Text

NEEDED: Final = ("launch_us", "hop_factor", "bandwidth_efficiency")
"""Constants that each protocol has. [-]"""


class CollectiveOperation(SpecTable):
    """How a library does one operation.

    Attributes
    ----------
    algorithms : tuple of str
        Its algorithms; the fastest is taken at each size. [-]
    at_once : bool
        Whether it sends all messages at once that have no need of one another. [-]
    """

    algorithms: Annotated[tuple[Identifier, ...], Field(min_length=1)]
    at_once: StrictBool = False


class BlocksTable(SpecTable):
    """Thread blocks that carry the messages of a library, each of which keeps a multiprocessor from other kernels.

    Attributes
    ----------
    gb_per_s : float
        What one of them moves: there are as many as the link needs. [GB/s]
    fewest, most : int
        How many there are at least and at most. [1]
    """

    gb_per_s: PositiveNumber
    fewest: Count
    most: Count


class CollectiveLibrary(SpecFile):
    """One version of one library of collectives.

    Attributes
    ----------
    version : str
        Its version. [-]
    constant : dict of str to Constant
        Unit, meaning and range of each constant. [-]
    operation : dict of str to CollectiveOperation
        What it can do, e.g. ``all_reduce``. [-]
    protocol : dict of str to ConstantsTable
        ``launch_us``, ``hop_factor`` and ``bandwidth_efficiency`` of each of its protocols. [-]
    blocks : BlocksTable or None
        What it takes of a device while messages are on the way; None for nothing. [-]
    """

    WITHOUT_SOURCE: ClassVar[frozenset[str]] = SpecFile.WITHOUT_SOURCE | {"constant"}

    version: Text
    constant: dict[Identifier, Constant]
    operation: Annotated[dict[Identifier, CollectiveOperation], Field(min_length=1)]
    protocol: Annotated[dict[Identifier, ConstantsTable], Field(min_length=1)]
    blocks: BlocksTable | None = None

    @field_validator("protocol")
    @classmethod
    def _constants_are_described(cls, protocol: dict[str, ConstantsTable], info: Any) -> dict[str, ConstantsTable]:
        faults = list(cls._faults(protocol, info.data.get("constant", {})))
        if faults:
            message = "; ".join(faults)
            raise ValueError(message)
        return protocol

    @staticmethod
    def _faults(protocol: dict[str, ConstantsTable], described: dict[str, Constant]) -> Iterator[str]:
        for name, table in protocol.items():
            yield from (f"{name}.{fault}" for fault in constant_faults(table.constants, described))
            yield from (f"{name}.{key}: missing" for key in NEEDED if key not in table.constants)

    def operation_named(self, name: str) -> CollectiveOperation:
        """Return how it does an operation.

        Raises
        ------
        UnknownNameError
            If it has none of that name.
        """
        if name not in self.operation:
            raise UnknownNameError(kind=f"operation of {self.name}", name=name, known=self.operation)
        return self.operation[name]


def load_collective_library(name_or_path: str | Path) -> CollectiveLibrary:
    """Load a library of collectives.

    Raises
    ------
    UnknownNameError
        If there is none of that name.
    SpecError
        With every fault of its file.

    Examples
    --------
    >>> load_collective_library("nccl_2_27").operation_named("all_reduce").algorithms
    ('ring_all_reduce', 'double_binary_tree')
    """
    return spec_files.load(spec_files.find("collectives", name_or_path), CollectiveLibrary)
