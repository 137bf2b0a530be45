"""Steps of workers that share state: micro-batches against whole steps, and one copy of the state or several."""

from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.cost.overlap import chained_exchange, slowed_exchange
from perfmodel.prediction.job.agreement import Synchronous

ENDS = tuple(f"{machine}gpu0/compute/{step}" for machine in ("", "node0/") for step in (0, 1))
JOB = {"framework": "pytorch_2", "dtype": "bf16", "sync": "all_reduce", "system": "dgx_h100"}


@pytest.fixture(scope="module")
def network():
    return pm.zoo.gpt(layers=4, width=1024, heads=8, sequence_length=512, vocabulary=8000)


def steps(network, parts, **how):
    """A step of so many micro-batches of two sequences, and one of a single such micro-batch."""
    job = {"optimizer": "adam", **JOB, **how}
    return tuple(pm.predict(network, batch_size=2 * n, accumulation_steps=n, **job) for n in (parts, 1))


def played_s(prediction):
    """Time from the end of the first step to that of the second, as it is played."""
    first, second = (span.end_s for span in prediction.play(2).spans if span.task in ENDS)
    return second - first


@pytest.mark.parametrize("machines", [1, 2])
@pytest.mark.parametrize(
    "shared",
    [
        {},
        {"shard_stage": 1},
        {"shard_stage": 1, "shard_group": 4},
        {"shard_stage": 2},
        {"shard_stage": 2, "no_sync": True},
        {"shard_stage": 2, "shard_group": 2},
        {"shard_stage": 3},
        {"shard_stage": 3, "shard_group": 1},
        {"shard_stage": 3, "shard_group": 4},
        {"shard_stage": 3, "shard_group": 4, "overlap": False},
        {"shard_stage": 3, "gradient_dtype": "bf16"},
        {"shard_stage": 3, "prefetch_limit": 2, "sync": "ring_all_reduce"},
    ],
    ids=str,
)
def test_micro_batches_take_no_longer_than_as_many_whole_steps(network, shared, machines):
    """They spare all updates but one, and of gradients they add up no more than they keep."""
    for parts in (2, 5):
        together, alone = steps(network, parts, workers=8 * machines, machines=machines, **shared)
        assert alone.step_s < together.step_s < parts * alone.step_s


def test_what_the_sums_cost_can_exceed_what_they_spare_where_nothing_else_is_spared(network):
    """Plain SGD costs no more than a sum of gradients, and a sum of whole ones can be dearer than a hidden exchange."""
    for machines, optimizer, no_sync in ((1, "sgd", False), (2, "adam", True), (2, "sgd", True)):
        how = {"optimizer": optimizer, "shard_stage": 3, "no_sync": no_sync}
        parts = 4
        together, alone = steps(network, parts, workers=8 * machines, machines=machines, **how)
        share = 1 if no_sync else 1 / (8 * machines)
        added_s = (parts - 1) * share * together.basis.timed.composed.stages[0].times.adding.step_s
        assert alone.step_s < together.step_s < parts * alone.step_s + added_s


@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("group", [None, 8])
def test_scattered_gradients_are_added_up_by_shares(network, stage, group):
    """Whole gradients (``no_sync``) are added up as without sharing, scattered ones by a device's share of them."""
    job = {"workers": 16, "machines": 2}
    parts = 4
    whole, whole_once = steps(network, parts, **job)
    added_s = whole.memory_bound_s - parts * whole_once.memory_bound_s
    for no_sync, share in ((True, 1), (False, 1 / (group or 16))):
        shared = {"shard_stage": stage, "shard_group": group, "no_sync": no_sync}
        together, once = steps(network, parts, **job, **shared)
        assert together.memory_bound_s - parts * once.memory_bound_s == pytest.approx(share * added_s, rel=1e-9)


def test_a_sweep_and_a_simulation_add_up_the_same_shares(network):
    """Stages and groups of one sweep share all numbers but these."""
    axes = {"shard_stage": [0, 1, 2, 3], "shard_group": [None, 4, 8], "accumulation_steps": [1, 4]}
    job = {**JOB, "optimizer": "adam", "batch_size": 4, "workers": 16, "machines": 2}
    swept = pm.sweep(network, **axes, **job)
    for row in swept.rows:
        if row.reason:
            continue
        layout = {name: getattr(row, name) for name in axes}
        p = pm.predict(network, **layout, **job)
        assert row.step_s == pytest.approx(p.step_s, rel=1e-12), layout
        if row.shard_stage:
            assert played_s(p) == pytest.approx(p.step_s, rel=1e-9), layout


