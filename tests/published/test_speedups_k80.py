"""Speed-ups that the TensorFlow project published for several K80 dies, beside predictions and linear scaling.

The numbers are images per second, typed from the table of synthetic and real data of the benchmarks page of May 2017.
"""

import json

import pytest

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.errors import TableError, UnknownNameError
from perfmodel.validation.reports.own_tables import own_table
from perfmodel.validation.reports.speedup import (
    LINEAR,
    OWN_CLOCK,
    REAL_DATA,
    SYNTHETIC_DATA,
    read_system_table,
    speedup_report,
)
from perfmodel.validation.scores.table_report import EVERY_ROW, PERFMODEL

NAME = "tensorflow_docs_2017_gce_k80"
HEAD = "source,framework,framework_version,network,device,n_devices,batch_size,phase,seconds,data\n"
PAGE = "tensorflow.org/performance/benchmarks"
RATES = {
    ("resnet50", 64, "synthetic"): {1: 51.9, 2: 99.0, 4: 195, 8: 387},
    ("alexnet", 512, "synthetic"): {1: 656, 2: 1209, 4: 2328, 8: 4640},
    ("vgg16", 32, "synthetic"): {1: 35.4, 2: 64.8, 4: 120, 8: 234},
    ("alexnet", 512, "real (ImageNet)"): {1: 639, 2: 1136, 4: 2067, 8: 4056},
    ("vgg16", 32, "real (ImageNet)"): {1: 34.2, 2: 62.9, 4: 118, 8: 230},
}


def lines(rates):
    for (network, batch_size, data), by_count in rates.items():
        for count, rate in by_count.items():
            start = f"{PAGE},tensorflow,git ~1.1,{network},Tesla K80 (one GK210),{count},{batch_size},step"
            yield f"{start},{count * batch_size / rate},{data}\n"


def written(folder, rates, name=NAME):
    path = folder / "systems" / f"{name}.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEAD + "".join(lines(rates)))
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return written(tmp_path_factory.mktemp("data"), RATES)


@pytest.fixture(scope="module")
def report(table):
    return speedup_report(table)


def worst_of(part):
    return float(part.note.rpartition("worst ")[2].removesuffix(" %"))


def part_of(report, part, model):
    (found,) = [each for each in report.parts if (each.part, each.score.model) == (part, model)]
    return found


@pytest.mark.parametrize("part", [SYNTHETIC_DATA, REAL_DATA])
def test_predictions_are_far_nearer_than_linear_scaling(report, part):
    own, linear = part_of(report, part, PERFMODEL), part_of(report, part, LINEAR)
    assert own.score.cells == linear.score.cells == (9 if part == SYNTHETIC_DATA else 6)
    assert linear.score.mape > 10
    assert worst_of(linear) > 20
    assert own.score.mape < linear.score.mape / 4
    assert own.score.mape < 5
    assert worst_of(own) < 12


def test_no_number_would_do_for_all_networks(report):
    """The best constant efficiency, told the answers, is no match."""
    measured = [row.measured / row.workers for row in report.rows]
    best = min(
        sum(abs(share / truth - 1) for truth in measured) / len(measured)
        for share in (0.7 + 0.005 * place for place in range(60))
    )
    assert report.mape < 100 * best / 2


def test_what_the_score_owes_to_wiring_and_to_the_clock_stands_beside(report):
    own = part_of(report, EVERY_ROW, PERFMODEL)
    others = {each.score.model: each for each in report.parts if each.part == EVERY_ROW}
    wiring = others["perfmodel, gce_n1_standard_32_k80_x8_board_slots"]
    linear = others[LINEAR]
    for other in (wiring, others[OWN_CLOCK]):
        assert own.score.mape < other.score.mape < linear.score.mape / 2
    assert "chosen after the rows were seen" in str(report)


def test_speed_ups_are_over_one_worker_of_the_same_strategy(table, report):
    row = next(row for row in report.rows if (row.network, row.workers, row.data) == ("vgg16", 4, SYNTHETIC_DATA))
    assert row.measured == pytest.approx(120 / 35.4)
    ran = next(each.run for each in read_system_table(table).several if each.run.network == "vgg16")
    job = {"system": "gce_n1_standard_32_k80_x8", "sync": "parameter_server"}
    one, four = (pm.predict(ran, workers=count, **job) for count in (1, 4))
    assert one.exposed_sync_s > 0
    assert row.predicted == pytest.approx(four.samples_per_s / one.samples_per_s, rel=1e-6)
    assert row.linear_percent == pytest.approx(100 * (4 * 35.4 / 120 - 1))


def test_the_command_line_scores_them_by_path_and_by_name(tmp_path, capsys):
    path = written(tmp_path, {("alexnet", 512, "synthetic"): {1: 656, 2: 1209}})
    assert run(["validate", str(path), "--json"]) == 0
    by_path = json.loads(capsys.readouterr().out)
    assert len(by_path["rows"]) == 1
    assert run(["validate", "tensorflow_2017_k80_speedups", "--data", str(tmp_path), "--json", "--max-mape", "12"]) == 0
    assert json.loads(capsys.readouterr().out) == by_path
    assert run(["validate", str(path), "--max-mape", "0"]) == 1
    assert "is above 0 %" in capsys.readouterr().err
    assert run(["validate", str(path), "--only", "gpu"]) == 2
    assert "--only" in capsys.readouterr().err


def test_tables_of_another_kind_are_left_to_others_and_rows_alone_are_told(tmp_path):
    assert own_table(written(tmp_path, RATES, name="others")) is None
    with pytest.raises(UnknownNameError, match="others"):
        speedup_report(tmp_path / "systems" / "others.csv")
    with pytest.raises(TableError, match="must have a step of several devices"):
        speedup_report(written(tmp_path, {("alexnet", 512, "synthetic"): {1: 656}}))
    odd = {("alexnet", 512, "synthetic"): {1: 656, 2: 1209}, ("vgg16", 32, "synthetic"): {2: 64.8}}
    found = speedup_report(written(tmp_path, odd))
    assert (len(found.rows), "1 rows with none" in found.not_scored) == (1, True)
