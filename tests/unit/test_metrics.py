"""Metrics against hand arithmetic."""

import math

import numpy as np
import pytest

from perfmodel.errors import ArgumentError
from perfmodel.validation.scores import metrics

PREDICTED = [1.1, 0.5, 2.0, 1.0]
MEASURED = [1.0, 1.0, 1.0, 1.0]
# absolute percentage errors: 10, 50, 100, 0


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (metrics.mape, 40.0),  # (10 + 50 + 100 + 0) / 4
        (metrics.median_ape, 30.0),  # between 10 and 50
        (metrics.p90_ape, 85.0),  # sorted 0, 10, 50, 100; place 0.9 x 3 = 2.7: 50 + 0.7 x 50
        (metrics.mean_abs_log_ratio, (math.log(1.1) + 2 * math.log(2)) / 4),
        (metrics.typical_factor_percent, 100 * ((1.1 * 2 * 2) ** 0.25 - 1)),
        (metrics.geometric_mean_ratio, (1.1 * 0.5 * 2.0 * 1.0) ** 0.25),
    ],
)
def test_metrics_by_hand(metric, expected):
    assert metric(PREDICTED, measured=MEASURED) == pytest.approx(expected, rel=1e-12)


def test_share_within_counts_the_edge():
    assert metrics.share_within([1.25, 1.5], measured=[1.0, 1.0], percent=25) == 0.5


def test_the_log_ratio_is_symmetric_and_mape_is_not():
    high, low = {"predicted": [2.0], "measured": [1.0]}, {"predicted": [1.0], "measured": [2.0]}
    assert metrics.mean_abs_log_ratio(**high) == metrics.mean_abs_log_ratio(**low)
    assert metrics.mape(**high) == 2 * metrics.mape(**low)


def test_pair_order_compares_within_groups_only():
    # group a: 1 < 5 is right; group b: 3 > 1 predicted as 1 < 3: wrong; nothing is compared across groups
    share, pairs = metrics.pair_order([1.0, 2.0, 1.0, 3.0], measured=[1.0, 5.0, 3.0, 1.0], groups=["a", "a", "b", "b"])
    assert (share, pairs) == (0.5, 2)


def test_pair_order_leaves_out_measured_ties_and_halves_predicted_ones():
    # pairs: (1, 2) measured equal: left out; (1, 3) right; (2, 3) predicted equal: half
    share, pairs = metrics.pair_order([1.0, 2.0, 2.0], measured=[1.0, 1.0, 4.0], groups=["a"] * 3)
    assert (share, pairs) == (0.75, 2)


def test_pair_order_without_a_pair_is_nan():
    share, pairs = metrics.pair_order([1.0, 2.0], measured=[1.0, 2.0], groups=["a", "b"])
    assert math.isnan(share)
    assert pairs == 0


def test_bootstrap_draws_whole_rows():
    # Two rows of two equal cells: a resampled table has 0 or 4 wrong cells, or 2 of 4, never 1 or 3.
    seen = set()

    def recorded(predicted, *, measured):
        error = metrics.mape(predicted, measured=measured)
        seen.add(round(error, 6))
        return error

    interval = metrics.bootstrap_interval(recorded, [1.0, 1.0, 1.1, 1.1], measured=[1.0] * 4, rows=["a", "a", "b", "b"])
    assert interval == pytest.approx((0.0, 10.0))
    assert seen == {0.0, 5.0, 10.0}


def test_bootstrap_is_reproducible_and_the_seed_matters():
    generator = np.random.default_rng(1)
    predicted = generator.uniform(0.5, 2.0, 30)
    arguments = {"measured": np.ones(30), "rows": list(range(30))}
    first = metrics.bootstrap_interval(metrics.mape, predicted, **arguments)
    assert first == metrics.bootstrap_interval(metrics.mape, predicted, **arguments)
    assert first != metrics.bootstrap_interval(metrics.mape, predicted, **arguments, seed=1)
    assert first[0] < metrics.mape(predicted, measured=np.ones(30)) < first[1]


@pytest.mark.parametrize(
    ("predicted", "measured", "words"),
    [
        ([1.0], [1.0, 2.0], r"\(1,\) and \(2,\)"),
        ([], [], "at least one value"),
        ([1.0, np.nan], [1.0, 1.0], r"predicted\[1\]"),
        ([1.0, 1.0], [0.0, 1.0], r"measured\[0\]"),
        ([-1.0], [1.0], "positive finite"),
    ],
)
def test_bad_input_is_refused(predicted, measured, words):
    with pytest.raises(ArgumentError, match=words):
        metrics.mape(predicted, measured=measured)


def test_labels_must_match_the_rows():
    with pytest.raises(ArgumentError, match="2 rows"):
        metrics.pair_order([1.0, 2.0], measured=[1.0, 2.0], groups=["a"])
