"""Stages of the input pipeline: the ImageNet example, what bounds it, what would unbind it."""

import numpy as np
import pytest
import sympy

import perfmodel as pm
from perfmodel.cost.input_pipeline import (
    STAGES,
    bounding_stage,
    jittered_period,
    most_useful_device_count,
    pipelined_period,
    stage_periods,
    units_to_unbind,
)

IMAGES = pm.load_dataset("imagenet_jpeg")
BATCH = 32


def imagenet_stages(device_count, **others):
    """JPEGs from one drive, 16 cores, PCIe 3.0 at 12 GB/s as fp32, devices that consume 188 images a second."""
    given = {
        "batch_size": BATCH,
        "worker_count": device_count,
        "compute_s": BATCH / 188,
        "encoded_bytes": IMAGES.encoded_bytes_per_example,
        "storage_bytes_per_s": pm.load_storage("samsung_960_pro").read_bandwidth_bytes_per_s,
        "host_bytes": 3 * IMAGES.decoded_bytes_per_example,
        "host_bytes_per_s": 50e9,
        "device_bytes": IMAGES.device_bytes_per_example("fp32"),
        "root_bytes_per_s": 12e9,
        "decode_rate_per_core": IMAGES.decode_rate_per_core,
        "decode_core_count": 16,
    }
    return stage_periods(**{**given, **others})


def images_per_s(stage_s, device_count):
    return {stage: device_count * BATCH / float(seconds) for stage, seconds in stage_s.items()}


def test_the_rates_of_the_example():
    rates = images_per_s(imagenet_stages(1), 1)
    assert tuple(rates) == STAGES
    assert rates["read"] == pytest.approx(31_818, abs=0.5)
    assert rates["decode"] == pytest.approx(1_600)
    assert rates["transfer"] == pytest.approx(19_930, abs=0.5)
    assert rates["compute"] == pytest.approx(188)
    # what all share stays, however many devices there are
    of_eight = images_per_s(imagenet_stages(8), 8)
    assert {stage: of_eight[stage] for stage in STAGES[:4]} == pytest.approx(
        {stage: rates[stage] for stage in STAGES[:4]}
    )
    assert of_eight["compute"] == pytest.approx(8 * 188)


def test_decoding_bounds_from_nine_devices_on():
    bounds = [bounding_stage(stage_s=imagenet_stages(count)) for count in range(1, 13)]
    assert bounds == ["compute"] * 8 + ["decode"] * 4
    counts = np.arange(1, 13)
    assert bounding_stage(stage_s=imagenet_stages(counts)).tolist() == bounds


def test_a_ninth_device_helps_a_little_and_a_tenth_not_at_all():
    def epoch_s(count):
        steps = IMAGES.example_count / (BATCH * count)
        return steps * float(pipelined_period(stage_s=imagenet_stages(count), depth=1))

    most = int(most_useful_device_count(supply_per_s=1600, demand_per_s=188))
    assert most == 9
    assert epoch_s(8) > 1.05 * epoch_s(9)
    assert epoch_s(10) == pytest.approx(epoch_s(9), rel=1e-12)
    assert epoch_s(40) == pytest.approx(IMAGES.example_count / 1600)


@pytest.mark.parametrize(("rate", "expected"), [(188, 9), (71, 23), (200, 8), (1600, 1), (2000, 1), (100 / 3, 48)])
def test_the_count_follows_from_the_rate_of_a_device(rate, expected):
    assert most_useful_device_count(supply_per_s=1600, demand_per_s=rate) == expected


def test_devices_that_one_root_feeds():
    """12 GB/s of fp32 images feed 19,930 a second: 106 devices of 188 at full rate, and a part of one more."""
    demand = 188 * IMAGES.device_bytes_per_example("fp32")
    assert most_useful_device_count(supply_per_s=12e9, demand_per_s=demand) == 107
    link = sympy.Symbol("B", positive=True)
    assert most_useful_device_count(supply_per_s=link, demand_per_s=demand).subs(link, 12e9) == 107


