"""Input of a job: reading, decoding and copying mini-batches while the devices compute."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.cost.input_pipeline import (
    SharedCores,
    bounding_stage,
    jittered_period,
    lead_of_slowest,
    pipelined_period,
    read_rate,
    stage_periods,
)
from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.hardware.catalogue import load_dataset, load_storage
from perfmodel.hardware.dataset import Dataset
from perfmodel.hardware.spec_files import names
from perfmodel.hardware.storage import Drive, Storage
from perfmodel.hardware.topology import Route
from perfmodel.hardware.wires import Channel
from perfmodel.numeric import exceeds, maximum, minimum
from perfmodel.prediction.arguments.checks import whole_number
from perfmodel.prediction.arguments.table import HOST_MEMORY as HOST_MEMORY
from perfmodel.prediction.device.factors import NO_FACTORS, Factors, scaled_constant
from perfmodel.prediction.device.system_part import Host, SystemPart, shared_rates, slowest_rate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.hardware.source import SpecFile
    from perfmodel.hardware.storage import ReadLimits
    from perfmodel.hardware.wiring import StorageArray
    from perfmodel.prediction.device.step_time import StepTime
    from perfmodel.prediction.device.target import Target
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.job.subject import Subject


HOST_PASSES: Final = 3
"""Times a decoded example passes host memory: written by the decoder, then read and written into a buffer. [1]"""

PAGE_CACHE_SHARE: Final = 0.9
"""Share of a host's memory that can cache a data set; an estimate. [1]"""

INPUT_STAGES: Final = ("read", "decode", "host_copy")
"""Stages before the copy to the device, in order."""

