"""The page of a scoreboard: every table, protocol and naive rule, pictures, and the worst cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from board_records import KERNELS, KINDS, STEPS, SYSTEMS, BoardScore, Scoreboard, ScoredTable, WorstCell
from markdown_text import TEXTS, grid
from perfmodel.presentation.quantities import seconds_text
from perfmodel.validation.reports.own_tables import NETWORKS
from perfmodel.validation.scores.table_report import PERFMODEL, WITH_SET_ASIDE
from score_kernels import MEAN_OF_BOARDS

SUBSET_TEXT: Final = {
    "gpu": "GPU",
    "cpu": "CPU, threads up to the cores",
    "cpu_oversubscribed": "CPU, more threads than cores",
}
"""Subset -> its name in texts."""

METRICS: Final = {
    "cells": "{.cells}",
    "constants": "{.fitted}",
    "MAPE": "{.mape:.1f}",
    "log error": "{.typical_factor_percent:.1f}",
    "median": "{.median_ape:.1f}",
    "p90": "{.p90_ape:.1f}",
    "bias": "{.geometric_mean_ratio:.2f}",
    "in 10 %": "{.percent_within_10:.0f}",
    "in 25 %": "{.percent_within_25:.0f}",
}
"""Heading of each figure of a score -> its format."""


def figures(score: BoardScore, *names: str) -> tuple[str, ...]:
    """Return some figures of a score as pages show them, or all."""
    return tuple(METRICS[name].format(score) for name in names or METRICS)


INTERVAL_COLUMNS: Final = ("in 80 % interval", "high / low", "interval score, constant ratio's")

MOST_FIGURES: Final = 2000
"""Characters of an explanation that are shown. [1]"""


def page_blocks(board: Scoreboard, *, pictures: Sequence[str]) -> list[str]:
    """Return the page of a scoreboard."""
    blocks = ["# Scoreboard", TEXTS["scoreboard"]["introduction"], *_tables(board)]
    for table in sorted(board.tables, key=lambda shown: KINDS.index(shown.kind)):
        rows = board.of_table(table.name)
        shown = [path for path in pictures if Path(path).name.startswith(f"{table.name}_")]
        blocks.append(f"## {table.name}{'' if table.is_shipped else ' (not in this repository)'}")
        blocks += _KINDS[table.kind](rows, table)
        blocks += [f"![predicted against measured: {Path(path).stem}]({path})" for path in shown]
    return blocks


def _tables(board: Scoreboard) -> Iterator[str]:
    rows = [
        (
            table.name,
            str(table.rows),
            "yes" if table.is_shipped else "computed on a table that is not in this repository",
            f"`{table.sha256[:16]}`",
            table.not_scored or "-",
        )
        for table in board.tables
    ]
    yield grid(("table", "rows scored", "comes with perfmodel", "SHA-256", "not scored, and why"), rows)
    yield (
        f"Computed by version {board.version}, code `{board.code}`. A hash is that of the table's CSV (and its "
        "description), its first 16 digits; all of it is in `scoreboard.json`, with every figure of this page."
    )


def _steps(board: Scoreboard, table: ScoredTable) -> Iterator[str]:
    for subset in dict.fromkeys(score.subset for score in board.scores):
        scores = [score for score in board.scores if score.subset == subset]
        yield f"### {table.name}: {SUBSET_TEXT[subset]}"
        yield _protocols(scores)
        yield "Every naive rule, told the same cells as each fold:"
        yield _naive_rules(scores)
        worst = [cell for cell in board.worst if cell.subset == subset]
        if worst:
            yield (
                f"The {len(worst)} worst cells, nothing fitted, each with what the prediction and the table's "
                "description say of it:"
            )
            yield "\n".join(f"{place}. {_worst(cell)}" for place, cell in enumerate(worst, 1))


def _protocols(scores: Sequence[BoardScore]) -> str:
    aside = {score.protocol: score for score in scores if score.model == WITH_SET_ASIDE}
    scored = [score for score in scores if score.model == PERFMODEL]
    head = ("protocol", *METRICS, "90 % interval of MAPE", *INTERVAL_COLUMNS)
    head = (*head, "with the cells set aside") if aside else head
    rows = []
    for score in scored:
        with_aside = aside.get(score.protocol)
        extra = f"{with_aside.mape:.1f}, {with_aside.typical_factor_percent:.1f}" if with_aside else "-"
        cells = (score.protocol, *figures(score), _interval(score), *_intervals(score))
        rows.append((*cells, extra) if aside else cells)
    return grid(head, rows)


def _interval(score: BoardScore) -> str:
    if score.mape_low is None or score.mape_high is None:
        return "-"
    return f"{score.mape_low:.1f} to {score.mape_high:.1f}"


def _intervals(score: BoardScore) -> tuple[str, str, str]:
    covered, width, log_score = score.interval_coverage_percent, score.interval_width, score.interval_score
    constant = score.constant_interval_score
    if covered is None or width is None or log_score is None:
        return "-", "-", "-"
    return f"{covered:.0f}", f"{width:.2f}", f"{log_score:.2f}, {'-' if constant is None else f'{constant:.2f}'}"


def _naive_rules(scores: Sequence[BoardScore]) -> str:
    """Return MAPE and typical error of every naive rule, a line for each protocol."""
    naive = [score for score in scores if not score.model.startswith(PERFMODEL)]
    rules = list(dict.fromkeys(score.model for score in naive))
    by_rule = {(score.protocol, score.model): score for score in naive}
    protocols = dict.fromkeys(score.protocol for score in scores)
    perfmodel = {score.protocol: score for score in scores if score.model == PERFMODEL}
    rows = []
    for protocol in protocols:
        of_rules = [by_rule.get((protocol, rule)) for rule in rules]
        rows.append((protocol, *(_both(score, perfmodel[protocol]) for score in (perfmodel[protocol], *of_rules))))
    return grid(("protocol: MAPE, log error", PERFMODEL, *rules), rows)


def _both(score: BoardScore | None, perfmodel: BoardScore) -> str:
    if score is None:
        return "-"
    fewer = f" ({score.cells} cells)" if score.cells != perfmodel.cells else ""
    return f"{score.mape:.1f}, {score.typical_factor_percent:.1f}{fewer}"


def _worst(cell: WorstCell) -> str:
    times = f"measured {seconds_text(cell.measured_s)}, predicted / measured {cell.ratio:.2f}"
    return f"**{cell.cell}**: {times}. {cell.explanation[:MOST_FIGURES]}"


def _kernels(board: Scoreboard, table: ScoredTable) -> Iterator[str]:
    yield TEXTS["scoreboard"]["kernels"]
    for protocol in dict.fromkeys(score.protocol for score in board.scores):
        yield f"### {table.name}: {protocol}"
        yield _kernel_grid([score for score in board.scores if score.protocol == protocol])


def _kernel_grid(scores: Sequence[BoardScore]) -> str:
    scored = [score for score in scores if score.model == PERFMODEL]
    naive = {(score.subset, score.part): score for score in scores if score.model != PERFMODEL}
    noted = any(score.note for score in scored)
    head = ("board", "rows", *METRICS, "roofline: median", "its MAPE")
    head = (*head, "note") if noted else head
    rows = []
    for score in scored:
        other = naive[score.subset, score.part]
        cells = (score.subset, score.part, *figures(score))
        cells = (*cells, f"{other.median_ape:.1f}", f"{other.mape:.1f}")
        rows.append((*cells, score.note or "-") if noted else cells)
    strong = {place for place, score in enumerate(scored) if score.subset.startswith(MEAN_OF_BOARDS)}
    return grid(head, rows, strong=strong)


def _own(board: Scoreboard, table: ScoredTable) -> Iterator[str]:
    """Yield the part of a table that is scored in its own way."""
    if not board.scores:
        yield f"Nothing is scored: {table.not_scored}. `perfmodel validate {table.name}` prints them."
        return
    command = f"`perfmodel validate {table.name}{'' if table.is_shipped else ' --data FOLDER'}`"
    yield OWN_TEXTS[table.kind].format(command=command)
    yield _own_grid(board, with_intervals=table.kind == NETWORKS)
    if notes := [f"- {score.note}" for score in board.scores if score.note]:
        yield "\n".join(notes)


OWN_TEXTS: Final[dict[str, str]] = TEXTS["scoreboard"]["own"]
"""Kind of table -> the meaning and the scoring of its rows."""


def _own_grid(board: Scoreboard, *, with_intervals: bool = False) -> str:
    more = INTERVAL_COLUMNS if with_intervals else ()
    head = ("systems", "rows", "predictions", *METRICS, *more)
    rows = [
        (score.subset, score.part, score.model, *figures(score), *_intervals(score)[: len(more)])
        for score in board.scores
    ]
    strong = {place for place, score in enumerate(board.scores) if score.model == PERFMODEL}
    return grid(head, rows, strong=strong)


_KINDS: Final[dict[str, Callable[[Scoreboard, ScoredTable], Iterator[str]]]] = {
    STEPS: _steps,
    KERNELS: _kernels,
    SYSTEMS: _steps,
    **dict.fromkeys(OWN_TEXTS, _own),
}
"""Kind of table -> its part of the page."""
