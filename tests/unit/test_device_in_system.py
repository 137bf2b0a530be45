"""A device in the slots of a system: a card of the catalogue, one from a file, or a measured machine."""

import math
from dataclasses import asdict
from pathlib import Path

import pytest

import perfmodel as pm
from measured_machines import content, machine, three_layers
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.hardware import spec_files
from perfmodel.hardware.cluster import system_with
from perfmodel.hardware.measured_machine import MeasuredMachine

GRAPH = pm.zoo.alexnet()
JOB = {"batch_size": 32, "framework": "pytorch_2"}


def assert_same(one, other):
    """Both predictions agree in step, parts, interval and memory."""
    assert one.step_s == pytest.approx(other.step_s, rel=1e-12)
    assert one.breakdown == pytest.approx(other.breakdown, rel=1e-12)
    assert one.interval_s == pytest.approx(other.interval_s, rel=1e-12)
    assert asdict(one.memory) == pytest.approx(asdict(other.memory), rel=1e-12)


@pytest.mark.parametrize("workers", [1, 8])
def test_the_own_device_of_a_system_changes_nothing(workers, tmp_path):
    own = pm.predict(GRAPH, system="dgx_a100", workers=workers, **JOB)
    assert_same(pm.predict(GRAPH, system="dgx_a100", device="a100_40_sxm", workers=workers, **JOB), own)
    copied = tmp_path / "my_card.toml"  # the same card by another name goes into the slots
    copied.write_text(spec_files.find("devices", "a100_40_sxm").read_text())
    as_given = pm.predict(GRAPH, system="dgx_a100", device=copied, workers=workers, **JOB)
    assert "my_card" in as_given.target
    assert_same(as_given, own)


@pytest.mark.parametrize("given", ["name", "object"])
def test_another_card_is_the_row_of_a_sweep(given):
    device = "h100_sxm" if given == "name" else pm.load_device("h100_sxm")
    places = {"system": "dgx_a100", "device": device}
    swept = pm.sweep(GRAPH, workers=[1, 2, 8], sync=["ring_all_reduce", "all_reduce"], **places, **JOB)
    for row in swept:
        p = pm.predict(GRAPH, workers=row["workers"], sync=row["sync"], **places, **JOB)
        assert p.step_s == pytest.approx(row["step_s"], rel=1e-12)
    assert "H100" in p.target
    assert p.step_s < pm.predict(GRAPH, system="dgx_a100", workers=8, sync="all_reduce", **JOB).step_s


def test_the_card_takes_the_links_of_its_slot_and_the_peers_of_the_system():
    system = pm.predict(GRAPH, system="dgx_a100", device="h100_sxm", workers=8, **JOB).job.target.system_part.system
    assert system.topology.route("memory0", "gpu0").channels[-1].link == "pcie_4_x16"
    assert {wire.upward.link for wire in system.topology.wires if wire.peer} == {"nvlink_3_x12"}


def test_a_loaded_system_and_several_machines_take_a_device():
    by_name = pm.predict(GRAPH, system="dgx_h100", machines=2, device="h200_sxm", workers=16, **JOB)
    loaded = pm.load_system("dgx_h100")
    assert_same(pm.predict(GRAPH, system=loaded, machines=2, device="h200_sxm", workers=16, **JOB), by_name)
    changed = system_with(pm.load_system("dgx_h100", machines=2), device="h200_sxm")
    assert_same(pm.predict(GRAPH, system=changed, workers=16, **JOB), by_name)


def test_a_system_from_a_folder_of_ones_own_keeps_its_relative_parts(tmp_path):
    (tmp_path / "card.toml").write_text(spec_files.find("devices", "gtx_1080").read_text())
    text = spec_files.find("systems", "survey_fig5").read_text()
    (tmp_path / "mine.toml").write_text(text.replace('device = "gtx_1080"', 'device = "./card.toml"'))
    system = pm.load_system(tmp_path / "mine.toml")
    for given in (system, tmp_path / "mine.toml"):
        p = pm.predict(GRAPH, system=given, device="rtx_3090", workers=4, **JOB)
        assert_same(p, pm.predict(GRAPH, system="survey_fig5", device="rtx_3090", workers=4, **JOB))


