"""The command line: what it prints, what it writes, and how it ends on bad input."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import perfmodel
from perfmodel.cli.app import app, run
from perfmodel.cli.output import (
    check_plot,
    check_writable,
    key_values,
    named_arguments,
    number_as_typed,
    share_as_typed,
    value_as_typed,
)
from perfmodel.cli.predict import TABLE
from perfmodel.errors import ArgumentError, NotYetAvailableError
from perfmodel.hardware.spec_files import shipped_folder
from perfmodel.prediction.arguments.table import DEFAULTS

RESNET = ["predict", "resnet50", "--framework", "torch_423cfba", "--batch-size", "16"]
RESNET_ON_1080 = [*RESNET, "--device", "gtx_1080"]


def printed(*words: str) -> str:
    """Return what a command that must succeed prints."""
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the one line that a command prints which must end with exit code 2."""
    assert run(list(words)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("perfmodel: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def process(*words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perfmodel", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | (environment or {}),
        timeout=120,
    )


class TestWords:
    def test_numbers_as_typed(self) -> None:
        typed = {
            "16": 16,
            "-1": -1,
            "1.5": 1.5,
            "8%": 0.08,
            "12.5 %": 0.125,
            "400%": "400%",
            "many": "many",
            "%": "%",
            "8%%": "8%%",
        }
        assert {text: share_as_typed(text) for text in typed} == typed
        assert {text: number_as_typed(text) for text in typed} == typed | {"8%": "8%", "12.5 %": "12.5 %"}
        assert number_as_typed(None) is share_as_typed(None) is None

    @pytest.mark.parametrize(
        ("typed", "field"),
        [
            (["search", "gpt", "--system", "dgx_h100", "--global-batch-size", "8", "--tokens", "8%"], "tokens"),
            (["search", "gpt", "--system", "dgx_h100", "--global-batch-size", "8", "--checkpoint-s", "8%"],
             "checkpoint_s"),
            (["sweep", "lenet5", "--device", "gtx_1080", "--batch-size", "8%,16"], "batch_size"),
            (["predict", "lenet5", "--device", "gtx_1080", "--batch-size", "8", "--set", "bucket-bytes=8%"],
             "bucket_bytes"),
        ],
    )  # fmt: skip
    def test_only_shares_are_percentages(self, typed, field, capsys) -> None:
        said = refused(capsys, *typed)
        assert said.startswith(f"perfmodel: error: {field} must")
        assert "'8%'" in said

    def test_shares_are_typed_as_percentages(self) -> None:
        assert value_as_typed("input_variation", "10%") == 0.1
        assert named_arguments(["input-variation=10%"], argument="--set") == {"input_variation": 0.1}
        assert key_values(["dropout=10%"], argument="--option") == {"dropout": 0.1}
        assert value_as_typed("straggler", "normal=10%") == {"distribution": "normal", "cv": 0.1}

    def test_key_values(self) -> None:
        assert key_values(["a=1", "b=TRUE", "c=x=y"], argument="--option") == {"a": 1, "b": True, "c": "x=y"}
        for wrong in ("a", "=1", "a b=1"):
            with pytest.raises(ArgumentError, match="key=value"):
                key_values([wrong], argument="--option")

    def test_paths_that_cannot_be_written(self, tmp_path: Path) -> None:
        check_writable(tmp_path / "new.json", argument="--out")
        check_writable(None, argument="--out")
        for wrong in (tmp_path, tmp_path / "missing" / "new.json"):
            with pytest.raises(ArgumentError, match="--out must"):
                check_writable(wrong, argument="--out")

    def test_pictures_go_to_regular_files_of_a_known_ending(self, tmp_path: Path) -> None:
        check_plot(tmp_path / "new.png")
        check_plot(None)
        pipe, folder, device = tmp_path / "pipe.png", tmp_path / "folder.png", tmp_path / "device.png"
        os.mkfifo(pipe)
        folder.mkdir()
        device.symlink_to(os.devnull)
        for wrong, allowed in ((pipe, "regular file"), (folder, "not a folder"), (device, "regular file")):
            with pytest.raises(ArgumentError, match=f"--plot must.*{allowed}"):
                check_plot(wrong)
        assert pipe.is_fifo()
        assert device.is_symlink()


class TestProgram:
    def test_version(self) -> None:
        assert printed("--version") == f"perfmodel {perfmodel.__version__}\n"

    @pytest.mark.parametrize("words", [["--help"], ["predict", "-h"], ["validate", "-h"], ["specs", "check", "-h"]])
    def test_help(self, words: list[str]) -> None:
        assert "Usage: perfmodel" in printed(*words)

    def test_without_a_command_it_prints_help_and_says_it_is_wrong(self) -> None:
        result = CliRunner().invoke(app, [])
        assert result.exit_code == 2
        assert "predict" in result.stdout

    def test_help_loads_nothing_heavy(self) -> None:
        code = """
import sys
from perfmodel.cli.app import run

run(["--help"])
heavy = {"numpy", "scipy", "sympy", "matplotlib", "networkx", "pydantic", "pandas"} & set(sys.modules)
sys.exit(str(heavy) if heavy else 0)
"""
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["nothing"], "No such command 'nothing'"),
            (["predict"], "Missing argument"),
            (["scaling", "alexnet"], "Missing option '--system'"),
            (["predict", "alexnet", "--batch"], "--batch"),
            (["predict", "alexnet", "--batch-size", "1", "--top", "-1"], "--top"),
            (["validate", "shi2016", "--max-mape", "low"], "--max-mape"),
        ],
    )
    def test_a_usage_error_is_one_line_that_names_the_help(
        self, capsys: pytest.CaptureFixture[str], words: list[str], said: str
    ) -> None:
        line = refused(capsys, *words)
        assert said in line
        assert "--help)" in line

    def test_an_error_in_a_process_is_one_line_without_traceback(self) -> None:
        ended = process("specs", "show", "device", "gtx1080")
        assert ended.returncode == 2
        assert ended.stdout == ""
        assert ended.stderr.startswith("perfmodel: error: unknown device 'gtx1080'. Did you mean 'gtx_1080'?")
        assert ended.stderr.count("\n") == 1

    def test_a_reader_that_goes_away_is_no_crash(self) -> None:
        command = f"{sys.executable} -m perfmodel specs list | head -n 1"
        ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert ended.stdout.startswith("kind")
        assert ended.stderr == ""

    def test_a_terminal_that_lacks_letters_is_no_crash(self) -> None:
        ended = process("predict", "--help", environment={"PYTHONIOENCODING": "ascii"})
        assert ended.returncode == 0
        assert "Traceback" not in ended.stderr

    def test_ctrl_c(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("perfmodel.cli.specs._find", interrupt)
        assert run(["specs", "show", "device", "gtx_1080"]) == 130
        assert "Traceback" not in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--straggler", "many"], "--straggler must be KIND=X, e.g. normal=0.1 (got 'many')"),
            (["--recompute", "1.5"], "recompute must be a whole number of blocks from 0 to 1,000,000, or full"),
            (["--set", "-1"], "--set must be key=value (got '-1')"),
            (["--batch-size", "8%"], "batch_size must be a whole number >= 1 (got '8%')"),
            (["--batch-size", "400%"], "batch_size must be a whole number >= 1 (got '400%')"),
        ],
    )
    def test_a_wrong_value_is_answered_with_what_it_must_be(
        self, capsys: pytest.CaptureFixture[str], words: list[str], said: str
    ) -> None:
        assert said in refused(capsys, "predict", "alexnet", "--device", "gtx_1080", *words)


