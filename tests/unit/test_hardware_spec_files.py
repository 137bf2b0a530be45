"""Spec files as a new user would write them: each mistake gives one message that names the remedy."""

import json
import os
import re

import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError, PerfmodelError, SpecError, UnknownNameError
from perfmodel.framework.profile import load_framework
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_device, load_link, load_storage, load_system


def shipped_text(folder: str, name: str) -> str:
    return (spec_files.shipped_folder() / folder / f"{name}.toml").read_text(encoding="utf-8")


@pytest.fixture
def load_edited(tmp_path):
    """Load a shipped file after replacing some of its text."""
    loaders = {"devices": load_device, "links": load_link, "storage": load_storage, "systems": load_system}

    def load(folder: str, name: str, *replacements: tuple[str, str]) -> object:
        text = shipped_text(folder, name)
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return loaders[folder](path)

    return load


BANDWIDTH = "bandwidth_gb_per_s = 320\n"
BY_UNIT = "unknown key; the key carries its unit: bandwidth_gb_per_s"
NOT_A_NUMBER = "must be a valid number"
USABLE_SOURCE = 'fields = ["memory.usable_gib"]\ntitle = '


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (BANDWIDTH, "bandwidth = 320\n", f"memory.bandwidth: value 320: {BY_UNIT}"),
        (BANDWIDTH, "bandwidth_gbit_per_s = 2560\n", f"memory.bandwidth_gbit_per_s: value 2560: {BY_UNIT}"),
        (BANDWIDTH, "bandwith_gb_per_s = 320\n", "value 320: unknown key; nearest key: bandwidth_gb_per_s"),
        (BANDWIDTH, "", "memory.bandwidth_gb_per_s: required key is missing"),
        (BANDWIDTH, "bandwidth_gb_per_s = -320\n", "bandwidth_gb_per_s: value -320: must be greater than 0"),
        (BANDWIDTH, "bandwidth_gb_per_s = 0\n", "bandwidth_gb_per_s: value 0: must be greater than 0"),
        (BANDWIDTH, "bandwidth_gb_per_s = nan\n", "bandwidth_gb_per_s: value nan: must be a finite number"),
        (BANDWIDTH, "bandwidth_gb_per_s = inf\n", "bandwidth_gb_per_s: value inf: must be a finite number"),
        (BANDWIDTH, 'bandwidth_gb_per_s = "320"\n', f"bandwidth_gb_per_s: value '320': {NOT_A_NUMBER}"),
        (BANDWIDTH, "bandwidth_gb_per_s = true\n", f"bandwidth_gb_per_s: value True: {NOT_A_NUMBER}"),
        ("[memory]", "[memmory]", "unknown key; nearest key: memory"),
        ("unit_count = 20", "unit_count = 20.5", "unit_count: value 20.5: must be a valid integer"),
        ("boost_mhz = 1733", "boost_mhz = 1500", "value 1500: must be at least clock_base_mhz = 1607"),
        ("fp32 = 8.873", "fp32 = 8.228", "lanes_per_unit * clock_boost_mhz = 8.87296"),
        ("usable_gib = 7.92", "usable_gib = 8.5", "value 8.5: must be at most capacity_gib = 8"),
        (
            "generation = 3",
            "generation = 7",
            "host_link.generation: value 7: must be less than or equal to 6",
        ),
        ('kind = "gpu"', 'kind = "gqu"', "kind: value 'gqu': must be one of gpu, cpu, measured (nearest: gpu)"),
        ('kind = "gpu"', "", "kind: required key is missing: must be one of gpu, cpu"),
        ("version = 1", "version = 0", "value 0: must be 1; changes since: 1: first version"),
        ("version = 1", "version = 2", "schema_version: value 2: must be 1"),
        ("launch_date = 2016-05-27", 'launch_date = "soon"', "value 'soon': must be a date, e.g. 2017-08-01"),
        ("launch_date = 2016-05-27", "launch_date = 20160527", "value 20160527: must be a date, e.g. 2017-08-01"),
        ('name = "NVIDIA GeForce GTX 1080"', "name = 1080", "name: value 1080: must be a valid string"),
        ('name = "NVIDIA GeForce GTX 1080"', 'name = ""', "name: value '': must have at least 1 character"),
        ('capability = "6.1"', 'capability = "61"', "compute_capability: value '61': must match pattern"),
        ("idle_w = 9", "idle_w = 900", "idle_w: value 900: must be at most tdp_w = 180"),
        ("clock_max_mhz = 1850", "clock_max_mhz = 1500", "value 1500: must be at least clock_boost_mhz = 1733"),
        ('["context_mib"]', '["contxt_mib"]', "must name a field of this file (nearest field: context_mib)"),
        (
            f'{USABLE_SOURCE}"NVIDIA, nvidia-smi"\nprovenance = "memory"\nverified = false\nnote',
            f'{USABLE_SOURCE}"estimate"\n# ',
            "an estimate needs a note",
        ),
    ],
)
def test_faults_of_a_gpu_file(load_edited, tmp_path, old, new, message):
    with pytest.raises(SpecError) as caught:
        load_edited("devices", "gtx_1080", (old, new))
    assert str(caught.value).startswith(str(tmp_path / "mine.toml"))
    assert message in str(caught.value)
    if "contxt" not in new:  # there, the number that lost its source is a second fault
        assert len(caught.value.faults) == 1, caught.value.faults


