"""Advice that changes a whole layout: what a search finds on the same devices."""

import pytest

import perfmodel as pm

GRAPH = pm.zoo.gpt(layers=2, width=2048, heads=16, sequence_length=4096, vocabulary=32_000)
JOB = {"system": "dgx_h100", "dtype": "bf16", "optimizer": "adamw", "framework": "megatron_core"}


@pytest.mark.parametrize("batch", [{"global_batch_size": 1024}, {"batch_size": 128}])
def test_the_best_layout_is_that_of_a_search(batch):
    advice = pm.advise(GRAPH, kinds="layout", workers=8, **JOB, **batch)
    assert advice.base.memory.fits is False  # no change of one argument makes it fit, some of several do
    row = advice.rows[0]
    found = pm.search(GRAPH, devices=8, global_batch_size=1024, **JOB)
    assert row.step_s == pytest.approx(found.best.row.step_s, rel=1e-12)
    assert row.fits
    again = pm.predict(GRAPH, **advice.arguments_with(row))
    assert (again.step_s, again.job.device_count) == (row.step_s, 8)
    assert row.change in str(advice)


def test_the_best_that_divides_the_network_alike_is_proposed_too():
    job = JOB | {"global_batch_size": 64, "workers": 2, "parallelism": "tensor", "tensor_size": 4}
    advice = pm.advise(GRAPH, kinds="layout", **job)
    alike = [row for row in advice.rows if "tensor_size" not in row.changes]
    assert len(alike) == 1
    assert len(advice.rows) == 2
    assert advice.rows[0].samples_per_s >= alike[0].samples_per_s > advice.base.samples_per_s


@pytest.mark.parametrize(
    ("graph", "job", "why"),
    [
        (pm.zoo.alexnet(), {"system": "dgx_h100", "workers": 2, "batch_size": 8}, "look up tokens"),
        (GRAPH, {"device": "h100_sxm", "batch_size": 1}, "several GPUs"),
        (GRAPH, {"system": "dgx_h100", "workers": 2, "batch_size": 1, "phase": "forward"}, "training steps"),
    ],
)
def test_jobs_without_a_search_say_why(graph, job, why):
    (rejected,) = pm.advise(graph, kinds="layout", **job).rejected
    assert why in rejected.reason
