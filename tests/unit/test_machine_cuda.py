"""The clock of a GPU: on a device made up of two times, that of the host and that of the device; and on a real one."""

import math
import subprocess
from types import SimpleNamespace

import pytest

from perfmodel.calibration import facts
from perfmodel.calibration.backends import torch_overheads, torch_passes
from perfmodel.calibration.backends.torch_passes import LAUNCHES, CudaClock
from perfmodel.calibration.session import Session

COLD_S = 3e-5


class MadeUpGpu:
    """A host that launches and a device that follows, each with a clock of its own."""

    def __init__(self, *, cycles_per_s=1.5e9):
        self.host_s = self.device_s = 0.0
        self.cycles_per_s = cycles_per_s
        self.launched = []
        self.is_cold = False
        gpu = self

        class Event:
            def __init__(self, *, enable_timing):
                assert enable_timing

            def record(self):
                self.at = max(gpu.host_s, gpu.device_s)

            def synchronize(self):
                gpu.host_s = max(gpu.host_s, self.at)

            def elapsed_time(self, later):
                return 1e3 * (later.at - self.at)

        self.torch = SimpleNamespace(
            cuda=SimpleNamespace(Event=Event, _sleep=self.sleep, synchronize=lambda device: self.synchronize())
        )

    def sleep(self, cycles):
        self._follow(5e-6, cycles / self.cycles_per_s)

    def synchronize(self):
        self.host_s = max(self.host_s, self.device_s)

    def _follow(self, host_s, device_s):
        self.host_s += host_s
        self.device_s = max(self.device_s, self.host_s) + device_s

    def kernel(self, *, host_s, device_s, flushes=False):
        def run():
            self.launched.append((self.device_s > self.host_s, host_s))
            self._follow(host_s, device_s + (COLD_S if self.is_cold and not flushes else 0.0))
            self.is_cold = flushes

        return run


@pytest.fixture
def gpu(monkeypatch):
    made = MadeUpGpu()
    clock = SimpleNamespace(perf_counter=lambda: made.host_s)
    monkeypatch.setattr(torch_passes, "time", clock)
    monkeypatch.setattr(torch_overheads, "time", clock)
    return made


@pytest.mark.parametrize("cycles_per_s", [0.8e9, 1.5e9, 2.6e9])
@pytest.mark.parametrize(("host_s", "device_s"), [(8e-6, 2e-6), (3e-4, 1e-5), (5e-6, 4e-4), (1e-5, 6e-3), (1e-5, 0.05)])
def test_the_device_is_timed_and_not_the_host_that_feeds_it(gpu, cycles_per_s, host_s, device_s):
    gpu.cycles_per_s = cycles_per_s
    run = gpu.kernel(host_s=host_s, device_s=device_s)
    assert CudaClock(gpu.torch, "cuda:0").time(run).seconds == pytest.approx(device_s, rel=1e-6)


def test_without_a_held_queue_it_would_be_the_host(gpu, monkeypatch):
    monkeypatch.setattr(CudaClock, "hold_queue", lambda self, seconds: None)
    timing = CudaClock(gpu.torch, "cuda:0").time(gpu.kernel(host_s=8e-6, device_s=2e-6))
    assert timing.seconds > 7e-6


def test_short_kernels_have_twenty_launches_in_a_row_and_long_ones_do_not_take_the_budget(gpu):
    for device_s, most in ((2e-6, math.inf), (1e-3, math.inf), (6e-3, 25), (0.05, 10)):
        gpu.launched.clear()
        CudaClock(gpu.torch, "cuda:0").time(gpu.kernel(host_s=8e-6, device_s=device_s))
        assert (len(gpu.launched) >= 3 * LAUNCHES) == (most == math.inf)
        assert len(gpu.launched) <= most


def test_a_flush_is_before_the_first_event_and_what_it_spoils_is_after(gpu):
    run, flush = gpu.kernel(host_s=3e-4, device_s=1e-5), gpu.kernel(host_s=1e-5, device_s=2e-5, flushes=True)
    clock = CudaClock(gpu.torch, "cuda:0")
    assert clock.time_after(flush, run).seconds == pytest.approx(1e-5 + COLD_S)
    assert clock.time(run).seconds == pytest.approx(1e-5)


