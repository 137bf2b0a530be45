"""Measured steps of the networks of torch packages, compared with predictions with shipped constants."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import compress, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.cost.roofline import roofline_time
from perfmodel.errors import MissingPackageError, PerfmodelError, package_for
from perfmodel.files import is_file
from perfmodel.framework.profile import load_framework
from perfmodel.graph import LayerGraph
from perfmodel.importers.torch.module import import_torch
from perfmodel.measurements.kernel_tables import content_hash
from perfmodel.measurements.scaling_tables import NetworkRow, NetworkTable, read_network_table
from perfmodel.prediction.job.job import Job
from perfmodel.presentation.tables import row_table
from perfmodel.private_folders import cached_file
from perfmodel.validation.scores.interval_coverage import interval_row
from perfmodel.validation.scores.metrics import factor_of_least_mape
from perfmodel.validation.scores.table_report import EVERY_ROW, PERFMODEL, PartScore, RowReport, compared

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.graph import LayerGraph
    from perfmodel.presentation.tables import Table
    from perfmodel.validation.protocols.cells import Progress

AS_SHIPPED: Final = "as_shipped"
"""Protocol: constants as in their files, some of which were chosen while looking at such tables. [-]"""

ONE_EFFICIENCY: Final = "roofline x one efficiency per cell, told the answers"
"""Naive rule: the larger of FLOP over peak and bytes over bandwidth, times the factor with the least MAPE. [-]"""

MISSED: Final = 2.0
"""Ratio of predicted to measured time at which a row without a prediction counts: an error of 100 %. [1]"""

MOST_NAMED: Final = 20
"""Rows without a prediction that are named. [1]"""


def network_report(file: Path, *, progress: Progress | None = None) -> RowReport:
    """Score a table of steps of networks that a torch package defines; nothing is fitted here.

    Notes
    -----
    A row that cannot be imported or predicted counts as predicted at twice its time, which is an error of 100 %.
    """
    table = read_network_table(file)
    profile = profile_of(table)
    scores: dict[int, dict[str, Any]] = {}
    for row, graph in rows_with_graphs(table):
        scores[row.row_number] = _score(row, graph, profile)
        if progress is not None:
            progress(len(scores), len(table.rows))
    rows = row_table([scores[row.row_number] for row in table.rows], title=table.title)
    missed = [f"{row.network} ({row.cell}): {row.not_predicted}" for row in rows if row.not_predicted]
    built = f"networks as {versions(table.zoo)} builds them; {len(missed)} of {len(rows)} rows without a prediction"
    return RowReport(
        table=table.key,
        rows=rows,
        parts=_parts([(row.device, *row.cell) for row in table.rows], rows, about=built),
        caveats=(*table.caveats, *missed[:MOST_NAMED]),
    )


def profile_of(table: NetworkTable) -> FrameworkProfile:
    """Return the framework of a table; images that stay on the device are not fed."""
    profile = load_framework(table.framework)
    if table.is_fed:
        return profile
    return profile.model_copy(update={"feed": profile.feed.model_copy(update={"mode": "resident"})})


def rows_with_graphs(table: NetworkTable) -> Iterator[tuple[NetworkRow, LayerGraph | str]]:
    """Yield each row with its network, or with the reason why it cannot be imported; each network is imported once."""
    for _, alike in groupby(sorted(table.rows, key=_graph_key), key=_graph_key):
        rows = list(alike)
        graph = _graph_of(table, rows[0])
        yield from ((row, graph) for row in rows)


def job_of(row: NetworkRow, graph: LayerGraph, **how: Any) -> Job:
    """Return the job that a row timed; ``how`` are further arguments, such as the table's framework."""
    return Job(graph, **{"batch_size": row.batch_size, "device": row.device, **row.arguments, **how})


def _graph_key(row: NetworkRow) -> tuple[str, int, bool]:
    return row.network, row.image_size, row.is_training


