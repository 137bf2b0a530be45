"""Fit what cuDNN reaches on recurrent layers to published kernel timings, and print how well it holds.

    python benchmarks/fit_recurrence.py --data FOLDER

FOLDER holds deepbench_rnn.csv (Baidu DeepBench): one layer of a simple recurrence, LSTM or GRU whose input product is
left out (CUDNN_SKIP_INPUT), forward, backward through time and weight gradient. Only products with the recurrent
matrix have constants of their own here; weight gradients are products over all steps by the BLAS, nothing fitted.
Rows are lowered and timed by the library's own path. Errors are |predicted/measured - 1|; the folds keep a shape's rows
together, whatever its number of steps and whichever board ran it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from fitting import Constants, Unknown, breakdown, by_board, cross_validated, fit, summary
from kernel_rows import with_board

import perfmodel as pm
from perfmodel.cost.gpu import tile_menu
from perfmodel.framework.profile import load_framework
from perfmodel.framework.recurrence import FUSED, LIBRARY_RULES, recurrence_alternatives
from perfmodel.hardware.catalogue import load_library
from perfmodel.kernels import Matmul
from perfmodel.layers.recurrent import GRU, LSTM, RNN
from perfmodel.prediction.device.gpu_libraries import RecurrentLibrary
from perfmodel.prediction.device.gpu_target import GpuNumbers, GpuTarget
from perfmodel.records import Recurrence, Role

CELLS = {"vanilla": RNN, "lstm": LSTM, "gru": GRU}
ROLES = {"forward": Role.OUTPUT, "backward_input": Role.INPUT_GRADIENT, "backward_weight": Role.WEIGHT_GRADIENT}
BLAS = {"maxwell": "cublas_7_5", "pascal": "cublas_8_0", "pascal_gp100": "cublas_8_0"}
TILES = np.array([(128, 128), (128, 64), (64, 64), (32, 32)], dtype=float)
OPERAND_WEIGHT = 4.0
"""Cost of loading an operand element into registers, in multiply-adds: 1/a + 1/b loads for each. [1]"""
TILE_EFFICIENCY = (1 + OPERAND_WEIGHT * 2 / 128) / (1 + OPERAND_WEIGHT * (1 / TILES).sum(axis=1))
MENU = tile_menu(tile_rows=TILES[:, 0], tile_columns=TILES[:, 1], tile_efficiency=TILE_EFFICIENCY, split_k=np.ones(4))
RAMP_STEPS = 32.0
"""Not fitted: as for the BLAS's products. [1]"""

UNKNOWNS = {
    "recurrent_gemm": Unknown(0.8, 0.3, 1.0),
    "recurrent_thin": Unknown(0.1, 0.01, 0.6),
    "recurrent_latency_cycles": Unknown(40.0, 1.0, 600.0),
    "recurrent_narrow_latency_cycles": Unknown(80.0, 1.0, 600.0),
    "recurrent_bandwidth_fraction": Unknown(0.6, 0.1, 0.9),
    "recurrent_step_us": Unknown(10.0, 1.0, 100.0),
}
MATMUL = ("m", "n", "k", "count", "read_bytes", "written_bytes", "launches")
STREAM = ("read_bytes", "written_bytes", "flop_count", "serial_steps", "launches")


def recurrent_layers(folder: Path, precision: str = "Float", mode: str = "train") -> pd.DataFrame:
    """Return DeepBench's recurrent layers with their board."""
    table = pd.read_csv(folder / "deepbench_rnn.csv")
    table = table[(table["mode"] == mode) & table.precision.str.contains(precision)]
    if mode == "inference":
        table = table.assign(device="Titan X (Pascal)")
    table = with_board(table).reset_index(drop=True)
    return table.assign(architecture=[pm.load_device(board).architecture for board in table.board])


def operation_of(row: object) -> Recurrence:
    """Return the layer of a table's row: no input product, the state before the first step given."""
    cell = CELLS[row.cell]
    return Recurrence(
        batch_size=row.N,
        steps=row.timesteps,
        input_size=0,
        hidden_size=row.hidden,
        gate_count=cell.gate_count,
        pointwise_flop_count=cell(hidden_size=row.hidden).pointwise_flop_count,
        state_count=cell.state_count,
        first_state_gradient=True,
        role=ROLES[row.phase],
    )


