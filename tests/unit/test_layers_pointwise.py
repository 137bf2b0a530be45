"""Element-wise layers, norms and reductions: counts by hand, shapes by torch, calls of torch and ONNX."""

import pytest
import sympy
import torch

from perfmodel.errors import ArgumentError
from perfmodel.layers import (
    GELU,
    GLU,
    LAYERS,
    Add,
    BatchNorm,
    Binary,
    Cumulative,
    GroupNorm,
    LayerNorm,
    LeakyReLU,
    LogSoftmax,
    Reduction,
    ReLU,
    ReLU6,
    RMSNorm,
    ShapeMismatchError,
    SharedShape,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
    Unary,
    Where,
    activation,
    binary,
    reduction,
)
from perfmodel.layers.translation import Operand, OperatorCall
from perfmodel.records import Role, Work
from tests.layer_examples import EXAMPLES
from tests.torch_calls import call_of, shared, translated

N = 2  # samples
ATEN = torch.ops.aten


def forward(layer, *shapes):
    return layer.work(shapes, batch_size=N, phase="forward")


def gradients(layer, *shapes, wanted=None):
    operations = layer.gradient_operations(shapes, batch_size=N, wanted=wanted or [True] * len(shapes))
    return [each.work(element_bytes=4) for each in operations]


def meta(*shape):
    return torch.empty((N, *shape), device="meta")


def weight(*shape):
    return torch.nn.Parameter(torch.empty(shape, device="meta"))


def taken(operator, *given, **named):
    """The translation of a call, whose layer makes what the call makes."""
    call = call_of(operator, *given, **named)
    translation = translated(LAYERS.values(), call)
    assert translation is not None, call.operator
    shapes = tuple(each.shape for each in translation.inputs)
    assert translation.layer.output_shape(shapes) == call.output.shape
    assert set(translation.parameters) == set(translation.layer.parameter_shapes(shapes))
    return translation


# ---- functions of one element


@pytest.mark.parametrize(
    ("layer", "forward_flop", "backward_flop", "reads"),
    [
        (ReLU6(), 2, 2, 2),  # two comparisons either way; dy and x
        (LeakyReLU(), 2, 2, 2),  # compare, multiply
        (SiLU(), 5, 9, 2),  # the logistic function's 4 and a product; 4, then 1 - s, x, 1 +, s, dy
        (GELU(), 5, 11, 2),  # x / sqrt 2, erf, 1 +, x, / 2
        (GELU(approximation="tanh"), 9, 16, 2),
        (Unary(function="exp"), 1, 1, 2),  # dy y
        (Unary(function="square"), 1, 2, 2),  # 2 x dy
        (Unary(function="multiply_by_number"), 1, 1, 1),  # dy alone
        (Cumulative(), 1, 1, 1),
        (Cumulative(function="product"), 1, 3, 3),  # dy, x and y
    ],
    ids=str,
)
def test_functions_of_one_element(layer, forward_flop, backward_flop, reads):
    n = N * 10
    assert forward(layer, (10,)) == Work(forward_flop * n, 4 * n, 4 * n)
    assert gradients(layer, (10,)) == [Work(backward_flop * n, 4 * reads * n, 4 * n)]
    assert gradients(layer, (10,), wanted=[False]) == []


def test_a_function_without_a_gradient_sends_none():
    for function in ("floor", "sign", "compare"):
        assert Unary(function=function).differentiable(1) == (False,)
        assert gradients(Unary(function=function), (10,)) == []
    assert Unary(function="add_number").differentiable(1) == (True,)
    assert gradients(Unary(function="add_number"), (10,)) == []  # dy is passed on
    # a truth value is a byte
    assert forward(Unary(function="compare"), (10,)) == Work(20, 80, 20)


OPERATORS_OF_ONE_TENSOR = {function: name for name, function in reversed(activation.TORCH_NAMES.items())}


@pytest.mark.parametrize("name", sorted(set(OPERATORS_OF_ONE_TENSOR) - {"threshold", "log_sigmoid"}))
def test_what_a_gradient_reads_is_what_stays_in_memory(name):
    """Torch keeps for back-propagation what the formulas of the table read."""
    layer = Unary(function=name)
    if activation.FUNCTIONS[name].backward_flop is None:
        return
    x = torch.rand(3, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.data_ptr()), lambda tensor: tensor):
        y = getattr(ATEN, OPERATORS_OF_ONE_TENSOR[name].removeprefix("aten.")).default(x)
    assert (x.data_ptr() in kept, y.data_ptr() in kept) == (layer.keeps_inputs, layer.keeps_output)


