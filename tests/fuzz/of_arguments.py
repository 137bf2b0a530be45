"""Arguments of every verb, one or two of which are of the wrong kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache, partial
from inspect import signature
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import perfmodel as pm
from perfmodel.prediction.arguments.table import ARGUMENTS
from tests.fuzz import values
from tests.fuzz.trial import Trial, shown
from tests.fuzz.values import WRONG

JOB = {"batch_size": 4, "device": "gtx_1080", "framework": "caffe_1_0_rc3"}
SPREAD = {"batch_size": 4, "system": "dgx_a100", "workers": 2, "framework": "pytorch_2"}


@cache
def network() -> pm.LayerGraph:
    """Return a small network."""
    return pm.zoo.lenet5()


@cache
def language_model() -> pm.LayerGraph:
    """Return a small language model, for which layouts are searched."""
    return pm.zoo.gpt(layers=2, width=64, heads=2, sequence_length=32, vocabulary=100)


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb, arguments with which it answers, what it may be given beside these, and the times of its answer."""

    call: Callable[..., Any]
    usual: Callable[[], Mapping[str, Any]]
    times: Callable[[Any], Any] = lambda answer: None
    takes_a_job: bool = False

    def names(self) -> list[str]:
        """Return every argument of the verb."""
        stated = [name for name, it in signature(self.call).parameters.items() if it.kind is not it.VAR_KEYWORD]
        stated += self.usual() if len(stated) < len(signature(self.call).parameters) and not self.takes_a_job else []
        return [*dict.fromkeys([*stated, *(ARGUMENTS if self.takes_a_job else ())])]


def _swept(table: Any) -> Any:
    """Return the times of possible configurations, and every infinite number; NaN is what no file states."""
    columns = [np.asarray(column, dtype=float) for column in table.results.values()]
    steps = np.asarray(table["step_s"], dtype=float)
    return [
        *steps[[reason == "" for reason in table["reason"]]],
        *(x for column in columns for x in column[np.isinf(column)]),
    ]


def _rows(answer: Any) -> Any:
    """Return the size of every number in the rows of an answer, of which some are differences."""
    numbers = (getattr(row, field.name) for row in answer.rows for field in fields(row))
    return [abs(number) for number in numbers if isinstance(number, float)]


def _found(search: Any) -> Any:
    return [*_swept(search.layouts), search.best.row.step_s]


def _job(**arguments: Any) -> Any:
    return pm.Job(network(), **arguments).replace(batch_size=8)


def _pareto(names: Any) -> Any:
    return _small_sweep().pareto(names)


@cache
def _small_sweep() -> Any:
    return pm.sweep(network(), batch_size=[4, 8], device=["gtx_1080", "tesla_k40"], usd_per_hour=1.0)


@cache
def _prediction() -> Any:
    return pm.predict(network(), **JOB)


@cache
def _search() -> Any:
    return pm.search(language_model(), system="dgx_a100", devices=2, global_batch_size=4)


@cache
def _timeline() -> Any:
    return pm.predict(network(), **SPREAD).timeline


def _of_timeline(method: str, of: Any) -> Any:
    return getattr(_timeline(), method)(of)


@cache
def _formula() -> Any:
    return pm.formula(graph=network(), free=["batch_size", "memory_bandwidth_bytes_per_s"], **JOB)


