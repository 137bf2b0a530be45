"""``perfmodel validate`` of a table of steps on several devices: measured speed-ups beside predicted ones."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import typer

from perfmodel.cli.output import check_writable, emit
from perfmodel.cli.validate_collectives import BESIDE_COLLECTIVES
from perfmodel.errors import ArgumentError


def print_speedups(
    table: str | None,
    data: Path | None,
    *,
    typed: Mapping[str, str],
    as_json: bool,
    out: Path | None,
    max_mape: float | None,
) -> bool:
    """Print measured speed-ups beside predicted ones, if that is what was asked for.

    Parameters
    ----------
    table : str or None
        Name or path of a table. [-]
    data : Path or None
        Folder of tables that do not come with perfmodel. [-]
    typed : mapping of str to str
        Parameters that were given, with what people call them. [-]
    as_json : bool
        Whether to print JSON. [-]
    out : Path or None
        File to write to instead. [-]
    max_mape : float or None
        Error above which the command fails. [%]

    Returns
    -------
    bool
        False where another kind of table was asked for. [-]

    Raises
    ------
    ArgumentError
        If an option was given that has no effect here.
    TableError
        If the table is wrong.
    """
    from perfmodel.cli.validate import CHECK_FAILED
    from perfmodel.validation.speedup_scores import find_speedups, speedup_report

    file = None if table is None else find_speedups(table, data)
    if file is None:
        return False
    refused = [option for name, option in typed.items() if name not in BESIDE_COLLECTIVES]
    if refused:
        allowed = "none for measured speed-ups: constants as shipped are scored, none of which comes from these rows"
        raise ArgumentError("options", ", ".join(refused), allowed)
    check_writable(out, argument="--out")
    report = speedup_report(file)
    emit(lambda: str(report), report.to_dict, as_json=as_json, out=out)
    if max_mape is not None and not report.mape <= max_mape:
        sys.stderr.write(f"perfmodel: check failed: MAPE {report.mape:.1f} % is above {max_mape:g} %\n")
        raise typer.Exit(CHECK_FAILED)
    return True
