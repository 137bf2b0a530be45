"""Layouts of large training runs with the rates that their authors print, in ``published/``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from perfmodel.measurements.reading import Line
from perfmodel.measurements.scaling_tables import DescribedTable, read_described, said_of

FOLDER: Final = Path(__file__).resolve().parent / "published"


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


CONVENTIONS: Final[Mapping[str, Callable[..., float]]] = {"megatron": megatron_flop, "palm": palm_flop}
"""Name of a count of FLOP -> the count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """One layout.

    Parameters
    ----------
    study, label : str
        Who measured it, and what, in words. [-]
    builder, builder_options : str, mapping
        The network, as ``zoo.build`` takes it. [-]
    arguments : mapping
        Arguments of ``Job``, but for the graph. [-]
    sizes : mapping of str to int
        What the authors count FLOP of. [1]
    device_count : int
        Devices. [1]
    flop : str
        Name of the convention by which the authors count FLOP, of ``CONVENTIONS``. [-]
    flop_per_s : float
        FLOP of that count over time and devices. [FLOP/s]
    """

    study: str
    label: str
    builder: str
    builder_options: Mapping[str, Any] = field(hash=False)
    arguments: Mapping[str, Any] = field(hash=False)
    sizes: Mapping[str, int] = field(hash=False)
    device_count: int
    flop: str
    flop_per_s: float

    def step_s(self, parameters: int) -> float:
        """Return the time that the printed rate implies for a network of so many parameters. [s]"""
        flop = CONVENTIONS[self.flop](parameters=parameters, **self.sizes)
        return flop / (self.flop_per_s * self.device_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLayouts(DescribedTable):
    """Rows of several studies, and the tables whose rows are scored beside them."""

    rows: tuple[PublishedRow, ...]
    also: tuple[str, ...]
    evidence: Mapping[str, Mapping[str, str]] = field(hash=False)


def load_published(key: str) -> PublishedLayouts:
    """Load a table that comes with perfmodel.

    Examples
    --------
    >>> row = load_published("published_layouts").rows[-1]
    >>> row.label, row.arguments["workers"], row.arguments["context_size"]
    ('llama3.1_405b, 131072 tokens, 16384 devices', 8, 16)
    """
    description, rows = read_described(FOLDER, key, what="table of published layouts", read=_row)
    evidence = {name: study["evidence"] for name, study in description["study"].items()}
    return PublishedLayouts(rows=rows, also=tuple(description["also"]), evidence=evidence, **said_of(key, description))


def _row(line: Line, description: Mapping[str, Any]) -> PublishedRow:
    record = line.values
    study = description["study"][record["study"]]
    count = {
        name: line.whole(name)
        for name in (
            "layers", "hidden", "heads", "key_heads", "intermediate", "sequence_length", "device_count", "tensor_size",
            "context_size", "pipeline_stages", "interleave", "global_batch", "micro_batch",
        )
    }  # fmt: skip
    workers = count["device_count"] // (count["tensor_size"] * count["context_size"] * count["pipeline_stages"])
    options = {"width": count["hidden"], **{name: count[name] for name in ("layers", "heads", "intermediate")}}
    if count["key_heads"] != count["heads"]:
        options["key_heads"] = count["key_heads"]
    return PublishedRow(
        study=record["study"],
        label=f"{record['network']}, {count['sequence_length']} tokens, {count['device_count']} devices",
        builder=study["builder"],
        builder_options={
            **study["builder_options"],
            **options,
            "sequence_length": count["sequence_length"],
            "vocabulary": study["vocabulary"],
        },
        arguments={
            **study["arguments"],
            "framework": study["framework"],
            "system": study["system"],
            "machines": count["device_count"] // study["devices_per_machine"],
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
        flop=study["flop"],
        flop_per_s=line.seconds("tflop_per_s_per_device", allowed="TFLOP/s above 0") * 1e12,
    )
