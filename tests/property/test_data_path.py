"""What holds for any copy, storage, pipeline and refresh."""

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.cost import input_pipeline, refresh, storage, transfer

ROUNDING = 1e-9
SECONDS = st.floats(1e-6, 1e3)
BYTES = st.floats(1.0, 1e12)
RATE = st.floats(1e3, 1e12)
LATENCY = st.one_of(st.just(0.0), st.floats(1e-9, 1.0))
COUNT = st.integers(1, 64)


def at_least(first, second):
    return float(first) >= float(second) * (1 - ROUNDING)


def agree(function, **numbers):
    """Check a formula of symbols, and of arrays, against the same of numbers."""
    number = float(function(**numbers))
    symbols = {name: sympy.Symbol(name, positive=True) for name in numbers}
    put_in = {symbols[name]: sympy.Float(value, 30) for name, value in numbers.items()}
    assert float(sympy.sympify(function(**symbols)).subs(put_in).doit()) == pytest.approx(number, rel=ROUNDING)
    of_arrays = function(**{name: np.full(3, float(value)) for name, value in numbers.items()})
    np.testing.assert_allclose(of_arrays, number, rtol=ROUNDING)


@given(BYTES, BYTES, RATE, LATENCY)
def test_more_bytes_take_longer_and_never_beat_the_link(size, more, rate, latency):
    one = transfer.copy_time(size_bytes=size, bandwidth_bytes_per_s=rate, latency_s=latency)
    both = transfer.copy_time(size_bytes=size + more, bandwidth_bytes_per_s=rate, latency_s=latency)
    assert both >= one >= size / rate


@given(BYTES, BYTES, st.lists(st.tuples(RATE, LATENCY), min_size=1, max_size=4), st.floats(0.01, 1.0))
def test_a_staged_copy_lies_between_its_slowest_hop_and_all_in_turn(size, more, hops, share):
    rates, latencies = zip(*hops, strict=True)
    route = {"bandwidths_bytes_per_s": rates, "latencies_s": latencies}
    in_turn = transfer.staged_copy_time(size_bytes=size, **route)
    piped = transfer.staged_copy_time(size_bytes=size, chunk_bytes=share * size, **route)
    slowest = max(latency + size / rate for rate, latency in hops)
    assert at_least(piped, slowest)
    if not any(latencies):  # latency is paid for each chunk, so that small chunks may cost more than they hide
        assert at_least(in_turn, piped)
    assert at_least(transfer.staged_copy_time(size_bytes=size + more, **route), in_turn)
    assert at_least(transfer.staged_copy_time(size_bytes=size + more, chunk_bytes=share * size, **route), piped)


@given(SECONDS, SECONDS, st.booleans(), st.integers(1, 3))
def test_two_ways_take_between_the_longer_and_both(out_s, back_s, is_full_duplex, engines):
    both = transfer.two_way_time(out_s=out_s, back_s=back_s, is_full_duplex=is_full_duplex, engine_count=engines)
    assert max(out_s, back_s) <= float(both) <= out_s + back_s
    back = transfer.two_way_time(out_s=back_s, back_s=out_s, is_full_duplex=is_full_duplex, engine_count=engines)
    assert float(both) == float(back)


@given(st.integers(1, 10**6), st.integers(16, 4096), st.integers(0, 64))
def test_packets_never_carry_more_than_full_ones(payload, most, overhead):
    share = float(transfer.packet_efficiency(payload_bytes=payload, max_payload_bytes=most, overhead_bytes=overhead))
    assert 0 < share <= most / (most + overhead) + 1e-15


