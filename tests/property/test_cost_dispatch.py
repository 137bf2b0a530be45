"""What holds for the exposed dispatch of any kernel, host and exponent."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.cost.roofline import exposed_dispatch_time

SECONDS = st.one_of(st.just(0.0), st.floats(1e-9, 10.0))
EXPONENT = st.one_of(st.just(1.0), st.floats(1.0, 100.0), st.just(math.inf))  # what a framework file may state
ROUNDING = 1e-12


def exposed(busy_s, dispatch_s, overlap_exponent):
    return float(exposed_dispatch_time(busy_s=busy_s, dispatch_s=dispatch_s, overlap_exponent=overlap_exponent))


@given(SECONDS, SECONDS, EXPONENT)
def test_between_what_exceeds_the_kernel_and_the_whole(busy_s, dispatch_s, overlap_exponent):
    seconds = exposed(busy_s, dispatch_s, overlap_exponent)
    assert max(dispatch_s - busy_s, 0.0) <= seconds  # to the last bit: a part of a step is never negative
    assert seconds <= dispatch_s + ROUNDING * (busy_s + dispatch_s)


@given(SECONDS, SECONDS, SECONDS, EXPONENT)
def test_a_slower_host_never_exposes_less(busy_s, dispatch_s, more_s, overlap_exponent):
    slack = ROUNDING * (busy_s + dispatch_s + more_s)
    assert (
        exposed(busy_s, dispatch_s + more_s, overlap_exponent) >= exposed(busy_s, dispatch_s, overlap_exponent) - slack
    )


@given(SECONDS, SECONDS, SECONDS, EXPONENT)
def test_a_longer_kernel_never_exposes_more_but_never_ends_earlier(busy_s, dispatch_s, more_s, overlap_exponent):
    short, long = (exposed(busy, dispatch_s, overlap_exponent) for busy in (busy_s, busy_s + more_s))
    slack = ROUNDING * (busy_s + dispatch_s + more_s)
    assert long <= short + slack
    assert busy_s + more_s + long >= busy_s + short - slack


@given(SECONDS, SECONDS, EXPONENT, EXPONENT)
def test_a_better_overlap_never_exposes_more(busy_s, dispatch_s, first, second):
    worse, better = sorted((first, second))
    slack = ROUNDING * (busy_s + dispatch_s)
    assert exposed(busy_s, dispatch_s, better) <= exposed(busy_s, dispatch_s, worse) + slack


@given(SECONDS, SECONDS)
def test_the_ends_of_the_exponent_are_the_sum_and_the_maximum(busy_s, dispatch_s):
    assert busy_s + exposed(busy_s, dispatch_s, 1) == pytest.approx(busy_s + dispatch_s, rel=ROUNDING)
    longer = max(busy_s, dispatch_s)
    assert busy_s + exposed(busy_s, dispatch_s, math.inf) == pytest.approx(longer, rel=ROUNDING)
    # 2^(1/100) = 1.00696: the largest finite exponent of a file is within 0.7 % of the maximum
    assert longer * (1 - ROUNDING) <= busy_s + exposed(busy_s, dispatch_s, 100) <= longer * 2**0.01 * (1 + ROUNDING)


@given(SECONDS, SECONDS, st.floats(1.0, 100.0), st.floats(1e-6, 1e6))
def test_it_is_a_time_in_any_unit(busy_s, dispatch_s, overlap_exponent, factor):
    scaled = exposed(factor * busy_s, factor * dispatch_s, overlap_exponent)
    slack = ROUNDING * factor * (busy_s + dispatch_s)
    assert scaled == pytest.approx(factor * exposed(busy_s, dispatch_s, overlap_exponent), abs=slack)


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=8), EXPONENT)
def test_an_array_is_its_elements(pairs, overlap_exponent):
    busy, dispatch = np.array(pairs).T
    together = exposed_dispatch_time(busy_s=busy, dispatch_s=dispatch, overlap_exponent=overlap_exponent)
    one_by_one = [exposed(*pair, overlap_exponent) for pair in pairs]
    np.testing.assert_allclose(together, one_by_one, rtol=0, atol=ROUNDING * (busy + dispatch).max())
