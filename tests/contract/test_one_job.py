"""One job asked in several ways: degenerate layouts, and relabellings of the same work, are one composition.

Every pair of two factors occurs; ``PERFMODEL_FULL_WALK=1`` walks the whole product.
"""

import os
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.cost.pipeline_order import orders_of
from perfmodel.errors import PerfmodelError
from perfmodel.prediction.device.step_time import StepTime
from perfmodel.prediction.job.compose import StageWork, compose

NETWORKS = ("alexnet", "vgg16", "resnet50", "lstm32")
SYSTEMS = {"survey_fig5": 4, "survey_fig6": 8, "dgx_a100": 8}
SYNCS = (
    "none", "all_reduce", "ring_all_reduce", "double_binary_tree", "hierarchical", "parameter_server", "downpour",
    "mixed", "bounded_staleness", "delay_compensated",
)  # fmt: skip
NORMAL = {"distribution": "normal", "cv": 0.2}
OPTIONS = (
    {},
    {"straggler": NORMAL},
    {"straggler": NORMAL, "backup_workers": 1},
    {"bucket_bytes": 25 * 2**20},
    {"bucket_bytes": "merged"},
    {"overlap": False},
    {"dataset": "imagenet_jpeg"},
    {"dataset": "imagenet_jpeg", "prefetch": 0},
    {"optimizer": "adam", "recompute": "full"},
    {"dtype": "fp16", "framework": "pytorch_2"},
    {"phase": "forward"},
    {"phase": "forward_backward", "framework": "tensorflow_0_9"},
)
LAYOUTS = (
    {"parallelism": "pipeline", "stages": 1, "micro_batches": 1},
    {"parallelism": "pipeline", "stages": 1, "schedule": "gpipe"},
    {"parallelism": "pipeline", "stages": 1, "schedule": "interleaved", "interleave": 1},
    {"parallelism": "tensor", "tensor_size": 1},
    {"parallelism": "model", "stages": 1},
    {"shard_stage": 0, "accumulation_steps": 1},
    {"context_size": 1},
)
"""Layouts that are data parallelism, degenerate in another way each."""
PARTS = (
    "step_s", "compute_s", "memory_bound_s", "overhead_s", "update_s", "exposed_transfer_s", "input_wait_s",
    "exposed_sync_s", "straggler_s", "bubble_s", "transfer_s", "sync_s", "dispatch_s", "launch_s",
)  # fmt: skip
TOLERANCE = 1e-12  # of the step: sums in another order


@cache
def network(name):
    return getattr(pm.zoo, name)()


def asked(sync, option, system, **more):
    bound = {"staleness_bound": 2} if sync == "bounded_staleness" else {}
    return {"batch_size": 16, "system": system, "workers": SYSTEMS[system], "framework": "pytorch_2", "sync": sync,
            **bound, **option, **more}  # fmt: skip


def predicted(name, **arguments):
    """Return a prediction, or why there is none."""
    try:
        return pm.predict(network(name), **arguments)
    except PerfmodelError as error:
        return str(error)


def assert_same(one, other, *, with_interval=False, with_timeline=False):
    if isinstance(one, str):
        assert one == other
        return
    step_s = one.step_s
    for part in PARTS:
        assert getattr(other, part) == pytest.approx(getattr(one, part), rel=0, abs=TOLERANCE * step_s), part
    for field in ("weights", "gradients", "optimizer", "activations", "workspace", "input", "context"):
        of_one, of_other = (getattr(each.memory, f"{field}_bytes") for each in (one, other))
        assert of_other == pytest.approx(of_one, rel=TOLERANCE), field
    assert other.bottleneck == one.bottleneck
    assert other.samples_per_s == pytest.approx(one.samples_per_s, rel=TOLERANCE)
    assert other.updates_per_s == pytest.approx(one.updates_per_s, rel=TOLERANCE)
    assert other.mean_staleness == pytest.approx(one.mean_staleness, rel=1e-9)
    if with_interval:
        assert other.interval_s == pytest.approx(one.interval_s, rel=1e-9)
    if with_timeline:
        spans = [
            [(span.task, span.kind, span.start_s, span.end_s) for span in each.play(2).spans] for each in (one, other)
        ]
        assert [span[:2] for span in spans[1]] == [span[:2] for span in spans[0]]
        for own, there in zip(*spans, strict=True):
            assert there[2:] == pytest.approx(own[2:], rel=0, abs=1e-9 * step_s)


