"""The guidance of a survey of training on several GPUs, as what ``advise`` computes: claims, and what refutes them.

Numbers are on docs/advice.md; here stand the claims, so that they hold or fall with the physics and not with a digit.
"""

from functools import partial

import pytest

import perfmodel as pm
from perfmodel.hardware.cluster import rewired, with_network
from perfmodel.prediction.job.agreement_options import WAITING

WAITS_FOR_NOBODY = {"downpour", "delay_compensated", "bounded_staleness", "mixed"}


@pytest.fixture(scope="module")
def resnet():
    return pm.zoo.resnet50()


def speedups(graph, kind, **job):
    return {row.change: row.speedup for row in pm.advise(graph, kinds=kind, **job).rows}


def test_threads_beyond_the_cores_hurt_some_frameworks_and_not_others():
    runs = {run.framework: run for run in pm.measurements.load("shi2016").runs if run.network == "fcn5"}
    found = {}
    for name, run in runs.items():
        (row,) = pm.advise(run, kinds="threads", device="i7_3820").rows
        assert row.changes == {"threads": 8}  # four cores, two threads each
        found[name] = row.speedup
    assert found["caffe_1_0_rc3"] < 0.9  # the survey's Table I: 0.578 s with four threads, 15.444 s with eight
    assert found["torch_423cfba"] < 0.9  # there: na
    assert 1 < found["tensorflow_0_9"] < 2.648 / 1.938  # there: a gain, and larger


def test_from_too_many_threads_one_for_each_core_is_advised():
    job = {"device": "i7_3820", "batch_size": 64, "framework": "caffe_1_0_rc3"}
    (row,) = pm.advise(pm.zoo.fcn5(), kinds="threads", threads=8, **job).rows
    assert row.changes == {"threads": 4}
    assert row.speedup > 1.1


def test_prefetching_stops_helping_at_the_gpu_that_decoding_cannot_feed(resnet):
    job = {"batch_size": 32, "system": "survey_fig5", "sync": "none", "dataset": "imagenet_jpeg"}
    fed = {gpus: pm.advise(resnet, kinds="prefetch", prefetch=0, workers=gpus, **job).rows[0] for gpus in (1, 2, 3, 4)}
    assert all(row.speedup > 1.2 for row in fed.values())
    assert [row.bottleneck for row in fed.values()] == ["compute", "compute", "decode", "decode"]
    assert fed[2].samples_per_s == pytest.approx(2 * fed[1].samples_per_s, rel=1e-3)
    assert fed[4].samples_per_s == pytest.approx(fed[3].samples_per_s, rel=1e-9)  # the fourth GPU brings nothing
    assert fed[4].samples_per_s == pytest.approx(4 * 100)  # what four cores decode
    beyond = pm.advise(resnet, kinds=["device", "workers", "host_link", "raid", "dtype"], workers=4, **job)
    assert len(beyond.rows) > 30
    assert all(abs(row.speedup - 1) < 1e-6 or row.speedup < 1 for row in beyond.rows)
    raw = pm.advise(resnet, kinds=["device"], workers=4, **job | {"dataset": None})
    assert raw.rows[0].speedup > 2  # where nothing is decoded the same changes are worth much


def test_a_shared_root_costs_those_who_send_through_the_host():
    job = {"batch_size": 64, "system": "survey_fig5", "workers": 4}
    alexnet = pm.zoo.alexnet()
    for sync, least, most in (("ring_all_reduce", 1, 1.001), ("host_tree", 1.1, 4), ("parameter_server", 1.1, 4)):
        (speedup,) = speedups(alexnet, "own_lanes", sync=sync, **job).values()
        assert least - 1e-9 <= speedup <= most, sync
    (newer,) = speedups(alexnet, "host_link", sync="ring_all_reduce", **job).values()
    assert newer > 1.1


def test_synchronous_is_enough_until_times_vary_or_workers_are_many(resnet):
    job = {"system": "dgx_a100_x4", "batch_size": 64, "framework": "pytorch_2"}

    def best(workers, cv):
        varies = {"straggler": {"distribution": "normal", "cv": cv}}
        rows = pm.advise(resnet, kinds="sync", workers=workers, **varies, **job).rows
        return max(row.speedup for row in rows if row.changes["sync"] in WAITS_FOR_NOBODY)

    assert all(best(workers, 0.05) < 1 for workers in (2, 8, 32))
    assert best(2, 0.2) < 1 < best(8, 0.2)
    assert best(8, 0.2) < best(8, 0.3)
    assert best(32, 0.2) < best(16, 0.2)  # the server that all of them visit is full


def test_asynchronous_between_machines_pays_on_slow_networks_with_rare_visits_or_with_stragglers(resnet):
    fast = pm.load_system("survey_fig6")
    change = partial(with_network, network="ethernet_1_gbit", instead_of="infiniband_edr_x4")
    slow = rewired(fast, change, what="slow", network="ethernet_1_gbit")

    def waiting(system, period, **more):
        mixed = {"sync": "mixed", "group_size": 4, "push_period": period, "pull_period": period}
        rows = pm.advise(resnet, kinds="sync", batch_size=32, system=system, workers=16, **mixed, **more).rows
        in_software = set(WAITING) - {"in_network"}
        return max(row.speedup for row in rows if row.changes["sync"] in in_software)

    assert waiting(fast, 1) > 1.1
    assert waiting(slow, 1) > 1.1
    assert waiting(fast, 4) > 1
    assert waiting(slow, 4) < 0.9
    assert waiting(fast, 4, straggler={"distribution": "normal", "cv": 0.3}) < 1
