"""Closed forms of steps whose network is spread over devices, or whose mini-batch comes in parts."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.hardware.wiring import with_links_scaled
from perfmodel.prediction.device.step_time import PARTS

GRAPH = pm.zoo.lenet5()
FREE = ("batch_size", "peak_flop_per_s", "memory_bandwidth_bytes_per_s", "launch_latency_s", "dispatch_us")

LAYOUTS = {
    "accumulated": {"workers": 2, "accumulation_steps": 4},
    "pipeline": {"parallelism": "pipeline", "stages": 2, "micro_batches": 4},
    "pipelines": {"parallelism": "pipeline", "stages": 2, "micro_batches": 4, "workers": 2},
    "gpipe": {"parallelism": "pipeline", "stages": 3, "micro_batches": 4, "workers": 2, "schedule": "gpipe"},
    "interleaved": {
        "parallelism": "pipeline", "stages": 2, "micro_batches": 4, "interleave": 2, "schedule": "interleaved",
        "workers": 2,
    },
    "model": {"parallelism": "model", "stages": 3, "workers": 2},
    "tensor": {"parallelism": "tensor", "tensor_size": 2, "workers": 2},
    "zero 1": {"workers": 4, "shard_stage": 1},
    "zero 2": {"workers": 4, "shard_stage": 2, "accumulation_steps": 2},
    "zero 3": {"workers": 4, "shard_stage": 3, "accumulation_steps": 2},
    "hybrid": {"parallelism": "hybrid", "workers": 4},
}  # fmt: skip
WITH_SERVER = {"parameter_server", "downpour"}
OTHER_SYNCS = {
    "parameter_server": ("pipelines", "interleaved", "tensor", "hybrid"),
    "all_reduce": ("accumulated", "gpipe", "zero 1", "zero 2", "zero 3", "hybrid"),
    "downpour": ("accumulated", "pipelines", "model", "tensor"),
}
CASES = [
    *((layout, "ring_all_reduce") for layout in LAYOUTS),
    *((layout, sync) for sync, layouts in OTHER_SYNCS.items() for layout in layouts),
]
"""Every layout with one way to agree, and every way with layouts of each kind."""


def how_of(layout, sync):
    return {"system": "dgx_a100", "framework": "pytorch_2", "sync": sync, **LAYOUTS[layout]}


@cache
def built(layout, sync):
    return pm.formula(graph=GRAPH, batch_size=32, free=FREE, **how_of(layout, sync))


@pytest.mark.parametrize(("layout", "sync"), CASES)
def test_a_formula_of_a_layout_is_what_numbers_give(layout, sync):
    f, draw = built(layout, sync), np.random.default_rng(7)
    prepared = f.prediction.basis.prepared
    for _ in range(3):
        at = {name: value * draw.uniform(0.2, 5.0) for name, value in f.stated.items()}
        at["batch_size"] = 4 * int(draw.integers(1, 200))
        point = f.point(at)
        factors = {name: point.value(factor) for name, factor in f.opened.factors.items()}
        expected = replace(prepared, batch_size=at["batch_size"]).step(factors).parts
        assert f(**at) == pytest.approx(expected.step_s, rel=1e-9)
        for part in PARTS:
            found = point.value(f.named_parts[part])
            assert found == pytest.approx(getattr(expected, part), rel=1e-9, abs=1e-12 * expected.step_s)


SCHEDULES = {
    "1f1b": {"stages": 2},
    "1f1b of 4": {"stages": 4},
    "gpipe": {"stages": 2, "schedule": "gpipe"},
    "gpipe of 4": {"stages": 4, "schedule": "gpipe"},
    "interleaved": {"stages": 2, "schedule": "interleaved", "interleave": 2},
    "interleaved of 4": {"stages": 4, "schedule": "interleaved", "interleave": 2},
}
ADDING = [("alexnet", "pytorch_2", 4, 1), ("vgg16", "pytorch_2", 8, 2)]
"""Networks, frameworks, micro-batches and workers of pipelines in which adding gradients can change the slowest."""


@pytest.mark.parametrize(
    ("schedule", "network", "framework", "micro_batches", "workers"),
    [(schedule, *ADDING[schedule.endswith("of 4")]) for schedule in SCHEDULES],
)
def test_adding_gradients_leaves_the_device_that_works_longest(schedule, network, framework, micro_batches, workers):
    graph = getattr(pm.zoo, network)()
    how = {
        "batch_size": 32, "system": "dgx_a100", "framework": framework, "parallelism": "pipeline", "workers": workers,
        "micro_batches": micro_batches, **SCHEDULES[schedule],
    }  # fmt: skip
    f = pm.formula(graph=graph, free=FREE[:-1], **how)
    stated = pm.predict(graph, **how)
    assert f() == pytest.approx(stated.step_s, rel=1e-9)
    assert f.of("bubble_s")() == pytest.approx(stated.bubble_s, rel=1e-9)
    prepared = f.prediction.basis.prepared
    for batches, ratio in ((1, 0.3), (4, 3.0)):
        at = {name: ratio * value for name, value in f.stated.items()} | {"batch_size": 32 * batches}
        point = f.point(at)
        factors = {name: point.value(factor) for name, factor in f.opened.factors.items()}
        expected = replace(prepared, batch_size=at["batch_size"]).step(factors).parts
        assert f(**at) == pytest.approx(expected.step_s, rel=1e-9)
        for part in PARTS:
            found = point.value(f.named_parts[part])
            assert found == pytest.approx(getattr(expected, part), rel=1e-9, abs=1e-12 * expected.step_s)


OF_FOUR = {
    "accumulated": {"workers": 4, "accumulation_steps": 2},
    "pipelines": {"parallelism": "pipeline", "stages": 2, "micro_batches": 4, "workers": 2},
    "model": {"parallelism": "model", "stages": 2, "workers": 2},
    "tensor": {"parallelism": "tensor", "tensor_size": 2, "workers": 2},
    "zero 1": {"workers": 4, "shard_stage": 1},
    "zero 3": {"workers": 4, "shard_stage": 3, "accumulation_steps": 2},
}
"""Layouts on the four devices of a system."""


def of_four(layout, sync):
    framework = "pytorch_2" if sync == "all_reduce" else "generic"
    return {"sync": sync, "framework": framework, "batch_size": 32, **OF_FOUR[layout]}


@pytest.mark.parametrize(
    ("layout", "sync"),
    [
        (layout, sync)
        for layout in OF_FOUR
        for sync in ("ring_all_reduce", "parameter_server", "all_reduce")
        if not (layout.startswith("zero") and sync in WITH_SERVER)
    ],
)
def test_workers_of_a_layout_are_what_predict_says(layout, sync):
    how = of_four(layout, sync)
    f = pm.formula(graph=GRAPH, system="survey_fig5", free="workers", **how)
    group = how.get("stages", 1) * how.get("tensor_size", 1)
    assert f.opened.largest["workers"] == 4 // group
    for workers in range(1, 4 // group + 1):
        p = pm.predict(GRAPH, system="survey_fig5", **how | {"workers": workers})
        assert f(workers=workers) == pytest.approx(p.step_s, rel=1e-9)
        found = f.point({"workers": workers})
        for part in PARTS:
            assert found.value(f.named_parts[part]) == pytest.approx(p.breakdown[part], rel=1e-9, abs=1e-12 * p.step_s)


@pytest.mark.parametrize("layout", ["accumulated", "pipelines", "tensor", "zero 3"])
def test_links_and_workers_of_a_layout_are_free_together(layout):
    how, links = of_four(layout, "ring_all_reduce"), ("link_bandwidth_bytes_per_s", "link_latency_s")
    f = pm.formula(graph=GRAPH, system="survey_fig5", free=("workers", "batch_size", *links), **how)
    for bandwidth, latency in ((0.05, 3.0), (6.0, 0.2)):
        point = {name: ratio * f.stated[name] for name, ratio in zip(links, (bandwidth, latency), strict=True)}
        system = with_links_scaled(pm.load_system("survey_fig5"), "pcie_3", bandwidth, latency=latency)
        job = f.prediction.basis.job.replace(system=system)
        step = job.prepared_on(f.prediction.basis.prepared.placement)  # the cut that the formula was made with
        at = f.point(point)
        numbers = {name: at.value(factor) for name, factor in f.opened.factors.items()}
        assert f(**point) == pytest.approx(step.step(numbers).parts.step_s, rel=1e-9)


def test_what_a_layout_makes_of_workers_is_refused_where_they_share_layers():
    how = {"graph": GRAPH, "system": "survey_fig5", "parallelism": "hybrid", "workers": 4, "batch_size": 32}
    with pytest.raises(ArgumentError, match="depends on the number of workers"):
        pm.formula(**how, free="workers")
    assert pm.formula(**how, free="link_latency_s")() > 0


@pytest.mark.parametrize("layout", ["accumulated", "tensor", "zero 3", "hybrid"])
def test_without_stages_it_is_what_predict_says_at_any_batch_size(layout):
    f = built(layout, "ring_all_reduce")
    for batch_size in (8, 96, 400):
        p = pm.predict(GRAPH, batch_size=batch_size, **how_of(layout, "ring_all_reduce"))
        assert f(batch_size=batch_size) == pytest.approx(p.step_s, rel=1e-9)


def test_the_cut_of_stages_is_that_of_the_batch_size_it_was_made_at():
    f = built("pipeline", "ring_all_reduce")
    at = f.prediction
    assert f() == pytest.approx(at.step_s, rel=1e-12)
    names = [[layer.name for layer in stage.placed.graph.layers] for stage in at.basis.prepared.stages]
    # the best cut takes no longer, where kernels take longer than the host needs to issue them
    other = pm.predict(GRAPH, batch_size=40_000, **how_of("pipeline", "ring_all_reduce"))
    assert f(batch_size=40_000) >= other.step_s * (1 - 1e-9)
    assert len(names) == 2


def test_a_mini_batch_is_a_multiple_of_its_micro_batches():
    f = built("pipelines", "ring_all_reduce")
    with pytest.raises(ArgumentError, match="multiples of 4, the micro-batches"):
        f(batch_size=30)
    found = f.solve_for("batch_size", 2 * f())
    assert found.value % 4 == 0
    assert f(batch_size=found.value - 4) < 2 * f() <= f(batch_size=found.value)
    assert "multiple of 4" in found.sentence


def test_branches_are_told_with_the_layer_of_their_stage():
    f = built("pipelines", "ring_all_reduce")
    kernels = {row.where.split()[2] for row in f.active() if row.where.startswith("kernel of")}
    layers = {node.name for node in GRAPH.layers}
    assert kernels <= layers
    assert len(kernels) > 3
    assert "bubble" in f._repr_latex_()
    assert f.elasticities()["batch_size"].total > 0
