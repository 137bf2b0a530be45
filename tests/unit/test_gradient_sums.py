"""Gradients of micro-batches are added up in the type that the software keeps, as often as it adds them."""

import pytest

import perfmodel as pm
from perfmodel.framework.profile import load_framework
from perfmodel.prediction.job.lowered import GradientSizes, gradient_sizes

WIDTH = 256
LAYER = pm.LayerGraph("one", input_shape=(WIDTH,))
LAYER.add("product", pm.layers.Dense(units=WIDTH), inputs=LAYER.input)


def predicted(framework, **how):
    return pm.predict(LAYER, framework=framework, device="h100_sxm", batch_size=64, **how)


@pytest.mark.parametrize(
    ("framework", "how", "sizes"),
    [
        ("pytorch_2", {"dtype": "fp32"}, (4, 4)),
        ("pytorch_2", {"dtype": "bf16"}, (4, 4)),  # cast back to the type of the parameters before
        ("pytorch_2", {"dtype": "bf16", "asked": "bf16"}, (4, 4)),  # only what is exchanged
        ("pytorch_2", {"dtype": "fp8", "gathers": True}, (2, 4)),  # FSDP without an exchange: param_dtype, reduce_dtype
        ("torchtitan", {"dtype": "bf16", "gathers": True, "shared": True}, (4, 4)),  # shares, after their exchange
        ("megatron_core", {"dtype": "fp32"}, (4, 4)),
        ("megatron_core", {"dtype": "bf16"}, (2, 4)),
        ("megatron_core", {"dtype": "fp8"}, (2, 4)),
        ("megatron_core", {"dtype": "bf16", "asked": "bf16"}, (2, 2)),  # --grad-reduce-in-bf16
        ("megatron_composed", {"dtype": "bf16"}, (2, 2)),  # .grad of the narrow parameters
        ("generic", {"dtype": "bf16"}, (2, 2)),
        ("generic", {"dtype": "bf16", "asked": "fp32"}, (2, 4)),
    ],
)
def test_types_of_gradients_and_of_their_sums(framework, how, sizes):
    assert gradient_sizes(load_framework(framework), "gpu", **how) == GradientSizes(*sizes)


def test_a_pass_reads_both_and_writes_the_sum():
    for sizes, read_bytes in (((4, 4), 8), ((2, 4), 6), ((2, 2), 4)):
        work = GradientSizes(*sizes).sum_of(10).work(element_bytes=sizes[1])
        assert (work.read_bytes, work.written_bytes, work.flop_count) == (10 * read_bytes, 10 * sizes[1], 10)


def test_pytorch_adds_all_micro_batches_but_the_first():
    """It takes the first gradient as it is, for which zero_grad left none."""
    one, four = (predicted("pytorch_2", dtype="fp32", accumulation_steps=count) for count in (1, 4))
    times = four.basis.timed.stages[0]
    adding = times.stage.lowered.over_gradients("adding", times.stage.placed.graph)
    rows = adding.stream.at(1)
    moved = rows["read_bytes"] + rows["written_bytes"]
    assert sorted(moved) == [12 * WIDTH, 12 * WIDTH**2]
    assert not any("gradient_sum" in row.kernel for row in one.layers)
    assert one.basis.timed.stages[0].stage.lowered.table is times.stage.lowered.table


@pytest.mark.parametrize(
    ("how", "of_weight", "of_bias"),
    [
        ({"dtype": "bf16"}, 4 + 2, 2 + 4 + 4),  # reads 4 B and writes 4 where the product alone writes 2
        ({"dtype": "fp8"}, 4 + 2, 2 + 4 + 4),
        ({"dtype": "fp32"}, 4, 4 + 4 + 4),
        ({"dtype": "bf16", "gradient_dtype": "bf16"}, 2, 2 + 2 + 2),
    ],
)
@pytest.mark.parametrize("count", [1, 4])
def test_products_of_megatron_add_every_gradient_to_its_buffer(how, of_weight, of_bias, count):
    """main_grad is set to zero between steps, so that the first micro-batch adds too."""
    if "gradient_dtype" in how:
        how = how | {"system": "dgx_h100", "workers": 8}
    p = predicted("megatron_core", accumulation_steps=count, **how)
    moved = [row.bytes for row in p.layers if row.kernel == "gradient_sum_backward"]
    assert moved == pytest.approx([count * of_weight * WIDTH**2, count * of_bias * WIDTH])
    assert p.basis.timed.stages[0].adding.step_s == 0


def test_a_search_over_types_of_gradients_predicts_what_predict_does():
    network = pm.zoo.gpt(layers=2, width=256, heads=4, sequence_length=128, vocabulary=1024)
    asked = {"system": "dgx_h100", "workers": 8, "framework": "megatron_core", "dtype": "bf16", "optimizer": "adam"}
    asked |= {"batch_size": 8, "accumulation_steps": 4}
    table = pm.sweep(network, gradient_dtype=[None, "bf16", "fp32"], **asked)
    for row in table.rows:
        expected = pm.predict(network, gradient_dtype=row.gradient_dtype, **asked).step_s
        assert row.step_s == pytest.approx(expected, rel=1e-9)
    narrow, wide = (next(row.step_s for row in table.rows if row.gradient_dtype == name) for name in ("bf16", "fp32"))
    assert narrow < wide
