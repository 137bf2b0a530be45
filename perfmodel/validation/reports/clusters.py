"""Measured calls of collectives and steps of sharded language models, compared with predictions and naive rules."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.errors import TableError
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.library import load_collective_library
from perfmodel.measurements.kernel_tables import (
    NAMES,
    CollectiveMeasurements,
    MeasuredCollective,
    read_collectives,
    stated_formats,
)
from perfmodel.prediction.job.job import Job
from perfmodel.presentation.tables import row_table
from perfmodel.sync.registry import LibraryCollective, collective, place_library
from perfmodel.units import GIGA, MICROSECOND
from perfmodel.validation.scores.interval_coverage import interval_row
from perfmodel.validation.scores.table_report import (
    EVERY_ROW,
    ONE_MFU,
    PERFMODEL,
    RowReport,
    by_one_mfu,
    compared,
    read_records,
)
from perfmodel.zoo.transformer import gpt

if TYPE_CHECKING:
    from numpy.typing import NDArray

LIBRARY: Final = "nccl_2_27"
"""Library of the calls; tables name none, or an older one. [-]"""

ONE_BANDWIDTH: Final = "one bandwidth per device, told the answers"
"""Naive rule: the geometric mean of the bus bandwidths of a device's rows. [-]"""

MFU_BY_MODEL: Final = "one MFU per model, told the answers"
"""Naive rule: for each network, the geometric mean of its steps' shares of peak. [-]"""

MACHINE_SIZE: Final = 8
"""Devices of each machine of these tables. [1]"""

HOST_S: Final = {row["algorithm"]: row["host_us"] * MICROSECOND for row in stated_formats("calls_in_one_machine")}
"""Column ``algorithm`` of calls inside one machine -> time that the host adds to each. [s]"""


HELD_OUT: Final = "fitted_on_other_rows"
"""Protocol: constants as shipped, scored on the rows that they were not fitted to. [-]"""

NEAREST: Final = "nearest fitted size, scaled by bytes on the wire"
"""Naive rule: the time of the fitted row of the same operation that is nearest in size and devices. [-]"""

INTERPOLATED: Final = "interpolated over bytes on the wire"
"""Naive rule: between the fitted rows of the same operation with the nearest number of devices, log-log. [-]"""

CONSTANT: Final = "constant bus bandwidth"
"""Naive rule: bytes on the wire over the median bus bandwidth of the fitted rows of that operation. [-]"""

ALL_SYSTEMS: Final = "all systems"


def predicted_times(rows: Sequence[MeasuredCollective]) -> NDArray[np.float64]:
    """Predict calls by the shipped library files."""

    @cache
    def placed(system: str, library: str, operation: str, workers: int) -> Any:
        topology = load_system(system).topology
        ranks = topology.devices()[:workers]
        if len(ranks) < workers:
            message = f"a call must use at most {len(ranks)} devices on system {system} (got {workers})"
            raise TableError(message)
        return place_library(load_collective_library(library), operation, topology, ranks)

    calls = ((placed(row.system, row.library, row.operation, row.worker_count), row) for row in rows)
    return np.array([float(call.time(row.size_bytes)) for call, row in calls])


def wire_bytes(operation: str, size_bytes: float, worker_count: int) -> float:
    """Return the fewest bytes that each device must send, the basis of a bus bandwidth. [B]"""
    name = {"all_reduce": "ring_all_reduce", "broadcast": "chain_broadcast"}.get(operation, operation)
    return float(collective(name).wire_bytes(size_bytes, worker_count))


def _wire_bytes(row: MeasuredCollective) -> float:
    return wire_bytes(row.operation, row.size_bytes, row.worker_count)


