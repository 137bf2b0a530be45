"""Device-hours of whole training runs that others published, in ``totals/``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from perfmodel.measurements.reading import Line
from perfmodel.measurements.scaling_tables import DescribedTable, read_described, said_of

FOLDER: Final = Path(__file__).resolve().parent / "totals"

_SIZES: Final = {
    "layers": "layers", "hidden": "width", "heads": "heads", "intermediate": "intermediate",
    "vocabulary": "vocabulary", "sequence_length": "sequence_length",
}  # fmt: skip
"""Column -> option of the zoo's builder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """One training run.

    Parameters
    ----------
    run : str
        Its name. [-]
    builder, builder_options : str, mapping
        The network, as ``zoo.build`` takes it. [-]
    arguments : mapping
        Arguments of ``search``, but for the graph. [-]
    device_hours : float
        What the source says that it took. [h]
    explained_by : str
        What is in it that is not in the bound. [-]
    """

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
    """Load a table that comes with perfmodel.

    Examples
    --------
    >>> run = load_totals("training_totals").rows[0]
    >>> run.run, run.device_hours, run.arguments["tokens"]
    ('llama1_7b', 82432.0, 1000000000000.0)
    """
    description, rows = read_described(FOLDER, key, what="table of training totals", read=_run)
    evidence, explanations = description["run"]["evidence"], description["explanations"]
    return PublishedRuns(rows=rows, evidence=evidence, explanations=explanations, **said_of(key, description))


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
