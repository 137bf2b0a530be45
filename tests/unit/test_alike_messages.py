"""What stands for very many messages, visitors or flows is as fast as all of them, one by one."""

import itertools
from dataclasses import replace

import pytest

import perfmodel as pm
from perfmodel.hardware.topology import Topology
from perfmodel.prediction.device import system_part
from perfmodel.prediction.job import server_visits
from perfmodel.prediction.words import paragraphs
from perfmodel.sync import alike_messages
from perfmodel.sync import placed as placed_
from perfmodel.sync.placed import place
from perfmodel.sync.placed_round import pairs_that_meet
from perfmodel.sync.registry import collective

NEVER = 10**9
FEW_MESSAGES = alike_messages.FEW_MESSAGES
ALGORITHMS = [
    ("parameter_server", {}),
    ("parameter_server", {"server_count": 3}),
    ("halving_doubling", {}),
    ("recursive_doubling", {}),
    ("double_binary_tree", {}),
    ("binomial_tree", {}),
    ("broadcast", {}),
    ("one_to_all", {}),
    ("host_tree", {}),
    ("in_network", {}),
    ("hierarchical", {}),
]


@pytest.mark.parametrize("machines", [10, 16])
@pytest.mark.parametrize(("name", "options"), ALGORITHMS, ids=str)
def test_classes_of_messages_take_the_time_of_all(name, options, machines, monkeypatch):
    topology = pm.load_system("dgx_a100", machines=machines).topology
    times, sent = [], []
    for many in (NEVER, 1):
        monkeypatch.setattr(alike_messages, "MANY_MESSAGES", many)
        monkeypatch.setattr(alike_messages, "MANY_OF_KIND", 0)
        placed = place(collective(name), topology, topology.devices(), **options)
        times += [[float(placed.time(size)) for size in (0.0, 1e3, 1e6, 1e9)]]
        sent += [float(placed.sent_bytes(1e6))]
    assert times[0] == pytest.approx(times[1], rel=1e-12)
    assert sent[0] == pytest.approx(sent[1], rel=1e-12)
    assert not placed.is_complete
    assert placed.rank_count == 8 * machines


@pytest.mark.parametrize(
    ("name", "system", "machines", "group_count"),
    [
        ("ring_all_reduce", "gb200_nvl72", 16, 1),
        ("machine_trees", "gb200_nvl72", 16, 1),
        ("halving_doubling", "dgx_h100", 512, 2),
    ],
)
def test_devices_that_others_stand_for_send_as_much(name, system, machines, group_count):
    """Sums on racks of 72 told of the messages of three racks, and groups of machines of those of one group."""
    topology = pm.load_system(system, machines=machines).topology
    names = topology.devices()
    size = len(names) // group_count
    first, *beside = [names[at : at + size] for at in range(0, len(names), size)]
    placed = place(collective(name), topology, first, beside=beside)
    assert placed.rounds[0].counts
    assert placed.sent_bytes(1.0) == pytest.approx(group_count * 2 * (size - 1), rel=1e-9)


def told_of(placed):
    """Everything that is read of a placed collective, and the messages that its rounds stand for."""
    numbers = [float(placed.time(size)) for size in (0.0, 1e3, 1e6, 1e9)]
    numbers += [placed.reduced_share, placed.rank_count, placed.path_latency_s, placed.network_rounds]
    for each in placed.rounds:
        numbers += [each.mean_latency_s, each.mean_crossings, each.sent_share, sum(each.counts)]
    return numbers


@pytest.mark.parametrize("name", ["one_to_all", "binomial_tree", "broadcast", "parameter_server", "host_tree"])
@pytest.mark.parametrize("count", [80, 77])
def test_rounds_of_few_messages_are_placed_once_for_each_kind(name, count, uneven, monkeypatch):
    """16,336 devices in pipelines that sent to all took 6 s, as each of their 32,640 rounds was placed by itself."""
    for topology in (pm.load_system("dgx_a100", machines=10).topology, uneven):
        ranks, told = topology.devices()[:count], []
        for few in (0, FEW_MESSAGES):
            monkeypatch.setattr(alike_messages, "FEW_MESSAGES", few)
            rounds = place(collective(name), topology, ranks).rounds
            told.append([(r.messages, r.latencies_s, r.leaves, r.rates_bytes_per_s, r.repeat, r.lines) for r in rounds])
        assert told[0] == told[1]


