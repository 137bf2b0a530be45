"""Predictions on a measured machine: sums by hand, classes that stand in, what is refused, and what is told."""

import json
import math

import numpy as np
import pytest
import sympy

import perfmodel as pm
from measured_machines import FILE, machine, predicted, three_layers
from perfmodel.errors import ArgumentError, NotYetAvailableError
from perfmodel.graph import LayerGraph
from perfmodel.layers import GELU, Dense, ReLU
from perfmodel.prediction.device.measured_target import MeasuredTarget
from perfmodel.prediction.device.step_time import step_time
from perfmodel.prediction.job.lowered import lowered_graph
from perfmodel.prediction.job.subject import subject_of_graph
from perfmodel.units import MIB

FC1, RELU, FC2 = (
    1e-5 + 2 * 32 * 784 * 64 * 1e-11 + 4 * 784 * 64 * 1e-10,
    4e-6 + 2 * 4 * 32 * 64 * 2e-11,
    1e-5 + 2 * 32 * 64 * 16 * 1e-11 + 4 * 64 * 10 * 1e-10,  # ten columns fill one vector of sixteen
)
BACKWARD = (
    (1e-5 + 2 * 32 * 10 * 64 * 1.5e-11)  # fc2: gradient of its input, 64 columns
    + (1e-5 + 2 * 64 * 32 * 16 * 2e-11)  # of its weights, 10 columns padded
    + (7e-6 + 4 * (32 * 10 + 10) * 8e-11)  # of its bias: a reduction
    + (5e-6 + 4 * 3 * 32 * 64 * 5e-11)  # relu backward: element-wise stands in
    + (1e-5 + 2 * 784 * 32 * 64 * 2e-11)  # fc1: weights only, its input wants no gradient
    + (7e-6 + 4 * (32 * 64 + 64) * 8e-11)
)
UPDATE = 4 * (6e-6 + 2e-6) + 4 * 3 * (784 * 64 + 64 + 64 * 10 + 10) * 4e-11  # four tensors, w and g read, w written
AROUND = 3 * 3e-6 + 3 * 8e-6 + 3e-5  # six gradients of three layers, each one node of back-propagation


def test_inference_is_the_sum_of_its_kernels():
    assert predicted(phase="forward").step_s == pytest.approx(FC1 + RELU + FC2, rel=1e-12)


def test_a_training_step_adds_gradients_update_and_what_the_framework_takes():
    near = machine(near_cache_mib=1e9)
    assert predicted(near).step_s == pytest.approx(FC1 + RELU + FC2 + BACKWARD + UPDATE + AROUND, rel=1e-12)


def test_without_an_update_only_its_kernels_are_missing():
    expected = FC1 + RELU + FC2 + BACKWARD + AROUND
    assert predicted(machine(near_cache_mib=1e9), phase="forward_backward").step_s == pytest.approx(expected, rel=1e-12)


def test_calls_are_overhead_and_the_parts_sum_to_the_step():
    p = predicted()
    calls = 6 * 1e-5 - 1e-5 + 4e-6 + 2 * 7e-6 + 5e-6 + 4 * (6e-6 + 2e-6) + AROUND
    assert p.overhead_s == pytest.approx(calls, rel=1e-12)
    assert sum(p.breakdown.values()) == pytest.approx(p.step_s, rel=1e-12)


def test_only_the_far_bytes_of_a_kernel_beyond_the_near_cache_cost_more():
    batch_size = 65536
    moved = 2 * 4 * batch_size * 64
    (row,) = [row for row in predicted(phase="forward", batch_size=batch_size).layers if row.layer == "relu"]
    assert row.seconds == pytest.approx(moved * 2e-11 + (moved - 4 * MIB) * 3e-11, rel=1e-12)


def test_a_step_finds_less_in_the_near_cache_than_a_repeated_kernel():
    """A training step's ReLU writes to memory that was last used a step ago; at inference it is recycled."""

    def relu_s(near_cache_mib, phase):
        layers = predicted(machine(near_cache_mib=near_cache_mib), phase=phase, batch_size=1024).layers
        return next(row.seconds for row in layers if row.kernel == "relu")

    written = 4 * 1024 * 64
    extra_s = relu_s(2.0, "step") - relu_s(1e9, "step")
    assert 0.5 * written * 3e-11 < extra_s < written * 3e-11  # the step moves 12 MB, the kernel half of one
    assert relu_s(2.0, "forward") == relu_s(1e9, "forward")


