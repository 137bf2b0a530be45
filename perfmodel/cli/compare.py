"""``perfmodel compare``: why two configurations take different times, term by term."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from perfmodel.cli.arguments import changed_arguments, named_arguments, takes_arguments
from perfmodel.cli.networks import NetworkArgument, OptionOption, load_graph

NETWORK = "network"
"""Key of ``--with`` for another network."""


@takes_arguments(plot="Draw a waterfall (png, pdf, svg).")
def compare_command(
    graph: NetworkArgument,
    changes: Annotated[
        list[str],
        typer.Option(
            "--with",
            metavar="KEY=VALUE",
            help="What the second configuration changes: any argument of predict (device=tesla_k40, batch-size=32, "
            "sync=parameter_server; KEY= for its default) or network=NAME; repeatable.",
        ),
    ],
    arguments: dict[str, Any],
    option: OptionOption = None,
    per: Annotated[
        str | None,
        typer.Option(metavar="step|sample", help="What times are of; step where both take as many samples."),
    ] = None,
) -> Any:
    """Say why a second configuration takes longer or shorter than the first: inputs, parts, operations, memory."""
    from perfmodel.planning.comparison import compare
    from perfmodel.prediction.predict import predict

    changed = named_arguments(changes, argument="--with", besides=(NETWORK,))
    other = changed.pop(NETWORK, None)
    network = load_graph(graph, options=option or [])
    second = network if other is None else load_graph(str(other), options=[])
    return compare(predict(network, **arguments), predict(second, **changed_arguments(arguments, changed)), per=per)
