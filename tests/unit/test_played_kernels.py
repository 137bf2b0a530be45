"""A lone device's timeline: its kernels by layer add up to the step, with the dispatch that it waits for."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.prediction.job import played_kernels

MEASURED = Path(__file__).resolve().parents[1] / "data/measured_cpu.toml"


def job(graph=None, **options):
    return pm.predict(graph or pm.zoo.alexnet(), **{"batch_size": 16, "device": "gtx_1080"} | options)


JOBS = {
    "a GPU": lambda: job(),
    "a host that issues ahead": lambda: job(pm.zoo.lenet5(), framework="pytorch_2"),
    "operations side by side": lambda: job(device="i7_3820", framework="mxnet_0_9", threads=4),
    "a measured machine": lambda: job(device=MEASURED),
    "several passes": lambda: job(accumulation_steps=4),
    "one phase": lambda: job(phase="forward"),
    "checkpoints": lambda: job(pm.zoo.resnet18(), recompute="sqrt"),
    "recurrence": lambda: job(pm.zoo.lstm_classifier(), framework="pytorch_2"),
    "a worker of a system": lambda: pm.predict(pm.zoo.alexnet(), batch_size=16, system="survey_fig5", workers=1),
}


@pytest.mark.parametrize("name", JOBS)
def test_kernels_and_dispatch_follow_one_another_and_add_up_to_the_step(name):
    p = JOBS[name]()
    timeline = p.play(2)
    computing = [span for span in timeline.spans if span.kind == "compute"]
    assert len(computing) == 2
    assert sum(span.duration_s for span in timeline.kernels) == pytest.approx(2 * float(p.parts.device_s))
    for step in computing:
        inside = [span for span in timeline.kernels if step.start_s <= span.start_s < step.end_s - 1e-12]
        assert inside[0].start_s == step.start_s
        assert inside[-1].end_s == pytest.approx(step.end_s)
        assert all(one.end_s == other.start_s for one, other in pairwise(inside))


@pytest.mark.parametrize("name", ["a GPU", "checkpoints", "recurrence"])
def test_each_kernel_takes_the_time_of_its_row_and_of_its_phase(name):
    p = JOBS[name]()
    kernels = [span for span in p.play(1).kernels if span.kind != "dispatch" and "begin of a step" not in span.task]
    rows = [row for row in p.layers if row.seconds]
    assert [span.task for span in kernels] == [
        f"{row.layer}, {row.role.replace('_', ' ')}: {row.kernel}" for row in rows
    ]
    assert [span.duration_s for span in kernels] == pytest.approx([row.seconds for row in rows])
    again = [span for span, row in zip(kernels, rows, strict=True) if (row.phase, row.role) == ("backward", "output")]
    assert {span.kind for span in again} == ({"recomputed forward"} if name == "checkpoints" else set())


def test_dispatch_has_a_lane_as_long_as_what_no_kernel_hides():
    p = JOBS["a host that issues ahead"]()
    (kernels, dispatch), timeline = played_kernels.lanes_of("device"), p.play(1)
    assert timeline.busy_s(dispatch) == pytest.approx(p.overhead_s - p.launch_s)
    assert timeline.busy_s(kernels) + timeline.busy_s(dispatch) == pytest.approx(p.step_s - p.exposed_transfer_s)
    assert list(timeline.resources)[:3] == ["device", kernels, dispatch]


def test_all_time_steps_of_a_fused_recurrence_are_one_bar():
    graph = pm.zoo.lstm_classifier(steps=200, layer_count=1, bidirectional=False)
    spans = job(graph, framework="pytorch_2").play(1).kernels
    assert sum(span.kind == "forward" and "lstm" in span.task for span in spans) <= 3  # not 200


def test_passes_are_played_each_and_gradients_added_but_for_the_first():
    of_kind = {}
    for span in JOBS["several passes"]().play(1).kernels:
        of_kind[span.kind] = of_kind.get(span.kind, 0) + 1
    once = [span.kind for span in JOBS["a GPU"]().play(1).kernels]
    assert of_kind["adding gradients"] == 3
    assert of_kind["backward"] == 4 * once.count("backward")
    assert of_kind["update"] == once.count("update")


def test_steps_beyond_a_number_of_kernels_show_only_their_computation(monkeypatch):
    monkeypatch.setattr(played_kernels, "MOST_KERNELS", 100)
    timeline = JOBS["a GPU"]().play(5)
    steps = [span for span in timeline.spans if span.kind == "compute"]
    assert len(steps) == 5
    assert len(timeline.kernels) <= 2 * 100
    assert timeline.kernels[-1].end_s == pytest.approx(steps[0].end_s)


def test_devices_that_agree_and_pipelines_show_turns_instead():
    for options in ({"workers": 2}, {"workers": 1, "parallelism": "pipeline", "stages": 2, "micro_batches": 4}):
        assert not pm.predict(pm.zoo.alexnet(), batch_size=16, system="survey_fig5", **options).play(1).kernels


def test_traces_and_pictures_name_layers(tmp_path):
    p = job()
    trace = json.loads(p.timeline.save(tmp_path / "x.json").read_text())["traceEvents"]
    tracks = {event["tid"]: event["args"]["name"] for event in trace if event["name"] == "thread_name"}
    bars = [event for event in trace if event["ph"] == "X" and tracks[event["tid"]] == "device kernels"]
    assert {event["name"].partition(",")[0] for event in bars} >= {row.layer for row in p.layers}
    assert list(tracks.values()).count("device kernels") == 1  # no kernel overlaps another
    words = {text.get_text() for text in p.plot_timeline().axes[0].texts}
    assert words
    assert words <= {row.layer for row in p.layers}


def test_a_short_message_is_drawn_as_thin_as_it_lasts():
    p = pm.predict(pm.zoo.alexnet(), batch_size=64, system="survey_fig6", workers=6, sync="parameter_server")
    messages = [bar for bar in p.timeline.bars() if bar.kind == "message" and bar.end_s > bar.start_s]
    shortest = min(1e3 * (bar.end_s - bar.start_s) for bar in messages)
    corners = [
        path.vertices[:4, 0] for drawn in p.plot_timeline().axes[0].collections[:6] for path in drawn.get_paths()
    ]
    drawn = sorted({round(box.max() - box.min(), 9) for box in corners if len(box) == 4})
    assert drawn[0] == pytest.approx(shortest, rel=1e-3)
