"""Naive baselines: by hand on small numbers, and what they reach on the published table.

The figures on shi2016 follow from the table alone (and from device peaks for the scaling between GPUs), so
they are facts: the tolerance is half a unit of the last digit, except for the fitted one, which says why.
"""

import numpy as np
import pytest

from perfmodel import measurements
from perfmodel.errors import ArgumentError
from perfmodel.validation import baselines, cpu_baselines, metrics

# At boost clock; the K80 die at its issue limit (128 of 192 lanes): 4.368 TFLOP/s x 0.667. [FLOP/s], [B/s]
PEAK = {"gtx_980": 4.981e12, "gtx_1080": 8.873e12, "tesla_k80_gk210": 4.368e12 * 0.667}
BANDWIDTH = {"gtx_980": 224e9, "gtx_1080": 320e9, "tesla_k80_gk210": 240e9}


def columns(only):
    rows = measurements.load("shi2016").subset(only)
    return {
        "measured_s": np.array([row.step_s for row in rows]),
        "items": [row.run_key for row in rows],
        "devices": [row.device for row in rows],
        "threads": [row.threads for row in rows],
        "rows": [(row.run_key, row.device) for row in rows],
    }


def score(baseline, measured_s, mask=None):
    mask = baseline.covered if mask is None else mask
    return metrics.mape(baseline.predicted_s[mask], measured=np.asarray(measured_s)[mask])


@pytest.mark.parametrize(
    ("k80_peak", "expected"),
    [(PEAK["tesla_k80_gk210"], 21.5), (4.368e12, 25.4)],  # 4.37: without the issue limit
)
def test_scaling_between_gpus_on_the_63_gpu_cells(k80_peak, expected):
    cells = columns("gpu")
    peak = PEAK | {"tesla_k80_gk210": k80_peak}
    baseline = baselines.device_scaling(
        cells["measured_s"],
        items=cells["items"],
        devices=cells["devices"],
        peak_flop_per_s=[peak[device] for device in cells["devices"]],
        bandwidth_bytes_per_s=[BANDWIDTH[device] for device in cells["devices"]],
    )
    assert baseline.covered.sum() == 63
    assert score(baseline, cells["measured_s"]) == pytest.approx(expected, abs=0.05)


def test_same_time_as_the_other_cpu_on_the_167_cpu_cells():
    cells = columns("cpu")
    baseline, same_count = cpu_baselines.same_as_other_cpu(
        cells["measured_s"], items=cells["items"], devices=cells["devices"], threads=cells["threads"]
    )
    assert same_count.sum() == 124  # both CPUs at 1, 2, 4 threads: 21 + 21 + 20 pairs of items
    assert score(baseline, cells["measured_s"], same_count) == pytest.approx(14.1, abs=0.05)
    # 21 items at 8 and at 16 threads, and ResNet-50 on Torch at 4, which the desktop did not run
    carried = baseline.covered & ~same_count
    assert carried.sum() == 43
    assert score(baseline, cells["measured_s"], carried) == pytest.approx(68.0, abs=0.05)


def test_same_as_all_cores_on_the_38_oversubscribed_cells():
    table = measurements.load("shi2016")
    rows = (*table.subset("cpu"), *table.subset("cpu_oversubscribed"))
    measured_s = [row.step_s for row in rows]
    baseline = cpu_baselines.same_as_all_cores(
        measured_s,
        items=[row.run_key for row in rows],
        devices=[row.device for row in rows],
        threads=[row.threads for row in rows],
        physical_cores=table.physical_cores,
    )
    assert baseline.covered.sum() == 38
    assert score(baseline, measured_s) == pytest.approx(31.3, abs=0.05)


def test_amdahl_and_log_on_the_167_cpu_cells():
    cells = columns("cpu")
    baseline = cpu_baselines.amdahl_log(cells["measured_s"], rows=cells["rows"], threads=cells["threads"])
    assert baseline.covered.all()
    # 13.5 to 14.5 by how the under-determined rows are fitted (three thread counts, one of them held out)
    assert 13.5 < score(baseline, cells["measured_s"]) < 14.5


def test_amdahl_and_log_never_sees_the_cell_it_predicts():
    times = np.array([1.0, 0.6, 0.4, 0.3])
    arguments = {"rows": ["a"] * 4, "threads": [1, 2, 4, 8]}
    before = cpu_baselines.amdahl_log(times, **arguments).predicted_s
    times[3] = 30.0
    after = cpu_baselines.amdahl_log(times, **arguments).predicted_s
    assert after[3] == before[3]
    assert not np.allclose(after[:3], before[:3])


