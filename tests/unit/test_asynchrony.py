"""Published and hand-worked numbers of queues, stragglers, compensation and effective progress."""

import doctest
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sympy
from scipy.special import ndtr
from scipy.stats import beta, norm

from perfmodel.cost import queueing
from perfmodel.cost.order_statistics import Empirical, LogNormal, Normal, normal_order_statistic
from perfmodel.cost.queueing import (
    closed_network,
    knee,
    mean_staleness,
    staleness_of_rates,
    throughput_bound,
    unequal_workers,
)
from perfmodel.cost.staleness import (
    backup_bytes,
    bounded_staleness_excess,
    extra_flop_count,
    extra_service_time,
    steps_to_target,
)
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.measurements import load_scaling
from perfmodel.prediction.job.straggler import straggler_of
from perfmodel.sync.asynchronous import SCHEMES, scheme_of
from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers

SERVER = {"think_s": 8.2e-3, "station_s": (0.5e-3,)}
THROUGHPUT = {4: (454.753, 459.770), 11: (1194.916, 1264.368), 16: (1624.841, 1839.080), 24: (1964.126, 2000.0)}
THROUGHPUT |= {32: (1999.570, 2000.0)}


@pytest.mark.parametrize("workers", THROUGHPUT)
def test_throughput_and_its_bound(workers):
    exact, bound = THROUGHPUT[workers]
    assert closed_network(worker_count=workers, **SERVER).throughput_per_s == pytest.approx(exact, abs=6e-4)
    assert throughput_bound(worker_count=workers, **SERVER) == pytest.approx(bound, abs=6e-4)


def test_counts_and_times_may_be_arrays_and_times_symbols():
    counts = np.array([4, 32, 11])
    found = closed_network(worker_count=counts, **SERVER)
    assert found.throughput_per_s == pytest.approx([THROUGHPUT[count][0] for count in counts], abs=6e-4)
    assert found.response_s[2] == pytest.approx(1.00567e-3, abs=6e-9)
    think, service = sympy.symbols("Z S", positive=True)
    exact = closed_network(worker_count=3, think_s=think, station_s=(service,)).throughput_per_s
    assert float(exact.subs({think: 8.2e-3, service: 0.5e-3})) == pytest.approx(
        float(closed_network(worker_count=3, **SERVER).throughput_per_s), rel=1e-12
    )
    assert knee(think_s=think, station_s=(service,)).subs({think: 8.2, service: 0.5}) == pytest.approx(17.4)
    with pytest.raises(ArgumentError, match="not a symbol"):
        closed_network(worker_count=think, **SERVER)


def test_two_workers_by_hand():
    # alone each takes Z + S; one of the two finds the other at the server with probability S / (Z + S)
    found = closed_network(worker_count=2, think_s=3.0, station_s=(1.0,))
    assert found.response_s == pytest.approx(1 + 1 / 4)
    assert found.throughput_per_s == pytest.approx(2 / 4.25)


def test_shards_share_the_service_and_their_queues():
    one, four = (closed_network(worker_count=24, server_count=count, **SERVER) for count in (1, 4))
    assert 0.5e-3 < float(four.response_s) < 0.75e-3 < float(one.response_s)
    assert knee(**SERVER, server_count=4) == pytest.approx(4 * 17.4)
    assert four.utilisation == pytest.approx(four.throughput_per_s * 0.125e-3)


def test_queues_never_exceed_the_asymptotes_and_grow_with_the_workers():
    counts = np.arange(1, 60)
    for variation in (0.0, 0.5, 1.0):
        found = closed_network(worker_count=counts, service_variation=variation, **SERVER)
        bounds = throughput_bound(worker_count=counts, **SERVER)
        assert np.all(found.throughput_per_s <= bounds * (1 + 1e-12))
        assert np.all(np.diff(found.throughput_per_s) >= -1e-9)
        assert np.all(found.utilisation <= 1 + 1e-12)


