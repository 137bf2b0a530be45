"""Systems: what is wired to what, what links settle on, routes, and how readers share what they cross."""

import dataclasses
import itertools
import os
import re

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import ArgumentError, SpecError, UnknownNameError
from perfmodel.hardware import spec_files
from perfmodel.hardware.topology import Topology
from perfmodel.hardware.wires import Channel, Place, Wire

GB = 1e9
PCIE_3_X16 = 8e9 / 8 * 16 * 128 / 130 * 0.79
"""8 GT/s, 16 lanes, line code, share that pinned copies reach. [B/s]."""


def shared_rates(topology: Topology, flows: list[tuple[str, str]]) -> list[float]:
    """Fill the channels of all flows at one pace; a flow stops where its first channel is full (max-min fairness)."""
    routes = [topology.route(*flow).channels for flow in flows]
    rates, frozen = [0.0] * len(flows), [False] * len(flows)
    left = {channel.name: channel.capacity_bytes_per_s for route in routes for channel in route}
    while not all(frozen):
        users = dict.fromkeys(left, 0)
        for route, done in zip(routes, frozen, strict=True):
            for channel in route:
                users[channel.name] += not done
        pace = min(left[name] / count for name, count in users.items() if count)
        for index in range(len(flows)):
            rates[index] += 0.0 if frozen[index] else pace
        left = {name: left[name] - users[name] * pace for name in left}
        for index, route in enumerate(routes):
            frozen[index] |= any(left[channel.name] <= 1e-6 for channel in route)
    return rates


def host_reads(system: str, count: int, *, memory: str | None = None) -> list[float]:
    """Rates of the first ``count`` devices that read at once, each from the memory of its own socket unless told."""
    topology = pm.load_system(system).topology
    devices = topology.devices()[:count]
    return shared_rates(topology, [(memory or topology.home_memory(device), device) for device in devices])


# --- what hosts give to several readers -----------------------------------------------------------------------


def test_dgx_1_gives_half_from_the_second_reader_of_a_switch_on():
    assert host_reads("dgx_1_p100", 1) == pytest.approx([PCIE_3_X16])
    for count in (2, 4, 8):  # each further pair has a switch of its own
        assert host_reads("dgx_1_p100", count) == pytest.approx([PCIE_3_X16 / 2] * count)


def test_dgx_1_gives_all_to_one_reader_per_switch():
    topology = pm.load_system("dgx_1_p100").topology
    flows = [(topology.home_memory(name), name) for name in ("gpu0", "gpu2", "gpu4", "gpu6")]
    assert shared_rates(topology, flows) == pytest.approx([PCIE_3_X16] * 4)


def test_dgx_1_readers_of_one_socket_s_memory_share_the_link_between_sockets():
    rates = host_reads("dgx_1_p100", 8, memory="memory0")
    assert rates[:4] == pytest.approx([PCIE_3_X16 / 2] * 4)  # 24.9 of the 61.4 GB/s of the memory
    assert rates[4:] == pytest.approx([24 * GB / 4] * 4)  # 24 GB/s from socket to socket, less than two slots


@pytest.mark.parametrize(("count", "share"), [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16)])
def test_p2_16xlarge_has_one_slot_for_all(count, share):
    assert host_reads("p2_16xlarge", count) == pytest.approx([PCIE_3_X16 / share] * count)


def test_dgx_a100_and_h100():
    gen_4, gen_5 = 16e9 / 8 * 16 * 128 / 130 * 0.81, 32e9 / 8 * 16 * 128 / 130 * 0.865
    assert host_reads("dgx_a100", 8) == pytest.approx([gen_4 / 2] * 8)  # pairs share a switch
    assert host_reads("dgx_h100", 8) == pytest.approx([gen_5] * 8)  # a switch for each, DRAM carries them all


def test_gpus_of_a_cloud_share_slots_of_pcie_3_in_pairs():
    """A100 have PCIe 4.0, their hosts 3.0: half of what a DGX A100 gives."""
    for name in ("aws_p3_16xlarge", "aws_p3dn_24xlarge", "aws_p4d_24xlarge", "aws_p4de_24xlarge", "gce_a2_highgpu_8g",
                 "gce_a2_ultragpu_8g"):  # fmt: skip
        assert host_reads(name, 8) == pytest.approx([PCIE_3_X16 / 2] * 8)
    assert host_reads("aws_p3_8xlarge", 4) == pytest.approx([PCIE_3_X16 / 2] * 4)


def test_h100_of_a_cloud_have_slots_of_their_own_but_one_cloud_has_hosts_of_pcie_4():
    gen_4, gen_5 = 16e9 / 8 * 16 * 128 / 130 * 0.81, 32e9 / 8 * 16 * 128 / 130 * 0.865
    assert host_reads("aws_p5_48xlarge", 8) == pytest.approx([gen_4] * 8)
    assert host_reads("gce_a3_highgpu_8g", 8) == pytest.approx([gen_5] * 8)


P3_MATRIX = ["02233111", "20321311", "23031121", "32301112", "31110223", "13112032", "11212303", "11123230"]
"""A p3.16xlarge as apache/mxnet's test of trees has it: 1 PCIe, 2 one NVLink, 3 two."""