def nearest_scaled(row: MeasuredCollective, fitted: Sequence[MeasuredCollective]) -> float:
    """Return the time of the nearest fitted call, in proportion to the bytes on the wire."""

    def distance(other: MeasuredCollective) -> tuple[float, float]:
        devices = abs(math.log(other.worker_count / row.worker_count))
        return devices, abs(math.log(other.size_bytes / row.size_bytes))

    nearest = min(_alike(row, fitted), key=distance)
    return nearest.seconds * _wire_bytes(row) / _wire_bytes(nearest)


def interpolated(row: MeasuredCollective, fitted: Sequence[MeasuredCollective]) -> float:
    """Interpolate between the fitted calls with the next fewer and the next more bytes on the wire."""
    alike = _alike(row, fitted)
    nearest = min((abs(math.log(other.worker_count / row.worker_count)), other.worker_count) for other in alike)[1]
    known: dict[float, list[float]] = {}
    for other in alike:
        if other.worker_count == nearest:
            known.setdefault(math.log(_wire_bytes(other)), []).append(math.log(other.seconds))
    sizes = sorted(known)
    size = math.log(_wire_bytes(row))
    inside = min(max(size, sizes[0]), sizes[-1])
    times = [float(np.mean(known[size])) for size in sizes]
    return math.exp(float(np.interp(inside, sizes, times)) + size - inside)


def constant_bandwidth(row: MeasuredCollective, fitted: Sequence[MeasuredCollective]) -> float:
    """Return the time at the median bus bandwidth of the fitted calls."""
    rates = [_wire_bytes(other) / other.seconds for other in _alike(row, fitted)]
    return _wire_bytes(row) / float(np.median(rates))


def _alike(row: MeasuredCollective, fitted: Sequence[MeasuredCollective]) -> list[MeasuredCollective]:
    def key(measured: MeasuredCollective) -> tuple[str, str, str]:
        return measured.system, measured.library, measured.operation

    alike = [other for other in fitted if key(other) == key(row)]
    if not alike:
        message = f"row {row.row_number}: no row of {row.operation} on {row.system} with {row.library} to fit"
        raise TableError(message)
    return alike


def collective_report(file: Path) -> RowReport:
    """Score a file of measured collectives."""
    table = read_collectives(file)
    if table is None:
        message = f"{file}: must be a table of measured collectives; it lacks the columns of one"
        raise TableError(message)
    return report_of(table)


def report_of(table: CollectiveMeasurements) -> RowReport:
    """Score a table of measured collectives on the rows that no constant was fitted to."""
    fitted, scored = ([row for row in table.rows if row.is_fitted is is_fitted] for is_fitted in (True, False))
    if not scored:
        message = f"{table.name}: no row is left to score: constants were fitted to all of them"
        raise TableError(message)
    predictions = {
        PERFMODEL: predicted_times(scored),
        NEAREST: np.array([nearest_scaled(row, fitted) for row in scored]),
        INTERPOLATED: np.array([interpolated(row, fitted) for row in scored]),
        CONSTANT: np.array([constant_bandwidth(row, fitted) for row in scored]),
    }
    measured, counts = [row.seconds for row in scored], _constant_counts(table)
    rows = [
        {
            "system": row.system,
            "library": row.library,
            "operation": row.operation,
            "worker_count": row.worker_count,
            "size_bytes": row.size_bytes,
            "measured_s": row.seconds,
            "predicted_s": float(predicted_s),
            "constant_bandwidth_s": float(constant_s),
        }
        for row, predicted_s, constant_s in zip(scored, predictions[PERFMODEL], predictions[CONSTANT], strict=True)
    ]
    left_out = {f"rows {reason}": count for reason, count in table.left_out.items()}
    reasons = {"rows that constants were fitted to": len(fitted), **left_out}
    return RowReport(
        table=table.name,
        rows=row_table(rows, title=f"{table.name}: calls that no constant was fitted to"),
        parts=tuple(
            score
            for subset, part, of_part in _parts(scored)
            for score in compared(subset, predictions, measured=measured, fitted=counts, part=part, rows=of_part)
        ),
        not_scored="; ".join(f"{count} {reason}" for reason, count in reasons.items()),
    )


