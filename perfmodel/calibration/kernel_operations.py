"""What a measured call computed: rows of kernel tables as the neutral operations that layers yield.

A row of a table of matrix products, convolutions or recurrent layers is one operation in one role; a row of a log of
layers is every operation of the layer in a phase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from perfmodel.errors import TableError, UnknownNameError
from perfmodel.layers import GRU, LSTM, RNN, Concat, Convolution2d, Dense, MaxPool2d, ReLU
from perfmodel.layers.base import Layer
from perfmodel.measurements.kernel_tables import MeasuredKernel, blobs_read
from perfmodel.records import Contraction, Convolution, Operation, Recurrence, Role

Operations = tuple[Operation, ...]

READS: Final[dict[tuple[str, str], Role]] = {
    ("N", "N"): Role.OUTPUT,
    ("T", "N"): Role.INPUT_GRADIENT,
    ("N", "T"): Role.WEIGHT_GRADIENT,
}
"""How operands lie -> what the product of a layer yields that reads them so, with weights stored by inputs."""

ROLES: Final[dict[str, tuple[Role, ...]]] = {
    "forward": (Role.OUTPUT,),
    "backward_input": (Role.INPUT_GRADIENT,),
    "backward_weight": (Role.WEIGHT_GRADIENT,),
    "backward": (Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT),
}
"""Phase of a row -> roles of its operations."""

CELLS: Final[dict[str, Callable[..., Layer]]] = {"vanilla": RNN, "lstm": LSTM, "gru": GRU}
"""Name of a recurrent cell -> the layer."""

FIRST_INPUT: Final = "data"
"""Blob that wants no gradient: the network's input. [-]"""


def _roles(row: MeasuredKernel) -> tuple[Role, ...]:
    found: tuple[Role, ...] = _known("phase", row.phase, ROLES)
    return found


def _known(column: str, name: str, known: Mapping[Any, Any]) -> Any:
    if name not in known:
        kind = f"{column} of a measured kernel"
        raise UnknownNameError(kind, name, [str(each) for each in known])
    return known[name]


def _gemm(row: MeasuredKernel) -> Operations:
    # columns of the table's result are samples, its rows features: the other way round than ours
    pair = (row.words["transA"], row.words["transB"])
    if pair not in READS:
        message = f"row {row.row_number}: operands {pair} are not allowed: one of {', '.join(map(str, READS))}"
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
    # the program leaves the input product out (CUDNN_SKIP_INPUT) and gives the state before the first step
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
    return {own: int(stated[name]) for name, own in options.items() if name in stated}


def _convolution_layer(stated: Mapping[str, str]) -> Layer:
    return Convolution2d(out_channels=int(stated["num_output"]), **_window(stated))


def _pooling_layer(stated: Mapping[str, str]) -> Layer:
    return MaxPool2d(ceil_mode=True, **_window(stated))


LAYERS: Final[dict[str, Callable[[Mapping[str, str]], Layer]]] = {
    "Convolution": _convolution_layer,
    "InnerProduct": lambda stated: Dense(units=int(stated["num_output"])),
    "Pooling": _pooling_layer,
    "ReLU": lambda stated: ReLU(),
    "Concat": lambda stated: Concat(axis=0),
}
"""Type of a layer in a log of Caffe -> our layer from its parameters."""


def _layer(row: MeasuredKernel) -> Operations:
    params = row.words["params"]
    stated = dict(part.partition("=")[::2] for part in params.split())
    layer: Layer = _known("layer_type", row.words["layer_type"], LAYERS)(stated)
    shapes = tuple(shape[1:] for shape in row.shapes)
    if isinstance(layer, Dense):
        shapes = tuple((_product(shape),) for shape in shapes)
    batch_size = row.sizes["batch_size"]
    if row.phase == "forward":
        return layer.forward_operations(shapes, batch_size=batch_size)
    wanted = [blob != FIRST_INPUT for blob in blobs_read(params)]
    return layer.gradient_operations(shapes, batch_size=batch_size, wanted=wanted)


def _product(shape: tuple[int, ...]) -> int:
    elements = 1
    for extent in shape:
        elements *= extent
    return elements


OPERATIONS: Final[dict[str, Callable[[MeasuredKernel], Operations]]] = {
    "gemm": _gemm,
    "conv": _convolution,
    "rnn": _recurrence,
    "layer": _layer,
}
"""Name of a format -> the operations of a row."""


def operations_of(row: MeasuredKernel, *, kind: str) -> Operations:
    """Return what a row computed.

    Parameters
    ----------
    row : MeasuredKernel
        The row. [-]
    kind : str
        Name of its table's format. [-]

    Returns
    -------
    tuple of Operation
        In the order they run. [-]

    Raises
    ------
    UnknownNameError
        If the phase, cell or type of layer is unknown; names the nearest.
    TableError
        If its operands lie as no layer's do.

    Examples
    --------
    >>> row = MeasuredKernel(row_number=2, device="Tesla M40", software="CUDA 7.5; cuDNN 5", precision="Float",
    ...     phase="gemm", sizes={"M": 1760, "N": 16, "K": 1760}, words={"transA": "N", "transB": "N"}, seconds=2e-4)
    >>> [(product.m, product.n, product.k) for product in operations_of(row, kind="gemm")]
    [(16, 1760, 1760)]
    """
    return OPERATIONS[kind](row)
