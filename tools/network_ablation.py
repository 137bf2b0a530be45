"""What each term of today's processors is worth: the scores of a table of networks without it, nothing fitted.

Run:  python tools/network_ablation.py timm_rtx3090_amp --data FOLDER
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from ablation import AblationRow, ablation_rows
from perfmodel.errors import PerfmodelError
from perfmodel.measurements.scaling_tables import read_network_table
from perfmodel.presentation.tables import Table
from perfmodel.validation.reports.torch_networks import AS_SHIPPED, job_of, profile_of, rows_with_graphs

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.prediction.job.job import Job

Change = Callable[["Job"], dict[str, Any]]
"""Arguments of a job without a term, those that differ."""


def _of_profile(change: Callable[[FrameworkProfile], dict[str, Any]]) -> Change:
    """Change the table of a framework for GPUs."""

    def arguments(job: Job) -> dict[str, Any]:
        gpu = job.profile.gpu.model_copy(update=change(job.profile))
        return {"framework": job.profile.model_copy(update={"gpu": gpu})}

    return arguments


def _lowering(**rules: Any) -> Change:
    """Change rules of the lowering."""
    return _of_profile(lambda profile: {"lowering": profile.gpu.lowering.model_copy(update=rules)})


def _constants(change: Callable[[dict[str, Any]], dict[str, float]]) -> Change:
    """Change constants of a framework."""
    return _of_profile(lambda profile: {"constants": {**profile.gpu.constants, **change({**profile.gpu.constants})}})


def _of_convolutions(change: Callable[[Any], dict[str, Any]]) -> Change:
    """Change every tensor-core table of the library of convolutions."""

    def arguments(job: Job) -> dict[str, Any]:
        library: LibraryProfile = job.prepared.libraries["gpu_dnn"]
        tables = {name: table.model_copy(update=change(table)) for name, table in library.tensor_core.items()}
        return {"library": library.model_copy(update={"tensor_core": tables})}

    return arguments


def _one_dispatch(constants: dict[str, Any]) -> dict[str, float]:
    """Let every call cost what one from Python costs."""
    return {
        "recording_us": 0.0,
        **dict.fromkeys(("backward_dispatch_us", "update_dispatch_us"), constants["dispatch_us"]),
    }


def _as_element_wise(constants: dict[str, Any]) -> dict[str, float]:
    """Let the gradients of depth-wise convolutions stream as element-wise passes do."""
    names = [name for name in constants if name.startswith("bandwidth_fraction_depthwise")]
    return dict.fromkeys(names, constants["bandwidth_fraction_elementwise"])


def _boundless_power(job: Job) -> dict[str, Any]:
    """Let the board keep its highest clock."""
    return {"device": job.target.device.model_copy(update={"power": None})}  # type: ignore[attr-defined]


NOTHING: Final = "nothing"
"""What is left out of the first score of each part. [-]"""

TERMS: Final[dict[str, Change]] = {
    NOTHING: lambda _: {},
    "types and casts of mixed precision": _lowering(mixed_precision=None),
    "calls by part of the step": _constants(_one_dispatch),
    "a host that runs ahead": _of_profile(lambda _: {"runs_ahead": False}),
    "the clock under the power limit": _boundless_power,
    "what feeds an SM": _of_convolutions(lambda _: {"fed_flop_per_clock": 1e6}),
    "write-out of tiles of convolutions": _of_convolutions(lambda _: {"ramp_steps": 0.0}),
    "grouped convolutions on tensor cores": _of_convolutions(lambda _: {"grouped_channels": None}),
    "slow gradients of depth-wise convolutions": _constants(_as_element_wise),
    "layout of images": lambda _: {"image_layout": "channels_first"},
}
"""Terms that can be left out, and how. [-]"""


def network_ablation(file: Path) -> Table[AblationRow]:
    """Score each part of a table of networks with all terms, then without each."""
    table = read_network_table(file)
    profile = profile_of(table)
    measured: dict[str, list[float]] = defaultdict(list)
    predicted: dict[str, dict[str, list[float]]] = defaultdict(lambda: {term: [] for term in TERMS})
    for row, graph in rows_with_graphs(table):
        if isinstance(graph, str):  # it cannot be imported
            continue
        part, job = ", ".join((row.device, *row.cell)), job_of(row, graph, framework=profile)
        measured[part].append(row.measured_s)
        for term, change in TERMS.items():
            step_s = job_of(row, graph, **{"framework": profile, **change(job)}).predict().step_s
            predicted[part][term].append(float(step_s))
    rows = [
        row
        for part in sorted(measured)
        for row in ablation_rows(predicted[part], measured=measured[part], subset=part, protocol=AS_SHIPPED)
    ]
    return Table(rows, title=f"{file.stem}: without each term", row_type=AblationRow)


def main(
    table: str = typer.Argument(help="A table of networks, by its name."),
    data: Path = typer.Option(..., metavar="FOLDER", help="Folder that holds it."),  # noqa: B008
) -> None:
    """Score a table with all terms, then without each of them."""
    sys.stdout.write(f"{network_ablation(data / 'nets' / f'{table}.csv').to_text()}\n")


if __name__ == "__main__":
    try:
        typer.run(main)
    except PerfmodelError as error:
        sys.exit(f"network_ablation: {error}")
