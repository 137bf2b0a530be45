"""How long does an import take? `pm.from_torch` of a ResNet-50 beside torch's own FlopCounterMode on the same module.

Run:  python benchmarks/importing.py [--repeats 5] [--json]

FlopCounterMode counts one batch size; the import is traced at three, so that any batch size can be predicted. Both run
on tensors without memory. Ratios between two runs on one machine mean something, absolute times on a shared machine
less.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))  # the plain torch networks that the tests count

BILLION = 1_000_000_000


def _resnet50() -> Any:
    import torch

    from torch_models.resnet import resnet50

    with torch.device("meta"):
        return resnet50()


def import_time_s() -> float:
    import torch

    import perfmodel as pm

    module, inputs = _resnet50(), torch.empty(2, 3, 224, 224, device="meta")
    start = time.perf_counter()
    graph = pm.from_torch(module, inputs, progress=False)
    seconds = time.perf_counter() - start
    assert graph.parameter_count == sum(each.numel() for each in module.parameters())
    return seconds


def counter_time_s(*, backward: bool) -> float:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    module, inputs = _resnet50(), torch.empty(2, 3, 224, 224, device="meta")
    start = time.perf_counter()
    with FlopCounterMode(display=False) as counter:
        output = module(inputs)
        if backward:
            output.sum().backward()
    seconds = time.perf_counter() - start
    assert counter.get_total_flops() > 0
    return seconds


def largest_import() -> tuple[float, float]:
    """Seconds and peak memory [GB] of importing a decoder of 7 billion parameters, in a process of its own."""
    code = (
        "import sys, time, resource; sys.path.insert(0, 'tests'); import torch; from torch_models.llama import llama\n"
        "import perfmodel as pm\n"
        "with torch.device('meta'): module = llama('llama2_7b')\n"
        "start = time.perf_counter()\n"
        "graph = pm.from_torch(module, torch.zeros(2, 128, dtype=torch.int64, device='meta'), progress=False)\n"
        "print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,"
        " graph.parameter_count)"
    )
    words = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    seconds, gigabytes, parameters = map(float, words.stdout.split())
    assert parameters > 6 * BILLION
    return seconds, gigabytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    import_time_s()  # the first import of torch's own modules is nobody's time
    counter_time_s(backward=True)
    samples: dict[str, list[float]] = {"import": [], "forward": [], "forward_backward": []}
    for _ in range(arguments.repeats):
        samples["import"].append(import_time_s())
        samples["forward"].append(counter_time_s(backward=False))
        samples["forward_backward"].append(counter_time_s(backward=True))
    medians = {name: statistics.median(each) for name, each in samples.items()}
    seconds, gigabytes = largest_import()
    figures = {
        "from_torch_resnet50_s": medians["import"],
        "flop_counter_mode_forward_s": medians["forward"],
        "flop_counter_mode_forward_backward_s": medians["forward_backward"],
        "ratio_to_forward_backward": medians["import"] / medians["forward_backward"],
        "from_torch_7b_s": seconds,
        "from_torch_7b_peak_gb": gigabytes,
        "this_process_peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
    }
    if arguments.json:
        print(json.dumps(figures, indent=1))
        return
    for name, figure in figures.items():
        print(f"{name:40s} {figure:10.3f}")


if __name__ == "__main__":
    main()
