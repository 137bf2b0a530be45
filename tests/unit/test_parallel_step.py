"""Steps of a network on several devices: parts, bubbles, exchanges, memory."""

from dataclasses import replace
from functools import cache

import pytest

from perfmodel import zoo
from perfmodel.cost.model_state import model_state_bytes
from perfmodel.errors import ArgumentError
from perfmodel.framework.profile import load_framework
from perfmodel.parallelism.base import Layout
from perfmodel.parallelism.registry import PARALLELISMS
from perfmodel.parallelism.units import sharded_units
from perfmodel.prediction.certainty.basis import timed_prediction
from perfmodel.prediction.device.step_time import PARTS
from perfmodel.prediction.device.targets import resolve_target
from perfmodel.prediction.job.agreement import AllReduced, Synchronous
from perfmodel.prediction.job.compose import compose
from perfmodel.prediction.job.prepare import prepare
from perfmodel.prediction.job.subject import subject_of_graph
from perfmodel.prediction.memory.footprint import _waiting_bytes
from perfmodel.prediction.memory.gathered_parameters import unit_bytes
from perfmodel.simulation import simulate
from perfmodel.simulation.pipeline import Hop, pipeline_resources, pipeline_schedule_tasks
from pipeline_closed_forms import bubble_fraction, schedule_bounds
from placed_networks import GROUPED_BY

GRAPHS = {"vgg16": zoo.vgg16(), "resnet50": zoo.resnet50(), "gpt": zoo.gpt(layers=8, vocabulary=50_304)}
every_graph = pytest.mark.parametrize("name", GRAPHS)


@cache
def _job(name, optimizer="sgd"):
    return {
        "subject": subject_of_graph(GRAPHS[name], optimizer=optimizer, phase="step"),
        "target": resolve_target(device="v100_sxm2", system=None, threads=None, workers=1),
        "profile": load_framework("generic"),
        "dtype": "fp32",
    }


class Free:
    """Exchanges that take no time."""

    library = None

    def __call__(self, exchange, size_bytes, stage):
        del exchange, size_bytes, stage
        return 0.0

    def time(self, size_bytes):
        return 0.0 * size_bytes


class Wire(Free):
    """Exchanges over a link, faster inside a machine."""

    def __call__(self, exchange, size_bytes, stage=None):
        del stage
        return 1e-5 + size_bytes / (10e9 if exchange.group == "pipeline" else 50e9)

    def time(self, size_bytes):
        return 1e-5 + size_bytes / 50e9


_free, _wire = Free(), Wire()


class Step:
    """A step on several devices, with the numbers it was composed of."""

    def __init__(self, prepared):
        self.prepared, self.timed = prepared, prepared.nominal
        self.composed = self.timed.composed
        self.parts, self.orders = self.composed.parts, self.composed.orders
        self.memory = prepared.footprints(self.timed)
        works = self.composed.stages
        self.forward_s = [each.forward_s for each in works]
        share = 1 - 1 / prepared.layout.micro_batches  # the first has nothing to add its gradients to
        self.backward_s = [each.backward_s + share * each.times.adding.step_s for each in works]
        self.forward_send_s = [each.send_s[0] for each in works[:-1]]
        self.backward_send_s = [each.send_s[1] for each in works[1:]]

    def tail_s(self, device):
        """What follows the last backward phase of a device, but for what workers exchange. [s]"""
        own = [each for each in self.composed.stages if each.device == device]
        return sum(each.times.update.step_s + each.tied_s for each in own)


def _step(name, *, batch_size=16, exchange_time=_free, optimizer="sgd", parallelism="data", **sizes):
    kind = PARALLELISMS[parallelism]
    if kind.name in GROUPED_BY:
        sizes = {GROUPED_BY[kind.name]: sizes["workers"]} | sizes
    layout = kind.resolved(Layout(**sizes))
    prepared = prepare(**_job(name, optimizer), batch_size=batch_size, parallelism=parallelism, layout=layout)
    agreement = None
    if layout.data_size > 1:
        sums = (AllReduced(placed=exchange_time),) * layout.stages
        agreement = Synchronous(name="wire", worker_count=layout.data_size, reductions=sums, overlap=False)
    return Step(replace(prepared, exchanges=exchange_time, agreement=agreement))


def _played_s(step):
    """Play the micro-batches through the pipeline, up to what follows the last backward phase."""
    return _timeline(step).makespan_s


def _timeline(step):
    tasks = pipeline_schedule_tasks(
        step.orders,
        forward_s=step.forward_s,
        backward_s=step.backward_s,
        forward_hops=[Hop(seconds) for seconds in step.forward_send_s],
        backward_hops=[Hop(seconds) for seconds in step.backward_send_s],
    )
    return simulate(tasks, channels={}, resources=pipeline_resources(step.orders, chunk_count=len(step.forward_s)))


