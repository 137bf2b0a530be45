"""Searches: every row is what predict says, the best is what brute force finds, limits and bad input are kept."""

import dataclasses
import itertools
import json
import math
import re

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.cost.run_totals import run_time
from perfmodel.errors import ArgumentError, PerfmodelError, UnknownNameError
from perfmodel.planning.search.axes import NAMES
from perfmodel.prediction.certainty.ranking import ranking_of

GRAPH = pm.zoo.gpt(layers=8, width=1024, heads=16, sequence_length=1024, vocabulary=8192)
JOB = {"system": "dgx_h100", "global_batch_size": 32, "optimizer": "adamw", "framework": "megatron_core"}
TOTALS = {"tokens": 1e9, "checkpoint_s": 30.0, "failures_per_device_day": 0.01, "restart_s": 300.0}


@pytest.fixture(scope="module")
def found():
    return pm.search(GRAPH, devices=8, **JOB, **TOTALS)


def _held_against_predict(search, ranks):
    for rank in ranks:
        row, p = search.rows[rank], search.found(rank).prediction
        assert row.step_s == pytest.approx(p.step_s, rel=1e-12)
        assert row.memory_bytes == pytest.approx(p.memory.total_bytes, rel=1e-12)
        assert row.mfu == pytest.approx(p.mfu, rel=1e-12)
        assert row.bound_by == p.bottleneck
        assert p.job.device_count == 8
        assert p.counted_workers * p.batch_size == JOB["global_batch_size"]
        assert row.workers * row.micro_batches * row.accumulation_steps * row.micro_batch_size == 32


def test_the_first_the_fullest_and_random_rows_are_predictions(found):
    by_memory = np.argsort([-row.memory_bytes for row in found.rows])
    random = np.random.default_rng(7).choice(len(found), size=12, replace=False)
    _held_against_predict(found, [*range(6), *by_memory[:6].tolist(), *random.tolist()])
    assert len({row.bound_by for row in found.rows}) > 1


def test_rows_are_ranked_and_fit_with_the_reserve(found):
    steps = [row.step_s for row in found.rows]
    assert all(later >= earlier * (1 - 1e-8) for earlier, later in itertools.pairwise(steps))
    capacity = found.best.prediction.memory.capacity_bytes
    assert all(row.memory_bytes <= 0.92 * capacity for row in found.rows)
    assert len(found) > 200
    # a layout is listed once
    assert len({tuple(row[name] for name in found.layouts.space.by_name) for row in found.layouts}) == len(
        found.layouts
    )


def test_brute_force_over_predict_finds_the_same_best():
    asked = {"optimizer": "adamw", "framework": "pytorch_2", "dtype": "bf16", "system": "dgx_h100"}
    tight = pm.load_device("h100_sxm").memory_capacity_bytes
    graph = pm.zoo.gpt(layers=4, width=2048, heads=16, sequence_length=2048, vocabulary=32_000)
    s = pm.search(graph, devices=4, global_batch_size=16, shard_stage=[0, 1, 3], limits={"tensor_size": 2},
                  schedule=["1f1b", "gpipe"], accumulation_steps=1, reserve=0.9, **asked)  # fmt: skip
    best: tuple[float, dict] = (math.inf, {})
    fitting = 0
    for tensor, stages, shard, schedule, recompute, parts, no_sync in itertools.product(
        (1, 2), (1, 2), (0, 1, 3), ("1f1b", "gpipe"), (None, "full"), (1, 2, 4, 8, 16), (False, True)
    ):
        is_again = (stages == 1 and schedule == "gpipe") or (tensor * stages == 4 and shard > 0)
        if is_again or (stages > 1 and shard == 3) or (no_sync and (shard < 3 or parts == 1)):
            continue
        layout = {"workers": 4 // tensor // stages, "tensor_size": tensor, "stages": stages, "shard_stage": shard,
                  "schedule": schedule, "recompute": recompute, "micro_batches": parts, "no_sync": no_sync}  # fmt: skip
        try:
            p = pm.predict(
                graph, global_batch_size=16, parallelism="pipeline", sequence_parallel=True, **layout, **asked
            )
        except PerfmodelError:
            continue
        if p.memory.total_bytes <= 0.1 * tight:
            fitting += 1
            best = min(best, (p.step_s, layout), key=lambda entry: entry[0])
    assert 0 < fitting < s.evaluated_count
    assert len(s) == fitting
    assert s.best.row.step_s == pytest.approx(best[0], rel=1e-12)
    job = s.best.job
    assert (job.workers, job.tensor_size, job.stages) == tuple(best[1][k] for k in ("workers", "tensor_size", "stages"))
    assert "memory" in s.refused


