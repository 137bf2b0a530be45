"""What two predictions were asked differently, from the network down to single numbers of spec files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from perfmodel.prediction.prediction import Prediction
    from perfmodel.prediction.prepared import Prepared


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


def _of_agreement(name: str) -> Callable[[Prepared], Any]:
    """Return what reads an option of an agreement, wherever a kind of agreement keeps it."""

    def read(prepared: Prepared) -> Any:
        agreement = prepared.agreement
        asked = getattr(prepared, "asked", None)
        places = (agreement, getattr(agreement, "numbers", None), getattr(asked, "agreed", None))
        return next((getattr(place, name) for place in places if hasattr(place, name)), None)

    return read


def _sync(prepared: Prepared) -> Any:
    asked = getattr(prepared, "asked", None)
    if asked is not None:
        return asked.agreed.sync
    return None if prepared.agreement is None else prepared.agreement.name


def _optimizer(prepared: Prepared) -> Any:
    optimizer = prepared.subject.optimizer
    return optimizer.kind if optimizer == type(optimizer)() else str(optimizer)


def _servers(prepared: Prepared) -> Any:
    agreement = prepared.agreement
    return None if agreement is None or agreement.server is None else len(agreement.server.memories)


def _straggler(prepared: Prepared) -> Any:
    straggler = _of_agreement("straggler")(prepared)
    return _of_agreement("times")(prepared) if straggler is None else straggler


def _of_layout(name: str) -> Callable[[Prepared], Any]:
    def read(prepared: Prepared) -> Any:
        placement = getattr(prepared, "placement", None)
        return None if placement is None else getattr(placement.layout, name)

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
    "parameter_count": lambda prepared: prepared.subject.graph.parameter_count,
    "system": _system,
    "device": lambda prepared: prepared.target.processor_spec.name,
    "threads": lambda prepared: prepared.target.threads,
    "libraries": lambda prepared: tuple(library.name for library in prepared.libraries.values()),
    "optimizer": _optimizer,
    "workers": lambda prepared: prepared.worker_count,
    "sync": _sync,
    "overlap": _of_agreement("overlap"),
    "bucket_bytes": _of_agreement("bucket_bytes"),
    "server_count": _servers,
    "group_size": _of_agreement("group_size"),
    "staleness_bound": _of_agreement("staleness_bound"),
    "push_period": _of_agreement("push_period"),
    "pull_period": _of_agreement("pull_period"),
    "straggler": _straggler,
    "parallelism": lambda prepared: getattr(getattr(prepared, "placement", None), "parallelism", "data"),
    "stages": _of_layout("stages"),
    "micro_batches": _of_layout("micro_batches"),
    "schedule": _of_layout("schedule"),
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

OF_PREDICTION: Final[dict[str, Callable[[Prediction], Any]]] = {
    "network": lambda p: p.subject,
    "target": lambda p: p.target,
    "framework": lambda p: p.framework,
    "batch_size": lambda p: p.batch_size,
    "phase": lambda p: p.phase,
    "dtype": lambda p: p.dtype,
    "recompute": lambda p: None if p.basis is None else p.basis.recompute,
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
        of one name. Empty where nothing differs. [unit of each name]
    """
    rows = [InputChange(name, read(first), read(second)) for name, read in OF_PREDICTION.items()]
    if first.basis is not None and second.basis is not None:
        own, other = first.basis.prepared, second.basis.prepared
        rows += [InputChange(name, read(own), read(other)) for name, read in INPUTS.items()]
    specs = [{(type(spec), spec.name): spec for spec in p.sources} for p in (first, second)]
    for key, spec in specs[0].items():
        if key in specs[1] and specs[1][key] is not spec:
            rows += _field_changes(key[1], spec.model_dump(), specs[1][key].model_dump())
    return [row for row in rows if row.first != row.second]


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
