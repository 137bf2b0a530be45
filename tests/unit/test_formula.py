"""The closed form of a step: equal to predict wherever numbers are put in, solvable, and honest about its limits."""

import re
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.planning.formulas.symbols import NO_CLOSED_FORM
from perfmodel.prediction.device.step_time import PARTS

GPU_FREE = (
    "batch_size", "memory_bandwidth_bytes_per_s", "peak_flop_per_s", "launch_latency_s",
)  # fmt: skip
CPU_FREE = ("batch_size", "memory_bandwidth_bytes_per_s")

CASES = {
    "mnist classifier": ("mnist_classifier", "gtx_1080", "tensorflow_0_9", GPU_FREE),
    "alexnet": ("alexnet", "tesla_p100_pcie", "torch_423cfba", GPU_FREE),
    "four convolutions": ("convolutional", "tesla_p100_pcie", "torch_423cfba", GPU_FREE),
    "lstm": ("lstm32", "titan_x_pascal", "tensorflow_0_9", GPU_FREE),
    "alexnet on a cpu": ("alexnet", "i7_3820", "tensorflow_0_9", CPU_FREE),
    "mnist classifier on a cpu": ("mnist_classifier", "xeon_e5_2630_v3", "torch_423cfba", CPU_FREE),
    "lenet in 16 bit": ("lenet5", "v100_pcie", "pytorch_2", GPU_FREE),
}


@cache
def network(name):
    return getattr(pm.zoo, name)()


@cache
def built(case):
    name, device, framework, free = CASES[case]
    dtype = "fp16" if "16 bit" in case else "fp32"
    return pm.formula(graph=network(name), device=device, framework=framework, batch_size=16, free=free, dtype=dtype), {
        "framework": framework,
        "dtype": dtype,
    }


def with_numbers(device, dtype, *, memory_bandwidth_bytes_per_s, peak_flop_per_s=None, launch_latency_s=None):
    """The device of other numbers: a spec, not factors on one."""
    memory = device.memory.model_copy(update={"bandwidth_gb_per_s": memory_bandwidth_bytes_per_s / 1e9})
    changed = {"memory": memory}
    if peak_flop_per_s is not None:
        changed["peak_tflop_per_s"] = device.peak_tflop_per_s.model_copy(update={dtype: peak_flop_per_s / 1e12})
        changed["launch"] = device.launch.model_copy(update={"latency_us": launch_latency_s * 1e6})
    return device.model_copy(update=changed)


@pytest.mark.parametrize("case", [case for case in CASES if case != "four convolutions"])
@settings(max_examples=8, deadline=None)
@given(batch_size=st.integers(1, 700), ratios=st.tuples(*[st.floats(0.2, 5.0)] * 3))
def test_a_formula_is_what_predict_says(case, batch_size, ratios):
    formula, how = built(case)
    name, device, _, free = CASES[case]
    point = {each: formula.stated[each] * ratio for each, ratio in zip(free[1:], ratios, strict=False)}
    spec = with_numbers(pm.load_device(device), how["dtype"], **point)
    prediction = pm.predict(network(name), device=spec, batch_size=batch_size, **how)
    assert formula(batch_size=batch_size, **point) == pytest.approx(prediction.step_s, rel=1e-9)
    here = formula.point({"batch_size": batch_size, **point})
    for part in PARTS:
        found = here.value(formula.named_parts[part])
        # a kernel whose two bounds are equal may count as either
        assert found == pytest.approx(prediction.breakdown[part], rel=1e-9, abs=1e-12 * prediction.step_s)


def test_arrays_are_computed_at_once():
    formula, how = built("alexnet")
    sizes = np.array([[1.0], [64.0]])
    bandwidths = formula.stated["memory_bandwidth_bytes_per_s"] * np.array([0.5, 1.0, 2.0])
    found = formula.lambdify()(sizes, bandwidths)
    assert found.shape == (2, 3)
    assert found[1, 1] == pytest.approx(
        pm.predict(network("alexnet"), device="tesla_p100_pcie", batch_size=64, **how).step_s, rel=1e-9
    )
    assert (np.diff(found, axis=1) < 0).all()


