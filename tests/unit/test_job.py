"""Job: the record of what is asked."""

import math
import pickle
from dataclasses import FrozenInstanceError

import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.layers import Dense
from perfmodel.prediction.arguments.table import ARGUMENTS, DEFAULTS
from perfmodel.prediction.certainty.basis import timed_prediction
from perfmodel.validation.protocols.cells import prepare_cells

GRAPH = pm.zoo.alexnet()
VARYING = {"distribution": "normal", "cv": 0.1}
ASKED = {
    "one GPU": {"batch_size": 16, "device": "gtx_1080", "framework": "tensorflow_0_9"},
    "a CPU": {"batch_size": 16, "device": "i7_3820", "threads": 2},
    "inference": {"batch_size": 4, "device": "gtx_1080", "phase": "forward", "pinned": False},
    "all reduced": {"batch_size": 16, "system": "survey_fig5", "workers": 4, "overlap": False},
    "in messages": {"batch_size": 16, "system": "survey_fig5", "workers": 4, "bucket_bytes": math.inf},
    "asynchronous": {"batch_size": 16, "system": "survey_fig6", "workers": 8, "sync": "downpour", "push_period": 2},
    "backed up": {
        "batch_size": 16, "system": "survey_fig5", "workers": 4, "straggler": VARYING, "backup_workers": 1,
    },
    "a pipeline": {
        "batch_size": 16, "system": "survey_fig5", "parallelism": "pipeline", "stages": 4, "micro_batches": 4,
    },
    "read": {"global_batch_size": 64, "system": "survey_fig5", "workers": 4, "dataset": "imagenet_jpeg", "prefetch": 2},
    "fitted": {"batch_size": 16, "device": "gtx_980", "framework": "caffe_1_0_rc3", "calibration": "shi2016_gpu"},
}  # fmt: skip


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_job_is_what_its_prediction_was_asked(asked):
    p = pm.predict(GRAPH, **asked)
    job = p.job
    assert set(job.asked) == set(asked)
    assert p.to_dict() == job.predict().to_dict() == pm.predict(job.graph, **job.asked).to_dict()
    assert job == pm.Job(GRAPH, **asked) == pm.Job(job.graph, **job.asked)
    assert hash(job) == hash(pm.Job(GRAPH, **asked))
    assert pickle.loads(pickle.dumps(job)) == job


def test_every_argument_is_an_attribute_with_its_default():
    job = pm.Job(GRAPH)
    assert {name: getattr(job, name) for name in ARGUMENTS} == dict(DEFAULTS)
    assert not job.asked


def test_what_is_given_at_its_default_was_not_asked():
    assert pm.Job(GRAPH, **DEFAULTS) == pm.Job(GRAPH)
    assert pm.Job(GRAPH, input_variation=0, workers=1.0) == pm.Job(GRAPH)


def test_values_are_as_the_library_uses_them():
    job = pm.Job(GRAPH, batch_size=16.0, straggler=VARYING, workers=4, backup_workers=1)
    assert type(job.batch_size) is int
    assert (job.straggler.times.name, job.straggler.backup_workers) == ("normal", 1)
    assert job.replace(backup_workers=0).straggler.backup_workers == 0


def test_a_job_is_frozen():
    job = pm.Job(GRAPH, batch_size=16)
    for change in (lambda: setattr(job, "batch_size", 32), lambda: delattr(job, "batch_size")):
        with pytest.raises(FrozenInstanceError, match=r"job.replace\(batch_size="):
            change()
    with pytest.raises(TypeError):
        job.asked["batch_size"] = 32
    assert job.batch_size == 16


def test_replace_makes_another_job_and_takes_an_argument_back():
    job = pm.Job(GRAPH, batch_size=16, device="gtx_1080")
    other = job.replace(batch_size=32, device=None, system="survey_fig5", workers=2)
    assert (job.batch_size, job.device, job.workers) == (16, "gtx_1080", 1)
    assert dict(other.asked) == {"batch_size": 32, "system": "survey_fig5", "workers": 2}
    assert other != job
    assert other.replace(workers=1, system=None, device="gtx_1080", batch_size=16) == job
    assert pm.Job(pm.zoo.alexnet(), **job.asked) == job != pm.Job(pm.zoo.vgg16(), **job.asked)


def test_a_job_shows_what_was_asked():
    device = pm.load_device("gtx_1080")
    assert repr(pm.Job(GRAPH, batch_size=16, device=device)) == "Job(alexnet, batch_size=16, device='gtx_1080')"