@pytest.mark.parametrize(("name", "count"), [("aws_p3_16xlarge", 8), ("aws_p3dn_24xlarge", 8), ("aws_p3_8xlarge", 4)])
def test_p3_has_the_nvlinks_of_the_published_matrix(name, count):
    topology = pm.load_system(name).topology
    for one, other in itertools.permutations(range(count), 2):
        channels = topology.route(f"gpu{one}", f"gpu{other}").channels
        links = {"1": None, "2": "nvlink_2_x1", "3": "nvlink_2_x2"}[P3_MATRIX[one][other]]
        if links is not None:
            assert [channel.link for channel in channels] == [links]
    lanes = [sum(max(0, int(mark) - 1) for mark in row[:count]) for row in P3_MATRIX[:count]]
    assert lanes == ([6] * 8 if count == 8 else [4, 4, 5, 5])  # no more than the chip has


@pytest.mark.parametrize(
    ("name", "link_gb_per_s"),
    [
        ("aws_p3_16xlarge", 150),  # six rings, one over each lane of a device
        ("aws_p3dn_24xlarge", 150),
        ("aws_p4d_24xlarge", 300),
        ("aws_p4de_24xlarge", 300),
        ("gce_a2_highgpu_8g", 300),
        ("gce_a2_ultragpu_8g", 300),
        ("aws_p5_48xlarge", 450),
        ("gce_a3_highgpu_8g", 450),
    ],
)
def test_eight_workers_exchange_over_nvlink_and_not_over_pcie(name, link_gb_per_s, tmp_path):
    graph = pm.zoo.resnet50()
    job = {"batch_size": 32, "workers": 8, "overlap": False, "bucket_bytes": 10**9}
    p = pm.predict(graph, system=name, **job)
    placed = p.agreement.reduction.placed
    crossed = {channel.link for each in placed.rounds for way in placed.routes(each) for channel in way.channels}
    assert all(link.startswith("nvlink") for link in crossed)
    sent_s = 2 * 7 / 8 * 4 * graph.parameter_count / (link_gb_per_s * GB)
    assert sent_s < p.sync_s < 1.5 * sent_s
    text = spec_files.find("systems", name).read_text(encoding="utf-8")
    text = re.sub(r"\[\[peer_link\]\]\nbetween = \[\n(?:  .*\n)*\]\nlink = .*\n", "", text)
    text = (
        re.sub(r"\[\[peer_switch\]\]\nlink = .*\n(reduces = .*\n)?", "", text)
        .replace('"peer_switch", ', "")
        .replace(', "peer_switch"', "")
    )
    text = re.sub(r'\[\[source\]\]\nfields = \["peer_link"\]\n(?:\w.*\n)*', "", text)
    (bare := tmp_path / "bare.toml").write_text(text, encoding="utf-8")
    assert pm.predict(graph, system=bare, **job).sync_s > 3 * p.sync_s  # the links are what made it fast


def test_survey_machine_shares_a_root_of_the_newer_generation():
    root = 16e9 / 8 * 16 * 128 / 130 * 0.81
    assert host_reads("survey_fig5", 1) == pytest.approx([PCIE_3_X16])  # the card's own 3.0
    assert host_reads("survey_fig5", 2) == pytest.approx([PCIE_3_X16] * 2)  # 24.9 of 25.5 GB/s
    for count in (3, 4):
        assert host_reads("survey_fig5", count) == pytest.approx([root / count] * count)


def test_k80_dies_share_the_slot_of_their_board():
    assert host_reads("k80_card", 1) == pytest.approx([PCIE_3_X16])
    assert host_reads("k80_card", 2) == pytest.approx([PCIE_3_X16 / 2] * 2)


# --- what links settle on ---------------------------------------------------------------------------------------


def with_parts(tmp_path, parts: str, *, fields: str = '"device"', base: str = "desktop_i7_3820"):
    """Write the desktop without its cards but with other parts, and return its path."""
    text = spec_files.find("systems", base).read_text(encoding="utf-8")
    text = re.sub(r"\[\[device\]\]\n(?:\w.*\n)*", "", text)
    text = re.sub(r"\n\[\[source\]\]\nfields = \[\"device[^\n]*\n(?:\w.*\n)*", "", text)
    source = f'\n[[source]]\nfields = [{fields}]\ntitle = "calculation"\nnote = "a test"\n' if fields else ""
    path = tmp_path / "lab.toml"
    path.write_text(f"{text}\n{parts}\n{source}", encoding="utf-8")
    return path


CARD = '[[device]]\ndevice = "gtx_1080"\nto = "socket0"\nlink = "pcie_4_x16"\n'


def host_channel(system) -> Channel:
    return system.topology.route("memory0", "gpu0").channels[-1]


def test_a_card_in_a_newer_slot_runs_at_its_own_generation(tmp_path):
    system = pm.load_system(with_parts(tmp_path, CARD, fields='"device"'))
    assert host_channel(system).link == "pcie_3_x16"
    assert host_channel(system).raw_bytes_per_s == 16 * GB
    assert system.remarks == (
        "gpu0: NVIDIA GeForce GTX 1080 runs at pcie_3_x16 in a slot of pcie_4_x16: the card has pcie_3_x16",
    )


