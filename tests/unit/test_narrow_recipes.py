"""Recipes of eight bits and fewer: linear layers alone are narrow, and pay for casts."""

import pytest

import perfmodel as pm
from perfmodel import layers as nn
from perfmodel.framework.narrow import NARROW_PRODUCT, RECIPES, SPLIT_ACCUMULATOR, narrow_product, takes_narrow
from perfmodel.framework.rules import NarrowTable
from perfmodel.hardware import spec_files
from perfmodel.kernels import Matmul
from perfmodel.records import Contraction, Role

LLAMA = pm.zoo.llama(layers=2, sequence_length=2048)
ASKED = {"batch_size": 4, "optimizer": "adam"}


def step(dtype, *, device="h100_sxm", graph=LLAMA, **how):
    return pm.predict(graph, device=device, dtype=dtype, **ASKED | how)


def test_a_step_does_not_take_half_the_time():
    # Llama 3 8B with torch.compile on H100: 5,760 to 7,186 tokens/s (pytorch/torchtitan, commit 7a04053), 1.25 times
    gain = step("bf16").step_s / step("fp8").step_s
    assert 1.1 < gain < 1.4
    # a network of small layers loses: passes and launches cost more than the products give
    small = pm.zoo.gpt(layers=2, width=256, heads=4, sequence_length=128, vocabulary=1024)
    assert step("bf16", graph=small).step_s < step("fp8", graph=small).step_s


GRAPHS = {
    "gpt": pm.zoo.gpt(layers=2, width=256, heads=4, sequence_length=128, vocabulary=1024),
    "llama": pm.zoo.llama(layers=2, width=256, heads=4, key_heads=2, sequence_length=256, vocabulary=1024),
    "alexnet": pm.zoo.alexnet(),
}
MIXED = [name for name in spec_files.names("frameworks") if pm.load_framework(name).gpu.lowering.mixed_precision]


def kernels(table, group):
    """Rows of every way to run an operation: names of their efficiencies and counts at two batch sizes."""
    names = (*table.matmul_efficiency, *table.stream_efficiency)
    counts = [
        counts
        for columns in (table.matmul, table.stream)
        for counts in zip(*[values for size in (1, 2) for values in columns.at(size).values()], strict=True)
    ]
    return [
        [(names[row], counts[row]) for row in table.row_order[table.alternative_of_row == way]]
        for way in dict.fromkeys(table.choices[:, group].tolist())
    ]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("framework", ["generic", *MIXED])
@pytest.mark.parametrize("network", GRAPHS)
def test_everything_but_linear_layers_is_as_in_bf16(network, framework, recipe):
    device = "b200" if RECIPES[recipe].block_scaled else "h100_sxm"
    how = {"graph": GRAPHS[network], "device": device, "framework": framework}
    tables = [step(dtype, **how).basis.prepared.lowered.table for dtype in ("bf16", recipe)]
    wide, narrow = ({key: kernels(table, key) for key in range(len(table.multiplicity))} for table in tables)
    changed = 0
    for ours, theirs in zip(*[table.occurrences for table in tables], strict=True):
        assert ours[:3] == theirs[:3]
        if narrow[theirs.group] != wide[ours.group]:
            changed += 1
            assert any(name.startswith((NARROW_PRODUCT, SPLIT_ACCUMULATOR)) for name, _ in narrow[theirs.group][0])
    assert 0 < changed < len(tables[0].occurrences)


@pytest.mark.parametrize("shard_stage", [0, 1, 3])
@pytest.mark.parametrize("framework", MIXED)
def test_what_devices_hold_and_exchange_is_as_in_bf16(framework, shard_stage):
    how = {"graph": GRAPHS["llama"], "device": "h100_sxm", "framework": framework, "system": "dgx_h100", "workers": 8}
    how |= {"accumulation_steps": 2, "shard_stage": shard_stage}
    wide, narrow = (step(dtype, **how) for dtype in ("bf16", "fp8"))
    assert narrow.memory == wide.memory
    for moved in ("gradient_bytes", "exchanged_bytes"):
        assert getattr(narrow.basis.prepared, moved) == getattr(wide.basis.prepared, moved)
    assert narrow.sync_s == pytest.approx(wide.sync_s)
    ours, theirs = (p.basis.timed.stages[0] for p in (wide, narrow))
    assert theirs.adding == ours.adding
    assert theirs.copying_s == ours.copying_s


def test_what_a_product_of_a_linear_layer_casts():
    def kernels(role, recipe="fp8"):
        op = Contraction(m=64, n=32, k=16, role=role)
        product = Matmul(m=64, n=32, k=16, read_bytes=2 * (64 * 16 + 16 * 32), written_bytes=2 * 64 * 32)
        return narrow_product(op, product, recipe=RECIPES[recipe], element_bytes=2)

    left, right = 64 * 16, 16 * 32
    largest, cast, product = kernels(Role.OUTPUT)
    assert (largest.read_bytes, cast.read_bytes, cast.written_bytes) == (2 * (left + right),) * 2 + (left + right,)
    assert (product.read_bytes, product.written_bytes) == (left + right, 2 * 64 * 32)
    assert product.efficiency == "gemm_narrow"
    # gradients are cast in both directions; the weights' own scale is known
    largest, cast, _ = kernels(Role.INPUT_GRADIENT)
    assert (largest.read_bytes, cast.written_bytes) == (2 * left, 2 * left + right)
    assert len(kernels(Role.WEIGHT_GRADIENT)) == 2
    # blocks of 32 values with a scale of 1 B each, found while they are cast
    cast, _ = kernels(Role.OUTPUT, "mxfp8")
    assert cast.written_bytes == (left + right) * 33 / 32
    # the framework dispatches one call
    assert [each.launches - each.library_launches for each in kernels(Role.OUTPUT)] == [1, 0, 0]


