"""Processes that are killed while they write, and disks that fill up: each file is then the old or the new one."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

import perfmodel as pm
from perfmodel.calibration import calibrate as calibration
from perfmodel.calibration.journal import Journal, read_journal
from perfmodel.errors import PerfmodelError
from perfmodel.fitting.fit import Fit, keep_fits
from tests.fake_machine import FakeBackend, run_on_fake_time

PART = ".part"
"""Ending of what a killed writer leaves."""


@dataclass
class Tally:
    """What became of the kills of one kind."""

    tried: int = 0
    while_writing: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Writer:
    """Something that writes a file: ``write(path, version)`` with version 0 or 1, each always the same bytes."""

    file: str
    write: Callable[[Path, int], object]

    @cache  # noqa: B019 - a few writers that live as long as the session
    def contents(self, folder: Path) -> tuple[bytes, bytes]:
        """Return the content of each version."""
        path = folder / self.file
        contents = []
        for version in (0, 1):
            self.write(path, version)
            contents.append(path.read_bytes())
            path.unlink()
        first, second = contents
        return first, second


@cache
def _sweeps() -> tuple[pm.Sweep, pm.Sweep]:
    graph = pm.zoo.lenet5()
    first, second = (
        pm.sweep(graph, batch_size=range(start, start + 3000), device="gtx_1080", framework="caffe_1_0_rc3")
        for start in (1, 5001)
    )
    return first, second


@cache
def _predictions() -> tuple[pm.Prediction, pm.Prediction]:
    where = {"device": "gtx_1080", "framework": "caffe_1_0_rc3"}
    first, second = (pm.predict(pm.zoo.alexnet(), batch_size=size, **where) for size in (16, 32))
    return first, second


@cache
def _graphs() -> tuple[pm.LayerGraph, pm.LayerGraph]:
    return pm.zoo.resnet50(), pm.zoo.vgg16()


def _keep(path: Path, version: int) -> None:
    """Cache a fit of some hundred unknowns."""
    import numpy as np

    os.environ["PERFMODEL_CACHE"] = str(path.parent)
    count = 100 + version
    fit = Fit(
        names=tuple(f"unknown {index}" for index in range(count)),
        log_factors=np.linspace(0, 1, count),
        covariance=np.eye(count),
        parameter_count=count,
        converged=True,
        mean_abs_log_ratio=0.1,
    )
    keep_fits(path.stem, [fit])


def _report(path: Path, version: int) -> None:
    from perfmodel.atomic_write import save_text

    save_text(path, f"## Version {version}\n\n" * 20_000)


WRITERS = {
    "sweep to CSV": Writer("sweep.csv", lambda path, version: _sweeps()[version].to_csv(path)),
    "sweep to Parquet": Writer("sweep.parquet", lambda path, version: _sweeps()[version].to_parquet(path)),
    "answer as JSON": Writer("step.json", lambda path, version: _predictions()[version].to_json(path)),
    "timeline": Writer("step.trace.json", lambda path, version: _predictions()[version].timeline.save(path)),
    "picture": Writer("step.png", lambda path, version: _predictions()[version].plot(path)),
    "graph": Writer("net.json", lambda path, version: _graphs()[version].save(path)),
    "cached fit": Writer("fit.json", _keep),
    "page": Writer("report.md", _report),
}


@contextmanager
def _forked(work: Callable[[], object]) -> Iterator[int]:
    """Run something in a child process, which ends with the block."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Python warns of the threads of other packages
        child = os.fork()
    if child == 0:
        code = 1
        with suppress(BaseException):
            try:
                work()
                code = 0
            except BaseException:
                traceback.print_exc()
        os._exit(code)
    try:
        yield child
    finally:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _over_and_over(writer: Writer, path: Path) -> None:
    version = 0
    while True:
        version = 1 - version
        writer.write(path, version)


SILENT = {"cached fit"}
"""What need not be written."""


def kill_writers(name: str, *, count: int, random: Random, folder: Path) -> Tally:
    """Kill a process that writes two versions of a file by turns, at random moments."""
    writer, tally = WRITERS[name], Tally()
    path = folder / writer.file
    known = writer.contents(folder)
    for number in range(count):
        tally.tried += 1
        writer.write(path, 0)
        with _forked(lambda: _over_and_over(writer, path)):
            time.sleep(random.uniform(0.0, 0.25))
        left = [other for other in folder.iterdir() if other.name.endswith(PART)]
        tally.while_writing += bool(left)
        if path.read_bytes() not in known:
            tally.faults.append(f"kill {number}: half of a file of {len(path.read_bytes()):,} B")
        writer.write(path, 1)
        if path.read_bytes() != known[1] or list(folder.iterdir()) != [path]:
            tally.faults.append(f"kill {number}: the next write left {[other.name for other in folder.iterdir()]}")
    return tally


