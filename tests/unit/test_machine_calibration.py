"""A whole calibration on a machine whose law is known: found again within its intervals, kept when interrupted."""

import json
import math
import re
import shlex
from itertools import combinations

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.calibration import calibrate as module
from perfmodel.calibration.benchmark import Axis, Benchmark, Point
from perfmodel.calibration.calibrate import CalibrationInterrupted, calibrate
from perfmodel.calibration.calibration_tables import datasheet_gaps
from perfmodel.calibration.classes import ClassPoints, best_rates, columns_of
from perfmodel.calibration.families import contraction
from perfmodel.calibration.journal import Journal, journal_of, read_journal
from perfmodel.calibration.session import MOST_BEYOND_S, Session
from perfmodel.cli.app import run
from perfmodel.errors import ArgumentError, CalibrationError, MissingPackageError, PerfmodelWarning, UnknownNameError
from perfmodel.hardware.measured_machine import MeasuredMachine
from perfmodel.records import Role
from tests.fake_machine import LAW, FakeBackend, run_on_fake_time
from tests.measured_machines import machine as made_up
from tests.timed_operations import recorded_operations


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch, tmp_path_factory):
    monkeypatch.setattr("perfmodel.calibration.surroundings.measure_storage", list)
    spare = tmp_path_factory.mktemp("spare")  # records of tests before this one are no earlier session's
    monkeypatch.setattr("tempfile.tempdir", str(spare))


def _measured(backend, **options):
    """A calibration whose session runs on the backend's own clock."""
    return calibrate("cpu", backend=backend, budget_s=options.pop("budget_s", 60), progress=False, **options)


@pytest.fixture
def on_fake_time(monkeypatch):
    run_on_fake_time(monkeypatch)


