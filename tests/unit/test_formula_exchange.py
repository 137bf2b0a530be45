"""The exchange of workers in closed form: composed of the functions that cost it, not fitted to what they say."""

import re
from functools import cache

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.hardware.link import Link
from perfmodel.hardware.spec_files import shipped_folder
from perfmodel.hardware.wiring import with_links_scaled
from perfmodel.planning.formulas.open_system import in_stretches
from perfmodel.sync.placed import place
from perfmodel.sync.registry import collective
from perfmodel.sync.rings import RingAllReduce

GRAPH = pm.zoo.alexnet()
SIZES = 4.0 * np.array(list(GRAPH.trained_parameter_counts.values()))
LINKS = ("link_bandwidth_bytes_per_s", "link_latency_s")
P, L, LATENCY = sympy.symbols("p L l", positive=True)

CASES = {
    "ring": ("survey_fig5", "ring_all_reduce"),
    "binomial tree": ("survey_fig5", "binomial_tree"),
    "recursive doubling": ("survey_fig5", "recursive_doubling"),
    "halving and doubling": ("survey_fig5", "halving_doubling"),
    "double binary tree": ("survey_fig5", "double_binary_tree"),
    "parameter server": ("survey_fig5", "parameter_server"),
    "parameter server of eight": ("dgx_1_p100", "parameter_server"),
    "library": ("survey_fig5", "all_reduce"),
}


def how_of(case):
    """A library of collectives is one that a framework calls."""
    return {"sync": CASES[case][1], "batch_size": 16, "framework": "pytorch_2" if case == "library" else "generic"}


def of_links(case):
    return {"graph": GRAPH, "system": CASES[case][0], **how_of(case)}


@cache
def built(case):
    return pm.formula(**of_links(case), free=("workers", *LINKS))


def sync_s(case):
    """What is exchanged, in p, L and l."""
    f = built(case)
    names = {f.symbols["workers"]: P, f.symbols[LINKS[0]]: L, f.symbols[LINKS[1]]: LATENCY}
    return f.of("sync_s").expression.xreplace(names)


