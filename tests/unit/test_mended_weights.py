"""Stored and pruned weights beside narrow products, dense storage, penalties, remarks and optimizers' options."""

import json

import pytest
from typer.testing import CliRunner

import perfmodel as pm
from perfmodel.cli.app import app
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.layers.optimizers import load_optimizer

GPT = pm.zoo.gpt(layers=2, width=4096, heads=32, sequence_length=128)


def predicted(graph=GPT, **arguments):
    asked = {"batch_size": 64, "device": "h100_sxm", "framework": "generic", "phase": "forward"}
    return pm.predict(graph, **asked | arguments)


@pytest.mark.parametrize("dtype", ["int8", "fp8"])
def test_stored_weights_are_no_slower_beside_narrow_products(dtype):
    plain, stored = predicted(dtype=dtype), predicted(dtype=dtype, weight_dtype="int8")
    assert 0.9 * plain.step_s < stored.step_s < plain.step_s  # their casts and scales are spared, no products
    assert stored.step_s < 0.9 * predicted(dtype="bf16", weight_dtype="int8").step_s
    assert stored.memory.weights_bytes < 0.7 * plain.memory.weights_bytes


def test_weights_of_the_operands_type_are_operands_as_they_lie():
    few = {"batch_size": 1, "dtype": "int8"}
    plain, eight, four = (predicted(**few, weight_dtype=dtype).step_s for dtype in (None, "int8", "int4"))
    assert eight < four < plain  # int4 is cast, int8 is not


def test_pruned_weights_are_no_slower_in_fp8():
    dense, sparse = predicted(dtype="fp8"), predicted(GPT.pruned(0.5, pattern="2:4"), dtype="fp8")
    eight = predicted(GPT.pruned(0.5, pattern="2:4"), dtype="int8")
    assert eight.compute_s < 0.85 * dense.compute_s  # sparse tensor cores
    assert sparse.compute_s == dense.compute_s  # no shipped file says that sparse tensor cores take eight bits
    assert 0.9 * dense.step_s < sparse.step_s < dense.step_s  # casts read fewer bytes
    assert predicted(GPT.pruned(0.1), dtype="fp8").step_s < dense.step_s


@pytest.mark.parametrize("network", [pm.zoo.vgg16(), GPT])
@pytest.mark.parametrize("density", [0.5, 0.7])
def test_weights_stored_dense_take_the_time_of_dense_ones(network, density):
    for framework in ("generic", "pytorch_1_0"):
        asked = {"framework": framework, "device": "v100_sxm2", "dtype": "fp32", "batch_size": 4}
        dense, pruned = (predicted(graph, **asked) for graph in (network, network.pruned(density)))
        assert pruned.step_s == dense.step_s
        assert predicted(network.pruned(0.1), **asked).step_s != dense.step_s
    eight = {"dtype": "bf16", "weight_dtype": "int8", "framework": "generic"}
    assert predicted(network.pruned(density), **eight).step_s == predicted(network, **eight).step_s


@pytest.mark.parametrize("evaluations", [1, 3])
def test_each_evaluation_computes_the_penalty_of_the_weights(evaluations):
    plain = load_optimizer("lbfgs", evaluations=evaluations)
    asked = {"phase": "step", "device": "v100_sxm2", "batch_size": 4}
    network = pm.zoo.vgg16()
    without, lost = (
        predicted(network, optimizer=plain, weight_penalty=penalty, **asked).update_s for penalty in (None, "l2")
    )
    sgd = [predicted(network, optimizer="sgd", weight_penalty=penalty, **asked).update_s for penalty in (None, "l2")]
    assert lost - without == pytest.approx(evaluations * (sgd[1] - sgd[0]), rel=0.02)
    punished = load_optimizer("lbfgs", evaluations=evaluations, weight_penalty="l2")
    names = [
        operation.name
        for _, operation in network.operations(batch_size=4, phase="step", optimizer=punished)
        if hasattr(operation, "name")
    ]
    assert names.count("l2_gradient") == evaluations * names.count("lbfgs") > 0


