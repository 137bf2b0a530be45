"""scaling(): speed-up and efficiency over the number of workers; straggler_slowdown(): what waiting costs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.cost.staleness import steps_to_target
from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError, check_known
from perfmodel.prediction.arguments.checks import NO_SYNC, from_zero_to, one_of, positive, whole_number
from perfmodel.prediction.arguments.table import ARGUMENTS, asked_of, check_needs
from perfmodel.prediction.arguments.verbs import gated
from perfmodel.prediction.bill import server_machines
from perfmodel.prediction.job.agreement_options import TAKEN_BY, refuse_unused, sync_names, taken
from perfmodel.prediction.job.straggler import straggler_of, straggler_of_job
from perfmodel.prediction.predict import predict
from perfmodel.prediction.words.prediction_text import fit_sentence, server_load
from perfmodel.presentation.results import Drawn
from perfmodel.presentation.tables import Table
from perfmodel.sync.registry import ALL_REDUCES
from perfmodel.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perfmodel.graph import LayerGraph
    from perfmodel.hardware.wiring import Wired
    from perfmodel.measurements.table import Run
    from perfmodel.prediction.prediction import Prediction
    from perfmodel.presentation.scaling_figure import Curve


def listed(argument: str, values: Any) -> list[Any]:
    """Return a list of the different values in an argument that may also be a single value.

    >>> listed("workers", 4), listed("sync", ("downpour", "downpour"))
    ([4], ['downpour'])
    """
    entries = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    if not entries:
        raise ArgumentError(argument, values, "must have at least one value")
    return list(dict.fromkeys(entries))


def options_of(options: Mapping[str, Any], sync: str, workers: int) -> dict[str, Any]:
    """Return the options that a sync strategy takes; with unequal workers, the times of the first ``workers``."""
    wanted = taken(options, sync)
    if wanted.get("straggler") is not None:
        wanted["straggler"] = straggler_of(wanted["straggler"]).of_first(workers)
    return wanted


def check_options(
    options: Mapping[str, Any], syncs: Sequence[str], *, most_workers: int, of_a_row: Collection[str], of: str
) -> None:
    """Reject options that ``predict`` does not have, or that would have no effect."""
    known = [name for name in ARGUMENTS if name not in of_a_row]
    for name in options:
        check_known(f"option of {of}", name, known)
    checked = asked_of(options)
    refuse_unused(checked, syncs)
    check_needs(checked, checked.keys() & TAKEN_BY.keys())
    straggler = straggler_of_job(checked)
    if straggler is not None:
        straggler.check_backups(most_workers)


MOST_PENALTY: Final = 1e6
"""Largest staleness penalty; anything larger is a typing error. [1]"""

OF_A_ROW: Final = ("graph", "system", "workers", "sync", "batch_size", "global_batch_size")
"""Arguments of ``predict`` that a report sets itself."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How batch size and staleness slow down learning, as the caller states it; all None if not stated."""

    critical_batch_size: float | None = None
    staleness_penalty: float = 0.0
    least_steps: float | None = None

    def seconds(self, p: Prediction) -> float:
        """Return the time to the loss, divided by ``least_steps`` if that is unknown. [s]"""
        assert self.critical_batch_size is not None
        updates = steps_to_target(
            least_steps=1.0 if self.least_steps is None else self.least_steps,
            critical_batch=self.critical_batch_size,
            global_batch_size=p.samples_per_update,
            staleness=p.mean_staleness,
            staleness_penalty=self.staleness_penalty,
        )
        return float(updates) / p.updates_per_s


