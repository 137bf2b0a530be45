"""Tables of times that others measured or claimed, on many devices or with many networks: a CSV and its TOML."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from perfmodel.errors import check_known
from perfmodel.files import file_toml
from perfmodel.measurements.reading import CsvTable, Line, table_error

FOLDER: Final = Path(__file__).resolve().parent / "scaling"

Row = TypeVar("Row")

SCHEMA_VERSION: Final = 1
"""Version of the formats of the TOML files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTable:
    """Content of the TOML of every such table."""

    key: str
    title: str
    source: Mapping[str, str] = field(hash=False)
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingTable(DescribedTable):
    """Rows of several devices."""

    rows: tuple[Mapping[str, Any], ...]
    stated: Mapping[str, Any] = field(hash=False)


def scaling_names() -> tuple[str, ...]:
    """Return the keys of the tables of several devices that come with perfmodel.

    >>> scaling_names()
    ('mullapudi2017', 'wuensche2018_multi_gpu')
    """
    return names_in(FOLDER)


def load_scaling(key: str) -> ScalingTable:
    """Load a table of several devices.

    >>> table = load_scaling("mullapudi2017")
    >>> table.rows[0]["epoch_s"], len(table.caveats)
    (3.52, 6)
    """
    description, rows = read_described(FOLDER, key, what="table of several devices", read=_texts_and_numbers)
    return ScalingTable(rows=rows, stated=description["stated"], **head_of(key, description))


def _texts_and_numbers(line: Line, description: Mapping[str, Any]) -> dict[str, Any]:
    numbers = description["numbers"]
    return {column: _number(line, column) if column in numbers else text for column, text in line.values.items()}


def names_in(folder: Path) -> tuple[str, ...]:
    """Return the keys of the tables in a folder that comes with perfmodel."""
    return tuple(sorted(path.stem for path in folder.glob("*.csv")))


def read_described(
    folder: Path, key: str, *, what: str, read: Callable[[Line, Mapping[str, Any]], Row]
) -> tuple[dict[str, Any], tuple[Row, ...]]:
    """Return the TOML of a table and its rows, each read from a line by ``read``."""
    check_known(what, key, names_in(folder))
    path = folder / f"{key}.csv"
    description = read_description(path.with_suffix(".toml"))
    csv_table = CsvTable(path)
    rows = tuple(read(line, description) for line in csv_table.lines)
    csv_table.check(rows)
    return description, rows


def read_description(path: Path) -> dict[str, Any]:
    """Return a TOML of the version that this code reads."""
    content = file_toml(path, refusal=table_error)
    if content["schema_version"] != SCHEMA_VERSION:
        raise table_error(path, [f"schema_version must be {SCHEMA_VERSION} (got {content['schema_version']!r})"])
    return content


