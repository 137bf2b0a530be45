"""Try perfmodel with the lowest and with the newest versions of its dependencies, and with those between.

``python tools/versions.py`` installs the lowest and the newest set, each in an empty place, does every kind of work and
compares the figures; ``--extra frames`` adds what an extra needs. ``--matrix`` also tries each minor version of numpy
and each Python that is found, and prints a table for docs/versions.md; ``--python PATH`` names more interpreters; a
SET such as ``torch==2.3.0,numpy<2`` is the newest with these instead. ``--licences`` prints the licences of everything
that is installed here for perfmodel. ``--builds`` makes the wheel and the source archive twice, and the wheel once
more from the archive without a package index, with the hatchling and build of this interpreter, and tells whether they
are the same files. It takes a package index, except for the last two, and about a minute for each set.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SETS = ("lowest", "newest")
MOST_APART = 1e-12
"""Relative difference between figures of the two sets that rounding explains. [1]"""

NUMPY_PINS = ("numpy==1.26.*", "numpy==2.0.*", "numpy==2.1.*", "numpy==2.2.*", "numpy==2.3.*")
"""Minor versions of numpy between the lowest and the newest, which the other sets try."""
UNTRIED = (
    "torch older than the newest, which needs 2 to 3 GB of CUDA libraries for each version (give it as a SET)",
    "what is known of the security of these versions: run pip-audit where its advisories can be had",
)
"""Things that ``--matrix`` leaves out, printed at its end."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
DEVICES = ("gtx_1080", "tesla_p100_pcie", "h100_sxm")
NETWORKS = ("alexnet", "googlenet", "resnet50", "gpt2")
BATCH_SIZES = (1, 7, 64)

PREDICT = ["predict", "resnet50", "--device", "gtx_1080", "--framework", "torch_423cfba", "--batch-size", "16"]


