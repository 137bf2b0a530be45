"""Links: one file per protocol and generation, which serves every lane width it lists.

``pcie_3.toml`` gives ``pcie_3_x1`` to ``pcie_3_x16``; a file without lane widths gives one link with the file's name.
All bandwidths are per direction. The raw bandwidth is lane rate x lanes; times the line code, it carries packets. That
times the payload share of a packet is the upper limit of a copy; times ``typical_efficiency``, the rate that copies
reach.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, field_validator

from perfmodel.derived import derived_property
from perfmodel.hardware import source as spec
from perfmodel.presentation.quantities import counted
from perfmodel.units import GIGA


class LineCode(spec.SpecTable):
    """Encoding of bits on the wire."""

    payload_bits: spec.Count
    coded_bits: spec.Count

    _code_does_not_compress = field_validator("coded_bits")(spec.at_least("payload_bits"))


class Packet(spec.SpecTable):
    """Framing of a packet."""

    max_payload_bytes: spec.Count
    overhead_bytes: Annotated[spec.NonNegativeNumber, AfterValidator(spec.InRange(0, 10_000, "B"))]


class LinkFamily(spec.SpecFile):
    """A protocol and generation, for any of its lane widths."""

    protocol: spec.Identifier
    generation: spec.Count | None = None
    lane_rate_gbit_per_s: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.1, 1_000, "Gbit/s"))]
    lane_widths: tuple[spec.Count, ...] = ()
    duplex: Literal["full", "half"]
    code: LineCode
    packet: Packet
    typical_efficiency: spec.Fraction
    pageable_efficiency: spec.Fraction | None = None
    latency_us: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.01, 100_000, "us"))]
    hop_latency_us: Annotated[spec.NonNegativeNumber, AfterValidator(spec.InRange(0, 1_000, "us"))] = 0.0

    @spec.checks("lane_widths")
    @staticmethod
    def _widths_rise(widths: tuple[int, ...]) -> None:
        if list(widths) != sorted(set(widths)):
            spec.invalid("must be in rising order without repeats")

    @spec.checks("typical_efficiency", beside=("packet",))
    @staticmethod
    def _typical_is_within_packets(typical: float, packet: Packet | None) -> None:
        if packet is not None and typical > (best := _payload_share(packet, packet.max_payload_bytes)):
            spec.invalid(f"must be at most the payload share of a packet = {best:.4g}")

    _pageable_is_not_faster = field_validator("pageable_efficiency")(spec.at_most("typical_efficiency"))

    def describe(self) -> str:
        """Return the family in one line."""
        widths = f", x{'/x'.join(map(str, self.lane_widths))}" if self.lane_widths else ""
        return f"{self.name}, {self.lane_rate_gbit_per_s:g} Gbit/s per lane{widths}"


def _payload_share(packet: Packet, payload_bytes: float) -> float:
    return payload_bytes / (payload_bytes + packet.overhead_bytes)


@dataclass(frozen=True, kw_only=True, repr=False)
class Link:
    """One link: a family at one lane width. Bandwidths are per direction.

    Parameters
    ----------
    name : str
        Name that ``load_link`` accepts, e.g. ``pcie_3_x16``. [-]
    family : LinkFamily
        Protocol and generation. [-]
    lane_count : int
        Lanes. [1]
    """

    name: str
    family: LinkFamily
    lane_count: int

    @property
    def raw_bandwidth_bytes_per_s(self) -> float:
        """Bandwidth on the wire, before the line code. [B/s]."""
        return self.family.in_base_units("lane_rate_gbit_per_s") * self.lane_count

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Bandwidth after the line code, as PCIe tables state it. [B/s]."""
        code = self.family.code
        return self.raw_bandwidth_bytes_per_s * code.payload_bits / code.coded_bits

    @derived_property
    def effective_bandwidth_bytes_per_s(self) -> float:
        """Bandwidth of large copies (from pinned memory, on PCIe). [B/s]."""
        return self.bandwidth_bytes_per_s * self.family.typical_efficiency

    @derived_property
    def pageable_bandwidth_bytes_per_s(self) -> float:
        """Bandwidth of large copies from pageable host memory; as from pinned memory if not stated. [B/s]."""
        if self.family.pageable_efficiency is None:
            return self.effective_bandwidth_bytes_per_s
        return self.bandwidth_bytes_per_s * self.family.pageable_efficiency

    @derived_property
    def latency_s(self) -> float:
        """Time of an empty message from end to end. [s]."""
        return self.family.in_base_units("latency_us")

    @property
    def hop_latency_s(self) -> float:
        """Latency that each further link of the family adds to a message. [s]."""
        return self.family.in_base_units("hop_latency_us")

    def __repr__(self) -> str:
        return spec.summary(self, stem=self.family.stem)

    def describe(self) -> str:
        """Return the link in one line."""
        peak, typical = self.bandwidth_bytes_per_s / GIGA, self.effective_bandwidth_bytes_per_s / GIGA
        lanes = counted(self.lane_count, "lane")
        return f"{self.family.name}, {lanes}, {peak:.4g} GB/s per direction, {typical:.4g} typical"
