"""``perfmodel scaling``: what more workers are worth, by how they agree."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import typer

from perfmodel.cli.arguments import takes_arguments
from perfmodel.cli.networks import NetworkArgument, OptionOption, load_graph
from perfmodel.cli.output import number_as_typed

Number: TypeAlias = str | None
"""A number as typed, which the library checks."""
WorkersOption: TypeAlias = Annotated[str, typer.Option(metavar="N,N...", help="Numbers of workers.")]
SyncOption: TypeAlias = Annotated[
    str, typer.Option(metavar="HOW,HOW...", help="Ways to agree: ring_all_reduce, parameter_server, downpour ...")
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


@takes_arguments(own=("device", "system", "workers", "sync"), plot="Draw it (png, pdf, svg).")
def scaling_command(
    graph: NetworkArgument,
    arguments: dict[str, Any],
    system: Annotated[str, typer.Option(metavar="NAME", help="A machine or cluster with GPUs: name or TOML file.")],
    workers: WorkersOption,
    sync: SyncOption = "ring_all_reduce",
    dataset_size: Annotated[Number, typer.Option(metavar="N", help="Samples of an epoch.")] = None,
    usd_per_hour: Annotated[Number, typer.Option(metavar="USD", help="Price of one worker for an hour.")] = None,
    critical_batch_size: CriticalOption = None,
    staleness_penalty: PenaltyOption = None,
    least_steps: LeastOption = None,
    option: OptionOption = None,
) -> Any:
    """Say what more workers are worth: speed-up, efficiency, what a step waits for, time and price of an epoch."""
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
