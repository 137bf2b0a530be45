"""Compute the scoreboard, and write the pages that quote it.

Run:  python tools/scoreboard.py             (every protocol; some 13 minutes on two cores, seconds when kept)

That scores every table, writes scoreboard.json, .md and the parity plots in docs/, and fills the marked blocks
of docs/accuracy.md and docs/physics.md. ``--help`` lists the options; ``--to FOLDER`` writes elsewhere and
leaves the quoting pages alone. tests/test_scoreboard.py holds the committed figures to the code, the pages to the
figures, and the changelog to both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

import score_tables
from board_page import SUBSET_TEXT, figures, page_blocks
from board_records import KINDS, STEPS, BoardScore, Collected, Scoreboard, TermScore, load_scoreboard, save_scoreboard
from markdown_text import grid, page_of, with_block
from perfmodel.atomic_write import save_text
from perfmodel.cli.output import ProgressOption
from perfmodel.errors import ArgumentError, PerfmodelError
from perfmodel.measurements.kernel_tables import read_data_folder
from perfmodel.prediction.arguments.checks import one_of
from perfmodel.presentation.figures import parity_plot, save
from perfmodel.presentation.progress import progress_bar
from perfmodel.validation.protocols.board import best_rule
from perfmodel.validation.reports.own_tables import NETWORKS
from perfmodel.validation.scores.table_report import PERFMODEL

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
RELEASED = DOCS / "scoreboard_released.json"
QUOTED = "shi2016"
UNFITTED = "nothing_fitted"

RECORDS, PAGE = "scoreboard.json", "scoreboard.md"
"""File of every figure."""

LOG_ERROR = "100 (exp(mean abs ln) - 1)"

PICTURES = "scoreboard"
"""Folder of the parity plots, next to the page."""

PICTURE_DOTS_PER_INCH = 80
"""Resolution of the plots: low, as they are committed. [1]"""


def scores_of(board: Scoreboard) -> list[BoardScore]:
    """Return the scores of the quoted table."""
    return [score for score in board.scores if score.table == QUOTED]


def unfitted(board: Scoreboard) -> str:
    """Return the scores with nothing fitted, and those of every naive rule."""
    rows = []
    for score in scores_of(board):
        if score.protocol == UNFITTED:
            name = f"**{score.model}, nothing fitted**" if score.model == PERFMODEL else score.model
            errors = figures(score, "cells", "MAPE", "median", "p90", "log error", "bias")
            rows.append((SUBSET_TEXT[score.subset], name, *errors))
    head = ("cells", "predictions", "cells", "MAPE", "median", "90th percentile", LOG_ERROR, "bias")
    orders = [order for order in board.orders if order.table == QUOTED]
    right = [f"{SUBSET_TEXT[order.subset]} {order.right_percent:.0f}% of {order.pairs}" for order in orders]
    plain = [
        f"{SUBSET_TEXT[order.subset]} {order.feedforward_mape:.1f} ({order.feedforward_cells} cells)"
        for order in orders
        if order.feedforward_mape is not None and order.subset != "cpu_oversubscribed"
    ]
    lines = [
        grid(head, rows),
        "",
        f"Pairs of frameworks on one network and device in the right order: {'; '.join(right)}.",
    ]
    lines += ["", f"MAPE of perfmodel on the cells without LSTM, as for Paleo's rule: {'; '.join(plain)}."]
    return "\n".join(lines)


def protocols(board: Scoreboard) -> str:
    """Return the scores under every protocol, and those of the best naive rule fitted to the same cells."""
    head = (
        "cells", "protocol", "cells", "constants", "MAPE", LOG_ERROR, "median", "90th percentile", "bias",
        "best naive rule, told the same", "its MAPE", f"its {LOG_ERROR}",
    )  # fmt: skip
    rows, scores = [], scores_of(board)
    for score in scores:
        if score.model == PERFMODEL:
            same = (other for other in scores if (other.subset, other.protocol) == (score.subset, score.protocol))
            naive = best_rule(score, same)
            cells, constants, mape, *errors = figures(score)[:7]
            beside = (naive.model, *figures(naive, "MAPE", "log error")) if naive else ("-", "-", "-")
            rows.append((SUBSET_TEXT[score.subset], score.protocol, cells, constants, f"**{mape}**", *errors, *beside))
    return grid(head, rows)


def ratios(board: Scoreboard) -> str:
    """Return the lowest and highest predicted / measured of each network and framework, nothing fitted."""
    by_cell = {
        (row.subset, row.network, row.framework): row
        for row in board.ratios
        if row.table == QUOTED and row.subset != "cpu_oversubscribed"
    }
    frameworks = sorted({framework for _, _, framework in by_cell})
    lines = []
    for subset, network in dict.fromkeys((subset, network) for subset, network, _ in by_cell):
        ranges = [by_cell.get((subset, network, framework)) for framework in frameworks]
        texts = [f"{row.lowest:.2f} to {row.highest:.2f}" if row else "-" for row in ranges]
        lines.append((SUBSET_TEXT[subset], network, *texts))
    return grid(("cells", "network", *frameworks), lines)


def factors(board: Scoreboard) -> str:
    """Return the factors of fits to all cells."""
    rows = [
        (SUBSET_TEXT[row.subset], row.name, f"{row.factor:.2f}", f"{row.low:.2f} to {row.high:.2f}")
        for row in board.factors
        if row.table == QUOTED and row.subset != "cpu_oversubscribed"
    ]
    return grid(("cells", "factor on", "value", "80 % interval"), rows)


def terms(board: Scoreboard) -> str:
    """Tabulate the worth of each physical term."""
    return _terms(
        ("cells", "protocol"),
        [(row, SUBSET_TEXT[row.subset], row.protocol) for row in board.terms if row.table == QUOTED],
    )


def network_terms(board: Scoreboard) -> str:
    """Tabulate the worth of each term of today's processors."""
    return _terms(("table", "part"), [(row, row.table, row.subset) for row in board.terms if row.table != QUOTED])


