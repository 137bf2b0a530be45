"""compare(): why two predictions differ, term by term."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import ArgumentError
from perfmodel.planning.asked_differently import InputChange, input_changes
from perfmodel.planning.wording import plain
from perfmodel.prediction.arguments.checks import one_of
from perfmodel.prediction.prediction import Prediction
from perfmodel.prediction.report import PART_NAMES, memory_contents, part_names, title
from perfmodel.presentation.tables import Table
from perfmodel.records import Phase

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PER: Final = ("step", "sample")
"""What the seconds of a comparison are of."""


@dataclass(frozen=True, slots=True)
class TermChange:
    """One part of the step in both predictions.

    Parameters
    ----------
    term : str
        Field of ``StepTime``, or ``step_s`` for their sum. [-]
    meaning : str
        What the time is spent on. [-]
    first_s, second_s : float
        How long, of a step or of a sample. [s]
    change_s : float
        Second minus first. [s]
    """

    term: str
    meaning: str
    first_s: float
    second_s: float
    change_s: float


@dataclass(frozen=True, slots=True)
class LayerChange:
    """One operation in both predictions.

    Parameters
    ----------
    layer, phase, role : str
        Which one. [-]
    first_kernel, second_kernel : str or None
        What was chosen for it; None where that prediction has no such operation. [-]
    first_s, second_s : float
        Kernel time and launch gaps, of a step or of a sample. [s]
    change_s : float
        Second minus first. [s]
    """

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
    """One kind of content of the memory in both predictions.

    Parameters
    ----------
    holds : str
        What is kept. [-]
    first_bytes, second_bytes : float
        How much. [B]
    change_bytes : float
        Second minus first. [B]
    """

    holds: str
    first_bytes: float
    second_bytes: float
    change_bytes: float


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Comparison:
    """Why two predictions differ. Made by :func:`perfmodel.compare`.

    Parameters
    ----------
    first, second : Prediction
        What is compared: changes are second minus first. [-]
    per : str
        Whether seconds are of a ``step``, or of a ``sample``: of a step over all samples that it lets through. [-]
    """

    first: Prediction
    second: Prediction
    per: str

    def _divisor(self, p: Prediction) -> float:
        return float(p.counted_workers * p.batch_size) if self.per == "sample" else 1.0

    def _change(self, term: str, meaning: str, first_s: float, second_s: float) -> TermChange:
        return TermChange(term, meaning, first_s, second_s, second_s - first_s)

    @cached_property
    def terms(self) -> Table[TermChange]:
        """Every exclusive part of the step; their changes sum to that of ``total``. [s]"""
        first, second = self.first.breakdown, self.second.breakdown
        own, other = self._divisor(self.first), self._divisor(self.second)
        # a name that only one prediction has for a part holds for both: the other has the usual one
        names = {**part_names(self.first), **{k: v for k, v in part_names(self.second).items() if v != PART_NAMES[k]}}
        rows = [self._change(part, names[part], first[part] / own, second[part] / other) for part in first]
        return Table(rows)

    @property
    def total(self) -> TermChange:
        """The whole step in both. [s]"""
        first_s, second_s = (p.step_s / self._divisor(p) for p in (self.first, self.second))
        return self._change("step_s", self.per, first_s, second_s)

    @property
    def ratio(self) -> float:
        """Time of the second over that of the first, of a step or of a sample. [1]"""
        return self.total.second_s / self.total.first_s

    @cached_property
    def layers(self) -> Table[LayerChange]:
        """Every operation of either prediction, the one whose time changed most first. [s]"""
        found: list[dict[tuple[Any, ...], tuple[str, float]]] = []
        for p in (self.first, self.second):
            own: dict[tuple[Any, ...], tuple[str, float]] = {}
            seen: dict[tuple[str, str, str], int] = defaultdict(int)
            for row in p.layers:
                if row.phase == Phase.UPDATE.value and not p.breakdown["update_s"]:
                    continue  # a server's, in its time
                key = (row.layer, row.phase, row.role)
                own[*key, seen[key]] = (row.kernel, row.seconds / self._divisor(p))
                seen[key] += 1
            found.append(own)
        rows = []
        for key in dict.fromkeys([*found[0], *found[1]]):
            (kernel, seconds), (other, other_s) = (own.get(key, (None, 0.0)) for own in found)
            rows.append(LayerChange(*key[:3], kernel, other, seconds, other_s, other_s - seconds))
        rows.sort(key=lambda row: -abs(row.change_s))
        return Table(rows, row_type=LayerChange)

    @cached_property
    def memory(self) -> Table[MemoryChange]:
        """What both keep in memory, kind by kind, and in all. [B]"""
        rows = []
        contents = [{**memory_contents(p), "total": float(p.memory.total_bytes)} for p in (self.first, self.second)]
        for name, first_bytes in contents[0].items():
            second_bytes = contents[1][name]
            rows.append(MemoryChange(name, first_bytes, second_bytes, second_bytes - first_bytes))
        return Table(rows)

    @cached_property
    def inputs(self) -> Table[InputChange]:
        """What was asked for differently, down to single numbers of spec files; none if nothing was. [-]"""
        return Table(input_changes(self.first, self.second), row_type=InputChange)

    @property
    def main_term(self) -> TermChange:
        """The part of the step that changed most the way the whole step did. [-]"""
        return max(self.terms, key=lambda row: row.change_s if self.total.change_s > 0 else -row.change_s)

    @property
    def verdict(self) -> str:
        """Two sentences: how much longer or shorter, and what makes up most of the change. [-]"""
        from perfmodel.planning.comparison_report import verdict

        return verdict(self)

    def __repr__(self) -> str:
        return f"<Comparison {title(self.first)} and {title(self.second)}: {self.verdict}>"

    def __str__(self) -> str:
        from perfmodel.planning.comparison_report import report

        return report(self)

    def _repr_html_(self) -> str:
        from perfmodel.planning.comparison_report import report_html

        return report_html(self)

    def to_frame(self) -> pd.DataFrame:
        """Return the terms, without their sum, as a pandas DataFrame; needs the extra ``frames``."""
        return self.terms.to_frame()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values: verdict, inputs, terms, layers and memory. [s, B]"""
        return {
            "first": title(self.first),
            "second": title(self.second),
            "per": self.per,
            "ratio": self.ratio,
            "verdict": self.verdict,
            "inputs": [plain(row) for row in self.inputs.to_dicts()],
            "terms": self.terms.to_dicts(),
            "total": {field.name: getattr(self.total, field.name) for field in fields(self.total)},
            "layers": self.layers.to_dicts(),
            "memory": self.memory.to_dicts(),
        }

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the way from the first to the second as a waterfall, a bar for each part that changed.

        Parameters
        ----------
        path : str, Path or None
            Where to save the picture; None only returns the figure. [-]

        Returns
        -------
        matplotlib.figure.Figure
            The picture. [-]
        """
        from perfmodel.planning.comparison_report import figure_of
        from perfmodel.presentation.figures import saved

        figure = figure_of(self)
        return saved(figure, path)


def compare(first: Prediction, second: Prediction, *, per: str | None = None) -> Comparison:
    """Say why two predictions differ: inputs, parts of the step, operations, memory.

    Parameters
    ----------
    first, second : Prediction
        From :func:`perfmodel.predict`; changes are second minus first. [-]
    per : str or None
        ``step`` or ``sample``; None for ``step`` where both take as many samples in one, else ``sample``: the time of
        a step over the samples of all its workers. [-]

    Returns
    -------
    Comparison
        ``terms`` whose changes sum to that of the step, ``layers``, ``memory``, ``inputs``; prints, ``plot()``,
        ``to_frame()``, ``to_dict()``. [s, B]

    Raises
    ------
    ArgumentError
        If one of them is no prediction.
    UnknownNameError
        If ``per`` is neither.

    Notes
    -----
    Valid for: any two predictions, also of different networks: operations are matched by layer, phase and role.
    Ignores: how uncertain both are (``interval_s`` of each).

    Examples
    --------
    >>> import perfmodel as pm
    >>> first, second = (pm.predict(pm.zoo.vgg16(), batch_size=16, device=name) for name in ("gtx_980", "gtx_1080"))
    >>> c = pm.compare(first, second)
    >>> round(sum(row.change_s for row in c.terms) - (second.step_s - first.step_s), 12)
    0.0
    """
    for name, given in (("first", first), ("second", second)):
        if not isinstance(given, Prediction):
            raise ArgumentError(name, given, "a Prediction, as predict() returns it")
    if per is None:
        samples = [p.counted_workers * p.batch_size for p in (first, second)]
        per = "step" if samples[0] == samples[1] else "sample"
    return Comparison(first=first, second=second, per=one_of("per", per, PER))
