"""Answers of all verbs are alike: exported types that show, save and draw themselves in the same way."""

import json
from collections import defaultdict
from dataclasses import fields
from pathlib import Path

import pytest

import measured_machines
import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.framework.measured_lowering import pass_class
from perfmodel.prediction.words.prediction_text import roofline_points, roofs_of
from perfmodel.validation.live.live_report import LiveReport, LiveRow
from perfmodel.validation.reports.mullapudi import illustrate

PAGE = (Path(__file__).parent.parent / "docs" / "results.md").read_text(encoding="utf-8")
JOB = {"batch_size": 16, "device": "gtx_1080"}


def lenet5(**options):
    return pm.predict(pm.zoo.lenet5(), **(JOB | options))


def lenet5_formula():
    return pm.formula(graph=pm.zoo.lenet5(), free=["batch_size"], **JOB)


def live_report():
    return LiveReport(
        device="made-up cores",
        calibration="none",
        datasheet=None,
        rows=pm.Table([], row_type=LiveRow),
        reference_spread_percent=1.0,
        facts={},
    )


ANSWERS = {
    "predict": lenet5,
    "sweep": lambda: pm.sweep(pm.zoo.lenet5(), batch_size=[16, 32], device="gtx_1080"),
    "search": lambda: pm.search(
        pm.zoo.lenet5(), system="dgx_1_p100", devices=2, global_batch_size=8, dtype="fp32", optimizer="adam"
    ),
    "plan": lambda: pm.plan(pm.zoo.lenet5(), epochs=1, batch_size=16, dataset_size=10**6, candidates=["p3.2xlarge"]),
    "advise": lambda: pm.advise(pm.zoo.lenet5(), kinds=["batch_size"], **JOB),
    "compare": lambda: pm.compare(lenet5(), lenet5(batch_size=32)),
    "scaling": lambda: pm.scaling(
        pm.zoo.lenet5(), system="dgx_1_p100", workers=[1, 2], sync="all_reduce", batch_size=16
    ),
    "straggler_slowdown": lambda: pm.straggler_slowdown(workers=[1, 2]),
    "transfer": lambda: pm.transfer("dgx_1_p100", "host:gpu0"),
    "refresh": lambda: pm.refresh(memory_bytes=8e9, bandwidth_bytes_per_s=31.5e9, compute_s=0.5),
    "formula": lenet5_formula,
    "validate": lambda: pm.validate("mxnet2017", protocol="nothing_fitted"),
    "validate of a table with a score of its own": lambda: illustrate(played_steps=0),
    "validate_live": live_report,
    "audit": lambda: pm.audit(pm.zoo.lenet5(), batch_size=1),
    "catalogue": pm.catalogue,
    "graph.summary()": lambda: pm.zoo.lenet5().summary(),
    "p.timeline": lambda: lenet5().timeline,
    "formula.elasticities()": lambda: lenet5_formula().elasticities(),
    "formula.active()": lambda: lenet5_formula().active(),
}
"""Verb -> an answer of it. A live check takes minutes to measure: its report is made by hand."""

WITHOUT_ROWS = {
    "load_device": lambda: pm.load_device("gtx_1080"),
    "load_system": lambda: pm.load_system("dgx_1_p100"),
    "load_link": lambda: pm.load_link("pcie_3_x16"),
    "load_library": lambda: pm.load_library("cublas_7_5"),
    "load_framework": lambda: pm.load_framework("generic"),
    "load_dataset": lambda: pm.load_dataset(pm.catalogue().names("data set")[0]),
    "load_storage": lambda: pm.load_storage(pm.catalogue().names("storage")[0]),
    "load_price": lambda: pm.load_price("p3.2xlarge"),
    "formula.solve_for()": lambda: lenet5_formula().solve_for("batch_size", 1e-3),
}

UNDRAWN = {"Sweep", "Advice", "Refresh", "Formula", "RowReport", "Illustration", "Audit", "Catalogue", "GraphSummary"}
UNDRAWN |= {"Elasticities", "ActiveBranches"}


def listed(verb: str) -> str:
    """The line of a verb in the page."""
    return next(line for line in PAGE.splitlines() if line.startswith("|") and f"`{verb.split(' ')[0]}`" in line)


def _refused(constant: str) -> float:
    raise AssertionError(constant)  # NaN and infinities are not JSON


