"""What a user names by a word or a path: told apart by name and content, with one clear error each."""

import json

import pytest
from onnx import TensorProto, helper, save
from typer.testing import CliRunner

import perfmodel as pm
from perfmodel.cli.app import app, run
from perfmodel.cli.specs import load_graph
from perfmodel.errors import ArgumentError, SpecError, UnknownNameError
from perfmodel.importers.loading import load_network

CONFIG = {"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 64, "n_positions": 32, "vocab_size": 100}


@pytest.fixture
def onnx_file(tmp_path):
    weight = helper.make_tensor("w", TensorProto.FLOAT, [6, 5], [0.0] * 30)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="fc")],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "rows", 6])],
        [helper.make_empty_tensor_value_info("y")],
        [weight],
    )
    path = tmp_path / "net.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


def test_names_of_the_zoo():
    assert load_network("fcn8", options={"hidden_layers": 5}).name == "fcn8"
    with pytest.raises(UnknownNameError, match="Did you mean 'resnet50'"):
        load_network("resnet5O")


def test_a_name_of_the_zoo_goes_before_a_folder(tmp_path, monkeypatch):
    (tmp_path / "fcn8").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_network("fcn8").name == "fcn8"


def test_files_of_graphs(tmp_path):
    path = tmp_path / "net.json"
    pm.zoo.fcn5().save(path)
    assert load_network(path).fingerprint == pm.zoo.fcn5().fingerprint
    with pytest.raises(ArgumentError, match=r"options must .*graph file"):
        load_network(str(path), options={"classes": 3})


def test_configurations_are_told_by_their_content(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    for each in (path, str(path), tmp_path):
        assert load_network(each, options={"sequence_length": 16}).input_shapes == {"tokens": (16,)}
    with pytest.raises(UnknownNameError, match="Did you mean 'sequence_length'"):
        load_network(path, options={"sequence_lenght": 16})
    path.write_text(json.dumps(CONFIG | {"model_type": "gtp2"}))
    with pytest.raises(UnknownNameError, match="Did you mean 'gpt2'"):
        load_network(path)


def test_onnx_files_and_their_free_sizes(onnx_file):
    assert load_network(onnx_file, options={"rows": 9, "name": "mine"}).shape("fc") == (9, 5)
    with pytest.raises(SpecError, match=r"free size 'rows': give it by sizes=\{'rows': \.\.\.\}"):
        load_network(str(onnx_file))
    with pytest.raises(SpecError, match=r"free size 'rows': give it by --option rows=\.\.\."):
        load_graph(str(onnx_file), options=[])
    with pytest.raises(UnknownNameError, match="Did you mean 'rows'"):
        load_network(onnx_file, options={"row": 9})


def test_what_is_none_of_them(tmp_path):
    for name, content in [("net.json", b"{}"), ("net.json", b"\x00\xff"), ("net.onnx", b"0123456789")]:
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(SpecError, match=str(path)):
            load_network(path)
    with pytest.raises(SpecError, match="cannot be read"):
        load_network(tmp_path / "missing.json")
    with pytest.raises(SpecError, match="cannot be read"):
        load_network("missing.onnx")


class TestCommandLine:
    def predicted(self, *words):
        words = ("predict", *words, "--batch-size", "16", "--device", "v100_sxm2", "--json")
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def test_predicts_onnx_files_and_configurations(self, tmp_path, onnx_file):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(CONFIG))
        for words in ((str(onnx_file), "--option", "rows=9"), (str(path),)):
            assert self.predicted(*words)["step_s"] > 0

    def test_longer_sequences_take_longer(self, onnx_file):
        few, many = (self.predicted(str(onnx_file), "--option", f"rows={rows}")["step_s"] for rows in (9, 90_000))
        assert few < many

    def test_bad_files_are_one_line(self, tmp_path, capsys):
        path = tmp_path / "net.onnx"
        path.write_bytes(b"0123456789")
        assert run(["predict", str(path), "--batch-size", "1", "--device", "v100_sxm2"]) == 2
        told = capsys.readouterr().err
        assert told.startswith("perfmodel: error: ")
        assert told.count("\n") == 1
        assert str(path) in told
