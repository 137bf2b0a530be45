"""CPU cost formulas: hand arithmetic, limits, and the same value for float, array and symbol."""

import math

import numpy as np
import pytest
import sympy

from perfmodel.cost import cpu, threads

MATMUL = {
    "m": 64,
    "n": 26_752,
    "k": 2_048,
    "peak_flop_per_s_per_core": 60.8e9,
    "efficiency": 0.92,
    "speedup": 1.0,
    "core_bandwidth_bytes_per_s": 12e9,
    "total_bandwidth_bytes_per_s": 41e9,
    "packing_efficiency": 0.58,
    "cache_bytes": 10e6,
    "core_copy_bytes_per_s": 45e9,
}


def test_wide_product_pays_for_arithmetic_and_for_packing():
    # 2 * 64 * 26752 * 2048 = 7.0129 GFLOP at 55.936 GFLOP/s = 125.37 ms.
    arithmetic_s = 2 * 64 * 26_752 * 2_048 / (60.8e9 * 0.92)
    # 4 B * (64*2048 + 2048*26752 + 2*64*26752) = 233.37 MB copied at 45 GB/s, all but 10 of 226.5 MB of them after
    # waiting for memory at 6.96 GB/s.
    moved = 4 * (64 * 2_048 + 2_048 * 26_752 + 2 * 64 * 26_752)
    footprint = 4 * (64 * 2_048 + 2_048 * 26_752 + 64 * 26_752)
    miss = 1 - 10e6 / footprint
    packing_s = moved * (miss / (0.58 * 12e9) + 1 / 45e9)
    assert float(cpu.cpu_matmul_time(**MATMUL)) == pytest.approx(arithmetic_s + packing_s, rel=1e-12)


def test_square_product_is_bound_by_arithmetic():
    side = MATMUL | {"m": 4_096, "n": 4_096, "k": 4_096}
    assert float(cpu.cpu_matmul_time(**side)) == pytest.approx(2 * 4_096**3 / (60.8e9 * 0.92), rel=0.02)


def test_one_small_product_cannot_use_more_threads_than_it_has_tiles():
    # 8 x 4 is one register tile of 8 x 4; 16 x 12 are six
    assert float(cpu.register_tiles(m=8, n=4, tile_m=8, tile_n=4)) == 1
    assert float(cpu.register_tiles(m=16, n=12, tile_m=8, tile_n=4)) == 6
    assert float(threads.usable_threads(threads=16, pieces=6)) == 6


def test_independent_products_share_the_threads():
    one = MATMUL | {"m": 8, "n": 4, "k": 512}
    sixteen = one | {"count": 16, "speedup": 16.0}
    arithmetic_s = 2 * 8 * 4 * 512 / (60.8e9 * 0.92)
    assert float(cpu.cpu_matmul_time(**sixteen)) < 2 * float(cpu.cpu_matmul_time(**one))
    assert float(cpu.cpu_matmul_time(**sixteen)) >= arithmetic_s


def test_stream_is_bound_by_one_core_then_by_the_socket():
    def seconds(speedup):
        return float(
            cpu.cpu_stream_time(
                moved_bytes=12e9,
                speedup=speedup,
                core_bandwidth_bytes_per_s=12e9,
                total_bandwidth_bytes_per_s=40e9,
            )
        )

    assert [seconds(1), seconds(2), seconds(4), seconds(8)] == pytest.approx([1.0, 0.5, 0.3, 0.3])


def test_a_pass_over_what_the_cache_holds_does_not_wait_for_memory():
    def seconds(moved):
        return float(
            cpu.cpu_stream_time(
                moved_bytes=moved,
                speedup=1.0,
                core_bandwidth_bytes_per_s=10e9,
                total_bandwidth_bytes_per_s=40e9,
                cache_bytes=10e6,
                core_cache_bandwidth_bytes_per_s=30e9,
            )
        )

    # 9 MB at 30 GB/s; of 20 MB half at 30 and half at 10 GB/s: 333 and 1000 us
    assert [seconds(9e6), seconds(20e6)] == pytest.approx([300e-6, 1333.3e-6], rel=1e-4)


def test_packing_cannot_take_more_of_the_socket_than_cores_ask_for():
    # A core that packs at a quarter of its streaming rate leaves a socket of three such cores' bandwidth unsaturated:
    # eight of them are eight times as fast as one, not three.
    slow = MATMUL | {"packing_efficiency": 0.25, "efficiency": 1e9, "core_copy_bytes_per_s": 1e18}
    gain = float(cpu.cpu_matmul_time(**slow) / cpu.cpu_matmul_time(**slow | {"speedup": 8.0}))
    assert gain == pytest.approx(8.0)


def test_a_narrow_product_falls_back_to_one_thread():
    # 64 rows are enough for 16 threads at 4 rows each and not for 32; products that a framework deals out stay dealt
    both = np.array([16, 32])
    rule = {"n": 2_048, "smallest_side_per_thread": 4.0}
    assert threads.serial_if_narrow(threads=both, m=64, **rule).tolist() == [16, 1]
    assert float(threads.serial_if_narrow(threads=32, m=64, count=16, **rule)) == 32
    without = rule | {"smallest_side_per_thread": 0.0}
    assert float(threads.serial_if_narrow(threads=32, m=1, **without)) == 32


