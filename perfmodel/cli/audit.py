"""``perfmodel audit``: counts of matrix products, operation by operation, beside torch's where there is a module."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from perfmodel.cli.arguments import Command
from perfmodel.cli.networks import call_factory, is_factory, load_graph
from perfmodel.cli.output import number_as_typed


@Command
def audit_command(
    target: Annotated[
        str,
        typer.Argument(
            help="A network of the zoo; path of a graph's JSON file, a config.json (or its folder) or an .onnx file; "
            "or file.py:function that returns (module, example_inputs)."
        ),
    ],
    batch_size: Annotated[
        str | None, typer.Option(metavar="N", help="Samples; of a module those of its example inputs.")
    ] = None,
    phase: Annotated[str, typer.Option(metavar="PHASE", help="forward_backward or forward.")] = "forward_backward",
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Option of the builder, config or function, or free size of an ONNX file; repeatable.",
        ),
    ] = None,
) -> Any:
    """Count the matrix products of a network, compare them with torch's, and name what is not known."""
    from perfmodel.importers.audit import audit

    samples, options = number_as_typed(batch_size), option or []
    if is_factory(target):
        module, example_inputs = call_factory(target, options=options)
        return audit(module, example_inputs, phase=phase, batch_size=samples)
    return audit(load_graph(target, options=options), phase=phase, batch_size=samples)
