"""The fit: planted factors come back, priors hold what no row tells, outliers count little, starts count nothing."""

from types import SimpleNamespace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import CalibrationError, SpecError, UnknownNameError
from perfmodel.fitting.fit import Z_80, fit_unknowns, robust_loss
from perfmodel.fitting.problem import Problem
from perfmodel.hardware.fit_file import FitPlan, factors_by_constant, load_fit_plan
from perfmodel.validation.protocols.cells import predict_cell, prepare_cells
from perfmodel.validation.protocols.protocols import compiled, folds_of

ARCHITECTURES = ("kepler", "maxwell", "pascal")


class Linear:
    """A step whose time is the product of the factors on its constants."""

    def __init__(self, *constant_names):
        self.constant_names = constant_names

    def step(self, factors):
        product = np.prod([factors[name] for name in self.constant_names if name in factors], axis=0)
        return SimpleNamespace(parts=SimpleNamespace(step_s=product))


def plan_of(*unknowns, noise=0.05, outlier=1e6):
    """A plan that is quadratic unless told otherwise."""
    filled = [{"spread": 0.3, "meaning": "for this test"} | unknown for unknown in unknowns]
    source = {"fields": ["noise", "outlier", "unknown"], "title": "estimate", "note": "for this test"}
    return FitPlan.model_validate(
        {
            "schema_version": 1, "name": "test", "kind": "fit_plan", "processor": "gpu", "noise": noise,
            "outlier": outlier, "unknown": filled, "source": [source],
        }
    )  # fmt: skip


GEMM = {
    "name": "gemm", "each": "architecture", "scales": ["libraries/*/{each}.gemm"], "spread": 0.3, "shared_spread": 0.2,
}  # fmt: skip


def gemm(architecture):
    return f"libraries/cublas_7_5/{architecture}.gemm"


@pytest.fixture(scope="module")
def cells():
    table = pm.measurements.load("shi2016")
    return prepare_cells(table, table.subset("gpu"))


def test_one_unknown_is_the_weighted_mean_of_prior_and_rows():
    plan = plan_of({"name": "dispatch", "scales": ["frameworks/*/gpu.dispatch_us"]})
    rows = [Linear("frameworks/generic/gpu.dispatch_us")] * 4
    logs = np.array([0.1, 0.3, 0.2, 0.6])
    found = fit_unknowns(Problem.of(rows, np.exp(logs), plan), range(4))
    precision = 4 / 0.05**2 + 1 / 0.3**2
    assert found.log_factors == pytest.approx([logs.sum() / 0.05**2 / precision], rel=1e-3)
    assert found.spreads == pytest.approx([precision**-0.5], rel=1e-6)
    assert found.converged
    low, high = found.interval("dispatch")
    centre = found.log_factors[0]
    assert np.log([low, high]) == pytest.approx([centre - Z_80 / precision**0.5, centre + Z_80 / precision**0.5])


@pytest.mark.parametrize("count", [1, 4, 16])
def test_intervals_shrink_with_rows(count):
    plan = plan_of({"name": "dispatch", "scales": ["frameworks/*/gpu.dispatch_us"]})
    rows = [Linear("frameworks/generic/gpu.dispatch_us")] * count
    found = fit_unknowns(Problem.of(rows, [1.0] * count, plan), range(count))
    assert found.spreads[0] == pytest.approx((count / 0.05**2 + 1 / 0.3**2) ** -0.5, rel=1e-6)


def test_what_no_row_reaches_moves_with_its_group_by_the_posterior():
    rows = [Linear(gemm(name)) for name in ARCHITECTURES]
    problem = Problem.of(rows, np.exp([5.0, 0.4, 0.2]), plan_of(GEMM))
    assert [unknown.name for unknown in problem.unknowns] == [f"gemm_{name}" for name in ARCHITECTURES]
    found = fit_unknowns(problem, [1, 2])  # Kepler is held out, whatever it measured
    # covariance 0.04 between two, 0.13 of one; rows add 0.0025; (0.1325 - 0.04) p = a, by symmetry of the two rows
    weights = np.linalg.solve([[0.1325, 0.04], [0.04, 0.1325]], [0.4, 0.2])
    assert found.log_factors[0] == pytest.approx(0.04 * weights.sum(), rel=2e-3)
    assert found.log_factors[0] == pytest.approx(0.04 * 0.6 / 0.1725, rel=2e-3)
    assert 0.1 < found.log_factors[0] < 0.3
    assert found.log_factors[1] == pytest.approx([0.13, 0.04] @ weights, rel=2e-3)
    assert found.spreads[0] ** 2 == pytest.approx(0.13 - 2 * 0.04**2 / 0.1725, rel=1e-6)
    assert found.parameter_count == 2