def exchange_of(prediction):
    """What the first device exchanges with other workers, and how."""
    prepared = prediction.basis.prepared
    assert isinstance(prepared.agreement, Synchronous)
    (device,) = prepared.nominal.composed.devices
    return device, prepared.agreement


def test_groups_of_all_share_like_one_group_and_groups_of_one_like_copies(network):
    job = {**JOB, "optimizer": "adam", "batch_size": 2, "workers": 16, "machines": 2}
    one_group, everybody = (pm.predict(network, shard_stage=3, shard_group=size, **job) for size in (16, None))
    assert one_group.step_s == everybody.step_s
    # sharded workers send block by block otherwise; software without copies, casts or divisions of its own for either
    job |= {"bucket_bytes": 25 * 2**20, "framework": "megatron_core"}
    alone, copies = pm.predict(network, shard_stage=3, shard_group=1, **job), pm.predict(network, **job)
    assert alone.step_s == pytest.approx(copies.step_s, rel=1e-12)
    assert alone.memory.optimizer_bytes == copies.memory.optimizer_bytes


BYTES = {  # of bf16 parameters and gradients held and summed in fp32: of all of them, and of a device's share
    "pytorch_2": {"computing": (4, 0), "gather": (0, 6), "scatter": (6 + 8, 8)},
    "torchtitan": {"computing": (2 * 4 + 6, 0), "gather": (0, 6 + 4), "scatter": (0, 0)},
}


PASSES = {"computing": 1, "gather": 2, "scatter": 1}  # times in a micro-batch


@pytest.mark.parametrize("framework", BYTES)
@pytest.mark.parametrize("parts", [1, 3])
def test_sharded_software_moves_the_bytes_that_its_source_says(network, framework, parts):
    """Each micro-batch moves all of it again."""
    device_count, job = 8, {**JOB, "framework": framework, "optimizer": "adam", "workers": 8, "shard_stage": 3}
    job |= {"batch_size": parts, "accumulation_steps": parts, "gradient_dtype": "fp32", "overlap": False}
    p = pm.predict(network, **job)
    device, agreement = exchange_of(p)
    prepared = p.basis.prepared
    (stage,) = prepared.stages
    exchanges = prepared.exchanges
    gathered_s = sum(
        exchanges(exchange, exchange.size_bytes(0), stage.placed)
        for exchange in stage.placed.exchanges
        if exchange.kind == "all_gather"
    )
    messages = agreement.messages(agreement.reduction, device.schedule)
    messages_s = gathered_s + agreement.reduction.placed.time(messages.sizes_bytes).sum()
    moved = BYTES[framework]
    per_parameter = sum(
        times * (whole + share / device_count)
        for times, (whole, share) in ((times, moved[kind]) for kind, times in PASSES.items())
    )
    bandwidth = 0.88 * 3.35e12
    moved_s = network.trained_parameter_count * per_parameter / bandwidth
    # units' launches come on top, of six passes over five units at most
    assert 0 < p.sync_s / parts - messages_s - moved_s < 1e-3
    assert p.sync_s / parts - messages_s == pytest.approx(moved_s, rel=0.15)
    assert played_s(p) == pytest.approx(p.step_s, rel=1e-9)


@pytest.mark.parametrize("framework", BYTES)
def test_passes_of_sharded_software_hide_behind_no_computing(network, framework):
    """However much there is to compute: their blocks take multiprocessors from it, unlike most of what messages do."""
    job = {**JOB, "framework": framework, "optimizer": "adam", "workers": 8, "shard_stage": 3, "gradient_dtype": "fp32"}
    p = pm.predict(network, batch_size=64, **job)
    device, agreement = exchange_of(p)
    free = replace(
        device,
        copied_s=0.0,
        cast_s=0.0,
        joined_s=0.0,
        gathers=tuple(replace(gather, copied_s=0.0) for gather in device.gathers),
    )
    (total_s, exposed_s), (free_s, free_exposed_s) = (agreement.gathered(each) for each in (device, free))
    moved = BYTES[framework]
    whole, share = (sum(times * moved[kind][place] for kind, times in PASSES.items()) for place in (0, 1))
    moved_s = network.trained_parameter_count * (whole + share / 8) / (0.88 * 3.35e12)
    assert free_exposed_s < 0.5 * free_s, "messages hide"
    assert exposed_s - free_exposed_s == pytest.approx(total_s - free_s, rel=1e-9)
    assert 0 < total_s - free_s - moved_s < 1e-3, "units' launches come on top"
    assert played_s(p) == pytest.approx(p.step_s, rel=1e-9)