def _parts(scored: Sequence[MeasuredCollective]) -> list[tuple[str, str, NDArray[np.bool_]]]:
    """Return names of system and part with the rows that belong there."""
    pairs = [f"{row.system}, {row.library}" for row in scored]
    operations = [row.operation for row in scored]
    counts = [row.worker_count for row in scored]
    parts = [(ALL_SYSTEMS, EVERY_ROW, np.ones(len(scored), dtype=bool))]
    if len(set(pairs)) > 1:
        parts += [(name, EVERY_ROW, np.array(pairs) == name) for name in sorted(set(pairs))]
    if len(set(operations)) > 1:
        parts += [(ALL_SYSTEMS, name, np.array(operations) == name) for name in sorted(set(operations))]
    parts += [(ALL_SYSTEMS, f"{count} devices", np.array(counts) == count) for count in sorted(set(counts))]
    return parts


def _constant_counts(table: CollectiveMeasurements) -> dict[str, int]:
    """Count the numbers that each model takes from the fitted rows."""
    libraries = {row.library for row in table.rows}
    named = 0
    for name in libraries:
        library = load_collective_library(name)
        numbers = [
            f"protocol.{protocol}.{key}"
            for protocol, row in library.protocol.items()
            if not row.algorithms
            for key in row.constants
        ]
        sources = [library.source_of(number) for number in numbers]
        named += sum(source is not None and source.provenance == "fitted" for source in sources)
    kinds = {(row.system, row.library, row.operation) for row in table.rows}
    known = sum(row.is_fitted for row in table.rows)
    return {PERFMODEL: named, NEAREST: known, INTERPOLATED: known, CONSTANT: len(kinds)}


def _rate(system: Any, operation: str, count: int, size_bytes: float, *, only: str = "", host_s: float = 0.0) -> float:
    """Return the bus bandwidth of a call; ``only`` limits the library to one algorithm. [B/s]"""
    topology = system.topology
    placed = place_library(load_collective_library(LIBRARY), operation, topology, topology.devices()[:count])
    names = {"ring": ("ring_all_reduce", operation), "nvls": ("multicast_switch",)}.get(only)
    if names is not None:
        named = tuple(algorithm for algorithm in placed.algorithms if algorithm.collective.name in names)
        placed = LibraryCollective(algorithms=named, protocols=placed.protocols, blocks=placed.blocks)
    return wire_bytes(operation, size_bytes, count) / (host_s + float(placed.time(size_bytes)))


def with_adapters(system: Any, count: int) -> Any:
    """Return a cluster whose machines have fewer adapters, spread evenly over their roots and switches."""
    from perfmodel.hardware import spec_files
    from perfmodel.hardware.wiring import wiring_of

    folder = spec_files.shipped_folder() / "systems"
    machines = []
    for name, machine in system.machines:
        (slot,) = machine.file.nic
        ports = tuple(slot.ports[index % len(slot.ports)] for index in range(count))
        used = slot.model_copy(update={"count": count, "to": ports})
        file = machine.file.model_copy(update={"nic": (used,)})
        wiring = wiring_of(file, processor=machine.processor, path=folder / f"{file.stem}.toml")
        machines.append((name, replace(machine, file=file, wiring=wiring)))
    return system.of_machines(machines, name=system.name, network=None)


