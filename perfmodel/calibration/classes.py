r"""Kernel classes of a calibration: the points of each class, and a few positive constants fitted to them.

A class's time is :math:`t = \sum_i c_i f_i`. The logarithms of the constants are fitted to the logarithms of the times:
so all stay positive, and a small kernel counts as much as a large one. Points far off count less (soft L1). Every
constant is pulled to that of its pooled class, more strongly the fewer points determine it.

The interval of a constant says how much it changes from one calibration of a machine to the next: by noise of the
times, and by the few shapes that differ (the sandwich estimator [1]_). The distance of points from their curve is
separate, the residual of the class: the same shapes have it the second time too.

References
----------
.. [1] H. White, Maximum likelihood estimation of misspecified models, Econometrica 50 (1982); with the correction for
   few points of J. G. MacKinnon, H. White, Some heteroskedasticity-consistent covariance matrix estimators with
   improved finite sample properties, Journal of Econometrics 29 (1985).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.calibration.benchmark import Benchmark, Point
from perfmodel.calibration.surroundings import cold_rate
from perfmodel.cost.measured_kernel import kernel_features
from perfmodel.framework import measured_lowering
from perfmodel.framework.kernel_table import MATMUL_COLUMNS, STREAM_COLUMNS
from perfmodel.framework.measured_lowering import measured_kernel, pooled_classes
from perfmodel.hardware.fit_file import Z_80
from perfmodel.kernels import Matmul
from perfmodel.records import ELEMENT_BYTES, Operation, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.hardware.measured_machine import MeasuredOn


PRIOR_SPREAD: Final = 0.7
"""Standard deviation of the logarithm of a constant around that of its pooled class: a factor of 2 [1]."""

LOOSE_SPREAD: Final = 3.0
"""Standard deviation of that logarithm around a rough guess, if there is no pooled class [1]."""

LEAST_SIGMA: Final = 0.02
"""Least spread of points about their curve [1]."""

LEAST_SHARE: Final = 0.02
"""Share of a point's time below which a constant cannot be determined and is dropped [1]."""

PROPORTIONAL: Final = 1.15
"""Largest over smallest ratio of two features that points cannot separate; the later one is dropped [1]."""

REPEAT_SPREAD: Final = 0.05
"""Standard deviation of a time from one run to the next, if no point was taken twice [1]."""

OTHER_POINTS: Final = 0.1
"""Share of points that a second calibration takes at other sizes, with other distances from the curve: 5 to 20 % of
five pairs of calibrations of one machine; with it nine of ten constants agreed within their 80 % intervals [1]."""

FEWEST_REPEATS: Final = 10
"""Fewest points taken twice whose scatter is used [1]."""

QUANTILE_80: Final = 0.8
"""Share of the differences of repeated points that their interval must hold [1]."""

FIT_ROUNDS: Final = 2
"""Rounds of estimating the spread about the curve and fitting again [1]."""


@dataclass(frozen=True, slots=True, eq=False)
class FittedCurve:
    """Constants of one class with their covariance."""

    constants: Mapping[str, float]
    log_spread: Mapping[str, float]
    residuals: NDArray[np.float64]

    def times(self, columns: Columns) -> NDArray[np.float64]:
        """Return the times of other operations of the class [s]."""
        constants = np.array([self.constants.get(name, 0.0) for name in columns.names])
        times: NDArray[np.float64] = columns.features @ constants
        return times

    def sensitivities(self, columns: Columns) -> NDArray[np.float64]:
        """Return derivatives of log times to log constants, shape (operations, constants) [1]."""
        constants = np.array([self.constants.get(name, 0.0) for name in columns.names])
        shares: NDArray[np.float64] = columns.features * constants / self.times(columns)[:, None]
        return shares

    @property
    def low(self) -> dict[str, float]:
        """Lower ends of the 80 % intervals."""
        return {name: value * float(np.exp(-Z_80 * self.log_spread[name])) for name, value in self.constants.items()}

    @property
    def high(self) -> dict[str, float]:
        """Upper ends of the 80 % intervals."""
        return {name: value * float(np.exp(Z_80 * self.log_spread[name])) for name, value in self.constants.items()}

    @property
    def residual_percent(self) -> float:
        """Mean of abs ln(fitted / measured). [%]"""
        return 100 * float(np.mean(np.abs(self.residuals)))


