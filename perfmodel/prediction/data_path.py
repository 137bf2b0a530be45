"""The way of mini-batches to the devices of a job: read, decoded, and copied, while the devices compute."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from perfmodel.cost.input_pipeline import pipelined_period, stage_periods
from perfmodel.errors import ArgumentError, NotYetAvailableError
from perfmodel.prediction.arguments import whole_number
from perfmodel.prediction.machine import Machine, slowest_rate

if TYPE_CHECKING:
    from pathlib import Path

    from perfmodel.hardware.dataset import Dataset
    from perfmodel.hardware.storage import Storage
    from perfmodel.prediction.step_time import StepTime
    from perfmodel.prediction.targets import Target

HOST_PASSES: Final = 3
"""Times a decoded example passes through host memory: written by the decoder, read and written into a buffer. [1]"""

HOST_MEMORY: Final = "memory"
"""Value of ``input_from`` for examples that are decoded in host memory already."""

INPUT_STAGES: Final = ("read", "decode", "host_copy")
"""Stages before the copy to the device, in their order."""

BOTTLENECK_OF_STAGE: Final = {"read": "storage", "decode": "decode", "host_copy": "decode"}
"""What bounds a step that waits for a stage."""


@dataclass(frozen=True, eq=False, kw_only=True)
class DataPath:
    """What brings mini-batches to the workers of a job, and how far ahead of them.

    Parameters
    ----------
    worker_count : int
        Workers that are fed at once. [1]
    prefetch : int
        Mini-batches that are fetched ahead; 0 fetches one when the last is done. [1]
    dataset : Dataset or None
        What is read and decoded; None for mini-batches that are in host memory. [-]
    storage : str
        Where it is read from, for people. [-]
    read_bytes_per_s : float
        Rate at which all workers together read, when the one who gets least is waited for. [B/s]
    is_cached : bool
        Whether free host memory holds the data set, so that only the first epoch reads it. [-]
    decode_core_count : int
        Cores that decode, of all hosts together. [1]
    host_bytes_per_s : float
        Bandwidth of the hosts' memories together; infinite where the host is not known. [B/s]
    """

    worker_count: int
    prefetch: int
    dataset: Dataset | None = None
    storage: str = HOST_MEMORY
    read_bytes_per_s: float = math.inf
    is_cached: bool = False
    decode_core_count: int = 1
    host_bytes_per_s: float = math.inf

    def stages(self, batch_size: Any, *, first_epoch: bool = False) -> dict[str, Any]:
        """Return the time of each stage before the copy, for one mini-batch of every worker.

        Parameters
        ----------
        batch_size : float or ndarray
            Samples per worker and step. [samples]
        first_epoch : bool
            Whether nothing is in the page cache yet. [-]

        Returns
        -------
        dict of str to float or ndarray
            ``read``, ``decode``, ``host_copy``; zero where nothing is to be done. [s]
        """
        data = self.dataset
        if data is None:
            return dict.fromkeys(INPUT_STAGES, 0.0)
        cached = self.is_cached and not first_epoch
        periods = stage_periods(
            batch_size=batch_size,
            worker_count=self.worker_count,
            compute_s=0.0,
            encoded_bytes=data.encoded_bytes_per_example,
            storage_bytes_per_s=math.inf if cached else self.read_bytes_per_s,
            host_bytes=HOST_PASSES * data.decoded_bytes_per_example,
            host_bytes_per_s=self.host_bytes_per_s,
            device_bytes=0.0,
            root_bytes_per_s=1.0,
            decode_rate_per_core=data.decode_rate_per_core,
            decode_core_count=self.decode_core_count,
        )
        return {stage: periods[stage] for stage in INPUT_STAGES}

    def fed(self, parts: StepTime, *, batch_size: Any, first_epoch: bool = False) -> StepTime:
        """Return the parts of a step whose mini-batch comes this way.

        Parameters
        ----------
        parts : StepTime
            The step with its mini-batch in host memory. [s]
        batch_size : float or ndarray
            Samples per worker and step. [samples]
        first_epoch : bool
            Whether nothing is in the page cache yet. [-]

        Returns
        -------
        StepTime
            The same with ``input_wait_s``: what the slowest stage exceeds the step by, or, with nothing fetched ahead,
            the sum of all stages. [s]
        """
        if self.dataset is None:
            return parts
        stages = self.stages(batch_size, first_epoch=first_epoch)
        period = pipelined_period(stage_s={**stages, "device": parts.step_s}, depth=self.prefetch)
        return replace(parts, input_wait_s=period - parts.step_s)

    def bounding_stage(self, batch_size: Any) -> str:
        """Return the slowest stage before the copy."""
        stages = self.stages(batch_size)
        return max(stages, key=lambda stage: stages[stage])


def _storage(input_from: Any) -> Storage:
    from perfmodel.hardware.catalogue import load_storage
    from perfmodel.hardware.storage import Storage

    return input_from if isinstance(input_from, Storage) else load_storage(input_from)


def _decode_cores(decode_cores: int | None, machine: Machine | None, dataset: Dataset) -> int:
    """Return the cores that decode: all of the hosts' unless a number is given."""
    if decode_cores is not None:
        known = None if machine is None else machine.core_count
        return whole_number("decode_cores", decode_cores, maximum=known)
    if machine is None and dataset.decode_rate_per_core is not None:
        raise ArgumentError("decode_cores", None, f"a whole number: {dataset.name} is decoded, by a host nobody named")
    return 1 if machine is None else machine.core_count


