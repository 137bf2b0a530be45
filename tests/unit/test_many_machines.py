"""Many machines: rings per adapter, switches that add, machines that stand for others, sharded training."""

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.library import load_collective_library
from perfmodel.hardware.topology import Topology
from perfmodel.parallelism.units import sharded_units
from perfmodel.sync.base import Collective
from perfmodel.sync.placed import place
from perfmodel.sync.registry import collective, place_library
from perfmodel.sync.ring_order import RINGS_TRIED, _disjoint_rings, ring_starts
from perfmodel.validation.reports.clusters import with_adapters

NCCL = "nccl_2_27"
PLACE = {"framework": "pytorch_2", "dtype": "bf16", "optimizer": "adam", "sync": "all_reduce"}


def bus_gb_per_s(system, operation, count, size_bytes):
    topology = system.topology
    call = place_library(load_collective_library(NCCL), operation, topology, topology.devices()[:count])
    passes = 2 if operation == "all_reduce" else 1
    return passes * (count - 1) / count * size_bytes / float(call.time(size_bytes)) / 1e9


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("machines", [3, 8])
def test_bandwidth_grows_with_adapters_until_nvlink_bounds_it(operation, machines):
    whole = load_system("dgx_a100", machines=machines)
    count = 8 * machines
    rates = [bus_gb_per_s(with_adapters(whole, adapters), operation, count, 1e9) for adapters in (1, 2, 4)]
    rates.append(bus_gb_per_s(whole, operation, count, 1e9))
    for fewer, more in itertools.pairwise(rates):
        assert 1.7 < more / fewer < 2.1
    inside = bus_gb_per_s(load_system("dgx_a100"), operation, 8, 1e9)
    assert 0.6 * inside < rates[-1] < inside


@pytest.mark.parametrize(
    "how",
    [
        {"workers": 16384, "shard_stage": 3},
        {"workers": 2048, "parallelism": "tensor", "tensor_size": 8, "sequence_parallel": True},
    ],
    ids=["sharded", "tensor"],
)
def test_what_each_of_16384_devices_sends_is_told_without_making_their_messages(how, monkeypatch):
    """A ring of all of them has 16,384 messages a round; three machines of eight stand for them all."""
    made = []
    rounds = Collective.rounds

    def counting(algorithm, worker_count, **options):
        made.append(worker_count)
        return rounds(algorithm, worker_count, **options)

    p = pm.predict(
        pm.zoo.gpt(layers=2, width=256, heads=8, sequence_length=64),
        batch_size=1,
        system="dgx_h100",
        machines=2048,
        **(PLACE | how),
    )
    monkeypatch.setattr(Collective, "rounds", counting)
    sent = [row.sent_bytes for row in p.stages]
    p.explain()
    assert made == [] or max(made) <= 64
    assert sent
    assert min(sent) > 0


def test_adapters_of_a_machine_are_looked_up_once_for_all_its_devices(monkeypatch):
    system = load_system("gb200_nvl72", machines=2)
    topology = Topology(system.wiring.places, system.wiring.wires)
    asked = []
    root = Topology.root_complex
    monkeypatch.setattr(Topology, "root_complex", lambda self, name: asked.append(name) or root(self, name))
    devices = topology.devices()
    adapters = {topology.own_nic(device) for device in devices}
    assert len(adapters) == len(devices) == 144
    assert len(asked) <= 2 * len(devices)  # of a machine, each of 72 devices asked each of 72 adapters before


def test_each_ring_enters_and_leaves_every_machine_by_another_adapter():
    topology = load_system("dgx_h100", machines=3).topology
    tour = topology.devices()
    rings = ring_starts(topology, tour).tolist()
    assert len(rings) == 8
    for direction in (0, 1):
        used = set()
        for ring in rings:
            assert sorted(ring) == list(range(24))
            for one, other in zip(ring, (*ring[1:], ring[0]), strict=True):
                ends = tour[one], tour[other]
                if topology.places[ends[0]].node != topology.places[ends[1]].node:
                    used.add(topology.own_nic(ends[direction]))
        assert len(used) == 24


@pytest.mark.parametrize("name", ["dgx_h100", "survey_fig5", "k80_card"])
def test_devices_on_one_switch_or_root_have_one_ring(name):
    topology = load_system(name).topology
    devices = topology.devices()
    assert ring_starts(topology, devices).tolist() == [list(range(len(devices)))]


