"""From a task of a sweep to its columns: what has a fast way together, everything else as predict answers it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.errors import PerfmodelError
from perfmodel.planning.sweep_axes import OF_JOB, OF_WORKER
from perfmodel.planning.sweep_results import FITS, REASON, RESULTS, Outcome, Prices, Reasons, memory_reason
from perfmodel.planning.sweep_task import Side
from perfmodel.prediction.predict import predict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.planning.sweep_space import Space
    from perfmodel.planning.sweep_task import SweepTask


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The columns of a task.

    Parameters
    ----------
    columns : dict of str to ndarray
        Values by column, job by job; of ``reason`` codes. [as named]
    reasons : list of str
        Texts by code. [-]
    """

    columns: dict[str, NDArray[Any]]
    reasons: list[str]


@dataclass(eq=False)
class Evaluation:
    """What is asked of every configuration of a space.

    Parameters
    ----------
    space : Space
        The configurations. [-]
    columns : tuple of str
        What is told of each, reasons among them. [-]
    prices : Prices
        What devices cost. [-]
    dataset_size : int or None
        Samples of an epoch; None for those of the data set that is read. [samples]
    """

    space: Space
    columns: tuple[str, ...]
    prices: Prices
    dataset_size: int
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": {}}

    def of(self, task: SweepTask) -> Evaluated:
        """Return the columns of a task, configurations job by job."""
        reasons = Reasons()
        columns = empty_columns(self.columns, task.size)
        of_workers = Side.of(self.space, OF_WORKER).codes(task.workers)
        of_jobs = Side.of(self.space, OF_JOB).codes(task.jobs)
        start = 0
        everyone = np.arange(len(task.workers))
        for index in range(len(task.jobs)):
            job = {name: int(codes[index]) for name, codes in of_jobs.items()}
            places = everyone if task.pairs is None else task.pairs[index]
            for offset, place in enumerate(places):
                worker = {name: int(codes[place]) for name, codes in of_workers.items()}
                self._put_row(columns, start + offset, worker | job, reasons)
            start += len(places)
        return Evaluated(columns, reasons.texts)

    def _put_row(
        self, columns: Mapping[str, NDArray[Any]], row: int, codes: Mapping[str, int], reasons: Reasons
    ) -> None:
        """Write what predict says of one configuration."""
        try:
            arguments = self.space.resolved(codes)
            p = predict(self.space.graph, **arguments)
        except PerfmodelError as error:
            columns[REASON][row] = reasons.code(str(error))
            return
        assert p.basis is not None
        device = p.basis.prepared.target.processor_spec.stem
        devices = p.worker_count * arguments.get("stages", 1) * arguments.get("tensor_size", 1)
        outcome = Outcome(
            parts=p.parts,
            batch_size=p.batch_size,
            counted_workers=p.counted_workers,
            device_count=devices,
            memory_bytes=p.memory.total_bytes,
            capacity_bytes=p.memory.capacity_bytes,
            usd_per_hour=self.prices.of(device),
            dataset_size=self.dataset_size,
        )
        for name, column in columns.items():
            if name != REASON:
                column[row] = RESULTS[name](outcome)
        fit = memory_reason(float(outcome.memory_bytes), float(outcome.capacity_bytes))
        columns[REASON][row] = reasons.code(fit, self._price_reason(device))

    def _price_reason(self, device: str) -> str:
        return self.prices.missing(device) if "usd_per_epoch" in self.columns else ""


def empty_columns(names: tuple[str, ...], size: int) -> dict[str, NDArray[Any]]:
    """Return columns of configurations of which nothing is known yet.

    Parameters
    ----------
    names : tuple of str
        Columns. [-]
    size : int
        Configurations. [1]

    Returns
    -------
    dict of str to ndarray
        NaN; false for ``fits``, the code of no reason for ``reason``. [as named]
    """
    empty: dict[str, NDArray[Any]] = {FITS: np.zeros(1, dtype=bool), REASON: np.zeros(1, dtype=np.int32)}
    return {name: np.repeat(empty.get(name, np.full(1, math.nan)), size) for name in names}
