"""plan(): hours and cost of a job on every candidate, and the best choice within deadline and budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.hardware.dataset import Dataset
from perfmodel.hardware.price import InstancePrice, StoragePrice
from perfmodel.hardware.storage import Storage
from perfmodel.measurements.table import Run
from perfmodel.planning.plans.answer import BUDGET, DEADLINE, HEADINGS, MEMORY, Change, Limits, Plan, PlanRow
from perfmodel.planning.plans.bill import SPOT, Hired, Terms, energy_terms, read_workload, spot_terms, storage_terms
from perfmodel.planning.plans.candidates import (
    LAYOUTS,
    ON_DEMAND,
    PURCHASES,
    WHEN_NEEDED,
    CandidateLike,
    Entry,
    Question,
    entries_of,
    read_candidates,
)
from perfmodel.planning.scaling import MOST_PENALTY, check_options, listed
from perfmodel.prediction.arguments.checks import from_zero_to, one_of, whole_number
from perfmodel.prediction.arguments.verbs import gated
from perfmodel.prediction.job.agreement_options import sync_names
from perfmodel.prediction.memory.batch_limit import max_batch_size, without_sizes
from perfmodel.presentation.quantities import bytes_text, usd_text
from perfmodel.presentation.tables import Table
from perfmodel.units import GIGA

if TYPE_CHECKING:
    from perfmodel.prediction.prediction import Prediction

OF_A_ROW: Final = ("graph", "device", "system", "workers", "sync", "batch_size", "global_batch_size", "dataset")
"""Arguments of ``predict`` that a plan sets itself."""

PRICE_FIELDS: Final = {ON_DEMAND: "usd_per_hour", SPOT: "spot_usd_per_hour"}
"""Purchase -> the field of a price's file that holds its price."""


def _notes(question: Question, purchases: list[str], rows: list[PlanRow]) -> tuple[str, ...]:
    """Return the caveats printed below the table."""
    notes = [
        "every instance with a working device is paid for in full, and so is a machine without GPUs that holds only a "
        "parameter server; traffic and a server's own machine beside machines with GPUs are not included"
    ]
    notes += dict.fromkeys(note for candidate in question.candidates for note in candidate.notes)
    for candidate in question.candidates:
        cores = question.feed_of(candidate).get("decode_cores")
        if cores is not None and "decode_cores" not in candidate.feed:
            name = candidate.name
            decoding = f"1 core of {name} decodes" if cores == 1 else f"{cores} cores of {name} decode"
            notes.append(f"{decoding}: half of the virtual processors that its file states")
    days = _days_of(question, purchases)
    if len(days) > 1:
        notes.append(f"prices are not of one day: the oldest holds since {days[0]}, the newest since {days[-1]}")
    elif days:
        notes.append(f"prices hold since {days[0]}")
    notes += _notes_on_prices(question, purchases, rows)
    if any(row.energy_kwh is not None for row in rows):
        notes.append(
            "kWh count devices, not hosts: GPUs by the work of a step, CPUs at thermal design power, an upper bound; "
            "CPUs that run only a server count too"
        )
    if any((row.mean_staleness or 0) > 0 for row in rows):
        penalty = question.staleness_penalty
        more = (
            f"{penalty:g} of the updates more for each update of staleness, as given" if penalty else "no more updates"
        )
        notes.append(f"workers that do not wait need {more} (staleness_penalty=)")
    if any(row.layout is not None for row in rows):
        notes.append("layouts are the best that a search found on the same devices, with 8 % of their memory left free")
    if SPOT in purchases:
        terms = question.terms
        notes.append(
            f"each instance on spot is taken away {terms.interruptions_per_hour:g} times an hour, as given, and "
            f"stops the whole job; checkpoints of {terms.checkpoint_bytes / GIGA:,.3g} GB at the interval of Daly; "
            f"back after {terms.restart_s:g} s and reading one"
        )
    if question.workload.dataset is None:
        notes.append("mini-batches come from host memory: dataset= reads and decodes them")
    return tuple(notes)