def test_a_formula_takes_both():
    places = {"system": "survey_fig5", "device": "rtx_3090", "batch_size": 32}
    f = pm.formula("step_s", graph=GRAPH, free="workers", **places)
    for workers in (2, 4):
        expected = pm.predict(GRAPH, workers=workers, **places).step_s
        assert float(f(workers=workers)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("places", "error", "said"),
    [
        ({"system": "dgx_a100", "device": "gtx_1080"}, ArgumentError, r"device must .*nvlink.*\(got .*GTX 1080"),
        ({"system": "mi300x_x8", "device": "h100_sxm"}, ArgumentError, "device must .*infinity_fabric"),
        ({"system": "dgx_a100", "device": "i7_3820"}, ArgumentError, r"device must be a GPU.*\(got .*i7-3820"),
        ({"system": "survey_fig5", "device": machine()}, ArgumentError, "device must be a GPU.*made-up cores"),
        ({"system": "desktop_i7_3820", "device": "gtx_1080"}, ArgumentError, "no GPU to replace"),
        ({"system": "dgx_a100", "device": "h100_sxn"}, UnknownNameError, "h100_sxm"),
        ({"system": "survey_fig5", "device": "rtx_3090", "workers": 5}, ArgumentError, "from 1 to 4"),
        ({"system": "survey_fig5", "device": "rtx_3090", "threads": 4}, ArgumentError, "threads must be left out"),
    ],
)
def test_what_does_not_fit_is_one_line(places, error, said):
    with pytest.raises(error, match=said) as caught:
        pm.predict(GRAPH, batch_size=32, **places)
    assert "\n" not in str(caught.value)
    (row,) = pm.sweep(GRAPH, batch_size=32, **places) if "sxn" not in str(places) else [{"reason": str(caught.value)}]
    assert row["reason"] == str(caught.value)


def measured_gpu(*, datasheet=None, rate=12.9e9, sums=(), copies=True):
    """The made-up machine as a GPU, with copies and sums."""
    tables = content()
    del tables["machine"]["threads"]
    tables["machine"] |= {"processor": "gpu"} | ({} if datasheet is None else {"datasheet": datasheet})
    added = {}
    if copies:
        to_device = {"direction": "to_device", "latency_s": 1e-5}
        pinned, pageable = to_device | {"pinned": True, "bytes_per_s": rate}, to_device | {"bytes_per_s": 5e9}
        added["host_copy"] = [pinned, pageable]
    if sums:
        added["all_reduce"] = [
            {"library": "nccl", "process_count": count, "latency_s": 3e-5, "bytes_per_s": 4e10} for count in sums
        ]
    (source,) = tables["source"]
    named = [name for name in source["fields"] if name not in ("host_copy", "all_reduce")]
    return MeasuredMachine.model_validate(tables | added | {"source": [source | {"fields": [*named, *added]}]})


def on_measured(device, **places):
    """A prediction of three layers, whose copies take some time."""
    return pm.predict(three_layers(), batch_size=4096, device=device, **places)


@pytest.mark.parametrize("datasheet", [None, "gtx_1080"])
@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("prefetch", [0, 1])
@pytest.mark.parametrize("system", ["survey_fig5", "deepbench_titan_x_host", "shi2016_desktop"])
def test_a_measured_gpu_alone_in_a_system_is_as_it_was_measured(system, datasheet, pinned, prefetch):
    device, how = measured_gpu(datasheet=datasheet), {"pinned": pinned, "prefetch": prefetch}
    alone, inside = on_measured(device, **how), on_measured(device, system=system, **how)
    assert_same(inside, alone)
    assert inside.transfer_s == pytest.approx(alone.transfer_s, rel=1e-12)
    ends_s = [max(span.end_s for span in p.timeline.spans) for p in (inside, alone)]
    assert ends_s[0] == pytest.approx(ends_s[1], rel=1e-9)


