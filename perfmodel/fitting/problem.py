"""Measured rows as functions of the unknowns, evaluated like predictions, for many configurations at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.derived import derived_property
from perfmodel.errors import CalibrationError
from perfmodel.hardware.fit_file import FitPlan, Unknown
from perfmodel.prediction.certainty.prediction_interval import prior_covariance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.fitting.kernel_boards import KernelBoard
    from perfmodel.prediction.job.prepared import Prepared


STEP = 0.01
"""Half width of the central difference of a gradient, in ln(factor). [1]"""

Times = tuple["NDArray[np.float64]", "NDArray[np.float64]"]
"""ln of predicted times, shape (rows,), and their gradients, shape (rows, unknowns)."""

NOTHING_HELD: Mapping[Any, float] = MappingProxyType({})


@dataclass(frozen=True, eq=False, kw_only=True)
class CompiledRows:
    """Rows that are timed together, one step or the kernels of a board, and the unknowns that scale their constants."""

    times: Callable[[Mapping[str, Any]], Any]
    row_count: int
    scaling: dict[str, tuple[tuple[int, ...], float]]
    """Constant -> indices of the unknowns that scale it, and the logarithm of the factor that it starts at."""

    @classmethod
    def of(
        cls,
        names: Iterable[str],
        unknowns: Sequence[Unknown],
        times: Callable[[Mapping[str, Any]], Any],
        *,
        row_count: int = 1,
        values: Mapping[str, object] | None = None,
        held: Mapping[Unknown, float] = NOTHING_HELD,
    ) -> CompiledRows:
        """Compile rows whose times depend on some constants; ``held`` unknowns keep their logarithms of factors."""
        scaling = {}
        for name in names:
            matching = tuple(index for index, unknown in enumerate(unknowns) if unknown.matches(name))
            fixed = [unknown for unknown in held if unknown.matches(name)]
            if matching or fixed:
                start = _start(name, [*(unknowns[index] for index in matching), *fixed], values)
                scaling[name] = (matching, start + sum(held[unknown] for unknown in fixed))
        return cls(times=times, row_count=row_count, scaling=scaling)

    @derived_property
    def reached(self) -> tuple[int, ...]:
        """Indices of the unknowns that scale a constant of these rows."""
        return tuple(sorted({index for indices, _ in self.scaling.values() for index in indices}))

    def factors(self, log_factors: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Return the factors that multiply the constants of the files."""
        products = {
            (indices, start): np.exp(start + log_factors[list(indices)].sum(axis=0))
            for indices, start in set(self.scaling.values())
        }
        return {name: products[scaled_by] for name, scaled_by in self.scaling.items()}

    def log_times(self, log_factors: NDArray[np.float64], *, step: float) -> Times:
        """Return times and gradients from one evaluation with every reached unknown raised, then lowered."""
        reached, half = list(self.reached), len(self.reached)
        shifted = np.repeat(log_factors[:, None], 2 * half + 1, axis=1)
        shifted[reached, np.arange(1, half + 1)] += step
        shifted[reached, np.arange(half + 1, 2 * half + 1)] -= step
        times = np.reshape(self.times(self.factors(shifted)), (self.row_count, -1))
        times = np.log(np.broadcast_to(times, (self.row_count, shifted.shape[1])))
        gradients = np.zeros((self.row_count, len(log_factors)))
        gradients[:, reached] = (times[:, 1 : half + 1] - times[:, half + 1 :]) / (2 * step)
        return times[:, 0], gradients


def _start(name: str, matching: Sequence[Unknown], values: Mapping[str, object] | None) -> float:
    stated = [unknown.start for unknown in matching if unknown.start is not None]
    if not stated or values is None:
        return 0.0
    value = values.get(name)
    if len(stated) > 1 or not isinstance(value, int | float) or value <= 0:
        message = f"{name} = {value!r} cannot start at {stated}: only a number above zero can have a start, one at most"
        raise CalibrationError(message)
    return float(np.log(stated[0] / value))


@dataclass(frozen=True, eq=False)
class Problem:
    """All rows of a fit, with the prior of its unknowns; rows are numbered part after part."""

    parts: tuple[CompiledRows, ...]
    log_measured: NDArray[np.float64]
    unknowns: tuple[Unknown, ...]
    plan: FitPlan
    _known: dict[tuple[int, float, bytes], Times] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, steps: Sequence[Prepared], measured_s: Sequence[float], plan: FitPlan) -> Problem:
        """Compile measured steps under a plan."""
        unknowns = plan.unknowns(dict.fromkeys(name for step in steps for name in step.constant_names))
        parts = tuple(CompiledRows.of(step.constant_names, unknowns, partial(_step_s, step)) for step in steps)
        return cls(parts, np.log(np.asarray(measured_s, dtype=np.float64)), unknowns, plan)

    @classmethod
    def of_boards(
        cls, boards: Sequence[KernelBoard], plan: FitPlan, *, held: Mapping[str, float] = NOTHING_HELD
    ) -> Problem:
        """Compile the kernels of boards under a plan; ``held`` unknowns, by name, are not fitted."""
        everything = plan.unknowns(dict.fromkeys(name for board in boards for name in board.constant_names))
        unknowns = tuple(unknown for unknown in everything if unknown.name not in held)
        parts = tuple(
            CompiledRows.of(
                board.constant_names,
                unknowns,
                board.times,
                row_count=len(board.rows),
                values=board.constant_values,
                held={unknown: held[unknown.name] for unknown in everything if unknown.name in held},
            )
            for board in boards
        )
        return cls(parts, np.log(np.concatenate([board.measured_s for board in boards])), unknowns, plan)

    @derived_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Part of each row, and the row's number in it."""
        return tuple((index, place) for index, part in enumerate(self.parts) for place in range(part.row_count))

    def log_times(self, log_factors: NDArray[np.float64], rows: Iterable[int], *, step: float = STEP) -> Times:
        """Return ln of predicted times and their gradients; evaluate a part only once for the same unknowns."""
        places = [self.places[row] for row in rows]
        known = {}
        for index in dict.fromkeys(index for index, _ in places):
            part = self.parts[index]
            key = (index, step, log_factors[list(part.reached)].tobytes())
            if key not in self._known:
                self._known[key] = part.log_times(log_factors, step=step)
            known[index] = self._known[key]
        times, gradients = ([known[index][kind][place] for index, place in places] for kind in (0, 1))
        return np.array(times), np.array(gradients)

    def reached_by(self, rows: Iterable[int]) -> frozenset[int]:
        """Return the unknowns that scale constants of these rows."""
        return frozenset().union(*(self.parts[self.places[row][0]].reached for row in rows))

    def forget(self, *, keep: NDArray[np.float64]) -> None:
        """Drop the cached times, except those at factors ``keep`` from which several fits start."""
        wanted = [keep[list(part.reached)].tobytes() for part in self.parts]
        kept = {key: times for key, times in self._known.items() if key[2] == wanted[key[0]]}
        self._known.clear()
        self._known.update(kept)

    def prior_root(self) -> NDArray[np.float64]:
        """Return the matrix W that makes the components of W x independent unit normals under the prior.

        Unknowns of one group share a common part, so an unknown without rows of its own follows the group's mean.
        """
        root: NDArray[np.float64] = np.linalg.inv(np.linalg.cholesky(prior_covariance(self.unknowns)))
        return root


def _step_s(step: Prepared, factors: Mapping[str, Any]) -> Any:
    return step.step(factors).parts.step_s
