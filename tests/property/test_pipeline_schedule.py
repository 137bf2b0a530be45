"""Pipelines of devices: closed forms, the longest path and the played schedule are one, or say by how much not."""

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.cost.overlap import slowed_exchange
from perfmodel.cost.pipeline_ends import TurnMessages, pipeline_ends, pipelines_ends
from perfmodel.cost.pipeline_order import (
    SCHEDULES,
    interleaved_order,
    most_kept,
    most_kept_beside,
    one_forward_one_backward_order,
)
from perfmodel.errors import ArgumentError
from perfmodel.simulation import simulate
from perfmodel.simulation.pipeline import Hop, pipeline_resources, pipeline_schedule_tasks
from pipeline_closed_forms import (
    bubble_fraction,
    gpipe_time,
    interleaved_time,
    one_forward_one_backward_bound,
    schedule_bounds,
)

SECONDS = st.floats(0.01, 10.0)


def _path(orders, *, forward_s, backward_s, forward_send_s=None, backward_send_s=None):
    none = [0.0] * (len(forward_s) - 1)
    return pipeline_ends(
        orders,
        forward_s=forward_s,
        backward_s=backward_s,
        forward_send_s=forward_send_s or none,
        backward_send_s=backward_send_s or none,
    ).latest_s


def _played(orders, *, forward_s, backward_s, forward_send_s=None, backward_send_s=None):
    none = [0.0] * (len(forward_s) - 1)
    tasks = pipeline_schedule_tasks(
        orders,
        forward_s=forward_s,
        backward_s=backward_s,
        forward_hops=[Hop(seconds) for seconds in forward_send_s or none],
        backward_hops=[Hop(seconds) for seconds in backward_send_s or none],
    )
    resources = pipeline_resources(orders, chunk_count=len(forward_s))
    return simulate(tasks, channels={}, resources=resources).makespan_s


@st.composite
def pipelines(draw, *, sends=True):
    stages = draw(st.integers(1, 6))

    def times(count, least=0.01):
        return draw(st.lists(st.floats(least, 10.0), min_size=count, max_size=count))

    found = {"forward_s": times(stages), "backward_s": times(stages)}
    if sends:
        found |= {"forward_send_s": times(stages - 1, 0.0), "backward_send_s": times(stages - 1, 0.0)}
    return draw(st.integers(1, 9)), found


def test_published_shares_of_bubbles():
    # 3 / 11, 3 / 35, 3 / 19 of the step; 3 / 8 and 3 / 16 over the ideal
    assert bubble_fraction(stage_count=4, micro_batch_count=8) == pytest.approx(0.27273, abs=5e-6)
    assert bubble_fraction(stage_count=4, micro_batch_count=32) == pytest.approx(0.08571, abs=5e-6)
    assert bubble_fraction(stage_count=4, micro_batch_count=8, interleave=2) == pytest.approx(0.15789, abs=5e-6)
    for interleave, over_ideal in ((1, 0.375), (2, 0.1875)):
        share = bubble_fraction(stage_count=4, micro_batch_count=8, interleave=interleave)
        assert share / (1 - share) == pytest.approx(over_ideal, rel=1e-12)


def test_no_bubble_with_one_stage_and_none_in_the_limit():
    assert bubble_fraction(stage_count=1, micro_batch_count=3) == 0
    count = sympy.Symbol("m", positive=True)
    assert sympy.limit(bubble_fraction(stage_count=4, micro_batch_count=count), count, sympy.oo) == 0


@given(pipelines())
@settings(deadline=None, max_examples=60)
def test_gpipe_of_any_stages_is_exact(case):
    count, times = case
    orders = SCHEDULES["gpipe"](stage_count=len(times["forward_s"]), micro_batch_count=count)
    expected = _played(orders, **times)
    assert _path(orders, **times) == pytest.approx(expected, rel=1e-9)
    assert gpipe_time(micro_batch_count=count, **times) == pytest.approx(expected, rel=1e-9)


@given(pipelines())
@settings(deadline=None, max_examples=60)
def test_one_forward_one_backward_takes_at_least_its_bound_and_the_path_is_exact(case):
    count, times = case
    orders = SCHEDULES["1f1b"](stage_count=len(times["forward_s"]), micro_batch_count=count)
    expected = _played(orders, **times)
    assert _path(orders, **times) == pytest.approx(expected, rel=1e-9)
    works = {name: times[name] for name in ("forward_s", "backward_s")}
    assert one_forward_one_backward_bound(micro_batch_count=count, **works) <= expected * (1 + 1e-9)


@given(pipelines(sends=False))
@settings(deadline=None, max_examples=60)
def test_one_forward_one_backward_is_exact_where_the_last_stage_is_longest(case):
    count, times = case
    longest = max(a + b for a, b in zip(times["forward_s"], times["backward_s"], strict=True))
    times["forward_s"][-1] = longest - min(times["backward_s"][-1], longest / 2)
    times["backward_s"][-1] = longest - times["forward_s"][-1]
    orders = SCHEDULES["1f1b"](stage_count=len(times["forward_s"]), micro_batch_count=count)
    once = sum([*times["forward_s"], *times["backward_s"]])
    assert _played(orders, **times) == pytest.approx(once + (count - 1) * longest, rel=1e-9)


