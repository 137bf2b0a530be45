"""Every parallelism through predict(): parts, memory and bytes, on shipped systems and networks of the zoo."""

import json
from functools import cache

import pytest

import perfmodel as pm
from contention import contends
from perfmodel.cli.app import run
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.sync.placed import place
from perfmodel.sync.registry import collective

SYSTEMS = {"survey_fig5": 1, "survey_fig6": 2, "dgx_a100": 2}
"""System -> data-parallel workers beside a group of four devices."""
NETWORKS = ("alexnet", "resnet50", "vgg16", "lstm32", "bert")
SIZES = {
    "data": lambda workers: {"workers": 4 * workers, "shard_stage": 1},
    "pipeline": lambda workers: {"workers": workers, "stages": 4, "micro_batches": 4},
    "tensor": lambda workers: {"workers": workers, "tensor_size": 4},
    "hybrid": lambda workers: {"workers": 4 * workers},
    "model": lambda workers: {"workers": workers, "stages": 4},
}
BATCH_SIZE = 16
IMPOSSIBLE = {("hybrid", "bert", 8)}
"""Parallelism, network and workers that do not divide what they would share (twelve heads)."""


@cache
def network(name):
    return getattr(pm.zoo, name)()


@cache
def whole(name, system, samples):
    return pm.predict(network(name), batch_size=samples, system=system)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("name", NETWORKS)
def test_parts_sum_memory_is_no_more_and_bytes_are_those_of_the_algorithm(name, kind, system):
    job = {"batch_size": BATCH_SIZE, "system": system, "parallelism": kind, **SIZES[kind](SYSTEMS[system])}
    if (kind, name, job["workers"]) in IMPOSSIBLE:
        with pytest.raises(ArgumentError, match="a divisor of the 12 heads"):
            pm.predict(network(name), **job)
        return
    p = pm.predict(network(name), **job)
    assert sum(p.breakdown.values()) == pytest.approx(p.step_s, rel=1e-12)
    assert all(seconds >= 0 for seconds in p.breakdown.values())
    assert p.memory.total_bytes == max(row.memory_bytes for row in p.stages)
    crowd = max(stage.batch_factor for stage in p.spread.placement.stages)
    samples = BATCH_SIZE * crowd  # what its most crowded layers see
    assert p.memory.total_bytes <= whole(name, system, samples).memory.total_bytes * 1.001
    assert p.samples_per_s == pytest.approx(p.worker_count * BATCH_SIZE / p.step_s)
    assert p.worker_count == job["workers"]
    period_s = p.play(2).makespan_s - p.play(1).makespan_s
    if contends(p):
        assert 0.8 * p.step_s <= period_s <= 1.4 * p.step_s  # docs/simulation.md says what the closed form leaves out
    else:
        assert period_s == pytest.approx(p.step_s, rel=1e-9)
    check_bytes(p)


def check_bytes(p):
    """Messages on the topology are of the bytes that a stage says it sends, and these are those it must."""
    spread = p.spread
    for stage in spread.stages:
        for exchange in stage.placed.exchanges:
            if spread.exchanges is None or (exchange.group == "data" and exchange.kind != "all_gather"):
                continue
            placed = spread.exchanges.placed(exchange, stage.placed)
            if placed is None:
                continue
            size = float(exchange.size_bytes(spread.samples(stage)))
            senders = {message.source for each in placed.rounds for message in each.messages}
            sent = sum(
                each.repeat * message.share * size
                for each in placed.rounds
                for message, route in zip(each.messages, placed.routes(each), strict=True)
                if route.channel_names
            )
            assert sent == pytest.approx(len(senders) * spread.exchanges.sent_bytes(exchange, size, stage.placed))
    for stage, row in zip(spread.stages, p.stages, strict=True):
        assert row.sent_bytes == pytest.approx(must_send(p, stage.placed), rel=1e-12)


def must_send(p, stage):
    """What a device of a stage must send, from parameters, activations and the ring's own factors."""
    layout = p.spread.placement.layout
    samples = BATCH_SIZE // layout.parts * stage.batch_factor
    group = layout.tensor_size * stage.batch_factor
    total = 0.0
    for exchange in stage.exchanges:
        p_count = {"data": layout.data_size, "tensor": group, "pipeline": 2}[exchange.group]
        share = {"all_reduce": 2 * (p_count - 1) / p_count, "send": 1}.get(exchange.kind, (p_count - 1) / p_count)
        repeats = 1 if exchange.group == "data" or exchange.phase.value == "update" else layout.parts
        total += repeats * share * (exchange.fixed_bytes + exchange.bytes_per_sample * samples)
    return total