def test_equal_kinds_are_as_one_kind_and_slow_ones_are_staler():
    rates = unequal_workers(worker_counts=(3, 4), think_s=(8.2e-3, 8.2e-3), station_s=(0.5e-3, 0.2e-3))
    together = closed_network(worker_count=7, think_s=8.2e-3, station_s=(0.5e-3, 0.2e-3)).throughput_per_s
    assert rates == pytest.approx([float(together) / 7] * 2, rel=1e-12)
    assert staleness_of_rates(worker_counts=(1, 2), rates_per_s=(1.0, 1.0)) == (2.0, 2.0)
    with pytest.raises(ArgumentError, match="one time for each"):
        unequal_workers(worker_counts=(1, 2), think_s=(1.0,), station_s=(0.1,))


def by_populations(counts, think_s, station_s):
    """Rates by mean value analysis over all smaller populations, as its authors print it: an independent way."""
    station_s = np.array(station_s)
    queues, rates = {(0,) * len(counts): np.zeros(len(station_s))}, [0.0] * len(counts)
    for present in itertools.product(*(range(count + 1) for count in counts)):
        queue = np.zeros(len(station_s))
        for kind, count in enumerate(present):
            if count:
                less = tuple(each - (place == kind) for place, each in enumerate(present))
                spent = station_s * (1 + queues[less])
                rates[kind] = 1 / (think_s[kind] + spent.sum())
                queue += count * rates[kind] * spent
        queues[present] = queue
    return rates


@pytest.mark.parametrize(
    ("counts", "think_s", "station_s", "shards"),
    [
        ((2, 3, 4), (10e-3, 5e-3, 1e-3), (0.5e-3, 0.2e-3, 0.4e-3), 1),
        ((1, 1, 1, 1), (0.1, 1.0, 3.0, 0.0), (1.0,), 1),
        ((3, 2), (1.0, 0.5), (1.0, 0.3), 4),
    ],
)
def test_unequal_rates_are_those_of_all_smaller_populations(counts, think_s, station_s, shards):
    rates = unequal_workers(worker_counts=counts, think_s=think_s, station_s=station_s, server_count=shards)
    demands = [seconds / shards for seconds in station_s for _ in range(shards)]
    assert rates == pytest.approx(by_populations(counts, think_s, demands), rel=1e-12)


def test_unequal_rates_of_arrays_and_symbols_are_those_of_numbers():
    service, think = sympy.symbols("S Z", positive=True)
    found = unequal_workers(worker_counts=(2, 1), think_s=(think, 2 * think), station_s=(service, service / 2))
    times = np.array([1.0, 3.0])
    arrays = unequal_workers(worker_counts=(2, 1), think_s=(times, 2 * times), station_s=(0.5, 0.25))
    for place, value in enumerate(times):
        numbers = unequal_workers(worker_counts=(2, 1), think_s=(value, 2 * value), station_s=(0.5, 0.25))
        assert [float(each.subs({service: 0.5, think: value})) for each in found] == pytest.approx(numbers)
        assert [each[place] for each in arrays] == pytest.approx(numbers)


@pytest.mark.parametrize("think", ["alike", "of all sizes", "one that never thinks"])
@pytest.mark.parametrize("load", [1e-3, 0.9, 1.0, 1.1, 30.0])
@pytest.mark.parametrize("counts", [(1,), (2, 1), (1,) * 40, (90, 1, 30)], ids=len)
def test_the_integral_at_one_station_is_the_recursion(counts, load, think, monkeypatch):
    monkeypatch.setattr(queueing, "MANY_WORKERS", 1)
    kinds = len(counts)
    drawn = np.random.default_rng(kinds).uniform(size=kinds)
    think_s = 10 ** (4 * drawn) if think == "of all sizes" else 1 + drawn
    if think == "one that never thinks" and kinds > 1:
        think_s[-1] = 0.0
    service_s = load * float(think_s @ counts) / sum(counts) ** 2
    rates = unequal_workers(worker_counts=counts, think_s=think_s, station_s=(service_s,))
    recursion = 1 / (think_s + queueing._responses_s(counts, think_s, [service_s]))
    assert rates == pytest.approx(recursion, rel=1e-12)