def _distinct(features: NDArray[np.float64]) -> list[int]:
    """Return the columns that are above zero somewhere and not proportional to an earlier one."""
    kept: list[int] = []
    for index in range(features.shape[1]):
        column = features[:, index]
        if not (column > 0).any():
            continue
        if (column > 0).all() and any(_proportional(features[:, other], column) for other in kept):
            continue
        kept.append(index)
    return kept


def _proportional(first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
    if not (first > 0).all() or len(first) == 1:
        return False
    ratio = second / first
    return bool(ratio.max() <= PROPORTIONAL * ratio.min())


def fit_curve(
    columns: Columns,
    seconds: Sequence[float],
    *,
    spread: Sequence[float] = (),
    pooled: FittedCurve | None = None,
    repeat_spread: float = REPEAT_SPREAD,
) -> FittedCurve:
    """Fit the constants of one class."""
    times = np.log(np.asarray(seconds, dtype=np.float64))
    noise = np.asarray(spread, dtype=np.float64) if len(spread) else np.zeros_like(times)
    kept = _distinct(columns.features)
    curve = None
    while True:
        names = [columns.names[index] for index in kept]
        features = columns.features[:, kept]
        prior = _prior(names, features, times, pooled)
        known = {} if pooled is None else pooled.log_spread
        centre_spread = np.array([known.get(name, 0.0) for name in names])  # between two calibrations
        log_constants, covariance = _solve(features, times, noise, *prior, centre_spread, repeat_spread=repeat_spread)
        constants = np.exp(log_constants)
        fitted = features @ constants
        curve = FittedCurve(
            constants=dict(zip(names, constants.tolist(), strict=True)),
            log_spread=dict(zip(names, np.sqrt(np.diag(covariance)).tolist(), strict=True)),
            residuals=np.log(fitted) - times,
        )
        shares = (features * constants / fitted[:, None]).max(axis=0)
        if len(kept) == 1 or shares.min() >= LEAST_SHARE:
            return curve
        kept.pop(int(np.argmin(shares)))


def _prior(
    names: Sequence[str], features: NDArray[np.float64], times: NDArray[np.float64], pooled: FittedCurve | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return centre and spread of the logarithms of the constants."""
    centre, width = np.empty(len(names)), np.empty(len(names))
    for index, name in enumerate(names):
        column = features[:, index]
        guess = np.median(times[column > 0] - np.log(column[column > 0])) - np.log(len(names))
        known = None if pooled is None else pooled.constants.get(name)
        centre[index] = guess if known is None else np.log(known)
        width[index] = LOOSE_SPREAD if known is None else PRIOR_SPREAD
    return centre, width


def _solve(
    features: NDArray[np.float64],
    times: NDArray[np.float64],
    noise: NDArray[np.float64],
    centre: NDArray[np.float64],
    width: NDArray[np.float64],
    centre_spread: NDArray[np.float64],
    *,
    repeat_spread: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the logarithms of the constants, and their covariance from one calibration to the next."""
    from scipy.optimize import least_squares

    sigma = np.sqrt(0.15**2 + noise**2)
    logs = centre.copy()
    for _ in range(FIT_ROUNDS):

        def residuals(at: NDArray[np.float64], sigma: NDArray[np.float64] = sigma) -> NDArray[np.float64]:
            off = (np.log(features @ np.exp(at)) - times) / sigma
            return np.concatenate([off, (at - centre) / width])

        def jacobian(at: NDArray[np.float64], sigma: NDArray[np.float64] = sigma) -> NDArray[np.float64]:
            parts = features * np.exp(at)
            shares = parts / parts.sum(axis=1, keepdims=True) / sigma[:, None]
            return np.vstack([shares, np.diag(1 / width)])

        solution = least_squares(residuals, logs, jac=jacobian, loss="soft_l1", max_nfev=200)
        logs = solution.x
        off = np.abs(residuals(logs)[: len(times)] * sigma)
        freedom = max(len(times) - len(logs), 1) / len(times)
        typical = max(LEAST_SIGMA, 1.4826 * float(np.median(off)) / np.sqrt(freedom))
        sigma = np.sqrt(typical**2 + noise**2)
    slopes = jacobian(logs, sigma)
    weight = 1 / np.sqrt(1 + residuals(logs, sigma) ** 2)  # half the slope of the soft-L1 loss
    bread = np.linalg.inv((slopes * weight[:, None]).T @ slopes)
    # both estimate the same noise; a point's few repeats may by chance be closer together than later runs
    squared_noise = np.maximum(repeat_spread**2, (repeat_spread**2 + noise**2) / 2)
    varies = squared_noise + OTHER_POINTS * (residuals(logs, sigma)[: len(times)] * sigma) ** 2
    noisy = (slopes * weight[:, None])[: len(times)] * (np.sqrt(varies) / sigma)[:, None]
    few = len(times) / max(
        len(times) - len(logs), 1
    )  # correction for few points per constant: HC1 of MacKinnon and White
    drawn = np.diag((centre_spread / width**2) ** 2)
    covariance: NDArray[np.float64] = (bread @ (few * noisy.T @ noisy + drawn) @ bread).astype(np.float64)
    return logs, covariance


def repeat_spread_of(first_s: Sequence[float], second_s: Sequence[float]) -> float:
    """Return the standard deviation of a time from one run to a later one.

    >>> repeat_spread_of([1.0], [1.1])
    0.05
    >>> round(repeat_spread_of([1.0] * 20, [1.1, 1 / 1.1] * 10), 3)
    0.053
    """
    if len(first_s) < FEWEST_REPEATS:
        return REPEAT_SPREAD
    apart = np.abs(np.log(np.asarray(second_s) / np.asarray(first_s)))
    return max(LEAST_SIGMA, float(np.quantile(apart, QUANTILE_80)) / Z_80 / math.sqrt(2.0))


def agreement(
    first: Mapping[str, tuple[float, float, float]], second: Mapping[str, tuple[float, float, float]]
) -> dict[str, Any]:
    """Measure the agreement of two calibrations.

    >>> agreement({"call": (1.0, 0.9, 1.1)}, {"call": (1.15, 1.05, 1.25)})["overlapping"]
    1.0
    >>> agreement({"call": (1.0, 0.9, 1.1)}, {"call": (1.15, 1.05, 1.25)})["inside"]
    0.0
    """
    shared = [name for name in first if name in second]
    overlapping = [first[name][1] <= second[name][2] and second[name][1] <= first[name][2] for name in shared]
    inside = [first[name][1] <= second[name][0] <= first[name][2] for name in shared]
    widths = [(high - low) / 2 / value for value, low, high in (first[name] for name in shared) if value > 0]
    return {
        "shared": len(shared),
        "overlapping": float(np.mean(overlapping)) if shared else 1.0,
        "inside": float(np.mean(inside)) if shared else 1.0,
        "half_width_percent": 100 * float(np.median(widths)) if widths else 0.0,
    }


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Features of the operations of one class."""

    family: str
    names: tuple[str, ...]
    features: NDArray[np.float64]
    flop_count: NDArray[np.float64]
    moved_bytes: NDArray[np.float64]


def columns_of(operations: Sequence[Operation], *, dtype: str, machine: MeasuredOn) -> Columns:
    """Compute the columns of operations of one family."""
    size = ELEMENT_BYTES[dtype]
    kernels = [measured_kernel(operation, element_bytes=size) for operation in operations]
    names = MATMUL_COLUMNS if isinstance(kernels[0], Matmul) else STREAM_COLUMNS
    table = {name: np.array([float(getattr(kernel, name)) for kernel in kernels]) for name in names}
    family = measured_lowering.family_of(kernels[0].efficiency)
    features = kernel_features(
        family,
        table,
        element_bytes=size,
        vector_lanes=machine.vector_lanes,
        near_cache_bytes=machine.near_cache_bytes,
    )
    return Columns(
        family=family,
        names=tuple(features),
        features=np.stack([np.broadcast_to(column, len(kernels)) for column in features.values()], axis=1).astype(
            float
        ),
        flop_count=np.array([float(kernel.flop_count) for kernel in kernels]),
        moved_bytes=table["read_bytes"] + table["written_bytes"],
    )


LEAST_POINTS: Final = 4
"""Points that a class needs for its own curve; with fewer, predictions use the curve of its pooled class [1]."""

POOLED: Final = frozenset(
    {
        measured_lowering.POOLED_CONTRACTION,
        measured_lowering.POOLED_RECURRENCE,
        *(
            f"{measured_lowering.POOLED_CONVOLUTION}_{role.value}"
            for role in (Role.OUTPUT, Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT)
        ),
        *measured_lowering.CLASS_OF_PASS.values(),
        measured_lowering.ELEMENTWISE,
    }
)
"""Pooled classes, made of the points of several others."""

PLAIN_PRODUCTS: Final = "gemm_"
"""Prefixes of the classes that count for the best rate of products. [-]"""

SHARED_DTYPE: Final = {"tf32": "fp32"}
"""Data type -> the type whose passes it shares, because both have the same layout in memory."""


@dataclass(frozen=True, slots=True, eq=False)
class ClassPoints:
    """Points of one class in one data type."""

    name: str
    dtype: str
    points: tuple[Point, ...]
    operations: tuple[Operation, ...]

    def columns(self, machine: MeasuredOn) -> Columns:
        """Return their columns."""
        return columns_of(self.operations, dtype=self.dtype, machine=machine)


def grouped(points: Iterable[Point], benchmarks: Mapping[str, Mapping[str, Benchmark]]) -> list[ClassPoints]:
    """Return points by class."""
    by_class: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        by_class.setdefault((point.name, point.dtype), []).append(point)
    return [
        ClassPoints(
            name=name,
            dtype=dtype,
            points=tuple(of_class),
            operations=tuple(benchmarks[dtype][name].operation(point.sizes) for point in of_class),
        )
        for (name, dtype), of_class in by_class.items()
        if name in benchmarks.get(dtype, {})
    ]


def pool_of(name: str, measured: Iterable[str]) -> str | None:
    """Return the nearest pooled class of a class that is not itself measured.

    >>> pool_of("batch_norm", ["batch_norm", "relu"]), pool_of("conv2d_3x3_s2_output", [])
    ('reduction', 'convolution_output')
    """
    known = set(measured)
    return next((pool for pool in pooled_classes(name) if pool in POOLED and pool not in known), None)


def _joined(parts: Sequence[Columns]) -> Columns:
    first = parts[0]
    return replace(
        first,
        features=np.concatenate([part.features for part in parts]),
        flop_count=np.concatenate([part.flop_count for part in parts]),
        moved_bytes=np.concatenate([part.moved_bytes for part in parts]),
    )


def fitted_classes(
    classes: Sequence[ClassPoints], *, machine: MeasuredOn, cold_of_copy: float | None = None
) -> list[dict[str, Any]]:
    """Fit every class, and every pooled class that replaces unmeasured classes."""
    rows: list[dict[str, Any]] = []
    noise = session_repeat_spread(point for kernels in classes for point in kernels.points)
    for dtype in dict.fromkeys(kernels.dtype for kernels in classes):
        of_dtype = [kernels for kernels in classes if kernels.dtype == dtype]
        rows += _of_dtype(of_dtype, machine=machine, repeat_spread=noise, cold_of_copy=cold_of_copy)
    # a class of too few points takes its own type's pooled class, not another type's curve
    have = {(row["name"], row["dtype"]) for row in rows} | {(kernels.name, kernels.dtype) for kernels in classes}
    for dtype, source in SHARED_DTYPE.items():
        if any(row["dtype"] == dtype for row in rows):
            rows += [
                {**row, "dtype": dtype}
                for row in list(rows)
                if row["dtype"] == source and (row["name"], dtype) not in have
            ]
    return rows


def session_repeat_spread(points: Iterable[Point]) -> float:
    """Return the spread of the repeated times of a session."""
    twice = [(point.seconds, point.again_seconds) for point in points if point.again_seconds is not None]
    return repeat_spread_of([first for first, _ in twice], [second for _, second in twice])


def best_rates(classes: Iterable[ClassPoints], rates: Mapping[str, float]) -> dict[str, float]:
    """Return the best rate of products by data type: of the product measured for that, or of any point."""
    best = dict(rates)
    for kernels in classes:
        if kernels.name.startswith(PLAIN_PRODUCTS):
            counts = [float(operation.product_flop_count) for operation in kernels.operations]
            best[kernels.dtype] = max(
                best[kernels.dtype],
                *(count / point.seconds for count, point in zip(counts, kernels.points, strict=True)),
            )
    return best


def _of_dtype(
    classes: Sequence[ClassPoints], *, machine: MeasuredOn, repeat_spread: float, cold_of_copy: float | None
) -> list[dict[str, Any]]:
    columns = {kernels.name: kernels.columns(machine) for kernels in classes}
    members: dict[str, list[ClassPoints]] = {}
    for kernels in classes:
        pool = pool_of(kernels.name, columns)
        if pool is not None:
            members.setdefault(pool, []).append(kernels)
    cold = _cold(classes, columns, machine, cold_of_copy)  # by family
    rows, curves = [], {}
    for pool, of_pool in members.items():
        joined = _joined([columns[kernels.name] for kernels in of_pool])
        points = [point for kernels in of_pool for point in kernels.points]
        curves[pool] = _fit(joined, points, None, repeat_spread)
        rows.append(_row(pool, of_pool[0].dtype, joined, points, curves[pool], cold[joined.family]))
    for kernels in classes:
        if len(kernels.points) < LEAST_POINTS:
            continue
        pooled = curves.get(pool_of(kernels.name, columns) or "")
        curve = _fit(columns[kernels.name], kernels.points, pooled, repeat_spread)
        of_family = cold[columns[kernels.name].family]
        rows.append(_row(kernels.name, kernels.dtype, columns[kernels.name], kernels.points, curve, of_family))
    return rows


def _fit(columns: Columns, points: Sequence[Point], pooled: FittedCurve | None, repeat_spread: float) -> FittedCurve:
    seconds, spread = [point.seconds for point in points], [point.spread for point in points]
    return fit_curve(columns, seconds, spread=spread, pooled=pooled, repeat_spread=repeat_spread)


def _cold(
    classes: Sequence[ClassPoints], columns: Mapping[str, Columns], machine: MeasuredOn, of_copy: float | None
) -> dict[str, float]:
    """Return one cold rate for each family, because a single class has too few flushed points."""
    rates = {}
    for family in dict.fromkeys(column.family for column in columns.values()):
        flushed = [
            (point.seconds, point.cold_seconds, float(size))
            for kernels in classes
            if columns[kernels.name].family == family
            for point, size in zip(kernels.points, columns[kernels.name].moved_bytes, strict=True)
            if point.cold_seconds is not None
        ]
        hot_s, flushed_s, moved = ([row[index] for row in flushed] for index in range(3))
        rates[family] = cold_rate(hot_s, flushed_s, moved, reuse_bytes=machine.reuse_bytes, of_copy=of_copy)
    return rates


def _row(
    name: str, dtype: str, columns: Columns, points: Sequence[Point], curve: FittedCurve, cold: float
) -> dict[str, Any]:
    return {
        "name": name,
        "dtype": dtype,
        "family": columns.family,
        "constants": dict(curve.constants),
        "low": curve.low,
        "high": curve.high,
        "cold_s_per_byte": cold,
        "point_count": len(points),
        "residual_percent": curve.residual_percent,
        "flop_range": (float(columns.flop_count.min()), float(columns.flop_count.max())),
        "byte_range": (float(columns.moved_bytes.min()), float(columns.moved_bytes.max())),
    }
