"""What is loaded when: heavy libraries only where they are used, parts of the house only where they are needed."""

import importlib
import json
import os
import subprocess
import sys

import pytest

import perfmodel as pm
from perfmodel import layers, zoo
from perfmodel.errors import GraphError

HEAVY = ("sympy", "scipy", "networkx", "matplotlib", "pandas", "torch", "dask", "onnx", "IPython")
FOR_SEVERAL = ("perfmodel.sync", "perfmodel.simulation", "perfmodel.parallelism")
"""Parts that are needed where several devices work."""
RECORDS = {"perfmodel.parallelism", "perfmodel.parallelism.base"}
"""How many devices do what: a fact of every job."""
ONE = "pm.predict(pm.zoo.resnet50(), batch_size=16, device='gtx_1080', framework='tensorflow_0_9')"
FOUR = "pm.predict(pm.zoo.alexnet(), batch_size=16, system='survey_fig5', workers=4, dataset='imagenet_jpeg')"


def loaded_after(code: str) -> set[str]:
    """Names of all modules of an interpreter that ran some code."""
    program = f"import json, sys\n{code}\nprint(); print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ | {"COLUMNS": "80"}
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def heavy(modules: set[str]) -> set[str]:
    return modules.intersection(HEAVY)


def test_importing_loads_three_modules_and_no_library():
    modules = loaded_after("import perfmodel")
    assert not heavy(modules) | modules.intersection({"numpy", "pydantic", "typer"})
    assert len({name for name in modules if name.startswith("perfmodel")}) <= 3


@pytest.mark.parametrize("asked", ["p.step_s, p.memory, p.breakdown", "p.to_dict()", "list(p.layers)", "str(p)"])
def test_a_prediction_of_one_device_loads_nothing_heavy_and_nothing_for_several(asked):
    modules = loaded_after(f"import perfmodel as pm\np = {ONE}\n{asked}")
    assert "numpy" in modules
    assert not heavy(modules)
    assert not {name for name in modules if name.startswith(FOR_SEVERAL)} - RECORDS
    assert "perfmodel.layers.recurrent" not in modules
    assert "perfmodel.zoo.image_classifiers" not in modules


def test_a_prediction_of_four_devices_loads_nothing_heavy():
    modules = loaded_after(f"import perfmodel as pm\np = {FOUR}\np.to_dict()")
    assert not heavy(modules)
    assert "perfmodel.sync" in modules


def test_the_command_line_loads_nothing_heavy():
    words = ["predict", "resnet50", "--device", "gtx_1080", "--framework", "tensorflow_0_9", "--batch-size", "16"]
    modules = loaded_after(f"from perfmodel.cli.app import run\nassert run({[*words, '--json']}) == 0")
    assert not heavy(modules)
    assert not {name for name in modules if name.startswith((*FOR_SEVERAL, "perfmodel.importers.onnx"))} - RECORDS
    assert "perfmodel.importers.huggingface" not in modules


@pytest.mark.parametrize(
    ("code", "library"),
    [
        ("pm.zoo.alexnet().digraph", "networkx"),
        (f"{ONE}.plot()", "matplotlib"),
    ],
)
def test_a_library_loads_where_it_is_used(code, library):
    assert library in loaded_after(f"import perfmodel as pm\n{code}")


@pytest.mark.parametrize("package", [layers, zoo], ids=["layers", "zoo"])
def test_every_listed_name_is_there(package):
    names = dir(package)
    assert len(names) > 30
    for name in names:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = package.Nonsense


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "seq2seq"])
def test_a_network_stays_a_builder_when_a_file_of_its_name_is_imported(name):
    code = f"""
import perfmodel.zoo.{zoo.BUILDERS[name].__module__.rpartition(".")[2]}
import perfmodel as pm
assert pm.zoo.{name}().parameter_count == {zoo.build(name).parameter_count}
from perfmodel.zoo import {name}
assert callable({name})
"""
    assert "perfmodel.zoo" in loaded_after(code)


def test_builders_are_a_mapping_that_refuses_other_names():
    assert zoo.BUILDERS["alexnet"] is pm.zoo.alexnet
    assert tuple(sorted(zoo.BUILDERS)) == zoo.names()
    with pytest.raises(KeyError):
        _ = zoo.BUILDERS["names"]


def test_the_lists_name_every_network_of_the_files():
    for name, builder in zoo.BUILDERS.items():
        module = importlib.import_module(builder.__module__)
        assert getattr(module, name) is builder
        assert getattr(module, "__doc__", None)


def test_a_graph_tells_readers_and_names_as_its_networkx_graph_does():
    graph = pm.zoo.googlenet()
    digraph = graph.digraph
    assert list(digraph) == [*graph.input_shapes, *(node.name for node in graph.layers)]
    assert {(a, b) for a, b in digraph.edges} == {
        (name, node.name) for node in graph.layers for name in node.input_names
    }
    assert graph.outputs == tuple(name for name in digraph if not digraph.out_degree(name))
    assert graph.input in graph
    assert "nonsense" not in graph
    digraph.add_edge("nonsense", graph.input)  # a copy of the reader's own
    assert "nonsense" not in graph


def test_layers_of_a_file_may_stand_in_any_order_but_not_in_a_circle(tmp_path):
    graph = pm.zoo.googlenet()
    path = tmp_path / "net.json"
    graph.save(path)
    content = json.loads(path.read_text())
    content["layers"] = content["layers"][::-1]
    path.write_text(json.dumps(content))
    assert pm.LayerGraph.load(path).work(batch_size=2, phase="step") == graph.work(batch_size=2, phase="step")
    first, last = content["layers"][-1], content["layers"][0]
    first["inputs"] = [last["name"]]
    path.write_text(json.dumps(content))
    with pytest.raises(GraphError, match="cycle"):
        pm.LayerGraph.load(path)
