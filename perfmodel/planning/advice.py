"""advise(): single changes to a job, ranked by gain."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack

from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError, PerfmodelError
from perfmodel.planning.changes import ARCHITECTURE_CHANGES, CHANGES, Change, NotApplicableError, Situation
from perfmodel.planning.changes.arguments import foreign_library
from perfmodel.planning.comparison import Comparison, compare, signed_seconds_text
from perfmodel.planning.sweeps.results import common_part
from perfmodel.prediction.arguments.checks import one_of
from perfmodel.prediction.arguments.verbs import gated
from perfmodel.prediction.job.job import Job
from perfmodel.prediction.predict import predict
from perfmodel.prediction.words.prediction_text import configuration, fit_sentence, title
from perfmodel.presentation.quantities import counted, percent_text, seconds_text
from perfmodel.presentation.results import WIDTH, Result, plain
from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph
    from perfmodel.measurements.table import Run
    from perfmodel.prediction.arguments.typed import JobArguments
    from perfmodel.prediction.prediction import Prediction

KINDS: Final = {**CHANGES, **ARCHITECTURE_CHANGES}
"""Kind -> the function that yields changes of that kind."""

HEADINGS: Final = {
    "samples_per_s": "throughput", "step_s": "step", "parameter_count": "parameters", "memory_bytes": "memory",
}  # fmt: skip
"""Heading of a column by field, if the two differ."""

NO_CHANGE: Final = 1e-9
"""Relative changes of throughput below this are rounding. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRow:
    """A change that can be made, with its gain."""

    kind: str
    change: str
    gain_samples_per_s: float
    speedup: float
    samples_per_s: float
    step_s: float
    bottleneck: str
    reason: str
    beware: str
    parameter_count: int
    memory_bytes: float
    fits: bool | None
    changes: Mapping[str, Any] = field(repr=False)
    graph: LayerGraph | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A job compared with others, as it is printed."""

    change: str
    parameter_count: int
    memory_bytes: float
    step_s: float
    samples_per_s: float
    fits: bool | None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A change that is impossible, or does not apply to the job; with figures if only memory is missing."""

    kind: str
    change: str
    reason: str
    parameter_count: int | None = None
    memory_bytes: float | None = None
    step_s: float | None = None
    samples_per_s: float | None = None

    fits: ClassVar[bool] = False


LAST_RESORTS: Final = {
    "framework": ("pytorch_1_0", "tensorflow_0_9", "tensorflow_1_1"),
    "sync": ("one_to_all",),
}
"""Values that stay in the rows but are never the best of their kind: newer versions and better algorithms exist."""


def _is_last_resort(row: AdviceRow) -> bool:
    return any(row.changes.get(name) in values for name, values in LAST_RESORTS.items())


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Advice(Result):
    """Single changes to a job by their gain. Made by :func:`perfmodel.advise`.

    Parameters
    ----------
    base : Prediction
        Prediction of the job as requested. [-]
    arguments : mapping of str to object
        Arguments of ``predict`` in the request. [unit of each argument]
    rows : Table of AdviceRow
        Possible changes, the largest gain first; those that slow the job down come last. [-]
    rejected : Table of Rejected
        Impossible changes, with the reason. [-]
    """

    base: Prediction
    arguments: Mapping[str, Any]
    rows: Table[AdviceRow]
    rejected: Table[Rejected]

    @derived_property
    def best_of_each_kind(self) -> Table[AdviceRow]:
        """The best change of each kind, the largest gain first. [-]"""
        best: dict[str, AdviceRow] = {}
        for row in sorted(self.rows, key=_is_last_resort):  # stable: by gain, last resorts last
            best.setdefault(row.kind, row)
        best = dict(sorted(best.items(), key=lambda entry: -round(entry[1].speedup, 9)))
        return Table(best.values(), row_type=AdviceRow)

    @derived_property
    def side_by_side(self) -> Table[Alternative]:
        """Parameters, memory and time of the job and of every change that can be timed, even if memory is short. [-]"""
        names = [field.name for field in fields(Alternative)]
        timed = [*self.rows, *(row for row in self.rejected if row.memory_bytes is not None)]
        alternatives = [Alternative(**{name: getattr(row, name) for name in names}) for row in timed]
        alternatives.insert(0, Alternative(change="as it is", fits=self.base.memory.fits, **_figures(self.base)))
        return Table(alternatives, title="side by side", headings=HEADINGS, row_type=Alternative)

    def arguments_with(self, row: AdviceRow) -> dict[str, Any]:
        """Return all arguments of ``predict`` for one change.

        Parameters
        ----------
        row : AdviceRow
            One of ``rows``. [-]

        Returns
        -------
        dict of str to object
            For ``predict(graph, **arguments)``; kind ``architecture`` needs the row's graph. [unit of each argument]

        Raises
        ------
        ArgumentError
            If it is not one of ``rows``.
        """
        if not isinstance(row, AdviceRow):
            raise ArgumentError("row", row, "one of rows; rejected changes cannot be predicted")
        return {**self.arguments, **row.changes}

    def __repr__(self) -> str:
        return f"<Advice: {len(self.rows)} changes of {self.base!r}, {len(self.rejected)} impossible>"

    def __str__(self) -> str:
        return report(self)

    def _repr_html_(self) -> str:
        table, lines = _blocks(self, None)
        below = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
        heading = html.escape(" ".join(_heading(self)))
        beside = self.side_by_side.to_html() if _has_architectures(self) else ""
        return f"<div><p><b>{heading}</b></p>{beside}{table.to_html()}<ul>{below}</ul></div>"

    def to_dict(self) -> dict[str, Any]:
        """Return the job, all rows and all rejected changes as plain values, devices and systems by name. [s]"""
        return {
            "job": plain(self.arguments, as_argument=True),
            "step_s": self.base.step_s,
            "samples_per_s": self.base.samples_per_s,
            "bottleneck": self.base.bottleneck,
            "fits": self.base.memory.fits,
            "rows": [
                row
                | {
                    "changes": {k: plain(v, as_argument=True) for k, v in row["changes"].items()},
                    "graph": row["graph"] and row["graph"].name,
                }
                for row in self.rows.to_dicts()
            ],
            "rejected": self.rejected.to_dicts(),
        }


