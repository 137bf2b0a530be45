"""``perfmodel validate`` of a table of measured collectives."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from perfmodel.cli.output import emit
from perfmodel.errors import ArgumentError

if TYPE_CHECKING:
    from perfmodel.measurements.collective_tables import CollectiveMeasurements


def collectives_asked_for(table: str | None, data: Path | None) -> CollectiveMeasurements | None:
    """Return the measured collectives that were asked for.

    Parameters
    ----------
    table : str or None
        Name or path of a table. [-]
    data : Path or None
        Folder of tables that do not come with perfmodel. [-]

    Returns
    -------
    CollectiveMeasurements or None
        None where another kind of table was asked for. [-]
    """
    from perfmodel.validation.collective_scores import find_collectives

    return None if table is None else find_collectives(table, data)


def print_collective_scores(
    table: CollectiveMeasurements, *, as_json: bool, out: Path | None, max_mape: float | None, refused: list[str]
) -> None:
    """Print the scores of measured collectives.

    Parameters
    ----------
    table : CollectiveMeasurements
        What was measured. [-]
    as_json : bool
        Whether to print JSON. [-]
    out : Path or None
        File to write to instead. [-]
    max_mape : float or None
        Error above which the command fails. [%]
    refused : list of str
        Options that were given and have no effect here. [-]

    Raises
    ------
    ArgumentError
        If there is such an option.
    """
    from perfmodel.cli.validate import CHECK_FAILED, rounded
    from perfmodel.validation.collective_scores import score_table

    if refused:
        allowed = "none for measured collectives: constants as shipped are scored on rows they were not fitted to"
        raise ArgumentError("options", ", ".join(refused), allowed)
    scores = score_table(table)
    emit(lambda: rounded(scores).to_text(), lambda: [asdict(row) for row in scores], as_json=as_json, out=out)
    if max_mape is not None and not scores[0].mape <= max_mape:
        sys.stderr.write(f"perfmodel: check failed: MAPE {scores[0].mape:.1f} % is above {max_mape:g} %\n")
        raise typer.Exit(CHECK_FAILED)