def _notes_on_prices(question: Question, purchases: list[str], rows: list[PlanRow]) -> list[str]:
    """Return notes on prices from unread sources, and on prices that fall with use."""
    prices = {bought.name: bought.price for bought in question.candidates if isinstance(bought.price, InstancePrice)}
    fields = [field for how, field in PRICE_FIELDS.items() if how in purchases]
    sources = {name: [price.source_of(field) for field in fields] for name, price in prices.items()}
    unread = [name for name, cited in sources.items() if any(source and not source.is_verified for source in cited)]
    notes = [f"list price from memory, not read from a source: {', '.join(unread)}"] if unread else []
    lower = {
        row.candidate: None
        for row in rows
        if row.purchase == ON_DEMAND and row.hours is not None and _is_sustained(prices.get(row.candidate), row.hours)
    }
    if lower:
        notes.append(f"use is sustained, as of jobs that begin on the first of a month: {', '.join(lower)}")
    return notes


def _is_sustained(price: InstancePrice | None, hours: float) -> bool:
    """Tell whether a price falls with use within a number of hours."""
    rule = None if price is None else price.sustained_use
    return rule is not None and hours > rule.hours_per_month / len(rule.tier_multipliers)


def _days_of(question: Question, purchases: list[str]) -> list[date]:
    """Return the first days of the rows' on-demand or spot prices, oldest first."""
    prices = [candidate.price for candidate in question.candidates if isinstance(candidate.price, InstancePrice)]
    days = {price.valid_from for price in prices} if ON_DEMAND in purchases else set()
    if SPOT in purchases:
        days |= {price.spot_valid_from for price in prices if price.spot_valid_from is not None}
    return sorted(days)


