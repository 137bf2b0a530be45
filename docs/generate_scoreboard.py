"""Compute the scoreboard, and write what pages quote of it.

Run:  python docs/generate_scoreboard.py             (every protocol; some 13 minutes on two cores, seconds when kept)
  or with these options:
      --data FOLDER     tables that are not here, too
      --terms           leave out each physical term, too
      --quick           about two minutes; slow scores stay as they are
      --pages-only      nothing is computed: only the pages are written again
      --released        today's scores become what later ones are held against

The first three are handed to ``perfmodel validate --all``, which writes scoreboard.json, .md, .html and the parity
plots. Then the marked blocks of docs/accuracy.md and docs/physics.md are written from scoreboard.json.
tests/test_scoreboard.py holds the committed figures to the code, the pages to the figures, and the changelog to both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from perfmodel.cli.app import run
from perfmodel.cli.validate import RECORDS, write_pages
from perfmodel.validation.protocols.board import COVERS
from perfmodel.validation.scoreboard import PERFMODEL, BoardScore, Scoreboard, load_scoreboard, save_scoreboard
from perfmodel.validation.scoreboard_page import SUBSET_TEXT

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
RELEASED = DOCS / "scoreboard_released.json"
QUOTED = "shi2016"
UNFITTED = "nothing_fitted"


def line(*cells: object) -> str:
    """Return a line of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def head(*cells: str) -> list[str]:
    """Return the first two lines of a Markdown table."""
    return [line(*cells), "|" + "---|" * len(cells)]


def figures(score: BoardScore) -> tuple[str, ...]:
    """Return mean and log error of a score as a page quotes them."""
    return f"{score.mape:.1f}", f"{score.typical_factor_percent:.1f}"


def scores_of(board: Scoreboard) -> list[BoardScore]:
    """Return the scores of the quoted table."""
    return [score for score in board.scores if score.table == QUOTED]


def unfitted(board: Scoreboard) -> str:
    """Return the scores with nothing fitted, beside every naive rule."""
    lines = head(
        "cells", "predictions", "cells", "MAPE", "median", "90th percentile", "100 (exp(mean abs ln) - 1)", "bias"
    )
    for score in scores_of(board):
        if score.protocol == UNFITTED:
            name = f"**{score.model}, nothing fitted**" if score.model == PERFMODEL else score.model
            mape, log_error = figures(score)
            errors = (mape, f"{score.median_ape:.1f}", f"{score.p90_ape:.1f}", log_error)
            lines.append(
                line(SUBSET_TEXT[score.subset], name, score.cells, *errors, f"{score.geometric_mean_ratio:.2f}")
            )
    orders = [order for order in board.orders if order.table == QUOTED]
    right = [f"{SUBSET_TEXT[order.subset]} {order.right_percent:.0f}% of {order.pairs}" for order in orders]
    plain = [
        f"{SUBSET_TEXT[order.subset]} {order.feedforward_mape:.1f} ({order.feedforward_cells} cells)"
        for order in orders
        if order.feedforward_mape is not None and order.subset != "cpu_oversubscribed"
    ]
    lines += ["", f"Pairs of frameworks on one network and device in the right order: {'; '.join(right)}."]
    lines += ["", f"MAPE of perfmodel on the cells without LSTM, as for Paleo's rule: {'; '.join(plain)}."]
    return "\n".join(lines)


def best_naive(scores: list[BoardScore], own: BoardScore) -> BoardScore | None:
    """Return the naive rule with the least log error among those that cover nearly all cells of a score."""
    rules = [
        score
        for score in scores
        if (score.subset, score.protocol) == (own.subset, own.protocol)
        and not score.model.startswith(PERFMODEL)
        and score.cells >= COVERS * own.cells
    ]
    return min(rules, key=lambda score: score.typical_factor_percent, default=None)


def protocols(board: Scoreboard) -> str:
    """Return the scores under every protocol, beside the best naive rule that was told the same."""
    lines = head(
        "cells", "protocol", "cells", "constants", "MAPE", "100 (exp(mean abs ln) - 1)", "median", "90th percentile",
        "bias", "best naive rule, told the same", "its MAPE", "its 100 (exp(mean abs ln) - 1)",
    )  # fmt: skip
    scores = scores_of(board)
    for score in scores:
        if score.model != PERFMODEL:
            continue
        naive = best_naive(scores, score)
        mape, log_error = figures(score)
        lines.append(
            line(
                SUBSET_TEXT[score.subset],
                score.protocol,
                score.cells,
                score.fitted,
                f"**{mape}**",
                log_error,
                f"{score.median_ape:.1f}",
                f"{score.p90_ape:.1f}",
                f"{score.geometric_mean_ratio:.2f}",
                *((naive.model, *figures(naive)) if naive else ("-", "-", "-")),
            )
        )
    return "\n".join(lines)