def test_dispatch_is_timed_while_the_device_is_behind(gpu):
    launch = gpu.kernel(host_s=4e-6, device_s=1e-6)
    tools = SimpleNamespace(torch=gpu.torch, device="cuda:0", on_gpu=True)

    def chain(length):
        for _ in range(length):
            launch()

    saturate = torch_overheads._saturating(tools)
    per_launch = torch_overheads.share_of_chain(
        lambda length: torch_overheads.median_s(lambda: chain(length), wait=saturate)
    )
    assert per_launch == pytest.approx(4e-6)
    assert all(is_behind for is_behind, _ in gpu.launched)
    assert torch_overheads._saturating(SimpleNamespace(on_gpu=False)) is None


@pytest.mark.parametrize(("told", "mhz"), [("1980\n", 1980.0), ("[N/A]\n", None), ("", None), ("0\n", None)])
def test_the_driver_tells_the_clock_or_nothing(monkeypatch, told, mhz):
    asked = []

    def program(command, **options):
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, stdout=told)

    monkeypatch.setattr(facts.subprocess, "run", program)
    assert facts.gpu_clock_mhz("1234-abcd") == mhz
    assert "--id=GPU-1234-abcd" in asked[0]


def test_no_driver_is_no_clock(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert facts.gpu_clock_mhz("") is None


@pytest.fixture(scope="module")
def backend():
    pytest.importorskip("torch")
    from perfmodel.calibration.backends.torch_backend import TorchBackend

    return TorchBackend("cuda:0")


@pytest.mark.gpu
class TestRealGpu:
    def test_a_kernel_of_known_length_is_timed(self, backend):
        sleep = backend.torch.cuda._sleep
        short, long = (
            backend.clock.time(lambda cycles=cycles: sleep(cycles)).seconds for cycles in (400_000, 1_200_000)
        )
        assert long / short == pytest.approx(3, rel=0.1)

    def test_a_tiny_kernel_takes_the_device_less_than_the_host(self, backend):
        x = backend.tools("fp32").normal(64)
        device_s = backend.clock.time(lambda: backend.torch.mul(x, x)).seconds
        assert 5e-7 < device_s < backend.overheads()["dispatch_s"] < 1e-4

    def test_a_large_product_takes_the_same_by_events_and_by_the_host(self, backend):
        product, copy = backend.peak_runs("fp32")
        seconds = backend.clock.time(product.run).seconds
        backend.torch.cuda.synchronize()
        by_host = torch_overheads.median_s(product.run, repeats=5, wait=backend.torch.cuda.synchronize)
        assert by_host < seconds  # it only launches
        waits = torch_overheads.median_s(lambda: (product.run(), backend.torch.cuda.synchronize()), repeats=5)
        assert waits == pytest.approx(seconds, rel=0.25)
        assert copy.amount / backend.clock.time(copy.run).seconds > 1e10

    def test_flushed_is_slower_than_hot(self, backend):
        x = backend.tools("fp32").normal(1 << 20)
        run = lambda: backend.torch.mul(x, x)  # noqa: E731
        hot, cold = backend.clock.time(run).seconds, backend.clock.time_after(backend.flush, run).seconds
        assert cold > hot

    def test_copies_clock_and_facts(self, backend):
        copies = {(each["direction"], each["pinned"]): each for each in backend.host_copies()}
        assert len(copies) == 4
        for direction in ("to_device", "to_host"):
            assert copies[direction, True]["bytes_per_s"] > copies[direction, False]["bytes_per_s"] * 0.9
        assert 100 < (backend.clock_mhz() or 1000) < 5000
        assert backend.facts()["cache_mib"] < 1024
        assert "torch's" in backend.allocator()

    def test_tf32_rounds_and_fp32_does_not(self, backend):
        if "tf32" not in backend.dtypes:
            pytest.skip("this GPU has no tf32")
        left, right = (backend.tools("fp32").normal(512, 512) for _ in range(2))
        exact = left.double() @ right.double()
        off = {}
        for dtype in ("fp32", "tf32"):
            with backend.settings(dtype):
                off[dtype] = float(((left @ right).double() - exact).norm() / exact.norm())
        assert off["fp32"] < 1e-6 < 1e-5 < off["tf32"]

    @pytest.mark.parametrize("dtype", ["tf32", "bf16"])
    def test_every_class_computes_what_it_says(self, backend, dtype):
        from perfmodel.calibration.journal import Journal

        if dtype not in backend.dtypes:
            pytest.skip(f"this GPU has no {dtype}")
        session = Session(backend, dtypes=[dtype], budget_s=1, journal=Journal(None, {}))
        session._check()
        assert len(session.classes) > 40
