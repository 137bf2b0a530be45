"""The gate of the verbs: kinds of values for arguments that are not in Job's table, checked before any work.

Ranges and names are the verb's own matter. A new argument of a verb needs one entry in ``KINDS``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

import numpy as np

from perfmodel.calls import check_call
from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.measurements.table import Run
from perfmodel.numeric import is_real
from perfmodel.plain_text import plain
from perfmodel.prediction.arguments.checks import bounded_entries, flag, has, whole_number
from perfmodel.prediction.arguments.finite import checked_answer
from perfmodel.prediction.arguments.table import Check, of_spec
from perfmodel.symbolic import is_symbolic

P = ParamSpec("P")
Answer = TypeVar("Answer")
Entry: TypeAlias = Callable[[str, Any], Any]

MOST_NUMBER: Final = 1e300
"""Largest finite number of an argument, so that sums and products of a few stay finite. [1]"""


def text(name: str, value: Any) -> str:
    """Check a text."""
    if not isinstance(value, str):
        raise ArgumentError(name, value, "a text")
    return plain(value)  # type: ignore[no-any-return]


def number(name: str, value: Any) -> Any:
    """Check a real number; it may be infinite, or NaN, which ranges exclude."""
    if not is_real(value):
        raise ArgumentError(name, value, "a number")
    if MOST_NUMBER < abs(value) < math.inf:
        raise ArgumentError(name, value, f"a number up to {MOST_NUMBER:g}")
    return value.item() if isinstance(value, np.generic) else value


def path(name: str, value: Any) -> Any:
    """Check a text or Path."""
    if not isinstance(value, str | Path):
        raise ArgumentError(name, value, "the path of a file or folder")
    return text(name, value) if isinstance(value, str) else value


def network(name: str, value: Any) -> Any:
    """Check a network, or a run of one."""
    if not isinstance(value, LayerGraph | Run):
        raise ArgumentError(name, value, "a LayerGraph (see pm.zoo) or a Run of a measurement table")
    return value


def table(name: str, value: Any) -> Any:
    """Check a measurement table, however it is given."""
    if not isinstance(value, str | Path) and not has(value, "columns") and not has(value, "rows"):
        raise ArgumentError(name, value, "a table's name, the path of a CSV, a MeasurementTable or a DataFrame")
    return text(name, value) if isinstance(value, str) else value


def _callable(name: str, value: Any) -> Any:
    if not callable(value) or isinstance(value, type):
        raise ArgumentError(name, value, "a function of the amount done and the total")
    return value


def _shown(name: str, value: Any) -> Any:
    return value if callable(value) and not isinstance(value, type) else flag(name, value)


def _symbol(name: str, value: Any) -> Any:
    if not is_symbolic(value) and not isinstance(value, str):
        raise ArgumentError(name, value, "at least one symbol, by name or as sympy's; predict() takes numbers alone")
    return value


def _mapping(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise ArgumentError(name, value, "a list of mappings of argument to value")
    for key in value:
        text(f"argument in {name}", key)
    return value


def _as_the_verb_says(name: str, value: Any) -> Any:
    del name
    return value


def _backend(name: str, value: Any) -> Any:
    return value if has(value, "benchmarks") else text(name, value)


def list_of(entry: Entry, *, or_one: bool = True) -> Check:
    """Make a check of a list, any collection or iterator, of entries that pass a check; or of one entry.

    >>> list_of(text)("columns", iter(["step_s"])), list_of(text)("columns", "step_s")
    (['step_s'], 'step_s')
    """

    def checked(name: str, value: Any) -> Any:
        is_one = isinstance(value, str | bytes | Path | Mapping | memoryview) or not isinstance(value, Iterable)
        if not is_one:
            return _entries(entry, name, value)
        if or_one:
            return entry(name, value)
        raise ArgumentError(name, value, "a list, one entry for each")

    return checked


def _entries(entry: Entry, name: str, value: Any) -> list[Any]:
    # Checked as they come: a list without an end whose first entry is wrong is refused at once.
    return [entry(name, item) for item in bounded_entries(name, value)]


def mapping_of(entry: Entry) -> Check:
    """Make a check of a mapping of texts to values that pass a check."""

    def checked(name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise ArgumentError(name, value, "a mapping of names to numbers, e.g. {'stages': 2}")
        return {text(f"key of {name}", key): entry(f"{name}[{key!r}]", item) for key, item in value.items()}

    return checked


def _price(name: str, value: Any) -> Any:
    return mapping_of(number)(name, value) if isinstance(value, Mapping) else number(name, value)


def _candidate(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _mapping(name, value)
    if not isinstance(value, str | Path) and not has(value, "usd_per_hour"):
        raise ArgumentError(name, value, "a list of prices, or of mappings with price= and hardware")
    return value


def _between(name: str, value: Any) -> tuple[float, float]:
    entries = list_of(number, or_one=False)(name, value)
    if len(entries) != 2:
        raise ArgumentError(name, value, "two numbers, the lowest and the highest")
    return entries[0], entries[1]


KINDS: Final[Mapping[str, Check]] = {
    **dict.fromkeys(("graph",), network),
    **dict.fromkeys(("quantity", "distribution", "objective", "reading", "per", "protocol", "only"), text),
    **dict.fromkeys(("target", "datasheet"), text),
    **dict.fromkeys(("columns", "kinds", "dtypes", "networks", "sync", "purchase"), list_of(text)),
    **dict.fromkeys(("validate.fit_share", "validate_live.device"), _as_the_verb_says),
    "advise.kinds": list_of(_as_the_verb_says),
    **dict.fromkeys(("system", "device", "link", "checkpoint_to", "dataset"), of_spec),
    **dict.fromkeys(("dataset_size", "limit", "instances", "device_count", "evaluate_every", "epochs"), whole_number),
    "validate_live.steps": whole_number,
    **dict.fromkeys(("global_batch_size", "batch_size"), whole_number),
    **dict.fromkeys(("repeats", "warmup_steps", "steps"), number),
    **dict.fromkeys(("workers", "devices"), list_of(whole_number)),
    "cv": list_of(number),
    **dict.fromkeys(("samples", "tokens", "size_bytes", "chunk_bytes", "memory_bytes", "compute_s"), number),
    **dict.fromkeys(("bandwidth_bytes_per_s", "seconds", "budget_s", "reserve"), number),
    **dict.fromkeys(("reserve_fraction", "deadline_hours", "budget_usd", "interruptions_per_hour"), number),
    **dict.fromkeys(("restart_s", "storage_gb", "usd_per_kwh", "power_usage_effectiveness"), number),
    **dict.fromkeys(("staleness_penalty", "critical_batch_size", "least_steps"), number),
    **dict.fromkeys(("checkpoint_s", "checkpoint_every_s", "failures_per_device_day", "evaluation_s"), number),
    **dict.fromkeys(("through_host", "pinned"), flag),
    **dict.fromkeys(("out", "resume", "data"), path),
    "usd_per_hour": _price,
    "scaling.usd_per_hour": number,
    "backend": _backend,
    "candidates": list_of(_candidate),
    "configurations": list_of(_mapping, or_one=False),
    "free": list_of(_symbol),
    "limits": mapping_of(number),
    "progress": _shown,
    "fit.progress": _callable,
    "validate.progress": _callable,
    "validate_live.progress": _callable,
    "table": table,
}
"""Argument, or ``verb.argument`` where verbs differ -> the check of its kind."""


def gated(verb: Callable[P, Answer]) -> Callable[P, Answer]:
    """Check a verb's call and the kind of each argument before its work, and that the numbers of its answer are finite.

    Arguments of a job are checked by Job's table.
    """
    parameters = [it for it in signature(verb).parameters.values() if it.kind is not Parameter.VAR_KEYWORD]
    check_of = {it.name: KINDS.get(f"{verb.__name__}.{it.name}", KINDS.get(it.name)) for it in parameters}
    checks = {name: check for name, check in check_of.items() if check is not None}
    defaults = {it.name: it.default for it in parameters}

    @wraps(verb)
    def checked(*arguments: P.args, **named: P.kwargs) -> Answer:
        check_call(verb, arguments, named)
        by_place: dict[str, Any] = dict(zip(defaults, arguments, strict=False))
        stated = by_place | named
        for name, check in checks.items():
            if name in stated and stated[name] is not defaults[name]:
                stated[name] = check(name, stated[name])
        positional = [stated[name] for name in by_place]
        named_only = {name: value for name, value in stated.items() if name not in by_place}
        return checked_answer(verb(*positional, **named_only), stated, quantity=verb.__name__)

    return checked