def test_a_number_without_a_source(load_edited):
    with pytest.raises(SpecError) as caught:
        load_edited("devices", "gtx_1080", ("latency_us = 1.75", "latency_us = 1.75\n[memory2]\nx = 1"))
    assert len(caught.value.faults) == 1  # an unknown table is not reported as unsourced too
    with pytest.raises(SpecError) as caught:
        load_edited("devices", "gtx_1080", ('"host_link.width", ', ""))
    assert len(caught.value.faults) == 1
    assert caught.value.faults[0].startswith("host_link.width: value 16: no [[source]] names it")


@pytest.mark.parametrize(
    ("folder", "name", "old", "new", "fault"),
    [
        (
            "systems",
            "survey_fig5",
            'to = "socket0"\nlink = "pcie_4_x16"',
            'to = 0\nlink = "pcie_4_x16"',
            "root[0].to: value 0: must be the name of a part, or a list of such names",
        ),
        ("systems", "survey_fig6", "count = 4", 'count = "4"', "node[0].count: value '4': must be a valid integer"),
        (
            "links",
            "pcie_3",
            "lane_widths = [1, 2, 4, 8, 16]",
            "lane_widths = 16",
            "lane_widths: value 16: must be a list",
        ),
        ("links", "pcie_3", "[packet]", "[paket]", "paket: unknown key; nearest key: packet"),
    ],
)
def test_a_fault_is_one_line_without_words_of_the_validator(load_edited, folder, name, old, new, fault):
    with pytest.raises(SpecError) as caught:
        load_edited(folder, name, (old, new))
    assert caught.value.faults == (fault,)


def test_equal_parts_at_one_wrong_port_are_one_fault(load_edited):
    with pytest.raises(SpecError) as caught:
        load_edited("systems", "survey_fig5", ('to = "root0"', 'to = "roof0"'))
    assert caught.value.faults == ("device[0].to: value 'roof0': must be one of socket0, root0 (nearest: root0)",)


@pytest.mark.parametrize(
    ("fraction", "message"),
    [
        ("0.85", "memory.ecc_bandwidth_fraction: value 0.85: no [[source]] names it"),
        ("0", "memory.ecc_bandwidth_fraction: value 0: must be greater than 0"),
        ("1.5", "memory.ecc_bandwidth_fraction: value 1.5: must be less than or equal to 1"),
    ],
)
def test_faults_of_error_correction(load_edited, fraction, message):
    with pytest.raises(SpecError) as caught:
        load_edited("devices", "gtx_1080", (BANDWIDTH, f"{BANDWIDTH}ecc_bandwidth_fraction = {fraction}\n"))
    assert message in str(caught.value)


