"""Protocols: what is held out is never seen, by the fit or by the naive rules; folds cover what they say."""

from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError, CalibrationError, UnknownNameError
from perfmodel.hardware.spec_files import shipped_folder
from perfmodel.validation.protocols import protocols
from perfmodel.validation.protocols.cells import prepare_cells
from perfmodel.validation.protocols.protocols import ALL_FITTED, PROTOCOLS, folds_of, part_of_rows, predict_subset

GPU_PROTOCOLS = [name for name, protocol in PROTOCOLS.items() if not protocol.needs_threads]
HOLDING_OUT = [name for name in GPU_PROTOCOLS if name != ALL_FITTED]
CPU_PLAN = """
schema_version = 1
name = "two constants of CPUs"
kind = "fit_plan"
processor = "cpu"
noise = 0.1
outlier = 3.0
[[unknown]]
name = "products"
scales = ["libraries/*/*.gemm_efficiency"]
each = "architecture"
spread = 0.3
shared_spread = 0.2
meaning = "for this test"
[[unknown]]
name = "scalar_code"
scales = ["frameworks/{each}/cpu.cycles_per_flop.*", "frameworks/{each}/cpu.cycles_per_byte.*"]
each = "framework"
spread = 0.5
shared_spread = 0.3
meaning = "for this test"
[[source]]
fields = ["noise", "outlier", "unknown"]
title = "estimate"
note = "for this test"
"""


def part_of_shi2016(keep):
    """The shipped table with some of its rows."""
    table = pm.measurements.load("shi2016")
    rows = tuple(row for row in table.rows if keep(row))
    devices = {row.device for row in rows}
    runs = {row.run_key for row in rows}
    return replace(
        table,
        rows=rows,
        runs=tuple(run for run in table.runs if run.key in runs),
        hardware=tuple(each for each in table.hardware if each.device in devices),
    )


def with_times(table, keys, *, factor):
    """The table with the measured times of some cells multiplied."""
    changed = (
        replace(row, step_s=factor * row.step_s) if row.cell_key in keys and row.step_s else row for row in table.rows
    )
    return replace(table, rows=tuple(changed))


@pytest.fixture(scope="module")
def gpu_table():
    """12 cells of 2 frameworks, 2 GPUs and 3 families; AlexNet of TensorFlow on the GTX 1080 is barred."""
    return part_of_shi2016(
        lambda row: (
            row.framework in ("tensorflow_0_9", "torch_423cfba")
            and row.device in ("gtx_1080", "tesla_k80_gk210")
            and row.network in ("fcn5", "alexnet", "lstm32")
        )
    )


@pytest.fixture(scope="module")
def gpu_cells(gpu_table):
    return prepare_cells(gpu_table, gpu_table.subset("gpu", set_aside=True))


@pytest.fixture(scope="module")
def cpu_table():
    return part_of_shi2016(
        lambda row: (
            row.framework in ("caffe_1_0_rc3", "torch_423cfba")
            and row.network in ("fcn5", "alexnet")
            and row.threads in (1, 2, 4)
        )
    )


@pytest.fixture
def cpu_plan(tmp_path, monkeypatch):
    """A fit plan of two constants, whatever the shipped one has."""
    (tmp_path / "fit_plans").mkdir()
    (tmp_path / "fit_plans" / "cpu.toml").write_text(CPU_PLAN)
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))


def keys_of(cells, indices):
    return {cells[index].row.cell_key for index in indices}


def refuse_leaks(table, *, protocol, subset, fold_index):
    """Multiply what one fold holds out by 10: nothing that this fold says may change, and other folds must change."""
    cells = prepare_cells(table, table.subset(subset, set_aside=True))
    fold = folds_of(protocol, cells)[fold_index]
    spoilt = with_times(table, keys_of(cells, fold.scored), factor=10)
    spoilt_cells = prepare_cells(spoilt, spoilt.subset(subset, set_aside=True))
    assert sum(a.measured_s != b.measured_s for a, b in zip(cells, spoilt_cells, strict=True)) == len(fold.scored)

    before, after = (predict_subset(each, subset=subset, protocol=protocol) for each in (cells, spoilt_cells))
    np.testing.assert_array_equal(
        before.outcomes[fold_index].fit.log_factors, after.outcomes[fold_index].fit.log_factors
    )
    np.testing.assert_array_equal(before.outcomes[fold_index].fit.spreads, after.outcomes[fold_index].fit.spreads)
    assert [cell.predicted_s for cell in before.outcomes[fold_index].predicted] == [
        cell.predicted_s for cell in after.outcomes[fold_index].predicted
    ]
    pairs = zip(before.outcomes, after.outcomes, strict=True)
    changed = [not np.array_equal(a.fit.log_factors, b.fit.log_factors) for a, b in pairs]
    assert any(changed), "no fold noticed: the test would pass a model that is never fitted"

    honest, told = (pm.validate(each, protocol=protocol, only=subset) for each in (table, spoilt))
    of_fold = np.array([cell.fold == fold.label for cell in honest.cells])
    assert [cell.fold for cell in honest.cells] == [cell.fold for cell in told.cells]
    asked = False
    for rule, spoilt_rule in zip(honest.baselines[subset], told.baselines[subset], strict=True):
        assert rule.name == spoilt_rule.name
        np.testing.assert_array_equal(rule.predicted_s[of_fold], spoilt_rule.predicted_s[of_fold], err_msg=rule.name)
        asked |= bool(np.isfinite(rule.predicted_s[of_fold]).any())
    return asked


