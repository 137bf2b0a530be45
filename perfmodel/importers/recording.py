"""One traced run of a network in plain values, and the batch axis of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Literal

from perfmodel.layers.shapes import Shape, SharedShape
from perfmodel.presentation.progress import progress_bar

Origin = Literal["input", "parameter", "constant", "result"]


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to a tensor among the arguments of a call."""

    key: int
    is_detached: bool = False


@dataclass(slots=True, kw_only=True)
class TensorFacts:
    """One tensor of a run."""

    shape: tuple[int, ...]
    is_index: bool
    origin: Origin
    is_complex: bool = False
    name: str = ""
    part: tuple[int, int] | None = None
    is_transposed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Place of a call in a network: its module, the number of that module's visit, and its checkpointed region."""

    path: str = ""
    visit: int = 0
    in_place: bool | None = None
    region: str = ""
    reruns_all: bool = False


@dataclass(slots=True, kw_only=True)
class Call:
    """One call of an operator."""

    operator: str
    overload: str = ""
    arguments: Mapping[str, Any]
    outputs: tuple[Ref, ...]
    place: Place
    occurrence: int = 0
    can_decompose: bool = False
    sequence: tuple[int, int] = (0, 0)
    product_flop_count: int = 0
    has_uncounted_products: bool = False
    parts: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    is_gradient: bool = False

    @property
    def site(self) -> tuple[str, str, int]:
        """Key of the call, equal in every trace of the same network."""
        return (self.place.path, self.operator, self.occurrence)

    @property
    def inputs(self) -> tuple[Ref, ...]:
        """The tensors that the call reads."""
        return tuple(refs_of(tuple(self.arguments.values())))


def refs_of(value: Any) -> list[Ref]:
    """Return the tensors within a value, in order."""
    if isinstance(value, Ref):
        return [value]
    if isinstance(value, tuple):
        return [ref for part in value for ref in refs_of(part)]
    return []


@dataclass(slots=True, kw_only=True)
class Recording:
    """One traced run of a network."""

    batch_size: int
    tensors: list[TensorFacts] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    outputs: list[tuple[str, Ref]] = field(default_factory=list)
    differentiable: set[int] = field(default_factory=set)
    keeps_some: bool = False


Advance = Callable[[], None]
"""Called for each part of the work that begins."""

PATIENCE_S: Final = 1.0
"""Time that an import runs before its progress is shown [s]."""


@contextmanager
def import_progress(description: str, total: int, *, shown: bool | None) -> Iterator[Advance]:
    """Show the progress of a block on the error stream."""
    begun = count(1)
    patience_s = 0.0 if shown else PATIENCE_S
    with progress_bar(description, shown=shown, patience_s=patience_s, vanishes=True) as show:
        yield lambda: show(min(next(begun), total), total)


@dataclass(frozen=True, slots=True)
class Layout:
    """Division of a whole tensor into samples; ``merged_axis`` holds several rows of each sample."""

    shape: Shape
    axes: tuple[int | None, ...]
    merged_axis: int | None = None


def whole(shape: Sequence[int]) -> Layout:
    """Return the layout of a tensor that is not made of samples."""
    return Layout(SharedShape(shape), tuple(range(len(shape))))


def layout(shapes: Sequence[Sequence[int]], *, batch_sizes: Sequence[int]) -> Layout | None:
    """Return the layout of a tensor made of samples.

    >>> layout([(2, 3, 9), (4, 3, 9)], batch_sizes=(2, 4))
    Layout(shape=(3, 9), axes=(None, 0, 1), merged_axis=None)
    >>> layout([(24, 64), (48, 64)], batch_sizes=(2, 4))
    Layout(shape=(12, 64), axes=(0, 1), merged_axis=0)
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
    """Return the layout of a tensor whose axis ``axis`` [-] holds ``per_sample`` rows of each sample [1]."""
    if per_sample != 1:
        extents = (*shape[:axis], per_sample, *shape[axis + 1 :])
        return Layout(tuple(extents), tuple(range(len(shape))), merged_axis=axis)
    axes = [place if place < axis else None if place == axis else place - 1 for place in range(len(shape))]
    return Layout((*shape[:axis], *shape[axis + 1 :]), tuple(axes))


def same_structure(recordings: Sequence[Recording]) -> str:
    """Return a difference between runs at different batch sizes, shapes aside; empty if there is none."""
    first, *others = recordings
    for other in others:
        for ours, theirs in zip(first.calls, other.calls, strict=False):
            if ours.site[:2] != theirs.site[:2]:
                return (
                    f"module {ours.place.path!r} calls {ours.operator} at batch size {first.batch_size}, where "
                    f"{theirs.place.path!r} calls {theirs.operator} at {other.batch_size}"
                )
        if len(first.calls) != len(other.calls) or len(first.tensors) != len(other.tensors):
            return f"the number of operations differs between batch sizes {first.batch_size} and {other.batch_size}"
    return ""


def guessed_layouts(recording: Recording, *, batch_axis: int) -> list[Layout]:
    """Return the layouts of all tensors of one run that allows no other batch size."""
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
    """Return the layout of a tensor computed from the inputs of a run that allows no other batch size.

    >>> guessed_layout((6, 4), batch_size=4, batch_axis=0)
    Layout(shape=(6,), axes=(0, None), merged_axis=None)
    """
    preferred = [axis for axis in (batch_axis, *range(len(shape))) if axis < len(shape)]
    for axis in preferred:
        if shape[axis] == batch_size:
            return _along(shape, axis, 1)
    if shape and shape[0] and shape[0] % batch_size == 0:
        return _along(shape, 0, shape[0] // batch_size)
    return whole(shape)
