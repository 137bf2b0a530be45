"""Sensitivity, ablation and the board of all protocols."""

from dataclasses import replace

import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.hardware.fit_plan import load_fit_plan
from perfmodel.hardware.spec_files import shipped_folder
from perfmodel.prediction.step_time import StepTime
from perfmodel.validation import metrics
from perfmodel.validation.ablation import TERMS, Term, ablation, without
from perfmodel.validation.cells import prepare_cells
from perfmodel.validation.protocol_board import protocol_board
from perfmodel.validation.sensitivity import sensitivity


def part_of_shi2016(keep):
    table = pm.measurements.load("shi2016")
    rows = tuple(row for row in table.rows if keep(row))
    used = {row.run_key for row in rows}
    return replace(table, rows=rows, runs=tuple(run for run in table.runs if run.key in used), hardware=())


@pytest.fixture(scope="module")
def gpu_table():
    return part_of_shi2016(
        lambda row: (
            row.device in ("gtx_980", "gtx_1080")
            and row.network in ("fcn5", "alexnet")
            and row.framework in ("caffe_1_0_rc3", "torch_423cfba")
        )
    )


@pytest.fixture(scope="module")
def gpu_cells():
    table = pm.measurements.load("shi2016")
    return prepare_cells(table, table.subset("gpu"))


@pytest.mark.parametrize(
    ("subset", "some"),
    [
        ("gpu", {"dispatch", "element_wise", "gemm_kepler", "gemm_maxwell", "gemm_pascal"}),
        ("cpu", {"gemm_openblas_sandy_bridge", "gemm_fp64"}),
    ],
)
def test_no_fitted_constant_moves_one_family_of_one_framework_only(subset, some):
    rows = sensitivity("shi2016", only=subset)
    assert [row.unknown for row in rows if row.is_pair] == []
    assert {row.unknown for row in rows} >= some
    assert all(row.most_percent > 0.1 for row in rows), "a constant that moves nothing is not fitted"


PLANTED = """
[[unknown]]
name = "planted"
scales = ["frameworks/tensorflow_0_9/gpu.serial_row_cycles"]
spread = 0.3
meaning = "moves TensorFlow's fully connected networks alone"

[[source]]"""


def test_a_constant_of_a_pair_is_found_out(tmp_path, monkeypatch):
    (tmp_path / "fits").mkdir()
    text = (shipped_folder() / "fits" / "gpu.toml").read_text()
    (tmp_path / "fits" / "gpu.toml").write_text(text.replace("[[source]]", PLANTED.strip(), 1))
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    rows = {row.unknown: row for row in sensitivity("shi2016", only="gpu")}
    assert rows["planted"].is_pair
    assert rows["planted"].moves == "tensorflow_0_9: FCN"
    assert 0 < rows["planted"].cells <= 6
    assert rows["planted"].most_percent > 1
    assert [name for name, row in rows.items() if row.is_pair] == ["planted"]


def test_pairs_under_one_factor_are_still_pairs(tmp_path, monkeypatch):
    """A factor on the dispatch, which moves a framework's LSTM, and on its first step, which moves its FCN."""
    (tmp_path / "fits").mkdir()
    text = (shipped_folder() / "fits" / "gpu.toml").read_text()
    glued = '"frameworks/tensorflow_0_9/gpu.dispatch_us", "frameworks/tensorflow_0_9/gpu.first_step_ms"'
    planted = PLANTED.replace('"frameworks/tensorflow_0_9/gpu.serial_row_cycles"', glued)
    (tmp_path / "fits" / "gpu.toml").write_text(text.replace("[[source]]", planted.strip(), 1))
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    rows = {row.unknown: row for row in sensitivity("shi2016", only="gpu")}
    assert rows["planted"].moves == "tensorflow_0_9: FCN, LSTM"
    assert rows["planted"].is_pair
    assert not rows["dispatch"].is_pair
    assert not rows["element_wise"].is_pair


def test_sensitivity_counts_what_it_says(gpu_table):
    rows = {row.unknown: row for row in sensitivity(gpu_table, only="gpu")}
    assert rows["blas_calls_caffe_1_0_rc3"].moves.startswith("caffe_1_0_rc3")
    assert "torch" not in rows["blas_calls_caffe_1_0_rc3"].moves
    assert rows["gemm_maxwell"].cells <= 4  # cells of one GPU
    assert "kepler" not in " ".join(rows)


def test_without_nothing_is_the_plain_prediction(gpu_cells):
    for cell in gpu_cells[::6]:
        plain, again = cell.prepared.step().parts.step_s, without(cell, Term("nothing")).prepared.step().parts.step_s
        assert again == plain