@pytest.fixture
def three_folds(tmp_path, monkeypatch):
    """Fit no more than three folds of a protocol, and keep the fits during one test: it asks for them twice."""
    monkeypatch.setenv("PERFMODEL_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(protocols, "folds_of", lambda *asked: folds_of(*asked)[:3])


@pytest.mark.usefixtures("three_folds")
@pytest.mark.parametrize("protocol", [name for name in HOLDING_OUT if name != "leave_one_row_out"])
def test_what_a_gpu_fold_holds_out_changes_nothing_in_it(gpu_table, protocol):
    # on GPUs a row is a cell
    assert refuse_leaks(gpu_table, protocol=protocol, subset="gpu", fold_index=1)


@pytest.mark.usefixtures("three_folds", "cpu_plan")
@pytest.mark.parametrize("protocol", ["leave_one_thread_count_out", "leave_one_device_out", "leave_one_row_out"])
def test_what_a_cpu_fold_holds_out_changes_nothing_in_it(cpu_table, protocol):
    assert refuse_leaks(cpu_table, protocol=protocol, subset="cpu", fold_index=1)


def test_many_folds_on_several_processes_are_those_of_one(gpu_cells, monkeypatch):
    from perfmodel.fitting import fit
    from perfmodel.hardware.fit_file import load_fit_plan
    from perfmodel.validation.protocols.protocols import compiled

    fit_folds = fit.fit_folds
    monkeypatch.setattr(fit, "FEW", 3)
    monkeypatch.setattr(fit, "GROUPS", 2)
    trained = [fold.trained for fold in folds_of("leave_one_row_out", gpu_cells)][:5]
    alone = fit_folds(compiled(gpu_cells, load_fit_plan("gpu")), trained, processes=1)
    together = fit_folds(compiled(gpu_cells, load_fit_plan("gpu")), trained, processes=2)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.log_factors, other.log_factors)


def test_cells_set_aside_change_no_fit(gpu_table, gpu_cells):
    aside = {cell.row.cell_key for cell in gpu_cells if not cell.is_scored}
    assert len(aside) == 1
    spoilt = with_times(gpu_table, aside, factor=10)
    before, after = (pm.validate(each, protocol=ALL_FITTED, only="gpu") for each in (gpu_table, spoilt))
    assert [cell.predicted_s for cell in before.cells] == [cell.predicted_s for cell in after.cells]
    assert before.mape == after.mape
    assert [row.factor for row in before.factors] == [row.factor for row in after.factors]
    for rule, spoilt_rule in zip(before.baselines["gpu"], after.baselines["gpu"], strict=True):
        np.testing.assert_array_equal(rule.predicted_s, spoilt_rule.predicted_s)


@pytest.mark.parametrize("protocol", HOLDING_OUT)
def test_folds_part_the_cells(gpu_cells, protocol):
    folds = folds_of(protocol, gpu_cells)
    scored = [index for fold in folds for index in fold.scored]
    assert sorted(scored) == list(range(len(gpu_cells)))  # two devices: seen on one is scored on the other, once
    for fold in folds:
        assert fold.trained
        assert not set(fold.trained) & set(fold.scored)
        assert all(gpu_cells[index].is_scored for index in fold.trained)
        # nothing is left unused that the fold may see
        rest = set(range(len(gpu_cells))) - set(fold.scored)
        assert set(fold.trained) == {index for index in rest if gpu_cells[index].is_scored}
    assert len({fold.label for fold in folds}) == len(folds)