@gated
def plan(
    graph: LayerGraph | Run,
    *,
    candidates: CandidateLike | Iterable[CandidateLike],
    batch_size: int | None = None,
    global_batch_size: int | None = None,
    dataset: str | Path | Dataset | None = None,
    dataset_size: int | None = None,
    epochs: int | None = None,
    samples: int | None = None,
    deadline_hours: float | None = None,
    budget_usd: float | None = None,
    sync: str | Iterable[str] = "ring_all_reduce",
    purchase: str | Iterable[str] = ON_DEMAND,
    interruptions_per_hour: float | None = None,
    checkpoint_to: str | Path | Storage | None = None,
    restart_s: float = 0.0,
    storage_price: str | Path | StoragePrice | None = None,
    storage_gb: float | None = None,
    usd_per_kwh: float | None = None,
    power_usage_effectiveness: float = 1.0,
    staleness_penalty: float = 0.0,
    layouts: str = WHEN_NEEDED,
    **options: Any,
) -> Plan:
    """Compare candidates for a job: hours and cost of each, the best one, binding limits, ways to meet them.

    Parameters
    ----------
    graph : LayerGraph or Run
        A network, or a Run of a measurement table. [-]
    candidates : iterable
        Prices by name, instance or path, whose files name their hardware; or mappings with ``price``,
        ``device``, ``system`` or both (the device then stands in the system's slots, as in :func:`perfmodel.predict`),
        ``machines`` of it, or of the price's own system (one or several numbers, on the fabric that its file names),
        ``workers`` (one or several numbers; by default all devices of an instance that has a system), ``name``, and
        with a data set ``input_from`` and ``decode_cores`` of its own. A ``price`` that is a number is per hour for
        one of your own GPUs, or for one machine without GPUs; those of servers are paid for too. [-]
    batch_size, global_batch_size : int
        Samples per step, of each worker or of all together. [samples]
    dataset : str, Path or Dataset
        Data set of an epoch, read and decoded as in :func:`perfmodel.predict`. A candidate that is only a device has
        no drives: ``input_from`` says where it reads from, and half of its price's virtual processors decode unless
        ``decode_cores`` gives the number of cores. [-]
    dataset_size : int
        Samples of an epoch whose mini-batches are in host memory. [samples]
    epochs : int
        Passes over the data set; exactly one of ``epochs`` and ``samples`` must be given. [1]
    samples : int
        Samples in all, instead of ``epochs``. [samples]
    deadline_hours : float
        Longest time; without it there is no limit. [h]
    budget_usd : float
        Highest cost; without it there is no limit. [USD]
    sync : str or iterable of str
        Synchronous or asynchronous ways for several workers to agree, as in :func:`perfmodel.predict`. [-]
    purchase : str or iterable of str
        ``on_demand`` (at the file's price, which may be that of a capacity block), ``spot``, or both. [-]
    interruptions_per_hour : float
        Interruptions of one spot instance per hour; each stops the whole job. [1/h]
    checkpoint_to : str, Path or Storage
        Storage for checkpoints on spot instances. [-]
    restart_s : float
        Time from an interruption until a new instance starts to read the checkpoint. [s]
    storage_price : str, Path or StoragePrice
        Price of the storage in ``storage_gb``. [-]
    storage_gb : float
        Storage reserved for each instance or machine of your own, however many devices it has. [GB]
    usd_per_kwh : float
        Price of electricity for your own machines; cloud prices include it. [USD/kWh]
    power_usage_effectiveness : float
        Power of the building divided by that of its machines. [1]
    staleness_penalty : float
        Share of updates that one update of staleness adds, measured by you; 0 by default. [1]
    layouts : str
        When layouts of a language model are searched, as by :func:`perfmodel.search`, on the devices of a row:
        ``when_needed``, where the job as it is given lacks memory; ``always``; or ``never``. [-]
    **options : object
        All other arguments of :func:`perfmodel.predict`. [-]

    Returns
    -------
    Plan
        ``rows``, ``pareto``, ``best``, ``binding``, ``nearest_miss``, ``changes``; ``plot()``, ``to_frame()``.

    Raises
    ------
    ArgumentError
        If a value is not allowed, there is no candidate, or all candidates fail for the same reason.
    UnknownNameError
        If a name, instance or option is unknown; names the nearest.
    SpecError
        If a file is wrong, such as a price without a date.

    Notes
    -----
    The best is the cheapest within deadline and budget; with only a budget, the fastest.
    Valid for: instances paid by the second; for sustained-use prices, jobs that start on the first of a month.
    Ignores: traffic, taxes, a server's own machine beside machines with GPUs, waiting for capacity, changes of spot
    prices.

    Examples
    --------
    >>> import perfmodel as pm
    >>> report = pm.plan(pm.zoo.resnet50(), candidates=["p2.xlarge", "p3.2xlarge"], batch_size=32,
    ...     dataset_size=50_000, epochs=10, deadline_hours=2)
    >>> report.best.candidate, report.binding
    ('aws_p3_2xlarge_2017', ())
    """
    counts = (whole_number(name, options.get(name, 1)) for name in ("stages", "tensor_size", "context_size"))
    read = read_candidates(candidates, devices_per_worker=math.prod(counts))
    syncs = [one_of("sync", name, sync_names()) for name in listed("sync", sync)]
    purchases = [one_of("purchase", name, PURCHASES) for name in listed("purchase", purchase)]
    most_workers = max(count for candidate in read for count in candidate.workers)
    check_options(options, syncs, most_workers=most_workers, of_a_row=OF_A_ROW, of="plan")
    workload = read_workload(dataset=dataset, dataset_size=dataset_size, epochs=epochs, samples=samples)
    sizes = {"batch_size": batch_size, "global_batch_size": global_batch_size}
    sizes = {name: None if size is None else whole_number(name, size) for name, size in sizes.items()}
    question = Question(
        graph=graph,
        candidates=tuple(read),
        sizes=sizes | ({} if workload.dataset is None else {"dataset": workload.dataset}),
        options=options,
        workload=workload,
        staleness_penalty=from_zero_to(MOST_PENALTY, "staleness_penalty", staleness_penalty),
        layouts=one_of("layouts", layouts, LAYOUTS),
        limits=Limits.of(deadline_hours=deadline_hours, budget_usd=budget_usd),
        terms=Terms(
            **spot_terms(
                graph,
                options,
                is_asked=SPOT in purchases,
                interruptions_per_hour=interruptions_per_hour,
                checkpoint_to=checkpoint_to,
                restart_s=restart_s,
            ),
            **storage_terms(storage_price=storage_price, storage_gb=storage_gb),
            **energy_terms(
                usd_per_kwh=usd_per_kwh, power_usage_effectiveness=power_usage_effectiveness, candidates=read
            ),
        ),
    )
    return _decided(question, entries_of(question, syncs, purchases), purchases)


