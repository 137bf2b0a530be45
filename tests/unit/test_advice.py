"""What each single change of a job is worth: recomputed from its stated arguments, on every kind of job."""

import contextlib
import doctest
import itertools
import json
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.errors import ArgumentError, PerfmodelError, SpecError, UnknownNameError
from perfmodel.hardware import spec_files
from perfmodel.hardware.cluster import system_with, with_fields, with_own_lanes
from perfmodel.planning.changes import CHANGES, NotApplicableError, Situation
from perfmodel.prediction.arguments.table import ARGUMENTS

FIG5 = {"system": "survey_fig5", "workers": 4, "batch_size": 64}
JOBS = {
    "one_gpu": {"device": "gtx_980", "batch_size": 32, "framework": "caffe_cudnn5", "pinned": False},
    "fed": FIG5 | {"dataset": "imagenet_jpeg", "prefetch": 0, "decode_cores": 2, "framework": "tensorflow_1_1"},
    "waiting": FIG5
    | {"sync": "parameter_server", "overlap": False, "straggler": {"distribution": "normal", "cv": 0.1}},
    "cluster": {"system": "survey_fig6", "workers": 16, "batch_size": 32, "sync": "mixed", "group_size": 4},
    "bounded": FIG5 | {"sync": "bounded_staleness", "staleness_bound": 2},
    "cpu": {"device": "i7_3820", "batch_size": 64, "threads": 8, "framework": "caffe_1_0_rc3"},
    "strong": {"system": "survey_fig5", "workers": 2, "global_batch_size": 64},
    "pipeline": {
        "system": "dgx_1_p100", "batch_size": 32, "parallelism": "pipeline", "stages": 4, "micro_batches": 4,
    },
    "tensor": {"system": "dgx_1_p100", "batch_size": 8, "parallelism": "tensor", "tensor_size": 2, "workers": 2},
}  # fmt: skip


@pytest.fixture(scope="module")
def alexnet():
    return pm.zoo.alexnet()


@pytest.fixture(scope="module", params=JOBS, ids=str)
def advised(request, alexnet):
    return request.param, pm.advise(alexnet, **JOBS[request.param])


def test_every_gain_is_predict_with_the_change_less_predict_without(alexnet, advised):
    """From the arguments that a row states and nothing else: a stale base or a cached gain would show here."""
    name, advice = advised
    base = pm.predict(alexnet, **JOBS[name])
    assert advice.base.samples_per_s == base.samples_per_s
    assert len(advice.rows) > 20
    for row in advice.rows:
        changed = pm.predict(alexnet, **{**JOBS[name], **row.changes})
        assert row.gain_samples_per_s == changed.samples_per_s - base.samples_per_s
        assert row.samples_per_s == changed.samples_per_s
        assert row.step_s == changed.step_s
        assert row.speedup == changed.samples_per_s / base.samples_per_s
        assert row.bottleneck == changed.bottleneck
        assert changed.memory.fits is not False
        assert advice.arguments_with(row) == {**JOBS[name], **row.changes}


def test_rows_are_ranked_and_every_kind_is_answered_for(advised):
    _, advice = advised
    gains = [row.gain_samples_per_s for row in advice.rows]
    noise = 2e-9 * advice.base.samples_per_s  # changes that gain the same stand in the order of the registry
    assert all(later <= earlier + noise for earlier, later in itertools.pairwise(gains))
    answered = {row.kind for row in advice.rows} | {entry.kind for entry in advice.rejected}
    assert answered == set(CHANGES)
    assert all(entry.reason for entry in advice.rejected)
    best = advice.best_of_each_kind
    assert len({row.kind for row in best}) == len(best)
    for row in best:
        most = max(each.gain_samples_per_s for each in advice.rows if each.kind == row.kind)
        assert row.gain_samples_per_s == pytest.approx(most, rel=1e-9, abs=1e-9 * advice.base.samples_per_s)


def test_every_change_changes_something_that_was_given(advised):
    name, advice = advised
    for row in advice.rows:
        assert row.changes
        assert any(JOBS[name].get(argument, "not given") != value for argument, value in row.changes.items()), row


