"""Measured calls of NCCL on machines of today, and measured steps of sharded language models, beside predictions."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from perfmodel.errors import TableError
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.cluster import Cluster
from perfmodel.hardware.library import load_collective_library
from perfmodel.prediction.job.job import Job
from perfmodel.presentation.tables import Table
from perfmodel.sync.registry import LibraryCollective, collective, place_library
from perfmodel.units import GIGA
from perfmodel.validation.scores.interval_coverage import interval_row
from perfmodel.validation.scores.table_report import EVERY_ROW, PERFMODEL, PartScore, RowReport, compared
from perfmodel.zoo.transformer import gpt

LIBRARY: Final = "nccl_2_27"
"""Library of the calls; tables name none, or an older one. [-]"""

CONSTANT: Final = "one bandwidth per device, told the answers"
"""Naive rule: the geometric mean of the bus bandwidths of a device's rows. [-]"""

ONE_MFU: Final = "one MFU, told the answers"
"""Naive rule: the share of peak that all steps have in the geometric mean. [-]"""

MFU_BY_MODEL: Final = "one MFU per model, told the answers"
"""Naive rule: the share of peak that the steps of each network have in the geometric mean. [-]"""

MACHINE_SIZE: Final = 8
"""Devices of each machine of these tables. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """A measured call beside its prediction."""

    system: str
    operation: str
    devices: int
    adapters: int
    size_bytes: float
    algorithm: str
    measured_gb_per_s: float
    predicted_gb_per_s: float
    error_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedRow:
    """A measured step of a sharded network beside its prediction."""

    network: str
    sequence_length: int
    device: str
    devices: int
    micro_batch_size: int
    accumulation_steps: int
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float
    error_percent: float
    memory_share: float


def bus_bytes(operation: str, size_bytes: float, count: int) -> float:
    """Return the bytes that a bus bandwidth counts. [B]"""
    around = {"all_reduce": "ring_all_reduce", "broadcast": "chain_broadcast"}.get(operation, operation)
    return float(collective(around).wire_bytes(size_bytes, count))


def _rate(system: Any, operation: str, count: int, size_bytes: float, only: str = "") -> float:
    """Return the predicted bus bandwidth of a call. [B/s]"""
    topology = system.topology
    placed = place_library(load_collective_library(LIBRARY), operation, topology, topology.devices()[:count])
    if only:
        names = {"ring": ("ring_all_reduce", operation), "nvls": ("multicast_switch",)}[only]
        kept = tuple(each for each in placed.algorithms if each.collective.name in names)
        placed = LibraryCollective(algorithms=kept, protocols=placed.protocols, blocks=placed.blocks)
    return bus_bytes(operation, size_bytes, count) / float(placed.time(size_bytes))


def with_adapters(system: Any, count: int) -> Any:
    """Return a cluster whose machines have only the first of their adapters."""
    machines = []
    for name, machine in system.machines:
        (slot,) = machine.file.nic
        used = slot.model_copy(update={"count": count, "to": slot.ports[:count]})
        machines.append((name, replace(machine, file=machine.file.model_copy(update={"nic": (used,)}))))
    return _rewired(system, dict(machines))


def _rewired(system: Cluster, machines: Mapping[str, Any]) -> Any:
    from perfmodel.hardware import spec_files
    from perfmodel.hardware.wiring import wiring_of

    folder = spec_files.shipped_folder() / "systems"
    changed = [
        (
            name,
            replace(
                machine,
                wiring=wiring_of(machine.file, processor=machine.processor, path=folder / f"{machine.file.stem}.toml"),
            ),
        )
        for name, machine in machines.items()
    ]
    return system.of_machines(changed, name=system.name, network=None, folder=folder)


def _records(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def calls_inside(file: Path) -> RowReport:
    """Score calls inside one machine: the library's choice, or the algorithm that a row names."""
    rows = []
    for record in _records(file):
        operation, count = record["operation"], int(record["gpus"])
        size_bytes, named = float(record["size_bytes"]), record["algorithm"].lower()
        rate = _rate(
            load_system(record["system"]), operation, count, size_bytes, named if named in ("ring", "nvls") else ""
        )
        measured = bus_bytes(operation, size_bytes, count) / float(record["seconds"])
        rows.append(_call_row(record["system"], operation, count, 0, size_bytes, record["algorithm"], measured, rate))
    large, small = 1e8, 1e6
    return _call_report(
        file,
        rows,
        {
            "from 100 MB": lambda row: row.size_bytes >= large,
            "1 to 100 MB": lambda row: small <= row.size_bytes < large,
            "below 1 MB": lambda row: row.size_bytes < small,
        },
        size_note="launch, latency and share of the links were fitted to these rows; those of each device with "
        "the constants of the other are in docs/validation.md",
    )


