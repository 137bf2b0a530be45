"""How fast is perfmodel? Warm predictions per second, the command line as a process, import time, growth with layers.

Run:  OMP_NUM_THREADS=1 python benchmarks/speed.py [--calls 1500] [--processes 9] [--json]

Every timed prediction has a batch size not seen before and a device whose clock, bandwidth and peak were perturbed, so
that no cache of results can answer; all parts of the step are read and checked to sum. The first prediction of a new
graph, which lowers it, is reported apart, and so is a prediction whose memory and layer rows are read too. Times are
medians. Ratios between two runs on one machine mean something, absolute times on a shared machine less: the fastest
twentieth of the calls, which nothing disturbed, is printed beside the median.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from tempfile import TemporaryDirectory
from typing import Any

PALEO_PREDICTIONS_PER_S = {"alexnet": 1346.0, "resnet50": 232.0, "inception_v3": 138.0}
"""Measured on a like machine."""
WANTED_PREDICTIONS_PER_S = {"alexnet": 5000.0, "resnet50": 2000.0, "inception_v3": 1000.0}
WANTED_PROCESS_S, WANTED_IMPORT_RATIO = 0.6, 1.5
HEAVY = ("sympy", "scipy", "matplotlib", "networkx", "pydantic", "pandas", "torch", "dask")
COMMAND = (
    "predict",
    "resnet50",
    "--device",
    "gtx_1080",
    "--framework",
    "tensorflow_0_9",
    "--batch-size",
    "16",
    "--json",
)
FRAMEWORK = "tensorflow_0_9"


def child_output(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def import_time_s(module: str, *, processes: int) -> float:
    """Median time of importing a module in a fresh interpreter."""
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    return statistics.median(float(child_output(code)) for _ in range(processes))


def heavy_modules(code: str) -> list[str]:
    """Heavy libraries that an interpreter has loaded after some code."""
    found = child_output(f"{code}\nimport sys\nprint()\nprint(*[name for name in {HEAVY!r} if name in sys.modules])")
    return found.splitlines()[-1].split()


def process_s(*, processes: int) -> tuple[float, float]:
    """Median wall and processor time of `perfmodel predict` as a process, its byte code compiled before."""
    walls, busy = [], []
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with TemporaryDirectory() as folder:
        environment["PYTHONPYCACHEPREFIX"] = folder
        for _ in range(processes + 1):
            before, start = os.times(), time.perf_counter()
            command = [sys.executable, "-m", "perfmodel", *COMMAND]
            subprocess.run(command, capture_output=True, check=True, env=environment)
            walls.append(time.perf_counter() - start)
            after = os.times()
            busy.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return statistics.median(walls[1:]), statistics.median(busy[1:])


def perturbed(device: Any, step: int) -> Any:
    """The device with slightly other numbers: what a sweep over hardware does."""
    factor = 1 + 1e-4 * (step % 997 + 1) + 1e-9 * step
    memory = device.memory.model_copy(update={"bandwidth_gb_per_s": device.memory.bandwidth_gb_per_s * factor})
    peak = device.peak_tflop_per_s.model_copy(update={"fp32": device.peak_tflop_per_s.fp32 / factor})
    return device.model_copy(update={"memory": memory, "peak_tflop_per_s": peak})


def warm_rates(network: str, *, calls: int, device_name: str = "gtx_1080") -> dict[str, float]:
    """First prediction of a graph [ms], and predictions per second once it is lowered."""
    import perfmodel as pm

    device = pm.load_device(device_name)
    pm.predict(pm.zoo.lenet5(), batch_size=1, device=device, framework=FRAMEWORK)  # modules and spec files
    graph = pm.zoo.build(network)
    start = time.perf_counter()
    pm.predict(graph, batch_size=1, device=device, framework=FRAMEWORK)
    first_s = time.perf_counter() - start
    devices = [perturbed(device, step) for step in range(calls)]
    with_parts, with_all, checksum = [], [], 0.0
    for step, other in enumerate(devices):
        start = time.perf_counter()
        prediction = pm.predict(graph, batch_size=step + 2, device=other, framework=FRAMEWORK)
        parts, step_s = prediction.breakdown, prediction.step_s
        with_parts.append(time.perf_counter() - start)
        if step % 20 == 0:
            checksum += prediction.memory.total_bytes + sum(row.seconds for row in prediction.layers)
            with_all.append(time.perf_counter() - start)
        assert len(parts) == 9
        assert abs(sum(parts.values()) - step_s) <= 1e-12 * step_s
    assert checksum > 0
    return {
        "per_s": 1 / statistics.median(with_parts),
        "per_s_undisturbed": 1 / statistics.quantiles(with_parts, n=20)[0],
        "per_s_with_memory_and_layers": 1 / statistics.median(with_all),
        "first_ms": 1e3 * first_s,
    }


def chain_time_ms(layers: int) -> tuple[float, float]:
    """Build-and-first-predict time, and warm predict time, of a chain of dense layers. [ms]"""
    import perfmodel as pm
    from perfmodel.layers import Dense, ReLU

    start = time.perf_counter()
    graph = pm.LayerGraph("chain", input_shape=(64,))
    node = graph.input
    for index in range(layers // 2):
        node = graph.add(f"dense{index}", Dense(units=64), inputs=node)
        node = graph.add(f"relu{index}", ReLU(), inputs=node)
    pm.predict(graph, batch_size=1, device="gtx_1080")
    first = time.perf_counter() - start
    times = []
    for batch_size in range(2, 22):
        start = time.perf_counter()
        pm.predict(graph, batch_size=batch_size, device="gtx_1080")
        times.append(time.perf_counter() - start)
    return 1e3 * first, 1e3 * statistics.median(times)


def measured(*, calls: int, processes: int) -> dict[str, Any]:
    """Every figure."""
    imports = {name: 1e3 * import_time_s(name, processes=processes) for name in ("numpy", "perfmodel")}
    wall_s, busy_s = process_s(processes=processes)
    rates = {network: warm_rates(network, calls=calls) for network in PALEO_PREDICTIONS_PER_S}
    asked = f"p = pm.predict(pm.zoo.resnet50(), batch_size=16, device='gtx_1080', framework='{FRAMEWORK}')"
    return {
        "import_ms": imports,
        "import_ratio_to_numpy": imports["perfmodel"] / imports["numpy"],
        "heavy_modules": {
            "import": heavy_modules("import perfmodel"),
            "predict": heavy_modules(f"import perfmodel as pm; {asked}; p.to_dict()"),
            "command line": heavy_modules(f"from perfmodel.cli.app import run; run({list(COMMAND)!r})"),
        },
        "process_s": {"wall": wall_s, "processor": busy_s},
        "warm_predictions": rates,
        "ratio_to_paleo": {name: rate["per_s"] / PALEO_PREDICTIONS_PER_S[name] for name, rate in rates.items()},
        "chain_ms_first_and_warm": {str(layers): chain_time_ms(layers) for layers in (20, 200, 2000)},
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def lines(figures: dict[str, Any]) -> list[str]:
    """What a person reads."""
    imports, process = figures["import_ms"], figures["process_s"]
    said = [
        f"import perfmodel: {imports['perfmodel']:.1f} ms, numpy {imports['numpy']:.1f} ms: "
        f"{figures['import_ratio_to_numpy']:.2f} times (wanted: at most {WANTED_IMPORT_RATIO:g})",
        f"perfmodel predict as a process: {process['wall']:.2f} s, {process['processor']:.2f} s of them busy "
        f"(wanted: at most {WANTED_PROCESS_S:g} s)",
    ]
    said += [
        f"heavy modules after {how}: {', '.join(names) or 'none'}" for how, names in figures["heavy_modules"].items()
    ]
    for name, rate in figures["warm_predictions"].items():
        said.append(
            f"{name}: {rate['per_s']:,.0f} warm predictions per second (wanted: {WANTED_PREDICTIONS_PER_S[name]:,.0f}; "
            f"{figures['ratio_to_paleo'][name]:.1f} x Paleo), undisturbed {rate['per_s_undisturbed']:,.0f}, with "
            f"memory and layer rows {rate['per_s_with_memory_and_layers']:,.0f}; first: {rate['first_ms']:.0f} ms"
        )
    for layers, (first, warm) in figures["chain_ms_first_and_warm"].items():
        said.append(f"chain of {layers} layers: {first:.1f} ms to build and predict first, {warm:.2f} ms warm")
    return [*said, f"peak memory: {figures['peak_memory_mib']:.0f} MiB"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1500, help="timed predictions of each network")
    parser.add_argument("--processes", type=int, default=9, help="fresh interpreters of each kind")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measured(calls=arguments.calls, processes=arguments.processes)
    print(json.dumps(figures, indent=2) if arguments.json else "\n".join(lines(figures)))


if __name__ == "__main__":
    main()
