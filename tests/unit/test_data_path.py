"""The way of mini-batches to the devices: what predict() says of it, and what it refuses."""

import doctest
import json
import math
import os
import re
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import perfmodel as pm
from perfmodel.errors import ArgumentError, PerfmodelError, UnknownNameError
from perfmodel.hardware import spec_files

JOB = {"batch_size": 32, "sync": "none", "dataset": "imagenet_jpeg"}


@pytest.fixture(scope="module")
def resnet():
    return pm.zoo.resnet50()


@pytest.fixture(scope="module")
def decoding(resnet):
    return pm.predict(resnet, system="survey_fig5", workers=4, **JOB)


def test_parts_sum_and_decoding_is_what_waits(resnet, decoding):
    assert sum(decoding.breakdown.values()) == pytest.approx(decoding.step_s, rel=1e-12)
    assert decoding.step_s == pytest.approx(4 * 32 / (4 * 100))  # four cores of 100 images a second
    alone = pm.predict(resnet, batch_size=32, system="survey_fig5")
    assert decoding.input_wait_s == pytest.approx(decoding.step_s - alone.step_s)
    assert decoding.bottleneck == "decode"  # though each of two parts of computing is nearly as long
    assert decoding.samples_per_s == pytest.approx(400)
    assert decoding.epoch_s(dataset_size=1_281_167) == pytest.approx(math.ceil(1_281_167 / 128) * decoding.step_s)


def cores_that_keep_up(graph):
    """Cores of 100 images a second each that decode what four cards take."""
    return math.ceil(4 * pm.predict(graph, batch_size=32, system="survey_fig5").samples_per_s / 100)


def test_it_says_what_would_unbind_it_and_how_many_workers_help(resnet, decoding):
    text = " ".join(decoding.explain().split())
    assert f"With {cores_that_keep_up(resnet)} cores instead of 4, decoding would keep up with the devices." in text
    assert (
        "More than 3 workers make an epoch no shorter on this system, not by one per cent: decoding bounds them."
        in text
    )
    assert "runs at pcie_3_x16 in a slot of pcie_4_x16" in text


def test_the_named_count_is_where_the_epoch_stops_getting_shorter(resnet):
    epochs = [
        pm.predict(resnet, system="survey_fig5", workers=workers, **JOB).epoch_s(dataset_size=12_800_000)
        for workers in (1, 2, 3, 4)
    ]
    assert epochs[0] > epochs[1] > epochs[2] == pytest.approx(epochs[3], rel=1e-4)


def test_each_host_decodes_for_its_own_workers(resnet):
    """Node 1's idle cores are of no use to the four workers of node 0."""
    four, five, all_of_them = (
        pm.predict(resnet, system="survey_fig6", workers=workers, **JOB) for workers in (4, 5, 16)
    )
    assert four.step_s == pytest.approx(0.32)
    assert five.step_s == pytest.approx(0.32)
    assert all_of_them.samples_per_s == pytest.approx(1600)
    assert period(five, step_count=8) == pytest.approx(0.32)
    assert "With all of its 16 devices an epoch is shortest." in " ".join(five.explain().split())


@pytest.mark.parametrize(("system", "sockets"), [("survey_fig5", 1), ("dgx_1_p100", 2), ("survey_fig6", 1)])
def test_copies_in_host_memory_run_at_what_its_buses_carry(resnet, system, sockets):
    path = pm.predict(resnet, system=system, workers=2, **JOB).data_path
    channels = pm.load_system(system).topology.channels
    node = "node0/" if system == "survey_fig6" else ""
    buses = [channels[f"{node}memory{n}={node}socket{n}"].capacity_bytes_per_s for n in range(sockets)]
    assert path.hosts[0].memory_bytes_per_s == pytest.approx(sum(buses))
    assert path.stages(32)["host_copy"] == pytest.approx(2 * 32 * 3 * 224 * 224 * 3 / sum(buses))


