"""What issuing kernels adds to a step, by Pythagorean triples and at the ends of the exponent."""

import math

import numpy as np
import pytest
import sympy

from perfmodel.cost.roofline import exposed_dispatch_time


def exposed(busy_s, dispatch_s, overlap_exponent):
    return exposed_dispatch_time(busy_s=busy_s, dispatch_s=dispatch_s, overlap_exponent=overlap_exponent)


@pytest.mark.parametrize(
    ("busy_s", "dispatch_s", "overlap_exponent", "expected"),
    [
        (3.0, 4.0, 1, 4.0),  # one after the other: all of it
        (3.0, 4.0, 2, 2.0),  # sqrt(9 + 16) = 5, of which 3 are the kernel's
        (240.0, 70.0, 2, 10.0),  # sqrt(57600 + 4900) = 250
        (3.0, 4.0, math.inf, 1.0),  # the longer one is 4
        (4.0, 3.0, math.inf, 0.0),  # hidden whole
        (1.0, 1.0, 1.5, 2 ** (2 / 3) - 1),  # (1 + 1)^(2/3) = 1.587
        (4.0, 9.0, 1.5, 35 ** (2 / 3) - 4),  # 8 + 27 = 35
    ],
)
def test_a_launch_costs_the_smooth_maximum_of_its_kernel_and_its_dispatch(
    busy_s, dispatch_s, overlap_exponent, expected
):
    assert exposed(busy_s, dispatch_s, overlap_exponent) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("overlap_exponent", [1, 1.5, 60, 100, math.inf])
def test_without_dispatch_nothing_is_exposed(overlap_exponent):
    assert exposed(3e-6, 0.0, overlap_exponent) == 0
    assert exposed(0.0, 0.0, overlap_exponent) == 0
    busy = np.array([0.0, 3e-6])
    np.testing.assert_array_equal(exposed(busy, np.zeros(2), overlap_exponent), [0, 0])
    # one configuration of several may have none, and its kernel may be empty too
    np.testing.assert_array_equal(exposed(busy, np.array([0.0, 0.0, 7e-6])[:2], overlap_exponent), [0, 0])
    assert exposed(np.array([0.0, 0.0]), np.array([0.0, 7e-6]), overlap_exponent) == pytest.approx([0, 7e-6])


@pytest.mark.parametrize("overlap_exponent", [1, 1.5, 60, 100, math.inf])
def test_without_a_kernel_all_of_the_dispatch_is_exposed(overlap_exponent):
    assert exposed(0.0, 7e-6, overlap_exponent) == pytest.approx(7e-6)


@pytest.mark.parametrize("overlap_exponent", [55, 60, 100])
def test_a_high_exponent_is_a_sharp_maximum_of_microseconds(overlap_exponent):
    # (3e-6)^60 = 4e-332 is no double any more: without a common scale the sum is 0, and less than the kernel
    assert exposed(3e-6, 4e-6, overlap_exponent) == pytest.approx(1e-6, rel=1e-6)
    assert exposed(4e-6, 3e-6, overlap_exponent) == pytest.approx(0, abs=1e-13)


def test_an_array_is_its_elements():
    busy, dispatch = np.array([1e-6, 5e-6, 1e-3, 0.0]), np.array([8e-6, 5e-6, 1e-6, 3e-6])
    for overlap_exponent in (1, 1.5, 2, 100, math.inf):
        one_by_one = [exposed(b, d, overlap_exponent) for b, d in zip(busy, dispatch, strict=True)]
        np.testing.assert_allclose(exposed(busy, dispatch, overlap_exponent), one_by_one, rtol=1e-12)
    # rows by configurations, as a sweep over hosts has them
    assert exposed(busy[:, None], np.array([1e-6, 9e-6]), 1.5).shape == (4, 2)


@pytest.mark.parametrize("overlap_exponent", [1, 1.5, 2, math.inf])
def test_a_symbol_becomes_the_number_that_is_put_in(overlap_exponent):
    b, d = sympy.symbols("b d", positive=True)
    for busy_s, dispatch_s in ((3e-6, 4e-6), (5e-6, 1e-6), (1e-4, 8e-6)):
        number = pytest.approx(float(exposed(busy_s, dispatch_s, overlap_exponent)), rel=1e-9, abs=1e-20)
        assert float(sympy.sympify(exposed(b, dispatch_s, overlap_exponent)).subs(b, busy_s)) == number
        assert float(sympy.sympify(exposed(busy_s, d, overlap_exponent)).subs(d, dispatch_s)) == number
        of_an_array = exposed(np.array([b, 2 * b], dtype=object), dispatch_s, overlap_exponent)
        assert float(sympy.sympify(of_an_array[0]).subs(b, busy_s)) == number


def test_a_symbol_goes_through_no_power_where_nothing_is_dispatched():
    assert exposed(sympy.Symbol("b", positive=True), 0.0, 1.5) == 0
