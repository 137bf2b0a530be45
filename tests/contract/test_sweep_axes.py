"""Every argument as an axis of a sweep: no row is taken for another, in whatever order the values come.

Every axis meets all that stands beside it, and each of both meets both orders; ``PERFMODEL_FULL_WALK=1`` takes both
orders of every case.
"""

import itertools
import os
from functools import cache

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import PerfmodelError
from perfmodel.planning.sweeps.space import DEFAULTS, space_of
from perfmodel.prediction.device.step_time import PARTS, TOTALS

NETWORKS = {
    "gpt": pm.zoo.gpt(layers=4, width=64, heads=4, sequence_length=32, vocabulary=256),
    "many words": pm.zoo.gpt(layers=4, width=64, heads=4, sequence_length=32, vocabulary=32_768),
    "alexnet": pm.zoo.alexnet(),
}
JOB = {"network": "gpt", "batch_size": 16, "system": "dgx_a100", "workers": 4, "framework": "pytorch_2"}
NORMAL = {"distribution": "normal", "cv": 0.2}
UNEQUAL = {"distribution": "unequal", "times": (1.0, 1.5)}
ON_CPU = {"system": None, "device": "xeon_e5_2630_v3", "framework": "generic", "workers": 1}
BY_LIBRARY = {"sync": "all_reduce"}
FED = {"network": "alexnet", "batch_size": 64}  # decoded more slowly than computed
INPUT = {**FED, "dataset": "imagenet_jpeg"}
PIPELINE = {"parallelism": "pipeline", "stages": 2, "micro_batches": 4, "workers": 2}

AXES = {
    "batch_size": ([16, 32], {}),
    "global_batch_size": ([64, 128], {"batch_size": None}),
    "device": (["a100_40_sxm", "v100_sxm2"], {}),
    "system": (["dgx_a100", "dgx_h100"], {}),
    "machines": ([None, 1, 2], {"workers": 16}),
    "link": ([None, "nvlink_2_x1"], {}),
    "framework": (["pytorch_2", "generic", "tensorflow_1_1"], {"dtype": "fp16"}),
    "strict": ([False, True], {"framework": ["theano_0_8", "generic"], "workers": [2, 1]}),
    "threads": ([1, 8], {**ON_CPU, "network": "alexnet"}),
    "phase": (["step", "forward_backward", "forward"], {}),
    "dtype": (["fp32", "bf16"], {}),
    "optimizer": (["sgd", "adam"], {}),
    "recompute": ([None, "full", "selective", 1], {}),
    "weight_dtype": ([None, "int8", "int4"], {"phase": "forward"}),
    "weight_penalty": ([None, "l1", "l1_l2"], {}),
    "image_layout": ([None, "channels_first", "channels_last"], {"network": "alexnet", "dtype": "fp16"}),
    "library": ([None, "cudnn_7", "cudnn_5"], {"network": "alexnet"}),
    "calibration": ([None, "shi2016_gpu"], {"network": "alexnet"}),
    "workers": ([1, 2, 4], {}),
    "devices": ([2, 4, 8], {"workers": None}),
    "sync": (["none", "all_reduce", "ring_all_reduce", "parameter_server", "downpour"], {}),
    "overlap": ([True, False], {}),
    "bucket_bytes": ([None, 0, 25e4, "merged"], {}),
    "server_count": ([1, 2], {"sync": "parameter_server", "system": "dgx_a100_x4", "workers": 16}),
    "server_on": ([None, "node0", "node3"], {"sync": "parameter_server", "system": "dgx_a100_x4", "workers": 16}),
    "group_size": ([None, 1, 2], {"sync": "mixed"}),
    "staleness_bound": ([1, None, 4], {"sync": "bounded_staleness", "straggler": NORMAL}),
    "backup_workers": ([0, 1], {"straggler": NORMAL, "workers": 2, "dtype": "bf16"}),  # the faster device draws less
    "push_period": ([1, 4], {"sync": "downpour"}),
    "pull_period": ([1, 4], {"sync": "downpour"}),
    "straggler": ([None, NORMAL, {**NORMAL, "cv": 0.1}], {}),
    "parallelism": (["data", "tensor", "pipeline", "model", "hybrid"], {}),
    "stages": ([1, 2, 4], {**PIPELINE}),
    "stage_cut": (
        ["balanced", "even_blocks", "even_modules", "counted_ends"],
        {**PIPELINE, "network": "many words", "batch_size": 1024}),
    "micro_batches": ([1, 2, 4], {}),
    "schedule": (["1f1b", "gpipe", "interleaved"], {**PIPELINE}),
    "interleave": ([1, 2], {**PIPELINE, "schedule": "interleaved"}),
    "tensor_size": ([1, 2], {"parallelism": "tensor", "workers": 2}),
    "sequence_parallel": ([False, True], {"parallelism": "tensor", "tensor_size": 2, "workers": 2}),
    "context_size": ([1, 2], {**BY_LIBRARY, "workers": 2, "straggler": [None, UNEQUAL]}),
    "context_method": (["ring", "all_to_all"], {**BY_LIBRARY, "workers": 2, "context_size": 2}),
    "shard_stage": ([0, 1, 2, 3], {}),
    "shard_group": ([None, 2, 4], {**BY_LIBRARY, "shard_stage": 1, "workers": 8}),
    "prefetch_limit": ([0, 1, 2], {"shard_stage": 3}),
    "no_sync": ([False, True], {"shard_stage": 2, "accumulation_steps": 2}),
    "gradient_dtype": ([None, "bf16", "fp32"], {}),
    "accumulation_steps": ([1, 2], {}),
    "dataset": ([None, "imagenet_jpeg", "imagenet_raw"], FED),
    "input_from": (["memory", None], INPUT),
    "prefetch": ([0, 1], INPUT),
    "pinned": ([True, False], {"workers": 1}),  # two workers share the way from host memory, which then decides
    "decode_cores": ([1, 8, None], INPUT),
    "input_variation": ([0.0, 0.5], INPUT),
}  # fmt: skip
"""Axis -> its values, and what else the job needs for them to matter."""

