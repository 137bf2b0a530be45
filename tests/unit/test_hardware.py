"""Hardware specs: hand arithmetic on the shipped files, and links, systems and profiles built from them."""

import subprocess
import sys

import pytest

from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.hardware.catalogue import (
    catalogue,
    load_device,
    load_link,
    load_storage,
    load_system,
)
from perfmodel.hardware.library import LibraryProfile
from perfmodel.hardware.spec_files import names
from perfmodel.prediction.device.gpu_clock import sustained_clocks_mhz, sustained_peak_flop_per_s


def test_light_import():
    """Only loading a spec may import pydantic."""
    code = "import sys, perfmodel.hardware.catalogue; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- GPUs -------------------------------------------------------------------------------------------------


def test_gtx_1080_in_base_units():
    gpu = load_device("gtx_1080")
    assert gpu.peak_flop_per_s("fp32") == pytest.approx(2 * 20 * 128 * 1.733e9, rel=1e-4)  # 8872.96 GFLOP/s
    assert gpu.memory_bandwidth_bytes_per_s == 10e9 * 256 / 8  # 10 Gb/s on 256 bit
    assert gpu.memory_capacity_bytes == 8 * 2**30
    assert gpu.usable_memory_bytes == pytest.approx(8113 * 2**20, rel=1e-3)
    assert gpu.l2_bytes == 2 * 2**20
    assert gpu.context_bytes == 200 * 2**20
    assert gpu.clock_hz == 1733e6
    assert gpu.launch_latency_s == pytest.approx(3_040 / 1733e6, rel=3e-3)  # 1.75 us
    assert sustained_peak_flop_per_s(gpu) == pytest.approx(gpu.peak_flop_per_s() * 1840 / 1733, rel=1e-3)  # by power
    assert gpu.host_link.link_name == "pcie_3_x16"
    # ridge point (Williams, Waterman, Patterson 2009): 8872.96 GFLOP/s over the data sheet's 320 GB/s
    assert gpu.peak_flop_per_s() / gpu.memory_bandwidth_bytes_per_s == pytest.approx(27.73, abs=0.01)


def test_k80_die_is_limited_by_issue_not_by_its_base_clock():
    die = load_device("tesla_k80_gk210")
    assert die.peak_flop_per_s() == pytest.approx(2 * 13 * 192 * 875e6)  # 4.368 TFLOP/s
    assert sustained_peak_flop_per_s(die) == pytest.approx(4.368e12 * 128 / 192, rel=1e-3)
    assert die.memory_bandwidth_bytes_per_s < 250e9  # one die, not the board's 480


@pytest.mark.parametrize("name", ["tesla_k20x", "tesla_k40", "tesla_k80_gk210"])
def test_error_correction_of_kepler_boards_takes_bandwidth(name):
    die = load_device(name)
    assert die.memory.ecc_bandwidth_fraction == 0.87
    assert die.sustained_memory_bandwidth_bytes_per_s == pytest.approx(0.87 * die.memory_bandwidth_bytes_per_s)
    assert any("memory.ecc_bandwidth_fraction" in source.fields for source in die.source)


def test_bandwidth_of_a_k80_die_with_error_correction():
    # 5 Gb/s on 384 bit are 240 GB/s at the pins (240.6 in the file); 0.87 of them 209.3
    die = load_device("tesla_k80_gk210")
    assert die.memory_bandwidth_bytes_per_s == pytest.approx(5e9 * 384 / 8, rel=3e-3)
    assert die.sustained_memory_bandwidth_bytes_per_s == pytest.approx(209.32e9, rel=1e-4)


def test_a_board_that_says_nothing_of_error_correction_keeps_its_bandwidth():
    for name in ("gtx_1080", "gtx_980", "tesla_p100_pcie", "v100_sxm2"):  # HBM2 has bits of its own for it
        gpu = load_device(name)
        assert gpu.sustained_memory_bandwidth_bytes_per_s == gpu.memory_bandwidth_bytes_per_s


@pytest.mark.parametrize("name", ["gtx_980", "gtx_1080", "tesla_k80_gk210", "v100_sxm2", "h100_sxm"])
def test_the_launch_gap_is_a_number_of_cycles(name):
    gpu = load_device(name)
    assert gpu.launch_latency_s * gpu.clock_hz == pytest.approx(3_040, rel=5e-3)


def test_usable_memory_falls_back_to_the_nominal_one():
    assert load_device("gtx_980").usable_memory_bytes == 4 * 2**30


def test_a_dtype_the_gpu_lacks_is_an_error():
    with pytest.raises(UnknownNameError, match=r"GTX 980 'fp16'.*Known: fp32, fp64"):
        load_device("gtx_980").peak_flop_per_s("fp16")


