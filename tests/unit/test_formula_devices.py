"""A free number of a device changes all that it changes in the device's file."""

import itertools

import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError

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


def _with_peak(device, dtype, peak_flop_per_s):
    spec = pm.load_device(device)
    peaks = spec.peak_tflop_per_s.model_copy(update={dtype: peak_flop_per_s / 1e12})
    return spec.model_copy(update={"peak_tflop_per_s": peaks})


def spec_is_on_lanes(device):
    return not pm.load_device(device).needs_tensor_cores("fp16")


@pytest.mark.parametrize(
    ("device", "framework", "limited"),
    [("tesla_p100_pcie", "torch_423cfba", True), ("tesla_p100_pcie", "pytorch_2", True),
     ("v100_pcie", "torch_423cfba", True), ("v100_pcie", "pytorch_2", False), ("a100_40_pcie", "pytorch_2", False)],
)  # fmt: skip
@pytest.mark.parametrize("name", ["peak_flop_per_s", "constant"])
def test_a_peak_that_would_be_of_other_units_is_refused(device, framework, limited, name):
    # half precision on lanes or on tensor cores: which of them follows from the two peaks, and so do the kernels
    how = {"framework": framework, "dtype": "fp16", "batch_size": 128}
    free, unit = ("peak_flop_per_s", 1.0) if name == "peak_flop_per_s" else (
        f"devices/{device}/peak_tflop_per_s.fp16", 1e12)  # fmt: skip
    f = pm.formula(graph=GRAPH, device=device, free=free, **how)
    border = 2.05 * pm.load_device(device).peak_flop_per_s("fp32")
    beyond = (1.001, 1.1, 30.0) if spec_is_on_lanes(device) else (0.3, 0.9, 0.999)
    for ratio in (0.3, 0.9, 0.999, 1.001, 1.1, 30.0):
        if limited and ratio in beyond:
            with pytest.raises(ArgumentError, match=r"plain lanes|tensor cores"):
                f(ratio * border / unit)
        else:
            p = pm.predict(GRAPH, device=_with_peak(device, "fp16", ratio * border), **how)
            assert f(ratio * border / unit) == pytest.approx(p.step_s, rel=1e-9)


def test_a_limited_peak_is_solved_for_within_its_limits():
    how = {"framework": "torch_423cfba", "dtype": "fp16", "batch_size": 128}
    f = pm.formula(graph=GRAPH, device="tesla_p100_pcie", free="peak_flop_per_s", **how)
    found = f.solve_for("peak_flop_per_s", 1.01 * f())
    assert f(found.value) == pytest.approx(1.01 * f(), rel=1e-9)
    with pytest.raises(ArgumentError, match="lanes"):
        f.solve_for("peak_flop_per_s", f(), between=(1e12, 1e14))
    row = f.elasticities()["peak_flop_per_s"]
    assert row.gain != row.gain  # no number
    assert "lanes" in row.sentence


@pytest.mark.parametrize("ratio", [0.4, 0.99, 1.01, 3.0])
def test_a_free_peak_of_single_precision_keeps_half_precision_on_its_units(ratio):
    how = {"framework": "pytorch_2", "dtype": "fp16", "batch_size": 128}
    name = "devices/tesla_p100_pcie/peak_tflop_per_s.fp32"
    f = pm.formula(graph=GRAPH, device="tesla_p100_pcie", free=name, **how)
    border = pm.load_device("tesla_p100_pcie").peak_flop_per_s("fp16") / 2.05
    if ratio < 1:
        with pytest.raises(ArgumentError, match="at least"):
            f(ratio * border / 1e12)
    else:
        p = pm.predict(GRAPH, device=_with_peak("tesla_p100_pcie", "fp32", ratio * border), **how)
        assert f(ratio * border / 1e12) == pytest.approx(p.step_s, rel=1e-9)
    with pytest.raises(ArgumentError, match="one peak"):
        pm.formula(graph=GRAPH, device="tesla_p100_pcie", free=["peak_flop_per_s", name], **how)