@pytest.mark.parametrize(("name", "count"), [("dgx_1_p100", 4), ("aws_p3_16xlarge", 6), ("aws_p3_8xlarge", 4)])
def test_rings_over_direct_links_use_each_lane_once(name, count):
    topology = load_system(name).topology
    devices = topology.devices()
    rings = ring_starts(topology, devices).tolist()
    assert len(rings) == count
    used = Counter(pair for ring in rings for pair in itertools.pairwise([*ring, ring[0]]))
    narrowest = min(topology.route(devices[one], devices[other]).capacity_bytes_per_s for one, other in used)
    for (one, other), lanes in used.items():
        route = topology.route(devices[one], devices[other])
        assert route.nodes == (devices[one], devices[other])
        assert lanes * narrowest <= route.capacity_bytes_per_s * (1 + 1e-12)
    ring = place(collective("ring_all_reduce"), topology, devices)
    workers = len(devices)
    assert ring.seconds_per_byte == pytest.approx(2 * (workers - 1) / workers / count / narrowest)


def test_copies_through_the_host_have_one_ring():
    topology = load_system("dgx_1_p100").topology
    assert len(ring_starts(topology, topology.devices(), through_host=True)) == 1


def test_five_devices_of_a_cube_mesh_have_no_ring_over_links_alone():
    topology = load_system("dgx_1_p100").topology  # the fifth hangs on one link
    assert len(ring_starts(topology, topology.devices()[:5])) == 1


