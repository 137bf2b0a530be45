"""The live check: its report of given times, what it refuses, and a real measurement of its smallest networks."""

import json
import math
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel import measurements, zoo
from perfmodel.calibration.calibrate import CalibrationInterrupted
from perfmodel.cli.app import run
from perfmodel.errors import ArgumentError, CalibrationError, MissingPackageError, PerfmodelWarning, UnknownNameError
from perfmodel.hardware.fit_file import load_calibration
from perfmodel.records import Contraction, MemoryPass
from perfmodel.validation.live import check as live
from perfmodel.validation.live.check import ChildMeasurer, check_device, gathered
from perfmodel.validation.live.live_report import LiveReport, row_of, save_live_table
from perfmodel.validation.live.prediction import (
    LIVE_NETWORKS,
    MODES,
    LiveCase,
    LiveMeasurement,
    LivePlan,
    LivePrediction,
    LiveSession,
    cases_of,
    find_networks,
    imported,
    operations_of,
    roofline_s,
)
from perfmodel.validation.scores.metrics import rank_correlation
from tests.measured_machines import machine as made_up
from tests.timed_operations import live_operations

pytest.importorskip("torch")

MACHINE = Path(__file__).resolve().parent.parent / "data" / "measured_cpu.toml"
SMALL = ("mnist_classifier", "lstm32")
DENSE = ("mnist_classifier", "fcn5")


class GivenTimes:
    """A measurer that reports what it was given: seconds by case, each with a spread and a reference."""

    def __init__(self, seconds, *, spread=0.02, model="Made-up(R) Processor", failing=()):
        self.seconds, self.spread, self.name, self.failing = seconds, spread, model, failing
        self.plan = None
        self.core_count, self.torch = 2, "2.13.0+cpu"

    def facts(self, device):
        del device
        return {"model": self.name, "core_count": self.core_count, "torch": self.torch}

    def __call__(self, plan, *, progress):
        self.plan = plan
        found = []
        for done, case in enumerate(plan.cases, start=1):
            typical = self.seconds(case)
            failed = case.network in self.failing
            repeats = () if failed else (typical, typical * (1 - self.spread / 2), typical * (1 + self.spread / 2))
            found.append(
                LiveMeasurement(
                    case=case,
                    repeats_s=repeats,
                    reference_s=(0.010, 0.011, 0.010)[: len(repeats)],
                    failure="out of memory" if failed else "",
                )
            )
            if progress is not None:
                progress(done * plan.repeats, len(plan.cases) * plan.repeats)
        return LiveSession(measurements=tuple(found), facts={"torch": "2.13.0", "threads": str(plan.threads)})


def predictions(factor=1.0, *, networks=("a", "b", "c", "d")):
    """Predictions of made-up networks whose true times are 1, 2, 3 and 4 s."""
    found = []
    for phase in MODES:
        for index, name in enumerate(networks, start=1):
            case = LiveCase(network=name, phase=phase, dtype="fp32", batch_size=8)
            found.append(
                LivePrediction(
                    case=case,
                    predicted_s=factor * index,
                    interval_s=(0.9 * index, 1.2 * index),
                    peaks_s=0.6 * index,
                    datasheet_s=0.4 * index,
                )
            )
    return found


def report(factor=1.0, *, spreads=None, true=lambda index: float(index)):
    made = predictions(factor)
    spreads = spreads or {}
    found = []
    for prediction in made:
        typical = true("abcd".index(prediction.case.network) + 1)
        half = spreads.get(prediction.case.network, 0.0) / 2
        repeats = (typical * (1 - half), typical, typical * (1 + half))
        found.append(LiveMeasurement(case=prediction.case, repeats_s=repeats, reference_s=(0.01, 0.01, 0.0105)))
    session = LiveSession(measurements=tuple(found), facts={"threads": "2"})
    return LiveReport.of(made, session, device="Made-up (cpu)", calibration="made up", datasheet="xeon", repeats=3)