def test_a_slow_first_stage_hides_the_others():
    # stage 0 never waits but for the first gradient: m 20 s
    orders = one_forward_one_backward_order(stage_count=2, micro_batch_count=5)
    times = {"forward_s": [10.0, 1.0], "backward_s": [10.0, 1.0]}
    assert _path(orders, **times) == 100.0


@pytest.mark.parametrize(("stages", "count", "interleave"), [(2, 2, 2), (4, 8, 2), (4, 4, 3), (3, 9, 4), (8, 64, 3)])
@pytest.mark.parametrize(("forward_s", "backward_s"), [(1.0, 2.0), (1.0, 1.0), (3.0, 1.0)])
def test_interleaved_of_equal_chunks_is_exact(stages, count, interleave, forward_s, backward_s):
    chunks = stages * interleave
    orders = interleaved_order(stage_count=stages, micro_batch_count=count, interleave=interleave)
    times = {"forward_s": [forward_s / interleave] * chunks, "backward_s": [backward_s / interleave] * chunks}
    closed = interleaved_time(
        forward_s=forward_s,
        backward_s=backward_s,
        stage_count=stages,
        micro_batch_count=count,
        interleave=interleave,
    )
    expected = _played(orders, **times)
    assert _path(orders, **times) == pytest.approx(expected, rel=1e-9)
    assert closed == pytest.approx(expected, rel=1e-9)
    ideal = count * (forward_s + backward_s)
    share = bubble_fraction(stage_count=stages, micro_batch_count=count, interleave=interleave)
    assert 1 - ideal / closed == pytest.approx(share, rel=1e-12)


def test_a_long_forward_and_a_long_backward_phase_in_different_stages_keep_to_the_bound():
    found = {"forward_s": [1.0, 3.0, 0.5, 1.0], "backward_s": [1.0, 0.5, 3.0, 1.0]}
    orders = one_forward_one_backward_order(stage_count=4, micro_batch_count=4)
    assert _played(orders, **found) == 22.0  # more than once through all, and thrice the longest stage: 21.5
    assert schedule_bounds("1f1b", **found, stage_count=4, micro_batch_count=4)[1] == 42.0


@given(st.data(), st.sampled_from(sorted(SCHEDULES)), st.integers(2, 4), st.integers(1, 3))
@settings(deadline=None, max_examples=80)
def test_bounds_hold_for_stages_of_any_length(data, schedule, stages, groups):
    interleave = 3 if schedule == "interleaved" else 1
    count = stages * groups

    def times():
        return data.draw(st.lists(SECONDS, min_size=stages * interleave, max_size=stages * interleave))

    found = {"forward_s": times(), "backward_s": times()}
    orders = SCHEDULES[schedule](stage_count=stages, micro_batch_count=count, interleave=interleave)
    least, most = schedule_bounds(schedule, **found, stage_count=stages, micro_batch_count=count)
    played = _played(orders, **found)
    assert least * (1 - 1e-9) <= played <= most * (1 + 1e-9)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_does_every_phase_once(schedule):
    interleave = 2 if schedule == "interleaved" else 1
    orders = SCHEDULES[schedule](stage_count=3, micro_batch_count=6, interleave=interleave)
    turns = [turn for order in orders for turn in order]
    assert len(set(turns)) == len(turns) == 2 * 6 * 3 * interleave
    for device, order in enumerate(orders):
        assert {turn.chunk % 3 for turn in order} == {device}


def test_what_is_kept_of_micro_batches():
    kept = dict.fromkeys(range(8), 10)
    one = one_forward_one_backward_order(stage_count=4, micro_batch_count=8)
    assert [most_kept(order, kept_bytes=kept) for order in one] == [40, 30, 20, 10]
    many = SCHEDULES["gpipe"](stage_count=4, micro_batch_count=8)
    assert [most_kept(order, kept_bytes=kept) for order in many] == [80] * 4
    # Megatron-LM: 2 (p - d - 1) + (v - 1) p + 1 chunks, so 1 + (p - 1)/(p v) times 1F1B's first stage
    both = interleaved_order(stage_count=4, micro_batch_count=8, interleave=2)
    assert [most_kept(order, kept_bytes=kept) for order in both] == [110, 90, 70, 50]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_gradients_are_held_from_the_first_to_the_last_backward_turn_of_their_chunk(data):
    stages, interleave = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 3))
    name = "interleaved" if interleave > 1 else data.draw(st.sampled_from(["1f1b", "gpipe"]))
    count = stages * data.draw(st.integers(1, 2))
    device = data.draw(st.integers(0, stages - 1))
    order = SCHEDULES[name](stage_count=stages, micro_batch_count=count, interleave=interleave)[device]
    sizes = data.draw(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), min_size=interleave, max_size=interleave)
    )
    kept = {device + chunk * stages: size for chunk, (size, _) in enumerate(sizes)}
    lent = {device + chunk * stages: size for chunk, (_, size) in enumerate(sizes)}

    def at(place):
        """Sum during a turn: what began before or with it, and has not ended before it."""
        waiting = sum(kept[turn.chunk] for turn in order[: place + 1] if turn.phase == "forward")
        waiting -= sum(kept[turn.chunk] for turn in order[:place] if turn.phase == "backward")
        begun = {turn.chunk for turn in order[: place + 1] if turn.phase == "backward"}
        ahead = {turn.chunk for turn in order[place:] if turn.phase == "backward"}
        return waiting + sum(lent[chunk] for chunk in begun & ahead)

    assert sum(most_kept_beside(order, kept_bytes=kept, meanwhile_bytes=lent)) == max(map(at, range(len(order))))