@given(BYTES, st.floats(1, 1e4), LATENCY, RATE, RATE, st.floats(1, 1e7), st.floats(1, 100))
def test_reads_exceed_no_limit_and_more_of_them_are_never_slower(size, queue, latency, stream, most, reads, more):
    limits = {"latency_s": latency, "stream_bytes_per_s": stream, "most_bytes_per_s": most, "most_reads_per_s": reads}
    rate = storage.read_rate(read_bytes=size, outstanding_reads=queue, **limits)
    assert rate <= most
    assert rate <= reads * size
    assert rate <= queue * stream * (1 + ROUNDING)
    assert at_least(storage.read_rate(read_bytes=size, outstanding_reads=queue * more, **limits), rate)
    assert at_least(storage.read_rate(read_bytes=size * more, outstanding_reads=queue, **limits), rate)


@given(RATE, COUNT, RATE, st.floats(0.1, 1.0))
def test_one_more_drive_never_slows_a_stripe(rate, count, uplink, efficiency):
    given_drives = {"drive_rate_bytes_per_s": rate, "uplink_bytes_per_s": uplink, "efficiency": efficiency}
    some = storage.raid0_read_rate(drive_count=count, **given_drives)
    assert some <= min(count * rate, uplink)
    assert storage.raid0_read_rate(drive_count=count + 1, **given_drives) >= some


STAGES = st.dictionaries(st.sampled_from(input_pipeline.STAGES), SECONDS, min_size=1)


@given(STAGES, st.integers(0, 8), SECONDS)
def test_no_pipeline_is_faster_than_its_slowest_stage(stages, depth, more):
    period = float(input_pipeline.pipelined_period(stage_s=stages, depth=depth))
    assert max(stages.values()) <= period <= sum(stages.values()) * (1 + ROUNDING)
    assert stages[input_pipeline.bounding_stage(stage_s=stages)] == max(stages.values())
    for stage, seconds in stages.items():
        slower = {**stages, stage: seconds + more}
        assert input_pipeline.pipelined_period(stage_s=slower, depth=depth) >= period


@given(SECONDS, SECONDS, st.integers(0, 50))
def test_jitter_costs_something_less_with_every_place_to_wait(feed_s, compute_s, depth):
    period = input_pipeline.jittered_period(feed_s=feed_s, compute_s=compute_s, depth=depth)
    deeper = input_pipeline.jittered_period(feed_s=feed_s, compute_s=compute_s, depth=depth + 1)
    assert at_least(period, deeper)
    assert at_least(deeper, max(feed_s, compute_s))
    stages = {"read": feed_s, "compute": compute_s}
    in_turn, beside = (float(input_pipeline.pipelined_period(stage_s=stages, depth=depth)) for depth in (0, 1))
    assert in_turn * (1 + ROUNDING) >= period
    assert at_least(period, beside)
    assert input_pipeline.jittered_period(feed_s=feed_s, compute_s=compute_s, depth=0) == pytest.approx(in_turn)


@given(SECONDS, SECONDS, COUNT)
def test_the_units_that_unbind_do_and_one_fewer_does_not(stage_s, compute_s, unit_count):
    units = float(input_pipeline.units_to_unbind(stage_s=stage_s, compute_s=compute_s, unit_count=unit_count))
    assert units >= 1
    assert stage_s * unit_count / units <= compute_s * (1 + ROUNDING)
    if units > 1:
        assert stage_s * unit_count / (units - 1) > compute_s


@given(RATE, st.floats(1.0, 1e9))
def test_devices_beyond_the_most_useful_add_nothing(supply, demand):
    most = float(input_pipeline.most_useful_device_count(supply_per_s=supply, demand_per_s=demand))
    served = [min(supply, count * demand) for count in (most - 1, most, most + 1)]
    assert served[2] == pytest.approx(served[1], rel=ROUNDING)
    assert most == 1 or served[0] < served[1]


