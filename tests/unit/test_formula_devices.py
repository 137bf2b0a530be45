"""A free number of a device changes all that it changes in the device's file."""

import pytest

import perfmodel as pm

GRAPH = pm.zoo.lenet5()


@pytest.mark.parametrize(
    ("device", "framework", "dtype"),
    [
        ("a100_40_pcie", "pytorch_2", "fp32"),  # rounds to TF32, whose peak is another number
        ("rtx_3090", "torch_423cfba", "bf16"),  # no kernels for tensor cores: computed in single precision
        ("tesla_p40", "caffe_cudnn5", "fp16"),  # slower than single precision: only stored so
    ],
)
@pytest.mark.parametrize("ratio", [0.3, 30.0])
def test_a_free_peak_is_that_of_its_data_type_alone(device, framework, dtype, ratio):
    how = {"framework": framework, "dtype": dtype, "batch_size": 256}
    f = pm.formula(graph=GRAPH, device=device, free="peak_flop_per_s", **how)
    spec = pm.load_device(device)
    peaks = spec.peak_tflop_per_s.model_copy(update={dtype: ratio * f.stated["peak_flop_per_s"] / 1e12})
    p = pm.predict(GRAPH, device=spec.model_copy(update={"peak_tflop_per_s": peaks}), **how)
    assert f(ratio * f.stated["peak_flop_per_s"]) == pytest.approx(p.step_s, rel=1e-9)


def test_a_free_clock_is_that_of_the_caches_too():
    how = {"framework": "tensorflow_0_9", "batch_size": 4}
    f = pm.formula(graph=GRAPH, device="i7_3820", free="clock_hz", **how)
    spec = pm.load_device("i7_3820")
    for ratio in (0.4, 3.0):
        clocks = {
            "clock_base_ghz": ratio * spec.clock_base_ghz,
            "turbo_ghz_by_active_cores": tuple(ratio * each for each in spec.turbo_ghz_by_active_cores),
        }
        p = pm.predict(GRAPH, device=spec.model_copy(update=clocks), **how)
        assert spec.wide_simd_clock is None
        assert f(ratio * f.stated["clock_hz"]) == pytest.approx(p.step_s, rel=1e-9)
