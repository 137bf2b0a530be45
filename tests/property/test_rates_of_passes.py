"""Rates of very many flows, said by the channels that each passes, are those that filling step by step gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.cost.transfer import max_min_rates, rates_of_passes

CAPACITIES = st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=1, max_size=6)


def filled(capacity, passed, weights):
    """Raise all rates together, and stop those over the channel that is full first; channel by channel, in Python."""
    rates = {}
    while len(rates) < len(passed):
        levels = {}
        for channel, most in enumerate(capacity):
            taken = sum(rate * passed[flow].count(channel) for flow, rate in rates.items())
            rising = sum(weights[flow] * over.count(channel) for flow, over in enumerate(passed) if flow not in rates)
            if rising:
                levels[channel] = (most - taken) / rising
        first = min(levels, key=levels.__getitem__)
        stopped = [flow for flow, over in enumerate(passed) if flow not in rates and first in over]
        rates |= {flow: levels[first] * weights[flow] for flow in stopped}
    return [rates[flow] for flow in range(len(passed))]


def rates_of(capacity, passed, weights):
    return rates_of_passes(
        capacity=np.array(capacity),
        flow=np.array([flow for flow, over in enumerate(passed) for _ in over]),
        channel=np.array([channel for over in passed for channel in over]),
        uses=np.ones(sum(map(len, passed))),
        weights=np.array(weights),
    )


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_flows_get_the_rates_of_filling_step_by_step(data):
    capacity = data.draw(CAPACITIES)
    channels = st.lists(st.integers(0, len(capacity) - 1), min_size=1, max_size=3)
    passed = data.draw(st.lists(channels, min_size=1, max_size=12))
    weights = data.draw(st.lists(st.sampled_from([1.0, 3.0]), min_size=len(passed), max_size=len(passed)))
    each = pytest.approx(filled(capacity, passed, weights), rel=1e-9, abs=1e-12)
    uses = [[over.count(channel) for channel in range(len(capacity))] for over in passed]
    assert rates_of(capacity, passed, weights) == each
    assert max_min_rates(capacity=capacity, uses=uses, weights=weights) == each


def test_equal_channels_with_unequal_crowds_are_told_apart():
    assert rates_of([6.0, 6.0], [[0], [0], [0], [1]], [1.0] * 4).tolist() == [2, 2, 2, 6]
