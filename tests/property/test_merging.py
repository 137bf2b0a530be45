"""Which gradients share a message: never worse than any other way, and what messages cost those who compute."""

from itertools import pairwise
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.cost.gradient_buckets import buckets
from perfmodel.cost.message_protocols import units_taken_share
from perfmodel.cost.overlap import arrival_stall, ends, exposed_exchange, slowed_exchange, spans
from perfmodel.prediction.job.gradients import Buckets, Stretches, merged_reduced, merged_served
from perfmodel.simulation.engine import simulate
from perfmodel.simulation.timeline import Task

MOST_LAYERS = 10
GRID = (0.0, 1e4, 1e5, 1e6, 4e6, 25 * 2**20, inf)
ROUNDING = 1 + 1e-9
POSITIVE = st.floats(1e-6, 1.0)


@st.composite
def schedules(draw, most=MOST_LAYERS):
    """Gradients that become ready one after the other, the last when computing ends; weights wanted in the reverse."""
    count = draw(st.integers(1, most))
    times = st.lists(POSITIVE, min_size=count, max_size=count)
    ready_s = np.cumsum(draw(times))
    wanted_s = np.sort(np.array(draw(times)))[::-1] * ready_s[-1]
    return FakeSchedule(1e7 * np.array(draw(times)) ** 3, ready_s, wanted_s)


class FakeSchedule:
    """What of a GradientSchedule merging wants to know."""

    def __init__(self, sizes_bytes, ready_s, wanted_s):
        self.layers = tuple(map(str, range(len(sizes_bytes))))
        self.sizes_bytes, self.ready_s, self.wanted_s = sizes_bytes, ready_s, wanted_s
        self.backward_s = float(ready_s[-1])


def all_ways(count):
    for cuts in range(2 ** (count - 1)):
        edges = [0, *(place + 1 for place in range(count - 1) if cuts >> place & 1), count]
        yield [slice(first, last) for first, last in pairwise(edges)]


def grid(schedule):
    return [buckets(schedule.sizes_bytes, least_bytes=size) for size in GRID]


class Reduced:
    """Workers that add up among themselves; a message costs the least of two straight lines, as of two protocols."""

    def __init__(self, latency_s, slowdown):
        self.latency_s, self.slowdown = latency_s, slowdown

    def seconds(self, size_bytes):
        return np.minimum(self.latency_s + size_bytes * 3e-8, 3 * self.latency_s + size_bytes * 1e-8)

    def merged(self, schedule):
        stretches = Stretches.of(schedule)
        return merged_reduced(stretches, message_s=self.seconds(stretches.sizes_bytes), slowdown=self.slowdown)

    def exposed(self, schedule, slices):
        messages = Buckets.of(schedule, slices)
        return float(
            slowed_exchange(
                ready_s=list(messages.ready_s),
                message_s=list(self.seconds(messages.sizes_bytes)),
                computed_s=schedule.backward_s,
                slowdown=self.slowdown,
            )
        )


class Served(Reduced):
    """Workers with a server."""

    def merged(self, schedule):
        stretches = Stretches.of(schedule)
        sizes = stretches.sizes_bytes
        return merged_served(
            stretches, push_s=self.seconds(sizes), serve_s=2e-8 * sizes, pull_s=self.seconds(sizes), overlap=True
        )

    def exposed(self, schedule, slices):
        messages = Buckets.of(schedule, slices)
        way_s = self.seconds(messages.sizes_bytes)
        arrived = ends(ready_s=list(messages.ready_s), message_s=list(way_s))
        updated = ends(ready_s=arrived, message_s=list(2e-8 * messages.sizes_bytes))[-1]
        pulled = np.cumsum(way_s[::-1])
        stall = arrival_stall(wanted_s=list(messages.wanted_s[::-1]), arrival_s=list(pulled))
        return float(exposed_exchange(last_end_s=updated, computed_s=schedule.backward_s) + stall)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(schedules(), st.floats(1e-4, 0.3), st.sampled_from([0.0, 0.1, 0.4, 1.0]))
def test_merged_messages_are_the_best_of_all_ways_to_merge(schedule, latency_s, slowdown):
    for exchange in (Reduced(latency_s, slowdown), Served(latency_s, 0.0)):
        found = exchange.exposed(schedule, exchange.merged(schedule))
        best = min(exchange.exposed(schedule, way) for way in all_ways(len(schedule.layers)))
        assert found <= best * ROUNDING + 1e-12


