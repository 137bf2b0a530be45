"""What the scoreboard's command refuses before it scores anything."""

import json

import pytest
import typer
from typer.testing import CliRunner

import scoreboard
from board_records import Scoreboard, ScoredTable, save_scoreboard
from perfmodel.errors import ArgumentError, PerfmodelError, TableError, UnknownNameError
from scoreboard import write_scoreboard

GEMM_CSV = (
    "device,version,precision,phase,M,N,K,transA,transB,seconds\n"
    "Tesla M40,CUDA 7.5; cuDNN 5,Float,gemm,1760,16,1024,N,N,0.000192\n"
)
SYSTEMS_CSV = (
    "framework,framework_version,network,device,n_devices,batch_size,phase,seconds,data\n"
    "tensorflow,1.1,resnet50,Tesla K80 (one GK210),1,32,step,0.65,synthetic\n"
)


@pytest.fixture(autouse=True)
def _nothing_is_scored(monkeypatch):
    for name in ("score_shipped", "score_shipped_own"):
        monkeypatch.setattr(scoreboard.score_tables, name, lambda *_, **__: None)


@pytest.mark.parametrize(
    ("options", "argument"),
    [({"new_tables": True}, "--new-tables"), ({"to": "no/such/folder"}, "--to")],
)
def test_wrong_options_are_refused(tmp_path, options, argument):
    with pytest.raises(ArgumentError) as refused:
        write_scoreboard(tmp_path / options.pop("to", ""), **options)
    assert refused.value.argument == argument


def test_unknown_sections_and_folders_are_refused(tmp_path):
    with pytest.raises(UnknownNameError):
        write_scoreboard(tmp_path, sections="kernel")
    with pytest.raises(TableError):
        write_scoreboard(tmp_path, data=tmp_path / "missing")


@pytest.mark.parametrize(
    ("folder", "text", "told"),
    [
        ("kernels", GEMM_CSV.replace("transB", "trans_B"), ["lacks column transB (nearest: trans_B)"]),
        ("kernels", GEMM_CSV.replace("1760,16", "1760,sixteen"), ["row 2, column N"]),
        ("kernels", GEMM_CSV.replace("M40", "M4O"), ["row 2, column device", "tesla_m4o", "Did you mean 'tesla_m40'"]),
        ("kernels", GEMM_CSV.replace("N,N", "T,T"), ["row 2", "got ('T', 'T')"]),
        ("kernels", GEMM_CSV.replace("Tesla M40", "Xeon E5 2630 v3"), ["row 2", "xeon_e5_2630_v3"]),
        ("systems", SYSTEMS_CSV.replace("seconds", "second"), ["row 1", "lacks column seconds (nearest: second)"]),
        ("systems", SYSTEMS_CSV.replace("resnet50", "resnet51"), ["row 2, column network", "Did you mean 'resnet"]),
        ("systems", SYSTEMS_CSV.replace("K80", "K81"), ["row 2, column device", "Did you mean 'tesla_k80"]),
        (
            "systems",
            SYSTEMS_CSV.replace("tensorflow", "tensorflaw"),
            ["row 2, column framework", "Did you mean 'tensor"],
        ),
        ("systems", SYSTEMS_CSV.replace(",synthetic", ""), ["row 2: 8 values where the header has 9"]),
        ("systems", SYSTEMS_CSV.replace("0.65", "-1"), ["row 2, column seconds: must be"]),
        ("systems", SYSTEMS_CSV.replace(",step,", ",stepp,"), ["row 2, column phase", "Did you mean 'step'"]),
    ],
)
def test_a_fault_in_a_folder_is_told_before_any_table_is_scored(tmp_path, folder, text, told):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "mine.csv").write_text(text)
    with pytest.raises(PerfmodelError) as refused:
        write_scoreboard(tmp_path, data=tmp_path)
    assert all(each in str(refused.value) for each in ("mine.csv", *told)), refused.value


def test_the_command_writes_records_and_pages(tmp_path):
    app = typer.Typer()
    app.command()(scoreboard.main)
    done = CliRunner().invoke(app, ["--quick", "--to", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "scoreboard.json").read_text())["scores"] == []
    assert (tmp_path / "scoreboard.md").is_file()


def test_a_table_that_is_not_the_one_scored_before_is_refused(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "mine.csv").write_text(GEMM_CSV)
    table = ScoredTable(name="mine", kind="kernels", is_shipped=False, sha256="f" * 64, rows=1)
    save_scoreboard(Scoreboard(version="1", code="c", tables=(table,)), tmp_path / "scoreboard.json")
    with pytest.raises(TableError) as refused:
        write_scoreboard(tmp_path, data=tmp_path)
    assert "mine: SHA-256" in str(refused.value)
    assert "where ffffffffffffffff was scored" in str(refused.value)
    assert "--new-tables" in str(refused.value)