@pytest.mark.parametrize("make", [lambda: Unary(function="expp"), lambda: GELU(approximation="tan")])
def test_unknown_functions_are_refused_with_the_nearest(make):
    with pytest.raises(ArgumentError, match=r"exp|tanh"):
        make()


# ---- functions of two elements


def test_a_product_of_a_map_and_a_gate_per_channel():
    layer, map_shape, gate = Binary(function="multiply"), (4, 3, 3), (4, 1, 1)
    n, channels = N * 36, N * 4
    assert layer.output_shape((map_shape, gate)) == map_shape
    assert forward(layer, map_shape, gate) == Work(n, 4 * (n + channels), 4 * n)
    to_map, to_gate, total = gradients(layer, map_shape, gate)
    assert to_map == Work(n, 4 * (n + channels), 4 * n)  # dy times the gate
    assert to_gate == Work(n, 4 * 2 * n, 4 * n)  # dy times the map ...
    assert total == Work(n, 4 * n, 4 * channels)  # ... summed over the map
    assert gradients(layer, map_shape, gate, wanted=[True, False]) == [to_map]
    assert not layer.keeps_output
    # each gradient reads the other operand
    assert layer.kept_inputs((True, False), is_trained=True) == (False, True)
    assert layer.kept_inputs((True, True), is_trained=True) == (True, True)


def test_a_sum_keeps_nothing_and_passes_on():
    layer = Binary(function="add")
    assert gradients(layer, (10,), (10,)) == []
    # a bias that all samples share: 10 sums over 2 samples
    assert gradients(layer, (10,), SharedShape((10,))) == [Work(20, 80, 40)]
    assert gradients(layer, (10,), SharedShape((1, 10)), wanted=[True, False]) == []
    assert not layer.keeps_inputs


def test_a_quotient():
    # dy / b; -dy (a / b) / b: two divides, a product, a sign
    first, second = gradients(Binary(function="divide"), (10,), (10,))
    assert first == Work(20, 4 * 40, 4 * 20)
    assert second == Work(80, 4 * 60, 4 * 20)


def test_a_comparison_writes_bytes_and_sends_nothing_back():
    layer = Binary(function="compare")
    assert forward(layer, (10,), (10,)) == Work(20, 160, 20)
    assert gradients(layer, (10,), (10,)) == []
    assert layer.differentiable(2) == (False, False)


@pytest.mark.parametrize(
    "shapes",
    [((4, 9, 9), (9,)), ((4, 1, 9), (4, 9, 1)), ((7,), ()), ((5, 6), (1, 6)), ((3, 1), (4,))],
)
def test_shapes_broadcast_as_torchs(shapes):
    tensors = [torch.empty(shape) for shape in shapes]
    assert Binary(function="add").output_shape(shapes) == tuple(torch.broadcast_tensors(*tensors)[0].shape)


def test_shared_operands_broadcast_over_the_batch():
    layer = Binary(function="add")
    assert layer.output_shape(((5, 6), SharedShape((1, 5, 6)))) == (5, 6)
    assert not isinstance(layer.output_shape(((5, 6), SharedShape((5, 6)))), SharedShape)
    assert isinstance(layer.output_shape((SharedShape((5, 6)), SharedShape((6,)))), SharedShape)
    with pytest.raises(ShapeMismatchError, match="5x6 and 4x6"):
        layer.output_shape(((5, 6), (4, 6)))


def test_what_the_samples_do_not_tell_is_told():
    # (N, F) against (S, 1, F): the whole is (S, N, F), a sample (S, F)
    layer = Binary(function="add", shape=(5, 6))
    assert layer.output_shape(((6,), SharedShape((5, 1, 6)))) == (5, 6)
    assert forward(layer, (6,), SharedShape((5, 1, 6))) == Work(60, 4 * (12 + 30), 4 * 60)


