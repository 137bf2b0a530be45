"""Stage 2 of FSDP and stage 1 of torch, against arithmetic by hand, against stage 3, and played."""

from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.records import Phase

GPT = pm.zoo.gpt(layers=4, width=1024, heads=8, sequence_length=512, vocabulary=8000)
JOB = {"dtype": "bf16", "sync": "all_reduce", "system": "dgx_h100", "optimizer": "adam"}
FSDP = ("pytorch_2", "torchtitan")
STEP_ENDS = tuple(f"{machine}gpu0/compute/{step}" for machine in ("", "node0/") for step in (0, 1))


def predicted(stage, framework="pytorch_2", **how):
    job = {"workers": 8, "batch_size": 2, **JOB, **how}
    return pm.predict(GPT, framework=framework, shard_stage=stage, **job)


def gathers(prediction):
    """Bytes of all gathers of parameters, by phase."""
    sizes = dict.fromkeys(Phase, 0)
    for stage in prediction.basis.prepared.stages:
        for exchange in stage.placed.exchanges:
            if exchange.kind == "all_gather" and exchange.group == "data":
                sizes[exchange.phase] += exchange.fixed_bytes
    return {phase: size for phase, size in sizes.items() if size}


def test_each_stage_of_torch_gathers_what_its_source_says():
    """Parameters that an optimizer has updated are in fp32, gathered shares and Megatron's whole ones in bf16."""
    count = GPT.trained_parameter_count
    assert gathers(predicted(0)) == {}
    assert gathers(predicted(1)) == {Phase.UPDATE: 4 * count}
    assert gathers(predicted(2)) == {Phase.FORWARD: 2 * count}
    outside_blocks = 8000 * 1024 + 512 * 1024 + 2 * 1024  # words, which scores share, positions, and the last norm
    assert gathers(predicted(3)) == {Phase.FORWARD: 2 * count, Phase.BACKWARD: 2 * (count - outside_blocks)}
    for stage in (1, 2):
        assert gathers(predicted(stage, "megatron_core")) == {Phase.UPDATE: 2 * count}
    assert gathers(predicted(1, dtype="fp32")) == {Phase.UPDATE: 4 * count}


def test_the_optimizer_of_torch_sends_four_bytes_of_each_parameter():
    """Rings send fp32 gradients twice, as stage 0 does, and updated parameters once."""
    shared = predicted(1, sync="ring_all_reduce").stages[0].sent_bytes
    assert shared == pytest.approx((2 + 1) * 4 * GPT.trained_parameter_count * 7 / 8, rel=1e-6)


@pytest.mark.parametrize("framework", FSDP)
@pytest.mark.parametrize("machines", [1, 2])
@pytest.mark.parametrize("how", [{}, {"accumulation_steps": 2}, {"recompute": "full"}, {"overlap": False}], ids=str)
def test_stage_2_is_no_slower_and_no_smaller_than_stage_3(framework, machines, how):
    """It has the same gathers in the forward phase, and none in the backward phase."""
    two, three = (predicted(stage, framework, workers=8 * machines, machines=machines, **how) for stage in (2, 3))
    assert two.step_s < three.step_s
    assert two.memory.total_bytes > three.memory.total_bytes
    assert two.memory.optimizer_bytes == three.memory.optimizer_bytes
    assert two.memory.gradients_bytes == three.memory.gradients_bytes


