"""Kernels of single operations, counted by hand."""

from dataclasses import replace

import pytest

from perfmodel.framework.lowering import lower
from perfmodel.framework.rules import PassRule
from perfmodel.kernels import Matmul, Stream
from perfmodel.records import Contraction, Convolution, Gather, MemoryPass, Recurrence, Role
from tests.lowering_rules import CELLS, PLAIN, changed

RULES = changed(PLAIN, convolution_algorithms=("implicit_gemm",), bias="fused")


def kernels_of(operation, rules=RULES, processor="gpu"):
    (alternative,) = lower(operation, rules=rules, element_bytes=4, processor=processor)
    return alternative.kernels


DENSE = Contraction(m=64, n=10, k=300, bias_elements=10)


def test_a_dense_layer_with_a_fused_bias_is_one_product():
    (product,) = kernels_of(DENSE)
    # reads x 64 x 300 and W 300 x 10, writes y 64 x 10, each of 4 B
    assert (product.m, product.n, product.k, product.count, product.launches) == (64, 10, 300, 1, 1)
    assert (product.read_bytes, product.written_bytes) == (4 * (19_200 + 3_000), 4 * 640)
    assert product.flop_count == 384_000


def test_a_separate_bias_is_a_pass_over_the_output():
    product, bias = kernels_of(DENSE, changed(RULES, bias="separate"))
    assert isinstance(product, Matmul)
    assert bias == Stream(read_bytes=2_560, written_bytes=2_560, flop_count=640, efficiency="bias")


def test_without_a_bias_nothing_is_added():
    assert len(kernels_of(replace(DENSE, bias_elements=0), changed(RULES, bias="separate"))) == 1


@pytest.mark.parametrize(("role", "extra_bytes"), [(Role.WEIGHT_GRADIENT, 4 * 300 * 10), (Role.INPUT_GRADIENT, 0)])
def test_accumulation_reads_the_gradient_of_the_weights_only(role, extra_bytes):
    operation = Contraction(m=300, n=10, k=64, role=role)
    (plain,) = kernels_of(operation)
    (adding,) = kernels_of(operation, changed(RULES, gradient_accumulation=True))
    assert adding.read_bytes - plain.read_bytes == extra_bytes
    assert adding.written_bytes == plain.written_bytes


@pytest.mark.parametrize(
    "operation",
    [
        Contraction(m=64, n=300, k=10, role=Role.INPUT_GRADIENT),
        Convolution(
            batch_size=2, in_channels=3, out_channels=8, input_size=(10, 10), output_size=(10, 10), kernel_size=(3, 3),
            stride=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1), role=Role.INPUT_GRADIENT,
        ),
    ],
)  # fmt: skip
def test_gradients_of_inputs_that_are_added_up_are_cleared_and_read_as_well(operation):
    elements = operation.m * operation.n if isinstance(operation, Contraction) else 2 * 3 * 10 * 10
    plain, adding = (kernels_of(operation, changed(RULES, input_gradient_accumulation=adds)) for adds in (False, True))
    assert len(adding) == len(plain) + 1
    (cleared,) = [kernel for kernel in adding if kernel.efficiency == "clear"]
    assert (cleared.read_bytes, cleared.written_bytes) == (0, 4 * elements)
    assert sum(k.read_bytes for k in adding) - sum(k.read_bytes for k in plain) == 4 * elements
    forward = replace(operation, role=Role.OUTPUT)
    assert kernels_of(forward, changed(RULES, input_gradient_accumulation=True)) == kernels_of(forward)


def test_independent_products_are_one_launch_or_a_loop_of_the_same_work():
    operation = Contraction(m=8, n=16, k=32, count=5)
    (batched,) = kernels_of(operation)
    (looped,) = kernels_of(operation, changed(RULES, batched_contraction="loop"))
    assert (batched.count, batched.launches) == (5, 1)
    assert (looped.count, looped.launches) == (1, 5)
    # 5 products of 8 x 32 by 32 x 16
    assert batched.flop_count == looped.flop_count * looped.launches == 5 * 8_192
    assert batched.read_bytes == looped.read_bytes * 5 == 4 * 5 * (256 + 512)
    assert batched.written_bytes == looped.written_bytes * 5 == 4 * 5 * 128


