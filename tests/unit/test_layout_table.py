"""A table of layouts: what its report says follows from its rows."""

import csv

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import TableError
from perfmodel.validation.reports import layouts
from perfmodel.validation.reports.layouts import balanced_accuracy, layout_report
from perfmodel.validation.scores.metrics import rank_correlation

HEADER = [
    *("model", "sequence_length", "gpus", "global_batch_samples", "micro_batch_samples", "tensor_size", "stages"),
    *("activation_checkpointing", "kernels", "step_s", "outcome", "mfu"),
]

SIZE = {"width": 1024, "heads": 8, "key_heads": 8, "layers": 4, "intermediate": 2816}
"""Made up, and fast."""


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setitem(layouts.SIZES, "llama_13b", SIZE)
    layouts._graph.cache_clear()
    rows = [("llama_13b", 2048, 8, 64, micro, tensor, 1, "disabled", "flash_attention2", 1.0, "timed", 0.5)
            for micro, tensor in ((1, 1), (1, 2), (2, 2))]  # fmt: skip
    rows.append(("llama_13b", 2048, 8, 64, 64, 8, 1, "disabled", "torch", "", "OOM Error", ""))
    rows.append(("llama_13b", 2048, 8, 64, 1, 1, 1, "disabled", "other", "", "Kernel not available", ""))
    path = tmp_path / "made_up.csv"

    def write(times):
        listed = [(*row[:9], time, *row[10:]) for row, time in zip(rows, times, strict=False)] + rows[len(times) :]
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows([HEADER, *listed])
        return path

    yield write
    layouts._graph.cache_clear()


def test_errors_ranks_and_choice_follow_from_the_rows(table):
    report = layout_report(table([1.0, 1.0, 1.0]))
    predicted = np.array([row.predicted_s for row in report.rows if row.ran])
    assert len(predicted) == 3
    assert len(report.rows) == 4
    assert "1 layout whose" in report.not_scored
    assert report.mape == pytest.approx(100 * abs(predicted - 1).mean())
    exact = layout_report(table(predicted.tolist()))
    assert exact.mape == pytest.approx(0, abs=1e-9)
    note = next(part.note for part in exact.parts if part.part.startswith("llama_13b"))
    assert "rank correlation 1.00" in note
    assert "first choice 0.0 % longer" in note
    turned = layout_report(table((2 - predicted).tolist()))
    note = next(part.note for part in turned.parts if part.part.startswith("llama_13b"))
    assert "rank correlation -1.00" in note
    assert "missed" in note


def test_a_network_that_nobody_knows_is_refused(table, monkeypatch):
    path = table([1.0])
    monkeypatch.delitem(layouts.SIZES, "llama_13b")
    with pytest.raises(TableError, match="llama_30b"):
        layout_report(path)


def test_figures_by_hand():
    assert rank_correlation([3.0, 1.0, 2.0], [30.0, 10.0, 20.0]) == pytest.approx(1)
    assert balanced_accuracy([True] * 4, [True, True, True, False]) == 0.5
    assert balanced_accuracy([True], [True]) == 1.0


def test_the_table_is_known_and_needs_a_folder():
    with pytest.raises(pm.errors.ArgumentError, match=r"llm/layouts_a100\.csv"):
        pm.validate("layouts_a100")


def test_the_verb_answers_with_layouts_that_took_no_time(table):
    file = table([1.0, 1.0, 1.0])
    (file.parent / "llm").mkdir()
    file.rename(file.parent / "llm" / "layouts_a100.csv")
    report = pm.validate("layouts_a100", data=file.parent)
    assert [row.measured_s for row in report.rows] == [1.0, 1.0, 1.0, None]


def test_reliability_counts_right_pairs_by_their_certainty():
    pairs = [layouts._Pair(0.8, True), layouts._Pair(0.8, False), layouts._Pair(1.0, True), layouts._Pair(0.5, False)]
    told = layouts._reliability(pairs)
    assert told == "pairs ranked right: 50 to 65 % sure 0 of 1, 75 to 85 % sure 1 of 2, 95 to 100 % sure 1 of 1"


def test_checkpointed_modules_all_run_again_but_the_loss(table):
    graph, plain = (layouts._graph("llama_13b", 128, "fused", checkpointed=on) for on in (True, False))
    regions = {node.usage.recomputed_in for node in graph.layers if not node.layer.is_loss}
    assert len(regions) == 4 + 3  # blocks, and the table, the last norm and the head
    assert {node.usage.recomputed_in for node in graph.layers if node.layer.is_loss} == {None}
    assert graph.parameter_count == plain.parameter_count