@pytest.mark.usefixtures("on_fake_time")
class TestLaw:
    def test_a_law_is_found_again(self):
        backend = FakeBackend(noise=0.05)
        machine = _measured(backend)
        found, within = 0, 0
        for name, law in LAW.items():
            kernel = machine.classes("fp32")[name]
            for constant, value in law.items():
                if constant in kernel.constants:
                    found += 1
                    within += kernel.low[constant] <= value <= kernel.high[constant]
        assert found >= 15
        assert within / found >= 0.7  # of 80 % intervals
        # the whole curve, at sizes that were not timed, is what a prediction needs
        for name, benchmark in backend.benchmarks("fp32").items():
            sizes = {
                axis: (each.values[0] if each.values else 3 * each.low + 40) for axis, each in benchmark.axes.items()
            }
            columns = columns_of([benchmark.operation(sizes)], dtype="fp32", machine=backend.machine)
            constants = machine.classes("fp32")[name].constants
            fitted = columns.features[0] @ [constants.get(each, 0.0) for each in columns.names]
            assert fitted == pytest.approx(backend.seconds(benchmark, sizes), rel=0.12), name

    def test_another_machine_is_another_calibration(self):
        twice = {name: {key: 2 * value for key, value in law.items()} for name, law in LAW.items()}
        slow, fast = _measured(FakeBackend(twice)), _measured(FakeBackend())
        for name in LAW:
            flop = slow.classes("fp32")[name].constants, fast.classes("fp32")[name].constants
            shared = [key for key in LAW[name] if key in flop[0] and key in flop[1]]
            ratios = [flop[0][key] / flop[1][key] for key in shared]
            assert 1.5 < np.median(ratios) < 2.7, name

    def test_intervals_narrow_with_less_noise_and_hold_two_calibrations(self):
        law = {name: LAW[name] for name in ("gemm_output", "gemm_input_gradient", "relu")}
        widths = {}
        for label, noise in (("noisy", 0.15), ("quiet", 0.03)):
            measured = [_measured(FakeBackend(law, noise=noise, seed=seed)) for seed in range(5)]
            constants = [module_constants(machine) for machine in measured]
            overlap = [
                first[key][1] <= second[key][2] and second[key][1] <= first[key][2]
                for first, second in combinations(constants, 2)
                for key in first.keys() & second.keys()
                if "/" in key
            ]
            assert 0.85 < np.mean(overlap) < 1  # 0.93 for 80 % intervals of normal noise
            widths[label] = np.median([math.log(high / low) for _, low, high in constants[0].values()])
        assert widths["quiet"] < 0.6 * widths["noisy"]

    def test_a_slow_spell_is_noticed_and_its_points_are_retaken(self):
        spell = lambda seconds: 1.6 if 3 < seconds < 5.5 else 1.0  # noqa: E731
        disturbed = _measured(FakeBackend(noise=0.02, speed=spell))
        assert disturbed.session.retaken > 0
        assert disturbed.session.reference_spread_percent > 10
        calm = _measured(FakeBackend(noise=0.02))
        assert calm.session.retaken == 0
        for name in ("gemm_output", "relu"):
            pair = [machine.classes("fp32")[name].residual_percent for machine in (calm, disturbed)]
            assert pair[1] < pair[0] + 10

    def test_the_budget_is_kept(self):
        for budget_s in (2, 8):
            backend = FakeBackend()
            _measured(backend, budget_s=budget_s)
            assert backend.elapsed_s < 1.3 * budget_s + 1

    def test_a_budget_that_the_surroundings_take_is_overrun_by_half_of_it_and_no_more(self, monkeypatch):
        backend = FakeBackend()

        def slow_disk():
            backend.elapsed_s += 10
            return []

        monkeypatch.setattr("perfmodel.calibration.surroundings.measure_storage", slow_disk)
        for budget_s, beyond_s in ((3, 1.5), (10, MOST_BEYOND_S)):
            begin = backend.elapsed_s
            _measured(backend, budget_s=budget_s)
            assert beyond_s <= backend.elapsed_s - begin - 10 < beyond_s + 0.7

    def test_what_was_spent_before_is_part_of_the_budget(self):
        elapsed = {}
        for already_s in (0.0, 3.0):
            backend = FakeBackend()
            session = Session(
                backend,
                dtypes=["fp32"],
                budget_s=6,
                journal=Journal(None, {}),
                already_s=already_s,
                now=lambda backend=backend: backend.elapsed_s,
            )
            session.run()
            elapsed[already_s] = backend.elapsed_s
            assert session.journal.seconds == pytest.approx(backend.elapsed_s + already_s)
        assert elapsed[3.0] < elapsed[0.0] - 1  # with all of it every class has its points sooner

    def test_a_budget_that_ends_early_is_no_interrupt_and_says_how_many_classes_lack_points(self):
        short, whole = (_measured(FakeBackend(), budget_s=budget_s) for budget_s in (2, 60))
        wanted = {name: each.point_count for name, each in FakeBackend().benchmarks("fp32").items()}
        have = {each.name: each.point_count for each in short.kernel if each.name in wanted}
        lacking = sum(have.get(name, 0) < count for name, count in wanted.items())
        assert lacking > 0
        assert (short.session.complete, short.session.short_class_count) == (False, lacking)
        assert f"the budget ended before every class had its points: {lacking} class" in short.describe()
        assert (whole.session.complete, whole.session.short_class_count) == (True, 0)
        for machine in (short, whole):
            assert "interrupted" not in machine.describe()
            assert not machine.session.notes

    @pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory.\nTried to"), MemoryError()])
    def test_a_shape_for_which_there_is_no_memory_ends_its_class_alone(self, error):
        backend = FakeBackend()
        prepare = backend.prepare

        def limited(benchmark, sizes, *, dtype):
            if benchmark.name == "relu" and sizes["elements"] > 100_000:
                raise error
            return prepare(benchmark, sizes, dtype=dtype)

        backend.prepare = limited
        machine = _measured(backend)
        (note,) = machine.session.notes
        assert note.startswith("relu in fp32 ended at {'elements': ")
        assert note.endswith("CUDA out of memory." if isinstance(error, RuntimeError) else "MemoryError")
        assert machine.classes("fp32")["batch_norm"].point_count == 20


def module_constants(machine):
    from perfmodel.calibration.calibration_tables import constants_of

    return {"/".join(key): value for key, value in constants_of(machine).items()}


