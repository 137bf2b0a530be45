"""Layouts of large runs as their authors published them: what ran, and how far off the steps are; nothing is fitted."""

import csv
from dataclasses import replace

import pytest

import perfmodel as pm
from perfmodel import zoo
from perfmodel.cli.app import run
from perfmodel.measurements import published_tables
from perfmodel.measurements.published_tables import load_published, megatron_flop, palm_flop
from perfmodel.measurements.scaling_tables import load_parallel
from perfmodel.validation.reports import parallel_report
from perfmodel.validation.scores.table_report import ONE_MFU

KEY = "published_layouts"
PARAMETERS_BILLION = {
    "gpt_1.7b": 1.7, "gpt_3.6b": 3.6, "gpt_7.5b": 7.5, "gpt_18b": 18.4, "gpt_39b": 39.1,
}  # fmt: skip
"""Parameters that Narayanan's table 1 prints."""


@pytest.fixture(scope="module")
def report():
    """Two rows of another table, the five smallest of this one and the two of 8K tokens: the whole takes 20 s."""
    with pytest.MonkeyPatch.context() as patched:
        cases = parallel_report.cases_of
        quick = ("gpt_22b", *PARAMETERS_BILLION, "llama3.1_405b, 8192 tokens, 8192 devices")
        patched.setattr(
            parallel_report, "cases_of", lambda table: (case for case in cases(table) if case[1].startswith(quick))
        )
        return pm.validate(KEY)


def test_a_row_of_two_tables_has_one_prediction(report, monkeypatch):
    """Both are scored in the machines that ran them, whose hosts send their kernels."""
    here = {row.row: row.predicted_s for row in report.rows if row.study == "korthikanti2022"}
    table = load_parallel("korthikanti2022")
    both = replace(table, rows=tuple(row for row in table.rows if row.label in here))
    monkeypatch.setattr(parallel_report, "load_parallel", lambda _: both)
    there = {row.row: row.predicted for row in pm.validate("korthikanti2022").rows}
    assert len(here) == len(there) == 2
    assert there == pytest.approx(here, rel=1e-12)


def _scores(report, part):
    return {each.score.model: each.score for each in report.parts if each.part == part}


@pytest.mark.parametrize(("key", "count"), [(KEY, 13), ("megatron_fp8", 22)])
def test_every_line_is_a_layout_that_uses_its_devices_and_says_where_it_comes_from(key, count):
    table = load_published(key)
    with (published_tables.LAYOUTS_FOLDER / f"{key}.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(table.rows) == count
    assert set(table.source) >= {"authors", "publication", "table", "how_read", "licence"}
    for line, row in zip(lines, table.rows, strict=True):
        job = row.arguments
        sizes = [job[name] for name in ("workers", "stages", "tensor_size", "context_size")]
        assert sizes[0] * sizes[1] * sizes[2] * sizes[3] == int(line["device_count"])
        assert job["workers"] * job["micro_batches"] * int(line["micro_batch"]) == int(line["global_batch"])
        assert row.study in table.evidence


def test_steps_of_llama_3_have_the_tokens_that_its_paper_prints():
    rows = [row for row in load_published(KEY).rows if row.study == "llama3_2024"]
    assert {row.sizes["samples"] * row.sizes["length"] for row in rows} == {16 * 2**20}  # "16M" in all three rows


def test_rates_in_tokens_are_those_in_flop_that_the_page_prints_beside_them():
    """Model FLOP/s per device of container 24.07: products and attention at all pairs, as palm counts them."""
    printed = {
        "gpt3_5b": 770,
        "gpt3_20b": 755,
        "gpt3_175b": 802,
        "llama2_7b": 767,
        "llama2_13b": 760,
        "llama2_70b": 763,
    }
    for row in load_published("megatron_fp8").rows:
        if (tflop_per_s := printed.pop(row.label.partition(",")[0], None)) is None:
            continue
        parameters = zoo.build(row.builder, **row.builder_options).parameter_count
        flop = palm_flop(parameters=parameters, **row.sizes)
        assert flop / row.step_s(0) / row.device_count / 1e12 == pytest.approx(tflop_per_s, rel=0.03)
    assert not printed


def test_eight_bits_come_near_what_nvidia_publishes(monkeypatch):
    cases = parallel_report.cases_of
    quick = ("gpt3_5b", "llama2_7b", "llama2_13b")
    monkeypatch.setattr(
        parallel_report, "cases_of", lambda table: (case for case in cases(table) if case[1].startswith(quick))
    )
    report = pm.validate("megatron_fp8")
    assert len(report.rows) == 3
    assert report.mape < 12


def test_counts_of_flop_are_those_of_the_papers():
    """The rates of all devices that the papers print, and the days they estimate, follow from the counts."""
    by_label = {row.label.partition(",")[0]: row for row in load_published(KEY).rows}
    for network, petaflop_per_s in {"gpt_1.7b": 4.4, "gpt_18b": 34.6, "gpt_146b": 227.1, "gpt_1t": 502.0}.items():
        row = by_label[network]
        assert row.counts_per_s * row.device_count / 1e15 == pytest.approx(petaflop_per_s, rel=0.01)
        flop = megatron_flop(**row.sizes)
        assert flop / row.step_s(0) == pytest.approx(row.counts_per_s * row.device_count)
    one_trillion = by_label["gpt_1t"]
    steps = 450e9 / (one_trillion.sizes["samples"] * one_trillion.sizes["length"])
    assert steps * one_trillion.step_s(0) / 86_400 == pytest.approx(84, abs=2)  # section 5.1
    # six FLOP a parameter and token without attention, and attention as much as the third row's caveat says
    llama = load_published(KEY).rows[-1]
    whole = palm_flop(parameters=405_853_388_800, **llama.sizes)
    assert 1 - 6 * 405_853_388_800 * 16 * 2**20 / whole == pytest.approx(0.57, abs=0.005)


def test_what_the_authors_count_is_what_the_graphs_count():
    """Products four times, of the scores three times: HFU of a network whose blocks run again; else MFU."""
    row = load_published(KEY).rows[0]
    prediction = pm.predict(zoo.build(row.builder, **row.builder_options), **row.arguments)
    assert megatron_flop(**row.sizes) == pytest.approx(prediction.utilisation().hardware_flop, rel=1e-4)


def test_steps_are_nearer_than_one_mfu_told_the_answers(report):
    scores = _scores(report, "all")
    assert report.mape == scores["perfmodel"].mape < 9
    assert report.mape < scores[ONE_MFU].mape
    assert (scores["perfmodel"].fitted, scores[ONE_MFU].fitted) == (0, 1)
    # larger networks run at a higher share of peak, by prediction as measured
    gpt = [row for row in report.rows if row.study == "narayanan2021"]
    assert [row.error_percent for row in gpt] == sorted(row.error_percent for row in gpt)
    assert all(abs(row.error_percent) < 15 for row in report.rows)


def test_rows_that_are_predicted_not_to_fit_are_named(report):
    named = [text for text in report.caveats if text.startswith("memory: ")]
    assert [text.partition(" is predicted")[0] for text in named] == [
        "memory: llama3.1_405b, 8192 tokens, 8192 devices"
    ]


def test_command_refuses_options_that_do_nothing(capsys):
    assert run(["validate", KEY, "--sensitivity"]) == 2
    assert KEY in capsys.readouterr().err
