"""Workers of unequal speed, what a server holds and its knee, shards beside workers: whatever a user reaches."""

import json
import re

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.errors import ArgumentError
from perfmodel.hardware import spec_files
from perfmodel.sync.asynchronous import SCHEMES

SPEEDS = [1.0] * 12 + [2.0] * 3 + [1.5]
UNEQUAL = {"distribution": "unequal", "times": SPEEDS}
MORE = {"bounded_staleness": {"staleness_bound": 2}, "mixed": {"group_size": 4}}


@pytest.fixture(scope="module")
def alexnet():
    return pm.zoo.alexnet()


def step(graph, sync, *, system="survey_fig6", workers=16, batch_size=64, **options):
    return pm.predict(
        graph, batch_size=batch_size, system=system, workers=workers, sync=sync, **MORE.get(sync, {}), **options
    )


def period(p, step_count):
    """Time of a step in which all workers end, played. [s]"""
    timeline = p.play(step_count)
    names = [f"node{node}/gpu{place}" for node in range(4) for place in range(4)]
    ends = [max(timeline.span(f"{name}/compute/{number}").end_s for name in names) for number in (1, step_count - 1)]
    return (ends[1] - ends[0]) / (step_count - 2)


@pytest.mark.parametrize("sync", ["ring_all_reduce", "parameter_server"])
@pytest.mark.parametrize("how", [{}, {"overlap": False}, {"backup_workers": 3}, {"backup_workers": 4}])
def test_synchronous_steps_wait_for_the_slowest_that_is_waited_for(alexnet, sync, how):
    p = step(alexnet, sync, straggler=UNEQUAL, prefetch=0, **how)
    own_s = p.compute_s + p.memory_bound_s + p.overhead_s + p.update_s
    slowest = {0: 2.0, 3: 1.5, 4: 1.0}[how.get("backup_workers", 0)]
    assert p.straggler_s == pytest.approx((slowest - 1) * own_s)
    assert sum(p.breakdown.values()) == pytest.approx(p.step_s, rel=1e-12)
    # who is done earlier copies earlier, and leaves the slow ones more of the link
    assert -0.01 < period(p, 4) / p.step_s - 1 < 1e-9


@pytest.mark.parametrize("sync", SCHEMES)
def test_asynchronous_workers_go_at_their_own_pace(alexnet, sync):
    times = [*SPEEDS[:8], *SPEEDS[12:], *SPEEDS[8:12]]
    p = step(alexnet, sync, straggler={"distribution": "unequal", "times": times}, push_period=40, pull_period=40)
    steady = step(alexnet, sync, push_period=40, pull_period=40)
    slow = step(
        alexnet, sync, straggler={"distribution": "unequal", "times": [2.0] * 16}, push_period=40, pull_period=40
    )
    assert sum(p.breakdown.values()) == pytest.approx(p.step_s, rel=1e-12)
    assert steady.step_s < p.step_s < (1 + 1e-9) * slow.step_s
    if sync == "bounded_staleness":
        assert p.step_s > 0.97 * slow.step_s  # all go at the pace of the slowest
    else:
        assert p.step_s < 0.9 * slow.step_s


def test_a_played_job_of_unequal_workers_is_that_of_the_closed_form(alexnet):
    p = step(alexnet, "mixed", straggler=UNEQUAL)
    timeline = p.play(120, seed=2)
    ends = np.array([[timeline.span(f"node{n}/gpu0/compute/{k}").end_s for k in range(120)] for n in range(4)])
    until_s = ends[:, -1].min()
    per_s = sum((row < until_s).sum() - (row < 0.1 * until_s).sum() for row in ends) / (0.9 * until_s)
    assert 4 / per_s == pytest.approx(p.step_s, rel=0.04)  # one group is slow, the others make more steps
    assert ends[3, 60] > 1.2 * ends[0, 60]