def test_what_hangs_together_with_nothing_stays_at_its_source():
    rows = [Linear(gemm(name)) for name in ARCHITECTURES]
    problem = Problem.of(rows, np.exp([5.0, 0.4, 0.2]), plan_of(GEMM | {"shared_spread": 0.0}))
    found = fit_unknowns(problem, [1, 2])
    assert found.factors["gemm_kepler"] == pytest.approx(1.0, abs=1e-9)
    assert found.spreads[0] == pytest.approx(0.3)


def test_one_row_that_is_three_times_off_counts_little():
    rows = [Linear("frameworks/generic/gpu.dispatch_us")] * 10
    logs = np.full(10, 0.2) + 0.01 * np.resize([1, -1], 10)
    spoilt = logs + np.log(3) * (np.arange(10) == 0)
    unknown = {"name": "dispatch", "scales": ["frameworks/*/gpu.dispatch_us"], "spread": 10.0}
    shifts = {}
    for outlier in (3.0, 1e6):
        plan = plan_of(unknown, outlier=outlier)
        clean, off = (fit_unknowns(Problem.of(rows, np.exp(each), plan), range(10)) for each in (logs, spoilt))
        shifts[outlier] = off.log_factors[0] - clean.log_factors[0]
    assert shifts[1e6] == pytest.approx(np.log(3) / 10, rel=1e-2)
    # a row far off pulls as one that is 3 standard deviations off: 9 x / s = 3
    assert 0 < shifts[3.0] < 0.05 * 3 / 9 * 1.1


def test_derivatives_of_the_robust_loss():
    squared = np.array([0.0, 0.3, 4.0, 90.0, 2.0, 50.0])
    loss, first, second = robust_loss(squared, row_count=4, outlier=3.0)
    above, below = (robust_loss(squared + h, row_count=4, outlier=3.0) for h in (1e-4, -1e-4))
    assert first == pytest.approx((above[0] - below[0]) / 2e-4, rel=1e-6)
    assert second == pytest.approx((above[1] - below[1]) / 2e-4, rel=1e-5, abs=1e-12)
    assert loss[4:].tolist() == [2.0, 50.0]  # priors are never robust
    assert loss[3] == pytest.approx(2 * 9 * (np.sqrt(1 + 10) - 1))


def test_gradients_are_those_of_the_times(cells):
    problem = compiled(cells[:3], load_fit_plan("gpu"))
    logs = np.random.default_rng(3).normal(0, 0.1, len(problem.unknowns))
    _, gradients = problem.log_times(logs, range(3), step=1e-4)
    for unknown in range(len(logs)):
        shift = 1e-4 * (np.arange(len(logs)) == unknown)
        above, below = (problem.log_times(each, range(3))[0] for each in (logs + shift, logs - shift))
        assert gradients[:, unknown] == pytest.approx((above - below) / 2e-4, abs=1e-7)


def test_planted_factors_come_back(cells):
    rows = [cell for cell in cells if cell.row.framework in ("caffe_1_0_rc3", "cntk_1_5_rc")][:20]
    plan = plan_of(
        {"name": "dispatch", "scales": ["frameworks/*/gpu.dispatch_us"], "spread": 1.0},
        {"name": "passes", "scales": ["frameworks/*/gpu.bandwidth_fraction_*"], "spread": 1.0},
        GEMM | {"spread": 1.0, "scales": ["libraries/cublas_*/{each}.gemm"]},
        noise=1e-3,
        outlier=3.0,
    )
    steps = [cell.prepared for cell in rows]
    problem = Problem.of(steps, [1.0] * len(steps), plan)
    planted = {"dispatch": 1.4, "passes": 0.8, "gemm_kepler": 0.75, "gemm_maxwell": 0.9, "gemm_pascal": 0.8}
    assert {unknown.name for unknown in problem.unknowns} == set(planted)
    times = [
        step.step(factors_by_constant(problem.unknowns, planted, step.constant_names)).parts.step_s for step in steps
    ]
    found = fit_unknowns(Problem.of(steps, times, plan), range(len(steps)))
    assert found.factors == pytest.approx(planted, rel=0.02)
    for name, factor in planted.items():
        assert found.spreads[found.names.index(name)] < 0.1, f"{name} is not told by these rows"
        low, high = found.interval(name)
        assert low < high < 1.2 * low
        assert low / 1.01 < factor < high * 1.01
    assert found.parameter_count == 5