@dataclass(frozen=True)
class Lowered:
    """Kernels of the rows of one board."""

    board: str
    matmul: pd.DataFrame
    stream: pd.DataFrame
    count: int


def lowered(table: pd.DataFrame, board: str, *, element_bytes: int = 4) -> Lowered:
    """Lower the rows of one board."""
    rules = {"rules": LIBRARY_RULES, "library": (FUSED,)}
    matmul, stream = [], []
    for index, row in enumerate(table.itertuples()):
        (alternative,) = recurrence_alternatives(operation_of(row), **rules, element_bytes=element_bytes)
        for kernel in alternative.kernels:
            if isinstance(kernel, Matmul):
                if kernel.flop_count:  # the input product is left out
                    matmul.append((*(getattr(kernel, name) for name in MATMUL), kernel.efficiency, index))
            else:
                stream.append((*(getattr(kernel, name) for name in STREAM), kernel.efficiency, index))
    return Lowered(
        board,
        pd.DataFrame(matmul, columns=[*MATMUL, "efficiency", "row"]),
        pd.DataFrame(stream, columns=[*STREAM, "efficiency", "row"]),
        len(table),
    )


@cache
def board_numbers(board: str, dtype: str = "fp32") -> GpuNumbers:
    """Return a board's numbers, with a plain framework and the libraries that timed the table."""
    device = pm.load_device(board)
    libraries = {"gpu_blas": load_library(BLAS[device.architecture]), "gpu_dnn": load_library("cudnn_5")}
    return GpuTarget(device).numbers(load_framework("generic"), libraries, dtype=dtype)


def recurrent_library(constants: Constants, clock_hz: float) -> RecurrentLibrary:
    """Return the library with the constants of a fit."""
    return RecurrentLibrary(
        peak_ratio=1.0,
        menu=MENU,
        efficiency=constants["recurrent_gemm"],
        thin_efficiency=constants["recurrent_thin"],
        latency_s=constants["recurrent_latency_cycles"] / clock_hz,
        narrow_latency_s=constants["recurrent_narrow_latency_cycles"] / clock_hz,
        ramp_steps=RAMP_STEPS,
        bandwidth_fraction=constants["recurrent_bandwidth_fraction"],
        step_s=1e-6 * constants["recurrent_step_us"],
        persistent_efficiency=None,
        barrier_s=0.0,
    )


def seconds_of(rows: Lowered, numbers: GpuNumbers) -> np.ndarray:
    """Return the time of each row: kernels by their active branch and the gap of each launch."""
    seconds = np.zeros(rows.count)
    for kernels, times in ((rows.matmul, numbers.matmul_times), (rows.stream, numbers.stream_times)):
        columns = {name: kernels[name].to_numpy(float) for name in kernels.columns.drop(["efficiency", "row"])}
        if len(kernels):
            kernel_s = np.maximum(*times(columns, tuple(kernels.efficiency))) + numbers.launch_s
            seconds += np.bincount(kernels.row, kernel_s * columns["launches"], rows.count)
    return seconds


class Rows:
    """A table's rows, lowered once for each board."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table.reset_index(drop=True)
        self.places = {board: np.flatnonzero(self.table.board == board) for board in self.table.board.unique()}
        self.lowered = {board: lowered(self.table.iloc[rows], board) for board, rows in self.places.items()}

    def seconds(self, constants: Constants | None) -> np.ndarray:
        """Return the predicted times; without constants, by the BLAS's products alone."""
        out = np.empty(len(self.table))
        for board, rows in self.lowered.items():
            numbers, kernels = board_numbers(board), rows
            if constants is None:
                kernels = replace(rows, matmul=rows.matmul.assign(efficiency="gemm"))
            else:
                library = recurrent_library(constants, pm.load_device(board).clock_hz)
                numbers = replace(numbers, recurrent_library=library)
            out[self.places[board]] = seconds_of(kernels, numbers)
        return out

    def fitted(self) -> Constants:
        """Fit the constants of products with the recurrent matrix."""
        measured = np.log(self.table.seconds.to_numpy())
        return fit(lambda x: np.log(self.seconds(x)) - measured, UNKNOWNS)


