"""``compare``, ``advise``, ``scaling``, ``stragglers``, ``plan`` and ``sweep``: changes to a job, hardware to hire."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from perfmodel.cli.output import (
    Answer,
    changed_arguments,
    check_plot,
    check_writable,
    key_values,
    named_arguments,
    number_as_typed,
    takes_arguments,
    takes_mapping,
    value_as_typed,
)
from perfmodel.cli.specs import NetworkArgument, OptionOption, load_graph
from perfmodel.errors import ArgumentError

if TYPE_CHECKING:
    from perfmodel.planning.sweeps.table import Sweep

Number: TypeAlias = str | None
"""A number as typed; the library checks it."""

CANDIDATE_HELP = (
    "Hardware to consider: a price or instance, e.g. p3.2xlarge; with numbers of workers p2.16xlarge:4,8,16; or "
    "price=0.5;system=survey_fig5;workers=1,2,4 (a number is USD per hour for one of your own devices); with --dataset "
    "also input_from=object_store;decode_cores=8. Repeatable."
)


CandidateOption: TypeAlias = Annotated[list[str], typer.Option(metavar="WHAT", help=CANDIDATE_HELP)]
SizeOption: TypeAlias = Annotated[Number, typer.Option(metavar="N", help="Samples per epoch, in host memory.")]
SamplesOption: TypeAlias = Annotated[Number, typer.Option(metavar="N", help="Total samples, instead of epochs.")]
SyncOption: TypeAlias = Annotated[
    str, typer.Option(metavar="HOW,HOW...", help="Ways to agree: ring_all_reduce, downpour ...")
]
PurchaseOption: TypeAlias = Annotated[str, typer.Option(metavar="HOW,HOW", help="on_demand, spot or both.")]
InterruptionsOption: TypeAlias = Annotated[
    Number, typer.Option(metavar="X", help="Interruptions of a spot instance per hour; your own estimate.")
]
CheckpointOption: TypeAlias = Annotated[str | None, typer.Option(metavar="NAME", help="Storage for checkpoints.")]
RestartOption: TypeAlias = Annotated[Number, typer.Option(metavar="S", help="Seconds until a new instance starts.")]
StorageOption: TypeAlias = Annotated[str | None, typer.Option(metavar="NAME", help="Price of storage.")]
StoredOption: TypeAlias = Annotated[Number, typer.Option(metavar="GB", help="Storage per instance.")]
EnergyOption: TypeAlias = Annotated[
    Number, typer.Option(metavar="USD", help="Price of a kWh of electricity for your own machines.")
]
PenaltyOption: TypeAlias = Annotated[
    Number, typer.Option(metavar="X", help="Share of updates that one update of staleness adds; your own estimate.")
]
NUMBERS = (
    "dataset_size", "epochs", "samples", "deadline_hours", "budget_usd",
    "interruptions_per_hour", "restart_s", "storage_gb", "usd_per_kwh", "staleness_penalty",
)  # fmt: skip
"""Options that are numbers."""
TEXTS = ("checkpoint_to", "storage_price")
"""Options that are passed on as typed."""


@takes_arguments(own=("device", "system", "workers", "sync"), plot="Draw cost against time (png, pdf, svg).")
def plan_command(
    graph: NetworkArgument,
    arguments: dict[str, Any],
    candidate: CandidateOption,
    dataset_size: SizeOption = None,
    epochs: Annotated[Number, typer.Option(metavar="N", help="Epochs.")] = None,
    samples: SamplesOption = None,
    deadline_hours: Annotated[Number, typer.Option(metavar="H", help="Longest time, in hours.")] = None,
    budget_usd: Annotated[Number, typer.Option(metavar="USD", help="Highest cost.")] = None,
    sync: SyncOption = "ring_all_reduce",
    purchase: PurchaseOption = "on_demand",
    interruptions_per_hour: InterruptionsOption = None,
    checkpoint_to: CheckpointOption = None,
    restart_s: RestartOption = "0",
    storage_price: StorageOption = None,
    storage_gb: StoredOption = None,
    usd_per_kwh: EnergyOption = None,
    staleness_penalty: PenaltyOption = "0",
    option: OptionOption = None,
) -> Any:
    """Compare hardware for a job: hours and cost of each candidate, the best, binding limits, ways to meet them."""
    typed = dict(locals())  # every option, by the name that the library uses too
    from perfmodel.planning.plans.plan import plan

    return plan(
        load_graph(graph, options=option or []),
        candidates=[candidate_as_typed(text) for text in candidate],
        sync=sync.split(","),
        purchase=purchase.split(","),
        **{name: number_as_typed(typed[name]) for name in NUMBERS},
        **{name: typed[name] for name in TEXTS},
        **arguments,
    )


def candidate_as_typed(typed: str) -> dict[str, Any]:
    """Convert ``p2.16xlarge:4,8`` or ``price=0.5;system=survey_fig5;workers=1,2`` to a candidate of ``plan``.

    Parameters
    ----------
    typed : str
        What was typed for ``--candidate``. [-]

    Returns
    -------
    dict
        Keys of a candidate. [-]

    Raises
    ------
    ArgumentError
        If a part has no ``=``, or a key is given twice.

    Examples
    --------
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
    if "workers" in candidate:
        candidate["workers"] = tuple(number_as_typed(count) for count in stated["workers"].split(","))
    for name in ("price", "decode_cores"):
        if isinstance(number := number_as_typed(stated.get(name)), int | float):
            candidate[name] = number
    return candidate


