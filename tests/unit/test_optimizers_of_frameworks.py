"""Updates as frameworks of 2016 and 2017 call them, counted call by call."""

from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.framework.profile import load_framework
from perfmodel.layers.optimizers import OPTIMIZERS

ONE, TWO, SET = (1, 1), (2, 1), (0, 1)
"""Tensors that a call reads and writes: of one operand, of two, of none. [1]"""
STEP = [TWO, SET]
"""Subtract the update from the weights, clear the gradients."""
CAFFE = {
    "nesterov": [ONE, TWO, TWO, ONE],
    "adam": [TWO, ONE, TWO, ONE, ONE, TWO, ONE],
    "adagrad": [ONE, TWO, ONE, ONE, TWO, TWO],
    "adadelta": [ONE, TWO, SET, TWO, TWO, TWO, ONE, TWO, ONE, TWO, ONE],
    "rmsprop": [ONE, TWO, ONE, ONE, TWO, TWO],
}
"""Solver -> its calls of caffe_copy, caffe_axpby, caffe_mul, caffe_powx ... before the step."""
CAFFE_KERNELS = {"nesterov": 1, "adam": 2, "adagrad": 1, "adadelta": 2, "rmsprop": 1}
"""Solver -> values of state that its one kernel reads and writes beside the gradient. [1]"""
TENSORFLOW = {
    "adam": [(2, 1), (2, 1), (3, 1)],
    "adagrad": [(2, 1), (3, 1)],
    "adadelta": [(2, 1), (4, 1), (3, 1)],
    "rmsprop": [(2, 1), (3, 1), (2, 1)],
}
"""Operator -> tensors that each of its assignments reads and writes. [1]"""
PAGE = Path(__file__).resolve().parents[2] / "docs" / "physics.md"


def counted(framework, processor, optimizer):
    rule = getattr(load_framework(framework), processor).lowering.passes[optimizer]
    return rule.reads, rule.writes, rule.launches


def totals(calls):
    return sum(read for read, _ in calls), sum(written for _, written in calls), len(calls)


@pytest.mark.parametrize("optimizer", CAFFE)
def test_solvers_of_caffe(optimizer):
    calls = totals(CAFFE[optimizer] + STEP)
    assert counted("caffe_1_0_rc3", "gpu", optimizer) == counted("caffe_1_0_rc3", "cpu", optimizer) == calls
    kernel = (1 + CAFFE_KERNELS[optimizer],) * 2
    assert counted("caffe_cudnn5", "gpu", optimizer) == totals([kernel, *STEP])
    assert counted("caffe_cudnn5", "cpu", optimizer) == calls


@pytest.mark.parametrize("optimizer", TENSORFLOW)
def test_operators_of_tensorflow(optimizer):
    reads, writes, launches = totals(TENSORFLOW[optimizer])
    for framework in ("tensorflow_1_1", "tensorflow_1_12"):
        assert counted(framework, "gpu", optimizer) == (reads, writes, launches)
        assert counted(framework, "cpu", optimizer) == (reads, writes, 1)


def test_one_kernel_takes_the_time_of_fewer_passes():
    asked = {"batch_size": 16, "device": "gtx_1080", "optimizer": "adadelta"}
    calls, one = (
        pm.predict(pm.zoo.alexnet(), framework=name, **asked).update_s for name in ("caffe_1_0_rc3", "caffe_cudnn5")
    )
    assert calls / one == pytest.approx((18 + 13) / (5 + 5), rel=0.05)


def test_the_page_says_what_the_files_say():
    rows = [line.strip("| \n").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    columns = (("pytorch_2", "gpu"), ("caffe_1_0_rc3", "gpu"), ("caffe_cudnn5", "gpu"), ("tensorflow_1_1", "gpu"))
    stated = {name: cells for first, _, *cells in rows if (name := first.strip("`")) in OPTIMIZERS}
    assert {"adam", "adadelta", "rmsprop", "nesterov", "adagrad"} <= stated.keys()
    for optimizer, cells in stated.items():
        for (framework, processor), cell in zip(columns, cells, strict=True):
            known = getattr(load_framework(framework), processor).lowering.passes
            is_counted = optimizer in known
            expected = "{:g} + {:g} in {:g}".format(*counted(framework, processor, optimizer)) if is_counted else "once"
            assert cell == expected, (optimizer, framework)
