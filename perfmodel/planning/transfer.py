"""transfer() and refresh(): copies over shared links, their bottlenecks, and how long devices wait for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from perfmodel.cost.transfer import PERIOD_BY_READING, copy_time, staging
from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError
from perfmodel.hardware.catalogue import load_device, load_link, load_system
from perfmodel.hardware.link import Link
from perfmodel.hardware.part_catalogue import negotiated_link
from perfmodel.hardware.topology import Route, Topology
from perfmodel.hardware.wiring import Wired
from perfmodel.prediction.arguments.checks import bounded_entries, flag, one_of, positive, whole_number
from perfmodel.prediction.arguments.verbs import gated
from perfmodel.prediction.device.system_part import saturated_channels
from perfmodel.presentation.quantities import byte_rate_text, bytes_text, counted, percent_text, seconds_text
from perfmodel.presentation.results import Drawn, Result
from perfmodel.presentation.tables import Table
from perfmodel.simulation import Task, Timeline, simulate

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from perfmodel.hardware.gpu import Gpu


HOST: Final = "host"
"""Name of the host memory next to a copy's other end."""

CHUNK_BYTES: Final = 4e6
"""Chunk in which drivers move a copy staged in host memory; an estimate, as drivers do not state it. [B]"""

MOST_BYTES: Final = 1e18
"""Largest copy; anything larger is a typing error, and its times would lose digits. [B]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferRow:
    """One of the copies of a transfer."""

    source: str
    sink: str
    way: str
    route: str
    alone_s: float
    time_s: float
    alone_bytes_per_s: float
    bytes_per_s: float
    bound_by: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Transfer(Drawn):
    """Copies of one size that start at once.

    Parameters
    ----------
    system : Wired
        System that the copies run on. [-]
    size_bytes : float
        Size of each. [B]
    rows : Table of TransferRow
        One for each copy. [-]
    timeline : Timeline
        When each copy ran, and over which channels. [-]
    """

    system: Wired
    size_bytes: float
    rows: Table[TransferRow]
    timeline: Timeline

    _DICT_KEYS = ("system", "size_bytes", "time_s", "bytes_per_s", "copies")

    @property
    def copies(self) -> Table[TransferRow]:
        """The rows."""
        return self.rows

    @property
    def time_s(self) -> float:
        """Time until the last copy is done. [s]"""
        return self.timeline.makespan_s

    @property
    def bytes_per_s(self) -> float:
        """Bytes of all copies divided by that time. [B/s]"""
        return len(self.rows) * self.size_bytes / self.time_s

    def _lines(self) -> tuple[str]:
        count = f"{len(self.rows)} {'copy' if len(self.rows) == 1 else 'copies'} of {bytes_text(self.size_bytes)}"
        done = f"done after {seconds_text(self.time_s)}, {byte_rate_text(self.bytes_per_s)} in all"
        return (f"{count} on {self.system.name}: {done}",)

    def _figure(self) -> Figure:
        """Draw when each copy ran over which channels."""
        return self.timeline._figure()


@dataclass(frozen=True, kw_only=True)
class _Copy:
    """A copy with its legs, and the channels that its bytes flow through."""

    source: str
    sink: str
    way: str
    legs: tuple[Route, ...]
    leg_rates: tuple[float, ...]
    size_bytes: float
    chunk_bytes: float

    @property
    def name(self) -> str:
        return f"{self.source}:{self.sink}"

    @derived_property
    def route(self) -> Route:
        return reduce(Route.then, self.legs)

    @derived_property
    def pace(self) -> tuple[float, float]:
        """Latency [s] and own rate [B/s]."""
        if len(self.legs) == 1:
            return self.route.latency_s, self.leg_rates[0]
        latency_s, rate = staging(
            size_bytes=self.size_bytes,
            chunk_bytes=self.chunk_bytes,
            bandwidths_bytes_per_s=self.leg_rates,
            latencies_s=[leg.latency_s for leg in self.legs],
        )
        return float(latency_s), float(rate)

    @property
    def alone_s(self) -> float:
        latency_s, rate = self.pace
        rate = min(rate, self.route.capacity_bytes_per_s)
        return float(copy_time(size_bytes=self.size_bytes, bandwidth_bytes_per_s=rate, latency_s=latency_s))


@gated
def transfer(
    system: str | Path | Wired,
    copies: str | tuple[str, str] | Sequence[str | tuple[str, str]],
    *,
    size_bytes: float = 1e9,
    through_host: bool = False,
    pinned: bool = True,
    chunk_bytes: float = CHUNK_BYTES,
) -> Transfer:
    """Predict how long simultaneous copies between places of a system take.

    Devices copy straight to each other where the wiring lets them (GPUDirect P2P below one PCIe root or over NVLink;
    GPUDirect RDMA between machines whose adapters share the devices' roots); else a copy is staged in host memory.
    Copies that meet on a link, a switch, a root, a memory bus or an adapter share it max-min fairly; the two directions
    of a full-duplex link are separate, unless the device has a single copy engine.

    Parameters
    ----------
    system : str, Path, System or Cluster
        A system with wiring. [-]
    copies : str or tuple of str, or sequence of them
        Each as ``"gpu0:gpu1"`` or ``("gpu0", "gpu1")``: nodes of the system, ``host`` for the host memory next to the
        other end, or a pattern such as ``host:gpu*`` for one copy to every device that matches. [-]
    size_bytes : float
        Size of each copy. [B]
    through_host : bool
        Stage copies between devices in host memory even where they could go straight. [-]
    pinned : bool
        Whether copies from and to host memory use pinned memory; else pageable. [-]
    chunk_bytes : float
        Size of the chunks of a staged copy: one arrives while the one before it leaves. Infinity for one leg after the
        other. [B]

    Returns
    -------
    Transfer
        Times and rates of each copy, alone and together; routes and bottlenecks; a timeline. [-]

    Raises
    ------
    ArgumentError
        If a copy is not two names, a number is not above zero, or no link leads from one end to the other.
    UnknownNameError, SpecError
        If a name is unknown, or a spec file wrong.

    Notes
    -----
    Valid for: copies much longer than their latency; all flow from the start until their last byte. Ignores: GPUDirect
    Storage, drivers that switch peer access off for consumer boards, access control that routes peers' packets through
    the root, and the lower rate of some roots between their ports.

    Examples
    --------
    Eight devices of a DGX-1 read from host memory: two hang off each switch.

    >>> import perfmodel as pm
    >>> for readers in (1, 2, 4, 8):
    ...     rows = pm.transfer("dgx_1_p100", [f"host:gpu{place}" for place in range(readers)]).rows
    ...     print(readers, f"{min(row.bytes_per_s for row in rows) / 1e9:.2f}")
    1 12.44
    2 6.22
    4 6.22
    8 6.22
    """
    place = system if isinstance(system, Wired) else load_system(system)
    size = positive("size_bytes", size_bytes)
    if size > MOST_BYTES:
        raise ArgumentError("size_bytes", size_bytes, f"at most {MOST_BYTES:g} B")
    if chunk_bytes != math.inf:
        chunk_bytes = positive("chunk_bytes", chunk_bytes)
    forced, is_pinned = flag("through_host", through_host), flag("pinned", pinned)
    plans = [
        _copy(place.topology, *ends, size_bytes=size, through_host=forced, pinned=is_pinned, chunk_bytes=chunk_bytes)
        for ends in _ends(place.topology, copies)
    ]
    ways, capacity = _flows(place.topology, plans)
    tasks = [
        Task(copy.name, flow_bytes=size, channels=way, latency_s=copy.pace[0], kind=copy.way)
        for copy, way in zip(plans, ways, strict=True)
    ]
    timeline = simulate(tasks, channels=capacity, resources={})
    bounds = saturated_channels(ways, capacity=capacity)
    rows = [
        _row(copy, time_s=timeline.span(copy.name).end_s, bound_by=bound)
        for copy, bound in zip(plans, bounds, strict=True)
    ]
    return Transfer(system=place, size_bytes=size, rows=Table(rows, row_type=TransferRow), timeline=timeline)


def _ends(topology: Topology, copies: Any) -> list[tuple[str, str]]:
    """Return source and sink of each copy, with ``host`` and patterns resolved."""
    typed: dict[tuple[str, str], Any] = {}
    for copy in _listed(copies):
        for pair in _pairs(topology, copy):
            if pair in typed:
                also = "" if typed[pair] == copy else f", and {typed[pair]!r} asks for {':'.join(pair)} too"
                raise ArgumentError("copies", copy, f"must not repeat a copy{also}")
            typed[pair] = copy
    if not typed:
        raise ArgumentError("copies", copies, "must have at least one copy, e.g. 'host:gpu0'")
    return list(typed)


def _listed(copies: Any) -> list[Any]:
    """Return the requested copies as a list; a text is one copy, and so is a pair of names."""
    if hasattr(copies, "tolist"):
        copies = copies.tolist()
    is_pair = isinstance(copies, tuple) and len(copies) == 2 and all(isinstance(name, str) for name in copies)
    if isinstance(copies, str) or (is_pair and not any(":" in name for name in copies)):
        return [copies]
    if not isinstance(copies, Iterable):
        raise ArgumentError("copies", copies, "a copy such as 'host:gpu0', a pair of names, or a list of them")
    return list(bounded_entries("copies", copies))


def _pairs(topology: Topology, copy: Any) -> Iterable[tuple[str, str]]:
    """Yield the copies that one text or pair means."""
    names = copy.split(":") if isinstance(copy, str) else copy
    if not isinstance(names, Sequence) or len(names) != 2 or not all(isinstance(name, str) and name for name in names):
        raise ArgumentError("copies", copy, "two places, as 'gpu0:gpu1' or a pair of names")
    if HOST in names and names[0] == names[1]:
        raise ArgumentError("copies", copy, f"a copy with at least one end other than {HOST}")
    sources, sinks = (_matching(topology, name) for name in names)
    for source in sources:
        for sink in sinks:
            if source != sink or len(sources) == len(sinks) == 1:
                yield (
                    topology.home_memory(sink) if source == HOST else source,
                    topology.home_memory(source) if sink == HOST else sink,
                )


def _matching(topology: Topology, name: str) -> list[str]:
    """Return the devices that match a pattern; a plain name stays as it is."""
    if not any(letter in name for letter in "*?["):
        return [name]
    devices = [device for device in topology.devices() if fnmatchcase(device, name)]
    if not devices:
        raise ArgumentError("copies", name, f"a pattern that matches a device: {', '.join(topology.devices())}")
    return devices


def _copy(
    topology: Topology,
    source: str,
    sink: str,
    *,
    size_bytes: float,
    through_host: bool,
    pinned: bool,
    chunk_bytes: float,
) -> _Copy:
    legs = topology.legs(source, sink, through_host=through_host)
    devices = {source, sink}.issubset(topology.devices())
    straight = "direct" if not devices else "peer to peer" if topology.peer_to_peer(source, sink) else "RDMA"
    return _Copy(
        source=source,
        sink=sink,
        way="staged" if reduce(Route.then, legs).is_staged else straight,
        legs=legs,
        leg_rates=tuple(leg.capacity_bytes_per_s if pinned else _pageable_rate(topology, leg) for leg in legs),
        size_bytes=size_bytes,
        chunk_bytes=chunk_bytes,
    )


def _pageable_rate(topology: Topology, leg: Route) -> float:
    """Return the rate of copies from or to pageable memory; between other places, the pinned rate. [B/s]"""
    kinds = {topology.places[end].kind for end in (leg.nodes[0], leg.nodes[-1])}
    if kinds != {"memory", "device"}:
        return leg.capacity_bytes_per_s
    at_device = leg.channels[-1] if topology.places[leg.nodes[-1]].kind == "device" else leg.channels[0]
    return min(leg.capacity_bytes_per_s, load_link(at_device.link).pageable_bandwidth_bytes_per_s)


def _flows(topology: Topology, copies: list[_Copy]) -> tuple[list[tuple[str, ...]], dict[str, float]]:
    """Return the channels that each copy uses, and the capacity of each channel [B/s].

    Added to the wiring's channels: a copy's own pace if it is slower than its channels, and a device's only copy
    engine, which moves bytes in one direction at a time, so both directions together get the rate of its link.
    """
    capacity = {name: channel.capacity_bytes_per_s for name, channel in topology.channels.items()}
    ways = []
    for copy in copies:
        copy_channels = []
        rate = copy.pace[1]
        if rate < copy.route.capacity_bytes_per_s:
            copy_channels.append(f"{copy.name} {'in chunks' if len(copy.legs) > 1 else 'from or to pageable memory'}")
            capacity[copy_channels[-1]] = rate
        for leg in copy.legs:
            device, channel = _engine_of(topology, leg)
            if device and topology.copy_engine_count(device) == 1:
                copy_channels.append(f"{device} copy engine")
                capacity[copy_channels[-1]] = max(capacity.get(copy_channels[-1], 0.0), channel)
        ways.append((*copy.route.channel_names, *copy_channels))
    return ways, capacity


def _engine_of(topology: Topology, leg: Route) -> tuple[str, float]:
    """Return the device whose copy engine moves a leg (the source between two devices), and its link's rate [B/s]."""
    ends = ((leg.nodes[0], leg.channels[0]), (leg.nodes[-1], leg.channels[-1]))
    engines = [(name, channel.capacity_bytes_per_s) for name, channel in ends if topology.places[name].kind == "device"]
    crosses = topology.places[leg.nodes[0]].node != topology.places[leg.nodes[-1]].node
    return engines[0] if engines and not crosses else ("", math.inf)


def _row(copy: _Copy, *, time_s: float, bound_by: str) -> TransferRow:
    return TransferRow(
        source=copy.source,
        sink=copy.sink,
        way=copy.way,
        route=" > ".join(copy.route.nodes),
        alone_s=copy.alone_s,
        time_s=time_s,
        alone_bytes_per_s=copy.size_bytes / copy.alone_s,
        bytes_per_s=copy.size_bytes / time_s,
        bound_by=bound_by,
    )


_SURVEY_REMARK = (
    "the survey's reading leaves out a device's own refresh: its figure for n devices is that of n - 1 with double "
    "buffering"
)


@dataclass(frozen=True, kw_only=True)
class Refresh(Result):
    """Devices that compute on the contents of their memory, which one shared link refreshes.

    Parameters
    ----------
    reading : str
        ``survey``, ``single_buffer`` or ``double_buffer``. [-]
    memory_bytes : float
        Bytes that one refresh copies to one device. [B]
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
        Remarks on the numbers: the link that card and slot negotiated, and what the reading leaves out. [-]
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
    def rows(self) -> Table[Refresh]:
        """The result itself, as the only row of a table."""
        return Table([self], title=f"refresh, read as {self.reading}")

    @property
    def all_transfers_s(self) -> float:
        """Time to refresh all devices, one after the other. [s]."""
        return self.device_count * self.transfer_s

    @property
    def idle_s(self) -> float:
        """Time in which a device does not compute, per period. [s]."""
        return self.period_s - self.compute_s

    @property
    def utilisation(self) -> float:
        """Share of the time in which a device computes. [1]."""
        return self.compute_s / self.period_s

    def __str__(self) -> str:
        return self.describe()

    def describe(self) -> str:
        """Return the result in words, with the remarks."""
        count = counted(self.device_count, "device")
        lines = [
            f"{count} on a link of {byte_rate_text(self.bandwidth_bytes_per_s)}, {bytes_text(self.memory_bytes)} each, "
            f"read as {self.reading}:",
            f"one refresh {seconds_text(self.transfer_s)}, all {seconds_text(self.all_transfers_s)}, "
            f"computing {seconds_text(self.compute_s)}",
            f"period {seconds_text(self.period_s)}, of which a device is idle {seconds_text(self.idle_s)}: "
            f"{percent_text(self.utilisation)} utilised",
        ]
        return "\n".join([*lines, *(f"note: {remark}" for remark in self.remarks)])


@gated
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
    """Predict how long it takes to refresh the memory of devices on one host link, and how busy the devices are.

    Parameters
    ----------
    memory_bytes : float or None
        Bytes that one refresh copies to one device; None for the nominal memory of ``device``. [B]
    bandwidth_bytes_per_s : float or None
        Bandwidth of the shared link; None for that of the link that ``device`` and ``link`` negotiate. [B/s]
    compute_s : float
        Time a device computes on one filling. [s]
    device_count : int
        Devices on the link. [1]
    reading : str
        ``double_buffer``: a device computes on one half of its memory while the other is filled. ``single_buffer``:
        it cannot compute during its own refresh. ``survey``: a survey's formula, which leaves out that refresh. [-]
    device : str, Path, Gpu or None
        A GPU; gives the memory size and its end of the link. [-]
    link : str, Path, Link or None
        The slot, e.g. ``pcie_4_x16``; runs at the older generation and the fewer lanes of slot and card. [-]

    Returns
    -------
    Refresh
        Times, idle time and utilisation; ``describe()`` puts them in words. [-]

    Raises
    ------
    ArgumentError
        If a number is not above zero, memory or bandwidth is missing, or bandwidth and link are both given.
    UnknownNameError, SpecError
        If a name is unknown, or a spec file wrong.

    Notes
    -----
    Valid for: a link that serves one device after the other at the rate after its line code; a remark gives the
    rate that copies typically reach. Ignores: storage behind the link; ``predict(system=...)`` includes it.

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
            raise ArgumentError("memory_bytes", None, "the bytes of one refresh; alternatively pass device=")
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
        raise ArgumentError("device", device, "a GPU with its own memory and a link to its host")
    return loaded


def _bandwidth(stated_bytes_per_s: float | None, gpu: Gpu | None, slot: Any) -> tuple[float, tuple[str, ...]]:
    """Return the bandwidth of the shared link, and remarks on it."""
    if stated_bytes_per_s is not None and slot is not None:
        raise ArgumentError("link", slot, "must not be given with bandwidth_bytes_per_s=")
    card = None if gpu is None else load_link(gpu.host_link.link_name)
    if stated_bytes_per_s is not None:
        bandwidth = positive("bandwidth_bytes_per_s", stated_bytes_per_s)
        remarks = []
        if gpu is not None and card is not None and bandwidth > card.bandwidth_bytes_per_s:
            real = byte_rate_text(card.bandwidth_bytes_per_s)
            remarks = [f"{byte_rate_text(bandwidth)} as asked, although {gpu.name} has {card.name} with {real}"]
        return bandwidth, tuple(remarks)
    remarks = []
    settled = card if slot is None else slot if isinstance(slot, Link) else load_link(slot)
    if settled is None:
        raise ArgumentError("bandwidth_bytes_per_s", None, "the rate of the shared link; or pass link= or device=")
    if gpu is not None and card is not None and settled.family.protocol != card.family.protocol:
        raise ArgumentError(
            "link", slot.name if isinstance(slot, Link) else slot, f"a slot that {gpu.name} fits, which has {card.name}"
        )
    if gpu is not None:
        settled, remark = negotiated_link(settled, gpu)
        remarks = [f"{gpu.name} {remark}"] if remark else []
    peak, typical = settled.bandwidth_bytes_per_s, settled.effective_bandwidth_bytes_per_s
    remarks.append(f"copies over {settled.name} typically reach {byte_rate_text(typical)} of {byte_rate_text(peak)}")
    return peak, tuple(remarks)
