"""validate() and its report: independence of the constants, subsets, scores recomputed by hand, output."""

import json
import math
import shutil
import statistics
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from matplotlib.collections import PathCollection

import perfmodel as pm
from perfmodel.errors import ArgumentError, CalibrationError, TableError, UnknownNameError
from perfmodel.hardware.spec_files import shipped_folder
from perfmodel.validation.validate import sources_from


@cache
def told(only=None):
    """The report of a subset, or of all, and what its progress said."""
    progress = []
    report = pm.validate("shi2016", only=only, progress=lambda done, of: progress.append((done, of)))
    return report, progress


@pytest.fixture(scope="module")
def report():
    return told()[0]


@pytest.mark.parametrize(
    ("only", "cells", "set_aside"), [("gpu", 63, 2), ("cpu", 167, 0), ("cpu_oversubscribed", 38, 0)]
)
def test_each_subset_by_itself_is_its_part_of_the_whole(report, only, cells, set_aside):
    alone, _ = told(only)
    assert (len(alone.cells), len(alone.set_aside)) == (cells, set_aside)
    assert alone.subsets == (only,)
    together = [row for row in report.scoreboard if row.subset == only]
    assert list(alone.scoreboard) == together


def test_subsets_are_parted_by_threads_and_cores(report):
    cores = {"desktop_i7_3820": 4, "server_2x_xeon_e5_2630_v3": 16}
    for cell, subset in zip(report.cells, report.subset_of_cell, strict=True):
        if subset == "gpu":
            assert cell.threads is None
        else:
            assert (cell.threads > cores[cell.device]) == (subset == "cpu_oversubscribed")


def test_progress_counts_every_cell():
    _, seen = told("gpu")
    assert seen == [(round(100 * done / 65), 100) for done in range(1, 66)]


def test_progress_goes_on_from_subset_to_subset():
    _, seen = told()
    assert len(seen) == 65 + 167 + 38
    assert {of for _, of in seen} == {300}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert [seen[index][0] for index in (64, 64 + 167, -1)] == [100, 200, 300]


def test_set_aside_cells_are_shown_but_not_scored(report):
    assert {cell.status for cell in report.set_aside} == {"barred", "suspect"}
    assert {cell.status for cell in report.cells} == {"measured"}
    assert len(report.rows) == len(report.cells) + 2
    assert "set aside" in str(report)
    assert sum(row.cells for row in report.scoreboard if row.model == "perfmodel") == 268


def test_metrics_are_those_of_the_rows(report):
    scored = [cell for cell in report.rows if cell.status == "measured"]
    ratios = [cell.predicted_s / cell.measured_s for cell in scored]
    assert [cell.ratio for cell in scored] == pytest.approx(ratios)
    errors = sorted(100 * abs(ratio - 1) for ratio in ratios)
    logs = [math.log(ratio) for ratio in ratios]
    assert report.mape == pytest.approx(sum(errors) / 268)
    assert report.median_ape == pytest.approx(statistics.median(errors))
    # nine tenths of the way along 267 gaps is 240.3
    assert report.p90_ape == pytest.approx(errors[240] + 0.3 * (errors[241] - errors[240]))
    assert report.mean_abs_log_ratio == pytest.approx(statistics.fmean(map(abs, logs)))
    assert report.typical_factor_percent == pytest.approx(100 * (math.exp(statistics.fmean(map(abs, logs))) - 1))
    assert report.geometric_mean_ratio == pytest.approx(math.exp(statistics.fmean(logs)))
    assert report.within(25) == pytest.approx(sum(error <= 25 for error in errors) / 268)
    low, high = report.bootstrap
    assert low < report.mape < high
    assert report.parameter_count == 0


def test_every_score_of_the_model_is_that_of_its_subset(report):
    for row in report.scoreboard:
        if row.model == "perfmodel":
            part = [
                100 * abs(cell.ratio - 1)
                for cell, subset in zip(report.cells, report.subset_of_cell, strict=True)
                if subset == row.subset
            ]
            assert row.mape == pytest.approx(statistics.fmean(part))
            assert row.percent_within_10 == pytest.approx(100 * sum(error <= 10 for error in part) / len(part))
            assert (row.cells, row.fitted) == (len(part), 0)


def test_the_naive_baselines_stand_beside(report):
    models = {subset: [row.model for row in report.scoreboard if row.subset == subset] for subset in report.subsets}
    wanted = {
        "gpu": ["perfmodel", "roofline x one efficiency", "percent of peak", "sqrt(FLOP/s x bandwidth)"],
        "cpu": ["perfmodel", "roofline x one", "percent of peak", "same time as the other CPU", "Amdahl + log"],
        "cpu_oversubscribed": ["perfmodel", "same as all physical cores"],
    }
    for subset, starts in wanted.items():
        missing = [start for start in starts if not any(model.startswith(start) for model in models[subset])]
        assert not missing, models[subset]
        assert models[subset][0] == "perfmodel"
    assert all(row.fitted > 0 for row in report.scoreboard if row.model.startswith("roofline x"))
    plain = [row for row in report.scoreboard if row.model == "plain roofline"]
    assert len(plain) == len(report.subsets)
    assert all(row.fitted == 0 and row.geometric_mean_ratio < 1 for row in plain)  # nothing is faster than its peaks
    text = str(report)
    assert all(model in text for of_subset in models.values() for model in of_subset)


