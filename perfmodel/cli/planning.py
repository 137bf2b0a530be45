"""Commands about changes to a job, hardware to hire, and layouts: ``compare``, ``advise``, ``plan``, ``search`` ..."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from perfmodel.cli.output import (
    AXES_BESIDES,
    Answer,
    Network,
    ProgressOption,
    changed_arguments,
    check_plot,
    check_writable,
    converter,
    key_values,
    named_arguments,
    number_as_typed,
    takes_arguments,
    takes_mapping,
    value_as_typed,
)
from perfmodel.errors import ArgumentError

if TYPE_CHECKING:
    from perfmodel.planning.sweeps.answer import Sweep


@takes_arguments(
    verb="perfmodel.planning.plans.plan:plan",
    not_options=("device", "system", "workers", "sync"),
    plot="Draw cost against time (png, pdf, svg).",
)
def plan_command(network: Network, arguments: dict[str, Any], *, candidate: list[str]) -> Any:
    """Compare hardware for a job: hours and cost of each candidate, the best, binding limits, ways to meet them.

    Parameters
    ----------
    candidate : WHAT
        Hardware to consider: a price or instance, e.g. p3.2xlarge; with numbers of workers p2.16xlarge:4,8,16; or
        price=0.5;system=survey_fig5;workers=1,2,4 (a number is USD per hour for one of your own devices); several
        machines price=p5.48xlarge;machines=8,16; another device in its slots price=0.5;system=survey_fig5;device=t4;
        with --dataset also input_from=object_store;decode_cores=8. Repeatable. [-]
    """
    from perfmodel.planning.plans.plan import plan

    return plan(network.loaded, candidates=[candidate_as_typed(text) for text in candidate], **arguments)


def candidate_as_typed(typed: str) -> dict[str, Any]:
    """Convert ``p2.16xlarge:4,8`` or ``price=0.5;system=survey_fig5;workers=1,2`` to a candidate of ``plan``.

    >>> candidate_as_typed("p2.16xlarge:4,8")
    {'price': 'p2.16xlarge', 'workers': (4, 8)}
    >>> candidate_as_typed("price=0.5;device=gtx_1080")
    {'price': 0.5, 'device': 'gtx_1080'}
    """
    if "=" not in typed:
        price, colon, workers = typed.rpartition(":")
        stated = {"price": price, "workers": workers} if colon else {"price": typed}
    else:
        pairs = [part.partition("=") for part in typed.split(";")]
        if any(not equals or not key for key, equals, _ in pairs):
            raise ArgumentError("--candidate", typed, "a price, price:workers, or key=value;key=value")
        keys = [key.strip() for key, _, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ArgumentError("--candidate", typed, f"must not repeat {' and '.join(twice)}")
        stated = {key.strip(): value.strip() for key, _, value in pairs}
    candidate: dict[str, Any] = dict(stated)
    for name in ("workers", "machines"):
        if name in candidate:
            candidate[name] = tuple(number_as_typed(count) for count in stated[name].split(","))
    for name in ("price", "decode_cores"):
        if isinstance(number := number_as_typed(stated.get(name)), int | float):
            candidate[name] = number
    return candidate


OTHER_NETWORK = "network"
"""Key of ``--with`` that names another network."""


@takes_arguments(verb="perfmodel.planning.comparison:compare", plot="Draw a waterfall (png, pdf, svg).")
def compare_command(network: Network, arguments: dict[str, Any], *, changes: list[str]) -> Any:
    """Explain why a second configuration is slower or faster than the first: inputs, parts, operations, memory.

    Parameters
    ----------
    changes : KEY=VALUE
        A change in the second configuration: any argument of predict (device=tesla_k40, batch-size=32,
        sync=parameter_server; KEY= for its default) or network=NAME; repeatable. [-]
    """
    from perfmodel.planning.comparison import compare
    from perfmodel.prediction.predict import predict

    changed, per = named_arguments(changes, argument="--with", besides=(OTHER_NETWORK,)), arguments.pop("per", None)
    other = changed.pop(OTHER_NETWORK, None)
    first = network.loaded
    second = first if other is None else Network(str(other)).loaded
    return compare(predict(first, **arguments), predict(second, **changed_arguments(arguments, changed)), per=per)


@takes_arguments(verb="perfmodel.planning.advice:advise")
def advise_command(
    network: Network, arguments: dict[str, Any], *, top: Annotated[int | None, typer.Option(min=1)] = None
) -> Any:
    """Rank single changes to a job by the samples per second that they gain, with the reason for each.

    Parameters
    ----------
    top : N
        List the N best changes, not the best of each kind. [1]
    """
    from perfmodel.planning.advice import advise, report

    advice = advise(network.loaded, **arguments)
    return Answer(text=lambda: report(advice, shown=top), content=advice.to_dict)


@takes_arguments(
    verb="perfmodel.planning.scaling:scaling",
    not_options=("device", "system", "workers", "sync"),
    plot="Draw it (png, pdf, svg).",
)
def scaling_command(network: Network, arguments: dict[str, Any]) -> Any:
    """Predict speed-up, efficiency, waiting times, and time and price of an epoch over the number of workers."""
    from perfmodel.planning.scaling import scaling

    return scaling(network.loaded, **arguments)


COUNTS = (1, 2, 5, 10, 20, 40, 100)
"""Numbers of workers of ``stragglers`` unless they are given; its plot goes from 1 to the most. [1]"""


@takes_arguments(
    verb="perfmodel.planning.scaling:straggler_slowdown", not_options=("workers",), only=("backup_workers",)
)
def stragglers_command(arguments: dict[str, Any], *, mark: str | None = None, plot: Path | None = None) -> Any:
    """Predict how much longer a synchronous step takes because it waits for the slowest worker.

    Parameters
    ----------
    mark : N
        Number of workers to mark in the plot. [1]
    plot : FILE
        Draw it (png, pdf, svg). [-]
    """
    from perfmodel.planning.scaling import straggler_slowdown
    from perfmodel.prediction.arguments.checks import whole_number

    check_plot(plot)
    if mark is not None and plot is None:
        raise ArgumentError("--mark", mark, "must not be given without --plot")
    counts = arguments.pop("workers", COUNTS)
    slowdown = straggler_slowdown(workers=counts, **arguments)
    if plot is not None:
        marked = None if mark is None else whole_number("mark", number_as_typed(mark))
        least = 1 + arguments.get("backup_workers", 0)
        drawn = straggler_slowdown(workers=range(least, max(counts) + 1), **arguments)
        drawn.plot(plot, marked_workers=marked)
    return slowdown


Values: TypeAlias = list[str] | None
"""Values of an axis; the option may be repeated, each time with several values separated by commas."""
WORDS = {"true": True, "false": False, "none": None}
"""Meaning of words typed as a value of an axis."""

BEST_SHOWN = 10
"""Configurations that ``--best`` shows. [1]"""


@takes_arguments(*AXES_BESIDES, several=True)
def sweep_command(
    network: Network,
    arguments: dict[str, list[str]],
    *,
    axis: Values = None,
    column: Values = None,
    usd_per_hour: Values = None,
    dataset_size: str | None = None,
    limit: str | None = None,
    best: str | None = None,
    pareto: str | None = None,
    processes: str | None = None,
    csv: Path | None = None,
    parquet: Path | None = None,
    progress: ProgressOption = None,
) -> Any:
    """Predict every combination of the values of some arguments; show all, the best, or the Pareto front.

    Parameters
    ----------
    axis : KEY=V,V...
        Values of any of these arguments by name, e.g. overlap=true,false. [-]
    column : NAME,NAME...
        Results to keep, e.g. step_s,exposed_sync_s. [-]
    usd_per_hour : USD|DEVICE=USD
        Price of a device for an hour; repeatable. [USD/h]
    dataset_size : N
        Samples of an epoch. [samples]
    limit : N
        Evaluate at most N configurations, drawn from all. [1]
    best : COLUMN
        Show the ten best by a column. [-]
    pareto : COLUMN,COLUMN
        Show the configurations that no other beats in all of these columns. [-]
    processes : N
        Processes that share the work. [1]
    csv : FILE
        Write all rows as CSV. [-]
    parquet : FILE
        Write all rows as Parquet. [-]
    """
    from perfmodel.planning.sweeps.results import check_ranked, checked_columns
    from perfmodel.planning.sweeps.sweep import sweep

    if best is not None and pareto is not None:
        raise ArgumentError("--best", best, "must not be given with --pareto")
    for path, argument in ((csv, "--csv"), (parquet, "--parquet")):
        check_writable(path, argument=argument)
    options = {name: _values(name, typed) for name, typed in arguments.items()}
    axes, columns = _axes(axis or [], besides=options), None if column is None else _words(column)
    for name in [*([] if best is None else [best]), *([] if pareto is None else _words([pareto]))]:
        check_ranked(name, checked_columns(columns))  # before any work is done
    with ExitStack() as stack:
        s = sweep(
            network.loaded,
            columns=columns,
            usd_per_hour=_prices(usd_per_hour),
            dataset_size=number_as_typed(dataset_size),
            limit=number_as_typed(limit),
            executor=_executor(processes, stack),
            progress=sys.stderr.isatty() if progress is None else progress,
            **axes,
        )
    if csv is not None:
        s.to_csv(csv)
    if parquet is not None:
        s.to_parquet(parquet)
    shown = _chosen(s, best, pareto)
    text = partial(str, shown) if shown is s else lambda: f"{shown}\nof {s.title}"
    return Answer(text=text, content=lambda: _content(s, shown))


@takes_arguments(
    verb="perfmodel.planning.search.search:search",
    not_options=("batch_size", "parallelism", "phase", "calibration"),
    several=True,
    single=("system", "device", "machines", "global_batch_size"),
    plot="Draw time over memory of all layouts (png, pdf, svg).",
)
def search_command(
    network: Network,
    arguments: dict[str, Any],
    *,
    micro_batch_size: Values = None,
    limit: Values = None,
    usd_per_hour: Values = None,
    command: str | None = None,
    progress: ProgressOption = None,
) -> Any:
    """Find the best layout of a job over many devices: time, price and MFU of each, the front, how sure it is.

    Parameters
    ----------
    micro_batch_size : N,N...
        Samples of a micro-batch. [samples]
    limit : KEY=N
        The most that an argument may be, e.g. stages=2; repeatable. [-]
    usd_per_hour : USD|DEVICE=USD
        Price of a device for an hour; repeatable. [USD/h]
    command : PROGRAM
        Print only the command of the best layout: megatron or torchtitan. [-]
    """
    from perfmodel.planning.search.programs.registry import PROGRAMS
    from perfmodel.planning.search.search import search
    from perfmodel.prediction.arguments.checks import one_of
    from perfmodel.prediction.arguments.table import ARGUMENTS

    if command is not None:
        one_of("--command", command, tuple(PROGRAMS))
    options: dict[str, Any] = {}
    for name, typed in arguments.items():
        values: Any = _values(name, typed) if name in ARGUMENTS and isinstance(typed, list) else typed
        options[name] = values[0] if isinstance(values, list) and len(values) == 1 else values
    if micro_batch_size is not None:
        options["micro_batch_size"] = _values("micro_batches", micro_batch_size)
    for name, flag in (("system", "--system"), ("global_batch_size", "--global-batch-size")):
        if options.get(name) is None:
            raise ArgumentError(flag, None, "given: a search is of a system and a batch")
    answer = search(
        network.loaded,
        limits=None if limit is None else key_values(limit, argument="--limit", as_typed=number_as_typed),
        usd_per_hour=_prices(usd_per_hour),
        progress=sys.stderr.isatty() if progress is None else progress,
        **options,
    )
    if command is None:
        return answer
    best = answer.best
    return Answer(text=lambda: best.command(command), content=lambda: {"command": best.command(command)})


def _words(typed: list[str]) -> list[str]:
    """Split values at commas, but not the options of one value: ``lbfgs:history_size=5,evaluations=2``."""
    return [word.strip() for text in typed for word in re.split(r",(?!\s*\w+=)", text)]


def _values(name: str, typed: list[str]) -> list[Any]:
    """Return the values of an axis: numbers, Booleans, names; a mapping is one value."""
    from perfmodel.planning.sweeps.space import DEFAULTS

    if takes_mapping(name):
        return [None if text.lower() == "none" else value_as_typed(name, text) for text in typed]
    # "none" is the name of a strategy and of an optimizer
    convert = converter(name)
    words = {text: value for text, value in WORDS.items() if value is not None or DEFAULTS.get(name) is None}
    return [words.get(word.lower(), convert(word)) for word in _words(typed)]


def _axes(typed: list[str], *, besides: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return all axes: those from their own options, and those typed by name."""
    axes: dict[str, list[Any]] = {}
    for axis in typed:
        typed_key, equals, values = axis.partition("=")
        key = typed_key.replace("-", "_")
        if not equals or not key.isidentifier():
            raise ArgumentError("--axis", axis, "KEY=VALUE,VALUE...")
        if key in besides:
            raise ArgumentError(
                "--axis", axis, f"must not name an argument that has its own option, --{key.replace('_', '-')}"
            )
        axes.setdefault(key, []).extend(_values(key, [values]))
    return besides | axes


