"""The event engine against recurrences and a plain replay that share none of its bookkeeping."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.cost.transfer import max_min_rates
from perfmodel.simulation import Task, simulate

EXACT = 1e-9


def max_plus(tasks, channels):
    """When each task ends if it waits for nobody but those it comes after: tasks in an order that respects that."""
    end_s = {}
    for task in tasks:
        begin_s = max((end_s[earlier] for earlier in task.after), default=0.0)
        flow_s = task.flow_bytes / min(channels[name] for name in task.channels) if task.flow_bytes else 0.0
        end_s[task.name] = begin_s + task.duration_s + task.latency_s + flow_s
    return end_s


def seconds():
    return st.one_of(st.just(0.0), st.floats(1e-6, 1e3))


@st.composite
def uncontended(draw):
    """Chains, forks, joins and pipelines over several devices; every flow has channels of its own."""
    tasks, last_on, channels = [], {}, {}
    for index in range(draw(st.integers(1, 25))):
        names = [task.name for task in tasks]
        after = draw(st.lists(st.sampled_from(names), max_size=4)) if names else []
        resource = draw(st.sampled_from([None, "gpu0", "gpu1", "engine"]))
        if resource in last_on:
            after.append(last_on[resource])  # one after the other, as in a stream: nobody queues
        own = ()
        if draw(st.booleans()):
            own = tuple(f"link {index} {part}" for part in range(draw(st.integers(1, 3))))
            channels |= {name: draw(st.floats(1e-3, 1e9)) for name in own}
        name = f"task {index}"
        last_on |= {resource: name} if resource else {}
        flow_bytes = draw(st.one_of(st.just(0.0), st.floats(1e-3, 1e9))) if own else 0.0
        tasks.append(
            Task(name, resource=resource, duration_s=draw(seconds()), after=tuple(after), flow_bytes=flow_bytes,
                 channels=own, latency_s=draw(seconds()))
        )  # fmt: skip
    return tasks, channels


@given(uncontended(), st.randoms(use_true_random=False))
def test_without_contention_it_is_the_max_plus_recurrence(drawn, random):
    tasks, channels = drawn
    expected = max_plus(tasks, channels)
    shuffled = random.sample(tasks, len(tasks))
    timeline = simulate(shuffled, channels=channels, resources={"gpu0": 1, "gpu1": 1, "engine": 2})
    assert {span.task: span.end_s for span in timeline.spans} == pytest.approx(expected, rel=EXACT, abs=0)
    assert timeline.makespan_s == pytest.approx(max(expected.values()), rel=EXACT, abs=0)


def test_a_long_run_does_not_drift():
    channels = {f"link {device}": 7.3e9 for device in range(4)}
    tasks = []
    for step in range(2000):
        for device in range(4):
            name, after = f"{device} copy {step}", (f"{device} compute {step - 1}",) if step else ()
            tasks += [
                Task(name, flow_bytes=1.9e7, channels=(f"link {device}",), latency_s=1e-5, after=after),
                Task(f"{device} compute {step}", resource=f"gpu{device}", duration_s=0.0123, after=(name,)),
            ]
    timeline = simulate(tasks, channels=channels, resources={f"gpu{device}": 1 for device in range(4)})
    assert timeline.makespan_s == pytest.approx(2000 * (1.9e7 / 7.3e9 + 1e-5 + 0.0123), rel=EXACT)


def replay(tasks, channels, resources):
    """The same rules, played without heap, versions, components or kept rates: all is found anew at every event."""
    names = list(channels)
    begun, waited_since, left_s, left_bytes, end_s, now_s = {}, {}, {}, {}, {}, 0.0
    while len(end_s) < len(tasks):
        while True:  # all that happens at this moment
            for index, task in enumerate(tasks):
                if task.name not in waited_since and all(earlier in end_s for earlier in task.after):
                    waited_since[task.name] = (now_s, index)
            free = dict(resources)
            for task in tasks:
                if task.name in begun and task.name not in end_s and task.resource:
                    free[task.resource] -= 1
            for task in sorted((t for t in tasks if t.name in waited_since), key=lambda t: waited_since[t.name]):
                if task.name not in begun and (task.resource is None or free[task.resource]):
                    begun[task.name] = now_s
                    left_s[task.name] = now_s + (task.duration_s + task.latency_s)
                    left_bytes[task.name] = task.flow_bytes
                    if task.resource:
                        free[task.resource] -= 1
            ended = [name for name in begun if name not in end_s and left_s[name] <= now_s and left_bytes[name] <= 0]
            if not ended:
                break
            end_s |= dict.fromkeys(ended, now_s)
        flowing = [t for t in tasks if t.name in begun and t.name not in end_s and left_s[t.name] <= now_s]
        times = [left_s[name] for name in begun if name not in end_s and left_s[name] > now_s]
        rates = {}
        if flowing:
            uses = np.array([[task.channels.count(name) for name in names] for task in flowing])
            found = max_min_rates(capacity=list(channels.values()), uses=uses)
            rates = dict(zip((task.name for task in flowing), found, strict=True))
            times += [now_s + left_bytes[name] / rate for name, rate in rates.items()]
        if not times:
            break
        next_s = min(times)
        for name, rate in rates.items():
            is_last = now_s + left_bytes[name] / rate <= next_s * (1 + 1e-14)
            left_bytes[name] = 0.0 if is_last else left_bytes[name] - rate * (next_s - now_s)
        now_s = next_s
    return end_s


@st.composite
def contended(draw):
    """Tasks that queue for resources and flow over channels that they share; lengths that do not tie by accident."""
    channels = {name: draw(st.sampled_from([1.0, 2.5, 7.0, 31.0])) for name in ("a", "b", "c", "d", "e")}
    tasks = []
    for index in range(draw(st.integers(1, 14))):
        names = [task.name for task in tasks]
        after = tuple(draw(st.lists(st.sampled_from(names), max_size=2, unique=True))) if names else ()
        route = tuple(draw(st.lists(st.sampled_from(list(channels)), max_size=3)))
        irrational = 1 + 0.1 * math.sqrt(2 * index + 3)
        tasks.append(
            Task(f"task {index}", resource=draw(st.sampled_from([None, None, "engine", "cores"])), after=after,
                 duration_s=irrational * draw(st.sampled_from([0.0, 0.5, 3.0])), channels=route,
                 flow_bytes=irrational * draw(st.sampled_from([0.0, 4.0, 20.0])) if route else 0.0,
                 latency_s=draw(st.sampled_from([0.0, 0.1])))
        )  # fmt: skip
    return tasks, channels


@given(contended())
def test_with_contention_it_is_the_plain_replay(drawn):
    tasks, channels = drawn
    resources = {"engine": 1, "cores": 2}
    expected = replay(tasks, channels, resources)
    timeline = simulate(tasks, channels=channels, resources=resources)
    assert {span.task: span.end_s for span in timeline.spans} == pytest.approx(expected, rel=1e-8, abs=1e-12)


@given(contended())
def test_no_order_unit_or_capacity_is_broken(drawn):
    tasks, channels = drawn
    resources = {"engine": 1, "cores": 2}
    timeline = simulate(tasks, channels=channels, resources=resources)
    spans = {span.task: span for span in timeline.spans}
    for task in tasks:
        assert all(spans[earlier].end_s <= spans[task.name].start_s for earlier in task.after)
        slowest = min((channels[name] / task.channels.count(name) for name in task.channels), default=math.inf)
        least_s = task.duration_s + task.latency_s + (task.flow_bytes / slowest if task.flow_bytes else 0.0)
        assert spans[task.name].duration_s >= least_s * (1 - 1e-9)
    for name, units in resources.items():
        held = [span for span in timeline.spans if span.resource == name]
        for moment in {span.start_s for span in held}:
            assert sum(span.start_s <= moment < span.end_s for span in held) <= units
        assert timeline.utilisation(name) <= 1 + 1e-9
    for name in channels:
        assert timeline.utilisation(name) * timeline.makespan_s <= timeline.busy_s(name) * (1 + 1e-9)


@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=12), st.floats(0.1, 1e6))
def test_one_channel_is_full_until_the_last_byte(flow_bytes, capacity):
    tasks = [Task(f"flow {index}", flow_bytes=size, channels=("root",)) for index, size in enumerate(flow_bytes)]
    timeline = simulate(tasks, channels={"root": capacity}, resources={})
    assert timeline.makespan_s == pytest.approx(sum(flow_bytes) / capacity, rel=1e-9)
    # processor sharing: a flow ends when every flow has sent as much as it, or all it has
    for size, span in zip(flow_bytes, timeline.spans, strict=True):
        assert span.end_s == pytest.approx(sum(min(size, other) for other in flow_bytes) / capacity, rel=1e-9)


@given(contended(), st.sampled_from([0.5, 4.0]))
def test_time_scales_with_durations_bytes_and_latencies(drawn, factor):
    tasks, channels = drawn
    scaled = [
        Task(task.name, resource=task.resource, duration_s=factor * task.duration_s, after=task.after,
             flow_bytes=factor * task.flow_bytes, channels=task.channels, latency_s=factor * task.latency_s)
        for task in tasks
    ]  # fmt: skip
    resources = {"engine": 1, "cores": 2}
    makespans = [simulate(given, channels=channels, resources=resources).makespan_s for given in (tasks, scaled)]
    assert makespans[1] == factor * makespans[0]  # powers of two: to the last bit


@given(st.integers(2, 16), st.floats(0.1, 1e9), st.floats(0.1, 1e9), st.floats(0.0, 1.0))
def test_equal_flows_end_at_one_moment_to_the_last_bit(flow_count, flow_bytes, capacity, latency_s):
    tasks = [
        Task(f"flow {n}", flow_bytes=flow_bytes, channels=("root", f"own {n}"), latency_s=latency_s)
        for n in range(flow_count)
    ]
    own = {f"own {n}": 2 * capacity for n in range(flow_count)}
    timeline = simulate(tasks, channels={"root": capacity} | own, resources={})
    assert len({span.end_s for span in timeline.spans}) == 1
    assert timeline.event_count == 2 * flow_count