def test_no_limit_holds_gathers_back_that_free_nothing():
    """In VGG-16 layers with few parameters compute long before the first of three that have nine tenths of them.

    Stage 3 gathers one of them ahead; stage 2 begins the next as soon as the link is free: it waits for no more than
    the first gather and what the layers' computing leaves of all others.
    """
    network = pm.zoo.vgg16()
    job = {**JOB, "framework": "pytorch_2", "workers": 16, "machines": 2, "batch_size": 4}
    devices, waited_s = {}, {}
    for stage in (2, 3):
        prepared = pm.predict(network, shard_stage=stage, **job).basis.prepared
        (devices[stage],) = prepared.nominal.composed.devices
        forward_alone = replace(devices[stage], gathers=devices[stage].gathers[:1])
        waited_s[stage] = prepared.agreement._gathered(forward_alone)[1]
    (gather,) = devices[2].gathers
    slowdown = prepared.agreement.slowdown
    sent_s = [(1 - slowdown) * seconds for seconds in gather.seconds]
    ends_s, end_s = np.cumsum(sent_s), 0.0
    for arrived_s, computed_s in zip(ends_s, gather.computed_s, strict=True):
        end_s = max(end_s, arrived_s) + computed_s
    held_s = slowdown * sum(gather.seconds) + gather.copied_s
    assert waited_s[2] == pytest.approx(end_s - sum(gather.computed_s) + held_s, rel=1e-9)
    assert waited_s[2] < 0.8 * waited_s[3]
    with pytest.raises(ArgumentError, match="prefetch_limit must be 1 unless shard_stage=3"):
        pm.predict(network, shard_stage=2, prefetch_limit=2, **job)


def test_parameters_that_stay_for_later_micro_batches_are_gathered_once():
    """With ``no_sync`` flat parameters stay until gradients are added up; ``fully_shard`` frees them each time."""
    for framework, times in (("pytorch_2", 1), ("torchtitan", 4)):
        often = predicted(2, framework, batch_size=8, accumulation_steps=4, no_sync=True)
        once = predicted(2, framework, batch_size=2)
        scattered = 4 * GPT.trained_parameter_count * 7 / 8
        gathered = once.stages[0].sent_bytes - scattered
        assert often.stages[0].sent_bytes == pytest.approx(scattered + times * gathered, rel=1e-6)
        (device,) = once.basis.prepared.nominal.composed.devices
        (gather,) = device.gathers
        again_s = (times - 1) * (gather.total_s + gather.copied_s)
        assert often.sync_s == pytest.approx(once.sync_s + again_s, rel=1e-9)


def test_a_sweep_keeps_gradients_from_pass_to_pass_of_interleaved_stages():
    """Of one pass, no chunk's whole gradients wait for those of another, of several they do."""
    job = {"parallelism": "pipeline", "stages": 2, "schedule": "interleaved", "interleave": 2, "micro_batches": 2}
    job |= {**JOB, "framework": "pytorch_2", "workers": 4, "shard_stage": 2, "no_sync": True, "batch_size": 8}
    found = pm.sweep(GPT, accumulation_steps=[1, 2, 4], columns=["memory_bytes"], **job)["memory_bytes"]
    footprints = [pm.predict(GPT, accumulation_steps=passes, **job).memory for passes in (1, 2, 4)]
    assert found.tolist() == pytest.approx([memory.total_bytes for memory in footprints], rel=1e-12)
    assert footprints[0].gradients_bytes < footprints[1].gradients_bytes == footprints[2].gradients_bytes


@pytest.mark.parametrize(
    "how",
    [
        {"accumulation_steps": 2},
        {"accumulation_steps": 2, "no_sync": True},
        {"parallelism": "pipeline", "stages": 2, "micro_batches": 4, "no_sync": True},
        {"parallelism": "pipeline", "stages": 2, "micro_batches": 4, "schedule": "interleaved", "interleave": 2},
    ],
    ids=str,
)
def test_a_sweep_a_simulation_and_a_formula_gather_alike(how):
    job = {**JOB, "framework": "pytorch_2", "workers": 4, "batch_size": 8}
    swept = pm.sweep(
        GPT,
        **{name: [value] for name, value in how.items()},
        **job,
        shard_stage=[1, 2, 3],
        columns=("reason", "step_s", "memory_bytes"),
    )
    assert not swept.row(1)["reason"]
    for row in (row for row in map(swept.row, range(3)) if not row["reason"]):
        p = pm.predict(GPT, **how, **job, shard_stage=row["shard_stage"])
        assert row["step_s"] == pytest.approx(p.step_s, rel=1e-12)
        assert row["memory_bytes"] == pytest.approx(p.memory.total_bytes, rel=1e-12)
        first, second = (span.end_s for span in p.play(2).spans if span.task in STEP_ENDS)
        assert second - first == pytest.approx(p.step_s, rel=1e-9 if "stages" not in how else 0.03)
    formula = pm.formula("step_s", graph=GPT, free="peak_flop_per_s", **how, **job, shard_stage=2)
    step_s = pm.predict(GPT, **how, **job, shard_stage=2).step_s
    assert float(formula(**formula.stated)) == pytest.approx(step_s, rel=1e-9)


