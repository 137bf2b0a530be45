"""What a user is told first or by name: impossible steps, costly defaults, exchanges, the nearest name."""

import re
import warnings
from pathlib import Path

import pandas as pd
import pytest

import perfmodel as pm
from perfmodel.errors import SpecError, TableError, UnknownNameError
from perfmodel.measurements.reading import from_frame
from perfmodel.prediction.job.job import Job
from perfmodel.prediction.words.defaults import COSTLY, default_remarks

TENSOR = {"system": "dgx_h100", "workers": 1, "parallelism": "tensor", "tensor_size": 4, "dtype": "bf16"}


def job(graph=None, **options):
    return pm.predict(graph or pm.zoo.resnet50(), **{"batch_size": 16, "device": "v100_sxm2"} | options)


def test_a_step_that_does_not_fit_says_so_before_its_time():
    p = job(batch_size=100_000)
    missing = float(p.memory.total_bytes - p.memory.capacity_bytes)
    assert missing > 0
    for text in (str(p), p.explain()):
        assert text.startswith("It does not fit: ")
        assert text.index("are missing") < text.index(f"{p.step_s:.1f} s")
    assert p._repr_html_().index("does not fit") < p._repr_html_().index("step time")


def test_a_step_that_fits_or_whose_memory_is_unknown_opens_with_its_name():
    assert str(job(dtype="fp16", framework="pytorch_2")).startswith("resnet50 on ")


def ratio_in(note):
    return float(re.search(r"([\d.]+) times as long", note)[1])


def test_defaults_that_cost_more_than_half_again_are_remarked_on_with_what_they_cost():
    p = job(pm.zoo.gpt2(), device="h100_sxm", batch_size=8)
    notes = default_remarks(p)
    other = job(pm.zoo.gpt2(), device="h100_sxm", batch_size=8, dtype="bf16")
    assert "dtype='bf16'" in notes[0]
    assert "fp32" in notes[0]
    assert ratio_in(notes[0]) == pytest.approx(p.step_s / other.step_s, abs=0.05)
    assert p.step_s / other.step_s > COSTLY
    assert "default dtype fp32" in " ".join(str(p).split())
    assert "(--dtype bf16)" in notes[0]
    for text in (str(p), p.explain()):
        assert " ".join(text.split()).startswith(f"note: {notes[0]}")
    assert p._repr_html_().index("default dtype") < p._repr_html_().index("step time")


def test_no_data_type_is_proposed_that_the_framework_cannot_run():
    where = {"device": "gtx_1080", "optimizer": "lbfgs"}
    half = job(pm.zoo.vgg16(), **where, framework="theano_0_9", dtype="fp16")
    assert half.basis.prepared.shortfalls
    assert half.step_s < job(pm.zoo.vgg16(), **where, framework="theano_0_9").step_s / COSTLY
    assert default_remarks(job(pm.zoo.vgg16(), **where, framework="theano_0_9")) == ()


def test_what_defaults_cost_is_predicted_once_however_often_it_is_printed(monkeypatch):
    made = []
    predict = Job.predict
    monkeypatch.setattr(Job, "predict", lambda self: made.append(self) or predict(self))
    p = job(pm.zoo.gpt2(), device="h100_sxm", batch_size=8)
    made.clear()
    texts = [str(p), p.explain(), p._repr_html_()]
    assert all("default" in text for text in texts)
    assert len(made) <= 3


def test_defaults_that_were_not_taken_or_cost_little_are_not_remarked_on():
    assert not [note for note in default_remarks(job(dtype="fp16")) if "dtype" in note]
    assert not [note for note in default_remarks(job(framework="pytorch_1_0")) if "framework" in note]
    assert default_remarks(job(pm.zoo.lenet5(), device="gtx_980", batch_size=1, framework="torch7_cudnn5")) == ()
    for note in default_remarks(job()):
        assert ratio_in(note) >= COSTLY


def test_inference_exchanges_no_gradients():
    p = pm.predict(pm.zoo.gpt2(), batch_size=4, phase="forward", **TENSOR)
    assert p.exposed_sync_s > 0
    assert "exchange between devices, exposed" in str(p)
    assert "gradient exchange" not in str(p) + p.explain()
    assert "gradient exchange, exposed" in str(pm.predict(pm.zoo.gpt2(), batch_size=4, **TENSOR))


