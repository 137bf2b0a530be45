"""Hand arithmetic for the time of GPU kernels."""

import numpy as np
import pytest
import sympy

from perfmodel.cost.gpu import matmul_memory_time, stream_time, tiled_matmul_time
from perfmodel.cost.roofline import ridge_point, roofline_time

ONE_TILE = {"tile_rows": [128], "tile_columns": [128], "tile_efficiency": [1.0], "split_k": [1]}
A100 = {"peak_flop_per_s": 19.5e12, "unit_count": 108, "bandwidth_bytes_per_s": 1555e9}


def matmul(**changes):
    return tiled_matmul_time(**({"m": 1024, "n": 1024, "k": 1024} | A100 | ONE_TILE | changes))


def test_wave_quantisation_doubles_the_time_one_column_past_a_full_wave():
    # 2304 x 1536 in 256 x 128 tiles: 9 * 12 = 108 tiles on 108 units; 1537 columns: 117 tiles, two waves
    tile = {"tile_rows": [256], "tile_columns": [128]}
    full = matmul(m=2304, n=1536, k=4096, **tile)
    assert full == pytest.approx(2 * 2304 * 1536 * 4096 / 19.5e12)
    assert matmul(m=2304, n=1537, k=4096, **tile) == pytest.approx(2 * full)


def test_an_idle_unit_is_idle():
    # 8 of 20 units busy with half-filled tiles: 64 * 1000 of 20 * 128 * 128 results, 0.1953 of peak
    seconds = matmul(m=64, n=1000, unit_count=20)
    assert 2 * 64 * 1000 * 1024 / 19.5e12 / seconds == pytest.approx(64 * 1000 / (20 * 128 * 128))


def test_the_best_entry_of_the_menu_is_taken():
    # 64 x 64 fits exactly: one tile on one unit, a quarter of the 128 x 128 tile's work
    both = {
        "tile_rows": [128, 64],
        "tile_columns": [128, 64],
        "tile_efficiency": [1.0, 1.0],
        "split_k": [1, 1],
    }
    assert matmul(m=64, n=64, **both) == pytest.approx(matmul(m=64, n=64) / 4)
    slow = both | {"tile_efficiency": [1.0, 0.2]}
    assert matmul(m=64, n=64, **slow) == pytest.approx(matmul(m=64, n=64))


def test_splitting_the_sum_pays_its_traffic():
    # one tile over 108 units: four parts take a quarter, and 2 * 4 * 128 * 128 * 4 B pass through memory
    whole = matmul(m=128, n=128, k=100_000)
    assert matmul(m=128, n=128, k=100_000, split_k=[4]) == pytest.approx(whole / 4 + 8 * 128 * 128 * 4 / 1555e9)


def test_ramp_and_latency_add_to_each_step():
    # 1024 + 256 steps of 64 tiles on one unit; a latency of one tile's time makes it 65
    plain = matmul(unit_count=1)
    tile_s = 2 * 128 * 128 / 19.5e12
    assert matmul(unit_count=1, ramp_steps=256, latency_s=tile_s) == pytest.approx(plain * 1.25 * 65 / 64)


def test_rows_may_choose_from_different_menus():
    m = np.array([64.0, 64.0])
    menu = {"tile_rows": [128, 64], "tile_columns": [128, 64], "split_k": [1, 1]}
    seconds = matmul(m=m, n=m, tile_efficiency=[[1.0, 1.0], [1.0, 1e-3]], **menu)
    assert seconds[1] == pytest.approx(4 * seconds[0])


def test_configurations_stand_on_the_last_axis():
    rows, batch = np.array([[256.0], [512.0]]), np.array([16.0, 32.0, 64.0])
    seconds = matmul(m=rows, n=batch)
    assert seconds.shape == (2, 3)
    assert seconds[1, 2] == pytest.approx(matmul(m=512, n=64))


def test_symbol_equals_number():
    batch = sympy.Symbol("N", positive=True)
    menu = {
        "tile_rows": [128, 64],
        "tile_columns": [64, 64],
        "tile_efficiency": [1.0, 0.9],
        "split_k": [1, 4],
    }
    expression = matmul(m=49 * batch, n=100, ramp_steps=8.0, **menu)
    assert float(expression.subs(batch, 7).doit()) == pytest.approx(matmul(m=49 * 7, n=100, ramp_steps=8.0, **menu))


def test_stream_time():
    # 8e6 B at half of 320e9 B/s
    plain = {"moved_bytes": 8e6, "bandwidth_bytes_per_s": 320e9, "efficiency": 0.5}
    assert stream_time(**plain) == pytest.approx(5e-5)
    assert stream_time(**plain | {"moved_bytes": 0.0}) == 0.0


def memory_time(n, **changes):
    numbers = {"bandwidth_bytes_per_s": 1e9, "efficiency": 0.8, "skinny_efficiency": 0.25, "m": 4096, "k": 1000}
    numbers |= changes
    moved_bytes = 4 * (numbers["m"] * numbers["k"] + numbers["k"] * n + numbers["m"] * n)
    return float(matmul_memory_time(n=n, moved_bytes=moved_bytes, **numbers))


def test_a_skinny_product_takes_its_own_bytes_at_the_skinny_rate():
    # 4 * (4096 * 1000 + 1000 * 16 + 4096 * 16) B at a quarter of 1e9 B/s
    assert memory_time(16) == pytest.approx(4 * (4096 * 1000 + 1000 * 16 + 4096 * 16) / 0.25e9)


def test_more_columns_never_take_less_memory_time():
    times = [memory_time(n) for n in (1, 16, 31, 32, 33, 34, 48, 64, 65, 128, 1024, 4096, 100_000)]
    assert times == sorted(times)
    # from 32 columns on the 32-column time is a floor, until plain streaming takes longer
    assert memory_time(33) == memory_time(32)
    assert memory_time(100_000) == pytest.approx(4 * (4096 * 1000 + 1000 * 1e5 + 4096 * 1e5) / 0.8e9)


def test_roofline_and_ridge():
    assert roofline_time(compute_s=2.0, memory_s=3.0) == 3.0
    assert ridge_point(peak_flop_per_s=8.873e12, bandwidth_bytes_per_s=320.32e9) == pytest.approx(27.700, rel=1e-4)


@pytest.mark.parametrize(
    ("m", "n", "kept"),
    [
        (64, 4499, 1 / 1.25), (64, 4500, 1 / 1.6), (64, 26_752, 1 / 1.6), (26_752, 64, 1 / 1.25),
        (33, 33, 1 / 1.25), (32, 26_752, 1.0), (26_752, 32, 1.0), (1, 1, 1.0),
    ],
)  # fmt: skip
def test_what_is_left_where_weights_are_read_across(m, n, kept):
    from perfmodel.cost.gpu import transposed_efficiency

    share = transposed_efficiency(m=m, n=n, slowdown=1.25, wide_slowdown=1.6)
    assert float(share) == pytest.approx(kept)
    many = transposed_efficiency(m=np.array([m, m]), n=np.array([n, n]), slowdown=1.25, wide_slowdown=1.6)
    assert many == pytest.approx([kept, kept])
    assert float(transposed_efficiency(m=m, n=n, slowdown=1.0, wide_slowdown=1.0)) == 1.0
