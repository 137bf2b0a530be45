"""What two predictions were asked differently: arguments of their jobs, then numbers of spec files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfmodel.prediction.agreement_options import TAKEN_BY, WITH_SERVER
from perfmodel.prediction.arguments.table import ARGUMENTS
from perfmodel.records import Phase

if TYPE_CHECKING:
    from perfmodel.prediction.job import Job
    from perfmodel.prediction.prediction import Prediction


@dataclass(frozen=True, slots=True)
class InputChange:
    """One thing that two predictions were asked differently.

    Parameters
    ----------
    input : str
        Which; of a number of a spec file the file's name and the field. [-]
    first, second : object
        Its values; None where a prediction has no such thing. [unit of the name]
    """

    input: str
    first: Any
    second: Any


def input_changes(first: Prediction, second: Prediction) -> list[InputChange]:
    """Return what two predictions were asked differently.

    Parameters
    ----------
    first, second : Prediction
        The predictions. [-]

    Returns
    -------
    list of InputChange
        Arguments as they were resolved (a framework's bucket size, not None), then numbers that differ in spec files
        of one name. Empty where nothing differs. Of how workers agree nothing is there, where one has nobody to agree
        with. [unit of each name]
    """
    facts = [_facts(p) for p in (first, second)]
    rows = [InputChange(name, value, facts[1][name]) for name, value in facts[0].items()]
    jobs = [p.basis.job for p in (first, second)]
    if jobs[0] is not None and jobs[1] is not None:
        rows += _argument_changes(jobs[0], jobs[1])
    specs = [{(type(spec), spec.name): spec for spec in p.sources} for p in (first, second)]
    for key, spec in specs[0].items():
        if key in specs[1] and specs[1][key] is not spec:
            rows += _field_changes(key[1], spec.model_dump(), specs[1][key].model_dump())
    return [row for row in rows if row.first != row.second]


def _facts(p: Prediction) -> dict[str, Any]:
    """Return what a prediction itself says of its network and target."""
    job = p.basis.job
    return {
        "network": p.subject,
        "parameter_count": None if job is None else job.subject.graph.parameter_count,
        "target": p.target,
        "peak_flop_per_s": float(p.peak_flop_per_s),
        "memory_bandwidth_bytes_per_s": p.memory_bandwidth_bytes_per_s,
        "memory_capacity_bytes": float(p.memory.capacity_bytes),
    }


def _argument_changes(first: Job, second: Job) -> list[InputChange]:
    both_agree = all(
        Phase.BACKWARD in job.subject.phase.parts and (job.workers > 1 or job.sync in WITH_SERVER)
        for job in (first, second)
    )
    rows = []
    for name, row in ARGUMENTS.items():
        if row.group == "exchange" and not both_agree:
            continue
        values = [_plain(getattr(job, name) if row.means is None else row.means(job)) for job in (first, second)]
        if values[0] != values[1]:
            takers = [TAKEN_BY.get(name, (job.sync,)) for job in (first, second)]
            shown = (
                value if job.sync in taken else None
                for job, value, taken in zip((first, second), values, takers, strict=True)
            )
            rows.append(InputChange(name, *shown))
    return rows


def _plain(value: Any) -> Any:
    """Return an object of a spec file by its name."""
    return getattr(value, "name", value)


def _field_changes(name: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> list[InputChange]:
    """Return the fields of two tables of one spec file, nested ones by their path."""
    rows = []
    for key in dict.fromkeys([*first, *second]):
        own, other = first.get(key), second.get(key)
        path = f"{name}.{key}" if ":" in name else f"{name}: {key}"
        if isinstance(own, Mapping) and isinstance(other, Mapping):
            rows += _field_changes(path, own, other)
        else:
            rows.append(InputChange(path, own, other))
    return rows
