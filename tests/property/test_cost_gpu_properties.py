"""Properties of the GPU's kernel times that hold for any shape and device."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.cost.gpu import TileMenu, stream_time, tile_menu, tiled_matmul_time
from perfmodel.cost.roofline import roofline_time

EXTENT = st.integers(1, 20_000)
MENU = tile_menu(
    tile_rows=[128, 128, 64, 32, 64],
    tile_columns=[128, 64, 64, 32, 64],
    tile_efficiency=[1.0, 0.97, 0.94, 0.85, 0.94],
    split_k=[1, 1, 1, 1, 8],
)


def seconds(m, n, k, *, units=20, peak=8.873e12, efficiency=0.8, **more):
    return float(
        tiled_matmul_time(
            m=m, n=n, k=k, peak_flop_per_s=peak, unit_count=units, bandwidth_bytes_per_s=320e9,
            efficiency=efficiency, menu=MENU, **more,
        )
    )  # fmt: skip


@given(EXTENT, EXTENT, EXTENT, st.integers(1, 200), st.floats(0.1, 1.0))
def test_never_faster_than_the_peak_allows(m, n, k, units, efficiency):
    assert seconds(m, n, k, units=units, efficiency=efficiency) >= 2 * m * n * k / (efficiency * 8.873e12) * (1 - 1e-12)


@given(EXTENT, EXTENT, EXTENT, st.integers(1, 5000), st.sampled_from(["m", "n", "k", "count"]))
def test_more_work_never_takes_less_time(m, n, k, more, which):
    shape = {"m": m, "n": n, "k": k, "count": 1}
    larger = shape | {which: shape[which] + more}
    more = {"ramp_steps": 30.0, "latency_s": 5e-8}
    for shortest_part in (0.0, 16.0):
        assert seconds(**larger, **more, shortest_part=shortest_part) >= seconds(
            **shape, **more, shortest_part=shortest_part
        ) * (1 - 1e-12)


@given(EXTENT, EXTENT, EXTENT, st.floats(1.0, 10.0))
def test_time_is_inverse_to_the_peak_without_splits(m, n, k, factor):
    menu = TileMenu(*(entries[:4] for entries in MENU))
    shape = {"m": m, "n": n, "k": k, "unit_count": 20, "bandwidth_bytes_per_s": 320e9, "menu": menu}
    slow = tiled_matmul_time(peak_flop_per_s=1e12, **shape)
    assert tiled_matmul_time(peak_flop_per_s=factor * 1e12, **shape) * factor == pytest.approx(slow)


@given(st.lists(st.tuples(EXTENT, EXTENT, EXTENT), min_size=1, max_size=8))
def test_an_array_is_its_elements(shapes):
    m, n, k = np.array(shapes, dtype=float).T
    together = tiled_matmul_time(
        m=m,
        n=n,
        k=k,
        peak_flop_per_s=8.873e12,
        unit_count=20,
        bandwidth_bytes_per_s=320e9,
        efficiency=0.8,
        menu=MENU,
    )
    assert together == pytest.approx([seconds(*shape) for shape in shapes])


@given(st.floats(0, 1e12), st.floats(0, 1e12), st.floats(0.05, 1.0))
def test_a_stream_is_monotone(small, extra, efficiency):
    numbers = {"bandwidth_bytes_per_s": 3e11, "efficiency": efficiency}
    times = [stream_time(moved_bytes=moved, **numbers) for moved in (small, small + extra)]
    assert times[0] <= times[1] * (1 + 1e-12)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_kernel_takes_the_longer_of_its_bounds(compute_s, memory_s):
    seconds = roofline_time(compute_s=compute_s, memory_s=memory_s)
    assert seconds in (compute_s, memory_s)
    assert compute_s <= seconds
    assert memory_s <= seconds