def test_where():
    layer = Where()
    # a mask of a byte for each of the 2 x 25 places, 4 heads each; a comparison per element
    assert forward(layer, (1, 5, 5), (4, 5, 5)) == Work(200, 4 * 200 + 50, 4 * 200)
    assert gradients(layer, (1, 5, 5), (4, 5, 5)) == [Work(200, 4 * 200 + 50, 4 * 200)]
    assert layer.kept_inputs([False, True], is_trained=True) == (True, False)
    assert layer.kept_inputs([False, False], is_trained=True) == (False, False)
    assert layer.differentiable(3) == (False, True, True)
    # a second tensor of 6 elements for 5 steps: its gradient is summed over 2 samples of 5 steps
    choice = gradients(layer, (5, 6), (5, 6), SharedShape((6,)), wanted=[False, False, True])
    assert choice[1] == Work(60, 4 * 60, 4 * 6)


def test_sums_of_shared_and_own_tensors_are_no_plain_sum():
    with pytest.raises(ShapeMismatchError):
        Add().output_shape(((10,), SharedShape((10,))))


# ---- reductions


@pytest.mark.parametrize(
    ("options", "flop", "flop_per_result"),
    [({"function": "sum"}, 1, 0), ({"function": "mean"}, 1, 1), ({"function": "var"}, 4, 2)],
)
def test_a_reduction_over_a_map(options, flop, flop_per_result):
    layer = Reduction(axes=(1, 2), **options)
    n, results = N * 36, N * 4
    assert layer.output_shape(((4, 3, 3),)) == (4,)
    assert forward(layer, (4, 3, 3)) == Work(flop * n + flop_per_result * results, 4 * n, 4 * results)


def test_gradients_of_reductions():
    n, results = N * 10, N
    assert gradients(Reduction(function="sum"), (10,)) == []  # dy seen through a view
    assert gradients(Reduction(function="mean"), (10,)) == [Work(results, 4 * results, 4 * n)]  # dy / 10, written out
    # compare x with y, times dy: reads dy, y and x
    assert gradients(Reduction(function="max"), (10,)) == [Work(2 * n, 4 * (2 * results + n), 4 * n)]
    assert gradients(Reduction(function="argmax"), (10,)) == []
    assert forward(Reduction(function="argmax"), (10,)).written_bytes == 4 * N


def test_a_reduction_over_the_batch_is_shared():
    layer = Reduction(function="mean", axes=(), over_batch=True)
    shape = layer.output_shape(((10,),))
    assert isinstance(shape, SharedShape)
    assert shape == (10,)
    assert forward(layer, (10,)) == Work(20 + 10, 80, 40)  # an add per element, a division per result
    assert Reduction(function="mean", axes=(), over_batch=True, keep_axes=True).output_shape(((10,),)) == (1, 10)


@pytest.mark.parametrize("name", sorted(set(reduction.TORCH_NAMES.values()) - {"count"}))
@pytest.mark.parametrize("dim", [1, (1, 2), -1])
@pytest.mark.parametrize("keepdim", [True, False])
def test_reductions_of_torch(name, dim, keepdim):
    operator = next(each for each, function in reduction.TORCH_NAMES.items() if function == name)
    packet = getattr(ATEN, {"aten.max": "amax", "aten.min": "amin"}.get(operator, operator.removeprefix("aten.")))
    overload = {"sum": "dim_IntList", "mean": "dim", "var": "correction", "std": "correction", "norm": "ScalarOpt_dim"}
    one_axis = name in ("prod", "argmax", "argmin", "any", "all")
    if one_axis and not isinstance(dim, int):
        return
    which = "dim_int" if name == "prod" else "dim" if name in ("any", "all") else overload.get(name, "default")
    dims = dim if one_axis else [dim] if isinstance(dim, int) else list(dim)
    x = meta(4, 5)
    given = (x, None, dims) if name == "norm" else (x, dims)
    keywords = {"keepdim": keepdim}
    if which == "dim_int" or name in ("any", "all", "argmax", "argmin", "log_sum_exp", "norm", "max", "min"):
        translation = taken(getattr(packet, which), *given, keepdim)
    else:
        translation = taken(getattr(packet, which), *given, **keywords)
    assert translation.layer.function == name
    assert not translation.layer.over_batch


