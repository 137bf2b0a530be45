"""Calls that do not fit: verbs, networks, layers and importers say in words what to give instead."""

import inspect
import pickle
from dataclasses import replace

import pytest

import perfmodel as pm
from perfmodel.calls import check_call
from perfmodel.errors import ArgumentError, CallError, UnknownNameError
from perfmodel.zoo.options import checked

GRAPH = pm.zoo.alexnet()
DENSE = pm.layers.Dense(units=3)
PREDICTION = pm.predict(GRAPH, batch_size=16, device="gtx_1080")


@pytest.mark.parametrize(
    ("call", "name", "nearest"),
    [
        (lambda: pm.layers.Dense(unitz=3), "argument of Dense 'unitz'", "units"),
        (lambda: replace(DENSE, unit=3), "argument of Dense 'unit'", "units"),
        (lambda: pm.zoo.resnet50(imagesize=3), "argument of resnet50 'imagesize'", "image_size"),
        (lambda: pm.zoo.resnet18(class_=3), "argument of resnet18 'class_'", "classes"),
        (lambda: pm.from_onnx("net.onnx", sizs={}), "argument of from_onnx 'sizs'", "sizes"),
        (lambda: pm.from_torch(None, None, train=True), "argument of from_torch 'train'", "training"),
        (lambda: pm.from_huggingface_config({}, head_="x"), "argument of from_huggingface_config 'head_'", "head"),
        (lambda: pm.from_keras("m.keras", input_shape=(3,)), "argument of from_keras 'input_shape'", "input_shapes"),
        (lambda: pm.from_deeplearning4j("{}", nam=""), "argument of from_deeplearning4j 'nam'", "name"),
        (lambda: pm.audit(GRAPH, batchsize=3), "argument of audit 'batchsize'", "batch_size"),
        (lambda: pm.validate("shi2016", protocl="x"), "argument of validate 'protocl'", "protocol"),
        (lambda: pm.fit("shi2016", onyl="gpu"), "argument of fit 'onyl'", "only"),
        (lambda: pm.predict(GRAPH, batchsize=3), "argument of predict 'batchsize'", "batch_size"),
        (lambda: pm.Job(GRAPH, batchsize=3), "argument of predict 'batchsize'", "batch_size"),
        (lambda: pm.load_system("dgx_h100", machine=3), "argument of load_system 'machine'", "machines"),
        (lambda: PREDICTION.cost_usd(prize=3), "argument of cost_usd 'prize'", "price"),
        (lambda: pm.load_price("p3.2xlarge", one="2017-10-26"), "argument of load_price 'one'", "on"),
        (lambda: pm.load_device(nam_or_path="v100_pcie"), "argument of load_device 'nam_or_path'", "name_or_path"),
    ],
)
def test_an_unknown_argument_is_answered_with_the_nearest_one(call, name, nearest):
    with pytest.raises(UnknownNameError, match=name) as caught:
        call()
    assert caught.value.nearest == nearest
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: pm.layers.Dense(), "Dense must be given units (int): Dense(units=...)"),
        (
            lambda: pm.search(GRAPH, global_batch_size=8),
            "search must be given system (str, Path, System or Cluster): "
            "search(graph, system=..., global_batch_size=...)",
        ),
        (lambda: pm.sweep(batch_size=[1, 2]), "sweep must be given graph (LayerGraph or Run): sweep(graph"),
        (
            lambda: pm.compare(),
            "compare must be given first (Prediction) and second (Prediction): compare(first, second)",
        ),
        (
            lambda: pm.from_onnx(batch_size=3),
            "from_onnx must be given path (str or Path): from_onnx(path, batch_size=...)",
        ),
        (
            lambda: PREDICTION.cost_usd(),
            "cost_usd must be given price (str, Path, InstancePrice or float): cost_usd(price)",
        ),
        (lambda: PREDICTION.epoch_s(), "epoch_s must be given dataset_size (int): epoch_s(dataset_size=...)"),
        *((getattr(pm, name), f"{name} must be given name_or_path (") for name in dir(pm) if name.startswith("load_")),
    ],
)
def test_what_is_missing_is_said_with_a_call_that_has_it(call, says):
    with pytest.raises(CallError) as caught:
        call()
    assert str(caught.value).startswith(says)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: pm.predict(GRAPH, 16),
            "predict takes only graph without a name; name the others: predict(graph, batch_",
        ),
        (lambda: pm.layers.Dense(3), "Dense takes no argument without a name; name the others: Dense(units=...)"),
        (lambda: pm.zoo.resnet50(1000), "resnet50 takes no argument without a name; name the others: resnet50("),
        (
            lambda: pm.search(GRAPH, "dgx_h100"),
            "search takes only graph without a name; name the others: "
            "search(graph, system=..., global_batch_size=...) (got 2 without a name)",
        ),
        (lambda: pm.layers.ReLU(True), "ReLU takes no argument (got 1 without a name)"),
        (
            lambda: PREDICTION.epoch_s(1000),
            "epoch_s takes no argument without a name; name the others: epoch_s(dataset_",
        ),
        (lambda: pm.sweep(GRAPH, graph=GRAPH), "sweep is given graph twice"),
        (lambda: pm.Job(GRAPH, 16), "Job takes only graph without a name; name the others: Job(graph, batch_size=...)"),
        (
            lambda: pm.load_link("pcie_3_x16", 8),
            "load_link takes only name_or_path without a name; name the others: load_link(name_or_path, lane_",
        ),
        (lambda: pm.load_storage("samsung_960_pro", 1), "load_storage takes only name_or_path (got 2 without a name)"),
    ],
)
def test_arguments_without_a_name_are_answered_with_a_call_that_names_them(call, says):
    with pytest.raises(CallError) as caught:
        call()
    assert str(caught.value).startswith(says)


def test_a_prediction_without_a_network_says_what_it_needs():
    for verb in (pm.predict, pm.Job):
        for arguments in ({}, {"batch_size": 16, "device": "gtx_1080"}):
            with pytest.raises(ArgumentError, match=r"graph must be a LayerGraph \(see pm\.zoo\)"):
                verb(**arguments)
        shown = inspect.signature(verb).parameters
        assert shown["graph"].default is inspect.Parameter.empty
        assert "batch_size" in shown
        assert not any(it.kind is inspect.Parameter.VAR_POSITIONAL for it in shown.values())


def test_a_fault_inside_a_call_that_fits_stays_as_it_is():
    assert check_call(pm.zoo.resnet50, (), {"classes": 10}) is None
    assert check_call(pm.search, (GRAPH,), {"system": "dgx_h100", "global_batch_size": 8, "tensor_size": 2}) is None
    with pytest.raises(TypeError, match="not iterable") as caught:
        checked()(_iterates_a_number)()
    assert not isinstance(caught.value, CallError)


def _iterates_a_number(*, depth: int = 2):
    return list(depth)


def test_layers_are_as_they_were():
    assert inspect.signature(pm.layers.Dense) == inspect.signature(type(pickle.loads(pickle.dumps(DENSE))))
    assert list(inspect.signature(pm.layers.Dense).parameters) == list(DENSE.options())
    assert pickle.loads(pickle.dumps(DENSE)) == DENSE == replace(DENSE, units=3)