@pytest.mark.parametrize(
    ("protocol", "held_out"), [("leave_one_device_out", "gtx_1080"), ("leave_one_framework_out", "torch_423cfba")]
)
def test_a_fit_ends_in_the_same_place_from_any_start(cells, protocol, held_out):
    # these two folds once ended 19 and 14 % apart, by whether they had started at their priors or at a fit to all rows
    problem = compiled(cells, load_fit_plan("gpu"))
    (fold,) = [fold for fold in folds_of(protocol, cells) if fold.label == held_out]
    elsewhere = np.random.default_rng(2).normal(0, 0.1, len(problem.unknowns))
    ends = [fit_unknowns(problem, fold.trained, start=start) for start in (None, elsewhere)]
    times = [problem.log_times(end.log_factors, range(len(cells)))[0] for end in ends]
    assert all(end.converged for end in ends)
    assert times[0] == pytest.approx(times[1], abs=0.025)
    assert np.mean(np.abs(times[0] - times[1])) < 5e-3


def test_a_fit_and_a_prediction_are_one_path(cells):
    some = cells[::7]
    problem = compiled(some, load_fit_plan("gpu"))
    logs = np.random.default_rng(5).normal(0, 0.2, len(problem.unknowns))
    times, _ = problem.log_times(logs, range(len(some)))
    factors = dict(zip((unknown.name for unknown in problem.unknowns), np.exp(logs), strict=True))
    for cell, log_time in zip(some, times, strict=True):
        by_name = factors_by_constant(problem.unknowns, factors, cell.prepared.constant_names)
        predicted, _ = predict_cell(cell, by_name)
        assert predicted.predicted_s == pytest.approx(np.exp(log_time), rel=1e-12)
        assert predicted.predicted_s != pytest.approx(predict_cell(cell)[0].predicted_s, rel=1e-3)


def test_nothing_to_fit_is_an_error(cells):
    problem = compiled(cells[:2], load_fit_plan("gpu"))
    with pytest.raises(CalibrationError, match=r"0 row\(s\)"):
        fit_unknowns(problem, [])
    plan = plan_of({"name": "none", "scales": ["libraries/no_such/*"]})
    with pytest.raises(CalibrationError, match=r"0 unknown\(s\)"):
        fit_unknowns(compiled(cells[:2], plan), [0])


def test_plans_name_what_they_scale(tmp_path):
    with pytest.raises(UnknownNameError, match=r"fit plan 'gpuu'.*gpu"):
        load_fit_plan("gpuu")
    path = tmp_path / "plan.toml"
    path.write_text(
        'schema_version = 1\nname = "x"\nkind = "fit_plan"\nprocessor = "gpu"\nnoise = -1\noutlier = 3.0\n'
        '[[unknown]]\nname = "a"\nscales = ["cublas/*"]\nspread = 0.1\nmeaning = "x"\n'
        '[[source]]\nfields = ["noise", "outlier", "unknown"]\ntitle = "estimate"\nnote = "x"\n'
    )
    with pytest.raises(SpecError) as caught:
        load_fit_plan(path)
    assert "noise" in str(caught.value)
    assert "must begin with a kind folder" in str(caught.value)


def test_every_pattern_of_the_shipped_plan_scales_something(cells):
    plan = load_fit_plan("gpu")
    constants = {name for cell in cells for name in cell.prepared.constant_names}
    unknowns = plan.unknowns(constants)
    assert {unknown.group for unknown in unknowns} == {table.name for table in plan.unknown}
    for unknown in unknowns:
        assert any(unknown.matches(constant) for constant in constants)
        # values of lists belong to a menu: none is a number that a fit could scale
        assert not any(unknown.matches(name) for name in constants if name.rpartition(".")[2].startswith("tile_"))