HELD_OUT = {
    "leave_one_cell_out": (12, lambda row, cell: row.cell_key),
    "leave_one_row_out": (12, lambda row, cell: (row.framework, row.network, row.device)),
    "leave_one_device_out": (2, lambda row, cell: row.device),
    "leave_one_network_out": (3, lambda row, cell: row.network),
    "leave_one_family_out": (3, lambda row, cell: cell.family),
    "leave_one_framework_out": (2, lambda row, cell: row.framework),
}


@pytest.mark.parametrize("protocol", HELD_OUT)
def test_what_is_held_out_is_in_no_trained_cell(gpu_cells, protocol):
    count, thing = HELD_OUT[protocol]
    folds = folds_of(protocol, gpu_cells)
    assert len(folds) == count
    for fold in folds:
        held_out = {thing(gpu_cells[index].row, gpu_cells[index]) for index in fold.scored}
        seen = {thing(gpu_cells[index].row, gpu_cells[index]) for index in fold.trained}
        assert len(held_out) == 1
        assert not held_out & seen


def test_all_fitted_is_one_fold_of_everything(gpu_cells):
    (fold,) = folds_of(ALL_FITTED, gpu_cells)
    assert fold.scored == tuple(range(12))
    assert set(fold.trained) == {index for index in range(12) if gpu_cells[index].is_scored}


def test_calibrated_on_one_device_sees_the_framework_there_and_nowhere_else():
    table = part_of_shi2016(lambda row: row.network == "fcn5" and row.framework in ("caffe_1_0_rc3", "torch_423cfba"))
    cells = prepare_cells(table, table.subset("gpu"))
    folds = folds_of("calibrated_on_one_device", cells)
    assert len(folds) == 2 * 3
    for fold in folds:
        (framework,) = {cells[index].row.framework for index in fold.scored}
        seen = {cells[index].row.device for index in fold.trained if cells[index].row.framework == framework}
        others = {cells[index].row.device for index in fold.trained if cells[index].row.framework != framework}
        assert len(seen) == 1
        assert {cells[index].row.device for index in fold.scored} == {"gtx_980", "gtx_1080", "tesla_k80_gk210"} - seen
        assert len(others) == 3
        assert fold.label == f"{framework} seen on {min(seen)}"


def test_one_thread_count_is_held_out_on_one_cpu(cpu_table):
    cells = prepare_cells(cpu_table, cpu_table.subset("cpu"))
    folds = folds_of("leave_one_thread_count_out", cells)
    assert len(folds) == 2 * 3
    for fold in folds:
        ((device, threads),) = {(cells[index].row.device, cells[index].row.threads) for index in fold.scored}
        assert fold.label == f"{device} {threads}"
        seen = {(cells[index].row.device, cells[index].row.threads) for index in fold.trained}
        assert (device, threads) not in seen
        assert len(seen) == 5


def test_a_held_out_thing_stays_at_its_group(gpu_table):
    """Nothing of Kepler is fitted while the K80 is held out; its factors are the group's share of Pascal's."""
    cells = prepare_cells(gpu_table, gpu_table.subset("gpu"))
    fitted = predict_subset(cells, subset="gpu", protocol="leave_one_device_out")
    (fit,) = [outcome.fit for outcome in fitted.outcomes if outcome.fold.label == "tesla_k80_gk210"]
    factors = {name: float(np.log(value)) for name, value in fit.factors.items()}
    for unknown in fitted.unknowns:
        if unknown.name.endswith("_kepler"):
            other = factors[unknown.name.replace("kepler", "pascal")]
            share = unknown.shared_spread**2 / (unknown.shared_spread**2 + unknown.spread**2)
            assert factors[unknown.name] == pytest.approx(share * other, rel=1e-2, abs=1e-4), unknown.name
    kept = sum(unknown.name.endswith("_kepler") for unknown in fitted.unknowns)
    assert fit.parameter_count <= len(fitted.unknowns) - kept


def test_senseless_protocols_are_refused(gpu_table):
    with pytest.raises(ArgumentError, match=r"GPU rows have none.*leave_one_thread_count_out"):
        pm.validate(gpu_table, protocol="leave_one_thread_count_out", only="gpu")
    lonely = part_of_shi2016(lambda row: row.device == "gtx_980" and row.network == "fcn5")
    with pytest.raises(CalibrationError, match=r"leave_one_device_out: nothing is left to fit.*'gtx_980' of 4 cells"):
        pm.validate(lonely, protocol="leave_one_device_out", only="gpu")
    with pytest.raises(CalibrationError, match="calibrated_on_one_device: nothing is left to fit"):
        pm.validate(lonely, protocol="calibrated_on_one_device", only="gpu")
    with pytest.raises(UnknownNameError, match="Did you mean 'leave_one_device_out'"):
        pm.validate(lonely, protocol="leave_one_devices_out")


