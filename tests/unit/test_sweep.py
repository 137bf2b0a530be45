"""Sweeps: every row is what predict says, whatever is asked, listed, drawn or left out; bad input before any work."""

import csv
import gc
import itertools
import json
import math
import os
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.errors import ArgumentError, PerfmodelError, UnknownNameError
from perfmodel.hardware.cluster import system_with
from perfmodel.planning.sweeps import sweep as sweep_module
from perfmodel.planning.sweeps import tasks as sweep_tasks
from perfmodel.planning.sweeps.joint_steps import JointSteps
from perfmodel.planning.sweeps.results import memory_reason
from perfmodel.planning.sweeps.tasks import SLOW_ROWS_PER_TASK
from perfmodel.prediction.predict import predict

GRAPH = pm.zoo.alexnet()
CLUSTER = {"system": "survey_fig6", "link": ["infiniband_edr", "ethernet_10_gbit"]}


def _assert_rows_are_predictions(s, rows):
    """Hold rows of a sweep against predict by itself; return how many could be."""
    possible = 0
    for index in rows:
        row = s.row(int(index))
        if math.isnan(row["step_s"]):
            assert not row["fits"]
            with pytest.raises(PerfmodelError) as refused:
                s.prediction(int(index))
            # where several things stand in the way, one of them is named
            assert row["reason"] == str(refused.value) or s["reason"].tolist().count(row["reason"]) > 1
            continue
        p = s.prediction(int(index))
        possible += 1
        assert row["step_s"] == pytest.approx(p.step_s, rel=1e-9)
        assert row["samples_per_s"] == pytest.approx(p.samples_per_s, rel=1e-9)
        assert row["fits"] == (p.memory.fits is not False)
        assert row["reason"].startswith(memory_reason(p.memory.total_bytes, p.memory.capacity_bytes))
        assert bool("does not fit" in row["reason"]) == (p.memory.fits is False)
        for part in ("compute_s", "exposed_transfer_s", "exposed_sync_s", "input_wait_s", "straggler_s", "sync_s"):
            if part in row:
                assert row[part] == pytest.approx(getattr(p, part), rel=1e-9, abs=1e-15)
        if "memory_bytes" in row:
            assert row["memory_bytes"] == pytest.approx(p.memory.total_bytes, rel=1e-9)
    return possible


def test_a_product_has_every_combination_in_the_order_of_the_arguments():
    s = pm.sweep(GRAPH, device=["gtx_1080", "tesla_k40"], batch_size=[16, 48, 4096], framework="torch_423cfba")
    assert len(s) == 6
    assert s.columns[:3] == ("device", "batch_size", "framework")
    wanted = list(itertools.product(["gtx_1080", "tesla_k40"], [16, 48, 4096]))
    assert list(zip(s["device"], s["batch_size"], strict=True)) == wanted
    for index, (device, batch_size) in enumerate(wanted):
        p = predict(GRAPH, device=device, batch_size=batch_size, framework="torch_423cfba")
        assert s["step_s"][index] == pytest.approx(p.step_s, rel=1e-9)
        assert s["fits"][index] == p.memory.fits


def test_what_does_not_fit_keeps_its_time_and_what_cannot_be_keeps_its_reason():
    s = pm.sweep(GRAPH, batch_size=[16, 8192], workers=[1, 2], device="gtx_1080")
    by_what = {(row["batch_size"], row["workers"]): row for row in map(s.row, range(4))}
    assert by_what[16, 1]["fits"]
    assert by_what[8192, 1]["step_s"] > by_what[16, 1]["step_s"]
    assert not by_what[8192, 1]["fits"]
    assert "does not fit" in by_what[8192, 1]["reason"]
    with pytest.raises(ArgumentError) as refused:
        predict(GRAPH, batch_size=16, workers=2, device="gtx_1080")
    assert by_what[16, 2]["reason"] == str(refused.value)
    assert math.isnan(by_what[16, 2]["step_s"])


