"""What active() tells: the algorithms that are chosen at a point, and every kernel of the step once."""

import re
from functools import cache

import pytest

import perfmodel as pm

PLACES = re.compile(r"^(?P<what>.+) of (?P<layer>\S+) (?P<phase>forward|backward|update)(?: .*)? \((?P<name>\w+)\)$")


@cache
def in_batch_size(name, device, framework):
    how = {"graph": pm.zoo.build(name), "device": device, "framework": framework}
    return pm.formula(**how, batch_size=32, free="batch_size"), how


@pytest.mark.parametrize(
    ("name", "device", "framework"),
    [("resnet18", "v100_pcie", "pytorch_2"), ("alexnet", "tesla_p100_pcie", "torch_423cfba")],
)
@pytest.mark.parametrize("batch_size", [1, 100])
def test_only_algorithms_that_are_chosen_are_told(name, device, framework, batch_size):
    f, how = in_batch_size(name, device, framework)
    chosen = {(row.layer, row.phase, row.kernel) for row in pm.predict(**how, batch_size=batch_size).layers}
    told = [PLACES.match(row.where) for row in f.active({"batch_size": batch_size})]
    places = {(found["layer"], found["phase"], found["name"]) for found in told if found}
    assert len(places) > 20
    assert places <= chosen


def test_each_choice_of_an_algorithm_is_told_once_by_its_name():
    how = {"graph": pm.zoo.alexnet(), "device": "tesla_p100_pcie", "framework": "torch_423cfba", "batch_size": 64}
    f = pm.formula(**how, free="batch_size")
    choices = [row for row in f.active() if row.where.startswith("algorithm of")]
    several = [each for each in f.opened.prepared.lowered.table.choices.T if len(set(each)) > 1]
    assert len(choices) == len(several) > 5
    for row in choices:
        layer, phase = row.where.split()[2:4]
        assert row.wins in {each.kernel for each in f.prediction.layers if (each.layer, each.phase) == (layer, phase)}
        assert row.value <= min(row.others)
    timed = {(row.layer, row.phase): row.seconds for row in f.prediction.layers if row.role == "output"}
    told = {tuple(row.where.split()[2:4]): row.value for row in choices if " forward" in row.where}
    assert told == {place: pytest.approx(timed[place], rel=1e-9) for place in told}


@pytest.mark.parametrize("bandwidth", [1e9, 5e11, 1e14])
def test_every_kernel_of_the_step_is_counted_once(bandwidth):
    # three times the same layer, each of which has kernels of its own
    graph = pm.LayerGraph("chain", input_shape=(64, 8, 8))
    node = graph.input
    for index in range(3):
        node = graph.add(
            f"conv{index}", pm.layers.Convolution2d(out_channels=64, kernel_size=3, padding=1), inputs=node
        )
    f = pm.formula(graph=graph, device="gtx_1080", framework="torch_423cfba", batch_size=16,
                   free="memory_bandwidth_bytes_per_s")  # fmt: skip
    table = f.opened.prepared.lowered.table
    spec = pm.load_device("gtx_1080")
    memory = spec.memory.model_copy(update={"bandwidth_gb_per_s": bandwidth / 1e9})
    p = pm.predict(graph, device=spec.model_copy(update={"memory": memory}), framework="torch_423cfba", batch_size=16)
    ends = [*table.alternative_starts[1:], len(table.row_order)]
    kernels = sum(
        count * (ends[chosen] - table.alternative_starts[chosen])
        for chosen, count in zip(p.basis.timed.groups.chosen, table.multiplicity, strict=True)
    )
    active = f.active({"memory_bandwidth_bytes_per_s": bandwidth})
    assert sum(row.kernel_count for row in active) == kernels
    bound = {"arithmetic": 0, "traffic": 0}
    for row in active:
        if row.kernel_count:
            bound[row.wins] += row.kernel_count
    for words, count in bound.items():
        assert not count or f" kernels bound by {words}" in str(active)
    # nine products, three sums of biases and three passes of the optimizer, of which memory feeds the last six
    # the last bandwidth would draw more than the board: the clock falls until the optimizer too waits for arithmetic
    expected = {1e9: (9, 9), 5e11: (9, 9), 1e14: (18, 0)}[bandwidth]
    assert (bound["arithmetic"], bound["traffic"]) == expected


@pytest.mark.parametrize("quantity", ["step_s", "compute_s", "samples_per_s", "sync_s", "device_s", "exposed_sync_s"])
def test_the_quantity_itself_is_printed_with_its_value(quantity):
    f = pm.formula(quantity, graph=pm.zoo.lenet5(), system="survey_fig5", workers=2, batch_size=8,
                   free="peak_flop_per_s")  # fmt: skip
    value = getattr(f.prediction, quantity) if quantity != "device_s" else f()
    unit = "samples/s" if quantity == "samples_per_s" else "s"
    lines = str(f).splitlines()
    assert any(line.startswith(f"  {quantity}: ") and f" {value:.6g} {unit} at" in line for line in lines)
    assert sum(line.startswith(f"  {quantity}: ") for line in lines) == 1
