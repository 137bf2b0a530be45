"""``perfmodel compare``: why two configurations take different times, term by term."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.cli.arguments import changed_arguments, named_arguments, takes_arguments
from perfmodel.cli.networks import NetworkArgument, OptionOption, load_graph
from perfmodel.cli.output import JsonOption, OutOption, check_plot, check_writable, emit

NETWORK = "network"
"""Key of ``--with`` for another network."""


@takes_arguments()
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
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw a waterfall (png, pdf, svg).")] = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Say why a second configuration takes longer or shorter than the first: inputs, parts, operations, memory."""
    from perfmodel.planning.comparison import compare
    from perfmodel.prediction.predict import predict

    check_writable(out, argument="--out")
    check_plot(plot)
    changed = named_arguments(changes, argument="--with", besides=(NETWORK,))
    other = changed.pop(NETWORK, None)
    network = load_graph(graph, options=option or [])
    second = network if other is None else load_graph(str(other), options=[])
    found = compare(predict(network, **arguments), predict(second, **changed_arguments(arguments, changed)), per=per)
    if plot is not None:
        found.plot(plot)
    emit(lambda: str(found), found.to_dict, as_json=as_json, out=out)