def test_kept_weights_and_scales_of_the_steps_before_leave_one_cast_of_each_tensor():
    recipe = NarrowTable(scales="delayed", weights="kept").recipe("fp8")

    def kernels(role):
        op = Contraction(m=64, n=32, k=16, role=role)
        product = Matmul(m=64, n=32, k=16, read_bytes=2 * (64 * 16 + 16 * 32), written_bytes=2 * 64 * 32)
        return narrow_product(op, product, recipe=recipe, element_bytes=2)

    left = 64 * 16
    for role in (Role.OUTPUT, Role.INPUT_GRADIENT):
        cast, product = kernels(role)
        assert (cast.read_bytes, cast.written_bytes) == (2 * left, 2 * left)  # along and across
        assert product.read_bytes == left + 16 * 32  # the weights as they were cast
    [product] = kernels(Role.WEIGHT_GRADIENT)
    assert product.read_bytes == left + 16 * 32
    assert NarrowTable(scales="delayed").recipe("mxfp8").delayed_scales is False  # a block's scale is of its values


def test_weights_that_are_kept_pay_for_few_tokens():
    """Llama 2 70B of one sequence a micro-batch: casting weights anew took a sixth of its products."""

    def kernels_s(framework, length):
        options = {"width": 8192, "heads": 64, "key_heads": 8, "intermediate": 28672, "vocabulary": 1024}
        graph = pm.zoo.llama(layers=2, sequence_length=length, **options)
        p = pm.predict(graph, batch_size=1, device="h100_sxm", dtype="fp8", framework=framework)
        return sum(row.seconds for row in p.layers if row.kernel == "gemm")

    short, long = (
        {framework: kernels_s(framework, length) for framework in ("pytorch_2", "megatron_core")}
        for length in (1024, 16384)
    )
    gains = [steps["pytorch_2"] / steps["megatron_core"] for steps in (short, long)]
    assert gains[0] > gains[1] > 1


def test_which_products_are_narrow():
    assert takes_narrow(Contraction(m=7, n=32, k=16))
    assert not takes_narrow(Contraction(m=7, n=50257, k=16))  # no multiple of 16
    assert not takes_narrow(Contraction(m=50257, n=16, k=64, role=Role.WEIGHT_GRADIENT))
    assert not takes_narrow(Contraction(m=64, n=64, k=64, has_weights=False))
    graph = pm.LayerGraph("two activations", inputs={"a": (64, 64), "b": (64, 64)})
    graph.add("product", nn.MatMul(), inputs=["a", "b"])
    forward = {dtype: step(dtype, graph=graph, phase="forward", optimizer="sgd").step_s for dtype in ("bf16", "fp8")}
    assert forward["fp8"] == forward["bf16"]


@pytest.mark.parametrize(("dtype", "device"), [("fp8", "h100_sxm"), ("int8", "h100_sxm"), ("nvfp4", "b200")])
def test_the_recipe_is_told_and_no_convolutions_are(dtype, device):
    remarks = " ".join(step(dtype, device=device).remarks)
    assert f"{dtype} is a recipe: linear layers run in {dtype}" in remarks
    assert "has no" not in remarks.replace("has no values", "")


def test_fewer_bits_are_faster_on_blackwell():
    steps = [step(dtype, device="b200").step_s for dtype in ("bf16", "fp8", "mxfp8", "nvfp4")]
    assert steps == sorted(steps, reverse=True)
    # a clock without throttling would give four times the rate; people see 1.28 with mxfp8 (torchao, B200)
    assert 1.1 < steps[0] / steps[2] < 1.5


def test_numbers_arrays_and_symbols_go_the_same_way():
    asked = {"device": "h100_sxm", "dtype": "fp8", "optimizer": "adam"}
    formula = pm.formula("step_s", graph=LLAMA, batch_size=4, free="batch_size", **asked)
    table = pm.sweep(LLAMA, batch_size=[2, 4], **asked)
    for row in table.rows:
        expected = pm.predict(LLAMA, batch_size=row.batch_size, **asked).step_s
        assert row.step_s == pytest.approx(expected)
        assert float(formula(batch_size=row.batch_size)) == pytest.approx(expected)


def test_advice_tells_what_eight_bits_bring():
    advice = pm.advise(LLAMA, device="h100_sxm", dtype="bf16", **ASKED)
    [row] = [row for row in advice.rows if row.change == "dtype fp8"]
    assert 1.1 < row.speedup < 1.4
    assert row.beware.startswith("fp8 is a recipe")
    assert "beware of dtype" in str(advice)  # of the narrow type that gains most


def test_hoppers_gradients_in_eight_bits_add_up_in_full_precision():
    """Without fast accumulation a product takes 1.1 to 1.2 times as long; Blackwell has no such mode."""
    graph = pm.LayerGraph("one", input_shape=(8192,))
    graph.add("large", pm.layers.Dense(units=8192, bias=False), inputs=graph.input)

    def slower(device, dtype):
        p = pm.predict(graph, batch_size=8192, device=device, dtype=dtype)
        of_role = {row.role: row.seconds for row in p.layers if row.kernel == "gemm"}
        return of_role["weight_gradient"] / of_role["output"]

    assert 1.08 < slower("h100_sxm", "fp8") / slower("b200", "fp8") < 1.2
    assert slower("h100_sxm", "bf16") == pytest.approx(slower("b200", "bf16"), rel=0.03)