def test_the_expression_has_only_free_symbols_and_keeps_its_branches():
    f = pm.formula(graph=network("lstm32"), device="gtx_1080", batch_size=16, free="memory_bandwidth_bytes_per_s")
    symbol = f.symbols["memory_bandwidth_bytes_per_s"]
    assert f.expression.free_symbols == {symbol}
    assert f.expression.has(sympy.Max)
    assert set(f.parts) == set(PARTS)
    value = sympy.lambdify(symbol, f.parts["memory_bound_s"])(f.stated[symbol.name])
    assert value == pytest.approx(f.prediction.memory_bound_s, rel=1e-12)


def test_identical_layers_are_written_once():
    def chain(layers):
        graph = pm.LayerGraph("chain", input_shape=(64,))
        node = graph.input
        for index in range(layers):
            node = graph.add(f"dense{index}", pm.layers.Dense(units=64), inputs=node)
        return pm.formula(graph=graph, device="gtx_1080", batch_size=16, free="peak_flop_per_s")

    short, long = chain(3), chain(30)
    assert len(long.definitions.expressions) == len(short.definitions.expressions)
    assert long() > 5 * short()


@pytest.mark.parametrize("case", ["alexnet", "mnist classifier on a cpu"])
def test_elasticities_are_the_slopes_of_predict(case):
    formula, how = built(case)
    name, device, _, free = CASES[case]
    spec, here = pm.load_device(device), {each: formula.stated[each] for each in free[1:]}
    rows = formula.elasticities({"batch_size": 48})

    def step_s(symbol, factor):
        point = here | {symbol: here[symbol] * factor}
        changed = with_numbers(spec, how["dtype"], **point)
        return pm.predict(network(name), device=changed, batch_size=48, **how).step_s

    for symbol in free[1:]:
        step = 1e-5
        slope = (np.log(step_s(symbol, 1 + step)) - np.log(step_s(symbol, 1 - step))) / (2 * step)
        assert rows[symbol].total == pytest.approx(slope, rel=1e-4, abs=1e-9)
        assert sum(rows[symbol].by_part.values()) == pytest.approx(rows[symbol].total, rel=1e-9)
        assert rows[symbol].gain == pytest.approx(1 - step_s(symbol, 1.1) / step_s(symbol, 1.0), rel=1e-9)
        assert f"{abs(rows[symbol].gain):.1%}" in rows[symbol].sentence


def test_a_solution_put_back_into_predict_gives_the_target():
    formula, how = built("four convolutions")
    stated = dict(formula.stated)
    target = 0.8 * formula(batch_size=64)
    for symbol in ("memory_bandwidth_bytes_per_s", "peak_flop_per_s"):
        found = formula.solve_for(symbol, target, at={"batch_size": 64})
        point = {each: stated[each] for each in GPU_FREE[1:]} | {symbol: found.value}
        spec = with_numbers(pm.load_device("tesla_p100_pcie"), "fp32", **point)
        assert pm.predict(network("convolutional"), device=spec, batch_size=64, **how).step_s == pytest.approx(
            target, rel=1e-9
        )
        assert symbol in found.sentence
    whole = formula.solve_for("batch_size", 0.05)
    below, at = (
        pm.predict(network("convolutional"), device="tesla_p100_pcie", batch_size=size, **how).step_s
        for size in (whole.value - 1, whole.value)
    )
    assert below < 0.05 <= at
    assert (whole.before, whole.after) == (pytest.approx(below), pytest.approx(at))


def test_a_closed_solution_is_an_expression_in_the_target():
    f = pm.formula(graph=network("lstm32"), device="gtx_1080", batch_size=64, framework="caffe_cudnn5",
                   free="link_bandwidth_bytes_per_s").of("exposed_transfer_s")  # fmt: skip
    target = 2 * f(1e5)  # so slow that computing does not hide it
    found = f.solve_for("link_bandwidth_bytes_per_s", target, between=(1e3, 1e9))
    assert found.method == "closed"
    assert not found.branches
    (symbol,) = found.expression.free_symbols
    assert float(found.expression.subs(symbol, target)) == pytest.approx(found.value, rel=1e-9)
    assert f(found.value) == pytest.approx(target, rel=1e-9)


