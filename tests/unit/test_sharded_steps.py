"""Steps of workers that share state: micro-batches against whole steps, and one copy of the state or several."""

import pytest

import perfmodel as pm

ENDS = ("node0/gpu0/compute/0", "node0/gpu0/compute/1")
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
    axes = {"shard_stage": [0, 1, 2, 3], "shard_group": [None, 4], "accumulation_steps": [1, 4]}
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
