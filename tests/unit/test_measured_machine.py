"""Files of measured machines, classes of kernels, and the formula of their curves."""

import numpy as np
import pytest
import sympy

import perfmodel as pm
from measured_machines import FILE, content, machine
from perfmodel.cli.specs import faults_of_file
from perfmodel.cost.measured_kernel import FEATURES, cold_share, kernel_features, measured_kernel_time
from perfmodel.errors import ArgumentError, SpecError
from perfmodel.framework.measured_lowering import family_of, measured_kernel, pooled_classes
from perfmodel.hardware.measured_machine import CONSTANTS_OF_FAMILY, MeasuredMachine
from perfmodel.records import Attention, Contraction, Convolution, Gather, MemoryPass, Recurrence, Role


def convolution(kernel, *, stride=1, channels=64, groups=1, role=Role.OUTPUT, axes=2, **options):
    kernel = kernel if isinstance(kernel, tuple) else (kernel,) * axes
    return Convolution(
        batch_size=4, in_channels=channels, out_channels=64, input_size=(16,) * axes, output_size=(16,) * axes,
        kernel_size=kernel, stride=(stride,) * axes, padding=((0, 0),) * axes, dilation=(1,) * axes, groups=groups,
        role=role, **options,
    )  # fmt: skip


RECURRENCE = {"batch_size": 4, "steps": 10, "input_size": 8, "hidden_size": 8, "pointwise_flop_count": 9}


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        (Contraction(m=4, n=5, k=6), "gemm_output"),
        (Contraction(m=4, n=5, k=6, count=8, role=Role.INPUT_GRADIENT), "batched_gemm_input_gradient"),
        (convolution(1), "conv2d_1x1_s1_output"),
        (convolution(3, stride=2), "conv2d_3x3_s2_output"),
        (convolution((1, 7)), "conv2d_3x3_s1_output"),
        (convolution(5, role=Role.WEIGHT_GRADIENT), "conv2d_large_s1_weight_gradient"),
        (convolution(3, groups=4), "conv2d_3x3_s1_grouped_output"),
        (convolution(3, groups=64, role=Role.INPUT_GRADIENT), "depthwise_small_input_gradient"),
        (convolution(5, groups=64), "depthwise_large_output"),
        (convolution(7, channels=3), "stem_output"),
        (convolution(3, axes=1), "conv1d_3x3_s1_output"),
        (convolution(3, axes=3), "conv3d_3x3_s1_output"),
        (convolution(4, transposed=True), "conv2d_large_s1_input_gradient"),
        (MemoryPass(name="relu", read_elements=1, written_elements=1, tensor_elements=1), "relu"),
        (
            MemoryPass(
                name="relu", read_elements=1, written_elements=1, tensor_elements=1, role=Role.INPUT_GRADIENT
            ),
            "relu_backward",
        ),
        (MemoryPass(name="adam", read_elements=1, written_elements=1, tensor_elements=1, role=Role.UPDATE), "adam"),
        (Gather(rows=4, width=8, table_rows=100), "gather"),
        (Gather(rows=4, width=8, table_rows=100, role=Role.WEIGHT_GRADIENT), "scatter_add"),
        (Recurrence(gate_count=4, state_count=2, **RECURRENCE), "lstm_output"),
        (Recurrence(gate_count=3, state_count=1, role=Role.INPUT_GRADIENT, **RECURRENCE), "gru_input_gradient"),
        (Recurrence(gate_count=1, state_count=1, **RECURRENCE), "rnn_output"),
        (
            Attention(batch_size=2, heads=2, key_heads=2, queries=4, keys=4, head_size=8, value_size=8),
            "attention",
        ),
    ],
)  # fmt: skip
def test_each_operation_is_one_kernel_of_a_class(operation, name):
    kernel = measured_kernel(operation, element_bytes=4)
    work = operation.work(element_bytes=4)
    assert kernel.efficiency == name
    assert (kernel.read_bytes, kernel.written_bytes) == (work.read_bytes, work.written_bytes)
    assert hasattr(kernel, "m") == (family_of(name) != "stream")
    assert kernel.launches == 1


def test_the_product_of_a_convolution_does_its_arithmetic():
    for groups in (1, 4, 64):
        for role in (Role.OUTPUT, Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT):
            operation = convolution(3, groups=groups, role=role)
            kernel = measured_kernel(operation, element_bytes=4)
            assert kernel.flop_count == pytest.approx(operation.product_flop_count)


