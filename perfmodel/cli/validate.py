"""``perfmodel validate``: a measured table beside its predictions."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.output import JsonOption, OutOption, check_plot, check_writable, emit, progress_bar

CHECK_FAILED = 1
"""Exit code where the error is above what ``--max-mape`` allows."""


def _percent(given: float | None) -> float | None:
    """Refuse a bound that no error could be held against."""
    if given is not None and not 0 <= given < math.inf:
        message = f"{given:g} is not allowed: a finite percentage of at least 0"
        raise typer.BadParameter(message)
    return given


def validate_command(
    table: Annotated[str, typer.Argument(help="A measurement table: name, or the path of a CSV.")],
    protocol: Annotated[
        str, typer.Option(metavar="NAME", help="What is fitted on what before scoring.")
    ] = "nothing_fitted",
    only: Annotated[
        str | None, typer.Option(metavar="SUBSET", help="gpu, cpu or cpu_oversubscribed; all unless given.")
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Print every cell too.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw predicted against measured (png, pdf, svg).")
    ] = None,
    max_mape: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", callback=_percent, help="Exit with code 1 if the MAPE is above this."),
    ] = None,
    progress: Annotated[
        bool | None,
        typer.Option("--progress/--no-progress", help="Progress bar; on a terminal unless given."),
    ] = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Predict every measured cell of a table and score the predictions beside naive baselines."""
    from perfmodel.validation.text import cell_lines
    from perfmodel.validation.validate import validate

    check_writable(out, argument="--out")
    check_plot(plot)
    with progress_bar(f"predicting {table}", shown=progress) as told:
        report = validate(table, protocol=protocol, only=only, progress=told)
    if plot is not None:
        report.plot(plot)
    emit(
        lambda: f"{report}\n\n{cell_lines(report.rows, title='every cell').to_text()}" if rows else str(report),
        report.to_dict,
        as_json=as_json,
        out=out,
    )
    if max_mape is not None and not report.mape <= max_mape:
        sys.stderr.write(f"perfmodel: check failed: MAPE {report.mape:.1f} % is above {max_mape:g} %\n")
        raise typer.Exit(CHECK_FAILED)
