"""Every file of the catalogue in another unit of time, energy or money: predictions are the same in that unit.

A constant of code that has a unit, a file's constant used without its own, or a fit that hides one would show here.

All times of the files are divided by a factor and all rates multiplied by it: bandwidths, clocks, peaks, requests,
watts and prices by the hour. Then every time of a job is divided by it, and its bytes, energy and money are as before.
What has no unit of time is as it was: efficiencies, cycles, bytes, and a generation of PCIe, whose rates are files too.

Exceptions, which are times of other kinds and given with the job: ``straggler`` and ``input_variation`` are ratios, and
a measured machine or a fit is of the machine that it was measured on. A factor is a power of two, so that no number is
rounded otherwise and algorithms chosen among equal times remain the same.

``PERFMODEL_FUZZ=5000`` tries that many examples.
"""

import os
import re
import tomllib
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import PerfmodelError
from perfmodel.hardware.spec_files import ENVIRONMENT_VARIABLE, shipped_folder, toml_value
from perfmodel.sync.registry import COLLECTIVES as EVERY

EXAMPLES = settings(max_examples=int(os.environ.get("PERFMODEL_FUZZ", "8")), deadline=None, derandomize=True)
GRAPHS = {name: pm.zoo.build(name) for name in ("alexnet", "fcn5", "lstm32")}
COLLECTIVES = {name: each for name, each in EVERY.items() if each.plays}  # others are forms of them for some wiring
FACTOR = 2.0
KINDS = ("devices", "links", "storage", "datasets", "systems", "libraries", "collectives", "frameworks", "prices")

RATE = re.compile(
    r"per_s(_|$)|_[gmk]hz(_|$)|_mt_per_s|iops(_|$)|_rate_per_core$|_w$|usd_per_(hour|year|gb_month)$|^watts?$"
)
TIME = re.compile(r"_(us|ms|ns|s)$")
MONEY = re.compile(r"usd_per_")
ENERGY = re.compile(r"_(w|pj)$")


def power_of(key, patterns, above):
    """Return the power in which a number's unit has a dimension; a table's name counts for what is in it."""
    return next((power for pattern, power in patterns if pattern.search(key)), above)


def changed(value, factor, patterns, *, key="", power=0):
    power = power_of(key, patterns, power)
    if isinstance(value, dict):
        return {name: changed(inner, factor, patterns, key=name, power=power) for name, inner in value.items()}
    if isinstance(value, list):
        return [changed(inner, factor, patterns, power=power) for inner in value]
    return value * factor**power if power and type(value) in (int, float) else value


def toml(value):
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {toml(inner)}' for key, inner in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return toml_value(value)


def catalogue(folder, factor, patterns):
    """Write all files of the catalogue in another unit; return their folder."""
    for kind in KINDS:
        (folder / kind).mkdir(parents=True)
        for path in (shipped_folder() / kind).glob("*.toml"):
            table = tomllib.loads(path.read_text(encoding="utf-8"))
            table |= {key: changed(value, factor, patterns, key=key) for key, value in table.items() if key != "source"}
            written = "\n".join(f"{key} = {toml(value)}" for key, value in table.items())
            (folder / kind / path.name).write_text(written, encoding="utf-8")
    return str(folder)


@pytest.fixture(scope="module")
def catalogues(tmp_path_factory):
    units = {"time": ((RATE, 1), (TIME, -1)), "money": ((MONEY, 1),), "energy": ((ENERGY, 1),)}
    return {unit: catalogue(tmp_path_factory.mktemp(unit), FACTOR, patterns) for unit, patterns in units.items()}


