"""The result of a search: the best layouts by each criterion, and the certainty of their ranking."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError
from perfmodel.planning.search.programs.registry import launch_command
from perfmodel.planning.sweeps.results import FITS, LARGER_IS_BETTER, REASON
from perfmodel.prediction.arguments.checks import positive, whole_number
from perfmodel.prediction.arguments.table import DEFAULTS
from perfmodel.prediction.certainty.ranking import Costs, Ranking, ranking_of
from perfmodel.prediction.device.step_time import PARTS
from perfmodel.prediction.energy import time_share
from perfmodel.prediction.job.data_path import BOTTLENECK_OF_STAGE
from perfmodel.prediction.job.job import Job
from perfmodel.prediction.prediction import BOTTLENECK_OF_PART
from perfmodel.presentation.quantities import bytes_text, counted, percent_text, seconds_text
from perfmodel.presentation.results import Drawn
from perfmodel.presentation.tables import Table, row_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from perfmodel.graph import LayerGraph
    from perfmodel.planning.sweeps.answer import Sweep
    from perfmodel.planning.sweeps.space import Axis
    from perfmodel.prediction.prediction import Prediction
    from perfmodel.prediction.totals import TrainingRun, TrainingTotals

OBJECTIVES: Final = {"time": "step_s", "money": "usd", "energy": "energy_j", "mfu": "mfu"}
"""Objective -> the column of a layout that it ranks by."""

WEIGHED: Final = OBJECTIVES | {"memory": "memory_bytes"}
"""Objective of a front -> its column."""

BETTER: Final = {
    "time": "it is faster than",
    "money": "it costs less than",
    "energy": "it takes less energy than",
    "mfu": "its MFU is above that of",
}
"""Objective -> words that compare the best layout with another."""

IN_LAYOUT: Final = (
    "workers", "tensor_size", "stages", "schedule", "interleave", "shard_stage", "micro_batch_size", "micro_batches",
    "accumulation_steps", "recompute",
)  # fmt: skip
"""Columns of every row; others that differ between layouts follow them."""

UNUSUAL: Final = ("context_size", "context_method", "shard_group", "stage_cut", "no_sync")
"""Arguments that a layout names where they are not predict's default."""

COUNTED: Final = ("workers", "stages", "tensor_size", "context_size")
"""Arguments whose product is the number of devices."""

FEEDING: Final = (
    *COUNTED, "batch_size", "global_batch_size", "system", "dataset", "input_from", "decode_cores", "prefetch",
    "input_variation",
)  # fmt: skip
"""Arguments on which the times of a layout's input depend."""

HEADINGS: Final = {
    "tensor_size": "tensor", "shard_stage": "shard", "micro_batch_size": "micro", "accumulation_steps": "passes",
    "step_s": "step", "memory_bytes": "memory", "bound_by": "bound by", "device_hours": "device-hours", "usd": "USD",
    "micro_batches": "micro-batches", "context_size": "context", "context_method": "by", "shard_group": "group",
    "stage_cut": "cut", "no_sync": "no sync",
}  # fmt: skip
"""Heading of a column by field, if the two differ."""

BEST_SHOWN: Final = 10
"""Layouts that are printed. [1]"""

SAME: Final = 1e-9
"""Relative difference below which two layouts are equally good. [1]"""