BOTTLENECK_OF_STAGE: Final = {"read": "storage", "decode": "decode", "host_copy": "decode"}
"""Input stage -> name of the bottleneck of a step that waits for it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class DataPath:
    """Source of a job's mini-batches, with the prefetch depth."""

    system_part: SystemPart | None
    prefetch: int
    dataset: Dataset | None = None
    input_from: str | Storage | None = HOST_MEMORY
    decode_cores: int | None = None
    input_variation: float = 0.0
    step_cores: float = 0.0
    """Cores of a machine that the step computes on, and that decoding shares; 0 on GPUs. [1]"""

    def with_workers(self, worker_count: int) -> DataPath:
        """Return the same input for another number of workers."""
        return (
            self if self.system_part is None else replace(self, system_part=self.system_part.with_workers(worker_count))
        )

    @property
    def worker_count(self) -> int:
        """Workers that are fed at the same time. [1]"""
        return 1 if self.system_part is None else self.system_part.worker_count

    @derived_property
    def read_routes(self) -> tuple[Route, ...]:
        """Route from storage to each worker's host memory; empty unless the storage belongs to the system."""
        from_system = self.dataset is not None and (self.input_from is None or isinstance(self.input_from, str))
        if not from_system or self.input_from == HOST_MEMORY or self.system_part is None:
            return ()
        ways = self.system_part.storage_routes(self.input_from)  # type: ignore[arg-type]
        arrays = {array.name: array for array in self.system_part.system.storages}
        behind = {
            name: reads_of_array(arrays[name], read_bytes=self._read_bytes) for name in {way.nodes[0] for way in ways}
        }
        return tuple(behind[way.nodes[0]].then(way) for way in ways)

    @property
    def unlike_machines(self) -> Iterator[Hashable]:
        """Yield a key for one worker, for two, and so on: equal keys mean that each worker is fed equally fast."""
        remote = isinstance(self.input_from, Storage) and self.input_from.is_remote
        if self.system_part is None or remote or any(route.leaves_machine for route in self.read_routes):
            yield from range(self.worker_count)
        else:
            yield from self.system_part.unlike_machines

    @property
    def _read_bytes(self) -> float:
        """Size of one read; infinite if examples are read sequentially. [B]"""
        assert self.dataset is not None
        return self.dataset.encoded_bytes_per_example if self.dataset.stored_in == "files" else math.inf

    @property
    def storage(self) -> str:
        """Name of the storage."""
        if isinstance(self.input_from, Storage):
            count = len(self.hosts)
            several = f"one for all {count} hosts" if self.input_from.is_remote else f"one in each of {count} hosts"
            return self.input_from.name if count == 1 else f"{self.input_from.name} ({several})"
        names = dict.fromkeys(route.nodes[0] for route in self.read_routes)
        return " and ".join(names) or HOST_MEMORY

    @derived_property
    def _stated_reading(self) -> Reading | None:
        """Rates of a storage that is stated by its file and not part of the system; None otherwise.

        Valid for: large data sets read by whole examples. No link limits a drive in the host. Reads from a remote
        storage arrive evenly over all network adapters of the system and pass the links from the adapters to host
        memory. Each host's loader keeps its own reads in flight, which its workers share. Ignores: the network's
        switches and other traffic.
        """
        storage, system_part = self.input_from, self.system_part
        if self.dataset is None or not isinstance(storage, Storage):
            return None
        loader = _loader_rate(storage.read_limits(), read_bytes=self._read_bytes)
        if not storage.is_remote:
            counts = [host.worker_count for host in self.hosts]
            return Reading(bytes_per_s=loader * (sum(counts) / max(counts)), is_limited_by_storage=True)
        of_all = storage.read_limits_of_loaders(len(self.hosts))
        whole = float(minimum(of_all.most_bytes_per_s, of_all.most_reads_per_s * self._read_bytes))
        if system_part is None:
            return Reading(bytes_per_s=min(loader, whole), is_limited_by_storage=whole <= loader)
        of_workers = _network_rates(system_part, storage_bytes_per_s=whole, loader_bytes_per_s=loader)
        reached = system_part.worker_count * float(of_workers.min())
        return Reading(bytes_per_s=reached, is_limited_by_storage=bool(of_workers.sum() >= whole * FULL))

    @derived_property
    def read_bytes_per_s(self) -> float:
        """Read rate of all workers together, at the pace of the slowest. [B/s]"""
        if self._stated_reading is not None:
            return self._stated_reading.bytes_per_s
        return self.worker_count * slowest_rate(self.read_routes) if self.read_routes else math.inf

    @property
    def read_limited_by_storage(self) -> bool:
        """Whether the storage itself limits reading, rather than a link behind it."""
        if self._stated_reading is not None:
            return self._stated_reading.is_limited_by_storage
        ways = self.read_routes
        return bool(ways) and all(way.channels[0].capacity_bytes_per_s <= way.capacity_bytes_per_s for way in ways)

    @property
    def is_cached(self) -> bool:
        """Whether the hosts' memory can cache the data set, so that only the first epoch reads it."""
        known = self.system_part is not None and self.dataset is not None and self.input_from != HOST_MEMORY
        return known and self.dataset.encoded_bytes < PAGE_CACHE_SHARE * self.system_part.memory_bytes  # type: ignore[union-attr]

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The machines of the workers; unknown for a device without a system."""
        return (Host(),) if self.system_part is None else self.system_part.hosts

    @property
    def decode_rate_per_core(self) -> float | None:
        """Examples that one core decodes per second; None if no decoding is needed. [1/s]"""
        decoded = self.dataset is None or self.input_from == HOST_MEMORY
        return None if decoded else self.dataset.decode_rate_per_core  # type: ignore[union-attr]

    def decode_core_count(self, host: Host) -> int:
        """Cores of a host that decode. [1]"""
        return host.core_count if self.decode_cores is None else self.decode_cores

    def stages(self, batch_size: Any, *, first_epoch: bool = False, factors: Factors = NO_FACTORS) -> dict[str, Any]:
        """Time of each stage before the copy, for one mini-batch of every worker. [s]"""
        data = self.dataset
        if data is None:
            return dict.fromkeys(INPUT_STAGES, 0.0)
        cached = self.is_cached and not first_epoch
        read_factor, rate_per_core = self._scaled_rates(factors)
        of_worker = math.inf if cached else read_factor * self.read_bytes_per_s / self.worker_count
        of_hosts = [
            stage_periods(
                batch_size=batch_size,
                worker_count=host.worker_count,
                compute_s=0.0,
                encoded_bytes=data.encoded_bytes_per_example,
                storage_bytes_per_s=of_worker * host.worker_count,
                host_bytes=HOST_PASSES * data.decoded_bytes_per_example,
                host_bytes_per_s=host.memory_bytes_per_s,
                device_bytes=0.0,
                root_bytes_per_s=1.0,
                decode_rate_per_core=rate_per_core,
                decode_core_count=self.decode_core_count(host),
            )
            for host in self.hosts
        ]
        return {stage: reduce(maximum, (periods[stage] for periods in of_hosts)) for stage in INPUT_STAGES}

    def _scaled_rates(self, factors: Factors) -> tuple[Any, Any]:
        """Factor on the drive's rate, if that limits reading, and the scaled decode rate of a core."""
        read_factor: Any = 1.0
        drive = next((spec for spec in self.sources if isinstance(spec, Drive)), None)
        if drive is not None and self.read_limited_by_storage and not self.is_cached:
            read_factor = scaled_constant(1.0, f"storage/{drive.stem}/sequential_read_gb_per_s", factors=factors)
        rate = self.decode_rate_per_core
        if rate is None or self.dataset is None or self.dataset.file is None:
            return read_factor, rate
        name = f"datasets/{self.dataset.file.stem}/decode_rate_per_core"
        return read_factor, scaled_constant(rate, name, factors=factors)

    def fed(
        self, parts: StepTime, *, batch_size: Any, first_epoch: bool = False, factors: Factors = NO_FACTORS
    ) -> StepTime:
        """Parts of a step that this input feeds."""
        if self.dataset is None:
            return parts
        parts = parts._replace(input_wait_s=0.0)
        step_s = parts.step_s + self.decoding_beside_s(parts, batch_size=batch_size, factors=factors)
        stages = self.stages(batch_size, first_epoch=first_epoch, factors=factors)
        if self.prefetch and self.input_variation:
            lead = lead_of_slowest(
                stage_s=stages,
                depth=self.prefetch,
                copied_ahead=exceeds(parts.transfer_s, parts.exposed_transfer_s),
                copied_between=exceeds(parts.exposed_transfer_s, 0),
            )
            period = jittered_period(
                feed_s=reduce(maximum, stages.values()),
                compute_s=step_s,
                depth=lead,
                feed_variation=self.input_variation,
            )
        else:  # without prefetching, stages add up, and the mean of a sum is the sum of the means
            period = pipelined_period(stage_s={**stages, "device": step_s}, depth=self.prefetch)
        return parts._replace(input_wait_s=period - parts.step_s)

    def decoding_beside_s(self, parts: StepTime, *, batch_size: Any, factors: Factors = NO_FACTORS) -> Any:
        r"""Time that a step grows by because decoding takes cores from it. [s]

        .. math:: \max\left(0, \frac{t T_c + W}{C} - T\right)

        with C cores, of which the step keeps t busy for :math:`T_c` of its T, and W core-seconds of decoding.

        Valid for: work that any core takes over at once. Ignores: cores that copy, read and exchange, and caches.
        """
        cores = self.shared_cores(batch_size, factors=factors)
        if cores is None:
            return 0.0
        idle_s = parts.exposed_sync_s + parts.straggler_s + parts.bubble_s
        return maximum(cores.busy_s(parts.step_s - idle_s) - parts.step_s, 0.0)

    def shared_cores(self, batch_size: Any, *, factors: Factors = NO_FACTORS) -> SharedCores | None:
        """Return the step's own cores that decode while it computes; None if it has none, or nothing decodes then."""
        rate = self._scaled_rates(factors)[1]
        if not self.step_cores or rate is None or not self.prefetch:
            return None
        core_count = self.hosts[0].core_count
        return SharedCores(
            computing=self.step_cores / core_count,
            decoding_s=batch_size / rate / core_count,
            prefetch=self.prefetch,
        )

    def bounding_stage(self, parts: StepTime, *, batch_size: Any) -> str | None:
        """Return the stage that the mean step waits for; None if the devices are slower, or nothing is fetched ahead.

        Varying times only delay some steps, and decoding on the step's own cores makes the step itself longer.
        """
        if self.dataset is None or not self.prefetch:
            return None
        parts = parts._replace(input_wait_s=0.0)
        step_s = parts.step_s + self.decoding_beside_s(parts, batch_size=batch_size)
        slowest = str(bounding_stage(stage_s={"device": step_s, **self.stages(batch_size)}))
        return None if slowest == "device" else slowest

    def cause_of_wait(self, parts: StepTime, *, batch_size: Any) -> str:
        """Return the stage that causes most of a step's wait for input."""
        beside_s = self.decoding_beside_s(parts._replace(input_wait_s=0.0), batch_size=batch_size)
        return "decode" if 2 * beside_s > parts.input_wait_s else self.slowest_stage(batch_size)

    @property
    def sources(self) -> tuple[SpecFile, ...]:
        """Files whose numbers the input uses: data set, storage."""
        files: list[SpecFile | None] = [None if self.dataset is None else self.dataset.file]
        if isinstance(self.input_from, Storage):
            files.append(self.input_from)
        elif self.system_part is not None and self.read_routes:
            named = {route.nodes[0] for route in self.read_routes}
            files += [array.drive for array in self.system_part.system.storages if array.name in named]
        return tuple({id(spec): spec for spec in files if spec is not None}.values())

    def remarks(self, subject: Subject) -> tuple[str, ...]:
        """Remark on cores that decode beside the step, and on examples that do not have the network's input size."""
        if self.dataset is None:
            return ()
        beside: tuple[str, ...] = ()
        if self.step_cores and self.decode_rate_per_core is not None:
            count = self.hosts[0].core_count
            cores = "only core" if count == 1 else f"{count} cores"
            beside = (f"decoding and the step share the {cores} of a machine",)
        sizes = [math.prod(shape) for shape in subject.graph.input_shapes.values()]
        if self.dataset.element_count in sizes:
            return beside
        takes = " or ".join(f"{size:,}" for size in sizes)
        has = f"an example of {self.dataset.name} has {self.dataset.element_count:,} values"
        return (*beside, f"{has}; {subject.name} takes {takes}")

    def slowest_stage(self, batch_size: Any) -> str:
        """Return the slowest stage before the copy."""
        return str(bounding_stage(stage_s=self.stages(batch_size)))


