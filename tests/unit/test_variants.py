"""Systems with other GPUs or links: what is replaced, what stays, and what has nothing to replace."""

import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError, SpecError, UnknownNameError
from perfmodel.hardware.cluster import system_with


def test_without_parts_it_is_the_system():
    assert system_with("survey_fig5") is pm.load_system("survey_fig5")


def test_other_gpus_hang_where_the_old_ones_did():
    varied, own = system_with("survey_fig5", device="rtx_3090"), pm.load_system("survey_fig5")
    assert [name for name, _ in varied.devices] == [name for name, _ in own.devices]
    assert {device.stem for _, device in varied.devices} == {"rtx_3090"}
    link = varied.topology.route("memory0", "gpu0").channels[-1].link
    assert link == "pcie_4_x16"  # card and slot both have it; those of the GTX 1080 settle on 3.0
    assert own.topology.route("memory0", "gpu0").channels[-1].link == "pcie_3_x16"
    assert "rtx_3090" in varied.name


@pytest.mark.parametrize(
    ("system", "link", "ends", "rate_over_before"),
    [
        ("survey_fig5", "pcie_3_x8", ("memory0", "gpu0"), 0.5),
        ("dgx_1_p100", "nvlink_2_x1", ("gpu0", "gpu1"), 25 / 20),
    ],
)
def test_a_link_replaces_those_of_its_kind(system, link, ends, rate_over_before):
    before, after = (each.topology.route(*ends).capacity_bytes_per_s for each in (
        pm.load_system(system), system_with(system, link=link)
    ))  # fmt: skip
    assert after / before == pytest.approx(rate_over_before, rel=0.05)


def test_a_network_replaces_the_fabric_and_what_adapters_are_on():
    varied = system_with("survey_fig6", link="ethernet_10_gbit")
    assert {link.name for _, link in varied.networks} == {"ethernet_10_gbit"}
    across = varied.topology.route("node0/gpu0", "node1/gpu0")
    assert across.capacity_bytes_per_s < 10e9 / 8
    inside = varied.topology.route("node0/memory0", "node0/gpu0")
    assert inside.capacity_bytes_per_s > 10e9


@pytest.mark.parametrize(
    ("system", "parts", "error", "message"),
    [
        ("survey_fig5", {"link": "ethernet_10_gbit"}, ArgumentError, "a link of a kind that .* has: pcie"),
        ("survey_fig5", {"link": "nvlink_2_x1"}, ArgumentError, "a link of a kind"),
        ("desktop_i7_3820", {"device": "gtx_1080"}, ArgumentError, "no GPU to replace"),
        ("desktop_i7_3820", {"link": "pcie_3_x8"}, ArgumentError, "a link of a kind"),
        ("survey_fig5", {"device": "gtx_1800"}, (UnknownNameError, SpecError), "gtx_1080"),
        ("survey_fig7", {"device": "gtx_1080"}, UnknownNameError, "survey_fig"),
    ],
)
def test_what_cannot_be_replaced_is_refused(system, parts, error, message):
    with pytest.raises(error, match=message):
        system_with(system, **parts)
