"""Lower measured convolutions and time their kernels by the library's own formulas; used by fit_convolution.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from fitting import Constants, menu
from kernel_rows import BOARDS, FLOOR, HALF_ON_TENSOR_CORES, SINGLE, operation_of, with_board

from perfmodel.cost.gpu import tiled_matmul_time, write_out_steps
from perfmodel.framework.convolution import convolution_alternatives, shape_class
from perfmodel.kernels import Matmul

MENU = menu(((128, 128), (128, 64), (64, 64), (32, 32)), (1, 4, 16, 64))
BANDWIDTH_FRACTION = 0.8
GEMMS_AND_FFT = ("implicit_gemm", "implicit_precomp_gemm", "gemm", "fft", "fft_tiling")
WITH_FUSED_WINOGRAD = (*GEMMS_AND_FFT, "winograd")
WITH_WINOGRAD = (*WITH_FUSED_WINOGRAD, "winograd_nonfused")
TENSOR = ("implicit_precomp_gemm",)
FAMILY = {"tesla_m40": "maxwell", "titan_x_maxwell": "maxwell", "titan_x_pascal": "pascal",
          "tesla_p100_pcie": "pascal_gp100", "t4": "turing"}  # fmt: skip
"""Architecture of each board as the library files name it."""
SHEETS_WITH_STATED_ALGORITHMS = ("tesla_m40", "titan_x_maxwell")
"""The sheets of the Pascal boards and the T4 list algorithms that cannot have run: rates beyond their arithmetic."""

Algorithms = Callable[..., Sequence[str]]


def offered(row: object) -> Sequence[str]:
    """Return the algorithms of a row's library: the sheets of Maxwell know no non-fused Winograd for weights."""
    fused_only = row.family == "maxwell" and row.phase == "backward_weight"
    return WITH_FUSED_WINOGRAD if fused_only else WITH_WINOGRAD


def measured_convolutions(folder: Path, precision: str = SINGLE) -> pd.DataFrame:
    """Return DeepBench's training convolutions in one precision, with their class, arithmetic and traffic."""
    table = pd.read_csv(folder / "deepbench_conv.csv")
    chosen = (table.precision == precision) & (table["mode"] == "train")
    table = with_board(table[chosen]).reset_index(drop=True)
    size = 2 if precision == HALF_ON_TENSOR_CORES else 4
    operations = [operation_of(row) for row in table.itertuples()]
    works = [operation.work(element_bytes=size) for operation in operations]
    return table.assign(
        family=table.board.map(FAMILY),
        peak=table.tensor_peak if precision == HALF_ON_TENSOR_CORES else table.peak,
        element_bytes=size,
        stated=table.algo.fillna("").str.lower(),
        shape=table[["C", "K", "N", "H", "W", "R_filter_h", "S_filter_w", "stride_h"]]
        .astype(str)
        .agg("x".join, axis=1),
        shape_class=[shape_class(operation) for operation in operations],
        flop_count=[work.flop_count for work in works],
        moved_bytes=[work.moved_bytes for work in works],
    )


@dataclass(frozen=True)
class LoweredRows:
    """Kernels of many convolutions as arrays, with the alternative and the operation each belongs to."""

    matmul: dict[str, np.ndarray]
    stream: dict[str, np.ndarray]
    operation: np.ndarray
    algorithm: np.ndarray
    workspace: np.ndarray
    table: pd.DataFrame

    @property
    def names(self) -> set[str]:
        """Constants that the rows look up."""
        return {*self.matmul["efficiency"], *self.stream["efficiency"]}

    def stated(self) -> np.ndarray:
        """Return the alternative that each operation is stated to have run, -1 where none is or it is not offered."""
        trusted = self.table.board.isin(SHEETS_WITH_STATED_ALGORITHMS).to_numpy() & (self.table.stated != "").to_numpy()
        found = np.full(len(self.table), -1)
        same = self.algorithm == self.table.stated.to_numpy()[self.operation]
        for index in np.flatnonzero(same & trusted[self.operation]):
            found[self.operation[index]] = index
        return found

    def fastest(self, seconds: np.ndarray) -> np.ndarray:
        """Return the time of each operation's fastest alternative."""
        best = np.full(len(self.table), np.inf)
        np.minimum.at(best, self.operation, seconds)
        return best


FACTS = ("peak", "bandwidth", "units", "clock", "element_bytes")


