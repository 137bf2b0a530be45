"""The record of a session: every timed point, in a file next to the result, rewritten as it grows."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError, field_validator

from perfmodel.atomic_write import save_text
from perfmodel.calibration.benchmark import Benchmark, Point
from perfmodel.errors import ArgumentError, PerfmodelWarning, SpecError
from perfmodel.files import MOST_DATA_BYTES, file_text, json_of
from perfmodel.hardware.measured_machine import AllReduce, HostCopy, MeasuredStorage, Overheads, Peaks
from perfmodel.hardware.source import NonNegativeNumber, PositiveNumber, SpecTable
from perfmodel.hardware.spec_files import faults_of
from perfmodel.private_folders import temporary_file

VERSION: Final = 2


class Reuse(SpecTable):
    """Traffic between two runs of a copy that makes it slow, and the cost of its bytes then."""

    moved_bytes: PositiveNumber
    hot_s: PositiveNumber
    distances: tuple[PositiveNumber, ...]
    seconds: tuple[PositiveNumber, ...]
    capacity_bytes: PositiveNumber | None = None
    cold_s_per_byte: NonNegativeNumber | None = None


class Surroundings(SpecTable):
    """Measurements other than kernels; a resumed session adds the missing ones."""

    peaks: Peaks | None = None
    overheads: Overheads = Field(default_factory=Overheads)
    host_copy: tuple[HostCopy, ...] = ()
    storage: tuple[MeasuredStorage, ...] = ()
    all_reduce: tuple[AllReduce, ...] = ()
    clock_mhz: PositiveNumber | None = None
    reuse: Reuse | None = None

    @field_validator("peaks", "reuse", mode="before")
    @classmethod
    def _is_not_empty(cls, value: Any) -> Any:
        if value is None:
            message = "must be a table, or absent"
            raise ValueError(message)
        return value


class Record(SpecTable):
    """The whole record."""

    version: int
    header: dict[str, Any]
    seconds: NonNegativeNumber
    found: Surroundings
    reference_s: tuple[PositiveNumber, ...]
    points: tuple[Point, ...]


SUFFIX: Final = ".points.json"
"""Ending of a calibration's record, instead of ``.toml``."""


def journal_of(out: str | Path) -> Path:
    """Path of a calibration's record, next to its file."""
    path = Path(out).expanduser()
    return path.with_name(path.name.removesuffix(".toml") + SUFFIX)


def temporary_journal() -> Path:
    """Default path of the record of this process."""
    return temporary_file(f"calibration_{os.getpid()}{SUFFIX}")


def set_aside(path: Path) -> None:
    """Rename the record of another session at ``path``, with a warning, so that its points are kept."""
    if not path.is_file() or _is_without_points(path):
        return
    kept = next(unused for number in count(1) if not (unused := path.with_name(f"{path.name}.{number}")).exists())
    try:
        path.rename(kept)
    except OSError as error:
        raise ArgumentError("out", str(path), f"in a folder where records can be renamed ({error.strerror})") from error
    warning = f"{path} had points of an earlier session: they are kept as {kept}, with which --resume goes on"
    warnings.warn(warning, PerfmodelWarning, stacklevel=2)


def _is_without_points(path: Path) -> bool:
    try:
        return not read_journal(path)["points"]
    except ArgumentError:  # not a known record: it is kept
        return False


def digest_of(points: Iterable[Point]) -> str:
    """Return a digest of a session's sizes and times, the same in any order.

    >>> first, second = (Point(name="relu", dtype="fp32", sizes={"n": 3}, seconds=s) for s in (1e-5, 2e-5))
    >>> digest_of([first, second]) == digest_of([second, first]) != digest_of([first, first])
    True
    """
    lines = sorted(json.dumps([p.name, p.dtype, p.sizes, p.seconds], sort_keys=True) for p in points)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