@settings(max_examples=15, deadline=None, derandomize=True)
@given(schedules(most=60), st.floats(1e-4, 0.3), st.sampled_from([0.0, 0.2]))
def test_merged_messages_are_never_slower_than_buckets_of_any_size(schedule, latency_s, slowdown):
    exchange = Reduced(latency_s, slowdown)
    merged = exchange.merged(schedule)
    assert [place for each in merged for place in range(each.start, each.stop)] == list(range(len(schedule.layers)))
    found = exchange.exposed(schedule, merged)
    assert found <= min(exchange.exposed(schedule, way) for way in grid(schedule)) * ROUNDING + 1e-12


def test_latency_merges_and_bytes_that_could_leave_do_not():
    small, large = (
        FakeSchedule(np.full(8, size_bytes), np.arange(1.0, 9.0), np.arange(8.0, 0.0, -1.0))
        for size_bytes in (1e6, 1e9)
    )
    assert Reduced(1e-9, 0.0).merged(large)[0] == slice(0, 1)  # the channel never rests again: begin at once
    assert Reduced(1e-9, 0.0).merged(small)[-1] == slice(7, 8)  # all before are through when the last one is ready
    assert len(Reduced(50.0, 0.0).merged(small)) == 1
    assert Reduced(0.1, 1.0).merged(small) == [slice(0, 8)]  # nothing is computed meanwhile: one message


def test_sums_of_stretches():
    sums = spans(np.array([1.0, 2.0, 4.0, 8.0]))
    assert [[sums[first, last] for last in range(first, 4)] for first in range(4)] == [
        [1, 3, 7, 15], [2, 6, 14], [4, 12], [8]
    ]  # fmt: skip


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=8), st.floats(0.01, 0.5), POSITIVE)
def test_slowed_computing_takes_as_long_as_it_does_played(pairs, slowdown, rest_s):
    """Computing and messages share a device in the simulator, of which messages get their share and no more."""
    pieces, messages = zip(*pairs, strict=True)
    ready_s = np.cumsum(pieces)
    tasks = []
    for place, (piece, message) in enumerate(pairs):
        before = (f"piece{place - 1}",) if place else ()
        sent = (f"piece{place}", *((f"message{place - 1}",) if place else ()))
        tasks.append(Task(f"piece{place}", flow_bytes=piece, channels=("device",), after=before))
        tasks.append(Task(f"message{place}", flow_bytes=slowdown * message, channels=("device", "calls"), after=sent))
    tasks.append(Task("rest", flow_bytes=rest_s, channels=("device",), after=(f"piece{len(pairs) - 1}",)))
    played = simulate(tasks, channels={"device": 1.0, "calls": slowdown}, resources={})
    computed_s = float(ready_s[-1]) + rest_s
    added_s = slowed_exchange(ready_s=list(ready_s), message_s=messages, computed_s=computed_s, slowdown=slowdown)
    assert played.makespan_s == pytest.approx(computed_s + float(added_s), rel=1e-9)


def test_a_slowdown_costs_more_the_larger_it_is_and_lies_between_hidden_and_bare():
    pieces = {"ready_s": (1.0, 2.0, 3.0), "message_s": (0.5, 0.5, 0.5), "computed_s": 3.0}
    costs = [float(slowed_exchange(slowdown=share, **pieces)) for share in (0.0, 0.1, 0.3, 0.5, 1.0)]
    assert costs == sorted(costs)
    assert costs[0] == pytest.approx(0.5)
    assert costs[-1] == pytest.approx(1.5)


def test_blocks_of_a_library_are_as_many_as_the_link_needs():
    blocks = {"block_bytes_per_s": 10e9, "fewest": 2, "most": 24}
    links = (1e9, 12e9, 25e9, 255e9)
    shares = [float(units_taken_share(bytes_per_s=rate, unit_count=100, **blocks)) for rate in links]
    assert shares == [0.02, 0.02, 0.03, 0.24]
    assert float(units_taken_share(bytes_per_s=255e9, unit_count=30, **blocks)) == 0.5


@pytest.mark.parametrize("sync", ["ring_all_reduce", "all_reduce", "parameter_server", "double_binary_tree"])
def test_a_predicted_step_is_shortest_with_merged_messages(sync):
    for graph, job in (
        (pm.zoo.alexnet(), {"system": "survey_fig5", "workers": 4, "batch_size": 16}),
        (pm.zoo.googlenet(), {"system": "dgx_a100", "workers": 8, "batch_size": 4, "framework": "pytorch_2"}),
    ):
        for overlap in (True, False):
            merged, *others = (
                pm.predict(graph, sync=sync, overlap=overlap, bucket_bytes=size, **job) for size in ("merged", *GRID)
            )
            assert merged.step_s <= min(other.step_s for other in others) * ROUNDING
            assert merged.exposed_sync_s <= merged.sync_s * ROUNDING
