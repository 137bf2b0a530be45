"""Clusters of machines without GPUs: one worker on the sockets of each, through the composition of all other jobs."""

import re

import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError, PerfmodelError
from perfmodel.prediction.job.agreement_options import sync_names, taken
from perfmodel.sync.asynchronous import SCHEMES

FOUR = {"system": "gce_n1_standard_4_x4"}
MEASURED_CPU = "xeon_2_cores_torch_2_13"
WIRE = 1.0e9 * 0.9  # B/s that TCP carries of 8 Gbit/s
HOP_S = 30e-6 + 120e-6 + 2 * 0.15e-6  # adapters, the cloud's network, the slots of two adapters


@pytest.fixture(scope="module")
def alexnet():
    return pm.zoo.alexnet()


@pytest.fixture(scope="module")
def classifier():
    return pm.zoo.mnist_classifier()


def test_a_ring_takes_what_its_messages_take_on_the_wire(alexnet):
    p = pm.predict(alexnet, batch_size=8, workers=4, sync="ring_all_reduce", bucket_bytes=1e12, **FOUR)
    gradient_bytes = 4 * alexnet.parameter_count
    assert p.sync_s == pytest.approx(6 * HOP_S + 1.5 * gradient_bytes / WIRE, rel=1e-6)
    alone = pm.predict(alexnet, batch_size=8, **FOUR)
    assert p.step_s == pytest.approx(alone.step_s + p.sync_s, rel=1e-9)  # nothing of one message is hidden


@pytest.mark.parametrize("sync", ["parameter_server", "downpour", "delay_compensated"])
def test_a_server_stands_on_a_machine_that_does_not_work_if_there_is_one(classifier, sync):
    apart, beside = (pm.predict(classifier, batch_size=128, workers=count, sync=sync, **FOUR) for count in (3, 4))
    assert apart.agreement.server.memories == ("node3/memory0",)
    assert beside.agreement.server.memories == ("node0/memory0",)
    price = "gce_n1_standard_4_2016"
    assert [p.cost_usd(price) / (p.step_s / 3600) for p in (apart, beside)] == pytest.approx([4 * 0.19] * 2)


def test_a_server_stands_where_it_is_told_to(classifier):
    job = {"batch_size": 128, "workers": 3, "sync": "parameter_server", **FOUR}
    apart, beside = (pm.predict(classifier, server_on=name, **job) for name in ("node3", "node1"))
    assert apart.step_s == pm.predict(classifier, **job).step_s
    assert beside.agreement.server.memories == ("node1/memory0",)
    assert beside.step_s < apart.step_s  # one of three pushes nothing over the network
    assert beside.cost_usd("gce_n1_standard_4_2016") / beside.step_s * 3600 == pytest.approx(3 * 0.19)


@pytest.mark.parametrize("sync", ["downpour", "delay_compensated", "parameter_server"])
@pytest.mark.parametrize(
    ("system", "gb_per_s"),
    [("gce_n1_standard_1", 8), ("gce_n1_standard_4", 22), ("gce_n1_highmem_16", 88), ("survey_fig6", 35.328)],
)
def test_a_server_updates_no_faster_than_its_cores_or_its_bus(alexnet, system, gb_per_s, sync):
    """Eight or eleven GB/s for each core of a slice; the four cores of the server beside GPUs outrun their bus."""
    machines = {} if system == "survey_fig6" else {"machines": 5}
    job = {"batch_size": 4, "framework": "pytorch_2", "optimizer": "sgd", "sync": sync, "workers": 4}
    p = pm.predict(alexnet, system=system, **machines, **job)
    one_pass_s = 4 * alexnet.parameter_count / (gb_per_s * 1e9)  # an update reads two and writes one
    if sync == "parameter_server":
        (reduction,) = p.agreement.reductions
        assert reduction.server_s_per_byte * 4 * alexnet.parameter_count == pytest.approx((4 + 1 + 3) * one_pass_s)
    else:
        numbers = p.agreement.numbers
        taken_s = 3 * one_pass_s
        expected = (taken_s, taken_s if sync == "delay_compensated" else numbers.compensation_s)
        assert (numbers.update_s, numbers.compensation_s) == pytest.approx(expected, rel=1e-9)
    (row,) = pm.sweep(alexnet, system=system, **machines, **job | {"batch_size": [4]})
    assert row["step_s"] == pytest.approx(p.step_s, rel=1e-9)


