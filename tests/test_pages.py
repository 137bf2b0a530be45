"""Pages that hold computed figures, and code in pages, are true."""

import importlib.util
import re
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.layers import Dense
from perfmodel.validation.protocol_board import protocol_board

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def scoreboard():
    spec = importlib.util.spec_from_file_location("scoreboard", ROOT / "benchmarks" / "scoreboard.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def report():
    return pm.validate("shi2016", protocol="nothing_fitted")


@pytest.mark.parametrize("page", ["README.md", "docs/accuracy.md"])
def test_committed_tables_are_what_validate_gives(scoreboard, report, page):
    assert scoreboard.recomputed(page, report) == (ROOT / page).read_text(), "run python benchmarks/scoreboard.py"


def test_committed_protocols_are_what_validate_gives(scoreboard):
    # those of GPUs that take seconds; the command recomputes all
    quick = ("nothing_fitted", "all_fitted", "leave_one_device_out", "leave_one_family_out")
    board = protocol_board("shi2016", only="gpu", protocols=quick)
    lines = scoreboard.protocol_lines(board)
    assert len(lines) >= len(quick)
    for page in ("README.md", "docs/accuracy.md"):
        committed = (ROOT / page).read_text().splitlines()
        assert [line for line in lines if line not in committed] == [], "run python benchmarks/scoreboard.py"


def test_the_layer_of_the_page_works_in_a_graph():
    page = (ROOT / "docs" / "adding_things.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    namespace = {"__name__": "page"}
    exec(compile(code, "docs/adding_things.md", "exec"), namespace)
    graph = pm.LayerGraph("page", input_shape=(10,))
    x = graph.add("dense", Dense(units=5), inputs=graph.input)
    graph.add("leaky", namespace["LeakyReLU"](), inputs=x)
    # dense: 2 * 4 * 10 * 5; leaky: 2 FLOP on 4 * 5 elements
    assert graph.work(batch_size=4, phase="forward").flop_count == 400 + 40
    assert pm.predict(graph, batch_size=4, device="gtx_1080", phase="forward_backward").step_s > 0


def test_the_readme_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL):
        exec(compile(code.replace("print(", "str("), "README.md", "exec"), namespace)
    assert namespace["p"].memory.fits
    assert (tmp_path / "classifier.json").is_file()
