"""Reports say what the job cannot do, where it does not fit and what differs, wherever a prediction is printed."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.prediction.words.prediction_text import fit_sentence
from perfmodel.presentation.timeline_figure import LaneBar, gantt_chart

GPU = "gtx_1080"
LSTM = pm.zoo.lstm32()


def test_advice_rejects_a_framework_that_cannot_run_the_job_with_the_reason():
    advice = pm.advise(LSTM, kinds="framework", device=GPU, batch_size=4)
    lines = {}
    for name in ("caffe_1_0_rc3", "torch_423cfba"):
        lines[name] = pm.predict(LSTM, device=GPU, batch_size=4, framework=name).basis.prepared.shortfalls
    assert lines["caffe_1_0_rc3"]
    assert not lines["torch_423cfba"]
    rejected = {entry.change: entry.reason for entry in advice.rejected}
    assert rejected["framework caffe_1_0_rc3"] == lines["caffe_1_0_rc3"][0]
    assert "framework torch_423cfba" in {row.change for row in advice.rows}
    for row in advice.rows:
        assert not pm.predict(LSTM, **advice.arguments_with(row)).basis.prepared.shortfalls


def test_a_shortfall_that_the_job_itself_has_does_not_reject_other_changes():
    advice = pm.advise(LSTM, kinds="batch_size", device=GPU, batch_size=4, framework="caffe_1_0_rc3")
    assert advice.base.basis.prepared.shortfalls
    assert advice.rows


def test_a_comparison_says_what_either_framework_cannot_do():
    beyond, able = (pm.predict(LSTM, device=GPU, batch_size=4, framework=name) for name in ("caffe_1_0_rc3", "generic"))
    (line,) = beyond.basis.prepared.shortfalls
    for pair, owner in (((beyond, able), "first"), ((able, beyond), "second"), ((beyond, beyond), "both")):
        text = "".join(str(pm.compare(*pair)).split())
        sentence = "".join(f"{owner}: {line}; predicted as if it could".split())
        assert text.startswith(sentence)
        assert text.count("asifitcould") == 1
        assert line.split(":")[0] in pm.compare(*pair)._repr_html_().replace("\n  ", " ")
    assert "as if it could" not in str(pm.compare(able, able))


def test_a_comparison_opens_with_what_does_not_fit(capsys):
    words = ["compare", "resnet50", "--device", "gtx_1080", "--batch-size", "100000", "--with", "batch-size=64"]
    assert run(words) == 0
    shown = capsys.readouterr().out
    p = pm.predict(pm.zoo.resnet50(), device=GPU, batch_size=100_000)
    assert shown.startswith(f"first: {fit_sentence(p)} The times below are those with enough memory.")
    assert "It does not fit" not in str(pm.compare(*[pm.predict(LSTM, device=GPU, batch_size=4)] * 2))


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda graph: graph.pruned(0.3), {"density": ("1", "0.3"), "pattern": ("-", "unstructured")}),
        (lambda graph: graph.pruned(0.5, pattern="2:4"), {"density": ("1", "0.5"), "pattern": ("-", "2:4")}),
        (lambda graph: graph.quantised("int4"), {"weight_dtype": ("-", "int4")}),
    ],
)
def test_a_comparison_names_how_weights_are_stored(change, wanted):
    graph = pm.zoo.alexnet()
    first, second = (
        pm.predict(net, device="rtx_4090", batch_size=4, phase="forward") for net in (graph, change(graph))
    )
    rows = {row.input: (row.first, row.second) for row in pm.compare(first, second).inputs}
    assert rows == wanted
    asked = [pm.predict(graph, device=GPU, batch_size=4, phase="forward", weight_dtype=kind) for kind in (None, "int8")]
    assert [(row.input, row.first, row.second) for row in pm.compare(*asked).inputs] == [("weight_dtype", None, "int8")]


def test_a_comparison_counts_the_layers_that_are_stored_in_one_way_and_parameters():
    graph = pm.zoo.alexnet()
    some = graph.pruned(0.5, layers=[graph.weighted_layers[0]])
    thin = graph.pruned(0.5, pattern="structured")
    base, first, second = (pm.predict(net, device=GPU, batch_size=4, phase="forward") for net in (graph, some, thin))
    rows = {row.input: row for row in pm.compare(base, first).inputs}
    assert rows["density"].second == f"0.5 (1 layer), 1 ({len(graph.weighted_layers) - 1} layers)"
    counted = {row.input: (row.first, row.second) for row in pm.compare(base, second).inputs}
    assert counted["parameter_count"] == (graph.parameter_count, thin.parameter_count)


def test_scaling_notes_what_the_framework_cannot_do_and_in_which_rows():
    mlp = pm.zoo.feed_forward()
    report = pm.scaling(mlp, system="survey_fig5", framework="theano_0_8", workers=(1, 2, 4), batch_size=4)
    (line,) = [note for note in report.notes if "cannot run several workers" in note]
    assert line.endswith("as if it could: ring_all_reduce with 2, ring_all_reduce with 4")
    assert "note: " + line[:40] in str(report)
    assert not [
        note for note in pm.scaling(mlp, system="survey_fig5", workers=(1, 2), batch_size=4).notes if "as if" in note
    ]


def test_a_sweep_counts_the_rows_that_are_beyond_a_framework():
    axes = {"framework": ["caffe_1_0_rc3", "torch_423cfba"], "device": [GPU, "gtx_980", "i7_3820"]}
    s = pm.sweep(LSTM, batch_size=[2, 4], **axes)
    assert list(s.beyond.values()) == [6]
    (what,) = s.beyond
    assert what == "Caffe 1.0.0-rc3 cannot run lstm (layer lstm)"
    assert f"6 predicted although {what}" in repr(s)
    assert f"6 predicted although {what}" in " ".join(str(s).split())
    able = s.taken(s["framework"] == "torch_423cfba")
    assert not able.beyond
    assert "although" not in repr(able)
    assert not pm.sweep(LSTM, batch_size=2, strict=True, **axes).beyond  # refused, so not predicted


def test_a_sweep_counts_by_type_and_number_of_workers_what_holds_for_some_rows_only():
    mlp = pm.zoo.feed_forward()
    workers = pm.sweep(mlp, batch_size=4, system="survey_fig5", framework=["theano_0_8", "generic"], workers=[1, 2, 4])
    assert list(workers.beyond.values()) == [2]
    assert "several workers" in next(iter(workers.beyond))
    types = pm.sweep(
        mlp, batch_size=4, device=["tesla_p100_pcie", "i7_3820"], framework="theano_0_8", dtype=["fp32", "fp16"]
    )
    row_by_row = [
        bool(types.prediction(index).basis.prepared.shortfalls)
        for index in range(len(types))
        if types["step_s"][index] > 0
    ]
    assert sum(types.beyond.values()) == sum(row_by_row) == 1


@pytest.mark.parametrize(
    ("typed", "proposed"),
    [
        ("A100", ["a100_40_sxm", "a100_80_sxm", "a100_40_pcie"]),
        ("H100", ["h100_sxm", "h100_pcie", "h100_sxm_96_hbm2e"]),
        ("V100", ["v100_pcie", "v100_sxm2", "v100_sxm2_32gb"]),
        ("p100", ["tesla_p100_pcie", "tesla_p100_sxm2"]),
        ("K80", ["tesla_k80_gk210"]),
        ("GTX-1080", ["gtx_1080"]),
        ("RTX4090", ["rtx_4090"]),
    ],
)
def test_a_device_is_found_by_a_part_of_its_name_in_any_case(typed, proposed, capsys):
    assert run(["predict", "lenet5", "--batch-size", "4", "--device", typed]) == 2
    hint = capsys.readouterr().err.split("Did you mean ")[1].split("?")[0]
    assert hint.replace(" or ", ", ").split(", ") == [repr(name) for name in proposed]


@pytest.mark.parametrize("seconds", [1e-9, 1e-6, 1e-4])
def test_a_message_shorter_than_a_pixel_is_still_drawn_and_a_longer_one_as_long_as_it_lasts(seconds):
    bars = [
        LaneBar(lane="gpu", name="step", kind="forward", start_s=0.0, end_s=1.0),
        *(
            LaneBar(lane=f"link{place}", name="m", kind="message", start_s=start, end_s=start + seconds)
            for place, start in enumerate((0.1, 0.3337, 0.5, 0.71))
        ),
        LaneBar(lane="link4", name="long", kind="message", start_s=0.5, end_s=0.75),
    ]
    figure = gantt_chart(bars, title="a chart")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    axes = figure.axes[0]
    picture = np.asarray(canvas.buffer_rgba())[::-1, :, :3]
    coloured = np.ptp(picture.astype(int), axis=2) > 40
    for lane in range(1, 6):
        left, right = (round(axes.transData.transform((at, 0))[0]) for at in axes.get_xlim())
        height = round(axes.transData.transform((0, lane))[1])
        width = np.count_nonzero(coloured[height, left:right]) / (right - left)
        assert 0 < width < 0.004 or (lane == 5 and width == pytest.approx(0.25, abs=0.004))