def test_shards_share_the_load_of_a_server(alexnet):
    steps = [
        pm.predict(alexnet, batch_size=8, workers=4, sync="parameter_server", server_count=count, **FOUR).step_s
        for count in (1, 2, 4)
    ]
    assert steps[0] > 1.5 * steps[1] > 1.5 * steps[2]


def test_the_library_of_hosts_is_not_that_of_gpus(classifier):
    p = pm.predict(classifier, batch_size=128, workers=4, sync="all_reduce", **FOUR)
    assert [source.stem for source in p.agreement.sources] == ["gloo"]
    with pytest.raises(ArgumentError, match=r"sync must be one of .*no library of collectives for tensors in host"):
        pm.predict(classifier, batch_size=128, workers=4, sync="all_reduce", framework="tensorflow_1_1", **FOUR)


def test_decoding_shares_the_cores_with_the_step(alexnet):
    job = {"batch_size": 32, "system": "gce_n1_standard_8", "dataset": "imagenet_jpeg", "input_from": "samsung_960_pro"}
    alone = pm.predict(alexnet, batch_size=32, system="gce_n1_standard_8")
    rate = pm.load_dataset("imagenet_jpeg").decode_rate_per_core
    p = pm.predict(alexnet, **job)
    assert p.step_s == pytest.approx(alone.step_s + 32 / rate / 4, rel=1e-9)  # four cores, all of them at work
    two = pm.predict(alexnet, threads=2, **job)
    of_two = pm.predict(alexnet, batch_size=32, system="gce_n1_standard_8", threads=2)
    assert two.step_s == of_two.step_s  # the other two cores decode meanwhile
    slow = pm.predict(alexnet, decode_cores=1, **job | {"batch_size": 1, "threads": 3})
    assert slow.step_s >= 1 / rate
    assert any("share the 4 cores" in text for text in p.remarks)
    for each in (p, two, slow):
        assert (each.play(9).makespan_s - each.play(5).makespan_s) / 4 == pytest.approx(each.step_s, rel=1e-9)


def test_reading_that_hides_behind_decoding_on_the_same_core_is_no_bottleneck(alexnet, classifier):
    """Reading takes 350 ms a step, decoding 320 of the only core: 3.3 s with AlexNet, 320.3 ms with a small one."""
    job = {"batch_size": 32, "system": "gce_n1_standard_1", "dataset": "imagenet_jpeg"}
    p = pm.predict(alexnet, **job)
    assert p.data_path.stages(32)["read"] > p.breakdown["input_wait_s"] == pytest.approx(0.32)
    assert p.bottleneck == "compute"  # 77 % of what the core does
    assert "What bounds it most is arithmetic" in p.explain()
    told = " ".join(p.explain().split())
    assert "decoded by 1 core, 1 fetched ahead" in told
    assert "computing and decoding on the same cores takes longest" in told
    assert "With 2 cores instead of 1, decoding would keep up with the step" in told
    assert pm.advise(alexnet, **job).base.bottleneck == "compute"
    assert pm.predict(classifier, **job).bottleneck == "storage"  # nothing else takes as long
    assert pm.predict(classifier, **job, input_from="samsung_960_pro").bottleneck == "decode"


