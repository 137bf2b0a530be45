"""Rows of a sweep that differ in a device, a data set or a batch size: nothing of one is taken for another."""

import itertools

import pytest

import perfmodel as pm
from perfmodel.errors import PerfmodelError

GRAPH = pm.zoo.alexnet()


def _worst(s):
    """Return by how much the step of any row differs from what predict says. [1]"""
    return max(abs(row["step_s"] / s.prediction(index).step_s - 1) for index, row in enumerate(s))


@pytest.mark.parametrize("devices", list(itertools.permutations(["a100_40_sxm", "h100_sxm", "v100_sxm2"])))
def test_what_a_library_takes_of_a_device_is_of_each_device(devices):
    s = pm.sweep(
        GRAPH, batch_size=16, device=list(devices), system="dgx_a100", workers=[2, 4],
        sync=["all_reduce", "ring_all_reduce"], bucket_bytes=[0, None, 25e6, "merged"],
    )  # fmt: skip
    assert _worst(s) < 1e-9


def test_frameworks_and_devices_with_libraries_of_their_own_are_told_apart():
    s = pm.sweep(
        GRAPH, batch_size=[4, 16], device=["h100_sxm", "a100_40_sxm"], system=["dgx_1_p100", "dgx_a100"], workers=2,
        sync="all_reduce", framework=["generic", "pytorch_1_0"], dtype=["fp32", "fp16"],
        link=[None, "nvlink_2_x1"],
    )  # fmt: skip
    assert _worst(s) < 1e-9


def test_a_refusal_names_the_processor_that_it_is_about():
    s = pm.sweep(GRAPH, batch_size=4, device=["i7_3820", "xeon_e5_2630_v3"], dataset="mnist", input_from="memory")
    for index, row in enumerate(s):
        with pytest.raises(PerfmodelError) as refused:
            s.prediction(index)
        assert row["reason"] == str(refused.value)