def _of(graph: Callable[[], Any], **arguments: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {"graph": graph(), **arguments}


DATASET = {"name": "scans", "example_count": 1000, "encoded_bytes_per_example": 262_144, "decoded_shape": (512, 512)}

VERBS: Mapping[str, Verb] = {
    "predict": Verb(pm.predict, _of(network, **JOB), lambda p: [p.step_s], takes_a_job=True),
    "predict of several": Verb(pm.predict, _of(network, **SPREAD), lambda p: [p.step_s], takes_a_job=True),
    "Job": Verb(pm.Job, _of(network, **JOB), lambda job: [job.replace(batch_size=8).batch_size], takes_a_job=True),
    "max_batch_size": Verb(
        pm.max_batch_size, _of(network, device="gtx_1080", framework="caffe_1_0_rc3"), takes_a_job=True
    ),
    "sweep": Verb(pm.sweep, _of(network, **JOB), _swept, takes_a_job=True),
    "sweep of lists": Verb(
        pm.sweep,
        _of(network, configurations=[{"batch_size": 4}, {"batch_size": 8, "workers": 2}], system="dgx_a100"),
        _swept,
        takes_a_job=True,
    ),
    "scaling": Verb(
        pm.scaling,
        _of(network, system="dgx_a100", workers=(1, 2), batch_size=4),
        lambda report: [*_rows(report), *(row.step_s for row in report.rows if row.step_s is not None)],
        takes_a_job=True,
    ),
    "plan": Verb(
        pm.plan,
        _of(network, candidates=["p2.xlarge"], batch_size=32, dataset_size=50_000, epochs=1),
        lambda plan: [*_rows(plan), *(row.hours for row in plan.rows if row.hours is not None)],
        takes_a_job=True,
    ),
    "formula": Verb(pm.formula, _of(network, free=["batch_size"], **JOB), lambda f: [f()], takes_a_job=True),
    "advise": Verb(
        pm.advise,
        _of(network, kinds="batch_size", **JOB),
        lambda advice: [*_rows(advice), *(row.step_s for row in advice.rows)],
        takes_a_job=True,
    ),
    "search": Verb(
        pm.search,
        _of(language_model, system="dgx_a100", devices=2, global_batch_size=4),
        _found,
        takes_a_job=True,
    ),
    "compare": Verb(pm.compare, lambda: {"first": _prediction(), "second": _prediction()}, _rows),
    "transfer": Verb(
        pm.transfer, lambda: {"system": "dgx_a100", "copies": "host:gpu0"}, lambda t: [row.time_s for row in t.rows]
    ),
    "refresh": Verb(
        pm.refresh,
        lambda: {"memory_bytes": 8e9, "device": "gtx_1080", "compute_s": 0.5},
        lambda r: [r.transfer_s, r.period_s, r.utilisation],
    ),
    "straggler_slowdown": Verb(
        pm.straggler_slowdown,
        lambda: {"workers": (1, 2, 4), "cv": (0.1,)},
        lambda report: [row.slowdown for row in report.rows],
    ),
    "cost_per_year": Verb(pm.cost_per_year, lambda: {"price": "gce_n1_highmem_16_2016"}, lambda usd: [usd]),
    "Dataset": Verb(pm.Dataset, lambda: DATASET, lambda it: [it.encoded_bytes]),
    "calibrate": Verb(pm.calibrate, lambda: {"target": "cpu:x", "progress": False}),
    "fit": Verb(pm.fit, lambda: {"table": "none", "only": "none"}),
    "validate": Verb(pm.validate, lambda: {"table": "paleo2017"}, lambda report: [report.mape]),
    "validate_live": Verb(pm.validate_live, lambda: {"device": "cpu:x", "networks": ["none"]}),
    "audit": Verb(pm.audit, lambda: {"module_or_graph": network(), "batch_size": 4}),
    "pareto": Verb(_pareto, lambda: {"names": "step_s"}, _swept),
    "best": Verb(lambda name, count: _small_sweep().best(name, count=count), lambda: {"name": "step_s", "count": 1}),
    "row": Verb(lambda index: _small_sweep().row(index), lambda: {"index": 0}),
    "solve_for": Verb(
        lambda symbol, target, at, between: _formula().solve_for(symbol, target, at=at, between=between),
        lambda: {"symbol": "batch_size", "target": 0.01, "at": None, "between": None},
        lambda solution: [solution.value, solution.before, solution.after],
    ),
    "elasticities": Verb(lambda at: _formula().elasticities(at), lambda: {"at": None}),
    "of": Verb(lambda quantity: _formula().of(quantity), lambda: {"quantity": "compute_s"}),
    "best_within": Verb(lambda memory_bytes: _search().best_within(memory_bytes), lambda: {"memory_bytes": 1e12}),
    "ranking": Verb(lambda first, second: _search().ranking(first, second), lambda: {"first": 0, "second": None}),
    "to_table": Verb(lambda count: _small_sweep().to_table(count), lambda: {"count": 2}),
    "codes": Verb(lambda name: _small_sweep().codes(name), lambda: {"name": "batch_size"}),
    "head": Verb(lambda count: _small_sweep().to_table().head(count), lambda: {"count": 2}),
    "to_text": Verb(
        lambda max_rows, columns: _small_sweep().to_table().to_text(max_rows=max_rows, columns=columns),
        lambda: {"max_rows": 2, "columns": None},
    ),
    "play": Verb(
        lambda step_count, seed: _prediction().play(step_count=step_count, seed=seed),
        lambda: {"step_count": 2, "seed": 0},
        lambda timeline: [timeline.makespan_s],
    ),
    **{
        name: Verb(partial(_of_timeline, name), lambda: {"of": "gpu0"})
        for name in ("busy_s", "idle_s", "utilisation", "span", "save")
    },
    "shape": Verb(lambda name: network().shape(name), lambda: {"name": "input"}),
    "epoch_s": Verb(lambda dataset_size: _prediction().epoch_s(dataset_size=dataset_size), lambda: {"dataset_size": 1}),
    "cost_usd": Verb(
        lambda price, dataset_size: _prediction().cost_usd(price, dataset_size=dataset_size),
        lambda: {"price": 1.0, "dataset_size": 1},
        lambda usd: [usd],
    ),
    "energy_j": Verb(
        lambda dataset_size, idle_w, utilisation: _prediction().energy_j(
            dataset_size=dataset_size, idle_w=idle_w, utilisation=utilisation
        ),
        lambda: {"dataset_size": 1, "idle_w": 5.0, "utilisation": 0.5},
        lambda energy: [energy],
    ),
    "training_totals": Verb(
        lambda **run: _prediction().training_totals(**run),
        lambda: {"samples": 1000, "usd_per_hour": 1.0},
        lambda totals: [totals.days, totals.device_hours, 0.0 if math.isnan(totals.usd) else totals.usd],
    ),
    "work": Verb(
        lambda batch_size, phase, dtype, optimizer: network().work(
            batch_size=batch_size, phase=phase, dtype=dtype, optimizer=optimizer
        ),
        lambda: {"batch_size": 1, "phase": "step", "dtype": "fp32", "optimizer": "sgd"},
    ),
    "pruned": Verb(
        lambda density, pattern, layers: network().pruned(density, pattern=pattern, layers=layers),
        lambda: {"density": 0.5, "pattern": "unstructured", "layers": None},
    ),
    "LayerGraph": Verb(pm.LayerGraph, lambda: {"name": "net", "input_shape": (3, 8, 8)}),
    "from_onnx": Verb(pm.from_onnx, lambda: {"path": "none.onnx"}),
    "from_keras": Verb(pm.from_keras, lambda: {"model_or_path": "none.json"}),
    "from_deeplearning4j": Verb(pm.from_deeplearning4j, lambda: {"path_or_text": "none.json"}),
    "from_huggingface_config": Verb(pm.from_huggingface_config, lambda: {"path_or_dict": {"model_type": "gpt2"}}),
    **{
        name: Verb(getattr(pm, name), lambda: {"name_or_path": "gtx_1080"})
        for name in ("load_device", "load_system", "load_link", "load_storage", "load_dataset", "load_library")
    },
    **{
        name: Verb(getattr(pm, name), lambda: {"name_or_path": "caffe_1_0_rc3"})
        for name in ("load_framework", "load_price", "load_calibration")
    },
}


def arguments(chance: Random, folder: Path) -> Trial:
    """Make a call of a verb."""
    del folder
    name = chance.choice([*VERBS])
    return call_of(name, chance)


def call_of(name: str, chance: Random) -> Trial:
    """Make a call of one verb; more of it may be wrong in its own arguments than in those of a job."""
    verb = VERBS[name]
    own = [parameter for parameter in verb.names() if parameter not in ARGUMENTS]
    among = own if own and (chance.random() < 0.6 or not verb.takes_a_job) else verb.names()
    wrong = {
        parameter: chance.choice(WRONG) for parameter in chance.sample(among, min(len(among), chance.choice((1, 1, 2))))
    }
    stated = {**verb.usual(), **wrong}
    said = ", ".join(f"{parameter}={shown(value)}" for parameter, value in wrong.items())
    return Trial(f"{name}({said})", lambda: verb.times(verb.call(**stated)))


def call_with(name: str, written: Mapping[str, str]) -> Trial:
    """Make a call of one verb with arguments that are written as expressions."""
    verb, names = VERBS[name], vars(values)
    stated = {**verb.usual(), **{argument: eval(text, names) for argument, text in written.items()}}
    return Trial(name, lambda: verb.times(verb.call(**stated)))
