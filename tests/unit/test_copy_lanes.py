"""How many lanes explain() says would let copies keep up, held against predictions with that many."""

import pytest

import perfmodel as pm
from perfmodel.hardware import spec_files


def four_cards(folder, *, hub_lanes, card_lanes=16, hub="root", pinned=True):
    """Predict AlexNet on four P100 below one root or switch of a machine with a fast memory."""
    text = spec_files.find("systems", "k80_card").read_text(encoding="utf-8")
    text = text[: text.index("[[switch]]")]
    parts = f"""
[[{hub}]]
to = "socket0"
link = "pcie_3_x{hub_lanes}"

[[device]]
device = "tesla_p100_pcie"
count = 4
to = "{hub}0"
link = "pcie_3_x{card_lanes}"

[[source]]
fields = ["sockets", "memory", "{hub}", "device"]
title = "calculation"
note = "a test"
"""
    path = folder / f"{hub}_{hub_lanes}_{card_lanes}.toml"
    path.write_text(text + parts, encoding="utf-8")
    return pm.predict(pm.zoo.alexnet(), batch_size=256, system=path, workers=4, sync="none", pinned=pinned)


def keeps_up(p):
    return p.transfer_s <= p.basis.timed.parts.device_s


@pytest.mark.parametrize(("hub", "pinned"), [("root", True), ("switch", True), ("root", False)])
def test_lanes_of_a_shared_link_that_are_advised_are_enough_and_half_of_them_are_not(tmp_path, hub, pinned):
    narrow = four_cards(tmp_path, hub_lanes=4, hub=hub, pinned=pinned)
    told = " ".join(narrow.explain().split())
    assert f"With 16 lanes at {hub}0 instead of 4, copies to the devices would keep up with the devices." in told
    assert not keeps_up(four_cards(tmp_path, hub_lanes=8, hub=hub, pinned=pinned))
    enough = four_cards(tmp_path, hub_lanes=16, hub=hub, pinned=pinned)
    assert keeps_up(enough)
    assert "keep up" not in enough.explain()


def test_lanes_of_the_devices_are_advised_where_their_own_links_bound(tmp_path):
    told = " ".join(four_cards(tmp_path, hub_lanes=16, card_lanes=1).explain().split())
    assert "With 4 lanes for each device instead of 1, copies to the devices would keep up with the devices." in told
    assert not keeps_up(four_cards(tmp_path, hub_lanes=16, card_lanes=2))
    assert keeps_up(four_cards(tmp_path, hub_lanes=16, card_lanes=4))


def test_lanes_of_both_are_advised_where_both_bound(tmp_path):
    told = " ".join(four_cards(tmp_path, hub_lanes=4, card_lanes=1).explain().split())
    assert "With 16 lanes at root0 instead of 4 and 4 lanes for each device instead of 1, copies to" in told


def test_no_lanes_are_advised_where_the_memory_bus_would_bound_next():
    graph = pm.LayerGraph("wide", input_shape=(150_528,))
    x = graph.add("scores", pm.layers.Dense(units=10), inputs=graph.input)
    graph.add("loss", pm.layers.CrossEntropy(), inputs=x)
    p = pm.predict(graph, batch_size=256, system="survey_fig5", workers=4, sync="none", phase="forward")
    bus = pm.load_system("survey_fig5").topology.channels["memory0=socket0"].capacity_bytes_per_s
    assert 4 * 256 * 4 * 150_528 / bus > p.basis.timed.parts.device_s
    told = " ".join(p.explain().split())
    assert "No number of lanes lets copies to the devices keep up: the memory bus would bound them." in told
    assert "would keep up with the devices" not in told
