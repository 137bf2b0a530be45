"""Every shipped measurement table: it loads, every row knows what was run, and its page is up to date.

Run this file as a script to print the generated tables of docs/measurements.md.
"""

import csv
import re
from pathlib import Path

import pytest

from perfmodel import measurements
from perfmodel.measurements.table import SET_ASIDE, STATUSES

FOLDER = Path(measurements.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "measurements.md"
FACTS = {"builder", "optimizer", "clipping", "phase", "input_gradient", "feed"}
TABLES = measurements.names()


@pytest.fixture(params=TABLES)
def table(request):
    return measurements.load(request.param)


def test_every_csv_has_its_toml_and_the_other_way_round():
    assert {path.stem for path in FOLDER.glob("*.csv")} == {path.stem for path in FOLDER.glob("*.toml")}
    assert set(TABLES) >= {"shi2016", "wuensche2018"}


def test_every_cell_of_the_csv_is_a_row(table):
    with (FOLDER / f"{table.key}.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(table)
    for line, row in zip(lines, table.rows, strict=True):
        assert (line["network"], line["device"], line["framework"]) == (
            row.network,
            row.device,
            row.framework,
        )
        assert line["step_s"] == "" if row.step_s is None else float(line["step_s"]) == row.step_s


def test_every_row_has_a_run_and_every_run_has_rows(table):
    used = {table.run_of(row) for row in table}
    assert used == set(table.runs)


def test_a_run_never_differs_by_device(table):
    devices = {row.device for row in table}
    for run in table.runs:
        assert sum(other.key == run.key for other in table.runs) == 1
        words = repr(run.builder_options) + repr(run.optimizer_options)
        assert not any(device in words for device in devices)


def test_every_fact_of_a_run_has_evidence_that_is_no_residual(table):
    for run in table.runs:
        assert {fact for fact, _ in run.evidence} >= FACTS
        for fact, text in run.evidence:
            assert len(text) > 20, (run.key, fact)
            assert not re.search(r"residual|predict|our model|fitted|fits? ", text, re.IGNORECASE), (
                run.key,
                text,
            )


def test_statuses_that_are_not_scored_have_a_reason(table):
    for row in table:
        assert row.status in STATUSES
        assert (row.status == "missing") == (row.step_s is None)
        assert row.status == "measured" or row.note


def test_source_says_where_the_numbers_come_from_and_how_they_were_read(table):
    assert set(table.source) >= {"authors", "publication", "table", "how_read", "licence"}
    assert {run.framework for run in table.runs} == set(table.software)
    assert {row.device for row in table} == {each.device for each in table.hardware}
    assert {row.device for row in table if row.threads} == set(table.physical_cores)


def test_builders_of_the_runs_exist(table):
    zoo = pytest.importorskip("perfmodel.zoo")
    for run in table.runs:
        assert zoo.build(run.builder, **run.builder_options).parameter_count > 0


def test_shi2016_has_286_cells_in_the_subsets_that_are_scored():
    table = measurements.load("shi2016")
    assert len(table) == 22 * 13  # (framework, network) pairs x (4 + 6 thread counts + 3 GPUs)
    counts = {status: len(table.where(status=status)) for status in STATUSES}
    assert counts == {"measured": 268, "missing": 16, "barred": 1, "suspect": 1}
    assert {only: len(table.subset(only)) for only in ("gpu", "cpu", "cpu_oversubscribed")} == {
        "gpu": 63,
        "cpu": 167,
        "cpu_oversubscribed": 38,
    }
    assert len(table.subset("gpu", set_aside=True)) == 65


def test_shi2016_sets_aside_two_cells_and_no_other():
    table = measurements.load("shi2016")
    aside = {(row.network, row.framework, row.device): row.step_s for row in table.where(status=SET_ASIDE)}
    assert aside == {
        ("alexnet", "tensorflow_0_9", "gtx_1080"): 0.012,
        ("resnet50", "tensorflow_0_9", "gtx_1080"): 0.085,
    }


@pytest.mark.parametrize(
    ("slow", "fast", "ratio"),
    [
        # What the paper's text says of the table, or its corrected value: an independent check of the typing.
        ("alexnet tensorflow_0_9 desktop_i7_3820 4", "alexnet tensorflow_0_9 gtx_1080 None", 112.2),
        ("alexnet tensorflow_0_9 server_2x_xeon_e5_2630_v3 16", "alexnet tensorflow_0_9 gtx_1080 None", 43.0),
        ("lstm32 tensorflow_0_9 desktop_i7_3820 4", "lstm32 cntk_1_5_rc desktop_i7_3820 4", 6.60),
        ("lstm32 torch_423cfba desktop_i7_3820 4", "lstm32 cntk_1_5_rc desktop_i7_3820 4", 7.73),
        ("lstm32 cntk_1_5_rc gtx_1080 None", "lstm32 tensorflow_0_9 gtx_1080 None", 4.41),
        ("lstm64 cntk_1_5_rc gtx_1080 None", "lstm64 torch_423cfba gtx_1080 None", 3.35),
        ("resnet50 tensorflow_0_9 desktop_i7_3820 1", "resnet50 caffe_1_0_rc3 desktop_i7_3820 1", 2.77),
        ("fcn5 tensorflow_0_9 desktop_i7_3820 1", "fcn5 caffe_1_0_rc3 desktop_i7_3820 1", 7.84),
    ],
)
def test_shi2016_agrees_with_ratios_of_the_paper(slow, fast, ratio):
    rows = measurements.load("shi2016").rows
    times = {f"{row.network} {row.framework} {row.device} {row.threads}": row.step_s for row in rows}
    assert times[slow] / times[fast] == pytest.approx(ratio, rel=2e-3)  # ratios are rounded to 3 digits


def test_shi2016_runs_are_those_of_the_scripts():
    table = measurements.load("shi2016")
    assert table.run("torch_423cfba", "fcn8").builder_options["hidden_layers"] == 5
    assert table.run("caffe_1_0_rc3", "fcn8").builder_options["hidden_layers"] == 6
    assert {run.phase for run in table.runs if run.framework == "caffe_1_0_rc3"} == {"forward_backward"}
    # TensorFlow's AlexNet is the gradients of the parameters alone, as the laboratory's profile of that script shows
    without_update = {("tensorflow_0_9", "alexnet")} | {
        (run.framework, run.network) for run in table.runs if run.framework == "caffe_1_0_rc3"
    }
    for run in table.runs:
        updated = (run.framework, run.network) not in without_update
        assert run.phase == ("step" if updated else "forward_backward")
        assert (run.optimizer == "none") == (not updated)
    assert not table.run("tensorflow_0_9", "alexnet").input_gradient
    # TensorFlow's FCN scripts fetch the accuracy in the timed call, and no other script does
    scored = {(run.framework, run.network) for run in table.runs if run.builder_options.get("accuracy")}
    assert scored == {("tensorflow_0_9", "fcn5"), ("tensorflow_0_9", "fcn8")}
    # features and one-hot labels go up, the terms of the loss come down: each 64 rows of 26752 floats
    fed = {run.network: run for run in table.runs if run.framework == "tensorflow_0_9"}
    for network in ("fcn5", "fcn8"):
        assert [item.name for item in fed[network].feed] == ["features", "one_hot_labels", "loss_terms_to_the_host"]
        assert fed[network].feed_bytes == 3 * 64 * 26752 * 4  # 20.5 MB
    down = {(run.framework, run.network) for run in table.runs for item in run.feed if "to_the_host" in item.name}
    assert down == {("tensorflow_0_9", "fcn5"), ("tensorflow_0_9", "fcn8")}
    assert table.run("tensorflow_0_9", "alexnet").builder_options["padding"] == "same"
    placement = {run.framework: run.builder_options["stride_on"] for run in table.runs if run.network == "resnet50"}
    assert placement == {
        "caffe_1_0_rc3": "1x1",
        "cntk_1_5_rc": "3x3",
        "tensorflow_0_9": "1x1",
        "torch_423cfba": "3x3",
    }
    assert table.run("cntk_1_5_rc", "lstm64").builder_options["softmax"] == "classes"


def test_wuensche2018_takes_its_runs_from_the_same_laboratory():
    ours, theirs = measurements.load("wuensche2018"), measurements.load("shi2016")
    for run in ours.runs:
        assert run.table == "wuensche2018"
        assert run.builder_options == theirs.run(run.framework, run.network).builder_options


def test_the_page_holds_the_generated_tables(table):
    page = PAGE.read_text(encoding="utf-8")
    for line in (*errata_lines(table), *run_lines(table), *aside_lines(table)):
        assert line in page, f"docs/measurements.md lacks this generated line:\n{line}"


def errata_lines(table):
    return [
        f"| {error.id} | {error.where} | {error.printed} | {error.correct} | {error.why} |" for error in table.errata
    ]


def aside_lines(table):
    rows = table.where(status=SET_ASIDE) if table.key == "shi2016" else ()
    return [
        f"| {row.network} | {row.framework} | {row.device} | {row.step_s} | {row.status} | {row.note} |" for row in rows
    ]


def run_lines(table):
    return [f"| {' | '.join(_run_columns(run))} |" for run in table.runs]


def _run_columns(run):
    fed = ", ".join(item.name for item in run.feed) or "nothing"
    return (
        run.network,
        run.framework,
        str(run.batch_size),
        _options(run.builder, run.builder_options),
        _options(run.optimizer, run.optimizer_options),
        run.clipping,
        run.phase,
        "yes" if run.input_gradient else "no",
        f"{fed}: {run.feed_bytes:,}",
    )


def _options(name, options):
    return f"{name}({', '.join(f'{key}={value}' for key, value in options.items())})" if options else name


if __name__ == "__main__":
    for key in TABLES:
        shown = measurements.load(key)
        lines = [f"-- {key}", *aside_lines(shown), *run_lines(shown), *errata_lines(shown), ""]
        print(*lines, sep="\n")  # noqa: T201
