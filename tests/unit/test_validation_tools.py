"""Sensitivity, ablation and the board of all protocols."""

from dataclasses import fields, replace

import numpy as np
import pytest

import perfmodel as pm
from ablation import TERMS, Term, ablation, without
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.hardware.fit_file import load_fit_plan
from perfmodel.hardware.spec_files import shipped_folder
from perfmodel.measurements.table import SUBSETS
from perfmodel.prediction.device.step_time import StepTime
from perfmodel.validation.protocols.board import protocol_board, sensitivity
from perfmodel.validation.protocols.cells import prepare_cells
from perfmodel.validation.scores import metrics


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
def scored_cells():
    """Scored cells of each subset, each with its prediction before any term was left out."""
    table = pm.measurements.load("shi2016")
    cells = {subset: prepare_cells(table, table.subset(subset)) for subset in SUBSETS}
    return {
        subset: [(cell, seconds_of(cell)) for cell in cells_of_subset if cell.is_scored]
        for subset, cells_of_subset in cells.items()
    }


@pytest.fixture(scope="module")
def gpu_cells(scored_cells):
    return [cell for cell, _ in scored_cells["gpu"]]


def seconds_of(cell):
    return float(cell.prepared.step().parts.step_s)


@pytest.mark.parametrize(
    ("subset", "some"),
    [
        ("gpu", {"dispatch", "element_wise", "gemm_kepler", "gemm_maxwell", "gemm_pascal"}),
        ("cpu", {"gemm_openblas_sandy_bridge", "gemm_fp64"}),
    ],
)
def test_no_fitted_constant_moves_one_family_of_one_framework_only(subset, some):
    # on CPUs columns within a socket and on both
    rows = sensitivity(part_of_shi2016(lambda row: row.threads in (None, 4, 16)), only=subset)
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
    (tmp_path / "fit_plans").mkdir()
    text = (shipped_folder() / "fit_plans" / "gpu.toml").read_text()
    (tmp_path / "fit_plans" / "gpu.toml").write_text(text.replace("[[source]]", PLANTED.strip(), 1))
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    table = part_of_shi2016(lambda row: row.device in ("gtx_980", "gtx_1080"))
    rows = {row.unknown: row for row in sensitivity(table, only="gpu")}
    assert rows["planted"].is_pair
    assert rows["planted"].moves == "tensorflow_0_9: FCN"
    assert 0 < rows["planted"].cells <= 6
    assert rows["planted"].most_percent > 1
    assert [name for name, row in rows.items() if row.is_pair] == ["planted"]


def test_pairs_under_one_factor_are_still_pairs(tmp_path, monkeypatch):
    """A factor on the dispatch, which moves a framework's LSTM, and on its first step, which moves its FCN."""
    (tmp_path / "fit_plans").mkdir()
    text = (shipped_folder() / "fit_plans" / "gpu.toml").read_text()
    glued = '"frameworks/tensorflow_0_9/gpu.dispatch_us", "frameworks/tensorflow_0_9/gpu.first_step_ms"'
    planted = PLANTED.replace('"frameworks/tensorflow_0_9/gpu.serial_row_cycles"', glued)
    (tmp_path / "fit_plans" / "gpu.toml").write_text(text.replace("[[source]]", planted.strip(), 1))
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    table = part_of_shi2016(lambda row: row.device in ("gtx_980", "gtx_1080"))
    rows = {row.unknown: row for row in sensitivity(table, only="gpu")}
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


SAVES_TIME = {
    "library calls dispatched once",
    "FFT convolution",
    "last-level cache",
    "operations beside each other",
    "two threads on a core",
}
"""Terms without which no step is shorter; without any other none is longer."""


@pytest.mark.parametrize(
    ("subset", "term"),
    [pytest.param(subset, term, id=f"{subset}: {term.name}") for subset in SUBSETS for term in TERMS[subset]],
)
def test_every_term_changes_a_scored_cell_and_comes_back(scored_cells, subset, term):
    changes = {}
    for cell, plain in scored_cells[subset]:
        changes[cell.row.cell_key] = seconds_of(without(cell, term)) / plain - 1
        assert seconds_of(cell) == plain  # the cell itself is as before
        assert seconds_of(without(cell, Term("nothing"))) == plain
    moved = max(changes, key=lambda key: abs(changes[key]))
    assert abs(changes[moved]) > 1e-3
    if term.name in SAVES_TIME:
        assert min(changes.values()) >= -1e-12
    else:
        assert max(changes.values()) <= 1e-12
    # nothing that others share has changed: lowered anew, the cell that moved most is as before, too
    cell, plain = next(pair for pair in scored_cells[subset] if pair[0].row.cell_key == moved)
    (anew,) = prepare_cells(pm.measurements.load("shi2016"), [cell.row])
    assert seconds_of(anew) == plain


def test_terms_say_which_cells_they_are_left_out_of():
    for subset in SUBSETS:
        names = [term.name for term in TERMS[subset]]
        assert len(set(names)) == len(names)
        assert all(subset in term.subsets and set(term.subsets) <= set(SUBSETS) for term in TERMS[subset])
        assert all((term.prepared is None) != (term.numbers is None) for term in TERMS[subset])
    assert {"over-subscription", "two threads on a core"} <= {term.name for term in TERMS["cpu_oversubscribed"]}
    assert not {"over-subscription", "two threads on a core"} & {term.name for term in TERMS["cpu"]}


