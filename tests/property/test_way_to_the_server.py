"""What workers push and pull fits through every channel of their ways, whatever the system and the scheme."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.cost.order_statistics import Normal
from perfmodel.errors import ArgumentError
from perfmodel.hardware.catalogue import load_system
from perfmodel.simulation.asynchronous import play_asynchronous
from perfmodel.sync.asynchronous import SCHEMES
from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers
from perfmodel.sync.placed import place
from perfmodel.sync.registry import collective

JOBS = (
    ("survey_fig6", 4),
    ("survey_fig6", 6),
    ("survey_fig6", 11),
    ("dgx_1_p100", 8),
    ("dgx_a100_x4", 16),
    ("gce_n1_standard_32_k80_x8", 8),
)
OPTIONS = {"downpour": {}, "delay_compensated": {}, "bounded_staleness": {"staleness_bound": 2}}
WIDTH = 1 + 1e-9


@pytest.fixture(scope="module")
def networks():
    return {"alexnet": pm.zoo.alexnet(), "resnet50": pm.zoo.resnet50()}


def devices(system, workers):
    return load_system(system).topology.devices()[:workers]


def busy_s(system, visitors, p, *, push_period=1, pull_period=1):
    """Return how long each channel is taken by one step of all, both directions of a shared bus together. [s]"""
    topology, server = load_system(system).topology, p.agreement.server
    shard_bytes = server.parameters_bytes / len(server.memories)
    taken = Counter()
    for device in visitors:
        for memory in server.memories:
            for route, period in (
                (topology.route(device, memory), push_period),
                (topology.route(memory, device), pull_period),
            ):
                for channel in route.channels:
                    taken[channel.name] += shard_bytes / period / channel.capacity_bytes_per_s
    return taken


@pytest.mark.parametrize(("system", "workers"), JOBS)
@pytest.mark.parametrize("batch_size", [1, 64])
def test_no_channel_carries_more_than_it_can(networks, system, workers, batch_size):
    for graph in networks.values():
        job = {"batch_size": batch_size, "system": system, "workers": workers}
        for sync, options in OPTIONS.items():
            p = pm.predict(graph, sync=sync, **options, **job)
            taken = busy_s(system, devices(system, workers), p)
            assert max(taken.values()) <= p.step_s * WIDTH, (sync, taken.most_common(1))
        waiting = pm.predict(graph, sync="parameter_server", overlap=False, **job)
        downpour = pm.predict(graph, sync="downpour", **job)
        assert downpour.step_s < 1.02 * waiting.step_s


@pytest.mark.parametrize(("system", "workers"), [("survey_fig6", 8), ("dgx_a100_x4", 16)])
@pytest.mark.parametrize("options", [{"server_count": 2}, {"pull_period": 4}, {"push_period": 3}])
def test_neither_shards_nor_periods_break_it(networks, system, workers, options):
    shards = options.get("server_count", 1)
    if shards > len(load_system(system).topology.memories()):
        pytest.skip("fewer memories than shards")
    periods = {name: value for name, value in options.items() if name != "server_count"}
    p = pm.predict(networks["alexnet"], batch_size=1, system=system, workers=workers, sync="downpour", **options)
    taken = busy_s(system, devices(system, workers), p, **periods)
    assert max(taken.values()) <= p.step_s * WIDTH


def test_the_slot_of_four_workers_bounds_them(networks):
    """Their adapter's slot carries 6.22 GB/s; before, they pushed 7.93 GB/s through it."""
    p = pm.predict(networks["alexnet"], batch_size=1, system="survey_fig6", workers=4, sync="downpour")
    slot = load_system("survey_fig6").topology.channels["node0/socket0>node0/nic0"].capacity_bytes_per_s
    assert 0.7 * slot < 4 * 244403360 / p.step_s < slot


