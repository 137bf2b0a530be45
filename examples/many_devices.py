"""One network on several devices of systems that come with perfmodel: ways to agree, ways to spread, who waits.

Run:  python examples/many_devices.py          (some ten seconds; nothing but perfmodel is needed)
"""

from __future__ import annotations

from dataclasses import dataclass

import perfmodel as pm
from perfmodel.presentation.tables import Table

MACHINE = "survey_fig5"  # one machine with four GTX 1080
CLUSTER = "survey_fig6"  # four of them, and a machine that serves parameters
SWITCHED = "dgx_a100"  # eight A100 behind an NVLink switch


@dataclass(frozen=True)
class Row:
    """What a table below shows of one prediction."""

    what: str
    step_s: float
    samples_per_s: float
    speedup: float
    exposed_sync_s: float
    memory_gb: float


def row(what: str, p: pm.Prediction, alone: pm.Prediction) -> Row:
    """Return a prediction beside the one device that it is held against."""
    return Row(
        what=what,
        step_s=p.step_s,
        samples_per_s=p.samples_per_s,
        speedup=p.samples_per_s / alone.samples_per_s,
        exposed_sync_s=p.exposed_sync_s,
        memory_gb=p.memory.total_bytes / 1e9,
    )


def data_parallel() -> None:
    """Print four workers, each with a mini-batch of its own, that agree in several ways."""
    graph, job = pm.zoo.alexnet(), {"batch_size": 64, "system": MACHINE}
    alone = pm.predict(graph, **job)
    rows = [row("one worker", alone, alone)]
    ways = ("ring_all_reduce", "binomial_tree", "halving_doubling", "host_tree", "parameter_server")
    rows += [row(sync, pm.predict(graph, **job, workers=4, sync=sync), alone) for sync in ways]
    print(Table(rows, title=f"AlexNet on four workers of {MACHINE}, 64 samples each"), end="\n\n")


def server_and_downpour() -> None:
    """Print workers of a cluster that visit a server: all at once, or each when it likes."""
    report = pm.scaling(
        pm.zoo.vgg16(),
        system=CLUSTER,
        workers=(1, 4, 16),
        sync=("ring_all_reduce", "parameter_server", "downpour"),
        batch_size=32,
        dataset_size=1_281_167,
        usd_per_hour=0.5,  # your own price of a worker
    )
    columns = ["sync", "workers", "speedup", "efficiency", "mean_staleness", "epoch_s", "usd_per_epoch"]
    print(f"{report.title}: {report.kind}\n{report.rows.to_text(columns=columns)}\n")


def spread() -> None:
    """Print a network that is cut into pieces: a pipeline, and products that are split over a tensor group."""
    graph, job = pm.zoo.vgg16(), {"batch_size": 64, "system": SWITCHED, "optimizer": "adam"}
    alone = pm.predict(graph, **job)
    workers = {"workers": 4, "sync": "ring_all_reduce"}
    ways = {
        "pipeline of 4, 8 micro-batches": {"parallelism": "pipeline", "stages": 4, "micro_batches": 8},
        "layers over 4, one at a time": {"parallelism": "model", "stages": 4},
        "tensor group of 4": {"parallelism": "tensor", "tensor_size": 4},
        "4 workers, optimizer sharded": {**workers, "parallelism": "data", "shard_stage": 1},
        "hybrid, 4 workers": {**workers, "parallelism": "hybrid"},
    }
    rows = [row("one device", alone, alone)]
    rows += [row(name, pm.predict(graph, **job, **options), alone) for name, options in ways.items()]
    print(Table(rows, title=f"VGG-16 with Adam on {SWITCHED}, 64 samples for each worker"), end="\n\n")


def stragglers() -> None:
    """Print what waiting for the slowest costs, and what two workers that nobody waits for give back."""
    print(pm.straggler_slowdown(workers=(2, 10, 40, 100)), end="\n\n")
    graph, job = pm.zoo.resnet50(), {"batch_size": 32, "system": CLUSTER, "workers": 16, "sync": "ring_all_reduce"}
    varying = {"straggler": {"distribution": "normal", "cv": 0.1}}
    even = pm.predict(graph, **job)
    late, backed = pm.predict(graph, **job, **varying), pm.predict(graph, **job, **varying, backup_workers=2)
    rows = [
        row("16 even workers", even, even),
        row("times vary by 10 %", late, even),
        row("the same, 2 not waited for", backed, even),
    ]
    print(Table(rows, title=f"ResNet-50 on {CLUSTER}, 32 samples for each worker"))


if __name__ == "__main__":
    data_parallel()
    server_and_downpour()
    spread()
    stragglers()
