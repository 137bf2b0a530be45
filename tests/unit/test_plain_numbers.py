"""Numbers of a prediction are those of Python: they print, compare and go into JSON as everybody expects."""

import dataclasses

import numpy as np
import pytest

import perfmodel as pm

GPT = pm.zoo.gpt(layers=4, width=256, heads=4, sequence_length=64, vocabulary=1000)
SPREAD = {"framework": "pytorch_2", "optimizer": "adam", "dtype": "bf16", "sync": "all_reduce", "system": "dgx_h100"}
JOBS = {
    "one device": {"device": "h100_sxm", "batch_size": 2, "framework": "pytorch_2"},
    "one processor": {"device": "epyc_9654", "batch_size": 2},
    "sharded, accumulated": {"workers": 8, "shard_stage": 3, "accumulation_steps": 2, "batch_size": 2, **SPREAD},
    "no_sync": {"workers": 8, "shard_stage": 2, "accumulation_steps": 2, "no_sync": True, "batch_size": 2, **SPREAD},
    "pipeline": {"parallelism": "pipeline", "stages": 4, "micro_batches": 4, "batch_size": 4, "workers": 2, **SPREAD},
    "tensor": {"parallelism": "tensor", "tensor_size": 4, "workers": 2, "batch_size": 4, **SPREAD},
    "parameter server": {"system": "survey_fig6", "workers": 4, "batch_size": 4, "sync": "parameter_server"},
}


def numpy_numbers(value, path):
    """Where numbers of numpy are among mappings, sequences and records of numbers."""
    if isinstance(value, np.generic):
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from numpy_numbers(inner, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from numpy_numbers(inner, f"{path}[]")


def public_values(record, path):
    for name in dir(record):
        if not name.startswith("_") and not callable(value := getattr(record, name)):
            yield f"{path}.{name}", value


@pytest.mark.parametrize("job", list(JOBS))
def test_no_number_of_a_prediction_is_one_of_numpy(job):
    p = pm.predict(GPT, **JOBS[job])
    values = [("to_dict()", p.to_dict()), *public_values(p, "p"), *public_values(p.memory, "p.memory")]
    values += [(f"p.memory.{field.name}", getattr(p.memory, field.name)) for field in dataclasses.fields(p.memory)]
    assert [where for path, value in values for where in numpy_numbers(value, path)] == []
