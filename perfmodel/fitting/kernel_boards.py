"""Measured kernels of one board, lowered together and timed by the same path as the kernels of a prediction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.derived import derived_property
from perfmodel.errors import TableError, UnknownNameError
from perfmodel.framework.kernel_table import PROBE_BATCH_SIZES, KernelTable, LayerOperation, build_kernel_table
from perfmodel.framework.profile import FrameworkProfile, load_framework
from perfmodel.hardware.library import device_of_text, library_of_text
from perfmodel.hardware.part_catalogue import load_datasheet
from perfmodel.layers import GRU, LSTM, RNN, Concat, Convolution2d, Dense, MaxPool2d, ReLU
from perfmodel.layers.base import Layer
from perfmodel.measurements.kernel_tables import MeasuredKernel, blobs_read
from perfmodel.prediction.device.factors import NO_FACTORS, AskedNames, Factors, library_constants
from perfmodel.prediction.device.step_time import group_times
from perfmodel.prediction.device.target import Libraries, Target
from perfmodel.prediction.device.targets import resolve_target
from perfmodel.records import ELEMENT_BYTES, Contraction, Convolution, Operation, Phase, Recurrence, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.hardware.device import Device
    from perfmodel.measurements.kernel_tables import KernelFormat, KernelMeasurements


Operations = tuple[Operation, ...]

READS: Final[dict[tuple[str, str], Role]] = {
    ("N", "N"): Role.OUTPUT,
    ("T", "N"): Role.INPUT_GRADIENT,
    ("N", "T"): Role.WEIGHT_GRADIENT,
}
"""Layout of the operands -> role of the product that reads them in this layout, with weights stored by inputs."""

ROLES: Final[dict[str, tuple[Role, ...]]] = {
    "forward": (Role.OUTPUT,),
    "backward_input": (Role.INPUT_GRADIENT,),
    "backward_weight": (Role.WEIGHT_GRADIENT,),
    "backward": (Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT),
}
"""Phase of a row -> roles of its operations."""

CELLS: Final[dict[str, Callable[..., Layer]]] = {"vanilla": RNN, "lstm": LSTM, "gru": GRU}

FIRST_INPUT: Final = "data"
"""Blob that needs no gradient: the network's input. [-]"""


def _roles(row: MeasuredKernel) -> tuple[Role, ...]:
    roles: tuple[Role, ...] = _known("phase", row.phase, ROLES)
    return roles


def _known(column: str, name: str, known: Mapping[Any, Any]) -> Any:
    if name not in known:
        raise UnknownNameError(kind=f"{column} of a measured kernel", name=name, known=[str(entry) for entry in known])
    return known[name]


def _gemm(row: MeasuredKernel) -> Operations:
    # in the table's result, columns are samples and rows are features: the reverse of ours
    pair = (row.words["transA"], row.words["transB"])
    if pair not in READS:
        message = f"row {row.row_number}: operands must be one of {', '.join(map(str, READS))} (got {pair})"
        raise TableError(message)
    return (Contraction(m=row.sizes["N"], n=row.sizes["M"], k=row.sizes["K"], role=READS[pair]),)


def _convolution(row: MeasuredKernel) -> Operations:
    size = row.sizes
    return tuple(
        Convolution(
            batch_size=size["N"],
            in_channels=size["C"],
            out_channels=size["K"],
            input_size=(size["H"], size["W"]),
            output_size=(size["P_out_h"], size["Q_out_w"]),
            kernel_size=(size["R_filter_h"], size["S_filter_w"]),
            stride=(size["stride_h"], size["stride_w"]),
            padding=((size["pad_h"], size["pad_h"]), (size["pad_w"], size["pad_w"])),
            dilation=(1, 1),
            role=role,
        )
        for role in _roles(row)
    )


def _recurrence(row: MeasuredKernel) -> Operations:
    # the program omits the input product (CUDNN_SKIP_INPUT) and gives the state before the first step
    hidden, steps = row.sizes["hidden"], row.sizes["timesteps"]
    layer = _known("cell", row.words["cell"], CELLS)(hidden_size=hidden, bias_vectors=2)
    shapes, batch_size = ((steps, hidden),), row.sizes["N"]
    everything = (
        *layer.forward_operations(shapes, batch_size=batch_size),
        *layer.backward_operations(shapes, batch_size=batch_size),
    )
    roles = _roles(row)
    return tuple(
        replace(operation, input_size=0, first_state_gradient=True)
        for operation in everything
        if isinstance(operation, Recurrence) and operation.role in roles
    )


