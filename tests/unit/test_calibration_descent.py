"""Fits: what a plan frees, which constants a factor reaches on CPUs, and descents that pass kinks."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from perfmodel import zoo
from perfmodel.fitting.fit import fit_unknowns
from perfmodel.framework.profile import load_framework
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.fit_file import UnknownTable, load_fit_plan
from perfmodel.layers.optimizers import load_optimizer
from perfmodel.prediction.device.targets import resolve_target
from perfmodel.prediction.job.prepare import prepare
from perfmodel.prediction.job.subject import Subject
from perfmodel.records import Phase

SERVER = "server_2x_xeon_e5_2630_v3"


def _prepared(framework="torch_423cfba", threads=4, dtype="fp32", phase="step"):
    subject = Subject(graph=zoo.build("fcn5"), name="toy", optimizer=load_optimizer("sgd"), phase=Phase(phase))
    target = resolve_target(device=None, system=SERVER, threads=threads)
    return prepare(subject, target=target, profile=load_framework(framework), batch_size=64, dtype=dtype)


def _seconds(prepared, **factors):
    return float(np.squeeze(prepared.step(factors).parts.step_s))


def test_an_unknown_is_repeated_only_for_what_its_entry_lists():
    table = {
        "name": "own",
        "each": "framework",
        "scales": ["frameworks/{each}/cpu.pass_slowdown"],
        "spread": 0.5,
        "meaning": "loops",
    }
    constants = [f"frameworks/{stem}/cpu.pass_slowdown" for stem in ("a", "b", "c")]
    every = UnknownTable.model_validate(table).expand(constants)
    some = UnknownTable.model_validate({**table, "only": ["a", "c"]}).expand(constants)
    assert [unknown.name for unknown in every] == ["own_a", "own_b", "own_c"]
    assert [unknown.name for unknown in some] == ["own_a", "own_c"]


def test_every_unknown_of_the_cpu_plan_scales_something():
    plan = load_fit_plan("cpu")
    names = {
        name
        for framework in ("caffe_1_0_rc3", "cntk_1_5_rc", "tensorflow_0_9", "torch_423cfba")
        for threads in (16, 32)  # two threads on each core ask for what they cost
        for name in _prepared(framework, threads=threads).constant_names
    }
    groups = {unknown.group for unknown in plan.unknowns(names)}
    assert groups == {table.name for table in plan.unknown}


@pytest.mark.parametrize(
    ("constant", "sign"),
    [
        ("libraries/openblas_0_2_18/haswell.gemm_efficiency", -1),
        ("frameworks/torch_423cfba/cpu.blas_efficiency", -1),
        ("frameworks/torch_423cfba/cpu.blas_serial_factor", 1),
        ("frameworks/torch_423cfba/cpu.pass_slowdown", 1),
        ("frameworks/torch_423cfba/cpu.cycles_per_flop.sigmoid", 1),
        ("devices/xeon_e5_2630_v3/memory.bandwidth_per_core_gb_per_s", -1),
        ("devices/xeon_e5_2630_v3/memory.efficiency", -1),
    ],
)
def test_constants_of_cpus_are_scaled_by_name(constant, sign):
    # all cores share the channels; a few are held up by their own share of them
    prepared = _prepared(threads=2 if constant.endswith("per_core_gb_per_s") else 16)
    assert constant in prepared.constant_names
    slow, same = (_seconds(prepared, **{constant: factor}) for factor in (0.8, 1.0))
    assert np.sign(same - slow) == sign
    assert same == _seconds(prepared)


def test_double_precision_has_an_efficiency_of_its_own():
    constant = {"libraries/openblas_0_2_18/haswell.fp64_efficiency": 0.5}
    single, double = _prepared(), _prepared(dtype="fp64")
    assert _seconds(single, **constant) == _seconds(single)
    assert _seconds(double, **constant) > _seconds(double) > _seconds(single)


def test_memory_stays_within_what_the_channels_carry():
    memory = load_system(SERVER).processor.memory
    prepared = _prepared()
    place = "devices/xeon_e5_2630_v3/memory."
    fastest = prepared.step({f"{place}bandwidth_per_core_gb_per_s": 100.0, f"{place}efficiency": 100.0}).numbers
    assert fastest.core_bandwidth_bytes_per_s == memory.bandwidth_gb_per_s * 1e9
    assert fastest.total_bandwidth_bytes_per_s <= 2 * memory.bandwidth_gb_per_s * 1e9


@dataclass
class Kinked:
    """A problem of one row and one unknown whose time has a shallow notch on the way to the minimum."""

    measured: float = 2.0

    def __post_init__(self):
        self.unknowns = (SimpleNamespace(name="x"),)
        self.plan = SimpleNamespace(noise=0.1, outlier=100.0)
        self.log_measured = np.array([self.measured])

    @staticmethod
    def time(x):
        return np.where(x < 0.5, x, np.where(x < 0.53, 0.5 - 0.5 * (x - 0.5), x - 0.045))

    def log_times(self, log_factors, rows, *, step=0.01):
        del rows
        below, here, above = (self.time(log_factors[0] + shift) for shift in (-step, 0, step))
        return np.array([here]), np.array([[(above - below) / (2 * step)]])

    def prior_root(self):
        return np.array([[0.1]])

    def reached_by(self, rows):
        return frozenset(rows)

    def forget(self, *, keep=None):
        """Keep nothing."""


@pytest.mark.parametrize("start", [None, np.array([0.4999])], ids=["priors", "just before the kink"])
def test_a_fit_passes_kinks_that_are_narrower_than_its_steps(start):
    fit = fit_unknowns(Kinked(), (0,), start=start)
    assert fit.log_factors[0] == pytest.approx(2.045, abs=0.01)
    assert fit.converged
    assert fit.spreads[0] == pytest.approx(0.1, rel=0.02)