def _terms(keys: tuple[str, str], rows: Sequence[tuple[TermScore, str, str]]) -> str:
    texts = [
        (*names, row.without, f"{row.mape:.1f}", f"{row.typical_factor_percent:.1f}", f"{row.change:+.1f}")
        for row, *names in rows
    ]
    return grid((*keys, "without", "MAPE", LOG_ERROR, "change"), texts)


def kernels(board: Scoreboard) -> str:
    """Return the scores on measured kernels, means over boards or the only board."""
    names = [table.name for table in board.tables if table.kind == "kernels"]
    rows = []
    for name in names:
        scores = [score for score in board.scores if score.table == name]
        averaged = [score for score in scores if score.subset.startswith("mean of the boards")] or scores
        naive = {(score.part, score.protocol): score for score in averaged if score.model != PERFMODEL}
        for score in averaged:
            if score.model == PERFMODEL:
                errors = (*figures(score, "median"), *figures(naive[score.part, score.protocol], "median"))
                rows.append((name, f"{score.part} ({score.cells})", score.protocol, *errors))
    return grid(("table", "rows", "protocol", "median error", "strongest plain roofline"), rows)


BLOCKS: dict[str, Callable[[Scoreboard], str]] = {
    "scoreboard": unfitted,
    "protocols": protocols,
    "ratios": ratios,
    "factors": factors,
    "terms": terms,
    "network-terms": network_terms,
    "kernels": kernels,
}
PAGES = {
    "docs/accuracy.md": ("scoreboard", "protocols", "ratios", "factors", "kernels"),
    "docs/physics.md": ("terms", "network-terms", "kernels"),
}


def page_text(path: str, board: Scoreboard) -> str:
    """Return a page, a path below the root, with its blocks written from a scoreboard."""
    text = (ROOT / path).read_text(encoding="utf-8")
    for name in PAGES[path]:
        text = with_block(text, name, BLOCKS[name](board))
    return text