def _figures(p: Prediction) -> dict[str, Any]:
    """Parameters, memory and time of a job, for comparison with others."""
    return {
        "parameter_count": p.job.subject.graph.parameter_count,
        "memory_bytes": p.memory.total_bytes,
        "step_s": p.step_s,
        "samples_per_s": p.samples_per_s,
    }


def _reason(c: Comparison) -> str:
    """Name the part of the step that explains most of the change, and the bottleneck after it."""
    total, second = c.total, c.second.bottleneck
    bound = f"{second} still bounds it" if second == c.first.bottleneck else f"{second} bounds it now"
    if abs(total.change_s) <= NO_CHANGE * total.first_s:
        fell, rose = min(c.terms, key=lambda row: row.change_s), max(c.terms, key=lambda row: row.change_s)
        if rose.change_s <= NO_CHANGE * total.first_s:
            return "no part of the step changes: what this speeds up is hidden, or not used"
        changes = f"{fell.meaning} {signed_seconds_text(fell.change_s)} a {c.per}"
        return f"{changes}, all taken up by {rose.meaning}; {bound}"
    most = c.main_term
    share = percent_text(abs(most.change_s) / total.first_s)
    return f"{most.meaning} {signed_seconds_text(most.change_s)} a {c.per} ({share} of it); {bound}"


def _beware(base: Prediction, changed: Prediction, change: Change) -> str:
    """List the side effects of a change, and the assumptions behind it."""
    warnings = [change.presumes] if change.presumes else []
    if changed.framework != base.framework and "framework" not in change.changes:
        warnings.append(f"it runs with {changed.framework}, not {base.framework}")
    if changed.samples_per_update != base.samples_per_update:
        warnings.append(f"an update is of {changed.samples_per_update:,} samples, not {base.samples_per_update:,}")
    missed, missed_before = (f"{p.mean_staleness:.3g}" for p in (changed, base))
    if missed != missed_before:  # a difference that the digits do not show is not reported
        warnings.append(f"a gradient misses {missed} updates, not {missed_before}")
    known = {*base.remarks, *_on_wiring(changed)}
    warnings += [remark for remark in changed.remarks if remark not in known]
    return "; ".join(warnings)


def _on_wiring(p: Prediction) -> tuple[str, ...]:
    """Return remarks on the links of a system; a change of links states them itself."""
    part = p.basis.prepared.target.system_part
    return () if part is None else part.system.remarks


