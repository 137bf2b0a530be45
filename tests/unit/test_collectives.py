"""Collective algorithms against worked numbers and hand counts."""

import doctest
import math
from pathlib import Path

import numpy as np
import pytest
import sympy

from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.sync.base import SERVER, group_count
from perfmodel.sync.registry import ALL_REDUCES, COLLECTIVES, collective
from perfmodel.sync.trees import colours, two_trees

RESNET50_BYTES = 102_228_128
LINK = {"latency_s": 5e-6, "seconds_per_byte": 1e-10, "reduce_s_per_byte": 1e-11}


def milliseconds(name, workers, size_bytes=RESNET50_BYTES, **given):
    return 1e3 * float(collective(name).time(size_bytes=size_bytes, worker_count=workers, **{**LINK, **given}))


@pytest.mark.parametrize(
    ("workers", "ring", "doubling", "halving", "binomial", "one_shard", "four_shards"),
    [
        (2, 10.74395, 11.25009, 10.74395, 21.47791, 40.90125, 20.45563),
        (4, 16.13093, 22.50019, 16.12093, 42.95581, 81.79250, 20.45563),
        (8, 18.85442, 33.75028, 18.81442, 64.43372, 163.57500, 40.90125),
        (16, 20.27616, 45.00038, 20.16616, 85.91163, 327.14001, 81.79250),
        (40, 21.32121, 77.72838, 42.32494, 128.86744, 817.83502, 204.46626),
        (64, 21.76247, 67.50056, 21.19247, 128.86744, 1308.53004, 327.14004),
    ],
)
def test_worked_numbers_of_all_reduces(workers, ring, doubling, halving, binomial, one_shard, four_shards):
    # 102,228,128 B, 5 us, 10 GB/s, 100 GB/s of adding; the servers' rows are worked without adding
    for name, told in (
        ("ring_all_reduce", ring),
        ("recursive_doubling", doubling),
        ("halving_doubling", halving),
        ("binomial_tree", binomial),
    ):
        assert milliseconds(name, workers) == pytest.approx(told, rel=1e-4), name
    plain = {"reduce_s_per_byte": 0.0}
    assert milliseconds("parameter_server", workers, **plain) == pytest.approx(one_shard, rel=1e-4)
    assert milliseconds("parameter_server", workers, server_count=4, **plain) == pytest.approx(four_shards, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "workers", "size_bytes", "told_ms"),
    [
        # levels L = 3 and 6; 2 (L - 1 + k) rounds, (2 + (2 L - 3) / k) times the bytes: k = 64 and 128 chunks, and 1
        ("double_binary_tree", 8, RESNET50_BYTES, 1e3 * (132 * 5e-6 + (2 + 3 / 64) * 0.0102228128)),
        ("double_binary_tree", 64, RESNET50_BYTES, 1e3 * (266 * 5e-6 + (2 + 9 / 128) * 0.0102228128)),
        ("double_binary_tree", 64, 4096, 1e3 * (12 * 5e-6 + 11 * 4.096e-7)),
        ("library_trees", 8, RESNET50_BYTES, 22.72079),
        ("library_trees", 64, RESNET50_BYTES, 23.69834),
        ("library_trees", 64, 4096, 0.140649),
        ("ring_all_reduce", 64, 4096, 0.630806),
        ("recursive_doubling", 64, 4096, 0.032458),
        ("ring_all_reduce", 8, 4096, 0.0707168),
        ("recursive_doubling", 8, 4096, 0.0162288),
        ("halving_doubling", 8, 4096, 0.0307168),
    ],
)
def test_worked_numbers_without_adding(name, workers, size_bytes, told_ms):
    assert milliseconds(name, workers, size_bytes, reduce_s_per_byte=0.0) == pytest.approx(told_ms, rel=1e-4)


def test_doubling_and_halving_cross_at_120_000_bytes():
    size = sympy.Symbol("n", positive=True)
    numbers = {
        "size_bytes": size,
        "worker_count": 8,
        "latency_s": sympy.Rational(5, 10**6),
        "seconds_per_byte": sympy.Rational(1, 10**10),
        "reduce_s_per_byte": 0,
    }
    difference = collective("recursive_doubling").time(**numbers) - collective("halving_doubling").time(**numbers)
    assert [float(root) for root in sympy.solve(sympy.nsimplify(difference), size)] == pytest.approx([120_000])


def test_worked_numbers_of_systems():
    bare = {"latency_s": 0.0, "reduce_s_per_byte": 0.0}
    assert milliseconds("host_tree", 4, seconds_per_byte=1 / 12e9, **bare) == pytest.approx(68.152, rel=1e-4)
    assert milliseconds("ring_all_reduce", 4, seconds_per_byte=1e-10, **bare) == pytest.approx(15.334, rel=1e-4)
    outside = {"seconds_per_byte": 1 / 12.5e9, **bare}
    nested = {"group_size": 8, "inner_s_per_byte": 1 / 150e9}
    assert milliseconds("hierarchical", 32, **outside, **nested) == pytest.approx(2.7261, rel=1e-4)
    shared = milliseconds("hierarchical", 32, **outside, **nested, shared_port=True)
    assert shared == pytest.approx(13.4600, rel=1e-4)
    assert milliseconds("ring_all_reduce", 32, **outside) == pytest.approx(15.8454, rel=1e-4)


def test_paleo_is_a_special_case():
    bare = {"size_bytes": 1e8, "latency_s": 0.0, "seconds_per_byte": 1e-9, "worker_count": 16}
    assert collective("one_to_all").time(**bare) == pytest.approx(2 * 15 * 0.1)
    assert collective("binomial_tree").time(**bare) == pytest.approx(2 * 4 * 0.1)
    assert collective("recursive_doubling").time(**bare) == pytest.approx(4 * 0.1)


