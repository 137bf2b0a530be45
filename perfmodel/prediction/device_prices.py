"""Hourly prices of devices: from the caller, or from price files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from perfmodel.errors import ArgumentError, check_known
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import FOLDER, load_price
from perfmodel.hardware.price import InstancePrice
from perfmodel.prediction.arguments.checks import positive

if TYPE_CHECKING:
    from perfmodel.prediction.device.target import Target


@dataclass(frozen=True, eq=False)
class Prices:
    """Hourly prices of devices."""

    usd_per_hour: float | Mapping[str, float] = field(default_factory=dict)
    missing_text: str = "usd_per_hour has no price of {device}"

    def of(self, *names: str) -> float:
        """Return the price under the first of these names that has one [USD/h]; NaN if none has."""
        if isinstance(self.usd_per_hour, Mapping):
            return float(next((self.usd_per_hour[name] for name in names if name in self.usd_per_hour), math.nan))
        return float(self.usd_per_hour)

    def missing(self, *names: str) -> str:
        """Return why a device with these names has no price; empty if it has one."""
        return self.missing_text.format(device=" or ".join(names)) if math.isnan(self.of(*names)) else ""


def price_names(target: Target) -> tuple[str, ...]:
    """Return the names under which a target may have a price.

    They are its device's, and without GPUs those of its machine and of the cluster of such machines.
    """
    spec, part = target.processor_spec, target.system_part
    systems: list[Any] = [getattr(target, "system", None)]
    if part is not None and part.computes_on_hosts:
        systems = [part.machine, part.system]
    names = [spec.stem or spec.name]
    if systems[0] is not None and not systems[0].is_changed:
        names += dict.fromkeys(system.file.stem for system in systems if system.file.stem)
    return tuple(names)


def prices_of(usd_per_hour: Any) -> Prices:
    """Return the caller's prices, checked; without any, those of price files."""
    if usd_per_hour is None:
        return Prices(_listed(), "no price file lists {device}; pass usd_per_hour=")
    if not isinstance(usd_per_hour, Mapping):
        return Prices(positive("usd_per_hour", usd_per_hour))
    for name in usd_per_hour:
        if not isinstance(name, str):
            raise ArgumentError("usd_per_hour", name, "a number, or a mapping of device names to numbers")
    return Prices({name: positive(f"usd_per_hour[{name!r}]", price) for name, price in usd_per_hour.items()})


def check_names(usd_per_hour: Any, devices: Iterable[Any]) -> None:
    """Reject prices of unknown devices."""
    if not isinstance(usd_per_hour, Mapping):
        return
    known = {
        *spec_files.names("devices"),
        *spec_files.names("calibrations"),
        *spec_files.names("systems"),
        *(getattr(device, "stem", "") for device in devices),
    }
    for name in usd_per_hour:
        check_known("device in usd_per_hour", name, known)


def _listed() -> dict[str, float]:
    """Price each device by its share of an on-demand instance, and each machine without GPUs by itself.

    The newest price counts, and among several of that day the one for the fewest devices.
    """
    newest: dict[str, tuple[tuple[date, int], float]] = {}
    for name in spec_files.names(FOLDER):
        price = load_price(name)
        if not isinstance(price, InstancePrice) or price.purchase != "on_demand":
            continue
        if price.accelerators is not None:
            device, count = price.accelerators.device, price.accelerators.count
        elif price.system is not None:
            device, count = price.system, 1
        else:
            continue
        offer = (price.valid_from, -count), price.usd_per_hour / count
        newest[device] = max(newest.get(device, offer), offer)
    return {device: usd_per_hour for device, (_, usd_per_hour) in newest.items()}
