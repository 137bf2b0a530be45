"""Why two predictions differ: every term, every operation, every input, in any unit; and its command and figure."""

import doctest
import json
import math
import re
import shlex
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.prediction.device.step_time import PARTS
from perfmodel.presentation.figures import waterfall
from perfmodel.presentation.tables import Table


@pytest.fixture(scope="module")
def alexnet():
    return pm.zoo.alexnet()


JOB = {"batch_size": 32, "system": "survey_fig5", "workers": 4, "framework": "tensorflow_1_1"}
PAIRS = {
    "device": ({"device": "gtx_980", "batch_size": 16}, {"device": "gtx_1080", "batch_size": 16}),
    "batch": ({"device": "gtx_980", "batch_size": 16}, {"device": "gtx_980", "batch_size": 128}),
    "phase": ({"device": "gtx_980", "batch_size": 16}, {"device": "gtx_980", "batch_size": 16, "phase": "forward"}),
    "cpu": ({"device": "gtx_980", "batch_size": 16}, {"device": "i7_3820", "batch_size": 16, "threads": 2}),
    "sync": (JOB | {"sync": "ring_all_reduce"}, JOB | {"sync": "parameter_server", "overlap": False}),
    "downpour": (JOB | {"sync": "ring_all_reduce"}, JOB | {"sync": "downpour", "push_period": 4}),
    "workers": (JOB, JOB | {"workers": 1}),
    "input": (JOB | {"dataset": "imagenet_jpeg"}, JOB | {"dataset": "imagenet_jpeg", "prefetch": 0, "decode_cores": 2}),
    "spread": (JOB, JOB | {"workers": 1, "parallelism": "pipeline", "stages": 4, "micro_batches": 4}),
}


@pytest.fixture(scope="module", params=PAIRS, ids=str)
def pair(request, alexnet):
    return request.param, *(pm.predict(alexnet, **given) for given in PAIRS[request.param])


def samples(p):
    return p.batch_size * p.counted_workers


def test_terms_sum_to_the_difference_and_are_those_of_the_predictions(pair):
    _, first, second = pair
    for per, divisors in (("step", (1, 1)), ("sample", (samples(first), samples(second)))):
        c = pm.compare(first, second, per=per)
        assert [row.term for row in c.terms] == list(PARTS)
        for row in c.terms:
            assert row.first_s == pytest.approx(getattr(first, row.term) / divisors[0], rel=1e-15)
            assert row.second_s == pytest.approx(getattr(second, row.term) / divisors[1], rel=1e-15)
            assert row.change_s == row.second_s - row.first_s
        difference = second.step_s / divisors[1] - first.step_s / divisors[0]
        assert c.total.change_s == pytest.approx(difference, rel=1e-12)
        scale = max(c.total.first_s, c.total.second_s)
        assert math.fsum(row.change_s for row in c.terms) == pytest.approx(difference, abs=1e-14 * scale)
        assert c.ratio == pytest.approx(second.step_s / divisors[1] / (first.step_s / divisors[0]), rel=1e-12)


def test_seconds_are_of_a_sample_where_steps_take_different_numbers_of_them(pair):
    name, first, second = pair
    c = pm.compare(first, second)
    assert c.per == ("step" if samples(first) == samples(second) else "sample")
    assert (c.per == "sample") == (name in {"batch", "workers", "spread"})
    if c.per == "sample":
        assert c.ratio == pytest.approx(first.samples_per_s / second.samples_per_s, rel=1e-12)


def test_swapped_predictions_change_the_sign_and_nothing_else(pair):
    _, first, second = pair
    there, back = pm.compare(first, second), pm.compare(second, first)
    assert [row.change_s for row in there.terms] == [-row.change_s for row in back.terms]
    assert there.total.change_s == -back.total.change_s
    assert {(r.layer, r.phase, r.role): r.change_s for r in there.layers} == {
        (r.layer, r.phase, r.role): -r.change_s for r in back.layers
    }
    assert [(r.input, r.first, r.second) for r in there.inputs] == [(r.input, r.second, r.first) for r in back.inputs]


