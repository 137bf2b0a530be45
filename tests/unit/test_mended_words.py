"""Reports say what the job cannot do, where it does not fit and what differs, wherever a prediction is printed."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.planning.comparison import InputChange, _input_text
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
        ("H100", ["h100_nvl", "h100_sxm", "h100_pcie"]),
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


SMALL_GPT = pm.zoo.gpt(layers=2, width=128, heads=2, sequence_length=64, vocabulary=100)


def test_tables_and_long_lists_of_inputs_that_differ_are_counted():
    first, second = (
        pm.predict(SMALL_GPT, batch_size=4, device=name, framework="pytorch_2") for name in ("rtx_4070", "a40")
    )
    comparison = pm.compare(first, second)
    (table,) = [row for row in comparison.inputs if row.input.endswith("tensor_core.ada")]
    stated = sum(value is not None for value in table.first.values())
    line = next(line for line in str(comparison).splitlines() if "tensor_core.ada" in line)
    assert line.split()[-3:] == [str(stated), "fields", "-"]
    listed = InputChange("a: list", [1.5] * 40, "word " * 40)
    assert _input_text(listed, listed.first) == "40 values"
    assert _input_text(listed, listed.second).endswith("word ...")
    assert max(map(len, str(comparison).splitlines())) < 160


def test_changes_that_are_impossible_for_one_reason_share_a_line():
    advice = pm.advise(SMALL_GPT, kinds=["device", "framework"], batch_size=4, device="rtx_4070", dtype="bf16")
    text = " ".join(str(advice).split())
    without = [entry.change for entry in advice.rejected if entry.reason.startswith("unknown dtype")]
    assert len(without) > 20
    assert f"impossible: {', '.join(without)}: no bf16 impossible:" in text
    old = [entry.change for entry in advice.rejected if " cannot run a computation on a GPU in bf16:" in entry.reason]
    assert f"impossible: {', '.join(old)}: cannot run a computation on a GPU in bf16 impossible:" in text


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_the_kind_of_a_device_is_not_its_name(kind):
    with pytest.raises(ArgumentError, match=rf"the name of a {kind.upper()}, such as .*pm.calibrate") as refused:
        pm.load_device(kind)
    some = refused.value.allowed.partition("such as ")[2].partition(";")[0].split(", ")
    assert {pm.load_device(name).kind for name in some} == {kind}


def test_a_calibration_may_be_called_cpu(tmp_path, monkeypatch):
    (tmp_path / "calibrations").mkdir()
    measured = Path(__file__).resolve().parents[1] / "data/measured_cpu.toml"
    shutil.copy(measured, tmp_path / "calibrations/cpu.toml")
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    assert pm.load_device("cpu").stem == "cpu"


def test_too_many_chunks_are_refused_in_the_numbers_that_were_asked_for():
    job = {"batch_size": 4, "system": "dgx_a100", "parallelism": "pipeline", "micro_batches": 4}
    with pytest.raises(ArgumentError, match=r"interleave must be at most \d+ with stages=4: .*got 40") as refused:
        pm.predict(SMALL_GPT, stages=4, interleave=40, schedule="interleaved", **job)
    most = int(str(refused.value).split("at most ")[1].split()[0])
    pm.predict(SMALL_GPT, stages=4, interleave=most, schedule="interleaved", **job)
    two = pm.LayerGraph("two", input_shape=(8,))
    two.add("second", pm.layers.Dense(units=8), inputs=two.add("first", pm.layers.Dense(units=8), inputs=two.input))
    with pytest.raises(ArgumentError, match=r"stages must be at most 2: two has 1 place that .*got 8"):
        pm.predict(two, stages=8, **job)


def test_a_front_without_prices_says_what_is_missing():
    s = pm.sweep(SMALL_GPT, batch_size=[1, 2], device="rtx_4070")
    with pytest.raises(ArgumentError, match="no price file lists rtx_4070; pass usd_per_hour="):
        s.pareto("step_s", "usd_per_epoch")
    priced = pm.sweep(SMALL_GPT, batch_size=[1, 2], device="rtx_4070", usd_per_hour=0.5)
    assert len(priced.pareto("step_s", "usd_per_epoch")) >= 1
    one = pm.sweep(SMALL_GPT, batch_size=1, device="rtx_4070", workers=2)
    assert one.title.endswith(": 1 configuration, 0 of which fit; refused: 1 (workers)")


@pytest.mark.parametrize(("key", "name"), [("device", "rtx_4070"), ("system", "dgx_a100")])
def test_hardware_without_a_price_file_is_a_candidate_with_a_price(key, name):
    job = {"batch_size": 4, "dataset_size": 100, "epochs": 1}
    with pytest.raises(ArgumentError, match=rf"\{{'{key}': '{name}', 'price': 0.5\}}"):
        pm.plan(SMALL_GPT, candidates=[name], **job)
    assert pm.plan(SMALL_GPT, candidates=[{key: name, "price": 0.5}], **job).best is not None
    with pytest.raises(UnknownNameError, match="Known: "):
        pm.plan(SMALL_GPT, candidates=["rtx_4071"], **job)


def test_a_search_for_the_cheapest_layout_names_the_price_that_is_missing():
    with pytest.raises(ArgumentError, match="objective must not be 'money' here: no price file lists gtx_1080; pass"):
        pm.search(SMALL_GPT, global_batch_size=8, system="survey_fig5", objective="money")


def test_a_plan_that_misses_its_deadline_says_what_would_meet_it():
    job = {"batch_size": 4, "dataset_size": 100_000, "epochs": 10, "deadline_hours": 0.001}
    report = pm.plan(SMALL_GPT, candidates=[{"device": "rtx_4070", "price": 0.5}], **job)
    (speed,) = [change.text for change in report.changes if change.what == "speed"]
    assert speed.startswith("rtx_4070 (own) would meet the limits if its steps were ")
    assert f"\n{speed[:60]}" in str(report)


def test_failures_need_a_checkpoint():
    run = {"tokens": 1e9, "failures_per_device_day": 0.1}
    p = pm.predict(SMALL_GPT, batch_size=4, device="rtx_4070")
    with pytest.raises(ArgumentError, match="0 without checkpoint_s= or checkpoint_every_s="):
        p.training_totals(**run)
    for pause in ("checkpoint_s", "checkpoint_every_s"):
        assert p.training_totals(**run, **{pause: 60.0})