def test_all_faults_come_in_one_error(load_edited):
    with pytest.raises(SpecError) as caught:
        load_edited(
            "devices",
            "gtx_1080",
            ("tdp_w = 180", "tdp_w = -1"),
            ("l2_mib = 2", 'l2_mib = "2"'),
            ("clock_boost_mhz = 1733", "clock_boost_mhz = 1"),
            ('fields = ["launch.latency_us"]', 'fields = ["launch.latency"]'),
        )
    text = str(caught.value)
    assert "5 faults" in text
    for field in (
        "tdp_w: ",
        "memory.l2_mib: ",
        "clock_boost_mhz: ",
        "launch.latency_us: ",
        "source.fields: ",
    ):
        assert field in text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[3.8, 3.8, 3.7, 3.7]", "[3.8, 3.8, 3.7]", "must have core_count = 4 entries"),
        ("[3.8, 3.8, 3.7, 3.7]", "[3.7, 3.7, 3.8, 3.8]", "must not rise with more active cores"),
        ("[3.8, 3.8, 3.7, 3.7]", "[3.8, 3.8, 3.7, 3.5]", "must be at least the base clock = 3.6"),
        ("bandwidth_gb_per_s = 51.2", "bandwidth_gb_per_s = 25.6", "must be within 1% of channel_count"),
        ("per_core_gb_per_s = 12.5", "per_core_gb_per_s = 60", "must be at most bandwidth_gb_per_s = 51.2"),
        ("sse = 4\navx = 8", "sse = 4", "must list the same instruction sets as fp32"),
        ("avx = 16", "avx = 16\navx3 = 1", "avx3: value 1: unknown key; nearest key: avx"),
        (
            "efficiency = 0.69",
            "efficiency = 80",
            "memory.efficiency: value 80: must be less than or equal to 1",
        ),
    ],
)
def test_faults_of_a_cpu_file(load_edited, old, new, message):
    with pytest.raises(SpecError) as caught:
        load_edited("devices", "i7_3820", (old, new))
    assert message in str(caught.value)
    assert len(caught.value.faults) == 1, caught.value.faults


@pytest.mark.parametrize(
    ("folder", "name", "old", "new", "message"),
    [
        (
            "devices",
            "xeon_e5_2630_v3",
            "[3.0, 3.0, 2.8",
            "[3.3, 3.0, 2.8",
            "must not exceed the clocks without",
        ),
        ("devices", "xeon_e5_2630_v3", "[3.0, 3.0, 2.8", "[3.0, 2.8", "must have core_count = 8 entries"),
        (
            "links",
            "pcie_3",
            "typical_efficiency = 0.79",
            "typical_efficiency = 0.95",
            "payload share of a packet",
        ),
        (
            "links",
            "pcie_3",
            "pageable_efficiency = 0.395",
            "pageable_efficiency = 0.9",
            "must be at most typical",
        ),
        ("links", "pcie_3", "coded_bits = 130", "coded_bits = 100", "must be at least payload_bits = 128"),
        ("links", "pcie_3", "[1, 2, 4, 8, 16]", "[1, 4, 2]", "must be in rising order without repeats"),
        ("links", "pcie_3", "latency_us", "latency", "unknown key; the key carries its unit: latency_us"),
        (
            "storage",
            "samsung_960_pro",
            "read_gb_per_s = 3.5",
            "read_gb_per_s = 5.0",
            "interface_gb_per_s = 3.93",
        ),
        ("systems", "desktop_i7_3820", 'device = "i7_3820"', 'device = "i7_3830"', "Did you mean 'i7_3820'"),
        ("systems", "desktop_i7_3820", 'device = "i7_3820"', 'device = "gtx_980"', "must be a CPU"),
        ("systems", "desktop_i7_3820", "count = 1", "count = 2", "table [socket_link] is needed"),
        (
            "systems",
            "desktop_i7_3820",
            "remote_fraction = 0",
            "remote_fraction = 0.5",
            "remote_fraction must be 0",
        ),
        ("systems", "server_2x_xeon_e5_2630_v3", "per_s = 20.0", "per_s = 40.0", "must be at most 32"),
    ],
)
def test_faults_of_other_files(load_edited, folder, name, old, new, message):
    with pytest.raises(SpecError) as caught:
        load_edited(folder, name, (old, new))
    assert message in str(caught.value)


# --- files and folders ------------------------------------------------------------------------------------