def test_an_override_is_explicit_and_told(tmp_path):
    system = pm.load_system(with_parts(tmp_path, f"{CARD}override = true\n"))
    assert host_channel(system).link == "pcie_4_x16"
    assert host_channel(system).raw_bytes_per_s == 32 * GB
    assert system.remarks == (
        "gpu0: NVIDIA GeForce GTX 1080 runs at pcie_4_x16 although the card has pcie_3_x16, as the file asks",
    )


def test_a_card_in_an_older_or_narrower_slot_runs_at_the_slot(tmp_path):
    narrow = CARD.replace("pcie_4_x16", "pcie_5_x8")
    system = pm.load_system(with_parts(tmp_path, narrow))
    assert host_channel(system).link == "pcie_3_x8"
    old = CARD.replace("pcie_4_x16", "pcie_2_x16")
    system = pm.load_system(with_parts(tmp_path, old))
    assert host_channel(system).link == "pcie_2_x16"
    assert system.remarks == ()


def test_equal_machines_share_a_remark():
    (remark,) = pm.load_system("survey_fig6").remarks
    assert remark.startswith("node0 to node3: gpu0 to gpu3: NVIDIA GeForce GTX 1080 runs at pcie_3_x16")


def test_wiring_that_nobody_cites_is_said_to_be_presumed():
    (remark,) = pm.load_system("p2_16xlarge").remarks
    assert remark.startswith("how its 11 PCIe switches are joined is presumed: four boards to a switch")
    assert "no listing of the wiring was found" in remark
    p = pm.predict(pm.zoo.lenet5(), batch_size=8, system="p2_16xlarge", workers=16, sync="none")
    assert remark in p.remarks
    assert not any("presumed" in told for told in pm.load_system("dgx_1_p100").remarks)


def test_wiring_that_a_document_states_is_not(tmp_path):
    text = spec_files.find("systems", "p2_16xlarge").read_text(encoding="utf-8")
    fields = 'fields = ["switch.count", "switch.link", "switch.to"]\ntitle = "estimate"\nprovenance = "estimate"'
    assert fields in text
    cited = text.replace(fields, fields.replace("estimate", "datasheet"))
    path = tmp_path / "cited.toml"
    path.write_text(cited, encoding="utf-8")
    assert pm.load_system(path).remarks == ()


def test_a_striped_array_is_capped_by_its_drives_their_links_and_an_uplink(tmp_path):
    five = '[[storage]]\ndrive = "samsung_960_pro"\ncount = 5\nraid = 0\nto = "socket0"\nlink = "pcie_3_x4"\n'

    def rate(parts: str, fields: str = '"storage"') -> float:
        system = pm.load_system(with_parts(tmp_path, parts, fields=fields))
        return system.topology.route("ssd0", "memory0").capacity_bytes_per_s

    assert rate(five) == pytest.approx(17.5 * GB)
    assert rate(f"{five}raid_efficiency = 0.97\n") == pytest.approx(16.975 * GB)
    assert rate(five.replace("x4", "x2")) == pytest.approx(5 * 2 * 128 / 130 * GB)  # 1.97 GB/s to each drive
    behind = '[[switch]]\nnames = ["chipset"]\nto = "socket0"\nlink = "pcie_3_x4"\n' + five.replace(
        "socket0", "chipset"
    )
    assert rate(behind, '"switch", "storage"') == pytest.approx(4 * 128 / 130 * 0.79 * GB)  # DMI 3.0
    apart = pm.load_system(with_parts(tmp_path, five.replace("raid = 0\n", ""), fields='"storage"'))
    assert apart.topology.storages() == ("ssd0", "ssd1", "ssd2", "ssd3", "ssd4")
    assert [array.drive_count for array in apart.storages] == [1] * 5


# --- routes -------------------------------------------------------------------------------------------------------


def test_routes_to_and_from_the_host():
    topology = pm.load_system("dgx_1_p100").topology
    route = topology.route("memory0", "gpu5")
    assert route.nodes == ("memory0", "socket0", "socket1", "switch2", "gpu5")
    assert route.capacity_bytes_per_s == pytest.approx(PCIE_3_X16)
    back = topology.route("gpu5", "memory0")
    assert back.nodes == route.nodes[::-1]
    assert set(back.channel_names) & set(route.channel_names) == {"memory0=socket0"}  # else full duplex
    assert route.latency_s == pytest.approx(7e-6 + 0.15e-6)  # a copy starts once; the switch adds its passing


def test_devices_that_are_joined_copy_straight_and_others_through_the_host():
    topology = pm.load_system("dgx_1_p100").topology
    straight = topology.route("gpu0", "gpu4")
    assert straight.nodes == ("gpu0", "gpu4")
    assert straight.capacity_bytes_per_s == pytest.approx(0.85 * 20 * GB)
    staged = topology.route("gpu0", "gpu5")
    assert staged.nodes == ("gpu0", "switch0", "socket0", "memory0", "socket0", "socket1", "switch2", "gpu5")
    assert (staged.copy_count, staged.is_staged) == (2, True)
    assert staged.latency_s == pytest.approx(2 * (7e-6 + 0.15e-6))
    forced = topology.route("gpu0", "gpu1", through_host=True)
    assert forced.nodes == ("gpu0", "switch0", "socket0", "memory0", "socket0", "switch0", "gpu1")
    assert topology.route("gpu0", "gpu1").nodes == ("gpu0", "gpu1")