class TestReport:
    def test_scores_are_those_of_the_definition(self):
        # measured 1, 2, 3, 8 s beside predicted 1.1, 2.2, 3.3, 4.4: errors 10, 10, 10 and 45 %
        scores = report(1.1, true=lambda index: 8.0 if index == 4 else float(index)).scores
        assert [score.phase for score in scores] == ["step", "forward"]
        for score in scores:
            assert score.row_count == 4
            assert score.median_percent == pytest.approx(10)
            assert score.mean_percent == pytest.approx((3 * 10 + 45) / 4)
            assert score.worst_percent == pytest.approx(45)
            assert score.rank_correlation == pytest.approx(1)
            assert score.peaks_mean_percent == pytest.approx((3 * 40 + 70) / 4)
            assert score.datasheet_mean_percent == pytest.approx((3 * 60 + 80) / 4)
            assert score.ratio_to_peaks == pytest.approx(75 / 190)
            assert score.inside_percent == pytest.approx(75)  # 8 s are beyond 3.6 to 4.8 s

    def test_ranks_of_predictions_are_held_against_those_of_times(self):
        assert rank_correlation([1.0, 3.0, 2.0, 4.0], [1.0, 2.0, 3.0, 4.0]) == pytest.approx(0.8)
        assert rank_correlation([4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]) == pytest.approx(-1)

    def test_repeats_that_spread_too_much_are_shown_and_not_scored(self):
        steady, wide = report(1.5), report(1.5, spreads={"d": 0.16, "a": 0.14})
        assert [row.network for row in wide.rows if not row.is_scored] == ["d", "d"]
        row = next(row for row in wide.rows if row.network == "d")
        assert row.spread_percent == pytest.approx(16)
        assert row.error_percent == pytest.approx(50)
        assert "15 %" in row.status
        assert [score.row_count for score in wide.scores] == [3, 3]
        assert [score.row_count for score in steady.scores] == [4, 4]
        assert "2 of 8 rows are not scored" in wide.to_text()

    def test_one_repeat_alone_is_shown_and_not_scored(self):
        (prediction, *_), measured = predictions(1.1), {"reference_s": (0.01,)}
        found = {}
        for repeats in ((1.0,), (1.0, 1.02)):
            measurement = LiveMeasurement(case=prediction.case, repeats_s=repeats, **measured)
            found[len(repeats)] = row_of(prediction, measurement, repeats=len(repeats))
        assert found[1].status == "unscored: one repeat shows no spread"
        assert found[1].error_percent == pytest.approx(10)
        assert found[2].is_scored

    def test_the_text_and_the_json_say_the_same(self):
        made = report(1.1)
        told = made.to_dict()
        assert json.loads(json.dumps(told))["rows"][0]["error_percent"] == pytest.approx(10)
        text = made.to_text()
        for expected in ("training", "abcd"):
            assert expected not in text
        assert "nothing is fitted; every row is scored" in text
        assert "drift control" in text
        assert "inside 80 % interval" in text
        assert told["reference_spread_percent"] == pytest.approx(5)

    def test_the_figure_has_a_point_for_each_measured_row(self, tmp_path):
        path = tmp_path / "live.png"
        figure = report(1.1, spreads={"d": 0.3}).plot(path)
        points = sum(len(each.get_offsets()) for each in figure.axes[0].collections if len(each.get_offsets()))
        assert path.read_bytes().startswith(b"\x89PNG")
        assert points >= 8

    def test_nothing_scored_has_no_mean(self):
        assert math.isnan(report(spreads=dict.fromkeys("abcd", 0.5)).mean_error_percent)


class TestNaiveRoofline:
    def test_each_operation_takes_its_own_longer_side(self):
        product = Contraction(m=100, n=100, k=100)  # 2e6 FLOP, 1.2e5 B
        copy = MemoryPass(name="copy", read_elements=1000, written_elements=1000, tensor_elements=1000)
        rates = {"flop_per_s": 1e9, "bytes_per_s": 1e6, "element_bytes": 4}
        assert roofline_s([product], **rates) == pytest.approx(0.12)
        assert roofline_s([product], **rates | {"bytes_per_s": 1e9}) == pytest.approx(2e-3)
        together = roofline_s([product, copy], **rates)
        assert together == pytest.approx(0.12 + 8e-3)


