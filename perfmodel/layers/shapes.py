"""Shapes of samples: their text form, checks and counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

from perfmodel.errors import PerfmodelError
from perfmodel.layers.checks import is_open_size

Shape = tuple[int, ...]
"""Shape of one sample: ``(features,)``, ``(channels, height, width)``, ``(steps,)`` or ``(steps, features)``; extents
may be symbols."""
Shapes = tuple[Shape, ...]
"""Shapes of a layer's inputs, in order."""


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
    """A layer cannot take its input shapes; a graph turns it into a ShapeError that names the layer.

    Parameters
    ----------
    problem : str
        What does not fit, with the shapes and what is allowed. [-]
    """

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


def mismatch(problem: str) -> NoReturn:
    """Raise ShapeMismatchError."""
    raise ShapeMismatchError(problem)


def shape_text(shape: Shape) -> str:
    """Return a sample's shape as text.

    Examples
    --------
    >>> shape_text((3, 224, 224)), shape_text(())
    ('3x224x224', 'scalar')
    """
    return "x".join(map(str, shape)) or "scalar"


def check_rank(shape: Shape, *layouts: Sequence[str]) -> None:
    """Raise ShapeMismatchError unless a sample has the number of axes of one of the layouts.

    Examples
    --------
    >>> check_rank((3, 224, 224), ("channels", "height", "width"))
    """
    if len(shape) not in [len(layout) for layout in layouts]:
        allowed = " or ".join(f"({', '.join(layout)})" for layout in layouts)
        mismatch(f"takes samples of shape {allowed}, but its input is {shape_text(shape)}")


def check_equal(shapes: Shapes, *, verb: str = "takes") -> None:
    """Raise ShapeMismatchError unless all inputs have one shape.

    Examples
    --------
    >>> check_equal(((3, 4), (3, 4)))
    """
    if len(set(map(tuple, shapes))) > 1:
        mismatch(f"{verb} inputs of one shape, but they are {' and '.join(map(shape_text, shapes))}")


IMAGE = ("channels", "height", "width")
SEQUENCE = ("steps", "features")
SEQUENCES = ("sequences", "steps", "features")


def channel_count(shape: Shape) -> int:
    """Return the channels of a sample [1]: the first of (channels, height, width), otherwise the last axis.

    Examples
    --------
    >>> channel_count((64, 56, 56)), channel_count((1000,)), channel_count((32, 256))
    (64, 1000, 256)
    """
    return shape[0] if len(shape) == len(IMAGE) else shape[-1]


def axis_in(shape: Shape, axis: int) -> int:
    """Return the position of an axis that may count from the end [-]; raise ShapeMismatchError if there is none.

    Examples
    --------
    >>> axis_in((3, 224, 224), -1)
    2
    """
    if not -len(shape) <= axis < len(shape):
        mismatch(f"works along axis {axis} of its samples, but its input is {shape_text(shape)}")
    return axis % len(shape)


def without_axis(shape: Shape, axis: int) -> Shape:
    """Return a shape without one axis, which may count from the end: one element for each row along it.

    Examples
    --------
    >>> without_axis((21, 32, 32), 0), without_axis((10,), -1)
    ((32, 32), ())
    """
    place = axis_in(shape, axis)
    return stated_shape(shape[:place] + shape[place + 1 :], (shape,))


def with_extent(shape: Shape, place: int, extent: Any) -> Shape:
    """Return a shape with the extent of one axis replaced.

    Examples
    --------
    >>> with_extent((21, 32, 32), 0, 10)
    (10, 32, 32)
    """
    return stated_shape((*shape[:place], extent, *shape[place + 1 :]), (shape,))


def check_divides(part: Any, whole: Any, problem: str) -> None:
    """Raise ShapeMismatchError unless a number divides another, as far as both are known."""
    if not is_open_size(part) and not is_open_size(whole) and whole % part:
        raise ShapeMismatchError(problem)


def last_axes(shape: Shape, axis_count: int) -> Shape:
    """Return the shape of a parameter with one element for each place in the last axes of a sample.

    Examples
    --------
    >>> last_axes((196, 768), 1)
    (768,)
    """
    if axis_count > len(shape):
        mismatch(f"works on the last {axis_count} axes of its samples, but its input is {shape_text(shape)}")
    return tuple(shape[len(shape) - axis_count :])


def without_last_axes(shape: Shape, axis_count: int) -> Shape:
    """Return a shape with one element for each row over the last axes.

    Examples
    --------
    >>> without_last_axes((196, 768), 1)
    (196,)
    """
    return stated_shape(shape[: len(shape) - axis_count], (shape,))


def is_spread(tensor: Shape, over: Shape) -> bool:
    """Return whether a tensor is repeated to form another: along axes of extent 1, or for every sample.

    Examples
    --------
    >>> is_spread((3, 1), (3, 4)), is_spread((1, 3, 4), (3, 4)), is_spread(SharedShape((3, 4)), (3, 4))
    (True, False, True)
    """
    extents = [tuple(extent for extent in shape if extent != 1) for shape in (tensor, over)]
    return extents[0] != extents[1] or isinstance(tensor, SharedShape) != isinstance(over, SharedShape)


def broadcast_shape(shapes: Sequence[Shape]) -> Shape:
    """Return the shape that tensors broadcast to: aligned at the last axis, an extent of 1 repeated.

    A tensor that all samples share may have one axis of extent 1 more, in the place of the batch axis.

    Examples
    --------
    >>> broadcast_shape([(64, 56, 56), (64, 1, 1)]), broadcast_shape([(5, 8), SharedShape((1, 5, 8))])
    ((64, 56, 56), (5, 8))
    """
    shared = [isinstance(shape, SharedShape) for shape in shapes]
    rank = max(len(shape) for shape, is_shared in zip(shapes, shared, strict=True) if all(shared) or not is_shared)
    aligned: list[Shape] = []
    for shape, is_shared in zip(shapes, shared, strict=True):
        cut = shape[1:] if is_shared and len(shape) == rank + 1 and shape[0] == 1 else shape
        aligned.append((1,) * (rank - len(cut)) + cut)
    rank = max(map(len, aligned))
    aligned = [(1,) * (rank - len(shape)) + shape for shape in aligned]
    together: list[int] = []
    for extents in zip(*aligned, strict=True):
        longer = {extent for extent in extents if extent != 1}
        if len(longer) > 1:
            mismatch(f"takes inputs that broadcast to one shape, but they are {' and '.join(map(shape_text, shapes))}")
        together.append(longer.pop() if longer else 1)
    return SharedShape(together) if all(shared) else tuple(together)


def stated_shape(shape: Shape, input_shapes: Sequence[Shape]) -> Shape:
    """Return a given output shape, shared by all samples if all inputs are.

    Examples
    --------
    >>> isinstance(stated_shape((5, 8), [SharedShape((5, 8))]), SharedShape)
    True
    """
    all_shared = all(isinstance(shape, SharedShape) for shape in input_shapes)
    return SharedShape(shape) if all_shared else shape
