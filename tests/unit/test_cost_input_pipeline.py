"""Stages of the input pipeline: the ImageNet example, what bounds it, what would unbind it."""

import numpy as np
import pytest
import sympy

import perfmodel as pm
from perfmodel.cost.input_pipeline import (
    STAGES,
    bounding_stage,
    jittered_period,
    lead_of_slowest,
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
        "device_bytes": 4 * IMAGES.element_count,
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


def period_of_states(feed_s, compute_s, depth):
    """Mean step of exponential times, from the chain of mini-batches that are fed at 1/t and taken at 1/C."""
    places = depth + 1
    rates = np.zeros((places + 1, places + 1))
    for state in range(places):
        rates[state, state + 1], rates[state + 1, state] = 1 / feed_s, 1 / compute_s
    generator = rates - np.diag(rates.sum(axis=1))
    system = np.vstack([generator.T, np.ones(places + 1)])
    states = np.linalg.lstsq(system, np.append(np.zeros(places + 1), 1.0), rcond=None)[0]
    return compute_s / (1 - states[0])  # the device is idle where no mini-batch is there


@pytest.mark.parametrize("depth", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("feed_s", [0.1, 0.5, 1.0, 1.25, 3.0])
def test_exponential_times_are_exact(feed_s, depth):
    varying = {"feed_variation": 1.0, "compute_variation": 1.0}
    found = float(jittered_period(feed_s=feed_s, compute_s=1.0, depth=depth, **varying))
    assert found == pytest.approx(period_of_states(feed_s, 1.0, depth), rel=1e-9)


@pytest.mark.parametrize("feed_s", [0.0, 0.3, 1.0, 1.0 + 1e-13, 2.5])
def test_limits_of_varying_times(feed_s):
    def period(depth, variation):
        return float(jittered_period(feed_s=feed_s, compute_s=1.0, depth=depth, feed_variation=variation))

    longer = max(feed_s, 1.0)
    assert [period(0, variation) for variation in (0.0, 0.5, 20.0)] == [feed_s + 1.0] * 3
    # what does not vary, or not by what a float can tell, is what pipelined_period says to the last digit
    assert [period(depth, variation) for depth in (1, 7) for variation in (0.0, 1e-17, 1e-200)] == [longer] * 6
    assert period(10**9, 1.0) == pytest.approx(longer, rel=1e-8)
    assert period(1, 1e6) == pytest.approx(feed_s + 1.0, rel=1e-9)
    assert period(1, 1e200) == pytest.approx(feed_s + 1.0)


def test_varying_times_close_to_equal_ones_keep_their_digits():
    """With 1 - q = 1e-9, where 1 - q^K and 1 - q^(K - 1) lose nine digits: the same with fifty digits."""
    ratio = sympy.Rational(1 - 1e-9)
    places = 1 + sympy.sqrt(1 + 3 * 8) + 2 * sympy.Integer(8)
    exact = ((1 - ratio**places) / (1 - ratio ** (places - 1))).evalf(50)
    found = jittered_period(feed_s=1 - 1e-9, compute_s=1.0, depth=3, feed_variation=0.5)
    assert float(found) == pytest.approx(float(exact), rel=1e-14)
    at_one = float(jittered_period(feed_s=1.0, compute_s=1.0, depth=3, feed_variation=0.5))
    assert at_one == pytest.approx(22 / 21, rel=1e-14)  # K = 1 + 5 + 16
    assert at_one == pytest.approx(float(found), rel=1e-8)


def test_varying_times_of_symbols_and_arrays():
    feeds, depths = np.array([0.0, 0.5, 1.0, 2.0]), np.array([[0], [1], [6]])
    of_arrays = jittered_period(feed_s=feeds, compute_s=1.0, depth=depths, feed_variation=0.5)
    feed, depth = sympy.Symbol("t", nonnegative=True), sympy.Symbol("d", integer=True, nonnegative=True)
    formula = jittered_period(feed_s=feed, compute_s=1.0, depth=depth, feed_variation=0.5)
    for row, ahead in enumerate(depths.ravel()):
        for column, seconds in enumerate(feeds):
            given = {"feed_s": seconds, "compute_s": 1.0, "depth": int(ahead), "feed_variation": 0.5}
            assert of_arrays[row, column] == float(jittered_period(**given))
            put_in = {feed: sympy.Float(seconds, 30), depth: int(ahead)}
            assert float(formula.subs(put_in).doit()) == pytest.approx(of_arrays[row, column], rel=1e-12)
    steady = jittered_period(feed_s=feed, compute_s=1.0, depth=1, feed_variation=0.0)
    assert steady == pipelined_period(stage_s={"feed": feed, "compute": 1.0}, depth=1)


@pytest.mark.parametrize(
    ("stage_s", "ahead", "between", "expected"),
    [
        ((0.1, 0.3, 0.2), False, False, 2 * 2 - 1),  # decode to host copy to the device
        ((0.1, 0.3, 0.2), True, False, 3 * 2 - 1),  # and a copy that overlaps
        ((0.3, 0.1, 0.2), True, False, 4 * 2 - 1),
        ((0.3, 0.0, 0.2), True, False, 3 * 2 - 1),  # examples that need no decoding
        ((0.0, 0.0, 0.2), False, False, 1),
        ((0.0, 0.0, 0.2), False, True, 2),  # the buffer is free once it is copied
    ],
)
def test_the_slowest_stage_may_be_ahead_by_the_buffers_behind_it(stage_s, ahead, between, expected):
    stages = dict(zip(("read", "decode", "host_copy"), stage_s, strict=True))
    given = {"depth": 1, "copied_ahead": ahead, "copied_between": between}
    assert lead_of_slowest(stage_s=stages, **given) == expected
    of_arrays = {stage: np.array([seconds, 1.0 if stage == "host_copy" else 0.0]) for stage, seconds in stages.items()}
    np.testing.assert_array_equal(lead_of_slowest(stage_s=of_arrays, **given), [expected, 1 + 2 * ahead + between])