def calls_inside(file: Path) -> RowReport:
    """Score calls inside one machine: the library's choice, or the algorithm that a row names."""
    rows = []
    for record in read_records(file):
        operation, count, size_bytes = record["operation"], int(record["gpus"]), float(record["size_bytes"])
        system, how = load_system(record["system"]), record["algorithm"]
        rate = _rate(system, operation, count, size_bytes, only=how.lower(), host_s=HOST_S.get(how, 0.0))
        measured = wire_bytes(operation, size_bytes, count) / float(record["seconds"])
        call = {"operation": operation, "devices": count, "adapters": 0, "size_bytes": size_bytes, "algorithm": how}
        rows.append(_call_row({"system": record["system"], **call}, measured=measured, rate=rate))
    large, small = 1e8, 1e6
    return _call_report(
        file,
        rows,
        {
            "from 100 MB": lambda size_bytes: size_bytes >= large,
            "1 to 100 MB": lambda size_bytes: small <= size_bytes < large,
            "below 1 MB": lambda size_bytes: size_bytes < small,
        },
        note="rates and the switch's share of the links were fitted to these rows; "
        "docs/validation.md scores each device with the constants of the other",
    )


def calls_between(file: Path) -> RowReport:
    """Score calls of 1 GB between machines that use some of their adapters."""
    rows = []
    for record in read_records(file):
        operation, count = record["operation"], int(record["gpus"])
        adapters = int(record["adapters_used_per_machine"])
        system = with_adapters(load_system("dgx_a100", machines=int(record["machines"])), adapters)
        measured = GIGA * float(record["bus_bandwidth_gb_per_s"])
        rate = _rate(system, operation, count, GIGA)
        call = {"operation": operation, "devices": count, "adapters": adapters, "size_bytes": GIGA, "algorithm": ""}
        rows.append(_call_row({"system": "dgx_a100", **call}, measured=measured, rate=rate))
    return _call_report(file, rows, {}, note="no constant was fitted to these rows")


def _call_row(call: dict[str, Any], *, measured: float, rate: float) -> dict[str, Any]:
    gb_per_s = {"measured_gb_per_s": measured / GIGA, "predicted_gb_per_s": rate / GIGA}
    return call | gb_per_s | {"error_percent": 100 * (measured / rate - 1)}


def _call_report(
    file: Path, records: Sequence[Mapping[str, Any]], parts: Mapping[str, Callable[[float], bool]], *, note: str
) -> RowReport:
    rows = row_table(records, title=file.stem)
    by_system: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        by_system[row.system, row.operation].append(row.measured_gb_per_s)
    usual = [float(np.exp(np.mean(np.log(by_system[row.system, row.operation])))) for row in rows]
    predictions = {PERFMODEL: 1 / np.array(rows.column("predicted_gb_per_s")), ONE_BANDWIDTH: 1 / np.array(usual)}
    measured = 1 / np.array(rows.column("measured_gb_per_s"))
    fitted = {ONE_BANDWIDTH: len(by_system)}
    scores = [*compared("calls", predictions, measured=measured, fitted=fitted, note=note)]
    for part, holds in parts.items():
        of_part = [holds(row.size_bytes) for row in rows]
        scores += compared("calls", predictions, measured=measured, fitted=fitted, part=part, rows=of_part)
    return RowReport(table=file.stem, rows=rows, parts=tuple(scores))


SIZES: Final = NAMES["mpt"]
"""Sizes of MPT by name. [-]"""

VOCABULARY: Final = 50368
"""Tokens of MPT, with padding. [1]"""

SYSTEMS: Final = NAMES["boards"]
"""Board -> machine of eight. [-]"""

FRAMEWORKS: Final = {"PURE": "llm_foundry_1_13", "DEFAULT": "llm_foundry"}
"""Mode of mixed precision -> framework of the steps, as docs/validation.md finds. [-]"""

LATER_FRAMEWORK: Final = "pytorch_2"
"""A framework for comparison, which did not run the steps: FlashAttention 2, layer norms and losses in fp32. [-]"""

WITH_LATER: Final = f"perfmodel, with {LATER_FRAMEWORK}"
"""Name of the same jobs predicted for that framework. [-]"""


