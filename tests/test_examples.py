"""Every example runs and prints what it promises."""

import ast
import os
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MEASURED = Path(__file__).resolve().parent / "data" / "measured_cpu.toml"


def printed_of(name, capsys):
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_every_example_is_run_by_a_test():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "bring_your_own_network.py",
        "calibrate_numpy_mnist.py",
        "many_devices.py",
    }


def test_a_network_of_ones_own(capsys):
    pytest.importorskip("torch")
    printed = printed_of("bring_your_own_network.py", capsys)
    assert "every operation agrees to the last digit" in printed
    assert printed.count("ms a step of 256") == 4


def column_of(printed, title, heading):
    """Return a column of a printed table: first words of a line to the number below the heading."""
    block = printed[printed.index(title) :].split("\n\n")[0].splitlines()
    rule = next(line for line in block if line.startswith("---"))
    ends = [place for place, letter in enumerate(f"{rule} ") if letter == " " and rule[place - 1] == "-"]
    starts = [0, *(end + 2 for end in ends[:-1])]
    names = block[block.index(rule) - 1]
    at = next(place for place, start in enumerate(starts) if heading in names[start : ends[place]])
    lines = block[block.index(rule) + 1 :]
    return {line[: ends[0]].strip(): float(line[starts[at] : ends[at]].replace(",", "")) for line in lines}


def test_many_devices(capsys):
    printed = printed_of("many_devices.py", capsys)
    agreed = column_of(printed, "AlexNet on four workers", "speedup")
    assert agreed["one worker"] == 1
    assert 0.9 < agreed["parameter_server"] < agreed["ring_all_reduce"] < 4
    spread = column_of(printed, "VGG-16 with Adam", "speedup")
    assert 1 < spread["pipeline of 4, 8 micro-batches"] < 4
    assert spread["layers over 4, one at a time"] < 1
    memory = column_of(printed, "VGG-16 with Adam", "memory_gb")
    assert memory["4 workers, optimizer sharded"] < memory["one device"] > memory["tensor group of 4"]
    late = column_of(printed, "ResNet-50 on", "step_s")
    assert late["16 even workers"] < late["the same, 2 not waited for"] < late["times vary by 10 %"]
    assert "USD per epoch" in printed


class TestNumpy:
    path = EXAMPLES / "calibrate_numpy_mnist.py"

    def test_it_predicts_and_measures(self, capsys, monkeypatch):
        # of a made-up machine: both numbers are printed, and the error is that of the one against the other
        monkeypatch.setattr(sys, "argv", [str(self.path), str(MEASURED)])
        runpy.run_path(str(self.path), run_name="__main__")
        printed = capsys.readouterr().out
        predicted, measured = (
            float(re.search(rf"^{word} +([\d.]+) ms", printed, re.MULTILINE)[1]) for word in ("predicted", "measured")
        )
        error = float(re.search(r"^error +([-+]\d+) %", printed, re.MULTILINE)[1])
        assert error == pytest.approx(100 * (predicted / measured - 1), abs=1.5)

    def test_its_gradients_are_those_of_finite_differences(self):
        example = runpy.run_path(str(self.path))
        generator = np.random.default_rng(1)
        images, labels = generator.standard_normal((16, 784)).astype(np.float32), generator.integers(10, size=16)

        def loss_after_moving(layer, row, column, by):
            network = example["Classifier"](np.random.default_rng(2))
            network.weights[layer] = network.weights[layer].astype(np.float64)
            network.weights[layer][row, column] += by
            return network.step(images.astype(np.float64), labels)

        for layer, row, column in ((0, 3, 5), (1, 7, 11), (2, 2, 1)):
            network = example["Classifier"](np.random.default_rng(2))
            before = network.weights[layer][row, column]
            network.step(images, labels)
            stepped = (before - network.weights[layer][row, column]) / example["RATE"]
            differences = [loss_after_moving(layer, row, column, by) for by in (1e-4, -1e-4)]
            assert stepped == pytest.approx((differences[0] - differences[1]) / 2e-4, rel=0.02, abs=1e-4)


NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
FIGURES = {
    "01_first_prediction": 3,
    "02_which_gpu_for_resnet50": 3,
    "03_four_gpus_on_one_root": 4,
    "04_parameter_server_against_ring": 5,
    "05_plan_under_deadline_and_budget": 3,
    "06_validate_against_the_measured_table": 3,
    "07_calibrate_this_machine": 3,
    "08_cheap_cpus": 2,
    "09_a_trillion_tokens": 2,
}
"""Figures of each notebook."""

