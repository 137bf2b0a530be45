"""Networks on several devices as whole jobs: what feeds them, servers, times that vary, inference, a library's sums."""

import pytest

import perfmodel as pm
from perfmodel.prediction.job.straggler import DISTRIBUTIONS
from perfmodel.sync.registry import LibraryCollective
from pipeline_closed_forms import gpipe_time

PIPELINE = {"parallelism": "pipeline", "stages": 2, "micro_batches": 4}
TENSOR = {"parallelism": "tensor", "tensor_size": 2}
NORMAL = {"distribution": "normal", "cv": 0.1}


@pytest.fixture(scope="module")
def alexnet():
    return pm.zoo.alexnet()


def job(graph, **options):
    return pm.predict(graph, **{"batch_size": 16, "system": "survey_fig5", "workers": 2, **options})


def period_s(p, steps=2):
    return (p.play(steps + 1).makespan_s - p.play(1).makespan_s) / steps


@pytest.mark.parametrize("prefetch", [0, 1])
@pytest.mark.parametrize("layout", [PIPELINE, TENSOR, {"workers": 4, "accumulation_steps": 2}])
def test_workers_that_decode_share_the_hosts_cores_and_devices_of_one_read_once(alexnet, layout, prefetch):
    p = job(alexnet, dataset="imagenet_jpeg", prefetch=prefetch, **layout)
    data = pm.hardware.catalogue.load_dataset("imagenet_jpeg")
    cores = pm.load_system("survey_fig5").core_count
    decoding_s = p.worker_count * 16 / (cores * data.decode_rate_per_core)
    assert p.data_path.stages(16)["decode"] == pytest.approx(decoding_s)  # no matter how many devices a worker has
    without = job(alexnet, **layout)
    if prefetch:
        assert p.step_s == pytest.approx(max(decoding_s, without.step_s))
        assert p.bottleneck == "decode"
    else:
        assert p.step_s > decoding_s + without.step_s
    assert period_s(p) == pytest.approx(p.step_s, rel=1e-9)
    assert "once for all of its devices" in " ".join(p.explain().split())
    assert p.interval_s[0] < p.step_s < p.interval_s[1]
    assert "datasets/imagenet_jpeg/decode_rate_per_core" in p.spread.constant_names


def test_the_first_stage_copies_examples_and_the_last_one_labels(alexnet):
    p = job(alexnet, **PIPELINE)
    copied = [sum(each.copied_bytes for each in p.spread.stage_copies(stage)) for stage in p.spread.stages]
    assert copied == [4 * 4 * alexnet.input_elements, 4 * alexnet.label_bytes_per_sample]
    assert p.spread.stages[0].target.system_part.names == ("gpu0", "gpu2")
    # one copies while the others compute: the first stage's are the longest
    first = p.spread.stages[0]
    shared = p.spread.target_of(first).shared_bytes_per_s
    one_s = sum(copied.time(shared_bytes_per_s=shared) for copied in p.spread.stage_copies(first))
    assert p.transfer_s == pytest.approx(4 * one_s)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_inference_is_a_flow_shop_without_gradients(alexnet, schedule):
    p = job(alexnet, phase="forward", **PIPELINE, schedule=schedule)
    works = p.basis.timed.composed.stages
    by_hand = gpipe_time(
        forward_s=[work.forward_s for work in works],
        backward_s=(0.0, 0.0),
        forward_send_s=[works[0].send_s[0]],
        backward_send_s=(0.0,),
        micro_batch_count=4,
    )
    assert p.step_s - p.exposed_transfer_s == pytest.approx(float(by_hand), rel=1e-12)
    assert period_s(p) == pytest.approx(p.step_s, rel=1e-9)
    assert p.update_s == p.memory.gradients_bytes == p.memory.optimizer_bytes == 0
    assert {exchange.kind for stage in p.spread.stages for exchange in stage.placed.exchanges} == {"send"}
    assert p.samples_per_s == pytest.approx(2 * 16 / p.step_s)
    assert "end to end" in " ".join(p.explain().split())


def test_inference_of_a_tensor_group_adds_up_going_forward_alone(alexnet):
    forward, both, step = (
        job(alexnet, phase=phase, overlap=False, **TENSOR) for phase in ("forward", "forward_backward", "step")
    )
    whole = pm.predict(alexnet, batch_size=16, system="survey_fig5", phase="forward")
    assert forward.compute_s + forward.memory_bound_s < whole.compute_s + whole.memory_bound_s
    found = {(each.group, each.phase.value) for each in forward.spread.stages[0].placed.exchanges}
    assert found == {("tensor", "forward")}
    assert 0 < forward.sync_s < both.sync_s
    assert both.update_s == 0
    assert both.step_s + step.update_s == pytest.approx(step.step_s, rel=0.02)  # launches of the update are besides