def test_a_link_and_a_device_of_a_system_are_what_the_system_would_be_with_them():
    s = pm.sweep(GRAPH, batch_size=32, device=["v100_pcie", "gtx_1080"], workers=8, **CLUSTER)
    for index in range(len(s)):
        row = s.row(index)
        own = system_with("survey_fig6", device=row["device"], link=row["link"])
        assert row["step_s"] == pytest.approx(predict(GRAPH, batch_size=32, system=own, workers=8).step_s, rel=1e-9)
    slow, fast = (s["step_s"][s["link"] == link] for link in ("ethernet_10_gbit", "infiniband_edr"))
    assert np.all(slow > 1.5 * fast)
    unchanged = pm.sweep(GRAPH, batch_size=32, system="survey_fig6", link="infiniband_edr", workers=8)
    assert unchanged["step_s"][0] == pytest.approx(
        predict(GRAPH, batch_size=32, system="survey_fig6", workers=8).step_s
    )


def test_parts_of_a_system_that_it_does_not_have_are_a_reason():
    s = pm.sweep(GRAPH, batch_size=32, system="survey_fig5", link=["pcie_3_x8", "ethernet_10_gbit", None])
    assert s["fits"].tolist() == [True, False, True]
    assert "a link of a kind that" in s["reason"][1]
    s = pm.sweep(GRAPH, batch_size=32, device="gtx_1080", link=["pcie_3_x8"])
    assert "without system=" in s["reason"][0]


def test_every_argument_of_predict_can_be_an_axis():
    s = pm.sweep(
        GRAPH,
        batch_size=32,
        system="survey_fig5",
        workers=2,
        parallelism=["data", "pipeline"],
        stages=[1, 2],
        micro_batches=[1, 4],
        calibration=[None, "shi2016_gpu"],
        optimizer=["sgd", "adam"],
    )
    assert _assert_rows_are_predictions(s, range(0, len(s), 3)) > 4


def test_listed_configurations_keep_their_order_and_lists_their_own_arguments():
    rows = [
        {"device": "gtx_1080", "batch_size": 16},
        {"device": "i7_3820", "batch_size": 8, "threads": 4},
        {"device": "i7_3820", "batch_size": 8, "threads": 2},
        {"system": "survey_fig5", "batch_size": 16, "workers": 4, "sync": "parameter_server"},
        {"device": "gtx_1080", "batch_size": 16},
    ]
    s = pm.sweep(GRAPH, configurations=rows, framework="tensorflow_0_9")
    for index, row in enumerate(rows):
        wanted = predict(GRAPH, framework="tensorflow_0_9", **row).step_s
        assert s["step_s"][index] == pytest.approx(wanted, rel=1e-9)
    assert s["threads"].tolist() == [None, 4, 2, None, None]


