"""Measured collectives: reading, what may be fitted, libraries, scores, and the command that prints them."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from board_page import page_blocks
from board_records import Collected
from perfmodel.cli import app
from perfmodel.errors import ArgumentError, SpecError, TableError, UnknownNameError
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.library import load_collective_library
from perfmodel.hardware.topology import Topology
from perfmodel.hardware.wires import Place
from perfmodel.measurements.kernel_tables import read_collectives, read_data_folder
from perfmodel.sync.placed import place
from perfmodel.sync.registry import collective, place_library
from perfmodel.validation.reports.clusters import (
    CONSTANT,
    INTERPOLATED,
    NEAREST,
    predicted_times,
    report_of,
)
from perfmodel.validation.reports.own_tables import own_table
from score_tables import score_folder

HEAD = "system,lib_version,device,op,dtype,n_devices,elements,bytes,seconds\n"
ROW = "a100_sxm,nccl 2.27.3,NVIDIA A100-SXM4-80GB,{op},half,{devices},1,{size},{seconds}\n"
BENCH = "device,algorithm,op,bytes,n_devices,n_nodes,seconds\n"


def written(tmp_path, *rows, head=HEAD):
    folder = tmp_path / "systems"
    folder.mkdir(exist_ok=True)
    path = folder / "nccl_a100_here.csv"
    path.write_text(head + "".join(rows))
    return path


def calls(operation="all_reduce"):
    """Calls that take exactly what the shipped file says."""
    library, topology = load_collective_library("nccl_2_27"), load_system("dgx_a100").topology
    name = {"all_to_all": "alltoall"}.get(operation, operation)
    found = []
    for devices in (2, 4, 8):
        placed = place_library(library, operation, topology, topology.devices()[:devices])
        sizes = [512 * 2**power for power in range(20)]
        found += [ROW.format(op=name, devices=devices, size=n, seconds=repr(float(placed.time(n)))) for n in sizes]
    return found


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_what_the_file_says_scores_without_error(tmp_path, operation):
    table = read_collectives(written(tmp_path, *calls(operation)))
    assert sum(row.is_fitted for row in table.rows) == 20  # every other size, on 2 and 8 devices
    assert {row.worker_count for row in table.rows if row.is_fitted} == {2, 8}
    scores = {each.score.model: each.score for each in report_of(table).parts if each.part == "all"}
    assert scores["perfmodel"].mape == pytest.approx(0, abs=1e-9)
    assert scores["perfmodel"].cells == 40
    assert scores["perfmodel"].fitted == 10
    assert min(scores[name].mape for name in (NEAREST, INTERPOLATED, CONSTANT)) > 1


def test_a_slower_measurement_is_an_error_of_the_model(tmp_path):
    rows = [ROW.format(op="all_reduce", devices=n, size=2**20, seconds=1e-3) for n in (2, 4, 8)]
    table = read_collectives(written(tmp_path, *rows, ROW.format(op="all_reduce", devices=2, size=2048, seconds=1e-5)))
    scored = [row for row in table.rows if not row.is_fitted]
    error = np.mean(np.abs(predicted_times(scored) / 1e-3 - 1))
    own = next(each for each in report_of(table).parts if each.score.model == "perfmodel")
    assert own.score.mape == pytest.approx(100 * error)


def test_rows_of_other_algorithms_and_hosts_are_counted(tmp_path):
    host = "Tesla P100-PCIE (host X99-E WS)"
    rows = [
        f"{host},NCCL 2.0 MPI,allreduce,400000,2,,1e-4\n",
        f"{host},NCCL 2.0 MPI,allreduce,400000,8,,2e-4\n",
        f"{host},NCCL 2.0 MPI,allreduce,400000,16,2,4e-4\n",
        f"{host},Baidu RingAllReduce,allreduce,400000,16,2,4e-4\n",
    ]
    table = read_collectives(written(tmp_path, *rows, head=BENCH))
    assert [row.is_fitted for row in table.rows] == [True, False]
    assert table.left_out == {"on several hosts, whose network is not stated": 1, "by Baidu RingAllReduce": 1}


@pytest.mark.parametrize(
    ("wrong", "right", "error", "told"),
    [
        ("-1", "1e-05", TableError, "row 2, column seconds: must be"),
        (",1,1,512,", ",2,1,512,", TableError, "row 2, column n_devices: must be"),
        ("all_reduced", "all_reduce", UnknownNameError, "Did you mean 'all_reduce'"),
        ("nccl 2.27.4", "nccl 2.27.3", UnknownNameError, "Did you mean 'nccl 2.27.3'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, wrong, right, error, told):
    row = ROW.format(op="all_reduce", devices=2, size=512, seconds=1e-05).replace(right, wrong, 1)
    with pytest.raises(error, match=told):
        read_collectives(written(tmp_path, row))


def test_more_devices_than_the_system_has(tmp_path):
    rows = [ROW.format(op="all_reduce", devices=n, size=512, seconds=1e-5) for n in (2, 16)]
    with pytest.raises(TableError, match="at most 8 devices on system dgx_a100"):
        report_of(read_collectives(written(tmp_path, *rows)))


def test_another_format_is_no_table_of_collectives(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("network,seconds\nalexnet,1\n")
    assert read_collectives(path) is None
    assert own_table(path) is None
    assert own_table("shi2016") is None


def test_the_command_prints_scores_by_name_and_refuses_what_has_no_effect(tmp_path):
    path = written(tmp_path, *calls())
    given = ["validate", "nccl_a100", "--data", str(tmp_path)]
    told = CliRunner().invoke(app, given)
    assert told.exit_code == 0, told.output
    assert "constant bus bandwidth" in told.output
    content = json.loads(CliRunner().invoke(app, ["validate", str(path), "--json"]).output)
    assert content["scores"][0]["mape"] == content["mape_percent"] == pytest.approx(0, abs=1e-9)
    assert len(content["rows"]) == 40
    assert content["rows"][0]["predicted_s"] == pytest.approx(content["rows"][0]["measured_s"])
    assert content["rows"][0]["constant_bandwidth_s"] != pytest.approx(content["rows"][0]["measured_s"], rel=0.01)
    refused = CliRunner().invoke(app, [*given, "--rows"])
    assert isinstance(refused.exception, ArgumentError)
    assert "--rows" in str(refused.exception)
    written(tmp_path, *calls()).rename(path.with_name("nccl_a100_four_hdr_adapters.csv"))  # known by its own name
    written(tmp_path, *calls())
    assert CliRunner().invoke(app, given).output == told.output
    missing = CliRunner().invoke(app, ["validate", "deepbench_allreduce", "--data", str(tmp_path)])
    assert isinstance(missing.exception, TableError)
    assert "nccl_a100_here" in str(missing.exception)


def test_the_scoreboard_has_a_part_for_them(tmp_path):
    written(tmp_path, *calls())
    collected = Collected()
    score_folder(read_data_folder(tmp_path), collected)
    board = collected.board()
    assert [(table.name, table.kind, table.rows) for table in board.tables] == [("nccl_a100_here", "collectives", 40)]
    assert "nccl_a100_here" in repr(page_blocks(board, pictures=[]))


def test_protocols_are_chosen_by_size_and_never_lose_to_one_of_them():
    library, topology = load_collective_library("nccl_2_27"), load_system("dgx_a100").topology
    placed = place_library(library, "all_reduce", topology, topology.devices())
    sizes = np.geomspace(1e2, 1e9, 50)
    times = placed.time(sizes)
    assert np.all(np.diff(times) > 0)
    chosen = [placed.choice(size)[1] for size in sizes]
    assert list(dict.fromkeys(chosen)) == ["ll", "ll128", "simple"]
    assert float(place_library(library, "all_reduce", topology, ("gpu0",)).time(1e6)) == 0.0
    with pytest.raises(UnknownNameError, match="operation of NCCL"):
        place_library(library, "all_reduced", topology, topology.devices())


def test_a_library_file_with_a_fault_is_refused(tmp_path):
    text = (spec_files.shipped_folder() / "collectives" / "nccl_2_27.toml").read_text()
    path = tmp_path / "wrong.toml"
    path.write_text(text.replace("bandwidth_efficiency = 0.323", "bandwidth_efficiency = 27.6"))
    with pytest.raises(SpecError, match=r"ll128\.bandwidth_efficiency: value 27\.6: must be from 0.01 to 1.2"):
        load_collective_library(path)
    path.write_text(text.replace("bandwidth_efficiency = 0.323\n", ""))
    with pytest.raises(SpecError, match=r"ll128\.bandwidth_efficiency: missing"):
        load_collective_library(path)


def test_no_way_from_one_end_to_the_other_names_both():
    topology = Topology([Place(name=f"gpu{index}", kind="device") for index in range(2)], [])
    with pytest.raises(ArgumentError) as caught:
        place(collective("ring_all_reduce"), topology, ("gpu0", "gpu1"))
    assert "gpu0" in str(caught.value)
    assert "gpu1" in str(caught.value)


def test_ranks_and_servers_are_checked():
    topology = load_system("survey_fig5").topology
    with pytest.raises(ArgumentError, match="distinct devices"):
        place(collective("ring_all_reduce"), topology, ("gpu0", "gpu0"))
    with pytest.raises(UnknownNameError, match="gpu9"):
        place(collective("ring_all_reduce"), topology, ("gpu0", "gpu9"))
    with pytest.raises(ArgumentError, match="2 nodes: one for each server"):
        place(collective("parameter_server"), topology, ("gpu0", "gpu1"), servers=("memory0",), server_count=2)


def test_devices_below_one_root_share_it():
    # REFERENCE's host tree: all push through the root, then all pull: 2 g n / B of the root
    topology = load_system("survey_fig5").topology
    tree = place(collective("host_tree"), topology, topology.devices())
    root = topology.channels["root0>socket0"].capacity_bytes_per_s
    assert tree.seconds_per_byte == pytest.approx(2 * 4 / root)
    assert tree.channel_bytes(1e6)["root0>socket0"] == pytest.approx(4e6)


def test_rings_follow_the_links_of_a_cube_mesh():
    topology = load_system("dgx_1_p100").topology
    ring = place(collective("ring_all_reduce"), topology, tuple(reversed(topology.devices())))
    routes = [route for each in ring.rounds for route in ring.routes(each)]
    assert all(channel.link.startswith("nvlink") for route in routes for channel in route.channels)


def test_both_ways_of_a_ring_halve_the_time_where_one_ring_leaves_the_other_way_free():
    for system, count, gain in (("dgx_1_p100", 5, 2), ("dgx_1_p100", 8, 1), ("dgx_a100", 8, 1)):
        topology = load_system(system).topology
        ranks = topology.devices()[:count]
        one, both = (place(collective("ring_all_reduce"), topology, ranks, both_ways=ways) for ways in (False, True))
        assert one.seconds_per_byte / both.seconds_per_byte == pytest.approx(gain)
        assert sum(one.channel_bytes(1e6).values()) == pytest.approx(sum(both.channel_bytes(1e6).values()))


def test_a_hierarchy_takes_the_machines_as_groups():
    topology = load_system("dgx_a100_x4").topology
    nested = place(collective("hierarchical"), topology, topology.devices())
    flat = place(collective("ring_all_reduce"), topology, topology.devices())
    # a ring for each adapter sends inside and between machines at once, a hierarchy one after the other
    assert flat.seconds_per_byte < nested.seconds_per_byte < 2 * flat.seconds_per_byte
    with pytest.raises(ArgumentError, match="the same number in each machine"):
        place(collective("hierarchical"), topology, topology.devices()[:9])
