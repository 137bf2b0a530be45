"""The committed scoreboard is what the code computes, pages quote it, and what got worse is in the changelog."""

from dataclasses import replace
from pathlib import Path

import pytest

import score_tables
import scoreboard
from board_records import Collected, load_scoreboard, save_scoreboard
from perfmodel import measurements
from perfmodel.measurements.kernel_tables import content_hash
from perfmodel.validation.reports.mullapudi import illustrate
from score_changes import differences, stale_scores, unnamed, worse_scores
from score_tables import QUICK, score_shipped
from scoreboard import RECORDS, write_scoreboard

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
RECOMPUTE = "run python tools/scoreboard.py"


@pytest.fixture(scope="module")
def committed():
    return load_scoreboard(DOCS / RECORDS)


@pytest.mark.usefixtures("fits_of_this_run")
def test_committed_scores_are_what_the_code_computes(committed):
    collected = Collected()
    score_shipped(collected, protocols=QUICK)
    recomputed = collected.board()
    assert {score.subset for score in recomputed.scores} == {"gpu", "cpu", "cpu_oversubscribed"}
    assert differences(committed, recomputed) == [], RECOMPUTE


def test_sections_are_written_by_themselves_and_as_they_were_committed(committed, tmp_path, monkeypatch):
    # all but the largest tables, of which tests/published holds the figures
    slow = ("korthikanti2022", "published_layouts")
    quick = {name: table for name, table in score_tables.OWN_TABLES.items() if name not in slow}
    quick["mullapudi2017"] = replace(quick["mullapudi2017"], score=lambda _: illustrate(played_steps=0))
    monkeypatch.setattr(score_tables, "OWN_TABLES", quick)
    wrong = [replace(score, mape=99.0) if score.table in quick else score for score in committed.scores]
    save_scoreboard(replace(committed, scores=tuple(wrong)), tmp_path / RECORDS)
    write_scoreboard(tmp_path, sections="many_devices", progress=False)
    written = load_scoreboard(tmp_path / RECORDS)
    assert [table.name for table in written.tables] == [table.name for table in committed.tables]
    renewed = replace(written, scores=tuple(score for score in written.scores if score.mape != 99.0))
    renewed = replace(renewed, tables=tuple(table for table in renewed.tables if table.kind == "many_devices"))
    assert [line for line in differences(committed, renewed) if "no longer" not in line] == [], RECOMPUTE
    assert {score.note for score in written.scores} == {score.note for score in committed.scores}
    kept = {name for name, table in quick.items() if not table.is_shipped}  # no folder is given
    assert {score.table for score in written.scores if score.mape == 99.0} == kept
    assert [score for score in written.scores if score.table not in quick] == [
        score for score in committed.scores if score.table not in quick
    ]
    page = (tmp_path / "scoreboard.md").read_text(encoding="utf-8")
    assert "\n## mullapudi2017\n" in page
    assert "\n## deepbench_allreduce (not in this repository)\n" in page


def test_slow_scores_follow_from_the_same_code_as_quick_ones(committed):
    assert stale_scores(committed) == [], f"{RECOMPUTE} without --quick"


def test_tables_are_those_that_were_scored(committed):
    hashes = {table.name: table.sha256 for table in committed.tables}
    for name in measurements.names():
        path = measurements.load(name).path
        assert hashes.get(name) == content_hash(path, path.with_suffix(".toml")), f"{name}: {RECOMPUTE}"
    for name, table in score_tables.OWN_TABLES.items():
        if table.is_shipped:
            told = content_hash(table.file, table.file.with_suffix(".toml"))
            assert hashes.get(name) == told, f"{name}: {RECOMPUTE} --sections many_devices"
        else:
            assert name in hashes, f"{name}: {RECOMPUTE} --data FOLDER --sections collectives,many_devices"


def test_the_page_says_what_the_records_say(committed):
    assert (DOCS / scoreboard.PAGE).read_text(encoding="utf-8") == scoreboard.page(committed, DOCS), (
        f"{RECOMPUTE} --pages-only"
    )


@pytest.mark.parametrize("page", ["docs/accuracy.md", "docs/physics.md"])
def test_pages_quote_the_records(committed, page):
    assert scoreboard.page_text(page, committed) == (ROOT / page).read_text(encoding="utf-8"), (
        f"{RECOMPUTE} --pages-only"
    )


def test_what_got_worse_is_in_the_changelog(committed):
    changes = worse_scores(load_scoreboard(scoreboard.RELEASED), committed)
    missing = unnamed(changes, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert [str(change) for change in missing] == [], "name table, subset and protocol under 'Predictions that changed'"


def test_every_protocol_of_a_fitted_table_is_there(committed):
    for subset, protocols in QUICK.items():
        there = {score.protocol for score in committed.scores if (score.table, score.subset) == ("shi2016", subset)}
        assert there >= {*protocols, "leave_one_cell_out", "leave_one_network_out", "alexnet out", "resnet50 out"}