def _tried(now: Situation, kind: str, change: Change) -> AdviceRow | Rejected:
    """Predict the job with a change; return its gain, or the reason why it is impossible."""
    try:
        job = now.job.replace(**change.changes)
        changed = (job if change.graph is None else Job(change.graph, **job.asked)).predict()
    except PerfmodelError as error:
        return Rejected(kind, change.what, str(error))
    foreign = foreign_library(changed, now.libraries)
    if foreign and not foreign_library(now.base, now.libraries):
        return Rejected(kind, change.what, foreign)
    known = now.base.basis.prepared.shortfalls
    beyond = [line for line in changed.basis.prepared.shortfalls if line not in known]
    if beyond:
        return Rejected(kind, change.what, "; ".join(beyond))
    if changed.memory.fits is False:
        return Rejected(kind, change.what, fit_sentence(changed), **_figures(changed))
    gain = changed.samples_per_s - now.base.samples_per_s
    return AdviceRow(
        kind=kind,
        change=change.what,
        gain_samples_per_s=gain,
        speedup=changed.samples_per_s / now.base.samples_per_s,
        bottleneck=changed.bottleneck,
        reason=_reason(compare(now.base, changed)),
        beware=_beware(now.base, changed, change),
        **_figures(changed),
        fits=changed.memory.fits,
        changes=dict(change.changes),
        graph=change.graph,
    )


def _tried_of_kind(now: Situation, kind: str) -> Iterator[AdviceRow | Rejected]:
    """Try every change of a kind; if the kind does not apply, yield the reason."""
    try:
        for change in KINDS[kind](now):
            if change.graph is not None or any(now[name] != value for name, value in change.changes.items()):
                yield _tried(now, kind, change)
    except (NotApplicableError, PerfmodelError) as error:
        yield Rejected(kind, "", str(error))


@gated
def advise(
    graph: LayerGraph | Run, *, kinds: str | Iterable[str] | None = None, **arguments: Unpack[JobArguments]
) -> Advice:
    """Rank single changes to a job by their gain.

    Parameters
    ----------
    graph : LayerGraph or Run
        A network, or a Run of a measurement table. [-]
    kinds : str, iterable of str or None
        Kinds of change to try, keys of ``perfmodel.planning.changes.CHANGES``; None for all of these. ``architecture``,
        where it is named, tries networks of other depths and shapes with as many parameters or FLOP. [-]
    **arguments : object
        Arguments of :func:`perfmodel.predict`: the job as it is. [unit of each argument]

    Returns
    -------
    Advice
        ``rows`` by gain in samples per second, each with its reason and the arguments that it changes, and
        ``rejected`` with reasons; prints, ``to_frame()``, ``to_dict()``. [samples/s]

    Raises
    ------
    UnknownNameError
        If there is no such kind, or ``predict`` has no such argument; names the nearest.
    ArgumentError
        If ``predict`` rejects the job itself.

    Notes
    -----
    Valid for: as :func:`perfmodel.predict`. A gain is ``predict`` with the change minus ``predict`` without it, in
    samples per second: the same loss may take more samples with larger updates, staler gradients or a narrower type.
    Ignores: prices, other optimizers (a different training run), and that several changes together may gain more or
    less than their sum.

    Examples
    --------
    >>> import perfmodel as pm
    >>> job = {"batch_size": 64, "system": "survey_fig5", "workers": 4, "sync": "parameter_server"}
    >>> best = pm.advise(pm.zoo.alexnet(), kinds=["sync", "prefetch"], **job).rows[0]
    >>> best.kind, round(best.speedup, 1)
    ('sync', 2.4)
    """
    if not isinstance(kinds, str | Iterable | None):
        raise ArgumentError("kinds", kinds, f"some of {', '.join(KINDS)}; or None for all that keep the network")
    names = [kinds] if isinstance(kinds, str) else list(CHANGES if kinds is None else kinds)
    wanted = list(dict.fromkeys(one_of("kind", name, tuple(KINDS)) for name in names))
    if not wanted:
        raise ArgumentError("kinds", kinds, "must have at least one kind, or be None for all")
    now = Situation(base=predict(graph, **arguments))
    tried = [outcome for kind in wanted for outcome in _tried_of_kind(now, kind)]
    rows = [outcome for outcome in tried if isinstance(outcome, AdviceRow)]
    rows.sort(key=lambda row: -round(row.speedup, 9))  # equal gains stay in the order in which they were tried
    return Advice(
        base=now.base,
        arguments=dict(arguments),
        rows=Table(rows, row_type=AdviceRow),
        rejected=Table([outcome for outcome in tried if isinstance(outcome, Rejected)], row_type=Rejected),
    )


SLIGHT: Final = 1.005
"""Smallest speed-up worth a row. [1]"""


REASON_LETTERS: Final = 160
"""Longest reason that is printed, in letters. [1]"""

