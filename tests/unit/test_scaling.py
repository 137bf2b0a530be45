"""What more workers are worth: the report, its figure, its command, and the slowdown by stragglers."""

import json
import math
import re
from dataclasses import replace
from itertools import pairwise

import pytest

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.presentation.scaling_figure import Curve, Panel, worker_figure

SYNCS = ("ring_all_reduce", "parameter_server", "downpour")
COUNTS = (1, 2, 4, 8, 16)
WEAK = {"system": "survey_fig6", "workers": COUNTS, "batch_size": 32}


@pytest.fixture(scope="module")
def vgg():
    return pm.zoo.vgg16()


@pytest.fixture(scope="module")
def weak(vgg):
    return pm.scaling(vgg, sync=SYNCS, **WEAK)


def by_workers(report, sync):
    return {row.workers: row for row in report.rows if row.sync == sync}


def test_rows_are_what_predict_says(vgg, weak):
    alone = pm.predict(vgg, system="survey_fig6", batch_size=32, sync="none")
    assert [(row.sync, row.workers) for row in weak.rows] == [(sync, count) for sync in SYNCS for count in COUNTS]
    assert weak.one_worker_s == alone.step_s
    for row in weak.rows:
        p = pm.predict(vgg, system="survey_fig6", batch_size=32, sync=row.sync, workers=row.workers)
        assert (row.step_s, row.samples_per_s, row.bottleneck) == (p.step_s, p.samples_per_s, p.bottleneck)
        assert (row.exposed_sync_s, row.mean_staleness) == (p.exposed_sync_s, p.mean_staleness)
        assert row.speedup == pytest.approx(row.workers * alone.step_s / p.step_s, rel=1e-12)
        assert row.efficiency == pytest.approx(alone.step_s / p.step_s, rel=1e-12)
        assert row.reason is row.epoch_s is row.usd_per_epoch is row.to_loss_speedup is None


def test_no_way_to_agree_is_linear_or_constant(weak):
    ring, server, downpour = (by_workers(weak, sync) for sync in SYNCS)
    # gradients hide behind the backward phase of a large network, and take 2 of 20 multiprocessors from it
    p = pm.predict(pm.zoo.vgg16(), system="survey_fig6", batch_size=32, workers=16)
    assert ring[16].efficiency == pytest.approx(1 - 0.1 * p.sync_s / p.step_s, rel=2e-3)
    assert ring[16].efficiency < ring[4].efficiency < 1
    assert 1 < server[1].speedup < 1.03  # what one worker exchanges hides, and the server updates for it
    assert server[16].speedup < 0.3 * 16  # everything passes one memory
    assert server[16].exposed_sync_s > 4 * server[2].exposed_sync_s > 0
    assert downpour[1].efficiency < 0.7  # even one worker visits the server: speed-up is over one that does not
    assert [row.mean_staleness for row in downpour.values()] == pytest.approx([0, 1, 3, 7, 15])
    speedups = [row.speedup for row in downpour.values()]
    assert speedups == sorted(speedups)
    assert speedups[-1] / speedups[-2] < 1.6 < speedups[1] / speedups[0]  # the knee lies between


def test_strong_scaling_shares_one_batch(vgg):
    job = {"system": "survey_fig6", "workers": (1, 4, 16)}
    strong = pm.scaling(vgg, global_batch_size=64, **job)
    weak = pm.scaling(vgg, batch_size=64, **job)
    one, four, sixteen = (row.step_s for row in strong.rows)
    assert four < sixteen < one  # four samples each are computed before the gradients of 553 MB have gone round
    assert strong.rows[2].bottleneck == "sync"
    assert strong.rows[0].step_s == weak.rows[0].step_s
    # four samples a step neither fill a device nor hide an exchange that is as long as ever
    assert strong.rows[2].efficiency < 0.7 < 0.95 < weak.rows[2].efficiency
    assert strong.rows[2].speedup == pytest.approx(strong.rows[0].step_s / strong.rows[2].step_s)
    assert (strong.kind, weak.kind) == ("strong scaling", "weak scaling")


def test_a_run_brings_its_batch_and_framework():
    run_of_table = pm.measurements.load("shi2016").run("caffe_1_0_rc3", "alexnet")
    report = pm.scaling(replace(run_of_table, batch_size=16), system="survey_fig5", workers=(1, 4))
    assert "caffe" in report.title.lower()
    assert "16 samples per worker" in report.title
    assert 1 < report.rows[1].speedup < 4


