"""Tables of networks that torch packages define: what ran, scores beside a naive rule, imports that are kept."""

import json
import sys
from types import SimpleNamespace

import pytest

import perfmodel as pm
from board_page import page_blocks
from board_records import Collected
from perfmodel.cli.app import run
from perfmodel.errors import MissingPackageError, TableError, TraceError, UnknownNameError
from perfmodel.framework.profile import load_framework
from perfmodel.measurements.kernel_tables import read_data_folder
from perfmodel.measurements.scaling_tables import network_table_names, read_network_table
from perfmodel.validation.reports import torch_networks
from perfmodel.validation.reports.torch_networks import ONE_EFFICIENCY, network_report
from perfmodel.validation.scores.table_report import EVERY_ROW, PERFMODEL
from score_tables import score_folder

TIMM_HEAD = "device,model,image_size,phase,layout,torch,batch_size,step_s,parameters_millions\n"
TIMM_CELLS = (("infer", "nhwc"), ("train", "nhwc"), ("train", "nchw"))
TORCHVISION_HEAD = "device,network,phase,dtype,batch_size,median_s,runs,slowest_over_fastest\n"


def timm_time(network, phase, layout):
    """Seconds of a row's prediction: images on the device, types of automatic mixed precision."""
    profile = load_framework("pytorch_2")
    resident = profile.model_copy(update={"feed": profile.feed.model_copy(update={"mode": "resident"})})
    kind = {"phase": "forward"} if phase == "infer" else {"phase": "step", "optimizer": "nesterov"}
    order = {"nhwc": "channels_last", "nchw": "channels_first"}[layout]
    asked = {"batch_size": 32, "device": "rtx_3090", "dtype": "fp16", "image_layout": order}
    return pm.predict(pm.zoo.build(network), framework=resident, **asked, **kind)


def torchvision_time(device, network, phase, dtype):
    asked = {"batch_size": 12, "device": device, "phase": phase, "dtype": dtype, "pinned": False, "prefetch": 0}
    return pm.predict(pm.zoo.build(network), framework="pytorch_1_0", **asked)


@pytest.fixture
def imports(monkeypatch):
    """Networks of the zoo under the names of a package; what was asked for."""
    asked = []

    def graph_of(zoo, network, **how):
        asked.append((zoo, network, how))
        if network == "unknown":
            message = "no such network"
            raise RuntimeError(message)
        return pm.zoo.build(network)

    monkeypatch.setattr(torch_networks, "graph_of", graph_of)
    monkeypatch.setattr(torch_networks, "versions", lambda zoo: f"{zoo} 1.2.3, torch 4.5")
    return asked


@pytest.fixture
def timm_table(tmp_path):
    """A table whose rows take what is predicted, but for one cell that takes twice as long, and one unknown network."""
    lines = []
    for phase, layout in TIMM_CELLS:
        for network in ("resnet18", "mobilenet_v2"):
            seconds = timm_time(network, phase, layout).step_s * (2 if layout == "nchw" else 1)
            lines.append(f"rtx_3090,{network},224,{phase},{layout},pt,32,{seconds!r},1\n")
    lines.append("rtx_3090,unknown,224,infer,nhwc,pt,32,0.5,1\n")
    return written(tmp_path, "timm_rtx3090_amp", TIMM_HEAD, lines)


def written(folder, name, head, lines):
    (folder / "nets").mkdir()
    path = folder / "nets" / f"{name}.csv"
    path.write_text(head + "".join(lines))
    return path


def scores(report, model=PERFMODEL):
    return {part.part: part for part in report.parts if part.score.model == model}


def test_rows_of_timm_are_predicted_as_they_ran(timm_table, imports):
    report = network_report(timm_table)
    found = scores(report)
    assert list(found) == [EVERY_ROW, "inference, channels_last", "training", *list(found)[3:]]
    assert {"training, channels_first", "training, channels_last"} == set(list(found)[3:])
    assert found["training, channels_last"].score.mape == pytest.approx(0, abs=1e-9)
    assert found["training, channels_first"].score.mape == pytest.approx(50)
    assert found["training"].score.mape == pytest.approx(25)
    assert all(part.protocol == "as_shipped" for part in report.parts)
    fused = {(network, how["training"]): how["fused_attention"] for _, network, how in imports}
    assert fused == {
        ("resnet18", True): False, ("resnet18", False): True, ("mobilenet_v2", True): False,
        ("mobilenet_v2", False): True, ("unknown", False): True,
    }  # fmt: skip
    assert len(imports) == len(fused)  # once for both layouts


