"""Which axis of a tensor is the mini-batch: told from its shapes at several batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from perfmodel.layers.shapes import Shape, SharedShape

BATCH_SIZES: Final = (2, 3, 5)
"""Batch sizes at which shapes are compared: two tell the extent per sample, the third that it is one [samples]."""


class NoSampleShapeError(Exception):
    """A tensor's extents are no multiple of the batch size along one axis and fixed along the others."""


def sample_shape(
    shapes: Sequence[Shape], *, batch_sizes: Sequence[int] = BATCH_SIZES
) -> tuple[Shape, tuple[int | None, ...]]:
    """Return the shape of one sample, and where each axis of the whole tensor is in it.

    Parameters
    ----------
    shapes : sequence of tuple of int
        Shape of the whole tensor at each batch size. [1]
    batch_sizes : sequence of int
        The batch sizes. [samples]

    Returns
    -------
    tuple
        The sample shape, a SharedShape where no axis grows with the batch; and for each axis its place in the
        sample shape, None for the batch axis. An axis of k extents per sample stays, with extent k. [1]

    Raises
    ------
    NoSampleShapeError
        If the tensor is not made of samples.

    Examples
    --------
    >>> sample_shape([(2, 3, 9), (3, 3, 9), (5, 3, 9)])
    ((3, 9), (None, 0, 1))
    >>> sample_shape([(24, 64), (36, 64), (60, 64)])
    ((12, 64), (0, 1))
    """
    text = " / ".join(map(str, map(tuple, shapes)))
    if len({len(shape) for shape in shapes}) != 1:
        problem = f"its axes differ with the batch size: {text}"
        raise NoSampleShapeError(problem)
    extents: list[int] = []
    axes: list[int | None] = []
    growing = 0
    for along in zip(*shapes, strict=True):
        per_sample, rest = divmod(along[0], batch_sizes[0])
        if len(set(along)) == 1:
            axes.append(len(extents))
            extents.append(along[0])
            continue
        growing += 1
        if rest or any(each != per_sample * size for each, size in zip(along, batch_sizes, strict=True)):
            problem = f"an axis is no multiple of the batch size: {text} at {', '.join(map(str, batch_sizes))} samples"
            raise NoSampleShapeError(problem)
        axes.append(None if per_sample == 1 else len(extents))
        if per_sample != 1:
            extents.append(per_sample)
    if growing > 1:
        problem = f"several axes grow with the batch size: {text}"
        raise NoSampleShapeError(problem)
    return (tuple(extents) if growing else SharedShape(extents)), tuple(axes)