CONVOLUTION = Convolution(
    batch_size=2, in_channels=3, out_channels=8, input_size=(10, 10), output_size=(10, 10), kernel_size=(3, 3),
    stride=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1), bias_elements=8,
)  # fmt: skip


def test_transposes_carry_image_result_and_filters_once_each():
    _, *passes = kernels_of(CONVOLUTION, changed(RULES, convolution_transposes=True))
    # image 2 x 3 x 100, result 2 x 8 x 100, filters 8 x 3 x 9
    assert [each.read_bytes for each in passes] == [4 * 600, 4 * 1_600, 4 * 216]
    assert [each.written_bytes for each in passes] == [4 * 600, 4 * 1_600, 4 * 216]
    assert {each.efficiency for each in passes} == {"transpose"}


def test_a_convolution_has_its_bias_pass_and_rereads_what_it_accumulates():
    product, bias = kernels_of(CONVOLUTION, changed(RULES, bias="separate"))
    assert isinstance(product, Matmul)
    assert (bias.read_bytes, bias.written_bytes, bias.flop_count) == (6_400, 6_400, 1_600)
    gradient = replace(CONVOLUTION, role=Role.WEIGHT_GRADIENT, bias_elements=0)
    (plain,) = kernels_of(gradient)
    (adding,) = kernels_of(gradient, changed(RULES, gradient_accumulation=True))
    assert adding.read_bytes - plain.read_bytes == 4 * 216


POINTWISE = Convolution(
    batch_size=2, in_channels=3, out_channels=8, input_size=(10, 10), output_size=(10, 10), kernel_size=(1, 1),
    stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1),
)  # fmt: skip
POINTWISE_RULES = changed(RULES, pointwise_products=True, convolution_transposes=True)


@pytest.mark.parametrize(
    ("role", "extents", "read", "written"),
    [
        # images 2 x 100 x 3, filters 3 x 8, results 2 x 100 x 8
        (Role.OUTPUT, (200, 8, 3), 600 + 24, 1_600),
        (Role.INPUT_GRADIENT, (200, 3, 8), 1_600 + 24, 600),
        (Role.WEIGHT_GRADIENT, (8, 3, 200), 600 + 1_600, 24),
    ],
)
@pytest.mark.parametrize("processor", ["gpu", "cpu"])
def test_a_1x1_convolution_without_a_stride_is_one_plain_product(role, extents, read, written, processor):
    operation = replace(POINTWISE, role=role)
    (alternative,) = lower(operation, rules=POINTWISE_RULES, element_bytes=4, processor=processor)
    assert (alternative.name, alternative.workspace_bytes) == ("pointwise_gemm", 0)
    (product,) = alternative.kernels  # no pass transposes images: the product takes the framework's own layout
    assert isinstance(product, Matmul)
    assert (product.m, product.n, product.k) == extents
    assert (product.read_bytes, product.written_bytes) == (4 * read, 4 * written)
    # weights lie as (inputs, outputs), so the gradient of the input alone reads them across
    efficiency = "gemm_transposed" if role is Role.INPUT_GRADIENT else "gemm"
    assert (product.efficiency, product.count, product.launches) == (efficiency, 1, 1)
    # 2 FLOP x 200 pixels x 3 x 8 channels, whatever the role
    assert product.flop_count == 9_600


