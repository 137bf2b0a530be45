"""Frameworks' ways with pipelines: which devices are near one another, and what a stage does while it sends."""

from dataclasses import replace

import pytest

import perfmodel as pm
from perfmodel.planning.search.programs.registry import launch_command
from perfmodel.prediction.job.job import Job

GPT = pm.zoo.gpt(layers=8, width=512, heads=8, sequence_length=256, vocabulary=512)
TWO_MACHINES = {"system": "dgx_a100", "machines": 2, "parallelism": "pipeline", "dtype": "bf16", "micro_batches": 8}


def machines_of_stages(framework, *, stages, **how):
    """Return the machines of each stage's devices."""
    job = Job(GPT, batch_size=8, framework=framework, stages=stages, **TWO_MACHINES, **how)
    part, width = job.target.system_part, job.tensor_size
    groups = [part.names[first : first + width] for first in range(0, len(part.names), width)]
    return [{part.node_of(name) for group in groups[stage::stages] for name in group} for stage in range(stages)]


@pytest.mark.parametrize(
    "layout",
    [
        {"workers": 8},
        {"workers": 4, "tensor_size": 2},
        {"workers": 4, "context_size": 2},
        {"workers": 2, "tensor_size": 4},
    ],
)
def test_workers_of_a_stage_share_a_machine_only_where_stages_lie_outermost(layout):
    first, second = machines_of_stages("megatron_core", stages=2, **layout)
    assert len(first) == len(second) == 1
    assert first != second
    assert machines_of_stages("generic", stages=2, **layout) == [first | second] * 2  # a worker stays in a machine


@pytest.mark.parametrize("framework", ["pytorch_2", "generic"])
def test_without_copies_there_is_one_order(framework):
    of_stages = machines_of_stages(framework, stages=16, workers=1)
    assert [len(machines) for machines in of_stages] == [1] * 16
    assert of_stages[:8] == [of_stages[0]] * 8
    assert of_stages[8:] == [of_stages[8]] * 8


@pytest.fixture
def waiting(tmp_path):
    """Return a function from what stages do while they send to a prediction."""

    def predicted(sends, *, micro_batches=8, **how):
        file = tmp_path / f"sends_{sends}.toml"
        file.write_text(
            f'schema_version = 1\nname = "sends {sends}"\ninherits = "pytorch_2"\n\n[exchange]\nsends = "{sends}"\n\n'
            '[[source]]\nfields = ["exchange.sends"]\ntitle = "estimate"\nprovenance = "estimate"\nnote = "a test"\n'
        )
        asked = {"stages": 2, "workers": 8, "sync": "none"} | TWO_MACHINES | how
        return pm.predict(GPT, framework=file, batch_size=8 * micro_batches, **asked | {"micro_batches": micro_batches})

    return predicted


def works(p):
    """Return the work of each stage."""
    return p.basis.prepared.nominal.composed.stages


@pytest.mark.parametrize(("sends", "share"), [("waited", (1, 0)), ("one_by_one", (1, 1))])
def test_what_a_stage_waits_for_is_part_of_its_turns(waiting, sends, share):
    free, held = works(waiting("meanwhile")), works(waiting(sends))
    there_s, back_s = free[0].send_s[0], free[1].send_s[1]
    assert there_s > 0
    assert there_s == pytest.approx(back_s, rel=1e-9)
    forward_s = [now.forward_s - before.forward_s for now, before in zip(held, free, strict=True)]
    backward_s = [now.backward_s - before.backward_s for now, before in zip(held, free, strict=True)]
    own, other = share
    # the first stage sends forward and receives in its backward turn, the last one the other way round
    assert forward_s == pytest.approx([own * there_s, other * back_s], rel=1e-6, abs=1e-12)
    assert backward_s == pytest.approx([other * there_s, own * back_s], rel=1e-6, abs=1e-12)
    assert not any(time_s for stage in held for time_s in stage.send_s)


@pytest.mark.parametrize(("sends", "transfers"), [("waited", 1), ("one_by_one", 2)])
def test_two_stages_lose_that_many_transfers_with_each_micro_batch(waiting, sends, transfers):
    few, many = (waiting(sends, micro_batches=count) for count in (8, 24))
    longest = max(works(waiting("meanwhile")), key=lambda work: work.forward_s + work.backward_s)
    adding_s = float(longest.times.adding.step_s)
    transfer_s = float(sum(works(waiting("meanwhile"))[0].send_s))
    turn_s = float(longest.forward_s + longest.backward_s) + adding_s
    assert (many.step_s - few.step_s) / 16 == pytest.approx(turn_s + transfers * transfer_s, rel=1e-3)


@pytest.mark.parametrize("sends", ["waited", "one_by_one"])
def test_a_step_that_waits_for_its_sends_is_played_as_long(waiting, sends):
    p = waiting(sends, micro_batches=4, workers=4, tensor_size=2)
    assert (p.play(3).makespan_s - p.play(1).makespan_s) / 2 == pytest.approx(p.step_s, rel=1e-9)


def test_frameworks_of_a_sweep_place_their_own_stages():
    s = pm.sweep(
        GPT, batch_size=8, devices=16, stages=[2, 4], framework=["generic", "pytorch_2"], columns=["step_s"],
        **TWO_MACHINES,
    )  # fmt: skip
    assert s["step_s"].tolist() == pytest.approx([s.prediction(row).step_s for row in range(len(s))], rel=1e-12)


@pytest.mark.parametrize(("framework", "is_told"), [("generic", True), ("megatron_core", False)])
def test_megatron_is_told_an_order_that_is_not_its_own(framework, is_told):
    job = Job(GPT, batch_size=8, framework=framework, stages=2, workers=8, **TWO_MACHINES)
    command = launch_command(job, "megatron", devices_per_machine=8)
    assert ("--use-tp-pp-dp-mapping" in command) == is_told


def test_shares_take_their_part_of_a_send_and_a_gather_inside_the_machine():
    layout = {"stages": 2, "workers": 2, "tensor_size": 4}
    whole, shares = (
        Job(GPT, batch_size=8, framework=framework, **TWO_MACHINES, **layout).prepared
        for framework in ("pytorch_2", "megatron_core")
    )
    (whole_s, sent), (shares_s, _) = (
        prepared._exchange_times(prepared.stages[0])["forward", "pipeline"][0][::-1] for prepared in (whole, shares)
    )
    size_bytes = sent.size_bytes(1)
    assert size_bytes == 256 * 512 * 2
    gather = replace(sent, kind="all_gather", group="tensor")
    parts_s = [
        whole.exchanges(each, size, whole.stages[0].placed)
        for each, size in ((sent, size_bytes / 4), (gather, size_bytes))
    ]
    assert shares_s == pytest.approx(sum(parts_s), rel=1e-12)
    assert whole_s == pytest.approx(whole.exchanges(sent, size_bytes, whole.stages[0].placed), rel=1e-12)


@pytest.mark.parametrize(("framework", "waits"), [("megatron_core", False), ("megatron_2021", True)])
def test_interleaved_stages_wait_where_their_framework_says_so(framework, waits):
    layout = {"stages": 2, "workers": 8, "schedule": "interleaved", "interleave": 2}
    p = pm.predict(GPT, batch_size=8, framework=framework, **TWO_MACHINES, **layout)
    assert (sum(stage.send_s[0] for stage in works(p)) == 0) == waits
