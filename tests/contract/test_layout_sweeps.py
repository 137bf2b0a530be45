"""Sweeps over layouts: rows are what predict says, refusals too, and no row asks predict."""

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.cost import pipeline_ends
from perfmodel.errors import ArgumentError, PerfmodelError
from perfmodel.planning.sweeps import stacks, tasks
from perfmodel.prediction.device.step_time import PARTS, TOTALS

GPT = pm.zoo.gpt(layers=4, width=256, heads=4, sequence_length=128, vocabulary=512)
GRID = {
    "system": "dgx_a100_x4", "devices": 32, "dtype": "bf16", "optimizer": "adam", "framework": "pytorch_2",
    "parallelism": "pipeline", "stages": [1, 2, 4], "tensor_size": [1, 2, 8], "shard_stage": [0, 1, 2, 3],
    "schedule": ["1f1b", "gpipe", "interleaved"], "interleave": [1, 2], "recompute": [None, "full"],
    "micro_batches": [1, 2, 6, 8], "accumulation_steps": [1, 2], "batch_size": [16, 24, 4096],
}  # fmt: skip
NORMAL = {"distribution": "normal", "cv": 0.2}
SMALL = {"batch_size": [16, 32], "system": "dgx_a100", "framework": "pytorch_2"}
SPREAD = {
    **SMALL, "parallelism": "pipeline", "stages": [1, 2], "tensor_size": [1, 2], "workers": [1, 2],
    "micro_batches": [1, 4],
}  # fmt: skip
JOBS = {
    "systems": {**SPREAD, "system": ["dgx_a100", "dgx_a100_x4"], "schedule": ["1f1b", "interleaved"],
                "interleave": [1, 2]},
    "strategies": {**SPREAD, "sync": ["none", "all_reduce", "hierarchical", "parameter_server", "downpour", "mixed"]},
    "messages": {**SPREAD, "bucket_bytes": [0, 25e6, "merged"], "overlap": [True, False]},
    "stragglers": {**SPREAD, "straggler": [None, NORMAL], "sync": ["ring_all_reduce", "downpour"]},
    "input": {**SPREAD, "dataset": [None, "imagenet_jpeg"], "prefetch": [0, 1], "input_from": "memory"},
    "phases": {**SPREAD, "phase": ["forward", "forward_backward", "step"], "shard_stage": [0, 1, 3]},
    "tensors": {**SMALL, "parallelism": "tensor", "tensor_size": [1, 2, 4], "workers": [1, 2],
                "sequence_parallel": [False, True], "accumulation_steps": [1, 2]},
    "global": {**SMALL, "batch_size": None, "global_batch_size": [64, 96, 100], "workers": [1, 2, 8],
               "accumulation_steps": [1, 2, 4], "shard_stage": [0, 2, 3]},
    "places": {"batch_size": [16, 32], "device": ["a100_40_sxm", "xeon_platinum_8480"], "micro_batches": [1, 2, 3]},
    "models": {**SMALL, "parallelism": "model", "stages": [1, 2, 3], "accumulation_steps": [1, 2], "workers": [1, 2]},
}  # fmt: skip
COLUMNS = ["step_s", "samples_per_s", "memory_bytes", *PARTS, *TOTALS]


def assert_rows_are_predictions(s, rows):
    """Hold rows against predict by itself; return how many can be."""
    possible = 0
    for index in rows.tolist():
        row = s.row(index)
        try:
            p = s.prediction(index)
        except PerfmodelError as error:
            assert np.isnan(row["step_s"])
            assert not row["fits"]
            assert row["reason"] == str(error)  # noqa: PT017 - rows that can be go on below
            continue
        for name in ("step_s", *PARTS, *TOTALS):
            assert row[name] == pytest.approx(getattr(p, name), rel=0, abs=1e-12 * p.step_s), name
        assert row["samples_per_s"] == pytest.approx(p.samples_per_s, rel=1e-12)
        assert row["memory_bytes"] == pytest.approx(p.memory.total_bytes, rel=1e-12)
        assert row["fits"] == (p.memory.fits is not False)
        possible += 1
    return possible


