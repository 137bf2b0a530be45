"""Hours and cost of a job on one candidate, with interruptions, checkpoints, storage and energy; cost of a year."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.cost import money
from perfmodel.errors import ArgumentError
from perfmodel.hardware.catalogue import load_dataset, load_instance_price, load_storage, load_storage_price
from perfmodel.hardware.dataset import Dataset
from perfmodel.hardware.price import HOURS_PER_MONTH, InstancePrice
from perfmodel.hardware.storage import Storage
from perfmodel.measurements.table import Run
from perfmodel.prediction.arguments.checks import from_zero_to, one_of, positive, whole_number
from perfmodel.prediction.arguments.verbs import gated
from perfmodel.prediction.bill import effectiveness_of
from perfmodel.prediction.job.subject import subject_of_graph, subject_of_run
from perfmodel.prediction.memory.footprint import optimizer_bytes
from perfmodel.presentation.quantities import counted
from perfmodel.records import ELEMENT_BYTES
from perfmodel.units import GIGA, KILO, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph
    from perfmodel.hardware.price import StoragePrice
    from perfmodel.planning.plans.candidates import Candidate

HOURS_PER_YEAR: Final = 8760
"""A year of 365 days. [h]"""

SPOT = "spot"
"""Purchase of instances that may be taken away."""

MOST_TRIES: Final = 1000.0
"""Mean attempts at a restart, an interval and its checkpoint above which a job counts as endless. [1]"""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Prices and interruptions that hold for every candidate."""

    interruptions_per_hour: float = 0.0
    checkpoint_bytes: float = 0.0
    write_bytes_per_s: float = math.inf
    read_bytes_per_s: float = math.inf
    restart_s: float = 0.0
    storage_usd_per_gb_month: float = 0.0
    storage_bytes: float = 0.0
    usd_per_kwh: float = 0.0
    power_usage_effectiveness: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Bill:
    """Hours and cost of a job on one candidate."""

    hours: float
    hire_usd: float
    storage_usd: float = 0.0
    energy_usd: float = 0.0
    energy_kwh: float | None = None
    checkpoint_interval_s: float | None
    lost_share: float

    @property
    def usd(self) -> float:
        """Total cost. [USD]"""
        return self.hire_usd + self.storage_usd + self.energy_usd


@dataclass(frozen=True, kw_only=True)
class Hired:
    """Hired instances and their work."""

    work_s: float
    price: InstancePrice | float
    purchase: str
    instance_count: int
    host_count: int
    device_count: int
    device_w: float | None

    def bill(self, terms: Terms, *, share: float = 1.0) -> Bill:
        """Return hours and cost of the work, or of a share of it."""
        work_s = share * self.work_s
        duration_s, interval_s = self._duration(terms, work_s)
        if math.isinf(duration_s):
            return Bill(hours=math.inf, hire_usd=math.inf, checkpoint_interval_s=interval_s, lost_share=1.0)
        hours = duration_s / SECONDS_PER_HOUR
        energy_kwh = energy_usd = None
        if self.device_w is not None:
            energy_j = float(
                money.energy(
                    duration_s=duration_s,
                    busy_w=self.device_w,
                    device_count=self.device_count,
                    power_usage_effectiveness=terms.power_usage_effectiveness,
                )
            )
            energy_kwh = energy_j / (KILO * SECONDS_PER_HOUR)
            if not isinstance(self.price, InstancePrice):  # the price of an instance includes electricity
                energy_usd = float(money.energy_cost(energy_j=energy_j, usd_per_kwh=terms.usd_per_kwh))
        storage_usd = money.storage_cost(
            size_bytes=self.host_count * terms.storage_bytes,
            duration_s=duration_s,
            usd_per_gb_month=terms.storage_usd_per_gb_month,
            hours_per_month=HOURS_PER_MONTH,
        )
        return Bill(
            hours=hours,
            hire_usd=self._hire(hours),
            storage_usd=float(storage_usd),
            energy_usd=energy_usd or 0.0,
            energy_kwh=energy_kwh,
            checkpoint_interval_s=interval_s,
            lost_share=1 - work_s / duration_s,
        )

    def _duration(self, terms: Terms, work_s: float) -> tuple[float, float | None]:
        """Return the time of the work with interruptions (infinite if endless), and the checkpoint interval. [s]"""
        rate_per_hour = terms.interruptions_per_hour * self.instance_count
        if self.purchase != SPOT or rate_per_hour == 0:
            return work_s, None
        mean_uptime_s = SECONDS_PER_HOUR / rate_per_hour
        checkpoint_s = terms.checkpoint_bytes / terms.write_bytes_per_s
        interval_s = float(money.daly_interval(checkpoint_s=checkpoint_s, mean_uptime_s=mean_uptime_s))
        interval_s = min(interval_s, work_s)
        restart_s = terms.restart_s + terms.checkpoint_bytes / terms.read_bytes_per_s
        if restart_s + interval_s + checkpoint_s > mean_uptime_s * math.log(MOST_TRIES):
            return math.inf, interval_s  # exp(quotient) is the number of tries
        duration_s = money.interrupted_time(
            work_s=work_s,
            interval_s=interval_s,
            checkpoint_s=checkpoint_s,
            restart_s=restart_s,
            mean_uptime_s=mean_uptime_s,
        )
        return float(duration_s), interval_s

    def _hire(self, hours: float) -> float:
        """Return the hire of the instances for some hours. [USD]"""
        if not isinstance(self.price, InstancePrice):
            usd_per_hour = self.price
        elif self.purchase == SPOT:
            assert self.price.spot_usd_per_hour is not None
            usd_per_hour = self.price.spot_usd_per_hour
        else:
            usd_per_hour = self.price.usd_per_hour
            if self.price.sustained_use is not None:
                hours = float(money.sustained_use_hours(used_hours=hours, **self.price.sustained_use.model_dump()))
        duration_s = hours * SECONDS_PER_HOUR
        return float(
            money.hire_cost(duration_s=duration_s, usd_per_hour=usd_per_hour, instance_count=self.instance_count)
        )