def calls_between(file: Path) -> RowReport:
    """Score calls between machines with some of their adapters, of 1 GB."""
    rows = []
    for record in _records(file):
        machines, count = int(record["machines"]), int(record["gpus"])
        adapters, operation = int(record["adapters_used_per_machine"]), record["operation"]
        system = with_adapters(load_system("dgx_a100", machines=machines), adapters)
        rate = _rate(system, operation, count, GIGA)
        measured = GIGA * float(record["bus_bandwidth_gb_per_s"])
        rows.append(_call_row("dgx_a100", operation, count, adapters, GIGA, "", measured, rate))
    return _call_report(file, rows, {}, size_note="no constant was fitted to these rows")


def _call_row(
    system: str, operation: str, count: int, adapters: int, size: float, how: str, measured: float, rate: float
) -> CallRow:
    return CallRow(
        system=system,
        operation=operation,
        devices=count,
        adapters=adapters,
        size_bytes=size,
        algorithm=how,
        measured_gb_per_s=measured / GIGA,
        predicted_gb_per_s=rate / GIGA,
        error_percent=100 * (measured / rate - 1),
    )


def _call_report(
    file: Path, rows: Sequence[CallRow], parts: Mapping[str, Callable[[CallRow], bool]], *, size_note: str
) -> RowReport:
    by_system: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        by_system[row.system, row.operation].append(row.measured_gb_per_s)
    scores: list[PartScore] = []
    for part, belongs in {EVERY_ROW: lambda row: True, **parts}.items():
        some = [row for row in rows if belongs(row)]
        naive = [float(np.exp(np.mean(np.log(by_system[row.system, row.operation])))) for row in some]
        scores += compared(
            "calls",
            {PERFMODEL: [1 / row.predicted_gb_per_s for row in some], CONSTANT: [1 / rate for rate in naive]},
            measured=[1 / row.measured_gb_per_s for row in some],
            fitted={PERFMODEL: 0, CONSTANT: len(by_system)},
            part=part,
            note=size_note if part == EVERY_ROW else "",
        )
    return RowReport(table=file.stem, rows=Table(rows, title=file.stem), parts=tuple(scores))


class _Size(NamedTuple):
    """Width, heads and layers of a network."""

    width: int
    heads: int
    layers: int


SIZES: Final = {
    "125m": _Size(768, 12, 12),
    "350m": _Size(1024, 16, 24),
    "760m": _Size(1536, 12, 24),
    "1b": _Size(2048, 16, 24),
    "3b": _Size(2560, 20, 32),
    "7b": _Size(4096, 32, 32),
    "13b": _Size(5120, 40, 40),
    "30b": _Size(7168, 56, 48),
    "70b": _Size(8192, 64, 80),
}
"""Sizes of MPT by name. [-]"""

VOCABULARY: Final = 50368
"""Tokens of MPT, with padding. [1]"""

SYSTEMS: Final = {"a100_40_sxm": "dgx_a100", "a100_80_sxm": "dgx_a100_80"}
"""Board -> machine of eight. [-]"""

