"""Copies between places of a system: peer to peer, RDMA, staged; alone and beside others; and the command line."""

import json
import math

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.cost.transfer import copy_time, staging
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_system

GB = 1e9
PCIE_3_X16 = pm.load_link("pcie_3_x16").effective_bandwidth_bytes_per_s
WIRED = ("survey_fig5", "survey_fig6", "dgx_1_p100", "dgx_a100", "dgx_a100_x4", "dgx_h100", "p2_16xlarge", "k80_card")


def slowest(system, copies, **options):
    return min(pm.transfer(system, copies, **options).rows.column("bytes_per_s"))


@pytest.mark.parametrize(("readers", "sharing"), [(1, 1), (2, 2), (4, 2), (8, 2)])
def test_readers_of_a_dgx_1_share_a_switch_in_pairs(readers, sharing):
    copies = [f"host:gpu{place}" for place in range(readers)]
    assert slowest("dgx_1_p100", copies, size_bytes=8 * GB) == pytest.approx(PCIE_3_X16 / sharing, rel=1e-4)


@pytest.mark.parametrize("readers", [1, 4, 8, 16])
def test_readers_of_a_p2_16xlarge_share_one_way_to_the_host(readers):
    copies = [f"host:gpu{place}" for place in range(readers)]
    rows = pm.transfer("p2_16xlarge", copies, size_bytes=8 * GB).rows
    assert rows.column("bytes_per_s") == pytest.approx([PCIE_3_X16 / readers] * readers, rel=1e-4)


def test_a_way_straight_is_taken_where_the_wiring_has_one():
    def way(system, copy, **options):
        (row,) = pm.transfer(system, copy, **options).rows
        return row.way

    assert way("survey_fig5", "gpu0:gpu3") == "peer to peer"  # one root
    assert way("dgx_1_p100", "gpu0:gpu4") == "peer to peer"  # NVLink across sockets
    assert way("dgx_1_p100", "gpu0:gpu5") == "staged"  # neither
    assert way("survey_fig5", "gpu0:gpu3", through_host=True) == "staged"
    assert way("survey_fig5", "host:gpu3", through_host=True) == "direct"
    assert way("dgx_a100_x4", "node0/gpu0:node3/gpu0") == "RDMA"
    assert way("survey_fig6", "node1/gpu0:node2/gpu0") == "staged"  # its adapter hangs off the socket, not the root


def test_staging_in_chunks_hides_the_second_leg_and_in_one_does_not():
    size = 2 * GB
    (piped,) = pm.transfer("dgx_1_p100", "gpu0:gpu5", size_bytes=size, chunk_bytes=4e6).rows
    (in_turn,) = pm.transfer("dgx_1_p100", "gpu0:gpu5", size_bytes=size, chunk_bytes=math.inf).rows
    latency = 7e-6 + 0.15e-6
    assert in_turn.time_s == pytest.approx(2 * (latency + size / PCIE_3_X16), rel=1e-9)
    assert piped.time_s == pytest.approx((500 + 1) * (latency + 4e6 / PCIE_3_X16), rel=1e-9)
    (straight,) = pm.transfer("dgx_1_p100", "gpu0:gpu4", size_bytes=size).rows
    assert straight.time_s < piped.time_s < in_turn.time_s


def test_both_directions_at_once_cost_nothing_on_two_copy_engines():
    (out,) = pm.transfer("survey_fig5", "host:gpu0").rows
    both = pm.transfer("survey_fig5", ["host:gpu0", "gpu0:host"])
    assert both.time_s == pytest.approx(out.time_s)
    assert both.bytes_per_s == pytest.approx(2 * out.bytes_per_s)


def test_a_device_with_one_copy_engine_copies_in_one_direction_at_a_time(tmp_path):
    text = spec_files.find("systems", "survey_fig5").read_text(encoding="utf-8").replace("gtx_1080", "gtx_titan_black")
    one_engine = tmp_path / "titans.toml"
    one_engine.write_text(text)
    assert load_system(one_engine).topology.copy_engine_count("gpu0") == 1
    (out,) = pm.transfer(one_engine, "host:gpu0").rows
    both = pm.transfer(one_engine, ["host:gpu0", "gpu0:host"])
    assert both.time_s == pytest.approx(2 * out.time_s, rel=1e-3)
    assert set(both.rows.column("bound_by")) == {"gpu0 copy engine"}
    others = pm.transfer(one_engine, ["host:gpu0", "gpu1:host"])
    assert others.time_s == pytest.approx(out.time_s)