def test_rows_that_cannot_be_stay_with_their_reason(vgg):
    report = pm.scaling(
        vgg,
        system="survey_fig6",
        workers=(1, 3, 4, 16, 17),
        sync=("ring_all_reduce", "mixed"),
        global_batch_size=256,
        group_size=4,
    )
    reasons = {(row.sync, row.workers): row.reason for row in report.rows}
    assert len(report.rows) == 10
    assert "does not fit" in reasons["ring_all_reduce", 1]
    assert "multiple of the 3 workers" in reasons["ring_all_reduce", 3]
    assert "from 1 to 16" in reasons["ring_all_reduce", 17]
    assert "divisor of workers=1" in reasons["mixed", 1]
    assert [key for key, reason in reasons.items() if reason is None] == [
        ("ring_all_reduce", 4),
        ("ring_all_reduce", 16),
        ("mixed", 4),
        ("mixed", 16),
    ]
    for row in report.rows:
        assert (row.step_s is None) == (row.speedup is None) == (row.reason is not None)
    said = " ".join(str(report).split())
    assert "impossible: ring_all_reduce with 3" in said
    assert "that worker could not run" in said
    lines = report.plot().axes[0].get_lines()
    assert [list(line.get_xdata()) for line in lines] == [[4, 16], [4, 16], [4, 16]]


def test_epochs_and_their_price_only_where_asked(vgg):
    job = {"system": "survey_fig6", "workers": (1, 16), "sync": "parameter_server", "batch_size": 32}
    timed = pm.scaling(vgg, dataset_size=1_281_167, **job)
    assert [row.usd_per_epoch for row in timed.rows] == [None, None]
    priced = pm.scaling(vgg, dataset_size=1_281_167, usd_per_hour=0.9, **job)
    for row in priced.rows:
        steps = math.ceil(1_281_167 / (32 * row.workers))
        assert row.epoch_s == pytest.approx(steps * row.step_s)
        assert row.usd_per_epoch == pytest.approx(row.workers * 0.9 * row.epoch_s / 3600)
    one, many = priced.rows
    assert many.epoch_s < one.epoch_s
    assert many.usd_per_epoch / one.usd_per_epoch == pytest.approx(
        one.speedup / many.efficiency, rel=1e-3
    )  # idle workers cost
    with pytest.raises(ArgumentError, match="dataset_size"):
        pm.scaling(vgg, usd_per_hour=0.9, **job)


def test_progress_is_the_users_and_off_unless_asked(vgg):
    job = {"system": "survey_fig6", "workers": (1, 8), "sync": SYNCS, "batch_size": 32}
    plain = pm.scaling(vgg, **job)
    assert not any("loss" in note for note in plain.notes)
    asked = pm.scaling(vgg, critical_batch_size=256, staleness_penalty=0.05, least_steps=1000, **job)
    assert any("256 samples" in note and "0.05" in note for note in asked.notes)
    for row, bare in zip(asked.rows, plain.rows, strict=True):
        assert row.speedup == bare.speedup
        waits = row.sync != "downpour"
        batch = 32 * row.workers if waits else 32
        updates = 1000 * (1 + 256 / batch) * (1 + (0 if waits else 0.05 * (row.workers - 1)))
        updates_per_s = (1 if waits else row.workers) / row.step_s
        assert row.to_loss_s == pytest.approx(updates / updates_per_s)
        assert row.to_loss_speedup == pytest.approx(1000 * 9 * asked.one_worker_s / row.to_loss_s)
    ring = by_workers(asked, "ring_all_reduce")[8]
    assert ring.to_loss_speedup == pytest.approx(ring.speedup * (32 + 256) / (256 + 256))  # large batches lose
    easy = pm.scaling(vgg, critical_batch_size=1e9, **job)
    assert [row.to_loss_speedup for row in easy.rows] == pytest.approx([row.speedup for row in easy.rows], rel=1e-6)
    assert {row.to_loss_s for row in easy.rows} == {None}
    apart = pm.scaling(vgg, **job | {"sync": "none"}, critical_batch_size=256)
    assert apart.rows[1].speedup == pytest.approx(8)
    assert apart.rows[1].to_loss_speedup == pytest.approx(1)  # eight networks, none of them sooner


def test_groups_and_rare_pushes_make_larger_updates(vgg):
    job = {"system": "survey_fig6", "workers": 16, "batch_size": 32}
    assert pm.predict(vgg, sync="mixed", group_size=4, **job).samples_per_update == 128
    rare = pm.predict(vgg, sync="downpour", push_period=3, **job)
    assert rare.samples_per_update == 96
    assert rare.updates_per_s * 96 == pytest.approx(rare.samples_per_s)
    backed = pm.predict(
        vgg, sync="ring_all_reduce", straggler={"distribution": "normal", "cv": 0.1}, backup_workers=2, **job
    )
    assert backed.samples_per_update == 14 * 32
    assert backed.updates_per_s == pytest.approx(1 / backed.step_s)


