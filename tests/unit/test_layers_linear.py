"""Products: FLOP by torch's own counter, traffic by hand, and calls of torch and ONNX."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from perfmodel.errors import ArgumentError
from perfmodel.layers import LAYERS, Dense, MatMul, ShapeMismatchError, SharedShape
from perfmodel.layers.translation import Operand, OperatorCall
from perfmodel.records import Phase, Role, Work
from tests.torch_calls import call_of, shared, translated

N = 3  # samples
ATEN = torch.ops.aten


def full(shape):
    """The whole tensor of a sample shape, on no device, that wants a gradient."""
    extents = tuple(shape) if isinstance(shape, SharedShape) else (N, *shape)
    return torch.empty(extents, device="meta", requires_grad=True)


def products(layer, shapes, phase):
    return sum(each.product_flop_count for each in layer.operations(shapes, batch_size=N, phase=phase))


def torchs_products(function, tensors):
    """Matrix-product FLOP of a function and of its gradients, as torch counts them."""
    with FlopCounterMode(display=False) as forward:
        y = function(*tensors)
    with FlopCounterMode(display=False) as backward:
        y.backward(torch.empty_like(y))
    return tuple(y.shape), forward.get_total_flops(), backward.get_total_flops()


CASES = [
    # of each sample: scores of attention
    (MatMul(transpose_second=True), ((4, 9, 8), (4, 7, 8)), lambda a, b: a @ b.mT),
    (MatMul(transpose_first=True), ((9, 8), (9, 5)), lambda a, b: a.mT @ b),
    # one matrix for all samples: one product with the rows of all
    (MatMul(), ((5, 6), SharedShape((6, 3))), torch.matmul),
    (MatMul(), ((6,), SharedShape((6, 3))), torch.mm),
    (MatMul(transpose_second=True), ((5, 6), SharedShape((3, 6))), lambda a, b: a @ b.mT),
    # a shared first factor: a product per sample
    (MatMul(), (SharedShape((3, 5)), (5, 6)), torch.matmul),
    # leading axes broadcast
    (MatMul(), ((4, 9, 8), (1, 8, 7)), torch.matmul),
    (MatMul(), ((4, 9, 8), SharedShape((4, 8, 7))), torch.matmul),
    # a third input is added
    (MatMul(), ((9, 8), (8, 7), (9, 7)), lambda a, b, c: torch.baddbmm(c, a, b)),
    # the samples are rows of one matrix per head
    (
        MatMul(samples_are_rows=True),
        ((4, 6), SharedShape((4, 6, 3))),
        lambda a, b: (a.transpose(0, 1) @ b).transpose(0, 1),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "shapes", "function"), CASES)
def test_matmul_counts_what_torch_counts(layer, shapes, function):
    whole, forward, backward = torchs_products(function, [full(shape) for shape in shapes])
    assert (N, *layer.output_shape(shapes)) == whole
    assert products(layer, shapes, Phase.FORWARD) == forward > 0
    assert products(layer, shapes, Phase.BACKWARD) == backward == 2 * forward


@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize("bias", [True, False])
def test_dense_counts_what_torch_counts(shape, bias):
    layer, module = Dense(units=7, bias=bias), torch.nn.Linear(5, 7, bias=bias, device="meta")
    whole, forward, backward = torchs_products(module, [full(shape)])
    assert (N, *layer.output_shape((shape,))) == whole
    assert products(layer, (shape,), "forward") == forward
    assert products(layer, (shape,), "backward") == backward
    assert layer.parameter_count((shape,)) == sum(each.numel() for each in module.parameters())


def test_a_product_of_all_shared_tensors_happens_once():
    shapes = (SharedShape((3, 5)), SharedShape((5, 6)))
    assert MatMul().forward_operations(shapes, batch_size=N)[0].product_flop_count == 2 * 3 * 5 * 6
    assert isinstance(MatMul().output_shape(shapes), SharedShape)


def test_traffic_of_a_product_with_a_shared_matrix():
    shapes = ((5, 6), SharedShape((6, 3)))
    # 3 samples of 5 rows: 15 x 6 and 6 x 3 read, 15 x 3 written
    assert MatMul().work(shapes, batch_size=N, phase="forward") == Work(2 * 15 * 6 * 3, 4 * (90 + 18), 4 * 45)
    only_second = MatMul().gradient_operations(shapes, batch_size=N, wanted=[False, True])
    # dB (6 x 3) = A^T (6 x 15) dC (15 x 3): no sum over samples is left to do
    assert [each.work(element_bytes=4) for each in only_second] == [Work(2 * 15 * 6 * 3, 4 * (90 + 45), 4 * 18)]


def test_the_gradient_of_a_repeated_factor_is_summed():
    shapes = (SharedShape((3, 5)), (5, 6))
    product, total = MatMul().gradient_operations(shapes, batch_size=N, wanted=[True, False])
    # a product per sample makes 3 x 5 each, which are added up: 45 read, 15 written
    assert product.product_flop_count == N * 2 * 3 * 6 * 5
    assert total.work(element_bytes=4) == Work(45, 4 * 45, 4 * 15)
    assert {product.role, total.role} == {Role.INPUT_GRADIENT}
    # a bias of one row for 9 rows of each of the samples: 7 sums of 27
    shapes = ((9, 8), (8, 7), SharedShape((7,)))
    (bias,) = MatMul().gradient_operations(shapes, batch_size=N, wanted=[False, False, True])
    assert bias.work(element_bytes=4) == Work(189, 4 * 189, 4 * 7)
    forward = MatMul().work(shapes, batch_size=N, phase="forward")
    assert forward.read_bytes == 4 * (N * (72 + 56) + 7)
    # dA reads B, dB reads A, the bias's gradient neither
    assert MatMul().kept_inputs((True, False, True), is_trained=True) == (False, True, False)


@pytest.mark.parametrize(
    "shapes",
    [((4, 5), (6, 3)), ((), (6, 3)), ((4, 9, 8), (3, 8, 7)), ((4, 5), (5, 3), (4, 4))],
)
def test_factors_that_do_not_fit_are_named(shapes):
    with pytest.raises(ShapeMismatchError) as caught:
        MatMul().output_shape(shapes)
    assert "x".join(map(str, shapes[1][-1:])) in str(caught.value)


def meta(*shape):
    return torch.empty(shape, device="meta")


def weight(*shape):
    return torch.nn.Parameter(meta(*shape))


X, Y = meta(N, 5, 6), meta(N, 6, 4)
CALLS = [
    (ATEN.mm.default, (meta(N, 6), weight(6, 4)), Dense(units=4, bias=False), 1),
    (ATEN.addmm.default, (weight(4), meta(N, 6), weight(6, 4)), Dense(units=4), 1),
    (ATEN.linear.default, (X, weight(4, 6), weight(4)), Dense(units=4), 1),
    (ATEN.matmul.default, (X, weight(6, 4)), Dense(units=4, bias=False), 1),
    (ATEN.bmm.default, (X, Y), MatMul(), 2),
    (ATEN.matmul.default, (X, Y), MatMul(), 2),
    (ATEN.matmul.default, (X, shared(meta(6, 4))), MatMul(), 2),
    (ATEN.matmul.default, (shared(meta(4, 5)), X), MatMul(), 2),
    (ATEN.baddbmm.default, (meta(N, 5, 4), X, Y), MatMul(), 3),
    (ATEN.addmm.default, (shared(meta(4)), meta(N, 6), shared(meta(6, 4))), MatMul(), 3),
    (ATEN.mv.default, (meta(N, 6), shared(meta(6))), MatMul(), 2),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "given", "layer", "inputs"), CALLS)
def test_calls_of_torch(operator, given, layer, inputs):
    call = call_of(operator, *given)
    translation = translated(LAYERS.values(), call)
    assert translation.layer == layer
    assert len(translation.inputs) == inputs
    assert translation.layer.output_shape(tuple(each.shape for each in translation.inputs)) == call.output.shape
    assert set(translation.parameters) == set(layer.parameter_shapes(((6,),)))


def test_a_linear_layer_has_the_units_of_its_weight():
    translation = translated(LAYERS.values(), call_of(ATEN.linear.default, X, weight(4, 6), None))
    assert translation.layer == Dense(units=4, bias=False)


def test_sums_over_samples_are_one_product_that_all_samples_share():
    # x^T y of all samples, as covariances are: both factors have the samples along the axis that is summed
    x = Operand(key="x", shape=(6,), axes=(0, None))
    y = Operand(key="y", shape=(4,), axes=(None, 0))
    z = Operand(key="z", shape=SharedShape((6, 4)), axes=(0, 1))
    call = OperatorCall(operator="aten.mm", arguments={"self": x, "mat2": y}, outputs=(z,))
    layer = translated(LAYERS.values(), call).layer
    assert layer == MatMul(samples_are_inner=True)
    assert isinstance(layer.output_shape(((6,), (4,))), SharedShape)
    assert layer.output_shape(((6,), (4,))) == (6, 4)
    (product,) = layer.forward_operations(((6,), (4,)), batch_size=5)
    # each of the 6 x 4 results sums 5 samples; written once for all of them
    assert product.product_flop_count == 2 * 5 * 6 * 4
    assert product.work(element_bytes=4).written_bytes == 4 * 6 * 4
    backward = layer.backward_operations(((6,), (4,)), batch_size=5)
    assert [each.product_flop_count for each in backward] == [2 * 5 * 6 * 4] * 2
    # three rows of each sample are summed, too
    rows = OperatorCall(
        operator="aten.mm",
        arguments={
            "self": Operand(key="x", shape=(6, 3), axes=(0, 1)),
            "mat2": Operand(key="y", shape=(3, 4), axes=(0, 1)),
        },
        outputs=(z,),
    )
    layer = translated(LAYERS.values(), rows).layer
    assert layer == MatMul(over_batch=True)
    (product,) = layer.forward_operations(((6, 3), (3, 4)), batch_size=5)
    assert product.product_flop_count == 2 * 5 * 3 * 6 * 4
    with pytest.raises(ShapeMismatchError):
        layer.output_shape(((6, 3), (2, 4)))
    with pytest.raises(ArgumentError, match="over_batch must not be combined"):
        MatMul(over_batch=True, samples_are_rows=True)


def test_samples_may_be_columns_or_rows():
    # W (4 x 6) x^T: the samples are columns; turned, they are the rows of x W^T
    w = Operand(key="w", shape=SharedShape((4, 6)), axes=(0, 1))
    turned = Operand(key="x", shape=(6,), axes=(0, None))
    output = Operand(key="y", shape=(4,), axes=(0, None))
    call = OperatorCall(operator="aten.mm", arguments={"self": w, "mat2": turned}, outputs=(output,))
    translation = translated(LAYERS.values(), call)
    assert [each.key for each in translation.inputs] == ["x", "w"]
    assert translation.layer == MatMul(samples_are_rows=True, transpose_second=True)
    assert translation.layer.output_shape(((6,), SharedShape((4, 6)))) == (4,)
    # experts: 4 heads, samples as rows of each
    x = Operand(key="x", shape=(4, 6), axes=(0, None, 1))
    experts = Operand(key="e", shape=SharedShape((4, 6, 3)), axes=(0, 1, 2))
    output = Operand(key="y", shape=(4, 3), axes=(0, None, 1))
    call = OperatorCall(operator="aten.bmm", arguments={"self": x, "mat2": experts}, outputs=(output,))
    assert translated(LAYERS.values(), call).layer == MatMul(samples_are_rows=True)


def onnx_call(operator, *operands, output, **attributes):
    arguments = {str(index): operand for index, operand in enumerate(operands)} | attributes
    made = Operand(key="out", shape=output, axes=(None, *range(len(output))))
    return OperatorCall(operator=operator, arguments=arguments, outputs=(made,))


def test_calls_of_onnx():
    x = Operand(key="x", shape=(6,), axes=(None, 0))
    held = Operand(key="w", shape=SharedShape((4, 6)), axes=(0, 1), is_parameter=True)
    bias = Operand(key="b", shape=SharedShape((4,)), axes=(0,), is_parameter=True)
    plain = Operand(key="c", shape=SharedShape((6, 4)), axes=(0, 1))
    readers = [(kind.operators) for kind in LAYERS.values()]

    def read(call):
        found = [each[call.operator](call) for each in readers if call.operator in each]
        (translation,) = [each for each in found if each is not None]
        return translation

    dense = read(onnx_call("Gemm", x, held, bias, output=(4,), transB=1))
    assert (dense.layer, set(dense.parameters)) == (Dense(units=4), {"weight", "bias"})
    assert read(onnx_call("MatMul", x, plain, output=(4,))).layer == MatMul()
    general = read(onnx_call("Gemm", x, plain, output=(4,), transB=0))
    assert (general.layer, len(general.inputs)) == (MatMul(), 2)
