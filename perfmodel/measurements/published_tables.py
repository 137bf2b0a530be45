"""Tables that others published: layouts of language models with their FLOP/s, sharded training, whole training runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from perfmodel.measurements.reading import Line
from perfmodel.measurements.scaling_tables import DescribedTable, head_of, read_described
from perfmodel.units import TERA

LAYOUTS_FOLDER: Final = Path(__file__).resolve().parent / "published"


def megatron_flop(*, samples: int, length: int, layers: int, width: int, vocabulary: int, **_: int) -> float:
    r"""FLOP of a step of a GPT whose blocks all run again in the backward phase.

    .. math:: F = 96 B s l h^2 \left(1 + \tfrac{s}{6 h} + \tfrac{V}{16 l h}\right)

    Parameters
    ----------
    samples, length, layers, width, vocabulary : int
        B, s, l, h and V. [1]
    **_ : int
        Other sizes of a row, which this count does not need. [1]

    Returns
    -------
    float
        Products of the blocks four times, of the words' scores three times, at all pairs of positions. [FLOP]

    Examples
    --------
    GPT-3 in a step of 1,536 samples on 1,024 devices at 140 TFLOP/s, as the paper's section 5.1 takes it:

    >>> gpt3 = megatron_flop(samples=1536, length=2048, layers=96, width=12288, vocabulary=51200)
    >>> 300e9 / (1536 * 2048) * gpt3 / (1024 * 140e12) / 86400
    34.8

    References
    ----------
    .. [1] Narayanan et al., Efficient large-scale language model training on GPU clusters, SC 2021, equation 3.
    """
    return 96.0 * samples * length * layers * width**2 * (1 + length / (6 * width) + vocabulary / (16 * layers * width))


def palm_flop(*, samples: int, length: int, layers: int, width: int, parameters: int, **_: int) -> float:
    r"""FLOP of a step of a transformer as MFU counts them.

    .. math:: F = B s \left(6 N + 12 l h s\right)

    Parameters
    ----------
    samples, length, layers, width, parameters : int
        B, s, l, h and N; h is heads times their size. [1]
    **_ : int
        Other sizes of a row, which this count does not need. [1]

    Returns
    -------
    float
        Products, forward and backward, at all pairs of positions. [FLOP]

    Examples
    --------
    >>> palm_flop(samples=1, length=1, layers=0, width=1, parameters=10)
    60.0

    References
    ----------
    .. [1] Chowdhery et al., PaLM, arXiv:2204.02311, appendix B.
    """
    return float(samples * length * (6 * parameters + 12 * layers * width * length))


def token_count(*, samples: int, length: int, **_: int) -> float:
    """Tokens of a step. [1]"""
    return float(samples * length)


CONVENTIONS: Final[Mapping[str, Callable[..., float]]] = {
    "megatron": megatron_flop,
    "palm": palm_flop,
    "tokens": token_count,
}
"""Unit of a published rate -> its amount in a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """One layout: the network, arguments of ``Job``, and the published rate in its authors' unit."""

    study: str
    label: str
    builder: str
    builder_options: Mapping[str, Any] = field(hash=False)
    arguments: Mapping[str, Any] = field(hash=False)
    sizes: Mapping[str, int] = field(hash=False)
    device_count: int
    counted: str
    counts_per_s: float

    def step_s(self, parameters: int) -> float:
        """Return the time that the printed rate implies for a network of so many parameters. [s]"""
        count = CONVENTIONS[self.counted](parameters=parameters, **self.sizes)
        return count / (self.counts_per_s * self.device_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLayouts(DescribedTable):
    """Rows of several studies, and the tables whose rows are scored with them."""

    rows: tuple[PublishedRow, ...]
    also: tuple[str, ...]
    evidence: Mapping[str, Mapping[str, str]] = field(hash=False)


def load_published(key: str) -> PublishedLayouts:
    """Load a table that comes with perfmodel."""
    description, rows = read_described(LAYOUTS_FOLDER, key, what="table of published layouts", read=_layout)
    evidence = {name: study["evidence"] for name, study in description["study"].items()}
    return PublishedLayouts(rows=rows, also=tuple(description["also"]), evidence=evidence, **head_of(key, description))


def _layout(line: Line, description: Mapping[str, Any]) -> PublishedRow:
    record = line.values
    study = description["study"][record["study"]]
    count = {
        name: line.whole(name)
        for name in (
            "layers", "hidden", "heads", "key_heads", "intermediate", "sequence_length", "device_count", "tensor_size",
            "context_size", "pipeline_stages", "interleave", "global_batch", "micro_batch",
        )
    }  # fmt: skip
    study = study | {name: record[name] for name in ("system", "framework") if record.get(name)}
    rate = "tokens_per_s_per_device" if study["counted"] == "tokens" else "tflop_per_s_per_device"
    workers = count["device_count"] // (count["tensor_size"] * count["context_size"] * count["pipeline_stages"])
    options = {"width": count["hidden"], **{name: count[name] for name in ("layers", "heads", "intermediate")}}
    if "size" in study["builder_options"]:  # else the size would set its own number
        options["key_heads"] = count["key_heads"]
    return PublishedRow(
        study=record["study"],
        label=f"{record['network']}, {count['sequence_length']} tokens, {count['device_count']} devices"
        + (f" of {record['system']}, {record['dtype']}" if "dtype" in record else ""),
        builder=study["builder"],
        builder_options={
            **study["builder_options"],
            **options,
            "sequence_length": count["sequence_length"],
            "vocabulary": study["vocabulary"],
        },
        arguments={
            **study["arguments"],
            **({"dtype": record["dtype"], "shard_stage": line.whole("shard_stage")} if "dtype" in record else {}),
            **({"sequence_parallel": False} if count["tensor_size"] == 1 else {}),
            "framework": study["framework"],
            "system": study["system"],
            "machines": count["device_count"] // description["devices_per_machine"][study["system"]] or None,
            "global_batch_size": count["global_batch"],
            "workers": workers,
            "sync": "all_reduce",
            "overlap": record["overlap"] == "yes",
            "parallelism": "pipeline",
            "micro_batches": count["global_batch"] // (workers * count["micro_batch"]),
            "stages": count["pipeline_stages"],
            "interleave": count["interleave"],
            "schedule": "interleaved" if count["interleave"] > 1 else "1f1b",
            "tensor_size": count["tensor_size"],
            "context_size": count["context_size"],
            **({"context_method": study["context_method"]} if count["context_size"] > 1 else {}),
        },
        sizes={
            "samples": count["global_batch"],
            "length": count["sequence_length"],
            "layers": count["layers"],
            "width": count["hidden"],
            "vocabulary": study["vocabulary"],
        },
        device_count=count["device_count"],
        counted=study["counted"],
        counts_per_s=line.seconds(rate, allowed="a rate above 0") * (1.0 if study["counted"] == "tokens" else TERA),
    )


SHARDED_FOLDER: Final = Path(__file__).resolve().parent / "sharded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedRow:
    """One measured run; ``not_scored`` names a need of it that no argument states."""

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
class ShardedTable(DescribedTable):
    """Rows of one source."""

    rows: tuple[ShardedRow, ...]
    evidence: Mapping[str, str] = field(hash=False)


def load_sharded(key: str) -> ShardedTable:
    """Load a table that comes with perfmodel."""
    description, rows = read_described(SHARDED_FOLDER, key, what="table of sharded training", read=_sharded)
    return ShardedTable(rows=rows, evidence=description["run"]["evidence"], **head_of(key, description))


def _sharded(line: Line, description: Mapping[str, Any]) -> ShardedRow:
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


TOTALS_FOLDER: Final = Path(__file__).resolve().parent / "totals"

_SIZES: Final = {
    "layers": "layers", "hidden": "width", "heads": "heads", "intermediate": "intermediate",
    "vocabulary": "vocabulary", "sequence_length": "sequence_length",
}  # fmt: skip
"""Column -> option of the zoo's builder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """One training run: the network, arguments of ``search``, and the hours that its source states."""

    run: str
    builder: str
    builder_options: Mapping[str, Any] = field(hash=False)
    arguments: Mapping[str, Any] = field(hash=False)
    device_hours: float
    explained_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRuns(DescribedTable):
    """Runs of one table."""

    rows: tuple[PublishedRun, ...]
    evidence: Mapping[str, str] = field(hash=False)
    explanations: Mapping[str, str] = field(hash=False)


def load_totals(key: str) -> PublishedRuns:
    """Load a table that comes with perfmodel."""
    description, rows = read_described(TOTALS_FOLDER, key, what="table of training totals", read=_run)
    evidence, explanations = description["run"]["evidence"], description["explanations"]
    return PublishedRuns(rows=rows, evidence=evidence, explanations=explanations, **head_of(key, description))


def _run(line: Line, description: Mapping[str, Any]) -> PublishedRun:
    record = line.values
    options = {option: line.whole(column) for column, option in _SIZES.items()}
    if record["network"] == "llama":
        options |= {"key_heads": line.whole("key_heads"), "head_size": line.whole("head_size")}
    causes = record["explained_by"].split("; ")
    if not set(causes) <= set(description["explanations"]):
        line.refuse("explained_by", f"of {', '.join(description['explanations'])}, separated by '; '")
    return PublishedRun(
        run=record["run"],
        builder=record["network"],
        builder_options=options,
        arguments={
            **{name: description["run"][name] for name in ("optimizer", "framework")},
            "system": record["system"],
            "devices": line.whole("devices"),
            "global_batch_size": line.whole("global_batch"),
            "tokens": line.seconds("tokens", allowed="tokens above 0"),
            "dtype": record["dtype"],
        },
        device_hours=line.seconds("device_hours", allowed="hours above 0"),
        explained_by=record["explained_by"],
    )
