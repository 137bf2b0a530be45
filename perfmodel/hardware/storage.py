"""Storage: drives, cloud disks whose rate grows with their size, object stores.

Each kind is a class that states the limits of reads from it (``read_limits``); the registry is ``KINDS``.
"""

import math
import sys
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, field_validator

from perfmodel.errors import ArgumentError
from perfmodel.hardware.source import Count, Day, InRange, NonNegativeNumber, PositiveNumber, SpecFile, at_most
from perfmodel.numeric import is_real
from perfmodel.units import MIB


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadLimits:
    """Limits of reads from a storage: the arguments of ``cost.storage.read_rate``."""

    latency_s: float
    stream_bytes_per_s: float
    most_bytes_per_s: float
    most_reads_per_s: float
    most_outstanding_reads: float = math.inf


def check_number(name: str, value: Any, *, low: float, high: float, allowed: str) -> None:
    """Raise unless a number lies in a range."""
    if not is_real(value) or not low <= value <= high:
        raise ArgumentError(name, value, allowed)


MOST_GIB: Final = 1_000_000
"""Largest cloud disk that a file may state. [GiB]"""


class Storage(SpecFile):
    """A storage: the fields that all kinds share.

    Attributes
    ----------
    kind : str
        A key of ``KINDS``. [-]
    interface : str
        Interface to the host, for display. [-]
    latency_ms : float
        Mean time of one lone read, to its first byte. [ms]
    launch_date : date or None
        When it was launched. [-]
    """

    kind: str
    interface: str
    latency_ms: Annotated[NonNegativeNumber, AfterValidator(InRange(0, 1_000, "ms"))]
    launch_date: Day | None = None

    is_remote: ClassVar[bool]
    """Whether all hosts share one storage behind the network; else each has its own."""

    @abstractmethod
    def read_limits(self) -> ReadLimits:
        """Return the limits of reads.

        Raises
        ------
        ArgumentError
            If the rate depends on a size that the file does not state.
        """

    def read_limits_of_loaders(self, loader_count: int) -> ReadLimits:
        """Return the limits of reads by several hosts at once, each with its own loader."""
        del loader_count
        return self.read_limits()

    @property
    def read_bandwidth_bytes_per_s(self) -> float:
        """Rate of large reads. [B/s]."""
        return float(self.read_limits().most_bytes_per_s)

    @property
    def write_bandwidth_bytes_per_s(self) -> float:
        """Rate of large writes; by default that of reads. [B/s]."""
        return self.read_bandwidth_bytes_per_s

    @property
    def latency_s(self) -> float:
        """Mean time of one lone read, to its first byte. [s]."""
        return self.in_base_units("latency_ms")

    @abstractmethod
    def describe(self) -> str:
        """Return the storage in one line."""


class Drive(Storage):
    """One drive, attached to a host.

    Attributes
    ----------
    kind : str
        Technology. [-]
    interface_gb_per_s : float
        Bandwidth of the interface per direction, after its line code. [GB/s]
    sequential_read_gb_per_s, sequential_write_gb_per_s : float
        Rate of large transfers. [GB/s]
    random_read_kiops : float
        Random reads, with a deep queue. [1000 reads/s]
    """

    is_remote: ClassVar[bool] = False

    kind: Literal["ssd", "hdd"]
    interface_gb_per_s: Annotated[PositiveNumber, AfterValidator(InRange(0.05, 200, "GB/s"))]
    sequential_read_gb_per_s: Annotated[PositiveNumber, AfterValidator(InRange(0.01, 200, "GB/s"))]
    sequential_write_gb_per_s: Annotated[PositiveNumber, AfterValidator(InRange(0.01, 200, "GB/s"))]
    random_read_kiops: Annotated[PositiveNumber, AfterValidator(InRange(0.01, 20_000, "kIOPS"))]

    _interface_caps_it = field_validator("sequential_read_gb_per_s", "sequential_write_gb_per_s")(
        at_most("interface_gb_per_s")
    )

    def read_limits(self) -> ReadLimits:
        """Return the limits of reads: latency and the highest rates. [-]"""
        sequential = self.in_base_units("sequential_read_gb_per_s")
        return ReadLimits(
            latency_s=self.latency_s,
            stream_bytes_per_s=sequential,
            most_bytes_per_s=sequential,
            most_reads_per_s=self.random_reads_per_s,
        )

    @property
    def write_bandwidth_bytes_per_s(self) -> float:
        """Rate of large writes. [B/s]."""
        return self.in_base_units("sequential_write_gb_per_s")

    @property
    def random_reads_per_s(self) -> float:
        """Random reads with a deep queue. [1/s]."""
        return self.in_base_units("random_read_kiops")

    def describe(self) -> str:
        """Return the drive in one line."""
        rates = f"reads {self.sequential_read_gb_per_s:g}, writes {self.sequential_write_gb_per_s:g} GB/s"
        return f"{self.kind.upper()} on {self.interface}, {rates}"