@dataclass(frozen=True, eq=False, kw_only=True)
class FoundLayout:
    """One layout of a search.

    Parameters
    ----------
    job : Job
        To predict, explain or play. [-]
    row : object
        Its row in the table. [-]
    totals : TrainingTotals or None
        Days, device-hours and USD of the run; None without ``tokens`` or ``samples``. [-]
    machine_devices : int
        Devices of a machine. [1]
    """

    job: Job
    row: Any
    totals: TrainingTotals | None
    machine_devices: int

    def command(self, program: str = "megatron") -> str:
        """Return the command that starts a training program with this layout.

        Parameters
        ----------
        program : str
            ``megatron`` (Megatron-LM) or ``torchtitan``. [-]

        Returns
        -------
        str
            ``torchrun`` with the flags of layout, batch and types; those of network, data and learning are yours. [-]

        Raises
        ------
        UnknownNameError
            If the program is unknown.
        ArgumentError
            If the program cannot run this layout; says what it can.
        """
        return launch_command(self.job, program, devices_per_machine=self.machine_devices)

    @derived_property
    def prediction(self) -> Prediction:
        """The prediction of the job."""
        return self.job.predict()

    @derived_property
    def memory_per_rank(self) -> tuple[float, ...]:
        """Peak memory of a device of each stage, in the order of the stages. [B]"""
        p = self.prediction
        return tuple(float(footprint.total_bytes) for footprint in p.basis.prepared.footprints(p.basis.timed))

    def __repr__(self) -> str:
        return f"<FoundLayout {layout_text(self.row)}: {seconds_text(self.row.step_s)} a step>"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Search(Drawn):
    """Layouts of a job, ranked. Made by :func:`perfmodel.search`.

    Parameters
    ----------
    graph : LayerGraph
        The network. [-]
    layouts : Sweep
        Every layout that is evaluated, with its time, memory and price; ``fits`` is with the reserve. [-]
    objective : str
        ``time``, ``money``, ``energy`` or ``mfu``. [-]
    reserve : float
        Share of a device's memory that is left free. [1]
    run : TrainingRun or None
        How long the run is; None without ``tokens`` or ``samples``. [-]
    usd_per_hour : float or None
        Price of a device; None if unknown. [USD/h]
    machine_devices : int
        Devices of a machine. [1]
    left_out : mapping of str to int
        Number of layouts that the framework's training program cannot start, by argument at fault; not evaluated. [1]
    notes : tuple of str
        Caveats on the numbers. [-]
    """

    graph: LayerGraph
    layouts: Sweep
    objective: str
    reserve: float
    run: TrainingRun | None
    usd_per_hour: float | None
    machine_devices: int
    left_out: Mapping[str, int]
    notes: tuple[str, ...] = ()

    _DICT_KEYS = (
        *("title", "objective", "reserve", "layout_count", "evaluated_count", "fitting_count", "best_row", "certainty"),
        *("totals", "memory_per_rank", "front", "by_memory", "refused", "left_out", "rows", "notes"),
    )

    def __len__(self) -> int:
        return len(self.fitting)

    @property
    def layout_count(self) -> int:
        """Layouts that divide devices and batch. [1]"""
        return self.evaluated_count + sum(self.left_out.values())

    @property
    def evaluated_count(self) -> int:
        """Layouts that the framework's training program can start. [1]"""
        return len(self.layouts)

    @property
    def fitting_count(self) -> int:
        """Layouts that fit with the reserve. [1]"""
        return len(self.fitting)

    @derived_property
    def fitting(self) -> Sweep:
        """The layouts that fit, the best first; of equally good ones, the one that needs less memory."""
        layouts = self.layouts
        fits = np.flatnonzero(layouts.results[FITS])
        ranked = _ranked(layouts, OBJECTIVES[self.objective])[fits]
        digits = np.floor(np.log(np.where(np.isfinite(ranked) & (ranked != 0), abs(ranked), 1e300)) / SAME + 0.5)
        digits = np.where(ranked < 0, -digits, digits)
        return layouts.taken(fits[np.lexsort((layouts.results["memory_bytes"][fits], digits))])

    def _numbers(self) -> Iterator[tuple[str, float]]:
        """Yield the largest value of each result over possible layouts; NaN stands for a value that no file states."""
        columns = self.layouts.results
        for name, column in columns.items():
            if name != REASON and not np.isnan(column).all():
                yield name, float(np.nanmax(column))

    @derived_property
    def rows(self) -> Table[Any]:
        """Layouts that fit, the best first."""
        return self._table(self.fitting, title=self.title)

    def _table(self, sweep: Sweep, *, title: str, count: int | None = None) -> Table[Any]:
        names = self._columns
        row_type = row_class("LayoutRow", names)
        known = (*sweep.space.by_name, *sweep.results)
        columns = {name: sweep[name][:count].tolist() for name in (*names, "global_batch_size") if name in known}
        columns["bound_by"] = self._bottlenecks(sweep)[:count].tolist() if len(sweep) else []
        rows = []
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            row["micro_batch_size"] = micro_batch_size(row)
            rows.append(row_type(**{name: row.get(name) for name in names}))
        return Table(rows, title=title, headings=HEADINGS, row_type=row_type)

    def _bottlenecks(self, sweep: Sweep) -> NDArray[Any]:
        """Return the limit of each layout: the input stage that it waits for, or the cause of its largest part."""
        largest, waits_s = bottlenecks(sweep), sweep.results["input_wait_s"]
        if not waits_s.any():
            return largest
        names = [name for name in FEEDING if name in sweep.space.by_name]
        alike = np.stack([sweep.codes(name)[0] for name in names], axis=1)
        _, firsts, kinds = np.unique(alike, axis=0, return_index=True, return_inverse=True)
        for kind, first in enumerate(firsts):
            job = self._job(sweep, int(first))
            path, rows = job.data_path, kinds.ravel() == kind
            slowest = path.slowest_stage(job.samples)
            slowest_s = path.stages(job.samples)[slowest] if path.prefetch else 0.0
            # steps that fetch ahead hide all else behind a stage that is slower
            hides = (waits_s > 0) & (slowest_s > sweep.results["step_s"] - waits_s)
            largest[rows & (hides | (largest == "storage"))] = BOTTLENECK_OF_STAGE[slowest]
        return largest

    @property
    def _columns(self) -> tuple[str, ...]:
        axes = self.layouts.space.by_name
        further = [name for name, axis in axes.items() if name not in IN_LAYOUT and (len(axis) > 1 or is_unusual(axis))]
        results = ["step_s", "mfu", "memory_bytes", "bound_by"]
        results += [] if self.run is None else ["days", "device_hours"]
        results += [] if self.usd_per_hour is None else ["usd"]
        results += ["energy_j"] if self.objective == "energy" else []
        return (*IN_LAYOUT, *further, *results)

    @derived_property
    def best(self) -> FoundLayout:
        """The best layout by the objective.

        Raises
        ------
        ArgumentError
            If no layout fits; says how much memory the smallest needs, or why none is possible.
        """
        return self.found(0)

    @property
    def best_row(self) -> Any:
        """The row of the best layout; None if none fits."""
        return self.best.row if len(self) else None

    def found(self, rank: int) -> FoundLayout:
        """Return a layout by its rank.

        Parameters
        ----------
        rank : int
            0 for the best. [1]

        Returns
        -------
        FoundLayout
            With its job. [-]

        Raises
        ------
        ArgumentError
            If fewer layouts fit.
        """
        if self._least is None:
            self._job(self.layouts, self._usual_fault).predict()  # says why no layout is possible
        if not len(self):
            raise ArgumentError("reserve", self.reserve, f"smaller, or other devices: {self._smallest}")
        rank = whole_number("rank", rank, minimum=0, maximum=len(self) - 1)
        return self._found(self.fitting, rank)

    def _job(self, sweep: Sweep, index: int) -> Job:
        return Job(self.graph, **sweep.space.arguments(index if sweep.places is None else int(sweep.places[index])))

    def _found(self, sweep: Sweep, index: int) -> FoundLayout:
        job = self._job(sweep, index)
        totals = None
        if self.run is not None:
            price = float("nan") if self.usd_per_hour is None else self.usd_per_hour
            step_s = float(sweep.results["step_s"][index])
            totals = self.run.totals(step_s, device_count=job.device_count, usd_per_hour=price)
        return FoundLayout(
            job=job,
            row=self._table(sweep.taken(np.array([index])), title="")[0],
            totals=totals,
            machine_devices=self.machine_devices,
        )

    @derived_property
    def front(self) -> Table[Any]:
        """Layouts that no other beats in time, memory, money if it is known, and the objective, the fastest first."""
        columns = [WEIGHED[name] for name in self._front_objectives]
        further = [name for name in columns if self._falls_with_time(name)]
        front = self.fitting.pareto("step_s", *further) if len(self) else self.fitting
        return self._table(front, title=f"no other is better in {', '.join(self._front_objectives)}")

    @property
    def _front_objectives(self) -> tuple[str, ...]:
        """Objectives of the front."""
        money = ("money",) if self.usd_per_hour is not None else ()
        return tuple(dict.fromkeys(("time", "memory", *money, self.objective)))

    def _falls_with_time(self, name: str) -> bool:
        """Tell whether some slower layout is better in a column; if not, the column adds nothing to time."""
        by_time = _ranked(self.fitting, name)[np.argsort(self.fitting.results["step_s"], kind="stable")]
        return bool((np.diff(by_time) < -SAME * abs(by_time[:-1])).any())

    @derived_property
    def _staircase(self) -> Sweep:
        """The best layout of every memory budget, the smallest budget first."""
        if not len(self):
            return self.fitting
        # fitting is sorted by the objective, so that a place is a rank
        ranks = np.argsort(self.fitting.results["memory_bytes"], kind="stable")
        return self.fitting.taken(ranks[ranks < np.minimum.accumulate(np.r_[len(ranks), ranks[:-1]])])

    @derived_property
    def by_memory(self) -> Table[Any]:
        """The best layout for every memory budget, the smallest budget first."""
        return self._table(self._staircase, title="best for a memory budget")

    def best_within(self, memory_bytes: float) -> FoundLayout:
        """Return the best layout that needs at most so much memory on any device.

        Parameters
        ----------
        memory_bytes : float
            The budget. [B]

        Returns
        -------
        FoundLayout
            With its job. [-]

        Raises
        ------
        ArgumentError
            If none does, or it is no number above 0; says how much the smallest needs.
        """
        budget_bytes = positive("memory_bytes", memory_bytes)
        if not len(self):
            return self.best  # which says why there is none
        steps = np.flatnonzero(self._staircase.results["memory_bytes"] <= budget_bytes)
        if not len(steps):
            raise ArgumentError("memory_bytes", memory_bytes, f"larger: {self._needed_by_least}")
        return self._found(self._staircase, int(steps[-1]))

    @property
    def smallest(self) -> FoundLayout | None:
        """The layout that needs least memory, though it may not fit; None if none is possible."""
        least = self._least
        return None if least is None else self._found(self.layouts, least)

    @property
    def _least(self) -> int | None:
        memory = self.layouts.results["memory_bytes"]
        return int(np.nanargmin(memory)) if np.isfinite(memory).any() else None

    @property
    def _usual_fault(self) -> int:
        """Index of the first layout that has the most frequent reason for being refused. [1]"""
        codes = self.layouts.results[REASON]
        return int(np.argmax(codes == np.bincount(codes).argmax()))

    @property
    def _needed_by_least(self) -> str:
        row = self.layouts.row(self._least or 0)
        return f"the layout that needs least memory, {layout_text(row)}, needs {bytes_text(row['memory_bytes'])}"

    @property
    def _smallest(self) -> str:
        least = self._least
        if least is None:
            return str(self.layouts.row(self._usual_fault)[REASON])
        row = self.layouts.row(least)
        usable = (1 - self.reserve) * row["capacity_bytes"]
        if not row[FITS] and row["memory_bytes"] <= usable:  # the parameter server's machine lacks memory
            return f"of the layout that needs least memory, {layout_text(row)}: {row[REASON]}"
        most = 1 - row["memory_bytes"] / row["capacity_bytes"]
        nearest = f"; reserve={math.floor(1000 * most) / 1000:g} would do" if most >= 0 else ""
        return f"{self._needed_by_least} of {bytes_text(usable)}{nearest}"

    @property
    def refused(self) -> dict[str, int]:
        """Number of layouts that do not fit, are impossible or left out, by memory or the argument at fault. [1]"""
        return dict(Counter(self.layouts.refused) + Counter(self.left_out))

    def ranking(self, first: int = 0, second: int | None = None) -> Ranking | None:
        """Rank two layouts by the objective, with the probability that the first is better.

        Parameters
        ----------
        first, second : int or None
            Ranks; None for the next that is not equally good. [1]

        Returns
        -------
        Ranking or None
            None if there is no second. [1]
        """
        if not len(self):
            return None
        first = whole_number("first", first, minimum=0, maximum=len(self) - 1)
        beside = (
            self._next(first) if second is None else whole_number("second", second, minimum=0, maximum=len(self) - 1)
        )
        if beside is None:
            return None
        ranks = (first, beside)
        one, other = (self.found(rank) for rank in ranks)
        values = tuple(float(abs(self._costs[rank])) for rank in ranks)
        elasticities = tuple(self._elasticity(found) for found in (one, other))
        return ranking_of(one.prediction, other.prediction, Costs(values, elasticities))  # type: ignore[arg-type]

    @derived_property
    def _costs(self) -> NDArray[np.float64]:
        """Cost of each fitting layout by the objective: smaller is better. [unit of the objective, or its inverse]"""
        column: NDArray[np.float64] = self.fitting.results[OBJECTIVES[self.objective]]
        return 1 / column if OBJECTIVES[self.objective] in LARGER_IS_BETTER else column

    def _elasticity(self, layout: FoundLayout) -> float:
        """Elasticity of the objective with respect to time; of energy only the idle power varies with time. [1]"""
        return time_share(layout.prediction) if self.objective == "energy" else 1.0

    def _next(self, first: int) -> int | None:
        values = self.fitting.results[OBJECTIVES[self.objective]]
        others = np.flatnonzero(abs(values / values[first] - 1) > SAME)
        others = others[others > first]
        return int(others[0]) if len(others) else None

    @derived_property
    def certainty(self) -> float | None:
        """Probability that the best layout is better than the second; None if unknown or if there is no second. [1]"""
        try:
            ranking = self.ranking() if len(self) else None
        except ArgumentError:  # a measured machine
            return None
        return None if ranking is None else ranking.probability

    @property
    def totals(self) -> TrainingTotals | None:
        """Days, device-hours and USD of the run with the best layout; None without a run, or if none fits."""
        return self.best.totals if len(self) else None

    @property
    def memory_per_rank(self) -> tuple[float, ...]:
        """Peak memory of a device of each stage of the best layout. [B]"""
        return self.best.memory_per_rank if len(self) else ()

    @property
    def title(self) -> str:
        """What was searched, and how many layouts fit."""
        *fewer, most = np.unique(device_counts(self.layouts)).tolist()
        devices = " or ".join([*(f"{count:,}" for count in fewer), counted(most, "device")])
        system = self.layouts.space.by_name["system"].labels[0]
        return (
            f"{self.graph.name} on {devices} of {system}: {counted(self.layout_count, 'layout')}, "
            f"{self.fitting_count:,} of which fit"
        )

    def _shown(self) -> Table[Any]:
        return self._table(self.fitting, title=self.title, count=BEST_SHOWN)

    def _lines(self) -> list[str]:
        lines = []
        if len(self):
            row = self.best_row
            lines.append(f"best by {self.objective}: {layout_text(row)}: {self._verdict(row)}")
            if self.certainty is not None:
                lines.append(f"sure to {percent_text(self.certainty)} that {BETTER[self.objective]} the next")
            peaks = self.memory_per_rank
            most = f"{bytes_text(max(peaks))} on the fullest device"
            lines.append(
                f"memory: {most}{'' if len(peaks) == 1 else f', {bytes_text(min(peaks))} on the emptiest stage'}"
            )
            *others, last = self._front_objectives
            layouts = counted(len(self.front), "layout")
            lines.append(f"front of {', '.join(others)} and {last}: {layouts} (.front, .by_memory)")
        else:
            lines.append(f"no layout fits: {self._smallest}")
        refused = ", ".join(f"{count:,} by {reason}" for reason, count in self.refused.items())
        return [*lines, *([f"ruled out: {refused}"] if refused else []), *self.notes]

    def _verdict(self, row: Any) -> str:
        text = f"{seconds_text(row.step_s)} a step, MFU {percent_text(row.mfu)}, bound by {row.bound_by}"
        if self.objective == "energy":
            text += f", {row.energy_j:,.4g} J"
        totals = self.totals
        if totals is None:
            return text
        text += f"; the run takes {_amount(totals.days, 1)} days, {_amount(totals.device_hours, 0)} device-hours"
        return text if self.usd_per_hour is None else f"{text}, {_amount(totals.usd, 0)} USD"

    def __repr__(self) -> str:
        return f"<Search {self.title}>"

    def _figure(self) -> Figure:
        """Draw time over memory of all layouts that fit, by stages, with the front."""
        from perfmodel.planning.sweeps.sweep_figure import picture

        figure = picture(self.layouts, x="memory_bytes", y=OBJECTIVES["time"], by="stages")
        figure.axes[0].set_title(self.title)
        return figure


