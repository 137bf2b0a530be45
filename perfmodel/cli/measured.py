"""``calibrate``, ``calibration``, ``fit``, ``validate`` and ``validate live``: this machine and tables measured."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from typer.core import TyperCommand

from perfmodel.cli.output import (
    Answer,
    Command,
    ProgressOption,
    check_plot,
    check_writable,
    number_as_typed,
    takes_arguments,
)
from perfmodel.errors import ArgumentError
from perfmodel.exit_codes import INTERRUPTED
from perfmodel.presentation.progress import progress_bar

if TYPE_CHECKING:
    from perfmodel.hardware.measured_machine import MeasuredMachine
    from perfmodel.presentation.tables import Table


calibration_app = typer.Typer(help="Show and compare calibrations of machines.", no_args_is_help=False)


@contextmanager
def telling_interrupts() -> Iterator[None]:
    """If a calibration is interrupted in the block, report where its points are and exit with Ctrl-C's code."""
    from perfmodel.calibration.calibrate import CalibrationInterrupted

    try:
        yield
    except CalibrationInterrupted as interrupted:
        sys.stderr.write(f"perfmodel: {interrupted}\n")
        raise SystemExit(INTERRUPTED) from None


@Command
def calibrate_command(
    target: str = "cpu",
    *,
    backend: str = "torch",
    out: Path | None = None,
    budget: str = "60",
    dtype: list[str] | None = None,
    resume: Path | None = None,
    progress: ProgressOption = None,
) -> Answer:
    """Measure small kernels on this machine for about a minute, and fit the numbers that predictions need.

    Parameters
    ----------
    target : str
        cpu, or cuda:N for a GPU. [-]
    backend : torch|numpy
        Library whose kernels are measured; numpy runs on any machine. [-]
    out : FILE
        Write the calibration (TOML); its points are stored beside it. [-]
    budget : SECONDS
        Time limit for measuring; a limit below 15 may be exceeded by 4 s. [s]
    dtype : str
        fp32, tf32, bf16, fp16 or fp64; may be given several times. [-]
    resume : FILE
        Resume an interrupted calibration from its points. [-]
    """
    from perfmodel.calibration.calibrate import calibrate
    from perfmodel.calibration.calibration_tables import report_text

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

    def after() -> None:
        if out is not None:
            sys.stderr.write(f"perfmodel: wrote {out}; use it as predict --device {out}\n")

    return Answer(text=lambda: report_text(machine), content=lambda: machine.model_dump(mode="json"), after=after)


def _loaded(file: str, *, argument: str) -> MeasuredMachine:
    from perfmodel.hardware.fit_file import load_calibration
    from perfmodel.hardware.measured_machine import MeasuredMachine

    machine: Any = load_calibration(file)
    if not isinstance(machine, MeasuredMachine):
        raise ArgumentError(argument=argument, given=file, allowed="a calibration of a machine, kind = 'measured'")
    return machine


@calibration_app.command("show")
@takes_arguments(plot="Draw the measured points: a roofline, and fitted against measured times.")
def show_command(file: str) -> Answer:
    """Print the kernel classes of a calibration and how accurate each is.

    Parameters
    ----------
    file : str
        A calibration of a machine: name or TOML file. [-]
    """
    from perfmodel.calibration.calibration_tables import report_text, roofline_of
    from perfmodel.presentation.figures import save

    machine = _loaded(file, argument="file")
    return Answer(
        text=lambda: report_text(machine),
        content=lambda: machine.model_dump(mode="json"),
        plot=lambda path: save(roofline_of(file, machine), path),
    )


@calibration_app.command("diff")
@Command
def diff_command(old: str, new: str) -> Answer:
    """List the changes between two calibrations: software, clock, constants beyond their intervals.

    Parameters
    ----------
    old : str
        The earlier calibration. [-]
    new : str
        The later one. [-]
    """
    from perfmodel.calibration.calibration_tables import diff_content, diff_text

    before, after = _loaded(old, argument="old"), _loaded(new, argument="new")
    return Answer(text=lambda: diff_text(before, after), content=lambda: diff_content(before, after))


