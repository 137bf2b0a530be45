"""``perfmodel validate`` of a table of measured collectives."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import typer

from perfmodel.cli.output import check_writable, emit
from perfmodel.errors import ArgumentError

BESIDE_COLLECTIVES = frozenset({"table", "data", "as_json", "out", "max_mape", "progress"})
"""Parameters that have an effect on a table of measured collectives."""


def print_collectives(
    table: str | None,
    data: Path | None,
    *,
    typed: Mapping[str, str],
    as_json: bool,
    out: Path | None,
    max_mape: float | None,
) -> bool:
    """Print the scores of measured collectives, if that is what was asked for.

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
        If the folder has no such table, or it is wrong.
    """
    from perfmodel.cli.validate import CHECK_FAILED, rounded
    from perfmodel.validation.collective_scores import find_collectives, score_table

    measured = None if table is None else find_collectives(table, data)
    if measured is None:
        return False
    refused = [option for name, option in typed.items() if name not in BESIDE_COLLECTIVES]
    if refused:
        allowed = "none for measured collectives: constants as shipped are scored on rows they were not fitted to"
        raise ArgumentError("options", ", ".join(refused), allowed)
    check_writable(out, argument="--out")
    scores = score_table(measured)
    emit(lambda: rounded(scores).to_text(), lambda: [asdict(row) for row in scores], as_json=as_json, out=out)
    if max_mape is not None and not scores[0].mape <= max_mape:
        sys.stderr.write(f"perfmodel: check failed: MAPE {scores[0].mape:.1f} % is above {max_mape:g} %\n")
        raise typer.Exit(CHECK_FAILED)
    return True
