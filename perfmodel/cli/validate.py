"""``perfmodel validate``: a measured table beside its predictions."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from typer.core import TyperCommand

from perfmodel.cli.output import JsonOption, OutOption, check_plot, check_writable, emit, progress_bar
from perfmodel.cli.scoreboard import (
    AllOption,
    DataOption,
    NewTablesOption,
    QuickOption,
    SectionsOption,
    TermsOption,
    ToOption,
    write_scoreboard,
)
from perfmodel.errors import ArgumentError

if TYPE_CHECKING:
    from perfmodel.presentation.tables import Table
    from perfmodel.validation.report import Report

CHECK_FAILED = 1
"""Exit code where the error is above what ``--max-mape`` allows."""

UNASKED = "nothing_fitted"
"""Protocol where none is asked for."""

EVERY_PROTOCOL = "all"
"""Value of ``--protocol`` that prints one line for each."""

OF_ALL = frozenset({"to", "quick", "terms", "new_tables", "sections"})
"""Parameters that have an effect only where every table is scored."""

BESIDE_ALL = OF_ALL | {"all_tables", "data", "progress", "as_json"}
"""Parameters that have an effect where every table is scored."""

BESIDE_OWN = frozenset({"table", "data", "as_json", "out", "max_mape", "progress"})
"""Parameters that have an effect on a table that is scored in a way of its own, or do no harm."""

FITTED_SUBSETS = ("gpu", "cpu")
"""Subsets that sensitivity and ablation cover unless one is asked for."""


def percent_bound(given: float | None) -> float | None:
    """Return a bound [%]; refuse one that no error could be held against."""
    if given is not None and not 0 <= given < math.inf:
        message = f"{given:g} is not allowed: a finite percentage of at least 0"
        raise typer.BadParameter(message)
    return given


TableArgument: TypeAlias = Annotated[
    str | None, typer.Argument(help="A measurement table: one of those below, or the path of a CSV; none with --all.")
]
ProtocolOption: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help="What is fitted on what before scoring; all for a line of each.")
]
OnlyOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="SUBSET", help="gpu, cpu or cpu_oversubscribed; all unless given.")
]
FitOption: TypeAlias = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="Fit on this share of the rows instead of a protocol, score the others."),
]
ProgressOption: TypeAlias = Annotated[
    bool | None, typer.Option("--progress/--no-progress", help="Progress bar; on a terminal unless given.")
]


class ValidateCommand(TyperCommand):
    """``perfmodel validate``, whose help lists all tables; they are looked up only then."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help with the tables below."""
        from perfmodel.validation.own_tables import help_text

        self.epilog = help_text()
        super().format_help(ctx, formatter)


def validate_command(
    context: typer.Context,
    table: TableArgument = None,
    protocol: ProtocolOption = UNASKED,
    only: OnlyOption = None,
    fit: FitOption = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="List the cells that each fitted constant moves.")
    ] = False,
    ablate: Annotated[bool, typer.Option("--ablate", help="Score the protocol without each physical term.")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Print every cell too.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw predicted against measured (png, pdf, svg).")
    ] = None,
    max_mape: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", callback=percent_bound, help="Exit with code 1 if the MAPE is above this."),
    ] = None,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
    all_tables: AllOption = False,
    data: DataOption = None,
    to: ToOption = Path("docs"),
    quick: QuickOption = False,
    terms: TermsOption = False,
    new_tables: NewTablesOption = False,
    sections: SectionsOption = None,
) -> None:
    """Predict every measured cell of a table and score the predictions beside naive baselines."""
    given = _given(context)
    if all_tables:
        _refuse(given, allowed=BESIDE_ALL, told="none beside --all: it scores every table under every protocol")
        board = write_scoreboard(
            data=data, quick=quick, terms=terms, new_tables=new_tables, sections=sections, to=to, progress=progress
        )
        if as_json:
            emit(str, board.to_dict, as_json=True, out=None)
        return
    told = "a table, without --to, --quick, --terms, --new-tables and --sections; or --all"
    if table is None:
        raise ArgumentError("table", table, told)
    _refuse(given, allowed=frozenset(given) - OF_ALL, told=told)
    check_writable(out, argument="--out")
    check_plot(plot)
    if _own(table, data, given=given, as_json=as_json, out=out, max_mape=max_mape):
        return
    if sensitivity or ablate or protocol == EVERY_PROTOCOL:
        _refuse_together(sensitivity=sensitivity, ablate=ablate, fit=fit, plot=plot, max_mape=max_mape, rows=rows)
        with progress_bar(f"validating {table}", shown=progress) as done:
            tables = _tables(table, protocol=protocol, only=only, sensitivity=sensitivity, ablate=ablate, told=done)
        _emit_tables(tables, as_json=as_json, out=out)
        return
    _one_protocol(
        table, protocol=protocol, only=only, fit=fit, rows=rows, plot=plot, progress=progress, as_json=as_json, out=out,
        max_mape=max_mape,
    )  # fmt: skip