def test_a_limit_draws_different_configurations_of_a_product_always_the_same_ones():
    axes = {"batch_size": range(1, 100_001), "workers": range(1, 100_001), "device": ["gtx_1080"]}
    one, other = (pm.sweep(GRAPH, limit=40, **axes) for _ in range(2))
    assert len(one) == 40
    assert len({(row["batch_size"], row["workers"]) for row in map(one.row, range(40))}) == 40
    assert np.array_equal(one["batch_size"], other["batch_size"])
    assert np.ptp(one["batch_size"]) > 50_000
    assert len(pm.sweep(GRAPH, batch_size=[16, 32], device="gtx_1080", limit=40)) == 2
    with pytest.raises(ArgumentError, match="10,000,000,000"):
        pm.sweep(GRAPH, **axes)


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"batch_size": []}, ArgumentError, "batch_size.*at least one value"),
        ({"batch_sise": [16]}, UnknownNameError, "Did you mean 'batch_size'"),
        ({"device": ["gtx_1080", "gtx_1880"]}, UnknownNameError, "Did you mean 'gtx_1080'"),
        ({"sync": ["ring_allreduce"]}, UnknownNameError, "Did you mean 'ring_all_reduce'"),
        ({"batch_size": [16, 0]}, ArgumentError, r"batch_size must.*\(got 0"),
        ({"overlap": [True, "no"]}, ArgumentError, r"overlap must.*\(got 'no'"),
        ({"columns": ["step_s", "usd_per_epok"]}, UnknownNameError, "Did you mean 'usd_per_epoch'"),
        ({"usd_per_hour": {"gtx_1080": -1}}, ArgumentError, "usd_per_hour"),
        ({"limit": 0}, ArgumentError, r"limit must.*\(got 0"),
        ({"executor": "processes"}, ArgumentError, "executor"),
        ({"configurations": []}, ArgumentError, "configurations"),
        ({"configurations": [{"bacth_size": 1}]}, UnknownNameError, "Did you mean 'batch_size'"),
        ({"configurations": [{"workers": 1}], "batch_size": [1, 2]}, ArgumentError, "batch_size must be"),
        ({"dataset_size": 0.5}, ArgumentError, "dataset_size"),
        ({"straggler": "x"}, ArgumentError, r"straggler must.*\(got 'x'"),
        ({"schedule": ["gpip"]}, UnknownNameError, "Did you mean 'gpipe'"),
        ({"parallelism": "dat"}, UnknownNameError, "Did you mean 'data'"),
        ({"usd_per_hour": {"gtx_1O80": 1}}, UnknownNameError, "Did you mean 'gtx_1080'"),
        ({"progress": "yes"}, ArgumentError, "progress"),
    ],
)
def test_bad_input_is_refused_before_any_work(monkeypatch, asked, error, message):
    monkeypatch.setattr(sweep_module, "outcomes", lambda *_, **__: pytest.fail("work was begun"))
    with pytest.raises(error, match=message):
        pm.sweep(GRAPH, **{"batch_size": [16], "device": "gtx_1080"} | asked)


@pytest.fixture(scope="module")
def money():
    return pm.sweep(
        GRAPH,
        batch_size=[16, 32, 64, 128, 16384],
        device=["gtx_1080", "tesla_k40", "v100_pcie"],
        usd_per_hour={"gtx_1080": 0.2, "tesla_k40": 0.05},
        dataset_size=1_000_000,
        columns=["step_s", "samples_per_s", "usd_per_epoch", "epoch_s", "memory_bytes"],
    )


def test_prices_are_those_of_all_devices_for_an_epoch_and_without_one_there_is_a_reason(money):
    p = money.prediction(0)
    assert money["epoch_s"][0] == pytest.approx(p.epoch_s(dataset_size=1_000_000), rel=1e-9)
    assert money["usd_per_epoch"][0] == pytest.approx(p.epoch_s(dataset_size=1_000_000) / 3600 * 0.2, rel=1e-9)
    unpriced = money["device"] == "v100_pcie"
    assert np.array_equal(np.isnan(money["usd_per_epoch"]), unpriced)
    assert all("no price of v100_pcie" in reason for reason in money["reason"][unpriced])
    assert np.all(np.isfinite(money["step_s"]))
    four = pm.sweep(GRAPH, batch_size=16, system="survey_fig5", workers=4, usd_per_hour=0.2, dataset_size=640)
    assert four["usd_per_epoch"][0] == pytest.approx(10 * four["step_s"][0] / 3600 * 0.8, rel=1e-9)


def test_without_prices_a_device_costs_its_share_of_an_instance_on_demand():
    s = pm.sweep(GRAPH, batch_size=16, device=["v100_sxm2", "gtx_1080"], dataset_size=160)
    price = pm.load_price("gce_n1_standard_4_v100_2018")  # newest of 16 GB; the p3dn of December 2018 has 32
    assert s["usd_per_epoch"][0] == pytest.approx(10 * s["step_s"][0] / 3600 * price.usd_per_hour, rel=1e-9)
    assert np.isnan(s["usd_per_epoch"][1])
    assert "no price file lists gtx_1080" in s["reason"][1]
    assert s["fits"].all()
    asked = pm.sweep(GRAPH, batch_size=16, device=["gtx_1080"], columns=["step_s"])
    assert asked["reason"].tolist() == [""]


