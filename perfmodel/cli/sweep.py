"""``perfmodel sweep``: every configuration of a space of what-ifs, as a table or a file."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from perfmodel.cli.arguments import takes_arguments
from perfmodel.cli.networks import NetworkArgument, OptionOption, load_graph
from perfmodel.cli.output import Answer, check_writable, key_values, number_as_typed
from perfmodel.errors import ArgumentError

if TYPE_CHECKING:
    from perfmodel.planning.sweeps.table import Sweep

Values: TypeAlias = list[str] | None
"""Values of an axis: an option may be repeated, and each time list several between commas."""

WORDS = {"true": True, "false": False, "none": None}
"""What these words mean as a value of an axis."""

BEST_SHOWN = 10
"""Configurations that ``--best`` shows. [1]"""


@takes_arguments("link", several=True)
def sweep_command(
    graph: NetworkArgument,
    arguments: dict[str, list[str]],
    axis: Annotated[
        Values, typer.Option(metavar="KEY=V,V...", help="Any of these by its name, e.g. overlap=true,false.")
    ] = None,
    column: Annotated[
        Values, typer.Option(metavar="NAME,NAME...", help="Results to keep, e.g. step_s,exposed_sync_s.")
    ] = None,
    usd_per_hour: Annotated[
        Values, typer.Option(metavar="USD|DEVICE=USD", help="Price of a device for an hour; repeatable.")
    ] = None,
    dataset_size: Annotated[str | None, typer.Option(metavar="N", help="Samples of an epoch.")] = None,
    limit: Annotated[str | None, typer.Option(metavar="N", help="Most configurations, drawn from all.")] = None,
    best: Annotated[str | None, typer.Option(metavar="COLUMN", help="Show the ten best by a column.")] = None,
    pareto: Annotated[
        str | None, typer.Option(metavar="COLUMN,COLUMN", help="Show what no other one beats in all of some columns.")
    ] = None,
    processes: Annotated[str | None, typer.Option(metavar="N", help="Processes that share the work.")] = None,
    option: OptionOption = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all rows as CSV.")] = None,
    parquet: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all rows as Parquet.")] = None,
    progress: Annotated[bool | None, typer.Option(help="Show how far it is; by default on a terminal.")] = None,
) -> Any:
    """Predict every combination of the values of some arguments, and show all, the best, or the Pareto front."""
    from perfmodel.planning.sweeps.sweep import sweep

    if best is not None and pareto is not None:
        raise ArgumentError("--best", best, "left out beside --pareto: one table is shown")
    for path, argument in ((csv, "--csv"), (parquet, "--parquet")):
        check_writable(path, argument=argument)
    options = {name: _values(name, typed) for name, typed in arguments.items()}
    axes, columns = _axes(axis or [], besides=options), None if column is None else _words(column)
    _check_shown(columns, [] if best is None else [best], [] if pareto is None else _words([pareto]))
    with ExitStack() as stack:
        s = sweep(
            load_graph(graph, options=option or []),
            columns=columns,
            usd_per_hour=_prices(usd_per_hour),
            dataset_size=number_as_typed(dataset_size),
            limit=number_as_typed(limit),
            executor=_executor(processes, stack),
            progress=_is_terminal() if progress is None else progress,
            **axes,
        )
    if csv is not None:
        s.to_csv(csv)
    if parquet is not None:
        s.to_parquet(parquet)
    shown = _chosen(s, best, pareto)
    text = partial(str, shown) if shown is s else lambda: f"{shown}\nof {s.title}"
    return Answer(text=text, content=lambda: _content(s, shown))


def _words(typed: list[str]) -> list[str]:
    return [word.strip() for each in typed for word in each.split(",")]


def _values(name: str, typed: list[str]) -> list[Any]:
    """Return the values of an axis: numbers, truth values, names."""
    from perfmodel.planning.sweeps.axes import DEFAULTS

    # of a strategy or an optimizer "none" is the name of one
    words = {text: value for text, value in WORDS.items() if value is not None or DEFAULTS.get(name) is None}
    return [words.get(word.lower(), number_as_typed(word)) for word in _words(typed)]


def _axes(typed: list[str], *, besides: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return all axes: those of options of their own, and those that were typed with their names."""
    axes: dict[str, list[Any]] = {}
    for each in typed:
        typed_key, equals, values = each.partition("=")
        key = typed_key.replace("-", "_")
        if not equals or not key.isidentifier():
            raise ArgumentError("--axis", each, "KEY=VALUE,VALUE...")
        if key in besides:
            raise ArgumentError("--axis", each, f"left out beside --{key.replace('_', '-')}, which lists its values")
        axes.setdefault(key, []).extend(_values(key, [values]))
    return besides | axes


def _prices(typed: list[str] | None) -> Any:
    if typed is None:
        return None
    if len(typed) == 1 and "=" not in typed[0]:
        return number_as_typed(typed[0])
    return key_values(typed, argument="--usd-per-hour")


def _executor(processes: str | None, stack: ExitStack) -> Any:
    """Return a pool of so many processes, which ends with the block; None for this one alone."""
    from concurrent.futures import ProcessPoolExecutor

    from perfmodel.prediction.arguments.checks import whole_number

    if processes is None:
        return None
    count = whole_number("--processes", number_as_typed(processes), maximum=256)
    return None if count == 1 else stack.enter_context(ProcessPoolExecutor(count))


def _is_terminal() -> bool:
    import sys

    return sys.stderr.isatty()


def _check_shown(columns: list[str] | None, best: list[str], pareto: list[str]) -> None:
    """Refuse columns of ``--best`` and ``--pareto`` that the table will not have, before any work is done."""
    from perfmodel.planning.sweeps.results import check_ranked, checked_columns

    for name in (*best, *pareto):
        check_ranked(name, checked_columns(columns))


def _chosen(s: Sweep, best: str | None, pareto: str | None) -> Sweep:
    if best is not None:
        return s.best(best, count=BEST_SHOWN)  # type: ignore[no-any-return]
    return s if pareto is None else s.pareto(*_words([pareto]))


def _content(s: Sweep, shown: Sweep) -> dict[str, Any]:
    """Return what ``--json`` prints: how many there were, and the rows that are shown."""
    from perfmodel.planning.wording import plain

    return {
        "configurations": len(s),
        "fitting": len(s.feasible),
        "refused": s.refused,
        "columns": list(s.columns),
        "rows": [row | plain({name: row[name] for name in s.space.by_name}) for row in shown],
    }