def lowered(table: pd.DataFrame, algorithms: Algorithms | Sequence[str]) -> LoweredRows:
    """Lower every row of a table of convolutions."""
    kernels: dict[bool, list[tuple[object, ...]]] = {True: [], False: []}
    operations, names, workspace = [], [], []
    for index, row in enumerate(table.itertuples()):
        own = algorithms(row) if callable(algorithms) else algorithms
        for alternative in convolution_alternatives(
            operation_of(row), algorithms=own, element_bytes=int(row.element_bytes)
        ):
            for kernel in alternative.kernels:
                extents = (kernel.m, kernel.n, kernel.k, kernel.count) if isinstance(kernel, Matmul) else (0, 0, 0, 0)
                moved = kernel.read_bytes + kernel.written_bytes
                kernels[isinstance(kernel, Matmul)].append(
                    (*extents, moved, kernel.launches, kernel.efficiency, len(operations), index)
                )
            operations.append(index)
            names.append(alternative.name)
            workspace.append(alternative.workspace_bytes)
    columns = ("m", "n", "k", "count", "moved_bytes", "launches", "efficiency", "alternative", "row")
    matmul, stream = (_columns(pd.DataFrame(kernels[kind], columns=columns), table) for kind in (True, False))
    return LoweredRows(
        matmul=matmul, stream=stream, operation=np.array(operations), algorithm=np.array(names),
        workspace=np.array(workspace, dtype=float), table=table,
    )  # fmt: skip


def _columns(frame: pd.DataFrame, table: pd.DataFrame) -> dict[str, np.ndarray]:
    numbers = {name: frame[name].to_numpy(float) for name in ("m", "n", "k", "count", "moved_bytes", "launches")}
    row = frame.row.to_numpy(int)
    facts = {name: table[name].to_numpy(float)[row] for name in FACTS}
    family = table.family.to_numpy()[row]
    return {
        **numbers, **facts, "family": family, "efficiency": frame.efficiency.to_numpy(),
        "alternative": frame.alternative.to_numpy(int),
    }  # fmt: skip


def _of_names(names: np.ndarray, constants: Constants, prefix: str = "") -> np.ndarray:
    unique, codes = np.unique(names.astype(str), return_inverse=True)
    return np.array([constants[prefix + name] for name in unique], dtype=float)[codes]


def alternative_seconds(rows: LoweredRows, constants: Constants) -> np.ndarray:
    """Return the predicted time of every alternative.

    ``constants`` holds an efficiency by name of class, ``factor_<family>`` and ``latency_cycles_<family>``.
    """
    matmul, stream, count = rows.matmul, rows.stream, len(rows.operation)
    compute_s = tiled_matmul_time(
        m=matmul["m"],
        n=matmul["n"],
        k=matmul["k"],
        count=matmul["count"],
        peak_flop_per_s=matmul["peak"],
        unit_count=matmul["units"],
        bandwidth_bytes_per_s=matmul["bandwidth"],
        menu=MENU,
        efficiency=_of_names(matmul["efficiency"], constants) * _of_names(matmul["family"], constants, "factor_"),
        element_bytes=4,
        latency_s=_of_names(matmul["family"], constants, "latency_cycles_") / matmul["clock"],
        ramp_steps=write_out_steps(
            peak_flop_per_s=matmul["peak"],
            bandwidth_bytes_per_s=matmul["bandwidth"],
            element_bytes=matmul["element_bytes"],
        ),
    )
    memory_s = matmul["moved_bytes"] / (BANDWIDTH_FRACTION * matmul["bandwidth"])
    seconds = (np.maximum(compute_s, memory_s) + FLOOR) * matmul["launches"]
    total = np.bincount(matmul["alternative"], seconds, count)
    if not len(stream["alternative"]):
        return total
    moved_s = stream["moved_bytes"] / (_of_names(stream["efficiency"], constants) * stream["bandwidth"])
    return total + np.bincount(stream["alternative"], (moved_s + FLOOR) * stream["launches"], count)


def board_facts(board: str) -> dict[str, float | str]:
    """Return the facts of a board as columns."""
    own = BOARDS[board]
    facts = {name: getattr(own, name) for name in ("peak", "bandwidth", "units", "clock")}
    return {**facts, "board": board, "family": FAMILY[board], "element_bytes": 4}