def test_reductions_over_the_batch_of_torch():
    total = taken(ATEN.sum.default, meta(4, 5))
    assert total.layer == Reduction(function="sum", over_batch=True)
    per_feature = taken(ATEN.mean.dim, meta(4), [0], shared_output=True)
    assert per_feature.layer == Reduction(function="mean", axes=(), over_batch=True)
    kept = taken(ATEN.mean.dim, meta(4), [0], True, shared_output=True)
    assert kept.layer.output_shape(((4,),)) == (1, 4)
    assert translated(LAYERS.values(), call_of(ATEN.max.dim, meta(4, 5), 1)).layer.function == "max_and_place"


def test_a_maximum_with_its_place():
    # 20 comparisons write 4 numbers and 4 indices of 4 B; back it reads both and writes 20 numbers
    layer = Reduction(function="max_and_place", axes=(1,))
    assert forward(layer, (2, 5)) == Work(20, 4 * 20, 4 * 4 + 4 * 4)
    assert gradients(layer, (2, 5)) == [Work(0, 4 * 4 + 4 * 4, 4 * 20)]
    assert layer.saved_index_count(((2, 5),), batch_size=N) == 4
    assert not layer.keeps_inputs
    assert not layer.keeps_output


# ---- softmax and norms


def test_softmax_along_any_axis():
    assert Softmax(axis=0).output_shape(((21, 4, 4),)) == (21, 4, 4)
    with pytest.raises(ShapeMismatchError, match="axis 2"):
        Softmax(axis=2).output_shape(((5, 6),))
    n, rows = N * 21 * 16, N * 16
    # compare, subtract, exp, add, subtract per element, a logarithm per row; x is read twice
    assert forward(LogSoftmax(axis=0), (21, 4, 4)) == Work(5 * n + rows, 4 * 2 * n, 4 * n)
    # sum of dy; exp y, times it, subtracted: dy twice, y once
    assert gradients(LogSoftmax(axis=0), (21, 4, 4)) == [Work(4 * n, 4 * 3 * n, 4 * n)]
    assert (Softmax.keeps_inputs, Softmax.keeps_output) == (False, True)


def test_layer_norm():
    layer, shape = LayerNorm(), (5, 6)
    n, rows = N * 30, N * 5
    assert layer.parameter_shapes((shape,)) == {"gamma": (6,), "beta": (6,)}
    # 3 for the sums of x and x^2, 2 to normalise, 2 for gamma and beta; mean and deviation of each row are written
    assert forward(layer, shape) == Work(7 * n, 4 * (n + 12), 4 * (n + 2 * rows))
    to_input, to_parameters = gradients(layer, shape)
    # x^ (2) and dy gamma (1) twice; two sums (3); x^ c, subtract, subtract, divide (4): 13
    assert to_input == Work(13 * n, 4 * (2 * n + 2 * rows + 6), 4 * n)
    # x^ (2), times dy, added; dy added: 5
    assert to_parameters == Work(5 * n, 4 * (2 * n + 2 * rows), 4 * 12)
    assert gradients(layer, shape, wanted=[False]) == [to_parameters]
    assert layer.saved_bytes((shape,), batch_size=N, element_bytes=4) == 4 * 2 * rows


def test_rms_norm_subtracts_no_mean():
    layer, shape = RMSNorm(), (5, 6)
    n, rows = N * 30, N * 5
    assert layer.parameter_shapes((shape,)) == {"gamma": (6,)}
    assert forward(layer, shape) == Work(4 * n, 4 * (n + 6), 4 * (n + rows))
    to_input, to_parameters = gradients(layer, shape)
    assert to_input == Work(9 * n, 4 * (2 * n + rows + 6), 4 * n)
    assert to_parameters == Work(3 * n, 4 * (2 * n + rows), 4 * 6)


def test_group_norm_has_statistics_by_group_and_parameters_by_channel():
    layer, shape = GroupNorm(groups=2), (4, 3, 3)
    assert layer.parameter_shapes((shape,)) == {"gamma": (4,), "beta": (4,)}
    assert layer.saved_bytes((shape,), batch_size=N, element_bytes=4) == 4 * 2 * N * 2
    assert forward(layer, shape) == Work(7 * 72, 4 * (144 + 8), 4 * (72 + 8))
    with pytest.raises(ShapeMismatchError, match="3 groups"):
        GroupNorm(groups=3).output_shape((shape,))
    channels = sympy.Symbol("C", positive=True, integer=True)
    assert layer.parameter_count(((channels, 8, 8),)) == 2 * channels


