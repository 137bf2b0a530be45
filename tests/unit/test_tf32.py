"""Types in which libraries compute: TF32 where a framework lets them round, wider ones where they have no kernels."""

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


@pytest.mark.parametrize("framework", ["torch_423cfba", "caffe_1_0_rc3", "tensorflow_0_9", "cntk_1_5_rc"])
@pytest.mark.parametrize(("device", "dtype"), [("v100_sxm2", "fp16"), ("a100_40_sxm", "bf16"), ("a100_40_sxm", "tf32")])
def test_a_library_older_than_tensor_cores_does_not_run_on_them(framework, device, dtype):
    single = seconds(pm.zoo.vgg16(), device=device, framework=framework)
    narrow = seconds(pm.zoo.vgg16(), device=device, framework=framework, dtype=dtype)
    assert narrow.compute_s == pytest.approx(single.compute_s, rel=0.25)  # fewer bytes may turn a kernel's bound
    assert any(f"no {dtype} kernels" in remark and "fp32" in remark for remark in narrow.remarks)


def test_lanes_that_pair_halves_need_no_tensor_cores():
    p100 = pm.load_device("tesla_p100_sxm2")
    assert not p100.needs_tensor_cores("fp16")
    assert all(pm.load_device("a100_40_sxm").needs_tensor_cores(dtype) for dtype in ("tf32", "fp16", "bf16"))
    assert pm.load_device("rtx_4090").needs_tensor_cores("fp16")  # at twice fp32, as lanes would, but on tensor cores
    remarks = seconds(RESNET, device="tesla_p100_sxm2", framework="torch7_cudnn5", dtype="fp16").remarks
    assert not any("kernels for the tensor cores" in remark for remark in remarks)


def test_libraries_that_stand_in_are_named():
    remarks = seconds(RESNET, device="a100_40_sxm", framework="tensorflow_1_12").remarks
    assert any("cuDNN 8" in remark and "stand in for" in remark and "cudnn_7" in remark for remark in remarks)
    assert not any(
        "stand in" in remark for remark in seconds(RESNET, device="v100_sxm2", framework="tensorflow_1_12").remarks
    )


@pytest.mark.parametrize(
    ("device", "dtype", "is_told"),
    [("tpu_v5e", "fp32", True), ("gaudi2", "fp32", True), ("tpu_v5e", "bf16", False), ("mi300x", "fp32", False),
     ("h100_sxm", "fp32", False), ("gtx_1080", "fp32", False)],
)  # fmt: skip
def test_products_outside_the_matrix_units_are_told(device, dtype, is_told):
    """Sixty times the time of bf16 is no surprise to leave to a default: the data type is fp32 unless stated."""
    told = " ".join(pm.predict(pm.zoo.alexnet(), batch_size=8, device=device, dtype=dtype).explain().split())
    assert ("outside the matrix units" in told) == ("dtype='bf16' predicts that" in told) == is_told