def test_what_is_never_allowed_is_refused_when_the_job_is_made():
    """Nothing is read for it: no device is named."""
    refused = [
        ({"batch_sise": 4}, UnknownNameError, "batch_size"),
        ({"batch_size": 0}, ArgumentError, r"batch_size must.*\(got 0"),
        ({"dtype": "fp31"}, UnknownNameError, "fp32"),
        ({"sync": "ring"}, UnknownNameError, "ring_all_reduce"),
        ({"decode_cores": 2}, ArgumentError, "None without a dataset"),
        ({"workers": 4, "backup_workers": 1}, ArgumentError, "0 without straggler="),
        ({"workers": 4, "straggler": VARYING, "backup_workers": 4}, ArgumentError, "one is left to wait for"),
        ({"workers": 4, "push_period": 2}, ArgumentError, "1 unless sync is one of"),
        ({"workers": 4, "sync": "mixed", "group_size": 3}, ArgumentError, "a divisor of workers=4"),
        ({"schedule": "gpipe"}, ArgumentError, "unless parallelism='pipeline'"),
    ]
    for asked, error, said in refused:
        with pytest.raises(error, match=said):
            pm.Job(GRAPH, **asked)


@pytest.mark.parametrize("placement", [3, "pipeline", []])
def test_a_job_is_prepared_on_a_placement(placement):
    job = pm.Job(GRAPH, batch_size=4, system="dgx_h100", workers=2, parallelism="pipeline", stages=2)
    assert job.prepared_on(job.prepared.placement).nominal.parts.step_s == job.prepared.nominal.parts.step_s
    with pytest.raises(ArgumentError, match="placement must be"):
        job.prepared_on(placement)


def test_a_run_says_what_it_executed():
    run = pm.measurements.load("shi2016").run("caffe_1_0_rc3", "alexnet")
    job = pm.Job(run, device="gtx_980")
    assert (job.samples, job.profile.stem) == (run.batch_size, "caffe_1_0_rc3")
    assert job.predict().step_s == pm.predict(run, device="gtx_980").step_s


def test_a_step_that_was_timed_without_a_job_says_so():
    table = pm.measurements.load("shi2016")
    rows = [row for row in table if row.network == "fcn5" and row.device == "gtx_980" and row.step_s][:1]
    (cell,) = prepare_cells(table, rows)
    with pytest.raises(ArgumentError, match="timed without one"):
        _ = timed_prediction(cell.prepared).job


def test_a_job_of_a_graph_that_has_grown_is_what_the_graph_is_now():
    graph = pm.LayerGraph("growing", input_shape=(64,))
    graph.add("first", Dense(units=64), inputs=graph.input)
    job = pm.Job(graph, batch_size=8, device="gtx_1080")
    before_s = job.predict().step_s
    graph.add("second", Dense(units=4096), inputs="first")
    assert job.predict().step_s == pm.predict(graph, batch_size=8, device="gtx_1080").step_s > before_s


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("optimizer", "adm"), ("optimizer", {}), ("optimizer", 3), ("threads", -3.5), ("threads", True),
        ("framework", 3), ("calibration", 7), ("device", 3.5), ("library", [1]),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "verb", [pm.Job, pm.predict, pm.advise, lambda g, **a: pm.formula(graph=g, free="batch_size", **a)]
)
def test_every_verb_refuses_what_is_never_allowed(verb, argument, value):
    with pytest.raises((ArgumentError, UnknownNameError)) as caught:
        verb(GRAPH, **{"batch_size": 16, "device": "gtx_1080"} | {argument: value})
    assert (getattr(caught.value, "argument", None) or caught.value.kind) == argument


def test_a_run_takes_what_it_ran_by_name_and_as_an_object_in_predict_and_sweep():
    run = pm.measurements.load("shi2016").runs[0]
    step_s = pm.predict(run, device="gtx_1080").step_s
    for ran in ({"framework": run.framework}, {"framework": pm.load_framework(run.framework)}, {"optimizer": "none"}):
        assert pm.predict(run, device="gtx_1080", **ran).step_s == step_s
        assert pm.sweep(run, device="gtx_1080", **ran)["step_s"].tolist() == [step_s]
    (row,) = pm.sweep(run, device="gtx_1080", framework="pytorch_2")
    assert row["reason"].startswith("framework must be 'caffe_1_0_rc3'")


def test_one_worker_shares_nothing_whatever_is_asked():
    asked = {"batch_size": 16, "system": "survey_fig5"}
    alone = pm.predict(GRAPH, **asked).step_s
    for degenerate in ({"shard_stage": 2, "sync": "none"}, {"parallelism": "tensor", "sequence_parallel": True}):
        assert pm.predict(GRAPH, **asked, **degenerate).step_s == alone
    accumulated = {
        pm.predict(GRAPH, **asked, accumulation_steps=4, parallelism=each).step_s for each in ("data", "hybrid")
    }
    assert len(accumulated) == 1
    report = pm.scaling(GRAPH, **asked, workers=[2, 4], shard_stage=2)
    assert [row.reason for row in report.rows] == [None, None]
