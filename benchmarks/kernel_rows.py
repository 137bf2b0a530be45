"""Read the measured kernel tables and lower their convolutions; used by the scripts that fit kernel constants."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from perfmodel import load_device
from perfmodel.prediction.device.gpu_clock import sustained_peak_flop_per_s
from perfmodel.records import Convolution, Role
from perfmodel.units import MIB

ELEMENT_BYTES = 4
FLOOR = 5e-6
"""Gap between two launches of a stream of short kernels, assumed for convolutions. [s]"""


@dataclass(frozen=True)
class Board:
    """A GPU as the tables name it: peak at the clock it sustains, bandwidth, multiprocessors, boost clock, L2.

    ``tensor_peak`` is that of 16 bit operands on tensor cores, where the board has them.
    """

    name: str
    architecture: str
    peak: float
    bandwidth: float
    units: int
    clock: float
    l2: float
    tensor_peak: float = float("nan")


T4 = load_device("t4")
BOARDS = {
    "tesla_m40": Board("Tesla M40", "maxwell", 6.844e12, 288.4e9, 24, 1.114e9, 3 * MIB),
    "titan_x_maxwell": Board("Titan X (Maxwell)", "maxwell", 6.605e12, 336.6e9, 24, 1.075e9, 3 * MIB),
    "tesla_p100_pcie": Board("Tesla P100-PCIE (host X99-E WS)", "pascal", 9.34e12, 732e9, 56, 1.303e9, 4 * MIB),
    "titan_x_pascal": Board("Titan X (Pascal)", "pascal", 10.974e12, 480.4e9, 28, 1.531e9, 3 * MIB),
    "t4": Board(
        "Tesla T4",
        "turing",
        sustained_peak_flop_per_s(T4, "fp32"),
        320e9,
        40,
        1.59e9,
        4 * MIB,
        sustained_peak_flop_per_s(T4, "fp16"),
    ),
}
ROLES = {
    "forward": Role.OUTPUT,
    "backward_input": Role.INPUT_GRADIENT,
    "backward_weight": Role.WEIGHT_GRADIENT,
}


def with_board(table: pd.DataFrame) -> pd.DataFrame:
    """Add the board's identifier and numbers to each row."""
    identifiers = {board.name: identifier for identifier, board in BOARDS.items()}
    table = table.assign(board=table.device.map(identifiers))
    for field in ("architecture", "peak", "bandwidth", "units", "clock", "l2", "tensor_peak"):
        table[field] = [getattr(BOARDS[board], field) for board in table.board]
    return table


SINGLE = "Float"
HALF_ON_TENSOR_CORES = "16 bit inputs, 16 bit multiplication, 32 bit addition"


def deepbench_gemms(folder: Path, precision: str = SINGLE) -> pd.DataFrame:
    """Return the matrix products in one precision."""
    table = pd.read_csv(folder / "deepbench_gemm.csv")
    return with_board(table[table.precision == precision]).reset_index(drop=True)


def operation_of(row: object) -> Convolution:
    """Return the convolution of a table's row."""
    return Convolution(
        batch_size=row.N,
        in_channels=row.C,
        out_channels=row.K,
        input_size=(row.H, row.W),
        output_size=(row.P_out_h, row.Q_out_w),
        kernel_size=(row.R_filter_h, row.S_filter_w),
        stride=(row.stride_h, row.stride_w),
        padding=((row.pad_h, row.pad_h), (row.pad_w, row.pad_w)),
        dilation=(1, 1),
        role=ROLES[row.phase],
    )


def caffe_convolutions(folder: Path, board: Board) -> pd.DataFrame:
    """Return the convolution layers of Caffe's per-layer log, forward and backward time side by side."""
    log = pd.read_csv(folder / "caffe_per_layer_titan_x_maxwell.csv")
    rows = []
    for network, layers in log.groupby("network", sort=False):
        shapes = layers.dropna(subset="top_shape").drop_duplicates("layer").set_index("layer").top_shape
        convolutions = layers[layers.layer_type == "Convolution"]
        times = convolutions.pivot_table(index="layer", columns="phase", values="seconds", sort=False)
        for layer, params in convolutions.drop_duplicates("layer").set_index("layer").params.items():
            rows.append(_caffe_row(network, layer, params, shapes) | _caffe_times(times.loc[layer]))
    numbers = {"peak": board.peak, "bandwidth": board.bandwidth, "units": board.units, "clock": board.clock}
    return pd.DataFrame(rows).assign(**numbers)


def _caffe_times(times: pd.Series) -> dict[str, float]:
    return {"forward_seconds": times["forward"], "backward_seconds": times["backward"]}


def _caffe_row(network: str, layer: str, params: str, shapes: pd.Series) -> dict[str, object]:
    def number(key: str, default: int) -> int:
        found = re.search(rf"{key}=(\d+)", params)
        return int(found.group(1)) if found else default

    bottom = re.search(r"bottom=([^ ,;]+)", params).group(1)
    first = bottom == "data"
    batch, filters, rows, columns = map(int, shapes[layer].split("x"))
    _, channels, height, width = map(int, shapes["input" if first else bottom].split("x"))
    taps, stride, pad = number("kernel_size", 1), number("stride", 1), number("pad", 0)
    return {
        "network": network, "layer": layer, "first": first,
        "N": batch, "K": filters, "P_out_h": rows, "Q_out_w": columns, "C": channels, "H": height, "W": width,
        "R_filter_h": taps, "S_filter_w": taps, "stride_h": stride, "stride_w": stride,
        "pad_h": pad, "pad_w": pad,
    }  # fmt: skip