def test_a_root_that_is_full_is_named():
    graph = pm.LayerGraph("wide", input_shape=(150_528,))
    x = graph.add("scores", pm.layers.Dense(units=10), inputs=graph.input)
    graph.add("loss", pm.layers.CrossEntropy(), inputs=x)
    p = pm.predict(graph, batch_size=256, system="p2_16xlarge", workers=16, sync="none", phase="forward")
    text = " ".join(p.explain().split())
    assert "More than 1 worker make an epoch no shorter" in text
    assert "copies to the devices bound them" in text
    assert "lanes for each device" not in text  # no number of lanes of a device helps behind a full root


def test_advice_on_a_cluster_says_that_each_host_needs_it(resnet):
    text = " ".join(pm.predict(resnet, system="survey_fig6", workers=16, **JOB).explain().split())
    cores = f"With {cores_that_keep_up(resnet)} cores of each host instead of 4"
    assert f"{cores}, decoding would keep up with the devices." in text


def test_what_lies_in_memory_is_neither_read_nor_decoded(resnet):
    p = pm.predict(resnet, system="survey_fig5", workers=4, input_from="memory", **JOB)
    assert p.data_path.stages(32)["decode"] == p.data_path.stages(32)["read"] == 0
    assert p.input_wait_s == 0
    assert "first epoch" not in p.explain()


@pytest.mark.parametrize(
    "changed",
    [
        {"encoded_bytes_per_example": 0},
        {"encoded_bytes_per_example": math.nan},
        {"example_count": 0},
        {"decode_rate_per_core": 0},
        {"decode_rate_per_core": -1},
        {"decoded_shape": (0,)},
        {"decoded_dtype": "x"},
    ],
)
def test_a_changed_copy_of_a_data_set_is_checked(changed):
    with pytest.raises(PerfmodelError, match=next(iter(changed))):
        replace(pm.load_dataset("imagenet_jpeg"), **changed)


def test_files_of_the_data_path_are_among_the_sources(decoding):
    assert {"ImageNet (ILSVRC 2012), JPEG", "Samsung 960 PRO 1 TB"} <= {spec.name for spec in decoding.sources}


def test_the_rate_of_decoding_is_an_uncertain_constant(resnet, decoding):
    alone = pm.predict(resnet, batch_size=32, system="survey_fig5")
    row = next(row for row in decoding.provenance if row.constant == "datasets/imagenet_jpeg/decode_rate_per_core")
    assert row.sensitivity == pytest.approx(-1, abs=0.02)
    assert (row.provenance, row.unit, row.value) == ("estimate", "samples/s", 100)
    assert row.share > 0.9
    assert decoding.interval.ratio > alone.interval.ratio
    assert not [row for row in alone.provenance if row.constant.startswith("datasets")]


def test_examples_that_do_not_fit_the_network_are_told(resnet):
    p = pm.predict(resnet, batch_size=32, system="survey_fig5", dataset="mnist")
    assert any("784 values" in remark and "150,528" in remark for remark in p.remarks)


def test_more_cores_or_none_to_decode_unbind_it(resnet, decoding):
    raw = pm.predict(resnet, system="survey_fig5", workers=4, **(JOB | {"dataset": "imagenet_raw"}))
    assert raw.input_wait_s == 0
    assert raw.bottleneck != "decode"
    fewer = pm.predict(resnet, system="survey_fig5", workers=4, decode_cores=2, **JOB)
    assert fewer.step_s == pytest.approx(2 * decoding.step_s)


def test_without_prefetching_everything_waits_in_turn(resnet):
    ahead, turn = (pm.predict(resnet, system="survey_fig5", workers=2, prefetch=prefetch, **JOB) for prefetch in (1, 0))
    stages = turn.data_path.stages(32)
    assert turn.input_wait_s == pytest.approx(sum(stages.values()))
    assert turn.exposed_transfer_s > 0 == ahead.exposed_transfer_s
    assert turn.step_s > ahead.step_s + 0.1


