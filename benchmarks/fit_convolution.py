"""Fit the DNN library's convolution constants to published kernel timings, and print how well they hold.

    python benchmarks/fit_convolution.py --data FOLDER

FOLDER holds deepbench_conv.csv (Baidu DeepBench) and caffe_per_layer_titan_x_maxwell.csv (convnet-benchmarks). One
efficiency per class of shape serves every architecture, one factor and one latency each architecture; errors are
|predicted/measured - 1|; folds keep a shape's rows together, whichever board and phase they are of.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from convolution_rows import (
    BANDWIDTH_FRACTION,
    GEMMS_AND_FFT,
    TENSOR,
    LoweredRows,
    alternative_seconds,
    board_facts,
    lowered,
    measured_convolutions,
    offered,
)
from fitting import FOLDS, Constants, Unknown, cross_validated, fit, summary
from kernel_rows import BOARDS, FLOOR, HALF_ON_TENSOR_CORES, caffe_convolutions

REFERENCE_FAMILY = "pascal"
"""Architecture whose factor is one: efficiencies are fractions of its peak."""
CENTRE, PRIOR_WEIGHT, LATENCY_WEIGHT, CHOICE_WEIGHT = 0.8, 0.15, 0.3, 0.5
LATENCY = Unknown(70.0, 0.5, 500.0)
PHASES = ("forward", "backward_input", "backward_weight")
CAFFE_WORKSPACE_BYTES = 8 * 2**20
# of the version before: gradients of filters with taps, and of first layers
OF_CUDNN_4 = (
    "factor_maxwell", "conv_thin_weight_gradient", "conv_3x3_weight_gradient", "conv_large_weight_gradient",
)  # fmt: skip
OF_TENSOR_CORES = (
    "conv_one_channel", "conv_one_channel_weight_gradient", "conv_thin", "conv_thin_weight_gradient",
    "conv_strided_input_gradient", "conv_1x1_weight_gradient", "conv_3x3_weight_gradient", "conv_large_weight_gradient",
)  # fmt: skip


def residuals_of(rows: LoweredRows) -> Callable[[Constants], np.ndarray]:
    """Return log residuals as a function of the constants.

    Where a sheet states the algorithm that ran, its own alternative is compared with the measured time, and another
    alternative predicted to be faster costs a little: the library would have chosen it.
    """
    measured, stated = rows.table.seconds.to_numpy(), rows.stated()
    known = stated >= 0

    def residuals(constants: Constants) -> np.ndarray:
        seconds = alternative_seconds(rows, constants)
        best = rows.fastest(seconds)
        reference = np.where(known, seconds[stated], best)
        return np.concatenate([np.log(reference / measured), CHOICE_WEIGHT * np.log(reference / best)[known]])

    return residuals


def fit_constants(table: pd.DataFrame) -> Constants:
    """Fit the classes, and a factor and a latency of each architecture."""
    rows = lowered(table, offered)
    families = list(table.family.unique())
    fixed = {f"factor_{REFERENCE_FAMILY}": 1.0} if REFERENCE_FAMILY in families else {}
    unknowns = {name: Unknown(CENTRE, 0.03, 1.0) for name in sorted(rows.names)}
    unknowns |= {f"latency_cycles_{family}": LATENCY for family in families}
    unknowns |= {f"factor_{family}": Unknown(0.9, 0.3, 1.2) for family in families if f"factor_{family}" not in fixed}
    residuals = residuals_of(rows)

    def pulled(x: Constants) -> np.ndarray:
        classes = [PRIOR_WEIGHT * np.log(x[name] / CENTRE) for name in sorted(rows.names)]
        latencies = [LATENCY_WEIGHT * np.log(x[f"latency_cycles_{family}"] / LATENCY.start) for family in families]
        return np.concatenate([residuals({**x, **fixed}), classes, latencies])

    return {**fit(pulled, unknowns), **fixed}


def predicted(table: pd.DataFrame, constants: Constants) -> np.ndarray:
    """Return the time of every row by its fastest algorithm; a class that was not fitted stands at its centre."""
    rows = lowered(table, offered)
    return rows.fastest(alternative_seconds(rows, dict.fromkeys(rows.names, CENTRE) | constants))


def roofline(table: pd.DataFrame, efficiency: float) -> np.ndarray:
    """Return the naive baseline: direct arithmetic and compulsory traffic with one efficiency."""
    compute_s = table.flop_count / (efficiency * table.peak)
    memory_s = table.moved_bytes / (BANDWIDTH_FRACTION * table.bandwidth)
    return (np.maximum(compute_s, memory_s) + FLOOR).to_numpy()


def fitted_roofline(seen: pd.DataFrame, test: pd.DataFrame) -> np.ndarray:
    """Return the baseline with an efficiency for each board, fitted on the rows seen."""
    out = np.empty(len(test))
    for board in test.board.unique():
        own = seen[seen.board == board]
        efficiency = fit(
            lambda x, own=own: np.log(roofline(own, x["conv"]) / own.seconds.to_numpy()),
            {"conv": Unknown(0.5, 0.02, 3.0)},
        )["conv"]
        of_board = (test.board == board).to_numpy()
        out[of_board] = roofline(test[of_board], efficiency)
    return out


def by_phase(table: pd.DataFrame, times: np.ndarray, *, indent: str = "  ") -> None:
    """Print a line for each board and phase."""
    for board in table.board.unique():
        for phase in PHASES:
            chosen = ((table.board == board) & (table.phase == phase)).to_numpy()
            print(f"{indent}{board:16s} {phase:16s} {summary(times[chosen], table.seconds.to_numpy()[chosen])}")


def report_classes(table: pd.DataFrame) -> Constants:
    """Fit and print the constants of all architectures; score folds, boards and architectures left out."""
    constants = fit_constants(table)
    print(f"convolutions, fp32, {len(table)} rows: {constants}")
    folded = cross_validated(
        table, table["shape"], lambda train, test: predicted(table[test], fit_constants(table[train]))
    )
    print(f" {FOLDS}-fold, one fit for all boards")
    by_phase(table, folded)
    gradients = (table.phase != "forward").to_numpy()
    print(f"  all boards, forward    {summary(folded[~gradients], table.seconds.to_numpy()[~gradients])}")
    print(f"  all boards, gradients  {summary(folded[gradients], table.seconds.to_numpy()[gradients])}")
    naive = cross_validated(table, table["shape"], lambda train, test: fitted_roofline(table[train], table[test]))
    print(f" roofline with one efficiency for each board, {FOLDS}-fold")
    by_phase(table, naive)
    report_boards_out(table)
    report_choice(table, constants)
    return constants


def report_boards_out(table: pd.DataFrame) -> None:
    """Print each board as predicted from the others: of its architecture, or with the mean factor of the rest."""
    print(" a board left out; where it is alone of its architecture, factor and latency are the others' mean")
    for board in table.board.unique():
        out = (table.board == board).to_numpy()
        constants = fit_constants(table[~out])
        for name in ("factor", "latency_cycles"):
            known = [value for key, value in constants.items() if key.startswith(f"{name}_")]
            constants.setdefault(f"{name}_{table[out].family.iloc[0]}", float(np.exp(np.mean(np.log(known)))))
        by_phase(table[out], predicted(table[out], constants))


def report_choice(table: pd.DataFrame, constants: Constants) -> None:
    """Print how often the algorithm that a sheet states is the one predicted to be fastest."""
    rows = lowered(table, offered)
    seconds = alternative_seconds(rows, constants)
    stated, best = rows.stated(), rows.fastest(seconds)
    known = np.flatnonzero(stated >= 0)
    same = [seconds[stated[index]] <= best[index] * (1 + 1e-9) for index in known]
    near = [seconds[stated[index]] <= best[index] * 1.1 for index in known]
    print(f" stated algorithm fastest: {np.mean(same):.0%}, within 10 % of it: {np.mean(near):.0%} ({len(known)} rows)")
    chosen = [
        rows.algorithm[np.flatnonzero((rows.operation == index) & (seconds <= best[index]))[0]] for index in known
    ]
    print(pd.crosstab(rows.algorithm[stated[known]], np.array(chosen)).to_string())


# ---- tensor cores


def fit_tensor_cores(table: pd.DataFrame, constants: Constants) -> Constants:
    """Fit factor, latency, first layers, strided and weight gradients on tensor cores; the rest stays as it is."""
    rows = lowered(table, TENSOR)
    family = table.family.iloc[0]
    unknowns = {
        f"factor_{family}": Unknown(0.8, 0.3, 1.2),
        f"latency_cycles_{family}": Unknown(8.0, 0.5, 100.0),
        **{name: Unknown(min(constants[name], 0.5), 0.01, 1.0) for name in OF_TENSOR_CORES},
    }
    measured = table.seconds.to_numpy()
    return {
        **constants,
        **fit(lambda x: np.log(rows.fastest(alternative_seconds(rows, {**constants, **x})) / measured), unknowns),
    }


def report_tensor_cores(table: pd.DataFrame, constants: Constants) -> None:
    """Fit and print what 16 bit operands reach on tensor cores."""
    used = fit_tensor_cores(table, constants)
    changed = {name: used[name] for name in used if used[name] != constants[name]}
    print(f"\nfp16 on tensor cores, {len(table)} rows: {changed}")

    def fold(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        rows = lowered(table[test], TENSOR)
        return rows.fastest(alternative_seconds(rows, fit_tensor_cores(table[train], constants)))

    by_phase(table, cross_validated(table, table["shape"], fold))
    print(" roofline with one efficiency")
    by_phase(table, cross_validated(table, table["shape"], lambda a, b: fitted_roofline(table[a], table[b])))


# ---- cuDNN 4, seen through Caffe


def caffe_seconds(layers: dict[str, LoweredRows], constants: Constants) -> tuple[np.ndarray, np.ndarray]:
    """Return forward and backward times of Caffe's convolution layers, with the pass over the bias."""
    parts = {}
    for phase, rows in layers.items():
        seconds = alternative_seconds(rows, constants)
        parts[phase] = rows.fastest(np.where(rows.workspace > CAFFE_WORKSPACE_BYTES, np.inf, seconds))
    table = layers["forward"].table
    output_s = 4 * table.N * table.K * table.P_out_h * table.Q_out_w / (BANDWIDTH_FRACTION * table.bandwidth)
    backward = np.where(table["first"], 0.0, parts["backward_input"]) + parts["backward_weight"]
    return parts["forward"] + 2 * output_s.to_numpy(), backward + output_s.to_numpy()


