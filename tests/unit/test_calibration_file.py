"""Calibration files, and fits kept by content."""

import json
import resource
import tomllib
from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError, CalibrationError, SpecError, UnknownNameError
from perfmodel.fitting import fit
from perfmodel.hardware.fit_file import load_calibration
from perfmodel.hardware.spec_files import shipped_folder, toml_document
from perfmodel.private_folders import cache_folder
from perfmodel.validation.validate import require_independence, sources_from

ROW = {"batch_size": 16, "framework": "caffe_1_0_rc3", "device": "gtx_980"}


def table_of(*times):
    """A table of AlexNet at several batch sizes."""
    import pandas as pd

    rows = [ROW | {"network": "alexnet", "batch_size": 16 * (i + 1), "step_s": time} for i, time in enumerate(times)]
    return pm.measurements.from_frame(pd.DataFrame(rows), key="mine")


@pytest.fixture(scope="module")
def calibration():
    return pm.fit(table_of(0.1, 0.2, 0.3), only="gpu")


def predicted(**options):
    return pm.predict(pm.zoo.alexnet(), batch_size=16, device="gtx_980", framework="caffe_1_0_rc3", **options).step_s


def test_a_saved_calibration_is_read_as_it_was(tmp_path, calibration):
    path = tmp_path / "mine.toml"
    calibration.save(path)
    assert load_calibration(path) == calibration
    assert [each.name for each in tmp_path.iterdir()] == ["mine.toml"]
    assert predicted(calibration=path) == predicted(calibration=calibration) == predicted(calibration=str(path))
    assert predicted(calibration=path) > 1.2 * predicted()


def test_a_calibration_moves_the_constants_it_lists(calibration):
    assert calibration.fitted_on.row_count == 3
    assert 0 < calibration.fitted_on.parameter_count <= len(calibration.factor)
    assert calibration.constant
    product = {row.name: row.fitted / row.shipped for row in calibration.constant}
    for name, factor in calibration.factors_for(product).items():
        assert product[name] == pytest.approx(factor) or product[name] < factor, f"{name}: unless its range ends"
    ratios = [predicted(calibration=calibration) / 0.1]
    assert ratios == pytest.approx([1], abs=0.15)


def test_a_calibration_is_found_by_name(tmp_path, monkeypatch, calibration):
    (tmp_path / "calibrations").mkdir()
    calibration.save(tmp_path / "calibrations" / "my_gpus.toml")
    monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
    assert predicted(calibration="my_gpus") == predicted(calibration=calibration)
    with pytest.raises(UnknownNameError, match=r"unknown calibration 'my_gpu'. Did you mean 'my_gpus'"):
        predicted(calibration="my_gpu")
    with pytest.raises(ArgumentError, match=r"calibration must.*\(got 3"):
        predicted(calibration=3)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("value = ", "value = -", "value"),
        ("low = ", "low = 9", "high"),
        ("row_count = 3", 'row_count = "three"', "row_count"),
        ('kind = "fit"', 'kind = "gpu"', "kind"),
        ("prior_spread", "prior_spred", "prior_spred"),
        ("[fitted_on]", "[fited_on]", "fited_on"),
    ],
)
def test_a_wrong_file_is_refused_by_field(tmp_path, calibration, old, new, field):
    path = tmp_path / "wrong.toml"
    calibration.save(path)
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(SpecError, match=field) as caught:
        predicted(calibration=path)
    assert "wrong.toml" in str(caught.value)


def test_the_content_is_that_of_the_rows(calibration):
    same, other = pm.fit(table_of(0.1, 0.2, 0.3)), pm.fit(table_of(0.1, 0.2, 0.31))
    assert same.fitted_on.content == calibration.fitted_on.content
    assert other.fitted_on.content != calibration.fitted_on.content
    assert same.factor == calibration.factor


def test_a_calibration_may_not_serve_to_score_its_own_table(calibration):
    table = pm.measurements.load("shi2016")
    few = replace(table, rows=tuple(row for row in table.rows if row.network == "fcn5" and row.threads is None))
    own = pm.fit(replace(few, runs=tuple(run for run in few.runs if run.network == "fcn5")))
    with pytest.raises(CalibrationError, match=r"scored on \(shi2016\): shi2016, gpu: .*factor"):
        require_independence(table, [own])
    assert not list(sources_from(table, [calibration]))
    prediction = pm.predict(pm.zoo.alexnet(), batch_size=16, device="gtx_980", calibration=own)
    assert own in prediction.sources  # so that whoever scores it finds out


class Counted:
    """Counts fits."""

    def __init__(self, monkeypatch):
        self.count = 0
        plain = fit.fit_folds

        def counting(*arguments, **options):
            self.count += 1
            return plain(*arguments, **options)

        monkeypatch.setattr(fit, "fit_folds", counting)


