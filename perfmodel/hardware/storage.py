"""Storage devices: sequential and random reads, latency, and the interface that caps them."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, ValidationInfo, field_validator

from perfmodel.hardware.source import InRange, NonNegativeNumber, PositiveNumber, SpecFile
from perfmodel.units import KIB


class Storage(SpecFile):
    """One drive.

    Attributes
    ----------
    kind : str
        Technology. [-]
    interface : str
        What attaches it to the host, for people. [-]
    interface_gb_per_s : float
        Bandwidth of the interface per direction, after its line code. [GB/s]
    sequential_read_gb_per_s, sequential_write_gb_per_s : float
        Rate of large transfers. [GB/s]
    random_read_kiops : float
        Random reads, with a deep queue. [1000 reads/s]
    random_read_block_kib : float
        Size of one random read. [KiB]
    latency_ms : float
        Mean time of one lone random read. [ms]
    active_w : float or None
        Power while reading. [W]
    launch_date : date or None
        When it was launched. [-]
    """

    kind: Literal["ssd", "hdd"]
    interface: str
    interface_gb_per_s: Annotated[PositiveNumber, AfterValidator(InRange(0.05, 200, "GB/s"))]
    sequential_read_gb_per_s: Annotated[PositiveNumber, AfterValidator(InRange(0.01, 200, "GB/s"))]
    sequential_write_gb_per_s: Annotated[PositiveNumber, AfterValidator(InRange(0.01, 200, "GB/s"))]
    random_read_kiops: Annotated[PositiveNumber, AfterValidator(InRange(0.01, 20_000, "kIOPS"))]
    random_read_block_kib: Annotated[PositiveNumber, AfterValidator(InRange(0.5, 1_024, "KiB"))]
    latency_ms: Annotated[NonNegativeNumber, AfterValidator(InRange(0, 1_000, "ms"))]
    active_w: Annotated[PositiveNumber, AfterValidator(InRange(0.1, 500, "W"))] | None = None
    launch_date: date | None = None

    @field_validator("sequential_read_gb_per_s", "sequential_write_gb_per_s")
    @classmethod
    def _interface_caps_it(cls, rate: float, info: ValidationInfo) -> float:
        cap = info.data.get("interface_gb_per_s")
        if cap is not None and rate > cap:
            message = f"must be at most interface_gb_per_s = {cap:g}"
            raise ValueError(message)
        return rate

    @property
    def read_bandwidth_bytes_per_s(self) -> float:
        """Rate of large reads. [B/s]."""
        return self.in_base_units("sequential_read_gb_per_s")

    @property
    def write_bandwidth_bytes_per_s(self) -> float:
        """Rate of large writes. [B/s]."""
        return self.in_base_units("sequential_write_gb_per_s")

    @property
    def interface_bandwidth_bytes_per_s(self) -> float:
        """Bandwidth of the interface per direction. [B/s]."""
        return self.in_base_units("interface_gb_per_s")

    @property
    def random_reads_per_s(self) -> float:
        """Random reads with a deep queue. [1/s]."""
        return self.in_base_units("random_read_kiops")

    @property
    def random_read_bandwidth_bytes_per_s(self) -> float:
        """Rate of random reads of one block each, with a deep queue. [B/s]."""
        return self.random_reads_per_s * self.random_read_block_kib * KIB

    @property
    def latency_s(self) -> float:
        """Mean time of one lone random read. [s]."""
        return self.in_base_units("latency_ms")

    def describe(self) -> str:
        """Return the drive in one line."""
        rates = f"reads {self.sequential_read_gb_per_s:g}, writes {self.sequential_write_gb_per_s:g} GB/s"
        return f"{self.kind.upper()} on {self.interface}, {rates}"
