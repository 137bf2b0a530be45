"""Measured collectives: CSVs of others in which a row is one call of a library among the devices of a host.

The formats are those in which the all-reduce of Baidu's DeepBench and AIConfigurator's calls of NCCL are passed on.
Which rows may be fitted, and which are only scored, is said here, once for the fit and for the score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perfmodel.errors import UnknownNameError
from perfmodel.measurements.kernel_tables import content_hash
from perfmodel.measurements.rows import positive_seconds, read_lines, table_error, whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCollective:
    """One timed call.

    Parameters
    ----------
    row_number : int
        Line of the CSV. [1]
    system, library, operation : str
        Files of the system and of the library, and what was called. [-]
    worker_count : int
        Devices that took part. [1]
    size_bytes : float
        Bytes as the algorithms count them. [B]
    seconds : float
        Measured time. [s]
    is_fitted : bool
        Whether constants may be fitted to it; such rows are not scored. [-]
    """

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
    """A kind of table.

    Parameters
    ----------
    device, library, operation : str
        Columns that say on what, with what, and what. [-]
    systems, libraries, operations : mapping of str to str
        What they say -> name of the file, or of the operation. [-]
    unscored : frozenset of str
        What the column of the library says of rows that no file describes. [-]
    nodes : str
        Column of the number of hosts; empty where all rows are of one. [-]
    fitted : callable
        Tells of devices and bytes whether a row may be fitted. [-]
    """

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
        return (
            self.device,
            self.library,
            self.operation,
            "n_devices",
            "bytes",
            "seconds",
            *filter(None, (self.nodes,)),
        )


def on_two_devices(worker_count: int, size_bytes: float) -> bool:
    """Tell whether two devices took part.

    Parameters
    ----------
    worker_count : int
        Devices. [1]
    size_bytes : float
        Bytes. [B]

    Returns
    -------
    bool
        True for two. [-]
    """
    return worker_count == 2


def every_other_size_on_two_and_eight(worker_count: int, size_bytes: float) -> bool:
    """Tell whether two or eight devices took part, and the message is an even power of two times 512 B.

    Parameters
    ----------
    worker_count : int
        Devices. [1]
    size_bytes : float
        Bytes. [B]

    Returns
    -------
    bool
        True for 512 B, 2 KiB, 8 KiB and so on. [-]

    Examples
    --------
    >>> [every_other_size_on_two_and_eight(8, size) for size in (512, 1024, 2048)]
    [True, False, True]
    """
    return worker_count in (2, 8) and round(math.log2(size_bytes / 512)) % 2 == 0


FORMATS: Final = (
    CollectiveFormat(
        device="device",
        library="algorithm",
        operation="op",
        systems={
            "Tesla P100-PCIE (host X99-E WS)": "deepbench_p100_host",
            "Titan X (Maxwell)": "deepbench_titan_x_host",
        },
        libraries={"NCCL 2.0 MPI": "nccl_2_0_mpi", "NCCL 2.0 Single": "nccl_2_0_single"},
        operations={"allreduce": "all_reduce"},
        unscored=frozenset({"Baidu RingAllReduce", "OSU Allreduce"}),
        nodes="n_nodes",
        fitted=on_two_devices,
    ),
    CollectiveFormat(
        device="device",
        library="lib_version",
        operation="op",
        systems={"NVIDIA A100-SXM4-80GB": "dgx_a100"},
        libraries={"nccl 2.27.3": "nccl_2_27"},
        operations={
            "all_reduce": "all_reduce",
            "all_gather": "all_gather",
            "reduce_scatter": "reduce_scatter",
            "alltoall": "all_to_all",
        },
        fitted=every_other_size_on_two_and_eight,
    ),
)
"""Kinds of tables that can be read; the first whose columns a header has is taken."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollectiveMeasurements:
    """A table of timed collectives.

    Parameters
    ----------
    name : str
        Stem of its file. [-]
    sha256 : str
        Hash of the file's content. [-]
    rows : tuple of MeasuredCollective
        Calls in one host by libraries that files describe. [-]
    left_out : mapping of str to int
        Why rows are left out, and how many. [1]
    """

    name: str
    sha256: str
    rows: tuple[MeasuredCollective, ...]
    left_out: Mapping[str, int]


def read_collectives(path: str | Path) -> CollectiveMeasurements | None:
    """Read a table of timed collectives.

    Parameters
    ----------
    path : str or Path
        The CSV. [-]

    Returns
    -------
    CollectiveMeasurements or None
        None where the columns are of no known format. [-]

    Raises
    ------
    TableError
        If it cannot be read, or a value is wrong; names row, column, value and what is allowed.
    UnknownNameError
        If a device, library or operation is unknown; names the nearest.
    """
    path = Path(path)
    header, lines = read_lines(path)
    kind = next((each for each in FORMATS if set(header).issuperset(each.columns)), None)
    if kind is None:
        return None
    faults: list[str] = []
    rows: list[MeasuredCollective] = []
    left_out: dict[str, int] = {}
    for number, values in lines:
        record = dict(zip(header, values, strict=False))
        reason = _left_out(record, kind)
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
        elif (row := _row(record, kind, number=number, faults=faults)) is not None:
            rows.append(row)
    if not rows and not faults:
        faults.append("no rows that can be scored: at least one is needed below the header")
    if faults:
        raise table_error(path, faults)
    return CollectiveMeasurements(name=path.stem, sha256=content_hash(path), rows=tuple(rows), left_out=left_out)


def _left_out(record: Mapping[str, str], kind: CollectiveFormat) -> str:
    if record[kind.library] in kind.unscored:
        return f"by {record[kind.library]}"
    if kind.nodes and record[kind.nodes] not in ("", "1"):
        return "on several hosts, whose network is not stated"
    return ""


def _row(
    record: Mapping[str, str], kind: CollectiveFormat, *, number: int, faults: list[str]
) -> MeasuredCollective | None:
    found: list[str] = []
    devices = whole_number(record["n_devices"], column="n_devices", number=number, faults=found, least=2)
    size_bytes = whole_number(record["bytes"], column="bytes", number=number, faults=found)
    seconds = positive_seconds(record["seconds"], column="seconds", number=number, faults=found)
    names = {}
    for column, known in (
        (kind.device, kind.systems),
        (kind.library, kind.libraries),
        (kind.operation, kind.operations),
    ):
        if record[column] not in known:
            raise UnknownNameError(kind=f"value of row {number}, column {column},", name=record[column], known=known)
        names[column] = known[record[column]]
    faults += found
    if devices is None or size_bytes is None or seconds is None:
        return None
    return MeasuredCollective(
        row_number=number,
        system=names[kind.device],
        library=names[kind.library],
        operation=names[kind.operation],
        worker_count=devices,
        size_bytes=float(size_bytes),
        seconds=seconds,
        is_fitted=kind.fitted(devices, size_bytes),
    )
