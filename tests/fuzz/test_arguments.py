"""Values of the wrong kind for arguments: every verb refuses them with an error of ours, runs no text and never hangs.

``PERFMODEL_FUZZ=100000 pytest tests/fuzz`` tries that many; a failure says its seed, for ``PERFMODEL_FUZZ_SEED``.
"""

import math
import os
import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import PerfmodelError
from perfmodel.prediction.arguments.table import ARGUMENTS

COUNT = int(os.environ.get("PERFMODEL_FUZZ", "1000"))
SEED = int(os.environ.get("PERFMODEL_FUZZ_SEED", "26"))


class Uncomparable:
    """Has no hash, no truth and no order."""

    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError

    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __eq__


class Unshowable:
    def __repr__(self):
        raise RuntimeError


WRONG = (
    *(np.array(content) for content in (4, 4.0, [1, 2], [], ["sgd"], None)),
    *(
        {1},
        frozenset({2}),
        [],
        [1],
        {},
        {"a": 1},
        (),
        (1, 2),
        range(3),
        slice(1),
        memoryview(b"abc"),
        b"x",
        bytearray(),
    ),
    *(1j, math.inf, -math.inf, math.nan, np.float64("nan"), 10**5000, -(10**30), 2**64, 1e300, Fraction(1, 3)),
    *(Decimal(4), np.int8(-4), np.bool_(True), True, None, ..., NotImplemented, object(), int, len, ValueError("x")),
    *("", "\ud800", "a\0b", "x" * 5000, "/", "..", "~nobody/x.toml", "__import__('os').abort()", "1e999", "{", "a=b"),
    *(Uncomparable(), Unshowable()),
)
GRAPH = pm.zoo.lenet5()
JOB = {"batch_size": 4, "device": "gtx_1080", "framework": "caffe_1_0_rc3"}
SPREAD = {"batch_size": 4, "system": "dgx_a100", "workers": 2, "framework": "pytorch_2"}

VERBS = {
    "predict": lambda arguments: pm.predict(GRAPH, **arguments).step_s,
    "Job": lambda arguments: pm.Job(GRAPH, **arguments).replace(batch_size=8),
    "max_batch_size": lambda arguments: pm.max_batch_size(
        GRAPH, **{name: value for name, value in arguments.items() if name != "batch_size"}
    ),
}


def fuzzed(count, seed):
    """Yield a verb and arguments, one or two of which are of the wrong kind."""
    chance = random.Random(seed)
    names = [*ARGUMENTS]
    for _ in range(count):
        wrong = {name: chance.choice(WRONG) for name in chance.sample(names, chance.choice((1, 1, 2)))}
        yield chance.choice([*VERBS]), chance.choice((JOB, SPREAD)) | wrong


def test_a_value_of_the_wrong_kind_is_refused(monkeypatch):
    def run_text(*_, **__):
        raise AssertionError("sympy runs a text")

    monkeypatch.setattr("sympy.parsing.sympy_parser.parse_expr", run_text)
    crashed, refused = [], 0
    for verb, arguments in fuzzed(COUNT, SEED):
        try:
            answer = VERBS[verb](arguments)
            assert verb != "predict" or 0 < answer < math.inf
        except PerfmodelError as error:
            refused += bool(str(error))
        except Exception as error:
            shown = {name: type(value) for name, value in arguments.items()}
            crashed.append(f"{verb}({shown}): {error!r:.200}")
    assert crashed == [], f"seed {SEED}: {len(crashed)} of {COUNT}"
    assert refused > COUNT / 2


@pytest.mark.parametrize("value", [Uncomparable(), Unshowable(), np.array([1, 2]), np.array(["forward"]), [1]])
@pytest.mark.parametrize("name", ["phase", "sync", "optimizer", "recompute", "bucket_bytes", "framework", "batch_size"])
def test_names_and_numbers_are_told_from_what_cannot_be_compared(name, value):
    with pytest.raises(PerfmodelError):
        pm.predict(GRAPH, **JOB | {name: value})


@pytest.mark.parametrize("kind", ["name", "nul", "folder", "pipe", "loop", "/dev/zero"])
@pytest.mark.parametrize("load", [pm.load_device, pm.load_framework, pm.load_calibration])
def test_a_path_to_no_spec_file_is_refused(load, kind, tmp_path):
    path = {"name": "x" * 5000 + ".toml", "nul": "a\0b.toml", "/dev/zero": "/dev/zero"}.get(kind, tmp_path / "x.toml")
    made = {"folder": os.mkdir, "pipe": os.mkfifo, "loop": lambda link: link.symlink_to(link)}
    if kind in made:
        made[kind](path)
    with pytest.raises(PerfmodelError) as refused:
        load(path)
    assert len(str(refused.value)) < 1000