def test_the_reason_names_the_part_that_changed_most_and_by_how_much(alexnet, advised):
    name, advice = advised
    base = pm.predict(alexnet, **JOBS[name])
    for row in [*advice.best_of_each_kind, *advice.rows[-3:]]:
        c = pm.compare(base, pm.predict(alexnet, **{**JOBS[name], **row.changes}))
        if abs(c.total.change_s) <= 1e-9 * c.total.first_s:
            fell, rose = (pick(c.terms, key=lambda term: term.change_s) for pick in (min, max))
            if rose.change_s > 1e-9 * c.total.first_s:
                assert row.reason.startswith(fell.meaning)
                assert f"taken up by {rose.meaning}" in row.reason
            else:
                assert "no part of the step changes" in row.reason
            continue
        sign = 1 if c.total.change_s > 0 else -1
        most = max(c.terms, key=lambda term, sign=sign: sign * term.change_s)
        assert row.reason.startswith(most.meaning)
        sign_text, share = re.search(r" ([+-]).*?([\d.]+) % of it", row.reason).groups()
        assert sign_text == ("+" if sign > 0 else "-")
        assert float(share) / 100 == pytest.approx(abs(most.change_s) / c.total.first_s, abs=1e-3)
        assert f"{row.bottleneck} {'still bounds' if row.bottleneck == base.bottleneck else 'bounds'} it" in row.reason


def test_what_else_changes_is_told(alexnet):
    advice = pm.advise(alexnet, kinds=["sync", "batch_size", "own_lanes"], **FIG5)
    by_change = {row.change: row for row in advice.rows}
    downpour = next(row for change, row in by_change.items() if change == "sync downpour")
    assert "an update is of 64 samples, not 256" in downpour.beware
    assert "a gradient misses 3 updates, not 0" in downpour.beware
    assert "an update is of 512 samples, not 256" in by_change["batch_size 128, twice as many"].beware
    assert "assumes" in by_change["sync in_network"].beware
    assert not by_change["sync halving_doubling"].beware


def test_a_staleness_is_told_where_its_digits_differ():
    """Every change of a step's length moves it a little; what both print alike says nothing."""
    varying = {"sync": "bounded_staleness", "staleness_bound": 4, "straggler": {"distribution": "normal", "cv": 0.2}}
    job = {"system": "survey_fig6", "workers": 8, "batch_size": 32} | varying
    advice = pm.advise(pm.zoo.resnet50(), kinds=["framework", "network", "staleness_bound"], **job)
    told = [re.findall(r"misses ([\d.]+) updates, not ([\d.]+)", row.beware) for row in advice.rows]
    assert [] in told
    assert any(told)
    assert all(now != before for pairs in told for now, before in pairs)


@pytest.mark.parametrize(
    ("job", "kind", "expected"),
    [
        ("one_gpu", "pinned", {"pinned": True}),
        ("one_gpu", "prefetch", {"prefetch": 2}),
        ("one_gpu", "recompute", None),
        ("fed", "prefetch", {"prefetch": 1}),
        ("fed", "decode_cores", {"decode_cores": None}),
        ("fed", "storage", {"input_from": "memory"}),
        ("waiting", "overlap", {"overlap": True}),
        ("waiting", "backup_workers", {"backup_workers": 1}),
        ("waiting", "server_count", {"server_count": 2}),
        ("cluster", "group_size", {"group_size": 8}),
        ("cluster", "periods", {"push_period": 2}),
        ("bounded", "staleness_bound", {"staleness_bound": 4}),
        ("bounded", "staleness_bound", {"staleness_bound": 1}),
        ("bounded", "sync", {"sync": "downpour", "staleness_bound": None}),
        ("cpu", "threads", {"threads": 4}),
        ("cpu", "device", {"device": "v100_sxm2", "threads": None}),
        ("strong", "batch_size", {"global_batch_size": 128}),
        ("strong", "workers", {"workers": 4}),
        ("strong", "bucket_bytes", {"bucket_bytes": math.inf}),
        ("pipeline", "micro_batches", {"micro_batches": 8}),
        ("pipeline", "schedule", {"schedule": "gpipe"}),
        (
            "fed",
            "stages",
            {"parallelism": "pipeline", "stages": 2, "workers": 2, "batch_size": 128, "micro_batches": 8},
        ),
        ("fed", "tensor_size", {"parallelism": "tensor", "tensor_size": 2, "workers": 2, "batch_size": 128}),
        ("strong", "stages", {"parallelism": "pipeline", "stages": 2, "workers": 1, "micro_batches": 2}),
        ("pipeline", "stages", {"parallelism": "data", "stages": 1, "workers": 4, "batch_size": 8, "micro_batches": 1}),
        ("tensor", "stages", {"parallelism": "pipeline", "stages": 2, "workers": 1, "batch_size": 16}),
        ("tensor", "tensor_size", {"parallelism": "data", "tensor_size": 1, "workers": 4, "batch_size": 4}),
        ("cluster", "tensor_size", {"parallelism": "tensor", "tensor_size": 4, "workers": 4, "batch_size": 128}),
        ("tensor", "shard_stage", {"shard_stage": 1}),
        ("one_gpu", "dtype", None),
        ("one_gpu", "framework", {"framework": "pytorch_1_0"}),
        ("one_gpu", "library", {"library": "cudnn_7"}),
        ("strong", "dtype", {"dtype": "fp16"}),
        ("strong", "accumulation_steps", {"accumulation_steps": 2}),
    ],
)
def test_each_kind_yields_the_change_that_it_is_for(alexnet, job, kind, expected):
    """What a person would try by hand is among the rows, or among what cannot be with its reason."""
    advice = pm.advise(alexnet, kinds=kind, **JOBS[job])
    if expected is None:
        assert not len(advice.rows) or kind == "dtype"
        assert len(advice.rejected)
        return
    held = [row.changes for row in advice.rows if expected.items() <= row.changes.items()]
    told = [entry.change for entry in advice.rejected if str(next(iter(expected.values()))) in entry.change]
    assert held or told
    if not told:
        assert {**JOBS[job], **held[0]} != JOBS[job]