@pytest.mark.usefixtures("on_fake_time")
class TestFiles:
    def test_the_file_is_a_device_and_its_points_lie_beside_it(self, tmp_path):
        out = tmp_path / "mine.toml"
        machine = _measured(FakeBackend(), out=out)
        loaded = pm.load_calibration(out)
        assert isinstance(loaded, MeasuredMachine)
        assert loaded == machine
        assert len(read_journal(journal_of(out))["points"]) == machine.session.point_count
        assert pm.predict(pm.zoo.fcn5(), batch_size=16, device=str(out)).step_s > 0

    def test_the_figure_has_the_points_of_classes_that_follow_their_pooled_class(self, tmp_path):
        from perfmodel.calibration.calibration_tables import measured_points, roofline_of

        out = tmp_path / "mine.toml"
        machine = _measured(FakeBackend(), out=out)
        points, table = read_journal(journal_of(out))["points"], FakeBackend().benchmarks("fp32")
        pooled = machine.model_copy(update={"kernel": tuple(each for each in machine.kernel if each.name != "relu")})
        shown = [len(measured_points(each, points, lambda dtype: table)) for each in (machine, pooled)]
        assert shown == [len(points)] * 2
        none = machine.model_copy(update={"kernel": machine.kernel[:0]})
        assert roofline_of(out, none).axes  # nothing to show is no error

    def test_points_of_another_session_are_kept_and_taken_for_no_others(self, tmp_path):
        from perfmodel.calibration.calibration_tables import roofline_of

        out = tmp_path / "mine.toml"
        first = _measured(FakeBackend(), out=out, budget_s=5)
        kept = read_journal(journal_of(out))["points"]
        for number in (1, 2):  # neither are those of an interrupted session lost
            with (
                pytest.warns(PerfmodelWarning, match=rf"kept as .*mine\.points\.json\.{number}, with which --resume"),
                pytest.raises(CalibrationInterrupted) as caught,
            ):
                _measured(FakeBackend(fails_after=400, seed=2 + number), out=out)
        assert read_journal(tmp_path / "mine.points.json.1")["points"] == kept
        assert caught.value.journal == journal_of(out)
        with pytest.raises(ArgumentError, match="are of another session"):
            roofline_of(out, first)
        (tmp_path / "mine.points.json.1").rename(journal_of(out))
        assert roofline_of(out, first).axes
        content = json.loads(journal_of(out).read_text())
        content["points"][0]["seconds"] *= 1.01
        journal_of(out).write_text(json.dumps(content))
        with pytest.raises(ArgumentError, match="are of another session"):
            roofline_of(out, first)

    def test_an_interrupt_keeps_the_points_and_says_how_to_go_on(self, tmp_path):
        out = tmp_path / "mine.toml"
        with pytest.raises(CalibrationInterrupted) as caught:
            _measured(FakeBackend(fails_after=400), out=out)
        kept = read_journal(caught.value.journal)["points"]
        assert len(kept) > 5
        assert f"--resume {journal_of(out)}" in str(caught.value)
        assert not out.exists()
        backend = FakeBackend()
        machine = _measured(backend, out=out, resume=caught.value.journal)
        after = read_journal(journal_of(out))["points"]
        assert [point.seconds for point in after[: len(kept)]] == [point.seconds for point in kept]
        assert machine.session.point_count == len(after) > len(kept)
        assert len({(point.name, json.dumps(point.sizes)) for point in after}) == len(after)
        assert machine.session.notes == (f"resumed: {len(kept)} of the points are of a session that was interrupted",)

    def test_a_slow_spell_before_an_interrupt_is_noticed_after_it(self, tmp_path):
        """As an uninterrupted session does: windows and what the reference kernel took in them are in the record."""
        spell = lambda seconds: 1.6 if 2 < seconds < 4.5 else 1.0  # noqa: E731
        made = {}
        for label, speed in (("calm", lambda seconds: 1.0), ("disturbed", spell)):
            out = tmp_path / f"{label}.toml"
            backend = FakeBackend(noise=0.02, speed=speed)
            backend.fails_after = 9000
            with pytest.raises(CalibrationInterrupted) as caught:
                _measured(backend, out=out)
            assert backend.elapsed_s > 5  # both its ends are before the interrupt
            machine = _measured(FakeBackend(noise=0.02), out=out, resume=caught.value.journal)
            made[label] = machine.session
        assert made["calm"].retaken == 0
        assert made["disturbed"].retaken > 0
        assert made["disturbed"].reference_spread_percent > 10

    def test_an_interrupt_of_the_fit_keeps_the_points_too(self, tmp_path, monkeypatch):
        def interrupted(*given, **options):
            raise KeyboardInterrupt

        monkeypatch.setattr(module, "fitted_classes", interrupted)
        for out in (tmp_path / "mine.toml", None):
            with pytest.raises(CalibrationInterrupted) as caught:
                _measured(FakeBackend(), out=out, budget_s=5)
            record = caught.value.journal
            assert len(read_journal(record)["points"]) > 50
            words = shlex.split(str(caught.value).partition("go on with: ")[2])
            assert words[-4:] == ["--out", str(out or "my_machine.toml"), "--resume", str(record)]

    def test_a_record_of_another_machine_is_refused(self, tmp_path):
        out = tmp_path / "mine.toml"
        _measured(FakeBackend(), out=out, budget_s=5)
        record = journal_of(out)
        content = json.loads(record.read_text())
        content["header"]["software"]["numpy"] = "1"
        record.write_text(json.dumps(content))
        with pytest.raises(ArgumentError, match="same software"):
            _measured(FakeBackend(), resume=record)
        content["header"]["software"] = FakeBackend().software()
        content["header"]["machine"]["memory_gib"] = 8.0
        record.write_text(json.dumps(content))
        with pytest.raises(ArgumentError, match=r"same machine; it was memory_gib 8\.0, and is memory_gib 16\.0 now"):
            _measured(FakeBackend(), resume=record)
        with pytest.raises(ArgumentError, match=r"resume must.*cannot be read"):
            _measured(FakeBackend(), resume=tmp_path / "absent.json")

    @pytest.mark.parametrize(
        ("place", "value", "told"),
        [
            (("points", 2, "sizes"), {"n": 3}, r"points\[2\]\.sizes: value \{'n': 3\}: a \w+ has "),
            (("points", 2, "sizes"), {"n": -3}, r"points\[2\]\.sizes\.n: value -3"),
            (("points", 2, "sizes"), {"n": True}, r"points\[2\]\.sizes\.n: value True"),
            (("points", 0, "sizes"), {"rows": 0, "inputs": 8, "outputs": 8}, r"points\[0\]\.sizes\.rows: value 0"),
            (("points", 2, "spread"), "abc", r"points\[2\]\.spread: value 'abc'"),
            (("points", 2, "spread"), math.nan, r"points\[2\]\.spread: value nan"),
            (("points", 2, "again_seconds"), -1e-3, r"points\[2\]\.again_seconds: value -0\.001"),
            (("points", 2, "name"), "rleu", r"points\[2\]\.name: value 'rleu'"),
            (("points", 2, "window"), 999, r"points\[2\]\.window: value 999: must be below \d"),
            (("points", 2, "window"), -1, r"points\[2\]\.window: value -1"),
            (("points", 2, "retaken"), "no", r"points\[2\]\.retaken: value 'no'"),
            (("seconds",), math.nan, "seconds: value nan"),
            (("reference_s",), [1e-3, -1e-3], r"reference_s\[1\]: value -0\.001"),
            (("found", "peaks"), {}, r"found\.peaks\.\w+: required key"),
            (("found", "peaks", "gemm_flop_per_s"), {"bf16": 1e9}, r"found\.peaks\.gemm_flop_per_s: required"),
            (("found", "peaks", "gemm_flop_per_s"), {"fp32": -1e9}, r"found\.peaks\.gemm_flop_per_s\.fp32: value -1"),
            (("found", "peaks"), None, r"found\.peaks: value None"),
            (("found", "overheads"), [1], r"found\.overheads: value \[1\]"),
            (("found", "clock_mhz"), -5.0, r"found\.clock_mhz: value -5\.0"),
        ],
    )
    def test_a_spoilt_value_is_told_with_its_place_before_anything_is_measured(self, tmp_path, place, value, told):
        out = tmp_path / "mine.toml"
        _measured(FakeBackend(), out=out, budget_s=2)
        content = at = json.loads(journal_of(out).read_text())
        for step in place[:-1]:
            at = at[step]
        at[place[-1]] = value
        journal_of(out).write_text(json.dumps(content))
        backend = FakeBackend()
        with pytest.raises(ArgumentError, match=rf"^resume must.*\({told}.*mine\.points\.json"):
            _measured(backend, resume=journal_of(out))
        assert backend.runs == 0

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda content: "{",
            lambda content: "[]",
            lambda content: json.dumps(content | {"points": [{"name": "relu"}]}),
            lambda content: json.dumps(content | {"points": 3}),
            lambda content: json.dumps(content | {"seconds": "long"}),
            lambda content: json.dumps(content | {"found": None}),
            lambda content: json.dumps(content | {"version": 0}),
            lambda content: json.dumps({key: value for key, value in content.items() if key != "header"}),
            lambda content: json.dumps(content | {"points": [content["points"][0] | {"seconds": -1.0}]}),
            lambda content: json.dumps(content | {"points": [content["points"][0] | {"seconds": float("nan")}]}),
            lambda content: json.dumps(content | {"points": [content["points"][0] | {"cold_seconds": 0.0}]}),
            lambda content: json.dumps(content | {"points": [content["points"][0] | {"sizes": {"rows": "3"}}]}),
            lambda content: json.dumps(content)[:-40],
        ],
    )
    def test_a_record_that_is_spoilt_is_refused(self, tmp_path, spoil):
        out = tmp_path / "mine.toml"
        _measured(FakeBackend(), out=out, budget_s=2)
        record = journal_of(out)
        content = json.loads(record.read_text())
        record.write_text(spoil(content))
        backend = FakeBackend()
        with pytest.raises(ArgumentError, match=r"^resume must.*a record of"):
            _measured(backend, resume=record)
        assert backend.runs == 0
        with pytest.raises(ArgumentError, match=r"^file must"):
            read_journal(record, argument="file")