def test_what_would_unbind():
    nine = imagenet_stages(9)
    unbind = {"compute_s": nine["compute"]}
    assert units_to_unbind(stage_s=nine["decode"], unit_count=16, **unbind) == 17  # 1,692 images/s over 100
    assert units_to_unbind(stage_s=nine["read"], unit_count=1, **unbind) == 1
    assert units_to_unbind(stage_s=nine["transfer"], unit_count=16, **unbind) == 2  # 1.02 GB/s of 12 on 16 lanes
    assert units_to_unbind(stage_s=0.4, compute_s=0.1, unit_count=4) == 16  # no seventeenth by rounding
    more = imagenet_stages(9, decode_core_count=17)
    assert bounding_stage(stage_s=more) == "compute"


def test_one_link_may_be_narrower_than_the_root():
    wide = imagenet_stages(2)["transfer"]
    narrow = imagenet_stages(2, link_bytes_per_s=3e9)["transfer"]  # x4 under a root of x16
    assert narrow == pytest.approx(2 * wide)
    assert imagenet_stages(8, link_bytes_per_s=3e9)["transfer"] == imagenet_stages(8)["transfer"]
    assert imagenet_stages(1, link_latency_s=7e-6)["transfer"] == pytest.approx(imagenet_stages(1)["transfer"] + 7e-6)


def test_what_is_stored_as_it_is_used_needs_no_decoding():
    assert imagenet_stages(4, decode_rate_per_core=None)["decode"] == 0


def test_prefetching_runs_the_stages_beside_one_another():
    stages = {"read": 1.0, "decode": 4.0, "transfer": 2.0, "compute": 3.0}
    assert [float(pipelined_period(stage_s=stages, depth=depth)) for depth in (0, 1, 2, 9)] == [10, 4, 4, 4]
    np.testing.assert_array_equal(pipelined_period(stage_s=stages, depth=np.array([0, 1, 2])), [10, 4, 4])
    depth = sympy.Symbol("d", integer=True, nonnegative=True)
    assert [float(pipelined_period(stage_s=stages, depth=depth).subs(depth, d)) for d in (0, 1)] == [10, 4]


def test_jitter_by_the_states_of_the_buffer():
    """The chain of mini-batches that wait: fed at 1/t, taken at 1/C; the device is idle where none is there."""
    for feed_s, compute_s, depth in [(0.5, 1.0, 3), (2.0, 1.0, 4), (1.0, 1.0, 2), (0.1, 1.0, 0)]:
        places = depth + 1
        rates = np.zeros((places + 1, places + 1))
        for state in range(places):
            rates[state, state + 1], rates[state + 1, state] = 1 / feed_s, 1 / compute_s
        generator = rates - np.diag(rates.sum(axis=1))
        system = np.vstack([generator.T, np.ones(places + 1)])
        states = np.linalg.lstsq(system, np.append(np.zeros(places + 1), 1.0), rcond=None)[0]
        expected = compute_s / (1 - states[0])
        assert jittered_period(feed_s=feed_s, compute_s=compute_s, depth=depth) == pytest.approx(expected)


def test_jitter_by_playing_it():
    """A feeder that waits for a free place, a device that waits for a mini-batch, both exponential: 200,000 steps."""
    random = np.random.default_rng(7)
    step_count, depth, feed_s, compute_s = 200_000, 2, 0.8, 1.0
    feeding, computing = random.exponential(feed_s, step_count), random.exponential(compute_s, step_count)
    ready_s = start_s = end_s = 0.0
    ends = np.zeros(step_count)
    for step in range(step_count):
        # with d places, feeding starts when the one before is ready and the step d + 1 before has ended
        free_s = ends[step - depth - 1] if step > depth else 0.0
        ready_s = max(ready_s, free_s) + feeding[step]
        start_s = max(ready_s, end_s)
        end_s = ends[step] = start_s + computing[step]
    assert end_s / step_count == pytest.approx(
        jittered_period(feed_s=feed_s, compute_s=compute_s, depth=depth), rel=0.01
    )
