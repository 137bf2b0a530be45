"""``perfmodel predict``: how long a step takes, why, and beside it what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli.arguments import takes_arguments
from perfmodel.cli.bill import bill_of
from perfmodel.cli.networks import NetworkArgument, OptionOption, load_graph
from perfmodel.cli.output import JsonOption, OutOption, check_plot, check_writable, emit, number_as_typed

if TYPE_CHECKING:
    from perfmodel.cli.bill import Bill
    from perfmodel.cli.executed import Executed
    from perfmodel.graph import LayerGraph
    from perfmodel.prediction.prediction import Prediction

LARGEST = "max"
"""What ``--batch-size`` takes for as many samples as memory holds."""
NO_TABLE = "none"
"""What ``--measured`` takes to look nothing up."""


@takes_arguments(own=("batch_size",))
def predict_command(
    graph: NetworkArgument,
    arguments: dict[str, Any],
    batch_size: Annotated[
        str | None, typer.Option(metavar="N|max", help="Samples per step; max for as many as memory holds.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write steps as a trace for a trace viewer (JSON).")
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Price or instance, or USD an hour of one device: what a step costs."),
    ] = None,
    option: OptionOption = None,
    measured: Annotated[
        str, typer.Option(metavar="TABLE", help="Measurement table to compare with, or 'none'.")
    ] = "shi2016",
    top: Annotated[int, typer.Option(metavar="N", min=0, help="Layers to list.")] = 8,
    explain: Annotated[bool, typer.Option("--explain", help="Say in words why, and whence the constants.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the parts of the step (png, pdf, svg).")
    ] = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Predict the time of one step, its parts, its bottleneck and its memory."""
    from perfmodel.prediction.predict import predict

    check_writable(out, argument="--out")
    check_writable(trace, argument="--trace")
    check_plot(plot)
    network = load_graph(graph, options=option or [])
    if batch_size is not None:
        is_largest = batch_size == LARGEST
        arguments["batch_size"] = largest_batch_size(network, arguments) if is_largest else number_as_typed(batch_size)
    prediction = predict(network, **arguments)
    bill = None if price is None else bill_of(prediction, number_as_typed(price))
    if plot is not None:
        prediction.plot(plot)
    if trace is not None:
        prediction.timeline.save(trace)
    executed = None
    if measured != NO_TABLE:
        from perfmodel.cli.executed import find_executed

        executed = find_executed(measured, network=graph, prediction=prediction)
    emit(
        lambda: _text(prediction, executed, bill, layers_shown=top, in_words=explain),
        lambda: _content(prediction, executed, bill, layers_shown=top, in_words=explain),
        as_json=as_json,
        out=out,
    )


def largest_batch_size(graph: LayerGraph, arguments: dict[str, Any]) -> int:
    """Return as many samples as memory holds.

    Parameters
    ----------
    graph : LayerGraph
        The network. [-]
    arguments : dict
        Arguments of ``predict``. [-]

    Returns
    -------
    int
        Samples. [samples]

    Raises
    ------
    ArgumentError
        If not even one fits, or the network is spread over devices.
    """
    from perfmodel.errors import ArgumentError
    from perfmodel.prediction.arguments.table import names_of
    from perfmodel.prediction.batch_limit import max_batch_size

    spreading = [name for name in names_of("spread") if name in arguments]
    if spreading:
        argument, allowed = "--batch-size", f"a number with {spreading[0]}: max is that of a whole network on a device"
        raise ArgumentError(argument, LARGEST, allowed)
    of_size = {name: arguments[name] for name in names_of("place", "step", "workers") if name in arguments}
    found = max_batch_size(graph, **of_size)
    if not found:
        argument, allowed = "--batch-size", "a number: not even one sample fits in memory"
        raise ArgumentError(argument, LARGEST, allowed)
    return found


def _text(
    prediction: Prediction, executed: Executed | None, bill: Bill | None, *, layers_shown: int, in_words: bool
) -> str:
    from perfmodel.cli.executed import executed_text
    from perfmodel.prediction.report import report

    blocks = [report(prediction, layers_shown=layers_shown)]
    if bill is not None:
        blocks.append(bill.to_text())
    if in_words:
        blocks.append(prediction.explain())
    if executed is not None:
        blocks.append(executed_text(executed, with_evidence=in_words))
    return "\n\n".join(blocks)


def _content(
    prediction: Prediction, executed: Executed | None, bill: Bill | None, *, layers_shown: int, in_words: bool
) -> dict[str, Any]:
    from perfmodel.cli.executed import executed_dict
    from perfmodel.prediction.report import layer_totals

    content = prediction.to_dict() | {"longest_layers": layer_totals(prediction).head(layers_shown).to_dicts()}
    if in_words:
        content["explanation"] = prediction.explain()
    if bill is not None:
        content["bill"] = bill.to_dict()
    return content | {"executed": None if executed is None else executed_dict(executed)}
