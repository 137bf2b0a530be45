"""Every kind of node that a formula may hold is bounded and computed; branches not taken may divide by zero."""

from functools import cache

import numpy as np
import pytest
import sympy

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.planning.formulas.evaluation import AtPoint, Bounded
from perfmodel.planning.formulas.named_expressions import Definitions

X, P = sympy.Symbol("x", positive=True), sympy.Symbol("p", positive=True)
SHIFTED = sympy.Min(X, 3.0, evaluate=False) - 2
NODES = {
    "logarithm": sympy.log(X + 1),
    "exponential": sympy.exp(-X / 3),
    "power": X**1.5 / (X + 2) ** 2,
    "power of itself": X**X,
    "negative base": SHIFTED**2 + SHIFTED,
    "pole": 1 / SHIFTED,
    "floor": sympy.floor(sympy.log(X, 2), evaluate=False) * X,
    "ceiling": sympy.ceiling(7 / X, evaluate=False) + X,
    "rest": sympy.Mod(X, 3, evaluate=False) + 1,
    "extremes": sympy.Max(X, 3 / X, evaluate=False) + sympy.Min(X, 2.0, evaluate=False),
    "both": sympy.Piecewise((X, sympy.And(X > 1, X <= 3)), (2 * X, True)),
    "either": sympy.Piecewise((X, sympy.Or(X < 1, X >= 3)), (2 * X, True)),
    "not": sympy.Piecewise((X, sympy.Not(sympy.And(X > 1, X < 3), evaluate=False)), (X**2, True)),
    "equal": sympy.Piecewise((X, sympy.Eq(sympy.floor(X), 2)), (1 / (sympy.floor(X) - 2), True)),
    "unequal": sympy.Piecewise((1 / (sympy.floor(X) - 2), sympy.Ne(sympy.floor(X), 2)), (X, True)),
    "no rule": sympy.Abs(SHIFTED) * sympy.erf(X) + sympy.atan(X),
    "not taken": sympy.Piecewise((X, P <= 1), (X / (P - 1) + sympy.log(P - 1), True)),
    "product not taken": sympy.Piecewise((X, P <= 1), (X / (X * (P - 1)) - 2 / (X * (P - 1)), True)),
}


def function_of(node):
    values = sympy.lambdify((X, P), node, "numpy")
    return np.vectorize(lambda x: values(np.float64(x), np.float64(1.0)))


@pytest.mark.parametrize("kind", NODES)
def test_bounds_of_every_kind_of_node_hold(kind):
    ends = np.append(np.geomspace(0.05, 40, 60), np.arange(41, 60))
    bounds = Bounded(Definitions(), NODES[kind], X, {P: 1.0})(ends[:-1], ends[1:])
    shares = np.random.default_rng(0).random((40, len(ends) - 1))
    places = np.vstack([ends[:-1], ends[1:], ends[:-1] + np.diff(ends) * shares])
    with np.errstate(all="ignore"):
        function = function_of(NODES[kind])
        values, steps = function(places), 1e-6 * places
        slopes = (function(places + steps) - function(places - steps)) / (2 * steps)
    rounding = 1e-12 * np.abs(values)
    assert not np.isnan(np.array(bounds[:4])).any()
    assert ((values >= bounds.low - rounding) | ~np.isfinite(values)).all()
    assert ((values <= bounds.high + rounding) | ~np.isfinite(values)).all()
    inside = (places - steps > ends[:-1]) & (places + steps < ends[1:]) & ~bounds.jumps & np.isfinite(slopes)
    off = 1e-5 * np.abs(values / places)
    assert ((slopes >= bounds.slope_low - off) | ~inside).all()
    assert ((slopes <= bounds.slope_high + off) | ~inside).all()
    assert kind == "no rule" or np.isfinite(bounds.low).mean() > 0.5  # they say something