@pytest.mark.parametrize(
    ("module", "shape", "layer"),
    [
        (torch.nn.LayerNorm(6), (5, 6), LayerNorm()),
        (torch.nn.LayerNorm((5, 6), bias=False), (5, 6), LayerNorm(axis_count=2, bias=False)),
        (torch.nn.GroupNorm(2, 4), (4, 3, 3), GroupNorm(groups=2)),
        (torch.nn.RMSNorm(6), (5, 6), RMSNorm()),
        (torch.nn.BatchNorm2d(4), (4, 3, 3), BatchNorm()),
        (torch.nn.BatchNorm1d(4), (4, 3), BatchNorm(axis=0)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_norms_have_torchs_parameters(module, shape, layer):
    shapes = sorted(tuple(each.shape) for each in module.parameters())
    assert sorted(layer.parameter_shapes((shape,)).values()) == shapes
    assert layer.output_shape((shape,)) == tuple(module(torch.rand(N, *shape)).shape[1:])


# ---- calls


MAP = meta(4, 3, 3)
CALLS = [
    (ATEN.relu.default, (MAP,), ReLU()),
    (ATEN.sigmoid.default, (MAP,), Sigmoid()),
    (ATEN.tanh.default, (MAP,), Tanh()),
    (ATEN.silu.default, (MAP,), SiLU()),
    (ATEN.glu.default, (meta(4, 6), -1), GLU(axis=1)),
    (ATEN.hardtanh.default, (MAP, 0.0, 6.0), ReLU6()),
    (ATEN.hardtanh.default, (MAP, -1.0, 1.0), Unary(function="hard_tanh")),
    (ATEN.clamp.default, (MAP, 0.0), Unary(function="clamp_one_side")),
    (ATEN.leaky_relu.default, (MAP, 0.2), LeakyReLU(slope=0.2)),
    (ATEN.gelu.default, (MAP,), GELU()),
    (ATEN._softmax.default, (MAP, 1, False), Softmax(axis=0)),
    (ATEN._log_softmax.default, (MAP, -1, False), LogSoftmax(axis=2)),
    (ATEN.exp.default, (MAP,), Unary(function="exp")),
    (ATEN.add.Tensor, (MAP, 1.0), Unary(function="add_number")),
    (ATEN.mul.Tensor, (MAP, 2.0), Unary(function="multiply_by_number")),
    (ATEN.rsub.Scalar, (MAP, 1.0), Unary(function="subtract_from_number")),
    (ATEN.pow.Tensor_Scalar, (MAP, 2), Unary(function="square")),
    (ATEN.pow.Tensor_Scalar, (MAP, 3), Unary(function="power")),
    (ATEN.pow.Scalar, (2.0, MAP), Unary(function="power_of_number")),
    (ATEN.gt.Scalar, (MAP, 0.0), Unary(function="compare")),
    (ATEN.add.Tensor, (MAP, MAP), Add()),
    (ATEN.add.Tensor, (MAP, shared(torch.empty(3, device="meta"))), Binary(function="add")),
    (ATEN.sub.Tensor, (MAP, MAP), Binary(function="subtract")),
    (ATEN.mul.Tensor, (MAP, weight(4, 1, 1)), Binary(function="multiply")),
    (ATEN.div.Tensor, (MAP, meta(4, 1, 1)), Binary(function="divide")),
    (ATEN._prelu_kernel.default, (MAP, weight(1, 4, 1, 1)), Binary(function="prelu")),
    (ATEN.lerp.Scalar, (MAP, MAP, 0.5), Binary(function="interpolate")),
    (ATEN.cumsum.default, (MAP, 1), Cumulative()),
    (ATEN.native_group_norm.default, (MAP, weight(4), weight(4), N, 4, 9, 2, 1e-5), GroupNorm(groups=2)),
    (ATEN.native_layer_norm.default, (MAP, [3], weight(3), weight(3), 1e-5), LayerNorm()),
    (ATEN.native_layer_norm.default, (MAP, [3, 3], None, None, 1e-5), LayerNorm(axis_count=2, affine=False)),
    (ATEN.native_batch_norm.default, (MAP, weight(4), weight(4), None, None, True, 0.1, 1e-5), BatchNorm()),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "given", "layer"), CALLS, ids=lambda each: str(each)[:40])
def test_calls_of_torch(operator, given, layer):
    assert taken(operator, *given).layer == layer


def test_masks_of_torch():
    mask = torch.empty((N, 1, 3, 3), dtype=torch.bool, device="meta")
    filled = taken(ATEN.masked_fill.Scalar, MAP, mask, 0.0)
    assert filled.layer == Where()
    assert [each.is_index for each in filled.inputs] == [True, False]
    assert len(taken(ATEN.where.self, mask, MAP, MAP).inputs) == 3


def test_running_statistics_are_given():
    statistics = [shared(torch.empty(4, device="meta")) for _ in range(2)]
    call = call_of(ATEN.native_batch_norm.default, MAP, weight(4), weight(4), *statistics, False, 0.1, 1e-5)
    assert translated(LAYERS.values(), call).layer == BatchNorm(statistics="given")


@pytest.mark.parametrize(
    ("operator", "attributes", "shapes", "layer"),
    [
        ("Relu", {}, [(4, 3)], ReLU()),
        ("LeakyRelu", {"alpha": 0.1}, [(4, 3)], LeakyReLU(slope=0.1)),
        ("Clip", {"min": 0, "max": 6}, [(4, 3)], ReLU6()),
        ("Clip", {"min": -1, "max": 1}, [(4, 3)], Unary(function="clamp")),
        ("Softmax", {"axis": 1}, [(4, 3)], Softmax(axis=0)),
        ("Add", {}, [(4, 3), (4, 3)], Add()),
        ("Mul", {}, [(4, 3), (4, 1)], Binary(function="multiply")),
        ("Erf", {}, [(4, 3)], Unary(function="erf")),
        ("ReduceMean", {"axes": (2,), "keepdims": 0}, [(4, 3)], Reduction(function="mean", axes=(1,))),
        ("LayerNormalization", {"axis": -1}, [(4, 3)], LayerNorm(affine=False)),
    ],
)
def test_calls_of_onnx(operator, attributes, shapes, layer):
    operands = [
        Operand(key=str(index), shape=shape, axes=(None, *range(len(shape)))) for index, shape in enumerate(shapes)
    ]
    shape = layer.output_shape(tuple(shapes))
    call = OperatorCall(
        operator=operator,
        arguments={str(index): operand for index, operand in enumerate(operands)} | attributes,
        outputs=(Operand(key="y", shape=shape, axes=(None, *range(len(shape)))),),
    )
    found = [kind.operators[operator](call) for kind in LAYERS.values() if operator in kind.operators]
    (translation,) = [each for each in found if each is not None]
    assert translation.layer == layer


def test_every_function_of_a_table_is_named_by_a_program():
    # a function that nobody can reach would be dead
    torch_names = set(activation.TORCH_NAMES.values()) | set(activation.WITH_NUMBER.values())
    by_options = {"square", "power", "power_of_number", "clamp", "clamp_one_side", "hard_tanh"}
    named = torch_names | set(activation.ONNX_NAMES.values()) | by_options
    assert set(activation.FUNCTIONS) <= named
    assert set(binary.TORCH_NAMES.values()) | {"add_scaled", "complex_multiply"} == set(binary.FUNCTIONS)
    assert set(reduction.TORCH_NAMES.values()) | {"max_and_place", "min_and_place"} == set(reduction.FUNCTIONS)


def test_gradients_are_of_the_input():
    for kind in ("unary", "binary", "where", "reduction"):
        for options, shapes in EXAMPLES[kind]:
            operations = LAYERS[kind](**options).backward_operations(shapes, batch_size=N)
            assert {each.role for each in operations} <= {Role.INPUT_GRADIENT}


def test_gated_linear_unit():
    # of 10 elements a sample, the first 5 times the logistic function of the others (4 FLOP, and the product); back
    # that function again, dy s, and that times a (1 - s)
    layer = GLU()
    (forward,) = layer.forward_operations(((10,),), batch_size=N)
    (backward,) = layer.backward_operations(((10,),), batch_size=N)
    assert forward.work(element_bytes=4) == Work(N * 5 * 5, N * 10 * 4, N * 5 * 4)
    assert backward.work(element_bytes=4) == Work(N * 5 * 8, N * 15 * 4, N * 10 * 4)
    with pytest.raises(ShapeMismatchError, match="two halves"):
        layer.output_shape(((9,),))