def _graph_of(table: NetworkTable, row: NetworkRow) -> LayerGraph | str:
    """Return the graph of a row, or the reason why it cannot be imported."""
    fused = not row.is_training or table.attention_in_training == "fused"
    try:
        return graph_of(
            table.zoo, row.network, image_size=row.image_size, training=row.is_training, fused_attention=fused
        )
    except MissingPackageError:
        raise
    except Exception as error:  # whatever the package raises
        return f"{type(error).__name__}: {error}"


def _score(row: NetworkRow, graph: LayerGraph | str, profile: FrameworkProfile) -> dict[str, Any]:
    """Predict a row."""
    predicted_s = low_s = high_s = roofline_s = MISSED * row.measured_s
    reason = graph if isinstance(graph, str) else ""
    if not isinstance(graph, str):
        try:
            job = job_of(row, graph, framework=profile)
            prediction = job.predict()
            predicted_s, (low_s, high_s) = float(prediction.step_s), map(float, prediction.interval_s)
            roofline_s = _roofline_s(job)
        except PerfmodelError as error:
            reason = str(error)
    return {
        "network": row.network,
        "image_size": row.image_size,
        "device": row.device,
        "cell": ", ".join(row.cell),
        "batch_size": row.batch_size,
        "measured_s": row.measured_s,
        "predicted_s": predicted_s,
        "error_percent": 100 * (predicted_s / row.measured_s - 1),
        "low_s": low_s,
        "high_s": high_s,
        "roofline_s": roofline_s,
        "not_predicted": " ".join(reason.split()),
    }


def _roofline_s(job: Job) -> float:
    """Return the whole step at the peak or at the bandwidth, whichever takes longer. [s]"""
    subject, prepared = job.subject, job.prepared
    work = subject.graph.work(
        batch_size=job.batch_size, phase=subject.phase, optimizer=subject.optimizer, dtype=prepared.dtype
    )
    return float(
        roofline_time(
            compute_s=float(work.flop_count) / prepared.target.peak_flop_per_s(prepared.dtype),
            memory_s=float(work.moved_bytes) / prepared.target.bandwidth_bytes_per_s,
        )
    )


def _parts(keys: Sequence[tuple[str, ...]], rows: Table[Any], *, about: str) -> tuple[PartScore, ...]:
    """Score all rows, each cell, and all cells of a device that share the first words of their names."""
    every_row = (True,) * len(rows)
    parts = {every_row: EVERY_ROW}
    for length in range(2, len(keys[0]) + 1):
        for start in sorted({key[:length] for key in keys}):
            parts[tuple(key[:length] == start for key in keys)] = ", ".join(start[1:])
    parts[every_row] = EVERY_ROW
    measured, predicted, high = (np.array(rows.column(name)) for name in ("measured_s", "predicted_s", "high_s"))
    log_half_width = np.log(high / predicted)
    predictions: dict[str, Any] = {PERFMODEL: predicted, ONE_EFFICIENCY: _one_efficiency(rows, keys)}
    scores: list[PartScore] = []
    for of_part, part in parts.items():
        kept, within = list(compress(rows, of_part)), np.array(of_part)
        devices = ", ".join(dict.fromkeys(row.device for row in kept))
        worst = max(kept, key=lambda row: abs(row.error_percent))
        note = f"{devices}, {part}: worst is {worst.network} ({worst.cell}), {worst.error_percent:+.0f} %"
        model, *others = compared(
            devices,
            predictions,
            measured=measured,
            fitted={ONE_EFFICIENCY: len(set(compress(keys, of_part)))},
            part=part,
            note=f"{about}; {note}" if part == EVERY_ROW else note,
            protocol=AS_SHIPPED,
            rows=of_part,
        )
        intervals = interval_row(
            devices, PERFMODEL, np.log(predicted)[within], log_half_width[within], measured[within]
        )
        scores += [replace(model, intervals=intervals), *others]
    return tuple(scores)