def test_a_slow_server_decides():
    numbers = {"size_bytes": 1e6, "worker_count": 4, "latency_s": 0.0, "seconds_per_byte": 1e-9}
    assert float(collective("parameter_server").time(**numbers, server_s_per_byte=1e-8)) == pytest.approx(0.08)
    # shards that are many enough leave each worker's own port to decide: 2 n beta
    assert float(collective("parameter_server").time(**numbers, server_count=400)) == pytest.approx(0.002)


def test_sums_of_two_trees_reach_every_rank_once():
    for count in range(2, 70):
        for edges in two_trees(count):
            children = [child for _, child in edges]
            assert sorted(children + list({p for p, _ in edges} - set(children))) == list(range(count))
        loads = [dict.fromkeys(range(count), 0) for _ in range(2)]
        for tree, edges in enumerate(two_trees(count)):
            for parent, _ in edges:
                loads[tree][parent] += 1
        assert all(loads[0][rank] + loads[1][rank] <= 2 for rank in range(count))
        assert sum(len(each) for each in colours(count)) == 2 * (count - 1)
        for each in colours(count):
            assert len({parent for parent, _ in each}) == len(each) == len({child for _, child in each})


def test_deep_trees_are_as_deep_as_a_logarithm():
    for count in (2, 3, 6, 8, 17, 40, 64):
        parent_of = {child: parent for parent, child in two_trees(count)[0]}

        def depth(rank, parents=parent_of):
            return 0 if rank not in parents else 1 + depth(parents[rank])

        assert max(depth(rank) for rank in range(count)) <= math.ceil(math.log2(count))


def test_numbers_arrays_and_symbols_agree():
    size, latency, per_byte = sympy.symbols("n alpha beta", positive=True)
    values = {size: 3e6, latency: 2e-6, per_byte: 1e-9}
    options = {"hierarchical": {"group_size": 2}}
    for name, each in COLLECTIVES.items():
        if name == "machine_trees":
            continue  # it needs the size of a machine; tests/unit/test_many_machines.py
        given = options.get(name, {})
        written = each.time(size_bytes=size, worker_count=6, latency_s=latency, seconds_per_byte=per_byte, **given)
        numbers = {"worker_count": 6, "latency_s": 2e-6, "seconds_per_byte": 1e-9, **given}
        plain = float(each.time(size_bytes=3e6, **numbers))
        assert float(written.subs(values)) == pytest.approx(plain, rel=1e-12), name
        both = each.time(size_bytes=np.array([1e6, 3e6]), **numbers)
        assert both.shape == (2,)
        assert both[1] == pytest.approx(plain, rel=1e-12)
        counts = np.array([1, 2, 6]) if name != "hierarchical" else np.array([2, 4, 6])
        over_workers = each.time(size_bytes=3e6, worker_count=counts, latency_s=2e-6, seconds_per_byte=1e-9, **given)
        assert over_workers[2] == pytest.approx(plain, rel=1e-12)
        if name != "hierarchical":
            assert over_workers[0] == 0.0


def test_a_count_of_workers_may_be_a_symbol():
    workers = sympy.Symbol("p", positive=True, integer=True)
    for name in ("ring_all_reduce", "recursive_doubling", "halving_doubling", "binomial_tree", "one_to_all"):
        written = collective(name).time(size_bytes=1e6, worker_count=workers, latency_s=1e-6, seconds_per_byte=1e-9)
        for count in (2, 5, 8):
            told = collective(name).time(size_bytes=1e6, worker_count=count, latency_s=1e-6, seconds_per_byte=1e-9)
            assert float(written.subs(workers, count)) == pytest.approx(told, rel=1e-12), (name, count)


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("ring_all_reduce", {"worker_count": 0}, r"worker_count must.*\(got 0"),
        ("ring_all_reduce", {"worker_count": 2.5}, r"worker_count must.*\(got 2.5"),
        ("ring_all_reduce", {"worker_count": "4"}, r"worker_count must.*\(got '4'"),
        ("hierarchical", {"worker_count": 12, "group_size": 5}, "divisor of worker_count=12; nearest: "),
        ("hierarchical", {"worker_count": 12}, r"group_size must.*\(got None"),
        ("parameter_server", {"worker_count": 4, "server_count": 0}, r"server_count must.*\(got 0"),
        ("parameter_server", {"worker_count": 4, "servers": 5}, "did you mean 'server_"),
        ("double_binary_tree", {"worker_count": 4, "chunk_count": 0}, r"chunk_count must.*\(got 0"),
    ],
)
def test_what_is_wrong_is_named(name, given, told):
    with pytest.raises(ArgumentError, match=told):
        collective(name).time(size_bytes=1e6, latency_s=0.0, seconds_per_byte=1e-9, **given)


def test_an_unknown_algorithm_names_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'ring_all_reduce'"):
        collective("ring_allreduce")


def test_names_are_the_registry_and_groups_divide():
    assert all(each.name == name for name, each in COLLECTIVES.items())
    assert set(ALL_REDUCES) < set(COLLECTIVES)
    assert group_count(12, 4) == 3


def test_servers_count_down():
    rounds = collective("parameter_server").rounds(2, server_count=2)
    assert {message.sink for message in rounds[0].messages} == {SERVER, SERVER - 1}


def test_the_page_says_what_the_code_does():
    page = Path(__file__).parents[2] / "docs" / "synchronisation.md"
    flags = doctest.NORMALIZE_WHITESPACE
    outcome = doctest.testfile(str(page), module_relative=False, optionflags=flags)
    assert outcome.attempted > 10
    assert outcome.failed == 0