class TestFallBack:
    def test_a_class_without_a_curve_takes_that_of_its_pooled_class_and_says_so(self):
        usual, without = predicted(phase="forward"), predicted(machine(without=["relu"]), phase="forward")
        expected = FC1 + FC2 + 5e-6 + 2 * 4 * 32 * 64 * 5e-11
        assert without.step_s == pytest.approx(expected, rel=1e-12)
        assert not any("stand" in remark or "without a curve" in remark for remark in usual.remarks)
        assert any("relu by elementwise" in remark for remark in without.remarks)

    def test_a_pass_falls_back_through_its_class_of_passes(self):
        p = predicted(machine(without=["reduction"]))
        assert any("bias_gradient_backward by elementwise" in remark for remark in p.remarks)

    def test_a_kind_that_nothing_stands_in_for_is_refused_with_what_was_sought(self):
        with pytest.raises(ArgumentError, match="lacks lstm_output, recurrence"):
            pm.predict(pm.zoo.lstm32(), batch_size=4, device=machine())

    def test_a_stand_in_widens_the_interval(self):
        with_own, without = (
            predicted(each, phase="forward").interval.shares.get("stand_ins", 0.0)
            for each in (machine(), machine(without=["relu"]))
        )
        assert with_own == 0
        assert without > 0


class TestCold:
    def test_with_everything_in_the_caches_nothing_is_cold(self):
        cold = machine(hot=False)
        endless = cold.model_copy(update={"machine": cold.machine.model_copy(update={"reuse_mib": 1e12})})
        assert predicted(endless).step_s == pytest.approx(predicted(machine()).step_s, rel=1e-6)

    def test_weights_of_inference_are_as_cold_as_the_whole_step_between_two_uses(self):
        """A hundred layers of 16 KB of weights: each finds its own again after all the others' have passed."""
        graph, count = LayerGraph("deep", input_shape=(64,)), 100
        x = graph.input
        for place in range(count):
            x = graph.add(f"fc{place}", Dense(units=64, bias=False), inputs=x)
        weights, moved = 4 * 64 * 64, 4 * (64 * 64 + 2 * 64)
        for reuse_mib in (1e-1, 1.0, 1e1):
            device = machine(hot=False, reuse_mib=reuse_mib)
            extra_s = (
                predicted(device, graph=graph, batch_size=1, phase="forward").step_s
                - predicted(graph=graph, batch_size=1, phase="forward").step_s
            )
            kept, beyond = (math.exp(-((size / (reuse_mib * MIB)) ** 2)) for size in (moved, count * moved))
            assert extra_s == pytest.approx(count * weights * (kept - beyond) * 1e-10, rel=1e-6)
        assert extra_s < 0.2 * count * weights * 1e-10

    def test_a_cache_between_a_kernel_and_a_step_leaves_all_weights_cold(self):
        graph = pm.zoo.vgg16()
        device = machine(hot=False, reuse_mib=16.0)
        (row,), (hot,) = (
            [row for row in predicted(each, graph=graph, batch_size=1, phase="forward").layers if row.layer == "fc3"]
            for each in (device, machine())
        )
        weights = 4 * 4096 * 1000
        assert row.seconds - hot.seconds == pytest.approx(
            weights * math.exp(-((row.bytes / (16 * MIB)) ** 2)) * 1e-10, rel=1e-4
        )

    @staticmethod
    def extra_of_deep_network(kernel, *, non_linearity=ReLU, reuse_mib=4.0):
        """Seconds per byte that each operation of a class takes longer for what is cold, by layer in order."""
        graph = LayerGraph("deep", input_shape=(64,))
        x = graph.input
        for place in range(20):  # no two alike: operations that are share a row, and its mean
            x = graph.add(f"fc{place}", Dense(units=64 + place), inputs=x)
            x = graph.add(f"act{place}", non_linearity(), inputs=x)
        rows = predicted(machine(hot=False, reuse_mib=reuse_mib), graph=graph, batch_size=256).layers
        hot = predicted(machine(), graph=graph, batch_size=256).layers
        return {
            row.layer: (row.seconds - other.seconds) / row.bytes
            for row, other in zip(rows, hot, strict=True)
            if row.kernel == kernel
        }

    def test_back_propagation_far_from_its_forward_pass_is_colder(self):
        """The first layer's gradient reads what was made longest ago, the last layer's what was made just now."""
        extra = self.extra_of_deep_network("gelu_backward", non_linearity=GELU)
        assert list(extra) == [f"act{place}" for place in reversed(range(20))]
        assert (np.diff(list(extra.values())) > 0).all()
        assert extra["act19"] < 0.2 * extra["act0"]

    def test_an_output_that_the_next_layers_gradient_just_read_is_not_cold_again(self):
        """ReLU keeps its output, which the weight gradient of the layer behind it reads first; GELU keeps its input."""
        kept_output, kept_input = (
            self.extra_of_deep_network(f"{kind.kind}_backward", non_linearity=kind, reuse_mib=0.5)
            for kind in (ReLU, GELU)
        )
        assert 0 < kept_output["act0"] < 0.3 * kept_input["act0"]

    def test_gradients_alone_are_never_cold(self):
        assert set(self.extra_of_deep_network("bias_gradient_backward").values()) == {0.0}

    def test_what_overwrites_its_input_finds_it_where_it_was_just_written(self):
        def extra_s(in_place):
            graph = LayerGraph("short", input_shape=(64,))
            x = graph.add("fc", Dense(units=64), inputs=graph.input)
            graph.add("relu", ReLU(), inputs=x, in_place=in_place)
            cold, hot = (
                next(row for row in predicted(each, graph=graph, batch_size=256).layers if row.kernel == "relu")
                for each in (machine(hot=False, reuse_mib=1.0), machine())
            )
            return cold.seconds - hot.seconds

        assert extra_s(in_place=True) == 0
        assert extra_s(in_place=False) > 0