def test_machines_of_a_cluster_reach_each_other_over_an_adapter_for_each_device():
    copies = [(f"node0/gpu{place}", f"node1/gpu{place}") for place in range(8)]
    rows = pm.transfer("dgx_a100_x4", copies).rows
    assert rows.column("time_s") == pytest.approx(rows.column("alone_s"))
    assert len(set(rows.column("bound_by"))) == 8
    incast = pm.transfer("dgx_a100_x4", "node0/gpu*:node1/gpu0").rows
    assert incast.column("time_s") == pytest.approx([8 * row.alone_s for row in rows], rel=1e-3)
    assert set(incast.column("bound_by")) == {"fabric0>node1/nic0"}


def test_pageable_memory_slows_copies_of_the_host_only():
    fast, slow = (pm.transfer("survey_fig5", "host:gpu0", pinned=pinned).rows[0] for pinned in (True, False))
    link = pm.load_link("pcie_3_x16")
    assert slow.bytes_per_s / fast.bytes_per_s == pytest.approx(link.family.pageable_efficiency / 0.79, rel=1e-3)
    assert slow.bound_by == "memory0:gpu0 from or to pageable memory"
    peers = [pm.transfer("survey_fig5", "gpu0:gpu1", pinned=pinned).time_s for pinned in (True, False)]
    assert peers[0] == peers[1]


def test_a_pattern_stands_for_every_device_but_the_copy_to_itself():
    rows = pm.transfer("survey_fig5", "gpu*:gpu*").rows
    assert len(rows) == 12
    assert all(row.source != row.sink for row in rows)
    assert pm.transfer("survey_fig5", "gpu*:host").rows.column("sink") == ("memory0",) * 4


@st.composite
def copies_of_a_system(draw):
    system = load_system(draw(st.sampled_from(WIRED)))
    names = [*system.topology.devices(), *system.topology.memories()]
    pairs = [(source, sink) for source in names for sink in names if source != sink]
    return system, draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=6, unique=True))


@given(copies_of_a_system(), st.floats(1e3, 1e11), st.booleans(), st.booleans())
def test_copies_at_once_are_no_faster_than_alone_and_no_channel_carries_too_much(asked, size, through_host, pinned):
    system, copies = asked
    options = {"size_bytes": size, "through_host": through_host, "pinned": pinned}
    together = pm.transfer(system, copies, **options)
    for row, pair in zip(together.rows, copies, strict=True):
        (alone,) = pm.transfer(system, [pair], **options).rows
        assert alone.time_s == pytest.approx(row.alone_s, rel=1e-9)  # played and closed form
        assert row.time_s >= row.alone_s * (1 - 1e-9)
    assert together.time_s <= sum(together.rows.column("alone_s")) * (1 + 1e-9)
    timeline = together.timeline
    assert all(timeline.utilisation(name) <= 1 + 1e-9 for name in timeline.channels)


@given(
    st.floats(1.0, 1e12),
    st.floats(0.001, 1.0),
    st.lists(st.tuples(st.floats(1e3, 1e12), st.floats(0, 1.0)), min_size=1, max_size=4),
    st.floats(1.0, 1e12),
)
def test_a_staged_copy_lies_between_its_slowest_leg_and_all_in_turn(size, share, legs, more):
    rates, latencies = zip(*legs, strict=True)

    def time(size, chunk):
        latency, rate = staging(size_bytes=size, chunk_bytes=chunk, bandwidths_bytes_per_s=rates, latencies_s=latencies)
        return copy_time(size_bytes=size, bandwidth_bytes_per_s=rate, latency_s=latency)

    alone = [latency + size / rate for rate, latency in legs]
    assert time(size, math.inf) == pytest.approx(sum(alone))
    piped = time(size, share * size)
    assert piped >= max(alone) * (1 - 1e-9)
    if not any(latencies):  # a latency is paid for each chunk, so that small ones may cost more than they hide
        assert piped <= sum(alone) * (1 + 1e-9)
    assert time(size + more, share * size) >= piped * (1 - 1e-9)