def test_gathered_parameters_arrive_in_the_type_of_products(network):
    """Workers that scatter gradients cast no whole weights, as others do before every product."""
    job = {**JOB, "optimizer": "adam", "batch_size": 1, "workers": 8}

    def kernel_count(stage):
        return len(pm.predict(network, shard_stage=stage, **job).basis.prepared.lowered.table.occurrences)

    assert kernel_count(0) == kernel_count(1) > kernel_count(2) == kernel_count(3)


@pytest.mark.parametrize(
    ("framework", "sizes_at"),
    [
        ("pytorch_2", {1: (4, 4), 2: (4, 2), 3: (4, 2)}),
        ("llm_foundry", {1: (4, 4), 2: (2, 2), 3: (2, 2)}),
        ("torchtitan", {2: (2, 2), 3: (2, 2)}),
    ],
)
def test_what_narrow_embeddings_begin_stays_narrow(network, framework, sizes_at):
    """Autocast's layer norm returns fp32 wherever it is, that of LLM Foundry what it reads; sums widen if one part is.

    Embeddings in fp32 make every sum fp32; with parameters that arrive in bf16 (FSDP's ``param_dtype``) both parts are
    bf16.
    """
    job = {**JOB, "framework": framework, "optimizer": "adam", "batch_size": 1, "workers": 8}
    nodes = {node.name: node for node in network.layers}
    for stage, sizes in sizes_at.items():
        types = pm.predict(network, shard_stage=stage, **job).basis.prepared.lowered.types
        results = {nodes[name].layer.kind: set() for name in types}
        for name, each in types.items():
            results[nodes[name].layer.kind].add(each.result_bytes)
        assert results["layer_norm"] == {sizes[0]}
        assert results["add"] == results["embedding"] == {sizes[1]}


def test_llm_foundry_keeps_scores_narrow_and_judges_them_twice():
    """A fused loss reads the scores in bf16 (2 reads) and writes a gradient in bf16; each of two metrics casts them to
    fp32 (1 read, 2 writes of the narrow size) and takes a log-softmax (4 and 2). Without metrics and with fp32 scores
    the published run of MPT 350M below would need 1.24 times the memory of its boards.
    """
    rows, words = 18, 50_368
    mpt_350m = pm.zoo.gpt(layers=24, width=1024, heads=16, sequence_length=2048, vocabulary=words)
    p = pm.predict(
        mpt_350m,
        batch_size=rows,
        dtype="bf16",
        framework="llm_foundry",
        optimizer="adam",
        system="dgx_a100",
        machines=2,
        workers=16,
        sync="all_reduce",
        shard_stage=3,
        gradient_dtype="bf16",
    )
    scores = rows * 2048 * words
    loss = {row.kernel: row.bytes for row in p.rows if row.layer == "loss"}
    assert loss == pytest.approx(
        {"cross_entropy": 2 * (2 + 2 * (5 + 4)) * scores, "cross_entropy_backward": 2 * 2 * scores}, rel=1e-3
    )
    assert p.memory.fits


def test_shares_are_added_up_among_copies_beside_the_scattering_that_goes_on(network):
    """Machines scatter over NVLink and add up over adapters; halves of machines need NVLink for both."""
    for group, in_turn in ((8, False), (4, True)):
        p = pm.predict(
            network, batch_size=2, optimizer="adam", shard_stage=3, shard_group=group, workers=16, machines=2, **JOB
        )
        device, agreement = exchange_of(p)
        (reduction,), schedule = agreement.reductions, device.schedule
        assert reduction.among_copies.in_turn is in_turn
        messages = agreement.messages(reduction, schedule)
        total_s, exposed_s = reduction.exchanged(messages, schedule, overlap=True)
        one_after_the_other = replace(reduction, among_copies=replace(reduction.among_copies, in_turn=True))
        _, in_turn_s = one_after_the_other.exchanged(messages, schedule, overlap=True)
        scattered_s, _ = replace(reduction, among_copies=None).exchanged(messages, schedule, overlap=True)
        last_s = reduction.among_copies.time(messages.sizes_bytes[-1])
        assert total_s == pytest.approx(scattered_s + reduction.among_copies.time(messages.sizes_bytes).sum())
        assert last_s < exposed_s
        assert (exposed_s < 0.8 * in_turn_s) is not in_turn
        assert played_s(p) == pytest.approx(p.step_s, rel=1e-9)