@pytest.mark.parametrize("share", [0, 1, -0.5, 1.5, True, "x", float("nan")])
def test_a_share_is_between_none_and_all(gpu_table, share):
    with pytest.raises(ArgumentError, match=r"fit_share must.*above 0 and below 1"):
        pm.validate(gpu_table, only="gpu", fit_share=share)


def test_a_share_that_leaves_nothing_is_refused(gpu_table):
    with pytest.raises(CalibrationError, match="leaves 0 to fit and 12 to score"):
        pm.validate(gpu_table, only="gpu", fit_share=0.01)
    with pytest.raises(ArgumentError, match=r"fit_share must.*protocol='all_fitted'.*\(got 0.5"):
        pm.validate(gpu_table, only="gpu", fit_share=0.5, protocol=ALL_FITTED)


def test_a_share_of_the_rows_is_fitted_and_the_others_scored(gpu_table, gpu_cells):
    (fold,) = part_of_rows(gpu_cells, share=0.5)
    assert part_of_rows(gpu_cells, share=0.5) == [fold]
    assert not set(fold.trained) & set(fold.scored)
    assert len(fold.scored) == 6
    assert all(gpu_cells[index].is_scored for index in fold.trained)
    report = pm.validate(gpu_table, only="gpu", fit_share=0.5)
    shown = {(cell.framework, cell.network, cell.device) for cell in (*report.cells, *report.set_aside)}
    rows = [gpu_cells[index].row for index in fold.scored]
    assert shown == {(row.framework, row.network, row.device) for row in rows}
    assert report.protocol == "fitted on 50% of the rows"
    spoilt = with_times(gpu_table, keys_of(gpu_cells, fold.scored), factor=10)
    again = pm.validate(spoilt, only="gpu", fit_share=0.5)
    assert [cell.predicted_s for cell in again.cells] == [cell.predicted_s for cell in report.cells]


def test_reports_tell_every_fold(gpu_table):
    report = pm.validate(gpu_table, protocol="leave_one_family_out", only="gpu")
    assert [(row.held_out, row.fitted_cells + row.scored_cells) for row in report.folds] == [
        ("FCN", 11), ("CNN", 11), ("LSTM", 11),
    ]  # fmt: skip
    for row in report.folds:
        errors = [abs(cell.ratio - 1) for cell in report.cells if cell.fold == row.held_out]
        assert (row.scored_cells, row.mape) == (len(errors), pytest.approx(100 * np.mean(errors)))
    assert report.fitted["gpu"] == max(row.fitted for row in report.folds) > 0
    assert not len(report.factors)  # three fits, none of which stands for the subset
    assert all(text in str(report) for text in ("FCN", "CNN", "LSTM", "leave_one_family_out"))
    content = report.to_dict()
    assert len(content["folds"]) == 3
    assert {cell["fold"] for cell in content["cells"]} == {"FCN", "CNN", "LSTM"}


def test_fitting_helps_where_it_is_scored_on_what_it_saw(gpu_table):
    plain, fitted = (pm.validate(gpu_table, protocol=name, only="gpu") for name in ("nothing_fitted", ALL_FITTED))
    assert fitted.typical_factor_percent < plain.typical_factor_percent
    assert plain.parameter_count == 0 < fitted.parameter_count
    assert len(fitted.factors) >= fitted.parameter_count
    assert all(row.low < row.factor < row.high for row in fitted.factors)


def test_every_subset_names_a_plan_that_is_there():
    from perfmodel.validation.protocols.protocols import PLAN_OF_SUBSET

    there = {path.stem for path in (shipped_folder() / "fit_plans").glob("*.toml")}
    assert set(PLAN_OF_SUBSET.values()) <= there


def test_a_column_beyond_the_cores_is_held_out_with_everything_else_fitted():
    table = pm.measurements.load("shi2016")
    rows = [*table.subset("cpu_oversubscribed"), *table.subset("cpu")]
    cells = prepare_cells(table, rows)
    folds = folds_of("leave_one_column_out", cells)
    assert sorted(len(fold.scored) for fold in folds) == [17, 21]
    for fold in folds:
        assert {cells[index].row.threads for index in fold.scored} <= {8, 32}
        assert len({cells[index].row.device for index in fold.scored}) == 1
        assert len(fold.scored) + len(fold.trained) == len(cells)
        assert not set(fold.scored) & set(fold.trained)


def test_the_column_protocol_scores_cells_beyond_the_cores_only():
    with pytest.raises(ArgumentError, match="cpu_oversubscribed"):
        pm.validate("shi2016", protocol="leave_one_column_out", only="cpu")
