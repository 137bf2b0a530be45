"""Five hundred inputs of each kind: each ends in an answer in finite numbers or in words, soon, and runs no text.

All take some 20 s of a quiet processor, a third of it for command lines. Each that once went wrong is kept
in ``corpus/``, one file for each kind.

``PERFMODEL_FUZZ=100000 pytest -s tests/fuzz/test_fuzz.py`` tries that many of each kind; seeds are printed, and
``PERFMODEL_FUZZ_SEED`` takes one.
"""

import base64
import json
import os
import tempfile
from pathlib import Path

import pytest

from tests.fuzz import of_arguments, of_commands, of_files
from tests.fuzz.trial import Trial, fault_of, faults_of

KINDS = {"arguments": of_arguments.arguments, "command lines": of_commands.command_line, **of_files.KINDS}
COUNT = int(os.environ.get("PERFMODEL_FUZZ", "500"))
SEED = int(os.environ.get("PERFMODEL_FUZZ_SEED", "26"))


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_ends_in_numbers_or_in_words(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    faults = faults_of(KINDS[kind], count=COUNT, seed=SEED, folder=tmp_path)
    if "PERFMODEL_FUZZ" in os.environ:
        with capsys.disabled():
            print(f"\n{kind}: seed {SEED}, {COUNT:,} inputs, {sum(map(len, faults.values()))} faults")  # noqa: T201
    assert not faults, "\n".join(
        f"{fault}: {len(inputs)} of {COUNT}, e.g. number {inputs[0][0]} of seed {SEED}: {inputs[0][1]}"
        for fault, inputs in faults.items()
    )


CORPUS = Path(__file__).parent / "corpus"


def kept_inputs():
    for file in sorted(CORPUS.glob("*.json")):
        for number, entry in enumerate(json.loads(file.read_text(encoding="utf-8"))):
            yield pytest.param(file.stem, entry, id=f"{file.stem}-{number}")


def trial_of(kind: str, entry: dict, folder: Path) -> Trial:
    if kind == "arguments":
        return of_arguments.call_with(entry["verb"], entry["arguments"])
    if kind == "command_lines":
        return of_commands.of_words(entry["words"], folder)
    content = base64.b64decode(entry["base64"]) if "base64" in entry else entry["text"].encode()
    return of_files.file_of(entry["name"], content, folder)


@pytest.mark.parametrize(("kind", "entry"), [*kept_inputs()])
def test_what_once_went_wrong_does_not_again(kind, entry, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert fault_of(trial_of(kind, entry, tmp_path)) is None, entry["was"]