FRAMEWORK: Final = "pytorch_2_1"
"""Framework of the steps: PyTorch 2.0 with FlashAttention 1. [-]"""


def sharded_steps(file: Path) -> RowReport:
    """Score steps of fully sharded language models."""
    records = _records(file)
    rows = [_sharded_row(record, file) for record in records]
    shares = np.array([float(record["mfu_percent"]) for record in records])
    networks = np.array([row.network for row in rows])
    measured = np.array([row.measured_s for row in rows])
    one = np.exp(np.mean(np.log(shares)))
    by_model = np.array([np.exp(np.mean(np.log(shares[networks == name]))) for name in networks])
    models = {
        PERFMODEL: np.array([row.predicted_s for row in rows]),
        ONE_MFU: measured * shares / one,
        MFU_BY_MODEL: measured * shares / by_model,
    }
    parts = {EVERY_ROW: np.ones(len(rows), dtype=bool)} | {name: networks == name for name in SIZES}
    intervals = interval_row(
        "steps",
        PERFMODEL,
        np.log(models[PERFMODEL]),
        np.log([row.high_s / row.predicted_s for row in rows]),
        measured,
    )
    told = (
        f"80 % intervals hold {intervals.coverage_percent:.1f} % of the steps, {intervals.median_ratio:.2f} times from "
        f"end to end in the median, interval score of ln(time) {intervals.log_score:.3f}"
    )
    scores: list[PartScore] = []
    for part, some in parts.items():
        if some.any():
            scores += compared(
                "steps",
                {name: list(times[some]) for name, times in models.items()},
                measured=list(measured[some]),
                fitted={ONE_MFU: 1, MFU_BY_MODEL: len(SIZES)},
                part=part,
                note=f"with {FRAMEWORK}, whose attention kernels are of the time; no constant was fitted to them, "
                f"but that FlashAttention 1 divides long sequences among units was seen in them first; {told}"
                if part == EVERY_ROW
                else "",
            )
    return RowReport(table=file.stem, rows=Table(rows, title=file.stem), parts=tuple(scores))


def _sharded_row(record: Mapping[str, str], file: Path) -> ShardedRow:
    name, board = record["model"].lower(), record["device"]
    if name not in SIZES or board not in SYSTEMS:
        message = (
            f"{file}: model and device must be of {', '.join(SIZES)} and {', '.join(SYSTEMS)} (got {name}, {board})"
        )
        raise TableError(message)
    size, length = SIZES[name], int(record["sequence_length"])
    graph = gpt(
        layers=size.layers,
        width=size.width,
        heads=size.heads,
        sequence_length=length,
        vocabulary=VOCABULARY,
        checkpointed=record["activation_checkpointing"] == "True",
    )
    count, passes = int(record["gpus"]), int(record["accumulation_steps"])
    machines = count // MACHINE_SIZE
    job = Job(
        graph,
        batch_size=int(record["global_batch_samples"]) // count,
        workers=count,
        system=SYSTEMS[board],
        machines=machines if machines > 1 else None,
        framework=FRAMEWORK,
        optimizer="adam",
        dtype="bf16",
        sync="all_reduce",
        shard_stage=3,
        accumulation_steps=passes,
        gradient_dtype="bf16" if record["mixed_precision_mode"] == "PURE" else None,
    )
    prediction, measured = job.predict(), float(record["step_s"])
    memory, (low_s, high_s) = prediction.memory, prediction.interval_s
    return ShardedRow(
        network=name,
        sequence_length=length,
        device=board,
        devices=count,
        micro_batch_size=int(record["micro_batch_samples_per_gpu"]),
        accumulation_steps=passes,
        measured_s=measured,
        predicted_s=float(prediction.step_s),
        low_s=low_s,
        high_s=high_s,
        error_percent=100 * (float(prediction.step_s) / measured - 1),
        memory_share=float(memory.total_bytes / memory.capacity_bytes),
    )
