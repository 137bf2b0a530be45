"""Options of an agreement: each strategy heeds one, or says who does."""

import math

import pytest

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.errors import ArgumentError
from perfmodel.prediction.arguments.table import DEFAULTS
from perfmodel.prediction.job.agreement_options import TAKEN_BY, sync_names

GIVEN = {
    "overlap": False, "bucket_bytes": math.inf, "server_count": 2, "group_size": 2, "staleness_bound": 1,
    "push_period": 3, "pull_period": 3, "backup_workers": 1,
}  # fmt: skip
"""A value of each that is not its default."""
JOB = {"batch_size": 8, "system": "survey_fig6"}


@pytest.fixture(scope="module")
def alexnet():
    return pm.zoo.alexnet()


def told(p):
    return p.step_s, p.mean_staleness, p.samples_per_s


@pytest.mark.parametrize("option", GIVEN)
def test_an_option_changes_the_step_or_is_refused(alexnet, option):
    heeded = set()
    for sync in sync_names():
        job = {**JOB, "sync": sync, "workers": 8}
        job |= {"staleness_bound": 2} if sync == "bounded_staleness" else {}
        job |= {"straggler": {"distribution": "normal", "cv": 0.1}} if option == "backup_workers" else {}
        if sync in TAKEN_BY[option]:
            if told(pm.predict(alexnet, **{**job, option: GIVEN[option]})) != told(pm.predict(alexnet, **job)):
                heeded.add(sync)
            continue
        refused = f"{option} must be {DEFAULTS[option]!r} unless sync is .*{TAKEN_BY[option][-1]}"
        with pytest.raises(ArgumentError, match=refused):
            pm.predict(alexnet, **{**job, option: GIVEN[option]})
        assert told(pm.predict(alexnet, **job, **{option: DEFAULTS[option]})) == told(pm.predict(alexnet, **job))
    assert heeded == set(TAKEN_BY[option])


@pytest.mark.parametrize("place", [{"system": "survey_fig6"}, {"device": "gtx_1080"}])
@pytest.mark.parametrize("option", sorted(GIVEN.keys() - {"group_size", "backup_workers"}))
def test_an_option_needs_its_strategy_with_one_worker_too(alexnet, place, option):
    for sync in sync_names():
        if sync in TAKEN_BY[option]:
            continue
        refused = f"{option} must be {DEFAULTS[option]!r} unless sync is .*{TAKEN_BY[option][-1]}"
        with pytest.raises(ArgumentError, match=refused) as caught:
            pm.predict(alexnet, batch_size=8, sync=sync, **place, **{option: GIVEN[option]})
        assert (caught.value.argument, caught.value.given) == (option, GIVEN[option])


def test_a_sweep_of_workers_may_begin_at_one(alexnet):
    ways = {"ring_all_reduce": {"overlap": False, "bucket_bytes": 1e6}, "downpour": {"push_period": 3}}
    for sync, options in ways.items():
        assert len(pm.sweep(alexnet, workers=[1, 2], sync=sync, **options, **JOB).feasible) == 2


def test_workers_whose_network_is_spread_are_asked_too(alexnet):
    with pytest.raises(ArgumentError, match=r"push_period must.*unless sync is one of .*downpour.*\(got 5"):
        pm.predict(alexnet, workers=4, parallelism="tensor", tensor_size=2, push_period=5, **JOB)


def test_a_report_gives_each_way_its_own_options(alexnet):
    ways = {"sync": ("none", "ring_all_reduce", "downpour"), "workers": 4}
    report = pm.scaling(alexnet, push_period=3, overlap=False, **ways, **JOB)
    expected = {"none": {}, "ring_all_reduce": {"overlap": False}, "downpour": {"push_period": 3}}
    for row in report.rows:
        assert row.step_s == pm.predict(alexnet, sync=row.sync, workers=4, **expected[row.sync], **JOB).step_s
    with pytest.raises(ArgumentError, match=r"staleness_bound must.*None unless sync is bounded_staleness.*\(got 1"):
        pm.scaling(alexnet, staleness_bound=1, **ways, **JOB)
    with pytest.raises(ArgumentError, match=r"server_count must.*\(got 0"):
        pm.scaling(alexnet, server_count=0, **ways, **JOB)


def test_the_command_line_names_who_takes_an_option(capsys):
    words = ["predict", "alexnet", "--system", "survey_fig6", "--workers", "4", "--batch-size", "8"]
    assert run([*words, "--sync", "ring_all_reduce", "--sync-option", "push_period=5"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "push_period must be 1 unless sync is one of " in said
    assert "downpour" in said
