"""Write the device-hours of published training runs, and the least that a search finds for each, in docs/searching.md.

Run:  python tools/training_totals.py          (two minutes)
      python tools/training_totals.py RUN ...   (prints those runs only, e.g. llama1_7b)

tests/published/test_training_totals.py holds some lines of the page to this script.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

import perfmodel as pm
from markdown_text import grid, with_block
from perfmodel.atomic_write import save_text
from perfmodel.errors import check_known
from perfmodel.measurements.published_tables import PublishedRun, load_totals

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "searching.md"
TABLE: Final = "training_totals"
HEADINGS: Final = (
    "run", "devices", "published [k h]", "bound [k h]", "published / bound", "MFU of the bound", "its layout",
    "what is not in the bound",
)  # fmt: skip


def bound(run: PublishedRun, **narrower: Any) -> pm.FoundLayout:
    """Return the best layout of a run, searched with further arguments if there are any.

    No memory is left free, as a bound must not be above what runs that left less took.
    """
    graph = pm.zoo.build(run.builder, **run.builder_options)
    return pm.search(graph, **{"reserve": 0.0, **run.arguments, **narrower}).best


def cells(run: PublishedRun, best: Any) -> tuple[str, ...]:
    """Return a row of the page."""
    job, hours = best.job, float(best.totals.device_hours)
    layout = [f"{job.workers} workers"]
    layout += [f"tensor {job.tensor_size}"] if job.tensor_size > 1 else []
    layout += [f"{job.stages} stages"] if job.stages > 1 else []
    layout += [f"shard stage {job.shard_stage}"] if job.shard_stage else []
    layout += ["recomputed"] if job.recompute else []
    return (
        f"`{run.run}`",
        f"{run.arguments['devices']:,} in `{run.arguments['system']}`",
        f"{run.device_hours / 1e3:,.0f}",
        f"{hours / 1e3:,.0f}",
        f"{run.device_hours / hours:.2f}",
        f"{100 * float(best.row.mfu):.0f} %",
        ", ".join(layout),
        run.explained_by.replace(";", ","),
    )


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="[RUN]...", help="Print these only.")] = None,
) -> None:
    """Search a layout for each published run, and write or print its least time."""
    rows = {run.run: run for run in load_totals(TABLE).rows}
    for name in names or ():
        check_known("training run", name, rows)
    block = grid(HEADINGS, [cells(run, bound(run)) for run in (rows[name] for name in names or rows)])
    if names:
        typer.echo(block)
    else:
        save_text(PAGE, with_block(PAGE.read_text(encoding="utf-8"), TABLE, block))


if __name__ == "__main__":
    typer.run(main)