def test_switches_of_two_workers_each_do_not_bound_eight(networks):
    p, one = (
        pm.predict(networks["alexnet"], batch_size=1, system="dgx_1_p100", workers=workers, sync="downpour")
        for workers in (8, 1)
    )
    numbers = SCHEMES["downpour"].in_effect(p.agreement.numbers)
    switch_s = 244403360 / load_system("dgx_1_p100").topology.channels["switch0>socket0"].capacity_bytes_per_s
    assert p.step_s < 0.7 * 8 * switch_s  # what one such switch for all would take
    assert p.step_s > one.step_s
    assert max(seconds * n for seconds, n in zip(numbers.part_s, numbers.part_sharers, strict=True)) <= p.step_s


@pytest.mark.parametrize(("system", "workers"), [("survey_fig6", 1), ("dgx_1_p100", 1), ("survey_fig6", 11)])
def test_a_lone_visit_takes_the_narrowest_channel_and_latency(networks, system, workers):
    p = pm.predict(networks["alexnet"], batch_size=1, system=system, workers=workers, sync="downpour")
    topology, server, numbers = load_system(system).topology, p.agreement.server, p.agreement.numbers
    (memory,) = server.memories
    ways = [topology.route(name, memory) for name in devices(system, workers)]
    lone_s = max(way.latency_s + server.parameters_bytes / way.capacity_bytes_per_s for way in ways)
    assert numbers.push_latency_s + numbers.push_s == pytest.approx(lone_s)


@pytest.mark.parametrize("system", ["survey_fig6", "dgx_1_p100", "gce_n1_standard_32_k80_x8"])
def test_more_workers_never_step_faster(networks, system):
    steps = [
        pm.predict(networks["alexnet"], batch_size=1, system=system, workers=workers, sync="downpour").step_s
        for workers in (1, 2, 3, 4, 5, 6, 8)
    ]
    assert np.all(np.diff(steps) > -0.02 * np.array(steps[1:])), steps
    assert steps[-1] > steps[0]