class TestGpu:
    def test_a_step_is_the_longer_of_device_and_host(self):
        kernels = {"dispatch_s": 0.0, "grad_forward_s": 0.0, "backward_s": 0.0, "parameter_s": 0.0, "step_s": 0.0}
        device_s = predicted(machine(processor="gpu", **kernels)).step_s
        slow_host = predicted(machine(processor="gpu", **(kernels | {"dispatch_s": 1e-3})))
        launches = 3 + 6 + 4  # four parameter tensors
        assert slow_host.step_s == pytest.approx(launches * 1e-3, rel=1e-9)
        assert slow_host.bottleneck == "host_dispatch"
        barely = predicted(machine(processor="gpu", **(kernels | {"dispatch_s": 0.5 * device_s / launches})))
        assert barely.step_s == pytest.approx(device_s, rel=1e-12)

    def test_the_loop_hides_behind_the_device(self):
        assert predicted(machine(processor="gpu", step_s=1e-9)).step_s == pytest.approx(
            predicted(machine(processor="gpu", step_s=0.0)).step_s, rel=1e-12
        )

    def test_threads_are_refused(self):
        with pytest.raises(ArgumentError, match="None for a GPU"):
            predicted(machine(processor="gpu"), threads=2)


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"framework": "tensorflow_0_9"}, "measured with its own software, torch 2.13.0"),
        ({"library": "openblas_0_3"}, "measured with its own libraries"),
        ({"threads": 3}, "None or 2"),
        ({"dtype": "bf16"}, "fp32, in which kernels of made-up cores"),
        ({"calibration": "shi2016_cpu"}, "shi2016"),
        ({"calibration": FILE}, "calibration must be a fit.*device="),
    ],
)
def test_what_was_not_measured_is_refused(options, allowed):
    with pytest.raises(ArgumentError, match=allowed):
        predicted(**options)


def test_parts_of_a_mini_batch_are_refused():
    with pytest.raises(NotYetAvailableError, match="whole networks and mini-batches"):
        predicted(accumulation_steps=2)


def test_fitted_factors_are_no_device():
    with pytest.raises(ArgumentError, match="calibration="):
        predicted(pm.load_calibration("shi2016_cpu"))


def test_the_calibrated_threads_and_the_framework_of_its_own_may_be_named():
    assert predicted(threads=2, framework="pytorch_2").step_s == predicted().step_s


def test_kernels_beyond_the_calibrated_range_are_told_with_the_factor():
    inside, outside = predicted(), predicted(batch_size=2**16)
    assert not any("outside the measured" in remark for remark in inside.remarks)
    (told,) = [remark for remark in outside.remarks if "outside the measured" in remark]
    assert "gemm_weight_gradient by a factor of 2.22" in told  # 4 x 65536 x (784 + 64) bytes of 1e8


def test_the_interval_follows_from_scatter_and_constants():
    p = predicted(phase="forward")
    low_s, high_s = p.interval_s
    assert low_s < p.step_s < high_s
    assert low_s * high_s == pytest.approx(p.step_s**2, rel=1e-9)
    assert sum(p.interval.shares.values()) == pytest.approx(1)
    residual, drift = math.sqrt(math.pi / 2) * 0.05, math.hypot(0.04, 0.01)
    least = 1.2816 * math.hypot(residual * (FC1 + FC2) / p.step_s, drift)
    assert math.log(high_s / p.step_s) > least


