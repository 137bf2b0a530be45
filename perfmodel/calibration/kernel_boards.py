"""Measured kernels of one board, lowered together, and timed by the path that times the kernels of a prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.calibration.kernel_operations import operations_of
from perfmodel.errors import TableError
from perfmodel.framework.kernel_table import PROBE_BATCH_SIZES, KernelTable, LayerOperation, build_kernel_table
from perfmodel.framework.profile import FrameworkProfile, load_framework
from perfmodel.hardware.device_catalogue import load_datasheet
from perfmodel.hardware.wording import device_of_text, library_of_text
from perfmodel.prediction.scaling import NO_FACTORS, AskedNames, Factors, library_constants
from perfmodel.prediction.step_time import group_times
from perfmodel.prediction.target import Libraries, Target
from perfmodel.prediction.targets import resolve_target
from perfmodel.records import ELEMENT_BYTES, Phase

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.hardware.device import Device
    from perfmodel.hardware.source import SpecFile
    from perfmodel.measurements.kernel_tables import KernelFormat, KernelMeasurements, MeasuredKernel

DTYPES = (
    ("16 bit multiplication", "fp16"),
    ("single precision", "fp32"),
    ("float", "fp32"),
)
"""Words of a precision -> data type, the first that occurs; what multiplies in another type than it stores is none."""

INTEGER_WORD = "int8"
"""Word of a precision that names integers for products, beside floating-point recurrences."""


def dtype_of_text(text: str, *, kind: str) -> str | None:
    """Return the data type that a table's text names.

    Parameters
    ----------
    text : str
        Precision as a table writes it. [-]
    kind : str
        Name of the table's format. [-]

    Returns
    -------
    str or None
        None where perfmodel has no such type. [-]

    Examples
    --------
    >>> dtype_of_text("16 bit inputs, 16 bit multiplication, 32 bit addition", kind="gemm")
    'fp16'
    """
    lower = text.lower()
    if INTEGER_WORD in lower and kind != "rnn":
        return None
    return next((dtype for words, dtype in DTYPES if words in lower), None)


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelBoard:
    """Measured kernels of one board with one software and data type.

    Parameters
    ----------
    device, software, dtype : str
        Device file, versions as the table writes them, data type. [-]
    kind : KernelFormat
        What a row is. [-]
    rows : tuple of MeasuredKernel
        Timed calls. [-]
    target : Target
        The device. [-]
    profile : FrameworkProfile
        Who calls. [-]
    libraries : mapping of str to LibraryProfile
        Libraries by role. [-]
    table : KernelTable
        The kernels of all rows. [-]
    groups : ndarray of int, shape (operations,)
        Group of the table that each operation of each row is. [1]
    starts : ndarray of int, shape (rows,)
        First operation of each row. [1]
    work : ndarray, shape (rows, 2)
        Arithmetic and compulsory traffic of each row. [FLOP, B]
    """

    device: str
    software: str
    dtype: str
    kind: KernelFormat
    rows: tuple[MeasuredKernel, ...]
    target: Target
    profile: FrameworkProfile
    libraries: Libraries
    table: KernelTable
    groups: NDArray[np.intp]
    starts: NDArray[np.intp]
    work: NDArray[np.float64]

    @property
    def device_file(self) -> Device:
        """The device. [-]"""
        return load_datasheet(self.device)

    @property
    def label(self) -> str:
        """Device and data type, for people. [-]"""
        return f"{self.device}, {self.dtype}"

    @cached_property
    def measured_s(self) -> NDArray[np.float64]:
        """Measured times, shape (rows,). [s]"""
        return np.array([row.seconds for row in self.rows])

    @property
    def sources(self) -> tuple[SpecFile, ...]:
        """Every file whose numbers a prediction uses. [-]"""
        return (*self.target.specs, self.profile, *self.libraries.values())

    @cached_property
    def constant_names(self) -> tuple[str, ...]:
        """Full names of all constants of files that the times depend on. [-]"""
        asked = AskedNames()
        self.target.numbers(self.profile, self.libraries, dtype=self.dtype, factors=asked)
        return tuple(asked.names)

    @cached_property
    def constant_values(self) -> dict[str, Any]:
        """What the files state for these constants, by full name. [unit of each constant]"""
        known: dict[str, Mapping[str, Any]] = {f"frameworks/{self.profile.stem}": self.profile.gpu.constants}
        for library in self.libraries.values():
            known[f"libraries/{library.stem}"] = library_constants(library, self.device_file, factors=NO_FACTORS)
        values = {}
        for name in self.constant_names:
            folder, stem, place = name.split("/")
            constant = place.rpartition(".")[2]
            if constant in known.get(f"{folder}/{stem}", {}):
                values[name] = known[f"{folder}/{stem}"][constant]
        return values

    def times(self, factors: Factors = NO_FACTORS) -> NDArray[np.float64]:
        """Return the predicted time of every row.

        Parameters
        ----------
        factors : mapping of str to float or ndarray of shape (configurations,)
            Factors on constants by full name. [1]

        Returns
        -------
        ndarray, shape (rows,) or (rows, configurations)
            Kernels, launch gaps, and the dispatch that they do not hide. [s]
        """
        numbers = self.target.numbers(self.profile, self.libraries, dtype=self.dtype, factors=factors)
        limit_bytes = self.profile.gpu.lowering.workspace_limit_bytes
        groups = group_times(self.table, numbers, batch_size=1, workspace_limit_bytes=limit_bytes)
        busy_s = groups.compute_s + groups.memory_s + groups.launches * numbers.launch_s
        of_operation = (busy_s + groups.exposed_dispatch_s)[self.groups]
        times: NDArray[np.float64] = np.add.reduceat(of_operation, self.starts, axis=0)
        return times


def boards_of(table: KernelMeasurements) -> tuple[tuple[KernelBoard, ...], dict[str, int]]:
    """Lower the rows of a table, board by board.

    Parameters
    ----------
    table : KernelMeasurements
        Timed calls. [-]

    Returns
    -------
    tuple of KernelBoard
        One for each device, software and data type. [-]
    dict of str to int
        Rows that are not predicted, by the precision that perfmodel does not have. [1]

    Raises
    ------
    UnknownNameError
        If a device, phase, cell or layer is unknown; names the nearest.
    TableError
        If a row's device is no GPU.
    """
    grouped: dict[tuple[str, str, str], list[MeasuredKernel]] = {}
    left_out: dict[str, int] = {}
    for row in table.rows:
        dtype = dtype_of_text(row.precision, kind=table.format.name)
        if dtype is None:
            left_out[row.precision] = left_out.get(row.precision, 0) + 1
            continue
        grouped.setdefault((device_of_text(row.device), row.software, dtype), []).append(row)
    return tuple(_board(key, rows, kind=table.format) for key, rows in grouped.items()), left_out


def _board(key: tuple[str, str, str], rows: Sequence[MeasuredKernel], *, kind: KernelFormat) -> KernelBoard:
    device, software, dtype = key
    target = resolve_target(device=device, system=None, threads=None)
    if target.processor != "gpu":
        message = f"row {rows[0].row_number}: device {device!r} is not allowed: kernels of a GPU"
        raise TableError(message)
    profile = load_framework(kind.framework)
    stated = {role: library_of_text(software, role.removeprefix("gpu_")) for role in target.roles}
    libraries = {
        **target.libraries(profile, None),
        **{role: found for role, found in stated.items() if found is not None},
    }
    element_bytes = ELEMENT_BYTES[dtype]
    operations = [operations_of(row, kind=kind.name) for row in rows]
    entries = [
        LayerOperation(str(index), Phase.FORWARD, operation)
        for index, of_row in enumerate(operations)
        for operation in of_row
    ]
    table = build_kernel_table(
        [entries] * len(PROBE_BATCH_SIZES),
        rules=profile.gpu.lowering.rules(target.support(profile, libraries, dtype=dtype)),
        element_bytes=element_bytes,
        processor=target.processor,
    )
    works = [[operation.work(element_bytes=element_bytes) for operation in of_row] for of_row in operations]
    return KernelBoard(
        device=device,
        software=software,
        dtype=dtype,
        kind=kind,
        rows=tuple(rows),
        target=target,
        profile=profile,
        libraries=libraries,
        table=table,
        groups=np.array([occurrence.group for occurrence in table.occurrences], dtype=np.intp),
        starts=np.cumsum([0, *map(len, operations[:-1])]).astype(np.intp),
        work=np.array(
            [(sum(work.flop_count for work in of_row), sum(work.moved_bytes for work in of_row)) for of_row in works],
            dtype=np.float64,
        ),
    )