def test_rings_on_irregular_wiring_are_found_after_a_bounded_number_of_tries():
    """They share no lane; to try all sets of six rings on wiring like this takes minutes."""
    tries = iter(range(RINGS_TRIED))
    lanes = np.triu(np.random.default_rng(1).integers(0, 5, (9, 9)), 1)
    lanes += lanes.T
    rings = _disjoint_rings(lanes, int(lanes.sum(axis=0).min()) // 2, tries)
    assert next(tries, None) is None
    assert len(rings) > 1
    for ring in rings:
        assert sorted(ring) == list(range(9))
        for one, other in itertools.pairwise([*ring, ring[0]]):
            lanes[one, other] -= 1
            lanes[other, one] -= 1
    assert lanes.min() >= 0


@pytest.mark.parametrize(("count", "ratio"), [(4, 1.2), (5, 4 / 3), (6, 10 / 7), (7, 1.5), (8, 14 / 9)])
def test_a_switch_that_adds_carries_each_byte_once_and_each_part_once(count, ratio):
    topology = load_system("dgx_h100").topology
    placed = place(collective("multicast_switch"), topology, topology.devices()[:count])
    link = 18 * 25e9 * 0.913
    assert 2 * (count - 1) / count / placed.seconds_per_byte == pytest.approx(ratio * link, rel=1e-9)


@pytest.mark.parametrize("machines", [2, 3, 5])
def test_trees_of_machines_cost_what_their_formula_says(machines):
    topology = load_system("dgx_h100", machines=machines).topology
    placed = place(collective("machine_trees"), topology, topology.devices())
    routes = [route for round_ in placed.rounds for route in placed.routes(round_)]
    near, far = (pick(route.latency_s for route in routes) for pick in (min, max))
    fill = 2 * 7 * near + 4 * math.ceil(math.log2(machines)) * far
    assert placed.latency_s == pytest.approx(fill)
    # an end of a tree on each machine: half of the bytes up and half down, of both trees; between two machines one tree
    # goes up each way at once. Each device is inside seven of eight chains, up and down
    adapters, inside = 8 * 50e9 * 0.98, 18 * 25e9 * 0.913
    counted = max(min(machines - 1, 2) / adapters, 2 * 7 / 8 / inside)
    assert placed.seconds_per_byte == pytest.approx(counted, rel=1e-3)


@pytest.mark.parametrize(("machines", "passes"), [(2, 1), (3, 2), (4, 2)])
def test_trees_of_two_machines_send_half_as_many_bytes_over_each_adapter(machines, passes):
    """Each of four adapters, 0.91 of 12.5 GB/s, sends an eighth of the bytes up one tree and one down the other."""
    topology = load_system("aws_p4de_24xlarge", machines=machines).topology
    placed = place(collective("machine_trees"), topology, topology.devices())
    crossing = [size for name, size in placed.channel_bytes(1.0).items() if "fabric0" in name]
    if machines == 2:
        assert crossing == pytest.approx([1 / 4] * 16)  # four adapters of two machines, each way
    assert placed.seconds_per_byte == pytest.approx(passes / (4 * 12.5e9 * 0.91), rel=1e-9)
    lone = place(collective("machine_trees"), topology, topology.devices()[::8])
    assert lone.seconds_per_byte == pytest.approx(passes / (12.5e9 * 0.91), rel=1e-9)


@pytest.mark.parametrize(("machines", "passes"), [(2, 1), (3, 2), (16, 2)])
@pytest.mark.parametrize("system", ["dgx_h100", "dgx_b200"])
def test_trees_between_switches_cost_what_each_port_carries(system, machines, passes):
    """A device's links carry what the switch inside needs, its adapter an eighth of the bytes, once or twice."""
    topology = load_system(system, machines=machines).topology
    placed = place(collective("switch_trees"), topology, topology.devices())
    inside = place(collective("multicast_switch"), topology, topology.devices()[:8])
    adapter = 50e9 * 0.98
    assert placed.seconds_per_byte == pytest.approx(max(inside.seconds_per_byte, passes / 8 / adapter), rel=0.01)
    assert placed.network_rounds == 2 * math.ceil(math.log2(machines))
    whole = place(collective("switch_trees"), Topology(topology.places.values(), topology.wires), topology.devices())
    assert placed.time(1e6) == pytest.approx(whole.time(1e6), rel=1e-9)


def test_the_library_lets_switches_add_between_two_machines():
    """480 GB/s of bus bandwidth is what a single machine's switch gives; rings are held to their adapters."""
    topology = load_system("dgx_h100", machines=2).topology
    call = place_library(load_collective_library(NCCL), "all_reduce", topology, topology.devices())
    assert call.choice(8e9) == ("switch_trees", "nvls_tree")
    assert 2 * 15 / 16 * 8e9 / call.time(8e9) > 8 * 50e9
    rack = load_system("gb200_nvl72", machines=2).topology  # more devices than a switch's messages can name
    among = place_library(load_collective_library(NCCL), "all_reduce", rack, rack.devices())
    assert "switch_trees" not in {placed.collective.name for placed in among.algorithms}


def test_the_switch_of_an_a100_machine_does_not_add():
    topology = load_system("dgx_a100").topology
    with pytest.raises(ArgumentError, match="multicast_switch"):
        place(collective("multicast_switch"), topology, topology.devices())
    call = place_library(load_collective_library(NCCL), "all_reduce", topology, topology.devices())
    assert call.choice(8e9) == ("ring_all_reduce", "simple")


def whole(topology):
    """The same machines, none of which stands for another."""
    return Topology(topology.places.values(), topology.wires)


GROUPS = {
    "all": lambda names: [names],
    "a device of each machine": lambda names: [names[place::8] for place in range(8)],
    "machines": lambda names: [names[start : start + 8] for start in range(0, len(names), 8)],
    "pairs of machines": lambda names: [names[start : start + 16] for start in range(0, len(names), 16)],
}


@pytest.mark.parametrize("groups", list(GROUPS))
@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter"])
def test_few_machines_stand_for_all(operation, groups):
    topology, library = load_system("dgx_h100", machines=12).topology, load_collective_library(NCCL)
    first, *beside = GROUPS[groups](topology.devices())
    few, all_ = (place_library(library, operation, each, first, beside=beside) for each in (topology, whole(topology)))
    messages = [sum(len(round_.messages) for round_ in each.algorithms[0].rounds) for each in (few, all_)]
    assert messages[0] < messages[1] / 2
    for size_bytes in (1e3, 1e6, 1e9):
        assert few.time(size_bytes) == pytest.approx(all_.time(size_bytes), rel=1e-9)
        assert few.choice(size_bytes) == all_.choice(size_bytes)
        sent = [each.call(size_bytes).placed for each in (few, all_)]
        assert sent[0].rank_count == sent[1].rank_count
        assert sent[0].sent_bytes(size_bytes) == pytest.approx(sent[1].sent_bytes(size_bytes), rel=1e-9)


def test_machines_that_differ_do_not_stand_for_each_other():
    assert load_system("dgx_a100_x4").topology.alike
    assert not load_system("survey_fig6").topology.alike  # it has a server
    assert not load_system("dgx_a100").topology.alike


def test_jobs_on_thousands_of_devices_place_few_messages():
    graph = pm.zoo.gpt(layers=8, width=1024, heads=16, sequence_length=512, vocabulary=1000)
    p = pm.predict(
        graph, batch_size=8, system="dgx_h100", machines=512, workers=512 // 8, parallelism="pipeline", stages=8,
        tensor_size=8, micro_batches=4, **PLACE,
    )  # fmt: skip
    known = p.basis.prepared.exchanges._known.values()
    placed = [algorithm for each in known if each is not None for algorithm in getattr(each, "algorithms", (each,))]
    assert placed
    assert max(len(round_.messages) for each in placed for round_ in each.rounds) <= 64
    assert len(repr(p)) < 2000
    assert math.isfinite(p.interval.ratio)


def test_machines_is_an_argument_of_systems_jobs_sweeps_and_the_command_line(capsys):
    four = load_system("dgx_a100", machines=4)
    assert four.describe() == load_system("dgx_a100_x4").describe()
    graph, job = pm.zoo.alexnet(), {"batch_size": 32, "workers": 32, **PLACE}
    asked = pm.predict(graph, system="dgx_a100", machines=4, **job)
    filed = pm.predict(graph, system="dgx_a100_x4", **job)
    assert asked.exposed_sync_s == pytest.approx(filed.exposed_sync_s, rel=0.05)  # its file states fewer switches
    sweep = pm.sweep(graph, batch_size=32, system="dgx_a100", machines=[1, 2, 4], workers=8, **PLACE)
    assert len(sweep.rows) == 3
    from perfmodel.cli.app import run

    words = "predict alexnet --system dgx_a100 --machines 2 --workers 16 --batch-size 32 --framework pytorch_2 --json"
    assert run(words.split()) == 0
    assert '"workers": 16' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"system": "survey_fig5", "machines": 2}, r"no table \[fabric\]"),
        ({"system": "dgx_a100", "machines": 0}, "machines"),
        ({"system": "dgx_a100", "machines": 5000}, "machines"),
        ({"system": "gb200_nvl72", "machines": 456}, "a whole number from 1 to 455"),  # 32,832 devices
        ({"device": "gtx_1080", "machines": 2}, "system"),
    ],
)
def test_machines_that_cannot_be_are_refused(asked, said):
    with pytest.raises(ArgumentError, match=said):
        pm.predict(pm.zoo.alexnet(), batch_size=8, framework="pytorch_2", **asked)