class TestNetworks:
    @pytest.mark.parametrize("name", [*SMALL, "seq2seq", "bert_small", "vit_small"])
    def test_the_import_has_the_products_of_the_zoo(self, name):
        # two ways to the same network: a torch module that is traced, and layers put together by hand
        network = LIVE_NETWORKS[name]
        graph = imported(name, "step")[0]
        built = zoo.build(network.zoo_builder, **network.zoo_options)
        assert graph.parameter_count == built.parameter_count
        for phase in ("forward", "backward"):
            counts = [
                sum(operation.product_flop_count for _, operation in each.operations(batch_size=3, phase=phase))
                for each in (graph, built)
            ]
            assert counts[0] == counts[1]

    def test_training_updates_and_loses_and_inference_does_neither(self):
        case = LiveCase(network="mnist_classifier", phase="step", dtype="fp32", batch_size=64)
        trained = [getattr(operation, "name", operation.kind) for operation in operations_of(case)]
        inferred = [getattr(operation, "name", "") for operation in operations_of(replace(case, phase="forward"))]
        assert {"sgd", "cross_entropy"} <= set(trained)
        assert not {"sgd", "cross_entropy"} & set(inferred)

    def test_every_network_has_sizes_for_both_processors(self):
        for network in LIVE_NETWORKS.values():
            assert set(network.batch_sizes) == {"cpu", "gpu"}
            assert network.name in {case.network for case in cases_of((network,), processor="gpu", dtypes=("fp32",))}

    def test_an_unknown_name_is_told_with_the_nearest(self):
        with pytest.raises(UnknownNameError, match="Did you mean 'resnet18'"):
            find_networks(["renset18"])

    def test_live_operations_are_named_by_class(self, monkeypatch):
        small = {name: LIVE_NETWORKS[name] for name in SMALL}
        monkeypatch.setattr("perfmodel.validation.live.prediction.LIVE_NETWORKS", small)
        found = live_operations()
        assert ("gemm_output", Contraction(m=4096, n=64, k=784, bias_elements=64)) in found
        assert {"lstm_output", "sgd", "scatter_add"} <= {name for name, _ in found}


