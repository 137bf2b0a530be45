"""Candidates of a plan, and the rows that predict the job on each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import ArgumentError, UnknownNameError, check_known
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_instance_price, load_system
from perfmodel.hardware.cluster import several
from perfmodel.hardware.dataset import Dataset
from perfmodel.hardware.gpu import Gpu
from perfmodel.hardware.measured_machine import MeasuredMachine
from perfmodel.hardware.price import InstancePrice
from perfmodel.hardware.wiring import Wired
from perfmodel.numeric import is_real
from perfmodel.planning.plans.answer import MEMORY, Limits, PlanRow, with_front
from perfmodel.planning.plans.bill import MOST_TRIES, SPOT, Hired, Terms, Workload
from perfmodel.planning.scaling import listed, options_of
from perfmodel.prediction.arguments.checks import NO_SYNC, positive, whole_number
from perfmodel.prediction.bill import (
    check_processors,
    host_count_of,
    instances_of,
    mean_power_of,
    paid_count,
    processors_of,
)
from perfmodel.prediction.device.targets import resolve_target
from perfmodel.prediction.job.data_path import HOST_MEMORY
from perfmodel.prediction.predict import predict
from perfmodel.prediction.words.prediction_text import fit_sentence
from perfmodel.presentation.quantities import usd_text

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph
    from perfmodel.measurements.table import Run
    from perfmodel.prediction.prediction import Prediction

ON_DEMAND: Final = "on_demand"
PURCHASES: Final = (ON_DEMAND, SPOT)
"""Ways to buy an instance."""

OWN: Final = "own"
"""Purchase recorded for hardware priced with a plain number."""

WHEN_NEEDED: Final = "when_needed"
ALWAYS: Final = "always"
NEVER: Final = "never"
LAYOUTS: Final = (WHEN_NEEDED, ALWAYS, NEVER)
"""Candidates for which layouts are searched: those that lack memory for the job as given, all, or none."""

Answer = tuple["Prediction | ArgumentError | UnknownNameError", str | None]
"""A prediction or what prevents it, and the layout in words if it was searched."""

OF_BILL: Final = ("hours", "usd", "storage_usd", "energy_usd", "energy_kwh", "lost_share")
"""Fields copied from the bill; None if the job never finishes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Entry:
    """A row with the prediction and bill behind it."""

    row: PlanRow
    candidate: Candidate
    hired: Hired | None = None
    prediction: Prediction | None = None
    asked_workers: int = 1
    """Workers of the job as it is given; a searched layout may have others. [1]"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Question:
    """Everything that is the same in every row."""

    graph: LayerGraph | Run
    sizes: dict[str, Any]
    options: dict[str, Any]
    workload: Workload
    staleness_penalty: float
    limits: Limits
    terms: Terms
    candidates: tuple[Candidate, ...]
    layouts: str = WHEN_NEEDED
    predictions: dict[Any, Answer] = field(default_factory=dict)

    def predicted(self, candidate: Candidate, sync: str, workers: int) -> Answer:
        """Return the prediction on a candidate, or the error that prevents it, and the layout if one was searched.

        Candidates on equal hardware share the answer.
        """
        hardware = tuple(
            (kind, str(thing) if isinstance(thing, str | Path) else id(thing))
            for kind, thing in candidate.hardware.items()
        )
        feed = self.feed_of(candidate)
        fed = tuple((name, str(value)) for name, value in feed.items())
        key = (hardware, fed, sync, workers)
        if key not in self.predictions:
            try:
                how = self.sizes | candidate.hardware | options_of(self.options, sync, workers) | feed
                self.predictions[key] = _laid_out(
                    predict(self.graph, workers=workers, sync=sync, **how), layouts=self.layouts
                )
            except ArgumentError as error:
                self.predictions[key] = _with_remedy(error), None
            except UnknownNameError as error:
                if error.name != self.options.get("dtype"):
                    raise
                self.predictions[key] = error, None  # other candidates may support that data type
        return self.predictions[key]

    def feed_of(self, candidate: Candidate) -> dict[str, Any]:
        """Return a candidate's input_from and decode_cores; if unset, decode_cores follows from the price's vCPUs."""
        feed = {name: self.options.get(name) for name in FEED} | candidate.feed
        is_decoded = (
            isinstance(self.workload.dataset, Dataset) and self.workload.dataset.decode_rate_per_core is not None
        )
        if not is_decoded or feed["decode_cores"] is not None or feed["input_from"] == HOST_MEMORY:
            return candidate.feed
        cores = candidate.known_cores
        return candidate.feed if cores is None else candidate.feed | {"decode_cores": cores}

    def entry(self, candidate: Candidate, sync: str, workers: int, purchase: str) -> Entry:
        """Return one row with the prediction and bill behind it."""
        price = candidate.price
        bought = purchase
        if purchase == ON_DEMAND:
            bought = price.purchase if isinstance(price, InstancePrice) else OWN
        row = PlanRow(candidate=candidate.name, purchase=bought, sync=sync, workers=workers)
        p, layout = self.predicted(candidate, sync, workers)
        if isinstance(p, ArgumentError | UnknownNameError):
            return _impossible(candidate, row, _at_fault(p), str(p))
        try:
            if isinstance(price, InstancePrice):
                count = instances_of(p, price)
            else:
                count = paid_count(p.basis.prepared.target, p.agreement)
        except ArgumentError as error:
            return _impossible(candidate, row, "price", str(error))
        if bought == SPOT and (not isinstance(price, InstancePrice) or price.spot_usd_per_hour is None):
            return _impossible(candidate, row, "price", "no spot price is known")
        if layout is not None:
            row = replace(row, workers=p.job.workers, layout=layout)
        once_s = self.workload.epochs * p.epoch_s(dataset_size=self.workload.dataset_size)
        hired = Hired(
            work_s=(1 + self.staleness_penalty * p.mean_staleness) * once_s,
            price=price,
            purchase=bought,
            instance_count=count,
            host_count=host_count_of(p),
            device_count=processors_of(p),
            device_w=mean_power_of(p),
        )
        billed = self._billed(row, p, hired)
        return Entry(row=billed, candidate=candidate, hired=hired, prediction=p, asked_workers=workers)

    def again(self, entry: Entry, *, amount: int | None = None, batch_size: int | None = None) -> Entry:
        """Return the same entry for less work or another batch size."""
        row, question = entry.row, self
        if amount is not None:
            question = replace(question, workload=question.workload.of(amount))
        if batch_size is not None:
            sizes = {"batch_size": batch_size, "global_batch_size": batch_size * entry.asked_workers}
            changed = {name: size for name, size in sizes.items() if self.sizes[name] is not None}
            question = replace(question, sizes=self.sizes | changed, predictions={})
        return question.entry(
            entry.candidate, row.sync, entry.asked_workers, SPOT if row.purchase == SPOT else ON_DEMAND
        )

    def _billed(self, row: PlanRow, p: Prediction, hired: Hired) -> PlanRow:
        bill = hired.bill(self.terms)
        missed = self.limits.missed(bill.hours, bill.usd)
        limited_by, reason = (", ".join(missed) or None), None
        if missed:
            over = {"deadline": f"takes {bill.hours:,.4g} h", "budget": f"costs {usd_text(bill.usd)} USD"}
            reason = " and ".join(over[name] for name in missed)
        if p.memory.fits is not None and not p.memory.fits:  # None: the capacity is unknown
            limited_by, reason = MEMORY, fit_sentence(p)
        never_ends = math.isinf(bill.hours)
        if never_ends:  # more memory would not help
            limited_by = "interruptions"
            enough = "runs long enough to restart and save a checkpoint"
            reason = f"it never ends: fewer than one try in {MOST_TRIES:,g} {enough}"
        return replace(
            row,
            instances=hired.instance_count,
            step_s=p.step_s,
            **{} if never_ends else {name: getattr(bill, name) for name in OF_BILL},
            checkpoint_interval_s=bill.checkpoint_interval_s,
            mean_staleness=p.mean_staleness,
            limited_by=limited_by,
            reason=reason,
        )


def _with_remedy(error: ArgumentError) -> ArgumentError:
    """Add to an error how a candidate states where its examples are read and decoded."""
    if error.argument not in FEED or error.given is not None:
        return error
    remedy = "set it per candidate, as in {'price': ..., 'input_from': 'object_store', 'decode_cores': 8}"
    return ArgumentError(error.argument, None, f"{error.allowed}; {remedy}, or use a system with drives")


def _at_fault(error: ArgumentError | UnknownNameError) -> str:
    """Return the argument that the error is about."""
    return error.argument if isinstance(error, ArgumentError) else "dtype"


def _impossible(candidate: Candidate, row: PlanRow, limited_by: str, reason: str) -> Entry:
    return Entry(row=replace(row, limited_by=limited_by, reason=reason), candidate=candidate)


def entries_of(question: Question, syncs: list[str], purchases: list[str]) -> list[Entry]:
    """Return a row for each candidate, number of workers, ``sync`` (with several workers) and purchase."""
    # a worker whose devices share sequences adds up their gradients
    alone = [NO_SYNC] if {**question.sizes, **question.options}.get("context_size", 1) == 1 else syncs
    for_own = [ON_DEMAND] if ON_DEMAND in purchases else purchases  # your own machine is never interrupted
    entries = [
        question.entry(candidate, sync, workers, purchase)
        for candidate in question.candidates
        for workers in candidate.workers
        for sync in (syncs if workers > 1 else alone)
        for purchase in (purchases if isinstance(candidate.price, InstancePrice) else for_own)
    ]
    errors = [p for p, _ in question.predictions.values() if isinstance(p, ArgumentError | UnknownNameError)]
    reasons = {str(error) if isinstance(error, ArgumentError) else _at_fault(error) for error in errors}
    if len(errors) == len(question.predictions) and len(reasons) == 1:
        raise errors[0]  # if every row fails, the request is wrong
    marked = with_front([entry.row for entry in entries])
    return [replace(entry, row=row) for entry, row in zip(entries, marked, strict=True)]


FEED: Final = ("input_from", "decode_cores")
"""Keys of a candidate on how its examples are read and decoded, as in ``predict``."""

KEYS: Final = ("price", "device", "system", "machines", "workers", "name", *FEED)
"""Keys of a candidate."""

VCPUS_PER_CORE: Final = 2
"""Virtual processors (hardware threads) per core of an instance with GPUs. [1]"""

CandidateLike = str | Path | InstancePrice | Mapping[str, Any]
"""A price whose file names its hardware, or a mapping with ``KEYS``."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """Hardware with a price."""

    name: str
    price: InstancePrice | float
    hardware: dict[str, Any]
    workers: tuple[int, ...]
    feed: dict[str, Any]

    @property
    def known_cores(self) -> int | None:
        """Host cores behind the price's virtual processors; None if unknown, or if its system has no more. [1]"""
        if not isinstance(self.price, InstancePrice) or self.price.processor_count is None:
            return None
        cores = max(1, self.price.processor_count // VCPUS_PER_CORE)
        system = self.hardware.get("system")  # may have more cores than the guest, or represent larger instances
        return cores if system is None or cores < system.core_count // system.node_count else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats of the candidate."""
        price = self.price
        if not isinstance(price, InstancePrice):
            return ()
        if price.accelerators is None and price.system is None:
            return (f"no file says which processor {self.name} has: its times are those of the given one",)
        if "system" in self.hardware or price.device_count < 2:
            return ()
        why = "because its price file names no system; pass system= to use them all"
        used = f"only one of {self.name}'s {price.device_count} devices is used although all are paid for"
        return (f"{used}, {why}",)


def read_candidates(stated: Any, *, devices_per_worker: int = 1) -> list[Candidate]:
    """Read the caller's candidates."""
    if isinstance(stated, str | Path | Mapping | InstancePrice):
        stated = [stated]
    if not isinstance(stated, Iterable):
        raise ArgumentError("candidates", stated, "a list of prices, or of mappings with price= and hardware")
    entries = list(stated)
    if not entries:
        raise ArgumentError("candidates", stated, "must have at least one candidate")
    return [candidate for entry in entries for candidate in _candidates(entry, devices_per_worker)]


def _candidates(entry: CandidateLike, devices_per_worker: int) -> Iterator[Candidate]:
    """Yield a candidate for each of its numbers of machines."""
    stated = dict(entry) if isinstance(entry, Mapping) else {"price": entry}
    for key in stated:
        check_known("key of a candidate", key, KEYS)
    if stated.get("price") is None:
        raise ArgumentError(
            "candidates", stated, "mappings with price=: a name, or the USD per hour of one device of your own"
        )
    price = stated["price"]
    known = positive("price", price) if is_real(price) else _priced(price)
    hardware, machines = _hardware(stated, known), stated.get("machines")
    name = stated.get("name") or _name(stated, hardware, known)
    feed = {key: stated[key] for key in FEED if stated.get(key) is not None}
    for count in [None] if machines is None else listed("machines", machines):
        placed = hardware if count is None else _of_several(hardware, count)
        workers = stated.get("workers")
        if workers is None:
            devices = known.device_count if isinstance(known, InstancePrice) and "system" in hardware else 1
            devices = devices if count is None else len(placed["system"].devices) or count
            workers = max(1, devices // devices_per_worker)
        counts = tuple(whole_number("workers", number) for number in listed("workers", workers))
        yield Candidate(name=str(name), price=known, hardware=placed, workers=counts, feed=feed)


def _priced(price: Any) -> InstancePrice:
    """Load the price of an instance; for a name of hardware, say how to add a price."""
    try:
        return load_instance_price(price)
    except UnknownNameError:
        for key in ("device", "system"):
            if spec_files.lookup(f"{key}s", price):
                example = {key: price, "price": 0.5}
                allowed = f"prices, or hardware with the price of a device in USD per hour, such as {example}"
                raise ArgumentError("candidates", price, allowed) from None
        raise


def _of_several(hardware: Mapping[str, Any], machines: Any) -> dict[str, Any]:
    """Return a candidate's system with a number of machines."""
    if "system" not in hardware:
        allowed = "left out of a candidate without a system, as it counts machines; add system= to the candidate"
        raise ArgumentError("machines", machines, allowed)
    return {**hardware, "system": several(hardware["system"], machines)}


def _name(stated: Mapping[str, Any], hardware: Mapping[str, Any], price: InstancePrice | float) -> str:
    """Name a candidate after its price, else its hardware; a device in a system's slots is added."""
    things = [stated[key] for key in ("system", "device") if stated.get(key) is not None]
    name = (price.stem or price.name) if isinstance(price, InstancePrice) else _named(things[0])
    return f"{name} with {_named(things[-1])}" if len(hardware) == 2 else name


def _named(thing: Any) -> str:
    """Return the name of a file, or of the loaded part of one."""
    return Path(thing).stem if isinstance(thing, str | Path) else str(getattr(thing, "name", thing))


def _hardware(stated: Mapping[str, Any], price: InstancePrice | float) -> dict[str, Any]:
    """Return the device and system of a candidate: the stated ones, else those of its price.

    A device without ``machines`` is used by itself; with them, it stands in the slots of the price's system.
    """
    hardware = {key: stated[key] for key in ("device", "system") if stated.get(key) is not None}
    named = price.system if isinstance(price, InstancePrice) else None
    if named is not None and (not hardware or ("system" not in hardware and stated.get("machines") is not None)):
        hardware["system"] = named
    if hardware:
        loaded = _loaded(hardware)
        if stated.get("device") is not None or stated.get("system") is not None:
            _check_devices(loaded, price)
        return loaded
    if isinstance(price, InstancePrice) and price.accelerators is not None:
        return {"device": price.accelerators.device}
    allowed = "mappings that name device= or system= beside this price: no file states its hardware"
    raise ArgumentError("candidates", stated["price"], allowed)


def _loaded(hardware: dict[str, Any]) -> dict[str, Any]:
    """Load a system once, for all its rows."""
    system = hardware.get("system")
    return hardware if system is None or isinstance(system, Wired) else hardware | {"system": load_system(system)}


def _check_devices(hardware: Mapping[str, Any], price: InstancePrice | float) -> None:
    """Reject a price whose instance has other devices than the hardware."""
    if not isinstance(price, InstancePrice):
        return
    owned = None if price.accelerators is None else Path(price.accelerators.device).stem
    target = resolve_target(device=hardware.get("device"), system=hardware.get("system"), threads=None)
    part = target.system_part
    device = target.processor_spec if part is None else part.device
    has = device.stem if isinstance(device, Gpu) else None
    if has != owned and not isinstance(device, MeasuredMachine):  # which may not name its device
        allowed = f"the price of this hardware: {price.instance} has {owned or 'no GPU'}, the hardware {has or 'none'}"
        raise ArgumentError("price", price.stem or price.name, allowed)
    check_processors(target, price)


def _laid_out(p: Prediction, *, layouts: str) -> tuple[Prediction, str | None]:
    """Return the prediction of the best layout on the same devices and that layout in words, if one is searched.

    The search keeps the layout arguments that the job states. If nothing fits, it gives the layout of least memory.
    """
    from perfmodel.planning.search.of_job import search_of_job, text_of, why_not_searched

    is_wanted = layouts == ALWAYS or (layouts == WHEN_NEEDED and p.memory.fits is False)
    if not is_wanted or why_not_searched(p):
        return p, None
    try:
        search = search_of_job(p, keeps_layout=True)
    except ArgumentError:  # the stated arguments allow no layout
        return p, None
    layout = search.best if len(search) else search.smallest
    return (p, None) if layout is None else (layout.prediction, text_of(layout.job))
