"""Properties of collective algorithms for any number of workers, and schedules played against the formulas."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import ArgumentError
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.topology import Topology
from perfmodel.hardware.wires import Place, Wire
from perfmodel.sync.placed import place
from perfmodel.sync.registry import ALL_REDUCES, collective
from perfmodel.sync.registry import COLLECTIVES as EVERY
from played_collectives import play_collective

EXACT = 1e-9
COLLECTIVES = {name: each for name, each in EVERY.items() if each.plays}  # others are forms of them for some wiring
PLAIN = sorted(set(COLLECTIVES) - {"hierarchical"})
NOT_CUT = sorted(set(COLLECTIVES) - {"hierarchical", "double_binary_tree"})
OPTIONS = {
    "ring_all_reduce": [{}, {"both_ways": True}],
    "parameter_server": [{}, {"server_count": 3}],
    "hierarchical": [{"group_size": 2}],
}


def star(worker_count, *, latency_s, seconds_per_byte, server_count=1):
    """A switch with one full-duplex port for each worker and server, whose copies all start once."""
    names = [f"gpu{rank}" for rank in range(worker_count)]
    servers = [f"memory{index}" for index in range(server_count)]
    places = [Place(name="centre", kind="root"), *(Place(name=name, kind="device") for name in names)]
    places += [Place(name=name, kind="memory") for name in servers]
    rate = {"capacity_bytes_per_s": 1 / seconds_per_byte, "raw_bytes_per_s": 1 / seconds_per_byte}
    wires = [Wire.between(name, "centre", link="port", startup_s=latency_s, **rate) for name in (*names, *servers)]
    return Topology(places, wires), names, servers


def on_star(name, worker_count, *, latency_s, seconds_per_byte, reduce_s_per_byte=0.0, **options):
    each = collective(name)
    needed = each.given(**options).server_count_of()
    topology, names, servers = star(
        worker_count, latency_s=latency_s, seconds_per_byte=seconds_per_byte, server_count=needed
    )
    chosen = {"": (), "memory": servers, "switch": ["centre"]}[each.server_kind if needed else ""]
    return place(each, topology, names, servers=chosen, reduce_s_per_byte=reduce_s_per_byte, **options)


def numbers():
    return {
        "latency_s": st.floats(1e-7, 1e-3),
        "seconds_per_byte": st.floats(1e-12, 1e-7),
        "reduce_s_per_byte": st.floats(0, 1e-9),
    }


@st.composite
def links(draw):
    return {name: draw(values) for name, values in numbers().items()}


@given(st.sampled_from(PLAIN), links(), st.floats(1, 1e10))
def test_one_worker_has_nobody_to_agree_with(name, link, size_bytes):
    assert collective(name).time(size_bytes=size_bytes, worker_count=1, **link) == 0.0
    assert collective(name).rounds(1) == ()
    assert collective(name).wire_bytes(size_bytes, 1) == 0.0


@given(st.sampled_from(PLAIN), links(), st.integers(2, 70), st.floats(0, 1e10), st.floats(0, 1e9))
def test_a_byte_more_never_makes_it_faster(name, link, workers, size_bytes, more):
    each = collective(name)
    less = each.time(size_bytes=size_bytes, worker_count=workers, **link)
    assert each.time(size_bytes=size_bytes + more, worker_count=workers, **link) >= less * (1 - EXACT)


@given(st.sampled_from(PLAIN), links(), st.integers(2, 70), st.floats(1, 1e10))
def test_never_below_what_the_busiest_port_must_carry(name, link, workers, size_bytes):
    each = collective(name)
    bound_s = each.wire_bytes(size_bytes, workers) * link["seconds_per_byte"]
    assert each.time(size_bytes=size_bytes, worker_count=workers, **link) >= bound_s * (1 - EXACT)


@given(st.sampled_from(sorted(set(NOT_CUT) - {"hierarchical"})), st.integers(2, 70))
def test_without_latency_the_bound_of_its_own_is_met(name, workers):
    # Doubling folds send and receive in different rounds, so the busiest port's bytes may be below the sum of rounds.
    each = collective(name)
    free = {"latency_s": 0.0, "seconds_per_byte": 1.0}
    took = float(each.time(size_bytes=1.0, worker_count=workers, **free))
    carried = each.wire_bytes(1.0, workers)
    power = workers & (workers - 1) == 0
    if name in ("recursive_doubling", "halving_doubling") and not power:
        assert carried <= took <= carried + 2
    elif name in ("one_to_all", "binomial_tree", "parameter_server", "host_tree"):
        assert took <= 2 * carried * (1 + EXACT)
    else:
        assert took == pytest.approx(carried)


FEWEST_BYTES = {
    # of an all-reduce among p: every one but the first must be sent to, twice
    "one_to_all": lambda p: 2 * (p - 1),
    "ring_all_reduce": lambda p: 2 * (p - 1),
    "binomial_tree": lambda p: 2 * (p - 1),
    "double_binary_tree": lambda p: 2 * (p - 1),
    "parameter_server": lambda p: 2 * p,
    "host_tree": lambda p: 2 * p,
    "in_network": lambda p: 2 * p,
    "reduce_scatter": lambda p: p - 1,
    "all_gather": lambda p: p - 1,
    "all_to_all": lambda p: p - 1,
    "broadcast": lambda p: p - 1,
    "send_receive": lambda p: p - 1,
}


@given(st.sampled_from(sorted(FEWEST_BYTES)), st.integers(2, 70))
def test_bytes_are_conserved(name, workers):
    assert collective(name).sent_bytes(1.0, workers) == pytest.approx(FEWEST_BYTES[name](workers))


@given(st.sampled_from(sorted(EVERY)), st.integers(1, 9), st.integers(2, 6))
def test_what_an_algorithm_says_it_sends_is_the_sum_of_its_messages(name, groups, size):
    options = {"group_size": size} if "group_size" in collective(name).option_names else {}
    rounds = collective(name).rounds(groups * size, **options)
    shares = sum(round_.repeat * message.share for round_ in rounds for message in round_.messages)
    assert collective(name).sent_bytes(3.0, groups * size, **options) == pytest.approx(3 * shares, rel=EXACT)


@given(st.integers(2, 130))
def test_folding_sends_what_is_beyond_a_power_of_two_there_and_back(workers):
    power = 2 ** (workers.bit_length() - 1)
    beyond = workers - power
    doubled = power * (power.bit_length() - 1) + 2 * beyond
    assert collective("recursive_doubling").sent_bytes(1.0, workers) == pytest.approx(doubled)
    halved = 2 * (power - 1) + 2 * beyond
    assert collective("halving_doubling").sent_bytes(1.0, workers) == pytest.approx(halved)


@given(st.integers(1, 6), st.integers(1, 6))
def test_a_hierarchy_moves_what_a_ring_moves(groups, size):
    workers = groups * size
    found = collective("hierarchical").sent_bytes(1.0, workers, group_size=size)
    assert found == pytest.approx(2 * groups * (size - 1) + 2 * (groups - 1))


@given(st.sampled_from(sorted(set(ALL_REDUCES) - {"in_network"})), st.integers(2, 33))
def test_every_rank_hears_of_every_other(name, workers):
    options = OPTIONS.get(name, [{}])[-1] if name != "hierarchical" or workers % 2 == 0 else {"group_size": 1}
    known = {}
    for each in collective(name).rounds(workers, **options):
        for _ in range(each.repeat):
            heard = [(message.sink, known.get(message.source, {message.source})) for message in each.messages]
            for sink, of in heard:
                known[sink] = known.get(sink, {sink}) | of
    everybody = set(range(workers))
    assert all(everybody <= known[rank] for rank in everybody)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(COLLECTIVES)), st.integers(2, 9), links(), st.floats(1, 1e9))
def test_placed_played_and_the_formula_agree_without_contention(name, workers, link, size_bytes):
    for options in OPTIONS.get(name, [{}]):
        if name == "hierarchical" and workers % 2:
            continue
        placed = on_star(name, workers, **link, **options)
        told = float(collective(name).time(size_bytes=size_bytes, worker_count=workers, **link, **options))
        assert placed.time(size_bytes) == pytest.approx(told, rel=EXACT)
        if not placed.cut:  # of one number of chunks
            assert placed.latency_s + size_bytes * placed.seconds_per_byte == pytest.approx(told, rel=EXACT)
        assert play_collective(placed, size_bytes).makespan_s == pytest.approx(told, rel=EXACT)


def test_a_ring_of_two_both_ways_has_two_messages_from_each_to_the_other():
    link = {"latency_s": 1e-6, "seconds_per_byte": 1e-9}
    placed = on_star("ring_all_reduce", 2, both_ways=True, **link)
    told = collective("ring_all_reduce").time(size_bytes=1e6, worker_count=2, **link)
    assert play_collective(placed, 1e6).makespan_s == pytest.approx(told, rel=EXACT)
    assert placed.time(1e6) == pytest.approx(told, rel=EXACT)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 33), st.floats(1e-7, 1e-5), st.floats(1e2, 1e9), st.integers(1, 20))
def test_two_trees_take_the_rounds_that_their_chunks_need(workers, latency_s, size_bytes, chunk_count):
    link = {"latency_s": latency_s, "seconds_per_byte": 1e-10}
    placed, cut = (on_star("double_binary_tree", workers, **link, **how) for how in ({}, {"chunk_count": chunk_count}))
    told = float(collective("double_binary_tree").time(size_bytes=size_bytes, worker_count=workers, **link))
    assert told <= cut.time(size_bytes) * 1.07  # powers of two are near the best number of chunks
    assert play_collective(cut, size_bytes).makespan_s == pytest.approx(cut.time(size_bytes), rel=EXACT)
    assert placed.time(size_bytes) == pytest.approx(told, rel=EXACT)
    assert placed.collective.wire_bytes(size_bytes, workers) * 1e-10 <= told * (1 + EXACT)
    two = {"worker_count": workers, **link}
    binomial = collective("binomial_tree").time(size_bytes=size_bytes, **two)
    assert told <= binomial * (1 + EXACT)  # both halves climb at once, and a chunk follows the one before
    fitted = float(collective("library_trees").time(size_bytes=size_bytes, **two))
    assert on_star("library_trees", workers, **link).time(size_bytes) == pytest.approx(fitted, rel=EXACT)


@pytest.mark.parametrize("workers", [4, 8, 16, 32])
def test_two_trees_of_a_power_of_two_take_the_time_of_their_formula(workers):
    """4 latencies and 3 passes of the bytes among four: two levels up, of which both halves share one, and down."""
    levels, link = workers.bit_length() - 1, {"latency_s": 1e-5, "seconds_per_byte": 1e-9, "reduce_s_per_byte": 1e-10}
    for chunks in (1, 2, 8):
        tree = collective("double_binary_tree")
        told = tree.time(size_bytes=1e5, worker_count=workers, chunk_count=chunks, **link)
        passes = 2 + (2 * levels - 3) / chunks
        assert told == pytest.approx(2 * (levels - 1 + chunks) * 1e-5 + passes * 1e-4 + passes / 2 * 1e-5)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["dgx_1_p100", "survey_fig5", "dgx_a100", "p2_16xlarge", "survey_fig6"]),
    st.sampled_from(sorted(COLLECTIVES)),
    st.floats(1e4, 1e9),
)
def test_on_systems_bytes_are_conserved_and_waits_are_not_longer_than_told(system, name, size_bytes):
    topology = load_system(system).topology
    try:
        placed = place(collective(name), topology, topology.devices())
    except ArgumentError:
        assert name == "in_network"  # no switch that all of them hang off
        return
    if not placed.rounds:
        return
    hops = sum(
        each.repeat * message.share * len(route.channels)
        for each in placed.rounds
        for message, route in zip(each.messages, placed.routes(each), strict=True)
    )
    assert sum(placed.channel_bytes(size_bytes).values()) == pytest.approx(hops * size_bytes)
    timeline = play_collective(placed, size_bytes)
    moved = {}
    for span in timeline.spans:
        for channel in span.channels:
            moved[channel] = moved.get(channel, 0.0) + span.flow_bytes
    assert moved == pytest.approx(dict(placed.channel_bytes(size_bytes)))
    assert timeline.makespan_s <= placed.time(size_bytes) * 1.05
    capacity = {channel.name: channel.capacity_bytes_per_s for channel in topology.channels.values()}
    assert timeline.makespan_s >= max(moved[channel] / capacity[channel] for channel in moved) * (1 - EXACT)


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("size_bytes", [0.0, 1e4, 1e5, 1e6, 1e8])
def test_messages_to_a_server_begin_sooner_inside_its_machine(shards, size_bytes):
    """Of sixteen GPUs in two machines: copies start later than messages of RDMA, and meet them at the memory."""
    topology = load_system("dgx_a100", machines=2).topology
    memories = [name for name in topology.memories() if name.endswith("memory0")] + ["node0/memory1"]
    options = {"servers": memories[:shards], "server_count": shards}
    placed = place(collective("parameter_server"), topology, topology.devices(), **options)
    assert play_collective(placed, size_bytes).makespan_s == pytest.approx(placed.time(size_bytes), rel=1e-9)