@pytest.mark.parametrize("verb", ANSWERS)
def test_answers_are_alike(verb: str, tmp_path: Path) -> None:
    answer = ANSWERS[verb]()
    kind = type(answer)
    assert getattr(pm, kind.__name__) is kind
    assert kind.__name__ in pm.__all__
    assert f"`{kind.__name__}`" in PAGE
    assert listed(verb)
    assert isinstance(answer, pm.Result)
    assert isinstance(answer.rows, pm.Table)
    assert str(answer)
    assert "<" in answer._repr_html_()
    public = [getattr(answer, name) for name in answer._DICT_KEYS or [field.name for field in fields(answer)]]
    assert "np." not in repr([answer, *answer.rows, *public])  # numbers are those of Python
    if verb != "validate_live":
        assert len(answer.to_frame()) == len(answer.rows) > 0
    text = answer.to_json(tmp_path / "answer.json")
    assert (tmp_path / "answer.json").read_text(encoding="utf-8") == f"{text}\n"
    assert json.loads(text, parse_constant=_refused).keys() == answer.to_dict().keys()
    if kind.__name__ in UNDRAWN:
        return
    if verb == "validate_live":
        with pytest.raises(ArgumentError):
            answer.plot()
    else:
        assert answer.plot(tmp_path / "answer.svg").axes
        assert (tmp_path / "answer.svg").stat().st_size
        with pytest.raises(ArgumentError, match="path") as refused:
            answer.plot(tmp_path / "missing" / "answer.png")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("verb", WITHOUT_ROWS)
def test_what_else_is_returned_is_exported(verb: str) -> None:
    answer = WITHOUT_ROWS[verb]()
    names = [kind.__name__ for kind in type(answer).__mro__ if getattr(pm, kind.__name__, None) is kind]
    assert names
    assert f"`{names[0]}`" in PAGE


def test_every_exported_type_and_verb_with_an_answer_is_in_the_page() -> None:
    kinds = [name for name in pm.__all__ if isinstance(getattr(pm, name), type) and name not in ("Job", "Work")]
    verbs = [name for name in pm.__all__ if callable(getattr(pm, name)) and not isinstance(getattr(pm, name), type)]
    assert [name for name in (*kinds, *verbs) if f"`{name}`" not in PAGE and f"`pm.{name}`" not in PAGE] == [
        "Calibration"  # the older name of MeasuredMachine
    ]


def test_a_path_that_cannot_be_written_is_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError) as refused:
        lenet5().to_json(tmp_path / "missing" / "p.json")
    assert "\n" not in str(refused.value)


def test_times_are_properties_with_a_unit() -> None:
    p = lenet5()
    names = [name for name in dir(p) if name in ("step_s", *vars(pm.Prediction.__mro__[1])) and name.endswith("_s")]
    assert len(names) == 14
    for name in names:
        assert isinstance(getattr(pm.Prediction, name), property)
        assert getattr(pm.Prediction, name).__doc__.endswith("[s]")
        assert getattr(p, name) == float(getattr(p.parts, name))
    with pytest.raises(AttributeError):
        _ = p.no_such_time


def test_points_of_the_roofline_are_the_layers() -> None:
    p = pm.predict(pm.zoo.alexnet(), **JOB)
    shares = defaultdict(float)
    for row in p.layers:
        if row.flop_count:
            shares[row.flop_count / row.bytes, row.flop_count / row.seconds] += row.seconds / p.step_s
    drawn = defaultdict(float)
    for point in roofline_points(p):
        drawn[point.intensity, point.flop_per_s] += point.share
    assert drawn == pytest.approx(shares)
    groups = {point.group for point in roofline_points(p)}
    assert {"convolution", "product", "element-wise", "reduction", "update"} <= groups
    assert pass_class("relu") not in groups  # by its name for people


def test_roofs_are_peak_and_what_is_sustained_or_measured() -> None:
    t4, (measured,) = lenet5(device="t4"), roofs_of(measured_machines.predicted())
    peak, sustained = roofs_of(t4)
    assert peak.flop_per_s == pytest.approx(8.141e12, rel=1e-3)  # the data sheet of the T4
    assert sustained.flop_per_s == t4.peak_flop_per_s < peak.flop_per_s
    assert peak.ridge == pytest.approx(8.141e12 / 320e9, rel=1e-3)
    assert measured.name == "measured"
    assert len(roofs_of(lenet5())) == 1  # the GTX 1080 sustains its peak


def test_the_roofline_is_written_or_refused(tmp_path: Path) -> None:
    p = lenet5()
    figure = p.plot_roofline(tmp_path / "roofline.png")
    assert (tmp_path / "roofline.png").is_file()
    assert any("ridge" in text.get_text() for text in figure.axes[0].texts)
    for path in ("missing/roofline.png", "roofline.txt"):
        with pytest.raises(ArgumentError, match="path") as refused:
            p.plot_roofline(tmp_path / path)
        assert "\n" not in str(refused.value)
