"""From points to the classes of a file: one curve each, drawn to the curve of its pooled class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.calibration.benchmark import Benchmark, Point
from perfmodel.calibration.fit import FittedCurve, fit_curve, repeat_spread_of
from perfmodel.calibration.surroundings import cold_rate
from perfmodel.cost.measured_kernel import kernel_features
from perfmodel.framework.kernel_classes import (
    CLASS_OF_PASS,
    ELEMENTWISE,
    POOLED_CONTRACTION,
    POOLED_CONVOLUTION,
    POOLED_RECURRENCE,
    family_of,
    measured_kernel,
    pooled_classes,
)
from perfmodel.framework.kernel_table import MATMUL_COLUMNS, STREAM_COLUMNS
from perfmodel.kernels import Matmul
from perfmodel.records import ELEMENT_BYTES, Operation, Role
from perfmodel.units import MIB

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts of the machine that features depend on."""

    vector_lanes: int
    near_cache_bytes: float
    cache_bytes: float
    reuse_bytes: float
    memory_bytes: float

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Machine:
        """Read it from the table ``machine`` of a file."""
        return cls(
            vector_lanes=int(facts["vector_lanes"]),
            near_cache_bytes=float(facts["near_cache_mib"]) * MIB,
            cache_bytes=float(facts["cache_mib"]) * MIB,
            reuse_bytes=float(facts.get("reuse_mib") or facts["cache_mib"]) * MIB,
            memory_bytes=float(facts["memory_gib"]) * MIB * 1024,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Features of the operations of one class."""

    family: str
    names: tuple[str, ...]
    features: NDArray[np.float64]
    flop_count: NDArray[np.float64]
    moved_bytes: NDArray[np.float64]


def columns_of(operations: Sequence[Operation], *, dtype: str, machine: Machine) -> Columns:
    """Compute the columns of operations of one family."""
    size = ELEMENT_BYTES[dtype]
    kernels = [measured_kernel(operation, element_bytes=size) for operation in operations]
    names = MATMUL_COLUMNS if isinstance(kernels[0], Matmul) else STREAM_COLUMNS
    table = {name: np.array([float(getattr(kernel, name)) for kernel in kernels]) for name in names}
    family = family_of(kernels[0].efficiency)
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
"""Points below which a class has no curve of its own, and predictions take that of its pooled class [1]."""

POOLED: Final = frozenset(
    {
        POOLED_CONTRACTION,
        POOLED_RECURRENCE,
        *(f"{POOLED_CONVOLUTION}_{role.value}" for role in (Role.OUTPUT, Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT)),
        *CLASS_OF_PASS.values(),
        ELEMENTWISE,
    }
)
"""Pooled classes, made of the points of several others."""

PLAIN_PRODUCTS: Final = "gemm_"
"""Prefixes of the classes whose rates count for the best rate of products. [-]"""

SHARED_DTYPE: Final = {"tf32": "fp32"}
"""Data type -> the one whose passes it shares, as both have the same layout in memory."""


@dataclass(frozen=True, slots=True, eq=False)
class ClassPoints:
    """Points of one class in one data type."""

    name: str
    dtype: str
    points: tuple[Point, ...]
    operations: tuple[Operation, ...]

    def columns(self, machine: Machine) -> Columns:
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

    Examples
    --------
    >>> pool_of("batch_norm", ["batch_norm", "relu"]), pool_of("conv2d_3x3_s2_output", [])
    ('reduction', 'convolution_output')
    """
    known = set(measured)
    return next((each for each in pooled_classes(name) if each in POOLED and each not in known), None)


def _joined(parts: Sequence[Columns]) -> Columns:
    first = parts[0]
    return replace(
        first,
        features=np.concatenate([part.features for part in parts]),
        flop_count=np.concatenate([part.flop_count for part in parts]),
        moved_bytes=np.concatenate([part.moved_bytes for part in parts]),
    )


def fitted_classes(
    classes: Sequence[ClassPoints], *, machine: Machine, cold_of_copy: float | None = None
) -> list[dict[str, Any]]:
    """Fit every class, and every pooled class that stands in where a class was not measured."""
    rows: list[dict[str, Any]] = []
    noise = session_repeat_spread(point for each in classes for point in each.points)
    for dtype in dict.fromkeys(each.dtype for each in classes):
        of_dtype = [each for each in classes if each.dtype == dtype]
        rows += _of_dtype(of_dtype, machine=machine, repeat_spread=noise, cold_of_copy=cold_of_copy)
    # a class of too few points takes its own type's pooled class, not another type's curve
    have = {(row["name"], row["dtype"]) for row in rows} | {(each.name, each.dtype) for each in classes}
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
    """Return the best rate of products of each data type: of the one product measured for it, or of any point."""
    best = dict(rates)
    for each in classes:
        if each.name.startswith(PLAIN_PRODUCTS):
            counts = [float(operation.product_flop_count) for operation in each.operations]
            best[each.dtype] = max(
                best[each.dtype],
                *(count / point.seconds for count, point in zip(counts, each.points, strict=True)),
            )
    return best


def _of_dtype(
    classes: Sequence[ClassPoints], *, machine: Machine, repeat_spread: float, cold_of_copy: float | None
) -> list[dict[str, Any]]:
    columns = {each.name: each.columns(machine) for each in classes}
    members: dict[str, list[ClassPoints]] = {}
    for each in classes:
        pool = pool_of(each.name, columns)
        if pool is not None:
            members.setdefault(pool, []).append(each)
    cold = _cold(classes, columns, machine, cold_of_copy)  # by family
    rows, curves = [], {}
    for pool, of_pool in members.items():
        joined = _joined([columns[each.name] for each in of_pool])
        points = [point for each in of_pool for point in each.points]
        curves[pool] = _fit(joined, points, None, repeat_spread)
        rows.append(_row(pool, of_pool[0].dtype, joined, points, curves[pool], cold[joined.family]))
    for each in classes:
        if len(each.points) < LEAST_POINTS:
            continue
        pooled = curves.get(pool_of(each.name, columns) or "")
        curve = _fit(columns[each.name], each.points, pooled, repeat_spread)
        of_family = cold[columns[each.name].family]
        rows.append(_row(each.name, each.dtype, columns[each.name], each.points, curve, of_family))
    return rows


def _fit(columns: Columns, points: Sequence[Point], pooled: FittedCurve | None, repeat_spread: float) -> FittedCurve:
    seconds, spread = [point.seconds for point in points], [point.spread for point in points]
    return fit_curve(columns, seconds, spread=spread, pooled=pooled, repeat_spread=repeat_spread)


def _cold(
    classes: Sequence[ClassPoints], columns: Mapping[str, Columns], machine: Machine, of_copy: float | None
) -> dict[str, float]:
    """Return one rate for each family, as one class has too few flushed points."""
    rates = {}
    for family in dict.fromkeys(each.family for each in columns.values()):
        flushed = [
            (point.seconds, point.cold_seconds, float(size))
            for each in classes
            if columns[each.name].family == family
            for point, size in zip(each.points, columns[each.name].moved_bytes, strict=True)
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