@pytest.mark.parametrize("job", ["fed", "waiting", "strong", "pipeline", "tensor", "cluster"])
def test_devices_that_share_more_or_less_are_as_many_and_train_on_as_many_samples(alexnet, job):
    advice = pm.advise(alexnet, kinds=["stages", "tensor_size"], **JOBS[job])
    sizes = ("workers", "stages", "tensor_size")
    devices = math.prod(JOBS[job].get(size, 1) for size in sizes)
    samples = advice.base.batch_size * advice.base.worker_count
    assert len(advice.rows) > 1
    for row in advice.rows:
        asked = advice.arguments_with(row)
        changed = pm.predict(alexnet, **asked)
        assert math.prod(asked.get(size, 1) for size in sizes) == devices
        assert changed.batch_size * changed.worker_count == samples
        spread = asked.get("stages", 1) > 1 or asked.get("tensor_size", 1) > 1
        assert ("assumes a framework" in row.beware) == (asked.get(row.kind, 1) > 1)
        assert (asked["parallelism"] == "data") != spread


def test_devices_share_nothing_where_there_is_nothing_to_share(alexnet):
    job = {"system": "survey_fig5", "batch_size": 64}
    for more, reason in (
        ({"workers": 1}, "one device"),
        ({"workers": 4, "sync": "none"}, "its own copy"),
        ({"workers": 2, "parallelism": "hybrid"}, "shares the network in another way"),
    ):
        advice = pm.advise(alexnet, kinds=["stages", "tensor_size"], **job | more)
        assert not len(advice.rows)
        assert all(reason in entry.reason for entry in advice.rejected)
    uneven = JOBS["pipeline"] | {"batch_size": 5, "micro_batches": 5, "stages": 2}
    rejected = pm.advise(alexnet, kinds="stages", **uneven).rejected
    assert rejected[-1].reason == "samples cannot be shared evenly with stages = 1"


def test_shards_and_bounds_go_both_ways(alexnet):
    shards = {"system": "survey_fig6", "workers": 8, "batch_size": 32, "sync": "downpour"}
    for count, others in ((1, {2}), (2, {1, 4})):
        tried = pm.advise(alexnet, kinds="server_count", **shards, server_count=count)
        assert {row.changes["server_count"] for row in tried.rows} | {
            int(entry.change.split()[0]) for entry in tried.rejected
        } == others
    for bound, others in ((0, {1}), (1, {2, 0}), (4, {8, 2})):
        tried = pm.advise(alexnet, kinds="staleness_bound", **JOBS["bounded"] | {"staleness_bound": bound})
        assert {row.changes["staleness_bound"] for row in tried.rows} == others