def test_a_small_data_set_is_read_once(resnet):
    lenet = pm.zoo.lenet5()
    warm = pm.predict(lenet, batch_size=64, system="survey_fig5", dataset="mnist")
    assert warm.data_path.is_cached
    assert warm.data_path.stages(64)["read"] == 0
    assert warm.data_path.stages(64, first_epoch=True)["read"] > 0
    assert "only the first epoch reads it" in " ".join(warm.explain().split())
    big = pm.predict(resnet, system="survey_fig5", **JOB)
    assert not big.data_path.is_cached


def test_a_slow_disk_bounds_as_storage(resnet):
    disk = pm.load_storage("gce_pd_ssd").of_size(20)
    p = pm.predict(resnet, batch_size=32, device="gtx_1080", dataset="imagenet_raw", input_from=disk)
    assert p.bottleneck == "storage"
    per_example = pm.load_dataset("imagenet_raw").encoded_bytes_per_example
    assert p.samples_per_s == pytest.approx(disk.read_bandwidth_bytes_per_s / per_example, rel=0.05)


@pytest.mark.parametrize(("system", "readers"), [("dgx_1_p100", (1, 2, 4, 8)), ("p2_16xlarge", (1, 4, 8, 16))])
def test_host_bandwidth_of_a_reader_falls_where_the_wiring_says(system, readers):
    from perfmodel.prediction.device.system_part import SystemPart

    rates = [SystemPart(system=pm.load_system(system), worker_count=count).copy_bytes_per_s for count in readers]
    assert all(rate >= after * (1 - 1e-12) for rate, after in pairwise(rates))
    assert rates[0] > 1.5 * rates[-1]
    if system == "dgx_1_p100":  # the second hangs off the switch of the first
        assert rates[1] < 0.8 * rates[0]


def test_workers_share_the_way_to_them(resnet):
    """Copies that cannot hide: what is not fetched ahead feels its sisters."""
    alone, crowd = (
        pm.predict(
            pm.zoo.alexnet(),
            batch_size=64,
            system="dgx_1_p100",
            workers=workers,
            sync="none",
            prefetch=0,
        )
        for workers in (1, 8)
    )
    assert crowd.transfer_s > 1.5 * alone.transfer_s
    assert crowd.compute_s == alone.compute_s


@pytest.mark.parametrize("prefetch", [0, 1, 2])
@pytest.mark.parametrize("framework", ["generic", "caffe_1_0_rc3", "tensorflow_0_9"])
@pytest.mark.parametrize(("system", "workers"), [("survey_fig5", 1), ("survey_fig5", 4), ("survey_fig6", 16)])
def test_played_steps_take_what_the_closed_form_says(resnet, system, workers, framework, prefetch):
    p = pm.predict(resnet, system=system, workers=workers, framework=framework, prefetch=prefetch, **JOB)
    assert period(p, step_count=10) == pytest.approx(p.step_s, rel=1e-9)


def period(prediction, *, step_count):
    """Steady time of a step, from the ends of the computing of each worker."""
    timeline = prediction.play(step_count)
    ends = {}
    for span in timeline.spans:
        if span.kind == "compute":
            ends.setdefault(span.resource, []).append(span.end_s)
    assert len(ends) == prediction.worker_count
    return max((end[-1] - end[3]) / (len(end) - 4) for end in ends.values())


def dataset_that_takes(seconds, *, workers=1):
    """Images that the four cores of the machine decode in that time per step."""
    images = pm.load_dataset("imagenet_jpeg")
    return replace(images, file=None, decode_rate_per_core=workers * JOB["batch_size"] / (4 * seconds))


