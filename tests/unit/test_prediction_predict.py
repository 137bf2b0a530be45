"""predict(): its signature, what it refuses and how it says so, Runs, and a user's own specs."""

import inspect
import math
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError, SpecError, UnknownNameError
from perfmodel.hardware.spec_files import shipped_folder

GRAPH = pm.zoo.fcn5()
GOOD = {"batch_size": 16, "device": "gtx_1080"}

# the public contract: a name or default that changes breaks users
SIGNATURE = {
    "batch_size": None, "global_batch_size": None, "device": None, "system": None, "framework": "generic",
    "threads": None, "phase": "step", "dtype": "fp32", "optimizer": "sgd", "recompute": None, "workers": 1,
    "parallelism": "data", "sync": "ring_all_reduce", "overlap": True, "bucket_bytes": None, "server_count": 1,
    "server_on": None, "group_size": None, "staleness_bound": None, "stages": 1, "stage_cut": "balanced",
    "micro_batches": 1,
    "schedule": "1f1b", "interleave": 1, "tensor_size": 1, "sequence_parallel": False, "context_size": 1,
    "context_method": "ring", "shard_stage": 0, "accumulation_steps": 1, "shard_group": None, "prefetch_limit": 1,
    "no_sync": False, "gradient_dtype": None, "machines": None, "backup_workers": 0, "push_period": 1,
    "pull_period": 1, "straggler": None, "library": None, "dataset": None, "input_from": None, "prefetch": 1,
    "pinned": True, "decode_cores": None, "input_variation": 0.0, "calibration": None, "image_layout": None,
    "weight_penalty": None, "weight_dtype": None, "strict": False,
}  # fmt: skip


def test_the_whole_signature_is_there_with_its_defaults():
    graph, *others = inspect.signature(pm.predict).parameters.values()
    assert (graph.name, graph.default) == ("graph", inspect.Parameter.empty)
    assert {each.kind for each in others} == {inspect.Parameter.KEYWORD_ONLY}
    assert {each.name: each.default for each in others} == SIGNATURE


@pytest.mark.parametrize("size", [0, -1, 1.5, math.nan, math.inf, True, False, "16", None, [16]])
def test_a_bad_batch_size_is_named(size):
    with pytest.raises(ArgumentError, match=r"^batch_size must.*whole number >= 1"):
        pm.predict(GRAPH, batch_size=size, device="gtx_1080")


@pytest.mark.parametrize("size", [0, 1.5, math.nan, True])
def test_a_bad_global_batch_size_is_named(size):
    with pytest.raises(ArgumentError, match=r"^global_batch_size must"):
        pm.predict(GRAPH, global_batch_size=size, device="gtx_1080")


def test_the_two_batch_sizes_must_agree():
    with pytest.raises(ArgumentError, match=r"global_batch_size must.*\(got 32"):
        pm.predict(GRAPH, batch_size=16, global_batch_size=32, device="gtx_1080")
    alone = pm.predict(GRAPH, global_batch_size=16, device="gtx_1080")
    assert alone.step_s == pm.predict(GRAPH, batch_size=16, global_batch_size=16, device="gtx_1080").step_s


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({}, r"device must be set; or pass system=, or both"),
        ({"device": "gtx_1080", "system": "desktop_i7_3820"}, r"device must be a CPU .* no GPU to replace"),
    ],
)
def test_a_device_a_system_or_both_must_be_named(where, said):
    with pytest.raises(ArgumentError, match=said):
        pm.predict(GRAPH, batch_size=16, **where)


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ({"device": "gtx1080"}, "gtx_1080"),
        ({"framework": "tensorflow_09"}, "tensorflow_0_9"),
        ({"phase": "backwards"}, "forward_backward"),
        ({"dtype": "fp23"}, "fp32"),
        ({"optimizer": "adamm"}, "adam"),
        ({"library": "cudnn4"}, "cudnn_4"),
    ],
)
def test_a_misspelt_name_meets_its_nearest(given, nearest):
    with pytest.raises(UnknownNameError) as caught:
        pm.predict(GRAPH, **(GOOD | given))
    assert caught.value.nearest in (nearest, *(["forward"] if nearest == "forward_backward" else []))
    assert str(next(iter(given.values()))) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_misspelt_system():
    with pytest.raises(UnknownNameError, match="Did you mean 'desktop_i7_3820'"):
        pm.predict(GRAPH, batch_size=16, system="desktop_i7_3280")


@pytest.mark.parametrize(
    ("where", "threads"),
    [
        ({"device": "gtx_1080"}, 1),
        ({"device": "i7_3820"}, 9),  # 4 cores, 8 hardware threads
        ({"device": "i7_3820"}, 0),
        ({"device": "i7_3820"}, 2.5),
        ({"device": "i7_3820"}, True),
        ({"system": "desktop_i7_3820"}, 9),
        ({"system": "server_2x_xeon_e5_2630_v3"}, 33),  # 2 x 8 cores, 32 hardware threads
    ],
)
def test_threads_that_are_not_there(where, threads):
    with pytest.raises(ArgumentError, match=rf"^threads must.*\(got {threads!r}"):
        pm.predict(GRAPH, batch_size=16, threads=threads, **where)


