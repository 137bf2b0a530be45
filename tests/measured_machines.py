"""Measured machines and networks for tests: constants so round that a step can be worked out by hand."""

import tomllib
from pathlib import Path

import perfmodel as pm
from perfmodel.graph import LayerGraph
from perfmodel.hardware.measured_machine import MeasuredMachine
from perfmodel.layers import Dense, ReLU

FILE = Path(__file__).parent / "data" / "measured_cpu.toml"


def content():
    """The tables of the made-up machine's file, to be changed."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def machine(*, hot=True, processor="cpu", without=(), high=None, reuse_mib=None, near_cache_mib=None, **overheads):
    """The made-up machine; hot: nothing is ever cold; without: classes left out; high: ends of intervals by class."""
    tables = content()
    tables["kernel"] = [each for each in tables["kernel"] if each["name"] not in without]
    for each in tables["kernel"]:
        if hot:
            each["cold_s_per_byte"] = 0.0
        each["high"] = each.get("high", {}) | (high or {}).get(each["name"], {})
    if reuse_mib is not None:
        tables["machine"]["reuse_mib"] = reuse_mib
    if near_cache_mib is not None:
        tables["machine"]["near_cache_mib"] = near_cache_mib
    if processor == "gpu":
        tables["machine"]["processor"] = "gpu"
        del tables["machine"]["threads"]
    tables["overheads"] |= overheads
    return MeasuredMachine.model_validate(tables)


def three_layers():
    """784-64-10 with a ReLU between, without a loss."""
    graph = LayerGraph("three layers", input_shape=(784,))
    x = graph.add("fc1", Dense(units=64), inputs=graph.input)
    x = graph.add("relu", ReLU(), inputs=x)
    graph.add("fc2", Dense(units=10), inputs=x)
    return graph


def predicted(device=None, *, graph=None, batch_size=32, **options):
    """A prediction of three layers on a measured machine."""
    graph = three_layers() if graph is None else graph
    return pm.predict(graph, batch_size=batch_size, device=machine() if device is None else device, **options)