def test_stragglers_bend_the_line(vgg):
    varying = pm.scaling(vgg, straggler={"distribution": "normal", "cv": 0.1}, **WEAK)
    waits = [row.straggler_s / (row.step_s - row.exposed_sync_s - row.straggler_s) for row in varying.rows]
    assert waits == pytest.approx([0, 0.056419, 0.102938, 0.142360, 0.176599], rel=0.02)


def test_a_row_without_anybody_to_wait_for_says_so(vgg, capsys):
    normal = {"distribution": "normal", "cv": 0.1}
    job = {"system": "survey_fig5", "batch_size": 8, "bucket_bytes": "merged"}
    report = pm.scaling(vgg, workers=(1, 2, 4), straggler=normal, backup_workers=1, **job)
    assert [row.reason is None for row in report.rows] == [False, True, True]
    assert "below workers=1" in report.rows[0].reason
    words = ["scaling", "alexnet", "--system", "survey_fig5", "--workers", "1,2", "--batch-size", "8"]
    assert run([*words, "--straggler", "normal=0.1", "--backup-workers", "2"]) == 2
    assert "one is left to wait for" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"sync": "ring_allreduce"}, UnknownNameError, "ring_all_reduce"),
        ({"sync": []}, ArgumentError, "at least one"),
        ({"workers": [0]}, ArgumentError, r"workers must.*\(got 0"),
        ({"workers": [1.5]}, ArgumentError, r"workers must.*\(got 1.5"),
        ({"workers": []}, ArgumentError, "at least one"),
        ({"workers": "many"}, ArgumentError, r"workers must.*\(got 'many'"),
        ({"batch_size": None}, ArgumentError, "batch_size"),
        ({"batch_size": 0}, ArgumentError, r"batch_size must.*\(got 0"),
        ({"global_batch_size": 64}, ArgumentError, "weak or strong"),
        ({"system": "survey_fig7"}, UnknownNameError, "survey_fig"),
        ({"dataset_size": 0}, ArgumentError, r"dataset_size must.*\(got 0"),
        ({"dataset_size": 10, "usd_per_hour": -1}, ArgumentError, "usd_per_hour"),
        ({"buckets": 3}, UnknownNameError, "bucket_bytes"),
        ({"bucket_bytes": -1}, ArgumentError, "bucket_bytes"),
        ({"group_size": 2}, ArgumentError, "hierarchical or mixed"),
        ({"group_size": 0, "sync": "mixed"}, ArgumentError, r"group_size must.*\(got 0"),
        ({"backup_workers": 1}, ArgumentError, "straggler"),
        (
            {"backup_workers": 4, "straggler": {"distribution": "normal", "cv": 0.1}},
            ArgumentError,
            "left to wait for",
        ),
        ({"staleness_penalty": 0.1}, ArgumentError, "critical_batch_size"),
        ({"least_steps": 10}, ArgumentError, "critical_batch_size"),
        ({"critical_batch_size": 0}, ArgumentError, "critical_batch_size"),
        ({"critical_batch_size": 9, "staleness_penalty": -1}, ArgumentError, "staleness_penalty"),
        ({"critical_batch_size": 9, "phase": "forward"}, ArgumentError, "critical_batch_size must not be given"),
    ],
)
def test_what_no_row_could_do_is_refused(vgg, options, error, told):
    with pytest.raises(error, match=told):
        pm.scaling(vgg, **{"system": "survey_fig5", "workers": [1, 4], "batch_size": 8} | options)