def test_integrals_of_many_networks_are_those_of_each(monkeypatch):
    monkeypatch.setattr(queueing, "_MOST_AT_ONCE", 300)  # two at once, one kind at once
    counts, service_s = (30, 5), np.linspace(0.0, 0.3, 6).reshape(2, 3)
    rates = unequal_workers(worker_counts=counts, think_s=(1.0, 2.0), station_s=(service_s,))
    for at in np.ndindex(service_s.shape):
        alone = unequal_workers(worker_counts=counts, think_s=(1.0, 2.0), station_s=(float(service_s[at]),))
        assert [rate[at] for rate in rates] == pytest.approx(alone, rel=1e-14)
    assert rates[1][0, 0] == pytest.approx(0.5, rel=1e-14)


def test_networks_that_are_alike_have_the_same_rates_in_their_own_places(monkeypatch):
    timed = []
    of_networks = queueing._rates_at_one_station
    monkeypatch.setattr(
        queueing, "_rates_at_one_station", lambda *args: timed.append(len(args[2])) or of_networks(*args)
    )
    counts, service_s = (20, 30), np.array([0.03, 0.01, 0.03, 0.02, 0.01])
    rates = np.array(unequal_workers(worker_counts=counts, think_s=(1.0, 2.0), station_s=(service_s,)))
    assert timed == [3]
    for at, seconds in enumerate(service_s.tolist()):
        alone = unequal_workers(worker_counts=counts, think_s=(1.0, 2.0), station_s=(seconds,))
        assert rates[:, at] == pytest.approx(alone, rel=1e-14)


@pytest.mark.parametrize("load", [0.5, 1.0, 3.0])
def test_16384_workers_of_hardly_different_speeds_are_as_fast_as_equal_ones(load):
    # the recursion over kinds took more than a minute
    think_s = 1 + 1e-9 * np.linspace(-1.0, 1.0, 16384)
    service_s = load / 16384
    rates = unequal_workers(worker_counts=(1,) * 16384, think_s=think_s, station_s=(service_s,))
    equal = closed_network(worker_count=16384, think_s=1.0, station_s=(service_s,))
    assert sum(rates) == pytest.approx(float(equal.throughput_per_s), rel=1e-11)
    assert rates[0] / rates[-1] == pytest.approx(1 + 2e-9 * rates[0], abs=1e-12)


def test_many_speeds_stay_below_the_asymptotes():
    think_s = list(np.linspace(1.0, 3.0, 120))
    rates = unequal_workers(worker_counts=(1,) * 120, think_s=think_s, station_s=(0.02,))
    assert np.all(np.diff(rates) < 0)
    assert 0.97 / 0.02 < sum(rates) < 1 / 0.02


@pytest.mark.parametrize(
    ("times", "match"), [([1.0, 0.0], "above zero"), ("12", "above zero"), ([], "above zero"), ([1.0, True], "above")]
)
def test_wrong_lasting_times_are_refused(times, match):
    with pytest.raises(ArgumentError, match=match):
        straggler_of({"distribution": "unequal", "times": times})


def test_lasting_times_are_ordered_grouped_and_repeated():
    times = straggler_of({"distribution": "unequal", "times": [1.0, 3.0, 2.0, 1.0]})
    assert times.slowest_s(compute_s=0.5, worker_count=4) == 1.5
    backed = replace(times, backup_workers=1)
    assert backed.slowest_s(compute_s=0.5, worker_count=4) == 1.0
    assert backed.drawn(step_count=2, worker_count=4, seed=7).tolist() == [[1.0, 2.0, 2.0, 1.0]] * 2
    assert times.times.kinds(worker_count=4, group_size=2) == ((1, 2.0), (1, 3.0))
    with pytest.raises(ArgumentError, match="each of the 5 workers"):
        times.slowest_s(compute_s=1.0, worker_count=5)