def _decided(question: Question, entries: list[Entry], purchases: list[str]) -> Plan:
    """Return the plan made from all rows."""
    entries = [_with_ends(entry, question.terms) if entry.row.is_on_front else entry for entry in entries]
    verdict = Verdict(entries=entries, question=question)
    rows = [entry.row for entry in entries]
    best = verdict.best
    nearest = None if best is not None else verdict.nearest_miss()
    return Plan(
        title=_title(question, entries),
        limits=question.limits,
        rows=Table(rows, headings=HEADINGS, row_type=PlanRow),
        best=best,
        nearest_miss=None if nearest is None else nearest[0],
        binding=verdict.binding(),
        changes=verdict.changes(),
        notes=_notes(question, purchases, rows),
    )


def _with_ends(entry: Entry, terms: Terms) -> Entry:
    """Add hours and cost at the ends of the 80 % interval of the step, if there is one."""
    p, hired = entry.prediction, entry.hired
    assert p is not None
    assert hired is not None
    try:
        ends = p.interval_s
    except ArgumentError:
        return entry
    low, high = (hired.bill(terms, share=end_s / p.step_s) for end_s in ends)
    if math.isinf(high.hours):
        return entry
    row = replace(entry.row, least_hours=low.hours, most_hours=high.hours, least_usd=low.usd, most_usd=high.usd)
    return replace(entry, row=row)


def _title(question: Question, entries: list[Entry]) -> str:
    """Return the job and its limits in a line."""
    p = next((entry.prediction for entry in entries if entry.prediction is not None), None)
    subject = getattr(question.graph, "name", "the network") if p is None else f"{p.subject} with {p.framework}"
    limits = question.limits
    within = "" if limits.deadline_hours is None else f", within {limits.deadline_hours:,g} h"
    for_money = "" if limits.budget_usd is None else f", for at most {limits.budget_usd:,g} USD"
    return f"{question.workload.describe()} of {subject}{within}{for_money}"


HALVINGS: Final = 60
"""Bisections that find the least speed-up to the precision of a float. [1]"""