REACHES = {
    "first step of a process": lambda row: row.framework in ("tensorflow_0_9", "torch_423cfba"),
    "slower host of the GPU": lambda row: row.device == "tesla_k80_gk210",
    "kernels made for another architecture": lambda row: row.device != "gtx_980",
    "workspace limit": lambda row: row.framework == "caffe_1_0_rc3" and row.network in ("alexnet", "resnet50"),
    "subnormal products": lambda row: row.framework == "tensorflow_0_9" and row.network in ("fcn5", "fcn8"),
    "double precision of scripts": lambda row: row.framework == "torch_423cfba",
    "pages on one socket": lambda row: row.device == "server_2x_xeon_e5_2630_v3" and row.threads > 1,
    "operations beside each other": lambda row: row.framework == "tensorflow_0_9" and row.threads == 1,
    "two threads on a core": lambda row: row.framework == "tensorflow_0_9",
    "over-subscription": lambda row: row.framework != "tensorflow_0_9",
}
"""Term -> which rows of the table can feel it, from what the files and Runs say."""


@pytest.mark.parametrize("name", REACHES)
def test_a_term_changes_no_cell_that_does_not_have_it(scored_cells, name):
    reached = 0
    for subset in SUBSETS:
        for term in (term for term in TERMS[subset] if term.name == name):
            for cell, plain in scored_cells[subset]:
                if REACHES[name](cell.row):
                    reached += seconds_of(without(cell, term)) != plain
                else:
                    assert seconds_of(without(cell, term)) == plain, cell.row.cell_key
    assert reached


def test_tiles_latency_filling_and_writing_out_are_left_out_one_by_one(gpu_cells):
    terms = {term.name: term for term in TERMS["gpu"]}
    blas, dnn = gpu_cells[0].prepared.numbers().matmul_libraries
    changed = {
        "tile and wave quantisation": ({"tile_rows", "tile_columns", "tile_efficiency"},) * 2,
        "latency of a step of the sum": ({"latency_s"},) * 2,
        "filling and draining of tiles": ({"ramp_steps"}, set()),
        "write-out of tiles of convolutions": (set(), {"ramp_steps"}),
    }
    for name, expected in changed.items():
        less = without(gpu_cells[0], terms[name]).prepared.numbers().matmul_libraries
        for before, after, names in zip((blas, dnn), less, expected, strict=True):
            pairs = [
                *((field, getattr(before, field), getattr(after, field)) for field in before._fields[1:]),
                *(
                    (each.name, getattr(before.reach, each.name), getattr(after.reach, each.name))
                    for each in fields(before.reach)
                ),
            ]
            differing = {field for field, was, now in pairs if np.any(np.asarray(was) != np.asarray(now))}
            assert differing == names, name


def test_the_first_step_is_its_share_and_no_more(gpu_cells):
    (term,) = (term for term in TERMS["gpu"] if term.name == "first step of a process")
    (cell,) = (
        cell
        for cell in gpu_cells
        if (cell.row.framework, cell.row.network, cell.row.device) == ("tensorflow_0_9", "fcn5", "gtx_980")
    )
    share = seconds_of(cell) - seconds_of(without(cell, term))
    host = cell.prepared.target.host_slowdown({})
    assert share == pytest.approx(host * 0.9 / 32)  # 900 ms by the framework's file, a mean over 32 steps


def test_what_is_left_out_is_gone(gpu_cells):
    terms = {term.name: term for term in TERMS["gpu"]}
    for cell in gpu_cells[::3]:
        less = {
            name: without(cell, terms[name]).prepared.step() for name in ("optimizer", "FFT convolution", "host feed")
        }
        assert less["optimizer"].parts.update_s == 0
        chosen = less["FFT convolution"].groups.chosen
        table = without(cell, terms["FFT convolution"]).prepared.lowered.table
        assert not {table.alternative_names[int(index)] for index in chosen} & {"fft", "fft_tiling"}
        assert less["host feed"].parts.transfer_s == 0
    assert isinstance(less["optimizer"].parts, StepTime)
    names = {
        cell.prepared.lowered.table.alternative_names[int(index)]
        for cell in gpu_cells
        for index in cell.prepared.step().groups.chosen
    }
    assert names & {"fft", "fft_tiling"}  # or the check above would be empty


def test_ablation_scores_as_validate_does(gpu_table, monkeypatch):
    every = TERMS["gpu"]
    for protocol, terms in (("nothing_fitted", every), ("leave_one_device_out", every[::5])):  # fitted without each
        monkeypatch.setitem(TERMS, "gpu", terms)
        rows = ablation(gpu_table, protocols=[protocol], only="gpu")
        assert [row.without for row in rows] == ["nothing", *(term.name for term in terms)]
        report = pm.validate(gpu_table, protocol=protocol, only="gpu")
        whole, *others = rows
        assert (whole.without, whole.change) == ("nothing", 0)
        assert whole.mape == pytest.approx(report.mape, rel=1e-9)
        assert whole.typical_factor_percent == pytest.approx(report.typical_factor_percent, rel=1e-9)
        for row in others:
            assert row.change == pytest.approx(row.typical_factor_percent - whole.typical_factor_percent)
        assert sum(row.change != 0 for row in rows) > len(terms) / 2


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
    table = part_of_shi2016(
        lambda row: (
            row.device == "gtx_980"
            and row.network in ("fcn5", "alexnet")
            and row.framework in ("caffe_1_0_rc3", "torch_423cfba")
        )
    )
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
