"""Hold the lowering of TensorFlow's AlexNet against a profiler's trace of it, class by class of launches.

    python benchmarks/trace_structure.py --data FOLDER

FOLDER holds nvprof_gtx980_alexnet_tensorflow.csv: two runs of the laboratory whose table is scored (dlbench). So only
structure is read from it: which kernels a step launches, and whether gaps depend on what ran before. No constant is.
"""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

import perfmodel as pm

TRACE = "nvprof_gtx980_alexnet_tensorflow.csv"
RUN_AS_PRINTED = "tfcnn-old-980"
"""The run that is of the same script as the cell of the table: no update, no gradient of the images."""

CLASS_OF_KERNEL = (
    ("copies between host and device", ("memcpy HtoD", "memcpy DtoH")),
    ("clears before a kernel", ("memset", "setTensor4d_kernel", "setOutputKernel", "scal_kernel")),
    ("index tables of a library", ("OffsetsKernel", "compute_gemm_pointers")),
    ("layout transposes", ("SwapDimension",)),
    ("padding copies", ("PadInput",)),
    ("implicit convolutions", ("scudnn", "implicit_convolve", "dgrad_engine", "wgrad_alg")),
    ("FFT convolution: products", ("cgemm", "Cgemm")),
    ("FFT convolution: transforms", ("fft2d", "flip_filter")),
    ("matrix products", ("sgemm", "gemm_kernel1x1")),
    ("pooling forward", ("MaxPoolForward",)),
    ("pooling backward", ("pooling_bw",)),
    ("bias forward", ("BiasNHWC",)),
    ("bias gradients", ("BiasGrad",)),
    ("reductions", ("ReductionKernel",)),
    ("element by element", ("EigenMetaKernel",)),
)
"""Class of a launch to what its name contains; the first that matches."""

CLASS_OF_EFFICIENCY = {
    "transpose": "layout transposes",
    "pad": "padding copies",
    "fft_gemm": "FFT convolution: products",
    "fft_transform": "FFT convolution: transforms",
    "gemm": "matrix products",
    "gemm_transposed": "matrix products",
    "max_pool": "pooling forward",
    "bias": "bias forward",
    "bias_gradient_backward": "bias gradients",
    "relu": "element by element",
    "relu_backward": "element by element",
}
"""Name of an efficiency to the class of its launches; conv_... are implicit convolutions."""

POOLING_GRADIENT = {"layout transposes": 4, "clears before a kernel": 1, "pooling backward": 1}
"""What TensorFlow's pass max_pool_backward of six launches stands for."""


def classified(name: str) -> str:
    """Return the class of a launch by its kernel's name."""
    return next((kind for kind, parts in CLASS_OF_KERNEL if any(part in name for part in parts)), "other")


def steps_of(trace: pd.DataFrame) -> list[pd.DataFrame]:
    """Cut a run at its large copies to the device, one a step; the first and the last piece are left out."""
    large = trace.kernel.str.contains("HtoD") & trace["size"].str.endswith("MB")
    places = np.flatnonzero(large)
    return [trace.iloc[first:last] for first, last in pairwise(places[1:])]


def lowered_launches() -> Counter[str]:
    """Return the launches of a predicted step of the same script, by class."""
    measured = pm.measurements.load("shi2016")
    (run,) = [run for run in measured.runs if (run.framework, run.network) == ("tensorflow_0_9", "alexnet")]
    prediction = pm.predict(run, device="gtx_980")
    table, groups = prediction.table, prediction.groups
    efficiency = (*table.matmul_efficiency, *table.stream_efficiency)
    launches = np.concatenate([table.matmul.at(prediction.batch_size)["launches"],
                               table.stream.at(prediction.batch_size)["launches"]])  # fmt: skip
    ends = [*table.alternative_starts[1:], len(table.row_order)]
    counts: Counter[str] = Counter()
    for occurrence in table.occurrences:
        chosen = groups.chosen[occurrence.group]
        for row in table.row_order[table.alternative_starts[chosen] : ends[chosen]]:
            name = efficiency[row]
            if name == "max_pool_backward":
                counts.update(POOLING_GRADIENT)
            else:
                kind = "implicit convolutions" if name.startswith("conv_") else CLASS_OF_EFFICIENCY.get(name, name)
                counts[kind] += int(launches[row])
    return counts


def gap_table(trace: pd.DataFrame) -> pd.DataFrame:
    """Return the idle time before a kernel by the duration of the one before it."""
    gap_s = trace.start_s - (trace.start_s + trace.duration_s).shift()
    before = pd.cut(1e6 * trace.duration_s.shift(), [0, 3, 10, 30, 100, 300, 1000, 1e6])
    within = gap_s.abs() < 1e-3  # what is longer is between two steps
    return (1e6 * gap_s[within]).groupby(before[within], observed=True).agg(["size", "mean", "median"]).round(1)


def main() -> None:
    """Print launches of a step and gaps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the trace")
    everything = pd.read_csv(parser.parse_args().data / TRACE)
    ours = lowered_launches()
    for name, run in everything.groupby("trace"):
        trace = run.sort_values("start_s", kind="stable").reset_index(drop=True)
        step = steps_of(trace)[-1]
        seen = Counter(step.kernel.map(classified))
        table = pd.DataFrame({"trace": seen, "lowered": ours if name == RUN_AS_PRINTED else {}}).fillna(0).astype(int)
        print(f"\n{name}: {len(step)} launches a step, busy for {1e3 * step.duration_s.sum():.1f} ms")
        print(table.sort_values("trace", ascending=False).to_string())
        if name == RUN_AS_PRINTED:
            alike = int(np.minimum(table.trace, table.lowered).sum())
            print(f"launches of the same class on both sides: {alike} of {table.trace.sum()} traced")
        print("idle time before a kernel by the duration of the one before, us (profiler on, start known to 10 us)")
        print(gap_table(trace).to_string())


if __name__ == "__main__":
    main()