def test_workers_of_a_pipeline_of_one_stage_are_plain_workers():
    job = {"batch_size": BATCH_SIZE, "system": "survey_fig5", "workers": 4}
    one, plain = pm.predict(network("alexnet"), parallelism="pipeline", **job), pm.predict(network("alexnet"), **job)
    assert one.breakdown == pytest.approx(plain.breakdown, rel=1e-12)
    assert one.interval_s == pytest.approx(plain.interval_s, rel=1e-9)
    assert one.memory.total_bytes == pytest.approx(plain.memory.total_bytes)
    assert not plain.stages


def test_accumulated_micro_batches_exchange_and_update_once():
    job = {"batch_size": 64, "system": "survey_fig5", "workers": 4, "overlap": False}
    four = pm.predict(network("alexnet"), accumulation_steps=4, **job)
    one, quarter = (pm.predict(network("alexnet"), **{**job, "batch_size": size}) for size in (64, 16))
    assert four.update_s == pytest.approx(one.update_s)
    assert four.exposed_sync_s == pytest.approx(one.exposed_sync_s)
    adding = four.basis.timed.composed.stages[0].times.adding
    assert adding.memory_bound_s > 0  # three of the four add their gradients to those before
    kernels_s = 4 * (quarter.compute_s + quarter.memory_bound_s) + 3 * (adding.compute_s + adding.memory_bound_s)
    assert four.compute_s + four.memory_bound_s == pytest.approx(kernels_s)
    assert four.memory.activations_bytes < one.memory.activations_bytes
    flop = {"update": 0.0, "forward": 0.0}
    for row in quarter.layers:
        flop[row.phase] = flop.get(row.phase, 0) + row.flop_count
    again = sum(row.flop_count for row in four.layers if row.phase == "forward")
    assert again == pytest.approx(4 * flop["forward"])


def test_a_send_takes_the_link_between_the_devices_and_tensor_groups_are_neighbours():
    job = {"batch_size": 16, "system": "dgx_a100", "parallelism": "pipeline"}
    p = pm.predict(network("bert"), workers=2, stages=2, tensor_size=2, micro_batches=4, **job)
    assert [row.devices for row in p.stages] == ["gpu0, gpu1", "gpu2, gpu3"]
    stage = p.spread.stages[0]
    (send,) = (each for each in stage.placed.exchanges if each.kind == "send")
    placed = p.spread.exchanges.placed(send, stage.placed)
    ways = {(route.nodes[0], route.nodes[-1]) for each in placed.rounds for route in placed.routes(each)}
    assert ways == {("gpu0", "gpu2"), ("gpu1", "gpu3"), ("gpu4", "gpu6"), ("gpu5", "gpu7")}
    assert p.play(1).makespan_s == pytest.approx(p.transfer_s + p.step_s)  # the first mini-batch hides behind nothing
    assert p.bubble_s > 0


def test_it_says_who_does_what():
    p = pm.predict(
        network("vgg16"), batch_size=16, system="survey_fig5", parallelism="pipeline", stages=4, micro_batches=8
    )
    said = " ".join(p.explain().split())
    assert "4 devices work (pipeline parallelism)" in said
    assert "Of 4 stages" in said
    assert len(p.to_dict()["stages"]) == 4
    assert sum(row.layers for row in p.stages) == len(network("vgg16").layers)
    low_s, high_s = p.interval_s
    assert low_s < p.step_s < high_s
    own = {row.layer for row in p.layers}
    assert own < {node.name for node in network("vgg16").layers}


def test_groups_that_send_at_once_share_the_network():
    topology = pm.load_system("survey_fig6").topology
    names = topology.devices()
    pair, other = (names[0], names[4]), (names[1], names[5])  # both ways leave the first machine for the second
    alone = place(collective("send_receive"), topology, pair)
    both = place(collective("send_receive"), topology, pair, beside=[other])
    assert both.seconds_per_byte == pytest.approx(2 * alone.seconds_per_byte)
    assert both.latency_s == pytest.approx(alone.latency_s)
    with pytest.raises(ArgumentError, match="beside"):
        place(collective("send_receive"), topology, pair, beside=[names[5:8]])


def test_shared_parameters_and_gradients_travel_for_every_micro_batch():
    job = {"batch_size": 16, "system": "survey_fig5", "workers": 4, "overlap": False}
    size = 4 * network("alexnet").parameter_count
    sent = {
        (stage, steps): pm.predict(
            network("alexnet"), shard_stage=stage, accumulation_steps=steps, **job
        ).stages[0].sent_bytes
        for stage, steps in [(1, 1), (1, 2), (3, 1), (3, 2)]
    }  # fmt: skip
    share = 3 / 4 * size
    assert sent == pytest.approx({(1, 1): 2 * share, (1, 2): 2 * share, (3, 1): 3 * share, (3, 2): 6 * share})