def test_a_prediction_compared_with_itself_differs_in_nothing(alexnet):
    given = {"device": "gtx_980", "batch_size": 16}
    c = pm.compare(pm.predict(alexnet, **given), pm.predict(alexnet, **given))
    assert not len(c.inputs)
    assert c.total.change_s == 0 == sum(abs(row.change_s) for row in [*c.terms, *c.layers])
    assert c.ratio == 1
    assert "Both take" in str(c)


def test_operations_sum_to_the_terms_that_are_kernels(alexnet):
    for first, second in (PAIRS["device"], PAIRS["batch"]):
        predictions = [pm.predict(alexnet, **given) for given in (first, second)]
        c = pm.compare(*predictions, per="step")
        kernels = [
            sum(getattr(p, n) for n in ("compute_s", "memory_bound_s", "update_s", "launch_s")) for p in predictions
        ]
        assert math.fsum(row.change_s for row in c.layers) == pytest.approx(kernels[1] - kernels[0], rel=1e-9)
        assert [abs(row.change_s) for row in c.layers] == sorted((abs(r.change_s) for r in c.layers), reverse=True)


def test_operations_of_one_network_alone_count_from_or_to_zero(alexnet):
    given = {"device": "gtx_980", "batch_size": 16}
    c = pm.compare(pm.predict(alexnet, **given), pm.predict(pm.zoo.vgg16(), **given))
    gone = [row for row in c.layers if row.second_kernel is None]
    assert {row.layer for row in gone} >= {"conv1", "pool5"} - {
        row.layer for row in pm.predict(pm.zoo.vgg16(), **given).layers
    }
    assert gone
    assert all(row.second_s == 0 and row.change_s == -row.first_s for row in gone)
    assert any(row.first_kernel is None and row.change_s == row.second_s > 0 for row in c.layers)
    names = {row.input: row for row in c.inputs}
    assert (names["network"].first, names["network"].second) == ("alexnet", "vgg16")
    assert names["parameter_count"].second == pm.zoo.vgg16().parameter_count


ASKED = {
    "device": {"target", "device", "peak_flop_per_s", "memory_bandwidth_bytes_per_s", "memory_capacity_bytes"},
    "batch": {"batch_size"},
    "phase": {"phase"},
    "sync": {"sync", "overlap"},
    "downpour": {"sync", "push_period"},
    "workers": {"workers", "target"},
    "input": {"prefetch", "decode_cores"},
    "spread": {"workers", "parallelism", "stages", "micro_batches"},
}


@pytest.mark.parametrize("name", ASKED)
def test_inputs_are_what_was_asked_differently_and_nothing_else(name, alexnet):
    c = pm.compare(*(pm.predict(alexnet, **given) for given in PAIRS[name]))
    assert {row.input for row in c.inputs} == ASKED[name]


VARYING = {"straggler": {"distribution": "normal", "cv": 0.1}}
CHANGED = [
    ({}, {"accumulation_steps": 2}, {"accumulation_steps": (1, 2)}),
    ({}, {"shard_stage": 1}, {"shard_stage": (0, 1)}),
    ({}, {"parallelism": "model", "stages": 4, "workers": 2}, ["parallelism", "stages", "workers"]),
    ({}, {"parallelism": "tensor", "tensor_size": 2, "workers": 4}, ["parallelism", "tensor_size", "workers"]),
    ({}, {"sync": "none"}, {"sync": ("ring_all_reduce", "none")}),
    ({}, {"sync": "parameter_server"}, ["sync"]),
    ({}, {"sync": "bounded_staleness", "staleness_bound": 2}, ["sync", "staleness_bound"]),
    ({"overlap": False}, {"sync": "downpour"}, ["sync", "overlap"]),
    ({"framework": "pytorch_2"}, {"framework": "pytorch_2", "sync": "downpour"}, ["sync"]),  # in messages of its own
    (VARYING, VARYING | {"sync": "downpour"}, ["sync"]),
    ({}, VARYING | {"backup_workers": 1}, ["straggler", "backup_workers"]),
    ({"sync": "hierarchical", "group_size": 4}, {"sync": "hierarchical", "group_size": 2}, {"group_size": (4, 2)}),
    ({"sync": "mixed"}, {"sync": "mixed", "group_size": 8}, []),  # all of them, said or not
    ({"sync": "mixed"}, {"sync": "mixed", "workers": 16}, ["target", "workers"]),
    ({}, {"phase": "forward"}, ["phase"]),
    ({}, {"dataset": "imagenet_jpeg"}, ["dataset"]),
    ({"dataset": "imagenet_jpeg"}, {"dataset": "imagenet_jpeg", "input_from": "samsung_960_pro"}, ["input_from"]),
]


