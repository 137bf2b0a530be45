"""Every example runs and prints what it promises."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path, capsys):
    pytest.importorskip("torch")
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert "every operation agrees to the last digit" in printed
    assert printed.count("ms a step of 256") == 4