class TestCheck:
    def check(self, measurer, **options):
        return pm.validate_live("cpu", calibration=MACHINE, networks=DENSE, measurer=measurer, **options)

    def test_predictions_are_those_of_predict(self):
        told = []
        measurer = GivenTimes(lambda case: 0.5 if case.phase == "step" else 0.1)
        made = self.check(measurer, progress=lambda done, total: told.append((done, total)))
        assert told[-1] == (12, 12)
        assert measurer.plan.threads == 2
        graph, _ = imported("fcn5", "step")
        p = pm.predict(graph, batch_size=64, device=MACHINE, optimizer="sgd")
        row = next(row for row in made.rows if (row.network, row.phase) == ("fcn5", "step"))
        assert row.predicted_s == p.step_s
        assert row.measured_s == 0.5
        assert row.error_percent == pytest.approx(100 * (p.step_s / 0.5 - 1))
        assert (row.low_s, row.high_s) == p.interval_s

    def test_a_network_that_failed_is_told_and_not_scored(self):
        made = self.check(GivenTimes(lambda case: 0.5, failing=("fcn5",)))
        assert {row.status for row in made.rows if row.network == "fcn5"} == {"failed: out of memory"}
        assert "out of memory" in made.to_text()
        assert [score.row_count for score in made.scores] == [1, 1]

    def test_the_times_become_a_table_that_validate_reads(self, tmp_path):
        made = self.check(GivenTimes(lambda case: 0.5 if case.phase == "step" else 0.1), datasheet="xeon_e5_2630_v3")
        path = save_live_table(made, tmp_path / "mine.csv")
        table = measurements.load(path)
        assert {(row.network, row.batch_size, row.threads, row.step_s) for row in table} == {
            ("mnist_classifier", 4096, 2, 0.5),
            ("mnist_classifier_inference", 4096, 2, 0.1),
            ("fcn5", 64, 2, 0.5),
            ("fcn5_inference", 64, 2, 0.1),
        }
        for name, phase, optimizer in (("fcn5", "step", "sgd"), ("fcn5_inference", "forward", "none")):
            its_run = table.run("pytorch_2", name)
            assert (its_run.builder, its_run.phase, its_run.optimizer) == ("fcn5", phase, optimizer)
        assert pm.validate(path).rows

    @pytest.mark.parametrize(
        ("changed", "told"),
        [
            ({"model": "Another Processor"}, "this one was measured on 'Made-up"),
            ({"device": "cuda:7"}, "finds no CUDA GPU|one of cuda:0|or cpu"),
            ({"device": "gpu"}, "cuda:N for the GPU"),
            ({"device": 0}, "cuda:N for the GPU"),
            ({"calibration": "shi2016_gpu"}, "a measured machine; a fit"),
            ({"dtypes": ["bf16"]}, "unknown data type of 'made-up"),
            ({"dtypes": ["fp16"]}, "unknown data type of the live check"),
            ({"datasheet": "gtx_1081"}, "gtx_1080"),
            ({"repeats": 0}, "repeats must be a whole number >= 1"),
            ({"steps": True}, "steps must be a whole number >= 1"),
            ({"seconds": math.nan}, "finite time"),
        ],
    )
    def test_bad_input_is_refused_before_anything_runs(self, changed, told):
        changed = dict(changed)
        measurer = GivenTimes(lambda case: 1.0, model=changed.pop("model", "Made-up(R) Processor"))
        options = {"device": "cpu", "calibration": MACHINE, "networks": DENSE, "measurer": measurer, **changed}
        with pytest.raises((ArgumentError, UnknownNameError), match=told):
            pm.validate_live(options.pop("device"), **options)
        assert measurer.plan is None

    def test_a_calibration_of_another_kind_of_device_or_backend(self):
        machine = load_calibration(MACHINE)
        gpu = machine.model_copy(
            update={"machine": machine.machine.model_copy(update={"processor": "gpu", "threads": None})}
        )
        embedded = machine.model_copy(update={"software": machine.software.model_copy(update={"backend": "numpy"})})
        for other, told in ((gpu, "this one is of a GPU"), (embedded, "backend torch")):
            with pytest.raises(ArgumentError, match=told):
                pm.validate_live("cpu", calibration=other, measurer=GivenTimes(lambda case: 1.0))

    def test_a_data_type_that_no_network_is_run_in_is_left_out_and_refused_where_there_is_no_other(self):
        machine = load_calibration(MACHINE)

        def of(*dtypes):
            kernels = [each.model_copy(update={"dtype": dtype}) for dtype in dtypes for each in machine.kernel]
            peaks = machine.peaks.model_copy(update={"gemm_flop_per_s": dict.fromkeys(dtypes, 2e11)})
            return machine.model_copy(update={"kernel": tuple(kernels), "peaks": peaks})

        measurer = GivenTimes(lambda case: 1.0)
        made = pm.validate_live("cpu", calibration=of("fp32", "fp16"), networks=DENSE, measurer=measurer)
        assert {row.dtype for row in made.rows} == {case.dtype for case in measurer.plan.cases} == {"fp32"}
        with pytest.raises(ArgumentError, match="this one has fp16"):
            pm.validate_live("cpu", calibration=of("fp16"), networks=DENSE, measurer=measurer)

    def test_the_process_runs_no_other_type_under_the_name_of_one(self):
        case = LiveCase(network="lstm32", phase="forward", dtype="fp16", batch_size=2)
        plan = LivePlan(device="cpu", threads=1, cases=(case,), repeats=1, warmup_steps=0, steps=1, seconds=0.0)
        with pytest.raises(CalibrationError, match="not run in fp16"):
            ChildMeasurer()(plan, progress=None)

    @pytest.mark.parametrize(
        ("changed", "told"),
        [
            ({"core_count": 8}, "measured on 2 cores; there are 8 here"),
            ({"torch": "2.14.0"}, r"with torch 2\.13\.0\+cpu; networks run with 2\.14\.0 here"),
        ],
    )
    def test_other_cores_or_another_torch_are_told(self, changed, told):
        measurer = GivenTimes(lambda case: 1.0)
        for name, value in changed.items():
            setattr(measurer, name, value)
        with pytest.warns(PerfmodelWarning, match=told):
            assert self.check(measurer).rows

    @pytest.mark.parametrize("processor", ["cpu", "gpu"])
    def test_too_few_cores_or_another_gpu_are_refused(self, processor, monkeypatch):
        measurer = GivenTimes(lambda case: 1.0)
        measurer.core_count = 1 if processor == "cpu" else 8
        monkeypatch.setattr(live, "check_device", str)
        machine = made_up(processor=processor)
        with pytest.raises(ArgumentError, match=f"on 2 cores; there are {measurer.core_count} here"):
            pm.validate_live("cpu" if processor == "cpu" else "cuda:0", calibration=machine, measurer=measurer)
        assert measurer.plan is None

    def test_without_torch_it_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "torch", None)
        with pytest.raises(MissingPackageError, match=r"perfmodel\[torch\]"):
            check_device("cpu")

    def test_an_index_beyond_the_gpus(self, monkeypatch):
        monkeypatch.setattr("torch.cuda.is_available", lambda: True)
        monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
        monkeypatch.setattr("torch.cuda.get_device_name", lambda index: f"board {index}")
        monkeypatch.setattr("torch.cuda.set_device", lambda device: None)
        assert check_device("cuda") == "cuda:0"
        with pytest.raises(ArgumentError, match=r"^device must.*cuda:1 \(board 1\).*\(got 'cuda:2'"):
            check_device("cuda:2")

    def test_without_a_calibration_it_makes_one_for_the_data_types_asked_for(self, monkeypatch):
        asked = []

        def made(device, **options):
            asked.append((device, options["backend"], options["dtypes"]))
            return load_calibration(MACHINE)

        monkeypatch.setattr(live, "calibrate", made)
        report = pm.validate_live(networks=DENSE, dtypes=["fp32"], measurer=GivenTimes(lambda case: 1.0))
        assert asked == [("cpu", "torch", ["fp32"])]
        assert "made-up" in report.calibration.lower()

    @pytest.mark.parametrize("sheet", ["xeon_e5_2630_v3", "no_such_device"])
    def test_a_data_sheet_that_says_nothing_of_a_case_leaves_its_column_empty_with_a_word(self, sheet):
        machine = load_calibration(MACHINE)
        halves = tuple(each.model_copy(update={"dtype": "bf16"}) for each in machine.kernel)
        machine = machine.model_copy(
            update={
                "machine": machine.machine.model_copy(update={"datasheet": sheet}),
                "kernel": machine.kernel + halves,
                "peaks": machine.peaks.model_copy(update={"gemm_flop_per_s": {"fp32": 2e11, "bf16": 4e11}}),
            }
        )
        made = pm.validate_live("cpu", calibration=machine, networks=DENSE, measurer=GivenTimes(lambda case: 1.0))
        known = {row.dtype for row in made.rows if row.datasheet_error_percent is not None}
        assert known == ({"fp32"} if sheet == "xeon_e5_2630_v3" else set())
        assert f"no roofline of the data sheet {sheet} in bf16" in made.to_text()
        assert {score.dtype for score in made.scores} == {"fp32", "bf16"}

    @pytest.mark.parametrize(("name", "told"), [("xeon_platinum_8481", "xeon_platinum_8480"), ("h100_sxm", "of a CPU")])
    def test_a_wrong_datasheet_is_refused_before_a_calibration(self, monkeypatch, name, told):
        made = []
        monkeypatch.setattr(live, "calibrate", lambda device, **options: made.append(device))
        with pytest.raises((ArgumentError, UnknownNameError), match=told):
            pm.validate_live(networks=DENSE, datasheet=name, measurer=GivenTimes(lambda case: 1.0))
        assert not made

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), CalibrationError("it died")])
    def test_a_calibration_made_for_it_is_kept_where_the_networks_fail(self, monkeypatch, tmp_path, error):
        class Failing(GivenTimes):
            def __call__(self, plan, *, progress):
                raise error

        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        monkeypatch.setattr(live, "calibrate", lambda device, **options: load_calibration(MACHINE))
        with (
            pytest.warns(PerfmodelWarning, match="go on with: perfmodel validate live --device cpu --calib") as told,
            pytest.raises(type(error)),
        ):
            pm.validate_live(networks=DENSE, measurer=Failing(lambda case: 1.0))
        path = str(told[0].message).rpartition(" ")[2]
        assert pm.load_calibration(path) == load_calibration(MACHINE)

    def test_an_interrupt_of_its_calibration_says_where_the_points_are(self, monkeypatch, capsys):
        def interrupted(device, **options):
            raise CalibrationInterrupted("interrupted: points are kept; go on with: perfmodel calibrate", Path("kept"))

        monkeypatch.setattr(live, "calibrate", interrupted)
        monkeypatch.setattr(live, "ChildMeasurer", lambda: GivenTimes(lambda case: 1.0))
        assert run(["validate", "live", "--no-progress"]) == 130
        assert "go on with: perfmodel calibrate" in capsys.readouterr().err