def pipeline_period(**sizes):
    stages = input_pipeline.stage_periods(
        batch_size=sizes["batch"],
        worker_count=sizes["workers"],
        compute_s=sizes["compute_s"],
        encoded_bytes=sizes["encoded"],
        storage_bytes_per_s=sizes["disk"],
        host_bytes=2 * sizes["device"],
        host_bytes_per_s=sizes["memory"],
        device_bytes=sizes["device"],
        root_bytes_per_s=sizes["root"],
        link_bytes_per_s=sizes["link"],
        decode_rate_per_core=sizes["decode"],
    )
    return input_pipeline.pipelined_period(stage_s=stages, depth=1)


@settings(deadline=None, max_examples=30)  # the first call imports and warms sympy
@given(*[BYTES] * 2, *[RATE] * 4, st.floats(1, 1e4), SECONDS, COUNT, COUNT)
def test_a_pipeline_of_symbols_is_that_of_numbers(
    encoded, device, disk, memory, root, link, decode, compute_s, batch, workers
):
    sizes = {"encoded": encoded, "device": device, "disk": disk, "memory": memory, "root": root, "link": link}
    agree(pipeline_period, **sizes, decode=decode, compute_s=compute_s, batch=batch, workers=workers)


@settings(deadline=None, max_examples=30)  # the first call imports and warms sympy
@given(SECONDS, SECONDS, COUNT, st.sampled_from(sorted(refresh.PERIOD_BY_READING)))
def test_a_refresh_of_symbols_is_that_of_numbers(transfer_s, compute_s, count, reading):
    agree(refresh.PERIOD_BY_READING[reading], transfer_s=transfer_s, compute_s=compute_s, device_count=count)


@settings(deadline=None, max_examples=30)  # the first call imports and warms sympy
@given(BYTES, RATE, st.integers(1, 4096), LATENCY.filter(bool), COUNT)
def test_copies_of_symbols_are_those_of_numbers(size, rate, most, latency, count):
    agree(transfer.copy_time, size_bytes=size, bandwidth_bytes_per_s=rate, latency_s=latency, copy_count=count)
    agree(
        transfer.simultaneous_copies_time,
        size_bytes=size, copy_count=count, bandwidth_bytes_per_s=rate, latency_s=latency, engine_count=2,
    )  # fmt: skip
    agree(transfer.packet_efficiency, payload_bytes=float(count), max_payload_bytes=most, overhead_bytes=24)
    agree(
        lambda n, b, a: transfer.staged_copy_time(
            size_bytes=n, bandwidths_bytes_per_s=(b, 2 * b), latencies_s=(a, 0.0), chunk_bytes=1e6
        ),
        n=size, b=rate, a=latency,
    )  # fmt: skip


@settings(deadline=None, max_examples=30)  # the first call imports and warms sympy
@given(BYTES, st.floats(1, 1e4), LATENCY.filter(bool), RATE, RATE, st.floats(1, 1e7))
def test_reads_of_symbols_are_those_of_numbers(size, queue, latency, stream, most, reads):
    agree(
        storage.read_rate,
        read_bytes=size, outstanding_reads=queue, latency_s=latency, stream_bytes_per_s=stream,
        most_bytes_per_s=most, most_reads_per_s=reads,
    )  # fmt: skip
    agree(
        storage.raid0_read_rate,
        drive_rate_bytes_per_s=stream, drive_count=queue, uplink_bytes_per_s=most, efficiency=0.97,
    )  # fmt: skip


@given(SECONDS, SECONDS, st.integers(1, 16))
def test_a_survey_of_n_devices_is_double_buffering_of_one_fewer(transfer_s, compute_s, count):
    times = {"transfer_s": transfer_s, "compute_s": compute_s}
    survey, double, single = (refresh.PERIOD_BY_READING[name] for name in ("survey", "double_buffer", "single_buffer"))
    assert survey(**times, device_count=count + 1) == double(**times, device_count=count)
    assert survey(**times, device_count=count) <= double(**times, device_count=count)
    assert at_least(single(**times, device_count=count), double(**times, device_count=count))
    assert at_least(single(**times, device_count=count + 1), single(**times, device_count=count))
