"""A thousand inputs of each kind: each ends in an answer in finite numbers or in words, soon, and runs no text.

``PERFMODEL_FUZZ=100000 pytest -s tests/fuzz/test_fuzz.py`` tries that many of each kind; seeds are printed, and
``PERFMODEL_FUZZ_SEED`` takes one.
"""

import os
import tempfile

import pytest

from tests.fuzz import of_arguments, of_files
from tests.fuzz.trial import faults_of

KINDS = {"arguments": of_arguments.arguments, **of_files.KINDS}
COUNT = int(os.environ.get("PERFMODEL_FUZZ", "0"))
SEED = int(os.environ.get("PERFMODEL_FUZZ_SEED", "26"))
IN_A_USUAL_RUN = {"arguments": 300, "spec files": 300, "graph files": 300, "configurations": 150, "tables": 200}
"""Inputs of a kind where the environment asks for no number. [1]"""


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_ends_in_numbers_or_in_words(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    count = COUNT or IN_A_USUAL_RUN.get(kind, 200)
    faults = faults_of(KINDS[kind], count=count, seed=SEED, folder=tmp_path)
    with capsys.disabled():
        if COUNT:
            print(f"\n{kind}: seed {SEED}, {count:,} inputs, {sum(map(len, faults.values()))} faults")  # noqa: T201
    assert not faults, "\n".join(
        f"{fault}: {len(inputs)} of {count}, e.g. number {inputs[0][0]} of seed {SEED}: {inputs[0][1]}"
        for fault, inputs in faults.items()
    )
