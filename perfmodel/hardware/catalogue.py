"""The catalogue: load a device, link, storage, data set, system, library or price by name or path, or list all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from perfmodel.calls import in_words
from perfmodel.errors import ArgumentError, PerfmodelError, SpecError, UnknownNameError, check_known
from perfmodel.hardware import spec_files
from perfmodel.hardware.part_catalogue import device_kinds as device_kinds
from perfmodel.hardware.part_catalogue import load_device as load_device
from perfmodel.hardware.part_catalogue import load_link as load_link
from perfmodel.hardware.part_catalogue import names_of_family
from perfmodel.hardware.spec_files import kept_while_unchanged
from perfmodel.presentation.results import Result
from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    from perfmodel.hardware.cluster import Cluster
    from perfmodel.hardware.dataset import Dataset
    from perfmodel.hardware.gpu import EveryGpu
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.hardware.price import InstancePrice, Price, StoragePrice
    from perfmodel.hardware.storage import Storage
    from perfmodel.hardware.system import System

Kind = TypeVar("Kind", bound="Price")
FOLDER = "prices"


@in_words
def load_price(name_or_path: str | Path, *, on: str | date | None = None) -> Price:
    """Load a price: of an instance for an hour, or of storage for a month.

    Parameters
    ----------
    name_or_path : str or Path
        A name such as ``aws_p3_2xlarge_2017``, a path to a TOML, or an instance such as ``p3.2xlarge``, which stands
        for its newest on-demand price. [-]
    on : str or date
        With an instance: a date such as ``2024-12-31``; its price is loaded instead of the newest. [-]

    Returns
    -------
    InstancePrice or StoragePrice
        With provider, region and date. [-]

    Raises
    ------
    UnknownNameError
        If no price or instance has that name; names the nearest.
    SpecError
        With every fault of its file: a price without a date, an unknown device.
    ArgumentError
        If ``on`` is not a date, is before the instance's first price, or is given with the name of a price.

    Examples
    --------
    >>> load_price("aws_p3_2xlarge_2017").usd_per_hour, load_price("p5.48xlarge", on="2024-12-31").usd_per_hour
    (3.06, 98.32)
    """
    if spec_files.is_path(name_or_path) or not isinstance(name_or_path, str) or _is_name(name_or_path):
        if on is not None:
            allowed = "must not be given with the name of a price, which has a date; to choose a date, pass an instance"
            raise ArgumentError("on", on, allowed)
        return _load_file(spec_files.find(FOLDER, name_or_path))
    return _of_instance(name_or_path, None if on is None else _day(on))


def load_instance_price(name_or_path: str | Path | InstancePrice) -> InstancePrice:
    """Load the price of an instance; refuse any other price."""
    from perfmodel.hardware.price import InstancePrice

    return _of_class(InstancePrice, name_or_path, argument="price", wanted="an instance; this is one of")


def load_storage_price(name_or_path: str | Path | StoragePrice) -> StoragePrice:
    """Load the price of storage; refuse any other price."""
    from perfmodel.hardware.price import StoragePrice

    return _of_class(StoragePrice, name_or_path, argument="storage_price", wanted="storage; this is one of an")


def _of_class(price_class: type[Kind], name_or_path: str | Path | Price, *, argument: str, wanted: str) -> Kind:
    """Return a price of one kind; reject a price of another kind."""
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
    for field, named, loader in (("accelerators.device", device, load_device), ("system", price.system, find_system)):
        try:
            if named is not None:
                loader(spec_files.from_folder(path.parent, named))
        except (UnknownNameError, SpecError) as error:
            raise SpecError(path, [f"{field}: value {named!r}: {error}"]) from error


def _of_instance(instance: str, day: date | None) -> Price:
    """Return an instance's newest on-demand price, or its on-demand price on a date."""
    names = spec_files.names(FOLDER)
    tables = {name: spec_files.readable_tables(spec_files.find(FOLDER, name)) for name in names}
    instances = {str(table["instance"]) for table in tables.values() if "instance" in table}
    if instance not in instances:
        raise UnknownNameError(kind="price or instance", name=instance, known={*names, *instances})
    named = [name for name, table in tables.items() if table.get("instance") == instance]
    prices = [load_instance_price(name) for name in named if tables[name].get("purchase", "on_demand") == "on_demand"]
    prices.sort(key=lambda price: price.valid_from)
    of_day = [price for price in prices if day is None or price.valid_from <= day]
    if not of_day:
        known = ", ".join(f"{price.stem} since {price.valid_from}" for price in prices) or ", ".join(named)
        stated = instance if day is None else day.isoformat()
        raise ArgumentError("on", stated, f"a date with an on-demand price of {instance}: {known}")
    return of_day[-1]