def varying_cases():
    """Return job, depth and spread: every pair of two of the three; ``PERFMODEL_FULL_WALK=1`` every three."""
    jobs = [("generic", 1), ("caffe_1_0_rc3", 2), ("tensorflow_0_9", 2)]
    ratios_and_variations = [(0.8, 1.0), (1.0, 0.5), (1.0, 1.0)]
    places = product(enumerate(jobs), enumerate((0, 1, 4)), enumerate(ratios_and_variations))
    full = bool(os.environ.get("PERFMODEL_FULL_WALK"))
    return [(*job, depth, *spread) for (i, job), (j, depth), (k, spread) in places if full or (i + j + k) % 3 == 0]


@pytest.mark.parametrize(("framework", "workers", "prefetch", "ratio", "variation"), varying_cases())
def test_played_steps_that_vary_take_what_the_closed_form_says(resnet, framework, workers, prefetch, ratio, variation):
    """Through all stages and their buffers; a closed form with ``prefetch`` alone would be 25 % off at depth 1."""
    job = {"system": "survey_fig5", "framework": framework, "workers": workers, "prefetch": prefetch} | JOB
    steady_s = pm.predict(resnet, **job | {"prefetch": 1}).step_s
    job["dataset"] = dataset_that_takes(ratio * steady_s, workers=workers)
    p = pm.predict(resnet, input_variation=variation, **job)
    # 2,000 times that vary by 1 have a mean that varies by 2.2 %, by 0.5 one of 1.1 %
    assert period(p, step_count=2000) == pytest.approx(p.step_s, rel=0.012 + 2 * variation * 0.022 * ratio)
    without = pm.predict(resnet, **job)
    assert p.bottleneck == without.bottleneck
    if prefetch == 0:
        assert p.step_s == without.step_s
    elif ratio == 1.0:
        assert p.step_s > without.step_s * 1.009


def test_depth_matters_where_times_vary_and_nowhere_else(resnet):
    job = {"system": "survey_fig5", "framework": "tensorflow_0_9"} | JOB
    device_s = pm.predict(resnet, **job).step_s
    job["dataset"] = dataset_that_takes(device_s)

    def steps(variation):
        return [
            pm.predict(resnet, prefetch=prefetch, input_variation=variation, **job).step_s for prefetch in (1, 2, 4, 64)
        ]

    assert steps(0.0) == [pm.predict(resnet, **job).step_s] * 4
    shallow, *others = steps(1.0)
    assert shallow > others[0] * 1.02 > others[1] * 1.04 > others[2] * 1.06
    assert others[2] == pytest.approx(device_s, rel=0.01)
    assert all(more > less for more, less in zip(steps(1.0), steps(0.5), strict=True))


def test_it_says_what_varying_costs_and_which_depth_makes_up_for_it(resnet):
    job = {"system": "survey_fig5", "framework": "tensorflow_0_9", "input_variation": 1.0} | JOB
    steady_s = pm.predict(resnet, **job | {"input_variation": 0.0}).step_s
    job["dataset"] = dataset_that_takes(steady_s)
    p = pm.predict(resnet, **job)

    def words(**change):
        return " ".join(pm.predict(resnet, **job | change).explain().split())

    told = re.search(
        r"varies by 100 %; with 1 fetched ahead that makes steps (\S+) % longer, from prefetch=(\d+) on it is less "
        r"than 1 %\.",
        words(),
    )
    assert float(told[1]) == pytest.approx(100 * (p.step_s / steady_s - 1), abs=0.06)
    enough = int(told[2])
    costs = [pm.predict(resnet, prefetch=ahead, **job).step_s / steady_s - 1 for ahead in (enough - 1, enough)]
    assert costs[0] > 0.01 > costs[1]
    assert "varies by 100 %, which costs nothing on average" in words(prefetch=0)
    assert "varies by" not in words(input_variation=0.0)


def test_a_seed_draws_the_same_steps_and_another_seed_others(resnet):
    p = pm.predict(resnet, system="survey_fig5", input_variation=0.5, **JOB)
    spans = [p.play(5, seed=seed).spans for seed in (0, 0, 1)]
    assert spans[0] == spans[1] == p.play(5).spans != spans[2]
    decoding = [[span.end_s - span.start_s for span in spans[0] if span.kind == kind] for kind in ("decode", "read")]
    assert len({round(seconds, 12) for seconds in decoding[0]}) == 5
    assert decoding[1] == pytest.approx([decoding[1][0]] * 5)  # only the slowest stage varies
    with pytest.raises(ArgumentError, match="seed"):
        p.play(5, seed=-1)


