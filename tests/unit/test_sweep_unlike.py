"""Rows of a sweep that differ in a device, a data set or a batch size: nothing of one is taken for another."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError, PerfmodelError
from perfmodel.hardware.spec_files import find
from perfmodel.layers import CrossEntropy, Dense
from perfmodel.planning.sweeps import joint_steps
from perfmodel.planning.sweeps import sweep as sweep_module
from perfmodel.prediction.predict import predict

GRAPH = pm.zoo.alexnet()
MONEY = {"columns": ["step_s", "epoch_s", "usd_per_epoch"], "usd_per_hour": 1}


def _worst(s):
    """Return by how much the step of any row differs from what predict says. [1]"""
    return max(abs(row["step_s"] / s.prediction(index).step_s - 1) for index, row in enumerate(s))


@pytest.mark.parametrize("devices", list(itertools.permutations(["a100_40_sxm", "h100_sxm", "v100_sxm2"])))
def test_what_a_library_takes_of_a_device_is_of_each_device(devices):
    s = pm.sweep(
        GRAPH, batch_size=16, device=list(devices), system="dgx_a100", workers=[2, 4],
        sync=["all_reduce", "ring_all_reduce"], bucket_bytes=[0, None, 25e6, "merged"],
    )  # fmt: skip
    assert _worst(s) < 1e-9


def test_sums_by_name_are_placed_once_for_devices_of_any_size_and_each_loses_its_own_blocks(monkeypatch):
    made, agreement_of = [], joint_steps.agreement_of
    monkeypatch.setattr(joint_steps, "agreement_of", lambda job, **how: made.append(job) or agreement_of(job, **how))
    space = {
        "batch_size": 16, "system": "survey_fig6", "workers": [4, 8], "bucket_bytes": [None, "merged"],
        "sync": ["ring_all_reduce", "host_tree", "parameter_server"],
        "framework": ["tensorflow_1_12", "tensorflow_0_9"],
    }  # fmt: skip
    counts = []
    for devices in (["gtx_1080"], ["gtx_1080", "t4", "titan_x_pascal"]):
        made.clear()
        s = pm.sweep(GRAPH, device=devices, **space)
        counts.append(len(made))
    assert counts[0] == counts[1]
    assert _worst(s) < 1e-12
    rings = [row["step_s"] for row in s if row["sync"] == "ring_all_reduce" and row["device"] == "t4"]
    assert len(set(rings)) == len(rings)


def test_frameworks_and_devices_with_libraries_of_their_own_are_told_apart():
    s = pm.sweep(
        GRAPH, batch_size=[4, 16], device=["h100_sxm", "a100_40_sxm"], system=["dgx_1_p100", "dgx_a100"], workers=2,
        sync="all_reduce", framework=["generic", "pytorch_1_0"], dtype=["fp32", "fp16"],
        link=[None, "nvlink_2_x1"],
    )  # fmt: skip
    assert _worst(s) < 1e-9


def _slow_cluster(folder):
    """Write the survey's cluster with processors that are alike but for the time of their calls; return its path."""
    texts = {"i7_3820": ("devices", "call_slowdown = 1.0", "call_slowdown = 3.0")}
    texts |= {f"survey_fig6_{part}": ("systems", '"i7_3820"', '"./i7_3820.toml"') for part in ("node", "server")}
    for stem, (kind, stated, other) in texts.items():
        text = find(kind, stem).read_text(encoding="utf-8")
        assert stated in text
        (folder / f"{stem}.toml").write_text(text.replace(stated, other), encoding="utf-8")
    text = find("systems", "survey_fig6").read_text(encoding="utf-8")
    (folder / "cluster.toml").write_text(re.sub(r'"(survey_fig6_\w+)"', r'"./\1.toml"', text), encoding="utf-8")
    return folder / "cluster.toml"


def test_calls_to_a_server_take_the_time_of_its_machine_and_of_its_framework(tmp_path):
    framework = pm.load_framework("tensorflow_1_1")
    constants = framework.cpu.constants | {"dispatch_us": 2000.0}
    slower = framework.model_copy(update={"cpu": framework.cpu.model_copy(update={"constants": constants})})
    s = pm.sweep(
        GRAPH, batch_size=16, system=["survey_fig6", _slow_cluster(tmp_path)], workers=8,
        sync=["parameter_server", "downpour", "ring_all_reduce"], framework=[framework, slower],
    )  # fmt: skip
    assert len({row["step_s"] for row in s if row["sync"] == "downpour"}) == 4
    assert _worst(s) < 1e-9