class TestCommand:
    @pytest.fixture(autouse=True)
    def _times_are_given(self, monkeypatch):
        monkeypatch.setattr(live, "ChildMeasurer", lambda: GivenTimes(lambda case: 1.0))

    def words(self, *more):
        return ["validate", "live", "--calibration", str(MACHINE), "--network", "mnist_classifier", *more]

    def test_it_prints_rows_and_scores_and_writes_what_was_asked_for(self, capsys, tmp_path):
        plot, table = tmp_path / "live.svg", tmp_path / "live.csv"
        assert run(self.words("--plot", str(plot), "--save", str(table), "--no-progress")) == 0
        printed = capsys.readouterr().out
        assert "mnist_classifier" in printed
        assert "measured peak" in printed
        assert plot.is_file()
        assert table.is_file()
        assert table.with_suffix(".toml").is_file()

    def test_json_has_every_repeat(self, capsys):
        assert run(self.words("--json", "--no-progress")) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert [len(row["repeats_s"]) for row in rows] == [3, 3]

    def test_what_was_measured_is_printed_though_it_cannot_be_saved(self, capsys, tmp_path, monkeypatch):
        monkeypatch.setattr(live, "ChildMeasurer", lambda: GivenTimes(lambda case: 1.0, spread=0.4))
        assert run(self.words("--save", str(tmp_path / "live.csv"), "--no-progress")) == 2
        told = capsys.readouterr()
        assert "mnist_classifier" in told.out
        assert "must have scored rows" in told.err

    def test_an_error_above_the_bound_ends_with_code_1(self, capsys):
        assert run(self.words("--max-error", "1", "--no-progress")) == 1
        assert "check failed" in capsys.readouterr().err
        assert run(self.words("--max-error", "1000", "--no-progress")) == 0

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["--network", "alexnut"], "Did you mean 'alexnet'"),
            (["--max-error", "nan"], "finite percentage"),
            (["--save", "table.txt"], "must end in .csv"),
            (["--plot", "live.docx"], "ends in"),
            (["--repeats", "0"], "repeats must be a whole number >= 1"),
            (["--repeats", "1", "--save", "t.csv"], "at least 2 with --save"),
            (["--protocol", "all"], "No such option"),
        ],
    )
    def test_bad_input_ends_with_code_2(self, capsys, words, told):
        assert run(self.words(*words)) == 2
        assert told in capsys.readouterr().err