def test_several_workers_compute_as_measured_and_exchange_by_the_links():
    device = measured_gpu(datasheet="a100_40_sxm")
    alone = on_measured(device, system="dgx_a100")
    for workers in (2, 8):
        p = on_measured(device, system="dgx_a100", workers=workers)
        own = pm.predict(
            three_layers(), batch_size=4096, system="dgx_a100", workers=workers, framework="pytorch_2", overlap=False
        )
        quiet = on_measured(device, system="dgx_a100", workers=workers, overlap=False)
        ring = [each.agreement.reductions[0].placed.time(2e5) for each in (own.basis.prepared, quiet.basis.prepared)]
        assert ring[0] == pytest.approx(ring[1], rel=1e-12)
        for part in ("compute_s", "memory_bound_s", "update_s"):
            assert p.breakdown[part] == pytest.approx(alone.breakdown[part], rel=1e-12)
        assert p.step_s - alone.step_s == pytest.approx(p.exposed_sync_s, rel=1e-6)
        assert 0 < p.exposed_sync_s <= quiet.exposed_sync_s
        assert p.interval.shares["exchange"] > 0
        assert any("exchanges take the links of NVIDIA DGX A100" in remark for remark in p.remarks)


@pytest.mark.parametrize(("system", "shared_rate"), [("deepbench_titan_x_host", 10e9 / 2), ("survey_fig5", 6.38e9)])
def test_workers_share_the_hosts_links_at_the_measured_rate(system, shared_rate):
    """Switches of the slots' own generation reach as much as was measured; a root of a newer one what its file says."""
    device, copied = measured_gpu(rate=10e9), 4096 * 784 * 4
    count = 2 if "deepbench" in system else 4
    for workers, rate in ((1, 10e9), (count, shared_rate)):
        p = on_measured(device, system=system, workers=workers, sync="none")
        assert p.transfer_s == pytest.approx(copied / rate + 2e-5, rel=2e-3)  # examples and labels


SUM = {"system": "dgx_a100", "workers": 8, "sync": "all_reduce", "overlap": False, "bucket_bytes": math.inf}
"""Eight workers that add their gradients up in one message after back-propagation."""


class TestMeasuredSum:
    def test_it_takes_the_measured_time(self):
        (p, slower) = (on_measured(measured_gpu(sums=sums), **SUM) for sums in ([8], [4]))
        copies_s = p.basis.timed.composed.stages[0].copied_s
        gradients = 4 * (784 * 64 + 64 + 64 * 10 + 10)
        assert p.sync_s - copies_s == pytest.approx(3e-5 + gradients / 4e10, rel=1e-12)
        assert slower.sync_s != pytest.approx(p.sync_s, rel=1e-2)

    def test_it_is_told(self):
        p = on_measured(measured_gpu(sums=[8]), **SUM)
        rows = {row.constant.partition("/all_reduce.")[2]: row for row in p.provenance if "all_reduce" in row.constant}
        assert rows["latency_s"].value == 3e-5
        assert rows["latency_s"].sensitivity == pytest.approx(3e-5 / p.step_s, rel=1e-2)
        assert rows["bytes_per_s"].sensitivity < 0
        assert any("as measured with nccl among 8" in remark for remark in p.remarks)
        assert "exchange" not in p.interval.shares

    @pytest.mark.parametrize(
        ("sync", "phase", "told"),
        [
            ("all_reduce", "step", "gradients are summed as measured with nccl"),
            ("ring_all_reduce", "step", "exchanges take the links"),
            ("parameter_server", "step", "exchanges take the links"),
            ("downpour", "step", "exchanges take the links"),
            ("none", "step", ""),
            ("all_reduce", "forward", ""),
        ],
    )
    def test_it_is_told_only_where_it_is_used(self, sync, phase, told):
        p = on_measured(measured_gpu(sums=[8]), system="dgx_a100", workers=8, sync=sync, phase=phase)
        on_exchanges = [text for text in p.remarks if "exchange" in text or "added up" in text or "nccl" in text]
        assert len(on_exchanges) == bool(told)
        assert all(text.startswith(told) for text in on_exchanges)
        assert any("nccl" in text for text in p.remarks) == ("nccl" in told)

    def test_it_is_played(self):
        p = on_measured(measured_gpu(sums=[8]), **SUM)
        starts = [p.timeline.span(f"gpu0/compute/{step}").start_s for step in (1, 2)]
        assert starts[1] - starts[0] == pytest.approx(p.step_s, rel=1e-9)

    @pytest.mark.parametrize(
        "other",
        [
            {"workers": 4},  # of another number of workers
            {"system": "dgx_a100_80", "device": "a100_40_sxm"},  # of cards of another machine
            {"sync": "ring_all_reduce"},
            {"shard_stage": 2},
        ],
    )
    def test_it_is_not_used_where_it_does_not_apply(self, other):
        asked = SUM | {name: value for name, value in other.items() if name != "device"}
        sheet = other.get("device")
        with_sum, without = (on_measured(measured_gpu(datasheet=sheet, sums=sums), **asked) for sums in ([8], []))
        assert with_sum.step_s == without.step_s