@pytest.mark.parametrize(("workers", "expected"), [(4, 3), (11, 10), (16, 15), (24, 23), (32, 31)])
def test_staleness_is_all_others(workers, expected):
    assert mean_staleness(worker_count=workers) == expected
    assert scheme_of("downpour").times(
        AsynchronousNumbers(compute_s=8.2e-3, update_s=0.5e-3, worker_count=workers)
    ).mean_staleness == pytest.approx(expected)


def test_delay_compensation_counts():
    assert extra_flop_count(parameter_count=55_050) == 275_250
    assert extra_flop_count(parameter_count=55_050) / 5e9 == pytest.approx(0.055e-3, abs=1e-6)
    assert backup_bytes(parameter_bytes=220_200, worker_count=11) == 2_422_200
    assert backup_bytes(parameter_bytes=102_228_128, worker_count=16) / 1e9 == pytest.approx(1.63565, abs=5e-6)
    assert extra_service_time(parameter_bytes=1e6, memory_bytes_per_s=1e9) == pytest.approx(3e-3)


def test_mixed_groups():
    numbers = {"compute_s": 0.08, "group_sync_s": 0.01, "update_s": 0.01, "group_size": 4}
    four, sixteen = (SCHEMES["mixed"].times(AsynchronousNumbers(worker_count=4 * n, **numbers)) for n in (4, 16))
    assert four.knee == pytest.approx(10)
    assert four.mean_staleness == 3
    assert float(four.updates_per_s) < 40
    assert float(four.updates_per_s) == pytest.approx(40, rel=0.05)
    assert 95 < float(sixteen.updates_per_s) < 100
    assert four.batches_per_update == 4


ORDER = {2: (0.56419, 0.58946, 1.5), 4: (1.02938, 1.04913, 2.083333), 8: (1.42360, 1.43420, 2.717857)}
ORDER |= {16: (1.76599, 1.76883, 3.380729), 32: (2.06967, 2.06673, 4.058495), 40: (2.16078, 2.15636, 4.278543)}
ORDER |= {64: (2.34373, 2.33669, 4.743891), 100: (2.50759, 2.49859, 5.187378)}
LOGNORMAL = {2: (1.06167, 1.22176), 4: (1.11117, 1.39287), 8: (1.15516, 1.55934), 16: (1.19493, 1.72190)}
LOGNORMAL |= {32: (1.23144, 1.88152), 40: (1.24263, 1.93244), 64: (1.26542, 2.03917), 100: (1.28620, 2.14003)}


@pytest.mark.parametrize("workers", ORDER)
def test_expected_largest(workers):
    exact, blom, harmonic = ORDER[workers]
    count = sympy.Symbol("p", positive=True)
    assert normal_order_statistic(rank=workers, count=workers) == pytest.approx(exact, abs=6e-6)
    symbolic = normal_order_statistic(rank=count, count=count)
    assert float(symbolic.subs(count, workers)) == pytest.approx(blom, abs=6e-6)
    tail = straggler_of({"distribution": "shifted_exponential", "cv": 1.0})
    assert tail.slowest_s(compute_s=1.0, worker_count=workers) == pytest.approx(harmonic, abs=6e-7)
    assert float(tail.slowest_s(compute_s=1, worker_count=count).subs(count, workers)) == pytest.approx(harmonic)
    for sigma, expected in zip((0.1, 0.3), LOGNORMAL[workers], strict=True):
        times = LogNormal(cv=float(np.sqrt(np.exp(sigma**2) - 1)))
        largest = times.order_statistic(rank=workers, count=workers) * np.exp(sigma**2 / 2)
        assert largest == pytest.approx(expected, abs=6e-6)


def test_forty_workers():
    for cv, expected in ((0.05, 1.1080), (0.1, 1.2161)):
        straggler = straggler_of({"distribution": "normal", "cv": cv})
        assert straggler.slowest_s(compute_s=1.0, worker_count=40) == pytest.approx(expected, abs=6e-5)
    tail = {"distribution": "shifted_exponential", "cv": 0.1}
    assert straggler_of(tail).slowest_s(compute_s=1.0, worker_count=40) == pytest.approx(1.32785, abs=6e-6)
    dropped = straggler_of(tail, backup_workers=2).slowest_s(compute_s=1.0, worker_count=40)
    assert dropped == pytest.approx(1.17785, abs=6e-6)


