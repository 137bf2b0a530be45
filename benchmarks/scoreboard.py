"""Recompute the committed scoreboard: the tables in README.md and docs/accuracy.md.

Run:  python benchmarks/scoreboard.py            (a test fails while the committed tables differ from this)
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

import perfmodel as pm
from perfmodel.validation.report import Report

ROOT = Path(__file__).resolve().parent.parent
SUBSET_TEXT = {
    "gpu": "GPU",
    "cpu": "CPU, threads up to the cores",
    "cpu_oversubscribed": "CPU, more threads than cores",
}


def scoreboard(report: Report) -> str:
    """Return the scoreboard of a validation as a markdown table."""
    lines = [
        "| cells | predictions | cells | MAPE | median | 90th percentile | 100 (exp(mean abs ln) - 1) | bias |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in report.scoreboard:
        name = f"**{row.model}, nothing fitted**" if row.model == "perfmodel" else row.model
        figures = f"{row.mape:.1f} | {row.median_ape:.1f} | {row.p90_ape:.1f} | {row.typical_factor_percent:.1f}"
        cells = f"{SUBSET_TEXT[row.subset]} | {name} | {row.cells}"
        lines.append(f"| {cells} | {figures} | {row.geometric_mean_ratio:.2f} |")
    orders = []
    for subset in report.subsets:
        share, pairs = report.only(subset).rank_order
        orders.append(f"{SUBSET_TEXT[subset]} {share:.0%} of {pairs}")
    lines += ["", f"Pairs of frameworks on one network and device in the right order: {'; '.join(orders)}."]
    feedforward = []
    for subset in ("gpu", "cpu"):
        cells = [cell for cell in report.only(subset).cells if not cell.is_recurrent]
        mape = 100 * fmean(abs(cell.ratio - 1) for cell in cells)
        feedforward.append(f"{SUBSET_TEXT[subset]} {mape:.1f} ({len(cells)} cells)")
    lines += ["", f"MAPE of perfmodel on the cells without LSTM, as for Paleo's rule: {'; '.join(feedforward)}."]
    return "\n".join(lines)


def ratios(report: Report) -> str:
    """Return the lowest and highest predicted / measured of each network and framework as a markdown table."""
    frameworks = sorted({cell.framework for cell in report.cells})
    networks = list(dict.fromkeys(cell.network for cell in report.cells))
    lines = [
        f"| cells | network | {' | '.join(frameworks)} |",
        f"|---|---|{'---|' * len(frameworks)}",
    ]
    for subset in ("gpu", "cpu"):
        cells = report.only(subset).cells
        for network in networks:
            ranges = []
            for framework in frameworks:
                found = [cell.ratio for cell in cells if (cell.network, cell.framework) == (network, framework)]
                ranges.append(f"{min(found):.2f} to {max(found):.2f}" if found else "-")
            lines.append(f"| {SUBSET_TEXT[subset]} | {network} | {' | '.join(ranges)} |")
    return "\n".join(lines)


def with_block(text: str, name: str, block: str) -> str:
    """Return a page with what stands between the markers of a name replaced."""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    before, rest = text.split(start)
    _, after = rest.split(end)
    return f"{before}{start}\n{block}\n{end}{after}"


def recomputed(page: str, report: Report) -> str:
    """Return the text of a page, a path below the root, with its tables recomputed."""
    text = (ROOT / page).read_text()
    for name in PAGES[page]:
        text = with_block(text, name, BLOCKS[name](report))
    return text


BLOCKS = {"scoreboard": scoreboard, "ratios": ratios}
PAGES = {"README.md": ("scoreboard",), "docs/accuracy.md": ("scoreboard", "ratios")}


def main() -> None:
    """Write the pages."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    report = pm.validate("shi2016", protocol="nothing_fitted")
    for page in PAGES:
        (ROOT / page).write_text(recomputed(page, report))
        print(f"wrote {page}")
    print(scoreboard(report))


if __name__ == "__main__":
    main()
