"""``perfmodel validate``: a measured table beside its predictions."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from perfmodel.cli.output import JsonOption, OutOption, check_plot, check_writable, emit, progress_bar
from perfmodel.cli.scoreboard import (
    AllOption,
    DataOption,
    NewTablesOption,
    QuickOption,
    TermsOption,
    ToOption,
    write_scoreboard,
)
from perfmodel.cli.validate_collectives import print_collectives
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

BESIDE_ALL = frozenset({"all_tables", "data", "to", "quick", "terms", "new_tables", "progress", "as_json"})
"""Parameters that have an effect where every table is scored."""

FITTED_SUBSETS = ("gpu", "cpu")
"""Subsets that sensitivity and ablation cover unless one is asked for."""


def percent_bound(given: float | None) -> float | None:
    """Return a bound [%]; refuse one that no error could be held against."""
    if given is not None and not 0 <= given < math.inf:
        message = f"{given:g} is not allowed: a finite percentage of at least 0"
        raise typer.BadParameter(message)
    return given


TableArgument: TypeAlias = Annotated[
    str | None, typer.Argument(help="A measurement table: name, or the path of a CSV; none with --all.")
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
) -> None:
    """Predict every measured cell of a table and score the predictions beside naive baselines."""
    of_all = {"data": data, "quick": quick, "terms": terms, "new_tables": new_tables}
    if all_tables:
        _refuse_beside_all(context)
        board = write_scoreboard(**of_all, to=to, progress=progress)  # type: ignore[arg-type]
        if as_json:
            emit(str, board.to_dict, as_json=True, out=None)
        return
    if print_collectives(table, data, typed=_given(context), as_json=as_json, out=out, max_mape=max_mape):
        return
    table = _without_all(table, refused=any(of_all.values()) or "to" in _given(context))
    check_writable(out, argument="--out")
    if _printed_many_devices(context, table, as_json=as_json, out=out):
        return
    check_plot(plot)
    if _illustrated(context, table, as_json=as_json, out=out):
        return
    if sensitivity or ablate or protocol == EVERY_PROTOCOL:
        _refuse_together(sensitivity=sensitivity, ablate=ablate, fit=fit, plot=plot, max_mape=max_mape, rows=rows)
        with progress_bar(f"validating {table}", shown=progress) as told:
            tables = _tables(table, protocol=protocol, only=only, sensitivity=sensitivity, ablate=ablate, told=told)
        emit(
            lambda: "\n\n".join(rounded(each).to_text() for each in tables),
            lambda: {each.title: [asdict(row) for row in each] for each in tables},
            as_json=as_json,
            out=out,
        )
        return
    _one_protocol(
        table, protocol=protocol, only=only, fit=fit, rows=rows, plot=plot, progress=progress, as_json=as_json, out=out,
        max_mape=max_mape,
    )  # fmt: skip


def _illustrated(context: typer.Context, table: str, *, as_json: bool, out: Path | None) -> bool:
    """Print a table that is scored in a way of its own; tell whether it is one."""
    from perfmodel.validation.illustrations import ILLUSTRATIONS

    if table not in ILLUSTRATIONS:
        return False
    told = [option for name, option in _given(context).items() if name not in {"table", "as_json", "out"}]
    if told:
        allowed = f"none but --json and --out with {table}, which is scored in a way of its own"
        raise ArgumentError("options", ", ".join(told), allowed)
    shown = ILLUSTRATIONS[table]()
    emit(lambda: str(shown), shown.to_dict, as_json=as_json, out=out)
    return True


def _printed_many_devices(context: typer.Context, table: str, *, as_json: bool, out: Path | None) -> bool:
    """Print the rows of a table of many devices, each of which says all that ran; tell whether it is one."""
    from perfmodel.measurements import parallel_tables

    if table not in parallel_tables.names():
        return False
    from perfmodel.validation.parallel_report import mean_error, parallel_report

    typed = _given(context)
    told = [option for name, option in typed.items() if name not in ("table", "as_json", "out", "progress")]
    if told:
        raise ArgumentError("options", ", ".join(told), f"none beside {table}: each row says what ran")
    scores = parallel_report(table)
    emit(
        lambda: f"{scores.to_text()}\n\nmean error {mean_error(scores):.1f} %, nothing fitted",
        lambda: {"table": table, "mean_error_percent": mean_error(scores), "rows": [asdict(each) for each in scores]},
        as_json=as_json,
        out=out,
    )
    return True


def _given(context: typer.Context) -> dict[str, str]:
    """Return what was typed: names of parameters with what people call them, the table or an option."""
    typed = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name) if parameter.name else None
        if parameter.name and source is not None and source.name != "DEFAULT":
            option = next((text for text in parameter.opts if text.startswith("--")), "a table")
            typed[parameter.name] = option
    return typed


def _without_all(table: str | None, *, refused: bool) -> str:
    """Return the table; refuse to go on without one, or with options that only --all or collectives have."""
    if table is None or refused:
        allowed = "a table, without --to, --quick, --terms and --new-tables; --data for one of collectives; or --all"
        raise ArgumentError("table", table, allowed)
    return table


def _refuse_beside_all(context: typer.Context) -> None:
    """Refuse every option that would have no effect."""
    told = [option for name, option in _given(context).items() if name not in BESIDE_ALL]
    if told:
        allowed = "none beside --all: it scores every table under every protocol"
        raise ArgumentError("options", ", ".join(told), allowed)


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
    from perfmodel.validation.protocol_board import protocol_board
    from perfmodel.validation.protocols import PROTOCOLS, protocol_names
    from perfmodel.validation.sensitivity import sensitivity as sensitivity_of
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
    from perfmodel.validation.validate import validate

    with progress_bar(f"predicting {table}", shown=progress) as told:
        report: Report = validate(table, protocol=protocol, only=only, fit_share=fit, progress=told)
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