def test_a_wider_constant_widens_the_interval():
    wide, wider = machine(), machine(high={"gemm_output": {"s_per_flop": 5e-11}})
    assert predicted(wider).interval.ratio > predicted(wide).interval.ratio
    assert predicted(wider).provenance[0].constant.endswith("gemm_output.s_per_flop")


def test_words_and_plain_values():
    p = predicted(FILE)
    assert json.loads(json.dumps(p.to_dict()))["framework"] == "torch 2.13.0+cpu"
    text = p.explain()
    assert "measured kernel by kernel on Made-up(R) Processor" in text
    assert "No whole step was timed for it" in " ".join(text.split())
    assert "calibrations/measured_cpu/gemm_output.s_per_flop" in json.dumps(p.to_dict()["constants"])
    assert [entry["file"] for entry in p.to_dict()["provenance"]] == ["made-up cores, torch 2.13.0"]
    assert p.memory.capacity_bytes == 16 * 2**30


@pytest.mark.parametrize(("short", "told"), [(0, "some classes have fewer"), (1, "1 class has"), (7, "7 classes have")])
def test_a_calibration_whose_budget_ended_early_says_so(short, told):
    whole = machine()
    assert not any("budget ended" in remark for remark in predicted(whole).remarks)
    update = {"complete": False, "short_class_count": short}
    stopped = whole.model_copy(update={"session": whole.session.model_copy(update=update)})
    (remark,) = (remark for remark in predicted(stopped).remarks if "budget ended" in remark)
    assert told in remark
    assert told in stopped.describe()
    assert "interrupted" not in remark + stopped.describe()


def test_memory_bounds_the_batch_on_a_measured_machine():
    assert pm.max_batch_size(pm.zoo.alexnet(), device=machine()) > 100


def numbers_and_table(batch_size):
    target = MeasuredTarget(machine(hot=False), threads=None)
    profile = pm.load_framework("pytorch_2")
    subject = subject_of_graph(three_layers(), optimizer="sgd", phase="step")
    table = lowered_graph(
        subject.graph, phase=subject.phase, optimizer=subject.optimizer, input_gradient=False, dtype="fp32",
        profile=profile, processor="cpu", support=target.support(profile, {}, dtype="fp32"), lowered_for="measured",
    ).table  # fmt: skip
    numbers = target.numbers(profile, {}, dtype="fp32")
    return target.in_step(numbers, table, subject.graph, batch_size=batch_size), table


def test_many_batch_sizes_at_once_are_as_each_by_itself():
    sizes = np.array([1.0, 32.0, 4096.0])
    numbers, table = numbers_and_table(sizes)
    together = step_time(table, numbers, batch_size=sizes, workspace_limit_bytes=math.inf).step_s
    each = [predicted(machine(hot=False), batch_size=int(size)).step_s for size in sizes]
    np.testing.assert_allclose(together, each, rtol=1e-12)


def test_a_symbol_for_the_batch_size_gives_the_same_step():
    size = sympy.Symbol("N", positive=True)
    numbers, table = numbers_and_table(size)
    step_s = step_time(table, numbers, batch_size=size, workspace_limit_bytes=math.inf).step_s
    assert float(step_s.subs(size, 32)) == pytest.approx(predicted(machine(hot=False)).step_s, rel=1e-9)


@pytest.mark.parametrize("factor", [1e4, 1e12])
def test_a_constant_that_was_hardly_seen_makes_a_wide_interval_and_no_overflow(factor):
    # a calibration on a machine that others kept busy: the ends of a constant lie a factor of ten thousand from it
    shipped = pm.load_device("xeon_2_cores_torch_2_13")
    unsure = tuple(
        each.model_copy(
            update={
                "low": {name: value / factor for name, value in each.constants.items()},
                "high": {name: value * factor for name, value in each.constants.items()},
            }
        )
        for each in shipped.kernel
    )
    graph = pm.zoo.lenet5()
    sure, p = (
        pm.predict(graph, batch_size=8, device=each)
        for each in (shipped, shipped.model_copy(update={"kernel": unsure}))
    )
    assert p.step_s == sure.step_s
    (low, high), (sure_low, sure_high) = p.interval_s, sure.interval_s
    assert 0 < low < sure_low < sure_high < high < math.inf
    assert low * high == pytest.approx(p.step_s**2)
