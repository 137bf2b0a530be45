"""Command lines, each with something wrong in it: words, options, values, files."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import typer

from perfmodel.cli.app import app, run
from tests.fuzz.of_files import CONFIGURATIONS, TABLE, _graphs
from tests.fuzz.trial import Trial, shown
from tests.fuzz.values import NUMBERS, TEXTS

ON_GPU = "--device gtx_1080 --framework caffe_1_0_rc3 --batch-size 4"
SMALL_GPT = "gpt --option layers=2 --option width=64 --option heads=2 --option sequence_length=32 --option vocabulary=9"

LINES = (
    *(f"predict lenet5 {ON_GPU}", f"predict lenet5 {ON_GPU} --measured none --json --explain --top 2"),
    "predict lenet5 --system dgx_a100 --workers 2 --framework pytorch_2 --batch-size 4 --measured none --price 1.5",
    *(f"predict given/graph.json {ON_GPU} --measured none", f"predict given/config.json {ON_GPU} --out new.txt"),
    f"compare lenet5 {ON_GPU} --with device=tesla_k40",
    f"advise lenet5 {ON_GPU} --kinds batch_size",
    "scaling lenet5 --system dgx_a100 --workers 1,2 --batch-size 4",
    "plan lenet5 --candidate p2.xlarge --batch-size 32 --dataset-size 50000 --epochs 1",
    *("stragglers --cv 0.1", "stragglers --cv 0.1 --workers 2,4 --json"),
    *(
        "sweep lenet5 --device gtx_1080,tesla_k40 --batch-size 4,8",
        f"sweep lenet5 {ON_GPU} --best step_s --csv new.csv",
    ),
    f"search {SMALL_GPT} --system dgx_a100 --devices 2 --global-batch-size 4",
    *("validate paleo2017", "validate given/table.csv --rows", "validate given/table.csv --max-mape 10 --json"),
    *("audit lenet5", "audit given/config.json --batch-size 2"),
    *("transfer dgx_a100 host:gpu0", "transfer dgx_a100 gpu0:gpu1 host:gpu2 --size-bytes 1e6 --trace new.json"),
    *("specs show device gtx_1080", "specs show nvlink_5_x18", "specs check given/device.toml --kind device"),
    *("specs list price", "specs check given", "calibration show xeon_2_cores_torch_2_13"),
    "calibration diff xeon_2_cores_torch_2_13 xeon_2_cores_torch_2_13",
    *("fit given/table.csv", "calibrate cpu --backend numpy", "validate live --network lenet5"),
    *("--version", "predict --help", "specs --help", "nothing"),
)
"""Command lines that are answered, nearly all; `guarded` keeps those that measure from doing so. [-]"""

WORDS = (
    *(
        "gtx_1080",
        "dgx_a100",
        "lenet5",
        "vgg16",
        "pytorch_2",
        "caffe_1_0_rc3",
        "p2.xlarge",
        "host:gpu*",
        "gpu",
        "shi2016",
    ),
    *(
        "1",
        "2",
        "4",
        "0",
        "-1",
        "0.5",
        "1e9",
        "1,2,4",
        "4,",
        ",",
        "max",
        "all",
        "none",
        "true",
        "auto",
        "step",
        "forward",
    ),
    *("fp16", "bf16", "adam", "sgd", "zero", "megatron", "every=2", "normal=0.1", "unequal=1,2", "0.5:2:4", "0.3"),
    *(
        "batch-size=4",
        "batch_size=",
        "device=h100_sxm",
        "network=alexnet",
        "layers=3",
        "workers=2",
        "step_s",
        "stages=2",
    ),
    *("price=0.5;device=gtx_1080;workers=1", "p2.16xlarge:4,8", "price=;price=", "dtype=fp16", "tesla_k40=0.5"),
    *("given", "given/graph.json", "given/config.json", "given/device.toml", "given/table.csv", "given/empty.json"),
    *(
        "given/bytes.onnx",
        "given/loop.toml",
        "given/pipe.csv",
        "given/none.json",
        "given/raises.py:net",
        "given/raises.py",
    ),
    *("new.json", "new.svg", "none/new.json", "/dev/null", "--", "-", "-h", "--json", "--", "--no-progress"),
    *map(str, NUMBERS),
    *(text for text in TEXTS if text != "\ud800"),
    "\udcff",
)
"""Words put in the place of others; a shell's words have lone surrogates only for bytes that are no text. [-]"""


def _write_files(folder: Path) -> None:
    """Write what command lines read into an empty folder, so that none depends on those before it."""
    shutil.rmtree(folder, ignore_errors=True)
    given = folder / "given"
    given.mkdir(parents=True)
    for name, content in _contents().items():
        (given / name).write_bytes(content)
    (given / "loop.toml").symlink_to(given / "loop.toml")
    os.mkfifo(given / "pipe.csv")


