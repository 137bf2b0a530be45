"""How workers agree, in predict(): what is exchanged, what back-propagation hides, whom a step waits for."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.cost.gradient_buckets import bucket_sums, buckets
from perfmodel.cost.overlap import arrival_stall, ends
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.prediction.job.agreements import collectives_of
from perfmodel.sync.asynchronous import SCHEMES
from perfmodel.sync.registry import ALL_REDUCES
from played_collectives import play_collective

SYSTEMS = {"survey_fig5": 4, "survey_fig6": 16, "dgx_a100": 8, "p2_16xlarge": 16}
NORMAL = {"distribution": "normal", "cv": 0.1}
MORE = {"bounded_staleness": {"staleness_bound": 2}}


@pytest.fixture(scope="module")
def networks():
    zoo = pm.zoo
    return [zoo.alexnet(), zoo.resnet50(), zoo.vgg16(), zoo.lstm32(), zoo.bert()]


@pytest.fixture(scope="module")
def alexnet(networks):
    return networks[0]


def step(graph, sync, *, system="survey_fig5", workers=4, batch_size=64, **options):
    return pm.predict(
        graph, batch_size=batch_size, system=system, workers=workers, sync=sync, **MORE.get(sync, {}), **options
    )


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("sync", [*ALL_REDUCES, *SCHEMES])
def test_every_strategy_on_every_system_sums_and_adds_to_the_step(networks, sync, system):
    for graph in networks:
        job = {"system": system, "workers": SYSTEMS[system], "batch_size": 8}
        p, alone = step(graph, sync, **job), step(graph, "none", **job)
        assert sum(p.breakdown.values()) == pytest.approx(p.step_s, rel=1e-12)
        update_s = alone.update_s if p.update_s == 0 else 0.0  # where a server updates, the workers do not
        assert p.step_s >= (alone.step_s - update_s) * (1 - 1e-12)
        assert p.sync_s >= p.exposed_sync_s >= 0
        assert p.sync_s > 0
        assert p.memory == alone.memory


@pytest.mark.parametrize("sync", [*ALL_REDUCES, *SCHEMES])
def test_one_worker_has_nobody_to_agree_with(alexnet, sync):
    p, alone = step(alexnet, sync, workers=1), step(alexnet, "none", workers=1)
    if sync == "parameter_server":  # but its parameters lie with a server
        assert p.update_s == 0 < p.exposed_sync_s
    elif sync in ALL_REDUCES:
        assert p.breakdown == alone.breakdown
    assert p.mean_staleness == pytest.approx(0)


def test_what_a_ring_takes_by_hand(alexnet):
    """Three quarters of the gradients leave each of four devices twice, over its own link of 12.44 GB/s."""
    link = pm.load_link("pcie_3_x16")
    p = step(alexnet, "ring_all_reduce", overlap=False, bucket_bytes=math.inf)
    bytes_sent = 2 * 3 / 4 * 4 * alexnet.parameter_count
    by_hand = 6 * link.family.in_base_units("latency_us") + bytes_sent / link.effective_bandwidth_bytes_per_s
    assert p.sync_s == pytest.approx(by_hand, rel=1e-3)
    assert p.exposed_sync_s == p.sync_s
    sent = p.agreement.reduction.placed.channel_bytes(4 * alexnet.parameter_count)
    leaving = [sent[f"gpu{place}>root0"] for place in range(4)]
    assert leaving == pytest.approx([bytes_sent] * 4)


def test_layers_by_themselves_cost_latencies_and_hide_bytes(alexnet):
    apart, together = (step(alexnet, "ring_all_reduce", bucket_bytes=size) for size in (None, math.inf))
    after = step(alexnet, "ring_all_reduce", bucket_bytes=math.inf, overlap=False)
    assert apart.sync_s > together.sync_s == pytest.approx(after.sync_s)
    assert apart.exposed_sync_s < together.exposed_sync_s  # the last gradient is ready when all are
    assert together.exposed_sync_s == pytest.approx(after.exposed_sync_s)
    middle = step(alexnet, "ring_all_reduce", bucket_bytes=25 * 2**20)
    assert apart.sync_s > middle.sync_s > together.sync_s


def test_the_step_lies_between_the_bounds_of_overlap(networks):
    for graph in networks:
        alone = step(graph, "none")
        for sync in ("ring_all_reduce", "binomial_tree", "one_to_all"):
            p = step(graph, sync)
            assert max(alone.step_s, p.sync_s) <= p.step_s * (1 + 1e-9)
            assert p.step_s <= alone.step_s + p.sync_s + 1e-12


def test_a_server_updates_for_all_and_every_worker_crowds_its_memory(alexnet):
    p = step(alexnet, "parameter_server", overlap=False)
    alone = step(alexnet, "none")
    size, workers = 4 * alexnet.parameter_count, 4
    topology = pm.load_system("survey_fig5").topology
    memory = topology.channels["memory0=socket0"].capacity_bytes_per_s
    uplink = topology.channels["root0>socket0"].capacity_bytes_per_s
    one_way = workers * size / min(uplink, memory, workers * topology.channels["gpu0>root0"].capacity_bytes_per_s)
    served = size * (workers + 1 + 3) / memory  # reads all gradients, writes the sum; reads both, writes parameters
    assert p.sync_s == pytest.approx(2 * one_way + served, rel=0.01)
    computed_s = p.compute_s + p.memory_bound_s + p.overhead_s + p.exposed_transfer_s
    assert p.step_s == pytest.approx(computed_s + p.sync_s)
    assert alone.step_s - alone.update_s == pytest.approx(computed_s, rel=1e-3)  # all wait for the slowest device


def test_shards_share_the_work_of_a_server(networks):
    job = {"system": "survey_fig6", "workers": 16, "overlap": False}
    one, four = (step(networks[2], "parameter_server", server_count=count, **job) for count in (1, 4))
    assert four.sync_s < one.sync_s / 2


@pytest.mark.parametrize("sync", ["downpour", "delay_compensated"])
def test_asynchronous_workers_are_bounded_by_their_server(alexnet, sync):
    counts = (1, 2, 4)
    steps = [step(alexnet, sync, workers=workers) for workers in counts]
    rates = [p.samples_per_s for p in steps]
    assert rates == sorted(rates)
    assert all(p.mean_staleness == pytest.approx(p.worker_count - 1, abs=0.5) for p in steps)
    assert steps[-1].step_s > steps[0].step_s  # queues grow
    network = steps[-1].agreement.times(0.0)
    assert rates[-1] <= 64 / network.wait_s * 4


def test_compensation_costs_time_at_the_server_and_rare_visits_save_it(alexnet):
    plain, compensated = (step(alexnet, sync).step_s for sync in ("downpour", "delay_compensated"))
    rare = step(alexnet, "downpour", push_period=4, pull_period=4).step_s
    assert rare < plain < compensated


def test_stragglers_are_waited_for_and_backups_are_not(alexnet):
    normal = {"distribution": "normal", "cv": 0.1}
    job = {"system": "survey_fig6", "workers": 16}
    steady, varying, backed = (
        step(alexnet, "ring_all_reduce", **job, **how)
        for how in ({}, {"straggler": normal}, {"straggler": normal, "backup_workers": 2})
    )
    computing = steady.step_s - steady.exposed_sync_s - steady.exposed_transfer_s
    assert varying.straggler_s == pytest.approx(0.176599 * computing, rel=1e-3)  # m(16) = 1.76599
    assert backed.straggler_s < varying.straggler_s
    assert backed.samples_per_s == pytest.approx(14 * 64 / backed.step_s)
    assert steady.straggler_s == 0


def test_mixed_groups_step_together(alexnet):
    job = {"system": "survey_fig6", "workers": 16}
    four, all_of_them = (step(alexnet, "mixed", group_size=size, **job) for size in (4, 16))
    assert four.mean_staleness == pytest.approx(3, abs=0.5)  # the other groups
    assert all_of_them.mean_staleness == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"sync": "ring_allreduce"}, UnknownNameError, "ring_all_reduce"),
        ({"sync": "bounded_staleness", "staleness_bound": -1}, ArgumentError, r"staleness_bound must.*\(got -1"),
        ({"sync": "bounded_staleness"}, ArgumentError, "staleness_bound"),
        ({"sync": "hierarchical", "group_size": 3}, ArgumentError, "divisor of workers=4"),
        ({"sync": "ring_all_reduce", "group_size": 2}, ArgumentError, "hierarchical or mixed"),
        ({"sync": "ring_all_reduce", "bucket_bytes": -1}, ArgumentError, "bucket_bytes"),
        ({"sync": "ring_all_reduce", "bucket_bytes": "merge"}, ArgumentError, "'merged'"),
        ({"sync": "parameter_server", "server_count": 2}, ArgumentError, "must be 1: .* has one host"),
        ({"sync": "parameter_server", "server_count": 0}, ArgumentError, "server_count"),
        ({"sync": "downpour", "push_period": 0}, ArgumentError, "push_period"),
        ({"sync": "ring_all_reduce", "overlap": "yes"}, ArgumentError, "overlap"),
        ({"sync": "ring_all_reduce", "backup_workers": 1}, ArgumentError, "straggler"),
        (
            {"sync": "ring_all_reduce", "straggler": NORMAL, "backup_workers": 4},
            ArgumentError,
            "below workers=4",
        ),
        ({"sync": "none", "straggler": NORMAL, "backup_workers": 9}, ArgumentError, r"backup_workers must.*\(got 9"),
        (
            {"sync": "downpour", "straggler": NORMAL, "backup_workers": 4},
            ArgumentError,
            r"must.*0 unless sync is one of.*\(got 4",
        ),
        ({"sync": "ring_all_reduce", "straggler": {"distribution": "normol", "cv": 1}}, UnknownNameError, "normal"),
        *(
            ({"sync": sync, "straggler": given}, error, told)
            for sync in ("downpour", "ring_all_reduce")
            for given, error, told in (
                ({"distribution": "normal", "cv": None}, ArgumentError, r"cv must.*a number from 0.*\(got None"),
                ({"distribution": "normal", "cv": "x"}, ArgumentError, r"cv must.*a number from 0.*\(got 'x'"),
                ({"distribution": "normal", "cv": True}, ArgumentError, r"cv must.*\(got True"),
                ({"distribution": "shifted_exponential", "cv": [0.1]}, ArgumentError, "cv must.*a number from 0 to 1"),
                (
                    {"distribution": "empirical", "times": "abc"},
                    ArgumentError,
                    r"times must.*a list of.*\(got 'abc'",
                ),
                ({"distribution": "empirical", "times": [[1.0, 2.0], [3.0]]}, ArgumentError, "times must.*a list of"),
                ({"distribution": "empirical", "times": 3.0}, ArgumentError, r"times must.*\(got 3.0"),
                (
                    {"distribution": "unequal", "times": "1,2"},
                    ArgumentError,
                    r"times must.*one for each worker.*\(got '1,2'",
                ),
                ({"distribution": ["normal"]}, UnknownNameError, "empirical, lognormal, normal"),
                ({"distribution": None}, UnknownNameError, "empirical, lognormal, normal"),
            )
        ),
        ({"sync": "downpour", "shard_stage": 1}, ArgumentError, r"shard_stage must be 0 with sync=.*\(got 1"),
    ],
)
def test_what_cannot_be_is_refused(alexnet, options, error, told):
    with pytest.raises(error, match=told):
        pm.predict(alexnet, batch_size=8, system="survey_fig5", workers=4, **options)


def test_one_worker_cannot_be_its_own_backup(alexnet):
    with pytest.raises(ArgumentError, match="below workers=1"):
        step(alexnet, "ring_all_reduce", workers=1, straggler=NORMAL, backup_workers=1)
    assert step(alexnet, "ring_all_reduce", straggler=NORMAL, backup_workers=3).samples_per_update == 64


def test_inference_exchanges_nothing(alexnet):
    p = pm.predict(alexnet, batch_size=8, system="survey_fig5", workers=4, phase="forward")
    assert p.sync_s == 0
    assert p.agreement is None


def test_it_says_what_is_exchanged_and_what_is_hidden(alexnet):
    said = " ".join(step(alexnet, "ring_all_reduce").explain().split())
    assert "4 workers exchange 244.4 MB of gradients by ring_all_reduce, layer by layer while back-propagation" in said
    said = " ".join(step(alexnet, "ring_all_reduce", bucket_bytes=math.inf).explain().split())
    assert "of gradients by ring_all_reduce, in one message while back-propagation" in said
    said = " ".join(step(alexnet, "downpour").explain().split())
    assert "A gradient has missed 3 updates of others" in said
    assert "Workers exchange nothing." in step(alexnet, "none").explain()


def test_the_command_line_says_how_workers_agree(capsys):
    words = ["predict", "alexnet", "--system", "survey_fig5", "--workers", "4", "--batch-size", "64", "--json"]
    assert run([*words, "--sync", "downpour", "--sync-option", "push_period=4"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mean_staleness"] == step(pm.zoo.alexnet(), "downpour", push_period=4).mean_staleness > 1
    assert run([*words, "--sync", "ring_all_reduce", "--sync-option", "overlap=false"]) == 0
    after = json.loads(capsys.readouterr().out)
    assert after["parts"]["exposed_sync_s"] == after["totals"]["sync_s"] > 0
    assert run([*words, "--sync", "all_reduce", "--sync-option", "bucket_bytes=merged", "--explain"]) == 0
    said = " ".join(json.loads(capsys.readouterr().out)["explanation"].split())
    assert "8 of them merged into 4 messages so that the step is shortest, while back-propagation runs" in said
    assert "Messages keep 10.0 % of a device from computing" in said
    for typed in ("normal=x", "empirical=abc", "normal="):
        assert run([*words, "--sync", "downpour", "--straggler", typed]) == 2
        assert " must be a" in capsys.readouterr().err
    assert run([*words, "--sync", "ring_all_reduce", "--sync-option", "bucket=1"]) == 2
    assert "bucket_bytes" in capsys.readouterr().err


SECONDS = st.floats(0, 100)


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=12))
def test_messages_end_after_all_that_must_come_before(pairs):
    ready, taken = zip(*pairs, strict=True)
    ready = sorted(ready)
    found = [float(end) for end in ends(ready_s=ready, message_s=taken)]
    longest = [max(ready[start] + sum(taken[start : end + 1]) for start in range(end + 1)) for end in range(len(taken))]
    assert found == pytest.approx(longest)
    as_arrays = ends(ready_s=[np.full(2, each) for each in ready], message_s=taken)
    assert as_arrays[-1] == pytest.approx(np.full(2, found[-1]))


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1e9), max_size=20), st.floats(0, 1e9))
def test_buckets_hold_every_message_once_and_are_full_but_the_last(sizes, least):
    slices = buckets(sizes, least_bytes=least)
    assert [place for each in slices for place in range(each.start, each.stop)] == list(range(len(sizes)))
    held = bucket_sums(np.array(sizes), slices)
    assert held.sum() == pytest.approx(sum(sizes))
    assert all(each >= least * (1 - 1e-12) for each in held[:-1])


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=12))
def test_a_stall_is_the_longest_lateness(pairs):
    wanted, arrival = zip(*pairs, strict=True)
    late = max(each[1] - each[0] for each in pairs)
    assert float(arrival_stall(wanted_s=wanted, arrival_s=arrival)) == max(late, 0.0)


def test_a_framework_exchanges_by_its_library_in_its_buckets(networks):
    job = {"system": "dgx_a100", "workers": 8, "batch_size": 32, "framework": "pytorch_2"}
    p = step(networks[1], "all_reduce", **job)
    assert "NCCL 2.27" in {spec.name for spec in p.sources}
    size = 25 * 2**20
    ready = p.basis.timed.gradients.sizes_bytes
    messages = bucket_sums(ready, buckets(ready, least_bytes=size))
    assert len(messages) == 4  # 102 MB
    copied_s = p.basis.timed.composed.stages[0].copied_s  # into buckets and back, in any exchange
    assert p.sync_s == pytest.approx(sum(p.agreement.reduction.placed.time(messages)) + copied_s)
    bare = step(networks[1], "ring_all_reduce", **job)
    assert p.sync_s > bare.sync_s  # calls and protocols cost something
    apart = step(networks[1], "all_reduce", bucket_bytes=0, **job)
    assert apart.sync_s > 2 * p.sync_s  # 107 calls


@pytest.mark.parametrize("framework", pm.catalogue().names("framework"))
def test_every_framework_reduces_by_a_library(alexnet, framework):
    p = step(alexnet, "all_reduce", framework=framework)
    assert any(spec.name.startswith("NCCL") for spec in p.sources)
    assert p.sync_s > 0


def test_a_framework_without_a_library_wants_an_algorithm():
    named = pm.load_framework("tensorflow_1_12")
    profile = named.model_copy(update={"exchange": named.exchange.model_copy(update={"collectives": None})})
    with pytest.raises(ArgumentError, match=r"TensorFlow 1\.12, which names no library of collectives"):
        collectives_of(profile)


@pytest.mark.parametrize(("system", "workers"), [("dgx_a100", 8), ("survey_fig5", 4)])
@pytest.mark.parametrize("bucket_bytes", [0, None, math.inf])
def test_what_a_library_chooses_at_each_size_is_played(networks, system, workers, bucket_bytes):
    """Small buckets go by another protocol than large ones: neither a ring nor one protocol plays the same step."""
    job = {"system": system, "workers": workers, "batch_size": 32, "framework": "pytorch_2"}
    p = step(networks[1], "all_reduce", bucket_bytes=bucket_bytes, **job)
    period_s = p.play(3).makespan_s - p.play(2).makespan_s  # without the first copy of a mini-batch
    assert period_s == pytest.approx(p.step_s, rel=0.005)
    library = p.agreement.reduction.placed
    call = library.call(1e3)
    assert call.launch_s > 0
    assert call.wire_bytes > 1.2e3  # its words carry flags, or pass through buffers
    if system == "dgx_a100":
        assert [library.choice(size)[1] for size in (1e3, 4e8)] == ["ll", "simple"]
    one_call_s = play_collective(call.placed, call.wire_bytes).makespan_s + call.launch_s
    assert one_call_s == pytest.approx(float(library.time(1e3)), rel=1e-9)