def test_the_first_epoch_of_a_data_set_in_memory_waits_no_less_than_others(resnet):
    small = replace(dataset_that_takes(1.0), example_count=50_000)
    p = pm.predict(resnet, system="survey_fig5", **JOB | {"dataset": small})
    assert p.data_path.is_cached
    assert p.step_s == pytest.approx(1.0)
    assert "only the first epoch reads it; a step takes 1.000 s then" in " ".join(p.explain().split())


def test_what_the_page_shows_is_so():
    page = Path(__file__).parents[2] / "docs" / "data_path.md"
    outcome = doctest.testfile(str(page), module_relative=False)
    assert outcome.attempted >= 3
    assert outcome.failed == 0


def test_where_flows_contend_unequally_the_closed_form_gives_the_slowest(resnet):
    """Three of a DGX-1: two behind one switch, one alone; the closed form gives all of them the pair's time."""
    job = {"batch_size": 64, "sync": "none", "framework": "caffe_1_0_rc3", "prefetch": 0}
    p = pm.predict(pm.zoo.alexnet(), system="dgx_1_p100", workers=3, **job)
    assert period(p, step_count=8) <= p.step_s * (1 + 1e-9)


def test_a_timeline_is_saved_and_drawn(decoding, tmp_path):
    path = tmp_path / "step.trace.json"
    decoding.timeline.save(path)
    events = json.loads(path.read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    assert {event["cat"] for event in events if event.get("ph") == "X"} >= {"decode", "compute", "transfer", "read"}
    decoding.plot_timeline(tmp_path / "step.png")
    assert (tmp_path / "step.png").stat().st_size > 10_000
    cpu = pm.predict(pm.zoo.lenet5(), batch_size=8, device="i7_3820")
    assert cpu.timeline.makespan_s == pytest.approx(4 * cpu.step_s, rel=1e-6)


def test_a_drawn_timeline_says_whose_it_is_and_shows_every_bar(resnet):
    p = pm.predict(resnet, system="survey_fig5", prefetch=0, **JOB)
    figure = p.plot_timeline()
    assert p.subject in figure.get_suptitle()
    assert "Survey, one CPU with four GTX 1080" in figure.get_suptitle()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    axes, pixels = figure.axes[0], np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
    lane = [label.get_text() for label in axes.get_yticklabels()].index("host copies")
    (left, height), (right, _) = axes.transData.transform([(0, lane), (axes.get_xlim()[1], lane)])
    row = pixels[len(pixels) - 1 - round(height), round(left) : round(right) + 1]
    coloured = (row.max(axis=1) - row.min(axis=1)) > 60  # grid lines and paper are grey
    copies = [span for span in p.timeline.spans if span.kind == "host_copy"]
    assert len(copies) == 4
    assert copies[0].end_s - copies[0].flow_start_s < p.timeline.makespan_s / 1500  # less than a pixel
    assert np.diff(coloured.astype(int), prepend=0).clip(min=0).sum() == 4


def test_a_float_without_fraction_is_a_whole_number_of_workers_steps_and_mini_batches(resnet):
    job = {"system": "survey_fig5", "sync": "none", "dataset": "imagenet_jpeg", "global_batch_size": 64}
    ints, floats = (pm.predict(resnet, workers=n, prefetch=n, **job) for n in (2, 2.0))
    assert floats.to_dict() == ints.to_dict()
    assert isinstance(floats.batch_size, int)
    assert floats.play(2.0).makespan_s == ints.play(2).makespan_s


def test_global_batches_are_split(resnet):
    split = pm.predict(resnet, global_batch_size=128, system="survey_fig5", workers=4, sync="none")
    assert split.batch_size == 32
    with pytest.raises(ArgumentError, match="multiple of the 4 workers"):
        pm.predict(resnet, global_batch_size=130, system="survey_fig5", workers=4, sync="none")


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"workers": 5}, ArgumentError, "from 1 to 4"),
        ({"workers": 0}, ArgumentError, "workers"),
        ({"dataset": "imagnet_jpeg"}, UnknownNameError, "imagenet_jpeg"),
        ({"input_from": "ssd9"}, UnknownNameError, "ssd0"),
        ({"dataset": None, "input_from": "ssd0"}, ArgumentError, "without a dataset"),
        ({"dataset": None, "decode_cores": 2}, ArgumentError, "without a dataset"),
        ({"decode_cores": 5}, ArgumentError, "from 1 to 4"),
        ({"prefetch": -1}, ArgumentError, ">= 0"),
        ({"prefetch": True}, ArgumentError, ">= 0"),
        ({"prefetch": 1.5}, ArgumentError, "prefetch must be a whole number >= 0"),
        ({"workers": 1.5}, ArgumentError, "workers must be a whole number >= 1"),
        ({"dataset": 5}, ArgumentError, "dataset must be a name, a path to a .toml file, or a Dataset"),
        ({"input_from": 5}, ArgumentError, "input_from must be the name of a storage of the system, the name or"),
        ({"sync": "nope"}, UnknownNameError, "unknown sync 'nope'. Did you mean 'none'?"),
        ({"sync": "ring_allreduce"}, UnknownNameError, "Did you mean 'ring_all_reduce'?"),
        ({"sync": "tree_all_reduce"}, UnknownNameError, "unknown sync 'tree_all_reduce'"),
        ({"input_variation": -0.1}, ArgumentError, "input_variation must be a number from 0 to 2"),
        ({"input_variation": math.inf}, ArgumentError, "from 0 to 2"),
        ({"input_variation": True}, ArgumentError, "from 0 to 2"),
        (
            {"dataset": None, "input_variation": 0.5},
            ArgumentError,
            r"input_variation must.*without a dataset.*\(got 0.5",
        ),
        ({"threads": 4}, ArgumentError, "left out for the GPUs"),
        ({"system": None, "device": "gtx_1080", "workers": 2}, ArgumentError, "pass system="),
        ({"system": None, "device": "gtx_1080", "decode_cores": 2}, ArgumentError, "input_from"),
        ({"system": None, "device": "gtx_1080", "input_from": "samsung_960_pro"}, ArgumentError, "decode_cores"),
        ({"system": None, "device": "i7_3820"}, ArgumentError, "pass system="),
        ({"system": "shi2016_desktop", "workers": 2}, ArgumentError, "alike"),
        ({"system": "desktop_i7_3820"}, ArgumentError, "lists no storage of its own|input_from"),
    ],
)
def test_what_cannot_be_is_refused(resnet, given, error, told):
    with pytest.raises(error, match=told):
        pm.predict(resnet, **({"system": "survey_fig5"} | JOB | given))