def caffe_layers(table: pd.DataFrame) -> dict[str, LoweredRows]:
    """Lower Caffe's layers in every phase."""
    return {phase: lowered(table.assign(phase=phase), GEMMS_AND_FFT) for phase in PHASES}


def fit_caffe(table: pd.DataFrame, constants: Constants, names: Iterable[str]) -> Constants:
    """Fit what differs with cuDNN 4; weak pulls towards the values of cuDNN 5."""
    layers = caffe_layers(table)
    measured = np.concatenate([table.forward_seconds, table.backward_seconds])

    def residuals(x: Constants) -> np.ndarray:
        pulls = [PRIOR_WEIGHT * np.log(x[name] / constants[name]) for name in x]
        return np.concatenate([np.log(np.concatenate(caffe_seconds(layers, {**constants, **x})) / measured), pulls])

    return {**constants, **fit(residuals, {name: Unknown(min(constants[name], 0.9), 0.03, 1.0) for name in names})}


def report_caffe(folder: Path, constants: Constants) -> None:
    """Print Caffe's layers by the constants as they are, and with what differs fitted on the other networks."""
    table = caffe_convolutions(folder, BOARDS["titan_x_maxwell"]).assign(**board_facts("titan_x_maxwell"), stated="")
    used = fit_caffe(table, constants, OF_CUDNN_4)
    print(f"\ncuDNN 4, Maxwell, Caffe's {len(table)} convolution layers: { {name: used[name] for name in OF_CUDNN_4} }")
    held_out = np.empty((2, len(table)))
    for network in table.network.unique():  # a network's own layers never fit what predicts it
        test = (table.network == network).to_numpy()
        own = fit_caffe(table[~test], constants, OF_CUDNN_4)
        held_out[:, test] = caffe_seconds(caffe_layers(table[test]), own)
    plain = np.array(caffe_seconds(caffe_layers(table), constants))
    for index, phase in enumerate(("forward", "backward")):
        measured = table[f"{phase}_seconds"].to_numpy()
        print(f"  {phase:9s} one network out     {summary(held_out[index], measured)}")
        print(f"  {phase:9s} DeepBench's values  {summary(plain[index], measured)}")


def main() -> None:
    """Fit everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the measured kernel tables")
    folder = parser.parse_args().data
    constants = report_classes(measured_convolutions(folder))
    report_tensor_cores(measured_convolutions(folder, HALF_ON_TENSOR_CORES), constants)
    report_caffe(folder, constants)


if __name__ == "__main__":
    main()
