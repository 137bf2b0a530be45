"""Rates found once for flows that are alike equal those found for each flow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.cost.alike_flows import alike_rates
from perfmodel.cost.transfer import max_min_rates

CAPACITIES = st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_alike_flows_get_the_rates_that_each_gets_by_itself(data):
    capacity = data.draw(CAPACITIES)
    channels = st.lists(st.integers(0, len(capacity) - 1), min_size=1, max_size=3)
    passed = data.draw(st.lists(channels, min_size=1, max_size=12))
    weights = data.draw(st.lists(st.sampled_from([1.0, 3.0]), min_size=len(passed), max_size=len(passed)))
    uses = np.zeros((len(passed), len(capacity)))
    for flow, channel in ((flow, channel) for flow, over in enumerate(passed) for channel in over):
        uses[flow, channel] += 1
    each = max_min_rates(capacity=capacity, uses=uses, weights=weights)
    assert alike_rates(capacity=capacity, passed=passed, weights=weights) == pytest.approx(each, rel=1e-9)


def test_equal_channels_with_unequal_crowds_are_told_apart():
    assert alike_rates(capacity=[6.0, 6.0], passed=[[0], [0], [0], [1]]).tolist() == [2, 2, 2, 6]