class TestBadInput:
    @pytest.mark.parametrize("budget_s", [0, -1, float("nan"), float("inf"), "long", True])
    def test_budget(self, budget_s):
        with pytest.raises(ArgumentError, match="budget_s"):
            calibrate("cpu", backend=FakeBackend(), budget_s=budget_s)

    def test_unwritable_out_is_refused_before_measuring(self, tmp_path):
        for out in (tmp_path / "absent" / "mine.toml", tmp_path):
            backend = FakeBackend()
            with pytest.raises(ArgumentError):
                calibrate("cpu", backend=backend, out=out if out != tmp_path else tmp_path / "folder.toml" / "x.toml")
            assert backend.runs == 0

    @pytest.mark.parametrize(
        "out", ["folder.toml", "folder", "record.toml", "mine.json", "mine", "", "/proc/mine.toml"]
    )
    def test_a_path_that_no_calibration_can_have_is_refused_before_measuring(self, out, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        for folder in ("folder.toml", "folder", "record.points.json"):
            (tmp_path / folder).mkdir()
        backend = FakeBackend()
        with pytest.raises(ArgumentError, match=r"^out must"):
            calibrate("cpu", backend=backend, out=out)
        assert backend.runs == 0
        assert len(list(tmp_path.iterdir())) == 3

    @pytest.mark.usefixtures("on_fake_time")
    def test_a_disk_that_is_filled_meanwhile_costs_no_point(self, tmp_path, monkeypatch):
        """The record goes to the folder of temporary files; the message's own command ends the calibration."""
        from perfmodel.calibration import journal

        full, spare = tmp_path / "full", tmp_path / "spare"
        full.mkdir()
        spare.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(spare))
        whole = journal.save_text

        def filled(path, text):
            if str(path).startswith(str(full)):
                raise ArgumentError("path", str(path), "must be a path that can be written (No space left on device)")
            return whole(path, text)

        monkeypatch.setattr(journal, "save_text", filled)
        monkeypatch.setattr("perfmodel.hardware.measured_machine.save_text", filled)
        monkeypatch.setattr(module, "load_backend", lambda name, target: FakeBackend())
        with pytest.raises(CalibrationError, match="No space left") as caught:
            calibrate("cpu", backend="numpy", budget_s=8, progress=False, out=full / "mine.toml")
        (kept,) = spare.glob("*/*")
        count = len(read_journal(kept)["points"])
        assert count > 50
        assert not list(full.iterdir())
        words = shlex.split(str(caught.value).partition("go on with: perfmodel ")[2])
        monkeypatch.undo()
        run_on_fake_time(monkeypatch)
        monkeypatch.setattr("perfmodel.calibration.surroundings.measure_storage", list)
        monkeypatch.setattr(module, "load_backend", lambda name, target: FakeBackend())
        assert run([*words, "--no-progress"]) == 0
        assert pm.load_calibration(full / "mine.toml").session.point_count >= count

    def test_a_full_disk_is_refused_before_measuring(self, tmp_path, monkeypatch):
        def full(path, data):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("pathlib.Path.write_bytes", full)
        backend = FakeBackend()
        with pytest.raises(ArgumentError, match="No space left"):
            calibrate("cpu", backend=backend, out=tmp_path / "mine.toml")
        assert backend.runs == 0
        assert not list(tmp_path.iterdir())

    def test_backend_and_dtype_names(self):
        with pytest.raises(UnknownNameError, match="torch"):
            calibrate("cpu", backend="torhc")
        with pytest.raises(UnknownNameError, match="fp32"):
            calibrate("cpu", backend=FakeBackend(), dtypes="fp23")

    def test_no_torch(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "torch", None)
        with pytest.raises(MissingPackageError, match=r"perfmodel\[torch\]"):
            calibrate("cpu", backend="torch")

    @pytest.mark.parametrize("target", ["cuda:0", "cuda:99", "gpu", "cpu:1"])
    def test_devices_that_are_not_there(self, target, monkeypatch):
        torch = pytest.importorskip("torch")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(ArgumentError, match="cpu"):
            calibrate(target, backend="torch")

    def test_an_index_beyond_the_gpus(self, monkeypatch):
        torch = pytest.importorskip("torch")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "Made up")
        with pytest.raises(ArgumentError, match=r"cuda:0 \(Made up\)"):
            calibrate("cuda:7", backend="torch")

    @pytest.mark.usefixtures("on_fake_time")
    def test_a_budget_too_small_for_any_fit(self):
        with pytest.raises(CalibrationError, match=r"larger budget_s.* points are kept in .*--budget 60 .*--resume"):
            _measured(FakeBackend(), budget_s=0.001)

    def test_a_wrong_kernel_is_refused(self, monkeypatch):
        for made, fault in (
            (np.zeros(3), "zero throughout"),
            (np.full(3, np.nan), "not finite"),
            (np.arange(3.0), "off"),
        ):
            backend = FakeBackend()
            backend.results = lambda *given, made=made, **options: (made, np.ones(3), False)
            with pytest.raises(CalibrationError, match=fault):
                _measured(backend)