PIPELINE = {"parallelism": "pipeline", "stages": 2, "micro_batches": 4, "batch_size": 8, "optimizer": "adam"}


@pytest.mark.parametrize("schedule", [{}, {"schedule": "interleaved", "interleave": 2}], ids=str)
def test_groups_in_pipelines_are_those_of_plain_workers(network, schedule):
    """One group of all is no group; of one worker, a copy; and memory is that of one group without others."""
    job = {**JOB, **PIPELINE, **schedule, "framework": "megatron_core"}
    for stage in (1, 2):
        everybody, one_group, pairs = (
            pm.predict(network, shard_stage=stage, workers=4, shard_group=size, **job) for size in (None, 4, 2)
        )
        assert one_group.step_s == everybody.step_s
        assert one_group.memory == everybody.memory
        alone = pm.predict(network, shard_stage=stage, workers=2, **job)
        assert pairs.memory == alone.memory
        assert pairs.step_s > alone.step_s
    copies = pm.predict(network, workers=4, **job)
    for shared in ({"shard_stage": 1}, {"shard_stage": 2, "no_sync": True, "bucket_bytes": 0.0}):
        alone = pm.predict(network, workers=4, shard_group=1, **shared, **job)
        how = {name: size for name, size in shared.items() if name == "bucket_bytes"}
        assert alone.step_s == pytest.approx(pm.predict(network, workers=4, **how, **job).step_s, rel=1e-12)
        assert alone.memory.total_bytes == copies.memory.total_bytes


@pytest.mark.parametrize("framework", ["pytorch_2", "megatron_core"])
@pytest.mark.parametrize("no_sync", [False, True])
def test_scattering_in_pipelines_takes_as_long_as_it_is_played(network, framework, no_sync):
    """Casts of the last micro-batch too; and sums among copies that share links slow turns as other messages do."""
    for group in (None, 2):
        job = {**JOB, **PIPELINE, "framework": framework, "shard_stage": 2, "shard_group": group, "no_sync": no_sync}
        p = pm.predict(network, workers=4, **job)
        assert all(device.cast_s for device in p.basis.prepared.nominal.composed.devices) is (framework == "pytorch_2")
        assert p.play(3).makespan_s - p.play(2).makespan_s == pytest.approx(p.step_s, rel=1e-9), group


def test_what_is_told_of_groups_with_copies_is_what_they_send_and_keep_from_computing(network):
    """Bytes as rings send them, for every micro-batch; the share of the device that each of both exchanges takes."""
    parts, size = 4, 4 * network.trained_parameter_count
    job = {**JOB, "optimizer": "adam", "workers": 16, "machines": 2, "shard_stage": 2, "shard_group": 8}
    once, often = (
        pm.predict(network, batch_size=n, accumulation_steps=n, overlap=False, **job).stages[0] for n in (1, parts)
    )
    gathered = 2 * network.trained_parameter_count * 7 / 8  # of bf16 parameters, before each forward turn
    assert once.sent_bytes - gathered == pytest.approx(size * 7 / 8 + size / 8, rel=1e-6)
    assert often.sent_bytes == pytest.approx(parts * once.sent_bytes, rel=1e-6)
    p = pm.predict(network, batch_size=64, **job)
    agreement = p.basis.prepared.agreement
    assert float(agreement.lost_s(p.sync_s, p.basis.timed.composed)) < p.exposed_sync_s


def test_a_formula_of_groups_with_copies_is_what_is_predicted(network):
    job = {**JOB, "optimizer": "adam", "workers": 16, "machines": 2, "shard_stage": 3, "shard_group": 8}
    formula = pm.formula("step_s", graph=network, free="batch_size", **job)
    for batch_size in (1, 32):
        step_s = pm.predict(network, batch_size=batch_size, **job).step_s
        assert float(formula(batch_size=batch_size)) == pytest.approx(step_s, rel=1e-9)


def test_a_formula_of_workers_moves_what_is_predicted(network):
    job = {**JOB, "optimizer": "adam", "batch_size": 2, "accumulation_steps": 2, "shard_stage": 3}
    formula = pm.formula("step_s", graph=network, free="workers", **job, workers=8)
    for workers in (1, 2, 8):
        step_s = pm.predict(network, **job, workers=workers).step_s
        assert float(formula(workers=workers)) == pytest.approx(step_s, rel=1e-9)


SECONDS = st.floats(0.0, 10.0)


