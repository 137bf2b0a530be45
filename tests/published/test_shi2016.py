"""Shi et al. 2016 (arXiv 1608.07249), Table 4: the measured table of the main job, with nothing fitted to it."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.hardware.spec_files import shipped_folder

FRAMEWORKS = ("caffe_1_0_rc3", "cntk_1_5_rc", "tensorflow_0_9", "torch_423cfba")
GPUS = ("gtx_980", "gtx_1080", "tesla_k80_gk210")


@pytest.fixture(scope="module")
def report():
    return pm.validate("shi2016")


def part_of(report, subset):
    return [cell for cell, of_cell in zip(report.cells, report.subset_of_cell, strict=True) if of_cell == subset]


def errors_percent(cells):
    return [100 * abs(cell.predicted_s / cell.measured_s - 1) for cell in cells]


def scoreboard_of(report, subset):
    return "\n".join(
        f"{row.model}: {row.mape:.1f} % of {row.cells} cells" for row in report.scoreboard if row.subset == subset
    )


def test_every_measured_cell_is_predicted(report):
    # 286 cells, 16 of them empty; two of the 65 on GPUs are set aside: an impossible 0.012 s, and its like
    assert Counter(report.subset_of_cell) == {"gpu": 63, "cpu": 167, "cpu_oversubscribed": 38}
    assert len(report.rows) == 270
    assert {(cell.framework, cell.network, cell.device) for cell in report.set_aside} == {
        ("tensorflow_0_9", "alexnet", "gtx_1080"),
        ("tensorflow_0_9", "resnet50", "gtx_1080"),
    }
    table = pm.measurements.load("shi2016")
    measured = {row.cell_key: row.step_s for row in table if row.step_s is not None}
    assert len(table) == 286
    predicted = {
        (cell.framework, cell.network, cell.batch_size, cell.device, cell.threads): cell.measured_s
        for cell in report.rows
    }
    assert predicted == measured
    assert all(0 < cell.predicted_s < np.inf for cell in report.rows)


def test_the_gpus_within_the_gate(report):
    # asked; a roofline with one efficiency is off by 43 % when that efficiency is fitted to these very cells
    assert np.mean(errors_percent(part_of(report, "gpu"))) <= 24, scoreboard_of(report, "gpu")


def test_the_cpus_within_the_gate(report):
    # at or below the physical cores, where a fitted roofline is off by 52 %;
    # nothing was asked, 40 % keeps what is there
    assert np.mean(errors_percent(part_of(report, "cpu"))) <= 40, scoreboard_of(report, "cpu")


def test_the_fitted_baselines_of_few_numbers_are_worse(report):
    # rules with one number fitted to these cells, over all of them or for each framework, scored on all of them
    for subset in ("gpu", "cpu"):
        cells = part_of(report, subset)
        naive = [
            row.mape
            for row in report.scoreboard
            if row.subset == subset
            and row.cells == len(cells)
            and row.model.startswith(("roofline", "percent of peak"))
        ]
        assert len(naive) >= 2
        assert np.mean(errors_percent(cells)) < min(naive), scoreboard_of(report, subset)


def test_the_order_of_frameworks_on_gpus(report):
    # which of two frameworks is faster on a network and a device: two in three, a coin gets one in two
    cells = part_of(report, "gpu")
    right = pairs = 0
    for place, one in enumerate(cells):
        for other in cells[place + 1 :]:
            if (one.network, one.device) == (other.network, other.device) and one.measured_s != other.measured_s:
                pairs += 1
                right += (one.measured_s < other.measured_s) == (one.predicted_s < other.predicted_s)
    assert pairs > 60
    assert right / pairs >= 2 / 3
    assert report.where(threads=None).rank_order == (pytest.approx(right / pairs), pairs)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("gpu", GPUS)
def test_only_caffe_on_the_gtx_980_lacks_memory_for_resnet50(framework, gpu):
    # section 4 of the paper: "Caffe cannot run ResNet-50 with mini-batch 16" on 4 GB; the other eleven ran
    run = pm.measurements.load("shi2016").run(framework, "resnet50")
    assert run.batch_size == 16
    memory = pm.predict(run, device=gpu).memory
    assert memory.fits is not ((framework, gpu) == ("caffe_1_0_rc3", "gtx_980"))
    table = pm.measurements.load("shi2016")
    (row,) = table.where(framework=framework, network="resnet50", device=gpu)
    assert (row.step_s is not None) == bool(memory.fits)


@pytest.mark.parametrize(
    ("what", "factor", "least"),
    [("peak", 0.5, 1.15), ("bandwidth", 0.5, 1.02)],
)
def test_predictions_follow_the_hardware_and_are_no_look_up(tmp_path, monkeypatch, report, what, factor, least):
    # The same card under the same name, at half of its clock or of its bandwidth: every GPU cell slows down, none
    # by more than two, and on the whole by a good part of it.
    text = (shipped_folder() / "devices/gtx_980.toml").read_text()
    pattern = {
        "peak": r"^(clock_(?:base|boost|max)_mhz = |fp\d\d = )([\d.]+)",
        "bandwidth": r"^(bandwidth_gb_per_s = )([\d.]+)",
    }[what]
    slowed, changes = re.subn(pattern, lambda found: found[1] + str(factor * float(found[2])), text, flags=re.MULTILINE)
    assert changes
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices/gtx_980.toml").write_text(slowed)
    before = {(c.framework, c.network): c.predicted_s for c in report.cells if c.device == "gtx_980"}
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    slow = {(c.framework, c.network): c.predicted_s for c in pm.validate(only="gpu").cells if c.device == "gtx_980"}
    ratios = np.array([slow[key] / before[key] for key in before])
    assert (ratios >= 1 - 1e-9).all()
    assert (ratios <= 1 / factor + 1e-9).all()
    assert np.exp(np.log(ratios).mean()) >= least
    others = {(c.framework, c.network): c.predicted_s for c in report.cells if c.device == "gtx_1080"}
    assert others == {
        (c.framework, c.network): c.predicted_s for c in pm.validate(only="gpu").cells if c.device == "gtx_1080"
    }


def test_a_wrong_measurement_changes_the_score_and_not_the_prediction(report):
    # the predictions never see the times: with every measured time doubled they are the same
    table = pm.measurements.load("shi2016")
    doubled = replace(table, rows=tuple(replace(row, step_s=row.step_s and 2 * row.step_s) for row in table.rows))
    other = pm.validate(doubled, only="gpu")
    gpu = part_of(report, "gpu")
    assert [cell.predicted_s for cell in other.cells] == [cell.predicted_s for cell in gpu]
    assert other.geometric_mean_ratio == pytest.approx(report.where(threads=None).geometric_mean_ratio / 2)