def requirements(extras: tuple[str, ...] = ()) -> list[str]:
    """Return the requirements of the project file, each with its lowest version.

    >>> [line for line in requirements() if line.startswith("numpy")]
    ['numpy>=1.26']
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]


def pinned(requirement: str) -> str:
    """Return a requirement as its lowest version.

    >>> pinned("dask[distributed]>=2024.5"), pinned("typer>=0.15.4,<1")
    ('dask[distributed]==2024.5', 'typer==0.15.4')
    """
    match = re.fullmatch(r"([\w.\[\]-]+)>=([\w.]+)(,.*)?", requirement)
    if match is None:
        message = f"pyproject.toml: {requirement!r} must state a lowest version, as name>=version"
        raise ValueError(message)
    return f"{match[1]}=={match[2]}"


def _command(*words: str, code: int = 0) -> str:
    """Run a command of perfmodel in this process; return its output."""
    from perfmodel.cli.app import run

    printed, refused = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(refused):
        outcome = run(words)
    if outcome != code:
        message = f"perfmodel {' '.join(words)}: exit code {outcome} instead of {code}: {refused.getvalue()}"
        raise RuntimeError(message)
    return printed.getvalue() or refused.getvalue()


def _predicted() -> dict[str, float]:
    """Return the parts of a fixed set of predictions."""
    import perfmodel as pm

    figures: dict[str, float] = {}
    for network in NETWORKS:
        graph = pm.zoo.build(network)
        for device in DEVICES:
            for batch_size in BATCH_SIZES:
                p = pm.predict(graph, device=device, batch_size=batch_size, optimizer="adam")
                name = f"{network}, {device}, {batch_size}"
                figures |= {name: p.step_s, f"{name}, memory": float(p.memory.total_bytes)}
                figures |= {f"{name}, interval": p.interval_s[1], f"{name}, compute": p.compute_s}
    return figures


def _imported() -> dict[str, float]:
    """Return figures of a network that torch traces; none without torch."""
    try:
        import torch
    except ImportError:
        return {}
    import perfmodel as pm

    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 10)
    )
    graph = pm.from_torch(module, torch.zeros(2, 3, 8, 8))
    return {"from torch": pm.predict(graph, device="gtx_1080", batch_size=16).step_s}


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
        **_predicted(),
        **_imported(),
        "resnet50": predicted["step_s"],
        "lenet5": prediction.step_s,
        "interval, low": low_s,
        "interval, high": high_s,
        "sweep": float(table.row(0)["step_s"]),
        "formula": float(formula(batch_size=16)),
        "eight workers": parallel.step_s,
        "played": parallel.timeline.makespan_s,
    }


def interpreters(paths: list[str]) -> dict[str, str]:
    """Return the Pythons by version: first those named, then those that the shell finds."""
    wanted = {path: path for path in paths} or {f"python{version}": version for version in PYTHONS}
    found = {}
    for name in wanted:
        path = shutil.which(name)
        say = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
        reply = None if path is None else subprocess.run([path, "-c", say], check=False, capture_output=True, text=True)
        if path is None or reply is None or reply.returncode:  # a version manager's stand-in may be there alone
            sys.stdout.write(f"{name}: not found, so not tried\n")
            continue
        found[reply.stdout.strip()] = path
    return found


def packages_of(name: str, lines: list[str]) -> list[str]:
    """Return requirements for pip: the lowest versions, the newest, or the newest with some pinned.

    >>> packages_of("lowest", ["numpy>=1.26"]), packages_of("numpy==2.0.*,torch==2.3.0", ["numpy>=1.26"])
    (['numpy==1.26'], ['numpy>=1.26', 'numpy==2.0.*', 'torch==2.3.0'])
    """
    if name == "lowest":
        return [pinned(line) for line in lines]
    return lines if name == "newest" else [*lines, *name.split(",")]


def _figures_with(packages: list[str], folder: Path, python: str) -> tuple[str, dict[str, float]]:
    """Install packages and perfmodel in a folder; return which versions came, and the figures they give."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    inside = str(folder / "bin" / "python")
    pip = [inside, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *packages], check=True)
    subprocess.run([*pip, "install", "--no-deps", str(ROOT)], check=True)
    names = {re.split(r"[\[=><]", package)[0] for package in packages}
    listed = subprocess.run(
        [inside, "-m", "pip", "list", "--format=freeze"], check=True, capture_output=True, text=True
    ).stdout
    versions = [line for line in listed.split() if line.split("==")[0].lower() in names]
    trial = [inside, "-P", str(Path(__file__).resolve()), "--here"]
    answer = subprocess.run(trial, check=True, stdout=subprocess.PIPE, text=True, cwd=folder)
    return ", ".join(line.replace("==", " ") for line in versions), dict(json.loads(answer.stdout))


def apart(first: dict[str, float], other: dict[str, float]) -> tuple[float, list[str]]:
    """Return the largest relative difference of figures that both have, and which differ beyond rounding.

    >>> apart({"a": 2.0, "b": 4.0, "c": 1.0}, {"a": 2.0, "b": 5.0})
    (0.25, ['b'])
    """
    differences = {key: abs(other[key] / first[key] - 1) if first[key] else other[key] for key in first.keys() & other}
    return max(differences.values()), sorted(key for key, value in differences.items() if value > MOST_APART)


def licences() -> list[tuple[str, str, str]]:
    """Return name, version and licence of every required package, as in its metadata."""
    wanted, licence_of = [re.split(r"[\[=><]", line)[0] for line in requirements()], {}
    while wanted:
        name = wanted.pop()
        if name.lower() in licence_of:
            continue
        about = metadata.metadata(name)
        classified = [
            value.split(" :: ")[-1]
            for value in about.get_all("Classifier") or []
            if value.startswith("License ::") and value != "License :: OSI Approved"
        ]
        expression, words = ((about.get_all(field) or [""])[0] for field in ("License-Expression", "License"))
        stated = expression or ", ".join(classified) or words.split("\n")[0]
        licence_of[name.lower()] = (about["Name"], about["Version"], stated or "not stated")
        needed = [line for line in metadata.requires(name) or [] if ";" not in line]
        wanted += [re.split(r"[\s\[=><!~(]", line)[0] for line in needed]
    return [licence_of[name] for name in sorted(licence_of)]


