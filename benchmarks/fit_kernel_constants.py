"""Fit the GPU libraries' kernel constants to published kernel timings, and print how well they hold.

    python benchmarks/fit_kernel_constants.py --data FOLDER

FOLDER holds deepbench_conv.csv (Baidu DeepBench) and caffe_per_layer_titan_x_maxwell.csv
(convnet-benchmarks). Every fit is on log time with a soft-L1 loss; errors are |predicted/measured - 1|; the
folds keep a shape's rows together, whichever board ran them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from fitting import FOLDS, Constants, Unknown, breakdown, by_board, cross_validated, fit, menu, summary
from kernel_rows import (
    BOARDS,
    FLOOR,
    KernelRows,
    caffe_convolutions,
    convolution_rows,
    deepbench_convolutions,
)

from perfmodel.cost.gpu import tiled_matmul_time

TILES = ((128, 128), (128, 64), (64, 64), (32, 32))
DNN_MENU = menu(TILES, (1, 4, 16, 32))
BANDWIDTH_FRACTION = 0.8
CUDNN_4 = ("implicit_gemm", "implicit_precomp_gemm", "gemm", "fft", "fft_tiling")
CUDNN_5 = (*CUDNN_4, "winograd", "winograd_nonfused")
CAFFE_WORKSPACE_BYTES = 8 * 2**20

# ---- convolutions


def alternative_seconds(rows: KernelRows, constants: Constants) -> np.ndarray:
    """Return the predicted time of every alternative."""
    matmul, stream = rows.matmul, rows.stream
    bandwidth = matmul.bandwidth.to_numpy()
    compute_s = tiled_matmul_time(
        m=matmul.m.to_numpy(float),
        n=matmul.n.to_numpy(float),
        k=matmul.k.to_numpy(float),
        count=matmul["count"].to_numpy(float),
        peak_flop_per_s=matmul.peak.to_numpy(),
        unit_count=matmul.units.to_numpy(),
        bandwidth_bytes_per_s=bandwidth,
        **DNN_MENU,
        efficiency=matmul.efficiency.map(constants).to_numpy(),
        latency_s=constants["latency_cycles"] / matmul.clock.to_numpy(),
        ramp_steps=constants["ramp_steps"],
    )
    memory_s = matmul.moved_bytes.to_numpy() / (BANDWIDTH_FRACTION * bandwidth)
    seconds = (np.maximum(compute_s, memory_s) + FLOOR) * matmul.launches.to_numpy()
    total = np.bincount(matmul.alternative, seconds, rows.alternative_count)
    fraction = stream.efficiency.map(constants).to_numpy(float)
    seconds = (stream.moved_bytes / (fraction * stream.bandwidth) + FLOOR).to_numpy() * stream.launches.to_numpy()
    return total + np.bincount(stream.alternative, seconds, rows.alternative_count)


def fastest(rows: KernelRows, seconds: np.ndarray) -> np.ndarray:
    """Return the time of each operation's fastest alternative."""
    best = np.full(rows.operation_count, np.inf)
    np.minimum.at(best, rows.operation, seconds)
    return best


PRIOR_WEIGHT, CHOICE_WEIGHT = 0.15, 0.5
LATENCY_UNKNOWNS = {
    "latency_cycles": Unknown(80.0, 0.5, 500.0),
    "ramp_steps": Unknown(30.0, 1.0, 400.0),
}


def prior_residuals(x: Constants, known: Constants) -> list[float]:
    """Return weak pulls: 3 x 3 to large, a gradient to its forward product, others to their start."""
    pulls = []
    for name in x:
        if name in LATENCY_UNKNOWNS:
            continue
        forward = name.removesuffix("_input_gradient").removesuffix("_weight_gradient")
        everything = {**known, **x}
        if name == "conv_3x3":
            forward = "conv_large"  # most 3 x 3 rows ran as Winograd
        centre = everything[forward] if forward != name and forward in everything else 0.6
        pulls.append(PRIOR_WEIGHT * np.log(x[name] / centre))
    return pulls


def fit_convolution(rows: KernelRows) -> Constants:
    """Fit the efficiencies of the classes in the rows, and the two latency constants.

    Where a row states the algorithm that ran, its own alternative is compared with the measured time, and
    another alternative predicted to be faster costs a little: the library would have chosen it.
    """
    measured = rows.seconds
    stated = rows.stated_alternative
    known = stated >= 0

    def residuals(x: Constants) -> np.ndarray:
        seconds = alternative_seconds(rows, x)
        best = fastest(rows, seconds)
        reference = np.where(known, seconds[stated], best)
        choice = CHOICE_WEIGHT * np.log(reference / best)[known]
        return np.concatenate([np.log(reference / measured), choice, prior_residuals(x, {})])

    names = sorted({*rows.matmul.efficiency, *rows.stream.efficiency})
    unknowns = {name: Unknown(0.6, 0.03, 1.0) for name in names} | LATENCY_UNKNOWNS
    return fit(residuals, unknowns)


def convolution_roofline(rows: pd.DataFrame, efficiency: float) -> np.ndarray:
    """Return the naive baseline: direct arithmetic and compulsory traffic with one efficiency."""
    compute_s = rows.flop_count / (efficiency * rows.peak)
    memory_s = rows.moved_bytes / (BANDWIDTH_FRACTION * rows.bandwidth)
    return (np.maximum(compute_s, memory_s) + FLOOR).to_numpy()


