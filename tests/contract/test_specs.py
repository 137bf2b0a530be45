"""Every shipped spec file loads, survives a round trip, and names a source for each of its numbers."""

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import (
    catalogue,
    device_kinds,
    load_device,
    load_link,
    load_system,
)
from perfmodel.hardware.cluster import ClusterFile
from perfmodel.hardware.dataset import DatasetFile
from perfmodel.hardware.gpu import EveryGpu, Gpu
from perfmodel.hardware.library import CollectiveLibrary, LibraryProfile
from perfmodel.hardware.link import LinkFamily
from perfmodel.hardware.part_catalogue import names_of_family
from perfmodel.hardware.price import KINDS as PRICE_KINDS
from perfmodel.hardware.source import ESTIMATE, Source, SpecFile, numbers_in
from perfmodel.hardware.storage import KINDS as STORAGE_KINDS
from perfmodel.hardware.system import SystemFile

CLASS_BY_FOLDER = {
    "defaults": EveryGpu,
    "links": LinkFamily,
    "datasets": DatasetFile,
    "systems": SystemFile,
    "libraries": LibraryProfile,
    "collectives": CollectiveLibrary,
}
CLASS_BY_KIND = {"devices": device_kinds(), "storage": STORAGE_KINDS, "prices": PRICE_KINDS}
FILES = sorted(
    path
    for folder in (*CLASS_BY_KIND, *CLASS_BY_FOLDER)
    for path in (spec_files.shipped_folder() / folder).glob("*.toml")
)


def class_of(path: Path) -> type[SpecFile]:
    if path.parent.name in CLASS_BY_KIND:
        return CLASS_BY_KIND[path.parent.name][spec_files.read_toml(path)["kind"]]
    if path.parent.name == "systems" and "node" in spec_files.read_toml(path):
        return ClusterFile
    return CLASS_BY_FOLDER[path.parent.name]


def load(path: Path) -> SpecFile:
    return spec_files.load(path, class_of(path), heirs_of=heirs_of(path))


def heirs_of(path: Path) -> str:
    return path.parent.name if path.parent.name == "frameworks" else ""


def tables_of(path: Path) -> dict[str, Any]:
    return spec_files.tables_of(path, heirs_of=heirs_of(path))


def as_json(entry: object) -> object:
    """Write dates as text, as ``to_dict`` does."""
    if isinstance(entry, dict):
        return {key: as_json(nested) for key, nested in entry.items()}
    if isinstance(entry, list):
        return [as_json(nested) for nested in entry]
    return entry.isoformat() if isinstance(entry, date) else entry


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def test_there_are_files_of_each_kind():
    assert {path.parent.name for path in FILES} >= {"devices", "links", "storage", "datasets", "systems", "prices"}


def test_stems_are_lower_snake_case():
    assert [named(path) for path in FILES if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", path.stem)] == []


def test_files_load_and_survive_a_round_trip():
    """Nothing lost, nothing added, no number changed."""
    faults = []
    for path in FILES:
        model_class = class_of(path)
        spec = load(path)
        stated, written = spec.to_dict(), as_json(tables_of(path))
        faults += [
            f"{named(path)}: {key} is {stated.get(key)!r}, the file has {written.get(key)!r}"
            for key in sorted({*stated, *written})
            if key not in stated or key not in written or stated[key] != written[key]
        ]
        if model_class.model_validate(stated) != spec:
            faults.append(f"{named(path)}: read again, it is another one")
    assert not faults, "\n".join(faults)


def unsourced(numbers: list[str], sources: list[dict[str, list[str]]]) -> list[str]:
    fields = [field for source in sources for field in source["fields"]]
    return [name for name in numbers if not any(f"{name}.".startswith(f"{field}.") for field in fields)]


def source_faults(path: Path) -> Iterator[str]:
    """Drop the sources one by one, then all: each number that loses its only source must be reported."""
    model_class, raw = class_of(path), tables_of(path)
    checked = {key: entry for key, entry in raw.items() if key not in model_class.WITHOUT_SOURCE}
    numbers = [name for name, _ in numbers_in(checked)]
    sources = raw["source"]
    for kept in [[], *(sources[:index] + sources[index + 1 :] for index in range(len(sources)))]:
        orphans, reported = unsourced(numbers, kept), []
        try:
            model_class.model_validate(raw | {"source": kept})
        except ValidationError as error:
            reported = error.errors()
        told = [fault for fault in reported if "no [[source]] names it" in fault["msg"]]
        if orphans and not len(told) == len(reported) == len(orphans):
            yield f"{named(path)}: with {len(kept)} sources {orphans} have none, and {reported} is reported"
    if not numbers or unsourced(numbers, []) != numbers:
        yield f"{named(path)}: no numbers, or some that need no source"
    if lost := unsourced(numbers, sources):
        yield f"{named(path)}: no source names {lost}"


def test_numbers_without_their_source_are_faults():
    faults = [fault for path in FILES for fault in source_faults(path)]
    assert not faults, "\n".join(faults)


def unread_sources() -> Iterator[tuple[str, Source, bool]]:
    """File, source and whether it is from memory, of the sources that were not read."""
    for path in FILES:
        for source in load(path).source:
            if source.read_on is None:
                yield named(path), source, "from memory" in (source.note or "")


def test_numbers_from_memory_or_estimated_say_so():
    """A source that was not read is a calculation, an estimate, or says that it is from memory."""
    faults = [
        f"{where}: {source}"
        for where, source, from_memory in unread_sources()
        if source.note is None or not (from_memory or source.title in {ESTIMATE, "calculation"})
    ]
    assert not faults, "\n".join(faults)


def test_what_nobody_read_or_computed_is_marked_as_not_verified():
    """From memory and estimates, where no day of reading is stated: ``verified = false``."""
    faults = [
        f"{where}: {source}"
        for where, source, from_memory in unread_sources()
        if (from_memory or source.title == ESTIMATE) and source.verified is not False
    ]
    assert not faults, "\n".join(faults)


def test_every_gpu_names_a_link_that_exists():
    for name in spec_files.names("devices"):
        device = load_device(name)
        if isinstance(device, Gpu):
            assert load_link(device.host_link.link_name).family.generation == device.host_link.generation


LINK_NAMES = tuple(name for family in spec_files.names("links") for name in names_of_family(family))


def test_every_link_name_loads():
    for name in LINK_NAMES:
        assert load_link(name).name == name


def test_every_system_resolves_its_processor():
    for name in spec_files.names("systems"):
        assert load_system(name).core_count >= 1


def test_catalogue_lists_every_file():
    listed = catalogue()
    assert listed.names("device") == spec_files.names("devices")
    assert listed.names("link") == LINK_NAMES
    assert set(listed.to_dict()["storage"]) == set(spec_files.names("storage"))
    assert set(listed.to_dict()["price"]) == set(spec_files.names("prices"))
    assert set(listed.to_dict()["data set"]) == set(spec_files.names("datasets"))
    assert all(entry.description for entry in listed.entries)
    assert "gtx_1080" in str(listed)