@pytest.mark.parametrize("name", ["v100_sxm2", "a100_40_sxm", "h100_sxm", "t4"])
def test_tensor_peaks_are_dense(name):
    """Tensor cores x multiply-adds x 2 x clock: half of the sparse number that data sheets like to print."""
    multiply_adds = {
        "v100_sxm2": 640 * 64 * 1.53e9,
        "t4": 320 * 64 * 1.59e9,
        "a100_40_sxm": 432 * 256 * 1.41e9,
        "h100_sxm": 528 * 512 * 1.83e9,
    }
    assert load_device(name).peak_flop_per_s("fp16") == pytest.approx(2 * multiply_adds[name], rel=1e-3)


# --- CPUs -------------------------------------------------------------------------------------------------


def test_i7_3820_rates_and_clocks():
    cpu = load_device("i7_3820")
    assert cpu.isas == ("sse", "avx")
    assert [cpu.clock_hz(active_cores=n) for n in (1, 2, 3, 4)] == [3.8e9, 3.8e9, 3.7e9, 3.7e9]
    assert cpu.peak_flop_per_s(active_cores=4) == pytest.approx(4 * 16 * 3.7e9)  # 236.8 GFLOP/s
    assert cpu.peak_flop_per_s(active_cores=1, isa="sse") == pytest.approx(8 * 3.8e9)
    assert cpu.peak_flop_per_s("fp64") == pytest.approx(4 * 8 * 3.7e9)
    assert cpu.memory_bandwidth_bytes_per_s == 4 * 1600e6 * 8
    assert cpu.sustained_memory_bandwidth_bytes_per_s == pytest.approx(0.69 * 51.2e9)
    assert (cpu.l2_bytes, cpu.l3_bytes) == (256 * 2**10, 10 * 2**20)
    assert cpu.thread_count == 8


def test_wide_simd_lowers_the_clock_of_the_xeon():
    cpu = load_device("xeon_e5_2630_v3")
    assert cpu.clock_hz(active_cores=8, isa="sse") == 2.6e9
    assert cpu.clock_hz(active_cores=8, isa="avx2") == 2.4e9
    assert cpu.peak_flop_per_s() == pytest.approx(8 * 32 * 2.4e9)


@pytest.mark.parametrize("active_cores", [0, 5])
def test_more_or_less_active_cores_than_there_are(active_cores):
    with pytest.raises(ArgumentError, match="from 1 to 4"):
        load_device("i7_3820").clock_hz(active_cores=active_cores)


def test_an_instruction_set_or_dtype_the_cpu_lacks_is_an_error():
    cpu = load_device("i7_3820")
    with pytest.raises(UnknownNameError, match=r"'avx2'.*Did you mean 'avx'"):
        cpu.flop_per_cycle(isa="avx2")
    with pytest.raises(UnknownNameError, match="Known: fp32, fp64"):
        cpu.flop_per_cycle("fp16")


# --- links ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "lanes", "gigatransfers_per_s", "code"),
    [
        ("pcie_1_x16", 16, 2.5, 8 / 10),  # 4.0 GB/s
        ("pcie_2_x16", 16, 5, 8 / 10),  # 8.0
        ("pcie_3_x4", 4, 8, 128 / 130),  # 3.9385
        ("pcie_3_x16", 16, 8, 128 / 130),  # 15.7538
        ("pcie_4_x16", 16, 16, 128 / 130),  # 31.5077
        ("pcie_5_x8", 8, 32, 128 / 130),  # 31.5077
        ("pcie_6_x1", 1, 64, 242 / 256),  # 7.5625
    ],
)
def test_pcie_bandwidth_is_transfers_times_lanes_times_code(name, lanes, gigatransfers_per_s, code):
    link = load_link(name)
    raw = gigatransfers_per_s * 1e9 * lanes / 8  # one bit per transfer and lane
    assert link.raw_bandwidth_bytes_per_s == pytest.approx(raw)
    assert link.bandwidth_bytes_per_s == pytest.approx(raw * code)


def test_pcie_3_x16_from_wire_to_copy():
    link = load_link("pcie_3_x16")
    assert link.bandwidth_bytes_per_s == pytest.approx(15.7538e9, rel=1e-5)
    assert 12e9 < link.effective_bandwidth_bytes_per_s < 12.8e9  # what pinned copies measure
    assert link.pageable_bandwidth_bytes_per_s == pytest.approx(link.effective_bandwidth_bytes_per_s / 2)
    assert 5e-6 <= link.latency_s <= 10e-6


