"""Tables of fully sharded training: tokens per second and memory of each device, in ``sharded/``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from perfmodel.measurements.reading import Line
from perfmodel.measurements.scaling_tables import read_described

FOLDER: Final = Path(__file__).resolve().parent / "sharded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedRow:
    """One measured run.

    Parameters
    ----------
    label, page : str
        The run in words, and the page that prints it. [-]
    network_options : mapping
        Options of ``zoo.llama``. [-]
    arguments : mapping
        Arguments of ``Job``, but for the graph and the data type. [-]
    dtype, stored_dtype : str
        Type of products, and of tensors in memory. [-]
    step_s : float
        Duration of a step. [s]
    memory_gib : float
        Peak that the allocator reserved; NaN if the page does not say. [GiB]
    not_scored : str
        What the run needs that no argument states; empty for none. [-]
    """

    label: str
    page: str
    network_options: Mapping[str, Any] = field(hash=False)
    arguments: Mapping[str, Any] = field(hash=False)
    dtype: str
    stored_dtype: str
    step_s: float
    memory_gib: float
    not_scored: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedTable:
    """Rows of one source."""

    key: str
    title: str
    rows: tuple[ShardedRow, ...]
    source: Mapping[str, str] = field(hash=False)
    evidence: Mapping[str, str] = field(hash=False)


def load_sharded(key: str) -> ShardedTable:
    """Load a table that comes with perfmodel.

    Examples
    --------
    >>> row = load_sharded("torchtitan2024").rows[0]
    >>> row.label, round(row.step_s, 2), row.memory_gib
    ('llama3_8b, 2 x 8192 tokens, 8 devices, eager, bf16, selective_op', 2.84, 82.4)
    """
    description, rows = read_described(FOLDER, key, what="table of sharded training", read=_row)
    return ShardedTable(
        key=key,
        title=description["title"],
        rows=rows,
        source=description["source"],
        evidence=description["run"]["evidence"],
    )


def _row(line: Line, description: Mapping[str, Any]) -> ShardedRow:
    record, run = line.values, description["run"]
    devices, tensor_size, stages, context_size, batch, length = (
        line.whole(name)
        for name in ("devices", "tensor_size", "stages", "context_size", "batch_per_group", "sequence_length")
    )
    groups = devices // (tensor_size * stages * context_size)
    spread: dict[str, Any] = {}
    if tensor_size > 1:
        spread |= {"parallelism": "tensor", "tensor_size": tensor_size, "sequence_parallel": True}
    if stages > 1:
        spread |= {"parallelism": "pipeline", "stages": stages, "micro_batches": batch, "schedule": record["schedule"]}
    if context_size > 1:
        spread["context_size"] = context_size
    tokens_per_s = line.seconds("tokens_per_s_per_device", allowed="tokens per second above 0")
    memory_gib = line.seconds("memory_gib", allowed="GiB above 0") if record["memory_gib"] else math.nan
    machines = devices // run["devices_per_machine"]
    return ShardedRow(
        label=f"{record['network']}, {batch} x {length} tokens, {devices} devices, "
        f"{record['software']}, {record['dtype']}, {record['checkpoints']}",
        page=record["page"],
        network_options=run["networks"][record["network"]]
        | {"sequence_length": length, "checkpointed": run["checkpoints"][record["checkpoints"]]},
        arguments={
            "batch_size": batch,
            "workers": groups,
            "system": run["systems"][record["system"]],
            "machines": machines if machines > 1 else None,
            "framework": run["software"][record["software"]],
            **{name: run[name] for name in ("optimizer", "sync", "shard_stage", "gradient_dtype")},
            **spread,
        },
        dtype=record["dtype"],
        stored_dtype=run["stored_dtype"][record["dtype"]],
        step_s=batch * groups * length / (devices * tokens_per_s),
        memory_gib=memory_gib,
        not_scored=record["not_scored"],
    )
