"""Plans whose rows search a layout: machines, their number and the layout are chosen together."""

import json

import pytest

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.errors import ArgumentError

NETWORK = {"layers": 2, "width": 2048, "heads": 16, "sequence_length": 4096, "vocabulary": 32_000}
GRAPH = pm.zoo.gpt(**NETWORK)
JOB = {"global_batch_size": 1024, "dtype": "bf16", "optimizer": "adamw", "framework": "megatron_core"}
CANDIDATES = [{"price": 2.0, "system": "dgx_h100", "machines": [1, 2]}]


def plan(**how):
    return pm.plan(GRAPH, **{"candidates": CANDIDATES, "samples": 1_024_000} | JOB | how)


@pytest.fixture(scope="module")
def laid_out():
    return plan()


def test_a_job_that_does_not_fit_has_the_layout_that_a_search_finds(laid_out):
    as_given = plan(layouts="never")
    assert [row.limited_by for row in as_given.rows] == ["memory", "memory"]
    assert [row.workers for row in as_given.rows] == [8, 16]
    assert {change.what for change in as_given.changes} <= {"global_batch_size", "memory_bytes"}
    for machines, row in zip((1, 2), laid_out.rows, strict=True):
        found = pm.search(GRAPH, system="dgx_h100", devices=8 * machines, **JOB)
        assert row.step_s == pytest.approx(found.best.row.step_s, rel=1e-12)
        assert row.hours == pytest.approx(1000 * row.step_s / 3600)
        assert row.usd == pytest.approx(2.0 * 8 * machines * row.hours)
        assert (row.workers, row.instances) == (found.best.job.workers, 8 * machines)
        assert row.layout in repr(found.best)
        assert row.limited_by is None
    assert "layout" in str(laid_out)


def test_deadline_and_budget_choose_machines_and_layout(laid_out):
    one, two = laid_out.rows
    assert (laid_out.best, laid_out.binding) == (one, ())  # twice the machines cost a little more
    hurried = plan(deadline_hours=(one.hours + two.hours) / 2)
    assert (hurried.best.step_s, hurried.binding) == (two.step_s, ("deadline",))
    rich = plan(budget_usd=2 * two.usd)  # with a budget alone, the fastest
    assert rich.best.step_s == two.step_s
    neither = plan(deadline_hours=two.hours / 2, budget_usd=one.usd / 2)
    assert (neither.best, neither.nearest_miss is not None) == (None, True)
    (fewer,) = (change for change in neither.changes if change.what == "samples")
    assert 0 < fewer.needed < 1_024_000


def test_what_is_stated_of_a_layout_stays():
    sharded = plan(shard_stage=1, recompute="full", candidates=[{"price": 2.0, "system": "dgx_h100", "workers": 8}])
    (row,) = sharded.rows
    found = pm.search(GRAPH, system="dgx_h100", devices=8, shard_stage=1, recompute="full", **JOB)
    assert row.step_s == pytest.approx(found.best.row.step_s, rel=1e-12)


def test_layouts_are_searched_only_where_memory_lacks_unless_always():
    small = {"global_batch_size": 16, "samples": 16_000, "candidates": CANDIDATES[0] | {"machines": 1}}
    (given,), (searched,) = plan(**small).rows, plan(**small, layouts="always").rows
    assert given.layout is None
    assert given.step_s == pm.predict(GRAPH, system="dgx_h100", workers=8, **JOB | {"global_batch_size": 16}).step_s
    assert searched.layout is not None
    assert searched.step_s < given.step_s


def test_nothing_that_fits_says_what_the_smallest_layout_lacks():
    large = pm.zoo.gpt(layers=2, width=10_240, heads=80, sequence_length=1024, vocabulary=32_000)
    job = JOB | {"dtype": "fp32", "global_batch_size": 4}
    asked = {"candidates": [{"price": 2.0, "system": "dgx_1_p100", "workers": 2}], "samples": 4000}
    as_given, laid_out = (pm.plan(large, **asked, **job, layouts=layouts) for layouts in ("never", "when_needed"))
    assert laid_out.rows[0].limited_by == "memory"
    assert laid_out.changes[0].needed < as_given.changes[0].needed / 2


@pytest.mark.parametrize(
    ("how", "argument", "says"),
    [
        ({"layouts": "sometimes"}, "layouts", "when_needed"),
        ({"candidates": [{"price": 2.0, "device": "h100_sxm", "machines": 2}]}, "machines", "without a system"),
        ({"candidates": [{"price": 2.0, "system": "dgx_h100", "machines": 0}]}, "machines", "from 1 to"),
    ],
)
def test_bad_input_is_one_line(how, argument, says):
    with pytest.raises((ArgumentError, KeyError), match=says) as refused:
        plan(**how)
    assert argument in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_command_line_plans_layouts(capsys, laid_out):
    asked = [word for name, value in NETWORK.items() for word in ("--option", f"{name}={value}")]
    job = [word for name, value in JOB.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    candidate = ["--candidate", "price=2.0;system=dgx_h100;machines=1,2"]
    assert run(["plan", "gpt", *asked, *job, *candidate, "--samples", "1024000", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["layout"] for row in shown["rows"]] == [row.layout for row in laid_out.rows]
    assert shown["best"]["step_s"] == pytest.approx(laid_out.best.step_s, rel=1e-12)
