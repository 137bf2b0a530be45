"""Measured kernels are timed by the path of a prediction; their fits see nothing of what they are scored on."""

import re
from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import CalibrationError
from perfmodel.fitting.fit import fit_unknowns
from perfmodel.fitting.kernel_boards import boards_of
from perfmodel.fitting.problem import Problem
from perfmodel.hardware.fit_file import load_fit_plan
from perfmodel.hardware.spec_files import ENVIRONMENT_VARIABLE, shipped_folder
from perfmodel.layers import Dense
from perfmodel.measurements.kernel_tables import FORMATS, KernelMeasurements, MeasuredKernel
from score_kernels import AS_SHIPPED, FIVE_FOLD, kernel_scores, of_others, shape_folds

(GEMM,) = (each for each in FORMATS if each.name == "gemm")
SOFTWARE = "CUDA 7.5.18; cuDNN 5"


def row(m, n, k, *, device="Tesla M40", layout=("N", "N"), seconds=1e-3):
    return MeasuredKernel(
        row_number=2,
        device=device,
        software=SOFTWARE,
        precision="Float",
        phase="gemm",
        sizes={"M": m, "N": n, "K": k},
        words=dict(zip(("transA", "transB"), layout, strict=True)),
        seconds=seconds,
    )


def table_of(rows):
    return KernelMeasurements(name="planted", sha256="0" * 64, format=GEMM, rows=tuple(rows))


def shapes():
    random = np.random.default_rng(3)
    return [tuple(int(2**size) for size in random.uniform((6, 4, 6), (13, 11, 13))) for _ in range(60)]


def board_of(rows):
    (board,), _ = boards_of(table_of(rows))
    return board


def with_times(board, seconds):
    return replace(
        board, rows=tuple(replace(each, seconds=float(s)) for each, s in zip(board.rows, seconds, strict=True))
    )


def test_a_row_takes_what_the_layer_takes_in_a_prediction():
    board = board_of([row(1000, 64, 4096)])
    graph = pm.LayerGraph("one", input_shape=(4096,))
    graph.add("dense", Dense(units=1000, bias=False), inputs=graph.input)
    prediction = pm.predict(
        graph, batch_size=64, device="tesla_m40", framework="library_calls", phase="forward", library="cublas_7_5"
    )
    assert board.times() == pytest.approx([prediction.step_s], rel=1e-12)


def test_many_factors_at_once_are_each_by_itself():
    board = board_of([row(*shape) for shape in shapes()[:7]])
    name = "libraries/cublas_7_5/maxwell.gemm"
    together = board.times({name: np.array([0.5, 1.0, 1.1])})
    assert together.shape == (7, 3)
    for place, factor in enumerate((0.5, 1.0, 1.1)):
        np.testing.assert_allclose(together[:, place], board.times({name: factor}))


def test_planted_constants_are_found_where_a_roofline_is_lost():
    board = board_of([row(*shape) for shape in shapes()])
    planted = {
        "libraries/cublas_7_5/maxwell.gemm": 0.8,
        "libraries/cublas_7_5/maxwell.skinny_bandwidth_fraction": 1.5,
    }
    scores = kernel_scores(table_of(with_times(board, board.times(planted)).rows)).scores
    found = {each.score.model[:8]: each.score for each in scores if (each.protocol, each.part) == ("five_fold", "all")}
    assert found["perfmode"].median_ape < 3
    assert found["roofline"].median_ape > 10


def test_held_out_times_change_nothing_about_their_predictions():
    board = board_of([row(*shape) for shape in shapes()])
    truth = board.times({"libraries/cublas_7_5/maxwell.gemm": 0.9})
    folds = np.array(shape_folds([board]))
    lied = np.where(folds == 0, 3 * truth, truth)
    plan = load_fit_plan("kernels_contraction")
    trained = tuple(int(index) for index in np.flatnonzero(folds != 0))
    fits = [
        fit_unknowns(Problem.of_boards([with_times(board, times)], plan), trained).log_factors
        for times in (truth, lied)
    ]
    np.testing.assert_array_equal(*fits)


