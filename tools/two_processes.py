"""Time training steps of two processes that add up their gradients with gloo on this machine, and predict them.

Run:  python tools/two_processes.py [--calibration FILE]      (four minutes)

Two processes train networks that the calibration never saw, each on one thread, before and after kernels and the sum
of two processes are calibrated on one thread (unless a file is given), and predict() is asked for two such machines.
Nothing is fitted to the steps, of which the fastest tenth of the quicker measurement counts. Both processes need a core
of their own: on a busy machine it measures the others (docs/measured_machine.md).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import Annotated, Any

import typer

import perfmodel as pm
from perfmodel.calibration.facts import freed_memory_kept

NETWORKS = {"wide": ((784, 2048, 2048, 10), 64), "deep": ((1024,) * 7, 64), "thin": ((512, 512, 512, 512, 10), 256)}
"""Name -> units of the input and the layers [1], and samples in a mini-batch [samples]."""
STEPS, WARM = 60, 5
SYSTEM = Path(__file__).with_name("two_processes_system.toml")


def train(rank: int, store: str) -> None:
    """Train as one of two processes; the first prints the fastest tenth of the steps of each network. [s]"""
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy

    from perfmodel.validation.live.modules import dense_stack

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    fast_step_s = {}
    for name, (units, batch_size) in NETWORKS.items():
        module: Any = dense_stack(*units)
        optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
        images, labels = torch.rand(batch_size, units[0]), torch.randint(0, units[-1], (batch_size,))
        seconds = []
        for _ in range(WARM + STEPS):
            begun = time.perf_counter()
            optimizer.zero_grad()
            loss: Any = cross_entropy(module(images), labels)
            loss.backward()
            gradients = torch.cat([parameter.grad.view(-1) for parameter in module.parameters()])
            dist.all_reduce(gradients)
            at = 0
            for parameter in module.parameters():
                parameter.grad.copy_(gradients[at : at + parameter.numel()].view_as(parameter))
                at += parameter.numel()
            optimizer.step()
            seconds.append(time.perf_counter() - begun)
        fast_step_s[name] = quantiles(seconds[WARM:], n=10)[0]
    if rank == 0:
        typer.echo(json.dumps(fast_step_s))


def measured(folder: Path) -> dict[str, float]:
    """Return the tenth percentile of the steps of two processes, for each network. [s]"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, __file__, "--store", str(folder / f"store{time.time_ns()}"), "--rank"]
    started = [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, env=environment, text=True) for rank in (0, 1)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in started]
    fast_step_s: dict[str, float] = json.loads(outputs[0])
    return fast_step_s


def predicted(name: str, *, calibration: Any) -> Any:
    """Predict the step of two processes with one network."""
    import torch

    from perfmodel.validation.live.modules import dense_stack

    units, batch_size = NETWORKS[name]
    graph = pm.from_torch(dense_stack(*units), (torch.zeros(batch_size, units[0]),))
    how: dict[str, Any] = {"sync": "all_reduce", "overlap": False, "bucket_bytes": 1e12, "optimizer": "sgd"}
    return pm.predict(graph, batch_size=batch_size, device=calibration, system=SYSTEM, workers=2, **how)


def main(
    calibration: Annotated[Path | None, typer.Option(help="A calibration of one thread; else one is made.")] = None,
    budget_s: Annotated[float, typer.Option(help="Time that calibrating may take [s].")] = 180,
    rank: Annotated[int | None, typer.Option(hidden=True)] = None,
    store: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Time two processes, and predict them."""
    if rank is not None:
        with freed_memory_kept():
            train(rank, store)
        return
    import torch

    torch.set_num_threads(1)
    device: Any = calibration
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        before = measured(folder)
        if calibration is None:
            device = pm.calibrate("cpu", budget_s=budget_s, progress=False)
            device.save("two_processes.toml")
        after = measured(folder)
        for name in NETWORKS:
            step_s = min(before[name], after[name])
            p = predicted(name, calibration=device)
            error = 100 * (p.step_s / step_s - 1)
            times = (
                f"measured {1e3 * before[name]:.1f} and {1e3 * after[name]:.1f} ms, predicted {1e3 * p.step_s:.1f} ms"
            )
            typer.echo(f"{name}: {times} ({error:+.1f} %), of which exchange {1e3 * p.exposed_sync_s:.1f} ms")


if __name__ == "__main__":
    typer.run(main)
