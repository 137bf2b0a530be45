"""Measured calls: CSVs of others in which a row is one call of a kernel, one layer of a log, or one collective."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perfmodel.errors import TableError, check_known, nearest_hint
from perfmodel.files import MOST_DATA_BYTES, file_bytes, file_toml, is_folder, user_path
from perfmodel.measurements.reading import CsvTable, Line, table_error

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKernel:
    """One timed call."""

    row_number: int
    device: str
    software: str
    precision: str
    phase: str
    sizes: Mapping[str, int]
    words: Mapping[str, str]
    shapes: tuple[Shape, ...] = ()
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFormat:
    """A kind of table."""

    name: str
    collection: str
    subjects: tuple[str, ...]
    framework: str
    sizes: tuple[str, ...]
    paddings: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    shape: tuple[str, ...]
    device: str = "device"
    software: str = "version"
    precision: str = "precision"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns without which the table cannot be read. [-]"""
        stated = (self.device, self.software, self.precision)
        return (*filter(None, stated), "phase", "seconds", *self.sizes, *self.paddings, *self.words)

    def shape_of(self, row: MeasuredKernel) -> tuple[object, ...]:
        """Return the shape of a row; folds keep rows of one shape together."""
        return (*(row.sizes.get(name, row.words.get(name)) for name in self.shape), *row.shapes)


def stated_formats(name: str) -> list[dict[str, Any]]:
    """Return the formats that a file of ``formats/`` states, lists as tuples."""
    return [
        {field: tuple(value) if isinstance(value, list) else value for field, value in entry.items()}
        for entry in _stated(name)["format"]
    ]


def _stated(name: str) -> dict[str, Any]:
    return file_toml(Path(__file__).parent / "formats" / f"{name}.toml", refusal=table_error)


NAMES: Final = _stated("names")
"""Name of an accelerator, network or kernel in tables -> its name here, by kind."""


FORMATS: Final = tuple(KernelFormat(**stated) for stated in stated_formats("kernels"))
"""Kinds of tables that can be read."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelMeasurements:
    """A table of timed calls."""

    name: str
    sha256: str
    format: KernelFormat
    rows: tuple[MeasuredKernel, ...]
    skipped: int = 0


def content_hash(*paths: Path) -> str:
    """Return the SHA-256 of the content of files, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(file_bytes(path, most_bytes=MOST_DATA_BYTES, refusal=table_error))
    return digest.hexdigest()


def format_of(header: Iterable[str]) -> KernelFormat | None:
    """Return the format whose columns a header has, exactly or nearly; None if there is none."""
    present = set(header)
    kind = next((known for known in FORMATS if present.issuperset(known.columns)), None)
    if kind is not None:
        return kind
    nearly = max(FORMATS, key=lambda known: len(present.intersection(known.columns)) / len(known.columns))
    missing = [name for name in nearly.columns if name not in present]
    if len(missing) > len(nearly.columns) / 3:
        return None
    hints = [f"{name}{nearest_hint(name, present - set(nearly.columns))}" for name in missing]
    message = f"row 1: a table of {nearly.name} kernels lacks column {', '.join(hints)}"
    raise TableError(message)


def read_kernels(path: str | Path) -> KernelMeasurements | None:
    """Read a table of timed calls."""
    csv_table = CsvTable(path)
    try:
        kind = format_of(csv_table.header)
    except TableError as error:
        raise table_error(csv_table.path, [str(error)]) from error
    if kind is None:
        return None
    timed = [line for line in csv_table.lines if _is_timed(line.values, kind)]
    shapes_of = _layer_shapes(csv_table.lines) if "top_shape" in kind.words else None
    rows = tuple(_row(line, kind=kind, shapes_of=shapes_of) for line in timed)
    csv_table.check(rows)
    return KernelMeasurements(
        name=csv_table.path.stem,
        sha256=content_hash(csv_table.path),
        format=kind,
        rows=rows,
        skipped=len(csv_table.lines) - len(timed),
    )


UNTIMED_LAYERS: Final = ("", "Input")
"""Types of lines in a log of layers that compute nothing: totals, splits, inputs. [-]"""


def _is_timed(values: Mapping[str, str], kind: KernelFormat) -> bool:
    return "layer_type" not in kind.words or values.get("layer_type", "") not in UNTIMED_LAYERS


def _row(
    line: Line, *, kind: KernelFormat, shapes_of: Callable[[Mapping[str, str]], tuple[Shape, ...]] | None
) -> MeasuredKernel:
    values = line.values
    least = dict.fromkeys(kind.sizes, 1) | dict.fromkeys(kind.paddings, 0)
    sizes = {name: line.whole(name, least=least[name]) for name in least}
    seconds = line.seconds("seconds")
    shapes: tuple[Shape, ...] = ()
    try:
        shapes = () if shapes_of is None else shapes_of(values)
    except TableError as error:
        line.faults.append(f"row {line.number}, {error}")
    return MeasuredKernel(
        row_number=line.number,
        device=values[kind.device],
        software=values[kind.software],
        precision=values[kind.precision] if kind.precision else "Float",
        phase=values["phase"],
        sizes=sizes,
        words={name: values[name] for name in kind.words},
        shapes=shapes,
        seconds=seconds,
    )