def test_a_staged_copy_passes_the_memory_bus_twice(tmp_path):
    two = CARD.replace("[[device]]\n", "[[device]]\ncount = 2\n")
    topology = pm.load_system(with_parts(tmp_path, two)).topology
    route = topology.route("gpu0", "gpu1", through_host=True)
    assert route.channel_names.count("memory0=socket0") == 2
    memory = topology.channels["memory0=socket0"].capacity_bytes_per_s
    assert route.capacity_bytes_per_s == pytest.approx(min(PCIE_3_X16, memory / 2))


def test_peer_access_needs_one_root_or_a_peer_link():
    dgx_1 = pm.load_system("dgx_1_p100").topology
    reached = {name for name in dgx_1.devices() if name != "gpu0" and dgx_1.peer_to_peer("gpu0", name)}
    assert reached == {"gpu1", "gpu2", "gpu3", "gpu4"}  # as a log of the machine lists
    p2 = pm.load_system("p2_16xlarge").topology
    assert all(p2.peer_to_peer(*pair) for pair in itertools.combinations(p2.devices(), 2))
    dgx_a100 = pm.load_system("dgx_a100").topology
    assert dgx_a100.route("gpu0", "gpu7").nodes == ("gpu0", "nvswitch0", "gpu7")
    assert dgx_a100.route("memory0", "gpu7").nodes == ("memory0", "socket0", "socket1", "switch3", "gpu7")
    survey = pm.load_system("survey_fig5").topology
    assert survey.route("gpu0", "gpu3").nodes == ("gpu0", "root0", "gpu3")


def test_devices_of_two_roots_of_a_socket_have_no_peer_access(tmp_path):
    roots = '[[root]]\ncount = 2\nto = "socket0"\nlink = "pcie_3_x16"\n'
    two = CARD.replace("[[device]]\n", "[[device]]\ncount = 2\n").replace('"socket0"', '["root0", "root1"]')
    topology = pm.load_system(with_parts(tmp_path, roots + two, fields='"root", "device"')).topology
    assert topology.root_complex("gpu1") == "root1"
    assert not topology.peer_to_peer("gpu0", "gpu1")
    assert topology.route("gpu0", "gpu1").is_staged


def test_storage_reaches_devices_by_the_memory_of_their_socket():
    topology = pm.load_system("dgx_1_p100").topology
    assert "memory1" in topology.route("ssd0", "gpu7").nodes
    assert "memory0" in topology.route("ssd0", "gpu0").nodes
    assert topology.route("ssd0", "memory0").copy_count == 1


def test_a_cloud_disk_is_as_fast_as_its_size_grants():
    topology = pm.load_system("gce_n1_standard_4").topology
    (disk,) = topology.storages()
    assert topology.route(disk, "memory0").capacity_bytes_per_s == pytest.approx(20 * 0.48 * 2**20)


def test_copy_engines_come_from_the_card():
    assert pm.load_system("survey_fig5").topology.copy_engine_count("gpu0") == 2


# --- clusters -----------------------------------------------------------------------------------------------------


def test_the_survey_s_cluster_is_four_machines_and_a_server():
    cluster = pm.load_system("survey_fig6")
    assert cluster.node_count == 4
    assert [name for name, _ in cluster.devices] == [f"node{n}/gpu{g}" for n in range(4) for g in range(4)]
    assert cluster.topology.memories() == (*(f"node{n}/memory0" for n in range(4)), "server/memory0")
    route = cluster.topology.route("server/ssd0", "node2/memory0")
    hosts = ("node2/nic0", "node2/socket0", "node2/memory0")
    assert route.nodes == ("server/ssd0", "server/socket0", "server/nic0", "fabric0", *hosts)
    # the narrowest is the adapter's slot of 8 lanes in the machines
    assert route.capacity_bytes_per_s == pytest.approx(PCIE_3_X16 / 2)


