"""How fast is the simulation? Events per second, on steps of a network on many devices that share links.

    python benchmarks/simulation.py [--steps 100] [--devices 16] [--layers 175] [--trace FOLDER]

Every step of every device is a chain of kernels, one for each layer of ResNet-50 (175 with its element-wise layers),
whose mini-batch is read, decoded on a pool of cores and copied over a root that four devices share; gradients leave in
buckets over the same root while the chain goes on, and all devices wait for all others. Durations differ from device
to device, so that flows begin and end at different moments and rates are found anew for each.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from perfmodel.simulation import Task, simulate

DEVICES_OF_A_ROOT = 4
BUCKET_COUNT = 5
READ_BYTES, COPY_BYTES, BUCKET_BYTES = 3.5e6, 19.3e6, 20.4e6
KERNEL_S, DECODE_S = 0.6e-3, 10e-3
CORES_OF_A_ROOT, DECODERS = 16, 4


def capacities(device_count: int) -> tuple[dict[str, float], dict[str, int]]:
    """Channels [B/s] and resources [units] of roots with four devices, a drive and cores each."""
    channels, resources = {}, {}
    for root in range(-(-device_count // DEVICES_OF_A_ROOT)):
        channels |= {f"ssd{root} to root{root}": 3.5e9, f"memory{root} to root{root}": 12e9}
        channels |= {f"root{root} to memory{root}": 12e9}
        resources[f"cores{root}"] = CORES_OF_A_ROOT
    for device in range(device_count):
        channels |= {f"root to gpu{device}": 12e9, f"gpu{device} to root": 12e9}
        resources[f"gpu{device}"] = 1
    return channels, resources


def steps(*, step_count: int, device_count: int, layer_count: int) -> list[Task]:
    """All tasks of some steps."""
    tasks = []
    for step in range(step_count):
        everyone = []
        for device in range(device_count):
            root = device // DEVICES_OF_A_ROOT
            slowness = 1 + 0.003 * ((7 * device + 3 * step) % 11)
            name = f"gpu{device} step {step}"
            before = (f"everyone {step - 2}",) if step > 1 else ()
            decoders = tuple(f"{name} decode {part}" for part in range(DECODERS))
            tasks.append(Task(f"{name} read", flow_bytes=READ_BYTES, channels=(f"ssd{root} to root{root}",),
                              after=before, kind="read"))  # fmt: skip
            tasks += [Task(decoder, resource=f"cores{root}", duration_s=DECODE_S * slowness, after=(f"{name} read",),
                           kind="decode") for decoder in decoders]  # fmt: skip
            tasks.append(Task(f"{name} copy", flow_bytes=COPY_BYTES, latency_s=1e-5, after=decoders, kind="transfer",
                              channels=(f"memory{root} to root{root}", f"root to gpu{device}")))  # fmt: skip
            last = (f"{name} copy", *((f"everyone {step - 1}",) if step else ()))
            for layer in range(layer_count):
                kernel = f"{name} layer {layer}"
                tasks.append(Task(kernel, resource=f"gpu{device}", duration_s=KERNEL_S * slowness, after=last,
                                  kind="compute"))  # fmt: skip
                last = (kernel,)
                if (layer + 1) % (layer_count // BUCKET_COUNT) == 0:
                    everyone.append(f"{kernel} bucket")
                    upwards = (f"gpu{device} to root", f"root{root} to memory{root}")
                    tasks.append(Task(f"{kernel} bucket", flow_bytes=BUCKET_BYTES, latency_s=1e-5, after=last,
                                      channels=upwards, kind="sync"))  # fmt: skip
            everyone.append(last[0])
        tasks.append(Task(f"everyone {step}", after=tuple(everyone)))
    return tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--devices", type=int, default=16)
    parser.add_argument("--layers", type=int, default=175)
    parser.add_argument("--trace", type=Path, help="folder to save a trace and a chart of two steps in")
    options = parser.parse_args()
    channels, resources = capacities(options.devices)
    start = time.perf_counter()
    tasks = steps(step_count=options.steps, device_count=options.devices, layer_count=options.layers)
    made = time.perf_counter()
    timeline = simulate(tasks, channels=channels, resources=resources)
    seconds = time.perf_counter() - made
    print(f"{options.steps} steps, {options.devices} devices, {options.layers} layers: {len(tasks)} tasks")
    print(f"made in {made - start:.2f} s, simulated in {seconds:.2f} s: {timeline.event_count / seconds:,.0f} events/s")
    print(f"a step takes {1e3 * timeline.makespan_s / options.steps:.2f} ms, devices compute "
          f"{100 * timeline.utilisation('gpu0'):.1f} % of the time")  # fmt: skip
    if options.trace:
        few = steps(step_count=2, device_count=options.devices, layer_count=options.layers)
        timeline = simulate(few, channels=channels, resources=resources)
        timeline.save(options.trace / "steps.trace.json")
        timeline.plot(options.trace / "steps.png")


if __name__ == "__main__":
    main()