@pytest.mark.parametrize(("typed", "nearest"), [("a100", "a100_"), ("v100", "v100_"), ("h200", "h200_"), ("t4x", "t4")])
def test_the_nearest_name_is_a_variant_of_what_was_typed(typed, nearest):
    with pytest.raises(UnknownNameError) as refused:
        job(device=typed)
    assert refused.value.nearest.startswith(nearest)


def test_a_sequence_is_not_called_bound_by_arithmetic_at_a_few_per_cent_of_the_peak():
    graph = pm.LayerGraph("gru", input_shape=(512, 256))
    graph.add("gru", pm.layers.GRU(hidden_size=512), inputs=graph.input)
    p = job(graph, device="gtx_1080", phase="forward")
    (row,) = [row for row in p.layers if row.layer == "gru"]
    assert row.flop_count / row.seconds < 0.25 * p.peak_flop_per_s
    assert "sequence, not the rate of arithmetic" in " ".join(str(p).split())
    assert "What bounds it most is a sequence" in " ".join(p.explain().split())
    assert "sequence" not in str(job(pm.zoo.alexnet()))


@pytest.mark.parametrize("cell", ["GRU", "LSTM", "RNN"])
def test_the_bottleneck_of_a_sequence_is_the_sequence(cell):
    graph = pm.LayerGraph("recurrent", input_shape=(256, 512))
    graph.add("cell", getattr(pm.layers, cell)(hidden_size=512), inputs=graph.input)
    p = job(graph, device="gtx_1080")
    assert p.breakdown["compute_s"] == max(p.breakdown.values())
    assert p.bottleneck == "sequence"
    assert p.sequence.layers == ("cell",)
    rows = [row for row in p.layers if row.layer == "cell" and row.role in ("output", "input_gradient")]
    rate = sum(row.flop_count for row in rows) / sum(row.seconds for row in rows)
    assert p.sequence.reached == pytest.approx(rate / p.peak_flop_per_s)
    many = job(graph, device="gtx_1080", batch_size=4096)  # products large enough to keep the card busy
    assert (many.bottleneck, many.sequence) == ("compute", None)
    assert job(pm.zoo.lenet5()).sequence is None
    crowded = pm.predict(graph, batch_size=16, system="desktop_i7_3820", threads=8)  # on four cores
    assert (crowded.bottleneck, crowded.sequence) == ("compute", None)


SHEET = "hardware_specs/devices/gtx_1080.toml"


def copied(folder, **changes):
    text = (Path(__file__).resolve().parents[2] / SHEET).read_text(encoding="utf-8")
    for field, value in changes.items():
        text, count = re.subn(rf"(?m)^{field} = .*$", f"{field} = {value}", text, count=1)
        assert count == 1
    (folder / "devices").mkdir(exist_ok=True)
    path = folder / "devices/mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_copy_of_a_device_under_another_name_shows_the_field_that_was_changed(tmp_path):
    mine = copied(tmp_path, name='"Mine"', idle_w=12)
    comparison = pm.compare(*(job(pm.zoo.lenet5(), device=device) for device in ("gtx_1080", mine)))
    assert [(row.first, row.second) for row in comparison.inputs if row.input.endswith(": idle_w")] == [(9, 12)]
    assert "(no rows)" not in str(comparison)
    assert "(no rows)" not in str(pm.compare(job(), job()))


def test_all_faults_of_a_file_are_told_at_once(tmp_path):
    with pytest.raises(SpecError) as refused:
        job(device=copied(tmp_path, architecture='"pasca"', clock_boost_mhz=-5))
    assert [fault.partition(":")[0] for fault in refused.value.faults] == ["clock_boost_mhz", "architecture"]