class TestSpecs:
    def test_list(self) -> None:
        lines = printed("specs", "list", "device").splitlines()
        assert lines[0].split() == ["kind", "name", "description"]
        assert any(line.split()[:2] == ["device", "gtx_1080"] for line in lines)
        assert all(line.startswith("device") for line in lines[2:])

    def test_list_as_json_takes_the_plural_too(self) -> None:
        entries = json.loads(printed("specs", "list", "systems", "--json"))
        assert {"desktop_i7_3820", "server_2x_xeon_e5_2630_v3"} <= {entry["name"] for entry in entries}

    def test_show_prints_the_file_with_its_sources(self) -> None:
        text = printed("specs", "show", "device", "gtx_1080")
        assert text.startswith(f"# {shipped_folder() / 'devices' / 'gtx_1080.toml'}\n")
        assert "bandwidth_gb_per_s = 320" in text
        assert "[[source]]" in text

    def test_show_as_json(self) -> None:
        content = json.loads(printed("specs", "show", "device", "gtx_1080", "--json"))
        assert content["memory"]["bandwidth_gb_per_s"] == 320
        assert content["launch_date"] == "2016-05-27"

    @pytest.mark.parametrize("words", [(), ("--json",)])
    def test_show_of_a_system_reads_it_once_and_says_its_parts(
        self, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
    ) -> None:
        from perfmodel.hardware import catalogue

        load, read = catalogue.load_system, []
        monkeypatch.setitem(catalogue.LOADER_BY_FOLDER, "systems", lambda path: read.append(path) or load(path))
        text = printed("specs", "show", "survey_fig5", *words)
        assert len(read) == 1
        remark = "gpu0 to gpu3: NVIDIA GeForce GTX 1080 runs at pcie_3_x16 in a slot of pcie_4_x16"
        system = perfmodel.load_system("survey_fig5")
        if words:
            content = json.loads(text)
            assert [part["name"] for part in content["parts"]] == [part.name for part in system.parts()]
            assert content["name"] == system.name
            assert any(told.startswith(remark) for told in content["remarks"])
        else:
            table = text.partition("# parts, links, and what large copies reach over them\n")[2]
            assert all(part.name in table for part in system.parts())
            assert remark in table

    def test_show_says_what_is_presumed(self) -> None:
        last = printed("specs", "show", "p2_16xlarge").splitlines()[-1]
        assert last.startswith("how its 11 PCIe switches are joined is presumed")
        assert json.loads(printed("specs", "show", "p2_16xlarge", "--json"))["remarks"] == [last]

    def test_show_of_other_kinds_has_no_parts(self) -> None:
        assert "# parts" not in printed("specs", "show", "device", "gtx_1080")
        assert "parts" not in json.loads(printed("specs", "show", "device", "gtx_1080", "--json"))

    def test_show_finds_a_link_by_its_lanes(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "PCI Express 3.0" in printed("specs", "show", "link", "pcie_3_x8")
        assert "pcie_3_x3" in refused(capsys, "specs", "show", "link", "pcie_3_x3")

    def test_unknown_kind_and_name(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "Did you mean 'device'" in refused(capsys, "specs", "list", "devise")
        assert "Did you mean 'gtx_1080'" in refused(capsys, "specs", "show", "device", "gtx1080")

    def test_everything_shipped_is_sound(self) -> None:
        assert printed("specs", "check").endswith("files checked, none with faults\n")

    def test_check_prints_every_fault(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder = tmp_path / "devices"
        folder.mkdir()
        sound = (shipped_folder() / "devices" / "gtx_1080.toml").read_text(encoding="utf-8")
        (folder / "sound.toml").write_text(sound, encoding="utf-8")
        wrong = sound.replace("tdp_w = 180", "tdp_watt = 180").replace("l2_mib = 2", "l2_mib = -2")
        (folder / "wrong.toml").write_text(wrong, encoding="utf-8")
        assert run(["specs", "check", str(tmp_path)]) == 2
        captured = capsys.readouterr()
        lines = captured.out.splitlines()
        assert lines[-1] == "2 files checked, 1 with faults"
        assert all(line.startswith(str(folder / "wrong.toml")) for line in lines[:-1])
        assert any("tdp_w" in line for line in lines)
        assert any("memory.l2_mib" in line for line in lines)
        assert captured.err == "perfmodel: error: 1 of 2 spec files have faults\n"
        assert run(["specs", "check", str(folder / "sound.toml")]) == 0

    def test_a_whole_disk_is_not_checked(self, tmp_path, capsys):
        for number in range(1001):
            (tmp_path / f"{number}.toml").touch()
        assert run(["specs", "check", str(tmp_path)]) == 2
        assert "at most 1,000" in capsys.readouterr().err

    def test_check_as_json(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "mine.toml").write_text("x = [", encoding="utf-8")
        assert run(["specs", "check", str(tmp_path), "--kind", "device", "--json"]) == 2
        content = json.loads(capsys.readouterr().out)
        assert content["checked"] == 1
        assert "not valid TOML" in content["faults"][str(tmp_path / "mine.toml")][0]

    def test_check_of_a_file_whose_kind_nobody_tells(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "mine.toml").write_text("", encoding="utf-8")
        assert run(["specs", "check", str(tmp_path)]) == 2
        assert "--kind" in capsys.readouterr().out

    def test_check_of_nothing(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert "holds .toml files" in refused(capsys, "specs", "check", str(tmp_path))
        assert "existing file" in refused(capsys, "specs", "check", str(tmp_path / "nothing"))

    def test_own_specs_are_listed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "devices").mkdir()
        sound = (shipped_folder() / "devices" / "gtx_1080.toml").read_text(encoding="utf-8")
        (tmp_path / "devices" / "mine.toml").write_text(sound, encoding="utf-8")
        monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
        assert "mine " in printed("specs", "list", "device")


class TestPredict:
    def test_prints_time_parts_layers_bottleneck_memory_and_the_measured_run(self) -> None:
        text = printed(*RESNET_ON_1080)
        for expected in (
            "step time",
            "where the time goes",
            "longest of",
            "bottleneck",
            "capacity",
            "It fits",
        ):
            assert expected in text
        assert "what shi2016 really executed" in text
        assert "measured              181.0 ms" in text

    @pytest.mark.parametrize(
        ("typed", "density", "pattern"),
        [("25%", 0.25, "unstructured"), ("0.5:2:4", 0.5, "2:4"), ("0.3:structured", 0.3, "structured")],
    )
    def test_prunes_what_every_verb_loads(self, typed: str, density: float, pattern: str) -> None:
        asked = ["--device", "a100_80_sxm", "--phase", "forward", "--batch-size", "8", "--prune", typed]
        network = perfmodel.zoo.alexnet().pruned(density, pattern=pattern)
        step_s = perfmodel.predict(network, device="a100_80_sxm", phase="forward", batch_size=8).step_s
        assert json.loads(printed("predict", "alexnet", *asked, "--json"))["step_s"] == step_s
        swept = json.loads(printed("sweep", "alexnet", *asked, "--json"))
        assert swept["rows"][0]["step_s"] == pytest.approx(step_s)

    def test_the_table_that_is_compared_with_has_no_run_of_the_default_framework(self) -> None:
        assert DEFAULTS["framework"] not in {run.framework for run in perfmodel.measurements.load(TABLE).runs}

    def test_compares_no_pruned_network_with_measured_whole_ones(self) -> None:
        assert "really executed" not in printed(*RESNET_ON_1080, "--prune", "0.5:structured")

    def test_refuses_what_is_no_density(self, capsys: pytest.CaptureFixture[str]) -> None:
        for typed, says in (("half", "--prune"), ("0.5:4:8", "4:8"), ("2", "--prune"), ("-1", "--prune")):
            words = ("predict", "alexnet", "--device", "gtx_1080", "--batch-size", "8", "--prune", typed)
            assert says in refused(capsys, *words)

    def test_refuses_percentages_as_prices(self, capsys: pytest.CaptureFixture[str]) -> None:
        on = ("lenet5", "--device", "gtx_1080", "--batch-size", "8")
        assert "unknown price or instance '8%'" in refused(capsys, "predict", *on, "--price", "8%")
        for typed in ("8%", "gtx_1080=8%"):
            assert "usd_per_hour" in refused(capsys, "sweep", *on, "--usd-per-hour", typed)
        run = ("--batch-size", "8", "--dataset-size", "800", "--epochs", "1")
        assert "'8%'" in refused(capsys, "plan", "lenet5", "--candidate", "price=8%;device=gtx_1080", *run)

    def test_json_holds_the_same_numbers_as_the_library(self) -> None:
        content = json.loads(printed(*RESNET_ON_1080, "--json", "--top", "3"))
        p = perfmodel.predict(perfmodel.zoo.resnet50(), batch_size=16, device="gtx_1080", framework="torch_423cfba")
        assert content["step_s"] == pytest.approx(p.step_s)
        assert content["step_s"] == pytest.approx(sum(content["parts"].values()))
        assert len(content["longest_layers"]) == 3
        assert content["executed"]["measured"][0]["step_s"] == 0.181
        assert content["executed"]["run"]["framework"] == "torch_423cfba"

    def test_explain_adds_words_and_evidence(self) -> None:
        text = printed(*RESNET_ON_1080, "--explain")
        assert "Constants come from" in text
        assert "why " in text

    def test_without_a_run_or_a_table_nothing_is_compared(self) -> None:
        assert "really executed" not in printed(*RESNET_ON_1080, "--measured", "none")
        assert "really executed" not in printed("predict", "alexnet", "--device", "gtx_980", "--batch-size", "3")

    def test_a_system_with_threads(self) -> None:
        words = ["predict", "fcn5", "--system", "desktop_i7_3820", "--framework", "caffe_1_0_rc3"]
        text = printed(*words, "--batch-size", "64", "--threads", "2")
        assert "2 threads" in text
        assert "measured              495.0 ms" in text

    def test_options_of_the_builder(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = [
            "predict",
            "alexnet",
            "--device",
            "gtx_980",
            "--batch-size",
            "16",
            "--measured",
            "none",
            "--json",
        ]
        plain = json.loads(printed(*words))
        grouped = json.loads(printed(*words, "--option", "variant=grouped"))
        assert grouped["memory"]["weights_bytes"] < plain["memory"]["weights_bytes"]
        assert re.search(r"--option must.*\(got 'grouped'\)", refused(capsys, *words, "--option", "grouped"))

    def test_a_graph_from_a_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "net.json"
        perfmodel.zoo.fcn5().save(path)
        text = printed("predict", str(path), "--device", "gtx_980", "--batch-size", "16")
        assert "step time" in text
        words = ["--device", "gtx_980", "--batch-size", "16"]
        assert "option" in refused(capsys, "predict", str(path), *words, "--option", "a=1")
        assert "missing.json" in refused(capsys, "predict", str(tmp_path / "missing.json"), *words)

    def test_out_writes_whole_files_only(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "p.json"
        assert run([*RESNET_ON_1080, "--json", "--out", str(path)]) == 0
        assert capsys.readouterr().out == ""
        assert json.loads(path.read_text(encoding="utf-8"))["batch_size"] == 16
        assert "--out must" in refused(capsys, *RESNET_ON_1080, "--out", str(tmp_path / "missing" / "p.json"))
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize("batch_size", ["0", "-1", "1.5", "nan", "inf", "many", ""])
    def test_a_wrong_batch_size(self, capsys: pytest.CaptureFixture[str], batch_size: str) -> None:
        line = refused(capsys, "predict", "alexnet", "--device", "gtx_980", "--batch-size", batch_size)
        assert "batch_size must be a whole number >= 1" in line

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--device", "gtx1080"], "unknown device 'gtx1080'. Did you mean 'gtx_1080'?"),
            (["--device", "gtx_1080", "--framework", "tensorflow_09"], "Did you mean 'tensorflow_0_9'"),
            (["--device", "gtx_1080", "--dtype", "fp31"], "Did you mean 'fp32'"),
            (["--device", "gtx_1080", "--phase", "forwards"], "Did you mean 'forward'"),
            (["--device", "gtx_1080", "--optimizer", "sdg"], "Did you mean 'sgd'"),
            (["--device", "gtx_1080", "--recompute", "ful"], "Did you mean 'full'"),
            (["--device", "gtx_1080", "--threads", "4"], "threads"),
            (["--device", "gtx_1080", "--measured", "shi2017"], "shi2016"),
            (["--device", "gtx_1080", "--system", "desktop_i7_3820"], "device"),
            ([], "device"),
        ],
    )
    def test_wrong_names(self, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
        assert said in refused(capsys, "predict", "alexnet", "--batch-size", "16", *words)

    def test_as_many_samples_as_fit(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["predict", "resnet50", "--device", "gtx_980", "--batch-size", "max", "--json"]
        for how in ([], ["--recompute", "full"]):
            found = json.loads(printed(*words, *how))
            recompute = how[1] if how else None
            assert found["batch_size"] == perfmodel.max_batch_size(
                perfmodel.zoo.resnet50(), device="gtx_980", recompute=recompute
            )
            assert found["memory"]["fits"]
        # 1.56 G parameters: 6.2 GB of weights alone
        line = refused(capsys, "predict", "gpt2", "--batch-size", "max", "--device", "gtx_980", "--option", "size=xl")
        assert "not even one sample fits" in line

    def test_an_unknown_network(self, capsys: pytest.CaptureFixture[str]) -> None:
        line = refused(capsys, "predict", "resnet5", "--device", "gtx_1080", "--batch-size", "16")
        assert "Did you mean 'resnet50'" in line


class TestValidate:
    def test_prints_scores_and_draws_the_cells(self, tmp_path: Path) -> None:
        picture = tmp_path / "parity.png"
        text = printed("validate", "shi2016", "--only", "gpu", "--plot", str(picture))
        assert "perfmodel" in text
        assert "MAPE" in text
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert "every cell" not in text

    def test_json_and_rows(self) -> None:
        content = json.loads(printed("validate", "shi2016", "--only", "gpu", "--json"))
        assert content["table"] == "shi2016"
        assert content["mape_percent"] > 0
        assert "every cell" in printed("validate", "shi2016", "--only", "gpu", "--rows")

    def test_can_fail(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["validate", "shi2016", "--only", "gpu", "--max-mape", "0.1"]) == 1
        assert "is above 0.1 %" in capsys.readouterr().err
        assert run(["validate", "shi2016", "--only", "gpu", "--max-mape", "1e6"]) == 0

    def test_progress_goes_to_the_error_stream(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["validate", "shi2016", "--only", "gpu", "--json", "--progress"]) == 0
        captured = capsys.readouterr()
        json.loads(captured.out)
        assert "predicting shi2016" in captured.err

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["shi2017"], "shi2016"),
            (["shi2016", "--only", "gpus"], "Did you mean 'gpu'"),
            (["shi2016", "--protocol", "nothing_fited"], "Did you mean 'nothing_fitted'"),
            (["shi2016", "--plot", "parity.jpeg"], ".png"),
            (["shi2016", "--plot", "/nowhere/parity.png"], "--plot must"),
        ],
    )
    def test_wrong_input(self, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
        assert said in refused(capsys, "validate", *words)


class TestReviewed:
    def test_all_rows_are_printed(self) -> None:
        text = printed("validate", "shi2016", "--rows")
        assert "more rows" not in text
        assert len(text.partition("every cell\n")[2].splitlines()) == 2 + 270

    def test_nan_is_no_bound(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "finite percentage" in refused(capsys, "validate", "shi2016", "--max-mape", "nan")

    def test_the_kind_may_be_left_out(self) -> None:
        assert printed("specs", "show", "gtx_1080") == printed("specs", "show", "device", "gtx_1080")
        assert printed("specs", "show", "pcie_3_x16") == printed("specs", "show", "link", "pcie_3")

    def test_an_ambiguous_or_unknown_name(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "systems").mkdir()
        (tmp_path / "systems" / "gtx_1080.toml").write_text("", encoding="utf-8")
        monkeypatch.setenv("PERFMODEL_SPECS", str(tmp_path))
        assert "name must be" in refused(capsys, "specs", "show", "gtx_1080")
        assert "Did you mean 'gtx_1080'" in refused(capsys, "specs", "show", "gtx1080")
        assert "Did you mean 'price'" in refused(capsys, "specs", "list", "prize")

    def test_a_broken_file_is_listed_with_its_fault(self, tmp_path: Path) -> None:
        (tmp_path / "devices").mkdir()
        (tmp_path / "devices" / "broken.toml").write_text("kind = ", encoding="utf-8")
        own = (shipped_folder() / "devices" / "gtx_1080.toml").read_text(encoding="utf-8")
        (tmp_path / "devices" / "gtx_1080.toml").write_text(own, encoding="utf-8")
        ended = process("specs", "list", environment={"PERFMODEL_SPECS": str(tmp_path)})
        assert ended.returncode == 2
        assert "FAULTY" in ended.stdout
        assert "(yours, shadows shipped) GPU, pascal" in ended.stdout
        assert "server_2x_xeon_e5_2630_v3" in ended.stdout
        assert ended.stderr == "perfmodel: error: spec files with faults: broken\n"

    def test_no_optimizer_means_no_update(self) -> None:
        text = printed(*RESNET_ON_1080, "--optimizer", "none", "--measured", "none")
        assert "forward and backward" in text
        assert "and update" not in text

    def test_the_parts_are_drawn(self, tmp_path: Path) -> None:
        printed(*RESNET_ON_1080, "--plot", str(tmp_path / "parts.svg"))
        assert (tmp_path / "parts.svg").read_text(encoding="utf-8").startswith("<?xml")

    def test_sources_are_lists_of_their_fields(self) -> None:
        content = json.loads(printed(*RESNET_ON_1080, "--measured", "none", "--json"))
        for file in content["provenance"]:
            assert all(set(source) >= {"title", "url", "note", "fields"} for source in file["sources"])

    @pytest.mark.parametrize(
        ("argument", "value"), [("workers", True), ("stages", 1.5), ("pinned", "no"), ("workers", np.array([1, 2]))]
    )
    def test_arguments_of_the_wrong_type(self, argument: str, value: object) -> None:
        graph = perfmodel.zoo.alexnet()
        with pytest.raises((ArgumentError, NotYetAvailableError), match=f"{argument} must"):
            perfmodel.predict(graph, batch_size=1, device="gtx_1080", **{argument: value})

    def test_a_prediction_is_one_short_line(self) -> None:
        prediction = perfmodel.predict(perfmodel.zoo.alexnet(), batch_size=1, device="gtx_1080")
        assert repr(prediction).startswith("<Prediction alexnet on NVIDIA GeForce GTX 1080 with")
        assert len(repr(prediction)) < 160


OWN = """network,batch_size,framework,device,threads,step_s
alexnet,16,caffe_1_0_rc3,gtx_980,,0.05
alexnet,16,caffe_1_0_rc3,gtx_1080,,0.03
fcn5,64,torch_423cfba,gtx_980,,0.04
fcn5,64,torch_423cfba,gtx_1080,,0.03
"""


class TestFitting:
    @pytest.fixture
    def own(self, tmp_path: Path) -> str:
        path = tmp_path / "mine.csv"
        path.write_text(OWN)
        return str(path)

    @pytest.mark.usefixtures("fits_of_this_run")
    def test_a_protocol_is_scored_and_can_fail(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["validate", "shi2016", "--only", "gpu", "--protocol", "leave_one_device_out", "--json"]
        assert run([*words, "--max-mape", "1"]) == 1
        captured = capsys.readouterr()
        content = json.loads(captured.out)
        assert content["protocol"] == "leave_one_device_out"
        assert len(content["folds"]) == 3
        assert content["fitted"]["gpu"] > 0
        assert "is above 1 %" in captured.err

    def test_a_bound_that_holds(self, own: str) -> None:
        text = printed("validate", own, "--protocol", "leave_one_device_out", "--max-mape", "10000")
        assert "leave_one_device_out" in text

    @pytest.mark.usefixtures("fits_of_this_run")
    def test_every_protocol_has_its_line(self, own: str) -> None:
        text = printed("validate", own, "--protocol", "all", "--only", "gpu")
        assert all(name in text for name in ("nothing_fitted", "all_fitted", "leave_one_device_out"))
        (rows,) = json.loads(printed("validate", own, "--protocol", "all", "--only", "gpu", "--json")).values()
        assert {row["subset"] for row in rows} == {"gpu"}
        assert len(rows) >= 7

    def test_a_share_is_fitted(self, own: str) -> None:
        content = json.loads(printed("validate", own, "--fit", "0.5", "--json"))
        assert len(content["cells"]) == 2
        assert content["protocol"] == "fitted on 50% of the rows"

    def test_sensitivity(self, own: str) -> None:
        assert "dispatch" in printed("validate", own, "--sensitivity", "--only", "gpu")

    def test_a_saved_fit_serves_predict(self, own: str, tmp_path: Path) -> None:
        path = tmp_path / "x.toml"
        assert "[[factor]]" in printed("fit", own, "--save", str(path))
        words = ["predict", "alexnet", "--batch-size", "16", "--device", "gtx_980", "--framework", "caffe_1_0_rc3"]
        plain, fitted = (json.loads(printed(*words, "--json", *more)) for more in ([], ["--calibration", str(path)]))
        assert fitted["step_s"] != plain["step_s"]
        assert fitted["executed"]["prediction"]["step_s"] != plain["executed"]["prediction"]["step_s"]
        assert fitted["step_s"] == pytest.approx(
            perfmodel.predict(
                perfmodel.zoo.alexnet(),
                batch_size=16,
                device="gtx_980",
                framework="caffe_1_0_rc3",
                calibration=path,
            ).step_s
        )

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--fit", "1.5"], "fit_share must be a share"),
            (["--fit", "0.5", "--protocol", "all_fitted"], "protocol='all_fitted'"),
            (["--fit", "0.5", "--protocol", "all"], "--fit"),
            (["--sensitivity", "--rows"], "--rows"),
            (["--protocol", "all", "--max-mape", "10"], "--max-mape"),
            (["--protocol", "leave_one_thread_count_out"], "GPU rows have none"),
            (["--protocol", "leave_one_framework_aut"], "Did you mean 'leave_one_framework_out'"),
            (["--sensitivity", "--only", "gpus"], "gpus"),
        ],
    )
    def test_wrong_combinations(
        self, capsys: pytest.CaptureFixture[str], own: str, words: list[str], said: str
    ) -> None:
        assert said in refused(capsys, "validate", own, *words)

    def test_wrong_files(self, capsys: pytest.CaptureFixture[str], own: str, tmp_path: Path) -> None:
        Path(own).write_text(OWN.replace("0.05", "-0.05"))
        assert "row 2, column step_s" in refused(capsys, "validate", own)
        assert "row 2, column step_s" in refused(capsys, "fit", own)
        assert "subset 'gpus'" in refused(capsys, "fit", "shi2016", "--only", "gpus")
        assert "no such file" in refused(capsys, *RESNET_ON_1080, "--calibration", str(tmp_path / "none.toml"))


def test_warnings_are_one_line(tmp_path):
    # in a process of its own: how warnings are shown is a setting of the process
    (tmp_path / "nets.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return torch.linalg.qr(x)[0]\n"
        "def net():\n"
        "    return Net(), torch.empty(2, 6, 6)\n"
    )
    words = [sys.executable, "-m", "perfmodel", "audit", f"{tmp_path / 'nets.py'}:net"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    (line,) = done.stderr.splitlines()
    assert line.startswith("perfmodel: warning: Net: no layer is aten.linalg_qr")


class TestJobs:
    """Workers of a system, fed from its storage."""

    JOB = ("predict", "resnet50", "--system", "survey_fig5", "--batch-size", "32", "--dataset", "imagenet_jpeg")

    def test_decoding_bounds_four_workers(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        trace = tmp_path / "steps.json"
        assert run([*self.JOB, "--workers", "4", "--sync", "none", "--trace", str(trace), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["bottleneck"] == "decode"
        assert json.loads(trace.read_text())

    def test_times_that_vary_make_steps_longer(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = []
        for more in ((), ("--input-variation", "1"), ("--input-variation", "1", "--prefetch", "8")):
            assert run([*self.JOB, "--workers", "3", "--sync", "none", *more, "--explain", "--json"]) == 0
            found.append(json.loads(capsys.readouterr().out))
        steady, shallow, deep = (each["step_s"] for each in found)
        assert steady < deep < 1.01 * steady < shallow
        assert "varies by 100 %" in " ".join(found[1]["explanation"].split())

    def test_pageable_buffers_make_copies_slower(self) -> None:
        words = [*self.JOB[:-2], "--json"]
        pinned, pageable = (json.loads(printed(*words, *more)) for more in ((), ("--pageable",)))
        asked = perfmodel.predict(perfmodel.zoo.resnet50(), system="survey_fig5", batch_size=32, pinned=False)
        assert pageable["totals"]["transfer_s"] == asked.transfer_s > 1.5 * pinned["totals"]["transfer_s"]
        largest = json.loads(printed(*("max" if word == "32" else word for word in words), "--pageable"))
        assert largest["batch_size"] == 96  # pageable buffers take no memory of the device

    def test_as_many_samples_as_each_device_holds(self) -> None:
        words = [*self.JOB, "--workers", "4", "--sync", "none", "--prefetch", "2", "--decode-cores", "2", "--json"]
        found = json.loads(printed(*("max" if word == "32" else word for word in words)))
        assert found["batch_size"] == perfmodel.max_batch_size(perfmodel.zoo.resnet50(), device="gtx_1080") == 96
        assert found["memory"]["fits"]

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (("--batch-size", "max", "--workers", "9", "--sync", "none"), "from 1 to 4"),
            (("--workers", "4", "--sync", "ring_allreduce"), "Did you mean 'ring_all_reduce'"),
            (("--workers", "9", "--sync", "none"), "from 1 to 4"),
            (("--input-from", "ssd7"), "ssd0"),
            (("--prefetch", "-1"), "prefetch"),
            (("--input-variation", "much"), "input_variation must be a number from 0 to 2"),
        ],
    )
    def test_what_cannot_be_is_one_line(
        self, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], told: str
    ) -> None:
        assert run([*self.JOB, *options]) == 2
        assert told in " ".join(capsys.readouterr().err.split())
