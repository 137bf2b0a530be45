"""The way of mini-batches to the devices of a job: read, decoded, and copied, while the devices compute."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Final

from perfmodel.cost.input_pipeline import (
    bounding_stage,
    jittered_period,
    lead_of_slowest,
    pipelined_period,
    stage_periods,
)
from perfmodel.hardware.dataset import Dataset
from perfmodel.hardware.storage import Drive, Storage
from perfmodel.numeric import exceeds, maximum
from perfmodel.prediction.arguments.table import HOST_MEMORY as HOST_MEMORY
from perfmodel.prediction.machine import Host, Machine, slowest_rate
from perfmodel.prediction.scaling import NO_FACTORS, Factors, scaled
from perfmodel.prediction.storage_reads import Reading, reading_from, reads_of_array

if TYPE_CHECKING:
    from perfmodel.hardware.channel import Route
    from perfmodel.hardware.source import SpecFile
    from perfmodel.prediction.step_time import StepTime
    from perfmodel.prediction.subject import Subject

HOST_PASSES: Final = 3
"""Times a decoded example passes through host memory: written by the decoder, read and written into a buffer. [1]"""

PAGE_CACHE_SHARE: Final = 0.9
"""Share of a host's memory that can hold a data set's pages; an estimate: the rest is the system's. [1]"""

INPUT_STAGES: Final = ("read", "decode", "host_copy")
"""Stages before the copy to the device, in their order."""

BOTTLENECK_OF_STAGE: Final = {"read": "storage", "decode": "decode", "host_copy": "decode"}
"""What bounds a step that waits for a stage."""