def test_gpus_of_two_machines_need_an_adapter_at_their_own_root_for_rdma(tmp_path):
    survey = pm.load_system("survey_fig6").topology
    assert not survey.rdma("node0/gpu0", "node1/gpu0")  # the adapter hangs off the socket, the cards off a root
    staged = survey.route("node0/gpu0", "node1/gpu0")
    assert staged.copy_count == 3
    assert {"node0/memory0", "node1/memory0"} < set(staged.nodes)
    path = tmp_path / "two_dgx_1.toml"
    path.write_text(
        'schema_version = 1\nname = "Two"\n[[node]]\nsystem = "dgx_1_p100"\ncount = 2\n'
        '[fabric]\nlink = "infiniband_edr"\nhop_latency_us = 0.1\n'
        '[[source]]\nfields = ["node", "fabric"]\ntitle = "calculation"\nnote = "a test"\n',
        encoding="utf-8",
    )
    topology = pm.load_system(path).topology
    assert topology.rdma_nics("node0/gpu6") == ("node0/nic2", "node0/nic3")
    direct = topology.route("node0/gpu6", "node1/gpu0")
    assert direct.nodes == (
        "node0/gpu6",
        "node0/switch3",
        "node0/nic3",
        "fabric0",
        "node1/nic0",
        "node1/switch0",
        "node1/gpu0",
    )
    assert direct.latency_s < topology.route("node0/gpu6", "node1/gpu0", through_host=True).latency_s
    inside = topology.route("node0/memory0", "node0/memory1")
    assert inside.nodes == ("node0/memory0", "node0/socket0", "node0/socket1", "node0/memory1")  # not by the fabric


def test_an_oversubscribed_fabric_has_narrower_links_to_its_spine(tmp_path):
    path = tmp_path / "leaves.toml"
    path.write_text(
        'schema_version = 1\nname = "Leaves"\n[[node]]\nsystem = "gce_n1_standard_4"\ncount = 4\n'
        '[fabric]\nlink = "gce_network_2017_x4"\nhop_latency_us = 40.0\nmachines_per_leaf = 2\noversubscription = 2.0\n'
        '[[source]]\nfields = ["node", "fabric"]\ntitle = "calculation"\nnote = "a test"\n',
        encoding="utf-8",
    )
    topology = pm.load_system(path).topology
    wire = 1.0 * GB * 0.9
    near, far = [("node0/memory0", "node1/memory0")], [(f"node{n}/memory0", f"node{n + 2}/memory0") for n in range(2)]
    assert shared_rates(topology, near) == pytest.approx([wire])
    assert shared_rates(topology, far[:1]) == pytest.approx([wire])
    assert shared_rates(topology, far) == pytest.approx([wire / 2] * 2)
    slots = 2 * 0.15e-6
    assert topology.route(*near[0]).latency_s == pytest.approx(30e-6 + 20e-6 + slots)
    assert topology.route(*far[0]).latency_s == pytest.approx(30e-6 + 40e-6 + slots)


def test_one_worker_of_a_cluster_of_cpus_is_one_of_its_machines():
    alone = pm.predict(pm.zoo.fcn5(), batch_size=16, system="gce_n1_standard_4")
    assert pm.predict(pm.zoo.fcn5(), batch_size=16, system="gce_n1_standard_4_x4").step_s == alone.step_s


# --- every shipped system ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=spec_files.names("systems"))
def shipped(request):
    return pm.load_system(request.param)


def graph_of(topology):
    """The wires as networkx has them, for its own algorithms: a channel in each direction."""
    graph = nx.MultiDiGraph()
    for wire in topology.wires:
        graph.add_edge(wire.lower, wire.upper, channel=wire.upward)
        graph.add_edge(wire.upper, wire.lower, channel=wire.downward)
    return graph


def step_of(names):
    """Return the step from part to part that is walked: of a large system, whose machines are alike, about twenty."""
    return 1 if os.environ.get("PERFMODEL_FULL_WALK") else 1 + len(names) // 20


def test_every_part_reaches_every_memory_and_all_is_linked(shipped):
    topology = shipped.topology
    assert nx.is_strongly_connected(graph_of(topology))
    assert set(graph_of(topology)) == set(topology.places)
    memories = topology.memories()
    for device in topology.devices():
        has_nics = bool(topology.rdma_nics(device))
        for memory in memories[:: step_of(memories)]:
            far = topology.places[memory].node != topology.places[device].node
            assert topology.route(memory, device).is_staged == (far and not has_nics)
        for storage in topology.storages():
            assert topology.route(storage, device).is_staged
    assert [name for name, _ in shipped.devices] == list(topology.devices())
    assert [array.name for array in shipped.storages] == list(topology.storages())


def test_channel_names_are_unique_and_routes_never_pass_an_end(shipped):
    topology = shipped.topology
    by_name: dict[str, set[Channel]] = {}
    for wire in topology.wires:
        for channel in (wire.upward, wire.downward):
            by_name.setdefault(channel.name, set()).add(channel)
    assert {len(channels) for channels in by_name.values()} == {1}
    names, graph = [*topology.devices(), *topology.memories(), *topology.storages()], graph_of(topology)
    pairs = ((source, sink) for source in names[:: step_of(names)] for sink in names if source != sink)
    for source, sink in pairs:
        route = topology.route(source, sink)
        inner = {topology.places[name].kind for name in route.nodes[1:-1]}
        assert not inner & {"device", "storage"}
        assert route == topology.route(source, sink)
        for (lower, upper), channel in zip(itertools.pairwise(route.nodes), route.channels, strict=True):
            assert channel in [edge["channel"] for edge in graph[lower][upper].values()]


def test_parts_and_description_name_everything(shipped):
    parts = shipped.parts()
    assert {part.name for part in parts} >= set(shipped.topology.devices())
    assert all(0 < part.typical_bytes_per_s <= part.raw_bytes_per_s for part in parts)
    for _, device in shipped.devices:
        assert device.name in shipped.describe()


