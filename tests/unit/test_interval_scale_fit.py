"""The spread of residuals is found again where it was put in, and what is found holds for rows it has not seen."""

import numpy as np
import pytest

from perfmodel.cost.interval_width import (
    WAYS_TO_EXTRAPOLATE,
    Exposure,
    SpreadParameters,
    interval_ends,
    log_spread,
    regime_of,
)
from perfmodel.errors import CalibrationError
from perfmodel.fitting.interval_scale_fit import conformal_quantile, fit_spread, stacked
from perfmodel.hardware.interval_scale import Unseen
from perfmodel.validation.scores.metrics import coverage, interval_score

PUT_IN = SpreadParameters(
    structural=0.08,
    constants_weight=2.0,
    unseen=dict.fromkeys(WAYS_TO_EXTRAPOLATE, 0.0) | {"device": 0.1, "framework": 0.3},
)


def residuals(count=1500, seed=0, parameters=PUT_IN):
    generator = np.random.default_rng(seed)
    regime = generator.integers(0, 3, count)
    exposures = [
        Exposure(
            constants_variance=float(variance),
            other_share=float(share),
            device=float(kind == 1),
            framework=float(kind == 2),
        )
        for variance, share, kind in zip(
            generator.uniform(0, 0.02, count), generator.uniform(0, 1, count), regime, strict=True
        )
    ]
    spread = log_spread(stacked(exposures), parameters=parameters)
    return exposures, spread * generator.laplace(0, 1, count)


def test_what_was_put_in_is_found():
    found = fit_spread(*residuals())
    assert found.parameters.structural == pytest.approx(0.08, rel=0.15)
    assert found.parameters.constants_weight == pytest.approx(2.0, rel=0.3)
    assert found.parameters.unseen["device"] == pytest.approx(0.1, rel=0.2)
    assert found.parameters.unseen["framework"] == pytest.approx(0.3, rel=0.1)
    assert abs(found.parameters.other_slope) < 0.15  # none was put in
    assert found.parameters.unseen["dtype"] > 0  # no row tells: an estimate stays


def test_it_holds_for_others_and_beats_a_constant_ratio():
    exposures, log_ratios = residuals()
    found = fit_spread(exposures, log_ratios)
    others, measured = residuals(seed=1)
    width = np.array([found.log_half_width(each) for each in others])
    constant = np.full(len(others), conformal_quantile(np.abs(log_ratios)))
    assert coverage(-width, width, measured=measured) == pytest.approx(0.8, abs=0.03)
    for part in (lambda each: each.framework, lambda each: each.device, lambda each: not each.framework + each.device):
        those = np.array([bool(part(each)) for each in others])
        assert 0.73 < coverage(-width[those], width[those], measured=measured[those]) < 0.9
    ours = interval_score(-width, width, measured=measured)
    assert ours < 0.95 * interval_score(-constant, constant, measured=measured)


def test_without_anything_to_follow_it_is_a_constant_ratio():
    same = [Exposure(constants_variance=0.0, other_share=0.5)] * 200
    log_ratios = 0.1 * np.random.default_rng(0).standard_normal(200)
    found = fit_spread(same, log_ratios)
    widths = np.array([found.log_half_width(each) for each in same])
    assert np.ptp(widths) == 0
    assert widths[0] == pytest.approx(conformal_quantile(np.abs(log_ratios)), rel=1e-9)


def test_too_few_residuals_are_refused():
    exposures, log_ratios = residuals(count=9)
    with pytest.raises(CalibrationError, match="too few"):
        fit_spread(exposures, log_ratios)


def test_a_spread_is_one_formula_for_numbers_and_arrays():
    exposures, _ = residuals(count=20)
    together = log_spread(stacked(exposures), parameters=PUT_IN)
    alone = [log_spread(each, parameters=PUT_IN) for each in exposures]
    assert together == pytest.approx(alone, rel=1e-12)


def test_an_interval_is_symmetric_as_a_ratio():
    low, high = interval_ends(np.array([2.0, 3.0]), half_width=np.array([0.1, 0.2]))
    assert low * high == pytest.approx([4.0, 9.0])
    assert high / low == pytest.approx(np.exp([0.2, 0.4]))


@pytest.mark.parametrize(
    ("new", "regime"),
    [
        ({}, "interpolated"),
        ({"device": 1.0}, "new_device"),
        ({"framework": 1.0, "operations": 0.2}, "new_framework"),
        ({"framework": 1.0, "operations": 0.8}, "new_operations"),
        ({"unfitted": 1.0, "device": 1.0}, "unfitted"),
        ({"dtype": 1.0}, "interpolated"),
        ({"unfitted": 1.0, "shared_attention": 1.0}, "shared_attention"),
        ({"device": 1.0, "shared_attention": 1.0}, "new_device"),
    ],
)
def test_each_regime_has_its_quantile(new, regime):
    assert regime_of(Exposure(constants_variance=0.01, other_share=0.5, **new)) == regime


def test_what_is_new_never_narrows():
    """Rows of a new framework that happen to be predicted well do not make its intervals narrower."""
    exposures = [
        Exposure(constants_variance=0.0, other_share=0.5, framework=float(new)) for new in (0, 1) for _ in range(50)
    ]
    log_ratios = np.r_[np.linspace(-0.3, 0.3, 50), np.linspace(-0.1, 0.1, 50)]
    found = fit_spread(exposures, log_ratios)
    assert found.log_half_width(exposures[-1]) >= found.log_half_width(exposures[0])


def test_the_file_has_every_way_to_extrapolate():
    assert tuple(Unseen.model_fields) == WAYS_TO_EXTRAPOLATE
