"""One table of the arguments: whatever lists them says what it says, and nobody else names them."""

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import NoneType

import pytest
import typer

import generate_arguments
import perfmodel as pm
from perfmodel.cli.planning import (
    advise_command,
    compare_command,
    plan_command,
    scaling_command,
    stragglers_command,
    sweep_command,
)
from perfmodel.cli.predict import predict_command
from perfmodel.hardware.spec_files import shipped_folder
from perfmodel.planning.sweeps.space import DEVICES, FED_BY, LINK, LOADED_BY, OF_JOB, OF_WORKER
from perfmodel.prediction.arguments.table import ARGUMENTS, GROUPS
from perfmodel.prediction.arguments.typed import JobArguments, JobAttributes
from perfmodel.prediction.job.agreement_options import FAMILIES, sync_names
from perfmodel.prediction.predict import predict

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(pm.__file__).parent
MOST_MODULES = 5
"""Modules that name an argument: its row, its type, and the physics that reads it."""


def test_types_and_page_are_what_the_table_says():
    told = "run python tools/generate_arguments.py"
    assert generate_arguments.typed() == generate_arguments.TYPED.read_text(encoding="utf-8"), told
    assert generate_arguments.page() == generate_arguments.PAGE.read_text(encoding="utf-8"), told
    assert list(JobArguments.__annotations__) == list(ARGUMENTS) == list(JobAttributes.__annotations__)
    assert {name: getattr(JobAttributes, name) for name in ARGUMENTS} == {n: r.default for n, r in ARGUMENTS.items()}


def test_help_names_every_strategy():
    assert not [name for name in sync_names() if name not in ARGUMENTS["sync"].help]


def test_predict_shows_every_argument_with_type_default_and_unit():
    shown = inspect.signature(pm.predict).parameters
    assert list(shown) == ["graph", *ARGUMENTS]
    for name, row in ARGUMENTS.items():
        parameter = shown[name]
        assert (parameter.kind, parameter.default) == (inspect.Parameter.KEYWORD_ONLY, row.default)
        assert parameter.annotation == row.type
        assert re.search(rf"^ *{name} : ", pm.predict.__doc__, re.MULTILINE)
    assert "**arguments" not in pm.predict.__doc__


@pytest.mark.parametrize("row", ARGUMENTS.values(), ids=ARGUMENTS)
def test_a_row_is_whole(row):
    assert row.group in GROUPS
    assert row.help.endswith(".")
    assert "\n" not in row.help
    assert row.unit
    assert {need.argument for need in row.needs} <= set(ARGUMENTS)
    assert set(row.takers) <= {*FAMILIES, *sync_names()}
    kinds = {"str": str, "int": int, "float": float, "bool": bool, "None": NoneType}
    allowed = tuple(kinds[part] for part in row.type.split(" | ") if part in kinds)
    assert isinstance(row.default, allowed)
    if row.check is not None and row.default is not None:
        assert row.check(row.name, row.default) == row.default


@pytest.mark.parametrize(
    ("command", "left_out"),
    [
        (predict_command, set()),
        (compare_command, set()),
        (advise_command, set()),
        (sweep_command, set()),
        (scaling_command, {"device"}),
        (plan_command, {"device", "system", "workers"}),  # of candidates
    ],
)
def test_a_command_has_every_argument_as_an_option(command, left_out):
    app = typer.Typer()
    app.command()(command)
    options = {option for param in typer.main.get_command(app).params for option in param.opts}
    assert {f"--{name.replace('_', '-')}" for name in ARGUMENTS if name not in left_out} <= options


def test_a_command_may_take_one_argument_only():
    app = typer.Typer()
    app.command()(stragglers_command)
    names = {param.name for param in typer.main.get_command(app).params}
    assert names & set(ARGUMENTS) == {"workers", "backup_workers"}
    assert "others" not in names


def test_every_argument_is_an_axis_of_a_sweep_once():
    assert set(LOADED_BY) == {*ARGUMENTS, LINK, DEVICES}
    assert sorted([*OF_WORKER, *OF_JOB]) == sorted(LOADED_BY)
    assert set(FED_BY) < set(OF_JOB)
    assert OF_WORKER[-1] == "batch_size"  # varies fastest


@pytest.mark.parametrize("name", ["bucket_bytes", "backup_workers"])
def test_an_argument_is_a_row_and_the_physics_that_reads_it(name):
    naming = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if re.search(rf"\b{name}\b", path.read_text(encoding="utf-8"))
    ]
    assert "prediction/arguments/table.py" in naming
    assert len(naming) <= MOST_MODULES, naming


def test_nobody_asks_the_signature_of_predict():
    for path in PACKAGE.rglob("*.py"):
        assert not re.search(r"signature\((pm\.)?predict\)", path.read_text(encoding="utf-8")), path


USES = """
import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.errors import ArgumentError, UnknownNameError
assert pm.__file__.startswith({folder!r}), pm.__file__
graph = pm.zoo.alexnet()
job = pm.Job(graph, system="survey_fig6", workers=8, batch_size=8, sync="downpour")
plain, narrow = job.predict(), job.replace(server_dtype="fp16").predict()
assert narrow.sync_s < plain.sync_s
assert [row.input for row in pm.compare(plain, narrow).inputs] == ["server_dtype"]
assert "server_dtype : str | None" in pm.predict.__doc__
wrong = {{"server_dtype": "fp61"}}, {{"server_dtype": "fp16", "sync": "none"}}
for asked, error in zip(wrong, (UnknownNameError, ArgumentError), strict=True):
    try:
        job.replace(**asked)
    except error as refused:
        assert "server_dtype" in str(refused)
    else:
        raise AssertionError(asked)
s = pm.sweep(graph, server_dtype=["fp32", "fp16"], **job.asked)
assert [float(step_s) for step_s in s["step_s"]] == [plain.step_s, narrow.step_s]
for words in {commands!r}:
    assert run([*words, "--json"]) == 0, words
"""


def test_the_row_of_the_page_is_all_that_an_argument_takes(tmp_path):
    """docs/adding_things.md: its diff, made to a copy of the package, adds an argument wherever there are arguments."""
    page = (ROOT / "docs" / "adding_things.md").read_text(encoding="utf-8").partition("## An argument of `predict`")[2]
    shutil.copytree(PACKAGE, tmp_path / "perfmodel", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "hardware_specs").symlink_to(shipped_folder())
    (tmp_path / "docs").mkdir()
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (diff,) = re.findall(r"```diff\n(.*?)```", page.partition("\n## ")[0], re.DOTALL)
    for of_file in diff.split("--- a/")[1:]:
        head, hunk = of_file.split("@@\n")
        path = tmp_path / head.splitlines()[0]
        before, after = (
            "".join(line[1:] for line in hunk.splitlines(keepends=True) if line[0] in (" ", sign)) for sign in "-+"
        )
        source = path.read_text(encoding="utf-8")
        assert source.count(before) == 1, before
        path.write_text(source.replace(before, after), encoding="utf-8")
    commands = [shlex.split(line)[1:] for line in re.findall(r"^perfmodel .*$", page, re.MULTILINE)]
    assert len(commands) == 2
    uses = USES.format(folder=str(tmp_path), commands=commands)
    for words in ([str(tmp_path / "tools" / "generate_arguments.py")], ["-c", uses]):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_the_verbs_that_take_arguments_are_typed():
    for verb in (predict, pm.Job.__init__, pm.Job.replace, pm.advise):
        assert verb.__annotations__["arguments"] == "Unpack[JobArguments]"
