"""Memory that an allocator takes: a tensor fills the smallest gap that holds it, else the memory grows at its end."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """A tensor in memory, from its first to its last moment, inclusive."""

    size: int
    first: int
    last: int


class _Arena:
    """One piece of memory that grows; gaps that touch are merged."""

    def __init__(self) -> None:
        self.gaps: list[tuple[int, int]] = []
        """Start and size, in order of their starts."""
        self.end = 0

    def take(self, size: int) -> int:
        """Return where a tensor is put."""
        fitting = [(gap_size, start) for start, gap_size in self.gaps if gap_size >= size]
        if fitting:
            gap_size, start = min(fitting)
            place = bisect(self.gaps, (start, 0))
            self.gaps[place : place + 1] = [(start + size, gap_size - size)] if gap_size > size else []
            return start
        start = self.end
        if self.gaps and sum(self.gaps[-1]) == self.end:  # extend the gap at the end
            start, _ = self.gaps.pop()
        self.end = start + size
        return start

    def free(self, start: int, size: int) -> None:
        """Leave a gap, joined with those that it touches."""
        place = bisect(self.gaps, (start, 0))
        if place < len(self.gaps) and self.gaps[place][0] == start + size:
            size += self.gaps.pop(place)[1]
        if place and sum(self.gaps[place - 1]) == start:
            place -= 1
            before, size_before = self.gaps.pop(place)
            start, size = before, size + size_before
        self.gaps.insert(place, (start, size))


def reserved_bytes(spans: Sequence[Span]) -> int:
    """Return the memory that an allocator with one growing segment takes for tensors. [B]

    Tensors that begin at the same moment are placed in the order of the list.

    Notes
    -----
    Valid for: PyTorch's allocator on CUDA with expandable segments [1]_, one stream. Ignores: the pool of its own that
    tensors of less than 1 MiB have, rounding to 512 B, memory that is given back when a device is full.

    References
    ----------
    .. [1] PyTorch, c10/cuda/CUDACachingAllocator.cpp: get_free_block (the smallest block that fits),
       find_expandable_block (room at the end, from a free block right before it on), try_merge_blocks.

    Examples
    --------
    The gap that the first tensor leaves is too small for the third, though only 5 B are ever in use:

    >>> reserved_bytes([Span(size=2, first=0, last=1), Span(size=1, first=0, last=2), Span(size=4, first=2, last=2)])
    7
    """
    begun: dict[int, list[int]] = {}
    ended: dict[int, list[int]] = {}
    for number, span in enumerate(spans):
        if span.size:
            begun.setdefault(span.first, []).append(number)
            ended.setdefault(span.last, []).append(number)
    arena, starts = _Arena(), {}
    for moment in sorted({*begun, *ended}):
        for number in begun.get(moment, ()):
            starts[number] = arena.take(spans[number].size)
        for number in ended.get(moment, ()):
            arena.free(starts.pop(number), spans[number].size)
    return arena.end


def gap_bytes(spans: Sequence[Span]) -> int:
    """Memory reserved for tensors beyond the most in use at a moment; zero if sizes are symbolic. [B]"""
    if not all(type(span.size) is int for span in spans):
        return 0
    changes = [0] * (max((span.last for span in spans), default=0) + 2)
    for span in spans:
        changes[span.first] += span.size
        changes[span.last + 1] -= span.size
    in_use = most = 0
    for change in changes:
        in_use += change
        most = max(most, in_use)
    return reserved_bytes(spans) - most
