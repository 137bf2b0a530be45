"""A step of asynchronous workers in closed form: at a fixed number of them, over which a recursion runs."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import ArgumentError

GRAPH = pm.zoo.mnist_classifier()

CASES = {
    "downpour": {"sync": "downpour", "push_period": 3, "pull_period": 2},
    "delay compensated": {"sync": "delay_compensated"},
    "in step": {"sync": "bounded_staleness", "staleness_bound": 0},
    "bounded": {"sync": "bounded_staleness", "staleness_bound": 2, "straggler": {"distribution": "normal", "cv": 0.2}},
    "groups": {"sync": "mixed", "group_size": 2},
    "one slow": {"sync": "downpour", "straggler": {"distribution": "unequal", "times": (1.0, 1.0, 1.0, 1.5)}},
    "led by the slow one": {
        "sync": "bounded_staleness",
        "staleness_bound": 1,
        "straggler": {"distribution": "unequal", "times": (1.0, 1.0, 1.0, 1.001)},
    },
}


@cache
def built(case):
    how = {"system": "survey_fig5", "workers": 4, **CASES[case]}
    return pm.formula(graph=GRAPH, batch_size=16, free=["batch_size", "peak_flop_per_s"], **how), how


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=6, deadline=None)
@given(batch_size=st.integers(1, 5000))
def test_a_formula_of_asynchronous_workers_is_what_predict_says(case, batch_size):
    f, how = built(case)
    p = pm.predict(GRAPH, batch_size=batch_size, **how)
    assert f(batch_size=batch_size) == pytest.approx(p.step_s, rel=1e-9)
    assert f.of("samples_per_s")(batch_size=batch_size) == pytest.approx(p.samples_per_s, rel=1e-9)
    for part in ("exposed_sync_s", "straggler_s"):
        assert f.of(part)(batch_size=batch_size) == pytest.approx(p.breakdown[part], rel=1e-7, abs=1e-12 * p.step_s)


def test_its_size_rises_with_the_workers_not_with_a_power_of_them():
    def size(workers):
        how = {"system": "dgx_a100_x4", "sync": "downpour", "workers": workers}
        return len(pm.formula(graph=GRAPH, batch_size=16, free="peak_flop_per_s", **how).definitions.expressions)

    one, two, four = (size(workers) for workers in (8, 16, 32))
    assert four - two <= 2 * (two - one) + 8


def test_a_longer_step_waits_less_before_the_server():
    f, _ = built("downpour")
    found = f.elasticities({"batch_size": 16})["peak_flop_per_s"]
    slower = f.of("exposed_sync_s")(batch_size=16, peak_flop_per_s=0.5 * f.stated["peak_flop_per_s"])
    assert slower < f.of("exposed_sync_s")(batch_size=16)
    assert found.by_part["exposed_sync_s"] > 0 > found.by_part["compute_s"]


@pytest.mark.parametrize("free", ["workers", "link_bandwidth_bytes_per_s", "link_latency_s"])
def test_a_free_number_of_them_is_refused_with_what_has_no_closed_form(free):
    with pytest.raises(ArgumentError, match=r"closed form .*sync_s, exposed_sync_s, straggler_s and step_s") as wrong:
        pm.formula(graph=GRAPH, system="survey_fig5", batch_size=8, sync="downpour", free=free)
    assert "queueing network" in str(wrong.value)
    assert "must be a synchronous strategy" in str(wrong.value)