@pytest.fixture
def together(monkeypatch):
    """Let no row be answered by itself."""
    monkeypatch.setattr(tasks, "predict", lambda *_, **__: pytest.fail("not timed together"))


def test_rows_of_the_grid_are_predictions_and_refusals_are_counted(together):
    s = pm.sweep(GPT, columns=COLUMNS, **GRID)
    rows = np.random.default_rng(1).choice(len(s), size=100, replace=False)
    assert assert_rows_are_predictions(s, rows) > 15
    fits = int(np.count_nonzero(s["fits"]))
    assert sum(s.refused.values()) == len(s) - fits
    assert set(s.refused) >= {"interleave", "tensor_size", "micro_batches", "shard_stage"}
    assert f"{len(s):,} configurations, {fits:,} of which fit; refused: " in repr(s)
    assert f"{s.refused['tensor_size']:,} (tensor_size)" in repr(s)


@pytest.mark.parametrize("name", ["systems", "messages", "stragglers", "input"])
def test_rows_are_alike_however_many_are_composed_at_once(name, monkeypatch):
    whole = pm.sweep(GPT, columns=COLUMNS, **JOBS[name])
    pieces = []
    monkeypatch.setattr(stacks, "VALUES_AT_ONCE", 3)
    cut = stacks.StackRows.pieces
    monkeypatch.setattr(stacks.StackRows, "pieces", lambda rows: pieces.append(list(cut(rows))) or pieces[-1])
    s = pm.sweep(GPT, columns=COLUMNS, **JOBS[name])
    assert max(map(len, pieces)) > 4
    for column in COLUMNS:
        np.testing.assert_array_equal(s[column], whole[column], err_msg=column)


@pytest.mark.parametrize("jobs", JOBS)
def test_rows_of_layouts_of_all_kinds_are_predictions(jobs):
    graph = pm.zoo.vgg16() if jobs in ("input", "models", "places") else GPT
    s = pm.sweep(graph, columns=COLUMNS, **JOBS[jobs])
    rows = np.random.default_rng(2).choice(len(s), size=min(24, len(s)), replace=False)
    assert assert_rows_are_predictions(s, rows) > 3


def test_rounding_does_not_decide_which_of_two_equal_devices_a_row_shows():
    # two stages work equally long on different parts; arrays and floats sum them in different orders
    s = pm.sweep(
        pm.zoo.gpt(layers=6, width=512, heads=8, sequence_length=512, vocabulary=2048, tied=True),
        columns=COLUMNS, system="dgx_h100", machines=4, dtype="bf16", framework="pytorch_2_compiled", batch_size=16,
        sync="all_reduce", parallelism="pipeline", stages=4, schedule="gpipe", micro_batches=[1, 4, 8],
        shard_stage=2, recompute="selective",
    )  # fmt: skip
    assert assert_rows_are_predictions(s, np.arange(len(s))) == len(s)


def test_devices_are_filled_with_workers():
    s = pm.sweep(
        GPT, batch_size=8, system="dgx_a100_x4", devices=[8, 32], parallelism="pipeline", stages=[1, 3],
        tensor_size=[2, 4], micro_batches=4,
    )  # fmt: skip
    assert [s.space.arguments(index)["workers"] for index in (0, 1, 2, 4, 5, 6, 7)] == [4, 2, 1, 16, 8, 5, 2]
    assert "devices must be at least the 12" in s.row(3)["reason"]
    row, p = s.row(7), s.prediction(7)
    assert row["step_s"] == pytest.approx(p.step_s, rel=1e-12)
    assert p.worker_count == 2


def test_a_row_of_too_few_devices_shows_what_was_given():
    given = {"batch_size": 8, "system": "dgx_a100", "parallelism": "pipeline", "micro_batches": 4, "tensor_size": 4}
    s = pm.sweep(GPT, **given, devices=8, stages=[1, 4])
    assert s.space.arguments(0)["workers"] == 2
    arguments = s.space.arguments(1)
    assert {name: arguments[name] for name in ("devices", "stages", "tensor_size")} == {
        "devices": 8, "stages": 4, "tensor_size": 4,
    }  # fmt: skip
    with pytest.raises(ArgumentError, match="devices must be at least the 16 devices of one worker"):
        s.prediction(1)