def test_it_says_how_fast_and_how_stale_the_slowest_are(alexnet):
    p = step(alexnet, "downpour", straggler=UNEQUAL)
    said = " ".join(p.explain().split())
    slowest = p.visits.kinds[-1]
    assert "Visitors are of 3 speeds" in said
    assert f"a slowest one, with 2, takes {1e3 * slowest.step_s:.1f} ms a step and misses" in said
    assert slowest.mean_staleness > p.mean_staleness == pytest.approx(15)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"sync": "downpour", "straggler": {"distribution": "unequal", "times": [1.0, 2.0]}}, "each of the 4 workers"),
        ({"sync": "downpour", "straggler": {"distribution": "unequal", "cv": 0.1}}, "must give times and nothing else"),
        (
            {"sync": "none", "straggler": {"distribution": "unequal", "times": [1.0, 1.0, 1.0, 2.0]}},
            "workers exchange nothing",
        ),
        ({"sync": "downpour", "straggler": {"distribution": "normal", "cv": 0.1}, "backup_workers": 1}, "backup_work"),
    ],
)
def test_what_cannot_be_is_refused(alexnet, options, told):
    with pytest.raises(ArgumentError, match=told):
        pm.predict(alexnet, batch_size=8, system="survey_fig5", workers=4, **options)


def test_scaling_takes_the_first_workers_times(alexnet):
    report = pm.scaling(
        alexnet, system="survey_fig6", workers=(1, 8, 16), batch_size=64, sync=("ring_all_reduce", "downpour"),
        straggler=UNEQUAL,
    )  # fmt: skip
    equal = pm.scaling(
        alexnet, system="survey_fig6", workers=(1, 8, 16), batch_size=64, sync=("ring_all_reduce", "downpour")
    )
    for row, alike in zip(report.rows, equal.rows, strict=True):
        assert row.reason is None
        assert (row.step_s == pytest.approx(alike.step_s, rel=1e-9)) == (row.workers < 16)
        p = step(alexnet, row.sync, workers=row.workers, straggler={**UNEQUAL, "times": SPEEDS[: row.workers]})
        assert (row.step_s, row.mean_staleness) == (p.step_s, p.mean_staleness)
    assert "relative time of 1" in " ".join(str(report).split())