@pytest.mark.parametrize(("where", "cores"), [("desktop_i7_3820", 4), ("server_2x_xeon_e5_2630_v3", 16)])
def test_none_is_one_thread_per_physical_core(where, cores):
    p = pm.predict(GRAPH, batch_size=16, system=where)
    assert p.threads == cores
    assert p.step_s == pm.predict(GRAPH, batch_size=16, system=where, threads=cores).step_s
    assert p.step_s < pm.predict(GRAPH, batch_size=16, system=where, threads=1).step_s


@pytest.mark.parametrize(("device", "dtype"), [("gtx_1080", "bf16"), ("i7_3820", "fp16")])
def test_a_data_type_the_device_lacks(device, dtype):
    with pytest.raises(UnknownNameError, match=rf"dtype of .*{dtype}.*fp32"):
        pm.predict(GRAPH, batch_size=16, device=device, dtype=dtype)


def test_a_library_of_the_other_kind_of_processor():
    with pytest.raises(ArgumentError, match=r"^library must.*gpu_blas or gpu_dnn or gpu_attention\), not cpu_blas"):
        pm.predict(GRAPH, **GOOD, library="openblas_0_2_18")
    alexnet = pm.zoo.alexnet()
    # cuDNN v5 has Winograd, which v4 lacks, for AlexNet's 3 x 3 layers
    newer, older = (
        pm.predict(alexnet, batch_size=64, device="gtx_1080", library=library) for library in ("cudnn_5", "cudnn_4")
    )
    assert newer.step_s != older.step_s
    assert any("winograd" in row.kernel for row in newer.layers)
    assert not any("winograd" in row.kernel for row in older.layers)


@pytest.mark.parametrize("graph", ["resnet50", None, object()])
def test_what_is_no_graph(graph):
    with pytest.raises(ArgumentError, match=r"^graph must"):
        pm.predict(graph, **GOOD)


def test_a_broken_file_is_named(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('schema_version = 1\nname = "x"\n')
    with pytest.raises(SpecError, match=r"mine\.toml"):
        pm.predict(GRAPH, batch_size=16, device=path)
    with pytest.raises(SpecError, match=r"nowhere\.toml.*no such file"):
        pm.predict(GRAPH, batch_size=16, device="nowhere.toml")


def test_a_run_is_what_one_would_build_by_hand():
    # by hand one asks for a step in the long run
    run = replace(pm.measurements.load("shi2016").run("torch_423cfba", "fcn5"), averaged_steps=0)
    of_run = pm.predict(run, device="gtx_1080")
    by_hand = pm.predict(
        pm.zoo.build(run.builder, **run.builder_options),
        batch_size=run.batch_size,
        device="gtx_1080",
        framework="torch_423cfba",
        optimizer=pm.layers.load_optimizer(run.optimizer, clipping=run.clipping, **run.optimizer_options),
        phase=run.phase,
    )
    assert of_run.batch_size == run.batch_size
    assert of_run.framework == by_hand.framework
    # kernels are the same unless the script also asked for the gradient of its input; the feed is the run's own
    if run.input_gradient == pm.load_framework("torch_423cfba").input_gradient:
        for part in ("compute_s", "memory_bound_s", "overhead_s", "update_s"):
            assert getattr(of_run, part) == pytest.approx(getattr(by_hand, part), rel=1e-12)
    link = pm.load_link("pcie_3_x16")
    fed = [item for item in run.feed if not item.prefetched]
    copied = sum(item.bytes_per_sample for item in fed) * run.batch_size
    staged = sum(item.bytes_per_sample for item in fed if item.origin == "interpreter") * run.batch_size
    expected = copied / link.pageable_bandwidth_bytes_per_s + len(fed) * link.latency_s + staged / 5e9
    assert not pm.load_framework("torch_423cfba").feed.pinned
    assert of_run.exposed_transfer_s == pytest.approx(expected)


def test_a_run_takes_another_batch_size_but_not_another_device_by_itself():
    run = pm.measurements.load("shi2016").run("caffe_1_0_rc3", "alexnet")
    assert pm.predict(run, device="gtx_980", batch_size=2).batch_size == 2
    with pytest.raises(ArgumentError, match="or pass system="):
        pm.predict(run)


@pytest.mark.parametrize("fact", [{"phase": "forward"}, {"optimizer": "adam"}])
def test_what_a_run_executed_is_not_to_be_chosen(fact):
    run = pm.measurements.load("shi2016").run("caffe_1_0_rc3", "alexnet")
    with pytest.raises(ArgumentError, match=rf"^{next(iter(fact))} must be .*which the Run executed"):
        pm.predict(run, device="gtx_980", **fact)


def test_pageable_buffers_cost_more_than_pinned_ones():
    pinned, pageable = (
        pm.predict(GRAPH, **GOOD, framework="generic", pinned=pinned).transfer_s for pinned in (True, False)
    )
    link = pm.load_link("pcie_3_x16")
    # 26,752 features and a label of 4 B for each of 16 samples, in two copies
    moved = 16 * (26_752 * 4 + 4)
    assert pinned == pytest.approx(moved / link.effective_bandwidth_bytes_per_s + 2 * link.latency_s)
    assert pageable == pytest.approx(moved / link.pageable_bandwidth_bytes_per_s + 2 * link.latency_s)


def test_an_epoch_is_whole_steps():
    p = pm.predict(GRAPH, **GOOD)
    assert p.epoch_s(dataset_size=33) == pytest.approx(3 * p.step_s)
    assert p.samples_per_s == pytest.approx(16 / p.step_s)
    with pytest.raises(ArgumentError, match=r"dataset_size must.*\(got 0"):
        p.epoch_s(dataset_size=0)
    with pytest.raises(AttributeError, match="steps_s"):
        _ = p.steps_s


HEAVY = ("sympy", "scipy", "matplotlib", "networkx", "pydantic", "pandas", "torch", "rich", "typer")


def test_importing_loads_nothing_heavy():
    program = f"import sys, perfmodel; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def own_specs(tmp_path, monkeypatch):
    for kind in ("devices", "frameworks"):
        (tmp_path / kind).mkdir()
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    return tmp_path


def test_a_folder_of_ones_own_adds_a_device_and_a_framework(own_specs):
    shutil.copy(shipped_folder() / "devices/gtx_1080.toml", own_specs / "devices/my_gpu.toml")
    shutil.copy(shipped_folder() / "frameworks/torch_423cfba.toml", own_specs / "frameworks/my_torch.toml")
    mine = pm.predict(GRAPH, batch_size=16, device="my_gpu", framework="my_torch")
    assert mine.step_s == pm.predict(GRAPH, batch_size=16, device="gtx_1080", framework="torch_423cfba").step_s


def test_ones_own_file_wins_over_the_shipped_one(own_specs):
    before = pm.predict(GRAPH, batch_size=16, device="gtx_1080", framework="torch_423cfba")
    text = (shipped_folder() / "frameworks/torch_423cfba.toml").read_text()
    assert text.count("step_overhead_us = 100.0") == 2
    (own_specs / "frameworks/torch_423cfba.toml").write_text(
        text.replace("step_overhead_us = 100.0", "step_overhead_us = 1100.0")
    )
    after = pm.predict(GRAPH, batch_size=16, device="gtx_1080", framework="torch_423cfba")
    assert after.step_s - before.step_s == pytest.approx(1e-3)


def test_a_folder_that_is_not_there_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path / "nowhere"))
    with pytest.raises(SpecError, match="PERFMODEL_SPECS"):
        pm.predict(GRAPH, **GOOD)


