"""Asynchronous schemes: the simulator, with times drawn, confirms the closed forms within its own error."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.cost.order_statistics import Empirical, LogNormal, Normal, ShiftedExponential, Unequal
from perfmodel.errors import ArgumentError
from perfmodel.simulation.asynchronous import play_asynchronous
from perfmodel.sync.asynchronous import SCHEMES
from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers

ERRORS = 4
"""Standard errors that a correct form may be off by; one in 16,000 is further."""

NUMBERS = AsynchronousNumbers(
    compute_s=8.2e-3,
    worker_count=12,
    push_latency_s=1e-4,
    pull_latency_s=2e-4,
    push_s=0.3e-3,
    update_s=0.5e-3,
    pull_s=0.2e-3,
    compensation_s=0.2e-3,
    times=Normal(0.1),
    group_size=3,
    group_sync_s=1e-3,
    staleness_bound=2,
)


def both(scheme, numbers, *, step_count=300, seed=3):
    played = play_asynchronous(SCHEMES[scheme].in_effect(numbers), step_count=step_count, seed=seed)
    return SCHEMES[scheme].times(numbers), played


@pytest.mark.parametrize(
    ("scheme", "changes"),
    [
        ("downpour", {}),
        ("downpour", {"worker_count": 24}),
        ("downpour", {"each_part_queues": True}),
        ("downpour", {"each_part_queues": True, "server_count": 3}),
        ("downpour", {"each_part_queues": True, "push_period": 4, "pull_period": 4}),
        ("downpour", {"each_part_queues": True, "push_period": 1, "pull_period": 5}),
        ("downpour", {"times": ShiftedExponential(1.0)}),
        ("downpour", {"times": LogNormal(0.5)}),
        ("delay_compensated", {}),
        ("delay_compensated", {"worker_count": 18, "each_part_queues": True}),
        ("mixed", {}),
        ("mixed", {"group_size": 1, "group_sync_s": 0.0}),
        ("mixed", {"worker_count": 24, "group_size": 2, "times": LogNormal(0.3)}),
        ("mixed", {"times": Empirical(times=[1.0, 1.0, 1.0, 1.5])}),
    ],
)
def test_the_simulator_confirms_a_scheme_within_its_error(scheme, changes):
    long = isinstance(changes.get("times"), ShiftedExponential)  # until the last ends, the server waits for it
    expected, played = both(scheme, replace(NUMBERS, **changes), step_count=600 if long else 300)
    assert played.step_s_error < 0.02 * played.step_s  # an error that excuses everything would prove nothing
    assert abs(played.step_s - expected.step_s) < ERRORS * played.step_s_error
    assert played.server_utilisation == pytest.approx(float(expected.server_utilisation), rel=0.05)
    assert played.mean_staleness == pytest.approx(float(expected.mean_staleness), rel=0.02)


def test_without_the_queue_the_simulator_would_not_agree():
    expected, played = both("downpour", replace(NUMBERS, worker_count=18), step_count=600)
    alone = SCHEMES["downpour"].times(replace(NUMBERS, worker_count=1, group_size=1))
    assert abs(played.step_s - expected.step_s) < ERRORS * played.step_s_error
    assert played.step_s - float(alone.step_s) > 20 * played.step_s_error


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    st.integers(1, 12),
    st.floats(0.02, 0.4),
    st.sampled_from([Normal(0.1), LogNormal(0.5), ShiftedExponential(1.0)]),
    st.integers(0, 1000),
)
def test_any_downpour_is_confirmed(workers, service, times, seed):
    numbers = AsynchronousNumbers(compute_s=1.0, update_s=service, worker_count=workers, times=times)
    expected, played = both("downpour", numbers, step_count=400, seed=seed)
    # a fixed seed is one draw, hypothesis takes many: five errors, and what 20 batches do not see
    assert abs(played.step_s - expected.step_s) < 5 * played.step_s_error + 0.004 * played.step_s


@pytest.mark.parametrize(
    ("changes", "beyond"),
    [
        ({"staleness_bound": 2}, 0.01),
        ({"staleness_bound": 1, "times": Normal(0.3), "worker_count": 6}, 0.01),
        ({"staleness_bound": 4, "times": Normal(0.3)}, 0.01),
        ({"staleness_bound": 0}, 0.01),
        ({"staleness_bound": 0, "worker_count": 6}, 0.02),
        ({"staleness_bound": 2, "times": LogNormal(0.5), "update_s": 1e-4}, 0.04),
    ],
)
def test_bounded_staleness_is_close_where_its_form_is_not_exact(changes, beyond):
    numbers = replace(NUMBERS, **changes)
    expected, played = both("bounded_staleness", numbers)
    assert abs(played.step_s - expected.step_s) < ERRORS * played.step_s_error + beyond * played.step_s


@pytest.mark.parametrize(
    ("workers", "asked_share", "times", "beyond", "bound"),
    [
        (2, 1.0, None, 0.05, 0),
        (2, 1.0, None, 0.05, 1),
        (8, 0.1, Normal(0.3), 0.01, 4),
        (8, 0.86, Normal(0.1), 0.03, 1),
        (8, 0.99, LogNormal(0.3), 0.03, 0),
        (8, 0.99, LogNormal(0.3), 0.03, 4),
        (4, 1.3, Normal(0.3), 0.03, 1),
        (8, 0.7, ShiftedExponential(0.5), 0.05, 4),
        (16, 0.99, Normal(0.1), 0.02, 0),
        (16, 0.99, Normal(0.1), 0.02, 1),
    ],
)
def test_a_bound_before_a_busy_server_costs_what_is_played(workers, asked_share, times, beyond, bound):
    """The accuracy that the scheme states; asked_share is what the server would have to do without any queue."""
    service_s = asked_share / (workers - asked_share)
    numbers = AsynchronousNumbers(
        compute_s=1.0, update_s=service_s, worker_count=workers, staleness_bound=bound, times=times
    )
    expected, played = both("bounded_staleness", numbers, step_count=3200 // workers, seed=5)
    assert played.step_s_error < 0.025 * played.step_s
    assert abs(played.step_s - expected.step_s) < 3 * played.step_s_error + beyond * played.step_s


def test_a_bound_costs_a_saturated_server_little_and_an_idle_one_all_of_the_waiting():
    saturated, idle = (
        AsynchronousNumbers(compute_s=1.0, update_s=service_s, worker_count=16, times=Normal(0.1))
        for service_s in (0.2, 0.0)
    )

    def dearer(numbers):
        bound, free = (
            SCHEMES[name].times(replace(numbers, staleness_bound=1)).step_s
            for name in ("bounded_staleness", "downpour")
        )
        return bound / free - 1

    assert 0 < dearer(saturated) < 0.25 * dearer(idle)


@pytest.mark.parametrize("times", [Normal(0.05), Normal(0.2), LogNormal(0.3)])
def test_steps_that_begin_together_last_as_long_as_the_slowest(times):
    numbers = AsynchronousNumbers(compute_s=1.0, worker_count=16, staleness_bound=0, times=times)
    expected, played = both("bounded_staleness", numbers)
    assert expected.step_s == pytest.approx(times.order_statistic(rank=16, count=16), rel=1e-9)
    assert abs(played.step_s - expected.step_s) < ERRORS * played.step_s_error


def test_no_worker_is_further_ahead_than_the_bound():
    numbers = replace(NUMBERS, staleness_bound=2, times=ShiftedExponential(1.0), worker_count=6)
    used = SCHEMES["bounded_staleness"].in_effect(numbers)
    timeline = play_asynchronous(used, step_count=200).timeline
    for step in range(3, 200):
        slowest = max(timeline.span(f"{worker}/pushed/{step - 3}").end_s for worker in range(6))
        assert min(timeline.span(f"{worker}/compute/{step}/0").start_s for worker in range(6)) >= slowest


def test_equal_services_queue_before_the_slowest_part_only():
    given = replace(NUMBERS, service_variation=0.0, worker_count=15)
    each, one = (play_asynchronous(SCHEMES["downpour"].in_effect(replace(given, each_part_queues=every)),
                                   step_count=300, seed=1) for every in (True, False))  # fmt: skip
    assert each.step_s == pytest.approx(one.step_s, rel=0.002)


def test_the_correction_for_equal_services_is_close():
    expected, played = both("downpour", replace(NUMBERS, service_variation=0.0))
    exponential = SCHEMES["downpour"].times(NUMBERS)
    assert expected.step_s == pytest.approx(played.step_s, rel=0.01)
    assert abs(exponential.step_s - played.step_s) > 2 * abs(expected.step_s - played.step_s)


def test_workers_of_two_speeds():
    times = Unequal([2.0, 2.0, 1.0, 1.0, 1.0, 1.0])
    numbers = AsynchronousNumbers(compute_s=4e-3, update_s=0.4e-3, push_latency_s=1e-4, worker_count=6, times=times)
    kinds = SCHEMES["downpour"].times(numbers).kinds[::-1]
    timeline = play_asynchronous(SCHEMES["downpour"].in_effect(numbers), step_count=1500).timeline
    until_s = timeline.span("5/end/1400").end_s
    for worker, kind in ((0, kinds[0]), (1, kinds[0]), (2, kinds[1]), (5, kinds[1])):
        ends = np.array([timeline.span(f"{worker}/end/{step}").end_s for step in range(1500)])
        ends = ends[ends < until_s]
        steps = np.diff(ends)
        assert abs(steps.mean() - kind.step_s) < 6 * steps.std() / np.sqrt(len(steps))
    assert kinds[0].mean_staleness > 2 * kinds[1].mean_staleness > 5


MANY_SPEEDS = Unequal([1.0] * 6 + [2.0] * 3 + [1.5, 3.0, 0.7])


@pytest.mark.parametrize(
    ("scheme", "changes"),
    [
        ("downpour", {}),
        ("downpour", {"update_s": 1e-3}),
        ("downpour", {"each_part_queues": True, "server_count": 2}),
        ("downpour", {"push_period": 2, "pull_period": 3}),
        ("delay_compensated", {}),
        ("mixed", {}),
        ("mixed", {"group_size": 2, "update_s": 2e-3}),
    ],
)
def test_unequal_workers_are_confirmed_within_the_error(scheme, changes):
    expected, played = both(scheme, replace(NUMBERS, times=MANY_SPEEDS, **changes), step_count=400)
    assert played.step_s_error < 0.02 * played.step_s
    assert abs(played.step_s - expected.step_s) < ERRORS * played.step_s_error
    assert played.mean_staleness == pytest.approx(float(expected.mean_staleness), rel=0.02)
    as_the_slowest = SCHEMES[scheme].times(replace(NUMBERS, times=Unequal([3.0] * 12), **changes))
    assert as_the_slowest.step_s - played.step_s > 10 * played.step_s_error  # nobody waits for the slowest


@pytest.mark.parametrize("bound", [0, 2])
@pytest.mark.parametrize(
    ("slow_count", "slow", "beyond"), [(1, 1.6, 0.03), (4, 1.6, 0.05), (1, 1.3, 0.05), (2, 2.5, 0.04)]
)
def test_all_go_at_the_pace_of_the_slowest_where_staleness_is_bounded(slow_count, slow, beyond, bound):
    times = Unequal([1.0] * (12 - slow_count) + [slow] * slow_count)
    expected, played = both("bounded_staleness", replace(NUMBERS, times=times, staleness_bound=bound), step_count=300)
    assert abs(played.step_s - expected.step_s) < ERRORS * played.step_s_error + beyond * played.step_s
    assert played.step_s > slow * 8.2e-3
    if bound:
        assert played.mean_staleness == pytest.approx(float(expected.mean_staleness), rel=0.2)
        assert played.mean_staleness < 0.7 * 11  # a fraction of what it would be without waiting


def test_another_variation_than_the_exponential_has_no_form_for_unequal_workers():
    with pytest.raises(ArgumentError, match="service_variation"):
        SCHEMES["downpour"].times(replace(NUMBERS, times=MANY_SPEEDS, service_variation=0.5))
    with pytest.raises(ArgumentError, match="each of the 6 workers"):
        replace(NUMBERS, times=MANY_SPEEDS, worker_count=6)


def test_too_few_steps_are_refused():
    with pytest.raises(ArgumentError, match="step_count"):
        play_asynchronous(SCHEMES["downpour"].in_effect(NUMBERS), step_count=10)
