"""What is timed: a benchmark of each kernel class, the sizes it is drawn over, and the points that come of it.

A benchmark knows sizes by name, the neutral operation that they make (the same record that a network's layer yields, so
that fitting and predicting lower it alike), and how a backend runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from perfmodel.records import Operation

Sizes = Mapping[str, int]
"""Name of a size -> its value. [1]"""

Run = Callable[[], Any]
"""Runs a kernel once and returns what it makes."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A size that is drawn.

    Parameters
    ----------
    low, high : int
        Smallest and largest value, drawn log-uniformly. [1]
    rule : str
        ``odd``: odd and at least 3; ``features``: mostly multiples of 8 and 32, as
        people choose them; ``any``: any whole number. [-]
    values : tuple of int
        The only values there are, where it is a choice; then the others say nothing. [1]

    Notes
    -----
    Whatever counts samples is odd, and so is every size of a pass whose operation is told by its number of elements
    alone. So a network with an even mini-batch has no operation in common with a calibration.
    """

    low: int = 1
    high: int = 1
    rule: Literal["odd", "features", "any"] = "any"
    values: tuple[int, ...] = ()

    def has(self, size: int) -> bool:
        """Tell whether a size [1] may be of this axis; rounding takes drawn ones a little beyond its ends."""
        return size in self.values if self.values else size >= 1


@dataclass(frozen=True, slots=True)
class Prepared:
    """A kernel with its operands in memory.

    Parameters
    ----------
    run : callable
        Runs it once. [-]
    share : float
        Part of the time that belongs to the operation, where a library yields two at once. [1]
    random : bool
        Whether two runs differ, as where elements are dropped. [-]
    """

    run: Run
    share: float = 1.0
    random: bool = False


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """How kernels of one class are made.

    Parameters
    ----------
    name : str
        The class. [-]
    axes : mapping of str to Axis
        What is drawn. [-]
    operation : callable
        Sizes to the neutral operation. [-]
    prepare : callable
        Of (tools of the backend, sizes, operation): the kernel with its operands. [-]
    point_count : int
        Shapes that are wanted. [1]
    weight : float
        How much of a usual training step kernels of this class are, against other classes. [1]
    """

    name: str
    axes: Mapping[str, Axis]
    operation: Callable[[Sizes], Operation]
    prepare: Callable[[Any, Sizes, Operation], Prepared]
    point_count: int = 20
    weight: float = 1.0

    def has_sizes(self, sizes: Sizes) -> bool:
        """Tell whether sizes are of this benchmark, and not of one that an earlier version had under its name."""
        return set(sizes) == set(self.axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One kernel as it was timed.

    Parameters
    ----------
    name : str
        Its class. [-]
    dtype : str
        Data type. [-]
    sizes : mapping of str to int
        Its sizes, which its benchmark makes an operation of. [1]
    seconds : float
        Median time with its operands as the last run left them. [s]
    spread : float
        Standard error of that median, as a share of it. [1]
    cold_seconds : float or None
        Median time after the caches were flushed; None where that was not timed. [s]
    window : int
        Number of the window between two runs of the reference kernel. [1]
    retaken : bool
        Whether it was taken a second time because the machine had drifted. [-]
    again_seconds : float or None
        Median time once more at the end of the session, of the few points that tell how well a time repeats. [s]
    """

    name: str
    dtype: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    seconds: float
    spread: float = 0.0
    cold_seconds: float | None = None
    window: int = 0
    retaken: bool = False
    again_seconds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the point as plain values."""
        return asdict(self)