BESIDE = {
    "one job": {},
    "what workers share": {**BY_LIBRARY, "shard_stage": [0, 1, 2, 3]},
    "passes": {**BY_LIBRARY, "shard_stage": [3, 2], "accumulation_steps": [1, 2], "no_sync": [False, True]},
    "pipelines": {**PIPELINE, "stages": [1, 2], "shard_stage": [0, 1, 2]},
    "interleaved": {**PIPELINE, **BY_LIBRARY, "schedule": "interleaved", "interleave": 2, "shard_stage": [2, 1]},
    "types": {"gradient_dtype": ["bf16", None], "dtype": ["bf16", "fp32"]},
}
"""Axes beside the one that is walked, which rows could be mixed up with."""
COLUMNS = ["step_s", "samples_per_s", "memory_bytes", *PARTS, *TOTALS]
ONLY_REFUSES = {"machines", "strict"}
"""Axes that decide what is possible, but change no time of what is: the first devices of a system are the same."""


def space(name, beside):
    """Return the network and the axes of a case; the walked axis and what it needs come last."""
    values, needed = AXES[name]
    asked = JOB | needed | {axis: of for axis, of in BESIDE[beside].items() if axis not in needed} | {name: values}
    if asked["workers"] is None:
        del asked["workers"]
    network = asked.pop("network")
    return network, asked


@cache
def expected(network, row):
    """Return what predict says of a row by itself, or why it says nothing."""
    arguments = {name: dict(value) if isinstance(value, tuple) else value for name, value in row}
    alone = space_of(NETWORKS[network], arguments, configurations=None, limit=None)
    try:
        p = alone.predicted(0)
    except PerfmodelError as error:
        return str(error)
    parts = {name: getattr(p, name) for name in ("step_s", "samples_per_s", *PARTS, *TOTALS)}
    return parts | {"memory_bytes": p.memory.total_bytes}


def rows_of(asked):
    """Return each combination of an axis's values as keywords that can be a key."""
    lists = {name: of if isinstance(of, list) else [of] for name, of in asked.items()}
    for values in itertools.product(*lists.values()):
        row = zip(lists, values, strict=True)
        yield tuple((name, tuple(value.items()) if isinstance(value, dict) else value) for name, value in row)


def test_every_argument_is_walked():
    assert set(AXES) == set(DEFAULTS)
    assert all(len(values) > 1 for values, _ in AXES.values())


@pytest.mark.parametrize("name", AXES)
def test_a_value_matters_in_some_job(name):
    """An axis whose values change nothing would not show that its rows are mixed up."""
    most = 0
    for beside in BESIDE:
        network, asked = space(name, beside)
        first = {axis: of[0] for axis, of in asked.items() if isinstance(of, list) and axis != name}
        found = [expected(network, row) for row in rows_of(asked | first)]
        answers = {said if isinstance(said, str) else tuple(said.values()) for said in found}
        counted = answers if name in ONLY_REFUSES else [each for each in answers if not isinstance(each, str)]
        most = max(most, len(counted))
    assert most > 1


def orders_of(name, beside):
    """Return the orders in which a case is walked: 1 forwards, -1 backwards."""
    if os.environ.get("PERFMODEL_FULL_WALK"):
        return (1, -1)
    return ((1, -1)[([*AXES].index(name) + [*BESIDE].index(beside)) % 2],)


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("name", AXES)
def test_rows_are_predictions_in_any_order_of_the_values(name, beside):
    network, asked = space(name, beside)
    for order in orders_of(name, beside):
        in_order = {axis: of[::order] if isinstance(of, list) else of for axis, of in asked.items()}
        s = pm.sweep(NETWORKS[network], columns=COLUMNS, **in_order)
        for row, key in zip(s, rows_of(in_order), strict=True):
            said = expected(network, key)
            if isinstance(said, str):
                assert np.isnan(row["step_s"])
                assert row["reason"]  # where several things stand in the way, predict may name another of them
                continue
            for column, value in said.items():
                within = 1e-12 * (value if column in ("samples_per_s", "memory_bytes") else said["step_s"])
                assert abs(row[column] - value) <= within, (order, column, key)