def test_another_gpu_in_a_system_keeps_its_wiring(alexnet):
    advice = pm.advise(alexnet, kinds="device", **FIG5)
    row = next(row for row in advice.rows if row.change.startswith("gtx_980 "))
    assert row.changes == {"device": "gtx_980"}
    changed = pm.Job(alexnet, **FIG5 | row.changes).target.system_part.system
    before = pm.load_system("survey_fig5")
    assert [device.name for _, device in changed.devices] == 4 * [pm.load_device("gtx_980").name]
    assert {wire.lower: wire.upper for wire in changed.wiring.wires} == {
        wire.lower: wire.upper for wire in before.wiring.wires
    }
    assert {row.change.split()[0] for row in advice.rows} | {entry.change.split()[0] for entry in advice.rejected} == {
        name for name in pm.catalogue().names("device") if pm.load_device(name).kind == "gpu"
    } - {"gtx_1080"}


def test_amd_cards_do_not_run_cuda_libraries_and_no_other_way(alexnet):
    job = {"device": "gtx_980", "batch_size": 32, "framework": "caffe_1_0_rc3"}  # whose file knows no AMD library
    reasons = {entry.change: entry.reason for entry in pm.advise(alexnet, kinds=["device", "library"], **job).rejected}
    assert "another vendor's" in reasons["mi300x"]
    assert not any(change in reasons for change in ("v100_sxm2", "library cudnn_4"))
    assert "no values for maxwell" in reasons[""]  # of rocBLAS and MIOpen; for its own the file in use has some
    assert "rocblas_4" in reasons[""]


def test_no_gain_is_made_of_values_that_a_library_has_not(alexnet):
    job = {"device": "a100_40_sxm", "batch_size": 64, "framework": "pytorch_2"}
    advice = pm.advise(alexnet, kinds="library", **job)
    tried = {row.changes["library"] for row in advice.rows}
    assert tried
    assert all("ampere" in pm.load_library(name).architecture for name in tried)
    assert "cublas_8_0" in advice.rejected[0].reason


def test_newer_links_are_one_generation_and_nothing_else(alexnet):
    row = pm.advise(alexnet, kinds="host_link", **FIG5).rows[0]
    changed, before = row.changes["system"].topology, pm.load_system("survey_fig5").topology
    assert changed.route("memory0", "gpu0").capacity_bytes_per_s == pytest.approx(
        2 * before.route("memory0", "gpu0").capacity_bytes_per_s, rel=0.06
    )  # 4.0 has twice the rate of 3.0, of which copies reach 81, not 79 %
    alone = pm.advise(alexnet, kinds="host_link", device="gtx_1080", batch_size=64).rows[0]
    assert alone.changes["device"].host_link.generation == 4
    assert "GTX 1080 has pcie_3_x16" in alone.beware
    p = pm.predict(alexnet, device=alone.changes["device"], batch_size=64)
    assert p.transfer_s == pytest.approx(pm.predict(alexnet, device="gtx_1080", batch_size=64).transfer_s / 2, rel=0.06)


def test_a_table_that_cannot_be_is_refused_with_its_faults():
    (slot,) = pm.load_system("survey_fig5").file.device
    with pytest.raises(SpecError, match="count"):
        with_fields(slot, {"count": 0})


def test_lanes_of_their_own_take_every_card_past_roots_and_switches():
    file = with_own_lanes(pm.load_system("dgx_1_p100").file)
    (slot,) = file.device
    assert [slot.port_of(index) for index in range(8)] == 4 * ["socket0"] + 4 * ["socket1"]


def test_more_drives_are_read_together(alexnet):
    job = FIG5 | {"dataset": "imagenet_raw"}
    advice = pm.advise(alexnet, kinds="raid", **job)
    for row, times in zip(sorted(advice.rows, key=lambda row: row.samples_per_s), (2, 4), strict=True):
        array = row.changes["system"].storages[0]
        assert array.drive_count == times
        assert array.efficiency == 0.97
    assert advice.rows[0].speedup == 1  # one NVMe drive gives four GTX 1080 as many raw images as they want
    sata = {"system": "k80_card", "workers": 2, "batch_size": 128, "dataset": "imagenet_raw", "sync": "none"}
    sata |= {"phase": "forward"}
    base = pm.predict(alexnet, **sata)
    assert base.bottleneck == "storage"  # one SATA drive
    found = {
        row.changes["system"].storages[0].drive_count: row for row in pm.advise(alexnet, kinds="raid", **sata).rows
    }
    assert found[2].samples_per_s == pytest.approx(2 * 128 / (base.step_s - base.input_wait_s), rel=1e-9)
    assert found[4].gain_samples_per_s == found[2].gain_samples_per_s > 0  # the devices bound from two drives on