def test_the_figure_draws_every_way_and_the_ideal(weak, tmp_path):
    figure = weak.plot(tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").stat().st_size > 10_000
    speedup, efficiency = figure.axes
    lines = {line.get_label(): line for line in speedup.get_lines()}
    assert list(lines["ideal"].get_ydata()) == list(COUNTS)
    assert list(lines["downpour"].get_ydata()) == [row.speedup for row in by_workers(weak, "downpour").values()]
    lines = {line.get_label(): line for line in efficiency.get_lines()}
    assert set(lines["ideal"].get_ydata()) == {1.0}
    assert list(lines["parameter_server"].get_ydata())[-1] == by_workers(weak, "parameter_server")[16].efficiency
    nothing = pm.scaling(pm.zoo.alexnet(), system="survey_fig5", workers=9, batch_size=8)
    with pytest.raises(ArgumentError, match="nothing to draw"):
        nothing.plot()


def test_it_is_a_frame_a_dictionary_and_text(weak):
    frame = weak.to_frame()
    assert frame.groupby("sync").speedup.max().idxmax() == "ring_all_reduce"
    content = weak.to_dict()
    assert json.loads(json.dumps(content))["rows"][0]["workers"] == 1
    said = str(weak)
    assert "weak scaling" in said
    assert "staleness" in said
    assert "epoch" not in said
    assert "over one worker that exchanges nothing" in said
    assert "<td" in weak._repr_html_()


def test_the_command_line_scales(capsys, tmp_path):
    words = ["scaling", "vgg16", "--system", "survey_fig6", "--workers", "1,8,99", "--sync", "downpour,mixed"]
    asked = [
        "--batch-size",
        "32",
        "--sync-option",
        "group_size=4",
        "--straggler",
        "normal=0.1",
        "--dataset-size",
        "1e6",
    ]
    picture = tmp_path / "scaling.svg"
    assert run([*words, *asked, "--json", "--plot", str(picture)]) == 0
    found = json.loads(capsys.readouterr().out)
    same = pm.scaling(
        pm.zoo.vgg16(),
        system="survey_fig6",
        workers=(1, 8, 99),
        sync=("downpour", "mixed"),
        batch_size=32,
        group_size=4,
        straggler={"distribution": "normal", "cv": 0.1},
        dataset_size=10**6,
    )
    assert found["rows"] == same.rows.to_dicts()
    assert found["rows"][4]["straggler_s"] > 0
    assert picture.exists()
    assert run([*words, *asked]) == 0
    assert "from 1 to 16" in " ".join(capsys.readouterr().out.split())
    assert run([*words, "--batch-size", "32", "--straggler", "normol=0.1"]) == 2
    assert "normal" in capsys.readouterr().err
    assert run([*words, "--batch-size", "32", "--workers", "two"]) == 2
    assert "workers must" in capsys.readouterr().err


def test_the_slowdown_by_stragglers_is_that_of_the_tables():
    slowdown = pm.straggler_slowdown()
    assert len(slowdown.rows) == 300
    found = {(row.cv, row.workers): row.slowdown for row in slowdown.rows}
    assert found[0.05, 40] == pytest.approx(1.1080, abs=5e-5)
    assert found[0.1, 40] == pytest.approx(1.2161, abs=5e-5)
    for workers, deviations in ((1, 0), (2, 0.56419), (8, 1.42360), (16, 1.76599), (64, 2.34373), (100, 2.50759)):
        for cv in (0.05, 0.1, 0.2):
            assert found[cv, workers] == pytest.approx(1 + cv * deviations, abs=2e-6)
    for cv in (0.05, 0.1, 0.2):
        line = [found[cv, workers] for workers in range(1, 101)]
        gains = [later - earlier for earlier, later in pairwise(line)]
        assert all(gain > 0 for gain in gains)
        assert gains == sorted(gains, reverse=True)  # ever slower, never flat
    tail = pm.straggler_slowdown(workers=[40], cv=0.1, distribution="shifted_exponential")
    assert tail.rows[0].slowdown == pytest.approx(1.32785, abs=5e-6)
    backed = pm.straggler_slowdown(workers=[40], cv=0.1, distribution="shifted_exponential", backup_workers=2)
    assert backed.rows[0].slowdown == pytest.approx(1.17785, abs=5e-6)


def test_the_slowdown_is_drawn_with_a_mark(tmp_path):
    slowdown = pm.straggler_slowdown()
    figure = slowdown.plot(tmp_path / "slowdown.png", marked_workers=40)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["1.108", "1.216", "1.432"]
    drawn = {line.get_label(): line.get_ydata() for line in axes.get_lines()}
    assert drawn["cv 10.0 %"][39] == pytest.approx(1.2161, abs=5e-5)
    assert "slowdown" in str(slowdown)
    assert slowdown.to_dict()["distribution"] == "normal"
    assert len(slowdown.to_frame()) == 300
    assert "<td" in slowdown._repr_html_()


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"workers": 40}, ArgumentError, "a list"),
        ({"workers": [0]}, ArgumentError, r"workers must.*\(got 0"),
        ({"cv": -0.1}, ArgumentError, r"cv must.*\(got -0.1"),
        ({"cv": "much"}, ArgumentError, r"cv must.*\(got 'much'"),
        ({"distribution": "normol"}, UnknownNameError, "normal"),
        ({"backup_workers": 1}, ArgumentError, r"backup_workers must.*\(got 1"),
    ],
)
def test_wrong_slowdowns_are_refused(options, error, told):
    with pytest.raises(error, match=told):
        pm.straggler_slowdown(**options)


