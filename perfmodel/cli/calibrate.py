"""``perfmodel calibrate`` and ``perfmodel calibration``: measure this machine, show a calibration, compare two."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli.output import (
    Answer,
    Command,
    JsonOption,
    ProgressOption,
    check_plot,
    check_writable,
    emit,
    number_as_typed,
    progress_bar,
)
from perfmodel.errors import ArgumentError

if TYPE_CHECKING:
    from perfmodel.hardware.measured_machine import MeasuredMachine

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

calibration_app = typer.Typer(help="Show and compare calibrations of machines.", no_args_is_help=False)


@contextmanager
def telling_interrupts() -> Iterator[None]:
    """If a calibration is interrupted in the block, report where its points are and exit with Ctrl-C's code."""
    from perfmodel.calibration.calibrate import CalibrationInterrupted

    try:
        yield
    except CalibrationInterrupted as interrupted:
        sys.stderr.write(f"perfmodel: {interrupted}\n")
        raise typer.Exit(INTERRUPTED) from None


def calibrate_command(
    target: Annotated[str, typer.Argument(help="cpu, or cuda:N for a GPU.")] = "cpu",
    backend: Annotated[
        str, typer.Option(metavar="torch|numpy", help="Library whose kernels are measured; numpy runs on any machine.")
    ] = "torch",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the calibration (TOML); its points are stored beside it."),
    ] = None,
    budget: Annotated[
        str, typer.Option(metavar="SECONDS", help="Time limit for measuring; a limit below 15 may be exceeded by 4 s.")
    ] = "60",
    dtype: Annotated[
        list[str] | None, typer.Option("--dtype", help="fp32, tf32, bf16, fp16 or fp64; may be given several times.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Resume an interrupted calibration from its points.")
    ] = None,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure small kernels on this machine for about a minute, and fit the numbers that predictions need."""
    from perfmodel.calibration.calibrate import calibrate
    from perfmodel.calibration.report import report_text

    with telling_interrupts():
        machine = calibrate(
            target,
            backend=backend,
            budget_s=number_as_typed(budget),
            progress=sys.stderr.isatty() if progress is None else progress,
            out=out,
            resume=resume,
            dtypes=dtype or None,
        )
    emit(lambda: report_text(machine), lambda: machine.model_dump(mode="json"), as_json=as_json, out=None)
    if out is not None:
        sys.stderr.write(f"perfmodel: wrote {out}; use it as predict --device {out}\n")


def _loaded(file: str, *, argument: str) -> MeasuredMachine:
    from perfmodel.hardware.fit_file import load_calibration
    from perfmodel.hardware.measured_machine import MeasuredMachine

    machine: Any = load_calibration(file)
    if not isinstance(machine, MeasuredMachine):
        raise ArgumentError(argument=argument, given=file, allowed="a calibration of a machine, kind = 'measured'")
    return machine


@calibration_app.command("show")
def show_command(
    file: Annotated[str, typer.Argument(help="A calibration of a machine: name or TOML file.")],
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the measured points: a roofline, and fitted against measured times."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the kernel classes of a calibration and how accurate each is."""
    from perfmodel.calibration.report import report_text

    check_plot(plot)
    machine = _loaded(file, argument="file")
    if plot is not None:
        from perfmodel.calibration.report import roofline_of
        from perfmodel.presentation.figures import save

        save(roofline_of(file, machine), plot)
    emit(lambda: report_text(machine), lambda: machine.model_dump(mode="json"), as_json=as_json, out=None)


@calibration_app.command("diff")
def diff_command(
    old: Annotated[str, typer.Argument(help="The earlier calibration.")],
    new: Annotated[str, typer.Argument(help="The later one.")],
    as_json: JsonOption = False,
) -> None:
    """List the changes between two calibrations: software, clock, constants beyond their intervals."""
    from perfmodel.calibration.report import diff_content, diff_text

    before, after = _loaded(old, argument="old"), _loaded(new, argument="new")
    emit(lambda: diff_text(before, after), lambda: diff_content(before, after), as_json=as_json, out=None)


@Command
def fit_command(
    table: Annotated[str, typer.Argument(help="A measurement table: name, or the path of a CSV.")],
    only: Annotated[str, typer.Option(metavar="SUBSET", help="gpu, cpu or cpu_oversubscribed.")] = "gpu",
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the calibration (TOML) for predict --calibration.")
    ] = None,
    progress: ProgressOption = None,
) -> Answer:
    """Fit the constants of device, library and framework files to all measured cells of a subset."""
    from perfmodel.hardware.fit_file import toml_text
    from perfmodel.validation.protocols.fit_table import fit

    check_writable(save, argument="--save")
    with progress_bar(f"fitting {table}", shown=progress) as report_progress:
        calibration = fit(table, only=only, progress=report_progress)
    if save is not None:
        calibration.save(save)
    return Answer(
        text=lambda: f"{calibration.describe()}\n\n{toml_text(calibration)}",
        content=lambda: calibration.model_dump(mode="json"),
    )
