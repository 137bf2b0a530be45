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
    JsonOption,
    OutOption,
    ProgressOption,
    check_plot,
    check_writable,
    emit,
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
@takes_arguments(plot="Draw the measured points: a roofline, and fitted against measured times.")
def show_command(file: Annotated[str, typer.Argument(help="A calibration of a machine: name or TOML file.")]) -> Answer:
    """Print the kernel classes of a calibration and how accurate each is."""
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
def diff_command(
    old: Annotated[str, typer.Argument(help="The earlier calibration.")],
    new: Annotated[str, typer.Argument(help="The later one.")],
) -> Answer:
    """List the changes between two calibrations: software, clock, constants beyond their intervals."""
    from perfmodel.calibration.calibration_tables import diff_content, diff_text

    before, after = _loaded(old, argument="old"), _loaded(new, argument="new")
    return Answer(text=lambda: diff_text(before, after), content=lambda: diff_content(before, after))


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


TableArgument: TypeAlias = Annotated[
    str, typer.Argument(help="A measurement table: one of those below, or the path of a CSV.")
]
DataOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--data", metavar="FOLDER", help="Folder of a table that does not come with perfmodel."),
]
ProtocolOption: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help="What is fitted to which rows before scoring; all prints a line for each.")
]
OnlyOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="SUBSET", help="gpu, cpu or cpu_oversubscribed; all unless given.")
]
FitOption: TypeAlias = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="Instead of a protocol, fit on this share of the rows and score the others."),
]
ParityOption: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw predicted against measured (png, pdf, svg).")
]


class ValidateCommand(TyperCommand):
    """``perfmodel validate``; its help lists all tables, which are looked up only for the help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, followed by the list of tables."""
        from perfmodel.validation.reports.own_tables import help_text

        self.epilog = help_text()
        super().format_help(ctx, formatter)


def validate_command(
    context: typer.Context,
    table: TableArgument,
    protocol: ProtocolOption = UNASKED,
    only: OnlyOption = None,
    fit: FitOption = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="List the cells that each fitted constant moves.")
    ] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Print every cell too.")] = False,
    plot: ParityOption = None,
    max_mape: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", callback=percent_bound, help="Exit with code 1 if the MAPE is above this."),
    ] = None,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
    data: DataOption = None,
) -> None:
    """Predict every measured cell of a table, and score the predictions against naive baselines."""
    from perfmodel.validation.reports.own_tables import own_table, refuse_beside
    from perfmodel.validation.scores.table_report import CELLS, printed
    from perfmodel.validation.validate import validate_steps

    check_writable(out, argument="--out")
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
        emit(lambda: "\n\n".join(map(printed, tables)), lambda: content, as_json=as_json, out=out)
        return
    if max_mape is not None and report.mape is None:
        raise ArgumentError("--max-mape", max_mape, f"must not be given with {table}, which is not scored")
    if plot is not None:
        report.plot(plot)
    every_cell = f"\n\n{printed(report.rows, CELLS, title='every cell')}" if rows else ""
    emit(lambda: f"{report}{every_cell}", report.to_dict, as_json=as_json, out=out)
    if max_mape is not None and not report.mape <= max_mape:
        sys.stderr.write(f"perfmodel: check failed: MAPE {report.mape:.1f} % is above {max_mape:g} %\n")
        raise typer.Exit(CHECK_FAILED)


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


@takes_arguments(verb="perfmodel.validation.live.check:validate_live", takes_job=False)
def validate_live_command(
    arguments: dict[str, Any],
    device: Annotated[str, typer.Option(metavar="DEVICE", help="cpu, or cuda:0 for the first GPU.")] = "cpu",
    network: NetworkOption = None,
    dtype: TypeOption = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the times as a measurement table (csv with a toml beside it)."),
    ] = None,
    plot: ParityOption = None,
    max_error: MaxErrorOption = None,
    progress: ProgressOption = None,
) -> Any:
    """Measure torch networks on this machine, and predict them from a calibration that did not use them."""
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
