"""Every way to agree, with every parallelism, on shipped systems and networks of the zoo, through predict().

Each case is held to what follows from its own arithmetic: parts sum to the step, parameters and optimizer state of all
devices are those of the network as often as there are copies, devices send what the algorithm must move, and the played
steps take the predicted time. Every pair of two factors occurs; ``PERFMODEL_FULL_WALK=1`` walks the whole product.
"""

import json
import math
import os
from collections import Counter
from functools import cache
from itertools import product

import pytest

import perfmodel as pm
from contention import contends
from perfmodel.errors import ArgumentError
from perfmodel.parallelism.units import sharded_units
from perfmodel.prediction.job.agreement import AllReduced, Synchronous
from perfmodel.prediction.job.agreement_options import sync_names, taken
from perfmodel.sync.asynchronous import SCHEMES

NETWORKS = ("alexnet", "resnet50", "vgg16", "lstm32", "bert")
SYSTEMS = {"survey_fig5": 4, "survey_fig6": 8, "dgx_a100": 8, "gce_n1_standard_4_x4": 4}
"""System -> devices that work."""
PIPELINE = {"parallelism": "pipeline", "stages": 2, "micro_batches": 4}
LAYOUTS = {
    "data": {},
    "accumulation": {"accumulation_steps": 2},
    "model": {"parallelism": "model", "stages": 2},
    "gpipe": {**PIPELINE, "schedule": "gpipe"},
    "1f1b": PIPELINE,
    "interleaved": {**PIPELINE, "schedule": "interleaved", "interleave": 2},
    "tensor": {"parallelism": "tensor", "tensor_size": 2},
    "pipeline_tensor": {**PIPELINE, "tensor_size": 2},
    "hybrid": {"parallelism": "hybrid"},
    "zero1": {"shard_stage": 1},
    "zero2": {"shard_stage": 2, "accumulation_steps": 2},
    "zero3": {"shard_stage": 3},
    "pipeline_zero1": {**PIPELINE, "shard_stage": 1},
    "tensor_zero3": {"parallelism": "tensor", "tensor_size": 2, "shard_stage": 3},
}
SYNCS = sync_names()
BATCH_SIZE = 8
ELEMENT, ADAM_STATE = 4, 8  # B for each parameter in fp32


def devices_send(sync, p, *, of_machine=1):
    """Parts of the message that p devices send together, from the definition of each algorithm; p a power of two."""
    if sync == "in_network":  # a part of each device to each beside it and back, and one up for each machine
        return p / of_machine * (2 * (of_machine - 1) + 1)
    if sync in ("parameter_server", "host_tree"):  # to what adds up, which sends it back
        return p
    return p * math.log2(p) if sync == "recursive_doubling" else 2 * (p - 1)


def walk():
    """Return cases: the whole product, or one in which every pair of values of two factors occurs."""
    if os.environ.get("PERFMODEL_FULL_WALK"):
        return list(product(SYNCS, LAYOUTS, SYSTEMS, NETWORKS))
    return [
        (sync, layout, list(SYSTEMS)[(i + j) % len(SYSTEMS)], NETWORKS[(i + 2 * j) % 5])
        for (i, sync), (j, layout) in product(enumerate(SYNCS), enumerate(LAYOUTS))
    ]


TOLD = set(walk()[::9])
"""Cases whose report is read too, which takes as long as ten predictions."""


def test_reports_are_read_of_every_agreement_and_layout():
    assert {case[0] for case in TOLD} == set(SYNCS)
    assert {case[1] for case in TOLD} == set(LAYOUTS)


def test_the_walk_meets_every_pair():
    for first in range(4):
        for second in range(first + 1, 4):
            factors = (SYNCS, tuple(LAYOUTS), tuple(SYSTEMS), NETWORKS)
            met = {(case[first], case[second]) for case in walk()}
            assert met == set(product(factors[first], factors[second]))


@cache
def network(name):
    return getattr(pm.zoo, name)()


