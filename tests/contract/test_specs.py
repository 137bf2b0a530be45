"""Every shipped spec file loads, survives a round trip, and names a source for each of its numbers."""

import re
from datetime import date
from pathlib import Path

import pytest
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
from perfmodel.hardware.gpu import Gpu
from perfmodel.hardware.library import CollectiveLibrary, LibraryProfile
from perfmodel.hardware.link import LinkFamily
from perfmodel.hardware.part_catalogue import names_of_family
from perfmodel.hardware.price import KINDS as PRICE_KINDS
from perfmodel.hardware.source import ESTIMATE, SpecFile, numbers_in
from perfmodel.hardware.storage import KINDS as STORAGE_KINDS
from perfmodel.hardware.system import SystemFile

CLASS_BY_FOLDER = {
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


def as_json(entry: object) -> object:
    """Write dates as text, as ``to_dict`` does."""
    if isinstance(entry, dict):
        return {key: as_json(nested) for key, nested in entry.items()}
    if isinstance(entry, list):
        return [as_json(nested) for nested in entry]
    return entry.isoformat() if isinstance(entry, date) else entry


@pytest.fixture(params=FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_there_are_files_of_each_kind():
    assert {path.parent.name for path in FILES} >= {"devices", "links", "storage", "datasets", "systems", "prices"}


def test_stem_is_lower_snake_case(path):
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", path.stem)


def test_file_loads_and_survives_a_round_trip(path):
    model_class = class_of(path)
    spec = spec_files.load(path, model_class)
    stated = spec.to_dict()
    assert stated == as_json(spec_files.read_toml(path))  # nothing lost, nothing added, no number changed
    assert model_class.model_validate(stated) == spec


def unsourced(numbers: list[str], sources: list[dict[str, list[str]]]) -> list[str]:
    fields = [field for source in sources for field in source["fields"]]
    return [name for name in numbers if not any(f"{name}.".startswith(f"{field}.") for field in fields)]


def test_a_number_without_its_source_is_a_fault(path):
    """Drop the sources one by one, then all: each number that loses its only source must be reported."""
    model_class, raw = class_of(path), spec_files.read_toml(path)
    checked = {key: entry for key, entry in raw.items() if key not in model_class.WITHOUT_SOURCE}
    numbers = [name for name, _ in numbers_in(checked)]
    sources = raw["source"]
    for kept in [[], *(sources[:index] + sources[index + 1 :] for index in range(len(sources)))]:
        orphans = unsourced(numbers, kept)
        if orphans:
            with pytest.raises(ValidationError, match="no \\[\\[source\\]\\] names it") as caught:
                model_class.model_validate(raw | {"source": kept})
            assert caught.value.error_count() == len(orphans)
    assert unsourced(numbers, []) == numbers != []
    assert unsourced(numbers, sources) == []


def test_a_number_from_memory_or_estimated_says_so(path):
    """A source that was not read is a calculation, an estimate, or says that it is from memory."""
    for source in spec_files.load(path, class_of(path)).source:
        if source.read_on is None:
            told = source.title in {ESTIMATE, "calculation"} or "from memory" in (source.note or "")
            assert told, source
            assert source.note is not None


def test_what_nobody_read_or_computed_is_marked_as_not_verified(path):
    """From memory and estimates, where no day of reading is stated: ``verified = false``."""
    for source in spec_files.load(path, class_of(path)).source:
        if source.read_on is None and (source.title == ESTIMATE or "from memory" in (source.note or "")):
            assert source.verified is False, source


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