def fill_disks(name: str, *, count: int, random: Random, folder: Path) -> Tally:
    """Write where no file may grow beyond a random size: the old file stays, and the refusal is one line."""
    writer, tally = WRITERS[name], Tally()
    path = folder / writer.file
    known = writer.contents(folder)

    def write_within(most_bytes: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
        try:
            writer.write(path, 1)
        except PerfmodelError:
            return
        if name not in SILENT:
            message = "a file that cannot be whole was written without a word"
            raise AssertionError(message)

    for number in range(count):
        tally.tried += 1
        writer.write(path, 0)
        most_bytes = random.randrange(len(known[1]))
        tally.while_writing += most_bytes > 0
        with _forked(lambda: write_within(most_bytes)) as child:  # noqa: B023 - it is called at once
            _, status = os.waitpid(child, 0)
        if status:
            tally.faults.append(f"disk {number} of {most_bytes:,} B: no refusal in words")
        if path.read_bytes() != known[0] or list(folder.iterdir()) != [path]:
            tally.faults.append(f"disk {number} of {most_bytes:,} B: left {[other.name for other in folder.iterdir()]}")
    return tally


class _Patch:
    """Sets attributes for good, in a child process."""

    def setattr(self, owner: object, name: str, value: object) -> None:
        setattr(owner, name, value)


def _calibrate(out: Path, told: int, *, resume: Path | None = None) -> None:
    """Calibrate a made-up machine; tell the number of points after each time that the record is written."""
    patch = _Patch()
    run_on_fake_time(patch)
    write = Journal.write

    def telling(journal: Journal) -> None:
        write(journal)
        os.write(told, f"{len(journal.points)} ".encode())

    patch.setattr(Journal, "write", telling)
    patch.setattr(sys.modules["perfmodel.calibration.surroundings"], "measure_storage", list)
    calibration.calibrate("cpu", backend=FakeBackend(), budget_s=20, progress=False, out=out, resume=resume)


def kill_calibrations(*, count: int, random: Random, folder: Path, longest_s: float = 2.0) -> Tally:
    """Kill a calibration at random moments, and resume it: no point that was on the disk is lost or changed."""
    tally = Tally()
    for number in range(count):
        tally.tried += 1
        here = folder / str(number)
        here.mkdir()
        out, record = here / "mine.toml", here / "mine.points.json"
        reading, told = os.pipe()
        with _forked(lambda: _calibrate(out, told)) as child:  # noqa: B023 - it is called at once
            os.close(told)
            os.set_blocking(reading, True)
            first = os.read(reading, 1024)  # its surroundings are measured
            time.sleep(random.uniform(0.0, longest_s))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        written = (first + os.read(reading, 2**20)).split()
        os.close(reading)
        tally.while_writing += any(other.name.endswith(PART) for other in here.iterdir()) or not out.exists()
        before = read_journal(record)["points"]
        if len(before) < int(written[-1]):
            tally.faults.append(f"kill {number}: {len(before)} of {int(written[-1])} points are on the disk")
        reading, told = os.pipe()
        with _forked(lambda: _calibrate(out, told, resume=record)) as child:  # noqa: B023
            os.close(told)
            _, status = os.waitpid(child, 0)
        os.close(reading)
        after = {(point.name, str(point.sizes)): point for point in read_journal(record)["points"]}
        lost = [point for point in before if not _is_kept(point, after.get((point.name, str(point.sizes))))]
        names = sorted(other.name for other in here.iterdir())
        if status or lost or names != sorted([out.name, record.name]):
            tally.faults.append(f"kill {number}: resumed with status {status}, {len(lost)} points lost, {names}")
        elif pm.load_calibration(out).session.point_count != len(after):
            tally.faults.append(f"kill {number}: the calibration has other points than its record")
    return tally


def _is_kept(before: object, after: object) -> bool:
    return after is not None and (after.retaken or after.seconds == before.seconds)


WORDS = "sweep lenet5 --batch-size 1,2,4,8 --device gtx_1080 --framework caffe_1_0_rc3 --no-progress --out"


def kill_commands(*, count: int, random: Random, folder: Path, longest_s: float = 2.5) -> Tally:
    """Kill the command at random moments, from its first import to its last line."""
    tally = Tally()
    out = folder / "sweep.txt"
    run = [sys.executable, "-m", "perfmodel", *WORDS.split(), str(out)]
    subprocess.run(run, check=True, capture_output=True)
    whole = out.read_bytes()
    for number in range(count):
        tally.tried += 1
        out.write_text("old")
        process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0.0, longest_s))
        tally.while_writing += process.poll() is None
        process.kill()
        process.wait()
        if out.read_bytes() not in (b"old", whole):
            tally.faults.append(f"kill {number}: half of a file")
        for other in folder.iterdir():
            if other != out and not other.name.endswith(PART):
                tally.faults.append(f"kill {number}: left {other.name}")
    return tally
