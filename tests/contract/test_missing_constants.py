"""What predictions read is known where a file is loaded: a file without one of its lines is refused, or it predicts."""

import os
import re
from functools import cache

import pytest

import perfmodel as pm
from perfmodel.errors import PerfmodelError
from perfmodel.hardware.spec_files import shipped_folder

EVERY = 1 if "PERFMODEL_FULL_WALK" in os.environ else 97
"""Of the lines, which ones are left out in turn: a prime number, since files of a kind have equally many lines."""

FRAMEWORK_JOBS = (
    {"device": "gtx_1080"},
    {"device": "xeon_e5_2630_v3"},
    {"device": "xeon_e5_2630_v3", "threads": 4},
    {"system": "dgx_a100", "workers": 2},
)
DTYPES = ("fp32", "fp16")


def lines_of(kind):
    """Yield each file of a kind with the place of each line that states a value and no description."""
    for path in sorted((shipped_folder() / kind).glob("*.toml")):
        lines, section = path.read_text(encoding="utf-8").splitlines(), ""
        for place, line in enumerate(lines):
            section = line if line.startswith("[") else section
            states = re.match(r"[a-z0-9_]+ = [^\[{].*$|[a-z0-9_]+ = \[.*\]\s*(#.*)?$|[a-z0-9_]+ = \{.*\}", line)
            if states and not section.startswith(("[constant", "[[source", "[[cannot")):
                yield path, lines, place


@cache
def cards():
    """One card of each architecture of GPUs."""
    devices = {name: pm.load_device(name) for name in pm.catalogue().names("device")}
    return {device.architecture: name for name, device in devices.items() if hasattr(device, "architecture")}


def jobs_with(kind, path):
    if kind == "frameworks":
        return [job | {"framework": path} for job in FRAMEWORK_JOBS]
    if re.search(r'processor = "cpu"', path.read_text(encoding="utf-8")):
        return [{"device": "xeon_e5_2630_v3", "framework": "caffe_1_0_rc3", "library": path}]
    listed = re.findall(r"^\[architecture\.(\w+)\]", path.read_text(encoding="utf-8"), re.MULTILINE)
    known = cards() | {"default": "gtx_1080"}
    return [
        {"device": known[name], "framework": "pytorch_2", "library": path, "dtype": dtype}
        for name in listed
        if name in known
        for dtype in DTYPES
    ]


@pytest.mark.parametrize("kind", ["frameworks", "libraries"])
def test_a_file_without_one_line_is_refused_or_predicts(kind, tmp_path):
    crashed, refused, predicted = [], 0, 0
    networks = pm.zoo.alexnet(), pm.zoo.lstm_classifier()
    for turn, (path, lines, place) in enumerate(lines_of(kind)):
        if turn % EVERY:
            continue
        changed = tmp_path / f"{turn}" / path.name
        changed.parent.mkdir()
        changed.write_text("\n".join(lines[:place] + lines[place + 1 :]) + "\n", encoding="utf-8")
        jobs = jobs_with(kind, changed)
        for job in jobs if EVERY == 1 else jobs[turn % len(jobs) :][:1]:
            try:
                pm.predict(networks[turn % len(networks)], batch_size=4, **job).to_dict()
                predicted += 1
            except PerfmodelError:
                refused += 1
            except Exception as error:
                crashed.append(f"{path.stem}: without {lines[place]!r}: {error!r}")
    assert crashed == []
    assert refused > predicted / 10
    assert predicted