@dataclass(frozen=True, eq=False, kw_only=True)
class _Question:
    """Everything that is the same in every row, and the single worker as the base of comparison."""

    graph: LayerGraph | Run
    arguments: dict[str, Any]
    options: dict[str, Any]
    syncs: Sequence[str]
    dataset_size: int | None
    usd_per_hour: float | None
    progress: Progress
    beyond: dict[str, list[str]] = field(default_factory=dict)
    """Limit of the framework -> the rows that are predicted as if it did not exist."""

    @derived_property
    def alone(self) -> Prediction:
        """The step of a single worker, which exchanges nothing and has no server."""
        how = {**self.arguments, **self.options}
        sync = NO_SYNC if how.get("context_size", 1) == 1 else self.syncs[0]  # its devices add up gradients
        how = taken(how, sync)
        for of_several in ("group_size", "backup_workers"):
            how.pop(of_several, None)
        if how.get("straggler") is not None:
            how["straggler"] = straggler_of(how["straggler"]).as_predicted
        return predict(self.graph, workers=1, sync=sync, **how)

    def row(self, sync: str, workers: int) -> ScalingRow:
        """Return one row; an impossible one carries the reason."""
        options = options_of(self.options, sync, workers)
        try:
            p = predict(self.graph, workers=workers, sync=sync, **self.arguments, **options)
        except ArgumentError as error:
            return ScalingRow(sync=sync, workers=workers, reason=str(error))
        if not p.memory.fits:
            return ScalingRow(sync=sync, workers=workers, reason=fit_sentence(p))
        for line in p.basis.prepared.shortfalls:
            self.beyond.setdefault(line, []).append(f"{sync} with {workers}")
        speedup = p.samples_per_s / self.alone.samples_per_s
        epoch_s = None if self.dataset_size is None else p.epoch_s(dataset_size=self.dataset_size)
        usd = None
        if epoch_s is not None and self.usd_per_hour is not None:
            paid = workers + len(server_machines(p.basis.prepared.target, p.agreement))
            usd = epoch_s / SECONDS_PER_HOUR * self.usd_per_hour * paid
        to_loss_s, to_loss_speedup = self._to_loss(p)
        knee, busy = server_load(p)
        return ScalingRow(
            sync=sync,
            workers=workers,
            step_s=p.step_s,
            samples_per_s=p.samples_per_s,
            speedup=speedup,
            efficiency=speedup / workers,
            exposed_sync_s=p.exposed_sync_s,
            straggler_s=p.straggler_s,
            mean_staleness=p.mean_staleness,
            knee=knee,
            server_utilisation=busy,
            bottleneck=p.bottleneck,
            epoch_s=epoch_s,
            usd_per_epoch=usd,
            to_loss_s=to_loss_s,
            to_loss_speedup=to_loss_speedup,
        )

    def _to_loss(self, p: Prediction) -> tuple[float | None, float | None]:
        """Return the time to the loss, and the speed-up over one worker."""
        if self.progress.critical_batch_size is None:
            return None, None
        seconds = self.progress.seconds(p)
        return None if self.progress.least_steps is None else seconds, self.progress.seconds(self.alone) / seconds

    def notes(self) -> tuple[str, ...]:
        """Return the caveats printed below the table."""
        straggler = self.options.get("straggler")
        unequal = straggler is not None and straggler_of(straggler).times.lasting_count is not None
        with_pace = ", with a relative time of 1" if unequal else ""
        notes = [f"{line}; predicted as if it could: {', '.join(rows)}" for line, rows in self.beyond.items()]
        notes.append(f"speed-up is over one worker that exchanges nothing and updates by itself{with_pace}")
        if self.options.get("shard_stage"):
            notes.append(
                "that worker holds all state and does the whole update, of which each of several does a part: "
                "efficiency may exceed 1"
            )
        named = [sync for sync in self.syncs if sync in ALL_REDUCES]
        if named:
            notes.append(
                f"{', '.join(named)} by name: links at their full rate; sync='all_reduce' adds the start-up "
                "of a library's calls and its lower rate on links"
            )
        if straggler is None and set(self.syncs) != {NO_SYNC}:
            notes.append("steps vary only with the power that each device draws; straggler= says how else workers vary")
        if not self.alone.memory.fits:
            notes.append(f"that worker could not run, but its time is the base. {fit_sentence(self.alone)}")
        if self.dataset_size is not None and self.usd_per_hour is None:
            notes.append("no price of an epoch: usd_per_hour= says what one worker costs; no file states it")
        if self.usd_per_hour is not None:
            notes.append(
                f"{self.usd_per_hour:g} USD an hour for each worker, and for each machine without GPUs that holds only "
                "a server; a server's own machine beside machines with GPUs is not paid for"
            )
        progress = self.progress
        if progress.critical_batch_size is not None:
            notes.append(
                f"time to the same loss by a critical batch size of {progress.critical_batch_size:g} samples and a "
                f"penalty of {progress.staleness_penalty:g} per update of staleness, both as given, not predicted"
            )
        return tuple(notes)