def sharded_steps(file: Path) -> RowReport:
    """Score steps of fully sharded language models."""
    records = read_records(file)
    jobs = [_sharded_job(record, file) for record in records]
    rows = row_table([_sharded_row(*case) for case in zip(records, jobs, strict=True)], title=file.stem)
    networks, measured = np.array(rows.column("network")), np.array(rows.column("measured_s"))
    shares = np.array([float(record["mfu_percent"]) for record in records])
    by_model = np.array([np.exp(np.mean(np.log(shares[networks == name]))) for name in networks])
    predictions = {
        PERFMODEL: np.array(rows.column("predicted_s")),
        ONE_MFU: by_one_mfu(measured, shares),
        MFU_BY_MODEL: measured * shares / by_model,
    }
    predicted_s, high_s = predictions[PERFMODEL], np.array(rows.column("high_s"))
    intervals = interval_row("steps", PERFMODEL, np.log(predicted_s), np.log(high_s / predicted_s), measured)
    fitted = {ONE_MFU: 1, MFU_BY_MODEL: len(SIZES)}
    note = (
        f"with {' and '.join(FRAMEWORKS.values())}, whose attention kernels are of the time; no constant was fitted to "
        "them, but that FlashAttention 1 divides long sequences among units was seen in them first; "
        f"80 % intervals hold {intervals.coverage_percent:.1f} % of the steps, {intervals.median_ratio:.2f} times from "
        f"end to end in the median, interval score of ln(time) {intervals.log_score:.3f}"
    )
    later_s = np.array([float(job.replace(framework=LATER_FRAMEWORK).predict().step_s) for job in jobs])
    scores = [*compared("steps", {**predictions, WITH_LATER: later_s}, measured=measured, fitted=fitted, note=note)]
    for name in SIZES:
        if name in networks:
            of_model = networks == name
            scores += compared("steps", predictions, measured=measured, fitted=fitted, part=name, rows=of_model)
    return RowReport(table=file.stem, rows=rows, parts=tuple(scores))


def _sharded_job(record: Mapping[str, str], file: Path) -> Job:
    name, board, mode = record["model"].lower(), record["device"], record["mixed_precision_mode"]
    for column, value, known in (
        ("model", name, SIZES), ("device", board, SYSTEMS), ("mixed_precision_mode", mode, FRAMEWORKS),
    ):  # fmt: skip
        if value not in known:
            message = f"{file}: {column} must be one of {', '.join(known)} (got {value})"
            raise TableError(message)
    length, is_checkpointed = int(record["sequence_length"]), record["activation_checkpointing"] == "True"
    graph = gpt(**SIZES[name], sequence_length=length, vocabulary=VOCABULARY, checkpointed=is_checkpointed)
    count, passes = int(record["gpus"]), int(record["accumulation_steps"])
    machines = count // MACHINE_SIZE
    return Job(
        graph,
        batch_size=int(record["global_batch_samples"]) // count,
        workers=count,
        system=SYSTEMS[board],
        machines=machines if machines > 1 else None,
        framework=FRAMEWORKS[mode],
        optimizer="adam",
        dtype="bf16",
        sync="all_reduce",
        shard_stage=3,
        accumulation_steps=passes,
        gradient_dtype="bf16" if mode == "PURE" else None,
    )


def _sharded_row(record: Mapping[str, str], job: Job) -> dict[str, Any]:
    prediction, measured = job.predict(), float(record["step_s"])
    memory, (low_s, high_s) = prediction.memory, prediction.interval_s
    return {
        "network": record["model"].lower(),
        "sequence_length": int(record["sequence_length"]),
        "device": record["device"],
        "devices": int(record["gpus"]),
        "micro_batch_size": int(record["micro_batch_samples_per_gpu"]),
        "accumulation_steps": int(record["accumulation_steps"]),
        "measured_s": measured,
        "predicted_s": float(prediction.step_s),
        "low_s": low_s,
        "high_s": high_s,
        "error_percent": 100 * (float(prediction.step_s) / measured - 1),
        "memory_share": float(memory.total_bytes / memory.capacity_bytes),
    }
