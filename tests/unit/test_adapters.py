"""Network adapters: what more of them are worth to each collective of a library, and to algorithms by name."""

import itertools

import pytest

import perfmodel as pm
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.library import load_collective_library
from perfmodel.hardware.topology import Topology
from perfmodel.sync.placed import place
from perfmodel.sync.registry import collective, place_library
from perfmodel.validation.reports.clusters import with_adapters

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
        # between two machines trees send half of a ring's bytes over the network, so that links inside soon bound them
        assert calls[-1].time(1e9) < (0.25 if machines == 2 else 0.2) * calls[0].time(1e9)


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
    job = {"batch_size": 32, "framework": "pytorch_2", "sync": "double_binary_tree", "workers": 24}
    graph = pm.zoo.vgg16()
    seconds = []
    for adapters in (1, 2, 4, 8):
        whole = load_system("dgx_h100", machines=3)
        p = pm.predict(graph, system=whole if adapters == 8 else with_adapters(whole, adapters), **job)
        assert p.agreement.name == "double_binary_tree"
        seconds.append(p.sync_s)
    assert all(1.6 < fewer / more < 2.01 for fewer, more in itertools.pairwise(seconds))
    topology = whole.topology
    (reduction,) = p.agreement.reductions
    trees = place(collective("machine_trees"), topology, topology.devices())
    assert reduction.placed.time(1e9) == pytest.approx(trees.time(1e9), rel=1e-12)
    alone = place(collective("double_binary_tree"), topology, topology.devices())
    # trees among all devices cross between the machines a few times, each time through one adapter
    assert trees.time(1e9) < 0.3 * alone.time(1e9)


def test_trees_of_one_machine_and_of_machines_with_one_device_stay_what_they_are():
    graph, job = pm.zoo.alexnet(), {"batch_size": 32, "sync": "double_binary_tree"}
    apart = {"machines": 2, "workers": 2, "parallelism": "pipeline", "stages": 8, "micro_batches": 4}
    for asked in ({"workers": 8}, apart):
        reduction = pm.predict(graph, system="dgx_a100", **job, **asked).agreement.reductions[0]
        assert reduction.placed.collective.name == "double_binary_tree"


FABRIC = """schema_version = 1
name = "Machines below switches"
[[node]]
system = "{system}"
count = {machines}
[fabric]
link = "{link}"
hop_latency_us = 0.4
reduces = {reduces}
[[source]]
fields = ["node", "fabric"]
title = "calculation"
note = "a test"
"""


def joined(tmp_path, *, reduces, machines=4, system="dgx_a100", link="infiniband_hdr"):
    path = tmp_path / f"joined_{machines}_{str(reduces).lower()}.toml"
    path.write_text(FABRIC.format(system=system, link=link, machines=machines, reduces=str(reduces).lower()))
    return path


def test_a_library_lets_switches_between_machines_add_where_the_fabric_says_so(tmp_path):
    plain, adding = (load_system(joined(tmp_path, reduces=reduces)).topology for reduces in (False, True))
    calls = [place_library(LIBRARY, "all_reduce", each, each.devices()) for each in (plain, adding)]
    assert {calls[0].choice(size_bytes)[0] for size_bytes in SIZES} <= {"ring_all_reduce", "machine_trees"}
    assert calls[1].choice(1e9) == ("fabric_switch", "collnet")
    assert all(calls[1].time(size_bytes) <= calls[0].time(size_bytes) for size_bytes in SIZES)
    # inside, 15 parts of n / 8 pass each device's links; through an adapter one, where a ring takes 2 (p - 1) / p
    inside = 12 * 25e9 * 0.85 * 256 / 272
    placed = place(collective("fabric_switch"), adding, adding.devices())
    assert placed.seconds_per_byte == pytest.approx(2 * 7 / 8 / inside, rel=0.05)
    crossing = [size for name, size in placed.channel_bytes(1.0).items() if ">fabric0" in name]
    assert crossing == pytest.approx([1 / 8] * 8)  # by the adapters of one machine, which stands for all


def test_jobs_choose_switches_that_add_by_their_system_alone(tmp_path):
    graph, job = pm.zoo.vgg16(), {"batch_size": 16, "framework": "pytorch_2", "sync": "all_reduce", "workers": 32}
    plain, adding = (pm.predict(graph, system=joined(tmp_path, reduces=reduces), **job) for reduces in (False, True))
    assert adding.sync_s < 0.9 * plain.sync_s
    shipped = pm.predict(graph, system="dgx_a100", machines=4, **job)
    assert plain.sync_s == pytest.approx(shipped.sync_s, rel=1e-9)  # no shipped fabric says that it adds


@pytest.mark.parametrize("groups", ["all", "a device of each machine"])
def test_few_machines_stand_for_all_below_switches_that_add(tmp_path, groups):
    topology = load_system(joined(tmp_path, reduces=True, machines=12)).topology
    names = topology.devices()
    first, *beside = [names] if groups == "all" else [names[place::8] for place in range(8)]
    every = Topology(topology.places.values(), topology.wires)
    few, whole = (place(collective("fabric_switch"), each, first, beside=beside) for each in (topology, every))
    for size_bytes in SIZES:
        assert few.time(size_bytes) == pytest.approx(whole.time(size_bytes), rel=1e-9)
    assert few.sent_bytes(1e6) == pytest.approx(whole.sent_bytes(1e6), rel=1e-9)