@pytest.mark.parametrize("term", TERMS["gpu"], ids=lambda term: term.name)
def test_every_term_changes_a_cell(gpu_cells, term):
    changes = []
    for cell in gpu_cells:
        plain, less = cell.prepared.step().parts.step_s, without(cell, term).prepared.step().parts.step_s
        changes.append(less / plain - 1)
    assert max(abs(change) for change in changes) > 1e-3
    if term.algorithms:  # fewer algorithms to choose from
        assert min(changes) >= -1e-12
    else:  # a term that costs time
        assert max(changes) <= 1e-9


def test_what_is_left_out_is_gone(gpu_cells):
    terms = {term.name: term for term in TERMS["gpu"]}
    for cell in gpu_cells[::3]:
        less = {
            name: without(cell, terms[name]).prepared.step() for name in ("optimizer", "FFT convolution", "host feed")
        }
        assert less["optimizer"].parts.update_s == 0
        chosen = less["FFT convolution"].groups.chosen
        table = without(cell, terms["FFT convolution"]).prepared.plan.table
        assert not {table.alternative_names[int(index)] for index in chosen} & {"fft", "fft_tiling"}
        assert less["host feed"].parts.transfer_s == 0
    assert isinstance(less["optimizer"].parts, StepTime)
    names = {
        cell.prepared.plan.table.alternative_names[int(index)]
        for cell in gpu_cells
        for index in cell.prepared.step().groups.chosen
    }
    assert names & {"fft", "fft_tiling"}  # or the check above would be empty


def test_ablation_scores_as_validate_does(gpu_table):
    rows = ablation(gpu_table, protocols=["nothing_fitted", "leave_one_device_out"], only="gpu")
    assert len(rows) == 2 * (1 + len(TERMS["gpu"]))
    for protocol in ("nothing_fitted", "leave_one_device_out"):
        report = pm.validate(gpu_table, protocol=protocol, only="gpu")
        whole, *others = [row for row in rows if row.protocol == protocol]
        assert (whole.without, whole.change) == ("nothing", 0)
        assert whole.mape == pytest.approx(report.mape, rel=1e-9)
        assert whole.typical_factor_percent == pytest.approx(report.typical_factor_percent, rel=1e-9)
        for row in others:
            assert row.change == pytest.approx(row.typical_factor_percent - whole.typical_factor_percent)
    assert sum(row.change != 0 for row in rows) > 10


@pytest.mark.parametrize("ask", [lambda only: sensitivity(only=only), lambda only: ablation(protocols=[], only=only)])
def test_subsets_are_checked(ask):
    with pytest.raises((ArgumentError, UnknownNameError), match="gpus"):
        ask("gpus")


def test_ablation_refuses_unknown_protocols():
    with pytest.raises(UnknownNameError, match="all_fitted"):
        ablation(protocols=["all_fited"])


def test_the_board_has_a_line_for_each_protocol(gpu_table):
    asked = ("nothing_fitted", "all_fitted", "leave_one_network_out")
    board = protocol_board(gpu_table, only="gpu", protocols=asked)
    assert [row.protocol for row in board] == [*asked, "alexnet out"]  # a line of its own
    assert not any("threads" in row.protocol for row in board)
    for row in list(board)[:3]:
        report = pm.validate(gpu_table, protocol=row.protocol, only="gpu")
        assert (row.cells, row.mape, row.fitted) == (8, report.mape, report.fitted["gpu"])
        rules = [each for each in report.scoreboard if not each.model.startswith("perfmodel") and each.cells == 8]
        best = min(rules, key=lambda each: each.typical_factor_percent)
        assert (row.naive, row.naive_mape) == (best.model, best.mape)
    out = [cell for cell in report.cells if cell.network == "alexnet"]
    assert board[3].mape == pytest.approx(
        metrics.mape([cell.predicted_s for cell in out], measured=[cell.measured_s for cell in out])
    )


def test_the_board_tells_what_a_small_table_cannot_serve():
    table = part_of_shi2016(lambda row: row.device == "gtx_980" and row.network in ("fcn5", "alexnet"))
    board = protocol_board(table)
    protocols = [row.protocol for row in board]
    assert "leave_one_network_out" in protocols
    assert "leave_one_framework_out" in protocols
    for missing in ("leave_one_device_out", "calibrated_on_one_device"):
        assert missing not in protocols
        assert f"{missing} leaves nothing to fit (gpu)" in board.title
    assert "leave_one_thread_count_out" not in protocols


def test_the_shipped_plan_is_the_one_of_its_subset():
    assert load_fit_plan("gpu").processor == "gpu"