def _prices(typed: list[str] | None) -> Any:
    if typed is None:
        return None
    if len(typed) == 1 and "=" not in typed[0]:
        return number_as_typed(typed[0])
    return key_values(typed, argument="--usd-per-hour", as_typed=number_as_typed)


def _executor(processes: str | None, stack: ExitStack) -> Any:
    """Start a pool of processes for the block; None runs everything in this process."""
    from perfmodel.prediction.arguments.checks import whole_number
    from perfmodel.worker_processes import worker_pool

    if processes is None:
        return None
    count = whole_number("--processes", number_as_typed(processes), maximum=256)
    if count == 1:
        return None
    return stack.enter_context(worker_pool(count))


def _chosen(s: Sweep, best: str | None, pareto: str | None) -> Sweep:
    if best is not None:
        return s.best(best, count=BEST_SHOWN)  # type: ignore[no-any-return]
    return s if pareto is None else s.pareto(*_words([pareto]))


def _content(s: Sweep, shown: Sweep) -> dict[str, Any]:
    """Return the JSON output: the number of configurations, and the rows shown."""
    from perfmodel.presentation.results import plain

    return {
        "configurations": len(s),
        "fitting": len(s.feasible),
        "refused": s.refused,
        "columns": list(s.columns),
        "rows": [row | plain({name: row[name] for name in s.space.by_name}, as_argument=True) for row in shown],
    }
