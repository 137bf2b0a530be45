"""``perfmodel validate live``: whole networks on this machine beside what its calibration says of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from perfmodel.cli.calibrate import telling_interrupts
from perfmodel.cli.output import JsonOption, OutOption, check_plot, check_writable, emit, progress_bar
from perfmodel.cli.validate import CHECK_FAILED, ProgressOption, percent_bound
from perfmodel.errors import ArgumentError

COMMAND = "validate live"
"""What is typed."""

NetworkOption: TypeAlias = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="A network to check; may be given several times.")
]
TypeOption: TypeAlias = Annotated[
    list[str] | None, typer.Option(metavar="TYPE", help="fp32, tf32 or bf16; may be given several times.")
]
MaxErrorOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="PERCENT",
        callback=percent_bound,
        help="Exit with code 1 if a mean error is above this, or nothing is scored.",
    ),
]


def validate_live_command(
    device: Annotated[str, typer.Option(metavar="DEVICE", help="cpu, or cuda:0 for the first GPU.")] = "cpu",
    calibration: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="What perfmodel calibrate wrote on this machine; made now if left out."),
    ] = None,
    network: NetworkOption = None,
    dtype: TypeOption = None,
    datasheet: Annotated[
        str | None, typer.Option(metavar="NAME", help="Device file of the vendor's facts, for a naive roofline.")
    ] = None,
    repeats: Annotated[
        int, typer.Option(metavar="COUNT", help="Rounds over all networks; one alone is shown and not scored.")
    ] = 3,
    steps: Annotated[int, typer.Option(metavar="COUNT", help="Fewest timed steps of a round.")] = 5,
    seconds: Annotated[float, typer.Option(metavar="S", help="Time more steps until these have passed.")] = 0.5,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the times as a measurement table (csv, and toml beside).")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw predicted against measured (png, pdf, svg).")
    ] = None,
    max_error: MaxErrorOption = None,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Measure whole torch networks on this machine and predict them from its calibration, which never saw them."""
    from perfmodel.validation.live import validate_live
    from perfmodel.validation.live_report import check_table_path, save_live_table

    check_writable(out, argument="--out")
    check_plot(plot)
    check_writable(save, argument="--save")
    if save is not None:
        check_table_path(save)
        if repeats == 1:
            raise ArgumentError("--repeats", repeats, "at least 2 with --save, as one repeat alone is not scored")
    with telling_interrupts(), progress_bar(f"live check on {device}", shown=progress) as told:
        report = validate_live(
            device,
            calibration=calibration,
            networks=network,
            dtypes=dtype,
            datasheet=datasheet,
            repeats=repeats,
            steps=steps,
            seconds=seconds,
            progress=told,
        )
    emit(report.to_text, report.to_dict, as_json=as_json, out=out)  # first, as what follows may fail
    if plot is not None:
        report.plot(plot)
    if save is not None:
        save_live_table(report, save)
    if max_error is not None and not report.mean_error_percent <= max_error:
        sys.stderr.write(
            f"perfmodel: check failed: mean error {report.mean_error_percent:.1f} % is not within {max_error:g} %\n"
        )
        raise typer.Exit(CHECK_FAILED)