@pytest.fixture(scope="module")
def language_model():
    return pm.zoo.gpt(layers=6, width=1024, heads=16, sequence_length=256, vocabulary=20000)


def sharded(graph, **options):
    job = {"batch_size": 4, "workers": 16, "system": "dgx_h100", "machines": 2, "shard_stage": 3}
    return pm.predict(graph, **{**job, **PLACE, **options})


def test_units_hold_every_parameter_once(language_model):
    units = sharded_units(language_model)
    assert [unit.is_block for unit in units] == [True] * 6 + [False]
    assert sum(unit.parameter_count for unit in units) == language_model.trained_parameter_count
    assert [unit.name for unit in sharded_units(pm.zoo.vgg16())][-1] == ""


def test_gathered_units_and_whole_gradients_are_alive_at_the_peak(language_model):
    units = sharded_units(language_model)
    block, root = units[0].parameter_count, units[-1].parameter_count
    total = language_model.trained_parameter_count
    overhead = pm.load_framework("pytorch_2").memory.pool_overhead
    p = sharded(language_model, batch_size=1)
    # and a device's share of what is outside blocks, cast before it is gathered
    assert p.memory.weights_bytes == pytest.approx(overhead * (4 * total / 16 + 2 * (root + 2 * block + root / 16)))
    # last, what is outside blocks is whole, and cast to be exchanged; shares of all gradients have memory of their own
    assert p.memory.gradients_bytes == pytest.approx(overhead * (4 * total / 16 + (2 + 4) * root))
    more = sharded(language_model, batch_size=1, prefetch_limit=3)
    assert more.memory.weights_bytes - p.memory.weights_bytes == pytest.approx(overhead * 2 * 2 * block)
    narrow = sharded(language_model, batch_size=1, gradient_dtype="bf16")  # copied to be exchanged in its own type too
    assert narrow.memory.gradients_bytes == pytest.approx(overhead * (4 * total / 16 + (2 + 2) * root))
    many = sharded(language_model, batch_size=8)
    # none is whole yet where activations set the peak, but nothing else may use the memory of shares and exchange
    assert many.memory.gradients_bytes == pytest.approx(overhead * (4 * total / 16 + 4 * root))


