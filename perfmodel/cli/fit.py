"""``perfmodel fit``: the constants of the spec files, fitted to a measured table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.output import JsonOption, OutOption, check_writable, emit, progress_bar


def fit_command(
    table: Annotated[str, typer.Argument(help="A measurement table: name, or the path of a CSV.")],
    only: Annotated[str, typer.Option(metavar="SUBSET", help="gpu, cpu or cpu_oversubscribed.")] = "gpu",
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the calibration (TOML) for predict --calibration.")
    ] = None,
    progress: Annotated[
        bool | None,
        typer.Option("--progress/--no-progress", help="Progress bar; on a terminal unless given."),
    ] = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Fit the constants of device, library and framework files to all measured cells of a subset."""
    from perfmodel.hardware.calibration import toml_text
    from perfmodel.validation.fit_table import fit

    check_writable(out, argument="--out")
    check_writable(save, argument="--save")
    with progress_bar(f"fitting {table}", shown=progress) as told:
        calibration = fit(table, only=only, progress=told)
    if save is not None:
        calibration.save(save)
    emit(
        lambda: f"{calibration.describe()}\n\n{toml_text(calibration)}",
        lambda: calibration.model_dump(mode="json"),
        as_json=as_json,
        out=out,
    )
