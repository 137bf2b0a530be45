"""Copies: latency and rate, packets, two directions, engines, stations; numbers by hand."""

import numpy as np
import pytest
import sympy

import perfmodel as pm
from perfmodel.cost.transfer import (
    copy_time,
    packet_efficiency,
    simultaneous_copies_time,
    staged_copy_time,
    two_way_time,
)


def test_a_copy_is_its_latency_and_its_bytes():
    assert copy_time(size_bytes=12e9, bandwidth_bytes_per_s=12e9, latency_s=7e-6) == pytest.approx(1.000007, rel=1e-12)
    # 602,112 B of an image at 12 GB/s: 50.176 us, and 32 of them one by one wait 32 times
    one = copy_time(size_bytes=602_112, bandwidth_bytes_per_s=12e9, latency_s=7e-6)
    assert one == pytest.approx(57.176e-6)
    many = copy_time(size_bytes=32 * 602_112, bandwidth_bytes_per_s=12e9, latency_s=7e-6, copy_count=32)
    assert many == pytest.approx(32 * one)
    # AlexNet's mini-batch of 16: 16 * 3 * 224 * 224 * 4 B
    assert copy_time(size_bytes=9_633_792, bandwidth_bytes_per_s=12e9) == pytest.approx(0.803e-3, rel=1e-3)


@pytest.mark.parametrize(("max_payload_bytes", "expected"), [(128, 0.842), (256, 0.914), (512, 0.955)])
def test_full_packets_carry_the_share_that_is_printed_for_them(max_payload_bytes, expected):
    share = packet_efficiency(payload_bytes=1 << 30, max_payload_bytes=max_payload_bytes, overhead_bytes=24)
    assert float(share) == pytest.approx(expected, abs=5e-4)


def test_small_payloads_pay_for_whole_packets():
    def share(payload):
        return float(packet_efficiency(payload_bytes=payload, max_payload_bytes=256, overhead_bytes=24))

    assert share(64) == 64 / 88
    assert share(256) == 256 / 280
    assert share(257) == 257 / (257 + 48)  # a second packet for one byte
    assert share(257) < share(256)


@pytest.mark.parametrize(
    ("is_full_duplex", "engine_count", "expected"), [(True, 2, 3.0), (True, 1, 5.0), (False, 2, 5.0), (True, 3, 3.0)]
)
def test_two_directions_need_a_full_duplex_link_and_two_engines(is_full_duplex, engine_count, expected):
    given = {"is_full_duplex": is_full_duplex, "engine_count": engine_count}
    assert two_way_time(out_s=3.0, back_s=2.0, **given) == expected
    np.testing.assert_array_equal(
        two_way_time(out_s=np.array([3.0, 1.0]), back_s=2.0, **given), [expected, 3.0 if expected == 5 else 2.0]
    )
    t = sympy.Symbol("t", positive=True)
    assert float(two_way_time(out_s=t, back_s=2.0, **given).subs(t, 3)) == expected


def test_the_engines_may_be_a_symbol():
    engines = sympy.Symbol("c", integer=True, positive=True)
    seconds = two_way_time(out_s=3.0, back_s=2.0, engine_count=engines)
    assert [float(seconds.subs(engines, count)) for count in (1, 2)] == [5.0, 3.0]


def test_copies_at_once_share_the_link_and_hide_latency():
    link = {"size_bytes": 1e9, "copy_count": 5, "bandwidth_bytes_per_s": 10e9, "latency_s": 0.01}
    # 5 GB take 0.5 s at 10 GB/s however many are under way; the latency counts 5, 3 or 1 times
    assert [float(simultaneous_copies_time(**link, engine_count=n)) for n in (1, 2, 5, 9)] == pytest.approx(
        [0.55, 0.53, 0.51, 0.51]
    )


def test_stations_in_turn_and_in_a_pipeline():
    hops = {"size_bytes": 12e9, "bandwidths_bytes_per_s": (12e9, 6e9), "latencies_s": (0.25, 0.5)}
    assert staged_copy_time(**hops) == pytest.approx(1.25 + 2.5)
    # four chunks of 3 GB: hops of 0.5 and 1.0 s; the second hop starts after 0.5 s and is busy for 4 of its own
    assert float(staged_copy_time(**hops, chunk_bytes=3e9)) == pytest.approx(0.5 + 4 * 1.0)
    # 12 GB in chunks of 5 GB: hops of 0.667 and 1.333 s, of the third chunk two fifths
    assert float(staged_copy_time(**hops, chunk_bytes=5e9)) == pytest.approx((0.25 + 5 / 12) + 2.4 * (0.5 + 5 / 6))
    assert float(staged_copy_time(**hops, chunk_bytes=50e9)) == pytest.approx(1.25 + 2.5)
    # one hop is a copy
    alone = staged_copy_time(size_bytes=12e9, bandwidths_bytes_per_s=(6e9,), latencies_s=(0.5,))
    assert alone == copy_time(size_bytes=12e9, bandwidth_bytes_per_s=6e9, latency_s=0.5)


def test_peer_to_peer_beats_the_way_through_the_host():
    link = pm.load_link("pcie_3_x16")
    rate, latency = link.effective_bandwidth_bytes_per_s, link.latency_s
    direct = copy_time(size_bytes=100e6, bandwidth_bytes_per_s=rate, latency_s=latency)
    in_turn = staged_copy_time(size_bytes=100e6, bandwidths_bytes_per_s=(rate, rate), latencies_s=(latency, latency))
    piped = staged_copy_time(
        size_bytes=100e6, bandwidths_bytes_per_s=(rate, rate), latencies_s=(latency, latency), chunk_bytes=4e6
    )
    assert in_turn == pytest.approx(2 * direct)
    assert direct < float(piped) < 1.1 * direct


def test_a_pageable_copy_is_about_a_copy_in_memory_and_one_over_the_link():
    """Two hops of like rate in turn make the half that the link's file states."""
    link = pm.load_link("pcie_3_x16")
    rate = link.effective_bandwidth_bytes_per_s
    staged = staged_copy_time(size_bytes=1e9, bandwidths_bytes_per_s=(rate, rate), latencies_s=(0, 0))
    assert 1e9 / staged == pytest.approx(link.pageable_bandwidth_bytes_per_s, rel=0.02)


def test_the_links_of_the_survey():
    assert pm.load_link("pcie_4_x16").bandwidth_bytes_per_s / 1e9 == pytest.approx(31.5077, abs=5e-5)
    assert pm.load_link("pcie_4_x16").bandwidth_bytes_per_s == 16e9 * 16 * 128 / 130 / 8
    assert pm.load_link("pcie_3_x16").bandwidth_bytes_per_s / 1e9 == pytest.approx(15.7538, abs=5e-5)