def test_advice_names_what_is_as_fast_and_keeps_reasons_out_of_the_way():
    advice = pm.advise(pm.zoo.alexnet(), kinds=["dtype", "sync", "micro_batches"], batch_size=16, device="rtx_4090")
    text = " ".join(str(advice).split())
    best = {row.kind: row for row in advice.best_of_each_kind}["dtype"]
    same = [row.change for row in advice.rows if row.speedup == pytest.approx(best.speedup) and row is not best]
    assert "dtype bf16" in (best.change, *same)
    assert not same or f"as fast as {best.change}: {', '.join(same)}" in text
    assert "impossible: sync" not in text
    assert "do not apply to this job, or not in every value: dtype, sync, micro_batches" in text
    assert {entry.kind: entry.reason for entry in advice.rejected}["sync"] == "one worker exchanges nothing"


def test_neither_textbook_algorithms_nor_old_versions_are_tipped_where_others_are_there():
    where = {"batch_size": 16, "system": "survey_fig5", "workers": 4, "sync": "parameter_server"}
    advice = pm.advise(pm.zoo.alexnet(), kinds=["framework", "sync"], **where)
    tipped = {row.kind: row.changes for row in advice.best_of_each_kind}
    assert tipped["framework"]["framework"] not in ("pytorch_1_0", "tensorflow_0_9", "tensorflow_1_1")
    assert tipped["sync"]["sync"] != "one_to_all"
    assert {"pytorch_1_0", "one_to_all"} <= {str(next(iter(row.changes.values()))) for row in advice.rows}


@pytest.mark.parametrize(("column", "told"), [("dtype", "gpu_dtype or cpu_dtype"), ("step_ms", "step_ms / 1000")])
def test_own_tables_say_what_to_do_instead_of_a_column_that_they_lack(column, told):
    row = {"network": "alexnet", "batch_size": 16, "framework": "generic", "device": "gtx_980", "step_s": 0.05}
    with pytest.raises(TableError, match=told):
        from_frame(pd.DataFrame([row | {column: 1}]))


@pytest.mark.parametrize(("factor", "unit"), [(1.0, None), (1e3, "milliseconds"), (1e6, "microseconds"), (30.0, None)])
def test_a_table_in_another_unit_is_hinted_at(tmp_path, factor, unit):
    rows = [("alexnet", 32, 0.04), ("alexnet", 64, 0.06), ("resnet50", 16, 0.12)]
    lines = [f"{network},gtx_1080,caffe_cudnn5,{size},{factor * seconds}" for network, size, seconds in rows]
    path = tmp_path / "own.csv"
    path.write_text("\n".join(["network,device,framework,batch_size,step_s", *lines]))
    first = str(pm.validate(path)).splitlines()[0]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        pm.fit(path)
    assert len(warned) == (unit is not None)
    for said in (first, *(str(each.message) for each in warned)):
        assert ("step_s must be in seconds" in said) == (unit is not None)
        assert unit is None or unit in said
    assert all(each.filename == __file__ for each in warned)


@pytest.mark.parametrize(
    ("argument", "slip", "proposed"),
    [
        ("optimizer", "adma", "adam"),
        ("optimizer", "sdg", "sgd"),
        ("optimizer", "lion", None),
        ("dtype", "float32", "fp32"),
        ("dtype", "bfloat16", "bf16"),
        ("dtype", "fp8", None),  # which other devices have
        ("dtype", "int8", None),
        ("framework", "cafe", "caffe_cudnn5"),
        ("framework", "torchtitan2", "torchtitan"),
        ("device", "gtx1080", "gtx_1080"),
        ("system", "p3.16xlarge", "aws_p3_16xlarge"),
        ("system", "hgx_h100", "dgx_h100"),
        ("sync", "param_server", "parameter_server"),
        ("sync", "ddp", None),
        ("precision", "fp16", None),
        ("nodes", 2, None),
    ],
)
def test_what_is_proposed_for_a_slip_is_what_a_person_would_propose(argument, slip, proposed):
    job = {"batch_size": 8} | ({} if argument in ("device", "system") else {"device": "a100_80_sxm"}) | {argument: slip}
    job |= {"system": "dgx_a100", "workers": 8} if argument == "sync" else {}
    with pytest.raises(UnknownNameError) as refused:
        pm.predict(pm.zoo.lenet5(), **job)
    assert refused.value.nearest == proposed


def test_a_framework_is_proposed_by_the_end_of_its_name():
    with pytest.raises(UnknownNameError, match=r"Did you mean 'torch_423cfba', 'pytorch_2' or"):
        pm.load_framework("torch")
