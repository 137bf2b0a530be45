"""Stages of the input pipeline: the ImageNet example, what bounds it, what would unbind it."""

import numpy as np
import pytest
import sympy

import perfmodel as pm
from perfmodel.cost.input_pipeline import (
    STAGES,
    bounding_stage,
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