def test_a_part_that_jumps_past_the_target_says_so():
    f = pm.formula("compute_s", graph=network("mnist_classifier"), device="gtx_1080", framework="torch_423cfba",
                   batch_size=64, free="memory_bandwidth_bytes_per_s")  # fmt: skip
    found = f.solve_for("memory_bandwidth_bytes_per_s", 7.15e-6)
    assert found.method == "jump"
    assert found.before < 7.15e-6 < found.after
    assert "jumps past it" in found.sentence


def test_from_which_batch_on_a_step_is_compute_bound():
    formula, how = built("alexnet")
    found = formula.crossover("compute_s", "memory_bound_s", symbol="batch_size")
    for size, larger in ((found.value - 1, False), (found.value, True)):
        p = pm.predict(network("alexnet"), device="tesla_p100_pcie", batch_size=size, **how)
        assert (p.compute_s >= p.memory_bound_s) is larger
    assert found.method == "whole numbers"


def test_the_branch_that_counts_is_told():
    f = pm.formula(
        graph=network("mnist_classifier"), device="gtx_1080", batch_size=64, free="memory_bandwidth_bytes_per_s"
    )
    slow, fast = (f.active({"memory_bandwidth_bytes_per_s": value}) for value in (1e9, 1e13))
    kernels = [{row.where: row.wins for row in rows if row.where.startswith("kernel of fc")} for rows in (slow, fast)]
    both = kernels[0].keys() & kernels[1].keys()
    assert both
    assert {kernels[0][where] for where in both} == {"traffic"}
    assert "arithmetic" in {kernels[1][where] for where in both}
    assert "traffic" in str(slow)


@pytest.mark.parametrize(
    ("name", "free"),
    [("mnist_classifier", "peak_flop_per_s"), ("mnist_classifier", "memory_bandwidth_bytes_per_s"),
     ("alexnet", "batch_size")],
)  # fmt: skip
def test_kernels_are_told_under_the_part_that_they_belong_to(name, free):
    f = pm.formula(graph=network(name), device="gtx_1080", framework="torch_423cfba", batch_size=64, free=free)
    active = f.active()
    for part, bound in (("compute_s", "arithmetic"), ("memory_bound_s", "traffic")):
        kernels = [row for row in active.of(part) if row.where.startswith("kernel")]
        assert kernels
        assert {row.wins for row in kernels} == {bound}
        assert sum(row.value for row in kernels if "alike" not in row.where) <= f.prediction.breakdown[part] * (
            1 + 1e-9
        )
    updates = [row for row in active.of("update_s") if row.where.startswith("kernel")]
    assert bool(updates) is (free != "batch_size")


def test_more_of_what_makes_a_step_shorter_buys_samples_per_second():
    f = pm.formula("samples_per_s", graph=network("alexnet"), device="gtx_1080", batch_size=64,
                   free="memory_bandwidth_bytes_per_s")  # fmt: skip
    row = f.elasticities()["memory_bandwidth_bytes_per_s"]
    assert row.total > 0
    assert "buys" in row.sentence
    assert "costs" not in row.sentence