def test_processors_of_one_name_are_told_apart_in_a_cluster():
    cpu = pm.load_device("xeon_e5_2630_v3")
    cpus = [cpu, cpu.model_copy(update={"core_count": 4, "call_slowdown": 3.0, "tdp_w": 30.0})]
    s = pm.sweep(
        GRAPH, batch_size=16, device=cpus, system="gce_n1_standard_4_x4", workers=2, framework="tensorflow_1_1",
        sync=["parameter_server", "ring_all_reduce"], columns=["step_s", "energy_j"],
    )  # fmt: skip
    assert _worst(s) < 1e-9
    for index, row in enumerate(s):
        assert row["energy_j"] == pytest.approx(s.prediction(index).energy_j(), rel=1e-9)


def test_a_refusal_names_the_processor_that_it_is_about():
    s = pm.sweep(GRAPH, batch_size=4, device=["i7_3820", "xeon_e5_2630_v3"], dataset="mnist", input_from="memory")
    for index, row in enumerate(s):
        with pytest.raises(PerfmodelError) as refused:
            s.prediction(index)
        assert row["reason"] == str(refused.value)


@pytest.mark.parametrize("sync", ["none", "ring_all_reduce"])
@pytest.mark.parametrize("others", [{}, {"stages": [1, 2], "parallelism": ["data", "pipeline"]}])
def test_an_epoch_is_one_of_the_data_set_that_the_row_reads(sync, others):
    sizes = {None: 1_281_167, "mnist": 60_000, "imagenet_raw": 1_281_167, "cifar10": 50_000}
    s = pm.sweep(
        GRAPH, batch_size=[16, 32], system="survey_fig5", workers=2, sync=sync, dataset=list(sizes), **others, **MONEY
    )  # fmt: skip
    possible = 0
    for index, row in enumerate(s):
        if row["fits"]:
            possible += 1
            epoch_s = s.prediction(index).epoch_s(dataset_size=sizes[row["dataset"]])
            assert row["epoch_s"] == pytest.approx(epoch_s, rel=1e-9)
            devices = 2 * row.get("stages", 1)
            assert row["usd_per_epoch"] == pytest.approx(devices * epoch_s / 3600, rel=1e-9)
    assert possible >= 8


