"""One registry of tables that are scored in a way of their own: pm.validate, the command line, help, scoreboard."""

import doctest
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import perfmodel as pm
from perfmodel.cli.app import app, run
from perfmodel.errors import ArgumentError, TableError, UnknownNameError
from perfmodel.presentation.tables import Table
from perfmodel.validation.reports import own_tables
from perfmodel.validation.reports.mullapudi import KEY, illustrate
from perfmodel.validation.reports.own_tables import MANY_DEVICES, OWN_TABLES, OwnTable, own_table, table_names
from perfmodel.validation.scores.table_report import PERFMODEL, RowReport, compared

DOCS = Path(__file__).resolve().parents[2] / "docs"
QUICK = ("mullapudi2017", "paleo2017", "wuensche2018_multi_gpu")


@pytest.fixture(scope="module")
def reports():
    found = {name: pm.validate(name) for name in QUICK if name != KEY}
    return {**found, KEY: illustrate(played_steps=0)}


@pytest.mark.parametrize("name", ["paleo2017", "wuensche2018_multi_gpu"])
def test_what_python_returns_is_what_the_command_prints(reports, name, capsys):
    report = reports[name]
    assert run(["validate", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(report.to_dict()))
    assert len(report.rows) == len(report.to_dict()["rows"])
    assert report.rows.to_text().splitlines()[0] in str(report)


@pytest.mark.parametrize("name", QUICK)
def test_every_score_has_a_naive_rule_beside_it(reports, name):
    parts = {}
    for each in reports[name].parts:
        parts.setdefault(each.part, []).append(each.score)
    assert bool(parts) == (reports[name].mape is not None)
    for scores in parts.values():
        assert scores[0].model == PERFMODEL
        assert len(scores) > 1
        assert len({score.cells for score in scores}) == 1


def test_growth_is_off_by_the_factors_of_its_rows(reports):
    rows = {row.queues: row for row in reports["mullapudi2017"].sensitivity if row.batch_size in (None, 128)}
    factors = reports["mullapudi2017"].growth_factors
    assert factors["Downpour"] == pytest.approx(rows["busiest part"].downpour_growth / rows["measured"].downpour_growth)
    assert factors["delay-compensated"] == pytest.approx(
        rows["busiest part"].compensated_growth / rows["measured"].compensated_growth
    )
    assert 1 < factors["Downpour"] < factors["delay-compensated"] < 1.5
    assert reports["mullapudi2017"].parts[0].score.cells == 6  # nothing is fitted to any
    assert reports["mullapudi2017"].parts[0].score.fitted == 0


def test_claims_are_not_scored(reports):
    report = reports["wuensche2018_multi_gpu"]
    assert report.mape is None
    assert {row.framework: round(row.saved_percent) for row in report.rows} == {
        "cntk": 35, "mxnet": 35, "caffe": 28, "torch": 10, "tensorflow": 10,
    }  # fmt: skip
    for row in report.rows:
        assert 100 / row.speedup + row.saved_percent == pytest.approx(100)
        assert row.efficiency_percent + row.implied_exposed_percent == pytest.approx(100)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["paleo2017", "--rows", "--sensitivity"], "--sensitivity, --rows"),
        (["mullapudi2017", "--protocol", "all_fitted"], "--protocol"),
        (["paleo2017", "--plot", "x.png"], "--plot"),
        (["paleo2017", "--data", "."], "data must be left out, as the table paleo2017 comes with perfmodel"),
        (["shi2016", "--data", "X"], "data must be left out, as the table shi2016 comes with perfmodel"),
        (["nccl_a100_sxm"], "systems/nccl_a100_sxm.csv"),
        (["wuensche2018_multi_gpu", "--max-mape", "5"], "--max-mape must"),
        (["mullapudi2018"], "Did you mean 'mullapudi2017'"),
        (["nccl_a100"], "Did you mean 'nccl_a100_sxm'"),
        (["shi2061"], "Did you mean 'shi2016'"),
    ],
)
def test_what_has_no_effect_or_no_table_is_told_by_name(words, told, capsys):
    assert run(["validate", *words]) == 2
    assert told in capsys.readouterr().err


def test_a_bound_on_the_error_works_where_there_is_one(reports, capsys):
    mape = reports["paleo2017"].mape
    assert run(["validate", "paleo2017", "--max-mape", str(mape + 0.1)]) == 0
    assert run(["validate", "paleo2017", "--max-mape", str(mape - 0.1)]) == 1
    assert "check failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [{"protocol": "all_fitted"}, {"only": "gpu"}, {"fit_share": 0.5}], ids=lambda given: next(iter(given))
)
def test_python_refuses_the_same(options):
    with pytest.raises(ArgumentError, match=next(iter(options))):
        pm.validate("paleo2017", **options)


def test_python_names_the_nearest_of_all_tables_and_what_is_missing(tmp_path):
    with pytest.raises(UnknownNameError, match="Did you mean 'korthikanti2022'"):
        pm.validate("korthikanti2021")
    with pytest.raises(ArgumentError, match=r"deepbench_allreduce\.csv"):
        pm.validate("deepbench_allreduce")
    with pytest.raises(TableError, match="there are none"):
        pm.validate("deepbench_allreduce", data=tmp_path)
    with pytest.raises(ArgumentError, match="data must"):
        pm.validate(pm.measurements.load("shi2016"), data=tmp_path)


def _half(file):
    rows = [float(line) for line in file.read_text().split()]
    line = OwnTable("row", MANY_DEVICES, file, _half)
    parts = compared("nowhere", {PERFMODEL: [row / 2 for row in rows], "same": rows}, measured=rows, fitted={})
    return RowReport(table=file.stem, rows=Table([line] * len(rows)), parts=parts)


def test_a_table_of_a_folder_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "systems").mkdir()
    (tmp_path / "systems" / "halved.csv").write_text("1 2 3")
    added = OwnTable("halved_rows", MANY_DEVICES, Path("systems/halved.csv"), _half)
    monkeypatch.setitem(own_tables.OWN_TABLES, added.name, added)
    assert pm.validate("halved_rows", data=tmp_path).mape == pytest.approx(50)
    assert pm.validate("halv", data=tmp_path).mape == pytest.approx(50)  # how its file begins
    assert run(["validate", "halved_rows", "--data", str(tmp_path), "--max-mape", "49"]) == 1
    assert "50.0" in capsys.readouterr().out
    assert "halved_rows" in CliRunner().invoke(app, ["validate", "--help"]).output
    with pytest.raises(UnknownNameError, match="Did you mean 'halved_rows'"):
        pm.validate("halved_row")


def test_shipped_tables_are_found_with_their_file():
    for name, table in OWN_TABLES.items():
        assert table.name == name
        if table.is_shipped:
            assert own_table(name).file.is_file()


def test_help_and_pages_list_all_tables():
    printed = CliRunner().invoke(app, ["validate", "--help"]).output
    page = (DOCS / "measurements.md").read_text()
    for name in table_names():
        assert name in printed
        assert f"`{name}`" in page


def test_the_page_prints_what_it_says():
    outcome = doctest.testfile(str(DOCS / "measurements.md"), module_relative=False)
    assert outcome.failed == 0
    assert outcome.attempted > 2
