"""Stages that are timed together: each takes the times that it takes alone."""

from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.prediction.job.stage import time_together

GPT = pm.zoo.gpt(layers=6, width=256, heads=4, sequence_length=64, vocabulary=1000)


def timed_stages(framework, batch_size):
    """Time the stages of a pipeline whose workers share gradients, in columns of batch sizes."""
    job = pm.Job(
        GPT, batch_size=8, system="dgx_a100", workers=2, stages=4, parallelism="pipeline", micro_batches=4,
        shard_stage=1, dtype="bf16", optimizer="adam", framework=framework,
    )  # fmt: skip
    return replace(job.prepared, batch_size=batch_size).timed_stages(known={})


@pytest.mark.parametrize("framework", ["pytorch_2", "tensorflow_1_12"])
def test_times_do_not_depend_on_what_is_timed_beside(framework):
    sizes = np.array([4.0, 16.0, 256.0])
    alone, together = (timed_stages(framework, sizes) for _ in range(2))
    time_together(together)
    assert len({id(stage.alike or stage) for stage in together}) > 1
    for one, other in zip(alone, together, strict=True):
        assert one.chosen is not other.chosen
        for phase in ("forward", "backward", "update", "adding"):
            for seconds, likewise in zip(getattr(one, phase), getattr(other, phase), strict=True):
                assert likewise == pytest.approx(seconds, rel=1e-13), phase
        assert other.forward.compute_s.shape == sizes.shape
        assert other.copying_s == pytest.approx(one.copying_s, rel=1e-13)
        assert other.moved_s(6.0) == pytest.approx(one.moved_s(6.0), rel=1e-13)
        assert other.gradients.ready_s == pytest.approx(one.gradients.ready_s, rel=1e-13)


def test_columns_may_differ_in_the_clock_of_the_slowest_device():
    space = {"system": "dgx_h100", "devices": 8, "dtype": "bf16", "framework": "pytorch_2", "parallelism": "pipeline"}
    s = pm.sweep(GPT, **space, stages=[1, 2, 3, 4], micro_batches=[1, 2], batch_size=24)
    waited_for = set()
    for row in range(len(s)):
        p = s.prediction(row)
        waited_for.add(p.job.prepared.energy_ratio)
        assert s["step_s"][row] == pytest.approx(p.step_s, rel=1e-12)
    assert len(waited_for) > 1