MOST_INTERRUPTIONS: Final = 3600.0
"""Most interruptions of an instance: one per second. [1/h]"""

MOST_RESTART_S: Final = 1e6
"""Longest restart. [s]"""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Size of the job, which can shrink in its unit, ``epochs`` or ``samples``."""

    dataset: Dataset | None
    dataset_size: int
    epochs: int
    counted_in: str

    @property
    def amount(self) -> tuple[str, int]:
        """Unit by which the job can shrink, and the number of units. [1]"""
        return self.counted_in, self.epochs if self.counted_in == "epochs" else self.dataset_size

    def of(self, count: int) -> Workload:
        """Return the job with another number of epochs or samples."""
        return replace(self, epochs=count) if self.counted_in == "epochs" else replace(self, dataset_size=count)

    def describe(self) -> str:
        """Return the job in a few words."""
        if self.counted_in == "samples":
            return counted(self.dataset_size, "sample")
        return f"{counted(self.epochs, 'epoch')} of {counted(self.dataset_size, 'sample')}"


def read_workload(*, dataset: Any, dataset_size: Any, epochs: Any, samples: Any) -> Workload:
    """Read the size of the job."""
    loaded = None
    if dataset is not None:
        loaded = dataset if isinstance(dataset, Dataset) else load_dataset(dataset)
        if dataset_size not in (None, loaded.example_count):
            raise ArgumentError(
                "dataset_size", dataset_size, f"None or {loaded.example_count}, the size of {loaded.name}"
            )
        dataset_size = loaded.example_count
    if (epochs is None) == (samples is None):
        raise ArgumentError("epochs", epochs, "a whole number, or None with samples=; exactly one of the two is set")
    if samples is not None:
        whole = whole_number("samples", samples)
        return Workload(dataset=loaded, dataset_size=whole, epochs=1, counted_in="samples")
    if dataset_size is None:
        raise ArgumentError("dataset_size", None, "the samples of an epoch; or pass dataset=")
    count, size = whole_number("epochs", epochs), whole_number("dataset_size", dataset_size)
    return Workload(dataset=loaded, dataset_size=size, epochs=count, counted_in="epochs")


def _checkpoint_bytes(graph: LayerGraph | Run, options: Mapping[str, Any]) -> float:
    """Return the size of a checkpoint: weights and optimizer state of the whole network. [B]"""
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
    """Read the interruptions of spot instances and the storage of checkpoints."""
    reasons = {
        "interruptions_per_hour": (interruptions_per_hour, "no file states how often an instance is interrupted"),
        "checkpoint_to": (checkpoint_to, "checkpoints need a storage"),
    }
    for name, (value, reason) in reasons.items():
        if is_asked and value is None:
            raise ArgumentError(name, None, f"set with purchase='spot': {reason}")
        if not is_asked and value is not None:
            raise ArgumentError(name, value, "must not be given without purchase='spot': nothing is interrupted")
    restart_s = from_zero_to(MOST_RESTART_S, "restart_s", restart_s)
    if not is_asked and restart_s:
        raise ArgumentError("restart_s", restart_s, "0 without purchase='spot': nothing is interrupted")
    if not is_asked:
        return {}
    storage = checkpoint_to if isinstance(checkpoint_to, Storage) else load_storage(checkpoint_to)
    try:
        storage.read_limits()
    except ArgumentError as error:
        allowed = f"a storage of known size, e.g. pm.load_storage({checkpoint_to!r}).of_size(GiB)"
        raise ArgumentError("checkpoint_to", checkpoint_to, allowed) from error
    return {
        "interruptions_per_hour": from_zero_to(MOST_INTERRUPTIONS, "interruptions_per_hour", interruptions_per_hour),
        "checkpoint_bytes": _checkpoint_bytes(graph, options),
        "write_bytes_per_s": storage.write_bandwidth_bytes_per_s,
        "read_bytes_per_s": storage.read_bandwidth_bytes_per_s,
        "restart_s": restart_s,
    }


def storage_terms(*, storage_price: Any, storage_gb: Any) -> dict[str, float]:
    """Read price and size of storage."""
    if (storage_price is None) != (storage_gb is None):
        missing = "storage_gb" if storage_gb is None else "storage_price"
        raise ArgumentError(missing, None, "set: the price of storage and the GB of each instance go together")
    if storage_price is None:
        return {}
    price = load_storage_price(storage_price)
    size_bytes = positive("storage_gb", storage_gb) * GIGA
    return {"storage_usd_per_gb_month": price.usd_per_gb_month, "storage_bytes": size_bytes}


def energy_terms(*, usd_per_kwh: Any, power_usage_effectiveness: Any, candidates: list[Candidate]) -> dict[str, float]:
    """Read the price of electricity for the caller's own machines."""
    effectiveness = effectiveness_of(power_usage_effectiveness)
    if usd_per_kwh is None:
        return {"power_usage_effectiveness": effectiveness}
    if all(isinstance(candidate.price, InstancePrice) for candidate in candidates):
        allowed = "None: all candidates are cloud instances, whose prices include electricity"
        raise ArgumentError("usd_per_kwh", usd_per_kwh, allowed)
    return {"power_usage_effectiveness": effectiveness, "usd_per_kwh": positive("usd_per_kwh", usd_per_kwh)}