class CloudDisk(Storage):
    """A disk on a cloud's network; its rates grow with its size, up to the machine's limits.

    Attributes
    ----------
    kind : str
        ``cloud_disk``. [-]
    read_mib_per_s_per_gib : float
        Rate of large reads for each GiB of the disk. [MiB/s per GiB]
    most_read_mib_per_s : float
        The machine's limit on that rate. [MiB/s]
    read_iops_per_gib : float
        Random reads for each GiB of the disk. [reads/s per GiB]
    most_read_kiops : float
        The machine's limit on them. [1000 reads/s]
    size_gib : float or None
        Size of the disk, if the file describes one disk rather than all disks of its class. [GiB]
    """

    is_remote: ClassVar[bool] = True

    kind: Literal["cloud_disk"]
    read_mib_per_s_per_gib: Annotated[PositiveNumber, AfterValidator(InRange(0.001, 100, "MiB/s per GiB"))]
    most_read_mib_per_s: Annotated[PositiveNumber, AfterValidator(InRange(1, 100_000, "MiB/s"))]
    read_iops_per_gib: Annotated[PositiveNumber, AfterValidator(InRange(0.01, 10_000, "reads/s per GiB"))]
    most_read_kiops: Annotated[PositiveNumber, AfterValidator(InRange(0.1, 10_000, "kIOPS"))]
    size_gib: Annotated[PositiveNumber, AfterValidator(InRange(1, MOST_GIB, "GiB"))] | None = None

    def of_size(self, size_gib: float) -> Self:
        """Return a disk of this class with a given size."""
        check_number("size_gib", size_gib, low=1, high=MOST_GIB, allowed=f"a number from 1 to {MOST_GIB:,} GiB")
        return self.model_copy(update={"size_gib": float(size_gib)})

    def read_limits(self) -> ReadLimits:
        """Return the limits of reads from a disk of its size."""
        if self.size_gib is None:
            raise ArgumentError("size_bytes", None, f"the size of the disk, on which the rate of {self.name} depends")
        most = min(self.size_gib * self.read_mib_per_s_per_gib * MIB, self.in_base_units("most_read_mib_per_s"))
        return ReadLimits(
            latency_s=self.latency_s,
            stream_bytes_per_s=most,
            most_bytes_per_s=most,
            most_reads_per_s=min(self.size_gib * self.read_iops_per_gib, self.in_base_units("most_read_kiops")),
        )

    def describe(self) -> str:
        """Return the disk in one line."""
        size = "" if self.size_gib is None else f" of {self.size_gib:g} GiB"
        rate = f"{self.read_mib_per_s_per_gib:g} MiB/s per GiB, at most {self.most_read_mib_per_s:g} MiB/s"
        return f"cloud disk{size}, reads {rate}"


class ObjectStore(Storage):
    """A store of objects behind requests, whose rate grows with the connections to it.

    Attributes
    ----------
    kind : str
        ``object_store``. [-]
    connection_gb_per_s : float
        Rate of one connection after the first byte. [GB/s]
    connection_count : int
        Connections that the loader of a host opens. [1]
    most_request_kiops : float
        Most requests that the store serves for one name prefix. [1000 reads/s]
    """

    is_remote: ClassVar[bool] = True

    kind: Literal["object_store"]
    connection_gb_per_s: Annotated[PositiveNumber, AfterValidator(InRange(0.001, 100, "GB/s"))]
    connection_count: Count
    most_request_kiops: Annotated[PositiveNumber, AfterValidator(InRange(0.01, 10_000, "kIOPS"))]

    def read_limits(self, *, connection_count: float | None = None) -> ReadLimits:
        """Return the limits of reads through a number of connections."""
        connections = self.connection_count if connection_count is None else connection_count
        check_number("connection_count", connections, low=1, high=sys.float_info.max, allowed="finite and at least 1")
        stream = self.in_base_units("connection_gb_per_s")
        return ReadLimits(
            latency_s=self.latency_s,
            stream_bytes_per_s=stream,
            most_bytes_per_s=connections * stream,
            most_reads_per_s=self.in_base_units("most_request_kiops"),
            most_outstanding_reads=connections,
        )

    def read_limits_of_loaders(self, loader_count: int) -> ReadLimits:
        """Return the limits of reads by several hosts, each with its own connections."""
        return self.read_limits(connection_count=loader_count * self.connection_count)

    def describe(self) -> str:
        """Return the store in one line."""
        rate = f"{self.connection_gb_per_s:g} GB/s for each of {self.connection_count} connections"
        return f"object store, reads {rate}, first byte after {self.latency_ms:g} ms"


KINDS: Final[Mapping[str, type[Storage]]] = {
    "ssd": Drive,
    "hdd": Drive,
    "cloud_disk": CloudDisk,
    "object_store": ObjectStore,
}
"""Kind -> its class; a new kind is a class and a line here."""