OUTSTANDING_READS: Final = 64
"""Reads in flight per host, as far as the storage allows. [1]"""

FULL: Final = 1 - 1e-9
"""If workers reach this share of a storage's rate, the storage is the limit. [1]"""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Rates at which workers read from a storage."""

    bytes_per_s: float
    is_limited_by_storage: bool


def reads_of_array(array: StorageArray, *, read_bytes: float) -> Route:
    """Limit of a system's storage apart from its links, as a route of one channel.

    Notes
    -----
    Valid for: reads that a stripe spreads evenly over its drives.
    """
    of_one = _loader_rate(array.drive.read_limits(), read_bytes=read_bytes, share=1 / array.drive_count)
    rate = array.drive_count * array.efficiency * of_one
    return Route(nodes=(array.name,), channels=(_channel(f"{array.name} reads", rate),), latency_s=0.0)


def _loader_rate(limits: ReadLimits, *, read_bytes: float, share: float = 1.0) -> float:
    """Rate of one host's loader, with its share of the reads in flight. [B/s]"""
    if math.isinf(read_bytes):
        return float(limits.most_bytes_per_s)
    return float(read_rate(read_bytes=read_bytes, outstanding_reads=share * OUTSTANDING_READS, **asdict(limits)))


def _network_rates(
    system_part: SystemPart, *, storage_bytes_per_s: float, loader_bytes_per_s: float
) -> NDArray[np.float64]:
    """Rate of each worker while all read from one storage on the network. [B/s]"""
    storage = _channel("storage", storage_bytes_per_s)
    ways_of = []
    for name, ways in zip(system_part.names, system_part.network_routes, strict=True):
        loader = _channel(f"{system_part.node_of(name)} loader", loader_bytes_per_s)
        behind = Route(nodes=("storage",), channels=(storage, loader), latency_s=0.0)
        ways_of.append([behind.then(way) for way in ways] or [behind])
    worker_of = np.repeat(np.arange(len(ways_of)), [len(ways) for ways in ways_of])
    flows = tuple(way for ways in ways_of for way in ways)
    # a worker's share of the storage does not grow with the adapters of its host
    weights = 1 / np.array([len(ways_of[worker]) for worker in worker_of])
    of_flows = shared_rates(flows, weights=weights)
    return np.array([of_flows[worker_of == worker].sum() for worker in range(len(ways_of))])


