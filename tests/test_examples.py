"""Every example runs and prints what it promises."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_runs(path, capsys):
    pytest.importorskip("torch")
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert "every operation agrees to the last digit" in printed
    assert printed.count("ms a step of 256") == 4


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
