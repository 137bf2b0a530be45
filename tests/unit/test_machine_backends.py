"""The kernels that a calibration times: what they compute, which classes they are, what real networks need of them."""

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.calibration.backends.base import check_result, smallest_sizes
from perfmodel.calibration.backends.numpy_backend import NumpyBackend
from perfmodel.calibration.benchmark import Prepared, shapes
from perfmodel.calibration.calibrate import benchmark_table, calibrate
from perfmodel.hardware.measured_machine import MeasuredMachine, MeasuredOn
from tests.counted_kernels import count_kernels
from tests.timed_operations import class_of

torch = pytest.importorskip("torch")

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]

NETWORKS = (
    "alexnet", "resnet18", "resnet50", "inception_v3", "lstm32", "seq2seq", "bert", "vit", "mnist_classifier", "fcn5",
    "mobilenet_v2", "vgg16", "unet", "googlenet", "densenet121", "gpt2",
)  # fmt: skip
"""Networks whose kernels must all be measured."""


@pytest.fixture(scope="module")
def table():
    return benchmark_table("torch")


def _operations(graph, batch_size=4):
    for phase in ("step", "forward"):
        for optimizer in ("sgd", "momentum", "adam"):
            for _, operation in graph.operations(batch_size=batch_size, phase=phase, optimizer=optimizer):
                yield operation


def _network(name):
    return getattr(pm.zoo, name)()


@pytest.mark.parametrize("name", NETWORKS)
def test_every_class_of_a_network_is_measured(name, table):
    wanted = {class_of(operation) for operation in _operations(_network(name))}
    assert not wanted - set(table)


def test_modules_imported_from_torch_need_no_other_classes(table):
    import warnings

    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.3),
        torch.nn.Linear(16 * 16, 10),
        torch.nn.LogSoftmax(dim=-1),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = pm.from_torch(module, torch.zeros(2, 3, 8, 8))
    assert {class_of(operation) for operation in _operations(graph)} <= set(table)


@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_every_benchmark_makes_operations_of_its_class(backend):
    for name, benchmark in benchmark_table(backend).items():
        drawn = shapes(benchmark, allowed=lambda operation: True)
        kinds = {class_of(benchmark.operation(next(drawn))) for _ in range(25)}
        assert kinds == {name}


@pytest.mark.parametrize("name", ["alexnet", "resnet50", "inception_v3", "lstm32", "bert", "vit", "mnist_classifier"])
def test_no_operation_of_a_network_with_an_even_batch_is_timed(name, table):
    theirs = {operation for batch in (2, 16, 64) for operation in _operations(_network(name), batch)}
    for benchmark in table.values():
        drawn = shapes(benchmark, allowed=lambda operation: True)
        ours = {benchmark.operation(next(drawn)) for _ in range(40)}
        assert not ours & theirs


@pytest.mark.parametrize("device", DEVICES)
def test_torch_kernels_agree_with_their_references(device):
    from perfmodel.calibration.backends.torch_backend import TorchBackend

    backend = TorchBackend(device)
    for benchmark in backend.benchmarks("fp32").values():
        with backend.settings("fp32"):
            check_result(backend, benchmark, smallest_sizes(benchmark), dtype="fp32")


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("device", DEVICES)
def test_halves_are_measured_where_torch_has_them(device, dtype):
    """Products, convolutions, recurrent layers and attention all exist in both halves."""
    from perfmodel.calibration.backends.torch_backend import TorchBackend

    backend = TorchBackend(device)
    assert dtype in backend.dtypes
    table = backend.benchmarks(dtype)
    for name in ("gemm_output", "conv2d_3x3_s1_weight_gradient", "lstm_output", "attention_backward", "layer_norm"):
        check_result(backend, table[name], smallest_sizes(table[name]), dtype=dtype)


def test_tf32_has_every_class_with_products_and_no_other(table):
    from perfmodel.calibration.backends.torch_backend import TorchBackend

    found = set(TorchBackend("cpu").benchmarks("tf32"))
    assert {"gemm_output", "batched_gemm_output", "conv2d_3x3_s1_input_gradient", "depthwise_small_output"} <= found
    assert {"lstm_output", "gru_weight_gradient", "attention", "attention_backward"} <= found
    assert not found & {"relu", "batch_norm", "softmax", "gather", "scatter_add", "sgd", "max_pool"}
    for name in set(table) - found:
        assert not table[name].operation(smallest_sizes(table[name])).product_flop_count, name