def test_the_command_line_spreads_too(capsys):
    words = ["predict", "vgg16", "--system", "survey_fig5", "--parallelism", "pipeline", "--stages", "4"]
    words += ["--micro-batches", "8", "--parallel-option", "schedule=gpipe", "--json"]
    assert run([*words, "--batch-size", "16"]) == 0
    told = json.loads(capsys.readouterr().out)
    job = {"batch_size": 16, "system": "survey_fig5", "stages": 4, "micro_batches": 8, "schedule": "gpipe"}
    assert told["step_s"] == pytest.approx(pm.predict(network("vgg16"), parallelism="pipeline", **job).step_s)
    assert [row["stage"] for row in told["stages"]] == [0, 1, 2, 3]
    assert run([*words, "--batch-size", "max"]) == 2
    assert "whole network" in capsys.readouterr().err
    assert run([*words, "--batch-size", "16", "--parallel-option", "schedul=gpipe"]) == 2
    assert "schedule" in capsys.readouterr().err


def test_a_cpu_accumulates_too():
    p = pm.predict(network("alexnet"), batch_size=16, device="i7_3820", accumulation_steps=2)
    assert sum(p.breakdown.values()) == pytest.approx(p.step_s)
    assert p.bubble_s == p.sync_s == 0


PIPELINE = {"parallelism": "pipeline"}
FIG5 = {"system": "survey_fig5"}


@pytest.mark.parametrize(
    ("name", "options", "error", "told"),
    [
        ("alexnet", {**FIG5, **PIPELINE, "stages": 8}, ArgumentError, r"at most 4.*1 x 8 x 1 = 8"),
        ("alexnet", {"device": "gtx_1080", **PIPELINE, "stages": 2}, ArgumentError, "system="),
        (
            "fcn5",
            {"system": "survey_fig6", **PIPELINE, "stages": 16},
            ArgumentError,
            r"stages must be at most 8.*\(got 16",
        ),
        ("bert", {"system": "dgx_a100", "parallelism": "tensor", "tensor_size": 5}, ArgumentError, "tensor_size"),
        ("alexnet", {**FIG5, **PIPELINE, "stages": 2, "micro_batches": 3}, ArgumentError, "divisor of the batch"),
        ("alexnet", {**FIG5, "stages": 2}, ArgumentError, r"stages must.*parallelism='data'.*\(got 2"),
        ("alexnet", {**FIG5, "parallelism": "pipelin"}, UnknownNameError, "pipeline"),
        ("alexnet", {**FIG5, **PIPELINE, "stages": 2, "schedule": "gpip"}, UnknownNameError, "gpipe"),
        ("alexnet", {**FIG5, "schedule": "gpipe"}, ArgumentError, "schedule"),
        ("alexnet", {**FIG5, "workers": 4, "shard_stage": 4}, ArgumentError, "shard_stage"),
        ("alexnet", {**FIG5, "workers": 4, "shard_stage": 1, "sync": "none"}, ArgumentError, "shard_stage"),
        ("alexnet", {**FIG5, "workers": 4, "accumulation_steps": 0}, ArgumentError, "accumulation_steps"),
        (
            "alexnet",
            {**FIG5, **PIPELINE, "stages": 2, "shard_stage": 3},
            ArgumentError,
            r"shard_stage must.*gather.*\(got 3",
        ),
        (
            "alexnet",
            {**FIG5, "workers": 2, "parallelism": "hybrid", "accumulation_steps": 2},
            ArgumentError,
            "accumulation",
        ),
        ("alexnet", {**FIG5, "workers": 4, "shard_stage": 1, "phase": "forward"}, ArgumentError, "no optimizer state"),
        (
            "alexnet",
            {**FIG5, "workers": 4, "shard_stage": 1, "sync": "downpour"},
            ArgumentError,
            "the server holds",
        ),
        (
            "alexnet",
            {**FIG5, "workers": 4, "parallelism": "hybrid", "sync": "downpour"},
            ArgumentError,
            "in every step",
        ),
        ("alexnet", {**FIG5, **PIPELINE, "stages": 2, "sequence_parallel": 1}, ArgumentError, "sequence_parallel"),
        ("fcn5", {**FIG5, "workers": 2, "parallelism": "hybrid"}, ArgumentError, "tensor"),
    ],
)
def test_what_cannot_be_is_refused(name, options, error, told):
    with pytest.raises(error, match=told):
        pm.predict(network(name), batch_size=16, **options)


@pytest.mark.parametrize(("parallelism", "size"), [("model", "stages"), ("tensor", "tensor_size")])
def test_a_group_of_one_is_data_parallelism(parallelism, size):
    """One stage, or one device that shares each layer, is the whole network: nothing is cut."""
    job = {"system": "survey_fig5", "workers": 4, "batch_size": 16}
    plain = pm.predict(network("alexnet"), **job)
    alone = pm.predict(network("alexnet"), parallelism=parallelism, **{size: 1}, **job)
    assert alone.breakdown == plain.breakdown
    shared = {"parallelism": "tensor", "sequence_parallel": True}  # with nobody
    assert pm.predict(network("alexnet"), **shared, **job).breakdown == plain.breakdown
