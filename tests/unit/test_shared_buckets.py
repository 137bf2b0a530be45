"""Buffers in which gradients travel, as torch has them with each stage of sharing."""

from dataclasses import replace

import pytest

import perfmodel as pm

GPT = pm.zoo.gpt(layers=4, width=1024, heads=8, sequence_length=256, vocabulary=8000)
JOB = {"batch_size": 1, "optimizer": "adam", "dtype": "bf16", "sync": "all_reduce", "system": "dgx_h100"}
GRADIENTS = 4.0 * GPT.parameter_count


def memory(stage, workers=8, framework="pytorch_2", **how):
    return pm.predict(GPT, shard_stage=stage, workers=workers, framework=framework, **JOB, **how).memory


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("framework", ["pytorch_2", "megatron_core", "generic"])
def test_one_worker_shares_nothing(framework, stage):
    """Nor does FSDP with ``param_dtype``; but its parameters come in bf16, no copies beside wide activations."""
    shared, whole = (memory(each, workers=1, framework=framework) for each in (stage, 0))
    if framework == "pytorch_2" and stage > 1:
        assert shared.weights_bytes < whole.weights_bytes
        assert shared.activations_bytes < whole.activations_bytes
        whole = replace(whole, weights_bytes=shared.weights_bytes, activations_bytes=shared.activations_bytes)
    assert shared == whole


def test_stage_1_of_torch_keeps_the_buckets_of_stage_0():
    """ZeroRedundancyOptimizer runs beside DistributedDataParallel, whose buckets are a second copy of all gradients."""
    whole, shared = memory(0), memory(1)
    assert whole.gradients_bytes == shared.gradients_bytes == pytest.approx(2 * GRADIENTS)
    assert shared.optimizer_bytes == pytest.approx(whole.optimizer_bytes / 8)
    assert shared.total_bytes == pytest.approx(whole.total_bytes - 7 / 8 * whole.optimizer_bytes)


def test_stage_1_of_megatron_exchanges_gradients_where_they_are():
    """Its gradients are views into the buffer that is scattered, and so nothing is there twice."""
    assert memory(1, framework="megatron_core").gradients_bytes == pytest.approx(GRADIENTS)


def test_stage_1_of_torch_adds_up_all_gradients_as_stage_0_does():
    """Beside the same all-reduce, it gathers what each worker has updated."""
    jobs = [pm.predict(GPT, shard_stage=stage, workers=8, framework="pytorch_2", **JOB) for stage in (0, 1)]
    whole, shared = (p.agreement.reductions[0].placed.time(1e8) for p in jobs)
    assert shared == whole
    assert jobs[1].sync_s > jobs[0].sync_s


@pytest.mark.parametrize("stage", [2, 3])
def test_fsdp_copies_the_gradients_of_its_largest_unit_to_scatter_them(stage):
    """Shares of all gradients, and one buffer of the largest unit, whatever type it has."""
    outside = 8000 * 1024 + 256 * 1024  # embeddings of words and places; the last product has a matrix of its own
    block = 12 * 1024**2
    held = memory(stage)
    largest = max(GPT.parameter_count - 4 * (block + 13 * 1024), block)
    assert outside < largest
    assert held.gradients_bytes >= GRADIENTS / 8 + 4 * largest * 0.99
    assert held.gradients_bytes <= GRADIENTS / 8 + 4 * (2 * largest + block) * 1.01


def test_less_is_kept_with_each_stage():
    totals = [memory(stage).total_bytes for stage in range(4)]
    assert totals == sorted(totals, reverse=True)