def test_tf32_is_switched_on_for_its_points_alone():
    from perfmodel.calibration.backends.torch_backend import TorchBackend

    backend, switches = TorchBackend("cpu"), (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [switch.allow_tf32 for switch in switches]
    for dtype in ("tf32", "fp32", "bf16"):
        with backend.settings(dtype):
            assert [switch.allow_tf32 for switch in switches] == 2 * [dtype == "tf32"]
        with pytest.raises(RuntimeError, match="stop"), backend.settings(dtype):
            raise RuntimeError("stop")
        assert [switch.allow_tf32 for switch in switches] == before


def test_tf32_takes_passes_from_fp32_and_products_from_nowhere_else():
    from perfmodel.calibration.benchmark import Point
    from perfmodel.calibration.classes import fitted_classes, grouped
    from tests.fake_machine import FACTS, LAW, FakeBackend

    law = {name: LAW[name] for name in ("gemm_output", "gemm_input_gradient", "relu")}
    backend = FakeBackend(law, noise=0)
    points = []
    for dtype, counts in (("fp32", (12, 12, 12)), ("tf32", (12, 2, 0))):
        for (name, benchmark), count in zip(backend.benchmarks(dtype).items(), counts, strict=True):
            drawn = shapes(benchmark, allowed=lambda operation: True)
            for sizes in (next(drawn) for _ in range(count)):
                speed = 1 if dtype == "fp32" else 4
                seconds = backend.seconds(benchmark, sizes, dtype) / speed
                points.append(Point(name=name, dtype=dtype, sizes=sizes, seconds=seconds))
    benchmarks = {dtype: backend.benchmarks(dtype) for dtype in ("fp32", "tf32")}
    rows = fitted_classes(grouped(points, benchmarks), machine=MeasuredOn.model_validate(FACTS))
    by_name = {(row["name"], row["dtype"]): row for row in rows}
    assert by_name["relu", "tf32"]["constants"] == by_name["relu", "fp32"]["constants"]
    assert ("gemm_input_gradient", "tf32") not in by_name  # of two points: contraction in tf32 stands in
    assert by_name["contraction", "tf32"]["constants"] != by_name["contraction", "fp32"]["constants"]


def test_numpy_kernels_agree_with_their_references():
    backend = NumpyBackend("cpu")
    for benchmark in backend.benchmarks("fp32").values():
        check_result(backend, benchmark, smallest_sizes(benchmark), dtype="fp32")


def test_a_gradient_is_that_of_autograd(table):
    """The calls that time gradients, held against autograd of the layer itself."""
    from perfmodel.calibration.backends.torch_passes import TorchTools

    tools = TorchTools(torch, device="cpu", dtype="float64", seed=3, pool=4096)
    sizes = {"batch": 3, "inputs": 16, "outputs": 24, "extent": 6, "kernel": 3, "stride": 1}
    for role in ("input_gradient", "weight_gradient"):
        benchmark = table[f"conv2d_3x3_s1_{role}"]
        tools.restart()
        got = benchmark.prepare(tools, sizes, benchmark.operation(sizes)).run()
        tools.restart()
        maps = tools.normal(3, 16, 6, 6, grad=True)
        filters = tools.normal(24, 16, 3, 3, grad=True)
        wanted = torch.autograd.grad(
            torch.nn.functional.conv2d(maps, filters, padding=1), (maps, filters), tools.normal(3, 24, 6, 6)
        )
        index = 0 if role == "input_gradient" else 1
        assert got[1 - index] is None
        np.testing.assert_allclose(got[index], wanted[index], rtol=1e-9)


@pytest.mark.parametrize("device", DEVICES)
def test_a_tiny_calibration_of_torch_is_a_device(device, tmp_path, monkeypatch):
    from perfmodel.calibration.backends.torch_backend import TorchBackend

    few = ("gemm_output", "gemm_input_gradient", "gemm_weight_gradient", "relu", "relu_backward", "sgd",
           "cross_entropy", "cross_entropy_backward", "bias_gradient_backward")  # fmt: skip
    whole = TorchBackend.benchmarks

    def some(self, dtype):
        return {name: each for name, each in whole(self, dtype).items() if name in few}

    monkeypatch.setattr(TorchBackend, "benchmarks", some)
    count_kernels(monkeypatch, 60, cold_points=2)
    out = tmp_path / "mine.toml"
    machine = calibrate(device, backend="torch", budget_s=3, progress=False, out=out, dtypes="fp32")
    assert {each.name for each in machine.kernel} & set(few)
    assert machine.session.point_count >= 50
    assert machine.peaks.gemm_flop_per_s["fp32"] > 1e8
    overheads = machine.overheads
    assert overheads.grad_forward_s + overheads.backward_s + overheads.step_s > 0 or device == "cuda"  # noise hides one
    _predicts(out)


def test_a_tiny_calibration_of_numpy_is_a_device(tmp_path, monkeypatch):
    count_kernels(monkeypatch, 60, cold_points=2)
    out = tmp_path / "mine.toml"
    machine = calibrate("cpu", backend="numpy", budget_s=3, progress=False, out=out, dtypes="fp32")
    assert machine.software.backend == "numpy"
    _predicts(out)


def _predicts(out):
    machine = pm.load_calibration(out)
    assert isinstance(machine, MeasuredMachine)
    small, large = (pm.predict(pm.zoo.fcn5(), batch_size=size, device=machine).step_s for size in (8, 512))
    assert 0 < small < large


def test_a_kernel_prepared_twice_has_memory_of_its_own(table):
    from perfmodel.calibration.backends.torch_backend import TorchBackend

    backend = TorchBackend("cpu")
    prepared = backend.prepare(table["relu"], {"elements": 65, "one": 1}, dtype="fp32")
    assert isinstance(prepared, Prepared)
    result = prepared.run()
    assert result.shape == (65, 1)
    assert bool((result >= 0).all())
    assert bool((result > 0).any())
