"""``perfmodel scaling``: what more workers are worth, by how they agree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from perfmodel.cli.networks import load_graph
from perfmodel.cli.output import JsonOption, OutOption, check_plot, check_writable, emit, number_as_typed
from perfmodel.cli.predict import NETWORK_HELP, StragglerOption, straggler_option, sync_options

Number: TypeAlias = str | None
"""A number as typed, which the library checks."""
WorkersOption: TypeAlias = Annotated[str, typer.Option(metavar="N,N...", help="Numbers of workers.")]
SyncOption: TypeAlias = Annotated[
    str, typer.Option(metavar="HOW,HOW...", help="Ways to agree: ring_all_reduce, parameter_server, downpour ...")
]
OfSyncOption: TypeAlias = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Option of these, as of predict; repeatable.")
]
GlobalOption: TypeAlias = Annotated[
    Number, typer.Option(metavar="N", help="Samples of all workers together: strong scaling.")
]
CriticalOption: TypeAlias = Annotated[
    Number, typer.Option(metavar="N", help="Batch size that takes twice the least updates, your own.")
]
PenaltyOption: TypeAlias = Annotated[
    Number, typer.Option(metavar="X", help="Share of updates that one update of staleness adds, your own.")
]
LeastOption: TypeAlias = Annotated[
    Number, typer.Option(metavar="N", help="Updates to the loss with any batch, however large.")
]
OptionOption: TypeAlias = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Option of the network; repeatable.")
]


def scaling_command(
    graph: Annotated[str, typer.Argument(help=NETWORK_HELP)],
    system: Annotated[str, typer.Option(metavar="NAME", help="A machine or cluster with GPUs: name or TOML file.")],
    workers: WorkersOption,
    sync: SyncOption = "ring_all_reduce",
    sync_option: OfSyncOption = None,
    batch_size: Annotated[Number, typer.Option(metavar="N", help="Samples per worker: weak scaling.")] = None,
    global_batch_size: GlobalOption = None,
    straggler: StragglerOption = None,
    backup_workers: Annotated[Number, typer.Option(metavar="N", help="Workers not waited for.")] = None,
    dataset_size: Annotated[Number, typer.Option(metavar="N", help="Samples of an epoch.")] = None,
    usd_per_hour: Annotated[Number, typer.Option(metavar="USD", help="Price of one worker for an hour.")] = None,
    critical_batch_size: CriticalOption = None,
    staleness_penalty: PenaltyOption = None,
    least_steps: LeastOption = None,
    framework: Annotated[str, typer.Option(metavar="NAME", help="Framework profile: name or TOML file.")] = "generic",
    dtype: Annotated[str, typer.Option(metavar="TYPE", help="Data type, e.g. fp32.")] = "fp32",
    optimizer: Annotated[str, typer.Option(metavar="NAME", help="none, sgd, momentum, nesterov, adam.")] = "sgd",
    option: OptionOption = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it (png, pdf, svg).")] = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Say what more workers are worth: speed-up, efficiency, what a step waits for, time and price of an epoch."""
    from perfmodel.planning.scaling import scaling

    check_writable(out, argument="--out")
    check_plot(plot)
    given: dict[str, Any] = {
        "batch_size": number_as_typed(batch_size),
        "global_batch_size": number_as_typed(global_batch_size),
        "dataset_size": number_as_typed(dataset_size),
        "usd_per_hour": number_as_typed(usd_per_hour),
        "critical_batch_size": number_as_typed(critical_batch_size),
        "staleness_penalty": number_as_typed(staleness_penalty),
        "least_steps": number_as_typed(least_steps),
        "framework": framework,
        "dtype": dtype,
        "optimizer": optimizer,
    }
    if backup_workers is not None:
        given["backup_workers"] = number_as_typed(backup_workers)
    if straggler is not None:
        given["straggler"] = straggler_option(straggler)
    report = scaling(
        load_graph(graph, options=option or []),
        system=system,
        workers=[number_as_typed(count) for count in workers.split(",")],
        sync=sync.split(","),
        **given,
        **sync_options(sync_option or []),
    )
    if plot is not None:
        report.plot(plot)
    emit(lambda: str(report), report.to_dict, as_json=as_json, out=out)