def test_a_run_of_a_table_takes_a_system_like_a_network_does():
    run = next(run for run in pm.measurements.load("shi2016").runs if "alexnet" in run.network)
    alone = pm.predict(run, device="gtx_1080")
    one = pm.predict(run, system="survey_fig5")
    assert one.step_s == pytest.approx(alone.step_s, rel=1e-9)
    four = pm.predict(run, system="survey_fig5", workers=4, sync="none", dataset="imagenet_jpeg")
    assert four.step_s == pytest.approx(4 * run.batch_size / 400)  # four cores decode for all
    assert four.bottleneck == "decode"
    with pytest.raises(ArgumentError, match="workers"):
        pm.predict(run, system="survey_fig5", workers=5, sync="none")


def read_rate_of(workers, storage, dataset="imagenet_jpeg", system="survey_fig6"):
    p = pm.predict(
        pm.zoo.alexnet(),
        batch_size=64,
        system=system,
        workers=workers,
        sync="none",
        dataset=dataset,
        input_from=storage,
    )
    return p.data_path.read_bytes_per_s / workers


def test_each_host_has_connections_of_its_own_to_an_object_store():
    """A worker on another host takes nothing from the first one's connections, and gives them none."""
    store = pm.load_storage("object_store")
    seconds = store.latency_s + 110e3 / 75e6
    of_host = store.connection_count * pm.load_dataset("imagenet_jpeg").encoded_bytes_per_example / seconds
    rates = [read_rate_of(workers, "object_store") for workers in (1, 4, 5, 8, 9, 16)]
    assert rates == pytest.approx([of_host, *[of_host / 4] * 5], rel=1e-3)