def _ends(step):
    """When each device has done its last turn. [s]"""
    spans = _timeline(step).spans
    return [
        max(each.end_s for each in spans if each.resource == f"stage{device}") for device in range(len(step.orders))
    ]


def _single(name, batch_size=16, optimizer="sgd"):
    return timed_prediction(prepare(**_job(name, optimizer), batch_size=batch_size))


@every_graph
def test_one_device_is_the_prediction_of_one_device(name):
    alone, single = _step(name), _single(name)
    for part in PARTS:
        assert getattr(alone.parts, part) == pytest.approx(getattr(single.parts, part), rel=1e-9, abs=1e-15)
    assert alone.memory[0].total_bytes == pytest.approx(single.memory.total_bytes, rel=1e-12)


@every_graph
def test_layers_on_several_devices_are_no_faster_and_their_memory_adds_up(name):
    split, single = _step(name, parallelism="model", workers=4), _single(name)
    assert len(split.memory) == 4
    works = sum(split.forward_s) + sum(split.backward_s)
    # stages of earlier layers end later, and then update
    last_s = max(end + split.tail_s(device) for device, end in enumerate(_ends(split)))
    assert split.parts.step_s == pytest.approx(last_s, rel=1e-12)
    assert _played_s(split) == pytest.approx(works, rel=1e-9)
    # less only what the update and the sum of a tied table's gradients take, which is an exchange now
    assert works >= 0.97 * (single.step_s - single.parts.update_s)
    assert works <= 1.1 * single.step_s
    weights = sum(each.weights_bytes for each in split.memory)
    tied = 50_304 * 768 * 4 if name == "gpt" else 0
    assert weights == pytest.approx(single.memory.weights_bytes + tied, rel=1e-12)
    assert max(each.total_bytes for each in split.memory) < single.memory.total_bytes


@pytest.mark.parametrize(
    "sizes",
    [
        {"schedule": "gpipe"},
        {"schedule": "1f1b"},
        {"schedule": "interleaved", "interleave": 2},
    ],
    ids=lambda sizes: sizes["schedule"],
)
@every_graph
def test_parts_sum_to_what_is_played(name, sizes):
    step = _step(name, exchange_time=_wire, parallelism="pipeline", workers=4, stages=4, micro_batches=8, **sizes)
    parts = step.parts
    assert parts.step_s == pytest.approx(sum(getattr(parts, part) for part in PARTS), rel=1e-12)
    assert all(getattr(parts, part) >= -1e-12 for part in PARTS)
    last_s = max(end + step.tail_s(device) for device, end in enumerate(_ends(step)))
    assert parts.step_s == pytest.approx(last_s, rel=1e-9)
    free = _step(name, parallelism="pipeline", workers=4, stages=4, micro_batches=8, **sizes)
    counts = {"stage_count": 4, "micro_batch_count": 8}
    least, most = schedule_bounds(sizes["schedule"], forward_s=free.forward_s, backward_s=free.backward_s, **counts)
    assert least * (1 - 1e-9) <= _played_s(free) <= most * (1 + 1e-9)
    assert least == most or sizes["schedule"] != "gpipe"
    assert parts.exposed_sync_s > free.parts.exposed_sync_s == 0


def test_equal_stages_wait_as_long_as_the_formula_says():
    step = _step("gpt", parallelism="pipeline", workers=4, stages=4, micro_batches=8)
    works = [replace(step.composed.stages[1], device=device, send_s=(0.0, 0.0)) for device in range(4)]
    parts = compose(works, orders=step.orders, micro_batches=8).parts
    computed_s = parts.step_s - works[0].times.update.step_s
    assert parts.bubble_s / computed_s == pytest.approx(bubble_fraction(stage_count=4, micro_batch_count=8), rel=1e-12)
    assert bubble_fraction(stage_count=4, micro_batch_count=8) == 3 / 11


def test_more_micro_batches_mean_shorter_bubbles_and_gpipe_keeps_all_of_them():
    def step(count, schedule):
        return _step(
            "gpt", batch_size=32, parallelism="pipeline", workers=4, stages=4, micro_batches=count, schedule=schedule
        )

    shares = [step(count, "1f1b").parts.bubble_s / step(count, "1f1b").parts.step_s for count in (1, 4, 16)]
    assert shares[0] > shares[1] > shares[2]
    one, all_of_them = step(16, "1f1b"), step(16, "gpipe")
    kept = [_waiting_bytes(one.prepared, stage) for stage in one.prepared.stages]
    for place_, (few, many) in enumerate(zip(one.memory, all_of_them.memory, strict=True)):
        assert few.weights_bytes == many.weights_bytes
        more = many.activations_bytes - few.activations_bytes
        assert more == pytest.approx((16 - (4 - place_)) * kept[place_], rel=1e-9)