def test_the_best_and_the_front_are_those_of_a_search_by_hand(money):
    rows = [money.row(index) for index in range(len(money))]
    fitting = [row for row in rows if row["fits"]]
    assert len(fitting) < len(rows)
    assert money.best("step_s")["step_s"] == min(row["step_s"] for row in fitting)
    assert money.best("samples_per_s")["samples_per_s"] == max(row["samples_per_s"] for row in fitting)
    assert money.best("usd_per_epoch") in rows
    three = money.best("memory_bytes", count=3)["memory_bytes"]
    assert three.tolist() == sorted(row["memory_bytes"] for row in fitting)[:3]
    for names in (("step_s", "usd_per_epoch"), ("step_s",), ("samples_per_s", "usd_per_epoch", "memory_bytes")):
        signed = [
            tuple(-row[name] if name == "samples_per_s" else row[name] for name in names)
            for row in fitting
            if all(math.isfinite(row[name]) for name in names)
        ]
        front = {
            point
            for point in signed
            if not any(all(b <= a for a, b in zip(point, other, strict=True)) and other != point for other in signed)
        }
        found = money.pareto(*names)
        shown = zip(*(-found[name] if name == "samples_per_s" else found[name] for name in names), strict=True)
        assert set(shown) == front
        assert found.prediction(0).step_s == pytest.approx(found["step_s"][0], rel=1e-9)
    with pytest.raises(UnknownNameError, match="Did you mean 'step_s'"):
        money.pareto("step", "usd_per_epoch")
    with pytest.raises(UnknownNameError):
        money.best("reason")


def test_a_frame_and_files_hold_what_the_columns_hold(money, tmp_path):
    frame = money.to_frame()
    assert list(frame.columns) == list(money.columns)
    assert isinstance(frame["device"].dtype, pd.CategoricalDtype)
    money.to_csv(tmp_path / "s.csv")
    money.to_parquet(tmp_path / "s.parquet")
    stored = pd.read_parquet(tmp_path / "s.parquet")
    with (tmp_path / "s.csv").open(newline="") as stream:
        written = list(csv.DictReader(stream))
    for name in money.columns:
        assert frame[name].tolist() == stored[name].tolist() or np.allclose(frame[name], stored[name], equal_nan=True)
        assert [str(each) for each in money[name].tolist()] == [row[name] for row in written]
    with pytest.raises(ArgumentError, match="path"):
        money.to_csv(tmp_path / "nowhere" / "s.csv")


def test_files_are_written_some_rows_at_a_time_with_one_type_for_a_column(monkeypatch, tmp_path):
    monkeypatch.setattr(pm.Sweep.chunks, "__defaults__", (1,))
    s = pm.sweep(GRAPH, batch_size=16, device="i7_3820", threads=[None, 2], framework="tensorflow_0_9")
    s.to_parquet(tmp_path / "s.parquet")
    stored = pd.read_parquet(tmp_path / "s.parquet")
    assert stored["threads"].isna().tolist() == [True, False]
    assert stored["step_s"].tolist() == s["step_s"].tolist()


def test_a_picture_shows_the_best_at_each_point_or_the_front(money, tmp_path):
    figure = money.plot("batch_size", "samples_per_s", by="device", path=tmp_path / "lines.png")
    lines = figure.axes[0].get_lines()
    assert len(lines) == 3
    assert lines[0].get_xdata().tolist() == [16, 32, 64, 128]  # the largest batch fits nowhere
    cloud = money.plot("step_s", "usd_per_epoch", by="device")
    labels = [(axes.get_xlabel(), axes.get_ylabel()) for axes in (figure.axes[0], cloud.axes[0])]
    assert labels == [("batch_size [samples]", "samples_per_s [samples/s]"), ("step_s [s]", "usd_per_epoch [USD]")]
    assert (
        cloud.axes[0].get_lines()[0].get_xdata().tolist() == money.pareto("step_s", "usd_per_epoch")["step_s"].tolist()
    )
    with pytest.raises(UnknownNameError):
        money.plot("batch", "step_s")


def test_a_printed_table_comes_back_from_a_pickle(money):
    table = money.to_table()
    assert str(pickle.loads(pickle.dumps(table))) == str(table)


def test_a_table_prints_its_first_rows_and_says_how_many_there_are(money):
    assert "15 configurations" in str(money)
    assert "alexnet" in repr(money)
    assert "<table" in money._repr_html_()
    with pytest.raises(ArgumentError, match="index"):
        money.row(15)