def test_devices_of_one_machine_need_no_switch_between_machines(tmp_path):
    topology = load_system(joined(tmp_path, reduces=True)).topology
    call = place_library(LIBRARY, "all_reduce", topology, topology.devices()[:8])
    assert "fabric_switch" not in {placed.collective.name for placed in call.algorithms}


@pytest.mark.parametrize("machines", [2, 4])
@pytest.mark.parametrize("system", ["dgx_a100", "dgx_h100", "dgx_b200", "mi300x_x8"])
def test_an_all_to_all_loads_every_adapter_as_rails_would(system, machines):
    """By the device's own adapter, or by NVLink to the device at the sink's (PXN): each adapter carries as much."""
    topology = load_system(system, machines=machines).topology
    devices = topology.devices()
    placed = place(collective("all_to_all"), topology, devices, at_once=True)
    adapters = topology.of_kind("nic")
    left = {name: size for name, size in placed.channel_bytes(1.0).items() if name.endswith(">fabric0")}
    assert len(left) == len(adapters) == len(devices)
    of_rails: dict[str, float] = {}
    for one, other in itertools.permutations(devices, 2):
        if topology.places[one].node != topology.places[other].node:
            beside = f"{topology.places[one].node}/{other.partition('/')[2]}"  # where the sink is on its own machine
            rail = f"{topology.own_nic(beside)}>fabric0"
            of_rails[rail] = of_rails.get(rail, 0.0) + 1 / len(devices)
    assert left == pytest.approx(of_rails)
    crossing = topology.route(devices[0], devices[-1]).channels
    (rate,) = [channel.capacity_bytes_per_s for channel in crossing if channel.name.endswith(">fabric0")]
    assert placed.seconds_per_byte == pytest.approx((machines - 1) / machines / rate, rel=1e-9)


def bus_gb_per_s(topology, ranks, operation="all_reduce"):
    passes = 2 if operation == "all_reduce" else 1
    seconds = float(place_library(LIBRARY, operation, topology, ranks).time(1e9))
    return passes * (len(ranks) - 1) / len(ranks) / seconds


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather"])
@pytest.mark.parametrize(("system", "machines"), [("dgx_h100", 2), ("dgx_h100", 8), ("dgx_a100", 3)])
def test_each_of_eight_adapters_adds_to_the_bandwidth(system, machines, operation):
    """Seven were slower than six: six rings between two devices had the part of a link that one ring has."""
    whole = load_system(system, machines=machines)
    fabrics = [with_adapters(whole, count).topology for count in range(1, 9)]
    rates = [bus_gb_per_s(each, each.devices(), operation) for each in fabrics]
    for count, (fewer, more) in enumerate(itertools.pairwise(rates), start=1):
        assert 0.9 * (count + 1) / count < more / fewer < (count + 1) / count


def test_a_device_more_on_each_machine_never_slows_a_sum():
    topology = load_system("dgx_h100", machines=3).topology
    names = topology.devices()
    by_machine = [
        bus_gb_per_s(topology, [name for at in (0, 8, 16) for name in names[at : at + n]]) for n in range(1, 9)
    ]
    assert by_machine == sorted(by_machine)
    assert by_machine[-1] > 7 * by_machine[0]
    fourteen, fifteen, sixteen = (bus_gb_per_s(topology, names[:count]) for count in (14, 15, 16))
    assert fourteen < fifteen < sixteen


def test_named_switches_that_add_carry_a_part_on_each_adapter_and_say_what_they_presume(tmp_path):
    job = {"batch_size": 16, "framework": "pytorch_2", "workers": 32, "sync": "in_network"}
    plain, adding = (
        pm.predict(pm.zoo.alexnet(), system=joined(tmp_path, reduces=reduces), **job) for reduces in (False, True)
    )
    assert plain.sync_s == pytest.approx(adding.sync_s, rel=1e-12)
    crossing = [
        size
        for name, size in plain.agreement.reduction.placed.channel_bytes(1.0).items()
        if name.startswith("fabric0>")
    ]
    assert crossing == pytest.approx([1 / 8] * 8)  # all n bytes by each adapter before; one machine stands for all
    presumed = "presumes that fabric0 adds"
    assert [any(presumed in remark for remark in p.remarks) for p in (plain, adding)] == [True, False]


def test_a_named_sum_uses_the_switch_of_a_machine_as_it_is():
    job = {"batch_size": 16, "framework": "pytorch_2", "workers": 8, "sync": "in_network"}
    adds, forwards = (pm.predict(pm.zoo.alexnet(), system=system, **job) for system in ("dgx_h100", "dgx_a100"))
    assert adds.agreement.reduction.placed.collective.name == "multicast_switch"
    assert not any("presumes" in remark for remark in adds.remarks)
    assert any("presumes that nvswitch0 adds" in remark for remark in forwards.remarks)