def test_roofline_takes_the_slower_side_and_one_efficiency():
    # rooflines: 1 s (arithmetic) and 4 s (memory); measured 2 s and 32 s: efficiencies 1/2 and 1/8, mean 1/4
    arguments = {
        "flop_count": [1e12, 1e12],
        "moved_bytes": [1e9, 4e11],
        "peak_flop_per_s": [1e12, 1e12],
        "bandwidth_bytes_per_s": [1e11, 1e11],
    }
    fitted = baselines.roofline_one_efficiency([2.0, 32.0], **arguments)
    # the factor of the first row errs by 75 % on the second; that of the second by 300 % on the first
    assert fitted.predicted_s == pytest.approx([2.0, 8.0])
    assert fitted.parameter_count == 1
    held_out = baselines.roofline_one_efficiency([2.0, 32.0], **arguments, folds=["x", "y"])
    assert held_out.predicted_s == pytest.approx([8.0, 8.0])  # each with the other's efficiency
    alone = baselines.roofline_one_efficiency([2.0, 32.0], **arguments, folds=["x", "x"])
    assert not alone.covered.any()


def test_percent_of_peak_is_fitted_for_each_framework():
    # at peak 1 s each; caffe measured 2 and 8 s (2 errs by 75 % on the other, 8 by 300 %), torch 10 s
    arguments = {
        "flop_count": [1e12] * 3,
        "peak_flop_per_s": [1e12] * 3,
        "frameworks": ["caffe", "caffe", "torch"],
    }
    fitted = baselines.percent_of_peak([2.0, 8.0, 10.0], **arguments)
    assert fitted.predicted_s == pytest.approx([2.0, 2.0, 10.0])
    assert fitted.parameter_count == 2
    # torch is alone in its fold: it gets the best number of the caffe rows
    held_out = baselines.percent_of_peak([2.0, 8.0, 10.0], **arguments, folds=["x", "y", "z"])
    assert held_out.predicted_s == pytest.approx([8.0, 2.0, 2.0])


def test_an_efficiency_fitted_with_folds_never_sees_its_own_fold():
    generator = np.random.default_rng(0)
    measured_s = generator.uniform(0.5, 2.0, 12)
    arguments = {"flop_count": generator.uniform(1e12, 2e12, 12), "peak_flop_per_s": np.full(12, 1e12)}
    labels = {"frameworks": ["f", "g"] * 6, "folds": [0] * 4 + [1] * 4 + [2] * 4}
    before = baselines.percent_of_peak(measured_s, **arguments, **labels).predicted_s
    measured_s[:4] *= 10
    after = baselines.percent_of_peak(measured_s, **arguments, **labels).predicted_s
    assert after[:4] == pytest.approx(before[:4], rel=1e-12)
    assert not np.allclose(after[4:], before[4:])


def test_filling_in_a_table_is_exact_on_one_that_is_additive():
    frameworks, devices = ["a", "a", "a", "b", "b", "b"], ["x", "y", "z"] * 2
    times = [1.0, 2.0, 5.0, 3.0, 6.0, 15.0]
    terms = [frameworks, devices]
    assert baselines.log_additive(times, terms=terms, ridge=1e-9).predicted_s == pytest.approx(times)
    one_out = baselines.log_additive(times, terms=terms, ridge=1e-9, folds=[0, 1, 2, 3, 4, 5])
    assert one_out.predicted_s == pytest.approx(times, rel=1e-6)
    changed = baselines.log_additive([1.0, 2.0, 5.0, 3.0, 6.0, 99.0], terms=terms, ridge=1e-9, folds=range(6))
    assert changed.predicted_s[5] == pytest.approx(15.0)  # never sees the cell itself
    no_device = baselines.log_additive(times, terms=terms, folds=devices)
    assert not no_device.covered.any()


def test_the_most_alike_network_is_that_of_the_nearest_intensity():
    arguments = {
        "items": ["gtx", "gtx", "gtx", "k80"],
        "networks": ["fcn5", "fcn8", "lstm", "fcn5"],
        "flop_count": [1e9, 2e9, 8e9, 1e9],
        "moved_bytes": [1e6, 2e6, 1e9, 1e6],
    }
    found = baselines.nearest_work([1.0, 3.0, 5.0, 9.0], **arguments)
    # fcn5 from fcn8 and the other way; the LSTM from the first of the two equally far; nothing else on the K80
    assert found.predicted_s[:3] == pytest.approx([1.5, 2.0, 8.0])
    assert not found.covered[3]
    apart = baselines.nearest_work([1.0, 3.0, 5.0, 9.0], **arguments, folds=["x", "x", "y", "y"])
    assert apart.predicted_s[0] == pytest.approx(5.0 / 8)


def test_wrong_lengths_and_unknown_cores_are_refused():
    with pytest.raises(ArgumentError, match="items"):
        cpu_baselines.same_as_other_cpu([1.0, 2.0], items=["a"], devices=["x", "y"], threads=[1, 1])
    with pytest.raises(ArgumentError, match="threads"):
        cpu_baselines.amdahl_log([1.0, 2.0], rows=["a", "a"], threads=[1, 0])
    with pytest.raises(ArgumentError, match="physical_cores"):
        cpu_baselines.same_as_all_cores([1.0], items=["a"], devices=["x"], threads=[1], physical_cores={})