@pytest.mark.parametrize("framework", FSDP)
def test_passes_where_layers_compute_take_nothing_where_messages_take_longer(framework):
    """Gradients are concatenated beside the messages of units before, unlike casts on the stream of the messages."""
    p = predicted(3, framework, workers=16, machines=2, batch_size=1)
    prepared = p.basis.prepared
    (device,) = prepared.nominal.composed.devices
    agreement = prepared.agreement
    (reduction,) = agreement.reductions
    slow = replace(device, schedule=device.schedule.slowed(1e-6))  # nothing to compute
    sizes_bytes = agreement.messages(reduction, device.schedule).sizes_bytes
    first, second = sizes_bytes[:2].cumsum() / sizes_bytes.sum()  # that of the last norm and that of a block
    (total_s, exposed_s), (free_s, free_exposed_s) = (
        agreement.gathered(replace(each, gathers=())) for each in (slow, replace(slow, joined_s=0.0))
    )
    assert device.joined_s > 0
    assert total_s - free_s == pytest.approx(device.joined_s, rel=1e-9)
    assert first * device.joined_s < exposed_s - free_exposed_s < second * device.joined_s < 0.5 * device.joined_s
    busy = replace(device, schedule=device.schedule.slowed(1e6))  # messages end long before the next is ready
    assert agreement.gathered(replace(busy, gathers=()))[1] - agreement.gathered(
        replace(busy, gathers=(), joined_s=0.0)
    )[1] == pytest.approx(device.joined_s, rel=1e-6)


def test_gradients_wait_for_the_passes_over_those_before():
    schedule = predicted(3).basis.prepared.nominal.composed.devices[0].schedule
    later = schedule.later(0.5)
    assert (later.ready_s - schedule.ready_s)[-1] == pytest.approx(0.5)
    assert np.all(np.diff(later.ready_s - schedule.ready_s) > 0)
    assert later.backward_s == schedule.backward_s + 0.5


def test_casts_before_messages_cost_no_more_where_sums_among_copies_take_longest():
    """Casts of units that follow hide behind them: what is left is that of the first, before anything is sent."""
    p = predicted(3, workers=32, machines=4, shard_group=8, batch_size=1)
    (device,), agreement = p.basis.prepared.nominal.composed.devices, p.basis.prepared.agreement
    (reduction,) = agreement.reductions
    messages = agreement.messages(reduction, device.schedule)
    copies_s, scattered_s = (way.time(messages.sizes_bytes).sum() for way in (reduction.among_copies, reduction.placed))
    assert copies_s > scattered_s + device.cast_s > device.cast_s > 0
    slow = replace(device, schedule=device.schedule.slowed(1e-6), gathers=())  # nothing to compute
    added_s = agreement.gathered(slow)[1] - agreement.gathered(replace(slow, cast_s=0.0))[1]
    assert 0 < added_s < 0.5 * device.cast_s
    first, second = (span.end_s for span in p.play(2).spans if span.task in STEP_ENDS)
    assert second - first == pytest.approx(p.step_s, rel=1e-9)