def job_of(sync, layout, system):
    sizes = LAYOUTS[layout]
    workers = SYSTEMS[system] // (sizes.get("stages", 1) * sizes.get("tensor_size", 1))
    job = {"system": system, "sync": sync, "workers": workers, "batch_size": BATCH_SIZE, "optimizer": "adam", **sizes}
    return job | taken({"bucket_bytes": 2.0**25, "staleness_bound": 2}, sync)


def refusal(sync, layout, system, name, workers):
    """Return why a case cannot be, or None."""
    if "zero" in layout and sync == "none":
        return "shard_stage.*state must be exchanged"
    if "zero" in layout and sync in (*SCHEMES, "parameter_server"):
        return "shard_stage must be 0 with sync="
    if layout == "hybrid" and sync in SCHEMES:
        return "sync must be .*parallelism='hybrid'"
    if layout == "hybrid" and name == "bert" and SYSTEMS[system] == 8:
        return "a divisor of the 12 heads"
    return None


@pytest.mark.parametrize(("sync", "layout", "system", "name"), walk())
def test_a_case_keeps_its_own_books(sync, layout, system, name):
    job = job_of(sync, layout, system)
    reason = refusal(sync, layout, system, name, job["workers"])
    if reason is not None:
        with pytest.raises(ArgumentError, match=reason):
            pm.predict(network(name), **job)
        return
    p = pm.predict(network(name), **job)
    assert sum(p.breakdown.values()) == pytest.approx(p.step_s, rel=1e-12)
    assert all(seconds >= -1e-15 for seconds in p.breakdown.values())  # but for rounding
    assert p.sync_s >= p.exposed_sync_s * (1 - 1e-12)
    assert p.worker_count == job["workers"]
    assert p.samples_per_s == pytest.approx(p.worker_count * BATCH_SIZE / p.step_s)
    check_memory(p, network(name))
    check_bytes(p, sync)
    check_timeline(p, sync)
    check_rows(p)
    if (sync, layout, system, name) in TOLD:
        check_words(p)


def check_rows(p):
    assert (len(p.stages) > 0) == (p.spread is not None)
    for row in p.stages:
        assert row.computing_s > 0
        assert row.memory_bytes > 0
        assert 0 <= row.sent_bytes < math.inf


def check_words(p):
    """What a user reads of any prediction that was made; every number finite."""
    told = p.to_dict()
    assert json.loads(json.dumps(told, allow_nan=False))["step_s"] == told["step_s"]
    assert f"(batch size {BATCH_SIZE}, forward" in " ".join(p.explain().split())