def test_one_more_gpu_is_in_the_system(alexnet):
    (row,) = pm.advise(alexnet, kinds="workers", **FIG5).rows
    assert len(row.changes["system"].devices) == row.changes["workers"] == 5
    strong = pm.advise(alexnet, kinds="workers", **JOBS["strong"])
    assert [row.changes for row in strong.rows] == [{"workers": 4}]
    assert [entry.change for entry in strong.rejected] == ["3 workers"]  # which do not divide 64 samples


def test_positions_of_a_transformer_are_shared():
    (row,) = pm.advise(pm.zoo.bert(), kinds="sequence_parallel", **JOBS["tensor"]).rows
    assert row.changes == {"sequence_parallel": True}
    assert row.gain_samples_per_s != 0


@pytest.mark.parametrize(
    ("system", "names"),
    [
        ("dgx_1_p100", ["nvlink_2_x1", "nvlink_3_x1", "nvlink_4_x1", "nvlink_5_x1"]),
        ("dgx_a100", ["nvlink_4_x18", "nvlink_5_x18"]),
    ],
)
def test_faster_links_join_the_gpus_of_a_machine(alexnet, system, names):
    """Every wire between GPUs has the new link's rate, and no other wire changes."""
    advice = pm.advise(alexnet, kinds="peer_link", system=system, workers=8, batch_size=32)
    assert {row.change.split()[0] for row in advice.rows} == set(names)
    before = pm.load_system(system).topology
    for row in advice.rows:
        after = row.changes["system"].topology
        for old, new in zip(before.wires, after.wires, strict=True):
            assert (new.upward.link == row.change.split()[0]) == new.peer
            assert new.peer or new == old
        # a faster exchange takes more blocks from the kernels that hide it, and a B200's links have a longer latency
        assert row.gain_samples_per_s > 0 or row.speedup > 0.99
        assert "assumes cards and switches" in row.beware
    none = pm.advise(alexnet, kinds="peer_link", **FIG5)
    assert "no file says that NVIDIA GeForce GTX 1080 takes a bridge" in none.rejected[0].reason


def test_bridges_join_cards_that_take_one_two_by_two(alexnet):
    """The change is the machine that a file with these links would describe: nothing else differs."""
    system = system_with("survey_fig5", device="a100_80_pcie")
    gains = {}
    for workers in (2, 4):
        job = {"system": system, "workers": workers, "batch_size": 32, "kinds": "peer_link"}
        (row,) = pm.advise(alexnet, **job).rows
        bridged = row.changes["system"].file
        assert [(each.between, each.link) for each in bridged.peer_link] == [
            ((("gpu0", "gpu1"), ("gpu2", "gpu3")), "nvlink_3_x12")
        ]
        assert bridged.model_copy(update={"peer_link": (), "name": system.name}) == system.file
        assert "spans" in row.beware
        gains[workers] = row.speedup
    assert gains[2] > 1.2  # the exchange of 244 MB leaves PCIe
    assert gains[4] == pytest.approx(1, abs=1e-9)  # the ring still passes PCIe between the pairs
    odd = pm.advise(alexnet, kinds="peer_link", system="survey_fig5", workers=4, batch_size=32, sync="none")
    assert not odd.rows


@pytest.mark.parametrize("name", spec_files.names("devices"))
def test_a_bridge_is_a_link_of_a_file(name):
    bridge = getattr(pm.load_device(name), "bridge", None)
    assert bridge is None or pm.load_link(bridge.link).family.protocol == "nvlink"


def test_a_faster_network_replaces_adapters_and_fabric(alexnet):
    advice = pm.advise(alexnet, kinds="network", **JOBS["cluster"])
    changed = {row.change: row.changes["system"] for row in advice.rows}
    for system in changed.values():
        assert {link.name for _, link in system.networks} == {system.file.fabric.link}
    assert any("infiniband_ndr" in change for change in changed)
    assert not any("qdr" in change or "ethernet" in change for change in changed)