def ratios(board: Scoreboard) -> str:
    """Return the lowest and highest predicted / measured of each network and framework, nothing fitted."""
    found = {
        (row.subset, row.network, row.framework): row
        for row in board.ratios
        if row.table == QUOTED and row.subset != "cpu_oversubscribed"
    }
    frameworks = sorted({framework for _, _, framework in found})
    lines = head("cells", "network", *frameworks)
    for subset, network in dict.fromkeys((subset, network) for subset, network, _ in found):
        rows = [found.get((subset, network, framework)) for framework in frameworks]
        texts = [f"{row.lowest:.2f} to {row.highest:.2f}" if row else "-" for row in rows]
        lines.append(line(SUBSET_TEXT[subset], network, *texts))
    return "\n".join(lines)


def factors(board: Scoreboard) -> str:
    """Return the factors of fits to all cells."""
    lines = head("cells", "factor on", "value", "80 % interval")
    lines += [
        line(SUBSET_TEXT[row.subset], row.name, f"{row.factor:.2f}", f"{row.low:.2f} to {row.high:.2f}")
        for row in board.factors
        if row.table == QUOTED and row.subset != "cpu_oversubscribed"
    ]
    return "\n".join(lines)


def terms(board: Scoreboard) -> str:
    """Return what each physical term is worth."""
    lines = head("cells", "protocol", "without", "MAPE", "100 (exp(mean abs ln) - 1)", "change")
    lines += [
        line(
            SUBSET_TEXT[row.subset],
            row.protocol,
            row.without,
            f"{row.mape:.1f}",
            f"{row.typical_factor_percent:.1f}",
            f"{row.change:+.1f}",
        )
        for row in board.terms
        if row.table == QUOTED
    ]
    return "\n".join(lines)


def kernels(board: Scoreboard) -> str:
    """Return the scores on measured kernels, means over boards or the only board."""
    names = [table.name for table in board.tables if table.kind == "kernels"]
    lines = head("table", "rows", "protocol", "median error", "strongest plain roofline")
    for name in names:
        scores = [score for score in board.scores if score.table == name]
        averaged = [score for score in scores if score.subset.startswith("mean of the boards")] or scores
        naive = {(score.part, score.protocol): score for score in averaged if score.model != PERFMODEL}
        for score in averaged:
            if score.model == PERFMODEL:
                other = naive[score.part, score.protocol]
                errors = (f"{score.median_ape:.1f}", f"{other.median_ape:.1f}")
                lines.append(line(name, f"{score.part} ({score.cells})", score.protocol, *errors))
    return "\n".join(lines)


BLOCKS: dict[str, Callable[[Scoreboard], str]] = {
    "scoreboard": unfitted,
    "protocols": protocols,
    "ratios": ratios,
    "factors": factors,
    "terms": terms,
    "kernels": kernels,
}
PAGES = {
    "docs/accuracy.md": ("scoreboard", "protocols", "ratios", "factors", "kernels"),
    "docs/physics.md": ("terms", "kernels"),
}


def with_block(text: str, name: str, block: str) -> str:
    """Return a page with what stands between the markers of a name replaced."""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    before, rest = text.split(start)
    _, after = rest.split(end)
    return f"{before}{start}\n{block}\n{end}{after}"


def page_text(page: str, board: Scoreboard) -> str:
    """Return a page, a path below the root, with its blocks written from a scoreboard."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in PAGES[page]:
        text = with_block(text, name, BLOCKS[name](board))
    return text


def main(arguments: list[str]) -> int:
    """Compute what is asked for, and write the pages."""
    if "--pages-only" not in arguments and "--released" not in arguments:
        outcome = run(["validate", "--all", "--to", str(DOCS), *arguments])
        if outcome:
            return outcome
    board = load_scoreboard(DOCS / RECORDS)
    if "--released" in arguments:
        scores = tuple(score for score in board.scores if score.model == PERFMODEL)
        save_scoreboard(
            Scoreboard(version=board.version, code=board.code, tables=board.tables, scores=scores), RELEASED
        )
    write_pages(board, DOCS)
    for page in PAGES:
        (ROOT / page).write_text(page_text(page, board), encoding="utf-8", newline="\n")
        sys.stdout.write(f"wrote {page}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