class TestCommandLine:
    @pytest.mark.usefixtures("on_fake_time")
    def test_interrupt_is_130_and_names_the_record(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(module, "load_backend", lambda name, target: FakeBackend(fails_after=400))
        code = run(["calibrate", "cpu", "--out", str(tmp_path / "mine.toml"), "--no-progress"])
        assert code == 130
        told = capsys.readouterr().err
        words = shlex.split(told.partition("go on with: perfmodel ")[2])
        assert words[:6] == ["calibrate", "cpu", "--backend", "numpy", "--dtype", "fp32"]
        assert words[6:] == ["--budget", "60", "--out", str(tmp_path / "mine.toml"), "--resume", words[-1]]
        monkeypatch.setattr(module, "load_backend", lambda name, target: FakeBackend())
        assert run([*words, "--no-progress"]) == 0
        assert (tmp_path / "mine.toml").is_file()

    def test_bad_input_is_2(self, capsys):
        for words in (["--budget", "0"], ["--backend", "tensorflow"], ["--out", "/absent/folder/mine.toml"]):
            assert run(["calibrate", "cpu", *words]) == 2
        assert run(["calibration", "show", "absent_machine"]) == 2
        assert "budget_s must" in capsys.readouterr().err

    @pytest.mark.usefixtures("on_fake_time")
    def test_show_and_diff(self, tmp_path, monkeypatch, capsys):
        slow = {name: {key: 3 * value for key, value in law.items()} for name, law in LAW.items()}
        for name, law in (("old", LAW), ("new", slow)):
            monkeypatch.setattr(module, "load_backend", lambda *given, law=law: FakeBackend(law))
            assert run(["calibrate", "cpu", "--out", str(tmp_path / f"{name}.toml"), "--no-progress"]) == 0
        assert "gemm_output" in capsys.readouterr().out
        old, new = str(tmp_path / "old.toml"), str(tmp_path / "new.toml")
        assert run(["calibration", "diff", old, old]) == 0
        assert "beyond their intervals" not in capsys.readouterr().out
        assert run(["calibration", "diff", old, new]) == 0
        told = capsys.readouterr().out
        assert "conv2d_3x3_s1_output" in told
        overlapping, inside = map(int, re.search(r"of (\d+) % overlap, and (\d+) % are now inside", told).groups())
        assert inside <= overlapping < 100
        assert run(["calibration", "diff", old, new, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["changed"]


def test_batches_are_odd_and_so_share_nothing_with_even_ones():
    torch_like = Axis(3, 4096, "odd")
    from perfmodel.calibration.benchmark import Benchmark, Sequence

    drawn = Sequence(
        Benchmark(name="any", axes={"batch": torch_like}, operation=lambda sizes: None, prepare=lambda *given: None)
    )
    batches = [next(drawn)["batch"] for _ in range(300)]
    assert all(batch % 2 and batch >= 3 for batch in batches)
    logs = np.log(batches)
    assert np.histogram(logs, bins=6)[0].min() > 20  # spread over the whole range, not in one corner


def test_recorded_operations_are_those_of_the_points(tmp_path):
    from perfmodel.calibration.benchmark import Point
    from perfmodel.calibration.calibrate import benchmark_table

    table = benchmark_table("numpy")
    sizes = {"rows": 5, "inputs": 32, "outputs": 64}
    journal = Journal(tmp_path / "one.points.json", {"backend": "numpy"})
    journal.points = [Point(name="gemm_output", dtype="fp32", sizes=sizes, seconds=1e-3)]
    journal.write()
    assert recorded_operations(journal.path) == [("fp32", table["gemm_output"].operation(sizes))]


def test_the_best_rate_is_not_that_of_a_product_that_was_disturbed():
    """The naive baseline would look worse than it is, and the calibration beside it better."""
    quick = Benchmark(name="gemm_output", axes={}, operation=None, prepare=None)
    operation = contraction({"rows": 1001, "inputs": 512, "outputs": 512}, Role.OUTPUT)
    point = Point(name=quick.name, dtype="fp32", seconds=2e-3)
    of_class = ClassPoints(name=quick.name, dtype="fp32", points=(point,), operations=(operation,))
    rate = 2 * 1001 * 512 * 512 / 2e-3
    assert best_rates([of_class], {"fp32": rate / 2, "tf32": 1.0}) == {"fp32": rate, "tf32": 1.0}
    assert best_rates([of_class], {"fp32": 2 * rate}) == {"fp32": 2 * rate}


def test_the_gap_to_a_data_sheet_is_that_of_the_threads_that_worked():
    def gaps(**changed):
        made = made_up()
        on = made.machine.model_copy(update={"datasheet": "xeon_platinum_8480", **changed})
        return datasheet_gaps(made.model_copy(update={"machine": on}))

    vendor = pm.load_device("xeon_platinum_8480")
    peak = {cores: vendor.peak_flop_per_s("fp32", active_cores=cores) / 1e9 for cores in (1, 8, 56)}
    bandwidth = vendor.memory_bandwidth_bytes_per_s / 1e9
    assert vendor.core_count == 56
    for threads, cores, told in (
        (1, 56, f"of {peak[1]:.4g} GFLOP/s"),  # one thread of many cores
        (16, 8, f"of {peak[8]:.4g} GFLOP/s"),  # two threads of each core
        (112, 112, f"of {2 * peak[56]:.4g} GFLOP/s of 2 sockets"),
    ):
        assert gaps(threads=threads, core_count=cores)["data sheet fp32"].endswith(told)
    assert gaps(threads=112, core_count=112)["data sheet bandwidth"].endswith(f"{2 * bandwidth:.4g} GB/s of 2 sockets")
    assert gaps(datasheet="h100_sxm") == {"data sheet": "not compared: h100_sxm is of a GPU, not of a CPU"}