def _day(day: str | date) -> date:
    try:
        return day if isinstance(day, date) else date.fromisoformat(day)
    except (TypeError, ValueError):
        raise ArgumentError("on", day, "a date such as 2024-12-31") from None


@in_words
def load_storage(name_or_path: str | Path) -> Storage:
    """Load a storage: a drive, a disk of a cloud, an object store.

    Parameters
    ----------
    name_or_path : str or Path
        A name such as ``samsung_960_pro``, or a path to a TOML. [-]

    Returns
    -------
    Storage
        An object of the class registered for the file's kind. [-]

    Raises
    ------
    UnknownNameError
        If there is no storage of that name.
    SpecError
        With every fault of its file.

    Examples
    --------
    >>> load_storage("samsung_960_pro").read_bandwidth_bytes_per_s
    3500000000.0
    """
    from perfmodel.hardware.storage import KINDS

    return spec_files.load_by_kind(spec_files.find("storage", name_or_path), KINDS)


@in_words
def load_dataset(name_or_path: str | Path) -> Dataset:
    """Load a data set.

    Parameters
    ----------
    name_or_path : str or Path
        A name such as ``imagenet_jpeg``, or a path to a TOML. [-]

    Returns
    -------
    Dataset
        Examples, their sizes as stored and as used, and what decoding them costs. [-]

    Raises
    ------
    UnknownNameError
        If there is no data set of that name.
    SpecError
        With every fault of its file.

    Examples
    --------
    >>> load_dataset("imagenet_jpeg").example_count
    1281167
    """
    from perfmodel.hardware.dataset import Dataset, DatasetFile

    return Dataset.of_file(spec_files.load(spec_files.find("datasets", name_or_path), DatasetFile))


@in_words
@kept_while_unchanged(spec_files.folders_asked_for)
def load_system(name_or_path: str | Path, *, machines: int | None = None) -> System | Cluster:
    """Load a system and everything that its file names: CPU, devices, links, drives, or the machines of a cluster.

    Parameters
    ----------
    name_or_path : str or Path
        A name such as ``desktop_i7_3820``, or a path to a TOML. [-]
    machines : int or None
        Machines of this kind, on the fabric that its file calls usual; None for what the file states. [1]

    Returns
    -------
    System or Cluster
        The machine; if its file lists nodes, all of them and the fabric between them. [-]

    Raises
    ------
    UnknownNameError
        If there is no system of that name.
    SpecError
        With every fault of its file, including names that do not resolve.
    ArgumentError
        If ``machines`` is not a whole number of at least 1, or its file has neither a fabric nor machines of one kind.

    Examples
    --------
    >>> load_system("server_2x_xeon_e5_2630_v3").core_count
    16
    >>> load_system("dgx_h100", machines=4).describe()
    '4 machines on infiniband_ndr: 32 x NVIDIA H100 SXM5 80 GB'
    """
    from perfmodel.hardware.cluster import ClusterFile, cluster_of, several

    path = spec_files.find("systems", name_or_path)
    is_cluster = "node" in spec_files.read_toml(path)
    stated = cluster_of(spec_files.load(path, ClusterFile), path=path) if is_cluster else load_machine(path)
    return stated if machines is None else several(stated, machines)


@kept_while_unchanged(spec_files.folders_asked_for)
def load_machine(name_or_path: str | Path) -> System:
    """Load a system that is one machine."""
    from perfmodel.hardware.cpu import Cpu
    from perfmodel.hardware.system import System, SystemFile
    from perfmodel.hardware.wiring import wiring_of

    path = spec_files.find("systems", name_or_path)
    if "node" in spec_files.read_toml(path):
        raise SpecError(path, ["node: a cluster: must be a single machine, with [sockets]"])
    file = spec_files.load(path, SystemFile)
    try:
        processor = load_device(spec_files.from_folder(path.parent, file.sockets.device))
    except (UnknownNameError, SpecError) as error:
        raise SpecError(path, [f"sockets.device: value {file.sockets.device!r}: {error}"]) from error
    if not isinstance(processor, Cpu):
        raise SpecError(path, [f"sockets.device: value {file.sockets.device!r}: must be a CPU with a data sheet"])
    return System(file=file, processor=processor, wiring=wiring_of(file, processor=processor, path=path))