def at(expression, workers, bandwidth, latency):
    return float(sympy.lambdify((P, L, LATENCY), expression)(workers, bandwidth, latency))


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_workers_and_links_together_are_what_predict_says(case, data):
    f = built(case)
    workers = data.draw(st.integers(1, int(f.opened.largest["workers"])))
    ratios = [data.draw(st.floats(0.02, 50.0)) for _ in LINKS]
    changed = with_links_scaled(pm.load_system(CASES[case][0]), "pcie_3", ratios[0], latency=ratios[1])
    p = pm.predict(GRAPH, system=changed, workers=workers, **how_of(case))
    point = {name: ratio * f.stated[name] for name, ratio in zip(LINKS, ratios, strict=True)}
    assert f(workers=workers, **point) == pytest.approx(p.step_s, rel=1e-9)
    assert f.of("sync_s")(workers=workers, **point) == pytest.approx(p.sync_s, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("workers", [1, 2, 2.5, 3.9, 4, 1000, 12345.5])
@pytest.mark.parametrize(("bandwidth", "latency"), [(12e9, 7e-6), (1e6, 1.0), (1e13, 1e-9)])
def test_a_ring_is_the_textbook_s(workers, bandwidth, latency):
    # Patarasuk and Yuan: 2 (p - 1) messages of a p-th of the bytes; one for each tensor, over a link of its own.
    # Nothing was ever asked about fractions of workers, nor about more than the four of the system.
    expected = 2 * (workers - 1) * (len(SIZES) * latency + SIZES.sum() / workers / bandwidth)
    found = sync_s("ring")
    assert not found.has(sympy.Piecewise)
    assert at(found, workers, bandwidth, latency) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("workers", [2, 3, 4, 5, 8, 9, 1000, 1024, 1025])
def test_a_binomial_tree_climbs_the_logarithm(workers):
    climbed = (workers - 1).bit_length()
    expected = 2 * climbed * (len(SIZES) * 7e-6 + SIZES.sum() / 12e9)
    assert at(sync_s("binomial tree"), workers, 12e9, 7e-6) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("workers", [3, 4, 5.5, 100])
def test_a_parameter_server_s_bytes_rise_with_the_workers(workers):
    topology = pm.load_system("survey_fig5").topology
    four = place(collective("parameter_server"), topology, topology.devices(), servers=("memory0",))
    shared = 4 * min(four.rounds[0].rates_bytes_per_s)  # by three and more, whatever their own links
    bus = next(wire.upward.capacity_bytes_per_s for wire in topology.wires if wire.lower == "memory0")
    # each more is pushed and pulled over what they share, and read once over the bus to be added up
    slope = SIZES.sum() * (2 / shared + 1 / bus)
    expression, fast = sync_s("parameter server"), 1e15
    more = at(expression, workers + 1, fast, 1e-9) - at(expression, workers, fast, 1e-9)
    assert more == pytest.approx(slope, rel=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_slopes_by_links_are_those_of_predict(case):
    f, point = built(case), {"workers": 3}
    rows, system = f.elasticities(point), CASES[case][0]
    for index, name in enumerate(LINKS):
        steps = []
        for change in (1 - 1e-4, 1 + 1e-4):
            ratios = [change if index == other else 1.0 for other in range(2)]
            changed = with_links_scaled(pm.load_system(system), "pcie_3", ratios[0], latency=ratios[1])
            steps.append(pm.predict(GRAPH, system=changed, workers=3, **how_of(case)).step_s)
        slope = (steps[1] - steps[0]) / 2e-4 / f(**point)
        assert rows[name].total == pytest.approx(slope, rel=1e-3, abs=1e-9)


def test_the_ring_s_own_cost_is_asked_for_a_symbol(monkeypatch):
    asked, cost = [], RingAllReduce.cost
    monkeypatch.setattr(
        RingAllReduce, "cost", lambda self, link, count, **how: asked.append(count) or cost(self, link, count, **how)
    )
    f = pm.formula(**of_links("ring"), free="workers")
    assert f.symbols["workers"] in asked


def test_a_cost_that_is_not_what_predict_says_is_not_used(monkeypatch):
    monkeypatch.setattr(RingAllReduce, "cost", lambda self, link, count, **how: link.times(alpha=count, beta=count))
    f = pm.formula(**of_links("ring"), free="workers")
    p = pm.predict(GRAPH, system="survey_fig5", sync="ring_all_reduce", batch_size=16, workers=3)
    assert f(workers=3) == pytest.approx(p.step_s, rel=1e-9)


def test_numbers_are_the_same_rise_evenly_or_stand_alone():
    alone, shared = 1 / 10, [count / 25 for count in (3, 4, 5, 6)]
    found = in_stretches(P, range(2, 8), [alone, alone, *shared])
    values = [float(found.subs(P, count)) for count in range(2, 8)]
    assert values == pytest.approx([0.1, 0.1, 3 / 25, 4 / 25, 5 / 25, 6 / 25], rel=1e-15)
    assert float(found.subs(P, 7.5)) == pytest.approx(6.5 / 25)
    odd = [3.0, 1.0, 4.0, 1.5, 9.0, 2.6]
    found = in_stretches(P, range(2, 8), odd)
    assert [float(found.subs(P, count)) for count in range(2, 8)] == odd


def test_the_latency_of_a_lone_device_s_link(tmp_path, monkeypatch):
    how = {"device": "gtx_1080", "batch_size": 64, "framework": "caffe_cudnn5"}
    f = pm.formula(graph=GRAPH, free="link_latency_s", **how)
    assert f() == pytest.approx(pm.predict(GRAPH, **how).step_s, rel=1e-12)
    text = (shipped_folder() / "links" / "pcie_3.toml").read_text(encoding="utf-8")
    (tmp_path / "links").mkdir()
    later = re.sub(r"(?m)^latency_us = .*$", "latency_us = 1e5", text)
    (tmp_path / "links" / "pcie_3.toml").write_text(later, encoding="utf-8")
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    p = pm.predict(GRAPH, **how)
    assert p.step_s > f.prediction.step_s
    assert f(link_latency_s=0.1) == pytest.approx(p.step_s, rel=1e-9)


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("ratio", [0.2, 5.0])
def test_copies_that_a_step_waits_for_keep_their_share_of_the_link(monkeypatch, pinned, ratio):
    # TensorFlow 0.9 copies what it is fed before the step; four workers share what leads to the memory
    how = {"sync": "ring_all_reduce", "framework": "tensorflow_0_9", "batch_size": 64, "pinned": pinned}
    f = pm.formula(graph=GRAPH, system="survey_fig5", workers=4, free=LINKS[0], **how)
    stated = f.stated[LINKS[0]]
    for name in ("effective_bandwidth_bytes_per_s", "pageable_bandwidth_bytes_per_s"):
        own = getattr(Link, name).derive
        monkeypatch.setattr(Link, name, property(lambda link, own=own: ratio * own(link)))
    p = pm.predict(GRAPH, system=with_links_scaled(pm.load_system("survey_fig5"), "pcie_3", ratio), workers=4, **how)
    assert p.exposed_transfer_s > 0
    assert f.of("exposed_transfer_s")(ratio * stated) == pytest.approx(p.exposed_transfer_s, rel=1e-9)
    assert f(ratio * stated) == pytest.approx(p.step_s, rel=1e-9)


def test_the_latency_of_links_is_solved_for_and_has_an_elasticity():
    f = pm.formula("sync_s", **of_links("ring"), workers=4, free="link_latency_s")
    found = f.solve_for("link_latency_s", 2 * f())
    assert found.method == "closed"
    system = with_links_scaled(pm.load_system("survey_fig5"), "pcie_3", 1.0, latency=found.value / f.stated[LINKS[1]])
    p = pm.predict(GRAPH, system=system, sync="ring_all_reduce", batch_size=16, workers=4)
    assert p.sync_s == pytest.approx(2 * f(), rel=1e-6)
    share = 2 * 3 * len(SIZES) * f.stated[LINKS[1]] / f()
    assert f.elasticities()["link_latency_s"].total == pytest.approx(share, rel=1e-9)
    assert "empty copy" in f.elasticities()["link_latency_s"].sentence


def test_links_that_decide_which_way_messages_take_are_refused():
    with pytest.raises(ArgumentError, match="which route messages take"):
        pm.formula(graph=GRAPH, system="dgx_1_p100", sync="ring_all_reduce", batch_size=8, workers=4, free=LINKS[0])
    with pytest.raises(ArgumentError, match="free must be left out on one machine without GPUs"):
        pm.formula(graph=GRAPH, device="i7_3820", batch_size=8, free="link_latency_s")
