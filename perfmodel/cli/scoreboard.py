"""``perfmodel validate --all``: every score on every table, as a page and as records."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from perfmodel.atomic_write import replacement_of
from perfmodel.cli.output import progress_bar
from perfmodel.errors import ArgumentError

if TYPE_CHECKING:
    from perfmodel.validation.scoreboard import Collected, Picture, Scoreboard

AllOption: TypeAlias = Annotated[bool, typer.Option("--all", help="Score every table; write a page and its figures.")]
DataOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="FOLDER",
        help="Folder of tables that do not come with perfmodel: with --all, or with such a table.",
    ),
]
ToOption: TypeAlias = Annotated[
    Path, typer.Option("--to", metavar="FOLDER", help="With --all: where the page goes, and where kept results are.")
]
QuickOption: TypeAlias = Annotated[
    bool, typer.Option("--quick", help="With --all: only what takes a minute; the rest stays as it was written.")
]
TermsOption: TypeAlias = Annotated[bool, typer.Option("--terms", help="With --all: leave out each physical term, too.")]
NewTablesOption: TypeAlias = Annotated[
    bool, typer.Option("--new-tables", help="With --data: score tables that are not those of the kept results.")
]
SectionsOption: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NAME,...", help="With --all: only steps, kernels, systems, collectives or many_devices."),
]

RECORDS = "scoreboard.json"
"""File of every figure."""

PICTURE_DOTS_PER_INCH = 80
"""How fine the plots are: they are committed. [1]"""

PICTURES = "scoreboard"
"""Folder of the parity plots, beside the page."""


def write_scoreboard(
    *,
    data: Path | None,
    to: Path,
    quick: bool,
    terms: bool,
    new_tables: bool,
    sections: str | None,
    progress: bool | None,
) -> Scoreboard:
    """Score every table, and write page, records and pictures.

    Parameters
    ----------
    data : Path or None
        Folder of tables that do not come with perfmodel. [-]
    to : Path
        Folder to write to. [-]
    quick : bool
        Whether slow protocols stay as they were written. [-]
    terms : bool
        Whether physical terms are left out one by one. [-]
    new_tables : bool
        Whether tables may differ from those that were scored before. [-]
    sections : str or None
        Kinds of tables to score, commas between; None for all. The others stay as they were written. [-]
    progress : bool or None
        Whether to show progress; None where the error stream is a terminal. [-]

    Returns
    -------
    Scoreboard
        What was written. [-]

    Raises
    ------
    ArgumentError
        If the folder to write to is none, or new tables are allowed where no folder has any.
    TableError, UnknownNameError
        If a table of the data folder is wrong, missing, or not the one that was scored before; if there is no such
        section.
    """
    from perfmodel.measurements.kernel_tables import read_data_folder
    from perfmodel.prediction.arguments.checks import one_of
    from perfmodel.validation.all_tables import QUICK, score_shipped, score_shipped_own, score_terms
    from perfmodel.validation.folder_scores import check_folder, check_hashes, score_folder
    from perfmodel.validation.scoreboard import KINDS, STEPS, Collected, load_scoreboard

    if not to.is_dir():
        raise ArgumentError(argument="--to", given=str(to), allowed="an existing folder")
    if new_tables and data is None:
        raise ArgumentError(argument="--new-tables", given=new_tables, allowed="only with --data")
    kinds = frozenset(KINDS if sections is None else [one_of("sections", name, KINDS) for name in sections.split(",")])
    kept = load_scoreboard(to / RECORDS) if (to / RECORDS).is_file() else None
    folder = None if data is None else read_data_folder(data)
    if folder is not None:
        check_folder(folder)
        if kept is not None and not new_tables:
            check_hashes(folder, kept)
    found = Collected(tell=_tell if progress is not False else None)
    with progress_bar("scoring", shown=progress) as told:
        score_shipped_own(found, kinds=kinds)
        if STEPS in kinds:
            score_shipped(found, protocols=QUICK if quick else None, progress=told)
        if folder is not None:
            score_folder(folder, found, kinds=kinds, progress=told)
        if terms:
            score_terms(found, progress=told)
    board = found.board()
    if kept is not None:
        board = board.with_slow_scores(kept) if quick else board
        board = board.with_kept(kept)
    _write(board, found, to)
    return board


def _tell(text: str) -> None:
    sys.stderr.write(f"perfmodel: {text}\n")


def _write(board: Scoreboard, found: Collected, to: Path) -> None:
    from perfmodel.validation.scoreboard import save_scoreboard

    save_scoreboard(board, to / RECORDS)
    (to / PICTURES).mkdir(exist_ok=True)
    for picture in found.pictures:
        _draw(picture, to / PICTURES / f"{picture.name}.png")
    write_pages(board, to)
    sys.stderr.write(f"perfmodel: wrote {to / 'scoreboard.md'}, .html, .json and {len(found.pictures)} pictures\n")


def write_pages(board: Scoreboard, to: Path) -> None:
    """Write the Markdown and the HTML page of a scoreboard.

    Parameters
    ----------
    board : Scoreboard
        Every figure. [-]
    to : Path
        Folder with the pictures' folder in it. [-]
    """
    for name, text in pages(board, to).items():
        with replacement_of(to / name) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")


def pages(board: Scoreboard, to: Path) -> dict[str, str]:
    """Return the pages of a scoreboard.

    Parameters
    ----------
    board : Scoreboard
        Every figure. [-]
    to : Path
        Folder with the pictures' folder in it. [-]

    Returns
    -------
    dict of str to str
        File name to text. [-]
    """
    from perfmodel.presentation.pages import html_page, markdown_page
    from perfmodel.validation.scoreboard_page import page_blocks

    pictures = [f"{PICTURES}/{path.name}" for path in sorted((to / PICTURES).glob("*.png"))]
    blocks = page_blocks(board, pictures=pictures)
    return {"scoreboard.md": markdown_page(blocks), "scoreboard.html": html_page(blocks, title="perfmodel: scoreboard")}


def _draw(picture: Picture, path: Path) -> None:
    from perfmodel.presentation.figures import parity_plot, save

    save(parity_plot(**picture.shown), path, dots_per_inch=PICTURE_DOTS_PER_INCH)
