"""What a job comes to on one candidate: hours and money, with interruptions, checkpoints, storage and energy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from perfmodel.cost.money import (
    daly_interval,
    energy,
    energy_cost,
    hire_cost,
    interrupted_time,
    storage_cost,
    sustained_use_hours,
)
from perfmodel.hardware.price import HOURS_PER_MONTH, InstancePrice
from perfmodel.units import KILO, SECONDS_PER_HOUR

SPOT = "spot"
"""Instances that may be taken away."""

MOST_TRIES: Final = 1000.0
"""Tries until a restart, an interval and its checkpoint pass undisturbed, above which a job never ends. [1]"""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What is the same for every candidate.

    Parameters
    ----------
    interruptions_per_hour : float
        Of one instance on spot, the caller's own. [1/h]
    checkpoint_bytes : float
        Weights and state of the optimizer. [B]
    write_bytes_per_s, read_bytes_per_s : float
        To and from where checkpoints go. [B/s]
    restart_s : float
        From an interruption until the checkpoint is read. [s]
    storage_usd_per_gb_month : float
        Price of storage. [USD per GB and month]
    storage_bytes : float
        Reserved for each instance, or machine of one's own. [B]
    usd_per_kwh : float
        Price of electricity for machines of one's own. [USD/kWh]
    power_usage_effectiveness : float
        What the building draws over what its machines draw. [1]
    """

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
    """What a job comes to.

    Parameters
    ----------
    hours : float
        From its start to its end, interruptions among them; infinite where it never ends, as is its cost. [h]
    hire_usd, storage_usd, energy_usd : float
        Parts of the cost. [USD]
    energy_kwh : float or None
        What the devices draw at most; None where no file states their power. [kWh]
    checkpoint_interval_s : float or None
        Work between two checkpoints; None without any. [s]
    lost_share : float
        Share of the hours that checkpoints and interruptions take. [1]
    """

    hours: float
    hire_usd: float
    storage_usd: float
    energy_usd: float
    energy_kwh: float | None
    checkpoint_interval_s: float | None
    lost_share: float

    @property
    def usd(self) -> float:
        """All of the cost. [USD]"""
        return self.hire_usd + self.storage_usd + self.energy_usd


@dataclass(frozen=True, kw_only=True)
class Hired:
    """Instances and the work that they do.

    Parameters
    ----------
    work_s : float
        Time of all steps, nothing interrupted. [s]
    price : InstancePrice or float
        Of one instance, or of one device of one's own. [USD/h]
    purchase : str
        How it is bought: ``spot`` may be taken away. [-]
    instance_count : int
        Instances, or devices of one's own. [1]
    host_count : int
        Machines with a device at work: as many as instances, but a machine of one's own has several devices. [1]
    device_count : int
        Devices at work. [1]
    device_w : float or None
        Power of one at work. [W]
    """

    work_s: float
    price: InstancePrice | float
    purchase: str
    instance_count: int
    host_count: int
    device_count: int
    device_w: float | None

    def bill(self, terms: Terms, *, share: float = 1.0) -> Bill:
        """Return what the work comes to, or what a share of it would.

        Parameters
        ----------
        terms : Terms
            What is the same for every candidate. [-]
        share : float
            Part of the work, or the time of a faster step over that of the present one. [1]

        Returns
        -------
        Bill
            Hours and money. [-]
        """
        work_s = share * self.work_s
        duration_s, interval_s = self._duration(terms, work_s)
        if math.isinf(duration_s):
            return Bill(
                hours=math.inf,
                hire_usd=math.inf,
                storage_usd=0.0,
                energy_usd=0.0,
                energy_kwh=None,
                checkpoint_interval_s=interval_s,
                lost_share=1.0,
            )
        hours = duration_s / SECONDS_PER_HOUR
        energy_kwh = energy_usd = None
        if self.device_w is not None:
            energy_j = float(
                energy(
                    duration_s=duration_s,
                    busy_w=self.device_w,
                    device_count=self.device_count,
                    power_usage_effectiveness=terms.power_usage_effectiveness,
                )
            )
            energy_kwh = energy_j / (KILO * SECONDS_PER_HOUR)
            if not isinstance(self.price, InstancePrice):  # the price of an instance has its electricity in it
                energy_usd = float(energy_cost(energy_j=energy_j, usd_per_kwh=terms.usd_per_kwh))
        storage_usd = storage_cost(
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
        """Return the time of the work with what interrupts it, infinite if endless, and between checkpoints. [s]"""
        rate_per_hour = terms.interruptions_per_hour * self.instance_count
        if self.purchase != SPOT or rate_per_hour == 0:
            return work_s, None
        mean_uptime_s = SECONDS_PER_HOUR / rate_per_hour
        checkpoint_s = terms.checkpoint_bytes / terms.write_bytes_per_s
        interval_s = float(daly_interval(checkpoint_s=checkpoint_s, mean_uptime_s=mean_uptime_s))
        interval_s = min(interval_s, work_s)
        restart_s = terms.restart_s + terms.checkpoint_bytes / terms.read_bytes_per_s
        if restart_s + interval_s + checkpoint_s > mean_uptime_s * math.log(MOST_TRIES):
            return math.inf, interval_s  # e to the power of the quotient are the tries
        duration_s = interrupted_time(
            work_s=work_s,
            interval_s=interval_s,
            checkpoint_s=checkpoint_s,
            restart_s=restart_s,
            mean_uptime_s=mean_uptime_s,
        )
        return float(duration_s), interval_s

    def _hire(self, hours: float) -> float:
        """Return what the instances cost for some hours. [USD]"""
        if not isinstance(self.price, InstancePrice):
            usd_per_hour = self.price
        elif self.purchase == SPOT:
            assert self.price.spot_usd_per_hour is not None
            usd_per_hour = self.price.spot_usd_per_hour
        else:
            usd_per_hour = self.price.usd_per_hour
            if self.price.sustained_use is not None:
                hours = float(sustained_use_hours(used_hours=hours, **self.price.sustained_use.model_dump()))
        duration_s = hours * SECONDS_PER_HOUR
        return float(hire_cost(duration_s=duration_s, usd_per_hour=usd_per_hour, instance_count=self.instance_count))