@pytest.fixture
def counted(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFMODEL_CACHE", str(tmp_path / "kept"))
    return Counted(monkeypatch)


def test_the_same_is_fitted_once(counted, tmp_path):
    seen = []
    first, again = (
        pm.validate(table_of(0.1, 0.2), protocol="all_fitted", progress=lambda done, of: seen.append((done, of)))
        for _ in range(2)
    )
    assert counted.count == 1
    assert seen == [(100, 100), (100, 100)]
    assert [cell.predicted_s for cell in first.cells] == [cell.predicted_s for cell in again.cells]
    assert list(first.factors) == list(again.factors)
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_what_a_fit_follows_from_makes_another(counted, tmp_path, monkeypatch):
    def fit_again(table=None):
        before = counted.count
        pm.fit(table or table_of(0.1, 0.2))
        return counted.count - before

    assert fit_again() == 1
    assert fit_again() == 0
    assert fit_again(table_of(0.1, 0.2001)) == 1  # a time
    assert fit_again(table_of(0.1, 0.2, 0.3)) == 1  # a row
    specs = tmp_path / "specs"
    (specs / "fit_plans").mkdir(parents=True)
    plan = (shipped_folder() / "fit_plans" / "gpu.toml").read_text()
    (specs / "fit_plans" / "gpu.toml").write_text(plan.replace("noise = 0.05", "noise = 0.06"))
    monkeypatch.setenv("PERFMODEL_SPECS", str(specs))
    assert fit_again() == 1  # the plan
    (specs / "frameworks").mkdir()
    profile = (shipped_folder() / "frameworks" / "caffe_1_0_rc3.toml").read_text()
    (specs / "frameworks" / "caffe_1_0_rc3.toml").write_text(profile)
    assert fit_again() == 1  # a file that wins
    (specs / "frameworks" / "caffe_1_0_rc3.toml").write_text(profile + "\n# changed\n")
    assert fit_again() == 1
    assert fit_again() == 0
    monkeypatch.setattr(fit, "code_fingerprint", lambda: "other code")
    assert fit_again() == 1


def test_an_empty_variable_keeps_nothing(counted, monkeypatch, tmp_path):
    monkeypatch.setenv("PERFMODEL_CACHE", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert cache_folder("fits") is None
    for _ in range(2):
        pm.fit(table_of(0.1))
    assert counted.count == 2
    assert not list(tmp_path.iterdir())
    monkeypatch.delenv("PERFMODEL_CACHE")
    assert cache_folder("fits") == tmp_path / "home" / "perfmodel" / "fits"


@pytest.mark.parametrize("content", ["", "[{}]", "[1]", "null", "{", '[{"names": 3}]', "[]"])
def test_what_cannot_be_read_is_fitted_again(counted, tmp_path, content):
    first = pm.fit(table_of(0.1))
    (path,) = (tmp_path / "kept").iterdir()
    path.write_text(content)
    assert pm.fit(table_of(0.1)) == first
    assert counted.count == 2
    assert json.loads(path.read_text())[0]["converged"] is True


def test_a_folder_that_cannot_be_written_is_no_fault(counted, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PERFMODEL_CACHE", str(tmp_path / "file"))
    assert np.isfinite(pm.fit(table_of(0.1)).factor[0].value)


@pytest.fixture
def full_disk():
    """No file of this process may grow beyond ten bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_cache_on_a_full_disk_loses_no_fit(counted, full_disk, tmp_path):
    assert np.isfinite(pm.fit(table_of(0.1)).factor[0].value)
    assert not list((tmp_path / "kept").iterdir())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"covariance": (-1e-3,)}, "variance of ln(factor) must be from 0 to 100, but is -0.001"),
        ({"covariance": (1e15,)}, "variance of ln(factor) must be from 0 to 100, but is 1e\\+15"),
        ({"low": 1e-300, "high": 1e300, "covariance": ()}, "variance of ln(factor) must be from 0 to 100"),
        ({"covariance": (0.01,), "second": (0.02, 0.01)}, "no combination of factors may have a variance below 0"),
    ],
)
def test_a_covariance_without_an_interval_is_refused(tmp_path, changed, message):
    path = shipped_folder() / "calibrations" / "shi2016_gpu.toml"
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    second = changed.pop("second", None)
    content["factor"] = content["factor"][: 2 if second else 1]
    content["factor"][0] |= changed
    if second:
        content["factor"][1] |= {"covariance": second}
    written = tmp_path / "mine.toml"
    written.write_text(toml_document(content, tables=("fitted_on",), lists=("factor", "constant", "source")))
    with pytest.raises(SpecError, match=message.replace("(", r"\(").replace(")", r"\)")):
        pm.predict(pm.zoo.lenet5(), device="gtx_1080", batch_size=4, framework="caffe_1_0_rc3", calibration=written)