def test_a_job_that_does_not_fit_is_told_what_makes_it_fit(alexnet):
    job = {"device": "gtx_980", "batch_size": 3000}
    advice = pm.advise(alexnet, **job)
    assert advice.base.memory.fits is False
    assert "does not fit" in str(advice)
    most = pm.max_batch_size(alexnet, device="gtx_980")
    fitting = next(row for row in advice.rows if row.kind == "batch_size" and "memory holds" in row.change)
    assert fitting.changes == {"batch_size": most}
    too_large = next(entry for entry in advice.rejected if "twice" in entry.change)
    assert "It does not fit" in too_large.reason
    assert "as many as memory holds" in str(advice)  # though it gains nothing


def test_text_html_frame_and_dict_hold_the_advice(advised):
    pytest.importorskip("pandas")
    _, advice = advised
    text = str(advice)
    for row in advice.best_of_each_kind:
        assert row.change in " ".join(text.split())
    assert "<table" in advice._repr_html_()
    assert "<script" not in advice._repr_html_()
    assert len(advice.to_frame()) == len(advice.rows)
    plain = json.loads(json.dumps(advice.to_dict()))
    assert [row["gain_samples_per_s"] for row in plain["rows"]] == [row.gain_samples_per_s for row in advice.rows]
    assert repr(advice).startswith("<Advice")


def test_a_run_of_a_table_is_advised_too():
    measured = pm.measurements.load("shi2016")
    job = measured.runs[0]
    advice = pm.advise(job, kinds=["device", "batch_size", "framework"], device="gtx_980")
    base = pm.predict(job, device="gtx_980")
    assert advice.rows[0].gain_samples_per_s == (
        pm.predict(job, **{"device": "gtx_980", **advice.rows[0].changes}).samples_per_s - base.samples_per_s
    )
    assert any(entry.kind == "framework" and "executed" in entry.reason for entry in advice.rejected)


def test_inference_exchanges_nothing(alexnet):
    advice = pm.advise(alexnet, kinds=["sync", "recompute", "dtype", "accumulation_steps"], phase="forward", **FIG5)
    assert {row.kind for row in advice.rows} <= {"dtype"}
    assert {entry.kind: entry.reason for entry in advice.rejected} | {
        "sync": "this phase does not train",
        "recompute": "no backward phase needs activations",
        "accumulation_steps": "this phase has no update to accumulate gradients for",
    } == {entry.kind: entry.reason for entry in advice.rejected}


def test_gradients_are_added_up_only_for_an_update(alexnet):
    advice = pm.advise(alexnet, kinds=["accumulation_steps"], phase="forward_backward", **FIG5)
    assert not advice.rows
    assert [entry.reason for entry in advice.rejected] == ["this phase has no update to accumulate gradients for"]
    assert [row.kind for row in pm.advise(alexnet, kinds=["accumulation_steps"], **FIG5).rows] == ["accumulation_steps"]


def test_a_measured_machine_is_advised_with_what_it_has(alexnet):
    machine = pm.load_calibration("xeon_2_cores_torch_2_13")
    advice = pm.advise(
        alexnet, kinds=["device", "framework", "dtype", "threads", "batch_size"], device=machine, batch_size=8
    )
    assert {entry.kind for entry in advice.rejected} >= {"framework", "dtype", "threads"}
    gpu = next(row for row in advice.rows if row.kind == "device")
    assert "it runs with Generic, not" in gpu.beware or "it runs with generic, not" in gpu.beware
    assert gpu.changes["device"] in pm.catalogue().names("device")


def test_long_reasons_that_are_alike_are_told_once(alexnet):
    job = {"system": "dgx_a100", "workers": 8, "batch_size": 64, "framework": "pytorch_2", "sync": "all_reduce"}
    advice = pm.advise(alexnet, kinds="sync", optimizer="adam", shard_stage=3, shard_group=4, **job)
    alike = [entry for entry in advice.rejected if "shard_group must be " in entry.reason]
    assert len(alike) > 5
    text = " ".join(str(advice).split())
    assert text.count("shard_group must be ") == 1
    assert all(entry.change in text for entry in alike)


