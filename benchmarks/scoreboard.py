"""Recompute the committed scoreboard: the tables in README.md and docs/accuracy.md.

Run:  python benchmarks/scoreboard.py              (every protocol; some 13 minutes on two cores, seconds when kept)
      python benchmarks/scoreboard.py --ablation   (and what each physical term is worth; a minute more)

A test recomputes what takes seconds, and fails while the committed tables differ from it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

import perfmodel as pm
from perfmodel.validation.ablation import AblationRow, ablation
from perfmodel.validation.protocol_board import ProtocolRow, protocol_board
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


def protocol_lines(rows: Iterable[ProtocolRow]) -> list[str]:
    """Return protocols as lines of a markdown table, without its head."""
    lines = []
    for row in rows:
        own = f"{row.mape:.1f} | {row.typical_factor_percent:.1f} | {row.median_ape:.1f} | {row.p90_ape:.1f}"
        naive = (
            f"{row.naive} | {row.naive_mape:.1f} | {row.naive_typical_factor_percent:.1f}" if row.naive else "- | - | -"
        )
        cells = f"{SUBSET_TEXT[row.subset]} | {row.protocol} | {row.cells} | {row.fitted}"
        lines.append(f"| {cells} | **{own.replace(' | ', '** | ', 1)} | {row.geometric_mean_ratio:.2f} | {naive} |")
    return lines


def protocols(rows: Iterable[ProtocolRow]) -> str:
    """Return the scores under every protocol as a markdown table."""
    head = [
        "| cells | protocol | cells | constants | MAPE | 100 (exp(mean abs ln) - 1) | median | 90th percentile | bias "
        "| best naive rule, told the same | its MAPE | its 100 (exp(mean abs ln) - 1) |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *protocol_lines(rows)])


def factors(reports: Iterable[Report]) -> str:
    """Return the factors of fits to all cells as a markdown table."""
    lines = ["| cells | factor on | value | 80 % interval |", "|---|---|---|---|"]
    lines += [
        f"| {SUBSET_TEXT[row.subset]} | {row.name} | {row.factor:.2f} | {row.low:.2f} to {row.high:.2f} |"
        for report in reports
        for row in report.factors
    ]
    return "\n".join(lines)


def ablations(tables: Iterable[Iterable[AblationRow]]) -> str:
    """Return what each term is worth as a markdown table."""
    lines = ["| cells | protocol | without | MAPE | 100 (exp(mean abs ln) - 1) | change |", "|---|---|---|---|---|---|"]
    for table in tables:
        for row in table:
            scores = f"{row.mape:.1f} | {row.typical_factor_percent:.1f} | {row.change:+.1f}"
            lines.append(f"| {SUBSET_TEXT[row.subset]} | {row.protocol} | {row.without} | {scores} |")
    return "\n".join(lines)


BLOCKS = {"scoreboard": scoreboard, "ratios": ratios}
PAGES = {"README.md": ("scoreboard",), "docs/accuracy.md": ("scoreboard", "ratios")}
ABLATED = {"gpu": ("leave_one_device_out",)}
"""Headline protocols whose terms are left out one by one."""


def write_block(page: str, name: str, block: str) -> None:
    """Replace one block of a page."""
    path = ROOT / page
    path.write_text(with_block(path.read_text(), name, block))
    print(f"wrote {name} of {page}")


def main() -> None:
    """Write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ablation", action="store_true", help="leave every physical term out, too")
    ablated = parser.parse_args().ablation
    report = pm.validate("shi2016", protocol="nothing_fitted")
    for page in PAGES:
        (ROOT / page).write_text(recomputed(page, report))
        print(f"wrote {page}")
    board = protocols(protocol_board("shi2016"))
    for page in PAGES:
        write_block(page, "protocols", board)
    fits = [pm.validate("shi2016", protocol="all_fitted", only=subset) for subset in ("gpu", "cpu")]
    write_block("docs/accuracy.md", "factors", factors(fits))
    if ablated:
        tables = [ablation("shi2016", protocols=names, only=subset) for subset, names in ABLATED.items()]
        write_block("docs/accuracy.md", "ablation", ablations(tables))
    print(board)


if __name__ == "__main__":
    main()