def _layer_shapes(lines: Iterable[Line]) -> Callable[[Mapping[str, str]], tuple[Shape, ...]]:
    """Return a function that finds the shapes of a logged layer's inputs."""
    shapes = {
        (line.values["network"], line.values["layer"]): tuple(map(int, line.values["top_shape"].split("x")))
        for line in lines
        if line.values.get("top_shape")
    }

    def inputs(values: Mapping[str, str]) -> tuple[Shape, ...]:
        return tuple(of_blob(values["network"], blob) for blob in blobs_read(values["params"]))

    def of_blob(network: str, blob: str) -> Shape:
        # a blob has the name of the layer that makes it, possibly with its window's size after a slash
        names = ("input" if blob == "data" else blob, blob.partition("/")[0])
        shape = next((shapes[network, name] for name in names if (network, name) in shapes), None)
        if shape is None:
            known = sorted(layer for of_network, layer in shapes if of_network == network)
            message = f"column params: reads {blob!r}, which no layer of {network} yields{nearest_hint(blob, known)}"
            raise TableError(message)
        return shape

    return inputs


def blobs_read(params: str) -> tuple[str, ...]:
    """Return the names of a logged layer's inputs.

    >>> blobs_read("num_output=64 pad=2 kernel_size=11 stride=4 bottom=data")
    ('data',)
    """
    stated = dict(part.partition("=")[::2] for part in params.split())
    return tuple(filter(None, stated.get("bottom", "").split(",")))


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFolder:
    """A folder of tables that do not come with perfmodel."""

    kernels: tuple[KernelMeasurements, ...]
    systems: tuple[Path, ...]
    unread: tuple[str, ...]


def read_data_folder(folder: str | Path) -> DataFolder:
    """Read a folder with ``kernels/*.csv``, and ``systems/*.csv`` and ``nets/*.csv``, which count as systems."""
    folder = user_path(folder, refusal=table_error)
    kernel_files, *others = (sorted((folder / inside).glob("*.csv")) for inside in ("kernels", "systems", "nets"))
    system_files = [path for files in others for path in files]
    if not kernel_files and not system_files:
        problem = "holds neither kernels/*.csv nor systems/*.csv" if is_folder(folder) else "is no folder"
        message = f"{folder}: {problem}"
        raise TableError(message)
    read = {path: read_kernels(path) for path in kernel_files}
    return DataFolder(
        kernels=tuple(table for table in read.values() if table is not None),
        systems=tuple(system_files),
        unread=tuple(f"kernels/{path.name}" for path, table in read.items() if table is None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCollective:
    """One timed call."""

    row_number: int
    system: str
    library: str
    operation: str
    worker_count: int
    size_bytes: float
    seconds: float
    is_fitted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveFormat:
    """A kind of table."""

    device: str
    library: str
    operation: str
    systems: Mapping[str, str]
    libraries: Mapping[str, str]
    operations: Mapping[str, str]
    unscored: frozenset[str] = frozenset()
    nodes: str = ""
    fitted: Callable[[int, float], bool]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns without which the table cannot be read. [-]"""
        needed = (self.device, self.library, self.operation, "n_devices", "bytes", "seconds")
        return (*needed, self.nodes) if self.nodes else needed


def on_two_devices(worker_count: int, size_bytes: float) -> bool:
    """Tell whether two devices took part."""
    return worker_count == 2


def every_other_size_on_two_and_eight(worker_count: int, size_bytes: float) -> bool:
    """Tell whether two or eight devices took part, and the message is an even power of two times 512 B.

    >>> [every_other_size_on_two_and_eight(8, size) for size in (512, 1024, 2048)]
    [True, False, True]
    """
    return worker_count in (2, 8) and round(math.log2(size_bytes / 512)) % 2 == 0


FITTED: Final = {rule.__name__: rule for rule in (on_two_devices, every_other_size_on_two_and_eight)}
"""Name of a rule in ``formats/collectives.toml`` -> the rows that constants were fitted to."""

COLLECTIVE_FORMATS: Final = tuple(
    CollectiveFormat(**{**row, "fitted": FITTED[row["fitted"]], "unscored": frozenset(row.get("unscored", ()))})
    for row in stated_formats("collectives")
)
"""Kinds of tables that can be read; the first whose columns a header has is taken."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollectiveMeasurements:
    """A table of timed collectives."""

    name: str
    sha256: str
    rows: tuple[MeasuredCollective, ...]
    left_out: Mapping[str, int]


def read_collectives(path: str | Path) -> CollectiveMeasurements | None:
    """Read a table of timed collectives."""
    csv_table = CsvTable(path)
    kind = next((known for known in COLLECTIVE_FORMATS if set(csv_table.header).issuperset(known.columns)), None)
    if kind is None:
        return None
    rows: list[MeasuredCollective] = []
    left_out: dict[str, int] = {}
    for line in csv_table.lines:
        reason = _left_out(line.values, kind)
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            rows.append(_collective_row(line, kind))
    if not rows:
        csv_table.faults.append("no rows that can be scored: at least one is needed below the header")
    csv_table.check()
    path = csv_table.path
    return CollectiveMeasurements(name=path.stem, sha256=content_hash(path), rows=tuple(rows), left_out=left_out)


def _left_out(record: Mapping[str, str], kind: CollectiveFormat) -> str:
    if record[kind.library] in kind.unscored:
        return f"by {record[kind.library]}"
    if kind.nodes and record[kind.nodes] not in ("", "1"):
        return "on several hosts, whose network is not stated"
    return ""


def _collective_row(line: Line, kind: CollectiveFormat) -> MeasuredCollective:
    devices, size_bytes = line.whole("n_devices", least=2), line.whole("bytes")
    seconds = line.seconds("seconds")
    stated = ((kind.device, kind.systems), (kind.library, kind.libraries), (kind.operation, kind.operations))
    for column, known in stated:
        check_known(f"value of row {line.number}, column {column},", line.values[column], known)
    system, library, operation = (known[line.values[column]] for column, known in stated)
    return MeasuredCollective(
        row_number=line.number,
        system=system,
        library=library,
        operation=operation,
        worker_count=devices,
        size_bytes=float(size_bytes),
        seconds=seconds,
        is_fitted=kind.fitted(devices, size_bytes),
    )