def builds(folder: Path, *, epoch: str = "315532800") -> dict[str, list[str]]:
    """Build wheel and source archive twice, and the wheel from the archive; return the SHA-256 of each by its name."""
    made: dict[str, list[str]] = {}
    source = ROOT
    for number in ("first", "second", "from the archive"):
        out = folder / number
        options = ["--wheel"] if source != ROOT else []
        environment = os.environ | {"SOURCE_DATE_EPOCH": epoch, "PIP_NO_INDEX": "1"}
        command = [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", str(out), str(source)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        for path in sorted(out.iterdir()):
            made.setdefault(path.name, []).append(hashlib.sha256(path.read_bytes()).hexdigest())
            if number == "second" and path.name.endswith(".tar.gz"):
                shutil.unpack_archive(path, folder / "unpacked", filter="data")
                source = folder / "unpacked" / path.name.removesuffix(".tar.gz")
    return made


def _print_builds() -> int:
    """Print a line for each file that was built; return 1 if two of one name differ."""
    with tempfile.TemporaryDirectory() as folder:
        made = builds(Path(folder))
    for name, hashes in made.items():
        outcome = "the same" if len(set(hashes)) == 1 else "DIFFERENT"
        sys.stdout.write(f"| {name} | {len(hashes)} builds, {outcome} | {hashes[0][:16]} |\n")
    return int(any(len(set(hashes)) > 1 for hashes in made.values()))


def _tried_sets(asked: argparse.Namespace) -> int:
    """Try each set with each Python; print a line of a table for each, and return how many figures differ."""
    lines = requirements(tuple(asked.extra))
    pythons = interpreters(asked.python) if asked.matrix or asked.python else {}
    this_python = ".".join(map(str, sys.version_info[:3]))
    pairs = [(name, this_python, sys.executable) for name in asked.sets or SETS]
    if asked.matrix:
        pairs += [(pin, this_python, sys.executable) for pin in NUMPY_PINS]
    pairs += [("newest", version, path) for version, path in pythons.items() if version != this_python]
    first: dict[str, float] = json.loads(Path(asked.beside).read_text(encoding="utf-8")) if asked.beside else {}
    differing = 0
    sys.stdout.write("| set | Python | versions | largest difference | figures |\n|---|---|---|---|---|\n")
    for name, version, python in pairs:
        with tempfile.TemporaryDirectory() as folder:
            try:
                came, figures = _figures_with(packages_of(name, lines), Path(folder), python)
            except subprocess.CalledProcessError as error:
                differing += 1
                sys.stdout.write(f"| {name} | {version} | failed: {' '.join(map(str, error.cmd))[:200]} | | |\n")
                continue
        first = first or figures
        largest, differ = apart(first, figures)
        differing += len(differ)
        sys.stdout.write(f"| {name} | {version} | {came} | {largest:.1e} {', '.join(differ)} | {len(figures)} |\n")
        sys.stdout.flush()
    if asked.matrix:
        sys.stdout.writelines(f"not tried: {what}\n" for what in UNTRIED)
    return differing


def main() -> int:
    """Try the sets that are asked for; return 1 if figures differ or a set fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", metavar="SET", help="lowest, newest, or pins; both if none is given")
    parser.add_argument("--extra", action="append", default=[], help="an extra whose packages are installed too")
    parser.add_argument("--python", action="append", default=[], help="an interpreter to try the newest versions with")
    parser.add_argument("--matrix", action="store_true", help="also each minor version of numpy, and each Python")
    parser.add_argument("--licences", action="store_true", help="print the licences of the installed packages, and end")
    parser.add_argument("--builds", action="store_true", help="build twice and compare the files, and end")
    parser.add_argument("--beside", help="file of figures, written by --here, to compare with; else the first set's")
    parser.add_argument("--here", action="store_true", help="try the packages of this interpreter and print figures")
    asked = parser.parse_args()
    if asked.here:
        sys.stdout.write(json.dumps(tried()))
        return 0
    if asked.licences:
        sys.stdout.writelines(f"| {' | '.join(line)} |\n" for line in licences())
        return 0
    return _print_builds() if asked.builds else min(_tried_sets(asked), 1)


if __name__ == "__main__":
    sys.exit(main())
