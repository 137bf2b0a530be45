"""Steps of workers that agree, played: the period of the closed form, the bytes of the algorithm, the same draws."""

import json
import math
from collections import defaultdict
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.simulation.asynchronous import play_asynchronous
from perfmodel.sync.asynchronous import SCHEMES

WORKERS = {"survey_fig5": 4, "dgx_a100": 8, "survey_fig6": 16}
SYNCHRONOUS = ("ring_all_reduce", "halving_doubling", "hierarchical", "parameter_server", "one_to_all")
MORE = {"bounded_staleness": {"staleness_bound": 2}, "hierarchical": {"group_size": 2}, "mixed": {"group_size": 2}}
MIB25 = 25 * 2**20


@pytest.fixture(scope="module")
def networks():
    return {"alexnet": pm.zoo.alexnet(), "resnet50": pm.zoo.resnet50()}


def step(graph, sync, system="survey_fig5", **options):
    job = {"batch_size": 16, "system": system, "workers": WORKERS[system], "sync": sync, **MORE.get(sync, {})}
    return pm.predict(graph, **job | options)


def step_ends(timeline):
    """When each step of each worker ended. [s]"""
    ends = defaultdict(list)
    for span in timeline.spans:
        if "/compute/" in span.task and span.kind in ("update", "end"):
            ends[span.task.split("/compute/")[0]].append(span.end_s)
    return np.array(list(ends.values()))


def period(prediction, step_count, **options):
    ends = step_ends(prediction.play(step_count, **options))
    assert len(ends) == prediction.worker_count
    return float(np.mean(ends[:, -1] - ends[:, 0])) / (step_count - 1)


def exchanged_bytes(reduction, size_bytes):
    """What the algorithm says passes each channel in a step. [B]"""
    placed = [reduction.placed] if hasattr(reduction, "placed") else [reduction.push, reduction.pull]
    found = defaultdict(float)
    for each in placed:
        for name, size in each.call(size_bytes).placed.channel_bytes(size_bytes).items():
            found[name] += size
    return dict(found)


BUCKETS = (None, MIB25, math.inf, "merged")
TWO = (0, 1)


@pytest.mark.parametrize(  # every three of the five meet
    ("sync", "system", "network", "overlap", "bucket_bytes"),
    [
        (
            sync,
            ("survey_fig5", "dgx_a100")[k],
            ("alexnet", "resnet50")[(i + j + k + overlap) % 2],
            bool(overlap),
            bucket,
        )
        for (i, sync), (j, bucket), k, overlap in product(enumerate(SYNCHRONOUS), enumerate(BUCKETS), TWO, TWO)
    ],
)
def test_played_steps_take_what_the_closed_form_says(networks, sync, system, network, overlap, bucket_bytes):
    """With mini-batches copied before a step, so that they meet no gradients."""
    graph = networks[network]
    p = step(graph, sync, system, overlap=overlap, bucket_bytes=bucket_bytes, prefetch=0)
    timeline = p.play(3)
    ends = step_ends(timeline)
    assert len(ends) == p.worker_count
    assert np.diff(ends) == pytest.approx(np.full((p.worker_count, 2), p.step_s), rel=1e-9)
    sent = defaultdict(float)
    for span in timeline.spans:
        for name in span.channels if span.task.startswith("sync/") else ():
            sent[name] += span.flow_bytes / 3
    assert dict(sent) == pytest.approx(exchanged_bytes(p.agreement.reduction, 4 * graph.parameter_count), rel=1e-9)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("bucket_bytes", [0, MIB25, math.inf, "merged"])
