"""What storage delivers: queues, stripes, disks that grow, stores behind requests, the page cache."""

import math
from dataclasses import asdict
from inspect import isabstract

import pytest

import perfmodel as pm
from perfmodel.cost.input_pipeline import read_rate
from perfmodel.errors import ArgumentError, SpecError
from perfmodel.hardware import spec_files
from perfmodel.hardware.storage import KINDS, CloudDisk, Storage
from perfmodel.units import MIB


def rate_of(name, *, read_bytes, outstanding_reads, **of_limits):
    limits = asdict(pm.load_storage(name).read_limits(**of_limits))
    return float(read_rate(read_bytes=read_bytes, outstanding_reads=outstanding_reads, **limits))


def test_a_queue_of_one_is_its_latency_and_a_deep_one_what_the_drive_can_do():
    reads = [rate_of("samsung_960_pro", read_bytes=4096, outstanding_reads=q) / 4096 for q in (1, 4, 16, 64, 1024)]
    assert reads[0] == pytest.approx(14_000, rel=0.01)  # as printed for queue depth 1
    assert reads[1] == pytest.approx(4 * reads[0])
    assert reads[-1] == 440_000
    assert reads == sorted(reads)


def test_large_reads_run_at_the_sequential_rate():
    assert rate_of("samsung_960_pro", read_bytes=64e6, outstanding_reads=2) == 3.5e9
    assert rate_of("samsung_960_pro", read_bytes=110e3, outstanding_reads=32) == 3.5e9
    # a lone reader of images of 110 kB waits 70 us before each 31.4 us
    lone = rate_of("samsung_960_pro", read_bytes=110e3, outstanding_reads=1)
    assert lone == pytest.approx(110e3 / (70e-6 + 110e3 / 3.5e9))
    # a disk of 7,200 turns a minute: 12.67 ms and 0.55 ms for each image
    assert rate_of("hdd_7200_rpm", read_bytes=110e3, outstanding_reads=1) / 110e3 == pytest.approx(75.6, abs=0.1)


def test_a_cloud_disk_grows_with_its_size_up_to_the_machine():
    disk = pm.load_storage("gce_pd_ssd")
    small = disk.of_size(20).read_limits()
    assert small.most_bytes_per_s == pytest.approx(9.6 * MIB)
    assert small.most_reads_per_s == pytest.approx(600)
    assert disk.of_size(500).read_limits().most_bytes_per_s == pytest.approx(240 * MIB)
    assert disk.of_size(50_000).read_limits().most_bytes_per_s == 240 * MIB
    assert pm.load_storage("gce_pd_standard").of_size(100).read_bandwidth_bytes_per_s == pytest.approx(12 * MIB)
    sized = disk.of_size(20)
    assert sized.read_bandwidth_bytes_per_s == pytest.approx(9.6 * MIB)
    assert "20 GiB" in sized.describe()
    assert disk.size_gib is None


@pytest.mark.parametrize("size", ["20", None, True, 0, -20, 1e-9, math.inf, math.nan, 1e7])
def test_a_size_that_no_file_could_state_is_refused(size):
    disk = pm.load_storage("gce_pd_ssd")
    with pytest.raises(ArgumentError, match=r"size_gib must.*from 1 to 1,000,000 GiB"):
        disk.of_size(size)


@pytest.mark.parametrize("count", ["20", True, 0, 0.5, math.inf, math.nan])
def test_connections_that_cannot_be_opened_are_refused(count):
    with pytest.raises(ArgumentError, match=r"connection_count must.*finite and at least 1"):
        pm.load_storage("object_store").read_limits(connection_count=count)


def test_a_disk_without_a_size_has_no_rate():
    disk = pm.load_storage("gce_pd_ssd")
    for ask in (disk.read_limits, lambda: disk.read_bandwidth_bytes_per_s):
        with pytest.raises(ArgumentError, match="the size of the disk"):
            ask()
    with pytest.raises(ArgumentError, match=r"size_gib must.*\(got -5"):
        disk.of_size(-5)


