"""Intervals cannot be had cheaply: wide ones are not sharp, narrow ones hold too little, and one score knows both."""

import math

import numpy as np
import pytest

from perfmodel.errors import ArgumentError
from perfmodel.validation.scores.metrics import coverage, interval_score, median_ratio


def drawn(count=4000, seed=0):
    """Predictions of 1 s whose measured times scatter by 0.05 or 0.3 in ln, each known beforehand."""
    generator = np.random.default_rng(seed)
    spread = generator.choice([0.05, 0.3], count, p=[0.7, 0.3])
    return spread, np.exp(spread * generator.standard_normal(count))


def ends(half_width):
    return np.exp(-half_width), np.exp(half_width)


def test_by_hand():
    assert coverage([1, 1, 1, 1], [2, 2, 2, 2], measured=[1, 2, 0.9, 2.1]) == 0.5
    assert median_ratio([1, 1, 1], [1.1, 1.5, 9]) == 1.5
    assert interval_score([1.0], [3.0], measured=[2.0]) == 2.0  # its width
    assert interval_score([1.0], [3.0], measured=[3.5]) == pytest.approx(2.0 + 10 * 0.5)  # 2 / 0.2 for each second
    assert interval_score([1.0], [3.0], measured=[0.5], level=0.5) == pytest.approx(2.0 + 4 * 0.5)


def test_a_wide_constant_interval_is_not_sharp_and_a_narrow_one_holds_too_little():
    spread, measured = drawn()
    fair = ends(1.2816 * spread)
    wide, narrow = (ends(np.full_like(spread, width)) for width in (math.log(3), math.log(1.05)))
    assert coverage(*fair, measured=measured) == pytest.approx(0.8, abs=0.02)
    assert median_ratio(*fair) < 1.5
    assert coverage(*wide, measured=measured) > 0.9
    assert median_ratio(*wide) == pytest.approx(9)
    assert coverage(*narrow, measured=measured) < 0.7


def test_the_score_prefers_the_true_spread_to_any_constant_one():
    spread, measured = drawn()
    truth = interval_score(*np.log(ends(1.2816 * spread)), measured=np.log(measured))
    widths = np.linspace(0.05, 1.0, 60)
    constants = [
        interval_score(np.full_like(spread, -w), np.full_like(spread, w), measured=np.log(measured)) for w in widths
    ]
    assert truth < 0.8 * min(constants)
    scaled = [
        interval_score(*np.log(ends(factor * spread)), measured=np.log(measured)) for factor in (0.8, 1.0, 1.6, 2.0)
    ]
    assert truth < min(scaled)


@pytest.mark.parametrize(
    ("low", "high", "measured"),
    [([2.0], [1.0], [1.5]), ([1.0], [math.nan], [1.5]), ([1.0, 1.0], [2.0], [1.5]), ([], [], [])],
)
def test_what_is_no_interval_is_refused(low, high, measured):
    for score in (coverage, interval_score):
        with pytest.raises(ArgumentError):
            score(low, high, measured=measured)