def test_shared_state_is_divided_as_published():
    # 16 P; 4 P + 12 P / N; 2 P + 14 P / N; 16 P / N with half precision; here 16 B with Adam in single: 4 + 4 + 8
    full = _step("gpt", optimizer="adam", workers=8)
    state = {"weights_bytes": 3, "gradients_bytes": 2, "optimizer_bytes": 1}
    for stage in (1, 2, 3):
        step = _step("gpt", optimizer="adam", workers=8, shard_stage=stage)
        # besides, parameters of two blocks and of what is outside them
        gathered = unit_bytes(step.prepared, step.prepared.stages).gathered(step.prepared.layout) if stage == 3 else 0.0
        for name, from_stage in state.items():
            share = 8 if stage >= from_stage else 1
            of_all = getattr(full.memory[0], name)
            beside = gathered if name == "weights_bytes" else 0.0
            if stage >= 2 and name == "gradients_bytes":
                # none is made at the peak yet, but shares, and the copy of the largest unit, keep their memory
                assert of_all == 0
                graph = step.prepared.stages[0].placed.graph
                units = sharded_units(graph)
                outside = sum(unit.parameter_count for unit in units if not unit.is_block)
                largest = max(outside, *(unit.parameter_count for unit in units if unit.is_block))
                beside = 4 * (graph.trained_parameter_count / 8 + largest)
            assert getattr(step.memory[0], name) == pytest.approx(of_all / share + beside)
        assert step.memory[0].activations_bytes == full.memory[0].activations_bytes
        assert step.parts.update_s == pytest.approx(full.parts.update_s / 8)
        assert step.parts.compute_s == pytest.approx(full.parts.compute_s, rel=1e-12)


def test_published_sizes_of_shared_state():
    # P 7.5e9 with 2, 2 and 12 B each, 64 workers: 120.0, 31.41, 16.64, 1.875 GB
    parameters = 7.5e9
    sizes = {"weights_bytes": 2 * parameters, "gradients_bytes": 2 * parameters, "optimizer_bytes": 12 * parameters}
    found = [sum(model_state_bytes(**sizes, shard_stage=stage, worker_count=64)) / 1e9 for stage in range(4)]
    assert found == pytest.approx([120.0, 31.41, 16.64, 1.875], abs=0.005)
    counts = [sum(model_state_bytes(**sizes, shard_stage=2, worker_count=count)) for count in (1, 2, 8, 64)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == 16 * parameters


def test_workers_exchange_all_gradients_and_hide_nothing_unless_somebody_says_how():
    step = _step("vgg16", workers=4, exchange_time=_wire)
    exchanges = step.prepared.stages[0].placed.exchanges
    assert step.parts.exposed_sync_s == pytest.approx(sum(_wire(each, each.fixed_bytes) for each in exchanges))
    assert step.parts.sync_s == pytest.approx(step.parts.exposed_sync_s)
    shared = _step("vgg16", workers=4, exchange_time=_wire, shard_stage=3).parts
    units = sharded_units(step.prepared.stages[0].placed.graph)  # each is gathered as one, blocks twice
    passes = sum((1 + unit.is_block) * _wire(exchanges[0], 4 * unit.parameter_count) for unit in units)
    assert shared.exposed_sync_s == pytest.approx(step.parts.exposed_sync_s + passes)


def test_a_group_shares_work_and_pays_with_exchanges():
    one = _step("gpt")
    group = _step("gpt", parallelism="tensor", workers=4, exchange_time=_wire)
    parts = _step("gpt", parallelism="tensor", workers=4, sequence_parallel=True, exchange_time=_wire)
    assert one.parts.compute_s / 4 <= group.parts.compute_s < one.parts.compute_s / 2
    assert group.parts.exposed_sync_s > 0 == one.parts.exposed_sync_s
    # smaller messages cannot be: the same bytes, twice the latencies
    assert parts.memory[0].activations_bytes < group.memory[0].activations_bytes < one.memory[0].activations_bytes
    assert parts.parts.memory_bound_s < group.parts.memory_bound_s
    assert parts.parts.sync_s > parts.parts.exposed_sync_s  # what is gathered again is hidden


def test_hybrid_computes_its_share_of_dense_layers_for_all_samples():
    step = _step("vgg16", parallelism="hybrid", workers=4, exchange_time=_wire)
    assert [step.prepared.samples(stage) for stage in step.prepared.stages] == [16, 64]
    assert len(step.memory) == 1
    assert step.memory[0].weights_bytes < 0.5 * _single("vgg16").memory.weights_bytes
    data = _step("vgg16", workers=4, exchange_time=_wire)
    assert step.parts.exposed_sync_s < data.parts.exposed_sync_s


def test_micro_batches_must_divide_the_batch():
    with pytest.raises(ArgumentError, match="a divisor of the batch of 16"):
        _step("vgg16", parallelism="pipeline", workers=2, stages=2, micro_batches=5)
