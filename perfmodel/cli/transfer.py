"""``perfmodel transfer``: how long copies between places of a system take that start at once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.cli.arguments import Command
from perfmodel.cli.output import check_writable, number_as_typed


@Command
def transfer_command(
    system: Annotated[str, typer.Argument(help="A system with wiring: name or TOML file.")],
    copies: Annotated[
        list[str],
        typer.Argument(
            metavar="FROM:TO...",
            help="Places of the system; host for the memory next to the other end; patterns such as host:gpu*.",
        ),
    ],
    size: Annotated[str, typer.Option("--bytes", metavar="N", help="Bytes of each copy.")] = "1e9",
    through_host: Annotated[
        bool, typer.Option("--through-host", help="Stage copies between devices in host memory in any case.")
    ] = False,
    pageable: Annotated[bool, typer.Option("--pageable", help="Copy from and to pageable host memory.")] = False,
    chunk: Annotated[
        str | None,
        typer.Option("--chunk-bytes", metavar="N|inf", help="Piece of a staged copy; inf for leg after leg."),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Chrome trace of the copies to FILE.")
    ] = None,
) -> Any:
    """Say how long copies take that start at once, which way they go, and what bounds them."""
    from perfmodel.prediction.transfer import transfer

    check_writable(trace, argument="--trace")
    chosen: dict[str, Any] = (
        {} if chunk is None else {"chunk_bytes": math.inf if chunk == "inf" else number_as_typed(chunk)}
    )
    answer = transfer(
        system,
        copies,
        size_bytes=number_as_typed(size),
        through_host=through_host,
        pinned=not pageable,
        **chosen,
    )
    if trace is not None:
        answer.timeline.save(trace)
    return answer
