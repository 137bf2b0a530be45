"""What a plan may hire: hardware with a price, and how many of its devices work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.hardware.catalogue import load_device, load_system
from perfmodel.hardware.gpu import Gpu
from perfmodel.hardware.measured_machine import MeasuredMachine
from perfmodel.hardware.price import InstancePrice
from perfmodel.hardware.price_catalogue import load_instance_price
from perfmodel.hardware.wired import Wired
from perfmodel.planning.asked import listed
from perfmodel.prediction.arguments.checks import positive, whole_number
from perfmodel.prediction.bill import check_processors
from perfmodel.prediction.targets import resolve_target
from perfmodel.presentation.quantities import is_number

FEED: Final = ("input_from", "decode_cores")
"""Keys of a candidate that say how its examples are read and decoded, as ``predict`` takes them."""

KEYS: Final = ("price", "device", "system", "workers", "name", *FEED)
"""Keys of a candidate."""

VCPUS_PER_CORE: Final = 2
"""Virtual processors of an instance with GPUs that share a core: its hardware threads. [1]"""

CandidateLike = str | Path | InstancePrice | Mapping[str, Any]
"""A price whose file says what hardware it is of, or a mapping with ``KEYS``."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """Hardware with a price.

    Parameters
    ----------
    name : str
        For people: the price's name, or that of a machine of one's own. [-]
    price : InstancePrice or float
        Of one instance; a number is that of one device of one's own. [USD/h]
    hardware : dict
        ``device`` or ``system``, as ``predict`` takes it. [-]
    workers : tuple of int
        Numbers of workers to try. [1]
    feed : dict
        ``input_from`` and ``decode_cores`` of its own, where they are given. [-]
    """

    name: str
    price: InstancePrice | float
    hardware: dict[str, Any]
    workers: tuple[int, ...]
    feed: dict[str, Any]

    @property
    def known_cores(self) -> int | None:
        """Cores of the host by the virtual processors of its price; None if unknown, or a system has no more. [1]."""
        if not isinstance(self.price, InstancePrice) or self.price.processor_count is None:
            return None
        cores = max(1, self.price.processor_count // VCPUS_PER_CORE)
        system = self.hardware.get("system")  # may have cores that are not the guest's, or stand for larger instances
        return cores if system is None or cores < system.core_count // system.node_count else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of it."""
        price = self.price
        if not isinstance(price, InstancePrice):
            return ()
        if price.accelerators is None and price.system is None:
            return (f"no file says which processor {self.name} has: its times are those of the one given",)
        if "system" in self.hardware or price.device_count < 2:
            return ()
        why = "its file names no system that says how they are joined; system= names one"
        return (f"one of the {price.device_count} devices of {self.name} works and all are paid: {why}",)


def read_candidates(given: Any, *, devices_per_worker: int = 1) -> list[Candidate]:
    """Read what a caller says may be hired.

    Parameters
    ----------
    given : iterable
        Prices, or mappings with ``price``, ``device`` or ``system``, ``workers``, ``name``, ``input_from`` and
        ``decode_cores``. [-]
    devices_per_worker : int
        Devices of each worker: as many workers as an instance has room for, unless told. [1]

    Returns
    -------
    list of Candidate
        At least one. [-]

    Raises
    ------
    ArgumentError
        If there is none, one has no hardware, or its price is of other devices.
    UnknownNameError, SpecError
        If a name or key is unknown, or a file is wrong, such as a price without a date.
    """
    if isinstance(given, str | Path | Mapping | InstancePrice):
        given = [given]
    if not isinstance(given, Iterable):
        raise ArgumentError("candidates", given, "a list of prices, or of mappings with a price and hardware")
    entries = list(given)
    if not entries:
        raise ArgumentError("candidates", given, "at least one: there is nothing to choose from")
    return [_candidate(entry, devices_per_worker) for entry in entries]


def _candidate(entry: CandidateLike, devices_per_worker: int) -> Candidate:
    stated = dict(entry) if isinstance(entry, Mapping) else {"price": entry}
    for key in stated:
        if key not in KEYS:
            kind = "key of a candidate"
            raise UnknownNameError(kind, str(key), KEYS)
    if stated.get("price") is None:
        raise ArgumentError("candidates", stated, "each with a price: a name, or USD an hour of one device of your own")
    price = stated["price"]
    known = positive("price", price) if is_number(price) else load_instance_price(price)
    hardware = _hardware(stated, known)
    workers = stated.get("workers")
    if workers is None:
        devices = known.device_count if isinstance(known, InstancePrice) and "system" in hardware else 1
        workers = max(1, devices // devices_per_worker)
    counts = tuple(whole_number("workers", count) for count in listed("workers", workers))
    name = stated.get("name") or (known.stem or known.name if isinstance(known, InstancePrice) else _name(stated))
    feed = {key: stated[key] for key in FEED if stated.get(key) is not None}
    return Candidate(name=str(name), price=known, hardware=hardware, workers=counts, feed=feed)


def _name(stated: Mapping[str, Any]) -> str:
    """Return what a machine of one's own is called: as its file, or as it calls itself."""
    thing = stated["device"] if stated.get("device") is not None else stated["system"]
    return Path(thing).stem if isinstance(thing, str | Path) else str(getattr(thing, "name", thing))


def _hardware(stated: Mapping[str, Any], price: InstancePrice | float) -> dict[str, Any]:
    """Return the device or system of a candidate: as given, else as its price says."""
    given = {key: stated[key] for key in ("device", "system") if stated.get(key) is not None}
    if len(given) == 2:
        raise ArgumentError("candidates", dict(stated), "one of device= and system=, not both")
    if given:
        _check_devices(given, price)
        return _loaded(given)
    if isinstance(price, InstancePrice) and price.system is not None:
        return _loaded({"system": price.system})
    if isinstance(price, InstancePrice) and price.accelerators is not None:
        return {"device": price.accelerators.device}
    allowed = "with device= or system=: no file says what hardware it is"
    raise ArgumentError("candidates", stated["price"], allowed)


def _loaded(hardware: dict[str, Any]) -> dict[str, Any]:
    """Load a system once, for all its rows."""
    system = hardware.get("system")
    return hardware if system is None or isinstance(system, Wired) else {"system": load_system(system)}


def _check_devices(hardware: Mapping[str, Any], price: InstancePrice | float) -> None:
    """Raise if a price is of other devices than the hardware has."""
    if not isinstance(price, InstancePrice):
        return
    owned = None if price.accelerators is None else Path(price.accelerators.device).stem
    if "system" in hardware:
        system = hardware["system"] if isinstance(hardware["system"], Wired) else load_system(hardware["system"])
        has = system.devices[0][1].stem if system.devices else None
        target = resolve_target(device=None, system=system, threads=None)
    else:
        device = hardware["device"]
        loaded = load_device(device) if isinstance(device, str | Path) else device
        target = resolve_target(device=loaded, system=None, threads=None)
        if isinstance(loaded, MeasuredMachine):  # it need not say which device it is by name
            check_processors(target, price)
            return
        has = loaded.stem if isinstance(loaded, Gpu) else None
    if has != owned:
        allowed = (
            f"the price of what it stands for: {price.instance} has {owned or 'no GPU'}, the hardware {has or 'none'}"
        )
        raise ArgumentError("price", price.stem or price.name, allowed)
    check_processors(target, price)