@given(
    st.lists(st.tuples(SECONDS, SECONDS, SECONDS, SECONDS), min_size=1, max_size=6),
    st.floats(0, 0.3),
    st.floats(0, 0.3),
)
def test_chained_messages_end_when_playing_them_does(pieces, taken, following):
    """Computing slows down as channels are busy, step by step in time, against the recurrence in work done."""
    waits_s, passes_s, message_s, following_s = zip(*pieces, strict=True)
    ready_s = list(accumulate(waits_s))
    how = {"message_s": (message_s, following_s), "slowdown": (taken, following), "passes_s": passes_s}
    added_s = chained_exchange(ready_s=ready_s, computed_s=ready_s[-1], **how)
    assert ready_s[-1] + added_s == pytest.approx(played_chain_s(ready_s, **how), rel=1e-9, abs=1e-9)
    in_turn_s = chained_exchange(ready_s=ready_s, computed_s=ready_s[-1], in_turn=True, **how)
    assert in_turn_s >= added_s - 1e-9
    first = {"ready_s": ready_s, "message_s": list(message_s), "computed_s": ready_s[-1], "slowdown": taken}
    how["message_s"] = message_s, [0.0] * len(pieces)
    nothing = chained_exchange(ready_s=ready_s, computed_s=ready_s[-1], **how)
    assert nothing == pytest.approx(sum(passes_s) + slowed_exchange(**first), rel=1e-9, abs=1e-9)


def played_chain_s(ready_s, *, message_s, slowdown, passes_s):
    """End of all messages, from event to event; before each, computing stands still for its pass. [s]"""
    left, passes = [list(message_s[0]), list(message_s[1])], list(passes_s)
    now, done, sent = 0.0, 0.0, [0, 0]
    while sent[1] < len(ready_s):
        can = [sent[0] < len(ready_s) and done >= ready_s[sent[0]] - 1e-12, sent[1] < sent[0]]
        if can[0] and passes[sent[0]]:
            step = min(passes[sent[0]], *[left[1][sent[1]]] * can[1], passes[sent[0]])
            now, passes[sent[0]] = now + step, passes[sent[0]] - step
            if can[1]:
                left[1][sent[1]] -= step
            while sent[1] < sent[0] and left[1][sent[1]] <= 1e-12:
                sent[1] += 1
            continue
        speed = 1 - sum(share for share, busy in zip(slowdown, can, strict=True) if busy)
        spans = [left[lane][sent[lane]] for lane in (0, 1) if can[lane]]
        if sent[0] < len(ready_s) and not can[0]:
            spans.append((ready_s[sent[0]] - done) / speed)
        step = min(spans)
        now, done = now + step, done + speed * step
        for lane in (0, 1):
            if can[lane]:
                left[lane][sent[lane]] -= step
        for lane in (0, 1):
            while can[lane] and sent[lane] < len(ready_s) and left[lane][sent[lane]] <= 1e-12:
                sent[lane] += 1
                can[lane] = False
    return max(now, ready_s[-1] + now - done)


def test_formula_of_groups_with_copies_in_two_machines_equals_the_prediction():
    network = pm.zoo.gpt(layers=2, width=256, heads=4, sequence_length=128, vocabulary=1000)
    job = {"system": "dgx_h100", "machines": 2, "workers": 16, "shard_stage": 3, "shard_group": 8, "batch_size": 4}
    job |= {"dtype": "bf16", "optimizer": "adam", "framework": "pytorch_2", "sync": "all_reduce"}
    formula = pm.formula("step_s", graph=network, free="link_bandwidth_bytes_per_s", **job)
    assert float(formula(**formula.stated)) == pytest.approx(pm.predict(network, **job).step_s, rel=1e-9)


def test_gathers_and_sums_of_a_backward_phase_share_its_links():
    # a slow network decides the step: larger mini-batches hide some of either, not of both at once
    how = {"system": "gce_a2_ultragpu_8g", "machines": 4, "workers": 32, "shard_stage": 3, "sync": "all_reduce"}
    how |= {"framework": "pytorch_2", "dtype": "bf16", "optimizer": "adamw"}
    steps = [pm.predict(pm.zoo.vit(), batch_size=size, **how) for size in (1, 16, 48, 64)]
    for p in steps:
        assert p.step_s > p.sync_s  # gathered twice and scattered once, one after the other
        assert p.step_s == pytest.approx(steps[0].step_s, rel=0.01)
    busy = pm.predict(pm.zoo.vit(), batch_size=512, **how)
    assert busy.exposed_sync_s < 0.5 * busy.sync_s  # computing hides them