def _channel(name: str, bytes_per_s: float) -> Channel:
    return Channel(name=name, capacity_bytes_per_s=bytes_per_s, raw_bytes_per_s=bytes_per_s)


def resolve_data_path(target: Target, job: Job) -> DataPath:
    """Make the input that a job asks for."""
    system_part, dataset, input_from, decode_cores = target.system_part, job.dataset, job.input_from, job.decode_cores
    if dataset is None:
        return (
            _from_host_memory(job.prefetch)
            if system_part is None
            else DataPath(system_part=system_part, prefetch=job.prefetch)
        )
    system_part = target.fed_part
    if target.processor == "cpu" and system_part is None:
        raise ArgumentError("dataset", dataset, f"left out with device=; pass system=, a machine with {target.name}")
    data = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
    if decode_cores is not None:
        whole_number("decode_cores", decode_cores, maximum=None if system_part is None else system_part.core_count)
    elif system_part is None and data.decode_rate_per_core is not None and input_from != HOST_MEMORY:
        allowed = f"a whole number with device=, because {data.name} must be decoded; or pass system="
        raise ArgumentError("decode_cores", None, allowed)
    path = DataPath(
        system_part=system_part,
        prefetch=job.prefetch,
        dataset=data,
        input_from=_source(system_part, input_from),
        decode_cores=decode_cores,
        input_variation=job.input_variation,
        step_cores=0.0 if target.processor == "gpu" else min(target.threads or 0, target.core_count),
    )
    path.read_bytes_per_s  # noqa: B018  raises where there is no such storage, before any work is lost
    return path


@lru_cache(maxsize=64)
def _from_host_memory(prefetch: int) -> DataPath:
    return DataPath(system_part=None, prefetch=prefetch)


def _source(system_part: SystemPart | None, input_from: Any) -> Any:
    """Resolve ``input_from`` to a node of the system, a loaded storage, or ``memory``."""
    storages = () if system_part is None else system_part.system.topology.storages()
    if input_from in (HOST_MEMORY, *storages) or (input_from is None and storages):
        return input_from
    if input_from is None:
        raise ArgumentError("input_from", None, "a storage or 'memory'; without system= there is no default")
    try:
        storage = input_from if isinstance(input_from, Storage) else load_storage(input_from)
        storage.read_limits()
    except UnknownNameError as error:
        raise UnknownNameError("storage", str(input_from), (*storages, *names("storage"))) from error
    except ArgumentError as error:
        allowed = f"a storage of known size; pass pm.load_storage({input_from!r}).of_size(GiB)"
        raise ArgumentError("input_from", input_from, allowed) from error
    return storage