@cache
def _contents() -> dict[str, bytes]:
    from perfmodel.hardware import spec_files

    return {
        "graph.json": json.dumps(_graphs()[0]).encode(),
        "config.json": json.dumps(CONFIGURATIONS[0]).encode(),
        "device.toml": spec_files.find("devices", "gtx_1080").read_bytes(),
        "table.csv": TABLE.encode(),
        "empty.json": b"",
        "bytes.onnx": bytes(range(256)),
        "raises.py": b"def net():\n    raise RuntimeError('as its author wrote')\n",
    }


@cache
def options() -> dict[str, tuple[str, ...]]:
    """Return the options of every command, by the words that name it."""
    found: dict[str, tuple[str, ...]] = {}
    waiting: list[tuple[str, Any]] = [("", typer.main.get_command(app))]
    while waiting:
        name, command = waiting.pop()
        waiting += [(f"{name} {inner}".strip(), it) for inner, it in getattr(command, "commands", {}).items()]
        found[name] = tuple(text for it in command.params for text in (*it.opts, *it.secondary_opts) if text[0] == "-")
    return found


def command_line(chance: Random, folder: Path) -> Trial:
    """Spoil a command line: words changed, dropped, doubled, moved, cut or added."""
    words = chance.choice(LINES).split(" ")
    named = _options_of(words)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        if not words:
            break
        place, how = chance.randrange(len(words)), chance.randrange(10)
        if how < 4:  # the first word is a command, of which there are few
            words[max(place, min(1, len(words) - 1))] = chance.choice(WORDS)
        elif how < 7 and named:
            words += [chance.choice(named), *([chance.choice(WORDS)] if chance.random() < 0.9 else [])]
        elif how == 7:
            words.insert(place, chance.choice((*WORDS, *words)))
        elif how == 8:
            words[place] = words[place][: chance.randrange(len(words[place]) + 1)] + chance.choice(("", "=", "=4", "x"))
        else:
            del words[place]
    return of_words(guarded(words, chance), folder)


def of_words(line: list[str], folder: Path) -> Trial:
    """Make a trial of a command line, in a folder of its own with the files of ``given``."""
    return Trial(shown(line), lambda: _outcome(line, folder / "lines"))


def _options_of(words: list[str]) -> tuple[str, ...]:
    return options().get(" ".join(words[:2])) or options().get(words[0], ())


def guarded(words: list[str], chance: Random) -> list[str]:
    """Return a command line that cannot measure for a minute, start many processes, or score a table of an hour."""
    named = " ".join(words)
    if named.startswith("calibrate"):
        return [*words, "--budget", chance.choice(("never", "-1", "0", "nan"))]
    if named.startswith("validate live"):
        return [*words, "--repeats", chance.choice(("never", "-1", "0", "nan"))]
    if named.startswith("fit"):
        return [*words, "--only", chance.choice(("none", "", "GPU"))]
    if "--proc" in named:
        return [*words, "--processes", chance.choice(("0", "x", "257", "1"))]
    return words


def _outcome(words: list[str], folder: Path) -> list[float]:
    """Run a command line in its own folder; raise AssertionError unless it ends in an answer or in one line."""
    _write_files(folder)
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    before = Path.cwd()
    os.chdir(folder)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = run(words)
    finally:
        executed = [*Path().glob("executed_by*")]
        os.chdir(before)
        for made in executed:
            shutil.move(folder / made, before)
    printed, said = (stream.buffer.getvalue().decode("utf-8") for stream in (out, err))
    _check(words, code, printed, said)
    return []


NOT_FINITE = re.compile(r"(?<![\w.'\"=-])[+-]?(?:nan|inf|infinity)(?![\w.=]| Fabric)", re.IGNORECASE)
"""A number that is none, as it is printed."""


def _check(words: list[str], code: int, printed: str, said: str) -> None:
    lines = said.split("\n")[:-1] if said else []
    errors = [line for line in lines if line.startswith("perfmodel: error: ")]
    assert code in (0, 1, 2), f"exit code {code}"
    assert "Traceback" not in said + printed, said[-300:]
    if code == 2:
        assert len(errors) == 1 or "Usage: perfmodel" in printed, f"code 2 with {len(errors)} lines of error"
        assert len(errors[0] if errors else "") < 12_000, f"a refusal of {len(errors[0]):,} characters"
    else:
        assert not errors, f"code {code} with {errors[0]:.100}"
    if not any("progress" in word for word in words):
        odd = [line for line in lines if not line.startswith("perfmodel: ")]
        assert not odd, f"on the error stream: {odd[0]:.100}"
    stated = " ".join(words).casefold()
    if code == 0 and not any(word in stated for word in ("nan", "inf", "help", "-h")):
        found = NOT_FINITE.search(printed)
        assert not found, f"prints {printed[max(0, found.start() - 60) : found.end() + 10]!r}"
