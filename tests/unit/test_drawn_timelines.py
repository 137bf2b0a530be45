"""Timelines as users see them: nothing is written over, devices do their own work, pictures are not traces."""

import json

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.simulation.timeline import NO_LANE

PIPELINE = {"parallelism": "pipeline", "stages": 2, "micro_batches": 4, "optimizer": "adam"}


def job(**options):
    return pm.predict(pm.zoo.alexnet(), batch_size=64, system="survey_fig6", **options)


@pytest.mark.parametrize("options", [{"workers": 6, "sync": "parameter_server"}, {"workers": 2, **PIPELINE}])
def test_no_text_of_a_drawn_timeline_lies_on_another(options):
    figure = job(**options).plot_timeline()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    axes = figure.axes[0]
    texts = [figure._suptitle, *axes.get_legend().get_texts(), *axes.get_yticklabels()]
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in texts]
    assert len(boxes) > 8
    assert not [(a, b) for place, a in enumerate(boxes) for b in boxes[:place] if a.overlaps(b)]
    assert all(box.x0 >= 0 and box.y1 <= figure.bbox.height for box in boxes)
    handles = axes.get_legend().get_window_extent(canvas.get_renderer())
    assert handles.y1 <= boxes[0].y0
    assert handles.y0 >= axes.get_window_extent().y1 - 1


@pytest.mark.parametrize("draw", [pm.Prediction.plot, pm.Prediction.plot_roofline])
def test_the_long_name_of_a_system_stays_inside_a_picture(draw):
    figure = draw(job(workers=8))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    title = figure._suptitle or figure.axes[0]._left_title
    box = title.get_window_extent(canvas.get_renderer())
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert box.y1 <= figure.bbox.height
    assert "four GTX 1080" in title.get_text()


def test_devices_of_a_pipeline_update_on_lanes_with_their_names():
    p = job(workers=2, **PIPELINE)
    timeline = p.play(2)
    lanes = [f"node0/gpu{place} stage {place % 2}" for place in range(4)]
    updates = [span for span in timeline.spans if span.kind == "update"]
    assert {span.resource for span in updates} == set(lanes)
    assert len(updates) == 2 * 4
    assert max(span.duration_s for span in updates) >= p.update_s > 0  # with what launches cost
    assert NO_LANE not in {bar.lane for bar in timeline.bars() if bar.end_s > bar.start_s}
    for lane in lanes:
        assert {span.kind for span in timeline.spans if span.resource == lane} == {"forward", "backward", "update"}
    assert {span.kind for span in timeline.spans if span.task.startswith("sync/")} >= {"message", "sync"}
    assert 2 * p.step_s < timeline.makespan_s < 1.1 * 2 * p.step_s  # gradients and activations meet on channels


def test_a_tensor_group_is_one_lane_named_by_its_first_and_last_device():
    timeline = job(workers=1, parallelism="tensor", tensor_size=4).play(1)
    assert {span.resource for span in timeline.spans if span.kind == "forward"} == {"node0/gpu0..node0/gpu3"}


@pytest.mark.parametrize("name", ["x.png", "x.svg", "x.PDF", "x.html"])
def test_a_trace_is_not_written_under_the_name_of_a_picture(name, tmp_path):
    timeline = job(workers=1).timeline
    with pytest.raises(ArgumentError, match=r"path must.*plot_timeline.*x\."):
        timeline.save(tmp_path / name)
    assert not list(tmp_path.iterdir())
    assert json.loads(timeline.save(tmp_path / "x.trace.json").read_text())["traceEvents"]