def test_workers_of_several_devices_wait_for_the_slowest_of_them(alexnet):
    steady, varying, backed = (
        job(alexnet, workers=4, system="survey_fig6", **PIPELINE, **how)
        for how in ({}, {"straggler": NORMAL}, {"straggler": NORMAL, "backup_workers": 1})
    )
    own_s = steady.basis.timed.alone.step_s
    slowest = DISTRIBUTIONS["normal"](cv=0.1).order_statistic(rank=4, count=4)
    assert varying.straggler_s == pytest.approx((slowest - 1) * own_s)
    # rings of both stages meet in a switch, of which the closed form does not know
    longer = period_s(steady) / steady.step_s
    assert 1 < longer < 1.05
    assert period_s(varying, 150) == pytest.approx(longer * varying.step_s, rel=0.015)
    assert backed.step_s < varying.step_s
    assert period_s(backed, 150) == pytest.approx(longer * backed.step_s, rel=0.015)
    assert backed.samples_per_update == 3 * 16
    assert varying.samples_per_update == 4 * 16


@pytest.mark.parametrize("layout", [PIPELINE, TENSOR])
def test_an_asynchronous_worker_of_several_devices_loads_the_server_as_one_of_one_device(alexnet, layout):
    spread, plain = (job(alexnet, sync="downpour", **how) for how in (layout, {}))
    # biases that both devices of a group hold are pushed by both
    assert spread.agreement.numbers.part_s == pytest.approx(plain.agreement.numbers.part_s, rel=1e-3)
    assert spread.agreement.numbers.push_latency_s <= plain.agreement.numbers.push_latency_s * (1 + 1e-9)
    assert spread.mean_staleness == pytest.approx(1)
    rare = job(alexnet, sync="downpour", push_period=1000, pull_period=1000, **layout)
    alone = job(alexnet, sync="none", **layout)
    # the last stage updates while the first one ends, where no server does
    assert rare.step_s - rare.bubble_s == pytest.approx(alone.step_s - alone.update_s - alone.bubble_s, rel=0.01)
    assert rare.bubble_s == spread.bubble_s >= alone.bubble_s
    assert spread.samples_per_update == 16
    (busy_s,) = spread.agreement.scheme.in_effect(spread.agreement.numbers).station_s
    assert 32 / spread.samples_per_s >= 2 * busy_s  # the server is one


def test_shares_of_a_layer_meet_at_the_server(alexnet):
    """Two workers of two devices push what two of one device would, over the same way, and it adds up the same."""
    spread, plain = (job(alexnet, sync="parameter_server", overlap=False, **how) for how in (TENSOR, {}))
    inner = job(alexnet, sync="none", **TENSOR)
    at_server_s = spread.exposed_sync_s - inner.exposed_sync_s
    assert at_server_s == pytest.approx(plain.exposed_sync_s, rel=0.05)
    assert spread.update_s == 0
    uneven = job(alexnet, sync="parameter_server", overlap=False, **PIPELINE)  # nearly all in the second stage
    assert uneven.exposed_sync_s == pytest.approx(plain.exposed_sync_s, rel=0.05)


def test_a_librarys_collectives_serve_all_groups(alexnet):
    ring, library = (
        job(alexnet, system="dgx_a100", framework="pytorch_2", sync=sync, shard_stage=2, **TENSOR)
        for sync in ("ring_all_reduce", "all_reduce")
    )
    assert library.sync_s > ring.sync_s  # calls and protocols cost something
    spread = library.spread
    placed = {
        exchange.kind: spread.exchanges.placed(exchange, stage.placed)
        for stage in spread.stages
        for exchange in stage.placed.exchanges
        if exchange.group != "data" or exchange.kind == "all_gather"
    }
    placed["reduce_scatter"] = library.agreement.reduction.placed
    assert {"all_reduce", "all_gather", "reduce_scatter"} <= set(placed)
    assert all(isinstance(each, LibraryCollective) for each in placed.values())
    assert "NCCL 2.27" in {spec.name for spec in library.sources}
    assert [row.sent_bytes for row in library.stages] == [row.sent_bytes for row in ring.stages]


@pytest.mark.parametrize("sync", ["ring_all_reduce", "all_reduce"])
def test_software_that_adds_up_whole_gradients_does_so_by_a_named_algorithm_too(alexnet, sync):
    """With ``shard_stage=1`` of ``pytorch_2`` workers gather what each has updated, beside the sums of stage 0."""
    how = {"system": "dgx_a100", "framework": "pytorch_2", "sync": sync, **TENSOR}
    whole, shared, scattered = (job(alexnet, **how, shard_stage=stage) for stage in (0, 1, 2))
    sent_bytes = [p.stages[0].sent_bytes for p in (whole, shared, scattered)]
    assert sent_bytes[0] == sent_bytes[2]  # an all-reduce is a reduce-scatter and an all-gather
    held_bytes = 4 * whole.spread.stages[0].placed.graph.trained_parameter_count
    assert sent_bytes[1] - sent_bytes[0] == pytest.approx(held_bytes / 2)  # one worker's part, to the other
    sums = [p.agreement.reduction.placed.time(1e8) for p in (whole, shared)]
    assert sums[0] == sums[1]
    copied = [p.basis.timed.composed.stages[0].copied_s for p in (whole, shared)]
    assert copied[0] == copied[1] > 0