def test_fabrics():
    assert load_link("infiniband_fdr_x4").bandwidth_bytes_per_s == pytest.approx(6.818e9, rel=1e-3)
    assert load_link("infiniband_fdr").name == "infiniband_fdr_x4"  # its only width
    assert load_link("ethernet_10_gbit").bandwidth_bytes_per_s == pytest.approx(1.25e9)
    nvlink = load_link("nvlink_2_x6")
    assert nvlink.bandwidth_bytes_per_s == 150e9
    assert nvlink.pageable_bandwidth_bytes_per_s == nvlink.effective_bandwidth_bytes_per_s


def test_a_width_the_generation_lacks():
    with pytest.raises(UnknownNameError, match=r"unknown link 'pcie_3_x3'.*Known: pcie_3_x1, pcie_3_x16"):
        load_link("pcie_3_x3")


def test_a_link_that_does_not_exist():
    with pytest.raises(UnknownNameError, match=r"unknown link 'pcie3_x16'. Did you mean 'pcie_3_x16'"):
        load_link("pcie3_x16")
    with pytest.raises(UnknownNameError, match="unknown link 'pcie_9_x16'"):
        load_link("pcie_9_x16")


def test_a_link_without_its_width():
    with pytest.raises(ArgumentError, match=r"one of 1, 2, 4, 8, 16 with pcie_3; or name the link pcie_3_x16"):
        load_link("pcie_3")
    assert load_link("pcie_3", lane_count=8) == load_link("pcie_3_x8")
    with pytest.raises(ArgumentError, match="8 with pcie_3_x8"):
        load_link("pcie_3_x8", lane_count=4)


# --- storage and systems ----------------------------------------------------------------------------------


def test_storage_in_base_units():
    drive = load_storage("samsung_960_pro")
    assert drive.read_bandwidth_bytes_per_s == 3.5e9
    assert drive.write_bandwidth_bytes_per_s == 2.1e9
    assert drive.random_reads_per_s == 440_000
    assert drive.latency_s == pytest.approx(70e-6)
    assert drive.interface_gb_per_s == pytest.approx(load_link("pcie_3_x4").bandwidth_bytes_per_s / 1e9, rel=1e-4)
    assert load_storage("hdd_7200_rpm").latency_s == pytest.approx(8.5e-3 + 60 / 7200 / 2, rel=1e-3)


def test_server_has_local_and_remote_memory():
    server = load_system("server_2x_xeon_e5_2630_v3")
    assert (server.core_count, server.thread_count, server.socket_count) == (16, 32, 2)
    assert server.memory_capacity_bytes == 128 * 2**30
    assert server.remote_fraction == 0.5
    assert server.remote_memory_bandwidth_bytes_per_s == 20e9


def test_desktop_has_no_remote_memory():
    desktop = load_system("desktop_i7_3820")
    assert desktop.remote_memory_bandwidth_bytes_per_s is None
    assert desktop.file.socket_link is None


def test_catalogue_rejects_an_unknown_kind():
    with pytest.raises(UnknownNameError, match="Did you mean 'device'"):
        catalogue().names("devices")


# --- library profiles -------------------------------------------------------------------------------------


def profile(**changes: object) -> LibraryProfile:
    raw = {
        "schema_version": 1,
        "name": "Example BLAS",
        "kind": "blas",
        "processor": "gpu",
        "version": "7.5",
        "constant": {
            "gemm_efficiency": {"unit": "1", "meaning": "share", "valid_min": 0.0, "valid_max": 1.0},
            "tile_rows": {"unit": "1", "meaning": "rows", "valid_min": 8, "valid_max": 256},
        },
        "architecture": {
            "default": {"gemm_efficiency": 0.7, "tile_rows": [64, 128]},
            "maxwell": {"gemm_efficiency": 0.9, "native": True, "algorithms": ["implicit_gemm"]},
            "pascal": {"inherits": "maxwell", "native": False},
        },
        "source": [{"fields": ["architecture"], "title": "estimate", "note": "for the test"}],
    }
    return LibraryProfile.model_validate(raw | changes)


def test_constants_fall_back_to_what_is_inherited_and_then_to_the_default():
    library = profile()
    assert library.constants_for("maxwell") == {"gemm_efficiency": 0.9, "tile_rows": (64, 128)}
    assert library.constants_for("pascal") == library.constants_for("maxwell")
    assert library.constants_for("turing") == {"gemm_efficiency": 0.7, "tile_rows": (64, 128)}
    assert library.algorithms_for("pascal") == ("implicit_gemm",)
    assert library.algorithms_for("turing") == ()
    assert [library.is_native(name) for name in ("maxwell", "pascal", "turing")] == [True, False, True]