def walk():
    """Return cases: the whole product, or one in which every pair of values of two factors occurs."""
    if os.environ.get("PERFMODEL_FULL_WALK"):
        return list(product(SYNCS, OPTIONS, LAYOUTS, SYSTEMS, NETWORKS))
    return [
        (
            sync,
            option,
            LAYOUTS[(i + k) % 7],
            list(SYSTEMS)[(i + k + (i // 3)) % 3],
            NETWORKS[(i + k + i // 2 + k // 4) % 4],
        )
        for (i, sync), (k, option) in product(enumerate(SYNCS), enumerate(OPTIONS))
    ]


def ids(case):
    return "-".join(str(each) for each in case.items()) if isinstance(case, dict) else str(case)


@pytest.mark.parametrize(("sync", "option", "layout", "system", "name"), walk(), ids=ids)
def test_a_degenerate_layout_is_data_parallelism(sync, option, layout, system, name):
    arguments = asked(sync, option, system)
    one, other = predicted(name, **arguments), predicted(name, **arguments, **layout)
    drawn = sync in ("downpour", "mixed", "bounded_staleness", "delay_compensated")
    chosen = (SYNCS.index(sync) + OPTIONS.index(option)) % 5 == 0
    assert_same(one, other, with_interval=chosen, with_timeline=chosen and not drawn)


@pytest.mark.parametrize("option", OPTIONS, ids=ids)
def test_hybrid_parallelism_of_one_worker_is_one_device(option):
    arguments = {**asked("none", option, "survey_fig5"), "workers": 1}
    assert_same(predicted("alexnet", **arguments), predicted("alexnet", **arguments, parallelism="hybrid"))


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("option", OPTIONS, ids=ids)
def test_micro_batches_of_one_stage_are_steps_of_accumulation(sync, option):
    arguments = asked(sync, option, "dgx_a100")
    ways = (
        {"accumulation_steps": 4},
        {"micro_batches": 4},
        {"parallelism": "pipeline", "micro_batches": 4},
        {"parallelism": "pipeline", "micro_batches": 2, "accumulation_steps": 2},
        {"parallelism": "tensor", "tensor_size": 1, "micro_batches": 4},
    )
    first, *others = (predicted("alexnet", **arguments, **way) for way in ways)
    for other in others:
        assert_same(first, other)


class Empty:
    """A stage without layers."""

    whole = forward = backward = update = adding = StepTime(0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(
    ("sync", "option"),
    [(sync, option) for i, sync in enumerate(SYNCS) for k, option in enumerate(OPTIONS[:6]) if (i + k) % 2],
    ids=ids,
)
def test_an_empty_second_stage_over_a_free_link_is_one_stage(sync, option, schedule, micro_batches):
    p = predicted("alexnet", **asked(sync, option, "dgx_a100"), micro_batches=micro_batches)
    if isinstance(p, str):
        assert " must be " in p
        return
    prepared, composed = p.basis.prepared, p.basis.timed.composed
    agreement = prepared.agreement
    if hasattr(agreement, "reductions"):
        agreement = replace(agreement, reductions=agreement.reductions * 2)
    how = {"stage_count": 2, "micro_batch_count": micro_batches, "interleave": 1, "trains": True}
    two = compose(
        [*composed.stages, StageWork(times=Empty(), device=1)],
        orders=orders_of(schedule, **how),
        micro_batches=micro_batches,
        agreement=agreement,
        copies_s=prepared.feed_times(),
    ).parts
    for part in PARTS:
        assert getattr(two, part) == pytest.approx(getattr(p, part), rel=0, abs=TOLERANCE * p.step_s), part


def test_a_group_over_free_links_that_splits_nothing_is_one_device():
    p = predicted("resnet50", **asked("all_reduce", {}, "dgx_a100"))
    (work,) = p.basis.timed.composed.stages
    shared = replace(work, group_s=(0.0, 0.0), exchanged_s=0.0, send_s=(0.0, 0.0))
    prepared = p.basis.prepared
    # a share that is an array is no plain one: phases are put together as those of any layout
    one = compose(
        [shared],
        orders=prepared.orders,
        update_share=np.array(1.0),
        agreement=prepared.agreement,
        copies_s=prepared.feed_times(),
    ).parts
    for part in PARTS:
        assert getattr(one, part) == pytest.approx(getattr(p, part), rel=0, abs=TOLERANCE * p.step_s), part


PIPELINE = {"parallelism": "pipeline", "stages": 2, "micro_batches": 4}


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"accumulation_steps": 4},
        PIPELINE,
        {**PIPELINE, "accumulation_steps": 2, "schedule": "gpipe"},
        {**PIPELINE, "schedule": "interleaved", "interleave": 2},
        {**PIPELINE, "shard_stage": 2},
        {"parallelism": "tensor", "tensor_size": 2},
        {"shard_stage": 3},
        {"parallelism": "hybrid"},
    ],
    ids=ids,
)
@pytest.mark.parametrize("sync", ["all_reduce", "ring_all_reduce", "parameter_server", "downpour"])
def test_arrays_over_configurations_are_composed_as_floats_are(sync, layout):
    devices = layout.get("stages", 1) * layout.get("tensor_size", 1)
    job = {"batch_size": 16, "system": "dgx_a100", "workers": 8 // devices, "framework": "pytorch_2", "sync": sync}
    p = predicted("alexnet", **job, **layout, straggler=NORMAL)
    if isinstance(p, str):
        assert layout.get("shard_stage") or layout.get("parallelism") == "hybrid"
        return
    prepared = p.basis.prepared
    names = [name for name in prepared.constant_names if "bandwidth" in name or "gemm" in name or "launch" in name][:4]
    assert len(names) > 1
    rng = np.random.default_rng(3)
    factors = {name: rng.uniform(0.2, 3.0, 7) for name in names}
    together = prepared.step(factors).parts
    for index in range(7):
        alone = prepared.step({name: float(values[index]) for name, values in factors.items()}).parts
        for part in PARTS:
            found = np.broadcast_to(getattr(together, part), 7)[index]
            assert found == pytest.approx(getattr(alone, part), rel=0, abs=TOLERANCE * alone.step_s), part


@pytest.mark.parametrize("place", ["blas.tile_rows", "blas.split_k", "dnn.recurrent_tile_efficiency"])
@pytest.mark.parametrize("count", [2, 12, 4])  # 12 and 4 tiles are listed: an array as long must not scale each tile
def test_a_list_of_tiles_takes_one_factor_and_refuses_an_array(place, count):
    prepared = predicted("lstm32", batch_size=16, device="h100_sxm", framework="pytorch_2").basis.prepared
    library, constant = place.split(".")
    stem = prepared.libraries[f"gpu_{library}"].stem
    name = f"libraries/{stem}/hopper.{constant}"
    assert name in prepared.constant_names
    nominal, as_stated, slow = (prepared.step({name: factor}).parts.step_s for factor in (1.0, np.array(1.0), 0.5))
    assert as_stated == nominal > 0
    assert slow > 0
    with pytest.raises(PerfmodelError, match=rf"{name} must be one factor for the whole list of \d+"):
        prepared.step({name: np.linspace(0.9, 1.1, count)})
