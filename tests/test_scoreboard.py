"""The committed scoreboard is what the code computes, pages quote it, and what got worse is in the changelog."""

import importlib.util
from pathlib import Path

import pytest

from perfmodel import measurements
from perfmodel.cli.scoreboard import RECORDS, pages
from perfmodel.measurements.kernel_tables import content_hash
from perfmodel.validation.all_tables import QUICK, score_shipped
from perfmodel.validation.score_changes import differences, stale_scores, unnamed, worse_scores
from perfmodel.validation.scoreboard import load_scoreboard

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
RECOMPUTE = "run python docs/generate_scoreboard.py"


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate_scoreboard", DOCS / "generate_scoreboard.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def committed():
    return load_scoreboard(DOCS / RECORDS)


def test_committed_scores_are_what_the_code_computes(committed):
    recomputed = score_shipped(protocols=QUICK).board()
    assert {score.subset for score in recomputed.scores} == {"gpu", "cpu", "cpu_oversubscribed"}
    assert differences(committed, recomputed) == [], RECOMPUTE


def test_slow_scores_follow_from_the_same_code_as_quick_ones(committed):
    assert stale_scores(committed) == [], f"{RECOMPUTE} without --quick"


def test_tables_are_those_that_were_scored(committed):
    hashes = {table.name: table.sha256 for table in committed.tables}
    for name in measurements.names():
        path = measurements.load(name).path
        assert hashes.get(name) == content_hash(path, path.with_suffix(".toml")), f"{name}: {RECOMPUTE}"


def test_the_page_says_what_the_records_say(committed):
    for name, text in pages(committed, DOCS).items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, f"{RECOMPUTE} --pages-only"


@pytest.mark.parametrize("page", ["README.md", "docs/accuracy.md", "docs/physics.md"])
def test_pages_quote_the_records(generate, committed, page):
    assert generate.page_text(page, committed) == (ROOT / page).read_text(encoding="utf-8"), f"{RECOMPUTE} --pages-only"


def test_what_got_worse_is_in_the_changelog(generate, committed):
    changes = worse_scores(load_scoreboard(generate.RELEASED), committed)
    missing = unnamed(changes, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert [str(change) for change in missing] == [], "name table, subset and protocol under 'Predictions that changed'"


def test_every_protocol_of_a_fitted_table_is_there(committed):
    for subset, protocols in QUICK.items():
        there = {score.protocol for score in committed.scores if (score.table, score.subset) == ("shi2016", subset)}
        assert there >= {*protocols, "leave_one_cell_out", "leave_one_network_out", "alexnet out", "resnet50 out"}