def test_wrong_words_are_refused_before_any_work(alexnet):
    with pytest.raises(UnknownNameError, match="batch_size"):
        pm.advise(alexnet, kinds=["batchsize"], **FIG5)
    with pytest.raises(UnknownNameError, match="batch_size"):
        pm.advise(alexnet, batchsize=4, device="gtx_980")
    with pytest.raises(ArgumentError, match="batch_size"):
        pm.advise(alexnet, device="gtx_980", batch_size=0)
    with pytest.raises(ArgumentError, match="kinds"):
        pm.advise(alexnet, device="gtx_980", batch_size=4, kinds=[])


def test_what_is_no_kind_no_row_or_given_twice_is_refused(alexnet, capsys):
    job = {"batch_size": 16, "device": "gtx_1080"}
    with pytest.raises(ArgumentError, match="kinds must be some of batch_size, prefetch"):
        pm.advise(alexnet, kinds=3, **job)
    advice = pm.advise(alexnet, kinds=["prefetch", "raid"], **job)
    for wrong in ("prefetch", *advice.rejected):
        with pytest.raises(ArgumentError, match=r"row must be one of rows"):
            advice.arguments_with(wrong)
    assert run(["advise", "alexnet", "--device", "gtx_1080", "--batch-size", "16", "--set", "batch_size=32"]) == 2
    assert "--set must not be given with --batch-size 16" in capsys.readouterr().err
    words = ["advise", "alexnet", "--device", "gtx_1080", "--batch-size", "16", "--kinds", "prefetch, raid", "--json"]
    assert run(words) == 0
    assert {row["kind"] for row in json.loads(capsys.readouterr().out)["rejected"]} == {"raid"}


def test_numbers_of_any_type_are_counts_and_infinity_survives_json(alexnet):
    plain = pm.advise(alexnet, kinds=["prefetch", "workers", "bucket_bytes"], prefetch=2, **FIG5)
    job = FIG5 | {"workers": np.int64(4), "batch_size": 64.0, "prefetch": 2.0}
    given = pm.advise(alexnet, kinds=["prefetch", "workers", "bucket_bytes"], **job)
    assert [row.change for row in given.rows] == [row.change for row in plain.rows]
    assert json.loads(json.dumps(given.to_dict(), allow_nan=False))["job"] == FIG5 | {"prefetch": 2}
    (at_once,) = (row for row in given.to_dict()["rows"] if row["change"] == "all gradients in one message")
    assert at_once["changes"] == {"bucket_bytes": "inf"}


def test_the_command_ranks_what_the_library_ranks(capsys, alexnet):
    words = ["advise", "alexnet", "--system", "survey_fig5", "--batch-size", "64", "--set", "workers=4"]
    words += ["--set", "sync=parameter_server", "--kinds", "sync,batch_size"]
    assert run([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    advice = pm.advise(alexnet, kinds=["sync", "batch_size"], sync="parameter_server", **FIG5)
    assert [row["change"] for row in found["rows"]] == [row.change for row in advice.rows]
    assert [row["gain_samples_per_s"] for row in found["rows"]] == [row.gain_samples_per_s for row in advice.rows]
    assert run([*words, "--top", "3"]) == 0
    text = capsys.readouterr().out
    assert all(row.change in text for row in advice.rows[:3])
    for wrong, told in (
        (["--kinds", "synk"], "sync"),
        (["--set", "worker=4"], "workers"),
        (["--set", "workers=2"], "--set must not repeat a key"),
        (["--top", "0"], "top"),
    ):
        assert run([*words, *wrong]) == 2
        assert told in capsys.readouterr().err


def test_every_argument_is_changed_by_a_kind_or_told_not_to_be(alexnet):
    changed = set()
    for job in JOBS.values():
        now = Situation(base=pm.predict(alexnet, **job))
        for changes_of_kind in CHANGES.values():
            with contextlib.suppress(NotApplicableError, PerfmodelError):
                for change in changes_of_kind(now):
                    changed |= set(change.changes)
    page = (Path(__file__).parents[2] / "docs" / "advice.md").read_text(encoding="utf-8")
    paragraph = page.partition("Not tried: ")[2].partition("Nor does")[0]
    assert set(ARGUMENTS) - changed == set(re.findall(r"`(\w+)`", paragraph))


def test_the_page_says_what_the_code_computes():
    page = Path(__file__).parents[2] / "docs" / "advice.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried > 20
    assert not failed
    for line in re.findall(r"^perfmodel (advise .*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        assert run(shlex.split(line)) == 0
    kinds = {
        name
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert kinds >= set(CHANGES)
