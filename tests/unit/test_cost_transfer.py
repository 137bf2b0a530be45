"""Copies: latency and rate, packets, two directions, engines, stations; numbers by hand."""

import pytest

import perfmodel as pm
from perfmodel.cost.transfer import (
    copy_time,
)


def test_a_copy_is_its_latency_and_its_bytes():
    assert copy_time(size_bytes=12e9, bandwidth_bytes_per_s=12e9, latency_s=7e-6) == pytest.approx(1.000007, rel=1e-12)
    # 602,112 B of an image at 12 GB/s: 50.176 us
    one = copy_time(size_bytes=602_112, bandwidth_bytes_per_s=12e9, latency_s=7e-6)
    assert one == pytest.approx(57.176e-6)
    # AlexNet's mini-batch of 16: 16 * 3 * 224 * 224 * 4 B
    assert copy_time(size_bytes=9_633_792, bandwidth_bytes_per_s=12e9) == pytest.approx(0.803e-3, rel=1e-3)


def test_the_links_of_the_survey():
    assert pm.load_link("pcie_4_x16").bandwidth_bytes_per_s / 1e9 == pytest.approx(31.5077, abs=5e-5)
    assert pm.load_link("pcie_4_x16").bandwidth_bytes_per_s == 16e9 * 16 * 128 / 130 / 8
    assert pm.load_link("pcie_3_x16").bandwidth_bytes_per_s / 1e9 == pytest.approx(15.7538, abs=5e-5)
