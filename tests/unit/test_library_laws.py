"""Laws of a library's calls on every shipped system: what no wiring can beat, and what more wiring must not cost."""

import itertools
from collections import Counter

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.library import load_collective_library
from perfmodel.sync.registry import place_library, protocols_of
from perfmodel.validation.reports.clusters import with_adapters

LIBRARY = load_collective_library("nccl_2_27")
SIZES = (1e3, 1e6, 1e9)
GPT = pm.zoo.gpt(layers=2, width=1024, heads=8, sequence_length=512, vocabulary=1000)
JOB = {"batch_size": 2, "framework": "pytorch_2", "optimizer": "adam", "dtype": "bf16", "sync": "all_reduce"}


def data_rate(topology, name, kinds=None):
    """What all links of a place carry in one direction, by their data sheets. [B/s]"""
    ends = [
        (wire.upper if wire.lower == name else wire.lower, wire.upward)
        for wire in topology.wires
        if name in (wire.lower, wire.upper)
    ]
    return sum(channel.raw_bytes_per_s for end, channel in ends if kinds is None or topology.places[end].kind in kinds)


def least_s(operation, topology, size_bytes):
    """Bytes that one device, and those that one machine, must at least receive or send, over the rate of its links."""
    devices = topology.devices()
    nodes = Counter(topology.places[name].node for name in devices)
    count, machines = len(devices), len(nodes)
    other_devices, other_machines = (count - 1) / count, (machines - 1) / machines
    of_device = {"all_reduce": 1, "broadcast": 1}.get(operation, other_devices)
    of_machine = {
        "all_reduce": 2 * other_machines,  # no shipped fabric adds
        "broadcast": 1 if machines > 1 else 0,
        "all_to_all": count / machines * other_machines,
    }.get(operation, other_machines)
    port = min(data_rate(topology, name) for name in devices)
    adapters = [
        sum(data_rate(topology, nic, {"fabric"}) for nic in topology.nics() if topology.places[nic].node == node)
        for node in nodes
    ]
    outside_s = of_machine * size_bytes / min(adapters) if of_machine else 0.0
    return max(of_device * size_bytes / port, outside_s)


@pytest.mark.parametrize("machines", [None, 2])
@pytest.mark.parametrize("operation", list(LIBRARY.operation))
def test_no_call_beats_the_links_and_no_byte_is_free(operation, machines):
    seen = 0
    for name in spec_files.names("systems"):
        try:
            topology = load_system(name, machines=machines).topology
        except pm.errors.ArgumentError:
            continue  # a cluster already, or machines without a usual fabric
        if not 2 <= len(topology.devices()) <= 32:
            continue
        call = place_library(LIBRARY, operation, topology, topology.devices())
        times = [float(call.time(size_bytes)) for size_bytes in SIZES]
        assert times == sorted(times), (name, times)
        for size_bytes, time_s in zip(SIZES, times, strict=True):
            assert time_s >= least_s(operation, topology, size_bytes), (name, size_bytes)
        seen += 1
    assert seen >= 8


@pytest.mark.parametrize(
    ("operation", "groups"),
    [(operation, "rails") for operation in LIBRARY.operation] + [("all_reduce", "halves"), ("all_gather", "halves")],
)
def test_simultaneous_groups_never_lose_by_adapters(operation, groups):
    whole = load_system("dgx_b200", machines=2)
    times = []
    for adapters in (1, 2, 4, 8):
        topology = (whole if adapters == 8 else with_adapters(whole, adapters)).topology
        names = topology.devices()
        ranks = [names[place::8] for place in range(8)]
        if groups == "halves":
            ranks = [[name for name in names if name[-1] in half] for half in ("0123", "4567")]
        call = place_library(LIBRARY, operation, topology, ranks[0], beside=ranks[1:])
        times.append([float(call.time(size_bytes)) for size_bytes in SIZES])
    for fewer, more in itertools.pairwise(times):
        assert all(late <= early * (1 + 1e-9) for early, late in zip(fewer, more, strict=True))


SHARED = [
    {"shard_stage": 0},
    {"shard_stage": 3},
    {"shard_stage": 3, "shard_group": 8},
    {"parallelism": "tensor", "tensor_size": 8, "sequence_parallel": True},
]


@pytest.mark.parametrize("how", SHARED, ids=["whole", "sharded", "hybrid", "tensor"])
def test_steps_never_lose_by_adapters(how):
    whole = load_system("dgx_b200", machines=2)
    workers = 16 // how.get("tensor_size", 1)
    steps = [
        pm.predict(
            GPT, system=whole if adapters == 8 else with_adapters(whole, adapters), workers=workers, **JOB, **how
        )
        for adapters in (1, 2, 4, 8)
    ]
    for fewer, more in itertools.pairwise(steps):
        assert more.step_s <= fewer.step_s * (1 + 1e-9)