def _window(stated: Mapping[str, str]) -> dict[str, Any]:
    options = {"kernel_size": "kernel_size", "stride": "stride", "pad": "padding"}
    return {option: int(stated[name]) for name, option in options.items() if name in stated}


LAYERS: Final[dict[str, Callable[[Mapping[str, str]], Layer]]] = {
    "Convolution": lambda stated: Convolution2d(out_channels=int(stated["num_output"]), **_window(stated)),
    "InnerProduct": lambda stated: Dense(units=int(stated["num_output"])),
    "Pooling": lambda stated: MaxPool2d(ceil_mode=True, **_window(stated)),
    "ReLU": lambda stated: ReLU(),
    "Concat": lambda stated: Concat(axis=0),
}
"""Type of a layer in a Caffe log -> function from its parameters to our layer."""


def _layer(row: MeasuredKernel) -> Operations:
    params = row.words["params"]
    stated = dict(part.partition("=")[::2] for part in params.split())
    layer: Layer = _known("layer_type", row.words["layer_type"], LAYERS)(stated)
    shapes = tuple(shape[1:] for shape in row.shapes)
    if isinstance(layer, Dense):
        shapes = tuple((math.prod(shape),) for shape in shapes)
    batch_size = row.sizes["batch_size"]
    if row.phase == "forward":
        return layer.forward_operations(shapes, batch_size=batch_size)
    wanted = [blob != FIRST_INPUT for blob in blobs_read(params)]
    return layer.gradient_operations(shapes, batch_size=batch_size, wanted=wanted)


OPERATIONS: Final[dict[str, Callable[[MeasuredKernel], Operations]]] = {
    "gemm": _gemm,
    "conv": _convolution,
    "rnn": _recurrence,
    "layer": _layer,
}


def operations_of(row: MeasuredKernel, *, kind: str) -> Operations:
    """Return the operations of a row."""
    return OPERATIONS[kind](row)


DTYPES = (
    ("16 bit multiplication", "fp16"),
    ("single precision", "fp32"),
    ("float", "fp32"),
)
"""Words of a precision -> data type, by the first that occurs; none if products and storage differ in type."""

INTEGER_WORD = "int8"
"""Word of a precision that means integer products, listed together with floating-point recurrences."""


def dtype_of_text(text: str, *, kind: str) -> str | None:
    """Return the data type that a table's text names."""
    lower = text.lower()
    if INTEGER_WORD in lower and kind != "rnn":
        return None
    return next((dtype for words, dtype in DTYPES if words in lower), None)


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelBoard:
    """Measured kernels of one board with one software and data type."""

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

    @derived_property
    def measured_s(self) -> NDArray[np.float64]:
        """Measured times, shape (rows,). [s]"""
        return np.array([row.seconds for row in self.rows])

    @derived_property
    def constant_names(self) -> tuple[str, ...]:
        """Full names of all file constants that the times depend on. [-]"""
        recorder = AskedNames()
        self.target.numbers(self.profile, self.libraries, dtype=self.dtype, factors=recorder)
        return tuple(recorder.names)

    @derived_property
    def constant_values(self) -> dict[str, Any]:
        """Values of these constants in the files, by full name. [unit of each constant]"""
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
        """Return the predicted time of every row."""
        numbers = self.target.numbers(self.profile, self.libraries, dtype=self.dtype, factors=factors)
        limit_bytes = self.profile.gpu.lowering.workspace_limit_bytes
        groups = group_times(self.table, numbers, batch_size=1, workspace_limit_bytes=limit_bytes)
        busy_s = groups.compute_s + groups.memory_s + groups.launches * numbers.launch_s
        of_operation = (busy_s + groups.exposed_dispatch_s)[self.groups]
        times: NDArray[np.float64] = np.add.reduceat(of_operation, self.starts, axis=0)
        return times


def boards_of(table: KernelMeasurements) -> tuple[tuple[KernelBoard, ...], dict[str, int]]:
    """Lower the rows of a table, board by board."""
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
        message = f"row {rows[0].row_number}: device must be a GPU (got {device!r})"
        raise TableError(message)
    profile = load_framework(kind.framework)
    stated = {role: library_of_text(software, role.removeprefix("gpu_")) for role in target.roles}
    libraries = {
        **target.libraries(profile, None),
        **{role: library for role, library in stated.items() if library is not None},
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
