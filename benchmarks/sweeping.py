"""Sweeps: configurations per second, rows held against predict, memory, and how the time grows.

Run: python benchmarks/sweeping.py [--quick] [--figure docs/figures/sweep_scaling.png]. One core; medians of runs, which
find nothing of the one before but loaded files and the graph as it was lowered.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import perfmodel as pm
from perfmodel.errors import PerfmodelError
from perfmodel.layers import CrossEntropy, Dense

DEVICES = [
    "gtx_1080", "gtx_1080_ti", "titan_x_pascal", "tesla_m40", "tesla_p40", "tesla_p100_pcie", "v100_pcie", "t4",
    "rtx_2080_ti", "rtx_3090",
]  # fmt: skip
PRICES = {device: 0.1 * (place + 1) for place, device in enumerate(DEVICES[:-1])}  # of the last one nobody knows
SPACE = {
    "batch_size": [*range(4, 84, 4)],
    "device": DEVICES,
    "framework": ["tensorflow_1_12", "pytorch_1_0", "mxnet_0_9", "caffe_1_0_rc3"],
    "system": "survey_fig6",
    "workers": [1, 2, 4, 6, 8, 10, 12, 16],
    "sync": ["ring_all_reduce", "halving_doubling", "double_binary_tree", "parameter_server", "host_tree", "none"],
    "link": ["ethernet_10_gbit", "ethernet_100_gbit", "infiniband_edr"],
    "overlap": [True, False],
    "prefetch": [0, 1, 2],
}
COLUMNS = ["step_s", "usd_per_epoch"]
LAYOUTS = {
    "system": "dgx_a100_x4",
    "devices": 32,
    "dtype": "bf16",
    "optimizer": "adam",
    "framework": "pytorch_2",
    "parallelism": "pipeline",
    "stages": [1, 2, 3, 4, 6, 8, 12, 24],
    "tensor_size": [1, 2, 4, 8],
    "shard_stage": [0, 1, 2, 3],
    "schedule": ["1f1b", "gpipe", "interleaved"],
    "interleave": [1, 2, 3],
    "recompute": [None, "full"],
    "micro_batches": [1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96],
    "accumulation_steps": [1, 2, 4, 8, 16, 32],
    "batch_size": [96, 192, 384, 768, 1536, 3072],
}


def swept(graph, space, **options):
    return pm.sweep(graph, columns=COLUMNS, usd_per_hour=PRICES, dataset_size=1_281_167, **space, **options)


def rate_and_rows(runs, row_count):
    graph = pm.zoo.resnet50()
    begun = time.perf_counter()
    s = swept(graph, SPACE)
    first_s = time.perf_counter() - begun
    took = []
    for _ in range(runs):
        begun = time.perf_counter()
        s = swept(graph, SPACE)
        took.append(time.perf_counter() - begun)
    median_s = statistics.median(took)
    rows = np.random.default_rng(1).choice(len(s), size=row_count, replace=False)
    worst, compared, refused = 0.0, 0, 0
    begun = time.perf_counter()
    for row in rows.tolist():
        try:
            p = s.prediction(row)
        except PerfmodelError as error:
            refused += np.isnan(s["step_s"][row]) and s.row(row)["reason"] == str(error)
            continue
        worst = max(worst, abs(s["step_s"][row] / p.step_s - 1))
        assert bool(s["fits"][row]) == (p.memory.fits is not False)
        compared += 1
    predict_s = (time.perf_counter() - begun) / row_count
    print(
        f"ResNet-50, {len(s):,} configurations: {len(s) / median_s:,.0f} per second, median of {runs}: {median_s:.2f} s"
    )
    print(f"  first sweep of the process, files and graph not yet loaded: {len(s) / first_s:,.0f} per second")
    gain = predict_s * len(s) / median_s
    print(f"  naive, predict in a loop: {1 / predict_s:,.0f} per second; a sweep does {gain:,.0f} times as many")
    print(f"  {row_count:,} random rows: {compared:,} equal predict, at worst to {worst:.1e}; {refused} refused alike")
    assert worst < 1e-9
    assert compared > row_count / 2
    assert compared + refused == row_count


def layouts(row_count):
    """Sweep layouts of a GPT over 32 GPUs in a process of its own, and hold rows against predict."""
    graph = pm.zoo.gpt(layers=24, width=2048, heads=16, sequence_length=1024, vocabulary=51_200)
    begun, worked = time.perf_counter(), time.process_time()
    s = pm.sweep(graph, **LAYOUTS)
    took, worked = time.perf_counter() - begun, time.process_time() - worked
    possible = int(np.count_nonzero(np.isfinite(s["step_s"])))
    print(f"{s.title}")
    print(
        f"  {possible:,} layouts can be: {possible / took:,.0f} a second, {possible / worked:,.0f} a core-second;"
        f" {took:.1f} s from the first call on"
    )
    rows = np.random.default_rng(1).choice(len(s), size=row_count, replace=False)
    worst, compared, refused = 0.0, 0, 0
    for row in rows.tolist():
        try:
            p = s.prediction(row)
        except PerfmodelError as error:
            refused += s.row(row)["reason"] == str(error)
            continue
        worst = max(worst, abs(s["step_s"][row] / p.step_s - 1))
        compared += 1
    print(f"  {row_count:,} random rows: {compared:,} equal predict, at worst to {worst:.1e}; {refused} refused alike")
    assert worst < 1e-12
    assert compared + refused == row_count


def many(count):
    """Sweep so many configurations in a process of its own and print what memory it took."""
    batches = -(-count // 34_560)
    space = SPACE | {"batch_size": range(1, batches + 1)}
    begun = time.perf_counter()
    s = swept(pm.zoo.resnet50(), space)
    took = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    priced = np.count_nonzero(np.isfinite(s["usd_per_epoch"]))
    print(f"{len(s):,} configurations with {', '.join(s.results)}: {took:.1f} s, {len(s) / took:,.0f} per second")
    print(f"  peak resident memory {peak:.2f} GiB; {np.count_nonzero(s['fits']):,} fit, {priced:,} have a price,")
    print(f"  {len(s.reasons):,} different reasons")


def timed(graph, space):
    """Return configurations and the median of the processor's time, which other programs disturb less."""
    took = []
    for _ in range(5):
        begun = time.process_time()
        s = swept(graph, space)
        took.append(time.process_time() - begun)
    return len(s), statistics.median(took)


