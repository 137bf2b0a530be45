"""The worst cells are found, and what is said of them comes from the prediction and the table."""

from dataclasses import replace

import pytest

import perfmodel as pm
from perfmodel.validation.protocols.cells import predict_cell, prepare_cells
from score_tables import COUNT, worst_cells


@pytest.fixture(scope="module")
def table():
    return pm.measurements.load("shi2016")


@pytest.fixture(scope="module")
def planted(table):
    """Cells whose measured times are the predicted ones, but for one that is five times as long."""
    rows = [row for row in table.subset("gpu") if row.network == "fcn5"]
    cells = prepare_cells(table, rows)
    times = [predict_cell(cell)[0].predicted_s for cell in cells]
    times[3] *= 5
    exact = [
        replace(cell, row=replace(cell.row, step_s=step_s, note="a planted note." if step_s == times[3] else ""))
        for cell, step_s in zip(cells, times, strict=True)
    ]
    return exact, [predict_cell(cell)[0] for cell in exact]


def told(table, planted):
    cells, predicted = planted
    return worst_cells(table, cells, predicted, subset="gpu", protocol="nothing_fitted"), cells[3], predicted[3]


def test_the_planted_cell_is_the_worst(table, planted):
    (worst, *others), cell, _ = told(table, planted)
    assert worst.cell == f"fcn5, {cell.row.framework}, {cell.row.device}"
    assert worst.ratio == pytest.approx(0.2)
    assert all(other.ratio == pytest.approx(1) for other in others)
    assert len(others) == min(COUNT, len(planted[0])) - 1


def test_its_explanation_is_that_of_its_prediction(table, planted):
    (worst, *_), cell, predicted = told(table, planted)
    text = worst.explanation
    assert f"bound by {predicted.bottleneck.replace('_', ' ')}" in text
    assert "a planted note." in text
    assert f"batch of {cell.row.batch_size}" in text
    assert "geometric mean: " in text
    assert "1.00 (" in text  # the sisters are right
    assert "subnormal" not in text  # on a GPU they cost nothing


def test_a_part_that_alone_would_explain_it_is_named(table, planted):
    cells, predicted = planted
    prediction = pm.predict(table.run_of(cells[0].row), device=cells[0].row.device, framework=cells[0].row.framework)
    name, largest = max(prediction.breakdown.items(), key=lambda part: part[1])
    longer = replace(cells[0], row=replace(cells[0].row, step_s=predicted[0].predicted_s + largest))
    (worst, *_) = worst_cells(table, [longer], [predict_cell(longer)[0]], subset="gpu", protocol="nothing_fitted")
    assert f"{name.removesuffix('_s').replace('_', ' ')} 2" in worst.explanation.split("so many times as long: ")[1]
