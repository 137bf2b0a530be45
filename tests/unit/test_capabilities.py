"""What a framework cannot do is a fact of its file: a remark at the top of the output, refused by strict=True."""

import json
import math
from dataclasses import replace
from itertools import product

import pytest

import perfmodel as pm
from perfmodel import measurements
from perfmodel.cli.app import run
from perfmodel.errors import ArgumentError, SpecError
from perfmodel.framework.profile import OFTEN_LACKING, Incapacity, load_framework
from perfmodel.hardware import spec_files

LSTM, GOOGLENET, RESNET = pm.zoo.lstm32(), pm.zoo.googlenet(), pm.zoo.resnet18()
GPU, CPU = "gtx_1080", "i7_3820"
BEYOND = {
    "Caffe 1.0.0-rc3 has no LSTM": ("caffe_1_0_rc3", LSTM, GPU, "lstm"),
    "nor on CPUs": ("caffe_1_0_rc3", LSTM, CPU, "lstm"),
    "CNTK 1.5 has no batch normalisation on CPUs": ("cntk_1_5_rc", RESNET, CPU, "batch_norm"),
    "CNTK 1.5 has no concatenation": ("cntk_1_5_rc", GOOGLENET, GPU, "concat"),
    "Deeplearning4j has no GRU": ("deeplearning4j_0_9", pm.zoo.recurrent_network(cell="gru"), GPU, "gru"),
}
WITHIN = {
    "Caffe 1.0 has LSTM": ("caffe_cudnn5", LSTM, GPU),
    "CNTK 1.5 has batch normalisation on GPUs": ("cntk_1_5_rc", RESNET, GPU),
    "Torch7 has LSTM": ("torch_423cfba", LSTM, GPU),
    "Caffe has convolutions": ("caffe_1_0_rc3", pm.zoo.alexnet(), CPU),
    "nothing is known of generic": ("generic", LSTM, GPU),
}


@pytest.mark.parametrize(("framework", "graph", "device", "kind"), BEYOND.values(), ids=BEYOND)
def test_what_a_framework_cannot_do_is_said_first_with_the_evidence(framework, graph, device, kind):
    p = pm.predict(graph, batch_size=4, device=device, framework=framework)
    profile = load_framework(framework)
    (entry,) = [entry for entry in profile.cannot if kind in entry.layers]
    (line,) = [remark for remark in p.remarks if entry.evidence in remark]
    assert profile.name in line
    assert kind in line
    first = next(node.name for node in graph.layers if node.layer.kind == kind)
    assert f"layer {first}" in line
    assert p.remarks[0] == line
    for text in (p.explain(), str(p)):
        unbroken = "".join(text.split())  # lines may break at hyphens
        assert unbroken.startswith("".join(f"note: {line}".split()))
        assert unbroken.count("".join(entry.evidence.split())) == 1


@pytest.mark.parametrize(("framework", "graph", "device", "kind"), BEYOND.values(), ids=BEYOND)
def test_strict_refuses_it_in_one_line(framework, graph, device, kind):
    with pytest.raises(ArgumentError) as caught:
        pm.predict(graph, batch_size=4, device=device, framework=framework, strict=True)
    message = str(caught.value)
    assert caught.value.argument == "framework"
    assert all(part in message for part in (load_framework(framework).name, kind, "strict=False"))
    assert "\n" not in message


@pytest.mark.parametrize(("framework", "graph", "device"), WITHIN.values(), ids=WITHIN)
def test_what_a_framework_can_do_is_neither_remarked_on_nor_refused(framework, graph, device):
    plain = pm.predict(graph, batch_size=4, device=device, framework=framework)
    strict = pm.predict(graph, batch_size=4, device=device, framework=framework, strict=True)
    assert not plain.basis.prepared.shortfalls
    assert plain.step_s == strict.step_s
    assert not str(plain).startswith("note:")


OPTIMIZERS_BEYOND = {
    "caffe_1_0_rc3": {"nadam", "adamax", "adamw", "adafactor", "lamb", "lbfgs"},
    "caffe_cudnn5": {"nadam", "adamax", "adamw", "adafactor", "lamb", "lbfgs"},
    "tensorflow_0_9": {"nadam", "adamax", "adamw", "adafactor", "lamb"},
    "tensorflow_1_1": {"adamw", "adafactor", "lamb"},
    "tensorflow_1_12": {"lamb"},
    "cntk_1_5_rc": {"adamw", "adafactor", "lamb"},
    "mxnet_0_9": {"adamw", "adafactor", "lamb"},
    "deeplearning4j_0_9": {"adamw", "adafactor", "lamb"},
    "torch_423cfba": set(),
    "pytorch_2": set(),
    "generic": set(),
}


