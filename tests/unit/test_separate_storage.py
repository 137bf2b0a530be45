"""Reading from a storage given by its file: one in each host, or one behind the network for all of them."""

from dataclasses import asdict, replace

import pytest

import perfmodel as pm
from perfmodel.cost.input_pipeline import read_rate
from perfmodel.hardware.spec_files import names
from perfmodel.hardware.storage import KINDS
from perfmodel.prediction.device.system_part import SystemPart

RAW_BYTES = 224 * 224 * 3
RAW_FILES = replace(pm.load_dataset("imagenet_raw"), stored_in="files")
JOB = {"batch_size": 32, "sync": "none", "dataset": RAW_FILES}


@pytest.fixture(scope="module")
def resnet():
    return pm.zoo.resnet50()


def predict(graph, system, workers, storage, **others):
    return pm.predict(graph, system=system, workers=workers, input_from=storage, **JOB, **others)


def loaded(name):
    storage = pm.load_storage(name)
    return storage.of_size(100) if storage.kind == "cloud_disk" else storage


def store(**changes):
    """A store that bounds nothing but by what a test changes."""
    unbound = {"latency_ms": 0, "connection_gb_per_s": 100.0, "connection_count": 1000, "most_request_kiops": 10_000}
    return pm.load_storage("object_store").model_copy(update=unbound | changes)


def period(prediction):
    """Steady time of a step, as played."""
    ends = {}
    for span in prediction.play(12).spans:
        if span.kind == "compute":
            ends.setdefault(span.resource, []).append(span.end_s)
    return max((end[-1] - end[3]) / (len(end) - 4) for end in ends.values())


def test_which_kinds_are_behind_the_network():
    assert {kind for kind, storage in KINDS.items() if storage.is_remote} == {"cloud_disk", "object_store"}


@pytest.mark.parametrize("storage", names("storage"))
@pytest.mark.parametrize(
    ("system", "workers"), [("survey_fig5", 4), ("survey_fig6_node", 2), ("p2_16xlarge", 16), ("dgx_1_p100", 8)]
)
def test_one_machine_gets_what_the_storage_gives(resnet, system, workers, storage):
    """No shipped storage gives more than the adapters of a shipped machine take."""
    spec = loaded(storage)
    path = predict(resnet, system, workers, spec).data_path
    alone = read_rate(read_bytes=RAW_BYTES, outstanding_reads=64, **asdict(spec.read_limits()))
    assert path.read_bytes_per_s == pytest.approx(float(alone), rel=1e-12)
    assert path.read_limited_by_storage == (spec.kind != "object_store")  # of which more connections give more
    assert path.storage == spec.name


@pytest.mark.parametrize(("workers", "readers"), [(1, 1), (4, 4), (5, 4), (8, 4), (16, 4)])
def test_each_host_reads_from_a_drive_of_its_own(resnet, workers, readers):
    """So a step waits for the host with most workers, however many hosts there are."""
    p = predict(resnet, "survey_fig6", workers, "hdd_7200_rpm")
    drive = pm.load_storage("hdd_7200_rpm").read_limits()
    of_drive = float(read_rate(read_bytes=RAW_BYTES, outstanding_reads=64, **asdict(drive)))
    assert p.bottleneck == "storage"
    assert p.step_s == pytest.approx(readers * 32 * RAW_BYTES / of_drive, rel=1e-9)
    assert period(p) == pytest.approx(p.step_s, rel=1e-9)
    assert ("one in each of" in p.explain()) == (workers > 4)


def test_drives_in_hosts_scale_where_a_store_for_all_does_not(resnet):
    local, shared = (
        [predict(resnet, "survey_fig6", workers, storage).samples_per_s for workers in (4, 16)]
        for storage in ("hdd_7200_rpm", pm.load_storage("gce_pd_ssd").of_size(100))
    )
    assert local[1] == pytest.approx(4 * local[0])
    assert shared[1] == pytest.approx(shared[0])


def test_loaders_of_hosts_add_connections_to_a_store_up_to_its_requests(resnet):
    # 16 connections of a host's loader, each 100 ms and 150,528 B at 75 MB/s: 157 a second
    of_loader = 16 / (0.1 + RAW_BYTES / 0.075e9)
    shipped = pm.load_storage("object_store")
    busy = shipped.model_copy(update={"most_request_kiops": 0.3})
    few = store(connection_gb_per_s=0.01, connection_count=2)  # of each loader 20 MB/s
    for storage, of_one, of_four in (
        (shipped, of_loader, 4 * of_loader),
        (busy, of_loader, 300),
        (few, 0.02e9 / RAW_BYTES, 4 * 0.02e9 / RAW_BYTES),
    ):
        for workers, reads_per_s in ((4, of_one), (16, of_four)):
            p = predict(resnet, "survey_fig6", workers, storage)
            assert p.data_path.stages(32)["read"] == pytest.approx(workers * 32 / reads_per_s)
            assert p.step_s == pytest.approx(max(p.step_s - p.input_wait_s, workers * 32 / reads_per_s))


@pytest.mark.parametrize(
    ("system", "workers", "link"),
    [
        ("survey_fig6", 4, "pcie_3_x8"),  # InfiniBand EDR is wider than the slot of its adapter
        ("survey_fig6", 5, "pcie_3_x8"),
        ("survey_fig6", 16, "pcie_3_x8"),
        ("p2_16xlarge", 4, "ethernet_25_gbit"),  # narrower than its slot, and than the link between the sockets
        ("p2_16xlarge", 16, "ethernet_25_gbit"),
    ],
)
def test_adapters_of_the_hosts_limit_what_comes_over_the_network(resnet, system, workers, link):
    path = predict(resnet, system, workers, store()).data_path
    of_host = pm.load_link(link).effective_bandwidth_bytes_per_s
    busiest = max(host.worker_count for host in path.hosts)
    assert path.read_bytes_per_s == pytest.approx(workers / busiest * of_host, rel=1e-9)
    assert not path.read_limited_by_storage
    assert path.stages(32, first_epoch=True)["read"] == pytest.approx(busiest * 32 * RAW_BYTES / of_host)
    assert "such storages" not in predict(resnet, system, workers, store()).explain()


def test_a_host_reads_over_all_its_adapters(resnet):
    """Four of a DGX-1: two at each socket, and what is for the other socket crosses the link between them."""
    path = predict(resnet, "dgx_1_p100", 8, store()).data_path
    one = min(pm.load_link(link).effective_bandwidth_bytes_per_s for link in ("pcie_3_x16", "infiniband_edr"))
    assert path.read_bytes_per_s <= 4 * one * (1 + 1e-9)
    assert path.read_bytes_per_s > 3 * one
    ways = SystemPart(system=pm.load_system("dgx_1_p100"), worker_count=8).network_routes
    assert [len(of_worker) for of_worker in ways] == [4] * 8
    assert all(way.nodes[0] == "network" and way.nodes[-1] == "memory1" for way in ways[7])


def test_where_no_adapter_is_stated_nothing_but_the_store_limits(resnet):
    path = predict(resnet, "survey_fig5", 4, store(connection_count=1)).data_path
    assert path.read_bytes_per_s == pytest.approx(100e9)
    assert path.read_limited_by_storage
