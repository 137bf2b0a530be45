"""Network adapters: what more of them are worth to each collective of a library, and to algorithms by name."""

import itertools

import pytest

import perfmodel as pm
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.library import load_collective_library
from perfmodel.sync.placed import place
from perfmodel.sync.registry import collective, place_library
from perfmodel.validation.tables.clusters import with_adapters

LIBRARY = load_collective_library("nccl_2_27")
SIZES = [10.0**power for power in range(3, 10)]


def machines_with(system, machines, adapters):
    whole = load_system(system, machines=machines)
    return (whole if adapters == 8 else with_adapters(whole, adapters)).topology


@pytest.mark.parametrize("machines", [2, 4, 12])
@pytest.mark.parametrize("system", ["dgx_a100", "dgx_h100", "mi300x_x8"])
@pytest.mark.parametrize("operation", list(LIBRARY.operation))
def test_time_never_grows_with_adapters(operation, system, machines):
    if operation == "all_to_all" and machines > 4:
        pytest.skip("a message for each pair")
    counts = (1, 2, 4, 8) if system == "dgx_a100" else (1, 2, 3, 4, 6, 8)
    systems = [machines_with(system, machines, adapters) for adapters in counts]
    calls = [place_library(LIBRARY, operation, topology, topology.devices()) for topology in systems]
    for size_bytes in SIZES:
        for fewer, more in itertools.pairwise(calls):
            assert more.time(size_bytes) <= fewer.time(size_bytes) * (1 + 1e-9)
        assert calls[-1].time(1e9) < 0.2 * calls[0].time(1e9)


@pytest.mark.parametrize("machines", [2, 3, 12])
@pytest.mark.parametrize(
    ("operation", "closed"), [("all_gather", True), ("reduce_scatter", True), ("broadcast", False)]
)
def test_a_ring_per_adapter_has_the_latency_of_one_ring(operation, closed, machines):
    """A short part passes one ring, whichever: it leaves each machine once, not as often as all rings together."""
    topology = load_system("mi300x_x8", machines=machines).topology
    (placed,) = place_library(LIBRARY, operation, topology, topology.devices()).algorithms
    ways = [topology.route("node0/gpu0", name) for name in ("node0/gpu1", "node1/gpu0")]
    hops = 8 * machines - 1
    left = hops / 8 if closed else machines - 1
    expected_s = (hops - left) * ways[0].latency_s + left * ways[1].latency_s
    assert placed.path_latency_s == pytest.approx(expected_s, rel=1e-9)


def test_trees_by_name_use_every_adapter_as_the_library_does():
    """Chains inside machines, two binary trees between them for each adapter: 25 MB at the pace of all eight."""
    job = {"batch_size": 32, "framework": "pytorch_2", "sync": "double_binary_tree", "workers": 16}
    graph = pm.zoo.vgg16()
    seconds = []
    for adapters in (1, 2, 4, 8):
        whole = load_system("dgx_h100", machines=2)
        p = pm.predict(graph, system=whole if adapters == 8 else with_adapters(whole, adapters), **job)
        assert p.agreement.name == "double_binary_tree"
        seconds.append(p.sync_s)
    assert all(1.6 < fewer / more < 2.01 for fewer, more in itertools.pairwise(seconds))
    topology = whole.topology
    (reduction,) = p.agreement.reductions
    trees = place(collective("machine_trees"), topology, topology.devices())
    assert reduction.placed.time(1e9) == pytest.approx(trees.time(1e9), rel=1e-12)
    alone = place(collective("double_binary_tree"), topology, topology.devices())
    assert trees.time(1e9) < 0.2 * alone.time(1e9)


def test_trees_of_one_machine_and_of_machines_with_one_device_stay_what_they_are():
    graph, job = pm.zoo.alexnet(), {"batch_size": 32, "sync": "double_binary_tree"}
    apart = {"machines": 2, "workers": 2, "parallelism": "pipeline", "stages": 8, "micro_batches": 4}
    for asked in ({"workers": 8}, apart):
        reduction = pm.predict(graph, system="dgx_a100", **job, **asked).agreement.reductions[0]
        assert reduction.placed.collective.name == "double_binary_tree"