def test_a_sweep_takes_measured_machines_in_systems():
    device = measured_gpu(datasheet="a100_40_sxm", sums=[8])
    how = {"system": "dgx_a100", "sync": "all_reduce"}
    swept = pm.sweep(three_layers(), batch_size=[64, 4096], device=[device, "a100_40_sxm"], workers=[1, 8], **how)
    assert all(swept["fits"])
    for row in swept:
        given = device if row["device"] == device.name else row["device"]
        p = pm.predict(three_layers(), device=given, batch_size=row["batch_size"], workers=row["workers"], **how)
        assert row["step_s"] == pytest.approx(p.step_s, rel=1e-12)


def test_a_cluster_of_measured_gpus():
    device = measured_gpu(datasheet="h100_sxm", sums=[8])
    p = on_measured(device, system="dgx_h100", machines=2, workers=16)
    assert p.step_s > on_measured(device).step_s
    assert p.target.startswith("16 x made-up cores")
    assert Path(p.basis.prepared.target.specs[1].stem).name == pm.load_system("dgx_h100", machines=2).file.stem


def test_advice_tries_the_cards_that_a_systems_links_can_join():
    advice = pm.advise(GRAPH, kinds="device", system="dgx_a100", workers=8, **JOB)
    tried = {row.changes["device"] for row in advice.rows}
    assert {"h100_sxm", "v100_sxm2"} <= tried
    assert "gtx_1080" not in tried
    (row,) = [row for row in advice.rows if row.changes["device"] == "h100_sxm"]
    p = pm.predict(GRAPH, system="dgx_a100", device="h100_sxm", workers=8, **JOB)
    assert row.step_s == pytest.approx(p.step_s, rel=1e-12)


@pytest.mark.parametrize("sync", ["ring_all_reduce", "parameter_server", "double_binary_tree"])
def test_a_formula_in_workers_takes_a_measured_machine_in_a_system(sync):
    places = {"system": "dgx_a100", "device": measured_gpu(datasheet="a100_40_sxm"), "batch_size": 256, "sync": sync}
    f = pm.formula("step_s", graph=three_layers(), free="workers", **places)
    for workers in (1, 2, 5, 8):
        expected = pm.predict(three_layers(), workers=workers, **places).step_s
        assert float(f(workers=workers)) == pytest.approx(expected, rel=1e-9)
    with pytest.raises(ArgumentError, match="a device of the catalogue"):
        pm.formula("step_s", graph=three_layers(), free="batch_size", **places)


def test_a_formula_counts_the_devices_that_stand_in_the_slots():
    """Its own two cards differ, so that one worker is all that it has room for."""
    f = pm.formula("step_s", graph=GRAPH, free="workers", system="shi2016_desktop", device="gtx_1080", batch_size=32)
    expected = pm.predict(GRAPH, system="shi2016_desktop", device="gtx_1080", batch_size=32, workers=2).step_s
    assert float(f(workers=2)) == pytest.approx(expected, rel=1e-9)


