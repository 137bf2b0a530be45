"""A backend that computes nothing: its kernels take the time that a known law says, on a clock that it drives."""

import contextlib
import math

import numpy as np

from perfmodel.calibration import calibrate, session
from perfmodel.calibration.backends.base import Backend, HostClock, PeakRun
from perfmodel.calibration.benchmark import Axis, Benchmark, Prepared
from perfmodel.calibration.classes import columns_of
from perfmodel.calibration.families import (
    CONTRACTION_AXES,
    CONVOLUTIONS,
    ELEMENTS,
    ROLES,
    contraction,
    of_layer,
)
from perfmodel.hardware.measured_machine import MeasuredOn
from perfmodel.layers import BatchNorm, ReLU
from perfmodel.records import Role

FACTS = {
    "processor": "cpu",
    "model": "Made up",
    "core_count": 2,
    "threads": 2,
    "memory_gib": 16.0,
    "cache_mib": 32.0,
    "near_cache_mib": 2.0,
    "vector_lanes": 8,
}

LAW = {
    "gemm_output": {"call_s": 8e-6, "s_per_flop": 2e-11, "s_per_left_byte": 9e-11, "s_per_result_byte": 3e-10},
    "gemm_input_gradient": {"call_s": 9e-6, "s_per_flop": 3e-11, "s_per_right_byte": 2e-10},
    "gemm_weight_gradient": {"call_s": 1.1e-5, "s_per_flop": 2.5e-11, "s_per_result_byte": 4e-10},
    "conv2d_3x3_s1_output": {"call_s": 3e-5, "s_per_flop": 1.5e-11, "s_per_read_byte": 1.2e-9},
    "relu": {"call_s": 2e-6, "s_per_byte": 7e-11, "s_per_far_byte": 2e-10},
    "batch_norm": {"call_s": 6e-6, "s_per_byte": 1.4e-10},
}
"""Constants of the machine that a calibration has to find."""


REUSE_BYTES = 12e6
"""Other traffic after which all but 1/e of some data has left its caches [B]."""


def run_on_fake_time(patch):
    """Let the clock of every session be that of its fake backend, so that budgets and windows are exact."""

    def timed(backend, *, already_s, **options):
        return session.Session(backend, now=lambda: backend.elapsed_s, **options)

    patch.setattr(calibrate, "Session", timed)


class FakeClock(HostClock):
    """Time passes only by what kernels take."""

    def __init__(self, backend):
        self.backend = backend
        super().__init__(lambda: round(backend.elapsed_s * 1e12) // 1000)


class FakeBackend(Backend):
    """Kernels of a known law, with noise of a known spread, on a machine that may change its speed."""

    name = "numpy"

    def __init__(self, law=LAW, *, noise=0.05, seed=1, speed=lambda seconds: 1.0, fails_after=None):
        self.law, self.noise, self.speed, self.fails_after = law, noise, speed, fails_after
        self.elapsed_s = self.flushed = 0.0
        self._random = np.random.default_rng(seed)
        self.machine = MeasuredOn.model_validate(FACTS)
        self.runs = 0
        self._clock = FakeClock(self)

    @property
    def clock(self):
        return self._clock

    @property
    def dtypes(self):
        return ("fp32",)

    default_dtypes = dtypes

    def facts(self):
        return dict(FACTS)

    def software(self):
        return {"numpy": "0"}

    def clock_mhz(self):
        return 2000.0

    def passes(self, seconds):
        """Return a run that lets so much time pass."""

        def run():
            self.runs += 1
            if self.fails_after is not None and self.runs > self.fails_after:
                raise KeyboardInterrupt
            self.elapsed_s += seconds * self.speed(self.elapsed_s)
            return np.ones(3)

        return run

    def benchmarks(self, dtype):
        return {each.name: each for each in self._benchmarks() if each.name in self.law}

    def _benchmarks(self):
        maps = {"rows": Axis(3, 99, "odd"), "channels": Axis(8, 256), "edge": Axis(5, 60)}
        for role in ROLES:
            make = lambda sizes, role=role: contraction(sizes, role)  # noqa: E731
            yield Benchmark(
                name=f"gemm_{role.value}", axes=CONTRACTION_AXES, operation=make, prepare=self.made, point_count=30
            )
        square = next(each for each in CONVOLUTIONS if each.name == "conv2d_3x3_s1")
        yield Benchmark(
            name="conv2d_3x3_s1_output",
            axes=square.axes,
            operation=lambda sizes: square.operation(sizes, Role.OUTPUT),
            prepare=self.made,
        )
        yield Benchmark(
            name="relu", axes=ELEMENTS.axes, operation=of_layer("relu", ELEMENTS, ReLU()), prepare=self.made
        )
        yield Benchmark(
            name="batch_norm",
            axes=maps,
            operation=lambda sizes: BatchNorm().operations(
                ((sizes["channels"], sizes["edge"], sizes["edge"]),), batch_size=sizes["rows"], phase="forward"
            )[0],
            prepare=self.made,
        )

    def made(self, tools, sizes, operation):
        raise NotImplementedError

    def seconds(self, benchmark, sizes, dtype="fp32"):
        """Return what the law says of a kernel, without noise."""
        columns = columns_of([benchmark.operation(sizes)], dtype=dtype, machine=self.machine)
        constants = [self.law[benchmark.name].get(name, 0.0) for name in columns.names]
        return float(columns.features[0] @ constants)

    def prepare(self, benchmark, sizes, *, dtype):
        seconds = self.seconds(benchmark, sizes, dtype) * math.exp(self.noise * self._random.standard_normal())
        return Prepared(self.passes(seconds))

    def results(self, benchmark, sizes, *, dtype):
        return np.ones(3), np.ones(3), False

    def settings(self, dtype):
        return contextlib.nullcontext()

    flush_bytes = 40 * 2**20

    def flush(self, share=1.0):
        self.elapsed_s += 1e-4 * share
        self.flushed = share

    def copy_run(self, moved_bytes):
        """Return a copy whose bytes are gone with the traffic since, and take a nanosecond each then."""
        hot_s = moved_bytes * 1e-10

        def run():
            gone = 1 - math.exp(-((self.flushed * self.flush_bytes / REUSE_BYTES) ** 2))
            self.elapsed_s += hot_s + gone * moved_bytes * 1e-9
            self.flushed = 0.0

        return run

    def reference(self):
        return self.passes(1e-3)

    def peak_runs(self, dtype):
        return PeakRun(self.passes(1e-3), 5e7), PeakRun(self.passes(1e-3), 1e7)

    def overheads(self):
        return {"grad_forward_s": 2e-6, "backward_s": 5e-6}
