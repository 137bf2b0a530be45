"""A step in closed form on a system: workers and links left open."""

import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.hardware.wiring import with_links_scaled

GRAPH = pm.zoo.alexnet()


@pytest.mark.parametrize(
    ("system", "sync", "framework"),
    [
        ("survey_fig5", "ring_all_reduce", "generic"),
        ("survey_fig5", "binomial_tree", "generic"),
        ("survey_fig5", "hierarchical", "generic"),
        ("dgx_1_p100", "recursive_doubling", "generic"),
        ("dgx_a100_x4", "parameter_server", "generic"),
        ("dgx_1_p100", "parameter_server", "caffe_cudnn5"),
        ("dgx_1_p100", "all_reduce", "pytorch_1_0"),
        ("dgx_a100_x4", "ring_all_reduce", "pytorch_2"),
    ],
)
def test_a_formula_in_the_workers_is_what_predict_says(system, sync, framework):
    how = {"system": system, "sync": sync, "framework": framework}
    f = pm.formula(graph=GRAPH, batch_size=48, free="workers", **how)
    rate = f.of("samples_per_s")
    for workers in {1, 2, 3, int(f.opened.largest["workers"])}:
        p = pm.predict(GRAPH, batch_size=48, workers=workers, **how)
        assert f(workers=workers) == pytest.approx(p.step_s, rel=1e-9)
        assert f.of("exposed_sync_s")(workers) == pytest.approx(p.exposed_sync_s, rel=1e-9, abs=1e-12)
        assert rate(workers) == pytest.approx(p.samples_per_s, rel=1e-9)


@pytest.mark.parametrize(
    ("system", "sync", "workers"),
    [("survey_fig5", "ring_all_reduce", 2), ("survey_fig5", "parameter_server", 4)],
)
def test_a_formula_in_the_links_is_what_predict_says(system, sync, workers):
    how = {"sync": sync, "workers": workers, "batch_size": 32}
    f = pm.formula(graph=GRAPH, system=system, free="link_bandwidth_bytes_per_s", **how)
    loaded, stated = pm.load_system(system), f.stated["link_bandwidth_bytes_per_s"]
    for ratio in (0.037, 0.9, 7.3):
        p = pm.predict(GRAPH, system=with_links_scaled(loaded, "pcie_3", ratio), **how)
        assert f(ratio * stated) == pytest.approx(p.step_s, rel=1e-9)


def test_workers_and_batch_are_free_together():
    f = pm.formula(graph=GRAPH, system="survey_fig5", batch_size=8, free=["workers", "batch_size"])
    p = pm.predict(GRAPH, system="survey_fig5", batch_size=21, workers=3)
    assert f(3, 21) == pytest.approx(p.step_s, rel=1e-9)


def test_at_how_many_workers_the_parameter_server_saturates():
    how = {"system": "dgx_1_p100", "sync": "parameter_server", "framework": "caffe_cudnn5", "batch_size": 180}
    f = pm.formula(graph=GRAPH, free="workers", **how)
    found = f.crossover("sync_s", "device_s")
    assert found.method == "whole numbers"

    def saturated(workers):
        p = pm.predict(GRAPH, workers=workers, **how)
        return p.sync_s > p.parts.device_s

    assert [saturated(count) for count in (found.value - 1, found.value)] == [False, True]


def test_which_bandwidth_makes_two_gpus_worth_it():
    how = {"system": "survey_fig5", "batch_size": 16, "free": "link_bandwidth_bytes_per_s"}
    one, two = (pm.formula("samples_per_s", graph=GRAPH, workers=workers, **how) for workers in (1, 2))
    found = two.crossover(two, one)
    loaded, stated = pm.load_system("survey_fig5"), one.stated["link_bandwidth_bytes_per_s"]

    def gain(bandwidth):
        system = with_links_scaled(loaded, "pcie_3", bandwidth / stated)
        asked = {"system": system, "batch_size": 16}
        rates = [pm.predict(GRAPH, workers=workers, **asked).samples_per_s for workers in (1, 2)]
        return rates[1] / rates[0]

    assert gain(found.value) == pytest.approx(1, rel=1e-6)
    assert gain(0.9 * found.value) < 1 < gain(1.1 * found.value)
    assert "cross" in found.sentence


def test_workers_need_a_system_with_devices():
    with pytest.raises(ArgumentError, match="system="):
        pm.formula(graph=GRAPH, device="gtx_1080", batch_size=8, free="workers")
    how = {"system": "dgx_1_p100", "sync": "ring_all_reduce", "batch_size": 8}
    with pytest.raises(ArgumentError, match="one of them: here messages differ in their ways"):
        pm.formula(graph=GRAPH, **how, free=["workers", "link_bandwidth_bytes_per_s"])
    with pytest.raises(ArgumentError, match="per worker, with workers free"):
        pm.formula(graph=GRAPH, system="survey_fig5", global_batch_size=48, free="workers")
    f = pm.formula(graph=GRAPH, system="survey_fig5", batch_size=8, free="workers")
    with pytest.raises(ArgumentError, match="at most 4"):
        f(workers=5)


def test_elasticities_where_no_worker_is_left():
    f = pm.formula(graph=GRAPH, system="survey_fig5", batch_size=8, free="workers")
    all_of_them = f.elasticities()["workers"]
    assert all_of_them.gain != all_of_them.gain
    assert "workers cannot rise" in all_of_them.sentence
    assert all_of_them.total > 0
    assert "costs" in f.elasticities({"workers": 2})["workers"].sentence


@pytest.fixture(scope="module")
def of_workers_and_samples():
    return pm.formula(graph=GRAPH, system="survey_fig5", batch_size=8, free=["workers", "batch_size"])


@pytest.mark.parametrize(("name", "value"), [("workers", 2.5), ("batch_size", 7.25), ("batch_size", [8, 8.5])])
def test_there_are_no_parts_of_workers_and_samples(of_workers_and_samples, name, value):
    f = of_workers_and_samples
    for asked in (f, f.lambdify()):
        with pytest.raises(ArgumentError, match=f"^{name} must.*whole numbers"):
            asked(**{name: value})
        assert asked(workers=3.0, batch_size=[8, 9]).shape == (2,)


def test_slopes_go_between_whole_workers():
    # a ring on links of one kind: 2 (p - 1) a + 2 (p - 1)/p n/B, whose slope by p is 2 a + 2 n / (B p^2)
    f = pm.formula("sync_s", graph=GRAPH, system="survey_fig5", batch_size=8, free="workers", sync="ring_all_reduce")
    here, more = (f.point({"workers": workers}).value(f.named_parts["sync_s"]) for workers in (2.5, 2.5 * (1 + 1e-7)))
    row = f.elasticities({"workers": 2.5})["workers"]
    assert row.total == pytest.approx((more / here - 1) / 1e-7, rel=1e-5)
    assert row.total > 0
    found = f.solve_for("workers", here)
    assert (found.value, found.method) == (3, "whole numbers")