def test_shapes_stay_together_whatever_their_layout():
    rows = [row(*shape, layout=layout) for shape in shapes() for layout in (("N", "N"), ("T", "N"))]
    folds = shape_folds([board_of(rows)])
    assert folds[::2] == folds[1::2]
    assert set(folds) == {0, 1, 2, 3, 4}


def test_fits_start_where_no_row_has_told(tmp_path, monkeypatch):
    """The shipped constant was fitted on such rows: a fold may not see it, not even as its start."""
    rows = [row(*shape) for shape in shapes()[:9]]
    plan = load_fit_plan("kernels_contraction")
    problem = Problem.of_boards([board_of(rows)], plan)
    zeros = np.zeros(len(problem.unknowns))
    before = problem.log_times(zeros, range(9))[0]
    (tmp_path / "libraries").mkdir()
    text = (shipped_folder() / "libraries" / "cublas_7_5.toml").read_text()
    other_values, count = re.subn(r"^gemm = .*$", "gemm = 0.4", text, flags=re.MULTILINE)
    assert count
    (tmp_path / "libraries" / "cublas_7_5.toml").write_text(other_values)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path))
    other = board_of(rows)
    assert np.median(other.times() / np.exp(before)) > 1.2  # the file's own value does count where nothing is fitted
    np.testing.assert_allclose(Problem.of_boards([other], plan).log_times(zeros, range(9))[0], before)


def test_two_starts_for_one_constant_are_refused():
    plan = load_fit_plan("kernels_contraction")
    twice = plan.unknown[0].model_copy(update={"name": "again"})
    with pytest.raises(CalibrationError, match=r"start.*one at most"):
        Problem.of_boards([board_of([row(512, 512, 512)])], plan.model_copy(update={"unknown": (*plan.unknown, twice)}))


def test_a_board_that_is_left_out_is_predicted_by_the_others():
    boards = [board_of([row(*shape, device=device) for shape in shapes()]) for device in ("Tesla M40", "GTX 980")]
    slow = {"libraries/cublas_7_5/maxwell.gemm": 0.7}
    rows = [each for board in boards for each in with_times(board, board.times(slow)).rows]
    scores = kernel_scores(table_of(rows)).scores
    out = [each.score for each in scores if each.protocol == "leave_one_board_out" and each.score.model == "perfmodel"]
    assert {each.subset.split(",")[0] for each in out} >= {"tesla_m40", "gtx_980"}
    assert all(each.median_ape < 6 for each in out)
    shipped = [each.score for each in scores if each.protocol == AS_SHIPPED and each.score.model == "perfmodel"]
    assert max(each.median_ape for each in shipped) > 15


def test_constants_are_counted_and_boards_they_were_fitted_on_are_told():
    scores = kernel_scores(table_of([row(*shape) for shape in shapes()])).scores
    by_protocol = {each.protocol: each for each in scores if each.score.model == "perfmodel"}
    assert by_protocol[AS_SHIPPED].score.fitted == 0
    assert "cublas_7_5" in by_protocol[AS_SHIPPED].note
    assert 3 <= by_protocol[FIVE_FOLD].score.fitted <= 6
    assert by_protocol[FIVE_FOLD].note == ""


def test_what_a_library_does_on_every_board_comes_from_the_others():
    """A board's own rows say nothing about a constant that it takes from the others."""
    boards = [board_of([row(*shape, device=device) for shape in shapes()]) for device in ("Tesla M40", "GTX 980")]
    plan = load_fit_plan("kernels_contraction")
    found = []
    for lie in (1.0, 3.0):
        own = with_times(boards[0], lie * boards[0].times())
        others = [with_times(boards[1], boards[1].times({"libraries/cublas_7_5/maxwell.latency_cycles": 2.0}))]
        found.append(of_others([own], others, plan=plan, key=str(lie)))
    assert found[0] == found[1] != {}
    problem = Problem.of_boards([boards[0]], plan, held=found[0])
    assert not {unknown.name for unknown in problem.unknowns} & set(found[0])
    zeros = np.zeros(len(problem.unknowns))
    again = Problem.of_boards([boards[0]], plan, held={name: value + 0.5 for name, value in found[0].items()})
    assert not np.allclose(problem.log_times(zeros, range(60))[0], again.log_times(zeros, range(60))[0])