def test_steps_that_are_averaged_share_what_the_first_one_sets_up():
    run = pm.measurements.load("shi2016").run("torch_423cfba", "fcn5")
    first_s = pm.load_framework("torch_423cfba").gpu.constants["first_step_ms"] / 1000
    times = {
        steps: pm.predict(replace(run, averaged_steps=steps), device="gtx_980") for steps in (0, 1, run.averaged_steps)
    }
    assert times[1].step_s - times[0].step_s == pytest.approx(first_s)
    assert times[32].step_s - times[0].step_s == pytest.approx(first_s / 32)
    assert times[32].overhead_s - times[0].overhead_s == pytest.approx(first_s / 32)
    # a network of one's own is timed in the long run, and so is a framework that no script starts inside its timer
    assert (
        pm.predict(pm.zoo.fcn5(), batch_size=64, device="gtx_980", framework="torch_423cfba").step_s < times[32].step_s
    )
    caffe = pm.measurements.load("shi2016").run("caffe_1_0_rc3", "fcn5")
    assert caffe.averaged_steps == 0


def test_a_slower_host_issues_kernels_more_slowly():
    run = replace(pm.measurements.load("shi2016").run("torch_423cfba", "lstm32"), averaged_steps=0)
    slowdown = pm.load_device("xeon_e5_2630_v3").call_slowdown
    placed = pm.predict(run, device="tesla_k80_gk210")
    anywhere = pm.predict(replace(run, hosts={}), device="tesla_k80_gk210")
    assert slowdown > 1
    assert placed.dispatch_s == pytest.approx(slowdown * anywhere.dispatch_s)
    # what the host does not do takes as long, and what the kernels hide of it is still hidden
    assert (placed.compute_s, placed.launch_s) == (anywhere.compute_s, anywhere.launch_s)
    assert 0 < placed.step_s - anywhere.step_s < placed.dispatch_s - anywhere.dispatch_s
    desktop = pm.predict(run, device="gtx_980")
    assert desktop.dispatch_s == pytest.approx(anywhere.dispatch_s), "dispatch is stated for such a host"


@pytest.mark.parametrize("how", [{"device": "t4"}, {"system": "dgx_h100", "workers": 4, "sync": "all_reduce"}], ids=str)
def test_a_prediction_that_was_read_comes_back_from_a_pickle(how):
    p = pm.predict(pm.zoo.resnet18(), batch_size=8, **how)
    shown, job = str(p), p.job
    copied = pickle.loads(pickle.dumps(p))
    assert (str(copied), copied.job, copied.step_s) == (shown, job, p.step_s)