@gated
def cost_per_year(
    price: str | Path | InstancePrice,
    *,
    instances: int = 1,
    storage_price: str | Path | StoragePrice | None = None,
    storage_gb: float | None = None,
) -> float:
    """Return the cost of instances that run all year.

    Parameters
    ----------
    price : str, Path or InstancePrice
        Price of one instance. [USD/h]
    instances : int
        Instances, a server's too. [1]
    storage_price : str, Path, StoragePrice or None
        Price of storage in each instance; None for none. [USD/(GB month)]
    storage_gb : float or None
        Storage in each instance. [GB]

    Returns
    -------
    float
        Cost, with the discount of sustained use where the price has one. [USD]

    Raises
    ------
    ArgumentError
        If a number is not allowed, or a storage price is given without a size or the other way round.

    Notes
    -----
    Valid for: whole months at one price. Ignores: traffic, taxes, changes of prices.

    Examples
    --------
    >>> disk = {"storage_price": "gce_local_ssd_2015", "storage_gb": 375}
    >>> round(cost_per_year("gce_n1_highmem_16_2016", instances=4, **disk))
    27157
    """
    count, known = whole_number("instances", instances), load_instance_price(price)
    rule = known.sustained_use
    hours = (
        HOURS_PER_YEAR if rule is None else money.sustained_use_hours(used_hours=HOURS_PER_YEAR, **rule.model_dump())
    )
    usd = money.hire_cost(duration_s=SECONDS_PER_HOUR * hours, usd_per_hour=known.usd_per_hour)
    stored = storage_terms(storage_price=storage_price, storage_gb=storage_gb)
    if stored:
        usd += money.storage_cost(
            size_bytes=stored["storage_bytes"],
            duration_s=SECONDS_PER_HOUR * HOURS_PER_YEAR,
            usd_per_gb_month=stored["storage_usd_per_gb_month"],
            hours_per_month=HOURS_PER_YEAR / 12,
        )
    return float(count * usd)
