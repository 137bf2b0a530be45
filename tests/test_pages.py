"""Pages that hold computed figures, and code in pages, are true."""

import importlib
import re
import shlex
import shutil
from pathlib import Path

import pytest

import generate_layers
import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.layers import Dense
from tests.counted_kernels import count_kernels

ROOT = Path(__file__).resolve().parent.parent


def test_the_layer_of_the_page_works_in_a_graph(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "adding_things.md").read_text()
    (diff,) = (text for text in re.findall(r"```diff\n(.*?)```", page, re.DOTALL) if "layers/__init__.pyi" in text)
    listing, family = diff.split("--- a/perfmodel/layers/activation.py\n")
    added, of_family = (
        [line[1:] for line in part.splitlines() if line.startswith("+") and not line.startswith("+++")]
        for part in (listing, family)
    )
    assert added == ["from perfmodel.layers.activation import Softsign as Softsign"]
    context = [line[1:] for line in listing.splitlines() if line.startswith(" ")]
    assert set(context) <= set((ROOT / "perfmodel" / "layers" / "__init__.pyi").read_text().splitlines())
    before = (ROOT / "perfmodel" / "layers" / "activation.py").read_text()
    (tmp_path / "softsign.py").write_text("\n".join([before, *of_family]))
    monkeypatch.syspath_prepend(tmp_path)
    softsign = importlib.import_module("softsign").Softsign
    graph = pm.LayerGraph("page", input_shape=(10,))
    x = graph.add("dense", Dense(units=5), inputs=graph.input)
    graph.add("softsign", softsign(), inputs=x)
    # dense: 2 * 4 * 10 * 5; softsign: 3 FLOP on 4 * 5 elements
    assert graph.work(batch_size=4, phase="forward").flop_count == 400 + 60
    assert pm.predict(graph, batch_size=4, device="gtx_1080", phase="forward_backward").step_s > 0


def test_the_layers_page_is_what_the_code_counts():
    assert generate_layers.page() == (ROOT / "docs" / "layers.md").read_text(), "run python tools/generate_layers.py"


def test_the_importing_page_runs():
    namespace = {}
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "importing.md").read_text(), re.DOTALL):
        exec(compile(code, "docs/importing.md", "exec"), namespace)
    assert namespace["p"].batch_size == 256


def test_the_commands_of_the_pages_on_calibration_run(tmp_path, monkeypatch, capsys):
    """Each command as it stands, with fewer kernels to measure; then the Python, on the file that came of it."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    count_kernels(monkeypatch, 150, cold_points=1)
    less = {
        "calibrate": ["--budget", "15"],  # from so many seconds on the reuse of data is measured
        "validate": ["--network", "mnist_classifier", "--repeats", "1", "--steps", "1"],
    }
    pages = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("calibrating.md", "calibration.md")]
    lines = [line for page in pages for line in page.splitlines() if line.startswith("perfmodel ")]
    commands = [shlex.split(line, comments=True)[1:] for line in lines]
    assert {" ".join(words[:2]) for words in commands} >= {"calibrate cpu", "calibration show", "calibration diff"}
    for words in commands:
        if words[:2] == ["calibration", "diff"]:
            shutil.copy("my_machine.toml", words[2])
        assert run([*words, *less.get(words[0], [])]) == 0, words
    capsys.readouterr()
    assert Path("my_machine.png").is_file()
    for block in re.findall(r"```python\n(.*?)```", pages[1], re.DOTALL):
        exec(compile(block, "calibration.md", "exec"), {})
    assert "my_machine.toml" in "".join(pages)


def test_the_readme_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL):
        exec(compile(code.replace("print(", "str("), "README.md", "exec"), namespace)
    assert namespace["p"].bottleneck == "decode"


def test_the_tour_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "tour.md").read_text(), re.DOTALL):
        exec(compile(code.replace("print(", "str("), "tour.md", "exec"), namespace)
    assert (tmp_path / "classifier.json").is_file()


def test_the_readme_is_short_and_shows_what_its_first_command_prints(capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 600
    (command,) = re.findall(r"&& \.venv/bin/perfmodel (predict .*)", text)
    shown = re.search(r"```text\n(.*?)\n\.\.\.\n```", text, re.DOTALL)[1]
    assert run(shlex.split(command)) == 0
    assert capsys.readouterr().out.startswith(shown)


def test_scores_of_the_readme_are_those_of_the_pages():
    """Every number of the list is on one of the pages that it links."""
    said = (ROOT / "README.md").read_text(encoding="utf-8").split("## How good is it?")[1].split("## Tests")[0]
    pages = " ".join(
        (ROOT / "docs" / name).read_text(encoding="utf-8")
        for name in ("accuracy.md", "live_check.md", "synchronisation.md", "scoreboard.md")
    )
    numbers = re.findall(r"(?<![\w.])\d+\.\d+", said)
    assert len(numbers) >= 8
    assert not [number for number in numbers if not re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", pages)]


def test_the_list_of_pages_is_whole():
    listed = re.findall(r"\(([\w.]+\.md)\)", (ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
    assert sorted(set(listed)) == sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name != "README.md")


def test_doctests_of_pages_stand_in_fences():
    for path in sorted((ROOT / "docs").glob("*.md")):
        outside = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        assert ">>>" not in outside, path.name