@pytest.mark.parametrize("framework", OPTIMIZERS_BEYOND)
def test_optimizers_that_a_framework_never_had_are_said_first_where_they_run(framework):
    mlp = pm.zoo.feed_forward()
    for optimizer in pm.layers.OPTIMIZERS:
        p = pm.predict(mlp, batch_size=4, device=GPU, framework=framework, optimizer=optimizer)
        lines = [line for line in p.basis.prepared.shortfalls if "optimizer" in line]
        assert bool(lines) == (optimizer in OPTIMIZERS_BEYOND[framework]), optimizer
        for line in lines:
            assert line.startswith(f"{load_framework(framework).name} cannot run optimizer {optimizer}: ")
            assert "".join(str(p).split()).startswith("".join(f"note:{line}".split()))
    without = {"batch_size": 4, "device": GPU, "framework": framework, "optimizer": "lamb", "strict": True}
    for phase in ("forward", "forward_backward"):
        assert pm.predict(mlp, **without, phase=phase).step_s > 0
    if "lamb" in OPTIMIZERS_BEYOND[framework]:
        with pytest.raises(ArgumentError, match="cannot run optimizer lamb"):
            pm.predict(mlp, **without)


def test_a_layer_can_be_lacking_and_another_be_there():
    gpt = pm.zoo.gpt(layers=1, width=64, heads=2, sequence_length=32, vocabulary=512)
    for framework in ("caffe_1_0_rc3", "caffe_cudnn5", "deeplearning4j_0_9", "deeplearning4j_0_8"):
        lines = pm.predict(gpt, batch_size=1, device=GPU, framework=framework).basis.prepared.shortfalls
        assert any("attention" in line for line in lines)
        assert not any("embedding (" in line or "dense (" in line for line in lines)
    table = pm.LayerGraph("table", input_shape=(8,))
    table.add("table", pm.layers.Embedding(vocabulary=100, features=16), inputs=table.input)
    assert pm.predict(table, batch_size=1, device=GPU, framework="caffe_1_0_rc3", strict=True, phase="forward")
    rnn = pm.zoo.recurrent_network(cell="rnn")
    assert "rnn" in pm.predict(rnn, batch_size=1, device=GPU, framework="deeplearning4j_0_9").remarks[0]


def test_what_is_ranked_best_says_that_its_framework_cannot_run_it():
    axes = {"framework": ["caffe_1_0_rc3", "cntk_1_5_rc"], "optimizer": ["sgd", "lamb"]}
    s = pm.sweep(LSTM, batch_size=4, device=GPU, **axes)
    assert sorted(s.beyond.values()) == [1, 1, 2]  # LAMB of both, LSTM of Caffe
    best = s.best()
    beyond = best["framework"] == "caffe_1_0_rc3" or best["optimizer"] == "lamb"
    assert beyond == ("predicted although" in best["reason"])
    for row in s.to_table().rows:
        lacking = ["lstm"] * (row.framework == "caffe_1_0_rc3") + ["lamb"] * (row.optimizer == "lamb")
        assert all(name in row.reason for name in lacking)
        assert bool(lacking) == ("predicted although" in row.reason)
    assert "although Caffe 1.0.0-rc3 cannot run lstm" in " ".join(str(s.pareto("step_s")).split()) or not beyond
    able = pm.sweep(LSTM, batch_size=4, device=GPU, framework="torch_423cfba").best()
    assert "although" not in able["reason"]


def test_strict_is_asked_anew_where_a_job_was_prepared_before():
    how = {"batch_size": 4, "device": GPU, "framework": "caffe_1_0_rc3"}
    before = pm.predict(LSTM, **how).step_s
    with pytest.raises(ArgumentError):
        pm.predict(LSTM, **how, strict=True)
    assert pm.predict(LSTM, **how).step_s == before


def test_a_data_type_and_several_workers_can_be_beyond_a_framework():
    mlp = pm.zoo.feed_forward()
    half = pm.predict(mlp, batch_size=4, device="tesla_p100_pcie", framework="theano_0_8", dtype="fp16")
    assert "fp16" in half.remarks[0]
    assert not pm.predict(mlp, batch_size=4, device=GPU, framework="theano_0_8").basis.prepared.shortfalls
    on_cpu = pm.predict(mlp, batch_size=4, device=CPU, framework="theano_0_8")
    assert not on_cpu.basis.prepared.shortfalls
    two = {"batch_size": 4, "system": "survey_fig5", "workers": 2, "framework": "theano_0_8"}
    assert "several workers" in pm.predict(mlp, **two).remarks[0]
    with pytest.raises(ArgumentError, match="several workers"):
        pm.predict(mlp, **two, strict=True)


def test_strict_is_an_axis_and_refused_rows_say_why():
    axes = {"framework": ["caffe_1_0_rc3", "torch_423cfba"], "strict": [False, True]}
    s = pm.sweep(LSTM, batch_size=[2, 4], device=GPU, **axes)
    refused = [
        bool(strict) and name == "caffe_1_0_rc3" for name, strict in zip(s["framework"], s["strict"], strict=True)
    ]
    assert refused.count(True) == 2
    for is_refused, reason, step_s in zip(refused, s["reason"], s["step_s"], strict=True):
        assert ("lstm" in reason) == is_refused
        assert math.isfinite(step_s) != is_refused
    several = pm.sweep(
        pm.zoo.feed_forward(), batch_size=4, system="survey_fig5", framework="theano_0_8", workers=[1, 2], strict=True
    )
    assert [math.isfinite(step_s) for step_s in several["step_s"]] == [True, False]
    assert "several workers" in several["reason"][1]