def test_a_sweep_and_a_formula_say_what_predict_says(classifier):
    table = pm.sweep(
        classifier,
        batch_size=[64, 128],
        workers=[1, 3, 4],
        sync=["ring_all_reduce", "parameter_server", "downpour"],
        **FOUR,
    )
    for row in table:
        names = ("batch_size", "workers", "sync")
        assert row["step_s"] == pytest.approx(
            pm.predict(classifier, **FOUR, **{name: row[name] for name in names}).step_s
        )
    f = pm.formula(graph=classifier, free=["workers"], batch_size=128, sync="ring_all_reduce", **FOUR)
    for workers in (1, 2, 4):
        predicted = pm.predict(classifier, batch_size=128, workers=workers, sync="ring_all_reduce", **FOUR)
        assert f.lambdify()(workers=workers) == pytest.approx(predicted.step_s, rel=1e-9)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"workers": 5}, "workers must be a whole number from 1 to 4, the devices of"),
        ({"workers": 3, "stages": 2, "parallelism": "pipeline"}, r"must be at most 4.*3 x 2 x 1 = 6"),
        (
            {"workers": 4, "sync": "downpour", "server_count": 9},
            "server_count must be a whole number from 1 to 4, the host mem",
        ),
        ({"workers": 4, "sync": "downpour", "server_on": "node7"}, "unknown machine of .*'node7'"),
        (
            {"workers": 2, "sync": "downpour", "server_on": "node2", "server_count": 2},
            "server_count must be 1: node2 of .* has one host memory",
        ),
        ({"workers": 2, "sync": "ring_all_reduce", "server_on": "node2"}, "server_on must be"),
        ({"workers": 2, "threads": 9}, "threads must be a whole number from 1 to 4"),
        ({"workers": 2, "system": "gce_n1_standard_4"}, "its sockets work together. Pass a cluster"),
        (
            {"workers": 2, "system": "gce_n1_standard_4", "device": MEASURED_CPU},
            "its sockets work together. Pass a cluster",
        ),
        ({"workers": 2, "dataset": "imagenet_jpeg", "input_from": "nvme7"}, "unknown storage 'nvme7'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(classifier, given, told):
    with pytest.raises(PerfmodelError, match=told) as refused:
        pm.predict(classifier, batch_size=128, **FOUR | given)
    assert "\n" not in str(refused.value)


def test_nodes_with_too_little_memory_are_told():
    p = pm.predict(pm.zoo.vgg16(), batch_size=128, system="gce_n1_standard_1", machines=4, workers=4, sync="all_reduce")
    assert not p.memory.fits
    assert "does not fit" in p.explain()


def test_a_year_costs_what_the_report_prints_for_four_of_the_largest():
    disk = {"storage_price": "gce_local_ssd_2015", "storage_gb": 375}
    assert pm.cost_per_year("gce_n1_highmem_16_2016", instances=4, **disk) == pytest.approx(27156.53, abs=0.5)
    assert pm.cost_per_year("gce_n1_standard_1_2016", **disk) == pytest.approx(1272.17, abs=0.15)
    for bad in ({"instances": 0}, {"storage_price": "gce_local_ssd_2015"}, {"storage_gb": 375}):
        with pytest.raises(ArgumentError, match=r"instances|storage"):
            pm.cost_per_year("gce_n1_standard_1_2016", **bad)


@pytest.mark.parametrize("kind", ["standard_1", "standard_4", "standard_8", "highmem_16"])
def test_a_plan_hires_each_machine_by_the_name_of_its_price(classifier, kind):
    report = pm.plan(classifier, candidates=[f"gce_n1_{kind}_2016"], batch_size=128, samples=1e6)
    (row,) = report.rows
    assert row.step_s == pm.predict(classifier, batch_size=128, system=f"gce_n1_{kind}").step_s
    assert row.usd == pytest.approx(pm.load_price(f"gce_n1_{kind}_2016").usd_per_hour * row.hours)
    assert not any("no file says which processor" in note for note in report.notes)


@pytest.mark.parametrize(
    "cluster",
    [FOUR, {"system": "gce_n1_standard_4", "machines": 4}, {**FOUR, "device": "n1_highmem_16_skylake"}],
)
def test_a_formula_is_free_in_the_network_between_machines(classifier, cluster):
    names = ["link_bandwidth_bytes_per_s", "link_latency_s"]
    job = {"batch_size": 32, "workers": 4, "sync": "ring_all_reduce", "bucket_bytes": 1e12, **cluster}
    f = pm.formula("sync_s", graph=classifier, free=names, **job)
    assert f() == pytest.approx(pm.predict(classifier, **job).sync_s, rel=1e-9)
    ring_s = 6 * (HOP_S + 20e-6) + 1.5 * 4 * classifier.parameter_count / (WIRE / 2)
    assert f(link_bandwidth_bytes_per_s=WIRE / 2, link_latency_s=50e-6) == pytest.approx(ring_s, rel=1e-6)


def test_one_machine_has_no_link_to_be_free(classifier):
    for free in ("link_bandwidth_bytes_per_s", "link_latency_s"):
        with pytest.raises(ArgumentError, match="free must be left out on one machine without GPUs"):
            pm.formula(graph=classifier, free=free, batch_size=32, system="gce_n1_standard_4")


SYNCS = sync_names()


@pytest.mark.parametrize(
    "system", [{"system": "gce_n1_standard_4_x4", "workers": 4}, {"system": "survey_fig6", "workers": 8}]
)
@pytest.mark.parametrize("sync", SYNCS)
def test_every_synchronisation_is_the_same_played_on_processors_and_on_gpus(classifier, system, sync):
    """Synchronous ones to rounding, those that draw times within two per cent over some hundred steps."""
    options = taken({"staleness_bound": 2, "group_size": 2}, sync)
    p = pm.predict(classifier, batch_size=128, sync=sync, **system, **options)
    assert sum(p.breakdown.values()) == pytest.approx(p.step_s, rel=1e-12)
    assert p.samples_per_s == pytest.approx(system["workers"] * 128 / p.step_s)
    count = 40 if sync in SCHEMES else 1
    played_s = (p.play(4 * count, seed=3).makespan_s - p.play(count, seed=3).makespan_s) / (3 * count)
    if sync in SCHEMES:
        assert played_s == pytest.approx(p.step_s, rel=0.1)
    else:
        assert played_s == pytest.approx(p.step_s, rel=1e-9)


@pytest.mark.parametrize("sync", ["parameter_server", "downpour", "delay_compensated", "mixed"])
def test_a_session_over_machines_costs_its_calls(classifier, sync):
    """2.3 ms a step and 0.18 ms for each of six tensors, on a processor of call slowdown 0.62; 1.1 is this one's."""
    job = {"batch_size": 128, "workers": 3, "sync": sync, **FOUR, "framework": "tensorflow_1_1"}
    p = pm.predict(classifier, **job)
    calls_s = (2.3e-3 + 6 * 0.18e-3) * 1.1 / 0.62
    silent = pm.load_framework("tensorflow_1_1")
    habits = silent.exchange.model_copy(update={"server_step_us": 0.0})
    silent = silent.model_copy(update={"exchange": habits})
    without = pm.predict(classifier, **job | {"framework": silent})
    assert p.step_s - without.step_s == pytest.approx(calls_s, rel=0.2)  # and 18 operations at the server
    itself = job | {"workers": 1, "system": "gce_n1_standard_4"}  # a process each for worker and server, as was timed
    one, other = (pm.predict(classifier, **itself | {"framework": name}) for name in ("tensorflow_1_1", silent))
    assert one.step_s - other.step_s == pytest.approx(calls_s, rel=0.2)
    alone = {"batch_size": 128, "workers": 4, "sync": sync, "system": "survey_fig5"}
    one, other = (pm.predict(classifier, **alone, framework=framework) for framework in ("tensorflow_1_1", silent))
    assert one.step_s == other.step_s  # one process drives the GPUs of a machine and holds the parameters


@pytest.mark.parametrize("sync", ["ring_all_reduce", "all_reduce"])
def test_workers_are_a_symbol_on_machines_by_number_as_on_a_shipped_cluster(alexnet, sync):
    job = {
        "graph": alexnet,
        "free": ["workers"],
        "batch_size": 32,
        "framework": "pytorch_2",
        "sync": sync,
        "workers": 4,
    }
    by_number = pm.formula("step_s", system="gce_n1_standard_4", machines=4, **job)
    shipped = pm.formula("step_s", system="gce_n1_standard_4_x4", **job)
    for workers in (2, 3, 4):
        assert by_number(workers=workers) == shipped(workers=workers)


NODES = {"batch_size": 128, "framework": "tensorflow_1_1", "system": "gce_n1_standard_4"}


@pytest.mark.parametrize("sync", ["downpour", "parameter_server", "ring_all_reduce"])
def test_a_cluster_whose_step_is_mostly_exchange_is_no_surer_than_one_machine(classifier, sync):
    """Nothing was measured of exchanges between CPUs, so the interval cannot narrow as they take over the step."""
    one = pm.predict(classifier, **NODES, workers=1)
    p = pm.predict(classifier, **NODES, machines=4, workers=3, sync=sync)
    assert p.exposed_sync_s > 0.4 * p.step_s
    assert p.interval.ratio > one.interval.ratio
    assert p.interval.shares["exchange"] > 0.3
    assert p.interval.exposure.exchange_variance == pytest.approx(p.interval.exchange.variance)


def test_calls_to_a_server_and_messages_err_apart_and_are_named(classifier):
    """Calls of 6.0 of 8.6 ms: 0.3 for both timings together, 0.3 and 0.15 for the two processors' speeds."""
    p = pm.predict(classifier, **NODES, machines=4, workers=3, sync="downpour")
    calls_s = (2.3e-3 + 6 * 0.18e-3) * 1.1 / 0.62
    rows = {row.constant.rpartition("/")[2]: row for row in p.provenance}
    share = calls_s / p.step_s
    assert rows["call_slowdown"].sensitivity == pytest.approx(share, rel=0.02)
    assert rows["exchange.server_host_call_slowdown"].sensitivity == pytest.approx(-share, rel=0.02)
    of_tensor = rows["exchange.server_tensor_us"].sensitivity / rows["exchange.server_step_us"].sensitivity
    assert of_tensor == pytest.approx(6 * 0.18 / 2.3)
    messages = rows["exchange.algorithm"]
    assert messages.provenance == "estimate"
    assert messages.sensitivity == pytest.approx((p.exposed_sync_s - calls_s) / p.step_s, rel=0.2)
    variance = share**2 * (0.3**2 + 0.3**2 + 0.15**2) + (messages.sensitivity * messages.value) ** 2
    assert p.interval.exchange.variance == pytest.approx(variance, rel=0.05)
    assert sum(row.share for row in rows.values()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("sync", ["parameter_server", "downpour"])
def test_slower_calls_lengthen_a_step_by_what_they_take(classifier, sync):
    p = pm.predict(classifier, **NODES, machines=4, workers=3, sync=sync)
    prepared, timed = p.basis.prepared, p.basis.timed
    calls_s = prepared.agreement.calls.worker_s
    assert prepared.step_with_exchanges(timed, slower=1.0) == pytest.approx(p.step_s, rel=1e-12)
    longer_s = prepared.step_with_exchanges(timed, slower=1.0, calls_slower=2.0)
    assert longer_s == pytest.approx(p.step_s + calls_s, rel=1e-3)
    both_s = prepared.step_with_exchanges(timed, slower=2.0, calls_slower=2.0)
    assert both_s == pytest.approx(2 * p.step_s - (p.step_s - p.exposed_sync_s), rel=0.02)


def test_the_interval_of_a_measured_processor_widens_with_what_was_not_measured(classifier):
    alone = pm.predict(classifier, batch_size=16, device=MEASURED_CPU, system="gce_n1_standard_4", workers=1)
    ratios, shares = [alone.interval.ratio], [0.0]
    for workers in (2, 4, 8):
        where = {"system": "gce_n1_standard_4", "machines": workers + 1, "workers": workers}
        p = pm.predict(classifier, batch_size=16, device=MEASURED_CPU, sync="parameter_server", **where)
        ratios.append(p.interval.ratio)
        shares.append(p.exposed_sync_s / p.step_s)
    assert shares == sorted(shares)
    assert ratios == sorted(ratios)
    assert "exchange.algorithm" in {row.constant.rpartition("/")[2] for row in p.provenance}


@pytest.mark.parametrize("framework", ["pytorch_2", "tensorflow_1_1"])
@pytest.mark.parametrize("sync", ["parameter_server", "downpour", "delay_compensated"])
def test_one_machine_serves_itself_as_a_node_of_a_cluster_does(alexnet, sync, framework):
    job = {"batch_size": 4, "framework": framework, "optimizer": "adam", "sync": sync, "system": "gce_n1_standard_4"}
    alone, of_two = pm.predict(alexnet, **job), pm.predict(alexnet, machines=2, server_on="node0", **job)
    assert alone.step_s == of_two.step_s
    assert alone.update_s == 0  # the server updates
    assert alone.memory == of_two.memory
    assert alone.interval_s == of_two.interval_s
    assert alone.cost_usd("gce_n1_standard_4_2016") == of_two.cost_usd("gce_n1_standard_4_2016")
    assert pm.predict(alexnet, machines=1, **job).step_s == alone.step_s
    swept = pm.sweep(alexnet, **job | {"sync": ["none", sync]}, columns=["step_s"])["step_s"]
    assert list(swept) == pytest.approx([pm.predict(alexnet, **job | {"sync": "none"}).step_s, alone.step_s], rel=1e-12)


@pytest.mark.parametrize("hardware", [{"system": "gce_n1_standard_4"}, {"system": "survey_fig5"}, {"device": "t4"}])
@pytest.mark.parametrize("wrong", [{"server_on": "node9"}, {"server_on": ""}, {"server_count": 7}])
def test_one_machine_or_device_refuses_servers_that_it_has_not(classifier, hardware, wrong):
    ((name, value),) = wrong.items()
    message = rf"{name} must be [^\n]+\(got {value!r}\)"
    for sync in ("parameter_server", "downpour"):
        with pytest.raises(ArgumentError, match=message):
            pm.predict(classifier, batch_size=8, sync=sync, **hardware, **wrong)


@pytest.mark.parametrize("where", [{}, {"server_count": 2}, {"server_on": "node1"}])
def test_a_formula_of_workers_counts_the_calls_to_tensorflow_servers(classifier, where):
    job = {"batch_size": 128, "framework": "tensorflow_1_1", "system": "gce_n1_standard_4", "machines": 4, **where}
    job |= {"sync": "parameter_server"}
    step = pm.formula("step_s", graph=classifier, workers=2, free="workers", **job)
    steps = [pm.predict(classifier, workers=count, **job).step_s for count in (1, 2, 3, 4)]
    assert [float(step(workers=count)) for count in (1, 2, 3, 4)] == pytest.approx(steps, rel=1e-9)


@pytest.mark.parametrize(("workers", "machines"), [(3, 4), (4, 4)])
def test_a_number_pays_for_the_machines_that_a_price_by_name_pays_for(classifier, workers, machines):
    job = {"batch_size": 128, "sync": "parameter_server"}
    p = pm.predict(classifier, workers=workers, **job, **FOUR)
    rates = [p.cost_usd(price) / p.step_s * 3600 for price in (0.19, "gce_n1_standard_4_2016")]
    assert rates == pytest.approx([0.19 * machines] * 2)
    assert p.energy_j() / p.step_s == pytest.approx(machines * pm.load_device("n1_standard_4_skylake").tdp_w)
    names = ("n1_standard_4_skylake", "gce_n1_standard_4", "gce_n1_standard_4_x4")
    for prices in ({}, {"usd_per_hour": 0.19}, *({"usd_per_hour": {name: 0.19}} for name in names)):
        s = pm.sweep(classifier, workers=workers, **job, **FOUR, columns=["epoch_s", "usd_per_epoch"], **prices)
        assert s["usd_per_epoch"] / s["epoch_s"] * 3600 == pytest.approx(0.19 * machines)
    candidates = [{"price": price, "workers": workers, **FOUR} for price in (0.19, "gce_n1_standard_4_2016")]
    plan = pm.plan(classifier, candidates=candidates, dataset_size=60_000, epochs=1, deadline_hours=1, **job)
    own, listed = plan.rows
    assert (own.instances, own.usd) == (listed.instances, pytest.approx(listed.usd))
    assert not re.search(r"\b0\.00 (to|USD)", str(plan))  # USD of a small job have digits


def test_a_sweep_finds_the_price_of_a_machine_by_its_system(classifier):
    systems = [f"gce_n1_{kind}" for kind in ("standard_1", "standard_4", "standard_8", "highmem_16")]
    s = pm.sweep(classifier, batch_size=128, system=systems, columns=["epoch_s", "usd_per_epoch"])
    paid = [pm.load_price(f"{name}_2016").usd_per_hour for name in systems]
    assert s["usd_per_epoch"] / s["epoch_s"] * 3600 == pytest.approx(paid)


@pytest.mark.parametrize("device", ["n1_standard_8_skylake", "measured"])
def test_a_plan_puts_a_device_into_the_slots_of_a_system_as_predict_does(classifier, device):
    if device == "measured":
        device = pm.load_calibration(MEASURED_CPU)
    kind, job = "gce_n1_standard_4", {"batch_size": 32, "sync": "parameter_server"}
    candidates = [
        {"price": 0.19, "system": "gce_n1_standard_4_x4", "device": device, "workers": 3},
        {"price": 0.19, "system": "gce_n1_standard_4_x4", "workers": 3},  # the same but for the device
        {"price": 0.19, "system": kind, "machines": (2, 4), "device": device, "workers": 2},
    ]
    if not isinstance(device, str):  # the price of an instance is not that of another data sheet
        candidates.append({"price": "n1-standard-4", "machines": 4, "device": device})
    plan = pm.plan(classifier, candidates=candidates, dataset_size=60_000, epochs=1, **job)
    on = [{**FOUR}, {"system": kind, "machines": 2}, {"system": kind, "machines": 4}, {**FOUR}]
    workers = (3, 2, 2, 4)
    rows = [row for row in plan.rows if "with" in row.candidate]
    assert len(rows) == len(plan.rows) - 1
    for row, hardware, count in zip(rows, on, workers, strict=False):
        p = pm.predict(classifier, device=device, workers=count, **hardware, **job)
        assert (row.step_s, row.workers) == (p.step_s, count)
        assert row.usd == pytest.approx(0.19 * row.hours * row.instances)
    assert rows[0].step_s != plan.rows[1].step_s


SERVED = """
schema_version = 1
name = "three n1-standard-8 and a larger machine to serve them"
[[node]]
system = "gce_n1_standard_8"
count = 3
[server]
system = "gce_n1_highmem_16"
[fabric]
link = "gce_network_2017_x8"
hop_latency_us = 120.0
[[source]]
fields = ["node", "fabric", "server"]
title = "this test"
provenance = "estimate"
"""


@pytest.mark.parametrize("sync", ["parameter_server", "downpour"])
def test_a_server_stands_on_the_machine_that_the_file_states_for_it_before_idle_ones(alexnet, tmp_path, sync):
    path = tmp_path / "served.toml"
    path.write_text(SERVED)
    job = {"batch_size": 32, "system": path, "sync": sync}

    def steps(**where):
        return [pm.predict(alexnet, workers=count, **job, **where).step_s for count in (1, 2, 3)]

    assert steps() == steps(server_on="server")
    assert steps()[1] < steps(server_on="node2")[1]  # two workers leave node2 idle, which has half the cores
    both = pm.predict(alexnet, workers=2, server_count=2, **job)
    assert both.agreement.server.machines == ("server", "node2")
    if sync == "parameter_server":  # a formula of asynchronous workers is not free in their number
        free = pm.formula("step_s", graph=alexnet, workers=2, free="workers", **job)
        assert [float(free(workers=count)) for count in (1, 2, 3)] == pytest.approx(steps(), rel=1e-9)


@pytest.mark.parametrize("device", [{}, {"device": MEASURED_CPU}])
def test_advice_tries_in_sockets_what_fits_them_and_one_more_machine(classifier, device):
    job = {"batch_size": 128, "workers": 4, **FOUR, **device}
    advice = pm.advise(classifier, kinds=["device", "workers"], **job)
    assert len(advice.rejected) == 0  # no GPU stands in a socket
    own = set() if device else {"n1_standard_4_skylake"}
    cpus = {name for name in pm.catalogue().names("device") if pm.load_device(name).kind == "cpu"} - own
    assert {row.changes["device"] for row in advice.rows if row.kind == "device"} == cpus
    (more,) = [row for row in advice.rows if row.kind == "workers"]
    assert more.changes == {"machines": 5, "workers": 5}
    for row in advice.rows:
        assert row.step_s == pm.predict(classifier, **advice.arguments_with(row)).step_s