def _ranked(sweep: Sweep, name: str) -> NDArray[np.float64]:
    column = sweep.results[name]
    return -column if name in LARGER_IS_BETTER else column


def _amount(amount: float, places: int) -> str:
    """Write an amount of a run; with three significant digits if the run is short."""
    return f"{amount:,.{places}f}" if amount >= 1 else f"{amount:.3g}"


def device_counts(sweep: Sweep) -> NDArray[np.int64]:
    """Return the devices of each layout. [1]"""
    return np.asarray(np.prod([sweep[name] for name in COUNTED], axis=0))


def is_unusual(axis: Axis) -> bool:
    """Tell whether an axis without its own column differs from predict's default."""
    return axis.name in UNUSUAL and axis.values[0] != DEFAULTS[axis.name]


def micro_batch_size(row: Any) -> int:
    """Return the samples of a micro-batch of a row. [samples]"""
    return int(row["global_batch_size"] // (row["workers"] * row["micro_batches"] * row["accumulation_steps"]))


def bottlenecks(sweep: Sweep) -> NDArray[Any]:
    """Return the cause of each layout's largest part."""
    parts = np.stack([sweep.results[name] for name in PARTS])
    names = np.array([BOTTLENECK_OF_PART.get(name, name) for name in PARTS], dtype=object)
    largest = names[np.argmax(parts, axis=0)]
    overhead, launch = sweep.results["overhead_s"], sweep.results["launch_s"]
    of_overhead = np.where(overhead - launch > launch, "host_dispatch", "launch")
    largest = np.where(largest == "overhead_s", of_overhead, largest)
    # an update of any size in use reads and writes more than it computes
    return np.where(largest == "update_s", "memory_bandwidth", np.where(largest == "input_wait_s", "storage", largest))


def layout_text(row: Any) -> str:
    """Write a layout in words."""
    of_row: dict[str, Any] = row if isinstance(row, dict) else vars(row)
    get: Callable[[str], Any] = of_row.get
    words = [counted(get("workers"), "worker")]
    if get("tensor_size") > 1:
        words.append(f"tensor {get('tensor_size')}")
    if (get("context_size") or 1) > 1:
        words.append(f"context {get('context_size')} ({get('context_method') or DEFAULTS['context_method']})")
    if get("stages") > 1:
        interleaved = f" x {get('interleave')}" if get("interleave") > 1 else ""
        cut = "" if get("stage_cut") in (None, DEFAULTS["stage_cut"]) else f", {get('stage_cut')}"
        words.append(f"{get('stages')}{interleaved} stages ({get('schedule')}{cut})")
    if get("shard_stage"):
        among = "" if get("shard_group") is None else f" in groups of {get('shard_group')}"
        words.append(f"shard stage {get('shard_stage')}{among}{', no_sync' if get('no_sync') else ''}")
    if (size := get("micro_batch_size")) is not None:
        words.append(f"{get('micro_batches') * get('accumulation_steps')} x {size} samples")
    if get("recompute"):
        words.append(f"recompute {get('recompute')}")
    return ", ".join(words)