def test_stand_ins_get_broader_step_by_step():
    chain = ("conv1d_3x3_s2_grouped_output", *pooled_classes("conv1d_3x3_s2_grouped_output"))
    assert chain == (
        "conv1d_3x3_s2_grouped_output",
        "conv1d_3x3_s2_output",
        "conv2d_3x3_s2_output",
        "conv2d_3x3_s1_output",
        "convolution_output",
        "contraction",
    )
    assert pooled_classes("depthwise_small_input_gradient") == ("convolution_input_gradient", "contraction")
    assert pooled_classes("batched_gemm_output") == ("gemm_output", "contraction")
    assert pooled_classes("lstm_output") == ("recurrence",)
    assert pooled_classes("attention_backward") == ("attention",)
    assert pooled_classes("adam") == ("update", "elementwise")
    assert pooled_classes("elementwise") == ()


SIZES = {"element_bytes": 4, "vector_lanes": 16, "near_cache_bytes": 1e6}
PRODUCT = {"m": 10, "n": 17, "k": 5, "count": 2, "read_bytes": 1000, "written_bytes": 500}
STREAM = {"read_bytes": 1.5e6, "written_bytes": 5e5, "flop_count": 7, "serial_steps": 3}


class TestCurve:
    def test_every_constant_of_a_file_has_a_feature_and_the_other_way_round(self):
        for family, columns in (
            ("contraction", PRODUCT), ("convolution", PRODUCT), ("stream", STREAM),
        ):  # fmt: skip
            assert tuple(kernel_features(family, columns, **SIZES)) == CONSTANTS_OF_FAMILY[family]
        assert FEATURES.keys() == CONSTANTS_OF_FAMILY.keys()

    def test_features_by_hand(self):
        product = kernel_features("contraction", PRODUCT, **SIZES)
        assert list(product.values()) == [1, 2 * 2 * 10 * 32 * 5, 4 * 2 * 50, 4 * 2 * 85, 4 * 2 * 170, 0]
        assert list(kernel_features("convolution", PRODUCT, **SIZES).values()) == [1, 6400, 1000, 500, 0]
        assert list(kernel_features("stream", STREAM, **SIZES).values()) == [1, 2e6, 1e6, 7, 3]

    def test_what_exceeds_the_near_cache_is_far_in_every_family(self):
        small = SIZES | {"near_cache_bytes": 1000.0}
        assert kernel_features("contraction", PRODUCT, **small)["s_per_far_byte"] == 4 * 2 * (50 + 85 + 170) - 1000
        assert kernel_features("convolution", PRODUCT, **small)["s_per_far_byte"] == 500
        assert kernel_features("stream", STREAM, **small)["s_per_far_byte"] == 2e6 - 1000

    def test_smaller_elements_fill_more_lanes(self):
        half = kernel_features("contraction", PRODUCT | {"n": 33}, **(SIZES | {"element_bytes": 2}))
        assert half["s_per_flop"] == 2 * 2 * 10 * 64 * 5

    def test_larger_elements_fill_fewer_lanes(self):
        for n, padded in ((8, 8), (9, 16), (17, 24)):  # 16 lanes of fp32 are 8 of fp64
            double = kernel_features("contraction", PRODUCT | {"n": n}, **(SIZES | {"element_bytes": 8}))
            assert double["s_per_flop"] == 2 * 2 * 10 * padded * 5

    def test_the_formula_serves_arrays_and_symbols(self):
        constants = {"call_s": 1e-6, "s_per_byte": 1e-10, "s_per_far_byte": 2e-10}
        size = sympy.Symbol("N", positive=True)
        columns = STREAM | {"read_bytes": size}
        symbolic = measured_kernel_time(kernel_features("stream", columns, **SIZES), constants)
        many = STREAM | {"read_bytes": np.array([1e5, 1e6])}
        times = measured_kernel_time(kernel_features("stream", many, **SIZES), constants)
        assert [float(symbolic.subs(size, each)) for each in (1e5, 1e6)] == pytest.approx(times.tolist(), rel=1e-12)

    def test_data_leaves_a_cache_with_the_traffic_since(self):
        distances = np.array([0.0, 1e3, 1e6, 1e9, 1e12])
        shares = cold_share(distance_bytes=distances, cache_bytes=1e6)
        assert shares[0] == 0
        assert shares[-1] == 1
        assert (np.diff(shares) >= 0).all()


