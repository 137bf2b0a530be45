"""Network adapters: what more of them are worth to each collective of a library, and to algorithms by name."""

import itertools

import pytest

from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.library import load_collective_library
from perfmodel.sync.registry import place_library
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
