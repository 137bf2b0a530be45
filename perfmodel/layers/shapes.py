"""Shapes of samples: what they are called, how they are checked and counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from perfmodel.errors import PerfmodelError

Shape = tuple[int, ...]
"""Shape of one sample: ``(features,)``, ``(channels, height, width)``, ``(steps,)`` or ``(steps, features)``; extents
may be symbols."""


class SharedShape(tuple[int, ...]):
    """Shape of a tensor that all samples of a mini-batch share, e.g. a parameter or a table of positions.

    It equals the plain tuple. Layers that combine tensors of both kinds count with :func:`element_count`.
    """

    __slots__ = ()


def element_count(shape: Shape, *, batch_size: Any) -> Any:
    """Return the elements of a tensor over the whole mini-batch [1]; a shared tensor exists once.

    Examples
    --------
    >>> element_count((3, 4), batch_size=10), element_count(SharedShape((3, 4)), batch_size=10)
    (120, 12)
    """
    return math.prod(shape) * (1 if isinstance(shape, SharedShape) else batch_size)


class ShapeMismatchError(PerfmodelError, ValueError):
    """A layer cannot take shapes it was offered; a graph turns it into a ShapeError that names the layer.

    Parameters
    ----------
    problem : str
        What does not fit, with the shapes and what is allowed. [-]
    """

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


def shape_text(shape: Shape) -> str:
    """Return a sample's shape as people write it.

    Examples
    --------
    >>> shape_text((3, 224, 224)), shape_text(())
    ('3x224x224', 'scalar')
    """
    return "x".join(map(str, shape)) or "scalar"


def check_rank(shape: Shape, *layouts: Sequence[str]) -> None:
    """Raise ShapeMismatchError unless a sample has as many axes as one of the layouts.

    Examples
    --------
    >>> check_rank((3, 224, 224), ("channels", "height", "width"))
    """
    if len(shape) not in [len(layout) for layout in layouts]:
        allowed = " or ".join(f"({', '.join(layout)})" for layout in layouts)
        problem = f"takes samples of shape {allowed}, but its input is {shape_text(shape)}"
        raise ShapeMismatchError(problem)


IMAGE = ("channels", "height", "width")
SEQUENCE = ("steps", "features")


def channel_count(shape: Shape) -> int:
    """Return the channels of a sample [1]: the first of (channels, height, width), else the last axis.

    Examples
    --------
    >>> channel_count((64, 56, 56)), channel_count((1000,)), channel_count((32, 256))
    (64, 1000, 256)
    """
    return shape[0] if len(shape) == len(IMAGE) else shape[-1]
