"""Prices by the name of their file, or by the instance: then the newest of them."""

from __future__ import annotations

from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from perfmodel.errors import ArgumentError, SpecError, UnknownNameError
from perfmodel.hardware import spec_files
from perfmodel.hardware.device_catalogue import load_device

if TYPE_CHECKING:
    from perfmodel.hardware.price import InstancePrice, Price, StoragePrice

Kind = TypeVar("Kind", bound="Price")

FOLDER = "prices"


def load_price(name_or_path: str | Path, *, on: str | date | None = None) -> Price:
    """Load a price: of an instance for an hour, or of storage for a month.

    Parameters
    ----------
    name_or_path : str or Path
        A name such as ``aws_p3_2xlarge_2017``, a path to a TOML, or an instance such as ``p3.2xlarge``, which stands
        for its newest price on demand. [-]
    on : str or date
        With an instance: a day such as ``2024-12-31``, whose price is wanted instead of the newest. [-]

    Returns
    -------
    InstancePrice or StoragePrice
        With provider, region and date. [-]

    Raises
    ------
    UnknownNameError
        If there is neither a price nor an instance of that name; names the nearest.
    SpecError
        With every fault of its file: a price without a date, an unknown device.
    ArgumentError
        If ``on`` is no day, no price of the instance is as old, or it comes with the name of a price.

    Examples
    --------
    >>> load_price("aws_p3_2xlarge_2017").usd_per_hour, load_price("p5.48xlarge", on="2024-12-31").usd_per_hour
    (3.06, 98.32)
    """
    if spec_files.is_path(name_or_path) or not isinstance(name_or_path, str) or _is_name(name_or_path):
        if on is not None:
            raise ArgumentError(
                "on", on, "None with the name of a price, which has a date: a day goes with an instance"
            )
        return _load_file(spec_files.find(FOLDER, name_or_path))
    return _of_instance(name_or_path, None if on is None else _day(on))


def load_instance_price(name_or_path: str | Path | InstancePrice, *, argument: str = "price") -> InstancePrice:
    """Load a price that must be of an instance.

    Raises
    ------
    ArgumentError
        If it is the price of something else.
    """
    from perfmodel.hardware.price import InstancePrice

    return _of_class(InstancePrice, name_or_path, argument=argument, wanted="an instance; this is one of")


def load_storage_price(name_or_path: str | Path | StoragePrice, *, argument: str = "storage_price") -> StoragePrice:
    """Load a price that must be of storage.

    Raises
    ------
    ArgumentError
        If it is the price of something else.
    """
    from perfmodel.hardware.price import StoragePrice

    return _of_class(StoragePrice, name_or_path, argument=argument, wanted="storage; this is one of an")


def _of_class(price_class: type[Kind], name_or_path: str | Path | Price, *, argument: str, wanted: str) -> Kind:
    """Return a price of one kind, or refuse that of another."""
    from perfmodel.hardware.price import Price

    if not isinstance(name_or_path, str | Path | Price):
        raise ArgumentError(argument, name_or_path, f"the name or path of the price of {wanted.partition(';')[0]}")
    price = name_or_path if isinstance(name_or_path, Price) else load_price(name_or_path)
    if not isinstance(price, price_class):
        raise ArgumentError(argument, price.stem or price.name, f"the price of {wanted} {price.kind}")
    return price


def _is_name(name: str) -> bool:
    return spec_files.lookup(FOLDER, name) is not None


def _load_file(path: Path) -> Price:
    from perfmodel.hardware.price import KINDS, InstancePrice

    price = spec_files.load_by_kind(path, KINDS)
    if isinstance(price, InstancePrice):
        _resolve(price, path)
    return price


def _resolve(price: InstancePrice, path: Path) -> None:
    """Raise unless device and system of a price have spec files."""
    device = None if price.accelerators is None else price.accelerators.device
    find_system = partial(spec_files.find, "systems")
    for field, named, found in (("accelerators.device", device, load_device), ("system", price.system, find_system)):
        try:
            if named is not None:
                found(spec_files.from_folder(path.parent, named))
        except (UnknownNameError, SpecError) as error:
            raise SpecError(path, [f"{field}: value {named!r}: {error}"]) from error


def _table_of(name: str) -> dict[str, Any]:
    """Return what a file states; nothing where it cannot be read, so that others are found all the same."""
    try:
        return spec_files.read_toml(spec_files.find(FOLDER, name))
    except SpecError:
        return {}


def _of_instance(instance: str, day: date | None) -> Price:
    """Return the newest price on demand of an instance, or the one of a day."""
    names = spec_files.names(FOLDER)
    tables = {name: _table_of(name) for name in names}
    instances = {str(table["instance"]) for table in tables.values() if "instance" in table}
    if instance not in instances:
        raise UnknownNameError(kind="price or instance", name=instance, known={*names, *instances})
    named = [name for name, table in tables.items() if table.get("instance") == instance]
    prices = [load_instance_price(name) for name in named if tables[name].get("purchase", "on_demand") == "on_demand"]
    prices.sort(key=lambda price: price.valid_from)
    of_day = [price for price in prices if day is None or price.valid_from <= day]
    if not of_day:
        known = ", ".join(f"{price.stem} since {price.valid_from}" for price in prices) or ", ".join(named)
        given = instance if day is None else day.isoformat()
        raise ArgumentError("on", given, f"a day with a price of {instance} on demand: {known}")
    return of_day[-1]


def _day(given: str | date) -> date:
    try:
        return given if isinstance(given, date) else date.fromisoformat(given)
    except (TypeError, ValueError):
        raise ArgumentError("on", given, "a day such as 2024-12-31") from None