@pytest.mark.parametrize(
    "changes",
    [
        {"kernel_size": (3, 3), "padding": ((1, 1), (1, 1))},
        {"kernel_size": (1, 3), "output_size": (10, 8)},
        {"stride": (2, 2), "output_size": (5, 5)},
        {"stride": (1, 2), "output_size": (10, 5)},
        {"padding": ((1, 1), (1, 1)), "output_size": (12, 12)},
        {"padding": ((0, 0), (0, 1)), "output_size": (10, 11)},
        {"in_channels": 4, "groups": 2},
    ],
    ids=["3x3", "1x3", "strided", "strided in one direction", "padded", "padded on one side", "grouped"],
)
@pytest.mark.parametrize("role", [Role.OUTPUT, Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT])
def test_any_other_convolution_stays_one(changes, role):
    operation = replace(POINTWISE, **changes, role=role)
    direct, usual = (
        lower(operation, rules=changed(POINTWISE_RULES, pointwise_products=on), element_bytes=4, processor="gpu")
        for on in (True, False)
    )
    assert direct == usual
    assert all(each.name != "pointwise_gemm" for each in direct)
    assert [each.efficiency for each in direct[0].kernels][-3:] == ["transpose"] * 3


def test_a_plain_product_of_a_convolution_keeps_its_bias_and_what_it_accumulates():
    product, bias = kernels_of(replace(POINTWISE, bias_elements=8), changed(POINTWISE_RULES, bias="separate"))
    assert (product.efficiency, bias.efficiency, bias.read_bytes) == ("gemm", "bias", 4 * 1_600)
    gradient = replace(POINTWISE, role=Role.WEIGHT_GRADIENT)
    (plain,) = kernels_of(gradient, POINTWISE_RULES)
    (adding,) = kernels_of(gradient, changed(POINTWISE_RULES, gradient_accumulation=True))
    assert adding.read_bytes - plain.read_bytes == 4 * 24


def test_without_the_rule_a_1x1_convolution_is_the_librarys():
    (product, *passes) = kernels_of(
        replace(POINTWISE, in_channels=64, out_channels=64), changed(POINTWISE_RULES, pointwise_products=False)
    )
    assert product.efficiency == "conv_1x1"
    assert len(passes) == 3


PASS = MemoryPass(name="thing", read_elements=100, written_elements=50, tensor_elements=100, flop_count=700, parts=4)


def test_a_pass_without_a_rule_moves_what_it_must():
    assert kernels_of(PASS) == (Stream(read_bytes=400, written_bytes=200, flop_count=700, efficiency="thing"),)


def test_a_rule_counts_in_tensors_and_shares_them_among_its_launches():
    (kernel,) = kernels_of(PASS, changed(RULES, passes={"thing": PassRule(reads=3, writes=2, launches=4)}))
    assert kernel.launches == 4
    # all launches together: 3 reads and 2 writes of 100 elements
    assert (kernel.read_bytes * 4, kernel.written_bytes * 4, kernel.flop_count * 4) == (1_200, 800, 700)


def test_a_pass_that_is_composed_of_others_reaches_their_rate():
    rule = PassRule(reads=3, writes=2, launches=4)
    (own,) = kernels_of(PASS, changed(RULES, passes={"thing": rule}))
    (composed,) = kernels_of(
        PASS, changed(RULES, passes={"thing": rule.model_copy(update={"bandwidth_of": "elementwise"})})
    )
    assert (own.efficiency, composed.efficiency) == ("thing", "elementwise")
    assert replace(composed, efficiency="thing") == own


def test_a_rule_of_the_forward_pass_leaves_the_backward_pass_alone():
    backward = replace(PASS, role=Role.INPUT_GRADIENT)
    rules = changed(RULES, passes={"thing": PassRule(reads=9, writes=9), "other": PassRule(reads=8, writes=8)})
    assert kernels_of(backward, rules) == kernels_of(backward)
    assert kernels_of(backward)[0].efficiency == "thing_backward"
    doubled = changed(RULES, passes={"thing_backward": PassRule(reads=2, writes=0)})
    assert kernels_of(backward, doubled)[0].read_bytes == 800


def test_a_pass_a_framework_does_without_is_never_launched():
    (kernel,) = kernels_of(PASS, changed(RULES, passes={"thing": PassRule(reads=0, writes=0, launches=0)}))
    assert kernel.launches == 0
    assert (kernel.read_bytes, kernel.written_bytes) == (0, 0)


