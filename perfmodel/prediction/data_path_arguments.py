"""The data path that the arguments of a prediction ask for."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from perfmodel.errors import ArgumentError, NotYetAvailableError, UnknownNameError
from perfmodel.hardware.catalogue import load_dataset, load_storage
from perfmodel.hardware.dataset import Dataset
from perfmodel.hardware.spec_files import names
from perfmodel.hardware.storage import Storage
from perfmodel.prediction.arguments import whole_number
from perfmodel.prediction.data_path import HOST_MEMORY, DataPath

if TYPE_CHECKING:
    from perfmodel.prediction.job import Job
    from perfmodel.prediction.machine import Machine
    from perfmodel.prediction.target import Target


def resolve_data_path(target: Target, job: Job) -> DataPath:
    """Return the way of mini-batches that a job asks for.

    Parameters
    ----------
    target : Target
        What the steps run on, alone or in a system. [-]
    job : Job
        What is asked. [-]

    Returns
    -------
    DataPath
        Ready to be timed. [-]

    Raises
    ------
    ArgumentError
        If nothing says from where to read, or who decodes.
    UnknownNameError
        If a name is unknown; names the nearest.
    """
    machine, dataset, input_from, decode_cores = target.machine, job.dataset, job.input_from, job.decode_cores
    if dataset is None:
        return _from_host_memory(job.prefetch) if machine is None else DataPath(machine=machine, prefetch=job.prefetch)
    if target.processor != "gpu":
        raise NotYetAvailableError(
            "dataset", dataset, f"GPUs: on {target.name} decoding would take cores from the step"
        )
    data = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
    if decode_cores is not None:
        whole_number("decode_cores", decode_cores, maximum=None if machine is None else machine.core_count)
    elif machine is None and data.decode_rate_per_core is not None and input_from != HOST_MEMORY:
        raise ArgumentError(
            "decode_cores", None, f"a whole number: {data.name} is decoded, by a host that nobody named"
        )
    path = DataPath(
        machine=machine,
        prefetch=job.prefetch,
        dataset=data,
        input_from=_source(machine, input_from),
        decode_cores=decode_cores,
        input_variation=job.input_variation,
    )
    path.read_bytes_per_s  # noqa: B018  raises where there is no such storage, before any work is lost
    return path


@lru_cache(maxsize=64)
def _from_host_memory(prefetch: int) -> DataPath:
    return DataPath(machine=None, prefetch=prefetch)


def _source(machine: Machine | None, input_from: Any) -> Any:
    """Return a node of the system, a loaded storage, or ``memory``."""
    own = () if machine is None else machine.system.topology.storages()
    if input_from in (HOST_MEMORY, *own) or (input_from is None and own):
        return input_from
    if input_from is None:
        raise ArgumentError("input_from", None, "a storage, or 'memory', as no system says where the examples lie")
    try:
        storage = input_from if isinstance(input_from, Storage) else load_storage(input_from)
        storage.read_limits()
    except UnknownNameError as error:
        kind, known = "storage", (*own, *names("storage"))
        raise UnknownNameError(kind, str(input_from), known) from error
    except ArgumentError as error:
        allowed = f"a storage whose size is known, as from pm.load_storage({input_from!r}).of_size(GiB)"
        raise ArgumentError("input_from", input_from, allowed) from error
    return storage