def naive_convolution(table: pd.DataFrame) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Return the baseline as a function of training and test rows."""

    def predict(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        seen = table[train]
        measured = np.log(seen.seconds.to_numpy())
        fitted = fit(
            lambda x: np.log(convolution_roofline(seen, x["conv"])) - measured,
            {"conv": Unknown(0.5, 0.02, 2.0)},
        )
        return convolution_roofline(table[test], fitted["conv"])

    return predict


def report_convolution(title: str, table: pd.DataFrame) -> Constants:
    """Fit and print the constants of one architecture with cuDNN 5."""
    keys = table[["C", "K", "N", "H", "W", "R_filter_h", "S_filter_w", "stride_h"]].astype(str).agg("x".join, axis=1)

    def predict(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        constants = fit_convolution(convolution_rows(table[train], CUDNN_5))
        rows = convolution_rows(table[test], CUDNN_5)
        # a class no training row has keeps its start
        names = {*rows.matmul.efficiency, *rows.stream.efficiency}
        return fastest(rows, alternative_seconds(rows, dict.fromkeys(names, 0.6) | constants))

    print(f"\nConvolution, cuDNN 5, {title}: {(constants := fit_convolution(convolution_rows(table, CUDNN_5)))}")
    predicted = cross_validated(table, keys, predict)
    print(f"  {FOLDS}-fold\n{by_board(table, predicted)}")
    baseline = cross_validated(table, keys, naive_convolution(table))
    print(f"  roofline with one efficiency, {FOLDS}-fold\n{by_board(table, baseline)}")
    pixels = pd.cut(table.N * table.P_out_h * table.Q_out_w, [0, 400, 800, 1600, 3200, 12800, 1e9])
    print(breakdown(table.assign(batch_pixels=pixels), predicted, ["batch_pixels"]))
    print(breakdown(table, predicted, ["shape_class"]))
    return constants


# ---- cuDNN 4, seen through Caffe


def caffe_seconds(table: pd.DataFrame, constants: Constants) -> tuple[np.ndarray, np.ndarray]:
    """Return forward and backward times of Caffe's convolution layers, with the pass over the bias."""
    parts = {}
    for phase in ("forward", "backward_input", "backward_weight"):
        rows = convolution_rows(table.assign(phase=phase), CUDNN_4)
        seconds = alternative_seconds(rows, constants)
        parts[phase] = fastest(rows, np.where(rows.workspace > CAFFE_WORKSPACE_BYTES, np.inf, seconds))
    output_s = 4 * table.N * table.K * table.P_out_h * table.Q_out_w / (BANDWIDTH_FRACTION * table.bandwidth)
    backward = np.where(table["first"], 0.0, parts["backward_input"]) + parts["backward_weight"]
    return parts["forward"] + 2 * output_s.to_numpy(), backward + output_s.to_numpy()


def report_caffe(table: pd.DataFrame, constants: Constants) -> None:
    """Fit and print what cuDNN 4 reaches for filters of more than one tap; the rest stays as cuDNN 5's."""
    names = [name for name in constants if name.startswith(("conv_3x3", "conv_large", "conv_thin"))]

    def fitted(rows: pd.DataFrame) -> Constants:
        def residuals(x: Constants) -> np.ndarray:
            forward, backward = caffe_seconds(rows, {**constants, **x})
            measured = np.concatenate([rows.forward_seconds, rows.backward_seconds])
            pulls = prior_residuals(x, constants)
            return np.concatenate([np.log(np.concatenate([forward, backward]) / measured), pulls])

        return {**constants, **fit(residuals, {name: Unknown(0.6, 0.03, 1.0) for name in names})}

    used = fitted(table)
    print(f"\ncuDNN 4, Maxwell, Caffe's layers: { {name: used[name] for name in names} }")
    out = np.empty((2, len(table)))
    for network in table.network.unique():  # a network's own layers never fit what predicts it
        test = (table.network == network).to_numpy()
        out[:, test] = caffe_seconds(table[test], fitted(table[~test]))
    plain = np.array(caffe_seconds(table, constants))
    for index, phase in enumerate(("forward", "backward")):
        measured = table[f"{phase}_seconds"].to_numpy()
        print(f"  {phase:9s} one network out   {summary(out[index], measured)}")
        print(f"  {phase:9s} cuDNN 5's values  {summary(plain[index], measured)}")


def main() -> None:
    """Fit everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the measured kernel tables")
    folder = parser.parse_args().data
    convolutions = deepbench_convolutions(folder)
    maxwell = convolutions[convolutions.architecture == "maxwell"].reset_index(drop=True)
    constants = report_convolution("Maxwell", maxwell)
    pascal = convolutions[convolutions.board == "titan_x_pascal"].reset_index(drop=True)
    pascal_constants = report_convolution("Pascal", pascal)
    p100 = convolutions[convolutions.board == "tesla_p100_pcie"].reset_index(drop=True)
    rows = convolution_rows(p100, CUDNN_5)
    names = dict.fromkeys({*rows.matmul.efficiency, *rows.stream.efficiency}, 0.6)
    print("  another board of the architecture, with cuDNN 6, by the constants above")
    print(by_board(p100, fastest(rows, alternative_seconds(rows, names | pascal_constants))))
    report_caffe(caffe_convolutions(folder, BOARDS["titan_x_maxwell"]), constants)


if __name__ == "__main__":
    main()