def test_progress_goes_to_the_error_stream(capsys):
    pm.sweep(GRAPH, batch_size=[16, 32], device="gtx_1080", progress=True)
    shown = capsys.readouterr()
    assert "2/2" in shown.err
    assert not shown.out


EVERY_PART = [
    "step_s", "samples_per_s", "exposed_transfer_s", "exposed_sync_s", "input_wait_s", "straggler_s", "sync_s",
    "transfer_s", "update_s", "memory_bytes",
]  # fmt: skip
JOBS = {
    "strategies": {
        "system": "survey_fig6",
        "device": ["gtx_1080", "rtx_3090"],
        "link": ["ethernet_10_gbit"],
        "framework": ["tensorflow_1_12", "pytorch_1_0"],
        "workers": [1, 3, 8],
        "sync": [
            "all_reduce", "ring_all_reduce", "halving_doubling", "hierarchical", "host_tree", "parameter_server",
            "downpour", "bounded_staleness", "mixed", "none",
        ],
        "overlap": [True, False],
        "straggler": [None, {"distribution": "lognormal", "cv": 0.2}],
    },
    "staleness": {
        "system": "survey_fig6",
        "device": ["gtx_1080", "t4"],
        "workers": [1, 4, 16],
        "sync": ["bounded_staleness"],
        "staleness_bound": [0, 1, 4],
        "push_period": [1, 3],
        "server_count": [1, 2],
    },
    "messages": {
        "system": "survey_fig5",
        "workers": [2, 4],
        "sync": ["ring_all_reduce", "parameter_server"],
        "framework": ["generic", "mxnet_0_9"],
        "bucket_bytes": [None, 0, 25e6, math.inf, "merged"],
        "dtype": ["fp32", "fp16"],
        "optimizer": ["sgd", "adam"],
        "phase": ["step", "forward"],
    },
    "input": {
        "system": "survey_fig5",
        "workers": [1, 4],
        "dataset": [None, "imagenet_jpeg", "cifar10"],
        "input_from": [None, "hdd_7200_rpm", "memory"],
        "prefetch": [0, 1, 3],
        "input_variation": [0.0, 0.4],
        "pinned": [True, False],
        "sync": ["ring_all_reduce", "parameter_server"],
    },
    "boards": {
        "system": ["p2_16xlarge", "dgx_1_p100", "server_2x_xeon_e5_2630_v3"],
        "workers": [1, 2, 16],
        "sync": ["ring_all_reduce", "downpour"],
        "threads": [None, 4],
    },
    "sockets": {
        "device": ["i7_3820", "xeon_e5_2630_v3", "gtx_1080"],
        "framework": ["tensorflow_0_9", "torch7_cudnn5"],
        "threads": [None, 1, 4, 12],
        "prefetch": [0, 1],
    },
}  # fmt: skip


@pytest.mark.parametrize("jobs", JOBS)
@pytest.mark.parametrize("turned", [False, True], ids=["", "last_first"])
def test_rows_that_are_timed_together_are_what_predict_says_of_each(monkeypatch, jobs, turned):
    axes = {
        name: values[::-1] if turned and isinstance(values, list) else values for name, values in JOBS[jobs].items()
    }
    with monkeypatch.context() as patched:
        patched.setattr(sweep_tasks, "predict", lambda *_, **__: pytest.fail("not timed together"))
        s = pm.sweep(GRAPH, batch_size=[1, 33, 6000], columns=EVERY_PART, **axes)
    rows = np.random.default_rng(2).choice(len(s), size=60, replace=False)
    assert _assert_rows_are_predictions(s, rows) > 15