def test_front_and_budgets_are_those_of_all_pairs(found):
    pairs = [(row.step_s, row.memory_bytes) for row in found.rows]
    front = {pair for pair in pairs if not any(o[0] <= pair[0] and o[1] <= pair[1] and o != pair for o in pairs)}
    assert {(row.step_s, row.memory_bytes) for row in found.front} == front
    for budget in np.quantile([memory for _, memory in pairs], [0.0, 0.3, 0.9]):
        least = min(step_s for step_s, memory in pairs if memory <= budget)
        assert found.best_within(budget).row.step_s == pytest.approx(least, rel=1e-8)
    memory = [row.memory_bytes for row in found.by_memory]
    assert memory == sorted(memory)
    with pytest.raises(ArgumentError, match=r"needs least memory, .* needs \d+\.\d+ [MG]B \(got 1"):
        found.best_within(1.0)  # no reserve would help
    for wrong in ("8 GB", -1, math.nan):
        with pytest.raises(ArgumentError, match="memory_bytes must be a finite number above 0"):
            found.best_within(wrong)


@pytest.mark.parametrize("objective", ["time", "money", "energy", "mfu"])
def test_no_layout_of_the_front_is_beaten_and_the_best_is_on_it(objective):
    s = pm.search(GRAPH, devices=[2, 8], objective=objective, limits={"stages": 2, "micro_batch_size": 4}, **JOB)

    def costs(row):
        further = {"energy": [row["energy_j"]] if objective == "energy" else [], "mfu": [-row["mfu"]]}
        return (row["step_s"], row["memory_bytes"], row["usd"], *further.get(objective, ()))

    of_all = np.array(sorted({costs(vars(row)) for row in s.rows}))
    beaten = [(np.all(of_all <= cost, axis=1) & np.any(of_all < cost, axis=1)).any() for cost in of_all]
    shown = {costs(vars(row)) for row in s.front}
    assert np.array(sorted(shown)) == pytest.approx(of_all[~np.array(beaten)])
    assert costs(vars(s.best_row)) in shown
    words = s.front.title.removeprefix("no other is better in ").split(", ")
    assert words == [*dict.fromkeys(("time", "memory", "money", objective))]
    assert f"front of {', '.join(words[:-1])} and {words[-1]}: {len(shown)} layouts" in str(s)


