"""Input pipelines: without contention the sum or the longest stage, with a shared root its bandwidth."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import ArgumentError, TaskError
from perfmodel.simulation import Stage, input_pipeline_tasks, simulate

STAGE_S = st.floats(1e-4, 10.0)


def pipeline(read_s, decode_s, copy_s, compute_s, *, worker=0):
    """Stages of one worker that take as long as asked, over channels of 5 and 2 B/s of its own."""
    return (
        Stage("read", flow_bytes=5 * read_s, channels=(f"drive{worker}",)),
        Stage("decode", "cores", duration_s=decode_s),
        Stage("transfer", f"engine{worker}", flow_bytes=2 * copy_s, channels=(f"link{worker}",)),
        Stage("compute", f"gpu{worker}", duration_s=compute_s),
    )


def played(workers, *, step_count, prefetch, channels=None):
    numbers = range(len(workers))
    channels = {f"drive{n}": 5.0 for n in numbers} | {f"link{n}": 2.0 for n in numbers} | (channels or {})
    resources = {"cores": 1000} | {f"engine{n}": 1 for n in numbers} | {f"gpu{n}": 1 for n in numbers}
    named = {f"worker{number}": stages for number, stages in enumerate(workers)}
    tasks = input_pipeline_tasks(named, step_count=step_count, prefetch=prefetch)
    return simulate(tasks, channels=channels, resources=resources)


def period_s(timeline, worker, *, first, last):
    ends = [timeline.span(f"worker{worker}/compute/{step}").end_s for step in (first, last)]
    return (ends[1] - ends[0]) / (last - first)


@given(st.lists(st.tuples(STAGE_S, STAGE_S, STAGE_S, STAGE_S), min_size=1, max_size=3), st.integers(0, 4))
def test_with_channels_of_their_own_workers_take_the_sum_or_the_longest_stage(stages, prefetch):
    workers = [pipeline(*seconds, worker=number) for number, seconds in enumerate(stages)]
    timeline = played(workers, step_count=12, prefetch=prefetch)
    for number, seconds in enumerate(stages):
        expected = sum(seconds) if prefetch == 0 else max(seconds)
        assert period_s(timeline, number, first=1, last=11) == pytest.approx(expected, rel=1e-9)
        last = timeline.span(f"worker{number}/compute/11").end_s
        assert last == pytest.approx(sum(seconds) + 11 * expected, rel=1e-9)


@given(st.integers(1, 4), st.tuples(STAGE_S, STAGE_S, STAGE_S, STAGE_S))
def test_no_stage_is_further_ahead_than_the_depth(prefetch, seconds):
    timeline = played([pipeline(*seconds)], step_count=15, prefetch=prefetch)
    kinds = ("read", "decode", "transfer", "compute")
    for earlier, later in pairwise(kinds):
        for step in range(prefetch + 1, 15):
            freed_s = timeline.span(f"worker0/{later}/{step - prefetch - 1}").end_s
            assert timeline.span(f"worker0/{earlier}/{step}").start_s >= freed_s


@given(st.integers(2, 6), st.floats(0.1, 2.0), st.floats(0.1, 2.0), st.integers(0, 3))
def test_devices_behind_one_root_follow_its_bandwidth(device_count, bytes_each, compute_s, prefetch):
    root = 3.0
    workers = [
        (
            Stage("transfer", f"engine{number}", flow_bytes=bytes_each, channels=("root", f"link{number}")),
            Stage("compute", f"gpu{number}", duration_s=compute_s),
        )
        for number in range(device_count)
    ]
    channels = {f"link{number}": 100.0 for number in range(device_count)} | {"root": root}
    timeline = played(workers, step_count=20, prefetch=prefetch, channels=channels)
    all_copies_s = device_count * bytes_each / root
    expected = all_copies_s + compute_s if prefetch == 0 else max(all_copies_s, compute_s)
    assert period_s(timeline, 0, first=2, last=18) == pytest.approx(expected, rel=1e-9)


def test_unequal_devices_that_outrun_a_root_fill_it():
    # 4 devices want 4 x 6 B in their 1.0 to 1.3 s of computing, a root of 12 B/s brings 12: it is never idle
    workers = [
        (
            Stage("transfer", f"engine{number}", flow_bytes=6.0, channels=("root",)),
            Stage("compute", f"gpu{number}", duration_s=1.0 + 0.1 * number),
        )
        for number in range(4)
    ]
    timeline = played(workers, step_count=50, prefetch=1, channels={"root": 12.0})
    assert period_s(timeline, 3, first=5, last=45) == pytest.approx(4 * 6.0 / 12.0, rel=1e-9)
    # without prefetching they get out of step, and what one does not take, another does: less than all in step
    alone = played(workers, step_count=50, prefetch=0, channels={"root": 12.0})
    in_step_s = 4 * 6.0 / 12.0 + 1.0
    assert 4 * 6.0 / 12.0 < period_s(alone, 0, first=5, last=45) < in_step_s


def test_decoding_of_all_workers_shares_the_cores():
    # 6 workers x 2 core seconds a mini-batch on 4 cores: one each 3 s, however fast the rest is
    stages = [(Stage("decode", "pool", duration_s=2.0), Stage("compute", f"gpu{n}", duration_s=0.5)) for n in range(6)]
    tasks = input_pipeline_tasks({f"worker{n}": s for n, s in enumerate(stages)}, step_count=40, prefetch=2)
    timeline = simulate(tasks, channels={}, resources={"pool": 4} | {f"gpu{n}": 1 for n in range(6)})
    assert period_s(timeline, 0, first=10, last=34) == pytest.approx(3.0, rel=1e-9)
    assert timeline.utilisation("pool") == pytest.approx(1.0, rel=0.02)


def test_the_refresh_example_of_the_survey():
    # four GPUs x 8 GB over one PCIe 4.0 x16 link of 31.5 GB/s, 0.5 s of computing
    workers = [
        (
            Stage("transfer", f"engine{number}", flow_bytes=8e9, channels=("host",)),
            Stage("compute", f"gpu{number}", duration_s=0.5),
        )
        for number in range(4)
    ]
    timeline = played(workers, step_count=30, prefetch=1, channels={"host": 31.5e9})
    period = period_s(timeline, 0, first=4, last=28)
    assert period == pytest.approx(1.015873, abs=5e-7)
    assert 0.5 / period == pytest.approx(0.4921875, abs=1e-9)  # printed 49.22 %


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"workers": {}}, "workers"),
        ({"workers": {"worker0": ()}}, "worker0"),
        ({"workers": {"worker0": (Stage("read"), Stage("read"))}}, "each of a"),
        ({"step_count": 0}, r"step_count must.*\(got 0"),
        ({"prefetch": -1}, r"prefetch must.*\(got -1"),
    ],
)
def test_impossible_pipelines_are_refused(change, named):
    arguments = {"workers": {"worker0": (Stage("read"), Stage("compute"))}, "step_count": 2, "prefetch": 1}
    with pytest.raises(ArgumentError, match=named):
        input_pipeline_tasks(**(arguments | change))


def test_impossible_stages_are_refused():
    with pytest.raises(TaskError, match="worker0/read/0"):
        input_pipeline_tasks({"worker0": (Stage("read", flow_bytes=1.0),)}, step_count=1)