@pytest.mark.parametrize("counted", ["workers", "devices"])
def test_what_a_parallelism_takes_may_depend_on_the_number_of_workers(counted):
    s = pm.sweep(
        pm.zoo.alexnet(), columns=COLUMNS, batch_size=16, system="dgx_a100", parallelism="hybrid", micro_batches=[1, 4],
        **{counted: [1, 2]},
    )  # fmt: skip
    assert assert_rows_are_predictions(s, np.arange(len(s))) == 3


def test_workers_and_the_devices_that_they_fill_are_not_given_both():
    with pytest.raises(ArgumentError, match="must not be given with devices="):
        pm.sweep(GPT, **SMALL, devices=8, workers=[1, 2])


def test_more_batch_sizes_take_no_more_turns(monkeypatch):
    """A long axis grows in a line at most: what is structural is done as often for many values as for few."""
    walked = []
    ends_of = pipeline_ends._ends_together
    monkeypatch.setattr(pipeline_ends, "_ends_together", lambda some: walked.extend(some) or ends_of(some))
    counts = []
    for count in (4, 400):
        walked.clear()
        axes = {**SMALL, "parallelism": "pipeline", "stages": 2, "micro_batches": [1, 2]}
        assert len(pm.sweep(GPT, **axes | {"batch_size": range(2, 2 * count + 1, 2)})) == 2 * count
        counts.append(len(walked))
    assert counts[0] == counts[1] > 0


def test_all_orders_of_a_shape_are_played_at_once(monkeypatch):
    calls = []
    ends_of = pipeline_ends._ends_together
    monkeypatch.setattr(pipeline_ends, "_ends_together", lambda some: calls.append(len(some)) or ends_of(some))
    axes = {**SMALL, "parallelism": "pipeline", "stages": 2, "batch_size": [8, 16]}
    s = pm.sweep(GPT, **axes, columns=COLUMNS, schedule=["1f1b", "gpipe"], micro_batches=[1, 2, 4, 8])
    assert calls == [8]
    assert assert_rows_are_predictions(s, np.arange(len(s))) == len(s) == 16


@pytest.mark.parametrize("workers", [[1, 2], [2, 1]], ids=str)
@pytest.mark.parametrize(
    "layout", [{"shard_stage": [0, 1]}, {"accumulation_steps": [1, 2]}, {"parallelism": "pipeline"}], ids=str
)
def test_dies_of_a_board_have_the_clock_that_the_devices_of_their_row_leave_them(layout, workers):
    s = pm.sweep(pm.zoo.alexnet(), columns=COLUMNS, system="k80_card", workers=workers, batch_size=16, **layout)
    assert_rows_are_predictions(s, np.arange(len(s)))


@pytest.mark.parametrize("passes", [1, 3])
def test_units_of_chunks_that_are_alike_stay_apart_whatever_ran_before_on_the_network(passes):
    """Chunks that share their lowered form share names of layers too: their units were joined where they meet."""
    job = {
        "system": "dgx_h100",
        "workers": 4,
        "parallelism": "pipeline",
        "stages": 2,
        "batch_size": 24,
        "schedule": "interleaved",
        "interleave": 3,
        "micro_batches": 2,
        "accumulation_steps": passes,
        "framework": "pytorch_2",
        "shard_stage": 2,
        "sync": "all_reduce",
    }
    sizes = {"layers": 4, "width": 1024, "heads": 8, "key_heads": 2, "sequence_length": 1024, "vocabulary": 4096}
    sizes["intermediate"] = 2816
    fresh = pm.predict(pm.zoo.llama(**sizes), dtype="fp32", **job)
    used = pm.zoo.llama(**sizes)
    pm.predict(used, dtype="fp16", **job)
    assert pm.predict(used, dtype="fp32", **job).parts == fresh.parts
    messages = [len(device.schedule.chunks) for device in fresh.basis.timed.composed.devices]
    assert messages == [3, 3]