def test_it_is_written_in_latex_part_by_part():
    formula, _ = built("lstm")
    text = formula._repr_latex_()
    assert text.startswith("$$")
    assert text.count("{") == text.count("}")
    for part in ("compute", "memory bound", "overhead"):
        assert rf"T_{{\text{{{part}}}}}" in text
    assert r"\tau" in text
    assert len(text) < 20_000


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"free": "memory_bandwith_bytes_per_s"}, UnknownNameError, "memory_bandwidth_bytes_per_s"),
        ({"free": []}, ArgumentError, "at least one"),
        ({"free": ["batch_size", "batch_size"]}, ArgumentError, "free must be"),
        ({"free": "clock_hz"}, ArgumentError, "free must be"),
        ({"free": "batch_size", "frame": "generic"}, UnknownNameError, "framework"),
        ({"free": "batch_size", "quantity": "step"}, UnknownNameError, "step_s"),
        ({"free": "batch_size", "bucket_bytes": "merged"}, ArgumentError, "no closed form"),
        ({"free": "libraries/cublas_8_0/pascal.tile_rows"}, ArgumentError, "single number"),
        ({"free": "tile_rows"}, ArgumentError, "a full name"),
        ({"free": None}, ArgumentError, "at least one"),
        ({"free": "gpu.overlap_exponent"}, ArgumentError, "free must be"),
        (
            {"free": "libraries/onednn_3/sandy_bridge.smallest_side_per_thread", "device": "i7_3820"},
            ArgumentError,
            "free must be",
        ),
    ],
)
def test_bad_input_is_refused_with_words(arguments, error, words):
    with pytest.raises(error, match=words):
        pm.formula(**({"graph": network("mnist_classifier"), "device": "gtx_1080", "batch_size": 8} | arguments))


def test_all_that_has_no_closed_form_says_why():
    assert {limit.argument for limit in NO_CLOSED_FORM} >= {"sync", "straggler", "bucket_bytes"}
    for limit in NO_CLOSED_FORM:
        assert limit.why
        assert limit.instead
    with pytest.raises(ArgumentError, match="queueing network"):
        pm.formula(
            graph=network("mnist_classifier"), system="survey_fig5", batch_size=8, sync="downpour", free="workers"
        )
    with pytest.raises(ArgumentError, match="order statistic"):
        pm.formula(graph=network("mnist_classifier"), system="survey_fig5", workers=2, free="workers",
                   straggler={"distribution": "normal", "cv": 0.1})  # fmt: skip


@pytest.mark.parametrize("given", [{}, {"workers": 1}])
def test_workers_of_a_system_without_gpus_are_refused_as_such(given):
    how = {"graph": network("lenet5"), "system": "survey_fig6_server", "batch_size": 8, **given}
    with pytest.raises(ArgumentError, match="communication server, which has no GPUs") as caught:
        pm.formula(**how, free="workers")
    assert (caught.value.argument, caught.value.given) == ("free", "workers")
    assert pm.formula(**how, free="batch_size")() > 0  # its sockets work together


def test_bad_points_and_targets_are_refused_with_words():
    formula, _ = built("lstm")
    with pytest.raises(ArgumentError, match="above 0"):
        formula(batch_size=0)
    with pytest.raises(UnknownNameError, match="batch_size"):
        formula(batchsize=3)
    with pytest.raises(ArgumentError, match="target must be"):
        formula.solve_for("peak_flop_per_s", 1e-9)
    with pytest.raises(ArgumentError, match="exceeds"):
        formula.crossover("step_s", "compute_s", symbol="batch_size")
    with pytest.raises(ArgumentError, match="smaller first"):
        formula.solve_for("peak_flop_per_s", 1.0, between=(2.0, 1.0))


@pytest.mark.parametrize("quantity", ["step_s", "compute_s", "samples_per_s", "sync_s", "device_s"])
def test_latex_tells_every_name_and_the_quantity_asked_for(quantity):
    f = pm.formula(quantity, graph=network("mnist_classifier"), system="survey_fig5", batch_size=8,
                   free=["workers", "peak_flop_per_s"])  # fmt: skip
    lines = f._repr_latex_().split(r" \\" + "\n")
    names = re.compile(r"x_\{\d+\}")
    told = {name for line in lines for name in names.findall(line.split("&")[0])}
    untold = set(names.findall(" ".join(lines))) - told
    assert not untold or any("all other names" in line for line in lines)
    label = {"samples_per_s": "R_", "sync_s": r"T_{\text{sync}}", "device_s": r"T_{\text{device}}"}
    heads = [line.split("&=")[0] for line in lines if "&=" in line]
    assert any(label.get(quantity, rf"T_{{\text{{{quantity.removesuffix('_s')}}}}}") in head for head in heads)