@Command
def fit_command(table: str, *, only: str = "gpu", save: Path | None = None, progress: ProgressOption = None) -> Answer:
    """Fit the constants of device, library and framework files to all measured cells of a subset.

    Parameters
    ----------
    table : str
        A measurement table: name, or the path of a CSV. [-]
    only : SUBSET
        gpu, cpu or cpu_oversubscribed. [-]
    save : FILE
        Write the calibration (TOML) for predict --calibration. [-]
    """
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


CHECK_FAILED = 1
"""Exit code if the error exceeds ``--max-mape``."""

UNASKED = "nothing_fitted"
"""Default protocol."""

EVERY_PROTOCOL = "all"
"""Value of ``--protocol`` that prints one line for each protocol."""

BESIDE_OWN = frozenset({"table", "data", "as_json", "out", "max_mape", "progress"})
"""Parameters allowed with a table that has its own kind of score."""

FITTED_SUBSETS = ("gpu", "cpu")
"""Subsets that ``--sensitivity`` covers by default."""


def percent_bound(percent: float | None) -> float | None:
    """Return a typed bound [%]; reject one that no error can exceed or meet."""
    if percent is not None and not 0 <= percent < math.inf:
        message = f"must be a finite percentage of at least 0 (got {percent:g})"
        raise typer.BadParameter(message)
    return percent


Bound: TypeAlias = Annotated[float | None, typer.Option(metavar="PERCENT", callback=percent_bound)]


class ValidateCommand(TyperCommand):
    """``perfmodel validate``; its help lists all tables, which are looked up only for the help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, followed by the list of tables."""
        from perfmodel.validation.reports.own_tables import help_text

        self.epilog = help_text()
        super().format_help(ctx, formatter)


@Command
def validate_command(
    context: typer.Context,
    table: str,
    *,
    protocol: str = UNASKED,
    only: str | None = None,
    fit: float | None = None,
    sensitivity: bool = False,
    rows: bool = False,
    plot: Path | None = None,
    max_mape: Bound = None,
    progress: ProgressOption = None,
    data: Path | None = None,
) -> Answer:
    """Predict every measured cell of a table, and score the predictions against naive baselines.

    Parameters
    ----------
    table : str
        A measurement table: one of those below, or the path of a CSV. [-]
    protocol : NAME
        What is fitted to which rows before scoring; all prints a line for each. [-]
    only : SUBSET
        gpu, cpu or cpu_oversubscribed; all unless given. [-]
    fit : SHARE
        Instead of a protocol, fit on this share of the rows and score the others. [1]
    sensitivity : bool
        List the cells that each fitted constant moves. [-]
    rows : bool
        Print every cell too. [-]
    plot : FILE
        Draw predicted against measured (png, pdf, svg). [-]
    max_mape : PERCENT
        Exit with code 1 if the MAPE is above this. [%]
    data : FOLDER
        Folder of a table that does not come with perfmodel. [-]
    """
    from perfmodel.validation.reports.own_tables import own_table, refuse_beside
    from perfmodel.validation.scores.table_report import CELLS, printed
    from perfmodel.validation.validate import validate_steps

    check_plot(plot)
    own = own_table(table, data)
    lists = own is None and (sensitivity or protocol == EVERY_PROTOCOL)
    if own is not None:
        refuse_beside(own, [option for name, option in _given(context).items() if name not in BESIDE_OWN])
    elif lists:
        _refuse_together(fit=fit, plot=plot, max_mape=max_mape, rows=rows)
    shown = progress if own is None or own.tells_progress else False
    with progress_bar(f"predicting {table}", shown=shown) as done:
        report: Any = None
        if lists:
            tables = _tables(table, protocol=protocol, only=only, sensitivity=sensitivity, progress=done)
        elif own is not None:
            report = own.report(done)
        else:
            report = validate_steps(table, protocol=protocol, only=only, fit_share=fit, progress=done)
    if report is None:
        content = {listed.title: [asdict(row) for row in listed] for listed in tables}
        return Answer(text=lambda: "\n\n".join(map(printed, tables)), content=lambda: content)
    if max_mape is not None and report.mape is None:
        raise ArgumentError("--max-mape", max_mape, f"must not be given with {table}, which is not scored")
    if plot is not None:
        report.plot(plot)
    every_cell = f"\n\n{printed(report.rows, CELLS, title='every cell')}" if rows else ""

    def check() -> None:
        if max_mape is not None and not report.mape <= max_mape:
            sys.stderr.write(f"perfmodel: check failed: MAPE {report.mape:.1f} % is above {max_mape:g} %\n")
            raise typer.Exit(CHECK_FAILED)

    return Answer(text=lambda: f"{report}{every_cell}", content=report.to_dict, after=check)


