"""Benchmarks: one for each kernel class, with the ranges of its sizes and its timed points.

A benchmark has sizes by name, the operation of those sizes, and how a backend runs it. The operation is the record that
a network's layer makes, so fitting and predicting lower it alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import numpy as np
from pydantic import Field

from perfmodel.hardware.source import NonNegativeNumber, PositiveNumber, SpecTable
from perfmodel.records import Operation

if TYPE_CHECKING:
    from numpy.typing import NDArray


Sizes = Mapping[str, int]
"""Name of a size -> its value. [1]"""

Run = Callable[[], Any]
"""Runs a kernel once and returns its result."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Range from which one size of a kernel is drawn.

    Every number of samples is odd, and so is every size of a pass whose operation depends only on its number of
    elements. So a network with an even mini-batch has no operation in common with a calibration.
    """

    low: int = 1
    high: int = 1
    rule: Literal["odd", "features", "any"] = "any"
    values: tuple[int, ...] = ()

    def has(self, size: int) -> bool:
        """Tell whether a size [1] may be on this axis; rounding may move drawn sizes a little beyond its ends."""
        return size in self.values if self.values else size >= 1


@dataclass(frozen=True, slots=True)
class Prepared:
    """A kernel with its operands in memory."""

    run: Run
    share: float = 1.0
    random: bool = False


Prepare = Callable[[Any, Sizes, Operation], Prepared]
"""Tools of a backend, sizes and their operation -> a kernel with its operands."""

POINTS: Final = 20
"""Usual number of points of a class. [1]"""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Benchmark of one kernel class: its sizes, and how to prepare a kernel."""

    name: str
    axes: Mapping[str, Axis]
    operation: Callable[[Sizes], Operation]
    prepare: Prepare
    point_count: int = POINTS
    weight: float = 1.0

    def has_sizes(self, sizes: Sizes) -> bool:
        """Tell whether sizes fit this benchmark; in an earlier version its name may have meant another one."""
        return set(sizes) == set(self.axes)


Size = Annotated[int, Field(ge=0, strict=True)]


class Point(SpecTable):
    """Timing of one kernel, as it is recorded."""

    name: str
    dtype: str
    sizes: dict[str, Size] = Field(default_factory=dict)
    seconds: PositiveNumber
    spread: NonNegativeNumber = 0.0
    cold_seconds: PositiveNumber | None = None
    window: Size = 0
    retaken: Annotated[bool, Field(strict=True)] = False
    again_seconds: PositiveNumber | None = None


SEED: Final = 20190408
"""Seed of every generator of a calibration, so that two calibrations draw the same sequences [1]."""

LEAST_ODD: Final = 3
"""Smallest size under the rule ``odd`` [1]."""

FEATURE_STEPS: Final = ((0.6, 32), (0.85, 8), (1.0, 1))
"""Multiples to which numbers of features are rounded, each with the upper end of its share of the draws [1]."""

MOST_DRAWS: Final = 400
"""Draws after which a benchmark counts as having no shape within the limits [1]."""


def _rounded(value: float, axis: Axis, fraction: float) -> int:
    """Return a whole number under the axis's rule; ``fraction`` chooses among the ways to round."""
    whole = max(1, round(value))
    if axis.rule == "odd":
        return max(LEAST_ODD, whole | 1)
    if axis.rule == "features":
        step = next(step for share, step in FEATURE_STEPS if fraction < share)
        whole = max(1, round(whole / step)) * step if whole >= step else whole
    return int(min(max(whole, axis.low), axis.high))


class Sequence:
    """Low-discrepancy sizes of one benchmark: multiples of irrational numbers, shifted by the benchmark's name.

    Notes
    -----
    The n-th point is the fractional part of (shift + n alpha), alpha_j = g^-j with g^(d + 1) = g + 1 [1]_.

    References
    ----------
    .. [1] Roberts, The unreasonable effectiveness of quasirandom sequences, 2018.

    Examples
    --------
    >>> from perfmodel.calibration.benchmark import Axis
    >>> axes = {"rows": Axis(3, 999, "odd"), "features": Axis(8, 512, "features")}
    >>> one = Benchmark(name="relu", axes=axes, operation=lambda sizes: None, prepare=lambda *operands: None)
    >>> drawn = Sequence(one)
    >>> all(next(drawn)["rows"] % 2 == 1 for _ in range(50))
    True
    """

    def __init__(self, benchmark: Benchmark) -> None:
        self._axes = benchmark.axes
        dimensions = 2 * len(self._axes)  # one number for the place on each axis, one for the rounding
        self._shift = np.random.default_rng([SEED, *benchmark.name.encode()]).random(dimensions)
        root = 2.0
        for _ in range(40):
            root = (1 + root) ** (1 / (dimensions + 1))
        self._alpha = root ** -np.arange(1.0, dimensions + 1)
        self._count = 0

    def __next__(self) -> Sizes:
        self._count += 1
        row = (self._shift + self._count * self._alpha) % 1
        sizes = {}
        for index, (name, axis) in enumerate(self._axes.items()):
            place, fraction = float(row[2 * index]), float(row[2 * index + 1])
            if axis.values:
                sizes[name] = axis.values[int(place * len(axis.values))]
            else:
                sizes[name] = _rounded(axis.low * (axis.high / axis.low) ** place, axis, fraction)
        return sizes

    def __iter__(self) -> Iterator[Sizes]:
        return self


def shapes(
    benchmark: Benchmark,
    *,
    allowed: Callable[[Operation], bool],
    taken: Collection[Sizes] = (),
) -> Iterator[Sizes]:
    """Yield the sizes of a benchmark within the limits, each once."""
    sequence = Sequence(benchmark)
    known = {tuple(sorted(sizes.items())) for sizes in taken}
    refused = 0
    while refused < MOST_DRAWS:
        sizes = next(sequence)
        key = tuple(sorted(sizes.items()))
        operation = None if key in known else benchmark.operation(sizes)
        if operation is None or not allowed(operation):
            refused += 1
            continue
        known.add(key)
        refused = 0
        yield sizes


def most_telling(sensitivities: NDArray[np.float64], candidates: NDArray[np.float64], *, prior: float) -> int:
    """Return the candidate about which a fit is least certain.

    >>> most_telling(np.array([[1.0, 0.0]]), np.array([[0.9, 0.1], [0.1, 0.9]]), prior=0.1)
    1
    """
    count = candidates.shape[1]
    information = sensitivities.T @ sensitivities + prior * np.eye(count)
    leverage = np.einsum("ij,ji->i", candidates, np.linalg.solve(information, candidates.T))
    return int(np.argmax(leverage))
