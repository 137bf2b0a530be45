"""How do time and memory grow with the size of what is asked? Each row is a process of its own.

python benchmarks/sizes.py
python benchmarks/sizes.py jobs 1000000
python benchmarks/sizes.py small_jobs 1000000 480
python benchmarks/sizes.py many_devices 200 1
"""

from __future__ import annotations

import contextlib
import itertools
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def chain(layers: int) -> None:
    """Predict a chain of dense layers."""
    import perfmodel as pm
    from perfmodel.layers import Dense, ReLU

    graph = pm.LayerGraph("chain", input_shape=(64,))
    node = graph.input
    for index in range(layers // 2):
        node = graph.add(f"dense{index}", Dense(units=64), inputs=node)
        node = graph.add(f"relu{index}", ReLU(), inputs=node)
    p = pm.predict(graph, batch_size=16, device="gtx_1080")
    assert p.step_s > 0
    assert p.memory.fits


def llama(layers: int, width: int, intermediate: int) -> None:
    """Predict a language model on one device, which need not hold it."""
    import perfmodel as pm

    graph = pm.zoo.build(
        "llama", layers=layers, width=width, heads=128, key_heads=8, intermediate=intermediate, vocabulary=128256,
        sequence_length=8192,
    )  # fmt: skip
    p = pm.predict(graph, batch_size=1, device="h100_sxm", dtype="bf16")
    assert p.memory.fits is False


def cluster(machines: int) -> None:
    """Predict a step of eight workers in each of some machines, or print the size that can be done."""
    _answered_or_refused(batch_size=16, system="dgx_a100", machines=machines, workers=8 * machines)


def racks(count: int) -> None:
    """Predict a step of 72 workers in each of some racks that NVLink joins."""
    _answered_or_refused(batch_size=16, system="gb200_nvl72", machines=count, workers=72 * count)


def _answered_or_refused(**asked: Any) -> None:
    import perfmodel as pm
    from perfmodel.errors import PerfmodelError

    graph = pm.zoo.build("resnet50")
    try:
        assert pm.predict(graph, **asked).step_s > 0
    except PerfmodelError as error:
        print(f"refused: {error};", end=" ")


def visits(sync: str, stages: int, shards: int) -> None:
    """Predict 16,384 H100 in pipelines that visit a server; workers of a single stage all differ in speed."""
    import perfmodel as pm

    graph = pm.zoo.build("gpt2" if stages > 1 else "resnet50")
    workers = 16_384 // stages
    times = [1 + worker / workers for worker in range(workers)]
    how: dict[str, Any] = {"straggler": {"distribution": "unequal", "times": times}}
    if stages > 1:
        how = {"parallelism": "pipeline", "stages": stages, "micro_batches": 4}
    place = {"system": "dgx_h100", "machines": 2_048, "workers": workers, "sync": sync, "server_count": shards}
    assert pm.predict(graph, batch_size=16, **place, **how).step_s > 0


MACHINES = {
    "dgx_h100": (2_048, 8), "dgx_a100_80": (2_048, 8), "grand_teton_h100": (2_048, 8), "dgx_b200": (2_048, 8),
    "mi300x_x8": (2_048, 8), "aws_p5_48xlarge": (2_048, 8), "gb200_nvl72": (227, 72),
}  # fmt: skip
"""System -> machines with at most 16,384 devices, and the devices of each."""

WAITING = (
    "all_reduce", "all_reduce", "all_reduce", "ring_all_reduce", "hierarchical", "double_binary_tree", "binomial_tree",
    "recursive_doubling", "halving_doubling", "host_tree", "one_to_all", "parameter_server",
)  # fmt: skip
FREE = ("downpour", "delay_compensated", "bounded_staleness", "mixed")


def many_devices(count: int, seed: int) -> None:
    """Predict random jobs of 16,384 devices, and print the slowest predictions and intervals and the longest repr."""
    import numpy as np

    import perfmodel as pm
    from perfmodel.errors import PerfmodelError

    draw = np.random.default_rng(seed)
    pm.predict(pm.zoo.build("gpt2"), batch_size=8, system="dgx_h100", machines=2, workers=16)  # modules
    took: list[tuple[float, float, int, dict[str, Any]]] = []
    refused = 0
    while len(took) < count:
        asked = _drawn(draw)
        graph = pm.zoo.build(asked.pop("network"))
        started_s = time.process_time()
        try:
            p = pm.predict(graph, **asked)
            assert p.step_s > 0
        except PerfmodelError:
            refused += 1
            continue
        predicted_s = time.process_time() - started_s
        assert p.interval_s[0] < p.step_s
        took.append((predicted_s, time.process_time() - started_s - predicted_s, len(repr(p).splitlines()), asked))
        asked["straggler"] = asked.get("straggler", {}).get("distribution")
    answers = sorted(one for one, *_ in took)
    print(f"{count} jobs of at most 16,384 devices, {refused} others refused: median {answers[count // 2]:.2f} s,")
    print(f"  {sum(one > 2 for one in answers)} above 2 s; interval at most {max(row[1] for row in took):.2f} s;")
    print(f"  repr of at most {max(row[2] for row in took)} lines; the five slowest:")
    for predicted_s, interval_s, _, asked in sorted(took, key=lambda row: -row[0])[:5]:
        print(f"  {predicted_s:.2f} s, interval {interval_s:.2f} s: {asked}")


def _drawn(draw: Any) -> dict[str, Any]:
    """Draw a job that keeps all devices of a system's machines busy."""

    def one_of(*values: Any) -> Any:
        return values[draw.integers(len(values))]

    system = one_of(*MACHINES)
    machines, each = MACHINES[system]
    network = one_of("gpt2", "gpt2", "bert", "llama", "resnet50")
    tensor, stages, context = one_of(1, 1, 2, 4, 8), one_of(1, 1, 2, 4, 8, 16), one_of(1, 1, 1, 2)
    workers = machines * each // (tensor * stages * context)
    asked: dict[str, Any] = {"network": network, "batch_size": one_of(16, 32), "system": system, "machines": machines}
    asked |= {"workers": workers, "framework": one_of("pytorch_2", "generic", "megatron_core", "tensorflow_1_12")}
    asked |= {"sync": one_of(*WAITING, *FREE), "dtype": one_of("bf16", "fp16", "fp32"), "optimizer": "adam"}
    if stages > 1:
        asked |= {"parallelism": "pipeline", "stages": stages, "micro_batches": one_of(1, 4, 8, 16)}
        asked |= one_of({}, {"schedule": "gpipe"}, {"schedule": "interleaved", "interleave": 2})
    elif tensor > 1:
        asked |= {"parallelism": "tensor"}
    asked |= {"tensor_size": tensor} if tensor > 1 else {}
    asked |= {"context_size": context, "context_method": one_of("ring", "gather")} if context > 1 else {}
    if asked["sync"] in WAITING:
        asked |= one_of({}, {"bucket_bytes": one_of(0, 25e6, "merged")}, {"shard_stage": one_of(1, 2, 3)})
        asked |= {"shard_group": each} if asked.get("shard_stage") and one_of(True, False) else {}
    if asked["sync"] in ("parameter_server", *FREE):
        asked |= {"server_count": one_of(1, 8, 64)}
    asked |= {"staleness_bound": 4} if asked["sync"] == "bounded_staleness" else {}
    unequal = {"distribution": "unequal", "times": (1 + draw.random(workers)).tolist()}
    asked |= one_of({}, {}, {"straggler": {"distribution": "normal", "cv": 0.1}}, {"straggler": unequal})
    return asked


def timeline(network: str, workers: str) -> None:
    """Play a step of some workers, or print how many events it would be."""
    import perfmodel as pm
    from perfmodel.errors import PerfmodelError

    machines = {"machines": int(workers) // 8} if int(workers) > 8 else {}
    graph = pm.zoo.build(network)
    p = pm.predict(graph, batch_size=16, system="dgx_a100", workers=int(workers), sync="ring_all_reduce", **machines)
    started_s = time.process_time()
    try:
        print(f"{len(p.timeline.spans):,} spans", end=" ")
    except PerfmodelError as error:
        print(f"refused: {error}", end=" ")
    print(f"in {time.process_time() - started_s:.2f} s;", end=" ")


def jobs(count: int) -> None:
    """Predict different jobs one after another, as a notebook of a week does: networks, devices, software, layouts."""
    import perfmodel as pm
    from perfmodel.errors import PerfmodelError

    networks = ("alexnet", "googlenet", "resnet50", "inception_v3", "lstm32", "gpt2", "lenet5", "fcn5")
    graphs = {name: pm.zoo.build(name) for name in networks}
    devices = ("gtx_1080", "v100_sxm2", "a100_80_sxm", "h100_sxm", "h200_sxm", "titan_rtx")
    frameworks = ("torch_423cfba", "tensorflow_0_9", "caffe_cudnn5", "pytorch_2", "generic", "cntk_1_72")
    places = [
        *({"device": device} for device in devices),
        *({"system": "dgx_a100", "workers": workers, "sync": "ring_all_reduce"} for workers in (2, 4, 8)),
        {"system": "dgx_a100", "parallelism": "pipeline", "stages": 2, "micro_batches": 4},
    ]
    kinds = itertools.cycle(itertools.product(networks, frameworks, ("fp32", "fp16"), ("sgd", "adam"), places))
    for number, (network, framework, dtype, optimizer, place) in zip(range(count), kinds, strict=False):
        graph = pm.zoo.build(network) if number % 100 == 0 else graphs[network]  # sometimes a graph of its own
        asked = {"framework": framework, "dtype": dtype, "optimizer": optimizer, **place}
        with contextlib.suppress(PerfmodelError):  # a framework may not know a device or type
            assert pm.predict(graph, batch_size=4 * (1 + number // 1920), **asked).memory.total_bytes > 0


def small_jobs(count: int, seconds: int) -> None:
    """Predict as many different small jobs as some processor time allows; print the memory held every 20,000."""
    import perfmodel as pm

    graph = pm.zoo.build("mnist_classifier")
    layouts = itertools.cycle(
        [
            {"device": "gtx_1080", "framework": "torch_423cfba"},
            {"device": "v100_sxm2", "framework": "pytorch_2", "optimizer": "adam"},
            {"device": "h100_sxm", "framework": "pytorch_2", "dtype": "bf16"},
            *({"system": "dgx_a100", "framework": "pytorch_2", "workers": workers} for workers in (2, 4, 8)),
            {"system": "dgx_a100", "framework": "pytorch_2", "workers": 4, "shard_stage": 1},
            {"system": "dgx_1_p100", "framework": "caffe_cudnn5", "workers": 4, "sync": "parameter_server"},
        ]
    )
    done = 0
    while done < count and time.process_time() < seconds:
        asked = next(layouts)
        assert pm.predict(graph, batch_size=1 + done // 8, **asked).step_s > 0
        done += 1
        if done % 20_000 == 0:
            print(f"{done:9,} jobs {time.process_time():6.0f} s {held_mib():6.1f} MiB", flush=True)
    print(f"{done:9,} jobs")


def held_mib() -> float:
    """Memory that the process holds now. [MiB]"""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize() / 2**20


SIZES = {
    chain: [(1_000,), (10_000,), (100_000,)],
    llama: [(126, 16_384, 53_248), (500, 40_960, 131_072)],
    cluster: [(16,), (125,), (1_250,), (4_096,), (125_000,)],
    racks: [(139,), (455,), (4_096,)],
    visits: [("downpour", 16, 64), ("delay_compensated", 16, 2_048), ("downpour", 1, 64)],
    timeline: [("alexnet", "8"), ("resnet50", "8"), ("resnet50", "64"), ("resnet50", "512")],
    jobs: [(300,), (3_000,)],
}
"""Function -> its sizes. A million workers are 125,000 machines of eight; 139 racks are 10,008 devices."""


def main() -> None:
    """Print processor time and peak memory of each row, the start of Python included."""
    if len(sys.argv) > 1:
        function = {each.__name__: each for each in (*SIZES, small_jobs, many_devices)}[sys.argv[1]]
        function(*(int(word) if word.isdigit() and function is not timeline else word for word in sys.argv[2:]))
        print(f"{time.process_time():6.2f} s {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:6.0f} MiB")
        return
    for function, rows in SIZES.items():
        for sizes in rows:
            words = [function.__name__, *map(str, sizes)]
            done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=False)
            print(f"{' '.join(words):32} {done.stdout.strip() or done.stderr.strip().splitlines()[-1]}", flush=True)


if __name__ == "__main__":
    main()