def chain(count):
    """Return a network of so many layers, no two of them alike."""
    graph = pm.LayerGraph("chain", input_shape=(1024,))
    x = graph.input
    for index in range(count):
        x = graph.add(f"dense{index}", Dense(units=1024 + index), inputs=x)
    graph.add("loss", CrossEntropy(), inputs=x)
    return graph


def growth(figure):
    graph = pm.zoo.resnet50()
    swept(graph, SPACE | {"batch_size": [1]})
    by_count = [timed(graph, SPACE | {"batch_size": range(1, count + 1)}) for count in (5, 10, 20, 40, 80)]
    by_layers = []
    for count in (25, 50, 100, 200, 400):
        network = chain(count)
        swept(network, SPACE | {"batch_size": [1]})
        by_layers.append((count, timed(network, SPACE | {"batch_size": range(1, 81)})[1]))
    for title, points in (("configurations", by_count), ("unique layers", by_layers)):
        if len(points) > 1:
            slope, rest = np.polyfit(*np.array(points).T, 1)
            print(f"time over {title}: " + ", ".join(f"{x:,}: {seconds:.2f} s" for x, seconds in points))
            print(f"  a line: {rest:.2f} s and {slope * 1e6:.3g} us for each")
    if figure:
        draw(figure, by_count, by_layers)


def draw(path, by_count, by_layers):
    from matplotlib.figure import Figure

    picture = Figure(figsize=(9, 3.8), layout="constrained")
    for axes, points, label in zip(
        picture.subplots(1, 2), (by_count, by_layers), ("configurations", "unique layers"), strict=True
    ):
        x, seconds = np.array(points, dtype=float).T
        line = np.polyfit(x, seconds, 1)
        axes.plot(x, seconds, "o", label="measured, median of 5")
        axes.plot([0, x.max()], np.polyval(line, [0, x.max()]), label="line through them")
        axes.set(xlabel=label, ylabel="processor time of the sweep [s]", ylim=(0, None), xlim=(0, None))
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
    picture.savefig(path, dpi=150)
    print(f"wrote {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run, 200 rows, one million configurations")
    parser.add_argument("--figure", help="where to save how the time grows")
    parser.add_argument("--layouts", type=int, help="only layouts of a GPT, so many rows of which predict answers too")
    parser.add_argument("--many", type=int, help="only so many configurations, and the memory that they take")
    given = parser.parse_args()
    if given.many:
        many(given.many)
        return
    if given.layouts:
        layouts(given.layouts)
        return
    rate_and_rows(1 if given.quick else 5, 200 if given.quick else 1000)
    sys.stdout.flush()
    own = [sys.executable, __file__, "--many", "1000000" if given.quick else "10000000"]
    subprocess.run(own, check=True)
    subprocess.run([sys.executable, __file__, "--layouts", "100" if given.quick else "1000"], check=True)
    growth(given.figure)


if __name__ == "__main__":
    main()