@pytest.mark.parametrize(
    ("scheme", "system", "workers"),
    [("downpour", *job) for job in JOBS] + [("bounded_staleness", *job) for job in (JOBS[0], JOBS[5])],
)
def test_the_simulator_confirms_it(networks, scheme, system, workers):
    p = pm.predict(networks["alexnet"], batch_size=16, system=system, workers=workers, sync=scheme, **OPTIONS[scheme])
    numbers = replace(
        p.agreement.numbers, compute_s=float(p.agreement.computing_s(p.basis.timed.alone)), times=Normal(0.1)
    )
    played = play_asynchronous(SCHEMES[scheme].in_effect(numbers), step_count=4000 // workers, seed=2)
    expected = SCHEMES[scheme].times(numbers)
    beyond = 0.03 if scheme == "bounded_staleness" else 0.0
    assert played.step_s_error < 0.025 * played.step_s
    assert abs(played.step_s - expected.step_s) < 4 * played.step_s_error + beyond * played.step_s
    assert played.server_utilisation == pytest.approx(float(expected.server_utilisation), rel=0.06)


PAIRS = AsynchronousNumbers(
    compute_s=4e-3, push_s=2e-3, pull_s=1e-3, update_s=0.3e-3, worker_count=8, push_sharers=2, pull_sharers=4
)


@pytest.mark.parametrize(
    ("changes", "sharers"),
    [
        ({}, 2),
        ({"pull_s": 1.5e-3}, 4),
        ({"update_s": 1e-3}, 8),
        ({"push_s": 6e-3, "times": Normal(0.1)}, 2),
        ({"push_s": 2e-3, "pull_period": 3}, 2),
    ],
)
def test_the_simulator_confirms_queues_of_some(changes, sharers):
    numbers = replace(PAIRS, **changes)
    used = SCHEMES["downpour"].in_effect(numbers)
    assert used.sharers == sharers
    played, expected = play_asynchronous(used, step_count=600, seed=4), SCHEMES["downpour"].times(numbers)
    assert abs(played.step_s - expected.step_s) < 4 * played.step_s_error
    assert played.server_utilisation == pytest.approx(float(expected.server_utilisation), rel=0.03)
    assert played.mean_staleness == pytest.approx(7 if "pull_period" not in changes else 14, rel=0.03)


def test_pairs_are_so_many_jobs_of_two_workers():
    eight, two = (
        SCHEMES["downpour"].times(replace(PAIRS, push_s=6e-3, worker_count=workers, pull_sharers=sharers))
        for workers, sharers in ((8, 4), (2, 2))
    )
    assert eight.step_s == pytest.approx(two.step_s)
    assert eight.updates_per_s == pytest.approx(4 * two.updates_per_s)
    assert (eight.mean_staleness, two.mean_staleness) == (7, 1)
    assert eight.knee == pytest.approx(4 * two.knee)
    assert eight.most_updates_per_s == pytest.approx(4 * two.most_updates_per_s)
    assert eight.server_utilisation == pytest.approx(two.server_utilisation)


def test_wrong_sharers_are_refused():
    with pytest.raises(ArgumentError, match="push_sharers"):
        replace(PAIRS, push_sharers=3)
    with pytest.raises(ArgumentError, match="pull_sharers"):
        replace(PAIRS, pull_sharers=0)
    with pytest.raises(ArgumentError, match="push_sharers"):
        replace(PAIRS, each_part_queues=True)


def test_mixed_groups_take_as_long_as_the_one_that_spans_machines(networks):
    """Workers 0 to 2 are in one machine, 3 to 5 in two: their ring passes the network."""
    job = {"batch_size": 1, "system": "survey_fig6", "workers": 6, "sync": "mixed"}
    p = pm.predict(networks["alexnet"], group_size=3, **job)
    names, topology = devices("survey_fig6", 6), load_system("survey_fig6").topology
    first, second = (place(collective("ring_all_reduce"), topology, names[part])
                     for part in (slice(0, 3), slice(3, 6)))  # fmt: skip
    size_bytes = p.agreement.server.parameters_bytes
    assert second.time(size_bytes) > 1.5 * first.time(size_bytes)
    assert p.agreement.numbers.group_sync_s >= second.time(size_bytes)
    assert max(busy_s("survey_fig6", names[::3], p).values()) <= p.step_s * WIDTH


def test_mixed_groups_of_one_machine_share_its_channels(networks):
    job = {"batch_size": 1, "system": "survey_fig5", "sync": "mixed", "group_size": 2}
    one, two = (pm.predict(networks["alexnet"], workers=workers, **job) for workers in (2, 4))
    assert two.agreement.numbers.group_sync_s >= one.agreement.numbers.group_sync_s


@pytest.mark.parametrize(
    ("system", "spread"),
    [
        ("survey_fig6", {"parallelism": "tensor", "tensor_size": 2, "workers": 4}),
        ("dgx_1_p100", {"parallelism": "tensor", "tensor_size": 2, "workers": 4}),
        ("survey_fig6", {"parallelism": "pipeline", "stages": 2, "micro_batches": 2, "workers": 3}),
    ],
)
def test_workers_of_several_devices_fit_through_every_channel(networks, system, spread):
    p = pm.predict(networks["alexnet"], batch_size=4, system=system, sync="downpour", **spread)
    taken = busy_s(system, devices(system, 2 * spread["workers"]), p)  # as if each device had half of the network
    halves = max(seconds / 2 for seconds in taken.values())
    if spread["parallelism"] == "tensor":
        assert halves <= p.step_s * WIDTH
    numbers = SCHEMES["downpour"].in_effect(p.agreement.numbers)
    load_s = max(seconds * n for seconds, n in zip(numbers.part_s, numbers.part_sharers, strict=True))
    assert load_s <= p.step_s * WIDTH
    if system == "survey_fig6":  # all parts of a worker pass one slot, however the network is split
        slot = load_system(system).topology.channels["node0/socket0>node0/nic0"].capacity_bytes_per_s
        assert p.step_s >= 2 * p.agreement.server.parameters_bytes / slot
