"""Parameter servers in the memory of machines: where shards stand, what of it they take, and what every verb says.

Where a server runs the update, the optimizer's state is there and not in its workers, as the update's time is.
"""

from dataclasses import replace

import pytest

import perfmodel as pm

SMALL = {"system": "gce_n1_standard_1", "machines": 4}
HIRED = {"price": "gce_n1_standard_1_2016", "system": "gce_n1_standard_1"}
VISIT = {"batch_size": 1, "sync": "parameter_server", "optimizer": "adam"}
PARAMETER_BYTES = 4 * 138_357_544  # VGG-16
MOMENTS_BYTES = 2 * PARAMETER_BYTES  # of Adam
SERVER_BYTES = 2 * PARAMETER_BYTES + MOMENTS_BYTES  # parameters and a gradient


@pytest.fixture(scope="module")
def vgg16():
    return pm.zoo.vgg16()


@pytest.fixture(scope="module")
def classifier():
    return pm.zoo.mnist_classifier()


class TestPlaces:
    @pytest.mark.parametrize(
        ("workers", "count", "nodes"),
        [
            (2, 1, "2"),
            (2, 3, "230"),
            (3, 2, "30"),
            (3, 4, "3012"),
            (4, 2, "01"),
            (4, 4, "0123"),
        ],
    )
    def test_free_machines_come_first_and_then_those_of_workers(self, classifier, workers, count, nodes):
        p = pm.predict(classifier, batch_size=64, workers=workers, server_count=count, **SMALL, sync="downpour")
        assert p.agreement.server.memories == tuple(f"node{node}/memory0" for node in nodes)

    @pytest.mark.parametrize(
        ("job", "memories"),
        [
            ({"system": "survey_fig6", "workers": 8, "server_count": 3}, "server/memory0 node0/memory0 node1/memory0"),
            ({"system": "dgx_a100", "workers": 2, "server_count": 2}, "memory0 memory1"),
            (
                {"system": "dgx_a100_x4", "workers": 16, "server_count": 4},
                "node0/memory0 node1/memory0 node0/memory1 node1/memory1",
            ),
        ],
    )
    def test_no_machine_has_two_before_all_have_one(self, classifier, job, memories):
        """Machines with GPUs are free for no server: beside idle GPUs nobody would pay for it."""
        p = pm.predict(classifier, batch_size=64, sync="parameter_server", **job)
        assert p.agreement.server.memories == tuple(memories.split())

    @pytest.mark.parametrize(("workers", "count"), [(3, 2), (3, 4), (4, 2)])
    def test_predict_sweep_formula_and_player_place_them_alike(self, classifier, workers, count):
        job = {"workers": workers, "server_count": count, "sync": "parameter_server", **SMALL}
        p = pm.predict(classifier, batch_size=128, **job)
        (row,) = pm.sweep(classifier, batch_size=[128], **job)
        f = pm.formula("step_s", graph=classifier, free=["batch_size"], batch_size=64, **job)
        played_s = (p.play(4).makespan_s - p.play(2).makespan_s) / 2
        assert [row["step_s"], f(batch_size=128), played_s] == pytest.approx([p.step_s] * 3, rel=1e-9)