@pytest.mark.parametrize("name", ["survey_fig5", "survey_fig6", "dgx_a100", "dgx_1_p100"])
def test_a_picture_has_every_part_once_and_is_saved(name, tmp_path):
    system = pm.load_system(name)
    figure = system.plot(tmp_path / "picture.svg")
    texts = [text.get_text() for text in figure.axes[0].texts]
    for place in system.wiring.places:
        own = place.name.rpartition("/")[2]
        assert texts.count(own) == sum(other.name.rpartition("/")[2] == own for other in system.wiring.places)
    assert "12.4" in texts or "25.5" in texts
    assert (tmp_path / "picture.svg").stat().st_size > 1000


def test_no_two_boxes_of_a_picture_share_a_place(shipped):
    boxes = [
        text for text in shipped.plot().axes[0].texts if text.get_bbox_patch() is not None and text.get_zorder() == 4
    ]
    places = [tuple(round(at, 6) for at in text.get_position()) for text in boxes]
    assert len(set(places)) == len(places) == len(shipped.wiring.places)


def test_the_command_shows_parts_and_rates(capsys):
    from perfmodel.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["specs", "show", "survey_fig5"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    row = next(line for line in told.splitlines() if line.startswith("gpu3"))
    assert " ".join(row.split()) == "gpu3 device NVIDIA GeForce GTX 1080 root0 pcie_3_x16 16.000 12.446"
    assert "gpu0 to gpu3: NVIDIA GeForce GTX 1080 runs at pcie_3_x16 in a slot of pcie_4_x16" in told


# --- properties ---------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.floats(1.0, 100.0), st.floats(0.0, 10.0)), min_size=1, max_size=8))
def test_a_route_is_at_least_as_wide_as_any_other(branches):
    """Random graphs of switches: no simple path is wider, and none equally wide is quicker."""
    places = [Place(name="socket0", kind="socket"), Place(name="end", kind="device")]
    places += [Place(name=f"switch{index}", kind="switch") for index in range(len(branches))]
    wires = []
    for index, (above, rate, latency) in enumerate(branches):
        upper = "socket0" if above >= index else f"switch{above}"
        rates = {"capacity_bytes_per_s": rate, "raw_bytes_per_s": rate, "link": "l", "latency_s": latency}
        wires.append(Wire.between(f"switch{index}", upper, **rates))
        wires.append(Wire.between("end", f"switch{index}", **rates))
    topology = Topology(places, wires)
    route = topology.route("socket0", "end")

    graph = graph_of(topology)

    def measure(path):
        channels = [graph[a][b][0]["channel"] for a, b in itertools.pairwise(path)]
        return -min(c.capacity_bytes_per_s for c in channels), sum(c.latency_s for c in channels)

    best = min(measure(path) for path in nx.all_simple_paths(nx.DiGraph(graph), "socket0", "end"))
    assert (-route.capacity_bytes_per_s, route.latency_s) == pytest.approx(best)


# --- faults ---------------------------------------------------------------------------------------------------------

SSD = '[[storage]]\ndrive = "samsung_960_pro"\nto = "socket0"\nlink = "pcie_3_x4"\n'
PEER = '[[peer_link]]\nbetween = [["gpu0", "gpu1"]]\nlink = "nvlink_1_x1"\n'
TWO = CARD.replace("[[device]]\n", "[[device]]\ncount = 2\n")
ROOT = '[[root]]\nto = "socket0"\nlink = "pcie_3_x16"\n'
SWITCH = '[[peer_switch]]\namong = ["gpu0", "gpu1"]\nlink = "nvlink_3_x12"\n'
NIC = '[[nic]]\nto = "socket0"\nlink = "pcie_3_x8"\nnetwork = "infiniband_edr"\n'
CIRCLE = '[[switch]]\nto = "switch1"\nlink = "pcie_3_x16"\n[[switch]]\nto = "switch0"\nlink = "pcie_3_x16"\n'


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (CARD.replace("socket0", "sockt0"), "device[0].to: value 'sockt0': must be one of socket0 (nearest: socket0)"),
        (TWO + PEER.replace("gpu1", "gpu2"), "peer_link[0].between: value 'gpu2': must be one of gpu0, gpu1"),
        (TWO + PEER.replace("gpu1", "gpu0"), "must be two different devices"),
        (TWO + PEER.replace("x1", "x3"), "peer_link[0].link: value 'nvlink_1_x3': unknown link"),
        (CARD.replace("x16", "x0"), "device[0].link: value 'pcie_4_x0': unknown link"),
        (CARD.replace("pcie_4", "pcie_9"), "Did you mean 'pcie_"),
        (CARD.replace("gtx_1080", "gtx_1081"), "Did you mean 'gtx_1080'"),
        (CARD.replace("gtx_1080", "i7_3820"), "device[0].device: value 'i7_3820': must be a GPU"),
        (
            CARD + 'names = ["a", "b"]\n',
            "device[0].names: value ['a', 'b']: must be as many different names as count = 1",
        ),
        (CARD + "lanes = 16\n", "device[0].lanes: value 16: unknown key"),
        (TWO.replace('"socket0"', '["socket0", "socket0", "socket0"]'), "count = 2 is not a multiple of 3 ports"),
        (SSD + "raid = 0\ncount = 0\n", "storage[0].count: value 0: must be greater than or equal to 1"),
        (SSD + "raid = 5\n", "storage[0].raid: value 5: must be 0"),
        (SSD.replace("samsung", "samsang"), "Did you mean 'samsung_960_pro'"),
        (SSD + "raid_efficiency = 0.9\n", "is allowed only with raid = 0"),
        (SSD + "size_gib = 20\n", "storage[0].size_gib: value 20.0: is allowed only for a cloud disk"),
        (SSD.replace("samsung_960_pro", "gce_pd_ssd"), "storage[0].size_gib: value None: is needed"),
        (ROOT + "latency_us = -1.0\n", "root[0].latency_us: value -1.0: must be greater than or equal to 0"),
        (CIRCLE, "switch0 -> switch1 -> switch0 is a circle"),
        (CIRCLE + SSD, "from which nothing has a path to storage"),
        (ROOT + 'names = ["socket0"]\n', "root[0].names: value 'socket0': must be the name of one part only"),
        (NIC.replace("edr", "xdr"), "nic[0].network: value 'infiniband_xdr': unknown link"),
        (NIC.replace("infiniband_edr", "pcie_3_x16"), "must be a link such as efa or ethernet or infiniband, not pcie"),
        (NIC.replace("pcie_3_x8", "infiniband_edr"), "nic[0].link: value 'infiniband_edr': must be a link"),
        (SSD.replace("pcie_3_x4", "infiniband_edr"), "storage[0].link: value 'infiniband_edr': must be a link such as"),
        (SSD.replace("pcie_3_x4", "nvlink_1_x1"), "storage[0].link: value 'nvlink_1_x1': must be a link such as pcie"),
        (ROOT.replace("pcie_3_x16", "ethernet_10_gbit"), "root[0].link: value 'ethernet_10_gbit': must be"),
        (CARD.replace("pcie_4_x16", "ethernet_10_gbit"), "must be a link such as nvlink or pcie, not ethernet"),
        (CARD.replace("pcie_4_x16", "nvlink_1_x4"), "must be a slot for the card, which has pcie_3_x16"),
        (CARD.replace("pcie_4_x16", "ethernet_1_gbit") + "override = true\n", "value 'ethernet_1_gbit': must be"),
        (TWO + PEER.replace("nvlink_1_x1", "ethernet_10_gbit"), "peer_link[0].link: value 'ethernet_10_gbit'"),
        (TWO + PEER.replace('"gpu1"]]', '"gpu1"], ["gpu1", "gpu0"]]'), "value ['gpu1', 'gpu0']: must be joined once"),
        (TWO + PEER + PEER, "peer_link[1].between: value ['gpu0', 'gpu1']: must be joined once"),
        (TWO + SWITCH.replace("gpu1", "gpu0"), "peer_switch[0].among: value ['gpu0', 'gpu0']: must be different"),
        (TWO + SWITCH.replace("nvlink_3_x12", "infiniband_edr"), "peer_switch[0].link: value 'infiniband_edr'"),
        (TWO + SWITCH + 'name = "memory"\n', "peer_switch[0].name: value 'memory': must not be host or memory"),
        (CARD + 'names = ["host"]\n', "device[0].names: value 'host': must not be host or memory"),
        (SSD + 'names = ["memory"]\n', "storage[0].names: value 'memory': must not be host or memory"),
        (CARD + "count = 1000000\n", "device[0].count: value 1000000: must be less than or equal to 1024"),
    ],
)
def test_a_fault_names_field_value_and_what_is_allowed(tmp_path, parts, told):
    kinds = [kind for kind in ("device", "peer_link", "storage", "root", "switch") if f"[[{kind}]]" in parts]
    path = with_parts(tmp_path, parts, fields=", ".join(f'"{kind}"' for kind in kinds))
    with pytest.raises(SpecError) as caught:
        pm.load_system(path)
    assert told in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_card_that_hangs_on_another_protocol_than_its_file_says_is_overridden(tmp_path):
    power = CARD.replace("pcie_4_x16", "nvlink_1_x4") + "override = true\n"  # some CPUs speak NVLink
    topology = pm.load_system(with_parts(tmp_path, power)).topology
    assert topology.route("socket0", "gpu0").channels[-1].link == "nvlink_1_x4"