class TestFile:
    def test_it_is_written_as_it_was_read(self, tmp_path):
        original = pm.load_device(FILE)
        original.save(tmp_path / "again.toml")
        again = pm.load_calibration(tmp_path / "again.toml")
        assert isinstance(again, pm.Calibration)
        assert again == original
        again.save(tmp_path / "again.toml")
        assert pm.load_device(tmp_path / "again.toml") == original
        assert [path.name for path in tmp_path.iterdir()] == ["again.toml"]

    def test_an_object_made_in_python_is_written_too(self, tmp_path):
        made = MeasuredMachine.model_validate(content() | {"storage": [], "host_copy": []})
        made.save(tmp_path / "made.toml")
        assert pm.load_device(tmp_path / "made.toml") == made

    def test_a_name_among_the_calibrations_is_a_device(self, tmp_path, monkeypatch):
        (tmp_path / "calibrations").mkdir()
        machine().save(tmp_path / "calibrations" / "my_machine.toml")
        monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
        assert pm.load_device("my_machine") == pm.load_calibration("my_machine")
        assert "my_machine" in pm.catalogue().names("calibration")

    def test_one_line_says_what_it_is(self):
        text = pm.load_device(FILE).describe()
        assert "Made-up(R) Processor (CPU, 2 threads) with torch 2.13.0+cpu" in text
        assert "1,400 points" in text

    @pytest.mark.parametrize(
        ("old", "new", "told"),
        [
            ("s_per_far_byte = 3e-11", "s_per_fra_byte = 3e-11", "nearest: s_per_far_byte"),
            ('dtype = "fp32"', 'dtype = "fp23"', "nearest: fp32"),
            ('family = "stream"', 'family = "steam"', "'stream'"),
            ("threads = 2\n", "", "machine.threads"),
            ("vector_lanes", "vector_lane", "nearest key: vector_lanes"),
            ("call_s = 8e-6", "call_s = 9e-5", "low, value and high must rise"),
            ('name = "sgd"', 'name = "relu"', "occurs 2 times"),
            ("s_per_flop = 1e-11, s_per_right_byte", "s_per_flop = -1e-11, s_per_right_byte", "greater than or equal"),
            ("flop_range = [1e3, 1e10]", "flop_range = [1e10, 1e3]", "smaller end, then the larger"),
            ("{ fp32 = 2e11 }", "{ fp16 = 2e11 }", "fp32 is missing"),
            ("measured_at = 2026-11-22T14:00:00", 'measured_at = "yesterday"', "session.measured_at"),
            ("{ call_s = 6e-6, s_per_byte = 4e-11 }", "{ call_s = 0.0 }", "takes no time"),
        ],
    )
    def test_faults_name_file_field_and_what_is_allowed(self, tmp_path, old, new, told):
        text = FILE.read_text(encoding="utf-8")
        assert old in text
        (tmp_path / "wrong.toml").write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(SpecError, match=r"wrong\.toml") as caught:
            pm.load_device(tmp_path / "wrong.toml")
        assert told in str(caught.value)

    def test_a_class_of_another_family_is_found_by_the_check(self, tmp_path):
        text = FILE.read_text(encoding="utf-8")
        (tmp_path / "odd.toml").write_text(text.replace("convolution_output", "convolution_outputs"), encoding="utf-8")
        (fault,) = faults_of_file(tmp_path / "odd.toml", folder="")
        assert "convolution_outputs" in fault
        assert faults_of_file(FILE, folder="") == []

    def test_a_fit_is_no_device_and_a_measured_machine_no_part_of_a_system(self, tmp_path):
        with pytest.raises(ArgumentError, match="calibration="):
            pm.load_device("shi2016_gpu")
        text = (pm_systems() / "desktop_i7_3820.toml").read_text(encoding="utf-8")
        (tmp_path / "box.toml").write_text(text.replace('"i7_3820"', f'"{FILE}"'), encoding="utf-8")
        with pytest.raises(SpecError, match="must be a CPU with a data sheet"):
            pm.load_system(tmp_path / "box.toml")


def pm_systems():
    from perfmodel.hardware.spec_files import shipped_folder

    return shipped_folder() / "systems"