@pytest.mark.parametrize("cv", [0.2, 0.3, 0.31, 0.6, 1.0])
def test_a_normal_time_is_cut_off_where_it_would_be_negative(cv):
    times = Normal(cv)
    drawn = times.draw(200_000, generator=np.random.default_rng(1)).reshape(-1, 8)
    assert drawn.min() >= 0
    assert times.order_statistic(rank=1, count=1) == pytest.approx(1.0, abs=1e-9)
    error = drawn.max(axis=1).std() / np.sqrt(len(drawn))
    assert abs(times.order_statistic(rank=8, count=8) - drawn.max(axis=1).mean()) < 4 * error
    assert times.variation == pytest.approx(drawn.std(), rel=0.01)


def test_empirical_times_are_exact():
    times = Empirical(times=[1.0, 1.0, 4.0])  # of two, the larger is 4 but for both being 1: 5 cases of 9
    assert times.order_statistic(rank=2, count=2) == pytest.approx((5 * 4 + 4 * 1) / 9 / 2)
    assert times.order_statistic(rank=1, count=2) == pytest.approx((1 * 4 + 8 * 1) / 9 / 2)
    assert times.variation == pytest.approx(np.std([0.5, 0.5, 2.0]))


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"distribution": "normal"}, "must give cv and nothing else for distribution normal"),
        ({"distribution": "normal", "cv": -0.1}, r"cv must.*\(got -0.1"),
        ({"distribution": "shifted_exponential", "cv": 1.1}, "0 to 1"),
        ({"distribution": "empirical", "times": []}, "at least one"),
        ({"distribution": "empirical", "times": [1.0, 0.0]}, "above zero"),
        ({"distribution": "lognormal", "cv": 0.1, "mean": 1}, "must give cv and nothing else"),
        ({"cv": 0.1}, "'distribution'"),
    ],
)
def test_wrong_stragglers_are_refused(given, match):
    with pytest.raises(ArgumentError, match=match):
        straggler_of(given)


def test_unknown_names_and_too_many_backups_are_refused():
    with pytest.raises(UnknownNameError, match="Did you mean 'lognormal'"):
        straggler_of({"distribution": "log_normal", "cv": 0.1})
    with pytest.raises(UnknownNameError, match="Did you mean 'downpour'"):
        scheme_of("downpor")
    with pytest.raises(ArgumentError, match="below workers="):
        straggler_of({"distribution": "normal", "cv": 0.1}, backup_workers=4).slowest_s(compute_s=1.0, worker_count=4)
    with pytest.raises(ArgumentError, match=">= 0"):
        straggler_of({"distribution": "normal", "cv": 0.1}, backup_workers=-1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"staleness_bound": -1},
        {"group_size": 3},
        {"worker_count": 0},
        {"push_period": 0},
        {"pull_period": 1.5},
        {"server_count": 0},
        {"compute_s": -1.0},
        {"update_s": float("nan")},
    ],
)
def test_wrong_numbers_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ArgumentError, match=name):
        AsynchronousNumbers(**({"compute_s": 1.0, "worker_count": 8} | wrong))
    with pytest.raises(ArgumentError, match="staleness_bound"):
        SCHEMES["bounded_staleness"].times(AsynchronousNumbers(compute_s=1.0, worker_count=8))


def test_bounds_of_bounded_staleness():
    numbers = {"worker_count": 16, "largest_excess": 0.3, "variation": 0.2}
    assert bounded_staleness_excess(staleness_bound=0, **numbers) == pytest.approx(0.3)
    excess = bounded_staleness_excess(staleness_bound=np.arange(50), **numbers)
    assert np.all(np.diff(excess) < 0)
    assert excess[-1] < 0.002
    assert bounded_staleness_excess(worker_count=16, staleness_bound=3, largest_excess=0.0, variation=0.0) == 0
    bound = sympy.Symbol("s")
    assert float(bounded_staleness_excess(staleness_bound=bound, **numbers).subs(bound, 3)) == pytest.approx(excess[3])


