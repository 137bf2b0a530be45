"""Six epochs on 4, 8 and 12 machines: growth from the queue at the server, price of compensation from operations."""

import json

import pytest
from typer.testing import CliRunner

from perfmodel.cli.app import app, run
from perfmodel.measurements import load_scaling
from perfmodel.validation.tables.mullapudi import illustrate


@pytest.fixture(scope="module")
def found():
    return illustrate(played_steps=0)


def _growth(found, queues, batch_size=None):
    (row,) = [row for row in found.sensitivity if (row.queues, row.batch_size) == (queues, batch_size)]
    return row


def test_measured_growth_is_as_printed(found):
    measured = _growth(found, "measured")
    assert measured.downpour_growth == pytest.approx(0.8523, abs=6e-5)
    assert measured.compensated_growth == pytest.approx(1.3928, abs=6e-5)
    assert (measured.overhead_4, measured.overhead_8, measured.overhead_12) == pytest.approx(
        (1.9886, 2.2663, 2.5352), abs=6e-5
    )


def test_growth_comes_from_the_queue_and_is_within_a_factor_of_one_and_a_half(found):
    measured, model = _growth(found, "measured"), _growth(found, "busiest part", 128)
    for name in ("downpour_growth", "compensated_growth"):
        assert 1 / 1.5 < getattr(model, name) / getattr(measured, name) < 1.5
    assert _growth(found, "a constant").downpour_growth == 0


def test_only_one_time_is_fitted(found):
    assert found.rows[0].predicted_s == pytest.approx(3.52, rel=1e-9)
    epochs = [row.predicted_s for row in found.rows]
    assert epochs[:3] == sorted(epochs[:3])
    assert max(abs(row.predicted_s / row.measured_s - 1) for row in found.rows) < 0.02
    assert sum(row.predicted_s != pytest.approx(row.measured_s, rel=1e-6) for row in found.rows) == 5


def test_compensation_costs_what_its_operations_do(found):
    model = _growth(found, "busiest part", 128)
    # 36 operations of 10 us on two cores and three passes over 220,200 B, of a step of 8.192 ms with two other workers;
    # measured is 2.0: the count explains it to a factor of 1.4, no better
    assert 2.5 < model.overhead_4 < 2.9
    assert model.overhead_4 < model.overhead_8 < model.overhead_12 < 1.6 * 2.5352


def test_the_answer_hangs_on_the_batch_size(found):
    sizes = (64, 100, 128, 200, 256)
    growth = [_growth(found, "busiest part", size).downpour_growth for size in sizes]
    assert growth == sorted(growth, reverse=True)
    assert growth[0] > 4 * 0.8523 > 0.8523 / 3 > growth[-1]


def test_the_command_prints_it(capsys):
    result = CliRunner().invoke(app, ["validate", "mullapudi2017", "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    content = json.loads(result.stdout)
    assert len(content["rows"]) == 6
    played = content["sensitivity"][-1]
    assert played["queues"] == "busiest part, played"
    assert played["downpour_growth"] == pytest.approx(0.79, abs=0.25)
    assert run(["validate", "mullapudi2017", "--rows"]) == 2
    assert "--rows" in capsys.readouterr().err


def test_the_table_says_why_not_to_trust_it():
    table = load_scaling("mullapudi2017")
    assert len(table.rows) == 6
    assert any("constant" in text for text in table.caveats)
