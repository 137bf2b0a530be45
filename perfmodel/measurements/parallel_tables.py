"""Tables of networks on many devices: what each row ran, as sizes of a parallelism and a batch over all workers.

A table is a CSV in the columns of its source and a TOML that says where it comes from and what the columns leave out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from perfmodel.errors import TableError, UnknownNameError
from perfmodel.measurements.rows import positive_seconds, read_lines, table_error

FOLDER: Final = Path(__file__).resolve().parent / "parallel"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelRow:
    """One measured step, or speed-up, on several devices.

    Parameters
    ----------
    row_number : int
        Line of the CSV. [1]
    label, part : str
        What a reader tells rows apart by; which rows it is scored among, besides all. [-]
    builder : str
        Network of the zoo. [-]
    builder_options : mapping of str
        Its options. [-]
    device : str
        Name of a device. [-]
    parallelism : str
        Kind of parallel execution. [-]
    sizes : mapping of str
        Workers, stages, micro-batches and the like, by their names in ``perfmodel.parallelism.Layout``. [1]
    global_batch_size : int
        Samples of all workers per step. [samples]
    sync : str
        How data-parallel workers agree, as the source names it. [-]
    links : mapping of str to str
        Link between the devices of each group. [-]
    measured_s : float or None
        Seconds of a step. [s]
    measured_speedup : float or None
        Over one device. [1]
    published_speedup : float or None
        What another model predicted. [1]
    baseline_batch_size : int or None
        Samples of one device's step that speed-ups are over. [samples]
    """

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
    links: Mapping[str, str]
    measured_s: float | None = None
    measured_speedup: float | None = None
    published_speedup: float | None = None
    baseline_batch_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelTable:
    """Rows of one source.

    Parameters
    ----------
    key, title : str
        Name of the table, and one line. [-]
    rows : tuple of ParallelRow
        In the order of the file. [-]
    framework, dtype, optimizer : str
        What ran. [-]
    source, evidence : mapping of str to str
        Where the numbers come from; why we know what ran. [-]
    """

    key: str
    title: str
    rows: tuple[ParallelRow, ...]
    framework: str
    dtype: str
    optimizer: str
    source: Mapping[str, str] = field(default_factory=dict)
    evidence: Mapping[str, str] = field(default_factory=dict)


def names() -> tuple[str, ...]:
    """Return the keys of the tables that come with perfmodel.

    Examples
    --------
    >>> names()
    ('korthikanti2022', 'paleo2017')
    """
    return tuple(sorted(path.stem for path in FOLDER.glob("*.csv")))


def load(key: str) -> ParallelTable:
    """Load a table that comes with perfmodel.

    Parameters
    ----------
    key : str
        One of ``names()``. [-]

    Returns
    -------
    ParallelTable
        Rows with what they ran. [-]

    Raises
    ------
    UnknownNameError
        If there is no such table.
    TableError
        If a file is wrong.

    Examples
    --------
    >>> load("korthikanti2022").rows[0].sizes["tensor_size"]
    8
    """
    if key not in names():
        raise UnknownNameError(kind="table of many devices", name=str(key), known=names())
    path = FOLDER / f"{key}.csv"
    try:
        description = tomllib.loads(path.with_suffix(".toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        problem = f"{path.with_suffix('.toml')}: cannot be read as TOML: {error}"
        raise TableError(problem) from error
    run = description["run"]
    header, lines = read_lines(path)
    faults: list[str] = []
    read = _FORMATS[description["format"]]
    rows = tuple(
        read(dict(zip(header, values, strict=True)), number=number, run=run, faults=faults) for number, values in lines
    )
    if faults:
        raise table_error(path, faults)
    return ParallelTable(
        key=key,
        title=description["title"],
        rows=rows,
        framework=run["framework"],
        dtype=run["dtype"],
        optimizer=run["optimizer"],
        source=description["source"],
        evidence=run["evidence"],
    )


def _language_model(
    record: Mapping[str, str], *, number: int, run: Mapping[str, Any], faults: list[str]
) -> ParallelRow:
    """Read a row of a GPT on a pipeline of tensor groups."""
    full = record["recompute"] == "full"
    interleave = int(record["interleave"])
    batch = int(record["global_batch"])
    return ParallelRow(
        row_number=number,
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
            "attention": "materialised" if full else "selective",
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
        links=run["links"],
        measured_s=positive_seconds(record["iteration_s"], column="iteration_s", number=number, faults=faults),
    )


def _speedup(record: Mapping[str, str], *, number: int, run: Mapping[str, Any], faults: list[str]) -> ParallelRow:
    """Read a row of a speed-up over one device."""
    builder = record["network"].partition(" ")[0]
    link = run["fabrics"][record["fabric"]]
    workers, batch = int(record["workers"]), int(record["global_batch"])
    measured, published = (
        positive_seconds(record[column], column=column, number=number, faults=faults)
        for column in ("measured_speedup", "paleo_published_speedup")
    )
    return ParallelRow(
        row_number=number,
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
        measured_speedup=measured,
        published_speedup=published,
        baseline_batch_size=run["baseline_batches"][builder],
    )


_FORMATS: Final[Mapping[str, Callable[..., ParallelRow]]] = {"language_models": _language_model, "speedups": _speedup}
"""Format of a CSV to what reads a row."""