def write_scoreboard(
    to: Path = DOCS,
    *,
    data: Path | None = None,
    quick: bool = False,
    terms: bool = False,
    new_tables: bool = False,
    sections: str | None = None,
    progress: bool | None = None,
) -> Scoreboard:
    """Score every table, and write records, pages and pictures to a folder."""
    if not to.is_dir():
        raise ArgumentError("--to", str(to), "an existing folder")
    if new_tables and data is None:
        raise ArgumentError("--new-tables", new_tables, "left out without --data")
    kinds = frozenset(KINDS if sections is None else [one_of("sections", name, KINDS) for name in sections.split(",")])
    kept = load_scoreboard(to / RECORDS) if (to / RECORDS).is_file() else None
    folder = None if data is None else read_data_folder(data)
    if folder is not None:
        score_tables.check_folder(folder)
        if kept is not None and not new_tables:
            score_tables.check_hashes(folder, kept)
    collected = Collected(tell=_tell if progress is not False else None)
    with progress_bar("scoring", shown=progress) as show:
        score_tables.score_shipped_own(collected, kinds=kinds)
        if STEPS in kinds:
            score_tables.score_shipped(collected, protocols=score_tables.QUICK if quick else None, progress=show)
        if folder is not None:
            score_tables.score_folder(folder, collected, kinds=kinds, progress=show)
            score_tables.score_products(Path(data or ""), collected, kinds=kinds)
        if terms and STEPS in kinds:
            score_tables.score_terms(collected, progress=show)
        if terms and NETWORKS in kinds and data is not None:
            score_tables.score_network_terms(data, collected)
    board = collected.board()
    if kept is not None:
        board = board.with_slow_scores(kept) if quick else board
        board = board.with_kept(kept)
    save_scoreboard(board, to / RECORDS)
    (to / PICTURES).mkdir(exist_ok=True)
    for picture in collected.pictures:
        path = to / PICTURES / f"{picture.name}.png"
        save(parity_plot(**picture.shown), path, dots_per_inch=PICTURE_DOTS_PER_INCH)
    save_text(to / PAGE, page(board, to))
    _tell(f"wrote {to / RECORDS}, its pages and {len(collected.pictures)} pictures")
    return board


def _tell(text: str) -> None:
    sys.stderr.write(f"scoreboard: {text}\n")


def page(board: Scoreboard, to: Path) -> str:
    """Return the page of a scoreboard, with the pictures that are in its folder."""
    pictures = [f"{PICTURES}/{path.name}" for path in sorted((to / PICTURES).glob("*.png"))]
    return page_of(page_blocks(board, pictures=pictures))


def main(
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of tables that are not in this repository.")
    ] = None,
    to: Annotated[
        Path, typer.Option(metavar="FOLDER", show_default="docs", help="Folder of the page and of kept results.")
    ] = DOCS,
    quick: Annotated[
        bool, typer.Option("--quick", help="Compute only what takes a minute or two; slow scores stay as they are.")
    ] = False,
    terms: Annotated[bool, typer.Option("--terms", help="Leave out each physical term, too.")] = False,
    new_tables: Annotated[
        bool, typer.Option("--new-tables", help="With --data: accept tables that differ from those scored before.")
    ] = False,
    sections: Annotated[str | None, typer.Option(metavar="NAME,...", help=f"Only these of {', '.join(KINDS)}.")] = None,
    pages_only: Annotated[bool, typer.Option("--pages-only", help="Compute nothing: write the pages again.")] = False,
    released: Annotated[
        bool, typer.Option("--released", help="Compute nothing: make today's scores the ones to be held against.")
    ] = False,
    progress: ProgressOption = None,
) -> None:
    """Score every table under every protocol, and write the pages that quote the scores."""
    if not (pages_only or released):
        write_scoreboard(
            to, data=data, quick=quick, terms=terms, new_tables=new_tables, sections=sections, progress=progress
        )
    board = load_scoreboard(to / RECORDS)
    if released:
        ours = tuple(score for score in board.scores if score.model == PERFMODEL)
        save_scoreboard(Scoreboard(version=board.version, code=board.code, tables=board.tables, scores=ours), RELEASED)
    save_text(to / PAGE, page(board, to))
    for name in PAGES if to.resolve() == DOCS else ():
        save_text(ROOT / name, page_text(name, board))
        _tell(f"wrote {name}")


if __name__ == "__main__":
    try:
        typer.run(main)
    except PerfmodelError as error:
        sys.exit(f"scoreboard: {error}")