class Journal:
    """Points of a session, and its other measurements."""

    def __init__(self, path: Path | None, header: Mapping[str, Any]) -> None:
        self.path = path
        self.header = dict(header)
        self.surroundings: dict[str, Any] = {}
        self.points: list[Point] = []
        self.reference_s: list[float] = []
        self._own: set[Path] = set()
        self.seconds = 0.0

    def write(self) -> None:
        """Replace the file; if its disk is full, write to the folder of temporary files."""
        if self.path is None:
            return
        try:
            self._write(self.path)
        except ArgumentError:
            elsewhere = temporary_journal()
            if self.path == elsewhere:
                raise
            self.path = elsewhere
            self._write(elsewhere)

    def _write(self, path: Path) -> None:
        if path.resolve() not in self._own:
            set_aside(path)
            self._own.add(path.resolve())
        content = {
            "version": VERSION,
            "header": self.header,
            "seconds": self.seconds,
            "found": self.surroundings,
            "reference_s": self.reference_s,
            "points": [point.model_dump() for point in self.points],
        }
        save_text(path, json.dumps(content))

    def resume(self, path: Path, *, benchmarks: Mapping[str, Mapping[str, Benchmark]]) -> None:
        """Take over the measurements of an earlier session on the same machine with the same software."""
        content = read_journal(path)
        for key, value in self.header.items():
            if content["header"].get(key) != value:
                earlier, now = _differing(content["header"].get(key), value)
                allowed = f"a record of the same {key}; it was {earlier}, and is {now} now"
                raise ArgumentError(argument="resume", given=str(path), allowed=allowed)
        fault = next(_faults(content, benchmarks), None)
        if fault is not None:
            raise _spoilt("resume", path, fault)
        self.surroundings = content["found"]
        self.seconds = content["seconds"]
        self.points = content["points"]
        self.reference_s = content["reference_s"]
        self._own.add(path.resolve())


def _faults(content: Mapping[str, Any], benchmarks: Mapping[str, Mapping[str, Benchmark]]) -> Iterator[str]:
    """Yield the contradictions in a record, in words."""
    rates = content["found"].get("peaks", {}).get("gemm_flop_per_s", benchmarks)
    for dtype in benchmarks:
        if dtype not in rates:
            yield f"found.peaks.gemm_flop_per_s: required key is missing: {dtype}"
    windows = len(content["reference_s"])
    for index, point in enumerate(content["points"]):
        place, known = f"points[{index}]", benchmarks.get(point.dtype, {})
        if point.name not in known:
            yield f"{place}.name: value {point.name!r}: no class of kernels in {point.dtype}"
        elif not known[point.name].has_sizes(point.sizes):
            names = ", ".join(known[point.name].axes)
            yield f"{place}.sizes: value {dict(point.sizes)!r}: a {point.name} has {names}"
        elif wrong := [name for name, size in point.sizes.items() if not known[point.name].axes[name].has(size)]:
            yield f"{place}.sizes.{wrong[0]}: value {point.sizes[wrong[0]]}: not a size of a {point.name}"
        elif point.window >= windows:
            yield f"{place}.window: value {point.window}: must be below {windows}, the times in reference_s"


def _differing(earlier: Any, now: Any) -> tuple[str, str]:
    """Return two values in words; for two tables, only their differences."""
    if not (isinstance(earlier, Mapping) and isinstance(now, Mapping)):
        return _text(earlier), _text(now)
    keys = [key for key in {**earlier, **now} if earlier.get(key) != now.get(key)]
    texts = [", ".join(f"{key} {_text(table.get(key))}" for key in keys) for table in (earlier, now)]
    return texts[0], texts[1]


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "not stated" if value is None else str(value)


def read_journal(path: str | Path, *, argument: str = "resume") -> dict[str, Any]:
    """Read a record, its points as :class:`Point`."""
    try:
        content = json_of(path, file_text(path, most_bytes=MOST_DATA_BYTES))
        if not isinstance(content, dict) or content.get("version") != VERSION:
            message = f"its version must be {VERSION}"
            raise ValueError(message)  # noqa: TRY301 - told as other faults of the file are
        record = Record.model_validate(content)
    except SpecError as error:
        raise _spoilt(argument, path, error.faults[0]) from error
    except ValidationError as error:
        raise _spoilt(argument, path, faults_of(error, Record)[0]) from error
    except ValueError as error:  # neither JSON nor text
        raise _spoilt(argument, path, str(error)) from error
    return content | {"points": list(record.points)}


def _spoilt(argument: str, path: str | Path, fault: str) -> ArgumentError:
    allowed = f"a record of points that a calibration wrote ({fault})"
    return ArgumentError(argument, str(path), allowed)