def _emit_tables(tables: Sequence[Table[Any]], *, as_json: bool, out: Path | None) -> None:
    """Print tables of scores."""
    emit(
        lambda: "\n\n".join(rounded(each).to_text() for each in tables),
        lambda: {each.title: [asdict(row) for row in each] for each in tables},
        as_json=as_json,
        out=out,
    )


def _own(
    name: str, data: Path | None, *, given: dict[str, str], as_json: bool, out: Path | None, max_mape: float | None
) -> bool:
    """Print a table that is scored in a way of its own; tell whether it is one."""
    from perfmodel.validation.own_tables import own_table, refuse_beside

    table = own_table(name, data)
    if table is None:
        return False
    refuse_beside(table, [option for parameter, option in given.items() if parameter not in BESIDE_OWN])
    report = table.report()
    if max_mape is not None and report.mape is None:
        raise ArgumentError("--max-mape", max_mape, f"none with {name}, of which nothing is scored")
    emit(lambda: str(report), report.to_dict, as_json=as_json, out=out)
    _check_error(report.mape, max_mape)
    return True


def _check_error(mape: float | None, most: float | None) -> None:
    """End with exit code 1 if the error is above what is allowed, or none."""
    if most is not None and mape is not None and not mape <= most:
        sys.stderr.write(f"perfmodel: check failed: MAPE {mape:.1f} % is above {most:g} %\n")
        raise typer.Exit(CHECK_FAILED)


def _given(context: typer.Context) -> dict[str, str]:
    """Return what was typed: names of parameters with what people call them, the table or an option."""
    typed = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name) if parameter.name else None
        if parameter.name and source is not None and source.name != "DEFAULT":
            option = next((text for text in parameter.opts if text.startswith("--")), "a table")
            typed[parameter.name] = option
    return typed


def _refuse(given: dict[str, str], *, allowed: frozenset[str], told: str) -> None:
    """Refuse every option that would have no effect."""
    refused = [option for name, option in given.items() if name not in allowed]
    if refused:
        raise ArgumentError("options", ", ".join(refused), told)


def rounded(table: Table[Any]) -> Table[Any]:
    """Return a table of scores with its percentages as people read them."""
    from perfmodel.validation.text import score_lines

    return score_lines(table)


def _refuse_together(**given: Any) -> None:
    """Refuse options that a table of many scores cannot serve."""
    both = given.pop("sensitivity") and given.pop("ablate")
    told = [
        f"--{name.replace('_', '-')}"
        for name, value in given.items()
        if value not in (None, False) and name != "ablate"
    ]
    if both or told:
        allowed = "one of --sensitivity, --ablate and --protocol all, without --fit, --plot, --max-mape and --rows"
        raise ArgumentError("options", ", ".join(told) or "--sensitivity --ablate", allowed)


def _tables(
    table: str,
    *,
    protocol: str,
    only: str | None,
    sensitivity: bool,
    ablate: bool,
    told: Callable[[int, int], None] | None,
) -> list[Table[Any]]:
    from perfmodel.validation.ablation import ablation
    from perfmodel.validation.ablation import sensitivity as sensitivity_of
    from perfmodel.validation.protocol_board import protocol_board
    from perfmodel.validation.protocols import PROTOCOLS, protocol_names
    from perfmodel.validation.validate import checked_table, nothing_to_score

    if sensitivity and protocol != UNASKED:
        raise ArgumentError("--protocol", protocol, "none with --sensitivity: it fits all cells")
    if not sensitivity and not ablate:
        return [protocol_board(table, only=only, progress=told)]
    loaded = checked_table(table)
    subsets = [subset for subset in ((only,) if only else FITTED_SUBSETS) if loaded.subset(subset)]  # type: ignore[arg-type]
    if not subsets:
        raise nothing_to_score(loaded, only)
    if sensitivity:
        return [sensitivity_of(loaded, only=subset, progress=told) for subset in subsets]
    asked = protocol_names() if protocol == EVERY_PROTOCOL else (protocol,)
    tables = []
    for subset in subsets:
        fitting = [name for name in asked if name not in PROTOCOLS or PROTOCOLS[name].suits(subset)]
        tables.append(ablation(loaded, protocols=fitting or asked, only=subset, progress=told))
    return tables


def _one_protocol(
    table: str,
    *,
    protocol: str,
    only: str | None,
    fit: float | None,
    rows: bool,
    plot: Path | None,
    progress: bool | None,
    as_json: bool,
    out: Path | None,
    max_mape: float | None,
) -> None:
    from perfmodel.validation.text import cell_lines
    from perfmodel.validation.validate import validate_steps

    with progress_bar(f"predicting {table}", shown=progress) as told:
        report: Report = validate_steps(table, protocol=protocol, only=only, fit_share=fit, progress=told)
    if plot is not None:
        report.plot(plot)
    emit(
        lambda: f"{report}\n\n{cell_lines(report.rows, title='every cell').to_text()}" if rows else str(report),
        report.to_dict,
        as_json=as_json,
        out=out,
    )
    _check_error(report.mape, max_mape)