@kept_while_unchanged(spec_files.folders_asked_for)
def load_default(name_or_path: str | Path) -> EveryGpu:
    """Load what holds for every device of a kind that states nothing else."""
    from perfmodel.hardware.gpu import EveryGpu

    return spec_files.load(spec_files.find("defaults", name_or_path), EveryGpu)


@in_words
@kept_while_unchanged(spec_files.folders_asked_for)
def load_library(name_or_path: str | Path) -> LibraryProfile:
    """Load a library profile.

    Parameters
    ----------
    name_or_path : str or Path
        A name, or a path to a TOML. [-]

    Returns
    -------
    LibraryProfile
        The profile. [-]

    Raises
    ------
    UnknownNameError
        If there is no library of that name.
    SpecError
        With every fault of its file.
    """
    from perfmodel.hardware.library import LibraryProfile

    return spec_files.load(spec_files.find("libraries", name_or_path), LibraryProfile)


@kept_while_unchanged(spec_files.folders_asked_for, names=(tuple,))
def load_libraries(names: tuple[str, ...]) -> tuple[LibraryProfile, ...]:
    """Load several library profiles; check once for all of them whether their files changed."""
    return tuple(load_library(name) for name in names)


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """One thing in the catalogue."""

    kind: str
    name: str
    description: str
    origin: str = "shipped"
    is_faulty: bool = False


@dataclass(frozen=True)
class Catalogue(Result):
    """All that can be loaded by name; prints as a table.

    Parameters
    ----------
    entries : tuple of CatalogueEntry
        Entries, kind by kind. [-]
    """

    entries: tuple[CatalogueEntry, ...]

    @property
    def rows(self) -> Table[CatalogueEntry]:
        """The entries."""
        return Table(self.entries, row_type=CatalogueEntry)

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the names of one kind.

        Raises
        ------
        UnknownNameError
            If there is no such kind.
        """
        check_known("kind", kind, spec_files.NOUN_BY_FOLDER.values())
        return tuple(entry.name for entry in self.entries if entry.kind == kind)

    def to_dict(self) -> dict[str, dict[str, str]]:
        """Return the catalogue as kind -> name -> description."""
        tables: dict[str, dict[str, str]] = {}
        for entry in self.entries:
            tables.setdefault(entry.kind, {})[entry.name] = entry.description
        return tables

    def __str__(self) -> str:
        return self.rows.to_text(columns=["kind", "name", "description"])


LOADER_BY_FOLDER: Final[dict[str, Callable[[Any], Any]]] = {
    "devices": load_device,
    "links": load_link,
    "storage": load_storage,
    "datasets": load_dataset,
    "systems": load_system,
    "libraries": load_library,
    "prices": load_price,
}
"""Kinds whose objects describe themselves; for others the catalogue prints the file's ``name``."""


def _described_by_file(kind_folder: str, name: str) -> str:
    return str(spec_files.read_toml(spec_files.find(kind_folder, name)).get("name", ""))


def _entries_of(kind_folder: str, stem: str) -> list[CatalogueEntry]:
    """List the entries of one file: one object, or a link at each width; for a faulty file, its faults."""
    kind, origin = spec_files.NOUN_BY_FOLDER[kind_folder], spec_files.origin_of(kind_folder, stem)
    loader = LOADER_BY_FOLDER.get(kind_folder)
    try:
        names = names_of_family(stem) if kind_folder == "links" else [stem]
        described = [
            (name, loader(name).describe() if loader else _described_by_file(kind_folder, name)) for name in names
        ]
    except PerfmodelError as error:
        return [CatalogueEntry(kind=kind, name=stem, description=f"FAULTY: {error}", origin=origin, is_faulty=True)]
    return [CatalogueEntry(kind=kind, name=name, description=text, origin=origin) for name, text in described]


@in_words
def catalogue() -> Catalogue:
    """List everything that can be loaded by name, and the files that have faults.

    Returns
    -------
    Catalogue
        Entries with one-line descriptions; prints as a table. [-]

    Raises
    ------
    SpecError
        If a folder of ``PERFMODEL_SPECS`` is wrong. A faulty file is an entry that lists its faults.

    Examples
    --------
    >>> "gtx_1080" in catalogue().names("device")
    True
    """
    folders = spec_files.NOUN_BY_FOLDER
    return Catalogue(
        tuple(entry for folder in folders for stem in spec_files.names(folder) for entry in _entries_of(folder, stem))
    )