def test_prefetching_more_than_one_mini_batch_costs_nothing_without_a_data_set(monkeypatch):
    def evaluated(**axes):
        jobs = []
        outcome = JointSteps.outcome
        with monkeypatch.context() as patched:
            patched.setattr(JointSteps, "outcome", lambda self, *of: jobs.append(of) or outcome(self, *of))
            s = pm.sweep(GRAPH, batch_size=[1, 33], system="survey_fig5", workers=[1, 2, 4], **axes)
        assert _assert_rows_are_predictions(s, range(len(s))) == len(s)
        return len(jobs)

    assert evaluated(prefetch=[0, 1, 2, 7]) == evaluated(prefetch=[0, 1])
    data = {"dataset": "cifar10", "input_from": "hdd_7200_rpm", "input_variation": 0.4}
    assert evaluated(prefetch=[0, 1, 2, 7], **data) == 2 * evaluated(prefetch=[0, 1], **data)


def test_reasons_are_those_of_each_row_however_many_tasks_share_their_workers():
    s = pm.sweep(
        GRAPH, batch_size=[1024, 8192, 16384], system="survey_fig5", workers=[1, 2, 4], prefetch=[0, 1, 2],
        sync=["ring_all_reduce", "parameter_server", "host_tree"], bucket_bytes=[None, 0, 1e6], overlap=[True, False],
        accumulation_steps=[1, 2],  # these are done in small tasks
    )  # fmt: skip
    assert len(s) > 3 * SLOW_ROWS_PER_TASK
    assert _assert_rows_are_predictions(s, np.random.default_rng(3).choice(len(s), size=80, replace=False)) > 20


def test_workers_on_several_links_run_at_the_clock_of_their_slowest_device_in_its_memory():
    s = pm.sweep(
        pm.zoo.resnet50(), batch_size=[32], device=["t4", "v100_pcie"], framework="mxnet_0_9", workers=[1, 4, 8],
        sync=["ring_all_reduce", "parameter_server"], columns=("step_s", "samples_per_s", "memory_bytes"), **CLUSTER,
    )  # fmt: skip
    assert _assert_rows_are_predictions(s, range(len(s))) == len(s)
    of_t4 = {row["workers"]: row["memory_bytes"] for row in map(s.row, range(len(s))) if row["device"] == "t4"}
    assert of_t4[8] > of_t4[1]  # the slower clock makes another algorithm the fastest


def test_links_to_hosts_and_asynchronous_workers_have_rows_of_each_link():
    axes = {"link": ["infiniband_edr", "ethernet_10_gbit", "pcie_2_x16"], "sync": ["ring_all_reduce", "downpour"]}
    s = pm.sweep(
        GRAPH, batch_size=[16, 64], device=["gtx_1080", "tesla_k80_gk210"], system="survey_fig6", workers=[1, 4],
        prefetch=[0, 1], columns=("step_s", "samples_per_s", "exposed_transfer_s"), **axes,
    )  # fmt: skip
    assert _assert_rows_are_predictions(s, range(len(s))) > len(s) / 2


def test_a_measured_machine_and_a_run_are_predicted_one_by_one():
    run = pm.measurements.load("shi2016").runs[0]
    s = pm.sweep(run, batch_size=[16, 32], device=["gtx_1080"])
    for index, batch_size in enumerate((16, 32)):
        assert s["step_s"][index] == predict(run, batch_size=batch_size, device="gtx_1080").step_s
    calibrated = pm.sweep(GRAPH, batch_size=[16, 32], device="gtx_1080", calibration="shi2016_gpu")
    wanted = predict(GRAPH, batch_size=32, device="gtx_1080", calibration="shi2016_gpu").step_s
    assert calibrated["step_s"][1] == wanted


def test_a_global_batch_is_shared_by_the_workers():
    s = pm.sweep(GRAPH, global_batch_size=[64, 100], workers=[1, 4, 3], system="survey_fig5")
    assert _assert_rows_are_predictions(s, range(6)) == 4