def roofline_seconds(table: pd.DataFrame, efficiency: float) -> np.ndarray:
    """Return the naive baseline: arithmetic at one efficiency, weights read at every step, one gap a step."""
    operations = [operation_of(row) for row in table.itertuples()]
    flop_count = np.array([operation.product_flop_count for operation in operations], dtype=float)
    reads = np.where(table.phase == "backward_weight", 1, table.timesteps)
    weight_bytes = 4.0 * np.array([operation.weight_elements for operation in operations])
    return np.maximum(flop_count / (efficiency * table.peak), reads * weight_bytes / (0.8 * table.bandwidth)) + (
        5e-6 * reads
    )


def keys_of(table: pd.DataFrame) -> pd.Series:
    """Return what makes rows one shape."""
    return table[["cell", "hidden", "N"]].astype(str).agg("x".join, axis=1)


def by_phase(table: pd.DataFrame, predicted: np.ndarray) -> str:
    """Return errors by board and phase."""
    return breakdown(table, predicted, ["board", "phase"])


def report_architecture(table: pd.DataFrame) -> None:
    """Fit and print one architecture; folds by shape, then by board."""
    name = table.architecture.iloc[0]
    rows = Rows(table)
    print(f"\n{name}: {rows.fitted()}")

    def predict(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        return Rows(table[test]).seconds(Rows(table[train]).fitted())

    def naive(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        measured = np.log(table[train].seconds.to_numpy())
        x = fit(
            lambda x: np.log(roofline_seconds(table[train], x["efficiency"])) - measured,
            {"efficiency": Unknown(0.3, 0.01, 1.0)},
        )
        return roofline_seconds(table[test], x["efficiency"])

    print("  5-fold\n" + by_phase(table, cross_validated(table, keys_of(table), predict)))
    print("  roofline with one efficiency, 5-fold\n" + by_phase(table, cross_validated(table, keys_of(table), naive)))
    print("  by the BLAS's products, nothing fitted\n" + by_phase(table, rows.seconds(None)))


def report_boards(table: pd.DataFrame) -> None:
    """Print each board by the constants of its sister, beside the sister's own times scaled."""
    shape = ["cell", "hidden", "N", "timesteps", "phase"]
    sisters = (("tesla_m40", "titan_x_maxwell"), ("tesla_p100_pcie", "titan_x_pascal"))
    for one, other in (*sisters, *((b, a) for a, b in sisters)):
        train, test = (table[table.board == board].reset_index(drop=True) for board in (one, other))
        predicted = Rows(test).seconds(Rows(train).fitted())
        print(f"\n{other} by the constants of {one}:\n{by_phase(test, predicted)}")
        both = test.merge(train[[*shape, "seconds", "peak", "bandwidth"]], on=shape, suffixes=("", "_sister"))
        scale = np.sqrt(both.peak_sister / both.peak * both.bandwidth_sister / both.bandwidth)
        scaled = summary((both.seconds_sister * scale).to_numpy(), both.seconds.to_numpy())
        print(f"  its times scaled by sqrt(peak x bandwidth)  {scaled}")


def main() -> None:
    """Fit everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the measured kernel tables")
    folder = parser.parse_args().data
    table = recurrent_layers(folder)
    for _, rows in table.groupby("architecture", sort=False):
        report_architecture(rows.reset_index(drop=True))
    report_boards(table)
    inference = recurrent_layers(folder, precision="RNN: single", mode="inference")
    pascal = table[table.architecture == "pascal"]
    print("\nInference with 1 to 4 samples on Titan X (Pascal), cuDNN 6, by the constants of training with cuDNN 5")
    print(by_board(inference, Rows(inference).seconds(Rows(pascal).fitted())))
    print(breakdown(inference, Rows(inference).seconds(Rows(pascal).fitted()), ["cell", "N"]))


if __name__ == "__main__":
    main()