def test_a_call_through_the_switch_is_taken_only_where_it_is_faster():
    topology = load_system("dgx_b200").topology
    call = place_library(LIBRARY, "all_reduce", topology, topology.devices())
    ampere = load_system("dgx_a100").topology  # its switches do not add
    alone = place_library(LIBRARY, "all_reduce", ampere, ampere.devices())
    assert "multicast_switch" not in {placed.collective.name for placed in alone.algorithms}
    (switch,) = [placed for placed in call.algorithms if placed.collective.name == "multicast_switch"]
    (nvls,) = [protocol for protocol in call.protocols if protocol.name == "nvls"]
    others = type(call)(
        algorithms=tuple(placed for placed in call.algorithms if placed is not switch), protocols=call.protocols
    )
    for size_bytes in SIZES:
        assert call.time(size_bytes) <= others.time(size_bytes)
    # NCCL's table: 25 us for the switch of a machine, with which NVLink 4 came
    hopper = load_system("dgx_h100").topology
    placed = place_library(LIBRARY, "all_reduce", hopper, hopper.devices()).algorithms[-1]
    assert placed.collective.name == "multicast_switch"
    assert nvls.launch_s + nvls.hop_factor * placed.path_latency_s == pytest.approx(25e-6, rel=0.01)


@pytest.mark.parametrize(("operation", "passes"), [("all_gather", 1), ("all_reduce", 2)])
def test_a_ring_pays_for_leaving_each_machine_once_a_pass(operation, passes):
    """127 hops of 16 machines: the last of a pass is not made, so that 15.875 of them leave a machine in the mean."""
    topology = load_system("dgx_h100", machines=16).topology
    call = place_library(LIBRARY, operation, topology, topology.devices())
    ring = call.algorithms[0]
    assert ring.network_rounds == pytest.approx(passes * 127 / 8)
    (simple,) = [protocol for protocol in protocols_of(LIBRARY) if protocol.name == "simple"]
    assert simple.network_round_s(ring) == simple.network_s == pytest.approx(10.6e-6)
    inside = place_library(LIBRARY, operation, topology, topology.devices()[:8]).algorithms[0]
    assert inside.network_rounds == 0


def test_rings_of_one_device_per_machine_wait_for_the_network_as_trees_do():
    """Its simulation agrees with the formula: the latency of a message between machines is that of both."""
    topology = load_system("dgx_h100", machines=4).topology
    call = place_library(LIBRARY, "all_gather", topology, topology.devices()[::8])
    (ring,) = call.algorithms
    assert ring.waits_for_network
    assert ring.network_rounds == 3
    for size_bytes in SIZES:
        run = call.call(size_bytes)
        latency_s = run.placed.rounds[0].repeat * run.placed.rounds[0].mean_latency_s
        name = call.choice(size_bytes)[1]
        (protocol,) = [each for each in call.protocols if each.name == name]
        bare_s = protocol.hop_factor * ring.path_latency_s
        assert latency_s == pytest.approx(bare_s + 3 * protocol.tree_network_s, rel=1e-9)


def test_all_reduces_of_four_machines_take_about_what_was_measured():
    """32 B200, NDR, NCCL 2.30, no constant fitted: stas00, ml-engineering, network/benchmarks, 2026."""
    gb_per_s = [0.33, 0.66, 1.21, 2.10, 3.61, 6.44, 10.73, 16.33, 26.12, 37.06]  # bytes over time, from 32 KiB
    gb_per_s += [73.76, 102.07, 134.45, 146.18, 159.95, 188.90, 191.62, 193.37, 194.14, 194.43]
    topology = load_system("dgx_b200", machines=4).topology
    call = place_library(LIBRARY, "all_reduce", topology, topology.devices())
    sizes = 2.0 ** np.arange(15, 35)
    errors = np.abs(np.log(call.time(sizes) / (sizes / (np.array(gb_per_s) * 1e9))))
    assert errors.mean() < 0.22  # 0.34 without what a round between machines costs
    assert errors.max() < np.log(1.7)  # 1 to 8 MiB: 0.6 to 0.7 of what was measured


@pytest.mark.parametrize(
    ("link", "algorithm"), [("infiniband_edr", "machine_trees"), ("infiniband_hdr", "ring_all_reduce")]
)
def test_two_machines_of_a100_use_trees_over_slow_adapters_and_rings_over_fast_ones(link, algorithm, tmp_path):
    path = tmp_path / "dgx_a100.toml"
    path.write_text(spec_files.find("systems", "dgx_a100").read_text().replace("infiniband_hdr", link))
    topology = load_system(path, machines=2).topology
    call = place_library(LIBRARY, "all_reduce", topology, topology.devices())
    assert call.choice(8e9)[0] == algorithm
    (trees,) = [placed for placed in call.algorithms if placed.collective.name == "machine_trees"]
    (simple,) = [protocol for protocol in call.protocols if protocol.name == "simple"]
    assert trees.paired_share == pytest.approx(1 / 8)
    # eight channels of 11.8 GB/s, or the adapters' 0.92
    carried = min(8 * 11.8e9, 0.92 / trees.seconds_per_byte)
    assert simple.links_share(trees) / trees.seconds_per_byte == pytest.approx(carried)
