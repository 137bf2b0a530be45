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


def test_four_adapters_make_a_large_exchange_faster_but_not_more_than_four_times():
    seconds = {}
    for name in ("gce_a2_ultragpu_8g", "aws_p4de_24xlarge"):
        topology = load_system(name, machines=4).topology
        call = place_library(load_collective_library("nccl_2_27"), "all_reduce", topology, topology.devices())
        seconds[name] = float(call.time(4e9))
    assert 2 < seconds["gce_a2_ultragpu_8g"] / seconds["aws_p4de_24xlarge"] < 4.1


def test_a_job_takes_machines_of_a_cloud():
    graph = pm.zoo.gpt(layers=2, width=256, heads=8, sequence_length=64)
    how = {"batch_size": 1, "framework": "pytorch_2", "dtype": "bf16", "optimizer": "adam", "sync": "all_reduce"}
    p = pm.predict(graph, system="aws_p5_48xlarge", machines=16, workers=128, shard_stage=3, **how)
    assert p.sync_s > 0
    assert p.interval_s[0] < p.step_s < p.interval_s[1]
