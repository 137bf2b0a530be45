"""``perfmodel advise``: what each single change of a job would be worth, and why."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from perfmodel.cli.arguments import takes_arguments
from perfmodel.cli.networks import NetworkArgument, OptionOption, load_graph
from perfmodel.cli.output import Answer


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
    """Rank single changes of a job by the samples per second that it gains, each with its reason."""
    from perfmodel.planning.advice import advise, report

    wanted = None if kinds is None else [kind.strip() for kind in kinds.split(",")]
    advice = advise(load_graph(graph, options=option or []), kinds=wanted, **arguments)
    return Answer(text=lambda: report(advice, shown=top), content=advice.to_dict)