def test_a_row_that_cannot_be_imported_counts_as_wrong_by_its_whole_time(timm_table, imports):
    report = network_report(timm_table)
    inference = scores(report)["inference, channels_last"]
    assert (inference.score.cells, inference.score.mape) == (3, pytest.approx(100 / 3))
    assert inference.intervals.coverage_percent == pytest.approx(200 / 3)
    assert scores(report, ONE_EFFICIENCY)["inference, channels_last"].score.p90_ape > 50
    row = report.rows[-1]
    assert (row.error_percent, row.not_predicted) == (100, "RuntimeError: no such network")
    assert "unknown (inference, channels_last): RuntimeError: no such network" in str(report)
    assert "networks as timm 1.2.3, torch 4.5 builds them; 1 of 7 rows without a prediction" in str(report)


def test_the_naive_rule_is_told_one_efficiency_for_each_cell(timm_table, imports):
    naive = scores(network_report(timm_table), ONE_EFFICIENCY)
    assert [naive[part].score.fitted for part in (EVERY_ROW, "training", "inference, channels_last")] == [3, 2, 1]
    # twice as slow a cell is as well explained, and one of two rows is always met
    first, last = (naive[f"training, {layout}"].score for layout in ("channels_first", "channels_last"))
    assert min(first.percent_within_10, last.percent_within_10) >= 50


def test_rows_of_torchvision_copy_pageable_images_in_the_step(tmp_path, imports):
    keys = [
        (device, "resnet18", phase, dtype)
        for device in ("gtx_1080_ti", "rtx_2080_ti")
        for phase in ("forward", "forward_backward")
        for dtype in ("fp16", "fp32")
    ]
    predicted = [torchvision_time(*key) for key in keys]
    assert all(one.exposed_transfer_s > 0 for one in predicted)
    lines = [f"{','.join(key)},12,{float(one.step_s)!r},1,1\n" for key, one in zip(keys, predicted, strict=True)]
    report = network_report(written(tmp_path, "torchvision_batch12", TORCHVISION_HEAD, lines))
    assert report.mape == pytest.approx(0, abs=1e-9)
    both = [part for part in report.parts if part.part == "forward" and part.score.model == PERFMODEL]
    assert [(part.score.subset, part.score.cells) for part in both] == [("gtx_1080_ti", 2), ("rtx_2080_ti", 2)]
    assert {how["image_size"] for _, _, how in imports} == {224}
    assert all(how["fused_attention"] for _, _, how in imports)


