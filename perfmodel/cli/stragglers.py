"""``perfmodel stragglers``: how much longer a step takes that waits for the slowest of its workers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.cli.arguments import takes_arguments
from perfmodel.cli.output import JsonOption, OutOption, check_plot, check_writable, emit, number_as_typed


@takes_arguments(only=("backup_workers",))
def stragglers_command(
    arguments: dict[str, Any],
    workers: Annotated[
        str, typer.Option(metavar="N,N...", help="Numbers of workers; a plot goes from 1 to the most.")
    ] = "1,2,5,10,20,40,100",
    cv: Annotated[
        str, typer.Option(metavar="X,X...", help="Coefficients of variation of a worker's time.")
    ] = "0.05,0.1,0.2",
    distribution: Annotated[
        str, typer.Option(metavar="KIND", help="normal, lognormal or shifted_exponential.")
    ] = "normal",
    mark: Annotated[str | None, typer.Option(metavar="N", help="Number of workers to mark in the plot.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it (png, pdf, svg).")] = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Say how much longer a synchronous step takes because it waits for the slowest of ever more workers."""
    from perfmodel.errors import ArgumentError
    from perfmodel.planning.straggler_slowdown import straggler_slowdown
    from perfmodel.prediction.arguments.checks import whole_number

    check_writable(out, argument="--out")
    check_plot(plot)
    if mark is not None and plot is None:
        raise ArgumentError("--mark", mark, "none without --plot")
    counts = [number_as_typed(count) for count in workers.split(",")]
    variations = [number_as_typed(each) for each in cv.split(",")]
    asked: dict[str, Any] = {"cv": variations, "distribution": distribution, **arguments}
    found = straggler_slowdown(workers=counts, **asked)
    if plot is not None:
        marked = None if mark is None else whole_number("mark", number_as_typed(mark))
        drawn = straggler_slowdown(workers=range(1 + sum(arguments.values()), max(counts) + 1), **asked)
        drawn.plot(plot, marked_workers=marked)
    emit(lambda: str(found), found.to_dict, as_json=as_json, out=out)
