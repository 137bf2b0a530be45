"""A collective that is placed once for groups that lie alike is what it is when each is placed."""

import itertools

import pytest

import perfmodel as pm
from perfmodel.hardware.library import load_collective_library
from perfmodel.hardware.topology import Topology
from perfmodel.planning.sweeps.micro_batches import works_of
from perfmodel.prediction.job.job import Job
from perfmodel.prediction.job.prepare import prepare_job
from perfmodel.sync import placed_alike, ring_order
from perfmodel.sync.placed import place
from perfmodel.sync.placed_alike import placed_once
from perfmodel.sync.registry import collective, place_library

SYSTEMS = ["dgx_h100", "dgx_a100", "mi300x_x8", "gb200_nvl72"]
NAMES = ["ring_all_reduce", "machine_trees", "halving_doubling", "double_binary_tree", "all_gather", "broadcast"]
CUTS = {
    "blocks": lambda names, count: [names[at * len(names) // count :][: len(names) // count] for at in range(count)],
    "every so many": lambda names, count: [names[at::count][: len(names) // count] for at in range(count)],
}


def told_of(placed):
    """Times, and what each message goes over, with all numbers of chunks."""
    yield [float(placed.time(size)) for size in (0.0, 1e3, 1e6, 1e9)]
    yield placed.order
    for each in (placed, *placed.cut):
        for round_ in each.rounds:
            yield [route.channel_names for route in each.routes(round_)]


@pytest.mark.parametrize("cut", list(CUTS))
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("system", SYSTEMS)
def test_groups_that_lie_alike_share_a_placement_over_their_own_links(system, name, cut):
    topology = pm.load_system(system, machines=3).topology
    algorithm = collective(name)
    for count in (6, 8):
        groups = CUTS[cut](topology.devices(), count)
        for group in groups:
            if not algorithm.runs_on(topology, group):
                continue
            once, anew = placed_once(algorithm, topology, group), place(algorithm, topology, group)
            for found, wanted in zip(told_of(once), told_of(anew), strict=True):
                if isinstance(wanted[0], float):
                    assert found == pytest.approx(wanted, rel=1e-12)
                else:
                    assert found == wanted


def test_stages_of_a_pipeline_are_placed_once(monkeypatch):
    placed = []
    monkeypatch.setattr(placed_alike, "place", lambda *given, **how: placed.append(given[2]) or place(*given, **how))
    system = pm.load_system("dgx_h100", machines=32)
    library, names = load_collective_library("nccl_2_27"), system.topology.devices()
    stages = [names[start : start + 64] for start in range(0, 256, 64)]
    calls = [place_library(library, "all_reduce", system.topology, stage) for stage in stages]
    assert len(placed) == len(calls[0].algorithms)
    assert {float(call.time(1e8)) for call in calls} == {float(calls[0].time(1e8))}
    third = calls[2].algorithms[0]
    machines = {route.nodes[0].partition("/")[0] for route in third.routes(third.rounds[0])}
    assert machines <= {f"node{number}" for number in range(16, 24)}


def test_groups_that_lie_otherwise_do_not_share():
    topology = pm.load_system("dgx_a100", machines=2).topology
    names = topology.devices()
    likenesses = [
        placed_alike.likeness_of(topology, (group,))
        for group in (names[:2], names[2:4], names[4:6], names[1:3], names[3:5], (names[0], names[8]), names[:3])
    ]
    assert likenesses[0] == likenesses[2]  # below the same places of sockets that may be swapped
    assert len(set(likenesses)) == len(likenesses) - 1


@pytest.mark.parametrize("system", [*SYSTEMS, "gce_a2_highgpu_8g"])
def test_devices_that_are_equally_far_are_in_the_order_of_a_search(system, monkeypatch):
    topology = pm.load_system(system, machines=3).topology
    names = topology.devices()
    groups = [names, names[3:-5], names[::-1], names[1::3], names[:5]]
    short = [ring_order.ring_order(topology, group) for group in groups]
    monkeypatch.setattr(ring_order, "_are_equally_far", lambda *_: False)
    assert short == [ring_order.ring_order(topology, group) for group in groups]


@pytest.mark.parametrize("system", [*SYSTEMS, "dgx_1_p100", "gce_a2_highgpu_8g", "survey_fig6"])
def test_a_path_that_lies_alike_is_as_wide_and_as_fast(system):
    loaded = pm.load_system(system) if system in ("dgx_1_p100", "survey_fig6") else pm.load_system(system, machines=2)
    topology = loaded.topology
    alone = Topology(topology.places.values(), topology.wires)
    names = topology.devices()[:12] + topology.devices()[-3:] + topology.nics()[:6] + topology.memories()[:2]
    for source, sink in itertools.permutations(dict.fromkeys(names), 2):
        if topology.places[source].node == topology.places[sink].node or "nic" not in source + sink:
            route = alone.route(source, sink)
            assert topology.reach(source, sink) == (route.capacity_bytes_per_s, route.latency_s)


@pytest.mark.parametrize("how", [{"shard_stage": 0}, {"shard_stage": 2}, {"shard_stage": 2, "recompute": "full"}])
def test_stages_that_are_alike_share_their_exchanges(how):
    graph = pm.zoo.gpt(layers=16, width=256, heads=4, sequence_length=64, vocabulary=512)
    layout = {"parallelism": "pipeline", "stages": 8, "tensor_size": 2, "micro_batches": 8, "workers": 2} | how
    job = Job(graph, system="dgx_a100_x4", batch_size=16, framework="pytorch_2", dtype="bf16", **layout)
    prepared = prepare_job(job)
    stages, numbers = prepared.timed_stages(), ("group_s", "exchanged_s", "send_s", "tied_s", "gathered_s", "copied_s")
    shared, own = works_of(prepared, stages, {}), prepared.works(stages)
    assert sum(work.alike is not None for work in shared) >= 3
    assert len({work.exchanged_s for work in own}) > 1  # some sends lead to another machine
    for work, wanted in zip(shared, own, strict=True):
        assert (work.device, work.times) == (wanted.device, wanted.times)
        for name in numbers:
            assert getattr(work, name) == pytest.approx(getattr(wanted, name), rel=1e-12)
        assert [gather.total_s for gather in work.gathers] == pytest.approx([each.total_s for each in wanted.gathers])
