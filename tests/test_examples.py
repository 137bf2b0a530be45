"""Every example runs and prints what it promises."""

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MEASURED = Path(__file__).resolve().parent / "data" / "measured_cpu.toml"
SCRIPTS = ("bring_your_own_network", "calibrate_numpy_mnist")


def test_every_script_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SCRIPTS)


def test_a_network_of_ones_own(capsys):
    pytest.importorskip("torch")
    runpy.run_path(str(EXAMPLES / "bring_your_own_network.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "every operation agrees to the last digit" in printed
    assert printed.count("ms a step of 256") == 4


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


def printed_by(notebook):
    """Return what the code cells of a notebook show as text."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    return "\n".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs)


@pytest.mark.filterwarnings("ignore")  # of the packages that run notebooks
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_was_committed_with(path):
    import nbformat
    from nbclient import NotebookClient

    committed = nbformat.read(path, as_version=4)
    executed = nbformat.read(path, as_version=4)
    NotebookClient(executed, timeout=300, kernel_name="python3").execute()
    assert printed_by(executed).split() == printed_by(committed).split()  # streams may come in pieces
    pictures = [
        output for cell in committed.cells if cell.cell_type == "code" for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]  # fmt: skip
    assert len(pictures) == 2


def test_the_survey_is_recomputed_to_the_digits_it_prints():
    import nbformat

    told = printed_by(nbformat.read(EXAMPLES / "survey.ipynb", as_version=4))
    for figure in ("31.5077", "262144", "0.253968", "1.015873", "0.7619", "0.2619", "65.62", "0.492188", "507.8 ms"):
        assert figure in told