PLACES = (
    {"device": "gtx_1080", "framework": "torch_423cfba"},
    {"device": "tesla_k80_gk210", "framework": "tensorflow_0_9"},
    {"device": "h100_sxm", "framework": "pytorch_2", "dtype": "bf16"},
    {"device": "i7_3820", "framework": "tensorflow_0_9", "threads": 3},
    {
        "device": "gtx_1080",
        "framework": "pytorch_2",
        "dataset": "imagenet_jpeg",
        "input_from": "sata_ssd_850_pro",
        "decode_cores": 4,
    },
    {"system": "dgx_a100", "framework": "pytorch_2", "workers": 8, "optimizer": "adam"},
    {"system": "dgx_a100", "framework": "pytorch_2", "workers": 4, "shard_stage": 3},
    {"system": "dgx_a100", "framework": "pytorch_2", "machines": 4, "workers": 32, "sync": "all_reduce"},
    {"system": "dgx_a100", "framework": "pytorch_2", "parallelism": "pipeline", "stages": 2, "micro_batches": 4},
    {"system": "dgx_1_p100", "framework": "caffe_cudnn5", "workers": 4, "sync": "parameter_server"},
    {"system": "dgx_1_p100", "framework": "tensorflow_0_9", "workers": 4, "sync": "downpour"},
    {"system": "survey_fig5", "framework": "cntk_1_5_rc", "workers": 4, "sync": "halving_doubling"},
    {
        "system": "gce_n1_standard_4",
        "machines": 3,
        "framework": "tensorflow_0_9",
        "workers": 3,
        "sync": "parameter_server",
    },
    {"system": "gb200_nvl72", "framework": "pytorch_2", "workers": 72, "dtype": "bf16"},
)


@cache
def asked(folder, network, job):
    """Return what a job has of each dimension, by the files of a catalogue; or the kind of its refusal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRONMENT_VARIABLE, folder)
        try:
            p = pm.predict(GRAPHS[network], **dict(job))
        except PerfmodelError as error:
            return type(error)
        seconds = [p.step_s, *p.parts, p.transfer_s, p.sync_s, p.dispatch_s, *(row.seconds for row in p.layers)]
        return {"s": seconds, "B": p.memory.total_bytes, "J": p.energy_j(), "samples/s": p.samples_per_s}


@EXAMPLES
@given(
    network=st.sampled_from(sorted(GRAPHS)), place=st.sampled_from(PLACES), batch_size=st.integers(1, 64),
    phase=st.sampled_from(("step", "forward_backward", "forward")),
)  # fmt: skip
def test_a_job_is_the_same_in_any_unit(catalogues, network, place, batch_size, phase):
    job = (*place.items(), ("batch_size", 4 * batch_size), ("phase", phase))
    stated, faster, warmer = (asked(folder, network, job) for folder in ("", catalogues["time"], catalogues["energy"]))
    if isinstance(stated, type):  # as exchanges of gradients without a backward pass
        assert phase == "forward"
        assert stated == faster == warmer
        return
    units = {"s": 1 / FACTOR, "samples/s": FACTOR}
    for dimension, value in stated.items():
        exact = {"rel": 1e-9, "abs": 0}
        assert faster[dimension] == pytest.approx(np.multiply(value, units.get(dimension, 1)), **exact), dimension
        assert warmer[dimension] == pytest.approx(np.multiply(value, FACTOR if dimension == "J" else 1), **exact)


@pytest.mark.parametrize("price", ["aws_p4d_24xlarge_2020", "gce_n1_standard_4_2016"])
def test_money_follows_the_price_and_an_hour_that_is_shorter_changes_none(catalogues, price, monkeypatch):
    system = pm.load_price(price).system
    costs = {}
    for unit, folder in {"": "", **catalogues}.items():
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, folder)
        p = pm.predict(GRAPHS["alexnet"], batch_size=16, system=system)
        costs[unit] = p.cost_usd(price)
    assert costs["money"] == pytest.approx(FACTOR * costs[""], rel=1e-12)
    assert costs["time"] == pytest.approx(costs[""], rel=1e-9)
    assert costs["energy"] == costs[""]


@EXAMPLES
@given(
    name=st.sampled_from(sorted(set(COLLECTIVES) - {"hierarchical"})), workers=st.integers(1, 70),
    size_bytes=st.floats(0, 1e10), latency_s=st.floats(0, 1e-3), rate=st.floats(1e7, 1e12), adds=st.floats(0, 1e-9),
    power=st.integers(-20, 20),
)  # fmt: skip
def test_bytes_and_bandwidth_together_leave_an_exchange(name, workers, size_bytes, latency_s, rate, adds, power):
    each = {
        factor: COLLECTIVES[name].time(
            size_bytes=factor * size_bytes, worker_count=workers, latency_s=latency_s,
            seconds_per_byte=1 / (factor * rate), reduce_s_per_byte=adds / factor,
        )
        for factor in (1.0, 2.0**power)
    }  # fmt: skip
    assert each[2.0**power] == pytest.approx(each[1.0], rel=1e-12, abs=0)