def test_few_workers_are_drawn_on_even_axes():
    curve = Curve(name="ring", workers=(2, 3, 4), values=(1.9, 2.8, 3.6))
    figure = worker_figure([Panel(label="speed-up", curves=(curve,), ideal="proportional")], title="few")
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "linear")
    assert list(axes.get_xticks()) == [2, 3, 4]


def test_the_command_prints_and_draws_the_slowdown(tmp_path, capsys):
    picture = tmp_path / "slowdown.png"
    assert run(["stragglers", "--workers", "2,40", "--json", "--mark", "40", "--plot", str(picture)]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    expected = pm.straggler_slowdown(workers=[2, 40]).rows
    assert [(row["cv"], row["workers"], row["slowdown"]) for row in rows] == [
        (row.cv, row.workers, pytest.approx(row.slowdown)) for row in expected
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--mark", "40"], "--mark"),
        (["--workers", "0"], r"workers must.*\(got 0"),
        (["--workers", "2,many"], r"workers must.*\(got 'many"),
        (["--cv", "much"], r"cv must.*\(got 'much"),
        (["--distribution", "normol"], "normal"),
        (["--backup-workers", "100"], r"backup_workers must.*\(got 100"),
        (["--backup-workers", "some"], r"backup_workers must.*\(got 'some"),
    ],
)
def test_the_command_refuses_wrong_slowdowns_in_one_line(words, told, capsys):
    assert run(["stragglers", *words]) == 2
    assert re.search(told, capsys.readouterr().err)


def test_what_an_epoch_lacks_is_told(vgg):
    asked = {"system": "survey_fig6", "workers": 4, "batch_size": 32}
    assert "usd_per_hour=" not in " ".join(pm.scaling(vgg, **asked).notes)  # nobody asks for an epoch
    priceless = pm.scaling(vgg, **asked, dataset_size=1000)
    assert "usd_per_hour=" in " ".join(priceless.notes)
    assert priceless.rows[0].usd_per_epoch is None
    (priced,) = pm.scaling(vgg, **asked, dataset_size=1000, usd_per_hour=0.5).rows
    assert priced.usd_per_epoch == pytest.approx(4 * 0.5 * priced.epoch_s / 3600)


def test_the_words_say_what_the_baseline_is_and_what_is_left_out():
    graph = pm.zoo.gpt(layers=2, width=512, heads=8, sequence_length=128, vocabulary=20000)
    job = {"system": "dgx_h100", "workers": (1, 8), "batch_size": 1, "framework": "pytorch_2", "optimizer": "adam"}
    shared = pm.scaling(graph, sync="all_reduce", shard_stage=2, **job)
    assert shared.rows[1].efficiency > 1
    assert any("whole update" in note and "exceed 1" in note for note in shared.notes)
    plain = pm.scaling(graph, sync=("all_reduce", "ring_all_reduce"), **job)
    assert not any("exceed 1" in note for note in plain.notes)
    assert any(note.startswith("ring_all_reduce by name") and "library" in note for note in plain.notes)
    assert any("straggler=" in note for note in plain.notes)
    library = pm.scaling(graph, sync="all_reduce", straggler={"distribution": "normal", "cv": 0.01}, **job)
    assert not any("by name" in note or "straggler=" in note for note in library.notes)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("batch_size", [64, 256])
def test_eight_devices_on_nvlink_lose_the_last_bucket_the_copies_and_what_messages_take(batch_size, dtype):
    job = {"batch_size": batch_size, "dtype": dtype, "system": "dgx_a100", "framework": "pytorch_2"}
    p = pm.predict(pm.zoo.resnet50(), workers=8, sync="all_reduce", **job)
    (device,), (reduction,) = p.basis.timed.composed.devices, p.agreement.reductions
    message_s = reduction.placed.time(p.agreement.messages(reduction, device.schedule).sizes_bytes)
    blocks = 24 / 108  # of the A100's multiprocessors
    assert p.agreement.slowdown == pytest.approx(blocks)
    lost_s = device.copied_s + message_s[-1] + blocks * message_s[:-1].sum()
    assert p.exposed_sync_s == pytest.approx(lost_s, rel=1e-9)
    alone = pm.predict(pm.zoo.resnet50(), **job)
    assert 0.96 < alone.step_s / p.step_s < 0.995