def test_staging_is_one_formula_for_numbers_arrays_and_symbols():
    given_legs = {"bandwidths_bytes_per_s": (12e9, 10e9), "latencies_s": (1e-5, 2e-5)}
    size, chunk = sympy.symbols("n c", positive=True)
    as_symbols = staging(size_bytes=size, chunk_bytes=chunk, **given_legs)
    as_array = staging(size_bytes=np.array([1e9, 1e5]), chunk_bytes=4e6, **given_legs)
    for place, number in enumerate((1e9, 1e5)):
        as_numbers = staging(size_bytes=number, chunk_bytes=4e6, **given_legs)
        at = {size: number, chunk: 4e6}
        assert [float(part.subs(at)) for part in as_symbols] == pytest.approx(as_numbers)
        assert [part[place] for part in as_array] == pytest.approx(as_numbers)


@pytest.mark.parametrize(
    ("copies", "allowed"),
    [
        ("gpu0", "copies must be"),
        ("gpu0:gpu1:gpu2", "two places"),
        (["gpu0", "gpu1"], "two places"),  # two texts, not one pair
        (5, "copies must be a copy such as"),
        (None, "copies must be a copy such as"),
        ([5], "copies must be two places"),
        ([], "at least one copy"),
        ("host:host", "copies must be"),
        ("gpu0:gpu0", "a node other than source"),
        (["gpu0:gpu1", ("gpu0", "gpu1")], "copies must not repeat a copy"),
        (["host:gpu0", "host:gpu0"], "copies must not repeat a copy"),
        (
            ["host:gpu*", "host:gpu2"],
            "copies must not repeat a copy",
        ),
        ("host:tpu*", "a pattern that matches a device"),
    ],
)
def test_copies_that_are_none_are_refused(copies, allowed):
    with pytest.raises(ArgumentError, match=allowed):
        pm.transfer("survey_fig5", copies)


def test_a_tuple_of_two_names_is_one_copy():
    one = pm.transfer("survey_fig5", ("gpu0", "gpu1"))
    assert one.rows[:] == pm.transfer("survey_fig5", "gpu0:gpu1").rows[:]
    assert len(pm.transfer("survey_fig5", ("host:gpu0", "host:gpu1")).rows) == 2


@pytest.mark.parametrize(
    "option", [{"size_bytes": 0}, {"size_bytes": 1.1e18}, {"size_bytes": math.nan}, {"chunk_bytes": -1}, {"pinned": 1}]
)
def test_numbers_that_make_no_sense_are_refused(option):
    with pytest.raises(ArgumentError, match=next(iter(option))):
        pm.transfer("survey_fig5", "host:gpu0", **option)


def test_an_unknown_place_is_named_with_the_nearest():
    with pytest.raises(UnknownNameError, match="gpu0"):
        pm.transfer("survey_fig5", "host:gqu0")
    with pytest.raises(UnknownNameError, match="memory0"):
        pm.transfer("desktop_i7_3820", "host:gpu0")


def test_the_command_prints_rows_json_and_a_trace(capsys, tmp_path):
    trace = tmp_path / "copies.json"
    assert run(["transfer", "dgx_1_p100", "gpu0:gpu1", "gpu0:gpu5", "--bytes", "2e9", "--trace", str(trace)]) == 0
    text = capsys.readouterr().out
    assert "peer to peer" in text
    assert "staged" in text
    assert "2 copies of 2.000 GB on NVIDIA DGX-1" in text
    names = {event.get("name") for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"gpu0:gpu1", "gpu0:gpu5"} <= names
    assert run(["transfer", "survey_fig5", "host:gpu*", "--json", "--pageable"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["time_s"] == pm.transfer("survey_fig5", "host:gpu*", pinned=False).time_s
    assert len(answer["copies"]) == 4
    assert run(["transfer", "survey_fig5", "gpu0:gpu1", "--through-host", "--chunk-bytes", "inf"]) == 0
    assert run(["transfer", "survey_fig5", "gpu0"]) == 2