def test_the_command_line_says_it_first_and_refuses_with_strict(capsys):
    words = ["predict", "lstm32", "--device", GPU, "--batch-size", "4", "--framework", "caffe_1_0_rc3", "--top", "0"]
    assert run(words) == 0
    assert capsys.readouterr().out.startswith("note: Caffe 1.0.0-rc3 cannot run lstm (layer lstm)")
    assert run([*words, "--json"]) == 0
    assert "cannot run lstm" in json.loads(capsys.readouterr().out)["remarks"][0]
    assert run([*words, "--strict"]) == 2
    assert "framework must be one that can run this job" in capsys.readouterr().err


def test_no_table_that_measured_something_contradicts_a_file():
    contradictions = set()
    for name in measurements.names():
        table = measurements.load(name)
        for row in table.subset():
            on = {"system": row.device, "threads": row.threads} if row.threads else {"device": row.device}
            executed = table.run_of(row)
            beyond = pm.Job(replace(executed, hosts={}), **on).prepared.shortfalls
            contradictions |= {(name, row.network, line) for line in beyond}
    assert contradictions == set()


def test_every_shipped_entry_names_known_layers_and_evidence():
    profiles = [load_framework(name) for name in spec_files.names("frameworks")]
    entries = [entry for profile in profiles for entry in profile.cannot]
    assert len(entries) >= 10
    assert all(len(entry.evidence.split()) >= 8 for entry in entries)


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"layers": ("lstmm",)}, "lstmm"),
        ({"optimizers": ("adamm",)}, "adamm"),
        ({"processors": ("gpu",)}, "layers, phases, dtypes or several_workers"),
        ({"layers": ("lstm",), "evidence": "so"}, "evidence"),
    ],
)
def test_a_wrong_entry_is_refused(fields, part, tmp_path):
    text = "\n".join(
        f"{name} = {json.dumps(value)}"
        for name, value in {"evidence": "somebody wrote in a document", **fields}.items()
    )
    folder = tmp_path / "frameworks"
    folder.mkdir()
    path = folder / "mine.toml"
    path.write_text(f'schema_version = 1\ninherits = "generic"\nname = "mine"\n[[cannot]]\n{text}\n', encoding="utf-8")
    with pytest.raises(SpecError, match=part):
        load_framework(path)


@pytest.mark.parametrize(("processor", "phase"), list(product(("gpu", "cpu"), ("forward", "backward"))))
def test_conditions_of_an_entry_are_all_needed(processor, phase):
    entry = Incapacity(
        layers=("lstm",), processors=("gpu",), phases=("backward",), evidence="an entry of this test, which says so"
    )
    holds = entry.concerns(processor=processor, phases=[phase], dtype="fp32", workers=1)
    assert holds == ((processor, phase) == ("gpu", "backward"))


def test_kinds_that_are_known_without_loading_layers_are_kinds():
    assert pm.layers.LAYERS.keys() >= OFTEN_LACKING
    with pytest.raises(ValueError, match="lsmt"):
        Incapacity(layers=("lsmt",), evidence="a sentence that is long enough to be evidence")


@pytest.mark.parametrize("framework", ["caffe_1_0_rc3", "cntk_1_5_rc"])
def test_a_framework_that_lacks_the_base_type_of_a_recipe_lacks_the_recipe(framework):
    mlp = pm.zoo.feed_forward()
    lines = {
        dtype: pm.predict(mlp, batch_size=4, device="h100_sxm", framework=framework, dtype=dtype).basis.prepared
        for dtype in ("bf16", "fp8")
    }
    assert lines["fp8"].shortfalls == lines["bf16"].shortfalls != ()


@pytest.mark.parametrize(
    "framework",
    [
        "tensorflow_0_9",
        "tensorflow_1_1",
        "tensorflow_1_12",
        "mxnet_0_9",
        "torch_423cfba",
        "torch7_cudnn5_1",
        "pytorch_1_0",
    ],
)
@pytest.mark.parametrize("graph", [pm.zoo.fcn5(), RESNET], ids=["fcn5", "resnet18"])
def test_no_framework_before_2019_trains_in_bf16_on_a_gpu(framework, graph):
    p = pm.predict(graph, batch_size=4, device="a100_80_sxm", dtype="bf16", framework=framework)
    (shortfall,) = p.basis.prepared.shortfalls
    assert "bf16" in shortfall
    with pytest.raises(ArgumentError, match=r"^framework must be one that can run this job"):
        pm.predict(graph, batch_size=4, device="a100_80_sxm", dtype="bf16", framework=framework, strict=True)