def test_what_does_not_fit_is_refused():
    with pytest.raises(ArgumentError, match="multiple of the 4 stages"):
        interleaved_order(stage_count=4, micro_batch_count=6, interleave=2)
    with pytest.raises(ArgumentError, match="interleaved"):
        SCHEDULES["1f1b"](stage_count=4, micro_batch_count=8, interleave=2)
    orders = one_forward_one_backward_order(stage_count=2, micro_batch_count=1)
    with pytest.raises(ArgumentError, match="1 of them"):
        pipeline_schedule_tasks(orders, forward_s=[1, 1], backward_s=[1, 1], forward_hops=[], backward_hops=[Hop()])


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_pipelines_that_are_played_together_end_as_each_alone(data):
    pipelines, expected = [], []
    slowdowns = data.draw(st.lists(st.floats(0.0, 0.5), min_size=1, max_size=2))
    has_messages = data.draw(st.booleans())
    for rounds in data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)):
        stages, interleave = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 3))
        name = "interleaved" if interleave > 1 else data.draw(st.sampled_from(["1f1b", "gpipe"]))
        chunks, slowdown = stages * interleave, data.draw(st.sampled_from(slowdowns))
        orders = SCHEDULES[name](stage_count=stages, micro_batch_count=rounds * stages, interleave=interleave)
        width = data.draw(st.integers(1, 3))
        columns = st.lists(SECONDS, min_size=width, max_size=width).map(np.array)
        works_s, sends_s = ([data.draw(columns) for _ in range(count)] for count in (2 * chunks, 2 * chunks - 2))
        messages = [
            TurnMessages(data.draw(columns), data.draw(columns), slowdown) for _ in range(has_messages * chunks)
        ]
        pipelines.append((orders, works_s, sends_s, messages))
        expected.append(
            [
                pipeline_ends(
                    orders,
                    forward_s=[float(time_s[column]) for time_s in works_s[:chunks]],
                    backward_s=[float(time_s[column]) for time_s in works_s[chunks:]],
                    forward_send_s=[float(time_s[column]) for time_s in sends_s[: chunks - 1]],
                    backward_send_s=[float(time_s[column]) for time_s in sends_s[chunks - 1 :]],
                    messages=[TurnMessages(float(a[column]), float(b[column]), share) for a, b, share in messages],
                )
                for column in range(width)
            ]
        )
    for ends, alone in zip(pipelines_ends(pipelines), expected, strict=True):
        for name in ("device_s", "chunk_s", *["left_s"] * has_messages):
            assert np.transpose(getattr(ends, name)).tolist() == [list(getattr(of, name)) for of in alone]


@given(slowdown=st.floats(0.0, 0.5), message_s=SECONDS, gap_s=SECONDS)
def test_messages_slow_only_what_computes_beside_them(slowdown, message_s, gap_s):
    """What a message takes from a turn delays the stage before, too; a device that is idle loses nothing."""
    orders = SCHEDULES["1f1b"](stage_count=2, micro_batch_count=1, interleave=1)
    work = {"forward_s": [1.0, 1.0], "backward_s": [2.0, 3.0], "forward_send_s": [0.0], "backward_send_s": [gap_s]}
    sent = {"ready_s": [0.0], "message_s": [message_s], "computed_s": 3.0, "slowdown": slowdown}
    beside_s = min(message_s, 3.0 / (1 - slowdown))
    messages = [TurnMessages(), TurnMessages(message_s, max(message_s - 3.0 / (1 - slowdown), 0.0), slowdown)]
    first, last = pipeline_ends(orders, **work), pipeline_ends(orders, messages=messages, **work)
    assert last.device_s[0] - first.device_s[0] == pytest.approx(slowdown * beside_s, abs=1e-12)
    added_s = last.device_s[1] + last.left_s[1] - first.device_s[1]
    assert added_s == pytest.approx(float(slowed_exchange(**sent)))