def test_tensor_cores_have_values_of_their_own_and_so_has_what_inherits_from_their_architecture():
    library = profile(
        architecture={
            "default": {"gemm_efficiency": 0.7, "tile_rows": [64, 128]},
            "maxwell": {"gemm_efficiency": 0.9},
            "maxwell_wide": {"inherits": "maxwell", "gemm_efficiency": 0.6},
        },
        tensor_core={"maxwell": {"dtypes": ["fp16"], "gemm_efficiency": 0.8}},
        source=[{"fields": ["architecture", "tensor_core"], "title": "estimate", "note": "for the test"}],
    )
    found = {
        (architecture, dtype): library.constants_for(architecture, dtype=dtype)["gemm_efficiency"]
        for architecture in ("maxwell", "maxwell_wide", "turing")
        for dtype in ("fp32", "fp16")
    }
    assert found == {
        ("maxwell", "fp32"): 0.9, ("maxwell", "fp16"): 0.8,
        ("maxwell_wide", "fp32"): 0.6, ("maxwell_wide", "fp16"): 0.8,
        ("turing", "fp32"): 0.7, ("turing", "fp16"): 0.7,
    }  # fmt: skip
    field = library.field_of("gemm_efficiency", architecture="maxwell_wide", dtype="fp16")
    assert field == "tensor_core.maxwell.gemm_efficiency"


def test_a_library_cannot_know_a_board():
    with pytest.raises(ValueError, match=r"device\n.*Extra inputs are not permitted"):
        profile(device={"lab_board": {"gemm_efficiency": 0.5}})


def test_a_board_issues_arithmetic_at_the_clock_that_it_sustains():
    t4 = load_device("t4")
    clocks = sustained_clocks_mhz(t4)
    assert set(clocks) == {"lanes", "tensor_cores"}
    for dtype, clock in (("fp32", "lanes"), ("fp64", "lanes"), ("fp16", "tensor_cores")):
        share = clocks[clock] / t4.clock_boost_mhz
        assert 0.5 < share < 0.8
        assert sustained_peak_flop_per_s(t4, dtype) == pytest.approx(share * t4.peak_flop_per_s(dtype))
    assert t4.clock_hz == 1590e6  # launches and latencies count in cycles of the boost clock


def test_what_tells_devices_apart_is_no_name_and_only_one_chip_shares_it():
    devices = [load_device(name) for name in names("devices")]
    shared = [device.stem for device in devices if [other.identity for other in devices].count(device.identity) > 1]
    # for export: the same chip with fewer links, and of the H800 slower fp64
    assert sorted(shared) == ["a100_80_sxm", "a800_80_sxm", "h100_sxm", "h800_sxm"]
    for device in devices:
        assert device.name not in device.identity
        assert device.identity.startswith(device.architecture)
    k80 = load_device("tesla_k80_gk210")
    assert k80.beside_working_dies().identity == k80.identity


def test_an_architecture_without_default_is_an_error():
    library = profile(architecture={"maxwell": {"gemm_efficiency": 0.9, "tile_rows": 128}})
    with pytest.raises(UnknownNameError, match=r"architecture of Example BLAS 'pascal'.*Known: maxwell"):
        library.constants_for("pascal")


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        (
            {"default": {"gemm_efficiency": 1.2, "tile_rows": 64}},
            r"gemm_efficiency: value 1.2: must be from 0 to 1",
        ),
        ({"default": {"gemm_efficiency": 0.5, "tile_rows": [64, 512]}}, r"must be from 8 to 256"),
        (
            {"default": {"gemm_eficiency": 0.5, "tile_rows": 64}},
            "nearest described constant: gemm_efficiency",
        ),
        ({"default": {"gemm_efficiency": "0.5", "tile_rows": 64}}, "must be a finite number"),
        ({"default": {"gemm_efficiency": True, "tile_rows": 64}}, "must be a finite number"),
        ({"default": {"gemm_efficiency": float("nan"), "tile_rows": 64}}, "must be a finite number"),
        ({"default": {"gemm_efficiency": 0.5}}, "constant.tile_rows: must be used by an architecture"),
        (
            {"ada": {"inherits": "amper", "gemm_efficiency": 0.5, "tile_rows": 64}, "ampere": {}},
            "nearest: ampere",
        ),
        (
            {
                "ada": {"inherits": "ampere", "gemm_efficiency": 0.5},
                "ampere": {"inherits": "ada", "tile_rows": 64},
            },
            "must not lead back to itself",
        ),
    ],
)
def test_faults_of_a_profile(architecture, message):
    with pytest.raises(ValueError, match=message):
        profile(architecture=architecture)


def test_isas_are_for_cpu_libraries():
    with pytest.raises(ValueError, match="for CPU libraries only"):
        profile(isa=["avx2"])
    with pytest.raises(ValueError, match="must list the instruction sets"):
        profile(processor="cpu")
    assert profile(processor="cpu", isa=["sse", "avx2"]).isa == ("sse", "avx2")