def test_serial_rows_are_those_that_the_rules_name():
    search = replace(PASS, name="argmax", row_elements=26_752)
    (parallel,) = kernels_of(search)
    (serial,) = kernels_of(search, changed(RULES, serial_rows=("argmax",)))
    assert (parallel.serial_steps, serial.serial_steps) == (0, 26_752)
    assert replace(serial, serial_steps=0) == parallel  # the traffic is the same
    (other,) = kernels_of(search, changed(RULES, serial_rows=("softmax",)))
    assert other == parallel
    # a pass that reduces nothing has no row to wait for
    assert kernels_of(PASS, changed(RULES, serial_rows=("thing",))) == kernels_of(PASS)


def test_parts_are_looped_only_by_a_framework_that_loops():
    (kernel,) = kernels_of(PASS, changed(RULES, batched_contraction="loop"))
    assert (kernel.launches, kernel.read_bytes * 4, kernel.written_bytes * 4) == (4, 400, 200)


def test_a_gather_copies_rows_and_its_gradient_clears_the_table():
    rows = Gather(rows=12, width=5, table_rows=1_000)
    (look_up,) = kernels_of(rows)
    # 60 elements copied, 12 indices of 4 B
    assert (look_up.read_bytes, look_up.written_bytes, look_up.flop_count) == (240 + 48, 240, 0)
    assert look_up.efficiency == "gather"
    (scatter,) = kernels_of(replace(rows, role=Role.WEIGHT_GRADIENT))
    # gradient and table rows read, 60 sums written; 5,000 elements cleared
    assert (scatter.read_bytes, scatter.written_bytes, scatter.flop_count) == (480 + 48, 240 + 20_000, 60)
    assert scatter.efficiency == "scatter_add"


T, X, H, B = 7, 48, 32, 16
LSTM = Recurrence(
    batch_size=B, steps=T, input_size=X, hidden_size=H, gate_count=4, pointwise_flop_count=18, state_count=2
)


def recurrent(gates, inputs, gradient="per_step", forward=17, backward=25):
    return changed(
        RULES,
        recurrent=changed(
            CELLS,
            gate_products=gates,
            input_product=inputs,
            weight_gradient=gradient,
            forward_pointwise_kernels=forward,
            backward_pointwise_kernels=backward,
        ),
    )


@pytest.mark.parametrize(
    ("gates", "inputs", "pointwise", "products", "streams"),
    [
        ("per_gate", "per_step", 17, 8 * T, 17 * T),  # unfused: x W and h U of four gates at each step
        ("grouped", "per_step", 17, 2 * T, 17 * T),  # all gates in one product
        ("grouped", "per_step", 1, 2 * T, T),  # fused element-wise kernel
        ("grouped", "concatenated", 5, T, 5 * T),  # [x, h] in one product
        ("grouped", "hoisted", 1, T + 1, T),  # x W of all steps in one product beforehand
        ("per_gate", "hoisted", 1, 4 * T + 4, T),
    ],
)
def test_launches_of_a_forward_recurrence(gates, inputs, pointwise, products, streams):
    kernels = kernels_of(LSTM, recurrent(gates, inputs, forward=pointwise))
    assert sum(each.launches for each in kernels if isinstance(each, Matmul)) == products
    assert sum(each.launches for each in kernels if isinstance(each, Stream)) == streams


@pytest.mark.parametrize("gates", ["grouped", "per_gate"])
@pytest.mark.parametrize("inputs", ["per_step", "concatenated", "hoisted"])
@pytest.mark.parametrize("gradient", ["per_step", "hoisted"])
def test_every_way_to_run_a_recurrence_does_the_same_arithmetic(gates, inputs, gradient):
    rules = recurrent(gates, inputs, gradient)
    # 2 FLOP x 16 samples x 7 steps x 4 gates x 32 units x (48 + 32) features
    expected = 2 * 16 * 7 * 4 * 32 * 80
    for role in (Role.OUTPUT, Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT):
        kernels = kernels_of(replace(LSTM, role=role), rules)
        assert sum(each.flop_count * each.launches for each in kernels if isinstance(each, Matmul)) == expected