class TestProcess:
    def test_events_become_times_by_case_and_round(self):
        cases = cases_of(find_networks(SMALL), processor="cpu", dtypes=("fp32",))[:2]
        plan = LivePlan(device="cpu", threads=1, cases=cases, repeats=2, warmup_steps=0, steps=1, seconds=0.0)
        events = [
            {"facts": {"torch": "2"}},
            {"case": 0, "seconds": 1.0, "reference_s": 0.1},
            {"case": 1, "failure": "too large"},
            {"case": 0, "seconds": 3.0, "reference_s": 0.2},
            {"facts": {"minor page faults": "7"}},
        ]
        session = gathered(plan, iter(events), progress=None)
        assert session.measurements[0].repeats_s == (1.0, 3.0)
        assert session.measurements[0].median_s == 2.0
        assert session.measurements[1].failure == "too large"
        assert session.facts == {"torch": "2", "minor page faults": "7"}
        assert LivePlan.from_dict(json.loads(json.dumps(asdict(plan)))) == plan

    def test_a_process_that_dies_is_told_with_its_last_words(self, monkeypatch):
        monkeypatch.setattr("perfmodel.validation.live.check.WORKER", "perfmodel.no_such_module")
        plan = LivePlan(device="cpu", threads=1, cases=(), repeats=1, warmup_steps=0, steps=1, seconds=0.0)
        with pytest.raises(CalibrationError, match="no_such_module"):
            ChildMeasurer()(plan, progress=None)

    def test_memory_is_kept_while_measured_and_given_back_after(self):
        # 64 MB taken and given back five times: 16,384 pages each time that they are mapped anew
        code = (
            "from pathlib import Path\n"
            "import resource\n"
            "from perfmodel.calibration.facts import KEPT, freed_memory_kept\n"
            "def faults():\n"
            "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
            "    for _ in range(5):\n"
            "        bytearray(64_000_000)\n"
            "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
            "def pages():\n"
            "    return int(Path('/proc/self/statm').read_text().split()[1])\n"
            "begin = pages()\n"
            "with freed_memory_kept() as told:\n"
            "    kept, held = faults(), pages() - begin\n"
            "print(told == KEPT, kept, held, pages() - begin, faults())\n"
        )
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        known, kept, held, after, plain = told.stdout.split()
        if known == "False":
            pytest.skip("no glibc here")
        assert 2 * int(kept) < int(plain)
        assert 2 * int(after) < int(held)

    @pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
    def test_the_smallest_networks_are_really_measured(self, device):
        cases = cases_of(find_networks(SMALL), processor="cpu" if device == "cpu" else "gpu", dtypes=("fp32",))
        cases = tuple(replace(case, batch_size=32 if case.network == "mnist_classifier" else 2) for case in cases)
        plan = LivePlan(device=device, threads=1, cases=cases, repeats=2, warmup_steps=1, steps=2, seconds=0.0)
        session = ChildMeasurer()(plan, progress=None)
        for measurement in session.measurements:
            assert measurement.failure == ""
            assert len(measurement.repeats_s) == 2
            assert all(seconds > 0 for seconds in (*measurement.repeats_s, *measurement.reference_s))
        assert session.facts["threads"] == "1"

    def test_a_step_moves_every_weight_and_inference_none(self):
        worker = pytest.importorskip("perfmodel.validation.live.worker")
        step = LiveCase(network="mnist_classifier", phase="step", dtype="fp32", batch_size=4)
        trial = worker._Trial(step, worker.torch.device("cpu"))

        def moved(case):
            before = [each.detach().clone() for each in trial.module.parameters()]
            trial.call(case)()
            return [not bool((old == new).all()) for old, new in zip(before, trial.module.parameters(), strict=True)]

        assert not any(moved(replace(step, phase="forward")))
        assert all(moved(step))

    def test_the_facts_of_this_processor_are_those_that_a_calibration_has(self):
        here = live.device_facts("cpu")
        assert here["model"]
        assert here["core_count"] >= 1
        assert here["torch"][0].isdigit()