@pytest.mark.parametrize("system", ["survey_fig5", "dgx_a100"])
def test_calls_of_a_library_slow_computing_down_as_the_closed_form_says(networks, system, bucket_bytes, overlap):
    p = step(networks["alexnet"], "all_reduce", system, bucket_bytes=bucket_bytes, overlap=overlap, prefetch=0)
    share = {"survey_fig5": 2 / 20, "dgx_a100": 24 / 108}[system]
    assert p.agreement.slowdown == pytest.approx(share)
    timeline = p.play(3)
    assert np.diff(step_ends(timeline)) == pytest.approx(np.full((p.worker_count, 2), p.step_s), rel=1e-9)
    backward_s = sum(span.end_s - span.start_s for span in timeline.spans if span.task.startswith("gpu1/backward/2/"))
    alone_s = float(p.basis.timed.gradients.backward_s)
    meanwhile_s = backward_s - alone_s
    assert meanwhile_s >= -1e-12
    if overlap and bucket_bytes == 0:
        assert 0.1 * share * p.sync_s < meanwhile_s < 1.0001 * share * p.sync_s / (1 - share)
    if not overlap:
        assert meanwhile_s == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("framework", "sync"),
    [("generic", "all_reduce"), ("generic", "ring_all_reduce"), ("megatron_core", "all_reduce")],
)
@pytest.mark.parametrize("interleave", [1, 2])
@pytest.mark.parametrize("bucket_bytes", [MIB25, "merged"])
def test_messages_slow_down_the_turns_of_a_pipeline_as_they_do_played(
    networks, bucket_bytes, interleave, framework, sync
):
    """A stage that messages slow down hands its gradients on later, so that the stages before it start later."""
    how = {"parallelism": "pipeline", "stages": 2, "workers": 4, "micro_batches": 4, "interleave": interleave}
    how |= {"schedule": "interleaved"} if interleave > 1 else {}
    how |= {"system": "dgx_a100", "sync": sync, "prefetch": 0, "framework": framework}
    how |= {"shard_stage": 2} if framework == "megatron_core" else {"bucket_bytes": bucket_bytes}
    p = pm.predict(networks["resnet50"], batch_size=32, **how)
    assert sum(p.breakdown.values()) == pytest.approx(p.step_s, rel=1e-12)
    timeline = p.play(2)
    ends = [max(span.end_s for span in timeline.spans if span.task.endswith(f"/compute/{step}")) for step in (0, 1)]
    assert ends[1] - ends[0] == pytest.approx(p.step_s, rel=1e-9)
    assert p.agreement.slowdown == pytest.approx(24 / 108)
    (swept,) = pm.sweep(networks["resnet50"], batch_size=[32], **how)["step_s"]
    assert swept == pytest.approx(p.step_s, rel=1e-12)


@pytest.mark.parametrize("sync", ["ring_all_reduce", "all_reduce", "halving_doubling"])
def test_copies_that_bound_a_step_go_on_while_gradients_are_added_up(networks, sync):
    job = {"batch_size": 512, "dtype": "fp16"}
    p = step(networks["alexnet"], sync, "dgx_a100", bucket_bytes=MIB25, **job)
    alone = step(networks["alexnet"], "none", "dgx_a100", **job)
    assert 0 < p.exposed_transfer_s < alone.exposed_transfer_s
    assert p.step_s == pytest.approx(alone.step_s)  # copies bound both
    ends = step_ends(p.play(6))
    assert np.diff(ends)[:, 1:] == pytest.approx(np.full((8, 4), p.step_s), rel=1e-9)


def test_what_gpus_add_up_takes_blocks_of_the_library_whoever_names_the_algorithm(networks):
    """Hosts add up what engines copied to them, and CPUs have no multiprocessors."""
    taken = {
        sync: step(networks["alexnet"], sync).agreement.slowdown
        for sync in ("all_reduce", "ring_all_reduce", "binomial_tree", "one_to_all", "parameter_server", "host_tree")
    }
    assert list(taken.values()) == pytest.approx([2 / 20] * 4 + [0, 0])
    assert step(networks["alexnet"], "ring_all_reduce", framework="tensorflow_1_1").agreement.slowdown == 2 / 20
    on_hosts = pm.predict(networks["alexnet"], batch_size=16, system="gce_n1_standard_4_x4", workers=4)
    assert on_hosts.agreement.slowdown == 0


