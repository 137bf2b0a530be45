"""refresh(): how often devices on one host link can have their whole memory renewed, and what they wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfmodel.cost.transfer import PERIOD_BY_READING, copy_time
from perfmodel.errors import ArgumentError
from perfmodel.hardware.catalogue import load_device, load_link
from perfmodel.hardware.link import Link
from perfmodel.hardware.link_catalogue import negotiated_link
from perfmodel.prediction.arguments import one_of, positive, whole_number
from perfmodel.presentation.quantities import byte_rate_text, bytes_text, percent_text, seconds_text

if TYPE_CHECKING:
    from pathlib import Path

    from perfmodel.hardware.gpu import Gpu

_SURVEY_REMARK = (
    "the survey's reading leaves out a device's own refresh: its figure for n devices is that of n - 1 with double "
    "buffering"
)


@dataclass(frozen=True, kw_only=True)
class Refresh:
    """Devices that compute on what their memory holds, and have it renewed over one shared link.

    Parameters
    ----------
    reading : str
        ``survey``, ``single_buffer`` or ``double_buffer``. [-]
    memory_bytes : float
        What one refresh copies to one device. [B]
    bandwidth_bytes_per_s : float
        Bandwidth of the link that the devices share. [B/s]
    compute_s : float
        Time a device computes on one filling. [s]
    device_count : int
        Devices on the link. [1]
    transfer_s : float
        Time to refresh one device. [s]
    period_s : float
        Time between two refreshes of a device. [s]
    remarks : tuple of str
        What the numbers do not say: what card and slot settled on, what the reading leaves out. [-]
    """

    reading: str
    memory_bytes: float
    bandwidth_bytes_per_s: float
    compute_s: float
    device_count: int
    transfer_s: float
    period_s: float
    remarks: tuple[str, ...] = ()

    @property
    def all_transfers_s(self) -> float:
        """Time to refresh every device once, one after the other. [s]."""
        return self.device_count * self.transfer_s

    @property
    def idle_s(self) -> float:
        """Time in which a device does not compute, per period. [s]."""
        return self.period_s - self.compute_s

    @property
    def utilisation(self) -> float:
        """Share of the time in which a device computes. [1]."""
        return self.compute_s / self.period_s

    def describe(self) -> str:
        """Return the answer in words, with the remarks."""
        count = f"{self.device_count} device{'s' if self.device_count > 1 else ''}"
        lines = [
            f"{count} on a link of {byte_rate_text(self.bandwidth_bytes_per_s)}, {bytes_text(self.memory_bytes)} each, "
            f"read as {self.reading}:",
            f"one refresh {seconds_text(self.transfer_s)}, all {seconds_text(self.all_transfers_s)}, "
            f"computing {seconds_text(self.compute_s)}",
            f"period {seconds_text(self.period_s)}, of which a device is idle {seconds_text(self.idle_s)}: "
            f"{percent_text(self.utilisation)} utilised",
        ]
        return "\n".join([*lines, *(f"note: {remark}" for remark in self.remarks)])


def refresh(
    *,
    memory_bytes: float | None = None,
    bandwidth_bytes_per_s: float | None = None,
    compute_s: float,
    device_count: int = 1,
    reading: str = "double_buffer",
    device: str | Path | Gpu | None = None,
    link: str | Path | Link | None = None,
) -> Refresh:
    """Say how long refreshing the memory of devices on one host link takes, and how much of the time they compute.

    Parameters
    ----------
    memory_bytes : float or None
        What one refresh copies to one device; None for the nominal memory of ``device``. [B]
    bandwidth_bytes_per_s : float or None
        Bandwidth of the shared link; None for what ``device`` and ``link`` settle on. [B/s]
    compute_s : float
        Time a device computes on one filling. [s]
    device_count : int
        Devices on the link. [1]
    reading : str
        ``double_buffer``: a device computes on one half of its memory while the other is filled. ``single_buffer``:
        it cannot compute during its own refresh. ``survey``: as a survey prints it, its own refresh left out. [-]
    device : str, Path, Gpu or None
        A GPU; gives the memory, and its end of the link. [-]
    link : str, Path, Link or None
        The slot, e.g. ``pcie_4_x16``; runs at the older generation and the fewer lanes of slot and card. [-]

    Returns
    -------
    Refresh
        Times, idle time and utilisation; ``describe()`` puts them in words. [-]

    Raises
    ------
    ArgumentError
        If a number is not above zero, memory or bandwidth follow from nothing, or bandwidth and link are both given.
    UnknownNameError, SpecError
        If a name is unknown, or a spec file wrong.

    Notes
    -----
    Valid for: a link that serves one device after the other at the rate that its line code leaves; what copies
    typically reach of it is a remark. Ignores: storage behind the link, which ``predict(system=...)`` has.

    Examples
    --------
    >>> import perfmodel as pm
    >>> question = {"memory_bytes": 8e9, "bandwidth_bytes_per_s": 31.5e9, "compute_s": 0.5, "device_count": 4}
    >>> [pm.refresh(**question, reading=reading).utilisation for reading in ("survey", "double_buffer")]
    [0.65625, 0.492188]
    >>> pm.refresh(memory_bytes=8e9, device="gtx_1080", link="pcie_4_x16", compute_s=0.5).transfer_s
    0.507812

    References
    ----------
    .. [1] J. Wünsche, Performance factors of deep learning and shallow neural network applications: a beginner's
       guide (table ``wuensche2018`` names it): the question, and the numbers of ``survey``.
    """
    period_of = PERIOD_BY_READING[one_of("reading", reading, tuple(PERIOD_BY_READING))]
    count, compute_s = whole_number("device_count", device_count), positive("compute_s", compute_s)
    gpu = None if device is None else _gpu(device)
    if memory_bytes is None:
        if gpu is None:
            raise ArgumentError("memory_bytes", None, "bytes of one refresh, or a device that has a memory")
        memory_bytes = gpu.memory.in_base_units("capacity_gib")
    bandwidth, remarks = _bandwidth(bandwidth_bytes_per_s, gpu, link)
    memory = positive("memory_bytes", memory_bytes)
    transfer_s = copy_time(size_bytes=memory, bandwidth_bytes_per_s=bandwidth)
    return Refresh(
        reading=reading,
        memory_bytes=memory,
        bandwidth_bytes_per_s=bandwidth,
        compute_s=compute_s,
        device_count=count,
        transfer_s=transfer_s,
        period_s=float(period_of(transfer_s=transfer_s, compute_s=compute_s, device_count=count)),
        remarks=(*remarks, _SURVEY_REMARK) if reading == "survey" else remarks,
    )


def _gpu(device: Any) -> Gpu:
    from perfmodel.hardware.gpu import Gpu

    loaded = device if isinstance(device, Gpu) else load_device(device)
    if not isinstance(loaded, Gpu):
        raise ArgumentError("device", device, "a GPU, which has a memory of its own and a link to its host")
    return loaded


def _bandwidth(given: float | None, gpu: Gpu | None, slot: Any) -> tuple[float, tuple[str, ...]]:
    """Return the bandwidth of the shared link, and what there is to say about it."""
    if given is not None and slot is not None:
        raise ArgumentError("link", slot, "either link or bandwidth_bytes_per_s, not both")
    card = None if gpu is None else load_link(gpu.host_link.link_name)
    if given is not None:
        bandwidth = positive("bandwidth_bytes_per_s", given)
        remarks = []
        if gpu is not None and card is not None and bandwidth > card.bandwidth_bytes_per_s:
            real = byte_rate_text(card.bandwidth_bytes_per_s)
            remarks = [f"{byte_rate_text(bandwidth)} as asked, although {gpu.name} has {card.name} with {real}"]
        return bandwidth, tuple(remarks)
    remarks = []
    settled = card if slot is None else slot if isinstance(slot, Link) else load_link(slot)
    if settled is None:
        allowed = "bytes per second of the shared link, or a link, or a device that has one"
        raise ArgumentError("bandwidth_bytes_per_s", None, allowed)
    if gpu is not None and card is not None and settled.family.protocol != card.family.protocol:
        raise ArgumentError(
            "link", slot.name if isinstance(slot, Link) else slot, f"a slot for {gpu.name}, which has {card.name}"
        )
    if gpu is not None:
        settled, remark = negotiated_link(settled, gpu)
        remarks = [f"{gpu.name} {remark}"] if remark else []
    peak, typical = settled.bandwidth_bytes_per_s, settled.effective_bandwidth_bytes_per_s
    remarks.append(f"copies over {settled.name} typically reach {byte_rate_text(typical)} of {byte_rate_text(peak)}")
    return peak, tuple(remarks)
