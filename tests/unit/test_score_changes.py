"""A score that got worse must be named; one that is not what the code gives must be seen."""

from dataclasses import replace

import pytest

from board_records import (
    BoardScore,
    Collected,
    Scoreboard,
    ScoredTable,
    load_scoreboard,
    save_scoreboard,
)
from perfmodel.errors import TableError
from score_changes import differences, newest_section, stale_scores, unnamed, worse_scores

SCORE = BoardScore(
    table="shi2016",
    subset="cpu",
    protocol="leave_one_row_out",
    model="perfmodel",
    cells=10,
    fitted=3,
    mape=10.0,
    median_ape=8.0,
    p90_ape=20.0,
    typical_factor_percent=11.0,
    geometric_mean_ratio=1.0,
    percent_within_10=50.0,
    percent_within_25=90.0,
)
NAIVE = replace(SCORE, model="roofline", mape=40.0)
CHANGELOG = """# Changelog

## 0.2.0

### Predictions that changed
- `shi2016`, `cpu`: {protocols} are worse, because
  a bound was wrong.

### Added
- `leave_one_row_out` of shi2016, cpu.

## 0.1.0

### Predictions that changed
- shi2016, cpu, leave_one_row_out
"""


def board(*scores, kind="steps", rows=10):
    table = ScoredTable(name="shi2016", kind=kind, is_shipped=True, sha256="0", rows=rows)
    return Scoreboard(version="1", code="c", tables=(table,), scores=scores)


def changed(**figures):
    return replace(SCORE, **figures)


@pytest.mark.parametrize("column", ["mape", "typical_factor_percent"])
def test_half_a_point_is_tolerated_and_more_is_not(column):
    before = getattr(SCORE, column)
    assert worse_scores(board(SCORE), board(changed(**{column: before + 0.5}))) == []
    (found,) = worse_scores(board(SCORE), board(changed(**{column: before + 0.6})))
    assert (found.column, found.before) == (column, before)
    assert worse_scores(board(SCORE), board(changed(**{column: before - 5}))) == []


def test_kernels_are_judged_by_their_median():
    assert worse_scores(board(SCORE), board(changed(mape=12.0), kind="kernels")) == []
    assert worse_scores(board(SCORE), board(changed(median_ape=8.6), kind="kernels"))


def test_naive_rules_may_get_worse():
    assert worse_scores(board(NAIVE), board(replace(NAIVE, mape=60.0))) == []


@pytest.mark.parametrize(
    ("now", "cells"),
    [
        (board(NAIVE), 0),  # the protocol was dropped
        (board(changed(protocol="leave_one_line_out")), 0),  # or renamed
        (board(rows=0), 0),  # or the whole table refused
        (board(changed(cells=9)), 9),
    ],
)
def test_a_score_that_is_gone_or_covers_less_must_be_named(now, cells):
    (found,) = worse_scores(board(SCORE, NAIVE), now)
    assert (found.column, found.before, found.after) == ("cells", 10, cells)
    assert f"10 -> {cells} cells" in str(found)
    assert unnamed([found], CHANGELOG.format(protocols="`leave_one_device_out`")) == [found]
    assert unnamed([found], CHANGELOG.format(protocols="`leave_one_row_out`")) == []


def test_more_cells_are_not_worse():
    assert worse_scores(board(SCORE), board(changed(cells=11))) == []


def test_only_the_newest_section_names_and_all_three_words_count():
    change = worse_scores(board(SCORE), board(changed(mape=11.0)))
    assert unnamed(change, CHANGELOG.format(protocols="`leave_one_device_out` and `leave_one_row_out`")) == []
    assert unnamed(change, CHANGELOG.format(protocols="`leave_one_device_out`")) == change
    assert unnamed(change, CHANGELOG.format(protocols="`leave_one_row_out`").replace("`cpu`", "`cpu_oversubscribed`"))
    assert "Added" not in newest_section(CHANGELOG)


def test_a_recomputation_may_differ_by_rounding_only():
    assert differences(board(SCORE, NAIVE), board(changed(mape=10.04), NAIVE)) == []
    assert differences(board(SCORE), board(changed(mape=10.06)))
    assert differences(board(SCORE), board(changed(fitted=4)))
    assert differences(board(SCORE), board(replace(SCORE, protocol="new")))


def test_a_recomputation_may_lack_slow_protocols_only():
    slow = changed(protocol="slow")
    assert differences(board(SCORE, NAIVE, slow), board(SCORE, NAIVE)) == []
    (gone,) = differences(board(SCORE, NAIVE, slow), board(SCORE))
    assert "roofline: on the committed scoreboard and no longer computed" in gone


def test_a_table_that_is_refused_differs_and_keeps_no_slow_score():
    slow = changed(protocol="slow")
    (refused,) = differences(board(SCORE), board(rows=0))
    assert "10 rows scored -> 0" in refused
    merged = board(rows=0).with_slow_scores(board(SCORE, slow))
    assert merged.scores == ()
    assert [table.rows for table in merged.tables] == [0]


def test_scores_of_a_page_follow_from_one_state_of_the_code():
    fresh, old = changed(code="new"), changed(protocol="slow", code="old")
    assert stale_scores(board(fresh, replace(old, code="new"))) == []
    quick = board(fresh, replace(NAIVE, code="new")).with_slow_scores(board(fresh, old))
    (stale,) = stale_scores(quick)
    assert stale == "shi2016, cpu, slow: computed with old, most others with new"
    assert stale_scores(board(fresh, replace(old, code="")))  # nothing kept is no excuse
    assert stale_scores(board(SCORE))
    elsewhere = replace(old, table="kernels of others")
    assert stale_scores(board(fresh, elsewhere)) == []  # computed where that table is, perhaps by older code
    assert stale_scores(board(fresh, elsewhere, replace(elsewhere, protocol="slower", code="older")))


def test_every_new_score_is_marked():
    collected = Collected()
    collected.add(SCORE, NAIVE)
    (mark,) = {score.code for score in collected.board().scores}
    assert len(mark) == 12


def test_a_file_round_trips_and_another_layout_is_refused(tmp_path):
    path = tmp_path / "scoreboard.json"
    save_scoreboard(board(SCORE, NAIVE), path)
    assert load_scoreboard(path) == board(SCORE, NAIVE)
    path.write_text(path.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(TableError, match="format must be 1"):
        load_scoreboard(path)
    path.write_text('{"format": 1, "version": "1", "code": "c", "scores": [{"table": "a"}]}')
    with pytest.raises(TableError, match="compute it again"):
        load_scoreboard(path)


def test_what_is_not_computed_again_stays():
    fast, slow = replace(SCORE, protocol="fast"), replace(SCORE, protocol="slow")
    other = replace(SCORE, table="elsewhere")
    gone = replace(fast, model="a rule that there is no more")
    kept = board(slow, fast, gone, other)
    merged = board(replace(fast, mape=9.0)).with_slow_scores(kept).with_kept(kept)
    assert [(each.table, each.protocol, each.mape) for each in merged.scores] == [
        ("shi2016", "slow", 10.0),
        ("shi2016", "fast", 9.0),
        ("elsewhere", "leave_one_row_out", 10.0),
    ]