@pytest.mark.parametrize("bucket_bytes", [0, MIB25, "merged"])
def test_the_default_ring_loses_a_share_of_the_device_while_it_hides_and_its_last_message(networks, bucket_bytes):
    job = {"batch_size": 32, "system": "dgx_a100"}
    alone = pm.predict(networks["resnet50"], **job, workers=1, sync="none")
    p, after = (
        pm.predict(networks["resnet50"], **job, workers=8, bucket_bytes=bucket_bytes, overlap=overlap)
        for overlap in (True, False)
    )
    sizes_bytes = p.agreement.messages(p.agreement.reduction, p.basis.timed.gradients).sizes_bytes
    last_s = float(p.agreement.reduction.placed.time(sizes_bytes[-1]))
    lost_s = 24 / 108 * (p.sync_s - last_s)
    assert p.step_s == pytest.approx(alone.step_s + lost_s + last_s, rel=1e-12)
    assert 0.99 < alone.step_s / p.step_s < 0.998
    assert after.step_s == pytest.approx(alone.step_s + after.sync_s, rel=1e-12)
    assert "NCCL 2.27" in {spec.name for spec in p.sources}


@pytest.mark.parametrize("sync", SYNCHRONOUS)
def test_copies_that_meet_gradients_change_a_step_by_little(networks, sync):
    for system in ("survey_fig5", "dgx_a100"):
        for graph in networks.values():
            p = step(graph, sync, system, bucket_bytes=MIB25, batch_size=64)
            assert -1e-9 < period(p, 6) / p.step_s - 1 < 0.05


def test_a_bucket_leaves_when_all_have_it_and_the_one_before_is_through(networks):
    p = step(networks["alexnet"], "ring_all_reduce", bucket_bytes=MIB25, prefetch=0)
    timeline = p.play(2)
    starts = {span.task: span.start_s for span in timeline.spans}
    ends = {span.task: span.end_s for span in timeline.spans}
    count = sum(task.startswith("sync/1/") and task.endswith("/ready") for task in ends)
    assert count > 2
    for place in range(count):
        ready = max(ends[f"gpu{worker}/backward/1/{place}"] for worker in range(4))
        before = ends[f"sync/1/{place - 1}"] if place else 0.0
        first = min(when for task, when in starts.items() if task.startswith(f"sync/1/{place}/0/"))
        assert first == max(ready, before)
    assert starts["sync/1/0/ready"] < 0.5 * ends[f"gpu0/backward/1/{count}"] + 0.5 * starts["gpu0/backward/1/0"]
    assert all(starts[f"gpu{worker}/compute/1"] >= ends[f"sync/1/{count - 1}"] for worker in range(4))


def test_a_server_works_bucket_by_bucket_and_layers_wait_for_their_parameters(networks):
    p = step(networks["alexnet"], "parameter_server", bucket_bytes=MIB25, prefetch=0)
    timeline = p.play(3)
    ends = {span.task: span.end_s for span in timeline.spans}
    served = [span for span in timeline.spans if span.kind == "serve"]
    (server,) = {span.resource for span in served}
    assert timeline.busy_s(server) == pytest.approx(3 * p.agreement.reduction.server_s_per_byte * 4 * 61_100_840)
    forward = [span for span in timeline.spans if span.task.startswith("gpu2/forward/2/")]
    assert len(forward) > 2
    assert forward[0].start_s >= max(ends[task] for task in ends if task.startswith("sync/1/") and "served" in task)
    last_pull = max(ends[task] for task in ends if task.startswith("sync/2/") and task.endswith("/pull"))
    assert forward[0].start_s < last_pull <= forward[-1].start_s  # the last layers get theirs while the first compute


@pytest.mark.parametrize(("sync", "options"), [
    ("downpour", {"straggler": {"distribution": "normal", "cv": 0.2}}),
    ("mixed", {"straggler": {"distribution": "normal", "cv": 0.2}}),
    ("bounded_staleness", {}),
])  # fmt: skip
def test_asynchronous_steps_are_those_of_the_scheme_within_the_error_of_the_draw(networks, sync, options):
    p = step(networks["alexnet"], sync, batch_size=64, **options)
    ends = step_ends(p.play(1300, seed=3))
    in_batches = np.diff(ends[:, 50::62]).mean(axis=0) / 62
    error_s = in_batches.std(ddof=1) / math.sqrt(len(in_batches))
    computing_s = float(p.agreement.computing_s(p.basis.timed.alone))
    numbers = SCHEMES[sync].in_effect(replace(p.agreement.numbers, compute_s=computing_s))
    alone = play_asynchronous(numbers, step_count=600, seed=4)
    both_s = math.hypot(error_s, alone.step_s_error)
    assert both_s < 0.025 * p.step_s
    assert abs(in_batches.mean() - alone.step_s) < 4 * both_s
    beyond = 0.03 if sync == "bounded_staleness" else 0.0  # its closed form is not exact: docs/asynchrony.md
    assert abs(in_batches.mean() - p.step_s) < 4 * error_s + beyond * p.step_s


