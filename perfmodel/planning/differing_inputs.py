"""What two predictions were asked differently, from the network down to single numbers of spec files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from perfmodel.parallelism import Layout
from perfmodel.prediction.agreement_options import TAKEN_BY
from perfmodel.prediction.arguments import NO_SYNC
from perfmodel.prediction.arguments.table import DEFAULTS
from perfmodel.records import Phase

if TYPE_CHECKING:
    from perfmodel.prediction.prediction import Prediction
    from perfmodel.prediction.prepared import Prepared
    from perfmodel.prediction.spread import SpreadAsked
    from perfmodel.prediction.subject import Subject


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


def _system(prepared: Prepared) -> Any:
    machine = prepared.target.machine
    return None if machine is None else machine.system.name


def _whole(prepared: Prepared) -> Subject:
    """Return what runs on all devices together; a network that is spread has a stage of it in ``subject``."""
    predictor = getattr(prepared, "predictor", None)
    return prepared.subject if predictor is None else predictor.subject


def _optimizer(prepared: Prepared) -> Any:
    optimizer = prepared.subject.optimizer
    return optimizer.kind if optimizer == type(optimizer)() else str(optimizer)


def _agreed(prepared: Prepared) -> Any:
    spread: SpreadAsked | None = getattr(prepared, "asked", None)
    if spread is not None:
        return spread.agreed
    return None if prepared.agreement is None else prepared.agreement.asked


def _has_others(prepared: Prepared) -> bool:
    """Tell whether several workers train: one alone, or those that only infer, have nothing to agree on."""
    trains = Phase.BACKWARD in prepared.subject.phase.parts
    return prepared.agreement is not None or (trains and prepared.worker_count > 1)


def _sync(prepared: Prepared) -> str:
    agreed = _agreed(prepared)
    return NO_SYNC if agreed is None else agreed.sync


def _of_agreed(name: str) -> Callable[[Prepared], Any]:
    """Return what reads an option of how workers agree: None where theirs does not take it."""

    def read(prepared: Prepared) -> Any:
        agreed = _agreed(prepared)
        is_taken = agreed is not None and agreed.sync in TAKEN_BY.get(name, (agreed.sync,))
        return getattr(agreed, name) if is_taken else None

    return read


def _bucket_bytes(prepared: Prepared) -> Any:
    agreed = _agreed(prepared)
    if agreed is None or agreed.sync not in TAKEN_BY["bucket_bytes"]:
        return None
    return 0.0 if agreed.bucket_bytes is None else agreed.bucket_bytes


def _habit(prepared: Prepared) -> float:
    """Return the size of messages where nobody gives one. [B]"""
    return 1048576.0 * (prepared.profile.exchange.bucket_mib or 0.0)


def _straggler(prepared: Prepared) -> Any:
    straggler = _of_agreed("straggler")(prepared)
    return None if straggler is None else straggler.times


def _parallelism(prepared: Prepared) -> str:
    placement = getattr(prepared, "placement", None)
    return "data" if placement is None else placement.parallelism


def _of_layout(name: str) -> Callable[[Prepared], Any]:
    """Return what reads a size of a layout: its default where every worker has the whole network."""

    def read(prepared: Prepared) -> Any:
        placement = getattr(prepared, "placement", None)
        return getattr(Layout() if placement is None else placement.layout, name)

    return read


def _schedule(prepared: Prepared) -> str:
    """Return the order of work of a pipeline; whoever asks for none cannot ask for an order either."""
    is_pipeline = _parallelism(prepared) == "pipeline"
    return str(_of_layout("schedule")(prepared)) if is_pipeline else Layout().schedule


def _parts(*, is_pipeline: bool) -> Callable[[Prepared], int]:
    """Return what reads the parts of a mini-batch: micro-batches between stages, steps of accumulation in one."""

    def read(prepared: Prepared) -> int:
        return _of_layout("micro_batches")(prepared) if is_pipeline == (_of_layout("stages")(prepared) > 1) else 1

    return read


def _of_data_path(name: str) -> Callable[[Prepared], Any]:
    def read(prepared: Prepared) -> Any:
        value = None if prepared.data_path is None else getattr(prepared.data_path, name)
        return getattr(value, "name", value)

    return read


def _storage(prepared: Prepared) -> Any:
    path = prepared.data_path
    return None if path is None or path.dataset is None else path.storage


INPUTS: Final[dict[str, Callable[[Prepared], Any]]] = {
    "parameter_count": lambda prepared: _whole(prepared).graph.parameter_count,
    "system": _system,
    "device": lambda prepared: prepared.target.processor_spec.name,
    "threads": lambda prepared: prepared.target.threads,
    "libraries": lambda prepared: tuple(library.name for library in prepared.libraries.values()),
    "optimizer": _optimizer,
    "workers": lambda prepared: prepared.worker_count,
    "parallelism": _parallelism,
    "stages": _of_layout("stages"),
    "micro_batches": _parts(is_pipeline=True),
    "accumulation_steps": _parts(is_pipeline=False),
    "schedule": _schedule,
    "interleave": _of_layout("interleave"),
    "tensor_size": _of_layout("tensor_size"),
    "sequence_parallel": _of_layout("sequence_parallel"),
    "shard_stage": _of_layout("shard_stage"),
    "dataset": _of_data_path("dataset"),
    "storage": _storage,
    "prefetch": _of_data_path("prefetch"),
    "decode_cores": _of_data_path("decode_cores"),
    "input_variation": _of_data_path("input_variation"),
    "pinned": lambda prepared: prepared.pinned,
}
"""Input -> how it is read from a prepared step; what the prediction itself says is in ``OF_PREDICTION``."""

OF_AGREEMENT: Final[dict[str, Callable[[Prepared], Any]]] = {
    "sync": _sync,
    "overlap": _of_agreed("overlap"),
    "bucket_bytes": _bucket_bytes,
    "server_count": _of_agreed("server_count"),
    "group_size": _of_agreed("group_size"),
    "staleness_bound": _of_agreed("staleness_bound"),
    "push_period": _of_agreed("push_period"),
    "pull_period": _of_agreed("pull_period"),
    "straggler": _straggler,
    "backup_workers": _of_agreed("backup_workers"),
}
"""Input -> how it is read from a prepared step of several workers that train; None where they take no such option."""


def _unless_given(default: Any) -> Callable[[Any, Prepared], Any]:
    return lambda value, _: default if value is None else value


MEANT: Final[dict[str, Callable[[Any, Prepared], Any]]] = {
    **{name: _unless_given(default) for name, default in ((name, DEFAULTS[name]) for name in TAKEN_BY)},
    "bucket_bytes": lambda value, prepared: _habit(prepared) if value is None else value,
    "group_size": lambda value, prepared: prepared.worker_count if value is None else value,
    "storage": lambda value, prepared: None if _of_data_path("input_from")(prepared) is None else value,
}
"""Input -> what a value comes to; where both come to the same, nobody asked for anything else."""

OF_PREDICTION: Final[dict[str, Callable[[Prediction], Any]]] = {
    "network": lambda p: p.subject,
    "target": lambda p: p.target,
    "framework": lambda p: p.framework,
    "batch_size": lambda p: p.batch_size,
    "phase": lambda p: p.phase,
    "dtype": lambda p: p.dtype,
    "recompute": lambda p: None if p.basis is None else (None if p.basis.job is None else p.basis.job.recompute),
    "calibration": lambda p: None if p.basis is None or p.basis.calibration is None else p.basis.calibration.name,
    "peak_flop_per_s": lambda p: float(p.peak_flop_per_s),
    "memory_bandwidth_bytes_per_s": lambda p: p.memory_bandwidth_bytes_per_s,
    "memory_capacity_bytes": lambda p: float(p.memory.capacity_bytes),
}
"""Input -> how it is read from a prediction."""


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
        of one name. Empty where nothing differs. An option that only one of them takes is there where it is not at
        its default; of how workers agree nothing is, where one has nobody to agree with. [unit of each name]
    """
    rows = [InputChange(name, read(first), read(second)) for name, read in OF_PREDICTION.items()]
    if first.basis is not None and second.basis is not None:
        rows += _prepared_changes(first.basis.prepared, second.basis.prepared)
    specs = [{(type(spec), spec.name): spec for spec in p.sources} for p in (first, second)]
    for key, spec in specs[0].items():
        if key in specs[1] and specs[1][key] is not spec:
            rows += _field_changes(key[1], spec.model_dump(), specs[1][key].model_dump())
    return [row for row in rows if row.first != row.second]


def _prepared_changes(own: Prepared, other: Prepared) -> list[InputChange]:
    """Return what was asked of two steps, but for values that differ and come to the same."""
    readers = INPUTS | OF_AGREEMENT if _has_others(own) and _has_others(other) else INPUTS
    rows = [InputChange(name, read(own), read(other)) for name, read in readers.items()]
    return [
        row
        for row in rows
        if row.input not in MEANT or MEANT[row.input](row.first, own) != MEANT[row.input](row.second, other)
    ]


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