def _given(context: typer.Context) -> dict[str, str]:
    """Return the typed options and the table: parameter names with their spelling on the command line."""
    typed = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name) if parameter.name else None
        if parameter.name and source is not None and source.name != "DEFAULT":
            option = next((text for text in parameter.opts if text.startswith("--")), "a table")
            typed[parameter.name] = option
    return typed


def _refuse_together(**options: Any) -> None:
    """Reject options that need a single score if many are printed."""
    options_set = [f"--{name.replace('_', '-')}" for name, value in options.items() if value not in (None, False)]
    if options_set:
        raise ArgumentError("options", ", ".join(options_set), "must not be given with --sensitivity or --protocol all")


def _tables(
    table: str, *, protocol: str, only: str | None, sensitivity: bool, progress: Callable[[int, int], None] | None
) -> list[Table[Any]]:
    from perfmodel.validation.protocols.board import protocol_board
    from perfmodel.validation.protocols.board import sensitivity as sensitivity_of
    from perfmodel.validation.validate import checked_table, nothing_to_score

    if not sensitivity:
        return [protocol_board(table, only=only, progress=progress)]
    if protocol != UNASKED:
        raise ArgumentError("--protocol", protocol, "must not be given with --sensitivity, which fits all cells")
    loaded = checked_table(table)
    subsets = [subset for subset in ((only,) if only else FITTED_SUBSETS) if loaded.subset(subset)]  # type: ignore[arg-type]
    if not subsets:
        raise nothing_to_score(loaded, only)
    return [sensitivity_of(loaded, only=subset, progress=progress) for subset in subsets]


COMMAND = "validate live"
"""Start of the command as typed."""


@takes_arguments(verb="perfmodel.validation.live.check:validate_live", takes_job=False)
def validate_live_command(
    arguments: dict[str, Any],
    *,
    device: str = "cpu",
    network: list[str] | None = None,
    dtype: list[str] | None = None,
    save: Path | None = None,
    plot: Path | None = None,
    max_error: Bound = None,
    progress: ProgressOption = None,
) -> Any:
    """Measure torch networks on this machine, and predict them from a calibration that did not use them.

    Parameters
    ----------
    device : DEVICE
        cpu, or cuda:0 for the first GPU. [-]
    network : NAME
        A network to check; may be given several times. [-]
    dtype : TYPE
        fp32, tf32 or bf16; may be given several times. [-]
    save : FILE
        Write the times as a measurement table (csv with a toml beside it). [-]
    plot : FILE
        Draw predicted against measured (png, pdf, svg). [-]
    max_error : PERCENT
        Exit with code 1 if a mean error is above this, or nothing is scored. [%]
    """
    from perfmodel.validation.live.check import validate_live
    from perfmodel.validation.live.live_report import check_table_path, save_live_table

    check_plot(plot)
    check_writable(save, argument="--save")
    if save is not None:
        check_table_path(save)
        if arguments.get("repeats") == 1:
            raise ArgumentError("--repeats", 1, "at least 2 with --save: a single repeat is not scored")
    with telling_interrupts(), progress_bar(f"live check on {device}", shown=progress) as advance:
        report = validate_live(device, networks=network, dtypes=dtype, progress=advance, **arguments)

    def after() -> None:
        if plot is not None:
            report.plot(plot)
        if save is not None:
            save_live_table(report, save)
        if max_error is not None and not report.mean_error_percent <= max_error:
            mean_percent = f"{report.mean_error_percent:.1f}"
            sys.stderr.write(f"perfmodel: check failed: mean error {mean_percent} % is not within {max_error:g} %\n")
            raise typer.Exit(CHECK_FAILED)

    return Answer(text=report.to_text, content=report.to_dict, after=after)