MEASURING = {"07_calibrate_this_machine"}
"""Notebooks that time this machine: what they print is not the same twice."""

COUNTED = """
import sys
import pytest
sys.path.insert(0, {root!r})
from tests.counted_kernels import count_kernels
count_kernels(pytest.MonkeyPatch(), 120)
"""
"""What a test adds to a notebook that measures: its calibration ends by kernels, not by seconds."""

UNITS = ("%", "MB", "GB", "GB/s", "FLOP/s", "GFLOP/s", "images/s", "million", "ms", "s", "hours?", "minutes?", "times")
WITH_UNIT = re.compile(rf"(?<![\w.])\d[\d,.]* (?:{'|'.join(UNITS)})(?!\w)")


def outputs_of(notebook):
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def printed_by(notebook):
    """Return what the code cells of a notebook show as text."""
    outputs = outputs_of(notebook)
    assert not [output for output in outputs if output.output_type == "error"]
    return "\n".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs)


def said_in(notebook):
    """Return the phrases whose numbers the last cell of a notebook holds against its own."""
    tree = ast.parse(notebook.cells[-1].source)
    (said,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "said"
    )
    assert all(isinstance(value, ast.JoinedStr) for value in said.values)  # made of numbers, not written again
    return [key.value for key in said.keys]


def committed(path):
    import nbformat

    return nbformat.read(path, as_version=4)


def test_the_notebooks_are_those_with_known_figures():
    assert [path.stem for path in NOTEBOOKS] == sorted(FIGURES)


@pytest.fixture(scope="module")
def kernel():
    """One process for all notebooks: starting it and importing what they import takes as long as most of them."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(startup_timeout=600)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def execute(source, kernel):
    """Run a cell; return what it shows."""
    import nbformat

    outputs = []

    def keep(message):
        if message["msg_type"] in ("stream", "display_data", "execute_result", "error"):
            outputs.append(nbformat.v4.output_from_msg(message))

    reply = kernel.execute_interactive(source, output_hook=keep, timeout=1800)["content"]
    assert reply["status"] == "ok", "\n".join(reply["traceback"])
    return outputs


FRESH = "import os; os.environ['PERFMODEL_CACHE'] = {cache!r}; os.chdir({folder!r})\n%reset -f"
"""What is run before a notebook: it is in another folder, so that nothing is read from or left in this one."""


@pytest.mark.usefixtures("fits_of_this_run")
@pytest.mark.filterwarnings("ignore")  # of the packages that run notebooks
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_was_committed_with(path, tmp_path, kernel):
    executed = committed(path)
    execute(FRESH.format(cache=os.environ["PERFMODEL_CACHE"], folder=str(tmp_path)), kernel)
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    for place, cell in enumerate(cells):
        cell.outputs = execute(cell.source, kernel)
        if path.stem in MEASURING and not place:
            execute(COUNTED.format(root=str(EXAMPLES.parent)), kernel)
    if path.stem in MEASURING:
        assert "predicted [ms]" in printed_by(executed)
    else:
        assert printed_by(executed).split() == printed_by(committed(path)).split()  # streams may come in pieces
    for notebook in (committed(path), executed):
        pictures = [output for output in outputs_of(notebook) if "image/png" in output.get("data", {})]
        assert len(pictures) == FIGURES[path.stem]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_number_with_a_unit_in_the_prose_is_held_against_the_notebooks_own(path):
    notebook = committed(path)
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    prose = prose.replace("80 % interval", "interval")  # its name
    said = said_in(notebook)
    assert not [phrase for phrase in said if phrase not in prose]
    for phrase in sorted(said, key=len, reverse=True):
        prose = prose.replace(phrase, "...")
    assert not WITH_UNIT.findall(prose)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_as_it_ran_from_top_to_bottom(path):
    notebook = committed(path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [cell for cell in cells if "execution" in cell.metadata]  # times of one run
    assert not [output for output in outputs_of(notebook) if output.get("name") == "stderr"]
    assert not re.search(r"at 0x[0-9a-f]{6}|/(?:home|tmp|root|work)/", path.read_text(encoding="utf-8"))


def test_the_survey_is_recomputed_to_the_digits_it_prints():
    told = printed_by(committed(EXAMPLES / "03_four_gpus_on_one_root.ipynb"))
    for figure in ("31.5077", "262144", "0.253968", "1.015873", "0.7619", "0.2619", "65.62", "0.492188", "507.8 ms"):
        assert figure in told
