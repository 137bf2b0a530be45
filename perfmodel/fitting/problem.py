"""Measured rows as functions of the unknowns, evaluated like predictions, for many configurations at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.errors import CalibrationError
from perfmodel.hardware.fit_file import FitPlan, Unknown
from perfmodel.prediction.certainty.prediction_interval import prior_covariance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.fitting.kernel_boards import KernelBoard
    from perfmodel.prediction.job.prepared import Prepared


STEP = 0.01
"""Half width of the central difference of a gradient, in ln(factor). [1]"""


def shifted_either_way(log_factors: NDArray[np.float64], reached: Sequence[int], *, step: float) -> NDArray[np.float64]:
    """Stack the unknowns with copies of them, each with one reached unknown raised or lowered."""
    half = len(reached)
    shifted = np.repeat(log_factors[:, None], 2 * half + 1, axis=1)
    shifted[list(reached), np.arange(1, half + 1)] += step
    shifted[list(reached), np.arange(half + 1, 2 * half + 1)] -= step
    return shifted


def central_gradient(
    log_times: NDArray[np.float64], reached: Sequence[int], *, unknown_count: int, step: float
) -> NDArray[np.float64]:
    """Return central differences of times at the points of ``shifted_either_way``."""
    half = len(reached)
    gradient = np.zeros((*log_times.shape[:-1], unknown_count))
    gradient[..., list(reached)] = (log_times[..., 1 : half + 1] - log_times[..., half + 1 :]) / (2 * step)
    return gradient


@dataclass(frozen=True, eq=False)
class CompiledRow:
    """One measured row: how its predicted time depends on the unknowns that reach it."""

    prepared: Prepared
    unknowns_of: dict[str, tuple[int, ...]]
    reached: tuple[int, ...]

    @classmethod
    def of(cls, prepared: Prepared, unknowns: Sequence[Unknown]) -> CompiledRow:
        """Compile a row."""
        unknowns_of = {}
        for name in prepared.constant_names:
            matching = tuple(index for index, unknown in enumerate(unknowns) if unknown.matches(name))
            if matching:
                unknowns_of[name] = matching
        reached = tuple(sorted({index for indices in unknowns_of.values() for index in indices}))
        return cls(prepared, unknowns_of, reached)

    def log_time(self, log_factors: NDArray[np.float64], *, step: float = STEP) -> tuple[float, NDArray[np.float64]]:
        """Return ln of the predicted time and its gradient, from one evaluation of all perturbed configurations."""
        shifted = shifted_either_way(log_factors, self.reached, step=step)
        products = {indices: np.exp(shifted[list(indices)].sum(axis=0)) for indices in set(self.unknowns_of.values())}
        factors = {name: products[indices] for name, indices in self.unknowns_of.items()}
        times = np.log(np.broadcast_to(self.prepared.step(factors).parts.step_s, shifted.shape[1]))
        return float(times[0]), central_gradient(times, self.reached, unknown_count=len(log_factors), step=step)


@dataclass(frozen=True, eq=False)
class Problem:
    """All rows of a fit, with the prior of its unknowns."""

    rows: tuple[CompiledRow, ...]
    log_measured: NDArray[np.float64]
    unknowns: tuple[Unknown, ...]
    plan: FitPlan
    _known: dict[tuple[int, float, bytes], tuple[float, NDArray[np.float64]]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, steps: Sequence[Prepared], measured_s: Sequence[float], plan: FitPlan) -> Problem:
        """Compile measured rows under a plan."""
        constants = dict.fromkeys(name for step in steps for name in step.constant_names)
        unknowns = plan.unknowns(constants)
        rows = tuple(CompiledRow.of(step, unknowns) for step in steps)
        return cls(rows, np.log(np.asarray(measured_s, dtype=np.float64)), unknowns, plan)

    def log_times(
        self, log_factors: NDArray[np.float64], rows: Iterable[int], *, step: float = STEP
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return ln of predicted times and their gradients; evaluate a row only once for the same unknowns."""
        times = []
        for index in rows:
            row = self.rows[index]
            key = (index, step, log_factors[list(row.reached)].tobytes())
            if key not in self._known:
                self._known[key] = row.log_time(log_factors, step=step)
            times.append(self._known[key])
        return np.array([time for time, _ in times]), np.array([gradient for _, gradient in times])

    def reached_by(self, rows: Iterable[int]) -> frozenset[int]:
        """Return the unknowns that scale constants of these rows."""
        return frozenset().union(*(self.rows[index].reached for index in rows))

    def forget(self, *, keep: NDArray[np.float64] | None = None) -> None:
        """Drop the cached times, except those at factors ``keep`` from which several fits start."""
        kept = {}
        if keep is not None:
            wanted = [keep[list(row.reached)].tobytes() for row in self.rows]
            kept = {key: times for key, times in self._known.items() if key[2] == wanted[key[0]]}
        self._known.clear()
        self._known.update(kept)

    def prior_root(self) -> NDArray[np.float64]:
        """Return the matrix W that makes the components of W x independent unit normals under the prior.

        Unknowns of one group share a common part, so an unknown without rows of its own follows the group's mean.
        """
        return prior_root(self.unknowns)


def prior_root(unknowns: Sequence[Unknown]) -> NDArray[np.float64]:
    """Return the matrix W that makes the components of W x independent unit normals under the unknowns' prior."""
    root: NDArray[np.float64] = np.linalg.inv(np.linalg.cholesky(prior_covariance(unknowns)))
    return root


