"""What holds for any copy, storage, pipeline and transfer."""

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.cost import input_pipeline, transfer

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


@given(BYTES, st.floats(1, 1e4), LATENCY, RATE, RATE, st.floats(1, 1e7), st.floats(1, 100))
def test_reads_exceed_no_limit_and_more_of_them_are_never_slower(size, queue, latency, stream, most, reads, more):
    limits = {"latency_s": latency, "stream_bytes_per_s": stream, "most_bytes_per_s": most, "most_reads_per_s": reads}
    rate = input_pipeline.read_rate(read_bytes=size, outstanding_reads=queue, **limits)
    assert rate <= most
    assert rate <= reads * size
    assert rate <= queue * stream * (1 + ROUNDING)
    assert at_least(input_pipeline.read_rate(read_bytes=size, outstanding_reads=queue * more, **limits), rate)
    assert at_least(input_pipeline.read_rate(read_bytes=size * more, outstanding_reads=queue, **limits), rate)


STAGES = st.dictionaries(st.sampled_from(input_pipeline.STAGES), SECONDS, min_size=1)


@given(STAGES, st.integers(0, 8), SECONDS)
def test_no_pipeline_is_faster_than_its_slowest_stage(stages, depth, more):
    period = float(input_pipeline.pipelined_period(stage_s=stages, depth=depth))
    assert max(stages.values()) <= period <= sum(stages.values()) * (1 + ROUNDING)
    assert stages[input_pipeline.bounding_stage(stage_s=stages)] == max(stages.values())
    for stage, seconds in stages.items():
        slower = {**stages, stage: seconds + more}
        assert input_pipeline.pipelined_period(stage_s=slower, depth=depth) >= period


@given(SECONDS, SECONDS, COUNT)
def test_the_units_that_unbind_do_and_one_fewer_does_not(stage_s, compute_s, unit_count):
    units = float(input_pipeline.units_to_unbind(stage_s=stage_s, compute_s=compute_s, unit_count=unit_count))
    assert units >= 1
    assert stage_s * unit_count / units <= compute_s * (1 + ROUNDING)
    if units > 1:
        assert stage_s * unit_count / (units - 1) > compute_s


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


@settings(deadline=None, max_examples=10)  # the first call imports and warms sympy
@given(*[BYTES] * 2, *[RATE] * 4, st.floats(1, 1e4), SECONDS, COUNT, COUNT)
def test_a_pipeline_of_symbols_is_that_of_numbers(
    encoded, device, disk, memory, root, link, decode, compute_s, batch, workers
):
    sizes = {"encoded": encoded, "device": device, "disk": disk, "memory": memory, "root": root, "link": link}
    agree(pipeline_period, **sizes, decode=decode, compute_s=compute_s, batch=batch, workers=workers)


@settings(deadline=None, max_examples=10)  # the first call imports and warms sympy
@given(SECONDS, SECONDS, COUNT, st.sampled_from(sorted(transfer.PERIOD_BY_READING)))
def test_a_refresh_of_symbols_is_that_of_numbers(transfer_s, compute_s, count, reading):
    agree(transfer.PERIOD_BY_READING[reading], transfer_s=transfer_s, compute_s=compute_s, device_count=count)


@given(SECONDS, SECONDS, st.integers(1, 16))
def test_a_survey_of_n_devices_is_double_buffering_of_one_fewer(transfer_s, compute_s, count):
    times = {"transfer_s": transfer_s, "compute_s": compute_s}
    survey, double, single = (transfer.PERIOD_BY_READING[name] for name in ("survey", "double_buffer", "single_buffer"))
    assert survey(**times, device_count=count + 1) == double(**times, device_count=count)
    assert survey(**times, device_count=count) <= double(**times, device_count=count)
    assert at_least(single(**times, device_count=count), double(**times, device_count=count))
    assert at_least(single(**times, device_count=count + 1), single(**times, device_count=count))