def test_limits_and_fixed_values_are_kept():
    s = pm.search(GRAPH, devices=[4, 8], limits={"stages": 2, "micro_batches": 8}, tensor_size=2, recompute="full",
                  objective="money", usd_per_hour=2.0, **JOB)  # fmt: skip
    jobs = [s.found(rank).job for rank in (0, len(s) // 2, len(s) - 1)]
    assert all(job.stages <= 2 and job.tensor_size == 2 and job.recompute == "full" for job in jobs)
    assert all(row.micro_batches <= 8 for row in s.rows)
    devices = {row.workers * row.tensor_size * row.stages for row in s.rows}
    assert devices == {4, 8}
    usd = [row.usd for row in s.rows]
    assert usd == pytest.approx(sorted(usd), rel=1e-8)
    row = s.rows[0]
    assert row.usd == pytest.approx(row.step_s * row.workers * row.tensor_size * row.stages * 2.0 / 3600, rel=1e-12)


@pytest.mark.parametrize("fed", [{"decode_cores": 64}, {"prefetch": 0}])
def test_rows_that_wait_for_input_are_bound_by_what_predict_names(fed):
    s = pm.search(pm.zoo.alexnet(), system="dgx_a100", devices=2, global_batch_size=16, dataset="imagenet_jpeg", **fed)
    assert any(row.bound_by == "decode" for row in s.rows)
    for rank in range(0, len(s.rows), max(1, len(s.rows) // 4)):
        assert s.rows[rank].bound_by == s.found(rank).prediction.bottleneck


def test_energy_is_that_of_predict():
    s = pm.search(GRAPH, devices=8, objective="energy", **JOB)
    assert len({row.stages for row in s.rows}) > 2
    assert len({row.interleave for row in s.rows}) > 1
    energies = [row.energy_j for row in s.rows]
    assert np.all(np.diff(energies) > -1e-8 * energies[0])
    for rank in (0, len(s) - 1, *np.random.default_rng(3).integers(len(s), size=12).tolist()):
        assert energies[rank] == pytest.approx(s.found(rank).prediction.energy_j(), rel=1e-12)
    assert f"{energies[0]:.4g} J" in str(s)


def test_certainty_is_that_of_the_objective():
    several = {"devices": [1, 8], "tensor_size": 1, "stages": 1, "recompute": None, **JOB}
    for objective, words in (("money", "costs less"), ("mfu", "MFU is above"), ("energy", "takes less energy")):
        s = pm.search(GRAPH, objective=objective, **several)
        values = [getattr(row, {"money": "usd", "mfu": "mfu", "energy": "energy_j"}[objective]) for row in s.rows]
        last = max(rank for rank, row in enumerate(s.rows) if row.workers == 8)
        far = s.ranking(0, last)
        assert s.rows[0].workers == 1  # slower than all on eight devices, and better
        sign = -1 if objective == "mfu" else 1
        assert far.log_ratio == pytest.approx(sign * math.log(values[last] / values[0]))
        assert far.probability > 0.5
        assert f"that it{'s' if objective == 'mfu' else ''} {words}" in str(s)
        of_time = ranking_of(s.best.prediction, s.found(last).prediction)
        assert of_time.probability < 0.01
        if objective == "energy":  # what work takes is not in doubt, so that less is than of the time
            assert far.spread < 0.7 * of_time.spread
        else:
            assert far.spread == pytest.approx(of_time.spread, rel=1e-9)


def test_certainty_cancels_what_both_share(found):
    first, other = found.best.prediction, found.found(len(found) - 1).prediction
    alone = ranking_of(first, first)
    assert (alone.probability, alone.spread) == (0.5, 0.0)
    far = ranking_of(first, other)
    assert far.probability > 0.95
    assert far.log_ratio == pytest.approx(math.log(other.step_s / first.step_s))
    assert ranking_of(other, first).probability == pytest.approx(1 - far.probability)
    assert sum(far.shares.values()) == pytest.approx(1)
    near = found.ranking()
    assert near.spread < first.interval.ratio - 1
    assert 0.5 < found.certainty == near.probability < far.probability


def test_each_layout_has_an_error_of_its_own_and_messages_have_none(found):
    job = found.best.job
    best, other = job.predict(), found.found(1).prediction
    own_s = math.sqrt(2) * 0.057  # of 139 measured layouts of other networks
    assert ranking_of(best, other).spread > own_s
    assert ranking_of(best, other).shares["layout"] > 0.5
    in_one_message = job.replace(bucket_bytes=math.inf).predict()
    same = ranking_of(best, in_one_message)
    assert "layout" not in same.shares
    assert same.spread < own_s
    # products in another type are other kernels
    assert ranking_of(best, job.replace(dtype="fp16").predict()).spread > own_s


def test_memory_per_rank_is_that_of_the_stages(found):
    rank = next(rank for rank, row in enumerate(found.rows) if row.stages == 4 and row.interleave == 1)
    layout = found.found(rank)
    assert layout.memory_per_rank == pytest.approx([row.memory_bytes for row in layout.prediction.stages])
    assert max(layout.memory_per_rank) == pytest.approx(found.rows[rank].memory_bytes, rel=1e-12)


def test_totals_add_up(found):
    t = found.totals
    assert t.step_count == math.ceil(1e9 / (1024 * 32))
    assert t.steps_s == pytest.approx(t.step_count * found.best.row.step_s)
    assert t.days * 86_400 == pytest.approx(t.steps_s + t.evaluation_s + t.checkpoint_s + t.lost_s)
    assert t.device_hours == pytest.approx(8 * 24 * t.days)
    assert t.lost_s > 0 < t.checkpoint_s
    assert found.rows[0].days == pytest.approx(t.days)
    assert t.usd == pytest.approx(found.usd_per_hour * t.device_hours)
    assert found.best.prediction.training_totals(**TOTALS).to_dict() == pytest.approx(t.to_dict())
    assert {type(total) for total in t.to_dict().values()} == {int, float}
    with pytest.raises(ArgumentError, match="tokens"):
        found.best.prediction.training_totals()


@pytest.mark.parametrize("phase", ["forward", "forward_backward"])
def test_a_run_consists_of_whole_steps(phase):
    p = pm.predict(GRAPH, batch_size=4, device="h100_sxm", phase=phase)
    with pytest.raises(ArgumentError, match=f"phase must be step: .* [(]got '{phase}'[)]"):
        p.training_totals(tokens=1e9)


def test_a_run_takes_what_its_simulation_takes():
    """Failures at random against the closed form: work of a day on 512 devices, checkpoints of a minute."""
    pauses = {"checkpoint_s": 60.0, "checkpoint_every_s": 1800.0, "failures_per_device_day": 0.02, "restart_s": 400.0}
    expected = run_time(step_s=2.0, step_count=43_200, device_count=512, **pauses).total_s
    generator, uptime_s = np.random.default_rng(3), 86_400 / (0.02 * 512)
    took = []
    for _ in range(400):
        clock = done = 0.0
        while done < 86_400:
            alive = generator.exponential(uptime_s)
            if alive >= 1860.0:
                clock, done = clock + 1860.0, done + 1800.0
                continue
            clock += alive
            while (again := generator.exponential(uptime_s)) < 400.0:  # a restart may fail too
                clock += again
            clock += 400.0
        took.append(clock)
    assert np.mean(took) == pytest.approx(expected, rel=4 * np.std(took) / np.mean(took) / 20)
    assert expected > 1.2 * 86_400


def test_evaluations_and_checkpoints_without_failures():
    parts = run_time(step_s=1.0, step_count=1000, device_count=8, checkpoint_s=5.0, checkpoint_every_s=100.0,
                     evaluation_s=20.0, evaluate_every=250)  # fmt: skip
    assert tuple(map(float, parts)) == (1000.0, 60.0, 53.0, 0.0)


def test_commands_name_the_layout(found):
    ranks = {(row.tensor_size, row.stages, row.shard_stage, row.schedule): rank for rank, row in enumerate(found.rows)}
    text = found.found(ranks[2, 2, 1, "1f1b"]).command("megatron").replace("\\\n", "")
    for flag in ("--tensor-model-parallel-size 2", "--pipeline-model-parallel-size 2", "--sequence-parallel",
                 "--global-batch-size 32", "--use-distributed-optimizer", "--bf16", "--seq-length 1024"):  # fmt: skip
        assert flag in text
    assert "--use-megatron-fsdp" not in text
    text = found.found(ranks[1, 1, 3, "1f1b"]).command("torchtitan")
    for flag in ("data_parallel_shard_degree 8", "fsdp_reshard_after_forward always", "tensor_parallel_degree 1"):
        assert flag in text
    other = dataclasses.replace(found.best, job=found.found(ranks[1, 2, 0, "1f1b"]).job.replace(schedule="gpipe"))
    with pytest.raises(ArgumentError, match="schedule must be '1f1b' or 'interleaved' for megatron"):
        other.command("megatron")
    with pytest.raises(ArgumentError, match="shard_stage"):
        found.found(ranks[1, 1, 1, "1f1b"]).command("torchtitan")
    with pytest.raises(UnknownNameError):
        found.best.command("megatorn")


@pytest.mark.parametrize(
    ("asked", "argument", "says"),
    [
        ({"global_batch_size": 31, "limits": {"stages": 1, "tensor_size": 2}}, "global_batch_size", "nearest is 32"),
        ({"global_batch_size": 10**9}, "global_batch_size", "or with limits={'micro_batches': 1024}"),
        ({"reserve": 1.5}, "reserve", "below 1"),
        ({"reserve": "8%"}, "reserve", "a number .got '8%'"),
        ({"global_batch_size": "many"}, "global_batch_size", "a whole number"),
        ({"devices": [8, "many"]}, "devices", "a whole number"),
        ({"devices": 80, "machines": 8}, "devices", "at most 64"),
        ({"system": "dgx_a100_x4", "devices": 33}, "devices", "at most 32"),
        ({"limits": {"tensor_size": 0}}, "limits", "tensor_size=1"),
        ({"samples": 10, "tokens": 10}, "samples", "left out"),
        ({"checkpoint_s": 10.0}, "checkpoint_s", "tokens"),
        ({"evaluation_s": 60.0, "tokens": 1e9}, "evaluation_s", "0 without evaluate_every="),
        ({"batch_size": 4}, "batch_size", "global_batch_size"),
        ({"tensor_size": 3}, "tensor_size", "divisors"),
    ],
)
def test_bad_input_is_one_line_with_what_works(asked, argument, says):
    with pytest.raises(ArgumentError, match=says) as refused:
        pm.search(GRAPH, **({"devices": 8} | JOB | asked))
    assert refused.value.argument == argument
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("asked", [{"objective": "tme"}, {"limits": {"stagess": 2}}, {"tensor_sizes": 2}])
def test_unknown_names_are_refused(asked):
    with pytest.raises(UnknownNameError):
        pm.search(GRAPH, devices=8, **(JOB | asked))


def test_nothing_that_fits_says_what_is_missing():
    s = pm.search(GRAPH, devices=1, reserve=0.999, micro_batch_size=32, **JOB)
    assert len(s) == 0
    assert s.best_row is None
    assert "no layout fits" in str(s)
    for asked in (lambda: s.best, lambda: s.best_within(1e9)):
        with pytest.raises(ArgumentError, match=r"reserve must be smaller, or other devices: .* needs"):
            asked()


@pytest.mark.parametrize(
    ("asked", "argument", "says"),
    [
        ({"recompute": 99}, "recompute", "at most 8, the number of blocks"),
        ({"shard_group": 2, "sync": "ring_all_reduce"}, "shard_group", "only 'all_reduce' also adds up the copies"),
    ],
)
def test_where_no_layout_can_be_the_answer_says_why(asked, argument, says):
    s = pm.search(GRAPH, devices=4, stages=1, shard_stage=[1, 2], **(JOB | asked))
    assert (len(s), set(s.refused)) == (0, {argument})
    assert f"no layout fits: {argument} must be" in str(s)
    assert says in str(s)
    for found in (lambda: s.best, lambda: s.best_within(1e9)):
        with pytest.raises(ArgumentError, match=says) as refused:
            found()
        assert refused.value.argument == argument
    assert s.certainty is s.smallest is s.totals is None


def test_short_runs_take_something():
    text = str(pm.search(GRAPH, devices=8, tokens=1e6, limits={"stages": 1, "tensor_size": 1}, **JOB))
    days, hours, usd = re.search(r"the run takes (\S+) days, (\S+) device-hours, (\S+) USD", text).groups()
    assert min(map(float, (days, hours, usd))) > 0
    assert float(hours) == pytest.approx(24 * 8 * float(days), rel=0.02)  # both are rounded


def test_a_result_like_the_others(found, tmp_path):
    assert len(found.to_frame()) == len(found)
    plain = json.loads(found.to_json())
    assert plain["fitting_count"] == len(plain["rows"]) == len(found)
    found.plot(tmp_path / "layouts.png")
    assert (tmp_path / "layouts.png").stat().st_size > 10_000
    assert "layouts" in found._repr_html_()
    assert "sure to" in str(found)


def test_the_command_line_answers_alike(capsys):
    asked = ["gpt", "--option", "layers=8", "--option", "width=1024", "--option", "heads=16", "--option",
             "sequence_length=1024", "--option", "vocabulary=8192", "--system", "dgx_h100", "--devices", "8",
             "--global-batch-size", "32", "--optimizer", "adamw", "--framework", "megatron_core", "--limit", "stages=2",
             "--tensor-size", "1,2"]  # fmt: skip
    assert run(["search", *asked, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    s = pm.search(GRAPH, devices=8, limits={"stages": 2}, tensor_size=[1, 2], **JOB)
    assert shown["best_row"]["step_s"] == pytest.approx(s.best.row.step_s, rel=1e-12)
    assert shown["fitting_count"] == len(s)
    assert run(["search", *asked, "--command", "megatron"]) == 0
    assert "--tensor-model-parallel-size" in capsys.readouterr().out
    assert run(["search", *asked, "--reserve", "1.2"]) == 2
    assert "reserve must be a share of the memory" in capsys.readouterr().err
    assert run(["search", *asked, "--reserve", "50%", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["reserve"] == 0.5


def test_the_help_of_the_command_shows_lists_where_it_takes_them(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["search", "--help"]) == 0
    values = dict(re.findall(r"^\S +--([a-z-]+) +(\S+)", capsys.readouterr().out, re.MULTILINE))
    listed = {name for name, value in values.items() if "," in value}
    assert {"device", "system", "machines", "global-batch-size", "straggler", "reserve"}.isdisjoint(listed)
    assert {"devices", "tensor-size", "framework", "micro-batch-size"} <= listed
    assert values["overlap"] == values["pinned"] == "true,false"


def test_the_table_names_arguments_of_predict():
    from perfmodel.prediction.arguments.table import ARGUMENTS

    assert set(NAMES) - set(ARGUMENTS) == {"devices", "micro_batch_size"}