@pytest.mark.parametrize(("table", "key"), [("sockets", "count"), ("socket_link", "link_count")])
def test_a_million_sockets_or_links_of_them_are_refused(tmp_path, table, key):
    text = spec_files.find("systems", "server_2x_xeon_e5_2630_v3").read_text(encoding="utf-8")
    path = tmp_path / "lab.toml"
    path.write_text(re.sub(rf"^{key} = 2$", f"{key} = 1000000", text, flags=re.MULTILINE), encoding="utf-8")
    with pytest.raises(SpecError, match=rf"{table}.{key}: value 1000000: must be less than or equal to"):
        pm.load_system(path)


def test_every_fault_of_a_file_is_told_at_once(tmp_path):
    wrong = CARD.replace("socket0", "sockt0").replace("pcie_4", "pcie_9") + SSD.replace("samsung", "samsang")
    with pytest.raises(SpecError) as caught:
        pm.load_system(with_parts(tmp_path, wrong, fields=""))
    assert len(caught.value.faults) == 3


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("gce_n1_standard_4", "gce_n1_standard_5", "node[0].system: value 'gce_n1_standard_5': unknown system"),
        ('"gce_n1_standard_4"', '"gce_n1_standard_4_x4"', "must be a single machine"),
        ('"gce_n1_standard_4"', '"desktop_i7_3820"', "node0 has no [[nic]]"),
        ("count = 4", "count = 0", "node[0].count: value 0"),
        ("gce_network_2017_x4", "ethernet_25_gbit", "must be a network of each machine; node0 has gce_network_2017_x4"),
        ("gce_network_2017_x4", "gce_netwrk_2017_x4", "Did you mean 'gce_network_2017_x8'"),
        ("120.0", "-1.0", "fabric.hop_latency_us: value -1.0"),
        ("120.0", "120.0\noversubscription = 2.0", "needs machines_per_leaf"),
        ("120.0", "120.0\noversubscription = 0.5", "fabric.oversubscription: value 0.5"),
        ("120.0", "120.0\nmachines_per_leaf = 2\noversubscription = 1e9", "oversubscription: value 1000000000.0"),
        ("count = 4", "count = 1000000", "node[0].count: value 1000000: must be less than or equal to 4096"),
        ("count = 4", 'count = 2\nnames = ["a", "a"]', "must be as many different names as count = 2"),
    ],
)
def test_a_fault_of_a_cluster_is_told(tmp_path, old, new, told):
    text = spec_files.find("systems", "gce_n1_standard_4_x4").read_text(encoding="utf-8")
    path = tmp_path / "lab.toml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        pm.load_system(path)
    assert told in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [{"capacity_bytes_per_s": 0.0}, {"raw_bytes_per_s": float("nan")}, {"latency_s": -1e-6}, {"startup_s": -1.0}],
)
def test_a_channel_is_never_negative(wrong):
    channel = Channel(name="a>b", capacity_bytes_per_s=1.0, raw_bytes_per_s=1.0)
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        dataclasses.replace(channel, **wrong)