def test_the_command_line_takes_unequal_workers(capsys):
    words = ["alexnet", "--system", "survey_fig5", "--workers", "4", "--batch-size", "64", "--json"]
    assert run(["predict", *words, "--sync", "downpour", "--straggler", "unequal=1,1,1,2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert run(["scaling", *words, "--sync", "downpour", "--straggler", "unequal=1,1,1,2"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["step_s"] == found["step_s"]
    assert row["knee"] == found["server"]["knee"]
    words += ["--sync", "ring_all_reduce", "--straggler"]
    assert run(["predict", *words, "normal=0.1", "--backup-workers", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"]["straggler_s"] > 0
    assert run(["predict", *words, "unequal=1,2"]) == 2
    assert "each of the 4 workers" in capsys.readouterr().err


def test_what_the_server_holds_is_told_and_whether_it_fits(alexnet):
    size = 4 * alexnet.parameter_count
    plain, compensated = (step(alexnet, sync).to_dict()["server"] for sync in ("downpour", "delay_compensated"))
    assert plain["shard_bytes"] == 2 * size  # parameters and a gradient
    assert compensated["shard_bytes"] - plain["shard_bytes"] == 16 * size
    p = step(alexnet, "parameter_server", optimizer="adam")
    assert p.to_dict()["server"]["optimizer_bytes"] == 2 * size
    assert "The server holds 977.6 MB of 68.72 GB of host memory" in " ".join(p.explain().split())
    assert step(alexnet, "ring_all_reduce").to_dict()["server"] is None
    copies = " ".join(step(alexnet, "delay_compensated").explain().split())
    assert "a copy of the parameters for each worker 3.910 GB" in copies
    assert "Compensation adds 305.5 MFLOP to an update." in copies


def test_a_server_that_does_not_fit_is_warned_of():
    large = pm.zoo.gpt(layers=24, width=4096, heads=32)
    remark = "each shard of the parameter server holds"
    with_copies, without = (step(large, sync, batch_size=1) for sync in ("delay_compensated", "downpour"))
    assert any(each.startswith(remark) for each in with_copies.remarks)
    assert remark in with_copies.explain().replace("\n", " ")
    assert with_copies.to_dict()["server"]["fits"] is False
    assert not any(each.startswith(remark) for each in without.remarks)


def test_the_knee_is_where_a_sweep_of_workers_bends(alexnet):
    """Throughput of one worker and of so many that the server is never idle meet at the knee.

    Workers of one machine share the slot of its adapter, which bounds fewer of them than the server does of all.
    """
    report = pm.scaling(alexnet, system="survey_fig6", workers=(1, 2, 16), batch_size=64, sync="downpour")
    one, two, many = report.rows
    assert many.server_utilisation > 0.999
    assert one.knee == pytest.approx(two.knee)
    assert two.knee < many.knee
    assert many.samples_per_s / one.samples_per_s == pytest.approx(many.knee, rel=1e-3)
    assert one.knee * one.server_utilisation == pytest.approx(1)
    p = step(alexnet, "downpour", workers=2)
    said = " ".join(p.explain().split())
    assert "A gradient has missed 1 update of others" in said
    assert (
        f"the server is busy {100 * two.server_utilisation:.1f} % of the time, and is the limit from {two.knee:.3g}"
        in said
    )
    assert "server busy" in " ".join(str(report).split())


def one_card_each(folder, count):
    """Write a cluster of machines with one card and one adapter each; return its name."""
    systems = folder / "systems"
    systems.mkdir()
    text = spec_files.find("systems", "survey_fig6_node").read_text(encoding="utf-8")
    text = text.replace('device = "gtx_1080"\ncount = 4', 'device = "gtx_1080"\ncount = 1')
    (systems / "one_card.toml").write_text(text, encoding="utf-8")
    text = spec_files.find("systems", "survey_fig6").read_text(encoding="utf-8")
    text = re.sub(r"\[server\]\nsystem = .*\n", "", text).replace('fields = ["node", "server"]', 'fields = ["node"]')
    text = text.replace("count = 4", f"count = {count}").replace("survey_fig6_node", "one_card")
    (systems / "cards.toml").write_text(text, encoding="utf-8")
    return "cards"


@pytest.mark.parametrize("count", [2, 4, 7])
def test_shards_beside_the_workers_cost_what_their_closed_form_says(alexnet, tmp_path, monkeypatch, count):
    name = one_card_each(tmp_path, count)
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    p = step(alexnet, "parameter_server", system=name, workers=count, server_count=count)
    size_bytes = 4 * alexnet.parameter_count
    topology = p.basis.prepared.target.system_part.system.topology
    crossing = set()  # channels beyond a machine, where the part of its own shard must not be
    for way in (p.agreement.reduction.push, p.agreement.reduction.pull):
        for channel, passed in way.channel_bytes(size_bytes).items():
            if "network" in channel or "fabric" in channel or "nic" in channel:
                crossing.add(channel)
                assert passed == pytest.approx((count - 1) / count * size_bytes), channel
        apart = topology.route("node0/gpu0", "node1/memory0")
        closed_s = apart.latency_s + (count - 1) / count * size_bytes / apart.capacity_bytes_per_s
        assert way.time(size_bytes) == pytest.approx(closed_s, rel=1e-9)
    assert len(crossing) >= 2 * count  # into and out of every machine
    p = step(alexnet, "parameter_server", system=name, workers=count, server_count=1)
    assert p.agreement.reduction.push.time(size_bytes) > 0.99 * (count - 1) * size_bytes / apart.capacity_bytes_per_s