def test_measured_gpus_in_a_system_are_rented_by_the_machine():
    device = measured_gpu(datasheet="a100_40_sxm")
    bought = {"price": "aws_p4d_24xlarge_2025", "dataset_size": 10**9}
    one, two = (on_measured(device, system="dgx_a100", machines=2, workers=count) for count in (8, 16))
    rates = [p.cost_usd(**bought) / p.epoch_s(dataset_size=10**9) for p in (one, two)]
    assert rates[1] == pytest.approx(2 * rates[0], rel=1e-9)
    with pytest.raises(ArgumentError, match="price must be that of an instance with a100_40_sxm"):
        one.cost_usd(**bought | {"price": "gce_a3_highgpu_8g_2024"})


def measured_cpu(*, rate=4e8, latency_s=2e-4, sums=True):
    """The made-up CPU, with the sum of two of its processes: slower than the network of the cluster below."""
    tables = content()
    (source,) = tables["source"]
    added = {}
    if sums:
        added["all_reduce"] = [{"library": "gloo", "process_count": 2, "latency_s": latency_s, "bytes_per_s": rate}]
    else:
        tables.pop("all_reduce", None)
    named = [name for name in source["fields"] if name != "all_reduce"]
    return MeasuredMachine.model_validate(tables | added | {"source": [source | {"fields": [*named, *added]}]})


NODES = {"system": "gce_n1_standard_4_x4"}
ONE_MESSAGE = {**NODES, "sync": "all_reduce", "overlap": False, "bucket_bytes": 1e12}
GRADIENTS = 4 * (784 * 64 + 64 + 64 * 10 + 10)
HOP_S = 30e-6 + 120e-6 + 2 * 0.15e-6