def test_a_data_set_made_in_python_counts_its_own_examples_and_dataset_size_stands_above_all():
    few = pm.Dataset(name="few", example_count=320, encoded_bytes_per_example=100, decoded_shape=(100,))
    rows = [{"dataset": few}, {"dataset": "mnist"}, {}]
    asked = {"configurations": rows, "batch_size": 32, "device": "gtx_1080", "input_from": "memory"} | MONEY
    s = pm.sweep(GRAPH, **asked)
    steps = s["epoch_s"] / s["step_s"]
    assert steps == pytest.approx([10, 60_000 / 32, -(-1_281_167 // 32)])
    told = pm.sweep(GRAPH, **asked, dataset_size=640)
    assert told["epoch_s"] / told["step_s"] == pytest.approx([20, 20, 20])


def _t4(**memory):
    """Return a T4 with another memory."""
    t4 = pm.load_device("t4")
    return t4.model_copy(update={"memory": t4.memory.model_copy(update=memory)})


def _toml_of_t4(folder, bandwidth_gb_per_s):
    """Write the T4's file with another bandwidth; return its path."""
    text = find("devices", "t4").read_text(encoding="utf-8")
    stated = f"bandwidth_gb_per_s = {pm.load_device('t4').memory.bandwidth_gb_per_s:g}"
    assert text.count(stated) == 1
    path = folder / "t4.toml"
    path.write_text(text.replace(stated, f"bandwidth_gb_per_s = {bandwidth_gb_per_s}"), encoding="utf-8")
    return path


def test_a_device_is_not_compared_with_every_other_one(monkeypatch):
    compared, equal, counts = [], pm.Gpu.__eq__, []
    monkeypatch.setattr(pm.Gpu, "__eq__", lambda one, other: compared.append(one) or equal(one, other))
    for count in (5, 20):
        compared.clear()
        devices = [_t4(bandwidth_gb_per_s=300.0 + place) for place in range(count)]
        assert len(pm.sweep(GRAPH, batch_size=16, device=devices, system="survey_fig5", workers=2)) == count
        counts.append(len(compared))
    assert counts[1] <= 4 * counts[0]


@pytest.mark.parametrize("system", ["survey_fig5", "survey_fig6"])
def test_a_device_made_in_python_is_itself_in_a_system_too(tmp_path, system):
    asked = {"batch_size": 16, "system": system, "workers": [1, 4], "sync": ["all_reduce", "ring_all_reduce"]}
    fast, slow = _t4(bandwidth_gb_per_s=640.0), _t4(bandwidth_gb_per_s=160.0)
    s = pm.sweep(GRAPH, **asked, device=["t4", fast, slow])
    own, faster, slower = (s["step_s"][start::3] for start in range(3))
    assert own == pytest.approx(pm.sweep(GRAPH, device="t4", **asked)["step_s"], rel=1e-12)
    for bandwidth, found in ((640.0, faster), (160.0, slower)):
        by_file = pm.sweep(GRAPH, device=_toml_of_t4(tmp_path, bandwidth), **asked)
        assert found == pytest.approx(by_file["step_s"], rel=1e-9)
    assert np.all(faster < own)
    assert np.all(slower > own)
    assert _worst(s) < 1e-9


def test_a_link_that_no_file_describes_is_refused_before_any_work():
    asked = {"batch_size": 16, "system": "survey_fig6", "workers": 8}
    link = pm.load_link("ethernet_10_gbit")
    s = pm.sweep(GRAPH, link=[link, "ethernet_10_gbit"], **asked)
    assert s["step_s"][0] == s["step_s"][1]
    faster = replace(link, family=link.family.model_copy(update={"lane_rate_gbit_per_s": 100.0}))
    for wrong in (faster, link.family, object()):
        with pytest.raises(ArgumentError, match=r"link must.*a name or the path"):
            pm.sweep(GRAPH, link=["infiniband_edr", wrong], **asked)


def test_only_a_gpu_of_a_data_sheet_stands_in_a_slot():
    s = pm.sweep(GRAPH, batch_size=16, system="survey_fig5", device=["t4", pm.load_device("i7_3820")])
    assert s["fits"].tolist() == [True, False]
    assert "must be a GPU" in s["reason"][1]


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"batch_size": None},
        {"batch_size": [None, 4]},
        {"batch_size": [4, None], "global_batch_size": None},
        {"configurations": [{"batch_size": 4}, {"dtype": "fp16"}]},
    ],
)
def test_a_sweep_that_says_no_batch_size_is_refused_as_predict_refuses_it(monkeypatch, asked):
    with pytest.raises(ArgumentError) as refused:
        predict(GRAPH, device="t4")
    monkeypatch.setattr(sweep_module, "outcomes", lambda *_, **__: pytest.fail("work was begun"))
    with pytest.raises(ArgumentError) as found:
        pm.sweep(GRAPH, device="t4", **asked)
    assert str(found.value) == str(refused.value)


def test_where_a_global_batch_size_may_say_it_what_neither_says_has_a_reason():
    s = pm.sweep(GRAPH, system="survey_fig5", workers=2, batch_size=[None, 4], global_batch_size=[None, 8])
    assert s["fits"].tolist() == [False, True, True, True]
    assert s["reason"][0].startswith("batch_size must be")
    assert s["step_s"][1:] == pytest.approx([s["step_s"][2]] * 3)
    with pytest.raises(ArgumentError, match=r"batch_size must.*\(got None"):
        s.prediction(0)


def test_a_graph_or_a_run_with_a_batch_size_of_its_own_needs_none():
    fixed = pm.LayerGraph("fixed", input_shape=(8,), fixed_batch_size=3)
    fixed.add("fc", Dense(units=4), inputs=["input"])
    fixed.add("loss", CrossEntropy(), inputs=["fc"])
    assert _worst(pm.sweep(fixed, device="t4")) < 1e-9
    run = pm.measurements.load("shi2016").runs[0]
    assert _worst(pm.sweep(run, device="gtx_1080")) < 1e-9


@pytest.mark.parametrize("rates", [(10, 2), (2, 10)])
def test_networks_of_one_name_in_two_files_are_told_apart(tmp_path, rates):
    paths = []
    for rate in rates:
        path = tmp_path / str(rate) / "my_network.toml"
        path.parent.mkdir()
        text = find("links", "ethernet_10_gbit").read_text(encoding="utf-8")
        path.write_text(
            re.sub(r"lane_rate_gbit_per_s = [\d.]+", f"lane_rate_gbit_per_s = {rate}", text), encoding="utf-8"
        )
        paths.append(path)
    read = {"dataset": "imagenet_raw", "input_from": "object_store"}
    s = pm.sweep(GRAPH, batch_size=64, system="survey_fig6_node", link=paths, workers=2, **read)
    assert len(set(s["step_s"])) == 2
    assert _worst(s) < 1e-9
