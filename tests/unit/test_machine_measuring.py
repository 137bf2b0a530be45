"""Clocks, drift, the disk and what a machine says of itself."""

import os

import numpy as np
import pytest

from perfmodel.calibration import facts, surroundings
from perfmodel.calibration.backends.base import DRIFT_LIMIT, DriftWatch, HostClock, Timing
from perfmodel.calibration.facts import freed_memory_kept, page_fault_s


class Ticking:
    """A clock that a kernel moves by hand."""

    def __init__(self):
        self.ns, self.runs = 0, 0

    def __call__(self):
        return self.ns

    def kernel(self, times):
        """A kernel that takes these times one after the other, the last for ever [ns]."""
        pending = list(times)

        def run():
            self.runs += 1
            self.ns += pending.pop(0) if len(pending) > 1 else pending[0]

        return run


def test_the_first_run_warms_up_and_is_not_in_the_time():
    clock = Ticking()
    timing = HostClock(clock).time(clock.kernel([50_000_000, 3_000_000_000, 1_000]))
    assert timing.seconds != pytest.approx(0.05)
    quick = Ticking()
    assert HostClock(quick).time(quick.kernel([900_000, 2_000])).seconds == pytest.approx(2e-6)
    assert quick.runs > 5 * 100  # short kernels are repeated until the clock does not matter


def test_a_long_kernel_is_not_repeated_often():
    clock = Ticking()
    assert HostClock(clock).time(clock.kernel([60_000_000])).seconds == pytest.approx(0.06)
    assert clock.runs <= 5


def test_one_outlier_does_not_move_the_median():
    assert Timing.of([1.0, 1.0, 1.1, 0.9, 30.0]).seconds == 1.0


def test_cold_runs_follow_what_flushes_and_do_not_count_it():
    clock = Ticking()
    flushed = []

    def flush():
        flushed.append(clock.ns)
        clock.ns += 10_000_000

    timing = HostClock(clock).time_after(flush, clock.kernel([7_000]), samples=3)
    assert timing.seconds == pytest.approx(7e-6)
    assert len(flushed) == 3


def test_drift_marks_the_windows_on_both_sides_of_a_slow_reference():
    times = iter([1.0, 1.0, 1.0, 1.0 + 2 * DRIFT_LIMIT, 1.0, 1.0])
    now = iter(range(0, 1000, 3))
    watch = DriftWatch(lambda: next(times), now=lambda: next(now), window_s=1.0)
    for _ in range(5):
        assert watch.tick()
    assert watch.drifted() == {2, 3}
    assert watch.spread_percent > 5


def test_nothing_drifts_on_a_calm_machine():
    now = iter(range(100))
    watch = DriftWatch(lambda: 1.0, now=lambda: next(now), window_s=0.5)
    for _ in range(4):
        watch.tick()
    assert not watch.drifted()
    assert watch.drift_percent == 0


def test_a_machine_tells_its_parts():
    told = facts.cpu_facts(threads=1)
    assert told["core_count"] <= (os.cpu_count() or 1)
    assert told["cache_mib"] >= 0.25
    assert told["memory_gib"] > 0.1
    assert told["vector_lanes"] in (4, 8, 16)


@pytest.mark.parametrize(
    ("model", "device"),
    [
        ("NVIDIA GeForce GTX 1080", "gtx_1080"),
        ("NVIDIA GeForce GTX 1080 Ti", "gtx_1080_ti"),
        ("NVIDIA A100-SXM4-80GB", "a100_80_sxm"),
        ("NVIDIA H100 80GB HBM3", None),  # SXM or PCIe: the name does not tell
        ("NVIDIA A100 80GB PCIe", "a100_80_pcie"),
        ("NVIDIA A100-SXM-64GB", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA H200", "h200_sxm"),
        ("NVIDIA H200 NVL", None),
        ("Tesla V100-SXM2-16GB", "v100_sxm2"),
        ("Tesla V100-SXM2-32GB", "v100_sxm2_32gb"),
        ("Tesla T4", "t4"),
        ("Tesla P40", "tesla_p40"),
        ("NVIDIA TITAN X (Pascal)", "titan_x_pascal"),
        ("NVIDIA GeForce RTX 3090", "rtx_3090"),
        ("NVIDIA GeForce RTX 3090 Ti", "rtx_3090_ti"),
        ("NVIDIA GeForce GTX 1070 Ti", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L40G", None),
        ("Intel(R) Xeon(R) CPU E5-2630 v3 @ 2.40GHz", "xeon_e5_2630_v3"),
        ("Intel(R) Xeon(R) CPU E5-2630 v4 @ 2.20GHz", None),
        ("Intel(R) Core(TM) i7-3820 CPU @ 3.60GHz", "i7_3820"),
        ("AMD EPYC 7742 64-Core Processor", "epyc_7742"),
        ("AMD EPYC 9654 96-Core Processor", "epyc_9654"),
        ("Intel(R) Xeon(R) Platinum 8480CL", None),
        ("NVIDIA L40S", "l40s"),
        ("Intel(R) Xeon(R) Platinum 8480+", "xeon_platinum_8480"),
        ("Intel(R) Xeon(R) Processor", None),
    ],
)
def test_a_data_sheet_is_named_only_where_the_name_tells_which(model, device):
    assert facts.datasheet_of(model) == device


def test_the_disk_is_read_and_says_how(tmp_path, monkeypatch):
    monkeypatch.setattr(surroundings, "FILE_BYTES", 4 * 2**20)
    (told,) = surroundings.measure_storage(tmp_path)
    assert told["sequential_bytes_per_s"] > 1e5
    assert "page cache" in told["note"]
    assert not list(tmp_path.iterdir())


def test_a_disk_without_space_is_left_out(tmp_path, monkeypatch):
    def full(handle, block):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(surroundings.os, "write", full)
    assert surroundings.measure_storage(tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_memory_is_kept_and_fresh_pages_cost_time():
    with freed_memory_kept() as told:
        assert "glibc" in told or "mallopt" in told
    assert 0 <= page_fault_s() < 1e-3
    assert np.ones(1000).sum() == 1000