def test_bad_toml_names_file_line_and_column(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("name = 'x'\nbandwidth = 320 GB\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"mine\.toml: 1 fault: not valid TOML: .*line 2"):
        load_device(path)


def test_not_text(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="must be UTF-8 text"):
        load_device(path)


def test_missing_file_names_its_nearest_neighbour(tmp_path):
    (tmp_path / "my_gpu.toml").write_text("schema_version = 1\n", encoding="utf-8")
    (tmp_path / "my_gpux.toml").write_text("[project]\n", encoding="utf-8")  # no spec file
    with pytest.raises(SpecError, match=r"my_gpus\.toml: .*no such file \(nearest.*: my_gpu\.toml\)"):
        load_device(tmp_path / "my_gpus.toml")
    with pytest.raises(SpecError, match=r"no such file$"):
        load_device("/nowhere/at/all.toml")
    with pytest.raises(SpecError, match="must lead to a \\.toml file"):
        load_device(tmp_path / "my_gpu.json")
    with pytest.raises(SpecError, match="no such file"):
        spec_files.read_toml(tmp_path / "my_gpus.toml")
    with pytest.raises(SpecError, match="cannot be read"):
        spec_files.read_toml(tmp_path)


def test_unknown_names():
    with pytest.raises(UnknownNameError, match=r"unknown device 'gtx1080'. Did you mean 'gtx_1080'\? Known: .*t4"):
        load_device("gtx1080")
    with pytest.raises(UnknownNameError, match="unknown storage"):
        load_storage("")
    with pytest.raises(UnknownNameError, match="Did you mean 'devices'"):
        spec_files.names("device")
    with pytest.raises(ArgumentError, match=r"device must be a name, or a path"):
        load_device(1080)


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    folder = tmp_path / "my_specs"
    (folder / "devices").mkdir(parents=True)
    monkeypatch.setenv(spec_files.ENVIRONMENT_VARIABLE, str(folder))
    return folder


def test_own_folder_adds_names_and_wins_over_the_shipped_one(own_folder):
    mine = shipped_text("devices", "gtx_1080").replace("GTX 1080", "GTX 1080 of my lab")
    for name in ("gtx_1080", "lab_gpu"):
        (own_folder / "devices" / f"{name}.toml").write_text(mine, encoding="utf-8")
    assert load_device("gtx_1080").name == load_device("lab_gpu").name == "NVIDIA GeForce GTX 1080 of my lab"
    assert {"lab_gpu", "gtx_980"} <= set(spec_files.names("devices"))
    assert load_link("pcie_3_x16").lane_count == 16  # kinds that the own folder lacks come from the shipped one


def test_the_first_of_several_own_folders_wins(own_folder, tmp_path, monkeypatch):
    other = tmp_path / "other"
    (other / "devices").mkdir(parents=True)
    text = shipped_text("devices", "gtx_1080")
    (own_folder / "devices" / "lab_gpu.toml").write_text(text, encoding="utf-8")
    (other / "devices" / "lab_gpu.toml").write_text(text.replace("GTX 1080", "other"), encoding="utf-8")
    monkeypatch.setenv(spec_files.ENVIRONMENT_VARIABLE, os.pathsep.join([str(other), str(own_folder)]))
    assert load_device("lab_gpu").name == "NVIDIA GeForce other"


def test_own_folder_must_exist_and_hold_kinds(tmp_path, monkeypatch):
    monkeypatch.setenv(spec_files.ENVIRONMENT_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(SpecError, match=r"PERFMODEL_SPECS: 1 fault: value '.*nowhere': must be an existing folder"):
        load_device("gtx_1080")
    monkeypatch.setenv(spec_files.ENVIRONMENT_VARIABLE, str(tmp_path))
    with pytest.raises(SpecError, match="must hold one of devices/, defaults/, links/"):
        load_device("gtx_1080")
    monkeypatch.setenv(spec_files.ENVIRONMENT_VARIABLE, "x" * 5000)
    with pytest.raises(SpecError, match=r"PERFMODEL_SPECS: 1 fault: .*at most 255 B") as refused:
        load_device("gtx_1080")
    assert len(str(refused.value)) < 500


def test_a_path_in_a_system_file_starts_at_that_file(tmp_path):
    (tmp_path / "my_cpu.toml").write_text(shipped_text("devices", "i7_3820"), encoding="utf-8")
    text = shipped_text("systems", "desktop_i7_3820").replace('"i7_3820"', '"my_cpu.toml"')
    (tmp_path / "my_system.toml").write_text(text, encoding="utf-8")
    assert load_system(tmp_path / "my_system.toml").core_count == 4


def test_loading_is_cached_until_the_file_changes(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(shipped_text("devices", "gtx_1080"), encoding="utf-8")
    first = load_device(path)
    assert load_device(path) is first
    path.write_text(shipped_text("devices", "gtx_980"), encoding="utf-8")
    os.utime(path, ns=(1, 1))
    assert load_device(path).name == "NVIDIA GeForce GTX 980"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (BANDWIDTH, "bandwidth_gb_per_s = 320000\n", r"bandwidth_gb_per_s: value 320000.*from 1 to 50,000 GB/s"),
        ("capacity_gib = 8\n", "capacity_gib = 8589934592\n", r"capacity_gib: value 8589934592.*to 4,096 GiB"),
        ("base_mhz = 1607", "base_mhz = 1.607", r"clock_base_mhz: value 1.607: must be from 50 to 10,000 MHz"),
        ("fp32 = 8.873", "fp32 = 8.228", r"peak_tflop_per_s.fp32: value 8.228: must be within"),
        ("width = 16", "width = 5", r"mine.toml: 1 fault: host_link.width: value 5: unknown link 'pcie_3_x5'"),
        (
            'architecture = "pascal"',
            'architecture = "pascall"',
            r"'pascall': is not known \(nearest: pascal\); list a new one",
        ),
    ],
)
def test_implausible_values_are_refused(load_edited, old, new, message):
    with pytest.raises(SpecError, match=message):
        load_edited("devices", "gtx_1080", (old, new))


@pytest.mark.parametrize("architecture", ["rubin", "pascal2", "my_own_chip"])
def test_a_new_architecture_is_possible(load_edited, architecture):
    device = load_edited("devices", "gtx_1080", ('architecture = "pascal"', f'architecture = "{architecture}"'))
    assert device.architecture == architecture


def test_a_similar_architecture_is_possible_if_a_library_of_ones_own_lists_it(load_edited, tmp_path, monkeypatch):
    own = tmp_path / "own" / "libraries"
    own.mkdir(parents=True)
    (own / "mine.toml").write_text("[architecture.pascall]\n", encoding="utf-8")
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path / "own"))
    device = load_edited("devices", "gtx_1080", ('architecture = "pascal"', 'architecture = "pascall"'))
    assert device.architecture == "pascall"


