"""Try perfmodel with the lowest and with the newest versions of what it needs.

``python tools/versions.py`` installs each set in an empty place, does every kind of work and compares the figures;
``--extra frames`` adds what an extra needs. It takes a package index, and about a minute for each set.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SETS = ("lowest", "newest")
MOST_APART = 1e-12
"""Relative difference between figures of the two sets that rounding explains. [1]"""

PREDICT = ["predict", "resnet50", "--device", "gtx_1080", "--framework", "torch_423cfba", "--batch-size", "16"]


def requirements(extras: tuple[str, ...] = ()) -> list[str]:
    """Return what the project file asks for, each with its lowest version.

    Examples
    --------
    >>> [line for line in requirements() if line.startswith("numpy")]
    ['numpy>=1.26']
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]


def pinned(requirement: str) -> str:
    """Return a requirement as its lowest version.

    Examples
    --------
    >>> pinned("dask[distributed]>=2024.5"), pinned("typer>=0.15.4,<1")
    ('dask[distributed]==2024.5', 'typer==0.15.4')
    """
    match = re.fullmatch(r"([\w.\[\]-]+)>=([\w.]+)(,.*)?", requirement)
    if match is None:
        message = f"pyproject.toml: {requirement!r} must state a lowest version, as name>=version"
        raise ValueError(message)
    return f"{match[1]}=={match[2]}"


def _command(*words: str, code: int = 0) -> str:
    """Run a command of perfmodel in this process; return what it prints."""
    from perfmodel.cli.app import run

    printed, refused = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(refused):
        outcome = run(words)
    if outcome != code:
        message = f"perfmodel {' '.join(words)}: exit code {outcome} instead of {code}: {refused.getvalue()}"
        raise RuntimeError(message)
    return printed.getvalue() or refused.getvalue()


def tried() -> dict[str, float]:
    """Do every kind of work with the packages of this interpreter; return figures."""
    import perfmodel as pm

    assert "predict" in _command("--help")
    assert "none with faults" in _command("specs", "check")
    assert len(_command("predict", "resnet50", "--batch-size", "16", code=2).splitlines()) == 1  # no device
    assert "--system" in _command("scaling", "resnet50", code=2)  # a required option
    predicted = json.loads(_command(*PREDICT, "--json"))

    job: Any = {"batch_size": 16, "framework": "torch_423cfba"}
    network = pm.zoo.lenet5()
    prediction = pm.predict(network, device="gtx_1080", **job)
    table = pm.sweep(network, device="gtx_1080", framework="torch_423cfba", batch_size=[8, 16])
    formula = pm.formula("step_s", graph=network, free=["batch_size"], device="gtx_1080", **job)
    parallel = pm.predict(network, system="dgx_a100", workers=8, **job)
    with tempfile.TemporaryDirectory() as folder:
        table.plot("batch_size", path=Path(folder) / "sweep.svg")
        parallel.timeline.save(Path(folder) / "trace.json")
    low_s, high_s = prediction.interval_s
    return {
        "resnet50": predicted["step_s"],
        "lenet5": prediction.step_s,
        "interval, low": low_s,
        "interval, high": high_s,
        "sweep": float(table.row(0)["step_s"]),
        "formula": float(formula(batch_size=16)),
        "eight workers": parallel.step_s,
        "played": parallel.timeline.makespan_s,
    }


def _figures_with(packages: list[str], folder: Path) -> dict[str, float]:
    """Install packages and perfmodel in a folder, say which versions came, and return the figures they give."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *packages], check=True)
    subprocess.run([*pip, "install", "--no-deps", str(ROOT)], check=True)
    names = {re.split(r"[\[=>]", package)[0] for package in packages}
    listed = subprocess.run([*pip, "list", "--format=freeze"], check=True, capture_output=True, text=True).stdout
    sys.stdout.write(f"{', '.join(line for line in listed.split() if line.split('==')[0].lower() in names)}\n")
    trial = [python, "-P", str(Path(__file__).resolve()), "--here"]
    answer = subprocess.run(trial, check=True, stdout=subprocess.PIPE, text=True, cwd=folder)
    return dict(json.loads(answer.stdout))


def main() -> int:
    """Try the sets that are asked for; return how many figures differ between them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"{' or '.join(SETS)}; both if none is given")
    parser.add_argument("--extra", action="append", default=[], help="an extra whose packages are installed too")
    parser.add_argument("--here", action="store_true", help="try the packages of this interpreter and print figures")
    asked = parser.parse_args()
    if asked.here:
        sys.stdout.write(json.dumps(tried()))
        return 0
    figures = {}
    for name in asked.sets or SETS:
        lines = requirements(tuple(asked.extra))
        with tempfile.TemporaryDirectory() as folder:
            packages = [pinned(line) for line in lines] if name == "lowest" else lines
            figures[name] = _figures_with(packages, Path(folder))
        sys.stdout.write(f"{name}: {json.dumps(figures[name])}\n")
    first, *others = figures.values()
    differ = [key for other in others for key in first if abs(other[key] - first[key]) > MOST_APART * abs(first[key])]
    sys.stdout.write(f"figures that differ by more than {MOST_APART:g}: {', '.join(differ) or 'none'}\n")
    return len(differ)


if __name__ == "__main__":
    sys.exit(main())