class TestBesideAWorker:
    def test_a_machine_holds_its_worker_and_its_server(self, vgg16):
        alone = pm.predict(vgg16, workers=4, **SMALL, **VISIT | {"sync": "none"}).memory
        apart, beside = (pm.predict(vgg16, workers=count, **SMALL, **VISIT).memory for count in (3, 4))
        assert apart.total_bytes == alone.total_bytes - MOMENTS_BYTES
        assert beside == replace(apart, server_bytes=SERVER_BYTES)
        assert beside.total_bytes == pytest.approx(3.5e9, rel=0.01)
        assert beside.fits
        larger = pm.predict(vgg16, workers=4, **SMALL, **VISIT | {"batch_size": 4}).memory
        assert larger.missing_bytes == larger.total_bytes - larger.capacity_bytes > 0
        assert larger.fits is False

    def test_every_verb_counts_it(self, vgg16):
        job = {"workers": 4, **SMALL, **VISIT, "batch_size": 4}
        p = pm.predict(vgg16, **job)
        assert "beside the 2.214 GB of the parameter server are missing" in " ".join(p.explain().split())
        assert p.to_dict()["memory"]["server_bytes"] == SERVER_BYTES
        assert not p.to_dict()["memory"]["fits"]
        assert not p.to_dict()["server"]["fits"]
        (row,) = pm.sweep(vgg16, columns=["memory_bytes", "step_s"], **job)
        assert (row["memory_bytes"], row["fits"]) == (p.memory.total_bytes, False)
        assert row["step_s"] == pytest.approx(p.step_s, rel=1e-12)
        assert "are missing" in row["reason"]
        how = VISIT | {"batch_size": 4}
        plan = pm.plan(vgg16, candidates=[{**HIRED, "machines": 4, "workers": 4}], samples=1000, **how)
        (hired,) = plan.rows
        assert (hired.limited_by, hired.step_s) == ("memory", p.step_s)
        assert "at most 2 samples per worker" in plan.changes[0].text
        of_size = {name: value for name, value in job.items() if name != "batch_size"}
        for count in (1, 4):
            most = pm.max_batch_size(vgg16, **of_size, server_count=count)
            largest, larger = (
                pm.predict(vgg16, **job | {"server_count": count, "batch_size": size}).memory
                for size in (most, most + 1)
            )
            assert largest.fits
            assert not larger.fits
            assert largest.server_bytes == SERVER_BYTES / count

    @pytest.mark.parametrize("count", [1, 2, 3, 4])
    def test_the_stage_that_shares_a_machine_has_it(self, vgg16, count):
        """Two workers of two stages: the second stage of the first is on node1."""
        job = {"workers": 2, "stages": 2, "parallelism": "pipeline", **SMALL, **VISIT | {"batch_size": 4}}
        p = pm.predict(vgg16, server_count=count, micro_batches=2, **job)
        alone = pm.predict(vgg16, micro_batches=2, **job | {"sync": "none", "optimizer": "sgd"})
        taken = [row.memory_bytes - other.memory_bytes for row, other in zip(p.stages, alone.stages, strict=True)]
        assert taken == pytest.approx([SERVER_BYTES / count, SERVER_BYTES / count if count > 1 else 0])
        (row,) = pm.sweep(vgg16, server_count=count, micro_batches=[2], columns=["memory_bytes"], **job)
        assert row["memory_bytes"] == p.memory.total_bytes == max(stage.memory_bytes for stage in p.stages)


class TestStateOfTheOptimizer:
    @pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
    @pytest.mark.parametrize(
        "job",
        [
            {"sync": "parameter_server", **SMALL},
            {"sync": "parameter_server", "system": "dgx_a100", "server_count": 2},
            {"sync": "parameter_server", "system": "dgx_a100", "dtype": "fp16"},  # with masters in single precision
            {"sync": "parameter_server", "system": "dgx_a100", "dtype": "bf16", "framework": "pytorch_2"},
            {"sync": "downpour", "push_period": 4, **SMALL},
            {"sync": "mixed", "group_size": 2, "push_period": 4, "pull_period": 4, "system": "survey_fig5"},
            {"sync": "ring_all_reduce", **SMALL},
            {"sync": "none", "system": "survey_fig5"},
        ],
    )
    def test_it_is_where_the_update_runs_and_nowhere_else(self, classifier, job, optimizer):
        how = {"batch_size": 64, "optimizer": optimizer}
        p = pm.predict(classifier, workers=4, **how, **job)
        alone = {name: job[name] for name in ("system", "machines", "dtype", "framework") if name in job}
        lone = pm.predict(classifier, **how, **alone)
        served = (p.to_dict().get("server") or {}).get("optimizer_bytes", 0.0)
        assert p.memory.optimizer_bytes + served == lone.memory.optimizer_bytes
        assert (p.memory.optimizer_bytes == 0) == (p.breakdown["update_s"] == 0 or optimizer == "sgd")

    def test_sweeps_agree_whatever_the_agreement(self, classifier):
        """On GPUs a server's memory is not the workers', so that only the state tells their footprints apart."""
        job = {"batch_size": 64, "system": "survey_fig5", "workers": 4, "optimizer": "adam"}
        syncs = ["none", "parameter_server", "ring_all_reduce", "downpour"]
        for more in ({}, {"micro_batches": [1, 2]}):
            for row in pm.sweep(classifier, sync=syncs, columns=["memory_bytes"], **job | more):
                asked = job | {name: row[name] for name in ("sync", *more)}
                assert row["memory_bytes"] == pm.predict(classifier, **asked).memory.total_bytes