NETWORK = "network"
"""Key of ``--with`` that names another network."""


@takes_arguments(plot="Draw a waterfall (png, pdf, svg).")
def compare_command(
    graph: NetworkArgument,
    changes: Annotated[
        list[str],
        typer.Option(
            "--with",
            metavar="KEY=VALUE",
            help="A change in the second configuration: any argument of predict (device=tesla_k40, batch-size=32, "
            "sync=parameter_server; KEY= for its default) or network=NAME; repeatable.",
        ),
    ],
    arguments: dict[str, Any],
    option: OptionOption = None,
    per: Annotated[
        str | None,
        typer.Option(
            metavar="step|sample", help="Compare times per step or per sample; default step if both batches are equal."
        ),
    ] = None,
) -> Any:
    """Explain why a second configuration is slower or faster than the first: inputs, parts, operations, memory."""
    from perfmodel.planning.comparison import compare
    from perfmodel.prediction.predict import predict

    changed = named_arguments(changes, argument="--with", besides=(NETWORK,))
    other = changed.pop(NETWORK, None)
    network = load_graph(graph, options=option or [])
    second = network if other is None else load_graph(str(other), options=[])
    return compare(predict(network, **arguments), predict(second, **changed_arguments(arguments, changed)), per=per)


@takes_arguments()
def advise_command(
    graph: NetworkArgument,
    arguments: dict[str, Any],
    option: OptionOption = None,
    kinds: Annotated[
        str | None, typer.Option(metavar="KIND,KIND...", help="Kinds of change to try: batch_size, sync, device ...")
    ] = None,
    top: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="List the N best changes, not the best of each kind.")
    ] = None,
) -> Any:
    """Rank single changes to a job by the samples per second that they gain, with the reason for each."""
    from perfmodel.planning.advice import advise, report

    wanted = None if kinds is None else [kind.strip() for kind in kinds.split(",")]
    advice = advise(load_graph(graph, options=option or []), kinds=wanted, **arguments)
    return Answer(text=lambda: report(advice, shown=top), content=advice.to_dict)


WorkersOption: TypeAlias = Annotated[str, typer.Option(metavar="N,N...", help="Numbers of workers.")]
AgreementsOption: TypeAlias = Annotated[
    str, typer.Option(metavar="HOW,HOW...", help="Ways to agree: ring_all_reduce, parameter_server, downpour ...")
]
CriticalOption: TypeAlias = Annotated[
    Number, typer.Option(metavar="N", help="Batch size that takes twice the fewest updates; your own estimate.")
]
LeastOption: TypeAlias = Annotated[
    Number, typer.Option(metavar="N", help="Fewest updates to reach the loss, however large the batch.")
]


@takes_arguments(own=("device", "system", "workers", "sync"), plot="Draw it (png, pdf, svg).")
def scaling_command(
    graph: NetworkArgument,
    arguments: dict[str, Any],
    system: Annotated[str, typer.Option(metavar="NAME", help="A machine or cluster with GPUs: name or TOML file.")],
    workers: WorkersOption,
    sync: AgreementsOption = "ring_all_reduce",
    dataset_size: Annotated[Number, typer.Option(metavar="N", help="Samples of an epoch.")] = None,
    usd_per_hour: Annotated[Number, typer.Option(metavar="USD", help="Price of one worker for an hour.")] = None,
    critical_batch_size: CriticalOption = None,
    staleness_penalty: PenaltyOption = None,
    least_steps: LeastOption = None,
    option: OptionOption = None,
) -> Any:
    """Predict speed-up, efficiency, waiting times, and time and price of an epoch over the number of workers."""
    from perfmodel.planning.scaling import scaling

    return scaling(
        load_graph(graph, options=option or []),
        system=system,
        workers=[number_as_typed(count) for count in workers.split(",")],
        sync=sync.split(","),
        dataset_size=number_as_typed(dataset_size),
        usd_per_hour=number_as_typed(usd_per_hour),
        critical_batch_size=number_as_typed(critical_batch_size),
        staleness_penalty=number_as_typed(staleness_penalty),
        least_steps=number_as_typed(least_steps),
        **arguments,
    )