def head_of(key: str, description: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a ``DescribedTable``."""
    caveats = description.get("caveat", ())
    texts = () if isinstance(caveats, str) else tuple(caveat["text"] for caveat in caveats)
    return {"key": key, "title": description["title"], "source": description["source"], "caveats": texts}


def _number(line: Line, column: str) -> float:
    try:
        return float(line.values[column])
    except ValueError:
        line.refuse(column, "a number")
        return math.nan


_FOLDER: Final = Path(__file__).parent / "speedups"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupJob(DescribedTable):
    """System, framework and options with which the rows of a table ran."""

    system: str
    other_systems: tuple[str, ...]
    sync: str
    dataset: str
    input_from: str
    decode_cores: int


def load_speedup_job(key: str) -> SpeedupJob:
    """Load the job behind a table."""
    check_known("table of steps on several devices", key, [path.stem for path in sorted(_FOLDER.glob("*.toml"))])
    content = read_description(_FOLDER / f"{key}.toml")
    kept = ("system", "sync", "dataset", "input_from", "decode_cores")
    others = tuple(content["other_systems"])
    return SpeedupJob(**{name: content[name] for name in kept}, other_systems=others, **head_of(key, content))


PARALLEL_FOLDER: Final = Path(__file__).resolve().parent / "parallel"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelRow:
    """One measured step, or speed-up, on several devices."""

    row_number: int
    label: str
    part: str
    builder: str
    builder_options: Mapping[str, Any]
    device: str
    parallelism: str
    sizes: Mapping[str, Any]
    global_batch_size: int
    sync: str
    links: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Link of each group of devices, which runs the algorithms by their names."""
    system: str | None = None
    """Machines instead of links, on which the framework's library runs."""
    measured_s: float | None = None
    measured_speedup: float | None = None
    published_speedup: float | None = None
    baseline_batch_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelTable(DescribedTable):
    """Rows of one source."""

    rows: tuple[ParallelRow, ...]
    framework: str
    dtype: str
    optimizer: str
    evidence: Mapping[str, str] = field(default_factory=dict)


def load_parallel(key: str) -> ParallelTable:
    """Load a table that comes with perfmodel."""
    description, rows = read_described(PARALLEL_FOLDER, key, what="table of many devices", read=_parallel_row)
    kept = ("framework", "dtype", "optimizer", "evidence")
    run = {name: description["run"][name] for name in kept}
    return ParallelTable(rows=rows, **run, **head_of(key, description))


def _parallel_row(line: Line, description: Mapping[str, Any]) -> ParallelRow:
    return _FORMATS[description["format"]](line, run=description["run"])


def _language_model(line: Line, *, run: Mapping[str, Any]) -> ParallelRow:
    """Read a row of a GPT on a pipeline of tensor groups."""
    record = line.values
    full = record["recompute"] == "full"
    interleave = int(record["interleave"])
    batch = int(record["global_batch"])
    return ParallelRow(
        row_number=line.number,
        label=f"{record['network']}, {record['recompute']} recomputation",
        part=f"{record['recompute']} recomputation",
        builder="gpt",
        builder_options={
            "layers": int(record["layers"]),
            "width": int(record["hidden"]),
            "heads": int(record["heads"]),
            "sequence_length": int(record["sequence_length"]),
            "vocabulary": int(record["vocabulary"]),
            "dropout": 0.1,
            "attention": "fused_softmax" if full else "selective",
            "checkpointed": full,
            "name": record["network"],
        },
        device=run["devices"][record["device"]],
        parallelism="pipeline",
        sizes={
            "workers": int(record["device_count"]),
            "stages": int(record["pipeline_stages"]),
            "tensor_size": int(record["tensor_size"]),
            "sequence_parallel": record["sequence_parallel"] == "yes",
            "micro_batches": batch // (int(record["micro_batch"]) * int(record["data_parallel"])),
            "interleave": interleave,
            "schedule": "interleaved" if interleave > 1 else "1f1b",
        },
        global_batch_size=batch,
        sync="ring_all_reduce",
        system=run["system"],
        measured_s=line.seconds("iteration_s"),
    )


def _speedup(line: Line, *, run: Mapping[str, Any]) -> ParallelRow:
    """Read a row of a speed-up over one device."""
    record = line.values
    builder = record["network"].partition(" ")[0]
    link = run["fabrics"][record["fabric"]]
    workers, batch = int(record["workers"]), int(record["global_batch"])
    return ParallelRow(
        row_number=line.number,
        label=f"{record['study']}: {record['network']}, {workers} x {record['device']}, batch {batch}",
        part=record["study"],
        builder=builder,
        builder_options={},
        device=run["devices"][record["device"]],
        parallelism=record["parallelism"],
        sizes={"workers": workers},
        global_batch_size=batch,
        sync=record["sync"],
        links={"data": link, "tensor": link},
        measured_speedup=line.seconds("measured_speedup"),
        published_speedup=line.seconds("paleo_published_speedup"),
        baseline_batch_size=run["baseline_batches"][builder],
    )


_FORMATS: Final[Mapping[str, Callable[..., ParallelRow]]] = {"language_models": _language_model, "speedups": _speedup}
"""Format of a CSV -> reader of its rows."""


NETWORK_FOLDER: Final = Path(__file__).resolve().parent / "networks"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRow:
    """One measured step."""

    row_number: int
    network: str
    image_size: int
    device: str
    cell: tuple[str, ...]
    batch_size: int
    measured_s: float
    arguments: Mapping[str, Any] = field(hash=False)

    @property
    def is_training(self) -> bool:
        """Whether the step goes backward."""
        return bool(self.arguments["phase"] != "forward")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTable(DescribedTable):
    """Rows of one source, and the program that ran."""

    zoo: str
    framework: str
    is_fed: bool
    attention_in_training: str
    rows: tuple[NetworkRow, ...]


def network_table_names() -> tuple[str, ...]:
    """Return the tables of networks of torch packages whose runs perfmodel knows.

    >>> network_table_names()
    ('timm_rtx3090_amp', 'torchvision_batch12')
    """
    return tuple(sorted(path.stem for path in NETWORK_FOLDER.glob("*.toml")))


def read_network_table(path: Path) -> NetworkTable:
    """Read a table; its file's name identifies its run."""
    check_known("table of networks", path.stem, network_table_names())
    stated = read_description(NETWORK_FOLDER / f"{path.stem}.toml")
    csv_table = CsvTable(path)
    meanings: dict[str, dict[str, Mapping[str, Any]]] = {}
    for meaning in stated["meaning"]:
        meanings.setdefault(meaning["column"], {})[meaning["value"]] = meaning
    needed = ("device", "batch_size", *stated["columns"].values(), *meanings)
    missing = (name for name in needed if name not in csv_table.header)
    csv_table.faults.extend(f"row 1: column {name} is missing" for name in missing)
    csv_table.check()
    rows = [_network_row(line, stated=stated, meanings=meanings) for line in csv_table.lines]
    csv_table.check(rows)
    kept = ("zoo", "framework", "is_fed", "attention_in_training")
    return NetworkTable(**{name: stated[name] for name in kept}, rows=tuple(rows), **head_of(stated["key"], stated))


def _network_row(
    line: Line, *, stated: Mapping[str, Any], meanings: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> NetworkRow:
    columns, values = stated["columns"], line.values
    size = stated.get("image_size") or line.whole(columns["image_size"])
    seconds = line.seconds(columns["seconds"])
    arguments = dict(stated["arguments"])
    cell = []
    for column, known in meanings.items():
        value = values.get(column, "")
        if value in known:
            cell.append(known[value]["cell"])
            arguments |= known[value]["arguments"]
        else:
            line.refuse(column, f"one of {', '.join(known)}")
    return NetworkRow(
        row_number=line.number,
        network=values[columns["network"]],
        image_size=size,
        device=values["device"],
        cell=tuple(cell),
        batch_size=line.whole("batch_size"),
        measured_s=seconds,
        arguments=arguments,
    )
