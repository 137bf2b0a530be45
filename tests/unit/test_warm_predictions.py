"""Predictions that reuse what was worked out before equal those that work everything out."""

import gc
import importlib.util
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.derived import derived, held, uncollected
from perfmodel.hardware.spec_files import shipped_folder

SPEED = Path(__file__).parents[2] / "benchmarks" / "speed.py"


@pytest.fixture(scope="module")
def speed():
    spec = importlib.util.spec_from_file_location("speed", SPEED)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def everything(p):
    return [p.breakdown, p.memory, p.remarks, [spec.name for spec in p.sources], list(p.layers)]


@pytest.mark.parametrize("network", ["alexnet", "resnet18"])
def test_a_warm_prediction_equals_the_first_of_a_new_graph(speed, network):
    warm, device = pm.zoo.build(network), pm.load_device("gtx_1080")
    for step, batch_size in enumerate((1, 64, 7), start=1):
        other = speed.perturbed(device, step)
        again = pm.predict(warm, batch_size=batch_size, device=other, framework="tensorflow_0_9")
        anew = pm.predict(pm.zoo.build(network), batch_size=batch_size, device=other, framework="tensorflow_0_9")
        assert everything(again) == everything(anew)


def test_a_device_changed_in_python_is_predicted_like_one_from_a_file(speed, tmp_path):
    graph, device = pm.zoo.alexnet(), pm.load_device("gtx_1080")
    before = pm.predict(graph, batch_size=5, device=device)
    faster = device.model_copy(update={"memory": device.memory.model_copy(update={"bandwidth_gb_per_s": 640.5})})
    text = (shipped_folder() / "devices" / "gtx_1080.toml").read_text()
    (tmp_path / "gtx_1080.toml").write_text(text.replace("bandwidth_gb_per_s = 320", "bandwidth_gb_per_s = 640.5 #"))
    from_file = pm.load_device(tmp_path / "gtx_1080.toml")
    assert from_file.memory.bandwidth_gb_per_s == 640.5
    p, of_file = (pm.predict(graph, batch_size=5, device=each) for each in (faster, from_file))
    assert p.breakdown == of_file.breakdown
    assert p.memory_bound_s < before.memory_bound_s


def test_a_framework_changed_in_python_counts_although_the_unchanged_one_was_used_before():
    graph, profile = pm.zoo.alexnet(), pm.load_framework("tensorflow_0_9")
    options = {"batch_size": 3, "device": "gtx_1080"}
    before = pm.predict(graph, framework=profile, **options)
    dispatch = profile.gpu.constants["dispatch_us"]
    gpu = profile.gpu.model_copy(update={"constants": profile.gpu.constants | {"dispatch_us": 10 * dispatch}})
    slower = profile.model_copy(update={"gpu": gpu})
    after = pm.predict(graph, framework=slower, **options)
    assert after.dispatch_s - before.dispatch_s == pytest.approx(9 * before.dispatch_s, rel=0.5)
    assert pm.predict(graph, framework=profile, **options).breakdown == before.breakdown


def test_a_library_changed_in_python_counts_although_the_unchanged_one_was_used_before():
    graph, options = pm.zoo.alexnet(), {"batch_size": 128, "device": "gtx_1080", "framework": "tensorflow_0_9"}
    before = pm.predict(graph, **options)
    library = next(spec for spec in before.sources if getattr(spec, "kind", "") == "dnn")
    slow = {name: table.model_copy(update=_halved(table)) for name, table in library.architecture.items()}
    after = pm.predict(graph, library=library.model_copy(update={"architecture": slow}), **options)
    assert after.compute_s > 1.2 * before.compute_s
    assert pm.predict(graph, **options).breakdown == before.breakdown


def _halved(table):
    return {name: value / 2 for name, value in table.constants.items() if name.startswith("conv_")}


def test_what_is_derived_is_by_object_and_goes_with_it():
    class Thing:
        def __init__(self, number):
            self.number = number

        def __eq__(self, other):
            return True

        __hash__ = None

    made = []

    @derived
    def times(thing, factor=1):
        made.append(factor)
        return factor * thing.number

    one, two = Thing(1), Thing(2)
    assert [times(one), times(two), times(one, 3), times(one), times(one, factor=5), times(two)] == [1, 2, 3, 1, 5, 2]
    assert made == [1, 1, 3, 5]
    for number in range(50):  # new objects come to lie where dead ones lay
        assert times(Thing(number)) == number
        gc.collect(0)


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_waits_only_while_a_system_is_wired(collects):
    @uncollected
    def wired(links):
        assert not gc.isenabled()
        return 1 / links

    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        assert wired(2) == 0.5
        assert gc.isenabled() is collects
        with pytest.raises(ZeroDivisionError):
            wired(0)
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()


def test_wiring_many_machines_does_not_collect_over_and_over():
    collected = []

    def count(phase, info):
        if phase == "start" and info["generation"] == 2:
            collected.append(info)

    machine = pm.load_system("gb200_nvl72")
    gc.callbacks.append(count)
    try:
        links = len(pm.load_system("gb200_nvl72", machines=40).topology.channels)
    finally:
        gc.callbacks.remove(count)
    assert links > 39 * len(machine.topology.channels)
    assert len(collected) <= 1


def test_the_benchmark_prints_every_figure(speed, monkeypatch):
    monkeypatch.setattr(speed, "PALEO_PREDICTIONS_PER_S", {"alexnet": 1346.0})
    monkeypatch.setattr(speed, "chain_time_ms", lambda layers: (float(layers), 0.5))
    figures = speed.measured(calls=25, processes=1)
    assert figures["heavy_modules"] == {"import": [], "predict": ["pydantic"], "command line": ["pydantic"]}
    rates = figures["warm_predictions"]["alexnet"]
    assert rates["per_s_undisturbed"] >= rates["per_s"] > rates["per_s_with_memory_and_layers"] > 0
    assert rates["first_ms"] > 1e3 / rates["per_s"]
    text = "\n".join(speed.lines(figures))
    for said in ("import perfmodel", "as a process", "alexnet", "x Paleo", "chain of 2000 layers", "peak memory"):
        assert said in text


@pytest.mark.usefixtures("quick_collections")
def test_what_is_held_can_be_listed_and_goes_with_its_object():
    class Pair(list): ...

    once = derived(lambda pair: sum(pair))
    name = f"{__name__}.test_what_is_held_can_be_listed_and_goes_with_its_object.<locals>.<lambda>"
    pair = Pair((1, 2))
    assert once(pair) == 3
    assert held()[name] == 1
    del pair
    gc.collect()
    assert held()[name] == 0
