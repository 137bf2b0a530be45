"""Recompute the committed scoreboard: the tables in README.md and docs/accuracy.md.

Run:  python benchmarks/scoreboard.py            (a test fails while the committed tables differ from this)
"""

from __future__ import annotations

import argparse
from pathlib import Path

import perfmodel as pm

ROOT = Path(__file__).resolve().parent.parent
START, END = "<!-- scoreboard:start -->", "<!-- scoreboard:end -->"
SUBSET_TEXT = {
    "gpu": "GPU",
    "cpu": "CPU, threads up to the cores",
    "cpu_oversubscribed": "CPU, more threads than cores",
}


def scoreboard() -> str:
    """Return the scoreboard of the measured table as a markdown table."""
    report = pm.validate("shi2016", protocol="nothing_fitted")
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
    return "\n".join(lines)


def with_block(text: str, block: str) -> str:
    """Return a page with what stands between its markers replaced."""
    before, rest = text.split(START)
    _, after = rest.split(END)
    return f"{before}{START}\n{block}\n{END}{after}"


def main() -> None:
    """Write the pages."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    block = scoreboard()
    for page in (ROOT / "README.md", ROOT / "docs" / "accuracy.md"):
        page.write_text(with_block(page.read_text(), block))
        print(f"wrote {page.relative_to(ROOT)}")
    print(block)


if __name__ == "__main__":
    main()
