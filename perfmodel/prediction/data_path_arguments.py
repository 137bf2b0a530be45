"""The data path that the arguments of a prediction ask for."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import ArgumentError, NotYetAvailableError, UnknownNameError
from perfmodel.hardware.catalogue import load_dataset, load_storage
from perfmodel.hardware.dataset import Dataset
from perfmodel.hardware.spec_files import names
from perfmodel.hardware.storage import Storage
from perfmodel.prediction.arguments import from_zero_to, whole_number
from perfmodel.prediction.data_path import HOST_MEMORY, DataPath

if TYPE_CHECKING:
    from pathlib import Path

    from perfmodel.prediction.machine import Machine
    from perfmodel.prediction.target import Target

MOST_VARIATION: Final = 2.0
"""Largest coefficient of variation for which the closed form has been held against played steps. [1]"""


def resolve_data_path(
    target: Target,
    *,
    dataset: str | Path | Dataset | None,
    input_from: str | Path | Storage | None,
    prefetch: int,
    decode_cores: int | None,
    input_variation: float = 0.0,
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
        Cores of each host that decode; None for all of them. [1]
    input_variation : float
        Coefficient of variation of the time that preparing a mini-batch takes. [1]

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
    input_variation = from_zero_to(MOST_VARIATION, "input_variation", input_variation)
    machine = target.machine
    if dataset is None:
        for argument, given in (("input_from", input_from), ("decode_cores", decode_cores)):
            if given not in (None, HOST_MEMORY):
                raise ArgumentError(argument, given, "None without a dataset, whose examples it would bring")
        if input_variation:
            allowed = "0 without a dataset, whose mini-batches it would delay"
            raise ArgumentError("input_variation", input_variation, allowed)
        return _from_host_memory(prefetch) if machine is None else DataPath(machine=machine, prefetch=prefetch)
    if target.processor != "gpu":
        raise NotYetAvailableError(
            "dataset", dataset, f"GPUs: on {target.name} decoding would take cores from the step"
        )
    data = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
    if decode_cores is not None:
        decode_cores = whole_number(
            "decode_cores", decode_cores, maximum=None if machine is None else machine.core_count
        )
    elif machine is None and data.decode_rate_per_core is not None and input_from != HOST_MEMORY:
        raise ArgumentError(
            "decode_cores", None, f"a whole number: {data.name} is decoded, by a host that nobody named"
        )
    path = DataPath(
        machine=machine,
        prefetch=prefetch,
        dataset=data,
        input_from=_source(machine, input_from),
        decode_cores=decode_cores,
        input_variation=input_variation,
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