def test_scalar_instructions_bound_a_sigmoid():
    # 1e6 sigmoids x 15 cycles / 3 GHz = 5 ms; their 8 MB take 0.67 ms.
    scalar_s = cpu.cpu_scalar_time(flop_count=1e6, cycles_per_flop=15, clock_hz=3e9)
    total_s = cpu.cpu_stream_time(
        moved_bytes=8e6,
        scalar_s=scalar_s,
        speedup=1,
        core_bandwidth_bytes_per_s=12e9,
        total_bandwidth_bytes_per_s=40e9,
    )
    assert float(total_s) == pytest.approx(5e-3)


def test_threads_on_cores_follow_amdahl():
    # p = 0.75126 gives S(2) = 1 / (0.24874 + 0.37563) = 1.6016 and S(4) = 2.2907.
    speedups = threads.thread_speedup(threads=np.array([1, 2, 4]), physical_cores=4, serial_fraction=0.24874)
    assert speedups == pytest.approx([1.0, 1.6016, 2.2907], rel=1e-4)


def test_a_serial_pass_gains_nothing():
    assert float(threads.thread_speedup(threads=16, physical_cores=16, serial_fraction=1.0)) == pytest.approx(1.0)


def test_policies_apply_only_beyond_the_cores():
    policy = {"physical_cores": 4, "smt_gain": 1.2, "oversubscription_penalty": 3.0}
    assert float(threads.thread_speedup(threads=4, **policy)) == 4.0
    assert float(threads.thread_speedup(threads=8, **policy)) == pytest.approx(4.0 * 1.2 / 3.0)


def test_clock_follows_the_turbo_table():
    table = (3.8e9, 3.8e9, 3.7e9, 3.6e9)
    assert threads.effective_clock(
        active_cores=np.array([1, 2, 2.5, 3, 4, 9]), clock_hz_by_active_cores=table
    ) == pytest.approx([3.8e9, 3.8e9, 3.75e9, 3.7e9, 3.6e9, 3.6e9])


def _everything(threads_used, columns):
    """One number out of every formula of the two modules."""
    speedup = threads.thread_speedup(
        threads=threads_used,
        physical_cores=8,
        serial_fraction=0.05,
        smt_gain=1.1,
        oversubscription_penalty=2.0,
    )
    clock = threads.effective_clock(active_cores=threads_used, clock_hz_by_active_cores=(3e9, 2.8e9, 2.5e9))
    product = cpu.cpu_matmul_time(**MATMUL | {"n": columns, "speedup": speedup, "peak_flop_per_s_per_core": 16 * clock})
    bandwidth = cpu.numa_bandwidth(local_bytes_per_s=40e9, remote_bytes_per_s=20e9, remote_share=0.5)
    scalar = cpu.cpu_scalar_time(
        flop_count=columns, cycles_per_flop=15, moved_bytes=columns, clock_hz=clock, speedup=speedup
    )
    stream = cpu.cpu_stream_time(
        moved_bytes=8 * columns,
        scalar_s=scalar,
        speedup=speedup,
        core_bandwidth_bytes_per_s=12e9,
        total_bandwidth_bytes_per_s=bandwidth,
    )
    fork = threads.fork_join_time(threads=threads_used, barrier_s=1e-6)
    used = threads.serial_below(threads=threads_used, work=columns, smallest_parallel_work=500)
    return product + stream + fork + 1e-6 * used


def test_float_array_and_symbol_agree():
    cases = [(1, 100), (3, 4_097), (8, 26_752), (16, 512)]
    t, n = sympy.symbols("t n", positive=True)
    expression = _everything(t, n)
    assert expression.free_symbols == {t, n}
    floats = [float(_everything(float(a), float(b))) for a, b in cases]
    arrays = _everything(np.array([a for a, _ in cases], float), np.array([b for _, b in cases], float))
    symbols = [float(expression.subs({t: a, n: b}).evalf()) for a, b in cases]
    assert arrays == pytest.approx(floats, rel=1e-12)
    assert symbols == pytest.approx(floats, rel=1e-9)
    objects = _everything(np.array([t, sympy.Integer(8)], dtype=object), np.array([4_097.0, 512.0]))
    assert math.isclose(float(objects[0].subs({t: 3})), floats[1], rel_tol=1e-9)


def test_no_factor_takes_a_product_beyond_the_peak():
    shares = np.linspace(0.1, 3.0, 30)
    capped = cpu.capped_efficiency(efficiency=shares)
    assert (np.diff(capped) > 0).all()
    assert (capped < 1).all()
    assert cpu.capped_efficiency(efficiency=0.6) == pytest.approx(0.6, rel=1e-3)
    assert cpu.capped_efficiency(efficiency=1.0) == pytest.approx(2 ** (-1 / 16))


def test_subnormal_products_cost_the_more_the_longer_the_assist_and_the_fewer_the_threads():
    times = {"product_count": 1e6, "assist_cycles": 150.0, "clock_hz": 3e9}
    assert cpu.subnormal_assist_time(**times) == pytest.approx(0.05)
    assert cpu.subnormal_assist_time(**times, speedup=4.0) == pytest.approx(0.0125)
    assert cpu.subnormal_assist_time(**{**times, "product_count": 0.0}) == 0.0