def test_files_are_read_at_random_and_shards_from_end_to_end(tmp_path):
    disk = pm.load_storage("hdd_7200_rpm")
    jpeg = pm.load_dataset("imagenet_jpeg")
    assert read_rate_of(1, "hdd_7200_rpm") == pytest.approx(disk.random_reads_per_s * jpeg.encoded_bytes_per_example)
    shards = replace(jpeg, stored_in="shards")
    assert read_rate_of(1, "hdd_7200_rpm", shards) == pytest.approx(disk.read_bandwidth_bytes_per_s)
    wired = spec_files.find("systems", "survey_fig5").read_text(encoding="utf-8")
    wired = re.sub(r'drive = "samsung_960_pro"', 'drive = "hdd_7200_rpm"', wired)
    path = tmp_path / "slow.toml"
    path.write_text(wired, encoding="utf-8")
    for data in (jpeg, shards):  # the same drive, whether the system names it or the caller
        inside = read_rate_of(1, None, data, system=path)
        assert inside == pytest.approx(read_rate_of(1, "hdd_7200_rpm", data, system=path))


def test_a_data_set_that_leaves_no_memory_is_read_every_epoch():
    memory = pm.load_system("survey_fig5").memory_capacity_bytes
    for share, is_cached in ((0.89, True), (0.91, False), (0.999, False)):
        size = int(share * memory / 1000)
        data = pm.Dataset(name="scans", example_count=1000, encoded_bytes_per_example=size, decoded_shape=(size,))
        p = pm.predict(pm.zoo.alexnet(), batch_size=8, system="survey_fig5", dataset=data)
        assert p.data_path.is_cached is is_cached


def test_no_more_than_two_mini_batches_are_on_the_device(resnet):
    p = pm.predict(resnet, system="survey_fig5", workers=1, **{**JOB, "prefetch": 16})
    spans = {(span.kind, int(span.task.rsplit("/", 1)[1])): span for span in p.play(40).spans}
    for step in range(2, 40):
        assert spans["transfer", step].start_s >= spans["compute", step - 2].end_s - 1e-12
    assert p.memory.input_bytes == pytest.approx(2 * 32 * 4 * (224 * 224 * 3 + 1))


def test_explain_says_where_a_second_stage_is_nearly_as_slow(resnet):
    data = replace(pm.load_dataset("imagenet_jpeg"), stored_in="shards", encoded_bytes_per_example=0.9 * 3.5e9 / 400)
    common = {**JOB, "dataset": data, "system": "survey_fig5", "workers": 4}
    said = " ".join(pm.predict(resnet, input_variation=0.5, **common).explain().split())
    assert "What is slowest there is decoding; reading reaches 90.0 % of it" in said
    assert "reading reaches" not in pm.predict(resnet, **common).explain()


@pytest.mark.parametrize("variation", [-0.1, 2.1, math.nan, math.inf, True])
def test_variations_beyond_what_was_held_against_played_steps_are_refused(resnet, variation):
    with pytest.raises(ArgumentError, match="input_variation"):
        pm.predict(resnet, system="survey_fig5", input_variation=variation, **JOB)
