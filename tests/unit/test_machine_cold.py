"""What a byte that is in no cache costs: found again from kernels that were flushed, whatever else a flush does."""

import math

import numpy as np
import pytest

from perfmodel.calibration.benchmark import Point
from perfmodel.calibration.calibrate import calibrate
from perfmodel.calibration.classes import columns_of, fitted_classes, grouped
from perfmodel.calibration.surroundings import cold_rate, flushed_bytes, reuse_of
from perfmodel.hardware.measured_machine import MeasuredOn
from tests.fake_machine import FACTS, REUSE_BYTES, FakeBackend, run_on_fake_time

RATE = 4e-11
CALL = 9e-5
REUSE = 50e6


def kernels(count=120, *, noise=0.05, seed=3):
    """Kernels of 0.1 to 200 MB, hot and flushed; a flush also costs each of them a fixed time."""
    random = np.random.default_rng(seed)
    moved = np.exp(random.uniform(math.log(1e5), math.log(2e8), count))
    hot = 1e-5 + moved * np.exp(random.uniform(math.log(3e-11), math.log(1e-9), count))
    flushed = hot + CALL + RATE * moved * np.exp(-((moved / REUSE) ** 2))
    return hot, flushed + noise * hot * random.standard_normal(count), moved


@pytest.mark.parametrize("seed", range(5))
def test_the_rate_is_found_beside_what_a_flush_costs_each_kernel(seed):
    assert cold_rate(*kernels(seed=seed), reuse_bytes=REUSE) == pytest.approx(RATE, rel=0.3)


def test_without_noise_it_is_exact_and_the_mean_of_ratios_is_not():
    hot, flushed, moved = kernels(noise=0)
    assert cold_rate(hot, flushed, moved, reuse_bytes=REUSE) == pytest.approx(RATE, rel=1e-3)
    assert np.mean((flushed - hot) / moved) > 3 * RATE  # what small kernels would make of it


def test_a_few_kernels_that_a_neighbour_disturbed_do_not_decide():
    hot, flushed, moved = kernels()
    disturbed = np.where(np.arange(len(hot)) % 20 == 0, 6 * flushed, flushed)
    assert cold_rate(hot, disturbed, moved, reuse_bytes=REUSE) == pytest.approx(RATE, rel=0.5)


def test_what_does_not_fit_into_the_caches_anyway_says_nothing():
    hot, flushed, moved = kernels(noise=0)
    larger = [np.append(each, more) for each, more in ((hot, 1.0), (flushed, 5.0), (moved, 1e12))]
    wanted = cold_rate(hot, flushed, moved, reuse_bytes=REUSE)
    assert cold_rate(*larger, reuse_bytes=REUSE) == pytest.approx(wanted, rel=1e-9)
    assert np.isfinite(flushed_bytes([1e12], reuse_bytes=1.0)).all()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_few_kernels_have_a_line_through_the_origin(count):
    hot, flushed, moved = (each[:count] for each in kernels(noise=0))
    small = moved <= REUSE
    rate = cold_rate(hot, flushed, moved, reuse_bytes=REUSE)
    extra, gone = (flushed - hot)[small].sum(), flushed_bytes(moved, reuse_bytes=REUSE)[small].sum()
    assert rate == (pytest.approx(extra / gone) if small.any() else 0.0)


def test_a_flush_that_makes_nothing_slower_costs_nothing():
    hot, _, moved = kernels()
    assert cold_rate(hot, hot, moved, reuse_bytes=REUSE) == 0
    assert cold_rate(hot, 0.9 * hot, moved, reuse_bytes=REUSE) == 0


@pytest.mark.parametrize("reuse_mib", [None, 8.0])
def test_a_file_has_the_rate_of_what_leaves_the_caches_that_it_names(reuse_mib):
    """The reuse distance that predictions divide by is the one that the rate was made with."""
    machine = MeasuredOn.model_validate(FACTS | {"reuse_mib": reuse_mib})
    cache = (reuse_mib or FACTS["cache_mib"]) * 2**20
    assert machine.reuse_bytes == cache
    backend = FakeBackend(noise=0)
    benchmark = backend.benchmarks("fp32")["relu"]
    points = []
    for elements in range(20_001, 900_001, 40_000):
        sizes = {"elements": elements, "one": 1}
        (moved,) = columns_of([benchmark.operation(sizes)], dtype="fp32", machine=machine).moved_bytes
        hot = backend.seconds(benchmark, sizes)
        cold = hot + 2e-5 + RATE * moved * math.exp(-((moved / cache) ** 2))
        points.append(Point(name="relu", dtype="fp32", sizes=sizes, seconds=hot, cold_seconds=cold))
    rows = fitted_classes(grouped(points, {"fp32": {"relu": benchmark}}), machine=machine)
    (rate,) = {row["cold_s_per_byte"] for row in rows}
    assert rate == pytest.approx(RATE, rel=0.01)


@pytest.mark.parametrize("capacity", [3e6, 12e6, 30e6])
@pytest.mark.parametrize("seed", range(3))
def test_a_copy_after_more_and_more_other_traffic_tells_capacity_and_price(capacity, seed):
    random = np.random.default_rng(seed)
    distances, moved = np.geomspace(1e6, 64e6, 7), 1e6
    hot_s = 1e-3
    price = 2e-9 * moved * math.exp(-((moved / capacity) ** 2))
    seconds = hot_s + 5e-5 + price * (1 - np.exp(-((distances / capacity) ** 2)))
    found = reuse_of(distances, seconds * (1 + 0.03 * random.standard_normal(7)), hot_s=hot_s, moved_bytes=moved)
    assert found.capacity_bytes == pytest.approx(capacity, rel=0.25)
    assert found.cold_s_per_byte == pytest.approx(2e-9, rel=0.25)


def test_a_copy_that_nothing_slows_tells_nothing():
    assert reuse_of([1e6, 1e7, 1e8], [1.01e-3, 1.02e-3, 1e-3], hot_s=1e-3, moved_bytes=1e5) is None


def test_a_copy_that_is_slow_after_any_traffic_tells_nothing():
    # the capacity that fits is so far below the copy's own bytes that none of them are found again
    assert reuse_of([1e5, 1e6, 1e7], [1e-3, 2e-3, 2e-3], hot_s=1e-3, moved_bytes=1e7) is None


def test_kernels_that_tell_little_are_drawn_to_the_copy_and_those_that_tell_much_are_not():
    loud = kernels(noise=4.0, seed=8)
    alone, drawn = (cold_rate(*loud, reuse_bytes=REUSE, of_copy=each) for each in (None, RATE))
    assert abs(math.log(drawn / RATE)) < 0.6 < abs(math.log(alone / RATE))
    clear = [np.concatenate([each] * 20) for each in kernels(noise=0)]
    assert cold_rate(*clear, reuse_bytes=REUSE, of_copy=3 * RATE) == pytest.approx(RATE, rel=0.3)


def test_a_calibration_names_the_capacity_that_it_measured(monkeypatch):
    """The made-up machine forgets with 12 MB, of a last cache of 32 MiB."""
    run_on_fake_time(monkeypatch)
    machine = calibrate("cpu", backend=FakeBackend(noise=0.01), budget_s=60, progress=False)
    assert machine.machine.reuse_mib * 2**20 == pytest.approx(REUSE_BYTES, rel=0.1)
    assert machine.machine.cache_mib == FACTS["cache_mib"]
