"""How fast is perfmodel? Import time, warm predictions per second, peak memory, growth with layers.

Run:  python benchmarks/speed.py [--seconds 3] [--json]

Every prediction has a batch size not seen before and a device whose clock, bandwidth and unit count were perturbed, so
that no cache of results can answer; every part of the answer is read. Ratios between two runs on one machine mean
something, absolute times on a shared machine less.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

PALEO_PREDICTIONS_PER_S = {"alexnet": 1346.0, "resnet50": 232.0}
HEAVY = ("sympy", "scipy", "matplotlib", "networkx", "pydantic", "pandas", "torch")


def import_time_s(repeats: int = 5) -> tuple[float, list[str]]:
    """Median time of `import perfmodel` in a fresh interpreter, and the heavy modules it loaded."""
    code = (
        "import time, sys; t = time.perf_counter(); import perfmodel; t = time.perf_counter() - t;"
        f"print(t, *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    times, loaded = [], []
    for _ in range(repeats):
        words = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        times.append(float(words[0]))
        loaded = words[1:]
    return statistics.median(times), loaded


def perturbed(device, step: int):
    """The device with slightly other numbers: what a sweep over hardware does."""
    factor = 1 + 1e-4 * (step % 997 + 1)
    memory = device.memory.model_copy(update={"bandwidth_gb_per_s": device.memory.bandwidth_gb_per_s * factor})
    peak = device.peak_tflop_per_s.model_copy(update={"fp32": device.peak_tflop_per_s.fp32 / factor})
    return device.model_copy(update={"memory": memory, "peak_tflop_per_s": peak})


def predictions_per_s(
    network: str, *, seconds: float, device_name: str = "gtx_1080", framework: str = "tensorflow_0_9"
):
    """Median rate over one-second windows."""
    import perfmodel as pm

    graph, device = getattr(pm.zoo, network)(), pm.load_device(device_name)
    pm.predict(graph, batch_size=1, device=device, framework=framework)
    rates, step, total = [], 1, 0.0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < min(1.0, seconds / 3):
            step += 1
            prediction = pm.predict(graph, batch_size=step, device=perturbed(device, step), framework=framework)
            parts = prediction.breakdown
            assert abs(sum(parts.values()) - prediction.step_s) <= 1e-12 * prediction.step_s
            total += prediction.step_s + prediction.memory.total_bytes
            count += 1
        rates.append(count / (time.perf_counter() - start))
    return statistics.median(rates)


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
    for batch_size in range(2, 7):
        start = time.perf_counter()
        pm.predict(graph, batch_size=batch_size, device="gtx_1080")
        times.append(time.perf_counter() - start)
    return 1e3 * first, 1e3 * statistics.median(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    import_s, loaded = import_time_s()
    rates = {network: predictions_per_s(network, seconds=arguments.seconds) for network in PALEO_PREDICTIONS_PER_S}
    chains = {layers: chain_time_ms(layers) for layers in (20, 200, 2000)}
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = {
        "import_ms": 1e3 * import_s,
        "heavy_modules_loaded_by_import": loaded,
        "warm_predictions_per_s": rates,
        "ratio_to_paleo": {name: rate / PALEO_PREDICTIONS_PER_S[name] for name, rate in rates.items()},
        "chain_ms_first_and_warm": {str(layers): times for layers, times in chains.items()},
        "peak_memory_mib": peak_mib,
    }
    if arguments.json:
        print(json.dumps(figures, indent=2))
        return
    print(f"import perfmodel: {1e3 * import_s:.1f} ms; heavy modules loaded: {', '.join(loaded) or 'none'}")
    for name, rate in rates.items():
        print(f"{name}: {rate:.0f} warm predictions per second ({rate / PALEO_PREDICTIONS_PER_S[name]:.1f} x Paleo)")
    for layers, (first, warm) in chains.items():
        print(f"chain of {layers} layers: {first:.1f} ms to build and predict first, {warm:.2f} ms warm")
    print(f"peak memory: {peak_mib:.0f} MiB")


if __name__ == "__main__":
    main()