class TestOnAMachineOfItsOwn:
    @pytest.mark.parametrize(
        "job",
        [
            {**SMALL, "machines": 12, "workers": 11, "batch_size": 1},
            {
                **SMALL,
                "machines": 4,
                "workers": 3,
                "batch_size": 1,
                "stages": 1,
                "micro_batches": 1,
                "optimizer": "adam",
            },
        ],
    )
    def test_one_that_is_too_large_fits_nowhere(self, vgg16, job):
        """Eleven copies, parameters and a gradient, 7.2 GB; five and two moments, 3.9 GB; of 3.75 GB."""
        p = pm.predict(vgg16, sync="delay_compensated", **job)
        moments = 2 if "optimizer" in job else 0
        missing = (job["workers"] + 2 + moments) * PARAMETER_BYTES - p.memory.capacity_bytes
        assert p.memory.total_bytes < p.memory.capacity_bytes
        assert (p.memory.fits, p.memory.missing_bytes) == (False, pytest.approx(missing))
        assert not p.to_dict()["server"]["fits"]
        assert "are missing on a machine of the parameter server" in " ".join(str(p).split())
        (row,) = pm.sweep(vgg16, columns=["memory_bytes"], sync="delay_compensated", **job)
        assert not row["fits"]
        assert "on a machine of the parameter server" in row["reason"]
        of_size = {name: value for name, value in job.items() if name != "batch_size"}
        assert pm.max_batch_size(vgg16, sync="delay_compensated", **of_size) == 0

    def test_rows_that_fit_and_rows_that_do_not_stay_apart(self, vgg16):
        how = {**SMALL, "machines": 12, "batch_size": 1, "workers": [2, 11, 12]}
        for row in pm.sweep(vgg16, sync=["none", "downpour", "delay_compensated"], columns=["memory_bytes"], **how):
            p = pm.predict(vgg16, **how | {name: row[name] for name in ("workers", "sync")})
            assert (row["fits"], row["memory_bytes"]) == (p.memory.fits, p.memory.total_bytes)
            assert row["fits"] == (row["workers"] == 2 or row["sync"] != "delay_compensated")

    def test_a_plan_rules_it_out(self, vgg16):
        candidate = {**HIRED, "machines": 12, "workers": 11}
        plan = pm.plan(vgg16, candidates=[candidate], samples=1000, sync="delay_compensated", batch_size=1)
        (row,) = plan.rows
        assert row.limited_by == "memory"
        assert "machine of the parameter server" in row.reason
        assert plan.best is None
        assert plan.changes[0].needed == pytest.approx(13 * PARAMETER_BYTES - 3.49 * 2**30)

    def test_memory_of_gpus_holds_no_server(self, classifier):
        job = {"batch_size": 64, "system": "survey_fig5", "workers": 4}
        served, alone = (pm.predict(classifier, sync=sync, **job).memory for sync in ("parameter_server", "none"))
        assert served == alone