def test_a_misnamed_folder_of_ones_own_is_named(tmp_path, monkeypatch):
    for folder in ("links", "device"):
        (tmp_path / folder).mkdir()
    (tmp_path / "device" / "mine.toml").write_text("", encoding="utf-8")
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    with pytest.raises(SpecError, match=r"its folder device/ is not a kind folder \(nearest: devices/\)"):
        spec_files.spec_folders()


def test_the_name_of_another_kind_is_told_so():
    with pytest.raises(ArgumentError, match=r"device must be .*this one is a link"):
        load_device("pcie_3_x16")


HEIR = 'schema_version = 1\ninherits = "pytorch_2"\nname = "slow host"\n[gpu.constants]\ndispatch_us = 70.0\n'
SOURCE = '[[source]]\nfields = ["gpu.constants.dispatch_us"]\ntitle = "estimate"\nnote = "a slow host"\n'


def test_a_profile_inherits_all_that_it_does_not_state(tmp_path):
    heir = tmp_path / "slow_host.toml"
    heir.write_text(HEIR + SOURCE, encoding="utf-8")
    slow, usual = load_framework(heir), load_framework("pytorch_2")
    stated = {"name": "slow host", "gpu": usual.to_dict()["gpu"]}
    stated["gpu"]["constants"]["dispatch_us"] = 70.0
    assert slow.to_dict() == usual.to_dict() | stated | {"source": slow.to_dict()["source"]}
    assert slow.source_of("gpu.constants.dispatch_us").note == "a slow host"
    assert slow.source_of("gpu.constants.recording_us") == usual.source_of("gpu.constants.recording_us")
    steps = [
        pm.predict(pm.zoo.resnet50(), device="h100_sxm", batch_size=1, framework=each).step_s for each in (heir, usual)
    ]
    assert steps[0] > 1.3 * steps[1]


def test_a_profile_follows_a_change_of_its_parent(tmp_path, monkeypatch):
    (tmp_path / "frameworks").mkdir()
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    parent, heir = (tmp_path / "frameworks" / f"{name}.toml" for name in ("parent", "heir"))
    parent.write_text(HEIR + SOURCE, encoding="utf-8")
    heir.write_text('schema_version = 1\ninherits = "parent"\nname = "heir"\n', encoding="utf-8")
    assert load_framework("heir").gpu.constants["dispatch_us"] == 70.0
    parent.write_text(HEIR.replace("70.0", "90.0") + SOURCE, encoding="utf-8")
    os.utime(parent, ns=(1, 1))
    assert load_framework("heir").gpu.constants["dispatch_us"] == 90.0


@pytest.mark.parametrize(
    ("parent", "fault"),
    [
        ("pytorch2", "slow_host.toml: 1 fault: inherits: value 'pytorch2': unknown framework 'pytorch2'. Did you mean"),
        (7, "inherits: value 7: must be the name of a framework"),
        ("./slow_host.toml", "inherits: value './slow_host.toml': must not close a circle"),
    ],
)
def test_a_parent_that_cannot_be_is_named(tmp_path, parent, fault):
    heir = tmp_path / "slow_host.toml"
    heir.write_text((HEIR + SOURCE).replace('"pytorch_2"', json.dumps(parent)), encoding="utf-8")
    with pytest.raises(PerfmodelError, match=re.escape(fault)):
        load_framework(heir)
