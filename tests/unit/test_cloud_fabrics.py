"""Instances of clouds are joined by their usual fabric; what it carries is what their adapters carry together."""

import pytest

import perfmodel as pm
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.library import load_collective_library
from perfmodel.sync.registry import place_library
from perfmodel.units import GIGA

PUBLISHED_GBIT_PER_S = {
    "aws_p3dn_24xlarge": 100,
    "aws_p4d_24xlarge": 400,
    "aws_p4de_24xlarge": 400,
    "aws_p5_48xlarge": 3200,
    "gce_a2_highgpu_8g": 100,
    "gce_a2_ultragpu_8g": 100,
    "gce_a3_highgpu_8g": 800,
}


@pytest.mark.parametrize("name", PUBLISHED_GBIT_PER_S)
def test_machines_of_a_cloud_join_at_the_published_rate(name):
    cluster = load_system(name, machines=16)
    rate = sum(link.bandwidth_bytes_per_s for nic, link in cluster.networks if nic.startswith("node0/"))
    assert 8 * rate / GIGA == pytest.approx(PUBLISHED_GBIT_PER_S[name], rel=1e-6)
    assert len(cluster.devices) == 16 * 8
    file = load_system(name).file
    assert file.source_of("fabric.hop_latency_us").kind == "estimate"
    assert file.source_of("fabric.link").url


def all_reduce_s(name, machines, size_bytes):
    topology = load_system(name, machines=machines).topology
    call = place_library(load_collective_library("nccl_2_27"), "all_reduce", topology, topology.devices())
    return float(call.time(size_bytes))


def test_four_adapters_that_reach_devices_beat_one_behind_the_host_more_than_four_times():
    assert 4 < all_reduce_s("gce_a2_ultragpu_8g", 4, 4e9) / all_reduce_s("aws_p4de_24xlarge", 4, 4e9) < 8


@pytest.mark.parametrize(("name", "lanes"), [("aws_p4d_24xlarge", 1), ("aws_p4de_24xlarge", 1), ("aws_p5_48xlarge", 4)])
def test_elastic_fabric_adapters_reach_device_memory_with_all_their_lanes(name, lanes):
    topology = load_system(name, machines=2).topology
    devices = topology.devices()
    route = topology.route(devices[0], devices[8])
    assert not route.is_staged
    assert route.capacity_bytes_per_s == pytest.approx(0.91 * lanes * 12.5 * GIGA)


@pytest.mark.parametrize(("size_bytes", "published_s"), [(2**31, 9.0745e-3), (2**34, 66.132e-3)])
def test_two_p5_sum_as_fast_as_their_vendor_published(size_bytes, published_s):
    # aws-samples/awsome-distributed-training, micro-benchmarks/nccl-tests; no constant comes from these two rows
    assert all_reduce_s("aws_p5_48xlarge", 2, size_bytes) == pytest.approx(published_s, rel=0.1)


def test_a_job_takes_machines_of_a_cloud():
    graph = pm.zoo.gpt(layers=2, width=256, heads=8, sequence_length=64)
    how = {"batch_size": 1, "framework": "pytorch_2", "dtype": "bf16", "optimizer": "adam", "sync": "all_reduce"}
    p = pm.predict(graph, system="aws_p5_48xlarge", machines=16, workers=128, shard_stage=3, **how)
    assert p.sync_s > 0
    assert p.interval_s[0] < p.step_s < p.interval_s[1]


@pytest.mark.parametrize(
    ("size_bytes", "published_us"),
    [(2**10, 165.0), (2**20, 309.4), (2**24, 1191.8), (2**26, 2644.6), (2**28, 7201.7), (2**31, 51406)],
)
def test_two_p4de_sum_in_about_the_time_that_their_vendor_published(size_bytes, published_us):
    # the same page; the rate of an adapter comes from the last row: trees that cross the network once each way
    assert 1e6 * all_reduce_s("aws_p4de_24xlarge", 2, size_bytes) == pytest.approx(published_us, rel=0.2)


def test_calls_inside_a_machine_keep_protocols_that_its_fabric_does_not_allow():
    topology = load_system("aws_p4de_24xlarge", machines=2).topology
    devices, library = topology.devices(), load_collective_library("nccl_2_27")
    names = [
        {protocol.name for protocol in place_library(library, "all_gather", topology, ranks).protocols}
        for ranks in (devices[:8], devices)
    ]
    assert names[0] - names[1] == {"ll", "ll128"}