def test_gradients_of_one_block_are_whole_where_blocks_set_the_peak():
    graph = pm.zoo.gpt(layers=6, width=1024, heads=16, sequence_length=64, vocabulary=100)
    block = sharded_units(graph)[0].parameter_count
    overhead = pm.load_framework("pytorch_2").memory.pool_overhead
    ends = 2 * (100 * 1024 + 2 * 1024)  # of the scores and the last norm, which are outside blocks
    for options, whole in (({}, 2 + 4), ({"gradient_dtype": "bf16"}, 2 + 2), ({"shard_stage": 2}, 2 + 4)):
        memory = sharded(graph, batch_size=1, **options).memory
        # with all gradients of a block but those of its first norm, at the least, and the copy that is exchanged
        alive = overhead * (4 * graph.trained_parameter_count / 16 + whole * block + ends)
        assert memory.gradients_bytes == pytest.approx(alive, rel=2e-4)


SHARES = {"batch_size": 4, "workers": 8, "system": "dgx_h100", "framework": "pytorch_2", "optimizer": "adam"}


@pytest.mark.parametrize("batch_size", [4, 16, 64])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("cut", [{}, {"accumulation_steps": 2}])
@pytest.mark.parametrize("network", ["gpt", "resnet50", "vgg16"])
def test_memory_falls_as_more_is_shared_except_for_what_is_whole_for_a_while(
    language_model, network, cut, dtype, batch_size
):
    graph = language_model if network == "gpt" else pm.zoo.build(network)
    job = {**SHARES, **cut, "batch_size": batch_size, "dtype": dtype, "sync": "all_reduce"}
    memory = [pm.predict(graph, **job, shard_stage=stage).memory for stage in range(4)]
    units = sharded_units(graph)
    root = sum(unit.parameter_count for unit in units if not unit.is_block)
    blocks = [unit.parameter_count for unit in units if unit.is_block]
    overhead = pm.load_framework("pytorch_2").memory.pool_overhead
    width = {"bf16": 2, "fp32": 4}[dtype]
    gathered = overhead * width * (root + min(2 * max(blocks), sum(blocks)))
    # shares of accumulated gradients lie beside whole ones; these are cast if they are made in a narrow type
    reduced = overhead * 4 / 8 * (root + max(blocks)) if cut else 0.0
    cast = overhead * 4 * (root + max(blocks)) if dtype == "bf16" else 0.0
    # beside its shares FSDP's stage 2 holds all parameters in the type of products, which is not always less
    count = graph.trained_parameter_count
    held = overhead * (4 / 8 + width - 4) * count
    beside = (0.0, reduced + max(0.0, held), gathered + cast)
    for less, more, buffers in zip(memory, memory[1:], beside, strict=False):
        assert more.total_bytes <= less.total_bytes + buffers + 1.0
    assert memory[2].total_bytes < memory[0].total_bytes - 0.8 * memory[0].optimizer_bytes
    if batch_size == 64 and not cut and network == "gpt":  # activations set the peak
        assert memory[1].activations_bytes == memory[2].activations_bytes
        # of DistributedDataParallel's buckets FSDP has a worker's share, and a buffer of the largest unit
        fewer = 4 * (7 / 8 * graph.trained_parameter_count - max(root, *blocks))
        # it gathers narrow parameters, so products keep no casts of whole weights; norms have none
        fewer += (2 * (sum(blocks) - len(blocks) * 4 * 1024) if dtype == "bf16" else 0) - (4 / 8 + width - 4) * count
        fewer -= 2 / 8 * root if dtype == "bf16" else 0  # a share that is cast before it is gathered
        assert memory[1].total_bytes - memory[2].total_bytes == pytest.approx(overhead * fewer, rel=1e-12)
        assert memory[3].total_bytes < memory[2].total_bytes