@pytest.mark.parametrize("kind", NODES)
def test_every_kind_of_node_has_a_value_and_a_slope(kind):
    with np.errstate(all="ignore"):
        function = function_of(NODES[kind])
    for place in (0.3, 1.0, 1.5, 2.0, 2.6, 5.3):
        with np.errstate(all="ignore"):
            value, (below, above) = float(function(place)), function(place * np.array([1 - 1e-6, 1 + 1e-6]))
        point = AtPoint(Definitions(), {X: place, P: 1.0})
        assert point.value(NODES[kind]) == pytest.approx(value, rel=1e-12)
        if place not in (1.0, 2.0):  # no corner
            slope = (above - below) / (2e-6 * place)
            assert point.gradient(NODES[kind])[X] == pytest.approx(slope, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("bad", [sympy.zoo, sympy.sqrt(-2.0), sympy.nan, sympy.log(0)])
def test_a_number_that_is_none_does_not_crash(bad):
    node = sympy.Piecewise((X, P <= 1), (X + bad, True), evaluate=False)
    bounds = Bounded(Definitions(), node, X, {P: 1.0})(np.array([1.0]), np.array([2.0]))
    assert (bounds.low[0], bounds.high[0]) == (1, 2)
    assert AtPoint(Definitions(), {X: 1.5, P: 1.0}).value(node) == 1.5


@cache
def exchanged(sync, framework="generic"):
    free = ["workers", "link_bandwidth_bytes_per_s"]
    return pm.formula("sync_s", graph=pm.zoo.autoencoder(), system="survey_fig5", sync=sync, framework=framework,
                      batch_size=16, free=free)  # fmt: skip


@pytest.mark.parametrize(("sync", "framework"), [("halving_doubling", "generic"), ("recursive_doubling", "pytorch_2")])
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_exchanges_by_powers_of_two_are_solved(sync, framework, workers):
    f, at = exchanged(sync, framework), {"workers": workers}
    target = 1.3 * f(**at)
    found = f.solve_for("link_bandwidth_bytes_per_s", target, at=at)
    assert found.proven
    assert f(**at, link_bandwidth_bytes_per_s=found.value) == pytest.approx(target, rel=1e-9)
    places = np.geomspace(found.value / 1000, found.value * (1 - 1e-6), 500)
    assert (f(**at, link_bandwidth_bytes_per_s=places) > target).all()
    half = f.stated["link_bandwidth_bytes_per_s"] * 0.5
    counted = f.solve_for("workers", float(f(workers, half)), at={"link_bandwidth_bytes_per_s": half})
    scanned = [count for count in (1, 2, 3, 4) if f(count, half) >= f(workers, half)]
    assert counted.value == scanned[0]


@pytest.mark.parametrize("sync", ["halving_doubling", "recursive_doubling"])
def test_exchanges_by_powers_of_two_cross(sync):
    f, at = exchanged(sync), {"workers": 3}
    found = f.crossover("sync_s", "overhead_s", symbol="link_bandwidth_bytes_per_s", at=at)
    sides = [f.of(name)(**at, link_bandwidth_bytes_per_s=found.value) for name in ("sync_s", "overhead_s")]
    assert sides[0] == pytest.approx(sides[1], rel=1e-9)


def test_one_worker_is_solved_though_its_exchange_would_divide_by_zero():
    f = pm.formula(graph=pm.zoo.autoencoder(), system="survey_fig5", framework="pytorch_2", sync="all_reduce",
                   batch_size=16, free=["workers", "memory_bandwidth_bytes_per_s"])  # fmt: skip
    at, target = {"workers": 1}, 1.2 * f(workers=1)
    found = f.solve_for("memory_bandwidth_bytes_per_s", target, at=at)
    assert found.proven
    assert f(1, found.value) == pytest.approx(target, rel=1e-9)
    crossed = f.crossover("memory_bound_s", "overhead_s", symbol="memory_bandwidth_bytes_per_s", at=at)
    sides = [f.of(name)(1, crossed.value) for name in ("memory_bound_s", "overhead_s")]
    assert sides[0] == pytest.approx(sides[1], rel=1e-9)
    with pytest.raises(ArgumentError, match="exceeds overhead_s"):
        f.crossover("step_s", "overhead_s", symbol="memory_bandwidth_bytes_per_s", at=at)
    assert "memory_bound_s" in str(f.active(at))
    assert np.isfinite([row.total for row in f.elasticities(at).values()]).all()
