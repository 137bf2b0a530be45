"""Other values of an argument worth trying, for ``advise``.

A function takes the arguments of a job by name and the present value of its own argument. It returns other values, with
a few words for each, or the reason why there are none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from perfmodel.prediction.arguments.checks import MERGED
from perfmodel.presentation.quantities import bytes_text, counted
from perfmodel.units import MIB

Arguments: TypeAlias = Any
"""All arguments of a job by name, defaults included."""

Tries: TypeAlias = Mapping[Any, str] | str
"""Other values, with a few words for each; or why no other value is worth trying."""


def overlapping(arguments: Arguments, value: Any) -> Tries:
    """Try exchanging gradients during back-propagation."""
    del arguments
    return "the exchange already overlaps" if value else {True: "exchange while back-propagation runs"}


def message_sizes(arguments: Arguments, value: Any) -> Tries:
    """Try a message per layer, PyTorch's size, one message, and the sizes that make the step shortest."""
    del value
    if not arguments["overlap"]:
        return "without overlap all gradients are ready when the exchange begins"
    return {
        0.0: "each layer's gradient by itself",
        25.0 * MIB: f"messages of {bytes_text(25.0 * MIB)}",
        math.inf: "all gradients in one message",
        MERGED: "gradients merged so that the step is shortest",
    }


def shards(arguments: Arguments, value: Any) -> Tries:
    """Try twice and half the shards of a parameter server."""
    del arguments
    counts = [count for count in (2 * value, value // 2) if count]
    return {count: f"{counted(count, 'shard')} of the server" for count in counts}


def groups(arguments: Arguments, value: Any) -> Tries:
    """Try twice and half the workers in a group."""
    workers = arguments["workers"]
    size = value or workers
    counts = [count for count in (2 * size, size // 2) if 0 < count <= workers and not workers % count]
    return {count: f"groups of {count}" for count in counts}


def bounds(arguments: Arguments, value: Any) -> Tries:
    """Try a looser and a tighter bound on staleness."""
    del arguments
    return {bound: f"staleness bound {bound}" for bound in (2 * value or 1, value // 2)}


def one_more_backup(arguments: Arguments, value: Any) -> Tries:
    """Try one more backup worker."""
    if arguments["straggler"] is None:
        return "times of workers are not said to vary: straggler= says how they do"
    count = value + 1
    return {count: counted(count, "backup worker")}