def _one_efficiency(rows: Table[Any], keys: Sequence[tuple[str, ...]]) -> list[float]:
    """Return the roofline of each row, times the factor that fits the rows of its cell best. [s]"""
    factors = {}
    for key in set(keys):
        of_cell = [row for row, other in zip(rows, keys, strict=True) if other == key and not row.not_predicted]
        if of_cell:
            factors[key] = factor_of_least_mape(
                [row.roofline_s for row in of_cell], measured=[row.measured_s for row in of_cell]
            )
    return [row.roofline_s * (1.0 if row.not_predicted else factors[key]) for row, key in zip(rows, keys, strict=True)]


EXTRA: Final = "zoo-torch"
"""Extra of perfmodel that brings the packages. [-]"""

EXAMPLE_BATCH: Final = 8
"""Images in the example batch with which a network is imported. [1]"""

_FOLLOWED: Final = ("importers", "layers", "graph")
"""Parts of the package whose code decides what an imported graph is."""


def package(name: str) -> Any:
    """Import a package that defines networks, or torch; raise MissingPackageError if it is not installed."""
    return package_for(name, f"a table of networks of {name}", EXTRA)


def versions(zoo: str) -> str:
    """Return the versions of a package of networks and of torch."""
    return ", ".join(f"{name} {package(name).__version__}" for name in (zoo, "torch"))


def graph_of(zoo: str, network: str, *, image_size: int, training: bool, fused_attention: bool) -> LayerGraph:
    """Import a network of a package, or read it if the same code and package imported it before."""
    what = (zoo, versions(zoo), network, image_size, training, fused_attention, EXAMPLE_BATCH, _code())
    path = cached_file(f"{hashlib.sha256(repr(what).encode()).hexdigest()[:32]}.json", of="graphs")
    if path is not None and is_file(path):
        with suppress(PerfmodelError):
            return LayerGraph.load(path)
    graph = _imported(zoo, network, image_size=image_size, training=training, fused_attention=fused_attention)
    if path is not None:
        with suppress(PerfmodelError):  # e.g. a full disk
            graph.save(path)
    return graph


@cache
def _code() -> str:
    root = Path(__file__).resolve().parents[2]
    return content_hash(*sorted(path for part in _FOLLOWED for path in (root / part).rglob("*.py")), Path(__file__))


def _imported(zoo: str, network: str, *, image_size: int, training: bool, fused_attention: bool) -> LayerGraph:
    torch = package("torch")
    with warnings.catch_warnings(), _attention(zoo, fused=fused_attention), torch.device("meta"):
        warnings.simplefilter("ignore")
        module = _BUILDERS[zoo](package(zoo), network, image_size)
        images = torch.empty(EXAMPLE_BATCH, 3, image_size, image_size)
        return import_torch(module, images, training=training, name=network, progress=False).built.graph


def _of_timm(timm: Any, network: str, image_size: int) -> Any:
    """Build a network, for another image size if it has a fixed one."""
    module = timm.create_model(network)
    if module.default_cfg["input_size"][-1] != image_size:
        with suppress(TypeError):  # a network of convolutions takes images of any size
            return timm.create_model(network, img_size=image_size)
    return module


def _of_torchvision(torchvision: Any, network: str, image_size: int) -> Any:
    del image_size
    options = {"aux_logits": False} if network in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(network, weights=None, **options)


_BUILDERS: Final[Mapping[str, Callable[[Any, str, int], Any]]] = {"timm": _of_timm, "torchvision": _of_torchvision}
"""Package -> how it builds a network by name for images of a size."""


@contextmanager
def _attention(zoo: str, *, fused: bool) -> Iterator[None]:
    """Let timm use torch's fused attention or write attention out, as long as the block runs."""
    if zoo != "timm":
        yield
        return
    layers = import_module("timm.layers")
    before = {"enable": layers.use_fused_attn(), "experimental": layers.use_fused_attn(experimental=True)}
    layers.set_fused_attn(fused)
    try:
        yield
    finally:
        layers.set_fused_attn(**before)