def test_command_scoreboard_and_python_serve_them(timm_table, imports, capsys):
    folder = timm_table.parents[1]
    report = pm.validate("timm_rtx3090_amp", data=folder)
    assert run(["validate", "timm", "--data", str(folder), "--json", "--no-progress"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(report.to_dict()))
    assert run(["validate", str(timm_table), "--max-mape", "20", "--progress"]) == 1
    assert "in 80 % interval [%]" in capsys.readouterr().out
    collected = Collected()
    score_folder(read_data_folder(folder), collected)
    board = collected.board()
    assert [(table.name, table.kind, table.rows) for table in board.tables] == [("timm_rtx3090_amp", "networks", 7)]
    assert {score.protocol for score in board.scores} == {"as_shipped"}
    assert [score.interval_score for score in board.scores].count(None) == len(board.scores) / 2
    assert "in 80 % interval" in repr(page_blocks(board, pictures=[]))


def test_faults_are_named_by_row(tmp_path):
    line = "rtx_3090,resnet18,{size},{phase},nhwc,pt,32,{seconds},1\n"
    lines = [line.format(size="big", phase="infer", seconds=1), line.format(size=8, phase="training", seconds=0)]
    path = written(tmp_path, "timm_rtx3090_amp", TIMM_HEAD, lines)
    with pytest.raises(TableError, match=r"3 faults: row 2, column image_size.*row 3, column step_s") as raised:
        read_network_table(path)
    assert "row 3, column phase: must be one of infer, train (got 'training')" in str(raised.value)
    path.write_text(TIMM_HEAD)
    with pytest.raises(TableError, match="no rows"):
        read_network_table(path)
    path.write_text(TIMM_HEAD.replace("layout", "order"))
    with pytest.raises(TableError, match="column layout is missing"):
        read_network_table(path)
    with pytest.raises(UnknownNameError, match="torchvision_batch12"):
        read_network_table(tmp_path / "torchvision_batch16.csv")


@pytest.mark.parametrize("name", network_table_names())
def test_a_missing_package_is_named_with_the_extra(name, timm_table, monkeypatch):
    zoo = name.partition("_")[0]
    monkeypatch.setitem(sys.modules, zoo, None)
    if zoo == "torchvision":
        line = "gtx_1080_ti,resnet18,forward,fp16,12,1,1,1\n"
        timm_table.with_stem(name).write_text(TORCHVISION_HEAD + line)
    with pytest.raises(MissingPackageError, match=rf"{zoo}: pip install 'perfmodel\[zoo-torch\]'"):
        pm.validate(name, data=timm_table.parents[1])


def test_the_scoreboard_goes_on_without_the_package(timm_table, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    said = []
    collected = Collected(tell=said.append)
    score_folder(read_data_folder(timm_table.parents[1]), collected)
    assert collected.board().tables == ()
    assert said == [
        "timm_rtx3090_amp stays as it was: a table of networks of timm needs timm: pip install 'perfmodel[zoo-torch]'"
    ]


@pytest.fixture
def timm(monkeypatch):
    """A package with one network of attention, as timm has them."""
    torch = pytest.importorskip("torch")
    state = {"fused": True, "built": 0}

    def set_fused_attn(enable=True, experimental=False):
        state["fused"] = enable

    class Attention(torch.nn.Module):
        def __init__(self, size):
            super().__init__()
            self.is_fused, self.patches = state["fused"], torch.nn.Conv2d(3, 8, size // 2, size // 2)
            self.default_cfg = {"input_size": (3, 224, 224)}

        def forward(self, images):
            positions = self.patches(images).flatten(2).transpose(1, 2)
            if self.is_fused:
                return torch.nn.functional.scaled_dot_product_attention(positions, positions, positions)
            return (positions @ positions.transpose(1, 2)).softmax(-1) @ positions

    def create_model(name, img_size=224):
        if name != "attention":
            message = f"Unknown model ({name})"
            raise RuntimeError(message)
        state["built"] += 1
        return Attention(img_size)

    layers = SimpleNamespace(
        set_fused_attn=set_fused_attn, use_fused_attn=lambda experimental=False: state["fused"] and not experimental
    )
    package = SimpleNamespace(create_model=create_model, __version__="1.2.3", layers=layers)
    monkeypatch.setitem(sys.modules, "timm", package)
    monkeypatch.setitem(sys.modules, "timm.layers", layers)
    return state


def attends(graph):
    return any(getattr(node.layer, "scores", None) == "recomputed" for node in graph.layers)


def test_networks_are_built_for_their_images_with_the_attention_they_had(timm):
    how = {"image_size": 32, "training": True}
    written_out = torch_networks.graph_of("timm", "attention", fused_attention=False, **how)
    fused = torch_networks.graph_of("timm", "attention", fused_attention=True, **how)
    assert not attends(written_out)
    assert attends(fused)
    assert timm["fused"] is True  # as it was
    assert fused.parameter_count == 3 * 8 * 16 * 16 + 8
    with pytest.raises(RuntimeError, match="Unknown model"):
        torch_networks.graph_of("timm", "attentive", fused_attention=False, **how)
    assert timm["fused"] is True


def test_imports_are_kept_by_what_they_follow_from(timm, tmp_path, monkeypatch):
    monkeypatch.setenv("PERFMODEL_CACHE", str(tmp_path / "kept"))
    how = {"image_size": 224, "training": False, "fused_attention": True}
    first = torch_networks.graph_of("timm", "attention", **how)
    again = torch_networks.graph_of("timm", "attention", **how)
    assert timm["built"] == 1
    asked = {"batch_size": 4, "device": "rtx_3090", "framework": "pytorch_2", "phase": "forward"}
    assert pm.predict(again, **asked).step_s == pm.predict(first, **asked).step_s
    torch_networks.graph_of("timm", "attention", **{**how, "training": True})
    assert timm["built"] == 2
    sys.modules["timm"].__version__ = "1.2.4"
    torch_networks.graph_of("timm", "attention", **how)
    assert timm["built"] == 3
    for path in (tmp_path / "kept").iterdir():
        path.write_text("{")  # broken: imported again
    torch_networks.graph_of("timm", "attention", **how)
    assert timm["built"] == 4


def test_torchvision_builds_without_weights_and_auxiliary_outputs(monkeypatch):
    torch = pytest.importorskip("torch")
    built = []

    def get_model(name, **options):
        built.append((name, options))
        return torch.nn.Conv2d(3, 4, 3)

    package = SimpleNamespace(models=SimpleNamespace(get_model=get_model), __version__="0.1")
    monkeypatch.setitem(sys.modules, "torchvision", package)
    how = {"image_size": 224, "training": False, "fused_attention": True}
    for name in ("resnet18", "googlenet"):
        torch_networks.graph_of("torchvision", name, **how)
    assert [options for _, options in built] == [{"weights": None}, {"weights": None, "aux_logits": False}]
    assert built[1][0] == "googlenet"


def test_a_forward_that_fails_is_an_error_of_the_import(monkeypatch):
    torch = pytest.importorskip("torch")
    package = SimpleNamespace(
        models=SimpleNamespace(get_model=lambda name, **_: torch.nn.Conv2d(4, 4, 3)), __version__="0.1"
    )
    monkeypatch.setitem(sys.modules, "torchvision", package)
    with pytest.raises(TraceError):
        torch_networks.graph_of("torchvision", "wrong", image_size=224, training=False, fused_attention=True)
