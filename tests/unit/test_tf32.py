"""TF32: which products of single precision a framework lets run on tensor cores, and that a user is told."""

import pytest

import perfmodel as pm

RESNET = pm.zoo.resnet50()
DENSE = pm.zoo.fcn5()


def seconds(graph, **where):
    return pm.predict(graph, batch_size=64, **where)


def test_convolutions_run_on_tensor_cores_and_products_of_the_blas_do_not():
    # the device's own ratio of peaks bounds what can be gained; dense layers of fp32 gain nothing
    gained = seconds(RESNET, device="a100_40_sxm", framework="pytorch_2")
    assert any("TF32" in remark and "fp32" in remark for remark in gained.remarks)
    assert "TF32" in gained.explain()
    dense = {
        device: seconds(DENSE, device=device, framework="pytorch_2", dtype="fp32").compute_s
        for device in ("a100_40_sxm", "v100_sxm2")
    }
    peaks = {name: pm.load_device(name).peak_flop_per_s("fp32") for name in dense}
    assert dense["a100_40_sxm"] / dense["v100_sxm2"] > 0.5 * peaks["v100_sxm2"] / peaks["a100_40_sxm"]


@pytest.mark.parametrize(("device", "framework"), [("v100_sxm2", "pytorch_2"), ("a100_40_sxm", "pytorch_1_0")])
def test_without_the_type_or_the_leave_nothing_is_rounded(device, framework):
    assert not any("TF32" in remark for remark in seconds(RESNET, device=device, framework=framework).remarks)


def test_the_type_by_its_name_rounds_every_product():
    by_name = seconds(DENSE, device="a100_40_sxm", framework="pytorch_2", dtype="tf32")
    plain = seconds(DENSE, device="a100_40_sxm", framework="pytorch_2", dtype="fp32")
    assert by_name.compute_s < plain.compute_s
    assert not any("round" in remark for remark in by_name.remarks)


def test_what_is_asked_for_in_half_precision_stays_half():
    remarks = seconds(RESNET, device="a100_40_sxm", framework="pytorch_2", dtype="fp16").remarks
    assert not any("TF32" in remark for remark in remarks)
