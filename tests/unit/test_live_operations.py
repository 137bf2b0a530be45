"""Nothing that the live check predicts was timed by a calibration: not one operation with its sizes."""

from dataclasses import replace
from itertools import islice

import pytest

pytest.importorskip("torch")

from perfmodel.calibration.machine.backends.torch_backend import TorchBackend
from perfmodel.calibration.machine.drawing import Sequence
from perfmodel.framework.kernel_classes import measured_kernel, pooled_classes
from perfmodel.validation.live_prediction import live_operations

DRAWS = 100
"""Of each benchmark: some times as many as a session takes."""


@pytest.fixture(scope="module")
def timed():
    """Every operation that the calibrator could time: far more draws of each benchmark than a session takes."""
    benchmarks = TorchBackend("cpu").benchmarks("fp32").values()
    return {
        (measured_kernel(operation, element_bytes=4).efficiency, operation)
        for benchmark in benchmarks
        for operation in map(benchmark.operation, islice(Sequence(benchmark), DRAWS))
    }


@pytest.mark.parametrize("processor", ["cpu", "gpu"])
def test_no_operation_of_a_live_network_is_among_those_a_calibration_times(timed, processor):
    live_set = live_operations(processor=processor)
    assert len(live_set) > 500
    assert len(timed) > 10 * len(live_set)
    assert not live_set & timed


def test_a_network_that_was_timed_would_be_noticed(timed):
    name, operation = next(iter(timed))
    assert {(name, replace(operation))} & timed


def test_every_class_of_the_live_networks_but_plain_passes_is_measured_itself(timed):
    measured = {name for name, _ in timed}
    needed = {name for name, _ in live_operations() if "elementwise" not in pooled_classes(name)}
    assert {"gemm_output", "stem_weight_gradient", "lstm_output", "attention_backward"} <= needed
    assert needed <= measured
