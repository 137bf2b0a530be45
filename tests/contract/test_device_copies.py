"""What a device is called decides nothing: a copy of its file under another name is predicted the same."""

import os
import re
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.hardware.library import LibraryProfile
from perfmodel.hardware.spec_files import names, shipped_folder

DEVICES = names("devices")
WALK = bool(os.environ.get("PERFMODEL_FULL_WALK"))
GRAPHS = {"alexnet": pm.zoo.alexnet(), "lstm32": pm.zoo.lstm32()}
if WALK:
    GRAPHS["resnet50"] = pm.zoo.resnet50()
FRAMEWORKS = names("frameworks") if WALK else ("generic", "torch7_cudnn5")
PARTS = (
    "step_s",
    "compute_s",
    "memory_bound_s",
    "overhead_s",
    "update_s",
    "exposed_transfer_s",
    "input_wait_s",
    "exposed_sync_s",
    "straggler_s",
    "bubble_s",
    "interval_s",
    "memory",
    "bottleneck",
    "peak_flop_per_s",
)


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """Every shipped device under a name that no other file holds, beside a name for people that differs too."""
    folder = tmp_path_factory.mktemp("copies")
    for name in DEVICES:
        text = (shipped_folder() / "devices" / f"{name}.toml").read_text(encoding="utf-8")
        renamed = re.sub(r'^name = ".*"$', 'name = "A copy"', text, count=1, flags=re.MULTILINE)
        (folder / f"copy_{DEVICES.index(name)}.toml").write_text(renamed, encoding="utf-8")
    return folder


def copy_of(folder: Path, name: str) -> Path:
    return folder / f"copy_{DEVICES.index(name)}.toml"


def dtypes_of(name: str) -> tuple[str, ...]:
    return tuple(dtype for dtype in ("fp32", "fp16") if dtype in pm.load_device(name).dtypes)


@pytest.mark.parametrize("name", DEVICES)
def test_a_copy_under_another_name_is_predicted_the_same(copies, name):
    path = copy_of(copies, name)
    for graph in GRAPHS.values():
        for framework in FRAMEWORKS:
            for dtype in dtypes_of(name):
                asked = {"batch_size": 16, "framework": framework, "dtype": dtype}
                own, copied = (pm.predict(graph, device=device, **asked) for device in (name, path))
                for part in PARTS:
                    assert getattr(copied, part) == getattr(own, part), (part, framework, dtype)


@pytest.mark.parametrize("name", ["t4", "gtx_1080", "i7_3820"])
def test_a_copy_is_as_far_from_what_was_measured(copies, name):
    own, copied = (pm.predict(GRAPHS["alexnet"], batch_size=16, device=each) for each in (name, copy_of(copies, name)))
    assert copied.interval.exposure == own.interval.exposure
    values = [[(row.constant.split("/", 2)[-1], row.value, row.source) for row in p.provenance] for p in (own, copied)]
    assert values[0] == values[1]


def test_a_copy_stands_in_the_host_of_the_measured_board(copies):
    run = next(run for run in pm.measurements.load("shi2016").runs if "tesla_k80_gk210" in run.hosts)
    names_of_board = ("tesla_k80_gk210", copy_of(copies, "tesla_k80_gk210"))
    own, copied = (pm.predict(run, device=device) for device in names_of_board)
    assert own.basis.prepared.target.host is not None
    assert (copied.step_s, copied.interval_s) == (own.step_s, own.interval_s)


def test_no_library_knows_a_device():
    assert "device" not in LibraryProfile.model_fields
    for path in (shipped_folder() / "libraries").glob("*.toml"):
        text = path.read_text(encoding="utf-8")
        assert not [name for name in DEVICES if re.search(rf"[\[.]{name}\b", text)], path.stem


@pytest.mark.parametrize("processor", ["gpu", "cpu"])
def test_no_interval_scale_knows_a_device_by_its_name(processor):
    text = (shipped_folder() / "intervals" / f"{processor}_80.toml").read_text(encoding="utf-8")
    assert not [name for name in DEVICES if f'"{name}"' in text]