Times = tuple["NDArray[np.float64]", "NDArray[np.float64]"]


@dataclass(frozen=True, eq=False)
class CompiledBoard:
    """A board, and how its constants depend on the unknowns."""

    board: KernelBoard
    unknowns_of: dict[str, tuple[int, ...]]
    starts: dict[str, float]
    reached: tuple[int, ...]

    @classmethod
    def of(
        cls, board: KernelBoard, unknowns: Sequence[Unknown], *, held: Mapping[Unknown, float] = MappingProxyType({})
    ) -> CompiledBoard:
        """Compile a board."""
        unknowns_of, starts = {}, {}
        for name in board.constant_names:
            matching = tuple(index for index, unknown in enumerate(unknowns) if unknown.matches(name))
            fixed = [unknown for unknown in held if unknown.matches(name)]
            if matching or fixed:
                unknowns_of[name] = matching
                starting = [*(unknowns[index] for index in matching), *fixed]
                starts[name] = _start(name, starting, board.constant_values) + sum(held[unknown] for unknown in fixed)
        reached = tuple(sorted({index for indices in unknowns_of.values() for index in indices}))
        return cls(board, unknowns_of, starts, reached)

    def factors(self, log_factors: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Return the factors that multiply the constants of the files."""
        return {
            name: np.exp(self.starts[name] + log_factors[list(indices)].sum(axis=0))
            for name, indices in self.unknowns_of.items()
        }

    def log_times(self, log_factors: NDArray[np.float64], *, step: float) -> Times:
        """Return ln of the predicted times of all rows, and their gradients."""
        shifted = shifted_either_way(log_factors, self.reached, step=step)
        times = self.board.times(self.factors(shifted))
        times = np.log(np.broadcast_to(times.reshape(len(times), -1), (len(times), shifted.shape[1])))
        return times[:, 0], central_gradient(times, self.reached, unknown_count=len(log_factors), step=step)


def _start(name: str, matching: Sequence[Unknown], values: Mapping[str, object]) -> float:
    stated = [unknown.start for unknown in matching if unknown.start is not None]
    if not stated:
        return 0.0
    value = values.get(name)
    if len(stated) > 1 or not isinstance(value, int | float) or value <= 0:
        message = f"{name} = {value!r} cannot start at {stated}: only a number above zero can have a start, one at most"
        raise CalibrationError(message)
    return float(np.log(stated[0] / value))


@dataclass(frozen=True, eq=False)
class KernelProblem:
    """Rows of some boards, with the prior of the unknowns; rows are numbered board after board."""

    boards: tuple[CompiledBoard, ...]
    first: tuple[int, ...]
    log_measured: NDArray[np.float64]
    unknowns: tuple[Unknown, ...]
    plan: FitPlan
    _known: dict[tuple[int, float, bytes], Times] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, boards: Sequence[KernelBoard], plan: FitPlan, *, held: Mapping[str, float] = MappingProxyType({})
    ) -> KernelProblem:
        """Compile boards under a plan."""
        everything = plan.unknowns(dict.fromkeys(name for board in boards for name in board.constant_names))
        unknowns = tuple(unknown for unknown in everything if unknown.name not in held)
        fixed = {unknown: held[unknown.name] for unknown in everything if unknown.name in held}
        compiled = tuple(CompiledBoard.of(board, unknowns, held=fixed) for board in boards)
        ends = np.cumsum([len(board.rows) for board in boards])
        measured = np.log(np.concatenate([board.measured_s for board in boards]))
        return cls(compiled, (0, *(int(end) for end in ends[:-1])), measured, unknowns, plan)

    def rows_of(self, board_index: int) -> range:
        """Return the numbers of the rows of a board."""
        first = self.first[board_index]
        return range(first, first + len(self.boards[board_index].board.rows))

    def log_times(self, log_factors: NDArray[np.float64], rows: Iterable[int], *, step: float = STEP) -> Times:
        """Return ln of predicted times and their gradients; evaluate a board only once for the same unknowns."""
        wanted = np.fromiter(rows, dtype=np.intp)
        times, gradients = np.empty(len(wanted)), np.empty((len(wanted), len(log_factors)))
        for index, compiled in enumerate(self.boards):
            rows_of_cell = self.rows_of(index)
            here = (wanted >= rows_of_cell.start) & (wanted < rows_of_cell.stop)
            if not here.any():
                continue
            key = (index, step, log_factors[list(compiled.reached)].tobytes())
            if key not in self._known:
                self._known[key] = compiled.log_times(log_factors, step=step)
            known_times, known_gradients = self._known[key]
            times[here], gradients[here] = (
                known_times[wanted[here] - rows_of_cell.start],
                known_gradients[wanted[here] - rows_of_cell.start],
            )
        return times, gradients

    def reached_by(self, rows: Iterable[int]) -> frozenset[int]:
        """Return the unknowns that scale constants of these rows."""
        asked = set(rows)
        reached = (
            compiled.reached for index, compiled in enumerate(self.boards) if not asked.isdisjoint(self.rows_of(index))
        )
        return frozenset().union(*reached)

    def forget(self, *, keep: NDArray[np.float64] | None = None) -> None:
        """Drop the cached times."""
        self._known.clear()

    def prior_root(self) -> NDArray[np.float64]:
        """Return the matrix W that makes the components of W x independent unit normals under the prior."""
        return prior_root(self.unknowns)
