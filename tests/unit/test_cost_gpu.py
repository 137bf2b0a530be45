"""Hand arithmetic for the time of GPU kernels."""

import numpy as np
import pytest
import sympy

from perfmodel.cost.gpu import (
    matmul_memory_time,
    stream_time,
    strided_time,
    tile_menu,
    tiled_matmul_time,
    unaligned_efficiency,
    with_strided_loads,
)
from perfmodel.cost.roofline import ridge_point, roofline_time

ONE_TILE = {"tile_rows": [128], "tile_columns": [128], "tile_efficiency": [1.0], "split_k": [1]}
A100 = {"peak_flop_per_s": 19.5e12, "unit_count": 108, "bandwidth_bytes_per_s": 1555e9}


def matmul(**changes):
    menu = tile_menu(**{name: changes.pop(name, entries) for name, entries in ONE_TILE.items()})
    return tiled_matmul_time(menu=menu, **({"m": 1024, "n": 1024, "k": 1024} | A100 | changes))


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


STRIDED = {"unit_count": 10, "bandwidth_bytes_per_s": 1e9, "efficiency": 0.1, "l2_bytes": 4e6}


def strided(m, n, k, **changes):
    return float(strided_time(m=m, n=n, k=k, **STRIDED | changes))


def test_each_panel_of_samples_passes_over_what_the_cache_does_not_hold():
    # 2000 x 1000 weights are 8 MB, 4 MB of them cached; 1000 samples are 8 panels; a tenth of 1e9 B/s
    assert strided(1000, 2000, 1000) == pytest.approx(8 * 4e6 / 1e8)
    assert strided(1000, 1000, 1000) == 0.0
    assert strided(1000, 2000, 1000, count=3) == pytest.approx(3 * 8 * 4e6 / 1e8)
    assert strided(1000, 2000, 1000, element_bytes=2) == 0.0


def test_tiles_that_run_together_share_a_pass():
    # 16 panels of features; 40 tiles together cover them twice, 31 once: 8 panels of samples in 4 passes, or in 8
    assert strided(1000, 2000, 1000, resident_tiles=4) == pytest.approx(4 * 4e6 / 1e8)
    assert strided(1000, 2000, 1000, resident_tiles=3.1) == pytest.approx(8 * 4e6 / 1e8)


def test_tiles_that_run_together_may_differ_between_configurations():
    tiles = np.array([0.0, 3.1, 4.0])
    seconds = strided_time(m=1000, n=2000, k=1000, **STRIDED | {"resident_tiles": tiles})
    assert seconds.tolist() == [strided(1000, 2000, 1000, resident_tiles=each) for each in tiles]


def test_a_menu_of_tiles_and_splits_apart_is_that_of_their_products():
    tiles, splits = np.array([[128, 128, 1.0], [64, 64, 0.9], [32, 32, 0.7]]).T, np.array([1.0, 4.0, 16.0])
    m, k = np.array([33.0, 200.0, 5000.0]), np.array([20_000.0, 4096.0, 128.0])
    names = ("tile_rows", "tile_columns", "tile_efficiency")
    flat = matmul(m=m, k=k, split_k=np.tile(splits, 3), **dict(zip(names, tiles.repeat(3, axis=1), strict=True)))
    apart = dict(zip(names, tiles[:, :, None, None], strict=True)) | {"split_k": splits[None, :, None]}
    np.testing.assert_allclose(matmul(m=m, k=k, **apart), flat, rtol=1e-15)


def test_rows_of_whole_pages_are_read_faster():
    # 1024 elements of 4 B are a page: 2000 x 1024 x 4 = 8.192e6 B, less 4e6
    assert strided(1000, 2000, 1024, aligned_share=0.5) == pytest.approx(0.5 * 8 * 4.192e6 / 1e8)
    assert strided(1000, 2000, 1025, aligned_share=0.5) == pytest.approx(8 * 4.2e6 / 1e8)


def test_few_samples_take_a_kernel_that_does_not_mind():
    assert strided(32, 26_752, 2048) == 0.0
    assert strided(33, 26_752, 2048) > 0.0


def test_strided_loads_of_arrays_and_symbols_equal_those_of_numbers():
    samples = np.array([32.0, 64.0, 1000.0])
    times = strided_time(m=samples, n=2000, k=1000, resident_tiles=4, **STRIDED)
    assert times == pytest.approx([strided(m, 2000, 1000, resident_tiles=4) for m in samples])
    batch = sympy.Symbol("N", positive=True)
    expression = strided_time(m=batch, n=2000, k=1000, resident_tiles=4, **STRIDED)
    assert float(expression.subs(batch, 1000).doit()) == pytest.approx(times[2])


def test_arithmetic_and_strided_loads_hide_each_other_in_part():
    assert with_strided_loads(compute_s=2.0, strided_s=0.0) == pytest.approx(2.0)
    assert with_strided_loads(compute_s=3.0, strided_s=4.0) == pytest.approx(91 ** (1 / 3))


@pytest.mark.parametrize(
    ("n", "k", "share"),
    [(4096, 4096, 1.0), (50_257, 768, 0.5), (768, 50_257, 0.5), (8, 8, 1.0), (12, 8, 0.5)],
)
def test_rows_that_are_no_multiple_of_16_bytes(n, k, share):
    assert float(unaligned_efficiency(n=n, k=k, share=0.5, element_bytes=2)) == share


def test_a_sum_is_split_only_into_parts_far_longer_than_the_result():
    menu = {"tile_rows": [128, 128], "tile_columns": [128, 128], "tile_efficiency": [1.0, 1.0], "split_k": [1, 16]}
    plain, split = (
        {k: float(matmul(m=128, n=128, k=k, **changes)) for k in (2048, 4096, 65_536)}
        for changes in ({}, menu | {"shortest_part": 16.0})
    )
    # parts of at least 16 * 128 = 2048 steps: one of 2048, two of 4096, sixteen of 65536
    traffic_s = 2 * 16 * 128 * 128 * 4 / 1555e9
    assert split[2048] == pytest.approx(plain[2048])
    assert split[4096] == pytest.approx(plain[4096] / 2 + traffic_s)
    assert split[65_536] == pytest.approx(plain[65_536] / 16 + traffic_s)