class TestMeasuredCpu:
    @pytest.mark.parametrize("places", [NODES, {"system": "gce_n1_standard_4"}])
    def test_alone_it_is_as_it_was_measured_with_the_memory_of_its_machine(self, places):
        there, here = on_measured(measured_cpu(), **places), on_measured(measured_cpu())
        assert (there.memory.capacity_bytes, here.memory.capacity_bytes) == (13.97 * 2**30, 16 * 2**30)
        for name in ("step_s", "breakdown", "interval_s"):
            assert getattr(there, name) == pytest.approx(getattr(here, name), rel=1e-12)
        assert there.memory.total_bytes == here.memory.total_bytes

    @pytest.mark.parametrize("datasheet", [None, "n1_standard_4_skylake"])
    def test_its_memory_is_that_of_the_machine_in_every_verb(self, datasheet):
        """Four copies of VGG-16's parameters stand beside a worker: 2.2 of 3.75 GB; the file's own machine has 25.3."""
        graph, small = pm.zoo.vgg16(), 3.49 * 2**30
        device = pm.load_calibration("hardware_specs/calibrations/xeon_2_cores_torch_2_13.toml")
        machine = device.machine.model_copy(update={"datasheet": datasheet})
        job = {"device": device.model_copy(update={"machine": machine}), "system": "gce_n1_standard_1"}
        job |= {"machines": 2, "workers": 2, "sync": "delay_compensated"}
        most = pm.max_batch_size(graph, **job)
        for size, fits in ((most, True), (most + 1, False)):
            p = pm.predict(graph, batch_size=size, **job)
            assert (p.memory.fits, p.memory.capacity_bytes, p.memory.server_bytes) == (fits, small, 4 * 4 * 138_357_544)
            assert p.to_dict()["server"]["capacity_bytes"] == small
            assert "of 3.747 GB" in " ".join(p.explain().split())
            assert p.play(2).makespan_s > 0
            (row,) = pm.sweep(graph, batch_size=[size], columns=["memory_bytes"], **job)
            assert (row["fits"], row["memory_bytes"]) == (fits, p.memory.total_bytes)
        assert any("2 cores that were measured compute on each machine" in text for text in p.remarks)

    @pytest.mark.parametrize("system", ["gce_n1_standard_1", "gce_n1_standard_4", "gce_n1_highmem_16"])
    def test_its_cores_decode_and_not_those_of_the_machine(self, system):
        """Two cores, both at work: half of what a mini-batch takes one core to decode is added to the step."""
        graph, where = pm.zoo.alexnet(), {"system": system, "machines": 2, "workers": 2, "sync": "all_reduce"}
        job = {"batch_size": 32, "device": "hardware_specs/calibrations/xeon_2_cores_torch_2_13.toml", **where}
        alone = pm.predict(graph, **job)
        fed = {"dataset": "imagenet_jpeg", "input_from": "samsung_960_pro"}
        p = pm.predict(graph, **job, **fed)
        decoding_s = 32 / pm.load_dataset("imagenet_jpeg").decode_rate_per_core
        computing_s = alone.step_s - alone.exposed_sync_s
        assert p.step_s == pytest.approx(max(alone.step_s, computing_s + decoding_s / 2), rel=1e-9)
        assert any("share the 2 cores" in text for text in p.remarks)
        assert pm.predict(graph, decode_cores=2, **job, **fed).step_s == p.step_s
        with pytest.raises(ArgumentError, match="decode_cores must be a whole number from 1 to 2"):
            pm.predict(graph, decode_cores=3, **job, **fed)

    def test_its_cores_add_at_the_rate_that_they_were_measured_to_stream_at(self):
        """On a machine whose own core reads and writes 8 GB/s."""
        where = {"system": "gce_n1_standard_1", "machines": 3, "workers": 2, "sync": "downpour"}
        p = on_measured(measured_cpu(), optimizer="sgd", **where)
        assert p.agreement.numbers.update_s == pytest.approx(3 * GRADIENTS / 2e10, rel=1e-9)

    @pytest.mark.parametrize(("workers", "sent"), [(2, 1.0), (4, 1.5)])
    def test_its_processes_send_no_faster_and_begin_as_late_as_measured(self, workers, sent):
        p = on_measured(measured_cpu(), workers=workers, **ONE_MESSAGE)
        copies_s = p.basis.timed.composed.stages[0].copied_s
        taken_s = 2e-4 + 2 * (workers - 1) * HOP_S + sent * GRADIENTS / 4e8
        assert p.sync_s - copies_s == pytest.approx(taken_s, rel=1e-9)
        fast = on_measured(measured_cpu(rate=9e12), workers=workers, **ONE_MESSAGE)  # then the network is what counts
        assert fast.sync_s - copies_s == pytest.approx(2e-4 + 2 * (workers - 1) * HOP_S + sent * GRADIENTS / 0.9e9)
        period_s = p.play(3).makespan_s - p.play(2).makespan_s
        assert period_s == pytest.approx(p.step_s, rel=1e-9)

    def test_it_is_told(self):
        p = on_measured(measured_cpu(), workers=4, **ONE_MESSAGE)
        rows = {row.constant.partition("/all_reduce.")[2]: row for row in p.provenance if "all_reduce" in row.constant}
        assert rows["latency_s"].sensitivity == pytest.approx(2e-4 / p.step_s, rel=1e-2)
        assert rows["bytes_per_s"].sensitivity == pytest.approx(-1.5 * GRADIENTS / 4e8 / p.step_s, rel=1e-2)
        assert any("0.4 GB/s, as measured between two with gloo" in remark for remark in p.remarks)
        without = on_measured(measured_cpu(sums=False), workers=4, **ONE_MESSAGE)
        assert not [row for row in without.provenance if "all_reduce" in row.constant]
        assert any("no sum of two processes was measured" in remark for remark in without.remarks)

    @pytest.mark.parametrize("on", ["free machine", "own machine of the file", "worker's machine"])
    @pytest.mark.parametrize(
        ("sync", "held"),
        [("downpour", 1), ("delay_compensated", 1), ("parameter_server", 2), ("host_tree", 2), ("one_to_all", 4 / 3)],
    )
    def test_its_server_sends_no_faster_either(self, sync, held, on, tmp_path):
        """Three workers' gradients pass one process, in one direction at a time or in both at once."""
        where = {**NODES, "workers": 3, "sync": sync}
        if on == "own machine of the file":
            file = tmp_path / "with_server.toml"
            stated = spec_files.find("systems", NODES["system"]).read_text().replace("count = 4", "count = 3")
            stated = stated.replace("[fabric]", '[server]\nsystem = "gce_n1_standard_4"\n\n[fabric]', 1)
            file.write_text(stated.replace('fields = ["node"]', 'fields = ["node", "server"]'))
            where["system"] = file
        if sync not in ("host_tree", "one_to_all"):
            where["server_on"] = {"free machine": "node3", "own machine of the file": "server"}.get(on, "node1")
        p = on_measured(measured_cpu(rate=1e8), **where)
        least_s = held * 3 * GRADIENTS / 1e8
        assert p.step_s > least_s
        assert p.exposed_sync_s < 1.1 * least_s + 2e-3
        unheld = on_measured(measured_cpu(sums=False), **where)  # exchanges over the network alone, 9 times as fast
        assert unheld.exposed_sync_s < 0.5 * least_s

    @pytest.mark.parametrize(("workers", "shards"), [(2, 2), (4, 4), (3, 2), (3, 1)])
    @pytest.mark.parametrize("rate", [4e8, 9e12])
    def test_a_shard_beside_a_worker_gets_its_part_before_the_network_answers(self, workers, shards, rate):
        where = {**NODES, "machines": workers, "sync": "parameter_server", "overlap": False, "bucket_bytes": 1e12}
        p = pm.predict(three_layers(), batch_size=64, device=measured_cpu(rate=rate), workers=workers, **where,
            server_count=shards)  # fmt: skip
        period_s = p.play(3).makespan_s - p.play(2).makespan_s
        assert period_s == pytest.approx(p.step_s, rel=1e-9)
        if workers == shards and rate < 0.9e9:  # each process sends as much as all of one worker's gradients
            (reduction,) = p.agreement.reductions
            least_s = max(GRADIENTS / rate, HOP_S + (1 - 1 / workers) * GRADIENTS / rate)
            assert reduction.push.time(GRADIENTS) == pytest.approx(least_s, rel=1e-3)

    @pytest.mark.parametrize("sync", ["all_reduce", "ring_all_reduce", "parameter_server", "downpour", "none"])
    def test_a_sum_is_told_only_where_there_is_one(self, sync):
        for sums in (True, False):
            p = on_measured(measured_cpu(sums=sums), workers=4, **NODES, sync=sync)
            on_rates = [text for text in p.remarks if "process" in text]
            assert len(on_rates) == (sync != "none")
            assert any("sum" in text for text in on_rates) == (sync == "all_reduce")

    @pytest.mark.parametrize("sync", ["all_reduce", "parameter_server", "downpour", "mixed"])
    def test_a_sweep_and_eight_machines_take_it(self, sync):
        device = measured_cpu()
        options = {"group_size": 2} if sync == "mixed" else {}
        where = {"system": "gce_n1_standard_4", "machines": 8, "device": device, "sync": sync, **options}
        for row in pm.sweep(three_layers(), batch_size=[64, 4096], workers=[2, 8], **where):
            p = pm.predict(three_layers(), batch_size=row["batch_size"], workers=row["workers"], **where)
            assert row["step_s"] == pytest.approx(p.step_s, rel=1e-12)

    def test_a_formula_takes_it(self):
        places = {**NODES, "device": measured_cpu(), "batch_size": 256, "sync": "ring_all_reduce"}
        f = pm.formula("step_s", graph=three_layers(), free="workers", **places)
        for workers in (1, 2, 4):
            expected = pm.predict(three_layers(), workers=workers, **places).step_s
            assert float(f(workers=workers)) == pytest.approx(expected, rel=1e-9)

    def test_more_workers_than_machines_is_one_line(self):
        with pytest.raises(ArgumentError, match="workers must be a whole number from 1 to 4") as caught:
            on_measured(measured_cpu(), workers=5, **NODES)
        assert "\n" not in str(caught.value)


def test_another_processor_stands_in_the_sockets():
    own, other = (
        pm.predict(GRAPH, workers=4, **NODES, **JOB, **device) for device in ({}, {"device": "xeon_platinum_8480"})
    )
    assert other.breakdown["compute_s"] < own.breakdown["compute_s"] / 5  # 56 cores in place of two
    assert other.exposed_sync_s > own.exposed_sync_s  # which hide less of the same exchange
    assert other.target.startswith("4 x Google Compute Engine n1-standard-4, with xeon_platinum_8480")
    assert_same(pm.predict(GRAPH, workers=4, device="n1_standard_4_skylake", **NODES, **JOB), own)