def resolve_data_path(
    target: Target,
    *,
    dataset: str | Path | Dataset | None,
    input_from: str | Path | Storage | None,
    prefetch: int,
    decode_cores: int | None,
) -> DataPath:
    """Return the way of mini-batches that a caller asked for.

    Parameters
    ----------
    target : Target
        What the steps run on, alone or in a system. [-]
    dataset : str, Path, Dataset or None
        What is read and decoded; None for mini-batches that are in host memory. [-]
    input_from : str, Path, Storage or None
        A storage of the system by its node's name, a storage by its file, ``memory`` for examples that are in host
        memory, or None for the system's own storage. [-]
    prefetch : int
        Mini-batches fetched ahead. [1]
    decode_cores : int or None
        Cores that decode; None for all of the system's. [1]

    Returns
    -------
    DataPath
        Ready to be timed. [-]

    Raises
    ------
    ArgumentError
        If options contradict one another, or nothing says from where to read.
    UnknownNameError
        If a name is unknown; names the nearest.
    """
    if isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 0:
        raise ArgumentError("prefetch", prefetch, "a whole number >= 0 of mini-batches")
    machine = target.machine
    worker_count = 1 if machine is None else machine.worker_count
    if dataset is not None and target.processor != "gpu":
        raise NotYetAvailableError("dataset", dataset, f"GPUs: on {target.name} decoding would take cores from the step")
    if dataset is None:
        for argument, given in (("input_from", input_from), ("decode_cores", decode_cores)):
            if given is not None and given != HOST_MEMORY:
                raise ArgumentError(argument, given, "None without a dataset, whose examples it would bring")
        return DataPath(worker_count=worker_count, prefetch=prefetch)
    from perfmodel.hardware.dataset import Dataset
    from perfmodel.hardware.catalogue import load_dataset

    data = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
    name, rate = _source(machine, input_from, worker_count=worker_count)
    host_bytes_per_s = math.inf
    is_cached = False
    if machine is not None:
        host_bytes_per_s = machine.memory_bytes_per_s
        is_cached = data.encoded_bytes < machine.memory_bytes
    return DataPath(
        worker_count=worker_count,
        prefetch=prefetch,
        dataset=data,
        storage=name,
        read_bytes_per_s=rate,
        is_cached=is_cached,
        decode_core_count=_decode_cores(decode_cores, machine, data),
        host_bytes_per_s=host_bytes_per_s,
    )


def _source(machine: Machine | None, input_from: Any, *, worker_count: int) -> tuple[str, float]:
    """Return where examples are read from, and the rate of all workers together. [B/s]"""
    if input_from == HOST_MEMORY:
        return HOST_MEMORY, math.inf
    own = machine is not None and (input_from is None or input_from in machine.system.topology.storages())
    if own:
        assert machine is not None
        routes = machine.storage_routes(input_from)
        names = dict.fromkeys(route.nodes[0] for route in routes)
        return " and ".join(names), worker_count * slowest_rate(routes)
    if input_from is None:
        raise ArgumentError("input_from", None, "a storage, or 'memory', as no system says where the examples lie")
    storage = _storage(input_from)
    return storage.name, storage.read_bandwidth_bytes_per_s
