"""Products with the recurrent matrix: which kernel serves how many samples, by numbers small enough to work out."""

import numpy as np
import pytest
import sympy

from perfmodel.cost.gpu import tile_menu
from perfmodel.cost.recurrence import persistent_product_times, recurrent_product_times

# 10 units of 1 GFLOP/s, one tile of 128 x 128, no ramp
PLAIN = {
    "peak_flop_per_s": 10e9,
    "unit_count": 10,
    "bandwidth_bytes_per_s": 1e9,
    "menu": tile_menu(tile_rows=[128], tile_columns=[128], tile_efficiency=[1.0], split_k=[1]),
    "efficiency": 0.5,
    "thin_efficiency": 0.1,
    "latency_s": 1e-6,
    "narrow_latency_s": 1e-3,
    "ramp_steps": 0.0,
    "bandwidth_fraction": 0.5,
    "step_s": 0.25,
}


def times(m, n=1_280, k=100, moved_bytes=1e6, **changes):
    return recurrent_product_times(m=m, n=n, k=k, moved_bytes=moved_bytes, **(PLAIN | changes))


def test_few_samples_pay_for_their_arithmetic_at_a_small_share_of_the_peak():
    # 2 x 8 x 1280 x 100 = 2.048 MFLOP at 1 GFLOP/s, and the time step's own 0.25 s
    assert times(8)[0] == pytest.approx(0.25 + 2.048e-3)
    assert times(16)[0] == pytest.approx(0.25 + 4.096e-3)


def test_a_narrow_tile_sums_alone_and_waits_at_every_step_of_the_sum():
    # ten tiles on ten units: 100 / 0.5 steps of 2 x 10 x 128 x 128 / 10e9 s each and the latency
    tile_s = 2 * 10 / 10e9 * 128 * 128
    assert times(17)[0] == times(32)[0] == pytest.approx(0.25 + 200 * (tile_s + 1e-3))
    assert times(33)[0] == times(128)[0] == pytest.approx(0.25 + 200 * (tile_s + 1e-6))


def test_more_samples_may_take_less_time():
    # what cuDNN 5 and 6 do on Pascal: 64 samples in half the time of 32
    assert times(64)[0] < times(32)[0]
    assert times(64, narrow_latency_s=1e-6)[0] == times(32, narrow_latency_s=1e-6)[0]


def test_weights_come_from_memory_at_every_step():
    assert times(8)[1] == pytest.approx(0.25 + 1e6 / 0.5e9)


def test_rows_are_their_elements_and_symbols_the_numbers_put_in():
    batch = np.array([1.0, 16.0, 17.0, 32.0, 33.0, 200.0])
    together = times(batch)[0]
    np.testing.assert_allclose(together, [float(times(m)[0]) for m in batch], rtol=1e-12)
    symbol = sympy.Symbol("N", positive=True)
    expression = sympy.sympify(times(symbol)[0])
    for m, seconds in zip(batch, together, strict=True):
        assert float(expression.subs(symbol, m).doit()) == pytest.approx(seconds, rel=1e-9)


def persistent(m, **changes):
    numbers = {"peak_flop_per_s": 1e12, "bandwidth_bytes_per_s": 1e11, "efficiency": 0.5, "barrier_s": 4e-6}
    return persistent_product_times(
        m=m, n=1_000, k=1_000, steps=50, moved_bytes=4e6, bandwidth_fraction=0.8, **(numbers | changes)
    )


def test_a_persistent_step_is_its_arithmetic_but_never_less_than_a_barrier():
    assert persistent(1)[0] == pytest.approx(50 * 4e-6)  # 2 us of arithmetic
    assert persistent(4)[0] == pytest.approx(50 * 16e-6)
    assert persistent(4)[1] == pytest.approx(4e6 / 0.8e11)  # the weights once