def test_where_keeps_the_cells_asked_for_and_their_baselines(report):
    few = report.where(threads=[1, 2], framework="caffe_1_0_rc3")
    expected = [cell for cell in report.cells if cell.threads in (1, 2) and cell.framework == "caffe_1_0_rc3"]
    assert list(few.cells) == expected
    assert few.mape == pytest.approx(statistics.fmean(100 * abs(cell.ratio - 1) for cell in expected))
    assert few.subsets == ("cpu",)
    rule = next(row for row in few.scoreboard if row.model.startswith("roofline"))
    whole = next(each for each in report.baselines["cpu"] if each.name == rule.model)
    cpu = [c for c, subset in zip(report.cells, report.subset_of_cell, strict=True) if subset == "cpu"]
    kept = [abs(t / c.measured_s - 1) for t, c in zip(whole.predicted_s, cpu, strict=True) if c in expected]
    assert rule.mape == pytest.approx(100 * statistics.fmean(kept))
    assert few.where(network="alexnet").where(device="desktop_i7_3820").cells
    with pytest.raises(ArgumentError, match="where"):
        report.where(threads=1000)


def test_to_dict_is_json_and_to_frame_has_every_cell(report):
    back = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert len(back["cells"]) == 270
    assert back["mape_percent"] == pytest.approx(report.mape)
    frame = report.to_frame()
    assert len(frame) == 270
    assert set(frame["status"]) == {"measured", "barred", "suspect"}


def test_the_plot_is_written_whole_or_not_at_all(report, tmp_path):
    path = tmp_path / "parity.png"
    report.plot(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [each.name for each in tmp_path.iterdir()] == ["parity.png"]
    with pytest.raises((OSError, ArgumentError)):
        report.plot(tmp_path / "nowhere" / "parity.png")


def test_the_worst_cells_come_first(report):
    worst = [abs(math.log(cell.ratio)) for cell in report.worst(5)]
    assert worst == sorted(worst, reverse=True)
    assert worst[0] == pytest.approx(max(abs(math.log(cell.ratio)) for cell in report.cells))


def test_misspelt_words_meet_their_nearest():
    with pytest.raises(UnknownNameError, match="nothing_fitted"):
        pm.validate("shi2016", protocol="nothing_fited")
    with pytest.raises(UnknownNameError, match=r"subset 'gpus'.*Did you mean 'gpu'"):
        pm.validate("shi2016", only="gpus")
    with pytest.raises((UnknownNameError, TableError), match="shi2016"):
        pm.validate("shi2061")


GUILTY = (
    "fitted to Shi et al., Table 4",
    "arXiv 1608.07249",
    "https://github.com/hclhkbu/dlbench, logs",
    "nvprof_gtx980 trace",
)


GUILTY_FILES = ("frameworks/caffe_1_0_rc3", "libraries/cudnn_4", "libraries/openblas_0_2_18", "devices/gtx_1080")


def rows_of_caffe():
    """The rows that follow from all of these files: Caffe's on one GPU, and on one core."""
    table = pm.measurements.load("shi2016")
    rows = [row for row in table.rows if row.framework == "caffe_1_0_rc3"]
    rows = tuple(row for row in rows if row.device == "gtx_1080" or row.threads == 1)
    keys = {row.run_key for row in rows}
    return replace(table, rows=rows, runs=tuple(run for run in table.runs if run.key in keys))


@pytest.mark.parametrize(  # every pair of two of the three
    ("title", "file", "place"),
    [
        (title, file, ("title", "note")[(i + j) % 2])
        for i, title in enumerate(GUILTY)
        for j, file in enumerate(GUILTY_FILES)
    ],
)
def test_a_constant_from_the_table_or_its_laboratory_is_refused(tmp_path, monkeypatch, title, file, place):
    kind, name = file.split("/")
    (tmp_path / kind).mkdir()
    text = (shipped_folder() / f"{file}.toml").read_text()
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(f"{place} = "))
    lines[first] = f'{place} = "{title}"'
    (tmp_path / kind / f"{name}.toml").write_text("\n".join(lines))
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    with pytest.raises(CalibrationError, match="scored on") as caught:
        pm.validate(rows_of_caffe(), only="cpu" if "openblas" in file else "gpu")
    assert (
        pm.load_framework("caffe_1_0_rc3").name in str(caught.value) or name.split("_")[0] in str(caught.value).lower()
    )