def test_an_object_store_scales_with_connections_and_waits_for_first_bytes():
    # 110 kB: 100 ms to the first byte and 1.47 ms for the rest, ten a second for each connection
    alone = rate_of("object_store", read_bytes=110e3, outstanding_reads=1, connection_count=1)
    assert alone / 110e3 == pytest.approx(1 / (0.1 + 110e3 / 0.075e9))
    assert rate_of("object_store", read_bytes=110e3, outstanding_reads=64, connection_count=64) == pytest.approx(
        64 * alone
    )
    # files of 100 MB: the first byte hardly matters
    assert rate_of("object_store", read_bytes=100e6, outstanding_reads=64, connection_count=64) == pytest.approx(
        64 * 0.075e9, rel=0.1
    )
    # 5,500 requests a second bound objects of 10 kB, however many connections
    assert rate_of("object_store", read_bytes=10e3, outstanding_reads=10_000, connection_count=10_000) == 5500 * 10e3
    assert pm.load_storage("object_store").read_bandwidth_bytes_per_s == pytest.approx(16 * 0.075e9)
    with pytest.raises(ArgumentError, match=r"connection_count must.*\(got 0"):
        pm.load_storage("object_store").read_limits(connection_count=0)


@pytest.fixture
def load_edited(tmp_path):
    def load(name, old, new):
        text = spec_files.find("storage", name).read_text(encoding="utf-8")
        assert old in text
        path = tmp_path / "mine.toml"
        path.write_text(text.replace(old, new), encoding="utf-8")
        return pm.load_storage(path)

    return load


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (
            "gce_pd_ssd",
            '"cloud_disk"',
            '"cloud_disc"',
            r"kind: value 'cloud_disc': must be one of ssd, .*nearest: cloud_disk",
        ),
        ("gce_pd_ssd", "per_gib = 0.48", "per_gib = 0", "read_mib_per_s_per_gib: value 0: must be greater than 0"),
        ("gce_pd_ssd", "latency_ms = 1", "latency_ms = -1", "latency_ms: value -1: must be greater than or equal to 0"),
        ("object_store", "connection_count = 16", "connection_count = 0", "connection_count: value 0"),
        ("object_store", "connection_gb_per_s", "sequential_read_gb_per_s", "unknown key"),
        ("samsung_980_pro", "read_gb_per_s = 7.0", "read_gb_per_s = 8.0", "must be at most interface_gb_per_s = 7.87"),
    ],
)
def test_wrong_files_say_what_is_wrong(load_edited, name, old, new, message):
    with pytest.raises(SpecError, match=message):
        load_edited(name, old, new)


def test_a_file_may_describe_one_disk(load_edited):
    disk = load_edited(
        "gce_pd_ssd",
        "latency_ms = 1",
        'latency_ms = 1\nsize_gib = 20\n\n[[source]]\nfields = ["size_gib"]\ntitle = "estimate"\nnote = "mine"\n',
    )
    assert disk.read_bandwidth_bytes_per_s == pytest.approx(9.6 * MIB)


def test_every_kind_is_shipped_and_answers():
    kinds = set()
    for name in spec_files.names("storage"):
        storage = pm.load_storage(name)
        kinds.add(storage.kind)
        limits = (storage.of_size(100) if isinstance(storage, CloudDisk) else storage).read_limits()
        assert 0 < limits.stream_bytes_per_s <= limits.most_bytes_per_s
        assert limits.latency_s == storage.latency_s
        assert storage.describe()
    assert kinds == set(KINDS)


def test_a_kind_must_say_what_limits_its_reads():
    """The base has no rate that could be asked for by mistake; a kind that forgets one cannot be made."""
    assert Storage.__abstractmethods__ == {"read_limits", "describe"}
    assert not any(isabstract(kind) for kind in KINDS.values())

    class Tape(Storage):
        def describe(self):
            return "tape"

    with pytest.raises(TypeError, match="read_limits"):
        Tape.model_construct()
