"""What is no regular file, or larger, deeper or longer than its kind can be, is refused in one line at once."""

import os

import pytest

import perfmodel as pm
from perfmodel import measurements
from perfmodel.errors import PerfmodelError

READERS = {
    "from_onnx": (pm.from_onnx, ".onnx"),
    "from_huggingface_config": (pm.from_huggingface_config, ".json"),
    "from_keras": (pm.from_keras, ".json"),
    "from_deeplearning4j": (pm.from_deeplearning4j, ".json"),
    "LayerGraph.load": (pm.LayerGraph.load, ".json"),
    "measurements.load": (measurements.load, ".csv"),
    "load_device": (pm.load_device, ".toml"),
}


@pytest.mark.parametrize("kind", ["name", "nul", "surrogate", "folder", "pipe", "loop", "/dev/zero", "sparse"])
@pytest.mark.parametrize("reader", READERS)
def test_a_path_to_no_file_of_the_kind_is_refused(reader, kind, tmp_path):
    read, suffix = READERS[reader]
    names = {"name": "x" * 5000 + suffix, "nul": f"a\0b{suffix}", "surrogate": f"\ud800{suffix}"}
    path = tmp_path / f"x{suffix}"
    made = {
        "folder": os.mkdir,
        "pipe": os.mkfifo,
        "loop": lambda link: link.symlink_to(link),
        "/dev/zero": lambda link: link.symlink_to("/dev/zero"),
        "sparse": lambda file: (file.touch(), os.truncate(file, 10 * 2**30)),
    }
    if kind in made:
        made[kind](path)
    with pytest.raises(PerfmodelError) as refused:
        read(names.get(kind, str(path)))
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a": ' * 100_000,
        "9" * 100_000,
        '"' + "x" * 10**7 + '"',
        "a." * 50_000 + "a = 1",
        "a = " + "[" * 10**5,
    ],
    ids=["brackets", "objects", "digits", "letters", "dots", "lists"],
)
@pytest.mark.parametrize("reader", [name for name in READERS if name not in ("from_onnx", "measurements.load")])
def test_a_text_beyond_all_limits_is_refused(reader, text, tmp_path):
    read, suffix = READERS[reader]
    path = tmp_path / f"x{suffix}"
    path.write_text(f"a = {text}" if suffix == ".toml" and text[0] in '["9' else text)
    with pytest.raises(PerfmodelError) as refused:
        read(str(path))
    assert len(str(refused.value)) < 2000
