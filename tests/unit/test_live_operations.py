"""Nothing that the live check predicts was timed by a calibration: not one operation with its sizes."""

from dataclasses import replace
from itertools import islice

import pytest

pytest.importorskip("torch")

import perfmodel as pm
from perfmodel.calibration.backends.torch_backend import TorchBackend
from perfmodel.calibration.benchmark import Point, Sequence
from perfmodel.calibration.calibrate import calibrate
from perfmodel.calibration.journal import Journal, journal_of, read_journal
from perfmodel.cli.app import run
from perfmodel.framework.measured_lowering import pooled_classes
from perfmodel.hardware import spec_files
from perfmodel.validation.live.prediction import cases_of, find_networks, operations_of
from tests.counted_kernels import count_kernels
from tests.timed_operations import class_of, live_operations, recorded_operations

DRAWS = 100
"""Of each benchmark: some times as many as a session takes."""


@pytest.fixture(scope="module")
def timed():
    """Every operation that the calibrator could time: far more draws of each benchmark than a session takes."""
    benchmarks = TorchBackend("cpu").benchmarks("fp32").values()
    return {
        (class_of(operation), operation)
        for benchmark in benchmarks
        for operation in map(benchmark.operation, islice(Sequence(benchmark), DRAWS))
    }


@pytest.mark.parametrize("processor", ["cpu", "gpu"])
def test_no_operation_of_a_live_network_is_among_those_a_calibration_times(timed, processor):
    live_set = live_operations(processor=processor)
    assert len(live_set) > 500
    assert len(timed) > 10 * len(live_set)
    assert not live_set & timed


def test_what_is_run_at_inference_is_among_the_operations_of_a_live_network():
    cases = cases_of(find_networks(["mnist_classifier", "lstm32"]), processor="cpu", dtypes=("fp32",))
    traced = {(class_of(operation), operation) for case in cases for operation in operations_of(case)}
    assert traced <= live_operations()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """What a short calibration of this machine really timed: the operations of the points in its record."""
    class_count = len(TorchBackend("cpu").benchmarks("fp32"))
    out = tmp_path_factory.mktemp("calibration") / "mine.toml"
    with pytest.MonkeyPatch.context() as patch:
        count_kernels(patch, class_count)
        machine = calibrate("cpu", backend="torch", budget_s=5, progress=False, out=out, dtypes="fp32")
    record = journal_of(out)
    operations = recorded_operations(record)
    assert len(operations) == len(read_journal(record)["points"]) == machine.session.point_count
    return [(class_of(operation), operation) for _, operation in operations]


@pytest.mark.parametrize("processor", ["cpu", "gpu"])
def test_no_operation_of_a_live_network_was_timed_by_a_real_calibration(recorded, processor):
    assert len({name for name, _ in recorded}) >= 20  # each class has its first point before any has a second
    assert not live_operations(processor=processor) & set(recorded)


@pytest.mark.parametrize("processor", ["cpu", "gpu"])
def test_no_operation_of_a_live_network_was_timed_by_the_shipped_calibration(processor):
    record = journal_of(spec_files.find("calibrations", "xeon_2_cores_torch_2_13"))
    shipped = recorded_operations(record)
    assert len(shipped) == pm.load_calibration("xeon_2_cores_torch_2_13").session.point_count
    assert not live_operations(processor=processor) & {(class_of(operation), operation) for _, operation in shipped}


def test_the_shipped_calibration_has_a_figure_of_its_points(tmp_path):
    assert run(["calibration", "show", "xeon_2_cores_torch_2_13", "--plot", str(tmp_path / "x.png")]) == 0
    assert (tmp_path / "x.png").is_file()


def test_a_record_with_one_of_theirs_would_be_noticed(tmp_path):
    journal = Journal(tmp_path / "one.points.json", {"backend": "torch"})
    for rows in (4095, 4096):  # the MNIST classifier's first layer has 4096 of them on a CPU
        sizes = {"rows": rows, "inputs": 784, "outputs": 64}
        journal.points.append(Point(name="gemm_output", dtype="fp32", sizes=sizes, seconds=1e-3))
    journal.write()
    ours = {("gemm_output", operation) for _, operation in recorded_operations(journal.path)}
    (shared,) = live_operations() & ours
    assert shared[1].m == 4096


def test_a_network_that_was_timed_would_be_noticed(timed):
    name, operation = next(iter(timed))
    assert {(name, replace(operation))} & timed


def test_every_class_of_the_live_networks_but_plain_passes_is_measured_itself(timed):
    measured = {name for name, _ in timed}
    needed = {name for name, _ in live_operations() if "elementwise" not in pooled_classes(name)}
    assert {"gemm_output", "stem_weight_gradient", "lstm_output", "attention_backward"} <= needed
    assert needed <= measured