def _progress(critical_batch_size: Any, staleness_penalty: Any, least_steps: Any, phase: str) -> Progress:
    """Read the caller's figures of how batch size and staleness slow down learning."""
    if critical_batch_size is None:
        for name, value in (("staleness_penalty", staleness_penalty), ("least_steps", least_steps)):
            if value is not None:
                raise ArgumentError(name, value, "must not be given without critical_batch_size=")
        return Progress()
    if phase != "step":
        raise ArgumentError(
            "critical_batch_size", critical_batch_size, f"must not be given with phase={phase!r}, which trains nothing"
        )
    penalty = 0.0 if staleness_penalty is None else from_zero_to(MOST_PENALTY, "staleness_penalty", staleness_penalty)
    return Progress(
        critical_batch_size=positive("critical_batch_size", critical_batch_size),
        staleness_penalty=penalty,
        least_steps=None if least_steps is None else positive("least_steps", least_steps),
    )


@gated
def scaling(
    graph: LayerGraph | Run,
    *,
    system: str | Path | Wired,
    workers: int | Iterable[int],
    sync: str | Iterable[str] = "ring_all_reduce",
    batch_size: int | None = None,
    global_batch_size: int | None = None,
    dataset_size: int | None = None,
    usd_per_hour: float | None = None,
    critical_batch_size: float | None = None,
    staleness_penalty: float | None = None,
    least_steps: float | None = None,
    **options: Any,
) -> ScalingReport:
    """Predict speed-up and efficiency over the number of workers, for each way to agree.

    Parameters
    ----------
    graph : LayerGraph or Run
        A network, or a Run of a measurement table. [-]
    system : str, Path, System or Cluster
        System whose GPUs are the workers, or whose machines are if it has no GPU. [-]
    workers : int or iterable of int
        Numbers of workers. [1]
    sync : str or iterable of str
        Ways to agree, as in :func:`perfmodel.predict`. [-]
    batch_size : int
        Samples per worker and step, for any number of workers: weak scaling. [samples]
    global_batch_size : int
        Samples per step over all workers, instead of ``batch_size``: strong scaling. [samples]
    dataset_size : int
        Samples of an epoch; needed for time and price of an epoch. [samples]
    usd_per_hour : float
        Price of one worker for an hour; a job pays for all of its workers, and as much for each machine without GPUs
        that holds only a server. Needs ``dataset_size``. [USD/h]
    critical_batch_size : float
        Batch size at which reaching a loss takes twice the fewest updates, measured by you; adds the speed-up in the
        time to that loss. [samples]
    staleness_penalty : float
        Share of updates that one update of staleness adds, measured by you; 0 by default. [1]
    least_steps : float
        Fewest updates that reach the loss, however large the batch; adds the time to it. [1]
    **options : object
        All other arguments of :func:`perfmodel.predict`. An option of an agreement goes to the ways that take it. Of
        the times of unequal workers, a row uses the first, one for each of its workers. [-]

    Returns
    -------
    ScalingReport
        A row for each way and number of workers; ``plot()``, ``to_frame()``.

    Raises
    ------
    ArgumentError
        If a value is not allowed with any number of workers, or both batch sizes are given.
    UnknownNameError
        If a name or option is unknown; names the nearest.

    Notes
    -----
    Valid for: as :func:`perfmodel.predict`. If only some rows are impossible (more workers than devices, workers that
    do not divide the mini-batch, groups that do not divide the workers, no more workers than backups, too little
    memory), each has a ``reason``.
    Ignores: the cost of hosts and servers besides the workers.

    Examples
    --------
    >>> import perfmodel as pm
    >>> report = pm.scaling(pm.zoo.alexnet(), system="survey_fig5", workers=(1, 2, 4), batch_size=64)
    >>> [round(row.speedup, 2) for row in report.rows]
    [1.0, 1.9, 3.38]
    """
    if batch_size is not None and global_batch_size is not None:
        raise ArgumentError(
            "global_batch_size",
            global_batch_size,
            "must not be given with batch_size=: scaling is either weak or strong",
        )
    syncs = [one_of("sync", name, sync_names()) for name in listed("sync", sync)]
    counts = [whole_number("workers", count) for count in listed("workers", workers)]
    check_options(options, syncs, most_workers=max(counts), of_a_row=OF_A_ROW, of="scaling")
    if usd_per_hour is not None and dataset_size is None:
        raise ArgumentError("usd_per_hour", usd_per_hour, "must not be given without dataset_size=")
    question = _Question(
        graph=graph,
        arguments={"system": system, "batch_size": batch_size, "global_batch_size": global_batch_size},
        options=options,
        syncs=syncs,
        dataset_size=None if dataset_size is None else whole_number("dataset_size", dataset_size),
        usd_per_hour=None if usd_per_hour is None else positive("usd_per_hour", usd_per_hour),
        progress=_progress(critical_batch_size, staleness_penalty, least_steps, options.get("phase", "step")),
    )
    alone = question.alone  # rejects a request that every row would fail
    size = f"{alone.batch_size} samples {'per worker' if global_batch_size is None else 'in all'}"
    return ScalingReport(
        title=f"{alone.subject} on {alone.target.removeprefix('1 x ')} with {alone.framework}, {size}",
        is_strong=global_batch_size is not None,
        one_worker_s=alone.step_s,
        rows=Table(
            [question.row(name, count) for name in syncs for count in counts], headings=HEADINGS, row_type=ScalingRow
        ),
        notes=question.notes(),
    )


