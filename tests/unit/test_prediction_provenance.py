"""Every constant that moves a prediction says where it comes from, and how much of the doubt it makes."""

import json

import pytest

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.hardware.source import PROVENANCES
from perfmodel.prediction.device.factors import stated_constant

PLACES = [
    {"batch_size": 16, "device": "gtx_1080", "framework": "tensorflow_0_9"},
    {"batch_size": 16, "device": "i7_3820", "framework": "caffe_1_0_rc3", "threads": 4},
]


@pytest.fixture(scope="module", params=PLACES, ids=["gpu", "cpu"])
def p(request):
    return pm.predict(pm.zoo.alexnet(), **request.param)


def test_shares_sum_to_one_and_fall(p):
    shares = [row.share for row in p.provenance]
    assert sum(shares) == pytest.approx(1, abs=1e-6)
    assert shares == sorted(shares, reverse=True)


def test_each_row_says_value_unit_and_source(p):
    for row in p.provenance:
        assert row.provenance in PROVENANCES
        assert row.source
        assert row.unit
        assert row.spread_percent > 0
        assert row.constant.split("/")[0] in ("frameworks", "libraries", "devices", "links")


def test_values_are_those_of_the_files(p):
    specs = p.basis.prepared.specs
    for row in p.provenance:
        assert row.value == pytest.approx(stated_constant(row.constant, specs).value)


def test_a_faster_constant_is_told_from_a_slower_one(p):
    by_name = {row.constant: row for row in p.provenance}
    signs = {"dispatch_us": 1, "peak_tflop_per_s.fp32": -1, "clock_base_ghz": -1, "gemm_efficiency": -1}
    told = [
        (row.sensitivity * sign)
        for name, row in by_name.items()
        for ending, sign in signs.items()
        if name.endswith(ending)
    ]
    assert told
    assert all(sensitivity > 0 for sensitivity in told)


def test_every_number_of_a_step_can_be_read_by_its_name(p):
    prepared = p.basis.prepared
    for name in prepared.constant_names:
        stated = stated_constant(name, prepared.specs)
        assert stated is not None, name
        assert stated.source is not None, name


def test_it_is_a_frame_and_json(p):
    frame = p.provenance.to_frame()
    assert list(frame.columns)[:6] == ["constant", "value", "unit", "provenance", "source", "rows"]
    content = json.loads(json.dumps(p.to_dict()))
    assert len(content["constants"]) == len(p.provenance)
    assert content["interval"]["low_s"] == p.interval_s[0]
    assert {source["provenance"] for file in content["provenance"] for source in file["sources"]} <= set(PROVENANCES)


def test_explain_names_the_constants_that_matter(p):
    text = " ".join(p.explain().split())
    assert "80 % of measured times should lie within" in text
    first = p.provenance[0]
    assert first.constant in text
    assert first.provenance in text
    assert "uncertain constants" in text


def test_a_calibrated_constant_says_on_what_it_was_fitted():
    p = pm.predict(pm.zoo.alexnet(), **PLACES[0], calibration="shi2016_gpu")
    fitted = [row for row in p.provenance if row.source.startswith("shi2016, gpu; before: ")]
    assert fitted
    assert all(row.provenance == "fitted" and row.rows == 63 and row.residual_percent for row in fitted)
    plain = {row.constant: row.value for row in pm.predict(pm.zoo.alexnet(), **PLACES[0]).provenance}
    assert any(row.value != plain.get(row.constant) for row in fitted)


def test_the_command_line_says_it(capsys):
    arguments = ["predict", "alexnet", "--batch-size", "16", "--device", "gtx_1080", "--framework", "torch_423cfba"]
    assert run([*arguments, "--explain"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "80 % interval" in text
    assert "The constants that make it most uncertain" in text
    assert run([*arguments, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["interval"]["low_s"] < content["step_s"] < content["interval"]["high_s"]
