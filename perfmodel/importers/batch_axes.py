"""Which axis of a tensor is the mini-batch: told from runs at several batch sizes, or guessed from one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.importers.recording import Recording
from perfmodel.layers.shapes import Shape, SharedShape


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole tensor as samples.

    Parameters
    ----------
    shape : tuple of int
        Shape of one sample; a SharedShape where all samples share the tensor. [1]
    axes : tuple of int or None
        For each axis of the whole tensor its place in ``shape``; None for the batch axis. [-]
    """

    shape: Shape
    axes: tuple[int | None, ...]


def whole(shape: Sequence[int]) -> Layout:
    """Return the layout of a tensor that is not made of samples.

    Parameters
    ----------
    shape : sequence of int
        Its extents. [1]

    Returns
    -------
    Layout
        All of its axes, shared by the samples. [-]
    """
    return Layout(SharedShape(shape), tuple(range(len(shape))))


def layout(shapes: Sequence[Sequence[int]], *, batch_sizes: Sequence[int]) -> Layout | None:
    """Return a tensor as samples.

    Parameters
    ----------
    shapes : sequence of tuple of int
        Its whole shape in each run. [1]
    batch_sizes : sequence of int
        Batch size of each run. [samples]

    Returns
    -------
    Layout or None
        None where its extents are not fixed but for one axis, which is a multiple of the batch size.

    Examples
    --------
    >>> layout([(2, 3, 9), (4, 3, 9)], batch_sizes=(2, 4))
    Layout(shape=(3, 9), axes=(None, 0, 1))
    >>> layout([(24, 64), (48, 64)], batch_sizes=(2, 4))
    Layout(shape=(12, 64), axes=(0, 1))
    >>> layout([(2, 2), (4, 4)], batch_sizes=(2, 4)) is None
    True
    """
    if len({len(shape) for shape in shapes}) != 1:
        return None
    grows = [len(set(extents)) > 1 for extents in zip(*shapes, strict=True)]
    if not any(grows):
        return whole(shapes[0])
    axis = grows.index(True)
    per_sample, rest = divmod(shapes[0][axis], batch_sizes[0])
    fits = all(shape[axis] == per_sample * size for shape, size in zip(shapes, batch_sizes, strict=True))
    if sum(grows) > 1 or rest or not fits:
        return None
    return _along(shapes[0], axis, per_sample)


def _along(shape: Sequence[int], axis: int, per_sample: int) -> Layout:
    """Return a tensor whose axis ``axis`` [-] holds ``per_sample`` rows of each sample [1]."""
    if per_sample != 1:
        extents = (*shape[:axis], per_sample, *shape[axis + 1 :])
        return Layout(tuple(extents), tuple(range(len(shape))))
    axes = [place if place < axis else None if place == axis else place - 1 for place in range(len(shape))]
    return Layout((*shape[:axis], *shape[axis + 1 :]), tuple(axes))


def same_structure(recordings: Sequence[Recording]) -> str:
    """Return how runs at different batch sizes differ besides their shapes.

    Parameters
    ----------
    recordings : sequence of Recording
        The runs. [-]

    Returns
    -------
    str
        What differs; empty where nothing does. [-]
    """
    first, *others = recordings
    for other in others:
        for ours, theirs in zip(first.calls, other.calls, strict=False):
            if (ours.path, ours.operator) != (theirs.path, theirs.operator):
                return (
                    f"module {ours.path!r} calls {ours.operator} at batch size {first.batch_size}, where "
                    f"{theirs.path!r} calls {theirs.operator} at {other.batch_size}"
                )
        if len(first.calls) != len(other.calls) or len(first.tensors) != len(other.tensors):
            return f"the number of operations differs between batch sizes {first.batch_size} and {other.batch_size}"
    return ""


def guessed_layouts(recording: Recording, *, batch_axis: int) -> list[Layout]:
    """Return the layouts of all tensors of one run, where no other batch size can be run.

    Parameters
    ----------
    recording : Recording
        The run. [-]
    batch_axis : int
        Axis of the inputs that holds the samples. [-]

    Returns
    -------
    list of Layout
        By key: what follows from the inputs has its samples along the inputs' batch axis, or along the first axis
        that is as long, or in rows along the first axis; the rest is shared by all samples. [-]
    """
    fed = [facts.origin == "input" for facts in recording.tensors]
    for call in recording.calls:
        if any(fed[ref.key] for ref in call.inputs):
            for ref in call.outputs:
                fed[ref.key] = recording.tensors[ref.key].origin == "result"
    return [
        guessed_layout(facts.shape, batch_size=recording.batch_size, batch_axis=batch_axis)
        if is_fed
        else whole(facts.shape)
        for facts, is_fed in zip(recording.tensors, fed, strict=True)
    ]


def guessed_layout(shape: tuple[int, ...], *, batch_size: int, batch_axis: int) -> Layout:
    """Return the layout of a tensor that follows from the inputs, at the only batch size that can be had.

    Parameters
    ----------
    shape : tuple of int
        Its extents. [1]
    batch_size : int
        The batch size. [samples]
    batch_axis : int
        Axis of the inputs that holds the samples. [-]

    Returns
    -------
    Layout
        Samples along that axis, or the first one that is as long, or in rows along the first axis; else the whole. [-]

    Examples
    --------
    >>> guessed_layout((6, 4), batch_size=4, batch_axis=0)
    Layout(shape=(6,), axes=(0, None))
    """
    preferred = [axis for axis in (batch_axis, *range(len(shape))) if axis < len(shape)]
    for axis in preferred:
        if shape[axis] == batch_size:
            return _along(shape, axis, 1)
    if shape and shape[0] and shape[0] % batch_size == 0:
        return _along(shape, 0, shape[0] // batch_size)
    return whole(shape)
