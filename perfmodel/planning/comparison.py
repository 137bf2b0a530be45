"""compare(): why two predictions differ, term by term."""

from __future__ import annotations

import html
import textwrap
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError
from perfmodel.prediction.arguments.checks import one_of
from perfmodel.prediction.arguments.table import ARGUMENTS
from perfmodel.prediction.arguments.verbs import gated
from perfmodel.prediction.job.agreement_options import TAKEN_BY, WITH_SERVER
from perfmodel.prediction.prediction import Prediction
from perfmodel.prediction.words.prediction_text import (
    PART_NAMES,
    configuration,
    first_sentences,
    memory_contents,
    part_names,
    title,
)
from perfmodel.presentation.quantities import cell_text, counted, percent_text, quantity_text, scale_of, seconds_text
from perfmodel.presentation.results import WIDTH, Drawn, plain
from perfmodel.presentation.tables import Table
from perfmodel.records import Phase

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perfmodel.graph import LayerGraph
    from perfmodel.prediction.job.job import Job

PER: Final = ("step", "sample")
"""Units that a comparison's seconds refer to."""


@dataclass(frozen=True, slots=True)
class TermChange:
    """One part of the step in both predictions."""

    term: str
    meaning: str
    first_s: float
    second_s: float
    change_s: float