@pytest.mark.parametrize(("first", "second", "told"), CHANGED)
def test_an_option_that_only_one_of_them_takes_was_not_changed_unless_somebody_gave_it(first, second, told, alexnet):
    job = {"system": "survey_fig6", "workers": 8, "batch_size": 32}
    both = [pm.predict(alexnet, **{**job, **given}) for given in (first, second)]
    for ends in (both, both[::-1]):
        inputs = pm.compare(*ends).inputs
        assert {row.input for row in inputs} == set(told)
        if isinstance(told, dict):
            values = {row.input: (row.first, row.second) for row in inputs}
            assert values == {name: pair if ends is both else pair[::-1] for name, pair in told.items()}


def test_every_number_of_a_spec_file_that_was_changed_is_found(alexnet):
    """A device that bears the same name, and differs in one number: names alone would say that nothing differs."""
    device = pm.load_device("gtx_1080")
    memory = device.memory.model_copy(update={"bandwidth_gb_per_s": 640.0})
    faster = device.model_copy(update={"memory": memory})
    c = pm.compare(*(pm.predict(alexnet, batch_size=16, device=each) for each in (device, faster)))
    assert c.total.change_s < 0
    found = {row.input: (row.first, row.second) for row in c.inputs}
    assert found[f"{device.name}: memory.bandwidth_gb_per_s"] == (320.0, 640.0)
    # and the bandwidth that it makes, which takes power from the clock
    assert len(found) == 3
    assert "memory_bandwidth_bytes_per_s" in found
    slower, faster = found["peak_flop_per_s"][::-1]
    assert 0.95 * faster < slower < faster
    assert "640.0 GB/s" in str(c)


def test_memory_is_that_of_both(pair):
    _, first, second = pair
    c = pm.compare(first, second)
    total = next(row for row in c.memory if row.holds == "total")
    assert (total.first_bytes, total.second_bytes) == (first.memory.total_bytes, second.memory.total_bytes)
    others = [row for row in c.memory if row.holds != "total"]
    assert sum(row.change_bytes for row in others) == pytest.approx(total.change_bytes, abs=1)


def test_text_html_frame_and_dict_say_the_same(pair):
    pytest.importorskip("pandas")
    _, first, second = pair
    c = pm.compare(first, second)
    text = str(c)
    assert first.target in text
    assert second.target in text
    assert text.count("[") >= 3
    assert "<table" in c._repr_html_()
    assert "<script" not in c._repr_html_()
    frame = c.to_frame()
    assert frame["change_s"].sum() == pytest.approx(c.total.change_s, rel=1e-9, abs=1e-15)
    plain = json.loads(json.dumps(c.to_dict()))
    assert plain["total"]["change_s"] == c.total.change_s
    assert len(plain["layers"]) == len(c.layers)
    assert repr(c).startswith("<Comparison")


def test_columns_that_are_compared_share_a_unit():
    from perfmodel.planning.comparison import TermChange

    rows = [TermChange("a", "a", 2.0, 0.003, -1.997)]
    heading = Table(rows, one_unit=("first_s", "second_s", "change_s")).to_text().splitlines()[0]
    assert heading.count("[s]") == 3
    assert Table(rows).to_text().splitlines()[0].count("[s]") == 2


def test_the_waterfall_ends_where_the_second_begins(pair):
    _, first, second = pair
    c = pm.compare(first, second)
    axes = c.plot().axes[0]
    bars = axes.patches
    assert len(bars) == 2 + sum(1 for row in c.terms if row.change_s)
    unit = bars[0].get_width() / c.total.first_s
    assert bars[-1].get_width() == pytest.approx(c.total.second_s * unit)
    reached = bars[0].get_width()
    changes = sorted((row.change_s for row in c.terms if row.change_s), key=lambda change: -abs(change))
    for bar, change in zip(bars[1:-1], changes, strict=True):
        ends = bar.get_x(), bar.get_x() + bar.get_width()
        assert min(abs(reached - end) for end in ends) < 1e-9 * bars[0].get_width() + 1e-12
        reached += change * unit
    assert reached == pytest.approx(bars[-1].get_width())