def check_memory(p, graph):
    """Parameters and Adam's two moments of all devices are the network's for each copy, or the server has them."""
    server = None if p.agreement is None else p.agreement.server
    moments = ADAM_STATE if server is None else 0
    assert server is None or server.optimizer_bytes == ADAM_STATE * graph.trained_parameter_count
    if p.spread is None:
        assert p.memory.weights_bytes == ELEMENT * graph.parameter_count
        assert p.memory.optimizer_bytes == moments * graph.parameter_count
        return
    layout, stages = p.spread.layout, p.spread.placement.stages
    held = 0
    for stage in stages:
        width = layout.tensor_size * stage.batch_factor
        beside = sum(stage.replicated.values()) * (width - 1) + stage.padding
        own = width * stage.graph.parameter_count - beside
        held += own * (layout.data_size // stage.batch_factor)
        assert own >= 0
    copied = sum(sum(stage.copied.values()) for stage in stages) * layout.data_size
    crowded = [stage for stage in stages if stage.batch_factor > 1]
    if not crowded:
        assert held - copied == graph.parameter_count * layout.data_size
    on_devices = [
        layout.tensor_size * sum(stage.graph.parameter_count for stage in stages if stage.device == device)
        for device in range(layout.stages)
    ]
    shares = {level: layout.data_size if layout.shard_stage >= level else 1 for level in (1, 3)}
    for place, (memory, count) in enumerate(zip(p.spread.footprints(p.basis.timed), on_devices, strict=True)):
        units = [unit for stage in stages if stage.device == place for unit in sharded_units(stage.graph)]
        blocks = [unit.parameter_count for unit in units if unit.is_block]
        ahead = min(2 * max(blocks, default=0), sum(blocks))  # two blocks, or all there are
        whole = sum(unit.parameter_count for unit in units if not unit.is_block) + ahead
        gathered = ELEMENT * whole if layout.shard_stage == 3 else 0
        own = memory.weights_bytes - gathered
        assert layout.tensor_size * own * shares[3] == pytest.approx(ELEMENT * count)
        assert layout.tensor_size * memory.optimizer_bytes * shares[1] == pytest.approx(moments * count)


def leaving(placed, names, size_bytes):
    """Return what passes the channels that leave these devices."""
    passed = placed.call(size_bytes).placed.channel_bytes(size_bytes)
    return sum(found for name, found in passed.items() if name.split(">")[0] in names and ">" in name)


def check_bytes(p, sync):
    size_bytes = 1e8
    prepared, layout, gradients = p.basis.prepared, p.basis.prepared.layout, 0.0
    names = set(prepared.exchanges.names)
    for stage in prepared.stages:
        placed_stage = stage.placed
        width = layout.tensor_size * placed_stage.batch_factor
        for exchange in placed_stage.exchanges:
            if exchange.group == "data" and exchange.kind != "all_gather":
                gradients += float(exchange.size_bytes(0))
                continue
            placed = prepared.exchanges.placed(exchange, placed_stage)
            if placed is None:
                continue
            own = float(exchange.size_bytes(prepared.samples(stage)))
            members = {"data": layout.data_size, "tensor": width}.get(exchange.group, 2)
            groups = layout.workers // members if exchange.kind != "send" else layout.data_size * layout.tensor_size
            if exchange.group == "data":
                groups = layout.tensor_size
            elif exchange.group == "pipeline":
                groups = layout.data_size * layout.tensor_size
            parts = {"all_reduce": devices_send("ring_all_reduce", members), "send": 1}.get(exchange.kind, members - 1)
            assert leaving(placed, names, own) == pytest.approx(groups * parts * own)
    for reduction in getattr(p.agreement, "reductions", ()):
        workers, groups = layout.data_size, layout.tensor_size
        if isinstance(reduction, AllReduced):
            machines = Counter(name.rpartition("/")[0] for name in reduction.placed.call(size_bytes).placed.order)
            of_machine = max(machines.values()) if len(machines) > 1 else 1
            parts = workers - 1 if layout.shard_stage else devices_send(sync, workers, of_machine=of_machine)
            must = parts * groups * size_bytes
            assert leaving(reduction.placed, names, size_bytes) == pytest.approx(must)
        else:
            assert leaving(reduction.push, names, size_bytes) == pytest.approx(workers * groups * size_bytes)
            assert leaving(reduction.pull, names, size_bytes) == 0
    if layout.data_size > 1 and isinstance(p.agreement, Synchronous):  # every gradient is exchanged, each once
        assert gradients == ELEMENT * sum(
            stage.graph.trained_parameter_count
            for stage in prepared.placement.stages
            if layout.data_size > stage.batch_factor
        )


def check_timeline(p, sync):
    if sync in SCHEMES:
        return  # drawn times: held to the closed form, within its error, by the properties of the schemes
    period_s = p.play(2).makespan_s - p.play(1).makespan_s
    if p.spread is not None and not contends(p):
        assert period_s == pytest.approx(p.step_s, rel=1e-9)
    elif p.spread is not None:
        assert 0.8 * p.step_s <= period_s <= 1.3 * p.step_s  # docs/simulation.md says what the closed form leaves out
    else:
        assert 0.9 * p.step_s <= period_s <= 1.02 * p.step_s
