"""A GPU's plain numbers: rows that one thread reduces, error correction, and what bounds a step of tiny kernels."""

import numpy as np
import pytest
import sympy

import perfmodel as pm
from perfmodel.hardware.spec_files import shipped_folder
from perfmodel.layers import Dense, ReLU
from perfmodel.prediction.device.targets import resolve_target

CYCLES = 235  # serial_row_cycles of TensorFlow 0.9
CLOCK_HZ = 1850e6  # that a GTX 1080 keeps where nothing draws power


def numbers_of(framework, device="gtx_1080"):
    target = resolve_target(device=device, system=None, threads=None)
    profile = pm.load_framework(framework)
    return target.numbers(profile, target.libraries(profile, None), dtype="fp32")


def stream(read_bytes, serial_steps):
    return {"read_bytes": read_bytes, "written_bytes": 0.0, "flop_count": 0.0, "serial_steps": serial_steps}


def test_a_serial_row_takes_its_elements_one_by_one_or_its_traffic():
    numbers = numbers_of("tensorflow_0_9")
    assert numbers.serial_step_s == pytest.approx(CYCLES / CLOCK_HZ)
    # 64 rows of 26,752 scores: 6.85 MB at half of 320 GB/s are 43 us, a row's 26,752 loads in sequence 3.40 ms
    moved_bytes = np.array([64 * 26_752 * 4.0] * 3)
    _, seconds = numbers.stream_times(stream(moved_bytes, np.array([26_752, 100, 0])), ("argmax",) * 3)
    traffic_s = 64 * 26_752 * 4 / (0.5 * 320e9)
    assert traffic_s == pytest.approx(42.8e-6, rel=1e-3)
    assert seconds[0] == pytest.approx(26_752 * CYCLES / CLOCK_HZ) == pytest.approx(3.398e-3, rel=1e-3)
    # 100 elements take 13.6 us, less than the traffic of all rows
    assert seconds[1] == seconds[2] == pytest.approx(traffic_s)


def test_the_length_where_waiting_begins_to_cost():
    numbers = numbers_of("tensorflow_0_9")
    # waiting exceeds the traffic of r rows of n elements where n c / f > 4 r n / B: at r < c B / (4 f), for any n
    border = CYCLES * 0.5 * 320e9 / (4 * CLOCK_HZ)  # 5,424 rows
    for rows, is_waiting in ((border * 0.99, True), (border * 1.01, False)):
        for length in (10, 26_752):
            _, with_rows = numbers.stream_times(stream(np.array([4.0 * rows * length]), length), ("argmax",))
            _, without = numbers.stream_times(stream(np.array([4.0 * rows * length]), 0), ("argmax",))
            assert (with_rows[0] > without[0]) == is_waiting


def test_a_symbol_of_the_row_keeps_both_branches():
    numbers = numbers_of("tensorflow_0_9")
    n = sympy.Symbol("n", positive=True)
    _, seconds = numbers.stream_times(stream(np.array([4 * 64 * n], dtype=object), n), ("argmax",))
    assert float(seconds[0].subs(n, 26_752)) == pytest.approx(26_752 * CYCLES / CLOCK_HZ)


@pytest.mark.parametrize("framework", ["generic", "caffe_1_0_rc3", "cntk_1_5_rc", "torch_423cfba"])
def test_a_framework_without_serial_rows_searches_at_the_bandwidth(framework):
    assert numbers_of(framework).serial_step_s == 0
    graph = pm.zoo.fcn5(accuracy=True)
    rows = [row for row in pm.predict(graph, batch_size=64, device="gtx_1080", framework=framework).layers
            if row.layer == "accuracy"]  # fmt: skip
    assert len(rows) == 2
    # 6.85 MB in less than 0.1 ms
    assert all(row.seconds < 1e-4 for row in rows)


def test_the_accuracy_of_a_step_costs_its_two_serial_searches():
    with_it, without = (
        pm.predict(pm.zoo.fcn5(accuracy=each), batch_size=64, device="gtx_1080", framework="tensorflow_0_9")
        for each in (True, False)
    )
    one = 26_752 * CYCLES / CLOCK_HZ
    assert with_it.memory_bound_s - without.memory_bound_s == pytest.approx(2 * one)
    # kernels of 3.6 ms hide all but 2 us of their dispatch: what is left are two launch gaps
    assert with_it.launch_s - without.launch_s == pytest.approx(2 * 1.75e-6)
    assert with_it.step_s - without.step_s == pytest.approx(2 * one, rel=2e-3)
    for part in ("compute_s", "update_s", "exposed_transfer_s"):
        assert getattr(with_it, part) == pytest.approx(getattr(without, part), rel=1e-12)


def test_error_correction_slows_what_memory_bounds():
    numbers = numbers_of("caffe_1_0_rc3", "tesla_k80_gk210")
    assert numbers.bandwidth_bytes_per_s == pytest.approx(0.87 * 240.6e9)
    # ReLU: 0.65 of it
    _, seconds = numbers.stream_times(stream(np.array([1e9]), 0), ("relu",))
    assert seconds[0] == pytest.approx(1e9 / (0.65 * 0.87 * 240.6e9))


def test_every_framework_says_how_well_it_overlaps():
    for framework in ("generic", "caffe_1_0_rc3", "cntk_1_5_rc", "tensorflow_0_9", "torch_423cfba"):
        assert numbers_of(framework).overlap_exponent == 1.5


@pytest.fixture
def tiny_kernels():
    """A hundred kernels of 40 B: nothing but gaps and dispatch."""
    graph = pm.LayerGraph("tiny", input_shape=(10,))
    x = graph.add("fc", Dense(units=10), inputs=graph.input)
    for index in range(100):
        x = graph.add(f"relu{index}", ReLU(), inputs=x)
    return graph


def test_a_step_of_tiny_kernels_is_bound_by_the_slower_of_host_and_launch_gaps(tiny_kernels, tmp_path, monkeypatch):
    # 7 us of dispatch against gaps of 1.75 us: (1.75^1.5 + 7^1.5)^(2/3) - 1.75 = 5.8 us are exposed
    assert pm.predict(tiny_kernels, batch_size=1, device="gtx_1080", phase="forward").bottleneck == "host_dispatch"
    # 0.5 us: 0.17 us are exposed, 1.75 us are the gap's; 17 us and 50 us of script against 175 us
    text = (shipped_folder() / "frameworks" / "generic.toml").read_text()
    (tmp_path / "frameworks").mkdir()
    (tmp_path / "frameworks" / "swift.toml").write_text(text.replace("dispatch_us = 7.0", "dispatch_us = 0.5"))
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    swift = pm.predict(tiny_kernels, batch_size=1, device="gtx_1080", framework="swift", phase="forward")
    assert swift.bottleneck == "launch"
    assert swift.overhead_s - swift.launch_s < swift.launch_s
