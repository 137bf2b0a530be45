"""Numbers so large or small that an answer would not be finite: refused by the argument, in every verb alike."""

import math
from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.layers import Dense
from perfmodel.planning.sweeps.joint_steps import JointSteps

GRAPH = pm.zoo.lenet5()
JOB = {"batch_size": 4, "device": "gtx_1080", "framework": "caffe_1_0_rc3"}
SPREAD = {"graph": GRAPH, "system": "dgx_a100", "workers": (1, 2), "batch_size": 4}


@pytest.fixture(scope="module")
def prediction():
    return pm.predict(GRAPH, **JOB)


@pytest.fixture(scope="module")
def formula():
    return pm.formula(graph=GRAPH, free=["batch_size", "memory_bandwidth_bytes_per_s"], **JOB)


REFUSED = {
    "scaling": (lambda: pm.scaling(**SPREAD, dataset_size=10**18, usd_per_hour=1e300), "usd_per_hour", 1e300),
    "plan": (
        lambda: pm.plan(
            GRAPH, candidates=[{"price": 1e299, "device": "gtx_1080"}], batch_size=4, dataset_size=10**15, epochs=10**6
        ),
        "candidates[0]['price']",
        1e299,
    ),
    "refresh": (
        lambda: pm.refresh(memory_bytes=8e9, bandwidth_bytes_per_s=1e-300, device_count=1, compute_s=0.5),
        "bandwidth_bytes_per_s",
        1e-300,
    ),
}


@pytest.mark.parametrize("verb", REFUSED)
def test_the_argument_farthest_from_one_is_refused(verb):
    call, argument, given = REFUSED[verb]
    with pytest.raises(ArgumentError, match="is a finite number, not inf") as refused:
        call()
    assert (refused.value.argument, refused.value.given) == (argument, given)


def test_a_price_of_a_prediction(prediction):
    assert math.isfinite(prediction.cost_usd(1e290, dataset_size=10**12))
    with pytest.raises(ArgumentError, match="price must be smaller, so that cost_usd"):
        prediction.cost_usd(1e300, dataset_size=10**18)


@pytest.mark.parametrize(("symbol", "given"), [("batch_size", 1e300), ("memory_bandwidth_bytes_per_s", 1e-300)])
def test_a_point_of_a_formula(formula, symbol, given):
    for ask in (lambda: formula(**{symbol: given}), lambda: formula.elasticities({symbol: given})):
        with pytest.raises(ArgumentError, match=f"{symbol} must be (smaller|larger), so that step_s"):
            ask()
    with pytest.raises(ArgumentError, match=f"{symbol} must be"):
        formula(**{symbol: [2, given]})


def test_a_price_in_a_sweep_leaves_its_times():
    s = pm.sweep(GRAPH, **JOB | {"batch_size": [4, 8]}, usd_per_hour=1e300, dataset_size=10**18)
    assert np.isfinite(s["step_s"]).all()
    assert np.isnan(s["usd_per_epoch"]).all()
    assert all(reason.startswith("usd_per_hour must be smaller") for reason in s["reason"])


def test_a_sweep_refuses_what_predict_refuses():
    wide = pm.LayerGraph("wide", input_shape=(10**150,))
    wide.add("dense", Dense(units=10**150), inputs=wide.input)
    with pytest.raises(ArgumentError):
        pm.predict(wide, **JOB | {"batch_size": 2**40})
    s = pm.sweep(wide, **JOB | {"batch_size": [1, 2**40]})
    assert "must be" in s.row(1)["reason"]
    assert not s.row(1)["fits"]
    assert np.isnan(s.row(1)["step_s"])


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0])
def test_a_wrong_time_leaves_a_sweep_as_a_reason(monkeypatch, seconds):
    outcome = JointSteps.outcome

    def wrong(*arguments):
        known = outcome(*arguments)
        second_wrong = np.where(known.batch_size > 4, seconds, known.parts.compute_s)
        return replace(known, parts=known.parts._replace(compute_s=second_wrong))

    monkeypatch.setattr(JointSteps, "outcome", wrong)
    s = pm.sweep(GRAPH, **JOB | {"batch_size": [4, 8]})
    assert s["fits"].tolist() == [True, False]
    assert np.isfinite(s["step_s"]).tolist() == [True, False]
    assert "batch_size must be small enough, on this hardware, for finite times of at least 0 s" in s.row(1)["reason"]


@pytest.mark.parametrize("distribution", ["normal", "lognormal"])
def test_times_that_vary_by_more_than_an_integral_sees(distribution):
    (row,) = pm.straggler_slowdown(workers=[2], cv=1e6, distribution=distribution).rows
    assert 1 <= row.slowdown <= 2  # the sum of two times of mean 1 exceeds the larger
    with pytest.raises(ArgumentError, match="cv must be a number from 0 to 1e"):
        pm.straggler_slowdown(workers=[2], cv=1e7, distribution=distribution)


def test_the_slowest_of_as_many_workers_as_a_number_counts():
    slowest = [row.slowdown for row in pm.straggler_slowdown(workers=[10**9, 10**15, 2**62], cv=0.1).rows]
    # Asymptote of the largest of p standard normal values, from Cramer: sqrt(2 ln p) less half of ln(ln p) over it.
    expected = [
        1 + 0.1 * (r - (math.log(r**2 / 2) + math.log(4 * math.pi) - 2 * 0.5772) / (2 * r))
        for r in (math.sqrt(2 * math.log(count)) for count in (10**9, 10**15, 2**62))
    ]
    assert slowest == pytest.approx(expected, rel=0.002)