@pytest.mark.parametrize("inputs", ["per_step", "concatenated", "hoisted"])
def test_a_recurrence_whose_input_wants_no_gradient_has_no_product_for_it(inputs):
    operation = replace(LSTM, role=Role.INPUT_GRADIENT, input_size=0)
    products = [each for each in kernels_of(operation, recurrent("grouped", inputs)) if isinstance(each, Matmul)]
    # only the gradient of h at each of the steps, the first one too
    assert [(each.m, each.n, each.k, each.launches) for each in products] == [(B, H, 4 * H, T)]


def test_pointwise_arithmetic_is_that_of_the_cell():
    *_, forward = kernels_of(LSTM, recurrent("grouped", "per_step"))
    # 18 FLOP for each of 16 x 32 units and 7 steps; twice that backward
    assert forward.flop_count * forward.launches == pytest.approx(18 * 16 * 32 * 7)
    *_, backward = kernels_of(replace(LSTM, role=Role.INPUT_GRADIENT), recurrent("grouped", "per_step"))
    assert backward.flop_count * backward.launches == pytest.approx(2 * 18 * 16 * 32 * 7)
    assert backward.launches == 25 * 7


def test_weight_gradients_of_a_recurrence_per_step_or_over_all_steps():
    gradient = replace(LSTM, role=Role.WEIGHT_GRADIENT)
    of_x, of_h, bias = kernels_of(gradient, recurrent("grouped", "per_step"))
    assert [(each.m, each.n, each.k, each.launches) for each in (of_x, of_h)] == [(48, 128, 16, 7), (32, 128, 16, 7)]
    # x 16 x 48 and gates 16 x 128 are read, and the 48 x 128 buffer that is added into
    assert of_x.read_bytes == 4 * (768 + 2_048 + 6_144)
    assert (bias.launches, bias.read_bytes, bias.written_bytes) == (7, 4 * 2_048, 4 * 128)
    of_x, of_h, bias = kernels_of(gradient, recurrent("grouped", "hoisted", "hoisted"))
    assert (of_x.k, of_x.launches, bias.launches) == (16 * 7, 1, 1)
    assert of_x.read_bytes == 4 * 7 * (768 + 2_048)


@pytest.mark.parametrize(("layout", "across"), [("in_out", Role.INPUT_GRADIENT), ("out_in", Role.OUTPUT)])
@pytest.mark.parametrize("role", [Role.OUTPUT, Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT])
def test_one_product_of_a_dense_layer_reads_its_weights_across(layout, across, role):
    rules = changed(PLAIN, weight_layout=layout)
    operation = Contraction(m=64, n=100, k=30, role=role)
    (alternative,) = lower(operation, rules=rules, element_bytes=4, processor="gpu")
    product = alternative.kernels[0]
    assert product.efficiency == ("gemm_transposed" if role is across else "gemm")
    assert product.flop_count == 2 * 64 * 100 * 30


def test_a_depthwise_convolution_is_one_launch_where_the_framework_has_a_kernel_of_its_own():
    convolution = Convolution(
        batch_size=4, in_channels=96, out_channels=96, input_size=(56, 56), output_size=(56, 56), kernel_size=(3, 3),
        stride=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1), groups=96,
    )  # fmt: skip
    rules = changed(PLAIN, convolution_algorithms=("implicit_gemm",), depthwise_kernel=True)
    (own,) = lower(convolution, rules=rules, element_bytes=4, processor="gpu")
    (by_channel,) = lower(convolution, rules=changed(rules, depthwise_kernel=False), element_bytes=4, processor="gpu")
    assert [kernel.launches for kernel in own.kernels] == [1]
    assert [kernel.launches for kernel in by_channel.kernels] == [96]
    # maps once in, once out, nine taps of each channel
    assert own.kernels[0].read_bytes == 4 * (4 * 96 * 56 * 56 + 96 * 9)
    assert own.kernels[0].flop_count == 2 * 9 * 4 * 96 * 56 * 56