HEADINGS: Final = {
    "step_s": "step",
    "samples_per_s": "throughput",
    "exposed_sync_s": "exposed sync",
    "straggler_s": "straggler",
    "mean_staleness": "staleness",
    "server_utilisation": "server busy",
    "epoch_s": "epoch",
    "usd_per_epoch": "USD per epoch",
    "to_loss_s": "to loss",
    "to_loss_speedup": "speedup to loss",
}
"""Heading of a column by field, if the two differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRow:
    """One number of workers and way to agree. None if a value was not requested or the row is impossible."""

    sync: str
    workers: int
    step_s: float | None = None
    samples_per_s: float | None = None
    speedup: float | None = None
    efficiency: float | None = None
    exposed_sync_s: float | None = None
    straggler_s: float | None = None
    mean_staleness: float | None = None
    knee: float | None = None
    server_utilisation: float | None = None
    bottleneck: str | None = None
    epoch_s: float | None = None
    usd_per_epoch: float | None = None
    to_loss_s: float | None = None
    to_loss_speedup: float | None = None
    reason: str | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class ScalingReport(Drawn):
    """Gain from more workers. Made by :func:`perfmodel.scaling`.

    Parameters
    ----------
    title : str
        Network, hardware, framework and samples. [-]
    is_strong : bool
        Whether all workers share one global mini-batch; else each has its own. [-]
    one_worker_s : float
        Step of one worker that exchanges nothing, the base of speed-up. [s]
    rows : Table of ScalingRow
        One for each way to agree and number of workers. [-]
    notes : tuple of str
        Caveats on the numbers. [-]
    """

    title: str
    is_strong: bool
    one_worker_s: float
    rows: Table[ScalingRow]
    notes: tuple[str, ...] = ()

    _DICT_KEYS = ("title", "kind", "one_worker_s", "rows", "notes")

    @property
    def kind(self) -> str:
        """``strong scaling`` or ``weak scaling``."""
        return f"{'strong' if self.is_strong else 'weak'} scaling"

    def _shown(self) -> Table[ScalingRow]:
        heading = f"{self.title}: {self.kind}"
        return Table(self.rows, title=heading, headings=HEADINGS, row_type=ScalingRow)

    def _lines(self) -> list[str]:
        reasons: dict[str, list[str]] = {}
        for row in self.rows:
            if row.reason is not None:
                reasons.setdefault(row.reason, []).append(f"{row.sync} with {row.workers}")
        lines = [f"impossible: {', '.join(which)}: {reason}" for reason, which in reasons.items()]
        return [*lines, *(f"note: {note}" for note in self.notes)]

    def __str__(self) -> str:
        columns = [name for name in self.rows.columns if name != "reason" and any(self.rows.column(name))]
        return self._report(f"{self.title}: {self.kind}", self.rows.to_text(columns=columns))

    def _figure(self) -> Figure:
        """Draw speed-up and efficiency over the number of workers, a line for each way to agree, and the ideal."""
        from perfmodel.presentation.scaling_figure import Panel, worker_figure

        speedup = Panel(label="speed-up over one worker", curves=self._curves("speedup"), ideal="proportional")
        efficiency = Panel(label="efficiency", curves=self._curves("efficiency"), ideal="constant")
        return worker_figure([speedup, efficiency], title=f"{self.title}: {self.kind}")

    def _curves(self, field: str) -> tuple[Curve, ...]:
        """Return one curve over the possible rows of each way to agree."""
        from perfmodel.presentation.scaling_figure import Curve

        able = [row for row in self.rows if row.reason is None]
        if not able:
            raise ArgumentError(
                "rows", self.rows[0].reason, "a table with at least one possible row, or there is nothing to draw"
            )
        syncs = dict.fromkeys(row.sync for row in able)
        return tuple(Curve.of(sync, [row for row in able if row.sync == sync], field) for sync in syncs)


WORKERS: Final = tuple(range(1, 101))
"""Default numbers of workers. [1]"""

VARIATIONS: Final = (0.05, 0.1, 0.2)
"""Default coefficients of variation: for a quiet, a typical and a shared machine. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownRow:
    """Slowdown for one number of workers and one coefficient of variation."""

    cv: float
    workers: int
    slowdown: float


