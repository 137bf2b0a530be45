"""Dies that share a board, parameters that come in no set order, one worker with a server."""

import math
from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.framework.profile import load_framework
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_device, load_system
from perfmodel.prediction.device.gpu_clock import sustained_peak_flop_per_s
from perfmodel.prediction.device.system_part import SystemPart

K80, EIGHT = "tesla_k80_gk210", "gce_n1_standard_32_k80_x8"


@pytest.fixture(scope="module")
def alexnet():
    return pm.zoo.alexnet()


def step(graph, workers, *, system=EIGHT, framework="tensorflow_1_1", sync="parameter_server", **options):
    job = {"batch_size": 64, "system": system, "framework": framework, "sync": sync}
    return pm.predict(graph, workers=workers, **job | options)


def told(prediction):
    return " ".join(prediction.explain().split())


def pulls_in_order(stem):
    profile = load_framework(stem)
    return profile.model_copy(update={"exchange": profile.exchange.model_copy(update={"pull_order": "layers"})})


def test_what_counts_in_cycles_slows_down_beside_a_working_die_and_memory_does_not():
    alone = load_device(K80)
    beside = alone.beside_working_dies()
    share = alone.board.shared_clock_fraction
    assert 0.9 < share < 1
    assert beside.clock_hz == pytest.approx(share * alone.clock_hz)
    for dtype in alone.dtypes:
        assert beside.peak_flop_per_s(dtype) == pytest.approx(share * alone.peak_flop_per_s(dtype))
    assert beside.launch_latency_s == pytest.approx(alone.launch_latency_s / share)
    assert beside.memory_bandwidth_bytes_per_s == alone.memory_bandwidth_bytes_per_s
    assert (beside.name, beside.stem) == (alone.name, alone.stem)
    p100 = load_device("tesla_p100_pcie")
    assert p100.beside_working_dies() is p100


@pytest.mark.parametrize("system", ["k80_card", EIGHT, f"{EIGHT}_board_slots", "p2_16xlarge"])
def test_the_clock_falls_once_two_dies_of_one_board_work(system):
    machine = SystemPart(system=load_system(system), worker_count=1)
    alone = machine.device
    assert not machine.shares_boards
    for workers in (2, machine.alike_count):
        more = machine.with_workers(workers)
        assert more.shares_boards
        assert more.device.clock_hz < alone.clock_hz
        assert more.with_workers(1).device.clock_hz == alone.clock_hz


def test_dies_of_different_boards_keep_their_clock(tmp_path):
    """Two boards of which one die each works."""
    text = spec_files.find("systems", "k80_card").read_text(encoding="utf-8")
    text = text.replace("[[switch]]\n", '[[switch]]\nnames = ["first", "second"]\ncount = 2\n', 1)
    text = text.replace('to = "switch0"', 'to = ["first", "second"]')
    path = tmp_path / "apart.toml"
    path.write_text(text)
    machine = SystemPart(system=load_system(path), worker_count=2)
    assert not machine.shares_boards
    assert machine.device.clock_hz == load_device(K80).clock_hz


def test_a_step_is_slower_beside_a_working_die_by_no_more_than_the_clock_and_it_is_told(alexnet):
    one, two = (step(alexnet, workers, sync="none") for workers in (1, 2))
    share = load_device(K80).board.shared_clock_fraction
    assert one.compute_s / two.compute_s == pytest.approx(share, abs=0.02)
    assert share < one.step_s / two.step_s < 1 - 0.3 * (1 - share)
    assert "dies of a board work at once" in told(two)
    assert "dies of a board" not in told(one)
    other = [step(alexnet, workers, sync="none", system="deepbench_p100_host").step_s for workers in (1, 2)]
    assert other[0] == other[1]


def test_a_network_spread_over_a_board_runs_at_its_lower_clock(alexnet):
    job = {"stages": 2, "parallelism": "pipeline", "sync": "ring_all_reduce", "framework": "generic"}
    spread = step(alexnet, 1, system="k80_card", **job)
    die = SystemPart(system=load_system("k80_card"), worker_count=2).device
    assert spread.peak_flop_per_s == pytest.approx(sustained_peak_flop_per_s(die, "fp32"))


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_pulls_in_no_set_order_hide_behind_nothing(alexnet, workers):
    p = step(alexnet, workers)
    ordered = step(alexnet, workers, framework=pulls_in_order("tensorflow_1_1"))
    schedule = p.basis.timed.gradients
    pull_s = float(
        np.sum(p.agreement.reduction.pull.time(p.agreement.messages(p.agreement.reduction, schedule).sizes_bytes))
    )
    assert pull_s > 4 * alexnet.parameter_count * min(workers, 4) / 13e9  # four dies share 16 lanes
    assert p.exposed_sync_s >= pull_s * (1 - 1e-12)
    assert ordered.exposed_sync_s < p.exposed_sync_s - 0.3 * pull_s
    assert p.sync_s == ordered.sync_s
    assert p.memory == ordered.memory
    assert "no set order" in told(p)
    assert "no set order" not in told(ordered)


def test_mini_batches_wait_in_the_queue_of_parameters(alexnet):
    p = step(alexnet, 4)
    ordered = step(alexnet, 4, framework=pulls_in_order("tensorflow_1_1"))
    assert ordered.exposed_transfer_s == 0 < p.exposed_transfer_s == ordered.transfer_s
    after = step(alexnet, 4, overlap=False)
    assert after.exposed_transfer_s == 0  # parameters are back before the next step begins


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("bucket_bytes", [None, 25 * 2**20, math.inf])
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_played_steps_take_what_the_closed_form_says(alexnet, workers, bucket_bytes, overlap):
    p = step(alexnet, workers, bucket_bytes=bucket_bytes, overlap=overlap, prefetch=1 if overlap else 0)
    ends = {}
    for span in p.play(3).spans:
        if "/compute/" in span.task and span.kind == "update":
            ends.setdefault(span.task.split("/")[0], []).append(span.end_s)
    assert len(ends) == workers
    assert np.diff(list(ends.values())) == pytest.approx(np.full((workers, 2), p.step_s), rel=1e-9)


def test_the_forward_phase_is_played_after_all_parameters(alexnet):
    timeline = step(alexnet, 2).play(2)
    ends = {span.task: span.end_s for span in timeline.spans}
    starts = {span.task: span.start_s for span in timeline.spans}
    pulls = [end for task, end in ends.items() if task.startswith("sync/1/") and task.endswith("/pull")]
    assert len(pulls) > 2
    assert starts["gpu0/forward/1/0"] >= max(pulls)


def test_one_worker_with_a_server_pushes_and_pulls_and_one_without_does_not(alexnet):
    p, alone = step(alexnet, 1), step(alexnet, 1, sync="ring_all_reduce")
    assert alone.agreement is None
    assert "One worker exchanges" in told(p)
    size = 4 * alexnet.parameter_count
    channels = {**p.agreement.reduction.push.channel_bytes(size), **p.agreement.reduction.pull.channel_bytes(size)}
    assert channels["gpu0>board0"] == channels["board0>gpu0"] == pytest.approx(size)
    free = replace(p.agreement, worker_count=1, overlap=False)
    (device,) = p.basis.timed.composed.devices
    assert free.exchanged(device)[1] == pytest.approx(p.sync_s)