LEAST_SHARE: Final = 1e-9
"""Smallest share of the work for which a speed-up is sought. [1]"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Verdict:
    """Derives the best row, the binding limits and the changes that would lift them."""

    entries: Sequence[Entry]
    question: Question

    @property
    def limits(self) -> Limits:
        """Deadline and budget."""
        return self.question.limits

    @property
    def running(self) -> list[PlanRow]:
        """Rows that only deadline or budget can rule out."""
        return [entry.row for entry in self.entries if entry.row.can_run]

    @property
    def too_large(self) -> list[PlanRow]:
        """Rows that only lack memory."""
        return [entry.row for entry in self.entries if entry.row.limited_by == MEMORY]

    @property
    def best(self) -> PlanRow | None:
        """The best row within the limits."""
        return self.limits.best_of(self.running)

    def _better(self, name: str) -> PlanRow | None:
        """Return the best row with one limit lifted, if it is better than the present best."""
        limits = self.limits if name == MEMORY else self.limits.without(name)
        rows = self.too_large if name == MEMORY else self.running
        row, best = limits.best_of(rows), self.best
        if row is None or best is None:
            return row
        return row if self.limits.order(row) < self.limits.order(best) else None

    def binding(self) -> tuple[str, ...]:
        """Return each limit that changes the choice if lifted alone; if nothing fits, all limits that are missed."""
        alone = tuple(name for name in (*self.limits.names, MEMORY) if self._better(name) is not None)
        if alone or self.best is not None:
            return alone
        if self.running:
            return self.limits.names
        return tuple(dict.fromkeys(str(entry.row.limited_by) for entry in self.entries))

    def nearest_miss(self) -> tuple[PlanRow, float] | None:
        """Return the row that needs the least speed-up to meet the limits, and that factor; None if none can. [1]"""
        shares = [
            (self._share_that_fits(entry.hired), entry.row)
            for entry in self.entries
            if entry.row.can_run and entry.hired is not None
        ]
        share, row = max(shares, key=lambda miss: miss[0], default=(0.0, None))
        return None if row is None or share == 0 else (row, 1 / share)

    def _share_that_fits(self, hired: Hired) -> float:
        """Return the largest share of the work that meets the limits; 0 if none does. [1]"""

        def fits(share: float) -> bool:
            bill = hired.bill(self.question.terms, share=share)
            return not self.limits.missed(bill.hours, bill.usd)

        if fits(1.0):
            return 1.0
        return _largest(fits)

    def changes(self) -> tuple[Change, ...]:
        """Return the changes that would give another choice, or a first one."""
        finders = {DEADLINE: self._of_deadline, BUDGET: self._of_budget, MEMORY: self._of_memory}
        changes: list[Change | None] = [finder() for name, finder in finders.items() if self._better(name) is not None]
        if self.best is None:
            changes += self._of_work()
            if not changes and self.too_large and not self.running:
                changes.append(self._of_memory())
        return tuple(change for change in changes if change is not None)

    def _lifted(self, name: str) -> PlanRow:
        """Return the best row with a limit lifted; if nothing fits, the nearest miss."""
        better = self._better(name)
        assert better is not None
        if self.best is not None:
            return better
        limits = self.limits.without(name)
        within = [row for row in self.running if not limits.missed(row.hours or 0.0, row.usd or 0.0)]
        return min(within, key=lambda row: ((row.hours if name == DEADLINE else row.usd) or 0.0, row.usd or 0.0))

    def _of_deadline(self) -> Change:
        row = self._lifted(DEADLINE)
        assert row.hours is not None
        assert self.limits.deadline_hours is not None
        text = f"a deadline of {_at_least(row.hours)} h, {_at_least(row.hours - self.limits.deadline_hours)} h later"
        return _change(
            "deadline_hours", row.hours, row, f"{text}: {row.describe()}, {usd_text(row.usd or 0.0)} USD", self.best
        )

    def _of_budget(self) -> Change:
        row = self._lifted(BUDGET)
        assert row.usd is not None
        assert self.limits.budget_usd is not None
        text = f"a budget of {_money_up(row.usd)} USD, {_money_up(row.usd - self.limits.budget_usd)} more"
        return _change("budget_usd", row.usd, row, f"{text}: {row.describe()} in {row.hours:,.4g} h", None)

    def _of_work(self) -> list[Change]:
        """Return the speed-up that the nearest miss needs, or how far its work would have to shrink."""
        nearest = self.nearest_miss()
        if nearest is None:
            return []
        row, speedup = nearest
        would = f"{row.describe()} would meet the limits"
        work = [_change("speed", speedup, row, f"{would} if its steps were {_at_least(speedup)} times as fast", None)]
        entry = next(entry for entry in self.entries if entry.row is row)
        what, count = self.question.workload.amount
        fewer = self._less_work(entry, 1 / speedup)
        if fewer:
            work.append(_change(what, fewer, row, f"{would} with {fewer:,} {what} instead of {count:,}", None))
        return work

    def _less_work(self, entry: Entry, share: float) -> int:
        """Return the most epochs or samples, in whole steps, within a share of the work; 0 for none."""
        what, count = self.question.workload.amount
        p = entry.prediction
        assert p is not None
        unit = 1 if what == "epochs" else p.counted_workers * p.batch_size
        units = math.floor(math.ceil(count / unit) * share * (1 + 1e-12))
        for fewer in (units * unit, (units - 1) * unit):  # one less in case of a rounding error
            if 0 < fewer < count and self.question.again(entry, amount=fewer).row.limited_by is None:
                return fewer
        return 0

    def _of_memory(self) -> Change | None:
        """Return the batch size that fits the best of the too large rows, else the memory it lacks, or None."""
        row = self._better(MEMORY) or min(self.too_large, key=self.limits.order)
        entry = next(entry for entry in self.entries if entry.row is row)
        p = entry.prediction
        assert p is not None
        missing_bytes = float(p.memory.missing_bytes)
        text = f"{bytes_text(missing_bytes)} more memory on {row.describe()}"
        largest = self._largest_batch(p)
        again = None if not largest else self.question.again(entry, batch_size=largest).row
        if again is not None and self._is_chosen(again):
            text += f", or at most {largest:,} samples per worker instead of {p.batch_size:,}"
            if self.question.sizes["global_batch_size"] is None:
                return _change("batch_size", largest, row, text, None)
            text += f", {largest * entry.asked_workers:,} of all together"
            return _change("global_batch_size", largest * entry.asked_workers, row, text, None)
        if self._better(MEMORY) is None:
            return None
        if again is not None:
            text += f"; with the {largest:,} samples per worker that it holds it {again.reason or 'is not chosen'}"
        return _change("memory_bytes", missing_bytes, row, text, None)

    def _is_chosen(self, row: PlanRow) -> bool:
        """Tell whether a row with a smaller batch size meets the limits and beats the present best."""
        best = self.best
        return row.limited_by is None and (best is None or self.limits.order(row) < self.limits.order(best))

    @staticmethod
    def _largest_batch(p: Prediction) -> int:
        """Return the largest batch size of a whole network on a device; 0 if none fits or it is unknown."""
        if p.spread is not None or not isinstance(p.job.graph, LayerGraph):
            return 0
        try:
            return max_batch_size(p.job.graph, **without_sizes(p.job.asked))
        except ArgumentError:
            return 0


def _largest(fits: Callable[[float], bool]) -> float:
    """Return the largest share that fits, provided that smaller ones do too; 0 if none does. [1]"""
    low, high = LEAST_SHARE, 1.0
    if not fits(low):
        return 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _change(what: str, needed: float, row: PlanRow, text: str, than: PlanRow | None) -> Change:
    if than is not None and than.usd is not None and row.usd is not None:
        text += f", {usd_text(than.usd - row.usd)} less"
    return Change(what=what, needed=float(needed), candidate=row.candidate, text=text)


def _at_least(value: float) -> str:
    """Round up to four digits, so that a requirement stays sufficient.

    >>> _at_least(11.25998), _at_least(1.2341), _at_least(0.5)
    ('11.26', '1.235', '0.5')
    """
    step = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{math.ceil(round(value / step, 6)) * step:,.4g}"


def _money_up(usd: float) -> str:
    """Round an amount of money up to whole cents, or below a dollar to four digits.

    >>> _money_up(34.4555), _money_up(2.0), _money_up(0.0065889)
    ('34.46', '2.00', '0.006589')
    """
    if 0 < usd < 1:
        return _at_least(usd)
    return f"{math.ceil(round(usd * 100, 6)) / 100:,.2f}"