def test_all_but_the_counts_may_be_symbols():
    names = sympy.symbols("C P U D R", positive=True)
    values = dict(zip(names, (8.2e-3, 0.2e-3, 0.1e-3, 0.3e-3, 0.05e-3), strict=True))

    def times(numbers):
        compute_s, push_s, update_s, compensation_s, latency_s = numbers
        given = AsynchronousNumbers(
            compute_s=compute_s, push_s=push_s, update_s=update_s, compensation_s=compensation_s,
            push_latency_s=latency_s, worker_count=3, staleness_bound=2, times=Normal(0.1),
        )  # fmt: skip
        return [scheme.times(given) for scheme in SCHEMES.values()]

    for symbolic, numeric in zip(times(names), times(values.values()), strict=True):
        assert float(symbolic.step_s.subs(values)) == pytest.approx(float(numeric.step_s), rel=1e-9)
        assert float(symbolic.knee.subs(values)) == pytest.approx(float(numeric.knee), rel=1e-9)


def test_effective_progress_is_off_unless_asked():
    given = {"least_steps": 1000, "critical_batch": 1000}
    for size, steps, examples in ((1000, 2000, 2e6), (4000, 1250, 5e6)):
        assert steps_to_target(global_batch_size=size, **given) == steps
        assert steps_to_target(global_batch_size=size, **given) * size == examples
    assert steps_to_target(global_batch_size=1000, staleness=10, **given) == 2000
    assert steps_to_target(global_batch_size=1000, staleness=10, staleness_penalty=0.01, **given) == pytest.approx(2200)


def test_claims_of_the_survey():
    for row in load_scaling("wuensche2018_multi_gpu").rows:
        assert row["speedup"] == pytest.approx(1 / (1 - row["time_reduction"]), abs=6e-6)


def test_the_page_prints_what_it_says():
    page = Path(__file__).parents[2] / "docs" / "asynchrony.md"
    outcome = doctest.testfile(str(page), module_relative=False)
    assert outcome.failed == 0
    assert outcome.attempted > 5


POINTS = np.linspace(-12, 12, 4001)
OF_POINTS = {
    Normal(0.1): 1 + 0.1 * POINTS,
    LogNormal(0.4): np.exp(np.sqrt(np.log(1.16)) * POINTS) / np.sqrt(1.16),
    Empirical([1.0, 1.5, 4.0]): np.array([1.0, 1.5, 4.0])[np.searchsorted([1 / 3, 2 / 3], ndtr(POINTS))] * 3 / 6.5,
}


@pytest.mark.parametrize("times", list(OF_POINTS), ids=str)
def test_many_ranks_at_once_are_the_integral_of_each_over_all_points(times):
    ranks = np.arange(1, 101)
    at_once = times.order_statistic(rank=ranks, count=100)
    tolerance = 1e-2 if isinstance(times, Empirical) else 1e-10  # steps of its times lie between two points
    for rank, found in zip(ranks.tolist(), at_once, strict=True):
        assert found == pytest.approx(times.order_statistic(rank=rank, count=100), rel=1e-13)
        weights = beta.pdf(ndtr(POINTS), rank, 101 - rank) * norm.pdf(POINTS) * (POINTS[1] - POINTS[0])
        assert found == pytest.approx(weights @ OF_POINTS[times], rel=tolerance)
    counts = np.array([3, 100])
    of_both = times.order_statistic(rank=np.minimum.outer(np.arange(1, 5), counts), count=counts)
    alone = [[times.order_statistic(rank=min(k, n), count=n) for n in (3, 100)] for k in range(1, 5)]
    assert of_both == pytest.approx(np.array(alone), rel=1e-13)
