"""CPU cost formulas for any input: more work never takes less time, more threads on cores never more."""

from hypothesis import given
from hypothesis import strategies as st

from perfmodel.cost.cpu import cpu_matmul_time, cpu_stream_time
from perfmodel.cost.threads import effective_clock, thread_speedup

extent = st.integers(min_value=1, max_value=40_000)
speedup = st.floats(min_value=1, max_value=64)
fraction = st.floats(min_value=0, max_value=1)


def _seconds(m, n, k, count=1, gain=1.0):
    return float(
        cpu_matmul_time(
            m=m,
            n=n,
            k=k,
            count=count,
            peak_flop_per_s_per_core=60e9,
            efficiency=0.9,
            speedup=gain,
            core_bandwidth_bytes_per_s=12e9,
            total_bandwidth_bytes_per_s=40e9,
            packing_efficiency=0.6,
            cache_bytes=10e6,
            core_copy_bytes_per_s=45e9,
        )
    )


@given(extent, extent, extent, extent, speedup)
def test_a_larger_product_never_takes_less_time_on_one_thread(m, n, k, more, gain):
    del gain
    here = _seconds(m, n, k)
    assert _seconds(m + more, n, k) >= here
    assert _seconds(m, n + more, k) >= here
    assert _seconds(m, n, k + more) >= here


@given(extent, extent, extent, speedup, speedup)
def test_faster_threads_never_slow_one_product(m, n, k, first, second):
    slow, fast = sorted((first, second))
    assert _seconds(m, n, k, gain=fast) <= _seconds(m, n, k, gain=slow) * (1 + 1e-12)


@given(extent, extent, extent, speedup)
def test_a_product_takes_at_least_its_arithmetic_at_peak(m, n, k, gain):
    assert _seconds(m, n, k, gain=gain) >= 2 * m * n * k / (60e9 * gain)


@given(st.integers(1, 64), st.integers(1, 64), fraction)
def test_speedup_is_one_for_one_thread_and_never_above_the_threads(count, cores, serial):
    policy = {"physical_cores": cores, "serial_fraction": serial}
    assert float(thread_speedup(threads=1, **policy)) == 1.0
    assert float(thread_speedup(threads=count, **policy)) <= count * (1 + 1e-12)


@given(st.floats(1, 20), st.lists(st.floats(1e9, 5e9), min_size=1, max_size=16))
def test_clock_stays_within_the_turbo_table(active, clocks):
    table = sorted(clocks, reverse=True)
    clock = float(effective_clock(active_cores=active, clock_hz_by_active_cores=table))
    assert table[-1] * (1 - 1e-12) <= clock <= table[0] * (1 + 1e-12)


@given(st.floats(0, 1e12), st.floats(0, 10), speedup)
def test_a_pass_takes_at_least_each_of_its_bounds(moved, scalar, gain):
    seconds = float(
        cpu_stream_time(
            moved_bytes=moved,
            scalar_s=scalar,
            speedup=gain,
            core_bandwidth_bytes_per_s=12e9,
            total_bandwidth_bytes_per_s=40e9,
        )
    )
    assert seconds >= scalar
    assert seconds >= moved / 40e9 * (1 - 1e-12)