def test_a_waterfall_is_saved(tmp_path, alexnet):
    c = pm.compare(*(pm.predict(alexnet, **given) for given in PAIRS["device"]))
    c.plot(tmp_path / "c.png")
    assert (tmp_path / "c.png").stat().st_size > 10_000
    with pytest.raises(ArgumentError, match="first_s"):
        waterfall(0.0, {}, ends=("a", "b"), title="")


def test_what_is_no_prediction_is_refused(alexnet):
    p = pm.predict(alexnet, device="gtx_980", batch_size=16)
    with pytest.raises(ArgumentError, match=r"second must.*a Prediction"):
        pm.compare(p, p.to_dict())
    with pytest.raises(UnknownNameError, match="sample"):
        pm.compare(p, p, per="samples")


COMMAND = ["compare", "alexnet", "--device", "gtx_980", "--batch-size", "16", "--framework", "caffe_1_0_rc3"]


def test_the_command_compares_what_it_was_given(capsys, alexnet, tmp_path):
    plot = tmp_path / "w.svg"
    assert run([*COMMAND, "--with", "device=gtx_1080", "--with", "batch-size=32", "--json", "--plot", str(plot)]) == 0
    found = json.loads(capsys.readouterr().out)
    first, second = (
        pm.predict(alexnet, device=device, batch_size=size, framework="caffe_1_0_rc3")
        for device, size in (("gtx_980", 16), ("gtx_1080", 32))
    )
    assert found["per"] == "sample"
    assert found["total"]["change_s"] == pytest.approx(second.step_s / 32 - first.step_s / 16, rel=1e-12)
    assert plot.stat().st_size > 1000


def test_the_command_takes_another_system_network_or_any_argument(capsys, alexnet):
    words = [*COMMAND, "--set", "pinned=false", "--with", "system=survey_fig5", "--with", "workers=2"]
    assert run([*words, "--with", "network=vgg16", "--with", "pinned=", "--per", "step", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    given = {"batch_size": 16, "framework": "caffe_1_0_rc3"}
    second = pm.predict(pm.zoo.vgg16(), system="survey_fig5", workers=2, **given)
    assert found["total"]["second_s"] == second.step_s
    assert found["total"]["first_s"] == pm.predict(alexnet, device="gtx_980", pinned=False, **given).step_s
    assert {"network", "system", "workers", "pinned"} <= {row["input"] for row in found["inputs"]}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--with", "devise=gtx_1080"], "did you mean 'device'"),
        (["--with", "device"], "key=value"),
        (["--with", "device=gtx_108O"], "gtx_1080"),
        (["--set", "batchsize=4", "--with", "batch-size=2"], "did you mean 'batch_size'"),
        (["--with", "batch-size=0"], "batch_size"),
        (["--with", "batch-size=8", "--per", "epoch"], "unknown per"),
        (["--with", "batch-size=8", "--with", "batch_size=9"], "--with must not repeat a key"),
        (["--set", "workers=2", "--with", "batch-size=8", "--set", "workers=4"], "--set must not repeat a key"),
        (
            ["--option", "classes=5", "--option", "classes=6", "--with", "batch-size=8"],
            "--option must not repeat a key",
        ),
        (["--with", "network="], "--with must be network=name"),
        ([], "--with"),
    ],
)
def test_bad_words_are_refused_with_the_nearest(words, told, capsys):
    assert run([*COMMAND, *words]) == 2
    assert told.lower() in capsys.readouterr().err.lower()


def test_the_page_says_what_the_code_computes():
    page = Path(__file__).parents[2] / "docs" / "comparing.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried > 5
    assert not failed
    for line in re.findall(r"^perfmodel (compare .*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        assert run([word for word in shlex.split(line) if word not in {"--plot", "why.png"}]) == 0