@pytest.mark.parametrize(
    "title",
    [
        "arXiv:1608.07249v1",
        "Benchmarking State of the Art Deep-Learning Software Tools",
        "S. Shi, Q. Wang et al.",
        "Shi 2018 DAG model of distributed deep learning",
        "Wuensche 2018",
    ],
)
def test_other_ways_to_cite_the_table_are_recognised(title):
    table = pm.measurements.load("shi2016")
    profile = pm.load_framework("torch_423cfba")
    assert not list(sources_from(table, [profile]))
    cited = profile.source[0].model_copy(update={"title": title, "fields": ("gpu.constants",)})
    (line,) = sources_from(table, [profile.model_copy(update={"source": (cited,)})])
    assert "gpu.constants" in line


def test_a_table_that_is_no_path_is_refused():
    for wrong in (None, 3):
        with pytest.raises(ArgumentError, match="table"):
            pm.validate(wrong)


def test_a_copy_of_the_shipped_files_passes(tmp_path, monkeypatch):
    shutil.copytree(shipped_folder() / "frameworks", tmp_path / "frameworks")
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    assert len(pm.validate("shi2016", only="gpu").cells) == 63


def test_the_baselines_see_the_same_cells(report):
    for subset in report.subsets:
        count = sum(of_cell == subset for of_cell in report.subset_of_cell)
        for rule in report.baselines[subset]:
            assert np.shape(rule.predicted_s) == (count,)


def test_unknown_fields_and_senseless_bounds_are_refused(report):
    with pytest.raises(UnknownNameError, match=r"unknown field of a cell 'thread'. Did you mean 'threads'"):
        report.where(thread=[1])
    with pytest.raises(ArgumentError, match=r"percent must.*\(got -5"):
        report.within(-5)


def test_the_plot_has_a_score_for_each_subset_and_hollow_marks_for_what_is_set_aside(report):
    axes = report.plot().axes[0]
    assert all(f"{subset} {report.only(subset).mape:.1f} %" in axes.get_title() for subset in report.subsets)
    marks = [each for each in axes.collections if isinstance(each, PathCollection)]  # the others are intervals
    assert sum(len(each.get_offsets()) for each in marks if not len(each.get_facecolor())) == 2


def test_columns_of_the_scoreboard_say_what_they_are(report):
    text = str(report)
    assert "exp|ln|-1 [%]" in text
    assert "exp|ln|-1: 100 (exp(mean |ln(predicted / measured)|) - 1)" in text


ROW = {"network": "alexnet", "batch_size": 16, "framework": "caffe_1_0_rc3", "device": "gtx_980", "step_s": 0.05}
WRONG_ROWS = [
    ([{name: value for name, value in ROW.items() if name != "step_s"}], "row 1: column step_s is missing"),
    (
        [ROW, ROW | {"device": "gtx_1080", "step_s": -0.1}],
        "row 3, column step_s: must be seconds above 0",
    ),
    ([ROW | {"step_s": "fast"}], "row 2, column step_s: must be"),
    ([ROW | {"framework": "cafe_1_0_rc3"}], "row 2, column framework: .*nearest is caffe_1_0_rc3"),
    ([ROW | {"device": "gtx_1081"}], "row 2, column device: .*nearest is gtx_1080"),
    ([ROW, ROW | {"step_s": 0.06}], "row 3, column step_s: 0.06 contradicts row 2, which has 0.05"),
    ([ROW | {"speed": 3}], "speed"),
]


@pytest.mark.parametrize(("rows", "said"), WRONG_ROWS)
@pytest.mark.parametrize("as_file", [True, False], ids=["csv", "frame"])
def test_ones_own_table_is_checked_row_by_row(tmp_path, rows, said, as_file):
    import pandas as pd

    frame = pd.DataFrame(rows)
    path = tmp_path / "mine.csv"
    frame.to_csv(path, index=False)
    with pytest.raises(TableError, match=said) as caught:
        pm.validate(path if as_file else frame)
    if not as_file:
        assert "/" not in str(caught.value).partition(":")[0]  # no file that nobody wrote
    assert len(frame) == len(rows)


def test_ones_own_frame_is_scored_as_the_same_csv(tmp_path):
    import pandas as pd

    rows = [ROW | {"threads": None}, ROW | {"device": "desktop_i7_3820", "threads": 4, "step_s": 0.9}]
    frame = pd.DataFrame(rows)
    frame.astype({"threads": "Int64"}).to_csv(tmp_path / "mine.csv", index=False)
    by_frame, by_file = pm.validate(frame), pm.validate(tmp_path / "mine.csv")
    assert [cell.predicted_s for cell in by_frame.cells] == [cell.predicted_s for cell in by_file.cells]
    assert [cell.threads for cell in by_frame.cells] == [None, 4]
    assert by_frame.subsets == ("gpu", "cpu")
    with pytest.raises(ArgumentError, match="a MeasurementTable or a DataFrame"):
        pm.validate([ROW])