@dataclass(frozen=True, slots=True)
class LayerChange:
    """One operation in both predictions."""

    layer: str
    phase: str
    role: str
    first_kernel: str | None
    second_kernel: str | None
    first_s: float
    second_s: float
    change_s: float


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """One kind of memory content in both predictions."""

    holds: str
    first_bytes: float
    second_bytes: float
    change_bytes: float


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Comparison(Drawn):
    """Why two predictions differ. Made by :func:`perfmodel.compare`.

    Parameters
    ----------
    first, second : Prediction
        Predictions to compare; changes are second minus first. [-]
    per : str
        Whether seconds are per ``step``, or per ``sample``: a step divided by all samples that it processes. [-]
    """

    first: Prediction
    second: Prediction
    per: str

    def _divisor(self, p: Prediction) -> float:
        return float(p.counted_workers * p.batch_size) if self.per == "sample" else 1.0

    def _change(self, term: str, meaning: str, first_s: float, second_s: float) -> TermChange:
        return TermChange(term, meaning, first_s, second_s, second_s - first_s)

    @property
    def rows(self) -> Table[TermChange]:
        """Same as ``terms``."""
        return self.terms

    @derived_property
    def terms(self) -> Table[TermChange]:
        """Every exclusive part of the step; their changes add up to the change of the step. [s]"""
        first, second = self.first.breakdown, self.second.breakdown
        first_divisor, second_divisor = self._divisor(self.first), self._divisor(self.second)
        # if only one prediction has a special name for a part, both use it
        names = {**part_names(self.first), **{k: v for k, v in part_names(self.second).items() if v != PART_NAMES[k]}}
        rows = [
            self._change(part, names[part], first[part] / first_divisor, second[part] / second_divisor)
            for part in first
        ]
        return Table(rows)

    @property
    def total(self) -> TermChange:
        """The whole step in both predictions. [s]"""
        first_s, second_s = (p.step_s / self._divisor(p) for p in (self.first, self.second))
        return self._change("step_s", self.per, first_s, second_s)

    @property
    def ratio(self) -> float:
        """Time of the second divided by that of the first, per step or per sample. [1]"""
        return self.total.second_s / self.total.first_s

    @derived_property
    def layers(self) -> Table[LayerChange]:
        """Every operation of either prediction, largest change first. [s]"""
        operations: list[dict[tuple[Any, ...], tuple[str, float]]] = []
        for p in (self.first, self.second):
            kernels: dict[tuple[Any, ...], tuple[str, float]] = {}
            counts: dict[tuple[str, str, str], int] = defaultdict(int)
            for row in p.layers:
                if row.phase == Phase.UPDATE.value and not p.breakdown["update_s"]:
                    continue  # a server's operation, counted in the server's time
                key = (row.layer, row.phase, row.role)
                kernels[*key, counts[key]] = (row.kernel, row.seconds / self._divisor(p))
                counts[key] += 1
            operations.append(kernels)
        rows = []
        for key in dict.fromkeys([*operations[0], *operations[1]]):
            (kernel, seconds), (other, other_s) = (kernels.get(key, (None, 0.0)) for kernels in operations)
            rows.append(LayerChange(*key[:3], kernel, other, seconds, other_s, other_s - seconds))
        rows.sort(key=lambda row: -abs(row.change_s))
        return Table(rows, row_type=LayerChange)

    @derived_property
    def memory(self) -> Table[MemoryChange]:
        """Memory of both predictions, by content and in total. [B]"""
        rows = []
        contents = [{**memory_contents(p), "total": float(p.memory.total_bytes)} for p in (self.first, self.second)]
        for name, first_bytes in contents[0].items():
            second_bytes = contents[1][name]
            rows.append(MemoryChange(name, first_bytes, second_bytes, second_bytes - first_bytes))
        return Table(rows)

    @derived_property
    def inputs(self) -> Table[InputChange]:
        """Inputs that differ between the predictions, down to single numbers of spec files. [-]"""
        return Table(input_changes(self.first, self.second), row_type=InputChange)

    @property
    def main_term(self) -> TermChange:
        """The part of the step that contributes most to the change of the whole. [-]"""
        return max(self.terms, key=lambda row: row.change_s if self.total.change_s > 0 else -row.change_s)

    @property
    def verdict(self) -> str:
        """Two sentences: how much faster or slower the second is, and which part contributes most. [-]"""
        total = self.total
        if not total.change_s:
            return f"Both take {seconds_text(total.first_s)} a {self.per}."
        times = f"{1 / self.ratio:.4g} times as fast" if self.ratio < 1 else f"{self.ratio:.4g} times as long"
        most = self.main_term
        return (
            f"From {seconds_text(total.first_s)} to {seconds_text(total.second_s)} a {self.per}: {times}. Most of the "
            f"change of {signed_seconds_text(total.change_s)} is {most.meaning}: {signed_seconds_text(most.change_s)} "
            f"({percent_text(most.change_s / total.change_s)})."
        )

    def __repr__(self) -> str:
        return f"<Comparison {title(self.first)} and {title(self.second)}: {self.verdict}>"

    def __str__(self) -> str:
        tables = [table.to_text(columns=columns) for table, columns in _tables(self)]
        return "\n\n".join([*_first_lines(self), _heading(self), self.verdict, *tables])

    def _repr_html_(self) -> str:
        heading = html.escape(_heading(self)).replace("\n", "<br>")
        columns = "".join(
            f'<div style="margin-right:2em">{table.to_html(columns=columns)}</div>' for table, columns in _tables(self)
        )
        first = "".join(f"<p><b>{html.escape(line)}</b></p>" for line in _first_lines(self))
        return (
            f"<div>{first}<p><b>{heading}</b></p><p>{html.escape(self.verdict)}</p>"
            f'<div style="display:flex;flex-wrap:wrap;align-items:flex-start">{columns}</div></div>'
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values: verdict, inputs, terms, layers and memory. [s, B]"""
        return {
            "first": title(self.first),
            "second": title(self.second),
            "per": self.per,
            "ratio": self.ratio,
            "verdict": self.verdict,
            "inputs": [plain(row, as_argument=True) for row in self.inputs.to_dicts()],
            "terms": self.terms.to_dicts(),
            "total": {field.name: getattr(self.total, field.name) for field in fields(self.total)},
            "layers": self.layers.to_dicts(),
            "memory": self.memory.to_dicts(),
        }

    def _figure(self) -> Figure:
        """Draw a waterfall from the first to the second, a bar for each part that changed."""
        from perfmodel.presentation.figures import waterfall

        return waterfall(
            self.total.first_s,
            {row.meaning: row.change_s for row in self.terms if row.change_s},
            ends=(f"first, a {self.per}", f"second, a {self.per}"),
            title=f"{_heading(self)}\n{self.verdict.partition('. ')[0]}",
        )


@gated
def compare(first: Prediction, second: Prediction, *, per: str | None = None) -> Comparison:
    """Explain why two predictions differ: inputs, parts of the step, operations, memory.

    Parameters
    ----------
    first, second : Prediction
        From :func:`perfmodel.predict`; changes are second minus first. [-]
    per : str or None
        ``step`` or ``sample``, the time of a step divided by the samples of all its workers. None means ``step`` if
        both have equally many samples in a step, else ``sample``. [-]

    Returns
    -------
    Comparison
        ``terms`` whose changes add up to that of the step, ``layers``, ``memory``, ``inputs``; prints, ``plot()``,
        ``to_frame()``, ``to_dict()``. [s, B]

    Raises
    ------
    ArgumentError
        If one of them is not a prediction.
    UnknownNameError
        If ``per`` is neither.

    Notes
    -----
    Valid for: any two predictions, even of different networks: operations are matched by layer, phase and role.
    Ignores: the uncertainty of both (``interval_s`` of each).

    Examples
    --------
    >>> import perfmodel as pm
    >>> first, second = (pm.predict(pm.zoo.vgg16(), batch_size=16, device=name) for name in ("gtx_980", "gtx_1080"))
    >>> c = pm.compare(first, second)
    >>> round(sum(row.change_s for row in c.terms) - (second.step_s - first.step_s), 12)
    0.0
    """
    for name, prediction in (("first", first), ("second", second)):
        if not isinstance(prediction, Prediction):
            raise ArgumentError(name, prediction, "a Prediction, as predict() returns it")
    if per is None:
        samples = [p.counted_workers * p.batch_size for p in (first, second)]
        per = "step" if samples[0] == samples[1] else "sample"
    return Comparison(first=first, second=second, per=one_of("per", per, PER))


LAYERS_SHOWN: Final = 8
"""Number of operations that are printed; ``layers`` has all. [1]"""

SECONDS: Final = {"first_s": "first", "second_s": "second", "change_s": "change"}
"""Heading of each column of seconds."""

BYTES: Final = {"first_bytes": "first", "second_bytes": "second", "change_bytes": "change"}
"""Heading of each column of bytes."""

KERNELS: Final = {"first_kernel": "first kernel", "second_kernel": "second kernel"}
"""Heading of each column of names."""


def _first_lines(c: Comparison) -> list[str]:
    """Say which of the two is impossible, and what their frameworks cannot do; what holds for both is said once."""
    first, second = first_sentences(c.first), first_sentences(c.second)
    owners = {line: "both" if line in second else "first" for line in first}
    owners |= {line: "second" for line in second if line not in owners}
    return [textwrap.fill(f"{owner}: {line}", WIDTH, subsequent_indent="  ") for line, owner in owners.items()]


def _heading(c: Comparison) -> str:
    both = (("first", c.first), ("second", c.second))
    return "\n".join(f"{which}: {title(p)} ({configuration(p)})" for which, p in both)


MOST_LETTERS: Final = 48
"""Longest value of an input that is printed; ``inputs`` has every value in full. [1]"""


def _input_text(change: InputChange, value: Any) -> str:
    """Write a value with the unit that its argument's name implies; count what tables and long lists hold."""
    if isinstance(value, Mapping):
        return counted(sum(entry is not None for entry in value.values()), "field")
    scale = None if ":" in change.input else scale_of(change.input)
    text = cell_text(value) if scale is None or not isinstance(value, float) else quantity_text(value, scale)
    if len(text) > MOST_LETTERS and isinstance(value, tuple | list):
        return counted(len(value), "value")
    return textwrap.shorten(text, MOST_LETTERS, placeholder=" ...")


def _tables(c: Comparison) -> list[tuple[Table[Any], list[str]]]:
    """Return the tables to print, with the columns of each."""
    texts = [InputChange(row.input, _input_text(row, row.first), _input_text(row, row.second)) for row in c.inputs]
    spent = [row for row in c.terms if row.first_s or row.second_s]
    where = {"meaning": f"where the time of a {c.per} goes"} | SECONDS
    changed = [row for row in c.layers if row.change_s]
    longest = f"the {min(LAYERS_SHOWN, len(changed))} largest of {len(changed)} changes of operations"
    kept = [row for row in c.memory if row.first_bytes or row.second_bytes]
    inputs = (Table(texts, title="inputs that differ", row_type=InputChange), ["input", "first", "second"])
    tables: list[tuple[Table[Any], list[str]]] = [
        *([inputs] if texts else []),
        (Table([*spent, c.total], headings=where, one_unit=tuple(SECONDS)), ["meaning", *SECONDS]),
        (
            Table(
                changed[:LAYERS_SHOWN],
                title=longest,
                headings=SECONDS | KERNELS,
                row_type=c.layers.row_type,
                one_unit=tuple(SECONDS),
            ),
            ["layer", "phase", "role", *KERNELS, *SECONDS],
        ),
        (Table(kept, headings={"holds": "memory"} | BYTES, one_unit=tuple(BYTES)), ["holds", *BYTES]),
    ]
    return tables if changed else [table for table in tables if "role" not in table[1]]


@dataclass(frozen=True, slots=True)
class InputChange:
    """One input in which the predictions differ."""

    input: str
    first: Any
    second: Any


def input_changes(first: Prediction, second: Prediction) -> list[InputChange]:
    """Return the inputs in which two predictions differ."""
    facts = [_facts(p) for p in (first, second)]
    rows = [InputChange(name, value, facts[1][name]) for name, value in facts[0].items()]
    jobs = [p.basis.job for p in (first, second)]
    if jobs[0] is not None and jobs[1] is not None:
        asked = _argument_changes(jobs[0], jobs[1])
        rows = [row for row in rows if row.input not in {change.input for change in asked}] + asked
    specs = [{(type(spec), spec.name): spec for spec in p.sources} for p in (first, second)]
    for key, spec in specs[0].items():
        if key in specs[1] and specs[1][key] is not spec:
            rows += _field_changes(key[1], spec.model_dump(), specs[1][key].model_dump())
    rows += _changes_of_renamed(*specs)
    return [row for row in rows if row.first != row.second]


MOST_FIELDS: Final = 12
"""Most differences listed between files of two names; with more, one file is no copy of the other. [1]"""


def _changes_of_renamed(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> list[InputChange]:
    """Return the fields in which a file differs from its copy under another name."""
    rows: list[InputChange] = []
    alone = [{key: spec for key, spec in one.items() if key not in other} for one, other in
             ((first, second), (second, first))]  # fmt: skip
    for kind in {kind for kind, _ in alone[0]}:
        pair = [[spec for (other, _), spec in specs.items() if other is kind] for specs in alone]
        if [len(specs) for specs in pair] != [1, 1]:
            continue
        fields_of = [spec.model_dump(exclude={"name", "source", "note"}) for (spec,) in pair]
        changed = _field_changes(pair[0][0].name, *fields_of)
        changed = [row for row in changed if row.first != row.second]
        rows += changed if len(changed) <= MOST_FIELDS else []
    return rows


def _facts(p: Prediction) -> dict[str, Any]:
    """Return the facts that a prediction states about its network and target."""
    job = p.basis.job
    return {
        "network": p.subject,
        "parameter_count": None if job is None else job.subject.graph.parameter_count,
        **_storage_of_weights(p.basis.prepared.subject.graph),
        "target": p.target,
        "peak_flop_per_s": float(p.peak_flop_per_s),
        "memory_bandwidth_bytes_per_s": p.memory_bandwidth_bytes_per_s,
        "memory_capacity_bytes": float(p.memory.capacity_bytes),
    }


WEIGHTS_STORED: Final = {"weight_dtype": "weight_dtype", "density": "density", "pattern": "sparsity"}
"""Input of a comparison -> the field of a layer's usage that it stands for."""


def _storage_of_weights(graph: LayerGraph) -> dict[str, str]:
    """Storage of the weights of products, by field; where layers differ, each value with its number of layers."""
    usages = {node.name: node.usage for node in graph.layers}
    stored = [usages[name] for name in graph.weighted_layers]
    facts = {}
    for name, field in WEIGHTS_STORED.items():
        counts = Counter(cell_text(getattr(usage, field)) for usage in stored)
        if len(counts) == 1:
            facts[name] = next(iter(counts))
            continue
        facts[name] = ", ".join(f"{text} ({counted(count, 'layer')})" for text, count in counts.items())
    return facts


def _argument_changes(first: Job, second: Job) -> list[InputChange]:
    both_agree = all(
        Phase.BACKWARD in job.subject.phase.parts and (job.workers * job.context_size > 1 or job.sync in WITH_SERVER)
        for job in (first, second)
    )
    rows = []
    for name, row in ARGUMENTS.items():
        if row.group == "exchange" and not both_agree:
            continue
        values = [getattr(job, name) if row.means is None else row.means(job) for job in (first, second)]
        values = [getattr(value, "name", value) for value in values]  # an object made from a spec file
        if values[0] != values[1]:
            takers = [TAKEN_BY.get(name, (job.sync,)) for job in (first, second)]
            shown = (
                value if job.sync in taken else None
                for job, value, taken in zip((first, second), values, takers, strict=True)
            )
            rows.append(InputChange(name, *shown))
    return rows


def _field_changes(name: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> list[InputChange]:
    """Return the fields in which two tables of a spec file differ, nested ones by their path."""
    rows = []
    for key in dict.fromkeys([*first, *second]):
        first_value, second_value = first.get(key), second.get(key)
        path = f"{name}.{key}" if ":" in name else f"{name}: {key}"
        if isinstance(first_value, Mapping) and isinstance(second_value, Mapping):
            rows += _field_changes(path, first_value, second_value)
        else:
            rows.append(InputChange(path, first_value, second_value))
    return rows


def signed_seconds_text(seconds: float) -> str:
    """Write a change of time with its sign.

    >>> signed_seconds_text(-0.0125), signed_seconds_text(2.0)
    ('-12.50 ms', '+2.000 s')
    """
    return f"{'-' if seconds < 0 else '+'}{seconds_text(abs(seconds))}"