@dataclass(frozen=True, eq=False, kw_only=True)
class StragglerSlowdown(Drawn):
    """How much longer steps take if they wait for the slowest worker."""

    distribution: str
    backup_workers: int
    rows: Table[SlowdownRow]

    def plot(self, path: str | Path | None = None, *, marked_workers: int | None = None) -> Figure:
        """Draw the slowdown over the number of workers, a line for each coefficient of variation."""
        from perfmodel.presentation.figures import saved
        from perfmodel.presentation.quantities import percent_text
        from perfmodel.presentation.scaling_figure import Curve, Panel, worker_figure

        curves = [
            Curve.of(f"cv {percent_text(cv)}", [row for row in self.rows if row.cv == cv], "slowdown")
            for cv in dict.fromkeys(self.rows.column("cv"))
        ]
        figure = worker_figure(
            [Panel(label="slowdown: mean step over that of one worker", curves=tuple(curves))],
            title=self.rows.title,
            marked_workers=marked_workers,
        )
        return saved(figure, path)


@gated
def straggler_slowdown(
    *,
    workers: Iterable[int] = WORKERS,
    cv: float | Iterable[float] = VARIATIONS,
    distribution: str = "normal",
    backup_workers: int = 0,
) -> StragglerSlowdown:
    """Predict how much longer a step takes because it waits for the slowest worker, over the number of workers.

    Parameters
    ----------
    workers : iterable of int
        Numbers of workers, more than ``backup_workers``. [1]
    cv : float or iterable of float
        Coefficients of variation of a worker's time, standard deviation over mean, from 0 to 1e6. [1]
    distribution : str
        ``normal``, ``lognormal`` or ``shifted_exponential``. [-]
    backup_workers : int
        Number of slowest workers whose gradients a step does not wait for. [1]

    Returns
    -------
    StragglerSlowdown
        A row for each number of workers and coefficient; ``plot()`` and ``to_frame()``.

    Raises
    ------
    ArgumentError
        If a number is not allowed, or workers do not outnumber backups.
    UnknownNameError
        If the distribution is unknown; names the nearest.

    Notes
    -----
    Valid for: independent, equal workers and steps that only compute. Ignores: the exchange,
    and a worker that is always slow.

    Examples
    --------
    >>> for row in straggler_slowdown(workers=[40]).rows:
    ...     print(row.cv, round(row.slowdown, 4))
    0.05 1.108
    0.1 1.2161
    0.2 1.4322
    """
    if isinstance(workers, str) or not isinstance(workers, Iterable):
        raise ArgumentError("workers", workers, "a list of numbers, e.g. (2, 4, 8)")
    counts = [whole_number("workers", count) for count in workers]
    variations = [cv] if isinstance(cv, str) or not isinstance(cv, Iterable) else list(cv)
    rows = []
    for variation in dict.fromkeys(variations):
        if isinstance(variation, bool) or not isinstance(variation, int | float):
            raise ArgumentError("cv", variation, "a finite number >= 0")
        straggler = straggler_of({"distribution": distribution, "cv": variation}, backup_workers=backup_workers)
        rows += [
            SlowdownRow(
                cv=variation,
                workers=count,
                slowdown=float(straggler.slowest_s(compute_s=1.0, worker_count=count)),
            )
            for count in dict.fromkeys(counts)
        ]
    backups = f", except {backup_workers} of them" if backup_workers else ""
    title = f"waiting for the slowest of all workers{backups}, {distribution} times"
    table = Table(rows, title=title, row_type=SlowdownRow)
    return StragglerSlowdown(distribution=distribution, backup_workers=backup_workers, rows=table)