@takes_arguments(only=("backup_workers",))
def stragglers_command(
    arguments: dict[str, Any],
    workers: Annotated[
        str, typer.Option(metavar="N,N...", help="Numbers of workers; a plot goes from 1 to the most.")
    ] = "1,2,5,10,20,40,100",
    cv: Annotated[
        str, typer.Option(metavar="X,X...", help="Coefficients of variation of a worker's time.")
    ] = "0.05,0.1,0.2",
    distribution: Annotated[
        str, typer.Option(metavar="KIND", help="normal, lognormal or shifted_exponential.")
    ] = "normal",
    mark: Annotated[str | None, typer.Option(metavar="N", help="Number of workers to mark in the plot.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it (png, pdf, svg).")] = None,
) -> Any:
    """Predict how much longer a synchronous step takes because it waits for the slowest worker."""
    from perfmodel.errors import ArgumentError
    from perfmodel.planning.straggler_slowdown import straggler_slowdown
    from perfmodel.prediction.arguments.checks import whole_number

    check_plot(plot)
    if mark is not None and plot is None:
        raise ArgumentError("--mark", mark, "must not be given without --plot")
    counts = [number_as_typed(count) for count in workers.split(",")]
    variations = [number_as_typed(variation) for variation in cv.split(",")]
    asked: dict[str, Any] = {"cv": variations, "distribution": distribution, **arguments}
    slowdown = straggler_slowdown(workers=counts, **asked)
    if plot is not None:
        marked = None if mark is None else whole_number("mark", number_as_typed(mark))
        drawn = straggler_slowdown(workers=range(1 + sum(arguments.values()), max(counts) + 1), **asked)
        drawn.plot(plot, marked_workers=marked)
    return slowdown


Values: TypeAlias = list[str] | None
"""Values of an axis; the option may be repeated, each time with several values separated by commas."""

WORDS = {"true": True, "false": False, "none": None}
"""Meaning of words typed as a value of an axis."""

BEST_SHOWN = 10
"""Configurations that ``--best`` shows. [1]"""


@takes_arguments("link", several=True)
def sweep_command(
    graph: NetworkArgument,
    arguments: dict[str, list[str]],
    axis: Annotated[
        Values,
        typer.Option(metavar="KEY=V,V...", help="Values of any of these arguments by name, e.g. overlap=true,false."),
    ] = None,
    column: Annotated[
        Values, typer.Option(metavar="NAME,NAME...", help="Results to keep, e.g. step_s,exposed_sync_s.")
    ] = None,
    usd_per_hour: Annotated[
        Values, typer.Option(metavar="USD|DEVICE=USD", help="Price of a device for an hour; repeatable.")
    ] = None,
    dataset_size: Annotated[str | None, typer.Option(metavar="N", help="Samples of an epoch.")] = None,
    limit: Annotated[
        str | None, typer.Option(metavar="N", help="Evaluate at most N configurations, drawn from all.")
    ] = None,
    best: Annotated[str | None, typer.Option(metavar="COLUMN", help="Show the ten best by a column.")] = None,
    pareto: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,COLUMN", help="Show the configurations that no other beats in all of these columns."
        ),
    ] = None,
    processes: Annotated[str | None, typer.Option(metavar="N", help="Processes that share the work.")] = None,
    option: OptionOption = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all rows as CSV.")] = None,
    parquet: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all rows as Parquet.")] = None,
    progress: Annotated[bool | None, typer.Option(help="Show a progress bar; by default only on a terminal.")] = None,
) -> Any:
    """Predict every combination of the values of some arguments; show all, the best, or the Pareto front."""
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
            load_graph(graph, options=option or []),
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


def _words(typed: list[str]) -> list[str]:
    return [word.strip() for text in typed for word in text.split(",")]


def _values(name: str, typed: list[str]) -> list[Any]:
    """Return the values of an axis: numbers, Booleans, names; a mapping is one value."""
    from perfmodel.planning.sweeps.space import DEFAULTS

    if takes_mapping(name):
        return [None if text.lower() == "none" else value_as_typed(name, text) for text in typed]
    # "none" is the name of a strategy and of an optimizer
    words = {text: value for text, value in WORDS.items() if value is not None or DEFAULTS.get(name) is None}
    return [words.get(word.lower(), number_as_typed(word)) for word in _words(typed)]


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
    return key_values(typed, argument="--usd-per-hour")


def _executor(processes: str | None, stack: ExitStack) -> Any:
    """Start a pool of processes for the block; None runs everything in this process."""
    from concurrent.futures import ProcessPoolExecutor

    from perfmodel.prediction.arguments.checks import whole_number

    if processes is None:
        return None
    count = whole_number("--processes", number_as_typed(processes), maximum=256)
    return None if count == 1 else stack.enter_context(ProcessPoolExecutor(count))


def _chosen(s: Sweep, best: str | None, pareto: str | None) -> Sweep:
    if best is not None:
        return s.best(best, count=BEST_SHOWN)  # type: ignore[no-any-return]
    return s if pareto is None else s.pareto(*_words([pareto]))


def _content(s: Sweep, shown: Sweep) -> dict[str, Any]:
    """Return the JSON output: the number of configurations, and the rows shown."""
    from perfmodel.planning.comparison import plain

    return {
        "configurations": len(s),
        "fitting": len(s.feasible),
        "refused": s.refused,
        "columns": list(s.columns),
        "rows": [row | plain({name: row[name] for name in s.space.by_name}) for row in shown],
    }