@pytest.mark.parametrize("name", ["host_tree", "parameter_server"])
@pytest.mark.parametrize("count", [80, 77])
def test_messages_one_by_one_meet_where_their_routes_say(name, count):
    """16,336 devices in pipelines that added up in host memory took 8 s, most of it for routes."""
    topology = pm.load_system("dgx_a100", machines=10).topology
    placed = place(collective(name), topology, topology.devices()[:count])
    for round_ in placed.rounds:
        assert round_.meetings
        assert not round_.counts, "the messages are not sorted into classes"
        meetings = tuple(pairs_that_meet(round_.messages, placed.routes(round_)))
        assert round_.lines == replace(round_, meetings=meetings).lines


GROUPS = {
    "every fourth": lambda names: [names[place:-5:4][:150] for place in range(4)],
    "tensor groups in stages": lambda names: [names[16 + place : 608 : 24] for place in range(8)],
    "halves that straddle machines": lambda names: [names[place:600:12] for place in range(12)],
    "two between other machines": lambda names: [names[0:600:8], names[1:600:8], names[602:2:-8], names[603:3:-8]],
    "two of which one changes places": lambda names: [
        [names[8 * at + at % 2] for at in range(75)],
        [names[8 * at + 2 + (at % 2 ^ (at == 70))] for at in range(75)],
    ],
}
STANDING = {"dgx_a100": 1, "one wider adapter": 4, "aws_p4d_24xlarge": 2, "gce_a2_highgpu_8g": 4, "gb200_nvl72": 1}
"""System -> how many of four groups with every fourth device stand for all: those that use an adapter together."""


def of_groups(system):
    if system != "one wider adapter":
        return pm.load_system(system, machines=9 if system == "gb200_nvl72" else 81).topology
    topology = pm.load_system("dgx_a100", machines=81).topology
    wires = topology.wires.changed(lambda wire: wire.times(2) if wire.lower.endswith("nic1") else wire)
    return Topology(topology.places.values(), wires, equal_machines=True)


@pytest.mark.parametrize("cut", list(GROUPS))
@pytest.mark.parametrize("name", ["double_binary_tree", "halving_doubling", "host_tree"])
@pytest.mark.parametrize("system", list(STANDING))
def test_groups_that_share_no_channel_stand_for_each_other(system, name, cut, monkeypatch):
    """Tensor groups of eight in pipelines on 227 racks took 3 s, as the two trees of each were placed by themselves."""
    monkeypatch.setattr(alike_messages, "MANY_MESSAGES", 1)
    monkeypatch.setattr(alike_messages, "MANY_OF_KIND", 0)
    monkeypatch.setattr(alike_messages, "MANY_ALIKE", 1)
    topology = of_groups(system)
    first, *beside = GROUPS[cut](topology.devices())
    kept, told = [], []

    def some(rounds, group_count, ends):
        kept.append(len(alike_messages.standing_for_all(rounds, group_count, ends)))
        return alike_messages.standing_for_all(rounds, group_count, ends)

    for standing in (some, lambda rounds, group_count, ends: range(group_count)):
        monkeypatch.setattr(placed_, "standing_for_all", standing)
        placed = place(collective(name), topology, first, beside=beside)
        ways = (placed, *placed.cut)
        exact = [[way.time(size) for size in (0.0, 1e3, 1e6, 1e9)] for way in ways]
        exact += [[way.different_rates, way.reduced_share, way.rank_count] for way in ways]
        means = [(way.path_latency_s, way.network_rounds, way.sent_bytes(1.0)) for way in ways]
        told.append((exact, means))
    assert told[0][0] == told[1][0]
    assert told[0][1] == [pytest.approx(numbers, rel=1e-12) for numbers in told[1][1]]
    if (cut, name) == ("every fourth", "double_binary_tree"):
        assert kept == [STANDING[system]]
    if cut.startswith("two"):
        assert kept == [len(beside) + 1]