@pytest.mark.parametrize("density", ["0.5", None, "2:4", True, 0, 1.5, float("nan")])
@pytest.mark.parametrize("pattern", ["unstructured", "2:4", "structured"])
def test_a_density_that_is_none_is_refused(density, pattern):
    with pytest.raises(ArgumentError, match="density must be a number above 0 and at most 1"):
        GPT.pruned(density, pattern=pattern)


@pytest.mark.parametrize("pattern", ["unstructured", "structured"])
def test_density_one_leaves_the_network(pattern):
    assert GPT.pruned(1, pattern=pattern) is GPT
    with pytest.raises(ArgumentError, match=r"density must be .* below 1 with it"):
        GPT.pruned(1.0, pattern="2:4")


def update_s(framework, optimizer, network=None, **arguments):
    network = pm.zoo.vgg16() if network is None else network
    asked = {"phase": "step", "device": "gtx_1080", "batch_size": 16, "framework": framework}
    return predicted(network, optimizer=optimizer, **asked | arguments).update_s


@pytest.mark.parametrize("framework", ["pytorch_1_0", "deeplearning4j_0_9", "pytorch_2"])
def test_optimizers_of_more_work_take_longer(framework):
    times = {
        name: update_s(framework, name)
        for name in ("sgd", "adagrad", "rmsprop", "adam", "adamw", "nadam", "adamax", "adadelta", "lamb")
    }
    assert times["sgd"] < times["adagrad"] == times["rmsprop"] < times["adamax"] < times["adamw"]
    assert times["adam"] < times["adamw"] < times["lamb"]
    assert times["adam"] <= times["nadam"]
    assert times["adam"] <= times["adadelta"]
    assert times["sgd"] < update_s(framework, "adafactor")


def test_the_fused_adam_of_megatron_is_adamw():
    asked = {"network": GPT, "device": "h100_sxm", "dtype": "bf16", "batch_size": 1}
    assert update_s("megatron_core", "adam", **asked) == update_s("megatron_core", "adamw", **asked)


def test_options_may_be_written_behind_an_optimizers_name():
    made = load_optimizer("lbfgs:history_size=5,evaluations=20")
    assert made == load_optimizer("lbfgs", history_size=5, evaluations=20)
    assert load_optimizer("rmsprop:momentum=0.9, centered=true") == load_optimizer(
        "rmsprop", momentum=0.9, centered=True
    )
    network, text = pm.zoo.alexnet(), "lbfgs:history_size=5,evaluations=2"
    asked = {"network": network, "device": "v100_sxm2"}
    assert update_s("generic", text, **asked) == update_s("generic", load_optimizer(text), **asked)
    assert update_s("generic", text, **asked) < 0.2 * update_s("generic", "lbfgs", **asked)
    swept = pm.sweep(network, optimizer=["sgd", text], batch_size=16, device="v100_sxm2")
    assert [row.optimizer for row in swept.rows] == ["sgd", text]


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("lbfgs:histroy_size=5", UnknownNameError, "history_size"),
        ("lbfgs:history_size=many", ArgumentError, "history_size must be"),
        ("lbfgs:history_size", ArgumentError, "OPTION=VALUE"),
        ("lbfgs:", ArgumentError, "OPTION=VALUE"),
        ("adam:beta_1=0.9,beta_1=0.8", ArgumentError, "each option once"),
        ("rmsprop:centered=2", ArgumentError, "centered must be"),
        ("sdg:weight_decay=0.1", UnknownNameError, "sgd"),
    ],
)
def test_errors_of_written_options_say_what_is_allowed(text, error, says):
    with pytest.raises(error, match=says):
        predicted(optimizer=text, phase="step")


def printed(*words):
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_line_takes_options_of_optimizers():
    where, text = ["--device", "gtx_1080", "--batch-size", "16"], "lbfgs:history_size=5,evaluations=2"
    asked = {"batch_size": 16, "device": "gtx_1080"}
    step_s = json.loads(printed("predict", "vgg16", *where, "--optimizer", text, "--json"))["step_s"]
    assert step_s == pm.predict(pm.zoo.vgg16(), optimizer=load_optimizer(text), **asked).step_s
    swept = printed("sweep", "vgg16", *where, "--optimizer", f"sgd,{text},adam", "--json")
    assert [row["optimizer"] for row in json.loads(swept)["rows"]] == ["sgd", text, "adam"]