@pytest.mark.parametrize("batch_size", [4, 64])
@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("network", ["gpt", "resnet50", "vgg16", "alexnet"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_whole_gradients_kept_for_all_micro_batches_take_more_memory(language_model, network, stage, batch_size, dtype):
    graph = language_model if network == "gpt" else pm.zoo.build(network)
    job = {**SHARES, "batch_size": batch_size, "dtype": dtype, "sync": "all_reduce", "shard_stage": stage}
    each, kept = (pm.predict(graph, **job, accumulation_steps=2, no_sync=no_sync).memory for no_sync in (False, True))
    whole = 4 * graph.trained_parameter_count
    assert kept.gradients_bytes >= whole
    # what an eighth was is whole now, whatever else is whole at the peak
    more = pm.load_framework("pytorch_2").memory.pool_overhead * whole * 7 / 8
    assert kept.total_bytes - each.total_bytes == pytest.approx(more)


def test_gradients_of_a_chunk_are_shared_behind_its_last_micro_batch():
    """As many micro-batches as stages all go forward first; then each chunk's are backward before the next chunk's."""
    graph = pm.zoo.gpt(layers=8, width=1024, heads=8, sequence_length=1024, vocabulary=1000)
    cut = {"stages": 2, "interleave": 4, "schedule": "interleaved", "stage_cut": "even_blocks", "sync": "all_reduce"}
    job = {"system": "dgx_h100", "dtype": "bf16", "optimizer": "adamw", "framework": "megatron_core", "workers": 4}
    how = {**job, **cut, "parallelism": "pipeline", "gradient_dtype": "fp32", "shard_stage": 2, "no_sync": True}
    few, many = (pm.predict(graph, batch_size=8 * parts, micro_batches=parts, **how) for parts in (2, 4))
    passes = pm.predict(graph, batch_size=64, micro_batches=4, accumulation_steps=2, **how)
    fullest = pm.Job(graph, batch_size=16, micro_batches=2, **how).prepared.stages[:-2:2]  # all but its last chunk
    others = 4 * sum(stage.placed.graph.parameter_count for stage in fullest)
    assert many.memory.gradients_bytes - few.memory.gradients_bytes == pytest.approx(others * 3 / 4)
    assert passes.memory.gradients_bytes == pytest.approx(many.memory.gradients_bytes)  # kept from pass to pass


def test_activations_at_the_peak_of_sharded_training_grow_with_the_batch(language_model):
    sizes = [sharded(language_model, batch_size=size).memory for size in (4, 8, 16)]
    total, root = language_model.trained_parameter_count, sharded_units(language_model)[-1].parameter_count
    overhead = pm.load_framework("pytorch_2").memory.pool_overhead
    assert [memory.gradients_bytes for memory in sizes] == pytest.approx(3 * [overhead * 4 * (total / 16 + root)])
    slopes = np.diff([memory.activations_bytes for memory in sizes]) / [4, 8]
    assert slopes == pytest.approx([slopes[0]] * 2, rel=1e-6)
    assert sizes[0].activations_bytes == pytest.approx(4 * slopes[0], rel=0.05)


def test_state_that_fewer_workers_share_takes_more_memory_and_is_copied(language_model):
    everybody, groups, same = (sharded(language_model, shard_group=size) for size in (None, 8, 16))
    assert same.step_s == everybody.step_s
    assert same.memory == everybody.memory
    state = everybody.memory.optimizer_bytes
    assert groups.memory.optimizer_bytes == pytest.approx(2 * state)
    assert groups.sync_s != everybody.sync_s
    with pytest.raises(ArgumentError, match="shard_group"):
        sharded(language_model, shard_group=5)
    with pytest.raises(ArgumentError, match="shard_stage"):
        sharded(language_model, shard_stage=0, shard_group=8)
    with pytest.raises(ArgumentError, match="shard_group"):
        sharded(language_model, shard_group=8, sync="ring_all_reduce")


def test_shared_gradients_are_added_up_for_every_micro_batch_unless_they_are_kept_whole(language_model):
    job = {"accumulation_steps": 4, "batch_size": 16}
    each, kept = sharded(language_model, **job), sharded(language_model, **job, no_sync=True)
    one = sharded(language_model)
    assert each.sync_s > kept.sync_s
    total = language_model.trained_parameter_count
    overhead = pm.load_framework("pytorch_2").memory.pool_overhead
    root = sharded_units(language_model)[-1].parameter_count  # the largest unit, whose memory for exchange stays
    assert kept.memory.gradients_bytes == pytest.approx(overhead * 4 * (total + root))  # at the peak of activations
    assert each.sync_s == pytest.approx(4 * one.sync_s, rel=1e-6)
    assert one.step_s == sharded(language_model, no_sync=True).step_s


@pytest.mark.parametrize("options", [{}, {"no_sync": True}, {"accumulation_steps": 2, "batch_size": 8}])
def test_a_sharded_step_is_played_as_it_is_composed(language_model, options):
    p = sharded(language_model, **options)
    assert p.play(2).makespan_s - p.play(1).makespan_s == pytest.approx(p.step_s, rel=1e-6)


def test_gradients_of_mixed_precision_are_exchanged_in_their_own_type(language_model):
    job = {"batch_size": 4, "workers": 8, "system": "dgx_h100", **PLACE}
    wide, narrow = (pm.predict(language_model, **job, gradient_dtype=dtype) for dtype in (None, "bf16"))
    assert wide.sync_s > 1.5 * narrow.sync_s
    assert wide.memory.gradients_bytes == narrow.memory.gradients_bytes
    fp32 = pm.predict(language_model, **{**job, "dtype": "fp32"})
    assert fp32.sync_s == pytest.approx(wide.sync_s)


@pytest.mark.parametrize(
    "spread",
    [
        {"shard_stage": 3},
        {"shard_stage": 2, "accumulation_steps": 2},
        {"parallelism": "tensor", "tensor_size": 2, "workers": 4},
        {"parallelism": "pipeline", "stages": 2, "micro_batches": 4, "workers": 4},
    ],
)
def test_the_largest_batch_of_a_spread_job_fits_and_the_next_does_not(language_model, spread):
    job = {"workers": 8, "system": "dgx_a100", **PLACE, **spread}
    parts = spread.get("accumulation_steps", 1) * spread.get("micro_batches", 1)
    size = pm.max_batch_size(language_model, **job)
    assert size % parts == 0
    assert pm.predict(language_model, **job, batch_size=size).memory.fits
    assert not pm.predict(language_model, **job, batch_size=size + parts).memory.fits
    reserved = pm.max_batch_size(language_model, **job, reserve_fraction=0.1)
    memory = pm.predict(language_model, **job, batch_size=reserved).memory
    assert memory.total_bytes <= 0.9 * memory.capacity_bytes
    assert reserved < size


@pytest.mark.parametrize("wrong", [{"reserve_fraction": 1.0}, {"reserve_fraction": -0.1}, {"batch_size": 4}])
def test_a_batch_limit_without_sense_is_refused(wrong):
    with pytest.raises(ArgumentError):
        pm.max_batch_size(pm.zoo.alexnet(), device="gtx_1080", **wrong)


def test_a_call_pays_for_handing_over_chunks_in_every_form(language_model):
    topology = load_system("dgx_h100").topology
    call = place_library(load_collective_library(NCCL), "all_gather", topology, topology.devices())
    without = replace(call, protocols=tuple(replace(each, chunk_s=0.0) for each in call.protocols))
    for size_bytes in (1e8, 1e9):
        assert call.time(size_bytes) > without.time(size_bytes)
        assert call.call(size_bytes).launch_s > without.call(size_bytes).launch_s
    assert call.time(1e10) / without.time(1e10) < 1.05


@pytest.mark.parametrize("system", ["dgx_a100", "dgx_h100"])
def test_parameters_gathered_further_ahead_hide_more(language_model, system):
    job = {"batch_size": 1, "workers": 16, "system": system, "machines": 2, "shard_stage": 3, **PLACE}
    steps = [pm.predict(language_model, **job, prefetch_limit=limit) for limit in (0, 1, 2, 8)]
    exposed_s = [p.exposed_sync_s for p in steps]
    assert exposed_s == sorted(exposed_s, reverse=True)
    assert exposed_s[0] > exposed_s[1] >= exposed_s[2] >= exposed_s[3]  # blocks hide behind the unit before them
    (device,) = steps[0].basis.timed.composed.devices
    waiting = pm.predict(language_model, **job, overlap=False)
    gathered_s = sum(gather.total_s for gather in device.gathers)
    taken = steps[0].basis.prepared.agreement.slowdown
    # one ahead: first gathers are exposed; each other one hides behind the unit before it
    hidden_s = 0.0
    for gather in device.gathers:
        ahead = zip(gather.seconds[1:], gather.computed_s, strict=False)
        hidden_s += sum(min((1 - taken) * seconds, before_s) for seconds, before_s in ahead)
    assert exposed_s[0] - exposed_s[1] <= hidden_s * (1 + 1e-9)
    assert exposed_s[0] - exposed_s[1] == pytest.approx(hidden_s, rel=0.05)
    assert waiting.exposed_sync_s >= exposed_s[0] > gathered_s
    for p in steps:
        assert p.play(2).makespan_s - p.play(1).makespan_s == pytest.approx(p.step_s, rel=1e-9)


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_sweep_and_a_formula_gather_as_far_ahead_as_a_prediction(limit):
    graph = pm.zoo.gpt(layers=3, width=256, heads=4, sequence_length=64, vocabulary=1000)
    job = {"system": "dgx_h100", "workers": 8, "shard_stage": 3, "prefetch_limit": limit, **PLACE}
    p = pm.predict(graph, batch_size=4, **job)
    table = pm.sweep(graph, batch_size=[2, 4], columns=["step_s", "exposed_sync_s"], **job)
    assert table.row(1)["step_s"] == pytest.approx(p.step_s, rel=1e-9)
    assert table.row(1)["exposed_sync_s"] == pytest.approx(p.exposed_sync_s, rel=1e-9)
    formula = pm.formula(graph=graph, free="batch_size", batch_size=2, **job)
    assert formula(batch_size=4) == pytest.approx(p.step_s, rel=1e-9)


@pytest.mark.parametrize("machines", [True, 0, 5000, 2.5, "3"])
def test_a_number_of_machines_is_checked_alike_everywhere(machines):
    load_system("dgx_h100", machines=1)  # kept, under a key that equals True
    job = {"system": "dgx_h100", "machines": machines}
    ways = [
        lambda: load_system("dgx_h100", machines=machines),
        lambda: pm.predict(pm.zoo.alexnet(), batch_size=8, **job),
    ]
    ways += [lambda: pm.max_batch_size(pm.zoo.alexnet(), **job)]
    said = set()
    for way in ways:
        with pytest.raises(ArgumentError) as refused:
            way()
        said.add(str(refused.value))
    assert said == {f"machines must be a whole number from 1 to 4,096 (got {machines!r})"}
    assert load_system("dgx_h100", machines=2.0).describe() == load_system("dgx_h100", machines=2).describe()


@pytest.mark.parametrize(
    "cut", [{"accumulation_steps": 4}, {"parallelism": "pipeline", "stages": 2, "micro_batches": 2}]
)
def test_a_formula_in_batch_size_starts_from_one_sample_of_each_micro_batch(cut):
    job = {"system": "dgx_h100", "workers": 2, **cut}
    formula = pm.formula(graph=pm.zoo.alexnet(), free="batch_size", **job)
    assert formula.stated == {"batch_size": cut.get("micro_batches", 4)}
    p = pm.predict(pm.zoo.alexnet(), **formula.stated, **job)
    assert formula() == pytest.approx(p.step_s, rel=1e-9)


def test_devices_of_sockets_that_may_be_swapped_share_a_search_for_their_routes(monkeypatch):
    topology = load_system("gb200_nvl72", machines=2).topology
    made = []
    search = Topology._legs_between
    monkeypatch.setattr(Topology, "_legs_between", lambda self, *ends: made.append(ends) or search(self, *ends))
    names = topology.devices()
    pairs = [(names[7 * k % 144], names[(31 * k + 5) % 144]) for k in range(60)]
    routes = [topology.legs(*pair) for pair in pairs]
    assert len(made) <= 12  # first and second device of a socket, same machine or not, same socket or not
    assert routes == [search(topology, *pair, False) for pair in pairs]


@pytest.mark.parametrize(("system", "machines"), [("dgx_a100", 2), ("dgx_1_p100", None), ("gce_a2_highgpu_8g", 2)])
def test_routes_from_swapped_sockets_are_those_of_a_search(system, machines):
    topology = (load_system(system) if machines is None else load_system(system, machines=machines)).topology
    for pair in itertools.permutations((*topology.devices(), *topology.memories()), 2):
        assert topology.legs(*pair) == topology._legs_between(*pair, False)


def test_routes_to_memories_of_a_rack_share_a_few_searches(monkeypatch):
    topology = load_system("gb200_nvl72", machines=2).topology
    made, search = [], Topology._legs_between
    monkeypatch.setattr(Topology, "_legs_between", lambda self, *ends: made.append(ends) or search(self, *ends))
    pairs = list(itertools.product(topology.devices()[:72:5], topology.memories()[::7]))
    routes = [topology.legs(*pair) for pair in pairs]
    assert len(made) <= 6  # first and second device of a socket, to its memory, another one, and another machine's
    assert routes == [search(topology, *pair, False) for pair in pairs]


def test_only_machines_that_are_asked_for_are_wired():
    topology = load_system("gb200_nvl72", machines=200).topology
    wired = []
    inside = type(topology.wires).of
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(topology.wires), "of", lambda self, machine: wired.append(machine) or inside(self, machine))
        topology.route("node3/gpu0", "node180/gpu70")
        assert set(wired) <= {"node0", "node3", "node180"}


def test_an_all_to_all_over_two_racks_searches_few_routes(monkeypatch):
    """It took 36 s: each of 10,296 pairs of places was searched for, and 20,592 messages each had a row of rates."""
    topology = load_system("gb200_nvl72", machines=2).topology
    searched = []
    search = Topology._legs_between
    monkeypatch.setattr(Topology, "_legs_between", lambda self, *ends: searched.append(ends) or search(self, *ends))
    call = place_library(load_collective_library(NCCL), "all_to_all", topology, topology.devices())
    assert len(searched) < 20
    assert float(call.time(1e9)) == pytest.approx(11.811628e-3, rel=1e-6)  # as when each was searched for