@dataclass(frozen=True, eq=False, kw_only=True)
class DataPath:
    """What brings mini-batches to the workers of a job, and how far ahead of them.

    Parameters
    ----------
    machine : Machine or None
        The job's part of a system; None for a device by itself. [-]
    prefetch : int
        Mini-batches that are fetched ahead; 0 fetches one when the last is done. [1]
    dataset : Dataset or None
        What is read and decoded; None for mini-batches that are in host memory. [-]
    input_from : str, Storage or None
        Where it is read from: a node of the system, a storage by itself, ``memory``, or the system's own. [-]
    decode_cores : int or None
        Cores of each host that decode; None for all of them. [1]
    input_variation : float
        Coefficient of variation of the time that the slowest stage before the copy takes for a mini-batch. [1]
    """

    machine: Machine | None
    prefetch: int
    dataset: Dataset | None = None
    input_from: str | Storage | None = HOST_MEMORY
    decode_cores: int | None = None
    input_variation: float = 0.0

    def with_workers(self, worker_count: int) -> DataPath:
        """Return the same way to another number of workers.

        Parameters
        ----------
        worker_count : int
            Workers. [1]

        Returns
        -------
        DataPath
            The way; itself without a system. [-]
        """
        return self if self.machine is None else replace(self, machine=self.machine.with_workers(worker_count))

    @property
    def worker_count(self) -> int:
        """Workers that are fed at once. [1]"""
        return 1 if self.machine is None else self.machine.worker_count

    @cached_property
    def read_routes(self) -> tuple[Route, ...]:
        """The way from storage to the memory of each worker's host; none without a storage of the system."""
        own = self.dataset is not None and (self.input_from is None or isinstance(self.input_from, str))
        if not own or self.input_from == HOST_MEMORY or self.machine is None:
            return ()
        ways = self.machine.storage_routes(self.input_from)  # type: ignore[arg-type]
        arrays = {array.name: array for array in self.machine.system.storages}
        behind = {
            name: reads_of_array(arrays[name], read_bytes=self._read_bytes) for name in {way.nodes[0] for way in ways}
        }
        return tuple(behind[way.nodes[0]].then(way) for way in ways)

    @property
    def _read_bytes(self) -> float:
        """Size of one read; infinity where examples are read from end to end. [B]"""
        assert self.dataset is not None
        return self.dataset.encoded_bytes_per_example if self.dataset.stored_in == "files" else math.inf

    @property
    def storage(self) -> str:
        """Where examples are read from, for people."""
        if isinstance(self.input_from, Storage):
            count = len(self.hosts)
            several = f"one for all {count} hosts" if self.input_from.is_remote else f"one in each of {count} hosts"
            return self.input_from.name if count == 1 else f"{self.input_from.name} ({several})"
        names = dict.fromkeys(route.nodes[0] for route in self.read_routes)
        return " and ".join(names) or HOST_MEMORY

    @cached_property
    def _separate(self) -> Reading | None:
        """What a storage given by its file delivers; None without one."""
        if self.dataset is None or not isinstance(self.input_from, Storage):
            return None
        return reading_from(self.input_from, machine=self.machine, hosts=self.hosts, read_bytes=self._read_bytes)

    @cached_property
    def read_bytes_per_s(self) -> float:
        """Rate at which all workers together read, when the one who gets least is waited for. [B/s]"""
        if self._separate is not None:
            return self._separate.bytes_per_s
        return self.worker_count * slowest_rate(self.read_routes) if self.read_routes else math.inf

    @property
    def read_limited_by_storage(self) -> bool:
        """Whether it is the storage, and no link behind it, that limits reading."""
        if self._separate is not None:
            return self._separate.is_limited_by_storage
        ways = self.read_routes
        return bool(ways) and all(way.channels[0].capacity_bytes_per_s <= way.capacity_bytes_per_s for way in ways)

    @property
    def is_cached(self) -> bool:
        """Whether the hosts' memory holds the data set, so that only the first epoch reads it."""
        known = self.machine is not None and self.dataset is not None and self.input_from != HOST_MEMORY
        return known and self.dataset.encoded_bytes < PAGE_CACHE_SHARE * self.machine.memory_bytes  # type: ignore[union-attr]

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The machines of the workers; one of which nothing is known for a device by itself."""
        return (Host(),) if self.machine is None else self.machine.hosts

    @property
    def decode_rate_per_core(self) -> float | None:
        """Examples that a core decodes; None where they are stored, or lie in memory, as they are used. [1/s]"""
        decoded = self.dataset is None or self.input_from == HOST_MEMORY
        return None if decoded else self.dataset.decode_rate_per_core  # type: ignore[union-attr]

    def decode_core_count(self, host: Host) -> int:
        """Return the cores of a host that decode. [1]"""
        return host.core_count if self.decode_cores is None else self.decode_cores

    def stages(self, batch_size: Any, *, first_epoch: bool = False, factors: Factors = NO_FACTORS) -> dict[str, Any]:
        """Return the time of each stage before the copy, for one mini-batch of every worker.

        Parameters
        ----------
        batch_size : float or ndarray
            Samples per worker and step. [samples]
        first_epoch : bool
            Whether nothing is in the page cache yet. [-]
        factors : mapping of str to float or ndarray of shape (configurations,)
            Factors on the rates of data set and drive by full name. [1]

        Returns
        -------
        dict of str to float or ndarray
            ``read``, ``decode``, ``host_copy``; zero where nothing is to be done. [s]
        """
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
        """Return the factor on the drive's rate, where it limits reading, and the rate of a core that decodes."""
        read_factor: Any = 1.0
        drive = next((spec for spec in self.sources if isinstance(spec, Drive)), None)
        if drive is not None and self.read_limited_by_storage and not self.is_cached:
            asked = {"sequential_read_gb_per_s": 1.0}
            (read_factor,) = scaled(asked, place=f"storage/{drive.stem}/", factors=factors).values()
        rate = self.decode_rate_per_core
        if rate is None or self.dataset is None or self.dataset.file is None:
            return read_factor, rate
        stated = {"decode_rate_per_core": rate}
        (rate,) = scaled(stated, place=f"datasets/{self.dataset.file.stem}/", factors=factors).values()
        return read_factor, rate

    def fed(
        self, parts: StepTime, *, batch_size: Any, first_epoch: bool = False, factors: Factors = NO_FACTORS
    ) -> StepTime:
        """Return the parts of a step whose mini-batch comes this way.

        Parameters
        ----------
        parts : StepTime
            The step with its mini-batch in host memory. [s]
        batch_size : float or ndarray
            Samples per worker and step. [samples]
        first_epoch : bool
            Whether nothing is in the page cache yet. [-]
        factors : mapping of str to float or ndarray of shape (configurations,)
            Factors on the rates of data set and drive by full name. [1]

        Returns
        -------
        StepTime
            The same with ``input_wait_s``: what the slowest stage exceeds the step by, more where its time varies, or,
            with nothing fetched ahead, the sum of all stages. [s]
        """
        if self.dataset is None:
            return parts
        parts = replace(parts, input_wait_s=0.0)
        step_s = parts.step_s
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
        else:  # without prefetching a mean of sums is the sum of means
            period = pipelined_period(stage_s={**stages, "device": step_s}, depth=self.prefetch)
        return replace(parts, input_wait_s=period - step_s)

    def is_waited_for(self, parts: StepTime, *, batch_size: Any) -> bool:
        """Tell whether its slowest stage bounds the step, not only keeps it waiting when its time is a long one."""
        if self.dataset is None or not self.prefetch:
            return False
        steady = replace(self, input_variation=0.0)
        return bool(steady.fed(parts, batch_size=batch_size).input_wait_s > 0)

    @property
    def sources(self) -> tuple[SpecFile, ...]:
        """The files whose numbers it takes: data set, storage."""
        found: list[SpecFile | None] = [None if self.dataset is None else self.dataset.file]
        if isinstance(self.input_from, Storage):
            found.append(self.input_from)
        elif self.machine is not None and self.read_routes:
            named = {route.nodes[0] for route in self.read_routes}
            found += [array.drive for array in self.machine.system.storages if array.name in named]
        return tuple({id(spec): spec for spec in found if spec is not None}.values())

    def remarks(self, subject: Subject) -> tuple[str, ...]:
        """Return a remark where an example of the data set is not what the network takes."""
        if self.dataset is None:
            return ()
        sizes = [math.prod(shape) for shape in subject.graph.input_shapes.values()]
        if self.dataset.element_count in sizes:
            return ()
        takes = " or ".join(f"{size:,}" for size in sizes)
        has = f"an example of {self.dataset.name} has {self.dataset.element_count:,} values"
        return (f"{has}; {subject.name} takes {takes}",)

    def bounding_stage(self, batch_size: Any) -> str:
        """Return the slowest stage before the copy."""
        return str(bounding_stage(stage_s=self.stages(batch_size)))