def test_values_by_place_are_checked_as_those_by_name():
    formula, _ = built("lstm")
    for wrong in (0, -3, np.nan, "many", [4, -1]):
        with pytest.raises(ArgumentError, match="above 0"):
            formula(wrong)
        with pytest.raises(ArgumentError, match="above 0"):
            formula.lambdify()(wrong)
    workers = pm.formula(graph=network("lenet5"), system="survey_fig5", batch_size=8, free="workers")
    with pytest.raises(ArgumentError, match="at most 4"):
        workers(5)


@pytest.mark.parametrize("between", [5, (1, 2, 3), ("a", "b"), "ab", (1.2, 1.8), (-1, 5), (1, np.nan)])
def test_bad_ends_are_refused_with_words(between):
    formula, _ = built("lstm")
    with pytest.raises(ArgumentError, match="between"):
        formula.solve_for("batch_size", 0.1, between=between)


def test_points_are_single_numbers_by_name():
    formula, _ = built("lstm")
    with pytest.raises(ArgumentError, match="by names"):
        formula.active(5)
    for asked in (formula.active, formula.elasticities, lambda at: formula.solve_for("peak_flop_per_s", 0.1, at=at)):
        with pytest.raises(ArgumentError, match="one number"):
            asked({"batch_size": [1, 2]})


def test_what_cannot_cross_is_refused_with_words():
    formula, _ = built("lstm")
    for first, second in (("compute_s", "compute_s"), ("exposed_sync_s", "input_wait_s")):
        with pytest.raises(ArgumentError, match="equal everywhere"):
            formula.crossover(first, second, symbol="batch_size")
    with pytest.raises(ArgumentError, match="second must be"):
        formula.crossover("step_s", "samples_per_s", symbol="batch_size")


def test_neither_import_nor_predict_load_sympy():
    code = (
        "import sys, perfmodel as pm; pm.predict(pm.zoo.mnist_classifier(), device='gtx_1080', batch_size=8);"
        "assert 'sympy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


FREE_NUMBERS = ("batch_size", "memory_bandwidth_bytes_per_s", "peak_flop_per_s")


@pytest.fixture(scope="module")
def of_alexnet():
    how = {"device": "gtx_1080", "framework": "tensorflow_0_9", "batch_size": 64}
    return pm.formula(graph=pm.zoo.alexnet(), free=FREE_NUMBERS, **how)


@pytest.mark.parametrize("quantity", ["compute_s", "memory_bound_s", "overhead_s", "update_s", "step_s"])
def test_on_a_branch_nothing_is_chosen_and_nothing_differs(of_alexnet, quantity):
    f = of_alexnet.of(quantity)
    branch = f.on_branch()
    assert not branch.has(sympy.Max, sympy.Min, sympy.Piecewise)
    for name, ratio in ((FREE_NUMBERS[0], 1.0), (FREE_NUMBERS[1], 1.0001), (FREE_NUMBERS[2], 0.9999)):
        at = f.stated | {name: ratio * f.stated[name]}
        value = float(branch.xreplace({f.symbols[each]: number for each, number in at.items()}))
        assert value == pytest.approx(f(**at), rel=1e-9, abs=1e-15)


def test_what_is_read_first_is_in_symbols_and_comes_to_each_part(of_alexnet):
    f = of_alexnet
    bandwidth = f.symbols["memory_bandwidth_bytes_per_s"]
    moved = f.of("memory_bound_s").on_branch() * bandwidth
    batch = f.symbols["batch_size"]
    assert sympy.degree(sympy.expand(moved), batch) == 1  # bytes per sample, and bytes of parameters
    text = f._repr_latex_()
    (line,) = (each for each in text.split("\n") if each.startswith(r"T_{\text{memory bound}} &= \frac{1.421"))
    assert r"N}{B} + \frac{" in line
    assert r"\left\lceil{\frac{N}{64}}\right\rceil" in text
    assert "/memory_bandwidth_bytes_per_s" in str(f)
    assert "straggler" not in text  # parts that are nothing are left out
