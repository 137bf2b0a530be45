"""What a plan is asked besides candidates: the job, what interrupts it, what storage and electricity cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import ArgumentError
from perfmodel.hardware.catalogue import load_dataset, load_storage
from perfmodel.hardware.dataset import Dataset
from perfmodel.hardware.price import InstancePrice
from perfmodel.hardware.price_catalogue import load_storage_price
from perfmodel.hardware.storage import Storage
from perfmodel.measurements.run import Run
from perfmodel.planning.plans.candidates import Candidate
from perfmodel.prediction.arguments.checks import from_zero_to, one_of, positive, whole_number
from perfmodel.prediction.bill import effectiveness_of
from perfmodel.prediction.memory import optimizer_bytes
from perfmodel.prediction.subject import subject_of_graph, subject_of_run
from perfmodel.records import ELEMENT_BYTES
from perfmodel.units import GIGA

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph

MOST_INTERRUPTIONS: Final = 3600.0
"""Most interruptions of an instance: one a second. [1/h]"""

MOST_RESTART_S: Final = 1e6
"""Longest restart. [s]"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """How much is to be done.

    Parameters
    ----------
    dataset : Dataset or None
        What is read for it; None for mini-batches in host memory. [-]
    dataset_size : int
        Samples of an epoch, or all of them. [samples]
    epochs : int
        Times that they are passed. [1]
    counted_in : str
        What a smaller job would do fewer of: ``epochs`` or ``samples``. [-]
    """

    dataset: Dataset | None
    dataset_size: int
    epochs: int
    counted_in: str

    @property
    def amount(self) -> tuple[str, int]:
        """What a smaller job would do fewer of, and how many they are. [1]"""
        return self.counted_in, self.epochs if self.counted_in == "epochs" else self.dataset_size

    def of(self, count: int) -> Job:
        """Return the job with another amount.

        Parameters
        ----------
        count : int
            Epochs or samples, whatever it is counted in. [1]

        Returns
        -------
        Job
            The job. [-]
        """
        return replace(self, epochs=count) if self.counted_in == "epochs" else replace(self, dataset_size=count)

    def describe(self) -> str:
        """Return it in a few words."""
        if self.counted_in == "samples":
            return f"{self.dataset_size:,} samples"
        return f"{self.epochs:,} epoch{'s' * (self.epochs > 1)} of {self.dataset_size:,} samples"


def read_job(*, dataset: Any, dataset_size: Any, epochs: Any, samples: Any) -> Job:
    """Read how much is to be done.

    Parameters
    ----------
    dataset : str, Path, Dataset or None
        What an epoch passes. [-]
    dataset_size : int or None
        Its samples, where it is not named. [samples]
    epochs : int or None
        Times that it is passed. [1]
    samples : int or None
        Samples in all, instead of epochs. [samples]

    Returns
    -------
    Job
        The job. [-]

    Raises
    ------
    ArgumentError
        If it is told twice, or not at all.
    """
    loaded = None
    if dataset is not None:
        loaded = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
        if dataset_size not in (None, loaded.example_count):
            raise ArgumentError("dataset_size", dataset_size, f"None or {loaded.example_count}, those of {loaded.name}")
        dataset_size = loaded.example_count
    if (epochs is None) == (samples is None):
        raise ArgumentError("epochs", epochs, "one of epochs= and samples=, which say how much is to be done")
    if samples is not None:
        whole = whole_number("samples", samples)
        return Job(dataset=loaded, dataset_size=whole, epochs=1, counted_in="samples")
    if dataset_size is None:
        raise ArgumentError("dataset_size", None, "the samples of an epoch with epochs=, or dataset=")
    count, size = whole_number("epochs", epochs), whole_number("dataset_size", dataset_size)
    return Job(dataset=loaded, dataset_size=size, epochs=count, counted_in="epochs")


def _checkpoint_bytes(graph: LayerGraph | Run, options: Mapping[str, Any]) -> float:
    """Return weights and optimizer state of the whole network. [B]"""
    if isinstance(graph, Run):
        subject = subject_of_run(graph)
    else:
        optimizer, phase = options.get("optimizer", "sgd"), options.get("phase", "step")
        subject = subject_of_graph(graph, optimizer=optimizer, phase=phase)
    element_bytes = ELEMENT_BYTES[one_of("dtype", options.get("dtype", "fp32"), tuple(ELEMENT_BYTES))]
    state = optimizer_bytes(subject.graph, subject.optimizer, element_bytes=element_bytes)
    return float(element_bytes * subject.graph.parameter_count) + state


def spot_terms(
    graph: LayerGraph | Run,
    options: Mapping[str, Any],
    *,
    is_asked: bool,
    interruptions_per_hour: Any,
    checkpoint_to: Any,
    restart_s: Any,
) -> dict[str, Any]:
    """Read what interrupts instances on spot, and what checkpoints cost.

    Parameters
    ----------
    graph : LayerGraph or Run
        The network, whose state is written. [-]
    options : mapping of str to object
        Arguments of ``predict``. [-]
    is_asked : bool
        Whether anything is bought on spot. [-]
    interruptions_per_hour : float or None
        Of one instance. [1/h]
    checkpoint_to : str, Path, Storage or None
        Where checkpoints go. [-]
    restart_s : float
        Until a new instance is there. [s]

    Returns
    -------
    dict
        Terms by name; none where nothing is interrupted. [-]

    Raises
    ------
    ArgumentError
        If a number is not allowed, missing, or would say nothing.
    """
    given = {"interruptions_per_hour": interruptions_per_hour, "checkpoint_to": checkpoint_to}
    for name, value in given.items():
        if is_asked and value is None:
            allowed = "given with purchase='spot': " + (
                "how often an instance is taken away, which no file states"
                if name == "interruptions_per_hour"
                else "a storage that checkpoints are written to"
            )
            raise ArgumentError(name, None, allowed)
        if not is_asked and value is not None:
            raise ArgumentError(name, value, "None without purchase='spot': nothing is interrupted")
    restart_s = from_zero_to(MOST_RESTART_S, "restart_s", restart_s)
    if not is_asked:
        if restart_s:
            raise ArgumentError("restart_s", restart_s, "0 without purchase='spot': nothing is interrupted")
        return {}
    storage = checkpoint_to if isinstance(checkpoint_to, Storage) else load_storage(checkpoint_to)
    try:
        storage.read_limits()
    except ArgumentError as error:
        allowed = f"a storage whose size is known, as from pm.load_storage({checkpoint_to!r}).of_size(GiB)"
        raise ArgumentError("checkpoint_to", checkpoint_to, allowed) from error
    return {
        "interruptions_per_hour": from_zero_to(MOST_INTERRUPTIONS, "interruptions_per_hour", interruptions_per_hour),
        "checkpoint_bytes": _checkpoint_bytes(graph, options),
        "write_bytes_per_s": storage.write_bandwidth_bytes_per_s,
        "read_bytes_per_s": storage.read_bandwidth_bytes_per_s,
        "restart_s": restart_s,
    }


def storage_terms(*, storage_price: Any, storage_gb: Any) -> dict[str, float]:
    """Read what storage costs.

    Parameters
    ----------
    storage_price : str, Path, StoragePrice or None
        Price of it. [-]
    storage_gb : float or None
        Reserved for each instance. [GB]

    Returns
    -------
    dict
        Terms by name; none without storage. [-]

    Raises
    ------
    ArgumentError
        If one is given without the other.
    """
    if (storage_price is None) != (storage_gb is None):
        missing = "storage_gb" if storage_gb is None else "storage_price"
        raise ArgumentError(missing, None, "given: a price of storage and the GB of each instance go together")
    if storage_price is None:
        return {}
    price = load_storage_price(storage_price)
    size_bytes = positive("storage_gb", storage_gb) * GIGA
    return {"storage_usd_per_gb_month": price.usd_per_gb_month, "storage_bytes": size_bytes}


def energy_terms(*, usd_per_kwh: Any, power_usage_effectiveness: Any, candidates: list[Candidate]) -> dict[str, float]:
    """Read what electricity costs machines of one's own.

    Parameters
    ----------
    usd_per_kwh : float or None
        Price of electricity. [USD/kWh]
    power_usage_effectiveness : float
        What the building draws over what its machines draw. [1]
    candidates : list of Candidate
        Those that pay for it are machines of one's own. [-]

    Returns
    -------
    dict
        Terms by name. [-]

    Raises
    ------
    ArgumentError
        If a number is not allowed, or nobody would pay.
    """
    effectiveness = effectiveness_of(power_usage_effectiveness)
    if usd_per_kwh is None:
        return {"power_usage_effectiveness": effectiveness}
    if all(isinstance(candidate.price, InstancePrice) for candidate in candidates):
        allowed = "None: all candidates are instances of a cloud, whose prices have the electricity in them"
        raise ArgumentError("usd_per_kwh", usd_per_kwh, allowed)
    return {"power_usage_effectiveness": effectiveness, "usd_per_kwh": positive("usd_per_kwh", usd_per_kwh)}