NO_ROOM: Final = "It does not fit"
"""Start of the reason of a job without enough memory."""


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A change as it is printed."""

    change: str
    speedup: str
    samples_per_s: float
    step_s: float
    why: str


def _heading(a: Advice) -> list[str]:
    p = a.base
    job = f"{title(p)} ({configuration(p)}): {p.samples_per_s:,.4g} samples/s, {seconds_text(p.step_s)} a step, "
    lines = [f"{job}bottleneck {p.bottleneck}"]
    if p.memory.fits is False:
        lines.append(f"{fit_sentence(p)} Gains are relative to the time that it would take.")
    return lines


def _is_worth_showing(a: Advice, row: AdviceRow) -> bool:
    """Tell whether a change gains something, or makes a job fit into memory."""
    return row.speedup >= SLIGHT or a.base.memory.fits is False


def _equally_fast(a: Advice, shown: Iterable[AdviceRow]) -> list[str]:
    """List the changes of a kind that gain as much as the one shown."""
    lines, listed = [], list(shown)
    for row in listed:
        others = [
            other.change
            for other in a.rows
            if other.kind == row.kind and other not in listed and abs(other.speedup / row.speedup - 1) <= NO_CHANGE
        ]
        lines += [f"as fast as {row.change}: {', '.join(others)}"] if others else []
    return lines


def _little_gains(a: Advice) -> list[str]:
    """List the kinds whose best change gains too little for a row, grouped by reason."""
    reasons: dict[str, list[AdviceRow]] = {}
    for row in a.best_of_each_kind:
        if not _is_worth_showing(a, row):
            reasons.setdefault(row.reason, []).append(row)
    changes = {
        reason: "; ".join(f"{row.kind} ({row.change}: {row.speedup:.3f})" for row in rows)
        for reason, rows in reasons.items()
    }
    return [f"gains little or nothing: {which}: {reason}" for reason, which in changes.items()]


def _rejections(a: Advice) -> list[str]:
    """List the impossible changes, grouped by reason; ``rejected`` has every reason in full."""
    reasons: dict[str, list[Rejected]] = {}
    for entry in a.rejected:
        argument, refused, why = entry.reason.partition(" must be ")
        same = f"{argument} {why.rpartition('(got ')[2]}" if refused else entry.reason
        key = NO_ROOM if entry.reason.startswith(NO_ROOM) else common_part(entry.reason) or same
        reasons.setdefault(key, []).append(entry)
    lines, without_effect = [], []
    for key, entries in reasons.items():
        named = [entry for entry in entries if entry.kind in ARCHITECTURE_CHANGES and not entry.change]
        lines += [f"{entry.kind} {entry.reason}" for entry in named]  # tried only where it was asked for
        entries = [entry for entry in entries if entry not in named]
        if not any(entry.change for entry in entries):
            without_effect += [entry.kind for entry in entries]
            continue
        which = ", ".join(entry.change or entry.kind for entry in entries)
        common = key if key == NO_ROOM else common_part(entries[0].reason) if len(entries) > 1 else ""
        reason = common or textwrap.shorten(entries[0].reason, REASON_LETTERS, placeholder=" ...")
        lines.append(f"impossible: {which}: {reason}")
    if without_effect:
        lines.append(f"do not apply to this job, or not in every value: {', '.join(without_effect)}")
    return lines


def _has_architectures(a: Advice) -> bool:
    """Tell whether a change is another network, so that parameters differ."""
    return any(row.kind in ARCHITECTURE_CHANGES for row in a.rows) or any(
        entry.kind in ARCHITECTURE_CHANGES and entry.memory_bytes is not None for entry in a.rejected
    )


def _blocks(a: Advice, shown: int | None) -> tuple[Table[ShownRow], list[str]]:
    """Return the table of changes that gain something, and the lines below it."""
    candidates = a.best_of_each_kind if shown is None else a.rows[:shown]
    good = [row for row in candidates if _is_worth_showing(a, row)]
    heading = "the best change of each kind" if shown is None else f"the {len(good)} best changes"
    rows = [ShownRow(row.change, f"{row.speedup:.3f}", row.samples_per_s, row.step_s, row.reason) for row in good]
    table = Table(rows, title=heading, headings=HEADINGS, row_type=ShownRow)
    lines = [f"beware of {row.change}: {row.beware}" for row in good if row.beware]
    lines += [*_equally_fast(a, good), *_little_gains(a)]
    faster = sum(row.speedup >= SLIGHT for row in a.rows)
    counts = f"{counted(len(a.rows), 'possible change')} tried, {faster} of them faster, {len(a.rejected)} impossible"
    return table, [*lines, *_rejections(a), f"{counts}; .rows and .rejected have all"]


def report(a: Advice, *, shown: int | None = None) -> str:
    """Return the text that ``print(advice)`` shows."""
    table, lines = _blocks(a, shown)
    below = "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines)
    beside = [a.side_by_side.to_text()] if _has_architectures(a) else []
    return "\n\n".join(["\n".join(_heading(a)), *beside, table.to_text(), below])