DECODING = {"dataset": "imagenet_jpeg", "input_from": "samsung_960_pro"}


@pytest.mark.parametrize("sync", [*SCHEMES, "parameter_server"])
def test_decoding_takes_cores_from_the_step_of_all_who_agree(sync):
    """Two cores, full with both: the visit to the server passes while they decode."""
    options = MORE.get(sync, {}) if sync != "mixed" else {}
    where = {"system": "gce_n1_standard_4_x4", "workers": 3, "sync": sync, **options}
    p = pm.predict(pm.zoo.mobilenet_v2(), batch_size=32, **where, **DECODING)
    decoding_s = 32 / pm.load_dataset("imagenet_jpeg").decode_rate_per_core
    computing_s = p.step_s - sum(p.breakdown[part] for part in ("exposed_sync_s", "straggler_s", "input_wait_s"))
    full_s = computing_s + decoding_s / 2
    assert p.step_s == pytest.approx(full_s, rel=1e-9)
    assert period(p, 150 if sync in SCHEMES else 5) == pytest.approx(full_s, rel=2e-3)


@pytest.mark.parametrize(("prefetch", "most"), [(1, 1.06), (4, 1.01)])
def test_cores_decode_as_far_ahead_as_there_are_buffers(networks, prefetch, most):
    """Visits of random length: after a short one a step waits for its mini-batch, unless more than one is there."""
    where = {"system": "gce_n1_standard_4_x4", "workers": 3, "sync": "downpour"}
    p = pm.predict(networks["alexnet"], batch_size=128, prefetch=prefetch, **where, **DECODING)
    assert 0.995 * p.step_s < period(p, 600) < most * p.step_s


def test_a_seed_draws_the_same_again(networks):
    normal = {"distribution": "normal", "cv": 0.1}
    for sync in ("downpour", "ring_all_reduce"):
        p = step(networks["alexnet"], sync, straggler=normal)
        spans = [p.play(5, seed=seed).spans for seed in (0, 0, 1)]
        assert spans[0] == spans[1] == p.play(5).spans != spans[2]


@pytest.mark.parametrize("backup_workers", [0, 2])
def test_stragglers_are_waited_for_but_for_backups(networks, backup_workers):
    normal = {"distribution": "normal", "cv": 0.1}
    job = {"system": "survey_fig6", "straggler": normal, "backup_workers": backup_workers, "bucket_bytes": math.inf}
    after = step(networks["alexnet"], "ring_all_reduce", overlap=False, **job)
    lengths = np.diff(step_ends(after.play(80, seed=1))[0])
    error_s = lengths.std(ddof=1) / math.sqrt(len(lengths))
    assert error_s < 0.1 * after.straggler_s
    assert abs(lengths.mean() - after.step_s) < 4 * error_s
    # the closed form lets the phases of the mean slowest hide the exchange, those of each step's slowest do
    meanwhile = step(networks["alexnet"], "ring_all_reduce", **job | {"bucket_bytes": MIB25})
    played = period(meanwhile, 30, seed=1)
    assert abs(played - meanwhile.step_s) < 4 * error_s + 0.02 * meanwhile.step_s


def test_the_command_line_traces_workers_that_agree(tmp_path):
    path = tmp_path / "steps.json"
    words = ["predict", "alexnet", "--system", "survey_fig5", "--workers", "4", "--batch-size", "16"]
    assert run([*words, "--sync", "parameter_server", "--trace", str(path)]) == 0
    kinds = {event.get("cat") for event in json.loads(path.read_text())["traceEvents"]}
    assert kinds >= {"forward", "backward", "message", "serve"}