@pytest.mark.parametrize("constant", ["dispatch_us", "libraries/cudnn_4/pascal.issue_us"])
def test_a_free_dispatch_alone_leaves_every_choice_as_it_is(constant):
    how = {"graph": GRAPH, "device": "gtx_1080", "batch_size": 8, "framework": "torch_423cfba"}
    if constant == "dispatch_us":
        profile = pm.load_framework("torch_423cfba")
    f = pm.formula(free=constant, **how)
    p = pm.predict(**how)
    assert f() == pytest.approx(p.step_s, rel=1e-9)
    (name,) = f.stated
    assert f(3 * f.stated[name]) > 1.004 * f()
    if constant == "dispatch_us":
        slower = profile.gpu.constants | {"dispatch_us": 3 * profile.gpu.constants["dispatch_us"]}
        changed = profile.model_copy(update={"gpu": profile.gpu.model_copy(update={"constants": slower})})
        assert f(3 * f.stated[name]) == pytest.approx(pm.predict(**how | {"framework": changed}).step_s, rel=1e-9)


TWICE = [
    ("gtx_1080", "peak_flop_per_s", "devices/gtx_1080/peak_tflop_per_s.fp32"),
    ("gtx_1080", "launch_latency_s", "devices/gtx_1080/launch.latency_us"),
    ("gtx_1080", "memory_bandwidth_bytes_per_s", "devices/gtx_1080/memory.bandwidth_gb_per_s"),
    ("gtx_1080", "link_bandwidth_bytes_per_s", "links/pcie_3/typical_efficiency"),
    ("gtx_1080", "link_bandwidth_bytes_per_s", "links/pcie_3/pageable_efficiency"),
    ("i7_3820", "memory_bandwidth_bytes_per_s", "devices/i7_3820/memory.efficiency"),
]


@pytest.mark.parametrize(("device", "name", "constant"), TWICE)
@pytest.mark.parametrize("turned", [False, True])
def test_one_number_under_two_names_is_refused(device, name, constant, turned):
    how = {"pinned": not constant.endswith("pageable_efficiency"), "batch_size": 4}
    free = [constant, name] if turned else [name, constant]
    with pytest.raises(ArgumentError, match=f"free must.*{free[0]} and {free[1]}"):
        pm.formula(graph=GRAPH, device=device, free=free, **how)


def test_a_peak_of_half_precision_under_two_names_is_refused_as_one_number():
    names = ("peak_flop_per_s", "devices/tesla_p100_pcie/peak_tflop_per_s.fp16")
    for free in itertools.permutations(names):
        with pytest.raises(ArgumentError, match=r"free must.*peak_flop_per_s"):
            pm.formula(graph=GRAPH, device="tesla_p100_pcie", framework="pytorch_2", dtype="fp16", batch_size=4,
                       free=free)  # fmt: skip


@pytest.mark.parametrize("device", ["xeon_e5_2698_v4", "i7_3820"])
@pytest.mark.parametrize("short", [False, True])
def test_a_base_clock_by_the_name_of_its_field_is_refused(device, short):
    # a busy step runs at the clocks of turbo and of wide SIMD, which are fields of their own
    graph, name = pm.zoo.autoencoder(), "clock_base_ghz" if short else f"devices/{device}/clock_base_ghz"
    spec = pm.load_device(device)
    slower = spec.model_copy(update={"clock_base_ghz": 0.7 * spec.clock_base_ghz})
    assert (
        pm.predict(graph, device=slower, batch_size=4).step_s == pm.predict(graph, device=device, batch_size=4).step_s
    )
    for free in ([name], ["clock_hz", name], [name, "clock_hz"]):
        with pytest.raises(ArgumentError, match="free must be clock_hz") as caught:
            pm.formula(graph=graph, device=device, batch_size=4, free=free)
        assert caught.value.argument == "free"


@pytest.mark.parametrize("constant", ["memory.efficiency", "memory.bandwidth_per_core_gb_per_s"])
@pytest.mark.parametrize("ratio", [0.05, 0.7])
def test_a_constant_of_a_cpu_is_the_field_of_that_name(constant, ratio):
    spec, field = pm.load_device("i7_3820"), constant.removeprefix("memory.")
    f = pm.formula(graph=GRAPH, device="i7_3820", batch_size=64, free=f"devices/i7_3820/{constant}")
    memory = spec.memory.model_copy(update={field: ratio * getattr(spec.memory, field)})
    p = pm.predict(GRAPH, device=spec.model_copy(update={"memory": memory}), batch_size=64)
    assert f(ratio * getattr(spec.memory, field)) == pytest.approx(p.step_s, rel=1e-9)
