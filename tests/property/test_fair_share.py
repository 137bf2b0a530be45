"""Max-min fair rates: what makes them the only ones, on random flows and channels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from perfmodel.cost.transfer import max_min_rates
from perfmodel.errors import ArgumentError

TOLERANCE = 1e-9


@st.composite
def shares(draw, uses_of=(0, 1)):
    """Capacities over six decades, who uses what (nobody uses nothing), and weights."""
    flow_count, channel_count = draw(st.integers(1, 12)), draw(st.integers(1, 8))
    positive = st.floats(1e-3, 1e3)
    capacity = draw(arrays(float, channel_count, elements=positive))
    uses = draw(arrays(float, (flow_count, channel_count), elements=st.sampled_from(uses_of)))
    own = draw(arrays(int, flow_count, elements=st.integers(0, channel_count - 1)))
    uses[np.arange(flow_count), own] = np.maximum(uses[np.arange(flow_count), own], 1)
    return capacity, uses, draw(arrays(float, flow_count, elements=st.floats(0.1, 10)))


@given(shares(uses_of=(0, 1, 2, 5)), st.booleans())
def test_rates_are_feasible_and_each_flow_has_a_full_channel_where_none_has_more(share, weighted):
    capacity, uses, weights = share
    rates = max_min_rates(capacity=capacity, uses=uses, weights=weights if weighted else None)
    levels = rates / weights if weighted else rates
    load = rates @ uses
    assert (rates > 0).all()
    assert (load <= capacity * (1 + TOLERANCE)).all()
    is_full = load >= capacity * (1 - TOLERANCE)
    for flow in range(len(rates)):
        over = np.flatnonzero((uses[flow] > 0) & is_full)
        assert any(levels[flow] >= levels[uses[:, channel] > 0].max() * (1 - TOLERANCE) for channel in over)


@given(shares(), st.randoms(use_true_random=False))
def test_the_order_of_flows_and_channels_does_not_matter(share, random):
    capacity, uses, weights = share
    flows, channels = list(range(len(uses))), list(range(len(capacity)))
    random.shuffle(flows)
    random.shuffle(channels)
    rates = max_min_rates(capacity=capacity, uses=uses, weights=weights)
    shuffled = max_min_rates(capacity=capacity[channels], uses=uses[flows][:, channels], weights=weights[flows])
    np.testing.assert_allclose(shuffled, rates[flows], rtol=TOLERANCE)


@given(shares(), st.floats(1e-3, 1e3))
def test_rates_scale_with_capacities_and_not_with_weights(share, factor):
    capacity, uses, weights = share
    rates = max_min_rates(capacity=capacity, uses=uses, weights=weights)
    np.testing.assert_allclose(
        max_min_rates(capacity=factor * capacity, uses=uses, weights=weights), factor * rates, rtol=TOLERANCE
    )
    np.testing.assert_allclose(
        max_min_rates(capacity=capacity, uses=uses, weights=factor * weights), rates, rtol=TOLERANCE
    )


@given(shares(), st.lists(st.integers(1, 4), min_size=12, max_size=12))
def test_a_row_of_several_uses_stands_for_as_many_equal_flows(share, counts):
    capacity, uses, _ = share
    counts = np.array(counts[: len(uses)])
    as_rows = max_min_rates(capacity=capacity, uses=uses * counts[:, None])
    each = max_min_rates(capacity=capacity, uses=np.repeat(uses, counts, axis=0))
    np.testing.assert_allclose(each, np.repeat(as_rows, counts), rtol=TOLERANCE)


def test_by_hand():
    # Bertsekas and Gallager's kind of example: two links of 1, the long flow shares each; then a link of 3 has 2 left
    rates = max_min_rates(capacity=[1.0, 1.0, 3.0], uses=[[1, 1, 0], [1, 0, 0], [0, 1, 1], [0, 0, 1]])
    np.testing.assert_allclose(rates, [0.5, 0.5, 0.5, 2.5])
    np.testing.assert_allclose(max_min_rates(capacity=[12.0], uses=np.ones((2, 1)), weights=[1, 3]), [3.0, 9.0])
    assert max_min_rates(capacity=[], uses=np.zeros((0, 0))).shape == (0,)


def test_sixteen_devices_on_four_roots_of_one_fabric():
    # 16 device links of 12, roots of 24, a fabric of 60: roots would leave 6 each, the fabric leaves 3.75
    uses = np.hstack([np.eye(16), np.repeat(np.eye(4), 4, axis=0), np.ones((16, 1))])
    capacity = np.concatenate([np.full(16, 12.0), np.full(4, 24.0), [60.0]])
    np.testing.assert_array_equal(max_min_rates(capacity=capacity, uses=uses), 3.75)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"capacity": [0.0], "uses": [[1]]}, r"capacity must.*\(got 0.0"),
        ({"capacity": [-1.0], "uses": [[1]]}, r"capacity must.*\(got -1.0"),
        ({"capacity": [float("nan")], "uses": [[1]]}, r"capacity must.*\(got nan"),
        ({"capacity": [float("inf")], "uses": [[1]]}, r"capacity must.*\(got inf"),
        ({"capacity": [1.0], "uses": [[-1]]}, r"uses must.*\(got -1.0"),
        ({"capacity": [1.0, 1.0], "uses": [[1, 0], [0, 0]]}, "flow 1 without a channel"),
        ({"capacity": [1.0, 1.0], "uses": [[1], [1]]}, "one column for each of 2 channels"),
        ({"capacity": [1.0], "uses": [[1]], "weights": [1.0, 2.0]}, "weights"),
        ({"capacity": [1.0], "uses": [[1]], "weights": [0.0]}, r"weights must.*\(got 0.0"),
    ],
)
def test_what_has_no_fair_rates_is_refused(arguments, named):
    with pytest.raises(ArgumentError, match=named):
        max_min_rates(**arguments)