def test_unknown_nodes_are_told():
    topology = pm.load_system("survey_fig5").topology
    with pytest.raises(UnknownNameError, match="Did you mean 'gpu3'"):
        topology.route("memory0", "gpu33")
    with pytest.raises(UnknownNameError, match="device of the system"):
        topology.peer_to_peer("gpu0", "root0")
    with pytest.raises(ArgumentError, match="a node other than source"):
        topology.route("gpu0", "gpu0")


def two_machines(tmp_path, fabric):
    """Two machines with two networks: an adapter without RDMA beside the device, one with it at the socket."""
    parts = '[[root]]\nto = "socket0"\nlink = "pcie_3_x16"\n' + CARD.replace('"socket0"', '"root0"')
    parts += '[[nic]]\nto = "root0"\nlink = "pcie_3_x8"\nnetwork = "ethernet_10_gbit"\n'
    parts += '[[nic]]\nto = "socket0"\nlink = "pcie_3_x16"\nnetwork = "infiniband_edr"\n'
    with_parts(tmp_path, parts, fields='"root", "device", "nic"')
    cluster = f'schema_version = 1\nname = "two"\n[[node]]\nsystem = "{tmp_path / "lab.toml"}"\ncount = 2\n'
    cluster += f'[fabric]\nlink = "{fabric}"\nhop_latency_us = 1.0\n'
    cluster += '[[source]]\nfields = ["node", "fabric"]\ntitle = "calculation"\nnote = "a test"\n'
    path = tmp_path / f"{fabric}.toml"
    path.write_text(cluster, encoding="utf-8")
    return pm.load_system(path).topology


@pytest.mark.parametrize("fabric", ["ethernet_10_gbit", "infiniband_edr"])
def test_an_adapter_is_of_use_only_on_its_own_network(tmp_path, fabric):
    """One network has no RDMA, the adapter of the other does not reach the device's root: both are staged."""
    topology = two_machines(tmp_path, fabric)
    assert not topology.rdma("node0/gpu0", "node1/gpu0")
    route = topology.route("node0/gpu0", "node1/gpu0")
    assert route.copy_count == 3
    assert f"node0/nic{0 if fabric == 'ethernet_10_gbit' else 1}" in route.nodes
    assert topology.route("node0/memory0", "node1/gpu0").is_staged


def test_a_message_over_a_network_is_started_by_its_adapter():
    topology = pm.load_system("dgx_a100_x4").topology
    over_network = topology.route("node0/gpu0", "node1/gpu0").latency_s
    assert over_network == pytest.approx(1.3e-6 + 2 * 0.15e-6 + 0.13e-6)  # adapters, two PCIe switches, the network's
    assert topology.route("node0/memory0", "node0/gpu0").latency_s > 5e-6  # the host starts a copy