RANKS = {
    "all": lambda names: [names],
    "the last machine not full": lambda names: [names[:-3]],
    "half of the machines": lambda names: [names[len(names) // 2 :]],
    "groups that lie across machines": lambda names: [names[place:78:6] for place in range(6)],
}


def servers_of(topology, machines):
    return tuple(topology.serving(topology.of_node(f"node{machine}", "memory")[0]) for machine in machines)


@pytest.mark.parametrize("ranks", list(RANKS))
@pytest.mark.parametrize("machines", [[0], [0, 1, 2], [0, 8, 9], range(10)], ids=str)
@pytest.mark.parametrize("below_leaves", [False, True])
def test_two_machines_of_each_role_stand_for_all(below_leaves, machines, ranks, uneven, monkeypatch):
    topology = uneven if below_leaves else pm.load_system("dgx_a100", machines=10).topology
    first, *beside = RANKS[ranks](topology.devices())
    servers = servers_of(topology, machines)
    monkeypatch.setattr(alike_messages, "MANY_MESSAGES", 1)
    monkeypatch.setattr(alike_messages, "MANY_OF_KIND", 0)
    monkeypatch.setattr(alike_messages, "MANY_OVER_LEAVES", 1)
    told = []
    for many in (NEVER, 1):
        monkeypatch.setattr(alike_messages, "MANY_TO_SERVERS", many)
        how = {"servers": servers, "server_count": len(servers), "beside": beside}
        told.append(told_of(place(collective("parameter_server"), topology, first, **how)))
    assert told[0] == pytest.approx(told[1], rel=1e-12)


def test_messages_to_thousands_of_shards_are_not_made(monkeypatch):
    """The 33 million messages of 16,384 workers to 2,048 shards took more than a minute."""
    topology = pm.load_system("dgx_h100", machines=2048).topology
    servers = servers_of(topology, range(2048))
    made = []
    sort = alike_messages._sorted
    monkeypatch.setattr(alike_messages, "_sorted", lambda round_, ends: made.append(len(round_)) or sort(round_, ends))
    how = {"servers": servers, "server_count": 2048}
    placed = place(collective("parameter_server"), topology, topology.devices(), **how)
    assert made == [16 * 2] * 2
    assert sum(placed.rounds[0].counts) == 16384 * 2048


LEAVES = """
schema_version = 1
name = "DGX A100 below leaf switches"
[[node]]
system = "dgx_a100"
count = {machines}
[fabric]
link = "infiniband_hdr"
hop_latency_us = 0.13
machines_per_leaf = 4
oversubscription = 3.0
[[source]]
fields = ["node", "fabric"]
title = "calculation"
note = "a test"
"""


def leaves(folder, machines):
    path = folder / f"leaves_{machines}.toml"
    path.write_text(LEAVES.format(machines=machines), encoding="utf-8")
    return pm.load_system(path).topology


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    return leaves(tmp_path_factory.mktemp("leaves"), 10)  # two on the last leaf, whose links are half as wide


@pytest.mark.parametrize(("name", "options"), [*ALGORITHMS, ("ring_all_reduce", {})], ids=str)
def test_classes_of_messages_take_the_time_of_all_below_leaves(name, options, uneven, monkeypatch):
    times, sent = [], []
    for many in (NEVER, 1):
        monkeypatch.setattr(alike_messages, "MANY_OVER_LEAVES", many)
        placed = place(collective(name), uneven, uneven.devices(), **options)
        times += [[float(placed.time(size)) for size in (0.0, 1e3, 1e6, 1e9)]]
        sent += [float(placed.sent_bytes(1e6))]
    assert times[0] == pytest.approx(times[1], rel=1e-12)
    assert sent[0] == pytest.approx(sent[1], rel=1e-12)


def test_routes_below_leaves_are_those_that_a_search_finds(uneven):
    names = [f"node{number}/{place}" for number in (0, 1, 4, 8, 9) for place in ("gpu0", "gpu5", "memory1")]
    for source, sink in itertools.permutations(names, 2):
        assert uneven.legs(source, sink) == uneven._legs_between(source, sink, False)


def test_placing_below_many_leaves_searches_no_more_routes_than_below_a_few(tmp_path):
    searched = []
    for machines in (16, 64):
        topology = leaves(tmp_path, machines)
        place(collective("halving_doubling"), topology, topology.devices())
        searched.append(len(topology._first_of_equal))
    # of four devices below a socket, as both may be swapped: in a machine, below a leaf, between leaves
    assert searched[0] == searched[1] == 4 * (3 + 1 + 1)


def test_switches_that_add_below_leaves_add_at_the_top(uneven):
    assert place(collective("in_network"), uneven, uneven.devices()).servers == ("fabric0",)


def test_machines_that_exchange_unequally_are_told_apart(monkeypatch):
    # with five of eight devices in the last machine, its messages meet others on the adapters than in whole machines
    topology = pm.load_system("dgx_a100", machines=10).topology
    ranks = topology.devices()[:-3]
    times = []
    for many in (NEVER, 1):
        monkeypatch.setattr(alike_messages, "MANY_MESSAGES", many)
        monkeypatch.setattr(alike_messages, "MANY_OF_KIND", 0)
        times.append(float(place(collective("halving_doubling"), topology, ranks).time(1e8)))
    assert times[0] == pytest.approx(times[1], rel=1e-12)


@pytest.mark.parametrize("shards", [slice(1), slice(3), slice(5, 9), slice(0, None, 2), slice(None)], ids=str)
@pytest.mark.parametrize("ranks", [slice(None), slice(-4), slice(32)], ids=str)
@pytest.mark.parametrize("devices", [1, 4, 12, 16, 40])
@pytest.mark.parametrize("below_leaves", [False, True])
def test_visitors_of_one_machine_stand_for_those_of_others(below_leaves, devices, ranks, shards, uneven, monkeypatch):
    topology = uneven if below_leaves else pm.load_system("dgx_h100", machines=12).topology
    names, servers = topology.devices()[ranks], topology.memories()[shards]
    visitors = [
        [(name, 5e6 * (1 + place % 3)) for place, name in enumerate(names[at : at + devices])]
        for at in range(0, len(names), devices)
    ]
    visits = []
    for many in (NEVER, 1):
        monkeypatch.setattr(server_visits, "MANY_WAYS", many)
        visit = server_visits.visit_of(topology, visitors, servers, pulls_per_push=0.5)
        visits.append([getattr(visit, name) for name in server_visits.Visit.__slots__])
    assert visits[0] == pytest.approx(visits[1], rel=1e-12)


@pytest.mark.parametrize("below_leaves", [False, True])
def test_routes_of_pipelines_that_visit_shards_are_looked_up_by_kind(below_leaves, tmp_path, monkeypatch):
    # 1,024 workers on two machines each, with 64 shards, took more than a minute; below leaves one shard in each did
    asked = []
    route = Topology.route
    monkeypatch.setattr(Topology, "route", lambda *of, **how: asked.append(of[1:]) or route(*of, **how))
    monkeypatch.setattr(server_visits, "MANY_WAYS", 1)
    counts = []
    for machines in (16, 64):
        topology = (
            leaves(tmp_path, machines) if below_leaves else pm.load_system("dgx_h100", machines=machines).topology
        )
        names, servers = topology.devices(), topology.memories()[::2]
        asked.clear()
        server_visits.visit_of(
            topology, [[(name, 1e6) for name in names[at : at + 16]] for at in range(0, len(names), 16)], servers
        )
        counts.append(len(asked))
    assert counts[0] == counts[1] <= 2 * 8 * 3


def test_flows_that_share_nothing_are_solved_apart(monkeypatch):
    capacity = {f"link{at}": 10.0 + at % 3 for at in range(9)} | {"root": 12.0}
    ways = [("link0", "root"), ("link1", "root"), ("link2",), ("link3", "link4"), ("link5", "link4"), ("link6",)]
    rates = []
    for many in (NEVER, 1):
        monkeypatch.setattr(system_part, "MANY_FLOWS", many)
        rates.append(list(system_part._rates(ways, capacity, weights=[1, 2, 1, 1, 1, 3])))
    assert rates[0] == pytest.approx(rates[1], rel=1e-12)
    assert rates[0][:2] == pytest.approx([4.0, 8.0])


def test_routes_of_equal_machines_are_those_of_the_first_with_other_names():
    topology = pm.load_system("dgx_h100", machines=12).topology
    first, other = (topology.route(f"node{node}/gpu3", f"node{node + 1}/gpu6") for node in (0, 9))
    assert [name.replace("node0", "node9").replace("node1/", "node10/") for name in first.nodes] == list(other.nodes)
    assert [channel.capacity_bytes_per_s for channel in first.channels] == [
        channel.capacity_bytes_per_s for channel in other.channels
    ]
    assert all(channel == topology.channels[channel.name] for channel in other.channels)
    assert first.latency_s == other.latency_s


@pytest.mark.parametrize("name", ["library_trees", "double_binary_tree"])
def test_groups_that_straddle_machines_make_few_classes_and_wires_of_few_machines(name, monkeypatch):
    # each machine was told apart by how far it is from the last: 1,024 groups of 16 in 228 racks of 72 took a minute
    monkeypatch.setattr(alike_messages, "MANY_MESSAGES", 1)
    monkeypatch.setattr(alike_messages, "MANY_OF_KIND", 0)
    topology = pm.load_system("dgx_h100", machines=32).topology
    devices = topology.devices()[:-4]
    groups = [devices[first::12] for first in range(12)]
    placed = place(collective(name), topology, groups[0], beside=groups[1:])
    assert max(len(round_.messages) for round_ in placed.rounds) <= 32
    assert len(topology._inside) <= 4


@pytest.mark.parametrize(
    ("name", "options"),
    [("double_binary_tree", {}), ("parameter_server", {"server_count": 16}), ("send_receive", {})],
    ids=str,
)
def test_routes_are_looked_up_for_each_kind_of_message_not_for_each_message(name, options, monkeypatch):
    # two trees of 16,384 ranks in racks of 72 took 13 s, most of it for the routes and objects of 4.6 million messages
    asked = []
    legs = Topology.legs
    monkeypatch.setattr(Topology, "legs", lambda *of, **how: asked.append(of[1:]) or legs(*of, **how))
    counts, messages = [], []
    for machines in (200, 400):
        topology = pm.load_system("dgx_h100", machines=machines).topology
        devices = topology.devices()[:-3]  # the last machine is not full
        groups = [devices[at : at + 3] for at in range(0, len(devices) - 2, 3)] if name == "send_receive" else [devices]
        asked.clear()
        placed = place(collective(name), topology, groups[0], beside=groups[1:], **options)
        placed.time(1e8)
        counts.append(len(asked))
        messages.append(sum(len(round_.messages) for each in (placed, *placed.cut) for round_ in each.rounds))
    assert counts[1] <= 1.3 * counts[0]
    assert name != "send_receive" or counts[1] < messages[1] / 4


def test_words_ask_for_machines_that_differ_only(monkeypatch):
    # without an exchange every number of workers was composed: minutes at 16,384
    composed = []
    size = paragraphs.job_size
    monkeypatch.setattr(paragraphs, "job_size", lambda *of: composed.append(of[1]) or size(*of))
    network, place_of = pm.zoo.build("alexnet"), {"batch_size": 2, "system": "dgx_h100", "machines": 24}
    pm.predict(network, workers=192, sync="none", **place_of).explain()
    assert len(set(composed)) <= 2 * 8
    p = pm.predict(network, workers=192, **place_of)
    p.explain()
    assert len(p.basis.prepared.target.system_part.system.topology._inside) <= 4


@pytest.mark.parametrize("machines", [2, 3])
def test_every_number_of_workers_is_as_fast_as_when_it_is_composed(machines):
    p = pm.predict(
        pm.zoo.build("alexnet"), batch_size=64, system="dgx_a100", machines=machines, workers=8 * machines, sync="none"
    )
    for size in paragraphs.job_sizes(p.basis):
        assert size == paragraphs.job_size(p.basis, size.worker_count)