def test_the_command_shows_all_the_best_or_the_front_and_writes_files(capsys, tmp_path):
    words = ["sweep", "alexnet", "--batch-size", "16,64", "--batch-size", "128", "--device", "gtx_1080,tesla_k40"]
    assert run([*words, "--usd-per-hour", "gtx_1080=0.2", "--axis", "optimizer=sgd,adam"]) == 0
    assert "12 configurations" in capsys.readouterr().out
    prices = ["--usd-per-hour", "0.5", "--csv", str(tmp_path / "all.csv")]
    assert run([*words, *prices, "--pareto", "step_s,usd_per_epoch", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    asked = pm.sweep(GRAPH, batch_size=[16, 64, 128], device=["gtx_1080", "tesla_k40"], usd_per_hour=0.5)
    assert shown["configurations"] == 6
    assert [row["step_s"] for row in shown["rows"]] == asked.pareto("step_s", "usd_per_epoch")["step_s"].tolist()
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 7
    assert run([*words, "--best", "samples_per_s", "--column", "samples_per_s", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["rows"]
    assert best[0]["samples_per_s"] == asked["samples_per_s"].max()
    assert run([*words, "--axis", "overlap=true,false,maybe"]) == 2
    assert "overlap must" in capsys.readouterr().err
    assert run([*words, "--usd-per-hour", "gtx_1080=1", "--usd-per-hour", "gtx_1080=2"]) == 2
    assert "--usd-per-hour must not repeat a key" in capsys.readouterr().err
    assert run([*words, "--axis", "batch_sise=1"]) == 2
    assert "Did you mean 'batch_size'" in capsys.readouterr().err


def test_the_command_fills_devices_with_workers(capsys):
    words = ["sweep", "alexnet", "--batch-size", "16", "--system", "dgx_a100", "--devices", "2,8", "--json"]
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    asked = pm.sweep(GRAPH, batch_size=16, system="dgx_a100", devices=[2, 8])
    assert [row["devices"] for row in found] == [2, 8]
    assert [row["step_s"] for row in found] == asked["step_s"].tolist()
    assert run([*words, "--workers", "2"]) == 2
    assert "workers must not be given with devices=" in capsys.readouterr().err


def test_the_command_takes_hyphens_in_the_names_of_axes(capsys):
    words = ["sweep", "alexnet", "--device", "gtx_1080", "--json"]
    assert run([*words, "--axis", "batch-size=1,2", "--axis", "input-variation=0"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    asked = pm.sweep(GRAPH, device="gtx_1080", batch_size=[1, 2])
    assert [row["batch_size"] for row in found] == [1, 2]
    assert [row["step_s"] for row in found] == asked["step_s"].tolist()
    assert run([*words, "--batch-size", "4", "--axis", "batch-size=1,2"]) == 2
    assert "--axis must not name an argument" in capsys.readouterr().err
    assert run([*words, "--axis", "batch size=1"]) == 2
    assert "KEY=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given",
    [
        (16, 32),
        range(16, 33, 16),
        iter([16, 32]),
        np.array([16, 32]),
        pd.Series([16, 32]),
        {32, 16},
        frozenset([32, 16]),
    ],
    ids=lambda _: "",
)
def test_values_may_come_in_any_collection(given):
    assert pm.sweep(GRAPH, batch_size=given, device="gtx_1080")["batch_size"].tolist() == [16, 32]


def test_where_nothing_can_be_there_is_no_best_and_an_empty_front():
    s = pm.sweep(GRAPH, batch_size=[16, 32], device="gtx_1080", workers=2)
    assert len(s.pareto("step_s", "usd_per_epoch")) == len(s.feasible) == len(s.feasible.pareto("step_s")) == 0
    for empty in (s, s.feasible):
        with pytest.raises(ArgumentError, match="a configuration that fits"):
            empty.best("step_s")
    with pytest.raises(ArgumentError, match="nothing to draw"):
        s.plot("batch_size")


def test_a_row_takes_a_few_bytes_whatever_its_arguments_are_called():
    s = pm.sweep(
        GRAPH, batch_size=range(1, 1001), device=["gtx_1080", "tesla_k40"], columns=["step_s", "usd_per_epoch"]
    )
    assert sum(column.nbytes for column in s.results.values()) <= 21 * len(s)
    assert len(s.reasons) < 10


def test_a_set_of_names_has_one_order_in_every_process():
    """Texts hash otherwise in each process, so a set lists them otherwise; a table and a drawn part must not."""
    code = (
        "import perfmodel as pm; names = {'v100_pcie', 'gtx_1080', 'tesla_k40', 't4', 'rtx_3090'};"
        "print(list(pm.sweep(pm.zoo.fcn5(), batch_size=16, device=names, columns=['step_s'])['device']))"
    )
    ran = subprocess.run(  # where a set lists them in another order
        [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": "1"}, capture_output=True, check=True
    )
    assert ran.stdout == b"['gtx_1080', 'rtx_3090', 't4', 'tesla_k40', 'v100_pcie']\n"


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({}, "device must be"),
        ({"device": None, "system": [None]}, "device must be"),
        ({"configurations": [{"workers": 2}]}, "device must be"),
        ({"device": ["gtx_1080", 3]}, "device must be "),
        ({"device": "gtx_1080", "framework": [None]}, "framework must be "),
        ({"system": "survey_fig5", "link": [["pcie_4_x16"]]}, "link must be a name, or a path"),
        ({"device": "gtx_1080", "prefetch": range(10**11), "limit": 9}, "a list of at most 1,000,000 entries"),
    ],
)
def test_what_no_row_could_be_predicted_with_is_refused_before_any_work(axes, message, monkeypatch):
    monkeypatch.setattr("perfmodel.planning.sweeps.sweep.outcomes", None)
    with pytest.raises(ArgumentError, match=message):
        pm.sweep(GRAPH, batch_size=16, **axes)


def test_rows_can_be_gone_through_and_wrong_places_names_and_paths_are_refused():
    s = pm.sweep(GRAPH, batch_size=[16, 32], device="gtx_1080", columns="step_s")
    assert list(s) == [s.row(0), s.row(1)] == [s.row(np.int64(0)), s.row(-1)]
    for index in ("first", True, 1.0, 2, -3):
        with pytest.raises(ArgumentError, match="index must be "):
            s.row(index)
    for names in (["step_s"], 3, None):
        with pytest.raises(UnknownNameError, match="unknown column of results"):
            s.pareto(names)
        with pytest.raises(UnknownNameError, match="unknown column of results"):
            s.best(names)
    for write in (s.to_csv, s.to_parquet):
        with pytest.raises(ArgumentError, match="path must be the path of a file"):
            write(None)


def test_the_command_takes_names_that_are_words_and_refuses_what_it_would_find_out_late(capsys, monkeypatch):
    words = ["sweep", "fcn5", "--batch-size", "16", "--system", "survey_fig5", "--workers", "4", "--json"]
    asked = ["--sync", "none, ring_all_reduce", "--axis", "optimizer=none,sgd", "--axis", "bucket_bytes=inf,none"]
    assert run([*words, *asked]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    expected = itertools.product(["none", "ring_all_reduce"], ["none", "sgd"], ["inf", None])
    assert [(row["sync"], row["optimizer"], row["bucket_bytes"]) for row in rows] == list(expected)
    alone = pm.predict(pm.zoo.fcn5(), batch_size=16, system="survey_fig5", workers=4, sync="none")
    assert rows[3]["step_s"] == pytest.approx(alone.step_s, rel=1e-9)
    monkeypatch.setattr("perfmodel.planning.sweeps.sweep.sweep", None)
    for refused, message in (
        (["--pareto", "step_s,usd_per_epok"], "Did you mean 'usd_per_epoch'"),
        (["--column", "step_s", "--best", "usd_per_epoch"], "unknown column of results 'usd_per_epoch'"),
        (["--axis", "workers=2"], "--axis must not name an argument"),
    ):
        assert run([*words, *refused]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.usefixtures("quick_collections")
def test_nothing_of_a_sweep_is_left_behind_for_the_garbage_collector():
    """Systems, routes and refusals would keep one another alive, and slow down what follows."""
    space = {"batch_size": [8, 16], "workers": [1, 4, 6, 99], "device": ["gtx_1080", "v100_pcie"], **CLUSTER}
    pm.sweep(GRAPH, sync=["ring_all_reduce", "parameter_server", "mixed"], **space)
    gc.collect()
    gc.disable()
    try:
        pm.sweep(GRAPH, sync=["ring_all_reduce", "parameter_server", "mixed"], **space)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {type(each).__name__ for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left & {"Topology", "Wire", "Refusal", "Section", "Jobs", "Space", "traceback"}
